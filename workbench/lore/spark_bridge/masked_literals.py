"""Literals of a plan that say something of a masked column: a dump that hides values must not keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

# A number in arithmetic is no value of the column; one that the column is held against is.
_COMPARISONS = frozenset(
    {
        *(
            "EqualTo",
            "EqualNullSafe",
            "LessThan",
            "LessThanOrEqual",
            "GreaterThan",
            "GreaterThanOrEqual",
            "In",
            "InSet",
        ),
        *("CaseWhen", "If", "NullIf", "Coalesce", "Greatest", "Least", "ArrayContains"),
    }
)
# Keep values in fields, not as literals below them.
_VALUE_FIELDS = ("InSet", "LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def check_literals(plan: Any, masked_ids: set[int], bridge: Bridge, *, is_input: Callable[[Any], bool]) -> None:
    """Refuse a plan in which a literal stands beside a masked column, or beside what is computed of it.

    `masked_ids`: Expression ids of the masked columns of the inputs.
    `is_input`: Is a child of an operator an input of the dump?
    """
    hidden = set(masked_ids)

    def check_operator(operator: Any) -> None:
        children = bridge.to_list(operator.children())
        for child in children:
            if not is_input(child):
                check_operator(child)
        touched = [one for one in bridge.to_list(operator.expressions()) if _uses(one, hidden, bridge)]
        for expression in touched:
            if (literal := next(_iter_literals(expression, hidden, bridge, compared=False), None)) is not None:
                raise ConfigError(
                    "the plan compares a masked column with a literal, and the dump would show it",
                    where=f"--mask, {operator.nodeName()}",
                    found=literal,
                    do="dump an operator above or below, which does not have it",
                )
        if touched:
            below = {id_ for child in children for id_ in _list_ids(child.output(), bridge)}
            hidden.update(
                _list_named_ids(touched) if simple_class_name(operator) == "ProjectExec" else
                set(_list_ids(operator.output(), bridge)) - below
            )  # fmt: skip

    check_operator(plan)


def _list_ids(output: Any, bridge: Bridge) -> list[int]:
    return [int(attribute.exprId().id()) for attribute in bridge.to_list(output)]


def _list_named_ids(expressions: list[Any]) -> set[int]:
    return {int(one.exprId().id()) for one in expressions if simple_class_name(one) in ("Alias", "AttributeReference")}


def _uses(expression: Any, hidden: set[int], bridge: Bridge) -> bool:
    return not hidden.isdisjoint(_list_ids(expression.references().toSeq(), bridge))


def _iter_literals(expression: Any, hidden: set[int], bridge: Bridge, *, compared: bool) -> Iterator[str]:
    """Yield the kinds of literals in the parts of a condition that use a hidden column, without their values."""
    kind = simple_class_name(expression)
    if kind in ("And", "Or"):
        for child in bridge.to_list(expression.children()):
            if _uses(child, hidden, bridge):
                yield from _iter_literals(child, hidden, bridge, compared=compared)
        return
    if kind in _VALUE_FIELDS:
        yield f"values of {kind}"
    if kind == "Literal":
        type_name = str(expression.dataType().catalogString())
        is_number = type_name.startswith(_NUMBERS)
        if expression.value() is not None and type_name != "boolean" and (compared or not is_number):
            yield f"a literal of type {type_name}"
    for child in bridge.to_list(expression.children()):
        yield from _iter_literals(child, hidden, bridge, compared=compared or kind in _COMPARISONS)
