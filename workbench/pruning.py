"""Run folders that are no longer wanted, deleted with care: none that goes on, none that is not surely a run's."""

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

from workbench import catalogue, runs
from workbench.catalogue import Kept
from workbench.errors import ConfigError, InputError, WorkbenchError

STATES = ("succeeded", "failed", "cancelled", "died")


@dataclass(frozen=True)
class Doomed:
    """A run folder that may go: its bytes, and why it stayed all the same (null when it goes).

    `failed`: it was to be deleted, and the system did not let it.
    """

    run: Kept
    size_bytes: int
    kept_because: str | None = None
    failed: bool = False

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        told = {"run_id": self.run.run_id, "area": self.run.area, "status": self.run.state, "folder": self.run.place}
        return told | {"size_bytes": self.size_bytes, "kept_because": self.kept_because}


def plan(
    place: str | Path,
    *,
    keep: int | None = None,
    before: datetime | None = None,
    states: Sequence[str] = (),
    area: str | None = None,
    unreadable: Callable[[InputError], None] | None = None,
) -> list[Doomed]:
    """Which runs would go? Those that meet every condition that is given; nothing is deleted.

    Parameters
    ----------
    place
        The runs folder.
    keep
        The newest `keep` runs of each area stay, whatever else is asked for.
    before
        Only runs that began earlier.
    states
        Only runs that ended so: succeeded, failed, cancelled, died.
    area
        Only runs of this area.
    unreadable
        Called with the error of each run.json that cannot be read: such a folder stays.

    Returns
    -------
    list of Doomed
        Newest first. Runs that go on, that lie behind a link, or that hold other runs are among them with the reason
        why they stay.

    Raises
    ------
    ConfigError
        No condition is given, one makes no sense, or `place` is a URL.
    """
    _check(place, keep, before, states)
    newest: Counter[str] = Counter()
    doomed = []
    for run in catalogue.listed(place, unreadable=unreadable):
        newest[run.area] += 1
        if keep is not None and newest[run.area] <= keep:
            continue
        if (area and run.area != area) or (before and run.began >= before) or (states and run.state not in states):
            continue
        folder = Path(run.place)
        doomed.append(Doomed(run, _size_bytes(folder), _reason_to_stay(run, folder, Path(place))))
    return doomed


def _check(place: str | Path, keep: int | None, before: datetime | None, states: Sequence[str]) -> None:
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


def _reason_to_stay(run: Kept, folder: Path, place: Path) -> str | None:
    if run.state == "running":
        return "it goes on"
    if folder.is_symlink() or not folder.resolve().is_relative_to(place.resolve()):
        return "it lies behind a link"
    if folder.resolve() == place.resolve():
        return "it is the runs folder itself"
    if any((Path(inner) / runs.RECORD).is_file() for inner, _, _ in os.walk(folder) if Path(inner) != folder):
        return "it holds other runs"
    return None


def _size_bytes(folder: Path) -> int:
    """What deleting the folder frees; links count as themselves."""
    total = 0
    for inner, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = (Path(inner) / name).lstat()
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def delete(doomed: Sequence[Doomed]) -> list[Doomed]:
    """Delete what may go; gives each with the reason why it stayed, null where it is gone.

    Each folder is looked at once more, under its lock: it may have been taken up since. Links are removed, what they
    lead to is not. A folder is renamed first, so that what is half deleted is no run.
    """
    return [one if one.kept_because else Doomed(one.run, one.size_bytes, *_deleted(one.run)) for one in doomed]


def _deleted(run: Kept) -> tuple[str | None, bool]:
    folder = Path(run.place)
    try:
        runs.hold(folder)
    except (WorkbenchError, OSError):
        return "another process took it up", False
    try:
        again = runs.load(folder)
        if again.run_id != run.run_id or folder.is_symlink():
            return "it is another run now", False
        if again.status != run.record["status"]:
            # What looked died had just ended.
            return f"it has ended meanwhile: {again.status}", False
        # A dot in front, and the record away first: no reader takes a half-deleted folder for a run.
        gone = folder.with_name(f".deleted-{folder.name}")
        folder.rename(gone)
    except (WorkbenchError, OSError) as error:
        return f"it cannot be deleted: {getattr(error, 'strerror', None) or error}", True
    finally:
        runs.release(folder)
    try:
        (gone / runs.RECORD).unlink()
        shutil.rmtree(gone)
    except OSError as error:
        return f"parts are left in {gone}: {error.strerror}", True
    return None, False
