"""What a log is held as: queries with their plans, jobs, accumulators, sums over tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.eventlog.events import Plan, TaskMetrics
from workbench.eventlog.plans import Node


@dataclass
class Query:
    """A SQL execution with the nodes of its last plan.

    `reads` are the metadata of scans, `hive_scans` the texts of Hive scans; both children first, and as often as the
    plan's tree holds them (a reused exchange repeats what is below it).
    """

    sql_id: int
    root_id: int | None
    description: str
    start_ms: int
    end_ms: int | None = None
    nodes: list[Node] = field(default_factory=list)
    reads: list[dict[str, str]] = field(default_factory=list)
    hive_scans: list[str] = field(default_factory=list)

    @property
    def duration_ms(self) -> int | None:
        return None if self.end_ms is None else self.end_ms - self.start_ms


@dataclass
class Job:
    job_id: int
    stage_ids: list[int]
    sql_id: int | None
    start_ms: int
    end_ms: int | None = None


@dataclass
class Accumulator:
    """Updates by task, and values by stage in the order in which the stages were met."""

    updates: dict[int, int] = field(default_factory=dict)
    stages: dict[int, int] = field(default_factory=dict)

    def add_to_stage(self, stage_id: int, value: int | None, update: int | None = None) -> None:
        found = value if value is not None else update or 0
        self.stages[stage_id] = max(self.stages.get(stage_id, 0), found)

    def add_to_task(self, stage_id: int, task_id: int, value: int | None, update: int | None) -> None:
        self.updates[task_id] = self.updates.get(task_id, 0) + (update or 0)
        if stage_id not in self.stages:
            self.add_to_stage(stage_id, value, update)


@dataclass
class TaskSums:
    """Over all tasks of a stage or of a SQL execution, failed ones too; nanoseconds floored task by task."""

    run_ms: int = 0
    cpu_ms: int = 0
    duration_ms: int = 0
    read_bytes: int = 0


@dataclass
class Task:
    """A task's duration and metrics, as the aggregated tables need them."""

    duration_ms: int
    metrics: TaskMetrics


def reads_of_plan(plan: Plan) -> tuple[list[dict[str, str]], list[str]]:
    """Metadata of the scans that tell their schema, and texts of Hive scans; children before parents."""
    reads: list[dict[str, str]] = []
    hive: list[str] = []
    pending = [(plan, False)]
    while pending:
        node, children_done = pending.pop()
        if not children_done:
            pending.append((node, True))
            pending += [(child, False) for child in reversed(node.children)]
            continue
        if "ReadSchema" in node.metadata:
            reads.append({str(name): str(value) for name, value in node.metadata.items()})
        if node.name.lower().startswith("scan hive"):
            hive.append(node.text)
    return reads, hive


def all_nodes(nodes: list[Node]) -> list[Node]:
    """Nodes as the original walks them: by number, a codegen span behind the nodes in it."""
    children: dict[int, list[Node]] = {}
    for node in nodes:
        if node.codegen_id is not None:
            children.setdefault(node.codegen_id, []).append(node)
    top = [node for node in nodes if node.codegen_id is None]
    return [found for node in top for found in (*children.get(node.node_id, []), node)]
