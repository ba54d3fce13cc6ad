"""Spark settings of a session that influence its times, read from the event log."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from workbench.core.formats import format_bytes
from workbench.eventlog.reader import EventLogFacts

_UNITS = {"": 0, "b": 0, "k": 1, "kb": 1, "m": 2, "mb": 2, "g": 3, "gb": 3, "t": 4, "tb": 4, "p": 5, "pb": 5}
# Caches of input files, each with the property that turns it on.
_FILE_CACHES = {
    "Databricks disk cache": "spark.databricks.io.cache.enabled",
    "RAPIDS file cache": "spark.rapids.filecache.enabled",
    "Alluxio": "spark.rapids.alluxio.automount.enabled",
}
_ADAPTIVE_SINCE = (3, 2)
UNKNOWN = "not in the log"


@dataclass(frozen=True)
class SessionSettings:
    """Settings of one session as text, with Spark's defaults; null where the log does not hold them."""

    task_slots: int | None
    n_executors: int | None
    executor_memory: str
    driver_memory: str
    master: str
    shuffle_partitions: str
    broadcast_threshold: str
    adaptive: str
    spark_version: str
    java_version: str
    file_cache: str


def read_session_settings(facts: EventLogFacts, *, log_id: int = 0) -> SessionSettings:
    """Settings that one session ran with.

    Returns: Slots and executors at their peak. Memory is heap plus off-heap (where enabled) plus an explicit
    overhead; a local master runs its tasks in the driver, so off-heap memory counts there.
    """
    spark, java = (_read_properties(facts, log_id, section) for section in ("spark", "jvm"))
    version = next(iter(facts.applications.filter(pl.col("log_id") == log_id)["spark_version"]), None)
    n_executors, cores = _find_peak_executors(facts.executors.filter(pl.col("log_id") == log_id))
    cpus = _cores_per_task(spark)
    local = spark.get("spark.master", "").startswith("local")
    return SessionSettings(
        task_slots=cores // cpus if cores else None,
        n_executors=n_executors,
        executor_memory="in the driver" if local else _format_memory(spark, "executor", off_heap=True),
        driver_memory=_format_memory(spark, "driver", off_heap=local),
        master=_format_master(spark.get("spark.master")),
        shuffle_partitions=spark.get("spark.sql.shuffle.partitions", "200"),
        broadcast_threshold=_format_threshold(spark.get("spark.sql.autoBroadcastJoinThreshold", "10485760")),
        adaptive="on"
        if _is_enabled(spark.get("spark.sql.adaptive.enabled"), _has_adaptive_default(version))
        else "off",
        spark_version=version or UNKNOWN,
        java_version=java.get("Java Version", UNKNOWN),
        file_cache=", ".join(name for name, key in _FILE_CACHES.items() if _is_enabled(spark.get(key), False))
        or "none",
    )


def sum_slot_seconds(facts: EventLogFacts, start_ms: int, end_ms: int, *, log_id: int = 0) -> float | None:
    """Slot time between two instants, summed over all slots, in s; null if no slots are known.

    Each executor counts from its registration to its removal.
    """
    first = pl.max_horizontal(pl.col("added_time_ms").fill_null(start_ms), pl.lit(start_ms))
    last = pl.min_horizontal(pl.col("removed_time_ms").fill_null(end_ms), pl.lit(end_ms))
    core_ms = ((last - first).clip(0) * pl.col("total_cores").fill_null(0)).sum()
    total_core_ms = int(facts.executors.filter(pl.col("log_id") == log_id).select(core_ms).item())
    return total_core_ms / 1e3 / _cores_per_task(_read_properties(facts, log_id, "spark")) or None


def parse_size(text: str | None) -> int | None:
    """Bytes of a size as Spark's settings write it; null for other text.

    >>> parse_size("4g"), parse_size("10485760b"), parse_size("10MB"), parse_size("much")
    (4294967296, 10485760, 10485760, None)
    """
    match = re.fullmatch(r"\s*(-?\d{1,18})\s*([a-z]{0,2})\s*", (text or "").lower())
    if match is None or match[2] not in _UNITS:
        return None
    return int(match[1]) << 10 * _UNITS[match[2]]


def _find_peak_executors(executors: pl.DataFrame) -> tuple[int | None, int | None]:
    """Largest number of executors, and of cores, registered at one time."""
    if not executors.height:
        return None, None
    moves = []
    for cores, added, removed in executors.select("total_cores", "added_time_ms", "removed_time_ms").iter_rows():
        moves.append((added or 0, 1, cores or 0))
        if removed is not None:
            moves.append((removed, -1, -(cores or 0)))
    count = cores_now = peak_count = most_cores = 0
    for _, step, cores in sorted(moves):
        count, cores_now = count + step, cores_now + cores
        peak_count, most_cores = max(peak_count, count), max(most_cores, cores_now)
    return peak_count, most_cores or None


def _read_properties(facts: EventLogFacts, log_id: int, section: str) -> dict[str, str]:
    """Properties of a section by name."""
    properties = facts.environment.filter(pl.col("log_id") == log_id, pl.col("section") == section)
    return dict(properties.select("name", "value").iter_rows())


def _cores_per_task(spark: dict[str, str]) -> int:
    return _parse_whole_number(spark.get("spark.task.cpus")) or 1


def _format_memory(spark: dict[str, str], role: str, *, off_heap: bool) -> str:
    heap = spark.get(f"spark.{role}.memory", "1g")
    parts = [("heap", parse_size(heap if heap[-1:].isalpha() else f"{heap}m"))]
    if off_heap and _is_enabled(spark.get("spark.memory.offHeap.enabled"), False):
        parts.append(("off-heap", parse_size(spark.get("spark.memory.offHeap.size"))))
    overhead = spark.get(f"spark.{role}.memoryOverhead")
    if overhead:
        parts.append(("overhead", parse_size(overhead if overhead[-1:].isalpha() else f"{overhead}m")))
    sizes = [(name, value) for name, value in parts if value]
    if not sizes:
        return UNKNOWN
    total = format_bytes(sum(value for _, value in sizes))
    return (
        total
        if len(sizes) == 1
        else f"{total} ({' + '.join(f'{name} {format_bytes(value)}' for name, value in sizes)})"
    )


def _format_master(master: str | None) -> str:
    """The master without host and port, which differ between clusters of one kind."""
    return UNKNOWN if master is None else re.sub(r"://.*", "", master)


def _format_threshold(text: str) -> str:
    value = parse_size(text)
    return text if value is None else "off" if value < 0 else format_bytes(value)


def _is_enabled(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"


def _has_adaptive_default(version: str | None) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])
    return not numbers or numbers >= _ADAPTIVE_SINCE


def _parse_whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None
