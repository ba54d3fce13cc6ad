"""Start times on states whose answer is known; what is not known is said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scaletest.start_times.making_states import GPU, make_node, make_queue, make_state, make_workload
from workbench.scaletest.start_times.cluster_state import ClusterState, NodeRules, PriorityClass, WorkloadState
from workbench.scaletest.start_times.run_times import GivenRunTime
from workbench.scaletest.start_times.start_estimate import StartEstimate, StartStudy

HOUR = {"all": GivenRunTime(3600.0, 3600.0)}


def ask(state: ClusterState, job: WorkloadState, **fields: Any) -> StartEstimate:
    """The answer, without arrivals and with runs of an hour unless said otherwise."""
    settings: dict[str, Any] = {"run_times": HOUR, "has_arrivals": False} | fields
    return StartStudy(state, job, **settings).estimate()


def full_state(**fields: Any) -> ClusterState:
    """Two nodes that are full, of workloads that began 600 and 1200 seconds ago."""
    return make_state(
        make_workload("a", 8, created_s=-1200, node="n0"),
        make_workload("b", 8, created_s=-600, node="n1"),
        n_nodes=2,
        **fields,
    )


def test_it_starts_when_the_first_ends() -> None:
    estimate = ask(full_state(), make_workload("job", 8))
    assert estimate.p50_s == pytest.approx(2400, rel=0.01)
    assert (estimate.reason, estimate.verdict) == (GPU, "valid")
    assert "team/job starts in 40 min" in estimate.answer
    changes = {change.change: change.starts_now for change in estimate.changes}
    assert changes["when team/a ends on node n0"] or changes.get("when team/b ends on node n1")
    assert not changes["with 1 GPU a pod"]


def test_it_starts_now() -> None:
    estimate = ask(make_state(n_nodes=1), make_workload("job", 8))
    assert (estimate.p90_s, estimate.reason, estimate.changes) == (0, None, ())
    assert estimate.answer == "team/job starts now."


def test_what_would_start_it_now() -> None:
    classes = {"high": PriorityClass(value=10), "polite": PriorityClass(value=5, preempts=False)}
    state = make_state(
        make_workload("a", 6, created_s=-100, node="n0"),
        make_workload("b", 6, created_s=-100, node="n1"),
        n_nodes=2,
        priority_classes=classes,
    )
    estimate = ask(state, make_workload("job", 4, pods=2))
    assert (estimate.reason, list(estimate.reasons)) == (GPU, [f"{GPU} in pieces"])
    assert "no node has 4 GPUs free" in estimate.answer
    changes = {change.change: change.starts_now for change in estimate.changes}
    assert changes == {
        "with 2 GPUs a pod": True,
        "with 1 GPU a pod": True,
        "with 1 pod": False,
        "with priority class polite": False,
        "with priority class high": True,
    }


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (make_workload("job", 8), GPU),
        (make_workload("job", 1, cpus=90), "cpu"),
        (make_workload("job", 8, pod={"rules": NodeRules(selector={"zone": "a"})}), "node rules"),
        (make_workload("job", 4, queue="red"), "quota"),
        (make_workload("job", 8, pods=2, is_gang=True), GPU),
    ],
)
def test_what_holds_it_up(job: WorkloadState, reason: str) -> None:
    others = {
        "cpu": [make_workload("a", 1, cpus=90, created_s=-9, node="n0"), make_workload("b", 1, cpus=90, node="n1")],
        "node rules": [make_workload("a", 8, created_s=-9, node="n0")],
        "quota": [make_workload("a", 6, created_s=-9, node="n0", queue="red")],
    }.get(reason, [make_workload("a", 8, created_s=-9, node="n0"), make_workload("b", 8, created_s=-9, node="n1")])
    nodes = make_node("n0", labels={"zone": "a"}), make_node("n1", labels={"zone": "b"})
    state = make_state(*others, nodes=nodes, queues=(make_queue("red", 8),))
    estimate = ask(state, job)
    assert (estimate.reason, estimate.verdict) == (reason, "valid")


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (make_workload("job", 16), "wants 16 nvidia.com/gpu, and no node that it may use has more than 8"),
        (make_workload("job", 8, pods=3, is_gang=True), "all of its 3 pods do not fit at once"),
        (make_workload("job", 1, pod={"rules": NodeRules(selector={"zone": "x"})}), "its node rules match none"),
        (make_workload("job", 8, queue="red"), "queue red can have 4"),
    ],
)
def test_what_never_starts_says_why(job: WorkloadState, text: str) -> None:
    state = full_state(queues=(make_queue("red", 4),))
    estimate = ask(state, job, run_times={})
    assert estimate.never is not None
    assert text in estimate.answer
    assert estimate.verdict == "valid"


def test_unknown_run_times_are_said() -> None:
    estimate = ask(full_state(), make_workload("job", 8), run_times={})
    assert estimate.verdict == "invalid"
    assert "how long 2 of 2 workloads run is not known (team/a, team/b)" in estimate.answer


def test_unknown_arrivals_are_said() -> None:
    estimate = ask(full_state(), make_workload("job", 8), has_arrivals=True)
    assert estimate.doubts == ("what comes later is not known; record a day, or say --no-arrivals",)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"scheduler": "kai-scheduler"}, "kai-scheduler, is not simulated"),
        ({"unread": ("topology spread",)}, "topology"),
    ],
)
def test_rules_that_are_not_simulated_are_said(fields: dict[str, Any], text: str) -> None:
    estimate = ask(full_state(), make_workload("job", 8, **fields))
    assert text in estimate.doubts[0]


def test_nodes_that_come_and_go_are_said() -> None:
    estimate = ask(full_state(n_changed_nodes=1), make_workload("job", 8))
    assert "1 nodes came or went during the record" in estimate.doubts[0]


def test_a_record_that_cannot_be_replayed_is_said() -> None:
    # Each waited for an hour beside an empty node: something else held them.
    ended = [
        make_workload(f"job-{n}", 1, created_s=-9000 + n, node="n0", started_s=-5400 + n, ended_s=-1800.0 + n)
        for n in range(12)
    ]
    estimate = ask(make_state(*ended, n_nodes=2, span_s=10_000.0), make_workload("job-99", 8), has_arrivals=True)
    assert "a replay of the record gives other waits" in estimate.doubts[0]


def test_a_better_priority_class_is_named_and_a_system_one_is_not() -> None:
    classes = {"high": PriorityClass(value=10), "system-node-critical": PriorityClass(value=2_000_001_000)}
    estimate = ask(full_state(priority_classes=classes), make_workload("job", 8))
    names = [change.change for change in estimate.changes]
    assert "with priority class high" in names
    assert not any("system" in name for name in names)
