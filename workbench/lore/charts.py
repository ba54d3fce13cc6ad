"""Charts of plans, dumps and replays: each draws its tables and computes nothing new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench import charts
from workbench.chart_data import first_appearance, sentences
from workbench.formats import number
from workbench.lore.inspection.tables import PARTITIONS
from workbench.lore.tables import TIMINGS
from workbench.pieces.encodings import ROW_PX, finish, rows, tooltip
from workbench.theme import COLOURS

if TYPE_CHECKING:
    import altair as alt

TOLD = ("FASTER", "SLOWER", "SAME")
LIMIT_DOTS = 2_000


def chart_partitions(
    partitions: pl.DataFrame, *, of: Literal["n_rows", "n_bytes"] = "n_rows", top: int = 20
) -> alt.Chart:
    """How are the rows, or the bytes of the files, spread over the partitions? The largest on top.

    Parameters
    ----------
    partitions
        Table `inspection.tables.PARTITIONS`.
    of
        The quantity that is drawn.
    top
        Partitions that are shown at first.

    Raises
    ------
    InputError
        It is another table, or `top` is below 1.

    Notes
    -----
    Does not show partitions that were not dumped: those may be the largest.
    """
    frame = PARTITIONS.check(partitions)
    several = frame["lore_id"].n_unique() > 1
    dump = pl.format("loreId-{} · ", "lore_id") if several else pl.lit("")
    labelled = frame.with_columns(label=dump + pl.format("{} · {}", "input", "partition"))
    skew = frame["skew_ratio"].max() if of == "n_rows" else None
    return charts.bars(
        labelled,
        title="Rows by partition" if of == "n_rows" else "Bytes of the files by partition",
        label="label",
        value=of,
        category="input",
        top=top,
        subtitle=sentences(
            "input and number of the partition",
            f"the largest has {number(skew)} times the median of its input" if skew is not None else "",
        ),
    )


def chart_times(timings: pl.DataFrame, times: pl.DataFrame) -> alt.Chart:
    """How long does the operator take, and how long reading its inputs? A dot a run, a bar the interval of the median.

    Parameters
    ----------
    timings
        Table `tables.TIMINGS`; of more than 2,000 dots those of the first repeats are drawn.
    times
        Table `outcome.TIMES`.

    Raises
    ------
    InputError
        Another table.

    Notes
    -----
    Does not show what the operator took inside of its query, where it shared its stage and its cores.
    """
    import altair as alt

    quantities = {"operator": "operator_s", "reading its inputs": "scan_s"}
    runs = TIMINGS.check(timings)
    dots = pl.concat(
        runs.select("side", "repeat", quantity=pl.lit(name), time_s=column) for name, column in quantities.items()
    )
    shown = dots.sort("repeat", maintain_order=True).head(LIMIT_DOTS)
    rest = dots.height - shown.height
    several = times["side"].n_unique() > 1
    label = pl.format("{} · {}", "side", "quantity") if several else pl.col("quantity")
    drawn, spans = shown.with_columns(label=label), times.with_columns(label=label)
    scale = alt.Scale(zero=True, nice=False, padding=12)
    x = alt.X("time_s", type="quantitative", title="time (s)", scale=scale)
    shade = _by_quantity(spans)
    bars = alt.Chart(spans).encode(y=rows("label"), tooltip=tooltip(spans, leave_out=("label",)))
    wide = bars.mark_rule(strokeWidth=7, opacity=0.35, strokeCap="round")
    ends = {"x": alt.X("low_s", type="quantitative", scale=scale), "x2": alt.X2("high_s")}
    middle = bars.mark_tick(thickness=3, size=18).encode(x=alt.X("median_s", type="quantitative", scale=scale), **shade)
    points = alt.Chart(drawn).mark_circle(size=46, opacity=0.75)
    each = points.encode(x=x, y=rows("label"), tooltip=tooltip(drawn, leave_out=("label",)), **shade)
    known = wide.transform_filter("isValid(datum.low_s) && isValid(datum.high_s)").encode(**ends, **shade)
    n = runs.group_by("side").len()["len"].max()
    told = sentences(
        f"dots: {number(n or 0)} runs each",
        f"{number(rest)} more not drawn" if rest else "",
        "bar: interval of the median",
        "the operator's time is total minus reading",
    )
    return finish(
        alt.layer(known, middle, each),
        "Time of the operator, and of reading its inputs",
        told,
        spans,
        height=max(60, ROW_PX * 1.4 * max(1, spans.height)),
    )


def _by_quantity(frame: pl.DataFrame) -> dict[str, Any]:
    import altair as alt

    names = first_appearance(frame, "quantity")
    scale = alt.Scale(domain=names, range=[COLOURS["accent"], COLOURS["neutral"]][: len(names)])
    return {"color": alt.Color("quantity", type="nominal", title=None, scale=scale)} if names else {}


def chart_ratios(ratios: pl.DataFrame, *, settings_a: str, settings_b: str) -> alt.Chart:
    """Is B faster than A? Reading the inputs is the same on both sides: a control that should lie at 1.

    Parameters
    ----------
    ratios
        Table `outcome.RATIOS`.
    settings_a, settings_b
        What each side has set.

    Notes
    -----
    Does not show whether the query as a whole gains: that is a question of what else it does.
    """
    drawn = ratios.with_columns(told=pl.col("verdict").is_in(TOLD))
    return charts.forest(
        drawn,
        title="How many times as fast is B as A?",
        label="quantity",
        estimate="speed_ratio",
        low="low_ratio",
        high="high_ratio",
        n="n",
        told_apart="told",
        category="verdict",
        subtitle=sentences(f"A: {settings_a or 'as dumped'}", f"B: {settings_b or 'as dumped'}"),
    )
