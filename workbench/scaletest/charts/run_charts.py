"""Charts of one test run and of several runs by variant: steps, shares, flow, rates, GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.charts.data import MAX_POSITIONS, downsample_ecdf, join_sentences
from workbench.charts.small_multiples import small_multiples, spread_labels
from workbench.charts.theme import (
    CATEGORIES,
    COLOURS,
    ROW_PX,
    build_ink_expression,
    build_log_axis,
    encode_rows,
    encode_series,
    encode_tooltip,
    finish_chart,
    make_zoomable,
)
from workbench.core.formats import format_number
from workbench.core.frames import takes_frames
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.time_breakdown import SEGMENTS
from workbench.scaletest.tables import FLOW, GPUS, PRESSURE, QUANTILES, RAMP, SHARES

if TYPE_CHECKING:
    import altair as alt

HEIGHT_PX = 260
LANES_PX = 30
MAX_CURVE_POINTS = 600
MAX_COURSE_POINTS = 150
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
    "stranded": "free, but too few on each node",
    "free": "free",
    "held_by_others": "held by others",
}
_GPU_SHADES = (COLOURS["accelerator"], COLOURS["failure"], CATEGORIES[3], "#c9d1db", CATEGORIES[4])
MARKED_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
PRESSURE_HEIGHT_PX = 220
MAX_LINES, MIN_SHOWN_S = 6, 0.001
# Distance of labels at the ends of lines, as a share of the axis.
LABEL_GAP = 0.065


@takes_frames
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
    clocks = set(table["clock"])
    shown_clock = clock or next((name for name in _CLOCKS if name in clocks), "client")
    table = table.filter(pl.col("clock") == shown_clock)
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
    colours = alt.Scale(domain=["p50", "p95", "p99"], range=[CATEGORIES[0], CATEGORIES[2], COLOURS["failure"]])
    shade = alt.Color("quantile", type="nominal", title=None, scale=colours)
    axis = build_log_axis(value for name in ("from_s", "to_s") for value in frame[name])
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
            x=alt.X("value_s", type="quantitative", title="duration (s)", scale=scale, axis=axis)
        ),
    ]
    subtitle = join_sentences(
        "95 % intervals within this run" + _WHOSE[shown_clock],
        "dashed: not bounded above" if opened else "",
        "workloads that never ended count as infinitely slow",
        f"{hidden} without a figure (never reached, or below the resolution)" if hidden else "",
    )
    height = max(80, LANES_PX * len(order))
    return finish_chart(alt.layer(*layers), "How long does each step take?", subtitle, frame, height=height)


@takes_frames
def chart_time_shares(shares: pl.DataFrame | Mapping[str, pl.DataFrame]) -> alt.LayerChart:
    """Where does the time go: for all workloads, and for the slowest 5 %?

    Parameters
    ----------
    shares
        Table SHARES of one run; or of several, by the name of the variant, in one chart with one colour for a segment.
    """
    import altair as alt

    runs = {"": shares} if isinstance(shares, pl.DataFrame) else shares
    tables = {name if len(runs) > 1 else "": SHARES.check(table) for name, table in runs.items()}
    there = {segment for table in tables.values() for segment in table["segment"]}
    names = [segment for segment in SEGMENTS.values() if segment in there]
    frame = pl.concat([_list_share_rows(name, table, names) for name, table in tables.items()])
    colours = alt.Scale(domain=names, range=CATEGORIES[: len(names)])
    tips = encode_tooltip(frame.select("workloads", "segment", "share", "mean_s"), {"share": ".1%"})
    whole_axis = {"axis": alt.Axis(format="%"), "scale": alt.Scale(domain=[0, 1], nice=False)}
    x = alt.X("begin", type="quantitative", title="share of the time from due to running", **whole_axis)
    legend = alt.Legend(orient="top", symbolType="square")
    base = alt.Chart(frame).encode(y=encode_rows("workloads"), tooltip=tips)
    bars = base.mark_bar(height={"band": 0.7}).encode(
        x=x, x2=alt.X2("end"), color=alt.Color("segment", type="nominal", title=None, scale=colours, legend=legend)
    )
    large = frame.filter(pl.col("share") >= 0.08).with_columns(middle=(pl.col("begin") + pl.col("end")) / 2)
    figure = alt.Chart(large).mark_text(
        color=alt.ExprRef(build_ink_expression("scale('color', datum.segment)")), fontWeight=600
    )
    text = figure.encode(
        x=alt.X("middle", type="quantitative"),
        y=encode_rows("workloads"),
        text=alt.Text("share", format=".0%"),
        tooltip=tips,
    )
    subtitle = "means over the workloads that ran in the first run of each, and over the slowest 5 % of them"
    if len(tables) == 1:
        table = next(iter(tables.values()))
        n, n_tail = (int(table[name][0]) if table.height else 0 for name in ("n", "n_tail"))
        subtitle = f"means over {n} workloads that ran, and over the {n_tail} slowest of them"
    height = 90 if len(tables) == 1 else 2 * len(tables) * ROW_PX
    return finish_chart(alt.layer(bars, text), "Where does the time go?", subtitle, frame, height=height)


def _list_share_rows(name: str, table: pl.DataFrame, segments: list[str]) -> pl.DataFrame:
    """Rows of two stacked bars for one run, all workloads and the slowest, each from 0 to 1, in order of `segments`.

    `table`: Table SHARES of the run `name`.
    """
    order = pl.col("segment").replace_strict(
        {segment: place for place, segment in enumerate(segments)}, return_dtype=pl.Int64
    )
    rows = [
        table.select(
            order.alias("order"),
            "segment",
            pl.lit(f"{name}, {label}" if name else label).alias("workloads"),
            pl.col(share).alias("share"),
            pl.col(mean).alias("mean_s"),
        ).sort("order")
        for label, share, mean in (("all", "share", "mean_s"), ("slowest 5 %", "tail_share", "tail_mean_s"))
    ]
    end = pl.col("share").cum_sum()
    return pl.concat(frame.with_columns(end=end, begin=end - pl.col("share")) for frame in rows)


@takes_frames
def chart_flow(flow: pl.DataFrame) -> alt.LayerChart:
    """How much came in, was made, was scheduled? The gap between two lines is what waits.

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
    frame = _keep_changes(long.unpivot(index="at_s", variable_name="stage", value_name="count"))
    order = [_STAGES[name] for name in names]
    colours = alt.Scale(domain=order, range=[*CATEGORIES[:6]][: len(order)])
    base = alt.Chart(frame).encode(
        x=alt.X("at_s", type="quantitative", title="time since the start (s)"),
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
    subtitle = "the distance between two lines, upwards, is what waits; sideways, how long it waits"
    return finish_chart(
        alt.layer(*lines, hover), "How much was offered, and how much was scheduled?", subtitle, frame, height=HEIGHT_PX
    )


def _keep_changes(long: pl.DataFrame) -> pl.DataFrame:
    """Keep only the points of step lines at which the count changes, and both ends, the last of each three pixels.

    `long`: `at_s, stage, count`, by stage in order of time.
    """
    before, ends = pl.col("count").shift(1).over("stage"), pl.int_range(pl.len()).over("stage")
    is_corner = before.is_null() | (pl.col("count") != before) | (ends == pl.len().over("stage") - 1)
    return _thin_course(long.filter(is_corner), by="stage").with_columns(pl.col("at_s").round(3))


def _thin_course(frame: pl.DataFrame, by: str | None = None) -> pl.DataFrame:
    """The first row, and the last one in each of MAX_COURSE_POINTS equal times, which a drawing cannot tell apart."""
    span = float(frame["at_s"].max() or 0.0)  # type: ignore[arg-type]
    width = span / MAX_COURSE_POINTS or 1.0
    part, row = (pl.col("at_s") / width).floor(), pl.int_range(pl.len())
    keep = (part != part.shift(-1)).fill_null(value=True) | (row == 0)
    return frame.filter(keep if by is None else keep.over(by))


@takes_frames
def chart_ramp(ramp: pl.DataFrame, ceiling_per_s: float | None = None) -> alt.LayerChart:
    """Which rate is sustained? Pods scheduled against pods offered, step by step.

    Parameters
    ----------
    ramp
        Table RAMP of one run.
    ceiling_per_s
        What the resource that bound allows, in pods a second; null for no such limit.
    """
    import altair as alt

    # A step without a length has no rate: it would stretch the axis without end.
    table = RAMP.check(ramp).filter(pl.col("end_s") > pl.col("begin_s"))
    shown = ("step", "offered_per_s", "accepted_per_s", "completed_per_s", "low_per_s", "high_per_s", "backlog_end")
    frame = table.select(*shown, "p95_s", "verdict", pl.col("reason").fill_null(""))
    unknown = frame["completed_per_s"].null_count() + ramp.height - table.height
    max_rate = max([1.0, *frame["offered_per_s"].drop_nulls().to_list()])
    diagonal = pl.DataFrame({"offered_per_s": [0.0, max_rate], "completed_per_s": [0.0, max_rate]})
    line = alt.Chart(diagonal).mark_line(strokeDash=[4, 3], color=COLOURS["baseline"], strokeWidth=1.5)
    x = alt.X("offered_per_s", type="quantitative", title="pods offered a second")
    y = alt.Y("completed_per_s", type="quantitative", title="pods scheduled a second")
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
    near = ceiling_per_s is not None and ceiling_per_s <= 2 * max_rate
    if near:
        at = alt.Chart(pl.DataFrame({"completed_per_s": [ceiling_per_s]}))
        layers.append(at.mark_rule(strokeDash=[1, 3], color=COLOURS["baseline"], strokeWidth=2).encode(y=y))
    subtitle = join_sentences(
        f"the room allows {ceiling_per_s:.3g} pods/s (dotted)" if near else "",
        "grey diagonal: everything that is offered is scheduled",
        "95 % intervals over windows of each step",
        f"{unknown} step{'' if unknown == 1 else 's'} without a figure" if unknown else "",
    )
    return finish_chart(alt.layer(*layers), "Which rate is sustained?", subtitle, frame, height=HEIGHT_PX)


@takes_frames
def chart_gpus(gpus: pl.DataFrame, *, with_others: bool = False) -> alt.LayerChart:
    """How were the GPUs used? At work, held by incomplete gangs or by others, free, or too few for the largest pod.

    Parameters
    ----------
    gpus
        Table GPUS of one run.
    with_others
        Whether what others held has a colour though it is none here: beside a run where it is not.
    """
    import altair as alt

    table = GPUS.check(gpus)
    # Areas of steps need a point where something changes, and at the ends.
    table = table.with_columns(pl.col("held_by_others").fill_null(0.0))
    states = pl.struct("capacity", "allocated", "waiting", "in_partial_gangs", "stranded", "held_by_others")
    row = pl.int_range(pl.len())
    table = table.filter((states != states.shift(1)).fill_null(value=True) | (row == 0) | (row == pl.len() - 1))
    table = _thin_course(table).with_columns(pl.col("at_s").round(3))
    parts = table.select(
        "at_s",
        (pl.col("allocated") - pl.col("in_partial_gangs")).alias(_GPUS["allocated"]),
        pl.col("in_partial_gangs").alias(_GPUS["in_partial_gangs"]),
        pl.col("stranded").alias(_GPUS["stranded"]),
        (pl.col("capacity") - pl.col("allocated") - pl.col("held_by_others") - pl.col("stranded")).alias(_GPUS["free"]),
        pl.col("held_by_others").alias(_GPUS["held_by_others"]),
    )
    with_others = with_others or table["held_by_others"].sum() > 0
    names = [name for name in _GPUS.values() if name != _GPUS["held_by_others"] or with_others]
    frame = parts.unpivot(index="at_s", on=names, variable_name="state", value_name="gpus")
    order = pl.DataFrame({"state": names, "rank": list(range(len(names)))})
    frame = frame.join(order, on="state").sort("at_s", "rank")
    top = pl.col("gpus").cum_sum().over("at_s")
    frame = frame.with_columns(top=top, bottom=top - pl.col("gpus")).drop("rank", "gpus")
    shades = dict(zip(_GPUS.values(), _GPU_SHADES, strict=True))
    colours = alt.Scale(domain=names, range=[shades[name] for name in names])
    areas = (
        alt.Chart(frame)
        .mark_area(interpolate="step-after", opacity=0.85)
        .encode(
            x=alt.X("at_s", type="quantitative", title="time since the start (s)"),
            y=alt.Y("bottom", type="quantitative", title="GPUs"),
            y2=alt.Y2("top"),
            color=alt.Color("state", type="nominal", title=None, scale=colours, sort=names),
        )
    )
    waiting = alt.Chart(table.select("at_s", "waiting"))
    line = waiting.mark_line(interpolate="step-after", strokeWidth=2, strokeDash=[4, 2], color=CATEGORIES[1])
    waiting_line = line.encode(x=alt.X("at_s", type="quantitative"), y=alt.Y("waiting", type="quantitative"))
    subtitle = "dashed: GPUs that this run's pods wait for"
    return finish_chart(alt.layer(areas, waiting_line), "What were the GPUs doing?", subtitle, table, height=HEIGHT_PX)


@takes_frames
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
    axis = build_log_axis(curve["duration_s"]) if positive else alt.Axis(tickCount=7, format="~g")
    x = alt.X("duration_s", type="quantitative", title="duration (s)", scale=scale, axis=axis)
    y = alt.Y(
        "share",
        type="quantitative",
        title="share of all workloads, at or below",
        axis=alt.Axis(format="%", tickCount=5),
        scale=alt.Scale(domain=[0, 1.02], nice=False),
    )
    shades = encode_series(curve, "side")
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
    subtitle = join_sentences(
        _describe_workloads(durations),
        _describe_lost_workloads(durations),
        f"all runs of a side together: {_format_quantile_marks(marks)}" if marks.height else "",
    )
    # With several variants the names would cover each other, and the dots lie on the lines of the grid.
    layers = [line, hover, dots, *([names] if durations["side"].n_unique() < 2 else [])]
    return finish_chart(make_zoomable(layers, ["x"]), f"How long did it take: {step}?", subtitle, marks, height=280)


def _build_distribution(durations: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Build the steps of each side's distribution over all workloads that began, and the quantiles that are reached.

    `durations`: `side, duration_s`, null for never. Returns: Two frames with `duration_s, share, side`, and `quantile`.
    """
    sides = durations["side"].unique(maintain_order=True).to_list()
    columns = {"duration_s": pl.Float64, "share": pl.Float64, "side": pl.String}
    curves, marks = [pl.DataFrame(schema=columns)], [pl.DataFrame(schema=columns | {"quantile": pl.String})]
    for side in sides:
        values = durations.filter(pl.col("side") == side)["duration_s"]
        ended = (len(values) - values.null_count()) / len(values)
        exact = _variant_distribution(values, side, ended, max(10, len(values)))
        curves.append(_variant_distribution(values, side, ended, min(MAX_POSITIONS, MAX_CURVE_POINTS) // len(sides)))
        for name, share in MARKED_QUANTILES.items():
            # Looked up on all steps, not on the kept ones.
            reached = exact.filter(pl.col("share") >= share - 1e-12).head(1)
            marks.append(reached.with_columns(pl.lit(name).alias("quantile")))
    return pl.concat(curves), pl.concat(marks)


def _variant_distribution(values: pl.Series, side: str, ended: float, positions: int) -> pl.DataFrame:
    """Steps `duration_s, share, side` of a side's distribution.

    `ended` is the share of workloads that ended the step.
    """
    steps = downsample_ecdf(values, positions=positions).rename({"value": "duration_s"})
    return steps.with_columns(
        pl.col("duration_s").round_sig_figs(5), (pl.col("share") * ended).round(5), pl.lit(side).alias("side")
    )


def _describe_workloads(durations: pl.DataFrame) -> str:
    """Count the workloads and runs of each side.

    `durations` has a row for a workload, with columns `side` and `run`.
    """
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
    """Describe the workloads that never ended the step.

    `durations`: `side, duration_s`, one row for each workload; null for one that never ended the step.
    """
    if not durations["duration_s"].null_count():
        return ""
    counts = durations.group_by("side", maintain_order=True).agg(pl.col("duration_s").null_count(), pl.len())
    texts = [
        f"{format_number(row['duration_s'])} of {format_number(row['len'])} ({row['side']})"
        for row in counts.to_dicts()
    ]
    return f"not completed by the end, so the line stays below 100 %: {', '.join(texts)}"


def _format_quantile_marks(marks: pl.DataFrame) -> str:
    """Text with the value of each quantile by side; `marks`: `quantile, duration_s, side`."""
    texts = []
    for name in marks["quantile"].unique(maintain_order=True):
        rows = marks.filter(pl.col("quantile") == name).to_dicts()
        figures = [f"{format_number(row['duration_s'])} s ({row['side']})" for row in rows]
        texts.append(f"{name} {', '.join(figures)}")
    return "; ".join(texts)


def compare_variants(first: Mapping[str, Analysis], draw: Callable[[Analysis], Any]) -> Any:
    """The same chart of each variant's first run, side by side on shared axes; null without a run."""
    return small_multiples({name: draw(run) for name, run in first.items()})


def chart_rates(first: Mapping[str, Analysis]) -> alt.LayerChart:
    """How many pods a second does each variant schedule of those offered?

    Parameters
    ----------
    first
        The first run of each variant. One alone is drawn step by step, with its verdicts (`chart_ramp`).

    Notes
    -----
    The label at the end of a line is the rate that it sustains. Does not show how one run differs from the next.
    """
    import altair as alt

    if len(first) == 1:
        (run,) = first.values()
        return chart_ramp(run.ramp, run.ceiling_per_s)
    shown = ("step", "offered_per_s", "low_per_s", "high_per_s", "backlog_end", "verdict")
    # Of a step that was kept up with, what got through over all of it, which is the rate that is claimed.
    through = pl.min_horizontal("completed_per_s", "through_per_s")
    rate = pl.when(pl.col("verdict") == "NOT SUSTAINED").then("completed_per_s").otherwise(through)
    tables = [
        RAMP.check(run.ramp)
        .filter(pl.col("end_s") > pl.col("begin_s"))
        .select(pl.lit(name).alias("side"), *shown, completed_per_s=rate)
        for name, run in first.items()
    ]
    frame = pl.concat(tables).filter(pl.col("completed_per_s").is_not_null())
    max_rate = max([1.0, *frame["offered_per_s"].drop_nulls(), *frame["completed_per_s"].drop_nulls()])
    few = {"axis": alt.Axis(tickCount=8)}
    x = alt.X("offered_per_s", type="quantitative", title="pods offered a second", scale=alt.Scale(nice=False), **few)
    y = alt.Y("completed_per_s", type="quantitative", title="pods scheduled a second", **few)
    diagonal = pl.DataFrame({"offered_per_s": [0.0, max_rate], "completed_per_s": [0.0, max_rate]})
    line = alt.Chart(diagonal).mark_line(strokeDash=[4, 3], color=COLOURS["baseline"], strokeWidth=1.5)
    # The names stand at the ends of the lines.
    shades = encode_series(frame, "side", legend=False)
    base = alt.Chart(frame).encode(x=x, y=y, tooltip=encode_tooltip(frame), **shades)
    words = {name: run.sustainable.words or "rate not decided" for name, run in first.items()}
    ends = frame.sort("offered_per_s").group_by("side", maintain_order=True).last()
    places = spread_labels(ends["completed_per_s"].to_list(), LABEL_GAP * max_rate)
    told = [f"{side}: {words[side]}" for side in ends["side"]]
    ends = ends.with_columns(pl.Series("place", places, dtype=pl.Float64), pl.Series("told", told, dtype=pl.String))
    # A label stands above its line, of two lines that lie on each other the lower one's below.
    below = pl.when(pl.col("place") < pl.col("completed_per_s") - 1e-9).then(pl.lit("below")).otherwise(pl.lit("above"))
    ends = ends.with_columns(stands=below)
    tips = encode_tooltip(ends, leave_out=("place", "stands"))
    named = alt.Chart(ends).encode(
        x=x,
        y=alt.Y("completed_per_s", type="quantitative"),
        text=alt.Text("told", type="nominal"),
        color=shades["color"],
        tooltip=tips,
    )
    labels = [
        named.transform_filter(alt.FieldEqualPredicate(field="stands", equal=where)).mark_text(
            align="right", dx=-10, dy=shift, fontWeight=600
        )
        for where, shift in (("above", -11), ("below", 12))
    ]
    layers = [line.encode(x=x, y=y), base.mark_line(strokeWidth=2), base.mark_point(size=80, filled=True, opacity=1)]
    subtitle = join_sentences(
        "grey diagonal: everything that is offered is scheduled", "labels: rate that the first run of each proves"
    )
    title = "How many pods a second are scheduled?"
    return finish_chart(alt.layer(*layers, *labels), title, subtitle, frame, height=320)


def find_slow_subjects(first: Mapping[str, Analysis]) -> list[str]:
    """The parts of the control plane on which calls waited longest in all, with the same colour for each variant."""
    tables = [run.pressure for run in first.values() if run.pressure.height]
    return _rank_subjects(_name_subjects(pl.concat(tables))) if tables else []


def _name_subjects(pressure: pl.DataFrame) -> pl.DataFrame:
    table = PRESSURE.check(pressure).filter(pl.col("mean_s").is_not_null())
    whose = pl.concat_str("component", pl.lit(": "), "measure", pl.lit(" "), "subject").str.strip_chars()
    return table.with_columns(whose.alias("whose"), (pl.col("mean_s") * pl.col("n")).alias("spent_s"))


def _rank_subjects(named: pl.DataFrame) -> list[str]:
    """The subjects on which most time went, of those that ever took a millisecond."""
    ranked = (
        named.group_by("whose", maintain_order=True)
        .agg(pl.col("spent_s").sum(), pl.col("mean_s").max())
        .filter(pl.col("mean_s") >= MIN_SHOWN_S)
        .sort("spent_s", descending=True)
    )
    return ranked.head(MAX_LINES)["whose"].to_list()


@takes_frames
def chart_pressure(pressure: pl.DataFrame, subjects: list[str] | None = None) -> alt.LayerChart:
    """For which parts of the cluster did calls wait? Mean times by the components' own metrics, over the test.

    Parameters
    ----------
    pressure
        Table PRESSURE of one run. The six subjects on which most time went are drawn; those that never took a
        millisecond are left out, and counted.
    subjects
        Which to draw, in the order of their colours; by default those of this run.
    """
    import altair as alt

    named = _name_subjects(pressure)
    subjects = _rank_subjects(named) if subjects is None else subjects
    hidden = len(set(named["whose"]) - set(subjects))
    frame = named.filter(pl.col("whose").is_in(subjects)).select(
        pl.col("at_s").round(3), "whose", pl.col("mean_s").round_sig_figs(4), "p99_s", "n"
    )
    legend = encode_series(frame, "whose", subjects)
    base = alt.Chart(frame).encode(
        x=alt.X("at_s", type="quantitative", title="time since the start (s)"),
        y=alt.Y("mean_s", type="quantitative", title="mean time of a call (s)"),
        tooltip=encode_tooltip(frame),
        **legend,
    )
    subtitle = join_sentences(
        "means since the previous sample, every five seconds",
        f"{hidden} more that took less are not drawn" if hidden else "",
    )
    title = "What did calls wait for in the control plane?"
    return finish_chart(
        alt.layer(base.mark_line(), base.mark_point(size=40, filled=True)),
        title,
        subtitle,
        frame,
        height=PRESSURE_HEIGHT_PX,
    )
