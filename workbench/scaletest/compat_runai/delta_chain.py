"""Milestones and deltas of Run:ai's tool, as it computes them and as they are.

Where we differ from it on purpose: docs/guide/scaletest-method.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from workbench.core.tables import Column, Table

Milestone = Literal[
    "submitted",
    "workload",
    "job",
    "first_pod",
    "last_pod",
    "podgroup",
    "decision",
    "eviction",
    "pvc_request",
    "pvc_bind",
    "backend",
]


class MilestoneFacts(NamedTuple):
    """A milestone in the old tool's files and in ours.

    `field`, `heading`: Its key in sampled.json; its heading in times.csv.
    `ours`: Its name in table MILESTONES; null for evictions, which there are of others, on this workload's behalf.
    `resource`, `transition`: What table TRANSITIONS has of it.
    """

    name: Milestone
    field: str
    heading: str
    ours: str | None
    resource: str
    transition: str


# In the order of sampled.json, and of times.csv, which has the submission at the end.
_FACTS: tuple[tuple[Milestone, str, str, str | None, str, str], ...] = (
    ("workload", "workloadCreated", "Workload Created", "created", "workload", "created"),
    ("job", "jobCreated", "Job Created", "job", "job", "created"),
    ("first_pod", "firstPodCreated", "First Pod Created", "first pod", "pod", "created"),
    ("last_pod", "lastPodCreated", "Last Pod Created", "last pod", "pod", "created"),
    ("podgroup", "podGroupCreated", "Pod Group Created", "podgroup", "podgroup", "created"),
    ("decision", "podSchedulingDecision", "Pod Scheduling Decided", "decided", "pod", "scheduled"),
    ("eviction", "firstEviction", "First Evicted", None, "event", "evicted"),
    ("pvc_request", "firstPVCBindRequest", "First PVC Bind Requested", "pvc requested", "pvc", "pvc-requested"),
    ("pvc_bind", "firstPVCBind", "First PVC Bound", "pvc bound", "pvc", "pvc-bound"),
    ("backend", "backendJobCreated", "Backend Job Created", "backend", "backend", "backend"),
)
MILESTONES = tuple(
    MilestoneFacts(name, f"{stem}Timestamp", heading, ours, resource, transition)
    for name, stem, heading, ours, resource, transition in _FACTS
)
# What the old tool writes where it has seen nothing: a time that says "not measured" to those who know.
FALLBACKS: dict[Milestone, Milestone] = {
    "eviction": "decision",
    "pvc_request": "decision",
    "pvc_bind": "decision",
    "backend": "workload",
}
FIELDS: dict[Milestone, str] = {facts.name: facts.field for facts in MILESTONES}
REQUIRED: tuple[Milestone, ...] = tuple(name for name in FIELDS if name not in FALLBACKS)
HEADINGS: dict[Milestone, str] = {facts.name: facts.heading for facts in MILESTONES}
HEADINGS["submitted"] = "Workload Submitted"
_ROW = Column("row", "int", "Place of the workload in sampled.json, from 0.")
_NAME = Column("name", "str", "Name of the workload.")
_NAMESPACE = Column("namespace", "str", "Its namespace.")
DELTAS = Table(
    "upstream_deltas",
    "One row per sampled workload and step of the old tool's chain; both sides cut to whole seconds.",
    ("row", "step"),
    (
        _ROW,
        _NAME,
        _NAMESPACE,
        Column("kept", "bool", "Counted by the old tool with --skip-errors."),
        Column("step", "str", "Name of the step."),
        Column("reference", "str", "The milestone that it counts from."),
        Column("delta_s", "int", "From the reference to the step, true to within 1 s; null: not measured.", "s", True),
        Column("upstream_s", "int", "What the old tool prints for it: clamped, with its fallbacks, PVC bind 0.", "s"),
        Column("clamped", "bool", "The old tool made a delta of -1 s into 0."),
    ),
)
ODD = Table(
    "upstream_odd",
    "One row per entry of submitted.json or sampled.json that was skipped or is unusual.",
    (),
    (
        Column("file", "str", "Name of the file."),
        Column("row", "int", "Place in it, from 0."),
        Column("name", "str", "jobName, where it is one.", nullable=True),
        Column("left_out", "bool", "Not part of anything else."),
        Column("why", "str", "Why it is unusual."),
    ),
)
EARLY_PODGROUP = "pod group earlier than the first pod: the pod was replaced"
NEGATIVE_TOTAL = "decided before it was submitted"
US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A delta of the old tool: from `since` to `at`."""

    name: str
    reference: str
    at: Milestone
    since: Milestone
    plots: Literal["general", "detailed"] = "detailed"

    @property
    def needs(self) -> Milestone | None:
        """The milestone that is often not measured, and without which there is nothing to draw."""
        return self.at if self.at in FALLBACKS else None


STEPS = (
    ChainStep("Workload Creation", "Workload Submission", "workload", "submitted"),
    ChainStep("Job Creation", "Workload Creation", "job", "workload"),
    ChainStep("First Pod Creation", "Job Creation", "first_pod", "job"),
    ChainStep("Last Pod Creation", "Job Creation", "last_pod", "job"),
    ChainStep("Pod Group Creation", "First Pod Creation", "podgroup", "first_pod"),
    ChainStep("Pod Scheduling Decision", "Pod Group Creation", "decision", "podgroup"),
    ChainStep("First Eviction", "Pod Group Creation", "eviction", "podgroup"),
    ChainStep("First PVC Bind Request", "Pod Group Creation", "pvc_request", "podgroup"),
    ChainStep("First PVC Bind", "First PVC Bind Request", "pvc_bind", "pvc_request"),
    ChainStep("Backend Job Creation", "Pod Group Creation", "backend", "podgroup"),
    ChainStep("Total Pod Scheduling Decision", "Workload Submission", "decision", "submitted", "general"),
    ChainStep("Total Backend Job Creation", "Workload Submission", "backend", "submitted", "general"),
)


def _time_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "int", meaning, "s since 1970", nullable=nullable)


JOBS = Table(
    "upstream_jobs",
    "One row per workload that was sampled: its milestones in whole seconds, as the old tool has them.",
    ("row",),
    (
        _ROW,
        _NAME,
        _NAMESPACE,
        Column("project", "str", "Run:ai project."),
        Column("submitted_at_us", "int", "Submitted, client's clock.", "µs since 1970"),
        _time_column("workload_at_s", "Workload created."),
        _time_column("job_at_s", "Its job created."),
        _time_column("first_pod_at_s", "First pod created."),
        _time_column("last_pod_at_s", "Last pod created."),
        _time_column("podgroup_at_s", "Pod group created."),
        _time_column("decision_at_s", "First pod scheduled, or found unschedulable: the file does not state which."),
        _time_column("eviction_at_s", "First eviction on its behalf; null: none was seen.", nullable=True),
        _time_column("pvc_request_at_s", "First volume asked for; null: not measured.", nullable=True),
        _time_column("pvc_bind_at_s", "First volume bound; null: not measured.", nullable=True),
        _time_column("backend_at_s", "In the control plane's database; null: not measured.", nullable=True),
        Column("kept", "bool", "Counted by the old tool with --skip-errors."),
        Column("skipped", "str", "Why it is not.", nullable=True),
    ),
)


def judge_jobs(rows: Iterable[dict[str, object]] | pl.DataFrame) -> pl.DataFrame:
    """Milestones with the old tool's word on whether they count: table `upstream_jobs`.

    Two are skipped: pod groups earlier than their first pod, and decisions more than 1 s before the submission.
    """
    schema = {name: kind for name, kind in JOBS.schema().items() if name not in ("kept", "skipped")}
    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(list(rows), schema=schema, orient="row")
    reason = (
        pl.when(pl.col("podgroup_at_s") < pl.col("first_pod_at_s"))
        .then(pl.lit(EARLY_PODGROUP))
        .when(pl.col("decision_at_s") - _true_second("submitted") < -1)
        .then(pl.lit(NEGATIVE_TOTAL))
        .otherwise(pl.lit(None, dtype=pl.String))
    )
    return JOBS.check(
        frame.with_columns(reason.alias("skipped")).with_columns(pl.col("skipped").is_null().alias("kept"))
    )


def build_deltas(jobs: pl.DataFrame) -> pl.DataFrame:
    """Compute the seconds of each step of the chain for each workload, true and as the old tool prints it.

    Returns: Table `upstream_deltas`, workload by workload in the order of `jobs`, the steps in the chain's order.

    Both sides are cut to whole seconds first, so a delta is true to within 1 s. The old tool prints 0 for -1 s;
    `clamped` marks these rows.
    """
    parts = []
    for number, step in enumerate(STEPS):
        printed = _printed_second(step.at) - _printed_second(step.at if step.name == "First PVC Bind" else step.since)
        parts.append(
            [
                pl.lit(number).alias("number"),
                pl.lit(step.name).alias("step"),
                pl.lit(step.reference).alias("reference"),
                (_true_second(step.at) - _true_second(step.since)).alias("delta_s"),
                pl.when(printed == -1).then(pl.lit(0, dtype=pl.Int64)).otherwise(printed).alias("upstream_s"),
                (printed == -1).alias("clamped"),
            ]
        )
    keys = ["row", "name", "namespace", "kept"]
    checked = JOBS.check(jobs).with_row_index("place")
    long = pl.concat([checked.select("place", *keys, *part) for part in parts])
    return DELTAS.check(long.sort("place", "number"))


def milestone_column(name: Milestone) -> str:
    """The column of a milestone in `upstream_jobs`."""
    return "submitted_at_us" if name == "submitted" else f"{name}_at_s"


def _true_second(name: Milestone) -> pl.Expr:
    column = pl.col(milestone_column(name))
    return column // US_PER_S if name == "submitted" else column


def _printed_second(name: Milestone) -> pl.Expr:
    """The second that the old tool has for it: its fallback where nothing was measured."""
    return pl.coalesce(_true_second(name), _true_second(FALLBACKS[name])) if name in FALLBACKS else _true_second(name)


def find_project(namespace: str) -> str:
    """The Run:ai project of a namespace: without the prefix, and nothing but the prefix.

    >>> find_project("runai-my-runai-tests"), find_project("team-a")
    ('my-runai-tests', 'team-a')
    """
    return namespace.removeprefix("runai-")
