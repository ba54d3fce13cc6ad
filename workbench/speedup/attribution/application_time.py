"""Start and end of an application, and figures of its log that contradict them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

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

# The driver writes its own times and those of tasks; they differ by the delay of its event queue.
CLOCK_TOLERANCE_S = 1.0
# A task counts until the driver has its result, and its slot is free before that.
MAX_SLOT_USE = 1.05
# No Spark application started before: such a time stamp is none, or was edited. In epoch ms; 2009.
FIRST_SPARK_MS = 1_230_768_000_000
# A query may wait for the driver; a longer time without a stage, many times that of all tasks, is a clock that jumped.
MAX_WAIT_S, MAX_WAIT_SHARE = 6 * 3600.0, 10.0
# Columns that hold ends, and starts, of work. Executors are left out: they outlive the work, and clusters that are
# taken down or logs that are edited leave removals at any time.
WORK_ENDS = (
    ("sql_executions", "end_time_ms"),
    ("jobs", "completion_time_ms"),
    ("stages", "completion_time_ms"),
    ("stage_tasks", "last_finish_time_ms"),
)
WORK_STARTS = (
    ("sql_executions", "start_time_ms"),
    ("jobs", "submission_time_ms"),
    ("stages", "submission_time_ms"),
    ("stage_tasks", "first_launch_time_ms"),
)


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
    """Largest number of executors, and of cores, registered at one time.

    `executors`: `total_cores, added_time_ms, removed_time_ms`, null for one that stayed.
    """
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
    """Format the memory of `role` (driver or executor) by Spark's settings: the total and its parts.

    >>> settings = {"spark.executor.memory": "4g", "spark.executor.memoryOverhead": "512m"}
    >>> _format_memory(settings, "executor", off_heap=False)
    '4.5 GiB (heap 4 GiB + overhead 512 MiB)'
    """
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


@dataclass(frozen=True)
class ApplicationTime:
    """Start and end in epoch ms, null if unknown, and what in the log contradicts them.

    Without an end event, the end is that of the last SQL execution, job, stage or task.
    """

    start_ms: int | None
    end_ms: int | None
    contradictions: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float | None:
        """Time from start to end; null if either is unknown."""
        return None if self.start_ms is None or self.end_ms is None else (self.end_ms - self.start_ms) / 1e3


def read_application_time(facts: EventLogFacts, *, log_id: int | None = None) -> ApplicationTime:
    """Start and end of the application of a log.

    `log_id`: Log to read; null: the first.

    Returns: With `contradictions`, the wall time must not be used: its end lies before its start, work lies outside
    of it, a task is longer, the tasks need more slots than there were, their metrics more time than the tasks had, or
    a query waits for hours without a stage.
    """
    log_facts = facts.select_log(facts.logs["log_id"][0] if log_id is None else log_id)
    application = log_facts.applications.row(0, named=True)
    start_ms: int | None = application["start_time_ms"]
    last_work_ms = find_extreme_ms(log_facts, WORK_ENDS, latest=True)
    end_ms: int | None = application["end_time_ms"]
    if end_ms is None:
        end_ms = last_work_ms
    if start_ms is None or end_ms is None:
        return ApplicationTime(start_ms, end_ms)
    return ApplicationTime(start_ms, end_ms, tuple(_list_contradictions(log_facts, start_ms, end_ms, last_work_ms)))


def find_extreme_ms(facts: EventLogFacts, columns: tuple[tuple[str, str], ...], *, latest: bool) -> int | None:
    """Latest or earliest of the times in columns of tables; null if none is known."""
    times: list[Any] = []
    for table, column in columns:
        values = getattr(facts, table)[column]
        times.append(values.max() if latest else values.min())
    times_ms = [int(time) for time in times if time is not None]
    return (max(times_ms) if latest else min(times_ms)) if times_ms else None


def _list_contradictions(facts: EventLogFacts, start_ms: int, end_ms: int, last_work_ms: int | None) -> list[str]:
    """List the times of a log that cannot be true together, such as work before the application's start.

    `start_ms`, `end_ms`, `last_work_ms`: ms since 1970.
    """
    wall_s = (end_ms - start_ms) / 1e3
    if wall_s < 0:
        return [f"the application ends {-wall_s:,.1f} s before it starts"]
    contradictions = []
    first_work_ms = find_extreme_ms(facts, WORK_STARTS, latest=False)
    if first_work_ms is not None and start_ms < FIRST_SPARK_MS <= first_work_ms:
        contradictions.append(
            f"the application starts {(first_work_ms - start_ms) / 1e3:,.1f} s before its work, before Spark existed"
        )
    if first_work_ms is not None and (early_s := (start_ms - first_work_ms) / 1e3) > CLOCK_TOLERANCE_S:
        contradictions.append(f"work starts {early_s:,.1f} s before the application")
    if last_work_ms is not None and (late_s := (last_work_ms - end_ms) / 1e3) > CLOCK_TOLERANCE_S:
        contradictions.append(f"work ends {late_s:,.1f} s after the application")
    longest_ms, total_ms, run_ms = facts.stage_tasks.select(
        pl.col("task_duration_max_ms").max(),
        total=pl.col("task_duration_total_ms").sum(),
        run=pl.col("executor_run_time_ms").sum(),
    ).row(0)
    if run_ms / 1e3 > MAX_SLOT_USE * total_ms / 1e3 + CLOCK_TOLERANCE_S:
        contradictions.append(
            f"tasks ran for {run_ms / 1e3:,.1f} s by their metrics, for {total_ms / 1e3:,.1f} s by their times"
        )
    waiting_s = find_longest_wait(facts)
    if waiting_s > max(MAX_WAIT_S, MAX_WAIT_SHARE * run_ms / 1e3):
        contradictions.append(
            f"a query waits for {waiting_s:,.1f} s without a task at work: a clock jumped, or times were edited"
        )
    if (longest_s := (longest_ms or 0) / 1e3) > wall_s + CLOCK_TOLERANCE_S:
        contradictions.append(f"a task takes {longest_s:,.1f} s, the application {wall_s:,.1f} s")
    slot_s = sum_slot_seconds(facts, start_ms, end_ms, log_id=facts.logs["log_id"][0])
    if slot_s and total_ms and total_ms / 1e3 > MAX_SLOT_USE * slot_s + CLOCK_TOLERANCE_S:
        contradictions.append(f"tasks take {total_ms / 1e3:,.1f} s, all task slots together have {slot_s:,.1f} s")
    return contradictions


def find_longest_wait(facts: EventLogFacts) -> float:
    """Longest time, in s, that a query lasts while its tasks do nothing; 0 where none lasts for hours.

    Either no stage of the query runs, or one runs whose tasks took far less time by their own metrics than by their
    times.
    """
    queries = facts.sql_executions.filter(pl.col("duration_ms") > MAX_WAIT_S * 1e3)
    longest_ms = 0
    for sql_id, start_ms, end_ms in queries.select("sql_id", "start_time_ms", "end_time_ms").iter_rows():
        stages = facts.stages.filter(pl.col("sql_id") == sql_id)
        spans = stages.select("submission_time_ms", "completion_time_ms").drop_nulls().sort("submission_time_ms")
        reached_ms = start_ms
        for begin_ms, stop_ms in (*spans.iter_rows(), (end_ms, end_ms)):
            longest_ms = max(longest_ms, begin_ms - reached_ms)
            reached_ms = max(reached_ms, stop_ms)
        tasks = stages.join(facts.stage_tasks, on=["stage_id", "stage_attempt_id"])
        idle_ms = tasks.select((pl.col("task_duration_max_ms") - pl.col("executor_run_time_ms")).max()).item()
        longest_ms = max(longest_ms, idle_ms or 0)
    return longest_ms / 1e3
