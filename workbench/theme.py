"""The look of every chart: one colour per meaning, one theme, light for the notebook and a dark set for the page.

The colours stand on white and on the dark page alike, so a chart keeps its meaning when the page changes; a test
holds their contrast and their distance for readers who see red and green, or blue and yellow, as one.
"""

from __future__ import annotations

from typing import Any

COLOURS = {
    "baseline": "#808894",
    "cpu": "#C27A12",
    "accelerator": "#2F7DE1",
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
    "undecided": "neutral",
    "same": "neutral",
}
"""Category names (lower case) that have a meaning, and so its colour in every chart."""

CATEGORIES = ["#466491", "#914691", "#187F77", "#A8641E", "#5B78C7", "#B34B6E", "#6B7A2E", "#808894"]
"""Colours of categories without a meaning, in the order of their first appearance."""

ON_DARK = {"#466491": "#82A6DB", "#C0283F": "#CF3350", "#914691": "#BF7BC0", "#187F77": "#35AFA4"}
"""What a dark page draws instead of the colours that would be dim there; every meaning keeps its hue."""

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


def colour_of(category: str) -> str | None:
    """The colour of a category that has a meaning, else null.

    Examples
    --------
    >>> colour_of("GPU") == COLOURS["accelerator"], colour_of("Sort")
    (True, None)
    """
    meaning = MEANINGS.get(category.lower())
    return COLOURS[meaning] if meaning else None


def category_colours(categories: list[str]) -> list[str]:
    """A colour for each category: by meaning where it has one, else the next free one of `CATEGORIES`."""
    free = [colour for colour in CATEGORIES if colour not in {colour_of(name) for name in categories}]
    colours: list[str] = []
    used = 0
    for name in categories:
        meant = colour_of(name)
        colours.append(meant or free[used % len(free)])
        used += meant is None
    return colours


def config(mode: str = "light") -> dict[str, Any]:
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
        "view": {"stroke": None},
        "text": {"color": ink["text"], "fontSize": 12},
        "rule": {"color": ink["muted"]},
        "range": {"category": CATEGORIES, "ramp": RAMP[mode], "heatmap": RAMP[mode]},
        **{mark: {"color": COLOURS["accent"]} for mark in ("bar", "line", "area", "point", "circle", "square", "tick")},
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


def enable() -> None:
    """Make this the theme of every Altair chart from here on."""
    import altair as alt

    alt.theme.register("workbench", enable=True)(_theme)


def _theme() -> Any:
    return {"config": config(), "padding": 6}
