"""A part of a plan as one operator: the operators from one down to its scans, or down to the exchanges of its stage.

Its inputs are the rows of the leaves of that part, numbered from left to right; those of an operator's subqueries
follow those of its children. An operator dumped alone is the smallest such part.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.operator_inputs import (
    OperatorInput,
    build_child_input,
    build_subquery_input,
    find_refusal,
    find_storage_refusal,
    keep_partitioning,
    strip_hooks,
)
from workbench.lore.spark_bridge.physical_plan import PlanNode
from workbench.lore.spark_bridge.plan_parts import rebuild_part
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

SubtreeKind = Literal["stage", "scans"]
# Where a stage begins: its input is what was shuffled, as AQE regrouped it, or broadcast.
_STAGE_BORDERS = ("ShuffleExchangeExec", "AQEShuffleReadExec", "BroadcastExchangeExec", "ReusedExchangeExec")


def cut_subtree(node: PlanNode, kind: SubtreeKind, bridge: Bridge) -> tuple[Any, list[OperatorInput]]:
    """The part of the plan below and with an operator, without wrappers, and its inputs in order.

    AQE's shuffle reads inside it are left out: they only regroup partitions.
    """
    bridge.activate()
    inputs: list[OperatorInput] = []

    def take_input(child: Any) -> Any:
        # Regrouped partitions would not fit the others of a subtree, which are not.
        child_input = build_child_input(child if kind == "stage" else _open_child(child, kind), bridge)
        inputs.append(keep_partitioning(child_input, bridge))
        return child

    def take_subquery(expression: Any) -> Any:
        inputs.append(build_subquery_input(expression.plan(), bridge))
        return expression

    plan = rebuild_part(
        node.java,
        bridge,
        is_input=partial(is_subtree_input, kind=kind),
        open_child=partial(_open_child, kind=kind),
        on_input=take_input,
        on_subquery=take_subquery,
    )
    _check_subtree(node, plan, inputs, bridge)
    return plan, inputs


def is_subtree_input(child: Any, *, kind: SubtreeKind) -> bool:
    """Is a child of an operator in the part an input: a leaf, for a stage also what was shuffled or broadcast?"""
    plan = _open_child(child, kind)
    if kind == "stage" and simple_class_name(plan) in _STAGE_BORDERS:
        return True
    return bool(plan.children().isEmpty())


def _open_child(child: Any, kind: SubtreeKind) -> Any:
    """The operator inside a child; down to the scans also inside AQE's shuffle reads."""
    plan = strip_hooks(child)
    while kind == "scans" and simple_class_name(plan) == "AQEShuffleReadExec":
        plan = strip_hooks(plan.child())
    return plan


def _check_subtree(node: PlanNode, plan: Any, inputs: list[OperatorInput], bridge: Bridge) -> None:
    reason = find_refusal(node, bridge)
    for below in node.iter_nodes():
        reason = reason or _find_inner_refusal(below, node, bridge)
    attributes = (attribute for operator_input in inputs for attribute in bridge.to_list(operator_input.output))
    reason = reason or next((text for attribute in attributes if (text := find_storage_refusal(attribute))), None)
    if reason or plan.children().isEmpty():
        raise ConfigError(
            f"the subtree of {node.name} cannot be dumped",
            where=f"loreId {node.lore_id}",
            found=reason or "it is a leaf",
            do="dump a part of it, or one operator of it alone",
        )


def _find_inner_refusal(below: PlanNode, top: PlanNode, bridge: Bridge) -> str | None:
    """Reason why an operator inside cannot be replayed; leaves and exchanges can."""
    if below is top or below.lore_id is None or below.java.children().isEmpty():
        return None
    if below.kind in ("BroadcastExchangeExec", "AQEShuffleReadExec") or below.kind.startswith("Subquery"):
        return None
    reason = find_refusal(below, bridge)
    return None if reason is None else f"{below.name} (loreId {below.lore_id}) in it: {reason}"
