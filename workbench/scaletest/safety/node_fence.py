"""Fence around simulated nodes: where pods of a test can run, and which namespaces are for tests."""

from __future__ import annotations

from typing import Any

from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.safety.cluster_facts import ClusterFacts, Finding, raise_refusals
from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.scenario_file import Scenario, is_forbidden_namespace
from workbench.scaletest.scenario.workload_objects import KWOK_NODE

_SELECTED = f"{object_names.SIMULATED}=true"


def check_fence(scenario: Scenario, found: ClusterFacts) -> list[Finding]:
    """Where can pods of this scenario go?"""
    selected = [node for node in found.nodes if node.labels.get(object_names.SIMULATED) == "true"]
    if scenario.allow_real_nodes:
        told = f"pods may go to {found.real_nodes:,} real node(s), {found.real_gpu_nodes:,} with GPUs: allow_real_nodes"
        return [Finding("warning" if found.real_nodes else "ok", "fence", told)]
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
                f"no node has the label {_SELECTED}: no pod of this test could run",
                "workbench scaletest cluster up (a cluster of your own), or allow_real_nodes: true in the scenario",
            )
        ]
    return [
        Finding("ok", "fence", f"pods can only go to {len(selected):,} simulated node(s)"),
        *_check_unfenced_kinds(scenario, found),
    ]


def list_unfenced_kinds(scenario: Scenario) -> list[str]:
    """Kinds of templates in which no place for pods is known: what they make cannot be held on simulated nodes."""
    made = []
    for entry in scenario.workloads:
        if entry.kind == "Template" and not manifest_rules.list_pod_templates(entry.template or {}, entry.pods_at):
            made.append(entry.api_kind)
    return sorted(set(made))


def _check_unfenced_kinds(scenario: Scenario, found: ClusterFacts) -> list[Finding]:
    kinds = list_unfenced_kinds(scenario)
    if not kinds:
        return []
    told = f"where the pods of {', '.join(kinds)} come from is not known, so they cannot be fenced"
    if found.real_nodes == 0:
        return [Finding("ok", "fence", f"{told}; there is no real node")]
    return [
        Finding(
            "refused",
            "fence",
            told,
            "name the pod templates' places with pods_at: [spec.…], or set allow_real_nodes: true in the scenario",
        )
    ]


def check_command_fence(scenario: Scenario, found: ClusterFacts) -> list[Finding]:
    """Check where pods of a user's command can run; they may differ from the planned ones."""
    if scenario.allow_real_nodes:
        return []
    if found.real_nodes == 0:
        return [Finding("ok", "fence", "what the command makes is not fenced; there is no real node")]
    return [
        Finding(
            "refused",
            "fence",
            f"what the command makes is not fenced: its pods could go to {found.real_nodes:,} real node(s)",
            "set allow_real_nodes: true in the scenario (submit: --allow-real-nodes), or submit with api or kubectl",
        )
    ]


async def check_namespaces(api: Connection, namespaces: tuple[str, ...], *, sets_up: bool = False) -> list[Finding]:
    """Are these namespaces meant for tests?

    Parameters
    ----------
    sets_up
        The run that follows makes those that are not there: no reason to refuse it.
    """
    return [await _check_namespace(api, one, sets_up) for one in namespaces]


async def sort_namespaces(
    api: Connection, namespaces: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Namespaces that are there and for tests; those that are gone; those that may not be looked at.

    Raises
    ------
    ConfigError
        One is there, and not for tests; or none is there.
    """
    states = {space: (await api.request("GET", f"/api/v1/namespaces/{space}")).status for space in namespaces}
    gone = tuple(space for space, status in states.items() if status == 404)
    unseen = tuple(space for space, status in states.items() if status == 403)
    there = tuple(space for space in namespaces if space not in (*gone, *unseen))
    raise_refusals(await check_namespaces(api, there or namespaces))
    return there, gone, unseen


async def _check_namespace(api: Connection, name: str, sets_up: bool) -> Finding:
    if is_forbidden_namespace(name):
        return Finding("refused", "namespace", f"{name} is the cluster's own, labelled or not", "use another one")
    try:
        found: dict[str, Any] = await api.json("GET", f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if sets_up and error.status in (403, 404):
            text = f"{name} is not set up yet: the run does that, rights included, for the cluster is your own"
            return Finding("warning", "namespace", text)
        if error.status == 404:
            do = "an administrator makes it: workbench scaletest setup SCENARIO --context ADMIN"
            return Finding("refused", "namespace", f"{name} is not there", do)
        if error.status == 403:
            do = "the Role that `plan --rbac` prints allows it; `workbench scaletest setup` makes namespace and Role"
            return Finding("refused", "namespace", f"{name} cannot be looked at, or is not there", do)
        raise
    about = found.get("metadata") or {}
    labels = about.get("labels") or {}
    if about.get("deletionTimestamp"):
        return Finding("refused", "namespace", f"{name} is being deleted", "wait until it is gone, and set it up again")
    if labels.get(object_names.ALLOW) != "true":
        return Finding(
            "refused",
            "namespace",
            f"{name} has no label {object_names.ALLOW}=true: it was not made for tests",
            f"if it may be tested in: kubectl label namespace {name} {object_names.ALLOW}=true",
        )
    return Finding("ok", "namespace", f"{name} is labelled for tests")
