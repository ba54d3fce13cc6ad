"""Break-even: price ratio at which the accelerator's and the baseline's cluster cost the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.capacity.config import PlanConfig
from workbench.capacity.inputs import Jobs
from workbench.capacity.model import Floats, Model
from workbench.capacity.peak import compute_quantiles
from workbench.core.formats import format_number


@dataclass(frozen=True)
class BreakEven:
    """Cost of the day's jobs on both clusters, at the qualification's prices."""

    baseline_cost: float
    candidate_cost: float
    price_ratio: float
    even_ratio: tuple[float, float, float]

    @property
    def text(self) -> str:
        """The break-even as text."""
        low, middle, high = (format_number(ratio) for ratio in self.even_ratio)
        baseline, candidate = format_number(self.baseline_cost), format_number(self.candidate_cost)
        return (
            f"Break-even: at the qualification's prices, the day's jobs cost {baseline} on the baseline's cluster and"
            f" {candidate} on the accelerator's. Both cost the same if an hour of the accelerator costs {middle}x"
            f" (P5 to P95: {low} to {high}) an hour of the baseline; now it costs {format_number(self.price_ratio)}x."
        )


def find_break_even(
    config: PlanConfig, model: Model, jobs: Jobs | None, samples: dict[str, Floats]
) -> BreakEven | None:
    """Find the break-even of the day's jobs; null without jobs, or without prices of both sides."""
    if jobs is None:
        return None
    base_s, cand_s, base, cand = 0.0, np.zeros(config.draws), 0.0, 0.0
    for job_class, work in zip(config.job_classes, model.works, strict=True):
        rows = jobs.select_class(job_class)
        figures = [rows[name] for name in ("baseline_s", "baseline_cost", "predicted_cost")]
        if any(column.null_count() for column in figures):
            return None
        count = float(work.per_hour.sum())
        means = [float(column.mean()) for column in figures]  # type: ignore[arg-type]
        base_s, base, cand = base_s + count * means[0], base + count * means[1], cand + count * means[2]
        cand_s = cand_s + count * samples[work.duration.name]
    middle = sum(float(work.per_hour.sum()) * work.duration.value for work in model.works)
    if not (base > 0 and cand > 0 and base_s > 0 and middle > 0):
        return None
    low, half, high = (float(ratio) for ratio in compute_quantiles(base_s / cand_s))
    return BreakEven(base, cand, (cand / middle) / (base / base_s), (low, half, high))
