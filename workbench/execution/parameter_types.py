"""Parameter types: read from annotations, and parsed from command-line text.

str, int, float, bool, list[…], Literal[…] and … | None. Annotations are read as syntax and never evaluated.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from workbench.core.errors import InputError

ALLOWED_TYPES = "str, int, float, bool, list[…], Literal[…], … | None"
_SCALARS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_TRUTH_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_NONE_WORDS = ("none", "null")


def parse_annotation(node: ast.expr, place: str) -> Any:
    """The type of an annotation."""
    try:
        return _parse_annotation_node(node)
    except (ValueError, SyntaxError) as error:
        annotation = ast.unparse(node)
        raise InputError(
            "type of a parameter is not supported", where=place, found=annotation, allowed=ALLOWED_TYPES
        ) from error


def _parse_annotation_node(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _parse_annotation_node(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.Name) and node.id in _SCALARS:
        return _SCALARS[node.id]
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return Union[_parse_annotation_node(node.left), _parse_annotation_node(node.right)]  # noqa: UP007
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == "list":
            return list[_parse_annotation_node(node.slice)]  # type: ignore[misc]
        if node.value.id == "Optional":
            return Union[_parse_annotation_node(node.slice), None]  # noqa: UP007
        if node.value.id == "Literal":
            choices = ast.literal_eval(node.slice)
            return Literal[choices if isinstance(choices, tuple) else (choices,)]
    raise ValueError("another type")


def infer_type(default: Any, place: str, name: str = "name") -> Any:
    """The type of a parameter without annotation, by its default."""
    if type(default) in _SCALARS.values():
        return type(default)
    raise InputError("parameter has no type", where=place, found=repr(default)[:80], do=_advise_type(default, name))


def _advise_type(default: Any, name: str) -> str:
    """What to write instead, which is then accepted.

    >>> _advise_type(None, "day")
    'say what it may be: day: str | None = None'
    """
    if default is None:
        return f"say what it may be: {name}: str | None = None"
    kinds = {type(item) for item in default} if isinstance(default, list) else {dict}
    if kinds <= set(_SCALARS.values()) and len(kinds) < 2:
        kind = next(iter(kinds)).__name__ if kinds else "str"
        return f"say what it holds: {name}: list[{kind}] = {default!r}"[:200]
    text = json.dumps(default, default=str)
    return (
        f"a parameter holds no nested value: write {name}: str = {text!r}"[:200] + ", and json.loads in the next cell"
    )


def parse_value(kind: Any, text: str) -> Any:
    """Parse text from a command line as a value of a declared type.

    >>> parse_value(str, "3.10"), parse_value(list[int], "[1, 2]"), parse_value(int | None, "none")
    ('3.10', [1, 2], None)
    """
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _parse_optional(kind, text)
    if origin is Literal:
        return _parse_choice(kind, text)
    if origin is list:
        return [parse_value(get_args(kind)[0], item) for item in _split_items(text)]
    if kind is str:
        return text
    if kind is bool:
        if text.strip().lower() not in _TRUTH_WORDS:
            raise ValueError("write true or false")
        return _TRUTH_WORDS[text.strip().lower()]
    if kind is int:
        if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
            raise ValueError("write a whole number")
        return int(text)
    return _parse_number(text)


def _parse_number(text: str) -> float:
    if not re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", text) or abs(float(text)) == float(
        "inf"
    ):
        raise ValueError("write a finite number such as 0.5")
    return float(text)


def _parse_optional(kind: Any, text: str) -> Any:
    kinds = [item for item in get_args(kind) if item is not type(None)]
    if len(kinds) < len(get_args(kind)) and text.strip().lower() in _NONE_WORDS:
        return None
    reasons = []
    # Every text is a valid str, so other types are tried first.
    for item in sorted(kinds, key=lambda item: item is str):
        try:
            return parse_value(item, text)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; or ".join(reasons))


def _parse_choice(kind: Any, text: str) -> Any:
    for choice in get_args(kind):
        try:
            if parse_value(type(choice), text) == choice:
                return choice
        except ValueError:
            continue
    raise ValueError("one of " + ", ".join(map(str, get_args(kind))))


def _split_items(text: str) -> Iterator[str]:
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
