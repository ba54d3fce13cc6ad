"""Submission of planned workloads: journalled before, acknowledged after, never twice."""

from workbench.scaletest.submission.abort_criteria import AbortLimits, ClusterHealth, StopRequest, SubmissionLimits
from workbench.scaletest.submission.plan_submission import Bursts, SubmissionOutcome, SubmissionStatus, submit_plan

__all__ = [
    "AbortLimits",
    "Bursts",
    "ClusterHealth",
    "StopRequest",
    "SubmissionLimits",
    "SubmissionOutcome",
    "SubmissionStatus",
    "submit_plan",
]
