"""Fairness between queues: planted divisions of the GPUs, and when there is none to speak of."""

from __future__ import annotations

import polars as pl
import pytest

from workbench.scaletest.analysis.queue_simulation import measure_queue_shares

Pod = tuple[str, float, float | None, float | None]


def tables_of(pods: list[Pod], gpus: float = 1.0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Pods of a queue with their times: created, scheduled, ended."""
    queues = [pod[0] for pod in pods]
    times = pl.DataFrame(
        [pod[1:] for pod in pods],
        schema={"created_s": pl.Float64, "scheduled_s": pl.Float64, "ended_s": pl.Float64},
        orient="row",
    )
    rows = times.with_columns(index=pl.int_range(pl.len()), gpus=pl.lit(gpus))
    return pl.DataFrame({"index": range(len(pods)), "queue": queues}), rows


def divided(a: int, b: int) -> list[Pod]:
    """So many pods of two queues run from 0 to 100; one more of each waits from 20 to 80."""
    running: list[Pod] = [*[("a", 0.0, 0.0, 100.0)] * a, *[("b", 0.0, 0.0, 100.0)] * b]
    return [*running, ("a", 20.0, 80.0, 100.0), ("b", 20.0, 80.0, 100.0)]


@pytest.mark.parametrize(
    ("a", "b", "quotas", "unfairness"),
    [
        (4, 4, None, 0.0),
        (6, 2, None, 0.25),
        (8, 0, None, 0.5),
        (6, 2, {"a": 24, "b": 8}, 0.0),
        (4, 4, {"a": 24, "b": 8}, 0.25),
        # Quotas of other queues say nothing of these.
        (6, 2, {"a": 24, "c": 8}, 0.25),
    ],
)
def test_a_planted_division_is_measured(a: int, b: int, quotas: dict[str, float] | None, unfairness: float) -> None:
    found = measure_queue_shares(*tables_of(divided(a, b)), end_s=100.0, quotas=quotas)
    assert found is not None
    assert found.unfairness == pytest.approx(unfairness, abs=1e-9)
    assert found.contended_s == pytest.approx(60, abs=0.2)
    assert found.shares["a"] == pytest.approx(a / (a + b))
    assert sum(found.fair_shares.values()) == pytest.approx(1)


def test_times_in_which_a_queue_has_no_work_do_not_count() -> None:
    pods: list[Pod] = [("a", 0.0, 0.0, 50.0), ("b", 0.0, 50.0, 100.0), ("b", 0.0, 60.0, None)]
    assert measure_queue_shares(*tables_of(pods), end_s=100.0) is None
    assert measure_queue_shares(*tables_of([pod for pod in divided(3, 3) if pod[0] == "a"]), end_s=100.0) is None


def test_pods_without_gpus_and_queues_of_older_runs_are_left_out() -> None:
    assert measure_queue_shares(*tables_of(divided(6, 2), gpus=0.0), end_s=100.0) is None
    schedule, pods = tables_of(divided(6, 2))
    assert measure_queue_shares(schedule.with_columns(queue=pl.lit(None, pl.String)), pods, end_s=100.0) is None
