"""Memory that tasks need: by the exchanges of the whole run, both sides of a join, over the memory of a task."""

from __future__ import annotations

import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.sampling.memory_needs import find_task_memory, measure_memory_needs

LOG = SAMPLES / "eventlogs" / "tpch_sf0.1.zstd"


def test_a_task_needs_its_part_of_both_sides_of_a_sorted_join() -> None:
    facts = read_event_logs(LOG)
    needs = measure_memory_needs(facts, 1 << 20)
    sql_id = facts.sql_executions.filter(description="q5 pass 0")["sql_id"][0]
    is_exchange = (pl.col("node_name") == "Exchange") & (pl.col("metric_name") == "data size")
    sizes = facts.node_metrics.filter(is_exchange, pl.col("sql_id") == sql_id)["total"].sort(descending=True)
    n_partitions = 6
    # The largest exchange at least, and at most as much as all of them.
    assert sizes[0] / n_partitions / (1 << 20) <= needs["q5 pass 0"] <= sizes.sum() / n_partitions / (1 << 20)
    halved = measure_memory_needs(facts, 2 << 20)
    assert halved == pytest.approx({name: need / 2 for name, need in needs.items()})


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
