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
