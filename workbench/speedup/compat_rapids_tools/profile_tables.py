"""Tables of a v24.08 profile made from one log, and the applications that the scripts read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeVar

from workbench.core.errors import InputError
from workbench.eventlog.listener_events import TaskMetrics
from workbench.eventlog.log_redaction import remove_secrets
from workbench.speedup.compat_rapids_tools.format_support import is_rdd, list_problems, list_query_reads
from workbench.speedup.compat_rapids_tools.jvm_semantics import mutable_order, round_percent, round_ratio
from workbench.speedup.compat_rapids_tools.log_records import Job, Query, Task, list_nodes_in_order
from workbench.speedup.compat_rapids_tools.seed_log import NS_PER_MS, SeedLog

CODEGEN_PREFIX = "WholeStageCodegen"
# Sums over the tasks of a stage, in the order of the columns; nanoseconds are floored task by task.
_SUMS: tuple[tuple[str, Callable[[TaskMetrics], int]], ...] = (
    ("executorCPUTime_sum", lambda m: m.cpu_ns // NS_PER_MS),
    ("executorDeserializeCPUTime_sum", lambda m: m.deserialize_cpu_ns // NS_PER_MS),
    ("executorDeserializeTime_sum", lambda m: m.deserialize_ms),
    ("executorRunTime_sum", lambda m: m.run_ms),
    ("input_bytesRead_sum", lambda m: m.input.bytes if m.input else 0),
    ("input_recordsRead_sum", lambda m: m.input.records if m.input else 0),
    ("jvmGCTime_sum", lambda m: m.gc_ms),
    ("memoryBytesSpilled_sum", lambda m: m.memory_spilled_bytes),
    ("output_bytesWritten_sum", lambda m: m.output.bytes if m.output else 0),
    ("output_recordsWritten_sum", lambda m: m.output.records if m.output else 0),
    ("peakExecutionMemory_max", lambda m: m.peak_memory_bytes),
    ("resultSerializationTime_sum", lambda m: m.result_serialization_ms),
    ("resultSize_max", lambda m: m.result_bytes),
    ("sr_fetchWaitTime_sum", lambda m: m.shuffle_read.fetch_wait_ms if m.shuffle_read else 0),
    ("sr_localBlocksFetched_sum", lambda m: m.shuffle_read.local_blocks if m.shuffle_read else 0),
    ("sr_localBytesRead_sum", lambda m: m.shuffle_read.local_bytes if m.shuffle_read else 0),
    ("sr_remoteBlocksFetched_sum", lambda m: m.shuffle_read.remote_blocks if m.shuffle_read else 0),
    ("sr_remoteBytesRead_sum", lambda m: m.shuffle_read.remote_bytes if m.shuffle_read else 0),
    ("sr_remoteBytesReadToDisk_sum", lambda m: m.shuffle_read.remote_bytes_to_disk if m.shuffle_read else 0),
    (
        "sr_totalBytesRead_sum",
        lambda m: m.shuffle_read.remote_bytes + m.shuffle_read.local_bytes if m.shuffle_read else 0,
    ),
    ("sw_bytesWritten_sum", lambda m: m.shuffle_write.bytes if m.shuffle_write else 0),
    ("sw_recordsWritten_sum", lambda m: m.shuffle_write.records if m.shuffle_write else 0),
    ("sw_writeTime_sum", lambda m: m.shuffle_write.time_ns // NS_PER_MS if m.shuffle_write else 0),
)


@dataclass(frozen=True)
class StageRow:
    """A row of `sql_to_stage_information`: wall time of a stage for a job, and its operators as one text."""

    duration_ms: int | None
    nodes: str


@dataclass(frozen=True)
class SeedApplication:
    """One application as the generator sees it.

    `spans` are rows (codegen span, operator in it) over all queries, `span_times` rows (node, metric total) of the
    metrics called `duration`. Texts are as in the profile files, since the arithmetic cuts them at commas.
    """

    where: str
    name: str
    duration_ms: int
    accelerated: bool
    spans: tuple[tuple[str, str], ...]
    span_times: tuple[tuple[str, int], ...]
    stages: tuple[StageRow, ...]


def check_application_side(application: SeedApplication, *, accelerated: bool) -> SeedApplication:
    """The application; refuses an accelerated one on the CPU side, and a plain one on the accelerated side."""
    if application.accelerated == accelerated:
        return application
    run_kind = "an accelerated run" if application.accelerated else "a run without an accelerator plugin"
    raise InputError(
        f"{run_kind} on the {'accelerated' if accelerated else 'CPU'} side",
        where=application.where,
        found=f"application {application.name!r}",
        do="check that the two sides are not swapped",
    )


@dataclass(frozen=True)
class Bare:
    """A text that the original does not quote, as it quotes all others."""

    text: str


Cell = str | Bare | int | float | bool | None
Table = tuple[tuple[str, ...], list[tuple[Cell, ...]]]
Item = TypeVar("Item")
Columns = tuple[tuple[str, Callable[[Item], Cell]], ...]
"""Columns of a table: the name, and the cell of a row's item."""


def build_table(columns: Columns[Item], items: Iterable[Item]) -> Table:
    """The table with a row for each item."""
    return tuple(name for name, _ in columns), [tuple(get(item) for _, get in columns) for item in items]


def build_profile_tables(log: SeedLog) -> dict[str, Table]:
    """Header and rows by file name (without `.csv`), columns and order of rows as in v24.08.

    Durations are ms, sizes bytes, values of `nsTiming` metrics ns. Needs a log that was read with `keep_tasks`.
    """
    end = log.profile_end_ms
    duration = None if end is None else end - log.start_ms
    application: dict[str, Cell] = {
        "appName": remove_secrets(log.app_name),
        "appId": remove_secrets(log.app_id),
        "sparkUser": remove_secrets((log.start.user if log.start else None) or ""),
        "startTime": log.start_ms,
        "endTime": end,
        "duration": duration,
        "durationStr": "" if duration is None else format_ui_duration(duration),
        "sparkVersion": log.spark_version,
        "pluginEnabled": log.gpu_mode,
    }
    job: Columns[Job] = (
        ("jobID", lambda job: job.job_id),
        ("stageIds", lambda job: f"[{','.join(map(str, job.stage_ids))}]"),
        ("sqlID", lambda job: job.sql_id),
        ("startTime", lambda job: job.start_ms),
        ("endTime", lambda job: job.end_ms),
    )
    tables: dict[str, Table] = {
        "application_information": (tuple(application), [tuple(application.values())]),
        "job_information": build_table(job, [log.jobs[job_id] for job_id in sorted(log.jobs)]),
        "sql_to_stage_information": _stage_table(log),
        "wholestagecodegen_mapping": _codegen_table(log),
        "sql_plan_metrics_for_application": _metric_table(log),
        "stage_level_aggregated_task_metrics": _stage_metric_table(log),
        "sql_duration_and_executor_cpu_time_percent": _query_table(log),
    }
    # The number of the application, which is 1 in a folder of its own.
    return {name: (("appIndex", *head), [(1, *row) for row in rows]) for name, (head, rows) in tables.items()}


def build_seed_application(log: SeedLog) -> SeedApplication:
    """Build the generator's input from a log, the same as if its profile had been written and read."""
    spans, metrics, stages = (_list_cells(make(log)) for make in (_codegen_table, _metric_table, _stage_table))
    end = log.profile_end_ms
    return SeedApplication(
        where=log.where,
        name=log.app_name,
        duration_ms=(end or log.start_ms) - log.start_ms,
        accelerated=log.accelerated,
        spans=tuple((row["SQL Node"], row["Child Node"]) for row in spans),
        span_times=tuple((row["nodeName"], row["total"]) for row in metrics if row["name"] == "duration"),
        stages=tuple(StageRow(row["Stage Duration"], row["SQL Nodes(IDs)"]) for row in stages),
    )


def _list_cells(table: Table) -> Iterator[dict[str, Any]]:
    """The rows of a table, cells by name."""
    head, rows = table
    return (dict(zip(head, row, strict=True)) for row in rows)


def format_ui_duration(duration_ms: int) -> str:
    """A duration as Spark's UI writes it.

    >>> format_ui_duration(119_990), format_ui_duration(622_619), format_ui_duration(850), format_ui_duration(12)
    ('2.0 min', '10 min', '0.9 s', '12 ms')
    """
    if duration_ms < 100:
        return f"{duration_ms} ms"
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{_format_decimals(seconds, 1 if seconds < 1 else 0)} s"
    minutes = seconds / 60
    if minutes < 60:
        return f"{_format_decimals(minutes, 1 if minutes < 10 else 0)} min"
    return f"{_format_decimals(minutes / 60, 1)} h"


def _format_decimals(value: float, places: int) -> str:
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _sort_queries(log: SeedLog) -> list[Query]:
    return [log.queries[sql_id] for sql_id in sorted(log.queries)]


def _stage_table(log: SeedLog) -> Table:
    head = ("sqlID", "jobID", "stageId", "stageAttemptId", "Stage Duration", "SQL Nodes(IDs)")
    names: dict[int, list[tuple[list[int], str]]] = {
        query.sql_id: [
            (log.list_node_stages(node), f"{node.name}({node.node_id})") for node in list_nodes_in_order(query.nodes)
        ]
        for query in log.queries.values()
    }
    rows: list[tuple[int, tuple[Cell, ...]]] = []
    # The original filters one hash table into another before it walks through it.
    for job_id in mutable_order(job_id for job_id in mutable_order(log.jobs) if log.jobs[job_id].sql_id is not None):
        job = log.jobs[job_id]
        for stage_id in job.stage_ids:
            for key in sorted(key for key in log.stages if key[0] == stage_id):
                nodes = ",".join(name for stages, name in names.get(job.sql_id or 0, []) if stage_id in stages)
                duration = log.stages[key].duration_ms
                order = -1 if duration is None else duration
                cells = (job.sql_id, job_id, *key, duration, remove_secrets(nodes))
                rows.append((order, cells))
    return head, [row for _, row in sorted(rows, key=lambda row: -row[0])]


def _codegen_table(log: SeedLog) -> Table:
    head = ("sqlID", "nodeID", "SQL Node", "Child Node", "Child NodeID")
    rows: list[tuple[Cell, ...]] = []
    for query in _sort_queries(log):
        names = {node.node_id: node.name for node in query.nodes}
        members = [(node.codegen_id, node) for node in query.nodes if node.codegen_id is not None]
        for span, node in sorted(members, key=lambda member: (member[0], member[1].node_id)):
            child = remove_secrets(node.name)
            rows.append((query.sql_id, span, names[span], child, node.node_id))
    return head, rows


def _metric_table(log: SeedLog) -> Table:
    head = ("sqlID", "nodeID", "nodeName", "accumulatorId", "name", "min", "median", "max", "total")
    rows: list[tuple[Cell, ...]] = []
    for query in _sort_queries(log):
        for node in sorted(query.nodes, key=lambda node: node.node_id):
            stages, name = ",".join(map(str, log.list_node_stages(node))), remove_secrets(node.name)
            for metric in sorted(node.metrics, key=lambda metric: (metric.accumulator_id, metric.type)):
                statistics = _accumulator_statistics(log, query, metric.accumulator_id)
                if statistics is not None:
                    about = (query.sql_id, node.node_id, name, metric.accumulator_id)
                    rows.append((*about, remove_secrets(metric.name), *statistics, metric.type, stages))
    return (*head, "metricType", "stageIds"), rows


def _accumulator_statistics(log: SeedLog, query: Query, accumulator_id: int) -> tuple[int, int, int, int] | None:
    """Minimum, median (rounded down), maximum and total over tasks or driver updates, whichever is larger.

    Null if none.
    """
    tasks = log.accumulators.get(accumulator_id)
    driver = sorted(value for sql_id, value in log.driver.get(accumulator_id, []) if sql_id == query.sql_id)
    if tasks is None and not driver:
        return None
    of_tasks = (0, 0, 0, 0)
    if tasks is not None and (values := sorted(tasks.updates.values())):
        middle = len(values) // 2
        # Integer division, and towards zero as Java has it.
        median = values[middle] if len(values) % 2 else int((values[middle] + values[middle - 1]) / 2)
        of_tasks = (values[0], median, values[-1], sum(values))
    of_driver = (0, 0, 0, sum(driver))
    if len(driver) > 1:
        of_driver = (driver[0], driver[len(driver) // 2], driver[-1], sum(driver))
    low, middle, high, total = (max(pair) for pair in zip(of_tasks, of_driver, strict=True))
    return low, middle, high, total


def sum_stage_metrics(tasks: list[Task]) -> dict[str, int]:
    """Sums (and the two maxima) over the tasks of one stage attempt, by column."""
    return {
        name: (max if name.endswith("_max") else sum)([get(task.metrics) for task in tasks] or [0])
        for name, get in _SUMS
    }


def _find_last_attempts(log: SeedLog) -> dict[int, tuple[int, int]]:
    """The attempt that stands for each stage: the last one overwrites the others in the original's table."""
    return {key[0]: key for key in sorted(log.stages)}


def _stage_metric_table(log: SeedLog) -> Table:
    head = ("stageId", "numTasks", "Duration", "diskBytesSpilled_sum", "duration_sum", "duration_max")
    rows: list[tuple[int, int, tuple[Cell, ...]]] = []
    for stage_id, key in _find_last_attempts(log).items():
        tasks = log.tasks.get(key, [])
        durations = [task.duration_ms for task in tasks] or [0]
        spilled = sum(task.metrics.disk_spilled_bytes for task in tasks)
        average = round_ratio(sum(durations), len(tasks), 1)
        duration = log.stages[key].duration_ms
        about = (stage_id, len(tasks), Bare("null") if duration is None else duration, spilled)
        spread = (sum(durations), max(durations), min(durations), average)
        rows.append((-(duration or 0), stage_id, (*about, *spread, *sum_stage_metrics(tasks).values())))
    ordered = [row for _, _, row in sorted(rows, key=lambda row: row[:2])]
    return (*head, "duration_min", "duration_avg", *(name for name, _ in _SUMS)), ordered


def _query_table(log: SeedLog) -> Table:
    head = ("App ID", "RootSqlID", "sqlID", "SQL Duration", "Contains Dataset or RDD Op", "App Duration")
    end = log.profile_end_ms
    duration = 0 if end is None else end - log.start_ms
    rows: list[tuple[Cell, ...]] = []
    attempts = _find_last_attempts(log)
    for query in _sort_queries(log):
        nodes = list_nodes_in_order(query.nodes)
        problems = ":".join(list_problems(nodes, list_query_reads(query, hive=log.hive))) or "null"
        about = (remove_secrets(log.app_id), query.root_id, query.sql_id, query.duration_ms)
        rdd = any(is_rdd(node) for node in nodes)
        rows.append((*about, rdd, duration, problems, _query_cpu_percent(log, query, attempts)))
    return (*head, "Potential Problems", "Executor CPU Time Percent"), rows


def _query_cpu_percent(log: SeedLog, query: Query, attempts: dict[int, tuple[int, int]]) -> Bare | float:
    """CPU time in percent of run time over the query's stages; the text null if no stage is known."""
    stage_ids = {stage_id for job in log.jobs.values() if job.sql_id == query.sql_id for stage_id in job.stage_ids}
    stage_sums = [
        sum_stage_metrics(log.tasks.get(attempts[stage_id], [])) for stage_id in stage_ids if stage_id in attempts
    ]
    if not stage_sums:
        return Bare("null")
    cpu, run = (sum(sums[name] for sums in stage_sums) for name in ("executorCPUTime_sum", "executorRunTime_sum"))
    return round_percent(cpu, run)
