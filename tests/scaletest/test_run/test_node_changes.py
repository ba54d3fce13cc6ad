"""Which nodes a plan takes away and brings back, and where it may: on a real cluster in `test_planted_on_cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaletest.local_cluster.test_cluster_command import MADE
from tests.scaletest.making_scenarios import scenario
from workbench.core.errors import ConfigError
from workbench.scaletest.scenario.scenario_file import NodeChange
from workbench.scaletest.scenario.workload_plan import draw_plan
from workbench.scaletest.test_run.node_changes import check_node_changes, list_node_states
from workbench.scaletest.test_run.run_options import ClusterAccess

NAMES = [f"sim-{number:05d}" for number in range(12)]
LOCAL = ClusterAccess(Path("/somewhere/kubeconfig"), "workbench-local-measure", MADE)


@st.composite
def plans(draw: st.DrawFn) -> list[NodeChange]:
    """Changes that can be: never more gone than there are, never more back than are gone."""
    made: list[NodeChange] = []
    gone = 0
    for place in range(draw(st.integers(1, 8))):
        does = draw(st.sampled_from(["fail", "drain", "return"]))
        room = gone if does == "return" else len(NAMES) - gone
        if room:
            nodes = draw(st.integers(1, room))
            gone += -nodes if does == "return" else nodes
            made.append(NodeChange(at_s=place, do=does, nodes=nodes))
    return made


@given(plans())
def test_at_each_moment_as_many_are_gone_as_planned_and_a_change_touches_no_more_than_it_says(
    changes: list[NodeChange],
) -> None:
    before, gone = dict.fromkeys(NAMES, "up"), 0
    for change in changes:
        now = list_node_states(changes, NAMES, change.at_s)
        gone += -change.nodes if change.do == "return" else change.nodes
        assert sum(state != "up" for state in now.values()) == gone
        touched = [name for name in NAMES if now[name] != before[name]]
        assert len(touched) == change.nodes
        assert {now[name] for name in touched} == {{"fail": "failed", "drain": "drained", "return": "up"}[change.do]}
        before = dict(now)


def planned(*changes: dict[str, Any]) -> Any:
    return draw_plan(scenario(node_changes=list(changes)))


def test_nodes_of_a_cluster_that_is_not_ours_are_left_alone() -> None:
    plan = planned({"at_s": 1, "do": "fail", "nodes": 1})
    with pytest.raises(ConfigError, match="on a local cluster only"):
        check_node_changes(plan, ClusterAccess(None, "production"))
    check_node_changes(plan, LOCAL)
    check_node_changes(planned(), ClusterAccess(None, "production"))


def test_more_nodes_than_there_are_cannot_go_however_many_came_back_before() -> None:
    fail, back = {"at_s": 1, "do": "fail", "nodes": 150}, {"at_s": 2, "do": "return", "nodes": 100}
    check_node_changes(planned(fail, back, fail | {"at_s": 3}), LOCAL)
    with pytest.raises(ConfigError, match="more nodes are removed than exist"):
        check_node_changes(planned(fail, fail | {"at_s": 3}), LOCAL)
