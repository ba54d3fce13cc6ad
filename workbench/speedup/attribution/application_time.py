"""Start and end of an application, and figures of its log that contradict them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.core.formats import format_bytes
from workbench.eventlog.completeness import CLOCK
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.task_slots import TaskSlots
from workbench.eventlog.wall_time import WallTime, account_wall_time

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
# A task that lasts for hours, and many times as long as all tasks ran by their own metrics, is a clock that jumped; as
# is a stage that ends hours after its last task, or a job that begins or ends hours apart from its stages.
MAX_IDLE_TASK_S, MAX_IDLE_SHARE = 6 * 3600.0, 10.0
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
    spark, java = (read_properties(facts, log_id, section) for section in ("spark", "jvm"))
    version = next(iter(facts.applications.filter(pl.col("log_id") == log_id)["spark_version"]), None)
    n_executors, task_slots = TaskSlots(facts, log_id).find_peak()
    local = spark.get("spark.master", "").startswith("local")
    # The master without host and port, which differ between clusters of one kind.
    master = spark.get("spark.master")
    return SessionSettings(
        task_slots=task_slots,
        n_executors=n_executors,
        executor_memory="in the driver" if local else _format_memory_settings(spark, "executor", off_heap=True),
        driver_memory=_format_memory_settings(spark, "driver", off_heap=local),
        master=UNKNOWN if master is None else re.sub(r"://.*", "", master),
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


def parse_size(text: str | None) -> int | None:
    """Bytes of a size as Spark's settings write it; null for other text.

    >>> parse_size("4g"), parse_size("10485760b"), parse_size("10MB"), parse_size("much")
    (4294967296, 10485760, 10485760, None)
    """
    match = re.fullmatch(r"\s*(-?\d{1,18})\s*([a-z]{0,2})\s*", (text or "").lower())
    if match is None or match[2] not in _UNITS:
        return None
    return int(match[1]) << 10 * _UNITS[match[2]]


def read_properties(facts: EventLogFacts, log_id: int, section: str) -> dict[str, str]:
    """Properties of a section by name."""
    properties = facts.environment.filter(pl.col("log_id") == log_id, pl.col("section") == section)
    return dict(properties.select("name", "value").iter_rows())


def _format_memory_settings(spark: dict[str, str], role: str, *, off_heap: bool) -> str:
    """Format the memory of `role` (driver or executor) by Spark's settings: the total and its parts.

    >>> settings = {"spark.executor.memory": "4g", "spark.executor.memoryOverhead": "512m"}
    >>> _format_memory_settings(settings, "executor", off_heap=False)
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


def _format_threshold(text: str) -> str:
    value = parse_size(text)
    return text if value is None else "off" if value < 0 else format_bytes(value)


def _is_enabled(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"


def _has_adaptive_default(version: str | None) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])
    return not numbers or numbers >= _ADAPTIVE_SINCE


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

    def account(self, facts: EventLogFacts) -> WallTime | None:
        """What each second was; null where the start, the end or the clock is not known. `facts`: Of this log."""
        if self.start_ms is None or self.end_ms is None or self.contradictions:
            return None
        return account_wall_time(facts, self.start_ms, self.end_ms)


def read_application_time(facts: EventLogFacts, *, log_id: int | None = None) -> ApplicationTime:
    """Start and end of the application of a log.

    `log_id`: Log to read; null: the first.

    Returns: With `contradictions`, the wall time must not be used: its end lies before its start, work lies outside
    of it, a task is longer, the tasks need more slots than there were, their metrics more time than the tasks had, or
    something ends before it starts.
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
    idle_task_s = (
        facts.stage_tasks.select((pl.col("task_duration_max_ms") - pl.col("executor_run_time_ms")).max()).item() or 0
    ) / 1e3
    if idle_task_s > max(MAX_IDLE_TASK_S, MAX_IDLE_SHARE * run_ms / 1e3):
        contradictions.append(
            f"a task lasts {idle_task_s:,.1f} s beyond its run time: a clock jumped, or times were edited"
        )
    # Sentences on what ends before it starts: a clock went back meanwhile.
    shortest = {
        "a task": facts.stage_tasks["task_duration_min_ms"].min(),
        "a stage": facts.stages["duration_ms"].min(),
        "a query": facts.sql_executions["duration_ms"].min(),
        "a job": facts.jobs["duration_ms"].min(),
    }
    backward_times = [
        f"{name} ends {-ms / 1e3:,.1f} s before it starts: a clock went back"
        for name, ms in shortest.items()
        if isinstance(ms, int) and ms < 0
    ]
    contradictions += [*backward_times, *_list_late_ends(facts)]
    contradictions += [
        f"the driver's clock was set back by {subject}: {evidence}"
        for subject, evidence in facts.completeness.filter(kind=CLOCK).select("subject", "evidence").iter_rows()
    ]
    if (longest_s := (longest_ms or 0) / 1e3) > wall_s + CLOCK_TOLERANCE_S:
        contradictions.append(f"a task takes {longest_s:,.1f} s, the application {wall_s:,.1f} s")
    slots = TaskSlots(facts, facts.logs["log_id"][0])
    slot_s = slots.sum_slot_seconds(start_ms, end_ms)
    stages = facts.join_stage_tasks()
    use = slots.measure_use(stages, start_ms, end_ms)
    if slot_s and use is not None and use > MAX_SLOT_USE + CLOCK_TOLERANCE_S / slot_s:
        contradictions.append(f"tasks take {total_ms / 1e3:,.1f} s, all task slots together have {slot_s:,.1f} s")
    return contradictions


def _list_late_ends(facts: EventLogFacts) -> list[str]:
    """Sentences on stages and jobs that go on for hours beyond their tasks; queries may, while a client fetches."""
    stages = facts.join_stage_tasks()
    of_jobs = (
        stages.explode("job_ids")
        .group_by(job_id="job_ids")
        .agg(
            first_ms=pl.min_horizontal("submission_time_ms", "first_launch_time_ms").min(),
            last_ms=pl.col("completion_time_ms").max(),
        )
    )
    jobs = facts.jobs.join(of_jobs, on="job_id")
    apart = {
        "a stage ends {:,.1f} s after its last task": stages.select(
            (pl.col("completion_time_ms") - pl.col("last_finish_time_ms")).max()
        ),
        "a job begins {:,.1f} s before its first stage": jobs.select(
            (pl.col("first_ms") - pl.col("submission_time_ms")).max()
        ),
        "a job ends {:,.1f} s after its last stage": jobs.select(
            (pl.col("completion_time_ms") - pl.col("last_ms")).max()
        ),
    }
    found = {text: (gap.item() or 0) / 1e3 for text, gap in apart.items()}
    return [
        f"{text.format(gap_s)}: a clock jumped, or times were edited"
        for text, gap_s in found.items()
        if gap_s > MAX_IDLE_TASK_S
    ]
