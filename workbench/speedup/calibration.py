"""How many times faster is each operator on the candidate? Factors with intervals from paired recordings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from workbench.errors import InputError
from workbench.speedup.measured import Measured
from workbench.speedup.parts import ACCELERATED, Cuts, Floats, amounts, session_prices, split

# What may be booked on a wrong operator, as a share of a query's wall time: factors of operators that take hardly
# more than that are drawn to the engine-wide one.
BOOKING_ERROR = 0.01
LEAST_SPREAD, MOST_SPREAD = 0.25, 1.5
# At least this share is booked on either side, so that an operator that vanishes has a factor that is finite.
FLOOR_SHARE = 0.0002
# How far a prediction goes by the operator's time on the baseline; the rest by its work. Chosen by the training
# queries alone; with few of them the first.
TIME_WEIGHTS = (0.8, 1.0, 0.9, 0.7, 0.6)
FEWEST_TO_CHOOSE = 8


@dataclass(frozen=True)
class Sides:
    """Both sides by query and term.

    `baseline` and `candidate` are [session, query, term] in wall seconds, NaN where a session lacks a query; `work`
    is [query, term], of the baseline's plans.
    """

    queries: tuple[str, ...]
    terms: tuple[str, ...]
    baseline: Floats
    candidate: Floats
    work: Floats

    def pick(self, chosen: Sequence[int]) -> Sides:
        """Some of the queries."""
        index = list(chosen)
        return replace(
            self,
            queries=tuple(self.queries[i] for i in index),
            baseline=self.baseline[:, index],
            candidate=self.candidate[:, index],
            work=self.work[index],
        )

    def without(self, left_out: int) -> Sides:
        """All queries but one."""
        return self.pick([i for i in range(len(self.queries)) if i != left_out])


@dataclass(frozen=True)
class Factors:
    """By term: log factors drawn to the engine-wide one, their uncertainty, and the candidate's price of work.

    `log_price` is null (NaN) where work tells nothing. `time_weight` says how far predictions go by time.
    """

    terms: tuple[str, ...]
    log_raw: Floats
    log_factor: Floats
    log_se: Floats
    degrees: Floats
    shrinkage: Floats
    log_price: Floats
    log_overall: float
    spread: float
    time_weight: float
    calibration: float

    def by_term(self, parts: Floats, work: Floats) -> Floats:
        """Wall seconds on the candidate by query and term, from time and work on the baseline.

        The geometric mean, weighted by `time_weight`, of what the time says (time over factor) and of what the work
        says (work times price). Slow expressions on the baseline say little about the candidate, their work does.
        """
        by_time = parts * np.exp(-self.log_factor)
        by_work = work * np.exp(self.log_price)
        both = (parts > 0) & (work > 0) & np.isfinite(self.log_price)
        w = self.time_weight
        mixed = np.exp(w * np.log(np.where(both, by_time, 1)) + (1 - w) * np.log(np.where(both, by_work, 1)))
        return np.asarray(np.where(both, mixed, by_time) * np.exp(self.calibration))

    def predict(self, parts: Floats, work: Floats) -> Floats:
        """Wall seconds on the candidate by query."""
        return np.asarray(self.by_term(parts, work).sum(axis=1))


def common_queries(measured: Measured, baseline: str, candidate: str) -> list[str]:
    """Queries that both sides ran warm and without failure, and that read the same tables and columns on both.

    Raises
    ------
    InputError
        There is none; the message lists what each side has.
    """
    seen = _seen(measured, baseline, candidate)
    names = {query for query, _ in seen[baseline] & seen[candidate]}
    if not names:
        found = {label: sorted({query for query, _ in pairs})[:8] for label, pairs in seen.items()}
        raise InputError(
            "no query ran on both sides",
            found="; ".join(f"{label}: {', '.join(names) or 'none'}" for label, names in found.items()),
            allowed="queries of the same description that read the same tables and columns, warm on both sides",
            do="set the job description to the query's name on both sides, and run each at least twice in a session",
        )
    return sorted(names, key=natural)


def queries_apart(measured: Measured, baseline: str, candidate: str) -> list[str]:
    """Queries that both sides ran warm, too, but that read other tables or columns there: they are left out."""
    seen = _seen(measured, baseline, candidate)
    ran = {label: {query for query, _ in pairs} for label, pairs in seen.items()}
    same = {query for query, _ in seen[baseline] & seen[candidate]}
    return sorted(ran[baseline] & ran[candidate] - same, key=natural)


def _seen(measured: Measured, baseline: str, candidate: str) -> dict[str, set[tuple[str, str | None]]]:
    """What each side ran warm and without failure: queries, each with what it reads."""
    good = measured.executions.filter(pl.col("why_not").is_null())
    return {
        label: set(good.filter(pl.col("label") == label).select("query", "fingerprint").iter_rows())
        for label in (baseline, candidate)
    }


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts q2 before q10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def term_names(columns: Sequence[str], groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """The term that each column counts as: accelerated operators with their plain twins, inseparable ones as one."""
    plain = {column: column.removesuffix(ACCELERATED) for column in columns}
    joined = {member: " + ".join(group) for group in groups for member in group}
    return {column: joined.get(name, name) for column, name in plain.items()}


def arrange(
    pieces: Cuts,
    prices: Floats,
    baseline: str,
    candidate: str,
    queries: Sequence[str],
    groups: Sequence[Sequence[str]] = (),
) -> Sides:
    """Both sides' time, split by the prices, as arrays by session, query and term."""
    name_of = term_names(pieces.columns, groups)
    terms = tuple(sorted(set(name_of.values())))
    gather = np.zeros((len(pieces.columns), len(terms)))
    gather[np.arange(len(pieces.columns)), [terms.index(name_of[column]) for column in pieces.columns]] = 1
    parts, work = split(pieces, prices) @ gather, amounts(pieces) @ gather
    return Sides(
        tuple(queries),
        terms,
        _cube(pieces.keys, parts, baseline, queries),
        _cube(pieces.keys, parts, candidate, queries),
        np.nan_to_num(np.nanmean(_cube(pieces.keys, work, baseline, queries), axis=0)),
    )


def _cube(keys: pl.DataFrame, by_term: Floats, label: str, queries: Sequence[str]) -> Floats:
    mine = keys.with_row_index("row").filter(pl.col("label") == label)
    sessions = sorted(set(mine["session"]))
    cube = np.full((len(sessions), len(queries), by_term.shape[1]), np.nan)
    place = {query: i for i, query in enumerate(queries)}
    for row, session, query in mine.select("row", "session", "query").iter_rows():
        if query in place:
            cube[sessions.index(session), place[query]] = by_term[row]
    return cube


def walls(cube: Floats) -> Floats:
    """Wall time by query: geometric means over sessions."""
    return np.asarray(np.exp(np.nanmean(np.log(cube.sum(axis=2)), axis=0)))


def mean_parts(cube: Floats) -> Floats:
    """Parts by query [query, term] that add up to `walls`."""
    mean = np.nanmean(cube, axis=0)
    return np.asarray(mean / mean.sum(axis=1, keepdims=True) * walls(cube)[:, None])


def factors(both: Sides, *, time_weight: float | None = None) -> Factors:
    """Factors from all queries of both sides.

    Each query weighs by one over its time on the candidate, so that a relative error counts the same in long and
    short ones. A term's factor is the ratio of its weighted sums; the log ratio's variance comes from the sessions'
    own sums (Welch), sessions being independent. It is drawn to the engine-wide factor by
    B = v / (v + spread**2), where v also holds what booking may get wrong, and spread is how much factors differ
    between terms. With one session on a side the variance is unknown (NaN) and only booking draws.

    `time_weight` is chosen by leaving out each query in turn unless it is given.
    """
    fitted = _fit(both)
    return _weighted(fitted, both, _best_time_weight(both) if time_weight is None else time_weight)


def _weighted(fitted: Factors, both: Sides, time_weight: float) -> Factors:
    """The factors with this weight, scaled so that the mean log error over the queries is nil."""
    plain = replace(fitted, time_weight=time_weight, calibration=0.0)
    errors = np.log(plain.predict(mean_parts(both.baseline), both.work)) - np.log(walls(both.candidate))
    return replace(plain, calibration=-float(errors.mean()))


def _fit(both: Sides) -> Factors:
    """Factors and prices, which no weight of time against work enters."""
    weight = 1 / walls(both.candidate)
    base, cand = _sums(both.baseline, weight), _sums(both.candidate, weight)
    overall = float((np.log(walls(both.baseline)) - np.log(walls(both.candidate))).mean())
    floor = FLOOR_SHARE * float((walls(both.baseline) * weight).sum())
    mean_base, mean_cand = base.mean(axis=0) + floor, cand.mean(axis=0) + floor * np.exp(-overall)
    raw = np.log(mean_base) - np.log(mean_cand)
    v_base, v_cand = _relative_variance(base, mean_base), _relative_variance(cand, mean_cand)
    variance = v_base + v_cand
    drawn = np.nan_to_num(variance) + _booking(both, weight, mean_base, mean_cand)
    spread = _spread(raw, drawn, mean_base, overall)
    shrinkage = drawn / (drawn + spread**2)
    work = (both.work * weight[:, None]).sum(axis=0)
    told = (work > 0) & ((both.work > 0).sum(axis=0) >= 2)
    return Factors(
        both.terms,
        raw,
        (1 - shrinkage) * raw + shrinkage * overall,
        np.sqrt((1 - shrinkage) ** 2 * variance + shrinkage**2 * spread**2),
        _welch(v_base, len(base), v_cand, len(cand)),
        shrinkage,
        np.where(told, np.log(mean_cand) - np.log(np.where(told, work, 1)), np.nan),
        overall,
        spread,
        1.0,
        0.0,
    )


def left_out_errors(both: Sides, time_weight: float) -> Floats:
    """Log of predicted over measured time on the candidate, of each query by factors from all the others."""
    return np.asarray(_left_out_errors(both, (time_weight,))[0])


def _left_out_errors(both: Sides, time_weights: Sequence[float]) -> Floats:
    """The same for several weights: [weight, query]."""
    parts, actual = mean_parts(both.baseline), walls(both.candidate)
    errors = np.zeros((len(time_weights), len(both.queries)))
    for i in range(len(both.queries)):
        training = both.without(i)
        fitted = _fit(training)
        for row, time_weight in enumerate(time_weights):
            predicted = _weighted(fitted, training, time_weight).predict(parts[[i]], both.work[[i]])[0]
            errors[row, i] = np.log(predicted / actual[i])
    return errors


def _best_time_weight(both: Sides) -> float:
    """The weight with the least mean square error over left-out queries."""
    if len(both.queries) < FEWEST_TO_CHOOSE:
        return TIME_WEIGHTS[0]
    losses = (_left_out_errors(both, TIME_WEIGHTS) ** 2).mean(axis=1)
    return TIME_WEIGHTS[int(losses.argmin())]


def _sums(cube: Floats, weight: Floats) -> Floats:
    """Weighted sum over queries by session and term; a query that a session lacks counts as in the other sessions."""
    filled = np.where(np.isnan(cube), np.nanmean(cube, axis=0, keepdims=True), cube)
    return np.asarray((filled * weight[None, :, None]).sum(axis=1))


def _relative_variance(sums: Floats, mean: Floats) -> Floats:
    """Variance of the mean over sessions, relative to it squared; unknown with one session."""
    if len(sums) < 2:
        return np.full(sums.shape[1], np.nan)
    return np.asarray(sums.var(axis=0, ddof=1) / len(sums) / mean**2)


def _welch(v_base: Floats, n_base: int, v_cand: Floats, n_cand: int) -> Floats:
    """Degrees of freedom by Welch and Satterthwaite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = (v_base + v_cand) ** 2 / (v_base**2 / (n_base - 1) + v_cand**2 / (n_cand - 1))
    return np.where(np.isfinite(degrees), degrees, float(max(min(n_base, n_cand) - 1, 1)))


def _booking(both: Sides, weight: Floats, mean_base: Floats, mean_cand: Floats) -> Floats:
    """Relative variance of a term's sums if a share of each query's wall time is booked wrongly."""
    found = np.zeros(len(both.terms))
    for cube, mean in ((both.baseline, mean_base), (both.candidate, mean_cand)):
        present = np.nanmean(cube, axis=0) > 0
        wrong = ((BOOKING_ERROR * walls(cube) * weight) ** 2)[:, None] * present
        found += wrong.sum(axis=0) / mean**2
    return found


def _spread(raw: Floats, variance: Floats, time: Floats, overall: float) -> float:
    """How much factors differ between terms beyond what chance explains, weighted by time."""
    weight = time / time.sum()
    seen = float((weight * (raw - overall) ** 2).sum() - (weight * np.minimum(variance, 1.0)).sum())
    return float(np.clip(np.sqrt(max(seen, 0.0)), LEAST_SPREAD, MOST_SPREAD))


def leave_one_out(
    pieces: Cuts, baseline: str, candidate: str, queries: Sequence[str], groups: Sequence[Sequence[str]] = ()
) -> pl.DataFrame:
    """Each query predicted from all the others: prices, factors, weights and interval know nothing of it.

    Returns
    -------
    DataFrame
        `query`, `predicted_s`, and `log_sd`: root mean square of the log errors that the other queries had when each
        of them was left out in turn.
    """
    rows = []
    for i, query in enumerate(queries):
        prices = session_prices(pieces, [other for other in queries if other != query])
        both = arrange(pieces, prices, baseline, candidate, queries, groups)
        training = both.without(i)
        fitted = factors(training)
        inner = left_out_errors(training, fitted.time_weight)
        predicted = fitted.predict(mean_parts(both.baseline)[[i]], both.work[[i]])[0]
        rows.append((query, float(predicted), float(np.sqrt((inner**2).mean())), fitted.time_weight))
    return pl.DataFrame(rows, schema=["query", "predicted_s", "log_sd", "time_weight"], orient="row")
