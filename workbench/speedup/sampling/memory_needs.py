"""Memory that a task of each query needs for what it sorts and joins, beside what the candidate gives it.

A slice needs less by as much as it is smaller, so it never spills where the whole would. The baseline's own log tells
the size of what each exchange carried.
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.advice.join_sides import iterate_shuffled_joins, read_exchange_sizes
from workbench.speedup.attribution.application_time import parse_size, read_properties

# What Spark keeps of a heap for itself, and the share of the rest that execution and storage have together.
# Source: spark.apache.org/docs/latest/tuning.html#memory-management-overview
_RESERVED_BYTES, _UNIFIED_SHARE = 300 << 20, "0.6"
_DEFAULT_PARTITIONS = "200"


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
    """What a task of each query needs at most for the exchanges that it reads, over the memory that it has.

    Of a join that sorts, both sides count. `facts`: Of one log of the whole run. Partitions are taken to be even.
    """
    settings = read_properties(facts, facts.logs["log_id"][0], "spark")
    n_partitions = int(settings.get("spark.sql.shuffle.partitions", _DEFAULT_PARTITIONS))
    sizes = read_exchange_sizes(facts)
    needs: dict[int, int] = {}
    for (sql_id, _), size in sizes.items():
        needs[sql_id] = max(needs.get(sql_id, 0), size)
    for join in iterate_shuffled_joins(facts):
        both = sum(sizes.get((join.sql_id, path[-1]), 0) for path in join.paths if path)
        needs[join.sql_id] = max(needs.get(join.sql_id, 0), both)
    found: dict[str, float] = {}
    for sql_id, name in facts.sql_executions.select("sql_id", "description").iter_rows():
        if name is not None and sql_id in needs:
            found[name] = max(found.get(name, 0.0), needs[sql_id] / n_partitions / max(1, memory_bytes))
    return found
