"""The tables of a v24.08 profile that the seed scripts read, and four more, made from one log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from workbench.eventlog.events import TaskMetrics
from workbench.eventlog.scrub import scrub
from workbench.speedup.seed.applications import SeedApplication, StageRow
from workbench.speedup.seed.held import Accumulator, Query, Task, all_nodes
from workbench.speedup.seed.log import NS_PER_MS, SeedLog
from workbench.speedup.seed.numbers import percent, rounded
from workbench.speedup.seed.reads import is_rdd, problems, reads_of
from workbench.speedup.seed.scala_order import mutable

INDEX = 1


@dataclass(frozen=True)
class Text:
    """A cell that the original quotes."""

    text: str


@dataclass(frozen=True)
class Word:
    """A cell that the original does not quote."""

    text: str


Cell = Text | Word | int | float | bool | None
Table = tuple[tuple[str, ...], list[tuple[Cell, ...]]]


def tables(log: SeedLog) -> dict[str, Table]:
    """Header and rows by file name (without `.csv`), columns and order of rows as in v24.08.

    Durations are ms, sizes bytes, values of `nsTiming` metrics ns. Needs a log that was read with `keep_tasks`.
    """
    return {
        "application_information": _application(log),
        "job_information": _jobs(log),
        "sql_to_stage_information": _stages(log),
        "wholestagecodegen_mapping": _spans(log),
        "sql_plan_metrics_for_application": _metrics(log),
        "stage_level_aggregated_task_metrics": _stage_metrics(log),
        "sql_duration_and_executor_cpu_time_percent": _queries(log),
    }


def application(log: SeedLog) -> SeedApplication:
    """What the generator needs of a log, the same as if its profile had been written and read."""
    spans, metrics, stages = (make(log)[1] for make in (_spans, _metrics, _stages))
    end = log.profile_end_ms
    return SeedApplication(
        where=log.where,
        name=log.app_name,
        duration_ms=(end or log.start_ms) - log.start_ms,
        accelerated=log.accelerated,
        spans=tuple((_string(row[3]), _string(row[4])) for row in spans),
        span_times=tuple((_string(row[3]), _integer(row[9])) for row in metrics if _string(row[5]) == "duration"),
        stages=tuple(StageRow(None if row[5] is None else _integer(row[5]), _string(row[6])) for row in stages),
    )


def _string(cell: Cell) -> str:
    assert isinstance(cell, Text)
    return cell.text


def _integer(cell: Cell) -> int:
    assert isinstance(cell, int)
    return cell


def _application(log: SeedLog) -> Table:
    head = ("appIndex", "appName", "appId", "sparkUser", "startTime", "endTime", "duration", "durationStr")
    end = log.profile_end_ms
    duration = None if end is None else end - log.start_ms
    user = (log.start.user if log.start else None) or ""
    return (
        (*head, "sparkVersion", "pluginEnabled"),
        [
            (
                INDEX,
                Text(scrub(log.app_name)),
                Text(scrub(log.app_id)),
                Text(scrub(user)),
                log.start_ms,
                end,
                duration,
                Text("" if duration is None else spoken(duration)),
                Text(log.spark_version),
                log.gpu_mode,
            )
        ],
    )


def spoken(duration_ms: int) -> str:
    """A duration as Spark's UI writes it.

    Examples
    --------
    >>> spoken(119_990), spoken(622_619), spoken(850), spoken(12)
    ('2.0 min', '10 min', '0.9 s', '12 ms')
    """
    if duration_ms < 100:
        return f"{duration_ms} ms"
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{_fixed(seconds, 1 if seconds < 1 else 0)} s"
    minutes = seconds / 60
    if minutes < 60:
        return f"{_fixed(minutes, 1 if minutes < 10 else 0)} min"
    return f"{_fixed(minutes / 60, 1)} h"


def _fixed(value: float, places: int) -> str:
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _jobs(log: SeedLog) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (INDEX, job.job_id, Text(f"[{','.join(map(str, job.stage_ids))}]"), job.sql_id, job.start_ms, job.end_ms)
        for job in sorted(log.jobs.values(), key=lambda job: job.job_id)
    ]
    return ("appIndex", "jobID", "stageIds", "sqlID", "startTime", "endTime"), rows


def _in_order(log: SeedLog) -> list[Query]:
    return [log.queries[sql_id] for sql_id in sorted(log.queries)]


def _stages(log: SeedLog) -> Table:
    head = ("appIndex", "sqlID", "jobID", "stageId", "stageAttemptId", "Stage Duration", "SQL Nodes(IDs)")
    names: dict[int, list[tuple[list[int], str]]] = {
        query.sql_id: [(log.stages_of(node), f"{node.name}({node.node_id})") for node in all_nodes(query.nodes)]
        for query in log.queries.values()
    }
    rows: list[tuple[int, tuple[Cell, ...]]] = []
    # The original filters one hash table into another before it walks through it.
    for job_id in mutable(job_id for job_id in mutable(log.jobs) if log.jobs[job_id].sql_id is not None):
        job = log.jobs[job_id]
        for stage_id in job.stage_ids:
            for key in sorted(key for key in log.stages if key[0] == stage_id):
                nodes = ",".join(name for stages, name in names.get(job.sql_id or 0, []) if stage_id in stages)
                duration = log.stages[key].duration_ms
                order = -1 if duration is None else duration
                rows.append((order, (INDEX, job.sql_id, job_id, *key, duration, Text(scrub(nodes)))))
    return head, [row for _, row in sorted(rows, key=lambda row: -row[0])]


def _spans(log: SeedLog) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for query in _in_order(log):
        names = {node.node_id: node.name for node in query.nodes}
        members = [node for node in query.nodes if node.codegen_id is not None]
        for node in sorted(members, key=lambda node: (node.codegen_id or 0, node.node_id)):
            span = node.codegen_id or 0
            rows.append((INDEX, query.sql_id, span, Text(names[span]), Text(scrub(node.name)), node.node_id))
    return ("appIndex", "sqlID", "nodeID", "SQL Node", "Child Node", "Child NodeID"), rows


def _metrics(log: SeedLog) -> Table:
    head = ("appIndex", "sqlID", "nodeID", "nodeName", "accumulatorId", "name", "min", "median", "max", "total")
    rows: list[tuple[Cell, ...]] = []
    for query in _in_order(log):
        for node in sorted(query.nodes, key=lambda node: node.node_id):
            stages = Text(",".join(map(str, log.stages_of(node))))
            for metric in sorted(node.metrics, key=lambda metric: (metric.accumulator_id, metric.type)):
                found = _statistics(log, query, metric.accumulator_id)
                if found is not None:
                    name = Text(scrub(node.name))
                    about = (INDEX, query.sql_id, node.node_id, name, metric.accumulator_id, Text(scrub(metric.name)))
                    rows.append((*about, *found, Text(metric.type), stages))
    return (*head, "metricType", "stageIds"), rows


def _statistics(log: SeedLog, query: Query, accumulator_id: int) -> tuple[int, int, int, int] | None:
    """min, median (floored), max, total over tasks or of the driver's updates, whichever is larger in each."""
    tasks = log.accumulators.get(accumulator_id)
    driver = sorted(value for sql_id, value in log.driver.get(accumulator_id, []) if sql_id == query.sql_id)
    if tasks is None and not driver:
        return None
    of_tasks = _over_tasks(tasks)
    of_driver = (0, 0, 0, sum(driver))
    if len(driver) > 1:
        of_driver = (driver[0], driver[len(driver) // 2], driver[-1], sum(driver))
    low, median, high, total = (max(pair) for pair in zip(of_tasks, of_driver, strict=True))
    return low, median, high, total


def _over_tasks(accumulator: Accumulator | None) -> tuple[int, int, int, int]:
    values = sorted(accumulator.updates.values()) if accumulator else []
    if not values:
        return 0, 0, 0, 0
    middle = len(values) // 2
    # Integer division, and towards zero as Java has it.
    median = values[middle] if len(values) % 2 else int((values[middle] + values[middle - 1]) / 2)
    return values[0], median, values[-1], sum(values)


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
    ("sr_totalBytesRead_sum", lambda m: _read_bytes(m)),
    ("sw_bytesWritten_sum", lambda m: m.shuffle_write.bytes if m.shuffle_write else 0),
    ("sw_recordsWritten_sum", lambda m: m.shuffle_write.records if m.shuffle_write else 0),
    ("sw_writeTime_sum", lambda m: m.shuffle_write.time_ns // NS_PER_MS if m.shuffle_write else 0),
)


def _read_bytes(metrics: TaskMetrics) -> int:
    read = metrics.shuffle_read
    return read.remote_bytes + read.local_bytes if read else 0


def stage_sums(tasks: list[Task]) -> dict[str, int]:
    """Sums (and the two maxima) over the tasks of one stage attempt, by column."""
    return {
        name: (max if name.endswith("_max") else sum)([get(task.metrics) for task in tasks] or [0])
        for name, get in _SUMS
    }


def _last_attempts(log: SeedLog) -> dict[int, tuple[int, int]]:
    """The attempt that stands for each stage: the last one overwrites the others in the original's table."""
    return {key[0]: key for key in sorted(log.stages)}


def _stage_metrics(log: SeedLog) -> Table:
    head = ("appIndex", "stageId", "numTasks", "Duration", "diskBytesSpilled_sum", "duration_sum", "duration_max")
    rows: list[tuple[int, int, tuple[Cell, ...]]] = []
    for stage_id, key in _last_attempts(log).items():
        tasks = log.tasks.get(key, [])
        durations = [task.duration_ms for task in tasks] or [0]
        spilled = sum(task.metrics.disk_spilled_bytes for task in tasks)
        average = rounded(sum(durations), len(tasks), 1)
        duration = log.stages[key].duration_ms
        about = (INDEX, stage_id, len(tasks), Word("null") if duration is None else duration, spilled)
        spread = (sum(durations), max(durations), min(durations), average)
        rows.append((-(duration or 0), stage_id, (*about, *spread, *stage_sums(tasks).values())))
    ordered = [row for _, _, row in sorted(rows, key=lambda row: row[:2])]
    return (*head, "duration_min", "duration_avg", *(name for name, _ in _SUMS)), ordered


def _queries(log: SeedLog) -> Table:
    head = ("appIndex", "App ID", "RootSqlID", "sqlID", "SQL Duration", "Contains Dataset or RDD Op", "App Duration")
    end = log.profile_end_ms
    duration = 0 if end is None else end - log.start_ms
    rows: list[tuple[Cell, ...]] = []
    attempts = _last_attempts(log)
    for query in _in_order(log):
        nodes = all_nodes(query.nodes)
        found = ":".join(problems(nodes, reads_of(query, hive=log.hive))) or "null"
        about = (INDEX, Text(scrub(log.app_id)), query.root_id, query.sql_id, query.duration_ms)
        rdd = any(is_rdd(node) for node in nodes)
        rows.append((*about, rdd, duration, Text(found), _cpu_percent(log, query, attempts)))
    return (*head, "Potential Problems", "Executor CPU Time Percent"), rows


def _cpu_percent(log: SeedLog, query: Query, attempts: dict[int, tuple[int, int]]) -> Word | float:
    """CPU time in percent of run time over the query's stages; the word null where it has none that is known."""
    stage_ids = {stage_id for job in log.jobs.values() if job.sql_id == query.sql_id for stage_id in job.stage_ids}
    known = [stage_sums(log.tasks.get(attempts[stage_id], [])) for stage_id in stage_ids if stage_id in attempts]
    if not known:
        return Word("null")
    cpu, run = (sum(sums[name] for sums in known) for name in ("executorCPUTime_sum", "executorRunTime_sum"))
    return percent(cpu, run)
