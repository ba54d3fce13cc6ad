"""GPUs over time, and gangs that hold what they cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis, tables
from workbench.scaletest.analysis.gangs import build_gang_table
from workbench.scaletest.analysis.gpu_saturation import build_gpu_timeline
from workbench.scaletest.tables import NODE_CHANGES, NODES, PODS

NODE = {"ready": True, "simulated": True, "cpus": 64.0, "memory_bytes": 1 << 39, "pods": 250}


def nodes(count: int, gpus: int) -> pl.DataFrame:
    return NODES.frame([{"name": f"sim-{one}", "gpus": gpus} | NODE for one in range(count)])


def schedule(pods: list[int], gpus: float = 1.0, gang: bool = True) -> pl.DataFrame:
    made = tables(Plan(np.zeros(len(pods)), gpus=gpus, gang=gang))["schedule"]
    return made.with_columns(pods=pl.Series(pods, dtype=pl.Int64))


def pod(index: int, number: int, scheduled: float | None, node: str | None, **more: Any) -> dict[str, Any]:
    none = dict.fromkeys(column.name for column in PODS.columns) | {"evicted": False, "gap": False}
    own = {"index": index, "uid": f"{index}-{number}", "name": f"p-{index}-{number}", "attempt": 1, "created_s": 1.0}
    return none | own | {"scheduled_s": scheduled, "unschedulable": scheduled is None, "node": node, "gpus": 1.0} | more


def deadlock() -> pl.DataFrame:
    """Two gangs of 8 on 12 GPUs: each got 6."""
    rows = [
        pod(gang, number, 2.0 if number < 6 else None, f"sim-{number % 3}" if number < 6 else None)
        for gang in range(2)
        for number in range(8)
    ]
    return PODS.frame(rows)


def test_the_deadlock_of_two_gangs_is_seen() -> None:
    found = build_gang_table(schedule([8, 8]), deadlock(), end_s=12.0)
    assert found["complete"].to_list() == [False, False]
    assert found["scheduled"].to_list() == [6, 6]
    assert found["running_end"].to_list() == [6, 6]
    assert found["held_gpu_s"].to_list() == [60.0, 60.0]
    last = build_gpu_timeline(schedule([8, 8]), deadlock(), nodes(3, 4), 12.0).row(-1, named=True)
    assert (last["capacity"], last["allocated"], last["waiting"], last["in_partial_gangs"]) == (12, 12, 4, 12)
    assert last["fragmentation"] is None  # nothing is free


def test_one_gang_after_the_other_is_no_deadlock() -> None:
    first = [pod(0, number, 2.0 + number / 10, f"sim-{number % 3}") for number in range(8)]
    second = [pod(1, number, None, None) for number in range(8)]
    found = build_gang_table(schedule([8, 8]), PODS.frame(first + second), end_s=12.0)
    assert found["complete"].to_list() == [True, False]
    assert found["scheduled"].to_list() == [8, 0]
    assert found["complete_s"].to_list() == [pytest.approx(2.7), None]
    # While it was filling up it held its GPUs: 0.7 + 0.6 + ... + 0.1 seconds of them.
    assert found["held_gpu_s"].to_list() == [pytest.approx(2.8), 0.0]


def test_gpus_come_back_when_pods_end() -> None:
    rows = [pod(0, 0, 2.0, "sim-0", ended_s=5.0), pod(1, 0, 6.0, "sim-0", ended_s=7.0)]
    found = build_gpu_timeline(schedule([1, 1], gang=False), PODS.frame(rows), nodes(1, 4), 10.0)

    def at(second: float) -> float:
        return found.filter(pl.col("at_s") <= second + 1e-9)["allocated"][-1]

    assert [at(one) for one in (1.5, 3.0, 5.5, 6.5, 9.0)] == [0, 1, 0, 1, 0]


def test_free_gpus_that_the_largest_pod_cannot_have_are_stranded() -> None:
    rows = [*[pod(0, number, 2.0, f"sim-{number}") for number in range(3)], pod(1, 0, None, None, gpus=4.0)]
    plan = pl.concat([schedule([3]), schedule([1], gpus=4.0).with_columns(index=pl.lit(1, dtype=pl.Int64))])
    last = build_gpu_timeline(plan, PODS.frame(rows), nodes(4, 4), 5.0).row(-1, named=True)
    # Three nodes have 3 free, one has 4: a pod of 4 fits on that one alone.
    assert (last["allocated"], last["stranded"], last["waiting"]) == (3, 9, 4)
    assert last["fragmentation"] == pytest.approx(9 / 13)


def test_a_run_without_gpus_has_no_timeline() -> None:
    assert build_gpu_timeline(schedule([1], gpus=0.0), PODS.frame([]), nodes(2, 0), 5.0).is_empty()


def eight(first: list[float], ended: float | None, rest: list[float]) -> pl.DataFrame:
    """Pods of a gang of eight, by when they were bound; the first of them end together."""
    times = [(at, ended) for at in first] + [(at, None) for at in rest]
    return PODS.frame([pod(0, n, at, f"sim-{n % 2}", ended_s=end) for n, (at, end) in enumerate(times)])


def test_pods_that_were_never_bound_together_are_no_complete_gang() -> None:
    pods = eight([2.0] * 5, 42.0, [43.0] * 3)
    (row,) = build_gang_table(schedule([8]), pods, end_s=53.0).to_dicts()
    assert (row["scheduled"], row["complete"], row["complete_s"], row["running_end"]) == (5, False, None, 3)
    assert row["held_gpu_s"] == pytest.approx(5 * 40 + 3 * 10)
    timeline = build_gpu_timeline(schedule([8]), pods, nodes(2, 4), 53.0)
    assert timeline["in_partial_gangs"].to_list() == timeline["allocated"].to_list()
    assert timeline["allocated"].max() == 5


def test_a_gang_is_complete_up_to_the_moment_at_which_the_first_ends() -> None:
    (row,) = build_gang_table(schedule([8]), eight([2.0] * 5, 42.0, [41.9] * 3), end_s=53.0).to_dicts()
    assert (row["scheduled"], row["complete"], row["complete_s"]) == (8, True, 41.9)
    (row,) = build_gang_table(schedule([8]), eight([2.0] * 5, 42.0, [42.0] * 3), end_s=53.0).to_dicts()
    assert (row["scheduled"], row["complete"]) == (5, False)


def test_a_gang_that_was_evicted_and_came_back_in_part_holds_gpus_again() -> None:
    pods = eight([2.0] * 8, 20.0, [30.0] * 5)
    (row,) = build_gang_table(schedule([8]), pods, end_s=40.0).to_dicts()
    assert (row["scheduled"], row["complete"], row["complete_s"], row["running_end"]) == (8, True, 2.0, 5)
    assert row["held_gpu_s"] == pytest.approx(50)
    last = build_gpu_timeline(schedule([8]), pods, nodes(2, 4), 40.0).row(-1, named=True)
    assert (last["allocated"], last["in_partial_gangs"]) == (5, 5)


def test_a_gang_that_came_and_went_while_nobody_watched_was_there() -> None:
    (row,) = build_gang_table(schedule([8]), eight([9.0] * 8, 9.0, []), end_s=12.0).to_dicts()
    assert (row["scheduled"], row["complete"], row["held_gpu_s"]) == (8, True, 0.0)


@pytest.mark.parametrize(("pods_per_s", "most", "complete"), [(0.1, 5, 0), (0.2, 8, 3)])
def test_a_scheduler_that_is_slower_than_its_pods_live_never_completes_a_gang(
    pods_per_s: float, most: int, complete: int, tmp_path: Path
) -> None:
    due = [0.0, 500.0, 1000.0]
    same: dict[str, Any] = {"pods": 8, "scheduled_per_s": pods_per_s, "lifetime_s": 40.0}
    found = analysis(Plan(due, gang=True, **same), tmp_path / "gangs")
    assert found.gangs["scheduled"].to_list() == [most] * 3
    assert found.gangs["complete"].to_list() == [bool(complete)] * 3
    assert f"{complete} of 3 gangs became complete" in found.explanation
    assert found.milestones.filter(pl.col("milestone") == "all scheduled").height == complete
    # The pods of a Job that is no gang do the same work one after the other.
    jobs = analysis(Plan(due, **same), tmp_path / "jobs")
    done = jobs.milestones.filter(pl.col("milestone") == "all scheduled")["client_s"]
    assert done.to_list() == pytest.approx([one + 8 / pods_per_s for one in due], abs=0.01)


def test_what_a_node_no_longer_offers_is_held_until_its_pods_end() -> None:
    rows = [pod(0, 0, 2.0, "sim-0", ended_s=6.0)]
    changes = NODE_CHANGES.frame(
        [
            {"at_s": 0.0, "name": "sim-0", "ready": True, "gpus": 4},
            {"at_s": 4.0, "name": "sim-0", "ready": True, "gpus": 0},
        ]
    )
    found = build_gpu_timeline(schedule([1], gang=False), PODS.frame(rows), nodes(1, 4), 10.0, changes)
    at = {second: found.filter(pl.col("at_s") <= second + 1e-9).row(-1, named=True) for second in (3.0, 5.0, 8.0)}
    assert [(one["capacity"], one["allocated"]) for one in at.values()] == [(4, 1), (1, 1), (0, 0)]
