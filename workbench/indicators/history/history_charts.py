"""Chart of a history: the figure of each series over time, with its changes of level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.charts.data import describe_table, join_sentences
from workbench.charts.theme import COLOURS, build_log_axis, encode_tooltip, list_round_ticks
from workbench.indicators.history.history_points import CONTROL, FOLLOWED
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED

if TYPE_CHECKING:
    import altair as alt

    from workbench.indicators.history.level_changes import HistoryAnalysis

MAX_PANELS = 8
MAX_DRAWN = 4_000
MAX_SPANS = 60
MAX_TICKS = 6
PANEL_WIDTH, PANEL_HEIGHT = 620, 150
_SHADES = {
    FASTER: COLOURS["accelerator"],
    SLOWER: COLOURS["failure"],
    SAME: COLOURS["neutral"],
    UNDECIDED: COLOURS["neutral"],
}


def select_panels(analysis: HistoryAnalysis) -> list[int]:
    """Series to draw: those slower since the date first, then those with changes, then the control; at most eight."""
    rank = (
        pl.when(pl.col("verdict") == SLOWER)
        .then(0)
        .when((pl.col("kind") == FOLLOWED) & (pl.col("changes") > 0))
        .then(1)
        .when(pl.col("kind") == FOLLOWED)
        .then(2)
        .when(pl.col("kind") == CONTROL)
        .then(3)
        .otherwise(4)
    )
    drawn = analysis.series.with_columns(rank=rank).sort("rank", "series").head(MAX_PANELS)
    return [int(number) for number in drawn["series"]]


def build_chart_points(analysis: HistoryAnalysis) -> pl.DataFrame:
    """Points of the drawn panels as ratios with the ends of two standard errors; the newest 4,000.

    Columns: series, panel, time, ratio, low, high, level, segment, session_id, revision, packages.
    """
    numbers = select_panels(analysis)
    points = analysis.history.points.filter(pl.col("series").is_in(numbers))
    value, error = pl.col("log_ratio"), pl.col("error")
    points = points.join(analysis.levels, on=["series", "session_id"])
    # Of a series in the order of its commits, a session stands where its commit was made.
    told = pl.col("commit_at").is_not_null().all().over("series")
    points = points.with_columns(time=pl.when(told).then("commit_at").otherwise("created_at"))
    points = points.sort("time", "place", descending=True)
    label = pl.col("metric") + " of " + pl.col("stack") + pl.lit(" (") + pl.col("series").cast(pl.String) + ")"
    return points.head(MAX_DRAWN).select(
        "series",
        label.alias("panel"),
        pl.col("time").str.slice(0, 19),
        value.exp().alias("ratio"),
        # Cut at the range of the points: one wide interval would flatten a panel.
        (value - 2 * error).clip(value.min().over("series")).exp().alias("low"),
        (value + 2 * error).clip(None, value.max().over("series")).exp().alias("high"),
        pl.col("level").exp().alias("level"),
        "segment",
        "session_id",
        "revision",
        "packages",
    )


def chart_history(analysis: HistoryAnalysis) -> alt.FacetChart:
    """Draw each series over time: when did a level change?

    Parameters
    ----------
    analysis
        Result of `analyse_history`; at most eight series are drawn.

    Notes
    -----
    Intervals are two standard errors of the session's own rounds; sessions differ by more than that.
    """
    import altair as alt

    frame = build_chart_points(analysis).with_columns(packages=pl.col("packages").str.slice(0, 120))
    names = frame.select("series", "panel").unique().sort("series")
    times = frame.select("series", "session_id", "time")
    changes = analysis.changes.join(names, on="series").join(times, on=["series", "session_id"])
    changes = changes.select("panel", pl.col("time").alias("changed"), "verdict")
    # One table with all kinds of rows: a facet draws one data set.
    dates = names.select("panel", since=pl.lit(analysis.since)) if analysis.since else names.select("panel").head(0)
    rows = pl.concat([frame, changes, dates], how="diagonal")
    # A line at each change, in the colour of its verdict; `changes` needs `changed` (a time) and `verdict`.
    claims = [name for name in _SHADES if name in set(changes["verdict"])]
    shade = alt.Color(
        "verdict",
        type="nominal",
        title="changed to",
        scale=alt.Scale(domain=claims, range=[_SHADES[name] for name in claims]),
        legend=alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3) if claims else None,
    )
    rule = alt.Chart().transform_filter("isValid(datum.changed)").mark_rule(strokeWidth=2, strokeDash=[5, 4])
    change_rule = rule.encode(x=alt.X("changed", type="temporal"), color=shade)
    layers = [*_build_point_layers(frame), change_rule]
    if analysis.since is not None:
        since = alt.Chart().transform_filter("isValid(datum.since)").mark_rule(color=COLOURS["cpu"], strokeWidth=1.5)
        layers.append(since.encode(x=alt.X("since", type="temporal")))
    hidden = analysis.series.height - names.height
    has_reference = bool((analysis.history.points["reference"] != "").any())
    subtitle = join_sentences(
        "times better than the reference of the same session"
        if has_reference
        else "times better than its first session",
        "each panel has its own axis",
        "lines: levels",
        "dashed: the level changed" if changes.height else "no change of level found",
        f"orange: {analysis.since}" if analysis.since else "",
        f"{hidden} more series in the table" if hidden else "",
    )
    inner = alt.layer(*layers, data=rows).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT)
    header = alt.Header(title=None, labelFontWeight=600, labelAnchor="start", labelLimit=PANEL_WIDTH)
    order = [name for number in select_panels(analysis) for name in names.filter(pl.col("series") == number)["panel"]]
    panels = inner.facet(facet=alt.Facet("panel", type="nominal", sort=order, header=header), columns=1, spacing=12)
    title = "How did each figure change over time?"
    return panels.resolve_scale(y="independent").properties(
        title=alt.TitleParams(text=title, subtitle=subtitle),
        description=describe_table(title, frame.select("panel", "time", "ratio"), subtitle=subtitle),
    )


def _build_point_layers(frame: pl.DataFrame) -> list[Any]:
    """Intervals, points, and the line of each level; `frame` is that of `build_chart_points`."""
    import altair as alt

    # A history of hours has its days on the axis too.
    format_ = "%d %b %Y" if frame["time"].str.slice(0, 10).n_unique() > MAX_TICKS else "%d %b %H:%M"
    x = alt.X(
        "time", type="temporal", title=None, axis=alt.Axis(tickCount=MAX_TICKS, labelOverlap=True, format=format_)
    )
    scale = alt.Scale(type="log", nice=False, padding=10)
    # All panels have the same ticks: round ones, unless a panel is too narrow for two of them.
    ranges = frame.group_by("panel").agg(low=pl.col("ratio").min(), high=pl.col("ratio").max())
    fewest = min((len(list_round_ticks(*ends)) for ends in ranges.select("low", "high").iter_rows()), default=0)
    axis = build_log_axis(frame["ratio"]) if fewest > 1 else alt.Axis(tickCount=5, format=".3~g")
    y = alt.Y("ratio", type="quantitative", title="times better", scale=scale, axis=axis)
    tooltip = encode_tooltip(frame.drop("panel", "segment"))
    base = alt.Chart().transform_filter("isValid(datum.ratio)").encode(x=x, tooltip=tooltip)
    level = alt.Y("level", type="quantitative")
    spans = [
        base.mark_rule(opacity=0.35, color=COLOURS["neutral"]).encode(y=alt.Y("low", type="quantitative"), y2="high")
    ]
    return [
        # So many would hide the points and the levels; the tooltip has each interval.
        *(spans if frame.height <= MAX_SPANS else []),
        base.mark_point(size=22, filled=True, opacity=1, color=COLOURS["baseline"]).encode(y=y),
        base.mark_line(strokeWidth=2, color=COLOURS["accent"]).encode(
            y=level, detail=alt.Detail("segment", type="nominal")
        ),
    ]
