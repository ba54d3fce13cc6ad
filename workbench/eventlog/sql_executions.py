"""Assemble SQL executions: plans, node metrics and how they ended."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from workbench.eventlog import tables
from workbench.eventlog.engine_detection import NUMBER, UNKNOWN, classify_node
from workbench.eventlog.fold import parse_integer
from workbench.eventlog.listener_events import DriverUpdates, SqlEnd, SqlMetrics, SqlStart, SqlUpdate
from workbench.eventlog.log_redaction import remove_secrets
from workbench.eventlog.plan_graph import PlanColumns, unpack_plan
from workbench.eventlog.stage_statistics import INTERNAL, NO_VALUES, StageFacts, Summary, summarize_samples
from workbench.eventlog.table_sink import RowWriter, clamp_to_64_bits, statistics_columns

# What Spark Connect tags the jobs of an operation with.
CONNECT_TAG = re.compile(
    r"SparkConnect_OperationTag_User_(?P<user>.{0,200})_Session_(?P<session>[\w-]{1,80})_Operation_[\w-]{1,80}"
)
# A stage, and the place of an accumulator in it.
StageSample = tuple[StageFacts, int]


@dataclass
class SqlState:
    """A SQL execution whose rows are not written yet."""

    sql_id: int
    start: SqlStart | None = None
    end: SqlEnd | None = None
    plans: list[PlanColumns] = field(default_factory=list)
    loose: list[tuple[int, int]] = field(default_factory=list)  # plan version and accumulator
    metrics: dict[int, tuple[str, str]] = field(default_factory=dict)  # name and type, by accumulator
    driver: dict[int, int] = field(default_factory=dict)
    open_stages: int = 0
    failed_job: str | None = None  # message of its first failed job
    # By accumulator: its samples in the stages of this execution.
    values: dict[int, list[StageSample]] = field(default_factory=dict)
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
        for place, (accumulator_id, name) in enumerate(zip(facts.accumulator_ids, facts.names, strict=True)):
            if not name.startswith(INTERNAL):
                sql.values.setdefault(accumulator_id, []).append((facts, place))

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
            self.rows.ledger.sql_started.add(event.sql_id)
            self.rows.ledger.sql_starts.note_start(event.sql_id, event.time_ms)
            if event.root_id is not None and event.root_id != event.sql_id:
                self.rows.ledger.roots_named.setdefault(event.root_id, event.sql_id)
            self.rows.note_time(event.time_ms)
            self._add_plan(sql, event.packed)

    def _add_plan(self, sql: SqlState, packed: bytes) -> None:
        if packed:
            plan = unpack_plan(packed)
            sql.metrics |= plan.metrics
            sql.plans.append(plan)

    def _take_update(self, event: SqlUpdate) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            self._add_plan(sql, event.packed)

    def _take_metrics(self, event: SqlMetrics) -> None:
        if (sql := self._find_state(event.sql_id)) is not None:
            for metric in event.metrics:
                sql.loose.append((max(0, len(sql.plans) - 1), metric.accumulator_id))
                sql.metrics.setdefault(metric.accumulator_id, (metric.name, metric.type))

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
        self.rows.ledger.metrics_planned.update(sql.metrics)
        self._write_plans(sql)
        self._write_node_metrics(sql)

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

    def _write_plans(self, sql: SqlState) -> None:
        redactor = self.rows.redactor
        columns = redactor.find_column_words(sql.plans)
        if sql.plans:
            owners = list(map(classify_node, sql.plans[-1].names))
            self.n_nodes_by_engine.update(filter(None, owners))
            if UNKNOWN in owners:
                named = zip(owners, sql.plans[-1].names, strict=True)
                self.rows.ledger.unknown_nodes.update(NUMBER.sub("", name) for owner, name in named if owner == UNKNOWN)
        for version, plan in enumerate(sql.plans):
            count = len(plan.names)
            self.rows.sink.add_columns(
                tables.PLAN_NODES.name,
                {
                    "log_id": [self.rows.log_id] * count,
                    "sql_id": [sql.sql_id] * count,
                    "plan_version": [version] * count,
                    "is_final": [version == len(sql.plans) - 1] * count,
                    "node_id": range(count),
                    "parent_ids": plan.parent_ids,
                    "codegen_id": plan.codegen_ids,
                    "depth": plan.depths,
                    "node_name": list(map(redactor.redact_label, plan.names)),
                    "simple_string": [redactor.redact_plan(text, columns) for text in plan.texts],
                    "accumulator_ids": plan.accumulator_ids,
                    "metadata": [metadata and self._format_metadata(metadata, columns) for metadata in plan.metadata],
                },
            )

    def _format_metadata(self, metadata: dict[str, object], columns: frozenset[str]) -> str:
        clean = {
            remove_secrets(name): self.rows.redactor.redact_plan(str(value), columns)
            for name, value in metadata.items()
        }
        return json.dumps(clean)

    def _write_node_metrics(self, sql: SqlState) -> None:
        # (plan version, node id, node name, accumulator) of each metric, from the last plan version that has it.
        # Metrics of an adaptive subplan have no node, unless a node has them, too.
        rows: list[MetricRow] = []
        newer: set[int] = set()
        for version in range(len(sql.plans) - 1, -1, -1):
            plan = sql.plans[version]
            new = set(chain.from_iterable(plan.accumulator_ids)) - newer
            if new:
                rows += [
                    (version, node_id, plan.names[node_id], accumulator_id)
                    for node_id, ids in enumerate(plan.accumulator_ids)
                    for accumulator_id in dict.fromkeys(ids)
                    if accumulator_id in new
                ]
                newer |= new
        for version, accumulator_id in sql.loose:
            if accumulator_id not in newer:
                newer.add(accumulator_id)
                rows.append((version, None, None, accumulator_id))
        if not rows:
            return
        versions, node_ids, names, ids = zip(*rows, strict=True)
        kinds = [sql.metrics[accumulator_id] for accumulator_id in ids]
        redactor, count = self.rows.redactor, len(rows)
        samples = [sql.values.get(accumulator_id, ()) for accumulator_id in ids]
        self.rows.sink.add_columns(
            tables.NODE_METRICS.name,
            {
                "log_id": [self.rows.log_id] * count,
                "sql_id": [sql.sql_id] * count,
                "plan_version": versions,
                "node_id": node_ids,
                "node_name": list(map(redactor.redact_label, names)),
                "accumulator_id": ids,
                "metric_name": [redactor.redact_label(kind[0]) for kind in kinds],
                "metric_type": [remove_secrets(kind[1]) for kind in kinds],
                **statistics_columns(_summarize_over_stages(samples)),
                "driver_value": [clamp_to_64_bits(value) for value in map(sql.driver.get, ids)],
                "stage_ids": [_list_stage_ids(values) for values in samples],
            },
        )


MetricRow = tuple[int, int | None, str | None, int]


def _list_stage_ids(values: Sequence[StageSample]) -> list[int]:
    if len(values) < 2:
        return [values[0][0].tasks.key[0]] if values else []
    return sorted({facts.tasks.key[0] for facts, _ in values})


def _summarize_over_stages(samples: Sequence[Sequence[StageSample]]) -> list[Summary]:
    """Statistics of metrics over the samples of all stages: that of the stage where there is one."""
    summaries = [values[0][0].summaries[values[0][1]] if values else NO_VALUES for values in samples]
    several = [place for place, values in enumerate(samples) if len(values) > 1]
    if not several:
        return summaries
    parts = [[facts.sample(at) for facts, at in samples[place]] for place in several]
    values = np.concatenate([part for parts_of_one in parts for part in parts_of_one]).astype(np.int64, copy=False)
    sizes = np.array([sum(map(len, parts_of_one)) for parts_of_one in parts])
    for place, summary in zip(several, summarize_samples(values, sizes), strict=True):
        summaries[place] = summary
    return summaries
