"""Text, JSON and YAML from outside, read within limits of size, depth and repetition.

Every function raises `InputError`, or the `error_type` that is given (`ConfigError` for what a user asked for). `noun`
says what the data should be ("factor model", "sweep"); `do` is the command that helps. Text of the file is not quoted.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import InputError, WorkbenchError
from workbench.core.files import read_up_to

MAX_BYTES = 16 << 20
MAX_DEPTH = 100
MAX_YAML_NODES = 1_000_000
_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"
_INTEGER_TAG = "tag:yaml.org,2002:int"
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class _Source:
    """What is read, from where, and how it is refused."""

    noun: str
    where: object
    max_depth: int
    do: str | None
    error_type: type[WorkbenchError]

    def refuse(self, message: str, place: str | None = None, **facts: Any) -> WorkbenchError:
        """The error about a place in the text, or about all of it."""
        where = self.where if place is None else place if self.where is None else f"{self.where}, {place}"
        return self.error_type(message, where=where, **{"do": self.do, **facts})

    def refuse_line(self, message: str, mark: Any, **facts: Any) -> WorkbenchError:
        """The error about a line; `mark` is YAML's place of it, null where it has none."""
        return self.refuse(message, None if mark is None else f"line {mark.line + 1}", **facts)

    def refuse_depth(self) -> WorkbenchError:
        return self.refuse(f"nested too deeply for {add_article(self.noun)}", allowed=f"{self.max_depth} levels")


def read_text_file(
    path: str | Path,
    *,
    noun: str,
    max_bytes: int = MAX_BYTES,
    do: str | None = None,
    error_type: type[WorkbenchError] = InputError,
) -> str:
    """The UTF-8 text of a regular file, a byte order mark left out.

    >>> read_text_file("no/such.sql", noun="query")
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: cannot read the query
      where: no/such.sql
      found: No such file or directory
    """
    try:
        return read_up_to(path, max_bytes).decode("utf-8-sig")
    except OSError as error:
        raise error_type(f"cannot read the {noun}", where=path, found=error.strerror or str(error), do=do) from None
    except UnicodeDecodeError as error:
        raise error_type(f"not UTF-8 text: the {noun}", where=path, found=f"byte {error.start}", do=do) from None
    except InputError as error:
        message = (
            f"{error.what}: the {noun}" if error.facts["allowed"] is None else f"too large for {add_article(noun)}"
        )
        raise error_type(message, where=path, allowed=error.facts["allowed"], do=do) from None


def parse_json(
    text: str | bytes,
    *,
    noun: str,
    where: object = None,
    max_depth: int = MAX_DEPTH,
    exact: bool = False,
    do: str | None = None,
    error_type: type[WorkbenchError] = InputError,
) -> Any:
    """The value of a JSON text; `exact` refuses a name that an object has twice, of which the last would win.

    >>> parse_json('{"a": [1, 2]}', noun="plan")
    {'a': [1, 2]}
    >>> parse_json('{"a": ', noun="plan", where="plan.json")
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: not JSON: the plan
      where: plan.json, line 1, column 7
      found: Expecting value
    """
    source = _Source(noun, where, max_depth, do, error_type)
    try:
        value = json.loads(text, object_pairs_hook=_build_object if exact else None)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise source.refuse(f"not JSON: the {noun}", place, found=error.msg) from None
    except RecursionError:
        raise source.refuse_depth() from None
    except ValueError as error:
        # Bytes that are no UTF-8, a number of thousands of digits.
        raise source.refuse(f"not JSON: the {noun}", found=str(error)[:120]) from None
    if measure_depth(value, max_depth) > max_depth:
        raise source.refuse_depth()
    return value


def parse_yaml(
    text: str | bytes,
    *,
    noun: str,
    where: object = None,
    max_depth: int = MAX_DEPTH,
    decimal: bool = False,
    as_text: bool = False,
    do: str | None = None,
    error_type: type[WorkbenchError] = InputError,
) -> Any:
    """The value of a YAML document of plain values; None for an empty one.

    Aliases are refused: ten lines of them can grow to gigabytes. A key that is given twice is refused: YAML itself
    would keep the last one and say nothing. `decimal` refuses integers in another form: YAML reads 010 as 8, and 12:30
    as 750. `as_text` leaves every scalar as it is written: a version 3.10 is not 3.1.

    >>> parse_yaml("a: {b: [1, x]}", noun="plan")
    {'a': {'b': [1, 'x']}}
    >>> parse_yaml("a: 1\\na: 2", noun="plan", where="plan.yaml")
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: a key is given twice
      where: plan.yaml, line 2
      found: a
    """
    import yaml

    name = "BaseLoader" if as_text else "SafeLoader"
    loader_type: Any = getattr(yaml, f"C{name}", getattr(yaml, name))
    source = _Source(noun, where, max_depth, do, error_type)
    try:
        _check_yaml_events(text, loader_type, source)
        loader = loader_type(text)
        root = loader.get_single_node()
        _check_yaml_nodes(root, source, decimal=decimal)
        return None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if problem == _TOO_DEEP_FOR_LIBYAML:
            raise source.refuse_depth() from None
        raise source.refuse_line(f"not YAML: the {noun}", mark, found=problem or type(error).__name__) from None
    except RecursionError:
        raise source.refuse_depth() from None
    except ValueError as error:
        # A date such as 2026-02-30, a number of thousands of digits, bytes that are no UTF-8.
        raise source.refuse(f"not YAML: the {noun}", found=str(error)[:120]) from None


def read_json_file(
    path: str | Path,
    *,
    noun: str,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    do: str | None = None,
    error_type: type[WorkbenchError] = InputError,
) -> Any:
    """Read the value of a JSON file; errors as of `read_text_file` and `parse_json`."""
    text = read_text_file(path, noun=noun, max_bytes=max_bytes, do=do, error_type=error_type)
    return parse_json(text, noun=noun, where=path, max_depth=max_depth, do=do, error_type=error_type)


def read_json_documents(path: str | Path, *, noun: str, max_bytes: int = MAX_BYTES) -> list[tuple[Any, str]]:
    """The objects of a JSON list, one object, or those of JSON lines, each with its place for errors."""
    text = read_text_file(path, noun=noun, max_bytes=max_bytes)
    # Other signs that end a line may stand inside of a JSON text.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        return []
    if not lines[0][1].lstrip().startswith("[") and (len(lines) == 1 or _is_json(lines[0][1])):
        places = [(line, f"{path}, line {number}") for number, line in lines]
        return [(parse_json(line, noun=noun, where=place), place) for line, place in places]
    value = parse_json(text, noun=noun, where=path)
    documents = value if isinstance(value, list) else [value]
    return [(document, f"{path}, entry {place}") for place, document in enumerate(documents)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_yaml_file(
    path: str | Path,
    *,
    noun: str,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    decimal: bool = False,
    as_text: bool = False,
    do: str | None = None,
    error_type: type[WorkbenchError] = InputError,
) -> Any:
    """Read the value of a YAML file; errors as of `read_text_file` and `parse_yaml`."""
    text = read_text_file(path, noun=noun, max_bytes=max_bytes, do=do, error_type=error_type)
    return parse_yaml(
        text,
        noun=noun,
        where=path,
        max_depth=max_depth,
        decimal=decimal,
        as_text=as_text,
        do=do,
        error_type=error_type,
    )


def measure_depth(value: object, limit: int = MAX_DEPTH) -> int:
    """How deep lists and objects are nested, counted up to one more than `limit`.

    >>> measure_depth({"a": [1, [2]]}), measure_depth(7)
    (3, 0)
    """
    depth = 0
    level: list[Any] = [value]
    while depth <= limit:
        level = [node for node in level if isinstance(node, dict | list)]
        if not level:
            break
        depth += 1
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node)]
    return depth


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"a name is given twice: {repeated[:80]}")
    return dict(pairs)


def find_foreign_part(value: Any, max_depth: int = MAX_DEPTH) -> tuple[list[str | int], str] | None:
    """The first part of a value that JSON cannot hold: its place, and what it is; null without one.

    >>> find_foreign_part({"a": [1, float("nan")]}), find_foreign_part({"a": [1, None]})
    ((['a', 1], 'nan is not a finite number'), None)
    """
    if measure_depth(value, max_depth) > max_depth:
        return [], f"nested deeper than {max_depth} levels"
    return _find_foreign_part(value, [])


def _find_foreign_part(value: Any, place: list[str | int]) -> tuple[list[str | int], str] | None:
    if isinstance(value, dict):
        if foreign := [key for key in value if not isinstance(key, str)]:
            return place, f"the key {foreign[0]!r} is not a text; put it in quotes"
        found = (_find_foreign_part(item, [*place, key]) for key, item in value.items())
    elif isinstance(value, list):
        found = (_find_foreign_part(item, [*place, number]) for number, item in enumerate(value))
    elif isinstance(value, float) and not math.isfinite(value):
        return place, f"{value} is not a finite number"
    elif value is None or isinstance(value, str | int | float):
        return None
    else:
        advice = "; put it in quotes" if isinstance(value, dt.date) else ""
        return place, f"a {type(value).__name__} is no JSON value{advice}"
    return next((part for part in found if part is not None), None)


def _check_yaml_events(text: str | bytes, loader_type: Any, source: _Source) -> None:
    """Limit number and depth of YAML events before a tree is built, which recurses on the interpreter's stack."""
    import yaml

    depth = 0
    for n_nodes, event in enumerate(yaml.parse(text, Loader=loader_type)):
        if isinstance(event, yaml.AliasEvent):
            raise source.refuse_line("YAML aliases are not allowed", event.start_mark, do="write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > source.max_depth:
            raise source.refuse_depth()
        if n_nodes > MAX_YAML_NODES:
            allowed = f"{MAX_YAML_NODES:,} values"
            raise source.refuse(f"too long for {add_article(source.noun)}", allowed=allowed, do=None)


def _check_yaml_nodes(root: Any, source: _Source, *, decimal: bool) -> None:
    """Refuse a key that a mapping has twice and, if `decimal`, integers in another form; `root` is the whole tree."""
    import yaml

    # Without aliases the nodes are a tree.
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
            names: set[str] = set()
            for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
                if key.value in names:
                    raise source.refuse_line("a key is given twice", key.start_mark, found=key.value[:80])
                names.add(key.value)
        elif decimal and node is not None and node.tag == _INTEGER_TAG and not _DECIMAL.fullmatch(node.value):
            do = f"write a number in decimal form, or in quotes where the text itself counts: '{node.value[:40]}'"
            message = "an integer in another form"
            raise source.refuse_line(message, node.start_mark, found=node.value[:80], do=do)


def add_article(noun: str) -> str:
    """The noun with its indefinite article.

    >>> add_article("sweep"), add_article("event log")
    ('a sweep', 'an event log')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
