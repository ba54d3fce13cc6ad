"""A query that fails: which operator died, on which partition, and its inputs.

The task's error names a stage, the stage's scopes name the code that ran in it, and running the operators of that
code alone, from below, shows which one it is: the first that fails in the same way while all below it do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, InvalidResultError
from workbench.lore.bridge import Bridge, bridge, described
from workbench.lore.failure import Failure, failure_of
from workbench.lore.inputs import output_of, refusal
from workbench.lore.plan import Node, Tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from workbench.lore.config import DumpSettings
    from workbench.lore.dumping import Dumped

STATUS_WAIT_MS = 10_000
MOST_TASKS = 100_000


def dump_failed(frame: DataFrame, settings: DumpSettings) -> Dumped:
    """Run a query that fails, and dump the inputs of the operator that does.

    Of an operator whose partitions stand for themselves only the failing partition is dumped, else all.

    Raises
    ------
    ConfigError
        No path, or the query did not fail.
    InvalidResultError
        It failed, but no operator of its plan fails alone: the message says with what the query failed.
    """
    from workbench.lore.dumping import dump_tree
    from workbench.lore.selection import Selection

    if not settings.path:
        raise ConfigError("no place to dump to", where="--path")
    found = bridge(frame.sparkSession)
    query = frame._jdf.queryExecution()
    failure = _run(found, query)
    tree = Tree.of_plan(found, query.executedPlan())
    node, partition, confirmed = _culprit(tree, failure)
    chosen = Selection(frozenset([partition])) if partition is not None else Selection()
    lore_id = node.lore_id if node.lore_id is not None else -1
    dumped = dump_tree(tree, settings.model_copy(update={"ids": {lore_id: chosen}}))
    place = "" if partition is None else f" on partition {partition}"
    dumped.warnings.insert(0, f"loreId {lore_id}, {node.name}, fails{place}: {confirmed}")
    return dumped


def require_unchosen(*, ids: object = None, tagged: object = None, mode: str = "post-hoc") -> None:
    """Refuse what chooses operators beside what looks for the one that fails; null where nothing was given.

    Raises
    ------
    ConfigError
        With what contradicts it.
    """
    given = {"ids": ids is not None, "tagged": tagged is not None, "mode inline": mode == "inline"}
    if found := [name for name, is_given in given.items() if is_given]:
        raise ConfigError(
            "the operator that fails is looked for after the run, and nothing else can be chosen with it",
            where="--failed",
            found=[f"--{name}" for name in found],
            do="leave that out; or leave out --failed: with --mode inline the query may fail, too",
        )


def _run(found: Bridge, query: Any) -> Failure:
    failures: list[Failure] = []

    def body() -> None:
        try:
            query.toRdd().count()
        except Exception as error:
            failures.append(failure_of(error))
            raise

    try:
        found.within_execution(query, "lore dump --failed", body)
    except Exception:
        if not failures:
            raise
        failure = failures[0]
        return failure if failure.stage_id is not None else _placed(failure, found)
    raise ConfigError("the query did not fail", where="--failed", do="dump chosen operators with --ids")


def _placed(failure: Failure, found: Bridge) -> Failure:
    """The same with stage and partition of the task that failed last: a Python error does not name them."""
    scala = found.context._jsc.sc()
    scala.listenerBus().waitUntilEmpty(STATUS_WAIT_MS)
    status = found.jvm.org.apache.spark.status.api.v1
    failed = found.jvm.java.util.ArrayList()
    failed.add(status.StageStatus.FAILED)
    quantiles = found.context._gateway.new_array(found.jvm.double, 0)
    store = scala.statusStore()
    stages = found.listed(store.stageList(failed, False, False, quantiles, found.jvm.java.util.ArrayList()))
    if not stages:
        return failure
    stage = max(stages, key=lambda one: int(one.stageId()))
    tasks = found.listed(store.taskList(stage.stageId(), stage.attemptId(), MOST_TASKS))
    partitions = [int(task.partitionId()) for task in tasks if str(task.status()) == "FAILED"]
    return replace(failure, stage_id=int(stage.stageId()), partition=min(partitions, default=None))


def _culprit(tree: Tree, failure: Failure) -> tuple[Node, int | None, Failure]:
    """The operator that fails alone, its partition (null: not one alone), and what it fails with."""
    candidates = in_stage(tree, failure.stage_id)
    for partition in [failure.partition, None] if failure.partition is not None else [None]:
        for node in candidates:
            died = _alone(tree, node, partition)
            if died is None or died.error_class != failure.error_class:
                continue
            if reason := refusal(node, tree.bridge):
                raise InvalidResultError(
                    f"the query fails in {node.name}, which cannot be dumped", found=str(failure), where=reason
                )
            return node, partition, replace(died, partition=partition)
    raise InvalidResultError(
        "the query failed, but no operator of its plan fails when it is run alone",
        found=str(failure),
        do="if it fails now and then, or for want of memory, --mode inline dumps while it runs",
    )


def _alone(tree: Tree, node: Node, partition: int | None) -> Failure | None:
    try:
        with described(tree.bridge, f"lore: does {node.name} fail alone?"):
            rdd = output_of(node, tree.bridge)
            if partition is not None:
                if partition >= int(rdd.getNumPartitions()):
                    return None
                rdd = tree.bridge.prune(rdd, [partition])
            rdd.count()
    except Exception as error:  # noqa: BLE001 - how it dies is the question
        return failure_of(error)
    return None


def in_stage(tree: Tree, stage_id: int | None) -> list[Node]:
    """Operators in the order in which rows pass them, those whose code ran in the stage before all others."""
    nodes = [node for node in tree.root.walk() if node.lore_id is not None]
    scopes = _scopes(tree.bridge, stage_id) if stage_id is not None else set()
    inside = [
        node
        for node in nodes
        if f"WholeStageCodegen ({node.codegen_id})" in scopes or str(node.java.nodeName()).strip() in scopes
    ]
    return [*inside, *(node for node in nodes if node not in inside)]


def _scopes(found: Bridge, stage_id: int) -> set[str]:
    """Names of the operations of a stage, as Spark's UI draws them."""
    names: set[str] = set()

    def visit(cluster: Any) -> None:
        names.add(str(cluster.name()).strip())
        for child in found.listed(cluster.childClusters()):
            visit(child)

    try:
        graph = found.context._jsc.sc().statusStore().operationGraphForStage(stage_id)
    except Exception:  # noqa: BLE001 - the status store forgets old stages; all operators are candidates then
        return names
    visit(graph.rootCluster())
    return names
