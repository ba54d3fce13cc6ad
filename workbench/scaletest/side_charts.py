"""Charts over several runs: each draws its tables and computes nothing new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.chart_data import sentences
from workbench.formats import number
from workbench.pieces.encodings import colour, finish, tooltip, zoomable
from workbench.pieces.forest import forest
from workbench.scaletest.analysing import Analysis
from workbench.scaletest.result_tables import COMPARISON
from workbench.theme import COLOURS
from workbench.thinning import LIMIT_POSITIONS, ecdf_steps

if TYPE_CHECKING:
    import altair as alt

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


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
    apart = pl.col("verdict").is_in(["FASTER", "SLOWER"])
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
    told = sentences(
        f"ratio of the runs' quantiles; above 1, {b} is faster",
        f"{level:g} % intervals over pairs of runs" if frame["low"].is_not_null().any() else "no intervals",
        _without(table, a, b),
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


def _without(table: pl.DataFrame, a: str, b: str) -> str:
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

    curve, marks = _curve(durations)
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
    shades = colour(curve, "side")
    line = alt.Chart(curve).mark_line(interpolate="step-after", strokeWidth=2).encode(x=x, y=y, **shades)
    tips = tooltip(curve, {"share": ".1%"})
    hover = alt.Chart(curve).mark_point(size=40, opacity=0, filled=True).encode(x=x, y=y, tooltip=tips, **shades)
    base = alt.Chart(marks).encode(x=x, y=y)
    dots = base.mark_point(size=60, filled=True, opacity=1).encode(tooltip=tooltip(marks, {"share": ".1%"}), **shades)
    names = base.mark_text(align="left", dx=8, dy=10, color=COLOURS["neutral"]).encode(
        text=alt.Text("quantile", type="nominal")
    )
    told = sentences(_workloads(durations), _lost(durations), _figures(marks))
    return finish(
        zoomable([line, hover, dots, names], ["x"]), f"How long did it take: {step}?", told, marks, height=280
    )


def _curve(durations: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps of each side's distribution over all that began, and its quantiles as far as they are reached."""
    sides = durations["side"].unique(maintain_order=True).to_list()
    columns = {"duration_s": pl.Float64, "share": pl.Float64, "side": pl.String}
    curves, marks = [pl.DataFrame(schema=columns)], [pl.DataFrame(schema=columns | {"quantile": pl.String})]
    for side in sides:
        values = durations.filter(pl.col("side") == side)["duration_s"]
        ended = (len(values) - values.null_count()) / len(values)
        exact = _of_side(values, side, ended, max(10, len(values)))
        curves.append(_of_side(values, side, ended, LIMIT_POSITIONS // len(sides)))
        for name, share in QUANTILES.items():
            # Looked up on all steps, not on the kept ones.
            reached = exact.filter(pl.col("share") >= share - 1e-12).head(1)
            marks.append(reached.with_columns(pl.lit(name).alias("quantile")))
    return pl.concat(curves), pl.concat(marks)


def _of_side(values: pl.Series, side: str, ended: float, positions: int) -> pl.DataFrame:
    steps = ecdf_steps(values, positions=positions).rename({"value": "duration_s"})
    return steps.with_columns(pl.col("share") * ended, pl.lit(side).alias("side"))


def _workloads(durations: pl.DataFrame) -> str:
    if not durations.height:
        return "no workload began this step"
    runs = durations.group_by("side", maintain_order=True).agg(pl.col("run").n_unique(), pl.len())
    several = [f"{number(row['len'])} workloads of {_runs(row['run'])} ({row['side']})" for row in runs.to_dicts()]
    return ", ".join(several)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _lost(durations: pl.DataFrame) -> str:
    """Those that never ended it."""
    if not durations["duration_s"].null_count():
        return ""
    counts = durations.group_by("side", maintain_order=True).agg(pl.col("duration_s").null_count(), pl.len())
    told = [f"{number(row['duration_s'])} of {number(row['len'])} ({row['side']})" for row in counts.to_dicts()]
    return f"not there by the end, so that the line stays below 100 %: {', '.join(told)}"


def _figures(marks: pl.DataFrame) -> str:
    told = []
    for name in marks["quantile"].unique(maintain_order=True):
        rows = marks.filter(pl.col("quantile") == name).to_dicts()
        figures = [f"{number(row['duration_s'])} s ({row['side']})" for row in rows]
        told.append(f"{name} {', '.join(figures)}")
    return "; ".join(told)


def each(first: Mapping[str, Analysis], draw: Any) -> Any:
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
