"""Charts of sweeps and answers: each draws its tables and computes nothing new."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench import charts
from workbench.chart_data import at_most, sentences
from workbench.formats import number
from workbench.pieces.encodings import ROW_PX, finish, limit_line, rows, tooltip
from workbench.sizing.comparing import COMPARISON, TRUE
from workbench.sizing.gpus import USABLE
from workbench.sizing.tables import GOODPUT, POINTS, QUANTILES
from workbench.theme import COLOURS

if TYPE_CHECKING:
    import altair as alt

LIMIT_POINTS = 1_000
USED, LEFT_OUT = "used", "left out"


def chart_ladder(
    points: pl.DataFrame, quantiles: pl.DataFrame, estimate: dict[str, Any], curve: pl.DataFrame | None = None
) -> alt.Chart:
    """Up to which load is the target met? The quantile of each step, the limit, the capacity with its interval.

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
    use = pl.when(pl.col("verdict").is_in(USABLE)).then(pl.lit(USED)).otherwise(pl.lit(LEFT_OUT)).alias("use")
    frame = steps.select("step", "load", "verdict", "reason", "n_kept", use).join(
        wanted.select("step", "value_s", "low_s", "high_s"), on="step", how="left"
    )
    drawn = at_most(
        frame.filter(pl.col("value_s").is_not_null()).sort("load"), "ladder", LIMIT_POINTS, "draw one sweep"
    )
    layers = [*_capacity(estimate), *_curve(curve, drawn, estimate), *_steps(drawn, estimate)]
    layers += limit_line(estimate["limit_s"], "value_s", axis="y")
    unvalued = frame.height - drawn.height
    told = sentences(
        "dots: steps with their 90 % intervals",
        _carried(estimate),
        f"{unvalued} steps whose quantile lies among failures not drawn" if unvalued else "",
    )
    return finish(alt.layer(*layers), _title(estimate), told, frame, height=320)


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _title(estimate: dict[str, Any]) -> str:
    """What was found, in a few words."""
    what = f"{estimate['metric']} p{100 * estimate['q']:g}"
    if estimate["capacity"] is None:
        return f"{_gpus(estimate['test_gpus'])}: which load keeps {what} within {estimate['limit_s']:g} s is open"
    load = f"{number(estimate['capacity'])} {'users' if estimate['load_unit'] == 'users' else 'requests a second'}"
    carry = "carries" if estimate["test_gpus"] == 1 else "carry"
    return f"{_gpus(estimate['test_gpus'])} {carry} {load} with {what} within {estimate['limit_s']:g} s"


def _carried(estimate: dict[str, Any]) -> str:
    if estimate["capacity_low"] is None or estimate["capacity_high"] is None:
        return "" if estimate["capacity"] is None else "the capacity has no whole interval"
    ends = f"{number(estimate['capacity_low'])} to {number(estimate['capacity_high'])}"
    return f"band: 90 % interval of what they carry, {ends}"


def _x(frame: pl.DataFrame, estimate: dict[str, Any], name: str = "load") -> Any:
    import altair as alt

    loads = frame["load"].to_list()
    log = len(loads) > 2 and min(loads) > 0 and max(loads) / min(loads) >= 16
    scale = (
        alt.Scale(type="log", base=2, nice=False, padding=14) if log else alt.Scale(zero=False, nice=False, padding=14)
    )
    title = "users with a request in flight" if estimate["load_unit"] == "users" else "arrivals per s"
    axis = alt.Axis(format=",~g", labelOverlap="greedy", **({"values": _doublings(loads)} if log else {"tickCount": 8}))
    return alt.X(name, type="quantitative", title=title, scale=scale, axis=axis)


def _doublings(loads: list[float]) -> list[float]:
    at = [min(loads)]
    while at[-1] * 2 <= max(loads):
        at.append(at[-1] * 2)
    return at


def _y(frame: pl.DataFrame, limit_s: float) -> Any:
    import altair as alt

    highest = [value for name in ("value_s", "high_s") for value in frame[name].drop_nulls().to_list()]
    scale = alt.Scale(zero=True, nice=False, domainMax=1.08 * max([limit_s, *highest]))
    return alt.Y("value_s", type="quantitative", title="latency (s)", scale=scale, axis=alt.Axis(tickCount=6))


def _capacity(estimate: dict[str, Any]) -> list[Any]:
    import altair as alt

    if estimate["capacity"] is None:
        return []
    row = {name: estimate[name] for name in ("capacity", "capacity_low", "capacity_high")}
    frame = pl.DataFrame([row], schema=dict.fromkeys(row, pl.Float64))
    base = alt.Chart(frame).encode(tooltip=tooltip(frame))
    x = alt.X("capacity", type="quantitative")
    layers = [base.mark_rule(color=COLOURS["accelerator"], strokeWidth=1.5).encode(x=x)]
    if None not in row.values():
        ends = {"x": alt.X("capacity_low", type="quantitative"), "x2": alt.X2("capacity_high")}
        layers.insert(0, base.mark_rect(color=COLOURS["accelerator"], opacity=0.18).encode(**ends))
    return layers


def _curve(curve: pl.DataFrame | None, drawn: pl.DataFrame, estimate: dict[str, Any]) -> list[Any]:
    import altair as alt

    if curve is None or not curve.height or not drawn.height:
        return []
    line = alt.Chart(curve).mark_line(strokeWidth=2, opacity=0.7, color=COLOURS["accent"])
    return [line.encode(x=_x(drawn, estimate), y=_y(drawn, estimate["limit_s"]))]


def _steps(drawn: pl.DataFrame, estimate: dict[str, Any]) -> list[Any]:
    import altair as alt

    if not drawn.height:
        return []
    x, y = _x(drawn, estimate), _y(drawn, estimate["limit_s"])
    names = [name for name in (USED, LEFT_OUT) if name in drawn["use"].to_list()]
    scale = alt.Scale(
        domain=names, range=[{USED: COLOURS["accent"], LEFT_OUT: COLOURS["failure"]}[name] for name in names]
    )
    # With every step in use there is nothing to tell apart.
    legend = alt.Legend(title=None) if LEFT_OUT in names else None
    shade = {"color": alt.Color("use", type="nominal", title=None, scale=scale, legend=legend)}
    base = alt.Chart(drawn).encode(x=x, tooltip=tooltip(drawn), **shade)
    known = base.transform_filter("isValid(datum.low_s) && isValid(datum.high_s)")
    spans = known.mark_rule(strokeWidth=6, strokeCap="round", opacity=0.35)
    return [
        spans.encode(y=alt.Y("low_s", type="quantitative"), y2=alt.Y2("high_s")),
        base.mark_point(size=55, filled=True, opacity=1).encode(y=y),
    ]


def chart_answers(comparison: pl.DataFrame) -> alt.Chart:
    """Whose answer is how far from the true need?

    Parameters
    ----------
    comparison
        Table `comparing.COMPARISON`.

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
    need = frame.filter(answer=TRUE)["gpus"].to_list()
    known = need[0] if need else None
    drawn = frame.filter((pl.col("answer") != TRUE) & pl.col("gpus").is_not_null()).with_columns(said=_said())
    x = alt.X("gpus", type="quantitative", title="GPUs", scale=_around(frame), axis=alt.Axis(tickMinStep=1, format="d"))
    base = alt.Chart(drawn).encode(y=rows("answer"), tooltip=tooltip(drawn, leave_out=("said",)))
    whole = base.transform_filter("isValid(datum.gpus_low) && isValid(datum.gpus_high)")
    spans = whole.mark_rule(strokeWidth=7, opacity=0.35, strokeCap="round", color=COLOURS["accent"])
    layers = [
        spans.encode(x=alt.X("gpus_low", type="quantitative"), x2=alt.X2("gpus_high")),
        base.mark_point(size=80, filled=True, opacity=1, color=COLOURS["accent"]).encode(x=x),
        base.mark_text(align="left", fontSize=12).encode(x=alt.value("width"), text=alt.Text("said", type="nominal")),
    ]
    if known is not None:
        true = pl.DataFrame({"gpus": [float(known)]})
        layers.append(
            alt.Chart(true).mark_rule(color=COLOURS["failure"], strokeDash=[6, 3]).encode(x=x, tooltip=tooltip(true))
        )
    missing = frame.filter(pl.col("gpus").is_null())["answer"].to_list()
    told = sentences(
        "dots: figures before they are rounded up",
        "bar: 90 % interval",
        "" if known is None else "dashed: the true need",
        f"no number: {', '.join(missing)}" if missing else "",
    )
    title = "GPUs by each method" if known is None else f"GPUs by each method; the service needs {number(known)}"
    return finish(alt.layer(*layers), title, told, drawn.drop("said"), height=alt.Step(ROW_PX * 1.3))


def _said() -> pl.Expr:
    """What one would deploy, and what comes of it."""
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


def _around(frame: pl.DataFrame) -> Any:
    import altair as alt

    columns = ("gpus", "gpus_low", "gpus_high")
    values = [value for name in columns for value in frame[name].drop_nulls().to_list()]
    if not values:
        return alt.Scale()
    return alt.Scale(domain=[int(0.9 * min(values)), math.ceil(1.1 * max(values))], nice=False, zero=False)


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
        title="Was the load held?",
        level="load",
        value="held_percent",
        variant="seen",
        subtitle="share of the users that were asked for; below 90 % a point is not valid",
    )
    return chart.properties(height=200)


def chart_goodput(points: pl.DataFrame, goodput: pl.DataFrame) -> alt.Chart:
    """What does a GPU serve, and how much of it within all targets?

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
    known = tidy.drop_nulls("requests_per_s")
    shown = known.group_by("served", "load", maintain_order=True).agg(pl.col("requests_per_s").mean())
    chart = charts.ladder(
        shown.sort("served", "load", descending=[True, False]),
        title="Requests a second of one GPU",
        level="load",
        value="requests_per_s",
        variant="served",
        subtitle="where the lines part, requests are late",
    )
    return chart.properties(height=220)
