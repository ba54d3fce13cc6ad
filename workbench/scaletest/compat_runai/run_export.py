"""Export of a run folder as submitted.json, sampled.json and times.csv.

Its two shortcomings that would change figures are not repeated: pods that replaced lost ones are not the last pod, and
a foreign object without its labels belongs to no workload.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.scaletest.analysis import milestones
from workbench.scaletest.cluster_api.clock import NS_PER_S
from workbench.scaletest.compat_runai import delta_chain, runai_files
from workbench.scaletest.compat_runai.delta_chain import FIELDS, REQUIRED, Milestone
from workbench.scaletest.compat_runai.runai_files import SentWorkload
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import SCHEDULE, SUBMISSIONS, TRANSITIONS

if TYPE_CHECKING:
    from workbench.scaletest.compat_runai.backend_database import BackendQuery

ORIGIN_FIELD = "origin_ns"
EXPORT_FOLDER = "upstream"  # where an imported run keeps the rows that it was made of
_MILESTONE_COLUMNS: dict[Milestone, str] = {
    "workload": "created",
    "job": "job",
    "first_pod": "first pod",
    "last_pod": "last pod",
    "podgroup": "podgroup",
    "pvc_request": "pvc requested",
    "pvc_bind": "pvc bound",
    "backend": "backend",
}


@dataclass(frozen=True)
class RunaiView:
    """A run as the old tool would have it.

    `incomplete`: Workloads that lack a milestone which sampled.json must have, by that milestone's key.
    `ungrouped`: Workloads of a run whose scheduler makes no PodGroups: the old tool's files must have its time, and
    the first pod's creation stands for it.
    """

    sent: list[SentWorkload]
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
    try:
        paths = (
            runai_files.write_submitted_json(place, view.sent),
            runai_files.write_sampled_json(place, view.jobs),
            runai_files.write_times_csv(place, view.jobs, bug_compatible=bug_compatible),
        )
    except OSError as error:
        raise ConfigError("cannot be written", where=place, found=error.strerror, do="choose another --out") from None
    return ExportResult(paths, view)


def build_view(folder: str | Path) -> RunaiView:
    """A run folder, or a folder of the old tool's files, as that tool has it.

    A folder of `submit` and `sample` has both a record and those files: without tables of what was watched, they count.
    """
    place = Path(folder)
    watched = TRANSITIONS.path(place / "tables").is_file()
    if not (place / run_folder.RECORD_FILE).is_file() or (not watched and (place / runai_files.SAMPLED).is_file()):
        return _view_of_files(place)
    if (place / EXPORT_FOLDER / runai_files.SAMPLED).is_file() and "imported" in run_folder.load_run(place).record[
        "config"
    ]:
        return _view_of_files(place / EXPORT_FOLDER)
    return _view_of_tables(place)


def add_backend_times(jobs: pl.DataFrame, backend: BackendQuery) -> pl.DataFrame:
    """The same with the backend's times, by name and namespace; null where it has none."""
    seconds = backend.query_seconds(sorted(set(jobs["namespace"])))
    keys = jobs.select("name", "namespace").iter_rows()
    return jobs.with_columns(pl.Series("backend_at_s", [seconds.get(key) for key in keys], dtype=pl.Int64))


def _view_of_files(place: Path) -> RunaiView:
    records = runai_files.read_files(place)
    sent = [SentWorkload(job.name, job.project, job.namespace, job.at_ns // 1000) for job in records.submitted]
    return RunaiView(sent, delta_chain.build_jobs(records), {})


def _view_of_tables(place: Path) -> RunaiView:
    tables = place / "tables"
    schedule, submissions = SCHEDULE.read(tables), SUBMISSIONS.read(tables)
    transitions = TRANSITIONS.read(tables)
    origin_ns = _find_origin_ns(place)
    pods = milestones.build_pod_table(schedule, transitions)
    reached = milestones.build_milestones(schedule, submissions, transitions, pods)
    wide = _jobs_wide(schedule, submissions, reached, origin_ns)
    wide = wide.join(_find_decisions(transitions, pods, origin_ns), on="index", how="left")
    wide = wide.join(_find_evictions(wide, transitions, origin_ns), on="index", how="left")
    sent = [
        SentWorkload(row["name"], row["project"], row["namespace"], row["submitted_at_us"])
        for row in wide.iter_rows(named=True)
    ]
    wide, ungrouped = _replace_missing_groups(wide)
    lacking = {name: pl.col(delta_chain.milestone_column(name)).is_null() for name in REQUIRED}
    counted = wide.select(
        pl.lit(wide.height).alias(""), *(gone.sum().alias(FIELDS[name]) for name, gone in lacking.items())
    )
    complete = wide.filter(~pl.any_horizontal(*lacking.values())).drop("index").with_row_index("row")
    incomplete = {name: int(n) for name, n in counted.row(0, named=True).items() if name and n}
    jobs = delta_chain.judge_jobs(complete.with_columns(pl.col("row").cast(pl.Int64)))
    return RunaiView(sent, jobs, incomplete, ungrouped)


def _replace_missing_groups(wide: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Where no workload has a PodGroup and none needs one, the first pod's creation; of how many."""
    group, first = (delta_chain.milestone_column(name) for name in ("podgroup", "first_pod"))
    needed = wide["kind"].str.ends_with("Workload").any()
    if needed or wide[group].null_count() < wide.height:
        return wide, 0
    return wide.with_columns(pl.col(first).alias(group)), wide.height - wide[first].null_count()


def _find_origin_ns(place: Path) -> int:
    for line in run_records.read_lines(place / run_records.JOURNAL, run_records.JournalLine):
        if isinstance(line, run_records.Begun):
            return line.origin_ns
    origin_ns = run_folder.load_run(place).record["config"].get(ORIGIN_FIELD)
    if not isinstance(origin_ns, int):
        raise InputError("the start of this run is unknown", where=place, found=f"no {run_records.JOURNAL}")
    return origin_ns


def _whole_seconds(column: str, origin_ns: int) -> pl.Expr:
    """Whole seconds since 1970: cut as the server cuts them. To microseconds first: after weeks nanoseconds are off."""
    return (_whole_ns(column, origin_ns) + 500) // NS_PER_S


def _whole_ns(column: str, origin_ns: int) -> pl.Expr:
    """Nanoseconds since 1970: rounded, for a second is not one in binary, and by all digits of the origin.

    An origin cut to microseconds and a rounded distance to it would make half of all whole seconds the one before.
    """
    return (pl.col(column) * NS_PER_S).round().cast(pl.Int64) + origin_ns


def _jobs_wide(
    schedule: pl.DataFrame, submissions: pl.DataFrame, reached: pl.DataFrame, origin_ns: int
) -> pl.DataFrame:
    taken = submissions.filter(pl.col("status").is_in(["created", "known"]) & pl.col("sent_s").is_not_null())
    sent_us = _whole_ns("sent_s", origin_ns) // 1000
    jobs = schedule.select("index", "name", "namespace", "kind").join(
        taken.select("index", "created_s", sent_us.alias("submitted_at_us")), on="index", how="inner"
    )
    project = pl.col("namespace").str.strip_prefix("runai-").alias("project")
    jobs = jobs.with_columns(project, _whole_seconds("created_s", origin_ns).alias("acked_at_s"))
    for name, ours in _MILESTONE_COLUMNS.items():
        rows = reached.filter(pl.col("milestone") == ours)
        at = rows.select("index", _whole_seconds("server_s", origin_ns).alias(delta_chain.milestone_column(name)))
        jobs = jobs.join(at, on="index", how="left")
    workload = pl.coalesce("workload_at_s", "acked_at_s")
    # Where the workload is no Run:ai workload it is its own job.
    job = pl.when(pl.col("kind").str.ends_with("Workload")).then(pl.col("job_at_s"))
    jobs = jobs.with_columns(workload.alias("workload_at_s"), job.otherwise(pl.coalesce("job_at_s", workload)))
    return jobs.sort("submitted_at_us", "index")


def _find_decisions(transitions: pl.DataFrame, pods: pl.DataFrame, origin_ns: int) -> pl.DataFrame:
    """The scheduler's last word on the first pod of the first attempt: bound, else unschedulable."""
    first = pods.filter(pl.col("attempt") == 1).sort("index", "name").unique("index", keep="first", maintain_order=True)
    decisions = transitions.filter(
        (pl.col("resource") == "pod") & pl.col("transition").is_in(["scheduled", "unschedulable"])
    ).sort("transition")  # "scheduled" before "unschedulable"
    at = decisions.unique("uid", keep="first", maintain_order=True).select(
        "uid", _whole_seconds("server_s", origin_ns).alias("decision_at_s")
    )
    return first.select("index", "uid").join(at, on="uid", how="inner").drop("uid")


def _find_evictions(wide: pl.DataFrame, transitions: pl.DataFrame, origin_ns: int) -> pl.DataFrame:
    """First eviction of others for a workload's pod group, as the scheduler's events tell it."""
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
