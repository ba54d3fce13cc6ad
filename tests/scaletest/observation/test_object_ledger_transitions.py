"""What an object's state says: each transition with the server's time where the object tells it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from workbench.scaletest.observation import object_ledger
from workbench.scaletest.observation.decoded_objects import Event, ObjectDecoder, Pod, Thing, read_status
from workbench.scaletest.observation.object_ledger import Transition

T1, T2, T3 = "2026-11-22T03:00:01Z", "2026-11-22T03:00:02Z", "2026-11-22T03:00:03Z"
META = {"name": "a", "uid": "u", "creationTimestamp": T1}


def made(kind: type[Any], **fields: Any) -> Any:
    return msgspec.convert({"metadata": META, **fields}, kind)


def thing(**fields: Any) -> Thing:
    text = msgspec.json.encode({"type": "ADDED", "object": {"metadata": META, **fields}})
    return ObjectDecoder(Thing).decode_line(text)[1]


def pod(**status: Any) -> Pod:
    return made(Pod, spec={"nodeName": "n1"}, status=status)


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": T2, **more}


def test_a_pod_is_scheduled_when_its_condition_says_so_and_not_when_it_says_unschedulable() -> None:
    good = pod(conditions=[condition("PodScheduled")])
    assert list(object_ledger.pod_transitions(good)) == [
        Transition("created", T1),
        Transition("scheduled", T2, None, "n1"),
    ]
    for reason, step in (("Unschedulable", "unschedulable"), ("SchedulingGated", "gated")):
        waits = made(Pod, spec={}, status={"conditions": [condition("PodScheduled", "False", reason=reason)]})
        assert list(object_ledger.pod_transitions(waits))[1:] == [Transition(step, T2, reason)]


def test_a_pod_with_a_node_is_scheduled_even_where_its_scheduler_never_heard_of_it() -> None:
    bound = pod(phase="Running", conditions=[condition("PodScheduled", "False", reason="SchedulerError")])
    assert list(object_ledger.pod_transitions(bound))[1:] == [
        Transition("scheduled", None, "SchedulerError", "n1"),
        Transition("running", None, None, "n1"),
    ]


def test_a_pod_runs_once_the_last_of_its_containers_does() -> None:
    states = [{"state": {"running": {"startedAt": at}}} for at in (T3, T2)]
    found = list(object_ledger.pod_transitions(pod(phase="Running", containerStatuses=states)))
    assert found[1:] == [Transition("running", T3, None, "n1")]
    assert list(object_ledger.pod_transitions(pod(phase="Running")))[1:] == [Transition("running", None, None, "n1")]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_ends_when_the_last_of_its_containers_did(phase: str) -> None:
    states = [{"state": {"terminated": {"finishedAt": at, "exitCode": 1}}} for at in (T2, T3)]
    found = list(object_ledger.pod_transitions(pod(phase=phase, reason="DeadlineExceeded", containerStatuses=states)))
    assert found[1:] == [Transition(phase.lower(), T3, "DeadlineExceeded")]


def test_a_pod_that_ended_unseen_has_run_since_its_last_container_began() -> None:
    states = [{"state": {"terminated": {"startedAt": at, "finishedAt": T3}}} for at in (T1, T2)]
    found = list(object_ledger.pod_transitions(pod(phase="Succeeded", containerStatuses=states)))
    assert found[1:] == [Transition("running", T2, None, "n1"), Transition("succeeded", T3)]


def test_a_pod_is_evicted_by_its_condition_or_its_reason() -> None:
    by_condition = pod(conditions=[condition("DisruptionTarget", reason="PreemptionByScheduler")])
    assert list(object_ledger.pod_transitions(by_condition))[1:] == [Transition("evicted", T2, "PreemptionByScheduler")]
    by_reason = pod(phase="Failed", reason="Evicted")
    assert [step.transition for step in object_ledger.pod_transitions(by_reason)] == ["created", "evicted", "failed"]


def test_a_pod_without_a_status_is_only_created() -> None:
    assert list(object_ledger.pod_transitions(made(Pod))) == [Transition("created", T1)]


def test_a_job_is_suspended_and_resumed_complete_or_failed() -> None:
    def steps(*conditions: dict[str, Any]) -> list[Transition]:
        return list(object_ledger.job_transitions(thing(status={"conditions": list(conditions)})))[1:]

    assert steps(condition("Suspended")) == [Transition("suspended", T2)]
    assert steps(condition("Suspended", "False", reason="JobResumed")) == [Transition("resumed", T2, "JobResumed")]
    assert steps(condition("Complete"), condition("FailureTarget")) == [Transition("complete", T2)]
    assert steps(condition("Failed", reason="BackoffLimitExceeded")) == [
        Transition("failed", T2, "BackoffLimitExceeded")
    ]


def test_any_workload_has_a_transition_per_true_condition_and_phase() -> None:
    conditions = [condition("Created"), condition("AllPods Ready!"), condition("Failed", "False")]
    found = thing(status={"conditions": conditions, "phase": "Running"})
    assert list(object_ledger.workload_transitions(found)) == [
        Transition("created", T1),
        Transition("created", T2),
        Transition("allpods-ready", T2),
        Transition("running"),
    ]


@pytest.mark.parametrize(
    "status", [7, "text", [1], None, {"conditions": "none"}, {"conditions": [1]}, {"phase": {"a": 1}}, {"phase": "???"}]
)
def test_a_status_of_another_form_is_left_out(status: Any) -> None:
    assert list(object_ledger.workload_transitions(thing(status=status))) == [Transition("created", T1)]


def test_of_a_status_that_is_partly_odd_the_rest_counts() -> None:
    found = read_status(thing(status={"phase": 7, "conditions": [condition("Ready")]}))
    assert found.phase is None
    assert found.conditions is not None
    assert [one.type for one in found.conditions] == ["Ready"]


def test_a_status_with_very_many_conditions_is_cut() -> None:
    found = thing(status={"conditions": [condition(f"C{number}") for number in range(1000)]})
    assert len(list(object_ledger.workload_transitions(found))) == 65


def test_a_bind_request_is_bound_or_failed() -> None:
    spec = {"podName": "p", "selectedNode": "n1"}
    assert list(object_ledger.bind_request_transitions(thing(spec=spec, status={"phase": "Succeeded"}))) == [
        Transition("created", T1, None, "n1"),
        Transition("bound", None, None, "n1"),
    ]
    failed = list(
        object_ledger.bind_request_transitions(thing(spec=spec, status={"phase": "Failed", "reason": "no  node"}))
    )
    assert failed[1] == Transition("failed", None, "no node", "n1")
    assert len(list(object_ledger.bind_request_transitions(thing(spec=spec, status={"phase": "Pending"})))) == 1


def test_a_claim_is_bound() -> None:
    assert list(object_ledger.pvc_transitions(thing(status={"phase": "Bound"}))) == [
        Transition("created", T1),
        Transition("pvc-bound"),
    ]
    assert list(object_ledger.pvc_transitions(thing(status={"phase": "Pending"}))) == [Transition("created", T1)]


def event(reason: str, note: str = "", **fields: Any) -> list[Transition]:
    return list(object_ledger.event_transitions(made(Event, reason=reason, note=note, **fields)))


def test_an_event_has_the_finest_time_that_it_tells() -> None:
    fine = {"eventTime": "2026-11-22T03:00:02.123456Z", "deprecatedFirstTimestamp": T2}
    assert event("Scheduled", **fine) == [Transition("scheduled", "2026-11-22T03:00:02.123456Z")]
    assert event("Scheduled", eventTime=None, deprecatedFirstTimestamp=T2) == [Transition("scheduled", T2)]
    assert event("Scheduled") == [Transition("scheduled", T1)]


def test_an_event_of_another_reason_says_nothing() -> None:
    assert event("Pulled") == []
    assert event("") == []


@pytest.mark.parametrize(
    ("reason", "note", "told"),
    [
        ("Evict", "Pod was preempted by pg-train-7-1f2e to reclaim", "Evict by pg-train-7-1f2e"),
        ("Preempted", "Preempted by pod 1f2e-3d4c on node n1", "Preempted by 1f2e-3d4c"),
        ("Evict", "Reclaimed by team-b/job-1", "Evict by team-b/job-1"),
        ("Evicted", "The node was low on resource: memory.", "Evicted"),
    ],
)
def test_an_eviction_names_who_preempted_where_the_event_does(reason: str, note: str, told: str) -> None:
    assert event(reason, note) == [Transition("evicted", T1, told)]


def test_a_pod_that_fits_nowhere_and_a_claim_say_why() -> None:
    assert event("FailedScheduling", "0/3 nodes\n are available") == [
        Transition("failed-scheduling", T1, "0/3 nodes are available")
    ]
    assert event("ExternalProvisioning", "waiting")[0].transition == "pvc-requested"
    assert event("ProvisioningSucceeded")[0].transition == "pvc-bound"


def test_a_long_reason_is_cut() -> None:
    assert len(event("FailedScheduling", "x" * 10_000)[0].reason or "") == object_ledger.MAX_REASON_CHARS
