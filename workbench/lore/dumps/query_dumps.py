"""Ways to dump a query: chosen operators, the operator that fails, or every action of a session."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from workbench.core.errors import ConfigError, InvalidResultError, WorkbenchError
from workbench.lore import config
from workbench.lore.config import DumpSettings
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.dumps.operator_dump import DumpResult, dump_plan
from workbench.lore.dumps.operator_selection import Selection
from workbench.lore.spark_bridge.operator_inputs import find_refusal, operator_output_rdd
from workbench.lore.spark_bridge.operator_isolation import PARTITION_MIXING_OPERATORS
from workbench.lore.spark_bridge.physical_plan import PlanNode, PlanTree, check_same_shape, unwrap_operator
from workbench.lore.spark_bridge.query_runs import OperatorFailure, describe_failure, sees_partition_number, tag_plan
from workbench.lore.spark_bridge.spark_internals import Bridge, connect_bridge, job_description, simple_class_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATUS_WAIT_MS = 10_000
MAX_TASKS = 100_000
FLUSH_MS = 60_000


def dump_query(
    frame: DataFrame, settings: DumpSettings, *, tagged: Mapping[str, Any] | None = None, failed: bool = False
) -> DumpResult:
    """Run a query as far as its plan needs it, and dump the chosen operators. See `lore.dump`."""
    if failed:
        check_nothing_chosen(tagged=tagged, mode=settings.mode)
        return dump_failing_operator(frame, settings)
    if not settings.ids:
        raise ConfigError(
            "no operator is chosen",
            where="spark.rapids.sql.lore.idsToDump",
            allowed="1[0 2 5-9], 4[*]",
            do="workbench lore tag shows the ids",
        )
    if settings.mode == "inline":
        from workbench.lore.jvm.inline_capture import dump_inline

        return dump_inline(frame, settings, tagged=tagged)
    # A stream has no plan to look at.
    if frame.isStreaming or (tree := PlanTree.from_frame(frame)).provisional:
        tree = tag_plan(frame)
    if tagged is not None:
        check_same_shape(str(tagged.get("shape", "")), tree)
    return dump_plan(tree, settings)


def dump_failing_operator(frame: DataFrame, settings: DumpSettings) -> DumpResult:
    """Run a query that fails, and dump the inputs of the failing operator.

    Only the failing partition is dumped where output partitions depend on one input partition each, else all.
    """
    if not settings.path:
        raise ConfigError("no place to dump to", where="--path", do="name a new folder with --path")
    bridge = connect_bridge(frame.sparkSession)
    query = frame._jdf.queryExecution()
    failure = _run_failing_query(bridge, query)
    tree = PlanTree.from_plan(bridge, query.executedPlan())
    node, partition, confirmed = _find_failing_operator(tree, failure)
    is_mixed = node.name in PARTITION_MIXING_OPERATORS or sees_partition_number(node.java, bridge)
    chosen = Selection() if partition is None or is_mixed else Selection(frozenset([partition]))
    lore_id = node.lore_id if node.lore_id is not None else -1
    dumped = dump_plan(tree, settings.model_copy(update={"ids": {lore_id: chosen}}))
    if lore_id in dumped.folders and lore_id not in dumped.failures:
        DumpStore(bridge, settings.path).remove(f"loreId-{lore_id}")
        raise InvalidResultError(
            f"{node.name} fails in the query and not over the inputs that were dumped",
            where=f"loreId {lore_id}",
            found=str(confirmed),
            do="dump while the query runs: --mode inline",
        )
    place = "" if partition is None else f" on partition {partition}"
    dumped.warnings.insert(0, f"loreId {lore_id}, {node.name}, fails{place}: {confirmed}")
    return dumped


def check_nothing_chosen(*, ids: object = None, tagged: object = None, mode: str = "post-hoc") -> None:
    """Refuse a choice of operators together with `--failed`."""
    choices = {"ids": ids is not None, "tagged": tagged is not None, "mode inline": mode == "inline"}
    if conflicts := [name for name, is_given in choices.items() if is_given]:
        raise ConfigError(
            "--failed searches for the operator itself, so no other choice can be given with it",
            where="--failed",
            found=[f"--{name}" for name in conflicts],
            do="omit these, or omit --failed: --mode inline also dumps queries that fail",
        )


def _run_failing_query(bridge: Bridge, query: Any) -> OperatorFailure:
    """Run the query until it fails and describe the failure; a query that does not fail is refused."""
    failures: list[OperatorFailure] = []

    def count_rows() -> None:
        try:
            query.toRdd().count()
        except Exception as error:
            failures.append(describe_failure(error))
            raise

    try:
        bridge.run_in_execution(query, "lore dump --failed", count_rows)
    except Exception:
        if not failures:
            raise
        failure = failures[0]
        return failure if failure.stage_id is not None else _locate_failed_task(failure, bridge)
    raise ConfigError("the query did not fail", where="--failed", do="dump chosen operators with --ids")


def _locate_failed_task(failure: OperatorFailure, bridge: Bridge) -> OperatorFailure:
    """The failure with stage and partition of the last failed task, which a Python error does not name."""
    scala = bridge.context._jsc.sc()
    scala.listenerBus().waitUntilEmpty(STATUS_WAIT_MS)
    status = bridge.jvm.org.apache.spark.status.api.v1
    failed = bridge.jvm.java.util.ArrayList()
    failed.add(status.StageStatus.FAILED)
    quantiles = bridge.context._gateway.new_array(bridge.jvm.double, 0)
    store = scala.statusStore()
    stages = bridge.to_list(store.stageList(failed, False, False, quantiles, bridge.jvm.java.util.ArrayList()))
    if not stages:
        return failure
    stage = max(stages, key=lambda candidate: int(candidate.stageId()))
    tasks = bridge.to_list(store.taskList(stage.stageId(), stage.attemptId(), MAX_TASKS))
    partitions = [int(task.partitionId()) for task in tasks if str(task.status()) == "FAILED"]
    return replace(failure, stage_id=int(stage.stageId()), partition=min(partitions, default=None))


def _find_failing_operator(tree: PlanTree, failure: OperatorFailure) -> tuple[PlanNode, int | None, OperatorFailure]:
    """Find the operator that fails alone: the operator, its partition (null for all), and its failure."""
    candidates = order_by_stage(tree, failure.stage_id)
    for partition in [failure.partition, None] if failure.partition is not None else [None]:
        for node in candidates:
            died = _run_operator_alone(tree, node, partition)
            if died is None or died.error_class != failure.error_class:
                continue
            node, died = _find_lowest_failing(tree, node, partition, died)
            if reason := find_refusal(node, tree.bridge):
                raise InvalidResultError(
                    f"the query fails in {node.name}, which cannot be dumped",
                    found=str(failure),
                    where=reason.partition("; ")[0],
                    do=reason.partition("; ")[2] or "dump an operator near it with --ids",
                )
            return node, partition, replace(died, partition=partition)
    raise InvalidResultError(
        "the query failed, but no operator of its plan fails when it is run alone",
        found=str(failure),
        do="for failures that are intermittent or due to memory, dump while the query runs: --mode inline",
    )


def _find_lowest_failing(
    tree: PlanTree, top: PlanNode, partition: int | None, died: OperatorFailure
) -> tuple[PlanNode, OperatorFailure]:
    """The first operator below a failing one that fails as it does, or that one: what is above only passes it on."""
    for node in top.iter_nodes():
        if node is top or node.lore_id is None:
            continue
        for tried in dict.fromkeys((partition, None)):
            below = _run_operator_alone(tree, node, tried)
            if below is not None and below.error_class == died.error_class:
                return node, below
    return top, died


def _run_operator_alone(tree: PlanTree, node: PlanNode, partition: int | None) -> OperatorFailure | None:
    try:
        with job_description(tree.bridge, f"lore: does {node.name} fail alone?"):
            rdd = operator_output_rdd(node, tree.bridge)
            if partition is not None:
                if partition >= int(rdd.getNumPartitions()):
                    return None
                rdd = tree.bridge.prune_partitions(rdd, [partition])
            rdd.count()
    except Exception as error:  # noqa: BLE001 - any failure is the result
        return describe_failure(error)
    return None


def order_by_stage(tree: PlanTree, stage_id: int | None) -> list[PlanNode]:
    """Operators from the leaves up, those whose code ran in the stage first."""
    nodes = [node for node in tree.root.iter_nodes() if node.lore_id is not None]
    scopes = _read_stage_scopes(tree.bridge, stage_id) if stage_id is not None else set()
    inside = [
        node
        for node in nodes
        if f"WholeStageCodegen ({node.codegen_id})" in scopes or str(node.java.nodeName()).strip() in scopes
    ]
    return [*inside, *(node for node in nodes if node not in inside)]


def _read_stage_scopes(bridge: Bridge, stage_id: int) -> set[str]:
    """Names of the operations of a stage, as in Spark's UI."""
    names: set[str] = set()

    def collect_names(cluster: Any) -> None:
        names.add(str(cluster.name()).strip())
        for child in bridge.to_list(cluster.childClusters()):
            collect_names(child)

    try:
        graph = bridge.context._jsc.sc().statusStore().operationGraphForStage(stage_id)
    except Exception:  # noqa: BLE001 - the status store forgets old stages; all operators are candidates then
        return names
    collect_names(graph.rootCluster())
    return names


class SessionWatch:
    """Dumps the actions of a session in a background thread; see `lore.enable`."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark import InheritableThread
        from pyspark.java_gateway import ensure_callback_server_started

        self.bridge = connect_bridge(spark)
        self.dumped: list[DumpResult] = []
        self.problems: list[str] = []
        self._queue: queue.Queue[tuple[Any, config.DumpSettings] | None] = queue.Queue()
        # Closes its connection to the JVM when it ends.
        self._thread = InheritableThread(target=self._dump_queue, name="workbench lore", daemon=True)
        self._thread.start()
        ensure_callback_server_started(self.bridge.context._gateway)
        self._listener = _ExecutionListener(self)
        self.bridge.session.listenerManager().register(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for pending dumps, then stop watching."""
        self.stop_watching()

    def wait_for_dumps(self) -> Self:
        """Wait until every action that has ended is dumped."""
        self.bridge.context._jsc.sc().listenerBus().waitUntilEmpty(FLUSH_MS)
        self._queue.join()
        return self

    def stop_watching(self) -> None:
        """Wait, then watch no more."""
        if not self._thread.is_alive():
            return
        self.wait_for_dumps()
        self.bridge.session.listenerManager().unregister(self._listener)
        self._queue.put(None)
        self._thread.join()

    def note_action(self, execution: Any) -> None:
        """Queue an action that ended, with the keys as they are now; dumping here would block the listener bus."""
        try:
            spark = self.bridge.spark
            settings = config.settings_from_session(lambda key, default: spark.conf.get(key, default))
        except WorkbenchError as error:
            self.problems.append(str(error))
            return
        if settings.ids and settings.tag_enabled:
            self._queue.put((execution, settings))

    def _dump_queue(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._dump_action(*item)
            except WorkbenchError as error:
                self.problems.append(str(error))
            except Exception as error:  # noqa: BLE001 - kept in `problems`, since no caller could catch it
                self.problems.append(str(describe_failure(error)))
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def _dump_action(self, execution: Any, settings: config.DumpSettings) -> None:
        plan = execution.executedPlan()
        if simple_class_name(unwrap_operator(plan)) == "ExecutedCommandExec":
            return  # SET, CREATE VIEW and the like have no operators
        self.dumped.append(dump_plan(PlanTree.from_plan(self.bridge, plan), settings))


class _ExecutionListener:
    """Spark's QueryExecutionListener in Python."""

    def __init__(self, watch: SessionWatch) -> None:
        self._watch = watch

    def onSuccess(self, name: str, execution: Any, duration_ns: int) -> None:  # noqa: ARG002, N802 - Spark's signature
        """An action succeeded."""
        self._watch.note_action(execution)

    def onFailure(self, name: str, execution: Any, error: Any) -> None:  # noqa: ARG002, N802 - Spark's signature
        """An action failed; its plan has no shuffle files to read from."""
        self._watch.problems.append(f"{name} failed; lore.dump(df, failed=True) dumps the operator that did")

    class Java:
        """Interfaces for py4j."""

        implements: tuple[str, ...] = ("org.apache.spark.sql.util.QueryExecutionListener",)
