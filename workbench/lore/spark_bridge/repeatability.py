"""Whether the rows of a plan are the same when it is computed again."""

from __future__ import annotations

import re
from typing import Any

from workbench.lore.spark_bridge.operator_inputs import strip_hooks
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

# Leaves whose rows are computed by code that Spark does not know.
_OPAQUE_LEAVES = ("RDDScanExec", "ExternalRDDScanExec", "RowDataSourceScanExec", "BatchScanExec", "ReusedSubqueryExec")
# Operators that take the first rows that arrive.
_LIMITS = ("CollectLimitExec", "LocalLimitExec", "GlobalLimitExec", "BaseLimitExec", "CollectTailExec", "SampleExec")
_PYTHON_OPERATORS = re.compile(r"Python|Pandas|InArrow|ArrowWindow|ArrowAggregate")
_USER_FUNCTIONS = re.compile(r"PythonUDF|ScalaUDF|ScalaAggregator|HiveSimpleUDF|HiveGenericUDF|PythonUDAF|PythonUDTF")


def find_unrepeatable_part(plan: Any, bridge: Bridge) -> str | None:
    """The first part below or in a plan whose rows may differ when it is computed again; null when there is none.

    Parts are expressions that Spark marks nondeterministic, functions of users (Spark trusts those that are not
    marked), limits and samples, and leaves whose rows Spark does not compute.
    """
    plan = strip_hooks(plan)
    if simple_class_name(plan) == "ReusedExchangeExec":
        plan = plan.child()
    kind = simple_class_name(plan)
    if kind in _OPAQUE_LEAVES or kind in _LIMITS or _PYTHON_OPERATORS.search(kind):
        return kind.removesuffix("Exec")
    for expression in bridge.to_list(plan.expressions()):
        if not bool(expression.deterministic()):
            return f"{_first_line(expression)} of {kind.removesuffix('Exec')}"
        if part := _find_user_function(expression, bridge):
            return f"{part} of {kind.removesuffix('Exec')}"
    for below in (*bridge.to_list(plan.children()), *bridge.to_list(plan.subqueries())):
        if part := find_unrepeatable_part(below, bridge):
            return part
    return None


def _find_user_function(expression: Any, bridge: Bridge) -> str | None:
    if _USER_FUNCTIONS.search(simple_class_name(expression)):
        return _first_line(expression)
    names = (_find_user_function(child, bridge) for child in bridge.to_list(expression.children()))
    return next((name for name in names if name), None)


def _first_line(expression: Any) -> str:
    return str(expression.toString()).splitlines()[0][:80]
