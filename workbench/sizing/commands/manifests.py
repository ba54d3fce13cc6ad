"""`workbench sizing manifests`: prints a sized service as Kubernetes objects."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption

if TYPE_CHECKING:
    from workbench.sizing.deployment.service_manifests import ServiceSpec

Sweep = Annotated[
    Path | None, typer.Argument(metavar="[SWEEP]", help="Sweep folder with estimates.", show_default=False)
]
Gpus = Annotated[int | None, typer.Option(help="GPUs to deploy, instead of a sweep's estimate.", min=1)]
GpusPerReplica = Annotated[
    int, typer.Option(help="GPUs that one model replica spans (tensor x pipeline); never split.", min=1)
]
GpusPerNode = Annotated[int, typer.Option(help="GPUs per node.", min=1)]
Spare = Annotated[int, typer.Option(help="Replicas that may be missing at full load; 1 is N+1.", min=0)]
SurviveNode = Annotated[bool, typer.Option("--survive-node", help="Keep a whole node's replicas spare.")]
InFlight = Annotated[
    float | None, typer.Option(help="Requests in flight that a replica carries; by default from the sweep.", min=0)
]
Validate = Annotated[
    bool, typer.Option("--validate", help="Check the objects by the API's schemas (needs kubernetes-validate).")
]
KubernetesVersion = Annotated[
    str | None, typer.Option("--kubernetes", metavar="1.N", help="Kubernetes to check for. Default: the newest known.")
]
CrdFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--crd", metavar="FILE", help="CRD to check Kueue's objects by: kubectl get crd … -o yaml. Repeatable."
    ),
]
LeastReplicas = Annotated[
    int | None, typer.Option(help="Replicas without load; by default one and the spare ones.", min=1)
]


@take_options_from(
    "workbench.sizing.deployment.service_manifests:ServiceSpec",
    options={
        "image": FieldOption(default=None),
        "args": FieldOption("arg"),
        "port": FieldOption(min=1, max=65_535),
        "node_selector": FieldOption(metavar="LABEL=VALUE"),
        "start_s": FieldOption(min=10),
    },
    groups={
        "Size": "gpus gpus_per_replica gpus_per_node spare survive_node in_flight least_replicas",
        "Server": "profile image port health liveness args start_s metric",
        "Pod": "gpu_resource node_selector env_secret pull_secret cache_claim cache_path cache_variable shared_memory "
        "cpu memory",
    },
    defaults="model",
)
def manifests(
    option_values: OptionValues,
    sweep: Sweep = None,
    gpus: Gpus = None,
    gpus_per_replica: GpusPerReplica = 1,
    gpus_per_node: GpusPerNode = 8,
    spare: Spare = 1,
    survive_node: SurviveNode = False,
    in_flight: InFlight = None,
    least_replicas: LeastReplicas = None,
    validate: Validate = False,
    kubernetes_version: KubernetesVersion = None,
    crds: CrdFiles = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a sized service as Deployment, Service, PodDisruptionBudget and HorizontalPodAutoscaler.

    The GPU count comes from the estimates of a sweep, or from --gpus. Nothing is applied. --profile vllm or nim sets
    the probes, the cache and the arguments of that server. With --validate the exit code is 1 where an object is not
    valid by the schemas of Kubernetes, or a Kueue object by its CRD (--crd).

    Example: workbench sizing manifests --gpus 14 --gpus-per-replica 2 --in-flight 32 --image IMAGE
    """
    from workbench.kubernetes.manifests import format_yaml
    from workbench.sizing.deployment.replica_plan import plan_replicas, size_deployment
    from workbench.sizing.deployment.service_manifests import (
        ServiceSpec,
        build_manifests,
        check_manifests,
        choose_kubernetes_version,
        read_crd_schemas,
    )

    size = size_deployment(sweep, gpus, gpus_per_replica, in_flight)
    spec = option_values.build_model(ServiceSpec)
    plan = plan_replicas(
        size.gpus,
        gpus_per_replica=gpus_per_replica,
        gpus_per_node=gpus_per_node,
        spare=spare,
        survive_node=survive_node,
    )
    objects = build_manifests(plan, spec, in_flight=size.in_flight, min_replicas=least_replicas)
    notes = [*size.notes, *plan.explain_plan(), *_build_notes(spec, size.in_flight, plan.spare)]
    faults: list[str] = []
    if validate:
        faults = check_manifests(objects, kubernetes_version, read_crd_schemas(crds or []))
        result = f"{len(faults)} faults" if faults else "valid"
        notes.append(f"Checked by the schemas of Kubernetes {choose_kubernetes_version(kubernetes_version)}: {result}.")
        notes += [f"NOT VALID: {fault}" for fault in faults]
    counts = dataclasses.asdict(plan) | {"replicas": plan.replicas, "idle_gpus": plan.idle_gpus}
    finish_command(
        lambda: typer.echo(format_yaml(objects, notes), nl=False),
        {"plan": counts, "notes": notes, "objects": objects, **({"faults": faults} if validate else {})},
        as_json=as_json,
        is_valid=not faults,
    )


def _build_notes(deployed: ServiceSpec, in_flight: float | None, spare: int) -> list[str]:
    """Notes below the manifests: what is missing, how the service scales and which quota version is needed.

    `in_flight`: Requests in flight that a replica carries, null if unknown. `spare`: Spare replicas.
    """
    from workbench.sizing.deployment.service_manifests import PLACEHOLDER_IMAGE, SCALING_HEADROOM, autoscaling_target

    is_placeholder = deployed.image == PLACEHOLDER_IMAGE
    notes = [f"{PLACEHOLDER_IMAGE} is a placeholder: add --image."] if is_placeholder else []
    notes.append("A Service spreads connections at random; the estimate is valid for the router that was measured.")
    if in_flight is None:
        notes.append("No autoscaler: add --in-flight, or a sweep that measured what a replica carries.")
    else:
        notes.append(
            f"Scales at {autoscaling_target(in_flight)} requests in flight per replica, "
            f"{100 * SCALING_HEADROOM:.0f} % of the {in_flight:.3g} that one carries; "
            f"a metrics adapter must provide {deployed.metric} "
            "(vLLM: num_requests_running + num_requests_waiting)."
        )
    if not spare:
        notes.append("No spare replica: at full load the target is missed while a node drains or a pod is replaced.")
    if deployed.queue:
        notes.append("The quota is for Kueue v1beta2 (0.15 and newer).")
    return notes
