"""Synchronises sessions of the archive into a database; the operation is idempotent.

Runs are identified by inspection and number. A stored run with different content is a conflict and is refused; equal
runs with different numbers are kept separately. Damaged documents are counted, reported and skipped.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError
from workbench.core.files import read_up_to
from workbench.indicators.store import archive
from workbench.indicators.store.archive import INSPECTIONS, MAX_RESULT_BYTES, SESSION_FILE, PlannedCase, Session

if TYPE_CHECKING:
    from workbench.indicators.store.sql_database import Database
    from workbench.indicators.store.sql_rows import FoundDocument, TypedTable

BATCH = 50
MAX_REASONS = 1000
Progress = Callable[[int, int], None]


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
    _note_untyped_runs(cases, database, report)
    return report


def _note_untyped_runs(cases: Iterable[tuple[str, str]], database: Database, report: SyncReport) -> None:
    """Add notes about undeclared indicators, and runs stored before the declaration of their indicator."""
    from workbench.indicators.store.sql_rows import find_typed_table, list_runs_without_typed_row
    from workbench.indicators.store.sql_schema import RUN, clean_text

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
    from sqlalchemy.exc import DataError, IntegrityError

    from workbench.indicators.store.sql_rows import register_session

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
    from workbench.indicators.shipped.registry import list_shipped_indicators

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
        from workbench.indicators.store.sql_rows import find_typed_table

        with self.database.transaction() as connection:
            hashes = self._read_stored_hashes(connection)
            typed = find_typed_table(connection, self.case.indicator, self.case.indicator_version)
            late = self._build_late_inserts(connection, typed)
        batch: list[FoundDocument] = []
        for number, path in paths:
            document = self._read_document(number, path, hashes.get(number), late.get(number))
            if document is not None:
                batch.append(document)
            if len(batch) == BATCH:
                self._write_batch(batch, typed)
                batch = []
        if batch:
            self._write_batch(batch, typed)

    def _read_stored_hashes(self, connection: Any) -> dict[int, str]:
        """Hashes of the stored documents by run number."""
        from sqlalchemy import select

        from workbench.indicators.store.sql_schema import RUN

        wanted = select(RUN.c.run, RUN.c.document_sha256).where(RUN.c.inspection_id == self.inspection)
        return {row[0]: row[1] for row in connection.execute(wanted)}

    def _build_late_inserts(
        self, connection: Any, typed: TypedTable | None
    ) -> dict[int, Callable[[FoundDocument], None]]:
        """Inserts of missing typed values of stored runs, by run number."""
        from workbench.indicators.store.sql_rows import insert_typed_row, list_runs_without_typed_row
        from workbench.indicators.store.sql_schema import RUN

        if typed is None:
            return {}

        def insert(document: FoundDocument, run_id: int) -> None:
            with self.database.transaction() as transaction:
                insert_typed_row(transaction, document, typed, run_id)
            self.report.typed += 1

        untyped_runs = list_runs_without_typed_row(connection, typed, RUN.c.inspection_id == self.inspection)
        return {number: functools.partial(insert, run_id=run_id) for run_id, number in untyped_runs.items()}

    def _read_document(
        self, number: int, path: Path, stored_hash: str | None, late: Callable[[FoundDocument], None] | None
    ) -> FoundDocument | None:
        """Read a document that is not stored yet; null if it is stored or invalid."""
        from sqlalchemy.exc import DataError

        from workbench.indicators.store.sql_rows import FoundDocument

        try:
            digest = _hash_file(path)
            if stored_hash is not None and (late is None or stored_hash != digest):
                self._compare_hash(path, stored_hash, digest)
                return None
            result = archive.read_result(path)
            self._check_origin(result)
            document = FoundDocument(path, self.inspection, number, result, digest)
            if late is None:
                return document
            late(document)
            self.report.skipped += 1
        except (InputError, DataError) as error:
            self.report.count_failure(path, getattr(error, "orig", None) or error)
        return None

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
        from sqlalchemy.exc import DataError, IntegrityError

        from workbench.indicators.store.sql_rows import insert_runs

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


def _hash_file(path: Path) -> str:
    from workbench.indicators.store.sql_rows import hash_document

    try:
        return hash_document(json.loads(read_up_to(path, MAX_RESULT_BYTES)))
    except OSError as error:
        raise InputError("cannot read the file", found=error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise InputError("not valid JSON", found=str(error)[:200]) from None
