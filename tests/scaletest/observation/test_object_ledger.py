"""First transitions only, whose they are, and what a restarted sampler knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from workbench.scaletest.observation import object_ledger, run_records
from workbench.scaletest.observation.object_ledger import (
    Event,
    ObjectDecoder,
    ObjectLedger,
    Pod,
    Scope,
    Sight,
    Thing,
    Transition,
    read_status,
)

PODS, JOBS = Scope("pod", "Pod", "ns"), Scope("job", "Job", "ns")
GROUPS, BINDS = Scope("podgroup", "PodGroup", "ns"), Scope("bindrequest", "BindRequest", "ns")
NOW = Sight(7, 1)


def pod(name: str, **meta: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **meta}}, Pod)


def thing(name: str, spec: Any = None, **meta: Any) -> Thing:
    made = {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **meta}, "spec": spec or {}}
    return ObjectDecoder(Thing).decode_line(msgspec.json.encode({"type": "ADDED", "object": made}))[1]


def owned(uid: str, name: str = "owner") -> list[dict[str, Any]]:
    return [{"uid": "other", "name": "other"}, {"uid": uid, "name": name, "controller": True}]


def event(reason: str, about: str, name: str = "e1") -> Event:
    regarding = {"uid": about, "name": "p", "kind": "Pod"}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ns", "uid": name}, "reason": reason, "regarding": regarding}, Event
    )


def ledger() -> tuple[ObjectLedger, list[run_records.Seen]]:
    rows: list[run_records.Seen] = []
    return ObjectLedger(rows.append), rows


def test_only_the_first_of_each_transition_of_an_incarnation_is_kept() -> None:
    found, rows = ledger()
    ready = [Transition("created"), Transition("ready")]
    assert found.record_state(PODS, pod("a"), ready, NOW) == 2
    assert found.record_state(PODS, pod("a"), [*ready, Transition("running")], Sight(9, 2, True)) == 1
    assert found.record_state(PODS, pod("a", uid="again"), [Transition("created")], NOW) == 1
    assert [(one.uid, one.transition, one.arrival_ns, one.session, one.gap) for one in rows] == [
        ("uid-a", "created", 7, 1, False),
        ("uid-a", "ready", 7, 1, False),
        ("uid-a", "running", 9, 2, True),
        ("again", "created", 7, 1, False),
    ]


def test_a_deletion_is_told_once_with_what_the_last_state_says() -> None:
    found, rows = ledger()
    found.record_state(PODS, pod("a"), [Transition("created")], NOW)
    found.record_deletion(PODS, pod("a"), [Transition("created"), Transition("failed")], NOW)
    found.record_deletion(PODS, pod("a"), [], NOW)
    assert [one.transition for one in rows] == ["created", "failed", "deleted"]


def test_what_a_list_lacks_was_deleted_but_only_in_its_own_scope() -> None:
    found, rows = ledger()
    for scope, name in ((PODS, "a"), (PODS, "b"), (Scope("pod", "Pod", "elsewhere"), "c"), (JOBS, "d")):
        found.record_state(scope, thing(name), [Transition("created")], NOW)
    assert found.record_missing(PODS, {"uid-b"}, Sight(9, 1, True)) == 1
    assert found.record_missing(PODS, {"uid-b"}, Sight(9, 1, True)) == 0
    assert [(one.name, one.transition, one.gap) for one in rows[4:]] == [("a", "deleted", True)]


def test_the_workload_is_told_by_labels_in_their_order() -> None:
    found, rows = ledger()
    labels = {"job-name": "job", "release": "release", "workbench.local/workload": "ours"}
    found.record_state(PODS, pod("a", labels=labels), [Transition("created")], NOW)
    del labels["workbench.local/workload"]
    found.record_state(PODS, pod("b", labels=labels), [Transition("created")], NOW)
    found.record_state(PODS, pod("c", labels={"training.kubeflow.org/job-name": "torch"}), [Transition("created")], NOW)
    assert [one.workload for one in rows] == ["ours", "release", "torch"]


def test_without_labels_the_owner_tells_and_an_object_without_owner_is_its_own_workload() -> None:
    found, rows = ledger()
    found.record_state(JOBS, thing("job"), [Transition("created")], NOW)
    found.record_state(GROUPS, thing("pg", ownerReferences=owned("uid-job", "job")), [Transition("created")], NOW)
    found.record_state(GROUPS, thing("stray", ownerReferences=owned("unknown")), [Transition("created")], NOW)
    found.record_state(GROUPS, thing("none"), [Transition("created")], NOW)
    assert [(one.workload, one.owner, one.owner_name) for one in rows] == [
        ("job", None, None),
        ("job", "uid-job", "job"),
        (None, "unknown", "owner"),
        (None, None, None),
    ]


def test_a_bind_request_is_about_its_pod() -> None:
    found, rows = ledger()
    found.record_state(PODS, pod("p", labels={"release": "w"}), [Transition("created")], NOW)
    made = thing("b", {"podName": "p"}, ownerReferences=owned("uid-p", "something"))
    found.record_state(BINDS, made, [Transition("created")], NOW)
    assert (rows[1].owner_name, rows[1].owner, rows[1].workload) == ("p", "uid-p", "w")


def test_the_first_event_of_a_kind_is_kept_for_each_pod() -> None:
    found, rows = ledger()
    found.record_state(PODS, pod("p", labels={"release": "w"}), [Transition("created")], NOW)
    for number, (reason, about) in enumerate(
        [("FailedScheduling", "uid-p"), ("FailedScheduling", "uid-p"), ("Scheduled", "uid-p"), ("Scheduled", "x")]
    ):
        found.record_event(event(reason, about, f"e{number}"), NOW)
    assert [(one.resource, one.transition, one.uid, one.owner, one.workload) for one in rows[1:]] == [
        ("event", "failed-scheduling", "e0", "uid-p", "w"),
        ("event", "scheduled", "e2", "uid-p", "w"),
        ("event", "scheduled", "e3", "x", None),
    ]


def test_an_event_about_nothing_is_left_out() -> None:
    found, rows = ledger()
    assert found.record_event(event("Scheduled", ""), NOW) == 0
    assert found.record_event(msgspec.convert({"metadata": {"name": "e"}, "reason": "Scheduled"}, Event), NOW) == 0
    assert rows == []


def test_a_restarted_sampler_tells_nothing_twice_and_misses_what_went(tmp_path: Path) -> None:
    first, rows = ledger()
    first.record_state(PODS, pod("a"), [Transition("created"), Transition("ready")], Sight(5))
    first.record_state(PODS, pod("b", labels={"release": "w"}), [Transition("created")], Sight(6))
    first.record_event(event("Scheduled", "uid-a"), Sight(8))
    path = tmp_path / run_records.OBSERVED
    lines = [*rows, run_records.NodeSeen("n", 9, ready=True)]
    path.write_bytes(b"".join(map(run_records.encode_line, lines)) + b'{"type":"se')
    again, more = ledger()
    assert again.restore(path) == 9
    assert len(again) == 2
    again.record_state(PODS, pod("a"), [Transition("created"), Transition("ready"), Transition("running")], NOW)
    again.record_event(event("Scheduled", "uid-a"), NOW)
    again.record_missing(PODS, {"uid-a"}, NOW)
    assert [(one.name, one.transition, one.workload) for one in more] == [("a", "running", "a"), ("b", "deleted", "w")]


def test_a_new_run_has_nothing_to_take_up(tmp_path: Path) -> None:
    assert ObjectLedger(lambda row: None).restore(tmp_path / "none.jsonl") == 0


def test_an_object_with_very_many_conditions_cannot_fill_the_disk() -> None:
    found, rows = ledger()
    many = [Transition(f"c{number}") for number in range(1000)]
    found.record_state(PODS, pod("a"), many, NOW)
    for number in range(100):
        found.record_state(PODS, pod(f"b{number}"), [Transition(f"d{number}-{each}") for each in range(10)], NOW)
    assert len({one.transition for one in rows}) <= object_ledger.MAX_TRANSITIONS
    assert sum(one.name == "a" for one in rows) == object_ledger.MAX_BITS_EACH
    assert found.left_out > 0
    assert found.record_deletion(PODS, pod("a"), [], NOW) == 0 or rows[-1].transition == "deleted"


T1, T2, T3 = "2026-11-22T03:00:01Z", "2026-11-22T03:00:02Z", "2026-11-22T03:00:03Z"
META = {"name": "a", "uid": "u", "creationTimestamp": T1}


def made(kind: type[Any], **fields: Any) -> Any:
    return msgspec.convert({"metadata": META, **fields}, kind)


def thing_with(**fields: Any) -> Thing:
    text = msgspec.json.encode({"type": "ADDED", "object": {"metadata": META, **fields}})
    return ObjectDecoder(Thing).decode_line(text)[1]


def pod_with(**status: Any) -> Pod:
    return made(Pod, spec={"nodeName": "n1"}, status=status)


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": T2, **more}


def steps_of(pod: Pod) -> list[Transition]:
    """All of a pod but its creation."""
    created, *steps = object_ledger.pod_transitions(pod)
    assert created == Transition("created", T1)
    return steps


def containers(state: str, *ats: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"state": {state: at}} for at in ats]


def test_a_pod_is_scheduled_when_its_condition_says_so_and_not_when_it_says_unschedulable() -> None:
    good = pod_with(conditions=[condition("PodScheduled")])
    assert steps_of(good) == [Transition("scheduled", T2, None, "n1")]
    for reason, step in (("Unschedulable", "unschedulable"), ("SchedulingGated", "gated")):
        waits = made(Pod, spec={}, status={"conditions": [condition("PodScheduled", "False", reason=reason)]})
        assert steps_of(waits) == [Transition(step, T2, reason)]


def test_a_pod_with_a_node_is_scheduled_even_where_its_scheduler_never_heard_of_it() -> None:
    bound = pod_with(phase="Running", conditions=[condition("PodScheduled", "False", reason="SchedulerError")])
    running = Transition("running", None, None, "n1")
    assert steps_of(bound) == [Transition("scheduled", None, "SchedulerError", "n1"), running]
    assert steps_of(pod_with(phase="Running")) == [running]


def test_a_pod_runs_once_the_last_of_its_containers_does() -> None:
    states = containers("running", {"startedAt": T3}, {"startedAt": T2})
    assert steps_of(pod_with(phase="Running", containerStatuses=states)) == [Transition("running", T3, None, "n1")]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_ends_when_the_last_of_its_containers_did(phase: str) -> None:
    states = containers("terminated", {"finishedAt": T2, "exitCode": 1}, {"finishedAt": T3, "exitCode": 1})
    ended = pod_with(phase=phase, reason="DeadlineExceeded", containerStatuses=states)
    assert steps_of(ended) == [Transition(phase.lower(), T3, "DeadlineExceeded")]


def test_a_pod_that_ended_unseen_has_run_since_its_last_container_began() -> None:
    states = containers("terminated", *({"startedAt": at, "finishedAt": T3} for at in (T1, T2)))
    ended = pod_with(phase="Succeeded", containerStatuses=states)
    assert steps_of(ended) == [Transition("running", T2, None, "n1"), Transition("succeeded", T3)]


def test_a_pod_is_evicted_by_its_condition_or_its_reason() -> None:
    by_condition = pod_with(conditions=[condition("DisruptionTarget", reason="PreemptionByScheduler")])
    assert steps_of(by_condition) == [Transition("evicted", T2, "PreemptionByScheduler")]
    by_reason = pod_with(phase="Failed", reason="Evicted")
    assert [step.transition for step in steps_of(by_reason)] == ["evicted", "failed"]


def test_a_pod_without_a_status_is_only_created() -> None:
    assert steps_of(made(Pod)) == []


def test_a_job_is_suspended_and_resumed_complete_or_failed() -> None:
    def steps(*conditions: dict[str, Any]) -> list[Transition]:
        return list(object_ledger.job_transitions(thing_with(status={"conditions": list(conditions)})))[1:]

    assert steps(condition("Suspended")) == [Transition("suspended", T2)]
    assert steps(condition("Suspended", "False", reason="JobResumed")) == [Transition("resumed", T2, "JobResumed")]
    assert steps(condition("Complete"), condition("FailureTarget")) == [Transition("complete", T2)]
    limit = "BackoffLimitExceeded"
    assert steps(condition("Failed", reason=limit)) == [Transition("failed", T2, limit)]


def test_any_workload_has_a_transition_per_true_condition_and_phase() -> None:
    conditions = [condition("Created"), condition("AllPods Ready!"), condition("Failed", "False")]
    found = thing_with(status={"conditions": conditions, "phase": "Running"})
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
    assert list(object_ledger.workload_transitions(thing_with(status=status))) == [Transition("created", T1)]


def test_of_a_status_that_is_partly_odd_the_rest_counts() -> None:
    found = read_status(thing_with(status={"phase": 7, "conditions": [condition("Ready")]}))
    assert found.phase is None
    assert found.conditions is not None
    assert [one.type for one in found.conditions] == ["Ready"]


def test_a_status_with_very_many_conditions_is_cut() -> None:
    found = thing_with(status={"conditions": [condition(f"C{number}") for number in range(1000)]})
    assert len(list(object_ledger.workload_transitions(found))) == 65


def test_a_bind_request_is_bound_or_failed() -> None:
    def steps(**status: str) -> list[Transition]:
        given = thing_with(spec={"podName": "p", "selectedNode": "n1"}, status=status)
        created, *later = object_ledger.bind_request_transitions(given)
        assert created == Transition("created", T1, None, "n1")
        return later

    assert steps(phase="Succeeded") == [Transition("bound", None, None, "n1")]
    assert steps(phase="Failed", reason="no  node") == [Transition("failed", None, "no node", "n1")]
    assert steps(phase="Pending") == []


@pytest.mark.parametrize(("phase", "later"), [("Bound", [Transition("pvc-bound")]), ("Pending", [])])
def test_a_claim_is_bound(phase: str, later: list[Transition]) -> None:
    found = list(object_ledger.pvc_transitions(thing_with(status={"phase": phase})))
    assert found == [Transition("created", T1), *later]


def event_with(reason: str, note: str = "", **fields: Any) -> list[Transition]:
    return list(object_ledger.event_transitions(made(Event, reason=reason, note=note, **fields)))


def test_an_event_has_the_finest_time_that_it_tells() -> None:
    fine = {"eventTime": "2026-11-22T03:00:02.123456Z", "deprecatedFirstTimestamp": T2}
    assert event_with("Scheduled", **fine) == [Transition("scheduled", "2026-11-22T03:00:02.123456Z")]
    assert event_with("Scheduled", eventTime=None, deprecatedFirstTimestamp=T2) == [Transition("scheduled", T2)]
    assert event_with("Scheduled") == [Transition("scheduled", T1)]


def test_an_event_of_another_reason_says_nothing() -> None:
    assert event_with("Pulled") == []
    assert event_with("") == []


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
    assert event_with(reason, note) == [Transition("evicted", T1, told)]


def test_a_pod_that_fits_nowhere_and_a_claim_say_why() -> None:
    (waits,) = event_with("FailedScheduling", "0/3 nodes\n are available")
    assert waits == Transition("failed-scheduling", T1, "0/3 nodes are available")
    assert event_with("ExternalProvisioning", "waiting")[0].transition == "pvc-requested"
    assert event_with("ProvisioningSucceeded")[0].transition == "pvc-bound"


def test_a_long_reason_is_cut() -> None:
    assert len(event_with("FailedScheduling", "x" * 10_000)[0].reason or "") == object_ledger.MAX_REASON_CHARS
