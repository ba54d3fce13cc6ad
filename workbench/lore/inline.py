"""mode=inline: operators captured while the query runs, for upstreams that give other rows when they are asked again.

A jar of hooks (`jvm/`, see decision 0017) is put into the session's extensions. Armed with targets of a tagged plan,
it wraps their inputs and outputs in the next run of the same query: chosen partitions are written as they pass, and
the output is fingerprinted. Verify then compares with the original run itself. The hooks never fail the query: what
goes wrong with them is said when the dump is finished.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, WorkbenchError
from workbench.lore.bridge import Bridge, described
from workbench.lore.bridge import bridge as find_bridge
from workbench.lore.dumping import Dumped
from workbench.lore.failure import Failure, failure_of
from workbench.lore.inline_dumping import InlineDump, Run
from workbench.lore.inline_targets import Targets
from workbench.lore.plan import Tree, require_same
from workbench.lore.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.config import DumpSettings

EXTENSION = "workbench.lore.Extension"
KEY = "spark.workbench.lore.inline"


def enable(
    confs: Mapping[str, str] | None = None, *, spark_version: str | None = None, say: Callable[[str], None]
) -> dict[str, str]:
    """Settings for a new session that can dump inline; those that are given are kept.

    Parameters
    ----------
    confs
        What the session is to be made with: its own jars and extensions stay.
    spark_version
        Of the Spark that it will be; pyspark's by default.
    say
        Told when the jar has to be compiled first.

    Raises
    ------
    MissingToolError
        There is no Java compiler, and none can be brought.
    """
    import pyspark

    from workbench.lore.inline_build import jar
    from workbench.spark.engines import class_paths

    found = dict(confs or {})
    for key, value in class_paths(jar(spark_version or pyspark.__version__, say)).items():
        separator = "," if key == "spark.jars" else ":"
        found[key] = separator.join(filter(None, [found.get(key), value]))
    extensions = [one for one in found.get("spark.sql.extensions", "").split(",") if one]
    found["spark.sql.extensions"] = ",".join([*extensions, *([] if EXTENSION in extensions else [EXTENSION])])
    return found


def is_enabled(spark: SparkSession) -> bool:
    """Does this session have the hooks?"""
    return EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "").split(",")


def dump(frame: DataFrame, settings: DumpSettings, *, tagged: Mapping[str, Any] | None = None) -> Dumped:
    """Tag a query, run it once more with hooks, and dump what passed them.

    With AQE the plan is final only after a run, so that the query runs twice; else once. A query that fails is
    dumped as far as it came, with the error that a replay must give.

    Parameters
    ----------
    frame
        The query.
    settings
        Chosen operators and the path.
    tagged
        `running.document` of an earlier tagging: refused when the plan is another now.

    Raises
    ------
    ConfigError
        A session without hooks; an id or a partition that is none; an operator that the second run did not meet or
        did not compute.
    """
    find_bridge(frame.sparkSession)
    _require_enabled(frame.sparkSession)
    tree = _tree(frame)
    if tagged is not None:
        require_same(str(tagged.get("shape", "")), tree)
    capture = Capture(tree, settings)
    failure = None
    with capture:
        # A DataFrame of its own, or the plan that was prepared without hooks would run again.
        query = frame.alias("lore")._jdf.queryExecution()
        try:
            tree.bridge.within_execution(query, "lore dump inline", lambda: query.toRdd().count())
        except Exception as error:  # noqa: BLE001 - the query's own failure is what the dump is of
            failure = failure_of(error)
    return capture.finish(failure)


def _tree(frame: DataFrame) -> Tree:
    """The final plan; of a query that fails, the plan as it was then."""
    from workbench.lore.running import tagged

    tree = Tree.of(frame)
    if not tree.provisional and not frame.isStreaming:
        return tree
    try:
        return tagged(frame)
    except WorkbenchError:
        raise
    except Exception:  # noqa: BLE001 - the run that is captured will fail, too, and that is dumped
        return Tree.of(frame)


def _require_enabled(spark: SparkSession) -> None:
    if not is_enabled(spark):
        raise ConfigError(
            "this session has no inline hooks, and they must be there from its start",
            where="spark.sql.extensions",
            allowed=EXTENSION,
            do="make the session with the settings that workbench.lore.inline.enable() gives; or dump without "
            "mode=inline",
        )


def _require_loaded(bridge: Bridge) -> None:
    # Spark only logs a warning where a class of its extensions cannot be loaded.
    try:
        bridge.jvm.org.apache.spark.util.Utils.classForName(EXTENSION, True, False)
    except Exception as error:
        raise ConfigError(
            "the session names the inline hooks, but their jar is not on its class path",
            where="spark.jars, spark.driver.extraClassPath",
            do="make the session with the settings that workbench.lore.inline.enable() gives",
        ) from error


class Capture:
    """Targets armed for the next run of a query in this session; nothing else should run in it meanwhile.

    Parameters
    ----------
    tree
        The tagged plan; its ids are meant.
    settings
        What is dumped where, `mode=inline`.

    Examples
    --------
    In a session made with `enable()`::

        with Capture(tagged(query()), settings) as capture:
            query().collect()
        capture.finish()
    """

    def __init__(self, tree: Tree, settings: DumpSettings) -> None:
        _require_enabled(tree.bridge.spark)
        _require_loaded(tree.bridge)
        self.tree, self.settings, self.bridge = tree, settings, tree.bridge
        self.token = uuid.uuid4().hex[:16]
        self.store = Store(self.bridge, settings.path)
        self.staging = f".inline-{self.token}"
        self.dumped = Dumped()
        self.targets = Targets(tree, settings)

    def __enter__(self) -> Capture:
        if not self.store.is_empty() and self.settings.strict:
            raise ConfigError(
                "the dump path is not empty",
                where="dumpPath",
                found=self.settings.path,
                do="name a new folder for each dump",
            )
        for lore_id, selection in self.settings.ids.items():
            with self._refusing(lore_id):
                self.targets.add(self.tree.node(lore_id), selection.partitions)
        order = {
            "staging": str(self.store.path(self.staging).toString()),
            "batch_rows": self.settings.batch_rows,
            "max_bytes": -1 if self.settings.max_bytes is None else self.settings.max_bytes,
            "targets": self.targets.orders,
        }
        context = self.bridge.context._jsc.sc()
        self._armed().arm(context, self.token, json.dumps(order), self.targets.expressions)
        self.bridge.spark.conf.set(KEY, self.token)
        return self

    def __exit__(self, *_: object) -> None:
        self.bridge.spark.conf.unset(KEY)

    def finish(self, failure: Failure | None = None) -> Dumped:
        """Make dumps of what the run left behind.

        Parameters
        ----------
        failure
            What the query died of; null when it ended well.

        Raises
        ------
        ConfigError
            An operator was not met in the run, or a chosen partition was not computed by it; only in strict mode.
        InputError
            The hooks themselves met a fault: a full disk, the cap.
        """
        try:
            armed = self._armed().of(self.token)
            if armed is None:
                raise ConfigError(
                    "nothing was captured", where="Capture.finish", do="run the query within `with Capture(…)`"
                )
            run = Run(armed, self.store, self.staging, failure, self.targets.key)
            for lore_id, selection in self.settings.ids.items():
                if lore_id in self.dumped.refused:
                    continue
                with self._refusing(lore_id), described(self.bridge, f"lore dump, loreId {lore_id}"):
                    dump = InlineDump(self.tree, self.tree.node(lore_id), selection.partitions, self.settings, run)
                    self.dumped.folders[lore_id] = dump.run()
                    self.dumped.warnings += [*dump.masking.warnings, *dump.warnings]
        finally:
            self._armed().disarm(self.token)
            self.store.remove(self.staging)
        return self.dumped

    def _armed(self) -> Any:
        return self.bridge.jvm.workbench.lore.Armed

    @contextlib.contextmanager
    def _refusing(self, lore_id: int) -> Iterator[None]:
        try:
            yield
        except WorkbenchError as error:
            if self.settings.strict:
                raise
            self.dumped.refused[lore_id] = str(error).replace("\n", ";")
