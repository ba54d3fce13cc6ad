"""Select runs to delete, in folders or at a URL, and delete them safely."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.locks import acquire_lock, release_lock
from workbench.runs import catalogue, run_folder
from workbench.runs.catalogue import DELETED_RECORD, StoredRun
from workbench.runs.run_folder import parse_record
from workbench.runs.run_stores import format_error, list_files

STATES = ("succeeded", "failed", "cancelled", "died", "unfinished")


@dataclass(frozen=True)
class PruneCandidate:
    """A run folder to delete: its size, and the reason why it is kept (null when it is deleted).

    `failed`: deleting it was tried and failed.
    """

    run: StoredRun
    size_bytes: int
    kept_because: str | None = None
    failed: bool = False

    def build_document(self) -> dict[str, Any]:
        """Build the document for `--json`."""
        document = {
            "run_id": self.run.run_id,
            "area": self.run.area,
            "status": self.run.state,
            "folder": self.run.place,
        }
        return document | {"size_bytes": self.size_bytes, "kept_because": self.kept_because}


def plan_pruning(
    place: str | Path,
    *,
    keep: int | None = None,
    before: datetime | None = None,
    states: Sequence[str] = (),
    area: str | None = None,
    unreadable: Callable[[InputError], None] | None = None,
) -> list[PruneCandidate]:
    """Select the runs that meet all given conditions; nothing is deleted.

    `keep`: Keep the newest `keep` runs of each area, whatever the other conditions.
    `states`: Only runs in these states: succeeded, failed, cancelled, died, and at a URL unfinished.
    `unreadable`: Called with the error of each unreadable run.json; such folders are kept.

    Returns: Newest first. Runs that are still running, that lie behind a link, or that contain other runs are
    included with the reason why they are kept; runs at a URL that an earlier deletion left half deleted come last.
    """
    if keep is None and before is None and not states:
        raise ConfigError(
            "nothing says which runs may go", where="runs prune", do="give --keep, --older-than or --status"
        )
    if keep is not None and keep < 0:
        raise ConfigError("cannot keep so many", where="--keep", found=keep, allowed="0 or more")
    if unknown := [state for state in states if state not in STATES]:
        raise ConfigError("no such status", where="--status", found=unknown, allowed=STATES)
    newest: Counter[str] = Counter()
    doomed: list[PruneCandidate] = []
    half_deleted: list[StoredRun] = []
    for run in catalogue.list_runs(place, unreadable=unreadable, half_deleted=half_deleted.append):
        newest[run.area] += 1
        if keep is not None and newest[run.area] <= keep:
            continue
        if (area and run.area != area) or (before and run.began >= before) or (states and run.state not in states):
            continue
        doomed.append(_build_candidate(run, place, asked_unfinished="unfinished" in states))
    return doomed + [PruneCandidate(run, _count_bytes(run)) for run in half_deleted if not area or run.area == area]


def _build_candidate(run: StoredRun, place: str | Path, *, asked_unfinished: bool) -> PruneCandidate:
    if run.state == "running":
        reason: str | None = "it goes on"
    elif run.state == "unfinished" and not asked_unfinished:
        reason = "it may go on: a URL has no locks; --status unfinished deletes it"
    elif run.store.has_locks:
        reason = _find_reason_to_keep(Path(run.place), Path(place))
    else:
        reason = None
    try:
        members = list_files(run.store, run.root)
    except (WorkbenchError, OSError) as error:
        return PruneCandidate(run, 0, reason or f"its files cannot be listed: {format_error(error)}", failed=True)
    if reason is None and any(name.endswith(f"/{run_folder.RECORD_FILE}") for name, _ in members):
        reason = "it holds other runs"
    return PruneCandidate(run, sum(size_bytes for _, size_bytes in members), reason)


def _find_reason_to_keep(folder: Path, place: Path) -> str | None:
    if folder.is_symlink() or not folder.resolve().is_relative_to(place.resolve()):
        return "it is behind a link"
    if folder.resolve() == place.resolve():
        return "it is the runs folder itself"
    return None


def _count_bytes(run: StoredRun) -> int:
    try:
        return sum(size_bytes for _, size_bytes in list_files(run.store, run.root))
    except (WorkbenchError, OSError):
        return 0


def delete_runs(doomed: Sequence[PruneCandidate]) -> list[PruneCandidate]:
    """Delete the candidates; returns each with the reason why it was kept (null when deleted).

    Each folder is checked again under its lock, since another process may have resumed it. Links are removed, their
    targets are not. Folders are renamed first, so that a half-deleted folder is not taken for a run.
    """
    return [
        candidate
        if candidate.kept_because
        else PruneCandidate(candidate.run, candidate.size_bytes, *_delete_run(candidate.run))
        for candidate in doomed
    ]


def _delete_run(run: StoredRun) -> tuple[str | None, bool]:
    return _delete_folder(run) if run.store.has_locks else _delete_objects(run)


def _delete_objects(run: StoredRun) -> tuple[str | None, bool]:
    """Delete a run at a URL, where nothing can be renamed or locked.

    Its record is kept under another name until all else is gone, so that no half-deleted run reads as one, and the
    next prune goes on with it.
    """
    record, marker = f"{run.root}/{run_folder.RECORD_FILE}", f"{run.root}/{DELETED_RECORD}"
    try:
        names = [name for name, _ in list_files(run.store, run.root)]
        if run_folder.RECORD_FILE in names:
            content = run.store.read_bytes(record, run_folder.MAX_RECORD_BYTES)
            now = parse_record(content, run.place)
            if (now["run_id"], now["status"]) != (run.run_id, run.record["status"]):
                return "it is another run now", False
            run.store.write_bytes(marker, content)
            run.store.delete_file(record)
        for name in names:
            if name not in (run_folder.RECORD_FILE, DELETED_RECORD):
                run.store.delete_file(f"{run.root}/{name}")
        run.store.delete_file(marker)
    except (WorkbenchError, OSError) as error:
        return f"not all of it could be deleted, the next prune goes on: {format_error(error)}", True
    return None, False


def _delete_folder(run: StoredRun) -> tuple[str | None, bool]:
    """Delete a run's folder if it is still that run and unused: the reason if not, and whether it is a failure."""
    folder = Path(run.place)
    try:
        acquire_lock(folder)
    except (WorkbenchError, OSError):
        return "another process took it up", False
    try:
        again = run_folder.load_run(folder)
        if again.run_id != run.run_id or folder.is_symlink():
            return "it is another run now", False
        if again.status != run.record["status"]:
            # The run looked dead while it was ending.
            return f"it has ended meanwhile: {again.status}", False
        # Hidden, and without its record first, a half-deleted folder is not taken for a run.
        gone = folder.with_name(f".deleted-{folder.name}")
        folder.rename(gone)
    except (WorkbenchError, OSError) as error:
        return f"it cannot be deleted: {getattr(error, 'strerror', None) or error}", True
    finally:
        release_lock(folder)
    try:
        (gone / run_folder.RECORD_FILE).unlink()
        shutil.rmtree(gone)
    except OSError as error:
        return f"parts are left in {gone}: {error.strerror}", True
    return None, False
