"""Pods of a test stay on nodes that do not exist, unless somebody says otherwise; namespaces that are for tests."""

from __future__ import annotations

from typing import Any

from workbench.scaletest import names
from workbench.scaletest.connection import ApiError, Connection
from workbench.scaletest.planning.objects import KWOK_NODE
from workbench.scaletest.safety.findings import Finding, refuse
from workbench.scaletest.safety.looking import TargetFacts
from workbench.scaletest.scenario import Scenario, forbidden
from workbench.scaletest.templates import foreign

_SELECTED = f"{names.SIMULATED}=true"


def findings(scenario: Scenario, found: TargetFacts) -> list[Finding]:
    """Where can pods of this scenario go?"""
    selected = [node for node in found.nodes if node.labels.get(names.SIMULATED) == "true"]
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
                f"kubectl label node {real[0]} {names.SIMULATED}-   (or set allow_real_nodes: true in the scenario)",
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
        *_unfenced(scenario, found),
    ]


def unfenced(scenario: Scenario) -> list[str]:
    """Kinds of templates in which no place for pods is known: what they make cannot be held on simulated nodes."""
    made = []
    for entry in scenario.workloads:
        if entry.kind == "Template" and not foreign.pods(entry.template or {}, entry.pods_at):
            made.append(entry.api_kind)
    return sorted(set(made))


def _unfenced(scenario: Scenario, found: TargetFacts) -> list[Finding]:
    kinds = unfenced(scenario)
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


def command_findings(scenario: Scenario, found: TargetFacts) -> list[Finding]:
    """Where can pods go that a command of somebody's makes? What it makes is not what was planned."""
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


async def namespace_findings(api: Connection, namespaces: tuple[str, ...], *, sets_up: bool = False) -> list[Finding]:
    """Are these namespaces meant for tests?

    Parameters
    ----------
    sets_up
        The run that follows makes those that are not there: no reason to refuse it.
    """
    return [await _namespace(api, one, sets_up) for one in namespaces]


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
    refuse(await namespace_findings(api, there or namespaces))
    return there, gone, unseen


async def _namespace(api: Connection, name: str, sets_up: bool) -> Finding:
    if forbidden(name):
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
    if labels.get(names.ALLOW) != "true":
        return Finding(
            "refused",
            "namespace",
            f"{name} has no label {names.ALLOW}=true: it was not made for tests",
            f"if it may be tested in: kubectl label namespace {name} {names.ALLOW}=true",
        )
    return Finding("ok", "namespace", f"{name} is labelled for tests")
