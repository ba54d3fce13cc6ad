"""A value over two categories, with the counts printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.chart_data import at_most, chosen, first_appearance, sentences, unique
from workbench.errors import InputError
from workbench.formats import label_of, number
from workbench.pieces.encodings import finish, rows, short, tooltip

LIMIT_CELLS = 1_500
LIMIT_CATEGORIES = 60
CELL_PX = 28

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


def heatmap(
    table: pl.DataFrame, *, title: str, x: str, y: str, value: str, count: str | None = None, subtitle: str = ""
) -> alt.Chart:
    """How does the value change over two categories? Cells coloured by value, with their counts printed.

    Parameters
    ----------
    table
        One row per cell, at most 1,500 cells, 60 columns and 60 rows.
    x, y, value
        Columns: the two categories (drawn in the table's order), the quantity that colours the cell (null: no colour).
    count
        Column whose number is printed in the cell (null: the value is printed).

    Raises
    ------
    InputError
        Columns missing or of another type, a cell twice, too many cells.

    Notes
    -----
    Does not show how sure a cell is; read the count.
    """
    frame = chosen(table, "heatmap", texts=[x, y], numbers=[value, count])
    at_most(frame, "heatmap", LIMIT_CELLS, "group the categories before drawing")
    unique(frame, "heatmap", [x, y])
    for name in (x, y):
        if len(first_appearance(frame, name)) > LIMIT_CATEGORIES:
            raise InputError(
                "too many categories for the chart heatmap",
                where=name,
                allowed=f"at most {LIMIT_CATEGORIES}",
                do="group them before drawing",
            )
    without = frame.get_column(value).null_count()
    told = sentences(
        subtitle, f"figures: {label_of(count or value)}", f"{number(without)} cells without a value" if without else ""
    )
    height = max(80, CELL_PX * len(first_appearance(frame, y)))
    return finish(_cells(frame, x, y, value, count or value), title, told, frame, height=height)


def _cells(frame: pl.DataFrame, x: str, y: str, value: str, printed: str) -> Any:
    import altair as alt

    slanted = len(first_appearance(frame, x)) > 8
    axis = alt.Axis(labelAngle=-40, labelLimit=110) if slanted else alt.Axis(labelAngle=0, labelLimit=90)
    across = alt.X(x, type="nominal", sort=None, title=label_of(x), axis=axis)
    base = alt.Chart(frame).encode(x=across, y=rows(y), tooltip=tooltip(frame))
    legend = alt.Legend(title=label_of(value), gradientLength=180, gradientThickness=8)
    # The figure must stand out from its own cell, in the light ramp and in the dark one.
    ink = (
        f"!isValid(datum.{value}) ? '#808894' : luminance(scale('color', datum.{value})) > 0.22 ? '#10151c' : '#ffffff'"
    )
    figure = f"isValid(datum.{printed}) ? ({short('datum.' + printed)}) : '–'"
    cells = base.mark_rect(cornerRadius=2, stroke=None).encode(
        color=alt.Color(value, type="quantitative", legend=legend)
    )
    return alt.layer(cells, base.mark_text(color=alt.ExprRef(ink), text=alt.ExprRef(figure)))
