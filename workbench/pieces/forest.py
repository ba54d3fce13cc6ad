"""Which of these differ from the reference, and by how much: dots with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.chart_data import at_most, chosen, missing_note, positive, sentences, unique
from workbench.formats import label_of
from workbench.pieces.encodings import ROW_PX, finish, rows, tooltip, zoomable
from workbench.theme import COLOURS

LIMIT_ROWS = 200

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


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
    reference: float | None = 1.0,
    log: bool = True,
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
        Boolean column: does the figure differ from the reference? Rows that do not are hollow and grey.
    reference
        Where the line of no difference stands (null: none).
    log
        Log axis, as ratios need it; every value must then be above 0.

    Raises
    ------
    InputError
        Columns missing or of another type, labels twice, too many rows, values <= 0 on a log axis.

    Notes
    -----
    Does not show whether the rows differ from each other.
    """
    import polars as pl

    frame = chosen(table, "forest", texts=[label], numbers=[estimate, low, high, n], flags=[told_apart])
    at_most(frame, "forest", LIMIT_ROWS, "draw the rows that matter: table.head(40)")
    unique(frame, "forest", [label])
    if log:
        positive(frame, "forest", [estimate, low, high])
    drawn = frame.filter(pl.col(estimate).is_not_null())
    layers = _marks(drawn, label, estimate, low, high, told_apart, log=log)
    if reference is not None:
        layers.insert(0, _reference_line(reference, estimate))
    if n:
        layers.append(_counts(drawn, label, n))
    told = sentences(
        subtitle,
        "hollow: not told apart" if told_apart else "",
        "n at the right" if n else "",
        missing_note(frame.height - drawn.height),
    )
    return finish(zoomable(layers, ["x"]), title, told, frame, height=max(60, ROW_PX * drawn.height))


def _marks(
    frame: pl.DataFrame, label: str, estimate: str, low: str, high: str, told_apart: str | None, *, log: bool
) -> list[Any]:
    import altair as alt

    def colour(otherwise: str) -> Any:
        accent = alt.value(COLOURS["accent"])
        return alt.condition(f"datum.{told_apart}", accent, alt.value(otherwise)) if told_apart else accent

    # A log axis takes no zero, and Vega-Lite warns of each that is told so.
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=False, nice=False, padding=12)
    x = alt.X(estimate, type="quantitative", title=label_of(estimate), scale=scale)
    base = alt.Chart(frame).encode(y=rows(label), tooltip=tooltip(frame))
    spans = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})").mark_rule(strokeWidth=2)
    dots = base.mark_point(size=75, filled=True, opacity=1, strokeWidth=2)
    return [
        spans.encode(x=alt.X(low, type="quantitative"), x2=alt.X2(high), color=colour(COLOURS["baseline"])),
        dots.encode(x=x, stroke=colour(COLOURS["baseline"]), fill=colour("transparent")),
    ]


def _reference_line(reference: float, estimate: str) -> Any:
    import altair as alt
    import polars as pl

    frame = pl.DataFrame({"reference": [float(reference)]})
    line = alt.Chart(frame).mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=COLOURS["baseline"])
    place = alt.X("reference", type="quantitative", title=label_of(estimate))
    return line.encode(x=place, tooltip=tooltip(frame))


def _counts(frame: pl.DataFrame, label: str, n: str) -> Any:
    import altair as alt

    # Zooming clips marks to the plot; the counts stand beside it.
    text = alt.Chart(frame).mark_text(align="left", dx=10, clip=False, color=COLOURS["neutral"])
    return text.encode(
        y=rows(label), x=alt.value("width"), text=alt.Text(n, type="quantitative", format=","), tooltip=tooltip(frame)
    )
