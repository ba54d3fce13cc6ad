"""A figure over the runs that measured it, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.charts.data import check_row_count, check_unique, format_missing_note, join_sentences, select_columns
from workbench.charts.theme import COLOURS, encode_tooltip, finish_chart
from workbench.core.formats import format_label
from workbench.core.frames import takes_frames

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

MAX_RUNS = 200


@takes_frames
def course(
    table: pl.DataFrame,
    *,
    title: str,
    run: str,
    value: str,
    low: str,
    high: str,
    told_apart: str,
    details: tuple[str, ...] = (),
    subtitle: str = "",
) -> alt.Chart:
    """How did a figure go from run to run, and where did it move?

    Parameters
    ----------
    table
        One row per run in their order, at most 200.
    run, value, low, high
        Columns: name of the run; its figure; ends of its interval (null: no interval, only the dot is drawn).
    told_apart
        Boolean column: does the run differ from the one before it? Others are hollow.
    details
        More columns for the tooltip.

    Raises
    ------
    InputError
        Columns missing or of another type, a run twice, too many rows.

    Notes
    -----
    The line only joins the runs, which are evenly spaced whatever the time between them. The axis need not begin at 0.
    """
    import altair as alt
    import polars as pl

    frame = select_columns(
        table, "course", texts=[run], numbers=[value, low, high], flags=[told_apart], details=details
    )
    check_unique(check_row_count(frame, "course", MAX_RUNS, "draw fewer runs"), "course", [run])
    drawn = frame.filter(pl.col(value).is_not_null())
    x = alt.X(run, type="nominal", sort=None, title=None, axis=alt.Axis(labelAngle=-40, labelLimit=140, grid=False))
    scale = alt.Scale(zero=False, padding=12)
    y = alt.Y(value, type="quantitative", title=format_label(value), scale=scale, axis=alt.Axis(tickCount=5))
    base = alt.Chart(drawn).encode(x=x, tooltip=encode_tooltip(drawn), color=alt.value(COLOURS["accent"]))
    spans = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})").mark_rule(
        strokeWidth=7, strokeCap="round", opacity=0.3
    )
    dots = base.mark_point(size=70, opacity=1, strokeWidth=2).encode(
        y=y,
        fill=alt.when(f"datum.{told_apart}").then(alt.value(COLOURS["accent"])).otherwise(alt.value("transparent")),
    )
    layers = [
        spans.encode(y=alt.Y(low, type="quantitative", scale=scale), y2=alt.Y2(high)),
        base.mark_line(strokeWidth=1.5, opacity=0.6).encode(y=y),
        dots,
    ]
    legend = "filled: clearly different from the run before" if drawn[told_apart].any() else ""
    note = join_sentences(subtitle, legend, format_missing_note(frame.height - drawn.height, "run"))
    return finish_chart(alt.layer(*layers), title, note, frame, height=180)
