"""The old sampler's work: lists of a namespace, in pages, into sampled.json; once, or again and again with progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.errors import ConfigError
from workbench.scaletest import facts, names, records
from workbench.scaletest.connection import ApiError, Connection, Target
from workbench.scaletest.safety.paging import items
from workbench.scaletest.times import now_ns
from workbench.scaletest.upstream import observing, reading, writing
from workbench.scaletest.upstream.backend import Backend
from workbench.scaletest.upstream.snapshot import Snapshot, joined
from workbench.scaletest.upstream.tables import JOBS
from workbench.scaletest.upstream.writing import project_of

Json = dict[str, Any]
_VERSIONS = ("v1", "v2alpha2")  # of pod groups: the platform's, KAI's own


@dataclass(frozen=True)
class Sample:
    """One look at the cluster.

    Attributes
    ----------
    submitted
        Workloads that the journal or submitted.json names so far; null where there is neither.
    sampled
        Complete workloads in sampled.json: those that were submitted, or all of the namespace where nobody knows.
    others
        Complete workloads of the namespace that are not of this submission.
    ended
        Nothing more is being submitted, as far as the folder tells.
    """

    file: Path
    snapshot: Snapshot
    submitted: int | None
    sampled: int
    others: int
    ended: bool

    def line(self) -> str:
        """How far it is."""
        counts = ", ".join(f"{count} {what}" for what, count in self.snapshot.counts.items())
        of = "" if self.submitted is None else f" of {self.submitted}"
        return f"{self.sampled}{of} workloads complete ({counts})"


async def follow(
    target: Target,
    folder: Path,
    workload_type: str,
    project: str,
    *,
    every_s: float | None = None,
    for_s: float = 3600.0,
    events: bool = True,
    backend: Backend | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Sample:
    """Sample once, or until all that was submitted is complete and nothing more comes.

    Parameters
    ----------
    folder
        The output folder of the submission; sampled.json is written there each time.
    every_s
        Seconds between looks; null for one look.
    for_s
        Following ends after so long, whatever is missing.
    events
        With evictions and volumes, which the old tool has switched off.

    Raises
    ------
    ConfigError
        No such folder.
    ApiError, AwayError
        The cluster refuses, or is not there.
    """
    if not folder.is_dir():
        raise ConfigError("no such folder", where="-o, --output-dir", found=folder, do="the one given to submit")
    deadline = time.monotonic() + for_s
    async with Connection(target) as api:
        while True:
            found = await once(api, folder, workload_type, f"runai-{project}", events=events, backend=backend)
            tell(found.line())
            whole = found.submitted is not None and found.sampled >= found.submitted
            # Pods of a gang come one by one, and the last pod so far is not yet the last.
            done = found.ended and whole and not found.snapshot.short
            if every_s is None or done or time.monotonic() > deadline:
                return found
            await asyncio.sleep(every_s)


async def once(
    api: Connection,
    folder: Path,
    workload_type: str,
    namespace: str,
    *,
    events: bool = True,
    backend: Backend | None = None,
) -> Sample:
    """One look: lists, joined, written."""
    # Before the lists: what is submitted meanwhile is not expected in them.
    submitted, ended = progress(folder)
    root = f"/apis/run.ai/v2alpha1/namespaces/{namespace}/{workload_type}workloads"
    jobs = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs" if workload_type == "distributed" else _RUNAI_JOBS
    core = f"/api/v1/namespaces/{namespace}"
    lists = {
        "workloads": await _all(api, root),
        "jobs": await _all(api, jobs.format(namespace)),
        "pods": await _all(api, f"{core}/pods"),
        "groups": await _groups(api, namespace),
        "events": await _all(api, f"{core}/events") if events else [],
    }
    found = joined(namespace, **lists)
    # Where a sampler watches, it has seen the same before, and better.
    if (folder / records.JOURNAL).is_file() and not (folder / records.HEALTH).exists():
        observing.append(folder, lists, found, now_ns())
    table = _table(found)
    mine = table if submitted is None else table.filter(pl.col("name").is_in(list(submitted)))
    if backend is not None:
        mine = await asyncio.to_thread(_with_backend, mine, backend)
    file = writing.write_sampled(folder, mine)
    count = None if submitted is None else len(submitted)
    return Sample(file, found, count, mine.height, table.height - mine.height, ended)


_RUNAI_JOBS = "/apis/run.ai/v1/namespaces/{}/runaijobs"


def progress(folder: Path) -> tuple[set[str] | None, bool]:
    """Names of the workloads that were submitted so far (null where nobody knows), and whether that was all."""
    if (folder / records.JOURNAL).is_file():
        acked, ended = set(), False
        for one in records.read(folder / records.JOURNAL, records.JournalLine):
            if isinstance(one, records.Acked):
                acked.add(one.index)
            elif isinstance(one, records.Begun | records.Stopped):
                ended = isinstance(one, records.Stopped)
        run = facts.read(folder).run
        return {names.workload_name(run, index) for index in acked}, ended
    if not (folder / reading.SUBMITTED).is_file():
        return None, True
    return {one.name for one in reading.read_submitted(folder)}, True


async def _all(api: Connection, path: str) -> list[Json]:
    """Every object of a path; none where the cluster lacks the kind."""
    try:
        return [one async for one in _paged(api, path)]
    except ApiError as error:
        if error.status == 404:
            return []
        raise


def _paged(api: Connection, path: str) -> AsyncIterator[Json]:
    return items(api, path)


async def _groups(api: Connection, namespace: str) -> list[Json]:
    for version in _VERSIONS:
        answer = await api.request(
            "GET", f"/apis/scheduling.run.ai/{version}/namespaces/{namespace}/podgroups", query={"limit": "1"}
        )
        if answer.status == 200:
            return await _all(api, f"/apis/scheduling.run.ai/{version}/namespaces/{namespace}/podgroups")
    return []


def _table(found: Snapshot) -> pl.DataFrame:
    """As `upstream_jobs`, without judging: sampled.json holds no submission."""
    schema = {name: kind for name, kind in JOBS.schema().items() if name in _COLUMNS}
    rows = [{**row, "project": project_of(row["namespace"])} for row in found.rows()]
    return pl.DataFrame(rows, schema=schema, orient="row")


_COLUMNS = {column.name for column in JOBS.columns} - {"row", "submitted_at_us", "kept", "skipped"}


def _with_backend(jobs: pl.DataFrame, backend: Backend) -> pl.DataFrame:
    from workbench.scaletest.upstream.exporting import with_backend

    return with_backend(jobs, backend)
