"""More kube-schedulers beside the control plane's own, each with the configuration of its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import component_processes, identities
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS, ClusterPart, ClusterSettings
from workbench.scaletest.scenario.scheduler_recipes import SchedulerRecipe

PROGRAM = "kube-scheduler"


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
    link = place / PROGRAM  # the program looks at the name that it is called by
    link.unlink(missing_ok=True)
    link.symlink_to(program.absolute())
    (port,) = component_processes.find_free_ports(1)
    arguments = [f"--config={config}", f"--bind-address={component_processes.LOOPBACK}", f"--secure-port={port}"]
    arguments += ["--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"]
    if settings.feature_gates:
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(settings.feature_gates.items()))
        arguments.append(f"--feature-gates={gates}")
    command = (str(link), *arguments)
    component_processes.start_component(folder, command, folder / "logs" / f"{recipe.name}.log")
    return ClusterPart(
        name=recipe.name, command=command, health=f"https://{component_processes.LOOPBACK}:{port}/healthz"
    )


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
