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
        made: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return made | ({"resourceNames": list(self.names)} if self.names else {})


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
    made = list_kinds(scenario, owned=True)
    found = [Rule(kind.group, (kind.plural,), MAKE_VERBS, f"the run's {kind.plural}") for kind in made]
    watched = [kind for kind in (PODS, JOBS) if kind not in made]
    found += [Rule(kind.group, (kind.plural,), READ_VERBS, f"watch {kind.plural} of the run") for kind in watched]
    found += [
        Rule(
            "",
            ("configmaps",),
            (*MAKE_VERBS, "patch"),
            "the run's record, and the heartbeat that shows the watch's lag",
        ),
        Rule("", ("events", "persistentvolumeclaims"), READ_VERBS, "times of scheduling, eviction and binding"),
        Rule("events.k8s.io", ("events",), READ_VERBS, "the same, in microseconds"),
    ]
    found += _list_operator_rules(scenario, made)
    found += [
        Rule("", ("namespaces",), ("get",), "is the namespace meant for tests?"),
        Rule("", ("resourcequotas", "limitranges"), ("list",), "are there limits on the server?"),
        Rule("", ("namespaces",), ("get",), "which cluster is it?", cluster=True, names=("kube-system",)),
        Rule("", ("nodes",), READ_VERBS, "its nodes: simulated or real, ready or not", cluster=True),
    ]
    priorities = sorted({entry.priority for entry in scenario.workloads if entry.priority is not None})
    if priorities:
        why = "do the pods give way to others?"
        found.append(Rule("scheduling.k8s.io", ("priorityclasses",), ("get",), why, True, True, tuple(priorities)))
    why = "the API server's own figures: queues, etcd, webhooks; not in the report without it"
    found.append(Rule("", (), ("get",), why, cluster=True, optional=True, paths=("/metrics",)))
    if others:
        why = "stop when pods of others are evicted or wait; off without it"
        found.append(Rule("", ("pods",), READ_VERBS, why, cluster=True, optional=True))
    return tuple(found)


def _list_operator_rules(scenario: Scenario, made: tuple[ApiResource, ...]) -> list[Rule]:
    """What others make of the workloads, to be watched: the scheduler, and the operator of Run:ai's kinds."""
    groups = () if POD_GROUPS in made else ("podgroups",)
    found, read = [], set[str]()
    for name in scenario.schedulers:
        recipe = find_recipe(name, scenario.recipes)
        wanted = [one for one in recipe.read_resources if one not in made]
        for group in sorted({one.group for one in wanted} - read):
            plurals = tuple(one.plural for one in wanted if one.group == group)
            found.append(Rule(group, plurals, READ_VERBS, f"times of {name}'s decisions"))
            read.add(group)
    if KUEUE_WORKLOADS.group in read and any(entry.kind == "Gang" for entry in scenario.workloads):
        why = "cleanup: deleted pods of a gang that has not ended wait for it, and stay without it"
        found.append(Rule(KUEUE_WORKLOADS.group, (KUEUE_WORKLOADS.plural,), ("delete",), why, optional=True))
    if groups and _KAI_GROUP not in read and has_runai_kind(made):
        found.append(Rule(_KAI_GROUP, groups, READ_VERBS, "times of its pod groups"))
    if has_runai_kind(made):
        jobs = [kind for kind in (RUNAI_JOBS, PYTORCH_JOBS) if kind not in made]
        found += [
            Rule(kind.group, (kind.plural,), READ_VERBS, "times of the jobs that its operator makes") for kind in jobs
        ]
    return found


def has_runai_kind(made: Iterable[ApiResource]) -> bool:
    """Is one of them a kind of Run:ai, of which its operator makes jobs?

    >>> has_runai_kind([PODS, ApiResource("run.ai", "v2alpha1", "trainingworkloads")]), has_runai_kind([PODS])
    (True, False)
    """
    return any(kind.group == RUNAI_JOBS.group and kind.plural != RUNAI_JOBS.plural for kind in made)


def select_namespace_rules(found: Iterable[Rule]) -> list[Rule]:
    """Those for the test's namespaces."""
    return [rule for rule in found if not rule.cluster]


def select_cluster_rules(found: Iterable[Rule]) -> list[Rule]:
    """Those for the whole cluster."""
    return [rule for rule in found if rule.cluster]
