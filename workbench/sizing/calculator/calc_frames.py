"""The calculator's answer as tables for Python: levels, lines, estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.sizing.calculator.calculation import LABELS, Calculation
from workbench.tables import Column, Table

if TYPE_CHECKING:
    import polars as pl

LEVELS = Table(
    "calc_levels",
    "One row per measured concurrency, in the order in which the calculator sums.",
    ("concurrency",),
    (
        Column("concurrency", "int", "Runs of the workflow in flight."),
        Column("llm_latency_p95_s", "float", "p95 over all LLM calls; null without any.", unit="s", nullable=True),
        Column("wf_runtime_p95_s", "float", "p95 over runs; null without any.", unit="s", nullable=True),
        Column("total_runtime_s", "float", "From the first event to the last.", unit="s", nullable=True),
        Column("n_items", "int", "Runs that were recorded."),
        Column("n_over_llm_target", "int", "Runs whose LLM latency is above its target."),
        Column("n_over_runtime_target", "int", "Runs whose runtime is above its target."),
        Column("interrupted", "bool", "A run failed."),
        Column("llm_outlier", "bool", "Left out of the LLM latency line as an outlier."),
        Column("runtime_outlier", "bool", "Left out of the runtime line as an outlier."),
        Column("left_out", "str", "Why it is in no line; null when it is.", nullable=True),
        Column("rough_gpus_by_llm", "float", "GPUs by this level's LLM latency alone.", nullable=True),
        Column("rough_gpus_by_runtime", "float", "GPUs by this level's runtime alone.", nullable=True),
    ),
)

FITS = Table(
    "calc_fits",
    "One row per metric: its line, or why there is none.",
    ("metric",),
    (
        Column("metric", "str", "wf_runtime or llm_latency."),
        Column("slope_s_per_user", "float", "What each further user adds to p95.", unit="s", nullable=True),
        Column("intercept_s", "float", "p95 without load, by the line.", unit="s", nullable=True),
        Column("r_squared", "float", "Share of the spread that the line explains.", nullable=True),
        Column("outliers_removed", "list[int]", "Concurrencies that were left out."),
        Column("reason", "str", "Why there is no line.", nullable=True),
    ),
)

ESTIMATES = Table(
    "calc_estimates",
    "One row per target that was asked: GPUs by the line, or why there is no number.",
    ("metric",),
    (
        Column("metric", "str", "wf_runtime or llm_latency."),
        Column("limit_s", "float", "Largest p95 allowed.", unit="s"),
        Column("users", "int", "Users to be served."),
        Column("test_gpus", "int", "GPUs that the levels were measured on."),
        Column("gpus", "float", "GPUs for the users, not rounded.", nullable=True),
        Column("reason", "str", "Why there is no estimate.", nullable=True),
    ),
)


def levels(result: Calculation) -> pl.DataFrame:
    """The levels as `calc_levels`."""
    return LEVELS.frame([_level(result, number) for number in result.output.calc_data])


def _level(result: Calculation, number: int) -> dict[str, Any]:
    data = result.output.calc_data[number]
    metrics, alerts, rough = data.sizing_metrics, data.alerts, data.gpu_estimates
    return {
        "concurrency": number,
        # The file has 0 where there is nothing.
        "llm_latency_p95_s": metrics.llm_latency_p95 or None,
        "wf_runtime_p95_s": metrics.workflow_runtime_p95 or None,
        "total_runtime_s": metrics.total_runtime or None,
        "n_items": len(metrics.per_item_metrics),
        "n_over_llm_target": alerts.num_items_greater_than_target_latency,
        "n_over_runtime_target": alerts.num_items_greater_than_target_runtime,
        "interrupted": metrics.alerts.workflow_interrupted,
        "llm_outlier": alerts.outlier_llm_latency,
        "runtime_outlier": alerts.outlier_workflow_runtime,
        "left_out": result.left_out.get(number),
        "rough_gpus_by_llm": rough.gpu_estimate_by_llm_latency,
        "rough_gpus_by_runtime": rough.gpu_estimate_by_wf_runtime,
    }


def fits(result: Calculation) -> pl.DataFrame:
    """The lines as `calc_fits`."""
    rows = []
    for metric in LABELS:
        fit = result.fits[metric]
        line = fit.line
        rows.append(
            {
                "metric": metric,
                "slope_s_per_user": line.slope if line else None,
                "intercept_s": line.intercept if line else None,
                "r_squared": line.r_squared if line else None,
                "outliers_removed": list(line.outliers_removed) if line else [],
                "reason": fit.reason,
            }
        )
    return FITS.frame(rows)


def estimates(result: Calculation) -> pl.DataFrame:
    """The answers as `calc_estimates`."""
    goal = result.goal
    return ESTIMATES.frame(
        [
            {
                "metric": answer.metric,
                "limit_s": float(answer.limit_s),
                "users": goal.target_users,
                "test_gpus": goal.test_gpu_count,
                "gpus": answer.gpus,
                "reason": answer.reason,
            }
            for answer in result.answers
        ]
    )
