"""The answer of a sweep: GPUs per target with an interval, what binds, what it rests on, in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, InputError
from workbench.formats import number
from workbench.sizing.config import Goal
from workbench.sizing.goodput import goodput
from workbench.sizing.gpus import USABLE, estimated
from workbench.sizing.points import Limits, points
from workbench.sizing.scaling import REACH

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Answer:
    """How many GPUs, and why.

    Attributes
    ----------
    load, load_unit
        What is to be served: users, or arrivals a second (1/s).
    points, quantiles, estimates, goodput, scaling
        The tables of those names; `scaling` is empty for one GPU count.
    verification
        The table `verification`, once the answer was verified.
    simulated
        A simulator was measured.
    gpu_price_per_hour
        Price of a GPU for an hour; null when none was given.
    """

    load: float
    load_unit: str
    points: pl.DataFrame
    quantiles: pl.DataFrame
    estimates: pl.DataFrame
    goodput: pl.DataFrame
    scaling: pl.DataFrame
    simulated: bool
    gpu_price_per_hour: float | None = None
    verification: pl.DataFrame | None = None

    def verified(self, table: pl.DataFrame) -> Answer:
        """The same answer with its verification."""
        return replace(self, verification=table)

    @cached_property
    def binding(self) -> dict[str, Any] | None:
        """The estimate that asks for the most GPUs; null when there is none."""
        bound = self.estimates.filter(self.estimates["binding"])
        return bound.row(0, named=True) if bound.height else None

    @property
    def recommended(self) -> int | None:
        """GPUs that meet every target: the largest upper end; null when a target has none."""
        counts = self.estimates["recommended"]
        return None if not len(counts) or counts.null_count() else int(str(counts.max()))

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the recommended GPUs for an hour."""
        if self.recommended is None or self.gpu_price_per_hour is None:
            return None
        return self.recommended * self.gpu_price_per_hour

    @property
    def sentence(self) -> str:
        """The answer in words, with its interval and what it assumes."""
        simulated = "Simulated: " if self.simulated else ""
        served = f"{self.load:g} {'users' if self.load_unit == 'users' else 'requests a second'}"
        targets = " and ".join(self.estimates["target"].to_list())
        row = self.binding
        if self.recommended is None or row is None:
            return f"{simulated}no number of GPUs can be given for {served} at {targets}: {'; '.join(self.reasons)}"
        words = f"{simulated}{self.recommended} GPUs serve {served} at {targets}: {number(row['gpus'])} by the estimate"
        low = "fewer" if row["gpus_low"] is None else number(row["gpus_low"])
        words += f", 90 % interval {low} to {number(row['gpus_high'])}"
        words += f", bound by {row['target']}" if self.estimates.height > 1 else ""
        return f"{words}; {row['verdict']}{self._check()}"

    @property
    def reasons(self) -> list[str]:
        """Why the answer is not valid; empty when it is."""
        found = []
        for row in self.estimates.iter_rows(named=True):
            if row["gpus"] is None:
                found.append(f"{row['target']}: {row['reason']}")
            elif row["recommended"] is None:
                found.append(f"{row['target']}: its interval has no upper end{self._open_end(row['target'])}")
        if not self.points.filter(self.points["verdict"].is_in(USABLE)).height:
            worst = self.points.row(0, named=True) if self.points.height else None
            found.append("no usable point" + (f": {worst['reason']}" if worst else ""))
        if self.verification is not None:
            wrong = self.verification.filter(self.verification["verdict"] != "held")
            found += [f"verification of {row['target']}: {row['reason']}" for row in wrong.iter_rows(named=True)]
        return found

    def _open_end(self, target: str) -> str:
        """Why an interval has no upper end, and what to measure."""
        counts = self.scaling.filter(self.scaling["target"] == target)["counts"].to_list()
        if not counts:
            return "; measure lower loads"
        most = REACH * max(counts[0])
        return f" up to {most} GPUs, twice the largest measured count; measure a larger one"

    def _check(self) -> str:
        if self.verification is None:
            return "; not verified"
        verdicts = sorted(set(self.verification["verdict"].to_list()))
        return f"; verification {', '.join(verdicts)} ({self.verification['scope'][0]})"


def answer(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    goals: Sequence[Goal],
    load: float,
    *,
    limits: Limits | None = None,
    gpu_price_per_hour: float | None = None,
    draws: int = 500,
    seed: int = 0,
) -> Answer:
    """How many GPUs does the load need, so that every goal is met?

    Parameters
    ----------
    requests, steps
        The raw tables of a sweep, or of several on different GPU counts (`joined`).
    goals
        What must hold; at least one.
    load
        Users, or arrivals a second where the steps are open loops.
    limits
        From when on a point is not valid.
    gpu_price_per_hour
        Price of a GPU for an hour, for costs.
    draws, seed
        Resamples of the intervals, start of the random numbers.

    Raises
    ------
    ConfigError
        No goal, or a load that is not positive.
    InputError
        Closed and open loops are mixed, or there is no step.
    """
    if not goals:
        raise ConfigError("no goal", allowed="such as p95<=2 or 'ttft p99<=300ms'")
    if not load > 0:
        raise ConfigError("the load to serve is not positive", found=load)
    if not steps.height:
        raise InputError("no steps", do="run a sweep first: workbench sizing run")
    table, quantiles = points(requests, steps, limits=limits, qs=sorted({0.5, 0.9, 0.95, 0.99, *(g.q for g in goals)}))
    units = table["load_unit"].unique().to_list()
    if len(units) > 1:
        raise InputError("closed and open loops are mixed", found=sorted(steps["loop"].unique().to_list()))
    table_of_estimates, laws = estimated(requests, steps, table, goals, load, draws=draws, seed=seed)
    return Answer(
        load=float(load),
        load_unit=units[0],
        points=table,
        quantiles=quantiles,
        estimates=table_of_estimates,
        goodput=goodput(requests, steps, table, goals, gpu_price_per_hour=gpu_price_per_hour),
        scaling=laws,
        simulated=bool(steps["simulated"].any()),
        gpu_price_per_hour=gpu_price_per_hour,
    )


def joined(sweeps: Sequence[tuple[pl.DataFrame, pl.DataFrame]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The raw tables of several sweeps as one, their steps numbered on."""
    import polars as pl

    all_requests, all_steps, offset = [], [], 0
    for requests, steps in sweeps:
        all_requests.append(requests.with_columns(step=pl.col("step") + offset))
        all_steps.append(steps.with_columns(step=pl.col("step") + offset))
        offset += (int(str(steps["step"].max())) + 1) if steps.height else 0
    return pl.concat(all_requests), pl.concat(all_steps)
