"""Outputs of a calculation: data frames, the printed table, the job folder."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from workbench.core.errors import refuse_os_errors
from workbench.core.tables import Column, Table
from workbench.sizing.compat_nat import calc_file
from workbench.sizing.compat_nat.calc_file import LevelData
from workbench.sizing.compat_nat.calculation import METRIC_LABELS, CalcAnswer, Calculation

if TYPE_CHECKING:
    import polars as pl

ALERTS_LEGEND = "Alerts!: W = Workflow interrupted, L = LLM latency outlier, R = Workflow runtime outlier"
Cell = str | int | float | None
LEVELS_TABLE = Table(
    "calc_levels",
    "One row per measured concurrency, in the order of the calculator's sums.",
    ("concurrency",),
    (
        Column("concurrency", "int", "Workflow runs in flight."),
        Column("llm_latency_p95_s", "float", "p95 over all LLM calls; null without any.", unit="s", nullable=True),
        Column("wf_runtime_p95_s", "float", "p95 over runs; null without any.", unit="s", nullable=True),
        Column("total_runtime_s", "float", "From the first event to the last.", unit="s", nullable=True),
        Column("n_items", "int", "Recorded runs."),
        Column("n_over_llm_target", "int", "Runs whose LLM latency is above its target."),
        Column("n_over_runtime_target", "int", "Runs whose runtime is above its target."),
        Column("interrupted", "bool", "A run failed."),
        Column("llm_outlier", "bool", "Excluded from the LLM latency line as an outlier."),
        Column("runtime_outlier", "bool", "Excluded from the runtime line as an outlier."),
        Column("left_out", "str", "Reason why the level is not in the fit; null if it is.", nullable=True),
        Column("rough_gpus_by_llm", "float", "GPUs estimated from the LLM latency of this level only.", nullable=True),
        Column("rough_gpus_by_runtime", "float", "GPUs estimated from the runtime of this level only.", nullable=True),
    ),
)
FITS_TABLE = Table(
    "calc_fits",
    "One row per metric: fitted line, or the reason why there is none.",
    ("metric",),
    (
        Column("metric", "str", "wf_runtime or llm_latency."),
        Column("slope_s_per_user", "float", "Increase of p95 per user.", unit="s", nullable=True),
        Column("intercept_s", "float", "p95 of the line at zero load.", unit="s", nullable=True),
        Column("r_squared", "float", "Coefficient of determination R² of the line.", nullable=True),
        Column("outliers_removed", "list[int]", "Concurrencies excluded as outliers."),
        Column("reason", "str", "Reason why there is no line.", nullable=True),
    ),
)
ESTIMATES_TABLE = Table(
    "calc_estimates",
    "One row per target: GPUs by the line, or the reason why there is no estimate.",
    ("metric",),
    (
        Column("metric", "str", "wf_runtime or llm_latency."),
        Column("limit_s", "float", "Largest allowed p95.", unit="s"),
        Column("users", "int", "Users to serve."),
        Column("test_gpus", "int", "Number of GPUs in the measurement."),
        Column("gpus", "float", "GPUs for the users, not rounded.", nullable=True),
        Column("reason", "str", "Reason why there is no estimate.", nullable=True),
    ),
)
Mode = Literal["online", "offline"]
NOTES_FILE_NAME = "calc_notes.json"
WRITE_ADVICE = "name another folder with --calc_output_dir, or only print with --no_write"


def format_calculation(result: Calculation) -> Iterator[str]:
    """Lines of the printed result: goal, levels, and estimates or the reasons why there are none."""
    from tabulate import tabulate

    goal = result.goal
    yield (
        f"Targets: LLM Latency ≤ {float(goal.target_llm_latency_s)}s, "
        f"Workflow Runtime ≤ {float(goal.target_workflow_runtime_s)}s, Users = {goal.target_users}"
    )
    yield f"Test parameters: GPUs = {goal.test_gpu_count}"
    yield "Per concurrency results:"
    if any(format_alerts(data) for data in result.output.calc_data.values()):
        yield ALERTS_LEGEND
    headers, rows = build_table_columns(result)
    yield from tabulate(rows, headers, tablefmt="github").splitlines()
    for number, reason in result.left_out.items():
        yield f"Concurrency {number} is not in the fit: {reason}"
    if result.answers:
        yield ""
        yield "=== GPU ESTIMATES ==="
    yield from map(format_answer, result.answers)
    gpu_counts = [answer.gpus for answer in result.answers if answer.gpus is not None]
    if len(gpu_counts) > 1:
        yield f"Both targets hold with the larger of them: {max(gpu_counts):.1f}"


def format_answer(answer: CalcAnswer) -> str:
    """Format one answer as a line."""
    name = METRIC_LABELS[answer.metric]
    if answer.gpus is None:
        return f"No estimate ({name}): {answer.reason}"
    return f"Estimated GPU count ({name}): {answer.gpus:.1f}"


def format_alerts(data: LevelData) -> str:
    """Format the alerts of a level as the toolkit does: ! with W, L and R; empty for none.

    >>> format_alerts(LevelData.model_validate({"alerts": {"outlier_llm_latency": True}}))
    '!L'
    """
    alerts = {
        "W": data.sizing_metrics.alerts.workflow_interrupted,
        "L": data.alerts.outlier_llm_latency,
        "R": data.alerts.outlier_workflow_runtime,
    }
    text = "".join(letter for letter, there in alerts.items() if there)
    return f"!{text}" if text else ""


def build_table_columns(result: Calculation) -> tuple[list[str], list[list[Cell]]]:
    """Headers and rows; columns of rough estimates, alerts and counts are left out if empty."""
    levels = result.output.calc_data
    wanted: dict[str, list[Cell]] = {
        "Alerts": [format_alerts(data) for data in levels.values()],
        "Concurrency": list(levels),
        "p95 LLM Latency": [data.sizing_metrics.llm_latency_p95 for data in levels.values()],
        "p95 WF Runtime": [data.sizing_metrics.workflow_runtime_p95 for data in levels.values()],
        "Total Runtime": [data.sizing_metrics.total_runtime for data in levels.values()],
        "GPUs (LLM Latency, Rough)": [data.gpu_estimates.gpu_estimate_by_llm_latency for data in levels.values()],
        "GPUs (WF Runtime, Rough)": [data.gpu_estimates.gpu_estimate_by_wf_runtime for data in levels.values()],
        "Over LLM Target": [data.alerts.num_items_greater_than_target_latency for data in levels.values()],
        "Over WF Target": [data.alerts.num_items_greater_than_target_runtime for data in levels.values()],
    }
    always = ("Concurrency", "p95 LLM Latency", "p95 WF Runtime", "Total Runtime")
    # A float is an estimate, even 0; "", null and a count of 0 are empty.
    columns = {
        name: column
        for name, column in wanted.items()
        if name in always or any(isinstance(value, float) or value for value in column)
    }
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def levels_frame(result: Calculation) -> pl.DataFrame:
    """Table `calc_levels`."""
    rows = [
        {
            "concurrency": number,
            # The file has 0 for missing values.
            "llm_latency_p95_s": data.sizing_metrics.llm_latency_p95 or None,
            "wf_runtime_p95_s": data.sizing_metrics.workflow_runtime_p95 or None,
            "total_runtime_s": data.sizing_metrics.total_runtime or None,
            "n_items": len(data.sizing_metrics.per_item_metrics),
            "n_over_llm_target": data.alerts.num_items_greater_than_target_latency,
            "n_over_runtime_target": data.alerts.num_items_greater_than_target_runtime,
            "interrupted": data.sizing_metrics.alerts.workflow_interrupted,
            "llm_outlier": data.alerts.outlier_llm_latency,
            "runtime_outlier": data.alerts.outlier_workflow_runtime,
            "left_out": result.left_out.get(number),
            "rough_gpus_by_llm": data.gpu_estimates.gpu_estimate_by_llm_latency,
            "rough_gpus_by_runtime": data.gpu_estimates.gpu_estimate_by_wf_runtime,
        }
        for number, data in result.output.calc_data.items()
    ]
    return LEVELS_TABLE.frame(rows)


def fits_frame(result: Calculation) -> pl.DataFrame:
    """Table `calc_fits`."""
    rows = []
    for metric in METRIC_LABELS:
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
    return FITS_TABLE.frame(rows)


def estimates_frame(result: Calculation) -> pl.DataFrame:
    """Table `calc_estimates`."""
    goal = result.goal
    return ESTIMATES_TABLE.frame(
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


def create_job_folder(output_dir: Path, mode: Mode, *, append: bool = False) -> Path:
    """Create the new folder `OUTPUT/MODE/job_SECONDS` (with `append`, `job_UUID`).

    The toolkit names jobs by the second, so two jobs within a second overwrite each other. Here the name is the next
    free second.
    """
    parent = output_dir / mode
    seconds = int(time.time())
    with refuse_os_errors("cannot write the results", parent, do=WRITE_ADVICE):
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = parent / (f"job_{uuid.uuid4()}" if append else f"job_{seconds}")
            try:
                folder.mkdir()
            except FileExistsError:
                seconds += 1
                continue
            return folder


def write_job(folder: Path, result: Calculation, *, notes: dict[str, object], plots: bool) -> list[Path]:
    """Write the calculator's file, a file of notes and, with `plots`, the pictures; returns the paths.

    The calculator's file has exactly the toolkit's schema; the notes have reasons, failures and facts of the run.
    """
    import orjson

    from workbench.core.files import write_text
    from workbench.core.redaction import redact_value

    with refuse_os_errors("cannot write the results", folder, do=WRITE_ADVICE):
        paths = [calc_file.write_calc_file(folder / calc_file.CALC_FILE_NAME, result.output)]
        document = orjson.dumps(redact_value(notes), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
        paths.append(write_text(folder / NOTES_FILE_NAME, document + "\n"))
        if plots:
            from workbench.sizing.compat_nat import calc_charts

            paths += calc_charts.write_pictures(result, folder)
    return paths


def remove_older_jobs(folder: Path, jobs: Sequence[Path]) -> list[str]:
    """Remove these jobs, except `folder` itself, links, and folders that are not jobs.

    Returns
    -------
    list of str
        Names of the removed folders.
    """
    removed = []
    for job in jobs:
        if job == folder or job.is_symlink() or not (job / calc_file.CALC_FILE_NAME).is_file():
            continue
        shutil.rmtree(job)
        removed.append(job.name)
    return removed
