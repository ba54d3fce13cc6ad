"""Confirmation of the target cluster: the target named by options, and its fingerprint on first use."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.safety.cluster_facts import ClusterFacts, Finding, inspect_cluster, raise_refusals
from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.scenario_file import Scenario, is_forbidden_namespace
from workbench.scaletest.scenario.workload_objects import KWOK_NODE

_SELECTED = f"{api_discovery.SIMULATED}=true"
MASTERS = "system:masters"
_FILE = "scaletest-clusters.json"
_MAX_BYTES = 1 << 20


def check_fence(scenario: Scenario, facts: ClusterFacts) -> list[Finding]:
    """Check which nodes the scenario's pods can be bound to."""
    selected = [node for node in facts.nodes if node.labels.get(api_discovery.SIMULATED) == "true"]
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
                f"kubectl label node {real[0]} {api_discovery.SIMULATED}-, or allow_real_nodes: true in the scenario",
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
    """Refuse kinds whose pods cannot be kept off real nodes; allowed if the cluster has no real node."""
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
            f"pods that a command creates cannot be kept on simulated nodes; there are {facts.real_nodes:,} "
            f"real node(s)",
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
    if labels.get(api_discovery.ALLOW) != "true":
        return Finding(
            "refused",
            "namespace",
            f"{name} has no label {api_discovery.ALLOW}=true",
            f"to allow tests in it: kubectl label namespace {name} {api_discovery.ALLOW}=true",
        )
    return Finding("ok", "namespace", f"{name} is labelled for tests")


def default_allow_file() -> Path:
    """Path of the user's list of confirmed clusters."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "workbench" / _FILE


async def confirm_cluster(api: Connection, scenario: Scenario | None, confirmed: str | None = None) -> ClusterFacts:
    """Read the facts of the cluster, and refuse one that is not confirmed or not safe to test.

    A local cluster of the workbench needs no confirmation. Any other needs its fingerprint: as `confirmed` on first
    use, then from the user's list.

    `scenario`: Scenario to test; None for administrative commands, which only need the confirmation.
    """
    facts = await inspect_cluster(api)
    file = default_allow_file()
    if facts.own is None or confirmed is not None:
        _require_confirmed_cluster(facts, confirmed, file)
    if scenario is not None:
        raise_refusals([*check_identity(facts), *check_fence(scenario, facts)])
    if facts.own is None and confirmed is not None:
        # Write the list, readable by its owner only, without server addresses.
        clusters = _read_allow_list(file)
        clusters[facts.fingerprint] = {
            "context": facts.context,
            "server_sha256": facts.server_sha256,
            "confirmed_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = json.dumps({"clusters": clusters}, indent=1) + "\n"
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    return facts


def check_identity(facts: ClusterFacts) -> list[Finding]:
    """Check that the API server throttles the identity (no system:masters)."""
    if MASTERS not in facts.groups:
        return [Finding("ok", "identity", f"{facts.identity}, subject to priority and fairness")]
    if facts.own is not None:
        text = "the API server never throttles an administrator (system:masters): its figures look better than they are"
        return [Finding("warning", "identity", text, "use the measuring identity of the local cluster")]
    return [
        Finding(
            "refused",
            "identity",
            f"{facts.identity} is in group {MASTERS}, which the API server never throttles; the cluster is unprotected",
            "use the service account that `workbench scaletest plan SCENARIO --rbac` prints",
        )
    ]


def _require_confirmed_cluster(facts: ClusterFacts, confirmed: str | None, file: Path) -> None:
    if confirmed is not None:
        if confirmed.strip().lower() != facts.fingerprint:
            raise ConfigError(
                "the cluster is not the confirmed one",
                where=f"context {facts.context}",
                found=f"fingerprint {facts.fingerprint}",
                allowed=confirmed[:40],
                do="check which cluster the context refers to; nothing was sent",
            )
        return
    if facts.fingerprint in _read_allow_list(file):
        return
    raise ConfigError(
        "the cluster is not confirmed",
        where=f"context {facts.context}",
        found="".join(f"\n    {line}" for line in facts.format_lines()),
        do=f"if it is the intended cluster, add --confirm {facts.fingerprint} (in notebooks: confirm=…)",
    )


def _read_allow_list(file: Path) -> dict[str, Any]:
    """Read the confirmed clusters, by identity; empty if there is no such file."""
    try:
        document = json.loads(files.read_up_to(file, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError("cannot read the list of confirmed clusters", where=file, found=str(error)[:120]) from None
    if not isinstance(document, dict) or not isinstance(document.get("clusters"), dict):
        raise InputError("not a list of confirmed clusters", where=file, do="delete it, and confirm again")
    return dict(document["clusters"])


async def confirm_interactively(api: Connection, scenario: Scenario | None, fingerprint: str | None) -> ClusterFacts:
    """`confirm`, with a prompt for the fingerprint on first use if stdin is a terminal."""
    if fingerprint is None and sys.stdin.isatty() and sys.stderr.isatty():
        facts = await inspect_cluster(api)
        if facts.own is None and facts.fingerprint not in _read_allow_list(default_allow_file()):
            import typer

            from workbench.console.terminal import print_text

            print_text("This cluster is not confirmed yet:\n  " + "\n  ".join(facts.format_lines()), err=True)
            fingerprint = str(typer.prompt("Type its fingerprint to confirm it", err=True))
    return await confirm_cluster(api, scenario, fingerprint)
