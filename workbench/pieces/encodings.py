"""Encodings that all pieces share: rows of names, colours by meaning, tooltips, limit lines, and the finish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from workbench.chart_data import first_appearance
from workbench.chart_text import table_text
from workbench.formats import label_of, number, unit_of
from workbench.theme import COLOURS, category_colours

WIDTH_PX = 640
ROW_PX = 24

if TYPE_CHECKING:
    import polars as pl


def rows(label: str) -> Any:
    """Names down the left, in the order of the table."""
    import altair as alt

    return alt.Y(label, type="nominal", sort=None, title=None, axis=alt.Axis(grid=False, labelPadding=8))


def colour(frame: pl.DataFrame, column: str | None) -> dict[str, Any]:
    """The colour encoding of a category, the same colour for the same meaning everywhere; the accent without one."""
    import altair as alt

    names = first_appearance(frame, column) if column else []
    # An empty legend gives the drawing no size at all.
    if not column or not names:
        return {"color": alt.value(COLOURS["accent"])}
    scale = alt.Scale(domain=names, range=category_colours(names))
    return {"color": alt.Color(column, type="nominal", title=None, scale=scale)}


def tooltip(
    frame: pl.DataFrame, formats: dict[str, str] | None = None, *, leave_out: tuple[str, ...] = ()
) -> list[Any]:
    """Every column of the frame, with its unit; floats with four digits."""
    import altair as alt

    tips = []
    for name, dtype in frame.schema.items():
        if name in leave_out:
            continue
        numeric = dtype.is_numeric()
        default = ",.4~g" if dtype.is_float() else ","
        text = {"format": (formats or {}).get(name, default)} if numeric else {}
        tips.append(alt.Tooltip(name, type="quantitative" if numeric else "nominal", title=label_of(name), **text))
    return tips


def short(value: str, digits: int = 3) -> str:
    """A Vega expression that writes a number shortly: SI letters from 1,000 on, and never milli for a second's part."""
    return f"abs({value}) >= 1000 ? format({value}, '.{digits}~s') : format({value}, '.{digits}~g')"


def limit_line(slo: float, value: str, *, axis: Literal["x", "y"]) -> list[Any]:
    """A limit as a dashed line with its figure."""
    import altair as alt
    import polars as pl

    words = f"SLO {number(float(slo))} {unit_of(value)}".strip()
    frame = pl.DataFrame({value: [float(slo)], "limit": [words]})
    place: Any = alt.X(value, type="quantitative") if axis == "x" else alt.Y(value, type="quantitative")
    base = alt.Chart(frame).encode(**{axis: place}, tooltip=tooltip(frame))
    rule = base.mark_rule(color=COLOURS["failure"], strokeDash=[6, 3], strokeWidth=1.5)
    corner: dict[str, Any] = {"y": alt.value("height")} if axis == "x" else {"x": alt.value(0)}
    text = base.mark_text(color=COLOURS["failure"], align="left", dx=6, dy=-9)
    return [rule, text.encode(text=alt.Text("limit", type="nominal"), **corner)]


def zoomable(layers: list[Any], encodings: list[Literal["x", "y"]]) -> Any:
    """The layers as one chart that is moved by dragging and zoomed by the wheel."""
    import altair as alt

    return alt.layer(*layers).add_params(alt.selection_interval(bind="scales", encodings=encodings))


def finish(chart: Any, title: str, subtitle: str, frame: pl.DataFrame, *, height: Any) -> Any:
    """Title, size, and the text alternative computed from the frame that is drawn."""
    import altair as alt

    heading = alt.TitleParams(text=title, subtitle=subtitle) if subtitle else alt.TitleParams(text=title)
    return chart.properties(
        title=heading, description=table_text(title, frame, subtitle=subtitle), width=WIDTH_PX, height=height
    )
