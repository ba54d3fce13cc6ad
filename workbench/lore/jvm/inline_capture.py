"""mode=inline: capture operators while the query runs, for upstreams that are not deterministic.

A jar of hooks (see decision 0017) is one of the session's extensions. Armed with targets of a tagged plan, it wraps
their inputs and outputs in the next run of the same query: chosen partitions are written as they pass, and the output
is fingerprinted, so that a replay is compared with the original run. Hooks never fail the query: their errors are
reported when the dump is finished.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, WorkbenchError
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.dumps.inline_dump import CapturedRun, InlineDump
from workbench.lore.dumps.operator_dump import DumpResult
from workbench.lore.jvm.inline_hooks import CaptureTargets
from workbench.lore.spark_bridge.physical_plan import PlanTree, check_same_shape
from workbench.lore.spark_bridge.query_runs import OperatorFailure, describe_failure, tag_plan
from workbench.lore.spark_bridge.spark_internals import connect_bridge, job_description

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.config import DumpSettings

EXTENSION_CLASS = "workbench.lore.Extension"
TOKEN_KEY = "spark.workbench.lore.inline"  # noqa: S105 - the name of a setting
_ENABLE = "create the session with the settings that workbench.lore.jvm.inline_capture.enable_inline() returns"


def enable_inline(
    confs: Mapping[str, str] | None = None, *, spark_version: str | None = None, say: Callable[[str], None]
) -> dict[str, str]:
    """Settings for a new session that can dump inline; the given ones are kept."""
    import pyspark

    from workbench.lore.jvm.inline_hooks import find_jar
    from workbench.spark.engine_jars import class_path_settings

    settings = dict(confs or {})
    for key, value in class_path_settings(find_jar(spark_version or pyspark.__version__, say)).items():
        separator = "," if key == "spark.jars" else ":"
        settings[key] = separator.join(filter(None, [settings.get(key), value]))
    extensions = [extension for extension in settings.get("spark.sql.extensions", "").split(",") if extension]
    settings["spark.sql.extensions"] = ",".join(
        [*extensions, *([] if EXTENSION_CLASS in extensions else [EXTENSION_CLASS])]
    )
    return settings


def is_inline_enabled(spark: SparkSession) -> bool:
    """Does this session have the inline hooks?"""
    return EXTENSION_CLASS in (spark.conf.get("spark.sql.extensions", "") or "").split(",")


def dump_inline(frame: DataFrame, settings: DumpSettings, *, tagged: Mapping[str, Any] | None = None) -> DumpResult:
    """Tag a query, run it again with hooks, and dump the captured rows.

    With AQE the plan is final only after a run, so the query runs twice; else once. A failing query is dumped up to
    its failure, with the error that a replay must give.

    `tagged`: `build_plan_document` of an earlier tagging; the dump is refused when the plan has changed since.
    """
    connect_bridge(frame.sparkSession)
    _check_inline_extension(frame.sparkSession)
    tree = _final_tree(frame)
    if tagged is not None:
        check_same_shape(str(tagged.get("shape", "")), tree)
    capture = InlineCapture(tree, settings)
    failure = None
    with capture:
        # A new DataFrame: the old one would run the plan that was prepared without hooks.
        query = frame.alias("lore")._jdf.queryExecution()
        try:
            tree.bridge.run_in_execution(query, "lore dump inline", lambda: query.toRdd().count())
        except Exception as error:  # noqa: BLE001 - the failure of the query is part of the dump
            failure = describe_failure(error)
    return capture.write_dumps(failure)


def _final_tree(frame: DataFrame) -> PlanTree:
    """Tree of the query's final plan, or of its plan at the time of the failure."""
    tree = PlanTree.from_frame(frame)
    if not tree.provisional and not frame.isStreaming:
        return tree
    try:
        return tag_plan(frame)
    except WorkbenchError:
        raise
    except Exception:  # noqa: BLE001 - the captured run fails, too, and is dumped
        return PlanTree.from_frame(frame)


def _check_inline_extension(spark: SparkSession) -> None:
    if not is_inline_enabled(spark):
        raise ConfigError(
            "this session has no inline hooks; they must be set when it starts",
            where="spark.sql.extensions",
            allowed=EXTENSION_CLASS,
            do=f"{_ENABLE}; or dump without mode=inline",
        )


class InlineCapture:
    """Targets armed for the next run of a query in this session; nothing else should run in it meanwhile.

    In a session made with `enable_inline()`::

        with InlineCapture(tag_plan(query()), settings) as capture:
            query().collect()
        capture.write_dumps()
    """

    def __init__(self, tree: PlanTree, settings: DumpSettings) -> None:
        _check_inline_extension(tree.bridge.spark)
        # Spark only logs a warning where a class of its extensions cannot be loaded.
        try:
            tree.bridge.jvm.org.apache.spark.util.Utils.classForName(EXTENSION_CLASS, True, False)
        except Exception as error:
            raise ConfigError(
                "the session names the inline hooks, but their jar is not on its class path",
                where="spark.jars, spark.driver.extraClassPath",
                do=_ENABLE,
            ) from error
        self.tree, self.settings, self.bridge = tree, settings, tree.bridge
        self.token = uuid.uuid4().hex[:16]
        self.store = DumpStore(self.bridge, settings.path)
        self.staging = f".inline-{self.token}"
        self.dumped = DumpResult()
        self.targets = CaptureTargets(tree, settings)

    def __enter__(self) -> InlineCapture:
        if not self.store.is_empty() and self.settings.strict:
            raise ConfigError(
                "the dump path is not empty",
                where="dumpPath",
                found=self.settings.path,
                do="name a new folder for each dump",
            )
        for lore_id, selection in self.settings.ids.items():
            with self._note_refusal(lore_id):
                self.targets.add_operator(self.tree.find_node(lore_id), selection.partitions)
        order = {
            "staging": str(self.store.hadoop_path(self.staging).toString()),
            "batch_rows": self.settings.batch_rows,
            "max_bytes": -1 if self.settings.max_bytes is None else self.settings.max_bytes,
            "targets": self.targets.orders,
        }
        context = self.bridge.context._jsc.sc()
        self._armed_object().arm(context, self.token, json.dumps(order), self.targets.expressions)
        self.bridge.spark.conf.set(TOKEN_KEY, self.token)
        return self

    def __exit__(self, *_: object) -> None:
        self.bridge.spark.conf.unset(TOKEN_KEY)

    def write_dumps(self, failure: OperatorFailure | None = None) -> DumpResult:
        """Write the dumps of the captured run.

        `failure`: Failure of the query; null when it succeeded.
        """
        try:
            armed = self._armed_object().of(self.token)
            if armed is None:
                raise ConfigError(
                    "nothing was captured",
                    where="InlineCapture.write_dumps",
                    do="run the query inside `with InlineCapture(…)`",
                )
            run = CapturedRun(armed, self.store, self.staging, failure, self.targets.key)
            for lore_id, selection in self.settings.ids.items():
                if lore_id in self.dumped.refused:
                    continue
                with self._note_refusal(lore_id), job_description(self.bridge, f"lore dump, loreId {lore_id}"):
                    dump = InlineDump(self.tree, self.tree.find_node(lore_id), selection.partitions, self.settings, run)
                    self.dumped.folders[lore_id] = dump.write_dump()
                    self.dumped.operators[lore_id] = dump.name
                    self.dumped.warnings += [*dump.masking.warnings, *dump.warnings]
        finally:
            self._armed_object().disarm(self.token)
            self.store.remove(self.staging)
        return self.dumped

    def _armed_object(self) -> Any:
        return self.bridge.jvm.workbench.lore.Armed

    @contextlib.contextmanager
    def _note_refusal(self, lore_id: int) -> Iterator[None]:
        try:
            yield
        except WorkbenchError as error:
            if self.settings.strict:
                raise
            self.dumped.refused[lore_id] = str(error).replace("\n", ";")
