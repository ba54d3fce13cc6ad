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
    is_rdd_name,
    is_rdd_text,
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

    sql_id: int
    node_id: int
    name: str
    factor: float
    supported: bool
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
        repeated = _find_repeated_nodes(query.nodes, children)
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
        factors = [child.factor for child in children if not child.removed]
        estimate = OperatorEstimate(
            query.sql_id,
            node.node_id,
            node.name,
            round_average(factors),
            any(child.supported for child in children),
            duration_ms=sum_task_time(self.log, node, "duration"),
            unsupported=[expression for child in children for expression in child.unsupported],
            expression=node.name,
        )
        span = _check_text(estimate, node)
        span.children = children
        span.stages = immutable_order([stage for child in children for stage in child.stages] + stages)
        span.removed |= node.node_id in repeated or all(child.removed for child in children)
        return span

    def _build_operator(self, query: Query, node: PlanNode, repeated: set[int]) -> OperatorEstimate:
        name = node.name.removesuffix("$")
        try:
            operator = self._build_from_text(query, node, name)
        except UnreadableTextError:
            operator = _check_text(OperatorEstimate(query.sql_id, node.node_id, name, 1.0, supported=False), node)
        operator.stages = self.log.list_node_stages(node)
        operator.removed |= node.node_id in repeated
        operator.reason = self.support.get_reason(operator.name)
        return operator

    def _build_from_text(self, query: Query, node: PlanNode, name: str) -> OperatorEstimate:
        if name in PLAIN_OPERATORS:
            return self._build_from_table(
                query, node, f"{node.name}Exec", duration_ms=sum_plain_time(self.log, node, name)
            )
        if name in WITH_EXPRESSIONS:
            separator = "" if name.endswith("Aggregate") else " "
            wrong = self.support.list_unsupported_expressions(
                WITH_EXPRESSIONS[name](node.text.replace(name + separator, "", 1))
            )
            metric = {
                "HashAggregate": "time in aggregation build total",
                "ObjectHashAggregate": "time in aggregation build",
            }
            time = sum_task_time(self.log, node, metric[name]) if name in metric else None
            return self._build_from_table(
                query, node, f"{node.name}Exec", ok=not wrong, unsupported=wrong, duration_ms=time
            )
        if name in JOINS:
            names, ok = JOINS[name](node.text.replace(f"{name} ", "", 1))
            ok = ok and all(self.support.is_expression_supported(function) for function in names)
            time = sum_task_time(self.log, node, "time to build hash map") if name == "ShuffledHashJoin" else None
            return self._build_from_table(query, node, f"{node.name}Exec", ok=ok, duration_ms=time)
        if name in ("CustomShuffleReader", "AQEShuffleRead"):
            return self._build_from_table(query, node, "CustomShuffleReaderExec")
        if name == "Exchange":
            return self._build_from_table(
                query, node, "ShuffleExchangeExec", duration_ms=sum_shuffle_time(self.log, node)
            )
        return self._build_rare_operator(query, node, name)

    def _build_rare_operator(self, query: Query, node: PlanNode, name: str) -> OperatorEstimate:
        if name == "BatchScan":
            return self._build_scan(query, node, "BatchScanExec")
        if is_write(name):
            return self._build_write(query, node)
        if is_scan(name):
            return self._build_file_scan(query, node)
        if SORT_MERGE_JOIN.fullmatch(name):
            names, ok = texts.find_equi_join_functions(node.text[node.text.find(" ") + 1 :])
            ok = ok and all(self.support.is_expression_supported(function) for function in names)
            return self._build_from_table(query, node, "SortMergeJoinExec", ok=ok, name="SortMergeJoin")
        if name == "Subquery":
            time = find_driver_time(self.log, node, "time to collect")
            estimate = OperatorEstimate(query.sql_id, node.node_id, node.name, 1.0, supported=False, duration_ms=time)
            return _check_text(estimate, node)
        if name == "WindowGroupLimit":
            return self._build_window_group_limit(query, node)
        if "WriteFiles" in name:
            factor = self.support.get_factor("WriteFilesExec")
            return _set_flags(
                OperatorEstimate(query.sql_id, node.node_id, "WriteFiles", factor, supported=True, kind="WriteExec")
            )
        estimate = OperatorEstimate(query.sql_id, node.node_id, name, 1.0, name == REUSED_NODE)
        operator = _check_text(estimate, node)
        operator.known = name in REMOVED_OPERATORS or name in IGNORED_OPERATORS or operator.dataset
        return operator

    # --- kinds of operators ------------------------------------------------------------------------------------

    def _build_from_table(
        self,
        query: Query,
        node: PlanNode,
        entry: str,
        *,
        ok: bool = True,
        name: str | None = None,
        unsupported: list[Unsupported] | None = None,
        duration_ms: int | None = None,
    ) -> OperatorEstimate:
        """Estimate of an operator that is supported if the support table lists it so and `ok` holds."""
        ok = ok and self.support.is_exec_supported(entry)
        factor = self.support.get_factor(entry) if ok else 1.0
        estimate = OperatorEstimate(
            query.sql_id,
            node.node_id,
            name or node.name,
            factor,
            ok,
            unsupported=unsupported or [],
            duration_ms=duration_ms,
        )
        return _check_text(estimate, node)

    def _build_window_group_limit(self, query: Query, node: PlanNode) -> OperatorEstimate:
        names = texts.find_ranking_functions(node.text.replace("WindowGroupLimit ", "", 1))
        wrong = self.support.list_unsupported_expressions(names)
        wrong += [
            Unsupported(name, f"Ranking function {name} is not supported in WindowGroupLimitExec")
            for name in names
            if name not in RANKS
        ]
        return self._build_from_table(
            query, node, "WindowGroupLimitExec", ok=not wrong and len(names) == 1, unsupported=wrong
        )

    def _build_scan(self, query: Query, node: PlanNode, entry: str) -> OperatorEstimate:
        read = parse_read(node)
        ok = not self.support.list_unsupported_types(read)
        factor = max(self.support.get_factor(entry) if ok else 0.0, 1.0)
        estimate = OperatorEstimate(
            query.sql_id,
            node.node_id,
            f"{node.name} {read.data_format}",
            factor,
            ok,
            expression=f"Format: {read.data_format}",
            duration_ms=sum_task_time(self.log, node, "scan time"),
        )
        return _check_text(estimate, node)

    def _build_file_scan(self, query: Query, node: PlanNode) -> OperatorEstimate:
        name = node.name.strip()
        if is_rdd_name(name):
            end = name.find("ExistingRDD")
            short = name[: end + len("ExistingRDD")] if end >= 0 else name
            return _set_flags(OperatorEstimate(query.sql_id, node.node_id, short, 1.0, supported=False, kind="ReadRDD"))
        entry = "HiveTableScanExec" if is_hive_scan(node.name) else "FileSourceScanExec"
        ok = not self.support.list_unsupported_types(parse_read(node))
        factor = max(self.support.get_factor(entry) if ok else 0.0, 1.0)
        time = sum_task_time(self.log, node, "scan time")
        return _set_flags(
            OperatorEstimate(query.sql_id, node.node_id, name, factor, ok, kind="ReadExec", duration_ms=time)
        )

    def _build_write(self, query: Query, node: PlanNode) -> OperatorEstimate:
        write = parse_write(node)
        ok = self.support.is_write_supported(write.data_format)
        if write.delta:
            ok = ok and self.support.is_exec_supported(write.entry)
            name, data_format = node.name.replace("Execute ", ""), write.data_format
        else:
            data_format = write.data_format.lower().strip()
            name = f"{node.name.strip()} {data_format}"
        factor = self.support.get_factor(write.entry) if ok else 1.0
        expression = f"Format: {data_format}"
        return _set_flags(
            OperatorEstimate(query.sql_id, node.node_id, name, factor, ok, kind="WriteExec", expression=expression)
        )


def _check_text(operator: OperatorEstimate, node: PlanNode) -> OperatorEstimate:
    """Search the operator's text for user functions and typed datasets, and set its flags."""
    skipped = any(part in node.name for part in UDF_CHECK_SKIPPED)
    operator.udf = not skipped and re.fullmatch(".*UDF.*", node.text) is not None
    operator.dataset = is_rdd_name(node.name)
    if not operator.dataset and is_rdd_text(node.text):
        operator.dataset = True
        # Inside a typed lambda the patterns find nothing that could be trusted.
        operator.unsupported = []
    return _set_flags(operator)


def _set_flags(operator: OperatorEstimate) -> OperatorEstimate:
    """Set the flags that follow from the operator's name and kind, and from user functions and typed datasets in it."""
    if operator.udf or operator.dataset:
        operator.kind = "Exec"
    operator.dataset |= operator.kind == "ReadRDD"
    opaque = operator.udf or operator.dataset
    operator.supported &= not opaque
    operator.removed = operator.name in REMOVED_OPERATORS
    operator.ignored = opaque or operator.name in IGNORED_OPERATORS
    return operator


def _find_repeated_nodes(nodes: list[PlanNode], children: dict[int, list[PlanNode]]) -> set[int]:
    """Ids of nodes below a reused exchange that the plan graph draws twice; only the first drawing counts."""
    inputs: dict[int, list[int]] = {}
    for node in nodes:
        for parent in node.parent_ids:
            inputs.setdefault(parent, []).append(node.node_id)
    repeated_ids: set[int] = set()
    for node in nodes:
        if node.name != REUSED_NODE:
            continue
        visited, pending = {node.node_id}, [node.node_id]
        while pending:
            new = [below for below in inputs.get(pending.pop(), []) if below not in visited]
            visited.update(new)
            pending += new
        # A span whose operators are all below it is below it, too.
        spans = [span for span in nodes if CODEGEN_NODE in span.name and span.codegen_id is None]
        visited |= {
            span.node_id
            for span in spans
            if all(member.node_id in visited for member in children.get(span.node_id, []))
        }
        repeated_ids |= visited
    return repeated_ids
