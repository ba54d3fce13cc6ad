"""API objects of each kind of workload, and the requests that create them, encoded once with gaps."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import ConfigError
from workbench.kubernetes.resources import ApiResource, find_resource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import (
    JOBS,
    KUEUE_WORKLOADS,
    POD_GROUPS,
    PODS,
    PYTORCH_JOBS,
)
from workbench.scaletest.scenario import manifest_rules, template_pods
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.scheduler_recipes import PodAdditions, SchedulerRecipe, find_recipe
from workbench.scaletest.scenario.workload_entries import WORKBENCH_MARKS, WorkloadEntry

UNKNOWN_OWNER = b"00000000-0000-0000-0000-000000000000"
_GAP = re.compile(rb'"@@workbench#([a-z_]+)@@"|@@workbench:([a-z_]+)@@')
_HASH = "hash"
KWOK_NODE = "kwok.x-k8s.io/node"
# kwok ends a pod when its stage `pod-complete` says so. Its "general" stages read these two from the pod, and wait a
# random time between them: the same value twice is that value. (kwokctl's default stages read neither.)
DELAY = "pod-complete.stage.kwok.x-k8s.io/delay"
JITTER = "pod-complete.stage.kwok.x-k8s.io/jitter-delay"
GPU, GPU_FRACTION = template_pods.GPU, template_pods.GPU_FRACTION
# Cannot be pulled: should such a pod ever reach a node that exists, nothing runs there.
NO_IMAGE = "simulated.invalid/nothing:none"
_GRACE_S = 600
_RETRIES = 3
Json = dict[str, Any]
MAKE_VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")
READ_VERBS = ("get", "list", "watch")
_KAI_GROUP = "scheduling.run.ai"
# Resource, ending of the name, and manifest of each, in the order of their requests.
PlannedObjects = list[tuple[ApiResource, str, Json]]
RUNAI_JOBS = ApiResource("run.ai", "v1", "runaijobs")


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """One object to be made: `POST path` with this JSON body."""

    path: str  # such as /apis/batch/v1/namespaces/ns/jobs
    name: str
    body: bytes
    owned: bool = False  # its owner's uid is filled in when the workload's first object is there

    def fill_owner(self, uid: str | None) -> ObjectRequest:
        """Copy of the request with the uid of the owning object put in."""
        if not self.owned or not uid:
            return self
        return dataclasses.replace(self, body=self.body.replace(UNKNOWN_OWNER, uid.encode()))


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """One workload: its due time, and its requests in order (for a gang: PodGroup, then pods; then what it owns).

    The last request's answer is the workload's acknowledgement. `requests` makes the bodies when
    they are needed: 100,000 of them would not fit into memory.
    """

    index: int
    name: str
    namespace: str
    due_s: float
    spec_sha256: str
    requests: Callable[[], tuple[ObjectRequest, ...]]


def text_gap(name: str) -> str:
    """Placeholder in a text of an object for a workload's own value."""
    return f"@@workbench:{name}@@"


def number_gap(name: str) -> str:
    """Placeholder for a value that is a number: replaced as a whole, with its quotes."""
    return f"@@workbench#{name}@@"


@dataclass(frozen=True)
class Body:
    """An encoded object: texts and the names of the gaps between them, in turns."""

    path: str
    suffix: str
    parts: tuple[bytes, ...]
    owned: bool = False

    def fill_gaps(self, values: Mapping[str, bytes]) -> bytes:
        """Bytes of one workload's object, with `values` in the gaps."""
        parts: list[bytes] = list(self.parts)
        for at in range(1, len(parts), 2):
            parts[at] = values[parts[at].decode()]
        return b"".join(parts)


def compile_body(path: str, suffix: str, manifest: Mapping[str, Any], *, owned: bool = False) -> Body:
    """Encode an object that holds gaps.

    >>> body = compile_body("/x", "", {"metadata": {"name": text_gap("name")}, "spec": {"n": number_gap("index")}})
    >>> body.fill_gaps({"name": b"a-1", "index": b"1"})
    b'{"metadata":{"name":"a-1"},"spec":{"n":1}}'
    """
    import orjson

    parts = _GAP.split(orjson.dumps(manifest))
    # Two groups a gap: the one that did not match is null.
    texts, names = parts[::3], [first or second for first, second in zip(parts[1::3], parts[2::3], strict=True)]
    turns = [texts[0]]
    for name, text in zip(names, texts[1:], strict=True):
        turns += [name, text]
    return Body(path, suffix, tuple(turns), owned)


def hash_bodies(bodies: tuple[Body, ...], values: Mapping[str, bytes]) -> tuple[str, int]:
    """Hash of what is sent, and its size in bytes.

    The hash itself is in the objects, as an annotation: for the hash that place is empty.
    """
    digest, size = hashlib.sha256(), 0
    empty = {**values, _HASH: b""}
    for body in bodies:
        filled = body.fill_gaps(empty)
        digest.update(filled)
        size += len(filled) + 64 * body.parts[1::2].count(_HASH.encode())
    return digest.hexdigest(), size


def build_requests(
    bodies: tuple[Body, ...], values: Mapping[str, bytes], name: str, spec_sha256: str
) -> tuple[ObjectRequest, ...]:
    """The requests of one workload, in order."""
    full = {**values, _HASH: spec_sha256.encode()}
    return tuple(ObjectRequest(body.path, name + body.suffix, body.fill_gaps(full), body.owned) for body in bodies)


@dataclass(frozen=True)
class PlanConditions:
    """Conditions that all objects of one plan have in common."""

    scenario: Scenario
    run: str
    scheduler: str

    @property
    def deadline_s(self) -> int:
        """Time after which the cluster itself ends what a dead client left behind."""
        return math.ceil(self.scenario.limits.wall_clock_s) + _GRACE_S

    @functools.cached_property
    def recipe(self) -> SchedulerRecipe:
        """Recipe with what the scheduler needs of its workloads."""
        return find_recipe(self.scheduler, self.scenario.recipes)

    @property
    def scheduler_name(self) -> str:
        """schedulerName of the pods."""
        return self.recipe.pods_scheduler


def build_objects(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> PlannedObjects:
    """Objects of one workload of an entry, in the order of their requests: resource, suffix of the name, object."""
    return _BUILDERS[entry.kind](entry, namespace, conditions)


def build_bodies(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> tuple[Body, ...]:
    """Request bodies for one workload of an entry, in order, with gaps."""
    objects = build_objects(entry, namespace, conditions)
    return tuple(
        compile_body(resource.path(namespace), suffix, manifest, owned=owned)
        for owned, some in ((False, objects), (True, build_owned_objects(entry, namespace, conditions, objects[0][2])))
        for resource, suffix, manifest in some
    )


def build_owned_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions, owner: Mapping[str, Any]
) -> PlannedObjects:
    """Build the objects that a workload owns; the cluster's garbage collector deletes them with their owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": UNKNOWN_OWNER.decode(),
    }
    objects = []
    for number, manifest in enumerate(entry.owned):
        suffix = f"-o{number}"
        resource, filled = _fill_manifest(manifest, entry, namespace, conditions, suffix=suffix)
        filled["metadata"]["ownerReferences"] = [reference]
        objects.append((resource, suffix, filled))
    return objects


def list_resources(entry: WorkloadEntry, scenario: Scenario, *, owned: bool = False) -> set[ApiResource]:
    """Resources that workloads of an entry are made of, or own, on any of the scenario's schedulers."""
    resources = set()
    for scheduler in scenario.schedulers:
        plan, space = PlanConditions(scenario, "", scheduler), scenario.namespaces[0]
        objects = build_objects(entry, space, plan)
        resources |= {resource for resource, _, _ in objects}
        resources |= (
            {resource for resource, _, _ in build_owned_objects(entry, space, plan, objects[0][2])} if owned else set()
        )
    return resources


def _build_labels(entry: WorkloadEntry, conditions: PlanConditions) -> dict[str, str]:
    added: dict[str, str] = _fill_additions(conditions.recipe.pods, entry, "", conditions)["labels"]
    run_labels = api_discovery.build_labels(conditions.run, text_gap("name"), 0) | {
        api_discovery.STEP: text_gap("step")
    }
    return added | entry.labels | run_labels


def _fill_additions(additions: PodAdditions, entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> Json:
    """Return what a recipe adds: labels, annotations and fields, with their placeholders filled."""
    values = _placeholder_values(entry, namespace, conditions, labels={})
    fields: Json = manifest_rules.fill_placeholders(additions.model_dump(), values)
    return fields


def _build_metadata(entry: WorkloadEntry, namespace: str, conditions: PlanConditions, suffix: str = "") -> Json:
    added = _fill_additions(conditions.recipe.workloads, entry, namespace, conditions)
    return {
        "name": text_gap("name") + suffix,
        "namespace": namespace,
        "labels": added["labels"] | _build_labels(entry, conditions),
        "annotations": {api_discovery.SPEC_HASH: text_gap("hash")} | added["annotations"],
    }


def _build_pod_annotations(entry: WorkloadEntry, conditions: PlanConditions) -> dict[str, str]:
    pod_annotations: dict[str, str] = _fill_additions(conditions.recipe.pods, entry, "", conditions)["annotations"]
    pod_annotations |= {} if entry.lifetime is None else {DELAY: text_gap("lifetime"), JITTER: text_gap("lifetime")}
    if entry.fraction is not None:
        pod_annotations[GPU_FRACTION] = f"{entry.fraction:g}"
    return pod_annotations


def _build_pod_spec(entry: WorkloadEntry, conditions: PlanConditions, *, deadline: bool) -> Json:
    resources: Json = {"requests": {"cpu": f"{round(entry.cpus * 1000)}m", "memory": str(entry.memory)}}
    if entry.fraction is None and entry.gpus:
        resources["limits"] = {GPU: str(entry.gpus)}
    container: Json = {"name": "main", "image": entry.image or NO_IMAGE, "resources": resources}
    if entry.image is not None:
        container["command"] = ["sleep", "infinity" if entry.lifetime is None else text_gap("lifetime_s")]
    # 0 on a real node would forget a container that still runs.
    grace_s = 1 if conditions.scenario.allow_real_nodes else 0
    spec: Json = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": grace_s}
    if deadline:
        spec["activeDeadlineSeconds"] = conditions.deadline_s
    return _complete_pod_spec(spec, entry, conditions)


def _complete_pod_spec(spec: Json, entry: WorkloadEntry, conditions: PlanConditions) -> Json:
    """A pod's specification, given its scheduler, its class, no rights, and the fence around simulated nodes."""
    spec["schedulerName"] = entry.scheduler_name or conditions.scheduler_name
    spec["automountServiceAccountToken"] = False
    # The entry alone says who gives way: what a template says itself is not looked at before the test.
    for field in ("priorityClassName", "priority", "preemptionPolicy"):
        spec.pop(field, None)
    if entry.priority is not None:
        spec["priorityClassName"] = entry.priority
    if entry.node_labels:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **entry.node_labels}
    if not conditions.scenario.allow_real_nodes:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), api_discovery.SIMULATED: "true"}
        toleration = {"key": KWOK_NODE, "operator": "Exists", "effect": "NoSchedule"}
        spec["tolerations"] = [*(spec.get("tolerations") or []), toleration]
    return spec


def _build_pod(entry: WorkloadEntry, namespace: str, conditions: PlanConditions, suffix: str = "") -> Json:
    head = _build_metadata(entry, namespace, conditions, suffix)
    head["annotations"] |= _build_pod_annotations(entry, conditions)
    spec = _build_pod_spec(entry, conditions, deadline=True)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}


def _build_pod_template(entry: WorkloadEntry, conditions: PlanConditions) -> Json:
    head = {"labels": _build_labels(entry, conditions), "annotations": _build_pod_annotations(entry, conditions)}
    return {"metadata": head, "spec": _build_pod_spec(entry, conditions, deadline=False)}


def _build_pod_objects(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> PlannedObjects:
    """Build a workload's pod: its resource, the name's ending (empty) and the manifest."""
    return [(PODS, "", _build_pod(entry, namespace, conditions))]


def _build_gang_objects(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> PlannedObjects:
    """Build a gang: the objects that the recipe asks for, then the pods, marked as its members.

    Each object comes with its resource, the ending of its name and its manifest.
    """
    suffixes = [f"-{number:04d}" for number in range(entry.pods)]
    pods = [(PODS, suffix, _build_pod(entry, namespace, conditions, suffix)) for suffix in suffixes]
    recipe = conditions.recipe
    if not entry.pod_group:
        return pods
    for _, _, pod in pods:
        added = _fill_additions(recipe.gang_pods, entry, namespace, conditions)
        pod["metadata"]["labels"] = added["labels"] | pod["metadata"]["labels"]
        pod["metadata"]["annotations"] |= added["annotations"]
        pod["spec"] |= added["spec"]
    objects: PlannedObjects = []
    values = _placeholder_values(entry, namespace, conditions)
    for manifest in recipe.gang_objects:
        version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        wanted = manifest.get("spec") or {}
        # A field that holds only the priority is left out where there is none.
        if entry.priority is None:
            wanted = {key: value for key, value in wanted.items() if value != "${priority}"}
        spec = manifest_rules.fill_placeholders(copy.deepcopy(wanted), values)
        head = _build_metadata(entry, namespace, conditions)
        resource = find_resource(version, kind, manifest.get("plural"))
        objects.append((resource, "", {"apiVersion": version, "kind": kind, "metadata": head, "spec": spec}))
    return [*objects, *pods]


def _build_job_objects(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> PlannedObjects:
    """Build a workload's Job: its resource, the name's ending (empty) and the manifest."""
    spec = {
        "parallelism": entry.parallelism,
        "completions": entry.all_pods,
        # Evictions are measured as new attempts; with no retries the first one would end the Job.
        "backoffLimit": _RETRIES,
        "ttlSecondsAfterFinished": conditions.deadline_s,
        "activeDeadlineSeconds": conditions.deadline_s,
        "template": _build_pod_template(entry, conditions),
    }
    head = _build_metadata(entry, namespace, conditions)
    return [(JOBS, "", {"apiVersion": "batch/v1", "kind": "Job", "metadata": head, "spec": spec})]


def _build_pytorch_job_objects(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> PlannedObjects:
    """Build a workload's PyTorchJob, a master and workers: its resource, the name's ending (empty), the manifest."""

    def build_replicas(count: int) -> Json:
        template = _build_pod_template(entry, conditions)
        template["spec"]["containers"][0]["name"] = "pytorch"  # required by the operator
        template["spec"].pop("restartPolicy")
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    kinds = {"Master": build_replicas(1)} | ({"Worker": build_replicas(entry.pods - 1)} if entry.pods > 1 else {})
    policy = {
        "cleanPodPolicy": "None",
        "backoffLimit": _RETRIES,
        "activeDeadlineSeconds": conditions.deadline_s,
        "ttlSecondsAfterFinished": conditions.deadline_s,
    }
    head = _build_metadata(entry, namespace, conditions)
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": kinds}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": head, "spec": spec}
    return [(PYTORCH_JOBS, "", job)]


def _build_template_objects(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> PlannedObjects:
    """Build the object of the user's template: its resource, the name's ending (empty) and the manifest."""
    resource, manifest = _fill_manifest(entry.template or {}, entry, namespace, conditions)
    return [(resource, "", manifest)]


def _fill_manifest(
    manifest: Json, entry: WorkloadEntry, namespace: str, conditions: PlanConditions, *, suffix: str | None = None
) -> tuple[ApiResource, Json]:
    """Fill the placeholders of the user's manifest, and put our labels on it and on its pods.

    `suffix`: Ending of the name of an object that the workload owns; null for the workload itself.
    """
    values = _placeholder_values(entry, namespace, conditions)
    document: Json = manifest_rules.fill_placeholders(copy.deepcopy(manifest), values)
    head = document.setdefault("metadata", {})
    metadata = _build_metadata(entry, namespace, conditions, suffix or "")
    for field in ("labels", "annotations"):
        head[field] = _merge_ours(head.get(field), metadata[field], f"metadata.{field}")
    head["name"], head["namespace"] = metadata["name"], metadata["namespace"]
    document.pop("status", None)
    additions = {"labels": _build_labels(entry, conditions), "annotations": _build_pod_annotations(entry, conditions)}
    for place, pod in manifest_rules.list_pod_templates(document, entry.pods_at if suffix is None else None):
        about = pod.setdefault("metadata", {})
        for field, ours in additions.items():
            about[field] = _merge_ours(about.get(field), ours, f"{place}.metadata.{field}".lstrip("."))
        _complete_pod_spec(pod["spec"], entry, conditions)
    if document["kind"] == "Job":
        for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
            document["spec"].setdefault(field, conditions.deadline_s)
    if document["kind"] == "Pod":
        document["spec"].setdefault("activeDeadlineSeconds", conditions.deadline_s)
    plural = entry.plural if suffix is None else None
    return find_resource(str(document["apiVersion"]), str(document["kind"]), plural), document


def _merge_ours(own: Json | None, ours: Mapping[str, str], place: str) -> Json:
    """Add our labels or annotations to a manifest's; one that it has with another value is refused.

    The workbench's own marks are set in any case: by them a run's objects are found and deleted.
    """
    own = own or {}
    for key in sorted(own.keys() & ours.keys()):
        if own[key] != ours[key] and key != GPU_FRACTION and not key.startswith(WORKBENCH_MARKS):
            raise ConfigError(
                "a template says something else than its entry or its scheduler's recipe",
                where=f"template.{place}: {key}",
                found=own[key],
                allowed=f"{ours[key]} (of the entry's fields, such as queue, labels and lifetime, or of the recipe)",
                do="take it out of the template, or set the entry's field to it",
            )
    return {**own, **ours}


# One entry per kind: a new kind needs its builder here, and its fields in `workload_entries`.
_BUILDERS: dict[str, Callable[[WorkloadEntry, str, PlanConditions], PlannedObjects]] = {
    "Pod": _build_pod_objects,
    "Gang": _build_gang_objects,
    "Job": _build_job_objects,
    "PyTorchJob": _build_pytorch_job_objects,
    "Template": _build_template_objects,
}


def _placeholder_values(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions, labels: Json | None = None
) -> Json:
    lives = entry.lifetime is not None
    return {
        "name": text_gap("name"),
        "namespace": namespace,
        "run": conditions.run,
        "index": number_gap("index"),
        "step": number_gap("step"),
        "gpus": entry.gpus if entry.fraction is None else 0,
        "fraction": entry.fraction or 0,
        "cpus": entry.cpus,
        "memory": entry.memory,
        "pods": entry.pods,
        "workers": max(entry.pods - 1, 0),
        "queue": entry.queue,
        "priority": entry.priority or "",
        "scheduler": conditions.scheduler_name,
        "lifetime_s": number_gap("lifetime_s") if lives else conditions.deadline_s,
        "deadline_s": conditions.deadline_s,
        "labels": _build_labels(entry, conditions) if labels is None else labels,
    }


@dataclass(frozen=True)
class Rule:
    """Verbs on resources of one group; in the test's namespaces, or in the whole cluster."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    cluster: bool = False
    optional: bool = False
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def objects(self) -> tuple[str, ...]:
        """Objects that the verbs are for."""
        return self.resources or self.paths

    def to_dict(self) -> dict[str, Any]:
        """Convert to the form that a Role has."""
        if self.paths:
            return {"nonResourceURLs": list(self.paths), "verbs": list(self.verbs)}
        fields: dict[str, Any] = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        return fields | ({"resourceNames": list(self.names)} if self.names else {})


def list_kinds(scenario: Scenario, *, owned: bool = False) -> tuple[ApiResource, ...]:
    """Resources that the scenario's workloads are made of, on any of its schedulers; with `owned` what they own, too.

    What they own is made and deleted, and not watched.
    """
    entries = scenario.workloads
    return tuple(sorted(set().union(*(list_resources(entry, scenario, owned=owned) for entry in entries))))


def list_rules(scenario: Scenario) -> tuple[Rule, ...]:
    """List all rights that the measuring identity needs, and no more."""
    kinds = list_kinds(scenario, owned=True)
    rules = [Rule(kind.group, (kind.plural,), MAKE_VERBS, f"the run's {kind.plural}") for kind in kinds]
    watched = [kind for kind in (PODS, JOBS) if kind not in kinds]
    rules += [Rule(kind.group, (kind.plural,), READ_VERBS, f"watch {kind.plural} of the run") for kind in watched]
    rules += [
        Rule(
            "",
            ("configmaps",),
            (*MAKE_VERBS, "patch"),
            "the run's record, and the heartbeat that shows the watch's lag",
        ),
        Rule("", ("events", "persistentvolumeclaims"), READ_VERBS, "times of scheduling, eviction and binding"),
        Rule("events.k8s.io", ("events",), READ_VERBS, "the same, in microseconds"),
    ]
    rules += _list_operator_rules(scenario, kinds)
    rules += [
        Rule("", ("namespaces",), ("get",), "is the namespace meant for tests?"),
        Rule("", ("resourcequotas", "limitranges"), ("list",), "are there limits on the server?"),
        Rule("", ("namespaces",), ("get",), "which cluster is it?", cluster=True, names=("kube-system",)),
        Rule("", ("nodes",), READ_VERBS, "its nodes: simulated or real, ready or not", cluster=True),
    ]
    priorities = sorted({entry.priority for entry in scenario.workloads if entry.priority is not None})
    if priorities:
        reason = "do the pods give way to others?"
        rules.append(Rule("scheduling.k8s.io", ("priorityclasses",), ("get",), reason, True, True, tuple(priorities)))
    reason = "the API server's own figures: queues, etcd, webhooks; not in the report without it"
    rules.append(Rule("", (), ("get",), reason, cluster=True, optional=True, paths=("/metrics",)))
    reason = "stop when pods of others are evicted or wait; off without it"
    rules.append(Rule("", ("pods",), READ_VERBS, reason, cluster=True, optional=True))
    return tuple(rules)


def _list_operator_rules(scenario: Scenario, kinds: tuple[ApiResource, ...]) -> list[Rule]:
    """List access rules to watch the objects that the scheduler and Run:ai's operator make for the workloads."""
    groups = () if POD_GROUPS in kinds else ("podgroups",)
    rules, read = [], set[str]()
    for name in scenario.schedulers:
        recipe = find_recipe(name, scenario.recipes)
        wanted = [resource for resource in recipe.read_resources if resource not in kinds]
        for group in sorted({resource.group for resource in wanted} - read):
            plurals = tuple(resource.plural for resource in wanted if resource.group == group)
            rules.append(Rule(group, plurals, READ_VERBS, f"times of {name}'s decisions"))
            read.add(group)
    if KUEUE_WORKLOADS.group in read and any(entry.kind == "Gang" for entry in scenario.workloads):
        reason = "cleanup: deleted pods of a gang that has not ended wait for it, and stay without it"
        rules.append(Rule(KUEUE_WORKLOADS.group, (KUEUE_WORKLOADS.plural,), ("delete",), reason, optional=True))
    if groups and _KAI_GROUP not in read and has_runai_kind(kinds):
        rules.append(Rule(_KAI_GROUP, groups, READ_VERBS, "times of its pod groups"))
    if has_runai_kind(kinds):
        jobs = [kind for kind in (RUNAI_JOBS, PYTORCH_JOBS) if kind not in kinds]
        rules += [
            Rule(kind.group, (kind.plural,), READ_VERBS, "times of the jobs that its operator makes") for kind in jobs
        ]
    return rules


def has_runai_kind(kinds: Iterable[ApiResource]) -> bool:
    """Is one of them a kind of Run:ai, of which its operator makes jobs?

    >>> has_runai_kind([PODS, ApiResource("run.ai", "v2alpha1", "trainingworkloads")]), has_runai_kind([PODS])
    (True, False)
    """
    return any(kind.group == RUNAI_JOBS.group and kind.plural != RUNAI_JOBS.plural for kind in kinds)


def select_namespace_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Select the rules for the test's namespaces."""
    return [rule for rule in rules if not rule.cluster]


def select_cluster_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Select the rules for the whole cluster."""
    return [rule for rule in rules if rule.cluster]
