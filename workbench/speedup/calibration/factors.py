"""Factors per operator with intervals, fitted from paired recordings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from workbench import stats
from workbench.core.errors import InputError
from workbench.speedup.attribution.time_pieces import COUNTS, Measured
from workbench.speedup.calibration.plan_costs import (
    COSTS,
    ERROR_POWER,
    Design,
    Member,
    Predictor,
    choose_pulls,
    count_plan,
    fit_member,
    split_folds,
)
from workbench.speedup.calibration.time_split import (
    Floats,
    PieceArrays,
    PlannedOperators,
    fit_session_prices,
    split_times,
    sum_work,
)
from workbench.speedup.engines import ACCELERATED

# Share of a query's wall time that may be booked on the wrong operator; factors of operators that take little more are
# shrunk towards the engine-wide factor.
BOOKING_ERROR = 0.01
MIN_SPREAD, MAX_SPREAD = 0.25, 1.5
# Least share booked on either side, so that an operator that disappears has a finite factor.
FLOOR_SHARE = 0.0002
# Weights of the operator's time in the members of a prediction; its work has the rest. Null: its time over the
# engine-wide factor.
TIME_WEIGHTS = (1.0, 0.8, 0.6, None)
# With few queries this one alone counts.
DEFAULT_TIME_WEIGHT = 0.8
MIN_QUERIES_TO_LEARN = 8
# Log of the largest ratio between an operator's time by its work and by its time.
WORK_REACH = 0.7
# Mean square error of a member without any, as in times that were made up.
_MIN_SQUARE = 1e-12
# An operator counts as left to Spark if more than this share of its planned nodes is.
MOSTLY = 0.5
MAX_DESCRIBED = 8
# Between a query's name and that of its recording, where several are joined.
RECORDING_MARK = " @ "


@dataclass(frozen=True)
class RunNoise:
    """Log standard deviations known from elsewhere, for a side of one session, which shows none itself."""

    query_log_sd: float
    session_log_sd: float

    def estimate_mean_ratio(self, logs: Floats, n_sessions: tuple[int, int], level: float) -> stats.Interval:
        """Estimate the geometric mean of the queries' ratios: t over queries, with the noise of each side's sessions.

        `logs`: Log of each query's ratio.
        """
        n = len(logs)
        between = float(logs.var(ddof=1)) if n > 1 else 2 * self.query_log_sd**2
        error = np.sqrt(between / n + sum(self.session_log_sd**2 / count for count in n_sessions))
        return stats.log_interval(
            float(logs.mean()),
            float(error),
            max(n - 1, 1),
            n=n,
            level=level,
            method="t over queries, noise of sessions",
        )


# First runs in the shipped recording (TPC-H at scale 1, 22 queries, 5 sessions per side, 2 cores), pooled over Spark
# (0.27 and 0.043) and Comet (0.32 and 0.056), and warm runs.
FIRST_RUN_NOISE = RunNoise(query_log_sd=0.29, session_log_sd=0.050)
WARM_RUN_NOISE = RunNoise(query_log_sd=0.075, session_log_sd=0.039)


@dataclass(frozen=True)
class PairedTimes:
    """Times of both sides by query and term.

    `baseline` and `candidate` are [session, query, term] in wall seconds, NaN where a session lacks a query; `work`
    is [query, term], of the baseline's plans. `noise` replaces the variance of a side of one session, and
    `jackknife_variance` is that of each term's log factor when queries are left out (`measure_jackknife_variance`).
    `plan` counts the candidate's plans (`plan_costs.COSTS`), [query, cost], and `plan_of_log` is what the baseline's
    plans tell of them.
    """

    queries: tuple[str, ...]
    terms: tuple[str, ...]
    baseline: Floats
    candidate: Floats
    work: Floats
    noise: RunNoise | None = None
    jackknife_variance: Floats | None = None
    plan: Floats | None = None
    plan_of_log: Floats | None = None
    left_operators: frozenset[str] = frozenset()

    def select_queries(self, chosen: Sequence[int]) -> PairedTimes:
        """Return a copy with only the chosen queries."""
        index = list(chosen)
        return replace(
            self,
            queries=tuple(self.queries[i] for i in index),
            baseline=self.baseline[:, index],
            candidate=self.candidate[:, index],
            work=self.work[index],
            plan=None if self.plan is None else self.plan[index],
            plan_of_log=None if self.plan_of_log is None else self.plan_of_log[index],
        )

    def drop_queries(self, left_out: Sequence[int]) -> PairedTimes:
        """Return a copy without some queries."""
        return self.select_queries([i for i in range(len(self.queries)) if i not in left_out])


@dataclass(frozen=True)
class Factors:
    """Log factors by term, shrunk to the engine-wide one, their uncertainty, and the candidate's price of work.

    `log_price` is NaN where work has no information. `log_even` is the engine-wide log factor by term; an overridden
    factor moves it. `by_plan` predicts queries whose plan on the candidate is known, `by_log` the others.
    """

    terms: tuple[str, ...]
    log_raw: Floats
    log_factor: Floats
    log_se: Floats
    degrees: Floats
    shrinkage: Floats
    log_price: Floats
    log_overall: float
    log_even: Floats
    spread: float
    by_plan: Predictor = field(default_factory=Predictor)
    by_log: Predictor = field(default_factory=Predictor)

    def predict_operators(self, parts: Floats, work: Floats, time_weight: float | None) -> Floats:
        """Wall seconds on the candidate by query and term, by the factors alone.

        The geometric mean, weighted by `time_weight`, of time over factor and of work times price, which are taken to
        be at most `WORK_REACH` apart. For slow expressions on the baseline, the work predicts the candidate's time
        better than the time does; where few queries tell a price, it can be far off. A null weight takes the
        engine-wide factor for all.

        `parts`, `work`: Seconds and work on the baseline, [query, term].
        """
        if time_weight is None:
            return np.asarray(parts * np.exp(-self.log_even))
        by_time = parts * np.exp(-self.log_factor)
        both = (parts > 0) & (work > 0) & np.isfinite(self.log_price)
        log_apart = np.log(np.where(both, work, 1)) + self.log_price - np.log(np.where(both, by_time, 1))
        log_apart = np.where(both, np.clip(log_apart, -WORK_REACH, WORK_REACH), 0.0)
        return np.asarray(by_time * np.exp((1 - time_weight) * log_apart))

    def predict_by_term(self, parts: Floats, work: Floats, plan: Floats, predictor: Predictor) -> Floats:
        """Wall seconds on the candidate by query and term, and fixed costs of the plan in the last column.

        `plan`: Counts of `plan_costs.COSTS`, [query, cost].
        """
        total = np.zeros((len(parts), parts.shape[1] + 1))
        for member in predictor.members:
            operators = self.predict_operators(parts, work, member.time_weight) * member.multipliers
            columns = np.column_stack([operators, plan @ member.costs])
            total += member.weight * np.exp(member.calibration) * columns
        return total

    def predict(self, parts: Floats, work: Floats, plan: Floats, predictor: Predictor) -> Floats:
        """Wall seconds on the candidate by query."""
        return np.asarray(self.predict_by_term(parts, work, plan, predictor).sum(axis=1))


def list_common_queries(measured: Measured, baseline: str, candidate: str) -> list[str]:
    """Queries with runs that count on both sides, and that read the same tables and columns there."""
    seen = _list_counted_queries(measured, baseline, candidate)
    names = {query for query, _ in seen[baseline] & seen[candidate]}
    if not names:
        raise InputError(
            "no query can be compared",
            found="\n    ".join(["", *(_describe_side(measured, label) for label in (baseline, candidate))]),
            allowed="queries that read the same tables, columns and rows on both sides, without failure",
            do="run the same queries on the same data on both sides; give queries that read the same tables a job "
            "description each; sides whose queries ran once each are compared by --first-runs use",
        )
    return sorted(names, key=natural_sort_key)


def has_common_queries(measured: Measured, baseline: str, candidate: str) -> bool:
    """Whether any query counts on both sides with the same inputs."""
    seen = _list_counted_queries(measured, baseline, candidate)
    return bool(seen[baseline] & seen[candidate])


def _describe_side(measured: Measured, label: str) -> str:
    """Describe what a side ran: the queries that ran most, how often, and why runs do not count."""
    runs = measured.executions.filter(pl.col("label") == label)
    by_query = runs.group_by("query").agg(
        n=pl.len(), counted=pl.col("why_not").is_null().sum(), why=pl.col("why_not").drop_nulls().unique().sort()
    )
    if not by_query.height:
        return f"{label}: no query"
    rows = sorted(by_query.iter_rows(named=True), key=lambda row: (-row["n"], natural_sort_key(row["query"])))
    texts = []
    for row in rows[:MAX_DESCRIBED]:
        reasons = f" ({'; '.join(row['why'])})" if row["why"] else ""
        texts.append(f"{row['query'][:60] or '(no description)'} ran {row['n']}x, {row['counted']} counted{reasons}")
    more = f", and {len(rows) - MAX_DESCRIBED} more" if len(rows) > MAX_DESCRIBED else ""
    return f"{label}: {len(rows)} queries: " + ", ".join(texts) + more


def list_mismatched_queries(measured: Measured, baseline: str, candidate: str) -> list[str]:
    """Queries that count on both sides but read different tables or columns; they are left out."""
    seen = _list_counted_queries(measured, baseline, candidate)
    ran = {label: {query for query, _ in pairs} for label, pairs in seen.items()}
    same = {query for query, _ in seen[baseline] & seen[candidate]}
    return sorted(ran[baseline] & ran[candidate] - same, key=natural_sort_key)


def _list_counted_queries(measured: Measured, baseline: str, candidate: str) -> dict[str, set[tuple[str, str | None]]]:
    """Queries of each side with a run that counts, with the fingerprint of their inputs."""
    executions = measured.executions.filter(COUNTS)
    return {
        label: set(executions.filter(pl.col("label") == label).select("query", "fingerprint").iter_rows())
        for label in (baseline, candidate)
    }


def strip_recording(query: str) -> str:
    """Name of a query without that of its recording.

    >>> strip_recording("q1 @ tpch-sf1"), strip_recording("q1")
    ('q1', 'q1')
    """
    return query.partition(RECORDING_MARK)[0]


def natural_sort_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts q2 before q10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def map_columns_to_terms(columns: Sequence[str], groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """Map each operator column to its term: an accelerated operator has that of the plain one, a group one term.

    `groups`: Operators whose times cannot be told apart.

    >>> map_columns_to_terms(["Sort", "Sort*", "Filter", "Project"], [["Filter", "Project"]])
    {'Sort': 'Sort', 'Sort*': 'Sort', 'Filter': 'Filter + Project', 'Project': 'Filter + Project'}
    """
    plain = {column: column.removesuffix(ACCELERATED) for column in columns}
    joined = {member: " + ".join(group) for group in groups for member in group}
    return {column: joined.get(name, name) for column, name in plain.items()}


def arrange_paired_times(
    pieces: PieceArrays,
    prices: Floats,
    baseline: str,
    candidate: str,
    queries: Sequence[str],
    groups: Sequence[Sequence[str]] = (),
    noise: RunNoise | None = None,
) -> PairedTimes:
    """Times of both sides, split by the prices, as arrays by session, query and term.

    `prices`: Seconds per unit of work, [owner, column] or [column].
    `groups`: Columns that share one term.
    """
    name_of = map_columns_to_terms(pieces.columns, groups)
    terms = tuple(sorted(set(name_of.values())))
    gather = np.zeros((len(pieces.columns), len(terms)))
    gather[np.arange(len(pieces.columns)), [terms.index(name_of[column]) for column in pieces.columns]] = 1
    parts, work = split_times(pieces, prices) @ gather, sum_work(pieces) @ gather
    planned = _average_planned(pieces, candidate, queries)
    left = list_left_operators(planned)
    return PairedTimes(
        tuple(queries),
        terms,
        _build_time_cube(pieces.keys, parts, baseline, queries),
        _build_time_cube(pieces.keys, parts, candidate, queries),
        np.nan_to_num(np.nanmean(_build_time_cube(pieces.keys, work, baseline, queries), axis=0)),
        noise,
        # Costs that were learned from fewer nodes would be charged for all nodes of other plans.
        plan=count_plan(planned) * planned.is_first,
        plan_of_log=count_plan(_average_planned(pieces, baseline, queries), left) * planned.is_first,
        left_operators=left,
    )


def list_left_operators(planned: PlannedOperators) -> frozenset[str]:
    """Operators that the engine leaves to Spark in most of these plans of its own."""
    totals = dict(zip(planned.names, planned.counts.sum(axis=0), strict=True))
    names = {name.removesuffix(ACCELERATED) for name in planned.names}
    return frozenset(
        name
        for name in names
        if totals.get(name, 0.0) > MOSTLY * (totals.get(name, 0.0) + totals.get(name + ACCELERATED, 0.0))
    )


def _average_planned(pieces: PieceArrays, label: str, queries: Sequence[str]) -> PlannedOperators:
    """Operators of each query's plan on a side, averaged over its sessions."""
    query_rows = pieces.keys.with_row_index("row").filter(pl.col("label") == label).group_by("query").agg("row")
    rows = dict(query_rows.iter_rows())
    counts = np.array([pieces.planned.counts[rows[query]].mean(axis=0) for query in queries])
    return replace(pieces.planned, counts=counts)


def _build_time_cube(keys: pl.DataFrame, by_term: Floats, label: str, queries: Sequence[str]) -> Floats:
    """Arrange the seconds of side `label` as [session, query, term], NaN where a session lacks a query.

    `keys`: `label, session, query`, one row for each row of `by_term`, [owner, term].
    """
    side_keys = keys.with_row_index("row").filter(pl.col("label") == label)
    sessions = sorted(set(side_keys["session"]))
    cube = np.full((len(sessions), len(queries), by_term.shape[1]), np.nan)
    place = {query: i for i, query in enumerate(queries)}
    for row, session, query in side_keys.select("row", "session", "query").iter_rows():
        if query in place:
            cube[sessions.index(session), place[query]] = by_term[row]
    return cube


def query_wall_times(cube: Floats) -> Floats:
    """Wall seconds by query: the geometric mean over sessions. `cube`: [session, query, term]."""
    return np.asarray(np.exp(np.nanmean(np.log(cube.sum(axis=2)), axis=0)))


def average_parts(cube: Floats) -> Floats:
    """Parts [query, term] that add up to `query_wall_times`. `cube`: Seconds, [session, query, term]."""
    mean = np.nanmean(cube, axis=0)
    return np.asarray(mean / mean.sum(axis=1, keepdims=True) * query_wall_times(cube)[:, None])


def fit_factors(both: PairedTimes) -> Factors:
    """Fit the factors to all queries of both sides, and learn how to predict from them.

    Each query has the weight of one over its time on the candidate, so that a relative error counts equally in long
    and short queries. A term's factor is the ratio of its weighted sums. The variance of the log ratio comes from the
    sums of the sessions (Welch), which are independent. The factor is shrunk towards the engine-wide factor by
    B = v / (v + spread**2), where v includes the booking error and spread is the spread of factors between terms. With
    one session on a side the variance comes from `both.noise`; without that it is unknown (NaN), and v is the booking
    error alone.

    Members with other weights of the operators' times (`TIME_WEIGHTS`) learn multipliers and fixed costs
    (`plan_costs`); a member with half the mean square left-out error has 16 times the weight. Where all together do
    not beat the engine-wide factor by a standard error, that alone is the prediction.
    """
    fitted = _fit_terms(both)
    n = len(both.queries)
    if n < MIN_QUERIES_TO_LEARN:
        predictor = _predict_without_learning(fitted, both)
        return replace(fitted, by_plan=predictor, by_log=predictor)
    folds = []
    for training, held_out in split_folds([strip_recording(query) for query in both.queries]):
        of_training = both.select_queries(training)
        folds.append(_Fold(_fit_terms(of_training), of_training, both.select_queries(held_out)))
    return replace(
        fitted,
        by_plan=_learn_predictor(fitted, both, folds, lambda times: times.plan),
        by_log=_learn_predictor(fitted, both, folds, lambda times: times.plan_of_log),
    )


@dataclass(frozen=True)
class _Fold:
    factors: Factors
    training: PairedTimes
    held_out: PairedTimes


# The counts of plans that a predictor is given.
_ReadPlan = Callable[[PairedTimes], Floats | None]


def _learn_predictor(fitted: Factors, both: PairedTimes, folds: Sequence[_Fold], read_plan: _ReadPlan) -> Predictor:
    """Learn members and their weights; the engine-wide factor alone where they do not clearly beat it."""
    actual = np.concatenate([query_wall_times(fold.held_out.candidate) for fold in folds])
    members, predictions = [], []
    for time_weight in TIME_WEIGHTS:
        designs = [
            (
                _build_design(fold.factors, fold.training, time_weight, read_plan),
                _build_design(fold.factors, fold.held_out, time_weight, read_plan),
            )
            for fold in folds
        ]
        pulls, predicted = choose_pulls(designs)
        members.append(fit_member(_build_design(fitted, both, time_weight, read_plan), time_weight, pulls))
        predictions.append(np.concatenate(predicted))
    squares = np.array([max(float((np.log(one / actual) ** 2).mean()), _MIN_SQUARE) for one in predictions])
    weights = (squares.min() / squares) ** ERROR_POWER
    weights /= weights.sum()
    errors = np.log(weights @ np.array(predictions) / actual)
    constant = [query_wall_times(fold.held_out.baseline) / np.exp(fold.factors.log_overall) for fold in folds]
    constant_errors = np.log(np.concatenate(constant) / actual)
    gains = constant_errors**2 - errors**2
    # A gain within its standard error is chance as far as these queries tell, and so is one where sessions differ more
    # than queries do.
    is_chance = gains.mean() < gains.std(ddof=1) / np.sqrt(len(gains))
    session_variance = sum(variance or 0.0 for variance in measure_session_variances(both))
    if is_chance or session_variance >= (constant_errors**2).mean():
        return Predictor((_plain_member(fitted, None),), constant_errors)
    weighted = [replace(member, weight=float(weight)) for member, weight in zip(members, weights, strict=True)]
    return Predictor(tuple(weighted), errors)


def measure_session_variances(both: PairedTimes) -> tuple[float | None, float | None]:
    """Variance of a query's mean log time from session to session, a mean over queries, by side.

    Null for a side on which no query ran in two sessions.
    """
    variances: list[float | None] = []
    for cube in (both.baseline, both.candidate):
        logs = np.log(cube.sum(axis=2))
        counts = (~np.isnan(logs)).sum(axis=0)
        repeated = counts >= 2
        by_query = np.nanvar(logs[:, repeated], axis=0, ddof=1) / counts[repeated]
        variances.append(float(by_query.mean()) if repeated.any() else None)
    return variances[0], variances[1]


def _plain_member(fitted: Factors, time_weight: float | None) -> Member:
    """A member that takes the factors' predictions as they are."""
    return Member(time_weight, np.ones(len(fitted.terms)), np.zeros(len(COSTS)))


def _build_design(fitted: Factors, both: PairedTimes, time_weight: float | None, read_plan: _ReadPlan) -> Design:
    times = fitted.predict_operators(average_parts(both.baseline), both.work, time_weight)
    counts = read_plan(both)
    return Design(
        times, np.zeros((len(times), len(COSTS))) if counts is None else counts, query_wall_times(both.candidate)
    )


def _predict_without_learning(fitted: Factors, both: PairedTimes) -> Predictor:
    """Predictor of few queries: one member, calibrated to a mean log error of zero, without costs."""

    def calibrate(factors: Factors, queries: PairedTimes) -> tuple[Member, Floats]:
        """The member, and its log errors."""
        operators = factors.predict_operators(average_parts(queries.baseline), queries.work, DEFAULT_TIME_WEIGHT)
        errors = np.log(operators.sum(axis=1) / query_wall_times(queries.candidate))
        return replace(_plain_member(factors, DEFAULT_TIME_WEIGHT), calibration=-float(errors.mean())), errors

    member, _ = calibrate(fitted, both)
    if len(both.queries) < 2:
        return Predictor((member,))
    errors = []
    for i in range(len(both.queries)):
        training = both.drop_queries([i])
        factors = _fit_terms(training)
        calibration = calibrate(factors, training)[0].calibration
        errors.append(calibrate(factors, both.select_queries([i]))[1][0] + calibration)
    return Predictor((member,), np.array(errors))


def _fit_terms(both: PairedTimes) -> Factors:
    """Factors and prices, without members."""
    weight = 1 / query_wall_times(both.candidate)
    base, cand = _weighted_sums(both.baseline, weight), _weighted_sums(both.candidate, weight)
    overall = float((np.log(query_wall_times(both.baseline)) - np.log(query_wall_times(both.candidate))).mean())
    floor = FLOOR_SHARE * float((query_wall_times(both.baseline) * weight).sum())
    mean_base, mean_cand = base.mean(axis=0) + floor, cand.mean(axis=0) + floor * np.exp(-overall)
    raw = np.log(mean_base) - np.log(mean_cand)
    v_base = _relative_variance(both.baseline, base, mean_base, weight, both.noise)
    v_cand = _relative_variance(both.candidate, cand, mean_cand, weight, both.noise)
    variance = v_base + v_cand
    if both.noise is not None and both.jackknife_variance is not None:
        variance = np.maximum(variance, 2 * both.noise.session_log_sd**2 + both.jackknife_variance)
    drawn = np.nan_to_num(variance) + _booking_variance(both, weight, mean_base, mean_cand)
    spread = _spread_between_terms(raw, drawn, mean_base, overall)
    shrinkage = drawn / (drawn + spread**2)
    work = (both.work * weight[:, None]).sum(axis=0)
    is_priced = (work > 0) & ((both.work > 0).sum(axis=0) >= 2)
    return Factors(
        terms=both.terms,
        log_raw=raw,
        log_factor=(1 - shrinkage) * raw + shrinkage * overall,
        log_se=np.sqrt((1 - shrinkage) ** 2 * variance + shrinkage**2 * spread**2),
        degrees=_welch_degrees_of_freedom(
            v_base, _count_samples(both, len(base)), v_cand, _count_samples(both, len(cand))
        ),
        shrinkage=shrinkage,
        log_price=np.where(is_priced, np.log(mean_cand) - np.log(np.where(is_priced, work, 1)), np.nan),
        log_overall=overall,
        log_even=np.full(len(both.terms), overall),
        spread=spread,
    )


def _weighted_sums(cube: Floats, weight: Floats) -> Floats:
    """Weighted sums over queries, [session, term]; a missing query counts as in the other sessions.

    `cube`: Seconds, [session, query, term]. `weight`: One over seconds, by query.
    """
    filled = np.where(np.isnan(cube), np.nanmean(cube, axis=0, keepdims=True), cube)
    return np.asarray((filled * weight[None, :, None]).sum(axis=1))


def _relative_variance(cube: Floats, sums: Floats, mean: Floats, weight: Floats, noise: RunNoise | None) -> Floats:
    """Variance by term of the mean over sessions, relative to it squared; with one session from `noise`, or unknown.

    `sums`: [session, term], whose mean is `mean`; the others as in `_weighted_sums`.
    """
    if len(sums) < 2 and noise is not None:
        shares = np.nan_to_num(cube[0]) * weight[:, None] / mean
        return np.asarray(noise.session_log_sd**2 + noise.query_log_sd**2 * (shares**2).sum(axis=0))
    if len(sums) < 2:
        return np.full(sums.shape[1], np.nan)
    return np.asarray(sums.var(axis=0, ddof=1) / len(sums) / mean**2)


def _count_samples(both: PairedTimes, n_sessions: int) -> int:
    """Number of values that the variance of a side rests on: with `noise`, that of the queries."""
    return len(both.queries) if n_sessions < 2 and both.noise is not None else n_sessions


def _welch_degrees_of_freedom(v_base: Floats, n_base: int, v_cand: Floats, n_cand: int) -> Floats:
    """Degrees of freedom by term (Welch and Satterthwaite), from variances and samples of both sides."""
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = (v_base + v_cand) ** 2 / (v_base**2 / (n_base - 1) + v_cand**2 / (n_cand - 1))
    return np.where(np.isfinite(degrees), degrees, float(max(min(n_base, n_cand) - 1, 1)))


def _booking_variance(both: PairedTimes, weight: Floats, mean_base: Floats, mean_cand: Floats) -> Floats:
    """Relative variance by term if a share of each query's wall time is booked on the wrong term.

    `weight`: By query. `mean_base`, `mean_cand`: Weighted sums by term, averaged over sessions.
    """
    variance = np.zeros(len(both.terms))
    for cube, mean in ((both.baseline, mean_base), (both.candidate, mean_cand)):
        present = np.nanmean(cube, axis=0) > 0
        misbooked = ((BOOKING_ERROR * query_wall_times(cube) * weight) ** 2)[:, None] * present
        variance += misbooked.sum(axis=0) / mean**2
    return variance


def _spread_between_terms(raw: Floats, variance: Floats, time: Floats, overall: float) -> float:
    """Spread of log factors between terms beyond chance, weighted by time.

    `raw`, `variance`, `time`: Log factor, its variance and weighted time, by term.
    `overall`: The engine-wide log factor.
    """
    weight = time / time.sum()
    seen = float((weight * (raw - overall) ** 2).sum() - (weight * np.minimum(variance, 1.0)).sum())
    return float(np.clip(np.sqrt(max(seen, 0.0)), MIN_SPREAD, MAX_SPREAD))


def measure_jackknife_variance(
    pieces: PieceArrays, both: PairedTimes, baseline: str, candidate: str, groups: Sequence[Sequence[str]]
) -> Floats:
    """Variance of each term's log factor by leaving out each query in turn, prices fitted anew.

    The only variance that one session shows: of the queries, of their single runs, and of the split of shared times,
    whose prices rest on few noisy runs.
    """
    refits = _refit_without_each(pieces, baseline, candidate, both.queries, groups)
    estimates = [_fit_terms(refit.drop_queries(rows)).log_raw for refit, rows in refits]
    n = len(estimates)
    return np.asarray((n - 1) ** 2 / n * np.var(estimates, axis=0, ddof=1))


def _refit_without_each(
    pieces: PieceArrays, baseline: str, candidate: str, queries: Sequence[str], groups: Sequence[Sequence[str]]
) -> Iterator[tuple[PairedTimes, list[int]]]:
    """Yield, for each query, all paired times at prices fitted without it, and its rows: one for each recording."""
    names = [strip_recording(query) for query in queries]
    for name in dict.fromkeys(names):
        rows = [row for row, other in enumerate(names) if other == name]
        prices = fit_session_prices(pieces, [queries[row] for row in range(len(names)) if row not in rows])
        yield arrange_paired_times(pieces, prices, baseline, candidate, queries, groups), rows


def predict_left_out_queries(
    pieces: PieceArrays, baseline: str, candidate: str, queries: Sequence[str], groups: Sequence[Sequence[str]] = ()
) -> pl.DataFrame:
    """Predict each query from all the others: prices, factors, members and interval are fitted without it.

    Returns: `query`; `predicted_s` with the candidate's plan of the query, which is known before it runs, and
    `log_sd`, the root mean square log error of the other queries, left out in their turn; `predicted_by_log_s` and
    `log_sd_by_log`, the same from the log alone.
    """
    frames = []
    for both, rows in _refit_without_each(pieces, baseline, candidate, queries, groups):
        fitted = fit_factors(both.drop_queries(rows))
        held_out = both.select_queries(rows)
        parts = average_parts(held_out.baseline)
        columns: dict[str, object] = {"query": held_out.queries}
        for name, plan, predictor in (
            ("", held_out.plan, fitted.by_plan),
            ("_by_log", held_out.plan_of_log, fitted.by_log),
        ):
            assert plan is not None
            columns[f"predicted{name}_s"] = fitted.predict(parts, held_out.work, plan, predictor)
            columns[f"log_sd{name}"] = predictor.log_sd
        frames.append(pl.DataFrame(columns))
    return pl.DataFrame({"query": queries}).join(pl.concat(frames), on="query", maintain_order="left")
