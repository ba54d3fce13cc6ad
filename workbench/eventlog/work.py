"""Jobs and stages: when they ran, what their tasks added up to, why they failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.eventlog import tables
from workbench.eventlog.events import JobEnd, JobStart, StageInfo
from workbench.eventlog.fold import StageCompleted, StageSubmitted, as_integer
from workbench.eventlog.queries import Queries
from workbench.eventlog.rows import Rows, statistics, string, within_64_bits
from workbench.eventlog.stages import TOTALS, StageFacts, StageKey, StageTasks, close


@dataclass
class StageState:
    """A stage attempt whose rows are not written yet."""

    info: StageInfo
    completed: bool = False
    scopes: tuple[str, ...] = ()


class Work:
    """Takes the events of jobs and stages and the sums of their tasks; what is finished is written and let go."""

    def __init__(self, rows: Rows, queries: Queries) -> None:
        self.rows, self.queries = rows, queries
        self.jobs: dict[int, dict[str, Any]] = {}
        self.stage_jobs: dict[int, list[int]] = {}
        self.stage_sql: dict[int, int] = {}
        self.stages: dict[StageKey, StageState] = {}
        self.tasks: dict[StageKey, StageTasks] = {}
        self.closed: set[StageKey] = set()
        self.written_jobs: set[int] = set()
        self.handlers: dict[type, Callable[[Any], None]] = {
            JobStart: self._job_start,
            JobEnd: self._job_end,
            StageSubmitted: self._stage_submitted,
            StageCompleted: self._stage_completed,
        }

    def merge(self, key: StageKey, tasks: StageTasks) -> None:
        """Take in what a chunk says of a stage that it does not hold whole; close the stage when it is finished."""
        if key in self.closed:
            self.rows.late += tasks.ended
            return
        if key in self.tasks:
            self.tasks[key].merge(tasks)
        else:
            self.tasks[key] = tasks
        if self.tasks[key].finished:
            self.close_stage(close(self.tasks.pop(key)))

    def write_finished(self) -> None:
        """Write the jobs that ended."""
        for job_id in [job_id for job_id, job in self.jobs.items() if job["status"] != "running"]:
            self._write_job(job_id)

    def _write_job(self, job_id: int) -> None:
        self.written_jobs.add(job_id)
        self.rows.sink.add(tables.JOBS.name, self.jobs.pop(job_id))

    def finish(self) -> None:
        """Write what is left, as it stands."""
        for key in sorted(self.tasks):
            self.close_stage(close(self.tasks.pop(key)))
        for key in sorted(self.stages):
            self._write_stage(key, self.stages.pop(key))
        for job_id in sorted(self.jobs):
            self._write_job(job_id)

    def _job_start(self, event: JobStart) -> None:
        if event.job_id in self.written_jobs:
            return  # a line that the log holds twice: the first one stands
        properties = event.properties or {}
        sql_id = as_integer(properties.get("spark.sql.execution.id"))
        for stage_id in event.stage_ids:
            self.stage_jobs.setdefault(stage_id, []).append(event.job_id)
            if sql_id is not None:
                self.stage_sql.setdefault(stage_id, sql_id)
        self.jobs[event.job_id] = self._job(event.job_id) | {
            "sql_id": sql_id,
            "submission_time_ms": self.rows.seen(event.time_ms),
            "stage_ids": event.stage_ids,
            "job_group": self.rows.redact.group(string(properties.get("spark.jobGroup.id"))),
            "description": self.rows.redact.text(string(properties.get("spark.job.description"))),
        }

    def _job(self, job_id: int) -> dict[str, Any]:
        blank = dict.fromkeys(column.name for column in tables.JOBS.columns)
        return blank | {"log_id": self.rows.log_id, "job_id": job_id, "status": "running", "stage_ids": []}

    def _job_end(self, event: JobEnd) -> None:
        if event.job_id in self.written_jobs:
            return
        job = self.jobs.setdefault(event.job_id, self._job(event.job_id))
        job["completion_time_ms"] = self.rows.seen(event.time_ms)
        if job["submission_time_ms"] is not None and event.time_ms is not None:
            job["duration_ms"] = event.time_ms - job["submission_time_ms"]
        job["status"] = "succeeded" if event.result.get("Result") == "JobSucceeded" else "failed"
        if job["status"] == "failed":
            exception = event.result.get("Exception")
            message = string(exception.get("Message")) if isinstance(exception, dict) else None
            told = message or str(event.result.get("Result"))
            job["error"] = self.rows.redact.message(told)
            self.queries.job_failed(job["sql_id"], told)
            self.rows.failure(
                "job",
                job_id=event.job_id,
                sql_id=job["sql_id"],
                time_ms=event.time_ms,
                reason="job failed",
                message=message,
            )

    def _stage_submitted(self, event: StageSubmitted) -> None:
        key = (event.info.stage_id, event.info.attempt_id)
        if key in self.closed:
            return
        self.rows.seen(event.info.submitted_ms)
        self._open_stage(key, event.info)

    def _open_stage(self, key: StageKey, info: StageInfo) -> StageState:
        if key not in self.stages:
            self.stages[key] = StageState(info)
            self.queries.stage_opened(self.stage_sql.get(key[0]))
        return self.stages[key]

    def _stage_completed(self, event: StageCompleted) -> None:
        key = (event.info.stage_id, event.info.attempt_id)
        if key in self.closed:
            return
        stage = self._open_stage(key, event.info)
        stage.info, stage.completed, stage.scopes = event.info, True, event.scopes
        self.rows.seen(event.info.completed_ms)

    def close_stage(self, facts: StageFacts) -> None:
        """Write a stage whose tasks have all ended; a second closing of the same attempt is passed over."""
        key = facts.tasks.key
        stage = self.stages.pop(key, None)
        if key in self.closed:
            self.rows.late += facts.tasks.ended
            return
        self.closed.add(key)
        if stage is not None:
            self._write_stage(key, stage)
        self._write_tasks(key, facts)
        self.queries.stage_closed(self.stage_sql.get(key[0]), facts, was_opened=stage is not None)

    def _write_stage(self, key: StageKey, stage: StageState) -> None:
        info = stage.info
        status = "running" if not stage.completed else "failed" if info.failure is not None else "succeeded"
        known = info.submitted_ms is not None and info.completed_ms is not None
        self.rows.add(
            tables.STAGES.name,
            stage_id=key[0],
            stage_attempt_id=key[1],
            sql_id=self.stage_sql.get(key[0]),
            job_ids=self.stage_jobs.get(key[0], []),
            name=self.rows.redact.text(info.name),
            n_planned_tasks=info.tasks,
            submission_time_ms=info.submitted_ms,
            completion_time_ms=info.completed_ms,
            duration_ms=info.completed_ms - info.submitted_ms if known else None,  # type: ignore[operator]
            status=status,
            failure_reason=self.rows.redact.message(info.failure or "") or None,
            parent_ids=info.parent_ids,
            scopes=[self.rows.redact.label(scope) or "" for scope in stage.scopes],
        )
        if status == "failed":
            ids = {"stage_id": key[0], "stage_attempt_id": key[1], "sql_id": self.stage_sql.get(key[0])}
            self.rows.failure("stage", **ids, time_ms=info.completed_ms, reason="stage failed", message=info.failure)

    def _write_tasks(self, key: StageKey, facts: StageFacts) -> None:
        tasks, duration = facts.tasks, facts.duration
        self.rows.seen(within_64_bits(tasks.last_finish_ms))
        ids = {"stage_id": key[0], "stage_attempt_id": key[1]}
        self.rows.add(
            tables.STAGE_TASKS.name,
            **ids,
            n_tasks=tasks.ended,
            n_succeeded=tasks.succeeded,
            n_failed=tasks.failed,
            n_killed=tasks.killed,
            n_speculative=tasks.speculative,
            n_with_metrics=tasks.with_metrics,
            first_launch_time_ms=within_64_bits(tasks.first_launch_ms),
            last_finish_time_ms=within_64_bits(tasks.last_finish_ms),
            task_duration_min_ms=duration.min[0],
            task_duration_median_ms=duration.median[0],
            task_duration_p95_ms=duration.p95[0],
            task_duration_max_ms=duration.max[0],
            task_duration_total_ms=duration.total[0] if tasks.ended else None,
            failed_task_duration_total_ms=within_64_bits(tasks.failed_duration_ms),
            peak_execution_memory_max_bytes=within_64_bits(tasks.peak_memory_bytes),
            result_size_max_bytes=within_64_bits(tasks.largest_result_bytes),
            **dict(zip(TOTALS, map(within_64_bits, tasks.totals), strict=True)),
        )
        count = len(facts.accumulator_ids)
        self.rows.sink.extend(
            tables.ACCUMULATORS.name,
            {
                "log_id": [self.rows.log_id] * count,
                "stage_id": [key[0]] * count,
                "stage_attempt_id": [key[1]] * count,
                "accumulator_id": facts.accumulator_ids,
                "name": [self.rows.redact.label(name) for name in facts.names],
                **statistics(facts.accumulators),
                "n_not_integer": facts.not_integer,
                "value_at_stage_end": facts.values_at_end,
            },
        )
        for task_id, time_ms, executor_id, reason, message in tasks.failures:
            sql_id = self.stage_sql.get(key[0])
            self.rows.failure(
                "task",
                **ids,
                sql_id=sql_id,
                task_id=task_id,
                executor_id=executor_id,
                time_ms=time_ms,
                reason=reason,
                message=message,
            )
