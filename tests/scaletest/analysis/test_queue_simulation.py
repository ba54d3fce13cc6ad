"""The simulated queue of kube-scheduler: known answers, its backoff, and waits of a run beside it."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
import polars as pl
import pytest

from workbench.scaletest.analysis.queue_simulation import QueuedPods, compare_queue_waits, simulate_queue_waits


def queued(*rows: tuple[float, float, float]) -> QueuedPods:
    arrival_s, held_s, gpus = np.array(rows, dtype=float).T
    return QueuedPods(arrival_s, held_s, gpus)


def test_one_gpu_serves_pods_one_after_the_other() -> None:
    pods = queued((0, 10, 1), (1, 10, 1), (2, 10, 1))
    assert simulate_queue_waits(pods, [1.0]).tolist() == [0.0, 9.0, 18.0]
    assert simulate_queue_waits(pods, [1.0, 1.0]).tolist() == [0.0, 0.0, 8.0]


def test_small_pods_overtake_a_large_one_that_does_not_fit() -> None:
    assert simulate_queue_waits(queued((0, 10, 2), (1, 10, 4), (2, 3, 2)), [4.0]).tolist() == [0.0, 9.0, 0.0]


def test_gpus_of_two_nodes_are_not_one_nodes() -> None:
    assert simulate_queue_waits(queued((0, 1, 4)), [2.0, 2.0]).tolist() == [np.inf]


def test_backoff_doubles_and_delays_a_pod_only_where_it_is_not_cut_short() -> None:
    # Pods of 0.3 s on one GPU wake the second one, which is tried at 0.1, at 0.3 (too early) and, after 1 s, at 1.1.
    rows = [(0.0, 0.3, 1.0), (0.1, 5.0, 1.0)]
    assert simulate_queue_waits(queued(*rows), [1.0]).tolist() == pytest.approx([0.0, 0.2])
    assert simulate_queue_waits(queued(*rows), [1.0], pops_backoff=False).tolist() == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (10, 0.8)])
def test_mean_waits_are_those_of_erlang(servers: int, load: float) -> None:
    random = np.random.default_rng(servers)
    n, offered = 30_000, servers * load
    pods = QueuedPods(np.cumsum(random.exponential(1 / offered, n)), random.exponential(1.0, n), np.ones(n))
    waits = simulate_queue_waits(pods, [1.0] * servers)
    last = offered**servers / factorial(servers) / (1 - load)
    wait_fraction = last / (sum(offered**k / factorial(k) for k in range(servers)) + last)
    assert waits.mean() == pytest.approx(wait_fraction / (servers - offered), rel=0.1)


def run_of(waits: np.ndarray, pods: QueuedPods) -> pl.DataFrame:
    """Table PODS of a run with these waits; only the columns that are read."""
    scheduled = pods.arrival_s + waits
    made: dict[str, Any] = {"created_s": pods.arrival_s, "scheduled_s": scheduled, "ended_s": scheduled + pods.held_s}
    return pl.DataFrame(made | {"gpus": pods.gpus, "evicted": [False] * len(waits)})


def test_a_run_that_waits_longer_than_the_queue_needs_is_told_so() -> None:
    random = np.random.default_rng(1)
    pods = QueuedPods(np.cumsum(random.exponential(0.5, 300)), random.exponential(4.0, 300), np.ones(300))
    nodes = pl.DataFrame({"ready": [True] * 3 + [False], "gpus": [3, 3, 3, 100]})
    ideal = simulate_queue_waits(pods, [3.0] * 3)
    same = compare_queue_waits(run_of(ideal, pods), nodes)
    slow = compare_queue_waits(run_of(ideal + 2.0, pods), nodes)
    assert same is not None
    assert slow is not None
    assert same.mean_s == pytest.approx(same.simulated_mean_s, rel=0.05)
    assert slow.mean_s - slow.simulated_mean_s == pytest.approx(2.0, abs=0.3)
    assert "a difference of +2" in slow.sentence


def test_there_is_no_comparison_where_pods_are_missing() -> None:
    pods = queued((0, 10, 1), (1, 10, 1))
    run = run_of(np.zeros(2), pods)
    nodes = pl.DataFrame({"ready": [True], "gpus": [2]})
    assert compare_queue_waits(run, nodes) is not None
    assert compare_queue_waits(run.with_columns(ended_s=pl.Series([10.0, None])), nodes) is None
    assert compare_queue_waits(run.with_columns(evicted=pl.lit(value=True)), nodes) is None
    assert compare_queue_waits(run.with_columns(gpus=pl.lit(3.0)), nodes) is None
