"""GPUs over the limit, calculated in the page from capacities on a grid: sliders for users and limit, no kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.chart_data import at_most, sentences
from workbench.pieces.encodings import finish
from workbench.sizing.config import Goal
from workbench.theme import COLOURS

if TYPE_CHECKING:
    import altair as alt

LIMIT_ROWS = 500
MOST_LOAD = 4
SLIDER_STEPS = 200
# Without a lower end of the capacity nothing can be recommended.
SAID = (
    "isValid(datum.capacity_low) ? format(ceil(datum.most - 1e-9), ',') + ' GPUs' "
    ": 'more than ' + format(floor(datum.gpus), ',') + ' GPUs, how many is open'"
)


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
        at_most(capacities, "what-if", LIMIT_ROWS, "a coarser grid")
        .sort("limit_ms")
        .with_columns(test_gpus=pl.lit(test_gpus))
    )
    limits = rows["limit_ms"].to_list()
    chosen_load = alt.param(name="load", value=load, bind=_load_slider(load, load_unit) if sliders else alt.Undefined)
    chosen_limit = alt.param(
        name="limit_ms", value=limit_ms, bind=_limit_slider(limits, goal) if sliders and limits else alt.Undefined
    )
    per = "load * datum.test_gpus"
    base = (
        alt.Chart(rows)
        .transform_calculate(gpus=f"{per} / datum.capacity")
        .transform_calculate(fewest=f"{per} / datum.capacity_high")
        .transform_calculate(most=f"{per} / datum.capacity_low")
        .transform_calculate(said=SAID)
    )
    x = alt.X(
        "limit_ms",
        type="quantitative",
        title=f"limit of {goal.metric} p{100 * goal.q:g} (ms)",
        scale=_span(limits),
        axis=alt.Axis(format=",d", tickCount=8),
    )
    y = alt.Y(
        "gpus",
        type="quantitative",
        title="GPUs",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=6, tickMinStep=1, format=",d"),
    )
    tips = [
        alt.Tooltip("limit_ms", type="quantitative", title="limit (ms)", format=","),
        *(
            alt.Tooltip(name, type="quantitative", title=words, format=",.1f")
            for name, words in (("gpus", "GPUs"), ("fewest", "90 % interval from"), ("most", "to"))
        ),
    ]
    whole = base.transform_filter("isValid(datum.capacity_low) && isValid(datum.capacity_high)")
    spans = whole.mark_rule(strokeWidth=9, opacity=0.25, color=COLOURS["accelerator"]).encode(
        x=x, y=alt.Y("fewest", type="quantitative"), y2=alt.Y2("most")
    )
    dots = base.mark_point(size=38, filled=True, opacity=1, color=COLOURS["accent"]).encode(x=x, y=y, tooltip=tips)
    here = base.transform_filter("datum.limit_ms == limit_ms")
    chosen = here.mark_point(size=150, filled=True, opacity=1, color=COLOURS["failure"]).encode(x=x, y=y, tooltip=tips)
    words = here.mark_text(align="left", dx=10, dy=-12, fontSize=15, fontWeight=600).encode(
        x=x, y=y, text=alt.Text("said", type="nominal")
    )
    layered = alt.layer(spans, dots, chosen, words).add_params(chosen_load, chosen_limit)
    named = "users" if load_unit == "users" else "requests a second"
    told = sentences(
        f"as drawn: {load:g} {named}; the sliders change it" if sliders else f"{load:g} {named}",
        "bars: 90 % intervals, their upper end is recommended",
        f"linear scaling from {test_gpus} GPU{'' if test_gpus == 1 else 's'} assumed",
    )
    return finish(layered, "What if: GPUs for another limit, for other users", told, rows.drop("test_gpus"), height=280)


def _load_slider(load: float, unit: str) -> Any:
    import altair as alt

    step = max(1, round(load / SLIDER_STEPS * MOST_LOAD)) if load >= SLIDER_STEPS / MOST_LOAD else load / 50
    return alt.binding_range(
        min=step, max=MOST_LOAD * load, step=step, name="Users " if unit == "users" else "Requests a second "
    )


def _limit_slider(limits: list[int], goal: Goal) -> Any:
    import altair as alt

    step = limits[1] - limits[0] if len(limits) > 1 else 1
    return alt.binding_range(
        min=limits[0], max=limits[-1], step=step, name=f"Limit of {goal.metric} p{100 * goal.q:g} (ms) "
    )


def _span(limits: list[int]) -> Any:
    import altair as alt

    return alt.Scale(zero=False, nice=False, padding=16) if limits else alt.Scale()
