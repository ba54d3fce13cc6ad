"""SIMULATED Spark applications: a truth is drawn, run on simulated executors, and written as Spark would log it.

`draw_world` draws an application with traits switched on; `World.write` writes its event log. The product reads only
the files; `World.truth` holds what they must show. A trait is a kind of what people report of their logs, never one
example of it.

Traits of `SUPPORTED` leave the log whole: its figures are wanted. Those of `DAMAGE` take something away or falsify it:
then a refusal is right, and a wrong figure is not.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

SQL = "org.apache.spark.sql.execution.ui."
SPARKS = ("2.4.8", "3.3.4", "3.5.9", "4.0.1", "4.1.1")
LAYOUTS = ("plain", "rolled", "databricks")
SUPPORTED = (
    "resubmitted", "speculation", "failed_tasks", "fetch_failed", "killed_stage", "repeated_lines", "skew_join", "plugin_idle",
    "mixed_engine", "other_baseline", "gpu_slots", "task_cpus", "stage_profile", "dynamic_allocation", "queue_wait",
    "executor_replaced", "unnamed", "same_name", "connect", "driver_time", "client_fetch", "commit", "python_metric", "python_blind",
    "scala_udf", "cache", "subquery", "concurrent", "ctas", "failed_query", "number_gaps", "odd_fields", "deep_plan",
    "byte_order_mark", "sources", "rdd_jobs", "gaps_between",
)  # fmt: skip
DAMAGE = ("cut_tail", "lost_tasks", "clock_back", "two_applications", "lost_query_end", "utf16")
UNNAMED = "save at NativeMethodAccessorImpl.java:0"
T0_MS = 1_790_000_000_000
PROPERTIES = {"spark.master": "yarn", "spark.executor.memory": "8g"}
PLUGINS = {
    "rapids": "com.nvidia.spark.SQLPlugin",
    "comet": "org.apache.spark.CometPlugin",
    "gluten": "org.apache.gluten.GlutenPlugin",
    "auron": "",
    "photon": "",
}
PYTHON_METRICS = (
    ("time to run Python workers", "timing"),
    ("time to start Python workers", "timing"),
    ("data sent to Python workers", "size"),
)
ROWS = ("number of output rows", "sum")
SCAN = (
    "FileScan parquet [k#1L,v#2,{column}#3] Batched: true, DataFilters: [], Format: Parquet, Location: InMemoryFileIndex"
    "(1 paths)[hdfs:/lake/{table}], PartitionFilters: [], PushedFilters: [], ReadSchema: struct<k:bigint,v:double,{column}:int>"
)


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


class World:
    """An application that ran: events in order, and the truth."""

    def __init__(self, rng: np.random.Generator, traits: Sequence[str], spark: str, layout: str, t0_ms: int = T0_MS):
        self.rng, self.traits, self.spark, self.layout, self.t0 = rng, frozenset(traits), spark, layout, t0_ms
        self.version = tuple(map(int, spark.split(".")[:2]))
        self.events: list[tuple[int, int, int, dict[str, Any]]] = []
        self.serial = count()
        self.accumulators, self.task_ids, self.job_ids, self.stage_ids, self.sql_ids = (
            count(1000),
            count(),
            count(),
            count(),
            count(),
        )
        self.properties = dict(PROPERTIES)
        self.executors: list[Executor] = []
        self.attempts: list[Attempt] = []
        self.extra_ends: list[dict[str, Any]] = []
        self.profiles: dict[int, dict[str, float]] = {0: {}}
        self.open_spans: list[tuple[int, int]] = []
        self.queries: list[Query] = []
        self.plans: list[str] = []
        self.n_attempts: dict[int, int] = {}
        self.rdd_spans: list[tuple[int, int]] = []
        self.session_id = ""
        self.truth: Truth
        self.rows = 0
        self.last = 0
        self.free: dict[tuple[str, int], int] = {}
        self.name = "nightly load"
        self.engine = "spark"

    # --- events ---------------------------------------------------------------------------------------------------

    def emit(self, time_ms: int, rank: int, event: dict[str, Any]) -> None:
        """Note an event; those of one moment come by rank."""
        heapq.heappush(self.events, (time_ms, rank, next(self.serial), event))

    def at(self, time_ms: int) -> int:
        return self.t0 + time_ms

    def has(self, trait: str) -> bool:
        return trait in self.traits

    # --- plans ----------------------------------------------------------------------------------------------------

    def number_metrics(self, plan: Node) -> None:
        for node in plan.walk():
            for name, _ in node.metrics:
                node.ids.setdefault(name, next(self.accumulators))

    def format_plan(self, node: Node) -> str:
        """A plan as JSON; built from below, since plans of thousands of levels are beyond the encoder."""
        done: dict[int, str] = {}
        for one in reversed(list(node.walk())):
            fields = {
                "nodeName": one.name,
                "simpleString": one.text,
                "metadata": {},
                "metrics": [
                    {"name": name, "accumulatorId": one.ids[name], "metricType": kind} for name, kind in one.metrics
                ],
            }
            children = ",".join(done[id(child)] for child in one.children)
            done[id(one)] = dump_line(fields)[:-1] + f',"children":[{children}]}}'
        return done[id(node)]

    def keep_plan(self, plan: Node) -> str:
        """Place of a plan in its line."""
        self.plans.append(self.format_plan(plan))
        return f"@plan {len(self.plans) - 1}@"

    # --- running --------------------------------------------------------------------------------------------------

    def slots_of(self, executor: Executor, profile: int) -> int:
        wanted = self.profiles[profile]
        slots = executor.cores // int(wanted.get("cpus", 1))
        if wanted.get("gpu"):
            slots = min(slots, int(executor.gpus / wanted["gpu"] + 1e-9))
        return slots

    def run_stage(self, spec: StageSpec, stage_id: int, attempt: int, ready: int, updates: dict[int, list[int]],
                  partitions: Sequence[int] | None = None, fetch_failed_at: int | None = None) -> int:  # fmt: skip
        """Run the tasks of a stage attempt on the slots that are free; returns the time of its end."""
        todo = [
            (ready, partition, False)
            for partition in (partitions if partitions is not None else range(len(spec.durations)))
        ]
        heapq.heapify(todo)
        ends, ok_on = [ready], {}
        speculated = self.has("speculation") and attempt == 0 and len(todo) > 2 and self.rng.random() < 0.5
        straggler = todo[-1][1] if speculated else None
        failing = {todo[0][1]} if self.has("failed_tasks") and attempt == 0 and self.rng.random() < 0.5 else set()
        deaths = sorted(
            (e.removed, e.name) for e in self.executors if e.lost and e.removed is not None and e.removed > ready
        )
        while todo or deaths:
            if not todo:
                # Finished outputs on an executor that dies while the stage is open are made again.
                when, name = deaths.pop(0)
                if when >= max(ends) or not self.has("resubmitted"):
                    continue
                for done in ok_on.pop(name, []):
                    self.end_again(done, when, updates)
                    heapq.heappush(todo, (when, done.partition, True))
                continue
            at, partition, again = heapq.heappop(todo)
            executor, slot, launch = self.find_slot(at, spec.profile)
            while deaths and deaths[0][0] <= launch:
                when, name = deaths.pop(0)
                if self.has("resubmitted"):
                    for done in ok_on.pop(name, []):
                        self.end_again(done, when, updates)
                        heapq.heappush(todo, (when, done.partition, True))
            duration = spec.durations[partition]
            if partition == straggler and not again:
                self.run_speculated(spec, stage_id, attempt, partition, executor, slot, launch, duration, updates, ends)
                continue
            finish = launch + duration
            dies = executor.lost and executor.removed is not None and finish > executor.removed
            fails = partition in failing
            outcome = "lost" if dies else "failed" if fails else "success"
            if dies:
                finish = executor.removed  # type: ignore[assignment]
            elif fails:
                finish = launch + max(1, duration // 2)
                failing.discard(partition)
            done = self.run_task(stage_id, attempt, partition, executor, launch, finish, outcome, updates)
            self.free[executor.name, slot] = finish
            ends.append(finish)
            if outcome == "success":
                ok_on.setdefault(executor.name, []).append(done)
            else:
                heapq.heappush(todo, (finish, partition, again))
        return max(ends)

    def run_speculated(self, spec: StageSpec, stage_id: int, attempt: int, partition: int, executor: Executor, slot: int,
                       launch: int, duration: int, updates: dict[int, list[int]], ends: list[int]) -> None:  # fmt: skip
        """A straggler: a copy wins, the original is killed when it does."""
        copy_executor, copy_slot, copy_launch = self.find_slot(
            launch + duration, spec.profile, other_than=(executor.name, slot)
        )
        finish = copy_launch + duration
        limit = executor.removed
        end = finish if limit is None else min(finish, limit)
        is_same = (copy_executor.name, copy_slot) == (executor.name, slot)
        if is_same or (copy_executor.removed is not None and finish > copy_executor.removed):
            self.run_task(stage_id, attempt, partition, executor, launch, launch + duration, "success", updates)
            self.free[executor.name, slot] = launch + duration
            ends.append(launch + duration)
            return
        self.run_task(
            stage_id, attempt, partition, copy_executor, copy_launch, finish, "success", updates, speculative=True
        )
        self.run_task(stage_id, attempt, partition, executor, launch, end, "killed", updates)
        self.free[executor.name, slot], self.free[copy_executor.name, copy_slot] = end, finish
        ends.append(finish)

    def find_slot(
        self, ready: int, profile: int, other_than: tuple[str, int] | None = None
    ) -> tuple[Executor, int, int]:
        """The slot that is free first, of the executors of a profile."""
        best: tuple[int, str, int] | None = None
        named = {executor.name: executor for executor in self.executors}
        for executor in self.executors:
            if executor.profile != profile:
                continue
            for slot in range(self.slots_of(executor, profile)):
                if (executor.name, slot) == other_than:
                    continue
                launch = max(ready, executor.added + 10, self.free.get((executor.name, slot), 0))
                if executor.removed is not None and launch >= executor.removed - (1 if executor.lost else 4000):
                    continue
                if best is None or (launch, executor.name, slot) < best:
                    best = launch, executor.name, slot
        if best is None:
            return named[other_than[0]], other_than[1], max(ready, self.free.get(other_than, 0))  # type: ignore[index]
        return named[best[1]], best[2], best[0]

    def run_task(self, stage_id: int, attempt: int, partition: int, executor: Executor, launch: int, finish: int, outcome: str,
                 updates: dict[int, list[int]], *, speculative: bool = False, reason: dict[str, Any] | None = None) -> Attempt:  # fmt: skip
        done = Attempt(
            stage_id, attempt, next(self.task_ids), partition, executor.name, launch, finish, outcome, speculative
        )
        self.attempts.append(done)
        self.emit(launch, 4, {"Event": "SparkListenerTaskStart", "Stage ID": stage_id, "Stage Attempt ID": attempt,
                              "Task Info": self.task_info(done, ended=False)})  # fmt: skip
        self.emit(finish, 5, self.task_end(done, updates, reason))
        if outcome == "success":
            self.rows += sum(values[partition] for key, values in updates.items() if key in self.row_ids)
        return done

    row_ids: set[int] = set()

    def end_again(self, done: Attempt, when: int, updates: dict[int, list[int]]) -> None:
        """Spark's second end of a task whose output is lost: before version 4 with all that its first one had."""
        event = self.task_end(done, updates, {"Reason": "Resubmitted"})
        event.pop("Task Metrics", None)
        if self.version >= (4, 0):
            event["Task Info"]["Accumulables"] = []
        self.emit(max(when, done.finish + 1), 6, event)

    def task_info(self, done: Attempt, *, ended: bool) -> dict[str, Any]:
        info: dict[str, Any] = {
            "Task ID": done.task_id, "Index": done.partition, "Attempt": 0, "Partition ID": done.partition,
            "Launch Time": self.at(done.launch), "Executor ID": done.executor, "Host": f"node-{done.executor}",
            "Locality": "PROCESS_LOCAL", "Speculative": done.speculative, "Getting Result Time": 0,
            "Finish Time": self.at(done.finish) if ended else 0, "Failed": ended and done.outcome in ("failed", "lost"),
            "Killed": ended and done.outcome == "killed", "Accumulables": [],
        }  # fmt: skip
        if self.version < (3, 2):
            del info["Partition ID"]
        return info

    def task_end(
        self, done: Attempt, updates: dict[int, list[int]], reason: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        reasons = {
            "success": {"Reason": "Success"},
            "failed": {"Reason": "ExceptionFailure", "Class Name": "java.io.IOException", "Description": "disk", "Stack Trace": []},
            "killed": {"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded", "Accumulator Updates": []},
            "lost": {"Reason": "ExecutorLostFailure", "Executor ID": done.executor, "Exit Caused By App": False, "Loss Reason": "lost"},
            "fetch": {"Reason": "FetchFailed", "Shuffle ID": 0, "Map ID": 0, "Map Index": 0, "Reduce ID": done.partition, "Message": "gone"},
        }  # fmt: skip
        info = self.task_info(done, ended=True)
        if done.outcome == "fetch":
            info["Failed"] = True
        if done.outcome == "success":
            info["Accumulables"] = [
                {"ID": key, "Name": self.names[key], "Update": str(values[done.partition]), "Value": "0", "Internal": True,
                 "Count Failed Values": True, "Metadata": "sql"}
                for key, values in updates.items() if values[done.partition]
            ]  # fmt: skip
        event = {
            "Event": "SparkListenerTaskEnd", "Stage ID": done.stage, "Stage Attempt ID": done.stage_attempt,
            "Task Type": "ShuffleMapTask", "Task End Reason": reason or reasons[done.outcome], "Task Info": info,
        }  # fmt: skip
        if self.version >= (3, 0):
            event["Task Executor Metrics"] = {}
        if done.outcome in ("success", "failed"):
            run = done.finish - done.launch
            event["Task Metrics"] = {
                "Executor Deserialize Time": 0, "Executor Deserialize CPU Time": 0, "Executor Run Time": run,
                "Executor CPU Time": run * 900_000, "Peak Execution Memory": 0, "Result Size": 1000, "JVM GC Time": 0,
                "Result Serialization Time": 0, "Memory Bytes Spilled": 0, "Disk Bytes Spilled": 0,
                "Shuffle Read Metrics": {"Remote Blocks Fetched": 0, "Local Blocks Fetched": 0, "Fetch Wait Time": 0,
                                         "Remote Bytes Read": 0, "Remote Bytes Read To Disk": 0, "Local Bytes Read": 0,
                                         "Total Records Read": 0},
                "Shuffle Write Metrics": {"Shuffle Bytes Written": 0, "Shuffle Write Time": 0, "Shuffle Records Written": 0},
                "Input Metrics": {"Bytes Read": 0, "Records Read": 0},
                "Output Metrics": {"Bytes Written": 0, "Records Written": 0}, "Updated Blocks": [],
            }  # fmt: skip
        return event

    names: dict[int, str] = {}

    def stage_info(self, stage_id: int, attempt: int, spec: StageSpec, n: int, submitted: int | None = None,
                   completed: int | None = None, failure: str | None = None, parents: Sequence[int] = ()) -> dict[str, Any]:  # fmt: skip
        info: dict[str, Any] = {
            "Stage ID": stage_id, "Stage Attempt ID": attempt, "Stage Name": "save at job.py:1", "Number of Tasks": n,
            "RDD Info": [], "Parent IDs": list(parents), "Details": "", "Accumulables": [],
        }  # fmt: skip
        if self.version >= (3, 1):
            info["Resource Profile Id"] = spec.profile
        if submitted is not None:
            info["Submission Time"] = self.at(submitted)
        if completed is not None:
            info["Completion Time"] = self.at(completed)
        if failure:
            info["Failure Reason"] = failure
        return info

    def run_query(self, query: Query, start: int) -> None:
        """Run a query from `start` on; its stages one after the other as they wait for each other."""
        query.sql_id, query.start = next(self.sql_ids), start
        self.number_metrics(query.plan)
        self.names = self.names | {key: name for node in query.plan.walk() for name, key in node.ids.items()}
        self.row_ids = self.row_ids | {node.ids[ROWS[0]] for node in query.plan.walk() if ROWS[0] in node.ids}
        outer = None
        if query.wraps:
            outer, query.sql_id = query.sql_id, next(self.sql_ids)
            shell = Node(
                "Execute CreateDataSourceTableAsSelectCommand", "Execute CreateDataSourceTableAsSelectCommand `db`.`t`"
            )
            self.start_sql(outer, start, query.description, shell, outer)
        inner_start = start + (300 if query.wraps else 0)
        self.start_sql(
            query.sql_id, inner_start, query.description, query.plan, outer if outer is not None else query.sql_id
        )
        ids = query.stage_ids = [next(self.stage_ids) for _ in query.stages]
        job = next(self.job_ids)
        begin = inner_start + query.before
        properties = {"spark.sql.execution.id": str(query.sql_id)}
        if ids:
            self.emit(begin, 2, {"Event": "SparkListenerJobStart", "Job ID": job, "Submission Time": self.at(begin),
                                 "Stage Infos": [self.stage_info(s, 0, spec, len(spec.durations)) for s, spec in zip(ids, query.stages, strict=True)],
                                 "Stage IDs": ids, "Properties": properties})  # fmt: skip
        ends: list[int] = []
        for number, spec in enumerate(query.stages):
            ready = max([begin + 20, *(ends[other] + 10 for other in spec.after)])
            updates = self.split_updates(query, number, spec)
            parents = [ids[other] for other in spec.after]
            if (
                self.has("fetch_failed")
                and spec.after
                and not query.fails
                and self.rng.random() < 0.5
                and len(spec.durations) > 2
            ):
                end = self.run_fetch_failed(query, number, spec, ids, ready, updates, properties)
            else:
                self.submit(ids[number], 0, spec, len(spec.durations), ready, properties, parents)
                end = self.run_stage(spec, ids[number], 0, ready, updates)
                self.complete(ids[number], 0, spec, len(spec.durations), ready, end, parents=parents,
                              failure="Job cancelled" if query.fails and number == len(query.stages) - 1 else None)  # fmt: skip
                query.spans.append((ids[number], ready, end))
            ends.append(end)
        last = max(ends, default=begin)
        if ids:
            result = (
                {"Result": "JobSucceeded"}
                if not query.fails
                else {"Result": "JobFailed", "Exception": {"Message": "boom", "Stack Trace": []}}
            )
            self.emit(
                last + 5,
                8,
                {
                    "Event": "SparkListenerJobEnd",
                    "Job ID": job,
                    "Completion Time": self.at(last + 5),
                    "Job Result": result,
                },
            )
        inner_end = last + 5 + query.after
        query.end = inner_end + (200 if outer is not None else 0)
        self.end_sql(query.sql_id, inner_end, failed=query.fails)
        if outer is not None:
            self.end_sql(outer, query.end, failed=query.fails)
            query.sql_id = outer
        self.open_spans.append((query.start, query.end))
        self.queries.append(query)
        self.last = max(self.last, query.end)

    def start_sql(self, sql_id: int, time: int, description: str, plan: Node, root: int) -> None:
        event: dict[str, Any] = {"Event": SQL + "SparkListenerSQLExecutionStart", "executionId": sql_id}
        if self.version >= (3, 4):
            event["rootExecutionId"] = root
        event |= {"description": description, "details": "", "physicalPlanDescription": "", "sparkPlanInfo": self.keep_plan(plan),
                  "time": self.at(time)}  # fmt: skip
        if self.version >= (3, 3):
            event["modifiedConfigs"] = {}
        if self.version >= (4, 0):
            event |= {"jobTags": [], "jobGroupId": None}
        self.emit(time, 1, event)

    def end_sql(self, sql_id: int, time: int, *, failed: bool) -> None:
        event: dict[str, Any] = {
            "Event": SQL + "SparkListenerSQLExecutionEnd",
            "executionId": sql_id,
            "time": self.at(time),
        }
        if self.version >= (3, 4):
            event["errorMessage"] = "boom" if failed else ""
        self.emit(time, 9, event)

    def submit(
        self,
        stage_id: int,
        attempt: int,
        spec: StageSpec,
        n: int,
        time: int,
        properties: dict[str, str],
        parents: Sequence[int],
    ) -> None:
        self.emit(time, 3, {"Event": "SparkListenerStageSubmitted", "Properties": properties,
                            "Stage Info": self.stage_info(stage_id, attempt, spec, n, time, parents=parents)})  # fmt: skip

    def complete(self, stage_id: int, attempt: int, spec: StageSpec, n: int, start: int, end: int, *, failure: str | None = None,
                 parents: Sequence[int] = ()) -> None:  # fmt: skip
        self.emit(end, 7, {"Event": "SparkListenerStageCompleted",
                           "Stage Info": self.stage_info(stage_id, attempt, spec, n, start, end, failure, parents)})  # fmt: skip

    def run_fetch_failed(self, query: Query, number: int, spec: StageSpec, ids: list[int], ready: int, updates: dict[int, list[int]],
                         properties: dict[str, str]) -> int:  # fmt: skip
        """A reduce stage whose input is gone: its attempt fails, the map stage runs in part again, then it ends."""
        n, stage_id, parents = len(spec.durations), ids[number], [ids[other] for other in spec.after]
        half = n // 2
        self.submit(stage_id, 0, spec, n, ready, properties, parents)
        end = self.run_stage(spec, stage_id, 0, ready, updates, range(half))
        executor, slot, launch = self.find_slot(ready, spec.profile)
        fail_at = launch + 50
        self.run_task(stage_id, 0, half, executor, launch, fail_at, "fetch", updates)
        self.free[executor.name, slot] = fail_at
        end = max(end, fail_at)
        self.complete(stage_id, 0, spec, n, ready, end, failure="FetchFailed", parents=parents)
        query.spans.append((stage_id, ready, end))
        above = spec.after[0]
        before = query.stages[above]
        lost = range(max(1, len(before.durations) // 2))
        again = self.split_updates(query, above, before)
        number_of_attempt = self.n_attempts.get(ids[above], 1)
        self.n_attempts[ids[above]] = number_of_attempt + 1
        self.submit(ids[above], number_of_attempt, before, len(lost), end + 10, properties, [])
        map_end = self.run_stage(before, ids[above], number_of_attempt, end + 10, again, lost)
        self.complete(ids[above], number_of_attempt, before, len(lost), end + 10, map_end)
        query.spans.append((ids[above], end + 10, map_end))
        self.n_attempts[stage_id] = 2
        self.submit(stage_id, 1, spec, n - half, map_end + 10, properties, parents)
        last = self.run_stage(spec, stage_id, 1, map_end + 10, updates, range(half, n))
        self.complete(stage_id, 1, spec, n - half, map_end + 10, last, parents=parents)
        query.spans.append((stage_id, map_end + 10, last))
        return last

    def split_updates(self, query: Query, number: int, spec: StageSpec) -> dict[int, list[int]]:
        """Updates of a stage's accumulators, by id and partition: times by duration, counts evenly."""
        updates: dict[int, list[int]] = {}
        n = len(spec.durations)
        for node in query.plan.walk():
            totals = dict(node.counts)
            if node.rows is not None:
                totals[ROWS[0]] = node.rows
            kinds = dict(node.metrics)
            if node.stage == number:
                for name, share in node.shares.items():
                    scale = 1_000_000 if kinds[name] == "nsTiming" else 1
                    updates[node.ids[name]] = [round(duration * share * scale) for duration in spec.durations]
            for name, total in totals.items():
                at = node.stage + 1 if name in READ_SIDE else node.stage
                if at == number:
                    updates[node.ids[name]] = [total // n + (i < total % n) for i in range(n)]
        return updates

    # --- the whole ------------------------------------------------------------------------------------------------

    def finish(self) -> Truth:
        """Write the events of the application and its executors, and add up the truth."""
        end = self.last + 1000
        self.wall = end
        self.executors = [executor for executor in self.executors if executor.added < end]
        self.emit(-3, 0, {"Event": "SparkListenerLogStart", "Spark Version": self.spark})
        self.emit(-2, 0, {"Event": "SparkListenerEnvironmentUpdate", "JVM Information": {"Java Version": "17.0.9"},
                          "Spark Properties": {"spark.app.name": self.name, **self.properties}, "Hadoop Properties": {},
                          "System Properties": {}, "Classpath Entries": {}})  # fmt: skip
        self.emit(-1, 0, {"Event": "SparkListenerApplicationStart", "App Name": self.name, "App ID": f"application_{self.t0}_0001",
                          "Timestamp": self.t0, "User": "analyst"})  # fmt: skip
        for number, wanted in self.profiles.items():
            if number or wanted:
                self.emit(0, 0, self.profile_event(number, wanted))
        for executor in self.executors:
            resources = (
                {"gpu": {"name": "gpu", "addresses": [str(i) for i in range(executor.gpus)]}} if executor.gpus else {}
            )
            info = {"Host": f"node-{executor.name}", "Total Cores": executor.cores, "Log Urls": {}}
            if self.version >= (3, 1):
                info |= {"Attributes": {}, "Resources": resources, "Resource Profile Id": executor.profile}
            self.emit(executor.added, 0, {"Event": "SparkListenerExecutorAdded", "Timestamp": self.at(executor.added),
                                          "Executor ID": executor.name, "Executor Info": info})  # fmt: skip
            if executor.removed is not None and executor.removed < end:
                self.emit(executor.removed, 6, {"Event": "SparkListenerExecutorRemoved", "Timestamp": self.at(executor.removed),
                                                "Executor ID": executor.name, "Removed Reason": "lost" if executor.lost else "idle"})  # fmt: skip
        if self.layout != "databricks":
            self.emit(end, 10, {"Event": "SparkListenerApplicationEnd", "Timestamp": self.at(end)})
        return self.add_up(end)

    def profile_event(self, number: int, wanted: dict[str, float]) -> dict[str, Any]:
        of_profile = [executor for executor in self.executors if executor.profile == number]
        cores = of_profile[0].cores if of_profile else 1
        amounts: dict[str, float] = {"cores": cores} | ({"gpu": of_profile[0].gpus} if wanted.get("gpu") else {})

        def request(name: str, amount: float) -> dict[str, Any]:
            return {"Resource Name": name, "Amount": amount, "Discovery Script": "", "Vendor": ""}

        tasks = {name: {"Resource Name": name, "Amount": amount} for name, amount in ({"cpus": 1.0} | wanted).items()}
        return {"Event": "SparkListenerResourceProfileAdded", "Resource Profile Id": number,
                "Executor Resource Requests": {name: request(name, amount) for name, amount in amounts.items()},
                "Task Resource Requests": tasks}  # fmt: skip

    def add_up(self, end: int) -> Truth:
        if self.layout == "databricks":
            # Its log has no end: times last until the last query, job, stage or task.
            end = self.last
        running = union([(a.launch, a.finish) for a in self.attempts])
        stage_open = union(
            [*running, *((first, last) for query in self.queries for _, first, last in query.spans), *self.rdd_spans]
        )
        is_open = union([*stage_open, *self.open_spans])
        running_s, stage_s, open_s = (length(spans) for spans in (running, stage_open, is_open))
        task_s = sum(a.finish - a.launch for a in self.attempts) / 1e3
        by_name = {executor.name: executor for executor in self.executors}
        profile_of = {
            stage: spec.profile
            for query in self.queries
            for stage, spec in zip(query.stage_ids, query.stages, strict=True)
        }
        busy = sum(
            (a.finish - a.launch)
            / self.slots_of(by_name[a.executor], profile_of.get(a.stage, by_name[a.executor].profile))
            for a in self.attempts
        )
        life = sum(min(end, end if e.removed is None else e.removed) - max(0, e.added) for e in self.executors)
        ok = sum(a.outcome == "success" for a in self.attempts)
        return Truth(
            end / 1e3, running_s, stage_s - running_s, open_s - stage_s, end / 1e3 - open_s, len(self.attempts), ok,
            len(self.attempts) - ok, task_s, busy / life if life else 0.0, self.engine,
            tuple(self.judge_query(query, running) for query in self.queries), self.rows,
        )  # fmt: skip

    def find_wait(self, query: Query) -> int:
        """Time in ms in which a stage of the query was open, and no task of the application ran."""
        running = union([(a.launch, a.finish) for a in self.attempts])
        stages = union([(first, last) for _, first, last in query.spans])
        return round(1e3 * (length(union([*running, *stages])) - length(running)))

    def judge_query(self, query: Query, running: list[tuple[int, int]]) -> QueryTruth:
        """Time of a query; untouchable is user code, by its share of the tasks' time while they ran."""
        stages = {stage for stage, _, _ in query.spans}
        mine = [a for a in self.attempts if a.stage in stages]
        specs = dict(zip(query.stage_ids, query.stages, strict=True))
        untouchable = 0.0
        for stage, spec in specs.items():
            if spec.opaque:
                spans = union([(a.launch, a.finish) for a in mine if a.stage == stage])
                untouchable += length(spans) * spec.opaque
        return QueryTruth(
            query.sql_id, query.identity, (query.end - query.start) / 1e3, sum(a.finish - a.launch for a in mine) / 1e3,
            untouchable, query.engine, query.fails, query.opaque_told,
        )  # fmt: skip

    def lines(self) -> list[str]:
        """The log's lines in order, with the damage that the traits do to them."""
        events = [event for *_, event in sorted(self.events, key=lambda item: item[:3])]
        if self.has("odd_fields"):
            self.make_odd(events)
        if self.has("number_gaps"):
            # Jobs and stages that failed when they were submitted took numbers and left no event.
            shift_numbers(events, int(self.rng.integers(1, 4)))
        if self.has("clock_back"):
            ends = sorted(attempt.finish for attempt in self.attempts)
            at = ends[len(ends) // 2]
            # Where nothing is written meanwhile, a log with a clock that was set back is one of a shorter wait.
            later = min((time for time, *_ in self.events if time > at), default=at)
            step_back(events, self.at(at), 30_000 + later - at)
        if self.has("lost_tasks"):
            ends = [i for i, event in enumerate(events) if event["Event"] == "SparkListenerTaskEnd"]
            drop = set(self.rng.choice(ends, max(1, len(ends) // 5), replace=False).tolist())
            events = [event for i, event in enumerate(events) if i not in drop]
        if self.has("lost_query_end"):
            last = max(i for i, event in enumerate(events) if event["Event"].endswith("SQLExecutionEnd"))
            del events[last]
        lines = [PLACE_OF_PLAN.sub(lambda place: self.plans[int(place[1])], dump_line(event)) for event in events]
        if self.has("repeated_lines"):
            at = int(self.rng.integers(len(lines) // 3, len(lines) - 2))
            width = int(self.rng.integers(1, 8))
            lines[at + width : at + width] = lines[at : at + width]
        if self.has("cut_tail"):
            keep = int(len(lines) * self.rng.uniform(0.5, 0.9))
            lines = lines[:keep]
            lines[-1] = lines[-1][: len(lines[-1]) // 2]
        return lines

    def make_odd(self, events: list[dict[str, Any]]) -> None:
        """Fields that some writers leave null: nothing that a figure rests on."""
        for event in events:
            kind = event["Event"]
            if kind == "SparkListenerTaskEnd" and self.rng.random() < 0.3:
                event["Task Info"]["Host"] = None
                event["Task Info"]["Locality"] = None
            if kind.endswith("SQLExecutionStart") and self.rng.random() < 0.5:
                event["details"] = None
            if kind == "SparkListenerJobStart" and self.rng.random() < 0.5:
                event["Properties"]["spark.job.description"] = None
            if kind == "SparkListenerStageCompleted" and self.rng.random() < 0.5:
                event["Stage Info"] |= {"Details": None, "Parent IDs": None, "Accumulables": None}

    def write(self, folder: Path) -> Path:
        """Write the log below a folder, in its layout; returns its path."""
        lines = self.lines()
        if self.has("two_applications"):
            other = draw_world(
                int(self.rng.integers(1 << 30)), (), spark=self.spark, layout="plain", t0_ms=self.t0 + 86_400_000
            )
            lines += other.lines()
        mark, encoding = (
            ("\ufeff", "utf-8") if self.has("byte_order_mark") else ("", "utf-16" if self.has("utf16") else "utf-8")
        )
        app = f"application_{self.t0}_0001"
        if self.layout == "plain":
            path = folder / app
            write_lines(path, lines, mark, encoding)
        elif self.layout == "rolled":
            path = folder / f"eventlog_v2_{app}"
            path.mkdir(parents=True, exist_ok=True)
            (path / f"appstatus_{app}").touch()
            for number, part in enumerate(np.array_split(np.arange(len(lines)), 3), 1):
                write_lines(
                    path / f"events_{number}_{app}", [lines[i] for i in part], mark if number == 1 else "", encoding
                )
        else:
            path = folder / "databricks"
            path.mkdir(parents=True, exist_ok=True)
            parts = np.array_split(np.arange(len(lines)), 2)
            for number, part in enumerate(parts):
                head = {
                    "Event": "DBCEventLoggingListenerMetadata",
                    "Rollover Number": number,
                    "SparkContext Id": 77,
                    "Spark Version": self.spark,
                }
                name = "eventlog" if number == len(parts) - 1 else f"eventlog-2026-11-2{number}--10-00"
                write_lines(
                    path / name, [dump_line(head), *(lines[i] for i in part)], mark if number == 0 else "", encoding
                )
        return path


PLACE_OF_PLAN = re.compile(r'"@plan (\d+)@"')
READ_SIDE = ("records read",)
EXCHANGE = [
    ("shuffle records written", "sum"),
    ("shuffle write time", "nsTiming"),
    ("shuffle bytes written", "size"),
    ("records read", "sum"),
]


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


# --- queries ----------------------------------------------------------------------------------------------------------


def build_scan(table: str, rows: int, column: str = "c", share: float = 0.2, stage: int = 0) -> Node:
    """A scan of a table, with the conversion to rows above it."""
    scan = Node(
        "Scan parquet ",
        SCAN.format(table=table, column=column),
        [],
        [ROWS, ("scan time", "timing")],
        stage,
        rows,
        {"scan time": share},
    )
    below = Node("InputAdapter", "InputAdapter", [scan])
    return Node("ColumnarToRow", "ColumnarToRow", [below], [ROWS], stage, rows)


def build_aggregate(table: str, rows: int, *, column: str = "c", condition: str = "isnotnull(k#1L)", middle: Sequence[Node] = (),
                    source: Node | None = None, opaque: float = 0.0) -> Node:  # fmt: skip
    """Scan, filter, [operators], partial aggregate, exchange, final aggregate: two stages."""
    scan = source or build_scan(table, rows, column, 0.2 * (1 - opaque))
    top = Node("Filter", f"Filter {condition}", [scan], [ROWS], 0, rows // 2)
    for node in middle:
        node.children = [top]
        top = node
    part = Node("HashAggregate", f"HashAggregate(keys=[k#1L], functions=[partial_sum({column}#3)])", [top],
                [ROWS, ("time in aggregation build", "timing")], 0, rows // 10, {"time in aggregation build": opaque + 0.7 * (1 - opaque)})  # fmt: skip
    span = Node(
        "WholeStageCodegen (1)",
        "WholeStageCodegen (1)",
        [part],
        [("duration", "timing")],
        0,
        None,
        {"duration": opaque + 0.9 * (1 - opaque)},
    )
    exchange = Node("Exchange", "Exchange hashpartitioning(k#1L, 200), ENSURE_REQUIREMENTS", [span], EXCHANGE, 0, None,
                    {"shuffle write time": 0.04 * (1 - opaque)}, {"shuffle records written": rows // 10, "records read": rows // 10, "shuffle bytes written": rows})  # fmt: skip
    final = Node("HashAggregate", f"HashAggregate(keys=[k#1L], functions=[sum({column}#3)])", [Node("InputAdapter", "InputAdapter", [exchange])],
                 [ROWS, ("time in aggregation build", "timing")], 1, rows // 20, {"time in aggregation build": 0.7})  # fmt: skip
    return Node(
        "WholeStageCodegen (2)", "WholeStageCodegen (2)", [final], [("duration", "timing")], 1, None, {"duration": 0.9}
    )


def build_join(left: str, right: str, rows: int, suffix: str = "") -> Node:
    """Two scans, exchanges and sorts, and a sort merge join: three stages."""
    sides = []
    for number, table in enumerate((left, right)):
        exchange = Node("Exchange", "Exchange hashpartitioning(k#1L, 200)", [build_scan(table, rows, share=0.6, stage=number)], EXCHANGE, number, None,
                        {"shuffle write time": 0.3}, {"shuffle records written": rows})  # fmt: skip
        sides.append(
            Node(
                "Sort",
                "Sort [k#1L ASC NULLS FIRST], false, 0",
                [exchange],
                [("sort time", "timing")],
                2,
                None,
                {"sort time": 0.1},
            )
        )
    join = Node("SortMergeJoin" + suffix, f"SortMergeJoin{suffix} [k#1L], [k#11L], Inner", sides, [ROWS], 2, rows * 2)
    return Node(
        "WholeStageCodegen (5)", "WholeStageCodegen (5)", [join], [("duration", "timing")], 2, None, {"duration": 0.9}
    )


def rename_engine(plan: Node, engine: str) -> None:
    """Let an accelerator run filters, aggregates and joins, under its names."""
    pattern, others = ENGINE_NAMES[engine]
    for node in plan.walk():
        name = node.name.partition("(")[0]
        if name in ("Filter", "HashAggregate", "SortMergeJoin"):
            node.name = others.get(name, pattern.format(name))


def draw_durations(rng: np.random.Generator, n: int, mean_ms: float) -> list[int]:
    """Durations of tasks: alike, with some spread."""
    return [max(20, round(mean_ms * float(np.exp(rng.normal(0, 0.15))))) for _ in range(n)]


def draw_query(world: World, number: int, n_slots: int) -> Query:
    """A query of its own tables, with those traits that are of queries."""
    rng = world.rng
    rows = int(rng.integers(100_000, 5_000_000))
    mean = float(rng.uniform(1500, 9000))
    n = max(3, n_slots * int(rng.integers(1, 3)))
    table = f"t{number}"
    identity = f"q{number}"
    specs = [StageSpec(draw_durations(rng, n, mean)), StageSpec(draw_durations(rng, max(3, n_slots), mean / 2), (0,))]
    plan = build_aggregate(table, rows)
    told = True
    if world.has("skew_join") and rng.random() < 0.5:
        suffix = "(skew=true)" if rng.random() < 0.7 else ""
        plan = build_join(f"l{number}", f"r{number}", rows, suffix)
        specs = [StageSpec(draw_durations(rng, max(3, n_slots), mean / 3)), StageSpec(draw_durations(rng, max(3, n_slots), mean / 3), (0,)),
                 StageSpec(draw_durations(rng, n, mean), (0, 1))]  # fmt: skip
    elif world.has("python_metric") and rng.random() < 0.7:
        share = float(rng.uniform(0.6, 0.93))
        name, text = PYTHONS[int(rng.integers(len(PYTHONS)))]
        node = Node(name, text, [], [ROWS, *PYTHON_METRICS], 0, rows // 2, {PYTHON_METRICS[0][0]: share})
        plan = build_aggregate(table, rows, middle=[node], opaque=share)
        specs = [
            StageSpec(draw_durations(rng, n, mean), opaque=share),
            StageSpec(draw_durations(rng, max(3, n_slots), mean / 20), (0,)),
        ]
    elif (world.has("python_blind") or world.has("scala_udf")) and rng.random() < 0.7:
        share, told = float(rng.uniform(0.4, 0.93)), False
        is_python = world.has("python_blind") and not (world.has("scala_udf") and rng.random() < 0.5)
        name, text = PYTHONS[int(rng.integers(len(PYTHONS)))] if is_python else SCALA
        node = Node(name, text, [], [ROWS] if is_python else [], 0, rows // 2 if is_python else None)
        plan = build_aggregate(table, rows, middle=[node], opaque=share)
        specs = [
            StageSpec(draw_durations(rng, n, mean), opaque=share),
            StageSpec(draw_durations(rng, max(3, n_slots), mean / 20), (0,)),
        ]
    elif world.has("sources"):
        source = SOURCES[int(rng.integers(len(SOURCES)))]
        scan = Node(source[0].format(table=table), source[1].format(table=table), [], [ROWS], 0, rows)
        plan = build_aggregate(table, rows, source=scan)
    query = Query(identity, f"step {number}", plan, specs, opaque_told=told)
    if world.has("driver_time"):
        query.before = int(rng.integers(2000, 60_000))
    if world.has("commit"):
        query.after = int(rng.integers(2000, 60_000))
        query.plan = Node("Execute InsertIntoHadoopFsRelationCommand", "Execute InsertIntoHadoopFsRelationCommand hdfs:/out", [plan],
                          [("number of written files", "sum"), ("task commit time", "timing")], specs and len(specs) - 1 or 0)  # fmt: skip
    if world.has("client_fetch") and rng.random() < 0.5:
        query.after = int(rng.integers(20_000, 300_000))
    if world.has("ctas") and rng.random() < 0.5:
        query.wraps = True
    if world.has("failed_query") and number == 1:
        query.fails = True
    return query


ENGINE_NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "rapids": ("Gpu{}", {"SortMergeJoin": "GpuShuffledHashJoin"}),
    "comet": ("Comet{}", {}),
    "photon": ("Photon{}", {"HashAggregate": "PhotonGroupingAgg"}),
    "gluten": ("{}ExecTransformer", {"HashAggregate": "RegularHashAggregateExecTransformer"}),
    "auron": ("Native{}", {}),
}
SCALA = ("Project", "Project [k#1L, UDF(v#2) AS score#9, c#3]")
PYTHONS = (
    ("ArrowEvalPython", "ArrowEvalPython [score(v#2)#9], [pythonUDF0#10], 200"),
    ("BatchEvalPython", "BatchEvalPython [score(v#2)#9], [pythonUDF0#10]"),
    ("MapInPandas", "MapInPandas score(k#1L, v#2), [k#11L]"),
    ("MapInArrow", "MapInArrow score(k#1L, v#2), [k#11L]"),
    ("FlatMapGroupsInPandas", "FlatMapGroupsInPandas [k#1L], score(k#1L, v#2), [k#11L]"),
)
SOURCES = (
    ("BatchScan lake.sales.{table}", "BatchScan lake.sales.{table}[k#1L, v#2] lake.sales.{table} (branch=null) [filters=k IS NOT NULL, groupedBy=] RuntimeFilters: []"),
    ("Scan JDBCRelation((select * from {table}) x) [numPartitions=8] ", "Scan JDBCRelation((select * from {table}) x) [numPartitions=8] [k#1L,v#2] PushedFilters: [], ReadSchema: struct<k:bigint,v:double>"),
    ("Scan ExistingRDD", "Scan ExistingRDD[k#1L,v#2,{table}#3]"),
    ("Scan hive db.{table}", "Scan hive db.{table} [k#1L, v#2], HiveTableRelation [`db`.`{table}`, org.apache.hadoop.hive.ql.io.orc.OrcSerde]"),
    ("Scan csv ", "FileScan csv [k#1L,v#2] Batched: false, Format: CSV, Location: InMemoryFileIndex(1 paths)[hdfs:/lake/{table}], ReadSchema: struct<k:bigint,v:double>"),
)  # fmt: skip


def describe(world: World, number: int) -> str:
    """Description of a query, as its front end writes it."""
    if world.has("unnamed"):
        return UNNAMED
    if world.has("same_name"):
        return f"load {number % 2}"
    if world.has("connect"):
        return (
            f'Spark Connect - session_id: "{world.session_id}" user_context {{ user_id: "ann" }} plan {{ root {{ common {{'
            f" plan_id: {number + 7} }} ag..."
        )
    return f"step {number}"


def draw_executors(world: World) -> int:
    """Draw executors and resources; returns the slots that most stages have."""
    rng = world.rng
    cores = int(rng.choice([2, 4, 8]))
    n = int(rng.integers(1, 4))
    world.properties |= {"spark.executor.cores": str(cores)}
    gpus = 0
    if world.has("task_cpus") and cores > 1:
        world.properties["spark.task.cpus"] = "2"
        world.profiles[0] = {"cpus": 2}
    if world.has("gpu_slots"):
        gpus = 1
        amount = float(rng.choice([0.25, 0.5, 1.0]))
        world.properties |= {"spark.executor.resource.gpu.amount": "1", "spark.task.resource.gpu.amount": str(amount)}
        world.profiles[0] = world.profiles[0] | {"gpu": amount}
    waits = int(rng.integers(30_000, 600_000)) if world.has("queue_wait") else 0
    if waits:
        world.properties["spark.dynamicAllocation.enabled"] = "true"
    for number in range(n):
        world.executors.append(Executor(str(number + 1), cores, waits + int(rng.integers(0, 500)), gpus=gpus))
    if world.has("dynamic_allocation"):
        world.properties["spark.dynamicAllocation.enabled"] = "true"
        for number in range(int(rng.integers(1, 4))):
            added = waits + int(rng.integers(2000, 30_000))
            world.executors.append(
                Executor(str(n + 1 + number), cores, added, added + int(rng.integers(15_000, 60_000)), gpus=gpus)
            )
    if world.has("executor_replaced") or world.has("resubmitted"):
        victim = world.executors[0]
        victim.removed, victim.lost = waits + int(rng.integers(4000, 20_000)), True
        world.executors.append(Executor("90", cores, victim.removed + int(rng.integers(1000, 20_000)), gpus=gpus))
    if world.has("stage_profile"):
        world.profiles[1] = {"cpus": 1}
        world.executors += [Executor(f"{50 + number}", 4, waits + 100, profile=1) for number in range(2)]
    return sum(world.slots_of(executor, 0) for executor in world.executors if executor.profile == 0)


def draw_world(
    seed: int, traits: Sequence[str], *, spark: str | None = None, layout: str | None = None, t0_ms: int = T0_MS
) -> World:
    """Draw an application with these traits, and run it."""
    rng = np.random.default_rng(seed)
    traits = [trait for trait in traits if trait not in ("same_name", "connect") or "unnamed" not in traits]
    wanted = SPARKS[int(rng.integers(len(SPARKS)))] if spark is None else spark
    if any(trait in NEEDS_SPARK and tuple(map(int, wanted.split(".")[:2])) < NEEDS_SPARK[trait] for trait in traits):
        wanted = "4.1.1"
    world = World(rng, traits, wanted, layout or LAYOUTS[int(rng.choice(3, p=[0.6, 0.2, 0.2]))], t0_ms)
    world.session_id = f"{rng.integers(1 << 32):08x}-1111"
    n_slots = min(draw_executors(world), 24)
    set_engine(world)
    queries = [draw_query(world, number, n_slots) for number in range(int(rng.integers(2, 6)))]
    if world.has("same_name") and len(queries) > 1 and rng.random() < 0.5:
        queries.append(repeat_query(world, queries[0], len(queries), n_slots))
    if world.has("cache"):
        add_cached_queries(world, queries, n_slots)
    if world.has("subquery"):
        queries.append(draw_subquery(world, len(queries), n_slots))
    if world.has("stage_profile"):
        for query in queries[::2]:
            query.stages[-1].profile = 1
    if world.has("deep_plan") and not any(query.identity == queries[0].identity for query in queries[1:]):
        for _ in range(int(rng.integers(300, 3000))):
            queries[0].plan = Node("Project", "Project [k#1L]", [queries[0].plan])
            queries[0].plan.stage = len(queries[0].stages) - 1
    run_queries(world, queries)
    world.truth = world.finish()
    return world


NEEDS_SPARK = {"python_metric": (4, 1), "stage_profile": (3, 1), "gpu_slots": (3, 1), "connect": (3, 4), "ctas": (3, 4)}


def repeat_query(world: World, query: Query, number: int, n_slots: int) -> Query:
    """The same query once more."""
    again = draw_query(world, number, n_slots)
    again.plan = build_aggregate("t0", 700_000) if not isinstance(query.plan, Node) else copy_plan(query.plan)
    again.stages = [StageSpec(list(spec.durations), spec.after, spec.profile, spec.opaque) for spec in query.stages]
    again.identity, again.opaque_told, again.wraps = query.identity, query.opaque_told, query.wraps
    again.fails = False
    return again


def copy_plan(node: Node) -> Node:
    """A plan of its own, without numbers of metrics."""
    return Node(node.name, node.text, [copy_plan(child) for child in node.children], list(node.metrics), node.stage, node.rows,
                dict(node.shares), dict(node.counts))  # fmt: skip


def add_cached_queries(world: World, queries: list[Query], n_slots: int) -> None:
    """Two queries over a cached table: the first makes it, the second reads it; both show the plan below the cache."""
    rng = world.rng
    below = Node(
        "Filter", "Filter isnotnull(k#1L)", [build_scan("cached_source", 900_000, share=0.1)], [ROWS], 0, 800_000
    )
    for part in range(2):
        number = len(queries)
        lower = below if part == 0 else freeze_plan(below)
        relation = Node(
            "InMemoryRelation",
            "InMemoryRelation [k#1L, v#2], StorageLevel(disk, memory, deserialized, 1 replicas)",
            [lower],
        )
        source = Node(
            "InMemoryTableScan",
            "InMemoryTableScan [k#1L, v#2]",
            [relation],
            [ROWS, ("scan time", "timing")],
            0,
            800_000,
            {"scan time": 0.2},
        )
        plan = build_aggregate("x", 800_000, source=source, condition=f"(v#2 > {part})")
        specs = [StageSpec(draw_durations(rng, max(3, n_slots), 4000)), StageSpec(draw_durations(rng, 3, 800), (0,))]
        queries.append(Query(f"q{number}", f"step {number}", plan, specs))


class _Frozen(Node):
    """Nodes below a cache that another query made: same metrics, no update of theirs."""


def freeze_plan(node: Node) -> Node:
    frozen = _Frozen(node.name, node.text, [freeze_plan(child) for child in node.children], node.metrics, -9)
    frozen.ids = node.ids
    return frozen


def draw_subquery(world: World, number: int, n_slots: int) -> Query:
    """A scalar subquery with stages of its own, inside a filter."""
    rng = world.rng
    scan = build_scan("dim", 500_000, share=0.1, stage=0)
    part = Node("HashAggregate", "HashAggregate(keys=[], functions=[partial_max(v#2)])", [scan], [ROWS, ("time in aggregation build", "timing")], 0, 8,
                {"time in aggregation build": 0.7})  # fmt: skip
    exchange = Node(
        "Exchange", "Exchange SinglePartition", [part], EXCHANGE, 0, None, {}, {"shuffle records written": 8}
    )
    final = Node("HashAggregate", "HashAggregate(keys=[], functions=[max(v#2)])", [exchange], [ROWS, ("time in aggregation build", "timing")], 1, 1,
                 {"time in aggregation build": 0.5})  # fmt: skip
    subquery = Node("Subquery", f"Subquery subquery#{number}, [id=#99]", [final])
    main = build_scan(f"facts{number}", 3_000_000, share=0.2, stage=2)
    top = Node("Filter", f"Filter (v#2 > Subquery subquery#{number}, [id=#99])", [main, subquery], [ROWS], 2, 1_000_000)
    out = Node(
        "Exchange",
        "Exchange hashpartitioning(k#1L, 8)",
        [top],
        EXCHANGE,
        2,
        None,
        {"shuffle write time": 0.1},
        {"shuffle records written": 1_000_000},
    )
    last = Node("HashAggregate", "HashAggregate(keys=[k#1L], functions=[sum(v#2)])", [out], [ROWS, ("time in aggregation build", "timing")], 3, 1000,
                {"time in aggregation build": 0.8})  # fmt: skip
    specs = [StageSpec(draw_durations(rng, 4, 2000)), StageSpec([300], (0,)), StageSpec(draw_durations(rng, max(4, n_slots), 5000), (1,)),
             StageSpec(draw_durations(rng, 4, 1500), (2,))]  # fmt: skip
    return Query(f"q{number}", f"step {number}", last, specs)


def set_engine(world: World) -> None:
    """Settings of an accelerator that is loaded, and whether it runs anything."""
    rng = world.rng
    if world.has("plugin_idle"):
        choice = [
            {"spark.plugins": PLUGINS["rapids"], "spark.rapids.sql.enabled": "true", "spark.rapids.sql.mode": "explainOnly"},
            {"spark.plugins": PLUGINS["rapids"], "spark.rapids.sql.enabled": "False"},
            {"spark.plugins": PLUGINS["rapids"], "spark.rapids.sql.mode": "executeOnGPU"},
            {"spark.plugins": PLUGINS["comet"], "spark.comet.enabled": "FALSE"},
            {"spark.plugins": PLUGINS["gluten"], "spark.gluten.enabled": "false "},
        ]  # fmt: skip
        world.properties |= choice[int(rng.integers(len(choice)))]
    if world.has("other_baseline"):
        world.engine = str(rng.choice(["photon", "gluten", "auron"]))
    elif world.has("mixed_engine"):
        world.engine = "mixed"


def run_queries(world: World, queries: list[Query]) -> None:
    """Run queries one after the other, or several at a time."""
    rng = world.rng
    # A plugin that is loaded and left idle is Spark; of a mixed application one small query is the accelerator's.
    fast = len(queries) - 1 if world.has("mixed_engine") else None
    for number, query in enumerate(queries):
        query.description = describe(world, number if not query.identity.startswith("q") else int(query.identity[1:]))
        if world.engine in ("photon", "gluten", "auron"):
            rename_engine(query.plan, world.engine)
            query.engine = world.engine
        elif number == fast:
            query.engine = str(rng.choice(["rapids", "comet"]))
            rename_engine(query.plan, query.engine)
    now = 500
    for query in queries:
        start = now
        if world.has("rdd_jobs") and rng.random() < 0.5:
            now = start = run_rdd_job(world, start) + 50
        world.run_query(query, start)
        if not (world.has("concurrent") and rng.random() < 0.6):
            now = query.end + (int(rng.integers(2000, 60_000)) if world.has("gaps_between") else 200)
        else:
            now = start + int(rng.integers(100, 3000))


def run_rdd_job(world: World, start: int) -> int:
    """A job outside SQL."""
    stage, job = next(world.stage_ids), next(world.job_ids)
    spec = StageSpec(draw_durations(world.rng, 4, 1500))
    world.emit(start, 2, {"Event": "SparkListenerJobStart", "Job ID": job, "Submission Time": world.at(start),
                          "Stage Infos": [world.stage_info(stage, 0, spec, 4)], "Stage IDs": [stage], "Properties": {}})  # fmt: skip
    world.submit(stage, 0, spec, 4, start + 5, {}, [])
    end = world.run_stage(spec, stage, 0, start + 5, {})
    world.complete(stage, 0, spec, 4, start + 5, end)
    world.emit(
        end + 5,
        8,
        {
            "Event": "SparkListenerJobEnd",
            "Job ID": job,
            "Completion Time": world.at(end + 5),
            "Job Result": {"Result": "JobSucceeded"},
        },
    )
    world.open_spans.append((start, end + 5))
    world.last = max(world.last, end + 5)
    world.rdd_spans.append((start + 5, end))
    return end + 5


# --- pairs ------------------------------------------------------------------------------------------------------------

PAIR_TRAITS = (
    "order", "unnamed", "same_name", "renamed", "connect", "fails_on_a_side", "other_data", "warm_runs", "queue_wait",
    "driver_time", "commit", "one_session", "same_tables", "missing_on_a_side", "python_blind",
)  # fmt: skip


@dataclass(frozen=True)
class PairWorld:
    """Sessions of two sides, and the queries that both ran: each with its ratio of wall times by identity."""

    sides: dict[str, list[World]]
    ratios: dict[str, float]
    unpaired: frozenset[str]


def draw_pair(seed: int, traits: Sequence[str]) -> PairWorld:
    """The same queries on Spark and on Comet, which takes one ratio of the time in tasks for each of them."""
    rng = np.random.default_rng([seed, 2])
    has = frozenset(traits)
    numbers = list(range(int(rng.integers(3, 8))))
    speed = {number: float(rng.uniform(1.2, 3.0)) for number in numbers}
    fails = numbers[1] if "fails_on_a_side" in has else None
    other = numbers[2] if "other_data" in has else None
    missing = numbers[0] if "missing_on_a_side" in has and len(numbers) > 3 else None
    sides: dict[str, list[World]] = {"spark": [], "comet": []}
    for side, sessions in sides.items():
        order = list(rng.permutation(numbers)) if "order" in has and side == "comet" else numbers
        for session in range(1 if "one_session" in has else 3):
            on_both = [trait for trait in ("unnamed", "same_name", "connect", "driver_time", "commit") if trait in has]
            own = ["queue_wait"] if "queue_wait" in has and side == "spark" and session == 0 else []
            world = World(np.random.default_rng([seed, 3, session, side == "comet"]), [*on_both, *own], "3.5.9", "plain",
                          T0_MS + 1_000_000 * session + (9_000_000 if side == "comet" else 0))  # fmt: skip
            world.session_id = f"{rng.integers(1 << 32):08x}-{session}"
            waits = 120_000 if own else 0
            world.properties["spark.executor.cores"] = "8"
            world.executors = [Executor("1", 8, waits)]
            if side == "comet":
                world.properties["spark.plugins"] = PLUGINS["comet"]
            now = 500
            for run in range(3 if "warm_runs" in has else 1):
                for number in order:
                    if number == missing and side == "comet":
                        continue
                    query = draw_paired_query(seed, int(number), world, side, speed[int(number)], has,
                                              is_other=number == other and side == "comet")  # fmt: skip
                    query.fails = number == fails and side == "comet"
                    if "renamed" in has and side == "comet" and number == numbers[-1]:
                        query.description = "another name"
                    if run == 0 and "warm_runs" in has:
                        query.stages = [
                            StageSpec([2 * one for one in spec.durations], spec.after) for spec in query.stages
                        ]
                    world.run_query(query, now)
                    now = query.end + 200
            world.truth = world.finish()
            sessions.append(world)
    unpaired = frozenset(f"q{number}" for number in (fails, other, missing) if number is not None)
    ratios = {}
    for number in numbers:
        if f"q{number}" not in unpaired:
            means = {
                side: np.mean([time_of(world, f"q{number}", warm="warm_runs" in has) for world in worlds])
                for side, worlds in sides.items()
            }
            ratios[f"q{number}"] = float(means["spark"] / means["comet"])
    return PairWorld(sides, ratios, unpaired)


def time_of(world: World, identity: str, *, warm: bool) -> float:
    """Median time of a query's later runs in a session, or its first run, without waits for executors."""
    walls = [query.end - query.start - world.find_wait(query) for query in world.queries if query.identity == identity]
    return float(np.median(walls[1:] if warm else walls[:1]))


def draw_paired_query(
    seed: int, number: int, world: World, side: str, speed: float, has: frozenset[str], *, is_other: bool
) -> Query:
    """A query that is the same on both sides but for its engine, its noise and its speed."""
    rng = np.random.default_rng([seed, 4, number])
    rows = int(rng.integers(500_000, 5_000_000))
    mean = float(rng.uniform(3000, 12_000))
    base = [draw_durations(rng, n, mean) for n in (16, 8)]
    table = "shared" if "same_tables" in has else f"t{number}"
    condition = f"(v#2 > {number})" if "same_tables" in has else "isnotnull(k#1L)"
    noise = float(np.exp(world.rng.normal(0, 0.01)))
    scale = noise / (speed if side == "comet" else 1)
    plan = build_aggregate(table, rows // (7 if is_other else 1), condition=condition)
    if side == "comet":
        rename_engine(plan, "comet")
    stages = [
        StageSpec([max(20, round(one * scale)) for one in durations], after)
        for durations, after in zip(base, ((), (0,)), strict=True)
    ]
    query = Query(f"q{number}", describe(world, number), plan, stages, engine=side)
    if "driver_time" in has:
        query.before = int(rng.integers(1000, 9000))
    if "commit" in has:
        query.after = int(rng.integers(1000, 9000))
    return query
