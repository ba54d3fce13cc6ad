"""Results of logs that Spark tasks measured: one file a log, in a folder or at a URL that driver and executors share.

The file is written whole or not at all, so the folder is at once the result, the progress, and what a run that was
killed goes on from. A mark beside it says that a task has begun a log: a log with marks and without a result has killed
the process that read it, or that process was stopped for another reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from workbench.core.errors import InputError, RunFailedError
from workbench.core.files import cache_folder
from workbench.runs.run_stores import Store, format_error, is_url, open_place
from workbench.speedup.fleet.fleet_logs import LIMIT_BYTES, STALE_S, LogCandidate, hash_reader_code
from workbench.speedup.fleet.measured_logs import (
    MeasuredLog,
    build_unreadable_log,
    pack_measured_log,
    unpack_measured_log,
)

MAX_RESULT_BYTES = 256 << 20
ZIP_HEAD_BYTES = 64 << 10
_RESULT = re.compile(r"([0-9a-f]{64})\.zip")
_MARK = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{8})-\d+\.begun")


class ResultsState(NamedTuple):
    """Keys of the logs that have a result, and of the others the number of marks that tasks of this run left."""

    measured: set[str]
    begun: Counter[str]


@dataclass(frozen=True)
class FleetResults:
    """The results of one version of the reader; `run` (eight hexadecimal digits) tells the marks of one run apart."""

    store: Store
    folder: str
    run: str

    def list_state(self) -> ResultsState:
        """Which logs have a result, and how often tasks of this run have begun the others; empty without a folder."""
        try:
            with self._explain_failures():
                entries = self.store.list_entries(self.folder)
        except FileNotFoundError:
            return ResultsState(set(), Counter())
        names = [PurePosixPath(path).name for path, is_folder, _ in entries if not is_folder]
        measured = {match[1] for name in names if (match := _RESULT.fullmatch(name))}
        marks = (match for name in names if (match := _MARK.fullmatch(name)) and match[2] == self.run)
        return ResultsState(measured, Counter(match[1] for match in marks if match[1] not in measured))

    def mark_begun(self, key: str, attempt: int) -> None:
        """Say that a task begins a log for the `attempt`-th time."""
        self.store.write_bytes(f"{self.folder}/{key}.{self.run}-{attempt}.begun", b"")

    def write_result(self, key: str, measured: MeasuredLog, attempt: int) -> None:
        """Write the result of a log, and remove the mark of the task that made it.

        One that could not be read again, because it is too large, is written as an unreadable log.
        """
        packed = pack_measured_log(measured)
        size_bytes = sum(map(len, packed.values()))
        if size_bytes > MAX_RESULT_BYTES:
            reason = f"its measurements are too large: {size_bytes:,} bytes, at most {MAX_RESULT_BYTES:,}"
            packed = pack_measured_log(build_unreadable_log(measured.application["log"][0], reason))
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name, data in packed.items():
                archive.writestr(name, data)
        self.store.write_bytes(f"{self.folder}/{key}.zip", content.getvalue())
        with contextlib.suppress(OSError):
            self.store.delete_file(f"{self.folder}/{key}.{self.run}-{attempt}.begun")

    def read_result(self, key: str) -> MeasuredLog | None:
        """The result of a log; null where the file is none, so that the log is measured again."""
        try:
            with self._explain_failures():
                content = self.store.read_bytes(f"{self.folder}/{key}.zip", MAX_RESULT_BYTES + ZIP_HEAD_BYTES)
        except (FileNotFoundError, InputError):
            return None
        import polars as pl

        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if sum(member.file_size for member in archive.infolist()) > MAX_RESULT_BYTES:
                    return None
                return unpack_measured_log({name: archive.read(name) for name in archive.namelist()})
        # Of damaged frames polars raises an OSError, an error of its own, or a panic, which is no `Exception`.
        except (zipfile.BadZipFile, KeyError, ValueError, OSError, InputError, pl.exceptions.PolarsError):
            return None
        except pl.exceptions.PanicException:
            return None

    def delete_result(self, key: str) -> None:
        """Delete a result, so that the log is measured again."""
        with self._explain_failures():
            self.store.delete_file(f"{self.folder}/{key}.zip")

    @contextlib.contextmanager
    def _explain_failures(self) -> Iterator[None]:
        """Say what a store that does not answer means for the fleet."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RunFailedError(
                "the results cannot be read",
                where=self.store.display_path(self.folder),
                found=format_error(error),
                do="run the same command again: it continues with the existing results",
            ) from error

    def delete_marks(self) -> None:
        """Delete the marks of this run; those of a run that was killed stay, and mean nothing to others."""
        with contextlib.suppress(OSError):
            for path, is_folder, _ in self.store.list_entries(self.folder):
                if not is_folder and f".{self.run}-" in path:
                    self.store.delete_file(path)


def resolve_place(place: str | Path | None) -> str:
    """The URL or absolute folder of results, as executors are told it: their working folder is another."""
    if place is None:
        return str(default_results_folder())
    return str(place) if is_url(place) else str(Path(place).expanduser().absolute())


def open_results(place: str | Path | None, run: str) -> FleetResults:
    """The results below a folder or URL; by default below `default_results_folder`."""
    store, root = open_place(resolve_place(place))
    return FleetResults(store, f"{root}/{hash_reader_code()}", run)


def prune_default_results(limit_bytes: int = LIMIT_BYTES) -> int:
    """Delete the oldest results in the user's cache beyond a size, and marks of a day ago; returns their number."""
    entries = []
    for path in default_results_folder().rglob("*.*"):
        with contextlib.suppress(OSError):
            info = path.lstat()
            entries.append((info.st_mtime, info.st_size, path))
    kept_bytes, n_deleted = 0, 0
    for changed_s, size_bytes, path in sorted(entries, reverse=True):
        kept_bytes += size_bytes
        is_old_mark = path.suffix == ".begun" and time.time() - changed_s > STALE_S
        if kept_bytes > limit_bytes or is_old_mark:
            with contextlib.suppress(OSError):
                path.unlink()
                n_deleted += 1
    return n_deleted


def default_results_folder() -> Path:
    """Where results go that were given no place: executors of other machines do not see it."""
    return cache_folder() / "fleet"


def build_keys(candidates: Iterable[LogCandidate], run: str, *, reuse: bool) -> dict[str, LogCandidate]:
    """Candidates by the name of their result: a digest of path, size and time stamp or tag.

    A log whose store gives neither time nor tag has a name of this run alone, and so has each with `reuse` false.
    """
    keys = {}
    for candidate in candidates:
        version = candidate.stamp if reuse and candidate.stamp else f"run {run}"
        text = "\0".join([candidate.path, str(candidate.size_bytes), version])
        keys[hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()] = candidate
    return keys
