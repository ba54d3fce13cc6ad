"""Charts of a pair and a fleet draw the rows they are given, in words and colours that say what they mean."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.browser.pages import expected_marks
from workbench.charts import renderer, theme
from workbench.charts.data import list_datasets
from workbench.core.errors import InputError
from workbench.speedup import charts, tables
from workbench.speedup.tables import APPLICATIONS, OPERATORS_AT_STAKE, STEPS
from workbench.stats import Interval

SIDES = {"baseline": "cpu", "candidate": "gpu"}
QUALITIES = ["good", "weak", "not separable", "baseline only", "candidate only"]
VERDICTS = ["FASTER", "UNDECIDED", "SLOWER", "UNDECIDED", "UNDECIDED"]


@pytest.fixture(autouse=True)
def own_theme() -> None:
    theme.enable_theme()


def factors(*, intervals: bool = True) -> pl.DataFrame:
    empty = dict.fromkeys(tables.FACTORS.schema()) | {"baseline_s": 5.0, "candidate_s": 2.0, "runs": "warm"}
    empty |= {"n_baseline_sessions": 5, "n_candidate_sessions": 4, "n_passes": 2, "n_queries": 3}
    empty |= {"measured_factor": 2.0, "shrinkage": 0.1, "candidate_share": 0.2, "own_metric_share": 1.0}
    rows = [
        {"operator": f"Operator {number}", "factor": 2.0 / (number + 1), "quality": quality, "baseline_share": 0.2}
        | {"verdict": verdict if intervals else "UNDECIDED", "note": None if quality == "good" else "why"}
        | ({"factor_low": 1.8 / (number + 1), "factor_high": 2.2 / (number + 1)} if intervals else {})
        for number, (quality, verdict) in enumerate(zip(QUALITIES, VERDICTS, strict=True))
    ]
    return tables.FACTORS.frame([empty | row for row in rows])


def pairs() -> pl.DataFrame:
    row = {"baseline_s": 2.0, "candidate_s": 1.0, "ratio": 2.0, "ratio_low": 1.5, "ratio_high": 2.5, "runs": "warm"}
    row |= {"verdict": "FASTER", "adjusted_p_value": 0.01, "n_baseline_sessions": 5, "n_candidate_sessions": 5}
    return tables.PAIRS.frame([row | {"query": query} for query in ("q1", "q2", "q3")])


def validation() -> pl.DataFrame:
    rows = [
        {"predictor": predictor, "query": f"q{number}", "baseline_s": 2.0 * number, "actual_s": float(number)}
        | {"predicted_s": number * (1 + 0.1 * number), "log_error": 0.1 * number, "absolute_error_share": 0.1 * number}
        | {"predicted_low_s": number * 0.8, "predicted_high_s": number * 2.0, "covered": True}
        | (dict.fromkeys(("predicted_low_s", "predicted_high_s", "covered")) if predictor == "seed" else {})
        | {"direction_right": True, "time_weight": None}
        for predictor in ("calibrated", "constant", "seed")
        for number in range(1, 7)
    ]
    return tables.VALIDATION.frame(rows)


def one_way(query: str, before_s: float) -> list[dict[str, Any]]:
    empty = dict.fromkeys(STEPS.schema())
    kinds = [("cpu", "baseline", True, before_s, before_s), ("Sort", "faster", False, -1.0, before_s - 1)]
    kinds += [("gpu, predicted", "predicted", True, before_s - 1, before_s - 1)]
    kinds += [("gpu, measured", "measured", True, before_s, before_s)]
    names = ("what", "kind", "total", "time_s", "end_s")
    return [
        empty | {"query": query, "step": number} | dict(zip(names, row, strict=True))
        for number, row in enumerate(kinds)
    ]


def applications() -> pl.DataFrame:
    empty: dict[str, Any] = dict.fromkeys(APPLICATIONS.schema()) | {"unsupported_operators": [], "n_queries": 1}
    judged = [
        {"log": f"log {number}", "app_name": "nightly", "recommendation": "recommended", "baseline_s": 10.0}
        | {"saved_s": 5.0 - number, "saved_low_s": 2.0 - number, "saved_high_s": 6.0, "predicted_s": 5.0 + number}
        for number in range(4)
    ]
    return APPLICATIONS.frame([empty | row for row in judged] + [empty | {"log": "x", "recommendation": "not judged"}])


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return max(list_datasets(spec), key=len)


def test_factors_are_drawn_in_their_verdicts_colours_and_one_sided_operators_are_only_counted() -> None:
    spec = charts.chart_factors(factors(), **SIDES).to_dict()
    assert [row["operator"] for row in rows_of(spec)] == ["Operator 0", "Operator 1", "Operator 2"]
    assert "2 on one side only" in spec["title"]["subtitle"]
    scale = spec["layer"][2]["encoding"]["fill"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True))["SLOWER"] == theme.COLOURS["failure"]
    assert [row["weak"] for row in rows_of(spec)] == [False, True, False]
    assert rows_of(spec)[0]["n"] == "5 and 4 sessions x 2 passes"


def test_factors_of_one_session_have_dots_and_no_intervals() -> None:
    spec = charts.chart_factors(factors(intervals=False), **SIDES).to_dict()
    assert list(expected_marks(spec).values()) == [1, 0, 3]


def test_the_overall_ratio_stands_in_the_last_row() -> None:
    overall = Interval(1.8, 1.6, 2.0, 0.9, 5, "Welch")
    rows = rows_of(charts.chart_pairs(pairs(), overall, "FASTER", **SIDES).to_dict())
    assert (rows[-1]["query"], rows[-1]["speedup_ratio"], rows[-1]["ratio_low"]) == ("all queries", 1.8, 1.6)
    assert len(rows) == 4


def test_an_overall_ratio_without_interval_is_drawn_as_a_dot() -> None:
    overall = Interval(1.8, None, None, 0.9, 1, "one session")
    spec = charts.chart_pairs(pairs(), overall, "UNDECIDED", **SIDES).to_dict()
    assert list(expected_marks(spec).values()) == [1, 3, 4]
    assert rows_of(spec)[-1]["decided"] is False


def test_the_longest_query_is_shown_first_unless_another_is_asked_for() -> None:
    steps = STEPS.frame(one_way("q1", 2.0) + one_way("q2", 9.0))
    assert charts.chart_steps(steps).to_dict()["params"][0]["value"] == "q2"
    assert charts.chart_steps(steps, query="q1").to_dict()["params"][0]["value"] == "q1"
    with pytest.raises(InputError, match="no such case"):
        charts.chart_steps(steps, query="q7")


def test_a_chart_of_changed_factors_says_so() -> None:
    steps = STEPS.frame(one_way("q1", 2.0))
    assert "2 changed factors" in charts.chart_steps(steps, changed=2).to_dict()["title"]["subtitle"]
    assert "changed" not in charts.chart_steps(steps).to_dict()["title"]["subtitle"]


def test_only_our_predictor_is_seen_at_first_with_its_worst_named() -> None:
    spec = charts.chart_validation(validation(), level=0.9).to_dict()
    marks = expected_marks(spec)
    assert marks["layer_2_marks"] == 6
    assert [row["query"] for row in rows_of(spec) if row["worst"]] == ["q4", "q5", "q6"]
    boxes = [param["bind"]["name"] for param in spec["params"] if isinstance(param.get("bind"), dict)]
    assert boxes == ["Show constant ", "Show seed "]
    assert "90 % prediction intervals" in spec["title"]["subtitle"]


def test_applications_of_one_name_are_told_apart_by_their_logs_and_unjudged_ones_are_counted() -> None:
    spec = charts.chart_applications(applications(), top=3).to_dict()
    assert [row["label"] for row in rows_of(spec)] == [f"log {number} · nightly" for number in range(3)]
    assert "1 more not shown · 1 not judged" in spec["title"]["subtitle"]


def test_operators_at_stake_are_ranked_by_their_time() -> None:
    rows = [
        {"operator": name, "kind": "unsupported", "n_applications": 1, "n_queries": 2, "baseline_s": seconds}
        for name, seconds in (("Window", 1.0), ("Generate", 9.0))
    ]
    spec = charts.chart_at_stake(OPERATORS_AT_STAKE.frame(rows), top=5).to_dict()
    assert [row["operator"] for row in rows_of(spec)] == ["Generate", "Window"]


def test_charts_without_rows_draw() -> None:
    none = [
        charts.chart_factors(factors().clear(), **SIDES),
        charts.chart_steps(STEPS.frame([])),
        charts.chart_validation(validation().clear(), level=0.9),
        charts.chart_applications(applications().clear()),
        charts.chart_at_stake(OPERATORS_AT_STAKE.frame([]), top=3),
    ]
    assert all(renderer.render_png(chart.to_dict())[:4] == b"\x89PNG" for chart in none)
