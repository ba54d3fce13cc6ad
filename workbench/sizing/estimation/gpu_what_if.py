"""GPUs for other users or another latency limit, with chart and live sliders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workbench.charts import renderer
from workbench.charts.data import check_row_count, join_sentences
from workbench.charts.theme import COLOURS, finish_chart
from workbench.core.formats import format_ends, format_number
from workbench.live.result_widgets import WhatIfControls, slider_options
from workbench.sizing.config import Goal
from workbench.sizing.estimation.capacity_fit import (
    CURVES,
    Capacity,
    Ceiling,
    Level,
    estimate_bounded_capacity,
    find_ceiling,
)
from workbench.sizing.estimation.gpu_estimates import select_usable_levels
from workbench.sizing.estimation.metrics import format_quantile
from workbench.sizing.tables import CAPACITIES, CURVE
from workbench.stats import quantiles

if TYPE_CHECKING:
    import altair as alt

GRID_DRAWS, GOAL_DRAWS = 200, 500
"""Resamples for other limits, and for the one that was asked for (as many as the estimate has)."""
STEPS_BELOW, STEPS_ABOVE = 10, 16
GRID_STEP_FRACTION = 0.05
"""A step of the grid, as a share of the limit."""
CURVE_POINTS = 60
MAX_INTERVAL_RATIO = 2.0
"""Factor between the ends of an interval that still says something."""

MAX_LOAD_FACTOR = 4
"""How many times the asked load the slider reaches."""
MAX_LIMIT_ROWS = 500
MAX_SLIDER_LOAD_FACTOR = 4
SLIDER_STEPS = 200
# Without a lower end of the capacity nothing can be recommended.
GPU_TEXT_EXPR = (
    "isValid(datum.capacity_low) ? format(ceil(datum.most - 1e-9), ',') + ' GPUs' "
    ": 'more than ' + format(floor(datum.gpus), ',') + ' GPUs, how many is open'"
)


def list_levels_by_gpus(
    requests: pl.DataFrame, steps: pl.DataFrame, points: pl.DataFrame, goal: Goal
) -> dict[int, list[Level]]:
    """The usable levels of each GPU count, the smallest count first.

    `requests`, `steps`, `points`: Tables of these names.
    """
    counts = sorted(points["gpus"].unique().to_list())
    return {gpus: select_usable_levels(requests, steps, points.filter(points["gpus"] == gpus), goal) for gpus in counts}


def estimate_capacities(
    levels: Mapping[int, Sequence[Level]],
    goal: Goal,
    *,
    draws: int = GRID_DRAWS,
    seed: int = 0,
    ceilings: Mapping[int, Ceiling | None] | None = None,
    is_open: bool = False,
) -> pl.DataFrame:
    """Which load does each GPU count carry, within the limit and, for the largest count, within others around it?

    Returns: The table `CAPACITIES`. The grid is in steps of 5 % of the limit, as far as the measured loads reach.
    """
    rows: list[dict[str, Any]] = []
    limit_ms = max(1, round(1000 * goal.limit_s))
    last = max(levels, default=0)
    for gpus, gpu_levels in levels.items():
        for at_ms in limit_grid_ms(limit_ms) if gpus == last else [limit_ms]:
            ceiling = (ceilings or {}).get(gpus)
            capacity = _estimate_at_limit(gpu_levels, goal, at_ms, draws, seed, ceiling, is_open=is_open)
            has_value = capacity.value is not None
            ends = {
                "capacity_low": capacity.low if has_value else None,
                "capacity_high": capacity.high if has_value else None,
            }
            row = {"gpus": gpus, "limit_ms": at_ms, "capacity": capacity.value, **ends}
            rows.append(row)
    return CAPACITIES.frame(rows)


def list_ceilings(points: pl.DataFrame) -> dict[int, Ceiling | None]:
    """Find the lowest load of each GPU count that was not served; null where all were. `points`: Table POINTS."""
    return {gpus: find_ceiling(points.filter(pl.col("gpus") == gpus)) for gpus in points["gpus"].unique().to_list()}


def _estimate_at_limit(
    levels: Sequence[Level],
    goal: Goal,
    limit_ms: int,
    draws: int,
    seed: int,
    ceiling: Ceiling | None,
    *,
    is_open: bool,
) -> Capacity:
    """Estimate exactly at the goal's own limit, equal to the one in the answer, which is displayed, too."""
    is_goal = limit_ms == round(1000 * goal.limit_s)
    limit_s = goal.limit_s if is_goal else limit_ms / 1000
    n = GOAL_DRAWS if is_goal else draws
    return estimate_bounded_capacity(levels, ceiling, goal.q, limit_s, is_open=is_open, draws=n, seed=seed)


def limit_grid_ms(limit_ms: int) -> list[int]:
    """Limits around one, in equal steps.

    >>> limit_grid_ms(6000)[:3], limit_grid_ms(6000)[-1], len(limit_grid_ms(6000))
    ([3000, 3300, 3600], 10800, 27)
    """
    step = max(1, round(GRID_STEP_FRACTION * limit_ms))
    return [at for k in range(-STEPS_BELOW, STEPS_ABOVE + 1) if (at := limit_ms + k * step) > 0]


def sample_fitted_curve(levels: Sequence[Level], goal: Goal, method: str | None) -> pl.DataFrame:
    """The curve that the estimate inverts, as a table to draw; empty without a method."""
    points = [(level.load, quantiles.compute_quantile(level.values, goal.q)) for level in levels]
    finite = sorted((load, value) for load, value in points if math.isfinite(value))
    if method is None or len(finite) < 2:
        return CURVE.frame([])
    loads = np.array([load for load, _ in finite])
    fitted = CURVES[method](loads, np.array([[value for _, value in finite]]))
    at = np.unique(np.concatenate([loads, np.geomspace(loads[0], loads[-1], CURVE_POINTS)]))
    return CURVE.frame([{"load": float(load), "value_s": float(fitted.latency_at(float(load))[0])} for load in at])


def _drop_wide_ends(table: pl.DataFrame) -> pl.DataFrame:
    """Drop the limits at both ends of the grid whose interval is too wide to say anything."""
    rows = table.filter(table["capacity"].is_not_null()).sort("limit_ms")
    sharp = rows.filter(rows["capacity_high"] <= MAX_INTERVAL_RATIO * rows["capacity_low"])["limit_ms"]
    return rows.filter(rows["limit_ms"].is_between(sharp.min(), sharp.max())) if len(sharp) else rows


class WhatIf:
    """GPUs for other users and other limits, from levels that were measured; nothing is measured anew.

    `ceiling`: The lowest load that was not served; null when all were.
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
        ceiling: Ceiling | None = None,
    ) -> None:
        self.levels, self.test_gpus, self.goal, self.seed = levels, test_gpus, goal, seed
        self.ceiling = ceiling
        self.load_unit = load_unit
        self.table = _drop_wide_ends(table.filter(table["gpus"] == test_gpus))
        self.load = load
        self.limit_ms = max(1, round(1000 * goal.limit_s))
        self._known: dict[int, Capacity] = {}

    def set(self, *, load: float | None = None, limit_ms: int | None = None) -> None:
        """Another load, another limit."""
        self.load = self.load if load is None else load
        self.limit_ms = self.limit_ms if limit_ms is None else limit_ms

    @property
    def capacity(self) -> Capacity:
        """Load that the test GPUs carry within the limit."""
        if self.limit_ms not in self._known:
            self._known[self.limit_ms] = _estimate_at_limit(
                self.levels,
                self.goal,
                self.limit_ms,
                GRID_DRAWS,
                self.seed,
                self.ceiling,
                is_open=self.load_unit != "users",
            )
        return self._known[self.limit_ms]

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        capacity, served = (
            self.capacity,
            f"{self.load:g} {'users' if self.load_unit == 'users' else 'requests a second'}",
        )
        words = (
            f"{served} at {format_quantile(self.goal.metric, self.goal.q)} ≤ {format_number(self.limit_ms / 1000)} s"
        )
        if capacity.value is None:
            return f"{words}: no number. {capacity.reason}; {capacity.advice}."
        gpus, low, high = (self._gpus_for_capacity(value) for value in (capacity.value, capacity.high, capacity.low))
        qualifier = "at least " if high is None else ""
        count = math.ceil((high or gpus or 0) - 1e-9)
        ends = f"90 % interval {format_ends(low, high)}"
        figures = f"{count} GPUs ({format_number(gpus)}, {ends})"
        return f"{words}: {qualifier}{figures}, if n times the GPUs carry n times the load."

    def chart(self, *, sliders: bool = True) -> alt.Chart:
        """GPUs over the limit, for the load that is set; with sliders that work in the page."""

        where = (self.table, self.test_gpus, self.load, self.limit_ms, self.load_unit)
        return chart_what_if(*where, goal=self.goal, sliders=sliders)

    def show(self) -> None:
        """Show the chart, whose sliders work in the page; live with sliders that calculate anew above it."""
        from IPython.display import display

        if renderer.is_headless() or not self.table.height:
            display(self.chart())  # type: ignore[no-untyped-call]
            return

        GpuWhatIfControls(self).show()

    def _gpus_for_capacity(self, carried: float | None) -> float | None:
        return None if not carried else self.load * self.test_gpus / carried


class GpuWhatIfControls(WhatIfControls):
    """Two sliders, a sentence and a chart, bound to one `WhatIf`.

    Nothing here needs a front end: without one the sliders just stay as they are.
    """

    def __init__(self, what_if: WhatIf) -> None:
        import ipywidgets

        super().__init__()
        self.what_if = what_if
        limits = what_if.table["limit_ms"].to_list()
        step = limits[1] - limits[0] if len(limits) > 1 else 1
        words = "Users" if what_if.load_unit == "users" else "Requests per s"
        max_load = max(2.0, MAX_LOAD_FACTOR * what_if.load)
        self.load = ipywidgets.FloatSlider(
            value=what_if.load,
            min=min(1.0, what_if.load),
            max=max_load,
            step=1.0,
            description=words,
            **slider_options(110, 440, ".0f"),
        )
        self.limit = ipywidgets.IntSlider(
            value=what_if.limit_ms,
            min=min(limits),
            max=max(limits),
            step=step,
            description="Limit (ms)",
            **slider_options(110, 440, "d"),
        )
        self.load.observe(lambda change: self._apply_change(load=change["new"]), "value")
        self.limit.observe(lambda change: self._apply_change(limit_ms=change["new"]), "value")
        self.update_answer()

    def format_answer(self) -> str:
        """The GPUs that load and limit as set need."""
        return self.what_if.answer

    def build_chart(self) -> Any:
        """GPUs by load, without the chart's own sliders."""
        return self.what_if.chart(sliders=False)

    def list_controls(self) -> list[Any]:
        """Load, then limit."""
        return [self.load, self.limit]

    def _apply_change(self, **changed: Any) -> None:
        self.what_if.set(**changed)
        self.redraw()


def chart_what_if(
    capacities: pl.DataFrame, test_gpus: int, load: float, limit_ms: int, load_unit: str, *, goal: Goal, sliders: bool
) -> alt.Chart:
    """How many GPUs for other users, at another limit?

    Parameters
    ----------
    capacities
        Table `what_if.CAPACITIES` of one GPU count, rows with a capacity.
    test_gpus
        That count.
    load, limit_ms, load_unit, goal
        Where the sliders stand, and what they mean.
    sliders
        With sliders in the page, which need no kernel.

    Notes
    -----
    Assumes that GPUs scale linearly. Does not show the other targets.
    """
    import altair as alt

    rows = (
        check_row_count(capacities, "what-if", MAX_LIMIT_ROWS, "a coarser grid")
        .sort("limit_ms")
        .with_columns(test_gpus=pl.lit(test_gpus))
    )
    limits = rows["limit_ms"].to_list()
    chosen_load = alt.param(name="load", value=load, bind=_load_slider(load, load_unit) if sliders else alt.Undefined)
    # Rows are looked up by whole milliseconds; people set seconds, as in the goal.
    chosen_limit = alt.param(
        name="limit_s", value=limit_ms / 1000, bind=_limit_slider(limits, goal) if sliders and limits else alt.Undefined
    )
    limit_of_row = alt.param(name="limit_ms", expr="round(1000 * limit_s)")
    layers = _what_if_layers(rows, limits, goal)
    layered = alt.layer(*layers).add_params(chosen_load, chosen_limit, limit_of_row)
    named = "users" if load_unit == "users" else "requests a second"
    note = join_sentences(
        f"at first for {load:g} {named}; move the sliders" if sliders else f"{load:g} {named}",
        "bars: 90 % intervals, their upper end is recommended",
        f"linear scaling from {test_gpus} GPU{'' if test_gpus == 1 else 's'} assumed",
    )
    return finish_chart(layered, "GPUs for another limit and for other users", note, rows.drop("test_gpus"), height=280)


def _what_if_layers(rows: pl.DataFrame, limits: list[int], goal: Goal) -> list[alt.Chart]:
    """Layers of the chart: intervals and estimates over the limit, and the estimate at the chosen limit with its text.

    `rows`: Estimates, one for each of `limits` in ms.
    """
    import altair as alt

    per = "load * datum.test_gpus"
    base = (
        alt.Chart(rows)
        .transform_calculate(gpus=f"{per} / datum.capacity")
        .transform_calculate(fewest=f"{per} / datum.capacity_high")
        .transform_calculate(most=f"{per} / datum.capacity_low")
        .transform_calculate(said=GPU_TEXT_EXPR)
        .transform_calculate(top="isValid(datum.capacity_low) ? datum.most : datum.gpus")
        .transform_calculate(limit_s="datum.limit_ms / 1000")
    )
    x = alt.X(
        "limit_ms",
        type="quantitative",
        title=f"limit of {format_quantile(goal.metric, goal.q)} (s)",
        scale=alt.Scale(zero=False, nice=False, padding=16) if limits else alt.Scale(),
        axis=alt.Axis(labelExpr="format(datum.value / 1000, '.3~g')", tickCount=8),
    )
    y = alt.Y(
        "gpus",
        type="quantitative",
        title="GPUs",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=6, tickMinStep=1, format=",d", minExtent=36),
    )
    tips = [
        alt.Tooltip("limit_s", type="quantitative", title="limit (s)", format=",.3~g"),
        *(
            alt.Tooltip(name, type="quantitative", title=words, format=",.1f")
            for name, words in (("gpus", "GPUs"), ("fewest", "90 % interval from"), ("most", "to"))
        ),
    ]
    interval_base = base.transform_filter("isValid(datum.capacity_low) && isValid(datum.capacity_high)")
    spans = interval_base.mark_rule(strokeWidth=9, opacity=0.25, color=COLOURS["accelerator"]).encode(
        x=x, y=alt.Y("fewest", type="quantitative"), y2=alt.Y2("most")
    )
    dots = base.mark_point(size=38, filled=True, opacity=1, color=COLOURS["accent"]).encode(x=x, y=y, tooltip=tips)
    here = base.transform_filter("datum.limit_ms == limit_ms")
    chosen = here.mark_point(size=150, filled=True, opacity=1, color=COLOURS["failure"]).encode(x=x, y=y, tooltip=tips)
    # At the end that is recommended, not at the estimate.
    words = here.mark_text(align="left", dx=10, dy=-8, fontSize=15, fontWeight=600).encode(
        x=x, y=alt.Y("top", type="quantitative"), text=alt.Text("said", type="nominal")
    )
    return [spans, dots, chosen, words]


def _load_slider(load: float, unit: str) -> Any:
    import altair as alt

    step = (
        max(1, round(load / SLIDER_STEPS * MAX_SLIDER_LOAD_FACTOR))
        if load >= SLIDER_STEPS / MAX_SLIDER_LOAD_FACTOR
        else load / 50
    )
    return alt.binding_range(
        min=step,
        max=MAX_SLIDER_LOAD_FACTOR * load,
        step=step,
        name="Users " if unit == "users" else "Requests a second ",
    )


def _limit_slider(limits: list[int], goal: Goal) -> Any:
    import altair as alt

    step = limits[1] - limits[0] if len(limits) > 1 else 1
    return alt.binding_range(
        min=limits[0] / 1000,
        max=limits[-1] / 1000,
        step=step / 1000,
        name=f"Limit of {format_quantile(goal.metric, goal.q)} (s) ",
    )
