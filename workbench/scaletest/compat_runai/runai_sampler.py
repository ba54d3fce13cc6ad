"""Run:ai's sampler: lists of a namespace, in pages, into sampled.json; once or until all are complete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.core.errors import ConfigError
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import ApiError, Connection, now_ns
from workbench.scaletest.cluster_api.list_watch import iterate_items
from workbench.scaletest.compat_runai import cluster_snapshot, runai_files
from workbench.scaletest.compat_runai.backend_query import BackendQuery, add_backend_times
from workbench.scaletest.compat_runai.cluster_snapshot import Snapshot, join_lists
from workbench.scaletest.compat_runai.delta_chain import JOBS, find_project
from workbench.scaletest.observation import run_records

Json = dict[str, Any]
_VERSIONS = ("v1", "v2alpha2")  # of pod groups: the platform's, KAI's own
_RUNAI_JOBS = "/apis/run.ai/v1/namespaces/{}/runaijobs"
_COLUMNS = {column.name for column in JOBS.columns} - {"row", "submitted_at_us", "kept", "skipped"}


@dataclass(frozen=True)
class SampleResult:
    """One look at the cluster.

    `submitted`: Workloads that the journal or submitted.json names so far; null where there is neither.
    `sampled`: Complete workloads in sampled.json: the submitted ones, or all of the namespace if these are unknown.
    `others`: Complete workloads of the namespace that are not of this submission.
    """

    file: Path
    snapshot: Snapshot
    submitted: int | None
    sampled: int
    others: int
    ended: bool

    def format_line(self) -> str:
        """Format the sampling's progress as one line."""
        counts = ", ".join(f"{count} {kind}" for kind, count in self.snapshot.counts.items())
        of = "" if self.submitted is None else f" of {self.submitted}"
        return f"{self.sampled}{of} workloads complete ({counts})"

    @property
    def is_complete(self) -> bool:
        """Are all submitted workloads complete? Without a submission: does none in the namespace lack a time?"""
        if self.submitted is None:
            return self.sampled > 0 and not self.snapshot.lacking
        return 0 < self.sampled >= self.submitted

    def to_dict(self) -> dict[str, Any]:
        """Document of `sample --json`."""
        shot = self.snapshot
        return {
            "file": str(self.file),
            "submitted": self.submitted,
            "sampled": self.sampled,
            "others": self.others,
            "counts": shot.counts,
            "measured": shot.measured,
            "lacking": shot.lacking,
            "foreign": dict(shot.foreign),
        }

    def format_text(self) -> str:
        """Lines for a terminal."""
        lines = [self.format_line(), *(f"  {n} have no {field} yet" for field, n in self.snapshot.lacking.items())]
        if self.others:
            lines.append(f"  {self.others} others in the namespace do not belong to this submission: skipped")
        lines += [f"  {n} belong to no workload here: {kind}" for kind, n in self.snapshot.foreign.items()]
        return "\n".join([*lines, f"  {self.file}"])


@dataclass(frozen=True)
class SampleOptions:
    """Options of a sample.

    `folder`: The output folder of the submission; sampled.json is written there each time.
    `events`: Read evictions and volumes, too.
    """

    folder: Path
    workload_type: str
    namespace: str
    events: bool = True
    backend: BackendQuery | None = None


async def follow_workloads(
    target: Target, options: SampleOptions, *, every_s: float | None, for_s: float, tell: Callable[[str], None]
) -> SampleResult:
    """Sample once, or until all that was submitted is complete and nothing more comes.

    `every_s`: Seconds between looks; null for one look.
    """
    if not options.folder.is_dir():
        raise ConfigError(
            "no such folder", where="-o, --output-dir", found=options.folder, do="the one given to submit"
        )
    deadline = time.monotonic() + for_s
    async with Connection(target) as api:
        while True:
            sample = await sample_once(api, options)
            tell(sample.format_line())
            is_complete = sample.submitted is not None and sample.sampled >= sample.submitted
            # Pods of a gang come one by one, and the last pod so far is not yet the last.
            is_finished = sample.ended and is_complete and not sample.snapshot.short
            if every_s is None or is_finished or time.monotonic() > deadline:
                return sample
            await asyncio.sleep(every_s)


async def sample_once(api: Connection, options: SampleOptions) -> SampleResult:
    """One look: lists, joined, written."""
    folder, namespace = options.folder, options.namespace
    # Before the lists: what is submitted meanwhile is not expected in them.
    submitted, ended = read_submitted_names(folder)
    root = f"/apis/run.ai/v2alpha1/namespaces/{namespace}/{options.workload_type}workloads"
    distributed = options.workload_type == "distributed"
    jobs = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs" if distributed else _RUNAI_JOBS
    core = f"/api/v1/namespaces/{namespace}"
    groups: list[Json] = []
    for version in _VERSIONS:
        path = f"/apis/scheduling.run.ai/{version}/namespaces/{namespace}/podgroups"
        if (await api.request("GET", path, query={"limit": "1"})).status == 200:
            groups = await _list_all(api, path)
            break
    lists = {
        "workloads": await _list_all(api, root),
        "jobs": await _list_all(api, jobs.format(namespace)),
        "pods": await _list_all(api, f"{core}/pods"),
        "groups": groups,
        "events": await _list_all(api, f"{core}/events") if options.events else [],
    }
    snapshot = join_lists(namespace, **lists)
    # Where a sampler watches, it has seen the same before, and better.
    if (folder / run_records.JOURNAL).is_file() and not (folder / run_records.HEALTH).exists():
        cluster_snapshot.append_observations(folder, lists, snapshot, now_ns())
    # As `upstream_jobs`, without judging: sampled.json holds no submission.
    schema = {name: kind for name, kind in JOBS.schema().items() if name in _COLUMNS}
    rows = [{**row, "project": find_project(row["namespace"])} for row in snapshot.build_rows()]
    table = pl.DataFrame(rows, schema=schema, orient="row")
    job_rows = table if submitted is None else table.filter(pl.col("name").is_in(list(submitted)))
    if options.backend is not None:
        job_rows = await asyncio.to_thread(add_backend_times, job_rows, options.backend)
    file = runai_files.write_sampled_json(folder, job_rows)
    count = None if submitted is None else len(submitted)
    return SampleResult(file, snapshot, count, job_rows.height, table.height - job_rows.height, ended)


def read_submitted_names(folder: Path) -> tuple[set[str] | None, bool]:
    """Names of the workloads submitted so far (None if unknown), and whether submission has ended."""
    if (folder / run_records.JOURNAL).is_file():
        acked, ended = set(), False
        for line in run_records.read_lines(folder / run_records.JOURNAL, run_records.JournalLine):
            if isinstance(line, run_records.Acked):
                acked.add(line.index)
            elif isinstance(line, run_records.Begun | run_records.Stopped):
                ended = isinstance(line, run_records.Stopped)
        run = run_records.read_conditions(folder).run
        return {api_discovery.build_workload_name(run, index) for index in acked}, ended
    if not (folder / runai_files.SUBMITTED).is_file():
        return None, True
    return {job.name for job in runai_files.read_submissions(folder)}, True


async def _list_all(api: Connection, path: str) -> list[Json]:
    """List every object of a path; none where the cluster lacks the kind."""
    try:
        return [item async for item in iterate_items(api, path)]
    except ApiError as error:
        if error.status == 404:
            return []
        raise
