"""Task slots by the resources of executors and of stages' tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import read_event_logs
from workbench.eventlog.task_slots import TaskSlots

Make = Callable[..., TaskSlots]


def executor(name: str, cores: int, added_ms: int = 0, profile: int = 0) -> dict[str, Any]:
    event = made.executor_added(name, cores=cores) | {"Timestamp": added_ms}
    event["Executor Info"]["Resource Profile Id"] = profile
    return event


def profile(number: int, executors: dict[str, float], tasks: dict[str, float]) -> dict[str, Any]:
    def request(amounts: dict[str, float]) -> dict[str, dict[str, Any]]:
        return {name: {"Resource Name": name, "Amount": amount} for name, amount in amounts.items()}

    return {
        "Event": "SparkListenerResourceProfileAdded",
        "Resource Profile Id": number,
        "Executor Resource Requests": request(executors),
        "Task Resource Requests": request(tasks),
    }


@pytest.fixture
def slots(tmp_path: Path) -> Make:
    def make(*events: dict[str, Any], **properties: str) -> TaskSlots:
        named = {name.replace("_", "."): value for name, value in properties.items()}
        content = made.dump(
            made.log_start(), made.environment(named), made.application_start(), *events, made.application_end()
        )
        (tmp_path / "log").write_bytes(content)
        return TaskSlots(read_event_logs(tmp_path / "log"), 0)

    return make


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, 16),
        ({"spark_task_cpus": "4"}, 4),
        ({"spark_task_cpus": "32"}, 1),
        ({"spark_executor_resource_gpu_amount": "1", "spark_task_resource_gpu_amount": "0.25"}, 4),
        ({"spark_executor_resource_gpu_amount": "2", "spark_task_resource_gpu_amount": "0.25"}, 8),
        ({"spark_executor_resource_gpu_amount": "4", "spark_task_resource_gpu_amount": "2"}, 2),
        ({"spark_task_resource_gpu_amount": "0.25"}, 16),
        ({"spark_task_cpus": "*********(redacted)"}, None),
    ],
    ids=[
        "cores",
        "cpus of a task",
        "more cpus than cores",
        "a quarter of a GPU",
        "of two",
        "two GPUs",
        "none",
        "redacted",
    ],
)
def test_an_executor_runs_as_many_tasks_as_its_scarcest_resource_allows(
    slots: Make, properties: dict[str, str], expected: int | None
) -> None:
    assert slots(executor("1", 16), **properties).find_peak() == (1, expected)


def test_a_profile_has_the_slots_of_its_own_executors_or_of_its_tasks_on_the_default_ones(slots: Make) -> None:
    events = (profile(0, {"cores": 8}, {"cpus": 1}), profile(1, {"cores": 4, "gpu": 1}, {"cpus": 1, "gpu": 0.5}))
    own = slots(*events, executor("1", 8), executor("2", 4, profile=1))
    assert own.find_peak() == (2, 10)
    assert [count for _, count in own.select_stage_executors(1)] == [2]
    shared = slots(profile(0, {"cores": 8}, {"cpus": 1}), profile(2, {}, {"cpus": 4}), executor("1", 8))
    assert [count for _, count in shared.select_stage_executors(2)] == [2]


def test_executors_that_come_and_go_count_while_they_live(slots: Make) -> None:
    there = slots(executor("1", 4), executor("2", 4, added_ms=3000), made.executor_removed("2") | {"Timestamp": 5000})
    assert there.find_peak() == (2, 8)
    assert there.sum_slot_seconds(0, 10_000) == 4 * 10 + 4 * 2
    stages = pl.DataFrame({"resource_profile_id": [0], "task_duration_total_ms": [24_000]})
    assert there.measure_use(stages, 0, 10_000) == pytest.approx(0.5)
    assert slots().find_peak() == (None, None)
    assert slots().measure_use(stages, 0, 10_000) is None


@pytest.mark.parametrize(
    ("addresses", "amount", "expected"),
    [(1, 0.3, 3), (2, 0.6, 2), (1, 1.0, 1), (3, 1.0, 3), (3, 2.0, 1), (1, 0.01, 16)],
)
def test_each_address_takes_the_whole_number_of_tasks_that_fit(
    slots: Make, addresses: int, amount: float, expected: int
) -> None:
    events = (profile(0, {"cores": 16, "gpu": addresses}, {"cpus": 1, "gpu": amount}), executor("1", 16))
    assert slots(*events).find_peak() == (1, expected)


def test_a_profile_that_the_log_tells_wins_over_the_settings(slots: Make) -> None:
    told = slots(profile(0, {"cores": 8}, {"cpus": 2}), executor("1", 8), spark_task_cpus="4")
    assert told.find_peak() == (1, 4)


def test_a_resource_of_ones_own_is_as_scarce_as_a_gpu(slots: Make) -> None:
    events = (profile(0, {"cores": 8, "fpga": 1}, {"cpus": 1, "fpga": 0.5}), executor("1", 8))
    assert slots(*events).find_peak() == (1, 2)


def test_the_peak_is_that_of_one_time_and_of_one_profile(slots: Make) -> None:
    there = slots(
        profile(0, {"cores": 4}, {"cpus": 1}),
        profile(1, {"cores": 8}, {"cpus": 1}),
        executor("1", 4),
        made.executor_removed("1") | {"Timestamp": 3000},
        executor("2", 4, added_ms=3000),
        executor("3", 8, added_ms=4000, profile=1),
    )
    # One leaves in the moment in which the next comes.
    assert there.find_peak() == (2, 12)
    assert there.find_peak(0) == (1, 4)
    assert there.find_peak(1) == (1, 8)


def test_slot_seconds_count_within_two_instants_only(slots: Make) -> None:
    there = slots(executor("1", 4, added_ms=2000), made.executor_removed("1") | {"Timestamp": 6000})
    assert there.sum_slot_seconds(0, 10_000) == 16
    assert there.sum_slot_seconds(3000, 5000) == 8
    assert there.sum_slot_seconds(7000, 9000) is None
    assert [one.clip_life(7000, 9000) for one in there.executors] == [(7000, 7000)]


def test_slots_are_null_where_what_a_task_takes_is_not_known(slots: Make) -> None:
    there = slots(executor("1", 4), spark_task_cpus="*********(redacted)")
    stages = pl.DataFrame({"resource_profile_id": [0], "task_duration_total_ms": [24_000]})
    assert [one.slots for one in there.executors] == [None]
    assert there.sum_slot_seconds(0, 10_000) is None
    assert there.measure_use(stages, 0, 10_000) is None


def test_a_stage_of_wide_tasks_uses_its_executor_with_fewer_of_them(slots: Make) -> None:
    there = slots(profile(0, {"cores": 8}, {"cpus": 1}), profile(2, {}, {"cpus": 4}), executor("1", 8))
    # 16 s of tasks of one core on 8 slots are 2 s, and 8 s of tasks of four cores on 2 slots are 4 s, of 10 s.
    stages = pl.DataFrame({"resource_profile_id": [0, 2, 2], "task_duration_total_ms": [16_000, 6000, 2000]})
    assert there.measure_use(stages, 0, 10_000) == pytest.approx(0.6)


def test_executors_of_a_profile_are_used_by_its_stages_alone(slots: Make) -> None:
    there = slots(
        profile(0, {"cores": 4}, {"cpus": 1}),
        profile(1, {"cores": 8}, {"cpus": 2}),
        executor("1", 4),
        executor("2", 8, profile=1),
    )
    stages = pl.DataFrame({"resource_profile_id": [0, 1], "task_duration_total_ms": [40_000, 0]})
    assert there.measure_use(stages, 0, 10_000) == pytest.approx(0.5)
    stages = pl.DataFrame({"resource_profile_id": [None, 1], "task_duration_total_ms": [20_000, 40_000]})
    assert there.measure_use(stages, 0, 10_000) == pytest.approx(0.75)
