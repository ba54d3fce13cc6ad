"""`workbench sizing manifests`: a sized service as Kubernetes objects, printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.sizing.manifests import Deployed


PLACEHOLDER = "registry.example/model-server:1"


def manifests(
    sweep: Annotated[
        Path | None,
        typer.Argument(metavar="[SWEEP]", help="Folder of a sweep with estimates.", show_default=False),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs that the load needs, instead of a sweep's estimate.", min=1)
    ] = None,
    image: Annotated[str | None, typer.Option(help="Image of the model server; a placeholder without it.")] = None,
    gpus_per_replica: Annotated[
        int, typer.Option(help="GPUs that one copy of the model spans (tensor x pipeline); never split.", min=1)
    ] = 1,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node.", min=1)] = 8,
    spare: Annotated[int, typer.Option(help="Replicas that may be missing under full load; 1 is N+1.", min=0)] = 1,
    survive_node: Annotated[bool, typer.Option("--survive-node", help="Spare what a whole node can hold.")] = False,
    in_flight: Annotated[
        float | None,
        typer.Option(help="Requests in flight that a replica carries; from the sweep, if not given.", min=0),
    ] = None,
    least_replicas: Annotated[
        int | None, typer.Option(help="Replicas without load; one and the spare, if not given.", min=1)
    ] = None,
    name: Annotated[str, typer.Option(help="Name of all objects.")] = "inference",
    namespace: Annotated[str, typer.Option(help="Namespace they go to.")] = "default",
    port: Annotated[int, typer.Option(help="Port that the model server listens on.", min=1, max=65_535)] = 8000,
    health: Annotated[str, typer.Option(help="Path that answers 200 once the model is loaded.")] = "/health",
    arg: Annotated[list[str] | None, typer.Option(help="Argument of the model server; repeat.")] = None,
    gpu_resource: Annotated[
        str, typer.Option(help="What a GPU is called there; for MIG the slice that was measured.")
    ] = "nvidia.com/gpu",
    node_selector: Annotated[
        list[str] | None, typer.Option(metavar="LABEL=VALUE", help="Label of the nodes; repeat.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="Metric of a pod that counts its requests in flight.")
    ] = "requests_in_flight",
    start_s: Annotated[int, typer.Option(help="Time that loading the model may take, in seconds.", min=10)] = 900,
    queue: Annotated[str | None, typer.Option(help="Kueue queue; adds its quota.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of YAML.")] = False,
) -> None:
    """Print what deploys a sized service: Deployment, Service, PodDisruptionBudget and HorizontalPodAutoscaler.

    The GPUs come from the estimates of a sweep, or from --gpus. Nothing is applied: read it, then pass it on.

    Example: workbench sizing manifests --gpus 14 --gpus-per-replica 2 --in-flight 32 --image IMAGE
    """
    from workbench.sizing.manifests import as_yaml, objects
    from workbench.sizing.replicas import plan
    from workbench.sizing.sized import sized

    wanted = sized(sweep, gpus, gpus_per_replica, in_flight)
    deployed = _checked(
        {
            "name": name,
            "namespace": namespace,
            "image": image or PLACEHOLDER,
            "args": arg or [],
            "port": port,
            "health": health,
            "gpu_resource": gpu_resource,
            "node_selector": _pairs(node_selector or []),
            "start_s": start_s,
            "metric": metric,
            "queue": queue,
        }
    )
    planned = plan(
        wanted.gpus,
        gpus_per_replica=gpus_per_replica,
        gpus_per_node=gpus_per_node,
        spare=spare,
        survive_node=survive_node,
    )
    found = objects(planned, deployed, in_flight=wanted.in_flight, least_replicas=least_replicas)
    notes = [*wanted.notes, *planned.told(), *_notes(deployed, wanted.in_flight, planned.spare)]
    if as_json:
        import dataclasses
        import json

        counts = dataclasses.asdict(planned) | {"replicas": planned.replicas, "idle_gpus": planned.idle_gpus}
        typer.echo(json.dumps({"plan": counts, "notes": notes, "objects": found}))
    else:
        typer.echo(as_yaml(found, notes), nl=False)


def _notes(deployed: Deployed, in_flight: float | None, spare: int) -> list[str]:
    from workbench.sizing.manifests import HEADROOM, scaling_target

    notes = [f"{PLACEHOLDER} is a placeholder: give --image."] if deployed.image == PLACEHOLDER else []
    notes.append("A Service spreads connections at random: the answer holds for the router that was measured.")
    if in_flight is None:
        notes.append("No autoscaler: give --in-flight, or a sweep that tells what a replica carries.")
    else:
        notes.append(
            f"Scales at {scaling_target(in_flight)} requests in flight per replica, {HEADROOM:.0%} of the "
            f"{in_flight:.3g} that one carries; an adapter must serve {deployed.metric} "
            "(vLLM: num_requests_running + num_requests_waiting)."
        )
    if not spare:
        notes.append("None spare: while a node is drained or a pod replaced, the target is not met under full load.")
    if deployed.queue:
        notes.append("The quota is for Kueue v1beta1, whose objects were not checked against its schemas.")
    return notes


def _pairs(texts: list[str]) -> dict[str, str]:
    from workbench.errors import ConfigError

    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("not a label", where="--node-selector", found=text[:200], allowed="LABEL=VALUE")
        found[key] = value
    return found


def _checked(values: dict[str, Any]) -> Deployed:
    from pydantic import ValidationError

    from workbench.errors import ConfigError
    from workbench.sizing.manifests import Deployed

    try:
        return Deployed(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][0]).replace("_", "-")
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError("not an option's value", where=where, found=first.get("input"), allowed=message) from error
