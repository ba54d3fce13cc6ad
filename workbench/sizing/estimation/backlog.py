"""Backlog of an open loop: what arrived, was sent and ended over time, and whether the service kept up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.tables import BACKLOG
from workbench.stats import quantiles
from workbench.stats.intervals import t_interval

if TYPE_CHECKING:
    import polars as pl

N_PARTS = 10
N_SAMPLES = 40
"""Moments at which the requests in flight of a step are shown."""
MIN_DEFICIT = 3
MIN_LATENCY_GROWTH = 1.1
MAX_CORRELATION_TIME = 4.0
"""Latencies that are correlated over no more requests than these do not depend on a backlog."""
MIN_FOR_SURPLUS = 200
MAX_STEADY_RANGE = 0.05
MIN_INDEPENDENT = 40
"""Independent latencies that the requests of an even stream are worth in a steady state."""
NORMAL_95 = 1.645
DISPERSION = {"constant": 0.0, "poisson": 1.0}


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
    """Did the service end what was offered? Null with too few requests to say.

    Not sustained by either of two tests. A deficit: fewer ended than were offered, by more than the interval of what
    ended, while latency grew. At exactly its capacity a service shows hardly any deficit, since a backlog then grows
    like the square root of time and often falls back; so the second test asks for evidence that the backlog clears.
    While it is above its median, a service that keeps up ends more than arrives, and the surplus is the number of
    times that the backlog fell through the median. Where that surplus is within the noise of both counts, the load is
    at or above the capacity. It is not asked for where latencies are independent of one another: nothing queues then.
    What it does not show: a service that would fall behind only after a longer time.
    """
    window = _build_window(sent, kept_requests)
    if window is None:
        return None
    width = window.end - window.begin
    ended = window.ended[window.ok]
    edges = np.linspace(window.begin, window.end, N_PARTS + 1)
    parts = np.histogram(ended, edges)[0] / (width / N_PARTS)
    _, half, _ = t_interval(parts, 0.9)
    rate = window.count_within(ended) / width
    levels = np.array([window.waiting_at(moment) for moment in np.linspace(window.begin, window.end, 200)])
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
    reason = _find_deficit(backlog, width, latencies) or _find_missing_surplus(window, latencies, arrivals)
    return replace(backlog, overload=reason)


def _build_window(sent: pl.DataFrame, kept_requests: pl.DataFrame) -> _Window | None:
    if kept_requests.height < 2 * N_PARTS:
        return None
    begin, end = float(str(kept_requests["intended_s"].min())), float(str(kept_requests["intended_s"].max()))
    if not end > begin:
        return None
    due, begun, ended = (sent[name].to_numpy() for name in ("intended_s", "sent_s", "ended_s"))
    return _Window(due, begun, ended, (sent["outcome"] == "ok").to_numpy(), begin, end)


def _find_deficit(backlog: Backlog, width: float, latencies: Floats) -> str | None:
    grown = backlog.last - backlog.first
    if backlog.ended_high_per_s is None or grown < max(MIN_DEFICIT, 0.01 * backlog.offered_per_s * width):
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


def _find_missing_surplus(window: _Window, latencies: Floats, arrivals: str) -> str | None:
    middle = float(np.median(latencies))
    time = quantiles.estimate_correlation_time(latencies[:, None], middle)
    if time <= MAX_CORRELATION_TIME:
        return None
    if arrivals == "constant":
        # Between two arrivals of an even stream a backlog falls each time: only the latencies tell.
        if len(latencies) >= MIN_INDEPENDENT * time or np.ptp(latencies) <= MAX_STEADY_RANGE * middle:
            return None
        return f"latencies still moved together over {time:.0f} of {len(latencies)} requests: no steady state"
    times, levels, spans = _trace_backlog(window)
    order = np.argsort(levels)
    half = np.searchsorted(np.cumsum(spans[order]), spans.sum() / 2)
    median = int(levels[order][min(half, len(order) - 1)])
    above = levels > median
    falls = int((above[:-1] & ~above[1:]).sum())
    arrived = float(np.histogram(window.due, np.append(times, window.end))[0][above].sum()) if above.any() else 0.0
    spread = DISPERSION.get(arrivals, _estimate_dispersion(window))
    if not arrived or falls >= NORMAL_95 * np.sqrt((1 + spread) * arrived):
        return None
    peaks = [int(part.max()) for part in np.array_split(levels, 4) if len(part)]
    if len(latencies) < MIN_FOR_SURPLUS and max(peaks[2:], default=0) <= max(peaks[:2]):
        return None  # few requests cannot show a surplus; at least the peak does not grow
    return (
        f"no sign that the backlog clears: at most {', '.join(map(str, peaks))} requests were waiting in the quarters "
        f"of the step, and it fell to its median {falls} times in {len(latencies)} requests"
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
    """Variance of the arrivals in twenty parts of the window, over their mean."""
    counts = np.histogram(window.due, np.linspace(window.begin, window.end, 21))[0]
    mean = float(counts.mean())
    return float(counts.var(ddof=1)) / mean if mean else 1.0


def sample_backlog(requests: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Table `backlog`: offered, begun, ended and in flight over the time of each step, at forty moments."""
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
