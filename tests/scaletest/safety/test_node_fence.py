"""The fence: pods of a test cannot reach a node that exists, unless the scenario says that they may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scaletest.making_scenarios import RUN, scenario
from tests.scaletest.safety.facts_of_clusters import cluster, node
from workbench.core.errors import ConfigError
from workbench.scaletest.safety import confirmation
from workbench.scaletest.safety.cluster_facts import Finding, raise_refusals
from workbench.scaletest.safety.preflight import check_capacity
from workbench.scaletest.scenario.workload_plan import draw_plan, summarize_plan

BOX = {"kind": "Template", "template": {"apiVersion": "x.io/v1", "kind": "Box", "spec": {}}}


def levels(found: list[Finding]) -> list[str]:
    """Of findings, in order."""
    return [one.level for one in found]


def test_simulated_nodes_beside_real_ones_are_fine() -> None:
    found = confirmation.check_fence(scenario(), cluster(node(), node("real", simulated=False, labelled=False)))
    assert levels(found) == ["ok"]
    assert "1 simulated node" in found[0].text


def test_a_real_node_that_carries_the_label_is_refused_by_name() -> None:
    found = confirmation.check_fence(scenario(), cluster(node(), node("gpu-7", simulated=False)))
    assert levels(found) == ["refused"]
    assert "gpu-7" in found[0].text
    assert "kubectl label node gpu-7 workbench.local/sim-" in str(found[0].do)


def test_a_cluster_without_simulated_nodes_is_refused() -> None:
    found = confirmation.check_fence(scenario(), cluster(node("real", simulated=False, labelled=False)))
    assert levels(found) == ["refused"]
    assert "cluster up" in str(found[0].do)


def test_real_nodes_are_told_where_they_are_allowed() -> None:
    made = scenario({"kind": "Pod", "image": "x"}, allow_real_nodes=True)
    found = confirmation.check_fence(made, cluster(node("real", simulated=False, labelled=False)))
    assert levels(found) == ["warning"]
    assert "1 real node(s), 1 with GPUs" in found[0].text


def test_a_kind_whose_pods_are_unknown_is_refused_beside_real_nodes_only() -> None:
    made = scenario(BOX)
    assert confirmation.list_unfenced_kinds(made) == ["Box"]
    assert levels(confirmation.check_fence(made, cluster(node()))) == ["ok", "ok"]
    found = confirmation.check_fence(made, cluster(node(), node("real", simulated=False, labelled=False)))
    assert levels(found) == ["ok", "refused"]
    assert "pods_at" in str(found[1].do)


def test_all_reasons_are_told_at_once() -> None:
    refused = [Finding("refused", "a", "one", "x"), Finding("refused", "c", "three")]
    with pytest.raises(ConfigError) as caught:
        raise_refusals([*refused, Finding("ok", "b", "two")])
    words = ("for 2 reasons", "a: one", "do: x", "two")
    assert [word in str(caught.value) for word in words] == [True, True, True, False]


@pytest.mark.parametrize(
    ("entry", "limits", "level", "told"),
    [
        ({"kind": "Pod", "gpus": 1, "lifetime": 1}, {}, "ok", "nvidia.com/gpu (8 are free)"),
        ({"kind": "Pod", "gpus": 1}, {}, "warning", "pods wait for "),
        (
            {"kind": "Pod", "gpus": 16},
            {},
            "warning",
            "16 nvidia.com/gpu, and no node offers more than 8: the pod stays",
        ),
    ],
)
def test_the_capacity_is_held_against_what_is_wanted(
    entry: dict[str, Any], limits: dict[str, Any], level: str, told: str
) -> None:
    arrival = {"process": "constant", "rate_per_s": 5, "n": 20}
    plan = draw_plan(scenario(entry, arrival=arrival), RUN)
    found = [one for one in check_capacity(plan, summarize_plan(plan), cluster(node())) if one.check == "capacity"]
    assert level in levels(found)
    assert any(told in one.text for one in found)


def test_a_plan_that_would_fill_the_store_is_told() -> None:
    arrival = {"process": "constant", "rate_per_s": 1000, "n": 50_000}
    limits = {"rate_per_s": 1000, "objects": 50_000}
    plan = draw_plan(scenario(arrival=arrival, limits=limits), RUN)
    found = next(one for one in check_capacity(plan, summarize_plan(plan), cluster()) if one.check == "etcd")
    assert found.level == "warning"
    assert "into several runs" in str(found.do)


def test_what_a_command_makes_is_not_fenced_and_refused_beside_real_nodes() -> None:
    real = node("real", simulated=False, labelled=False)
    (found,) = confirmation.check_command_fence(scenario(), cluster(node(), real))
    assert found.level == "refused"
    assert "1 real node(s)" in found.text
    assert levels(confirmation.check_command_fence(scenario(), cluster(node()))) == ["ok"]
    allowed = scenario({"kind": "Pod", "image": "x"}, allow_real_nodes=True)
    assert confirmation.check_command_fence(allowed, cluster(node(), real)) == []
