"""`workbench scaletest simulated-runai`: a stand-in for Run:ai's operators on a local cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulated_runai(
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="A local cluster of `workbench scaletest cluster up`.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig, instead of --cluster.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(metavar="FILE", help="The kubeconfig, an administrator's.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="schedulerName of the pods.", show_default="KAI's where it is installed, else the stock one"),
    ] = None,
) -> None:
    """Make jobs, pods, pod groups and volumes of Run:ai workloads until Ctrl-C: a simulation, for local clusters.

    Installs the kinds TrainingWorkload, InteractiveWorkload, DistributedWorkload (run.ai/v2alpha1), RunaiJob
    (run.ai/v1), PyTorchJob (kubeflow.org/v1), PodGroup (scheduling.run.ai/v1) with open schemas, and a storage class.
    Pods can go to simulated nodes only. Its speed says nothing about Run:ai: what is real is the API server, the
    garbage collector and the scheduler.

    Where KAI is installed PodGroup is KAI's own, of another version, and KAI makes the pod groups; the old tool's
    sampler.py, which asks for version v1, cannot be run there.

    Example: workbench scaletest simulated-runai --cluster local
    """
    import asyncio

    from workbench.scaletest.connection import target
    from workbench.scaletest.localcluster.cluster import find
    from workbench.scaletest.simulated_runai import NAME, process
    from workbench.terminal import say

    if cluster is not None:
        known = find(cluster)
        kubeconfig, context = known.kubeconfig, known.context
    found = target(kubeconfig, context)
    where = f"context {found.context}"
    asyncio.run(process.foreground(found, scheduler=scheduler, tell=lambda _: say(f"{NAME} is there, {where}")))
