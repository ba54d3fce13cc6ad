"""What a Spark task does with its logs: measure each, write its result, and say what came of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from workbench.core.errors import WorkbenchError
from workbench.speedup.fleet.fleet_logs import hash_reader_code
from workbench.speedup.fleet.fleet_results import open_results
from workbench.speedup.fleet.measured_logs import build_unreadable_log, measure_log

MAX_BEGUN = 3
WRITERS, MAX_WAITING = 4, 8
KILLED = "the process that read it died, probably for lack of memory"


class PlannedLog(NamedTuple):
    """A log of a task: the name of its result, its path, and how often tasks of this run have begun it."""

    key: str
    path: str
    begun: int


class LogOutcome(NamedTuple):
    """What a task says of a log; `outcome`: measured, unreadable, postponed, or why nothing could be done."""

    key: str
    outcome: str
    seconds: float


def measure_pack(
    pack: Sequence[PlannedLog], place: str, run: str, reader_code: str, *, is_retry: bool
) -> Iterator[LogOutcome]:
    """Measure the logs of a task.

    `reader_code`: Digest of the driver's reader; another one here would give other figures.
    `is_retry`: An earlier attempt of the task has ended early: a log that it had begun is postponed, to be tried alone,
    and its results are kept.
    """
    if hash_reader_code() != reader_code:
        yield LogOutcome("", f"another version: {_describe_version()}", 0.0)
        return
    results = open_results(place, run)
    measured, begun = results.list_state() if is_retry else (set(), {})
    todo = []
    for log in pack:
        attempt = max(log.begun, begun.get(log.key, 0))
        if log.key in measured:
            continue
        if log.begun < attempt < MAX_BEGUN:
            yield LogOutcome(log.key, "postponed", 0.0)
        else:
            todo.append(log._replace(begun=attempt))
    # Requests of a store take as long as a small log does: marks are written one log ahead, results one behind. A log
    # whose neighbour ended the process may have a mark, too; it is tried alone then, as that is.
    with ThreadPoolExecutor(WRITERS) as writers:
        marks: deque[Future[None] | None] = deque()
        written: deque[tuple[PlannedLog, str, float, Future[None]]] = deque()
        for number, log in enumerate(todo):
            for following in todo[number + len(marks) : number + 2]:
                is_tried = following.begun < MAX_BEGUN
                attempt = following.begun + 1
                marks.append(writers.submit(results.mark_begun, following.key, attempt) if is_tried else None)
            mark = marks.popleft()
            started_s = time.monotonic()
            try:
                if mark is not None:
                    mark.result()
            except (OSError, WorkbenchError) as error:
                yield LogOutcome(log.key, f"no result written: {error}", 0.0)
                return
            result = build_unreadable_log(log.path, KILLED) if mark is None else measure_log(log.path)
            outcome = "unreadable" if result.application["status"][0] == "unreadable" else "measured"
            future = writers.submit(results.write, log.key, result, log.begun + 1)
            written.append((log, outcome, time.monotonic() - started_s, future))
            if len(written) > MAX_WAITING:
                yield _wait_for_result(*written.popleft())
        while written:
            yield _wait_for_result(*written.popleft())


def _wait_for_result(log: PlannedLog, outcome: str, seconds: float, future: Future[None]) -> LogOutcome:
    try:
        future.result()
    except (OSError, WorkbenchError) as error:
        return LogOutcome(log.key, f"no result written: {error}", seconds)
    return LogOutcome(log.key, outcome, seconds)


def _describe_version() -> str:
    import platform

    from workbench import __version__

    return f"workbench {__version__} (reader {hash_reader_code()}), Python {platform.python_version()}"
