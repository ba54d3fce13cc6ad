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


def install(state: str = "terminated", **facts: Any) -> dict[str, Any]:
    return {"initContainerStatuses": [{"name": "install", "state": {state: facts}}]}


def measure(state: str = "terminated", **facts: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "measure", "state": {state: facts}}]}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


LOW = f"The node was low on resource: memory. {NODE}"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (measure(exitCode=137, reason="OOMKilled"), "out of memory: its runs together reached the pod's limit"),
        (install(exitCode=137, reason="OOMKilled"), "out of memory while the stacks were installed"),
        (
            install(exitCode=1, message="environment 1\nworkbench: six: no such wheel\n"),
            "the stacks could not be installed: six: no such wheel",
        ),
        (
            {"reason": "Evicted", "message": LOW},
            "evicted because the node ran out of a resource: The node was low on resource: memory. (node)",
        ),
        ({"reason": "DeadlineExceeded", "message": "x"}, "it exceeded its time limit: x"),
        ({"reason": "OutOfcpu"}, "its node does not have enough cpu"),
        (condition("DisruptionTarget", "True", "PreemptionByScheduler"), "preempted by a pod of higher priority"),
        (condition("DisruptionTarget", "True", "SomethingNew", "why"), "it was disrupted (SomethingNew): why"),
        (measure(exitCode=137), "the runner was killed"),
        (measure(exitCode=2), "the runner ended with exit code 2"),
        ({}, "the pod failed, and the cluster reports no reason"),
    ],
)
def test_why_a_pod_failed(status: dict[str, Any], told: str) -> None:
    assert job_submission.find_failure_reason(pod(**status)) == told


@pytest.mark.parametrize(
    ("status", "told", "fatal"),
    [
        (condition("PodScheduled", "False", "Unschedulable", "0/3 nodes"), "no node can run the pod: 0/3 nodes", False),
        (install("waiting", reason="ImagePullBackOff", message="no"), "the image cannot be pulled: no", True),
        (install("waiting", reason="ErrImagePull"), "the image could not be pulled; the pull is retried", False),
        (
            measure("waiting", reason="CreateContainerConfigError", message='secret "a" not found'),
            'the container cannot be created: a Secret or ConfigMap is missing: secret "a" not found',
            True,
        ),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], told: str, fatal: bool) -> None:
    assert job_submission.find_waiting_reason(pod("Pending", **status)) == (told, fatal)


def test_a_pod_that_ended_well_runs_or_simply_begins_is_not_complained_about() -> None:
    assert [job_submission.find_failure_reason(pod(phase)) for phase in ("Succeeded", "Running")] == [None, None]
    for begins in (install("waiting", reason="PodInitializing"), condition("PodScheduled", "True", "")):
        assert job_submission.find_waiting_reason(pod("Pending", **begins)) is None


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
