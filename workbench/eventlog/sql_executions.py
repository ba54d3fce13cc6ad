"""Assemble SQL executions: plans, node metrics and how they ended."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.eventlog import tables
from workbench.eventlog.engine_detection import find_node_engine
from workbench.eventlog.fold import parse_integer
from workbench.eventlog.listener_events import DriverUpdates, Metric, SqlEnd, SqlMetrics, SqlStart, SqlUpdate
from workbench.eventlog.plan_graph import PlanNode, unpack_nodes
from workbench.eventlog.secret_removal import remove_secrets
from workbench.eventlog.stage_statistics import Sample, StageFacts, summarize_samples
from workbench.eventlog.table_sink import RowWriter, clamp_to_64_bits, statistics_columns

NO_VALUES: array[int] = array("q")


@dataclass
class SqlState:
    """A SQL execution whose rows are not written yet."""

    sql_id: int
    start: SqlStart | None = None
    end: SqlEnd | None = None
    plans: list[list[PlanNode]] = field(default_factory=list)
    loose: list[tuple[int, Metric]] = field(default_factory=list)
    driver: dict[int, int] = field(default_factory=dict)
    open_stages: int = 0
    failed_job: str | None = None  # message of its first failed job
    # By accumulator: (stage id, compact values) of every stage of this execution.
    values: dict[int, list[tuple[int, array[int]]]] = field(default_factory=dict)
    ended_in_chunk: int | None = None


class SqlAssembler:
    """Collects events of SQL executions and their stages; finished executions are written and released."""

    def __init__(self, rows: RowWriter) -> None:
        self.rows = rows
        self.sql: dict[int, SqlState] = {}
        self.done: set[int] = set()
        self.n_nodes_by_engine: Counter[str] = Counter()
        self.chunk = 0
        self.handlers: dict[type, Callable[[Any], None]] = {
            SqlStart: self._take_start,
            SqlEnd: self._take_end,
            SqlUpdate: self._take_update,
            SqlMetrics: self._take_metrics,
            DriverUpdates: self._take_driver_updates,
        }

    def open_stage(self, sql_id: int | None) -> None:
        """A stage was submitted: its execution waits until it is closed."""
        if sql_id in self.sql:
            self.sql[sql_id].open_stages += 1

    def close_stage(self, sql_id: int | None, facts: StageFacts, *, was_opened: bool) -> None:
        """A stage was closed: keep the values of its SQL metrics until its execution is written."""
        if sql_id not in self.sql:
            return
        sql = self.sql[sql_id]
        sql.open_stages -= was_opened
        for accumulator_id, values in facts.sql_values.items():
            sql.values.setdefault(accumulator_id, []).append((facts.tasks.key[0], values))

    def fail_job(self, sql_id: int | None, message: str) -> None:
        """A job failed: before Spark 3.4 the only sign that its execution failed."""
        if sql_id in self.sql and self.sql[sql_id].failed_job is None:
            self.sql[sql_id].failed_job = message

    def write_closed_executions(self) -> None:
        """After a chunk: write the executions that ended in an earlier one and have no open stage.

        One chunk later, since updates of the driver may follow the end.
        """
        for sql in list(self.sql.values()):
            if sql.ended_in_chunk is not None and sql.ended_in_chunk < self.chunk and not sql.open_stages:
                self._write_sql(sql)
        self.chunk += 1

    def write_remaining(self) -> None:
        """Write everything that is left."""
        for sql in list(self.sql.values()):
            self._write_sql(sql)

    def _find_state(self, sql_id: int) -> SqlState | None:
        if sql_id in self.done:
            self.rows.late += 1
            return None
        return self.sql.setdefault(sql_id, SqlState(sql_id))

    def _take_start(self, event: SqlStart) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            sql.start = event
            self.rows.note_time(event.time_ms)
            self._add_plan(sql, event.nodes)

    def _add_plan(self, sql: SqlState, nodes: bytes) -> None:
        if nodes:
            sql.plans.append(unpack_nodes(nodes))

    def _take_update(self, event: SqlUpdate) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            self._add_plan(sql, event.nodes)

    def _take_metrics(self, event: SqlMetrics) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            sql.loose += [(max(0, len(sql.plans) - 1), metric) for metric in event.metrics]

    def _take_driver_updates(self, event: DriverUpdates) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            for update in event.updates:
                if len(update) == 2 and type(update[0]) is int and (value := parse_integer(update[1])) is not None:
                    sql.driver[update[0]] = sql.driver.get(update[0], 0) + value

    def _take_end(self, event: SqlEnd) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            sql.end, sql.ended_in_chunk = event, self.chunk
            self.rows.note_time(event.time_ms)

    def _write_sql(self, sql: SqlState) -> None:
        del self.sql[sql.sql_id]
        self.done.add(sql.sql_id)
        start, end = sql.start or SqlStart(sql.sql_id), sql.end
        error = None if end is None else sql.failed_job if end.error is None else end.error
        known = end is not None and end.time_ms is not None and start.time_ms is not None
        self.rows.add_row(
            tables.SQL_EXECUTIONS.name,
            sql_id=sql.sql_id,
            root_sql_id=start.root_id,
            description=self.rows.redactor.redact_text(start.description),
            start_time_ms=start.time_ms,
            end_time_ms=end.time_ms if end else None,
            duration_ms=end.time_ms - start.time_ms if known else None,  # type: ignore[union-attr,operator]
            status="running" if end is None else "failed" if error else "succeeded",
            error=self.rows.redactor.redact_message(error) if error else None,
            n_plan_versions=len(sql.plans),
        )
        if error:
            self.rows.add_failure(
                "sql", sql_id=sql.sql_id, time_ms=end.time_ms if end else None, reason="query failed", message=error
            )
        self._write_plans(sql)
        self._write_node_metrics(sql)

    def _write_plans(self, sql: SqlState) -> None:
        redactor = self.rows.redactor
        columns = redactor.find_column_words(node for nodes in sql.plans for node in nodes)
        final = sql.plans[-1] if sql.plans else []
        self.n_nodes_by_engine.update(filter(None, (find_node_engine(node.name) for node in final)))
        for version, nodes in enumerate(sql.plans):
            count = len(nodes)
            self.rows.sink.add_columns(
                tables.PLAN_NODES.name,
                {
                    "log_id": [self.rows.log_id] * count,
                    "sql_id": [sql.sql_id] * count,
                    "plan_version": [version] * count,
                    "is_final": [version == len(sql.plans) - 1] * count,
                    "node_id": [node.node_id for node in nodes],
                    "parent_ids": [node.parent_ids for node in nodes],
                    "codegen_id": [node.codegen_id for node in nodes],
                    "depth": [node.depth for node in nodes],
                    "node_name": [redactor.redact_label(node.name) for node in nodes],
                    "simple_string": [redactor.redact_plan(node.text, columns) for node in nodes],
                    "accumulator_ids": [[metric.accumulator_id for metric in node.metrics] for node in nodes],
                    "metadata": [self._format_metadata(node, columns) for node in nodes],
                },
            )

    def _format_metadata(self, node: PlanNode, columns: frozenset[str]) -> str | None:
        if not node.metadata:
            return None
        clean = {
            remove_secrets(name): self.rows.redactor.redact_plan(str(value), columns)
            for name, value in node.metadata.items()
        }
        return json.dumps(clean)

    def _write_node_metrics(self, sql: SqlState) -> None:
        rows = _find_last_metrics(sql)
        found = [sql.values.get(row[3].accumulator_id, []) for row in rows]
        count = len(rows)
        self.rows.sink.add_columns(
            tables.NODE_METRICS.name,
            {
                "log_id": [self.rows.log_id] * count,
                "sql_id": [sql.sql_id] * count,
                "plan_version": [row[0] for row in rows],
                "node_id": [row[1] for row in rows],
                "node_name": [self.rows.redactor.redact_label(row[2]) for row in rows],
                "accumulator_id": [row[3].accumulator_id for row in rows],
                "metric_name": [self.rows.redactor.redact_label(row[3].name) for row in rows],
                "metric_type": [remove_secrets(row[3].type) for row in rows],
                **statistics_columns(summarize_samples([_join_values(values) for values in found])),
                "driver_value": [clamp_to_64_bits(sql.driver.get(row[3].accumulator_id)) for row in rows],
                "stage_ids": [sorted({stage_id for stage_id, _ in values}) if values else [] for values in found],
            },
        )


def _find_last_metrics(sql: SqlState) -> list[tuple[int, int | None, str | None, Metric]]:
    """(plan version, node id, node name, metric) of each accumulator, from the last plan version that has it.

    Metrics of an adaptive subplan have no node, unless a node has them, too.
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


def _join_values(values: list[tuple[int, array[int]]]) -> Sample:
    if not values:
        return NO_VALUES
    return values[0][1] if len(values) == 1 else np.concatenate([np.asarray(part) for _, part in values])
