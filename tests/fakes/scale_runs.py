"""Simulated scale tests with known truth: queues in a row, written as the tables of a run. No cluster was there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import (
    BEATS,
    GAPS,
    LOAD,
    NODES,
    PRESSURE,
    REQUESTS,
    SCHEDULE,
    SKEW,
    SUBMISSIONS,
    TRANSITIONS,
)

RUN = "st-00000001"
Passage = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Plan:
    """What a simulated cluster is like; rates in pods a second, times in seconds."""

    due_s: Any
    steps: Any = None
    pods: int = 1
    gpus: float = 1.0
    gang: bool = False
    made_per_s: float = 1_000.0
    scheduled_per_s: float = 1_000.0
    jitter: float = 0.0
    latency_s: float = 0.002
    skew_s: float = 0.0
    lost: tuple[int, ...] = ()  # workloads whose pods are never bound
    unseen: tuple[int, ...] = ()  # workloads that no watch saw
    seed: int = 1
    nodes: int = 10
    lifetime_s: float | None = None  # how long pods run; for ever without it
    away_s: tuple[float, float] | None = None  # no watch between these times: all is listed anew at the end
    components: tuple[run_records.Component, ...] = ()
    kind: str = "Job"
    # When pods that came at these times are through, infinite for never; instead of a queue at a rate.
    make: Passage | None = None
    bind: Passage | None = None
    # A queue that lets workloads go, and by what it is seen: suspended jobs, gated pods, or Kueue's objects of either.
    release: Passage | None = None
    held_by: str = "suspended"
    start: Passage | None = None
    accept: Passage | None = None
    throttled_s: Any = None  # of each workload, how long it waited because of 429s
    unschedulable: tuple[int, ...] = ()  # pods that the scheduler once found no node for
    host_busy: float = 0.3
    booked: tuple[float | None, float | None, float | None] = (None, None, None)  # client, side, others
    until_s: float = 0.0  # it was watched until here
    more: dict[str, Any] = field(default_factory=dict)


def delayed(low_s: float, high_s: float | None = None) -> Passage:
    """Each is through after a time of its own, however many come."""

    def passage(came: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return came + random.uniform(low_s, low_s if high_s is None else high_s, len(came))

    return passage


def served(per_s: float, delay_s: float = 0.0, jitter: float = 0.0) -> Passage:
    """One after the other at a rate, each after a delay."""

    def passage(came: np.ndarray, random: np.random.Generator) -> np.ndarray:
        order = np.argsort(came, kind="stable")
        done = np.empty(len(came))
        done[order] = queue(came[order] + delay_s, per_s, jitter, random)
        return done

    return passage


def ramp_of(rates: list[float], each_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Due times and step numbers of constant rates, one after the other."""
    due, steps, begin = [], [], 0.0
    for number, rate in enumerate(rates):
        count = round(rate * each_s)
        due.append(begin + np.arange(count) / rate)
        steps.append(np.full(count, number))
        begin += each_s
    return np.concatenate(due), np.concatenate(steps)


def queue(arrivals: np.ndarray, per_s: float, jitter: float, random: np.random.Generator) -> np.ndarray:
    """When a server that takes one after the other is done with each."""
    services = np.full(len(arrivals), 1 / per_s)
    if jitter:
        services = services * random.lognormal(-jitter * jitter / 2, jitter, len(arrivals))
    done, last = np.empty(len(arrivals)), -np.inf
    for place, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        last = max(arrival, last) + service
        done[place] = last
    return done


def tables(plan: Plan) -> dict[str, pl.DataFrame]:
    """The raw tables of the run, by name."""
    random = np.random.default_rng(plan.seed)
    due = np.asarray(plan.due_s, dtype=float)
    n = len(due)
    names = [f"{RUN}-{index:07d}" for index in range(n)]
    sent = due + 0.0005
    acked = sent + plan.latency_s if plan.accept is None else plan.accept(sent, random)
    make, bind = (served(rate, jitter=plan.jitter) for rate in (plan.made_per_s, plan.scheduled_per_s))
    freed = acked if plan.release is None else plan.release(acked, random)
    gated = plan.release is not None and plan.kind == "Pod"
    made = (plan.make or make)(np.repeat(acked if gated else freed, plan.pods), random)
    bound = (plan.bind or bind)(np.maximum(made, np.repeat(freed, plan.pods)), random)
    running = (plan.start or delayed(0.01))(bound, random)
    throttled_s = np.zeros(n) if plan.throttled_s is None else np.asarray(plan.throttled_s, dtype=float)
    schedule = _schedule(plan, due, names)
    submissions = SUBMISSIONS.frame(
        {
            "index": list(range(n)),
            "name": names,
            "due_s": due.tolist(),
            "sent_s": sent.tolist(),
            "acked_s": acked.tolist(),
            "created_s": np.floor(acked + plan.skew_s).tolist(),
            "status": ["created"] * n,
            "http_status": [201] * n,
            "attempts": (1 + np.ceil(throttled_s)).astype(int).tolist(),
            "throttled": np.ceil(throttled_s).astype(int).tolist(),
            "throttled_s": throttled_s.tolist(),
            "uid": [f"job-{index}" for index in range(n)],
            "reason": [None] * n,
        }
    )
    workload = np.repeat(np.arange(n), plan.pods)
    seen = ~np.isin(workload, plan.unseen) & np.isfinite(made)
    scheduled = seen & ~np.isin(workload, plan.lost) & np.isfinite(bound)
    started = scheduled & np.isfinite(running)
    unfit = seen & np.isin(np.arange(len(made)), plan.unschedulable)
    jobs = np.setdiff1d(np.arange(n), plan.unseen)
    parts = [
        _rows("job", "created", names, jobs, [f"job-{one}" for one in jobs], None, acked[jobs], plan.skew_s, 1.0),
        _pod_rows("created", names, workload, seen, made, plan.skew_s, 1.0),
        _pod_rows("scheduled", names, workload, scheduled, bound, plan.skew_s, 1e-6, nodes=plan.nodes),
        _pod_rows("running", names, workload, started, running, plan.skew_s, 1.0),
        _pod_rows("unschedulable", names, workload, unfit, made, plan.skew_s, 1.0),
    ]
    parts += _held_rows(plan, names, acked, freed)
    if plan.lifetime_s is not None:
        ended = running + plan.lifetime_s
        parts.append(_pod_rows("succeeded", names, workload, started, ended, plan.skew_s, 1.0))
    transitions = TRANSITIONS.check(_watched(pl.concat(parts), plan.away_s))
    end = max(float(times[np.isfinite(times)].max(initial=0.0)) for times in (due, acked, made, bound, running))
    end = max(end, plan.until_s)
    return {"schedule": schedule, "submissions": submissions, "transitions": transitions, **_health(plan, end)}


def _held_rows(plan: Plan, names: list[str], acked: np.ndarray, freed: np.ndarray) -> list[pl.DataFrame]:
    """Suspension or gates at first; then the end of it, on the object that says so."""
    if plan.release is None:
        return []
    all_of, done = np.arange(len(acked)), np.flatnonzero(np.isfinite(freed))
    kind = "pod" if plan.kind == "Pod" else "job"
    uids = [f"{kind}-{one}" for one in all_of]
    first = "gated" if kind == "pod" else "suspended"
    owners = [f"job-{one}" for one in all_of] if kind == "pod" else None
    rows = [_rows(kind, first, names, all_of, uids, owners, acked, plan.skew_s, 1.0)]
    if plan.held_by == "kueue":
        own = [uids[one] for one in done]
        groups = [f"queued-{one}" for one in done]
        told = _rows("podgroup", "admitted", names, done, groups, own, freed[done], plan.skew_s, 1.0)
        rows.append(told.with_columns(workload=pl.lit(None, dtype=pl.String)))
    elif kind == "job":
        rows.append(_rows("job", "resumed", names, done, [uids[one] for one in done], None, freed[done], 0.0, 1.0))
    return rows


def _watched(transitions: pl.DataFrame, away_s: tuple[float, float] | None) -> pl.DataFrame:
    """What happened while no watch was there is found by the list at the end of that time."""
    if away_s is None:
        return transitions
    inside = (pl.col("arrival_s") >= away_s[0]) & (pl.col("arrival_s") < away_s[1])
    arrival = pl.when(inside).then(away_s[1]).otherwise("arrival_s")
    return transitions.with_columns(arrival.alias("arrival_s"), inside.alias("gap"))


def _schedule(plan: Plan, due: np.ndarray, names: list[str]) -> pl.DataFrame:
    n = len(due)
    steps = np.zeros(n, dtype=int) if plan.steps is None else np.asarray(plan.steps)
    constant: dict[str, Any] = {
        "entry": "job",
        "kind": plan.kind,
        "namespace": "workbench-scaletest",
        "rate_per_s": None,
        "pods": plan.pods,
        "gpus_per_pod": plan.gpus,
        "cpus_per_pod": 0.05,
        "memory_bytes_per_pod": 1 << 20,
        "gang": plan.gang,
        "priority": None,
        "queue": None,
        "lifetime_s": plan.lifetime_s,
        "delete_after_s": None,
        "object_bytes": 900,
        "spec_sha256": "0" * 64,
    }
    columns = {name: [value] * n for name, value in constant.items()}
    own = {"index": list(range(n)), "name": names, "due_s": due.tolist(), "step": steps.tolist()}
    return SCHEDULE.frame(columns | own)


def _pod_rows(
    transition: str,
    names: list[str],
    workload: np.ndarray,
    shown: np.ndarray,
    times: np.ndarray,
    skew_s: float,
    resolution_s: float,
    nodes: int = 0,
) -> pl.DataFrame:
    which = np.flatnonzero(shown)
    uids = [f"pod-{one}" for one in which]
    owners = [f"job-{one}" for one in workload[which]]
    return _rows("pod", transition, names, workload[which], uids, owners, times[which], skew_s, resolution_s, nodes)


def _rows(
    resource: str,
    transition: str,
    names: list[str],
    workload: np.ndarray,
    uids: list[str],
    owners: list[str] | None,
    times: np.ndarray,
    skew_s: float,
    resolution_s: float,
    nodes: int = 0,
) -> pl.DataFrame:
    n = len(uids)
    server = np.floor((times + skew_s) / resolution_s) * resolution_s
    own = [names[one] for one in workload]
    return TRANSITIONS.frame(
        {
            "resource": [resource] * n,
            "transition": [transition] * n,
            "uid": uids,
            "name": own if owners is None else [f"{name}-{uid}" for name, uid in zip(own, uids, strict=True)],
            "namespace": ["workbench-scaletest"] * n,
            "workload": own,
            "owner": owners or [None] * n,
            "owner_name": [None] * n,
            "arrival_s": (times + 0.001).tolist(),
            "server_s": server.tolist(),
            "resolution_s": [resolution_s] * n,
            "session": [0] * n,
            "gap": [False] * n,
            "node": [f"sim-{place % nodes}" for place in range(n)] if nodes else [None] * n,
            "reason": [None] * n,
            "asks": [None] * n,
        }
    )


def _health(plan: Plan, end: float) -> dict[str, pl.DataFrame]:
    seconds = [float(second) for second in range(int(end) + 1)]
    n = len(seconds)
    half = 0.001
    node = {"ready": True, "simulated": True, "gpus": 8, "cpus": 64.0, "memory_bytes": 1 << 39, "pods": 250}
    return {
        "gaps": GAPS.frame([] if plan.away_s is None else [_gap(*plan.away_s)]),
        "beats": BEATS.frame({"sent_s": seconds, "ack_s": [0.002] * n, "lag_s": [0.0005] * n}),
        "skew": SKEW.frame([{"at_s": 0.0, "low_s": plan.skew_s - half, "high_s": plan.skew_s + half, "probes": 200}]),
        "load": LOAD.frame(
            {
                "at_s": seconds,
                "sampler_cpu_s": [0.1] * n,
                "sampler_rss_bytes": [1 << 27] * n,
                "host_busy": [plan.host_busy] * n,
                **{name: [share] * n for name, share in zip(("client", "side", "others"), plan.booked, strict=True)},
            }
        ),
        "nodes": NODES.frame([{"name": f"sim-{one}"} | node for one in range(plan.nodes)]),
        "requests": plan.more.get("requests", REQUESTS.frame([])),
        "pressure": plan.more.get("pressure", PRESSURE.frame([])),
    }


def _gap(begin_s: float, end_s: float) -> dict[str, Any]:
    return {"resource": "pod", "from_s": begin_s, "to_s": end_s, "reason": "expired", "relisted": True, "recovered": 1}


def record_of(plan: Plan, **more: Any) -> run_records.RunConditions:
    """The record of the simulated test."""
    given: dict[str, Any] = {
        "run": RUN,
        "scenario_name": "simulated",
        "scenario_sha256": "0" * 64,
        "created_at": "2026-11-22T00:00:00+00:00",
        "context": "simulated",
        "fingerprint": "00000000",
        "server_sha256": "0" * 64,
        "server_version": "simulated",
        "namespaces": ("workbench-scaletest",),
        "schedulers": ("default-scheduler",),
        "simulated_nodes": True,
        "components": plan.components,
    }
    return run_records.RunConditions(**(given | more))


def analysis(plan: Plan, folder: Any, **more: Any) -> Analysis:
    """The run as a folder, and its analysis."""
    for name, frame in tables(plan).items():
        _declared(name).write(frame, folder / "tables")
    test = record_of(plan, **more)
    run_records.write_conditions(folder, test)
    return Analysis(folder, test)


def _declared(name: str) -> Any:
    from workbench.scaletest import tables as declared

    return getattr(declared, name.upper())
