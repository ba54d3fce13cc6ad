"""Operators of a plan with factor, support, times and the stages they worked in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from workbench.eventlog.plan_graph import PlanNode
from workbench.speedup.compat_rapids_tools import operator_texts as texts
from workbench.speedup.compat_rapids_tools.format_support import (
    SupportTables,
    Unsupported,
    is_hive_scan,
    is_rdd,
    is_rdd_name,
    is_scan,
    is_write,
    parse_read,
    parse_write,
)
from workbench.speedup.compat_rapids_tools.jvm_semantics import immutable_order, round_average
from workbench.speedup.compat_rapids_tools.log_records import Query
from workbench.speedup.compat_rapids_tools.operator_texts import (
    CODEGEN_NODE,
    IGNORED_OPERATORS,
    PLAIN_OPERATORS,
    REMOVED_OPERATORS,
    REUSED_NODE,
    UDF_CHECK_SKIPPED,
    UnreadableTextError,
)
from workbench.speedup.compat_rapids_tools.seed_log import NS_PER_MS, SeedLog

WITH_EXPRESSIONS: dict[str, Callable[[str], list[str]]] = {
    "Expand": texts.find_all_functions,
    "Filter": texts.find_condition_functions,
    "Generate": texts.find_all_functions,
    "HashAggregate": texts.find_aggregate_functions,
    "ObjectHashAggregate": texts.find_aggregate_functions,
    "SortAggregate": texts.find_aggregate_functions,
    "Project": texts.find_all_functions,
    "Sort": texts.find_sort_functions,
    "TakeOrderedAndProject": texts.find_top_n_functions,
    "Window": texts.find_window_functions,
}
JOINS: dict[str, Callable[[str], tuple[list[str], bool]]] = {
    "BroadcastHashJoin": texts.find_equi_join_functions,
    "ShuffledHashJoin": texts.find_equi_join_functions,
    "BroadcastNestedLoopJoin": texts.find_nested_loop_join_functions,
}
BUILD_TIMES = {
    "HashAggregate": "time in aggregation build total",
    "ObjectHashAggregate": "time in aggregation build",
    "ShuffledHashJoin": "time to build hash map",
}
SORT_MERGE_JOIN = re.compile(r"SortMergeJoin(?:\(.+\))?")
RANKS = ("rank", "dense_rank")


def _find_metric(node: PlanNode, matches: Callable[[str], bool]) -> int | None:
    return next((metric.accumulator_id for metric in node.metrics if matches(metric.name)), None)


def sum_task_time(log: SeedLog, node: PlanNode, name: str) -> int | None:
    metric = _find_metric(node, lambda text: text == name)
    accumulator = None if metric is None else log.accumulators.get(metric)
    return max(accumulator.stages.values(), default=None) if accumulator else None


def find_driver_time(log: SeedLog, node: PlanNode, part: str, *, exact: bool = False) -> int | None:
    metric = _find_metric(node, lambda text: text == part if exact else part in text)
    values = [] if metric is None else log.driver.get(metric, [])
    return max((value for _, value in values), default=None)


def sum_shuffle_time(log: SeedLog, node: PlanNode) -> int | None:
    write, fetch = sum_task_time(log, node, "shuffle write time"), sum_task_time(log, node, "fetch wait time")
    times = [time for time in (None if write is None else write // NS_PER_MS, fetch) if time is not None]
    return sum(times) if times else None


def sum_plain_time(log: SeedLog, node: PlanNode, name: str) -> int | None:
    if name == "SubqueryBroadcast":
        return find_driver_time(log, node, "time to collect")
    if name != "BroadcastExchange":
        return None
    parts = ("time to collect", "time to build", "time to broadcast")
    times = [time for part in parts if (time := find_driver_time(log, node, part, exact=True)) is not None]
    return sum(times) if times else None


@dataclass
class OperatorEstimate:
    """One operator as the original holds it; a codegen span is one with `children`."""

    name: str
    factor: float
    supported: bool
    sql_id: int = -1
    node_id: int = -1
    kind: str = "Exec"
    expression: str = ""
    duration_ms: int | None = None
    children: list[OperatorEstimate] | None = None
    stages: list[int] = field(default_factory=list)
    removed: bool = False
    reason: str = ""
    unsupported: list[Unsupported] = field(default_factory=list)
    dataset: bool = False
    udf: bool = False
    ignored: bool = False
    known: bool = True

    @property
    def is_span(self) -> bool:
        return CODEGEN_NODE in self.name

    @property
    def action(self) -> str:
        """Action advised by the original: NONE, IgnoreNoPerf (no effect), IgnorePerf (no own work) or Triage."""
        if self.supported:
            return "NONE"
        return "IgnoreNoPerf" if self.removed else "IgnorePerf" if self.ignored else "Triage"

    def drop_removed_operators(self) -> OperatorEstimate:
        children = None if self.children is None else [child for child in self.children if not child.removed]
        return replace(self, children=children)


class OperatorBuilder:
    """Turns the plans of one log into operators."""

    def __init__(self, log: SeedLog, support: SupportTables) -> None:
        self.log, self.support = log, support

    def build_operators(self, query: Query) -> list[OperatorEstimate]:
        """The operators of a query, codegen spans with those in them."""
        children: dict[int, list[PlanNode]] = {}
        for node in query.nodes:
            if node.codegen_id is not None:
                children.setdefault(node.codegen_id, []).append(node)
        # Ids of nodes below a reused exchange that the plan graph draws twice; only the first drawing counts.
        inputs: dict[int, list[int]] = {}
        for node in query.nodes:
            for parent in node.parent_ids:
                inputs.setdefault(parent, []).append(node.node_id)
        repeated: set[int] = set()
        for node in query.nodes:
            if node.name != REUSED_NODE:
                continue
            visited, pending = {node.node_id}, [node.node_id]
            while pending:
                new = [below for below in inputs.get(pending.pop(), []) if below not in visited]
                visited.update(new)
                pending += new
            # A span whose operators are all below it is below it, too.
            spans = [span for span in query.nodes if CODEGEN_NODE in span.name and span.codegen_id is None]
            visited |= {
                span.node_id
                for span in spans
                if all(member.node_id in visited for member in children.get(span.node_id, []))
            }
            repeated |= visited
        operators = []
        for node in query.nodes:
            if node.codegen_id is None:
                if CODEGEN_NODE in node.name:
                    operators.append(self._build_codegen_span(query, node, children.get(node.node_id, []), repeated))
                else:
                    operators.append(self._build_operator(query, node, repeated))
        return operators

    def _build_codegen_span(
        self, query: Query, node: PlanNode, members: list[PlanNode], repeated: set[int]
    ) -> OperatorEstimate:
        """Build the estimate of a span of generated code from its member operators.

        `repeated` are ids of reused nodes.
        """
        stages = self.log.list_node_stages(node)
        children = [self._build_operator(query, member, repeated) for member in members]
        for child in children:
            child.stages = immutable_order([*child.stages, *stages])
        span = OperatorEstimate(
            node.name,
            round_average([child.factor for child in children if not child.removed]),
            any(child.supported for child in children),
            query.sql_id,
            node.node_id,
            expression=node.name,
            duration_ms=sum_task_time(self.log, node, "duration"),
            children=children,
            stages=immutable_order([stage for child in children for stage in child.stages] + stages),
            unsupported=[expression for child in children for expression in child.unsupported],
        )
        _set_flags(span, node)
        span.removed |= node.node_id in repeated or all(child.removed for child in children)
        return span

    def _build_operator(self, query: Query, node: PlanNode, repeated: set[int]) -> OperatorEstimate:
        name = node.name.removesuffix("$")
        try:
            operator = self._read_operator(node, name)
        except UnreadableTextError:
            operator = OperatorEstimate(name, 1.0, supported=False)
        _set_flags(operator, node)
        operator.sql_id, operator.node_id = query.sql_id, node.node_id
        operator.stages = self.log.list_node_stages(node)
        operator.removed |= node.node_id in repeated
        operator.reason = self.support.get_reason(operator.name)
        return operator

    def _read_operator(self, node: PlanNode, name: str) -> OperatorEstimate:
        """Factor, support and time of an operator, by its name and text."""
        log, support, entry = self.log, self.support, f"{node.name}Exec"
        build_time_ms = sum_task_time(log, node, BUILD_TIMES[name]) if name in BUILD_TIMES else None
        if name in PLAIN_OPERATORS:
            return self._look_up(node.name, entry, duration_ms=sum_plain_time(log, node, name))
        if name in WITH_EXPRESSIONS:
            separator = "" if name.endswith("Aggregate") else " "
            functions = WITH_EXPRESSIONS[name](node.text.replace(name + separator, "", 1))
            wrong = support.list_unsupported_expressions(functions)
            return self._look_up(node.name, entry, ok=not wrong, unsupported=wrong, duration_ms=build_time_ms)
        if name in JOINS:
            functions, ok = JOINS[name](node.text.replace(f"{name} ", "", 1))
            ok = ok and all(map(support.is_expression_supported, functions))
            return self._look_up(node.name, entry, ok=ok, duration_ms=build_time_ms)
        if SORT_MERGE_JOIN.fullmatch(name):
            functions, ok = texts.find_equi_join_functions(node.text[node.text.find(" ") + 1 :])
            ok = ok and all(map(support.is_expression_supported, functions))
            return self._look_up("SortMergeJoin", "SortMergeJoinExec", ok=ok)
        if name in ("CustomShuffleReader", "AQEShuffleRead"):
            return self._look_up(node.name, "CustomShuffleReaderExec")
        if name == "Exchange":
            return self._look_up(node.name, "ShuffleExchangeExec", duration_ms=sum_shuffle_time(log, node))
        if name == "WindowGroupLimit":
            functions = texts.find_ranking_functions(node.text.replace("WindowGroupLimit ", "", 1))
            wrong = support.list_unsupported_expressions(functions)
            wrong += [
                Unsupported(function, f"Ranking function {function} is not supported in WindowGroupLimitExec")
                for function in functions
                if function not in RANKS
            ]
            ok = not wrong and len(functions) == 1
            return self._look_up(node.name, "WindowGroupLimitExec", ok=ok, unsupported=wrong)
        if name == "Subquery":
            time_ms = find_driver_time(log, node, "time to collect")
            return OperatorEstimate(node.name, 1.0, supported=False, duration_ms=time_ms)
        if is_write(name):
            return self._read_write(node)
        if name == "BatchScan" or is_scan(name):
            return self._read_scan(node, is_batch=name == "BatchScan")
        if "WriteFiles" in name:
            return OperatorEstimate(
                "WriteFiles", support.get_factor("WriteFilesExec"), supported=True, kind="WriteExec"
            )
        known = name in REMOVED_OPERATORS or name in IGNORED_OPERATORS or is_rdd(node)
        return OperatorEstimate(name, 1.0, name == REUSED_NODE, known=known)

    def _look_up(
        self,
        name: str,
        entry: str,
        *,
        ok: bool = True,
        unsupported: list[Unsupported] | None = None,
        duration_ms: int | None = None,
    ) -> OperatorEstimate:
        """An operator that is supported if the support table lists its entry so and `ok` holds."""
        ok = ok and self.support.is_exec_supported(entry)
        factor = self.support.get_factor(entry) if ok else 1.0
        return OperatorEstimate(name, factor, ok, unsupported=unsupported or [], duration_ms=duration_ms)

    def _read_scan(self, node: PlanNode, *, is_batch: bool) -> OperatorEstimate:
        name = node.name if is_batch else node.name.strip()
        if not is_batch and is_rdd_name(name):
            end = name.find("ExistingRDD")
            short = name[: end + len("ExistingRDD")] if end >= 0 else name
            return OperatorEstimate(short, 1.0, supported=False, kind="ReadRDD")
        read = parse_read(node)
        entry = (
            "BatchScanExec" if is_batch else "HiveTableScanExec" if is_hive_scan(node.name) else "FileSourceScanExec"
        )
        ok = not self.support.list_unsupported_types(read)
        factor = max(self.support.get_factor(entry) if ok else 0.0, 1.0)
        time_ms = sum_task_time(self.log, node, "scan time")
        if not is_batch:
            return OperatorEstimate(name, factor, ok, kind="ReadExec", duration_ms=time_ms)
        about = f"Format: {read.data_format}"
        return OperatorEstimate(f"{name} {read.data_format}", factor, ok, expression=about, duration_ms=time_ms)

    def _read_write(self, node: PlanNode) -> OperatorEstimate:
        write = parse_write(node)
        ok = self.support.is_write_supported(write.data_format)
        if write.delta:
            ok = ok and self.support.is_exec_supported(write.entry)
            name, data_format = node.name.replace("Execute ", ""), write.data_format
        else:
            data_format = write.data_format.lower().strip()
            name = f"{node.name.strip()} {data_format}"
        factor = self.support.get_factor(write.entry) if ok else 1.0
        return OperatorEstimate(name, factor, ok, kind="WriteExec", expression=f"Format: {data_format}")


def _set_flags(operator: OperatorEstimate, node: PlanNode) -> None:
    """Set the flags that follow from an operator's name, and from user functions and typed datasets in its text."""
    if operator.kind == "Exec":
        skipped = any(part in node.name for part in UDF_CHECK_SKIPPED)
        operator.udf = not skipped and re.fullmatch(".*UDF.*", node.text) is not None
        operator.dataset = is_rdd(node)
        if operator.dataset and not is_rdd_name(node.name):
            # Inside a typed lambda the patterns find nothing that could be trusted.
            operator.unsupported = []
    operator.dataset |= operator.kind == "ReadRDD"
    opaque = operator.udf or operator.dataset
    operator.supported &= not opaque
    operator.removed = operator.name in REMOVED_OPERATORS
    operator.ignored = opaque or operator.name in IGNORED_OPERATORS
