"""Import of submitted.json and sampled.json as a run folder.

Not in the files, and so null: when a submission was acknowledged, and when anything was seen by a client. Times of the
cluster are whole seconds. The submission's options are not in them; they can be given.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.scaletest import tables
from workbench.scaletest.analysis.imported_clocks import find_clock_fault
from workbench.scaletest.cluster_api import api_discovery, connection
from workbench.scaletest.compat_runai import delta_chain, runai_files
from workbench.scaletest.compat_runai.delta_chain import DELTAS, JOBS, MILESTONES, ODD, Milestone
from workbench.scaletest.compat_runai.runai_files import EXPORT_FOLDER, ORIGIN_FIELD, RunaiFiles, SubmittedJob
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import SCHEDULE, SUBMISSIONS, TRANSITIONS

AREA = "scaletest"
TYPES = ("training", "distributed", "interactive")
DECISION = "scheduled or unschedulable: sampled.json does not state which"
# Requests of the old tool's own templates.
_CPUS, _MEMORY_BYTES = 0.05, 1 << 20
_NOTES = (
    "imported from submitted.json and sampled.json: nothing was watched",
    "times of the cluster are whole seconds, and the submission's clock is another one, by an unknown distance",
    "last pod created counts pods that replaced evicted ones",
    "submissions that failed are not in the files",
)
# Pods are two at most, the first before the last by name; the decision is one about the first.
_OBJECTS: dict[Milestone, str] = {
    "first_pod": "pod-first",
    "decision": "pod-first",
    "last_pod": "pod-last",
    "eviction": "eviction",
}
_REASONS: dict[Milestone, str] = {"decision": DECISION, "eviction": "others were evicted for this workload"}


@dataclass(frozen=True)
class SubmissionDetails:
    """Options of the submission, which the files do not contain."""

    workload_type: str
    gpus: float = 1.0
    workers: int = 1

    @property
    def pods(self) -> int:
        """Number of pods of one workload: a distributed one has a master besides its workers."""
        return self.workers + 1 if self.workload_type == "distributed" else 1


@dataclass(frozen=True)
class ImportResult:
    """The run folder, and how much of the files is in it."""

    run: run_folder.Run
    submitted: int
    sampled: int
    kept: int
    odd: tuple[runai_files.OddRow, ...]


def import_folder(
    folder: str | Path, *, out: str | Path | None = None, details: SubmissionDetails | None = None
) -> ImportResult:
    """Make a run folder of the old tool's output folder.

    `out`: Below it the run gets its own folder; the usual place without it.
    `details`: What was submitted. Without it the table `schedule` is not written: the files do not tell pods and GPUs.
    """
    if details is not None and details.workload_type not in TYPES:
        raise ConfigError(
            "no such type of workload", where="--workload-type", found=details.workload_type[:40], allowed=TYPES
        )
    records = runai_files.read_files(folder)
    if not records.submitted:
        raise InputError("nothing was submitted", where=Path(folder) / runai_files.SUBMITTED)
    jobs = runai_files.build_jobs(records)
    # A whole second: the cluster's times stay whole seconds after it.
    origin_ns = min(job.at_ns for job in records.submitted) // connection.NS_PER_S * connection.NS_PER_S
    run = run_folder.start_run(
        AREA, out, title="How long did workloads take? (imported)", config={"imported": True, ORIGIN_FIELD: origin_ns}
    )
    for name in (runai_files.SUBMITTED, runai_files.SAMPLED):
        run.add_input(Path(folder) / name)
    spaces = sorted({job.namespace for job in records.submitted} | {job.namespace for job in records.sampled})
    conditions = run_records.RunConditions(
        run=api_discovery.new_run_id(),
        scenario_name="imported",
        scenario_sha256="",
        created_at=datetime.fromtimestamp(origin_ns // connection.NS_PER_S, UTC).isoformat(),
        context="",
        fingerprint="",
        server_sha256="",
        server_version="",
        namespaces=tuple(spaces),
        schedulers=(),
        simulated_nodes=False,
        provider=run_records.IMPORTED,
        mode="kubectl",
        closed=True,
        notes=_NOTES,
    )
    run_records.write_conditions(run.folder, conditions)
    if details is not None:
        run.write_table(SCHEDULE, _build_schedule(records.submitted, details, origin_ns))
    submissions = _build_submissions(records, origin_ns)
    run.write_table(SUBMISSIONS, submissions)
    run.write_table(TRANSITIONS, _build_transitions(records, origin_ns))
    run.write_table(tables.MILESTONES, _build_milestones(records, origin_ns))
    run.write_table(JOBS, jobs)
    run.write_table(DELTAS, delta_chain.build_deltas(jobs))
    run.write_table(ODD, ODD.frame([dataclasses.asdict(odd_row) for odd_row in records.odd]))
    export_folder = run.folder / EXPORT_FOLDER
    runai_files.write_submitted_json(export_folder, records.submitted)
    runai_files.write_sampled_json(export_folder, jobs)
    # Valid if every submitted workload was sampled and its times can be used.
    n_submitted, n_usable = len(records.submitted), int(jobs["kept"].sum())
    left_out = sum(odd_row.left_out for odd_row in records.odd)
    reasons = [*_NOTES, *([f"{left_out} rows of the files were skipped: see upstream_odd"] if left_out else [])]
    if missing := n_submitted - jobs.height:
        reasons = [f"{missing} of {n_submitted} submitted workloads were not sampled", *reasons]
    fault = find_clock_fault(submissions)
    if fault is not None:
        reasons = [fault.sentence, *reasons]
    is_valid = not missing and n_usable > 0 and not (fault is not None and fault.distorts)
    answer = f"{n_submitted} submitted, {jobs.height} sampled, {n_usable} with times that can be used"
    run.conclude("valid" if is_valid else "invalid", reasons, answer)
    return ImportResult(run, n_submitted, jobs.height, n_usable, tuple(records.odd))


def _seconds_since(ns: int, origin_ns: int) -> float:
    return (ns - origin_ns) / connection.NS_PER_S


def _build_schedule(submitted: list[SubmittedJob], details: SubmissionDetails, origin_ns: int) -> pl.DataFrame:
    """Reconstruct table SCHEDULE: in a closed loop, workloads are due when they are sent."""
    same: dict[str, Any] = {
        "entry": details.workload_type,
        "kind": f"{details.workload_type.capitalize()}Workload",
        "step": 0,
        "rate_per_s": None,
        "pods": details.pods,
        "gpus_per_pod": details.gpus,
        "cpus_per_pod": _CPUS,
        "memory_bytes_per_pod": _MEMORY_BYTES,
        "gang": details.workload_type == "distributed",
        "priority": None,
        "queue": None,
        "lifetime_s": None,
        "delete_after_s": None,
        "object_bytes": None,
        "spec_sha256": None,
    }
    return SCHEDULE.frame(
        {
            "index": i,
            "name": job.name,
            "namespace": job.namespace,
            "due_s": _seconds_since(job.at_ns, origin_ns),
            **same,
        }
        for i, job in enumerate(submitted)
    )


def _build_submissions(records: RunaiFiles, origin_ns: int) -> pl.DataFrame:
    """Build table SUBMISSIONS: all workloads were created, the sampled ones at a known second."""
    created = {(sample.name, sample.project): sample.at_s["workload"] for sample in records.sampled}
    rows = []
    for i, job in enumerate(records.submitted):
        second = created.get((job.name, job.project))
        sent_s = _seconds_since(job.at_ns, origin_ns)
        rows.append(
            {
                "index": i,
                "name": job.name,
                "due_s": sent_s,
                "sent_s": sent_s,
                "acked_s": None,
                "created_s": None if second is None else _seconds_since(second * connection.NS_PER_S, origin_ns),
                "status": "created",  # others are not in the file
                "http_status": None,
                "attempts": 1,
                "throttled": 0,
                "throttled_s": 0.0,
                "uid": None,
                "reason": None,
            }
        )
    return SUBMISSIONS.frame(rows)


def _build_transitions(records: RunaiFiles, origin_ns: int) -> pl.DataFrame:
    """Build table TRANSITIONS of the sampled workloads that were submitted.

    Their objects get made-up names: the file has neither names nor uids.
    """
    rows = []
    jobs_by_key = records.by_key
    for sample in records.sampled:
        if (sample.name, sample.project) not in jobs_by_key:
            continue
        for facts in MILESTONES:
            second = sample.at_s[facts.name]
            if second is None or (facts.name == "last_pod" and second == sample.at_s["first_pod"]):
                continue
            part = "" if facts.resource == "workload" else "/" + _OBJECTS.get(facts.name, facts.resource)
            rows.append(
                {
                    "resource": facts.resource,
                    "transition": facts.transition,
                    "uid": f"imported/{sample.namespace}/{sample.name}{part}",
                    "name": sample.name + part,
                    "namespace": sample.namespace,
                    "workload": sample.name,
                    "owner": None,
                    "owner_name": None,
                    "arrival_s": None,
                    "server_s": _seconds_since(second * connection.NS_PER_S, origin_ns),
                    "resolution_s": 1.0,
                    "session": 0,
                    "gap": False,
                    "node": None,
                    "reason": _REASONS.get(facts.name),
                }
            )
    return TRANSITIONS.frame(rows)


def _build_milestones(records: RunaiFiles, origin_ns: int) -> pl.DataFrame:
    """Build table MILESTONES directly from the file, without pods; due times are unknown."""
    indexes = {(job.name, job.project): i for i, job in enumerate(records.submitted)}

    def build_row(index: int, name: str | None, client_s: float | None, server_s: float | None) -> dict[str, Any]:
        row = {"index": index, "milestone": name, "client_s": client_s, "server_s": server_s}
        return row | {"resolution_s": None if server_s is None else 1.0, "gap": False}

    rows = [build_row(i, "sent", _seconds_since(job.at_ns, origin_ns), None) for i, job in enumerate(records.submitted)]
    for sample in records.sampled:
        index = indexes.get((sample.name, sample.project))
        for facts in MILESTONES:
            second = sample.at_s[facts.name]
            # Its "eviction" is of others, for this workload: ours is of the workload's own pods.
            if index is not None and second is not None and facts.ours is not None:
                rows.append(build_row(index, facts.ours, None, _seconds_since(second * connection.NS_PER_S, origin_ns)))
    return tables.MILESTONES.frame(rows)
