"""Charts of a session: forests, heatmap, drift, and the ranking over a mix of metrics."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.charts.data import check_row_count, describe_table, join_sentences, list_categories
from workbench.charts.theme import (
    CATEGORIES,
    COLOURS,
    ROW_PX,
    build_ink_expression,
    build_log_axis,
    encode_rows,
    encode_series,
    encode_tooltip,
    finish_chart,
    mark_intervals,
    short_number_expression,
)
from workbench.core.frames import takes_frames
from workbench.indicators.analysis.observations import Observations
from workbench.indicators.tables import DRIFT, EFFECTS, RECOMMENDATIONS
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED, VERDICTS

if TYPE_CHECKING:
    import altair as alt

    from workbench.indicators.analysis.effects import Comparison

LIMIT_CELLS = 1_500
LIMIT_POINTS = 5_000
MAX_METRICS = 40
LONG = 14
PANEL_PX = 270
CONTROL_LABEL = "control"
_SHADES = {
    FASTER: COLOURS["accelerator"],
    SLOWER: COLOURS["failure"],
    SAME: CATEGORIES[2],
    UNDECIDED: COLOURS["neutral"],
}
FULL_COLOUR = 2.0
"""Ratio at which a cell of the heat map reaches its full colour."""
LIMIT_ROWS = 5_000
MAX_SLIDERS = 12
STEP = 0.05


@takes_frames
def chart_forests(effects: pl.DataFrame, *, first: Collection[str] = ()) -> alt.FacetChart | alt.Chart:
    """Draw a small forest plot per metric: which stacks differ from the baseline?

    Parameters
    ----------
    effects
        Table EFFECTS of one session. The control is drawn among the stacks.
    first
        Metrics to draw if there are more than 40: those of the mix.

    Raises
    ------
    InputError
        Another table.

    Notes
    -----
    Shows how stacks differ from the baseline, not from each other.
    """
    import altair as alt

    table = EFFECTS.check(effects)
    label = pl.when(pl.col("control")).then(pl.lit(CONTROL_LABEL)).otherwise(pl.col("stack")).alias("label")
    names, left_out = _select_metrics(list_categories(table, "metric"), first, MAX_METRICS)
    shown = ("metric", "ratio", "low", "high", "n", "failed", "verdict", "rounds_needed", "reason")
    frame = table.filter(pl.col("ratio").is_not_null() & pl.col("metric").is_in(names)).select(label, *shown)
    title = "Which stacks differ from the baseline?"
    if not frame.height:
        # Panels of nothing have no size, and cannot be drawn.
        nothing = alt.Chart(frame).mark_point()
        return finish_chart(nothing, title, "no metric has values of two stacks", frame, height=50)
    claims = [name for name in VERDICTS if name in set(frame["verdict"])]
    shades = alt.Scale(domain=claims, range=[_SHADES[name] for name in claims])
    legend = alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=4, symbolSize=200)
    shade = alt.Color("verdict", type="nominal", title=None, scale=shades, legend=legend)
    base = alt.Chart().encode(y=encode_rows("label"), color=shade, tooltip=encode_tooltip(frame))
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
    stacks = list_categories(frame, "label")
    level, baseline = (table["level"][0], table["baseline"][0]) if table.height else (0.0, "")
    subtitle = join_sentences(
        f"times better than {baseline}",
        f"{100 * level:.3g} % intervals within rounds",
        "each panel has its own axis",
        left_out,
    )
    inner = alt.layer(*layers, data=frame).properties(width=PANEL_PX, height=max(50, ROW_PX * len(stacks)))
    header = alt.Header(title=None, labelFontWeight=600, labelAnchor="start", labelLimit=PANEL_PX)
    panels = inner.facet(facet=alt.Facet("metric", type="nominal", sort=names, header=header), columns=2, spacing=18)
    return panels.resolve_scale(x="independent").properties(
        title=alt.TitleParams(text=title, subtitle=subtitle),
        description=describe_table(title, frame, subtitle=subtitle),
    )


@takes_frames
def chart_ranking(table: pl.DataFrame, excluded: pl.DataFrame, baseline: str, margin: float) -> alt.LayerChart:
    """Draw each stack's ratio over the mix with its interval: which stack is fastest for this work?

    Parameters
    ----------
    table, excluded
        Tables RECOMMENDATIONS and EXCLUDED. Excluded stacks are named below the title, and draw no axis apart.
    baseline, margin
        Name of the baseline, and the practical margin as a share, drawn as a band.
    """
    import altair as alt

    shown = ("stack", "ratio", "low", "high", "n", "verdict", "predicted")
    frame = RECOMMENDATIONS.check(table).filter(pl.col("ratio").is_not_null()).select(*shown)
    what = pl.when(pl.col("stack") == baseline).then(pl.lit("baseline")).otherwise(pl.col("verdict").str.to_lowercase())
    figure = pl.format("{}, {}", pl.col("ratio").round(3), what)
    frame = frame.with_columns(told=pl.when(pl.col("stack") == baseline).then(pl.lit("baseline")).otherwise(figure))
    x = alt.X(
        "ratio",
        type="quantitative",
        title=f"times better than {baseline}",
        scale=alt.Scale(type="log", nice=False, padding=24),
        axis=build_log_axis([*frame["low"], *frame["high"], *frame["ratio"], 1 / (1 + margin), 1 + margin]),
    )
    shades = {
        "condition": [
            {"test": f"datum.verdict == '{verdict}'", "value": _SHADES[verdict]} for verdict in (FASTER, SLOWER, SAME)
        ],
        "value": COLOURS["neutral"],
    }
    base = alt.Chart(frame).encode(y=encode_rows("stack"), tooltip=encode_tooltip(frame, leave_out=("told",)))
    layers = [
        _chart_margin_band(margin),
        mark_intervals(base, "low", "high", "x", strokeWidth=8, opacity=0.35).encode(color=shades),
        base.mark_point(size=90, filled=True, opacity=1).encode(x=x, color=shades),
        base.mark_text(align="right", dy=-11).encode(x=alt.value("width"), text=alt.Text("told", type="nominal")),
    ]
    reasons = excluded.select("stack", pl.col("reason").str.split(":").list.first()).iter_rows()
    left_out = [f"{stack} ({reason})" for stack, reason in reasons]
    subtitle = join_sentences(
        f"band: the {100 * margin:.2g} % margin, within which differences do not matter",
        f"excluded: {', '.join(left_out[:3])}{' and more' if len(left_out) > 3 else ''}" if left_out else "",
    )
    title = "Which stack is fastest for this work?"
    height = (ROW_PX + 16) * max(1, frame.height) + 20
    return finish_chart(alt.layer(*layers), title, subtitle, frame.drop("told"), height=height)


@takes_frames
def chart_heatmap(effects: pl.DataFrame, *, first: Collection[str] = ()) -> alt.LayerChart:
    """Draw the ratio of each stack and metric as a cell: which stack is better at what?

    Parameters
    ----------
    effects
        Table EFFECTS of one session.
    first
        Metrics to draw if not all fit: those of the mix.

    Notes
    -----
    Colours saturate at ratios of 2 and 1/2. A number in brackets is undecided. Intervals are not shown.
    """
    import altair as alt

    table = EFFECTS.check(effects).filter(~pl.col("control"))
    room = LIMIT_CELLS // max(1, table["stack"].n_unique())
    names, left_out = _select_metrics(list_categories(table, "metric"), first, room)
    cells_of = table.select("metric", "stack", "ratio", "low", "high", "n", "verdict", "passed")
    frame = check_row_count(
        cells_of.filter(pl.col("metric").is_in(names)), "heatmap", LIMIT_CELLS, "compare fewer stacks"
    )
    axis = alt.Axis(labelAngle=-30 if len(names) > 6 or max(map(len, names), default=0) > LONG else 0, labelLimit=180)
    base = alt.Chart(frame).encode(
        x=alt.X("metric", type="nominal", sort=None, title=None, axis=axis),
        y=encode_rows("stack"),
        tooltip=encode_tooltip(frame),
    )
    scale = alt.Scale(
        type="log",
        domain=[1 / FULL_COLOUR, 1, FULL_COLOUR],
        range=[COLOURS["failure"], "#9aa4b2", COLOURS["accelerator"]],
        clamp=True,
        interpolate="lab",
    )
    legend = alt.Legend(title="times better", format=".2~g", values=[0.5, 0.7, 1, 1.4, 2], gradientLength=180)
    # A pale cell lies on the page, dark or light, and its letters are those of the page.
    decided = "datum.verdict == 'FASTER' || datum.verdict == 'SLOWER'"
    cells = base.mark_rect(cornerRadius=2).encode(
        color=alt.Color("ratio", type="quantitative", scale=scale, legend=legend),
        opacity=alt.condition(decided, alt.value(1), alt.value(0.28)),
    )
    figure = short_number_expression("datum.ratio")
    open_ = "datum.verdict == 'UNDECIDED'"
    text = f"!isValid(datum.ratio) ? '–' : ({open_} ? '(' : '') + ({figure}) + ({open_} ? ')' : '')"
    ink = build_ink_expression("scale('color', datum.ratio)")
    others = sorted(set(frame["verdict"]) - {FASTER, SLOWER})
    pale, full = (
        base.transform_filter(alt.FieldOneOfPredicate(field="verdict", oneOf=verdicts))
        for verdicts in (others, [FASTER, SLOWER])
    )
    texts = [
        pale.mark_text(text=alt.ExprRef(text), fontWeight=500),
        full.mark_text(text=alt.ExprRef(text), fontWeight=500, color=alt.ExprRef(ink)),
    ]
    stacks = list_categories(frame, "stack")
    subtitle = join_sentences(
        "figures: times better than the baseline", "brackets: undecided", "pale: neither faster nor slower", left_out
    )
    title = "Which stack is better at what?"
    return finish_chart(alt.layer(cells, *texts), title, subtitle, frame, height=max(80, (ROW_PX + 6) * len(stacks)))


def build_relative_baseline(observations: Observations) -> pl.DataFrame:
    """The baseline's values over their median, by round: columns `metric, round, factor`."""
    base_values = observations.values.filter(pl.col("arm") == observations.session.baseline)
    over = pl.col("value") / pl.col("value").median().over("metric")
    return base_values.select("metric", "round", over.alias("factor")).sort("metric", "round")


@takes_frames
def chart_drift(observations: Observations, drift: pl.DataFrame, *, first: Collection[str] = ()) -> alt.LayerChart:
    """Draw the baseline's values over their median, round by round: did the machine change?

    Parameters
    ----------
    observations
        A session's tables.
    drift
        Table DRIFT: significant changes are marked.
    first
        Metrics to draw if not all fit: those of the mix.

    Notes
    -----
    A changing level does not bias ratios, which are taken within rounds. It shows why absolute values of different
    days cannot be compared.
    """
    import altair as alt

    everything = build_relative_baseline(observations)
    room = LIMIT_POINTS // max(1, everything["round"].n_unique())
    names, left_out = _select_metrics(list_categories(everything, "metric"), first, room)
    lines = check_row_count(
        everything.filter(pl.col("metric").is_in(names)), "drift", LIMIT_POINTS, "show fewer rounds"
    )
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    x = alt.X("round", type="quantitative", title="round", axis=axis, scale=alt.Scale(nice=False, padding=8))
    y = alt.Y(
        "factor",
        type="quantitative",
        title="value over its median",
        axis=build_log_axis(lines["factor"]),
        scale=alt.Scale(type="log", nice=False, padding=14),
    )
    base = alt.Chart(lines).encode(x=x, y=y, tooltip=encode_tooltip(lines), **encode_series(lines, "metric", names))
    layers: list[Any] = [base.mark_line(strokeWidth=1.6), base.mark_point(size=18, filled=True, opacity=1)]
    changed = DRIFT.check(drift).filter(pl.col("changed")).select("metric", "change_at", "factor", "adjusted_p_value")
    if changed.height:
        marks = alt.Chart(changed.rename({"factor": "times_before"})).encode(
            x=alt.X("change_at", type="quantitative"),
            tooltip=encode_tooltip(changed.rename({"factor": "times_before"})),
        )
        layers.append(marks.mark_rule(color=COLOURS["failure"], strokeDash=[5, 4]))
    subtitle = join_sentences(
        f"the baseline, {observations.session.baseline}",
        f"dashed: the machine changed ({', '.join(changed['metric'].to_list())})"
        if changed.height
        else "no change found",
        left_out,
    )
    return finish_chart(alt.layer(*layers), "Did the machine change?", subtitle, lines, height=240)


def _select_metrics(metrics: list[str], first: Collection[str], max_metrics: int) -> tuple[list[str], str]:
    """The metrics to draw, in their own order, and a note on the others (empty without any)."""
    if len(metrics) <= max_metrics:
        return metrics, ""
    names = {*[*filter(first.__contains__, metrics), *(name for name in metrics if name not in first)][:max_metrics]}
    return [name for name in metrics if name in names], f"{len(metrics) - max_metrics:,} more metrics not drawn"


def build_round_log_ratios(comparison: Comparison) -> pl.DataFrame:
    """Log ratios to the baseline by round: columns `stack, metric, round, log_ratio, wrong`; above 0 is better.

    The baseline's rows are all 0; the control has none. `wrong` is 1 for stacks with a failed check.
    """
    session, values = comparison.observed.session, comparison.observed.values
    baseline = session.baseline
    arms = {arm.name: arm.stack for arm in session.arms if not arm.is_control}
    sign = pl.when(pl.col("better") == "lower").then(-1.0).otherwise(1.0)
    logs = values.filter((pl.col("value") > 0) & pl.col("arm").is_in(list(arms))).select(
        "arm", "metric", "round", (sign * pl.col("value").log()).alias("log")
    )
    base = logs.filter(pl.col("arm") == baseline).select("metric", "round", pl.col("log").alias("base"))
    ratios = logs.join(base, on=["metric", "round"]).with_columns(log_ratio=pl.col("log") - pl.col("base"))
    failed = pl.DataFrame(
        [(arm, metric, 1) for arm, metric in sorted(comparison.wrong)],
        schema={"arm": pl.String, "metric": pl.String, "wrong": pl.Int64},
        orient="row",
    )
    marked = ratios.join(failed, on=["arm", "metric"], how="left").with_columns(pl.col("wrong").fill_null(0))
    named = marked.with_columns(stack=pl.col("arm").replace_strict(arms, return_dtype=pl.String))
    return named.select("stack", "metric", "round", "log_ratio", "wrong").sort("stack", "metric", "round")


@takes_frames
def chart_mix(
    logs: pl.DataFrame,
    weights: Mapping[str, float],
    baseline: str,
    *,
    margin: float,
    level: float,
    sequence: bool = False,
    sliders: bool,
    left_out: int = 0,
) -> alt.LayerChart:
    """Draw each stack's ratio over the mix with its interval: which stack is best for this mix?

    `logs`: One row per stack, metric and round, with the columns of `build_round_log_ratios`.
    `weights`: Metric to weight, the initial position of the sliders; other metrics have weight 0.
    `margin`, `level`: Practical margin as a share, drawn as a band; confidence level of the intervals.
    `left_out`: Number of metrics of weight 0 that are not in `logs`.

    A round counts for a stack if the stack has values of all metrics with a weight. A stack with wrong answers in any
    of them is never the best. Chances and verdicts are in the recommendation.
    """
    import altair as alt

    frame = check_row_count(logs, "mix", LIMIT_ROWS, "fewer rounds or metrics").with_columns(
        parameter=pl.col("metric").replace_strict(
            name_slider_parameters(list_categories(logs, "metric")), return_dtype=pl.String
        )
    )
    names, stacks = list_categories(frame, "metric"), list_categories(frame, "stack")
    base = _aggregate_mix(
        alt.Chart(frame), names, baseline, _list_factors(frame["round"].n_unique(), level, sequence=sequence)
    )
    subtitle = join_sentences(
        f"{100 * level:g} % intervals within rounds",
        f"band: the {100 * margin:.2g} % margin",
        "the sliders change the weights" if sliders else "",
        f"{left_out:,} metrics of weight 0 not drawn" if left_out else "",
    )
    # Parameters of the page that hold the weights, the first of them bound to sliders.
    params = []
    for place, (name, parameter) in enumerate(name_slider_parameters(names).items()):
        bind = alt.binding_range(min=0, max=1, step=STEP, name=f"{name} ")
        shown = bind if sliders and place < MAX_SLIDERS else alt.Undefined
        params.append(alt.param(name=parameter, value=float(weights.get(name, 0)), bind=shown))
    chart = alt.layer(*_build_mix_layers(base, margin)).add_params(*params)
    height = (ROW_PX + 16) * len(stacks) + 20
    return finish_chart(chart, "Which stack is best for this mix?", subtitle, frame, height=height)


def _aggregate_mix(chart: Any, names: Sequence[str], baseline: str, factors: str) -> Any:
    """Compute ratio and interval of each stack over the mix in the page, from the sliders' parameters.

    `chart` holds rows of `build_round_log_ratios`; `factors` is the expression of `_list_factors`.
    """
    picked = " + ".join(
        f"(datum.metric == {_quote_text(name)} ? {parameter} : 0)"
        for name, parameter in name_slider_parameters(names).items()
    )
    wanted = " + ".join(f"({parameter} > 0 ? 1 : 0)" for parameter in name_slider_parameters(names).values())
    # Expression of the text beside a dot: the ratio with its interval, and a mark of wrong answers.
    low, high = (f"format(datum.{name}, '.3f')" for name in ("low", "high"))
    ends = f"isValid(datum.half) ? ' [' + {low} + ', ' + {high} + ']' : ' (one round)'"
    figure = f"datum.stack == {_quote_text(baseline)} ? 'baseline' : format(datum.ratio, '.3f') + ({ends})"
    return (
        chart.transform_calculate(weight=picked)
        .transform_filter("datum.weight > 0")
        .transform_calculate(part="datum.weight * datum.log_ratio")
        .transform_aggregate(
            total="sum(part)", whole="sum(weight)", wrong="max(wrong)", parts="count()", groupby=["stack", "round"]
        )
        .transform_filter(f"datum.parts == ({wanted})")
        .transform_calculate(score="datum.total / datum.whole")
        .transform_aggregate(
            mean="mean(score)", spread="stdev(score)", n="count()", wrong="max(wrong)", groupby=["stack"]
        )
        .transform_calculate(half=f"datum.n > 1 ? ({factors})[datum.n] * datum.spread / sqrt(datum.n) : NaN")
        .transform_calculate(ratio="exp(datum.mean)")
        .transform_calculate(low="exp(datum.mean - datum.half)")
        .transform_calculate(high="exp(datum.mean + datum.half)")
        .transform_calculate(right="datum.wrong ? 0 : datum.ratio")
        .transform_joinaggregate(best="max(right)")
        .transform_calculate(first="datum.right >= datum.best")
        .transform_calculate(said=f"({figure}) + (datum.wrong ? ', wrong answers' : '')")
    )


def _build_mix_layers(base: Any, margin: float) -> list[Any]:
    """Margin band, intervals, points and texts of the mix chart; `margin` is a share."""
    import altair as alt

    x = alt.X(
        "ratio",
        type="quantitative",
        title="times better than the baseline",
        scale=alt.Scale(type="log", nice=False, padding=20),
    )
    y = encode_rows("stack")
    tips = [
        alt.Tooltip("stack", type="nominal"),
        *(alt.Tooltip(name, type="quantitative", format=".4~g") for name in ("ratio", "low", "high", "n")),
    ]
    colour = {
        "condition": [
            {"test": "datum.wrong", "value": COLOURS["failure"]},
            {"test": "datum.first", "value": COLOURS["accelerator"]},
        ],
        "value": COLOURS["neutral"],
    }
    spans = base.transform_filter("isValid(datum.half)").mark_rule(strokeWidth=8, opacity=0.35)
    return [
        _chart_margin_band(margin),
        spans.encode(x=alt.X("low", type="quantitative"), x2=alt.X2("high"), y=y, color=colour),
        base.mark_point(size=90, filled=True, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
        # At the edge, since long texts beside the dots would be cut off.
        base.mark_text(align="right", dy=-11).encode(x=alt.value("width"), y=y, text=alt.Text("said", type="nominal")),
    ]


def name_slider_parameters(names: Sequence[str]) -> dict[str, str]:
    """The name of each metric's parameter in the page."""
    return {name: f"weight_{place}" for place, name in enumerate(names)}


def _chart_margin_band(margin: float) -> Any:
    """The band of ratios within the margin (a share), and a line at 1."""
    import altair as alt

    frame = pl.DataFrame({"from": [1 / (1 + margin)], "to": [1 + margin], "one": [1.0]})
    band = alt.Chart(frame).mark_rect(opacity=0.16, color=COLOURS["neutral"])
    line = alt.Chart(frame).mark_rule(color=COLOURS["neutral"], strokeDash=[4, 3])
    return alt.layer(
        band.encode(x=alt.X("from", type="quantitative"), x2=alt.X2("to")),
        line.encode(x=alt.X("one", type="quantitative")),
    )


def _list_factors(rounds: int, level: float, *, sequence: bool) -> str:
    """Half widths of the interval in standard errors of the mean, by number of rounds, as a list expression.

    Entry n is for n rounds, from 0 to `rounds`; `level` is the confidence level.
    """
    from scipy.special import stdtrit

    from workbench.stats import critical_value

    def factor(n: int) -> float:
        return float(critical_value(n, 1 - level) if sequence else stdtrit(n - 1, (1 + level) / 2))

    factors = [0.0, 0.0, *map(factor, range(2, rounds + 1))]
    return "[" + ",".join(f"{factor:.6f}" if math.isfinite(factor) else "0" for factor in factors) + "]"


def _quote_text(name: str) -> str:
    """Quote a text for a Vega expression; names come from scripts."""
    import json

    return json.dumps(name)
