"""What all parts of a log's assembly share: where rows go, what is redacted, the latest time stamp seen."""

from __future__ import annotations

from typing import Any

from workbench.eventlog import tables
from workbench.eventlog.redact import Redactor
from workbench.eventlog.sink import Sink
from workbench.eventlog.stages import Summary

STATISTICS = ("n", "min", "median", "p95", "max", "total")


class Rows:
    """Writes rows of one log; `late` counts what came after its rows were written."""

    def __init__(self, log_id: int, sink: Sink, redactor: Redactor) -> None:
        self.log_id, self.sink, self.redact = log_id, sink, redactor
        self.last_ms = 0
        self.late = 0

    def add(self, table: str, **row: Any) -> None:
        """Add one row of this log."""
        self.sink.add(table, {"log_id": self.log_id, **row})

    def seen(self, time_ms: int | None) -> int | None:
        """Note a time stamp of the log, and give it back."""
        if time_ms is not None and time_ms > self.last_ms:
            self.last_ms = time_ms
        return time_ms

    def failure(self, kind: str, **row: Any) -> None:
        """Add a row to the table of failures; what is not given is null."""
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
        self.add(tables.FAILURES.name, kind=kind, **full)


def statistics(summary: Summary) -> dict[str, list[Any]]:
    """The columns of a summary, by the names that the tables give them."""
    return {name: getattr(summary, name) for name in STATISTICS}


def within_64_bits(value: int | None) -> int | None:
    """The nearest number that a table can hold: only damage makes greater ones."""
    return None if value is None else max(-(2**63), min(2**63 - 1, value))


def string(value: object) -> str | None:
    """A text; None for all else."""
    return value if isinstance(value, str) else None
