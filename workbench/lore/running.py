"""A query run so that its final plan can be tagged, with the ids shown in Spark's UI while its execution is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.lore.bridge import Bridge, bridge, class_of
from workbench.lore.plan import Tree, with_metrics

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame


def tagged(frame: DataFrame, *, run: bool = True, labels: bool = True) -> Tree:
    """The plan of a DataFrame with LORE ids.

    Parameters
    ----------
    frame
        Of a classic session, and not streaming.
    run
        Run the query when AQE has not settled its plan yet, or when nothing is known of rows and times. This very
        DataFrame's execution is run, so that a dump after uses what was shuffled.
    labels
        Show the ids in Spark's UI: `provisional` while AQE may change the plan, then the final ones. Nothing is
        posted after the execution's end, which would mark it as running again.

    Returns
    -------
    Tree
        With rows and times where metrics tell them; provisional when it was not run and AQE is on.

    Raises
    ------
    ConfigError
        A streaming query or a Spark Connect session; both say what to do instead.
    """
    found = bridge(frame.sparkSession)
    if frame.isStreaming:
        raise ConfigError(
            "a streaming query has no single plan and no single input",
            do="run one batch of it as an ordinary query over the same source (spark.read instead of spark.readStream)",
        )
    query = frame._jdf.queryExecution()
    tree = Tree.of_plan(found, query.executedPlan())
    if not run or not (tree.provisional or _is_fresh(tree)):
        return with_metrics(tree)

    def body() -> None:
        execution_id = found.context.getLocalProperty("spark.sql.execution.id")
        if labels:
            show(tree, query.executedPlan(), execution_id)
        query.toRdd().count()
        if labels:
            show(Tree.of_plan(found, query.executedPlan()), query.executedPlan(), execution_id)

    found.within_execution(query, "lore tag", body)
    return with_metrics(Tree.of_plan(found, query.executedPlan()), ran=True)


def document(tree: Tree) -> dict[str, Any]:
    """What is kept of a tagged plan, for later runs to be held against."""
    return {
        "format": "workbench-lore-tree/1",
        "plan_hash": tree.plan_hash,
        "shape": tree.shape(),
        "tree": tree.render(),
    }


def as_table(tree: Tree) -> pl.DataFrame:
    """The table `tables.TREE` of a plan."""
    from workbench.lore import tables
    from workbench.lore.inputs import refusal

    rows: list[dict[str, Any]] = []
    above: list[int] = []
    for position, (depth, node, text) in enumerate(tree.lines()):
        del above[depth:]
        reason = refusal(node, tree.bridge)
        rows.append(
            {
                "position": position,
                "lore_id": node.lore_id,
                "parent": above[-1] if above else None,
                "depth": depth,
                "operator": node.name,
                "text": text,
                "n_rows": node.rows,
                "time_ms": node.time_ms,
                "refused": reason,
            }
        )
        above.append(position)
    return tables.TREE.frame(rows)


def _is_fresh(tree: Tree) -> bool:
    """Has nothing been counted by any node?"""
    measured = with_metrics(tree)
    return all(node.rows is None and node.time_ms is None for node in measured.root.walk())


def show(tree: Tree, plan: Any, execution_id: str | None) -> None:
    """Label the nodes of an open SQL execution in Spark's UI.

    Source: SparkListenerSQLAdaptiveExecutionUpdate, by which AQE itself tells the UI of a new plan.
    """
    if execution_id is None:
        return
    found = tree.bridge
    info = found.object("org.apache.spark.sql.execution.SparkPlanInfo").fromSparkPlan(plan)
    ids = {_identity(node.java, found): node.lore_id for node in tree.root.walk() if node.lore_id is not None}
    labelled = _labelled(info, plan, ids, " provisional" if tree.provisional else "", found)
    event = found.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate(
        int(execution_id), tree.render(metrics=False), labelled
    )
    found.context._jsc.sc().listenerBus().post(event)


def _identity(thing: Any, found: Bridge) -> int:
    # Equal operators are not the same operator.
    return int(found.jvm.java.lang.System.identityHashCode(thing))


def _labelled(info: Any, plan: Any, ids: dict[int, int], mark: str, found: Bridge) -> Any:
    """The same tree of SparkPlanInfo with ids in the names of operators; wrappers keep theirs."""
    infos, plans = found.listed(info.children()), _shown_below(plan, found)
    if len(infos) == len(plans):
        infos = [_labelled(one, below, ids, mark, found) for one, below in zip(infos, plans, strict=True)]
    lore_id = ids.get(_identity(plan, found))
    label = "" if lore_id is None else f" [loreId={lore_id}{mark}]"
    kind = found.execution.SparkPlanInfo
    return kind(info.nodeName() + label, info.simpleString() + label, found.seq(infos), info.metadata(), info.metrics())


def _shown_below(plan: Any, found: Bridge) -> list[Any]:
    """What SparkPlanInfo has below a node."""
    kind = class_of(plan)
    if kind in ("ReusedExchangeExec", "ReusedSubqueryExec"):
        return [plan.child()]
    if kind == "AdaptiveSparkPlanExec":
        return [plan.executedPlan()]
    if kind.endswith("QueryStageExec"):
        return [plan.plan()]
    if kind == "InMemoryTableScanExec":
        return [plan.relation().cachedPlan()]
    if kind == "CommandResultExec":
        return [plan.commandPhysicalPlan()]
    return [*found.listed(plan.children()), *found.listed(plan.subqueries())]
