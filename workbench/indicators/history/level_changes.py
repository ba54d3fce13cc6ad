"""Levels of each series of a history, where they changed, and what changed since a date."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workbench.indicators.history.change_points import (
    MIN_SEGMENT,
    Floats,
    estimate_spread,
    estimate_variances,
    find_change_points,
    remove_outliers,
)
from workbench.indicators.history.history_points import FOLLOWED, History
from workbench.indicators.store.archive import parse_time
from workbench.indicators.store.sql_queries import parse_since
from workbench.indicators.tables import CHANGES, POINTS, SERIES
from workbench.stats import Interval, decide_beyond, log_interval
from workbench.stats.verdicts import SLOWER, UNDECIDED

if TYPE_CHECKING:
    from workbench.core.tables import Table

ALPHA = 0.05
_METHOD = "difference of weighted levels, t"
_TEXTS = ("series", "metric", "stack", "kind")


@dataclass(frozen=True)
class HistoryAnalysis:
    """A history with its tables SERIES and CHANGES; `since` is the date that figures are compared with, or null."""

    history: History
    series: pl.DataFrame
    changes: pl.DataFrame
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
        """Changes of followed stacks, of the control or of the machine; the newest first."""
        return self.changes.filter(pl.col("kind") == kind).sort("created_at", descending=True).to_dicts()


@dataclass(frozen=True)
class _Series:
    """One series of points in the order of time, with what the search for changes found.

    `rows`: The points as rows of table POINTS. `values`, `errors`: Their log ratios (higher is better) with standard
    errors. `spread`: Standard deviation between sessions, beyond their own errors; `variances`: both together, squared.
    `starts`: Index of the first point of each level but the first.
    """

    rows: list[dict[str, Any]]
    values: Floats
    errors: Floats
    spread: float
    variances: Floats
    starts: list[int]

    @property
    def last_start(self) -> int:
        """Index of the first point of the last level."""
        return self.starts[-1] if self.starts else 0


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
    family: list[Interval | None] = []
    for points in _iterate_series(history.points):
        changes += _describe_changes(points, alpha)
        compared = None if limit is None else _compare_since(points, limit, alpha)
        family.append(compared.interval if compared else None)
        series.append(_describe_series(points, alpha, compared))
    _decide_family(series, family, history)
    return HistoryAnalysis(history, SERIES.frame(series), CHANGES.frame(changes), since)


def _iterate_series(points: pl.DataFrame) -> Iterator[_Series]:
    """The series of table POINTS, with their changes."""
    for _, frame in points.sort("series", "created_at", "session_id").group_by("series", maintain_order=True):
        values, errors = frame["log_ratio"].to_numpy(), frame["error"].to_numpy()
        spread = estimate_spread(remove_outliers(values, errors), errors)
        variances = estimate_variances(values, errors, spread)
        yield _Series(frame.to_dicts(), values, errors, spread, variances, find_change_points(values, errors))


def _estimate_level(series: _Series, places: slice) -> tuple[float, float]:
    """Weighted mean of log ratios and its standard error, which grows where they scatter more than expected.

    `places` are the indices of the points.
    """
    values, weights = series.values[places], 1 / series.variances[places]
    mean = float(np.average(values, weights=weights))
    scatter = float(np.sum(weights * (values - mean) ** 2)) / max(1, len(values) - 1)
    return mean, math.sqrt(max(1.0, scatter) / float(weights.sum()))


def _compare_levels(series: _Series, before: slice, after: slice, level: float) -> Interval:
    """Ratio of the level `after` to that `before` (slices of the points), with an interval at this confidence level.

    Its `n` is such that n - 1 are the degrees of freedom.
    """
    first, first_error = _estimate_level(series, before)
    second, second_error = _estimate_level(series, after)
    degrees = len(series.values[before]) + len(series.values[after]) - 2
    error = math.hypot(first_error, second_error)
    return log_interval(second - first, error, degrees, n=degrees + 1, level=level, method=_METHOD)


def _describe_changes(series: _Series, alpha: float) -> Iterator[dict[str, Any]]:
    """Rows of CHANGES: each new level beside the one before."""
    edges = [0, *series.starts, len(series.values)]
    for begin, place, end in zip(edges, edges[1:], edges[2:], strict=False):
        compared = _compare_levels(series, slice(begin, place), slice(place, end), 1 - alpha)
        old, new = series.rows[place - 1], series.rows[place]
        (decision,) = decide_beyond([compared], [new["tolerance"]])
        yield {
            **{name: new[name] for name in (*_TEXTS, "session_id", "created_at")},
            "last_before": old["session_id"],
            "ratio": compared.estimate,
            "low": compared.low,
            "high": compared.high,
            "verdict": decision.verdict,
            "sessions_before": place - begin,
            "sessions_after": end - place,
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
    last, ratio = series.rows[-1], compared.interval if compared else None
    mean, error = _estimate_level(series, slice(series.last_start, None))
    n_points = len(series.values) - series.last_start
    interval = log_interval(mean, error, n_points - 1, n=n_points, level=1 - alpha, method="") if n_points > 1 else None
    return {
        **{name: last[name] for name in (*_TEXTS, "cpu_model", "threads")},
        "sessions": len(series.values),
        "first_at": series.rows[0]["created_at"],
        "last_at": last["created_at"],
        "level": math.exp(mean),
        "level_low": None if interval is None else interval.low,
        "level_high": None if interval is None else interval.high,
        "spread": series.spread,
        "changes": len(series.starts),
        "since_sessions": compared.n_sessions if compared else None,
        "ratio": ratio.estimate if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "verdict": None,
        "reason": ratio.reason if ratio else None,
    }


def _compare_since(series: _Series, limit: float, alpha: float) -> _SinceDate:
    """Compare the level of the sessions since a time (`limit`, seconds since 1970) with the last level before it."""
    times = [parse_time(row["created_at"]) for row in series.rows]
    split = sum(time is not None and time.timestamp() < limit for time in times)
    n_since = len(times) - split
    begin = [0, *find_change_points(series.values[:split], series.errors[:split])][-1]
    if n_since and split - begin >= MIN_SEGMENT:
        now = slice(max(split, series.last_start), None)
        return _SinceDate(_compare_levels(series, slice(begin, split), now, 1 - alpha), n_since)
    few = f"{split - begin} session(s) before the date, {MIN_SEGMENT} needed"
    reason = few if n_since else "no session since the date"
    return _SinceDate(Interval(None, None, None, 1 - alpha, 0, _METHOD, reason=reason), n_since)


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
