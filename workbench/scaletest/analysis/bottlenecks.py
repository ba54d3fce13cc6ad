"""Bottlenecks: stages that ran at one rate while work waited for them, and the client limits behind them.

A component that limits its own requests looks like a slow cluster (every Kubernetes client does; the default of the
controller-manager is 20 per second). Its sign is a client whose requests stay at the configured rate, second for
second, while work waits; the audit log shows which client. Without an audit log only the rate and its variation are
known. Pods that wait for GPUs say nothing about any component's speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.scaletest.analysis.saturation import Saturation, find_saturation
from workbench.scaletest.analysis.sustainable_rate import mean_interval
from workbench.scaletest.analysis.throughput import Floats, StagePassages, count_passages
from workbench.scaletest.observation.run_conditions import Component
from workbench.scaletest.tables import LIMITS

CLIENT_LIMIT, NO_ROOM, BOTTLENECK = "client limit", "no room", "bottleneck"
SCHEDULED = "pods scheduled"
# Work waits for a stage if at least so many objects, and so many seconds of its own work, are queued.
MIN_BACKLOG = 10
MIN_BACKLOG_S = 1.0
MIN_PLATEAU_S = 8
# Requests within this share of the configured rate are at the limit ...
NEAR = 0.07
# ... if at least so many of the seconds are not above it by more than this factor (a burst at the start is allowed).
EVEN, ABOVE = 0.9, 1.15
# A plateau that was full for at least this share of its time is caused by missing room.
FULL = 0.5
# Requests that do the work of a stage: verb, resource, subresource.
_WORK = {
    "pods made": (("create", "pods", ""),),
    SCHEDULED: (("create", "pods", "binding"), ("create", "bindrequests", "")),
    "pods started": (("patch", "pods", "status"), ("update", "pods", "status")),
}
_WHO = {
    "pods made": "the controller that creates the pods (the Job controller or an operator)",
    SCHEDULED: "the scheduler",
    "pods started": "the kubelets (simulated on simulated nodes)",
}
# Components that write events with a second client (with its own limit) under the same name.
_TWO_CLIENTS = frozenset({"kube-scheduler"})


@dataclass(frozen=True)
class _Plateau:
    begin_s: float
    end_s: float
    rate: tuple[float, float, float]
    backlog: float
    variation: float
    full: float  # share of it in which pods waited for room


def find_bottlenecks(
    found: StagePassages,
    requests: pl.DataFrame,
    components: Sequence[Component],
    gpus: pl.DataFrame | None = None,
    pods: pl.DataFrame | None = None,
    *,
    in_turn: bool = False,
) -> pl.DataFrame:
    """Each stage that work waited for: its rate, and the client that was at its limit, if any.

    Parameters
    ----------
    found
        The passages of the run.
    requests
        Table REQUESTS; without rows no client is named.
    components
        Components with their client limits, configured or default.
    gpus, pods
        Tables GPUS and PODS; without them there is always room.
    in_turn
        Some pods are created only when others of their workload have ended; the stage `pods made` is left out then.

    Returns
    -------
    DataFrame
        Table LIMITS, longest plateau first. A stage counts if at least ten objects, and one second's worth of its own
        rate, waited for it for at least 8 s; rates are means over seconds with 95 % t intervals.

    Notes
    -----
    `client limit` requires that the audit log shows the client that does the stage's work at a rate within 7 % of its
    configured limit, and in 9 of 10 seconds at most 15 % above it: all its requests, or all but events, which some
    components write with a second client. `no room` is a plateau that was full at least half of its time, without 8 s
    in a row in which no pod waited for room. Does not show the limit that comes next.
    """
    stages = {
        **({} if in_turn else {"pods made": (found.pods_due, found.created)}),
        SCHEDULED: (found.created, found.scheduled),
        "pods started": (found.scheduled, found.running),
    }
    where, always = find_saturation(gpus, pods), find_saturation(None)
    rows = []
    for step, (before, after) in stages.items():
        plateau = _find_plateau(before, after, found.end_s, where if step == SCHEDULED else always)
        if plateau is not None:
            rows.append(_build_bottleneck_row(step, plateau, requests, components, where))
    frame = LIMITS.frame(rows)
    return frame.sort(pl.col("end_s") - pl.col("begin_s"), descending=True)


def _find_plateau(before: Floats, after: Floats, end_s: float, where: Saturation) -> _Plateau | None:
    """The longest run of whole seconds in which work waited at the stage; preferably one with room for pods."""
    if not len(after) or end_s < MIN_PLATEAU_S:
        return None
    edges = np.arange(0.0, np.ceil(end_s) + 1.0)
    passed = np.diff(count_passages(after, edges)).astype(float)
    waiting = (count_passages(before, edges) - count_passages(after, edges)).astype(float)
    busy = np.minimum(waiting[:-1], waiting[1:])
    typical = float(np.median(passed[passed > 0])) if (passed > 0).any() else 0.0
    held = busy >= max(MIN_BACKLOG, MIN_BACKLOG_S * typical)
    begin, end = _find_longest_stretch(held & (where.full_fractions(edges) == 0))
    if end - begin < MIN_PLATEAU_S:
        begin, end = _find_longest_stretch(held)
    if end - begin < MIN_PLATEAU_S:
        return None
    rates = passed[begin:end]
    mean = float(rates.mean())
    return _Plateau(
        begin_s=float(edges[begin]),
        end_s=float(edges[end]),
        rate=mean_interval(rates),
        backlog=float(np.median(busy[begin:end])),
        variation=float(rates.std(ddof=1) / mean) if mean else 0.0,
        full=where.full_fraction(float(edges[begin]), float(edges[end])),
    )


def _find_longest_stretch(held: Any) -> tuple[int, int]:
    """Begin and end of the longest run of true values."""
    padded = np.diff(np.concatenate([[0], held.astype(int), [0]]))
    begins, ends = np.flatnonzero(padded == 1), np.flatnonzero(padded == -1)
    if not len(begins):
        return 0, 0
    best = int(np.argmax(ends - begins))
    return int(begins[best]), int(ends[best])


def _build_bottleneck_row(
    step: str, plateau: _Plateau, requests: pl.DataFrame, components: Sequence[Component], where: Saturation
) -> dict[str, Any]:
    inside = requests.filter((pl.col("at_s") >= plateau.begin_s) & (pl.col("at_s") + 1 <= plateau.end_s))
    full = plateau.full >= FULL
    held = {} if full else _find_client_limit(step, plateau, inside, components)
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
    cause = (
        _describe_saturation(plateau, where)
        if full
        else _describe_client_limit(held)
        if held
        else _describe_stage(step, plateau, inside)
    )
    return row | held | {"sentence": f"{_describe_plateau(step, plateau)}: {cause}"}


def _find_client_limit(
    step: str, plateau: _Plateau, inside: pl.DataFrame, components: Sequence[Component]
) -> dict[str, Any]:
    """The client that does the stage's work, if its requests are at its limit."""
    works = pl.any_horizontal(
        *(
            (pl.col("verb") == verb) & (pl.col("resource") == resource) & (pl.col("subresource") == sub)
            for verb, resource, sub in _WORK[step]
        )
    )
    workers = inside.filter(works).group_by("client").agg(pl.col("requests").sum())
    for client in workers.sort("requests", "client", descending=[True, False])["client"].head(3):
        component = find_component(client, components)
        if component is None or not component.client_qps:
            continue
        for rates in _request_rates(inside.filter(pl.col("client") == client), component, plateau):
            mean, low, high = mean_interval(rates)
            if _stands_at_limit(rates, component.client_qps):
                return {
                    "client": client,
                    "requests_per_s": mean,
                    "requests_low_per_s": low,
                    "requests_high_per_s": high,
                    "configured_per_s": component.client_qps,
                }
    return {}


def _request_rates(own: pl.DataFrame, component: Component, plateau: _Plateau) -> Iterator[Floats]:
    """Requests of a client per second, as its limit may count them: all, or all but events."""
    seconds = max(1, int(plateau.end_s - plateau.begin_s) - 1)
    without = own.filter(pl.col("resource") != "events")
    for rows in (without,) if component.name in _TWO_CLIENTS else (own, without):
        by_second = rows.group_by("at_s").agg(pl.col("requests").sum())["requests"].to_numpy().astype(float)
        yield np.concatenate([by_second, np.zeros(max(0, seconds - len(by_second)))])


def _stands_at_limit(rates: Floats, limit_per_s: float) -> bool:
    """The rate stays at the limit second for second; one request may fall into the next second."""
    even = rates <= max(ABOVE * limit_per_s, limit_per_s + 1)
    return bool(abs(rates.mean() / limit_per_s - 1) <= NEAR and even.mean() >= EVEN)


def find_component(client: str, components: Sequence[Component]) -> Component | None:
    """The component that a client of the audit log is part of.

    Examples
    --------
    >>> own = [Component(name="kube-controller-manager", client_qps=20)]
    >>> find_component("system:serviceaccount:kube-system:job-controller", own).name
    'kube-controller-manager'
    >>> find_component("kube-scheduler", own) is None
    True
    """
    by_name = {one.name: one for one in components}
    for name, component in by_name.items():
        if name in client:
            return component
    # Each controller has its own service account, client and limit.
    if client.startswith("system:serviceaccount:kube-system:"):
        return by_name.get("kube-controller-manager")
    return None


def _describe_plateau(step: str, plateau: _Plateau) -> str:
    rate, low, high = plateau.rate
    for_s = plateau.end_s - plateau.begin_s
    return (
        f"{step} at {rate:.3g}/s [{max(0.0, low):.3g}, {high:.3g}] for {for_s:.0f} s, "
        f"while {plateau.backlog:,.0f} waited (median)"
    )


def _describe_saturation(plateau: _Plateau, where: Saturation) -> str:
    taken, there = where.median_gpus(plateau.begin_s, plateau.end_s)
    return (
        f"pods waited for room: {taken:,.6g} of {there:,.6g} GPUs were taken; "
        "this says nothing about the scheduler's speed."
    )


def _describe_client_limit(held: dict[str, Any]) -> str:
    return (
        f"{held['client']} made {held['requests_per_s']:.3g} requests/s "
        f"[{held['requests_low_per_s']:.3g}, {held['requests_high_per_s']:.3g}], which is its client limit of "
        f"{held['configured_per_s']:g}/s. Raise kube-api-qps of this component before you judge the cluster."
    )


def _describe_stage(step: str, plateau: _Plateau, inside: pl.DataFrame) -> str:
    clients = (
        "No client that does this work was at its known limit."
        if inside.height
        else "Without an audit log the cause may be a client limit."
    )
    some = f" Pods waited for room in {100 * plateau.full:.0f} % of this time." if plateau.full else ""
    return f"{_WHO[step]} was no faster. {clients}{some}"
