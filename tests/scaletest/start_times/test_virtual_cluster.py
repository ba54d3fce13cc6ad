"""The schedulers in virtual time, on clusters whose answer follows by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.scaletest.start_times.making_states import make_node, make_queue, make_state, make_workload
from workbench.scaletest.start_times.cluster_state import (
    ClusterState,
    NodeRules,
    Requirement,
    Taint,
    Toleration,
    WorkloadState,
)
from workbench.scaletest.start_times.node_room import NodeTable
from workbench.scaletest.start_times.virtual_cluster import Outcome, VirtualCluster


def play(state: ClusterState, lasts_s: dict[str, float], *, watched: int | None = None, seed: int = 0) -> Outcome:
    """The future of a state whose workloads last so long from their start on."""
    workloads = list(state.workloads)
    table = NodeTable(state, [pod for one in workloads for pod in one.pods])

    def rest_s(workload: WorkloadState, age_s: float) -> float:
        return lasts_s.get(workload.name.partition("/")[2], math.inf) - age_s

    return VirtualCluster(state, table, workloads, rest_s, np.random.default_rng(seed), watched=watched).run()


def test_a_pod_waits_until_its_node_has_room() -> None:
    state = make_state(make_workload("a", 8, created_s=-100, node="n0"), make_workload("b", 8, created_s=-50))
    assert play(state, {"a": 400}).starts_s == [-100, 300]


def test_what_does_not_fit_is_passed_over() -> None:
    state = make_state(
        make_workload("a", 4, created_s=-100, node="n0"),
        make_workload("b", 4, created_s=-100, node="n0"),
        make_workload("large", 8, created_s=-50),
        make_workload("small", 2, created_s=-10),
    )
    assert play(state, {"a": 200, "b": 300, "small": 1000}).starts_s == [-100, -100, 1100, 100]


def test_priority_comes_before_arrival() -> None:
    state = make_state(
        make_workload("a", 8, created_s=-100, node="n0"),
        make_workload("early", 8, created_s=-50),
        make_workload("urgent", 8, created_s=-10, priority=5, preempts=False),
    )
    assert play(state, {"a": 200, "urgent": 50}).starts_s == [-100, 150, 100]


def test_a_higher_priority_takes_the_place_of_the_fewest() -> None:
    state = make_state(
        make_workload("pair", 4, created_s=-100, node="n0", pods=2),
        make_workload("whole", 8, created_s=-90, node="n1"),
        make_workload("urgent", 8, created_s=0, priority=5),
        n_nodes=2,
    )
    outcome = play(state, {"urgent": 70, "pair": 1000})
    assert outcome.starts_s[2] == 0
    assert outcome.evicted == [1]
    # It waits again, from its beginning, until the urgent one ends.
    assert outcome.starts_s[1] == 70


def test_a_gang_starts_whole_or_not() -> None:
    state = make_state(
        make_workload("a", 8, created_s=-100, node="n0"),
        make_workload("b", 8, created_s=-100, node="n1"),
        make_workload("gang", 8, pods=2, created_s=-50, is_gang=True),
        make_workload("pods", 8, pods=2, created_s=-40),
        n_nodes=2,
    )
    outcome = play(state, {"a": 200, "b": 400, "pods": 500})
    # Pods alone take the first node that is free, and the gang waits for two.
    assert outcome.starts_s[3] == 300
    assert outcome.starts_s[2] == 800


def test_gangs_that_wait_come_after_single_pods_and_any_of_them_may_be_first() -> None:
    state = make_state(
        make_workload("a", 8, created_s=-100, node="n0"),
        make_workload("old", 4, pods=2, created_s=-60, is_gang=True),
        make_workload("new", 4, pods=2, created_s=-50, is_gang=True),
        make_workload("pod", 8, created_s=-10),
    )
    lasts_s = {"a": 200, "pod": 300, "old": 1000, "new": 1000}
    outcomes = [play(state, lasts_s, seed=seed).starts_s for seed in range(40)]
    assert {starts_s[3] for starts_s in outcomes} == {100}
    assert {(starts_s[1], starts_s[2]) for starts_s in outcomes} == {(400, 1400), (1400, 400)}
    # One that fits as it comes starts at once, whatever waits.
    alone = make_state(make_workload("large", 8, pods=2, created_s=-60, is_gang=True), make_workload("b", 4, pods=2))
    assert play(alone, {}).starts_s == [None, 0]


@pytest.mark.parametrize(
    ("rules", "start_s"),
    [
        (NodeRules(), 0),
        (NodeRules(selector={"zone": "a"}), 900),
        (NodeRules(terms=((Requirement(key="zone", operator="In", values=("a",)),),)), 900),
        (NodeRules(terms=((Requirement(key="zone", operator="NotIn", values=("a",)),),)), 0),
        (NodeRules(terms=((Requirement(key="slots", operator="Gt", values=("3",)),),)), None),
    ],
)
def test_node_rules(rules: NodeRules, start_s: float | None) -> None:
    nodes = make_node("n0", labels={"zone": "a"}), make_node("n1", labels={"zone": "b", "slots": "3"})
    state = make_state(
        make_workload("a", 8, created_s=-100, node="n0"), make_workload("job", 8, pod={"rules": rules}), nodes=nodes
    )
    assert play(state, {"a": 1000}).starts_s[1] == start_s


def test_taints_and_closed_nodes() -> None:
    nodes = make_node("n0", taints=(Taint(key="team", value="x"),)), make_node("n1", is_open=False)
    tolerating = NodeRules(tolerations=(Toleration(key="team", value="x"),))
    state = make_state(make_workload("a"), make_workload("b", pod={"rules": tolerating}), nodes=nodes)
    assert play(state, {}).starts_s == [None, 0]


def test_pods_of_a_workload_start_one_by_one() -> None:
    state = make_state(
        make_workload("a", 4, created_s=-10, node="n0"),
        make_workload("b", 4, created_s=-10, node="n0"),
        make_workload("job", 4, pods=2),
    )
    outcome = play(state, {"a": 110, "b": 310}, watched=2)
    assert (outcome.first_pod_s, outcome.starts_s[2]) == (100, 300)


def test_a_queue_lets_in_what_has_quota() -> None:
    state = make_state(
        make_workload("a", 4, created_s=-10, node="n0", queue="red"),
        make_workload("b", 4, created_s=-5, queue="red"),
        make_workload("c", 4, created_s=-1, queue="blue"),
        n_nodes=4,
        queues=(make_queue("red", 4), make_queue("blue", 4)),
    )
    assert play(state, {"a": 210}).starts_s == [-10, 200, 0]


@pytest.mark.parametrize(("is_strict", "start_s"), [(True, 200), (False, 0)])
def test_strict_queues_wait_for_their_first(is_strict: bool, start_s: float) -> None:
    state = make_state(
        make_workload("a", 4, created_s=-10, node="n0", queue="red"),
        make_workload("large", 6, created_s=-5, queue="red"),
        make_workload("small", 2, created_s=-1, queue="red"),
        n_nodes=4,
        queues=(make_queue("red", 8, is_strict=is_strict),),
    )
    assert play(state, {"a": 210}).starts_s[2] == start_s


def test_quota_is_given_back_when_all_pods_have_ended() -> None:
    state = make_state(
        make_workload("a", 4, pods=2, created_s=-10, node="n0", queue="red"),
        make_workload("b", 8, created_s=-5, queue="red"),
        n_nodes=4,
        queues=(make_queue("red", 8),),
    )
    assert play(state, {"a": 60}).starts_s[1] == 50


def test_pods_on_a_node_that_is_gone_end_and_give_their_quota_back() -> None:
    state = make_state(
        make_workload("a", 8, created_s=-10, node="gone", queue="red"),
        make_workload("b", 8, created_s=-5, queue="red"),
        queues=(make_queue("red", 8),),
    )
    assert play(state, {"a": 60}).starts_s[1] == 50


def test_what_was_lent_is_reclaimed() -> None:
    state = make_state(
        make_workload("guest", 6, created_s=-10, node="n0", queue="red"),
        make_workload("owner", 4, created_s=0, queue="blue"),
        n_nodes=4,
        queues=(make_queue("red", 4, cohort="all"), make_queue("blue", 4, cohort="all", reclaim="Any")),
    )
    outcome = play(state, {"owner": 80, "guest": 1000})
    assert outcome.starts_s == [80, 0]
    assert outcome.evicted == [0]


def test_the_same_numbers_give_the_same_future() -> None:
    state = make_state(*(make_workload(f"job-{number}", 3, created_s=-number) for number in range(9)), n_nodes=3)
    lasts_s = {f"job-{number}": 100.0 + 7 * number for number in range(9)}
    assert play(state, lasts_s).starts_s == play(state, lasts_s).starts_s


def test_no_node_is_ever_overfull() -> None:
    draw = np.random.default_rng(5)
    workloads = [
        make_workload(f"job-{number}", int(draw.choice([1, 2, 4, 8])), created_s=float(-draw.integers(1, 500)))
        for number in range(60)
    ]
    state = make_state(*workloads, n_nodes=3)
    table = NodeTable(state, [pod for one in workloads for pod in one.pods])
    cluster = VirtualCluster(state, table, workloads, lambda *_: float(draw.exponential(500)), draw)
    at_s = 0.0
    while any(start_s is None for start_s in cluster.outcome.starts_s):
        at_s += 200.0
        cluster.run(at_s)
        assert (cluster.room.free >= -1e-6).all()
        held = [sum(table.shapes[pod.shape].needs[0] for pod in cluster.list_running(node)) for node in range(3)]
        assert (cluster.room.free[:, 0] + held == table.offers[:, 0]).all()
