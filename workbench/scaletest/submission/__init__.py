"""Submission of planned workloads: journalled before, acknowledged after, never twice."""

from workbench.scaletest.submission.abort_criteria import AbortLimits, ClusterHealth, StopRequest, SubmissionLimits
from workbench.scaletest.submission.plan_submission import Bursts, submit_plan
from workbench.scaletest.submission.submission_status import SubmissionOutcome, SubmissionStatus

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
