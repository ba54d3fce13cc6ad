"""The same chart of several variants side by side, on shared axes with one legend; names at the ends of lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.charts.theme import WIDTH_PX

COLUMNS = 2
GAP_PX = 56
HEIGHT_PX = 180


def small_multiples(charts: Mapping[str, Any], *, columns: int = COLUMNS) -> Any:
    """The charts by the name of their variant, on shared axes; one chart alone is shown as it is, none is null.

    Each keeps its rows and text; title and the sentences below it are those that all have in common.
    """
    import altair as alt

    if len(charts) < 2:
        return next(iter(charts.values()), None)
    headings = [_read_heading(chart) for chart in charts.values()]
    title, subtitle = headings[0]
    common = [part for part in subtitle if all(part in others for _, others in headings)]
    across = min(columns, len(charts))
    size = {"width": (WIDTH_PX - GAP_PX * (across - 1)) // across, "height": HEIGHT_PX}
    views = [chart.properties(title=alt.TitleParams(text=name, fontSize=13), **size) for name, chart in charts.items()]
    texts = "\n".join(f"{name}: {chart.description}" for name, chart in charts.items())
    heading = alt.TitleParams(text=title, subtitle=" · ".join(common)) if common else alt.TitleParams(text=title)
    # Wide enough for the last label of an axis beside the next view.
    both = alt.concat(*views, columns=across, spacing=24).resolve_scale(x="shared", y="shared", color="shared")
    return both.properties(title=heading, description=texts)


def _read_heading(chart: Any) -> tuple[str, list[str]]:
    heading = chart.title.to_dict()
    subtitle = heading.get("subtitle", "")
    return heading["text"], (subtitle if isinstance(subtitle, str) else " ".join(subtitle)).split(" · ")


def spread_labels(values: Sequence[float], gap: float) -> list[float]:
    """Places of labels beside values, in their order, at least `gap` apart and as near as that allows.

    >>> spread_labels([1.0, 5.0, 1.2], 1.0)
    [0.6, 5.0, 1.6]
    """
    order = sorted(range(len(values)), key=lambda index: values[index])
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _find_ends(values, groups[-2], gap)[1] + gap > _find_ends(values, groups[-1], gap)[0]:
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [0.0] * len(values)
    for group in groups:
        low, _ = _find_ends(values, group, gap)
        for step, index in enumerate(group):
            places[index] = round(low + step * gap, 9)
    return places


def _find_ends(values: Sequence[float], group: Sequence[int], gap: float) -> tuple[float, float]:
    """Lowest and highest label of a group that is centred on the mean of its values."""
    middle = sum(values[index] for index in group) / len(group)
    half = gap * (len(group) - 1) / 2
    return middle - half, middle + half
