"""The facts of one log, put together from its chunks in order, and handed on as rows as soon as they are final.

What is kept in memory is what is still open: running jobs, stages and SQL executions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.eventlog import tables
from workbench.eventlog.events import (
    ApplicationEnd,
    ApplicationStart,
    DriverUpdates,
    Environment,
    ExecutorAdded,
    ExecutorRemoved,
    JobEnd,
    JobStart,
    LogStart,
    Metric,
    SqlEnd,
    SqlMetrics,
    SqlStart,
    SqlUpdate,
    StageInfo,
)
from workbench.eventlog.fold import MAX_BAD_LINES, BadLine, ChunkFacts, StageCompleted, StageSubmitted
from workbench.eventlog.plans import Node, unpack
from workbench.eventlog.redact import Redactor
from workbench.eventlog.scrub import scrub
from workbench.eventlog.sink import Sink
from workbench.eventlog.sources import LogSource
from workbench.eventlog.stages import TOTALS, StageFacts, StageKey, StageTasks, Summary, close, summarize

NO_EVENT = "no event in it"
RAPIDS_PLUGIN, COMET_PLUGIN = "com.nvidia.spark.SQLPlugin", "org.apache.spark.CometPlugin"
STATISTICS = ("n", "min", "median", "p95", "max", "total")


@dataclass
class SqlState:
    """A SQL execution whose rows are not written yet."""

    sql_id: int
    start: SqlStart | None = None
    end: SqlEnd | None = None
    plans: list[list[Node]] = field(default_factory=list)
    loose: list[tuple[int, Metric]] = field(default_factory=list)
    driver: dict[int, int] = field(default_factory=dict)
    open_stages: int = 0
    # By accumulator: (stage id, compact values) of every stage that ran for this execution.
    values: dict[int, list[tuple[int, npt.NDArray[np.integer]]]] = field(default_factory=dict)
    ended_in_chunk: int | None = None


@dataclass
class StageState:
    """A stage attempt whose rows are not written yet."""

    info: StageInfo
    completed: bool = False
    scopes: tuple[str, ...] = ()


class Assembler:
    """Takes the chunks of one log in order (`take`), then its end (`finish`); rows go to the sink."""

    def __init__(self, log_id: int, source: LogSource, sink: Sink, redactor: Redactor) -> None:
        self.log_id, self.source, self.sink, self.redact = log_id, source, sink, redactor
        self.version = LogStart()
        self.start: ApplicationStart | None = None
        self.end: ApplicationEnd | None = None
        self.properties: dict[str, str] = {}
        self.environment: dict[tuple[str, str], str] = {}
        self.executors: dict[str, dict[str, Any]] = {}
        self.jobs: dict[int, dict[str, Any]] = {}
        self.stage_jobs: dict[int, list[int]] = {}
        self.stage_sql: dict[int, int] = {}
        self.stages: dict[StageKey, StageState] = {}
        self.tasks: dict[StageKey, StageTasks] = {}
        self.closed: set[StageKey] = set()
        self.sql: dict[int, SqlState] = {}
        self.sql_done: set[int] = set()
        self.last_ms = 0
        self.chunks = self.lines = self.bytes = self.events = self.bad = self.late = 0
        self.file, self.file_lines = -1, 0
        self.handlers: dict[type, Callable[[Any], None]] = {
            LogStart: self._log_start,
            ApplicationStart: self._application_start,
            ApplicationEnd: self._application_end,
            Environment: self._environment,
            ExecutorAdded: self._executor_added,
            ExecutorRemoved: self._executor_removed,
            JobStart: self._job_start,
            JobEnd: self._job_end,
            StageSubmitted: self._stage_submitted,
            StageCompleted: self._stage_completed,
            SqlStart: self._sql_start,
            SqlEnd: self._sql_end,
            SqlUpdate: self._sql_update,
            SqlMetrics: self._sql_metrics,
            DriverUpdates: self._driver_updates,
        }

    # --- one chunk -----------------------------------------------------------------------------------------------

    def take(self, facts: ChunkFacts) -> None:
        """Take in the next chunk of the log."""
        if facts.file != self.file:
            self.file, self.file_lines = facts.file, 0
        for bad in facts.bad:
            self._bad_line(bad)
        self.bad += facts.n_bad
        self.chunks += 1
        self.late += facts.late_task_ends
        for event in facts.events:
            self.handlers[type(event)](event)
        for stage in facts.closed:
            self._close_stage(stage)
        for key, tasks in facts.open.items():
            self._merge(key, tasks)
        self._write_finished()
        self.lines += facts.lines
        self.file_lines += facts.lines
        self.bytes += facts.bytes
        self.events += facts.decoded

    def _merge(self, key: StageKey, tasks: StageTasks) -> None:
        if key in self.closed:
            self.late += tasks.ended
            return
        if key in self.tasks:
            self.tasks[key].merge(tasks)
        else:
            self.tasks[key] = tasks
        if self.tasks[key].finished:
            self._close_stage(close(self.tasks.pop(key)))

    def _write_finished(self) -> None:
        for job_id in [job_id for job_id, job in self.jobs.items() if job["status"] != "running"]:
            self.sink.add(tables.JOBS.name, self.jobs.pop(job_id))
        for sql in list(self.sql.values()):
            # One chunk later, since the driver's last updates may come behind the end.
            if sql.ended_in_chunk is not None and sql.ended_in_chunk < self.chunks and not sql.open_stages:
                self._write_sql(sql)

    def _bad_line(self, bad: BadLine) -> None:
        if self.bad < MAX_BAD_LINES:
            self._add(
                tables.BAD_LINES.name,
                file=self.redact.path(self.source.files[self.file].url),
                line=self.file_lines + bad.line + 1,
                byte_offset=bad.offset,
                reason=bad.reason,
                text="" if self.redact.strict else bad.text,
            )

    def _add(self, table: str, **row: Any) -> None:
        self.sink.add(table, {"log_id": self.log_id, **row})

    def _seen(self, time_ms: int | None) -> int | None:
        if time_ms is not None and time_ms > self.last_ms:
            self.last_ms = time_ms
        return time_ms

    def _failure(self, kind: str, **row: Any) -> None:
        names = (
            "sql_id",
            "job_id",
            "stage_id",
            "stage_attempt_id",
            "task_id",
            "executor_id",
            "time_ms",
            "reason",
            "message",
        )
        full = dict.fromkeys(names) | row
        full["message"] = self.redact.message(full["message"]) or None
        full["reason"] = self.redact.message(full["reason"])
        full["executor_id"] = self.redact.label(full["executor_id"])
        self._add(tables.FAILURES.name, kind=kind, **full)

    # --- application ---------------------------------------------------------------------------------------------

    def _log_start(self, event: LogStart) -> None:
        self.version = event

    def _application_start(self, event: ApplicationStart) -> None:
        self.start = event
        self.redact.learn(event.user)
        self._seen(event.time_ms)

    def _application_end(self, event: ApplicationEnd) -> None:
        self.end = event
        self._seen(event.time_ms)

    def _environment(self, event: Environment) -> None:
        """The last update stands: jars that are added later send another one."""
        self.properties = _pairs(event.spark)
        self.redact.learn(self.properties.get("spark.driver.host"))
        self.environment = {
            (section, self.redact.property_name(name)): self.redact.property(name, value)
            for section, pairs in (("spark", self.properties), ("jvm", _pairs(event.jvm)))
            for name, value in pairs.items()
        }

    def _executor_added(self, event: ExecutorAdded) -> None:
        info = event.info
        self.redact.learn(info.host if info else None)
        executor_id = self.redact.label(event.id) or ""
        self.executors[executor_id] = {
            "executor_id": executor_id,
            "host": self.redact.name(info.host) if info else None,
            "total_cores": info.cores if info else None,
            "resource_profile_id": info.profile_id if info else None,
            "added_time_ms": self._seen(event.time_ms),
            "removed_time_ms": None,
            "removed_reason": None,
        }

    def _executor_removed(self, event: ExecutorRemoved) -> None:
        blank = dict.fromkeys(("host", "total_cores", "resource_profile_id", "added_time_ms"))
        executor_id = self.redact.label(event.id) or ""
        executor = self.executors.setdefault(executor_id, {"executor_id": executor_id, **blank})
        executor["removed_time_ms"] = self._seen(event.time_ms)
        executor["removed_reason"] = self.redact.message(event.reason or "")
        self._failure(
            "executor", executor_id=executor_id, time_ms=event.time_ms, reason="removed", message=event.reason
        )

    def _engine(self) -> str:
        plugins = self.properties.get("spark.plugins", "")
        if RAPIDS_PLUGIN in plugins and self.properties.get("spark.rapids.sql.enabled", "true") != "false":
            return "rapids"
        if COMET_PLUGIN in plugins and self.properties.get("spark.comet.enabled", "true") != "false":
            return "comet"
        return "spark"

    # --- jobs and stages -----------------------------------------------------------------------------------------

    def _job_start(self, event: JobStart) -> None:
        properties = event.properties or {}
        sql_id = _number(properties.get("spark.sql.execution.id"))
        for stage_id in event.stage_ids:
            self.stage_jobs.setdefault(stage_id, []).append(event.job_id)
            if sql_id is not None:
                self.stage_sql.setdefault(stage_id, sql_id)
        self.jobs[event.job_id] = self._job(event.job_id) | {
            "sql_id": sql_id,
            "submission_time_ms": self._seen(event.time_ms),
            "stage_ids": event.stage_ids,
            "job_group": self.redact.group(_string(properties.get("spark.jobGroup.id"))),
            "description": self.redact.text(_string(properties.get("spark.job.description"))),
        }

    def _job(self, job_id: int) -> dict[str, Any]:
        blank = dict.fromkeys(column.name for column in tables.JOBS.columns)
        return blank | {"log_id": self.log_id, "job_id": job_id, "status": "running", "stage_ids": []}

    def _job_end(self, event: JobEnd) -> None:
        job = self.jobs.setdefault(event.job_id, self._job(event.job_id))
        job["completion_time_ms"] = self._seen(event.time_ms)
        if job["submission_time_ms"] is not None and event.time_ms is not None:
            job["duration_ms"] = event.time_ms - job["submission_time_ms"]
        job["status"] = "succeeded" if event.result.get("Result") == "JobSucceeded" else "failed"
        if job["status"] == "failed":
            exception = event.result.get("Exception")
            message = _string(exception.get("Message")) if isinstance(exception, dict) else None
            job["error"] = self.redact.message(message or str(event.result.get("Result")))
            self._failure(
                "job",
                job_id=event.job_id,
                sql_id=job["sql_id"],
                time_ms=event.time_ms,
                reason="job failed",
                message=message,
            )

    def _stage_submitted(self, event: StageSubmitted) -> None:
        key = (event.info.stage_id, event.info.attempt_id)
        self._seen(event.info.submitted_ms)
        self._open_stage(key, event.info)

    def _open_stage(self, key: StageKey, info: StageInfo) -> StageState:
        if key not in self.stages:
            self.stages[key] = StageState(info)
            if (sql := self._sql_of(key)) is not None:
                sql.open_stages += 1
        return self.stages[key]

    def _sql_of(self, key: StageKey) -> SqlState | None:
        return self.sql.get(self.stage_sql.get(key[0], -1))

    def _stage_completed(self, event: StageCompleted) -> None:
        key = (event.info.stage_id, event.info.attempt_id)
        if key in self.closed:
            return
        stage = self._open_stage(key, event.info)
        stage.info, stage.completed, stage.scopes = event.info, True, event.scopes
        self._seen(event.info.completed_ms)

    def _close_stage(self, facts: StageFacts) -> None:
        key = facts.tasks.key
        stage = self.stages.pop(key, None)
        if key in self.closed:
            return
        self.closed.add(key)
        sql = self._sql_of(key)
        if stage is not None:
            if sql is not None:
                sql.open_stages -= 1
            self._write_stage(key, stage)
        self._write_tasks(key, facts)
        if sql is not None:
            for accumulator_id, values in facts.sql_values.items():
                sql.values.setdefault(accumulator_id, []).append((key[0], values))

    def _write_stage(self, key: StageKey, stage: StageState) -> None:
        info = stage.info
        status = "running" if not stage.completed else "failed" if info.failure is not None else "succeeded"
        known = info.submitted_ms is not None and info.completed_ms is not None
        self._add(
            tables.STAGES.name,
            stage_id=key[0],
            stage_attempt_id=key[1],
            sql_id=self.stage_sql.get(key[0]),
            job_ids=self.stage_jobs.get(key[0], []),
            name=self.redact.text(info.name),
            n_planned_tasks=info.tasks,
            submission_time_ms=info.submitted_ms,
            completion_time_ms=info.completed_ms,
            duration_ms=info.completed_ms - info.submitted_ms if known else None,  # type: ignore[operator]
            status=status,
            failure_reason=self.redact.message(info.failure or "") or None,
            parent_ids=info.parent_ids,
            scopes=[self.redact.label(scope) or "" for scope in stage.scopes],
        )
        if status == "failed":
            ids = {"stage_id": key[0], "stage_attempt_id": key[1], "sql_id": self.stage_sql.get(key[0])}
            self._failure("stage", **ids, time_ms=info.completed_ms, reason="stage failed", message=info.failure)

    def _write_tasks(self, key: StageKey, facts: StageFacts) -> None:
        tasks, duration = facts.tasks, facts.duration
        self._seen(tasks.last_finish_ms)
        ids = {"stage_id": key[0], "stage_attempt_id": key[1]}
        self._add(
            tables.STAGE_TASKS.name,
            **ids,
            n_tasks=tasks.ended,
            n_succeeded=tasks.succeeded,
            n_failed=tasks.failed,
            n_killed=tasks.killed,
            n_speculative=tasks.speculative,
            n_with_metrics=tasks.with_metrics,
            first_launch_time_ms=tasks.first_launch_ms,
            last_finish_time_ms=tasks.last_finish_ms,
            task_duration_min_ms=duration.min[0],
            task_duration_median_ms=duration.median[0],
            task_duration_p95_ms=duration.p95[0],
            task_duration_max_ms=duration.max[0],
            task_duration_total_ms=duration.total[0] if tasks.ended else None,
            failed_task_duration_total_ms=tasks.failed_duration_ms,
            peak_execution_memory_max_bytes=tasks.peak_memory_bytes,
            result_size_max_bytes=tasks.largest_result_bytes,
            **dict(zip(TOTALS, tasks.totals, strict=True)),
        )
        count = len(facts.accumulator_ids)
        self.sink.extend(
            tables.ACCUMULATORS.name,
            {
                "log_id": [self.log_id] * count,
                "stage_id": [key[0]] * count,
                "stage_attempt_id": [key[1]] * count,
                "accumulator_id": facts.accumulator_ids,
                "name": [self.redact.label(name) for name in facts.names],
                **_columns(facts.accumulators),
                "n_not_integer": facts.not_integer,
                "value_at_stage_end": facts.values_at_end,
            },
        )
        for task_id, time_ms, executor_id, reason, message in tasks.failures:
            sql_id = self.stage_sql.get(key[0])
            self._failure(
                "task",
                **ids,
                sql_id=sql_id,
                task_id=task_id,
                executor_id=executor_id,
                time_ms=time_ms,
                reason=reason,
                message=message,
            )

    # --- SQL -----------------------------------------------------------------------------------------------------

    def _sql_state(self, sql_id: int) -> SqlState | None:
        if sql_id in self.sql_done:
            self.late += 1
            return None
        return self.sql.setdefault(sql_id, SqlState(sql_id))

    def _sql_start(self, event: SqlStart) -> None:
        if (sql := self._sql_state(event.sql_id)) is not None:
            sql.start = event
            self._seen(event.time_ms)
            self._plan(sql, event.nodes)

    def _plan(self, sql: SqlState, nodes: bytes) -> None:
        if nodes:
            sql.plans.append(unpack(nodes))

    def _sql_update(self, event: SqlUpdate) -> None:
        if (sql := self._sql_state(event.sql_id)) is not None:
            self._plan(sql, event.nodes)

    def _sql_metrics(self, event: SqlMetrics) -> None:
        if (sql := self._sql_state(event.sql_id)) is not None:
            sql.loose += [(max(0, len(sql.plans) - 1), metric) for metric in event.metrics]

    def _driver_updates(self, event: DriverUpdates) -> None:
        if (sql := self._sql_state(event.sql_id)) is not None:
            for update in event.updates:
                if len(update) == 2 and type(update[0]) is int and (value := _number(update[1])) is not None:
                    sql.driver[update[0]] = sql.driver.get(update[0], 0) + value

    def _sql_end(self, event: SqlEnd) -> None:
        if (sql := self._sql_state(event.sql_id)) is not None:
            sql.end, sql.ended_in_chunk = event, self.chunks
            self._seen(event.time_ms)

    def _write_sql(self, sql: SqlState) -> None:
        del self.sql[sql.sql_id]
        self.sql_done.add(sql.sql_id)
        start, end = sql.start or SqlStart(sql.sql_id), sql.end
        error = end.error if end else None
        known = end is not None and end.time_ms is not None and start.time_ms is not None
        self._add(
            tables.SQL_EXECUTIONS.name,
            sql_id=sql.sql_id,
            root_sql_id=start.root_id,
            description=self.redact.text(start.description),
            start_time_ms=start.time_ms,
            end_time_ms=end.time_ms if end else None,
            duration_ms=end.time_ms - start.time_ms if known else None,  # type: ignore[union-attr,operator]
            status="running" if end is None else "failed" if error else "succeeded",
            error=self.redact.message(error) if error else None,
            n_plan_versions=len(sql.plans),
        )
        if error:
            self._failure(
                "sql", sql_id=sql.sql_id, time_ms=end.time_ms if end else None, reason="query failed", message=error
            )
        self._write_plans(sql)
        self._write_node_metrics(sql)

    def _write_plans(self, sql: SqlState) -> None:
        redact = self.redact
        columns = redact.columns(node for nodes in sql.plans for node in nodes)
        for version, nodes in enumerate(sql.plans):
            count = len(nodes)
            self.sink.extend(
                tables.PLAN_NODES.name,
                {
                    "log_id": [self.log_id] * count,
                    "sql_id": [sql.sql_id] * count,
                    "plan_version": [version] * count,
                    "is_final": [version == len(sql.plans) - 1] * count,
                    "node_id": [node.node_id for node in nodes],
                    "parent_ids": [node.parent_ids for node in nodes],
                    "codegen_id": [node.codegen_id for node in nodes],
                    "depth": [node.depth for node in nodes],
                    "node_name": [redact.label(node.name) for node in nodes],
                    "simple_string": [redact.plan(node.text, columns) for node in nodes],
                    "accumulator_ids": [[metric.accumulator_id for metric in node.metrics] for node in nodes],
                    "metadata": [self._metadata(node, columns) for node in nodes],
                },
            )

    def _metadata(self, node: Node, columns: frozenset[str]) -> str | None:
        if not node.metadata:
            return None
        clean = {scrub(name): self.redact.plan(str(value), columns) for name, value in node.metadata.items()}
        return json.dumps(clean)

    def _write_node_metrics(self, sql: SqlState) -> None:
        rows = _last_metrics(sql)
        found = [sql.values.get(row[3].accumulator_id, []) for row in rows]
        count = len(rows)
        self.sink.extend(
            tables.NODE_METRICS.name,
            {
                "log_id": [self.log_id] * count,
                "sql_id": [sql.sql_id] * count,
                "plan_version": [row[0] for row in rows],
                "node_id": [row[1] for row in rows],
                "node_name": [self.redact.label(row[2]) for row in rows],
                "accumulator_id": [row[3].accumulator_id for row in rows],
                "metric_name": [self.redact.label(row[3].name) for row in rows],
                "metric_type": [scrub(row[3].type) for row in rows],
                **_columns(summarize([_joined(values) for values in found])),
                "driver_value": [sql.driver.get(row[3].accumulator_id) for row in rows],
                "stage_ids": [sorted({stage_id for stage_id, _ in values}) for values in found],
            },
        )

    # --- the end -------------------------------------------------------------------------------------------------

    def finish(self, faults: list[str]) -> None:
        """The log is at its end: write what is still open, as it stands."""
        for key in sorted(self.tasks):
            self._close_stage(close(self.tasks.pop(key)))
        for key in sorted(self.stages):
            self._write_stage(key, self.stages.pop(key))
        for sql in list(self.sql.values()):
            self._write_sql(sql)
        for job_id in sorted(self.jobs):
            self.sink.add(tables.JOBS.name, self.jobs.pop(job_id))
        for (section, name), value in sorted(self.environment.items()):
            self._add(tables.ENVIRONMENT.name, section=section, name=name, value=value)
        for _, executor in sorted(self.executors.items()):
            self._add(tables.EXECUTORS.name, **executor)
        self._write_application(faults)
        self._write_log(faults)

    def _write_application(self, faults: list[str]) -> None:
        if not self.events:
            return
        start = self.start or ApplicationStart()
        end_ms = self.end.time_ms if self.end else None
        complete = end_ms is not None and start.time_ms is not None and not faults
        self._add(
            tables.APPLICATIONS.name,
            app_id=self.redact.label(start.id),
            attempt_id=self.redact.label(start.attempt_id),
            app_name=self.redact.text(start.name) or None,
            user=self.redact.name(start.user),
            spark_version=scrub(self.version.version) or None,
            engine=self._engine(),
            start_time_ms=start.time_ms,
            end_time_ms=end_ms,
            last_event_time_ms=self.last_ms or None,
            duration_ms=end_ms - start.time_ms if complete else None,  # type: ignore[operator]
            status="complete" if complete else "incomplete",
        )

    def _write_log(self, faults: list[str]) -> None:
        if not self.events:
            faults = [*faults, NO_EVENT]
        self._add(
            tables.LOGS.name,
            path=self.redact.path(self.source.path),
            codec=self.source.codec,
            n_files=len(self.source.files),
            input_bytes=self.source.size_bytes,
            content_bytes=self.bytes,
            n_lines=self.lines,
            n_events=self.events,
            n_bad_lines=self.bad,
            n_late_task_ends=self.late,
            fault="; ".join(map(self.redact.fault, faults)) or None,
        )


def _last_metrics(sql: SqlState) -> list[tuple[int, int | None, str | None, Metric]]:
    """(plan version, node id, node name, metric): each accumulator at the last version that has it.

    An adaptive subplan's metrics come without a node; one that a node has, too, is the node's.
    """
    newest: dict[int, list[tuple[int, int | None, str | None, Metric]]] = {}
    for version, nodes in enumerate(sql.plans):
        for node in nodes:
            for metric in node.metrics:
                rows = newest.setdefault(metric.accumulator_id, [])
                if rows and (rows[0][0] < version or rows[-1][1] == node.node_id):
                    rows.clear()
                rows.append((version, node.node_id, node.name, metric))
    for version, metric in sql.loose:
        newest.setdefault(metric.accumulator_id, [(version, None, None, metric)])
    return [row for rows in newest.values() for row in rows]


def _joined(values: list[tuple[int, npt.NDArray[np.integer]]]) -> npt.NDArray[np.int64]:
    if not values:
        return np.empty(0, dtype=np.int64)
    return np.concatenate([array.astype(np.int64) for _, array in values])


def _columns(summary: Summary) -> dict[str, list[Any]]:
    return {name: getattr(summary, name) for name in STATISTICS}


def _pairs(properties: object) -> dict[str, str]:
    """Properties as written by Spark 3 (an object) or earlier (a list of pairs)."""
    if isinstance(properties, dict):
        return {str(name): str(value) for name, value in properties.items()}
    if isinstance(properties, list):
        return {str(pair[0]): str(pair[1]) for pair in properties if isinstance(pair, list) and len(pair) == 2}
    return {}


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 20:
        return int(value)
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
