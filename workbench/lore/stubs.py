"""plan.meta: the operator alone, its children replaced by leaves without rows, as a Java stream.

Nothing of where it came from goes along: no scan, no path, no lineage, and of Python functions neither the
interpreter's path nor the environment nor the accumulator, whose fields hold the driver's secret token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from workbench.errors import ConfigError, InputError
from workbench.lore.bridge import Bridge, class_of
from workbench.lore.inputs import Input

SUBQUERY_CLASSES = ("org.apache.spark.sql.execution.ScalarSubquery", "org.apache.spark.sql.execution.InSubqueryExec")
# The one variable of a Python worker that changes results.
KEPT_ENVIRONMENT = ("PYTHONHASHSEED",)


def plan_meta(operator: Any, inputs: list[Input], bridge: Bridge) -> bytes:
    """The operator over stubs, serialized.

    Raises
    ------
    ConfigError
        A Python function needs broadcast values of this session.
    """
    bridge.activate()
    stubs = [_stub(one, bridge) for one in inputs if one.kind != "subquery"]
    plan = operator.withNewChildren(bridge.seq(stubs))
    plan = with_subqueries(bridge, plan, lambda _, expression: _stub_subquery(bridge, expression))
    data = bridge.serialize(plan)
    if not any(True for _ in python_functions(plan, bridge)):
        return data
    # On a copy: the session's own plan goes on being used.
    copy = bridge.deserialize(data)
    for _, function in python_functions(copy, bridge):
        _without_origin(function, bridge)
    return bridge.serialize(copy)


def _stub(one: Input, bridge: Bridge) -> Any:
    leaf = bridge.stub(one.output)
    if one.kind == "broadcast":
        return bridge.execution.exchange.BroadcastExchangeExec(one.exchange.mode(), leaf)
    return bridge.execution.RowToColumnarExec(leaf) if one.kind == "columnar" else leaf


def with_subqueries(bridge: Bridge, plan: Any, instead: Callable[[int, Any], Any]) -> Any:
    """The plan with each subquery expression replaced; called with its number, in the order of `plan.subqueries`."""
    if plan.subqueries().isEmpty():
        return plan
    count = 0

    def rebuilt(expression: Any) -> Any:
        nonlocal count
        children = bridge.listed(expression.children())
        new = [rebuilt(child) for child in children]
        if any(one is not other for one, other in zip(children, new, strict=True)):
            expression = expression.withNewChildren(bridge.seq(new))
        if expression.getClass().getName() in SUBQUERY_CLASSES:
            expression = instead(count, expression)
            count += 1
        return expression

    pairs = [(expression, rebuilt(expression)) for expression in bridge.listed(plan.expressions())]
    return plan.mapExpressions(bridge.map(keyed=pairs))


def _stub_subquery(bridge: Bridge, expression: Any) -> Any:
    plan = expression.plan()
    if class_of(plan).startswith("ReusedSubquery"):
        plan = plan.child()
    return expression.withNewPlan(plan.withNewChildren(bridge.seq([bridge.stub(plan.child().output())])))


def python_functions(plan: Any, bridge: Bridge) -> Iterator[tuple[str, Any]]:
    """(name, function) of every Python function in the operator's expressions."""

    def below(expression: Any) -> Iterator[Any]:
        yield expression
        for child in bridge.listed(expression.children()):
            yield from below(child)

    for expression in bridge.listed(plan.expressions()):
        for one in below(expression):
            if class_of(one).startswith("Python") and hasattr(one, "func"):
                yield str(one.name()), one.func()


def _without_origin(function: Any, bridge: Bridge) -> None:
    if not function.broadcastVars().isEmpty():
        raise ConfigError(
            "a Python function uses broadcast values, which end with this session",
            do="pass small values into the function itself; a function of more than 1 MB is broadcast, too",
        )
    kept = bridge.jvm.java.util.HashMap()
    for name in KEPT_ENVIRONMENT:
        if (value := function.envVars().get(name)) is not None:
            kept.put(name, value)
    bridge.set_field(function, "pythonExec", "python3")
    bridge.set_field(function, "envVars", kept)
    bridge.set_field(function, "accumulator", None)


def at_home(plan: Any, bridge: Bridge) -> None:
    """Give the Python functions of a loaded plan this session's interpreter and accumulator.

    Raises
    ------
    InputError
        They were pickled by another Python, whose byte code this one cannot run.
    """
    for name, function in python_functions(plan, bridge):
        if str(function.pythonVer()) != str(bridge.context.pythonVer):
            raise InputError(
                "a Python function was pickled by another Python",
                where=name,
                found=function.pythonVer(),
                allowed=bridge.context.pythonVer,
                do=f"replay it with Python {function.pythonVer()}",
            )
        bridge.set_field(function, "pythonExec", bridge.context.pythonExec)
        bridge.set_field(function, "accumulator", bridge.context._javaAccumulator)
