"""Waterfall: from one total to another, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
    import polars as pl

    texts, numbers = [label, category, case], [change, end, low, high]
    frame = select_columns(table, "waterfall", texts=texts, numbers=numbers, flags=[total], details=details)
    check_row_count(frame, "waterfall", MAX_STEPS, "draw fewer cases, or add up small steps")
    check_unique(frame, "waterfall", [name for name in (case, label) if name])
    shown = _CaseChoice(case, list_categories(frame, case) if case else [], first)
    drawn = _place_bars(frame.drop_nulls(end), label, change, end, total, case, high)
    chart = _build_layers(drawn, label, change, end, category, total, low, high, shown)
    note = join_sentences(subtitle, shown.note, format_missing_note(frame.height - drawn.height))
    # The description covers the case that is shown first.
    described = frame.filter(pl.col(case) == shown.first) if case and shown.first is not None else frame
    return finish_chart(chart, title, note, described, height=_choose_height(drawn.height))


class _CaseChoice:
    """Which case is shown: a list below the chart, or none where there is nothing to choose."""

    def __init__(self, column: str | None, cases: list[str], first: str | None) -> None:
        import altair as alt

        if first is not None and cases and first not in cases:
            raise InputError("no such case to show first", where=f"chart waterfall, column {column}", found=first)
        first = first or (cases[0] if cases else None)
        self.column, self.first = column, first
        self.note = f"{format_number(len(cases))} to choose from below" if len(cases) > 1 else ""
        bind = alt.binding_select(options=cases, name=f"{format_label(column)} ") if column and len(cases) > 1 else None
        self.param = alt.param(value=first, bind=bind) if bind else None

    def filter_chart(self, chart: Any) -> Any:
        """The chart with only the rows of the chosen case."""
        return chart.transform_filter(f"datum.{self.column} == {self.param.name}") if self.param else chart


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


def _choose_height(count: int) -> Any:
    import altair as alt

    return alt.Step(ROW_PX) if count else 60


def _build_layers(
    frame: pl.DataFrame,
    label: str,
    change: str,
    end: str,
    category: str,
    total: str,
    low: str | None,
    high: str | None,
    shown: _CaseChoice,
) -> Any:
    """Layers of the waterfall: bars, the lines that join them, intervals and figures.

    `frame` has the columns of LAYOUT.
    """
    import altair as alt

    tips = encode_tooltip(frame, leave_out=(*LAYOUT, total))
    axis = alt.Axis(tickCount=6, labelExpr=short_number_expression("datum.value"))
    x = alt.X(end, type="quantitative", title=format_label(change), axis=axis, scale=alt.Scale(nice=False, zero=True))
    base = shown.filter_chart(alt.Chart(frame)).encode(y=encode_rows(label), tooltip=tips)
    # A bar under an interval is lighter, so that the whole interval is seen.
    bar = base.mark_bar(height={"band": 0.72}, cornerRadius=1).encode(
        x=x,
        x2=alt.X2("bar_start"),
        **encode_colour(frame, category),
        **({"opacity": alt.condition(f"isValid(datum.{low})", alt.value(WITH_INTERVAL), alt.value(1))} if low else {}),
    )
    joined = base.transform_filter("isValid(datum.bar_joint) && isValid(datum.bar_below)")
    joint = joined.mark_rule(strokeWidth=1, opacity=0.55).encode(
        x=alt.X("bar_joint", type="quantitative"), y2=alt.Y2("bar_below")
    )
    figure = base.mark_text(align="left", dx=5).encode(text=alt.Text("bar_figure", type="nominal"))
    layers = [joint, bar]
    if low and high:
        interval_base = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        layers.append(interval_base.mark_rule(strokeWidth=2).encode(x=alt.X(low, type="quantitative"), x2=alt.X2(high)))
    layers.append(figure.encode(x=alt.X("bar_edge", type="quantitative")))
    # Unseen, it keeps space for the figure beside the longest bar, whichever case is shown.
    layers.append(base.mark_point(opacity=0, size=1).encode(x=alt.X("bar_room", type="quantitative")))
    chart = alt.layer(*layers)
    return chart.add_params(shown.param) if shown.param else chart
