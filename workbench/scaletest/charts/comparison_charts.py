"""Charts of schedulers side by side: gangs and waits of all of them, and step by step of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.charts.data import describe_table, join_sentences
from workbench.charts.forest_chart import forest
from workbench.charts.theme import (
    COLOURS,
    ROW_PX,
    WIDTH_PX,
    build_ink_expression,
    build_log_axis,
    encode_rows,
    encode_tooltip,
)
from workbench.core.frames import takes_frames
from workbench.scaletest.analysis.variants import join_names
from workbench.scaletest.tables import COMPARISON, LEAGUE
from workbench.stats.verdicts import DIFFERENT

if TYPE_CHECKING:
    import altair as alt

_OUTCOMES = {
    "complete": COLOURS["accelerator"],
    "deadlocked": COLOURS["failure"],
    "not complete": "#c9d1db",
}


@takes_frames
def chart_league(league: pl.DataFrame) -> alt.VConcatChart:
    """Whose gangs got all of their pods, and how long did workloads wait?

    Parameters
    ----------
    league
        Table LEAGUE. A wait that a scheduler's runs never reached is not drawn and named in the subtitle.
    """
    import altair as alt

    table = LEAGUE.check(league)
    views = [_chart_waits(table)]
    if table["gangs"].sum():
        # Stacked bar for each side: its complete, deadlocked and other gangs.
        counts = table.select(
            "side",
            "complete",
            "deadlocked",
            (pl.col("gangs") - pl.col("complete") - pl.col("deadlocked")).alias("not complete"),
        )
        long = counts.unpivot(index="side", variable_name="outcome", value_name="count")
        rank = pl.col("outcome").replace_strict(
            {name: place for place, name in enumerate(_OUTCOMES)}, return_dtype=pl.Int8
        )
        end = pl.col("count").cum_sum().over("side")
        frame = long.sort(rank, maintain_order=True).with_columns(end=end, begin=end - pl.col("count"))
        frame = frame.filter(pl.col("count") > 0).with_columns(middle=(pl.col("begin") + pl.col("end")) / 2)
        names = [name for name in _OUTCOMES if name in set(frame["outcome"])]
        colours = alt.Scale(domain=names, range=[_OUTCOMES[name] for name in names])
        tips = encode_tooltip(frame.select("side", "outcome", "count"))
        base = alt.Chart(frame).encode(y=encode_rows("side"), tooltip=tips)
        bars = base.mark_bar(height={"band": 0.7}).encode(
            x=alt.X("begin", type="quantitative", title="gangs", axis=alt.Axis(tickCount=6)),
            x2=alt.X2("end"),
            color=alt.Color(
                "outcome", type="nominal", title=None, scale=colours, legend=alt.Legend(symbolType="square")
            ),
        )
        text = (
            alt.Chart(frame)
            .mark_text(color=alt.ExprRef(build_ink_expression("scale('color', datum.outcome)")), fontWeight=600)
            .encode(x=alt.X("middle", type="quantitative"), y=encode_rows("side"), text=alt.Text("count"), tooltip=tips)
        )
        gangs = alt.layer(bars, text).properties(width=WIDTH_PX, height=ROW_PX * table.height)
        views.insert(0, gangs)
    lost = table.filter(pl.col("p95_s").is_null())["side"].to_list()
    never = f"no p95 for {join_names(lost)}: fewer than 95 % were scheduled in a run" if lost else ""
    subtitle = join_sentences(
        f"all {int(table['runs'].sum())} runs on one plan", "waits: dot at the median, line as far as p95", never
    )
    title = "How do the schedulers differ?"
    shown = table.select("side", "gangs", "complete", "deadlocked", "p50_s", "p95_s", "ratio", "low", "high", "verdict")
    return alt.vconcat(*views, spacing=14).properties(
        title=alt.TitleParams(text=title, subtitle=subtitle),
        description=describe_table(title, shown, subtitle=subtitle),
    )


def _chart_waits(table: pl.DataFrame) -> alt.LayerChart:
    """Line from the median to the 95th percentile of the wait, for each side of the league table."""
    import altair as alt

    frame = table.select("side", "p50_s", "p95_s", "ratio", "low", "high", "verdict", "reason")
    waits = [*frame["p50_s"], *frame["p95_s"]]
    positive = all(value is None or value > 0 for value in waits)
    scale = alt.Scale(type="log", nice=False, padding=12) if positive else alt.Scale(zero=False, padding=12)
    axis = build_log_axis(waits) if positive else alt.Axis(tickCount=6, format="~g")
    x = alt.X("p50_s", type="quantitative", title="wait from due to scheduled (s)", scale=scale, axis=axis)
    look = {"x": x, "y": encode_rows("side"), "tooltip": encode_tooltip(frame)}
    # Before the lines, so that the rows stand in the table's order where the first has no line.
    dots = alt.Chart(frame).mark_point(size=70, filled=True, opacity=1).encode(**look)
    reached = alt.Chart(frame.filter(pl.col("p95_s").is_not_null()))
    line = reached.mark_rule(strokeWidth=2).encode(**look, x2=alt.X2("p95_s"))
    return alt.layer(dots, line).properties(width=WIDTH_PX, height=ROW_PX * table.height)


@takes_frames
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
    # Describe the rows that cannot be drawn, and why.
    none = table.filter(pl.col("ratio").is_null())
    if not none.height:
        missing_rows = ""
    else:
        lost_a = none.filter(pl.col("a_never") > 0).height
        lost_b = none.filter(pl.col("b_never") > 0).height
        parts = [f"{count} where {name} never got there" for name, count in ((a, lost_a), (b, lost_b)) if count]
        missing_rows = f"not drawn: {none.height} rows without a ratio" + (f" ({', '.join(parts)})" if parts else "")
    subtitle = join_sentences(
        f"ratio of the runs' quantiles; above 1, {b} is faster",
        f"{level:g} % intervals over pairs of runs" if frame["low"].is_not_null().any() else "no intervals",
        missing_rows,
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
        subtitle=subtitle,
    )
