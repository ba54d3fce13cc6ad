"""Charts of a session: each draws its tables and computes nothing new."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.chart_data import at_most, first_appearance, sentences
from workbench.chart_text import table_text
from workbench.indicators.observations import Observed
from workbench.indicators.tables import DRIFT, EFFECTS
from workbench.pieces.encodings import ROW_PX, finish, rows, short, tooltip
from workbench.theme import CATEGORIES, COLOURS

if TYPE_CHECKING:
    import altair as alt

LIMIT_CELLS = 1_500
LIMIT_POINTS = 5_000
MOST_METRICS = 40
LONG = 14
PANEL_PX = 270
CONTROL_LABEL = "control"
VERDICTS = ("FASTER", "SLOWER", "SAME", "UNDECIDED")
_SHADES = {
    "FASTER": COLOURS["accelerator"],
    "SLOWER": COLOURS["failure"],
    "SAME": CATEGORIES[2],
    "UNDECIDED": COLOURS["neutral"],
}
FULL_COLOUR = 2.0
"""Ratio at which a cell of the heat map has its full colour; beyond it only the printed figure tells."""


def chart_forests(effects: pl.DataFrame, *, first: Collection[str] = ()) -> alt.FacetChart:
    """By each metric, which stacks differ from the baseline? A small forest per metric, each with an axis of its own.

    Parameters
    ----------
    effects
        Table EFFECTS of one session. The control is drawn among the stacks.
    first
        Metrics that are drawn before others, where there are more than 40: those of the mix.

    Raises
    ------
    InputError
        Another table.

    Notes
    -----
    Does not show how stacks differ from each other, only from the baseline.
    """
    import altair as alt

    table = EFFECTS.check(effects)
    label = pl.when(pl.col("control")).then(pl.lit(CONTROL_LABEL)).otherwise(pl.col("stack")).alias("label")
    names, left_out = _drawn(first_appearance(table, "metric"), first, MOST_METRICS)
    shown = ("metric", "ratio", "low", "high", "n", "failed", "verdict", "rounds_needed", "reason")
    frame = table.filter(pl.col("ratio").is_not_null() & pl.col("metric").is_in(names)).select(label, *shown)
    claims = [name for name in VERDICTS if name in set(frame["verdict"])]
    shades = alt.Scale(domain=claims, range=[_SHADES[name] for name in claims])
    legend = alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=4, symbolSize=200)
    shade = alt.Color("verdict", type="nominal", title=None, scale=shades, legend=legend)
    base = alt.Chart().encode(y=rows("label"), color=shade, tooltip=tooltip(frame))
    axis = alt.Axis(tickCount=5, format=".3~g", labelOverlap=True)
    x = alt.X("ratio", type="quantitative", title=None, scale=alt.Scale(type="log", nice=False, padding=12), axis=axis)
    apart = "datum.verdict == 'FASTER' || datum.verdict == 'SLOWER'"
    layers = [
        alt.Chart().mark_rule(strokeDash=[4, 3], color=COLOURS["neutral"]).encode(x=alt.datum(1)),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low", type="quantitative"), x2=alt.X2("high")),
        base.mark_point(size=70, filled=True, opacity=1).encode(
            x=x, shape=alt.condition(apart, alt.value("circle"), alt.value("diamond"))
        ),
    ]
    stacks = first_appearance(frame, "label")
    level, baseline = (table["level"][0], table["baseline"][0]) if table.height else (0.0, "")
    told = sentences(
        f"times better than {baseline}",
        f"{100 * level:.3g} % intervals within rounds",
        "each panel has its own axis",
        left_out,
    )
    inner = alt.layer(*layers, data=frame).properties(width=PANEL_PX, height=max(50, ROW_PX * len(stacks)))
    header = alt.Header(title=None, labelFontWeight=600, labelAnchor="start", labelLimit=PANEL_PX)
    panels = inner.facet(facet=alt.Facet("metric", type="nominal", sort=names, header=header), columns=2, spacing=18)
    title = "Which stacks differ from the baseline?"
    return panels.resolve_scale(x="independent").properties(
        title=alt.TitleParams(text=title, subtitle=told), description=table_text(title, frame, subtitle=told)
    )


def chart_heatmap(effects: pl.DataFrame, *, first: Collection[str] = ()) -> alt.LayerChart:
    """Which stack is how much better at what? One cell per stack and metric.

    Parameters
    ----------
    effects
        Table EFFECTS of one session.
    first
        Metrics that are drawn before others, where not all have room.

    Notes
    -----
    Colours end at twice and half; the figure in the cell goes on. A figure in brackets is not told apart. Does not
    show intervals.
    """
    import altair as alt

    table = EFFECTS.check(effects).filter(~pl.col("control"))
    room = LIMIT_CELLS // max(1, table["stack"].n_unique())
    names, left_out = _drawn(first_appearance(table, "metric"), first, room)
    cells_of = table.select("metric", "stack", "ratio", "low", "high", "n", "verdict", "passed")
    frame = at_most(cells_of.filter(pl.col("metric").is_in(names)), "heatmap", LIMIT_CELLS, "compare fewer stacks")
    axis = alt.Axis(labelAngle=-30 if len(names) > 6 or max(map(len, names), default=0) > LONG else 0, labelLimit=180)
    base = alt.Chart(frame).encode(
        x=alt.X("metric", type="nominal", sort=None, title=None, axis=axis), y=rows("stack"), tooltip=tooltip(frame)
    )
    scale = alt.Scale(
        type="log",
        domain=[1 / FULL_COLOUR, 1, FULL_COLOUR],
        range=[COLOURS["failure"], "#9aa4b2", COLOURS["accelerator"]],
        clamp=True,
        interpolate="lab",
    )
    legend = alt.Legend(title="times better", format=".2~g", values=[0.5, 0.7, 1, 1.4, 2], gradientLength=180)
    cells = base.mark_rect(cornerRadius=2).encode(
        color=alt.Color("ratio", type="quantitative", scale=scale, legend=legend),
        opacity=alt.condition("datum.verdict == 'FASTER' || datum.verdict == 'SLOWER'", alt.value(1), alt.value(0.28)),
    )
    figure = short("datum.ratio")
    open_ = "datum.verdict == 'UNDECIDED'"
    text = f"!isValid(datum.ratio) ? '–' : ({open_} ? '(' : '') + ({figure}) + ({open_} ? ')' : '')"
    texts = base.mark_text(text=alt.ExprRef(text), fontWeight=500)
    stacks = first_appearance(frame, "stack")
    told = sentences("figures: times better than the baseline", "brackets: undecided", "pale: not told apart", left_out)
    title = "Which stack is better at what?"
    return finish(alt.layer(cells, texts), title, told, frame, height=max(80, (ROW_PX + 6) * len(stacks)))


def relative(found: Observed) -> pl.DataFrame:
    """The baseline's values over their median, by round: `metric, round, factor`, the unit gone."""
    own = found.values.filter(pl.col("arm") == found.session.baseline)
    over = pl.col("value") / pl.col("value").median().over("metric")
    return own.select("metric", "round", over.alias("factor")).sort("metric", "round")


def chart_drift(found: Observed, drift: pl.DataFrame, *, first: Collection[str] = ()) -> alt.LayerChart:
    """Was the machine left alone? The baseline's values round by round, over their median.

    Parameters
    ----------
    found
        A session's tables.
    drift
        Table DRIFT: a mark stands where a change was told apart.
    first
        Metrics that are drawn before others, where not all have room.

    Notes
    -----
    A level that moves is no error: ratios are taken within rounds. It shows why absolute values should not be
    compared with another day's.
    """
    import altair as alt

    everything = relative(found)
    room = LIMIT_POINTS // max(1, everything["round"].n_unique())
    names, left_out = _drawn(first_appearance(everything, "metric"), first, room)
    lines = at_most(everything.filter(pl.col("metric").is_in(names)), "drift", LIMIT_POINTS, "show fewer rounds")
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    x = alt.X("round", type="quantitative", title="round", axis=axis, scale=alt.Scale(nice=False, padding=8))
    y = alt.Y(
        "factor",
        type="quantitative",
        title="value over its median",
        axis=alt.Axis(tickCount=6, format=".3~g"),
        scale=alt.Scale(type="log", nice=False, padding=14),
    )
    shades = [CATEGORIES[place % len(CATEGORIES)] for place in range(len(names))]
    legend = alt.Legend(title=None, symbolType="stroke", symbolStrokeWidth=3, columns=4, labelLimit=220)
    shade = alt.Color("metric", type="nominal", scale=alt.Scale(domain=names, range=shades), legend=legend)
    base = alt.Chart(lines).encode(x=x, y=y, color=shade, tooltip=tooltip(lines))
    layers: list[Any] = [base.mark_line(strokeWidth=1.6), base.mark_point(size=18, filled=True, opacity=1)]
    changed = DRIFT.check(drift).filter(pl.col("changed")).select("metric", "change_at", "factor", "adjusted_p_value")
    if changed.height:
        marks = alt.Chart(changed.rename({"factor": "times_before"})).encode(
            x=alt.X("change_at", type="quantitative"), tooltip=tooltip(changed.rename({"factor": "times_before"}))
        )
        layers.append(marks.mark_rule(color=COLOURS["failure"], strokeDash=[5, 4]))
    told = sentences(
        f"the baseline, {found.session.baseline}",
        f"dashed: the machine changed ({', '.join(changed['metric'].to_list())})"
        if changed.height
        else "no change seen",
        left_out,
    )
    return finish(alt.layer(*layers), "Was the machine left alone?", told, lines, height=240)


def _drawn(metrics: list[str], first: Collection[str], most: int) -> tuple[list[str], str]:
    """The metrics that have room, in their own order; and what to say of the others, nothing without any."""
    if len(metrics) <= most:
        return metrics, ""
    kept = {*[*filter(first.__contains__, metrics), *(name for name in metrics if name not in first)][:most]}
    return [name for name in metrics if name in kept], f"{len(metrics) - most:,} more metrics not drawn"
