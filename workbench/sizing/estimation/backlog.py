"""Overload of open loops: whether a service ended the requests that were offered, by their backlog over time.

Decision 0035 has both tests and how often they are right in simulated queues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.load.arrival_processes import PROCESSES
from workbench.sizing.tables import BACKLOG
from workbench.stats import quantiles
from workbench.stats.intervals import t_interval

N_PARTS = 10
"""Parts of the window whose rates give the interval of what ended: two requests each at least. Chosen, not derived."""
LEVEL = 0.9
"""Level of that interval, as of the capacity's."""
N_LEVELS = 200
"""Moments at which the backlog's ends and peak are read; chosen, not derived."""
N_SAMPLES = 40
"""Moments at which table BACKLOG shows the requests of a step: enough for a chart. Chosen, not derived."""
MIN_DEFICIT = 3
"""Requests by which the backlog must have grown to be a deficit, in a short step; chosen, not derived."""
MIN_DEFICIT_FRACTION = 0.01
"""The same as a fraction of the requests offered, which decides in a long step; chosen, not derived."""
MIN_LATENCY_GROWTH = 1.1
"""Ratio of the median latencies of the last third and the first from which on latency grew; chosen, not derived."""
MAX_CORRELATION_TIME = 4.0
"""Latencies that are correlated over no more requests than these do not depend on a backlog.

Independent ones have 1, and its estimate scatters; chosen, not derived.
"""
MIN_FOR_SURPLUS = 200
"""Fewest latencies that can show a surplus; with fewer, a peak that does not grow is enough. Chosen, not derived."""
MAX_STEADY_RANGE = 0.05
"""Range of the latencies of an even stream, as a fraction of their median, within which they count as constant.

Constant times are correlated throughout, and yet a steady state; chosen, not derived.
"""
MIN_INDEPENDENT = 40
"""Independent latencies that the requests of an even stream are worth in a steady state; chosen, not derived."""
NORMAL_95 = 1.645
"""Standard errors that the surplus must reach: the 95th percentile of the normal distribution."""
N_DISPERSION_PARTS = 20
"""Parts of the window in which arrivals are counted for their dispersion; chosen, not derived."""


@dataclass(frozen=True)
class Backlog:
    """Counts over the kept window of a step.

    `ended_per_s`, `ended_low_per_s`, `ended_high_per_s`: Successes that ended, with the 90 % interval over ten parts
    of the window.
    `first`, `last`, `peak`: Requests that were due and had not ended, at both ends of the window and at most.
    `overload`: Why the load was not sustained; null when it was.
    """

    offered_per_s: float
    begun_per_s: float
    ended_per_s: float
    ended_low_per_s: float | None
    ended_high_per_s: float | None
    first: int
    last: int
    peak: int
    overload: str | None = None


@dataclass(frozen=True)
class _Window:
    """Times of a step's requests, and the window from the first kept one to the last."""

    due: Floats
    sent: Floats
    ended: Floats
    ok: Any
    begin: float
    end: float

    def count_within(self, times: Floats) -> int:
        return int(((times > self.begin) & (times <= self.end)).sum())

    def waiting_at(self, time_s: float) -> int:
        return int((self.due <= time_s).sum() - (self.ended <= time_s).sum())


def measure_backlog(sent: pl.DataFrame, kept_requests: pl.DataFrame, arrivals: str) -> Backlog | None:
    """Did the service end the requests that were offered? Null with too few requests to say.

    Not sustained by either of two tests. A deficit: fewer ended than were offered, by more than the interval of what
    ended, while latency grew. At exactly its capacity a service shows hardly any deficit, since a backlog then grows
    like the square root of time and often falls back; so the second test asks for evidence that the backlog clears.
    While it is above its median, a service that keeps up ends more than arrives, and the surplus is the number of
    times that the backlog fell through the median. Where that surplus is within the noise of both counts, the load is
    at or above the capacity. It is not asked for where latencies are independent of one another: nothing queues then.
    What it does not show: a service that would fall behind only after a longer time.

    `sent`: All requests of a step: `intended_s, sent_s, ended_s, outcome`. `kept_requests`: Those that count.
    """
    window = _build_window(sent, kept_requests)
    if window is None:
        return None
    width = window.end - window.begin
    ended = window.ended[window.ok]
    edges = np.linspace(window.begin, window.end, N_PARTS + 1)
    parts = np.histogram(ended, edges)[0] / (width / N_PARTS)
    _, half, _ = t_interval(parts, LEVEL)
    rate = window.count_within(ended) / width
    levels = np.array([window.waiting_at(moment) for moment in np.linspace(window.begin, window.end, N_LEVELS)])
    backlog = Backlog(
        offered_per_s=window.count_within(window.due) / width,
        begun_per_s=window.count_within(window.sent) / width,
        ended_per_s=rate,
        ended_low_per_s=None if half is None else max(0.0, rate - half),
        ended_high_per_s=None if half is None else rate + half,
        first=int(levels[0]),
        last=int(levels[-1]),
        peak=int(levels.max()),
    )
    latencies = (kept_requests["ended_s"] - kept_requests["intended_s"]).to_numpy()
    reason = _find_deficit(backlog, width, latencies) or _explain_unproven_surplus(window, latencies, arrivals)
    return replace(backlog, overload=reason)


def _build_window(sent: pl.DataFrame, kept_requests: pl.DataFrame) -> _Window | None:
    """Times of a step's requests and the span of those that count; null if they are too few.

    `sent`: All requests of the step, with intended_s, sent_s, ended_s, outcome. `kept_requests`: Those that count.
    """
    if kept_requests.height < 2 * N_PARTS:
        return None
    begin, end = float(str(kept_requests["intended_s"].min())), float(str(kept_requests["intended_s"].max()))
    if not end > begin:
        return None
    due, begun, ended = (sent[name].to_numpy() for name in ("intended_s", "sent_s", "ended_s"))
    return _Window(due, begun, ended, (sent["outcome"] == "ok").to_numpy(), begin, end)


def _find_deficit(backlog: Backlog, width: float, latencies: Floats) -> str | None:
    """Sentence if fewer requests ended than were offered, beyond the interval, while latencies grew; null otherwise.

    `width`: Length of the window in seconds. `latencies`: Seconds, in order of sending.
    """
    grown = backlog.last - backlog.first
    n_offered = backlog.offered_per_s * width
    if backlog.ended_high_per_s is None or grown < max(MIN_DEFICIT, MIN_DEFICIT_FRACTION * n_offered):
        return None
    third = len(latencies) // 3
    if backlog.ended_high_per_s >= backlog.offered_per_s:
        return None
    if np.median(latencies[-third:]) < MIN_LATENCY_GROWTH * np.median(latencies[:third]):
        return None
    low = backlog.ended_low_per_s or 0.0
    return (
        f"{backlog.ended_per_s:.3g} requests/s [{low:.3g}, {backlog.ended_high_per_s:.3g}] ended of "
        f"{backlog.offered_per_s:.3g} offered; {backlog.first} were waiting at first, {backlog.last} at the end"
    )


def _explain_unproven_surplus(window: _Window, latencies: Floats, arrivals: str) -> str | None:
    """Reason why the step does not show that the service has capacity to spare; null where it does, or need not.

    `latencies` in seconds, in the order of sending. Latencies that are independent of one another need no surplus.
    """
    middle_s = float(np.median(latencies))
    correlated_requests = quantiles.estimate_correlation_time(latencies[:, None], middle_s)
    if correlated_requests <= MAX_CORRELATION_TIME:
        return None
    process = PROCESSES.get(arrivals)
    dispersion = None if process is None else process.dispersion
    if dispersion is None:
        dispersion = _estimate_dispersion(window)
    elif dispersion == 0:
        return _explain_unsteady_latencies(latencies, middle_s, correlated_requests)
    times, levels, spans = _trace_backlog(window)
    order = np.argsort(levels)
    # The median over time: the level below which the backlog was for half of the window.
    half = np.searchsorted(np.cumsum(spans[order]), spans.sum() / 2)
    median_level = int(levels[order][min(half, len(order) - 1)])
    above = levels > median_level
    falls = int((above[:-1] & ~above[1:]).sum())
    arrived = float(np.histogram(window.due, np.append(times, window.end))[0][above].sum()) if above.any() else 0.0
    if not arrived or falls >= NORMAL_95 * np.sqrt((1 + dispersion) * arrived):
        return None
    peaks = [int(part.max()) for part in np.array_split(levels, 4) if len(part)]
    if len(latencies) < MIN_FOR_SURPLUS and max(peaks[2:], default=0) <= max(peaks[:2]):
        return None  # few requests cannot show a surplus; at least the peak does not grow
    return (
        f"no sign that the backlog clears: at most {', '.join(map(str, peaks))} requests were waiting in the quarters "
        f"of the step, and it fell to its median {falls} times in {len(latencies)} requests"
    )


def _explain_unsteady_latencies(latencies: Floats, middle_s: float, correlated_requests: float) -> str | None:
    """Reason why latencies of evenly spaced arrivals reached no steady state; null if they did, or hardly vary.

    `latencies`: Seconds, whose median is `middle_s`. `correlated_requests`: Requests over which they move together.
    A backlog falls between any two such arrivals, so that only the latencies tell.
    """
    if len(latencies) >= MIN_INDEPENDENT * correlated_requests or np.ptp(latencies) <= MAX_STEADY_RANGE * middle_s:
        return None
    return (
        f"latencies still moved together over {correlated_requests:.0f} of {len(latencies)} requests: no steady state"
    )


def _trace_backlog(window: _Window) -> tuple[Floats, Floats, Floats]:
    """Moments at which the backlog changes, the backlog after each, and how long that lasted."""
    due = window.due[(window.due > window.begin) & (window.due <= window.end)]
    ended = window.ended[(window.ended > window.begin) & (window.ended <= window.end)]
    times = np.concatenate([[window.begin], due, ended])
    changes = np.concatenate([[window.waiting_at(window.begin)], np.ones(len(due)), -np.ones(len(ended))])
    order = np.argsort(times, kind="stable")
    times = times[order]
    return times, np.cumsum(changes[order]), np.diff(np.append(times, window.end))


def _estimate_dispersion(window: _Window) -> float:
    """Variance of the arrivals in equal parts of the window, over their mean."""
    counts = np.histogram(window.due, np.linspace(window.begin, window.end, N_DISPERSION_PARTS + 1))[0]
    mean = float(counts.mean())
    return float(counts.var(ddof=1)) / mean if mean else 1.0


def sample_backlog(requests: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Table `backlog`: offered, begun, ended and in flight over the time of each step, at forty moments.

    `requests`: `step, intended_s, sent_s, ended_s`. `steps`: `step`.

    >>> import polars as pl
    >>> requests = pl.DataFrame({"step": [0, 0], "intended_s": [0.0, 1.0], "sent_s": [0.0, 1.0], "ended_s": [2.0, 4.0]})
    >>> sample_backlog(requests, pl.DataFrame({"step": [0]})).row(20)
    (0, 2.051282051282051, 2, 2, 1, 1, 1)
    """
    rows = []
    for step in steps.iter_rows(named=True):
        sent = requests.filter(requests["step"] == step["step"])
        if not sent.height:
            continue
        due, begun, ended = (np.sort(sent[name].to_numpy()) for name in ("intended_s", "sent_s", "ended_s"))
        for moment in np.linspace(0.0, float(ended[-1]), N_SAMPLES):
            counts = [int(np.searchsorted(times, moment, side="right")) for times in (due, begun, ended)]
            rows.append([step["step"], float(moment), *counts, counts[1] - counts[2], counts[0] - counts[2]])
    names = [column.name for column in BACKLOG.columns]
    return BACKLOG.frame([dict(zip(names, row, strict=True)) for row in rows])
