"""The ranking for other weights, calculated in the page: a slider per metric, no kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.chart_data import at_most, first_appearance, sentences
from workbench.pieces.encodings import ROW_PX, finish, rows
from workbench.theme import COLOURS

if TYPE_CHECKING:
    import altair as alt

    from workbench.indicators.effects import Compared

LIMIT_ROWS = 5_000
MOST_SLIDERS = 12
STEP = 0.05


def within_rounds(found: Compared) -> pl.DataFrame:
    """Log ratios to the baseline, round by round: `stack, metric, round, log_ratio, wrong`; above 0 is better.

    The baseline has rows too, all 0; the control has none. `wrong` is 1 where a check of the stack did not pass.
    """
    session, values = found.observed.session, found.observed.values
    baseline = session.baseline
    arms = {arm.name: arm.stack for arm in session.arms if not arm.copy_number}
    sign = pl.when(pl.col("better") == "lower").then(-1.0).otherwise(1.0)
    logs = values.filter((pl.col("value") > 0) & pl.col("arm").is_in(list(arms))).select(
        "arm", "metric", "round", (sign * pl.col("value").log()).alias("log")
    )
    base = logs.filter(pl.col("arm") == baseline).select("metric", "round", pl.col("log").alias("base"))
    ratios = logs.join(base, on=["metric", "round"]).with_columns(log_ratio=pl.col("log") - pl.col("base"))
    failed = pl.DataFrame(
        [(arm, metric, 1) for arm, metric in sorted(found.wrong)],
        schema={"arm": pl.String, "metric": pl.String, "wrong": pl.Int64},
        orient="row",
    )
    marked = ratios.join(failed, on=["arm", "metric"], how="left").with_columns(pl.col("wrong").fill_null(0))
    named = marked.with_columns(stack=pl.col("arm").replace_strict(arms, return_dtype=pl.String))
    return named.select("stack", "metric", "round", "log_ratio", "wrong").sort("stack", "metric", "round")


def chart_mix(
    logs: pl.DataFrame,
    weights: Mapping[str, float],
    baseline: str,
    *,
    margin: float,
    level: float,
    sliders: bool,
    left_out: int = 0,
) -> alt.LayerChart:
    """Which stack is best for my work, if my work were another? Each stack over the mix, with its interval.

    Parameters
    ----------
    logs
        What `within_rounds` gave.
    weights
        Where the sliders stand: metric to weight; others stand at 0.
    baseline
        The stack at 1.
    margin, level
        Practical margin as a share, drawn as a band; confidence of the intervals.
    sliders
        With sliders in the page, which need no kernel.
    left_out
        Metrics that are not among `logs`, which the subtitle then tells.

    Notes
    -----
    A round counts for a stack when it has all metrics of nonzero weight in it. A stack with wrong answers in any of
    them is never the best. Chances and verdicts are in the recommendation, not here.
    """
    import altair as alt

    frame = at_most(logs, "mix", LIMIT_ROWS, "fewer rounds or metrics").with_columns(
        parameter=pl.col("metric").replace_strict(parameters(first_appearance(logs, "metric")), return_dtype=pl.String)
    )
    names = first_appearance(frame, "metric")
    params = _params(names, weights, sliders=sliders)
    picked = " + ".join(
        f"(datum.metric == {_quoted(name)} ? {parameter} : 0)" for name, parameter in parameters(names).items()
    )
    wanted = " + ".join(f"({parameter} > 0 ? 1 : 0)" for parameter in parameters(names).values())
    rounds = frame["round"].n_unique()
    base = (
        alt.Chart(frame)
        .transform_calculate(weight=picked)
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
        .transform_calculate(half=f"datum.n > 1 ? ({_t(rounds, level)})[datum.n] * datum.spread / sqrt(datum.n) : NaN")
        .transform_calculate(ratio="exp(datum.mean)")
        .transform_calculate(low="exp(datum.mean - datum.half)")
        .transform_calculate(high="exp(datum.mean + datum.half)")
        .transform_calculate(right="datum.wrong ? 0 : datum.ratio")
        .transform_joinaggregate(best="max(right)")
        .transform_calculate(first="datum.right >= datum.best")
        .transform_calculate(said=_said(baseline))
    )
    x = alt.X(
        "ratio",
        type="quantitative",
        title="times better than the baseline",
        scale=alt.Scale(type="log", nice=False, padding=20),
    )
    y = rows("stack")
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
    layers: list[Any] = [
        _band(margin),
        spans.encode(x=alt.X("low", type="quantitative"), x2=alt.X2("high"), y=y, color=colour),
        base.mark_point(size=90, filled=True, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
        # At the edge, not at the dot: there the longest ones would leave the picture.
        base.mark_text(align="right", dy=-11).encode(x=alt.value("width"), y=y, text=alt.Text("said", type="nominal")),
    ]
    told = sentences(
        f"{100 * level:g} % intervals within rounds",
        f"band: {100 * margin:.2g} %, less does not matter",
        "the sliders change the weights" if sliders else "",
        f"{left_out:,} metrics of weight 0 not drawn" if left_out else "",
    )
    stacks = first_appearance(frame, "stack")
    layered = alt.layer(*layers).add_params(*params)
    return finish(layered, "Which stack is best for this mix?", told, frame, height=(ROW_PX + 16) * len(stacks) + 20)


def parameters(names: Sequence[str]) -> dict[str, str]:
    """A name for the page's parameter of each metric."""
    return {name: f"weight_{place}" for place, name in enumerate(names)}


def _params(names: Sequence[str], weights: Mapping[str, float], *, sliders: bool) -> list[Any]:
    import altair as alt

    made = []
    for place, (name, parameter) in enumerate(parameters(names).items()):
        bind = alt.binding_range(min=0, max=1, step=STEP, name=f"{name} ")
        given = sliders and place < MOST_SLIDERS
        made.append(alt.param(name=parameter, value=float(weights.get(name, 0)), bind=bind if given else alt.Undefined))
    return made


def _band(margin: float) -> Any:
    import altair as alt

    frame = pl.DataFrame({"from": [1 / (1 + margin)], "to": [1 + margin], "one": [1.0]})
    band = alt.Chart(frame).mark_rect(opacity=0.16, color=COLOURS["neutral"])
    line = alt.Chart(frame).mark_rule(color=COLOURS["neutral"], strokeDash=[4, 3])
    return alt.layer(
        band.encode(x=alt.X("from", type="quantitative"), x2=alt.X2("to")),
        line.encode(x=alt.X("one", type="quantitative")),
    )


def _said(baseline: str) -> str:
    low, high = (f"format(datum.{name}, '.3f')" for name in ("low", "high"))
    ends = f"isValid(datum.half) ? ' [' + {low} + ', ' + {high} + ']' : ' (one round)'"
    figure = f"datum.stack == {_quoted(baseline)} ? 'baseline' : format(datum.ratio, '.3f') + ({ends})"
    return f"({figure}) + (datum.wrong ? ', wrong answers' : '')"


def _t(rounds: int, level: float) -> str:
    """The factor of the t interval for each number of rounds, as a list that the page looks into."""
    from scipy.special import stdtrit

    factors = [0.0, 0.0, *(float(stdtrit(n - 1, (1 + level) / 2)) for n in range(2, rounds + 1))]
    return "[" + ",".join(f"{factor:.6f}" if math.isfinite(factor) else "0" for factor in factors) + "]"


def _quoted(name: str) -> str:
    """A text of a Vega expression; names come from scripts."""
    import json

    return json.dumps(name)
