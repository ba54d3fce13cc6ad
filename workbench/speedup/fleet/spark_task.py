"""What a Spark task does with its logs: measure each, write its result, and say what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from workbench.core.errors import WorkbenchError
from workbench.speedup.fleet.fleet_logs import hash_reader_code
from workbench.speedup.fleet.fleet_results import open_results
from workbench.speedup.fleet.measured_logs import build_unreadable_log, measure_log

MAX_BEGUN = 3
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
    for log in pack:
        if log.key in measured:
            continue
        attempt = max(log.begun, begun.get(log.key, 0))
        started = time.monotonic()
        if attempt > log.begun and attempt < MAX_BEGUN:
            yield LogOutcome(log.key, "postponed", 0.0)
            continue
        try:
            if attempt >= MAX_BEGUN:
                results.write(log.key, build_unreadable_log(log.path, KILLED), attempt)
                yield LogOutcome(log.key, "unreadable", 0.0)
                continue
            results.mark_begun(log.key, attempt + 1)
            result = measure_log(log.path)
            results.write(log.key, result, attempt + 1)
        except (OSError, WorkbenchError) as error:
            yield LogOutcome(log.key, f"no result written: {error}", 0.0)
            return
        outcome = "unreadable" if result.application["status"][0] == "unreadable" else "measured"
        yield LogOutcome(log.key, outcome, time.monotonic() - started)


def _describe_version() -> str:
    import platform

    from workbench import __version__

    return f"workbench {__version__} (reader {hash_reader_code()}), Python {platform.python_version()}"
