"""Assemble jobs and stages: times, task statistics and failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.tables import Coded
from workbench.eventlog import tables
from workbench.eventlog.column_slices import join_slices
from workbench.eventlog.fold import StageCompleted, StageSubmitted, parse_integer
from workbench.eventlog.listener_events import JobEnd, JobProperties, JobStart, StageInfo
from workbench.eventlog.sql_executions import SqlAssembler
from workbench.eventlog.stage_statistics import (
    TOTALS,
    StageFacts,
    StageKey,
    StageTasks,
    Summaries,
    summarize_stages,
)
from workbench.eventlog.table_sink import RowWriter, clamp_to_64_bits, statistics_columns, string_or_none


@dataclass
class StageState:
    """A stage attempt whose rows are not written yet."""

    info: StageInfo
    completed: bool = False
    scopes: tuple[str, ...] = ()


class JobAssembler:
    """Collects events of jobs and stages with the sums of their tasks; finished ones are written and released."""

    def __init__(self, rows: RowWriter, queries: SqlAssembler) -> None:
        self.rows, self.queries = rows, queries
        self.jobs: dict[int, dict[str, Any]] = {}
        self.stage_jobs: dict[int, list[int]] = {}
        self.job_sql: dict[int, int | None] = {}
        self.attempt_sql: dict[StageKey, int | None] = {}
        self.stages: dict[StageKey, StageState] = {}
        self.tasks: dict[StageKey, StageTasks] = {}
        self.closed: set[StageKey] = set()
        self.unwritten: list[StageFacts] = []  # closed ones whose accumulators are not written
        self.written_jobs: set[int] = set()
        self.handlers: dict[type, Callable[[Any], None]] = {
            JobStart: self._take_job_start,
            JobEnd: self._take_job_end,
            StageSubmitted: self._submit_stage,
            StageCompleted: self._complete_stage,
        }

    def merge_stage(self, key: StageKey, tasks: StageTasks) -> None:
        """Add a chunk's part of a stage; close the stage when it is finished."""
        if key in self.closed:
            self.rows.late += tasks.ended
            return
        if key in self.tasks:
            self.tasks[key].merge_later(tasks)
        else:
            self.tasks[key] = tasks
        if self.tasks[key].finished:
            self._close_stages([key])

    def _close_stages(self, keys: list[StageKey]) -> None:
        for facts in summarize_stages([self.tasks.pop(key) for key in keys]):
            self.close_stage(facts)

    def write_closed(self) -> None:
        """Write the jobs that ended, and the accumulators of the stages that did."""
        self._write_accumulators()
        for job_id in [job_id for job_id, job in self.jobs.items() if job["status"] != "running"]:
            self._write_job(job_id)

    def _write_job(self, job_id: int) -> None:
        self.written_jobs.add(job_id)
        self.rows.sink.add_row(tables.JOBS.name, self.jobs.pop(job_id))

    def write_remaining(self) -> None:
        """Write everything that is left."""
        self._close_stages(sorted(self.tasks))
        self._write_accumulators()
        for key in sorted(self.stages):
            self._write_stage(key, self.stages.pop(key))
        for job_id in sorted(self.jobs):
            self._write_job(job_id)

    def _take_job_start(self, event: JobStart) -> None:
        if event.job_id in self.written_jobs:
            return  # duplicate line: the first one counts
        properties = event.properties or JobProperties()
        sql_id = parse_integer(properties.sql_id)
        for stage_id in event.stage_ids:
            self.stage_jobs.setdefault(stage_id, []).append(event.job_id)
        self.job_sql[event.job_id] = sql_id
        self.rows.ledger.jobs_started[event.job_id] = event.stage_ids
        self.rows.ledger.name_sql(sql_id, f"job {event.job_id}")
        self.jobs[event.job_id] = self._find_job(event.job_id) | {
            "sql_id": sql_id,
            "submission_time_ms": self.rows.note_stamp(event.time_ms),
            "stage_ids": event.stage_ids,
            "job_group": self.rows.redactor.redact_job_group(string_or_none(properties.group)),
            "description": self.rows.redactor.redact_text(string_or_none(properties.description)),
        }

    def _find_job(self, job_id: int) -> dict[str, Any]:
        blank = dict.fromkeys(column.name for column in tables.JOBS.columns)
        return blank | {"log_id": self.rows.log_id, "job_id": job_id, "status": "running", "stage_ids": []}

    def _take_job_end(self, event: JobEnd) -> None:
        if event.job_id in self.written_jobs:
            return
        job = self.jobs.setdefault(event.job_id, self._find_job(event.job_id))
        job["completion_time_ms"] = self.rows.note_stamp(event.time_ms)
        if job["submission_time_ms"] is not None and event.time_ms is not None:
            job["duration_ms"] = event.time_ms - job["submission_time_ms"]
        job["status"] = "succeeded" if event.result.get("Result") == "JobSucceeded" else "failed"
        self.rows.ledger.jobs_ended[event.job_id] = job["status"] == "succeeded"
        if job["status"] == "failed":
            exception = event.result.get("Exception")
            message = string_or_none(exception.get("Message")) if isinstance(exception, dict) else None
            error = message or str(event.result.get("Result"))
            job["error"] = self.rows.redactor.redact_message(error)
            self.queries.fail_job(job["sql_id"], error)
            self.rows.add_failure(
                "job",
                job_id=event.job_id,
                sql_id=job["sql_id"],
                time_ms=event.time_ms,
                reason="job failed",
                message=message,
            )

    def _submit_stage(self, event: StageSubmitted) -> None:
        key = (event.info.stage_id, event.info.attempt_id)
        if key in self.closed:
            return
        self.rows.note_stamp(event.info.submitted_ms)
        if event.sql_id is not None:
            self.attempt_sql.setdefault(key, event.sql_id)
            self.rows.ledger.name_sql(event.sql_id, f"stage {key[0]}")
        self._open_stage(key, event.info)

    def _open_stage(self, key: StageKey, info: StageInfo) -> StageState:
        if key not in self.stages:
            self.stages[key] = StageState(info)
            self.queries.open_stage(self._find_sql_id(key))
        return self.stages[key]

    def _find_sql_id(self, key: StageKey) -> int | None:
        """Execution of a stage attempt: the one that its submission names, else that of the first job at work on it.

        A stage may run again for a later query than the one that it was made for.
        """
        if key not in self.attempt_sql:
            if not (jobs := self.stage_jobs.get(key[0])):
                return None  # a log out of order may still tell
            at_work = [job for job in jobs if job in self.jobs and self.jobs[job]["status"] == "running"]
            self.attempt_sql[key] = self.job_sql.get((at_work or jobs)[0])
        return self.attempt_sql[key]

    def _complete_stage(self, event: StageCompleted) -> None:
        key = (event.info.stage_id, event.info.attempt_id)
        if key in self.closed:
            return
        stage = self._open_stage(key, event.info)
        stage.info, stage.completed, stage.scopes = event.info, True, event.scopes
        self.rows.note_stamp(event.info.completed_ms)

    def close_stage(self, facts: StageFacts) -> None:
        """Write a stage whose tasks have all ended; repeated calls for an attempt are ignored."""
        key = facts.tasks.key
        stage = self.stages.pop(key, None)
        if key in self.closed:
            self.rows.late += facts.tasks.ended
            return
        self.closed.add(key)
        self.rows.ledger.n_double_tasks += facts.tasks.double
        if stage is not None:
            self._write_stage(key, stage)
        self._write_tasks(key, facts)
        self.rows.ledger.note_stage(facts.tasks, self._find_sql_id(key), stage.info.completed_ms if stage else None)
        self.queries.close_stage(self._find_sql_id(key), facts, was_opened=stage is not None)

    def _write_stage(self, key: StageKey, stage: StageState) -> None:
        info = stage.info
        status = "running" if not stage.completed else "failed" if info.failure is not None else "succeeded"
        has_times = info.submitted_ms is not None and info.completed_ms is not None
        self.rows.add_row(
            tables.STAGES.name,
            stage_id=key[0],
            stage_attempt_id=key[1],
            sql_id=self._find_sql_id(key),
            job_ids=self.stage_jobs.get(key[0], []),
            name=self.rows.redactor.redact_text(info.name),
            n_planned_tasks=info.tasks,
            resource_profile_id=info.profile_id,
            submission_time_ms=info.submitted_ms,
            completion_time_ms=info.completed_ms,
            duration_ms=info.completed_ms - info.submitted_ms if has_times else None,  # type: ignore[operator]
            status=status,
            failure_reason=self.rows.redactor.redact_message(info.failure or "") or None,
            parent_ids=info.parent_ids,
            scopes=[self.rows.redactor.redact_label(scope) or "" for scope in stage.scopes],
        )
        if status == "failed":
            ids = {"stage_id": key[0], "stage_attempt_id": key[1], "sql_id": self._find_sql_id(key)}
            self.rows.add_failure(
                "stage", **ids, time_ms=info.completed_ms, reason="stage failed", message=info.failure
            )

    def _write_tasks(self, key: StageKey, facts: StageFacts) -> None:
        tasks = facts.tasks
        _, shortest, median, p95, longest, total = facts.duration
        self.rows.note_time(clamp_to_64_bits(tasks.last_finish_ms))
        ids = {"stage_id": key[0], "stage_attempt_id": key[1]}
        self.rows.add_row(
            tables.STAGE_TASKS.name,
            **ids,
            n_tasks=tasks.ended,
            n_succeeded=tasks.succeeded,
            n_failed=tasks.failed,
            n_killed=tasks.killed,
            n_speculative=tasks.speculative,
            n_resubmitted=tasks.resubmitted,
            n_with_metrics=tasks.with_metrics,
            first_launch_time_ms=clamp_to_64_bits(tasks.first_launch_ms),
            last_finish_time_ms=clamp_to_64_bits(tasks.last_finish_ms),
            task_duration_min_ms=shortest,
            task_duration_median_ms=median,
            task_duration_p95_ms=p95,
            task_duration_max_ms=longest,
            task_duration_total_ms=total if tasks.ended else None,
            failed_task_duration_total_ms=clamp_to_64_bits(tasks.failed_duration_ms),
            peak_execution_memory_max_bytes=clamp_to_64_bits(tasks.peak_memory_bytes),
            result_size_max_bytes=clamp_to_64_bits(tasks.largest_result_bytes),
            busy_spans_ms=facts.busy.spans_ms,
            peak_tasks=facts.busy.peak_tasks,
            task_times_ms=facts.by_launch[0],
            task_rows=facts.by_launch[1],
            task_executors=facts.by_launch[2],
            **dict(zip(TOTALS, map(clamp_to_64_bits, tasks.totals), strict=True)),
        )
        self.unwritten.append(facts)
        for task_id, time_ms, executor_id, reason, message in tasks.failures:
            sql_id = self._find_sql_id(key)
            self.rows.add_failure(
                "task",
                **ids,
                sql_id=sql_id,
                task_id=task_id,
                executor_id=executor_id,
                time_ms=time_ms,
                reason=reason,
                message=message,
            )

    def _write_accumulators(self) -> None:
        """Write the accumulators of stages together, since columns of a few rows would take longer than the rows."""
        if not self.unwritten:
            return
        rows = join_slices([facts.accumulators for facts in self.unwritten])
        counts = [facts.accumulators.count for facts in self.unwritten]
        keys = np.repeat(np.array([facts.tasks.key for facts in self.unwritten], np.int64), counts, axis=0)
        names = rows.coded["name"]
        self.rows.sink.add_columns(
            tables.ACCUMULATORS.name,
            {
                "log_id": np.full(len(keys), self.rows.log_id),
                "stage_id": keys[:, 0],
                "stage_attempt_id": keys[:, 1],
                "accumulator_id": rows.numbers["id"],
                "name": Coded(names.codes, [self.rows.redactor.redact_label(name) for name in names.values]),
                **statistics_columns(Summaries.of(rows.numbers)),
                "n_not_integer": rows.numbers["not_integer"],
                "value_at_stage_end": np.ma.array(rows.numbers["value_at_end"], mask=~rows.numbers["has_end"]),
            },
        )
        self.unwritten.clear()
