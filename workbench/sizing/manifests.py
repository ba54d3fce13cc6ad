"""Kubernetes objects for a sized service, as YAML to be read and applied by people: nothing here applies it.

`apps/v1`, `policy/v1` and `autoscaling/v2` are in every Kubernetes from 1.23 on; the quota is for Kueue's `v1beta1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from workbench.sizing.replicas import Plan

# A Service's name begins with a letter, and names made of this one are longer.
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}")
RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_:.-]{0,250}")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
HEADROOM = 0.8
"""Share of the requests in flight that a replica carries, at which another one is asked for."""

Object = dict[str, Any]


class Deployed(BaseModel):
    """What is deployed, apart from how many times."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("inference", description="Name of all objects.")
    namespace: str = Field("default", description="Namespace they go to.")
    image: str = Field(description="Image of the model server.")
    args: list[str] = Field([], description="Arguments of the model server.")
    port: int = Field(8000, ge=1, le=65_535, description="Port that it listens on.")
    health: str = Field("/health", description="Path that answers 200 once the model is loaded.")
    gpu_resource: str = Field("nvidia.com/gpu", description="What a GPU is called: whole ones, or the slice measured.")
    node_selector: dict[str, str] = Field({}, description="Labels of the nodes, such as the GPU's product.")
    start_s: int = Field(900, ge=10, le=86_400, description="Time that loading the model may take.")
    metric: str = Field("requests_in_flight", description="Metric of a pod that counts its requests in flight.")
    queue: str | None = Field(None, description="Kueue queue that the pods go through.")

    @field_validator("name", "namespace", "queue")
    @classmethod
    def _label(cls, value: str | None) -> str | None:
        if value is not None and not LABEL.fullmatch(value):
            raise ValueError("lower-case letters, digits and -, a letter first, at most 50")
        return value

    @field_validator("image")
    @classmethod
    def _image(cls, value: str) -> str:
        if not IMAGE.fullmatch(value):
            raise ValueError("an image reference, such as registry/name:tag")
        return value

    @field_validator("gpu_resource")
    @classmethod
    def _resource(cls, value: str) -> str:
        if not RESOURCE.fullmatch(value):
            raise ValueError("domain/name, such as nvidia.com/gpu")
        return value

    @field_validator("metric")
    @classmethod
    def _metric(cls, value: str) -> str:
        if not METRIC.fullmatch(value):
            raise ValueError("the name of a metric")
        return value

    @field_validator("health")
    @classmethod
    def _path(cls, value: str) -> str:
        if not value.startswith("/") or len(value) > 500 or not value.isprintable():
            raise ValueError("a path that begins with /")
        return value

    @field_validator("node_selector")
    @classmethod
    def _selector(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not (RESOURCE.fullmatch(name) or LABEL_VALUE.fullmatch(name)) or not LABEL_VALUE.fullmatch(text):
                raise ValueError(f"no label: {name[:80]}={text[:80]}")
        return value


def objects(
    planned: Plan, deployed: Deployed, *, in_flight: float | None = None, least_replicas: int | None = None
) -> list[Object]:
    """The objects of a service: Deployment, Service, PodDisruptionBudget, and what scales and admits it.

    Parameters
    ----------
    planned
        How many replicas.
    deployed
        What each of them is.
    in_flight
        Requests in flight that one replica carries within the target; without it nothing scales the Deployment.
    least_replicas
        Replicas when there is no load; one and the spare ones without it.

    Returns
    -------
    list of dict
        Objects in the order in which they can be applied.
    """
    found = [_deployment(planned, deployed), _service(deployed), _budget(planned, deployed)]
    if in_flight is not None:
        found.append(_autoscaler(planned, deployed, in_flight, least_replicas))
    return [*(_quota(planned, deployed) if deployed.queue else []), *found]


def _labels(deployed: Deployed) -> dict[str, str]:
    return {"app.kubernetes.io/name": deployed.name}


def _metadata(deployed: Deployed) -> Object:
    return {"name": deployed.name, "namespace": deployed.namespace, "labels": _labels(deployed)}


def _deployment(planned: Plan, deployed: Deployed) -> Object:
    queued = {"kueue.x-k8s.io/queue-name": deployed.queue} if deployed.queue else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(deployed) | {"labels": _labels(deployed) | queued},
        "spec": {
            "replicas": planned.replicas,
            "selector": {"matchLabels": _labels(deployed)},
            # New pods in the place of old ones: more than the nodes hold would wait for GPUs for ever.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": max(1, planned.spare)},
            },
            "template": {"metadata": {"labels": _labels(deployed)}, "spec": _pod(planned, deployed)},
        },
    }


def _pod(planned: Plan, deployed: Deployed) -> Object:
    pod: Object = {
        "containers": [_container(planned, deployed)],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _labels(deployed)},
            }
        ],
        "terminationGracePeriodSeconds": 120,
    }
    if deployed.node_selector:
        pod["nodeSelector"] = dict(deployed.node_selector)
    if planned.gpus_per_replica > 1:
        # GPUs of one replica talk through shared memory, of which a container has 64 MiB by default.
        pod["volumes"] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    return pod


def _container(planned: Plan, deployed: Deployed) -> Object:
    gpus = {deployed.gpu_resource: str(planned.gpus_per_replica)}
    asked = {"httpGet": {"path": deployed.health, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 10}
    container: Object = {
        "name": "server",
        "image": deployed.image,
        "ports": [{"name": "http", "containerPort": deployed.port}],
        "resources": {"limits": gpus, "requests": dict(gpus)},
        "startupProbe": {**asked, "failureThreshold": math.ceil(deployed.start_s / 10)},
        "readinessProbe": {**asked, "failureThreshold": 3},
        # Patient: a server under full load answers late, and to kill it then makes the load of the others worse.
        "livenessProbe": {**asked, "failureThreshold": 30},
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if deployed.args:
        container["args"] = list(deployed.args)
    if planned.gpus_per_replica > 1:
        container["volumeMounts"] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108
    return container


def _service(deployed: Deployed) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(deployed),
        "spec": {
            "type": "ClusterIP",
            "selector": _labels(deployed),
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


def _budget(planned: Plan, deployed: Deployed) -> Object:
    # Never 0: no node could be drained any more.
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(deployed),
        "spec": {"maxUnavailable": max(1, planned.spare), "selector": {"matchLabels": _labels(deployed)}},
    }


def scaling_target(in_flight: float) -> int:
    """Requests in flight per replica at which another replica is asked for."""
    return max(1, math.floor(HEADROOM * in_flight))


def _autoscaler(planned: Plan, deployed: Deployed, in_flight: float, least_replicas: int | None) -> Object:
    least = min(planned.replicas, 1 + planned.spare if least_replicas is None else least_replicas)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(deployed),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployed.name},
            "minReplicas": least,
            "maxReplicas": planned.replicas,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": deployed.metric},
                        "target": {"type": "AverageValue", "averageValue": str(scaling_target(in_flight))},
                    },
                }
            ],
            # A model takes minutes to load: up at once, down only after the load has been low for a while.
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"stabilizationWindowSeconds": 600},
            },
        },
    }


def _quota(planned: Plan, deployed: Deployed) -> list[Object]:
    api = "kueue.x-k8s.io/v1beta1"
    flavor, cluster = f"{deployed.name}-gpus", f"{deployed.name}-quota"
    resources = [{"name": deployed.gpu_resource, "nominalQuota": planned.used_gpus}]
    group = {"coveredResources": [deployed.gpu_resource], "flavors": [{"name": flavor, "resources": resources}]}
    labels: Mapping[str, Any] = {"nodeLabels": dict(deployed.node_selector)} if deployed.node_selector else {}
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": flavor}, "spec": dict(labels)},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": cluster},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": deployed.queue, "namespace": deployed.namespace},
            "spec": {"clusterQueue": cluster},
        },
    ]


def as_yaml(found: list[Object], notes: list[str]) -> str:
    """The objects as one YAML stream, the notes as comments before them."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes what occurs twice twice: nobody wants to read anchors in a manifest."""

        def ignore_aliases(self, data: Any) -> bool:
            del data
            return True

    comments = "".join(f"# {line}\n" for note in notes for line in note.splitlines())
    documents = [yaml.dump(one, Dumper=Plain, sort_keys=False, default_flow_style=False, width=120) for one in found]
    return comments + "---\n" + "---\n".join(documents)
