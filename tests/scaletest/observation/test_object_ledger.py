"""First transitions only, whose they are, and what a restarted sampler knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from workbench.scaletest.observation import object_ledger, run_records
from workbench.scaletest.observation.decoded_objects import Event, ObjectDecoder, Pod, Thing
from workbench.scaletest.observation.object_ledger import ObjectLedger, Scope, Sight, Transition

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
    assert found.record_state(PODS, pod("a"), [Transition("created"), Transition("ready")], NOW) == 2
    assert (
        found.record_state(
            PODS, pod("a"), [Transition("created"), Transition("ready"), Transition("running")], Sight(9, 2, True)
        )
        == 1
    )
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
    other = Scope("pod", "Pod", "elsewhere")
    for scope, name in ((PODS, "a"), (PODS, "b"), (other, "c"), (JOBS, "d")):
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
    path.write_bytes(
        b"".join(map(run_records.encode_line, [*rows, run_records.NodeSeen("n", 9, ready=True)])) + b'{"type":"se'
    )
    again, more = ledger()
    assert again.restore(path) == 9
    assert len(again) == 2
    again.record_state(PODS, pod("a"), [Transition("created"), Transition("ready"), Transition("running")], NOW)
    again.record_event(event("Scheduled", "uid-a"), NOW)
    again.record_missing(PODS, {"uid-a"}, NOW)
    assert [(one.name, one.transition, one.workload) for one in more] == [
        ("a", "running", "a"),
        ("b", "deleted", "w"),
    ]


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
