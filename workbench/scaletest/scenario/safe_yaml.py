"""Safe YAML reader: bounded size, no aliases or tags, unique keys, and the line of every value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.core import files
from workbench.core.errors import InputError, refuse_os_errors

MAX_BYTES = 16 << 20
MAX_NODES = 1_000_000
MAX_DEPTH = 40
_PLAIN = {"tag:yaml.org,2002:" + name for name in ("map", "seq", "str", "int", "float", "bool", "null")}
ValuePath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A YAML document: its value, and the line of each mapping's entry and list's item."""

    value: Any
    where: str
    lines: dict[ValuePath, int] = field(repr=False)

    def find_line(self, place: ValuePath) -> int | None:
        """Line of a value, or of the value that would contain it; null if there is none."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


def read_yaml_file(path: str | Path) -> Document:
    """Read a YAML file with one document."""
    with refuse_os_errors("cannot read the file", path, do="check the path"):
        content = files.read_up_to(path, MAX_BYTES)
    return parse_yaml(content, str(path))


def parse_yaml(text: str | bytes, where: str) -> Document:
    """Read one YAML document, of plain values only.

    Aliases are refused: ten lines of them grow to gigabytes. So are tags, dates, and a key that is given twice.

    >>> parse_yaml("a: {b: [1, x]}", "here").value
    {'a': {'b': [1, 'x']}}
    >>> parse_yaml("a: &x [1]\\nb: *x", "here")
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: YAML aliases are not taken
      where: here, line 2
      do: write the value out
    """
    import yaml

    loader_type: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data = text.encode() if isinstance(text, str) else text
        if len(data) > MAX_BYTES:
            raise InputError("the document is too large", where=where, allowed=f"{MAX_BYTES >> 20} MiB")
        # Limit number and depth of YAML events before a tree is built, which recurses on the interpreter's stack.
        depth = 0
        for nodes, event in enumerate(yaml.parse(data, Loader=loader_type)):
            if isinstance(event, yaml.AliasEvent):
                line = 0 if event.start_mark is None else event.start_mark.line + 1
                raise InputError("YAML aliases are not taken", where=f"{where}, line {line}", do="write the value out")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH or nodes > MAX_NODES:
                allowed = f"{MAX_DEPTH} levels and {MAX_NODES:,} values"
                raise InputError("the document is too deep or too long", where=where, allowed=allowed)
        loader = loader_type(data)
        root = loader.get_single_node()
    except (yaml.YAMLError, UnicodeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise InputError(
            "not YAML",
            where=where if mark is None else f"{where}, line {mark.line + 1}",
            found=" ".join(str(getattr(error, "problem", None) or getattr(error, "reason", None) or "text").split())[
                :120
            ],
        ) from None
    lines: dict[ValuePath, int] = {}
    return Document(None if root is None else _build_value(root, loader, (), lines, where), where, lines)


def _build_value(node: Any, loader: Any, place: ValuePath, lines: dict[ValuePath, int], where: str) -> Any:
    """Build the Python value of a YAML node, and note in `lines` the line of every value by its path."""
    lines[place] = line = node.start_mark.line + 1
    if node.tag not in _PLAIN:
        tag = str(node.tag).removeprefix("tag:yaml.org,2002:")[:60]
        if tag == "timestamp":
            return str(node.value)
        raise InputError("a YAML tag that is not taken", where=f"{where}, line {line}", found=tag)
    if node.id == "scalar":
        return _build_scalar(node, loader, f"{where}, line {line}")
    if node.id == "sequence":
        return [_build_value(child, loader, (*place, index), lines, where) for index, child in enumerate(node.value)]
    mapping: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.id != "scalar" or key.value == "<<":
            raise InputError("a key must be a plain text", where=f"{where}, line {line}")
        if key.value in mapping:
            raise InputError("a key is given twice", where=f"{where}, line {line}", found=key.value[:80])
        mapping[key.value] = _build_value(value, loader, (*place, key.value), lines, where)
        lines[(*place, key.value)] = line
    return mapping


def _build_scalar(node: Any, loader: Any, where: str) -> Any:
    if len(node.value) > 1000 and not node.tag.endswith(":str"):
        raise InputError("a number with too many digits", where=where, found=f"{len(node.value)} of them")
    try:
        return loader.construct_object(node)
    except (ValueError, OverflowError) as error:
        raise InputError("a value that cannot be read", where=where, found=str(error)[:80]) from None
