"""Synchronises sessions of the archive into a database; the operation is idempotent.

Runs are identified by inspection and number. A stored run with different content is a conflict and is refused; equal
runs with different numbers are kept separately. Damaged documents are counted, reported and skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from workbench.core.errors import InputError
from workbench.core.files import read_up_to
from workbench.indicators.analysis.observations import build_observations
from workbench.indicators.store import archive, sql_database
from workbench.indicators.store.archive import (
    INSPECTIONS,
    MAX_RESULT_BYTES,
    SESSION_FILE,
    Arm,
    PlannedCase,
    Result,
    Session,
    inspection_id,
    parse_time,
)
from workbench.indicators.store.sql_database import Database
from workbench.indicators.store.sql_schema import (
    ARM,
    CHECK_VALUE,
    HARDWARE,
    INDICATOR,
    INSPECTION,
    MAX_NAME_BYTES,
    OBSERVATION,
    PLANNED_CASE,
    RUN,
    SAMPLE,
    SESSION,
    STACK,
    STACK_PACKAGE,
    Field,
    build_typed_table,
    clean_text,
    extract_values,
    parse_declaration_fields,
)

BATCH = 50
MAX_REASONS = 1000
Progress = Callable[[int, int], None]
Declare = Callable[[str, str], Mapping[str, Any]]
"""Finds the declaration of an indicator version that a session lacks; empty if unknown."""
# Fields that change while a session runs or is extended; all others are fixed by the plan.
_PROGRESS = {"rounds_done", "ended_at", "stop_reason", "notes", "looks"}
_NOT_HASHED = _PROGRESS | {"method", "revision"}
_CASE_NOTES = {"skipped", "declaration", "about"}
_PLAN_COLUMNS = (
    "session_id",
    "created_at",
    "baseline",
    "backend",
    "design",
    "revision",
    "seed",
    "alpha",
    "memory_bytes",
    "threads",
    "timeout_s",
)
MAX_SAMPLES = 10_000


@dataclass
class SyncReport:
    """Result of a sync: `processed` = `synced` + `skipped` + `failed`.

    `skipped` runs were already stored with the same content. `reasons` has a path and a sentence per failure (a damaged
    session counts as one), at most 1,000. `waiting` sessions are planned for a cluster and not stored, since they have
    no runs yet. `typed` counts stored runs whose typed values were added. `notes` are for the user.
    """

    synced: int = 0
    skipped: int = 0
    failed: int = 0
    waiting: int = 0
    typed: int = 0
    reasons: list[tuple[Path, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def processed(self) -> int:
        """Number of processed documents."""
        return self.synced + self.skipped + self.failed

    def count_failure(self, path: Path, reason: object) -> None:
        """Count a failure."""
        self.failed += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append((path, " ".join(str(reason).split())[:500]))


def sync_sessions(folders: Iterable[Path], database: Database, *, progress: Progress | None = None) -> SyncReport:
    """Store all runs of these sessions in the database. Concurrent writers are supported.

    ::

        with open_database("indicators.db") as database:
            report = sync_sessions([Path("data/runs/indicators")], database)
    """
    session_folders = [session for folder in folders for session in list_session_folders(Path(folder))]
    report = SyncReport()
    jobs, cases = [], dict[tuple[str, str], None]()
    for folder in dict.fromkeys(session_folders):
        session = _register_folder(folder, database, report)
        if session is not None:
            cases |= {(case.indicator, case.indicator_version): None for case in session.cases}
            jobs += [(folder, session, *parts) for parts in _iterate_inspections(folder, session, report)]
    total = sum(len(paths) for *_, paths in jobs)
    for folder, session, case, inspection, paths in jobs:
        _Inspection(folder, session, case, inspection, database, report).sync_runs(paths)
        if progress is not None:
            progress(report.processed, total)
    # Add notes about undeclared indicators, and runs stored before the declaration of their indicator.
    for name, version in cases:
        with database.transaction() as connection:
            typed = find_typed_table(connection, name, version)
            here = (RUN.c.indicator == name) & (RUN.c.indicator_version == clean_text(version))
            untyped_runs = list_runs_without_typed_row(connection, typed, here) if typed is not None else {}
        if typed is None:
            report.notes.append(f"{name}@{version}: no declaration, so its runs have no typed values")
        elif untyped_runs:
            report.notes.append(
                f"{name}@{version}: {len(untyped_runs)} run(s) have no typed values; sync their folders again"
            )
    return report


def list_session_folders(folder: Path) -> list[Path]:
    """Session folders at or below a folder, up to three levels deep."""
    if (folder / SESSION_FILE).is_file():
        return [folder.resolve()]
    paths = [path for depth in ("*", "*/*", "*/*/*") for path in folder.glob(f"{depth}/{SESSION_FILE}")]
    if not paths:
        raise InputError(
            "no session in this folder",
            where=folder,
            allowed=f"a folder with {SESSION_FILE}, or a folder of such folders",
            do="make one: workbench indicators run, or workbench indicators import",
        )
    return sorted(path.parent.resolve() for path in paths)


def _register_folder(folder: Path, database: Database, report: SyncReport) -> Session | None:
    """Insert the plan of a folder's session; null, with a note in the report, where that cannot be done."""
    try:
        session = archive.read_session(folder)
        if not session.hardware.key:
            # `collect` adds the machine to the plan; a session registered now would conflict later.
            report.waiting += 1
            report.notes.append(f"{session.session_id}: no runs yet; add them with workbench indicators collect")
            return None
        with database.transaction() as connection:
            register_session(connection, session, _find_declaration)
    except (InputError, DataError, IntegrityError, OverflowError, RecursionError, UnicodeError) as error:
        report.count_failure(folder / SESSION_FILE, getattr(error, "orig", None) or error)
        return None
    return session


def _find_declaration(name: str, version: str) -> Mapping[str, Any]:
    """Declaration of a shipped indicator, if the installed version is the measured one.

    The name is looked up among known indicators; no other code is imported.
    """
    from workbench.indicators.shipped.indicator_classes import list_shipped_indicators

    indicators = {indicator.__name__: indicator for indicator in list_shipped_indicators()}
    if name in indicators and indicators[name].version() == version:
        return indicators[name].model_json_schema()
    return {}


def _iterate_inspections(
    folder: Path, session: Session, report: SyncReport
) -> Iterator[tuple[PlannedCase, str, list[tuple[int, Path]]]]:
    """Case, inspection and numbered results in the order of the plan; unplanned files count as failed."""
    planned = {
        archive.inspection_id(session.session_id, arm.name, case.label): case
        for case in session.cases
        for arm in session.arms
    }
    place = folder / INSPECTIONS
    for path in sorted(place.glob("*")) if place.is_dir() else []:
        if path.name not in planned and path.is_dir():
            report.count_failure(path, "the inspection is not part of the session's plan")
    for inspection, case in planned.items():
        numbered, odd = archive.list_numbered_results(folder, inspection)
        for path in odd:
            report.count_failure(path, "not a run number")
        if numbered:
            yield case, inspection, numbered


@dataclass(frozen=True)
class _Inspection:
    """Sync of one inspection."""

    folder: Path
    session: Session
    case: PlannedCase
    inspection: str
    database: Database
    report: SyncReport

    def sync_runs(self, paths: list[tuple[int, Path]]) -> None:
        """Store its runs in small transactions."""

        with self.database.transaction() as connection:
            hashes = self._read_stored_hashes(connection)
            typed = find_typed_table(connection, self.case.indicator, self.case.indicator_version)
            here = RUN.c.inspection_id == self.inspection
            untyped_runs = list_runs_without_typed_row(connection, typed, here) if typed is not None else {}
            late = {number: run_id for run_id, number in untyped_runs.items()}
        batch: list[FoundDocument] = []
        for number, path in paths:
            document = self._read_document(number, path, hashes.get(number), is_late=number in late)
            if document is None:
                continue
            if typed is not None and number in late:
                self._write_typed_row(document, typed, late[number])
            else:
                batch.append(document)
            if len(batch) == BATCH:
                self._write_batch(batch, typed)
                batch = []
        if batch:
            self._write_batch(batch, typed)

    def _read_stored_hashes(self, connection: Any) -> dict[int, str]:
        """Hashes of the stored documents by run number."""
        wanted = select(RUN.c.run, RUN.c.document_sha256).where(RUN.c.inspection_id == self.inspection)
        return {row[0]: row[1] for row in connection.execute(wanted)}

    def _read_document(
        self, number: int, path: Path, stored_hash: str | None, *, is_late: bool
    ) -> FoundDocument | None:
        """Read a document of which something is not stored yet; null if all is stored, or it is invalid."""
        try:
            try:
                digest = hash_document(json.loads(read_up_to(path, MAX_RESULT_BYTES)))
            except OSError as error:
                raise InputError("cannot read the file", found=error.strerror) from None
            except (ValueError, RecursionError) as error:
                raise InputError("not valid JSON", found=str(error)[:200]) from None
            if stored_hash is not None and (not is_late or stored_hash != digest):
                self._compare_hash(path, stored_hash, digest)
                return None
            result = archive.read_result(path)
            self._check_origin(result)
            return FoundDocument(path, self.inspection, number, result, digest)
        except InputError as error:
            self.report.count_failure(path, error)
        return None

    def _write_typed_row(self, document: FoundDocument, typed: TypedTable, run_id: int) -> None:
        """Add the typed values of a run that was stored before its indicator was declared."""
        try:
            with self.database.transaction() as connection:
                # Another writer may have done so.
                for row in _build_typed_rows(document, typed, {(document.inspection, document.number): run_id}):
                    connection.execute(insert_or_ignore(connection, typed.table), [tidy_row(row)])
        except (InputError, DataError) as error:
            self.report.count_failure(document.path, getattr(error, "orig", None) or error)
            return
        self.report.typed += 1
        self.report.skipped += 1

    def _compare_hash(self, path: Path, stored_hash: str, digest: str) -> None:
        if stored_hash == digest:
            self.report.skipped += 1
        else:
            self.report.count_failure(path, "conflict: this run is stored with different content")

    def _check_origin(self, result: archive.Result) -> None:
        """Check that a run belongs to this inspection."""
        details = result.workbench
        origin = (details.session_id, details.case, details.indicator, details.indicator_version)
        wanted = (self.session.session_id, self.case.label, self.case.indicator, self.case.indicator_version)
        if origin != wanted or archive.inspection_id(details.session_id, details.arm, details.case) != self.inspection:
            raise InputError("run of another session", found=", ".join((*origin, details.arm)))

    def _write_batch(self, batch: list[FoundDocument], typed: TypedTable | None) -> None:
        """Write a batch; on failure, write each run separately so that only the faulty one fails."""
        try:
            with self.database.transaction() as connection:
                new = insert_runs(connection, self.session, batch, typed)
                hashes = self._read_stored_hashes(connection) if len(new) < len(batch) else {}
        except (InputError, DataError, IntegrityError, ValueError, TypeError, OverflowError) as error:
            if len(batch) == 1:
                self.report.count_failure(batch[0].path, getattr(error, "orig", None) or error)
            else:
                for document in batch:
                    self._write_batch([document], typed)
            return
        self.report.synced += len(new)
        for document in batch:
            if (document.inspection, document.number) not in new:  # another writer was faster
                self._compare_hash(document.path, hashes[document.number], document.digest)


def register_session(connection: Connection, session: Session, declare: Declare) -> None:
    """Register a session."""
    for case in session.cases:
        # Check an indicator name; queries use NAME@VERSION, so only valid class names can be found again.
        if not (case.indicator.isascii() and case.indicator.isidentifier() and len(case.indicator) <= MAX_NAME_BYTES):
            allowed = f"letters, digits, _; at most {MAX_NAME_BYTES}"
            raise InputError("not an indicator name", found=case.indicator[:80], allowed=allowed)
    sql_database.lock_tables(connection)
    hardware = session.hardware
    row = {
        "hardware_key": hardware.key,
        "cpu_model": hardware.cpu_model,
        "cores": hardware.cores,
        "memory_bytes": hardware.memory_bytes,
        "document": json.dumps(hardware.model_dump(mode="json"), sort_keys=True),
    }
    insert_new(connection, HARDWARE, [row])
    # The reported memory may change with a reboot. The first value in sort order is kept, independent of the order of
    # inserts, so that a rebuilt database is the same.
    here = HARDWARE.c.hardware_key == clean_text(hardware.key)
    connection.execute(HARDWARE.update().where(here, HARDWARE.c.document > row["document"]).values(tidy_row(row)))
    for arm in session.arms:
        _insert_stack(connection, arm)
    for case in session.cases:
        declared = case.declaration or declare(case.indicator, case.indicator_version)
        sql_database.ensure_indicator(
            connection, clean_text(case.indicator), clean_text(case.indicator_version), declared
        )
    if _insert_session(connection, session):
        # Insert the arms, cases and inspections of a session.
        base_row = {"session_id": session.session_id}
        arms = [
            {
                **base_row,
                "arm": arm.name,
                "stack": arm.stack,
                "stack_key": arm.stack_key,
                "copy_number": arm.copy_number,
                "python": arm.python,
                "platform": arm.notes.get("platform"),
                "notes": arm.notes,
            }
            for arm in session.arms
        ]
        insert_new(connection, ARM, arms)
        names = ("indicator", "indicator_version", "parameters", "skipped")
        cases = [
            {**base_row, "case": case.label, **{name: getattr(case, name) for name in names}} for case in session.cases
        ]
        insert_new(connection, PLANNED_CASE, cases)
        inspections = [
            base_row | {"inspection_id": inspection_id(session.session_id, arm, case), "arm": arm, "case": case}
            for case in (planned_case.label for planned_case in session.cases)
            for arm in (session_arm.name for session_arm in session.arms)
        ]
        insert_new(connection, INSPECTION, inspections)
        _refuse_shared_inspections(
            connection, session.session_id, [inspection["inspection_id"] for inspection in inspections]
        )


def insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows whose keys are not stored yet."""
    if rows:
        connection.execute(insert_or_ignore(connection, table), [tidy_row(row) for row in rows])


def insert_or_ignore(connection: Connection, table: Table) -> Any:
    """INSERT statement that skips rows with existing keys."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def tidy_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Row for both databases: texts without NUL, lists and mappings as JSON."""
    clean_row = {}
    for name, value in row.items():
        if isinstance(value, list | tuple | dict):
            value = json.dumps(value, sort_keys=True)
        clean_row[name] = clean_text(value) if isinstance(value, str) else value
    return clean_row


def hash_document(document: Any) -> str:
    """sha256 of JSON data, independent of whitespace and key order."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _insert_stack(connection: Connection, arm: Arm) -> None:
    """Insert a stack with its packages; refused if another content has its key."""
    content = hash_document([arm.lock_sha256, arm.packages])
    row = {
        "stack_key": arm.stack_key,
        "lock_sha256": arm.lock_sha256,
        "packages": len(arm.packages),
        "content_sha256": content,
    }
    here = STACK.c.stack_key == clean_text(arm.stack_key)
    stored_sha256 = connection.execute(select(STACK.c.content_sha256).where(here)).scalar()
    if stored_sha256 is not None and stored_sha256 != content:
        raise InputError("another stack has this key", where=f"arm {arm.name}", found=arm.stack_key[:64])
    if stored_sha256 is None:
        insert_new(connection, STACK, [row])
        packages = [
            {"stack_key": arm.stack_key, "package": name, "version": version} for name, version in arm.packages.items()
        ]
        insert_new(connection, STACK_PACKAGE, packages)


def _insert_session(connection: Connection, session: Session) -> bool:
    """Insert the session or update its progress; true if it is new."""
    plan = session.model_dump(mode="json", exclude=_NOT_HASHED)
    for case in plan["cases"]:
        for name in _CASE_NOTES:
            case.pop(name)
    plan_sha256 = hash_document(plan)
    here = SESSION.c.session_id == clean_text(session.session_id)
    columns = (SESSION.c.plan_sha256, SESSION.c.rounds_done, SESSION.c.ended_at)
    row = connection.execute(select(*columns).where(here)).first()
    progress = {name: getattr(session, name) for name in sorted(_PROGRESS)}
    if row is None:
        plan_columns = {name: getattr(session, name) for name in _PLAN_COLUMNS}
        keys = {"hardware_key": session.hardware.key, "plan_sha256": plan_sha256}
        connection.execute(insert(SESSION), tidy_row(plan_columns | keys | progress))
        return True
    if row[0] != plan_sha256:
        raise InputError("a session with another plan has this id", found=session.session_id[:80])
    if (session.rounds_done, session.ended_at or "") >= (row[1], row[2] or ""):
        connection.execute(SESSION.update().where(here).values(tidy_row(progress)))
        for planned_case in session.cases:  # arms may be skipped while the session runs
            case = (PLANNED_CASE.c.session_id == clean_text(session.session_id)) & (
                PLANNED_CASE.c.case == clean_text(planned_case.label)
            )
            connection.execute(PLANNED_CASE.update().where(case).values(tidy_row({"skipped": planned_case.skipped})))
    return False


def _refuse_shared_inspections(connection: Connection, session_id: str, inspections: list[str]) -> None:
    """Refuse inspections of another session with the same name; 8-digit hashes can collide, although rarely."""
    other = select(INSPECTION.c.inspection_id).where(INSPECTION.c.session_id != clean_text(session_id))
    for begin in range(0, len(inspections), 500):  # SQLite allows 32,766 values per statement
        some = [clean_text(name) for name in inspections[begin : begin + 500]]
        if taken := connection.execute(other.where(INSPECTION.c.inspection_id.in_(some))).scalars().first():
            raise InputError("another session has an inspection of this name", found=taken[:80])


@dataclass(frozen=True)
class FoundDocument:
    """Document of a run that is not stored yet."""

    path: Path
    inspection: str
    number: int
    result: Result
    digest: str


@dataclass(frozen=True)
class TypedTable:
    """Typed table of an indicator, with the required fields of a document."""

    table: Table
    fields: tuple[Field, ...]


def find_typed_table(connection: Connection, indicator: str, version: str) -> TypedTable | None:
    """Typed table of this version; null without a declaration."""
    here = (INDICATOR.c.name == clean_text(indicator)) & (INDICATOR.c.version == clean_text(version))
    row = connection.execute(select(INDICATOR.c.table_name, INDICATOR.c.declaration).where(here)).first()
    if row is None or row[0] is None:
        return None
    fields = parse_declaration_fields(json.loads(row[1]))
    return TypedTable(build_typed_table(row[0], fields), fields)


def list_runs_without_typed_row(
    connection: Connection, typed: TypedTable, *runs: ColumnElement[bool]
) -> dict[int, int]:
    """Given runs with status ok that have no row in the typed table yet, as row id to run number.

    This happens if runs are stored before their indicator is declared.
    """
    wanted = select(RUN.c.run_id, RUN.c.run).join(typed.table, typed.table.c.run_id == RUN.c.run_id, isouter=True)
    wanted = wanted.where(RUN.c.status == "ok", typed.table.c.run_id.is_(None), *runs)
    return {row[0]: row[1] for row in connection.execute(wanted)}


def insert_runs(
    connection: Connection, session: Session, documents: Sequence[FoundDocument], typed: TypedTable | None
) -> dict[tuple[str, int], int]:
    """Insert runs of one inspection with their child rows, and return the numbers of new runs."""
    import polars as pl

    try:
        observed = build_observations(session, [(entry.inspection, entry.number, entry.result) for entry in documents])
    except (pl.exceptions.PolarsError, OverflowError, TypeError, UnicodeError) as error:
        raise InputError("value does not fit its column", found=str(error)[:120]) from None
    runs = []
    for row, document in zip(observed.runs.to_dicts(), documents, strict=True):
        started = parse_time(document.result.start_datetime)
        facts = {
            "started_unix_s": started.timestamp() if started else None,
            "script_sha256": document.result.script_sha256,
            "stdout_sha256": document.result.workbench.stdout_sha256,
            "document_sha256": document.digest,
        }
        runs.append(tidy_row(row | facts))
    statement = insert_or_ignore(connection, RUN).returning(RUN.c.run_id, RUN.c.inspection_id, RUN.c.run)
    ids = {(row[1], row[2]): row[0] for row in connection.execute(statement, runs)}
    new = [entry for entry in documents if (entry.inspection, entry.number) in ids]
    for table, frame in ((OBSERVATION, observed.values), (CHECK_VALUE, observed.checks)):
        names = {column.name for column in table.columns}
        rows = [
            {"run_id": ids[key]} | {name: value for name, value in row.items() if name in names}
            for row in frame.to_dicts()
            if (key := (row["inspection_id"], row["run"])) in ids
        ]
        _insert_rows(connection, table, rows)
    _insert_rows(
        connection,
        SAMPLE,
        [row for entry in new for row in _build_sample_rows(entry, ids[entry.inspection, entry.number])],
    )
    if typed is not None:
        _insert_rows(connection, typed.table, [row for entry in new for row in _build_typed_rows(entry, typed, ids)])
    return ids


def _insert_rows(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(table.insert(), [tidy_row(row) for row in rows])


def _build_sample_rows(document: FoundDocument, run_id: int) -> list[dict[str, Any]]:
    """Single observations behind the results of a successful run."""
    if document.result.workbench.status != "ok" or not isinstance(document.result.stdout, dict):
        return []
    samples = document.result.stdout.get("@samples") or {}
    if not isinstance(samples, Mapping):
        raise InputError("@samples is not an object")
    rows = [
        {"run_id": run_id, "field": str(field), "i": i, "value": _convert_number(value, field)}
        for field, values in samples.items()
        for i, value in enumerate(values if isinstance(values, list) else [values])
    ]
    if len(rows) > MAX_SAMPLES:
        raise InputError("too many samples", found=len(rows), allowed=f"at most {MAX_SAMPLES:,}")
    return rows


def _convert_number(value: Any, field: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"@samples.{str(field)[:60]} has a value that is not a number")
    return float(value)


def _build_typed_rows(
    document: FoundDocument, typed: TypedTable, ids: Mapping[tuple[str, int], int]
) -> list[dict[str, Any]]:
    """Row of a run in the typed table of its indicator; none unless the run is `ok`."""
    if document.result.workbench.status != "ok":
        return []
    if not isinstance(document.result.stdout, dict):
        raise InputError("the status is ok, but the document is not an object")
    return [
        {"run_id": ids[document.inspection, document.number], **extract_values(document.result.stdout, typed.fields)}
    ]
