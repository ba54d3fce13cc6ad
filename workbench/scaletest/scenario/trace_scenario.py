"""Scenarios that replay the jobs of a trace, compressed in time."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.scenario.arrival_processes import JOB_COLUMNS
from workbench.scaletest.scenario.scenario_file import load_scenario
from workbench.scaletest.scenario.workload_plan import draw_plan, summarize_plan

TraceFormat = Literal["philly", "pai", "openb", "plain"]
FORMATS = get_args(TraceFormat)
MAX_TRACE_BYTES = 2 << 30
PAI_TASKS = "pai_task_table.csv"
_PAI_JOBS = "pai_job_table.csv"
_PAI_JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_PAI_TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_OPENB_COLUMNS = ("num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
_PLAIN_COLUMNS = ("submit_s", "run_s", "gpus_per_pod")
_SCHEMA = {
    "submit_s": pl.Float64,
    "run_s": pl.Float64,
    "pods": pl.Int64,
    "gpus_per_pod": pl.Float64,
    "wait_s": pl.Float64,
}
MAX_PODS, MAX_GPUS_PER_POD = 5000, 64
_Row = tuple[float, float, int, float, float | None]
_Read = tuple[list[_Row], Counter[str]]
SCENARIO_NAME, JOBS_NAME = "scenario.yaml", "jobs.csv"
# A pod holds its GPUs some 50 ms longer than it runs, on a control plane on one machine: 5 % of a second.
MIN_MEDIAN_RUN_S = 1.0
# Without a speed: the jobs come within ten minutes, unless the median job would last less than two seconds.
_SUBMISSION_S, _MEDIAN_RUN_S = 600.0, 2.0
_MAX_ENTRIES = 100
_MAX_TIME_S = 7 * 86_400
_MARGIN_S = 300


@dataclass(frozen=True)
class JobTrace:
    """Jobs of a trace in order of submission.

    `jobs`: `submit_s` and `run_s` (seconds of the trace; the first job need not be at 0), `pods`, `gpus_per_pod` (may
    be a share of one), `wait_s` (queue wait in the trace; null where it is not recorded).
    """

    jobs: pl.DataFrame
    left_out: dict[str, int]
    format: TraceFormat

    @property
    def n_read(self) -> int:
        """Jobs in the file, used or not."""
        return self.jobs.height + sum(self.left_out.values())


def read_job_trace(path: str | Path, trace_format: TraceFormat | None = None) -> JobTrace:
    """Read the GPU jobs of a trace.

    `path`: `cluster_job_log` of Philly (JSON); the folder with `pai_job_table.csv` and `pai_task_table.csv` of
    Alibaba's cluster-trace-gpu-v2020 (or one of these files), with or without a first line of names; a pod list
    `openb_pod_list_*.csv` of cluster-trace-gpu-v2023; or a CSV file with the columns submit_s, run_s, gpus_per_pod
    and, if jobs have several, pods.

    A job runs from its start to its end, without its wait. Of Philly, all attempts of a job together, with the GPUs of
    the last one. Of PAI, from the first start of a task with GPUs to the last end, without tasks that have none. Left
    out and counted are jobs without GPUs, that never started, whose end is unknown, that end before they begin, or
    whose pods differ in GPUs. Source of the columns: the READMEs of both traces, read in November 2026.
    """
    place = Path(path)
    chosen = trace_format or _find_format(place)
    rows, left_out = _READERS[chosen](place)
    jobs = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    counted = Counter(left_out)
    for reason, is_wrong in (
        ("no GPU", pl.col("gpus_per_pod") <= 0),
        ("ends before it begins, or lasts no time", ~(pl.col("run_s") > 0)),
        (
            "more pods or GPUs than a scenario takes",
            (pl.col("pods") > MAX_PODS) | (pl.col("gpus_per_pod") > MAX_GPUS_PER_POD),
        ),
    ):
        counted[reason] += jobs.filter(is_wrong).height
        jobs = jobs.filter(~is_wrong)
    drop_counts = {reason: count for reason, count in counted.most_common() if count}
    return JobTrace(jobs.sort("submit_s", maintain_order=True), drop_counts, chosen)


def _find_format(place: Path) -> TraceFormat:
    if place.is_dir() or place.name in (_PAI_JOBS, PAI_TASKS):
        return "pai"
    try:
        with place.open("rb") as file:
            begin = file.read(4096)
    except OSError as error:
        raise InputError("cannot read the trace", where=place, found=str(error)) from None
    if begin.startswith(b"\x1f\x8b"):
        raise InputError("the trace is packed", where=place, do="unpack it first, such as with tar -xzf")
    head = begin.decode(errors="replace").lstrip("\ufeff \r\n\t")
    if head.startswith("["):
        return "philly"
    names = set(head.partition("\n")[0].strip().split(","))
    if names.issuperset(_OPENB_COLUMNS):
        return "openb"
    if names.issuperset(_PLAIN_COLUMNS):
        return "plain"
    raise InputError(
        "not a trace of GPU jobs",
        where=place,
        found=head.partition("\n")[0][:120],
        allowed=f"{', '.join(FORMATS)}; a plain one has the columns {', '.join(_PLAIN_COLUMNS)} and may have pods",
        do="workbench scaletest trace --help says what each is",
    )


def _read_csv(path: Path, columns: tuple[str, ...] = (), needed: tuple[str, ...] = ()) -> pl.DataFrame:
    """Read all columns as text; `columns` are their names where the first line has none."""
    content = _read_bytes(path)
    has_names = not columns or content.split(b"\n", 1)[0].strip().decode(errors="replace") == ",".join(columns)
    try:
        frame = pl.read_csv(io.BytesIO(content), has_header=has_names, infer_schema=False, truncate_ragged_lines=False)
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise InputError("not a CSV file", where=path, found=str(error)[:200]) from None
    if columns and not has_names:
        if len(frame.columns) != len(columns):
            raise InputError(
                "another number of columns", where=path, found=len(frame.columns), allowed=",".join(columns)
            )
        frame.columns = list(columns)
    if missing := [name for name in needed if name not in frame.columns]:
        raise InputError("columns are missing", where=path, found=missing, allowed=", ".join(needed))
    return frame


def _read_bytes(path: Path) -> bytes:
    try:
        return files.read_up_to(path, MAX_TRACE_BYTES)
    except OSError as error:
        raise InputError("cannot read the trace", where=path, found=str(error)) from None


def _to_numbers(frame: pl.DataFrame, names: tuple[str, ...], path: Path) -> pl.DataFrame:
    """Convert the named text columns to numbers, null where empty."""
    numbers = frame.with_columns(
        pl.col(name).str.strip_chars().replace("", None).cast(pl.Float64, strict=False).alias(f"{name}#")
        for name in names
    )
    for name in names:
        filled = pl.col(name).str.strip_chars().fill_null("") != ""
        wrong = numbers.with_row_index().filter(filled & ~pl.col(f"{name}#").is_finite().fill_null(value=False))
        if wrong.height:
            detail = f"{name} is {wrong[name][0][:40]!r} in row {wrong['index'][0] + 1}"
            raise InputError("not a number", where=path, found=detail)
    return numbers.with_columns(pl.col(f"{name}#").alias(name) for name in names).drop([f"{name}#" for name in names])


def _read_plain(path: Path) -> _Read:
    frame = _read_csv(path, needed=_PLAIN_COLUMNS)
    if "pods" not in frame.columns:
        frame = frame.with_columns(pods=pl.lit("1"))
    frame = _to_numbers(frame, (*_PLAIN_COLUMNS, "pods"), path)
    complete_rows = frame.drop_nulls([*_PLAIN_COLUMNS, "pods"])
    if (complete_rows["pods"] < 1).any() or (complete_rows["pods"] != complete_rows["pods"].floor()).any():
        raise InputError("pods are whole numbers from 1", where=path)
    rows: list[_Row] = [
        (s, r, int(p), g, None) for s, r, g, p in complete_rows.select(*_PLAIN_COLUMNS, "pods").iter_rows()
    ]
    return rows, Counter({"start or end is not known": frame.height - complete_rows.height})


def _read_openb(path: Path) -> _Read:
    frame = _to_numbers(_read_csv(path, needed=_OPENB_COLUMNS), _OPENB_COLUMNS, path)
    started = frame.filter(pl.col("scheduled_time").is_not_null() & (pl.col("num_gpu").fill_null(0) > 0))
    complete_rows = started.drop_nulls(["creation_time", "deletion_time"])
    # A share of a GPU is asked for by pods with one of them only.
    gpus = pl.when(pl.col("num_gpu") == 1).then(pl.col("gpu_milli").fill_null(1000) / 1000).otherwise(pl.col("num_gpu"))
    times = complete_rows.select(
        "creation_time",
        pl.col("deletion_time") - pl.col("scheduled_time"),
        pl.lit(1),
        gpus,
        pl.col("scheduled_time") - pl.col("creation_time"),
    )
    without = frame.filter(pl.col("num_gpu").fill_null(0) <= 0).height
    never = frame.height - without - started.height
    return times.rows(), Counter(
        {"no GPU": without, "never started": never, "start or end is not known": started.height - complete_rows.height}
    )


def _read_pai(path: Path) -> _Read:
    folder = path if path.is_dir() else path.parent
    jobs = _to_numbers(
        _read_csv(folder / _PAI_JOBS, _PAI_JOB_COLUMNS, ("job_name", "start_time")), ("start_time",), folder / _PAI_JOBS
    )
    numbers = ("inst_num", "start_time", "end_time", "plan_gpu")
    tasks = _to_numbers(
        _read_csv(folder / PAI_TASKS, _PAI_TASK_COLUMNS, ("job_name", *numbers)), numbers, folder / PAI_TASKS
    )
    on_gpus = (
        tasks.filter(pl.col("plan_gpu").fill_null(0) > 0)
        .group_by("job_name")
        .agg(
            pl.col("start_time").min().alias("begun"),
            pl.col("end_time").max().alias("ended"),
            (pl.col("start_time").null_count() + pl.col("end_time").null_count()).alias("open"),
            pl.col("inst_num").fill_null(1).sum().alias("pods"),
            pl.col("plan_gpu").n_unique().alias("sizes"),
            pl.col("plan_gpu").first().alias("gpus"),
        )
    )
    joined = jobs.select("job_name", pl.col("start_time").alias("submitted")).join(on_gpus, on="job_name", how="left")
    counted: Counter[str] = Counter()
    for reason, is_wrong in (
        ("no GPU", pl.col("pods").is_null()),
        ("start or end is not known", (pl.col("open") > 0) | pl.col("submitted").is_null()),
        ("its pods differ in GPUs", pl.col("sizes") > 1),
    ):
        counted[reason] += joined.filter(is_wrong).height
        joined = joined.filter(~is_wrong)
    rows = joined.select(
        "submitted",
        pl.col("ended") - pl.col("begun"),
        pl.col("pods").cast(pl.Int64),
        pl.col("gpus") / 100,
        pl.col("begun") - pl.col("submitted"),
    )
    return rows.rows(), counted


def _read_philly(path: Path) -> _Read:
    import orjson

    try:
        jobs = orjson.loads(_read_bytes(path))
    except ValueError as error:
        raise InputError("not JSON", where=path, found=str(error)[:200]) from None
    if not isinstance(jobs, list) or not all(isinstance(entry, dict) and "submitted_time" in entry for entry in jobs):
        raise InputError(
            "not a job log of Philly", where=path, allowed="a list of jobs with submitted_time and attempts"
        )
    rows, counted = [], Counter[str]()
    for at, job in enumerate(jobs):
        try:
            outcome = _read_philly_job(job)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError("not a job of Philly", where=f"{path}, job {at}", found=str(error)[:200]) from None
        if isinstance(outcome, str):
            counted[outcome] += 1
        else:
            rows.append(outcome)
    return rows, counted


def _read_philly_job(job: dict[str, Any]) -> _Row | str:
    """Build the row of a Philly job, or return the reason why it cannot be used."""
    submitted = _parse_philly_time(job["submitted_time"])
    attempts = list(_iterate_attempts(job.get("attempts") or []))
    if not attempts:
        return "never started"
    if submitted is None or any(end is None for _, end, _ in attempts):
        return "start or end is not known"
    sizes = attempts[-1][2]
    if not sizes or not sum(sizes):
        return "no GPU"
    if len(set(sizes)) > 1:
        return "its pods differ in GPUs"
    run_s = sum(end - begin for begin, end, _ in attempts if end is not None)
    return submitted, run_s, len(sizes), float(sizes[0]), attempts[0][0] - submitted


def _iterate_attempts(attempts: list[dict[str, Any]]) -> Iterator[tuple[float, float | None, list[int]]]:
    """Yield for each attempt of a Philly job its begin and end in seconds, and its number of GPUs on each server."""
    for attempt in attempts:
        begin = _parse_philly_time(attempt.get("start_time"))
        if begin is not None:
            yield (
                begin,
                _parse_philly_time(attempt.get("end_time")),
                [len(server["gpus"]) for server in attempt.get("detail") or []],
            )


def _parse_philly_time(text: str | None) -> float | None:
    if text in (None, "None", ""):
        return None
    moment = dt.datetime.strptime(str(text)[:19], "%Y-%m-%d %H:%M:%S")
    return moment.replace(tzinfo=dt.UTC).timestamp()


_READERS: dict[TraceFormat, Callable[[Path], _Read]] = {
    "philly": _read_philly,
    "pai": _read_pai,
    "openb": _read_openb,
    "plain": _read_plain,
}


@dataclass(frozen=True)
class ReplayOptions:
    """Which jobs of a trace are replayed, and how fast."""

    n: int = 500
    skip: int = 0
    speed: float | None = None
    load: float = 1.0
    max_run_s: float | None = None


@dataclass(frozen=True)
class TraceReplay:
    """Result of making a scenario from a trace.

    `n_jobs`, `n_cut`, `n_rounded_up`: Jobs of the scenario; those whose run was cut; those with a share of a GPU that
    get a whole one.
    `gpu_hours`: GPU-hours of these jobs in the trace's time, as they are replayed.
    """

    scenario: Path
    trace_format: str
    n_read: int
    left_out: dict[str, int]
    n_jobs: int
    n_cut: int
    n_rounded_up: int
    speed: float
    submission_s: float
    median_run_s: float
    ends_s: float
    gpu_hours: float
    mean_gpus: float
    peak_gpus: float

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        return dataclasses.asdict(self) | {"scenario": str(self.scenario)}


def write_trace_scenario(trace: JobTrace, folder: str | Path, options: ReplayOptions = ReplayOptions()) -> TraceReplay:
    """Write a scenario and its table of jobs.

    Jobs of one pod become Jobs, those of several gangs. A share of a GPU becomes a whole one, as schedulers without
    sharing need it, and is counted.
    """
    folder = Path(folder)
    if (folder / SCENARIO_NAME).exists():
        raise InputError("a scenario is here already", where=folder / SCENARIO_NAME, do="name another folder")
    jobs, n_cut = _choose_jobs(trace, options)
    speed = _choose_speed(jobs, options.speed)
    rounded_up = (jobs["gpus_per_pod"] != jobs["gpus_per_pod"].ceil()).sum()
    jobs = jobs.with_columns(pl.col("gpus_per_pod").ceil().cast(pl.Int64))
    jobs = jobs.with_columns(pl.struct("pods", "gpus_per_pod").map_elements(_name_entry, pl.String).alias("entry"))
    # Write the table of jobs and the scenario.
    shapes = (
        jobs.group_by("entry", "pods", "gpus_per_pod")
        .agg(pl.len(), pl.col("run_s").mean())
        .sort("pods", "gpus_per_pod")
    )
    if shapes.height > _MAX_ENTRIES:
        raise ConfigError(
            "too many shapes of jobs", where="--n", found=shapes.height, allowed=_MAX_ENTRIES, do="replay fewer jobs"
        )
    table = io.StringIO()
    rows = jobs.select(pl.col("submit_s").alias(JOB_COLUMNS[0]), JOB_COLUMNS[1], pl.col("run_s").alias(JOB_COLUMNS[2]))
    rows.write_csv(table)
    files.write_text(folder / JOBS_NAME, table.getvalue())
    files.write_text(folder / SCENARIO_NAME, _format_scenario(jobs, shapes, trace, speed))
    summary = summarize_plan(draw_plan(load_scenario(folder / SCENARIO_NAME)))
    gpu_s = float((jobs["run_s"] * jobs["pods"] * jobs["gpus_per_pod"]).sum())
    assert summary.ends_s is not None
    return TraceReplay(
        scenario=folder / SCENARIO_NAME,
        trace_format=trace.format,
        n_read=trace.n_read,
        left_out=trace.left_out,
        n_jobs=jobs.height,
        n_cut=n_cut,
        n_rounded_up=int(rounded_up),
        speed=speed,
        submission_s=summary.submission_s,
        median_run_s=_median(jobs["run_s"]) / speed,
        ends_s=summary.ends_s,
        gpu_hours=gpu_s / 3600,
        mean_gpus=gpu_s / speed / summary.ends_s,
        peak_gpus=summary.peak_gpus,
    )


def _median(values: pl.Series) -> float:
    median = values.median()
    assert isinstance(median, float)
    return median


def _choose_jobs(trace: JobTrace, options: ReplayOptions) -> tuple[pl.DataFrame, int]:
    """Choose the jobs to replay, with times from 0 on, and count those shortened to `max_run_s`."""
    jobs = trace.jobs.slice(options.skip, options.n)
    if not jobs.height:
        raise ConfigError(
            "no job is left",
            where="--skip",
            found=options.skip,
            allowed=f"the trace has {trace.jobs.height:,} GPU jobs",
        )
    jobs = jobs.with_columns((pl.col("submit_s") - pl.col("submit_s").min()) / options.load)
    if options.max_run_s is None:
        return jobs, 0
    n_cut = jobs.filter(pl.col("run_s") > options.max_run_s).height
    return jobs.with_columns(pl.col("run_s").clip(upper_bound=options.max_run_s)), n_cut


def _choose_speed(jobs: pl.DataFrame, speed: float | None) -> float:
    """Choose how many seconds of the trace pass in one of the test. `jobs`: `submit_s, run_s`, by time."""
    median_s, span_s = _median(jobs["run_s"]), float(jobs["submit_s"][-1])
    if speed is None:
        chosen = max(1.0, min(span_s / _SUBMISSION_S, median_s / _MEDIAN_RUN_S))
        # Two digits, so that it can be said.
        return float(f"{chosen:.2g}")
    if speed > 1 and median_s / speed < MIN_MEDIAN_RUN_S:
        raise ConfigError(
            "time is compressed too far: a control plane's own delay would be more than 5 % of the median job",
            where="--speed",
            found=f"{speed:g}: the median job of {median_s:,.0f} s would last {median_s / speed:.2g} s",
            allowed=f"up to {math.floor(median_s / MIN_MEDIAN_RUN_S):,}",
        )
    return speed


def _name_entry(shape: dict[str, int]) -> str:
    gpus = f"{shape['gpus_per_pod']}-gpu{'s' if shape['gpus_per_pod'] > 1 else ''}"
    return f"job-{gpus}" if shape["pods"] == 1 else f"gang-{shape['pods']}x{gpus}"


def _format_scenario(jobs: pl.DataFrame, shapes: pl.DataFrame, trace: JobTrace, speed: float) -> str:
    """Write a scenario file as YAML that replays the jobs `speed` times as fast.

    `jobs`: Columns submit_s, run_s, pods. `shapes`: A row for each workload entry, with columns entry, pods,
    gpus_per_pod, run_s (mean) and len (number of jobs).
    """
    import yaml

    times = jobs["submit_s"] / speed
    # A gang's pods and their PodGroup come at once.
    objects = pl.when(pl.col("pods") > 1).then(pl.col("pods") + 1).otherwise(1)
    n_objects = int(jobs.select(objects.sum()).item())
    per_second = (
        jobs.select(objects.alias("objects"), second=times.floor()).group_by("second").agg(pl.col("objects").sum())
    )
    longest_s = float(((jobs["submit_s"] + jobs["run_s"]) / speed).max())  # type: ignore[arg-type]
    scenario: dict[str, Any] = {
        "name": f"trace-{trace.format}",
        "arrival": {"process": "trace", "file": JOBS_NAME, "speed": speed},
        "workloads": [_build_entry(row, speed) for row in shapes.iter_rows(named=True)],
        "limits": {
            "objects": n_objects,
            "rate_per_s": float(min(10_000, 4 * max(10, *per_second["objects"].to_list()))),
            "pending_pods": int(jobs["pods"].sum()),
            "wall_clock_s": float(min(_MAX_TIME_S, math.ceil(4 * longest_s + _MARGIN_S))),
        },
    }
    head = (
        f"# {jobs.height:,} of {trace.jobs.height:,} GPU jobs of a trace ({trace.format}), {speed:g} seconds in one.\n"
        "# Each job's time and lifetime are in jobs.csv, in seconds of the trace; the lifetimes below are means.\n"
    )
    return head + yaml.safe_dump(scenario, sort_keys=False, width=120)


def _build_entry(shape: dict[str, Any], speed: float) -> dict[str, Any]:
    """Workload entry of a scenario for one row of shapes: entry, pods, gpus_per_pod, run_s, len (its weight)."""
    kind = {"kind": "Job"} if shape["pods"] == 1 else {"kind": "Gang", "pods": shape["pods"]}
    lifetime_s = min(_MAX_TIME_S, max(0.001, round(shape["run_s"] / speed, 3)))
    return {
        "name": shape["entry"],
        **kind,
        "weight": shape["len"],
        "gpus": shape["gpus_per_pod"],
        "lifetime": lifetime_s,
    }


def format_replay(replay: TraceReplay) -> list[str]:
    """Format what was made of a trace, for the terminal."""
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in replay.left_out.items()) or "none"
    changed = [f"{replay.n_rounded_up:,} with a share of a GPU get a whole one"] if replay.n_rounded_up else []
    changed += [f"{replay.n_cut:,} that ran longer are cut"] if replay.n_cut else []
    nodes = max(1, math.ceil(replay.peak_gpus / 8))
    # A few jobs of days would keep the test alone.
    cut = replay.speed * max(replay.submission_s, 60)
    long = f"; --max-run {cut:.0f} cuts the longest" if replay.ends_s > 3 * max(replay.submission_s, 60) else ""
    return [
        f"trace       {replay.trace_format}: {replay.n_read:,} jobs; left out: {left_out}",
        f"replayed    {replay.n_jobs:,} jobs, {replay.gpu_hours:,.1f} GPU-hours"
        + "".join(f"; {change}" for change in changed),
        f"time        {replay.speed:g} seconds of the trace in one: jobs come for {replay.submission_s:,.0f} s, "
        f"the median job lasts {replay.median_run_s:.3g} s",
        f"wanted      {replay.peak_gpus:g} GPUs at once, {replay.mean_gpus:.3g} on average, if no job waits",
        f"ends        after {replay.ends_s:,.0f} s, if no job waits{long}",
        f"nodes       {nodes} of 8 GPUs, so that no job waits; fewer, so that they queue",
    ]
