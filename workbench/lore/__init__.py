"""Why is this operator slow or wrong? Dump its inputs, replay it alone, verify it bit for bit.

>>> from workbench import lore
>>> tree = lore.tag(df)                                    # doctest: +SKIP
>>> lore.dump(df, "9[0]", "dumps/q", tree=tree)            # doctest: +SKIP
>>> lore.replay("dumps/q/loreId-9").answer                 # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.bisecting import Bisected
    from workbench.lore.config import DumpSettings
    from workbench.lore.dumping import Dumped
    from workbench.lore.plan import Tree
    from workbench.lore.replaying import Replayed
    from workbench.lore.watching import Watch


def tag(df: DataFrame, *, run: bool = True, labels: bool = True) -> Tree:
    """The plan of a DataFrame with LORE ids; `.render()` shows it. See `running.tagged`."""
    from workbench.lore.running import tagged

    return tagged(df, run=run, labels=labels)


def dump(
    df: DataFrame,
    ids: str | Mapping[int, Iterable[int] | None] | None = None,
    path: str | Path | None = None,
    *,
    tree: Tree | None = None,
    failed: bool = False,
    **settings: Any,
) -> Dumped:
    """Write the inputs of chosen operators of a query.

    Parameters
    ----------
    df
        The query; it is run when AQE has not settled its plan. What this DataFrame shuffled before is used again.
    ids, path
        Which operators and partitions, and where to: `1[0 2 5-9], 4[*]` or partitions by id. Left out, the session's
        keys spark.rapids.sql.lore.idsToDump and dumpPath hold.
    tree
        What `tag` gave: refused when the plan is another now.
    failed
        The query fails: find the operator that does, and dump its inputs; without ids, tree and mode="inline".
    **settings
        Further fields of `config.DumpSettings`, such as mask or max_bytes.

    Returns
    -------
    Dumped
        Folders by id, what was left out and why (non-strict mode), warnings.

    Raises
    ------
    ConfigError
        Nothing chosen, or something beside `failed`; an unknown id, an operator that cannot be dumped, a path with
        something in it.
    """
    from workbench.lore import config, failing

    if failed:
        failing.require_unchosen(ids=ids, tagged=tree)
    spark = df.sparkSession
    chosen = config.from_session(
        lambda key, default: spark.conf.get(key, default),
        ids=ids,
        path=str(path) if path is not None else None,
        **settings,
    )
    expected = {"shape": tree.shape()} if tree is not None else None
    return dump_with(df, chosen, tagged=expected, failed=failed)


def dump_with(
    df: DataFrame, settings: DumpSettings, *, tagged: Mapping[str, Any] | None = None, failed: bool = False
) -> Dumped:
    """`dump` with settings that are made already; `tagged` is the document of `running.document`."""
    from workbench.lore.dumping import dump_frame

    return dump_frame(df, settings, tagged=tagged, failed=failed)


def enable(spark: SparkSession) -> Watch:
    """Dump ordinary actions as the session's keys say, without a change to any query.

    Set spark.rapids.sql.lore.idsToDump and spark.rapids.sql.lore.dumpPath, then run an action. Dumps are made after
    the action has ended; `wait()` returns when they are there, and so does the end of a `with` block. The keys are read
    when Spark tells of the action's end: wait before you change them.

    Examples
    --------
    >>> with lore.enable(spark) as watch:                                          # doctest: +SKIP
    ...     spark.conf.set("spark.rapids.sql.lore.idsToDump", "9[0]")
    ...     spark.conf.set("spark.rapids.sql.lore.dumpPath", "dumps/q")
    ...     df.collect()
    >>> watch.dumped[0].folders                                                    # doctest: +SKIP
    """
    from workbench.lore.watching import Watch

    return Watch(spark)


def replay(folder: str | Path, **options: Any) -> Replayed:
    """Replay a dump in a fresh process, whatever runs in this one; options are those of `replaying.Options`.

    Raises
    ------
    WorkbenchError
        What the process refused, in its own words.
    """
    from workbench.lore.processes import replayed

    return replayed(str(folder), **options)


def verify(folder: str | Path, **options: Any) -> Replayed:
    """`replay` without timed runs."""
    return replay(folder, **{**options, "repeat": 0})


def bisect(folder: str | Path, **options: Any) -> Bisected:
    """The smallest input with which a dumped operator fails as it did, or two sides differ; in a fresh process.

    Parameters
    ----------
    folder
        loreId-N, a bundle, or a URL.
    **options
        Those of `bisecting.BisectOptions`: confs_a and confs_b, engine, out, max_steps.

    Raises
    ------
    WorkbenchError
        What the process refused, in its own words.
    """
    from workbench.lore.processes import bisected

    return bisected(str(folder), **options)
