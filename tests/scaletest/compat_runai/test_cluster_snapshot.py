from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.scaletest.cluster_api.connection import NS_PER_S, parse_timestamp
from workbench.scaletest.compat_runai.cluster_snapshot import Snapshot, append_observations, join_lists, map_owner_names
from workbench.scaletest.observation import run_records

SPACE = "runai-a"
Json = dict[str, Any]


def at(second: int) -> str:
    return f"2026-01-01T10:00:{second:02d}Z"


def seconds(second: int) -> int:
    found = parse_timestamp(at(second))
    assert found is not None
    return found.ns // NS_PER_S


def thing(name: str, created: int, labels: Json | None = None, **more: Json) -> Json:
    return {"metadata": {"name": name, "creationTimestamp": at(created), "labels": labels}, **more}


def workload(name: str, created: int = 1, shown: str | None = None) -> Json:
    return thing(shown or name, created, spec={"name": {"value": name}})


def pod(name: str, created: int, decided: int | None, labels: Json | None, **more: Any) -> Json:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(decided or 0)} | more
    return thing(name, created, labels, status={"conditions": [condition] if decided else []})


def whole(**changed: Any) -> Snapshot:
    lists: Json = {
        "workloads": [workload("j-1")],
        "jobs": [thing("j-1", 2)],
        "pods": [pod("j-1-0-0", 3, 9, {"release": "j-1"}), pod("j-1-0-1", 5, 8, {"release": "j-1"})],
        "groups": [thing("pg-j-1-abc", 6, {"release": "j-1"})],
    }
    return join_lists(SPACE, **(lists | changed))


def test_the_lists_are_joined_as_the_old_sampler_joins_them() -> None:
    assert whole().milestones["j-1"] == {
        "workload": seconds(1),
        "job": seconds(2),
        "first_pod": seconds(3),
        "last_pod": seconds(5),
        "podgroup": seconds(6),
        "decision": seconds(9),
    }
    assert whole().complete == ["j-1"]


def test_pods_are_found_by_any_of_the_labels() -> None:
    for key in ("release", "job-name", "training.kubeflow.org/job-name"):
        assert "first_pod" in whole(pods=[pod("a", 3, 4, {key: "j-1"})]).milestones["j-1"]


def test_a_workload_is_known_by_its_short_name() -> None:
    assert whole(workloads=[workload("j-1", shown="j-1-2026-01-01")]).complete == ["j-1"]


def test_a_foreign_pod_is_counted_and_crashes_nothing() -> None:
    """The old sampler dies of any pod without labels, or without its three."""
    pods = [*[pod("x", 1, 2, labels) for labels in (None, {}, {"app": "web"})], pod("j-1-0", 3, 4, {"release": "j-1"})]
    found = whole(pods=pods)
    assert (found.complete, found.foreign["pod"]) == (["j-1"], 3)


def test_a_pod_group_without_labels_crashes_nothing() -> None:
    found = whole(groups=[thing("pg-x", 1), thing("pg-j-1", 6, {"release": "j-1"})])
    assert (found.complete, found.foreign["pod group"]) == (["j-1"], 1)


def test_lists_that_are_not_there_leave_the_workload_incomplete_and_say_what_lacks() -> None:
    """The old sampler dies of a list that fails."""
    found = whole(jobs=[], groups=[])
    assert found.complete == []
    assert found.lacking == {"jobCreatedTimestamp": 1, "podGroupCreatedTimestamp": 1}


def test_odd_objects_crash_nothing() -> None:
    odd: list[Json] = [
        {},
        {"metadata": None},
        {"metadata": {"name": "a", "creationTimestamp": None}, "spec": {"name": 1}},
    ]
    found = join_lists(
        SPACE, workloads=odd, jobs=odd, pods=odd, groups=odd, events=[{}, {"reason": None, "message": None}]
    )
    assert found.complete == []


def test_the_decision_is_the_first_pods_and_unschedulable_counts() -> None:
    waiting = pod("j-1-0-0", 3, 7, {"release": "j-1"}, status="False", reason="Unschedulable")
    unsaid = pod("j-1-0-0", 3, 7, {"release": "j-1"}, status="False")
    second = pod("j-1-0-1", 3, 4, {"release": "j-1"})
    assert whole(pods=[second, waiting]).milestones["j-1"]["decision"] == seconds(7)
    assert "decision" not in whole(pods=[second, unsaid]).milestones["j-1"]


def event(reason: str, message: str, second: int, about: str = "x") -> Json:
    return {"reason": reason, "message": message, "firstTimestamp": at(second), "involvedObject": {"name": about}}


def test_evictions_are_those_for_the_workload_and_the_first_counts() -> None:
    told = [
        event("Evict", "Pod runai-a/j-9-0-0 was preempted by higher priority job runai-a/pg-j-1-abc", 8),
        event("Evict", "Pod runai-a/j-8-0-0 was reclaimed by job runai-a/pg-j-1-abc.", 7),
        event("Evict", "Pod runai-a/j-7-0-0 was preempted by higher priority job runai-a/pg-unknown", 2),
        event("Scheduled", "preempted", 1),
    ]
    found = whole(events=told)
    assert found.milestones["j-1"]["eviction"] == seconds(7)
    assert found.foreign["eviction"] == 1


def test_volumes_are_found_by_the_pods_that_mount_them_and_the_first_counts() -> None:
    """The old sampler keeps the last event only, or dies of it; and knows claims by a pattern of six letters."""
    mine = pod("j-1-0-0", 3, 9, {"release": "j-1"})
    mine["spec"] = {"volumes": [{"persistentVolumeClaim": {"claimName": "scratch"}}, {"emptyDir": {}}]}
    told = [
        event("ExternalProvisioning", "waiting", 5, "scratch"),
        event("ExternalProvisioning", "waiting", 4, "scratch"),
        event("ProvisioningSucceeded", "done", 6, "scratch"),
        event("ProvisioningSucceeded", "done", 6, "another"),
    ]
    found = whole(pods=[mine], events=told)
    assert found.milestones["j-1"]["pvc_request"] == seconds(4)
    assert found.milestones["j-1"]["pvc_bind"] == seconds(6)
    assert found.foreign["volume"] == 1


def test_a_workload_whose_group_waits_for_more_pods_is_short() -> None:
    def group(members: object) -> Json:
        return thing("pg-j-1-abc", 6, {"release": "j-1"}, spec={"minMember": members})

    assert whole(groups=[group(3)]).short == ["j-1"]
    assert whole(groups=[group(3)]).complete == ["j-1"]
    for members in (2, 1, None, "many"):
        assert whole(groups=[group(members)]).short == []


def test_objects_and_claims_belong_to_the_workload_that_is_known() -> None:
    def mounted(name: str, claim: str, release: str) -> Json:
        claims = {"volumes": [{"persistentVolumeClaim": {"claimName": claim}}]}
        made = thing(name, 3, {"release": release}, spec=claims)
        return made | {"metadata": made["metadata"] | {"uid": f"uid-{name}"}}

    pods = [mounted("a", "data", "j-1"), mounted("b", "strange", "j-9")]
    found = map_owner_names(Snapshot(SPACE, {"j-1": {}}), {"workloads": [], "jobs": [], "pods": pods, "groups": []})
    assert found == {"uid-a": "j-1", "claim/data": "j-1"}


def test_a_pods_transitions_are_observed_whatever_it_asks_for_and_written_once(tmp_path: Path) -> None:
    mine = pod("j-1-0-0", 3, 9, {"release": "j-1"})
    mine["metadata"]["uid"] = "uid-1"
    mine["spec"] = {"nodeName": "sim-1", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    lists: dict[str, list[Json]] = {"workloads": [workload("j-1")], "jobs": [], "pods": [mine], "groups": []}
    snapshot = join_lists(SPACE, **lists)
    assert append_observations(tmp_path, lists, snapshot, NS_PER_S) == 2
    assert append_observations(tmp_path, lists, snapshot, 2 * NS_PER_S) == 0
    found = list(run_records.read_lines(tmp_path / run_records.OBSERVED, run_records.ObservedLine))
    assert [(one.transition, one.workload, one.gap) for one in found if isinstance(one, run_records.Seen)] == [
        ("created", "j-1", True),
        ("scheduled", "j-1", True),
    ]
