"""A SIMULATED cluster that runs queries on slots, and notes the events that Spark would write."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tests.worlds.spark_truth import (
    Attempt,
    Executor,
    Node,
    Query,
    QueryTruth,
    StageSpec,
    Truth,
    dump_line,
    length,
    shift_numbers,
    step_back,
    union,
    write_lines,
)

SQL = "org.apache.spark.sql.execution.ui."
T0_MS = 1_790_000_000_000
PROPERTIES = {"spark.master": "yarn", "spark.executor.memory": "8g"}
ROWS = ("number of output rows", "sum")
PLACE_OF_PLAN = re.compile(r'"@plan (\d+)@"')
READ_SIDE = ("records read",)


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
        self.row_ids: set[int] = set()
        self.names: dict[int, str] = {}
        self.other: World | None = None
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

    def run_stage(
        self,
        spec: StageSpec,
        stage_id: int,
        attempt: int,
        ready: int,
        updates: dict[int, list[int]],
        partitions: Sequence[int] | None = None,
        fetch_failed_at: int | None = None,
    ) -> int:
        """Run the tasks of a stage attempt on the slots that are free; returns the time of its end."""
        todo = [
            (ready, partition, False)
            for partition in (partitions if partitions is not None else range(len(spec.durations)))
        ]
        heapq.heapify(todo)
        ends = [ready]
        ok_on: dict[str, list[Attempt]] = {}
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

    def run_speculated(
        self,
        spec: StageSpec,
        stage_id: int,
        attempt: int,
        partition: int,
        executor: Executor,
        slot: int,
        launch: int,
        duration: int,
        updates: dict[int, list[int]],
        ends: list[int],
    ) -> None:
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
            assert other_than is not None, "no executor of this profile is alive"
            return named[other_than[0]], other_than[1], max(ready, self.free.get(other_than, 0))
        return named[best[1]], best[2], best[0]

    def run_task(
        self,
        stage_id: int,
        attempt: int,
        partition: int,
        executor: Executor,
        launch: int,
        finish: int,
        outcome: str,
        updates: dict[int, list[int]],
        *,
        speculative: bool = False,
        reason: dict[str, Any] | None = None,
    ) -> Attempt:
        done = Attempt(
            stage_id, attempt, next(self.task_ids), partition, executor.name, launch, finish, outcome, speculative
        )
        self.attempts.append(done)
        self.emit(
            launch,
            4,
            {
                "Event": "SparkListenerTaskStart",
                "Stage ID": stage_id,
                "Stage Attempt ID": attempt,
                "Task Info": self.task_info(done, ended=False),
            },
        )
        self.emit(finish, 5, self.task_end(done, updates, reason))
        if outcome == "success":
            self.rows += sum(values[partition] for key, values in updates.items() if key in self.row_ids)
        return done

    def end_again(self, done: Attempt, when: int, updates: dict[int, list[int]]) -> None:
        """Spark's second end of a task whose output is lost: before version 4 with all that its first one had."""
        event = self.task_end(done, updates, {"Reason": "Resubmitted"})
        event.pop("Task Metrics", None)
        if self.version >= (4, 0):
            event["Task Info"]["Accumulables"] = []
        self.emit(max(when, done.finish + 1), 6, event)

    def task_info(self, done: Attempt, *, ended: bool) -> dict[str, Any]:
        info: dict[str, Any] = {
            "Task ID": done.task_id,
            "Index": done.partition,
            "Attempt": 0,
            "Partition ID": done.partition,
            "Launch Time": self.at(done.launch),
            "Executor ID": done.executor,
            "Host": f"node-{done.executor}",
            "Locality": "PROCESS_LOCAL",
            "Speculative": done.speculative,
            "Getting Result Time": 0,
            "Finish Time": self.at(done.finish) if ended else 0,
            "Failed": ended and done.outcome in ("failed", "lost"),
            "Killed": ended and done.outcome == "killed",
            "Accumulables": [],
        }
        if self.version < (3, 2):
            del info["Partition ID"]
        return info

    def task_end(
        self, done: Attempt, updates: dict[int, list[int]], reason: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        reasons = {
            "success": {"Reason": "Success"},
            "failed": {
                "Reason": "ExceptionFailure",
                "Class Name": "java.io.IOException",
                "Description": "disk",
                "Stack Trace": [],
            },
            "killed": {"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded", "Accumulator Updates": []},
            "lost": {
                "Reason": "ExecutorLostFailure",
                "Executor ID": done.executor,
                "Exit Caused By App": False,
                "Loss Reason": "lost",
            },
            "fetch": {
                "Reason": "FetchFailed",
                "Shuffle ID": 0,
                "Map ID": 0,
                "Map Index": 0,
                "Reduce ID": done.partition,
                "Message": "gone",
            },
        }
        info = self.task_info(done, ended=True)
        if done.outcome == "fetch":
            info["Failed"] = True
        if done.outcome == "success":
            info["Accumulables"] = [
                {
                    "ID": key,
                    "Name": self.names[key],
                    "Update": str(values[done.partition]),
                    "Value": "0",
                    "Internal": True,
                    "Count Failed Values": True,
                    "Metadata": "sql",
                }
                for key, values in updates.items()
                if values[done.partition]
            ]
        event = {
            "Event": "SparkListenerTaskEnd",
            "Stage ID": done.stage,
            "Stage Attempt ID": done.stage_attempt,
            "Task Type": "ShuffleMapTask",
            "Task End Reason": reason or reasons[done.outcome],
            "Task Info": info,
        }
        if self.version >= (3, 0):
            event["Task Executor Metrics"] = {}
        if done.outcome in ("success", "failed"):
            run = done.finish - done.launch
            event["Task Metrics"] = {
                "Executor Deserialize Time": 0,
                "Executor Deserialize CPU Time": 0,
                "Executor Run Time": run,
                "Executor CPU Time": run * 900_000,
                "Peak Execution Memory": 0,
                "Result Size": 1000,
                "JVM GC Time": 0,
                "Result Serialization Time": 0,
                "Memory Bytes Spilled": 0,
                "Disk Bytes Spilled": 0,
                "Shuffle Read Metrics": {
                    "Remote Blocks Fetched": 0,
                    "Local Blocks Fetched": 0,
                    "Fetch Wait Time": 0,
                    "Remote Bytes Read": 0,
                    "Remote Bytes Read To Disk": 0,
                    "Local Bytes Read": 0,
                    "Total Records Read": 0,
                },
                "Shuffle Write Metrics": {
                    "Shuffle Bytes Written": 0,
                    "Shuffle Write Time": 0,
                    "Shuffle Records Written": 0,
                },
                "Input Metrics": {"Bytes Read": 0, "Records Read": 0},
                "Output Metrics": {"Bytes Written": 0, "Records Written": 0},
                "Updated Blocks": [],
            }
        return event

    def stage_info(
        self,
        stage_id: int,
        attempt: int,
        spec: StageSpec,
        n: int,
        submitted: int | None = None,
        completed: int | None = None,
        failure: str | None = None,
        parents: Sequence[int] = (),
    ) -> dict[str, Any]:
        info: dict[str, Any] = {
            "Stage ID": stage_id,
            "Stage Attempt ID": attempt,
            "Stage Name": "save at job.py:1",
            "Number of Tasks": n,
            "RDD Info": [{"RDD ID": stage_id, "Name": "MapPartitionsRDD", "Scope": '{"id":"1","name":"Scan parquet"}'}],
            "Parent IDs": list(parents),
            "Details": "",
            "Accumulables": [],
        }
        if self.version >= (3, 1):
            info["Resource Profile Id"] = spec.profile
        if submitted is not None:
            info["Submission Time"] = self.at(submitted)
        if completed is not None:
            info["Completion Time"] = self.at(completed)
            info["Accumulables"] = [{"ID": 1, "Name": "internal.metrics.resultSize", "Value": 1000 * n}]
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
        properties = {"spark.sql.execution.id": str(query.sql_id), "spark.job.description": query.description}
        if ids:
            self.emit(
                begin,
                2,
                {
                    "Event": "SparkListenerJobStart",
                    "Job ID": job,
                    "Submission Time": self.at(begin),
                    "Stage Infos": [
                        self.stage_info(s, 0, spec, len(spec.durations))
                        for s, spec in zip(ids, query.stages, strict=True)
                    ],
                    "Stage IDs": ids,
                    "Properties": properties,
                },
            )
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
                self.complete(
                    ids[number],
                    0,
                    spec,
                    len(spec.durations),
                    ready,
                    end,
                    parents=parents,
                    failure="Job cancelled" if query.fails and number == len(query.stages) - 1 else None,
                )
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
        event |= {
            "description": description,
            "details": "",
            "physicalPlanDescription": "",
            "sparkPlanInfo": self.keep_plan(plan),
            "time": self.at(time),
        }
        if self.version >= (3, 3):
            event["modifiedConfigs"] = {}
        if self.version >= (3, 5):
            event["jobTags"] = []
        if self.version >= (4, 0):
            event["jobGroupId"] = None
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
        self.emit(
            time,
            3,
            {
                "Event": "SparkListenerStageSubmitted",
                "Properties": properties,
                "Stage Info": self.stage_info(stage_id, attempt, spec, n, time, parents=parents),
            },
        )

    def complete(
        self,
        stage_id: int,
        attempt: int,
        spec: StageSpec,
        n: int,
        start: int,
        end: int,
        *,
        failure: str | None = None,
        parents: Sequence[int] = (),
    ) -> None:
        self.emit(
            end,
            7,
            {
                "Event": "SparkListenerStageCompleted",
                "Stage Info": self.stage_info(stage_id, attempt, spec, n, start, end, failure, parents),
            },
        )

    def run_fetch_failed(
        self,
        query: Query,
        number: int,
        spec: StageSpec,
        ids: list[int],
        ready: int,
        updates: dict[int, list[int]],
        properties: dict[str, str],
    ) -> int:
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
        self.emit(
            -2,
            0,
            {
                "Event": "SparkListenerEnvironmentUpdate",
                "JVM Information": {"Java Version": "17.0.9"},
                "Spark Properties": {"spark.app.name": self.name, **self.properties},
                "Hadoop Properties": {},
                "System Properties": {},
                "Classpath Entries": {},
            },
        )
        self.emit(
            -1,
            0,
            {
                "Event": "SparkListenerApplicationStart",
                "App Name": self.name,
                "App ID": f"application_{self.t0}_0001",
                "Timestamp": self.t0,
                "User": "analyst",
            },
        )
        # Spark before 3.1 tells resources in its settings only.
        for number, wanted in self.profiles.items() if self.version >= (3, 1) else ():
            self.emit(0, 0, self.profile_event(number, wanted))
        for executor in self.executors:
            resources = (
                {"gpu": {"name": "gpu", "addresses": [str(i) for i in range(executor.gpus)]}} if executor.gpus else {}
            )
            info = {"Host": f"node-{executor.name}", "Total Cores": executor.cores, "Log Urls": {}}
            if self.version >= (3, 1):
                info |= {"Attributes": {}, "Resources": resources, "Resource Profile Id": executor.profile}
            self.emit(
                executor.added,
                0,
                {
                    "Event": "SparkListenerExecutorAdded",
                    "Timestamp": self.at(executor.added),
                    "Executor ID": executor.name,
                    "Executor Info": info,
                },
            )
            if executor.removed is not None and executor.removed < end:
                self.emit(
                    executor.removed,
                    6,
                    {
                        "Event": "SparkListenerExecutorRemoved",
                        "Timestamp": self.at(executor.removed),
                        "Executor ID": executor.name,
                        "Removed Reason": "lost" if executor.lost else "idle",
                    },
                )
        if self.layout != "databricks":
            self.emit(end, 10, {"Event": "SparkListenerApplicationEnd", "Timestamp": self.at(end)})
        return self.add_up(end)

    def profile_event(self, number: int, wanted: dict[str, float]) -> dict[str, Any]:
        of_profile = [executor for executor in self.executors if executor.profile == number]
        cores = of_profile[0].cores if of_profile else 1
        # Executors' amounts are whole numbers, those of tasks are not.
        amounts = {"cores": cores}
        if wanted.get("gpu"):
            amounts["gpu"] = of_profile[0].gpus

        def request(name: str, amount: int) -> dict[str, Any]:
            return {"Resource Name": name, "Amount": amount, "Discovery Script": "", "Vendor": ""}

        tasks = {
            name: {"Resource Name": name, "Amount": float(amount)} for name, amount in ({"cpus": 1.0} | wanted).items()
        }
        return {
            "Event": "SparkListenerResourceProfileAdded",
            "Resource Profile Id": number,
            "Executor Resource Requests": {name: request(name, amount) for name, amount in amounts.items()},
            "Task Resource Requests": tasks,
        }

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
            end / 1e3,
            running_s,
            stage_s - running_s,
            open_s - stage_s,
            end / 1e3 - open_s,
            len(self.attempts),
            ok,
            len(self.attempts) - ok,
            task_s,
            busy / life if life else 0.0,
            self.engine,
            tuple(self.judge_query(query, running) for query in self.queries),
            self.rows,
        )

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
            query.sql_id,
            query.identity,
            (query.end - query.start) / 1e3,
            sum(a.finish - a.launch for a in mine) / 1e3,
            untouchable,
            query.engine,
            query.fails,
            query.opaque_told,
        )

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
            assert self.other is not None
            lines += self.other.lines()
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
