"""Forest plot: estimates with intervals against a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.charts.data import (
    check_positive,
    check_row_count,
    check_unique,
    format_missing_note,
    join_sentences,
    list_categories,
    select_columns,
)
from workbench.charts.theme import (
    COLOURS,
    ROW_PX,
    assign_colours,
    build_log_axis,
    encode_rows,
    encode_tooltip,
    finish_chart,
    make_zoomable,
    mark_intervals,
)
from workbench.core.formats import format_label
from workbench.core.frames import takes_frames

MAX_FOREST_ROWS = 200
FAINT = 0.45

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


@takes_frames
def forest(
    table: pl.DataFrame,
    *,
    title: str,
    label: str,
    estimate: str,
    low: str,
    high: str,
    n: str | None = None,
    told_apart: str | None = None,
    category: str | None = None,
    faint: str | None = None,
    details: tuple[str, ...] = (),
    reference: float | None = 1.0,
    log: bool = True,
    comparisons: int | None = None,
    subtitle: str = "",
) -> alt.Chart:
    """Which of these differ from the reference, and by how much? Dots with intervals, one row of the table each.

    Parameters
    ----------
    table
        One row per `label`, drawn in the table's order; at most 200.
    label, estimate, low, high
        Columns: name of the row, its figure, ends of its interval (null: no interval, only the dot is drawn).
    n
        Column with the number of observations, printed at the right.
    told_apart
        Boolean column: does the figure differ from the reference? Rows that do not are hollow, and grey without
        `category`.
    category
        Column that gives a row its colour, such as its verdict.
    faint
        Boolean column: is little known of this row? Such rows are drawn lighter.
    details
        More columns for the tooltip.
    reference
        Where the line of no difference stands (null: none).
    log
        Log axis, as ratios need it; every value must then be above 0.
    comparisons
        How many comparisons `told_apart` is corrected for, so that a row may not differ though its interval does.

    Raises
    ------
    InputError
        Columns missing or of another type, labels twice, too many rows, values <= 0 on a log axis.

    Notes
    -----
    Does not show whether the rows differ from each other.
    """
    import altair as alt
    import polars as pl

    values, texts, flags = [estimate, low, high], [label, category], [told_apart, faint]
    frame = select_columns(table, "forest", texts=texts, numbers=[*values, n], flags=flags, details=details)
    check_row_count(frame, "forest", MAX_FOREST_ROWS, "draw the rows that matter: table.head(40)")
    check_unique(frame, "forest", [label])
    if log:
        check_positive(frame, "forest", values)
    drawn = frame.drop_nulls(estimate)
    # Vega-Lite warns when a log axis is asked to include zero.
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=False, nice=False, padding=12)
    axis = build_log_axis(value for name in values for value in drawn[name]) if log else alt.Undefined
    x = alt.X(estimate, type="quantitative", title=format_label(estimate), scale=scale, axis=axis)
    # The tooltip leaves out what the drawing or the category shows.
    shown = tuple(name for name in (told_apart if category else None, faint) if name)
    base = alt.Chart(drawn).encode(y=encode_rows(label), tooltip=encode_tooltip(drawn, leave_out=shown))
    spans, dots = _encode_marks(drawn, told_apart, category, faint)
    layers = []
    if reference is not None:
        at = pl.DataFrame({"reference": [float(reference)]})
        line = alt.Chart(at).mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=COLOURS["baseline"])
        place = alt.X("reference", type="quantitative", title=format_label(estimate))
        layers.append(line.encode(x=place, tooltip=encode_tooltip(at)))
    layers.append(mark_intervals(base, low, high, "x", strokeWidth=2).encode(**spans))
    layers.append(base.mark_point(size=75, filled=True, opacity=1, strokeWidth=2).encode(x=x, **dots))
    if n:
        # Zooming clips marks to the plot; the counts stand beside it.
        text = alt.Chart(drawn).mark_text(align="left", dx=10, clip=False, color=COLOURS["neutral"])
        count = alt.Text(n, type="quantitative", format=",")
        tips = encode_tooltip(drawn)
        layers.append(text.encode(y=encode_rows(label), x=alt.value("width"), text=count, tooltip=tips))
    hollow = "hollow: no clear difference"
    if comparisons is not None:
        hollow = f"hollow: not proven after correction for {comparisons} comparisons"
    note = join_sentences(
        subtitle,
        hollow if told_apart else "",
        "pale: few samples" if faint and drawn[faint].any() else "",
        "n at the right" if n else "",
        format_missing_note(frame.height - drawn.height),
    )
    return finish_chart(make_zoomable(layers, ["x"]), title, note, frame, height=max(60, ROW_PX * drawn.height))


def _encode_marks(
    frame: pl.DataFrame, told_apart: str | None, category: str | None, faint: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Encodings of intervals and dots: colour by category, hollow without a difference, pale where little is known."""
    import altair as alt

    def choose_accent(otherwise: str) -> Any:
        accent = alt.value(COLOURS["accent"])
        return alt.condition(f"datum.{told_apart}", accent, alt.value(otherwise)) if told_apart else accent

    # Of the whole mark: a hollow dot's rim fades with its interval.
    pale = {"opacity": alt.condition(f"datum.{faint}", alt.value(FAINT), alt.value(1))} if faint else {}
    names = list_categories(frame, category) if category else []
    if not category or not names:
        grey = choose_accent(COLOURS["baseline"])
        return {"color": grey} | pale, {"stroke": grey, "fill": choose_accent("transparent")} | pale
    # Vega merges the legends of the three channels into one; hiding any hides all.
    look: dict[str, Any] = {"type": "nominal", "title": None}
    look["scale"] = alt.Scale(domain=names, range=assign_colours(names))
    dots: dict[str, Any] = {"stroke": alt.Stroke(category, **look), "fill": alt.Fill(category, **look)}
    if told_apart:
        dots["fillOpacity"] = alt.condition(f"datum.{told_apart}", alt.value(1), alt.value(0))
    return {"color": alt.Color(category, **look)} | pale, dots | pale
