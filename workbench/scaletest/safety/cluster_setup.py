"""Cluster setup by an administrator: namespaces, quotas, priority class and roles, as objects, YAML or applied."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import ConfigError, RunFailedError
from workbench.kubernetes.manifests import RBAC, Object, build_object, format_yaml
from workbench.kubernetes.resources import find_resource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.scenario.quantities import parse_quantity
from workbench.scaletest.scenario.scenario_file import Scenario, is_forbidden_namespace
from workbench.scaletest.scenario.template_pods import select_devices
from workbench.scaletest.scenario.workload_entries import HIGH_PRIORITY_CLASS, PRIORITY_CLASS
from workbench.scaletest.scenario.workload_objects import (
    list_rules,
    select_cluster_rules,
    select_namespace_rules,
)
from workbench.scaletest.scenario.workload_plan import Plan

HOME, ACCOUNT = api_discovery.SYSTEM_NAMESPACE, api_discovery.MEASURING_ACCOUNT
ROLE = "workbench-measure"
LIMITS = "workbench-limits"
# Below -10 the cluster autoscaler adds no nodes; below 0 every other pod preempts them.
PRIORITY_VALUE, HIGH_PRIORITY_VALUE = -1000, -500
# Evicted and failed pods count until their owner is deleted.
_ATTEMPTS = 2
OURS = {api_discovery.MANAGED_BY: api_discovery.MANAGER}
_GRANTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
FIELD_MANAGER = "workbench"
_ACCOUNT_S = 60
APPLY_CONTENT_TYPE = "application/apply-patch+yaml"


def build_setup_objects(plan: Plan, *, quota: bool = True) -> list[Object]:
    """Build all objects of the setup, in order: cluster-scoped ones, then those of each namespace."""
    cluster_rules = [rule.to_dict() for rule in select_cluster_rules(list_rules(plan.scenario))]
    objects = [
        _build_namespace(HOME),
        *build_priority_classes(plan.scenario),
        build_object("v1", "ServiceAccount", ACCOUNT, HOME, OURS),
        *build_role_objects(ROLE, cluster_rules),
    ]
    for space in plan.namespaces:
        objects += build_namespace_objects(plan, space, quota=quota)
    return objects


def build_namespace_objects(plan: Plan, space: str, *, quota: bool = True) -> list[Object]:
    """Build a namespace for tests, its quota and limits, and the role of the measuring identity."""
    entries = plan.scenario.workloads
    limits = [_build_quota(plan, space)] if quota else []
    if quota and has_container_limits(plan.scenario):
        # Not for GPUs: a maximum becomes the default of containers that request none. The quota limits GPUs.
        maximum = {
            "cpu": str(math.ceil(max(entry.cpus for entry in entries))),
            "memory": str(max(entry.memory for entry in entries)),
        }
        spec = {"limits": [{"type": "Container", "max": maximum}]}
        limits.append(build_object("v1", "LimitRange", LIMITS, space, OURS, spec=spec))
    rules = [rule.to_dict() for rule in select_namespace_rules(list_rules(plan.scenario))]
    return [_build_namespace(space, allow=True), *limits, *build_role_objects(ROLE, rules, space)]


def build_priority_classes(scenario: Scenario) -> list[Object]:
    """Build the PriorityClass of test pods, below all others and without preemption; a higher one if it is named."""
    classes = {PRIORITY_CLASS: (PRIORITY_VALUE, "Never", "they preempt none")}
    if any(entry.priority == HIGH_PRIORITY_CLASS for entry in scenario.workloads):
        classes[HIGH_PRIORITY_CLASS] = HIGH_PRIORITY_VALUE, "PreemptLowerPriority", "they preempt those of tests"
    return [
        build_object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            name,
            labels=OURS,
            value=value,
            preemptionPolicy=policy,
            description=f"Pods of scale tests. All other pods preempt them; {whom}.",
        )
        for name, (value, policy, whom) in classes.items()
    ]


def format_setup_yaml(plan: Plan) -> str:
    """Setup as YAML for `kubectl apply -f -`, with comments on the two identities."""
    objects = build_setup_objects(plan)
    granted = [manifest for manifest in objects if manifest["kind"] in _GRANTS]
    other_objects = [manifest for manifest in objects if manifest not in granted]
    rules_text = ""
    for rule in list_rules(plan.scenario):
        place = "whole cluster" if rule.cluster else "namespace"
        targets = ", ".join(f"{name}.{rule.group}" if rule.group else name for name in rule.objects)
        named = f" ({', '.join(rule.names)} only)" if rule.names else ""
        optional = " [optional]" if rule.optional else ""
        rules_text += f"#   {place}: {'/'.join(rule.verbs)} {targets}{named}: {rule.why}{optional}\n"
    spaces = " ".join(plan.namespaces)
    return (
        "# Identity 1, setup: an administrator applies these objects once. Tests never use this identity.\n"
        f"# Namespaces for tests ({spaces}) with quotas and limits, and a PriorityClass of low priority.\n"
        "# For several scenarios in one namespace use `workbench scaletest setup`: it keeps what the others need.\n"
        + format_yaml(other_objects, width=80)
        + "# Identity 2, measure: a service account without cluster-admin rights (system:masters is never throttled).\n"
        f"# Its permissions, limited to {spaces}:\n"
        + rules_text
        + format_yaml(granted, width=80)
        + "# Create its token, valid for a day:\n"
        f"#   kubectl create token {ACCOUNT} --namespace {HOME} --duration 24h\n"
    )


def format_next_steps(administrator: str) -> str:
    """Commands that add the measuring identity to a kubeconfig, after setup."""
    path = f'{{.contexts[?(@.name=="{administrator}")].context.cluster}}'
    return (
        "Add the measuring identity to your kubeconfig as a context (its token is valid for a day):\n"
        f"  TOKEN=$(kubectl --context {administrator} create token {ACCOUNT} --namespace {HOME} --duration 24h)\n"
        f"  kubectl config set-credentials {ROLE} --token $TOKEN\n"
        f"  kubectl config set-context {ROLE} --user {ROLE} --cluster $(kubectl config view -o jsonpath='{path}')\n"
        f"Then: workbench scaletest plan SCENARIO --context {ROLE}"
    )


def _build_namespace(name: str, *, allow: bool = False) -> Object:
    # Pod Security admission refuses privileged pods, whatever a template contains.
    labels = OURS | {"pod-security.kubernetes.io/enforce": "baseline"}
    return build_object("v1", "Namespace", name, labels=labels | ({api_discovery.ALLOW: "true"} if allow else {}))


def _build_quota(plan: Plan, space: str) -> Object:
    """Build the quota: room for the plan and for retries, so that the server stops a runaway test."""
    here = plan.schedule.filter(plan.schedule.get_column("namespace") == space)
    pods = int(here.get_column("pods").sum())
    gpus = float((here.get_column("pods") * here.get_column("gpus_per_pod")).sum())
    jobs = int((here.get_column("kind") == "Job").sum())
    # Extended resources other than GPUs that the templates request, if all pods run at once.
    counts = dict(here.group_by("entry").len().iter_rows())
    devices: Counter[str] = Counter()
    for at, entry in enumerate(plan.scenario.workloads):
        n_pods = counts.get(entry.display_name(at), 0) * entry.all_pods
        devices.update({name: amount * n_pods for name, amount in select_devices(entry.requests_per_pod).items()})
    hard = {
        "count/pods": str(pods * _ATTEMPTS + 10),
        "count/jobs.batch": str(jobs + 10),
        "requests.nvidia.com/gpu": str(math.ceil(gpus)),
        "count/configmaps": "1000",
        "services.loadbalancers": "0",
    } | {f"requests.{name}": str(math.ceil(amount)) for name, amount in devices.items() if amount}
    return build_object("v1", "ResourceQuota", LIMITS, space, OURS, spec={"hard": hard})


def has_container_limits(scenario: Scenario) -> bool:
    """Whether container limits can be set from the scenario; templates define their own requests."""
    return not any(entry.kind == "Template" for entry in scenario.workloads)


def build_role_objects(name: str, rules: list[Object], space: str | None = None) -> list[Object]:
    """Build a role of the measuring identity and its binding, in a namespace or for the whole cluster."""
    kind = "Role" if space else "ClusterRole"
    return [
        build_object(f"{RBAC}/v1", kind, name, space, OURS, rules=rules),
        build_object(
            f"{RBAC}/v1",
            f"{kind}Binding",
            name,
            space,
            OURS,
            roleRef={"apiGroup": RBAC, "kind": kind, "name": name},
            subjects=[{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}],
        ),
    ]


@dataclass(frozen=True)
class AppliedSetup:
    """Result of a setup: names of the applied objects, and what it means for setups of other scenarios."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


async def set_up_cluster(api_admin: Connection, plan: Plan, *, quota: bool = True) -> AppliedSetup:
    """Create or update all objects that a scenario needs, and keep what earlier setups of other scenarios need.

    `quota`: Also create quotas and limits. They cost the API server one more write per pod; omit them only on a
    cluster that is used for this test alone.
    """
    for space in plan.namespaces:
        await _check_namespace_owner(api_admin, space)
    names, notes = [], []
    for manifest in build_setup_objects(plan, quota=quota):
        kept = await _keep_earlier(api_admin, manifest)
        names.append(await apply_object(api_admin, kept))
    for space in plan.namespaces:
        root = f"/api/v1/namespaces/{space}"
        if quota and not has_container_limits(plan.scenario):
            path = f"{root}/limitranges/{LIMITS}"
            answer = await api_admin.request("DELETE", path)
            if answer.status in (200, 202):
                notes.append(
                    f"LimitRange {space}/{LIMITS} is deleted: it would change the containers of templates. Run setup "
                    "again before you run a scenario without templates in this namespace"
                )
            elif answer.status != 404:
                message = "the API server refused a deletion of the setup"
                raise ApiError(message, status=answer.status, where=path, found=answer.refusal)
        # Pods are refused until the service account of a new namespace exists.
        deadline = time.monotonic() + _ACCOUNT_S
        while (await api_admin.request("GET", f"{root}/serviceaccounts/default")).status == 404:
            if time.monotonic() > deadline:
                do = "check that the kube-controller-manager is running"
                raise RunFailedError(
                    "a new namespace has no default service account", where=f"namespace {space}", do=do
                )
            await asyncio.sleep(0.05)
    return AppliedSetup(tuple(names), tuple(notes))


async def _keep_earlier(api: Connection, manifest: Object) -> Object:
    """Add to an object of the setup what an earlier setup of another scenario put into it.

    Quotas and limits are the larger of both, rules of a role the union. Objects that are not ours are not read.
    """
    if manifest["kind"] not in _MERGES:
        return manifest
    answer = await api.request("GET", _build_object_path(manifest))
    earlier = answer.json() if answer.status == 200 else {}
    if ((earlier.get("metadata") or {}).get("labels") or {}).get(api_discovery.MANAGED_BY) != api_discovery.MANAGER:
        return manifest
    return manifest | _MERGES[manifest["kind"]](earlier, manifest)


def _merge_quota(earlier: Object, manifest: Object) -> Object:
    return {"spec": {"hard": _merge_amounts((earlier.get("spec") or {}).get("hard") or {}, manifest["spec"]["hard"])}}


def _merge_limit_range(earlier: Object, manifest: Object) -> Object:
    (limit,) = manifest["spec"]["limits"]
    old: Object = next(
        (one for one in (earlier.get("spec") or {}).get("limits") or [] if one["type"] == limit["type"]), {}
    )
    return {"spec": {"limits": [limit | {"max": _merge_amounts(old.get("max") or {}, limit["max"])}]}}


def _merge_rules(earlier: Object, manifest: Object) -> Object:
    rules = manifest["rules"]
    return {"rules": [*rules, *(rule for rule in earlier.get("rules") or [] if rule not in rules)]}


def _merge_amounts(earlier: dict[str, str], wanted: dict[str, str]) -> dict[str, str]:
    """Larger of two amounts of each resource.

    >>> _merge_amounts({"count/pods": "20", "memory": "1Gi"}, {"count/pods": "12"})
    {'count/pods': '20', 'memory': '1Gi'}
    """
    return wanted | {
        name: value
        for name, value in earlier.items()
        if name not in wanted or parse_quantity(value) > parse_quantity(wanted[name])
    }


_MERGES: dict[str, Callable[[Object, Object], Object]] = {
    "ResourceQuota": _merge_quota,
    "LimitRange": _merge_limit_range,
    "Role": _merge_rules,
    "ClusterRole": _merge_rules,
}


def _build_object_path(manifest: Object) -> str:
    resource, about = find_resource(str(manifest["apiVersion"]), str(manifest["kind"])), manifest["metadata"]
    return f"{resource.path(about.get('namespace') or '')}/{about['name']}"


async def apply_object(api: Connection, manifest: dict[str, Any]) -> str:
    """Apply one object (server-side apply); returns its kind and name."""
    import orjson

    kind, about, path = str(manifest["kind"]), manifest["metadata"], _build_object_path(manifest)
    query = {"fieldManager": FIELD_MANAGER, "force": "true"}
    answer = await api.request("PATCH", path, body=orjson.dumps(manifest), query=query, content_type=APPLY_CONTENT_TYPE)
    if answer.status >= 300:
        message = "the API server refused an object of the setup"
        raise ApiError(message, status=answer.status, where=path, found=answer.refusal)
    return f"{kind} {about['namespace'] + '/' if about.get('namespace') else ''}{about['name']}"


async def _check_namespace_owner(api: Connection, space: str) -> None:
    if is_forbidden_namespace(space):
        raise ConfigError("a system namespace", where=space, do="use another namespace in the scenario")
    answer = await api.request("GET", f"/api/v1/namespaces/{space}")
    if answer.status == 404:
        return
    labels = ((answer.json().get("metadata") or {}).get("labels") or {}) if answer.status == 200 else {}
    if labels.get(api_discovery.ALLOW) != "true" and labels.get(api_discovery.MANAGED_BY) != api_discovery.MANAGER:
        raise ConfigError(
            "the namespace exists and is not labelled for tests",
            where=f"namespace {space}",
            found=f"no label {api_discovery.ALLOW}=true (status {answer.status})",
            do=f"use another namespace, or allow tests: kubectl label namespace {space} {api_discovery.ALLOW}=true",
        )
