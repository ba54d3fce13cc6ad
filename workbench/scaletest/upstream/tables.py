"""Tables of the old tool's view of a run: one row a workload, one row a workload and delta."""

from __future__ import annotations

from workbench.tables import Column, Table

_ROW = Column("row", "int", "Place of the workload in sampled.json, from 0.")
_NAME = Column("name", "str", "Name of the workload.")
_NAMESPACE = Column("namespace", "str", "Its namespace.")


def _time(name: str, meaning: str, *, nullable: bool = False) -> Column:
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
        _time("workload_at_s", "Workload created."),
        _time("job_at_s", "Its job created."),
        _time("first_pod_at_s", "First pod created."),
        _time("last_pod_at_s", "Last pod created."),
        _time("podgroup_at_s", "Pod group created."),
        _time("decision_at_s", "First pod scheduled, or found unschedulable: the file does not tell which."),
        _time("eviction_at_s", "First eviction on its behalf; null: none was seen.", nullable=True),
        _time("pvc_request_at_s", "First volume asked for; null: not measured.", nullable=True),
        _time("pvc_bind_at_s", "First volume bound; null: not measured.", nullable=True),
        _time("backend_at_s", "In the control plane's database; null: not measured.", nullable=True),
        Column("kept", "bool", "Counted by the old tool with --skip-errors."),
        Column("skipped", "str", "Why it is not.", nullable=True),
    ),
)

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
    "One row per entry of submitted.json or sampled.json that was left out or is worth a word.",
    (),
    (
        Column("file", "str", "Name of the file."),
        Column("row", "int", "Place in it, from 0."),
        Column("name", "str", "jobName, where it is one.", nullable=True),
        Column("left_out", "bool", "Not part of anything else."),
        Column("why", "str", "What is odd about it."),
    ),
)
