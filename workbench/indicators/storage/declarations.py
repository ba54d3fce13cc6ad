"""Which columns an indicator has: read from its class's JSON Schema, so that the class itself need not be at hand.

A declaration may come from somebody else's archive: its size, names and types are checked before a table is made.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.errors import InputError
from workbench.indicators.contract import BASE_COLUMNS, Value

Kind = Literal["int", "float", "bool", "str"]
MOST_FIELDS = 500
MOST_NAME_BYTES = 63
"""PostgreSQL cuts longer names off, and two that begin alike would become one."""

_PARTS = {"parameter": "@parameters", "result": "@result", "check": "@checks"}
_PLAIN = re.compile(r"[a-z][a-z0-9_]*")
_TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


@dataclass(frozen=True)
class Field:
    """One column of an indicator's table.

    Attributes
    ----------
    key, part
        Where a document holds the value: `@parameters`, `@result` or `@checks`, and the key in it.
    column
        The column's name: the key in lower case.
    kind
        Its type. A field that may be a number or a text (a padding of 1 or "SAME") is a text.
    nullable
        The value may be null.
    mixed
        A number or a text: numbers are kept as JSON writes them.
    unit
        Its unit, as declared.
    """

    key: str
    part: str
    column: str
    kind: Kind
    nullable: bool
    mixed: bool = False
    unit: str = ""


def fields_of(declaration: Mapping[str, Any]) -> tuple[Field, ...]:
    """The columns that a declaration asks for, in its order.

    Raises
    ------
    InputError
        It is no declaration of an indicator: no fields or too many, a field without a role, a type that no column has.

    Examples
    --------
    >>> from workbench.indicators.contract import Indicator, parameter, result
    >>> class Sort(Indicator):
    ...     n: int = parameter(1000)
    ...     elapsed_ms: float = result(unit="ms", better="lower")
    >>> [(field.part, field.column, field.kind) for field in fields_of(Sort.model_json_schema())]
    [('@parameters', 'n', 'int'), ('@result', 'elapsed_ms', 'float')]
    """
    properties = declaration.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise InputError("not a declaration of an indicator", where="declaration", found="no properties")
    if len(properties) > MOST_FIELDS:
        raise InputError("too many fields", where="declaration", found=len(properties), allowed=f"<= {MOST_FIELDS}")
    taken: set[str] = set()
    return tuple(_field(str(key), found, taken) for key, found in properties.items())


def _field(key: str, found: Any, taken: set[str]) -> Field:
    where = f"declaration, field {key[:60]}"
    part = _PARTS.get(str(found.get("role"))) if isinstance(found, Mapping) else None
    if part is None:
        raise InputError("a field without a role", where=where, allowed=list(_PARTS))
    kinds = _kinds(found)
    nullable = "null" in kinds
    kind, mixed = _kind(kinds - {"null"}, where)
    return Field(
        key=key,
        part=part,
        column=_column(key, taken),
        kind=kind,
        nullable=nullable,
        mixed=mixed,
        unit=str(found.get("unit") or "")[:60],
    )


def _kinds(schema: Any) -> set[str]:
    """JSON's names of the types that a schema allows; an unknown form allows `object`."""
    if not isinstance(schema, Mapping):
        return {"object"}
    if isinstance(schema.get("anyOf"), list):
        return set().union(*map(_kinds, schema["anyOf"]))
    if isinstance(schema.get("type"), str):
        return {schema["type"]}
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    return {_TYPES.get(type(value), "object") for value in values} or {"object"}


def _kind(kinds: set[str], where: str) -> tuple[Kind, bool]:
    if not kinds or kinds - {"integer", "number", "boolean", "string"}:
        raise InputError("a type that no column has", where=where, found=sorted(kinds), allowed="numbers, texts, bool")
    single: dict[str, Kind] = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}
    if len(kinds) == 1:
        return single[kinds.pop()], False
    return ("float", False) if kinds == {"integer", "number"} else ("str", True)


def _column(key: str, taken: set[str]) -> str:
    """A name that both databases take without quotes; SQLite does not tell capitals apart."""
    name = key.lower()
    if name in BASE_COLUMNS:
        raise InputError("every run has a column of this name", where=f"declaration, field {key[:60]}")
    if not _PLAIN.fullmatch(name) or len(name) > MOST_NAME_BYTES or name in taken:
        name = shortened(name, key)
    taken.add(name)
    return name


def table_name(indicator: str, version: str) -> str:
    """The name of the table of one version of an indicator: of the same two, always the same name.

    Examples
    --------
    >>> table_name("PiMatmul", "0123456789ab"), len(table_name("Pi" + 70 * "x", "0123456789ab"))
    ('pi_matmul_0123456789ab', 63)
    """
    slug, tail = indicator.lower().removeprefix("pi"), version.lower()
    name = f"pi_{slug.lstrip('_') or 'x'}_{tail}"
    plain = _PLAIN.fullmatch(name) and indicator.isascii() and re.fullmatch(r"[0-9a-f]{6,20}", version)
    return name if plain and len(name) <= MOST_NAME_BYTES else shortened(name, f"{indicator}\0{version}")


def shortened(name: str, identity: str) -> str:
    """A name of at most 63 bytes that ends in a hash of what it stands for."""
    digest = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[: MOST_NAME_BYTES - 11]
    return f"{slug if slug[:1].isalpha() else 'x'}_{digest}"


def values_of(document: Mapping[str, Any], fields: Iterable[Field]) -> dict[str, Value]:
    """A document's values by column, each of its declared type.

    Raises
    ------
    InputError
        A value is missing or of another type, or a key is not declared. Nothing is converted to make it fit.
    """
    fields = tuple(fields)
    for part in _PARTS.values():
        allowed = {field.key for field in fields if field.part == part}
        found = document.get(part) or {}
        if not isinstance(found, Mapping):
            raise InputError(f"{part} is no object")
        if unknown := [str(key)[:60] for key in found if key not in allowed]:
            raise InputError(f"{part} has what is not declared", found=unknown[:5])
    return {field.column: _value(document, field) for field in fields}


def _value(document: Mapping[str, Any], field: Field) -> Value:
    part = document.get(field.part) or {}
    if field.key not in part and not field.nullable:
        # No default stands in: what is the default here is not what the script used there.
        raise InputError(f"{field.part}.{field.key} is missing")
    value = part.get(field.key)
    if value is None and field.nullable:
        return None
    if field.mixed and isinstance(value, int | float | str | bool):
        return clean_text(value) if isinstance(value, str) else json.dumps(value)
    if field.kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif field.kind == "int" and isinstance(value, int) and not isinstance(value, bool):
        if -(2**63) <= value < 2**63:
            return value
    elif field.kind == "bool" and isinstance(value, bool):
        return value
    elif field.kind == "str" and isinstance(value, str):
        return clean_text(value)
    raise InputError(f"{field.part}.{field.key} is {str(value)[:60]!r}, not of the declared type {field.kind}")


def clean_text(text: str) -> str:
    """A text that both databases can hold: PostgreSQL takes no NUL, neither takes half a surrogate pair."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
