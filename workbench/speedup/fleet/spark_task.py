"""What a Spark task does with its logs: measure each, write its result, and say what came of it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, NamedTuple

from workbench.core.errors import WorkbenchError
from workbench.speedup.fleet.fleet_logs import hash_reader_code
from workbench.speedup.fleet.fleet_results import FleetResults, ResultsState, open_results
from workbench.speedup.fleet.measured_logs import MeasuredLog, build_unreadable_log, measure_log

MAX_BEGUN = 3
"""Marks from which on a log is blamed: 0: in a pack; 1: alone in a task; 2: alone in a job; 3: an unreadable log."""
WRITERS = 4
MAX_WAITING = 8
"""Results of a task that may wait to be written; each is in memory."""
KILLED = "the process that read it died, probably for lack of memory"


class PlannedLog(NamedTuple):
    """A log of a task: the name of its result, its path, and how often tasks of this run have begun it."""

    key: str
    path: str
    begun: int


class LogOutcome(NamedTuple):
    """What a task says of a log (empty key: of all its logs), why, and the seconds that measuring took."""

    key: str
    kind: Literal["measured", "unreadable", "postponed", "no result", "other version", "no package"]
    detail: str = ""
    seconds: float = 0.0


def measure_pack(
    pack: Sequence[PlannedLog], place: str, run: str, reader_code: str, *, is_retry: bool
) -> Iterator[LogOutcome]:
    """Measure the logs of a task.

    `reader_code`: Digest of the driver's reader; another one here would give other figures.
    `is_retry`: An earlier attempt of the task has ended early: its results are kept, and a log that it had begun is
    postponed, to be tried alone.
    """
    if hash_reader_code() != reader_code:
        yield LogOutcome("", "other version", _describe_version())
        return
    results = open_results(place, run)
    state = results.list_state() if is_retry else ResultsState(set(), Counter())
    todo = []
    for log in pack:
        begun = max(log.begun, state.begun[log.key])
        if log.key in state.measured:
            continue
        if log.begun < begun < MAX_BEGUN:
            yield LogOutcome(log.key, "postponed")
        else:
            todo.append(log._replace(begun=begun))
    with ThreadPoolExecutor(WRITERS) as writers:
        requests = _Requests(results, todo, writers)
        for number, log in enumerate(todo):
            try:
                requests.wait_for_mark(number)
            except (OSError, WorkbenchError) as error:
                yield LogOutcome(log.key, "no result", str(error))
                return
            started_s = time.monotonic()
            result = measure_log(log.path) if log.begun < MAX_BEGUN else build_unreadable_log(log.path, KILLED)
            requests.write_result(log, result, time.monotonic() - started_s)
            yield from requests.take_outcomes(MAX_WAITING)
        yield from requests.take_outcomes(0)


class _Requests:
    """Requests to the store of results, which take as long as a small log: sent while logs are measured.

    A mark is there before its log is read, so it is written one log ahead. A log whose neighbour ended the process may
    therefore have a mark as well; both are tried alone then.
    """

    def __init__(self, results: FleetResults, logs: Sequence[PlannedLog], writers: ThreadPoolExecutor) -> None:
        self._results, self._logs, self._writers = results, logs, writers
        self._marks: dict[str, Future[None]] = {}
        self._written: deque[tuple[LogOutcome, Future[None]]] = deque()

    def wait_for_mark(self, number: int) -> None:
        """Mark this log and the next one as begun, and wait for the mark of this one."""
        for log in self._logs[number : number + 2]:
            if log.begun < MAX_BEGUN and log.key not in self._marks:
                self._marks[log.key] = self._writers.submit(self._results.mark_begun, log.key, log.begun + 1)
        if (mark := self._marks.get(self._logs[number].key)) is not None:
            mark.result()

    def write_result(self, log: PlannedLog, result: MeasuredLog, seconds: float) -> None:
        """Begin to write a result."""
        is_unreadable = result.application["status"][0] == "unreadable"
        outcome = LogOutcome(log.key, "unreadable" if is_unreadable else "measured", seconds=seconds)
        future = self._writers.submit(self._results.write_result, log.key, result, log.begun + 1)
        self._written.append((outcome, future))

    def take_outcomes(self, max_waiting: int) -> Iterator[LogOutcome]:
        """Wait for the oldest results until no more than this many are being written."""
        while len(self._written) > max_waiting:
            outcome, future = self._written.popleft()
            try:
                future.result()
            except (OSError, WorkbenchError) as error:
                outcome = outcome._replace(kind="no result", detail=str(error))
            yield outcome


def _describe_version() -> str:
    import platform

    from workbench import __version__

    return f"workbench {__version__} (reader {hash_reader_code()}), Python {platform.python_version()}"
