"""Estimates GPUs per goal from a sweep, with scaling laws over several GPU counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from workbench.core.errors import InputError
from workbench.sizing.compat_nat import calculation
from workbench.sizing.config import Goal
from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.capacity_fit import Capacity, Level, estimate_bounded_capacity, find_ceiling
from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.estimation.step_points import select_kept_requests
from workbench.sizing.tables import ESTIMATES, SCALING, USABLE_VERDICTS
from workbench.stats import quantiles

ScalingLaw = Literal["linear", "Amdahl", "USL", "falling hits"]
TERMS_BY_LAW: dict[ScalingLaw, tuple[int, ...]] = {
    "linear": (0,),
    "Amdahl": (0, 1),
    "USL": (0, 1, 2),
    "falling hits": (0, 3),
}
LAW_PARAMETERS = ("per_gpu", "contention", "coherency", "miss_cost", "miss_rate")
MIN_COUNTS_FOR_USL = 4
MAX_FALLEN_HITS = 0.9
"""Hits at the most GPUs over those at the fewest, below which they fall with the number of GPUs."""
N_NEAREST_LEVELS = 3
MAX_GPU_EXTRAPOLATION = 2
"""Extrapolation limit of a scaling law, as a multiple of the largest measured GPU count."""
NORMAL_95 = 1.6448536269514722
ROUNDING_TOLERANCE = 1e-9
MAX_UNKNOWN_FRACTION = 0.1
ADD_LEVELS = "add levels, such as "
AT_LEAST = "at least"
"""Verdict of a target that no measured load misses."""
LINEAR_VERDICT = "linear scaling assumed: measured on one GPU count"


@dataclass(frozen=True)
class GpuCapacity:
    """Measured capacity of a GPU count with its 90 % interval.

    `cached_share`: Share of the prompt tokens from prefix caches near that load; null where the service does not say.
    """

    gpus: int
    capacity: float
    low: float
    high: float
    cached_share: float | None = None


def fit_scaling_laws(
    target: str, measured: Sequence[GpuCapacity], load: float, *, draws: int = 1000, seed: int = 0
) -> pl.DataFrame:
    """Fit scaling laws to measured capacities and estimate the GPUs for a load.

    Returns: Table `scaling`: per law its parameters and the smallest sufficient GPU count, with 90 % intervals.
    Counts above twice the largest measured one are null.

    The laws that are fitted depend on the number of GPU counts. Each draw samples the capacities from log-normal
    distributions with the given intervals and fits again. Parameters are not negative. Two counts fit Amdahl's law
    exactly, so its validity cannot be checked.

    Where turns of a session go to any GPU, the share h(N) of their prompts that a GPU has kept falls with N, as
    1 / (1 + r (N - 1)). Where the measured shares do so, r is theirs, and N / capacity is
    (1 + miss_cost (1 - h(N) / h(1))) / per_gpu.
    Source: Gunther, Guerrilla Capacity Planning (2007), chapter 4; linear least squares of N / capacity, whose
    coefficients are the terms of the law.

    >>> table = fit_scaling_laws("p95", [GpuCapacity(1, 10, 9.9, 10.1), GpuCapacity(2, 18, 17.8, 18.2)], 30)
    >>> table.select("model", "gpus").rows()
    [('linear', 4), ('Amdahl', 4)]
    """
    counts = [point.gpus for point in measured]
    if len(set(counts)) < 2 or len(set(counts)) < len(counts):
        raise InputError("scaling needs two or more distinct GPU counts", found=counts)
    gpus = np.array(counts, dtype=np.float64)
    capacities = np.array([point.capacity for point in measured])
    errors = np.array([(math.log(point.high) - math.log(point.low)) / (2 * NORMAL_95) for point in measured])
    noise = np.random.default_rng(seed).standard_normal((draws, len(gpus)))
    drawn = capacities * np.exp(noise * errors)
    weights = 1 / np.maximum(errors, 1e-3)
    # Rate at which hits in prefix caches fall with each further GPU; 0 where they do not, or are not known.
    shares = [point.cached_share for point in measured]
    known = np.array([share for share in shares if share], dtype=np.float64)
    if len(known) < len(shares) or known[-1] > MAX_FALLEN_HITS * known[0]:
        miss_rate = 0.0
    else:
        slope, start = np.polyfit([point.gpus for point in measured], 1 / known, 1)
        one_gpu = max(float(start + slope), 1.0)
        miss_rate = max(0.0, float(slope)) / one_gpu
    last: ScalingLaw = "USL" if len(counts) >= MIN_COUNTS_FOR_USL else "Amdahl"
    models: list[ScalingLaw] = ["linear", "falling hits" if miss_rate else last]
    rows = []
    for model in models:
        terms = _law_terms(gpus, miss_rate)[:, TERMS_BY_LAW[model]]
        laws = np.array([_fit_law(model, terms, gpus / row, weights, miss_rate) for row in (capacities, *drawn)])
        rows.append(_build_law_row(target, model, counts, laws, load))
    return SCALING.frame(rows)


def _build_law_row(
    target: str, model: ScalingLaw, counts: Sequence[int], laws: Floats, load: float
) -> dict[str, object]:
    """Row of table SCALING: a law fitted to capacities at several GPU counts, and the GPUs it needs for `load`.

    `laws`: The fitted law, then those of redrawn capacities for the 90 % intervals, [law, parameter].
    """
    fitted, sampled = laws[0].tolist(), laws[1:]
    max_gpus = MAX_GPU_EXTRAPOLATION * max(counts)
    # Smallest GPU count that carries the load, by law; infinite if none up to `max_gpus` does.
    suffices = _evaluate_law(laws, np.arange(1.0, max_gpus + 1)) >= load * (1 - ROUNDING_TOLERANCE)
    all_needs = np.where(suffices.any(axis=1), suffices.argmax(axis=1) + 1.0, math.inf)
    need, needs = float(all_needs[0]), np.sort(all_needs[1:])
    tail = int(0.05 * len(needs))
    low, high = needs[tail], needs[-1 - tail]
    row: dict[str, object] = {"target": target, "model": model, "counts": list(counts), "load": load}
    row |= zip(LAW_PARAMETERS, fitted, strict=True)
    # Draws are of capacities, and miss_rate comes from shares.
    for place, name in enumerate(LAW_PARAMETERS[:-1]):
        bounds = np.quantile(sampled[:, place], [0.05, 0.95])
        row |= {f"{name}_low": float(bounds[0]), f"{name}_high": float(bounds[1])}
    ends = {"gpus": need, "gpus_low": low, "gpus_high": high}
    row |= {name: int(value) if math.isfinite(value) else None for name, value in ends.items()}
    return row | {
        "verdict": "estimated" if need <= max_gpus else "no estimate",
        "reason": _explain_no_count(fitted, sampled, load, max_gpus) if need > max_gpus else None,
    }


def _law_terms(gpus: Floats, miss_rate: Floats | float) -> Floats:
    """Terms of the laws in N / capacity, along a last axis: constant, contention, coherency, missed hits."""
    missed = 1 - 1 / (1 + miss_rate * (gpus - 1))
    terms: Floats = np.stack(np.broadcast_arrays(1.0, gpus - 1, gpus * (gpus - 1), missed), axis=-1)
    return terms


def _fit_law(
    model: ScalingLaw, terms: Floats, gpus_per_capacity: Floats, weights: Floats, miss_rate: float
) -> list[float]:
    """Fit a law of capacity over GPUs: per_gpu, contention, coherency, miss_cost and, as it was, miss_rate.

    `terms`: Those of the law, [GPU count, term]. `gpus_per_capacity`, `weights`: One element for each GPU count. Least
    squares: N / capacity is linear in 1 / per_gpu and its products with the others.
    """
    from scipy.optimize import nnls

    scale = weights / gpus_per_capacity
    solved = np.zeros(4)
    solved[list(TERMS_BY_LAW[model])], _ = nnls(terms * scale[:, None], gpus_per_capacity * scale)
    base = max(float(solved[0]), 1e-12)
    return [1 / base, *(solved[1:] / base).tolist(), miss_rate if model == "falling hits" else 0.0]


def capacity_by_law(law: Sequence[float], gpus: float) -> float:
    """Capacity of a GPU count according to a law: per_gpu, contention, coherency, and miss_cost and miss_rate or none.

    >>> capacity_by_law((10.0, 0.0, 0.0, 1.0, 1.0), 2)   # half of the hits are missed: 1.5 times the work
    13.333333333333334
    """
    return float(_evaluate_law(np.array([*law, 0.0, 0.0][:5]), np.array(float(gpus))))


def _evaluate_law(laws: Floats, gpus: Floats) -> Floats:
    """Capacities of GPU counts by the laws: [law, count], without an axis for one of either.

    `laws`: Parameters along the last axis. `gpus`: Counts.
    """
    parameters = laws[..., None, :] if gpus.ndim else laws
    factors = np.concatenate([np.ones_like(parameters[..., :1]), parameters[..., 1:4]], axis=-1)
    work = (_law_terms(gpus, parameters[..., 4]) * factors).sum(axis=-1)
    carried: Floats = parameters[..., 0] * gpus / work
    return carried


def _explain_no_count(law: Sequence[float], sampled: Floats, load: float, max_gpus: int) -> str:
    """Reason why no GPU count carries the load: the law surely peaks below it, or the measured range is too short.

    `sampled`: Laws fitted to redrawn capacities, [draw, parameter].
    """
    counts = np.arange(1.0, 4 * max_gpus + 1)
    carried_by = _evaluate_law(sampled, counts)
    if np.mean(carried_by.max(axis=1) < load) >= 0.95:
        best = max(capacity_by_law(law, n) for n in counts)
        return f"no GPU count carries {load:g}: the law peaks at a capacity of {best:.4g}"
    return f"more than {max_gpus} GPUs, twice the largest measured count: measure a larger count"


def estimate_gpus(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    points: pl.DataFrame,
    goals: Sequence[Goal],
    load: float,
    *,
    draws: int = 500,
    seed: int = 0,
) -> pl.DataFrame:
    """Estimate the GPUs that serve a load within each goal.

    `requests`, `steps`: Raw tables of a sweep, or of several sweeps on different GPU counts.
    `points`: Table `points` of `step_points.assess_steps`; only points with usable verdicts count.
    `load`: Load to serve, in the unit of the points: users, or arrivals per second.

    Returns: Table `estimates`. `gpus` = load / capacity x test GPUs; its interval follows from that of the capacity,
    and `recommended` is the upper end rounded up.

    With one GPU count, linear scaling is assumed, and the verdict says so. Unbalanced routing and shared resources
    break this assumption; only a run at the recommended size shows it. With several counts, `gpus` follows Amdahl's law
    (two or three counts) or the universal scalability law (four or more): see `fit_scaling_laws`.
    """
    return estimate_gpus_and_scaling(requests, steps, points, goals, load, draws=draws, seed=seed)[0]


def estimate_gpus_and_scaling(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    points: pl.DataFrame,
    goals: Sequence[Goal],
    load: float,
    *,
    draws: int = 500,
    seed: int = 0,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Table `estimates`, and the table `scaling` of the laws fitted over several GPU counts.

    Arguments as in `estimate_gpus`; `scaling` is empty for one GPU count.
    """
    import polars as pl

    counts = sorted(points["gpus"].unique().to_list()) or [1]
    rows, laws = [], [SCALING.frame([])]
    is_open = "1/s" in points["load_unit"].to_list()
    for goal in goals:
        parts = {gpus: points.filter(pl.col("gpus") == gpus) for gpus in counts}
        levels = {gpus: select_usable_levels(requests, steps, part, goal) for gpus, part in parts.items()}
        capacities = {
            gpus: estimate_bounded_capacity(
                part, find_ceiling(parts[gpus]), goal.q, goal.limit_s, is_open=is_open, draws=draws, seed=seed
            )
            for gpus, part in levels.items()
        }
        last = counts[-1]
        row = _build_estimate_row(goal, levels[last], capacities[last], load)
        if capacities[last].value is None and (unmeasured := _explain_unmeasured(parts[last], levels[last], goal)):
            row |= {"reason": unmeasured}
        row |= {"reason": _explain_refusal(row, parts[last])}
        row = _capacities_to_gpus(
            row | {"test_gpus": last, "load_unit": points["load_unit"][0] if points.height else "users"}
        )
        measured = [
            GpuCapacity(
                gpus,
                capacity.value,
                capacity.low,
                capacity.high,
                _cached_share_near(points.filter(points["gpus"] == gpus), capacity.value),
            )
            for gpus, capacity in capacities.items()
            if capacity.value is not None and capacity.low is not None and capacity.high is not None
        ]
        if len(measured) > 1:
            laws.append(fit_scaling_laws(goal.name, measured, load, draws=draws, seed=seed))
        rows.append(
            row if len(counts) == 1 else row | _scaling_columns(capacities, laws[-1] if len(measured) > 1 else None)
        )
    max_gpus = max((row["gpus"] for row in rows if row["gpus"] is not None), default=None)
    table = ESTIMATES.frame([row | {"binding": max_gpus is not None and row["gpus"] == max_gpus} for row in rows])
    return table, pl.concat(laws)


def _explain_refusal(row: dict[str, Any], points: pl.DataFrame) -> str | None:
    """Reason of a missing estimate, with the levels that were left out.

    `row` is one of ESTIMATES, `points` table POINTS.
    """
    unused = points.filter(~points["verdict"].is_in(USABLE_VERDICTS)).sort("load")
    reason: str | None = row["reason"]
    unused = unused.filter([text is None or text not in (reason or "") for text in unused["reason"].to_list()])
    if row["capacity"] is not None or not unused.height:
        return reason
    listed = ", ".join(f"{load:g}" for load in unused["load"].unique(maintain_order=True).to_list()[:8])
    kinds = ", ".join(unused["verdict"].unique(maintain_order=True).to_list())
    if reason is not None and ADD_LEVELS in reason:
        # Levels that were measured and left out are no advice.
        plain, _, added = reason.partition(ADD_LEVELS)
        reason = plain.rstrip("; ") if float(added.split(",")[0]) <= max(unused["load"].to_list()) else reason
    return f"{reason}; excluded: level(s) {listed} ({kinds}: {unused['reason'][0]})"


def _cached_share_near(points: pl.DataFrame, load: float) -> float | None:
    """Median share of prompt tokens from prefix caches at the levels nearest to a load; null without any."""
    known = points.select("load", "cached_share").drop_nulls() if "cached_share" in points.columns else points.clear()
    nearest = sorted(known.rows(), key=lambda row: abs(math.log(row[0] / load)))[:N_NEAREST_LEVELS]
    return float(np.median([share for _, share in nearest])) if nearest else None


def _scaling_columns(capacities: dict[int, Capacity], laws: pl.DataFrame | None) -> dict[str, Any]:
    """Columns of an estimate from several GPU counts.

    `capacities` by GPU count, `laws` null where no law was fitted.
    """
    if laws is None:
        reasons = [f"{gpus} GPUs: {capacity.reason}" for gpus, capacity in capacities.items() if capacity.reason]
        reason = "fewer than two GPU counts have a capacity with an interval; " + "; ".join(reasons)
        nothing = dict.fromkeys(("gpus", "gpus_low", "gpus_high", "recommended"))
        return nothing | {"verdict": "no estimate", "reason": reason}
    law = laws.row(-1, named=True)
    counts = ", ".join(map(str, law["counts"]))
    verdict = f"{law['model']} over {counts} GPUs" if law["gpus"] is not None else "no estimate"
    ends = {name: None if law[name] is None else float(law[name]) for name in ("gpus", "gpus_low", "gpus_high")}
    return ends | {"recommended": law["gpus_high"], "verdict": verdict, "reason": law["reason"]}


def select_usable_levels(requests: pl.DataFrame, steps: pl.DataFrame, points: pl.DataFrame, goal: Goal) -> list[Level]:
    """Usable levels with the metric of the goal; steps at the same load are merged.

    `requests`, `steps`, `points`: Tables of these names.
    """
    import polars as pl

    users = dict(steps.select("step", "users").iter_rows())
    by_load: dict[float, list[Any]] = {}
    for step, load in points.filter(pl.col("verdict").is_in(USABLE_VERDICTS)).select("step", "load").iter_rows():
        counted = select_kept_requests(requests.filter(pl.col("step") == step), users[step])
        by_load.setdefault(load, []).append(counted)
    levels = []
    for load, frames in by_load.items():
        counted = pl.concat(frames)
        values = metrics.metric_values(counted, goal.metric)
        applies = metrics.metric_applies(counted, goal.metric) | (counted["outcome"] != "ok").to_numpy()
        unknown = np.isnan(values).all(axis=1) & applies
        # The known ones of a level may be the quick ones, such as those that a proxy did not hold back.
        if not np.isnan(values).all() and unknown.sum() <= MAX_UNKNOWN_FRACTION * applies.sum():
            levels.append(Level(load, values))
    return levels


def _explain_unmeasured(points: pl.DataFrame, levels: list[Level], goal: Goal) -> str | None:
    """Why levels that count for other goals have none of this metric; null where they have.

    `points`: Table POINTS.
    """
    usable = points.filter(points["verdict"].is_in(USABLE_VERDICTS) & (points["n_ok"] > 0))
    if len(levels) >= usable["load"].n_unique() or goal.metric == metrics.DEFAULT_METRIC:
        return None
    note = next(iter(usable["stream_note"].drop_nulls()), None)
    return metrics.explain_missing(goal.metric, note)


def _build_estimate_row(goal: Goal, levels: list[Level], capacity: Capacity, load: float) -> dict[str, Any]:
    """Row of table ESTIMATES without its GPU columns; capacity and load have the load's unit."""
    return {
        "target": goal.name,
        "metric": goal.metric,
        "q": goal.q,
        "limit_s": goal.limit_s,
        "load": float(load),
        "method": capacity.method,
        "capacity": capacity.value,
        "capacity_low": capacity.low,
        "capacity_high": capacity.high,
        "slope_capacity": _slope_capacity(levels, goal),
        "n_levels": capacity.n_levels,
        "n_samples": capacity.n_samples,
        "verdict": AT_LEAST if capacity.at_least else "no estimate" if capacity.value is None else LINEAR_VERDICT,
        "reason": "; ".join(filter(None, (capacity.reason, capacity.advice))) or None,
        "bound": capacity.bound,
    }


def _slope_capacity(levels: list[Level], goal: Goal) -> float | None:
    """Capacity by the slope-based calculator on the same quantiles; null if it gives none."""
    points = [(level.load, quantiles.compute_quantile(level.values, goal.q)) for level in levels]
    finite = sorted((load, value) for load, value in points if value < float("inf"))
    if len(finite) < calculation.MIN_POINTS:
        return None
    line = calculation.fit_line([load for load, _ in finite], [value for _, value in finite]).line
    # With one user and one GPU, the result is 1 / capacity.
    gpus = None if line is None else calculation.gpus_by_slope(line, target_s=goal.limit_s, users=1, test_gpus=1).gpus
    return 1 / gpus if gpus else None


def _capacities_to_gpus(row: dict[str, Any]) -> dict[str, Any]:
    """Convert capacities to GPU counts; the ends of the interval swap."""
    capacities = {
        "gpus": row["capacity"],
        "gpus_low": row["capacity_high"],
        "gpus_high": row["capacity_low"],
        "slope_gpus": row.pop("slope_capacity"),
    }
    gpu_load = row["load"] * row["test_gpus"]
    counts = {name: gpu_load / value if value else None for name, value in capacities.items()}
    # Of a capacity that is only known to be at least so much, the count is an upper bound and no recommendation.
    high = counts["gpus_high"]
    if counts["gpus"] is None and (row["verdict"] != AT_LEAST or high is None or high > 1):
        high = None  # but of one GPU there are no fewer
    return row | counts | {"recommended": None if high is None else math.ceil(high - ROUNDING_TOLERANCE)}
