"""What the measuring identity must be allowed, and why; as questions to the cluster, and as rules of a Role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from workbench.scaletest.planning.objects import plural_of
from workbench.scaletest.scenario import KAI_SCHEDULER, Scenario

MAKE = ("create", "get", "list", "watch", "delete", "deletecollection")
LOOK = ("get", "list", "watch")
_KAI_GROUP = "scheduling.run.ai"


@dataclass(frozen=True, order=True)
class Kind:
    """A resource that a run makes objects of; `version` as in its path."""

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """As it stands in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return "/".join(filter(None, (self.group, self.version, self.plural)))


PODS, JOBS, CONFIG_MAPS = Kind("", "v1", "pods"), Kind("batch", "v1", "jobs"), Kind("", "v1", "configmaps")
RUNAI_JOBS = Kind("run.ai", "v1", "runaijobs")
PYTORCH_JOBS = Kind("kubeflow.org", "v1", "pytorchjobs")
POD_GROUPS = Kind(_KAI_GROUP, "v2alpha2", "podgroups")


@dataclass(frozen=True)
class Rule:
    """Verbs on resources of one group; in the test's namespaces, or in the whole cluster.

    Attributes
    ----------
    why
        What it is needed for.
    optional
        A run is possible without; what is lost then is in `why`.
    names
        Only these objects.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    cluster: bool = False
    optional: bool = False
    names: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As it stands in a Role."""
        made: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return made | ({"resourceNames": list(self.names)} if self.names else {})


def kinds(scenario: Scenario) -> tuple[Kind, ...]:
    """Resources that the scenario's workloads are made of, in any of its schedulers."""
    made: set[Kind] = set()
    for entry in scenario.workloads:
        if entry.kind in ("Pod", "Gang"):
            made.add(PODS)
        elif entry.kind == "Job":
            made.add(JOBS)
        elif entry.kind == "PyTorchJob":
            made.add(PYTORCH_JOBS)
        else:
            template = entry.template or {}
            group, _, version = str(template["apiVersion"]).rpartition("/")
            made.add(Kind(group, version, plural_of(str(template["kind"]), entry.plural)))
        if entry.kind == "Gang" and entry.pod_group and KAI_SCHEDULER in scenario.schedulers:
            made.add(POD_GROUPS)
    return tuple(sorted(made))


def rules(scenario: Scenario, *, others: bool = True) -> tuple[Rule, ...]:
    """All that the measuring identity needs, and nothing more.

    Parameters
    ----------
    others
        With the right to see the pods of others, by which a run stops when it disturbs them.
    """
    made = kinds(scenario)
    found = [Rule(kind.group, (kind.plural,), MAKE, f"the run's {kind.plural}") for kind in made]
    watched = [kind for kind in (PODS, JOBS) if kind not in made]
    found += [Rule(kind.group, (kind.plural,), LOOK, f"watch {kind.plural} of the run") for kind in watched]
    found += [
        Rule("", ("configmaps",), (*MAKE, "patch"), "the run's record, and the heartbeat that shows the watch's lag"),
        Rule("", ("events", "persistentvolumeclaims"), LOOK, "times of scheduling, eviction and binding"),
        Rule("events.k8s.io", ("events",), LOOK, "the same, in microseconds"),
    ]
    found += _of_operators(scenario, made)
    found += [
        Rule("", ("namespaces",), ("get",), "is the namespace meant for tests?"),
        Rule("", ("resourcequotas", "limitranges"), ("list",), "are there limits on the server?"),
        Rule("", ("namespaces",), ("get",), "which cluster is it?", cluster=True, names=("kube-system",)),
        Rule("", ("nodes",), LOOK, "its nodes: simulated or real, ready or not", cluster=True),
    ]
    priorities = sorted({entry.priority for entry in scenario.workloads if entry.priority is not None})
    if priorities:
        why = "do the pods give way to others?"
        found.append(Rule("scheduling.k8s.io", ("priorityclasses",), ("get",), why, True, True, tuple(priorities)))
    if others:
        why = "stop when pods of others are evicted or wait; off without it"
        found.append(Rule("", ("pods",), LOOK, why, cluster=True, optional=True))
    return tuple(found)


def _of_operators(scenario: Scenario, made: tuple[Kind, ...]) -> list[Rule]:
    """What others make of the workloads, to be watched: the scheduler, and the operator of Run:ai's kinds."""
    groups = () if POD_GROUPS in made else ("podgroups",)
    found = []
    if KAI_SCHEDULER in scenario.schedulers:
        found.append(Rule(_KAI_GROUP, ("bindrequests", *groups), LOOK, "times of KAI's decisions"))
    elif groups and of_runai(made):
        found.append(Rule(_KAI_GROUP, groups, LOOK, "times of its pod groups"))
    if of_runai(made):
        jobs = [kind for kind in (RUNAI_JOBS, PYTORCH_JOBS) if kind not in made]
        found += [Rule(kind.group, (kind.plural,), LOOK, "times of the jobs that its operator makes") for kind in jobs]
    return found


def of_runai(made: Iterable[Kind]) -> bool:
    """Is one of them a kind of Run:ai, of which its operator makes jobs?

    Examples
    --------
    >>> of_runai([PODS, Kind("run.ai", "v2alpha1", "trainingworkloads")]), of_runai([PODS])
    (True, False)
    """
    return any(kind.group == RUNAI_JOBS.group and kind.plural != RUNAI_JOBS.plural for kind in made)


def namespaced(found: Iterable[Rule]) -> list[Rule]:
    """Those for the test's namespaces."""
    return [rule for rule in found if not rule.cluster]


def of_cluster(found: Iterable[Rule]) -> list[Rule]:
    """Those for the whole cluster."""
    return [rule for rule in found if rule.cluster]
