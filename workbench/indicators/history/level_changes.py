"""Levels of each series of a history, where they changed or drifted, and what changed since a date."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from workbench.core.tables import Table
from workbench.indicators.analysis.rounded_values import EVENS_OUT, widen_interval
from workbench.indicators.history.history_points import FOLLOWED, History
from workbench.indicators.store.archive import parse_time
from workbench.indicators.store.sql_queries import parse_since
from workbench.indicators.tables import CHANGES, POINTS, SERIES
from workbench.stats import Interval, decide_beyond, log_interval
from workbench.stats.change_points import (
    MIN_SEGMENT,
    DividedSeries,
    Segment,
    divide_series,
    estimate_level,
    find_segments,
)
from workbench.stats.verdicts import FASTER, SLOWER, UNDECIDED

ALPHA = 0.05
_METHOD = "difference of weighted levels, t"
_TEXTS = ("series", "metric", "stack", "kind")
STEP, DRIFT = "step", "drift"


@dataclass(frozen=True)
class HistoryAnalysis:
    """A history with its tables SERIES and CHANGES; `since` is the date that figures are compared with, or null.

    `levels`: Log ratio of the level or line at each point: series, session_id, segment, level.
    """

    history: History
    series: pl.DataFrame
    changes: pl.DataFrame
    levels: pl.DataFrame
    since: str | None = None

    @cached_property
    def followed(self) -> pl.DataFrame:
        """Series of followed stacks."""
        return self.series.filter(pl.col("kind") == FOLLOWED)

    @property
    def tables(self) -> tuple[tuple[Table, pl.DataFrame], ...]:
        """The tables with their declarations, as they are written."""
        return (POINTS, self.history.points), (SERIES, self.series), (CHANGES, self.changes)

    @property
    def regressions(self) -> pl.DataFrame:
        """Followed series that are slower since the date."""
        return self.followed.filter(pl.col("verdict") == SLOWER)

    @property
    def unknown(self) -> pl.DataFrame:
        """Followed series that may be slower since the date by more than their margin: undecided, or not measured."""
        worst = 1 / (1 + pl.col("series").replace_strict(self.history.tolerances, return_dtype=pl.Float64))
        may_be_slower = pl.col("low").is_null() | (pl.col("low") < worst)
        return self.followed.filter((pl.col("verdict") == UNDECIDED) & may_be_slower)

    def list_changes(self, kind: str) -> list[dict[str, Any]]:
        """Changes of followed stacks, of the control or of the machine, whose verdict holds; the newest first."""
        told = self.changes.filter(pl.col("kind") == kind, pl.col("verdict").is_in([FASTER, SLOWER]))
        return told.sort("created_at", descending=True).to_dicts()


@dataclass(frozen=True)
class _Series(DividedSeries):
    """One series of points in order, divided; its values are log ratios (higher is better).

    `rows`: The points as rows of table POINTS.
    """

    rows: list[dict[str, Any]]

    def measure_rounding(self, start: int, end: int) -> float:
        """How far the level of these points may be off for rounding, where they spread by less than that."""
        reaches = [row["rounding"] or 0.0 for row in self.rows[start:end]]
        reach = sum(reaches) / max(len(reaches), 1)
        return reach if np.std(self.values[start:end]) < 2 * EVENS_OUT * reach else 0.0


@dataclass(frozen=True)
class _SinceDate:
    """Ratio of the level since a date to the last one before it, and the number of sessions since the date."""

    interval: Interval
    n_sessions: int


def analyse_history(history: History, *, since: str | None = None, alpha: float = ALPHA) -> HistoryAnalysis:
    """Find the changes of every series, and compare the sessions since a date with the level before it.

    `since`: ISO date or time, UTC without a zone; null: no comparison. Where the level changed since then, its last
    level is compared: a regression that was mended is none.
    `alpha`: Accepted rate of false claims: of each change alone, and of all comparisons since the date together
    (Holm).

    Returns: Series with fewer than 12 points have no changes. A comparison needs four sessions before the date.

    The interval of a change takes its position as known, which the data chose: it is a little too narrow.
    """
    limit = None if since is None else parse_since(since)
    series: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    levels: list[dict[str, Any]] = []
    family: list[Interval | None] = []
    for points in _iterate_series(history.points):
        found = list(_describe_changes(points, alpha))
        changes += found
        levels += _list_levels(points)
        compared = None if limit is None else _compare_since(points, limit, alpha)
        family.append(compared.interval if compared else None)
        series.append(_describe_series(points, alpha, compared) | {"changes": len(found)})
    _decide_family(series, family, history)
    frames = SERIES.frame(series), CHANGES.frame(changes), pl.DataFrame(levels, infer_schema_length=None)
    return HistoryAnalysis(history, *frames, since)


def _list_levels(series: _Series) -> Iterator[dict[str, Any]]:
    """Rows of the levels: for each point that of its segment."""
    for number, segment in enumerate(series.segments):
        first, last = (series.fit_line(segment, place)[0] for place in (segment.start, segment.end - 1))
        fitted = np.linspace(first, last, segment.end - segment.start)
        for row, level in zip(series.rows[segment.start : segment.end], fitted.tolist(), strict=True):
            yield {
                "series": row["series"],
                "session_id": row["session_id"],
                "segment": f"{row['series']}-{number}",
                "level": level,
            }


def _iterate_series(points: pl.DataFrame) -> Iterator[_Series]:
    """The series of table POINTS, with their changes."""
    for _, frame in points.sort("series", "place").group_by("series", maintain_order=True):
        divided = divide_series(frame["log_ratio"].to_numpy(), frame["error"].to_numpy())
        yield _Series(**vars(divided), rows=frame.to_dicts())


def _compare_levels(before: tuple[float, float], after: tuple[float, float], degrees: int, level: float) -> Interval:
    """Ratio of the level `after` to that `before` (log ratios with errors), with an interval at this confidence level.

    Its `n` is such that n - 1 are the degrees of freedom.
    """
    error = math.hypot(before[1], after[1])
    return log_interval(after[0] - before[0], error, degrees, n=degrees + 1, level=level, method=_METHOD)


def _describe_changes(series: _Series, alpha: float) -> Iterator[dict[str, Any]]:
    """Rows of CHANGES: each new level beside the one before, and each drift from its begin to its end."""
    for before, after in itertools.pairwise([None, *series.segments]):
        assert after is not None
        if before is not None:
            edge, degrees = after.start - 0.5, after.end - before.start - 2 - before.is_drift - after.is_drift
            ends = series.fit_line(before, edge), series.fit_line(after, edge)
            reach = sum(series.measure_rounding(level.start, level.end) for level in (before, after))
            step = widen_interval(_compare_levels(*ends, degrees, 1 - alpha), reach)
            row = _build_change(series, STEP, before.end - 1, after.start, step)
            # A drift that begins or ends at the level beside it has no step there.
            if not (before.is_drift or after.is_drift) or row["verdict"] in (FASTER, SLOWER):
                yield row | {"sessions_before": before.end - before.start, "sessions_after": after.end - after.start}
        if after.is_drift:
            n = after.end - after.start
            drift = _compare_levels((0.0, 0.0), series.estimate_drift(after), n - 2, 1 - alpha)
            drift = widen_interval(drift, 2 * series.measure_rounding(after.start, after.end))
            row = _build_change(series, DRIFT, after.end - 1, after.start, drift)
            yield row | {"sessions_before": 0, "sessions_after": n}


def _build_change(series: _Series, shape: str, last_before: int, first: int, compared: Interval) -> dict[str, Any]:
    """Row of CHANGES without its numbers of sessions; `last_before`, `first`: places of its sessions."""
    old, new = series.rows[last_before], series.rows[first]
    is_of_commits = all(row["commit_at"] for row in series.rows)
    (decision,) = decide_beyond([compared], [new["tolerance"]])
    if shape == DRIFT:
        old, new = new, old
    return {
        **{name: new[name] for name in _TEXTS},
        "session_id": series.rows[first]["session_id"],
        "created_at": series.rows[first]["commit_at" if is_of_commits else "created_at"],
        "shape": shape,
        "last_before": series.rows[last_before]["session_id"],
        "ratio": compared.estimate,
        "low": compared.low,
        "high": compared.high,
        "verdict": decision.verdict,
        "packages": format_package_changes(old["packages"], new["packages"]),
        "revisions": f"{old['revision']}..{new['revision']}" if old["revision"] and new["revision"] else None,
    }


def format_package_changes(old: str, new: str) -> str:
    """Format the differences between two lists of packages.

    >>> format_package_changes("numpy==2.2.6 six==1.16", "numpy==2.4.6 six==1.16")
    'numpy 2.2.6 -> 2.4.6'
    """
    before, after = (dict(part.split("==", 1) for part in text.split() if "==" in part) for text in (old, new))
    return ", ".join(
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def _describe_series(series: _Series, alpha: float, compared: _SinceDate | None) -> dict[str, Any]:
    """Row of SERIES, with its last level; `_decide_family` adds the verdict."""
    last, ratio, final = series.rows[-1], compared.interval if compared else None, series.segments[-1]
    mean, error = series.fit_line(final, final.end - 1)
    n_points = final.end - final.start
    degrees = n_points - 1 - final.is_drift
    interval = log_interval(mean, error, degrees, n=n_points, level=1 - alpha, method="") if degrees > 0 else None
    if interval is not None:
        interval = widen_interval(interval, series.measure_rounding(final.start, final.end))
    return {
        **{name: last[name] for name in (*_TEXTS, "cpu_model", "threads")},
        "sessions": len(series.values),
        "first_at": min(row["created_at"] for row in series.rows),
        "last_at": max(row["created_at"] for row in series.rows),
        "level": math.exp(mean),
        "level_low": None if interval is None else interval.low,
        "level_high": None if interval is None else interval.high,
        "spread": series.spread,
        "outliers": int(series.outliers.sum()),
        "last_outlier": math.exp(series.values[-1] - mean) if series.outliers[-1] else None,
        "since_sessions": compared.n_sessions if compared else None,
        "ratio": ratio.estimate if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "verdict": None,
        "reason": ratio.reason if ratio else None,
    }


def _compare_since(series: _Series, limit: float, alpha: float) -> _SinceDate:
    """Compare the level of the sessions since a time (`limit`, seconds since 1970) with the last level before it.

    Sessions since then are outliers only where there are four, else nothing tells an outlier from a change.
    """
    times = [parse_time(row["created_at"]) for row in series.rows]
    earlier = [place for place, time in enumerate(times) if time is not None and time.timestamp() < limit]
    # In the order of commits, one of an older commit that was measured later belongs to those before.
    split = max(earlier, default=-1) + 1
    n_since = len(times) - split
    before = find_segments(series.values[:split], series.errors[:split])[-1] if split else Segment(0, 0)
    if not n_since or before.end - before.start < MIN_SEGMENT:
        few = f"{before.end - before.start} session(s) before the date, {MIN_SEGMENT} needed"
        reason = few if n_since else "no session since the date"
        return _SinceDate(Interval(None, None, None, 1 - alpha, 0, _METHOD, reason=reason), n_since)
    if n_since == 1 and series.outliers[-1]:
        reason = "the only session since the date differs much from earlier ones and may be an outlier: measure again"
        return _SinceDate(Interval(None, None, None, 1 - alpha, 0, _METHOD, reason=reason), n_since)
    final = series.segments[-1]
    now = slice(max(split, final.start), None)
    values = series.cleaned if n_since >= MIN_SEGMENT else series.values
    after = estimate_level(values[now], series.variances[now])
    if final.is_drift and n_since >= MIN_SEGMENT:
        after = series.fit_line(final, final.end - 1)
    degrees = before.end - before.start + len(values[now]) - 2 - before.is_drift
    compared = _compare_levels(series.fit_line(before, split - 1), after, degrees, 1 - alpha)
    reach = series.measure_rounding(before.start, before.end) + series.measure_rounding(now.start, len(times))
    return _SinceDate(widen_interval(compared, reach), n_since)


def _decide_family(series: list[dict[str, Any]], family: list[Interval | None], history: History) -> None:
    """Fill in the verdicts since the date: followed series are corrected for their number, the others each alone.

    `series` are rows of SERIES, `family` their ratios in the same order (null without a date).
    """
    groups: dict[str, list[int]] = {}
    for place, (row, compared) in enumerate(zip(series, family, strict=True)):
        if compared is not None:
            groups.setdefault(FOLLOWED if row["kind"] == FOLLOWED else f"series {place}", []).append(place)
    for places in groups.values():
        intervals = [interval for place in places if (interval := family[place])]
        margins = [history.tolerances[series[place]["series"]] for place in places]
        decisions = decide_beyond(intervals, margins)
        for place, decision in zip(places, decisions, strict=True):
            series[place]["verdict"] = decision.verdict
