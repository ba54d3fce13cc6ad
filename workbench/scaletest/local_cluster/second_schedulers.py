"""More kube-schedulers beside the control plane's own, each with the configuration of its recipe."""

from __future__ import annotations

import re
import ssl
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import yaml

from workbench.core.errors import RunFailedError
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import (
    cluster_record,
    component_processes,
    control_plane,
    identities,
    kai_scheduler,
    kueue_queues,
)
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS, ClusterPart, ClusterRecord, ClusterSettings
from workbench.scaletest.scenario.scheduler_recipes import SchedulerRecipe

PROGRAM = "kube-scheduler"
OWN = "kube-scheduler"
_LEADS = re.compile(r'^leader_election_master_status\{name="kube-scheduler"\} 1$', re.MULTILINE)
_GRACE_S, _POLL_S, _START_LIMIT_S = 5.0, 0.2, 60.0


async def create_accounts(api: Connection, folder: Path, server: str, authority: Path, names: Sequence[str]) -> None:
    """An account for each, by which the audit log tells their requests apart, and its kubeconfig."""
    for name in names:
        token = await identities.create_component_account(api, name)
        place = component_processes.find_scheduler_folder(folder, name)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        identities.write_kubeconfig(
            place / "kubeconfig", server=server, authority=authority, context=name, user={"token": token}
        )


def start_second_scheduler(
    folder: Path, settings: ClusterSettings, recipe: SchedulerRecipe, program: Path
) -> ClusterPart:
    """Start one; it is not waited for."""
    place = component_processes.find_scheduler_folder(folder, recipe.name)
    config = place / "config.yaml"
    config.write_text(yaml.safe_dump(build_configuration(settings, recipe, place / "kubeconfig")), encoding="utf-8")
    (port,) = component_processes.find_free_ports(1)
    arguments = [f"--config={config}", f"--bind-address={component_processes.LOOPBACK}", f"--secure-port={port}"]
    arguments += ["--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"]
    if settings.feature_gates:
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(settings.feature_gates.items()))
        arguments.append(f"--feature-gates={gates}")
    health = f"https://{component_processes.LOOPBACK}:{port}/healthz"
    return component_processes.start_part(folder, recipe.name, program, place / PROGRAM, arguments, health=health)


def build_configuration(settings: ClusterSettings, recipe: SchedulerRecipe, kubeconfig: Path) -> dict[str, object]:
    """Its KubeSchedulerConfiguration: the recipe's fields, the client limit, and no leader election."""
    limit = settings.client_limits.get(recipe.name, DEFAULT_LIMITS[PROGRAM])
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": limit.qps, "burst": limit.burst},
        "leaderElection": {"leaderElect": False},
        **(recipe.config or {}),
    }


def list_needed(recipe: SchedulerRecipe) -> set[str]:
    """Components that place the workloads of a recipe.

    >>> from workbench.scaletest.scenario.scheduler_recipes import find_recipe
    >>> list_needed(find_recipe("gang")), sorted(list_needed(find_recipe("kueue")))
    ({'kube-scheduler'}, ['kube-scheduler', 'kueue'])
    """
    if recipe.program == "kai":
        return set(kai_scheduler.KAI_PROCESSES)
    if recipe.program == "kueue":
        return {OWN, kueue_queues.NAME}
    return {recipe.name} if recipe.program == "kube-scheduler" else {OWN}


def list_switchable(record: ClusterRecord) -> dict[str, ClusterPart]:
    """Schedulers and queues of a cluster, by name."""
    names = {OWN, kueue_queues.NAME, *kai_scheduler.KAI_PROCESSES, *(recipe.name for recipe in record.settings.recipes)}
    return {part.name: part for part in record.parts if part.name in names}


def run_only(cluster: str, needed: set[str] | None) -> tuple[str, ...]:
    """Stop the schedulers that are not needed and start those that are; the names of those that run.

    `cluster`: Its name.
    `needed`: Names of components; null for all that the cluster has.
    """
    if (record := cluster_record.read_record(cluster)) is None:
        return ()
    folder, parts = record.folder, list_switchable(record)
    wanted = set(parts) if needed is None else set(parts) & needed
    alive = component_processes.find_processes(folder)
    for name in set(parts) - wanted:
        component_processes.end_processes(alive.get(name, []), grace_s=_GRACE_S)
    started = tuple(parts[name] for name in sorted(wanted - set(alive)))
    for part in started:
        log = control_plane.find_log(folder, part.name)
        component_processes.start_component(folder, part.command, log, environment=part.environment)
    control_plane.wait_until_healthy(folder, started, timeout_s=_START_LIMIT_S)
    if OWN in wanted:
        _wait_for_leader(parts[OWN], _START_LIMIT_S)
    return tuple(sorted(wanted))


def _wait_for_leader(part: ClusterPart, timeout_s: float) -> None:
    """A scheduler that was started again is idle until the lease of the one before has expired."""
    deadline, url = time.monotonic() + timeout_s, f"{part.health.rpartition('/')[0]}/metrics"
    context = ssl._create_unverified_context()  # noqa: S323 -- its own certificate, on loopback
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5, context=context) as answer:  # noqa: S310 -- of our own record
                text = answer.read(32 << 20).decode("utf-8", "replace")
        except OSError:
            text = ""
        if _LEADS.search(text) or (text and "leader_election_master_status" not in text):
            return
        if time.monotonic() > deadline:
            raise RunFailedError("the scheduler does not become the leader", where=part.name)
        time.sleep(_POLL_S)
