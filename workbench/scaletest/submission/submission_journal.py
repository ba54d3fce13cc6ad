"""Journal of a submission: intents are on disk before requests go out; one test per folder."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from workbench.core import locks
from workbench.core.errors import InputError, RunFailedError
from workbench.core.journal import Journal
from workbench.scaletest.observation import run_records

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


def lock_test_folder(folder: Path) -> AbstractContextManager[None]:
    """Within, this is the only test of the folder; see `workbench.core.locks.lock_exclusively`."""
    return locks.lock_exclusively(folder, "another process is running the test of this folder")


@dataclass
class JournalState:
    """State of a submission from its journal; empty without one."""

    run: str | None = None
    origin_ns: int | None = None
    mode: str | None = None
    acked: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    stopped: str | None = None

    @property
    def done(self) -> set[int]:
        """Indices that are not sent again."""
        return self.acked | self.refused


def is_final_status(status: int | None) -> bool:
    """Whether a failure is permanent: a refusal, not overload, a server error or a timeout."""
    return status is not None and 400 <= status < 500 and status not in (401, 408, 409, 429)


def read_journal(folder: str | Path) -> JournalState:
    """Read the journal of a folder."""
    state, path = JournalState(), Path(folder) / run_records.JOURNAL
    for line in run_records.read_lines(path, run_records.JournalLine):
        if isinstance(line, run_records.Begun):
            if state.run not in (None, line.run):
                raise InputError("a journal of two runs", where=path, found=[str(state.run), line.run])
            state.run, state.mode, state.stopped = line.run, line.mode, None
            state.origin_ns = line.origin_ns if state.origin_ns is None else state.origin_ns
        elif isinstance(line, run_records.Intent):
            state.open.add(line.index)
        elif isinstance(line, run_records.Acked):
            state.open.discard(line.index)
            state.acked.add(line.index)
        elif isinstance(line, run_records.Failed):
            state.open.discard(line.index)
            if is_final_status(line.status):
                state.refused.add(line.index)
            else:
                state.open.add(line.index)
        elif isinstance(line, run_records.Stopped):
            state.stopped = line.reason
    return state


class SubmissionJournal:
    """The journal, open for more: `write_durably` for what must be on disk first, `write_soon` for all else."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / run_records.JOURNAL
        busy = "another process is submitting in this folder"
        self._file = Journal(self.path, run_records.encode_line, noun="the journal", busy=busy, mode=0o600)
        self._queue: queue.SimpleQueue[tuple[Iterable[msgspec.Struct], _Waiter | None] | None] = queue.SimpleQueue()
        self._error: RunFailedError | None = None
        self._thread = threading.Thread(target=self._write_batches, name="journal", daemon=True)
        self._thread.start()

    async def write_durably(self, lines: Iterable[msgspec.Struct]) -> None:
        """Write records and wait until they are on disk."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._queue.put((list(lines), (loop, waiter)))
        await waiter

    def write_soon(self, line: msgspec.Struct) -> None:
        """Write a record without fsync: it survives a crash of the process, not of the machine."""
        self._queue.put(([line], None))

    def close(self) -> None:
        """Write what is left, and let others in."""
        self._queue.put(None)
        self._thread.join()
        self._file.close()

    def _write_batches(self) -> None:
        going = True
        while going:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            going = None not in batch
            entries = [entry for entry in batch if entry is not None]
            waiters = [waiter for _, waiter in entries if waiter is not None]
            try:
                if self._error is None:
                    for lines, _ in entries:
                        for line in lines:
                            self._file.put(line)
                    self._file.flush(sync=bool(waiters) or not going)
            except RunFailedError as error:
                self._error = error
            for loop, waiter in waiters:
                loop.call_soon_threadsafe(_resolve_waiter, waiter, self._error)


def _resolve_waiter(waiter: asyncio.Future[None], error: RunFailedError | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
