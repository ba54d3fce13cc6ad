"""Charts of a plan, each drawn from one of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.charts.bar_chart import bars
from workbench.charts.data import join_sentences, select_columns
from workbench.charts.ladder_chart import ladder
from workbench.charts.theme import COLOURS, ROW_PX, assign_colours, encode_rows, encode_tooltip, finish_chart
from workbench.core.formats import format_cost_unit, format_number
from workbench.core.frames import takes_frames

if TYPE_CHECKING:
    import altair as alt

PARTS = (("spark_gpus_p50", "Spark"), ("service_gpus_p50", "service"))
ENDS = ("at its P5", "at its P95")


@takes_frames
def chart_day(hours: pl.DataFrame, nodes_to_provide: int = 0, gpus_per_node: int = 1) -> alt.Chart:
    """GPUs of each hour and the nodes to provide for them, from HOURS_TABLE.

    `nodes_to_provide`, `gpus_per_node`: The nodes of the answer, drawn as a line of their GPUs; 0: no line.
    """
    import altair as alt

    figures = ["spark_gpus_p50", "service_gpus_p50", "gpus_p5", "gpus_p50", "gpus_p95", "capacity_gpus", "nodes_p50"]
    frame = select_columns(hours, "day", numbers=["hour", *figures])
    parts = [name for column, name in PARTS if frame[column].null_count() < frame.height]
    stacked = frame.unpivot([column for column, name in PARTS if name in parts], index="hour", value_name="gpus")
    stacked = stacked.select("hour", pl.col("variable").replace_strict(dict(PARTS)).alias("part"), "gpus")
    x = alt.X("hour", type="ordinal", title="hour of the day", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    highest = max([1.0, float(nodes_to_provide * gpus_per_node), *frame["gpus_p95"].drop_nulls()])
    # The line of the nodes needs room for its words.
    scale = alt.Scale(domain=[0, 1.15 * highest], nice=False)
    y = alt.Y("gpus", type="quantitative", title="GPUs", stack="zero", axis=alt.Axis(tickCount=6), scale=scale)
    colour = alt.Color("part", type="nominal", title=None, scale=alt.Scale(domain=parts, range=assign_colours(parts)))
    order = alt.Order("part", type="nominal", sort="descending")
    bars = alt.Chart(stacked).mark_bar(width={"band": 0.8}, opacity=0.85)
    base = alt.Chart(frame.select("hour", "nodes_p50", "capacity_gpus", "gpus_p5", "gpus_p50", "gpus_p95"))
    tips = encode_tooltip(frame.select("hour", "gpus_p5", "gpus_p50", "gpus_p95", "nodes_p50", "capacity_gpus"))
    # Without a colour it follows the page's text colour, light or dark.
    band = base.mark_rule(strokeWidth=3)
    layered = alt.layer(
        bars.encode(x=x, y=y, color=colour, order=order, tooltip=encode_tooltip(stacked)),
        band.encode(x=x, y=alt.Y("gpus_p5", type="quantitative"), y2=alt.Y2("gpus_p95"), tooltip=tips),
    )
    if nodes_to_provide:
        layered = alt.layer(layered, *_build_provided_line(nodes_to_provide, gpus_per_node))
    legend = "bars: median GPUs of each part · black line: from P5 to P95 of both together"
    return finish_chart(layered, "How many GPUs does each hour need?", legend, frame, height=300)


def _build_provided_line(nodes: int, gpus_per_node: int) -> list[Any]:
    """A dashed line at the GPUs of the nodes to provide, with their number."""
    import altair as alt

    gpus = nodes * gpus_per_node
    words = f"{nodes} node{'' if nodes == 1 else 's'} to provide: {format_number(gpus)} GPUs"
    frame = pl.DataFrame({"gpus": [float(gpus)], "words": [words]})
    base = alt.Chart(frame).encode(y=alt.Y("gpus", type="quantitative"), tooltip=encode_tooltip(frame))
    text = base.mark_text(align="left", dx=4, dy=-8, fontWeight=600, color=COLOURS["failure"])
    return [
        base.mark_rule(color=COLOURS["failure"], strokeDash=[6, 3], strokeWidth=1.5),
        text.encode(x=alt.value(0), text=alt.Text("words", type="nominal")),
    ]


@takes_frames
def chart_idle_cost(hours: pl.DataFrame) -> alt.Chart:
    """Chart the cost of idle GPUs by hour, for each hour's own nodes and for the peak's all day, from HOURS_TABLE."""
    import altair as alt

    frame = select_columns(hours, "idle", numbers=["hour", "idle_cost", "idle_cost_fixed"])
    parts = [
        ("with the hour's own nodes", pl.col("idle_cost")),
        ("more with the peak's nodes all day", pl.col("idle_cost_fixed") - pl.col("idle_cost")),
    ]
    stacked = pl.concat(
        frame.select("hour", part=pl.lit(name), cost=value, order=pl.lit(place))
        for place, (name, value) in enumerate(parts)
    )
    names = [name for name, _ in parts]
    scale = alt.Scale(domain=names, range=[COLOURS["accent"], COLOURS["neutral"]])
    drawn = (
        alt.Chart(stacked)
        .mark_bar(width={"band": 0.8})
        .encode(
            x=alt.X("hour", type="ordinal", title="hour of the day", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("cost", type="quantitative", title="cost of idle GPUs in the hour", stack="zero"),
            color=alt.Color("part", type="nominal", title=None, scale=scale),
            order=alt.Order("order", type="ordinal"),
            tooltip=encode_tooltip(stacked.drop("order")),
        )
    )
    hourly, fixed = (format_number(float(frame[column].sum())) for column in ("idle_cost", "idle_cost_fixed"))
    legend = f"{hourly} a day with each hour's own nodes, {fixed} with the peak's nodes all day"
    return finish_chart(drawn, "What idle GPUs cost", legend, frame, height=220)


@takes_frames
def chart_information(information: pl.DataFrame) -> alt.Chart:
    """Chart how much knowing each input exactly would save per day, from INFORMATION."""
    return bars(
        information.filter("resolved"),
        title="Which measurement to buy next",
        label="input",
        value="saving",
        category="kind",
        subtitle="upper limit of what a perfect measurement of this input would save a day",
    )


@takes_frames
def chart_tornado(tornado: pl.DataFrame) -> alt.Chart:
    """Effect of each input on the GPUs at the peak, from TORNADO."""
    import altair as alt

    frame = select_columns(tornado, "tornado", texts=["input"], numbers=["gpus_at_p5", "gpus_median", "gpus_at_p95"])
    halves = pl.concat(
        frame.select("input", pl.lit(end).alias("end"), pl.col(column).alias("gpus"), "gpus_median")
        for end, column in zip(ENDS, ("gpus_at_p5", "gpus_at_p95"), strict=True)
    )
    scale = alt.Scale(domain=list(ENDS), range=[COLOURS["neutral"], COLOURS["accelerator"]])
    x = alt.X("gpus", type="quantitative", title="GPUs at the peak", scale=alt.Scale(zero=False, padding=20))
    base = alt.Chart(halves).encode(y=encode_rows("input"), tooltip=encode_tooltip(halves))
    bars = base.mark_bar(height={"band": 0.6}).encode(
        x=x, x2=alt.X2("gpus_median"), color=alt.Color("end", type="nominal", title=None, scale=scale)
    )
    middle = base.mark_tick(thickness=2, color=COLOURS["accent"], height={"band": 0.9}).encode(
        x=alt.X("gpus_median", type="quantitative")
    )
    legend = "all others at their medians; no bar: no effect on the peak"
    height = max(60, 1.4 * ROW_PX * frame.height)
    return finish_chart(alt.layer(bars, middle), "GPUs at the peak, one input at a time", legend, frame, height=height)


@takes_frames
def chart_nodes(hours: pl.DataFrame) -> alt.Chart:
    """Nodes of each hour with P5 and P95, from HOURS_TABLE."""
    drawn = hours.select("hour", nodes="nodes_p50", low="nodes_p5", high="nodes_p95")
    legend = "P50, bars from P5 to P95"
    return ladder(drawn, title="Nodes by hour", level="hour", value="nodes", low="low", high="high", subtitle=legend)


@takes_frames
def chart_what_if(
    what_if: pl.DataFrame, *, price_per_h: float | None = None, currency: str = "", sliders: bool = True
) -> alt.Chart:
    """GPUs, nodes and cost with more or fewer jobs or users, from WHAT_IF; the sliders work without a kernel.

    `price_per_h`, `currency`: Price of a node for an hour; without one the cost is left out.
    """
    import altair as alt

    numbers = ["jobs_percent", "users_percent", "hour", "gpus", "nodes", "capacity_gpus"]
    frame = select_columns(what_if, "what-if", numbers=numbers)
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
    y = alt.Scale(domain=[0, 1.2 * top] if top else [0, 1], nice=False)
    tips = encode_tooltip(frame.select("hour", "gpus", "nodes", "capacity_gpus"))
    bars = base.mark_bar(width={"band": 0.8}, opacity=0.7, color=COLOURS["accent"]).encode(
        x=x, y=alt.Y("gpus", type="quantitative", title="GPUs", scale=y), tooltip=tips
    )
    ticks = base.mark_tick(thickness=2, color=COLOURS["failure"], width={"band": 1}).encode(
        x=x, y=alt.Y("capacity_gpus", type="quantitative", title="GPUs", scale=y), tooltip=tips
    )
    read_out = "'Peak: ' + format(ceil(datum.peak), ',') + ' GPUs on ' + format(datum.peak_nodes, ',') + ' nodes'"
    if price_per_h is not None:
        cost = f"format({price_per_h!r} * datum.node_hours, ',.3~r')"
        read_out += f" + '; ' + {cost} + ' {format_cost_unit(currency, 'a day')}, each hour with its own nodes'"
    told = base.transform_aggregate(
        peak="max(gpus)", peak_nodes="max(nodes)", node_hours="sum(nodes)", groupby=[]
    ).transform_calculate(told=read_out)
    words = told.mark_text(align="left", baseline="top", fontSize=15, fontWeight=600, dy=-2).encode(
        x=alt.value(4), y=alt.value(0), text=alt.Text("told", type="nominal")
    )
    layered = alt.layer(bars, ticks, words)
    layered = layered.add_params(*params) if params else layered
    legend = join_sentences("every input at its median", "red line: GPUs of the nodes")
    return finish_chart(layered, "GPUs and nodes with more or fewer jobs and users", legend, frame, height=260)
