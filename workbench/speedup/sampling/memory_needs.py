"""Memory that a task of each query needs for what it sorts and joins, beside what the candidate gives it.

A slice needs less by as much as it is smaller, so it never spills where the whole would. The baseline's own log tells
what its tasks had.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.attribution.application_time import parse_size

# What Spark keeps of a heap for itself, and the share of the rest that execution and storage have together.
# Source: spark.apache.org/docs/latest/tuning.html#memory-management-overview
_RESERVED_BYTES, _UNIFIED_SHARE = 300 << 20, "0.6"
# What an aggregate takes for its first row, if it may: the largest page of Spark's memory manager.
_PAGE_BYTES = 64 << 20


def find_task_memory(settings: Mapping[str, str], n_slots: int) -> int | None:
    """Memory of one task where all slots are taken; off the heap where the settings have it, null if unknown.

    >>> find_task_memory({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "4g"}, 2) >> 20
    2048
    """
    if settings.get("spark.memory.offHeap.enabled", "").lower() == "true":
        size = parse_size(settings.get("spark.memory.offHeap.size", ""))
    else:
        heap = parse_size(settings.get("spark.executor.memory", settings.get("spark.driver.memory", "")))
        share = float(settings.get("spark.memory.fraction", _UNIFIED_SHARE))
        size = None if heap is None else round(share * max(0, heap - _RESERVED_BYTES))
    return None if size is None else size // max(1, n_slots)


def measure_memory_needs(facts: EventLogFacts, memory_bytes: int) -> dict[str, float]:
    """What a task of each query had at most for sorts and aggregates in the logged run, over the memory elsewhere.

    What the run itself spilled is added, by the mean of its tasks. `facts`: Of one log of the whole run. Another engine
    holds rows in other forms, so a need near 1 tells little: docs/guide/speedup-measured.md.
    """
    is_sort = pl.col("node_name").str.starts_with("Sort")
    held = (
        facts.node_metrics.filter(pl.col("metric_name") == "peak memory")
        .explode("stage_ids")
        .group_by("sql_id", stage_id="stage_ids")
        .agg(held_bytes=(pl.col("max") - pl.when(is_sort).then(0).otherwise(_PAGE_BYTES)).clip(0).sum())
    )
    spilled = facts.stage_tasks.select(
        "stage_id", spilled_bytes=pl.col("memory_spilled_bytes").fill_null(0) / pl.col("n_tasks").clip(1)
    )
    needs = (
        held.join(spilled.group_by("stage_id").max(), on="stage_id", how="left")
        .join(facts.sql_executions.select("sql_id", "description"), on="sql_id")
        .filter(pl.col("description").is_not_null())
        .group_by("description")
        .agg(need=(pl.col("held_bytes") + pl.col("spilled_bytes").fill_null(0)).max() / max(1, memory_bytes))
    )
    return {query: need for query, need in needs.iter_rows() if need}
