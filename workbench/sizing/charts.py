"""Charts of sweeps, scaling laws and answers, drawn from their tables without new computation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench import charts
from workbench.charts.data import check_row_count, join_sentences
from workbench.charts.theme import (
    CATEGORIES,
    COLOURS,
    ROW_PX,
    build_limit_line,
    encode_rows,
    encode_tooltip,
    finish_chart,
    mark_intervals,
)
from workbench.core.errors import InputError
from workbench.core.formats import format_ends, format_number
from workbench.core.frames import takes_frames
from workbench.sizing.estimation.gpu_estimates import LAW_PARAMETERS, MAX_GPU_EXTRAPOLATION, capacity_by_law
from workbench.sizing.estimation.method_comparison import TRUE_NEED_LABEL
from workbench.sizing.estimation.metrics import format_quantile
from workbench.sizing.tables import BACKLOG, COMPARISON, GOODPUT, POINTS, QUANTILES, SCALING, USABLE_VERDICTS

if TYPE_CHECKING:
    import altair as alt

    from workbench.sizing.estimation.sizing_answer import SizingAnswer

MAX_CHART_POINTS = 1_000
USED, LEFT_OUT = "used", "left out"
MEASURED, ASKED, VERIFIED, NOT_HELD = "measured", "asked", "verified", "not held"
_NEED_POINTS = {
    MEASURED: (COLOURS["accent"], "circle"),
    ASKED: (CATEGORIES[1], "diamond"),
    VERIFIED: (COLOURS["accelerator"], "square"),
    NOT_HELD: (COLOURS["failure"], "cross"),
}
MAX_BACKLOG_STEPS = 4
MAX_SCALING_POINTS = 200


@takes_frames
def chart_ladder(
    points: pl.DataFrame, quantiles: pl.DataFrame, estimate: dict[str, Any], curve: pl.DataFrame | None = None
) -> alt.Chart:
    """Up to which load is the target met? Each step's quantile, the limit, and the capacity with its interval.

    Parameters
    ----------
    points, quantiles
        The tables of those names.
    estimate
        A row of the table `estimates`: the target that is drawn, on the GPU count that its capacity is of.
    curve
        Table `what_if.CURVE`: what the capacity was read off; not drawn without it.

    Raises
    ------
    InputError
        Another table, or too many steps to draw.

    Notes
    -----
    Does not show other GPU counts. A step without a value (its quantile lies among failures) has no dot.
    """
    import altair as alt

    steps = POINTS.check(points).filter(pl.col("gpus") == estimate["test_gpus"])
    wanted = (
        QUANTILES.check(quantiles).filter(metric=estimate["metric"]).filter((pl.col("q") - estimate["q"]).abs() < 1e-9)
    )
    use = pl.when(pl.col("verdict").is_in(USABLE_VERDICTS)).then(pl.lit(USED)).otherwise(pl.lit(LEFT_OUT)).alias("use")
    frame = steps.select("step", "load", "verdict", "reason", "n_kept", use).join(
        wanted.select("step", "value_s", "low_s", "high_s"), on="step", how="left"
    )
    drawn = check_row_count(
        frame.filter(pl.col("value_s").is_not_null()).sort("load"), "ladder", MAX_CHART_POINTS, "draw one sweep"
    )
    layers = [*_capacity_layers(estimate), *_curve_layers(curve, drawn, estimate), *_step_layers(drawn, estimate)]
    layers += build_limit_line(estimate["limit_s"], "value_s", axis="y")
    unvalued = frame.height - drawn.height
    if estimate["capacity_low"] is None or estimate["capacity_high"] is None:
        capacity_interval = "" if estimate["capacity"] is None else "the capacity has no whole interval"
    else:
        ends = format_ends(estimate["capacity_low"], estimate["capacity_high"])
        capacity_interval = f"band: 90 % interval of what they carry, {ends}"
    note = join_sentences(
        "dots: steps with their 90 % intervals",
        capacity_interval,
        f"{unvalued} steps whose quantile falls among failures are not drawn" if unvalued else "",
    )
    return finish_chart(alt.layer(*layers), _capacity_title(estimate), note, frame, height=320)


def chart_need(answer: SizingAnswer) -> alt.Chart:
    """How many GPUs does a load need?

    Parameters
    ----------
    answer
        The answer, whose binding target is drawn.

    Raises
    ------
    InputError
        There is no estimate to draw.

    Notes
    -----
    Of one GPU count the line is straight, and its band the 90 % interval of what those GPUs carry. Of several it is
    that of the scaling law, and only the asked load has an interval. Does not show the other targets.
    """
    import altair as alt

    row = answer.binding
    if row is None or row["gpus"] is None or not row["capacity"]:
        raise InputError("no estimate to draw", where="chart_need", do="draw the measured levels: chart_ladder")
    line = _build_need_line(answer, row)
    unit = "users" if row["load_unit"] == "users" else "requests a second"
    x = alt.X(
        "load", type="quantitative", title=unit, scale=alt.Scale(zero=True, nice=False), axis=alt.Axis(tickCount=8)
    )
    y = alt.Y("gpus", type="quantitative", title="GPUs", axis=alt.Axis(tickCount=6, tickMinStep=1, format=",d"))
    base = alt.Chart(line).encode(x=x, tooltip=encode_tooltip(line))
    ends = {"y": alt.Y("gpus_low", type="quantitative"), "y2": alt.Y2("gpus_high")}
    layers = [
        base.mark_area(opacity=0.2, color=COLOURS["accelerator"]).encode(**ends),
        base.mark_line(strokeWidth=2, color=COLOURS["accelerator"]).encode(y=y),
    ]
    points = _list_need_points(answer, row)
    kinds = points["kind"].unique(maintain_order=True).to_list()
    shades = alt.Scale(domain=kinds, range=[_NEED_POINTS[kind][0] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[_NEED_POINTS[kind][1] for kind in kinds])
    legend = alt.Legend() if len(kinds) > 1 else None
    dots = alt.Chart(points).encode(
        x=x,
        y=y,
        color=alt.Color("kind", type="nominal", title=None, scale=shades, legend=legend),
        tooltip=encode_tooltip(points, leave_out=("told",)),
    )
    shape = alt.Shape("kind", type="nominal", title=None, scale=shapes, legend=legend)
    layers += [
        mark_intervals(dots, "gpus_low", "gpus_high", "y", strokeWidth=2),
        dots.mark_point(filled=True, opacity=1, size=110).encode(shape=shape),
        # Near the axis a label goes to the right, else to the left, where there is room.
        *(
            dots.transform_filter(alt.FieldEqualPredicate(field="kind", equal=kind))
            .mark_text(align=align, dx=shift, dy=lift, fontWeight=600)
            .encode(text=alt.Text("told", type="nominal"))
            for kind, align, shift, lift in ((MEASURED, "left", 10, 12), (ASKED, "right", -10, -8))
        ),
    ]
    note = join_sentences(
        "line: estimate",
        "band: 90 % interval" if line["gpus_low"].null_count() < line.height else "bar: 90 % interval",
        str(row["verdict"]),
    )
    return finish_chart(alt.layer(*layers), "How many GPUs does the load need?", note, points.drop("told"), height=300)


def _build_need_line(answer: SizingAnswer, row: dict[str, Any]) -> pl.DataFrame:
    """GPUs over the load, from none to half as much again as was asked: `load, gpus, gpus_low, gpus_high`."""
    schema = dict.fromkeys(("load", "gpus", "gpus_low", "gpus_high"), pl.Float64)
    laws = answer.scaling.filter((pl.col("target") == row["target"]) & pl.col("gpus").is_not_null())
    chosen = laws.filter(pl.col("gpus").is_between(row["gpus"] - 1e-6, row["gpus"] + 1e-6))
    if chosen.height:
        law = [chosen.row(0, named=True)[name] or 0.0 for name in LAW_PARAMETERS]
        counts = range(1, math.ceil(1.5 * row["gpus"]) + 1, max(1, math.ceil(row["gpus"] / MAX_SCALING_POINTS)))
        carried = [(capacity_by_law(law, count), float(count)) for count in counts]
        return pl.DataFrame([(load, gpus, None, None) for load, gpus in carried], schema=schema, orient="row")
    each = [
        row["test_gpus"] / row[name] if row[name] else None for name in ("capacity", "capacity_high", "capacity_low")
    ]
    loads = [answer.load * part / 30 for part in range(46)]
    rows = [(load, *(None if slope is None else load * slope for slope in each)) for load in loads]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _list_need_points(answer: SizingAnswer, row: dict[str, Any]) -> pl.DataFrame:
    """What was asked, what the test GPUs carried, and what was driven to verify it."""
    unit = "users" if row["load_unit"] == "users" else "requests/s"
    rows: list[tuple[Any, ...]] = [
        (row["capacity"], row["test_gpus"], MEASURED, None, None, f"{_format_gpus(row['test_gpus'])} measured"),
    ]
    driven = answer.verification
    if driven is not None and driven.height:
        for one in driven.filter(target=row["target"]).iter_rows(named=True):
            kind = VERIFIED if one["verdict"] == "held" else NOT_HELD
            rows.append((one["driven_load"], one["gpus"], kind, None, None, ""))
    count = answer.recommended
    if count is not None:
        told = f"{_format_gpus(count)} for {answer.load:g} {unit}"
        rows.append((answer.load, count, ASKED, row["gpus_low"], row["gpus_high"], told))
    names = {"load": pl.Float64, "gpus": pl.Float64, "kind": pl.String}
    more = {"gpus_low": pl.Float64, "gpus_high": pl.Float64, "told": pl.String}
    return pl.DataFrame(rows, schema=names | more, orient="row", strict=False)


def _format_gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _capacity_title(estimate: dict[str, Any]) -> str:
    """Title of the chart: the estimated capacity in a few words; `estimate` is a row of table ESTIMATES."""
    quantile = format_quantile(estimate["metric"], estimate["q"])
    if estimate["capacity"] is None:
        gpus = _format_gpus(estimate["test_gpus"])
        return f"{gpus}: which load keeps {quantile} within {estimate['limit_s']:g} s is open"
    load = (
        f"{format_number(estimate['capacity'])} {'users' if estimate['load_unit'] == 'users' else 'requests a second'}"
    )
    carry = "carries" if estimate["test_gpus"] == 1 else "carry"
    return f"{_format_gpus(estimate['test_gpus'])} {carry} {load} with {quantile} within {estimate['limit_s']:g} s"


def _load_axis(frame: pl.DataFrame, estimate: dict[str, Any], name: str = "load") -> Any:
    """Horizontal axis of loads, logarithmic where they span a factor of 16 or more; `frame` needs column `load`."""
    import altair as alt

    loads = frame["load"].to_list()
    log = len(loads) > 2 and min(loads) > 0 and max(loads) / min(loads) >= 16
    scale = (
        alt.Scale(type="log", base=2, nice=False, padding=14) if log else alt.Scale(zero=False, nice=False, padding=14)
    )
    title = "users with a request in flight" if estimate["load_unit"] == "users" else "arrivals a second"
    title += ", log scale" if log else ""
    axis = alt.Axis(
        format=",~g", labelOverlap="greedy", **({"values": _list_doublings(loads)} if log else {"tickCount": 8})
    )
    return alt.X(name, type="quantitative", title=title, scale=scale, axis=axis)


def _list_doublings(loads: list[float]) -> list[float]:
    at = [min(loads)]
    while at[-1] * 2 <= max(loads):
        at.append(at[-1] * 2)
    return at


def _latency_axis(frame: pl.DataFrame, estimate: dict[str, Any]) -> Any:
    """Vertical axis of latencies in seconds, from 0 to above the limit and all of columns value_s and high_s."""
    import altair as alt

    highest = [value for name in ("value_s", "high_s") for value in frame[name].drop_nulls().to_list()]
    scale = alt.Scale(zero=True, nice=False, domainMax=1.08 * max([estimate["limit_s"], *highest]))
    name = format_quantile(estimate["metric"], estimate["q"])
    return alt.Y("value_s", type="quantitative", title=f"{name} (s)", scale=scale, axis=alt.Axis(tickCount=6))


def _capacity_layers(estimate: dict[str, Any]) -> list[Any]:
    """Vertical line at the estimated capacity, with its interval shaded; empty without a capacity."""
    import altair as alt

    if estimate["capacity"] is None:
        return []
    row = {name: estimate[name] for name in ("capacity", "capacity_low", "capacity_high")}
    frame = pl.DataFrame([row], schema=dict.fromkeys(row, pl.Float64))
    base = alt.Chart(frame).encode(tooltip=encode_tooltip(frame))
    x = alt.X("capacity", type="quantitative")
    layers = [base.mark_rule(color=COLOURS["accelerator"], strokeWidth=1.5).encode(x=x)]
    if None not in row.values():
        ends = {"x": alt.X("capacity_low", type="quantitative"), "x2": alt.X2("capacity_high")}
        layers.insert(0, base.mark_rect(color=COLOURS["accelerator"], opacity=0.18).encode(**ends))
    return layers


def _curve_layers(curve: pl.DataFrame | None, drawn: pl.DataFrame, estimate: dict[str, Any]) -> list[Any]:
    """Line of the fitted curve; `curve`: `load, value_s`. Empty without a curve or points."""
    import altair as alt

    if curve is None or not curve.height or not drawn.height:
        return []
    line = alt.Chart(curve).mark_line(strokeWidth=2, opacity=0.7, color=COLOURS["accent"])
    return [line.encode(x=_load_axis(drawn, estimate), y=_latency_axis(drawn, estimate))]


def _step_layers(drawn: pl.DataFrame, estimate: dict[str, Any]) -> list[Any]:
    """Dot and interval for the latency of each step; `drawn` needs load, value_s, low_s, high_s, use."""
    import altair as alt

    if not drawn.height:
        return []
    x, y = _load_axis(drawn, estimate), _latency_axis(drawn, estimate)
    names = [name for name in (USED, LEFT_OUT) if name in drawn["use"].to_list()]
    scale = alt.Scale(
        domain=names, range=[{USED: COLOURS["accent"], LEFT_OUT: COLOURS["failure"]}[name] for name in names]
    )
    # With every step in use there is nothing to tell apart.
    legend = alt.Legend(title=None) if LEFT_OUT in names else None
    shade = {"color": alt.Color("use", type="nominal", title=None, scale=scale, legend=legend)}
    base = alt.Chart(drawn).encode(x=x, tooltip=encode_tooltip(drawn), **shade)
    return [
        mark_intervals(base, "low_s", "high_s", "y", strokeWidth=6, strokeCap="round", opacity=0.35),
        base.mark_point(size=55, filled=True, opacity=1).encode(y=y),
    ]


@takes_frames
def chart_answers(comparison: pl.DataFrame) -> alt.Chart:
    """How far is each answer from the true need?

    Parameters
    ----------
    comparison
        Table of `compare_methods`.

    Raises
    ------
    InputError
        It is another table.

    Notes
    -----
    Does not show how the others would do on other services: the guide has a table of many.
    """
    import altair as alt

    frame = COMPARISON.check(comparison)
    need = frame.filter(answer=TRUE_NEED_LABEL)["gpus"].to_list()
    true_gpus = need[0] if need else None
    drawn = frame.filter((pl.col("answer") != TRUE_NEED_LABEL) & pl.col("gpus").is_not_null()).with_columns(
        said=_deployment_text_expr()
    )
    x = alt.X(
        "gpus", type="quantitative", title="GPUs", scale=_gpu_scale(frame), axis=alt.Axis(tickMinStep=1, format="d")
    )
    base = alt.Chart(drawn).encode(y=encode_rows("answer"), tooltip=encode_tooltip(drawn, leave_out=("said",)))
    look = {"strokeWidth": 7, "opacity": 0.35, "strokeCap": "round", "color": COLOURS["accent"]}
    layers = [
        mark_intervals(base, "gpus_low", "gpus_high", "x", **look),
        base.mark_point(size=80, filled=True, opacity=1, color=COLOURS["accent"]).encode(x=x),
        base.mark_text(align="left", fontSize=12).encode(x=alt.value("width"), text=alt.Text("said", type="nominal")),
    ]
    if true_gpus is not None:
        true = pl.DataFrame({"gpus": [float(true_gpus)]})
        layers.append(
            alt.Chart(true)
            .mark_rule(color=COLOURS["failure"], strokeDash=[6, 3])
            .encode(x=x, tooltip=encode_tooltip(true))
        )
    missing = frame.filter(pl.col("gpus").is_null())["answer"].to_list()
    note = join_sentences(
        "dots: figures before they are rounded up",
        "bar: 90 % interval",
        "" if true_gpus is None else "dashed: the true need",
        f"no number: {', '.join(missing)}" if missing else "",
    )
    title = (
        "GPUs by each method"
        if true_gpus is None
        else f"GPUs by each method; the service needs {format_number(true_gpus)}"
    )
    return finish_chart(alt.layer(*layers), title, note, drawn.drop("said"), height=alt.Step(ROW_PX * 1.3))


def _deployment_text_expr() -> pl.Expr:
    """Expression for the text of what would be deployed, and with what outcome."""
    off = pl.col("off")
    outcome = (
        pl.when(off.is_null())
        .then(pl.lit(""))
        .when(off < 0)
        .then(pl.format(": {} too few", -off))
        .when(off == 0)
        .then(pl.lit(": exact"))
        .otherwise(pl.format(": enough, {} spare", off))
    )
    return pl.format("  {}{}", "deployed", outcome)


def _gpu_scale(frame: pl.DataFrame) -> Any:
    """Scale around the estimates in columns gpus, gpus_low and gpus_high, with a margin of a tenth."""
    import altair as alt

    columns = ("gpus", "gpus_low", "gpus_high")
    values = [value for name in columns for value in frame[name].drop_nulls().to_list()]
    if not values:
        return alt.Scale()
    return alt.Scale(domain=[int(0.9 * min(values)), math.ceil(1.1 * max(values))], nice=False, zero=False)


@takes_frames
def chart_client(points: pl.DataFrame) -> alt.Chart:
    """Was the load held, and did the server take it all in? Requests in flight and in service, of those asked for.

    Parameters
    ----------
    points
        Table `points`; steps of one load count by the lowest.

    Notes
    -----
    Open loops ask for a rate, and have no row here. Does not show why a server takes in less.
    """
    frame = POINTS.check(points).filter(load_unit="users").sort("gpus", "load")
    parts = {"in flight (client)": "in_flight", "in service (server)": "server_in_service"}
    tidy = pl.concat(
        frame.select("load", seen=pl.lit(name), held_percent=100 * pl.col(column) / pl.col("load"))
        for name, column in parts.items()
    ).drop_nulls()
    shown = tidy.group_by("seen", "load", maintain_order=True).agg(pl.col("held_percent").min()).sort("seen", "load")
    chart = charts.ladder(
        shown,
        title="Did the service keep up with the load?",
        level="load",
        value="held_percent",
        variant="seen",
        subtitle="share of the users that were asked for; below 90 % a point is not valid",
    )
    return chart.properties(height=200)


@takes_frames
def list_server_charts(points: pl.DataFrame) -> list[alt.Chart]:
    """Which load did the server see? Requests running and waiting, its KV cache and its GPUs, over the driven load.

    Parameters
    ----------
    points
        Table `points`; the largest GPU count is drawn, steps of one load by their mean.

    Returns
    -------
    list
        A chart for each quantity that the server told; none without its metrics.

    Notes
    -----
    Does not show why requests wait: a limit of the server, its computing, or a cache that it does not report.
    """
    frame = POINTS.check(points).filter((pl.col("gpus") == pl.col("gpus").max()) & (pl.col("server_samples") > 0))
    requests = {"running": pl.col("server_running"), "waiting": pl.col("server_waiting")}
    cache = {"highest": 100 * pl.col("kv_cache"), "samples where it was full": 100 * pl.col("kv_cache_full_share")}
    gpus = {"busy": 100 * pl.col("gpu_busy")}
    power = {"power": pl.col("gpu_power_w")}
    parts = (
        ("requests", requests, "Requests in the server", "medians of the server's own metrics"),
        ("percent", cache, "KV cache of the server", "where it is full, requests wait or are preempted"),
        ("percent", gpus, "GPUs of the server", "share of the time in which any kernel ran, however small"),
        ("watts", power, "Power of the GPUs", "all together, mean"),
    )
    ladders = []
    for value, series, title, subtitle in parts:
        tidy = pl.concat(frame.select("load", seen=pl.lit(name), **{value: part}) for name, part in series.items())
        shown = tidy.drop_nulls(value).group_by("seen", "load", maintain_order=True).agg(pl.col(value).mean())
        if shown.height:
            shown = shown.sort("seen", "load")
            drawn = charts.ladder(shown, title=title, level="load", value=value, variant="seen", subtitle=subtitle)
            ladders.append(drawn.properties(height=170))
    return ladders


@takes_frames
def list_backlog_charts(points: pl.DataFrame, backlog: pl.DataFrame) -> list[alt.Chart]:
    """How did the requests that waited grow, where the service did not keep up?

    Parameters
    ----------
    points, backlog
        The tables of those names; the lowest four loads that were not sustained are drawn.

    Returns
    -------
    list
        One chart; none where every step of an open loop was sustained.

    Notes
    -----
    Does not show how long the backlog would take to clear.
    """
    failing = POINTS.check(points).filter(verdict="not sustained").sort("load").head(MAX_BACKLOG_STEPS)
    label = pl.format("{}/s, step {}", pl.col("load").round(2), "step").alias("arrivals")
    shown = BACKLOG.check(backlog).join(failing.select("step", label), on="step").select("arrivals", "at_s", "waiting")
    if not shown.height:
        return []
    chart = charts.ladder(
        shown.sort("arrivals", "at_s"),
        title="Requests that waited where the load was not sustained",
        level="at_s",
        value="waiting",
        variant="arrivals",
        subtitle="due and not ended, over the time of the step",
    )
    return [chart.properties(height=200)]


@takes_frames
def chart_goodput(points: pl.DataFrame, goodput: pl.DataFrame) -> alt.Chart:
    """How many requests does a GPU serve, and how many of them within all targets?

    Parameters
    ----------
    points, goodput
        The tables of those names; steps of one load count by their mean. Steps of which it is not known what was within
        have no dot there.
    """
    served = POINTS.check(points).select("step", "gpus", "rate_per_s")
    joined = GOODPUT.check(goodput).join(served, on="step").filter(pl.col("gpus") == pl.col("gpus").max())
    parts = {"within all targets": pl.col("goodput_per_gpu"), "all requests": pl.col("rate_per_s") / pl.col("gpus")}
    tidy = pl.concat(joined.select("load", served=pl.lit(name), requests_per_s=value) for name, value in parts.items())
    rows = tidy.drop_nulls("requests_per_s")
    shown = rows.group_by("served", "load", maintain_order=True).agg(pl.col("requests_per_s").mean())
    chart = charts.ladder(
        shown.sort("served", "load", descending=[True, False]),
        title="Requests a second of one GPU",
        level="load",
        value="requests_per_s",
        variant="served",
        subtitle="where the lines diverge, requests are late",
    )
    return chart.properties(height=220)


def build_law_lines(scaling: pl.DataFrame, target: str) -> pl.DataFrame:
    """Points of the lines of a target's scaling laws: `model, gpus, capacity`, up to twice the largest measured count.

    `scaling`: Table SCALING.
    """
    rows: list[dict[str, Any]] = []
    for row in SCALING.check(scaling).filter(target=target).iter_rows(named=True):
        max_gpus = MAX_GPU_EXTRAPOLATION * max(row["counts"])
        law = [row[name] or 0.0 for name in LAW_PARAMETERS]
        step = max(1, max_gpus // MAX_SCALING_POINTS)
        rows += [
            {"model": row["model"], "gpus": n, "capacity": capacity_by_law(law, n)}
            for n in range(1, max_gpus + 1, step)
        ]
    return pl.DataFrame(rows, schema={"model": pl.String, "gpus": pl.Int64, "capacity": pl.Float64})


@takes_frames
def chart_scaling(
    scaling: pl.DataFrame, capacities: pl.DataFrame, target: str, load: float, limit_ms: int
) -> alt.Chart:
    """Do twice the GPUs carry twice the load?

    Parameters
    ----------
    scaling
        Table `scaling`.
    capacities
        Table `what_if.CAPACITIES`; its rows at `limit_ms` are drawn.
    target, load, limit_ms
        The target, what is to be served, the limit in ms.

    Notes
    -----
    Does not show whether a law holds beyond twice the largest measured count: there it is not drawn.
    """
    import altair as alt

    lines = build_law_lines(scaling, target)
    dots = capacities.filter(pl.col("limit_ms") == limit_ms).drop_nulls("capacity")
    served = pl.DataFrame({"capacity": [float(load)], "words": [f"to be served: {load:g}"]})
    x = alt.X(
        "gpus",
        type="quantitative",
        title="GPUs",
        scale=alt.Scale(zero=True, nice=False),
        axis=alt.Axis(tickCount=8, format="d"),
    )
    highest = max([float(load), *lines["capacity"].to_list()])
    scale = alt.Scale(zero=True, nice=False, domainMax=1.1 * highest)
    y = alt.Y("capacity", type="quantitative", title="load within the limit", scale=scale, axis=alt.Axis(tickCount=6))
    names = lines["model"].unique(maintain_order=True).to_list()
    # A line has no fill that a legend could show.
    legend = alt.Legend(title=None, symbolType="stroke", symbolStrokeWidth=3, symbolSize=200)
    # Straight is the reference; the law that answers stands out.
    shades = alt.Scale(domain=names, range=[COLOURS["neutral"], CATEGORIES[1]][: len(names)])
    shade = alt.Color("model", type="nominal", title=None, scale=shades, legend=legend)
    base = alt.Chart(dots).encode(x=x, tooltip=encode_tooltip(dots))
    look = {"strokeWidth": 6, "opacity": 0.4, "strokeCap": "round", "color": COLOURS["accent"]}
    rule = alt.Chart(served).encode(y=y)
    layers = [
        alt.Chart(lines).mark_line(strokeWidth=2).encode(x=x, y=y, color=shade),
        mark_intervals(base, "capacity_low", "capacity_high", "y", **look),
        base.mark_point(size=60, filled=True, opacity=1, color=COLOURS["accent"]).encode(y=y),
        rule.mark_rule(strokeDash=[6, 3], color=COLOURS["failure"]),
        rule.mark_text(align="left", dx=6, dy=-9, color=COLOURS["failure"]).encode(
            x=alt.value(0), text=alt.Text("words", type="nominal")
        ),
    ]
    note = join_sentences("dots: measured, with 90 % intervals", "lines: laws, up to twice the largest count")
    return finish_chart(alt.layer(*layers), "Do twice the GPUs carry twice the load?", note, dots, height=280)
