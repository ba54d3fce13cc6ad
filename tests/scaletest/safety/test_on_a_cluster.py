"""Setup, rights, guard and preflight on a real API server."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest

from tests.scaletest.local_cluster.asking import on
from tests.scaletest.making_scenarios import scenario
from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.safety.cluster_facts import Finding, inspect_cluster
from workbench.scaletest.safety.cluster_setup import set_up_cluster
from workbench.scaletest.safety.preflight import run_preflight
from workbench.scaletest.scenario.workload_objects import list_rules, select_namespace_rules
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan

pytestmark = pytest.mark.cluster
MIX: list[dict[str, Any]] = [{"kind": "Job", "lifetime": 5}, {"kind": "Gang", "pods": 3}]


def plan(namespace: str, *entries: dict[str, Any], **more: Any) -> Plan:
    """Twenty workloads in a namespace."""
    limits = {"rate_per_s": 100}
    return draw_plan(scenario(*(entries or MIX), namespace=namespace, **({"limits": limits} | more)))


def looked_at(cluster: LocalCluster, made: Plan, *, sets_up: bool = False) -> dict[str, list[Finding]]:
    """Findings of the preflight by what was checked."""

    async def work(api: Connection) -> list[Finding]:
        return await run_preflight(api, made, await inspect_cluster(api), sets_up=sets_up)

    found: dict[str, list[Finding]] = {}
    for one in on(cluster, work):
        found.setdefault(one.check, []).append(one)
    return found


def test_what_a_local_run_sets_up_itself_is_no_reason_to_refuse_it(local_cluster: LocalCluster) -> None:
    made = plan("not-set-up-yet")
    refused = [one.check for some in looked_at(local_cluster, made).values() for one in some if one.level == "refused"]
    assert {"namespace", "rights"} <= set(refused)
    findings = looked_at(local_cluster, made, sets_up=True)
    assert [one.level for one in findings["namespace"]] == ["warning"]
    assert "refused" not in {one.level for some in findings.values() for one in some}, findings


def test_after_setup_the_measuring_identity_may_do_all_it_needs_and_nothing_more(
    local_cluster: LocalCluster, namespace: str
) -> None:
    made = plan(namespace)
    first = on(local_cluster, lambda api: set_up_cluster(api, made), admin=True)
    assert on(local_cluster, lambda api: set_up_cluster(api, made), admin=True) == first  # again is no harm
    findings = looked_at(local_cluster, made)
    assert {one.level for some in findings.values() for one in some} == {"ok"}, findings
    assert {"identity", "fence", "namespace", "rights", "limits", "priority", "dry run", "capacity"} <= set(findings)

    async def granted(api: Connection, space: str) -> set[tuple[str, str, str]]:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": space}}
        told = await api.json("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
        return {
            (group, resource, verb)
            for rule in told["status"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    async def both(api: Connection) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
        return await granted(api, namespace), await granted(api, "default")

    here, elsewhere = on(local_cluster, both)
    wanted = {
        (rule.group, resource, verb)
        for rule in select_namespace_rules(list_rules(made.scenario))
        for resource in rule.resources
        for verb in rule.verbs
    }
    assert wanted <= here
    # What it has in any namespace: the cluster's rules, and what everybody may ask about themselves.
    assert here - wanted <= elsewhere
    changing = {"create", "update", "patch", "delete", "deletecollection", "*"}
    assert {group for group, _, verb in elsewhere if verb in changing} <= {
        "authorization.k8s.io",
        "authentication.k8s.io",
    }


def test_a_namespace_that_nobody_labelled_is_left_alone(local_cluster: LocalCluster, namespace: str) -> None:
    async def unlabel(api: Connection) -> None:
        change = {"metadata": {"labels": {api_discovery.ALLOW: None, api_discovery.MANAGED_BY: None}}}
        path = f"/api/v1/namespaces/{namespace}"
        await api.json("PATCH", path, change, content_type="application/merge-patch+json")

    made = plan(namespace)
    on(local_cluster, lambda api: set_up_cluster(api, made), admin=True)
    on(local_cluster, unlabel, admin=True)
    with pytest.raises(ConfigError, match="not labelled for tests"):
        on(local_cluster, lambda api: set_up_cluster(api, made), admin=True)
    found = looked_at(local_cluster, made)["namespace"][0]
    assert found.level == "refused"
    assert f"kubectl label namespace {namespace} workbench.local/allow=true" in str(found.do)


def test_the_server_itself_ends_what_goes_beyond_the_plan(local_cluster: LocalCluster, namespace: str) -> None:
    small = plan(namespace, {"kind": "Pod"}, arrival={"process": "constant", "rate_per_s": 10, "n": 1})
    on(local_cluster, lambda api: set_up_cluster(api, small), admin=True)
    larger = plan(namespace, {"kind": "Pod"}, arrival={"process": "constant", "rate_per_s": 10, "n": 50})
    found = looked_at(local_cluster, larger)["limits"][0]
    assert found.level == "refused"
    assert "count/pods: 12 free, 50 needed" in found.text

    async def flood(api: Connection) -> list[int]:
        wanted = [request for one in larger.iterate_workloads() for request in one.requests()]
        answers = [await api.request("POST", one.path, body=one.body) for one in wanted]
        return [answer.status for answer in answers]

    statuses = on(local_cluster, flood)
    assert statuses.count(201) <= 12
    assert statuses.count(403) >= 38


def test_a_field_that_the_server_refuses_is_told_in_its_words(local_cluster: LocalCluster, namespace: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "imaje": "b"}]}}
    made = plan(namespace, {"kind": "Template", "template": pod, "name": "typo"})
    on(local_cluster, lambda api: set_up_cluster(api, made), admin=True)
    (found,) = looked_at(local_cluster, made)["dry run"]
    assert found.level == "refused"
    assert found.text.startswith("typo: refused by the API server: 4")
    assert "imaje" in found.text


def test_after_setup_a_pod_that_asks_for_no_gpu_gets_none(local_cluster: LocalCluster, namespace: str) -> None:
    """The server takes a LimitRange's maximum for the default of containers that name none."""
    made = plan(namespace, {"kind": "Pod", "gpus": 4}, {"kind": "Pod", "name": "small", "gpus": 0})
    on(local_cluster, lambda api: set_up_cluster(api, made), admin=True)
    request = next(
        one.requests()[0] for one in made.iterate_workloads() if b"nvidia.com/gpu" not in one.requests()[0].body
    )

    async def tried(api: Connection) -> dict[str, Any]:
        made: dict[str, Any] = await api.json("POST", request.path, orjson.loads(request.body), query={"dryRun": "All"})
        return made

    assert "nvidia.com/gpu" not in orjson.dumps(on(local_cluster, tried)).decode()

    # Nothing is known of a template's containers: limits of an earlier scenario do not stay.
    box = {"kind": "Template", "template": {"apiVersion": "x.example.org/v1", "kind": "Box", "spec": {}}}
    on(local_cluster, lambda api: set_up_cluster(api, plan(namespace, box)), admin=True)
    path = f"/api/v1/namespaces/{namespace}/limitranges"
    assert on(local_cluster, lambda api: api.json("GET", path), admin=True)["items"] == []
    assert looked_at(local_cluster, plan(namespace, box))["limits"][0].level == "ok"


def test_before_a_command_all_is_looked_at_but_what_only_the_api_could_make(
    local_cluster: LocalCluster, namespace: str
) -> None:
    made = plan(namespace)

    async def checks(api: Connection) -> dict[str, str]:
        found = await inspect_cluster(api)
        real = dataclasses.replace(found.nodes[0], simulated=False, labels={})
        beside = dataclasses.replace(found, nodes=(*found.nodes, real))
        return {one.check: one.level for one in await run_preflight(api, made, beside, by_command=True)}

    # Neither rights nor the fence: what the command makes could go anywhere.
    told = on(local_cluster, checks)
    assert (told["rights"], told["fence"]) == ("refused", "refused")
    on(local_cluster, lambda api: set_up_cluster(api, made), admin=True)
    told = on(local_cluster, checks)
    assert (told["rights"], told["namespace"], told["fence"]) == ("ok", "ok", "refused")
    assert "dry run" not in told
