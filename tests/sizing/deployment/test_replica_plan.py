"""GPUs laid into replicas, replicas onto nodes."""

from __future__ import annotations

import math

import hypothesis
import pytest
from hypothesis import strategies as st

from workbench.core.errors import ConfigError
from workbench.sizing.deployment.replica_plan import plan_replicas


@pytest.mark.parametrize(
    ("given", "planned"),
    [
        # Two replicas of 3 fit on a node of 8, two GPUs of which nobody can use.
        ((14, 3, 8, 1), (6, 2, 3, 6, 6)),
        ((14, 3, 8, 0), (5, 2, 3, 9, 4)),
        # Whole nodes.
        ((16, 8, 8, 1), (3, 1, 3, 0, 0)),
        ((17, 1, 8, 1), (18, 8, 3, 6, 0)),
        # One GPU more than a replica has is another replica.
        ((9, 4, 8, 0), (3, 2, 2, 4, 0)),
        ((8, 4, 8, 0), (2, 2, 1, 0, 0)),
        # 5 of 8: one replica a node, three GPUs of each stranded.
        ((10, 5, 8, 1), (3, 1, 3, 9, 9)),
        ((1, 1, 1, 1), (2, 1, 2, 0, 0)),
    ],
)
def test_known_answers(given: tuple[int, ...], planned: tuple[int, ...]) -> None:
    """GPUs, GPUs of a replica and of a node, spare; replicas, of these on a node, nodes, GPUs idle and stranded."""
    gpus, per_replica, per_node, spare = given
    found = plan_replicas(gpus, gpus_per_replica=per_replica, gpus_per_node=per_node, spare=spare)
    assert (found.replicas, found.per_node, found.nodes, found.idle_gpus, found.stranded_gpus) == planned


def test_a_node_may_be_lost_when_so_much_is_spare() -> None:
    found = plan_replicas(14, gpus_per_replica=3, gpus_per_node=8, survive_node=True)
    assert (found.spare, found.replicas, found.nodes) == (2, 7, 4)
    assert plan_replicas(14, gpus_per_replica=3, gpus_per_node=8, spare=4, survive_node=True).spare == 4


@hypothesis.given(st.integers(1, 500), st.integers(1, 16), st.integers(1, 16), st.integers(0, 4), st.booleans())
def test_what_holds_for_every_plan(gpus: int, per_replica: int, per_node: int, spare: int, survive: bool) -> None:
    if per_replica > per_node:
        with pytest.raises(ConfigError, match="does not fit on a node"):
            plan_replicas(gpus, gpus_per_replica=per_replica, gpus_per_node=per_node)
        return
    found = plan_replicas(gpus, gpus_per_replica=per_replica, gpus_per_node=per_node, spare=spare, survive_node=survive)
    assert found.needed * per_replica >= gpus > (found.needed - 1) * per_replica
    assert found.per_node * per_replica <= per_node
    assert found.nodes * found.per_node >= found.replicas > (found.nodes - 1) * found.per_node
    assert found.used_gpus + found.idle_gpus == found.nodes * per_node
    assert 0 <= found.stranded_gpus <= found.idle_gpus
    assert found.spare >= spare
    if survive:
        assert found.replicas - found.per_node >= found.needed
    assert found.nodes >= math.ceil(gpus / per_node)


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"gpus_per_replica": 0}, {"gpus_per_node": 0}, {"spare": -1}])
def test_a_number_out_of_range_is_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        plan_replicas(**{"gpus": 4, **wrong})


def test_the_way_is_told_in_sentences() -> None:
    told = plan_replicas(14, gpus_per_replica=3).explain_plan()
    assert told == [
        "14 GPUs -> 5 replicas of 3 and 1 spare: 6 replicas",
        "2 replicas on a node of 8 GPUs -> 3 nodes, 6 of their 24 GPUs unused "
        "(6 of these too few on their node for a replica)",
    ]
