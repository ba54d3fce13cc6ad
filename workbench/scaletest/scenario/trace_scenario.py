"""Scenarios that replay the jobs of a trace, compressed in time."""

from __future__ import annotations

import dataclasses
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.scenario.arrival_processes import JOB_COLUMNS
from workbench.scaletest.scenario.job_traces import JobTrace
from workbench.scaletest.scenario.plan_summary import summarize_plan
from workbench.scaletest.scenario.scenario_file import load_scenario
from workbench.scaletest.scenario.workload_plan import draw_plan

SCENARIO_NAME, JOBS_NAME = "scenario.yaml", "jobs.csv"
# A pod holds its GPUs some 50 ms longer than it runs, on a control plane on one machine: 5 % of a second.
MIN_MEDIAN_RUN_S = 1.0
# Without a speed: the jobs come within ten minutes, unless the median job would last less than two seconds.
_SUBMISSION_S, _MEDIAN_RUN_S = 600.0, 2.0
_MAX_ENTRIES = 100
_MAX_TIME_S = 7 * 86_400
_MARGIN_S = 300


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
    """What was made of a trace.

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
        """For JSON."""
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
    _write_files(jobs, trace, folder, speed)
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
    """Seconds of the trace in one of the test."""
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


def _write_files(jobs: pl.DataFrame, trace: JobTrace, folder: Path, speed: float) -> None:
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


def _format_scenario(jobs: pl.DataFrame, shapes: pl.DataFrame, trace: JobTrace, speed: float) -> str:
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
    """What was made of a trace, for the terminal."""
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
