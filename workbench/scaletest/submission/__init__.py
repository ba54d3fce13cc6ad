"""Submission of planned workloads: journalled before, acknowledged after, never twice."""
