"""Rebuild a part of a plan with other inputs: children that are inputs, then subqueries, from the leaves up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

SUBQUERY_CLASSES = ("org.apache.spark.sql.execution.ScalarSubquery", "org.apache.spark.sql.execution.InSubqueryExec")
Replace = Callable[[Any], Any]


def rebuild_part(
    plan: Any,
    bridge: Bridge,
    *,
    is_input: Callable[[Any], bool],
    on_input: Replace,
    on_subquery: Replace,
    open_child: Replace = lambda child: child,
) -> Any:
    """The plan with its inputs and subqueries replaced.

    `on_input`, `on_subquery`: Called with each input and each subquery expression, in the order of their numbers;
    gives what stands there.
    """
    children = []
    for child in bridge.to_list(plan.children()):
        if is_input(child):
            children.append(on_input(child))
            continue
        children.append(
            rebuild_part(
                open_child(child),
                bridge,
                is_input=is_input,
                on_input=on_input,
                on_subquery=on_subquery,
                open_child=open_child,
            )
        )
    plan = plan.withNewChildren(bridge.to_scala_seq(children))
    return replace_subqueries(bridge, plan, on_subquery)


def replace_subqueries(bridge: Bridge, plan: Any, instead: Replace) -> Any:
    """The plan with each subquery expression of its topmost operator replaced, in the order of `plan.subqueries`."""
    if plan.subqueries().isEmpty():
        return plan

    def rebuild_expression(expression: Any) -> Any:
        children = bridge.to_list(expression.children())
        new = [rebuild_expression(child) for child in children]
        if any(child is not other for child, other in zip(children, new, strict=True)):
            expression = expression.withNewChildren(bridge.to_scala_seq(new))
        if expression.getClass().getName() in SUBQUERY_CLASSES:
            expression = instead(expression)
        return expression

    pairs = [(expression, rebuild_expression(expression)) for expression in bridge.to_list(plan.expressions())]
    return plan.mapExpressions(bridge.to_scala_map(keyed=pairs))


def is_stub(plan: Any) -> bool:
    """Is this the placeholder of an input in plan.meta: a leaf, also below the exchange or conversion of its input?"""
    if simple_class_name(plan) in ("BroadcastExchangeExec", "RowToColumnarExec"):
        plan = plan.child()
    return bool(plan.children().isEmpty())
