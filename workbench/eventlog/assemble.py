"""The facts of one log, put together from its chunks in order, and handed on as rows as soon as they are final.

What is kept in memory is what is still open: running jobs, stages and SQL executions.
"""

from __future__ import annotations

from workbench.eventlog import tables
from workbench.eventlog.application import Application
from workbench.eventlog.fold import MAX_BAD_LINES, BadLine, ChunkFacts
from workbench.eventlog.queries import Queries
from workbench.eventlog.redact import Redactor
from workbench.eventlog.rows import Rows
from workbench.eventlog.sink import Sink
from workbench.eventlog.sources import LogSource
from workbench.eventlog.work import Work

NO_EVENT = "no event in it"


class Assembler:
    """Takes the chunks of one log in order (`take`), then its end (`finish`); rows go to the sink."""

    def __init__(self, log_id: int, source: LogSource, sink: Sink, redactor: Redactor) -> None:
        self.source = source
        self.rows = Rows(log_id, sink, redactor)
        self.application = Application(self.rows)
        self.queries = Queries(self.rows)
        self.work = Work(self.rows, self.queries)
        self.handlers = self.application.handlers | self.queries.handlers | self.work.handlers
        self.lines = self.bytes = self.events = self.bad = 0
        self.file, self.file_lines = -1, 0

    def take(self, facts: ChunkFacts) -> None:
        """Take in the next chunk of the log."""
        if facts.file != self.file:
            self.file, self.file_lines = facts.file, 0
        for bad in facts.bad:
            self._bad_line(bad)
        self.bad += facts.n_bad
        self.rows.late += facts.late_task_ends
        for event in facts.events:
            self.handlers[type(event)](event)
        for stage in facts.closed:
            self.work.close_stage(stage)
        for key, tasks in facts.open.items():
            self.work.merge(key, tasks)
        self.work.write_finished()
        self.queries.write_finished()
        self.lines += facts.lines
        self.file_lines += facts.lines
        self.bytes += facts.bytes
        self.events += facts.decoded

    def finish(self, faults: list[str]) -> None:
        """The log is at its end: write what is still open, as it stands."""
        self.work.finish()
        self.queries.finish()
        if self.events:
            self.application.finish(faults)
        self._write_log(faults)

    def _bad_line(self, bad: BadLine) -> None:
        if self.bad < MAX_BAD_LINES:
            self.rows.add(
                tables.BAD_LINES.name,
                file=self.rows.redact.path(self.source.files[self.file].url),
                line=self.file_lines + bad.line + 1,
                byte_offset=bad.offset,
                reason=bad.reason,
                text="" if self.rows.redact.strict else bad.text,
            )

    def _write_log(self, faults: list[str]) -> None:
        if not self.events:
            faults = [*faults, NO_EVENT]
        self.rows.add(
            tables.LOGS.name,
            path=self.rows.redact.path(self.source.path),
            codec=self.source.codec,
            n_files=len(self.source.files),
            input_bytes=self.source.size_bytes,
            content_bytes=self.bytes,
            n_lines=self.lines,
            n_events=self.events,
            n_bad_lines=self.bad,
            n_late_task_ends=self.rows.late,
            fault="; ".join(map(self.rows.redact.fault, faults)) or None,
        )
