"""What an administrator makes once: namespaces with limits, a class that gives way, roles; as objects and as YAML."""

from __future__ import annotations

import math
from typing import Any

from workbench.scaletest import names
from workbench.scaletest.planning.plans import Plan
from workbench.scaletest.planning.rights import Rule, namespaced, of_cluster, rules
from workbench.scaletest.scenario import Scenario
from workbench.scaletest.templates.entries import PRIORITY

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


def setup_objects(plan: Plan, *, quota: bool = True) -> list[Json]:
    """All objects that setup makes, in order; the cluster's first, then each namespace's."""
    scenario = plan.scenario
    made = [_namespace(HOME), priority_class(), _account(), *_cluster_role(rules(scenario))]
    for space in plan.namespaces:
        made += namespace_objects(plan, space, quota=quota)
    return made


def namespace_objects(plan: Plan, space: str, *, quota: bool = True) -> list[Json]:
    """A namespace for tests, its limits on the server, and what the measuring identity may do there."""
    limits = [_quota(plan, space), *_limit_range(plan, space)] if quota else []
    return [_namespace(space, allow=True), *limits, *_role(rules(plan.scenario), space)]


def priority_class() -> Json:
    """The class of all pods of tests: everybody else goes first, and they push nobody out."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": _head(PRIORITY),
        "value": PRIORITY_VALUE,
        "preemptionPolicy": "Never",
        "description": "Pods of scale tests. They give way to all others and push nobody out.",
    }


def as_yaml(plan: Plan) -> str:
    """Both identities for `kubectl apply -f -`, with comments on what each part is for."""
    import yaml

    def dumped(made: list[Json]) -> str:
        return "".join("---\n" + yaml.safe_dump(one, sort_keys=False) for one in made)

    objects = setup_objects(plan)
    granted = [one for one in objects if one["kind"] in _GRANTS]
    rest = [one for one in objects if one not in granted]
    why = "".join(f"#   {_told(rule)}\n" for rule in rules(plan.scenario))
    spaces = " ".join(plan.namespaces)
    return (
        "# Identity 1, setup: an administrator applies all of this once. The test itself never uses that identity.\n"
        f"# Namespaces for tests ({spaces}) with limits on the server, and a class of low priority.\n"
        + dumped(rest)
        + "# Identity 2, measure: a service account. It is no administrator: those are never throttled.\n"
        f"# It may do this in {spaces} and nothing more:\n" + why + dumped(granted) + "# Its token, for a day:\n"
        f"#   kubectl create token {ACCOUNT} --namespace {HOME} --duration 24h\n"
    )


def next_steps(administrator: str) -> str:
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


def _told(rule: Rule) -> str:
    place = "whole cluster" if rule.cluster else "namespace"
    what = ", ".join(f"{one}.{rule.group}" if rule.group else one for one in rule.resources)
    named = f" ({', '.join(rule.names)} only)" if rule.names else ""
    return f"{place}: {'/'.join(rule.verbs)} {what}{named}: {rule.why}" + (" [optional]" if rule.optional else "")


def _head(name: str, namespace: str | None = None) -> Json:
    made: Json = {"name": name} | ({"namespace": namespace} if namespace else {})
    return made | {"labels": {names.MANAGED_BY: names.MANAGER}}


def _namespace(name: str, *, allow: bool = False) -> Json:
    head = _head(name)
    # The cluster itself refuses pods that reach for their node, whatever a template says.
    head["labels"] |= {"pod-security.kubernetes.io/enforce": "baseline"}
    if allow:
        head["labels"] |= {names.ALLOW: "true"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": head}


def _quota(plan: Plan, space: str) -> Json:
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
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _head(LIMITS, space), "spec": {"hard": hard}}


def limited(scenario: Scenario) -> bool:
    """Can containers be held to what the scenario asks for? Those of a template say for themselves what they need."""
    return not any(entry.kind == "Template" for entry in scenario.workloads)


def _limit_range(plan: Plan, space: str) -> list[Json]:
    entries = plan.scenario.workloads
    if not limited(plan.scenario):
        return []
    # Not of GPUs: the server takes a maximum for the default of containers that ask for none. The quota bounds those.
    most = {
        "cpu": str(math.ceil(max(entry.cpus for entry in entries))),
        "memory": str(max(entry.memory for entry in entries)),
    }
    spec = {"limits": [{"type": "Container", "max": most}]}
    return [{"apiVersion": "v1", "kind": "LimitRange", "metadata": _head(LIMITS, space), "spec": spec}]


def _account() -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _head(ACCOUNT, HOME)}


def _subject() -> list[Json]:
    return [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}]


def _role(found: tuple[Rule, ...], space: str) -> list[Json]:
    version = f"{_RBAC}/v1"
    rule_list = [rule.document() for rule in namespaced(found)]
    bound = {"apiGroup": _RBAC, "kind": "Role", "name": ROLE}
    return [
        {"apiVersion": version, "kind": "Role", "metadata": _head(ROLE, space), "rules": rule_list},
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": _head(ROLE, space),
            "roleRef": bound,
            "subjects": _subject(),
        },
    ]


def _cluster_role(found: tuple[Rule, ...]) -> list[Json]:
    version = f"{_RBAC}/v1"
    rule_list = [rule.document() for rule in of_cluster(found)]
    bound = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": ROLE}
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": _head(ROLE), "rules": rule_list},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": _head(ROLE),
            "roleRef": bound,
            "subjects": _subject(),
        },
    ]
