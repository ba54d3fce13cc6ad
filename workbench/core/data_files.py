"""Text, JSON and YAML from outside, read within limits of size, depth and repetition.

Every function raises `InputError`, or the `error_type` that is given (`ConfigError` for what a user asked for). `noun`
says what the data should be ("factor model", "sweep"); `do` is the command that helps. Text of the file is not quoted.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.core.errors import InputError, WorkbenchError
from workbench.core.files import read_up_to

MAX_BYTES = 16 << 20
MAX_DEPTH = 100
MAX_YAML_NODES = 1_000_000
_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)")
_Context = tuple[str, object, int, str | None, type[WorkbenchError]]


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
    try:
        value = json.loads(text, object_pairs_hook=_build_object if exact else None)
    except json.JSONDecodeError as error:
        place = _join_place(where, f"line {error.lineno}, column {error.colno}")
        raise error_type(f"not JSON: the {noun}", where=place, found=error.msg, do=do) from None
    except RecursionError:
        raise _too_deep(noun, where, max_depth, do, error_type) from None
    except ValueError as error:
        # Bytes that are no UTF-8, a number of thousands of digits.
        raise error_type(f"not JSON: the {noun}", where=where, found=str(error)[:120], do=do) from None
    if measure_depth(value, max_depth) > max_depth:
        raise _too_deep(noun, where, max_depth, do, error_type)
    return value


def parse_yaml(
    text: str | bytes,
    *,
    noun: str,
    where: object = None,
    max_depth: int = MAX_DEPTH,
    allow_aliases: bool = False,
    decimal: bool = False,
    do: str | None = None,
    error_type: type[WorkbenchError] = InputError,
) -> Any:
    """The value of a YAML document of plain values; None for an empty one.

    Aliases are refused unless they are allowed: ten lines of them can grow to gigabytes. A key that is given twice is
    refused: YAML itself would keep the last one and say nothing. `decimal` refuses integers in another form: YAML reads
    010 as 8, and 12:30 as 750.

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

    loader_type: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_yaml_events(text, loader_type, (noun, where, max_depth, do, error_type), allow_aliases)
        loader = loader_type(text)
        root = loader.get_single_node()
        _check_repeated_keys(root, where, do, error_type)
        if decimal:
            _check_integers(root, where, error_type)
        return None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if problem == _TOO_DEEP_FOR_LIBYAML:
            raise _too_deep(noun, where, max_depth, do, error_type) from None
        place = where if mark is None else _join_place(where, f"line {mark.line + 1}")
        raise error_type(f"not YAML: the {noun}", where=place, found=problem or type(error).__name__, do=do) from None
    except RecursionError:
        raise _too_deep(noun, where, max_depth, do, error_type) from None
    except ValueError as error:
        # A date such as 2026-02-30, a number of thousands of digits, bytes that are no UTF-8.
        raise error_type(f"not YAML: the {noun}", where=where, found=str(error)[:120], do=do) from None


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


def read_yaml_file(
    path: str | Path,
    *,
    noun: str,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    allow_aliases: bool = False,
    decimal: bool = False,
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
        allow_aliases=allow_aliases,
        decimal=decimal,
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


def _check_yaml_events(text: str | bytes, loader_type: Any, context: _Context, allow_aliases: bool) -> None:
    """Limit number and depth of YAML events before a tree is built, which recurses on the interpreter's stack."""
    import yaml

    noun, where, max_depth, do, error_type = context
    depth = 0
    for n_nodes, event in enumerate(yaml.parse(text, Loader=loader_type)):
        if isinstance(event, yaml.AliasEvent) and not allow_aliases:
            place = where if event.start_mark is None else _join_place(where, f"line {event.start_mark.line + 1}")
            raise error_type("YAML aliases are not allowed", where=place, do="write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > max_depth:
            raise _too_deep(noun, where, max_depth, do, error_type)
        if n_nodes > MAX_YAML_NODES:
            raise error_type(f"too long for {add_article(noun)}", where=where, allowed=f"{MAX_YAML_NODES:,} values")


def _iterate_nodes(root: Any) -> Iterator[Any]:
    """Each node of a YAML document once, however often aliases name it; `root` is the uppermost one."""
    import yaml

    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]


def _check_integers(root: Any, where: object, error_type: type[WorkbenchError]) -> None:
    """Refuse integers that are not written in decimal form; `root` is the uppermost node of a YAML document."""
    for node in _iterate_nodes(root):
        if getattr(node, "tag", None) == "tag:yaml.org,2002:int" and not _DECIMAL.fullmatch(text := str(node.value)):
            place = _join_place(where, f"line {node.start_mark.line + 1}")
            do = f"write a number in decimal form, or in quotes where the text itself counts: '{text[:40]}'"
            raise error_type("an integer in another form", where=place, found=text[:80], do=do)


def _check_repeated_keys(root: Any, where: object, do: str | None, error_type: type[WorkbenchError]) -> None:
    """Refuse a YAML document in which a mapping has a key twice; `root` is its uppermost node."""
    import yaml

    for node in _iterate_nodes(root):
        names: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in names:
                place = _join_place(where, f"line {key.start_mark.line + 1}")
                raise error_type("a key is given twice", where=place, found=key.value[:80], do=do)
            names.add(key.value)


def _too_deep(
    noun: str, where: object, max_depth: int, do: str | None, error_type: type[WorkbenchError]
) -> WorkbenchError:
    message = f"nested too deeply for {add_article(noun)}"
    return error_type(message, where=where, allowed=f"{max_depth} levels", do=do)


def _join_place(where: object, place: str) -> str:
    return place if where is None else f"{where}, {place}"


def add_article(noun: str) -> str:
    """The noun with its indefinite article.

    >>> add_article("sweep"), add_article("event log")
    ('a sweep', 'an event log')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
