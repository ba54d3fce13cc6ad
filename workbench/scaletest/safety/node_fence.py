"""Node fence: checks that test pods can only run on simulated nodes, and which namespaces are for tests."""

from __future__ import annotations

from typing import Any

from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.safety.cluster_facts import ClusterFacts, Finding, raise_refusals
from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.scenario_file import Scenario, is_forbidden_namespace
from workbench.scaletest.scenario.workload_objects import KWOK_NODE

_SELECTED = f"{object_names.SIMULATED}=true"


def check_fence(scenario: Scenario, facts: ClusterFacts) -> list[Finding]:
    """Check which nodes the scenario's pods can be bound to."""
    selected = [node for node in facts.nodes if node.labels.get(object_names.SIMULATED) == "true"]
    if scenario.allow_real_nodes:
        text = (
            f"pods may run on {facts.real_nodes:,} real node(s), {facts.real_gpu_nodes:,} with GPUs (allow_real_nodes)"
        )
        return [Finding("warning" if facts.real_nodes else "ok", "fence", text)]
    real = [node.name for node in selected if not node.simulated]
    if real:
        return [
            Finding(
                "refused",
                "fence",
                f"the label {_SELECTED} is on {len(real)} node(s) without the annotation {KWOK_NODE}, which only "
                f"simulated ones have: {', '.join(real[:3])}",
                f"kubectl label node {real[0]} {object_names.SIMULATED}-, or allow_real_nodes: true in the scenario",
            )
        ]
    if not selected:
        return [
            Finding(
                "refused",
                "fence",
                f"no node has the label {_SELECTED}, which the pods of this test select",
                "start a local cluster (workbench scaletest cluster up), or set allow_real_nodes: true in the scenario",
            )
        ]
    return [
        Finding("ok", "fence", f"pods can only run on {len(selected):,} simulated node(s)"),
        *_check_unfenced_kinds(scenario, facts),
    ]


def list_unfenced_kinds(scenario: Scenario) -> list[str]:
    """Check for templates with unknown pod template paths: their pods cannot be fenced to simulated nodes."""
    kinds = []
    for entry in scenario.workloads:
        if entry.kind == "Template" and not manifest_rules.list_pod_templates(entry.template or {}, entry.pods_at):
            kinds.append(entry.api_kind)
    return sorted(set(kinds))


def _check_unfenced_kinds(scenario: Scenario, facts: ClusterFacts) -> list[Finding]:
    kinds = list_unfenced_kinds(scenario)
    if not kinds:
        return []
    text = f"the pod templates of {', '.join(kinds)} are not known, so their pods cannot be fenced"
    if facts.real_nodes == 0:
        return [Finding("ok", "fence", f"{text}; there is no real node")]
    return [
        Finding(
            "refused",
            "fence",
            text,
            "give the paths of the pod templates with pods_at: [spec.…], or set allow_real_nodes: true in the scenario",
        )
    ]


def check_command_fence(scenario: Scenario, facts: ClusterFacts) -> list[Finding]:
    """Check which nodes the pods of a submit command can run on; they may differ from the planned pods."""
    if scenario.allow_real_nodes:
        return []
    if facts.real_nodes == 0:
        return [Finding("ok", "fence", "objects of the command are not fenced; there is no real node")]
    return [
        Finding(
            "refused",
            "fence",
            f"objects of the command are not fenced: their pods could run on {facts.real_nodes:,} real node(s)",
            "set allow_real_nodes: true in the scenario (submit: --allow-real-nodes), or submit with api or kubectl",
        )
    ]


async def check_namespaces(api: Connection, namespaces: tuple[str, ...], *, sets_up: bool = False) -> list[Finding]:
    """Check that these namespaces are labelled for tests.

    `sets_up`: The run creates missing namespaces, so they are no reason to refuse it.
    """
    return [await _check_namespace(api, name, sets_up) for name in namespaces]


async def sort_namespaces(
    api: Connection, namespaces: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Sort namespaces into those for tests, those that do not exist, and those that may not be read."""
    states = {space: (await api.request("GET", f"/api/v1/namespaces/{space}")).status for space in namespaces}
    gone = tuple(space for space, status in states.items() if status == 404)
    unseen = tuple(space for space, status in states.items() if status == 403)
    there = tuple(space for space in namespaces if space not in (*gone, *unseen))
    raise_refusals(await check_namespaces(api, there or namespaces))
    return there, gone, unseen


async def _check_namespace(api: Connection, name: str, sets_up: bool) -> Finding:
    if is_forbidden_namespace(name):
        return Finding("refused", "namespace", f"{name} is a system namespace", "use another namespace")
    try:
        namespace: dict[str, Any] = await api.json("GET", f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if sets_up and error.status in (403, 404):
            text = f"{name} does not exist yet; the run creates it and its roles on a local cluster"
            return Finding("warning", "namespace", text)
        if error.status == 404:
            do = "an administrator runs: workbench scaletest setup SCENARIO --context ADMIN"
            return Finding("refused", "namespace", f"{name} does not exist", do)
        if error.status == 403:
            do = "an administrator creates namespace and Role: workbench scaletest setup SCENARIO --context ADMIN"
            return Finding("refused", "namespace", f"{name} does not exist, or the identity may not read it", do)
        raise
    about = namespace.get("metadata") or {}
    labels = about.get("labels") or {}
    if about.get("deletionTimestamp"):
        return Finding(
            "refused", "namespace", f"{name} is being deleted", "wait until it is deleted, and run setup again"
        )
    if labels.get(object_names.ALLOW) != "true":
        return Finding(
            "refused",
            "namespace",
            f"{name} has no label {object_names.ALLOW}=true",
            f"to allow tests in it: kubectl label namespace {name} {object_names.ALLOW}=true",
        )
    return Finding("ok", "namespace", f"{name} is labelled for tests")
