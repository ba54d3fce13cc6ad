"""When requests are to be sent: pure, seeded, the same however many processes share them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.errors import InputError

MAX_TRACE_BYTES = 64 << 20


def poisson(rate_per_s: float, seed: str) -> Iterator[float]:
    """Times of arrivals that do not know of each other, in seconds since the start.

    Examples
    --------
    >>> times = list(itertools.islice(poisson(10.0, "0"), 10_000))
    >>> times == sorted(times), round(times[-1] / 10_000, 2)
    (True, 0.1)
    """
    # A text as seed: tuples are refused by random, and hashes of texts differ from process to process.
    draw = random.Random(seed).expovariate  # noqa: S311 - no secret hangs on it
    now = 0.0
    while True:
        now += draw(rate_per_s)
        yield now


def constant(rate_per_s: float) -> Iterator[float]:
    """Times one after the other at equal distance.

    Examples
    --------
    >>> list(itertools.islice(constant(4.0), 3))
    [0.0, 0.25, 0.5]
    """
    return (number / rate_per_s for number in itertools.count())


def trace(times_s: Sequence[float], rate_per_s: float) -> Iterator[float]:
    """Recorded times, stretched so that their mean rate is the one asked for; from the start again at the end.

    Parameters
    ----------
    times_s
        Ascending, two or more, not all equal.
    rate_per_s
        Mean arrivals a second.

    Examples
    --------
    >>> list(itertools.islice(trace([5.0, 6.0, 9.0], 0.5), 4))
    [0.0, 1.0, 4.0, 6.0]
    """
    # n arrivals span n - 1 gaps; the period has a gap more, so that the last does not fall on the next first.
    span = times_s[-1] - times_s[0]
    period = len(times_s) / rate_per_s
    scale = period * (len(times_s) - 1) / len(times_s) / span
    for lap in itertools.count():
        for time_s in times_s:
            yield lap * period + (time_s - times_s[0]) * scale


def even_ramp(number: int, users: int, ramp_s: float, seed: str) -> float:
    """When a user of a closed loop begins: spread evenly, each at random within a part of its own.

    All at once would be a burst that comes back with every round, and that the client itself would be late for.

    Examples
    --------
    >>> [even_ramp(number, 4, 2.0, "0") // 0.5 for number in range(4)]
    [0.0, 1.0, 2.0, 3.0]
    """
    return ramp_s * (number + random.Random(f"{seed}/{number}").random()) / users  # noqa: S311


def read_trace(path: str | Path) -> list[float]:
    """Times of arrivals from a file: a number a line in seconds, ascending; `#` begins a comment.

    Raises
    ------
    InputError
        It cannot be read, is larger than 64 MiB, a line is no number, times fall, or there are not two of them.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise InputError("trace is too large", where=path, allowed=f"up to {MAX_TRACE_BYTES >> 20} MiB")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the trace", where=path, found=str(error)[:200]) from error
    times = [_time(line, path, number) for number, line in enumerate(lines, 1) if line.split("#")[0].strip()]
    for earlier, later in itertools.pairwise(times):
        if later < earlier:
            raise InputError("times of the trace fall", where=path, found=f"{later} after {earlier}")
    if len(times) < 2 or times[0] == times[-1]:
        raise InputError("trace needs two different times", where=path, found=f"{len(times)} lines with a time")
    return times


def _time(line: str, path: Path, number: int) -> float:
    text = line.split("#")[0].strip()
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not 0 <= found < 1e12:
        raise InputError("no time in seconds", where=f"{path}, line {number}", found=text[:60])
    return found
