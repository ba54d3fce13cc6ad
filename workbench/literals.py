"""The types that a parameter may have: read from an annotation, and made from the text of a command line.

str, int, float, bool, list[…], Literal[…] and … | None. Annotations are read as syntax and never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from workbench.errors import InputError

ALLOWED = "str, int, float, bool, list[…], Literal[…], … | None"
_SCALARS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
_NONE_WORDS = ("none", "null")


def annotated(node: ast.expr, place: str) -> Any:
    """The type that an annotation means.

    Raises
    ------
    InputError
        It means another type, or none.
    """
    try:
        return _annotated(node)
    except (ValueError, SyntaxError) as error:
        found = ast.unparse(node)
        raise InputError("type of a parameter is not supported", where=place, found=found, allowed=ALLOWED) from error


def _annotated(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _annotated(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.Name) and node.id in _SCALARS:
        return _SCALARS[node.id]
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return Union[_annotated(node.left), _annotated(node.right)]  # noqa: UP007
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == "list":
            return list[_annotated(node.slice)]  # type: ignore[misc]
        if node.value.id == "Optional":
            return Union[_annotated(node.slice), None]  # noqa: UP007
        if node.value.id == "Literal":
            choices = ast.literal_eval(node.slice)
            return Literal[choices if isinstance(choices, tuple) else (choices,)]
    raise ValueError("another type")


def inferred(default: Any, place: str) -> Any:
    """The type of a parameter without annotation: that of its plain default.

    Raises
    ------
    InputError
        The default does not tell (a list, None).
    """
    if type(default) in _SCALARS.values():
        return type(default)
    raise InputError("parameter has no type", where=place, found=repr(default), do="annotate it: name: list[int] = []")


def from_text(kind: Any, text: str) -> Any:
    """Make a value of a declared type from a command line's text.

    Raises
    ------
    ValueError
        The text does not spell such a value; says what would.

    Examples
    --------
    >>> from_text(str, "3.10"), from_text(list[int], "[1, 2]"), from_text(bool, "yes"), from_text(int | None, "none")
    ('3.10', [1, 2], True, None)
    """
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _optional_from_text(kind, text)
    if origin is Literal:
        return _choice_from_text(kind, text)
    if origin is list:
        return [from_text(get_args(kind)[0], item) for item in _items(text)]
    if kind is str:
        return text
    if kind is bool:
        if text.strip().lower() not in _TRUTHS:
            raise ValueError("write true or false")
        return _TRUTHS[text.strip().lower()]
    if kind is int:
        if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
            raise ValueError("write a whole number")
        return int(text)
    return _number_from_text(text)


def _number_from_text(text: str) -> float:
    if not re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", text) or abs(float(text)) == float(
        "inf"
    ):
        raise ValueError("write a finite number such as 0.5")
    return float(text)


def _optional_from_text(kind: Any, text: str) -> Any:
    kinds = [item for item in get_args(kind) if item is not type(None)]
    if len(kinds) < len(get_args(kind)) and text.strip().lower() in _NONE_WORDS:
        return None
    reasons = []
    # A text fits every str, so the narrower types are tried first.
    for item in sorted(kinds, key=lambda item: item is str):
        try:
            return from_text(item, text)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; or ".join(reasons))


def _choice_from_text(kind: Any, text: str) -> Any:
    for choice in get_args(kind):
        try:
            if from_text(type(choice), text) == choice:
                return choice
        except ValueError:
            continue
    raise ValueError("one of " + ", ".join(map(str, get_args(kind))))


def _items(text: str) -> Iterator[str]:
    """Split "[1, 2]", "1,2" or "'a, b', c": brackets may be left out, quotes keep commas."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    if not text:
        return
    item = r"""\s*(?:"([^"]*)"|'([^']*)'|([^,]*?))\s*"""
    if not re.fullmatch(rf"{item}(?:,{item})*", text):
        raise ValueError("write a list as [a, b] or a,b")
    for match in re.finditer(rf"{item}(?:,|$)", text):
        if match.start() < len(text) or text.endswith(","):
            yield next(part for part in (*match.groups(), "") if part is not None)
