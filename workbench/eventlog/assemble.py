"""Assemble the rows of one log from its folded chunks, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from workbench.eventlog import tables
from workbench.eventlog.completeness import COMPACTION, NAMED_KINDS, list_holes
from workbench.eventlog.engine_detection import detect_engine
from workbench.eventlog.fold import MAX_BAD_LINES, BadLine, ChunkFacts
from workbench.eventlog.listener_events import (
    ApplicationEnd,
    ApplicationStart,
    Environment,
    ExecutorAdded,
    ExecutorRemoved,
    LogStart,
    PartStart,
    ResourceProfile,
)
from workbench.eventlog.log_redaction import Redactor, remove_secrets
from workbench.eventlog.sources import LogSource
from workbench.eventlog.spark_jobs import JobAssembler
from workbench.eventlog.sql_executions import SqlAssembler
from workbench.eventlog.table_sink import RowWriter, TableSink

NO_EVENT = "no event in it"


class ApplicationAssembler:
    """Collects the events of one application; `write_rows` writes its rows."""

    def __init__(self, rows: RowWriter) -> None:
        self.rows = rows
        self.version = ""
        self.start: ApplicationStart | None = None
        self.end: ApplicationEnd | None = None
        self.properties: dict[str, str] = {}
        self.environment: dict[tuple[str, str], str] = {}
        self.executors: dict[str, dict[str, Any]] = {}
        self.profiles: dict[int, ResourceProfile] = {}
        self.handlers: dict[type, Callable[[Any], None]] = {
            LogStart: self._take_log_start,
            PartStart: self._take_part_start,
            ApplicationStart: self._take_application_start,
            ApplicationEnd: self._take_application_end,
            Environment: self._update_environment,
            ExecutorAdded: self._add_executor,
            ExecutorRemoved: self._remove_executor,
            ResourceProfile: self._add_profile,
        }

    def _take_log_start(self, event: LogStart) -> None:
        self.version = event.version
        self.rows.ledger.log_started = True

    def _take_part_start(self, event: PartStart) -> None:
        self.version = event.version or self.version
        if event.number is not None:
            self.rows.ledger.parts.append((event.number, str(event.context_id)[:64]))

    def _take_application_start(self, event: ApplicationStart) -> None:
        self.start = event
        self.rows.ledger.application_started = True
        self.rows.ledger.applications.add((event.id, event.attempt_id, event.time_ms))
        self.rows.redactor.learn_names(event.user)
        self.rows.note_time(event.time_ms)

    def _take_application_end(self, event: ApplicationEnd) -> None:
        self.end = event
        self.rows.ledger.application_ended, self.rows.ledger.application_end_ms = True, event.time_ms
        self.rows.note_stamp(event.time_ms)

    def _update_environment(self, event: Environment) -> None:
        """Keep the last update; added jars send another one."""
        self.properties = _parse_property_pairs(event.spark)
        self.rows.ledger.has_environment = True
        self.rows.redactor.learn_names(self.properties.get("spark.driver.host"))
        self.environment = {
            (section, self.rows.redactor.redact_property_name(name)): self.rows.redactor.redact_property(name, value)
            for section, pairs in (("spark", self.properties), ("jvm", _parse_property_pairs(event.jvm)))
            for name, value in pairs.items()
        }

    def _add_executor(self, event: ExecutorAdded) -> None:
        info = event.info
        self.rows.redactor.learn_names(info.host if info else None)
        executor_id = self.rows.redactor.redact_label(event.id) or ""
        self.rows.ledger.executors_added.add(event.id)
        self.executors[executor_id] = {
            "executor_id": executor_id,
            "host": self.rows.redactor.redact_name(info.host) if info else None,
            "total_cores": info.cores if info else None,
            "resource_profile_id": info.profile_id if info else None,
            "added_time_ms": self.rows.note_time(event.time_ms),
            "removed_time_ms": None,
            "removed_reason": None,
        }

    def _remove_executor(self, event: ExecutorRemoved) -> None:
        blank = dict.fromkeys(("host", "total_cores", "resource_profile_id", "added_time_ms"))
        executor_id = self.rows.redactor.redact_label(event.id) or ""
        executor = self.executors.setdefault(executor_id, {"executor_id": executor_id, **blank})
        executor["removed_time_ms"] = self.rows.note_time(event.time_ms)
        executor["removed_reason"] = self.rows.redactor.redact_message(event.reason or "")
        self.rows.add_failure(
            "executor", executor_id=executor_id, time_ms=event.time_ms, reason="removed", message=event.reason
        )

    def _add_profile(self, event: ResourceProfile) -> None:
        self.profiles[event.id] = event

    def write_rows(self, n_nodes_by_engine: Mapping[str, int], *, is_whole: bool) -> None:
        """Write the application, its environment and its executors."""
        for (section, name), value in sorted(self.environment.items()):
            self.rows.add_row(tables.ENVIRONMENT.name, section=section, name=name, value=value)
        for _, executor in sorted(self.executors.items()):
            self.rows.add_row(tables.EXECUTORS.name, **executor)
        for number, profile in sorted(self.profiles.items()):
            for of, amounts in (("executor", profile.executor), ("task", profile.task)):
                for resource, request in sorted(amounts.items()):
                    name = self.rows.redactor.redact_label(resource) or ""
                    self.rows.add_row(
                        tables.RESOURCES.name, resource_profile_id=number, of=of, resource=name, amount=request.amount
                    )
        self._write_application(detect_engine(self.properties, n_nodes_by_engine), is_whole=is_whole)

    def _write_application(self, engine: str, *, is_whole: bool) -> None:
        start = self.start or ApplicationStart()
        end_ms = self.end.time_ms if self.end else None
        has_times = end_ms is not None and start.time_ms is not None
        self.rows.add_row(
            tables.APPLICATIONS.name,
            app_id=self.rows.redactor.redact_label(start.id),
            attempt_id=self.rows.redactor.redact_label(start.attempt_id),
            app_name=self.rows.redactor.redact_text(start.name) or None,
            user=self.rows.redactor.redact_name(start.user),
            spark_version=remove_secrets(self.version) or None,
            engine=engine,
            start_time_ms=start.time_ms,
            end_time_ms=end_ms,
            last_event_time_ms=self.rows.last_ms or None,
            duration_ms=end_ms - start.time_ms if has_times else None,  # type: ignore[operator]
            status="complete" if has_times and is_whole else "incomplete",
        )


def _parse_property_pairs(properties: object) -> dict[str, str]:
    """Properties as written by Spark 3 (an object) or earlier (a list of pairs)."""
    if isinstance(properties, dict):
        return {str(name): str(value) for name, value in properties.items()}
    if isinstance(properties, list):
        return {str(pair[0]): str(pair[1]) for pair in properties if isinstance(pair, list) and len(pair) == 2}
    return {}


class LogAssembler:
    """Takes the chunks of one log in order, then its end; rows go to the sink."""

    def __init__(self, log_id: int, source: LogSource, sink: TableSink, redactor: Redactor) -> None:
        self.source = source
        self.rows = RowWriter(log_id, sink, redactor)
        self.application = ApplicationAssembler(self.rows)
        self.queries = SqlAssembler(self.rows)
        self.work = JobAssembler(self.rows, self.queries)
        self.handlers = self.application.handlers | self.queries.handlers | self.work.handlers
        self.lines = self.bytes = self.events = self.bad = 0
        self.file, self.file_lines, self.file_bytes = -1, 0, 0

    def take_chunk(self, facts: ChunkFacts) -> None:
        """Add the next chunk of the log."""
        if facts.file != self.file:
            self.file, self.file_lines, self.file_bytes = facts.file, 0, 0
        for bad in facts.bad:
            self._write_bad_line(bad)
        self.bad += facts.n_bad
        ledger = self.rows.ledger
        ledger.note_tasks(facts.task_ends, facts.max_task_id, facts.executors)
        ledger.n_repeated_lines += facts.repeated_lines
        ledger.odd_fields.update(facts.odd_fields)
        self.rows.late += facts.late_task_ends
        self.queries.plans = facts.plans.list_plans()
        for event in facts.events:
            self.handlers[type(event)](event)
        for stage in facts.closed:
            self.work.close_stage(stage)
        for key, tasks in facts.open.items():
            self.work.merge_stage(key, tasks)
        self.work.write_closed()
        self.queries.write_closed_executions()
        self.lines += facts.lines
        self.file_lines += facts.lines
        self.file_bytes += facts.bytes
        self.bytes += facts.bytes
        self.events += facts.decoded

    def finish(self, faults: list[str]) -> None:
        """End of the log: write everything that is still open."""
        self.work.write_remaining()
        self.queries.write_remaining()
        holes = list(self.source.holes)
        if self.events:
            self.rows.ledger.is_compacted = any(hole.kind == COMPACTION for hole in holes)
            holes += list_holes(self.rows.ledger)
            self.application.write_rows(self.queries.n_nodes_by_engine, is_whole=not faults and not self.source.holes)
        redactor = self.rows.redactor
        for hole in holes:
            # Names of files, and of what the log calls its own; numbers of jobs, stages and queries tell nothing.
            is_named = hole in self.source.holes or hole.kind in NAMED_KINDS
            subject = redactor.redact_fault(hole.subject) if is_named else hole.subject
            self.rows.add_row(tables.COMPLETENESS.name, **{**asdict(hole), "subject": subject})
        self._write_log(faults)

    def _write_bad_line(self, bad: BadLine) -> None:
        if self.bad < MAX_BAD_LINES:
            self.rows.add_row(
                tables.BAD_LINES.name,
                file=self.rows.redactor.redact_path(self.source.files[self.file].url),
                line=self.file_lines + bad.line + 1,
                byte_offset=self.file_bytes + bad.offset,
                reason=bad.reason,
                text="" if self.rows.redactor.strict else bad.text,
            )

    def _write_log(self, faults: list[str]) -> None:
        if not self.events:
            faults = [*faults, NO_EVENT]
        self.rows.add_row(
            tables.LOGS.name,
            path=self.rows.redactor.redact_path(self.source.path),
            codec=self.source.codec,
            n_files=len(self.source.files),
            input_bytes=self.source.size_bytes,
            content_bytes=self.bytes,
            n_lines=self.lines,
            n_events=self.events,
            n_bad_lines=self.bad,
            n_late_task_ends=self.rows.late,
            n_tasks_ended=self.rows.ledger.n_task_ends,
            fault="; ".join(map(self.rows.redactor.redact_fault, faults)) or None,
        )
