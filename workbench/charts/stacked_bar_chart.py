"""One stacked bar whose parts carry their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.charts.data import check_row_count, check_unique, join_sentences, select_columns
from workbench.charts.small_multiples import spread_labels
from workbench.charts.theme import WIDTH_PX, assign_colours, encode_tooltip, finish_chart
from workbench.core.formats import find_unit, format_number
from workbench.core.frames import takes_frames

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

MAX_PARTS = 4
# A page of a phone draws the bar at half its width, and the labels at their own size.
LABEL_PX, BAR_PX, HEIGHT_PX = 140, 44, 110


@takes_frames
def stacked_bar(
    table: pl.DataFrame, *, title: str, label: str, value: str, details: tuple[str, ...] = (), subtitle: str = ""
) -> alt.LayerChart:
    """Which parts make up a total? One bar, each part with its name, its value and its share below it.

    `table`: One row per part, drawn from the left in the table's order; at most 4. Parts of 0 and without a value are
    named in the subtitle.
    """
    import altair as alt
    import polars as pl

    frame = select_columns(table, "stacked_bar", texts=[label], numbers=[value], details=details)
    check_row_count(frame, "stacked_bar", MAX_PARTS, "add up small parts")
    check_unique(frame, "stacked_bar", [label])
    drawn = frame.filter(pl.col(value) > 0)
    absent = frame.filter(pl.col(value).fill_null(0) <= 0)[label].to_list()
    note = join_sentences(subtitle, f"none of it: {', '.join(absent)}" if absent and drawn.height else "")
    placed = _place_parts(drawn, label, value)
    total = float(drawn[value].sum())
    scale = alt.Scale(domain=[0, total or 1], nice=False)
    names = drawn[label].to_list()
    colours = alt.Color(label, type="nominal", legend=None, scale=alt.Scale(domain=names, range=assign_colours(names)))
    base = alt.Chart(placed)
    tips = encode_tooltip(drawn)
    x = alt.X("from_value", type="quantitative", title=None, axis=None, scale=scale)
    bar = base.mark_bar(stroke="white", strokeWidth=1).encode(
        x=x, x2="to_value", y=alt.value(0), y2=alt.value(BAR_PX), color=colours, tooltip=tips
    )
    middle = alt.X("middle", type="quantitative", title=None, axis=None, scale=scale)
    lead = base.mark_rule(opacity=0.6).encode(
        x=middle, x2="place", y=alt.value(BAR_PX), y2=alt.value(BAR_PX + 16), color=colours
    )
    place = alt.X("place", type="quantitative", title=None, axis=None, scale=scale)
    text = base.mark_text(baseline="top", lineBreak="\n", lineHeight=15, fontSize=12)
    words = text.encode(x=place, y=alt.value(BAR_PX + 18), text=alt.Text("words", type="nominal"))
    return finish_chart(alt.layer(bar, lead, words), title, note, drawn, height=HEIGHT_PX)


def _place_parts(frame: pl.DataFrame, label: str, value: str) -> pl.DataFrame:
    """Add where each part begins and ends, and the words below it with their place, all in the value's unit."""
    import polars as pl

    total = float(frame[value].sum())
    unit = find_unit(value)
    ends = frame[value].cum_sum().to_list()
    starts = [0.0, *ends[:-1]]
    middles = [(start + end) / 2 for start, end in zip(starts, ends, strict=False)]
    gap = LABEL_PX / WIDTH_PX * total
    places = _shift_inside(spread_labels(middles, gap), gap / 2, total - gap / 2, gap)
    words = [
        f"{name}\n{format_number(part)} {unit}\n{100 * part / total:.0f} %"
        for name, part in frame.select(label, value).iter_rows()
    ]
    columns = {"from_value": starts[: len(ends)], "to_value": ends, "middle": middles, "place": places}
    numbers = [pl.Series(name, numbers, dtype=pl.Float64) for name, numbers in columns.items()]
    return frame.with_columns(*numbers, pl.Series("words", words, dtype=pl.String))


def _shift_inside(places: list[float], low: float, high: float, gap: float) -> list[float]:
    """Move ordered places between two limits, at least `gap` apart where that is possible.

    >>> _shift_inside([0.0, 5.0, 9.8], 1.0, 9.0, 2.0)
    [1.0, 5.0, 9.0]
    """
    shifted: list[float] = []
    for place in places:
        shifted.append(max(place, low if not shifted else shifted[-1] + gap))
    for index in range(len(shifted) - 1, -1, -1):
        shifted[index] = min(shifted[index], high if index == len(shifted) - 1 else shifted[index + 1] - gap)
    return shifted
