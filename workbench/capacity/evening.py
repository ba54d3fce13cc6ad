"""When are the accelerator's cluster and the baseline's equally dear? Only where a qualification has both prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.capacity.config import PlanConfig
from workbench.capacity.inputs import Jobs
from workbench.capacity.model import Model
from workbench.capacity.quantity import Floats
from workbench.capacity.summing import quantiles
from workbench.formats import number


@dataclass(frozen=True)
class BreakEven:
    """The day's jobs on both clusters, at the qualification's prices.

    Attributes
    ----------
    baseline_cost, candidate_cost
        Of all jobs of a day, for the time in which they run; any currency.
    price_ratio
        Price of the candidate's hour over the baseline's, now.
    even_ratio
        P5, P50 and P95 of the ratio at which both cost the same.
    """

    baseline_cost: float
    candidate_cost: float
    price_ratio: float
    even_ratio: tuple[float, float, float]

    @property
    def text(self) -> str:
        """In words."""
        low, middle, high = (number(one) for one in self.even_ratio)
        baseline, candidate = number(self.baseline_cost), number(self.candidate_cost)
        return (
            f"Break-even: at the qualification's prices the day's jobs cost {baseline} on the baseline's cluster and "
            f"{candidate} on the accelerator's, while they run. Both cost the same when an hour of the accelerator "
            f"costs {middle} times [{low}, {high}] one of the baseline; now it is {number(self.price_ratio)} times."
        )


def break_even(config: PlanConfig, model: Model, jobs: Jobs | None, given: dict[str, Floats]) -> BreakEven | None:
    """The break-even of the day's jobs; null without both sides' prices, or without jobs."""
    if jobs is None:
        return None
    base_s, cand_s, base, cand = 0.0, np.zeros(config.draws), 0.0, 0.0
    for one, work in zip(config.job_classes, model.works, strict=True):
        rows = jobs.of(one)
        figures = [rows[name] for name in ("baseline_s", "baseline_cost", "predicted_cost")]
        if any(column.null_count() for column in figures):
            return None
        count = float(work.per_hour.sum())
        means = [float(column.mean()) for column in figures]  # type: ignore[arg-type]
        base_s, base, cand = base_s + count * means[0], base + count * means[1], cand + count * means[2]
        cand_s = cand_s + count * given[work.duration.name]
    middle = sum(float(work.per_hour.sum()) * work.duration.value for work in model.works)
    if not (base > 0 and cand > 0 and base_s > 0 and middle > 0):
        return None
    low, half, high = (float(one) for one in quantiles(base_s / cand_s))
    return BreakEven(base, cand, (cand / middle) / (base / base_s), (low, half, high))
