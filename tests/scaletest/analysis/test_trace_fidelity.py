"""Replays of traces: GPU-seconds held against those planned, and time that was compressed too far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes import scale_runs
from workbench.scaletest.analysis.queue_simulation import measure_trace_fidelity
from workbench.scaletest.analysis.terminal_report import format_run_json


def tables_of(n: int, lifetime_s: float, excess_s: float, gpus: float = 2.0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Pods that hold their GPUs for longer than their lifetime by a planted time."""
    index = list(range(n))
    schedule = pl.DataFrame({"index": index, "pods": [1] * n, "lifetime_s": [lifetime_s] * n})
    rows: dict[str, Any] = {"index": index, "scheduled_s": [5.0 + at for at in index], "gpus": [gpus] * n}
    rows |= {"ended_s": [5.0 + at + lifetime_s + excess_s for at in index], "evicted": [False] * n}
    return schedule, pl.DataFrame(rows)


def test_gpu_seconds_are_those_of_the_traces_time() -> None:
    found = measure_trace_fidelity(*tables_of(50, 10.0, 0.1), speed=60.0)
    assert (found.n_pods, found.n_ended) == (50, 50)
    assert found.excess_s == pytest.approx(0.1)
    assert found.trace_gpu_s == pytest.approx(50 * 2 * 10 * 60)
    assert found.held_gpu_s / found.trace_gpu_s == pytest.approx(1.01)
    assert "50 of 50 pods ended and held 60,600 GPU-seconds of its time, 101 % of the trace's" in found.sentence


@pytest.mark.parametrize(("excess_s", "speed", "is_valid"), [(0.4, 60.0, True), (0.6, 60.0, False), (0.6, 1.0, True)])
def test_a_replay_is_invalid_where_the_control_plane_is_a_part_of_the_jobs(
    excess_s: float, speed: float, is_valid: bool, tmp_path: Path
) -> None:
    plan = scale_runs.Plan(
        due_s=np.arange(40) / 2.0, lifetime_s=10.0, start=scale_runs.delayed(excess_s), until_s=40.0, nodes=10
    )
    found = scale_runs.analysis(plan, tmp_path, replay_speed=speed)
    told = [reason for reason in found.reasons if "compressed too far" in reason]
    assert bool(told) is not is_valid
    assert all(
        "the control plane adds 6 % to the median job (limit 5 %); use a speed of at most 50" in one for one in told
    )
    document = json.loads(format_run_json(found))
    assert document["replay"]["excess_s"] == pytest.approx(excess_s, abs=0.01)
    assert document["queue"]["mean_s"] == pytest.approx(document["queue"]["simulated_mean_s"], abs=0.05)
    assert document["findings"][:2] == [found.replay.sentence, found.queue.sentence]  # type: ignore[union-attr]


def test_a_run_that_replays_nothing_says_nothing_of_a_trace(tmp_path: Path) -> None:
    found = scale_runs.analysis(scale_runs.Plan(due_s=np.arange(10) / 2.0, lifetime_s=5.0), tmp_path)
    assert found.replay is found.queue is None
    assert "trace" not in " ".join(found.findings)


def test_pods_that_did_not_end_or_were_evicted_are_counted_and_not_averaged() -> None:
    schedule, pods = tables_of(10, 10.0, 0.0)
    pods = pods.with_columns(
        ended_s=pl.when(pl.col("index") < 4).then(None).otherwise("ended_s"), evicted=pl.col("index") == 9
    )
    found = measure_trace_fidelity(schedule, pods, 2.0)
    assert (found.n_pods, found.n_ended) == (10, 5)
    assert found.held_gpu_s == found.trace_gpu_s == 5 * 2 * 10 * 2
    none = measure_trace_fidelity(schedule, pods.with_columns(ended_s=pl.lit(None, pl.Float64)), 2.0)
    assert none.excess_fraction is None
    assert "no pod of 10 ended" in none.sentence
