"""How many GPUs do N users need, so that p95 stays at or below T?

Flow: load (HTTP, function, virtual time, imported file) → `requests`, `steps` → points, quantiles → GPU estimates →
verification, manifests

Map, from what goes in to what comes out:

    sizing.load.agent_traces.read_agent_tasks(file) -> AgentTask: calls, what they wait for
    sizing.load.measurement_sources.open_measurements(NotebookConfig) -> Measurements
    sizing.estimation.step_points.assess_steps(requests, steps) -> DataFrame: which levels count, or why not
    sizing.estimation.gpu_estimates.select_usable_levels(points, Goal) -> Level
    sizing.estimation.gpu_estimates.estimate_gpus(requests, steps, points, Goal) -> DataFrame
    sizing.estimation.sizing_answer.compute_answer(requests, steps, Goal) -> SizingAnswer
    sizing.estimation.verification.verify_count(GPUs) -> DataFrame
    sizing.study.build_study(NotebookConfig, Run) -> Study
    sizing.prediction.gpu_prediction.predict_gpus(Predictor, SweepConfig, TimeErrors) -> GpuPrediction
    sizing.autoscaling.comparison.compare_policies(Service, DayTraffic, Policy) -> AutoscalingAnswer

>>> from workbench import sizing
>>> levels = {c: {"llm_latency_p95": 0.5 + 0.1 * c, "workflow_runtime_p95": 3.5 + 0.6 * c} for c in (1, 2, 4, 8)}
>>> done = sizing.calculate(levels=levels, target_workflow_runtime_s=10, target_users=100, test_gpu_count=8)
>>> round(done.calculation.answers[0].gpus, 4)
73.8462
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.sizing.compat_nat.calc_file import SizingMetrics
    from workbench.sizing.compat_nat.calculator import CalculationResult

__all__ = ["calculate", "charts", "config", "study", "tables"]


def calculate(
    output_dir: str | Path | None = None,
    *,
    levels: Mapping[int, SizingMetrics | Mapping[str, Any]] | None = None,
    target_llm_latency_s: float = 0.0,
    target_workflow_runtime_s: float = 0.0,
    target_users: int = 0,
    test_gpu_count: int = 0,
    concurrencies: Iterable[int] | None = None,
    **options: Any,
) -> CalculationResult:
    """How many GPUs by a line through p95 values? `workbench sizing calc` from Python.

    Parameters
    ----------
    output_dir
        Folder of the jobs; offline they are read from its `online` folder.
    levels
        Measured levels in memory, instead of jobs: concurrency to metrics with the file's names (llm_latency_p95,
        workflow_runtime_p95 in s). Nothing is read or written then.
    target_llm_latency_s, target_workflow_runtime_s
        Largest p95 allowed, in s; 0 for none.
    target_users
        Users to be served.
    test_gpu_count
        GPUs that the levels were, or are, measured on.
    concurrencies
        Levels to run online; 1 to 10 without it.
    **options
        Further fields of `calculation.Options`: offline, config_file, endpoint, num_passes, seed, plots, write, rules.

    Returns
    -------
    CalculationResult
        Tables `levels`, `fits` and `estimates`, `charts` by name, `output` as the toolkit's file has it, `notices`,
        `exit_code`, and where it was written.

    Raises
    ------
    ConfigError
        An option that there is not, or that does not go with another.
    InputError
        A file or a level that cannot be used.
    """
    from workbench.sizing.compat_nat import calculation, calculator
    from workbench.sizing.compat_nat.calculation import CalcGoal

    goal = CalcGoal(target_llm_latency_s, target_workflow_runtime_s, target_users, test_gpu_count)
    chosen = calculation.build_options(
        output_dir=output_dir,
        goal=goal,
        concurrencies=None if concurrencies is None else tuple(concurrencies),
        **options,
    )
    if levels is not None:
        calculation.check_options_with_levels(chosen)
        return calculator.calculate_from_levels(levels, goal, chosen.rules)
    return calculator.run_calculation(chosen)
