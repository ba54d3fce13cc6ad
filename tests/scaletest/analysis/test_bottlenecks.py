"""Who held the work up: named only when the evidence is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis, queue
from workbench.scaletest.analysis.bottlenecks import BOTTLENECK, CLIENT_LIMIT, NO_ROOM, ServerEvidence, find_bottlenecks
from workbench.scaletest.analysis.room import build_room
from workbench.scaletest.analysis.throughput import StagePassages
from workbench.scaletest.observation.run_records import Component
from workbench.scaletest.tables import HOLDINGS, NODE_CHANGES, NODES, PRESSURE, REQUESTS

CLIENT = "system:serviceaccount:kube-system:job-controller"
HELD = (Component(name="kube-controller-manager", client_qps=20, client_burst=30),)
RAISED = (Component(name="kube-controller-manager", client_qps=400, client_burst=800),)


def requests(per_s: list[int], client: str = CLIENT) -> pl.DataFrame:
    """An audit log in which one client makes so many pods in each second, and somebody else as many status patches."""
    what = {"resource": "pods", "code": 201, "duration_p50_s": 0.002, "duration_p99_s": 0.01}
    rows = []
    for second, count in enumerate(per_s):
        at = {"at_s": float(second), "requests": count} | what
        rows.append(at | {"client": client, "verb": "create", "subresource": ""})
        rows.append(at | {"client": "kwok", "verb": "patch", "subresource": "status"})
    return REQUESTS.frame(rows)


def jobs(made_per_s: float, components: tuple[Component, ...], audited: bool = True, jitter: float = 0.0) -> Plan:
    due = np.arange(600) / 50
    seconds = int(max(due[-1], 600 / made_per_s))
    random = np.random.default_rng(3)
    counts = np.full(seconds, round(made_per_s)) + random.integers(-1, 2, seconds)
    more = {"requests": requests(counts.tolist())} if audited else {}
    return Plan(due, made_per_s=made_per_s, components=components, jitter=jitter, more=more)


def test_a_client_at_its_limit_is_named_with_plateau_and_evidence(tmp_path: Path) -> None:
    (row,) = analysis(jobs(20, HELD), tmp_path).limits.to_dicts()
    assert (row["step"], row["kind"], row["client"], row["configured_per_s"]) == ("pods made", CLIENT_LIMIT, CLIENT, 20)
    assert row["low_per_s"] <= 20 <= row["high_per_s"]
    assert row["high_per_s"] - row["low_per_s"] < 1
    assert row["requests_low_per_s"] <= 20 <= row["requests_high_per_s"]
    assert "20/s" in row["sentence"]
    assert CLIENT in row["sentence"]
    assert row["backlog"] > 100


def test_the_same_plateau_below_a_raised_limit_is_only_a_bottleneck(tmp_path: Path) -> None:
    (row,) = analysis(jobs(20, RAISED), tmp_path).limits.to_dicts()
    assert (row["kind"], row["client"]) == (BOTTLENECK, None)
    assert "client limit" not in row["sentence"]


def test_without_the_limit_nothing_is_said(tmp_path: Path) -> None:
    assert analysis(jobs(400, RAISED), tmp_path).limits.is_empty()


def test_without_an_audit_log_nobody_is_blamed(tmp_path: Path) -> None:
    (row,) = analysis(jobs(20, HELD, audited=False), tmp_path).limits.to_dicts()
    assert (row["kind"], row["client"]) == (BOTTLENECK, None)
    assert row["low_per_s"] <= 20 <= row["high_per_s"]


def test_somebody_elses_requests_are_no_evidence(tmp_path: Path) -> None:
    plan = jobs(20, HELD, audited=False)
    only_kwok = requests([20] * 30).filter(pl.col("client") == "kwok")
    found = analysis(Plan(plan.due_s, made_per_s=20, components=HELD, more={"requests": only_kwok}), tmp_path).limits
    assert found["kind"].to_list() == [BOTTLENECK]


@pytest.mark.parametrize("rate", [15, 26])
def test_a_rate_that_is_not_the_limit_is_not_called_one(rate: int, tmp_path: Path) -> None:
    assert analysis(jobs(rate, HELD), tmp_path).limits["kind"].to_list() == [BOTTLENECK]


def test_pods_that_wait_for_others_of_their_job_to_end_blame_nobody_who_makes_pods(tmp_path: Path) -> None:
    # 10 Jobs a second of 6 pods, of which one is made a second: the others could not be there yet.
    plan = Plan(np.arange(200) / 10, pods=6, made_per_s=10.0)
    assert analysis(plan, tmp_path / "at-once").limits["step"].to_list() == ["pods made"]
    found = analysis(plan, tmp_path / "in-turn", in_turn=True)
    assert found.limits.height == 0
    (row,) = found.ramp.to_dicts()
    assert (row["verdict"], row["low_per_s"]) == ("UNDECIDED", None)
    assert row["reason"].startswith("Jobs with completions above parallelism")
    assert found.explanation.startswith("The sustainable rate is not decided: at 60 pods/s, Jobs with")


def test_a_busy_scheduler_is_named_as_the_bottleneck(tmp_path: Path) -> None:
    (row,) = analysis(Plan(np.arange(900) / 60, scheduled_per_s=40, jitter=0.5), tmp_path).limits.to_dicts()
    assert (row["step"], row["kind"]) == ("pods scheduled", BOTTLENECK)
    assert row["low_per_s"] <= 40 <= row["high_per_s"]


def of_scheduler(per_s: dict[str, int], seconds: int) -> pl.DataFrame:
    """An audit log in which the scheduler binds pods and writes events, so many in each second."""
    what = {"client": "kube-scheduler", "code": 201, "duration_p50_s": 0.002, "duration_p99_s": 0.01, "verb": "create"}
    kinds = {"pods": "binding", "events": ""}
    return REQUESTS.frame(
        [
            what | {"at_s": float(second), "resource": name, "subresource": kinds[name], "requests": count}
            for second in range(seconds)
            for name, count in per_s.items()
        ]
    )


@pytest.mark.parametrize(("configured", "kind"), [(50, CLIENT_LIMIT), (100, BOTTLENECK)])
def test_events_have_a_limit_of_their_own_in_the_scheduler(configured: float, kind: str, tmp_path: Path) -> None:
    audited = {"requests": of_scheduler({"pods": 50, "events": 50}, 20)}
    own = (Component(name="kube-scheduler", client_qps=configured, client_burst=100),)
    plan = Plan(np.arange(1000) / 80, scheduled_per_s=50, components=own, more=audited, nodes=200)
    (row,) = analysis(plan, tmp_path).limits.to_dicts()
    assert (row["step"], row["kind"]) == ("pods scheduled", kind)
    if kind == CLIENT_LIMIT:
        assert (row["client"], row["requests_per_s"], row["configured_per_s"]) == ("kube-scheduler", 50, 50)


@pytest.mark.parametrize(("made", "kind"), [([10], CLIENT_LIMIT), ([20], CLIENT_LIMIT), ([15], BOTTLENECK)])
def test_a_controller_may_write_its_events_by_the_same_client_or_not(
    made: list[int], kind: str, tmp_path: Path
) -> None:
    creations = requests(made * 70)
    events = creations.filter(pl.col("client") == CLIENT).with_columns(
        resource=pl.lit("events"), requests=pl.lit(10, dtype=pl.Int64)
    )
    plan = Plan(np.arange(600) / 50, made_per_s=made[0], components=HELD, more={"requests": creations.vstack(events)})
    assert analysis(plan, tmp_path).limits["kind"].to_list() == [kind]


def test_a_mean_at_the_limit_is_not_enough_where_the_seconds_are_not(tmp_path: Path) -> None:
    uneven = {"requests": requests([8, 32] * 20)}
    plan = Plan(np.arange(600) / 50, made_per_s=20, components=HELD, more=uneven)
    (row,) = analysis(plan, tmp_path).limits.to_dicts()
    assert (row["kind"], row["client"]) == (BOTTLENECK, None)


def test_what_nobody_can_know_is_not_said(tmp_path: Path) -> None:
    blind = analysis(jobs(20, HELD, audited=False), tmp_path / "blind").limits["sentence"][0]
    assert "Without an audit log the cause may be a client limit." in blind
    assert "the controller that creates the pods" in blind
    seen = analysis(jobs(20, RAISED), tmp_path / "seen").limits["sentence"][0]
    assert "No client that does this work was at its known limit." in seen


def held_gpus(
    scheduled: np.ndarray, created: np.ndarray, lifetime_s: float, gpus: int, **more: pl.Expr
) -> dict[str, Any]:
    """Table PODS (what is read of it) of pods with a GPU each, or with `more`, and the room that they had."""
    times = {"created_s": created, "scheduled_s": scheduled, "ended_s": scheduled + lifetime_s}
    pods = (
        pl.DataFrame(times)
        .with_columns(
            index=pl.int_range(pl.len(), dtype=pl.Int64),
            uid=pl.Series([f"pod-{index}" for index in range(len(created))]),
            node=pl.Series([f"sim-{index % (gpus // 8)}" for index in range(len(created))]),
            asks=pl.lit("nvidia.com/gpu=1"),
            unschedulable_s=pl.lit(None, dtype=pl.Float64),
            unschedulable_reason=pl.lit(None, dtype=pl.String),
        )
        .with_columns(**more)
    )
    node = {"ready": True, "simulated": True, "gpus": 8, "cpus": 64.0, "memory_bytes": 1 << 39, "pods": 250}
    nodes = NODES.frame([{"name": f"sim-{one}"} | node for one in range(gpus // 8)])
    end_s = float(scheduled.max() + lifetime_s)
    return {"room": build_room(pods, nodes, NODE_CHANGES.frame([]), HOLDINGS.frame([]), end_s), "pods": pods}


def blamed(created: np.ndarray, scheduled: np.ndarray, **gpus: Any) -> list[dict[str, Any]]:
    """Who is found to hold pods up that came and were bound at these times."""
    end, bound = float(scheduled.max()) + 1, np.sort(scheduled)
    passages = StagePassages(created, created, created, created, bound, bound, np.zeros(0), end)
    return find_bottlenecks(passages, ServerEvidence(REQUESTS.frame([]), PRESSURE.frame([]), ()), **gpus).to_dicts()


def test_a_full_cluster_is_not_blamed_on_the_scheduler() -> None:
    created = np.arange(100) / 10
    scheduled = created + 0.01
    for place in range(48, 100):
        scheduled[place] = max(created[place], scheduled[place - 48] + 30.0)
    (row,) = blamed(created, scheduled, **held_gpus(scheduled, created, 30.0, 48))
    assert (row["step"], row["kind"], row["client"]) == ("pods scheduled", NO_ROOM, None)
    told = "pods waited for room, bound by its GPUs (48 of 48 GPUs were taken); this says nothing about the scheduler"
    assert told in row["sentence"]
    # Without GPUs nobody knows of the room.
    assert [row["kind"] for row in blamed(created, scheduled)] == [BOTTLENECK]


def test_pods_that_request_nothing_wait_for_their_claims_and_for_places() -> None:
    created = np.arange(100) / 10
    scheduled = created + 0.01
    for place in range(16, 100):
        scheduled[place] = max(created[place], scheduled[place - 16] + 30.0)
    told = {
        "asks": pl.lit(""),
        "unschedulable_s": pl.when(pl.int_range(pl.len()) >= 16).then(pl.col("created_s")),
        "unschedulable_reason": pl.lit("0/2 nodes are available: 2 cannot allocate all claims."),
    }
    held = held_gpus(scheduled, created, 30.0, 16, **told)
    (row,) = blamed(created, scheduled, **held)
    assert (row["step"], row["kind"]) == ("pods scheduled", NO_ROOM)
    assert row["cause"] == "devices that its resource claims ask for"
    assert held["room"].resources == ("pods",)


def test_a_slow_scheduler_is_named_also_when_the_cluster_fills_up_later() -> None:
    created = np.arange(1000) / 50
    scheduled = queue(created, 20, 0.0, np.random.default_rng(1))
    for place in range(480, 1000):
        scheduled[place] = max(scheduled[place], scheduled[place - 480] + 60.0)
    row = blamed(created, scheduled, **held_gpus(scheduled, created, 60.0, 480))[0]
    assert (row["step"], row["kind"]) == ("pods scheduled", BOTTLENECK)
    assert row["rate_per_s"] == pytest.approx(20, rel=0.05)
    assert row["end_s"] <= 24
