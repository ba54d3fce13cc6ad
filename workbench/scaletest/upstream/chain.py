"""The old tool's milestones and its chain of deltas: which time counts from which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

# Key in sampled.json of each milestone but the submission, in the order of the file.
FIELDS: dict[Milestone, str] = {
    "workload": "workloadCreatedTimestamp",
    "job": "jobCreatedTimestamp",
    "first_pod": "firstPodCreatedTimestamp",
    "last_pod": "lastPodCreatedTimestamp",
    "podgroup": "podGroupCreatedTimestamp",
    "decision": "podSchedulingDecisionTimestamp",
    "eviction": "firstEvictionTimestamp",
    "pvc_request": "firstPVCBindRequestTimestamp",
    "pvc_bind": "firstPVCBindTimestamp",
    "backend": "backendJobCreatedTimestamp",
}

# What the old tool writes where it has seen nothing: a time that says "not measured" to those who know.
FALLBACKS: dict[Milestone, Milestone] = {
    "eviction": "decision",
    "pvc_request": "decision",
    "pvc_bind": "decision",
    "backend": "workload",
}
REQUIRED: tuple[Milestone, ...] = tuple(name for name in FIELDS if name not in FALLBACKS)

# Heading of each milestone in times.csv, in the order in which the old tool writes the values.
HEADINGS: dict[Milestone, str] = {
    "workload": "Workload Created",
    "job": "Job Created",
    "first_pod": "First Pod Created",
    "last_pod": "Last Pod Created",
    "podgroup": "Pod Group Created",
    "decision": "Pod Scheduling Decided",
    "eviction": "First Evicted",
    "pvc_request": "First PVC Bind Requested",
    "pvc_bind": "First PVC Bound",
    "backend": "Backend Job Created",
    "submitted": "Workload Submitted",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A delta of the old tool: from `since` to `at`.

    Attributes
    ----------
    name, reference
        As in its times.csv and in the titles of its plots.
    plots
        Where it draws it, with all its settings on.
    """

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
    Step("Workload Creation", "Workload Submission", "workload", "submitted"),
    Step("Job Creation", "Workload Creation", "job", "workload"),
    Step("First Pod Creation", "Job Creation", "first_pod", "job"),
    Step("Last Pod Creation", "Job Creation", "last_pod", "job"),
    Step("Pod Group Creation", "First Pod Creation", "podgroup", "first_pod"),
    Step("Pod Scheduling Decision", "Pod Group Creation", "decision", "podgroup"),
    Step("First Eviction", "Pod Group Creation", "eviction", "podgroup"),
    Step("First PVC Bind Request", "Pod Group Creation", "pvc_request", "podgroup"),
    Step("First PVC Bind", "First PVC Bind Request", "pvc_bind", "pvc_request"),
    Step("Backend Job Creation", "Pod Group Creation", "backend", "podgroup"),
    Step("Total Pod Scheduling Decision", "Workload Submission", "decision", "submitted", "general"),
    Step("Total Backend Job Creation", "Workload Submission", "backend", "submitted", "general"),
)
