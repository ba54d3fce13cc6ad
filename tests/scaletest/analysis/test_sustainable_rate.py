"""Which rate is sustained: of runs whose truth is known, also of those that tell nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis, queue, ramp_of, tables
from workbench.scaletest.analysis.room import build_room
from workbench.scaletest.analysis.sustainable_rate import (
    NOT_SUSTAINED,
    SUSTAINED,
    UNDECIDED,
    build_ramp_table,
    find_sustainable_rate,
)
from workbench.scaletest.analysis.throughput import StagePassages
from workbench.scaletest.charts import chart_ramp
from workbench.scaletest.tables import HOLDINGS, NODE_CHANGES, NODES, STEPS

NEVER = float("inf")


@dataclass(frozen=True)
class SimulatedRun:
    """Workloads of one pod with a GPU: when each was due, accepted (infinite: never), bound, and over."""

    due: Any
    bound: Any
    acked: Any = None
    ended: Any = None
    steps: Any = None
    gpus: int = 10_000

    def ramp(self) -> pl.DataFrame:
        due, bound = np.asarray(self.due), np.asarray(self.bound)
        acked = due if self.acked is None else np.asarray(self.acked)
        found = StagePassages(
            due=np.sort(due),
            acked=known(acked),
            pods_accepted=known(acked),
            created=known(acked),
            scheduled=known(bound),
            running=known(bound),
            ended=np.zeros(0),
            end_s=float(max(due.max(), known(bound).max(initial=0.0))),
        )
        schedule = tables(Plan(due, self.steps))["schedule"]
        pods = self.pods(acked, bound)
        nodes = NODES.frame([node(number) for number in range(self.gpus // 8)])
        room = build_room(pods, nodes, NODE_CHANGES.frame([]), HOLDINGS.frame([]), found.end_s)
        return build_ramp_table(schedule, found, waits(due, acked, bound), room)

    def pods(self, acked: Any, bound: Any) -> pl.DataFrame:
        ended = np.full(len(bound), NEVER) if self.ended is None else np.asarray(self.ended)
        times = {"created_s": acked, "scheduled_s": bound, "ended_s": ended}
        columns = {name: [None if one == NEVER else float(one) for one in values] for name, values in times.items()}
        frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))
        place = pl.Series([f"sim-{index % (self.gpus // 8)}" for index in range(len(bound))])
        uids = pl.Series([f"pod-{index}" for index in range(len(bound))])
        return frame.with_columns(
            uid=uids,
            node=place,
            asks=pl.lit("nvidia.com/gpu=1"),
            unschedulable_s=pl.lit(None, dtype=pl.Float64),
            unschedulable_reason=pl.lit(None, dtype=pl.String),
        )


def known(times: Any) -> Any:
    return np.sort(times[times < NEVER])


def node(number: int) -> dict[str, Any]:
    more = {"ready": True, "simulated": True, "cpus": 64.0, "memory_bytes": 1 << 39, "pods": 250}
    return {"name": f"sim-{number}", "gpus": 8} | more


def waits(due: Any, acked: Any, bound: Any) -> pl.DataFrame:
    ends = {"due to scheduled": bound, "admission": acked}
    rows = [
        {
            "index": index,
            "step": step,
            "clock": "client",
            "begin_s": float(due[index]),
            "duration_s": None if end[index] == NEVER else float(end[index] - due[index]),
            "resolution_s": 0.0,
            "gap": False,
        }
        for index in np.flatnonzero(acked < NEVER).tolist()
        for step, end in ends.items()
    ]
    return STEPS.frame(rows)


def in_a_cluster_of(gpus: int, lifetime_s: float, came: Any) -> tuple[Any, Any]:
    """Bindings and ends where the scheduler takes no time at all, and pods wait for room only."""
    bound = np.asarray(came, dtype=float).copy()
    for place in range(gpus, len(bound)):
        bound[place] = max(came[place], bound[place - gpus] + lifetime_s)
    return bound, bound + lifetime_s


def test_a_step_that_was_never_sent_is_not_sustained() -> None:
    due, steps = ramp_of([20, 40], 20)
    # Aborted at 20 s: what was due later never went out.
    acked = np.where(due < 20, due + 0.002, NEVER)
    found = SimulatedRun(due, acked + 0.004, acked, steps=steps).ramp()
    assert found["verdict"].to_list() == [SUSTAINED, UNDECIDED]
    assert found["reason"].to_list() == [None, "only 0 of 800 pods were submitted in time"]
    told = find_sustainable_rate(found)
    assert told.low_per_s == pytest.approx(20, rel=0.01)
    assert told.high_per_s is None
    assert "no step that was fully submitted exceeded it; not decided at 40 pods/s" in told.text


def test_a_run_of_which_nothing_was_sent_sustains_nothing() -> None:
    due = np.arange(400) / 20
    never = np.full(400, NEVER)
    told = find_sustainable_rate(SimulatedRun(due, never, never).ramp())
    assert (told.low_per_s, told.high_per_s) == (None, None)
    assert "only 0 of 400 pods were submitted in time" in told.text


@pytest.mark.parametrize(("share", "verdict"), [(0.5, UNDECIDED), (0.9, UNDECIDED), (1.0, SUSTAINED)])
def test_a_throttled_step_is_judged_by_what_was_accepted(share: float, verdict: str) -> None:
    due = np.arange(1200) / 40
    acked = due / share + 0.002
    assert SimulatedRun(due, acked + 0.004, acked).ramp()["verdict"].to_list() == [verdict]


def test_a_throttled_step_can_still_be_too_fast() -> None:
    due = np.arange(1200) / 40
    acked = due / 0.5 + 0.002
    found = SimulatedRun(due, queue(acked, 10, 0.0, np.random.default_rng(1)), acked).ramp()
    assert found["verdict"].to_list() == [NOT_SUSTAINED]
    assert found["completed_per_s"][0] == pytest.approx(10, rel=0.02)


def test_a_full_cluster_is_not_a_slow_scheduler() -> None:
    due = np.arange(100) / 10
    bound, ended = in_a_cluster_of(48, 30.0, due + 0.01)
    found = SimulatedRun(due, bound, ended=ended, gpus=48).ramp()
    assert NOT_SUSTAINED not in found["verdict"].to_list()
    told = find_sustainable_rate(found)
    assert told.high_per_s is None
    # All that was due was bound at once as long as there was room, for 4.8 of the 10 s.
    assert told.low_per_s == pytest.approx(10, rel=0.01)


def test_a_step_without_enough_room_says_so_and_has_no_rate() -> None:
    due, steps = ramp_of([2, 10], 20)
    bound, ended = in_a_cluster_of(48, 60.0, due + 0.01)
    found = SimulatedRun(due, bound, ended=ended, gpus=48, steps=steps).ramp()
    assert found["verdict"].to_list() == [SUSTAINED, UNDECIDED]
    assert found["reason"][1].startswith("pods waited for room in ")
    assert found["completed_per_s"].to_list() == [pytest.approx(2, rel=0.01), None]
    assert found["backlog_end"].to_list()[1] > 100
    assert "pods waited for room" in find_sustainable_rate(found).text


def test_an_overload_before_the_cluster_is_full_still_shows() -> None:
    due, steps = ramp_of([10, 40, 60], 20)
    came = queue(due + 0.01, 20, 0.0, np.random.default_rng(1))
    # 20/s from 20 s on: 800 GPUs are taken at about 50 s, in the third step.
    bound, ended = in_a_cluster_of(800, 600.0, came)
    found = SimulatedRun(due, bound, ended=ended, gpus=800, steps=steps).ramp()
    assert found["verdict"].to_list()[:2] == [SUSTAINED, NOT_SUSTAINED]
    told = find_sustainable_rate(found)
    assert told.low_per_s == pytest.approx(20, rel=0.05)
    assert told.high_per_s == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize("delay_s", [0.004, 1.0, 4.0])
def test_a_steady_delay_is_no_backlog_that_grows(delay_s: float) -> None:
    due = np.arange(500) / 50
    found = SimulatedRun(due, due + delay_s).ramp()
    assert found["verdict"].to_list() == [SUSTAINED]
    assert found["completed_per_s"][0] == pytest.approx(50, rel=0.01)


def test_a_delay_as_long_as_the_step_decides_nothing() -> None:
    due = np.arange(500) / 50
    found = SimulatedRun(due, due + 12.0).ramp()
    assert found["verdict"].to_list() == [UNDECIDED]
    assert "use a longer step" in found["reason"][0]


def test_an_overload_behind_a_delay_still_shows() -> None:
    due = np.arange(1500) / 50
    found = SimulatedRun(due, queue(due + 4.0, 40, 0.2, np.random.default_rng(1))).ramp()
    assert found["verdict"].to_list() == [NOT_SUSTAINED]
    assert found["low_per_s"][0] <= 40 <= found["high_per_s"][0]


def test_steps_after_an_overload_are_too_fast_although_their_first_pods_wait_long() -> None:
    due, steps = ramp_of([40, 80, 80], 10)
    found = SimulatedRun(due, queue(due, 20, 0.2, np.random.default_rng(1)), steps=steps).ramp()
    assert found["verdict"].to_list() == [NOT_SUSTAINED] * 3
    # What waits in a queue is none of the time in which nothing can come out: all windows are evidence.
    assert found["completed_per_s"].to_list() == [pytest.approx(20, rel=0.05)] * 3
    assert max((found["high_per_s"] - found["low_per_s"]).to_list()) < 4


def test_work_that_is_never_bound_is_not_sustained() -> None:
    due = np.arange(500) / 50
    assert SimulatedRun(due, np.full(500, NEVER)).ramp()["verdict"].to_list() == [NOT_SUSTAINED]


def test_one_late_pod_does_not_thin_the_plateau_out() -> None:
    due = np.arange(600) / 60
    bound = queue(due, 40, 0.0, np.random.default_rng(1))
    late = bound.copy()
    late[-1] += 600
    rates = [SimulatedRun(due, one).ramp()["completed_per_s"][0] for one in (bound, late)]
    assert rates == [pytest.approx(40, rel=0.02)] * 2


@pytest.mark.parametrize("bursts", [1, 3])
def test_a_burst_has_a_length(bursts: int) -> None:
    steps = np.repeat(np.arange(bursts), 50)
    due = steps * 10.0
    found = SimulatedRun(due, queue(due, 25, 0.0, np.random.default_rng(1)), steps=steps).ramp()
    length = 10.0 if bursts > 1 else pytest.approx(1.9, abs=0.05)
    assert found.select(pl.col("end_s") - pl.col("begin_s")).to_series().to_list() == [length] * bursts
    assert max(found["offered_per_s"].to_list()) < 30


def test_bursts_that_are_through_before_the_next_are_sustained() -> None:
    steps = np.repeat(np.arange(3), 50)
    due = steps * 10.0
    quick, slow = (queue(due, rate, 0.0, np.random.default_rng(1)) for rate in (25, 4))
    assert SimulatedRun(due, quick, steps=steps).ramp()["verdict"].to_list() == [SUSTAINED] * 3
    assert SUSTAINED not in SimulatedRun(due, slow, steps=steps).ramp()["verdict"].to_list()


def test_gangs_that_come_at_times_do_not_hide_that_all_is_through() -> None:
    random = np.random.default_rng(3)
    due = np.sort(np.concatenate([np.arange(200) / 20, np.repeat(random.uniform(0, 9, 5), 8)]))
    found = SimulatedRun(due, due + random.uniform(0.01, 0.15, len(due))).ramp()
    assert found["verdict"].to_list() == [SUSTAINED]


def test_what_is_accepted_a_moment_later_was_sent() -> None:
    due, steps = ramp_of([20, 40], 10)
    # A server that is busy in the second step: 16 of 200 pods are accepted after the windows in which they were due.
    acked = due + np.where(steps == 1, 0.4, 0.01)
    bound, ended = in_a_cluster_of(400, 60.0, acked + 0.01)
    found = SimulatedRun(due, bound, acked, ended, steps, gpus=400).ramp()
    assert found["verdict"].to_list() == [SUSTAINED, SUSTAINED]


def test_a_single_workload_has_a_length_too() -> None:
    found = SimulatedRun([0.0], [0.01]).ramp()
    assert found["end_s"].to_list() == [1.0]
    assert found.select("verdict", "reason").row(0) == (UNDECIDED, "fewer than 20 pods")


def test_a_trace_that_ends_in_equal_times_has_the_length_of_its_span(tmp_path: Path) -> None:
    found = analysis(Plan(np.concatenate([np.arange(100) / 10, np.full(40, 9.9)])), tmp_path)
    assert found.ramp["end_s"][0] == pytest.approx(9.9, abs=0.1)
    assert found.ramp["offered_per_s"][0] < 15


def test_fewer_windows_make_the_interval_wider() -> None:
    due = np.arange(600) / 20
    bound = np.sort(due + np.random.default_rng(1).uniform(0, 0.5, 600))
    quick = SimulatedRun(due, bound)
    slow = replace(quick, bound=bound + 18)
    widths = [(one["high_per_s"] - one["low_per_s"])[0] for one in (quick.ramp(), slow.ramp())]
    assert widths[1] > widths[0]


def test_a_step_without_a_length_is_not_drawn() -> None:
    due, steps = ramp_of([20, 40], 10)
    found = SimulatedRun(due, due + 0.01, steps=steps).ramp()
    odd = found.with_columns(
        end_s=pl.when(pl.col("step") == 1).then("begin_s").otherwise("end_s"),
        offered_per_s=pl.when(pl.col("step") == 1).then(5e10).otherwise("offered_per_s"),
    )
    spec = chart_ramp(odd).to_dict()
    offered = [row["offered_per_s"] for rows in spec["datasets"].values() for row in rows]
    assert max(offered) == pytest.approx(20)
    assert "1 step without a figure" in spec["title"]["subtitle"]
