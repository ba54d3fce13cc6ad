"""Reads and writes `calc_runner_output.json`, also from the tables of a sweep."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from workbench.core.errors import InputError
from workbench.core.files import write_text

if TYPE_CHECKING:
    import polars as pl

CALC_FILE_NAME = "calc_runner_output.json"
# Some 800,000 runs; read, a file takes thirteen times its size.
MAX_CALC_FILE_BYTES = 64 << 20
MAX_JOBS = 10_000
MAX_LOAD = 10**12
_OLD_KEYS = ("per_concurrency_data", "out_of_range_runs")


class GpuEstimates(BaseModel):
    """GPUs by either metric, not rounded; null where there is no answer."""

    gpu_estimate_by_wf_runtime: float | None = None
    gpu_estimate_by_llm_latency: float | None = None


class LineFit(BaseModel):
    """A fitted line: `slope.Line` in the file's form."""

    slope: float
    intercept: float
    r_squared: float
    outliers_removed: list[int]


class FitResults(BaseModel):
    """The lines of both metrics; null where there is none."""

    llm_latency_fit: LineFit | None = None
    wf_runtime_fit: LineFit | None = None


class Alerts(BaseModel):
    """What the calculation found odd about a level."""

    outlier_workflow_runtime: bool = False
    outlier_llm_latency: bool = False
    num_items_greater_than_target_latency: int = 0
    num_items_greater_than_target_runtime: int = 0


class MetricAlerts(BaseModel):
    """What the measurement found odd about a level."""

    workflow_interrupted: bool = False


class ItemMetrics(BaseModel):
    """One run of the workflow, in s."""

    llm_latency: float
    workflow_runtime: float


class SizingMetrics(BaseModel):
    """What was measured at a level, in s; 0 where the toolkit has nothing."""

    alerts: MetricAlerts = MetricAlerts()
    llm_latency_p95: float = 0.0
    workflow_runtime_p95: float = 0.0
    total_runtime: float = 0.0
    per_item_metrics: dict[str, ItemMetrics] = {}


class LevelData(BaseModel):
    """A level: rough estimates and alerts that were calculated, metrics that were measured."""

    gpu_estimates: GpuEstimates = GpuEstimates()
    alerts: Alerts = Alerts()
    sizing_metrics: SizingMetrics = SizingMetrics()


class CalcOutput(BaseModel):
    """The whole file."""

    gpu_estimates: GpuEstimates = GpuEstimates()
    fit_results: FitResults = FitResults()
    calc_data: dict[int, LevelData] = {}

    def text(self) -> str:
        """The file's text, as the toolkit writes it."""
        return self.model_dump_json(indent=2)


@dataclass
class RecordedLevels:
    """What lay in a folder of online jobs: a level's metrics from the newest job that has it, and where from."""

    metrics: dict[int, SizingMetrics] = field(default_factory=dict)
    source: dict[int, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    jobs: int = 0


def read_calc_file(path: str | Path) -> tuple[CalcOutput, list[str]]:
    """Read a calculator's file; give it with notices about what could not be taken over.

    Raises
    ------
    InputError
        There is no such file, it is larger than 64 MB, is no JSON, or a field has another type; the message names
        file and field.
    """
    path = Path(path)
    text = _read_bounded_text(path)
    try:
        output = CalcOutput.model_validate_json(text)
    except ValidationError as error:
        raise _validation_input_error(path, error) from error
    except RecursionError as error:
        raise InputError("nested too deeply", where=path) from error
    if not output.calc_data and any(key in text for key in _OLD_KEYS):
        return _parse_older_schema(path, text)
    return output, []


def write_calc_file(path: str | Path, output: CalcOutput) -> Path:
    """Write the file whole or not at all."""
    return write_text(path, output.text())


def read_recorded_levels(folder: str | Path) -> RecordedLevels:
    """Gather the levels of all online jobs below a calculator's folder; of a level measured twice the newest counts.

    Parameters
    ----------
    folder
        What was `--calc_output_dir` online: jobs lie at `online/job_*/calc_runner_output.json`.

    Returns
    -------
    Recorded
        Levels in the order met (newest job first, each in its file's order): the order of the sums in a fit. Jobs that
        cannot be read are told in `notices`.

    Raises
    ------
    InputError
        There is no `online` folder or no job in it, no job could be read, or there are more than 10,000.
    """
    online = Path(folder) / "online"
    jobs = list(list_job_folders(online))
    if not jobs:
        what = "no recorded jobs" if online.is_dir() else "no folder of recorded jobs"
        do = "measure first (without --offline_mode), or name the folder that holds online/job_*"
        raise InputError(what, where=online, allowed=f"job_*/{CALC_FILE_NAME}", do=do)
    found, refused = RecordedLevels(jobs=len(jobs)), []
    for job in jobs:
        try:
            output, notices = read_calc_file(job / CALC_FILE_NAME)
        except InputError as error:
            refused.append(error)
            found.notices.append(f"{job.name} left out: {' '.join(str(error).split())}")
            continue
        found.notices += notices
        for concurrency, data in output.calc_data.items():
            if abs(concurrency) > MAX_LOAD:
                found.notices.append(f"{job.name}: level of more than {MAX_LOAD:,} left out, no service has that load")
            elif concurrency not in found.metrics:
                found.metrics[concurrency] = data.sizing_metrics
                found.source[concurrency] = job.name
    if len(refused) == len(jobs):
        raise refused[0]
    return found


def list_job_folders(mode_folder: str | Path) -> Iterator[Path]:
    """The jobs below `online` or `offline`, newest first: by time of change, then by the number in the name.

    Raises
    ------
    InputError
        There are more than 10,000.
    """
    folder = Path(mode_folder)
    jobs = [path for path in folder.glob("job_*") if path.is_dir()] if folder.is_dir() else []
    if len(jobs) > MAX_JOBS:
        raise InputError("too many jobs", where=folder, found=len(jobs), allowed=f"at most {MAX_JOBS:,}")
    yield from sorted(jobs, key=_job_sort_key, reverse=True)


def _job_sort_key(path: Path) -> tuple[float, int, str]:
    number = re.fullmatch(r"job_(\d{1,18})", path.name)
    return path.stat().st_mtime, int(number[1]) if number else -1, path.name


def find_unusable_reason(concurrency: int, metrics: SizingMetrics) -> str | None:
    """Why a level cannot be calculated with although the file is well formed; null when it can.

    Negative times are no reason: the toolkit calculates with them, and so do we (a notice says so).
    """
    if concurrency < 1:
        return "a load below 1 is none"
    times = {"llm_latency_p95": metrics.llm_latency_p95, "workflow_runtime_p95": metrics.workflow_runtime_p95}
    if odd := [f"{name} is {value}" for name, value in times.items() if not math.isfinite(value)]:
        return ", ".join(odd)
    return None


def _read_bounded_text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_CALC_FILE_BYTES:
            allowed = f"at most {MAX_CALC_FILE_BYTES:,} bytes"
            raise InputError("file too large for a calculator's", where=path, found=f"{size:,} bytes", allowed=allowed)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror) from error
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", where=path, found=f"byte {error.start}") from error


def _validation_input_error(path: Path, error: ValidationError) -> InputError:
    first, count = error.errors(include_url=False, include_context=False)[0], error.error_count()
    where = ".".join(str(part) for part in first["loc"])
    more = f" and {count - 1} more" if count > 1 else ""
    if first["type"] == "json_invalid":
        return InputError("not JSON", where=path, found=first["msg"][:200])
    found = f"{_shorten_repr(first['input'])}{more}"
    return InputError("a field of another type", where=f"{path}, {where}", found=found, allowed=first["msg"])


def _shorten_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _parse_older_schema(path: Path, text: str) -> tuple[CalcOutput, list[str]]:
    """The documented older form: rough estimates and counts by level, sizing metrics only in some of its versions."""
    import json

    document = json.loads(text)
    levels = document.get("per_concurrency_data")
    if not isinstance(levels, dict):
        return CalcOutput(), [f"{path.parent.name}: an older schema without levels: nothing to calculate with"]
    given = {
        name: _convert_older_level(data)
        for name, data in levels.items()
        if isinstance(data, dict) and "sizing_metrics" in data
    }
    try:
        output = CalcOutput.model_validate({"calc_data": given})
    except ValidationError as error:
        raise _validation_input_error(path, error) from error
    without = [name for name in levels if name not in given]
    notices = [f"{path.parent.name}: older schema (per_concurrency_data), {len(given)} level(s) taken over"]
    if without:
        said = _format_file_estimate(document)
        told = f"{path.parent.name}: no p95 values for level(s) {', '.join(map(_shorten_level_name, without[:10]))}"
        notices.append(f"{told}: they cannot be calculated again{said}")
    return output, notices


def _convert_older_level(data: dict[str, Any]) -> dict[str, Any]:
    metrics, ranges = data["sizing_metrics"], data.get("out_of_range_runs")
    if isinstance(metrics, dict) and isinstance(ranges, dict) and ranges.get("workflow_interrupted"):
        metrics = {**metrics, "alerts": {"workflow_interrupted": True}}
    return {"sizing_metrics": metrics}


def _format_file_estimate(document: dict[str, Any]) -> str:
    estimates = document.get("gpu_estimates")
    value = estimates.get("gpu_estimate_by_wf_runtime") if isinstance(estimates, dict) else None
    return f" (the file says {value:.1f} GPUs by workflow runtime)" if isinstance(value, int | float) else ""


def _shorten_level_name(name: str) -> str:
    return name[:20]


SWEEP_FILE_PATH = Path("online") / "job_sweep" / CALC_FILE_NAME


def build_calc_output(requests: pl.DataFrame, steps: pl.DataFrame, judged: pl.DataFrame) -> CalcOutput:
    """What the calculator would have recorded at the levels of a closed loop, from the requests that count.

    Parameters
    ----------
    requests, steps, judged
        The tables `requests`, `steps` and `points` of a sweep.

    Returns
    -------
    CalcOutput
        A level by its users, the last step that held them. A point that is not valid (too many failures, or it says
        more of the client or of an admission cap than of the service) is `workflow_interrupted`, which the calculator
        leaves out. Seconds; 0 where there are no model calls, as the calculator has it.
    """
    from workbench.sizing.estimation import step_points
    from workbench.sizing.tables import USABLE_VERDICTS

    verdicts = dict(judged.select("step", "verdict").iter_rows())
    levels = {}
    for step in steps.filter(steps["users"].is_not_null()).sort("step").iter_rows(named=True):
        kept = step_points.select_kept_requests(requests.filter(requests["step"] == step["step"]), step["users"])
        bad = verdicts.get(step["step"]) not in USABLE_VERDICTS or step["stopped"] in ("interrupted", "limit")
        levels[int(step["users"])] = LevelData(sizing_metrics=_level_metrics(kept.filter(kept["outcome"] == "ok"), bad))
    return CalcOutput(calc_data=levels)


def write_sweep_calc_file(folder: Path, output: CalcOutput) -> Path:
    """Write it where both calculators look for jobs below `--calc_output_dir FOLDER`."""
    path = folder / SWEEP_FILE_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_calc_file(path, output)


def _level_metrics(kept: pl.DataFrame, bad: bool) -> SizingMetrics:
    items = {}
    calls: list[float] = []
    for row in kept.iter_rows(named=True):
        calls += row["llm_s"] or []
        items[str(row["request"])] = ItemMetrics(
            llm_latency=percentile_95(row["llm_s"]), workflow_runtime=row["runtime_s"]
        )
    span = (float(kept["intended_s"].min()), float(kept["ended_s"].max())) if kept.height else (0.0, 0.0)  # type: ignore[arg-type]
    return SizingMetrics(
        alerts=MetricAlerts(workflow_interrupted=bad or not kept.height),
        llm_latency_p95=percentile_95(calls),
        workflow_runtime_p95=percentile_95(kept["runtime_s"].to_list()),
        total_runtime=span[1] - span[0],
        per_item_metrics=items,
    )


def percentile_95(values: list[Any] | None) -> float:
    """The 95th percentile as the calculator records it: 0 where there are no values."""
    import numpy as np

    return float(np.percentile(values, 95)) if values else 0.0
