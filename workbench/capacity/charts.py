"""Charts of a plan: they draw its tables and compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.chart_data import chosen, sentences
from workbench.pieces.encodings import ROW_PX, finish, rows, tooltip
from workbench.pieces.ladder import ladder
from workbench.theme import COLOURS, category_colours

if TYPE_CHECKING:
    import altair as alt

PARTS = (("spark_gpus_p50", "Spark"), ("service_gpus_p50", "service"))
ENDS = ("at its P5", "at its P95")


def chart_day(hours: pl.DataFrame) -> alt.Chart:
    """How many GPUs does each hour take, and do the nodes hold them? Table HOURS_TABLE."""
    import altair as alt

    figures = ["spark_gpus_p50", "service_gpus_p50", "gpus_p5", "gpus_p50", "gpus_p95", "capacity_gpus", "nodes_p50"]
    frame = chosen(hours, "day", numbers=["hour", *figures])
    parts = [name for column, name in PARTS if frame[column].null_count() < frame.height]
    stacked = frame.unpivot([column for column, name in PARTS if name in parts], index="hour", value_name="gpus")
    stacked = stacked.select("hour", pl.col("variable").replace_strict(dict(PARTS)).alias("part"), "gpus")
    x = alt.X("hour", type="ordinal", title="hour of the day", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    y = alt.Y("gpus", type="quantitative", title="GPUs", stack="zero", axis=alt.Axis(tickCount=6))
    colour = alt.Color("part", type="nominal", title=None, scale=alt.Scale(domain=parts, range=category_colours(parts)))
    order = alt.Order("part", type="nominal", sort="descending")
    bars = alt.Chart(stacked).mark_bar(width={"band": 0.8}, opacity=0.7)
    whole = alt.Chart(frame.select("hour", "nodes_p50", "capacity_gpus", "gpus_p5", "gpus_p50", "gpus_p95"))
    tips = tooltip(frame.select("hour", "gpus_p5", "gpus_p50", "gpus_p95", "nodes_p50", "capacity_gpus"))
    capacity = whole.mark_tick(thickness=2, color=COLOURS["failure"], width={"band": 1})
    # Without a colour of its own it is the page's ink, in light and in dark.
    band = whole.mark_rule(strokeWidth=3)
    layered = alt.layer(
        bars.encode(x=x, y=y, color=colour, order=order, tooltip=tooltip(stacked)),
        capacity.encode(x=x, y=alt.Y("capacity_gpus", type="quantitative"), tooltip=tips),
        band.encode(x=x, y=alt.Y("gpus_p5", type="quantitative"), y2=alt.Y2("gpus_p95"), tooltip=tips),
    )
    told = "bars: P50 of each · upright line: P5 to P95 of both · level line: GPUs of the nodes (P50)"
    return finish(layered, "GPUs by hour, and the nodes that hold them", told, frame, height=300)


def chart_tornado(tornado: pl.DataFrame) -> alt.Chart:
    """Which input moves the GPUs at the peak most? Table TORNADO."""
    import altair as alt

    frame = chosen(tornado, "tornado", texts=["input"], numbers=["gpus_at_p5", "gpus_median", "gpus_at_p95"])
    halves = pl.concat(
        frame.select("input", pl.lit(end).alias("end"), pl.col(column).alias("gpus"), "gpus_median")
        for end, column in zip(ENDS, ("gpus_at_p5", "gpus_at_p95"), strict=True)
    )
    scale = alt.Scale(domain=list(ENDS), range=[COLOURS["neutral"], COLOURS["accelerator"]])
    x = alt.X("gpus", type="quantitative", title="GPUs at the peak", scale=alt.Scale(zero=False, padding=20))
    base = alt.Chart(halves).encode(y=rows("input"), tooltip=tooltip(halves))
    bars = base.mark_bar(height={"band": 0.6}).encode(
        x=x, x2=alt.X2("gpus_median"), color=alt.Color("end", type="nominal", title=None, scale=scale)
    )
    middle = base.mark_tick(thickness=2, color=COLOURS["accent"], height={"band": 0.9}).encode(
        x=alt.X("gpus_median", type="quantitative")
    )
    told = "all others at their medians; no bar: it moves other hours, or nothing"
    height = max(60, 1.4 * ROW_PX * frame.height)
    return finish(alt.layer(bars, middle), "GPUs at the peak, one input at a time", told, frame, height=height)


def chart_nodes(hours: pl.DataFrame) -> alt.Chart:
    """How many nodes in each hour, and how sure is that? Table HOURS_TABLE."""
    drawn = hours.select("hour", nodes="nodes_p50", low="nodes_p5", high="nodes_p95")
    told = "P50, bars from P5 to P95; a node is bought whole"
    return ladder(drawn, title="Nodes by hour", level="hour", value="nodes", low="low", high="high", subtitle=told)


def chart_what_if(what_if: pl.DataFrame, *, sliders: bool = True) -> alt.Chart:
    """What if there were more or fewer jobs or users? Table WHAT_IF; sliders that need no kernel."""
    import altair as alt

    numbers = ["jobs_percent", "users_percent", "hour", "gpus", "nodes", "capacity_gpus"]
    frame = chosen(what_if, "what-if", numbers=numbers)
    params, base = [], alt.Chart(frame)
    for column, words in (("jobs_percent", "Jobs (%) "), ("users_percent", "Users (%) ")):
        values = sorted(frame[column].unique().to_list())
        if len(values) < 2:
            continue
        bound = alt.binding_range(min=values[0], max=values[-1], step=values[1] - values[0], name=words)
        params.append(alt.param(name=column, value=100, bind=bound if sliders else alt.Undefined))
        base = base.transform_filter(f"datum.{column} == {column}")
    x = alt.X("hour", type="ordinal", title="hour of the day", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    top: Any = frame["capacity_gpus"].max()
    y = alt.Scale(domain=[0, 1.05 * top] if top else [0, 1], nice=False)
    tips = tooltip(frame.select("hour", "gpus", "nodes", "capacity_gpus"))
    bars = base.mark_bar(width={"band": 0.8}, opacity=0.7, color=COLOURS["accent"]).encode(
        x=x, y=alt.Y("gpus", type="quantitative", title="GPUs", scale=y), tooltip=tips
    )
    ticks = base.mark_tick(thickness=2, color=COLOURS["failure"], width={"band": 1}).encode(
        x=x, y=alt.Y("capacity_gpus", type="quantitative", title="GPUs", scale=y), tooltip=tips
    )
    layered = alt.layer(bars, ticks)
    layered = layered.add_params(*params) if params else layered
    told = sentences("every input at its median", "level line: GPUs of the nodes", "as drawn: 100 % of both")
    return finish(layered, "What if there were more jobs, or more users?", told, frame, height=260)
