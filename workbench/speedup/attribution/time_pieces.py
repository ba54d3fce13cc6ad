"""Wall time of an execution cut into pieces, and the work of each operator."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import polars as pl

from workbench.core.books import build_books, describe_broken_books
from workbench.eventlog.completeness import CLOCK, OPEN_END, describe_holes, select_harmful, select_touching
from workbench.eventlog.fold import CUT_OFF
from workbench.eventlog.invariants import list_log_books
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.wall_time import (
    clip_spans,
    merge_spans,
    subtract_spans,
    sum_spans,
)
from workbench.speedup.attribution.application_time import ApplicationTime, read_application_time
from workbench.speedup.attribution.executions import (
    Execution,
    Node,
    Stage,
    fingerprint_inputs,
    list_inner_ids,
    read_executions,
)
from workbench.speedup.attribution.executor_time import measure_executors
from workbench.speedup.tables import APPLICATIONS_MEASURED, EXECUTIONS, PIECES

IDLE = "idle"
# Time that no engine changes: a stage is open and no task of the application runs; the query has no open stage.
WAITING, DRIVER = "waiting for executors", "driver"
UNTOUCHABLE = (WAITING, DRIVER)
# Shorter times between tasks are the scheduler's, and count as idle.
MIN_QUIET_S = 1.0
OVERHEAD = "task overhead"
UNKNOWN = "unattributed"
# Measurement that a piece rests on.
OWN, SPAN, REMAINDER, AROUND = "own metric", "span minus inputs", "remainder", "around the tasks"
StageCut = list[tuple[str | None, tuple[int, ...], str, float]]
COLD, FAILED = "cold: first run in its session", "failed"
LATER = "later run in its session: first runs are compared"
UNFINISHED = "no end event: timed until its last stage"
# Applications of these statuses have no time that can be used, or are counted elsewhere.
NOT_COUNTED = ("unreadable", "contradictory", "partial", "duplicate", "superseded")
# Holes that the row of an application tells in its own words, or that change none of its figures.
TOLD_ELSEWHERE = ("query end", "environment", "application start", CLOCK)
REPEATED_TASKS = "tasks failed or were killed"
NO_TIME = "took no time by its own timestamps"
CONTRADICTORY = "its tasks' times contradict each other"
# Share and seconds by which tasks may run longer by their metrics than by their times.
MAX_RUN_EXCESS, MAX_RUN_EXCESS_S = 0.05, 1.0
EXECUTION_KEY = ("label", "session", "sql_id")
_IS_OPAQUE = pl.col("opaque").fill_null(pl.lit([], pl.List(pl.Boolean)))
# Pieces that no engine changes: waits, driver time, and code of users whose own time is known; and those that may be
# all such code, since it shares their time with other operators.
IS_USER_CODE = ((pl.col("basis") == OWN) & (_IS_OPAQUE.list.len() > 0) & _IS_OPAQUE.list.all()).fill_null(value=False)
IS_FIXED = pl.col("term").fill_null("").is_in(UNTOUCHABLE) | IS_USER_CODE
MAY_BE_OPAQUE = (_IS_OPAQUE.list.any() & ~IS_FIXED).fill_null(value=False)
# Whether an execution counts.
COUNTS = pl.col("why_not").is_null()
# Descriptions that Structured Streaming and DStreams give to the jobs of a batch.
STREAMING_PATTERN = r"(?s)(id = [0-9a-f-]{36}.{1,20}runId = [0-9a-f-]{36}.{1,20}batch = |^Streaming job from )"
_STREAMING_REGEX = re.compile(STREAMING_PATTERN)
_BATCH = re.compile(r"(?s)id = ([0-9a-f-]{36}).{1,20}runId = ([0-9a-f-]{36}).{1,20}batch = (\w+)")
_IS_BATCH = pl.col("description").fill_null("").str.contains(STREAMING_PATTERN)


@dataclass(frozen=True)
class TimePiece:
    """A part of an execution's wall time that rests on one measured time.

    `node_ids` are the operators that share it: one where an operator reports its own time, several where a codegen
    span fuses them, none where `term` names another kind of time (idle, task overhead, unattributed).
    """

    stage_id: int | None
    term: str | None
    node_ids: tuple[int, ...]
    basis: str
    task_s: float
    wall_s: float


@dataclass(frozen=True)
class PlanRegion:
    """Operators between exchanges, which run in the same stages."""

    nodes: tuple[Node, ...]
    writes: tuple[Node, ...]
    reads: tuple[Node, ...]
    stage_ids: frozenset[int]


def split_wall_time(execution: Execution) -> list[TimePiece]:
    """Split an execution's wall time into pieces, whose `wall_s` adds up to it.

    A stage's wall time is cut like its task time, so the time that cores wait for each other is spread evenly.
    """
    walls, rest = split_wall_by_stage(execution)
    pieces = [
        TimePiece(None, term, (), AROUND, 0.0, seconds) for term, seconds in rest.items() if seconds or term == IDLE
    ]
    regions = _split_into_regions(execution)
    by_stage: dict[int, list[Stage]] = defaultdict(list)
    for stage in execution.stages:
        by_stage[stage.stage_id].append(stage)
    for stage_id, attempts in by_stage.items():
        task_s = sum(stage.task_s for stage in attempts)
        run_s = min(task_s, sum(stage.run_s for stage in attempts))
        wall_s = sum(walls[stage] for stage in attempts)
        # Metrics of plans are of tasks that succeeded; the others did the same work.
        told = 1 - sum(stage.failed_s for stage in attempts) / task_s if task_s else 1.0
        of_stage = [region for region in regions if stage_id in region.stage_ids] if told > 0 else []
        cut = _cut_stage_time(execution, of_stage, stage_id, run_s * told if of_stage else run_s)
        if of_stage:
            cut = [(term, nodes, basis, part_s / told) for term, nodes, basis, part_s in cut]
        cut.append((OVERHEAD, (), AROUND, task_s - run_s))
        scale = wall_s / task_s if task_s else 0.0
        if not task_s:
            pieces.append(TimePiece(stage_id, OVERHEAD, (), AROUND, 0.0, wall_s))
        pieces += [
            TimePiece(stage_id, term, node_ids, basis, part_s, part_s * scale)
            for term, node_ids, basis, part_s in cut
            if part_s > 0
        ]
    return pieces


def split_wall_by_stage(execution: Execution) -> tuple[dict[Stage, float], dict[str, float]]:
    """Wall time of each stage, and the time in which none of its tasks ran, by kind: idle, waiting, driver.

    Where several stages run, an instant is divided by the slots that they use (task time over length), so nothing is
    counted twice.
    """
    inside = (execution.start_s, execution.end_s)
    spans = [
        (first, last, stage)
        for stage in execution.stages
        for first, last in clip_spans(stage.spans, *inside)
        if last > first
    ]
    moves = sorted(
        [(first, 1, number) for number, (first, _, _) in enumerate(spans)]
        + [(last, 0, number) for number, (_, last, _) in enumerate(spans)]
    )
    walls = dict.fromkeys(execution.stages, 0.0)
    running: dict[int, tuple[Stage, float]] = {}
    reached = execution.start_s
    for instant, begins, number in moves:
        if running and instant > reached:
            total = sum(slots for _, slots in running.values())
            for stage, slots in running.values():
                walls[stage] += (instant - reached) * slots / total
        reached = instant
        if begins:
            stage = spans[number][2]
            running[number] = (spans[number][2], (max(stage.task_s, 1e-4) / max(sum_spans(stage.spans), 1e-3)))
        else:
            running.pop(number, None)
    busy = merge_spans((first, last) for first, last, _ in spans)
    quiet = subtract_spans([inside] if inside[1] > inside[0] else [], busy)
    # Time in which no task of an execution ran, by kind.
    stages = merge_spans((stage.opened_s, stage.closed_s) for stage in execution.stages)
    unopened = subtract_spans(quiet, stages)
    opened = subtract_spans(quiet, unopened)
    waiting_s, driver_s = (
        sum_spans([span for span in spans if span[1] - span[0] >= MIN_QUIET_S])
        for spans in (subtract_spans(opened, execution.running), unopened)
    )
    quiet_time = {IDLE: max(0.0, sum_spans(quiet) - waiting_s - driver_s), WAITING: waiting_s, DRIVER: driver_s}
    return walls, quiet_time


def _cut_stage_time(execution: Execution, regions: list[PlanRegion], stage_id: int, run_s: float) -> StageCut:
    """Cut the run time of a stage's tasks into operators' own metrics, spans without nested times, and the remainder.

    `run_s`: Run time of all tasks of the stage in seconds.
    """
    # Sum the time metrics of each node in a stage, by node id; nodes without a time are left out.
    own_times: dict[int, float] = defaultdict(float)
    for region in regions:
        for node in (*region.nodes, *region.writes):
            own_times[node.node_id] += _sum_values(node.metrics.get(stage_id, {}), node.operator.own_times)
        for node in region.reads:
            own_times[node.node_id] += _sum_values(node.metrics.get(stage_id, {}), node.operator.read_times)
    own_times = {node: seconds for node, seconds in own_times.items() if seconds > 0}
    spans = _subtract_nested_spans(execution, regions, stage_id, own_times)
    covered_s = sum(own_times.values()) + sum(seconds for _, seconds in spans)
    # Metrics come from separate clocks and may overlap slightly; their sum is capped at the run time.
    scale = min(1.0, run_s / covered_s) if covered_s else 1.0
    cut: StageCut = [(None, (node,), OWN, seconds * scale) for node, seconds in own_times.items()]
    cut += [(None, members, SPAN, seconds * scale) for members, seconds in spans]
    remainder_s = run_s - covered_s * scale
    inside = {node for members, _ in spans for node in members}
    members = tuple(
        node.node_id
        for region in regions
        for node in (*region.nodes, *region.writes)
        if _may_take_time(node)
        and node.node_id not in inside
        and (node.operator.kind == "exchange" or node.node_id not in own_times)
    )
    if members:
        return [*cut, (None, members, REMAINDER, remainder_s)]
    if covered_s:
        grown = remainder_s / (covered_s * scale) if run_s else 0.0
        return [(term, nodes, basis, seconds * (1 + grown)) for term, nodes, basis, seconds in cut]
    return [(UNKNOWN, (), REMAINDER, remainder_s)]


def _may_take_time(node: Node) -> bool:
    """Whether the operator may take time outside its own metrics."""
    return node.operator.kind != "none"


def _subtract_nested_spans(
    execution: Execution, regions: list[PlanRegion], stage_id: int, own_times: dict[int, float]
) -> list[tuple[tuple[int, ...], float]]:
    """Pairs of the nodes of a span and its seconds without those of the spans inside it, deepest first.

    `own_times`: Seconds by node id.
    """
    spans: list[tuple[tuple[int, ...], float]] = []
    for region in regions:
        # A broadcast table exists before the tasks start: reading it is part of the join.
        reads = (node for node in region.reads if node.operator.kind != "broadcast")
        ids = {node.node_id: node for node in (*region.nodes, *reads)}
        totals: dict[int, float] = {}
        covered: set[int] = set()
        for node in sorted(region.nodes, key=lambda node: -node.node_id):
            values = node.metrics.get(stage_id, {})
            total = sum(values.get(name, 0.0) for name in node.operator.span_times)
            if total <= 0:
                continue
            below = _find_nodes_below(execution, node.node_id, ids)
            inner = {
                other
                for other in totals
                if other in below and not _is_inside_other_span(execution, other, totals, below, ids)
            }
            inside = sum(totals[other] for other in inner)
            fresh = [other for other in below if other not in covered]
            alone = total - inside - sum(own_times.get(other, 0.0) for other in fresh)
            totals[node.node_id] = total
            members = (
                node.node_id,
                *(other for other in fresh if other not in own_times and _may_take_time(ids[other])),
            )
            covered |= {node.node_id, *below}
            if alone > 0:
                spans.append((members, alone))
    return spans


def _is_inside_other_span(
    execution: Execution, node: int, totals: dict[int, float], below: set[int], ids: dict[int, Node]
) -> bool:
    """Whether another span below contains this one."""
    return any(
        other != node and other in below and node in _find_nodes_below(execution, other, ids) for other in totals
    )


def _find_nodes_below(execution: Execution, node: int, ids: dict[int, Node]) -> set[int]:
    """Ids of the nodes below one, down to the exchanges that end its stage; `ids` are those considered."""
    node_ids: set[int] = set()
    todo = list(execution.children.get(node, ()))
    while todo:
        child = todo.pop()
        if child in ids and child not in node_ids:
            node_ids.add(child)
            # An exchange's own input ran in another stage.
            if not _is_exchange(ids[child]):
                todo += execution.children.get(child, ())
    return node_ids


def _is_exchange(node: Node) -> bool:
    return node.operator.kind in ("exchange", "broadcast")


@lru_cache(maxsize=8)
def _split_into_regions(execution: Execution) -> list[PlanRegion]:
    """Cut the plan at its exchanges into regions."""
    home: dict[int, int] = {}

    def find_root(node: int) -> int:
        while home.setdefault(node, node) != node:
            node = home[node]
        return node

    plain = {key: node for key, node in execution.nodes.items() if not _is_exchange(node)}
    for key, node in plain.items():
        for parent in node.parent_ids:
            # A subquery has stages of its own, which end before those of the operator that uses it begin.
            if parent in plain and not node.name.startswith("Subquery"):
                home[find_root(key)] = find_root(parent)
    groups: dict[int, list[Node]] = defaultdict(list)
    for key, node in plain.items():
        groups[find_root(key)].append(node)
    return [_build_region(execution, group) for group in groups.values()]


def _build_region(execution: Execution, nodes: list[Node]) -> PlanRegion:
    """Build the region of the plan between exchanges: its nodes, the exchanges it writes and reads, and its stages."""
    inside = {node.node_id for node in nodes}
    writes = _unique_nodes(
        execution.nodes[parent]
        for node in nodes
        for parent in node.parent_ids
        if parent in execution.nodes and _is_exchange(execution.nodes[parent])
    )
    reads = _unique_nodes(
        execution.nodes[child]
        for node in nodes
        for child in execution.children.get(node.node_id, ())
        if child not in inside
    )
    stages = {stage for node in nodes for stage in node.metrics if stage >= 0}
    for node in writes:
        stages |= {stage for stage, values in node.metrics.items() if _has_shuffle_writes(values)}
    for node in reads:
        stages |= {stage for stage, values in node.metrics.items() if stage >= 0 and not _has_shuffle_writes(values)}
    return PlanRegion(tuple(nodes), writes, reads, frozenset(stages))


def _has_shuffle_writes(values: dict[str, float]) -> bool:
    return any(name.startswith(("shuffle records written", "shuffle bytes written")) for name in values)


def _unique_nodes(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple({node.node_id: node for node in nodes}.values())


def estimate_work(execution: Execution, node: Node) -> float:
    """Work of an operator in millions of rows, for aggregates times their functions.

    Joins count the rows of both inputs and of the output, exchanges the rows that they carry. Zero if the plan has no
    row counts; the operator then gets no part of a shared time.
    """
    name = node.operator.name
    if node.operator.kind == "exchange":
        rows = (
            node.sum_metric("shuffle records written")
            or node.sum_metric("records read")
            or count_input_rows(execution, node)
        )
    elif "Join" in name:
        rows = count_input_rows(execution, node) + node.rows
    elif name.endswith("Aggregate"):
        rows = count_input_rows(execution, node) * max(1, count_functions(node.arguments))
    elif booked_operator(execution, node).startswith("Scan"):
        rows = _count_scan_values(execution, node)
    else:
        rows = count_input_rows(execution, node)
    return rows / 1e6


def booked_operator(execution: Execution, node: Node) -> str:
    """The operator that a node's time is booked on.

    The conversion to rows directly above a scan belongs to the scan: Spark's reader decodes there what it has loaded,
    while an accelerator decodes in the scan. Elsewhere a conversion is a transition between engines.
    """
    if node.operator.kind == "transition" and node.operator.engine == "spark":
        below = [execution.nodes[child] for child in execution.children.get(node.node_id, ())]
        if len(below) == 1 and below[0].operator.name.startswith("Scan") and below[0].operator.engine == "spark":
            return below[0].operator.name
    return node.operator.name


def count_input_rows(execution: Execution, node: Node) -> float:
    """Count the rows of all inputs of a node; an input without a row count passes on those of its own inputs."""
    return sum(_count_output_rows(execution, child, 0) for child in execution.children.get(node.node_id, ()))


def count_functions(arguments: str) -> int:
    """Number of functions of an aggregate, from its text (which may be cut).

    >>> count_functions("HashAggregate(keys=[k#1], functions=[partial_sum(a#2), partial_avg(b#3)])")
    2
    """
    inside = arguments.partition("functions=[")[2].partition("], output=")[0]
    return len(
        re.findall(
            r"\b(?:partial_|merge_)?(?:sum|avg|count|min|max|first|last|[a-z_]*(?:set|list|dev|var)[a-z_]*)\(", inside
        )
    )


def count_scan_columns(arguments: str) -> int:
    """Number of columns that a scan reads, from its text; at least one.

    >>> count_scan_columns("FileScan parquet [a#1,b#2L] Batched: true")
    2
    >>> count_scan_columns("Scan [a#1,b#2,... 7 more fields] x")
    9
    """
    inside = arguments.partition("[")[2].partition("] ")[0]
    more = re.search(r"\.\.\. (\d+) more fields", inside)
    return max(1, inside.count("#") + (int(more[1]) if more else 0))


def _count_scan_values(execution: Execution, node: Node) -> float:
    """Rows times columns of a scan, or of the scan below a conversion to rows."""
    if not node.operator.name.startswith("Scan"):
        node = execution.nodes[execution.children[node.node_id][0]]
    return node.rows * count_scan_columns(node.arguments)


def _count_output_rows(execution: Execution, node_id: int, depth: int) -> float:
    node = execution.nodes[node_id]
    rows = node.rows or node.sum_metric("shuffle records written") or node.sum_metric("records read")
    if rows or depth > 50:
        return rows
    return sum(_count_output_rows(execution, child, depth + 1) for child in execution.children.get(node_id, ()))


@dataclass(frozen=True, eq=False)
class Measured:
    """`EXECUTIONS` and `PIECES` of any number of logs, under one or several labels."""

    executions: pl.DataFrame
    pieces: pl.DataFrame

    def select(self, *conditions: pl.Expr) -> Measured:
        """Select the executions that meet all conditions, with their pieces."""
        executions = self.executions.filter(*conditions)
        return Measured(executions, self.pieces.join(executions, on=EXECUTION_KEY, how="semi"))

    def exclude_queries(self, queries: Collection[str], reason: str) -> Measured:
        """Return a copy in which executions of these queries are marked as not counting."""
        excluded = pl.col("query").is_in(sorted(queries)) & COUNTS
        reasons = pl.when(excluded).then(pl.lit(reason)).otherwise(pl.col("why_not"))
        return Measured(self.executions.with_columns(why_not=reasons), self.pieces)

    def select_first_runs(self) -> Measured:
        """Return a copy in which first runs count instead of later ones."""
        reasons = pl.when(COUNTS).then(pl.lit(LATER)).when(pl.col("why_not") != COLD).then(pl.col("why_not"))
        return Measured(self.executions.with_columns(why_not=reasons), self.pieces)

    def include_first_runs(self) -> Measured:
        """Return a copy in which all executions but failed ones count: in production, most runs are first runs."""
        reasons = pl.when(pl.col("why_not") == FAILED).then(pl.col("why_not"))
        return Measured(self.executions.with_columns(why_not=reasons), self.pieces)

    def leave_out_waits(self) -> Measured:
        """Return a copy without waits for executors, in which driver time counts as idle: for comparing engines.

        Both sides wait for a cluster, and only by chance alike; what drivers do may differ between engines.
        """
        waits = self.sum_pieces(pl.col("term") == WAITING).rename({"wall_s": "waited_s"})
        executions = self._shorten_executions(waits)
        pieces = self.pieces.filter(pl.col("term").is_null() | (pl.col("term") != WAITING))
        return Measured(executions, pieces.with_columns(pl.col("term").replace({DRIVER: IDLE})))

    def split_off(self, is_fixed: pl.Expr) -> tuple[Measured, pl.DataFrame]:
        """A copy without some pieces and their time, and that time by execution: `label, session, sql_id, wall_s`."""
        fixed = self.sum_pieces(is_fixed)
        rest = self.pieces.filter(~is_fixed)
        return Measured(self._shorten_executions(fixed.rename({"wall_s": "waited_s"})), rest), fixed

    def sum_pieces(self, condition: pl.Expr) -> pl.DataFrame:
        """Wall time of some pieces by execution: `label, session, sql_id, wall_s`; no row without any."""
        return self.pieces.filter(condition).group_by(*EXECUTION_KEY, maintain_order=True).agg(pl.col("wall_s").sum())

    def _shorten_executions(self, times: pl.DataFrame) -> pl.DataFrame:
        """The executions without some of their time. `times`: `label, session, sql_id, waited_s`."""
        if not times.height:
            return self.executions
        joined = self.executions.join(times, on=EXECUTION_KEY, how="left", maintain_order="left")
        return joined.with_columns(wall_s=pl.col("wall_s") - pl.col("waited_s").fill_null(0.0)).drop("waited_s")


def measure_log_times(facts: EventLogFacts, label: str, session: str, *, log_id: int = 0) -> Measured:
    """Wall time of each execution of a log, and its pieces.

    Returns: Executions, including failed ones, those without an end event and those with holes (marked). Inner
    executions (the query of a command that creates or caches a table) are part of the outer one. Executions without a
    stage are left out: they measure the driver.
    """
    rows: list[dict[str, Any]] = []
    cut: list[dict[str, Any]] = []
    holes = select_touching(facts.completeness).filter(pl.col("log_id") == log_id)
    for execution in read_executions(facts):
        if execution.log_id != log_id or not execution.stages:
            continue
        key = {"label": label, "session": session, "sql_id": execution.sql_id}
        execution_holes = holes.filter(pl.col("sql_id").is_in([execution.sql_id, *execution.inner_ids]))
        rows.append(key | _build_execution_row(execution, describe_holes(execution_holes)))
        # Stages with code of a user, or with the read of a cache, whose own time the log does not tell. All time that
        # operators of such a stage share may be its.
        opaque_stages: set[int] = set()
        for region in _split_into_regions(execution):
            for node in region.nodes:
                if node.is_opaque or node.is_cache_read:
                    told = {
                        stage for stage, values in node.metrics.items() if _sum_values(values, node.operator.own_times)
                    }
                    opaque_stages |= region.stage_ids - told
        cut += [
            key | {"piece": number} | _build_piece_row(execution, piece, opaque_stages)
            for number, piece in enumerate(split_wall_time(execution))
        ]
    return Measured(EXECUTIONS.frame(rows), PIECES.frame(cut))


def concat_measured_logs(parts: Iterable[Measured]) -> Measured:
    """Join the executions and pieces of several logs."""
    logs = list(parts)
    return Measured(
        pl.concat([EXECUTIONS.frame([]), *(part.executions for part in logs)]),
        pl.concat([PIECES.frame([]), *(part.pieces for part in logs)]),
    )


def _build_execution_row(execution: Execution, holes: list[str]) -> dict[str, Any]:
    """Row of table EXECUTIONS; `why_not` is the reason why the execution does not count, null if it does."""
    failed_tasks = sum(stage.n_failed for stage in execution.stages)
    cold = execution.number == 0
    why_not: str | None
    if execution.status == "running":
        why_not = UNFINISHED
    elif execution.status != "succeeded":
        why_not = FAILED
    elif holes:
        why_not = "; ".join(holes)
    elif not execution.wall_s > 0:
        why_not = NO_TIME
    elif any(stage.run_s > stage.task_s * (1 + MAX_RUN_EXCESS) + MAX_RUN_EXCESS_S for stage in execution.stages):
        why_not = CONTRADICTORY
    elif cold:
        why_not = COLD
    else:
        why_not = REPEATED_TASKS if failed_tasks else None
    return {
        "query": execution.query,
        "description": execution.description,
        "number": execution.number,
        "fingerprint": fingerprint_inputs(execution),
        "plan": execution.plan,
        "engine": execution.engine,
        "read_rows": sum(node.rows for node in execution.nodes.values() if node.operator.name.startswith("Scan")),
        "file_bytes": sum(node.metrics.get(-1, {}).get("size of files read", 0.0) for node in execution.nodes.values()),
        "wall_s": execution.wall_s,
        "task_s": sum(stage.task_s for stage in execution.stages),
        "n_stages": len(execution.stages),
        "n_failed_tasks": failed_tasks,
        "cold": cold,
        "why_not": why_not,
        "expressions": sorted(execution.expressions),
        "started": datetime.fromtimestamp(execution.start_s, UTC).date().isoformat(),
        "planned_operators": sorted(execution.planned),
        "planned_counts": [execution.planned[name] for name in sorted(execution.planned)],
    }


def _sum_values(values: Mapping[str, float], names: Iterable[str]) -> float:
    return sum(values.get(name, 0.0) for name in names)


def _build_piece_row(execution: Execution, piece: TimePiece, opaque_stages: Collection[int]) -> dict[str, Any]:
    nodes = [execution.nodes[node] for node in piece.node_ids]
    may_be_opaque = piece.stage_id in opaque_stages and piece.basis != OWN
    return {
        "stage_id": piece.stage_id,
        "term": piece.term,
        "basis": piece.basis,
        "operators": [booked_operator(execution, node) for node in nodes],
        "node_ids": list(piece.node_ids),
        "accelerated": [node.operator.accelerated for node in nodes],
        "opaque": [node.is_opaque or may_be_opaque for node in nodes],
        "work": [estimate_work(execution, node) for node in nodes],
        "task_s": piece.task_s,
        "wall_s": piece.wall_s,
    }


def build_application_row(facts: EventLogFacts, log: str, sha256: str | None) -> dict[str, Any]:
    """The row of `APPLICATIONS_MEASURED` of the first log in `facts`."""
    log_row = facts.logs.row(0, named=True)
    of_log = pl.col("log_id") == log_row["log_id"]
    app = facts.applications.filter(of_log).row(0, named=True)
    time = read_application_time(facts, log_id=log_row["log_id"])
    # End of each SQL execution's last stage; the execution's own end where the log has no stage end.
    keys = ["stage_id", "stage_attempt_id"]
    stages = facts.stages.filter(pl.col("sql_id").is_not_null()).select("sql_id", *keys)
    last_work = stages.join(facts.stage_tasks, on=keys).group_by("sql_id").agg(pl.col("last_finish_time_ms").max())
    streaming = list_streaming_ids(facts)
    queries = facts.sql_executions.filter(of_log, ~pl.col("sql_id").is_in(streaming))
    roots = queries.filter(~pl.col("sql_id").is_in(list_inner_ids(facts, log_row["log_id"])))
    holes = facts.completeness.filter(of_log)
    n_torn = facts.bad_lines.filter(of_log, pl.col("reason") == CUT_OFF).height
    of_application = facts.select_log(log_row["log_id"])
    wall = time.account(of_application)
    books = build_books(list_log_books(of_application, wall, time.start_ms, time.end_ms))
    status, reason = _application_status(log_row, app, time, holes, n_torn, describe_broken_books(books))
    n_unfinished = roots.filter(pl.col("status") == "running").join(last_work, on="sql_id").height
    if n_unfinished:
        reason = "; ".join(
            filter(None, [reason, f"{n_unfinished} query(s) without an end: timed until their last stage"])
        )
    if status != "partial":
        reason = (
            "; ".join(filter(None, [reason, *describe_holes(holes.filter(~pl.col("kind").is_in(TOLD_ELSEWHERE)))]))
            or None
        )
    names = ("app_id", "attempt_id", "app_name", "engine", "spark_version", "start_time_ms")
    # Batches, of which one may be several executions.
    texts = facts.sql_executions.filter(_IS_BATCH)["description"].to_list()
    texts += [text for text in facts.jobs["description"].drop_nulls() if _STREAMING_REGEX.search(text)]
    streaming_batches = len({tuple(_BATCH.findall(text)[-1:]) or text for text in texts})
    row = {
        "log": log,
        **{name: app[name] for name in names},
        "n_queries": roots.height,
        "n_failed": int((roots["status"] == "failed").sum()),
        "n_streaming_batches": streaming_batches,
        "sha256": sha256,
        "status": status,
        "reason": reason,
    }
    if wall is None or time.start_ms is None or time.end_ms is None:
        unknown = (
            "executor_h",
            "wall_s",
            "sql_wall_s",
            "streaming_s",
            "outside_sql_s",
            "running_s",
            "waiting_s",
            "driver_s",
        )
        return row | dict.fromkeys(unknown)
    executors = measure_executors(of_application, time, books)
    return (
        row
        | {"wall_s": time.wall_s, "executor_h": executors.executor_h if executors.shapes.height else None}
        | {"running_s": wall.running_s, "waiting_s": wall.waiting_s, "driver_s": wall.driver_s}
        | _measure_application_times(facts, streaming, last_work, time.start_ms, time.end_ms)
    )


def build_unreadable_row(log: str, reason: str) -> dict[str, Any]:
    """The row of `APPLICATIONS_MEASURED` of a log that cannot be read."""
    blank = dict.fromkeys(APPLICATIONS_MEASURED.schema())
    return blank | {"log": log, "status": "unreadable", "reason": reason[:500]}


def describe_missing_times(app: Mapping[str, Any]) -> str:
    """ "start", "end" or both, whichever the application's log does not hold; empty if it holds both."""
    return " and ".join(name for name in ("start", "end") if app[f"{name}_time_ms"] is None)


def list_streaming_ids(facts: EventLogFacts) -> list[int]:
    """Ids of SQL executions that are streaming batches, and of those that ran inside one.

    What a foreachBatch runs has a description of its own. Before Spark 3.4 it names no root either: then it is known by
    its time, within a batch that ran no stage itself.
    """
    ids = facts.sql_executions.filter(_IS_BATCH)["sql_id"].to_list()
    while True:
        inner = facts.sql_executions.filter(
            pl.col("root_sql_id").is_in(ids), ~pl.col("sql_id").is_in(ids), pl.col("root_sql_id") != pl.col("sql_id")
        )
        if not inner.height:
            break
        ids += inner["sql_id"].to_list()
    at_work = facts.stages["sql_id"].drop_nulls().unique().to_list()
    idle = facts.sql_executions.filter(_IS_BATCH, ~pl.col("sql_id").is_in(at_work)).select(
        first_ms="start_time_ms", last_ms="end_time_ms"
    )
    rootless = facts.sql_executions.filter(pl.col("root_sql_id").is_null(), ~pl.col("sql_id").is_in(ids))
    inside = rootless.join(idle, how="cross").filter(
        pl.col("start_time_ms") >= pl.col("first_ms"), pl.col("end_time_ms") <= pl.col("last_ms")
    )
    return [*ids, *inside["sql_id"].unique().sort()]


def _measure_application_times(
    facts: EventLogFacts, streaming: list[int], last_work: pl.DataFrame, start_ms: int, end_ms: int
) -> dict[str, float]:
    """Seconds in which SQL, only streaming batches, and only jobs outside SQL ran: columns of APPLICATIONS_MEASURED.

    `streaming`: Executions of streaming batches. `last_work`: Time at which the last task of each query ended.
    """
    of_stream = set(streaming)
    sql: list[tuple[float | None, float | None]] = []
    batches: list[tuple[float | None, float | None]] = []
    outside: list[tuple[float | None, float | None]] = []
    executions = facts.sql_executions.join(last_work, on="sql_id", how="left").select(
        "sql_id", "start_time_ms", pl.coalesce("end_time_ms", "last_finish_time_ms")
    )
    for sql_id, start, end in executions.iter_rows():
        (batches if sql_id in of_stream else sql).append((start, end))
    jobs = facts.jobs.filter(pl.col("sql_id").is_null())
    for text, start, end in jobs.select("description", "submission_time_ms", "completion_time_ms").iter_rows():
        (batches if _STREAMING_REGEX.search(text or "") else outside).append((start, end))
    kinds = ([sql], [sql, batches], [sql, batches, outside])
    sql_s, busy_s, every_s = (
        sum_spans(merge_spans(clip_spans(chain.from_iterable(spans), start_ms, end_ms))) / 1e3 for spans in kinds
    )
    return {"sql_wall_s": sql_s, "streaming_s": busy_s - sql_s, "outside_sql_s": every_s - busy_s}


def _application_status(
    log: dict[str, Any],
    app: dict[str, Any],
    time: ApplicationTime,
    holes: pl.DataFrame,
    n_torn: int,
    broken: Sequence[str],
) -> tuple[str, str | None]:
    """Status of an application's log (complete, incomplete, partial, damaged, contradictory) and the reason.

    `broken`: Sentences on books that do not balance.
    """
    if touching := describe_holes(select_touching(holes)):
        return "partial", "; ".join(touching)
    if time.contradictions:
        return "contradictory", f"its times contradict each other: {'; '.join(time.contradictions)}"
    if broken:
        return "contradictory", "; ".join(broken)
    if log["fault"]:
        return "damaged", str(log["fault"])
    line_fault = f"{log['n_bad_lines']:,} of {log['n_lines']:,} lines could not be read" if log["n_bad_lines"] else None
    # A log that is being written ends anywhere.
    if line_fault and not (app["status"] != "complete" and n_torn == log["n_bad_lines"]):
        return "damaged", line_fault
    if select_harmful(holes).height:
        return "damaged", None
    if app["status"] != "complete" and OPEN_END not in holes["kind"]:
        return "incomplete", line_fault or f"the log lacks the application's {describe_missing_times(app)}"
    return "complete", None
