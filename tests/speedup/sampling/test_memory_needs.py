"""Memory that tasks need: what they had in the logged run, over the memory of a task elsewhere."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.sampling.memory_needs import find_task_memory, measure_memory_needs

LOG = SAMPLES / "eventlogs" / "tpch_sf0.1.zstd"


def test_a_query_needs_the_most_that_one_of_its_tasks_had_and_what_it_spilled() -> None:
    facts = read_event_logs(LOG)
    sql_id = facts.sql_executions.filter(description="q5 pass 0")["sql_id"][0]
    held = facts.node_metrics.filter(pl.col("sql_id") == sql_id, pl.col("metric_name") == "peak memory")
    largest_sort = held.filter(pl.col("node_name").str.starts_with("Sort"))["max"].max()
    needs = measure_memory_needs(facts, 1 << 20)
    # The page of an aggregate is no need.
    assert largest_sort <= needs["q5 pass 0"] * (1 << 20) < held["max"].sum() - (64 << 20)
    halved = measure_memory_needs(facts, 2 << 20)
    assert halved == pytest.approx({name: need / 2 for name, need in needs.items()})
    spilled = facts.stage_tasks.with_columns(memory_spilled_bytes=pl.col("n_tasks") * (1 << 20))
    more = measure_memory_needs(replace(facts, stage_tasks=spilled), 1 << 20)
    assert more["q5 pass 0"] == pytest.approx(needs["q5 pass 0"] + 1)


@pytest.mark.parametrize(
    ("settings", "memory_mib"),
    [
        ({"spark.driver.memory": "4300m"}, 1200),
        ({"spark.driver.memory": "4300m", "spark.memory.fraction": "0.3"}, 600),
        ({"spark.driver.memory": "4g", "spark.executor.memory": "1300m"}, 300),
        ({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "2147483648"}, 1024),
        ({"spark.memory.offHeap.enabled": "false", "spark.driver.memory": "100m"}, 0),
        ({}, None),
    ],
)
def test_memory_of_a_task_is_that_of_its_slot(settings: dict[str, str], memory_mib: int | None) -> None:
    memory = find_task_memory(settings, 2)
    assert (None if memory is None else memory >> 20) == memory_mib
