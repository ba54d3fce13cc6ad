"""Cluster setup by an administrator: namespaces, quotas, priority class and roles, as objects, YAML or applied."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from workbench.core.errors import ConfigError, RunFailedError
from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.scenario.rbac_rules import Rule, list_rules, select_cluster_rules, select_namespace_rules
from workbench.scaletest.scenario.scenario_file import Scenario, is_forbidden_namespace
from workbench.scaletest.scenario.workload_entries import PRIORITY_CLASS
from workbench.scaletest.scenario.workload_objects import build_resource_path, find_plural
from workbench.scaletest.scenario.workload_plan import Plan

HOME = "workbench-system"
ACCOUNT = "measure"
ROLE = "workbench-measure"
LIMITS = "workbench-limits"
# Below -10 the cluster autoscaler adds no node for them, and below 0 every pod of others may take their place.
PRIORITY_VALUE = -1000
# Evicted and failed pods stay until their owner is gone, and count.
_ATTEMPTS = 2
_RBAC = "rbac.authorization.k8s.io"
Json = dict[str, Any]


def build_setup_objects(plan: Plan, *, quota: bool = True) -> list[Json]:
    """All objects that setup makes, in order; the cluster's first, then each namespace's."""
    scenario = plan.scenario
    made = [
        _build_namespace(HOME),
        build_priority_class(),
        _build_account(),
        *_build_cluster_role(list_rules(scenario)),
    ]
    for space in plan.namespaces:
        made += build_namespace_objects(plan, space, quota=quota)
    return made


def build_namespace_objects(plan: Plan, space: str, *, quota: bool = True) -> list[Json]:
    """A namespace for tests, its limits on the server, and what the measuring identity may do there."""
    limits = [_build_quota(plan, space), *_build_limit_range(plan, space)] if quota else []
    return [_build_namespace(space, allow=True), *limits, *_build_role(list_rules(plan.scenario), space)]


def build_priority_class() -> Json:
    """PriorityClass of test pods: lower than all others, and they preempt no other pod."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": _build_metadata(PRIORITY_CLASS),
        "value": PRIORITY_VALUE,
        "preemptionPolicy": "Never",
        "description": "Pods of scale tests. They give way to all others and push nobody out.",
    }


def format_setup_yaml(plan: Plan) -> str:
    """Both identities for `kubectl apply -f -`, with comments on what each part is for."""
    import yaml

    def dump_yaml(made: list[Json]) -> str:
        return "".join("---\n" + yaml.safe_dump(one, sort_keys=False) for one in made)

    objects = build_setup_objects(plan)
    granted = [one for one in objects if one["kind"] in _GRANTS]
    rest = [one for one in objects if one not in granted]
    why = "".join(f"#   {_format_rule(rule)}\n" for rule in list_rules(plan.scenario))
    spaces = " ".join(plan.namespaces)
    return (
        "# Identity 1, setup: an administrator applies all of this once. The test itself never uses that identity.\n"
        f"# Namespaces for tests ({spaces}) with limits on the server, and a class of low priority.\n"
        + dump_yaml(rest)
        + "# Identity 2, measure: a service account. It is no administrator: those are never throttled.\n"
        f"# It may do this in {spaces} and nothing more:\n" + why + dump_yaml(granted) + "# Its token, for a day:\n"
        f"#   kubectl create token {ACCOUNT} --namespace {HOME} --duration 24h\n"
    )


def format_next_steps(administrator: str) -> str:
    """How the measuring identity becomes a context, after setup."""
    path = f'{{.contexts[?(@.name=="{administrator}")].context.cluster}}'
    return (
        "The measuring identity as a context of your kubeconfig (its token is for a day):\n"
        f"  TOKEN=$(kubectl --context {administrator} create token {ACCOUNT} --namespace {HOME} --duration 24h)\n"
        f"  kubectl config set-credentials {ROLE} --token $TOKEN\n"
        f"  kubectl config set-context {ROLE} --user {ROLE} --cluster $(kubectl config view -o jsonpath='{path}')\n"
        f"Then: workbench scaletest plan SCENARIO --context {ROLE}"
    )


_GRANTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


def _format_rule(rule: Rule) -> str:
    place = "whole cluster" if rule.cluster else "namespace"
    what = ", ".join(f"{one}.{rule.group}" if rule.group else one for one in rule.resources)
    named = f" ({', '.join(rule.names)} only)" if rule.names else ""
    return f"{place}: {'/'.join(rule.verbs)} {what}{named}: {rule.why}" + (" [optional]" if rule.optional else "")


def _build_metadata(name: str, namespace: str | None = None) -> Json:
    made: Json = {"name": name} | ({"namespace": namespace} if namespace else {})
    return made | {"labels": {object_names.MANAGED_BY: object_names.MANAGER}}


def _build_namespace(name: str, *, allow: bool = False) -> Json:
    head = _build_metadata(name)
    # The cluster itself refuses pods that reach for their node, whatever a template says.
    head["labels"] |= {"pod-security.kubernetes.io/enforce": "baseline"}
    if allow:
        head["labels"] |= {object_names.ALLOW: "true"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": head}


def _build_quota(plan: Plan, space: str) -> Json:
    """Room for the plan and for second attempts: what goes wrong ends there, even without us."""
    here = plan.schedule.filter(plan.schedule.get_column("namespace") == space)
    pods = int(here.get_column("pods").sum())
    gpus = float((here.get_column("pods") * here.get_column("gpus_per_pod")).sum())
    jobs = int((here.get_column("kind") == "Job").sum())
    hard = {
        "count/pods": str(pods * _ATTEMPTS + 10),
        "count/jobs.batch": str(jobs + 10),
        "requests.nvidia.com/gpu": str(math.ceil(gpus)),
        "count/configmaps": "1000",
        "services.loadbalancers": "0",
    }
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _build_metadata(LIMITS, space),
        "spec": {"hard": hard},
    }


def has_container_limits(scenario: Scenario) -> bool:
    """Can containers be held to what the scenario asks for? Those of a template say for themselves what they need."""
    return not any(entry.kind == "Template" for entry in scenario.workloads)


def _build_limit_range(plan: Plan, space: str) -> list[Json]:
    entries = plan.scenario.workloads
    if not has_container_limits(plan.scenario):
        return []
    # Not of GPUs: the server takes a maximum for the default of containers that ask for none. The quota bounds those.
    most = {
        "cpu": str(math.ceil(max(entry.cpus for entry in entries))),
        "memory": str(max(entry.memory for entry in entries)),
    }
    spec = {"limits": [{"type": "Container", "max": most}]}
    return [{"apiVersion": "v1", "kind": "LimitRange", "metadata": _build_metadata(LIMITS, space), "spec": spec}]


def _build_account() -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _build_metadata(ACCOUNT, HOME)}


def _build_subject() -> list[Json]:
    return [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}]


def _build_role(found: tuple[Rule, ...], space: str) -> list[Json]:
    version = f"{_RBAC}/v1"
    rule_list = [rule.to_dict() for rule in select_namespace_rules(found)]
    bound = {"apiGroup": _RBAC, "kind": "Role", "name": ROLE}
    return [
        {"apiVersion": version, "kind": "Role", "metadata": _build_metadata(ROLE, space), "rules": rule_list},
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": _build_metadata(ROLE, space),
            "roleRef": bound,
            "subjects": _build_subject(),
        },
    ]


def _build_cluster_role(found: tuple[Rule, ...]) -> list[Json]:
    version = f"{_RBAC}/v1"
    rule_list = [rule.to_dict() for rule in select_cluster_rules(found)]
    bound = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": ROLE}
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": _build_metadata(ROLE), "rules": rule_list},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": _build_metadata(ROLE),
            "roleRef": bound,
            "subjects": _build_subject(),
        },
    ]


FIELD_MANAGER = "workbench"
_ACCOUNT_S = 60
APPLY_CONTENT_TYPE = "application/apply-patch+yaml"
_PLURALS = {"PriorityClass": "priorityclasses"}


async def set_up_cluster(api_admin: Connection, plan: Plan, *, quota: bool = True) -> list[str]:
    """Make, or bring up to date, all that a scenario needs in the cluster; the names of what was applied.

    Parameters
    ----------
    api_admin
        An administrator's connection.
    quota
        With limits on the server. Each pod then costs the API server one more write: leave it away only on a cluster
        that is for this test alone.

    Raises
    ------
    ConfigError
        A namespace exists without the label for tests, or belongs to the cluster.
    ApiError, UnreachableError
        The cluster refused, or cannot be reached.
    RunFailedError
        Its controllers do not finish a new namespace.
    """
    for space in plan.namespaces:
        await _check_namespace_owner(api_admin, space)
    made = []
    for one in build_setup_objects(plan, quota=quota):
        made.append(await apply_object(api_admin, one))
    for space in plan.namespaces:
        if quota and not has_container_limits(plan.scenario):
            await _delete_limit_range(api_admin, space)
        await _wait_for_account(api_admin, space)
    return made


async def apply_object(api: Connection, made: dict[str, Any]) -> str:
    """Apply one object; its kind and name. What others set on it stays."""
    import orjson

    kind, about = str(made["kind"]), made["metadata"]
    plural = _PLURALS.get(kind) or find_plural(kind)
    path = build_resource_path(str(made["apiVersion"]), plural, about.get("namespace")) + f"/{about['name']}"
    query = {"fieldManager": FIELD_MANAGER, "force": "true"}
    answer = await api.request("PATCH", path, body=orjson.dumps(made), query=query, content_type=APPLY_CONTENT_TYPE)
    if answer.status >= 300:
        told = answer.json()
        message = str(told.get("message", ""))[:300] if isinstance(told, dict) else ""
        found = f"{answer.status} {message}"
        raise ApiError("the cluster refused what setup makes", status=answer.status, where=path, found=found)
    return f"{kind} {about['namespace'] + '/' if about.get('namespace') else ''}{about['name']}"


async def _delete_limit_range(api: Connection, space: str) -> None:
    """What an earlier scenario held its containers to would change those of this one."""
    path = f"/api/v1/namespaces/{space}/limitranges/{LIMITS}"
    answer = await api.request("DELETE", path)
    if answer.status not in (200, 202, 404):
        raise ApiError("the cluster refused what setup deletes", status=answer.status, where=path, found=answer.status)


async def _wait_for_account(api: Connection, space: str) -> None:
    """Pods of a new namespace are refused until the controller has made its service account."""
    path = f"/api/v1/namespaces/{space}/serviceaccounts/default"
    deadline = time.monotonic() + _ACCOUNT_S
    while (await api.request("GET", path)).status == 404:
        if time.monotonic() > deadline:
            do = "see whether the cluster's controller-manager runs"
            raise RunFailedError("a new namespace gets no service account", where=f"namespace {space}", do=do)
        await asyncio.sleep(0.05)


async def _check_namespace_owner(api: Connection, space: str) -> None:
    if is_forbidden_namespace(space):
        raise ConfigError("a namespace of the cluster's own", where=space, do="name another one in the scenario")
    answer = await api.request("GET", f"/api/v1/namespaces/{space}")
    if answer.status == 404:
        return
    labels = ((answer.json().get("metadata") or {}).get("labels") or {}) if answer.status == 200 else {}
    if labels.get(object_names.ALLOW) != "true" and labels.get(object_names.MANAGED_BY) != object_names.MANAGER:
        raise ConfigError(
            "the namespace is there already, and was not made for tests",
            where=f"namespace {space}",
            found=f"no label {object_names.ALLOW}=true (status {answer.status})",
            do=f"name another one, or allow tests: kubectl label namespace {space} {object_names.ALLOW}=true",
        )
