"""SQL executions of a log with their plan, their stages, and the metrics of each node per stage."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import polars as pl

from workbench.eventlog.engine_detection import SPARK
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.wall_time import Spans, list_running_spans, merge_spans, pair_spans
from workbench.speedup import engines
from workbench.speedup.attribution.plan_identity import (
    fingerprint_plans,
    list_expressions,
    name_queries,
    scan_columns,
    scan_table_name,
    strip_description,
)
from workbench.speedup.engines import ACCELERATED, WORK, Operator

_OPERATORS = re.compile(
    r"\w*Python\w*|\w*InPySpark|\w*InPandas\w*|\w*MapInArrow|\w*InArrow|ArrowWindowPython|\w*GroupsInR\w*|MapElements"
    r"|MapPartitions\w*|FlatMapGroups\w*|MapGroups|CoGroup|TypedFilter|AppendColumns\w*|ScriptTransformation"
)
_FUNCTIONS = re.compile(
    r"\bUDF\(|\b(?:ScalaUDF|ScalaUDAF|ScalaAggregator|HiveSimpleUDF|HiveGenericUDF|HiveGenericUDTF|HiveUDAFFunction)\b"
)
# Operators of Spark whose arguments are expressions.
_COMPUTING = re.compile(r"Project|Filter|\w*Aggregate|Window|\w*Join|Generate|Sort|Expand|TakeOrderedAndProject")
_PARENTHESES = re.compile(r"([A-Za-z_][\w.]*)?\(|\)")
_STEP = re.compile(r"(?:partial|merge|finalmerge)_")


def is_user_code(name: str, arguments: str) -> bool:
    """Whether a node of a plan runs code of a user.

    Functions that a user registered are known by a name that Spark has not; engines' own nodes never run them.

    >>> is_user_code("Project", "Project [k#1L, score(abs(v#2)) AS s#3]")
    True
    >>> is_user_code("Project", "Project [k#1L, abs(v#2) AS score(v)#3]"), is_user_code("CometProject", "score(v#2)")
    (False, False)
    """
    if _OPERATORS.match(name.removeprefix("Gpu")) or _FUNCTIONS.search(arguments):
        return True
    return _COMPUTING.fullmatch(name.partition("(")[0]) is not None and not list_calls(arguments) <= _load_known_names()


@lru_cache(maxsize=4096)
def list_calls(arguments: str) -> frozenset[str]:
    """Functions that an operator calls, in lower case; columns that are named by a call stand before their number."""
    open_calls: list[tuple[str, int]] = []
    calls = set()
    for found in _PARENTHESES.finditer(arguments):
        if found[0] != ")":
            open_calls.append((found[1] or "", found.start()))
        elif open_calls:
            name, start = open_calls.pop()
            # A text begins with its operator; the name of a join's type is no function either.
            if name and start and name != "ExistenceJoin" and not arguments.startswith("#", found.end()):
                calls.add(_STEP.sub("", name.lower(), count=1))
    return frozenset(calls)


@lru_cache(maxsize=1)
def _load_known_names() -> frozenset[str]:
    """Spark's functions and expressions, made by `docs/extract_spark_functions.py`."""
    content = json.loads((files("workbench.speedup") / "spark_functions.json").read_text())
    return frozenset(content["names"])


# Divisors to seconds of the metric types that are times.
TIME_TYPES = {"timing": 1e3, "nsTiming": 1e9}
# Share of the accumulators with task updates that a final plan holds, unless it replaced what has run.
MIN_FINAL_SHARE = 0.5
# An execution that another one started ends with it, or a moment later.
INNER_TOLERANCE_MS = 1000
# What reads a table from Spark's cache; the plan below it ran when the cache was filled.
_CACHE_READS = ("InMemoryTableScan", "Scan In-memory table")


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the final plan, with the totals of its metrics by stage and name.

    Times are in seconds, other metrics as counted; the driver's own metrics are under stage -1.
    """

    node_id: int
    name: str
    operator: Operator
    parent_ids: tuple[int, ...]
    arguments: str
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)

    @property
    def is_opaque(self) -> bool:
        """Whether it runs code of a user that no engine can read."""
        return is_user_code(self.name, self.arguments)

    @property
    def is_cache_read(self) -> bool:
        """Whether it reads a table from Spark's cache."""
        return self.name.startswith(_CACHE_READS)

    def sum_metric(self, name: str) -> float:
        """A metric summed over all stages; 0 without reports."""
        return sum(values.get(name, 0.0) for stage, values in self.metrics.items() if stage >= 0)

    @property
    def rows(self) -> float:
        """Output rows."""
        return self.sum_metric("number of output rows")


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage attempt: start and end in epoch seconds, and the time of its tasks in task seconds.

    `opened_s`, `closed_s`: when it was submitted and completed; `spans`: when at least one of its tasks ran;
    `failed_s`: of tasks that did not succeed, in task seconds.
    """

    stage_id: int
    attempt_id: int
    start_s: float
    end_s: float
    task_s: float
    run_s: float
    n_tasks: int
    n_failed: int
    opened_s: float
    closed_s: float
    spans: Spans
    failed_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Execution:
    """One run of one query; `number` counts the runs of this query in its log, from 0.

    `query` is the description where that names one plan in the log, else tables and fingerprint stand behind it; `plan`
    is the fingerprint. `running` is when any task of the application ran. `inputs` are the tables and columns of all
    versions of its plan: adaptive execution drops a scan from the final version where it finds a result empty.
    `expressions` are what no engine changes of its filters, joins and aggregates. `planned` counts the operators of the
    first version, with a star where an accelerator was to run them.

    Executions that it started (`inner_ids`) are part of it where they ran within it: it has their stages, and their
    nodes with numbers that continue its own. Its time is the union of its span and its stages.
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
    inputs: frozenset[tuple[str, str]] = frozenset()
    planned: Mapping[str, int] = field(default_factory=dict)
    description: str = ""
    plan: str | None = None
    running: Spans = field(default_factory=list)
    expressions: frozenset[str] = frozenset()

    @property
    def wall_s(self) -> float:
        """Time from start to end."""
        return self.end_s - self.start_s

    @property
    def engine(self) -> str:
        """The accelerator that ran most of its operators, else Spark."""
        accelerators = Counter(node.operator.engine for node in self.nodes.values() if node.operator.kind in WORK)
        accelerators.pop(SPARK, None)
        return accelerators.most_common(1)[0][0] if accelerators else SPARK

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Ids of the inputs of each node."""
        child_ids: dict[int, list[int]] = defaultdict(list)
        for node in self.nodes.values():
            for parent in node.parent_ids:
                child_ids[parent].append(node.node_id)
        return {parent: tuple(below) for parent, below in child_ids.items()}


def read_executions(facts: EventLogFacts) -> Iterator[Execution]:
    """SQL executions by log and id; inner ones are merged into the execution that started them.

    One without an end event ends with its last stage, and has the status running; without a stage it is left out.
    """
    inner = _find_inner_executions(facts)
    started = {member for members in inner.values() for member in members}
    nodes = _group_by_execution(_select_executed_plans(facts))
    expressions = _list_expressions(facts.plan_nodes)
    inputs, planned = _list_inputs(facts.plan_nodes), _count_planned_operators(facts.plan_nodes)
    stages = _group_by_execution(
        facts.stages.filter(pl.col("sql_id").is_not_null()).join(
            facts.stage_tasks, on=["log_id", "stage_id", "stage_attempt_id"], how="inner"
        )
    )
    metrics = _group_by_execution(_sum_metrics_by_stage(facts))
    plans = fingerprint_plans(facts.plan_nodes)
    descriptions = {
        (log_id, sql_id): strip_description(text)
        for log_id, sql_id, text in facts.sql_executions.select("log_id", "sql_id", "description").iter_rows()
    }
    # What a command starts computes its query, so that its plan is the command's, too.
    whole = {
        key: " ".join(filter(None, (plans.get(member) for member in (key, *inner.get(key, ())))))
        for key in descriptions
    }
    plans = {key: _shorten_digest(texts) for key, texts in whole.items() if texts}
    scanned = {
        key: {table for member in (key, *inner.get(key, ())) for table, _ in inputs.get(member, ())}
        for key in descriptions
    }
    queries = name_queries({key: descriptions[key] for key in descriptions.keys() - started}, plans, scanned)
    running = {
        log_id: [(first / 1e3, last / 1e3) for first, last in merge_spans(list_running_spans(facts.select_log(log_id)))]
        for log_id in facts.logs["log_id"]
    }
    seen: dict[tuple[int, str], int] = defaultdict(int)
    rows = facts.sql_executions.sort("log_id", "sql_id").iter_rows(named=True)
    for row in rows:
        key = (row["log_id"], row["sql_id"])
        if key in started or row["start_time_ms"] is None:
            continue
        members = (key, *inner.get(key, ()))
        own_stages = tuple(
            _build_stage(stage)
            for member in members
            for stage in stages.get(member, [])
            if stage["first_launch_time_ms"] is not None
        )
        if row["end_time_ms"] is None and not own_stages:
            continue
        start_s = row["start_time_ms"] / 1e3
        first_s = min((stage.start_s for stage in own_stages), default=start_s)
        last_s = max((stage.end_s for stage in own_stages), default=start_s)
        end_s = last_s if row["end_time_ms"] is None else row["end_time_ms"] / 1e3
        query = queries[key]
        number = seen[row["log_id"], query]
        seen[row["log_id"], query] += 1
        yield Execution(
            *key,
            query,
            number,
            row["status"],
            min(start_s, first_s),
            max(end_s, last_s),
            _drop_cached_plans(
                _concatenate_plans(_build_nodes(nodes.get(member, []), metrics.get(member, [])) for member in members)
            ),
            own_stages,
            tuple(sql_id for _, sql_id in members[1:]),
            frozenset().union(*(inputs.get(member, ()) for member in members)),
            sum((planned[member] for member in members if member in planned), Counter()),
            descriptions[key],
            plans.get(key),
            running[row["log_id"]],
            frozenset().union(*(expressions.get(member, ()) for member in members)),
        )


def _shorten_digest(digests: str) -> str:
    """The digest itself, or one of several."""
    return digests if " " not in digests else hashlib.sha256(digests.encode()).hexdigest()[:12]


def _drop_cached_plans(nodes: dict[int, Node]) -> dict[int, Node]:
    """Nodes without those below a cache that was filled before: none of them ran in this execution."""
    children: dict[int, list[int]] = defaultdict(list)
    for node in nodes.values():
        for parent in node.parent_ids:
            children[parent].append(node.node_id)
    dropped: set[int] = set()
    for node in nodes.values():
        if not node.is_cache_read or node.node_id in dropped:
            continue
        below, pending = set[int](), list(children[node.node_id])
        while pending:
            child = pending.pop()
            if child not in below and all(
                parent in below or parent == node.node_id for parent in nodes[child].parent_ids
            ):
                below.add(child)
                pending += children[child]
        if not any(stage >= 0 for child in below for stage in nodes[child].metrics):
            dropped |= below
    return {node_id: node for node_id, node in nodes.items() if node_id not in dropped}


def _select_executed_plans(facts: EventLogFacts) -> pl.DataFrame:
    """Rows of `plan_nodes` of the plan version that the stages of an execution ran, nearly always the final one.

    Where adaptive execution finds an input empty, it replaces operators that have already run by an empty relation.
    Then the final version lacks most accumulators that tasks updated, and the last version with most of them counts.
    """
    key = ["log_id", "sql_id"]
    updated = facts.node_metrics.filter(pl.col("n") > 0).select(*key, "accumulator_id").unique()
    covered = (
        facts.plan_nodes.select(*key, "plan_version", "is_final", "accumulator_ids")
        .explode("accumulator_ids")
        .unique([*key, "plan_version", "accumulator_ids"])
        .join(updated, left_on=[*key, "accumulator_ids"], right_on=[*key, "accumulator_id"], how="semi")
        .group_by(*key, "plan_version", "is_final")
        .len()
    )
    fullest_versions = covered.sort("len", "plan_version").group_by(key, maintain_order=True).last()
    final = covered.filter("is_final").select(*key, n_final="len")
    lacking = (
        fullest_versions.join(final, on=key, how="left")
        .filter(pl.col("n_final").fill_null(0) < MIN_FINAL_SHARE * pl.col("len"))
        .select(*key, executed="plan_version")
    )
    chosen = facts.plan_nodes.join(lacking, on=key, how="left")
    is_executed = (
        pl.when(pl.col("executed").is_null()).then("is_final").otherwise(pl.col("plan_version") == pl.col("executed"))
    )
    return chosen.filter(is_executed).drop("executed")


def _list_inputs(plan_nodes: pl.DataFrame) -> dict[tuple[int, int], set[tuple[str, str]]]:
    """Tables and columns that each execution scans, by log id and SQL id.

    `plan_nodes`: `log_id, sql_id, node_name, simple_string` of the event log.
    """
    inputs: dict[tuple[int, int], set[tuple[str, str]]] = defaultdict(set)
    for key, text in _list_texts(plan_nodes, "Scan"):
        inputs[key].add((scan_table_name(text), scan_columns(text)))
    return inputs


def _list_expressions(plan_nodes: pl.DataFrame) -> dict[tuple[int, int], set[str]]:
    """What no engine changes of the filters, joins and aggregates of each execution, by log id and SQL id."""
    expressions: dict[tuple[int, int], set[str]] = defaultdict(set)
    for key, text in _list_texts(plan_nodes, "Filter|Scan|.*Join|.*Aggregate"):
        expressions[key] |= list_expressions(text)
    return expressions


def _list_texts(plan_nodes: pl.DataFrame, operators: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Texts of the operators that begin so, each once for an execution, in any version of its plan."""
    all_names = plan_nodes["node_name"].unique()
    names = [name for name in all_names if re.match(operators, engines.classify_operator(name).name)]
    rows = plan_nodes.filter(pl.col("node_name").is_in(names)).select("log_id", "sql_id", "simple_string").unique()
    for log_id, sql_id, text in rows.iter_rows():
        yield (log_id, sql_id), text or ""


def _count_planned_operators(plan_nodes: pl.DataFrame) -> dict[tuple[int, int], Counter[str]]:
    """Count the operators that are work in the first version of each plan, by log id and SQL id."""
    key = ["log_id", "sql_id"]
    is_first = pl.col("plan_version") == pl.col("plan_version").min().over(key)
    names = plan_nodes.filter(is_first).group_by(*key, "node_name").len()
    planned: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for log_id, sql_id, name, count in names.iter_rows():
        operator = engines.classify_operator(name)
        if operator.kind in WORK:
            planned[log_id, sql_id][operator.name + (ACCELERATED if operator.accelerated else "")] += count
    return planned


def _find_inner_executions(facts: EventLogFacts) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Map each execution to the inner executions that it started and that ran within its time.

    A command such as CREATE TABLE AS SELECT or CACHE TABLE has no stage of its own: an inner execution does the work.
    One that outlives its root is a query of its own: its work must not be cut to the root's span.
    """
    ended = facts.sql_executions.select(
        "log_id", root_sql_id="sql_id", root_start_ms="start_time_ms", root_end_ms="end_time_ms"
    )
    rows = facts.sql_executions.filter(pl.col("root_sql_id") != pl.col("sql_id"))
    within = (pl.col("start_time_ms") >= pl.col("root_start_ms") - INNER_TOLERANCE_MS) & (
        pl.coalesce("end_time_ms", "start_time_ms") <= pl.col("root_end_ms") + INNER_TOLERANCE_MS
    )
    inner = rows.join(ended, on=["log_id", "root_sql_id"]).filter(within.fill_null(value=True))
    inner_ids: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    inner = inner.sort("log_id", "sql_id")
    for log_id, root, sql_id in inner.select("log_id", "root_sql_id", "sql_id").iter_rows():
        inner_ids[log_id, root].append((log_id, sql_id))
    return inner_ids


def list_inner_ids(facts: EventLogFacts, log_id: int) -> list[int]:
    """Executions of a log that are part of another one."""
    return [sql_id for (log, _), inner in _find_inner_executions(facts).items() if log == log_id for _, sql_id in inner]


def _concatenate_plans(plans: Iterable[dict[int, Node]]) -> dict[int, Node]:
    """Merge the nodes of several plans, numbered one plan after the other."""
    nodes: dict[int, Node] = {}
    for plan in plans:
        first = max(nodes, default=-1) + 1
        for node in plan.values():
            parents = tuple(parent + first for parent in node.parent_ids)
            nodes[node.node_id + first] = replace(node, node_id=node.node_id + first, parent_ids=parents)
    return nodes


def _group_by_execution(frame: pl.DataFrame) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Rows by log and SQL execution. `frame`: `log_id, sql_id`, and any others."""
    groups: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in frame.iter_rows(named=True):
        groups[row["log_id"], row["sql_id"]].append(row)
    return groups


def _sum_metrics_by_stage(facts: EventLogFacts) -> pl.DataFrame:
    """Sum each metric by stage of its execution; values set by the driver are under stage -1.

    Returns: `log_id, sql_id, accumulator_id, stage_id, metric_name, metric_type, total`; times are in seconds.
    """
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


def _build_nodes(rows: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> dict[int, Node]:
    """Build the plan's nodes by id, each with its metric totals by stage.

    `rows` are of the event log's table of plan nodes, `metrics` of its table of metrics, matched by accumulator.
    """
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
        text = row["simple_string"] or ""
        nodes[row["node_id"]] = Node(
            row["node_id"],
            name,
            engines.refine_operator(engines.classify_operator(name), text),
            tuple(row["parent_ids"] or ()),
            text,
            dict(by_stage),
        )
    return nodes


def _build_stage(row: dict[str, Any]) -> Stage:
    start_ms = row["first_launch_time_ms"]
    end_ms = max(start_ms, row["last_finish_time_ms"] or start_ms)
    opened_ms, closed_ms = row["submission_time_ms"], row["completion_time_ms"]
    return Stage(
        row["stage_id"],
        row["stage_attempt_id"],
        start_ms / 1e3,
        end_ms / 1e3,
        (row["task_duration_total_ms"] or 0) / 1e3,
        row["executor_run_time_ms"] / 1e3,
        row["n_tasks"],
        row["n_failed"] + row["n_killed"],
        (start_ms if opened_ms is None else min(opened_ms, start_ms)) / 1e3,
        (end_ms if closed_ms is None else max(closed_ms, end_ms)) / 1e3,
        [(first / 1e3, last / 1e3) for first, last in pair_spans(row["busy_spans_ms"] or [start_ms, end_ms])],
        (row["failed_task_duration_total_ms"] or 0) / 1e3,
    )


def fingerprint_inputs(execution: Execution) -> str | None:
    """Digest of the tables and columns that a query reads, equal on every engine; null if it reads no files.

    Only distinct scans count: engines and adaptive plans of the same query differ in joins, exchanges and reused
    branches, but columns are pruned before the engine is chosen. Where Spark has cut a table's path short, the digest
    has its columns only.
    """
    scans = [node.arguments for node in execution.nodes.values() if node.operator.name.startswith("Scan")]
    inputs = execution.inputs | {(scan_table_name(text), scan_columns(text)) for text in scans}
    if not inputs:
        return None
    text = "\n".join(f"{table} {columns}" for table, columns in sorted(inputs))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
