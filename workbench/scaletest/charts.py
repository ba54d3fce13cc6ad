"""Charts of a run: each draws its tables and computes nothing new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.chart_data import sentences
from workbench.pieces.encodings import finish, rows, tooltip
from workbench.scaletest.result_tables import FLOW, GPUS, QUANTILES, RAMP, SHARES
from workbench.theme import CATEGORIES, COLOURS

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
    tips = tooltip(frame, leave_out=("from_s", "to_s"))
    colours = alt.Scale(domain=["p50", "p95", "p99"], range=[CATEGORIES[0], CATEGORIES[3], COLOURS["failure"]])
    shade = alt.Color("quantile", type="nominal", title=None, scale=colours)
    axis = alt.Axis(tickCount=7, format="~g", labelOverlap=True)
    scale = alt.Scale(type="log", nice=False, padding=12)
    # p95 and p99 often lie on each other: each has a line of its own in the row.
    lane = alt.YOffset("quantile", type="nominal", scale=alt.Scale(domain=["p50", "p95", "p99"], paddingOuter=0.6))
    # Layers hold different rows: without it each would add its steps in an order of its own.
    order = frame["step"].unique(maintain_order=True).to_list()
    base = alt.Chart(frame).encode(y=rows("step").sort(order), yOffset=lane, color=shade, tooltip=tips)
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
    told = sentences(
        "95 % intervals within this run" + _WHOSE[own],
        "dashed: not bounded above" if opened else "",
        "what never ended counts as infinitely slow",
        f"{hidden} without a figure (never reached, or at once)" if hidden else "",
    )
    height = max(80, LANES_PX * len(order))
    return finish(alt.layer(*layers), "How long does each step take?", told, frame, height=height)


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
    tips = tooltip(frame.select("workloads", "segment", "share", "mean_s"), {"share": ".1%"})
    whole_axis = {"axis": alt.Axis(format="%"), "scale": alt.Scale(domain=[0, 1], nice=False)}
    x = alt.X("begin", type="quantitative", title="share of the time from due to running", **whole_axis)
    legend = alt.Legend(orient="top", columns=5, symbolType="square")
    base = alt.Chart(frame).encode(y=rows("workloads"), tooltip=tips)
    bars = base.mark_bar(height={"band": 0.7}).encode(
        x=x, x2=alt.X2("end"), color=alt.Color("segment", type="nominal", title=None, scale=colours, legend=legend)
    )
    large = frame.filter(pl.col("share") >= 0.08).with_columns(middle=(pl.col("begin") + pl.col("end")) / 2)
    figure = alt.Chart(large).mark_text(color="white", fontWeight=600)
    text = figure.encode(
        x=alt.X("middle", type="quantitative"), y=rows("workloads"), text=alt.Text("share", format=".0%"), tooltip=tips
    )
    n, n_tail = (int(table[name][0]) if table.height else 0 for name in ("n", "n_tail"))
    told = f"means over {n} workloads that ran, and over the {n_tail} slowest of them"
    return finish(alt.layer(bars, text), "Where does the time go?", told, frame, height=90)


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
        y=alt.Y("count", type="quantitative", title="so many so far", axis=alt.Axis(format="~s")),
        color=alt.Color("stage", type="nominal", title=None, scale=colours, sort=order),
    )
    # Stages that follow at once lie on each other: the later ones are thinner, and on top.
    lines = [
        base.transform_filter(alt.FieldEqualPredicate(field="stage", equal=stage)).mark_line(
            interpolate="step-after", strokeWidth=1.5 + 0.8 * (len(order) - 1 - place)
        )
        for place, stage in enumerate(order)
    ]
    hover = base.mark_point(size=30, opacity=0, filled=True).encode(tooltip=tooltip(frame))
    told = "the distance between two lines, upwards, is what waits; sideways, how long it waits"
    return finish(alt.layer(*lines, hover), "What came in, what got through?", told, frame, height=HEIGHT_PX)


def chart_ramp(ramp: pl.DataFrame) -> alt.LayerChart:
    """Which rate is sustained? Pods scheduled against pods offered, step by step.

    Parameters
    ----------
    ramp
        Table RAMP of one run.
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
    base = alt.Chart(frame).encode(x=x, color=shade, tooltip=tooltip(frame))
    layers = [
        line.encode(x=x, y=y),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low_per_s", type="quantitative"), y2=alt.Y2("high_per_s")),
        base.mark_point(size=90, filled=True, opacity=1).encode(y=y),
    ]
    told = sentences(
        "on the dashed line all that is offered gets through",
        "95 % intervals over windows of each step",
        f"{unknown} step{'' if unknown == 1 else 's'} without a figure" if unknown else "",
    )
    return finish(alt.layer(*layers), "Which rate is sustained?", told, frame, height=HEIGHT_PX)


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
    return finish(alt.layer(areas, asked), "What were the GPUs doing?", told, table, height=HEIGHT_PX)
