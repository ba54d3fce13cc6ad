"""SQL tables of every session, and one typed table per indicator version, built from its declaration."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

from workbench.core import tables
from workbench.core.errors import InputError
from workbench.indicators.contract.indicator import BASE_COLUMNS, Value
from workbench.indicators.tables import CHECKS, OBSERVATIONS, RUNS

Kind = Literal["int", "float", "bool", "str"]
MAX_FIELDS = 500
MAX_NAME_BYTES = 63
"""PostgreSQL truncates longer names, so names with a common prefix would collide."""

_PARTS = {"parameter": "@parameters", "result": "@result", "check": "@checks"}
_PLAIN = re.compile(r"[a-z][a-z0-9_]*")
_TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
FORMAT_VERSION = 1
METADATA = MetaData()
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_KINDS: dict[str, TypeEngine[Any]] = {"int": BigInteger(), "float": Double(), "bool": Boolean(), "str": TEXT}
# Auto-increment needs BIGSERIAL in PostgreSQL and INTEGER in SQLite.
_ROW_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
ABOUT = Table(
    "workbench_about",
    METADATA,
    Column("key", TEXT, primary_key=True),
    Column("value", TEXT, nullable=False),
)
"""Marks the database and the version of its format."""
INDICATOR = Table(
    "indicator",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("version", TEXT, primary_key=True),
    Column("table_name", TEXT, unique=True),
    Column("declaration", TEXT),
)
"""Version of an indicator; table and declaration are empty if no session has a declaration."""
STACK = Table(
    "stack",
    METADATA,
    Column("stack_key", TEXT, primary_key=True),
    Column("lock_sha256", TEXT, nullable=False),
    Column("packages", BigInteger, nullable=False),
    Column("content_sha256", TEXT, nullable=False),
)
STACK_PACKAGE = Table(
    "stack_package",
    METADATA,
    Column("stack_key", TEXT, ForeignKey("stack.stack_key"), primary_key=True),
    Column("package", TEXT, primary_key=True),
    Column("version", TEXT, nullable=False),
)
HARDWARE = Table(
    "hardware",
    METADATA,
    Column("hardware_key", TEXT, primary_key=True),
    Column("cpu_model", TEXT, nullable=False),
    Column("cores", BigInteger),
    Column("memory_bytes", BigInteger),
    Column("document", TEXT, nullable=False),
)
SESSION = Table(
    "session",
    METADATA,
    Column("session_id", TEXT, primary_key=True),
    Column("created_at", TEXT, nullable=False),
    Column("baseline", TEXT, nullable=False),
    Column("backend", TEXT, nullable=False),
    Column("design", TEXT, nullable=False),
    Column("revision", TEXT),
    Column("seed", BigInteger),
    Column("alpha", Double),
    Column("threads", BigInteger),
    Column("timeout_s", Double),
    Column("memory_bytes", BigInteger),
    Column("hardware_key", TEXT, ForeignKey("hardware.hardware_key"), nullable=False),
    Column("looks", TEXT, nullable=False),
    Column("notes", TEXT, nullable=False),
    Column("rounds_done", BigInteger, nullable=False),
    Column("ended_at", TEXT),
    Column("stop_reason", TEXT),
    Column("plan_sha256", TEXT, nullable=False),
)
ARM = Table(
    "arm",
    METADATA,
    Column("session_id", TEXT, ForeignKey("session.session_id"), primary_key=True),
    Column("arm", TEXT, primary_key=True),
    Column("stack", TEXT, nullable=False),
    Column("stack_key", TEXT, ForeignKey("stack.stack_key"), nullable=False),
    Column("copy_number", BigInteger, nullable=False),
    Column("python", TEXT, nullable=False),
    Column("platform", TEXT),
    Column("notes", TEXT, nullable=False),
)
PLANNED_CASE = Table(
    "planned_case",
    METADATA,
    Column("session_id", TEXT, ForeignKey("session.session_id"), primary_key=True),
    Column("case", TEXT, primary_key=True),
    Column("indicator", TEXT, nullable=False),
    Column("indicator_version", TEXT, nullable=False),
    Column("parameters", TEXT, nullable=False),
    Column("skipped", TEXT, nullable=False),
    ForeignKeyConstraint(["indicator", "indicator_version"], ["indicator.name", "indicator.version"]),
)
INSPECTION = Table(
    "inspection",
    METADATA,
    Column("inspection_id", TEXT, primary_key=True),
    Column("session_id", TEXT, nullable=False),
    Column("arm", TEXT, nullable=False),
    Column("case", TEXT, nullable=False),
    ForeignKeyConstraint(["session_id", "arm"], ["arm.session_id", "arm.arm"]),
    ForeignKeyConstraint(["session_id", "case"], ["planned_case.session_id", "planned_case.case"]),
)
_WHICH_RUN = ("session_id", "inspection_id", "run", "round", "arm", "case")


@dataclass(frozen=True)
class Field:
    """Column of an indicator's table.

    `key`, `part`: Location of the value in a document: `@parameters`, `@result` or `@checks`, and the key.
    `kind`: Type. Fields with numbers or texts (a padding of 1 or "SAME") are texts.
    `nullable`: Whether the value may be null.
    `mixed`: Whether the field has numbers or texts; numbers are stored as in JSON.
    """

    key: str
    part: str
    column: str
    kind: Kind
    nullable: bool
    mixed: bool = False
    unit: str = ""


def parse_declaration_fields(declaration: Mapping[str, Any]) -> tuple[Field, ...]:
    """Parse the columns of a declaration, in its order.

    >>> from workbench.indicators.contract.indicator import Indicator, parameter, result
    >>> class Sort(Indicator):
    ...     n: int = parameter(1000)
    ...     elapsed_ms: float = result(unit="ms", better="lower")
    >>> [(field.part, field.column, field.kind) for field in parse_declaration_fields(Sort.model_json_schema())]
    [('@parameters', 'n', 'int'), ('@result', 'elapsed_ms', 'float')]
    """
    properties = declaration.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise InputError("not an indicator declaration", where="declaration", found="no properties")
    if len(properties) > MAX_FIELDS:
        raise InputError("too many fields", where="declaration", found=len(properties), allowed=f"<= {MAX_FIELDS}")
    taken: set[str] = set()
    return tuple(_parse_field(str(key), schema, taken) for key, schema in properties.items())


def _parse_field(key: str, schema: Any, taken: set[str]) -> Field:
    """A typed column by a field's JSON Schema; `taken` are the names of columns so far."""
    where = f"declaration, field {key[:60]}"
    part = _PARTS.get(str(schema.get("role"))) if isinstance(schema, Mapping) else None
    if part is None:
        raise InputError("field without a role", where=where, allowed=list(_PARTS))
    kinds = _list_schema_types(schema)
    nullable = "null" in kinds
    kind, mixed = _select_kind(kinds - {"null"}, where)
    # Column name that both databases accept without quotes; SQLite ignores case.
    name = key.lower()
    if name in BASE_COLUMNS:
        raise InputError("this column name is reserved", where=f"declaration, field {key[:60]}")
    if not _PLAIN.fullmatch(name) or len(name) > MAX_NAME_BYTES or name in taken:
        name = shorten_name(name, key)
    taken.add(name)
    return Field(
        key=key,
        part=part,
        column=name,
        kind=kind,
        nullable=nullable,
        mixed=mixed,
        unit=str(schema.get("unit") or "")[:60],
    )


def _list_schema_types(schema: Any) -> set[str]:
    """JSON type names that a schema allows; `object` for unknown forms."""
    if not isinstance(schema, Mapping):
        return {"object"}
    if isinstance(schema.get("anyOf"), list):
        return set().union(*map(_list_schema_types, schema["anyOf"]))
    if isinstance(schema.get("type"), str):
        return {schema["type"]}
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    return {_TYPES.get(type(value), "object") for value in values} or {"object"}


def _select_kind(kinds: set[str], where: str) -> tuple[Kind, bool]:
    """Kind of the column for values of some JSON types, and whether they are mixed: then all but texts are as in JSON.

    Integers and numbers together are a float; any other mixture is text. `kinds`: Type names without `null`.
    """
    if not kinds or kinds - {"integer", "number", "boolean", "string"}:
        raise InputError("unsupported field type", where=where, found=sorted(kinds), allowed="numbers, texts, bool")
    single: dict[str, Kind] = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}
    if len(kinds) == 1:
        return single[kinds.pop()], False
    return ("float", False) if kinds == {"integer", "number"} else ("str", True)


def build_table_name(indicator: str, version: str) -> str:
    """Table name of an indicator version, a function of name and version.

    >>> build_table_name("PiMatmul", "0123456789ab"), len(build_table_name("Pi" + 70 * "x", "0123456789ab"))
    ('pi_matmul_0123456789ab', 63)
    """
    slug, tail = indicator.lower().removeprefix("pi"), version.lower()
    name = f"pi_{slug.lstrip('_') or 'x'}_{tail}"
    plain = _PLAIN.fullmatch(name) and indicator.isascii() and re.fullmatch(r"[0-9a-f]{6,20}", version)
    return name if plain and len(name) <= MAX_NAME_BYTES else shorten_name(name, f"{indicator}\0{version}")


def shorten_name(name: str, identity: str) -> str:
    """Name of at most 63 bytes that ends in a hash of the identity."""
    digest = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[: MAX_NAME_BYTES - 11]
    return f"{slug if slug[:1].isalpha() else 'x'}_{digest}"


def extract_values(document: Mapping[str, Any], fields: Iterable[Field]) -> dict[str, Value]:
    """Extract the values of a document by column, each with its declared type."""
    fields = tuple(fields)
    for part in _PARTS.values():
        allowed = {field.key for field in fields if field.part == part}
        entries = document.get(part) or {}
        if not isinstance(entries, Mapping):
            raise InputError(f"{part} is not an object")
        if unknown := [str(key)[:60] for key in entries if key not in allowed]:
            raise InputError(f"{part} has undeclared keys", found=unknown[:5])
    return {field.column: _extract_value(document, field) for field in fields}


def _extract_value(document: Mapping[str, Any], field: Field) -> Value:
    """A field's value of a document, by its declared type; refused if it has another one."""
    part = document.get(field.part) or {}
    if field.key not in part and not field.nullable:
        # Defaults are not used, because they may differ from those of the script.
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
    """Text for both databases: PostgreSQL rejects NUL, and both reject lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def _build_columns(table: tables.Table, *, key: str = "", without: Iterable[str] = ()) -> list[Column[Any]]:
    """Columns of a declared table; lists as JSON."""
    return [
        Column(column.name, _KINDS.get(column.dtype, TEXT), nullable=column.nullable, primary_key=column.name == key)
        for column in table.columns
        if column.name not in without
    ]


RUN = Table(
    "run",
    METADATA,
    Column("run_id", _ROW_NUMBER, primary_key=True, autoincrement=True),
    *_build_columns(RUNS),
    Column("started_unix_s", Double),
    Column("script_sha256", TEXT, nullable=False),
    Column("stdout_sha256", TEXT, nullable=False),
    Column("document_sha256", TEXT, nullable=False),
    ForeignKeyConstraint(["inspection_id"], ["inspection.inspection_id"]),
    UniqueConstraint("inspection_id", "run"),
    Index("run_of_indicator", "indicator", "indicator_version"),
)
"""Columns of the table `runs` of an archive, and the hash of the source document."""


def _build_child_table(name: str, *columns: Column[Any]) -> Table:
    return Table(name, METADATA, Column("run_id", BigInteger, ForeignKey("run.run_id"), primary_key=True), *columns)


OBSERVATION = _build_child_table("observation", *_build_columns(OBSERVATIONS, key="metric", without=_WHICH_RUN))
CHECK_VALUE = _build_child_table("check_value", *_build_columns(CHECKS, key="field", without=_WHICH_RUN))
SAMPLE = _build_child_table(
    "sample",
    Column("field", TEXT, primary_key=True),
    Column("i", BigInteger, primary_key=True, autoincrement=False),
    Column("value", Double, nullable=False),
)


def build_typed_table(name: str, fields: Iterable[Field]) -> Table:
    """Table of an indicator version: a row per successful run, a column per field, an index per parameter."""
    fields = tuple(fields)
    # All columns are nullable: the declaration is checked on insert, and columns added later need it.
    columns = [Column(field.column, _KINDS[field.kind]) for field in fields]
    metadata = MetaData()
    # The parent is in a separate MetaData, so that typed tables of two sessions do not share one.
    Table("run", metadata, Column("run_id", _ROW_NUMBER, primary_key=True))
    # Hashes: PostgreSQL's other indexes refuse texts of more than some 2,700 bytes.
    indexes = [
        Index(shorten_name(f"by_{field.column}", f"{name}.{field.column}"), field.column, postgresql_using="hash")
        for field in fields
        if field.part == _PARTS["parameter"]
    ]
    run_id = Column("run_id", BigInteger, ForeignKey("run.run_id"), primary_key=True)
    return Table(name, metadata, run_id, *columns, *indexes)
