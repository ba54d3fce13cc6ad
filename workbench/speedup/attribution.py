"""Where did the wall time of an execution go? Each instant is counted once, and all parts add up to the wall.

Three steps: instants are shared among the stages that run (`stage_walls`), the task time of a stage is cut into pieces
by what its operators report (`pieces`), and each piece is told in wall seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from workbench.speedup.execution import Execution, Node, Stage

IDLE = "idle"
OVERHEAD = "task overhead"
UNKNOWN = "unattributed"
# What a piece rests on.
OWN, SPAN, REMAINDER, AROUND = "own metric", "span minus inputs", "remainder", "around the tasks"


@dataclass(frozen=True)
class Piece:
    """A part of an execution's wall time that one time stands for.

    `node_ids` are the operators that share it: one where an operator reports its own time, several where a codegen
    span fuses them, none for `term`s that are no operator (idle, task overhead, unattributed).
    """

    stage_id: int | None
    term: str | None
    node_ids: tuple[int, ...]
    basis: str
    task_s: float
    wall_s: float


@dataclass(frozen=True)
class Region:
    """Operators between exchanges: they run in the same stages."""

    nodes: tuple[Node, ...]
    writes: tuple[Node, ...]
    reads: tuple[Node, ...]
    stage_ids: frozenset[int]


def pieces(execution: Execution) -> list[Piece]:
    """The pieces of an execution's wall time; their `wall_s` add up to it.

    Notes
    -----
    A stage's share of the wall is cut like its task time, so waiting of one core for another is spread evenly.
    """
    walls, idle_s = stage_walls(execution)
    found = [Piece(None, IDLE, (), AROUND, 0.0, idle_s)]
    regions = _regions(execution)
    by_stage: dict[int, list[Stage]] = defaultdict(list)
    for stage in execution.stages:
        by_stage[stage.stage_id].append(stage)
    for stage_id, attempts in by_stage.items():
        task_s = sum(stage.task_s for stage in attempts)
        run_s = min(task_s, sum(stage.run_s for stage in attempts))
        wall_s = sum(walls[stage] for stage in attempts)
        cut = _cut(execution, [region for region in regions if stage_id in region.stage_ids], stage_id, run_s)
        cut.append((OVERHEAD, (), AROUND, task_s - run_s))
        scale = wall_s / task_s if task_s else 0.0
        if not task_s:
            found.append(Piece(stage_id, OVERHEAD, (), AROUND, 0.0, wall_s))
        found += [
            Piece(stage_id, term, node_ids, basis, part_s, part_s * scale)
            for term, node_ids, basis, part_s in cut
            if part_s > 0
        ]
    return found


def stage_walls(execution: Execution) -> tuple[dict[Stage, float], float]:
    """The wall time of each stage, and the time without a running stage.

    A stage runs from its first task's launch to its last task's end. Where several run, each gets of that instant the
    part that its tasks took of the slots: its task time over its length. So nothing is counted twice.
    """
    spans = {
        stage: (max(stage.start_s, execution.start_s), min(stage.end_s, execution.end_s)) for stage in execution.stages
    }
    spans = {stage: (start, end) for stage, (start, end) in spans.items() if end > start}
    instants = sorted({instant for span in spans.values() for instant in span})
    walls = dict.fromkeys(execution.stages, 0.0)
    busy_s = 0.0
    for start, end in pairwise(instants):
        running = {stage: _slots(stage) for stage, (first, last) in spans.items() if first <= start and last >= end}
        if not running:
            continue
        busy_s += end - start
        total = sum(running.values())
        for stage, slots in running.items():
            walls[stage] += (end - start) * slots / total
    return walls, max(0.0, execution.wall_s - busy_s)


def _slots(stage: Stage) -> float:
    return max(stage.task_s, 1e-4) / max(stage.end_s - stage.start_s, 1e-3)


Cut = list[tuple[str | None, tuple[int, ...], str, float]]


def _cut(execution: Execution, regions: list[Region], stage_id: int, run_s: float) -> Cut:
    """Cut the run time of a stage's tasks: own metrics, then spans without what lies inside, then the remainder."""
    own = _own_times(regions, stage_id)
    spans = _spans(execution, regions, stage_id, own)
    known = sum(own.values()) + sum(seconds for _, seconds in spans)
    # Metrics are taken by clocks of their own and may overlap a little: together they cannot exceed the run time.
    scale = min(1.0, run_s / known) if known else 1.0
    cut: Cut = [(None, (node,), OWN, seconds * scale) for node, seconds in own.items()]
    cut += [(None, members, SPAN, seconds * scale) for members, seconds in spans]
    rest = run_s - known * scale
    inside = {node for members, _ in spans for node in members}
    members = tuple(
        node.node_id
        for region in regions
        for node in (*region.nodes, *region.writes)
        if _shares(node)
        and node.node_id not in inside
        and (node.operator.kind == "exchange" or node.node_id not in own)
    )
    if members:
        return [*cut, (None, members, REMAINDER, rest)]
    if known:
        grown = rest / (known * scale)
        return [(term, nodes, basis, seconds * (1 + grown)) for term, nodes, basis, seconds in cut]
    return [(UNKNOWN, (), REMAINDER, rest)]


def _shares(node: Node) -> bool:
    """Whether the operator may have taken time that no metric of its own tells."""
    return node.operator.kind != "none"


def _own_times(regions: list[Region], stage_id: int) -> dict[int, float]:
    own: dict[int, float] = defaultdict(float)
    for region in regions:
        for node in (*region.nodes, *region.writes):
            values = node.metrics.get(stage_id, {})
            own[node.node_id] += sum(values.get(name, 0.0) for name in node.operator.own_times)
        for node in region.reads:
            values = node.metrics.get(stage_id, {})
            own[node.node_id] += sum(values.get(name, 0.0) for name in node.operator.read_times)
    return {node: seconds for node, seconds in own.items() if seconds > 0}


def _spans(
    execution: Execution, regions: list[Region], stage_id: int, own: dict[int, float]
) -> list[tuple[tuple[int, ...], float]]:
    """Times that hold those of their inputs, each without what is inside; deepest first."""
    found: list[tuple[tuple[int, ...], float]] = []
    for region in regions:
        # A broadcast table is there before the tasks start: reading it is the join's work.
        reads = (node for node in region.reads if node.operator.kind != "broadcast")
        ids = {node.node_id: node for node in (*region.nodes, *reads)}
        told: dict[int, float] = {}
        covered: set[int] = set()
        for node in sorted(region.nodes, key=lambda node: -node.node_id):
            values = node.metrics.get(stage_id, {})
            total = sum(values.get(name, 0.0) for name in node.operator.span_times)
            if total <= 0:
                continue
            below = _below(execution, node.node_id, ids)
            inner = {other for other in told if other in below and not _is_inside(execution, other, told, below, ids)}
            inside = sum(told[other] for other in inner)
            fresh = [other for other in below if other not in covered]
            alone = total - inside - sum(own.get(other, 0.0) for other in fresh)
            told[node.node_id] = total
            members = (node.node_id, *(other for other in fresh if other not in own and _shares(ids[other])))
            covered |= {node.node_id, *below}
            if alone > 0:
                found.append((members, alone))
    return found


def _is_inside(execution: Execution, node: int, told: dict[int, float], below: set[int], ids: dict[int, Node]) -> bool:
    """Whether another span, itself below, holds this one."""
    return any(other != node and other in below and node in _below(execution, other, ids) for other in told)


def _below(execution: Execution, node: int, ids: dict[int, Node]) -> set[int]:
    found: set[int] = set()
    todo = list(execution.children.get(node, ()))
    while todo:
        child = todo.pop()
        if child in ids and child not in found:
            found.add(child)
            # An exchange's own input ran in another stage.
            if not _is_border(ids[child]):
                todo += execution.children.get(child, ())
    return found


def _is_border(node: Node) -> bool:
    return node.operator.kind in ("exchange", "broadcast")


@lru_cache(maxsize=8)
def _regions(execution: Execution) -> list[Region]:
    """The plan cut at its exchanges."""
    home: dict[int, int] = {}

    def root(node: int) -> int:
        while home.setdefault(node, node) != node:
            node = home[node]
        return node

    plain = {key: node for key, node in execution.nodes.items() if not _is_border(node)}
    for key, node in plain.items():
        for parent in node.parent_ids:
            if parent in plain:
                home[root(key)] = root(parent)
    groups: dict[int, list[Node]] = defaultdict(list)
    for key, node in plain.items():
        groups[root(key)].append(node)
    return [_region(execution, group) for group in groups.values()]


def _region(execution: Execution, nodes: list[Node]) -> Region:
    inside = {node.node_id for node in nodes}
    writes = _unique(
        execution.nodes[parent]
        for node in nodes
        for parent in node.parent_ids
        if parent in execution.nodes and _is_border(execution.nodes[parent])
    )
    reads = _unique(
        execution.nodes[child]
        for node in nodes
        for child in execution.children.get(node.node_id, ())
        if child not in inside
    )
    stages = {stage for node in nodes for stage in node.metrics if stage >= 0}
    for node in writes:
        stages |= {stage for stage, values in node.metrics.items() if _wrote(values)}
    for node in reads:
        stages |= {stage for stage, values in node.metrics.items() if stage >= 0 and not _wrote(values)}
    return Region(tuple(nodes), writes, reads, frozenset(stages))


def _wrote(values: dict[str, float]) -> bool:
    return any(name.startswith(("shuffle records written", "shuffle bytes written")) for name in values)


def _unique(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple({node.node_id: node for node in nodes}.values())
