"""Ranked bars of the largest values, with a slider for how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.charts.data import check_unique, format_missing_note, join_sentences, select_columns
from workbench.charts.theme import (
    ROW_PX,
    encode_colour,
    encode_rows,
    encode_tooltip,
    finish_chart,
    short_number_expression,
)
from workbench.core.errors import InputError
from workbench.core.formats import format_label, format_number
from workbench.core.frames import takes_frames

MAX_BARS = 100

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


@takes_frames
def bars(
    table: pl.DataFrame,
    *,
    title: str,
    label: str,
    value: str,
    category: str | None = None,
    top: int = 10,
    subtitle: str = "",
) -> alt.Chart:
    """Which are the largest? Ranked bars, with a slider for how many are shown.

    Parameters
    ----------
    table
        One row per `label`; the 100 largest values can be shown.
    label, value, category
        Columns: name of the row, the quantity (nulls are counted, not drawn), what gives the bar its colour.
    top
        How many bars are shown at first.

    Raises
    ------
    InputError
        Columns missing or of another type, labels twice, `top` below 1.

    Notes
    -----
    Does not show how sure the figures are: neighbours in rank may not differ.
    """
    import altair as alt
    import polars as pl

    frame = select_columns(table, "bars", texts=[label, category], numbers=[value])
    check_unique(frame, "bars", [label])
    if top < 1:
        raise InputError("top must be 1 or more", where="chart bars", found=top)
    rows = frame.filter(pl.col(value).is_not_null()).sort(value, descending=True, maintain_order=True)
    drawn = rows.head(MAX_BARS).with_row_index("rank", offset=1)
    n_undrawn = rows.height - drawn.height
    note = join_sentences(
        subtitle,
        f"{format_number(rows.height)} in all",
        f"{format_number(n_undrawn)} below the largest {MAX_BARS} not drawn" if n_undrawn else "",
        format_missing_note(frame.height - rows.height),
    )
    many = max(1, drawn.height)
    # A slider that could only hide bars is left out.
    slider = alt.binding_range(min=1, max=many, step=1, name="Show the top ") if many > top else alt.Undefined
    shown = alt.param(value=min(top, many), bind=slider)
    axis = alt.Axis(tickCount=6, labelExpr=short_number_expression("datum.value"))
    # Space for the figure beside the longest bar; Vega's own scale if a bar goes below 0.
    values = drawn[value].to_list()
    room = {"domain": [0, 1.22 * max(values)], "nice": False} if values and min(values) >= 0 < max(values) else {}
    x = alt.X(value, type="quantitative", title=format_label(value), axis=axis, scale=alt.Scale(**room))
    base = alt.Chart(drawn).transform_filter(alt.datum.rank <= shown)
    base = base.encode(y=encode_rows(label), x=x, tooltip=encode_tooltip(drawn))
    bar = base.mark_bar(cornerRadiusEnd=2, height={"band": 0.72}).encode(**encode_colour(drawn, category))
    figure = base.mark_text(align="left", dx=5, text=alt.ExprRef(short_number_expression(f"datum.{value}")))
    chart = alt.layer(bar, figure).add_params(shown)
    return finish_chart(chart, title, note, drawn.drop("rank"), height=alt.Step(ROW_PX))
