"""The application itself: who, when, with which properties, on which executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.eventlog import tables
from workbench.eventlog.events import (
    ApplicationEnd,
    ApplicationStart,
    Environment,
    ExecutorAdded,
    ExecutorRemoved,
    LogStart,
)
from workbench.eventlog.rows import Rows
from workbench.eventlog.scrub import scrub

RAPIDS_PLUGIN, COMET_PLUGIN = "com.nvidia.spark.SQLPlugin", "org.apache.spark.CometPlugin"


class Application:
    """Takes the events of one application; `finish` writes its rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.version = LogStart()
        self.start: ApplicationStart | None = None
        self.end: ApplicationEnd | None = None
        self.properties: dict[str, str] = {}
        self.environment: dict[tuple[str, str], str] = {}
        self.executors: dict[str, dict[str, Any]] = {}
        self.handlers: dict[type, Callable[[Any], None]] = {
            LogStart: self._log_start,
            ApplicationStart: self._application_start,
            ApplicationEnd: self._application_end,
            Environment: self._environment,
            ExecutorAdded: self._executor_added,
            ExecutorRemoved: self._executor_removed,
        }

    def _log_start(self, event: LogStart) -> None:
        self.version = event

    def _application_start(self, event: ApplicationStart) -> None:
        self.start = event
        self.rows.redact.learn(event.user)
        self.rows.seen(event.time_ms)

    def _application_end(self, event: ApplicationEnd) -> None:
        self.end = event
        self.rows.seen(event.time_ms)

    def _environment(self, event: Environment) -> None:
        """The last update stands: jars that are added later send another one."""
        self.properties = _pairs(event.spark)
        self.rows.redact.learn(self.properties.get("spark.driver.host"))
        self.environment = {
            (section, self.rows.redact.property_name(name)): self.rows.redact.property(name, value)
            for section, pairs in (("spark", self.properties), ("jvm", _pairs(event.jvm)))
            for name, value in pairs.items()
        }

    def _executor_added(self, event: ExecutorAdded) -> None:
        info = event.info
        self.rows.redact.learn(info.host if info else None)
        executor_id = self.rows.redact.label(event.id) or ""
        self.executors[executor_id] = {
            "executor_id": executor_id,
            "host": self.rows.redact.name(info.host) if info else None,
            "total_cores": info.cores if info else None,
            "resource_profile_id": info.profile_id if info else None,
            "added_time_ms": self.rows.seen(event.time_ms),
            "removed_time_ms": None,
            "removed_reason": None,
        }

    def _executor_removed(self, event: ExecutorRemoved) -> None:
        blank = dict.fromkeys(("host", "total_cores", "resource_profile_id", "added_time_ms"))
        executor_id = self.rows.redact.label(event.id) or ""
        executor = self.executors.setdefault(executor_id, {"executor_id": executor_id, **blank})
        executor["removed_time_ms"] = self.rows.seen(event.time_ms)
        executor["removed_reason"] = self.rows.redact.message(event.reason or "")
        self.rows.failure(
            "executor", executor_id=executor_id, time_ms=event.time_ms, reason="removed", message=event.reason
        )

    def _engine(self) -> str:
        plugins = self.properties.get("spark.plugins", "")
        if RAPIDS_PLUGIN in plugins and self.properties.get("spark.rapids.sql.enabled", "true") != "false":
            return "rapids"
        if COMET_PLUGIN in plugins and self.properties.get("spark.comet.enabled", "true") != "false":
            return "comet"
        return "spark"

    def finish(self, faults: list[str]) -> None:
        """Write the application, its environment and its executors."""
        for (section, name), value in sorted(self.environment.items()):
            self.rows.add(tables.ENVIRONMENT.name, section=section, name=name, value=value)
        for _, executor in sorted(self.executors.items()):
            self.rows.add(tables.EXECUTORS.name, **executor)
        self._write_application(faults)

    def _write_application(self, faults: list[str]) -> None:
        start = self.start or ApplicationStart()
        end_ms = self.end.time_ms if self.end else None
        complete = end_ms is not None and start.time_ms is not None and not faults
        self.rows.add(
            tables.APPLICATIONS.name,
            app_id=self.rows.redact.label(start.id),
            attempt_id=self.rows.redact.label(start.attempt_id),
            app_name=self.rows.redact.text(start.name) or None,
            user=self.rows.redact.name(start.user),
            spark_version=scrub(self.version.version) or None,
            engine=self._engine(),
            start_time_ms=start.time_ms,
            end_time_ms=end_ms,
            last_event_time_ms=self.rows.last_ms or None,
            duration_ms=end_ms - start.time_ms if complete else None,  # type: ignore[operator]
            status="complete" if complete else "incomplete",
        )


def _pairs(properties: object) -> dict[str, str]:
    """Properties as written by Spark 3 (an object) or earlier (a list of pairs)."""
    if isinstance(properties, dict):
        return {str(name): str(value) for name, value in properties.items()}
    if isinstance(properties, list):
        return {str(pair[0]): str(pair[1]) for pair in properties if isinstance(pair, list) and len(pair) == 2}
    return {}
