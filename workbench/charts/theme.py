"""Look of all charts: colours by meaning, light and dark theme, shared encodings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from workbench.charts.data import describe_table, list_categories
from workbench.core.formats import find_unit, format_label, format_number

if TYPE_CHECKING:
    import polars as pl

COLOURS = {
    "baseline": "#808894",
    "cpu": "#C4871F",
    "accelerator": "#1F66C8",
    "failure": "#C0283F",
    "neutral": "#808894",
    "accent": "#466491",
}
"""Colour per meaning; `neutral` is what needs no attention, `accent` a single series without a meaning of its own."""

MEANINGS = {
    "baseline": "baseline",
    "reference": "baseline",
    "cpu": "cpu",
    "accelerator": "accelerator",
    "gpu": "accelerator",
    "failure": "failure",
    "failed": "failure",
    "error": "failure",
    "slower": "failure",
    "faster": "accelerator",
    "other": "neutral",
    "total": "accent",
    "undecided": "neutral",
    "same": "neutral",
}
"""Category names (lower case) that have a meaning, and so its colour in every chart."""

CATEGORIES = ["#1F66C8", "#C4871F", "#1B1B85", "#85402E", "#8F6A94", "#26122E", "#60204A", "#808894"]
"""Colours of categories without a meaning, in the order of their first appearance.

Neighbours differ in lightness as well as in hue: they stay apart for people who do not see red, green or blue.
"""

ON_DARK = {
    "#466491": "#82A6DB",
    "#C0283F": "#CF3350",
    "#1F66C8": "#4A8BE6",
    "#C4871F": "#E2A23C",
    "#1B1B85": "#DDE6FF",
    "#85402E": "#B04A2C",
    "#8F6A94": "#A08CA2",
    "#26122E": "#7B5685",
    "#60204A": "#F9D006",
}
"""Colours of a dark page for those that would be dim or too close there."""

PAGE = {"light": "#ffffff", "dark": "#12161c"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
RAMP = {
    "light": ["#eef3f9", "#c3d5ea", "#8db0d8", "#5487c2", "#2a5f9f", "#173e70"],
    "dark": ["#1d2836", "#234468", "#2f659d", "#4a8bd0", "#83b4ea", "#cfe2f8"],
}
_INK = {
    "light": {"text": "#1b222c", "muted": "#5a6573", "grid": "#e4e8ed", "line": "#b4bcc7"},
    "dark": {"text": "#e6eaf0", "muted": "#9aa6b5", "grid": "#262e39", "line": "#4a5563"},
}
_AXIS = {
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "titlePadding": 8,
    "labelPadding": 4,
    "labelSeparation": 8,
    "ticks": False,
    "domain": False,
    "gridDash": [],
}
_LEGEND = {
    "orient": "top",
    "direction": "horizontal",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "symbolSize": 90,
    "symbolStrokeWidth": 0,
    "symbolOpacity": 1,
    "labelLimit": 200,
    "offset": 8,
}
_TITLE = {
    "anchor": "start",
    "frame": "group",
    "fontSize": 15,
    "fontWeight": 600,
    "subtitleFontSize": 12,
    "subtitlePadding": 4,
    "offset": 12,
}
DASHES = [[1, 0], [7, 3], [2, 2], [10, 3, 2, 3], [4, 2], [1, 3]]
WIDTH_PX = 640
ROW_PX = 24
# From here on dark letters stand out more than white ones.
INK_LUMINANCE = 0.18


def find_colour(category: str) -> str | None:
    """The colour of a category that has a meaning, else null.

    >>> find_colour("GPU") == COLOURS["accelerator"], find_colour("Sort")
    (True, None)
    """
    meaning = MEANINGS.get(category.lower())
    return COLOURS[meaning] if meaning else None


def assign_colours(categories: list[str]) -> list[str]:
    """A colour for each category: by meaning where it has one, else the next free one of `CATEGORIES`."""
    free = [colour for colour in CATEGORIES if colour not in {find_colour(name) for name in categories}]
    colours: list[str] = []
    used = 0
    for name in categories:
        meant = find_colour(name)
        colours.append(meant or free[used % len(free)])
        used += meant is None
    return colours


def build_vega_config(mode: str = "light") -> dict[str, Any]:
    """Vega-Lite's `config` for a light or a dark page (the page lays the dark one over the chart's own)."""
    ink = _INK[mode]
    axis = {
        "labelColor": ink["muted"],
        "titleColor": ink["muted"],
        "gridColor": ink["grid"],
        "domainColor": ink["line"],
        "tickColor": ink["line"],
    }
    legend = {"labelColor": ink["text"], "titleColor": ink["muted"]}
    title = {"color": ink["text"], "subtitleColor": ink["muted"]}
    return {
        "background": PAGE["light"] if mode == "light" else "transparent",
        "font": FONT,
        "axis": axis | _AXIS,
        "axisY": {"labelLimit": 220},
        "legend": legend | _LEGEND,
        "title": title | _TITLE,
        "header": {"labelColor": ink["text"], "titleColor": ink["muted"]},
        "view": {"stroke": None},
        "text": {"color": ink["text"], "fontSize": 12},
        "rule": {"color": ink["muted"]},
        "range": {"category": CATEGORIES, "ramp": RAMP[mode], "heatmap": RAMP[mode]},
        **{mark: {"color": COLOURS["accent"]} for mark in ("bar", "line", "area", "point", "circle", "square", "tick")},
    }


def enable_theme() -> None:
    """Make this the theme of every Altair chart from here on."""
    import altair as alt

    alt.theme.register("workbench", enable=True)(_build_theme)


def _build_theme() -> Any:
    return {"config": build_vega_config(), "padding": 6}


def encode_rows(label: str) -> Any:
    """Names down the left, in the order of the table."""
    import altair as alt

    return alt.Y(label, type="nominal", sort=None, title=None, axis=alt.Axis(grid=False, labelPadding=8))


def encode_colour(frame: pl.DataFrame, column: str | None) -> dict[str, Any]:
    """Colour encoding of a category, in all charts one colour for one meaning; the accent without a column.

    >>> import polars as pl
    >>> encode_colour(pl.DataFrame({"side": ["gpu"]}), None)["color"] == {"value": COLOURS["accent"]}
    True
    """
    import altair as alt

    names = list_categories(frame, column) if column else []
    # An empty legend gives the drawing no size at all.
    if not column or not names:
        return {"color": alt.value(COLOURS["accent"])}
    scale = alt.Scale(domain=names, range=assign_colours(names))
    return {"color": alt.Color(column, type="nominal", title=None, scale=scale)}


def build_ink_expression(colour: str, valid: str = "true") -> str:
    """Vega expression for the colour of a text on a mark of this colour, readable on light and dark ones alike.

    `colour`: Vega expression of the mark's colour. `valid`: Expression: is there a mark?
    """
    return f"!({valid}) ? '#808894' : luminance({colour}) > {INK_LUMINANCE} ? '#10151c' : '#ffffff'"


def encode_series(
    frame: pl.DataFrame, column: str, names: list[str] | None = None, *, legend: bool = True
) -> dict[str, Any]:
    """Colour and dash of a line for each category, so that they are told apart without colours, too.

    `names`: The categories in the order of their looks, where a frame may lack some. Without `legend` they are to be
    named beside their lines.
    """
    import altair as alt

    names = names or list_categories(frame, column)
    if not names:
        return encode_colour(frame, None)
    keys = alt.Legend(symbolType="stroke", symbolStrokeWidth=3, symbolSize=300) if legend else None
    shades = alt.Scale(domain=names, range=assign_colours(names))
    dashes = alt.Scale(domain=names, range=[DASHES[place % len(DASHES)] for place in range(len(names))])
    return {
        "color": alt.Color(column, type="nominal", title=None, scale=shades, legend=keys),
        "strokeDash": alt.StrokeDash(column, type="nominal", title=None, scale=dashes, legend=keys),
    }


def encode_tooltip(
    frame: pl.DataFrame, formats: dict[str, str] | None = None, *, leave_out: tuple[str, ...] = ()
) -> list[Any]:
    """Build a tooltip for every column of the frame, with its unit, and floats with four digits.

    `formats`: Number formats by column that differ from this. `leave_out`: Columns without a tooltip.

    >>> import polars as pl
    >>> [tip.to_dict() for tip in encode_tooltip(pl.DataFrame({"wall_s": [1.5]}))]
    [{'field': 'wall_s', 'format': ',.4~g', 'title': 'wall (s)', 'type': 'quantitative'}]
    """
    import altair as alt

    tips = []
    for name, dtype in frame.schema.items():
        if name in leave_out:
            continue
        numeric = dtype.is_numeric()
        default = ",.4~g" if dtype.is_float() else ","
        text = {"format": (formats or {}).get(name, default)} if numeric else {}
        tips.append(alt.Tooltip(name, type="quantitative" if numeric else "nominal", title=format_label(name), **text))
    return tips


def short_number_expression(value: str, digits: int = 3) -> str:
    """Vega expression that formats a number: SI letters from 1,000 on, and never milli for a fraction of a second.

    `value`: Vega expression of the number. `digits`: Significant digits.
    """
    return f"abs({value}) >= 1000 ? format({value}, '.{digits}~s') : format({value}, '.{digits}~g')"


def list_round_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: at 1, 2 and 5 of each power of ten, with three more within two decades.

    >>> list_round_ticks(0.3, 400)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]
    >>> list_round_ticks(0.6, 1.8)
    [0.7, 1.0, 1.5]
    """
    steps = (1, 2, 5) if high / low > 100 else (1, 1.5, 2, 3, 5, 7)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
    return [value for value in values if low <= value <= high]


def build_log_axis(values: Iterable[float | None], **look: Any) -> Any:
    """The axis of a logarithmic scale over these values, its ticks at round numbers.

    Left to itself, a log axis of one decade or two labels some of its ticks, and not the round ones. Where the values
    are so close that fewer than three round numbers lie between them, it is left to itself.
    """
    import altair as alt

    numbers = [value for value in values if value is not None and 0 < value < math.inf]
    ticks = list_round_ticks(min(numbers), max(numbers)) if numbers else []
    at = {"values": ticks} if len(ticks) > 2 else {"tickCount": 6}
    return alt.Axis(**({"labelExpr": short_number_expression("datum.value")} | at | look))


def build_limit_line(slo: float, value: str, *, axis: Literal["x", "y"]) -> list[Any]:
    """A limit as a dashed line with its figure."""
    import altair as alt
    import polars as pl

    words = f"SLO {format_number(float(slo))} {find_unit(value)}".strip()
    frame = pl.DataFrame({value: [float(slo)], "limit": [words]})
    place: Any = alt.X(value, type="quantitative") if axis == "x" else alt.Y(value, type="quantitative")
    base = alt.Chart(frame).encode(**{axis: place}, tooltip=encode_tooltip(frame))
    rule = base.mark_rule(color=COLOURS["failure"], strokeDash=[6, 3], strokeWidth=1.5)
    corner: dict[str, Any] = {"y": alt.value("height")} if axis == "x" else {"x": alt.value(0)}
    text = base.mark_text(color=COLOURS["failure"], align="left", dx=6, dy=-9)
    return [rule, text.encode(text=alt.Text("limit", type="nominal"), **corner)]


def mark_intervals(base: Any, low: str, high: str, axis: Literal["x", "y"], **look: Any) -> Any:
    """Bars of the intervals of a chart's rows; a row without both ends has none.

    `low`, `high`: Columns with the ends. `look`: Properties of the bars.
    """
    import altair as alt

    ends: dict[str, Any] = {"y": alt.Y(low, type="quantitative"), "y2": alt.Y2(high)}
    if axis == "x":
        ends = {"x": alt.X(low, type="quantitative"), "x2": alt.X2(high)}
    rows = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
    return rows.mark_rule(**look).encode(**ends)


def make_zoomable(layers: list[Any], encodings: list[Literal["x", "y"]]) -> Any:
    """Join the layers to one chart that is moved by dragging and zoomed by the wheel."""
    import altair as alt

    return alt.layer(*layers).add_params(alt.selection_interval(bind="scales", encodings=encodings))


def finish_chart(chart: Any, title: str, subtitle: str, frame: pl.DataFrame, *, height: Any) -> Any:
    """Add to a chart its title, its size, and the text alternative computed from the frame that is drawn."""
    import altair as alt

    heading = alt.TitleParams(text=title, subtitle=subtitle) if subtitle else alt.TitleParams(text=title)
    return chart.properties(
        title=heading, description=describe_table(title, frame, subtitle=subtitle), width=WIDTH_PX, height=height
    )
