"""Every operator of a plan with its factor, whether it is supported, and the stages that it worked in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from workbench.eventlog.plans import Node
from workbench.speedup.seed import expressions as texts
from workbench.speedup.seed.exec_names import CODEGEN, IGNORED, PLAIN, REMOVED, REUSED, UDF_CHECK_SKIPPED
from workbench.speedup.seed.exec_times import driver_time, plain_time, shuffle_time, task_time
from workbench.speedup.seed.expressions import UnreadableTextError
from workbench.speedup.seed.held import Query
from workbench.speedup.seed.log import SeedLog
from workbench.speedup.seed.numbers import average
from workbench.speedup.seed.reads import is_hive_scan, is_rdd_name, is_rdd_text, is_scan, read_of
from workbench.speedup.seed.scala_order import immutable
from workbench.speedup.seed.support import Support, Unsupported
from workbench.speedup.seed.writes import is_write, write_of

WITH_EXPRESSIONS: dict[str, Callable[[str], list[str]]] = {
    "Expand": texts.all_functions,
    "Filter": texts.of_condition,
    "Generate": texts.all_functions,
    "HashAggregate": texts.of_aggregate,
    "ObjectHashAggregate": texts.of_aggregate,
    "SortAggregate": texts.of_aggregate,
    "Project": texts.all_functions,
    "Sort": texts.of_sort,
    "TakeOrderedAndProject": texts.of_take_ordered,
    "Window": texts.of_window,
}
JOINS: dict[str, Callable[[str], tuple[list[str], bool]]] = {
    "BroadcastHashJoin": texts.of_equi_join,
    "ShuffledHashJoin": texts.of_equi_join,
    "BroadcastNestedLoopJoin": texts.of_nested_loop_join,
}
SORT_MERGE_JOIN = re.compile(r"SortMergeJoin(?:\(.+\))?")
RANKS = ("rank", "dense_rank")


@dataclass
class Exec:
    """One operator as the original holds it; a codegen span is one with `children`."""

    sql_id: int
    node_id: int
    name: str
    expression: str
    factor: float
    duration_ms: int | None
    kind: str
    supported: bool
    children: list[Exec] | None = None
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
        return CODEGEN in self.name

    @property
    def action(self) -> str:
        """What the original advises: NONE, IgnoreNoPerf (no effect), IgnorePerf (no work of its own) or Triage."""
        if self.supported:
            return "NONE"
        return "IgnoreNoPerf" if self.removed else "IgnorePerf" if self.ignored else "Triage"

    def without_removed(self) -> Exec:
        children = None if self.children is None else [child for child in self.children if not child.removed]
        return replace(self, children=children)


class Planner:
    """Turns the plans of one log into operators."""

    def __init__(self, log: SeedLog, support: Support) -> None:
        self.log, self.support = log, support

    def plan(self, query: Query) -> list[Exec]:
        """The operators of a query, codegen spans with those in them."""
        children: dict[int, list[Node]] = {}
        for node in query.nodes:
            if node.codegen_id is not None:
                children.setdefault(node.codegen_id, []).append(node)
        repeated = _below_reused(query.nodes, children)
        found = []
        for node in query.nodes:
            if node.codegen_id is None:
                if CODEGEN in node.name:
                    found.append(self._span(query, node, children.get(node.node_id, []), repeated))
                else:
                    found.append(self._operator(query, node, repeated))
        return found

    def _span(self, query: Query, node: Node, members: list[Node], repeated: set[int]) -> Exec:
        stages = self.log.stages_of(node)
        children = [self._operator(query, member, repeated) for member in members]
        for child in children:
            child.stages = immutable([*child.stages, *stages])
        kept = [child.factor for child in children if not child.removed]
        span = self._made(
            query,
            node,
            node.name,
            average(kept),
            any(child.supported for child in children),
            duration_ms=task_time(self.log, node, "duration"),
            unsupported=[expression for child in children for expression in child.unsupported],
            expression=node.name,
        )
        span.children = children
        span.stages = immutable([stage for child in children for stage in child.stages] + stages)
        span.removed |= node.node_id in repeated or all(child.removed for child in children)
        return span

    def _operator(self, query: Query, node: Node, repeated: set[int]) -> Exec:
        name = node.name.removesuffix("$")
        try:
            found = self._parsed(query, node, name)
        except UnreadableTextError:
            found = self._made(query, node, name, 1.0, False)
        found.stages = self.log.stages_of(node)
        found.removed |= node.node_id in repeated
        found.reason = self.support.reason(found.name)
        return found

    def _parsed(self, query: Query, node: Node, name: str) -> Exec:
        if name in PLAIN:
            return self._tabled(query, node, f"{node.name}Exec", duration_ms=plain_time(self.log, node, name))
        if name in WITH_EXPRESSIONS:
            separator = "" if name.endswith("Aggregate") else " "
            wrong = self.support.unsupported(WITH_EXPRESSIONS[name](node.text.replace(name + separator, "", 1)))
            metric = {
                "HashAggregate": "time in aggregation build total",
                "ObjectHashAggregate": "time in aggregation build",
            }
            time = task_time(self.log, node, metric[name]) if name in metric else None
            return self._tabled(query, node, f"{node.name}Exec", ok=not wrong, unsupported=wrong, duration_ms=time)
        if name in JOINS:
            names, ok = JOINS[name](node.text.replace(f"{name} ", "", 1))
            ok = ok and all(self.support.expression_supported(found) for found in names)
            time = task_time(self.log, node, "time to build hash map") if name == "ShuffledHashJoin" else None
            return self._tabled(query, node, f"{node.name}Exec", ok=ok, duration_ms=time)
        if name in ("CustomShuffleReader", "AQEShuffleRead"):
            return self._tabled(query, node, "CustomShuffleReaderExec")
        if name == "Exchange":
            return self._tabled(query, node, "ShuffleExchangeExec", duration_ms=shuffle_time(self.log, node))
        return self._rarer(query, node, name)

    def _rarer(self, query: Query, node: Node, name: str) -> Exec:
        if name == "BatchScan":
            return self._scan(query, node, "BatchScanExec")
        if is_write(name):
            return self._write(query, node)
        if is_scan(name):
            return self._file_scan(query, node)
        if SORT_MERGE_JOIN.fullmatch(name):
            names, ok = texts.of_equi_join(node.text[node.text.find(" ") + 1 :])
            ok = ok and all(self.support.expression_supported(found) for found in names)
            return self._tabled(query, node, "SortMergeJoinExec", ok=ok, name="SortMergeJoin")
        if name == "Subquery":
            return self._made(
                query, node, node.name, 1.0, False, duration_ms=driver_time(self.log, node, "time to collect")
            )
        if name == "WindowGroupLimit":
            return self._window_group_limit(query, node)
        if "WriteFiles" in name:
            return self._bare(query, node, "WriteFiles", self.support.factor("WriteFilesExec"), True, kind="WriteExec")
        found = self._made(query, node, name, 1.0, name == REUSED)
        found.known = name in REMOVED or name in IGNORED or found.dataset
        return found

    # --- kinds of operators ------------------------------------------------------------------------------------

    def _tabled(
        self,
        query: Query,
        node: Node,
        entry: str,
        *,
        ok: bool = True,
        name: str | None = None,
        unsupported: list[Unsupported] | None = None,
        duration_ms: int | None = None,
    ) -> Exec:
        """An operator that is supported when the table lists it so and nothing in it stands against it."""
        ok = ok and self.support.exec_supported(entry)
        factor = self.support.factor(entry) if ok else 1.0
        return self._made(
            query, node, name or node.name, factor, ok, unsupported=unsupported or [], duration_ms=duration_ms
        )

    def _window_group_limit(self, query: Query, node: Node) -> Exec:
        names = texts.of_window_group_limit(node.text.replace("WindowGroupLimit ", "", 1))
        wrong = self.support.unsupported(names)
        wrong += [
            Unsupported(name, f"Ranking function {name} is not supported in WindowGroupLimitExec")
            for name in names
            if name not in RANKS
        ]
        return self._tabled(query, node, "WindowGroupLimitExec", ok=not wrong and len(names) == 1, unsupported=wrong)

    def _scan(self, query: Query, node: Node, entry: str) -> Exec:
        read = read_of(node)
        ok = not self.support.unsupported_types(read)
        factor = max(self.support.factor(entry) if ok else 0.0, 1.0)
        return self._made(
            query,
            node,
            f"{node.name} {read.data_format}",
            factor,
            ok,
            expression=f"Format: {read.data_format}",
            duration_ms=task_time(self.log, node, "scan time"),
        )

    def _file_scan(self, query: Query, node: Node) -> Exec:
        name = node.name.strip()
        if is_rdd_name(name):
            end = name.find("ExistingRDD")
            short = name[: end + len("ExistingRDD")] if end >= 0 else name
            return self._bare(query, node, short, 1.0, False, kind="ReadRDD")
        entry = "HiveTableScanExec" if is_hive_scan(node.name) else "FileSourceScanExec"
        ok = not self.support.unsupported_types(read_of(node))
        factor = max(self.support.factor(entry) if ok else 0.0, 1.0)
        time = task_time(self.log, node, "scan time")
        return self._bare(query, node, name, factor, ok, kind="ReadExec", duration_ms=time)

    def _write(self, query: Query, node: Node) -> Exec:
        write = write_of(node)
        ok = self.support.write_supported(write.data_format)
        if write.delta:
            listed = self.support.exec_supported(write.entry)
            factor = self.support.factor(write.entry) if ok and listed else 1.0
            name, ok = node.name.replace("Execute ", ""), ok and listed
            return self._bare(
                query, node, name, factor, ok, kind="WriteExec", expression=f"Format: {write.data_format}"
            )
        kind = write.data_format.lower().strip()
        factor = self.support.factor(write.entry) if ok else 1.0
        name = f"{node.name.strip()} {kind}"
        return self._bare(query, node, name, factor, ok, kind="WriteExec", expression=f"Format: {kind}")

    # --- flags -------------------------------------------------------------------------------------------------

    def _made(
        self,
        query: Query,
        node: Node,
        name: str,
        factor: float,
        supported: bool,
        *,
        expression: str = "",
        duration_ms: int | None = None,
        unsupported: list[Unsupported] | None = None,
    ) -> Exec:
        """An operator whose text is searched for user functions and typed datasets."""
        udf = (
            not any(part in node.name for part in UDF_CHECK_SKIPPED) and re.fullmatch(".*UDF.*", node.text) is not None
        )
        by_name = is_rdd_name(node.name)
        by_text = not by_name and is_rdd_text(node.text)
        return self._bare(
            query,
            node,
            name,
            factor,
            supported,
            expression=expression,
            duration_ms=duration_ms,
            # Inside a typed lambda the patterns find nothing that could be trusted.
            unsupported=[] if by_text else unsupported or [],
            dataset=by_name or by_text,
            udf=udf,
        )

    def _bare(
        self,
        query: Query,
        node: Node,
        name: str,
        factor: float,
        supported: bool,
        *,
        kind: str = "Exec",
        expression: str = "",
        duration_ms: int | None = None,
        unsupported: list[Unsupported] | None = None,
        dataset: bool = False,
        udf: bool = False,
    ) -> Exec:
        all_rdd = dataset or kind == "ReadRDD"
        return Exec(
            query.sql_id,
            node.node_id,
            name,
            expression,
            factor,
            duration_ms,
            "Exec" if udf or dataset else kind,
            supported and not udf and not all_rdd,
            removed=name in REMOVED,
            unsupported=unsupported or [],
            dataset=all_rdd,
            udf=udf,
            ignored=udf or all_rdd or name in IGNORED,
        )


def _below_reused(nodes: list[Node], children: dict[int, list[Node]]) -> set[int]:
    """Nodes that feed a reused exchange which the graph draws twice: counted where they are drawn first."""
    inputs: dict[int, list[int]] = {}
    for node in nodes:
        for parent in node.parent_ids:
            inputs.setdefault(parent, []).append(node.node_id)
    found: set[int] = set()
    for node in nodes:
        if node.name != REUSED:
            continue
        visited, pending = {node.node_id}, [node.node_id]
        while pending:
            new = [below for below in inputs.get(pending.pop(), []) if below not in visited]
            visited.update(new)
            pending += new
        # A span whose operators are all below it is below it, too.
        spans = [span for span in nodes if CODEGEN in span.name and span.codegen_id is None]
        visited |= {
            span.node_id
            for span in spans
            if all(member.node_id in visited for member in children.get(span.node_id, []))
        }
        found |= visited
    return found
