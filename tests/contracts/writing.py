"""How frozen things are written: one fact a line, numbers with nine significant digits, nothing of the machine."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

WIDTH = 118
DIGITS = 9
# Smaller than this is the rounding of a difference, and changes with the order of a sum.
NOTHING = 1e-12
MOST_NUMBERS = 10
MOST_TEXTS = 24
# Three words are somebody's sentence, which may be put better; a name has one or two.
PROSE = re.compile(r"\S+\s+\S+\s+\S")
# Keys that name a row or a thing, whatever the number of their words: thresholds and scripts of users name them.
NAMES = frozenset({"condition", "constraint", "figure", "input", "operator", "row", "step", "target"})


def round_number(value: float) -> str:
    """The number as it is compared."""
    if not math.isfinite(value):
        return str(value)
    return "0" if abs(value) < NOTHING else f"{value:.{DIGITS}g}"


def write_json(value: Any, depth: int = 0) -> str:
    """JSON with one line for whatever fits on a line, so that a difference shows what changed."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) + depth < WIDTH or not isinstance(value, (dict, list)) or not value:
        return short
    pad = " " * (depth + 1)
    if isinstance(value, list):
        inner = ",\n".join(pad + write_json(one, depth + 1) for one in value)
        return f"[\n{inner}\n{' ' * depth}]"
    inner = ",\n".join(f"{pad}{json.dumps(key)}: {write_json(one, depth + 1)}" for key, one in value.items())
    return f"{{\n{inner}\n{' ' * depth}}}"


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a document with its path; the items of a list share theirs, and their number is a leaf, too."""
    if isinstance(value, dict):
        if not value:
            yield path, value
        for key, one in value.items():
            yield from flatten(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        yield f"{path}[#]", len(value)
        for one in value:
            yield from flatten(one, f"{path}[]")
    else:
        yield path, value


def describe_document(document: Any, volatile: frozenset[str] = frozenset(), places: tuple[str, ...] = ()) -> str:
    """A line for each path of a document: types, and the values where they are steady.

    Parameters
    ----------
    document
        Dicts, lists and leaves.
    volatile
        Keys whose values are another every time, or on another machine: of them only the types are told.
    places
        Folders of this machine: a text that holds one is a path, and its value is left out.
    """
    leaves: dict[str, list[Any]] = {}
    for path, value in flatten(document):
        leaves.setdefault(path, []).append(value)
    return "".join(f"{path}  {_describe(path, values, volatile, places)}\n" for path, values in sorted(leaves.items()))


def _describe(path: str, values: list[Any], volatile: frozenset[str], places: tuple[str, ...]) -> str:
    types = "|".join(sorted({name_type(value) for value in values}))
    keys = [key for key in re.split(r"[.\[\]#]+", path) if key]
    if volatile & set(keys):
        return types
    texts = [value for value in values if isinstance(value, str)]
    if any(place in text for text in texts for place in places):
        return f"{types} (path)"
    if not NAMES & set(keys[-1:]) and any(PROSE.search(text) for text in texts):
        return f"{types} (prose)"
    if path.endswith("[#]"):
        return "items: " + ", ".join(map(str, sorted(set(values))))
    told = list(dict.fromkeys(_tell(value) for value in values))
    if len(told) <= (MOST_TEXTS if texts else MOST_NUMBERS):
        return f"{types} = {', '.join(told)}"
    return f"{types} = {len(told)} values, {digest(told)}"


def name_type(value: Any) -> str:
    """The JSON type of a leaf."""
    names = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str", dict: "{}"}
    return names[type(value)]


def _tell(value: Any) -> str:
    return round_number(value) if type(value) is float else json.dumps(value, ensure_ascii=False)


def digest(lines: list[str]) -> str:
    """What stands for many lines."""
    return "sha256 " + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
