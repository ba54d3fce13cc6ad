"""What is to be watched for a run: one watch per resource and namespace, of what the cluster has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.scaletest import names
from workbench.scaletest.connection import Connection
from workbench.scaletest.times import NS, stamp
from workbench.scaletest.watching import discovery, transitions
from workbench.scaletest.watching.discovery import Kind
from workbench.scaletest.watching.known import Ledger, Scope, Sight
from workbench.scaletest.watching.objects import Decoding, Event, Pod, Thing
from workbench.scaletest.watching.transitions import Step
from workbench.scaletest.watching.watch import Sink, Watched

STEPS: dict[str, Callable[[Any], Iterator[Step]]] = {
    "pod": transitions.of_pod,
    "job": transitions.of_job,
    "workload": transitions.of_workload,
    "podgroup": transitions.of_workload,
    "bindrequest": transitions.of_bind_request,
    "pvc": transitions.of_claim,
}
# Not every cluster lets everybody see these, and a run is good without.
OPTIONAL = frozenset({"podgroup", "bindrequest", "pvc", "event"})
MARGIN_NS = 10 * NS  # the clocks may be apart by that
_OWN_DECODERS: dict[str, type[Any]] = {"pod": Pod, "event": Event}


@dataclass(frozen=True)
class Options:
    """What a sampler is asked to do.

    Attributes
    ----------
    kinds
        The workloads' own kinds; jobs and pods are always watched.
    by_namespace
        Pods, jobs and workloads of the namespaces whatever their labels: for operators that do not copy them.
    foreign_pods
        Also count what happens to pods of others, in the whole cluster.
    """

    run: str
    namespaces: tuple[str, ...]
    kinds: tuple[Kind, ...] = ()
    by_namespace: bool = False
    foreign_pods: bool = False
    audit_log: Path | None = None


@dataclass(frozen=True)
class Choice:
    """A resource that the cluster has, and the name of its kind."""

    resource: str
    kind: Kind
    name: str
    labelled: bool  # selected by the run's labels


async def choices(api: Connection, options: Options) -> list[Choice]:
    """What there is of it.

    Raises
    ------
    ConfigError
        A workload's kind is none of the cluster's.
    ApiError, AwayError
        The cluster does not say.
    """
    labelled = not options.by_namespace
    found = [
        Choice("pod", discovery.PODS, "Pod", labelled),
        Choice("job", discovery.JOBS, "Job", labelled),
        Choice("pvc", discovery.CLAIMS, "PersistentVolumeClaim", False),
        Choice("event", discovery.EVENTS, "Event", False),
    ]
    for kind in options.kinds:
        if kind in (discovery.PODS, discovery.JOBS):
            continue
        name = await discovery.name_of(api, kind)
        if name is None:
            raise ConfigError(
                "the cluster has no such resource",
                where="--kind",
                found=str(kind),
                do="install its CRD, or correct group, version and plural name",
            )
        found.append(Choice("workload", kind, name, labelled))
    for group, plural, resource in discovery.made_by_others(options.kinds):
        there = await discovery.of_group(api, group, plural)
        if there is not None:
            # Controllers do not copy our labels to what they make.
            found.append(Choice(resource, *there, False))
    return found


def watched(choice: Choice, namespace: str, run: str) -> Watched:
    """The watch of a choice in a namespace."""
    return Watched(
        Scope(choice.resource, choice.name, namespace),
        choice.kind.path(namespace),
        Decoding(_OWN_DECODERS.get(choice.resource, Thing)),
        labels=names.of_run(run) if choice.labelled else "",
    )


def sink(ledger: Ledger, scope: Scope, since_ns: int = 0) -> Sink:
    """Objects of one scope, written by their steps.

    Parameters
    ----------
    since_ns
        When the run, or this sampler, began: older events are of another run, unless they are about an object of this.
    """
    if scope.resource == "event":
        return _event_sink(ledger, since_ns - MARGIN_NS)
    steps = STEPS[scope.resource]
    return Sink(
        put=lambda thing, sight: ledger.see(scope, thing, steps(thing), sight),
        gone=lambda thing, sight: ledger.gone(scope, thing, steps(thing), sight),
        missing=lambda present, sight: ledger.missing(scope, present, sight),
    )


def _event_sink(ledger: Ledger, since_ns: int) -> Sink:
    def put(event: Event, sight: Sight) -> int:
        # A list also holds those of earlier runs: events live for an hour.
        return 0 if sight.gap and not (_known(event) or _recent(event)) else ledger.event(event, sight)

    def _known(event: Event) -> bool:
        return event.regarding is not None and ledger.is_known(event.regarding.uid)

    def _recent(event: Event) -> bool:
        made = stamp(event.metadata.creationTimestamp)
        return made is not None and made.ns >= since_ns

    # Events expire: that one is deleted means nothing.
    return Sink(put)
