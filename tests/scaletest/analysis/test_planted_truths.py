"""Planted truths in simulated records: for each what the report must say, and whom it must not blame."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Passage, Plan, analysis, delayed, queue, ramp_of, served
from workbench.scaletest.analysis.bottlenecks import (
    ANSWERED,
    BOTTLENECK,
    CLIENT_LIMIT,
    DELAY,
    NO_ROOM,
    QUEUE,
    QUOTA,
    SLOW_CALLS,
    STOPPED,
)
from workbench.scaletest.observation.component_metrics import ETCD, LIMITER, WEBHOOK
from workbench.scaletest.observation.run_records import Component
from workbench.scaletest.tables import BEATS, NODE_CHANGES, PRESSURE, REQUESTS, SUBMISSIONS, TRANSITIONS

RELEASED, MADE, SCHEDULED, STARTED = "workloads released", "pods made", "pods scheduled", "pods started"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
RAMP_DUE, RAMP_STEPS = ramp_of([10, 20, 40, 80], 15)


def steady(n: int, rate: float) -> np.ndarray:
    return np.arange(n) / rate


def of(n: int, rate: float, **more: Any) -> Plan:
    """So many at a steady rate, with room for all."""
    return Plan(steady(n, rate), **{"nodes": 200} | more)


def poisson(n: int, rate: float) -> np.ndarray:
    return np.cumsum(np.random.default_rng(3).exponential(1 / rate, n))


def until(moment: float) -> Passage:
    """What comes later is never through."""
    return lambda came, _: np.where(came < moment, came + 0.01, np.inf)


def changing(first_s: float, then_s: float) -> Passage:
    """A delay that is another one from 30 s on."""
    return lambda came, _: came + np.where(came < 30, first_s, then_s)


def between(begin: float, end: float) -> Passage:
    """What comes between these times is through at the end, all together."""
    return lambda came, _: np.where((came >= begin) & (came < end), end + (came - begin) / 100, came + 0.01)


def room_for(pods: int, lives_s: float) -> Passage:
    """As many at a time; the next when one of them has ended."""

    def passage(came: np.ndarray, random: np.random.Generator) -> np.ndarray:
        done = came + 0.003
        for place in range(pods, len(done)):
            done[place] = max(done[place], done[place - pods] + lives_s)
        return done

    return passage


def never(came: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.full(len(came), np.inf)


@dataclass(frozen=True)
class Truth:
    """A planted run: kinds of findings by stage (no others), and what the answer must and must not hold."""

    plan: Plan
    kinds: dict[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    never_says: tuple[str, ...] = ()
    valid: bool = True


HOOK = "slow.example.org"


def creations(per_s: int, took_s: float) -> pl.DataFrame:
    """An audit log of the controller's pods."""
    one = {"client": CONTROLLER, "verb": "create", "resource": "pods", "subresource": "", "code": 201}
    took = {"duration_p50_s": took_s, "duration_p99_s": 2 * took_s}
    return REQUESTS.frame([one | took | {"at_s": float(at), "requests": per_s} for at in range(60)])


def looks(
    measure: str, subject: str, *, n: int, mean_s: float, component: str = "kube-apiserver", count: int = 12
) -> pl.DataFrame:
    """A component's own figures, every five seconds."""
    row = {"over_s": 5.0, "component": component, "measure": measure, "subject": subject, "n": n, "mean_s": mean_s}
    rows = [row | {"at_s": 5.0 * place, "p99_s": 2 * mean_s, "level": None} for place in range(1, count + 1)]
    return PRESSURE.frame(rows)


def waiting(component: str, n: int, mean_s: float) -> dict[str, pl.DataFrame]:
    """Requests that waited in a component's own client."""
    return {"pressure": looks(LIMITER, "", n=n, mean_s=mean_s, component=component)}


def silent(stage: str, did: str | None = None, more: str = "", **passage: Passage) -> Truth:
    """Of 100 pods not one came through a stage."""
    said = f"No rate: 0 of 100 {f'pods {did}' if did else stage}; the last one that did: never{more}"
    plan = of(100, 5, until_s=60, **passage)
    return Truth(plan, {stage: STOPPED}, (said,), ("sustains", "at least"), valid=False)


LIMITED = {"requests": creations(20, 0.002)}
SLOW_CREATION = {"requests": creations(25, 0.2)}
HOOK_OF_200_MS = {"pressure": looks(WEBHOOK, HOOK, n=125, mean_s=0.198)}
HELD = (Component(name="kube-controller-manager", client_qps=20, client_burst=30),)
SLOW_ETCD = {"requests": creations(25, 0.16), "pressure": looks(ETCD, "create", n=125, mean_s=0.15)}
AT_LEAST_10 = ("at least 10 pods/s",)
BY_QUOTA = ({RELEASED: QUOTA}, ("bound by the quota of its queue (5 pods/s)",), ("controller", "the scheduler"))
WIDE = of(800, 50)
LATE = of(300, 10)

TRUTHS = {
    # Delays: nobody is blamed, whatever the plan is like.
    "constant start delay": Truth(replace(WIDE, start=delayed(3.0)), {STARTED: DELAY}, ("at least 50 pods/s",)),
    "delays that vary widely": Truth(replace(WIDE, start=delayed(0.5, 20)), {STARTED: DELAY}),
    "a delay that drifts": Truth(of(600, 20, start=lambda came, _: came + 2 + came / 20), {STARTED: DELAY}),
    "a delay that waves": Truth(of(600, 20, start=lambda came, _: came + 3 + np.sin(came / 3)), {STARTED: DELAY}),
    "a delay under a ramp": Truth(Plan(RAMP_DUE, RAMP_STEPS, start=delayed(3), nodes=400), {STARTED: DELAY}),
    "a delay after a burst": Truth(Plan(np.zeros(400), start=delayed(5, 15), nodes=200), {STARTED: DELAY}),
    "a delay of the scheduler": Truth(replace(WIDE, kind="Pod", bind=delayed(2)), {SCHEDULED: DELAY}),
    "a delay and a gap of the watch": Truth(
        of(600, 15, away_s=(20, 32), start=delayed(3)), {STARTED: DELAY}, ("at least 15 pods/s",)
    ),
    "a delay that changes": Truth(of(600, 10, start=changing(1, 4)), {STARTED: DELAY}, AT_LEAST_10, ("pods start at",)),
    "a delay from 30 s on": Truth(of(600, 10, start=changing(0.05, 6)), {STARTED: DELAY}, AT_LEAST_10, ("start at",)),
    "a delay that goes away": Truth(of(600, 10, start=changing(6, 0.05)), {STARTED: DELAY}),
    "nodes of two kinds": Truth(
        replace(WIDE, start=lambda came, _: came + np.where(np.arange(len(came)) % 2, 10.0, 0.01)), {STARTED: DELAY}
    ),
    # Nothing holds back.
    "bare pods at the offered rate": Truth(replace(WIDE, kind="Pod"), {}, ("at least 50 pods/s",)),
    "bare pods that our watch sees late": Truth(replace(WIDE, kind="Pod", make=delayed(2)), {}),
    "a gap of the watch": Truth(of(600, 15, away_s=(20, 32)), {}, ("at least 15 pods/s",)),
    "bursts that are through at once": Truth(
        Plan(np.repeat(np.arange(12) * 5.0, 40), nodes=200), {}, ("at least 8 pods/s",)
    ),
    "8 a second, all through": Truth(of(480, 8), {}, ("at least 8 pods/s",)),
    "a queue that comes and goes": Truth(
        Plan(poisson(1200, 19), scheduled_per_s=20, jitter=0.9, nodes=400), {SCHEDULED: QUEUE}
    ),
    # Stages that hold back, each named, and no other.
    "a scheduler of 5/s": Truth(
        of(300, 10, scheduled_per_s=5, jitter=0.5), {SCHEDULED: BOTTLENECK}, ("bound by the scheduler", "to 5.")
    ),
    "a scheduler that is 5 % too slow": Truth(
        Plan(steady(2000, 50), scheduled_per_s=47.5, jitter=0.3, nodes=400), {SCHEDULED: BOTTLENECK}
    ),
    "a scheduler after a burst": Truth(
        Plan(np.zeros(400), kind="Pod", bind=served(20), nodes=200), {SCHEDULED: BOTTLENECK}
    ),
    "a scheduler under bursts": Truth(
        Plan(np.repeat(np.arange(4) * 30.0, 120), kind="Pod", bind=served(10), nodes=200), {SCHEDULED: BOTTLENECK}
    ),
    "a controller of 20/s": Truth(
        replace(WIDE, made_per_s=20), {MADE: BOTTLENECK}, ("bound by the controller that makes the pods",)
    ),
    "a controller at its client limit": Truth(
        replace(WIDE, made_per_s=20, components=HELD, more=LIMITED),
        {MADE: CLIENT_LIMIT},
        (f"bound by the client limit of {CONTROLLER} (20 requests/s)",),
    ),
    "one job of many pods": Truth(Plan(np.zeros(1), pods=400, make=served(20), nodes=200), {MADE: BOTTLENECK}),
    "slow kubelets": Truth(of(300, 20, start=served(5)), {STARTED: BOTTLENECK}, ("pods start at 5/s only",)),
    "slow kubelets with a delay": Truth(of(300, 20, start=served(5, 3.0)), {STARTED: BOTTLENECK}, ("/s only",)),
    "two slow stages": Truth(
        of(600, 50, made_per_s=30, scheduled_per_s=10),
        {MADE: BOTTLENECK, SCHEDULED: BOTTLENECK},
        ("bound by the scheduler (10 pods/s)",),
    ),
    "a slow controller and a start delay": Truth(
        of(600, 50, made_per_s=20, start=delayed(3)), {MADE: BOTTLENECK, STARTED: DELAY}
    ),
    # Room.
    "GPUs for half the load": Truth(
        replace(LATE, due_s=steady(600, 10), nodes=13, lifetime_s=20.0, bind=room_for(104, 20.03)),
        {SCHEDULED: NO_ROOM},
        ("The GPUs allow 5.2 pods/s", "of the 10 offered"),
    ),
    "GPUs that never get free": Truth(
        replace(LATE, nodes=13, until_s=60.0, bind=lambda came, _: np.where(came < 10.4, came + 0.01, np.inf)),
        {SCHEDULED: NO_ROOM},
        ("bound by its GPUs", "176 of 300 pods were never scheduled"),
        ("bound by the scheduler",),
    ),
    "nodes that come late": Truth(
        replace(LATE, bind=between(0, 20), unschedulable=tuple(range(200))), {SCHEDULED: NO_ROOM}
    ),
    # A queue with quota: nobody behind it is blamed.
    "suspended jobs that a quota of 5/s lets go": Truth(of(300, 10, release=served(5)), *BY_QUOTA),
    "jobs that Kueue lets go": Truth(of(300, 10, release=served(5), held_by="kueue"), *BY_QUOTA),
    "gated pods that Kueue lets go": Truth(of(300, 10, kind="Pod", release=served(5), held_by="kueue"), *BY_QUOTA),
    "gated pods of somebody's gate": Truth(
        of(300, 10, kind="Pod", release=served(5)), {RELEASED: QUOTA}, (), ("the scheduler",)
    ),
    "a queue that lets all go at once": Truth(
        of(300, 10, release=delayed(0.05), held_by="kueue"), {}, ("at least 10 pods/s",)
    ),
    "a queue before a slow scheduler": Truth(
        of(300, 10, release=delayed(0.05), held_by="kueue", scheduled_per_s=5),
        {SCHEDULED: BOTTLENECK},
        ("bound by the scheduler",),
        ("quota",),
    ),
    "a quota that is used up": Truth(
        of(300, 10, release=until(10), held_by="kueue", until_s=60.0),
        {RELEASED: QUOTA},
        ("of 300 pods were never released from their queue",),
        ("the scheduler", "controller"),
    ),
    "a queue that lets nothing go": silent(
        RELEASED, "released from their queue", "; the cluster says: suspended 100", release=never
    ),
    # Calls that take long.
    "a webhook of 200 ms on pods": Truth(
        replace(WIDE, made_per_s=25, more=SLOW_CREATION | HOOK_OF_200_MS),
        {MADE: SLOW_CALLS},
        ("bound by the API server, which took 200 ms for each pod that was created", HOOK),
        ("the controller", "the client limit"),
    ),
    "a webhook of 200 ms on pods, without an audit log": Truth(
        replace(WIDE, made_per_s=25, more=HOOK_OF_200_MS), {MADE: SLOW_CALLS}, (HOOK,), ("the controller",)
    ),
    "a webhook of 200 ms on few other objects": Truth(
        replace(WIDE, made_per_s=25, more={"pressure": looks(WEBHOOK, HOOK, n=4, mean_s=0.2)}),
        {MADE: BOTTLENECK},
        ("the controller",),
        (HOOK,),
    ),
    "an etcd of 150 ms": Truth(
        replace(WIDE, made_per_s=25, more=SLOW_ETCD), {MADE: SLOW_CALLS}, ("etcd took 150 ms",), ("the controller",)
    ),
    "a client limit that only metrics show": Truth(
        replace(WIDE, made_per_s=20, components=HELD, more=waiting("kube-controller-manager", 100, 1.5)),
        {MADE: CLIENT_LIMIT},
        ("bound by the client limit of kube-controller-manager (20 requests/s)",),
    ),
    "a scheduler's client limit that only metrics show": Truth(
        of(300, 10, scheduled_per_s=5, more=waiting("kube-scheduler", 25, 2.5)),
        {SCHEDULED: CLIENT_LIMIT},
        ("bound by the client limit of kube-scheduler",),
    ),
    # Silence.
    "nothing ever starts": silent(STARTED, start=never),
    "nothing is ever scheduled": silent(SCHEDULED, bind=never),
    "no pod is ever made": silent(MADE, make=never),
    "starts that end at 10 s": Truth(
        of(200, 10, start=until(10), until_s=60),
        {STARTED: STOPPED},
        ("No rate: 100 of 200 pods started; the last one that did: at 9.9",),
        valid=False,
    ),
    "a scheduler that is away for 15 s": Truth(
        replace(LATE, due_s=steady(400, 10), bind=between(10, 25)),
        {SCHEDULED: STOPPED},
        ("No pods scheduled between 9.91 and 25 s, while 150 waited", "sustains at least 10 pods/s"),
        valid=False,
    ),
    "an API server that is away for 6 s": Truth(
        of(300, 10, accept=between(10, 16)), {ANSWERED: STOPPED}, ("No requests answered between 9.9",), valid=False
    ),
    "a controller that is away for 9 s": Truth(
        of(300, 10, make=between(10, 19)), {MADE: STOPPED}, ("No pods made between 9.9",), valid=False
    ),
    "some that never start": Truth(
        Plan(
            steady(400, 10),
            start=lambda came, random: np.where(random.random(len(came)) < 0.1, np.inf, came + 0.01),
            nodes=200,
        ),
        {},
        ("of 400 pods were never started",),
    ),
    # The API server, and this machine.
    "an API server that throttles": Truth(
        of(150, 10, accept=served(2.5), throttled_s=np.where(np.arange(150) % 5 < 2, 1.05, 0)),
        {},
        ("the API server throttled the client: 120 of 270 requests, 63 s waited",),
        ("submitter",),
    ),
    "a client that is saturated": Truth(
        replace(LATE, host_busy=0.99, booked=(0.7, 0.29, 0.0)),
        {},
        ("saturated in 100 % of the seconds (client and sampler 70 %",),
        valid=False,
    ),
    "strangers on this machine": Truth(
        replace(LATE, host_busy=0.99, booked=(0.1, 0.4, 0.49)), {}, ("strangers 49 %",), valid=False
    ),
    "a side that is busy itself": Truth(
        replace(LATE, host_busy=0.99, booked=(0.1, 0.85, 0.04)), {}, ("the measured components 85 %",)
    ),
}


@pytest.mark.parametrize("name", list(TRUTHS))
def test_what_was_planted_is_said_and_nobody_else_is_blamed(name: str, tmp_path: Path) -> None:
    truth = TRUTHS[name]
    found = analysis(truth.plan, tmp_path)
    assert dict(found.limits.select("step", "kind").iter_rows()) == truth.kinds, found.findings
    for text in truth.says:
        assert text in found.explanation
    for text in truth.never_says:
        assert text not in found.explanation
    assert (not found.reasons) == truth.valid, found.reasons


@pytest.mark.parametrize("delay_s", [1.5, 3.0, 8.0])
def test_a_delay_is_told_with_its_value(delay_s: float, tmp_path: Path) -> None:
    (row,) = analysis(replace(WIDE, start=delayed(delay_s)), tmp_path).limits.to_dicts()
    assert row["delay_s"] == pytest.approx(delay_s, abs=0.01)
    assert "a delay, which limits no rate" in row["sentence"]


def test_a_webhook_of_200_ms_is_the_api_servers_time_and_not_the_submitters(tmp_path: Path) -> None:
    found = analysis(replace(LATE, latency_s=0.2), tmp_path)
    assert found.limits.is_empty()
    assert found.findings[0].startswith("The API server took 200 ms to accept a workload at the median")
    assert found.warnings == ()


@pytest.mark.parametrize("lag", ["grows", "constant", "the watch's own rate"])
def test_a_watch_that_is_late_is_not_the_clusters_time(lag: str, tmp_path: Path) -> None:
    found = analysis(of(300, 10), tmp_path)
    seen = found.transitions.sort("arrival_s")
    at = seen["arrival_s"].to_numpy()
    late_s = {
        "grows": 0.2 * at,
        "constant": np.full(len(at), 3.0),
        "the watch's own rate": queue(at, 20, 0, np.random.default_rng(1)) - at,
    }[lag]
    TRANSITIONS.write(seen.with_columns(arrival_s=pl.Series(at + late_s)), tmp_path / "tables")
    beats = found.read_raw_table(BEATS)
    own = np.interp(beats["sent_s"].to_numpy(), at, late_s)
    BEATS.write(beats.with_columns(lag_s=pl.Series(own)), tmp_path / "tables")
    found = type(found)(tmp_path, found.conditions)
    assert found.limits.is_empty()
    assert any("our own watch was" in reason for reason in found.reasons)
    assert "controller" not in found.explanation


def test_lateness_that_a_throttling_server_caused_is_not_the_submitters(tmp_path: Path) -> None:
    found = analysis(TRUTHS["an API server that throttles"].plan, tmp_path)
    late = found.submissions.with_columns(sent_s=pl.col("due_s") + pl.col("index") / 10)
    SUBMISSIONS.write(late, tmp_path / "tables")
    told = type(found)(tmp_path, found.conditions).warnings
    assert any("sent late" in line and "the API server throttled the client" in line for line in told)
    assert not any("this machine was full" in line for line in told)


def test_half_of_the_nodes_gone_is_less_room_from_then_on(tmp_path: Path) -> None:
    # 10 nodes of 8 GPUs; 5 of them go at 15 s. Pods live for 8 s: 80 GPUs would do for 10 a second, 40 do not.
    bound = room_for(80, 8.0)

    def bind(came: np.ndarray, random: np.random.Generator) -> np.ndarray:
        early = bound(came, random)
        late = came >= 15
        # What runs on the others has to end first.
        early[late] = room_for(40, 8.02)(np.maximum(came[late], 23.0), random)
        return early

    found = analysis(Plan(steady(400, 10), bind=bind, lifetime_s=8.0, nodes=10), tmp_path)
    rows = [{"at_s": -1.0, "name": f"sim-{one}", "ready": True, "gpus": 8} for one in range(10)]
    rows += [{"at_s": 15.0, "name": f"sim-{one}", "ready": False, "gpus": 8} for one in range(5)]
    NODE_CHANGES.write(NODE_CHANGES.frame(rows), tmp_path / "tables")
    kept = pl.concat_str(pl.lit("sim-"), 5 + pl.int_range(pl.len()) % 5)
    moved = pl.when(pl.col("node").is_not_null() & (pl.col("arrival_s") >= 15)).then(kept).otherwise("node")
    TRANSITIONS.write(found.transitions.with_columns(node=moved), tmp_path / "tables")
    found = type(found)(tmp_path, found.conditions)
    assert found.gpus.filter(pl.col("at_s") < 14)["capacity"].unique().to_list() == [80]
    assert found.gpus.filter(pl.col("at_s") > 16)["capacity"].unique().to_list() == [40]
    assert dict(found.limits.select("step", "kind").iter_rows()) == {SCHEDULED: NO_ROOM}
    assert "bound by the scheduler" not in found.explanation
