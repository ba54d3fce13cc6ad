"""Who holds the work up? Plateaus: stages that went on at one rate while work waited for them.

A component that limits its own requests (every Kubernetes client does: the controller-manager 20 a second by default)
looks like a slow cluster. Its mark is a client whose requests stand at the set rate, second for second, as long as
work waits: the audit log shows whose. Without an audit log only the rate and how even it is are known. And pods that
wait for GPUs wait for nobody's speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.scaletest.facts import Component
from workbench.scaletest.flow import Floats, Passages, count
from workbench.scaletest.result_tables import LIMITS
from workbench.scaletest.room import Room, room
from workbench.scaletest.sustaining import interval

CLIENT_LIMIT, NO_ROOM, BOTTLENECK = "client limit", "no room", "bottleneck"
SCHEDULED = "pods scheduled"
# A stage is waited for when so many objects, and so many seconds of its own work, stand before it.
LEAST_BACKLOG = 10
LEAST_BACKLOG_S = 1.0
LEAST_S = 8
# Requests within this share of the set rate stand at it ...
NEAR = 0.07
# ... when so many of the seconds are not above it by more than that: what was saved up before is spent at the begin.
EVEN, ABOVE = 0.9, 1.15
# A plateau that was full for this share of it is one of the room's.
FULL = 0.5
# What the client must ask for so that the stage goes on: verb, resource, subresource.
_WORK = {
    "pods made": (("create", "pods", ""),),
    SCHEDULED: (("create", "pods", "binding"), ("create", "bindrequests", "")),
    "pods started": (("patch", "pods", "status"), ("update", "pods", "status")),
}
_WHO = {
    "pods made": "whatever makes the pods (the jobs' controller, an operator)",
    SCHEDULED: "the scheduler",
    "pods started": "the kubelets (simulated on simulated nodes)",
}
# It writes events by a client of their own, with a limit of its own, under one name.
_TWO_CLIENTS = frozenset({"kube-scheduler"})


@dataclass(frozen=True)
class _Plateau:
    begin_s: float
    end_s: float
    rate: tuple[float, float, float]
    backlog: float
    variation: float
    full: float  # share of it in which pods waited for room


def limits(
    found: Passages,
    requests: pl.DataFrame,
    components: Sequence[Component],
    gpus: pl.DataFrame | None = None,
    pods: pl.DataFrame | None = None,
    *,
    in_turn: bool = False,
) -> pl.DataFrame:
    """Each stage that work waited for: its rate meanwhile, and the client that was held to its limit, if one was.

    Parameters
    ----------
    found
        The passages of the run.
    requests
        Table REQUESTS; without rows nothing is said of clients.
    components
        The client limits that are set or the defaults.
    gpus, pods
        Tables GPUS and PODS; without them there was always room.
    in_turn
        Some pods were made only when others of their workload had ended: of making pods nothing is said then.

    Returns
    -------
    DataFrame
        Table LIMITS, longest plateau first. A stage counts when for 8 s and more at least ten objects, and a second's
        worth of its own rate, waited for it; rates are means over seconds with 95 % t intervals.

    Notes
    -----
    `client limit` is claimed only when the audit log shows the client that does the stage's work at a rate within 7 %
    of its configured limit, and in 9 of 10 seconds at most 15 % above it: all its requests together, or all but events,
    which some components write by a client of their own. `no room` is said of a plateau without 8 s on end in which no
    pod waited for room, when at least half of it was full. Does not show what the next limit is.
    """
    stages = {
        **({} if in_turn else {"pods made": (found.pods_due, found.created)}),
        SCHEDULED: (found.created, found.scheduled),
        "pods started": (found.scheduled, found.running),
    }
    where, always = room(gpus, pods), room(None)
    rows = []
    for step, (before, after) in stages.items():
        plateau = _plateau(before, after, found.end_s, where if step == SCHEDULED else always)
        if plateau is not None:
            rows.append(_row(step, plateau, requests, components, where))
    frame = LIMITS.frame(rows)
    return frame.sort(pl.col("end_s") - pl.col("begin_s"), descending=True)


def _plateau(before: Floats, after: Floats, end_s: float, where: Room) -> _Plateau | None:
    """The longest stretch of whole seconds in which work waited at the stage: with room, if there is one."""
    if not len(after) or end_s < LEAST_S:
        return None
    edges = np.arange(0.0, np.ceil(end_s) + 1.0)
    passed = np.diff(count(after, edges)).astype(float)
    waiting = (count(before, edges) - count(after, edges)).astype(float)
    busy = np.minimum(waiting[:-1], waiting[1:])
    typical = float(np.median(passed[passed > 0])) if (passed > 0).any() else 0.0
    held = busy >= max(LEAST_BACKLOG, LEAST_BACKLOG_S * typical)
    begin, end = _longest(held & (where.shares(edges) == 0))
    if end - begin < LEAST_S:
        begin, end = _longest(held)
    if end - begin < LEAST_S:
        return None
    rates = passed[begin:end]
    mean = float(rates.mean())
    return _Plateau(
        begin_s=float(edges[begin]),
        end_s=float(edges[end]),
        rate=interval(rates),
        backlog=float(np.median(busy[begin:end])),
        variation=float(rates.std(ddof=1) / mean) if mean else 0.0,
        full=where.share(float(edges[begin]), float(edges[end])),
    )


def _longest(held: Any) -> tuple[int, int]:
    """Begin and end of the longest run of true values."""
    padded = np.diff(np.concatenate([[0], held.astype(int), [0]]))
    begins, ends = np.flatnonzero(padded == 1), np.flatnonzero(padded == -1)
    if not len(begins):
        return 0, 0
    best = int(np.argmax(ends - begins))
    return int(begins[best]), int(ends[best])


def _row(
    step: str, plateau: _Plateau, requests: pl.DataFrame, components: Sequence[Component], where: Room
) -> dict[str, Any]:
    inside = requests.filter((pl.col("at_s") >= plateau.begin_s) & (pl.col("at_s") + 1 <= plateau.end_s))
    full = plateau.full >= FULL
    held = {} if full else _held(step, plateau, inside, components)
    rate, low, high = plateau.rate
    row: dict[str, Any] = {
        "step": step,
        "kind": NO_ROOM if full else CLIENT_LIMIT if held else BOTTLENECK,
        "rate_per_s": rate,
        "low_per_s": low,
        "high_per_s": high,
        "counted": "pods",
        "begin_s": plateau.begin_s,
        "end_s": plateau.end_s,
        "backlog": plateau.backlog,
        "variation": plateau.variation,
        "client": None,
        "requests_per_s": None,
        "requests_low_per_s": None,
        "requests_high_per_s": None,
        "configured_per_s": None,
    }
    cause = _of_room(plateau, where) if full else _of_client(held) if held else _of_stage(step, plateau, inside)
    return row | held | {"sentence": f"{_told(step, plateau)}: {cause}"}


def _held(step: str, plateau: _Plateau, inside: pl.DataFrame, components: Sequence[Component]) -> dict[str, Any]:
    """The client that does the stage's work, when its requests stand at its limit."""
    works = pl.any_horizontal(
        *(
            (pl.col("verb") == verb) & (pl.col("resource") == resource) & (pl.col("subresource") == sub)
            for verb, resource, sub in _WORK[step]
        )
    )
    workers = inside.filter(works).group_by("client").agg(pl.col("requests").sum())
    for client in workers.sort("requests", "client", descending=[True, False])["client"].head(3):
        component = component_of(client, components)
        if component is None or not component.client_qps:
            continue
        for rates in _rates(inside.filter(pl.col("client") == client), component, plateau):
            mean, low, high = interval(rates)
            if _stands(rates, component.client_qps):
                return {
                    "client": client,
                    "requests_per_s": mean,
                    "requests_low_per_s": low,
                    "requests_high_per_s": high,
                    "configured_per_s": component.client_qps,
                }
    return {}


def _rates(own: pl.DataFrame, component: Component, plateau: _Plateau) -> Iterator[Floats]:
    """Requests of a client in each second, as its limit may count them: all, or all but events."""
    seconds = max(1, int(plateau.end_s - plateau.begin_s) - 1)
    without = own.filter(pl.col("resource") != "events")
    for rows in (without,) if component.name in _TWO_CLIENTS else (own, without):
        by_second = rows.group_by("at_s").agg(pl.col("requests").sum())["requests"].to_numpy().astype(float)
        yield np.concatenate([by_second, np.zeros(max(0, seconds - len(by_second)))])


def _stands(rates: Floats, limit_per_s: float) -> bool:
    """At the limit, second for second; one request may fall into the next second."""
    even = rates <= max(ABOVE * limit_per_s, limit_per_s + 1)
    return bool(abs(rates.mean() / limit_per_s - 1) <= NEAR and even.mean() >= EVEN)


def component_of(client: str, components: Sequence[Component]) -> Component | None:
    """The component that a client of the audit log is part of.

    Examples
    --------
    >>> own = [Component(name="kube-controller-manager", client_qps=20)]
    >>> component_of("system:serviceaccount:kube-system:job-controller", own).name
    'kube-controller-manager'
    >>> component_of("kube-scheduler", own) is None
    True
    """
    by_name = {one.name: one for one in components}
    for name, component in by_name.items():
        if name in client:
            return component
    # Each controller has a service account, and with it a client and a limit, of its own.
    if client.startswith("system:serviceaccount:kube-system:"):
        return by_name.get("kube-controller-manager")
    return None


def _told(step: str, plateau: _Plateau) -> str:
    rate, low, high = plateau.rate
    for_s = plateau.end_s - plateau.begin_s
    return (
        f"{step} at {rate:.3g}/s [{max(0.0, low):.3g}, {high:.3g}] for {for_s:.0f} s, "
        f"while {plateau.backlog:,.0f} waited (median)"
    )


def _of_room(plateau: _Plateau, where: Room) -> str:
    taken, there = where.taken(plateau.begin_s, plateau.end_s)
    return (
        f"pods waited for room: {taken:,.6g} of {there:,.6g} GPUs were taken; "
        "this says nothing of the scheduler's speed."
    )


def _of_client(held: dict[str, Any]) -> str:
    return (
        f"{held['client']} made {held['requests_per_s']:.3g} requests/s "
        f"[{held['requests_low_per_s']:.3g}, {held['requests_high_per_s']:.3g}], which is its client limit of "
        f"{held['configured_per_s']:g}/s. Raise kube-api-qps of its component before you blame the cluster."
    )


def _of_stage(step: str, plateau: _Plateau, inside: pl.DataFrame) -> str:
    clients = (
        "No client that does this work stood at the limit known for it."
        if inside.height
        else "Without an audit log nobody can say whether a client limit held it."
    )
    some = f" In {100 * plateau.full:.0f} % of this time pods waited for room." if plateau.full else ""
    return f"{_WHO[step]} went no faster. {clients}{some}"
