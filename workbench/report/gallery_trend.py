"""Trend of a notebook's key number over its runs, as a small line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from workbench.core.formats import escape_html, format_number

WIDTH, HEIGHT, MARGIN = 120.0, 28.0, 4.0
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
Figure = tuple[str, float]


def find_key_figure(numbers: object) -> Figure | None:
    """Label and value of the first key number of a headline; null where that is no number.

    >>> find_key_figure([{"label": "GPUs", "value": "1,024"}])
    ('GPUs', 1024.0)
    >>> find_key_figure([{"label": "stack", "value": "numpy 2"}]), find_key_figure(None)
    (None, None)
    """
    first = numbers[0] if isinstance(numbers, list) and numbers else None
    if not isinstance(first, dict):
        return None
    text = str(first.get("value", "")).replace(",", "").replace("\u2212", "-").strip()
    return (str(first.get("label", "")), float(text)) if _NUMBER.fullmatch(text) else None


def render_trend(figures: Sequence[Figure | None]) -> str:
    """The newest run's key number over the runs, oldest first, as HTML; "" with fewer than two.

    Runs whose first key number has another label, or none, are left out. The line says nothing about noise: runs with
    intervals are compared by `workbench runs diff`.
    """
    newest = figures[-1] if figures else None
    values = [figure[1] for figure in figures if figure and newest and figure[0] == newest[0]]
    if newest is None or len(values) < 2:
        return ""
    low, high = min(values), max(values)
    step = (WIDTH - 2 * MARGIN) / (len(values) - 1)
    middle, span = HEIGHT / 2, HEIGHT - 2 * MARGIN
    heights = [middle if high == low else MARGIN + span * (high - value) / (high - low) for value in values]
    points = [(MARGIN + index * step, height) for index, height in enumerate(heights)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    words = escape_html(f"{newest[0]} over {len(values)} runs: " + ", ".join(map(format_number, values)))
    last_x, last_y = points[-1]
    return (
        f'<p class="trend"><svg role="img" aria-label="{words}" width="{WIDTH:.0f}" height="{HEIGHT:.0f}" '
        f'viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}"><title>{words}</title><polyline points="{path}"/>'
        f'<circle cx="{last_x:.1f}" cy="{last_y:.1f}" r="3"/></svg>'
        f"<span>{escape_html(newest[0])} {_describe_change(values)}</span></p>"
    )


def _describe_change(values: Sequence[float]) -> str:
    """The last value and the one before it."""
    before, now = list(pairwise(values))[-1]
    return f"{format_number(now)}, before {format_number(before)}"
