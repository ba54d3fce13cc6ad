"""Submission of planned workloads: journalled before, acknowledged after, never twice."""

from workbench.scaletest.submission.abort_criteria import ClusterHealth, StopRequest
from workbench.scaletest.submission.plan_submission import Bursts, SubmissionOutcome, SubmissionStatus, submit_plan

__all__ = [
    "Bursts",
    "ClusterHealth",
    "StopRequest",
    "SubmissionOutcome",
    "SubmissionStatus",
    "submit_plan",
]
