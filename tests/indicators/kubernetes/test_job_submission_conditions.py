"""What a pod's status says, in plain words; each case as Kubernetes writes it."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.indicators.kubernetes import job_submission

NODE = "worker-17.example.internal"


def pod(phase: str = "Failed", **status: Any) -> dict[str, Any]:
    annotations = {"batch.kubernetes.io/job-completion-index": "4"}
    return {
        "metadata": {"name": "a-4-x", "annotations": annotations},
        "spec": {"nodeName": NODE},
        "status": {"phase": phase, **status},
    }


def ended(name: str, code: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, **more}}}


def waiting(name: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (
            {"containerStatuses": [ended("measure", 137, reason="OOMKilled")]},
            "out of memory: its runs together reached the pod's limit",
        ),
        (
            {"initContainerStatuses": [ended("install", 137, reason="OOMKilled")]},
            "out of memory while the stacks were installed",
        ),
        (
            {"initContainerStatuses": [ended("install", 1, message="environment 1\nworkbench: six: no such wheel\n")]},
            "the stacks could not be installed: six: no such wheel",
        ),
        (
            {"reason": "Evicted", "message": f"The node was low on resource: memory. {NODE}"},
            "evicted because the node ran out of a resource: The node was low on resource: memory. (node)",
        ),
        ({"reason": "DeadlineExceeded", "message": "x"}, "it exceeded its time limit: x"),
        ({"reason": "OutOfcpu"}, "its node does not have enough cpu"),
        (
            {"conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler")]},
            "preempted by a pod of higher priority",
        ),
        (
            {"conditions": [condition("DisruptionTarget", "True", "SomethingNew", "why")]},
            "it was disrupted (SomethingNew): why",
        ),
        ({"containerStatuses": [ended("measure", 137)]}, "the runner was killed"),
        ({"containerStatuses": [ended("measure", 2)]}, "the runner ended with exit code 2"),
        ({}, "the pod failed, and the cluster reports no reason"),
    ],
)
def test_why_a_pod_failed(status: dict[str, Any], told: str) -> None:
    assert job_submission.find_failure_reason(pod(**status)) == told


def test_a_pod_that_ended_well_or_runs_has_not_failed() -> None:
    assert job_submission.find_failure_reason(pod("Succeeded")) is None
    assert job_submission.find_failure_reason(pod("Running")) is None


@pytest.mark.parametrize(
    ("status", "told", "fatal"),
    [
        (
            {"conditions": [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes: 3 Insufficient cpu.")]},
            "no node can run the pod: 0/3 nodes: 3 Insufficient cpu.",
            False,
        ),
        (
            {"initContainerStatuses": [waiting("install", "ImagePullBackOff", 'Back-off pulling image "x"')]},
            'the image cannot be pulled: Back-off pulling image "x"',
            True,
        ),
        (
            {"initContainerStatuses": [waiting("install", "ErrImagePull")]},
            "the image could not be pulled; the pull is retried",
            False,
        ),
        (
            {"containerStatuses": [waiting("measure", "CreateContainerConfigError", 'secret "a" not found')]},
            'the container cannot be created: a Secret or ConfigMap is missing: secret "a" not found',
            True,
        ),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], told: str, fatal: bool) -> None:
    assert job_submission.find_waiting_reason(pod("Pending", **status)) == (told, fatal)


def test_a_pod_that_simply_begins_is_not_complained_about() -> None:
    begins = {"initContainerStatuses": [waiting("install", "PodInitializing")]}
    assert job_submission.find_waiting_reason(pod("Pending", **begins)) is None
    assert (
        job_submission.find_waiting_reason(pod("Pending", conditions=[condition("PodScheduled", "True", "")])) is None
    )


def test_what_is_told_is_short_and_has_no_password() -> None:
    message = "cannot pull https://ann:hunter22@registry.example/x " + "y" * 1000
    told = job_submission.find_failure_reason(pod(reason="Evicted", message=message)) or ""
    assert len(told) <= job_submission.MAX_TEXT
    assert "hunter22" not in told


@pytest.mark.parametrize(
    "odd", [{}, {"status": None}, {"metadata": {}, "spec": None}, {"status": {"conditions": None, "phase": "Failed"}}]
)
def test_a_pod_of_which_little_is_known_is_no_reason_to_fall_over(odd: dict[str, Any]) -> None:
    job_submission.find_failure_reason(odd)
    job_submission.find_waiting_reason(odd)
    assert job_submission.read_pod_index(odd) is None
    assert not job_submission.has_started_measuring(odd)
    assert job_submission.read_pod_index(pod()) == 4
