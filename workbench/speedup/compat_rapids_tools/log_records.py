"""Records of an event log: decoded events, and queries, jobs, tasks and accumulators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from workbench.eventlog.fold import MAX_LINE_BYTES
from workbench.eventlog.listener_events import DECODERS, BoundedInt, Plan, Struct, TaskMetrics
from workbench.eventlog.plan_graph import PlanNode
from workbench.eventlog.sources import CHUNK_BYTES, LogCutter, LogSource

_HEAD = b'{"Event":"'


class Accumulable(Struct, rename={"id": "ID", "name": "Name", "update": "Update", "value": "Value"}):
    """An accumulator in a task or a stage; numbers may come as texts, and anything else may come, too."""

    id: BoundedInt
    name: str | None = None
    update: Any = None
    value: Any = None


class TaskInfo(
    Struct,
    rename={
        "task_id": "Task ID",
        "launch_ms": "Launch Time",
        "finish_ms": "Finish Time",
        "accumulables": "Accumulables",
    },
):
    task_id: BoundedInt
    launch_ms: BoundedInt
    finish_ms: BoundedInt
    accumulables: list[Accumulable] = msgspec.field(default_factory=list)


class TaskEnd(
    Struct,
    rename={"stage_id": "Stage ID", "attempt_id": "Stage Attempt ID", "info": "Task Info", "metrics": "Task Metrics"},
):
    stage_id: BoundedInt
    info: TaskInfo
    attempt_id: BoundedInt = 0
    metrics: TaskMetrics | None = None


class Stage(
    Struct,
    rename={
        "stage_id": "Stage ID",
        "attempt_id": "Stage Attempt ID",
        "submitted_ms": "Submission Time",
        "completed_ms": "Completion Time",
        "failure": "Failure Reason",
        "details": "Details",
        "accumulables": "Accumulables",
    },
):
    stage_id: BoundedInt
    attempt_id: BoundedInt = 0
    submitted_ms: BoundedInt | None = None
    completed_ms: BoundedInt | None = None
    failure: str | None = None
    details: str = ""
    accumulables: list[Accumulable] = msgspec.field(default_factory=list)

    @property
    def duration_ms(self) -> int | None:
        if self.submitted_ms is None or self.completed_ms is None:
            return None
        return self.completed_ms - self.submitted_ms


class StageSubmitted(Struct, rename={"info": "Stage Info"}):
    info: Stage


class StageCompleted(Struct, rename={"info": "Stage Info"}):
    info: Stage


class StageOfJob(Struct, rename={"stage_id": "Stage ID"}):
    stage_id: BoundedInt


class JobStart(
    Struct,
    rename={
        "job_id": "Job ID",
        "time_ms": "Submission Time",
        "stage_ids": "Stage IDs",
        "stages": "Stage Infos",
        "properties": "Properties",
    },
):
    job_id: BoundedInt
    time_ms: BoundedInt
    stage_ids: list[BoundedInt] = msgspec.field(default_factory=list)
    stages: list[StageOfJob] | None = None
    properties: dict[str, Any] | None = None


class Streaming(Struct):
    """A structured streaming query started or ended."""


_OWN: dict[str, type[Struct]] = {
    "SparkListenerTaskEnd": TaskEnd,
    "SparkListenerStageSubmitted": StageSubmitted,
    "SparkListenerStageCompleted": StageCompleted,
    "SparkListenerJobStart": JobStart,
    "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent": Streaming,
    "org.apache.spark.sql.streaming.StreamingQueryListener$QueryTerminatedEvent": Streaming,
}
_DECODERS: dict[bytes, msgspec.json.Decoder[Any]] = DECODERS | {
    name.encode(): msgspec.json.Decoder(kind, strict=False) for name, kind in _OWN.items()
}


class EventReader:
    """The events of one log in their order; `n_lines`, `n_bad`, `n_cut` and `faults` tell afterwards what it lacks."""

    def __init__(self, source: LogSource) -> None:
        self.cutter = LogCutter(0, source, CHUNK_BYTES)
        self.n_lines = self.n_bad = self.n_cut = 0

    @property
    def faults(self) -> list[str]:
        return self.cutter.faults

    def __iter__(self) -> Iterator[Any]:
        streams = (self.cutter.iter_stream(number) for number in range(len(self.cutter.source.files)))
        for chunk in itertools.chain.from_iterable(streams):
            file, _ = chunk.open()
            for line in iter(partial(file.readline, MAX_LINE_BYTES), b""):
                self.n_lines += 1
                try:
                    event = _decode_event(line.removeprefix(b"\xef\xbb\xbf"))
                except (msgspec.DecodeError, ValueError, RecursionError):
                    # The last line of a log that is still written, or whose writer died, is no damage.
                    self.n_bad += line.endswith(b"\n")
                    self.n_cut += not line.endswith(b"\n")
                    continue
                if event is not None:
                    yield event


def _decode_event(line: bytes) -> Any:
    """Decode a line of the log; null for an empty one, and for an event that is not needed."""
    if not line.strip():
        return None
    if line.startswith(_HEAD):
        name = line[10 : line.index(b'"', 10)]
    else:
        event = msgspec.json.decode(line)
        text = event.get("Event") if isinstance(event, dict) else None
        if not isinstance(text, str):
            raise ValueError("no event")
        name = text.encode()
    if name in _DECODERS:
        return _DECODERS[name].decode(line)
    if not line.rstrip().endswith(b"}"):
        raise ValueError("cut off")
    return None


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
    nodes: list[PlanNode] = field(default_factory=list)
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

    def add_stage_value(self, stage_id: int, value: int | None, update: int | None = None) -> None:
        amount = value if value is not None else update or 0
        self.stages[stage_id] = max(self.stages.get(stage_id, 0), amount)

    def add_task_value(self, stage_id: int, task_id: int, value: int | None, update: int | None) -> None:
        self.updates[task_id] = self.updates.get(task_id, 0) + (update or 0)
        if stage_id not in self.stages:
            self.add_stage_value(stage_id, value, update)


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


def list_plan_reads(plan: Plan) -> tuple[list[dict[str, str]], list[str]]:
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


def list_nodes_in_order(nodes: list[PlanNode]) -> list[PlanNode]:
    """Nodes as the original walks them: by number, a codegen span behind the nodes in it."""
    children: dict[int, list[PlanNode]] = {}
    for node in nodes:
        if node.codegen_id is not None:
            children.setdefault(node.codegen_id, []).append(node)
    top = [node for node in nodes if node.codegen_id is None]
    return [member for node in top for member in (*children.get(node.node_id, []), node)]
