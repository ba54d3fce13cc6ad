"""Levels of a notebook's own figures over its valid runs: steps, drifts, and a last run that is far from its level."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from workbench.core.errors import InputError, WorkbenchError
from workbench.core.files import is_store_failure
from workbench.core.formats import cut_with_digest
from workbench.runs import compare
from workbench.runs.catalogue import StoredRun
from workbench.stats import LEVEL, MARGIN, Interval
from workbench.stats.change_points import (
    MIN_DRIFT,
    MIN_POINTS,
    MIN_SEGMENT,
    DividedSeries,
    Segment,
    divide_series,
    estimate_level,
)
from workbench.stats.verdicts import find_critical_value

Shape = Literal["step", "drift", "change", "outlier"]
Fact = tuple[str, str, str | None, str | None]
MAX_FIGURES = 500
ALPHA = 0.01
"""Accepted rate of false claims of one look; a history is looked at every night."""
METHOD = "difference of weighted levels, t"
_NORMAL = 1_000_000
# Twice the log likelihood ratio that holds 99.9 % of the places of a step: P(x) = (1 - exp(-x / 2))^2.
_PLACE_LIMIT = 15.2
# Squares by which a step must be better than a drift, or a drift than a step.
_SHAPE_LIMIT = 10.6
_MAX_DEVIATIONS = 4


@dataclass(frozen=True)
class LevelChange:
    """A change of a figure's level over the runs, whose verdict holds.

    `shape`: step; drift, from `first` to `last`; change, where it is not decided which of the two; or outlier, the last
    runs that are far from the level before them.
    `first`, `last`: Places of the runs; of a step those at which the new level may have begun.
    `change`: Ratio of the new level to the one before, or their difference where values are not all positive.
    `facts`: What else changed in those runs: kind, name, before, after.
    """

    shape: Shape
    verdict: Literal["HIGHER", "LOWER"]
    first: int
    last: int
    before: float
    after: float
    change: Interval
    is_ratio: bool
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class FigureLevels:
    """A figure whose level changed, in the unit of the newest valid run.

    `places`: Valid runs that have it. `better`: The good direction, "" where none is recorded.
    """

    table: str
    row: str
    column: str
    unit: str
    better: str
    places: tuple[int, ...]
    changes: tuple[LevelChange, ...] = ()

    @property
    def name(self) -> str:
        """Table, column and row in one text."""
        return f"{self.table}.{self.column}" + (f" {self.row}" if self.row else "")


@dataclass(frozen=True)
class LevelSearch:
    """Figures whose level changed, and of how many: those with enough valid runs, and those beyond the limit."""

    figures: tuple[FigureLevels, ...] = ()
    n_searched: int = 0
    n_left_out: int = 0


@dataclass(frozen=True)
class _Series:
    """A figure of some runs, divided; on the scale of logarithms, or in units of its largest value."""

    figure: FigureLevels
    divided: DividedSeries
    scale: float | None

    def find_near(self, segment: Segment) -> npt.NDArray[np.intp]:
        """Places of a level's points within four deviations of its median."""
        part = slice(segment.start, segment.end)
        values, deviations = self.divided.values[part], np.sqrt(self.divided.variances[part])
        return np.flatnonzero(np.abs(values - np.median(values)) <= _MAX_DEVIATIONS * deviations) + segment.start

    def fit_level(self, segment: Segment) -> tuple[float, float]:
        """A level and its standard error, by the points near its median."""
        near = self.find_near(segment)
        return estimate_level(self.divided.values[near], self.divided.variances[near])

    def convert(self, value: float) -> float:
        """A value of the series in the figure's unit."""
        return math.exp(value) if self.scale is None else value * self.scale


@dataclass(frozen=True)
class _Candidate:
    """A change that is not decided yet: levels before and after on the scale of the series."""

    shape: Shape
    first: int
    last: int
    before: float
    after: float
    error: float
    degrees: int


def find_levels(
    runs: Sequence[StoredRun], facts: Sequence[Sequence[Fact]], *, figures: Sequence[str] = ()
) -> LevelSearch:
    """Where did the levels of the figures change over the valid runs, and what else changed there?

    `runs`: Of one area, oldest first; `facts`: what differs in each from the valid one before it. `figures`: As of
    `build_history`.

    Figures are the numbers of the newest valid run's tables, by row; each needs 12 valid runs. Changes are found as in
    `find_segments`, on logarithms where all values are positive. Those that are given hold together (Bonferroni
    over all places of all figures, 99 %, margin 2 %). A last run far from its level is an outlier, until four runs show
    a level.
    Assumes independent runs. Does not show the cause of a change.
    """
    found = _read_figures(runs)
    named = [
        (figure, values) for figure, values in found if not figures or any(text in figure.name for text in figures)
    ]
    searched = []
    for figure, values in named[:MAX_FIGURES]:
        estimates = np.array([value.estimate for value in values], dtype=np.float64)
        scale = None if (estimates > 0).all() else float(np.abs(estimates).max()) or 1.0
        points = np.log(estimates) if scale is None else estimates / scale
        # Standard errors behind the intervals; the median of the others where a run has none, 0 where no run has one.
        halves = [_find_half_width(value, scale) for value in values]
        known = [half for half in halves if half is not None]
        middle = float(np.median(known)) if known else 0.0
        errors = np.array([middle if half is None else half for half in halves])
        searched.append(_Series(figure, divide_series(points, errors), scale))
    # Any place of any figure may be taken for a change.
    limit = ALPHA / max(1, sum(len(series.figure.places) for series in searched))
    changed = [
        replace(
            series.figure,
            changes=tuple(
                _describe_change(series, one, runs, facts)
                for one in _list_candidates(series, _merge_levels(series, limit))
                if _compute_p_value(series, one) <= limit
            ),
        )
        for series in searched
    ]
    told = sorted((one for one in changed if one.changes), key=lambda one: -one.changes[-1].last)
    return LevelSearch(tuple(told), len(searched), len(named) - len(searched))


def _read_figures(runs: Sequence[StoredRun]) -> list[tuple[FigureLevels, list[Interval]]]:
    """The figures that at least 12 valid runs have, in the unit of the newest one, with their values."""
    valid = [place for place, run in enumerate(runs) if not run.objection]
    if len(valid) < MIN_POINTS:
        return []
    newest = runs[valid[-1]]
    found: dict[tuple[str, str, str], tuple[list[int], list[Interval]]] = {}
    columns: dict[tuple[str, str, str], tuple[str, str]] = {}
    for name in newest.list_table_names():
        table = _load_table(newest, name)
        if table is None:
            continue
        for place in valid:
            for row, column, value in _iterate_values(runs[place], name, table):
                places, values = found.setdefault((name, row, column), ([], []))
                places.append(place)
                values.append(value)
                known = table.columns[column]
                columns[name, row, column] = (known.unit or "", known.better)
    return [
        (FigureLevels(*key, *columns[key], tuple(places)), values)
        for key, (places, values) in found.items()
        if len(places) >= MIN_POINTS
    ]


def _load_table(run: StoredRun, name: str) -> compare.RunTable | None:
    """A table of a run; null where it cannot be read or is too large to compare."""
    if name not in run.list_table_names():
        return None
    try:
        table = compare.load_run_table(run, name)
    except WorkbenchError as error:
        if isinstance(error, InputError) and is_store_failure(error):
            raise
        return None
    return table if table.frame.height <= compare.MAX_ROWS else None


def _iterate_values(run: StoredRun, name: str, newest: compare.RunTable) -> Iterator[tuple[str, str, Interval]]:
    """Figures of a run's table that the newest run has, too: row, column, value in the newest run's unit."""
    older = _load_table(run, name)
    try:
        pairs = None if older is None else compare.pair_rows(older, newest)
    except InputError:
        return
    if pairs is None:
        return
    columns = pairs.list_figures()
    for before, after in pairs.both:
        row = cut_with_digest(pairs.format_row_name(after), compare.MAX_TEXT_CHARS)
        for column in columns:
            value = pairs.read_intervals(before, after, column)[0]
            if value.estimate is not None:
                yield row, column, value


def _find_half_width(value: Interval, scale: float | None) -> float | None:
    """Standard error of one value on the scale of its series; null without an interval."""
    if value.estimate is None or value.low is None or value.high is None or value.high < value.low:
        return None
    if scale is not None:
        half = (value.high / scale - value.low / scale) / 2
    elif value.low > 0:
        half = (math.log(value.high) - math.log(value.low)) / 2
    else:
        half = (value.high - value.low) / 2 / value.estimate
    found = half / float(find_critical_value("", value.n if value.n > 1 else _NORMAL, 1 - value.level))
    return found if math.isfinite(found) else None


def _merge_levels(series: _Series, limit: float) -> list[Segment]:
    """The segments, with levels joined that are not told apart at this p value, or of fewer than four points."""
    segments = list(series.divided.segments)
    while True:
        p_values = [
            _compute_p_value(series, _build_step(series, before, after))
            if min(len(series.find_near(one)) for one in (before, after)) >= MIN_SEGMENT
            else 1.0
            for before, after in itertools.pairwise(segments)
        ]
        levels = [not (before.is_drift or after.is_drift) for before, after in itertools.pairwise(segments)]
        weak = [place for place, is_level in enumerate(levels) if is_level and p_values[place] > limit]
        if not weak:
            return segments
        place = max(weak, key=lambda one: p_values[one])
        segments[place : place + 2] = [Segment(segments[place].start, segments[place + 1].end)]


def _list_candidates(series: _Series, segments: Sequence[Segment]) -> Iterator[_Candidate]:
    """Each level beside the one before, each drift from its begin to its end, and outliers at the end.

    Whether there is a step between a drift and what is beside it is not asked.
    """
    # Consecutive levels that go one way, each group with the last level of the one before; a drift is alone.
    groups: list[list[Segment]] = []
    for segment in segments:
        group = groups[-1] if groups else []
        if segment.is_drift or not group or group[0].is_drift:
            groups.append([segment])
            continue
        heights = [series.fit_level(one)[0] for one in (*group[-2:], segment)]
        if len(heights) > 2 and (heights[1] > heights[0]) != (heights[2] > heights[1]):
            groups.append([group[-1], segment])
        else:
            group.append(segment)
    for levels in groups:
        if levels[0].is_drift:
            yield _build_drift(series, levels[0])
        elif len(levels) > 2 and _is_like_drift(series, levels):
            yield _build_change(series, levels[0], levels[-1])
        else:
            yield from (_build_step(series, *pair) for pair in itertools.pairwise(levels))
    if n_far := _count_last_outliers(series, segments[-1]):
        yield _build_outlier(series, segments[-1], n_far)


def _is_like_drift(series: _Series, levels: Sequence[Segment]) -> bool:
    """Whether one slow change explains levels that go one way as well as their steps do."""
    residuals = 0.0
    for level in levels:
        near = series.find_near(level)
        squares = (series.divided.values[near] - series.fit_level(level)[0]) ** 2 / series.divided.variances[near]
        residuals += float(squares.sum())
    return _fit_shapes(series, levels[0].start, levels[-1].end)[1][0] <= residuals + _SHAPE_LIMIT


def _build_change(series: _Series, before: Segment, after: Segment) -> _Candidate:
    old, new = series.fit_level(before), series.fit_level(after)
    degrees = before.end - before.start + after.end - after.start - 2
    return _Candidate("change", before.start, after.end - 1, old[0], new[0], math.hypot(old[1], new[1]), degrees)


def _build_step(series: _Series, before: Segment, after: Segment) -> _Candidate:
    old, new = series.fit_level(before), series.fit_level(after)
    step, ramp = _fit_shapes(series, before.start, after.end)
    is_step = ramp[0] > step[0] + _SHAPE_LIMIT
    first, last = _find_possible_starts(series, before, after) if is_step else (before.start, after.end - 1)
    error, degrees = math.hypot(old[1], new[1]), after.end - before.start - 2
    return _Candidate("step" if is_step else "change", first, last, old[0], new[0], error, degrees)


def _build_drift(series: _Series, segment: Segment) -> _Candidate:
    divided, n = series.divided, segment.end - segment.start
    step, ramp = _fit_shapes(series, segment.start, segment.end)
    if step[0] <= ramp[0] + _SHAPE_LIMIT:
        split = segment.start + step[1]
        parts = slice(segment.start, split), slice(split, segment.end)
        old, new = (estimate_level(divided.cleaned[part], divided.variances[part]) for part in parts)
        error = math.hypot(old[1], new[1])
        return _Candidate("change", segment.start, segment.end - 1, old[0], new[0], error, n - 2)
    change, error = divided.estimate_drift(segment)
    begin = divided.fit_line(segment, segment.start)[0]
    return _Candidate("drift", segment.start, segment.end - 1, begin, begin + change, error, n - 2)


def _build_outlier(series: _Series, final: Segment, n_far: int) -> _Candidate:
    divided, last = series.divided, final.end - 1
    level, error = divided.fit_line(final, final.end - 1)
    own = float(divided.variances[-n_far:].mean()) / n_far
    value = float(divided.values[-n_far:].mean())
    degrees = max(1, final.end - final.start - 1 - n_far)
    return _Candidate("outlier", last - n_far + 1, last, level, value, math.sqrt(error**2 + own), degrees)


def _fit_shapes(series: _Series, start: int, end: int) -> tuple[tuple[float, int], tuple[float, int]]:
    """Least weighted sum of squares of a step, and of a level that goes to another one over 12 points or more.

    Returns: Each with the place at which it begins, from `start`. Outliers say nothing.
    """
    n = end - start
    width = min(MIN_DRIFT, n) - 1
    steps = [(place, place + 1) for place in range(MIN_SEGMENT - 1, n - MIN_SEGMENT)]
    ramps = [(first, last) for first in range(n - width) for last in range(first + width, n)]
    return _fit_ramps(series, slice(start, end), steps), _fit_ramps(series, slice(start, end), ramps)


def _fit_ramps(series: _Series, part: slice, ramps: Sequence[tuple[int, int]]) -> tuple[float, int]:
    """Least weighted sum of squares of two levels with a ramp between, and the point behind its begin.

    `ramps`: Last point of the one level and first of the other.
    """
    weights = np.where(series.divided.outliers, 0.0, 1 / series.divided.variances)[part]
    first, last = np.array(ramps).T[:, :, None]
    shapes = np.clip((np.arange(len(weights)) - first) / (last - first), 0, 1)
    centred = shapes - (shapes @ weights / weights.sum())[:, None]
    values = series.divided.values[part]
    values = values - np.average(values, weights=weights)
    spreads = np.maximum(centred**2 @ weights, 1e-300)
    residuals = weights @ values**2 - (centred @ (weights * values)) ** 2 / spreads
    best = int(np.argmin(residuals))
    return max(0.0, float(residuals[best])), ramps[best][0] + 1


def _count_last_outliers(series: _Series, final: Segment) -> int:
    """Number of outliers at the end that are on one side of the last level."""
    divided = series.divided
    level = divided.fit_line(final, final.end - 1)[0]
    last_is_above = divided.values[-1] > level
    far = [
        outlier and (value > level) == last_is_above
        for outlier, value in zip(series.divided.outliers.tolist(), divided.values.tolist(), strict=True)
    ]
    return len(list(itertools.takewhile(bool, reversed(far))))


def _find_possible_starts(series: _Series, before: Segment, after: Segment) -> tuple[int, int]:
    """First and last point at which the level `after` may have begun.

    Moving the begin away from the best place makes points farther from their level; those are left out where the
    likelihood ratio says so (99.9 %, for levels that are known). Outliers say nothing.
    """
    divided = series.divided
    places = np.arange(before.start, after.end)
    weights = np.where(series.divided.outliers, 0.0, 1 / divided.variances)[places]
    values = divided.values[places]
    levels = series.fit_level(before)[0], series.fit_level(after)[0]
    costs = [weights * (values - level) ** 2 for level in levels]
    # Cost of a begin at each place but the first: points before it on the old level, the others on the new.
    totals = np.cumsum(costs[0])[:-1] + costs[1].sum() - np.cumsum(costs[1])[:-1]
    best = after.start - before.start - 1
    beyond = np.flatnonzero(totals > totals[best] + _PLACE_LIMIT)
    earlier, later = beyond[beyond < best], beyond[beyond > best]
    first = int(earlier[-1]) + 1 if len(earlier) else 0
    last = int(later[0]) - 1 if len(later) else len(totals) - 1
    return before.start + 1 + first, before.start + 1 + last


def _compute_p_value(series: _Series, found: _Candidate) -> float:
    """Two-sided p value of a change against the margin."""
    from scipy.special import stdtr

    margin = math.log1p(MARGIN) if series.scale is None else MARGIN * max(abs(found.before), abs(found.after))
    past = abs(found.after - found.before) - margin
    return 1.0 if past <= 0 else float(2 * stdtr(found.degrees, -past / found.error)) if found.error else 0.0


def _describe_change(
    series: _Series, found: _Candidate, runs: Sequence[StoredRun], facts: Sequence[Sequence[Fact]]
) -> LevelChange:
    places = series.figure.places
    first, last = places[found.first], places[found.last]
    half = float(find_critical_value("", found.degrees + 1, 1 - LEVEL)) * found.error
    middle = found.after - found.before
    estimate, low, high = (series.convert(end) for end in (middle, middle - half, middle + half))
    change = Interval(estimate, low, high, LEVEL, found.degrees + 1, METHOD)
    around = range(places[found.first - 1] + 1 if found.first else first, last + 1)
    beside = [fact for place in around if not runs[place].objection for fact in facts[place]]
    return LevelChange(
        found.shape,
        "HIGHER" if middle > 0 else "LOWER",
        first,
        last,
        series.convert(found.before),
        series.convert(found.after),
        change,
        series.scale is None,
        tuple(_join_facts(beside)) if found.shape in ("step", "outlier") else (),
    )


def _join_facts(facts: Sequence[Fact]) -> Iterator[Fact]:
    """Facts of consecutive runs, each from its first side to its last; none where it is again as before."""
    joined: dict[tuple[str, str], Fact] = {}
    for kind, name, before, after in facts:
        begun = joined.get((kind, name))
        joined[kind, name] = (kind, name, begun[2] if begun else before, after)
    yield from (fact for fact in joined.values() if fact[2] != fact[3])
