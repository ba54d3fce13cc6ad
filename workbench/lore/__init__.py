"""Dump the inputs of a Spark operator, replay it alone, verify its output bit for bit.

Flow: query → final plan with LORE ids → dump → bundle, replay or inspection → verification; nothing is loaded before
the trust check

Map, from what goes in to what comes out:

    lore.spark_bridge.query_runs.tag_plan(DataFrame) -> PlanTree
    lore.dumps.query_dumps.dump_query(DataFrame, DumpSettings) -> DumpResult
    lore.trust.trust_check.check_trust(folder) -> Sidecar
    lore.replays.operator_replay.replay_dump(folder, ReplayOptions) -> ReplayResult
    lore.dump_reader.dump_inspection.inspect_dumps(folder) -> Inspection
    lore.study.build_study(NotebookConfig, Run) -> Study

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
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.bisection.input_bisection import BisectionResult
    from workbench.lore.config import DumpSettings
    from workbench.lore.dump_reader.dump_inspection import DumpTables
    from workbench.lore.dumps.operator_dump import DumpResult
    from workbench.lore.dumps.query_dumps import SessionWatch
    from workbench.lore.replays.lore_session import LoreSession
    from workbench.lore.replays.operator_replay import ReplayResult
    from workbench.lore.spark_bridge.physical_plan import PlanTree

__all__ = [
    "bisect",
    "charts",
    "config",
    "dump",
    "dump_with_settings",
    "enable",
    "open",
    "replay",
    "run",
    "session",
    "study",
    "summary",
    "tables",
    "tag",
    "verify",
]


def tag(df: DataFrame, *, run: bool = True, labels: bool = True) -> PlanTree:
    """Tag the plan of a DataFrame with LORE ids; `.render_text()` shows it. See `query_runs.tag_plan`."""
    from workbench.lore.spark_bridge.query_runs import tag_plan

    return tag_plan(df, run=run, labels=labels)


def dump(
    df: DataFrame,
    ids: str | Mapping[int, Iterable[int] | None] | None = None,
    path: str | Path | None = None,
    *,
    tree: PlanTree | None = None,
    failed: bool = False,
    **settings: Any,
) -> DumpResult:
    """Dump the inputs of chosen operators of a query.

    Parameters
    ----------
    df
        The query; it runs when AQE has not finished its plan. Shuffle files of its earlier runs are reused.
    ids, path
        Operators and partitions (`1[0 2 5-9], 4[*]`, or partitions by id), and the folder to write to. The default are
        the session's keys spark.rapids.sql.lore.idsToDump and dumpPath.
    tree
        Result of `tag`; the dump is refused when the plan has changed since.
    failed
        For a query that fails: find the failing operator and dump its inputs. Not with ids, tree or mode="inline".
    **settings
        Other fields of `config.DumpSettings`, such as mask or max_bytes.

    Returns
    -------
    DumpResult
        Folders by id, refused ids with the reason (non-strict mode), warnings.

    Raises
    ------
    ConfigError
        No operator is chosen, or one beside `failed`; an unknown id, an operator that cannot be dumped, a path that is
        not empty.
    """
    from workbench.lore import config
    from workbench.lore.dumps import query_dumps

    if failed:
        query_dumps.check_nothing_chosen(ids=ids, tagged=tree)
    spark = df.sparkSession
    chosen = config.settings_from_session(
        lambda key, default: spark.conf.get(key, default),
        ids=ids,
        path=str(path) if path is not None else None,
        **settings,
    )
    expected = {"shape": tree.plan_shape()} if tree is not None else None
    return dump_with_settings(df, chosen, tagged=expected, failed=failed)


def dump_with_settings(
    df: DataFrame, settings: DumpSettings, *, tagged: Mapping[str, Any] | None = None, failed: bool = False
) -> DumpResult:
    """`dump` with ready settings; `tagged` is the document of `query_runs.build_plan_document`."""
    from workbench.lore.dumps.query_dumps import dump_query

    return dump_query(df, settings, tagged=tagged, failed=failed)


def enable(spark: SparkSession) -> SessionWatch:
    """Dump the actions of a session as its keys say, without changes to queries.

    Set spark.rapids.sql.lore.idsToDump and spark.rapids.sql.lore.dumpPath, then run an action. Dumps are written after
    the action has ended; `wait_for_dumps()` and the end of a `with` block wait for them. The keys are read when Spark
    reports the end of the action: wait before you change them.

    Examples
    --------
    >>> with lore.enable(spark) as watch:                                          # doctest: +SKIP
    ...     spark.conf.set("spark.rapids.sql.lore.idsToDump", "9[0]")
    ...     spark.conf.set("spark.rapids.sql.lore.dumpPath", "dumps/q")
    ...     df.collect()
    >>> watch.dumped[0].folders                                                    # doctest: +SKIP
    """
    from workbench.lore.dumps.query_dumps import SessionWatch

    return SessionWatch(spark)


def replay(folder: str | Path, **options: Any) -> ReplayResult:
    """Replay a dump in a fresh process; options are the fields of `operator_replay.ReplayOptions`.

    Raises
    ------
    WorkbenchError
        The process refused the dump; its message is included.
    """
    from workbench.lore.replays.replay_outcome import replay_in_process

    return replay_in_process(str(folder), **options)


def open(folder: str | Path) -> DumpTables:  # noqa: A001 - lore.open reads as gzip.open does
    """Open a dump on this machine as polars tables, without Spark: `.inputs["input-0"]`, `.output`.

    Raises
    ------
    InputError
        Not a dump, or damaged.
    """
    from workbench.lore.dump_reader.dump_inspection import open_tables

    return open_tables(Path(folder))


def verify(folder: str | Path, **options: Any) -> ReplayResult:
    """`replay` without timed runs."""
    return replay(folder, **{**options, "repeat": 0})


def run(folder: str | Path, inputs: Mapping[str, Any] | None = None, **options: Any) -> pl.DataFrame:
    """The output of a dumped operator over rows that you changed, in a fresh process.

    Parameters
    ----------
    inputs
        Frames by name of the input; inputs left out are those of the dump.

    Examples
    --------
    >>> rows = lore.open("dumps/q/loreId-9").inputs["input-0"]                     # doctest: +SKIP
    >>> lore.run("dumps/q/loreId-9", {"input-0": rows.head(3)})                    # doctest: +SKIP
    """
    with session() as lore_session:
        return lore_session.run(folder, inputs, **options)


def session() -> LoreSession:
    """A session that stays, in a process of its own: the second replay does not wait for Spark to start.

    Examples
    --------
    >>> with lore.session() as session:                                            # doctest: +SKIP
    ...     print(session.verify("dumps/q/loreId-9").answer)
    ...     print(session.run("dumps/q/loreId-9", {"input-0": changed}))
    """
    from workbench.lore.replays.lore_session import LoreSession

    return LoreSession()


def bisect(folder: str | Path, **options: Any) -> BisectionResult:
    """Find the smallest input with which a dumped operator fails as it did, or two variants differ; in a fresh process.

    Parameters
    ----------
    folder
        loreId-N, a bundle, or a URL.
    **options
        Fields of `input_bisection.BisectOptions`: confs_a and confs_b, engine, out, max_steps.

    Raises
    ------
    WorkbenchError
        The process refused the dump; its message is included.
    """
    from workbench.lore.replays.replay_outcome import bisect_in_process

    return bisect_in_process(str(folder), **options)
