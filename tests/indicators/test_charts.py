"""What the charts draw: as many marks as rows, and in the page the same figures as in the tables."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import altair as alt
import numpy as np
import polars as pl
import pytest

from tests.indicators.worlds import of_values, session
from workbench import charts as shared
from workbench.indicators.analysis.effects import Comparison, compare_session
from workbench.indicators.charts import (
    build_relative_baseline,
    build_round_log_ratios,
    chart_drift,
    chart_forests,
    chart_heatmap,
    chart_mix,
)
from workbench.indicators.recommendation.metric_mix import Mix, estimate_mix_ratio, score_rounds
from workbench.indicators.store.archive import CONTROL

CASES = ("Sort", 'Ufunc[function="sin"]', "Matmul")
EFFECTS = {"new": (0.3, -0.1, 0.0), "old": (-0.7, 1.2, 0.0)}


@pytest.fixture(scope="module")
def judged() -> Comparison:
    """Three stacks and the control, ten rounds, three metrics; one run of each kind failed."""
    shared.setup()
    rng = np.random.default_rng(2)
    plan = session(("base", "new", "old"), CASES)
    values: dict[tuple[str, str], list[float | None]] = {}
    for arm in ("base", "new", "old", CONTROL):
        for place, case in enumerate(CASES):
            logs = rng.normal(0, 0.02, 10) - EFFECTS.get(arm, (0.0, 0.0, 0.0))[place]
            values[arm, case] = list(5 * np.exp(logs))
    values["old", "Sort"][3] = None
    return compare_session(of_values(plan, values))


def texts(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> list[str]:
    """Every text of the drawing."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    return [html.unescape(found) for found in re.findall(r"<text[^>]*>([^<]+)</text>", svg)]


def test_the_forest_has_a_panel_for_each_metric_and_a_row_for_each_arm(judged: Comparison) -> None:
    found = texts(chart_forests(judged.effects))
    assert [name for name in CASES if name in found] == list(CASES)
    assert {"new", "old", "control"} <= set(found)
    assert {"FASTER", "SLOWER"} <= set(found)


def test_a_session_in_which_nothing_can_be_compared_is_drawn_as_nothing(judged: Comparison) -> None:
    nothing = judged.effects.with_columns(ratio=pl.lit(None, dtype=pl.Float64))
    for empty in (nothing, nothing.head(0)):
        assert "no metric has values of two stacks" in " ".join(texts(chart_forests(empty)))


def test_the_heat_map_prints_each_ratio_and_puts_what_is_open_in_brackets(judged: Comparison) -> None:
    found = texts(chart_heatmap(judged.effects))
    rows = judged.effects.filter(~judged.effects["control"])
    for ratio_, verdict in rows.select("ratio", "verdict").iter_rows():
        figure = f"{ratio_:.3g}"
        assert (f"({figure})" if verdict == "UNDECIDED" else figure) in found


def test_drift_is_drawn_over_the_median_of_each_metric(judged: Comparison) -> None:
    lines = build_relative_baseline(judged.observed)
    assert lines.group_by("metric").median()["factor"].to_list() == pytest.approx([1.0] * 3)
    assert "no change found" in " ".join(texts(chart_drift(judged.observed, judged.drift)))


@pytest.mark.parametrize("text", ["sort=1", "sort=0.25,ufunc=0.5,mat=0.25", "matmul=0.3,ufunc=0.9"])
def test_the_page_calculates_the_mix_as_the_recommendation_does(judged: Comparison, text: str) -> None:
    session_ = judged.observed.session
    mix = Mix.from_text(text, list(CASES))
    logs = build_round_log_ratios(judged)
    found = texts(chart_mix(logs, mix.weights, "base", margin=0.02, level=0.95, sliders=True))
    scores = score_rounds(judged.observed.values, mix)
    for arm in ("new", "old"):
        interval = estimate_mix_ratio(scores, arm, session_.baseline, level=0.95)
        assert f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]" in found
    assert "baseline" in found


def test_every_metric_has_a_slider_and_its_weight(judged: Comparison) -> None:
    logs = build_round_log_ratios(judged)
    drawn = chart_mix(logs, {"Sort": 0.4}, "base", margin=0.02, level=0.95, sliders=True).to_dict()
    sliders = {one["bind"]["name"].strip(): one["value"] for one in drawn["params"] if "bind" in one}
    assert sliders == {"Sort": 0.4, CASES[1]: 0.0, "Matmul": 0.0}


def test_a_stack_with_wrong_answers_is_never_the_best_of_a_mix_that_holds_them(judged: Comparison) -> None:
    logs = build_round_log_ratios(judged).with_columns(
        wrong=pl.when((pl.col("stack") == "old") & (pl.col("metric") == CASES[1])).then(1).otherwise(0)
    )
    sin = {"margin": 0.02, "level": 0.95, "sliders": False}
    assert [text for text in texts(chart_mix(logs, {CASES[1]: 1.0}, "base", **sin)) if "wrong answers" in text]
    assert not [text for text in texts(chart_mix(logs, {"Sort": 1.0}, "base", **sin)) if "wrong answers" in text]


def subtitle(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> str:
    return str(chart.to_dict()["title"]["subtitle"])


def test_of_more_metrics_than_have_room_those_of_the_mix_are_drawn_and_the_others_counted(judged: Comparison) -> None:
    one = judged.effects.filter(pl.col("metric") == "Sort")
    many = pl.concat([one.with_columns(metric=pl.lit(f"m{n:02d}")) for n in range(50)])
    found = chart_forests(many, first=["m48", "nothing"])
    panels = found.to_dict()["facet"]["sort"]
    assert panels == [*(f"m{n:02d}" for n in range(39)), "m48"]
    assert "10 more metrics not drawn" in subtitle(found)
    assert "not drawn" not in subtitle(chart_forests(judged.effects))


def test_a_heat_map_and_a_drift_of_too_many_metrics_are_drawn_without_some(judged: Comparison) -> None:
    one = judged.effects.filter(pl.col("metric") == "Sort")
    stacks = one.filter(~pl.col("control")).height
    many = pl.concat([one.with_columns(metric=pl.lit(f"m{n:04d}")) for n in range(1_000)])
    assert f"{1_000 - 1_500 // stacks:,} more metrics not drawn" in subtitle(chart_heatmap(many, first=["m0999"]))
    rows = judged.observed.values.filter(pl.col("metric") == "Sort")
    long = pl.concat([rows.with_columns(metric=pl.lit(f"m{n:04d}")) for n in range(600)])
    drawn = chart_drift(replace(judged.observed, values=long), judged.drift, first=["m0599"])
    assert "100 more metrics not drawn" in subtitle(drawn)
    (names,) = [layer["encoding"]["color"]["scale"]["domain"] for layer in drawn.to_dict()["layer"][:1]]
    assert (len(names), names[-1]) == (500, "m0599")
