"""Rights that the measuring identity needs, as RBAC rules with their reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from workbench.scaletest.cluster_api.api_discovery import (
    JOBS,
    KUEUE_WORKLOADS,
    POD_GROUPS,
    PODS,
    PYTORCH_JOBS,
    ApiResource,
)
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.scheduler_recipes import find_recipe
from workbench.scaletest.scenario.workload_objects import list_resources

MAKE_VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")
READ_VERBS = ("get", "list", "watch")
_KAI_GROUP = "scheduling.run.ai"


RUNAI_JOBS = ApiResource("run.ai", "v1", "runaijobs")


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
        """What the verbs are for."""
        return self.resources or self.paths

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a Role."""
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


def list_rules(scenario: Scenario, *, others: bool = True) -> tuple[Rule, ...]:
    """All that the measuring identity needs, and nothing more.

    `others`: With the right to see the pods of others, by which a run stops when it disturbs them.
    """
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
    if others:
        reason = "stop when pods of others are evicted or wait; off without it"
        rules.append(Rule("", ("pods",), READ_VERBS, reason, cluster=True, optional=True))
    return tuple(rules)


def _list_operator_rules(scenario: Scenario, kinds: tuple[ApiResource, ...]) -> list[Rule]:
    """What others make of the workloads, to be watched: the scheduler, and the operator of Run:ai's kinds."""
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
    """Those for the test's namespaces."""
    return [rule for rule in rules if not rule.cluster]


def select_cluster_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Those for the whole cluster."""
    return [rule for rule in rules if rule.cluster]
