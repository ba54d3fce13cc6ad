"""Scatter plot of two figures of the same unit, with the diagonal and intervals."""

from __future__ import annotations

import json
import math
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
    build_log_axis,
    encode_colour,
    encode_tooltip,
    finish_chart,
    make_zoomable,
    short_number_expression,
)
from workbench.core.errors import InputError
from workbench.core.formats import format_label
from workbench.core.frames import takes_frames

MAX_POINTS = 2_000
# Room that a name takes, as a share of the axes.
NAME_WIDTH, NAME_HEIGHT = 0.07, 0.05
_ABOVE, _BELOW = {"align": "right", "dx": -8, "dy": -5}, {"align": "left", "dx": 8, "dy": 6}
SHAPES = ["circle", "diamond", "square", "triangle-up", "cross"]

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


@takes_frames
def scatter(
    table: pl.DataFrame,
    *,
    title: str,
    x: str,
    y: str,
    label: str,
    low: str | None = None,
    high: str | None = None,
    group: str | None = None,
    hidden: tuple[str, ...] = (),
    named: str | None = None,
    log: bool = True,
    details: tuple[str, ...] = (),
    subtitle: str = "",
) -> alt.Chart:
    """How far is one figure from the other? Points beside the diagonal on which both are equal.

    `table`: One row per point, at most 2,000; rows without `x` or `y` are counted, not drawn.
    `low`, `high`: Columns with the ends of the interval of `y` (null: none for this point).
    `group`, `hidden`: Column that gives colour and shape (at most 5 groups); groups that are only drawn once they are
    ticked.

    Does not show whether the points above the diagonal outweigh those below.
    """
    numbers = [x, y, low, high]
    frame = select_columns(table, "scatter", texts=[label, group], numbers=numbers, flags=[named], details=details)
    check_row_count(frame, "scatter", MAX_POINTS, "draw a sample, or group the rows")
    check_unique(frame, "scatter", [name for name in (group, label) if name])
    if log:
        check_positive(frame, "scatter", numbers)
    groups = list_categories(frame, group) if group else []
    if len(groups) > len(SHAPES):
        raise InputError("too many groups for the chart scatter", found=len(groups), allowed=f"at most {len(SHAPES)}")
    drawn = frame.drop_nulls([x, y])
    layers, switches = _build_layers(drawn, x, y, label, low, high, group, hidden, named, log=log)
    missing = format_missing_note(frame.height - drawn.height, "point")
    note = join_sentences(subtitle, "dashed: both equal" if drawn.height else "", missing)
    chart = make_zoomable(layers, ["x", "y"])
    return finish_chart(chart.add_params(*switches) if switches else chart, title, note, frame, height=400)


def _build_layers(
    frame: pl.DataFrame,
    x: str,
    y: str,
    label: str,
    low: str | None,
    high: str | None,
    group: str | None,
    hidden: tuple[str, ...],
    named: str | None,
    *,
    log: bool,
) -> tuple[list[Any], list[Any]]:
    """Layers of the scatter plot with equal axes: diagonal, intervals, points, and names of rows where `named` holds.

    Returns: The layers, and the parameters of the switches that hide groups.
    """
    import altair as alt
    import polars as pl

    domain = _compute_domain(frame, [x, y, low, high], log=log)
    if not log or not domain:
        axis = alt.Axis(tickCount=6, labelExpr=short_number_expression("datum.value"))
    else:
        axis = build_log_axis(domain)
    kind: dict[str, Any] = {"type": "log"} if log else {"zero": False}
    scale = alt.Scale(nice=False, **kind, **({"domain": domain} if domain else {}))
    shared = {
        "type": "quantitative",
        "scale": scale,
        "axis": axis,
    }
    across, up = alt.X(x, title=format_label(x), **shared), alt.Y(y, title=format_label(y), **shared)
    switches, tests = _build_switches(frame, group, hidden)

    def build_layer(rows: pl.DataFrame) -> Any:
        chart = alt.Chart(rows)
        for test in tests:
            chart = chart.transform_filter(test)
        return chart.encode(x=across, tooltip=encode_tooltip(rows, leave_out=(named,) if named else ()))

    shades = encode_colour(frame, group)
    layers = [_build_diagonal(domain, x, y)] if domain else []
    base = build_layer(frame)
    if low and high:
        interval_base = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        spans = interval_base.mark_rule(strokeWidth=3, strokeCap="round", opacity=0.35, clip=True)
        layers.append(spans.encode(y=alt.Y(low, type="quantitative"), y2=alt.Y2(high), **shades))
    layers.append(
        base.mark_point(size=64, filled=True, opacity=1).encode(y=up, **shades, **_encode_shape(frame, group))
    )
    if named:
        # Away from the diagonal there is room.
        named_points = _select_uncovered_names(frame.filter(pl.col(named)), x, y, domain, log=log)
        for above, place in ((True, _ABOVE), (False, _BELOW)):
            side = (pl.col(y) >= pl.col(x)) == above
            words = build_layer(named_points.filter(side)).mark_text(**place)
            layers.append(words.encode(y=up, text=alt.Text(label, type="nominal")))
    return layers, switches


def _select_uncovered_names(frame: pl.DataFrame, x: str, y: str, domain: list[float], *, log: bool) -> pl.DataFrame:
    """Select the points whose names cover no other, farthest from the diagonal first."""
    import polars as pl

    first, second = (pl.col(name).log() if log else pl.col(name) for name in (x, y))
    span = (math.log(domain[1] / domain[0]) if log else domain[1] - domain[0]) if domain else 1.0
    ranked = frame.with_columns(at_x=first / span, at_y=second / span).sort((first - second).abs(), descending=True)
    indexes: list[int] = []
    places = list(ranked.select("at_x", "at_y").iter_rows())
    for number, (here, up) in enumerate(places):
        if all(
            abs(here - places[index][0]) > NAME_WIDTH or abs(up - places[index][1]) > NAME_HEIGHT for index in indexes
        ):
            indexes.append(number)
    return ranked[indexes].drop("at_x", "at_y")


def _build_switches(frame: pl.DataFrame, group: str | None, hidden: tuple[str, ...]) -> tuple[list[Any], list[str]]:
    """Build a tick box for each hidden group that exists, and the test that its points pass once it is ticked."""
    import altair as alt

    there = [name for name in (list_categories(frame, group) if group else []) if name in hidden]
    switches = [alt.param(value=False, bind=alt.binding_checkbox(name=f"Show {name} ")) for name in there]
    tests = [
        f"datum.{group} != {json.dumps(name)} || {switch.name}" for name, switch in zip(there, switches, strict=True)
    ]
    return switches, tests


def _encode_shape(frame: pl.DataFrame, group: str | None) -> dict[str, Any]:
    import altair as alt

    names = list_categories(frame, group) if group else []
    if not group or not names:
        return {}
    # Colour alone would not tell groups apart for every reader.
    scale = alt.Scale(domain=names, range=SHAPES[: len(names)])
    return {"shape": alt.Shape(group, type="nominal", title=None, scale=scale)}


def _compute_domain(frame: pl.DataFrame, columns: list[str | None], *, log: bool) -> list[float]:
    """Range of values for both axes, so that the diagonal means the same everywhere; empty without values."""
    values = [float(value) for name in columns if name for value in frame.get_column(name).drop_nulls().to_list()]
    if not values:
        return []
    low, high = min(values), max(values)
    if log:
        room = 1.0 + 0.06 * max(math.log(high / low), 1.0)
        return [low / room, high * room]
    room = 0.05 * ((high - low) or 1.0)
    return [low - room, high + room]


def _build_diagonal(domain: list[float], x: str, y: str) -> Any:
    import altair as alt
    import polars as pl

    frame = pl.DataFrame({x: domain, y: domain})
    line = alt.Chart(frame).mark_line(strokeDash=[4, 3], strokeWidth=1.5, color=COLOURS["baseline"], clip=True)
    return line.encode(x=alt.X(x, type="quantitative"), y=alt.Y(y, type="quantitative"))
