"""Submission of planned workloads: journalled before, acknowledged after, never twice."""

from workbench.scaletest.submission.abort_criteria import ClusterHealth, StopRequest
from workbench.scaletest.submission.plan_submission import (
    Bursts,
    PlanSubmission,
    SilentWatcher,
    SubmissionOutcome,
    SubmissionStatus,
)

__all__ = [
    "Bursts",
    "ClusterHealth",
    "PlanSubmission",
    "SilentWatcher",
    "StopRequest",
    "SubmissionOutcome",
    "SubmissionStatus",
]
