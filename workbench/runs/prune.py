"""Select run folders to delete, and delete them safely."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.locks import acquire_lock, release_lock
from workbench.runs import catalogue, run_folder
from workbench.runs.catalogue import StoredRun

STATES = ("succeeded", "failed", "cancelled", "died")


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
        """For `--json`."""
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

    Parameters
    ----------
    place
        The runs folder.
    keep
        Keep the newest `keep` runs of each area, whatever the other conditions.
    before
        Only runs that began earlier.
    states
        Only runs in these states: succeeded, failed, cancelled, died.
    area
        Only runs of this area.
    unreadable
        Called with the error of each unreadable run.json; such folders are kept.

    Returns
    -------
    list of PruneCandidate
        Newest first. Runs that are still running, that lie behind a link, or that contain other runs are included with
        the reason why they are kept.

    Raises
    ------
    ConfigError
        No condition is given, one is invalid, or `place` is a URL.
    """
    _check_conditions(place, keep, before, states)
    newest: Counter[str] = Counter()
    doomed = []
    for run in catalogue.list_runs(place, unreadable=unreadable):
        newest[run.area] += 1
        if keep is not None and newest[run.area] <= keep:
            continue
        if (area and run.area != area) or (before and run.began >= before) or (states and run.state not in states):
            continue
        folder = Path(run.place)
        doomed.append(PruneCandidate(run, _count_bytes(folder), _find_reason_to_keep(run, folder, Path(place))))
    return doomed


def _check_conditions(place: str | Path, keep: int | None, before: datetime | None, states: Sequence[str]) -> None:
    if "://" in str(place):
        raise ConfigError(
            "runs are pruned on this machine only", where="--out", found=place, do="use the store's own tool"
        )
    if keep is None and before is None and not states:
        raise ConfigError(
            "nothing says which runs may go", where="runs prune", do="give --keep, --older-than or --status"
        )
    if keep is not None and keep < 0:
        raise ConfigError("cannot keep so many", where="--keep", found=keep, allowed="0 or more")
    if unknown := [state for state in states if state not in STATES]:
        raise ConfigError("no such status", where="--status", found=unknown, allowed=STATES)


def _find_reason_to_keep(run: StoredRun, folder: Path, place: Path) -> str | None:
    if run.state == "running":
        return "it goes on"
    if folder.is_symlink() or not folder.resolve().is_relative_to(place.resolve()):
        return "it lies behind a link"
    if folder.resolve() == place.resolve():
        return "it is the runs folder itself"
    if any(
        (Path(inner) / run_folder.RECORD_FILE).is_file() for inner, _, _ in os.walk(folder) if Path(inner) != folder
    ):
        return "it holds other runs"
    return None


def _count_bytes(folder: Path) -> int:
    """Size of the files in the folder; links are not followed."""
    total = 0
    for inner, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                entry = (Path(inner) / name).lstat()
                total += entry.st_size if stat.S_ISREG(entry.st_mode) else 0
    return total


def delete_runs(doomed: Sequence[PruneCandidate]) -> list[PruneCandidate]:
    """Delete the candidates; returns each with the reason why it was kept (null when deleted).

    Each folder is checked again under its lock, since another process may have resumed it. Links are removed, their
    targets are not. Folders are renamed first, so that a half-deleted folder is not taken for a run.
    """
    return [
        one if one.kept_because else PruneCandidate(one.run, one.size_bytes, *_delete_run(one.run)) for one in doomed
    ]


def _delete_run(run: StoredRun) -> tuple[str | None, bool]:
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
