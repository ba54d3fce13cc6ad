"""Assemble SQL executions: plans, node metrics and how they ended."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.core.tables import Coded
from workbench.eventlog import tables
from workbench.eventlog.engine_detection import NUMBER, UNKNOWN, classify_node
from workbench.eventlog.fold import parse_integer
from workbench.eventlog.listener_events import DriverUpdates, SqlEnd, SqlMetrics, SqlStart, SqlUpdate
from workbench.eventlog.log_redaction import remove_secrets
from workbench.eventlog.node_metrics import (
    PlanNodes,
    describe_metrics,
    find_driver_values,
    join_plan_nodes,
    summarize_updates,
)
from workbench.eventlog.plan_columns import PlanSlice
from workbench.eventlog.sql_state import SqlState
from workbench.eventlog.stage_statistics import StageFacts
from workbench.eventlog.table_sink import RowWriter, statistics_columns

# What Spark Connect tags the jobs of an operation with.
CONNECT_TAG = re.compile(
    r"SparkConnect_OperationTag_User_(?P<user>.{0,200})_Session_(?P<session>[\w-]{1,80})_Operation_[\w-]{1,80}"
)


class SqlAssembler:
    """Collects events of SQL executions and their stages; finished executions are written and released."""

    def __init__(self, rows: RowWriter) -> None:
        self.rows = rows
        self.sql: dict[int, SqlState] = {}
        self.done: set[int] = set()
        self.n_nodes_by_engine: Counter[str] = Counter()
        self.chunk = 0
        self.plans: list[PlanSlice] = []  # of the chunk
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
        if sql_id in self.sql:
            self.sql[sql_id].open_stages -= was_opened
            self.sql[sql_id].stages.append(facts)

    def fail_job(self, sql_id: int | None, message: str) -> None:
        """A job failed: before Spark 3.4 the only sign that its execution failed."""
        if sql_id in self.sql and self.sql[sql_id].failed_job is None:
            self.sql[sql_id].failed_job = message

    def write_closed_executions(self) -> None:
        """After a chunk: write the executions that ended in an earlier one and have no open stage.

        One chunk later, since updates of the driver may follow the end.
        """
        over = [
            sql
            for sql in self.sql.values()
            if sql.ended_in_chunk is not None and sql.ended_in_chunk < self.chunk and not sql.open_stages
        ]
        self._write_executions(over)
        for sql in self.sql.values():
            if sql.ended_in_chunk is None:
                sql.copy_own()
        self.chunk += 1

    def write_remaining(self) -> None:
        """Write everything that is left."""
        self._write_executions(list(self.sql.values()))

    def _write_executions(self, executions: list[SqlState]) -> None:
        # Together, since columns of a few rows would take longer than the rows.
        for sql in executions:
            self._write_sql(sql)
        if executions:
            nodes = join_plan_nodes(executions)
            self._count_engines(nodes)
            self._write_plans(executions, nodes)
            self._write_node_metrics(executions, nodes)

    def _find_state(self, sql_id: int) -> SqlState | None:
        if sql_id in self.done:
            self.rows.late += 1
            return None
        return self.sql.setdefault(sql_id, SqlState(sql_id))

    def _take_start(self, event: SqlStart) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            sql.start = event
            self.rows.ledger.sql_started.add(event.sql_id)
            self.rows.ledger.sql_starts.note_start(event.sql_id, event.time_ms)
            if event.root_id is not None and event.root_id != event.sql_id:
                self.rows.ledger.roots_named.setdefault(event.root_id, event.sql_id)
            self.rows.note_time(event.time_ms)
            self._add_plan(sql, event.plan_place)

    def _add_plan(self, sql: SqlState, place: int | None) -> None:
        if place is not None:
            sql.plans.append(self.plans[place])

    def _take_update(self, event: SqlUpdate) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            self._add_plan(sql, event.plan_place)

    def _take_metrics(self, event: SqlMetrics) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            for metric in event.metrics:
                kind = metric.name, metric.type
                sql.loose.setdefault(metric.accumulator_id, (max(0, len(sql.plans) - 1), kind))

    def _take_driver_updates(self, event: DriverUpdates) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            for update in event.updates:
                if len(update) == 2 and type(update[0]) is int and (value := parse_integer(update[1])) is not None:
                    sql.driver[update[0]] = sql.driver.get(update[0], 0) + value

    def _take_end(self, event: SqlEnd) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            sql.end, sql.ended_in_chunk = event, self.chunk
            self.rows.ledger.sql_ended.add(event.sql_id)
            self.rows.note_time(event.time_ms)

    def _write_sql(self, sql: SqlState) -> None:
        del self.sql[sql.sql_id]
        self.done.add(sql.sql_id)
        start, end = sql.start or SqlStart(sql.sql_id), sql.end
        error = None if end is None else sql.failed_job if end.error is None else end.error
        has_times = end is not None and end.time_ms is not None and start.time_ms is not None
        self.rows.add_row(
            tables.SQL_EXECUTIONS.name,
            sql_id=sql.sql_id,
            root_sql_id=start.root_id,
            description=self.rows.redactor.redact_text(start.description),
            start_time_ms=start.time_ms,
            end_time_ms=end.time_ms if end else None,
            duration_ms=end.time_ms - start.time_ms if has_times else None,  # type: ignore[union-attr,operator]
            status="running" if end is None else "failed" if error else "succeeded",
            error=self.rows.redactor.redact_message(error) if error else None,
            n_plan_versions=len(sql.plans),
            modified_configs=self._format_configs(start.configs),
            **self._find_connect_session(start.tags),
        )
        if error:
            self.rows.add_failure(
                "sql", sql_id=sql.sql_id, time_ms=end.time_ms if end else None, reason="query failed", message=error
            )

    def _find_connect_session(self, tags: list[str]) -> dict[str, str | None]:
        """Session and user of Spark Connect, which its tag of the jobs names."""
        found = next(filter(None, map(CONNECT_TAG.fullmatch, tags)), None)
        user = self.rows.redactor.redact_name(found["user"]) if found and found["user"] else None
        return {"connect_session": found["session"] if found else None, "connect_user": user}

    def _format_configs(self, configs: Any) -> str | None:
        if not isinstance(configs, dict):
            return None
        redactor = self.rows.redactor
        clean = {
            redactor.redact_property_name(name): redactor.redact_property(name, str(value))
            for name, value in sorted(configs.items())
        }
        return json.dumps(clean)

    def _count_engines(self, nodes: PlanNodes) -> None:
        names = nodes.rows.coded["name"]
        counts = np.bincount(names.codes[nodes.is_final > 0], minlength=len(names.values)).tolist()
        for name, count in zip(names.values, counts, strict=True):
            if count and (engine := classify_node(name)):
                self.n_nodes_by_engine[engine] += count
                if engine == UNKNOWN:
                    self.rows.ledger.unknown_nodes[NUMBER.sub("", name)] += count

    def _write_plans(self, executions: list[SqlState], nodes: PlanNodes) -> None:
        redactor, coded = self.rows.redactor, nodes.rows.coded
        texts, metadata = coded["text"], coded["metadata"]
        words = [self._find_column_words(nodes, number) for number in range(len(executions))]
        # A text, and metadata, are those of one execution.
        text_owners, metadata_owners = np.zeros(len(texts.values), int), np.zeros(len(metadata.values), int)
        text_owners[texts.codes], metadata_owners[metadata.codes] = nodes.owner, nodes.owner
        clean_texts = [
            redactor.redact_plan(text, words[owner])
            for text, owner in zip(texts.values, text_owners.tolist(), strict=True)
        ]
        clean_metadata = [
            content and self._format_metadata(content, words[owner])
            for content, owner in zip(metadata.values, metadata_owners.tolist(), strict=True)
        ]
        codegen_ids = nodes.rows.numbers["codegen_id"]
        self.rows.sink.add_columns(
            tables.PLAN_NODES.name,
            {
                "log_id": np.full(len(nodes.owner), self.rows.log_id),
                "sql_id": np.array([sql.sql_id for sql in executions], np.int64)[nodes.owner],
                "plan_version": nodes.version,
                "is_final": nodes.is_final > 0,
                "node_id": nodes.node_id,
                "parent_ids": coded["parents"],
                "codegen_id": np.ma.array(codegen_ids, mask=codegen_ids < 0),
                "depth": nodes.rows.numbers["depth"],
                "node_name": Coded(coded["name"].codes, list(map(redactor.redact_label, coded["name"].values))),
                "simple_string": Coded(texts.codes, clean_texts),
                "accumulator_ids": coded["accumulators"],
                "metadata": Coded(metadata.codes, clean_metadata),
            },
        )

    def _find_column_words(self, nodes: PlanNodes, number: int) -> frozenset[str]:
        """Columns and tables that the plans of an execution name, where texts are cleaned by them."""
        if not self.rows.redactor.strict:
            return frozenset()
        is_own = nodes.owner == number
        names, texts, metadata = (
            [column.values[code] for code in np.unique(column.codes[is_own]).tolist()]
            for column in (nodes.rows.coded[name] for name in ("name", "text", "metadata"))
        )
        told = (str(value) for content in metadata if content for value in content.values())
        return self.rows.redactor.find_column_words(names, [*texts, *told])

    def _format_metadata(self, metadata: dict[str, object], columns: frozenset[str]) -> str:
        clean = {
            remove_secrets(name): self.rows.redactor.redact_plan(str(value), columns)
            for name, value in metadata.items()
        }
        return json.dumps(clean)

    def _write_node_metrics(self, executions: list[SqlState], nodes: PlanNodes) -> None:
        metrics, redactor = describe_metrics(executions, nodes), self.rows.redactor
        self.rows.ledger.metrics_planned.update(metrics.id.tolist())
        summaries, stage_ids = summarize_updates(executions, metrics)
        names, kinds = metrics.node_name, metrics.kind
        self.rows.sink.add_columns(
            tables.NODE_METRICS.name,
            {
                "log_id": np.full(len(metrics.id), self.rows.log_id),
                "sql_id": np.array([sql.sql_id for sql in executions], np.int64)[metrics.owner],
                "plan_version": metrics.version,
                "node_id": np.ma.array(metrics.node_id, mask=metrics.node_id < 0),
                "node_name": Coded(names.codes, list(map(redactor.redact_label, names.values))),
                "accumulator_id": metrics.id,
                "metric_name": Coded(kinds.codes, [redactor.redact_label(name) for name, _ in kinds.values]),
                "metric_type": Coded(kinds.codes, [remove_secrets(kind) for _, kind in kinds.values]),
                **statistics_columns(summaries),
                "driver_value": find_driver_values(executions, metrics),
                "stage_ids": stage_ids,
            },
        )
