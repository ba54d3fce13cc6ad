"""Arrival processes of an open loop: when requests are due, whatever the service does.

A new process is a class with `iterate_times`, its name in `ArrivalName` and its place in `PROCESSES`.
"""

from __future__ import annotations

import bisect
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

ArrivalName = Literal["users", "poisson", "gamma", "constant", "trace"]
"""`users` is the closed loop, which has no arrivals of its own."""


@dataclass(frozen=True)
class ArrivalSettings:
    """Settings of an open loop; each process uses those that it knows.

    `seed`: A text: random rejects tuples, and hashes of texts differ between processes.
    `cv`: Coefficient of variation of the gaps.
    `trace_s`: Recorded arrival times in seconds, ascending.
    """

    rate_per_s: float
    seed: str = ""
    cv: float = 1.0
    trace_s: Sequence[float] = ()


class ArrivalProcess(ABC):
    """A process of arrivals.

    `dispersion`: Variance over mean of the number of arrivals in a long time; None where only the data tell it.
    """

    dispersion: float | None = None

    @abstractmethod
    def iterate_times(self, settings: ArrivalSettings) -> Iterator[float]:
        """Arrival times in seconds since the start, without end."""


class Poisson(ArrivalProcess):
    """Independent arrivals: exponential gaps."""

    dispersion = 1.0

    def iterate_times(self, settings: ArrivalSettings) -> Iterator[float]:
        """Arrival times in seconds since the start.

        >>> times = list(itertools.islice(Poisson().iterate_times(ArrivalSettings(10.0, "0")), 10_000))
        >>> times == sorted(times), round(times[-1] / 10_000, 2)
        (True, 0.1)
        """
        draw = random.Random(settings.seed).expovariate  # noqa: S311 - not used for secrets
        return itertools.accumulate(draw(settings.rate_per_s) for _ in itertools.count())


class Gamma(ArrivalProcess):
    """Gamma-distributed gaps; a coefficient of variation above 1 makes bursts."""

    def iterate_times(self, settings: ArrivalSettings) -> Iterator[float]:
        """Arrival times in seconds since the start.

        >>> times = list(itertools.islice(Gamma().iterate_times(ArrivalSettings(10.0, "0", cv=3.0)), 20_000))
        >>> times == sorted(times), round(times[-1] / 20_000, 2)
        (True, 0.1)
        """
        draw = random.Random(settings.seed).gammavariate  # noqa: S311 - not used for secrets
        shape, scale = 1 / settings.cv**2, settings.cv**2 / settings.rate_per_s
        return itertools.accumulate(draw(shape, scale) for _ in itertools.count())


class Constant(ArrivalProcess):
    """Equal gaps."""

    dispersion = 0.0

    def iterate_times(self, settings: ArrivalSettings) -> Iterator[float]:
        """Arrival times in seconds since the start.

        >>> list(itertools.islice(Constant().iterate_times(ArrivalSettings(4.0)), 3))
        [0.0, 0.25, 0.5]
        """
        return (number / settings.rate_per_s for number in itertools.count())


class Trace(ArrivalProcess):
    """Recorded times, scaled to the mean rate of the whole trace and repeated from the start at its end."""

    def iterate_times(self, settings: ArrivalSettings) -> Iterator[float]:
        """Arrival times in seconds since the start.

        >>> list(itertools.islice(Trace().iterate_times(ArrivalSettings(0.5, trace_s=[5.0, 6.0, 9.0])), 4))
        [0.0, 1.0, 4.0, 6.0]
        """
        times_s = settings.trace_s
        # n arrivals span n - 1 gaps; the period adds one, so that the last arrival does not meet the next first one.
        period_s = len(times_s) / settings.rate_per_s
        scale = period_s * (len(times_s) - 1) / len(times_s) / (times_s[-1] - times_s[0])
        for lap in itertools.count():
            for time_s in times_s:
                yield lap * period_s + (time_s - times_s[0]) * scale


@dataclass(frozen=True)
class TracePart:
    """The first arrivals of a trace and their requests, and the requests' mean rate as they were recorded."""

    arrivals: int
    requests: int
    span_s: float
    rate_per_s: float


def measure_trace_part(times_s: Sequence[float], turns: Sequence[int], n_requests: int) -> TracePart:
    """Measure the part from a trace's begin that has so many requests, or all of it where it has fewer.

    `times_s`: Ascending times of arrivals, of which two differ. `turns`: Requests of each arrival, a session; empty
    where each is one request.

    >>> measure_trace_part([0.0, 1.0, 2.0, 2.1, 2.2], [], 3)
    TracePart(arrivals=3, requests=3, span_s=2.0, rate_per_s=1.0)
    """
    counts = list(itertools.accumulate(turns)) if turns else range(1, len(times_s) + 1)
    last = min(bisect.bisect_left(counts, n_requests), len(times_s) - 1)
    while times_s[last] == times_s[0]:
        last += 1
    span_s = times_s[last] - times_s[0]
    # n arrivals span n - 1 gaps.
    return TracePart(last + 1, counts[last], span_s, counts[last] * last / (last + 1) / span_s)


PROCESSES: dict[str, ArrivalProcess] = {
    "poisson": Poisson(),
    "gamma": Gamma(),
    "constant": Constant(),
    "trace": Trace(),
}
