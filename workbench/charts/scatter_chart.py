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
    mark_intervals,
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
    import altair as alt
    import polars as pl

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
    domain = _compute_domain(drawn, [x, y, low, high], log=log)
    axis = alt.Axis(tickCount=6, labelExpr=short_number_expression("datum.value"))
    axis = build_log_axis(domain) if log and domain else axis
    kind: dict[str, Any] = ({"type": "log"} if log else {"zero": False}) | ({"domain": domain} if domain else {})
    shared = {"type": "quantitative", "scale": alt.Scale(nice=False, **kind), "axis": axis}
    across, up = alt.X(x, title=format_label(x), **shared), alt.Y(y, title=format_label(y), **shared)
    # A tick box for each hidden group that is there: its points are drawn once it is ticked.
    ticked = {
        name: alt.param(value=False, bind=alt.binding_checkbox(name=f"Show {name} "))
        for name in groups
        if name in hidden
    }

    def build_base(rows: pl.DataFrame) -> Any:
        chart = alt.Chart(rows)
        for name, box in ticked.items():
            chart = chart.transform_filter(f"datum.{group} != {json.dumps(name)} || {box.name}")
        return chart.encode(x=across, tooltip=encode_tooltip(rows, leave_out=(named,) if named else ()))

    layers = []
    if domain:
        line = alt.Chart(pl.DataFrame({x: domain, y: domain}))
        line = line.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color=COLOURS["baseline"], clip=True)
        layers.append(line.encode(x=alt.X(x, type="quantitative"), y=alt.Y(y, type="quantitative")))
    base, shades = build_base(drawn), encode_colour(drawn, group)
    if low and high:
        look = {"strokeWidth": 3, "strokeCap": "round", "opacity": 0.35, "clip": True}
        layers.append(mark_intervals(base, low, high, "y", **look).encode(**shades))
    dots = base.mark_point(size=64, filled=True, opacity=1).encode(y=up, **shades)
    if group and (names := list_categories(drawn, group)):
        # Colour alone would not tell groups apart for every reader.
        scale = alt.Scale(domain=names, range=SHAPES[: len(names)])
        dots = dots.encode(shape=alt.Shape(group, type="nominal", title=None, scale=scale))
    layers.append(dots)
    if named:
        # Away from the diagonal there is room.
        named_points = _select_uncovered_names(drawn.filter(pl.col(named)), x, y, domain, log=log)
        for above, place in ((True, _ABOVE), (False, _BELOW)):
            words = build_base(named_points.filter((pl.col(y) >= pl.col(x)) == above)).mark_text(**place)
            layers.append(words.encode(y=up, text=alt.Text(label, type="nominal")))
    missing = format_missing_note(frame.height - drawn.height, "point")
    note = join_sentences(subtitle, "dashed: both equal" if drawn.height else "", missing)
    chart = make_zoomable(layers, ["x", "y"]).add_params(*ticked.values())
    return finish_chart(chart, title, note, frame, height=400)


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
