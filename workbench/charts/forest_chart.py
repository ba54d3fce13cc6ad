"""Forest plot: estimates with intervals against a reference."""

from __future__ import annotations

from dataclasses import dataclass
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
    columns = _ForestColumns(label, estimate, low, high, n, told_apart, category, faint)
    frame = columns.select_rows(table, details, log=log)
    drawn = frame.drop_nulls(estimate)
    layers = _build_layers(drawn, columns, reference, log=log)
    legend = columns.format_legend(drawn, comparisons)
    note = join_sentences(subtitle, legend, format_missing_note(frame.height - drawn.height))
    return finish_chart(make_zoomable(layers, ["x"]), title, note, frame, height=max(60, ROW_PX * drawn.height))


@dataclass(frozen=True)
class _ForestColumns:
    """Columns of the table: what each row shows, and how it is drawn."""

    label: str
    estimate: str
    low: str
    high: str
    n: str | None
    told_apart: str | None
    category: str | None
    faint: str | None

    def select_rows(self, table: pl.DataFrame, details: tuple[str, ...], *, log: bool) -> pl.DataFrame:
        """Select and check the columns that the chart draws."""
        values, flags = [self.estimate, self.low, self.high], [self.told_apart, self.faint]
        texts = [self.label, self.category]
        frame = select_columns(table, "forest", texts=texts, numbers=[*values, self.n], flags=flags, details=details)
        check_row_count(frame, "forest", MAX_FOREST_ROWS, "draw the rows that matter: table.head(40)")
        check_unique(frame, "forest", [self.label])
        if log:
            check_positive(frame, "forest", values)
        return frame

    def format_legend(self, frame: pl.DataFrame, comparisons: int | None) -> str:
        """Explain what hollow and lighter marks mean."""
        hollow = "hollow: no clear difference"
        if comparisons is not None:
            hollow = f"hollow: not proven after correction for {comparisons} comparisons"
        return join_sentences(
            hollow if self.told_apart else "",
            "pale: few samples" if self.faint and frame.get_column(self.faint).any() else "",
            "n at the right" if self.n else "",
        )

    def list_hidden_columns(self) -> tuple[str, ...]:
        """Columns that the tooltip leaves out, since the drawing or the category shows them."""
        return tuple(name for name in (self.told_apart if self.category else None, self.faint) if name)

    def encode_spans(self, frame: pl.DataFrame) -> dict[str, Any]:
        """Encodings of the intervals."""
        shade = self._encode_category(frame, "Color") or self._choose_accent(COLOURS["baseline"])
        return {"color": shade} | self._encode_opacity()

    def encode_dots(self, frame: pl.DataFrame) -> dict[str, Any]:
        """Encodings of the dots, hollow where the figure does not differ from the reference."""
        fill, stroke = self._encode_category(frame, "Fill"), self._encode_category(frame, "Stroke")
        if fill is None:
            return {
                "stroke": self._choose_accent(COLOURS["baseline"]),
                "fill": self._choose_accent("transparent"),
            } | self._encode_opacity()
        return {"stroke": stroke, "fill": fill} | self._encode_hollow() | self._encode_opacity()

    def _encode_category(self, frame: pl.DataFrame, channel: str) -> Any:
        """Encoding of the category on an Altair channel, such as `Color`; null if there is none."""
        import altair as alt

        names = list_categories(frame, self.category) if self.category else []
        if not self.category or not names:
            return None
        scale = alt.Scale(domain=names, range=assign_colours(names))
        # Vega merges the legends of the three channels into one; hiding any hides all.
        return getattr(alt, channel)(self.category, type="nominal", title=None, scale=scale)

    def _choose_accent(self, otherwise: str) -> Any:
        import altair as alt

        accent = alt.value(COLOURS["accent"])
        return alt.condition(f"datum.{self.told_apart}", accent, alt.value(otherwise)) if self.told_apart else accent

    def _encode_hollow(self) -> dict[str, Any]:
        import altair as alt

        hollow = alt.condition(f"datum.{self.told_apart}", alt.value(1), alt.value(0))
        return {"fillOpacity": hollow} if self.told_apart else {}

    def _encode_opacity(self) -> dict[str, Any]:
        import altair as alt

        # Of the whole mark: a hollow dot's rim fades with its interval.
        faded = alt.condition(f"datum.{self.faint}", alt.value(FAINT), alt.value(1))
        return {"opacity": faded} if self.faint else {}


def _build_layers(frame: pl.DataFrame, columns: _ForestColumns, reference: float | None, *, log: bool) -> list[Any]:
    """Layers of the forest: reference line, intervals, estimates and counts, one line for each row of `frame`."""
    import altair as alt

    estimate, low, high = columns.estimate, columns.low, columns.high
    # Vega-Lite warns when a log axis is asked to include zero.
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=False, nice=False, padding=12)
    axis = build_log_axis(value for name in (estimate, low, high) for value in frame[name]) if log else alt.Undefined
    x = alt.X(estimate, type="quantitative", title=format_label(estimate), scale=scale, axis=axis)
    tips = encode_tooltip(frame, leave_out=columns.list_hidden_columns())
    base = alt.Chart(frame).encode(y=encode_rows(columns.label), tooltip=tips)
    spans = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})").mark_rule(strokeWidth=2)
    dots = base.mark_point(size=75, filled=True, opacity=1, strokeWidth=2)
    layers = [] if reference is None else [_build_reference_line(reference, estimate)]
    layers.append(spans.encode(x=alt.X(low, type="quantitative"), x2=alt.X2(high), **columns.encode_spans(frame)))
    layers.append(dots.encode(x=x, **columns.encode_dots(frame)))
    return [*layers, _build_count_labels(frame, columns.label, columns.n)] if columns.n else layers


def _build_reference_line(reference: float, estimate: str) -> Any:
    import altair as alt
    import polars as pl

    frame = pl.DataFrame({"reference": [float(reference)]})
    line = alt.Chart(frame).mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=COLOURS["baseline"])
    place = alt.X("reference", type="quantitative", title=format_label(estimate))
    return line.encode(x=place, tooltip=encode_tooltip(frame))


def _build_count_labels(frame: pl.DataFrame, label: str, n: str) -> Any:
    import altair as alt

    # Zooming clips marks to the plot; the counts stand beside it.
    text = alt.Chart(frame).mark_text(align="left", dx=10, clip=False, color=COLOURS["neutral"])
    return text.encode(
        y=encode_rows(label),
        x=alt.value("width"),
        text=alt.Text(n, type="quantitative", format=","),
        tooltip=encode_tooltip(frame),
    )
