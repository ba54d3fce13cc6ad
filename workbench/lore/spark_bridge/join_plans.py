"""Plan the join of a dump anew: the same join over the same rows, as the planner makes it under a session's settings.

Which join is used, what is broadcast, and what AQE does is decided when a query is planned; the dump has the result.
The join's keys and condition are in its plan, so that a logical join can be made of them again.
"""

from __future__ import annotations

import re
from typing import Any

from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_sidecar import Sidecar
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.spark_bridge.operator_isolation import (
    RebuiltOperator,
    RowSource,
    read_input_rows,
    rebind_python_functions,
)
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

EQUI_JOINS = ("SortMergeJoinExec", "ShuffledHashJoinExec", "BroadcastHashJoinExec")
JOINS = (*EQUI_JOINS, "BroadcastNestedLoopJoinExec", "CartesianProductExec")
_VOLATILE = (
    (re.compile(r",? ?\[?plan_id=\d+\]?"), ""),
    (re.compile(r"#\d+L?"), "#"),
    (re.compile(r"isFinalPlan=\w+"), ""),
)


def find_replan_refusal(operator_class: str) -> str | None:
    """Why an operator cannot be planned anew; null for a join."""
    name = operator_class.rpartition(".")[2]
    if name in JOINS:
        return None
    return f"{name.removesuffix('Exec')} is no join, and only joins are planned anew"


def replan_join(operator: Any, source: RowSource, n_rows: dict[int, int], bridge: Bridge) -> RebuiltOperator:
    """The join of a loaded plan over its inputs, planned under the settings of the bridge's session.

    The planner takes the size of an input from its rows, as it estimates rows of a type; an input is read once per run.
    """
    if reason := find_replan_refusal(str(operator.getClass().getName())):
        raise ConfigError("cannot be planned anew", where="--replan", found=reason, do="leave out --replan")
    if simple_class_name(operator) == "BroadcastHashJoinExec" and bool(operator.isNullAwareAntiJoin()):
        raise ConfigError(
            "cannot be planned anew",
            where="--replan",
            found="a join for NOT IN has one plan only",
            do="leave out --replan",
        )
    bridge.activate()
    scans, sides = [], []
    for index, child in enumerate(bridge.to_list(operator.children())):
        output = child.output()
        rdd, n_partitions = source(index)
        bridge.activate()
        scans.append(bridge.build_scan(output, rdd, n_partitions, f"LoreReplay input-{index}"))
        sides.append(bridge.build_logical_rows(output, rdd, n_rows[index]))
    left, right = sides
    logical = bridge.build_logical_join(left, right, operator.joinType(), _build_condition(operator, bridge))
    plan = bridge.plan_logical(logical)
    return RebuiltOperator(bridge, plan, plan, bridge.to_list(operator.output()), tuple(scans))


def replan_dumped_join(
    folder: DumpStore, sidecar: Sidecar, plan: bytes, bridge: Bridge, *, reader: Bridge
) -> RebuiltOperator:
    """`replan_join` over the files of a dump; parameters are those of `operator_isolation.rebuild_operator`."""
    operator = bridge.deserialize(plan)
    rebind_python_functions(operator, bridge)

    def input_rows(index: int) -> tuple[Any, int]:
        entry = sidecar.inputs[index]
        return read_input_rows(folder, entry, reader), entry.n_partitions

    return replan_join(operator, input_rows, {entry.index: entry.n_rows for entry in sidecar.inputs}, bridge)


def _build_condition(operator: Any, bridge: Bridge) -> Any:
    """Equal keys and the rest, as an Option."""
    expressions = bridge.jvm.org.apache.spark.sql.catalyst.expressions
    parts = []
    if simple_class_name(operator) in EQUI_JOINS:
        pairs = zip(bridge.to_list(operator.leftKeys()), bridge.to_list(operator.rightKeys()), strict=True)
        parts = [expressions.EqualTo(left, right) for left, right in pairs]
    if not operator.condition().isEmpty():
        parts.append(operator.condition().get())
    if not parts:
        return bridge.scala_none()
    condition = parts[0]
    for part in parts[1:]:
        condition = expressions.And(condition, part)
    return bridge.jvm.scala.Option.apply(condition)


def describe_plan_shape(plan: Any) -> str:
    """The plan as text without numbers that differ in every run; that of AQE as it is now, and whether there is AQE."""
    text = str(plan.toString())
    if simple_class_name(plan) == "AdaptiveSparkPlanExec":
        text = "AdaptiveSparkPlan\n" + str(plan.executedPlan().toString())
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text


def list_join_names(plan: Any, bridge: Bridge) -> list[str]:
    """Names of the joins in a plan, from the root down."""
    if simple_class_name(plan) == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    if simple_class_name(plan).endswith("QueryStageExec"):
        plan = plan.plan()
    name = simple_class_name(plan)
    names = [name.removesuffix("Exec")] if name in JOINS else []
    return [*names, *(join for child in bridge.to_list(plan.children()) for join in list_join_names(child, bridge))]
