"""Timeline: intervals on lanes, with an overview to brush."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.charts.data import (
    assign_sub_rows,
    count_open_intervals,
    describe_table,
    format_missing_note,
    join_sentences,
    list_categories,
    merge_intervals,
    select_columns,
)
from workbench.charts.theme import COLOURS, WIDTH_PX, encode_colour, encode_tooltip
from workbench.core.errors import InputError
from workbench.core.formats import format_label, format_number
from workbench.core.frames import takes_frames

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

MAX_INTERVALS = 3_500
MAX_LANES = 80
MAX_LANE_ROWS = 120
# A private character: names do not hold it, and unlike a control character a drawing may.
SEPARATOR = "\ue000"


@takes_frames
def timeline(
    table: pl.DataFrame,
    *,
    title: str,
    start: str,
    end: str,
    lane: str,
    category: str | None = None,
    details: tuple[str, ...] = (),
    shaded: pl.DataFrame | None = None,
    subtitle: str = "",
) -> alt.VConcatChart:
    """Which intervals were open when, and at the same time? Intervals on lanes; brush the overview to look closer.

    Above, how many intervals are open at each moment, as steps; below, the intervals that touch the brushed time.
    Intervals of one lane that overlap are stacked. Above 3,500 intervals those of one lane and category that touch
    are merged, and the subtitle says so.

    `table`: One row per interval; rows without start or end are counted, not drawn.
    `lane`, `category`: Columns: the row of the interval (at most 80 lanes, in the table's order); what gives it its
    colour.
    `details`: More columns for the tooltip (left out when intervals are merged).
    `shaded`: Intervals in columns of the same names, shaded over all lanes; the axis covers them, too.

    Does not show how busy an interval was, only that it was open.
    """
    import altair as alt
    import polars as pl

    frame = select_columns(table, "timeline", texts=[lane, category], numbers=[start, end], details=details)
    intervals = frame.drop_nulls([start, end])
    _check_interval_order(intervals, start, end, lane)
    by = [lane] + ([category] if category else [])
    drawn, merged = (
        (intervals, "")
        if intervals.height <= MAX_INTERVALS
        else merge_intervals(intervals, start, end, by, limit=MAX_INTERVALS)
    )
    drawn, places = _stack_intervals(drawn, start, end, lane)
    steps, binned = count_open_intervals(intervals, start, end)
    count = f"{format_number(intervals.height)} intervals"
    note = join_sentences(subtitle, count, format_missing_note(frame.height - intervals.height), merged, binned)
    text = describe_table(title, drawn.drop("place"), subtitle=note)
    steps = steps.rename({"at": start})
    if shaded is not None and shaded.height:
        ends = pl.DataFrame({start: [shaded[start].min(), shaded[end].max()], "open": [0, 0]}).cast(steps.schema)
        steps = pl.concat([steps, ends]).group_by(start).agg(pl.col("open").max()).sort(start)
    brush = alt.selection_interval(
        encodings=["x"], mark=alt.BrushConfig(fill=COLOURS["accent"], fillOpacity=0.18, stroke=COLOURS["accent"])
    )
    first, last = (f"{brush.name}.{start}[{edge}]" for edge in (0, 1))
    inside = f"!isDefined({brush.name}.{start}) || (datum.{end} >= {first} && datum.{start} <= {last})"
    detail = _build_detail(drawn, start, end, category, places, brush, shaded, inside)
    chart = alt.vconcat(_build_overview(steps, start).add_params(brush), detail, spacing=10)
    return chart.properties(title=alt.TitleParams(text=title, subtitle=note), description=text)


def _check_interval_order(frame: pl.DataFrame, start: str, end: str, lane: str) -> None:
    """Refuse intervals that end before they start, and more lanes than can be drawn."""
    import polars as pl

    backwards = frame.filter(pl.col(end) < pl.col(start))
    if backwards.height:
        finding = f"{format_number(backwards.height)} rows, first {backwards.row(0)}"
        raise InputError(
            "an interval ends before it starts", where=f"chart timeline, columns {start}, {end}", found=finding
        )
    lanes = len(list_categories(frame, lane))
    if lanes > MAX_LANES:
        raise InputError(
            "too many lanes to draw",
            where=f"chart timeline, column {lane}",
            found=lanes,
            allowed=f"at most {MAX_LANES}",
            do="draw the lanes that matter, or group them",
        )


def _stack_intervals(frame: pl.DataFrame, start: str, end: str, lane: str) -> tuple[pl.DataFrame, list[str]]:
    """Add the place of each interval, and list all places from the top: rows within lanes, and gaps between lanes.

    Overlapping intervals of one lane lie under one another; when that would take too much room they overlay.
    """
    import polars as pl

    lanes = list_categories(frame, lane)
    rows = pl.Series("row", [0] * frame.height, dtype=pl.Int64)
    for part in frame.with_row_index("_index").partition_by(lane):
        rows[part["_index"].to_list()] = assign_sub_rows(part[start].to_list(), part[end].to_list())
    counts = dict(frame.with_columns(rows).group_by(lane).agg(pl.col("row").max() + 1).rows())
    if sum(counts.values()) > MAX_LANE_ROWS:
        rows, counts = rows * 0, dict.fromkeys(lanes, 1)
    place = pl.concat_str(pl.col(lane), rows.cast(pl.String), separator=SEPARATOR).alias("place")
    stacked = max(counts.values(), default=1) > 1
    places = [
        f"{name}{SEPARATOR}{row}" for name in lanes for row in [*range(counts[name]), *(["gap"] if stacked else [])]
    ]
    return frame.with_columns(place), places


def _build_overview(steps: pl.DataFrame, start: str) -> Any:
    """Area of the number of open intervals over time; `steps` needs `start` and open."""
    import altair as alt

    x = alt.X(
        start,
        type="quantitative",
        title=None,
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(labels=False, grid=False),
    )
    y = alt.Y("open", type="quantitative", title="open", axis=alt.Axis(tickCount=2, grid=False, format="d"))
    tips = [
        alt.Tooltip(start, type="quantitative", title=format_label(start), format=",.4~g"),
        alt.Tooltip("open", type="quantitative"),
    ]
    area = alt.Chart(steps).mark_area(
        interpolate="step-after", opacity=0.35, line={"strokeWidth": 1, "color": COLOURS["accent"]}
    )
    return area.encode(x=x, y=y, tooltip=tips).properties(width=WIDTH_PX, height=48)


def _build_detail(
    frame: pl.DataFrame,
    start: str,
    end: str,
    category: str | None,
    places: list[str],
    brush: Any,
    shaded: pl.DataFrame | None,
    inside: str,
) -> Any:
    """Bars of the intervals inside the brushed time; `places` are the rows of all lanes, from the top.

    `inside`: Expression: does a row touch that time? Layers with rows of their own are filtered one by one.
    """
    import altair as alt

    scale = alt.Scale(domain=brush, nice=False, zero=False)
    x = alt.X(start, type="quantitative", title="time (s)", axis=alt.Axis(tickCount=10), scale=scale)
    # The lane's name stands at the first of its rows.
    name, row = (f"split(datum.label, '{SEPARATOR}')[{part}]" for part in (0, 1))
    axis = alt.Axis(grid=False, labelPadding=8, labelOverlap=False, labelExpr=f"{row} == '0' ? {name} : ''")
    padding = alt.Scale(domain=places, paddingInner=0.15, paddingOuter=0.1)
    y = alt.Y("place", type="nominal", title=None, axis=axis, scale=padding)
    step = 12 if any(place.endswith(f"{SEPARATOR}1") for place in places) else 24
    tips = encode_tooltip(frame, leave_out=("place",))
    bars = alt.Chart(frame).mark_bar(clip=True, cornerRadius=1, minBandSize=2)
    drawn = bars.encode(x=x, x2=alt.X2(end), y=y, tooltip=tips, **encode_colour(frame, category))
    drawn = drawn.transform_filter(inside)
    if shaded is not None and shaded.height:
        shade = alt.Chart(shaded).mark_rect(clip=True, opacity=0.22, color=COLOURS["neutral"])
        shade = shade.encode(x=x, x2=alt.X2(end), tooltip=encode_tooltip(shaded)).transform_filter(inside)
        drawn = alt.layer(shade, drawn)
    return drawn.properties(width=WIDTH_PX, height=max(60, step * len(places)))
