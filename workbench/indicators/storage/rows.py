"""Runs as rows: what the archive's tables hold, the samples, and the typed row of the indicator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from workbench.errors import InputError
from workbench.indicators.archive import Result, Session
from workbench.indicators.observations import observed_of
from workbench.indicators.storage.declarations import Field, clean_text, fields_of, values_of
from workbench.indicators.storage.registering import ignoring, tidy
from workbench.indicators.storage.schema import CHECK_VALUE, INDICATOR, OBSERVATION, RUN, SAMPLE, typed_table
from workbench.indicators.times import moment

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

MOST_SAMPLES = 10_000


@dataclass(frozen=True)
class Found:
    """A run's document that is not in the database yet."""

    path: Path
    inspection: str
    number: int
    result: Result
    digest: str


@dataclass(frozen=True)
class Typed:
    """The typed table of an indicator, with the fields that a document must have."""

    table: Table
    fields: tuple[Field, ...]


def typed_of(connection: Connection, indicator: str, version: str) -> Typed | None:
    """The typed table of this version; null where no declaration is known."""
    here = (INDICATOR.c.name == clean_text(indicator)) & (INDICATOR.c.version == clean_text(version))
    row = connection.execute(select(INDICATOR.c.table_name, INDICATOR.c.declaration).where(here)).first()
    if row is None or row[0] is None:
        return None
    fields = fields_of(json.loads(row[1]))
    return Typed(typed_table(row[0], fields), fields)


def without_typed(connection: Connection, typed: Typed, *runs: ColumnElement[bool]) -> dict[int, int]:
    """Good runs, of those meant, that have no row in the typed table yet: row number to number of the run.

    There are such when they were brought in before anybody declared their indicator.
    """
    wanted = select(RUN.c.run_id, RUN.c.run).join(typed.table, typed.table.c.run_id == RUN.c.run_id, isouter=True)
    wanted = wanted.where(RUN.c.status == "ok", typed.table.c.run_id.is_(None), *runs)
    return {row[0]: row[1] for row in connection.execute(wanted)}


def insert_typed(connection: Connection, found: Found, typed: Typed, run_id: int) -> None:
    """Insert the typed row of a run that is there, unless another writer did.

    Raises
    ------
    InputError
        The document does not hold what its indicator declares.
    """
    for row in _typed(found, typed, {(found.inspection, found.number): run_id}):
        connection.execute(ignoring(connection, typed.table), [tidy(row)])


def insert_runs(
    connection: Connection, session: Session, found: Sequence[Found], typed: Typed | None
) -> dict[tuple[str, int], int]:
    """Insert runs of one inspection with all that belongs to them; give back the numbers of those that were new.

    Raises
    ------
    InputError
        A document does not hold what its indicator declares.
    """
    import polars as pl

    try:
        observed = observed_of(session, [(one.inspection, one.number, one.result) for one in found])
    except (pl.exceptions.PolarsError, OverflowError, TypeError, UnicodeError) as error:
        raise InputError("a value that no column can hold", found=str(error)[:120]) from None
    runs = []
    for row, one in zip(observed.runs.to_dicts(), found, strict=True):
        runs.append(tidy(row | _document_row(one)))
    ids = _insert_runs(connection, runs)
    new = [one for one in found if (one.inspection, one.number) in ids]
    for table, frame in ((OBSERVATION, observed.values), (CHECK_VALUE, observed.checks)):
        names = {column.name for column in table.columns}
        rows = [
            {"run_id": ids[key]} | {name: value for name, value in row.items() if name in names}
            for row in frame.to_dicts()
            if (key := (row["inspection_id"], row["run"])) in ids
        ]
        _insert(connection, table, rows)
    _insert(connection, SAMPLE, [row for one in new for row in _samples(one, ids[one.inspection, one.number])])
    if typed is not None:
        _insert(connection, typed.table, [row for one in new for row in _typed(one, typed, ids)])
    return ids


def _insert_runs(connection: Connection, rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    statement = ignoring(connection, RUN).returning(RUN.c.run_id, RUN.c.inspection_id, RUN.c.run)
    return {(row[1], row[2]): row[0] for row in connection.execute(statement, rows)}


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(table.insert(), [tidy(row) for row in rows])


def _document_row(one: Found) -> dict[str, Any]:
    started = moment(one.result.start_datetime)
    return {
        "started_unix_s": started.timestamp() if started else None,
        "script_sha256": one.result.script_sha256,
        "stdout_sha256": one.result.workbench.stdout_sha256,
        "document_sha256": one.digest,
    }


def _samples(one: Found, run_id: int) -> list[dict[str, Any]]:
    """Single observations behind the results of a run that is ok."""
    if one.result.workbench.status != "ok" or not isinstance(one.result.stdout, dict):
        return []
    told = one.result.stdout.get("@samples") or {}
    if not isinstance(told, Mapping):
        raise InputError("@samples is no object")
    rows = [
        {"run_id": run_id, "field": str(field), "i": i, "value": _number(value, field)}
        for field, values in told.items()
        for i, value in enumerate(values if isinstance(values, list) else [values])
    ]
    if len(rows) > MOST_SAMPLES:
        raise InputError("too many samples", found=len(rows), allowed=f"at most {MOST_SAMPLES:,}")
    return rows


def _number(value: Any, field: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"@samples.{str(field)[:60]} holds something that is no number")
    return float(value)


def _typed(one: Found, typed: Typed, ids: Mapping[tuple[str, int], int]) -> list[dict[str, Any]]:
    if one.result.workbench.status != "ok":
        return []
    if not isinstance(one.result.stdout, dict):
        raise InputError("the run says ok, but its document is no object")
    return [{"run_id": ids[one.inspection, one.number], **values_of(one.result.stdout, typed.fields)}]
