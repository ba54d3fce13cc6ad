"""Which levels count, what is answered, and each deliberate difference from the toolkit; tables and charts of it."""

from __future__ import annotations

import json
import math
from typing import Any

import altair as alt
import pytest

from workbench import sizing
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.compat_nat import calc_charts, calc_outputs
from workbench.sizing.compat_nat.calc_file import SizingMetrics
from workbench.sizing.compat_nat.calculation import CalcGoal, Calculation, calculate_gpus

GOAL = CalcGoal(target_llm_latency_s=3, target_workflow_runtime_s=10, target_users=100, test_gpu_count=8)
LEVELS = (1, 2, 4, 8)


def metrics(llm_s: float, runtime_s: float, *, interrupted: bool = False, items: int = 0) -> SizingMetrics:
    each = {"llm_latency": llm_s, "workflow_runtime": runtime_s}
    times = {"llm_latency_p95": llm_s, "workflow_runtime_p95": runtime_s, "total_runtime": 2 * runtime_s}
    per_item = {"per_item_metrics": {str(number): each for number in range(items)}}
    return SizingMetrics.model_validate({"alerts": {"workflow_interrupted": interrupted}} | times | per_item)


def line(*levels: int, llm: float = 0.2, runtime: float = 0.6) -> dict[int, SizingMetrics]:
    return {level: metrics(0.5 + llm * level, 3.5 + runtime * level) for level in levels}


def by_metric(result: Calculation) -> dict[str, float | None]:
    return {answer.metric: answer.gpus for answer in result.answers}


def test_both_targets_are_answered_each_by_its_own_line() -> None:
    result = calculate_gpus(line(*LEVELS), GOAL)
    by_hand = {"wf_runtime": 100 / ((10 - 3.5) / 0.6) * 8, "llm_latency": 100 / ((3 - 0.5) / 0.2) * 8}
    assert by_metric(result) == pytest.approx(by_hand, rel=1e-9)
    assert result.exit_code == 0


def test_a_target_that_the_line_cannot_meet_leaves_the_other_answer() -> None:
    """The toolkit ends with a traceback here and writes nothing."""
    result = calculate_gpus(line(*LEVELS), CalcGoal(0.5, 10, 100, 8))
    assert by_metric(result)["llm_latency"] is None
    assert by_metric(result)["wf_runtime"] is not None
    assert result.exit_code == 2
    said = "\n".join(calc_outputs.format_calculation(result))
    assert "No estimate (LLM Latency): the target of 0.5 s is not above the 0.5 s" in said
    assert "Estimated GPU count (Workflow Runtime): 73.8" in said


def test_a_line_that_falls_is_a_reason_and_no_crash() -> None:
    result = calculate_gpus(line(*LEVELS, runtime=-0.1), CalcGoal(0, 10, 100, 8))
    assert result.exit_code == 2
    assert "does not rise with the load" in str(result.answers[0].reason)
    assert result.output.fit_results.wf_runtime_fit is not None


def test_a_workflow_without_llm_calls_is_sized_on_its_runtime() -> None:
    """The toolkit calls such levels invalid."""
    result = calculate_gpus({level: metrics(0.0, 3.5 + 0.6 * level) for level in LEVELS}, GOAL)
    assert by_metric(result)["wf_runtime"] is not None
    assert by_metric(result)["llm_latency"] is None
    assert result.answers[1].reason == "the workflow makes no LLM calls"
    rough = [data.gpu_estimates for data in result.output.calc_data.values()]
    assert all(one.gpu_estimate_by_wf_runtime is not None for one in rough)
    assert [one.gpu_estimate_by_llm_latency for one in rough] == [None] * 4
    assert "no LLM call at any level: sized on workflow runtime alone" in result.notices
    assert calc_outputs.levels_frame(result)["llm_latency_p95_s"].to_list() == [None] * 4


def test_a_single_level_without_llm_calls_is_left_out_as_the_toolkit_does() -> None:
    result = calculate_gpus(line(*LEVELS) | {16: metrics(0.0, 13.1)}, GOAL)
    assert result.left_out == {16: "no LLM latency, though other levels have one"}


@pytest.mark.parametrize(
    ("number", "level", "why"),
    [
        (0, metrics(0.7, 4.1), "the load is below 1"),
        (16, metrics(math.nan, 4.1), "llm_latency_p95 is nan"),
        (16, metrics(0.7, math.inf), "workflow_runtime_p95 is inf"),
        (16, metrics(0.7, 0.0), "no workflow runtime"),
        (16, metrics(0.7, 4.1, interrupted=True), "interrupted: a run failed"),
    ],
)
def test_levels_that_say_nothing_are_left_out_with_the_reason(number: int, level: SizingMetrics, why: str) -> None:
    plain = calculate_gpus(line(*LEVELS), GOAL)
    result = calculate_gpus({number: level, **line(*LEVELS)}, GOAL)
    assert result.left_out == {number: why}
    assert result.answers == plain.answers
    assert f"Concurrency {number} is not in the fit: {why}" in list(calc_outputs.format_calculation(result))
    assert json.loads(result.output.text())["calc_data"][str(number)]["gpu_estimates"] == {
        "gpu_estimate_by_wf_runtime": None,
        "gpu_estimate_by_llm_latency": None,
    }


def test_times_below_zero_are_calculated_with_and_told() -> None:
    result = calculate_gpus({level: metrics(level - 2.5, 3 + level) for level in LEVELS}, CalcGoal(0, 10, 100, 8))
    assert "p95 below 0 at concurrency 1, 2: used nevertheless, as in the toolkit" in result.notices
    assert result.exit_code == 0


def test_runs_over_the_target_are_counted_at_levels_that_count() -> None:
    levels = {level: metrics(1.0, 9.0 + level, items=level) for level in LEVELS}
    levels[16] = metrics(1.0, 30.0, items=5, interrupted=True)
    result = calculate_gpus(levels, CalcGoal(0, 10.5, 100, 8))
    counts = {n: data.alerts.num_items_greater_than_target_runtime for n, data in result.output.calc_data.items()}
    assert counts == {1: 0, 2: 2, 4: 4, 8: 8, 16: 0}
    # A run that takes as long as the target allows is not over it.
    at_both = calculate_gpus({1: metrics(3.0, 10.0, items=2), **line(2, 4)}, GOAL).output.calc_data[1].alerts
    assert (at_both.num_items_greater_than_target_latency, at_both.num_items_greater_than_target_runtime) == (0, 0)
    assert "Over WF Target" in "\n".join(calc_outputs.format_calculation(result))


def test_without_users_or_gpus_lines_are_fitted_and_nothing_is_estimated() -> None:
    for goal in (CalcGoal(3, 10, 0, 8), CalcGoal(3, 10, 100, 0), CalcGoal(0, 0, 100, 8)):
        result = calculate_gpus(line(*LEVELS), goal)
        assert result.answers == []
        assert result.exit_code == 0
        assert result.output.fit_results.wf_runtime_fit is not None
        assert result.output.calc_data[1].gpu_estimates.gpu_estimate_by_wf_runtime is None


@pytest.mark.parametrize("levels", [(), (4,)])
def test_too_few_levels_give_a_reason_and_exit_code_1(levels: tuple[int, ...]) -> None:
    result = calculate_gpus(line(*levels), GOAL)
    assert result.exit_code == 1
    assert {answer.gpus for answer in result.answers} == {None}
    assert all("at least 2 usable levels" in str(answer.reason) for answer in result.answers)


@pytest.mark.parametrize(
    "given", [(-1, 10, 100, 8), (math.nan, 10, 100, 8), (0, math.inf, 100, 8), (0, 10, -5, 8), (0, 10, 100, 10**10)]
)
def test_a_goal_that_is_none_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=r"not a (target|count)"):
        CalcGoal(*given)


def test_few_levels_are_told_and_ten_are_not() -> None:
    assert "4 usable level(s): 10 or more are advised for a line" in calculate_gpus(line(*LEVELS), GOAL).notices
    assert calculate_gpus(line(*range(1, 11)), GOAL).notices == []


def test_from_python_levels_in_memory_give_tables_and_charts() -> None:
    levels = {level: metrics.model_dump() for level, metrics in line(*LEVELS).items()}
    done = sizing.calculate(levels=levels, target_workflow_runtime_s=10, target_users=100, test_gpu_count=8)
    assert done.estimates["gpus"].to_list() == [by_metric(done.calculation)["wf_runtime"]]
    assert done.fits["metric"].to_list() == ["wf_runtime", "llm_latency"]
    assert done.levels["concurrency"].to_list() == list(LEVELS)
    assert list(done.charts) == ["concurrency_vs_p95_simple", "concurrency_vs_p95_analysis"]
    assert all(isinstance(chart, alt.TopLevelMixin) for chart in done.charts.values())
    assert "Estimated GPU count (Workflow Runtime): 73.8" in repr(done)
    assert done.folder is None


def test_from_python_a_wrong_name_or_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no such field") as refused:
        sizing.calculate("out", offlin=True)
    assert "offline" in str(refused.value)
    with pytest.raises(InputError, match="wrong type") as wrong:
        sizing.calculate(levels={1: {"llm_latency_p95": "fast"}})
    assert "llm_latency_p95" in str(wrong.value)


def spec_of(goal: CalcGoal, levels: dict[int, SizingMetrics]) -> dict[str, Any]:
    return calc_charts.build_chart_specs(calculate_gpus(levels, goal))


def test_charts_are_valid_and_say_what_was_found() -> None:
    found = spec_of(GOAL, line(*LEVELS))
    drawn = {name: calc_charts.chart_from_spec(spec).to_dict() for name, spec in found.items()}
    panels = drawn["concurrency_vs_p95_analysis"]["hconcat"]
    assert [panel["title"]["text"] for panel in panels] == [
        "p95 Workflow Runtime ≤ 10 s for 100 users: 73.8 GPUs",
        "p95 LLM Latency ≤ 3 s for 100 users: 64.0 GPUs",
    ]
    assert "slope 0.6 s per user, intercept 3.5 s, R² 1.000" in panels[0]["title"]["subtitle"]
    assert "Workflow Runtime at most 10 s: 73.8 GPUs." in found["concurrency_vs_p95_simple"]["description"]


def test_a_fit_of_the_runtime_alone_has_its_panel() -> None:
    """The toolkit draws no analysis then."""
    levels = {level: metrics(1.0, 3.5 + 0.6 * level) for level in LEVELS}
    panels = spec_of(GOAL, levels)["concurrency_vs_p95_analysis"]["hconcat"]
    assert [panel["title"]["text"] for panel in panels] == ["p95 Workflow Runtime ≤ 10 s for 100 users: 73.8 GPUs"]


def test_outliers_are_crosses_and_named() -> None:
    levels = line(1, 2, 4, 8) | {16: metrics(20.0, 55.0)}
    panel = spec_of(GOAL, levels)["concurrency_vs_p95_analysis"]["hconcat"][0]
    rows = panel["layer"][1]["data"]["values"]
    assert [row["concurrency"] for row in rows if row["kind"] != "level"] == [16]
    assert "outliers at 16" in panel["title"]["subtitle"][1]


def test_without_a_level_that_counts_nothing_is_drawn() -> None:
    assert spec_of(GOAL, {}) == {}
    assert spec_of(GOAL, {4: metrics(1.0, 5.0, interrupted=True)}) == {}
    assert list(spec_of(GOAL, line(4))) == ["concurrency_vs_p95_simple"]


def test_levels_in_memory_go_with_rules_and_nothing_that_runs() -> None:
    with pytest.raises(ConfigError, match="without effect on levels in memory") as refused:
        sizing.calculate("out", levels={}, endpoint="http://a")
    assert "found: output_dir, endpoint" in str(refused.value)
    with pytest.raises(ConfigError, match="not a target"):
        sizing.calculate(levels={}, target_workflow_runtime_s="10")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"concurrencies\[0\]: must be a valid integer"):
        sizing.calculate("out", config_file="w.yml", concurrencies=["1", "2"])  # type: ignore[list-item]


def test_alerts_are_letters_in_a_column_of_their_own() -> None:
    levels = line(1, 2, 4, 8) | {16: metrics(20.0, 55.0), 32: metrics(1.0, 2.0, interrupted=True)}
    lines = list(calc_outputs.format_calculation(calculate_gpus(levels, GOAL)))
    assert calc_outputs.ALERTS_LEGEND in lines
    shown = {cells[2].strip(): cells[1].strip() for cells in (row.split("|") for row in lines if row[:1] == "|")}
    assert (shown["1"], shown["16"], shown["32"]) == ("", "!LR", "!W")
    plain = "\n".join(calc_outputs.format_calculation(calculate_gpus(line(1, 2, 4, 8), GOAL)))
    assert "Alerts" not in plain
    assert "Over" not in plain
