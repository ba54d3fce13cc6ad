"""What several GPU counts carry, beside what the scaling laws make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.chart_data import sentences
from workbench.pieces.encodings import finish, tooltip
from workbench.sizing.scaling import REACH, carried
from workbench.sizing.tables import SCALING
from workbench.theme import CATEGORIES, COLOURS

if TYPE_CHECKING:
    import altair as alt

MOST_POINTS = 200


def laws(scaling: pl.DataFrame, target: str) -> pl.DataFrame:
    """The laws of one target as lines: `model, gpus, capacity`, up to twice the largest measured count."""
    rows: list[dict[str, Any]] = []
    for row in SCALING.check(scaling).filter(target=target).iter_rows(named=True):
        most = REACH * max(row["counts"])
        law = (row["per_gpu"], row["contention"], row["coherency"])
        step = max(1, most // MOST_POINTS)
        rows += [{"model": row["model"], "gpus": n, "capacity": carried(law, n)} for n in range(1, most + 1, step)]
    return pl.DataFrame(rows, schema={"model": pl.String, "gpus": pl.Int64, "capacity": pl.Float64})


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

    lines = laws(scaling, target)
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
    base = alt.Chart(dots).encode(x=x, tooltip=tooltip(dots))
    whole = base.transform_filter("isValid(datum.capacity_low) && isValid(datum.capacity_high)")
    spans = whole.mark_rule(strokeWidth=6, opacity=0.4, strokeCap="round", color=COLOURS["accent"])
    rule = alt.Chart(served).encode(y=y)
    layers = [
        alt.Chart(lines).mark_line(strokeWidth=2).encode(x=x, y=y, color=shade),
        spans.encode(y=alt.Y("capacity_low", type="quantitative"), y2=alt.Y2("capacity_high")),
        base.mark_point(size=60, filled=True, opacity=1, color=COLOURS["accent"]).encode(y=y),
        rule.mark_rule(strokeDash=[6, 3], color=COLOURS["failure"]),
        rule.mark_text(align="left", dx=6, dy=-9, color=COLOURS["failure"]).encode(
            x=alt.value(0), text=alt.Text("words", type="nominal")
        ),
    ]
    told = sentences("dots: measured, with 90 % intervals", "lines: laws, up to twice the largest count")
    return finish(alt.layer(*layers), "Do twice the GPUs carry twice the load?", told, dots, height=280)
