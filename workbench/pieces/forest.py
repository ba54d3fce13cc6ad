"""Which of these differ from the reference, and by how much: dots with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.chart_data import at_most, chosen, first_appearance, missing_note, positive, sentences, unique
from workbench.formats import label_of
from workbench.pieces.encodings import ROW_PX, finish, rows, tooltip, zoomable
from workbench.theme import COLOURS, category_colours

LIMIT_ROWS = 200
FAINT = 0.45

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
    category: str | None = None,
    faint: str | None = None,
    details: tuple[str, ...] = (),
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

    Raises
    ------
    InputError
        Columns missing or of another type, labels twice, too many rows, values <= 0 on a log axis.

    Notes
    -----
    Does not show whether the rows differ from each other.
    """
    import polars as pl

    numeric = [name for name in details if name in table.columns and table.schema[name].is_numeric()]
    texts = [label, category, *(name for name in details if name not in numeric)]
    numbers = [estimate, low, high, n, *numeric]
    frame = chosen(table, "forest", texts=texts, numbers=numbers, flags=[told_apart, faint])
    at_most(frame, "forest", LIMIT_ROWS, "draw the rows that matter: table.head(40)")
    unique(frame, "forest", [label])
    if log:
        positive(frame, "forest", [estimate, low, high])
    drawn = frame.filter(pl.col(estimate).is_not_null())
    layers = _marks(drawn, label, estimate, low, high, _Look(told_apart, category, faint), log=log)
    if reference is not None:
        layers.insert(0, _reference_line(reference, estimate))
    if n:
        layers.append(_counts(drawn, label, n))
    told = sentences(
        subtitle,
        ("hollow: undecided" if category else "hollow: not told apart") if told_apart else "",
        "lighter: little is known" if faint and drawn.get_column(faint).any() else "",
        "n at the right" if n else "",
        missing_note(frame.height - drawn.height),
    )
    return finish(zoomable(layers, ["x"]), title, told, frame, height=max(60, ROW_PX * drawn.height))


@dataclass(frozen=True)
class _Look:
    """Which columns say how a row is drawn."""

    told_apart: str | None
    category: str | None
    faint: str | None

    def hides(self) -> tuple[str, ...]:
        """Columns that need no words in the tooltip: the drawing and the category tell them."""
        return tuple(name for name in (self.told_apart if self.category else None, self.faint) if name)

    def spans(self, frame: pl.DataFrame) -> dict[str, Any]:
        """Encodings of the intervals."""
        shade = self._category(frame, "Color") or self._accent(COLOURS["baseline"])
        return {"color": shade} | self._opacity()

    def dots(self, frame: pl.DataFrame) -> dict[str, Any]:
        """Encodings of the dots, which are hollow where nothing is told apart."""
        fill, stroke = self._category(frame, "Fill"), self._category(frame, "Stroke")
        if fill is None:
            return {"stroke": self._accent(COLOURS["baseline"]), "fill": self._accent("transparent")} | self._opacity()
        return {"stroke": stroke, "fill": fill} | self._hollow() | self._opacity()

    def _category(self, frame: pl.DataFrame, channel: str) -> Any:
        import altair as alt

        names = first_appearance(frame, self.category) if self.category else []
        if not self.category or not names:
            return None
        scale = alt.Scale(domain=names, range=category_colours(names))
        # Vega merges the legends of the three channels into one; hiding any hides all.
        return getattr(alt, channel)(self.category, type="nominal", title=None, scale=scale)

    def _accent(self, otherwise: str) -> Any:
        import altair as alt

        accent = alt.value(COLOURS["accent"])
        return alt.condition(f"datum.{self.told_apart}", accent, alt.value(otherwise)) if self.told_apart else accent

    def _hollow(self) -> dict[str, Any]:
        import altair as alt

        hollow = alt.condition(f"datum.{self.told_apart}", alt.value(1), alt.value(0))
        return {"fillOpacity": hollow} if self.told_apart else {}

    def _opacity(self) -> dict[str, Any]:
        import altair as alt

        # Of the whole mark: a hollow dot's rim fades with its interval.
        faded = alt.condition(f"datum.{self.faint}", alt.value(FAINT), alt.value(1))
        return {"opacity": faded} if self.faint else {}


def _marks(frame: pl.DataFrame, label: str, estimate: str, low: str, high: str, look: _Look, *, log: bool) -> list[Any]:
    import altair as alt

    # A log axis takes no zero, and Vega-Lite warns of each that is told so.
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=False, nice=False, padding=12)
    x = alt.X(estimate, type="quantitative", title=label_of(estimate), scale=scale)
    base = alt.Chart(frame).encode(y=rows(label), tooltip=tooltip(frame, leave_out=look.hides()))
    spans = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})").mark_rule(strokeWidth=2)
    dots = base.mark_point(size=75, filled=True, opacity=1, strokeWidth=2)
    return [
        spans.encode(x=alt.X(low, type="quantitative"), x2=alt.X2(high), **look.spans(frame)),
        dots.encode(x=x, **look.dots(frame)),
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
