"""Calibration of a pair: factor table with verdicts, query pairs, overall ratio and factor model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import workbench
from workbench import stats
from workbench.core import host
from workbench.core.errors import InputError
from workbench.core.formats import fit_answer
from workbench.speedup import tables
from workbench.speedup.attribution.time_pieces import COUNTS, Measured
from workbench.speedup.calibration.factor_model import FactorModel, ModelPredictor, Term
from workbench.speedup.calibration.factors import (
    FIRST_RUN_NOISE,
    Factors,
    PairedTimes,
    RunNoise,
    arrange_paired_times,
    average_parts,
    fit_factors,
    list_common_queries,
    map_columns_to_terms,
    measure_jackknife_variance,
    measure_session_variances,
    predict_left_out_queries,
    query_wall_times,
    strip_recording,
)
from workbench.speedup.calibration.plan_costs import measure_fixed_rates
from workbench.speedup.calibration.time_split import (
    Floats,
    PieceArrays,
    build_piece_arrays,
    find_inseparable_columns,
    fit_session_prices,
    fit_unit_costs,
)
from workbench.speedup.engines import ACCELERATED
from workbench.speedup.tables import LEAST_RATIO
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED

if TYPE_CHECKING:
    from workbench.speedup.comparison.pair import Pair

# Verdicts are claims over all operators together: at most one in twenty pairs of equal sides may have a false one. At
# 95 %, 5.5 % of 200 simulated pairs had one, because prices are fitted to the same times that they split.
VERDICT_LEVEL = 0.97
WEAK_SHARE, WEAK_QUERIES, WEAK_SHRINKAGE = 0.01, 2, 0.5
# With a smaller share of its time from its own metrics, a factor rests mostly on the split of shared times.
MIN_SPLIT_SHARE = 0.5
# Below this share of a side's time an operator counts as absent there.
ABSENT_SHARE = 0.0005
CALIBRATED, BY_LOG, CONSTANT, SEED = "calibrated", "log alone", "constant", "seed"
MIN_QUERIES = 4
N_BOOTSTRAP_DRAWS = 5000


@dataclass(frozen=True)
class CalibrationResult:
    """Tables `factors` and `pairs`, the overall ratio, and the model that predictions are made with."""

    baseline: str
    candidate: str
    factors: pl.DataFrame
    pairs: pl.DataFrame
    overall: stats.Interval
    verdict: stats.Verdict
    model: FactorModel
    pieces: PieceArrays
    queries: tuple[str, ...]
    session_variances: tuple[float | None, float | None]
    first_runs: bool = False

    @property
    def prediction_note(self) -> str | None:
        """What a reader of predictions must know first; null where operators tell queries apart."""
        if not self.model.by_log.is_constant:
            return None
        return (
            "Factors of operators do not beat one ratio for all queries here (too few queries, or too much noise):"
            " predictions use that ratio."
        )

    @property
    def answer(self) -> str:
        """The result in one sentence, with its interval."""
        ratio, other = self.overall, self.baseline
        ends = ", no interval"
        if ratio.low is not None and ratio.high is not None:
            ends = f", {ratio.low:.2f} to {ratio.high:.2f}"
        queries = f"over {len(self.queries)} queries"
        if self.verdict == FASTER:
            claim = f"{self.candidate} is {ratio.estimate:.2f}x faster than {other}{ends}"
            short = f"The candidate is {ratio.estimate:.2f}x faster{ends}"
            return fit_answer(f"{claim}, {queries}.", f"{claim}.", f"{short}, {queries}.")
        speed = f"{ratio.estimate:.2f}x its speed{ends}"
        claim, short = {
            SLOWER: (f"{self.candidate} is slower than {other}", "The candidate is slower"),
            SAME: (f"{self.candidate} is as fast as {other}", "The candidate is as fast"),
            UNDECIDED: (f"Not decided whether {self.candidate} is faster than {other}", "Not decided"),
        }[self.verdict]
        return fit_answer(f"{claim}: {speed}, {queries}.", f"{claim}: {speed}.", f"{short}: {speed}, {queries}.")

    @property
    def details(self) -> list[str]:
        """What the ratio rests on."""
        ratio = self.overall
        sides = f"{self.candidate} against {self.baseline}"
        told = [f"{sides}: {len(self.queries)} queries, {100 * ratio.level:.0f} % interval."]
        if ratio.low is None or ratio.high is None:
            told = [f"{sides}: {len(self.queries)} queries; no interval, because a side has one session."]
        totals = [float(self.pairs[f"{side}_s"].sum()) for side in ("baseline", "candidate")]
        if all(totals):
            total = f"{totals[0]:,.1f} s become {totals[1]:,.1f} s, {totals[0] / totals[1]:.2f}x"
            told.append(f"The ratio is the geometric mean over queries; of all queries together {total}.")
        if self.verdict == SAME:
            told.append(f"As fast means within {100 * stats.MARGIN:.0f} %.")
        return [*told, *(["Only first runs are compared, start-up included."] if self.first_runs else [])]


def calibrate_pair(
    measured: Measured,
    baseline: str,
    candidate: str,
    *,
    queries: Sequence[str] | None = None,
    level: float = stats.LEVEL,
    engines: tuple[str, str] = ("", ""),
    first_runs: bool = False,
) -> CalibrationResult:
    """How many times faster is each operator on the candidate than on the baseline?

    `measured`: Both sides, from `workbench.speedup.attribution.time_pieces`; only executions that count are used.
    `queries`: Queries to use, out of those common to both sides; all by default.
    `first_runs`: The runs that count are first ones (`Measured.select_first_runs`). Where a side has one session,
    intervals then rest on the spread over queries and on `FIRST_RUN_NOISE`.

    Returns: Tables `factors` and `pairs`; intervals are null where a side has one session, unless `first_runs`.

    Method and formulas: `docs/guide/speedup-method.md`. A factor holds for these queries on this data and machine; the
    left-out queries of `validate` show how far it holds elsewhere. Verdicts are Holm's at 97 % over all operators.
    """
    common = list_common_queries(measured, baseline, candidate)
    chosen = [query for query in common if queries is None or query in queries]
    if not chosen:
        raise InputError("no query ran on both sides", found=list(queries or ()), allowed=common)
    counted = measured.select(pl.col("label").is_in([baseline, candidate]), pl.col("query").is_in(chosen), COUNTS)
    noise = FIRST_RUN_NOISE if first_runs else None
    return _Calibration(counted, (baseline, candidate), tuple(chosen), level, noise).build_result(engines)


def calibrate_with_origin(pair: Pair, level: float) -> CalibrationResult:
    """Factors of a pair, in a model that names its logs, the differences between the sides and the machine."""
    result = calibrate_pair(
        pair.measured, pair.baseline, pair.candidate, level=level, engines=pair.engines, first_runs=pair.first_runs
    )
    origin = {
        "sources": pair.sources,
        "comparability": pair.comparability.filter(pl.col("severity") != "ok").to_dicts(),
        "host": host.read_host_facts(),
    }
    return replace(result, model=result.model.model_copy(update=origin))


class _Calibration:
    """The steps of a calibration, and what they share: pieces, paired times, groups, fitted factors."""

    def __init__(
        self,
        counted: Measured,
        labels: tuple[str, str],
        queries: tuple[str, ...],
        level: float,
        noise: RunNoise | None,
    ) -> None:
        self.labels, self.queries, self.level = labels, queries, level
        self.pieces = build_piece_arrays(counted)
        self.groups = find_inseparable_columns(self.pieces)
        prices = fit_session_prices(self.pieces, queries)
        self.times = arrange_paired_times(self.pieces, prices, *labels, queries, self.groups, noise)
        if noise is not None and len(queries) > 2 and min(len(self.times.baseline), len(self.times.candidate)) < 2:
            variance = measure_jackknife_variance(self.pieces, self.times, *labels, self.groups)
            self.times = replace(self.times, jackknife_variance=variance)
        self.factors = fit_factors(self.times)
        by_query = counted.executions.group_by("label", "session", "query").len()
        self.n_passes = int(by_query["len"].min() or 0)  # type: ignore[arg-type]

    def build_result(self, engines: tuple[str, str]) -> CalibrationResult:
        table = self._build_factor_table()
        return CalibrationResult(
            *self.labels,
            table,
            _build_pairs(self.times, self.level),
            _overall_ratio_interval(self.times, self.level),
            stats.decide_verdicts([_overall_ratio_interval(self.times, VERDICT_LEVEL)])[0].verdict,
            self._build_model(table, engines),
            self.pieces,
            self.queries,
            measure_session_variances(self.times),
            self.times.noise is not None,
        )

    def _build_factor_table(self) -> pl.DataFrame:
        """Build table FACTORS: the factor of each term with its interval, verdict, quality and shares of the time."""
        fitted, times = self.factors, self.times
        base, cand = average_parts(times.baseline), average_parts(times.candidate)
        cpu_shares = _share_left_on_cpu(self.pieces, self.groups, self.labels[1], fitted.terms)
        # Share of the baseline's time of each term that lies in pieces with no other operator.
        pieces = self.pieces
        baseline = self.labels[0]
        name_of = map_columns_to_terms(pieces.columns, self.groups)
        alone, total = dict.fromkeys(fitted.terms, 0.0), dict.fromkeys(fitted.terms, 0.0)
        value = pieces.work / np.maximum(pieces.work.sum(axis=1, keepdims=True), 1e-30) * pieces.wall_s[:, None]
        value = value * (pieces.keys["label"] == baseline).to_numpy()[pieces.owner][:, None]
        for column, name in enumerate(pieces.columns):
            total[name_of[name]] += float(value[:, column].sum())
            alone[name_of[name]] += float(value[~pieces.shared, column].sum())
        alone = {term: alone[term] / total[term] if total[term] else 0.0 for term in fitted.terms}
        qualities = [_classify_quality(fitted, base, cand, i) for i in range(len(fitted.terms))]
        decisions = _decide_verdicts(fitted, times, qualities)
        rows = []
        for i, term in enumerate(fitted.terms):
            error, estimate = float(fitted.log_se[i]), float(fitted.log_factor[i])
            if not np.isfinite(error) or error <= 0:
                interval = stats.Interval(float(np.exp(estimate)), None, None, self.level, 0, "one session")
            else:
                interval = stats.log_interval(
                    estimate, error, float(fitted.degrees[i]), n=0, level=self.level, method="Welch, drawn"
                )
            quality, note = qualities[i]
            split_off = 1 - alone.get(term, 0.0)
            if note is None and split_off > 1 - MIN_SPLIT_SHARE:
                note = f"{100 * split_off:.0f} % of its time on the baseline is split off shared times by prices"
            if (
                note is None
                and decisions[i].verdict == UNDECIDED
                and (interval.low is not None and interval.high is not None and not interval.low <= 1 <= interval.high)
            ):
                family = f"all {len(fitted.terms)} operators together"
                note = f"undecided: verdicts hold for {family}, its interval for it alone"
            rows.append(
                {
                    "operator": term,
                    "factor": float(np.exp(fitted.log_factor[i])),
                    "factor_low": interval.low,
                    "factor_high": interval.high,
                    "verdict": decisions[i].verdict,
                    "quality": quality,
                    "note": note,
                    "measured_factor": float(np.exp(fitted.log_raw[i])),
                    "shrinkage": float(fitted.shrinkage[i]),
                    "adjusted_p_value": decisions[i].adjusted_p_value,
                    "baseline_s": float(base[:, i].sum()),
                    "candidate_s": float(cand[:, i].sum()),
                    "baseline_share": float(base[:, i].sum() / base.sum()),
                    "candidate_share": float(cand[:, i].sum() / cand.sum()),
                    "own_metric_share": alone.get(term, 0.0),
                    "left_on_cpu_share": cpu_shares.get(term),
                    "n_queries": int((base[:, i] > 0).sum()),
                    "n_baseline_sessions": len(times.baseline),
                    "n_candidate_sessions": len(times.candidate),
                    "n_passes": self.n_passes,
                    "runs": _name_runs(times),
                }
            )
        return tables.FACTORS.frame(rows).sort("baseline_s", "operator", descending=[True, False])

    def _build_model(self, table: pl.DataFrame, engines: tuple[str, str]) -> FactorModel:
        """Build the model that predicts the candidate's time from a baseline's log; `table` is FACTORS."""
        fitted, times = self.factors, self.times
        prices = fit_unit_costs(self.pieces, self.queries)
        rows = {row["operator"]: row for row in table.iter_rows(named=True)}
        place = {term: i for i, term in enumerate(fitted.terms)}
        is_baseline = (self.pieces.keys["label"] == self.labels[0]).to_numpy()[self.pieces.owner]
        used = np.asarray((self.pieces.work[is_baseline] > 0).any(axis=0))
        return FactorModel(
            baseline=self.labels[0],
            candidate=self.labels[1],
            baseline_engine=engines[0],
            candidate_engine=engines[1],
            terms=[
                Term(
                    operator=term,
                    log_factor=float(fitted.log_factor[i]),
                    log_se=_finite_or_none(fitted.log_se[i]),
                    log_price=_finite_or_none(fitted.log_price[i]),
                    baseline_share=rows[term]["baseline_share"],
                    n_queries=rows[term]["n_queries"],
                    quality=rows[term]["quality"],
                    left_on_cpu_share=rows[term]["left_on_cpu_share"],
                )
                for term, i in place.items()
            ],
            groups=[list(group) for group in self.groups],
            prices={name: float(prices[i]) for i, name in enumerate(self.pieces.columns) if used[i]},
            log_overall=fitted.log_overall,
            overall_log_se=_estimate_log_ratio_error(times),
            spread=fitted.spread,
            by_plan=ModelPredictor.build_from(fitted.by_plan, fitted.terms),
            by_log=ModelPredictor.build_from(fitted.by_log, fitted.terms),
            log_fixed_rate=_average_fixed_rate(self.pieces, self.labels[0]),
            left_operators=sorted(times.left_operators),
            n_queries=len(times.queries),
            queries=list(times.queries),
            n_baseline_sessions=len(times.baseline),
            n_candidate_sessions=len(times.candidate),
            n_passes=max(self.n_passes, 1),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            package_version=workbench.__version__,
        )


def _average_fixed_rate(pieces: PieceArrays, label: str) -> float | None:
    """Mean log rate of a side (`measure_fixed_rates`); null where none is known."""
    rates = measure_fixed_rates(pieces)[(pieces.keys["label"] == label).to_numpy()]
    return None if np.isnan(rates).all() else float(np.nanmean(rates))


def _name_runs(both: PairedTimes) -> str:
    """Which runs count, for the column `runs`."""
    return "warm" if both.noise is None else "first"


def _overall_ratio_interval(both: PairedTimes, level: float) -> stats.Interval:
    """The geometric mean over queries; each session gives one value per side.

    Where a side has one session and the noise is given: spread over queries, and the sessions' noise.
    """
    n_sessions = (len(both.baseline), len(both.candidate))
    if both.noise is not None and min(n_sessions) < 2:
        logs = np.log(query_wall_times(both.baseline)) - np.log(query_wall_times(both.candidate))
        return both.noise.estimate_mean_ratio(logs, n_sessions, level)
    return stats.welch_log_ratio(*(_average_by_session(cube) for cube in (both.baseline, both.candidate)), level=level)


def _average_by_session(cube: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Geometric mean of each session's wall times over the queries; a missing query counts as in the other sessions.

    `cube`: Seconds, [session, query, term], NaN where a session lacks a query.
    """
    logs = np.log(cube.sum(axis=2))
    filled = np.where(np.isnan(logs), np.nanmean(logs, axis=0, keepdims=True), logs)
    return [float(value) for value in np.exp(filled.mean(axis=1))]


def _build_pairs(both: PairedTimes, level: float) -> pl.DataFrame:
    """Build table PAIRS: the ratio of each query with its interval and verdict."""
    base, cand = both.baseline.sum(axis=2), both.candidate.sum(axis=2)
    sessions = [(base[:, i][~np.isnan(base[:, i])], cand[:, i][~np.isnan(cand[:, i])]) for i in range(base.shape[1])]
    intervals = [_query_ratio_interval(*times, both, level) for times in sessions]
    decisions = stats.decide_verdicts([_query_ratio_interval(*times, both, VERDICT_LEVEL) for times in sessions])
    return tables.PAIRS.frame(
        [
            {
                "query": query,
                "baseline_s": float(np.exp(np.log(times[0]).mean())),
                "candidate_s": float(np.exp(np.log(times[1]).mean())),
                "ratio": interval.estimate,
                "ratio_low": interval.low,
                "ratio_high": interval.high,
                "verdict": decision.verdict,
                "adjusted_p_value": decision.adjusted_p_value,
                "n_baseline_sessions": len(times[0]),
                "n_candidate_sessions": len(times[1]),
                "runs": _name_runs(both),
            }
            for query, times, interval, decision in zip(both.queries, sessions, intervals, decisions, strict=True)
        ]
    )


def _query_ratio_interval(base: Any, cand: Any, both: PairedTimes, level: float) -> stats.Interval:
    """Interval of one query's ratio; a side with a single run takes its spread from the noise, if that is known.

    `base`, `cand`: Seconds of the query in each session of the side.
    """
    if both.noise is None or min(len(base), len(cand)) > 1:
        return stats.welch_log_ratio(base, cand, level=level)
    estimate = float(np.log(base).mean() - np.log(cand).mean())
    error = both.noise.query_log_sd * np.sqrt(1 / len(base) + 1 / len(cand))
    n = len(both.queries)
    return stats.log_interval(estimate, float(error), max(n - 1, 1), n=1, level=level, method="noise of single runs")


def _classify_quality(fitted: Factors, base: Any, cand: Any, i: int) -> tuple[str, str | None]:
    """Judge how well the factor of term `i` is known: its quality, and a note that explains it.

    `base`, `cand`: mean wall seconds of each side, [query, term].
    """
    term = fitted.terms[i]
    base_share, cand_share = base[:, i].sum() / base.sum(), cand[:, i].sum() / cand.sum()
    if cand_share >= ABSENT_SHARE > base_share:
        return (
            "candidate only",
            "only the candidate's plans have it: its cost is part of all other factors",
        )
    if base_share >= ABSENT_SHARE > cand_share:
        return "baseline only", "the candidate's plans do not have it"
    if " + " in term:
        return "not separable", f"one factor for {term}: they share one time in the same proportion in every query"
    n_queries = int((base[:, i] > 0).sum())
    if base_share < WEAK_SHARE or n_queries <= WEAK_QUERIES or fitted.shrinkage[i] > WEAK_SHRINKAGE:
        return (
            "weak",
            f"{100 * base_share:.1f} % of the time in {n_queries} queries: shrunk towards the engine-wide factor",
        )
    return "good", None


def _decide_verdicts(
    fitted: Factors, both: PairedTimes, qualities: Sequence[tuple[str, str | None]]
) -> list[stats.Decision]:
    """Verdicts on the measured factors; weak and one-sided ones are not judged and do not enter Holm's correction."""
    variance = np.square(fitted.log_se) - np.square(fitted.shrinkage * fitted.spread)
    family = []
    n = min(len(both.baseline), len(both.candidate))
    for i, (quality, _) in enumerate(qualities):
        ratio = float(np.exp(fitted.log_raw[i]))
        weight = 1 - fitted.shrinkage[i]
        error = float(np.sqrt(max(variance[i], 0.0)) / weight) if np.isfinite(variance[i]) and weight > 0 else 0.0
        if quality in ("good", "not separable") and error > 0:
            family.append(
                stats.log_interval(
                    float(fitted.log_raw[i]), error, float(fitted.degrees[i]), n=n, level=VERDICT_LEVEL, method="Welch"
                )
            )
        else:
            family.append(stats.Interval(ratio, None, None, VERDICT_LEVEL, n, "Welch", reason="not judged"))
    return stats.decide_verdicts(family)


def _share_left_on_cpu(
    pieces: PieceArrays, groups: Sequence[Sequence[str]], candidate: str, terms: Sequence[str]
) -> dict[str, float | None]:
    """Share of the candidate's pieces of each operator that ran on the CPU; empty without an accelerator."""
    is_candidate = (pieces.keys["label"] == candidate).to_numpy()[pieces.owner]
    present = (pieces.work > 0) & is_candidate[:, None]
    fast = np.array([column.endswith(ACCELERATED) for column in pieces.columns])
    if not present[:, fast].any():
        return {}
    name_of = map_columns_to_terms(pieces.columns, groups)
    counts = {term: [0, 0] for term in terms}
    for column, name in enumerate(pieces.columns):
        counts[name_of[name]][int(fast[column])] += int(present[:, column].sum())
    return {term: plain / (plain + quick) if plain + quick else None for term, (plain, quick) in counts.items()}


def _estimate_log_ratio_error(both: PairedTimes) -> float | None:
    """Standard error, between sessions, of the log of the overall ratio."""
    sides = [np.log(_average_by_session(cube)) for cube in (both.baseline, both.candidate)]
    if min(len(side) for side in sides) < 2:
        noise = both.noise
        return None if noise is None else noise.session_log_sd * float(np.sqrt(sum(1 / len(side) for side in sides)))
    return float(np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides)))


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class CrossValidation:
    """Tables `validation` (by predictor and query) and `scores` (by predictor)."""

    validation: pl.DataFrame
    scores: pl.DataFrame

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        ours = self.scores.row(by_predicate=pl.col("predictor") == CALIBRATED, named=True)
        off = 100 * math.expm1(ours["mean_absolute_log_error"])
        beside = f"{ours['mean_over_constant_low']:.2f} to {ours['mean_over_constant_high']:.2f}"
        return (
            f"Predicting each query from the other {ours['n_queries'] - 1} is off by about {off:.0f} %,"
            f" {ours['mean_over_constant']:.2f} of the error of assuming one ratio for all ({beside})."
            f" {ours['n_covered']} of {ours['n_queries']} fell inside their interval; {ours['worst_query']} was worst,"
            f" off by {100 * math.expm1(ours['worst_absolute_log_error']):.0f} %.{self._format_recommendations(ours)}"
        )

    @staticmethod
    def _format_recommendations(ours: Mapping[str, Any]) -> str:
        """Precision and recall as a sentence; empty where either is unknown."""
        if ours["precision"] is None or ours["recall"] is None:
            return ""
        reached = round(ours["precision"] * ours["n_recommended"])
        missed = ours["n_reached"] - round(ours["recall"] * ours["n_reached"])
        return (
            f" {ours['n_recommended']} queries were predicted to gain at least {ours['threshold']:g}x: {reached} did,"
            f" and {missed or 'none'} {'were' if missed > 1 else 'was'} missed."
        )


def cross_validate(
    calibrated: CalibrationResult,
    *,
    seed_ratios: Mapping[str, float] | None = None,
    level: float = stats.LEVEL,
    seed: int = 0,
    threshold: float = LEAST_RATIO,
) -> CrossValidation:
    """Errors of each predictor for queries that it was not fitted to.

    `seed_ratios`: Speedups by query that the seed method estimates without that query; null leaves the seed method
    out.

    Returns: For the calibrated method with the candidate's plan, which is known before a run, and without it (`log
    alone`); for the constant predictor (geometric mean of the other queries' ratios, with the t prediction interval of
    their logs); and, where given, for the seed method.

    Every choice is made inside the fold: prices, factors, members, and the width of the interval (t on the root mean
    square log error of the other queries, left out in their turn). The intervals of the scores come from a
    bootstrap over queries, with the same draws for all predictors. `skill` is 1 - (m - v) / (c - v), with m and c the
    mean square log errors of the predictor and of the constant one, and v the variance of a query's mean log ratio
    from session to session, which nothing can predict; null where v is unknown, or as large as c. Precision and recall
    are of recommending the queries whose ratio is predicted to reach `threshold`.
    """
    queries = list(calibrated.queries)
    if len(queries) < MIN_QUERIES:
        raise InputError("too few queries to leave one out", found=len(queries), allowed=f"{MIN_QUERIES} or more")
    base, cand = calibrated.pairs["baseline_s"].to_numpy(), calibrated.pairs["candidate_s"].to_numpy()
    predictions = predict_left_out_queries(
        calibrated.pieces, calibrated.baseline, calibrated.candidate, queries, calibrated.model.groups
    )
    t = _t_quantile(level, len(queries) - 2)
    frames = [
        build_validation_rows(
            predictor, queries, base, cand, predictions[name].to_numpy(), t * predictions[log_sd].to_numpy()
        )
        for predictor, name, log_sd in (
            (CALIBRATED, "predicted_s", "log_sd"),
            (BY_LOG, "predicted_by_log_s", "log_sd_by_log"),
        )
    ]
    frames.append(build_validation_rows(CONSTANT, queries, base, cand, *_predict_constant(queries, base, cand, level)))
    if seed_ratios:
        has_seed = [query in seed_ratios for query in queries]
        names = [query for query, there in zip(queries, has_seed, strict=True) if there]
        ratios = np.array([seed_ratios[query] for query in names])
        frames.append(build_validation_rows(SEED, names, base[has_seed], cand[has_seed], base[has_seed] / ratios))
    validation = tables.VALIDATION.check(pl.concat(frames))
    scores = score_predictors(validation, level, seed, measure_noise_variance(calibrated), threshold)
    return CrossValidation(validation, scores)


def measure_noise_variance(calibrated: CalibrationResult) -> float | None:
    """Variance of a query's mean log ratio from session to session, averaged over queries.

    Where a side has one session it comes from `FIRST_RUN_NOISE`, or is unknown (null) for warm runs.
    """
    seen_or_known = [
        FIRST_RUN_NOISE.query_log_sd**2 + FIRST_RUN_NOISE.session_log_sd**2
        if variance is None and calibrated.first_runs
        else variance
        for variance in calibrated.session_variances
    ]
    known = [variance for variance in seen_or_known if variance is not None]
    return sum(known) if len(known) == len(seen_or_known) else None


def _t_quantile(level: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(max(degrees, 1), (1 + level) / 2))


def _predict_constant(queries: Sequence[str], base: Floats, cand: Floats, level: float) -> tuple[Floats, Floats]:
    """Predict each query by the mean log ratio of the others, with the half width of the prediction interval.

    `base`, `cand`: Seconds by query; so are the predictions, and the half widths are of their logs.
    """
    logs = np.log(base) - np.log(cand)
    names = np.array([strip_recording(query) for query in queries])
    log_ratios, half_widths = np.array([predict_by_constant(logs[names != name], level) for name in names]).T
    return base / np.exp(log_ratios), half_widths


def predict_by_constant(log_ratios: Floats, level: float) -> tuple[float, float]:
    """Log ratio of a new query by the mean of others, with the half width of its t prediction interval."""
    n = len(log_ratios)
    half_width = _t_quantile(level, n - 1) * float(log_ratios.std(ddof=1)) * float(np.sqrt(1 + 1 / n))
    return float(log_ratios.mean()), half_width


def build_validation_rows(
    predictor: str,
    queries: list[str],
    base: Floats,
    cand: Floats,
    predicted: Floats,
    half: Floats | None = None,
) -> pl.DataFrame:
    """Rows of table VALIDATION for one predictor.

    `base`, `cand`, `predicted`: Seconds by query. `half`: Half width of the log of `predicted`, by query.
    """
    log_error = np.log(predicted) - np.log(cand)
    none = [None] * len(queries)
    return tables.VALIDATION.frame(
        {
            "predictor": [predictor] * len(queries),
            "query": queries,
            "baseline_s": base.tolist(),
            "actual_s": cand.tolist(),
            "predicted_s": predicted.tolist(),
            "predicted_low_s": none if half is None else (predicted * np.exp(-half)).tolist(),
            "predicted_high_s": none if half is None else (predicted * np.exp(half)).tolist(),
            "log_error": log_error.tolist(),
            "absolute_error_share": (np.abs(predicted - cand) / cand).tolist(),
            "covered": none if half is None else (np.abs(log_error) <= half).tolist(),
            "direction_right": ((predicted < base) == (cand < base)).tolist(),
        }
    )


def score_predictors(
    validation: pl.DataFrame, level: float, seed: int, noise_variance: float | None, threshold: float
) -> pl.DataFrame:
    """Table SCORES. `validation`: Table VALIDATION, with the constant predictor."""
    constant = validation.filter(pl.col("predictor") == CONSTANT)
    reference = constant["log_error"].abs()
    rows = []
    for (predictor,), frame in validation.group_by("predictor", maintain_order=True):
        errors = frame["log_error"].abs()
        beside = frame.select("query").join(constant, on="query", how="left")["log_error"].abs()
        low, high, ratio_low, ratio_high = bootstrap_error_intervals(errors.to_numpy(), beside.to_numpy(), level, seed)
        mean_square, reference_square = (
            float((log_errors**2).mean()) for log_errors in (errors.to_numpy(), beside.to_numpy())
        )
        widths = (frame["predicted_high_s"] / frame["predicted_low_s"]).log()
        # Mean interval score of a predictor's log times; null without intervals.
        if frame["predicted_low_s"].null_count():
            intervals = None
        else:
            logs = frame.select(pl.col("predicted_low_s", "predicted_high_s", "actual_s").log())
            scores = [stats.compute_interval_score(low, high, actual, level) for low, high, actual in logs.iter_rows()]
            intervals = float(np.mean(scores))
        # Precision and recall of recommending the queries whose predicted ratio reaches the threshold.
        reached = frame["baseline_s"] >= threshold * frame["actual_s"]
        recommended = frame["baseline_s"] >= threshold * frame["predicted_s"]
        n_reached, n_recommended = int(reached.sum()), int(recommended.sum())
        n_right = int((reached & recommended).sum())
        recommendations = {
            "threshold": threshold,
            "n_reached": n_reached,
            "n_recommended": n_recommended,
            "precision": n_right / n_recommended if n_recommended else None,
            "recall": n_right / n_reached if n_reached else None,
        }
        rows.append(
            {
                "predictor": predictor,
                "n_queries": frame.height,
                "mean_absolute_log_error": errors.mean(),
                "mean_low": low,
                "mean_high": high,
                "mean_over_constant": float(errors.mean()) / float(beside.mean()),  # type: ignore[arg-type]
                "mean_over_constant_low": ratio_low,
                "mean_over_constant_high": ratio_high,
                "worst_absolute_log_error": errors.max(),
                "worst_over_constant": float(errors.max()) / float(reference.max()),  # type: ignore[arg-type]
                "worst_query": frame["query"][int(errors.arg_max() or 0)],
                "mean_squared_log_error": mean_square,
                "noise_variance": noise_variance,
                "skill": compute_skill(mean_square, reference_square, noise_variance),
                "median_absolute_error_share": frame["absolute_error_share"].median(),
                "n_covered": None if frame["covered"].null_count() else int(frame["covered"].sum()),
                "mean_log_width": widths.mean(),
                "n_direction_right": int(frame["direction_right"].sum()),
                "mean_interval_score": intervals,
                **recommendations,
            }
        )
    return tables.SCORES.frame(rows)


def compute_skill(mean_square: float, constant_mean_square: float, noise_variance: float | None) -> float | None:
    """Share of what can be explained that is explained; null where that is unknown, or nothing can be explained.

    >>> compute_skill(0.05, 0.1, 0.0), compute_skill(0.02, 0.1, 0.02), compute_skill(0.1, 0.1, 0.2)
    (0.5, 1.0, None)
    """
    if noise_variance is None or noise_variance >= constant_mean_square:
        return None
    return 1 - (mean_square - noise_variance) / (constant_mean_square - noise_variance)


def bootstrap_error_intervals(
    errors: Floats, constant: Floats, level: float, seed: int
) -> tuple[float, float, float, float]:
    """Bootstrap intervals of the mean error and of its ratio to the constant predictor's.

    `errors`, `constant`: Absolute log errors of both predictors, query by query.
    """
    picks = np.random.default_rng(seed).integers(0, len(errors), size=(N_BOOTSTRAP_DRAWS, len(errors)))
    means = errors[picks].mean(axis=1)
    ratios = means / constant[picks].mean(axis=1)
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(means, tails)
    ratio_low, ratio_high = np.quantile(ratios, tails)
    return float(low), float(high), float(ratio_low), float(ratio_high)
