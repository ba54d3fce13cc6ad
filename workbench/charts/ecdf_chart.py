"""Empirical distribution function with quantiles marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.charts.data import (
    MAX_POSITIONS,
    check_positive,
    downsample_ecdf,
    format_missing_note,
    join_sentences,
    list_categories,
    select_columns,
)
from workbench.charts.theme import (
    build_limit_line,
    build_log_axis,
    encode_colour,
    encode_tooltip,
    finish_chart,
    make_zoomable,
)
from workbench.core.errors import InputError
from workbench.core.formats import find_unit, format_label, format_number
from workbench.core.frames import takes_frames

MAX_GROUPS = 8

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


@takes_frames
def ecdf(
    table: pl.DataFrame,
    *,
    title: str,
    value: str,
    group: str | None = None,
    quantiles: tuple[float, ...] = (0.5, 0.95, 0.99),
    slo: float | None = None,
    log: bool = False,
    subtitle: str = "",
) -> alt.Chart:
    """How are these values spread: which share stays at or below each value?

    `table`: One row per observation, any number; above 2,000 distinct values the curve keeps 2,000 exact steps.
    `value`, `group`: Columns: the observed quantity; the variant that gets a line of its own (at most 8).
    `quantiles`: Shares in (0, 1) that are marked on the curve: the smallest observation that at least this share does
    not exceed (inverse of the drawn function, no interpolation).

    Does not show how sure the curve is, nor the order in time.
    """
    import altair as alt

    frame = select_columns(table, "ecdf", texts=[group], numbers=[value])
    if log:
        check_positive(frame, "ecdf", [value])
    observations = frame.drop_nulls(value)
    group = group if observations.height else None
    parts = _split_groups(observations, group)
    exact = [(name, downsample_ecdf(part.get_column(value), positions=max(10, part.height))) for name, part in parts]
    thin = [
        (name, downsample_ecdf(part.get_column(value), positions=MAX_POSITIONS // len(parts))) for name, part in parts
    ]
    # The marks are looked up on all steps, not on the kept ones.
    marks = _join_parts([(name, _select_quantile_steps(steps, quantiles)) for name, steps in exact], value, group)
    curve = _join_parts(thin, value, group)
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False, nice=False)
    axis = build_log_axis(curve[value]) if log else alt.Axis(tickCount=8)
    x = alt.X(value, type="quantitative", title=format_label(value), scale=scale, axis=axis)
    axis, scale = alt.Axis(format="%", tickCount=5), alt.Scale(domain=[0, 1.02], nice=False)
    y = alt.Y("share", type="quantitative", title="share at or below", axis=axis, scale=scale)
    shades = encode_colour(curve, group)
    lines, dots = (
        alt.Chart(rows).encode(x=x, y=y, tooltip=encode_tooltip(rows, {"share": ".1%"}), **shades)
        for rows in (curve, marks)
    )
    layers = [
        alt.Chart(curve).mark_line(interpolate="step-after", strokeWidth=2).encode(x=x, y=y, **shades),
        # A line has one tooltip for all its points; unseen points give each step its own.
        lines.mark_point(size=40, opacity=0, filled=True),
        dots.mark_point(size=60, filled=True, opacity=1),
    ]
    if not group:
        names = alt.Chart(marks).mark_text(align="left", dx=9, dy=10)
        layers.append(names.encode(x=x, y=y, text=alt.Text("quantile", type="nominal")))
    if slo is not None:
        layers += build_limit_line(slo, value, axis="x")
    counts = [format_number(part.height) + (f" ({name})" if name is not None else "") for name, part in parts]
    n_steps = sum(steps.height for _, steps in exact)
    thinned = f"{format_number(n_steps)} steps thinned to {format_number(curve.height)} exact ones"
    note = join_sentences(
        subtitle,
        f"n = {', '.join(counts)}",
        format_missing_note(frame.height - observations.height),
        thinned if n_steps > curve.height else "",
        _format_quantile_note(marks, value, group),
    )
    return finish_chart(make_zoomable(layers, ["x"]), title, note, marks, height=280)


Part = tuple[str | None, "pl.DataFrame"]


def _split_groups(observations: pl.DataFrame, group: str | None) -> list[Part]:
    """Split the observations by group: pairs of group name and rows, or one pair without a name."""
    import polars as pl

    if group is None:
        return [(None, observations)]
    names = list_categories(observations, group)
    if len(names) > MAX_GROUPS:
        allowed, do = f"at most {MAX_GROUPS}", "draw those that matter"
        raise InputError("too many groups for the chart ecdf", found=len(names), allowed=allowed, do=do)
    return [(name, observations.filter(pl.col(group) == name)) for name in names]


def _select_quantile_steps(steps: pl.DataFrame, quantiles: tuple[float, ...]) -> pl.DataFrame:
    """Select for each quantile the first step that reaches its share, with its name (p50) in column quantile.

    `steps`: Column share, ascending.
    """
    import polars as pl

    marks = [steps.filter(pl.col("share") >= share - 1e-12).head(1) for share in quantiles if steps.height]
    named = [
        mark.with_columns(pl.lit(f"p{100 * share:g}").alias("quantile"))
        for share, mark in zip(quantiles, marks, strict=False)
    ]
    return pl.concat([steps.clear().with_columns(pl.lit("").alias("quantile")), *named])


def _join_parts(parts: list[Part], value: str, group: str | None) -> pl.DataFrame:
    """Join the steps of all groups to one frame: `value` (renamed), share, and the group's column if there is one."""
    import polars as pl

    tagged = [part.with_columns(pl.lit(name).alias(group)) if group else part for name, part in parts]
    empty = pl.DataFrame(schema={"value": pl.Float64, "share": pl.Float64} | ({group: pl.String} if group else {}))
    return (pl.concat(tagged) if tagged else empty).rename({"value": value})


def _format_quantile_note(marks: pl.DataFrame, value: str, group: str | None) -> str:
    """Text with the value of each marked quantile, by group, such as `p50 1.2 s; p95 3 s`."""
    import polars as pl

    unit = f" {find_unit(value)}" if find_unit(value) else ""
    notes = []
    for name in marks.get_column("quantile").unique(maintain_order=True):
        rows = marks.filter(pl.col("quantile") == name)
        figures = [
            format_number(row[value]) + unit + (f" ({row[group]})" if group else "")
            for row in rows.iter_rows(named=True)
        ]
        notes.append(f"{name} {', '.join(figures)}")
    return "; ".join(notes)
