"""Arrival processes: constant, Poisson, ramp, steps, bursts and recorded traces, drawn from a seed."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import numpy as np

MAX_WORKLOADS = 1_000_000
JOB_COLUMNS = ("time_s", "entry", "lifetime_s")
Rate = Annotated[float, Field(gt=0, le=10_000)]
Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
Count = Annotated[int, Field(ge=1, le=MAX_WORKLOADS)]


@dataclass(frozen=True)
class ArrivalTimes:
    """Arrivals in order, as arrays of one length.

    `entries`, `lifetimes_s`: Name of each one's workload, and seconds that it runs; null where the scenario draws
    them.
    """

    due_s: np.ndarray
    step: np.ndarray
    rate_per_s: np.ndarray
    entries: tuple[str, ...] | None = None
    lifetimes_s: np.ndarray | None = None


class _Arrival(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=False)


class _BoundedArrival(_Arrival):
    """Ends after `n` workloads, or before `duration_s`; with both, whichever comes first."""

    n: Count | None = None
    duration_s: Seconds | None = None

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.n is None and self.duration_s is None:
            raise ValueError("it never ends: give n (workloads), duration_s (seconds), or both")
        return self


class Constant(_BoundedArrival):
    """One workload after the other at equal distance."""

    process: Literal["constant"]
    rate_per_s: Rate

    def draw_times(self, random: np.random.Generator) -> ArrivalTimes:  # noqa: ARG002
        """Arrivals k / rate, for k = 0, 1, …, before the end."""
        return _single_step_times(_constant_times(self.rate_per_s, self.n, self.duration_s), self.rate_per_s)

    @property
    def peak_rate_per_s(self) -> float:
        """Highest rate that is asked for."""
        return self.rate_per_s


class Poisson(_BoundedArrival):
    """Workloads that do not know of each other: gaps are exponential. The load to find a sustainable rate with."""

    process: Literal["poisson"]
    rate_per_s: Rate

    def draw_times(self, random: np.random.Generator) -> ArrivalTimes:
        """Arrivals with exponential gaps of mean 1 / rate, the first one after a gap too."""
        return _single_step_times(_poisson_times(self.rate_per_s, self.n, self.duration_s, random), self.rate_per_s)

    @property
    def peak_rate_per_s(self) -> float:
        """Highest rate that is asked for."""
        return self.rate_per_s


class Ramp(_BoundedArrival):
    """A rate that rises (or falls) evenly from one value to another."""

    process: Literal["ramp"]
    from_per_s: float = Field(ge=0, le=10_000)
    to_per_s: float = Field(ge=0, le=10_000)

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        if self.from_per_s + self.to_per_s <= 0:
            raise ValueError("a ramp from 0 to 0 makes no workloads")
        return self

    def draw_times(self, random: np.random.Generator) -> ArrivalTimes:  # noqa: ARG002
        """Draw the times at which the integral of the rate, a t + (b - a) t^2 / 2T, reaches k = 0, 1, …"""
        import numpy as np

        first, last = self.from_per_s, self.to_per_s
        mean = (first + last) / 2
        span = self.duration_s if self.duration_s is not None else (self.n or 1) / mean
        count = _round_product(mean * span) if self.duration_s is not None else (self.n or 1)
        k = np.arange(min(count, self.n or count), dtype=float)
        slope = (last - first) / span
        # The root's form that neither divides by a slope of 0 nor subtracts nearly equal numbers.
        root = np.sqrt(np.maximum(first * first + 2 * slope * k, 0.0))
        due = np.divide(2 * k, first + root, out=np.zeros_like(k), where=k > 0)
        return _single_step_times(due, None)

    @property
    def peak_rate_per_s(self) -> float:
        """Highest rate that is asked for."""
        return max(self.from_per_s, self.to_per_s)


class Step(_Arrival):
    """A constant rate for a duration."""

    rate_per_s: Rate
    duration_s: Seconds


class Steps(_Arrival):
    """Rates held one after the other, to find the knee: the steps' numbers and rates stand beside each workload."""

    process: Literal["steps"]
    steps: tuple[Step, ...] = Field(min_length=1, max_length=200)
    spread: Literal["even", "poisson"] = "even"
    n: Count | None = None

    def draw_times(self, random: np.random.Generator) -> ArrivalTimes:
        """Each step's arrivals, after those of the steps before."""
        import numpy as np

        parts, begin = [], 0.0
        for number, step in enumerate(self.steps):
            if self.spread == "even":
                due = _constant_times(step.rate_per_s, None, step.duration_s)
            else:
                due = _poisson_times(step.rate_per_s, None, step.duration_s, random)
            parts.append((due + begin, np.full(len(due), number), np.full(len(due), step.rate_per_s)))
            begin += step.duration_s
        due, numbers, rates = (np.concatenate(column)[: self.n] for column in zip(*parts, strict=True))
        return ArrivalTimes(due, numbers, rates)

    @property
    def peak_rate_per_s(self) -> float:
        """Highest rate that is asked for."""
        return max(step.rate_per_s for step in self.steps)


class Burst(_BoundedArrival):
    """`size` workloads together every `every_s` seconds; the last burst may be smaller."""

    process: Literal["burst"]
    size: int = Field(ge=1, le=100_000)
    every_s: Seconds

    def draw_times(self, random: np.random.Generator) -> ArrivalTimes:  # noqa: ARG002
        """Burst b at b times `every_s`; its number is the step."""
        import numpy as np

        bursts = None if self.duration_s is None else _count_below(self.duration_s, 1 / self.every_s)
        count = min(x for x in (self.n, None if bursts is None else bursts * self.size) if x is not None)
        number = np.arange(count) // self.size
        return ArrivalTimes(number * self.every_s, number, np.full(count, np.nan))

    @property
    def peak_rate_per_s(self) -> float:
        """Peak rate: all of a burst within one second, or more where the next comes sooner."""
        return self.size * max(1.0, 1 / self.every_s)


class Trace(_Arrival):
    """Recorded times, replayed as they were.

    `times_s` inline, or `file` with a number a line in seconds; `speed` 2 replays twice as fast; `n` takes the first.
    Recorded jobs also have `entries`, the names of their workloads, and `lifetimes_s`, which `speed` divides, too; in
    a file these are the columns time_s, entry and lifetime_s.
    """

    process: Literal["trace"]
    times_s: tuple[float, ...] | None = Field(None, min_length=1, max_length=MAX_WORKLOADS)
    file: str | None = Field(None, max_length=1000)
    entries: tuple[str, ...] | None = Field(None, max_length=MAX_WORKLOADS)
    lifetimes_s: tuple[Annotated[float, Field(gt=0, le=366 * 86_400)], ...] | None = Field(
        None, max_length=MAX_WORKLOADS
    )
    speed: float = Field(1.0, gt=0, le=10_000)
    n: Count | None = None

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if (self.times_s is None) == (self.file is None):
            raise ValueError("give either times_s (a list of seconds) or file (a number a line)")
        times = self.times_s or ()
        if any(later < earlier for earlier, later in itertools.pairwise(times)):
            raise ValueError("times_s must not fall")
        if times and not 0 <= times[0] <= times[-1] <= 7 * 86_400 * self.speed:
            raise ValueError("times_s must be within 0 and 604800 s (a week), after division by speed")
        for name, column in (("entries", self.entries), ("lifetimes_s", self.lifetimes_s)):
            if column is not None and len(column) != len(times):
                raise ValueError(f"{name} has {len(column)} values for {len(times)} times_s")
        return self

    def draw_times(self, random: np.random.Generator) -> ArrivalTimes:  # noqa: ARG002
        """The recorded times and lifetimes themselves, divided by `speed`."""
        import numpy as np

        assert self.times_s is not None  # a file is read when the scenario is
        due = np.asarray(self.times_s[: self.n], dtype=float)
        times = _single_step_times(due if self.speed == 1 else due / self.speed, None)
        entries = None if self.entries is None else self.entries[: self.n]
        lives = None if self.lifetimes_s is None else np.asarray(self.lifetimes_s[: self.n], dtype=float) / self.speed
        return dataclasses.replace(times, entries=entries, lifetimes_s=lives)

    @property
    def peak_rate_per_s(self) -> float:
        """Most arrivals within any second."""
        import numpy as np

        due = self.draw_times(np.random.default_rng(0)).due_s
        return float((np.searchsorted(due, due + 1.0, side="left") - np.arange(len(due))).max())


Arrival = Annotated[Constant | Poisson | Ramp | Steps | Burst | Trace, Field(discriminator="process")]


def _single_step_times(due: np.ndarray, rate: float | None) -> ArrivalTimes:
    """Arrivals at `due` seconds as one step at one rate; null for no rate."""
    import numpy as np

    return ArrivalTimes(due, np.zeros(len(due), dtype=np.int64), np.full(len(due), np.nan if rate is None else rate))


def _round_product(amount: float) -> int:
    """A count that a product of decimals was meant to be: 0.1 * 30 is 3, not 3.0000000000000004."""
    return int(round(amount) if abs(amount - round(amount)) < 1e-6 else amount)


def _count_below(duration_s: float, rate: float) -> int:
    """How many k >= 0 have k / rate < duration."""
    amount = duration_s * rate
    n = _round_product(amount)
    return max(n if abs(amount - n) < 1e-6 else n + 1, 1)


def _constant_times(rate: float, n: int | None, duration_s: float | None) -> np.ndarray:
    """Arrival times in seconds, one every 1 / `rate`: at most `n`, and only those before `duration_s`."""
    import numpy as np

    limits = [n, None if duration_s is None else _count_below(duration_s, rate)]
    return np.arange(min(_check_count(x) for x in limits if x is not None)) / rate


def _poisson_times(rate: float, n: int | None, duration_s: float | None, random: np.random.Generator) -> np.ndarray:
    """Draw Poisson arrival times in seconds from 0, ascending.

    `rate`: Arrivals per second. `n`: Largest number of arrivals. `duration_s`: End; at least one of these two is set.
    """
    import numpy as np

    if duration_s is None:
        return np.cumsum(random.exponential(1 / rate, n))
    # Enough for the time with a probability that leaves nothing to chance: 10 standard deviations and 10 more.
    mean = rate * duration_s
    drawn = int(_check_count(mean) + 10 * mean**0.5 + 10)
    due = np.cumsum(random.exponential(1 / rate, drawn if n is None else min(n, drawn)))
    return due[due < duration_s]


def _check_count(count: float) -> int:
    if count > MAX_WORKLOADS:
        raise ValueError(f"{count:,.0f} workloads are more than {MAX_WORKLOADS:,}: lower the rate or the duration")
    return int(count)


def parse_trace(text: str) -> dict[str, Any]:
    """Fields of a trace's file: a number a line, in seconds, ascending; or a table of jobs. `#` begins a comment.

    A table of jobs begins with the line time_s,entry,lifetime_s.

    >>> parse_trace("0\\n0.5 # second\\n\\n2")
    {'times_s': (0.0, 0.5, 2.0)}
    >>> parse_trace("time_s,entry,lifetime_s\\n0,small,30")
    {'times_s': (0.0,), 'entries': ('small',), 'lifetimes_s': (30.0,)}
    """
    lines = [(number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line]
    if lines and lines[0][1].replace(" ", "") == ",".join(JOB_COLUMNS):
        rows = []
        for number, line in lines[1:]:
            # Parse a line of a trace: arrival in seconds, name of the entry, lifetime in seconds.
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) != len(JOB_COLUMNS):
                raise ValueError(f"line {number} of the trace has {len(cells)} values for {', '.join(JOB_COLUMNS)}")
            job = _parse_seconds(number, cells[0]), cells[1], _parse_seconds(number, cells[2])
            rows.append(job)
        return dict(zip(("times_s", "entries", "lifetimes_s"), zip(*rows, strict=True), strict=True)) if rows else {}
    return {"times_s": tuple(_parse_seconds(number, line) for number, line in lines)}


def _parse_seconds(number: int, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"line {number} of the trace is no number of seconds: {text[:40]!r}") from None
