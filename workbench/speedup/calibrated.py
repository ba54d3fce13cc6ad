"""The calibrated method from measured executions to tables: factors, pairs, the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

import workbench
from workbench import stats
from workbench.errors import InputError
from workbench.speedup import calibrated_tables as tables
from workbench.speedup.calibration import (
    Factors,
    Sides,
    arrange,
    common_queries,
    factors,
    left_out_errors,
    mean_parts,
    term_names,
)
from workbench.speedup.measured import Measured
from workbench.speedup.model import FactorModel, Term
from workbench.speedup.parts import ACCELERATED, Cuts, cuts, inseparable, session_prices, unit_costs

# Verdicts are claims over all operators at once: of pairs of equal sides at most one in twenty may have a false one. At
# 95 %, 5.5 % of 200 simulated pairs had one, because prices are fitted to the very times that they split.
VERDICT_LEVEL = 0.97
WEAK_SHARE, WEAK_QUERIES, WEAK_SHRINKAGE = 0.01, 2, 0.5
# With less of its time told by its own metrics, a factor rests mostly on how shared times were split.
MOSTLY_SPLIT = 0.5
# Below this share of either side's time an operator is taken as absent there.
ABSENT_SHARE = 0.0005


@dataclass(frozen=True)
class Calibrated:
    """`factors` and `pairs` as declared in `calibrated_tables`, the overall ratio, and what predicts from them."""

    baseline: str
    candidate: str
    factors: pl.DataFrame
    pairs: pl.DataFrame
    overall: stats.Interval
    verdict: stats.Verdict
    model: FactorModel
    pieces: Cuts
    queries: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        o = self.overall
        ends = f" [{o.low:.2f}, {o.high:.2f}]" if o.low is not None and o.high is not None else ""
        m = self.model
        sessions = f"{m.n_baseline_sessions} and {m.n_candidate_sessions} sessions x {m.n_passes} passes"
        return (
            f"{self.candidate} runs {len(self.queries)} queries {o.estimate:.2f}{ends} times as fast as {self.baseline}"
            f" ({self.verdict}; geometric mean over queries, {sessions})."
        )


def calibrate(
    measured: Measured,
    baseline: str,
    candidate: str,
    *,
    queries: Sequence[str] | None = None,
    level: float = stats.LEVEL,
    engines: tuple[str, str] = ("", ""),
) -> Calibrated:
    """How many times faster is each operator on the candidate than on the baseline?

    Parameters
    ----------
    measured
        Both sides, from `workbench.speedup.measured`; only executions that count are used.
    baseline, candidate
        Labels of the sides; which engines they are plays no part.
    queries
        Which of the common queries; all of them by default.
    level
        Confidence of the intervals of factors and ratios.
    engines
        Names of the engines, for the model.

    Returns
    -------
    Calibrated
        Tables `factors` and `pairs`; intervals are null where a side has one session.

    Raises
    ------
    InputError
        No query is common to both sides.

    Notes
    -----
    Method and formulas: `docs/guide/speedup.md`. A factor is that of these queries on this data and machine; what it
    is worth elsewhere, the left-out queries of `validate` show. Verdicts are Holm's at 97 % over all operators.
    """
    both_sides = Measured(
        measured.executions.filter(pl.col("label").is_in([baseline, candidate])),
        measured.pieces.filter(pl.col("label").is_in([baseline, candidate])),
    )
    common = common_queries(both_sides, baseline, candidate)
    chosen = [query for query in common if queries is None or query in queries]
    if not chosen:
        raise InputError("none of these queries ran on both sides", found=list(queries or ()), allowed=common)
    pieces = cuts(_only(both_sides, chosen))
    groups = inseparable(pieces)
    both = arrange(pieces, session_prices(pieces, chosen), baseline, candidate, chosen, groups)
    fitted = factors(both)
    overall = _overall(both, level)
    n_passes = _passes(both_sides, chosen)
    table = _factor_table(both, fitted, pieces, groups, (baseline, candidate), level, n_passes)
    family = _overall(both, VERDICT_LEVEL)
    return Calibrated(
        baseline,
        candidate,
        table,
        _pairs(both, level),
        overall,
        stats.decide([family])[0].verdict,
        _model(
            both, fitted, table, pieces, unit_costs(pieces, chosen), groups, (baseline, candidate), engines, n_passes
        ),
        pieces,
        tuple(chosen),
    )


def _only(measured: Measured, queries: Sequence[str]) -> Measured:
    kept = measured.executions.filter(pl.col("query").is_in(list(queries)), pl.col("why_not").is_null())
    return Measured(kept, measured.pieces.join(kept, on=["label", "session", "sql_id"], how="semi"))


def _passes(measured: Measured, queries: Sequence[str]) -> int:
    kept = _only(measured, queries).executions
    return int(kept.group_by("label", "session", "query").len()["len"].min() or 0)  # type: ignore[arg-type]


def _overall(both: Sides, level: float) -> stats.Interval:
    """The geometric mean over queries; each session gives one value a side."""
    return stats.welch_log_ratio(*(_session_means(cube) for cube in (both.baseline, both.candidate)), level=level)


def _session_means(cube: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Geometric mean of each session's wall times; a query that it lacks counts as in the other sessions."""
    logs = np.log(cube.sum(axis=2))
    filled = np.where(np.isnan(logs), np.nanmean(logs, axis=0, keepdims=True), logs)
    return [float(value) for value in np.exp(filled.mean(axis=1))]


def _pairs(both: Sides, level: float) -> pl.DataFrame:
    base, cand = both.baseline.sum(axis=2), both.candidate.sum(axis=2)
    sessions = [(base[:, i][~np.isnan(base[:, i])], cand[:, i][~np.isnan(cand[:, i])]) for i in range(base.shape[1])]
    intervals = [stats.welch_log_ratio(*one, level=level) for one in sessions]
    decisions = stats.decide([stats.welch_log_ratio(*one, level=VERDICT_LEVEL) for one in sessions])
    return tables.PAIRS.frame(
        [
            {
                "query": query,
                "baseline_s": float(np.exp(np.log(one[0]).mean())),
                "candidate_s": float(np.exp(np.log(one[1]).mean())),
                "ratio": interval.estimate,
                "ratio_low": interval.low,
                "ratio_high": interval.high,
                "verdict": decision.verdict,
                "adjusted_p_value": decision.adjusted_p_value,
                "n_baseline_sessions": len(one[0]),
                "n_candidate_sessions": len(one[1]),
            }
            for query, one, interval, decision in zip(both.queries, sessions, intervals, decisions, strict=True)
        ]
    )


def _factor_table(
    both: Sides,
    fitted: Factors,
    pieces: Cuts,
    groups: Sequence[Sequence[str]],
    labels: tuple[str, str],
    level: float,
    n_passes: int,
) -> pl.DataFrame:
    baseline, candidate = labels
    base, cand = mean_parts(both.baseline), mean_parts(both.candidate)
    left, own = (
        _left_on_cpu(pieces, groups, candidate, fitted.terms),
        _own_share(pieces, groups, fitted.terms, baseline),
    )
    qualities = [_quality(fitted, base, cand, i) for i in range(len(fitted.terms))]
    decisions = _decide(fitted, both, qualities)
    rows = []
    for i, term in enumerate(fitted.terms):
        interval = _interval(fitted, i, level)
        quality, note = qualities[i]
        if note is None and own.get(term, 0.0) < MOSTLY_SPLIT:
            note = f"{1 - own.get(term, 0.0):.0%} of its time on the baseline is split off shared times by prices"
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
                "own_metric_share": own.get(term, 0.0),
                "left_on_cpu_share": left.get(term),
                "n_queries": int((base[:, i] > 0).sum()),
                "n_baseline_sessions": len(both.baseline),
                "n_candidate_sessions": len(both.candidate),
                "n_passes": n_passes,
            }
        )
    return tables.FACTORS.frame(rows).sort("baseline_s", "operator", descending=[True, False])


def _interval(fitted: Factors, i: int, level: float) -> stats.Interval:
    error, estimate = float(fitted.log_se[i]), float(fitted.log_factor[i])
    if not np.isfinite(error) or error <= 0:
        return stats.Interval(float(np.exp(estimate)), None, None, level, 0, "one session")
    return stats.log_interval(estimate, error, float(fitted.degrees[i]), n=0, level=level, method="Welch, drawn")


def _quality(fitted: Factors, base: Any, cand: Any, i: int) -> tuple[str, str | None]:
    term = fitted.terms[i]
    base_share, cand_share = base[:, i].sum() / base.sum(), cand[:, i].sum() / cand.sum()
    if cand_share >= ABSENT_SHARE > base_share:
        return (
            "candidate only",
            "the candidate's plans have it, the baseline's have not: its cost is part of all others",
        )
    if base_share >= ABSENT_SHARE > cand_share:
        return "baseline only", "the candidate's plans do without it"
    if " + " in term:
        return "not separable", f"one factor for {term}: they share one time in every query, in the same proportion"
    n_queries = int((base[:, i] > 0).sum())
    if base_share < WEAK_SHARE or n_queries <= WEAK_QUERIES or fitted.shrinkage[i] > WEAK_SHRINKAGE:
        return "weak", f"{base_share:.1%} of the time in {n_queries} queries: drawn to the engine-wide factor"
    return "good", None


def _decide(fitted: Factors, both: Sides, qualities: Sequence[tuple[str, str | None]]) -> list[stats.Decision]:
    """Verdicts on the measured factors; what is weak or on one side only is not judged, and does not count."""
    variance = np.square(fitted.log_se) - np.square(fitted.shrinkage * fitted.spread)
    family = []
    n = min(len(both.baseline), len(both.candidate))
    for i, (quality, _) in enumerate(qualities):
        ratio = float(np.exp(fitted.log_raw[i]))
        kept = 1 - fitted.shrinkage[i]
        error = float(np.sqrt(max(variance[i], 0.0)) / kept) if np.isfinite(variance[i]) and kept > 0 else 0.0
        if quality in ("good", "not separable") and error > 0:
            family.append(
                stats.log_interval(
                    float(fitted.log_raw[i]), error, float(fitted.degrees[i]), n=n, level=VERDICT_LEVEL, method="Welch"
                )
            )
        else:
            family.append(stats.Interval(ratio, None, None, VERDICT_LEVEL, n, "Welch", reason="not judged"))
    return stats.decide(family)


def _left_on_cpu(
    pieces: Cuts, groups: Sequence[Sequence[str]], candidate: str, terms: Sequence[str]
) -> dict[str, float | None]:
    """Of each operator's pieces on the candidate, the share that no accelerator ran; empty without an accelerator."""
    mine = (pieces.keys["label"] == candidate).to_numpy()[pieces.owner]
    present = (pieces.work > 0) & mine[:, None]
    fast = np.array([column.endswith(ACCELERATED) for column in pieces.columns])
    if not present[:, fast].any():
        return {}
    name_of = term_names(pieces.columns, groups)
    counts = {term: [0, 0] for term in terms}
    for column, name in enumerate(pieces.columns):
        counts[name_of[name]][int(fast[column])] += int(present[:, column].sum())
    return {term: plain / (plain + quick) if plain + quick else None for term, (plain, quick) in counts.items()}


def _own_share(pieces: Cuts, groups: Sequence[Sequence[str]], terms: Sequence[str], baseline: str) -> dict[str, float]:
    """Of the baseline's time in pieces with this operator, the share in pieces of it alone."""
    name_of = term_names(pieces.columns, groups)
    alone, every = dict.fromkeys(terms, 0.0), dict.fromkeys(terms, 0.0)
    value = pieces.work / np.maximum(pieces.work.sum(axis=1, keepdims=True), 1e-30) * pieces.wall_s[:, None]
    value = value * (pieces.keys["label"] == baseline).to_numpy()[pieces.owner][:, None]
    for column, name in enumerate(pieces.columns):
        every[name_of[name]] += float(value[:, column].sum())
        alone[name_of[name]] += float(value[~pieces.shared, column].sum())
    return {term: alone[term] / every[term] if every[term] else 0.0 for term in terms}


def _model(
    both: Sides,
    fitted: Factors,
    table: pl.DataFrame,
    pieces: Cuts,
    prices: Any,
    groups: Sequence[Sequence[str]],
    labels: tuple[str, str],
    engines: tuple[str, str],
    n_passes: int,
) -> FactorModel:
    rows = {row["operator"]: row for row in table.iter_rows(named=True)}
    place = {term: i for i, term in enumerate(fitted.terms)}
    errors = left_out_errors(both, fitted.time_weight) if len(both.queries) > 1 else None
    mine = (pieces.keys["label"] == labels[0]).to_numpy()[pieces.owner]
    used = np.asarray((pieces.work[mine] > 0).any(axis=0))
    return FactorModel(
        baseline=labels[0],
        candidate=labels[1],
        baseline_engine=engines[0],
        candidate_engine=engines[1],
        terms=[
            Term(
                operator=term,
                log_factor=float(fitted.log_factor[i]),
                log_se=_known(fitted.log_se[i]),
                log_price=_known(fitted.log_price[i]),
                baseline_share=rows[term]["baseline_share"],
                n_queries=rows[term]["n_queries"],
                quality=rows[term]["quality"],
                left_on_cpu_share=rows[term]["left_on_cpu_share"],
            )
            for term, i in place.items()
        ],
        groups=[list(group) for group in groups],
        prices={name: float(prices[i]) for i, name in enumerate(pieces.columns) if used[i]},
        log_overall=fitted.log_overall,
        overall_log_se=_log_error(both),
        spread=fitted.spread,
        time_weight=fitted.time_weight,
        calibration=fitted.calibration,
        log_sd=None if errors is None else float(np.sqrt((errors**2).mean())),
        n_queries=len(both.queries),
        queries=list(both.queries),
        n_baseline_sessions=len(both.baseline),
        n_candidate_sessions=len(both.candidate),
        n_passes=max(n_passes, 1),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        package_version=workbench.__version__,
    )


def _log_error(both: Sides) -> float | None:
    sides = [np.log(_session_means(cube)) for cube in (both.baseline, both.candidate)]
    if min(len(side) for side in sides) < 2:
        return None
    return float(np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides)))


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def with_model(result: Calibrated, model: FactorModel) -> Calibrated:
    """The same result with a model that says where it comes from."""
    return replace(result, model=model)
