"""A day of traffic: requests a second by hour, or the arrivals of a trace."""

from __future__ import annotations

import csv
import itertools
import math
import random
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import InputError
from workbench.sizing.load.request_trace import TraceReplay, read_request_trace

HOUR_S = 3600.0
MAX_HOURS = 24 * 31
MAX_REQUESTS = 2_000_000
_COLUMNS = ("hour", "rate_per_s")


@dataclass(frozen=True)
class DayTraffic:
    """Mean requests a second by hour, between whose middles the rate goes in straight lines; or recorded arrivals.

    `times_s`: Arrivals of a trace; empty where rates are drawn from.
    """

    rates_per_s: tuple[float, ...]
    times_s: tuple[float, ...] = ()

    @property
    def duration_s(self) -> float:
        """Length of the traffic: its hours, or to the last arrival of a trace."""
        return self.times_s[-1] if self.times_s else HOUR_S * len(self.rates_per_s)

    def rate_at(self, at_s: float) -> float:
        """Mean rate at a moment; around the first and the last half hour it does not change.

        >>> DayTraffic((1.0, 3.0)).rate_at(3600), DayTraffic((1.0, 3.0)).rate_at(0)
        (2.0, 1.0)
        """
        place = at_s / HOUR_S - 0.5
        left = min(max(math.floor(place), 0), len(self.rates_per_s) - 1)
        right = min(left + 1, len(self.rates_per_s) - 1)
        part = min(max(place - left, 0.0), 1.0)
        return self.rates_per_s[left] * (1 - part) + self.rates_per_s[right] * part

    def draw_arrivals(self, seed: int) -> list[float]:
        """Arrivals of a day: a Poisson process with this rate (thinning; Lewis and Shedler, 1979), or the trace's."""
        if self.times_s:
            return list(self.times_s)
        draw = random.Random(f"{seed}/day")  # noqa: S311 - not used for secrets
        peak = max(self.rates_per_s)
        times: list[float] = []
        at_s = 0.0
        while peak:
            at_s += draw.expovariate(peak)
            if at_s >= self.duration_s:
                break
            if draw.random() * peak < self.rate_at(at_s):
                times.append(at_s)
        return times


def read_day_traffic(path: Path) -> DayTraffic:
    """Read a CSV with `hour` and `rate_per_s`, one line an hour from 0 on, or a trace of arrivals.

    Raises
    ------
    InputError
        The hours have holes, a rate is none, or there are too many requests.
    """
    try:
        head = path.read_text(encoding="utf-8-sig", errors="replace")[:4096].splitlines()[:1]
    except OSError as error:
        raise InputError("cannot read the traffic", where=path, found=error.strerror) from None
    if head and [name.strip() for name in head[0].split(",")][:2] == list(_COLUMNS):
        traffic = DayTraffic(_read_hours(path))
    else:
        times_s = read_request_trace(path, TraceReplay()).times_s
        since_s = [time_s - times_s[0] for time_s in times_s]
        hours = max(1, math.ceil((since_s[-1] + 1e-9) / HOUR_S))
        counts = [0] * hours
        for time_s in since_s:
            counts[min(int(time_s // HOUR_S), hours - 1)] += 1
        traffic = DayTraffic(tuple(count / HOUR_S for count in counts), tuple(since_s))
    n_requests = sum(traffic.rates_per_s) * HOUR_S
    if not 1 <= n_requests <= MAX_REQUESTS:
        found, allowed = f"about {n_requests:,.0f} requests", f"1 to {MAX_REQUESTS:,}"
        raise InputError("no traffic, or too much to simulate", where=path, found=found, allowed=allowed)
    return traffic


def _read_hours(path: Path) -> tuple[float, ...]:
    rates: list[float] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(itertools.islice(csv.DictReader(file), MAX_HOURS + 1)):
            where = f"{path}, line {number + 2}"
            try:
                hour, rate = int(row["hour"]), float(row["rate_per_s"])
            except (KeyError, TypeError, ValueError):
                raise InputError("not an hour and a rate", where=where, found=str(row)[:80]) from None
            if hour != number:
                raise InputError("hours are not in order from 0 on", where=where, found=hour, allowed=number)
            if not 0 <= rate < math.inf:
                raise InputError("not a rate", where=where, found=rate, allowed="0 or more requests a second")
            rates.append(rate)
    if not 1 <= len(rates) <= MAX_HOURS:
        raise InputError("no hours, or too many", where=path, found=len(rates), allowed=f"1 to {MAX_HOURS}")
    return tuple(rates)
