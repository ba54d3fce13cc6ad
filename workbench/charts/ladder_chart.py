"""A quantity over rising load, against its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.charts.data import check_row_count, check_unique, format_missing_note, join_sentences, select_columns
from workbench.charts.theme import (
    build_limit_line,
    encode_colour,
    encode_tooltip,
    finish_chart,
    make_zoomable,
    mark_intervals,
)
from workbench.core.formats import format_label
from workbench.core.frames import takes_frames

MAX_LEVELS = 2_000

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


@takes_frames
def ladder(
    table: pl.DataFrame,
    *,
    title: str,
    level: str,
    value: str,
    low: str | None = None,
    high: str | None = None,
    n: str | None = None,
    variant: str | None = None,
    slo: float | None = None,
    subtitle: str = "",
) -> alt.Chart:
    """How does the value grow as the load is raised, and at which level does it pass the limit?

    Parameters
    ----------
    table
        One row per load level (and variant), at most 2,000.
    level, value
        Columns: the load that was set; the quantity, such as p95 latency.
    low, high
        Columns with the ends of the value's interval, drawn as bars (null: none at that level).
    n, variant
        Columns: number of observations (in the tooltip); what gets a line of its own.
    slo
        The limit in the value's unit, drawn as a line.

    Raises
    ------
    InputError
        Columns missing or of another type, two rows at one level, too many rows.

    Notes
    -----
    Does not show what happens between the measured levels: the line only joins them.
    """
    import altair as alt

    frame = select_columns(table, "ladder", texts=[variant], numbers=[level, value, low, high, n])
    check_row_count(frame, "ladder", MAX_LEVELS, "draw fewer levels or variants")
    check_unique(frame, "ladder", [name for name in (variant, level) if name])
    drawn = frame.drop_nulls([level, value])
    measured = sorted(drawn[level].unique().to_list())
    # The measured levels are what can be read off; more than a dozen would overlap.
    axis = alt.Axis(values=measured) if len(measured) <= 12 else alt.Axis(tickCount=8)
    scale = alt.Scale(zero=False, nice=False, padding=16)
    x = alt.X(level, type="quantitative", title=format_label(level), scale=scale, axis=axis)
    # The highest dot would be cut in half at the upper edge; left to Vega where a value is below 0.
    values = [each for name in (value, low, high) if name for each in drawn[name].drop_nulls().to_list()]
    values += [] if slo is None else [slo]
    room = {"domainMax": 1.06 * max(values)} if values and min(values) >= 0 and max(values) > 0 else {}
    scale = alt.Scale(zero=True, nice=False, **room)
    y = alt.Y(value, type="quantitative", title=format_label(value), scale=scale, axis=alt.Axis(tickCount=6))
    base = alt.Chart(drawn).encode(x=x, tooltip=encode_tooltip(drawn), **encode_colour(drawn, variant))
    layers = [base.mark_line(strokeWidth=2).encode(y=y), base.mark_point(size=60, filled=True, opacity=1).encode(y=y)]
    if low and high:
        layers.insert(0, mark_intervals(base, low, high, "y", strokeWidth=7, strokeCap="round", opacity=0.3))
    if slo is not None:
        layers += build_limit_line(slo, value, axis="y")
    note = join_sentences(subtitle, format_missing_note(frame.height - drawn.height))
    return finish_chart(make_zoomable(layers, ["x", "y"]), title, note, frame, height=280)
