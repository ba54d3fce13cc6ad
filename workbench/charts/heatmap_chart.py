"""Heatmap of a value over two categories, with counts printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.charts.data import check_row_count, check_unique, join_sentences, list_categories, select_columns
from workbench.charts.theme import (
    build_ink_expression,
    encode_rows,
    encode_tooltip,
    finish_chart,
    short_number_expression,
)
from workbench.core.errors import InputError
from workbench.core.formats import format_label, format_number
from workbench.core.frames import takes_frames

MAX_CELLS = 1_500
MAX_CATEGORIES = 60
CELL_PX = 28

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


@takes_frames
def heatmap(
    table: pl.DataFrame, *, title: str, x: str, y: str, value: str, count: str | None = None, subtitle: str = ""
) -> alt.Chart:
    """How does the value change over two categories? Cells coloured by value, with their counts printed.

    `x`, `y`, `value`: Columns: the two categories (drawn in the table's order), the quantity that colours the cell
    (null: no colour).
    `count`: Column whose number is printed in the cell (null: the value is printed).

    Does not show how sure a cell is; read the count.
    """
    import altair as alt

    frame = select_columns(table, "heatmap", texts=[x, y], numbers=[value, count])
    check_row_count(frame, "heatmap", MAX_CELLS, "group the categories before drawing")
    check_unique(frame, "heatmap", [x, y])
    for name in (x, y):
        if len(list_categories(frame, name)) > MAX_CATEGORIES:
            raise InputError(
                "too many categories for the chart heatmap",
                where=name,
                allowed=f"at most {MAX_CATEGORIES}",
                do="group them before drawing",
            )
    without = frame.get_column(value).null_count()
    note = join_sentences(
        subtitle,
        f"figures: {format_label(count or value)}",
        f"{format_number(without)} cells without a value" if without else "",
    )
    slanted, printed = len(list_categories(frame, x)) > 8, count or value
    axis = alt.Axis(labelAngle=-40, labelLimit=110) if slanted else alt.Axis(labelAngle=0, labelLimit=90)
    across = alt.X(x, type="nominal", sort=None, title=format_label(x), axis=axis)
    base = alt.Chart(frame).encode(x=across, y=encode_rows(y), tooltip=encode_tooltip(frame))
    legend = alt.Legend(title=format_label(value), gradientLength=180, gradientThickness=8)
    # The figure must stand out from its own cell, in the light ramp and in the dark one.
    ink = build_ink_expression(f"scale('color', datum.{value})", f"isValid(datum.{value})")
    figure = f"isValid(datum.{printed}) ? ({short_number_expression('datum.' + printed)}) : '–'"
    cells = base.mark_rect(cornerRadius=2, stroke=None).encode(
        color=alt.Color(value, type="quantitative", legend=legend)
    )
    chart = alt.layer(cells, base.mark_text(color=alt.ExprRef(ink), text=alt.ExprRef(figure)))
    return finish_chart(chart, title, note, frame, height=max(80, CELL_PX * len(list_categories(frame, y))))
