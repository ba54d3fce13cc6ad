"""Builds Kubernetes manifests of a sized service as YAML; applies nothing.

`apps/v1`, `policy/v1` and `autoscaling/v2` are in every Kubernetes from 1.23 on; the quota is for Kueue's `v1beta2`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from workbench.core import data_files
from workbench.core.errors import ConfigError, InputError, MissingToolError
from workbench.core.schema import StrictModel
from workbench.kubernetes.manifests import LABEL_VALUE, RESOURCE_NAME, Object, build_object
from workbench.sizing.deployment.replica_plan import ReplicaPlan

_QUANTITY = (
    re.compile(r"[1-9][0-9]{0,8}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"),
    "a quantity of Kubernetes, such as 4, 500m or 16Gi",
)
# A Service's name begins with a letter, and names made of this one are longer.
_LABEL = (
    re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?"),
    "lower-case letters, digits and -, a letter first, at most 50",
)
_FORMS = {
    **dict.fromkeys(("cpu", "memory", "shared_memory"), _QUANTITY),
    **dict.fromkeys(("name", "namespace", "queue", "env_secret", "pull_secret", "cache_claim"), _LABEL),
    "image": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}"), "an image reference, such as registry/name:tag"),
    "gpu_resource": (RESOURCE_NAME, "domain/name, such as nvidia.com/gpu"),
    "metric": (re.compile(r"[A-Za-z_][A-Za-z0-9_:.-]{0,250}"), "the name of a metric"),
    "cache_variable": (re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}"), "the name of an environment variable"),
}
SCALING_HEADROOM = 0.8
"""Share of the requests in flight that a replica carries, at which another one is asked for."""
PLACEHOLDER_IMAGE = "registry.example/model-server:1"
PROFILES: dict[str, dict[str, Any]] = {
    "plain": {},
    "vllm": {
        "cache_path": "/root/.cache/huggingface",
        "start_s": 1800,
    },
    "nim": {
        "health": "/v1/health/ready",
        "liveness": "/v1/health/live",
        "cache_path": "/opt/nim/.cache",
        "cache_variable": "NIM_CACHE_PATH",
        "start_s": 3600,
    },
}
"""Fields of `ServiceSpec` that a model server has otherwise: its probes, its cache, how long it loads."""

MAX_CRD_BYTES = 16 << 20
MAX_SCHEMA_DEPTH = 60
VERSION_PATTERN = re.compile(r"v?(1\.\d{1,3})(\.\d+)?")
OWN_GROUPS = ("apps/v1", "v1", "policy/v1", "autoscaling/v2")
Schemas = dict[tuple[str, str], dict[str, Any]]
"""JSON schema by API version and kind."""


class ServiceSpec(StrictModel):
    """The model server of one replica, and the names of its objects."""

    profile: Literal["plain", "vllm", "nim"] = Field(
        "plain", description="Model server: its probes, cache and arguments; plain has none of its own."
    )
    name: str = Field("inference", description="Name of all objects.")
    namespace: str = Field("default", description="Namespace of the objects.")
    image: str = Field(PLACEHOLDER_IMAGE, description="Image of the model server; a placeholder by default.")
    args: list[str] = Field([], description="Argument of the model server. Repeatable.")
    port: int = Field(8000, ge=1, le=65_535, description="Port that the model server listens on.")
    health: str = Field("/health", description="Path that answers 200 once the model is loaded.")
    liveness: str | None = Field(
        None, description="Path that answers 200 while the server is alive; by default --health."
    )
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource name of a GPU; for MIG, of the measured slice.")
    node_selector: dict[str, str] = Field({}, description="Label of the nodes. Repeatable.")
    start_s: int = Field(900, ge=10, le=86_400, description="Longest time to load the model, in seconds.")
    metric: str = Field("requests_in_flight", description="Pod metric that counts requests in flight.")
    queue: str | None = Field(None, description="Kueue queue; also prints its quota.")
    env_secret: str | None = Field(None, description="Secret whose entries become environment variables.")
    pull_secret: str | None = Field(None, description="Secret of the image registry.")
    cache_claim: str | None = Field(None, description="PersistentVolumeClaim for the model's files.")
    cache_path: str = Field("/cache/huggingface", description="Where the cache is mounted; in the container.")
    cache_variable: str = Field("HF_HOME", description="Environment variable that names the cache to the server.")
    shared_memory: str | None = Field(None, description="Size limit of /dev/shm; counts towards the pod's memory.")
    cpu: str = Field("4", description="CPU that a replica requests.")
    memory: str = Field("16Gi", description="Memory that a replica requests.")

    @model_validator(mode="before")
    @classmethod
    def _take_profile(cls, values: Any) -> Any:
        """Take settings that are not given from the profile."""
        profile = values.get("profile") if isinstance(values, dict) else None
        return PROFILES.get(profile, {}) | values if isinstance(profile, str) else values

    @field_validator(*_FORMS)
    @classmethod
    def _check_form(cls, value: str | None, info: ValidationInfo) -> str | None:
        pattern, allowed = _FORMS[str(info.field_name)]
        if value is not None and not pattern.fullmatch(value):
            raise ValueError(allowed)
        return value

    @field_validator("health", "liveness", "cache_path")
    @classmethod
    def _check_health_path(cls, value: str | None) -> str | None:
        if value is not None and (not value.startswith("/") or len(value) > 500 or not value.isprintable()):
            raise ValueError("a path that begins with /")
        return value

    @field_validator("node_selector")
    @classmethod
    def _check_node_selector(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not (RESOURCE_NAME.fullmatch(name) or LABEL_VALUE.fullmatch(name)) or not LABEL_VALUE.fullmatch(text):
                raise ValueError(f"no label: {name[:80]}={text[:80]}")
        return value


def build_manifests(
    planned: ReplicaPlan, deployed: ServiceSpec, *, in_flight: float | None = None, min_replicas: int | None = None
) -> list[Object]:
    """The objects of a service: Deployment, Service, PodDisruptionBudget, and what scales and admits it.

    `in_flight`: Requests in flight that one replica carries within the target; without it nothing scales the
    Deployment.
    `min_replicas`: Replicas when there is no load; one and the spare ones without it.
    """
    labels = {"app.kubernetes.io/name": deployed.name}
    selector = {"matchLabels": labels}
    build = partial(build_object, name=deployed.name, namespace=deployed.namespace, labels=labels)
    deployment = {
        # Beside an autoscaler a fixed number would undo its work each time that this is applied.
        **({"replicas": planned.replicas} if in_flight is None else {}),
        "selector": selector,
        # New pods in the place of old ones: more than the nodes hold would wait for GPUs for ever.
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": max(1, planned.spare)},
        },
        "template": {"metadata": {"labels": labels}, "spec": _build_pod_spec(planned, deployed, labels)},
    }
    queued = {"kueue.x-k8s.io/queue-name": deployed.queue} if deployed.queue else {}
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    objects = [
        *(_build_kueue_queues(planned, deployed) if deployed.queue else []),
        build("apps/v1", "Deployment", labels=labels | queued, spec=deployment),
        build("v1", "Service", spec={"type": "ClusterIP", "selector": labels, "ports": ports}),
        # Never 0: no node could be drained any more.
        build("policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": max(1, planned.spare), "selector": selector}),
    ]
    if in_flight is not None:
        metric = {
            "metric": {"name": deployed.metric},
            "target": {"type": "AverageValue", "averageValue": str(autoscaling_target(in_flight))},
        }
        scaler = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployed.name},
            "minReplicas": min(planned.replicas, 1 + planned.spare if min_replicas is None else min_replicas),
            "maxReplicas": planned.replicas,
            "metrics": [{"type": "Pods", "pods": metric}],
            # A model takes minutes to load: up at once, down only after the load has been low for a while.
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"stabilizationWindowSeconds": 600},
            },
        }
        objects.append(build("autoscaling/v2", "HorizontalPodAutoscaler", spec=scaler))
    return objects


def _build_pod_spec(planned: ReplicaPlan, deployed: ServiceSpec, labels: Mapping[str, str]) -> Object:
    gpus = {deployed.gpu_resource: str(planned.gpus_per_replica)}
    probe = {"httpGet": {"path": deployed.health, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 10}
    lives = probe | {"httpGet": {"path": deployed.liveness or deployed.health, "port": "http"}}
    container: Object = {
        "name": "server",
        "image": deployed.image,
        "ports": [{"name": "http", "containerPort": deployed.port}],
        "resources": {"limits": gpus, "requests": {"cpu": deployed.cpu, "memory": deployed.memory, **gpus}},
        "startupProbe": {**probe, "failureThreshold": math.ceil(deployed.start_s / 10)},
        "readinessProbe": {**probe, "failureThreshold": 3},
        # Patient: a server under full load answers late, and to kill it then makes the load of the others worse.
        "livenessProbe": {**lives, "failureThreshold": 30},
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    arguments = list(deployed.args)
    spans = ("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp")
    # vLLM must be told how many GPUs it spans, NIM finds out itself.
    if (
        deployed.profile == "vllm"
        and planned.gpus_per_replica > 1
        and not any(argument.startswith(spans) for argument in arguments)
    ):
        arguments += ["--tensor-parallel-size", str(planned.gpus_per_replica)]
    if arguments:
        container["args"] = arguments
    if deployed.env_secret:
        container["envFrom"] = [{"secretRef": {"name": deployed.env_secret}}]
    container["volumeMounts"] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108
    if deployed.cache_claim:
        container["volumeMounts"].append({"name": "cache", "mountPath": deployed.cache_path})
        # Wherever the image's user has its home.
        container["env"] = [{"name": deployed.cache_variable, "value": deployed.cache_path}]
    pod: Object = {
        "containers": [container],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels},
            }
        ],
        "terminationGracePeriodSeconds": 120,
    }
    if deployed.node_selector:
        pod["nodeSelector"] = dict(deployed.node_selector)
    if deployed.pull_secret:
        pod["imagePullSecrets"] = [{"name": deployed.pull_secret}]
    # Processes of a model server talk through shared memory, of which a container has 64 MiB by default.
    limit = {"sizeLimit": deployed.shared_memory} if deployed.shared_memory else {}
    pod["volumes"] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory", **limit}}]
    if deployed.cache_claim:
        pod["volumes"].append({"name": "cache", "persistentVolumeClaim": {"claimName": deployed.cache_claim}})
    return pod


def autoscaling_target(in_flight: float) -> int:
    """Requests in flight per replica at which another replica is asked for."""
    return max(1, math.floor(SCALING_HEADROOM * in_flight))


def _multiply_quantity(quantity: str, count: int) -> str:
    """Multiply a Kubernetes quantity by `count`, in its unit.

    >>> _multiply_quantity("1.5Gi", 4), _multiply_quantity("500m", 3)
    ('6Gi', '1500m')
    """
    number = quantity.rstrip("mkMGTi")
    return f"{Decimal(number) * count:f}".removesuffix(".0") + quantity[len(number) :]


def _build_kueue_queues(planned: ReplicaPlan, deployed: ServiceSpec) -> list[Object]:
    """Kueue objects with a quota for exactly the planned replicas: flavor, cluster queue and local queue."""
    api = "kueue.x-k8s.io/v1beta2"
    flavor, cluster = f"{deployed.name}-gpus", f"{deployed.name}-quota"
    # A pod that requests what its queue does not cover is never admitted.
    quotas = {
        deployed.gpu_resource: planned.used_gpus,
        "cpu": _multiply_quantity(deployed.cpu, planned.replicas),
        "memory": _multiply_quantity(deployed.memory, planned.replicas),
    }
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group = {"coveredResources": list(quotas), "flavors": [{"name": flavor, "resources": resources}]}
    labels: Object = {"nodeLabels": dict(deployed.node_selector)} if deployed.node_selector else {}
    queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    return [
        build_object(api, "ResourceFlavor", flavor, spec=labels),
        build_object(api, "ClusterQueue", cluster, spec=queue),
        build_object(api, "LocalQueue", deployed.queue or "", deployed.namespace, spec={"clusterQueue": cluster}),
    ]


def check_manifests(objects: Sequence[dict[str, Any]], version: str | None, schemas: Schemas) -> list[str]:
    """List what is wrong with each object by the schema of its kind; empty when nothing is.

    `version`: Kubernetes version such as 1.31; null for the newest that is known.

    Returns: One line a finding: kind, name, path, and what is allowed. An object of an API without a schema is one,
    too.

    Does not show what only a cluster knows: admission webhooks, quotas, whether an image or a Secret exists.
    """
    validator = _load_validator()
    chosen = choose_kubernetes_version(version)
    faults = []
    for manifest in objects:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["apiVersion"] in OWN_GROUPS:
            try:
                validator.validate(manifest, chosen, strict=True)
            except validator.ValidationError as error:
                faults.append(f"{name}: {_describe(error)}")
            except validator.SchemaNotFoundError:
                faults.append(f"{name}: Kubernetes {chosen} has no {manifest['apiVersion']}")
        elif (schema := schemas.get((manifest["apiVersion"], manifest["kind"]))) is None:
            faults.append(f"{name}: no schema of {manifest['apiVersion']}; give its CRD with --crd")
        else:
            faults += [f"{name}: {text}" for text in _find_schema_faults(manifest, schema)]
    return faults


def choose_kubernetes_version(version: str | None) -> str:
    """The version of the schemas: the given one, or the newest."""
    validator = _load_validator()
    versions = [".".join(release.split(".")[:2]) for release in validator.utils.all_versions()]
    if version is None:
        return versions[-1]
    match = VERSION_PATTERN.fullmatch(version)
    if match is None or match[1] not in versions:
        raise ConfigError(
            "no schemas of this Kubernetes",
            where="--kubernetes",
            found=version[:40],
            allowed=f"{versions[0]} to {versions[-1]}",
        )
    return match[1]


def _load_validator() -> Any:
    try:
        import kubernetes_validate
    except ModuleNotFoundError:
        raise MissingToolError(
            "kubernetes-validate is not installed",
            where="--validate",
            do="pip install 'accelerated-workbench[manifests]'",
        ) from None
    return kubernetes_validate


def _describe(error: Any) -> str:
    path = ".".join(str(part) for part in error.absolute_path) or "the object"
    return f"{path}: {str(error.message)[:200]}"


def read_crd_schemas(paths: Sequence[Path]) -> Schemas:
    """Schemas of CustomResourceDefinitions, as `kubectl get crd NAME… -o yaml` prints them."""
    schemas: Schemas = {}
    for path in paths:
        document = data_files.read_yaml_file(
            path, noun="CRD", max_bytes=MAX_CRD_BYTES, do="kubectl get crd NAME -o yaml"
        )
        items: Any = [document]
        if isinstance(document, dict) and document.get("kind") == "List":
            items = document.get("items")
        for item in items if isinstance(items, list) else [{}]:
            try:
                if item["kind"] != "CustomResourceDefinition":
                    raise ValueError
                spec = item["spec"]
                group, kind = str(spec["group"]), str(spec["names"]["kind"])
                served = [one for one in spec["versions"] if one["served"]]
                found = {
                    (f"{group}/{version['name']}", kind): version["schema"]["openAPIV3Schema"] for version in served
                }
            except (KeyError, TypeError, ValueError):
                raise InputError(
                    "not a CustomResourceDefinition",
                    where=path,
                    allowed="apiextensions.k8s.io/v1",
                    do="kubectl get crd NAME -o yaml",
                ) from None
            if not all(isinstance(schema, dict) for schema in found.values()):
                raise InputError("a schema of the CRD is no object", where=path)
            schemas |= found
    return schemas


def _find_schema_faults(manifest: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Faults of a manifest by a CRD's schema, in which unknown fields are faults, too."""
    import jsonschema

    try:
        closed = _close_schema(schema)
        jsonschema.Draft202012Validator.check_schema(closed)
        validator = jsonschema.Draft202012Validator(closed)
        return [
            _describe(error)
            for error in sorted(validator.iter_errors(manifest), key=lambda error: list(map(str, error.path)))
        ]
    except (
        *(jsonschema.SchemaError, jsonschema.exceptions.UnknownType, re.error, RecursionError),
        *(TypeError, ValueError, AttributeError, KeyError),
    ) as error:
        return [f"the CRD's schema cannot be used: {type(error).__name__}"]


def _close_schema(schema: Any, depth: int = 0, *, is_root: bool = True) -> Any:
    """Copy of a schema that forbids fields it does not name, since the API server drops such fields silently."""
    if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
        return schema
    closed = dict(schema)
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("anyOf", None)
        closed["type"] = ["integer", "string"]
    # No reference leads out of the file.
    for name in ("$ref", "$dynamicRef", "$schema", "$id"):
        closed.pop(name, None)
    properties = closed.get("properties")
    if isinstance(properties, dict):
        closed["properties"] = {
            name: {} if is_root and name == "metadata" else _close_schema(subschema, depth + 1, is_root=False)
            for name, subschema in properties.items()
        }
        if "additionalProperties" not in closed and not closed.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    for name in ("items", "additionalProperties"):
        closed[name] = _close_schema(closed[name], depth + 1, is_root=False) if name in closed else None
        if closed[name] is None:
            del closed[name]
    return closed
