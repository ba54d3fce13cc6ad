"""Brings the archive's documents into a database; told again, nothing changes.

A run is known by its inspection and number. The same run with another content is a conflict and refused; two runs that
happen to be equal stay two. What is damaged is counted, named and left out: it does not stop the rest.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError
from workbench.files import read_bounded
from workbench.indicators import archive
from workbench.indicators.archive import INSPECTIONS, MOST_RESULT_BYTES, SESSION, PlannedCase, Session

if TYPE_CHECKING:
    from workbench.indicators.storage.database import Database
    from workbench.indicators.storage.rows import Found, Typed

BATCH = 50
MOST_REASONS = 1000
Progress = Callable[[int, int], None]


@dataclass
class SyncReport:
    """What a sync did: `processed` = `synced` + `skipped` + `failed`.

    `skipped` runs were there already, with the same content. `reasons` has a path and a sentence for each that failed
    (a damaged session counts as one), at most 1,000. `waiting` sessions were planned for a cluster and have no runs
    yet: nothing of them is kept. `typed` runs were there, and have got their typed values now. `notes` are to bear in
    mind.
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
        """Documents that were looked at."""
        return self.synced + self.skipped + self.failed

    def fail(self, path: Path, reason: object) -> None:
        """Count one that failed."""
        self.failed += 1
        if len(self.reasons) < MOST_REASONS:
            self.reasons.append((path, " ".join(str(reason).split())[:500]))


def sync(folders: Iterable[Path], database: Database, *, progress: Progress | None = None) -> SyncReport:
    """Bring all runs of these sessions into the database. Several may write to one database at the same time.

    Parameters
    ----------
    folders
        Session folders, or folders with session folders in them.
    database
        Where to, opened to write.
    progress
        Called with (done, of how many).

    Raises
    ------
    InputError
        There is no session in a folder.
    WorkbenchError
        The database failed as a whole; what was written until then is kept.

    Examples
    --------
    ::

        with open_database("indicators.db") as database:
            report = sync([Path("data/runs/indicators")], database)
    """
    found = [session for folder in folders for session in sessions_in(Path(folder))]
    report = SyncReport()
    jobs, cases = [], dict[tuple[str, str], None]()
    for folder in dict.fromkeys(found):
        session = _registered(folder, database, report)
        if session is not None:
            cases |= {(case.indicator, case.indicator_version): None for case in session.cases}
            jobs += [(folder, session, *one) for one in _inspections(folder, session, report)]
    total = sum(len(paths) for *_, paths in jobs)
    for folder, session, case, inspection, paths in jobs:
        _Inspection(folder, session, case, inspection, database, report).sync(paths)
        if progress is not None:
            progress(report.processed, total)
    _note_untyped(cases, database, report)
    return report


def _note_untyped(cases: Iterable[tuple[str, str]], database: Database, report: SyncReport) -> None:
    """Note indicators that nobody declared, and runs that were there before their indicator was declared."""
    from workbench.indicators.storage.declarations import clean_text
    from workbench.indicators.storage.rows import typed_of, without_typed
    from workbench.indicators.storage.schema import RUN

    for name, version in cases:
        with database.transaction() as connection:
            typed = typed_of(connection, name, version)
            here = (RUN.c.indicator == name) & (RUN.c.indicator_version == clean_text(version))
            left = without_typed(connection, typed, here) if typed is not None else {}
        if typed is None:
            report.notes.append(f"{name}@{version}: declared nowhere, so its runs have no typed values")
        elif left:
            report.notes.append(f"{name}@{version}: {len(left)} run(s) have no typed values; sync their folders again")


def sessions_in(folder: Path) -> list[Path]:
    """The session folders at or below a folder, up to three levels down.

    Raises
    ------
    InputError
        There is none.
    """
    if (folder / SESSION).is_file():
        return [folder.resolve()]
    found = [path for depth in ("*", "*/*", "*/*/*") for path in folder.glob(f"{depth}/{SESSION}")]
    if not found:
        raise InputError(
            "no session there",
            where=folder,
            allowed=f"a folder with {SESSION}, or a folder of such folders",
            do="make one: workbench indicators run, or workbench indicators import",
        )
    return sorted(path.parent.resolve() for path in found)


def _registered(folder: Path, database: Database, report: SyncReport) -> Session | None:
    from sqlalchemy.exc import DataError, IntegrityError

    from workbench.indicators.storage.registering import register

    try:
        session = archive.read_session(folder)
        if not session.hardware.key:
            # `collect` fills in the machine, and with it the plan: noted now, it would be another one then.
            report.waiting += 1
            report.notes.append(f"{session.session_id}: no machine yet; workbench indicators collect brings its runs")
            return None
        with database.transaction() as connection:
            register(connection, session, _declaration)
    except (InputError, DataError, IntegrityError, OverflowError, RecursionError, UnicodeError) as error:
        report.fail(folder / SESSION, getattr(error, "orig", None) or error)
        return None
    return session


def _declaration(name: str, version: str) -> Mapping[str, Any]:
    """The declaration of a shipped indicator, when this installation's version is the one that was measured.

    The name may be somebody else's: it is only looked up among those that are here, and nothing is imported for it.
    """
    from workbench.indicators.shipped.registry import shipped

    known = {indicator.__name__: indicator for indicator in shipped()}
    if name in known and known[name].version() == version:
        return known[name].model_json_schema()
    return {}


def _inspections(
    folder: Path, session: Session, report: SyncReport
) -> Iterator[tuple[PlannedCase, str, list[tuple[int, Path]]]]:
    """Case, inspection and numbered results, in the plan's order; whatever was not planned counts as failed."""
    planned = {
        archive.inspection_id(session.session_id, arm.name, case.label): case
        for case in session.cases
        for arm in session.arms
    }
    place = folder / INSPECTIONS
    for path in sorted(place.glob("*")) if place.is_dir() else []:
        if path.name not in planned and path.is_dir():
            report.fail(path, "an inspection that the session did not plan")
    for inspection, case in planned.items():
        numbered, odd = archive.numbered_results(folder, inspection)
        for path in odd:
            report.fail(path, "not the number of a run")
        if numbered:
            yield case, inspection, numbered


@dataclass(frozen=True)
class _Inspection:
    """One inspection on its way into the database."""

    folder: Path
    session: Session
    case: PlannedCase
    inspection: str
    database: Database
    report: SyncReport

    def sync(self, paths: list[tuple[int, Path]]) -> None:
        """Bring its runs in, in small transactions."""
        from workbench.indicators.storage.rows import typed_of

        with self.database.transaction() as connection:
            known = self._known(connection)
            typed = typed_of(connection, self.case.indicator, self.case.indicator_version)
            late = self._late(connection, typed)
        batch: list[Found] = []
        for number, path in paths:
            found = self._read(number, path, known.get(number), late.get(number))
            if found is not None:
                batch.append(found)
            if len(batch) == BATCH:
                self._write(batch, typed)
                batch = []
        if batch:
            self._write(batch, typed)

    def _known(self, connection: Any) -> dict[int, str]:
        """The runs that are there: number to the hash of their document."""
        from sqlalchemy import select

        from workbench.indicators.storage.schema import RUN

        wanted = select(RUN.c.run, RUN.c.document_sha256).where(RUN.c.inspection_id == self.inspection)
        return {row[0]: row[1] for row in connection.execute(wanted)}

    def _late(self, connection: Any, typed: Typed | None) -> dict[int, Callable[[Found], None]]:
        """For the runs that are there without typed values, by number: what inserts these."""
        from workbench.indicators.storage.rows import insert_typed, without_typed
        from workbench.indicators.storage.schema import RUN

        if typed is None:
            return {}

        def insert(found: Found, run_id: int) -> None:
            with self.database.transaction() as own:
                insert_typed(own, found, typed, run_id)
            self.report.typed += 1

        left = without_typed(connection, typed, RUN.c.inspection_id == self.inspection)
        return {number: functools.partial(insert, run_id=run_id) for run_id, number in left.items()}

    def _read(self, number: int, path: Path, known: str | None, late: Callable[[Found], None] | None) -> Found | None:
        """A document that is not in the database yet; null for one that is, or that is none."""
        from sqlalchemy.exc import DataError

        from workbench.indicators.storage.rows import Found

        try:
            digest = _digest(path)
            if known is not None and (late is None or known != digest):
                self._compare(path, known, digest)
                return None
            result = archive.read_result(path)
            self._check(result)
            found = Found(path, self.inspection, number, result, digest)
            if late is None:
                return found
            late(found)
            self.report.skipped += 1
        except (InputError, DataError) as error:
            self.report.fail(path, getattr(error, "orig", None) or error)
        return None

    def _compare(self, path: Path, known: str, digest: str) -> None:
        if known == digest:
            self.report.skipped += 1
        else:
            self.report.fail(path, "conflict: this run is in the database with another content")

    def _check(self, result: archive.Result) -> None:
        """Refuse a run that says it belongs elsewhere."""
        told = result.workbench
        own = (told.session_id, told.case, told.indicator, told.indicator_version)
        wanted = (self.session.session_id, self.case.label, self.case.indicator, self.case.indicator_version)
        if own != wanted or archive.inspection_id(told.session_id, told.arm, told.case) != self.inspection:
            raise InputError("a run of something else", found=", ".join((*own, told.arm)))

    def _write(self, batch: list[Found], typed: Typed | None) -> None:
        """Write a batch; when one of it cannot be written, each alone, so that it alone fails."""
        from sqlalchemy.exc import DataError, IntegrityError

        from workbench.indicators.storage.rows import insert_runs

        try:
            with self.database.transaction() as connection:
                new = insert_runs(connection, self.session, batch, typed)
                known = self._known(connection) if len(new) < len(batch) else {}
        except (InputError, DataError, IntegrityError, ValueError, TypeError, OverflowError) as error:
            if len(batch) == 1:
                self.report.fail(batch[0].path, getattr(error, "orig", None) or error)
            else:
                for one in batch:
                    self._write([one], typed)
            return
        self.report.synced += len(new)
        for one in batch:
            if (one.inspection, one.number) not in new:  # another writer was faster
                self._compare(one.path, known[one.number], one.digest)


def _digest(path: Path) -> str:
    from workbench.indicators.storage.registering import digest

    try:
        return digest(json.loads(read_bounded(path, MOST_RESULT_BYTES)))
    except OSError as error:
        raise InputError("cannot be read", found=error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise InputError("not readable JSON", found=str(error)[:200]) from None
