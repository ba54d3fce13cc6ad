"""From one total to another, step by step: bars that start where the one before ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from workbench.chart_data import at_most, chosen, first_appearance, missing_note, sentences, unique
from workbench.errors import InputError
from workbench.formats import label_of, number
from workbench.pieces.encodings import ROW_PX, colour, finish, rows, short, tooltip

LIMIT_STEPS = 2_000
# Space for the figure beside the longest bar, as a share of it.
ROOM = 0.16
REACHED = 1e-9
WITH_INTERVAL = 0.55

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


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

    Parameters
    ----------
    table
        One row per bar, drawn in the table's order; at most 2,000 over all cases. Rows without `end` are counted, not
        drawn.
    label, change, end
        Columns: name of the bar; what the step adds (below 0: takes away), or the total itself; where the bar ends.
    category
        Column that gives the bar its colour.
    total
        Boolean column: does the bar start at 0? The others start where the one above ended.
    case, first
        Column of which one value is shown at a time, chosen below the chart; the one shown at first (by default the
        table's first).
    low, high
        Columns with the ends of an interval around `end` (null: none for this bar).
    details
        More columns for the tooltip.

    Raises
    ------
    InputError
        Columns missing or of another type, a label twice in one case, too many rows, no case named `first`.

    Notes
    -----
    Does not show how sure a single step is: only bars with an interval say that.
    """
    import polars as pl

    numeric = [name for name in details if name in table.columns and table.schema[name].is_numeric()]
    texts = [label, category, case, *(name for name in details if name not in numeric)]
    frame = chosen(table, "waterfall", texts=texts, numbers=[change, end, low, high, *numeric], flags=[total])
    at_most(frame, "waterfall", LIMIT_STEPS, "draw fewer cases, or add up small steps")
    unique(frame, "waterfall", [name for name in (case, label) if name])
    cases = first_appearance(frame, case) if case else []
    if first is not None and cases and first not in cases:
        raise InputError("no such case to show first", where=f"chart waterfall, column {case}", found=first)
    drawn = _placed(frame.filter(pl.col(end).is_not_null()), label, change, end, total, case, high)
    shown = _Choice(case, cases, first or (cases[0] if cases else None))
    chart = _marks(drawn, label, change, end, category, total, low, high, shown)
    told = sentences(
        subtitle,
        f"{number(len(cases))} to choose from below" if len(cases) > 1 else "",
        missing_note(frame.height - drawn.height),
    )
    # The words tell what is seen first.
    told_rows = frame.filter(pl.col(case) == shown.first) if case and shown.first is not None else frame
    return finish(chart, title, told, told_rows, height=_height(drawn.height))


class _Choice:
    """Which case is shown: a list below the chart, or none where there is nothing to choose."""

    def __init__(self, column: str | None, cases: list[str], first: str | None) -> None:
        import altair as alt

        self.column, self.first = column, first
        bind = alt.binding_select(options=cases, name=f"{label_of(column)} ") if column and len(cases) > 1 else None
        self.param = alt.param(value=first, bind=bind) if bind else None

    def applied(self, chart: Any) -> Any:
        """The chart with only the rows of the chosen case."""
        return chart.transform_filter(f"datum.{self.column} == {self.param.name}") if self.param else chart


def _placed(
    frame: pl.DataFrame, label: str, change: str, end: str, total: str, case: str | None, high: str | None
) -> pl.DataFrame:
    """Where each bar starts, what stands below it, and how far the axis must reach."""
    import polars as pl

    def within(expression: pl.Expr) -> pl.Expr:
        return expression.over(case) if case else expression

    start = pl.when(pl.col(total)).then(0.0).otherwise(pl.col(end) - pl.col(change).fill_null(0.0))
    below = within(pl.col(end).shift(-1))
    # A total below is joined only where it is the one that was reached.
    reached = (below - pl.col(end)).abs() <= REACHED * pl.col(end).abs()
    goes_on = ~within(pl.col(total).shift(-1)) | reached
    placed = frame.with_columns(
        start.alias("bar_start"),
        within(pl.col(label).shift(-1)).alias("bar_below"),
        pl.when(goes_on.fill_null(value=False)).then(pl.col(end)).alias("bar_joint"),
    )
    edge = pl.max_horizontal("bar_start", end, *([high] if high else []))
    placed = placed.with_columns(edge.alias("bar_edge"), within(edge.abs().max()).alias("bar_most"))
    figures = [_figure(*row) for row in placed.select(change, total, "bar_most").iter_rows()]
    room = (pl.col("bar_most") * (1 + ROOM)).alias("bar_room")
    return placed.with_columns(pl.Series("bar_figure", figures, dtype=pl.String), room).drop("bar_most")


def _figure(change: float | None, total: bool | None, most: float | None) -> str:
    """A step's figure with as many decimals as the largest bar shows with three digits, so that they add up."""
    if change is None:
        return ""
    decimals = max(0, 2 - math.floor(math.log10(most))) if most and most > 0 else 0
    text = f"{change:,.{decimals}f}" if total else f"{change:+,.{decimals}f}"
    return text.replace("-", "\u2212")


def _height(count: int) -> Any:
    import altair as alt

    return alt.Step(ROW_PX) if count else 60


def _lighter(low: str | None) -> dict[str, Any]:
    """A bar under an interval is lighter, so that the whole interval is seen."""
    import altair as alt

    return {"opacity": alt.condition(f"isValid(datum.{low})", alt.value(WITH_INTERVAL), alt.value(1))} if low else {}


LAYOUT = ("bar_start", "bar_figure", "bar_below", "bar_joint", "bar_edge", "bar_room")


def _marks(
    frame: pl.DataFrame,
    label: str,
    change: str,
    end: str,
    category: str,
    total: str,
    low: str | None,
    high: str | None,
    shown: _Choice,
) -> Any:
    import altair as alt

    tips = tooltip(frame, leave_out=(*LAYOUT, total))
    axis = alt.Axis(tickCount=6, labelExpr=short("datum.value"))
    x = alt.X(end, type="quantitative", title=label_of(change), axis=axis, scale=alt.Scale(nice=False, zero=True))
    base = shown.applied(alt.Chart(frame)).encode(y=rows(label), tooltip=tips)
    bar = base.mark_bar(height={"band": 0.72}, cornerRadius=1).encode(
        x=x, x2=alt.X2("bar_start"), **colour(frame, category), **_lighter(low)
    )
    joined = base.transform_filter("isValid(datum.bar_joint) && isValid(datum.bar_below)")
    joint = joined.mark_rule(strokeWidth=1, opacity=0.55).encode(
        x=alt.X("bar_joint", type="quantitative"), y2=alt.Y2("bar_below")
    )
    figure = base.mark_text(align="left", dx=5).encode(text=alt.Text("bar_figure", type="nominal"))
    layers = [joint, bar]
    if low and high:
        known = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        layers.append(known.mark_rule(strokeWidth=2).encode(x=alt.X(low, type="quantitative"), x2=alt.X2(high)))
    layers.append(figure.encode(x=alt.X("bar_edge", type="quantitative")))
    # Unseen, it keeps space for the figure beside the longest bar, whichever case is shown.
    layers.append(base.mark_point(opacity=0, size=1).encode(x=alt.X("bar_room", type="quantitative")))
    chart = alt.layer(*layers)
    return chart.add_params(shown.param) if shown.param else chart
