"""The tables of the database: those that every session fills, and one typed table for each version of an indicator.

Texts sort by their bytes in both databases, so that the same question gives the same order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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

from workbench import tables
from workbench.indicators.storage.declarations import Field
from workbench.indicators.tables import CHECKS, OBSERVATIONS, RUNS

FORMAT_VERSION = 1
METADATA = MetaData()
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_KINDS: dict[str, TypeEngine[Any]] = {"int": BigInteger(), "float": Double(), "bool": Boolean(), "str": TEXT}
# PostgreSQL numbers rows of BIGSERIAL; SQLite only of INTEGER.
_ROW_NUMBER = BigInteger().with_variant(Integer(), "sqlite")

ABOUT = Table(
    "workbench_about",
    METADATA,
    Column("key", TEXT, primary_key=True),
    Column("value", TEXT, nullable=False),
)
"""Says that the database is one of these, and of which format."""

INDICATOR = Table(
    "indicator",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("version", TEXT, primary_key=True),
    Column("table_name", TEXT, unique=True),
    Column("declaration", TEXT),
)
"""One version of an indicator; no table and no declaration where no session told it."""

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


def _columns(table: tables.Table, *, key: str = "", without: Iterable[str] = ()) -> list[Column[Any]]:
    """The columns of a declared table; lists as JSON."""
    return [
        Column(column.name, _KINDS.get(column.dtype, TEXT), nullable=column.nullable, primary_key=column.name == key)
        for column in table.columns
        if column.name not in without
    ]


_WHICH_RUN = ("session_id", "inspection_id", "run", "round", "arm", "case")

RUN = Table(
    "run",
    METADATA,
    Column("run_id", _ROW_NUMBER, primary_key=True, autoincrement=True),
    *_columns(RUNS),
    Column("started_unix_s", Double),
    Column("script_sha256", TEXT, nullable=False),
    Column("stdout_sha256", TEXT, nullable=False),
    Column("document_sha256", TEXT, nullable=False),
    ForeignKeyConstraint(["inspection_id"], ["inspection.inspection_id"]),
    UniqueConstraint("inspection_id", "run"),
    Index("run_of_indicator", "indicator", "indicator_version"),
)
"""All that the table `runs` of an archive has, and the hash of the document that it was read from."""


def _child(name: str, *columns: Column[Any]) -> Table:
    return Table(name, METADATA, Column("run_id", BigInteger, ForeignKey("run.run_id"), primary_key=True), *columns)


OBSERVATION = _child("observation", *_columns(OBSERVATIONS, key="metric", without=_WHICH_RUN))
CHECK_VALUE = _child("check_value", *_columns(CHECKS, key="field", without=_WHICH_RUN))
SAMPLE = _child(
    "sample",
    Column("field", TEXT, primary_key=True),
    Column("i", BigInteger, primary_key=True, autoincrement=False),
    Column("value", Double, nullable=False),
)


def typed_table(name: str, fields: Iterable[Field]) -> Table:
    """The table of one version of an indicator: a row for each run that is ok, a column for each field."""
    # All may be null here: whether a value may is checked by its declaration, and a column that comes later must.
    columns = [Column(field.column, _KINDS[field.kind]) for field in fields]
    own = MetaData()
    # The parent is named in a MetaData of its own: typed tables of two sessions must never meet in one.
    Table("run", own, Column("run_id", _ROW_NUMBER, primary_key=True))
    return Table(name, own, Column("run_id", BigInteger, ForeignKey("run.run_id"), primary_key=True), *columns)
