"""Waterfall: from one total to another, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workbench.charts.data import (
    check_row_count,
    check_unique,
    format_missing_note,
    join_sentences,
    list_categories,
    select_columns,
)
from workbench.charts.theme import (
    ROW_PX,
    encode_colour,
    encode_rows,
    encode_tooltip,
    finish_chart,
    mark_intervals,
    short_number_expression,
)
from workbench.core.errors import InputError
from workbench.core.formats import format_label, format_number
from workbench.core.frames import takes_frames

MAX_STEPS = 2_000
# Space for the figure beside the longest bar, as a share of it.
ROOM = 0.16
REACHED = 1e-9
WITH_INTERVAL = 0.55

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


LAYOUT = ("bar_start", "bar_figure", "bar_below", "bar_joint", "bar_edge", "bar_room")


@takes_frames
def waterfall(
    table: pl.DataFrame,
    *,
    title: str,
    label: str,
    change: str,
    end: str,
    category: str,
    total: str,
    case: str | None = None,
    first: str | None = None,
    low: str | None = None,
    high: str | None = None,
    details: tuple[str, ...] = (),
    subtitle: str = "",
) -> alt.Chart:
    """Which steps lead from one total to the other, and how large is each?

    `table`: One row per bar, drawn in the table's order; at most 2,000 over all cases. Rows without `end` are
    counted, not drawn.
    `label`, `change`, `end`: Columns: name of the bar; what the step adds (below 0: takes away), or the total itself;
    where the bar ends.
    `total`: Boolean column: does the bar start at 0? The others start where the one above ended.
    `case`, `first`: Column of which one value is shown at a time, chosen below the chart; the one shown at first (by
    default the table's first).
    `low`, `high`: Columns with the ends of an interval around `end` (null: none for this bar).

    Does not show how sure a single step is: only bars with an interval say that.
    """
    import altair as alt
    import polars as pl

    texts, numbers = [label, category, case], [change, end, low, high]
    frame = select_columns(table, "waterfall", texts=texts, numbers=numbers, flags=[total], details=details)
    check_row_count(frame, "waterfall", MAX_STEPS, "draw fewer cases, or add up small steps")
    check_unique(frame, "waterfall", [name for name in (case, label) if name])
    cases = list_categories(frame, case) if case else []
    if first is not None and cases and first not in cases:
        raise InputError("no such case to show first", where=f"chart waterfall, column {case}", found=first)
    first = first or (cases[0] if cases else None)
    choice = None
    if case and len(cases) > 1:
        choice = alt.param(value=first, bind=alt.binding_select(options=cases, name=f"{format_label(case)} "))
    drawn = _place_bars(frame.drop_nulls(end), label, change, end, total, case, high)
    tips = encode_tooltip(drawn, leave_out=(*LAYOUT, total))
    axis = alt.Axis(tickCount=6, labelExpr=short_number_expression("datum.value"))
    x = alt.X(end, type="quantitative", title=format_label(change), axis=axis, scale=alt.Scale(nice=False, zero=True))
    rows = alt.Chart(drawn)
    if choice:
        rows = rows.transform_filter(f"datum.{case} == {choice.name}")
    base = rows.encode(y=encode_rows(label), tooltip=tips)
    # A bar under an interval is lighter, so that the whole interval is seen.
    bar = base.mark_bar(height={"band": 0.72}, cornerRadius=1).encode(
        x=x,
        x2=alt.X2("bar_start"),
        **encode_colour(drawn, category),
        **({"opacity": alt.condition(f"isValid(datum.{low})", alt.value(WITH_INTERVAL), alt.value(1))} if low else {}),
    )
    joined = base.transform_filter("isValid(datum.bar_joint) && isValid(datum.bar_below)")
    joint = joined.mark_rule(strokeWidth=1, opacity=0.55).encode(
        x=alt.X("bar_joint", type="quantitative"), y2=alt.Y2("bar_below")
    )
    figure = base.mark_text(align="left", dx=5).encode(text=alt.Text("bar_figure", type="nominal"))
    layers = [joint, bar]
    if low and high:
        layers.append(mark_intervals(base, low, high, "x", strokeWidth=2))
    layers.append(figure.encode(x=alt.X("bar_edge", type="quantitative")))
    # Unseen, it keeps space for the figure beside the longest bar, whichever case is shown.
    layers.append(base.mark_point(opacity=0, size=1).encode(x=alt.X("bar_room", type="quantitative")))
    chart = alt.layer(*layers)
    if choice:
        chart = chart.add_params(choice)
    chosen = f"{format_number(len(cases))} to choose from below" if choice else ""
    note = join_sentences(subtitle, chosen, format_missing_note(frame.height - drawn.height))
    # The description covers the case that is shown first.
    described = frame.filter(pl.col(case) == first) if case and first is not None else frame
    return finish_chart(chart, title, note, described, height=alt.Step(ROW_PX) if drawn.height else 60)


def _place_bars(
    frame: pl.DataFrame, label: str, change: str, end: str, total: str, case: str | None, high: str | None
) -> pl.DataFrame:
    """Add the columns of LAYOUT: where each bar starts, what is below it, and how far the axis must reach."""
    import polars as pl

    def within_case(expression: pl.Expr) -> pl.Expr:
        return expression.over(case) if case else expression

    start = pl.when(pl.col(total)).then(0.0).otherwise(pl.col(end) - pl.col(change).fill_null(0.0))
    below = within_case(pl.col(end).shift(-1))
    # A total below is joined only where it is the one that was reached.
    reached = (below - pl.col(end)).abs() <= REACHED * pl.col(end).abs()
    goes_on = ~within_case(pl.col(total).shift(-1)) | reached
    placed = frame.with_columns(
        start.alias("bar_start"),
        within_case(pl.col(label).shift(-1)).alias("bar_below"),
        pl.when(goes_on.fill_null(value=False)).then(pl.col(end)).alias("bar_joint"),
    )
    edge = pl.max_horizontal("bar_start", end, *([high] if high else []))
    placed = placed.with_columns(edge.alias("bar_edge"), within_case(edge.abs().max()).alias("bar_most"))
    figures = [_format_step(*row) for row in placed.select(change, total, "bar_most").iter_rows()]
    room = (pl.col("bar_most") * (1 + ROOM)).alias("bar_room")
    return placed.with_columns(pl.Series("bar_figure", figures, dtype=pl.String), room).drop("bar_most")


def _format_step(change: float | None, total: bool | None, largest: float | None) -> str:
    """A step's figure with as many decimals as the largest bar shows with three digits, so that they add up."""
    if change is None:
        return ""
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest and largest > 0 else 0
    change = round(change, decimals) + 0.0  # no minus before a rounded zero
    text = f"{change:,.{decimals}f}" if total or not change else f"{change:+,.{decimals}f}"
    return text.replace("-", "\u2212")
