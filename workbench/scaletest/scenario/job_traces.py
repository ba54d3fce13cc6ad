"""Traces of GPU jobs of other clusters: Philly, Alibaba PAI 2020, Alibaba pods 2023, and plain CSV files."""

from __future__ import annotations

import datetime as dt
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from workbench.core import files
from workbench.core.errors import InputError

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
    """All columns as text; `columns` are their names where the first line has none."""
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
    """These columns as numbers, null where empty."""
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
    """A job's row, or why there is none."""
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
