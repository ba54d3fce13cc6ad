"""Files of Run:ai's tool: submitted.json, sampled.json and times.csv, read by row and written in its formats."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl

from workbench.core import files
from workbench.core.errors import ConfigError, InputError, refuse_os_errors
from workbench.runs import run_folder
from workbench.scaletest.analysis import time_breakdown
from workbench.scaletest.cluster_api import connection
from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.compat_runai import delta_chain
from workbench.scaletest.compat_runai.backend_query import BackendQuery, add_backend_times
from workbench.scaletest.compat_runai.delta_chain import (
    FALLBACKS,
    FIELDS,
    HEADINGS,
    MILESTONES,
    REQUIRED,
    STEPS,
    US_PER_S,
    Milestone,
    build_deltas,
    milestone_column,
)
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import SCHEDULE, SUBMISSIONS, TRANSITIONS

SUBMITTED, SAMPLED = "submitted.json", "sampled.json"
MAX_BYTES = 512 << 20
MAX_ROWS = 1_000_000
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_OLDEST_NS, _NEWEST_NS = (
    946_684_800 * connection.NS_PER_S,
    7_258_118_400 * connection.NS_PER_S,
)  # the years 2000 to 2199
Key = tuple[str, str]
Row = TypeVar("Row")
TIMES_FILE = "times.csv"
_NAMES = {"name": "Job Name", "namespace": "Namespace", "project": "Project"}
# The old tool's headings: 23 over 26 columns, right up to the ninth only.
_OLD_HEADINGS = (
    "Job Name,Namespace,projectName,Workload Created,Job Created,First Pod Created,Last Pod Created,Pod Group Created,"
    "Pod Scheduling Decision,Workload Submitted,Backend Job Created,Workload Creation,Job Creation,First Pod Creation,"
    "Last Pod Creation,Pod Group Creation,Pod Scheduling Decision,First Eviction,First PVC Bind Request,First PVC Bind,"
    "Backend Job Creation,Total Pod Scheduling Decision,Total Backend Job Creation"
)
# It writes these as the API gave them, the others from Python's datetimes.
_AS_SERVED: frozenset[Milestone] = frozenset({"workload", "job", "podgroup"})
ORIGIN_FIELD = "origin_ns"
EXPORT_FOLDER = "upstream"  # where an imported run keeps the rows that it was made of


class _SubmittedRow(msgspec.Struct, rename="camel"):
    job_name: str
    project_name: str
    job_namespace: str
    submit_timestamp: str


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A workload that was submitted. `at_ns`: the client's clock, of which the files have microseconds."""

    name: str
    project: str
    namespace: str
    at_ns: int
    row: int = 0

    def to_row(self) -> dict[str, str]:
        """Return the row as it appears in submitted.json."""
        at_us = self.at_ns // 1000
        at = datetime.fromtimestamp(at_us // US_PER_S, UTC).replace(microsecond=at_us % US_PER_S)
        return {
            "jobName": self.name,
            "projectName": self.project,
            "jobNamespace": self.namespace,
            "submitTimestamp": at.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class SampledJob:
    """A workload as the sampler wrote it: each milestone in seconds since 1970, null where it wrote its fallback."""

    row: int
    name: str
    project: str
    namespace: str
    at_s: dict[Milestone, int | None]


@dataclass(frozen=True, slots=True)
class OddRow:
    """An entry that is left out, or kept with a word about it."""

    file: str
    row: int
    name: str | None
    why: str
    left_out: bool = True


@dataclass(frozen=True)
class RunaiFiles:
    """Contents of both files: rows that can be used, and what is odd."""

    submitted: list[SubmittedJob]
    sampled: list[SampledJob]
    odd: list[OddRow] = field(default_factory=list)

    @property
    def by_key(self) -> dict[Key, SubmittedJob]:
        """Submissions by name and project."""
        return {(job.name, job.project): job for job in self.submitted}


def read_files(folder: str | Path) -> RunaiFiles:
    """Read the two files in a folder of the old tool, and record what is odd in or between them."""
    place = Path(folder)
    odd: list[OddRow] = []
    submitted = _read_rows(place / SUBMITTED, _parse_submitted, odd)
    sampled = _read_rows(place / SAMPLED, _parse_sampled, odd)
    # One row a workload: of several submissions the last counts, as for the old tool; of several samples the first.
    last = {(job.name, job.project): job for job in submitted}
    for job in submitted:
        if last[job.name, job.project] is not job:
            odd.append(OddRow(SUBMITTED, job.row, job.name, "submitted again later: the last one counts"))
    first: dict[Key, SampledJob] = {}
    for sample in sampled:
        if first.setdefault((sample.name, sample.project), sample) is not sample:
            odd.append(OddRow(SAMPLED, sample.row, sample.name, "sampled twice: the first one counts"))
    for key, sample in first.items():
        if key not in last:
            odd.append(OddRow(SAMPLED, sample.row, sample.name, "not in submitted.json: no time of submission"))
    jobs = [job for job in submitted if last[job.name, job.project] is job]
    for job in jobs:
        if (job.name, job.project) not in first:
            reason = "not in sampled.json: it was not complete, or gone, when it was sampled"
            odd.append(OddRow(SUBMITTED, job.row, job.name, reason, left_out=False))
    return RunaiFiles(jobs, list(first.values()), odd)


def read_submissions(folder: str | Path) -> list[SubmittedJob]:
    """submitted.json alone, as far as its rows can be used: it may still be growing."""
    return _read_rows(Path(folder) / SUBMITTED, _parse_submitted, [])


def _read_rows(path: Path, parse: Callable[[int, msgspec.Raw], Row], odd: list[OddRow]) -> list[Row]:
    """Read a file of the old tool, a JSON list; rows that cannot be used are added to `odd`."""
    try:
        text = files.read_up_to(path, MAX_BYTES)
        elements = msgspec.json.decode(text, type=list[msgspec.Raw])
    except FileNotFoundError:
        raise InputError(
            f"no {path.name}", where=path.parent, do="give the output folder (-o) of the old tool's runs"
        ) from None
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("not a JSON list", where=path, found=str(error)[:200]) from None
    if len(elements) > MAX_ROWS:
        raise InputError("too many workloads", where=path, found=len(elements), allowed=f"up to {MAX_ROWS}")
    rows, bad = [], list[OddRow]()
    for number, raw in enumerate(elements):
        try:
            rows.append(parse(number, raw))
        except (msgspec.MsgspecError, ValueError) as error:
            why = " ".join(str(error).split())[:300]
            name = None
            with contextlib.suppress(msgspec.MsgspecError, AttributeError, RecursionError, UnicodeDecodeError):
                name = msgspec.json.decode(raw).get("jobName")
            bad.append(OddRow(path.name, number, name[:253] if isinstance(name, str) else None, why))
    if bad and not rows:
        raise InputError("no row that can be used", where=path, found=bad[0].why)
    odd += bad
    return rows


def _parse_submitted(number: int, raw: msgspec.Raw) -> SubmittedJob:
    fields = msgspec.json.decode(raw, type=_SubmittedRow)
    _check_names(fields.job_name, fields.project_name, fields.job_namespace)
    at = _parse_time(fields.submit_timestamp, "submitTimestamp")
    return SubmittedJob(fields.job_name, fields.project_name, fields.job_namespace, at.ns, number)


def _parse_sampled(number: int, raw: msgspec.Raw) -> SampledJob:
    """Milestones in seconds since 1970, null where the file repeats another milestone's time."""
    fields = msgspec.json.decode(raw, type=dict[str, Any])
    names = ("jobName", "projectName", "jobNamespace")
    if missing := [name for name in (*names, *FIELDS.values()) if name not in fields]:
        raise ValueError("missing: " + ", ".join(missing))
    _check_names(*(fields[name] for name in names))
    at = {milestone: _parse_time(fields[name], name).ns // connection.NS_PER_S for milestone, name in FIELDS.items()}
    # The fallback looks like a measured time; a true time of the same second cannot be distinguished from it.
    seconds: dict[Milestone, int | None] = {
        name: None if name in FALLBACKS and second == at[FALLBACKS[name]] else second for name, second in at.items()
    }
    return SampledJob(number, fields["jobName"], fields["projectName"], fields["jobNamespace"], seconds)


def _check_names(*names: object) -> None:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"not a name of Kubernetes: {str(name)[:60]!r}")


def _parse_time(text: object, name: str) -> connection.ServerTime:
    """Its time; the old tool drops an offset, we count it."""
    shown = str(text)[:60]
    iso_text = text.replace(" ", "T", 1) if isinstance(text, str) else ""
    timestamp = connection.parse_timestamp(iso_text) or connection.parse_timestamp(iso_text + "Z")
    if timestamp is None or not _OLDEST_NS <= timestamp.ns < _NEWEST_NS:
        raise ValueError(f"{name} is no time: {shown!r}")
    return timestamp


def build_jobs(records: RunaiFiles) -> pl.DataFrame:
    """Table `upstream_jobs`: the sampled workloads whose submission is known, in the order of sampled.json."""
    submitted = records.by_key
    rows = []
    for sample in records.sampled:
        sent = submitted.get((sample.name, sample.project))
        if sent is None:
            continue
        row = {"row": sample.row, "name": sample.name, "namespace": sample.namespace, "project": sample.project}
        at = {milestone_column(name): sample.at_s[name] for name in FIELDS}
        rows.append({**row, "submitted_at_us": sent.at_ns // 1000, **at})
    return delta_chain.judge_jobs(rows)


def format_times_csv(jobs: pl.DataFrame, *, skip_errors: bool = True, bug_compatible: bool = False) -> str:
    """Format the jobs as the old tool's file times.csv.

    `bug_compatible`: The old layout: 23 headings over 26 columns, its fallbacks and its deltas; else one heading a
    column, deltas as they are, and nothing where nothing was measured.

    `jobs`: Table `upstream_jobs`.
    """
    shown = jobs.filter("kept") if skip_errors else jobs
    headings = [
        *_NAMES.values(),
        *(f"{name} (UTC)" for name in HEADINGS.values()),
        *(f"{one.name} (s)" for one in STEPS),
    ]
    rows = [_OLD_HEADINGS.split(",") if bug_compatible else headings]
    deltas = _values_by_job(shown, "upstream_s" if bug_compatible else "delta_s")
    clamped = _values_by_job(shown, "clamped")
    for row in shown.iter_rows(named=True):
        cells = [str(row[name]) for name in _NAMES]
        cells += [_format_time(row, name, fallback=bug_compatible) for name in HEADINGS]
        for delta, was_clamped in zip(deltas[row["row"]], clamped[row["row"]], strict=True):
            if bug_compatible:
                # A difference of times is a float there, a clamped one the whole number 0.
                cells.append("0" if was_clamped else str(float(delta or 0)))
            else:
                cells.append("" if delta is None else str(delta))
        rows.append(cells)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _values_by_job(jobs: pl.DataFrame, name: str) -> dict[int, list[int | None]]:
    """Values of a column of table `upstream_deltas` by the workload's `row`, in the order of the steps."""
    grouped = build_deltas(jobs).group_by("row", maintain_order=True).agg(name)
    return dict(zip(grouped["row"].to_list(), grouped[name].to_list(), strict=True))


def _format_time(row: dict[str, int | None], name: Milestone, *, fallback: bool = False) -> str:
    """Write a milestone of a workload's row as UTC text, empty if unknown.

    `fallback`: use its substitute milestone then.
    """
    raw_time = row[milestone_column(name)]
    if raw_time is None and fallback:
        raw_time = row[milestone_column(FALLBACKS[name])]
    if raw_time is None:
        return ""
    second = raw_time // US_PER_S if name == "submitted" else raw_time
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def write_submitted_json(folder: Path, sent: Iterable[SubmittedJob]) -> Path:
    """Write submitted.json, whole or not at all."""
    return files.write_text(folder / SUBMITTED, _format_lines(workload.to_row() for workload in sent))


def write_sampled_json(folder: Path, jobs: pl.DataFrame) -> Path:
    """Write sampled.json of the table `upstream_jobs`."""
    rows = []
    for row in jobs.iter_rows(named=True):
        fields = {"jobName": row["name"], "jobNamespace": row["namespace"], "projectName": row["project"]}
        for milestone, name in FIELDS.items():
            second, shape = row[milestone_column(milestone)], milestone
            if second is None:
                shape = FALLBACKS[milestone]
                second = row[milestone_column(shape)]
            text = datetime.fromtimestamp(second, UTC).isoformat()
            fields[name] = text.removesuffix("+00:00") + "Z" if shape in _AS_SERVED else text
        rows.append(fields)
    return files.write_text(folder / SAMPLED, _format_lines(rows))


def write_times_csv(
    folder: Path, jobs: pl.DataFrame, *, skip_errors: bool = True, bug_compatible: bool = False
) -> Path:
    """Write times.csv."""
    text = format_times_csv(jobs, skip_errors=skip_errors, bug_compatible=bug_compatible)
    return files.write_text(folder / TIMES_FILE, text)


def _format_lines(rows: Iterable[dict[str, str]]) -> str:
    """One row a line: a list that can be read, and that a diff can show."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


@dataclass(frozen=True)
class RunaiView:
    """A run as the old tool would have it.

    `incomplete`: Workloads that lack a milestone which sampled.json must have, by that milestone's key.
    `ungrouped`: Workloads of a run whose scheduler makes no PodGroups: the old tool's files must have its time, and
    the first pod's creation stands for it.
    """

    sent: list[SubmittedJob]
    jobs: pl.DataFrame
    incomplete: dict[str, int]
    ungrouped: int = 0


@dataclass(frozen=True)
class ExportResult:
    """The written files, and what is in them."""

    paths: tuple[Path, ...]
    view: RunaiView


def export_run(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    bug_compatible: bool = False,
    backend: BackendQuery | None = None,
) -> ExportResult:
    """Write submitted.json, sampled.json and times.csv of a run."""
    view = build_view(folder)
    if backend is not None:
        view = dataclasses.replace(view, jobs=add_backend_times(view.jobs, backend))
    place = Path(folder) / EXPORT_FOLDER if out is None else Path(out)
    with refuse_os_errors("cannot be written", place, do="choose another --out", error_type=ConfigError):
        paths = (
            write_submitted_json(place, view.sent),
            write_sampled_json(place, view.jobs),
            write_times_csv(place, view.jobs, bug_compatible=bug_compatible),
        )
    return ExportResult(paths, view)


def build_view(folder: str | Path) -> RunaiView:
    """Read a run folder, or a folder of the old tool's files, into the form of that tool.

    A folder of `submit` and `sample` has both a record and those files: without tables of what was watched, they count.
    """
    place = Path(folder)
    watched = TRANSITIONS.path(place / "tables").is_file()
    if not (place / run_folder.RECORD_FILE).is_file() or (not watched and (place / SAMPLED).is_file()):
        return _view_of_files(place)
    if (place / EXPORT_FOLDER / SAMPLED).is_file() and "imported" in run_folder.load_run(place).record["config"]:
        return _view_of_files(place / EXPORT_FOLDER)
    tables = place / "tables"
    schedule, submissions = SCHEDULE.read(tables), SUBMISSIONS.read(tables)
    transitions = TRANSITIONS.read(tables)
    origin_ns = _find_origin_ns(place)
    pods = time_breakdown.build_pod_table(schedule, transitions)
    reached = time_breakdown.build_milestones(schedule, submissions, transitions, pods)
    # Build a row for each accepted workload with the second of each milestone: table `upstream_jobs`, not yet judged.
    taken = submissions.filter(pl.col("status").is_in(["created", "known"]) & pl.col("sent_s").is_not_null())
    sent_us = _whole_ns("sent_s", origin_ns) // 1000
    jobs = schedule.select("index", "name", "namespace", "kind").join(
        taken.select("index", "created_s", sent_us.alias("submitted_at_us")), on="index", how="inner"
    )
    project = pl.col("namespace").str.strip_prefix("runai-").alias("project")
    jobs = jobs.with_columns(project, _whole_seconds("created_s", origin_ns).alias("acked_at_s"))
    for facts in MILESTONES:
        if facts.name in ("decision", "eviction"):  # found by other rules
            continue
        rows = reached.filter(pl.col("milestone") == facts.ours)
        column = delta_chain.milestone_column(facts.name)
        at = rows.select("index", _whole_seconds("server_s", origin_ns).alias(column))
        jobs = jobs.join(at, on="index", how="left")
    workload = pl.coalesce("workload_at_s", "acked_at_s")
    # Where the workload is no Run:ai workload it is its own job.
    job = pl.when(pl.col("kind").str.ends_with("Workload")).then(pl.col("job_at_s"))
    jobs = jobs.with_columns(workload.alias("workload_at_s"), job.otherwise(pl.coalesce("job_at_s", workload)))
    wide = jobs.sort("submitted_at_us", "index")
    wide = wide.join(_find_decisions(transitions, pods, origin_ns), on="index", how="left")
    wide = wide.join(_find_evictions(wide, transitions, origin_ns), on="index", how="left")
    sent = [
        SubmittedJob(row["name"], row["project"], row["namespace"], row["submitted_at_us"] * 1000)
        for row in wide.iter_rows(named=True)
    ]
    group, first = (delta_chain.milestone_column(name) for name in ("podgroup", "first_pod"))
    ungrouped = 0
    # Where no workload has a pod group and none needs one, the first pod's creation stands for it.
    if not wide["kind"].str.ends_with("Workload").any() and wide[group].null_count() == wide.height:
        ungrouped = wide.height - wide[first].null_count()
        wide = wide.with_columns(pl.col(first).alias(group))
    lacking = {name: pl.col(delta_chain.milestone_column(name)).is_null() for name in REQUIRED}
    counted = wide.select(
        pl.lit(wide.height).alias(""), *(gone.sum().alias(FIELDS[name]) for name, gone in lacking.items())
    )
    complete = wide.filter(~pl.any_horizontal(*lacking.values())).drop("index").with_row_index("row")
    incomplete = {name: int(n) for name, n in counted.row(0, named=True).items() if name and n}
    jobs = delta_chain.judge_jobs(complete.with_columns(pl.col("row").cast(pl.Int64)))
    return RunaiView(sent, jobs, incomplete, ungrouped)


def _view_of_files(place: Path) -> RunaiView:
    records = read_files(place)
    return RunaiView(records.submitted, build_jobs(records), {})


def _find_origin_ns(place: Path) -> int:
    for line in run_records.read_lines(place / run_records.JOURNAL, run_records.JournalLine):
        if isinstance(line, run_records.Begun):
            return line.origin_ns
    origin_ns = run_folder.load_run(place).record["config"].get(ORIGIN_FIELD)
    if not isinstance(origin_ns, int):
        raise InputError("the start of this run is unknown", where=place, found=f"no {run_records.JOURNAL}")
    return origin_ns


def _whole_seconds(column: str, origin_ns: int) -> pl.Expr:
    """Cut to whole seconds since 1970, as the server does, from microseconds: nanoseconds are off after weeks."""
    return (_whole_ns(column, origin_ns) + 500) // NS_PER_S


def _whole_ns(column: str, origin_ns: int) -> pl.Expr:
    """Nanoseconds since 1970: rounded, for a second is not one in binary, and by all digits of the origin.

    An origin cut to microseconds and a rounded distance to it would make half of all whole seconds the one before.
    """
    return (pl.col(column) * NS_PER_S).round().cast(pl.Int64) + origin_ns


def _find_decisions(transitions: pl.DataFrame, pods: pl.DataFrame, origin_ns: int) -> pl.DataFrame:
    """Find the scheduler's last decision on the first pod of the first attempt: bound, else unschedulable.

    Returns: `index, decision_at_s`.
    """
    first = pods.filter(pl.col("attempt") == 1).sort("index", "name").unique("index", keep="first", maintain_order=True)
    decisions = transitions.filter(
        (pl.col("resource") == "pod") & pl.col("transition").is_in(["scheduled", "unschedulable"])
    ).sort("transition")  # "scheduled" before "unschedulable"
    at = decisions.unique("uid", keep="first", maintain_order=True).select(
        "uid", _whole_seconds("server_s", origin_ns).alias("decision_at_s")
    )
    return first.select("index", "uid").join(at, on="uid", how="inner").drop("uid")


def _find_evictions(wide: pl.DataFrame, transitions: pl.DataFrame, origin_ns: int) -> pl.DataFrame:
    """Find the first eviction of other pods for a workload's pod group, by the scheduler's events.

    `wide`: `index, name`.

    Returns: `index, eviction_at_s`.
    """
    groups = transitions.filter((pl.col("resource") == "podgroup") & (pl.col("transition") == "created"))
    owners = transitions.filter(pl.col("resource").is_in(["workload", "job"]) & pl.col("workload").is_not_null())
    names = owners.unique("uid").select(pl.col("uid").alias("owner"), pl.col("workload").alias("of_owner"))
    named = groups.join(names, on="owner", how="left").select(
        pl.col("name").alias("group"), pl.coalesce("workload", "of_owner").alias("name")
    )
    evictions = transitions.filter((pl.col("resource") == "event") & (pl.col("transition") == "evicted"))
    by = evictions.select("server_s", pl.col("reason").str.extract(r" by (?:\S*/)?(\S+)$").alias("group"))
    rows = by.join(named, on="group", how="inner").join(wide.select("index", "name"), on="name", how="inner")
    return rows.group_by("index").agg(_whole_seconds("server_s", origin_ns).min().alias("eviction_at_s"))
