"""When a step has enough: at least so many requests, and an interval that is tight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from workbench import quantiles
from workbench.sizing import samples, steady
from workbench.sizing.config import SweepConfig


class StopRule(BaseModel):
    """When a step may end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    least: int = Field(default=200, ge=20, description="Kept requests that a step needs.")
    most: int = Field(default=1000, ge=20, description="Kept requests after which it ends anyway.")
    tight: float = Field(default=0.05, gt=0, le=1, description="Half width of the 90 % interval over the quantile.")
    q: float = Field(default=0.95, gt=0, lt=1, description="The quantile that is watched.")
    metric: str = Field(default="runtime", description="The metric that is watched.")


def enough(finished: Mapping[str, Sequence[Any]], users: int, stop: StopRule) -> str | None:
    """Why the step may end: 'tight' or 'samples'; null when it needs more.

    Parameters
    ----------
    finished
        The requests that have ended, in the order they were sent: columns of the table `requests`, of which `outcome`
        (absent: all ok) and the metric's are read.
    users
        Users of a closed loop; 0 for an open one.
    """
    values = samples.values(finished, stop.metric)
    runtimes = values[:, 0] if stop.metric == "runtime" else samples.values(finished, "runtime")[:, 0]
    kept = values[steady.start(runtimes, users) :]
    # What is called warm-up may change with the requests that are still running, up to its largest share.
    if (1 - steady.LARGEST_SHARE) * (len(values) - users) < stop.least:
        return None
    if len(kept) >= stop.most:
        return "samples"
    found = quantiles.quantile(kept, stop.q)
    half = (found.high - found.low) / 2
    return "tight" if np.isfinite(half) and half <= stop.tight * found.value else None


def rule(config: SweepConfig) -> StopRule:
    """The rule of a sweep: watches the first goal."""
    goal = config.goals[0] if config.goals else None
    return StopRule(
        least=config.least_samples,
        most=config.most_samples,
        tight=config.tight,
        q=0.95 if goal is None else goal.q,
        metric="runtime" if goal is None else goal.metric,
    )
