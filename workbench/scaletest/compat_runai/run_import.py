"""Import of submitted.json and sampled.json as a run folder.

Not in the files, and so null: when a submission was acknowledged, and when anything was seen by a client. Times of the
cluster are whole seconds. The submission's options are not in them; they can be given.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.scaletest.analysis.imported_clocks import find_clock_fault
from workbench.scaletest.cluster_api import api_discovery, connection
from workbench.scaletest.compat_runai import delta_chain, runai_files
from workbench.scaletest.compat_runai.delta_chain import DELTAS, JOBS, ODD, Milestone
from workbench.scaletest.compat_runai.runai_files import EXPORT_FOLDER, ORIGIN_FIELD
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import MILESTONES, SCHEDULE, SUBMISSIONS, TRANSITIONS

if TYPE_CHECKING:
    import polars as pl

    from workbench.scaletest.analysis.imported_clocks import ClockFault
    from workbench.scaletest.compat_runai.runai_files import RunaiFiles, SampledJob, SubmittedJob

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
_EVENTS: tuple[tuple[Milestone, str, str, str | None], ...] = (
    ("workload", "workload", "created", None),
    ("job", "job", "created", None),
    ("first_pod", "pod", "created", None),
    ("last_pod", "pod", "created", None),
    ("podgroup", "podgroup", "created", None),
    ("decision", "pod", "scheduled", DECISION),
    ("eviction", "event", "evicted", "others were evicted for this workload"),
    ("pvc_request", "pvc", "pvc-requested", None),
    ("pvc_bind", "pvc", "pvc-bound", None),
    ("backend", "backend", "backend", None),
)

# The same milestones by our names. Its "eviction" is of others, for this workload: ours is of the workload's own pods.
_OURS: dict[Milestone, str] = {
    "workload": "created",
    "job": "job",
    "first_pod": "first pod",
    "last_pod": "last pod",
    "podgroup": "podgroup",
    "decision": "decided",
    "pvc_request": "pvc requested",
    "pvc_bind": "pvc bound",
    "backend": "backend",
}


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
    jobs = delta_chain.build_jobs(records)
    # A whole second: the cluster's times stay whole seconds after it.
    origin_ns = min(job.at_ns for job in records.submitted) // connection.NS_PER_S * connection.NS_PER_S
    run = run_folder.start_run(
        AREA, out, title="How long did workloads take? (imported)", config={"imported": True, ORIGIN_FIELD: origin_ns}
    )
    for name in (runai_files.SUBMITTED, runai_files.SAMPLED):
        run.add_input(Path(folder) / name)
    run_records.write_conditions(run.folder, _build_conditions(records, origin_ns))
    if details is not None:
        run.write_table(SCHEDULE, _build_schedule(records.submitted, details, origin_ns))
    submissions = _build_submissions(records, origin_ns)
    run.write_table(SUBMISSIONS, submissions)
    run.write_table(TRANSITIONS, _build_transitions(records, origin_ns))
    run.write_table(MILESTONES, _build_milestones(records, origin_ns))
    run.write_table(JOBS, jobs)
    run.write_table(DELTAS, delta_chain.build_deltas(jobs))
    run.write_table(ODD, ODD.frame([_odd_row(odd_row) for odd_row in records.odd]))
    export_folder = run.folder / EXPORT_FOLDER
    runai_files.write_submitted_json(
        export_folder,
        (
            runai_files.SentWorkload(job.name, job.project, job.namespace, job.at_ns // 1000)
            for job in records.submitted
        ),
    )
    runai_files.write_sampled_json(export_folder, jobs)
    _conclude_import(run, records, jobs, find_clock_fault(submissions))
    return ImportResult(run, len(records.submitted), jobs.height, int(jobs["kept"].sum()), tuple(records.odd))


def _conclude_import(run: run_folder.Run, records: RunaiFiles, jobs: pl.DataFrame, fault: ClockFault | None) -> None:
    """Conclude the run: valid if every submitted workload was sampled and its times can be used."""
    n_usable = int(jobs["kept"].sum())
    answer = f"{len(records.submitted)} submitted, {jobs.height} sampled, {n_usable} with times that can be used"
    left_out = sum(odd_row.left_out for odd_row in records.odd)
    reasons = [*_NOTES, *([f"{left_out} rows of the files were skipped: see upstream_odd"] if left_out else [])]
    complete = jobs.height == len(records.by_key)
    if not complete:
        missing = len(records.by_key) - jobs.height
        reasons = [f"{missing} of {len(records.by_key)} submitted workloads were not sampled", *reasons]
    if fault is not None:
        reasons = [fault.sentence, *reasons]
    distorted = fault is not None and fault.distorts
    run.conclude("valid" if complete and n_usable and not distorted else "invalid", reasons, answer)


def _build_conditions(records: RunaiFiles, origin_ns: int) -> run_records.RunConditions:
    spaces = sorted({job.namespace for job in records.submitted} | {job.namespace for job in records.sampled})
    return run_records.RunConditions(
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
    """Build table TRANSITIONS of the sampled workloads that were submitted."""
    jobs_by_key = records.by_key
    rows = [
        row
        for sample in records.sampled
        if (sample.name, sample.project) in jobs_by_key
        for row in _workload_transitions(sample, origin_ns)
    ]
    return TRANSITIONS.frame(rows)


def _workload_transitions(sample: SampledJob, origin_ns: int) -> list[dict[str, Any]]:
    """Transitions of a sampled workload's objects, which get made-up names: the file has neither names nor uids."""
    rows = []
    for milestone, resource, transition, reason in _EVENTS:
        second = sample.at_s[milestone]
        if second is None or (milestone == "last_pod" and second == sample.at_s["first_pod"]):
            continue
        part = "" if resource == "workload" else "/" + _find_object_name(milestone)
        rows.append(
            {
                "resource": resource,
                "transition": transition,
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
                "reason": reason,
            }
        )
    return rows


def _build_milestones(records: RunaiFiles, origin_ns: int) -> pl.DataFrame:
    """Build table MILESTONES directly from the file, without pods; due times are unknown."""
    indexes = {(job.name, job.project): i for i, job in enumerate(records.submitted)}
    rows = [
        _build_milestone(i, "sent", _seconds_since(job.at_ns, origin_ns), None)
        for i, job in enumerate(records.submitted)
    ]
    for sample in records.sampled:
        index = indexes.get((sample.name, sample.project))
        for milestone, name in _OURS.items():
            second = sample.at_s[milestone]
            if index is not None and second is not None:
                rows.append(
                    _build_milestone(index, name, None, _seconds_since(second * connection.NS_PER_S, origin_ns))
                )
    return MILESTONES.frame(rows)


def _build_milestone(index: int, name: str, client_s: float | None, server_s: float | None) -> dict[str, Any]:
    """Row of table MILESTONES for a workload; seconds since the run's start, by each clock, null if unknown."""
    resolution_s = None if server_s is None else 1.0
    return {
        "index": index,
        "milestone": name,
        "client_s": client_s,
        "server_s": server_s,
        "resolution_s": resolution_s,
        "gap": False,
    }


def _find_object_name(milestone: Milestone) -> str:
    """Pods are two at most, the first before the last by name; the decision is one about the first."""
    names: dict[Milestone, str] = {"first_pod": "pod-first", "decision": "pod-first", "last_pod": "pod-last"}
    return names.get(milestone, milestone.replace("_", "-").removesuffix("-request").removesuffix("-bind"))


def _odd_row(odd_row: runai_files.OddRow) -> dict[str, Any]:
    return {
        "file": odd_row.file,
        "row": odd_row.row,
        "name": odd_row.name,
        "left_out": odd_row.left_out,
        "why": odd_row.why,
    }
