"""Predicted times on the candidate: per query, per operator, and as waterfall steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench import stats
from workbench.speedup import engines
from workbench.speedup.attribution.time_pieces import (
    COUNTS,
    EXECUTION_KEY,
    IS_FIXED,
    IS_USER_CODE,
    MAY_BE_OPAQUE,
    Measured,
)
from workbench.speedup.calibration.factor_model import FactorModel, ModelPredictor
from workbench.speedup.calibration.factors import (
    FIRST_RUN_NOISE,
    WARM_RUN_NOISE,
    Factors,
    map_columns_to_terms,
    strip_recording,
)
from workbench.speedup.calibration.plan_costs import Predictor, count_plan, measure_fixed_rates
from workbench.speedup.calibration.time_split import Floats, PieceArrays, build_piece_arrays, split_times, sum_work
from workbench.speedup.tables import PLANNED_NODES, PREDICTIONS, SAMPLED_QUERIES, STEPS

# Above this share of its nodes on the CPU, an operator counts as left on the CPU.
MOSTLY = 0.5
BY_TERM = dict.fromkeys(("session", "query", "operator"), pl.String()) | dict.fromkeys(
    ("baseline_s", "predicted_s", "factor"), pl.Float64()
)
# Sessions with a smaller share of shared times are not compared by pace: little rests on prices there.
MIN_SHARED_TIME = 0.1
# What factors of one suite are off by on another, beyond their left-out error: of a query, and of all queries together
# (log standard deviations). TPC-H to TPC-DS and back at scale 1, 2026-11-23: 0.21 and 0.16; totals 0.10 and 0.02.
TRANSFER_LOG_SD = 0.18
TRANSFER_COMMON_LOG_SD = 0.08
# Repeated runs (beyond the first of each query) that a log needs before its own noise counts.
MIN_NOISE_DEGREES = 5
# Queries of a session that the mean of its fixed costs is drawn to the recording's by, and the largest log of their
# ratio: further apart, something else is measured.
FEW_RATES, MAX_LOG_PACE = 2, 1.4
# Kinds of time that no engine runs as an operator.
PLAN_COSTS = "fixed costs of the plan"
UNCHANGED = "waits, driver and user code"
FILE_WRITES = frozenset({"WriteFiles", "DataWritingCommand"})
NO_OPERATORS = frozenset({"idle", "task overhead", "unattributed", PLAN_COSTS})
# Counts of `plan_costs.COSTS` by query.
PlanCounts = Mapping[str, Floats]


@dataclass(frozen=True)
class SampledError:
    """What a sample of a query says of its prediction: the log by which the true ratio is above it, and its variance.

    `log_variance` is that of the query's own error around what the sample shows.
    """

    log_error: float
    log_variance: float


# By query.
SampledErrors = Mapping[str, SampledError]

# Bars of a waterfall; the smallest steps are added up.
MAX_STEPS = 12
# A step below this share of the baseline's time counts as small.
MIN_STEP_SHARE = 0.005


def predict_queries(
    model: FactorModel,
    measured: Measured,
    *,
    overrides: Mapping[str, float] | None = None,
    level: float = stats.LEVEL,
    plans: PlanCounts | None = None,
    samples: SampledErrors | None = None,
) -> pl.DataFrame:
    """Predict the time of each query on the candidate.

    `measured`: Logs of the baseline, under any single label. First runs count: in production, most runs are first
    runs.
    `plans`: Counts of the candidate's plans by query (`load_plan_counts`); without one, the plan is expected to be that
    of the log with the operators left to Spark that the candidate left in the recording.
    `samples`: Errors of predictions that samples of these queries showed; each prediction moves towards its sample by
    the share of its own variance in both variances, and its interval narrows.

    Returns: Table `predictions`: one row per log and query; the runs of a query are added up.

    The interval is that of a new query, run on the candidate as often as here: t on the root mean square log error of
    left-out queries, widened by the noise of the runs on both sides, by that of the recording's sessions, by the spread
    of factors for the share of time in operators without a factor, and by `TRANSFER_LOG_SD` for the queries of a log
    that are not those of the recording.
    The noise is that of the shipped recording, or that of the log's own repeated runs where it is larger. An operator
    without a factor gets the engine-wide factor, or 1 if the candidate left it on the CPU or its engine does not
    support it. The interval does not include the effect of other data, other hardware or a busier cluster.
    """
    ready, pieces, fixed = _split_fixed_time(measured, model.candidate_engine)
    if not pieces.keys.height:
        return PREDICTIONS.frame([])
    fitted, unknown, parts, work = _apply_factors(model, pieces, overrides)
    runs = _count_query_runs(ready, pieces)
    predicted = _predict_parts(model, fitted, pieces, parts, work, plans).sum(axis=1)
    unsupported = _find_unsupported_operators(model, fitted)
    noise = pieces.keys.join(measure_run_noise(ready), on=["session", "query"], how="left", maintain_order="left")
    without_factor = [column for column, name in enumerate(fitted.terms) if name in unknown]
    unknown_share = parts[:, without_factor].sum(axis=1) / parts.sum(axis=1)
    log_sd = np.where(_is_planned(pieces, plans), *(_read_log_sd(model, one) for one in (model.by_plan, model.by_log)))
    variance = log_sd**2 + (unknown_share * model.spread) ** 2 + _transfer_variance(model, pieces)
    shift, variance = _correct_by_samples(pieces, variance, samples or {})
    predicted *= np.exp(-shift)
    half = _prediction_half_widths(model, variance + 2 * noise["variance"].to_numpy(), level)
    rows = []
    for i, (session, query) in enumerate(pieces.keys.select("session", "query").iter_rows()):
        n_executions, total_s = runs[i]
        ratio = float(parts[i].sum()) / float(predicted[i])
        times = _build_interval_columns(total_s, ratio, float(half[i]), fixed.get((session, query), NOTHING_FIXED))
        row = {"session": session, "query": query, "n_executions": n_executions, **times}
        for kind, operators in (("unsupported", unsupported), ("unknown", unknown)):
            seconds = {name: float(parts[i, j]) for j, name in enumerate(fitted.terms) if name in operators}
            largest = sorted(((part_s, name) for name, part_s in seconds.items() if part_s > 0), reverse=True)
            row[f"{kind}_share"] = sum(seconds.values()) / float(parts[i].sum()) * total_s / times["baseline_s"]
            row[f"{kind}_operators"] = [name for _, name in largest]
        rows.append(row)
    return PREDICTIONS.frame(rows)


def predict_by_term(
    model: FactorModel,
    measured: Measured,
    *,
    overrides: Mapping[str, float] | None = None,
    plans: PlanCounts | None = None,
) -> pl.DataFrame:
    """Predictions per run and operator: `session, query, operator, baseline_s, predicted_s, factor`.

    Runs of a query in a log are added up. Only operators with time on the baseline have a row; `PLAN_COSTS` has none
    there, and no factor. `operator` is a term: a group's is joined by " + ". `factor` is baseline over candidate by
    time alone; predictions also use work and learned multipliers, so that it is not `baseline_s / predicted_s`.
    `overrides`: Factors to use instead, by term. `plans`: As for `predict_queries`.
    """
    _, pieces, fixed = _split_fixed_time(measured, model.candidate_engine)
    fitted, _, parts, work = _apply_factors(model, pieces, overrides)
    predicted = _predict_parts(model, fitted, pieces, parts, work, plans)
    rows: list[tuple[str, str, str, float, float, float | None]] = []
    for i, (session, query) in enumerate(pieces.keys.select("session", "query").iter_rows()):
        rows += [
            (session, query, term, float(parts[i, j]), float(predicted[i, j]), float(np.exp(fitted.log_factor[j])))
            for j, term in enumerate(fitted.terms)
            if parts[i, j] > 0
        ]
        if predicted[i, -1] > 0:
            rows.append((session, query, PLAN_COSTS, 0.0, float(predicted[i, -1]), None))
        unchanged = fixed.get((session, query), NOTHING_FIXED)
        unchanged_s = unchanged.fixed_s / unchanged.n_runs
        if unchanged_s > 0:
            rows.append((session, query, UNCHANGED, unchanged_s, unchanged_s, 1.0))
    return pl.DataFrame(rows, schema=BY_TERM, orient="row")


def compare_paces(model: FactorModel, measured: Measured) -> dict[str, float]:
    """Measured shared times over those that the model's prices predict, by session; 1 where a row takes equally long.

    Another machine, other expressions or very little data move it. Prices are seconds on the recording's machine, so a
    prediction far from 1 is less certain. Sessions whose shared times are less than a tenth of their time, or that did
    no work in them, are left out.
    """
    _, pieces, _ = _split_fixed_time(measured, model.candidate_engine)
    by_price = (pieces.work * model.get_column_prices(pieces.columns)).sum(axis=1)
    table = pl.DataFrame({"owner": pieces.owner, "shared": pieces.shared, "s": pieces.wall_s, "by_price": by_price})
    sums = (
        table.join(pieces.keys.with_row_index("owner").cast({"owner": pl.Int64}), on="owner")
        .group_by("session")
        .agg(pl.col("s").sum(), pl.col("s", "by_price").filter("shared").sum().name.suffix("_shared"))
        .filter(pl.col("s_shared") >= MIN_SHARED_TIME * pl.col("s"), pl.col("by_price_shared") > 0)
    )
    return dict(sums.select("session", pl.col("s_shared") / pl.col("by_price_shared")).iter_rows())


def _apply_factors(
    model: FactorModel, pieces: PieceArrays, overrides: Mapping[str, float] | None
) -> tuple[Factors, frozenset[str], Floats, Floats]:
    """Factors with those of unseen terms added, the set of these terms, and arrays of time and work, [owner, term]."""
    name_of = map_columns_to_terms(pieces.columns, model.groups)
    fitted, unknown = _add_unseen_terms(
        model.build_factors(dict(overrides or {})), sorted(set(name_of.values())), model
    )
    gather = np.zeros((len(pieces.columns), len(fitted.terms)))
    for column, name in enumerate(pieces.columns):
        gather[column, fitted.terms.index(name_of[name])] = 1
    parts = split_times(pieces, model.get_column_prices(pieces.columns)) @ gather
    return fitted, unknown, np.asarray(parts), np.asarray(sum_work(pieces) @ gather)


def _predict_parts(
    model: FactorModel, fitted: Factors, pieces: PieceArrays, parts: Floats, work: Floats, plans: PlanCounts | None
) -> Floats:
    """Predicted seconds by row of `pieces.keys` and term, fixed costs of the plan last.

    Rows of queries in `plans` are predicted with these counts, the others with those that the pair's plans tell.
    """
    supported = engines.get_supported_operators(model.candidate_engine)
    unsupported = (
        frozenset()
        if supported is None
        else frozenset([name.removesuffix(engines.ACCELERATED) for name in pieces.planned.names]) - supported
    )
    seen = {term.operator for term in model.terms}
    counts = count_plan(pieces.planned, frozenset(model.left_operators) | (unsupported - seen))
    # Fixed costs of a log's plans over those of the recording, by row of `pieces.keys`; equal within a session. The
    # mean over the session's queries, drawn to 1 where they are few.
    if model.log_fixed_rate is None:
        cost_paces = np.ones(pieces.keys.height)
    else:
        rates = pl.Series(measure_fixed_rates(pieces) - model.log_fixed_rate).fill_nan(None)
        table = pieces.keys.select("session").with_columns(rate=rates)
        drawn = pl.col("rate").sum() / (pl.col("rate").count() + FEW_RATES)
        log_pace = table.select(drawn.over("session"))["rate"].fill_null(0.0).to_numpy()
        cost_paces = np.asarray(np.exp(np.clip(log_pace, -MAX_LOG_PACE, MAX_LOG_PACE)))
    paces = cost_paces[:, None]
    predicted = fitted.predict_by_term(parts, work, counts * paces, fitted.by_log)
    is_planned = _is_planned(pieces, plans)
    if is_planned.any():
        counts[is_planned] = [(plans or {})[query] for query in pieces.keys["query"].to_numpy()[is_planned]]
        predicted[is_planned] = fitted.predict_by_term(parts, work, counts * paces, fitted.by_plan)[is_planned]
    return predicted


def _is_planned(pieces: PieceArrays, plans: PlanCounts | None) -> npt.NDArray[np.bool_]:
    """Mask of the rows of `pieces.keys` whose query has a plan."""
    return np.array([plans is not None and query in plans for query in pieces.keys["query"]], dtype=np.bool_)


def load_plan_counts(folder: str | Path) -> PlanCounts:
    """Counts of the plans in a run folder of `workbench speedup plan`, by query."""
    nodes = PLANNED_NODES.read(Path(folder) / "tables")
    counts = nodes.group_by("query").agg(fast=pl.col("accelerated").sum(), n=pl.len())
    return {query: np.array([1.0, fast, n - fast]) for query, fast, n in counts.iter_rows()}


def list_sampled_errors(queries: pl.DataFrame) -> SampledErrors:
    """Errors by query. `queries`: Columns `query, log_error, log_sd`; null without a sample."""
    known = queries.filter(pl.col("log_error").is_not_null())
    return {
        query: SampledError(error, sd**2)
        for query, error, sd in known.select("query", "log_error", "log_sd").iter_rows()
    }


def load_sampled_errors(folder: str | Path) -> SampledErrors:
    """Errors in a run folder of `workbench speedup sample`."""
    return list_sampled_errors(SAMPLED_QUERIES.read(Path(folder) / "tables"))


def read_candidate_plans(measured: Measured, candidate: str) -> PlanCounts:
    """Counts of the plans that a recorded candidate had, by query; averaged over its sessions."""
    pieces = build_piece_arrays(select_counted_runs(measured, candidate))
    counts = pl.DataFrame(count_plan(pieces.planned)).with_columns(query=pieces.keys["query"])
    means = counts.group_by("query").mean()
    return {row[0]: np.array(row[1:]) for row in means.select("query", *counts.columns[:-1]).iter_rows()}


@dataclass(frozen=True)
class FixedTime:
    """Seconds of all runs of a query that no engine changes, and of the rest those that it may leave as they are.

    The latter share their time with a user's code, the read of a cache, or a write that stays on Spark.
    """

    fixed_s: float = 0.0
    opaque_s: float = 0.0
    user_code_s: float = 0.0  # of the fixed
    n_runs: int = 1


NOTHING_FIXED = FixedTime()


@lru_cache(maxsize=1)
def _split_fixed_time(
    measured: Measured, candidate_engine: str
) -> tuple[Measured, PieceArrays, Mapping[tuple[str, str], FixedTime]]:
    """The counted runs without the time that no engine changes, also as arrays, and that time by session and query.

    Cached for the last input, because what-if repeats it with other factors.
    """
    counted = measured.include_first_runs()
    counted = counted.select(pl.col("why_not").is_null())
    touchable, fixed = counted.split_off(IS_FIXED)
    supported = engines.get_supported_operators(candidate_engine)
    left = FILE_WRITES - supported if supported is not None else frozenset()
    # A write that stays on Spark shares its time with what feeds it, and no recording tells its price.
    writes = pl.any_horizontal(pl.lit(value=False), *(pl.col("operators").list.contains(name) for name in sorted(left)))
    opaque = touchable.sum_pieces(MAY_BE_OPAQUE | writes)
    sums = counted.executions.select(*EXECUTION_KEY, "query").sort(*EXECUTION_KEY)
    user_code = counted.sum_pieces(IS_USER_CODE)
    for name, times in (("fixed_s", fixed), ("opaque_s", opaque), ("user_code_s", user_code)):
        sums = sums.join(times.rename({"wall_s": name}), on=EXECUTION_KEY, how="left", maintain_order="left")
    sums = (
        sums.group_by("session", "query", maintain_order=True)
        .agg(pl.col("fixed_s", "opaque_s", "user_code_s").sum(), n_runs=pl.len())
        .filter((pl.col("fixed_s") > 0) | (pl.col("opaque_s") > 0))
    )
    by_query = {(session, query): FixedTime(*seconds) for session, query, *seconds in sums.iter_rows()}
    return touchable, build_piece_arrays(touchable), by_query


def _count_query_runs(measured: Measured, pieces: PieceArrays) -> list[tuple[int, float]]:
    """Number of runs of each query, and their total time in seconds, in the order of `pieces.keys`."""
    counted = measured.executions.filter(COUNTS)
    runs = counted.group_by("label", "session", "query").agg(n=pl.len(), total_s=pl.col("wall_s").sum())
    joined = pieces.keys.join(runs, on=["label", "session", "query"], how="left", maintain_order="left")
    return [(int(n), float(total)) for n, total in joined.select("n", "total_s").iter_rows()]


def _add_unseen_terms(fitted: Factors, terms: list[str], model: FactorModel) -> tuple[Factors, frozenset[str]]:
    """Add a factor for each term that the model does not have; returns the factors and the set of these terms."""
    new = [term for term in terms if term not in fitted.terms]
    supported = engines.get_supported_operators(model.candidate_engine)
    log_factor = [0.0 if supported is not None and term not in supported else model.log_overall for term in new]
    extra = np.full(len(new), np.nan)
    return (
        replace(
            fitted,
            terms=(*fitted.terms, *new),
            log_raw=np.concatenate([fitted.log_raw, log_factor]),
            log_factor=np.concatenate([fitted.log_factor, log_factor]),
            log_se=np.concatenate([fitted.log_se, extra]),
            degrees=np.concatenate([fitted.degrees, extra]),
            shrinkage=np.concatenate([fitted.shrinkage, np.ones(len(new))]),
            log_price=np.concatenate([fitted.log_price, extra]),
            log_even=np.concatenate([fitted.log_even, log_factor]),
            by_plan=_add_multipliers(fitted.by_plan, len(new)),
            by_log=_add_multipliers(fitted.by_log, len(new)),
        ),
        frozenset(new) - NO_OPERATORS,
    )


def _add_multipliers(predictor: Predictor, n: int) -> Predictor:
    """The predictor with multipliers of 1 for n more terms."""
    members = [
        replace(member, multipliers=np.concatenate([member.multipliers, np.ones(n)])) for member in predictor.members
    ]
    return replace(predictor, members=tuple(members))


def _find_unsupported_operators(model: FactorModel, fitted: Factors) -> frozenset[str]:
    """Operators that the candidate left on the CPU in the recording, or that its engine does not support."""
    seen = {term.operator: term.left_on_cpu_share for term in model.terms}
    supported = engines.get_supported_operators(model.candidate_engine)
    operators = {
        name for name, share in seen.items() if share is not None and share > MOSTLY and name not in NO_OPERATORS
    }
    if supported is not None:
        operators |= {name for name in fitted.terms if name not in seen and name not in supported}
    return frozenset(operators - NO_OPERATORS)


def measure_run_noise(measured: Measured) -> pl.DataFrame:
    """Variance of the log time of each query in a log, were it run again: `session, query, variance`.

    A run has the noise of the shipped recording, that of first runs or of later ones; where a log repeats queries and
    its later runs vary more, as on a busy machine, it has theirs. Runs of a query are independent.
    """
    counted = measured.executions.filter(COUNTS)
    later = (
        counted.filter(~pl.col("cold")).group_by("session", "query").agg(s2=pl.col("wall_s").log().var(), n=pl.len())
    )
    session_noise = (
        later.filter(pl.col("n") > 1)
        .group_by("session")
        .agg(own=(pl.col("s2") * (pl.col("n") - 1)).sum() / (pl.col("n") - 1).sum(), degrees=(pl.col("n") - 1).sum())
    )
    reliable_noise = session_noise.filter(pl.col("degrees") >= MIN_NOISE_DEGREES).select("session", "own")
    first, repeated = (noise.query_log_sd**2 for noise in (FIRST_RUN_NOISE, WARM_RUN_NOISE))
    run = pl.max_horizontal(pl.when("cold").then(first).otherwise(repeated), pl.col("own").fill_null(0.0))
    share = pl.col("wall_s") / pl.col("wall_s").sum().over("session", "query")
    table = counted.join(reliable_noise, on="session", how="left").with_columns(variance=run * share**2)
    return table.group_by("session", "query").agg(pl.col("variance").sum())


def _read_log_sd(model: FactorModel, predictor: ModelPredictor) -> float:
    """Error of left-out queries; without any, the spread of factors is all that is known of it."""
    return max(model.spread, 0.5) if predictor.log_sd is None else predictor.log_sd


def is_of_recording(model: FactorModel, queries: pl.Series) -> bool:
    """Whether all of these queries are, by name, among those that the factors were made from."""
    return set(queries) <= {strip_recording(query) for query in model.queries}


def _transfer_variance(model: FactorModel, pieces: PieceArrays) -> Floats:
    """Variance of a query's log error that another suite adds, by row of `pieces.keys`."""
    by_session = pieces.keys.select("session", "query").group_by("session").agg("query")
    is_own = {session: is_of_recording(model, pl.Series(queries)) for session, queries in by_session.iter_rows()}
    return np.array([0.0 if is_own[session] else TRANSFER_LOG_SD**2 for session in pieces.keys["session"]])


def _correct_by_samples(pieces: PieceArrays, variance: Floats, samples: SampledErrors) -> tuple[Floats, Floats]:
    """Log by which each predicted ratio moves, and the variance of what is left, by row of `pieces.keys`.

    `variance`: Of the log error without a sample.
    """
    known = [samples.get(query) for query in pieces.keys["query"]]
    error = np.array([0.0 if sample is None else sample.log_error for sample in known])
    own = np.array([np.inf if sample is None else sample.log_variance for sample in known])
    weight = variance / (variance + own)
    return weight * error, variance * (1 - weight)


def _prediction_half_widths(model: FactorModel, variance: Floats, level: float) -> Floats:
    """Half width of the prediction interval of the log ratio. `variance`: Of a query's log ratio, with its noise."""
    from scipy.special import stdtrit

    t = float(stdtrit(max(model.n_queries - 1, 1), (1 + level) / 2))
    return np.asarray(np.hypot(t * np.sqrt(variance), session_half_width(model, level)))


def session_half_width(model: FactorModel, level: float) -> float:
    """Half width, on the log scale, of the error of all factors together, from the recording's sessions.

    Left-out errors do not have it: all queries share it. Its degrees of freedom are those of the sessions, so two noisy
    sessions a side give wide intervals; with one session it comes from the noise of the shipped recording.
    """
    from scipy.special import stdtrit

    n_sessions = (model.n_baseline_sessions, model.n_candidate_sessions)
    degrees = sum(n_sessions) - 2 if min(n_sessions) > 1 else max(model.n_queries - 1, 1)
    return float(stdtrit(degrees, (1 + level) / 2)) * (model.overall_log_se or 0.0)


def sum_query_errors(predictions: pl.DataFrame, model: FactorModel, level: float) -> Floats:
    """Half widths in seconds, below and above the queries' sum; their own errors are independent, the common is added.

    `predictions`: `query, predicted_s, predicted_low_s, predicted_high_s` of `predict_queries`.
    """
    from scipy.special import stdtrit

    # What may be a user's code is doubtful in all queries at once.
    doubtful = pl.col("doubtful_s").fill_null(0.0)
    by_query = (
        predictions.with_columns(predicted_high_s=pl.col("predicted_high_s") - doubtful)
        .group_by("query", maintain_order=True)
        .agg(pl.col("predicted_s", "predicted_low_s", "predicted_high_s").sum())
    )
    # Errors are of the time that an engine changes.
    total = float(by_query["predicted_s"].sum()) - float(predictions["fixed_s"].sum())
    below = float(((by_query["predicted_s"] - by_query["predicted_low_s"]) ** 2).sum()) ** 0.5
    above = float(((by_query["predicted_high_s"] - by_query["predicted_s"]) ** 2).sum()) ** 0.5
    # Log standard error that all predictions of a log share: of the correction, of sessions, of another suite. Sessions
    # are that of the log and one on the candidate; those of the recording are in `session_half_width`.
    queries = predictions["query"]
    correction_se = (model.by_log.log_sd or model.spread) / np.sqrt(model.n_queries)
    transfer = 0.0 if is_of_recording(model, queries) else TRANSFER_COMMON_LOG_SD
    log_standard_error = float(np.sqrt(correction_se**2 + 2 * FIRST_RUN_NOISE.session_log_sd**2 + transfer**2))
    half = float(stdtrit(max(model.n_queries - 1, 1), (1 + level) / 2)) * log_standard_error
    half = float(np.hypot(half, session_half_width(model, level)))
    doubtful_s = float(predictions.select(doubtful.sum()).item())
    below, above = np.hypot(below, total * (1 - np.exp(-half))), np.hypot(above, total * (np.exp(half) - 1))
    return np.array([below, above + doubtful_s])


def _build_interval_columns(touchable_s: float, ratio: float, half: float, fixed: FixedTime) -> dict[str, float]:
    """Columns with a query's predicted seconds and ratio, and their intervals.

    `ratio`: Of the time that an engine changes; `half`: half width of its log. The upper end of the time has all that
    may be a user's code unchanged.
    """
    lower, upper = float(np.exp(-half)), float(np.exp(half))
    baseline_s, predicted_s = touchable_s + fixed.fixed_s, touchable_s / ratio + fixed.fixed_s
    low_s = touchable_s / ratio * lower + fixed.fixed_s
    doubtful_s = max(0.0, min(fixed.opaque_s, touchable_s) * (1 - 1 / ratio))
    high_s = touchable_s / ratio * upper + fixed.fixed_s + doubtful_s
    return {
        "baseline_s": baseline_s,
        "predicted_s": predicted_s,
        "predicted_low_s": low_s,
        "predicted_high_s": high_s,
        "ratio": baseline_s / predicted_s,
        "ratio_low": baseline_s / high_s,
        "ratio_high": baseline_s / low_s,
        "fixed_s": fixed.fixed_s,
        "opaque_s": fixed.opaque_s,
        "user_code_s": fixed.user_code_s,
        "doubtful_s": doubtful_s,
    }


def select_counted_runs(measured: Measured, label: str) -> Measured:
    """The counted executions of one side, with their pieces."""
    return measured.select(pl.col("label") == label, COUNTS)


def build_steps(
    model: FactorModel,
    side: Measured,
    pairs: pl.DataFrame,
    *,
    overrides: Mapping[str, float] | None = None,
    level: float = stats.LEVEL,
    plans: PlanCounts | None = None,
) -> pl.DataFrame:
    """Steps of each query from its time on the baseline to its predicted time, operator by operator.

    `pairs`: Table `pairs`: measured times on both sides; queries missing there are left out.

    Returns: Table `steps`: per query the baseline's time, at most 12 steps, the prediction and the measured
    candidate. The baseline's time and the steps add up to the prediction.

    It does not show how well the factors predict new queries; `validate` does.
    """
    # Mean over sessions of each operator's time per run of the query; a session without it counts as 0.
    terms = predict_by_term(model, side, overrides=overrides, plans=plans)
    n = terms.group_by("query").agg(n=pl.col("session").n_unique())
    parts = (
        terms.group_by("query", "operator")
        .agg(pl.col("baseline_s").sum(), pl.col("predicted_s").sum(), pl.col("factor").first())
        .join(n, on="query")
        .select(
            "query",
            "operator",
            "factor",
            baseline_s=pl.col("baseline_s") / pl.col("n"),
            predicted_s=pl.col("predicted_s") / pl.col("n"),
        )
        .sort("query", "operator")
    )
    predicted = predict_queries(model, side, overrides=overrides, level=level, plans=plans)
    reach = predicted.group_by("query").agg(
        low=(pl.col("predicted_low_s") / pl.col("predicted_s")).mean(),
        high=(pl.col("predicted_high_s") / pl.col("predicted_s")).mean(),
    )
    ends = {query: (float(low), float(high)) for query, low, high in reach.iter_rows()}
    by_query = {str(query): frame for (query,), frame in parts.group_by("query", maintain_order=True)}
    rows: list[dict[str, object]] = []
    for pair in pairs.iter_rows(named=True):
        if pair["query"] in by_query:
            rows += _build_query_steps(pair, by_query[pair["query"]], ends[pair["query"]], model)
    return STEPS.frame(rows)


def _build_query_steps(
    pair: Mapping[str, object], parts: pl.DataFrame, ends: tuple[float, float], model: FactorModel
) -> list[dict[str, object]]:
    """Rows of table STEPS for one query.

    `pair`: Its row of table PAIRS. `ends`: Lower and upper bound of the predicted time, as multiples of it.
    """
    before_s = float(pair["baseline_s"])  # type: ignore[arg-type]
    # Means over sessions, scaled to the query's time in `pairs`.
    scale = before_s / float(parts["baseline_s"].sum())
    rows = [_build_total_row(model.baseline, "baseline", before_s)]
    reached = before_s
    for label, part_s, after_s, factor in _select_largest_steps(parts):
        change = (after_s - part_s) * scale
        reached += change
        kind = "faster" if change <= 0 else "slower"
        rows.append(_build_step_row(label, kind, change, reached, before_s=part_s * scale, factor=factor))
    rows.append(_build_total_row(f"{model.candidate}, predicted", "predicted", reached, ends))
    rows.append(_build_total_row(f"{model.candidate}, measured", "measured", float(pair["candidate_s"])))  # type: ignore[arg-type]
    return [{"query": pair["query"], "step": number} | row for number, row in enumerate(rows)]


def _select_largest_steps(parts: pl.DataFrame) -> list[tuple[str, float, float, float | None]]:
    """Select the operators whose time changes most, and sum up the rest as one step.

    Returns: Operator, seconds before, seconds after, factor (null for the rest); largest saving first, the rest last.

    `parts`: As `average_parts` returns them.
    """
    change = pl.col("predicted_s") - pl.col("baseline_s")
    ranked = parts.sort(change.abs(), "operator", descending=[True, False])
    seen = ranked.filter(change.abs() >= MIN_STEP_SHARE * pl.col("baseline_s").sum()).height
    n_steps = min(seen, MAX_STEPS - 1)
    # A rest of one operator keeps its own name.
    n_steps = ranked.height if ranked.height <= n_steps + 1 else n_steps
    largest, smaller = ranked.head(n_steps).sort(change, "operator"), ranked.tail(ranked.height - n_steps)
    columns = ["operator", "baseline_s", "predicted_s", "factor"]
    steps: list[tuple[str, float, float, float | None]] = list(largest.select(columns).iter_rows())
    if smaller.height:
        name = f"{smaller.height} smaller operators"
        steps.append((name, float(smaller["baseline_s"].sum()), float(smaller["predicted_s"].sum()), None))
    return steps


def _build_total_row(
    label: str, kind: str, time_s: float, ends: tuple[float, float] | None = None
) -> dict[str, object]:
    """Row of table STEPS for a whole time; `ends` are the bounds of its interval, as multiples of it."""
    low, high = (time_s * ends[0], time_s * ends[1]) if ends else (None, None)
    return _build_step_row(label, kind, time_s, time_s, total=True) | {"low_s": low, "high_s": high}


def _build_step_row(
    label: str,
    kind: str,
    time_s: float,
    end_s: float,
    *,
    total: bool = False,
    before_s: float | None = None,
    factor: float | None = None,
) -> dict[str, object]:
    """Row of table STEPS: the change `time_s` of a bar that ends at `end_s`; a total bar begins at 0."""
    return {
        "what": label,
        "kind": kind,
        "total": total,
        "time_s": time_s,
        "end_s": end_s,
        "low_s": None,
        "high_s": None,
        "before_s": before_s,
        "factor": factor,
    }
