"""Charts of one test run and of several runs by variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.charts.data import MAX_POSITIONS, downsample_ecdf, join_sentences
from workbench.charts.forest_chart import forest
from workbench.charts.theme import (
    CATEGORIES,
    COLOURS,
    encode_colour,
    encode_rows,
    encode_tooltip,
    finish_chart,
    make_zoomable,
)
from workbench.core.formats import format_number
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.tables import COMPARISON, FLOW, GPUS, QUANTILES, RAMP, SHARES
from workbench.stats.verdicts import DIFFERENT

if TYPE_CHECKING:
    import altair as alt

HEIGHT_PX = 260
LANES_PX = 30
_CLOCKS = ("client", "server", "mixed")
_WHOSE = {
    "client": "",
    "server": ", by the cluster's clock (most of its times are whole seconds)",
    "mixed": ", from our clock to the cluster's",
}
_VERDICTS = {
    "SUSTAINED": COLOURS["accelerator"],
    "UNDECIDED": COLOURS["neutral"],
    "NOT SUSTAINED": COLOURS["failure"],
}
_STAGES = {
    "due": "workloads due",
    "acked": "workloads accepted",
    "pods_due": "pods accepted",
    "pods_created": "pods made",
    "pods_scheduled": "pods scheduled",
    "pods_running": "pods started",
    "pods_ended": "pods ended",
}
_GPUS = {
    "allocated": "at work",
    "in_partial_gangs": "held by incomplete gangs",
    "stranded": "free, too few on a node",
    "free": "free",
}


def chart_steps(quantiles: pl.DataFrame, clock: str | None = None) -> alt.LayerChart:
    """How long does each step take, at the median and in the tail?

    Parameters
    ----------
    quantiles
        Table QUANTILES of one run.
    clock
        Whose times; without it the client's, and the cluster's where there are none of the client's (imported runs).

    Notes
    -----
    Intervals are within this run. One that is not bounded above is drawn dashed, as far as the longest that ended.
    Steps that take no time at all (0 on a log axis) are counted, not drawn.
    """
    import altair as alt

    table = QUANTILES.check(quantiles).filter(pl.col("quantile").is_in([0.5, 0.95, 0.99]))
    known = set(table["clock"])
    own = clock or next((one for one in _CLOCKS if one in known), "client")
    table = table.filter(pl.col("clock") == own)
    frame = table.select(
        "step",
        pl.format("p{}", (100 * pl.col("quantile")).round(0).cast(pl.Int64)).alias("quantile"),
        *("value_s", "low_s", "high_s", "n", "missing"),
        # On a log axis there is no 0 to begin at.
        pl.when(pl.col("low_s") > 0).then("low_s").otherwise("value_s").alias("from_s"),
        pl.coalesce("high_s", pl.max_horizontal("longest_s", "value_s")).alias("to_s"),
    ).filter(pl.col("value_s") > 0)
    hidden, opened = table.height - frame.height, frame["high_s"].null_count()
    tips = encode_tooltip(frame, leave_out=("from_s", "to_s"))
    colours = alt.Scale(domain=["p50", "p95", "p99"], range=[CATEGORIES[0], CATEGORIES[3], COLOURS["failure"]])
    shade = alt.Color("quantile", type="nominal", title=None, scale=colours)
    axis = alt.Axis(tickCount=7, format="~g", labelOverlap=True)
    scale = alt.Scale(type="log", nice=False, padding=12)
    # p95 and p99 often lie on each other: each has a line of its own in the row.
    lane = alt.YOffset("quantile", type="nominal", scale=alt.Scale(domain=["p50", "p95", "p99"], paddingOuter=0.6))
    # Layers hold different rows: without it each would add its steps in an order of its own.
    order = frame["step"].unique(maintain_order=True).to_list()
    base = alt.Chart(frame).encode(y=encode_rows("step").sort(order), yOffset=lane, color=shade, tooltip=tips)
    ends = {"x": alt.X("from_s", type="quantitative"), "x2": alt.X2("to_s")}
    layers = [
        base.transform_filter("isValid(datum.high_s)").mark_rule(strokeWidth=2, opacity=0.7).encode(**ends),
        base.transform_filter("!isValid(datum.high_s)")
        .mark_rule(strokeWidth=2, opacity=0.7, strokeDash=[4, 3])
        .encode(**ends),
        base.mark_point(size=60, filled=True, opacity=1).encode(
            x=alt.X("value_s", type="quantitative", title="duration [s]", scale=scale, axis=axis)
        ),
    ]
    told = join_sentences(
        "95 % intervals within this run" + _WHOSE[own],
        "dashed: not bounded above" if opened else "",
        "what never ended counts as infinitely slow",
        f"{hidden} without a figure (never reached, or below the resolution)" if hidden else "",
    )
    height = max(80, LANES_PX * len(order))
    return finish_chart(alt.layer(*layers), "How long does each step take?", told, frame, height=height)


def chart_shares(shares: pl.DataFrame) -> alt.LayerChart:
    """Where does the time go: for all workloads, and for the slowest 5 %?

    Parameters
    ----------
    shares
        Table SHARES of one run.
    """
    import altair as alt

    table = SHARES.check(shares).with_row_index("order")
    whole = table.select("order", "segment", pl.lit("all").alias("workloads"), "share", pl.col("mean_s"))
    tail = table.select(
        "order",
        "segment",
        pl.lit("slowest 5 %").alias("workloads"),
        pl.col("tail_share").alias("share"),
        pl.col("tail_mean_s").alias("mean_s"),
    )
    frame = pl.concat([whole, tail]).with_columns(pl.col("order").cast(pl.Int64)).sort("workloads", "order")
    frame = frame.with_columns(
        end=pl.col("share").cum_sum().over("workloads"),
        begin=pl.col("share").cum_sum().over("workloads") - pl.col("share"),
    )
    names = table["segment"].to_list()
    colours = alt.Scale(domain=names, range=CATEGORIES[: len(names)])
    tips = encode_tooltip(frame.select("workloads", "segment", "share", "mean_s"), {"share": ".1%"})
    whole_axis = {"axis": alt.Axis(format="%"), "scale": alt.Scale(domain=[0, 1], nice=False)}
    x = alt.X("begin", type="quantitative", title="share of the time from due to running", **whole_axis)
    legend = alt.Legend(orient="top", columns=5, symbolType="square")
    base = alt.Chart(frame).encode(y=encode_rows("workloads"), tooltip=tips)
    bars = base.mark_bar(height={"band": 0.7}).encode(
        x=x, x2=alt.X2("end"), color=alt.Color("segment", type="nominal", title=None, scale=colours, legend=legend)
    )
    large = frame.filter(pl.col("share") >= 0.08).with_columns(middle=(pl.col("begin") + pl.col("end")) / 2)
    figure = alt.Chart(large).mark_text(color="white", fontWeight=600)
    text = figure.encode(
        x=alt.X("middle", type="quantitative"),
        y=encode_rows("workloads"),
        text=alt.Text("share", format=".0%"),
        tooltip=tips,
    )
    n, n_tail = (int(table[name][0]) if table.height else 0 for name in ("n", "n_tail"))
    told = f"means over {n} workloads that ran, and over the {n_tail} slowest of them"
    return finish_chart(alt.layer(bars, text), "Where does the time go?", told, frame, height=90)


def chart_flow(flow: pl.DataFrame) -> alt.LayerChart:
    """What came in, what was made, what was scheduled? The gap between two lines is what waits.

    Parameters
    ----------
    flow
        Table FLOW of one run.
    """
    import altair as alt

    table = FLOW.check(flow)
    # Workloads of several pods have two scales; pods alone are drawn then.
    same = bool(table.height) and table["acked"][-1] == table["pods_due"][-1]
    names = [name for name in _STAGES if (name != "pods_due" if same else name.startswith("pods"))]
    long = table.select("at_s", *(pl.col(name).alias(_STAGES[name]) for name in names))
    frame = long.unpivot(index="at_s", variable_name="stage", value_name="count")
    order = [_STAGES[name] for name in names]
    colours = alt.Scale(domain=order, range=[*CATEGORIES[:6]][: len(order)])
    base = alt.Chart(frame).encode(
        x=alt.X("at_s", type="quantitative", title="time since the start [s]"),
        y=alt.Y("count", type="quantitative", title="cumulative count", axis=alt.Axis(format="~s")),
        color=alt.Color("stage", type="nominal", title=None, scale=colours, sort=order),
    )
    # Simultaneous stages overlap: later ones are thinner and drawn on top.
    lines = [
        base.transform_filter(alt.FieldEqualPredicate(field="stage", equal=stage)).mark_line(
            interpolate="step-after", strokeWidth=1.5 + 0.8 * (len(order) - 1 - place)
        )
        for place, stage in enumerate(order)
    ]
    hover = base.mark_point(size=30, opacity=0, filled=True).encode(tooltip=encode_tooltip(frame))
    told = "the distance between two lines, upwards, is what waits; sideways, how long it waits"
    return finish_chart(alt.layer(*lines, hover), "What came in, what got through?", told, frame, height=HEIGHT_PX)


def chart_ramp(ramp: pl.DataFrame, ceiling_per_s: float | None = None) -> alt.LayerChart:
    """Which rate is sustained? Pods scheduled against pods offered, step by step.

    Parameters
    ----------
    ramp
        Table RAMP of one run.
    ceiling_per_s
        What the GPUs themselves allow, in pods a second; null for no such limit.
    """
    import altair as alt

    # A step without a length has no rate: it would stretch the axis without end.
    table = RAMP.check(ramp).filter(pl.col("end_s") > pl.col("begin_s"))
    shown = ("step", "offered_per_s", "accepted_per_s", "completed_per_s", "low_per_s", "high_per_s", "backlog_end")
    frame = table.select(*shown, "p95_s", "verdict", pl.col("reason").fill_null(""))
    unknown = frame["completed_per_s"].null_count() + ramp.height - table.height
    most = max([1.0, *frame["offered_per_s"].drop_nulls().to_list()])
    diagonal = pl.DataFrame({"offered_per_s": [0.0, most], "completed_per_s": [0.0, most]})
    line = alt.Chart(diagonal).mark_line(strokeDash=[4, 3], color=COLOURS["baseline"], strokeWidth=1.5)
    x = alt.X("offered_per_s", type="quantitative", title="offered [pods/s]")
    y = alt.Y("completed_per_s", type="quantitative", title="scheduled [pods/s]")
    claims = [name for name in _VERDICTS if name in set(frame["verdict"])]
    colours = alt.Scale(domain=claims, range=[_VERDICTS[name] for name in claims])
    shade = alt.Color("verdict", type="nominal", title=None, scale=colours)
    base = alt.Chart(frame).encode(x=x, color=shade, tooltip=encode_tooltip(frame))
    layers = [
        line.encode(x=x, y=y),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low_per_s", type="quantitative"), y2=alt.Y2("high_per_s")),
        base.mark_point(size=90, filled=True, opacity=1).encode(y=y),
    ]
    # Far above all that was offered it would squeeze the rest.
    near = ceiling_per_s is not None and ceiling_per_s <= 2 * most
    if near:
        at = alt.Chart(pl.DataFrame({"completed_per_s": [ceiling_per_s]}))
        layers.append(at.mark_rule(strokeDash=[1, 3], color=COLOURS["baseline"], strokeWidth=2).encode(y=y))
    told = join_sentences(
        f"the GPUs allow {ceiling_per_s:.3g} pods/s (dotted)" if near else "",
        "on the dashed line all that is offered gets through",
        "95 % intervals over windows of each step",
        f"{unknown} step{'' if unknown == 1 else 's'} without a figure" if unknown else "",
    )
    return finish_chart(alt.layer(*layers), "Which rate is sustained?", told, frame, height=HEIGHT_PX)


def chart_gpus(gpus: pl.DataFrame) -> alt.LayerChart:
    """What were the GPUs doing? At work, held by gangs that are not complete, free, or free and of no use.

    Parameters
    ----------
    gpus
        Table GPUS of one run.
    """
    import altair as alt

    table = GPUS.check(gpus)
    parts = table.select(
        "at_s",
        (pl.col("allocated") - pl.col("in_partial_gangs")).alias(_GPUS["allocated"]),
        pl.col("in_partial_gangs").alias(_GPUS["in_partial_gangs"]),
        pl.col("stranded").alias(_GPUS["stranded"]),
        (pl.col("capacity") - pl.col("allocated") - pl.col("stranded")).alias(_GPUS["free"]),
    )
    frame = parts.unpivot(index="at_s", variable_name="state", value_name="gpus")
    order = pl.DataFrame({"state": list(_GPUS.values()), "rank": [0, 1, 2, 3]})
    frame = frame.join(order, on="state").sort("at_s", "rank")
    top = pl.col("gpus").cum_sum().over("at_s")
    frame = frame.with_columns(top=top, bottom=top - pl.col("gpus")).drop("rank")
    shades = [COLOURS["accelerator"], COLOURS["failure"], CATEGORIES[3], "#c9d1db"]
    colours = alt.Scale(domain=list(_GPUS.values()), range=shades)
    areas = (
        alt.Chart(frame)
        .mark_area(interpolate="step-after", opacity=0.85)
        .encode(
            x=alt.X("at_s", type="quantitative", title="time since the start [s]"),
            y=alt.Y("bottom", type="quantitative", title="GPUs"),
            y2=alt.Y2("top"),
            color=alt.Color("state", type="nominal", title=None, scale=colours, sort=list(_GPUS.values())),
        )
    )
    waiting = alt.Chart(table.select("at_s", "waiting", "fragmentation"))
    line = waiting.mark_line(interpolate="step-after", strokeWidth=2, strokeDash=[4, 2], color=CATEGORIES[1])
    asked = line.encode(x=alt.X("at_s", type="quantitative"), y=alt.Y("waiting", type="quantitative"))
    told = "dashed: GPUs that pods wait for; only this run's own pods are known"
    return finish_chart(alt.layer(areas, asked), "What were the GPUs doing?", told, table, height=HEIGHT_PX)


MARKED_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def chart_comparison(comparison: pl.DataFrame, a: str, b: str) -> alt.Chart:
    """In which steps do the sides differ? Ratios of the runs' quantiles with their intervals.

    Parameters
    ----------
    comparison
        Table COMPARISON. Rows without a ratio are counted in the subtitle.
    a, b
        Names of the sides; above 1, B is faster.
    """
    table = COMPARISON.check(comparison)
    share = pl.format("p{}", (100 * pl.col("quantile")).round(0).cast(pl.Int64))
    apart = pl.col("verdict").is_in(DIFFERENT)
    frame = table.filter(pl.col("ratio").is_not_null()).select(
        pl.format("{} {}", "step", share).alias("step"),
        "ratio",
        "low",
        "high",
        "n",
        apart.alias("told_apart"),
        "verdict",
        "a_s",
        "b_s",
        "reason",
    )
    level = 100 * table["level"][0] if table.height else 95.0
    told = join_sentences(
        f"ratio of the runs' quantiles; above 1, {b} is faster",
        f"{level:g} % intervals over pairs of runs" if frame["low"].is_not_null().any() else "no intervals",
        _describe_missing_rows(table, a, b),
    )
    return forest(
        frame,
        title=f"In which steps is {b} faster than {a}?",
        label="step",
        estimate="ratio",
        low="low",
        high="high",
        n="n",
        told_apart="told_apart",
        details=("verdict", "a_s", "b_s", "reason"),
        subtitle=told,
    )


def _describe_missing_rows(table: pl.DataFrame, a: str, b: str) -> str:
    """Rows that cannot be drawn, and why."""
    none = table.filter(pl.col("ratio").is_null())
    if not none.height:
        return ""
    lost_a = none.filter(pl.col("a_never") > 0).height
    lost_b = none.filter(pl.col("b_never") > 0).height
    parts = [f"{count} where {name} never got there" for name, count in ((a, lost_a), (b, lost_b)) if count]
    return f"not drawn: {none.height} rows without a ratio" + (f" ({', '.join(parts)})" if parts else "")


def chart_spread(durations: pl.DataFrame, step: str) -> alt.Chart:
    """How is a step spread over all workloads of all runs?

    Parameters
    ----------
    durations
        `side, run, duration_s`, as `Sides.durations` gives them; null: it never ended, so that the line stays below
        100 %, and a quantile beyond its end is not marked.

    Notes
    -----
    All workloads are drawn together: this does not show how one run differs from the next (`chart_comparison` does).
    """
    import altair as alt

    curve, marks = _build_distribution(durations)
    positive = bool(curve.height) and bool((curve["duration_s"] > 0).all())
    scale = alt.Scale(type="log", nice=False) if positive else alt.Scale(zero=False, nice=False)
    axis = alt.Axis(tickCount=7, format="~g", labelOverlap=True)
    x = alt.X("duration_s", type="quantitative", title="duration [s]", scale=scale, axis=axis)
    y = alt.Y(
        "share",
        type="quantitative",
        title="share of all workloads, at or below",
        axis=alt.Axis(format="%", tickCount=5),
        scale=alt.Scale(domain=[0, 1.02], nice=False),
    )
    shades = encode_colour(curve, "side")
    line = alt.Chart(curve).mark_line(interpolate="step-after", strokeWidth=2).encode(x=x, y=y, **shades)
    tips = encode_tooltip(curve, {"share": ".1%"})
    hover = alt.Chart(curve).mark_point(size=40, opacity=0, filled=True).encode(x=x, y=y, tooltip=tips, **shades)
    base = alt.Chart(marks).encode(x=x, y=y)
    dots = base.mark_point(size=60, filled=True, opacity=1).encode(
        tooltip=encode_tooltip(marks, {"share": ".1%"}), **shades
    )
    names = base.mark_text(align="left", dx=8, dy=10, color=COLOURS["neutral"]).encode(
        text=alt.Text("quantile", type="nominal")
    )
    told = join_sentences(
        _describe_workloads(durations), _describe_lost_workloads(durations), _format_quantile_marks(marks)
    )
    return finish_chart(
        make_zoomable([line, hover, dots, names], ["x"]), f"How long did it take: {step}?", told, marks, height=280
    )


def _build_distribution(durations: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps of each side's distribution over all that began, and its quantiles as far as they are reached."""
    sides = durations["side"].unique(maintain_order=True).to_list()
    columns = {"duration_s": pl.Float64, "share": pl.Float64, "side": pl.String}
    curves, marks = [pl.DataFrame(schema=columns)], [pl.DataFrame(schema=columns | {"quantile": pl.String})]
    for side in sides:
        values = durations.filter(pl.col("side") == side)["duration_s"]
        ended = (len(values) - values.null_count()) / len(values)
        exact = _variant_distribution(values, side, ended, max(10, len(values)))
        curves.append(_variant_distribution(values, side, ended, MAX_POSITIONS // len(sides)))
        for name, share in MARKED_QUANTILES.items():
            # Looked up on all steps, not on the kept ones.
            reached = exact.filter(pl.col("share") >= share - 1e-12).head(1)
            marks.append(reached.with_columns(pl.lit(name).alias("quantile")))
    return pl.concat(curves), pl.concat(marks)


def _variant_distribution(values: pl.Series, side: str, ended: float, positions: int) -> pl.DataFrame:
    steps = downsample_ecdf(values, positions=positions).rename({"value": "duration_s"})
    return steps.with_columns(pl.col("share") * ended, pl.lit(side).alias("side"))


def _describe_workloads(durations: pl.DataFrame) -> str:
    if not durations.height:
        return "no workload began this step"
    runs = durations.group_by("side", maintain_order=True).agg(pl.col("run").n_unique(), pl.len())
    several = [
        f"{format_number(row['len'])} workloads of {_format_run_count(row['run'])} ({row['side']})"
        for row in runs.to_dicts()
    ]
    return ", ".join(several)


def _format_run_count(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _describe_lost_workloads(durations: pl.DataFrame) -> str:
    """Those that never ended it."""
    if not durations["duration_s"].null_count():
        return ""
    counts = durations.group_by("side", maintain_order=True).agg(pl.col("duration_s").null_count(), pl.len())
    told = [
        f"{format_number(row['duration_s'])} of {format_number(row['len'])} ({row['side']})"
        for row in counts.to_dicts()
    ]
    return f"not completed by the end, so the line stays below 100 %: {', '.join(told)}"


def _format_quantile_marks(marks: pl.DataFrame) -> str:
    told = []
    for name in marks["quantile"].unique(maintain_order=True):
        rows = marks.filter(pl.col("quantile") == name).to_dicts()
        figures = [f"{format_number(row['duration_s'])} s ({row['side']})" for row in rows]
        told.append(f"{name} {', '.join(figures)}")
    return "; ".join(told)


def stack_by_variant(first: Mapping[str, Analysis], draw: Any) -> Any:
    """The same chart of each side's first run, one below the other, the side in its title."""
    import altair as alt

    drawn = []
    for name, one in first.items():
        chart = draw(one)
        if len(first) > 1:
            title = chart.title.to_dict() if hasattr(chart.title, "to_dict") else {"text": str(chart.title)}
            chart = chart.properties(title=alt.TitleParams(**(title | {"text": f"{name}: {title['text']}"})))
        drawn.append(chart)
    return drawn
