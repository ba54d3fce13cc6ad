"""From measured levels to the calculator's answer: which levels count, two lines, estimates with reasons. Pure.

The rules are those of NeMo Agent Toolkit 1.9.0 but for what its guide page lists as deliberate differences: a question
that the line cannot answer gives a reason and not a crash, for each metric by itself; a workflow without LLM calls is
sized on its runtime; levels that are not finite or below a load of 1 are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from workbench.errors import ConfigError
from workbench.sizing import slope
from workbench.sizing.calculator.calcfile import (
    Alerts,
    CalcOutput,
    FitResults,
    GpuEstimates,
    LevelData,
    LineFit,
    SizingMetrics,
    unusable,
)

Metric = Literal["llm_latency", "wf_runtime"]
LABELS: dict[Metric, str] = {"wf_runtime": "Workflow Runtime", "llm_latency": "LLM Latency"}
INTERRUPTED = "interrupted: a run failed"
LARGEST_COUNT = 10**9
ADVISED_LEVELS = 10


@dataclass(frozen=True)
class Goal:
    """What is asked: p95 limits in s (0: none), users to be served, GPUs that the levels were measured on.

    Raises
    ------
    ConfigError
        A value is negative, not finite, or absurdly large.
    """

    target_llm_latency_s: float = 0.0
    target_workflow_runtime_s: float = 0.0
    target_users: int = 0
    test_gpu_count: int = 0

    def __post_init__(self) -> None:
        allowed = f"0 (not asked) to {LARGEST_COUNT:,}"
        for name, value in vars(self).items():
            if not isinstance(value, int | float) or not 0 <= value <= LARGEST_COUNT:
                raise ConfigError(
                    "not a target" if "target" in name else "no count", where=name, found=value, allowed=allowed
                )

    def limit_s(self, metric: Metric) -> float:
        """The limit on a metric, 0 for none."""
        return self.target_llm_latency_s if metric == "llm_latency" else self.target_workflow_runtime_s

    @property
    def asked(self) -> tuple[Metric, ...]:
        """The metrics that GPUs are asked for; none without users or GPUs."""
        known = self.target_users > 0 and self.test_gpu_count > 0
        return tuple(metric for metric in LABELS if known and self.limit_s(metric) > 0)


@dataclass(frozen=True)
class Answer:
    """GPUs by one metric, or why there are none; `refused` where the toolkit crashes."""

    metric: Metric
    limit_s: float
    gpus: float | None
    reason: str | None = None
    refused: bool = False


@dataclass
class Calculation:
    """The file's content, the answer to each limit, which levels were left out and why, and what else to know."""

    goal: Goal
    output: CalcOutput
    answers: list[Answer] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)
    fits: dict[Metric, slope.Fit] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 all asked is answered; 2 the line cannot answer it; 1 the levels give no line."""
        unanswered = [answer for answer in self.answers if answer.gpus is None]
        return 2 if any(answer.refused for answer in unanswered) else 1 if unanswered else 0

    @property
    def used(self) -> list[int]:
        """The levels that the lines rest on, outliers included."""
        return [level for level in self.output.calc_data if level not in self.left_out]


def calculated(metrics: Mapping[int, SizingMetrics], goal: Goal, rules: slope.FitRules = slope.RULES) -> Calculation:
    """How many GPUs does the goal need, by the line through these levels?

    Parameters
    ----------
    metrics
        What was measured at each concurrency, in the order in which it is summed.
    goal
        Limits, users, GPUs.
    rules
        Outliers and the least R².

    Returns
    -------
    Calculation
        With `output` as the toolkit would write it; where that would have crashed, nulls and a reason.

    Notes
    -----
    A level counts when both p95 values are there and it was not interrupted. Without any LLM call at any level, the
    runtime alone must be there. Rough estimates and counts over the target are given for levels that count.
    """
    result = Calculation(goal, CalcOutput())
    usable = [level for number, level in metrics.items() if unusable(number, level) is None]
    calls = any(level.llm_latency_p95 for level in usable) or not any(level.workflow_runtime_p95 for level in usable)
    result.left_out = {
        number: why for number, level in metrics.items() if (why := _left_out(number, level, calls=calls))
    }
    good = {number: level for number, level in metrics.items() if number not in result.left_out}
    result.notices = _notices(metrics, good, calls=calls)
    result.fits = _fits(good, rules, calls=calls)
    result.output.fit_results = FitResults(
        llm_latency_fit=_written(result.fits["llm_latency"]), wf_runtime_fit=_written(result.fits["wf_runtime"])
    )
    for number, level in metrics.items():
        result.output.calc_data[number] = LevelData(sizing_metrics=level)
        if number in good:
            _fill(result.output.calc_data[number], number, result, calls=calls)
    result.answers = [_answer(metric, goal, result.fits[metric]) for metric in goal.asked]
    gpus = {answer.metric: answer.gpus for answer in result.answers}
    result.output.gpu_estimates = GpuEstimates(
        gpu_estimate_by_wf_runtime=gpus.get("wf_runtime"), gpu_estimate_by_llm_latency=gpus.get("llm_latency")
    )
    return result


def _left_out(number: int, level: SizingMetrics, *, calls: bool) -> str | None:
    if why := unusable(number, level):
        return why
    if not level.workflow_runtime_p95:
        return "no workflow runtime"
    if calls and not level.llm_latency_p95:
        return "no LLM latency, though other levels have one"
    return INTERRUPTED if level.alerts.workflow_interrupted else None


def _notices(metrics: Mapping[int, SizingMetrics], good: Mapping[int, SizingMetrics], *, calls: bool) -> list[str]:
    notices = []
    if good and not calls:
        notices.append("no LLM call at any level: sized on workflow runtime alone")
    negative = [n for n, level in good.items() if min(level.llm_latency_p95, level.workflow_runtime_p95) < 0]
    if negative:
        notices.append(f"p95 below 0 at concurrency {listed(negative)}: no duration is, yet it is calculated with")
    if metrics and len(good) < ADVISED_LEVELS:
        notices.append(f"{len(good)} usable level(s): a line should rest on {ADVISED_LEVELS} or more")
    return notices


def _fits(good: Mapping[int, SizingMetrics], rules: slope.FitRules, *, calls: bool) -> dict[Metric, slope.Fit]:
    levels = list(good)
    runtime = slope.fit_line(levels, [good[n].workflow_runtime_p95 for n in levels], rules)
    if not calls:
        return {"wf_runtime": runtime, "llm_latency": slope.Fit(None, "the workflow makes no LLM calls")}
    return {
        "wf_runtime": runtime,
        "llm_latency": slope.fit_line(levels, [good[n].llm_latency_p95 for n in levels], rules),
    }


def _written(fit: slope.Fit) -> LineFit | None:
    line = fit.line
    if line is None:
        return None
    return LineFit(
        slope=line.slope,
        intercept=line.intercept,
        r_squared=line.r_squared,
        outliers_removed=list(line.outliers_removed),
    )


def _fill(data: LevelData, number: int, result: Calculation, *, calls: bool) -> None:
    """What is calculated for a level that counts: outliers, and with a goal rough GPUs and items over the target."""
    outlier = {
        metric: fit.line is not None and number in fit.line.outliers_removed for metric, fit in result.fits.items()
    }
    data.alerts = Alerts(outlier_workflow_runtime=outlier["wf_runtime"], outlier_llm_latency=outlier["llm_latency"])
    goal, level = result.goal, data.sizing_metrics
    if not goal.asked:
        return
    llm, runtime = goal.target_llm_latency_s, goal.target_workflow_runtime_s
    rough = slope.rough_gpus(
        number,
        llm_latency_s=level.llm_latency_p95,
        wf_runtime_s=level.workflow_runtime_p95,
        target_llm_s=llm,
        target_runtime_s=runtime,
        users=goal.target_users,
        test_gpus=goal.test_gpu_count,
    )
    data.gpu_estimates.gpu_estimate_by_wf_runtime = rough.by_wf_runtime
    data.gpu_estimates.gpu_estimate_by_llm_latency = rough.by_llm_latency if calls else None
    items = level.per_item_metrics.values()
    data.alerts.num_items_greater_than_target_latency = sum(llm > 0 and item.llm_latency > llm for item in items)
    data.alerts.num_items_greater_than_target_runtime = sum(
        runtime > 0 and item.workflow_runtime > runtime for item in items
    )


def _answer(metric: Metric, goal: Goal, fit: slope.Fit) -> Answer:
    limit_s = goal.limit_s(metric)
    if fit.line is None:
        return Answer(metric, limit_s, None, fit.reason)
    found = slope.gpus_by_slope(fit.line, target_s=limit_s, users=goal.target_users, test_gpus=goal.test_gpu_count)
    return Answer(metric, limit_s, found.gpus, found.reason, found.refused)


def listed(numbers: list[int], most: int = 12) -> str:
    """Numbers in a sentence, the first dozen.

    Examples
    --------
    >>> listed([1, 2, 4])
    '1, 2, 4'
    """
    return ", ".join(map(str, numbers[:most])) + (f" and {len(numbers) - most} more" if len(numbers) > most else "")
