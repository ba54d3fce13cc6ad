"""State of a cluster for its schedulers: nodes, workloads that run, wait or have ended, and queues; without secrets.

Only what placing a pod needs is kept: no commands, variables, images or annotations. Times are seconds from the moment
of the state, so that what lies before is negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from workbench.core import data_files, files
from workbench.core.schema import FiniteModel, validate_model

MAX_BYTES = 512 << 20
DEFAULT_SCHEDULER = "default-scheduler"
_NOUN = "cluster's state"
RECORD = "workbench scaletest record --context NAME --out STATE.json writes one"


class Taint(FiniteModel):
    """A taint of a node that keeps pods off which do not tolerate it."""

    key: str
    value: str = ""


class NodeState(FiniteModel):
    """A node. `offers`: Allocatable amounts, in cores, bytes and pieces. `is_open`: Ready and not cordoned."""

    name: str
    offers: dict[str, float]
    labels: dict[str, str] = Field(default={})
    taints: tuple[Taint, ...] = ()
    is_open: bool = True


class Requirement(FiniteModel):
    """A requirement on a node's label; `values` of Gt and Lt is one number."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Does a node with these labels meet it?

        >>> Requirement(key="zone", operator="NotIn", values=("a",)).is_met({})
        True
        >>> Requirement(key="slots", operator="Gt", values=("3",)).is_met({"slots": "4"})
        True
        """
        value = labels.get(self.key)
        if self.operator in ("Exists", "DoesNotExist"):
            return (value is not None) == (self.operator == "Exists")
        if self.operator in ("In", "NotIn"):
            return (value in self.values) == (self.operator == "In")
        try:
            number, limit = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return number > limit if self.operator == "Gt" else number < limit


class Toleration(FiniteModel):
    """What taints are tolerated: without a key all, without a value each of the key."""

    key: str = ""
    value: str | None = None

    def covers(self, taint: Taint) -> bool:
        """Is this taint tolerated?"""
        return (not self.key or self.key == taint.key) and (self.value is None or self.value == taint.value)


class NodeRules(FiniteModel):
    """Nodes that a pod may go to. `terms`: One of them must be met whole; none where there are no terms."""

    selector: dict[str, str] = Field(default={})
    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def allow(self, node: NodeState) -> bool:
        """May a pod go to this node, if it has room?"""
        return (
            node.is_open
            and all(node.labels.get(key) == value for key, value in self.selector.items())
            and (not self.terms or any(all(part.is_met(node.labels) for part in term) for term in self.terms))
            and all(any(known.covers(taint) for known in self.tolerations) for taint in node.taints)
        )


class PodState(FiniteModel):
    """A pod: what it requests, and where and when it ran. `scheduled_s`, `ended_s`: Null while it has not."""

    requests: dict[str, float]
    rules: NodeRules = NodeRules()
    node: str | None = None
    scheduled_s: float | None = None
    ended_s: float | None = None


class WorkloadState(FiniteModel):
    """A workload and its pods of one time.

    `family`: What runs equally long: the name without numbers, with the namespace. `is_gang`: All pods or none.
    `queue`: ClusterQueue of Kueue. `preempts`: May it take the place of pods of lower priority?
    `limit_s`: It is ended after so long. `is_endless`: A service: it does not end by itself.
    `unread`: Rules of its pods that are not simulated.
    """

    name: str
    family: str
    created_s: float
    pods: tuple[PodState, ...] = Field(min_length=1)
    is_gang: bool = False
    priority: int = 0
    preempts: bool = True
    scheduler: str = DEFAULT_SCHEDULER
    queue: str | None = None
    limit_s: float | None = None
    is_endless: bool = False
    unread: tuple[str, ...] = ()

    @property
    def started_s(self) -> float | None:
        """When its last pod had a node; null while one has none."""
        starts = [pod.scheduled_s for pod in self.pods]
        return None if None in starts else max(start for start in starts if start is not None)

    @property
    def ended_s(self) -> float | None:
        """When its last pod ended; null while one has not."""
        ends = [pod.ended_s for pod in self.pods]
        return None if None in ends else max(end for end in ends if end is not None)


class Quota(FiniteModel):
    """Quota of a queue for a resource of a flavour; `borrowing`, `lending`: null is no limit."""

    nominal: float
    borrowing: float | None = None
    lending: float | None = None


class FlavourQuotas(FiniteModel):
    """Quotas of a queue on the nodes of one flavour, by resource."""

    flavour: str
    quotas: dict[str, Quota]


class QueueState(FiniteModel):
    """A ClusterQueue of Kueue. `groups`: Flavours of each group of resources, in the order in which they are tried."""

    name: str
    cohort: str | None = None
    is_strict: bool = False
    groups: tuple[tuple[FlavourQuotas, ...], ...] = ()
    within: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaim: Literal["Never", "LowerPriority", "Any"] = "Never"
    is_open: bool = True


class PriorityClass(FiniteModel):
    """A PriorityClass."""

    value: int
    preempts: bool = True


class ClusterState(FiniteModel):
    """A cluster at one moment, or over the time before it.

    `span_s`: Time before the moment in which every workload was seen; 0 for a look at one moment.
    `moment`: When that was. `flavours`: Node labels of each flavour. `n_changed_nodes`: Nodes that came or went.
    """

    moment: str
    span_s: float = Field(default=0.0, ge=0)
    kubernetes_version: str = ""
    nodes: tuple[NodeState, ...]
    workloads: tuple[WorkloadState, ...] = ()
    queues: tuple[QueueState, ...] = ()
    local_queues: dict[str, str] = Field(default={})
    flavours: dict[str, dict[str, str]] = Field(default={})
    priority_classes: dict[str, PriorityClass] = Field(default={})
    default_priority: int = 0
    n_changed_nodes: int = Field(default=0, ge=0)
    notes: tuple[str, ...] = ()

    def list_present(self) -> list[WorkloadState]:
        """Workloads that have not ended."""
        return [workload for workload in self.workloads if workload.ended_s is None]


def read_state(path: str | Path) -> ClusterState:
    """Read a state from its file."""
    value = data_files.parse_json(
        data_files.read_text_file(path, noun=_NOUN, max_bytes=MAX_BYTES, do=RECORD), noun=_NOUN, where=path, do=RECORD
    )
    return validate_model(ClusterState, value, noun=_NOUN, where=path)


def write_state(state: ClusterState, path: str | Path) -> Path:
    """Write a state to a file."""
    return files.write_text(path, state.model_dump_json(exclude_defaults=True) + "\n")


def sum_requests(pods: Iterable[PodState]) -> dict[str, float]:
    """Requests of all pods together."""
    total: dict[str, float] = {}
    for pod in pods:
        for resource, amount in pod.requests.items():
            total[resource] = total.get(resource, 0.0) + amount
    return total
