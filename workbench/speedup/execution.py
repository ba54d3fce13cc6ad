"""One SQL execution with its plan, its stages and what each node's metrics came to in each stage."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from workbench.eventlog.reader import Facts
from workbench.speedup import engines
from workbench.speedup.engines.engine import Operator

# Divisors to seconds of the metric types that are times.
TIME_TYPES = {"timing": 1e3, "nsTiming": 1e9}
_PATH = re.compile(r"Location: [^\[]*\[([^\],]+)")


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the final plan. `metrics` holds per stage the totals by name: times in seconds, others as counted;
    the driver's own are under stage -1.
    """

    node_id: int
    name: str
    operator: Operator
    parent_ids: tuple[int, ...]
    arguments: str
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)

    def total(self, name: str) -> float:
        """A metric over all stages; 0 where nothing was reported."""
        return sum(values.get(name, 0.0) for stage, values in self.metrics.items() if stage >= 0)

    @property
    def rows(self) -> float:
        """Rows that it gave."""
        return self.total("number of output rows")


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage attempt: what its tasks took, in task seconds, and when they ran, in epoch seconds."""

    stage_id: int
    attempt_id: int
    start_s: float
    end_s: float
    task_s: float
    run_s: float
    n_tasks: int
    n_failed: int


@dataclass(frozen=True, eq=False)
class Execution:
    """One run of one query; `number` counts the runs of this description in its log, from 0.

    Executions that it started itself, `inner_ids`, are part of it: their stages, and their nodes, numbered on from its
    own.
    """

    log_id: int
    sql_id: int
    query: str
    number: int
    status: str
    start_s: float
    end_s: float
    nodes: dict[int, Node]
    stages: tuple[Stage, ...]
    inner_ids: tuple[int, ...] = ()

    @property
    def wall_s(self) -> float:
        """From start to end."""
        return self.end_s - self.start_s

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Nodes that feed each node."""
        found: dict[int, list[int]] = defaultdict(list)
        for node in self.nodes.values():
            for parent in node.parent_ids:
                found[parent].append(node.node_id)
        return {parent: tuple(below) for parent, below in found.items()}


def read_executions(facts: Facts) -> Iterator[Execution]:
    """SQL executions that ended and that no other one started, in the order of their ids, by log."""
    inner = _inner(facts)
    started = {member for members in inner.values() for member in members}
    nodes = _by_execution(facts.plan_nodes.filter(pl.col("is_final")))
    stages = _by_execution(
        facts.stages.filter(pl.col("sql_id").is_not_null()).join(
            facts.stage_tasks, on=["log_id", "stage_id", "stage_attempt_id"], how="inner"
        )
    )
    metrics = _by_execution(_metrics_by_stage(facts))
    seen: dict[tuple[int, str], int] = defaultdict(int)
    rows = facts.sql_executions.sort("log_id", "sql_id").iter_rows(named=True)
    for row in rows:
        key = (row["log_id"], row["sql_id"])
        if key in started or row["start_time_ms"] is None or row["end_time_ms"] is None:
            continue
        members = (key, *inner.get(key, ()))
        query = row["description"] or ""
        number = seen[row["log_id"], query]
        seen[row["log_id"], query] += 1
        yield Execution(
            *key,
            query,
            number,
            row["status"],
            row["start_time_ms"] / 1e3,
            row["end_time_ms"] / 1e3,
            _numbered_on(_nodes(nodes.get(member, []), metrics.get(member, [])) for member in members),
            tuple(
                _stage(stage)
                for member in members
                for stage in stages.get(member, [])
                if stage["first_launch_time_ms"] is not None
            ),
            tuple(sql_id for _, sql_id in members[1:]),
        )


def _inner(facts: Facts) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Executions that another one of the log started, by that one.

    A command such as CREATE TABLE AS SELECT or CACHE TABLE has no stage of its own: what it does is in these.
    """
    known = facts.sql_executions.select("log_id", root_sql_id="sql_id")
    rows = facts.sql_executions.filter(pl.col("root_sql_id") != pl.col("sql_id"))
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    rows = rows.join(known, on=["log_id", "root_sql_id"], how="semi").sort("log_id", "sql_id")
    for log_id, root, sql_id in rows.select("log_id", "root_sql_id", "sql_id").iter_rows():
        found[log_id, root].append((log_id, sql_id))
    return found


def _numbered_on(plans: Iterable[dict[int, Node]]) -> dict[int, Node]:
    """The nodes of several plans, each plan's numbers after those of the one before."""
    found: dict[int, Node] = {}
    for plan in plans:
        first = max(found, default=-1) + 1
        for node in plan.values():
            parents = tuple(parent + first for parent in node.parent_ids)
            found[node.node_id + first] = replace(node, node_id=node.node_id + first, parent_ids=parents)
    return found


def _by_execution(frame: pl.DataFrame) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in frame.iter_rows(named=True):
        found[row["log_id"], row["sql_id"]].append(row)
    return found


def _metrics_by_stage(facts: Facts) -> pl.DataFrame:
    """What each metric came to in each stage of its execution, and under stage -1 what the driver added."""
    named = facts.node_metrics.select(
        "log_id", "sql_id", "accumulator_id", "metric_name", "metric_type", "driver_value"
    ).unique(["log_id", "sql_id", "accumulator_id"], keep="first", maintain_order=True)
    owners = facts.stages.filter(pl.col("sql_id").is_not_null()).select(
        "log_id", "sql_id", "stage_id", "stage_attempt_id"
    )
    of_tasks = (
        facts.accumulators.join(owners, on=["log_id", "stage_id", "stage_attempt_id"])
        .join(named, on=["log_id", "sql_id", "accumulator_id"])
        .filter(pl.col("total").is_not_null())
        .group_by("log_id", "sql_id", "accumulator_id", "stage_id", "metric_name", "metric_type")
        .agg(pl.col("total").sum().cast(pl.Float64))
    )
    of_driver = named.filter(pl.col("driver_value").is_not_null()).select(
        "log_id",
        "sql_id",
        "accumulator_id",
        pl.lit(-1, pl.Int64).alias("stage_id"),
        "metric_name",
        "metric_type",
        total=pl.col("driver_value").cast(pl.Float64),
    )
    divisor = pl.col("metric_type").replace_strict(TIME_TYPES, default=1.0, return_dtype=pl.Float64)
    return pl.concat([of_tasks, of_driver]).with_columns(total=pl.col("total") / divisor)


def _nodes(rows: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> dict[int, Node]:
    values: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for metric in metrics:
        values[metric["accumulator_id"]].append(metric)
    nodes = {}
    for row in sorted(rows, key=lambda row: row["node_id"]):
        name = row["node_name"]
        by_stage: dict[int, dict[str, float]] = defaultdict(dict)
        for accumulator in row["accumulator_ids"] or ():
            for metric in values.get(accumulator, ()):
                by_stage[metric["stage_id"]][metric["metric_name"]] = metric["total"]
        operator = engines.operator(name)
        nodes[row["node_id"]] = Node(
            row["node_id"],
            name,
            operator,
            tuple(row["parent_ids"] or ()),
            row["simple_string"] or "",
            dict(by_stage),
        )
    return nodes


def _stage(row: dict[str, Any]) -> Stage:
    start_ms = row["first_launch_time_ms"]
    return Stage(
        row["stage_id"],
        row["stage_attempt_id"],
        start_ms / 1e3,
        max(start_ms, row["last_finish_time_ms"] or start_ms) / 1e3,
        (row["task_duration_total_ms"] or 0) / 1e3,
        row["executor_run_time_ms"] / 1e3,
        row["n_tasks"],
        row["n_failed"] + row["n_killed"],
    )


def fingerprint(execution: Execution) -> str | None:
    """A digest of what the query reads, equal on every engine: its tables, their columns; null when it reads no files.

    Only scans count, each once: engines and adaptive plans differ in joins, exchanges and reused branches of one and
    the same query, but columns are pruned before an engine is chosen. Where Spark has cut a table's path short, its
    columns alone stand for it.
    """
    scans = {
        (table_name(node.arguments), columns_read(node.arguments))
        for node in execution.nodes.values()
        if node.operator.name.startswith("Scan")
    }
    if not scans:
        return None
    return hashlib.sha256("\n".join(f"{table} {columns}" for table, columns in sorted(scans)).encode()).hexdigest()[:12]


def table_name(arguments: str) -> str:
    """The table that a scan reads: the last part of its (first) path, since folders differ between clusters.

    Empty where Spark has cut the path, as it does at 100 characters: what is left is a folder's.

    Examples
    --------
    >>> table_name("Format: Parquet, Location: InMemoryFileIndex(1 paths)[file:/x/orders], PartitionFilters: []")
    'orders'
    >>> table_name("Location: InMemoryFileIndex(1 paths)[file:/x/or..., PartitionFilters: [isnotnull(k#8)]")
    ''
    """
    place = _PATH.search(arguments)
    path = place[1] if place else ""
    return "" if path.endswith("...") else path.rstrip("/").rpartition("/")[2]


def columns_read(arguments: str) -> str:
    """The columns that a scan reads, with their types; filters known only while a query runs hold ids of its own."""
    return arguments.partition("ReadSchema: ")[2].partition(" RuntimeFilters: ")[0]
