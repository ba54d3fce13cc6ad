"""What if there were other users, or another limit? Capacities on a grid of limits, and GPUs from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import quantiles, renderer
from workbench.formats import number
from workbench.sizing.config import Goal
from workbench.sizing.curves import CURVES
from workbench.sizing.estimate import Capacity, Level, capacity
from workbench.sizing.gpus import levels_of
from workbench.tables import Column, Table

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

DRAWS, OWN_DRAWS = 200, 500
"""Resamples for other limits, and for the one that was asked for (as many as the estimate has)."""
STEPS_BELOW, STEPS_ABOVE = 10, 16
SHARE = 0.05
"""A step of the grid, as a share of the limit."""
CURVE_POINTS = 60
WIDEST = 2.0
"""Factor between the ends of an interval that still says something."""

CAPACITIES = Table(
    "capacities",
    "One row per GPU count and limit: the load that the count carries within it.",
    ("gpus", "limit_ms"),
    (
        Column("gpus", "int", "GPUs that were measured."),
        Column("limit_ms", "int", "The largest value allowed.", unit="ms"),
        Column(
            "capacity", "float", "Largest load within it; null where the measured loads cannot tell.", nullable=True
        ),
        Column("capacity_low", "float", "Low end of its 90 % interval.", nullable=True),
        Column("capacity_high", "float", "High end.", nullable=True),
    ),
)

CURVE = Table(
    "curve",
    "The fitted curve of the binding target on the largest measured GPU count.",
    ("load",),
    (
        Column("load", "float", "The load."),
        Column("value_s", "float", "The quantile by the curve.", unit="s"),
    ),
)


def levels_by_count(
    requests: pl.DataFrame, steps: pl.DataFrame, points: pl.DataFrame, goal: Goal
) -> dict[int, list[Level]]:
    """The usable levels of each GPU count, the smallest count first."""
    counts = sorted(points["gpus"].unique().to_list())
    return {gpus: levels_of(requests, steps, points.filter(points["gpus"] == gpus), goal) for gpus in counts}


def capacities(levels: Mapping[int, Sequence[Level]], goal: Goal, *, draws: int = DRAWS, seed: int = 0) -> pl.DataFrame:
    """Which load does each GPU count carry, within the limit and, for the largest count, within others around it?

    Returns
    -------
    DataFrame
        The table `CAPACITIES`. The grid is in steps of 5 % of the limit, as far as the measured loads reach.
    """
    rows: list[dict[str, Any]] = []
    limit_ms = max(1, round(1000 * goal.limit_s))
    last = max(levels, default=0)
    for gpus, found in levels.items():
        for at_ms in grid_ms(limit_ms) if gpus == last else [limit_ms]:
            rows.append(_row(gpus, at_ms, _capacity(found, goal, at_ms, draws, seed)))
    return CAPACITIES.frame(rows)


def _capacity(levels: Sequence[Level], goal: Goal, limit_ms: int, draws: int, seed: int) -> Capacity:
    """The goal's own limit exactly as it was estimated: what stands in two places must be the same."""
    own = limit_ms == round(1000 * goal.limit_s)
    limit_s = goal.limit_s if own else limit_ms / 1000
    return capacity(levels, goal.q, limit_s, draws=OWN_DRAWS if own else draws, seed=seed)


def grid_ms(limit_ms: int) -> list[int]:
    """Limits around one, in equal steps.

    Examples
    --------
    >>> grid_ms(6000)[:3], grid_ms(6000)[-1], len(grid_ms(6000))
    ([3000, 3300, 3600], 10800, 27)
    """
    step = max(1, round(SHARE * limit_ms))
    return [at for k in range(-STEPS_BELOW, STEPS_ABOVE + 1) if (at := limit_ms + k * step) > 0]


def _row(gpus: int, limit_ms: int, found: Capacity) -> dict[str, Any]:
    known = found.value is not None
    ends = {"capacity_low": found.low if known else None, "capacity_high": found.high if known else None}
    return {"gpus": gpus, "limit_ms": limit_ms, "capacity": found.value, **ends}


def curve(levels: Sequence[Level], goal: Goal, method: str | None) -> pl.DataFrame:
    """The curve that the estimate inverts, as a table to draw; empty without a method."""
    known = [(level.load, quantiles.quantile_of(level.values, goal.q)) for level in levels]
    finite = sorted((load, value) for load, value in known if math.isfinite(value))
    if method is None or len(finite) < 2:
        return CURVE.frame([])
    loads = np.array([load for load, _ in finite])
    fitted = CURVES[method](loads, np.array([[value for _, value in finite]]))
    at = np.unique(np.concatenate([loads, np.geomspace(loads[0], loads[-1], CURVE_POINTS)]))
    return CURVE.frame([{"load": float(load), "value_s": float(fitted.at(float(load))[0])} for load in at])


def _told(table: pl.DataFrame) -> pl.DataFrame:
    """The limits that something can be said about: those at the ends of the grid with a wide interval are left out."""
    known = table.filter(table["capacity"].is_not_null()).sort("limit_ms")
    sharp = known.filter(known["capacity_high"] <= WIDEST * known["capacity_low"])["limit_ms"]
    return known.filter(known["limit_ms"].is_between(sharp.min(), sharp.max())) if len(sharp) else known


class WhatIf:
    """GPUs for other users and other limits, from levels that were measured; nothing is measured anew.

    Parameters
    ----------
    levels
        Usable levels of one GPU count.
    test_gpus
        That count.
    goal, load, load_unit
        What holds now, and what is to be served.
    table
        Table `CAPACITIES`: what the sliders of the page move on.
    seed
        Start of the random numbers.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        test_gpus: int,
        goal: Goal,
        load: float,
        load_unit: str,
        table: pl.DataFrame,
        seed: int = 0,
    ) -> None:
        self.levels, self.test_gpus, self.goal, self.seed = levels, test_gpus, goal, seed
        self.load_unit = load_unit
        self.table = _told(table.filter(table["gpus"] == test_gpus))
        self.load = load
        self.limit_ms = max(1, round(1000 * goal.limit_s))
        self._known: dict[int, Capacity] = {}

    def set(self, *, load: float | None = None, limit_ms: int | None = None) -> None:
        """Another load, another limit."""
        self.load = self.load if load is None else load
        self.limit_ms = self.limit_ms if limit_ms is None else limit_ms

    @property
    def capacity(self) -> Capacity:
        """What the test GPUs carry within the limit."""
        if self.limit_ms not in self._known:
            self._known[self.limit_ms] = _capacity(self.levels, self.goal, self.limit_ms, DRAWS, self.seed)
        return self._known[self.limit_ms]

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        found, served = self.capacity, f"{self.load:g} {'users' if self.load_unit == 'users' else 'requests a second'}"
        words = f"{served} at {self.goal.metric} p{100 * self.goal.q:g} ≤ {number(self.limit_ms / 1000)} s"
        if found.value is None:
            return f"{words}: no number. {found.reason}; {found.advice}."
        gpus, low, high = (self._gpus(value) for value in (found.value, found.high, found.low))
        whole = "at least " if high is None else ""
        count = math.ceil((high or gpus or 0) - 1e-9)
        ends = f"90 % interval {number(low)} to {number(high)}"
        return f"{words}: {whole}{count} GPUs ({number(gpus)}, {ends}), if n times the GPUs carry n times the load."

    def chart(self, *, sliders: bool = True) -> alt.Chart:
        """GPUs over the limit, for the load that is set; with sliders that work in the page."""
        from workbench.sizing.what_if_chart import chart_what_if

        where = (self.table, self.test_gpus, self.load, self.limit_ms, self.load_unit)
        return chart_what_if(*where, goal=self.goal, sliders=sliders)

    def show(self) -> None:
        """Show the chart, whose sliders work in the page; live with sliders that calculate anew above it."""
        from IPython.display import display

        if renderer.is_headless() or not self.table.height:
            display(self.chart())  # type: ignore[no-untyped-call]
            return
        from workbench.sizing.controls import Controls

        Controls(self).show()

    def _gpus(self, carried: float | None) -> float | None:
        return None if not carried else self.load * self.test_gpus / carried
