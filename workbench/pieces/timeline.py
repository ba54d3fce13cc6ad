"""What ran when: intervals on lanes, with an overview whose brush chooses what the detail shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.chart_data import chosen, first_appearance, missing_note, sentences
from workbench.chart_text import table_text
from workbench.errors import InputError
from workbench.formats import label_of, number
from workbench.pieces.encodings import WIDTH_PX, colour, tooltip
from workbench.theme import COLOURS
from workbench.thinning import merged_intervals, open_intervals, sub_rows

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

LIMIT_INTERVALS = 3_500
LIMIT_LANES = 80
LIMIT_ROWS = 120
# A private character: names do not hold it, and unlike a control character a drawing may.
SEPARATOR = "\ue000"


def timeline(
    table: pl.DataFrame,
    *,
    title: str,
    start: str,
    end: str,
    lane: str,
    category: str | None = None,
    details: tuple[str, ...] = (),
    subtitle: str = "",
) -> alt.VConcatChart:
    """What ran when, and what at the same time? Intervals on lanes; brush the overview to look closer.

    Above, how many intervals are open at each moment, as steps; below, the intervals that touch the brushed time.
    Intervals of one lane that overlap are stacked. Above 3,500 intervals those of one lane and category that touch
    are merged, and the subtitle says so.

    Parameters
    ----------
    table
        One row per interval; rows without start or end are counted, not drawn.
    start, end
        Columns in seconds (start <= end).
    lane, category
        Columns: the row of the interval (at most 80 lanes, in the table's order); what gives it its colour.
    details
        More columns for the tooltip (left out when intervals are merged).

    Raises
    ------
    InputError
        Columns missing or of another type, an end before its start, too many lanes.

    Notes
    -----
    Does not show how busy an interval was, only that it was open.
    """
    import altair as alt
    import polars as pl

    frame = chosen(
        table,
        "timeline",
        texts=[lane, category, *_texts(table, details)],
        numbers=[start, end, *_numbers(table, details)],
    )
    known = frame.filter(pl.col(start).is_not_null() & pl.col(end).is_not_null())
    _check(known, start, end, lane)
    by = [lane] + ([category] if category else [])
    drawn, merged = (
        (known, "")
        if known.height <= LIMIT_INTERVALS
        else merged_intervals(known, start, end, by, limit=LIMIT_INTERVALS)
    )
    drawn, places = _stacked(drawn, start, end, lane)
    steps, binned = (
        open_intervals(known, start, end)
        if known.height
        else (pl.DataFrame(schema={"at": pl.Float64, "open": pl.Int64}), "")
    )

    brush = alt.selection_interval(
        encodings=["x"], mark=alt.BrushConfig(fill=COLOURS["accent"], fillOpacity=0.18, stroke=COLOURS["accent"])
    )
    overview = _overview(steps.rename({"at": start}), start).add_params(brush)
    first, last = (f"{brush.name}.{start}[{edge}]" for edge in (0, 1))
    inside = f"!isDefined({brush.name}.{start}) || (datum.{end} >= {first} && datum.{start} <= {last})"
    detail = _detail(drawn, start, end, category, places, brush).transform_filter(inside)
    told = sentences(
        subtitle, f"{number(known.height)} intervals", missing_note(frame.height - known.height), merged, binned
    )
    text = table_text(title, drawn.drop("place"), subtitle=told)
    heading = alt.TitleParams(text=title, subtitle=told)
    return alt.vconcat(overview, detail, spacing=10).properties(title=heading, description=text)


def _check(frame: pl.DataFrame, start: str, end: str, lane: str) -> None:
    import polars as pl

    backwards = frame.filter(pl.col(end) < pl.col(start))
    if backwards.height:
        found = f"{number(backwards.height)} rows, first {backwards.row(0)}"
        raise InputError(
            "an interval ends before it starts", where=f"chart timeline, columns {start}, {end}", found=found
        )
    lanes = len(first_appearance(frame, lane))
    if lanes > LIMIT_LANES:
        raise InputError(
            "too many lanes to draw",
            where=f"chart timeline, column {lane}",
            found=lanes,
            allowed=f"at most {LIMIT_LANES}",
            do="draw the lanes that matter, or group them",
        )


def _texts(table: pl.DataFrame, details: tuple[str, ...]) -> list[str]:
    return [name for name in details if name not in _numbers(table, details)]


def _numbers(table: pl.DataFrame, details: tuple[str, ...]) -> list[str]:
    return [name for name in details if name in table.columns and table.schema[name].is_numeric()]


def _stacked(frame: pl.DataFrame, start: str, end: str, lane: str) -> tuple[pl.DataFrame, list[str]]:
    """The place of each interval, and all places from top to bottom: rows within lanes, and gaps between lanes.

    Overlapping intervals of one lane lie under one another; when that would take too much room they overlay.
    """
    import polars as pl

    lanes = first_appearance(frame, lane)
    rows = pl.Series("row", [0] * frame.height, dtype=pl.Int64)
    for part in frame.with_row_index("_index").partition_by(lane):
        rows[part["_index"].to_list()] = sub_rows(part[start].to_list(), part[end].to_list())
    counts = dict(frame.with_columns(rows).group_by(lane).agg(pl.col("row").max() + 1).rows())
    if sum(counts.values()) > LIMIT_ROWS:
        rows, counts = rows * 0, dict.fromkeys(lanes, 1)
    place = pl.concat_str(pl.col(lane), rows.cast(pl.String), separator=SEPARATOR).alias("place")
    stacked = max(counts.values(), default=1) > 1
    places = [
        f"{name}{SEPARATOR}{row}" for name in lanes for row in [*range(counts[name]), *(["gap"] if stacked else [])]
    ]
    return frame.with_columns(place), places


def _overview(steps: pl.DataFrame, start: str) -> Any:
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
        alt.Tooltip(start, type="quantitative", title=label_of(start), format=",.4~g"),
        alt.Tooltip("open", type="quantitative"),
    ]
    area = alt.Chart(steps).mark_area(
        interpolate="step-after", opacity=0.35, line={"strokeWidth": 1, "color": COLOURS["accent"]}
    )
    return area.encode(x=x, y=y, tooltip=tips).properties(width=WIDTH_PX, height=48)


def _detail(frame: pl.DataFrame, start: str, end: str, category: str | None, places: list[str], brush: Any) -> Any:
    import altair as alt

    scale = alt.Scale(domain=brush, nice=False, zero=False)
    x = alt.X(start, type="quantitative", title="time (s)", axis=alt.Axis(tickCount=10), scale=scale)
    # The lane's name stands at the first of its rows.
    name, row = (f"split(datum.label, '{SEPARATOR}')[{part}]" for part in (0, 1))
    axis = alt.Axis(grid=False, labelPadding=8, labelOverlap=False, labelExpr=f"{row} == '0' ? {name} : ''")
    padding = alt.Scale(domain=places, paddingInner=0.15, paddingOuter=0.1)
    y = alt.Y("place", type="nominal", title=None, axis=axis, scale=padding)
    step = 12 if any(place.endswith(f"{SEPARATOR}1") for place in places) else 24
    tips = tooltip(frame, leave_out=("place",))
    bars = alt.Chart(frame).mark_bar(clip=True, cornerRadius=1, minBandSize=2)
    drawn = bars.encode(x=x, x2=alt.X2(end), y=y, tooltip=tips, **colour(frame, category))
    return drawn.properties(width=WIDTH_PX, height=max(60, step * len(places)))
