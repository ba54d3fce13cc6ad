"""Reads and writes `calc_runner_output.json`; also builds it from the tables of a sweep."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from workbench.core.errors import InputError
from workbench.core.files import write_text

if TYPE_CHECKING:
    import polars as pl

CALC_FILE_NAME = "calc_runner_output.json"
# About 800,000 runs; in memory, a file takes 13 times its size.
MAX_CALC_FILE_BYTES = 64 << 20
MAX_JOBS = 10_000
MAX_LOAD = 10**12
_OLD_KEYS = ("per_concurrency_data", "out_of_range_runs")
SWEEP_FILE_PATH = Path("online") / "job_sweep" / CALC_FILE_NAME


class GpuEstimates(BaseModel):
    """GPUs by either metric, not rounded; null without an answer."""

    gpu_estimate_by_wf_runtime: float | None = None
    gpu_estimate_by_llm_latency: float | None = None


class LineFit(BaseModel):
    """Fitted line: `calculation.Line` in the format of the file."""

    slope: float
    intercept: float
    r_squared: float
    outliers_removed: list[int]


class FitResults(BaseModel):
    """Fitted lines of both metrics; null without one."""

    llm_latency_fit: LineFit | None = None
    wf_runtime_fit: LineFit | None = None


class Alerts(BaseModel):
    """Alerts of the calculation about a level."""

    outlier_workflow_runtime: bool = False
    outlier_llm_latency: bool = False
    num_items_greater_than_target_latency: int = 0
    num_items_greater_than_target_runtime: int = 0


class MetricAlerts(BaseModel):
    """Alerts of the measurement about a level."""

    workflow_interrupted: bool = False


class ItemMetrics(BaseModel):
    """One run of the workflow, in s."""

    llm_latency: float
    workflow_runtime: float


class SizingMetrics(BaseModel):
    """Measurements at a level, in s; 0 where the toolkit has no value."""

    alerts: MetricAlerts = MetricAlerts()
    llm_latency_p95: float = 0.0
    workflow_runtime_p95: float = 0.0
    total_runtime: float = 0.0
    per_item_metrics: dict[str, ItemMetrics] = {}


class LevelData(BaseModel):
    """Level with calculated rough estimates and alerts, and measured metrics."""

    gpu_estimates: GpuEstimates = GpuEstimates()
    alerts: Alerts = Alerts()
    sizing_metrics: SizingMetrics = SizingMetrics()


class CalcOutput(BaseModel):
    """Content of the file."""

    gpu_estimates: GpuEstimates = GpuEstimates()
    fit_results: FitResults = FitResults()
    calc_data: dict[int, LevelData] = {}

    def text(self) -> str:
        """Text of the file, as the toolkit writes it."""
        return self.model_dump_json(indent=2)


@dataclass
class RecordedLevels:
    """Levels of a folder of online jobs: metrics of each level from its newest job, with the name of the job."""

    metrics: dict[int, SizingMetrics] = field(default_factory=dict)
    source: dict[int, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    jobs: int = 0


def read_calc_file(path: str | Path) -> tuple[CalcOutput, list[str]]:
    """Read a calculator's file; returns its content and notices about parts that were skipped.

    Raises
    ------
    InputError
        The file does not exist, is larger than 64 MB, is not JSON, or has a field of another type; the message names
        file and field.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_CALC_FILE_BYTES:
            allowed = f"at most {MAX_CALC_FILE_BYTES:,} bytes"
            raise InputError("calculator's file is too large", where=path, found=f"{size:,} bytes", allowed=allowed)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError("cannot read the file", where=path, found=error.strerror) from error
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", where=path, found=f"byte {error.start}") from error
    try:
        output = CalcOutput.model_validate_json(text)
    except ValidationError as error:
        raise _validation_input_error(path, error) from error
    except RecursionError as error:
        raise InputError("nested too deeply", where=path) from error
    if not output.calc_data and any(key in text for key in _OLD_KEYS):
        # Parse the documented older schema: rough estimates and counts by level; some versions have sizing metrics.
        import json

        document = json.loads(text)
        levels = document.get("per_concurrency_data")
        if not isinstance(levels, dict):
            return CalcOutput(), [f"{path.parent.name}: older schema without levels, nothing to calculate"]
        level_data = {}
        for name, data in levels.items():
            if isinstance(data, dict) and "sizing_metrics" in data:
                metrics, ranges = data["sizing_metrics"], data.get("out_of_range_runs")
                if isinstance(metrics, dict) and isinstance(ranges, dict) and ranges.get("workflow_interrupted"):
                    metrics = {**metrics, "alerts": {"workflow_interrupted": True}}
                level_data[name] = {"sizing_metrics": metrics}
        try:
            output = CalcOutput.model_validate({"calc_data": level_data})
        except ValidationError as error:
            raise _validation_input_error(path, error) from error
        without = [name for name in levels if name not in level_data]
        notices = [f"{path.parent.name}: older schema (per_concurrency_data), {len(level_data)} level(s) read"]
        if without:
            estimates = document.get("gpu_estimates")
            value = estimates.get("gpu_estimate_by_wf_runtime") if isinstance(estimates, dict) else None
            told = f" (the file says {value:.1f} GPUs by workflow runtime)" if isinstance(value, int | float) else ""
            note = f"{path.parent.name}: no p95 values for level(s) {', '.join(name[:20] for name in without[:10])}"
            notices.append(f"{note}: they cannot be calculated again{told}")
        return output, notices
    return output, []


def write_calc_file(path: str | Path, output: CalcOutput) -> Path:
    """Write the file atomically."""
    return write_text(path, output.text())


def read_recorded_levels(folder: str | Path) -> RecordedLevels:
    """Read the levels of all online jobs in a calculator's folder; the newest job of a level counts.

    `folder`: The `--calc_output_dir` of the online runs, with jobs at `online/job_*/calc_runner_output.json`.

    Returns: Levels, newest job first and in the order of each file, which is the order of the sums in a fit.
    `notices` list the jobs that cannot be read.
    """
    online = Path(folder) / "online"
    jobs = list_job_folders(online)
    if not jobs:
        message = "no recorded jobs" if online.is_dir() else "no folder of recorded jobs"
        do = "measure first (without --offline_mode), or name the folder with online/job_*"
        raise InputError(message, where=online, allowed=f"job_*/{CALC_FILE_NAME}", do=do)
    levels, refused = RecordedLevels(jobs=len(jobs)), []
    for job in jobs:
        try:
            output, notices = read_calc_file(job / CALC_FILE_NAME)
        except InputError as error:
            refused.append(error)
            levels.notices.append(f"{job.name} left out: {' '.join(str(error).split())}")
            continue
        levels.notices += notices
        for concurrency, data in output.calc_data.items():
            if abs(concurrency) > MAX_LOAD:
                levels.notices.append(f"{job.name}: level excluded, its load is above {MAX_LOAD:,}")
            elif concurrency not in levels.metrics:
                levels.metrics[concurrency] = data.sizing_metrics
                levels.source[concurrency] = job.name
    if len(refused) == len(jobs):
        raise refused[0]
    return levels


def list_job_folders(mode_folder: str | Path) -> list[Path]:
    """List the jobs in `online` or `offline`, newest first: by modification time, then by the number in the name."""
    folder = Path(mode_folder)
    jobs = [path for path in folder.glob("job_*") if path.is_dir()] if folder.is_dir() else []
    if len(jobs) > MAX_JOBS:
        raise InputError("too many jobs", where=folder, found=len(jobs), allowed=f"at most {MAX_JOBS:,}")

    def rank(path: Path) -> tuple[float, int, str]:
        number = re.fullmatch(r"job_(\d{1,18})", path.name)
        return path.stat().st_mtime, int(number[1]) if number else -1, path.name

    return sorted(jobs, key=rank, reverse=True)


def find_unusable_reason(concurrency: int, metrics: SizingMetrics) -> str | None:
    """Reason why a level of a valid file cannot be used; null if it can.

    Negative times are used with a notice, as in the toolkit.
    """
    if concurrency < 1:
        return "the load is below 1"
    times = {"llm_latency_p95": metrics.llm_latency_p95, "workflow_runtime_p95": metrics.workflow_runtime_p95}
    if odd := [f"{name} is {value}" for name, value in times.items() if not math.isfinite(value)]:
        return ", ".join(odd)
    return None


def _validation_input_error(path: Path, error: ValidationError) -> InputError:
    first, count = error.errors(include_url=False, include_context=False)[0], error.error_count()
    where = ".".join(str(part) for part in first["loc"])
    more = f" and {count - 1} more" if count > 1 else ""
    if first["type"] == "json_invalid":
        return InputError("not JSON", where=path, found=first["msg"][:200])
    text = repr(first["input"])
    text = text if len(text) <= 80 else text[:77] + "..."
    return InputError("field has the wrong type", where=f"{path}, {where}", found=text + more, allowed=first["msg"])


def build_calc_output(requests: pl.DataFrame, steps: pl.DataFrame, judged: pl.DataFrame) -> CalcOutput:
    """Build the calculator's record of the levels of a closed loop from the kept requests.

    Returns: Levels by number of users, each from its last step, in s; 0 without LLM calls, as in the calculator.
    Invalid points (too many failures, client-limited or server-limited) are marked `workflow_interrupted`, which the
    calculator leaves out.

    `requests`, `steps`: Tables of these names. `judged`: Table POINTS.
    """
    from workbench.sizing.estimation import step_points
    from workbench.sizing.tables import USABLE_VERDICTS

    verdicts = dict(judged.select("step", "verdict").iter_rows())
    levels = {}
    for step in steps.filter(steps["users"].is_not_null()).sort("step").iter_rows(named=True):
        kept_requests = step_points.select_kept_requests(
            requests.filter(requests["step"] == step["step"]), step["users"]
        )
        bad = verdicts.get(step["step"]) not in USABLE_VERDICTS or step["stopped"] in ("interrupted", "limit")
        levels[int(step["users"])] = LevelData(
            sizing_metrics=_level_metrics(kept_requests.filter(kept_requests["outcome"] == "ok"), bad)
        )
    return CalcOutput(calc_data=levels)


def write_sweep_calc_file(folder: Path, output: CalcOutput) -> Path:
    """Write the file where both calculators look for jobs with `--calc_output_dir FOLDER`."""
    path = folder / SWEEP_FILE_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_calc_file(path, output)


def _level_metrics(requests: pl.DataFrame, bad: bool) -> SizingMetrics:
    """Metrics of a level in the toolkit's format, from its requests: request, intended_s, ended_s, runtime_s, llm_s.

    `bad`: The level is tagged as interrupted.
    """
    items = {}
    calls: list[float] = []
    for row in requests.iter_rows(named=True):
        calls += row["llm_s"] or []
        items[str(row["request"])] = ItemMetrics(
            llm_latency=percentile_95(row["llm_s"]), workflow_runtime=row["runtime_s"]
        )
    span = (float(requests["intended_s"].min()), float(requests["ended_s"].max())) if requests.height else (0.0, 0.0)  # type: ignore[arg-type]
    return SizingMetrics(
        alerts=MetricAlerts(workflow_interrupted=bad or not requests.height),
        llm_latency_p95=percentile_95(calls),
        workflow_runtime_p95=percentile_95(requests["runtime_s"].to_list()),
        total_runtime=span[1] - span[0],
        per_item_metrics=items,
    )


def percentile_95(values: list[Any] | None) -> float:
    """95th percentile as the calculator records it: 0 without values."""
    import numpy as np

    return float(np.percentile(values, 95)) if values else 0.0
