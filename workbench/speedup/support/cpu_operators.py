"""Operators of recorded plans that an engine would leave on the CPU, why, and the time that they took."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import polars as pl

from workbench.core.formats import fit_answer
from workbench.eventlog.reader import EventLogFacts
from workbench.speedup import tables
from workbench.speedup.attribution.application_profile import Profile
from workbench.speedup.attribution.executions import is_user_code, list_calls
from workbench.speedup.engines import classify_operator, refine_operator, strip_suffix
from workbench.speedup.planning.planned_operators import PlannedOperator
from workbench.speedup.support.engine_support import EngineSupport

OPERATOR, FUNCTION, USER_CODE, FORMAT, TYPE, LIMIT, INPUT = (
    "operator", "function", "code of a user", "format", "type", "limit", "input on the CPU",
)  # fmt: skip
# Class of a plan's node where it is not its name and Exec.
_EXECS = {
    "Exchange": "ShuffleExchangeExec",
    "Scan": "FileSourceScanExec",
    "BatchScan": "BatchScanExec",
    "Scan In-memory table": "InMemoryTableScanExec",
    "Scan ExistingRDD": "RDDScanExec",
    "Scan JDBCRelation": "RowDataSourceScanExec",
    "Scan hive": "HiveTableScanExec",
    "Execute InsertIntoHadoopFsRelationCommand": "DataWritingCommandExec",
    "Execute InsertIntoHiveTable": "DataWritingCommandExec",
    "PythonMapInArrow": "MapInArrowExec",
}
# Work of the driver, which no engine changes.
_COMMAND = re.compile(r"Execute .*|Cache\w*|\w*Command(?:Result)?")
# A cast is told by its types, which no table has; and how types of numbers and texts are written.
_NO_FUNCTIONS = ("cast", "ansi_cast", "try_cast", "decimal", "char", "varchar")
_AGGREGATE = re.compile(r"(?:Hash|ObjectHash|Sort)Aggregate")
_SCHEMA = re.compile(r"ReadSchema: struct<(.*)")
_FIELD_TYPE = re.compile(r"[\w ]+:\s*([a-z_]+)")
# Types as schemas write them, and as RAPIDS' tables do.
_TYPES = {"bigint": "long", "smallint": "short", "tinyint": "byte", "timestamp_ntz": "timestamp", "integer": "int"}


@dataclass(frozen=True)
class CpuReport:
    """Tables CPU_OPERATORS and CPU_REASONS of one application on one engine."""

    engine: str
    operators: pl.DataFrame
    by_reason: pl.DataFrame
    n_operators: int
    accelerated_share: float
    wall_s: float
    reasons: tuple[str, ...]

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid where the profile of the log is."""
        return "invalid" if self.reasons else "valid"

    @property
    def n_left(self) -> int:
        """Operators that stay on the CPU."""
        return self.operators.unique(["sql_id", "node_id"]).height

    @property
    def left_s(self) -> float:
        """Their wall time, each second once."""
        return float(self.operators.unique(["sql_id", "node_id"])["wall_s"].sum())

    @cached_property
    def answer(self) -> str:
        """How much stays, and the reason with most time."""
        if not self.n_operators:
            return (
                f"No operator of a query is left to tell about: {self.accelerated_share:.0%} are accelerated already."
            )
        if not self.n_left:
            return f"{self.engine} runs all {self.n_operators:,} operators, by its tables."
        first = self.by_reason.row(0, named=True)
        most = f"most by {first['kind']} {first['what']}".removesuffix(" ")
        opening = f"{self.engine} leaves {self.n_left:,} of {self.n_operators:,} operators on the CPU"
        return fit_answer(f"{opening}, with {self.left_s:,.1f} of {self.wall_s:,.1f} s: {most}.", f"{opening}.")


def list_cpu_operators(facts: EventLogFacts, profile: Profile, support: EngineSupport) -> CpuReport:
    """What stays on the CPU of the final plans of a log. `facts`: Of one log, of plain Spark or of any engine."""
    times = {
        (sql_id, operator): wall_s
        for sql_id, operator, wall_s in profile.exclusive_times.group_by("sql_id", "operator")
        .agg(pl.col("wall_time_s").sum())
        .iter_rows()
    }
    names = dict(profile.queries.select("sql_id", "query").iter_rows())
    rows, n_work, n_accelerated = [], 0, 0
    for (sql_id,), plan in facts.plan_nodes.filter("is_final").group_by("sql_id", maintain_order=True):
        nodes = [_read_operator(row) for row in plan.to_dicts()]
        work = [node for node in nodes if node.is_work and not _COMMAND.fullmatch(node.name)]
        n_work += len(work)
        n_accelerated += sum(node.operator.accelerated for node in work)
        n_of = Counter(node.operator.name for node in work)
        for node, kind, what, note in list_reasons(nodes, support):
            rows.append(
                {
                    "query": names.get(sql_id, f"query {sql_id}"),
                    "sql_id": sql_id,
                    "node_id": node.node_id,
                    "operator": node.operator.name,
                    "kind": kind,
                    "what": what,
                    "note": note,
                    "wall_s": times.get((sql_id, node.operator.name), 0.0) / n_of[node.operator.name],
                }
            )
    operators = tables.CPU_OPERATORS.frame(rows)
    by_reason = (
        operators.group_by("kind", "what")
        .agg(
            n_operators=pl.len().cast(pl.Int64),
            n_queries=pl.col("sql_id").n_unique().cast(pl.Int64),
            wall_s=pl.col("wall_s").sum(),
            note=pl.col("note").drop_nulls().first(),
        )
        .sort("wall_s", "kind", "what", descending=[True, False, False])
    )
    return CpuReport(
        support.name,
        operators.sort("wall_s", "sql_id", "node_id", descending=[True, False, False]),
        tables.CPU_REASONS.check(by_reason),
        n_work - n_accelerated,
        n_accelerated / n_work if n_work else 0.0,
        float(profile.overview["wall_time_s"][0] or 0.0),
        profile.reasons,
    )


def _read_operator(row: dict[str, Any]) -> PlannedOperator:
    """An operator of a row of the table of plan nodes, as times are booked to it."""
    name, text = row["node_name"], row["simple_string"] or ""
    operator = refine_operator(classify_operator(name), text)
    return PlannedOperator(row["node_id"], tuple(row["parent_ids"]), name, text, operator)


def list_reasons(
    nodes: Sequence[PlannedOperator], support: EngineSupport
) -> Iterator[tuple[PlannedOperator, str, str, str | None]]:
    """Why work of a plan would stay on the CPU: node, kind, what, and the engine's note; no row for what it runs."""
    own = {node.node_id: list(_list_own_reasons(node, support)) for node in nodes}
    {node.node_id: node for node in nodes}
    left = {node_id for node_id, reasons in own.items() if reasons}
    if support.takes_native:
        _spread(nodes, left, merges_own=support.merges_own)
    for node in nodes:
        for kind, what, note in own[node.node_id]:
            yield node, kind, what, note
        if node.node_id in left and not own[node.node_id] and node.is_work and not node.operator.accelerated:
            yield node, INPUT, "", None


def _spread(nodes: Sequence[PlannedOperator], left: set[int], *, merges_own: bool) -> None:
    """Add what stays with what stays already, where an engine takes rows from its own operators only.

    Exchanges take any rows, and a join needs a broadcast of its own kind. `merges_own`: As in `EngineSupport`.
    """
    by_id = {node.node_id: node for node in nodes}
    # From the leaves up: numbers of nodes grow with their depth.
    for node in sorted(nodes, key=lambda node: -node.node_id):
        parents = [by_id[place] for place in node.parent_ids if place in by_id]
        if node.operator.name == "Exchange":
            inputs = [other for other in nodes if node.node_id in other.parent_ids]
            is_partial = merges_own and any(
                other.node_id in left and _AGGREGATE.fullmatch(other.operator.name) for other in inputs
            )
            left |= {other.node_id for other in parents if is_partial and _AGGREGATE.fullmatch(other.operator.name)}
        elif node.node_id in left:
            left |= {other.node_id for other in parents if other.operator.name != "Exchange"}
    left |= {
        node.node_id
        for node in nodes
        if node.operator.name == "BroadcastExchange" and left.intersection(node.parent_ids)
    }


def _list_own_reasons(node: PlannedOperator, support: EngineSupport) -> Iterator[tuple[str, str, str | None]]:
    """Reasons of one node, without those of its inputs."""
    plain = strip_suffix(node.name)
    if not node.is_work or node.operator.accelerated or (_COMMAND.fullmatch(plain) and plain not in _EXECS):
        return
    if is_user_code(node.name, node.text):
        yield USER_CODE, plain, None
        return
    head = next((known for known in sorted(_EXECS, key=len, reverse=True) if plain.startswith(known)), "")
    is_scan = plain.startswith(("Scan", "BatchScan"))
    exec_name = _EXECS[head] if head and (is_scan or plain == head) else f"{plain}Exec"
    if exec_name not in support.execs:
        yield OPERATOR, plain, support.notes.get(exec_name.lower())
    elif node.operator.name.startswith("Scan "):
        yield from _list_scan_reasons(node, support)
    for limit in support.limits:
        if limit.operator.fullmatch(node.operator.name) and limit.text.search(node.text):
            yield LIMIT, limit.what, limit.note
    for name in sorted(list_calls(node.text) - set(_NO_FUNCTIONS)):
        if name in support.known and name not in support.functions:
            yield FUNCTION, name, support.notes.get(name)


def _list_scan_reasons(node: PlannedOperator, support: EngineSupport) -> Iterator[tuple[str, str, str | None]]:
    """Format of a scan, and types of its columns."""
    data_format = node.operator.name.removeprefix("Scan").strip().lower() or "unknown"
    types = support.formats.get(data_format)
    if types is None:
        yield FORMAT, data_format, None
    elif types and (schema := _SCHEMA.search(node.text)):
        found = {_TYPES.get(name, name) for name in _FIELD_TYPE.findall(schema[1])}
        known = {"boolean", "byte", "short", "int", "long", "float", "double", "date", "timestamp", "string", "decimal"}
        for name in sorted((found & (known | {"binary", "array", "map", "struct"})) - types):
            yield TYPE, f"{name} in {data_format}", None
