"""What SIMULATED Spark applications are made of, what they must show, and the lines of their logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Executor:
    """An executor and when it lives, in ms from the application's start; `lost` ones die with their tasks."""

    name: str
    cores: int
    added: int
    removed: int | None = None
    lost: bool = False
    profile: int = 0
    gpus: int = 0


@dataclass
class Attempt:
    """An attempt of a task, in ms; `outcome` is success, failed, killed or lost."""

    stage: int
    stage_attempt: int
    task_id: int
    partition: int
    executor: str
    launch: int
    finish: int
    outcome: str
    speculative: bool = False


@dataclass
class Node:
    """A node of a plan: its metrics' totals by name, in the stage of the query (its number there) that runs it."""

    name: str
    text: str
    children: list[Node] = field(default_factory=list)
    metrics: list[tuple[str, str]] = field(default_factory=list)
    stage: int = 0
    rows: int | None = None
    shares: dict[str, float] = field(default_factory=dict)  # of the stage's task time, by metric
    counts: dict[str, int] = field(default_factory=dict)  # totals, by metric
    ids: dict[str, int] = field(default_factory=dict)

    def walk(self) -> Iterable[Node]:
        """This node and all below it."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += node.children


@dataclass
class StageSpec:
    """A stage of a query: its partitions' durations in ms, and the stages that it waits for."""

    durations: list[int]
    after: tuple[int, ...] = ()
    profile: int = 0
    opaque: float = 0.0  # share of its task time that is a user's code


@dataclass
class Query:
    """What a query is, and where it is on the time axis once it ran (ms)."""

    identity: str
    description: str
    plan: Node
    stages: list[StageSpec]
    before: int = 100  # driver time before the first stage
    after: int = 100  # and behind the last one
    start_after: int | None = None  # ms behind the previous query's end; null: with it
    engine: str = "spark"
    fails: bool = False
    opaque_told: bool = True
    wraps: bool = False  # an outer command has it as its inner query
    sql_id: int = -1
    start: int = 0
    end: int = 0
    spans: list[tuple[int, int, int]] = field(default_factory=list)  # stage, submitted, completed
    stage_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class QueryTruth:
    """A query as it was: times in s; `untouchable_s` is what no engine changes of its wall time."""

    sql_id: int
    identity: str
    wall_s: float
    task_s: float
    untouchable_s: float
    engine: str
    failed: bool
    opaque_told: bool


@dataclass(frozen=True)
class Truth:
    """What the files must show. Times in s; the four parts of the wall time add up to it."""

    wall_s: float
    running_s: float
    waiting_s: float
    driver_s: float
    nothing_s: float
    n_tasks: int
    n_succeeded: int
    n_not_succeeded: int
    task_s: float
    slot_use: float
    engine: str
    queries: tuple[QueryTruth, ...]
    rows: int  # output rows of all nodes

    @property
    def best_ratio(self) -> float:
        """The largest ratio that any engine can reach: all time in which tasks ran touchable code is gone."""
        opaque = [query.untouchable_s for query in self.queries]
        # Of queries side by side only the longest bounds the time.
        total = sum(opaque) if sum(query.wall_s for query in self.queries) <= self.wall_s else max(opaque)
        untouchable = self.wall_s - self.running_s + total
        return self.wall_s / max(untouchable, 1e-3)


def dump_line(event: dict[str, Any]) -> str:
    """An event as Spark writes it."""
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


def write_lines(path: Path, lines: Sequence[str], mark: str = "", encoding: str = "utf-8") -> None:
    """Write lines as a text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(mark + "\n".join(lines) + "\n", encoding=encoding)


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans without overlap, in order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        elif last > first:
            merged.append((first, last))
    return merged


def length(spans: Iterable[tuple[int, int]]) -> float:
    """Length of spans in s."""
    return sum(last - first for first, last in spans) / 1e3


def shift_numbers(events: list[dict[str, Any]], by: int) -> None:
    """Leave out numbers of jobs and stages in the middle, as failed submissions do."""
    jobs = sorted({event["Job ID"] for event in events if "Job ID" in event})
    if len(jobs) < 2:
        return
    first_job = jobs[len(jobs) // 2]
    first_stage = min(
        stage
        for event in events
        if event["Event"] == "SparkListenerJobStart" and event["Job ID"] >= first_job
        for stage in event["Stage IDs"]
    )

    def move(number: int) -> int:
        return number + by if number >= first_stage else number

    for event in events:
        if "Job ID" in event and event["Job ID"] >= first_job:
            event["Job ID"] += by
        if "Stage IDs" in event:
            event["Stage IDs"] = [move(number) for number in event["Stage IDs"]]
        if "Stage ID" in event:
            event["Stage ID"] = move(event["Stage ID"])
        for info in [*event.get("Stage Infos", ()), *([event["Stage Info"]] if "Stage Info" in event else [])]:
            info["Stage ID"] = move(info["Stage ID"])
            info["Parent IDs"] = [move(number) for number in info["Parent IDs"] or ()]


def step_back(events: list[dict[str, Any]], from_ms: int, by_ms: int) -> None:
    """The driver's clock steps back: stamps after a moment are earlier."""
    stamps = ("Finish Time", "Completion Time", "time", "Timestamp", "Submission Time", "Launch Time")

    def visit(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: part - by_ms if key in stamps and isinstance(part, int) and part > from_ms else visit(part)
                for key, part in value.items()
            }
        return [visit(part) for part in value] if isinstance(value, list) else value

    events[:] = [visit(event) for event in events]
