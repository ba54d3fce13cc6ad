"""Predicts the GPUs for a load by GPU type: capacity of a replica, with the interval of the prediction's error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.core.errors import InputError
from workbench.core.formats import fit_answer
from workbench.sizing.estimation.gpu_estimates import AT_LEAST
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer
from workbench.sizing.estimation.step_points import PointLimits, name_load_unit
from workbench.sizing.load.level_ladder import Ladder
from workbench.sizing.prediction.aisimulate import Deployment, Predictor
from workbench.sizing.prediction.predicted_sweep import TimeFactors, predict_sweep
from workbench.sizing.prediction.time_error import TimeErrors
from workbench.sizing.tables import ESTIMATES, PREDICTIONS

if TYPE_CHECKING:
    from workbench.sizing.config import SweepConfig

TENSORS = (1, 2, 4, 8)
"""GPUs of a replica that are tried."""
NEAR_BEST_FACTOR = 1.5
"""Candidates with up to this many times the fewest GPUs are tried at the slow end, too."""
MAX_LEVELS = 12
OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class PredictedSweep:
    """Tables REQUESTS and STEPS of a replica, and what follows from them."""

    requests: pl.DataFrame
    steps: pl.DataFrame
    answer: SizingAnswer


@dataclass(frozen=True)
class Candidate:
    """A predicted deployment: its sweep with the expected factors, and what a replica carries.

    `sweep`: Null where the deployment is not possible.
    `capacity`, `slow_capacity`, `fast_capacity`: Largest load of a replica within all goals, with the expected times
    and at the ends of their interval; null where no load is, or it was not predicted.
    """

    deployment: Deployment
    errors: TimeErrors
    load: float
    sweep: PredictedSweep | None = None
    capacity: float | None = None
    slow_capacity: float | None = None
    fast_capacity: float | None = None
    cache_tokens: int | None = None
    reason: str | None = None

    @property
    def gpus(self) -> int | None:
        """GPUs for the load with the expected times, whole replicas."""
        return self._count_gpus(self.capacity)

    @property
    def gpus_high(self) -> int | None:
        """GPUs at the slow end."""
        return self._count_gpus(self.slow_capacity)

    @property
    def gpus_low(self) -> int | None:
        """GPUs at the fast end."""
        return self._count_gpus(self.fast_capacity)

    def _count_gpus(self, capacity: float | None) -> int | None:
        return None if not capacity else self.deployment.tensor * math.ceil(self.load / capacity - 1e-9)


@dataclass(frozen=True)
class GpuPrediction:
    """How many GPUs of which type, before one is owned.

    `table`: Table PREDICTIONS. `chosen`: The one to take; null where none is within the goals.
    `objections`: Why the errors that it rests on are not known.
    """

    config: SweepConfig
    load: float
    table: pl.DataFrame
    chosen: Candidate | None
    currency: str = ""
    objections: tuple[str, ...] = ()

    @property
    def load_text(self) -> str:
        """The load with its unit."""
        return f"{self.load:g} {name_load_unit('1/s' if self.config.is_open else 'users')}"

    @property
    def targets_text(self) -> str:
        """The goals in words."""
        names = [goal.name for goal in self.config.goals]
        return names[0] if len(names) == 1 else f"all {len(names)} goals"

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        chosen = self.chosen
        if chosen is None or chosen.gpus_high is None:
            return fit_answer(
                f"No predicted GPU count for {self.load_text} at {self.targets_text}.",
                f"No predicted GPU count for {self.load_text}.",
            )
        claim = f"{chosen.gpus_high} {chosen.deployment.gpu} serve {self.load_text}"
        needed = f": {chosen.gpus_low or 'fewer'} to {chosen.gpus_high} predicted"
        return fit_answer(f"{claim} at {self.targets_text}{needed}.", f"{claim}{needed}.", f"{claim}.")

    @property
    def details(self) -> list[str]:
        """Sentences below the answer: replicas, what the interval holds, what else was compared."""
        chosen = self.chosen
        if chosen is None:
            return []
        replicas = (chosen.gpus_high or 0) // chosen.deployment.tensor
        lines = [
            f"{replicas} {'replica' if replicas == 1 else 'replicas'} of {chosen.deployment.name} each; a replica "
            f"carries {chosen.capacity:.4g} {name_load_unit('1/s' if self.config.is_open else 'users')}.",
            f"The interval is that of the prediction's error: {chosen.errors.basis}.",
        ]
        for (gpu,), rows in self.table.group_by("gpu", maintain_order=True):
            if rows["gpus_high"].null_count() == rows.height:
                nearest = rows.sort("capacity", descending=True, nulls_last=True).row(0, named=True)
                lines.append(f"{gpu}: {nearest['verdict']}: {nearest['reason']}.")
        prices = self.table.filter(self.table["gpus_high"].is_not_null())["cost_per_hour"]
        if prices.null_count():
            lines.append("Chosen by the number of GPUs: not all types have a price (--gpu-price TYPE=PRICE).")
        return lines

    @property
    def reasons(self) -> list[str]:
        """Why there is no answer, or none to rely on; empty where there is one."""
        if self.chosen is not None:
            return list(self.objections)
        rows = self.table.select("gpu", "tensor", "backend", "verdict", "reason").rows()
        told = [f"{gpu} x {tensor}, {server}: {verdict}: {reason}" for gpu, tensor, server, verdict, reason in rows]
        return [*self.objections, *told]

    @property
    def estimates(self) -> pl.DataFrame:
        """Table ESTIMATES of the chosen deployment, with the interval of the prediction's error; as forecasts need."""
        chosen = self.chosen
        if chosen is None or chosen.sweep is None:
            return ESTIMATES.frame([])
        own = chosen.sweep.answer.estimates
        rows = [
            row
            | {
                "gpus": chosen.gpus,
                "gpus_low": chosen.gpus_low,
                "gpus_high": chosen.gpus_high,
                "recommended": chosen.gpus_high,
                "capacity_low": chosen.slow_capacity,
                "capacity_high": chosen.fast_capacity,
                "verdict": f"predicted for {chosen.deployment.name}",
                "served": f"{chosen.deployment.model} on {chosen.deployment.gpu}",
            }
            for row in own.filter(own["binding"]).to_dicts()
        ]
        return ESTIMATES.frame(rows)


def predict_gpus(
    predictor: Predictor,
    deployments: Mapping[str, Sequence[Deployment]],
    config: SweepConfig,
    load: float,
    errors: Callable[[Deployment], TimeErrors],
    *,
    prices: Mapping[str, float] | None = None,
    currency: str = "",
    objections: Sequence[str] = (),
    on_progress: OnProgress,
) -> GpuPrediction:
    """Predict how many GPUs of each type a load needs, and choose the cheapest.

    `deployments`: Candidates by GPU type; of each type the one with the fewest GPUs at the slow end counts.
    `errors`: How far the prediction for a deployment may be off.
    `prices`: Of a GPU for an hour, by type. `objections`: Why those errors are not known.
    """
    ladder = Ladder(sharpness=1.3, most_repeats=1, most_levels=MAX_LEVELS, largest=max(4.0, 2 * load))
    config = config.model_copy(update={"ladder": ladder})
    found: list[Candidate] = []
    best: list[Candidate] = []
    for gpu, candidates in deployments.items():
        tried = []
        for deployment in candidates:
            on_progress(f"{gpu}: replicas of {deployment.tensor}, {deployment.backend}")
            tried.append(_predict_expected(predictor, deployment, config, load, errors(deployment)))
        counts = [candidate.gpus for candidate in tried if candidate.gpus is not None]
        near = NEAR_BEST_FACTOR * min(counts, default=0)
        for place, candidate in enumerate(tried):
            if candidate.sweep is not None and candidate.gpus is not None and candidate.gpus <= near:
                on_progress(f"{candidate.deployment.name}: slow end")
                tried[place] = _add_end(predictor, candidate, candidate.sweep, config, 1.0)
        with_end = [
            (candidate.gpus_high, candidate.deployment.tensor, place, candidate.sweep)
            for place, candidate in enumerate(tried)
            if candidate.gpus_high is not None and candidate.sweep is not None
        ]
        if with_end:
            _, _, place, sweep = min(with_end, key=lambda entry: entry[:3])
            on_progress(f"{tried[place].deployment.name}: fast end")
            tried[place] = _add_end(predictor, tried[place], sweep, config, -1.0)
            best.append(tried[place])
        found += tried
    costs = {
        candidate.deployment: candidate.gpus_high * prices[candidate.deployment.gpu]
        for candidate in found
        if prices and candidate.gpus_high is not None and candidate.deployment.gpu in prices
    }
    has_prices = all(candidate.deployment in costs for candidate in best)
    chosen = min(
        best,
        key=lambda candidate: costs[candidate.deployment] if has_prices else candidate.gpus_high or 0,
        default=None,
    )
    rows = [_build_row(candidate, config, costs.get(candidate.deployment), candidate is chosen) for candidate in found]
    return GpuPrediction(config, load, PREDICTIONS.frame(rows), chosen, currency, tuple(objections))


def _predict_expected(
    predictor: Predictor, deployment: Deployment, config: SweepConfig, load: float, errors: TimeErrors
) -> Candidate:
    """A candidate with its sweep at the expected times."""
    predictor.check_deployment(deployment)
    try:
        sweep = _run_ladder(predictor, deployment, config, load, errors.expected)
    except InputError as error:
        return Candidate(deployment, errors, load, reason=error.what)
    capacity, reasons = _read_capacity(sweep.answer, load), sweep.answer.reasons
    return Candidate(
        deployment,
        errors,
        load,
        sweep,
        capacity,
        cache_tokens=predictor.cache_tokens,
        reason=None if capacity else "; ".join(reasons),
    )


def _add_end(
    predictor: Predictor, candidate: Candidate, sweep: PredictedSweep, config: SweepConfig, end: float
) -> Candidate:
    """The candidate with its capacity at an end of the errors' interval: 1 for the slow one, -1 for the fast one."""
    factors = candidate.errors.at_end(end, _measure_prefill_share(sweep, candidate.capacity or 1.0))
    answer = _run_ladder(predictor, candidate.deployment, config, candidate.load, factors).answer
    capacity = _read_capacity(answer, candidate.load)
    expected = candidate.capacity or 0.0
    # Levels have noise of their own: an end is never on the other side.
    if end < 0:
        return replace(candidate, fast_capacity=None if capacity is None else max(capacity, expected))
    capacity = None if capacity is None else min(capacity, expected)
    reason = None if capacity else f"at the slow end of the times: {'; '.join(answer.reasons) or 'no load is within'}"
    return replace(candidate, slow_capacity=capacity, reason=reason)


def _run_ladder(
    predictor: Predictor, deployment: Deployment, config: SweepConfig, load: float, factors: TimeFactors
) -> PredictedSweep:
    requests, steps = predict_sweep(predictor, deployment, config, factors)
    limits = PointLimits.from_config(config)
    answer = compute_answer(requests, steps, config.goals, load, limits=limits, draws=100)
    return PredictedSweep(requests, steps, answer)


def _read_capacity(answer: SizingAnswer, load: float) -> float | None:
    """Largest load of a replica within all goals, at most the whole load; null where one has none.

    A goal that no predicted load misses does not bind beyond the largest one.
    """
    capacities: list[float] = []
    for row in answer.estimates.iter_rows(named=True):
        capacity = row["capacity"]
        if row["verdict"] == AT_LEAST:
            # What is simulated has no noise of a service: the value of a level is enough.
            met = answer.quantiles.filter(metric=row["metric"], q=row["q"])
            capacity = met.filter(met["value_s"] <= row["limit_s"])["load"].max()
        if capacity is None:
            return None
        capacities.append(min(float(capacity), load))
    return min(capacities)


def _measure_prefill_share(sweep: PredictedSweep, capacity: float) -> float:
    """Share of prefill in the time of the binding goal, near the capacity.

    Between two tokens others are prefilled, too: for the share of the time that the replica prefills, which is the rate
    of the requests times the prefill of one alone.
    """
    row = sweep.answer.binding or sweep.answer.estimates.row(0, named=True)
    if row["metric"] in ("ttft", "ttfo"):
        return 1.0
    points = sweep.answer.points.select("step", "load", "rate_per_s").sort("load").rows()
    step, _, rate_per_s = min(points, key=lambda point: abs(point[1] - capacity))
    alone, near = (sweep.requests.filter(sweep.requests["step"] == one) for one in (points[0][0], step))
    prefill_s, ttft_s, runtime_s = (
        float(str(table[name].mean())) for table, name in ((alone, "ttft_s"), (near, "ttft_s"), (near, "runtime_s"))
    )
    stalled: float = min(1.0, rate_per_s * prefill_s)
    if row["metric"] in ("itl", "gap"):
        return stalled
    return (ttft_s + stalled * (runtime_s - ttft_s)) / runtime_s


def _build_row(candidate: Candidate, config: SweepConfig, cost: float | None, is_chosen: bool) -> dict[str, Any]:
    """Row of table PREDICTIONS."""
    if candidate.sweep is None:
        verdict = "not possible"
    elif candidate.capacity is None:
        verdict = "not within the goal"
    elif candidate.slow_capacity is None:
        verdict = "no upper end" if candidate.reason else "more GPUs than others"
    else:
        verdict = "predicted"
    deployment, expected = candidate.deployment, candidate.errors.expected
    binding = None if candidate.sweep is None else candidate.sweep.answer.binding
    return {
        "gpu": deployment.gpu,
        "backend": deployment.backend,
        "tensor": deployment.tensor,
        "model": deployment.model,
        "target": binding["target"] if binding else None,
        "load": candidate.load,
        "load_unit": "1/s" if config.is_open else "users",
        "capacity": candidate.capacity,
        "capacity_low": candidate.slow_capacity,
        "capacity_high": candidate.fast_capacity,
        "gpus": candidate.gpus,
        "gpus_low": candidate.gpus_low,
        "gpus_high": candidate.gpus_high,
        "cost_per_hour": cost,
        "prefill_factor": expected.prefill,
        "decode_factor": expected.decode,
        "cache_tokens": candidate.cache_tokens,
        "chosen": is_chosen,
        "verdict": verdict,
        "reason": candidate.reason if verdict != "predicted" else None,
    }
