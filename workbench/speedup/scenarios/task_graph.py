"""The steps of an application, what each had to wait for, and the measured times of its tasks.

A log tells what a stage reads and when everything began and ended, not why the driver's program went on. So a step
waits for what had ended when it began: a stage for the stages that it reads, else for those of its query that had
ended; a query for the queries that had ended and that no other had waited for, of queries side by side for one of them.
What lies between the last of these and the step is the driver's time, and stays as it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median, pstdev
from typing import Any

from workbench.core.errors import InputError
from workbench.eventlog.completeness import OPEN_END, describe_holes, select_harmful
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.task_slots import TaskSlots
from workbench.speedup.attribution.application_time import read_application_time, read_properties, read_session_settings

# A stage waits for at most so many others by name; more ended before them.
MAX_AFTER = 64
# Stages that must tell what first tasks take longer, for those that do not.
MIN_KNOWN_STAGES = 3
# Stamps of one moment differ by so much.
CLOCK_MS = 5
START, QUERY, QUERY_END, STAGE, END = "start", "query", "end of query", "stage", "end"


@dataclass(frozen=True)
class StageTasks:
    """Tasks of a stage attempt in the order of launch.

    `times_ms`: Without what the first task on an executor takes longer. `first_ms`: That: each executor compiles the
    stage's code and fetches what all its tasks need.
    `launch_ms`: From the stage's submission to its first task where a slot is free. `rows`: Read by each task; -1 if
    unknown. `job_id`: The first of its jobs, by which stages queue.
    """

    stage_id: int
    attempt_id: int
    job_id: int
    times_ms: tuple[float, ...]
    rows: tuple[int, ...]
    first_ms: float = 0.0
    launch_ms: float = 0.0
    reads_shuffle: bool = False


@dataclass(frozen=True)
class Step:
    """A moment that others wait for; of a stage, that of its completion.

    `after`: Places of the steps that must be over. `delay_ms`: The driver's time from then to the step, or to the
    submission of its stage. `end_ms`: From the last task's end to the stage's completion.
    """

    kind: str
    query: str
    sql_id: int | None
    after: tuple[int, ...]
    delay_ms: float
    tasks: StageTasks | None = None
    end_ms: float = 0.0


@dataclass(frozen=True)
class ExecutorLife:
    """An executor: its slots, and when it comes and goes (null: never), in ms since the application's start."""

    added_ms: float
    slots: int
    removed_ms: float | None = None


@dataclass(frozen=True)
class TaskGraph:
    """Steps in an order in which each comes after those that it waits for, and the executors as they came.

    `wall_ms`: Measured, from start to end. `executor_slots`, `executor_cores`: Of one executor. `n_executors`: Most at
    a time. `reasons`: Why the graph cannot tell.
    """

    steps: tuple[Step, ...]
    executors: tuple[ExecutorLife, ...]
    wall_ms: float
    executor_slots: int
    executor_cores: int
    n_executors: int
    shuffle_partitions: int | None
    reasons: tuple[str, ...] = ()

    def iterate_stages(self) -> Iterator[StageTasks]:
        """Stages with tasks."""
        yield from (step.tasks for step in self.steps if step.tasks is not None)


def build_task_graph(facts: EventLogFacts) -> TaskGraph:
    """The graph of the application of one log.

    Raises
    ------
    InputError
        The log lacks the start, tasks, or executors with known cores, so that there is nothing to replay.
    """
    time = read_application_time(facts)
    slots = TaskSlots(facts, facts.logs["log_id"][0])
    executors = [executor for executor in slots.executors if executor.slots]
    stages = _list_stages(facts)
    if time.start_ms is None or time.end_ms is None or not stages or not executors:
        raise InputError(
            "nothing to replay in this log",
            found=f"{len(stages)} stages with times of tasks, {len(executors)} executors with known cores",
            allowed="the application's start, ended tasks, and executors",
        )
    start_ms = time.start_ms
    lives = []
    for executor in executors:
        first, last = executor.clip_life(start_ms, time.end_ms)
        is_removed = executor.removed_ms is not None and last < time.end_ms
        lives.append(
            ExecutorLife(float(first - start_ms), executor.slots or 0, float(last - start_ms) if is_removed else None)
        )
    steps = _Builder(facts, stages, start_ms, time.end_ms, executors[0].slots or 1).build()
    n_executors, _ = slots.find_peak()
    return TaskGraph(
        tuple(steps),
        tuple(sorted(lives, key=lambda life: life.added_ms)),
        float(time.end_ms - start_ms),
        executors[0].slots or 1,
        executors[0].cores or 1,
        n_executors or len(executors),
        _read_shuffle_partitions(facts),
        tuple(_list_reasons(facts, executors, time.contradictions)),
    )


def _list_reasons(facts: EventLogFacts, executors: list[Any], contradictions: tuple[str, ...]) -> list[str]:
    reasons = [f"the log's times contradict each other: {text}" for text in contradictions]
    if facts.applications["end_time_ms"][0] is None and OPEN_END not in facts.completeness["kind"]:
        reasons.append("the log lacks the application's end: it still runs, or was killed")
    reasons += describe_holes(select_harmful(facts.completeness))
    if len({executor.slots for executor in executors}) > 1:
        reasons.append("executors of different size: a number of executors does not tell their slots")
    if facts.stages["resource_profile_id"].drop_nulls().n_unique() > 1:
        reasons.append("stages of several resource profiles have slots of their own")
    return reasons


def _read_shuffle_partitions(facts: EventLogFacts) -> int | None:
    """Tasks of a stage that reads a shuffle; null where adaptive execution chooses them, or no number is set."""
    log_id = facts.logs["log_id"][0]
    settings = read_properties(facts, log_id, "spark")
    coalesces = settings.get("spark.sql.adaptive.coalescePartitions.enabled", "true").strip().lower() != "false"
    if coalesces and read_session_settings(facts, log_id=log_id).adaptive == "on":
        return None
    text = settings.get("spark.sql.shuffle.partitions", "200").strip()
    return int(text) if text.isdigit() else None


def _list_stages(facts: EventLogFacts) -> list[dict[str, Any]]:
    """Stage attempts with times of tasks, as they were submitted."""
    rows = facts.join_stage_tasks().to_dicts()
    for row in rows:
        row["first_ms"] = _first(row["submission_time_ms"], row["first_launch_time_ms"])
        row["last_ms"] = _first(row["completion_time_ms"], row["last_finish_time_ms"])
    whole = [row for row in rows if row["task_times_ms"] and None not in (row["first_ms"], row["last_ms"])]
    return sorted(whole, key=lambda row: (row["first_ms"], row["stage_id"], row["stage_attempt_id"]))


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


@dataclass
class _Query:
    """A query with those that it started, or a job outside SQL: its time, and the places of its steps."""

    name: str
    sql_id: int | None
    start_ms: int
    end_ms: int
    place: int = -1
    ended: int = -1


class _Builder:
    """Builds the steps of one application in the order of their times."""

    def __init__(
        self, facts: EventLogFacts, stages: list[dict[str, Any]], start_ms: int, end_ms: int, slots: int
    ) -> None:
        self.stages, self.start_ms, self.end_ms = stages, start_ms, end_ms
        firsts = [find_first_tasks(row["task_executors"], slots) for row in stages]
        told = [
            estimate_first_ms(row["task_times_ms"], row["task_rows"], first)
            for row, first in zip(stages, firsts, strict=True)
        ]
        known = sorted(value for value in told if value is not None)
        usual_ms = known[len(known) // 2] if len(known) >= MIN_KNOWN_STAGES else 0.0
        # Where all tasks of a stage are first ones, they take longer by what is usual, or half of their time.
        self.firsts = {
            (row["stage_id"], row["stage_attempt_id"]): (
                first,
                min(usual_ms, median(row["task_times_ms"]) / 2) if value is None else value,
            )
            for row, first, value in zip(stages, firsts, told, strict=True)
        }
        self.jobs = {row["job_id"]: row for row in facts.jobs.to_dicts()}
        self.roots: dict[int, int] = {}
        self.queries: dict[tuple[str, int], _Query] = {}
        for row in facts.sql_executions.sort("sql_id").to_dicts():
            self._add_execution(row)
        self.steps: list[Step] = []
        # Recorded end of each step, epoch ms.
        self.times: list[int] = []
        self.attempts: dict[int, list[int]] = defaultdict(list)
        self.of_query: dict[int, list[int]] = defaultdict(list)
        delays = sorted(row["first_launch_time_ms"] - row["first_ms"] for row in stages)
        # Longer ones are waits for slots, which the replay makes itself.
        self.usual_launch_ms = float(max(0, delays[len(delays) // 4]))

    def _add_execution(self, row: dict[str, Any]) -> None:
        sql_id, root = row["sql_id"], row["root_sql_id"]
        root = sql_id if root is None or ("sql", self.roots.get(root, root)) not in self.queries else self.roots[root]
        self.roots[sql_id] = root
        if row["start_time_ms"] is None:
            return
        end_ms = _first(row["end_time_ms"], row["start_time_ms"])
        assert end_ms is not None
        if root != sql_id:
            query = self.queries["sql", root]
            query.end_ms = max(query.end_ms, end_ms)
            return
        name = " ".join((row["description"] or "").split())[:60] or f"query {sql_id}"
        self.queries["sql", sql_id] = _Query(name, sql_id, row["start_time_ms"], end_ms)

    def build(self) -> list[Step]:
        owners = [self._find_query(row) for row in self.stages]
        for row, query in zip(self.stages, owners, strict=True):
            query.start_ms, query.end_ms = min(query.start_ms, row["first_ms"]), max(query.end_ms, row["last_ms"])
        self._add(Step(START, "", None, (), 0.0), self.start_ms)
        # What begins and ends, in the order of its time; at one time ends come first, and queries before their stages.
        events: list[tuple[int, int, int, Any, Any]] = []
        for number, query in enumerate(self.queries.values()):
            events.append((query.start_ms, 1, number, query, None))
            events.append((query.end_ms, 0 if query.end_ms > query.start_ms else 3, number, query, None))
        for number, (row, query) in enumerate(zip(self.stages, owners, strict=True)):
            events.append((row["first_ms"], 2, number, query, row))
        starts = sorted(query.start_ms for query in self.queries.values())
        is_beside = {
            id(query): bisect_left(starts, query.end_ms) > bisect_right(starts, query.start_ms)
            for query in self.queries.values()
        }
        # Ends of queries that nobody waited for yet, oldest first.
        open_ends: list[int] = []
        last_end = 0
        for _, kind, _, query, row in sorted(events, key=lambda event: event[:3]):
            if kind == 1:
                # Where another query begins before this one ends, threads submit them: it goes on from one end alone.
                n_waited = 1 if is_beside[id(query)] else len(open_ends)
                after = tuple(open_ends[:n_waited]) or (last_end,)
                del open_ends[:n_waited]
                query.place = self._add(self._wait(QUERY, query, after, query.start_ms), query.start_ms)
            elif kind == 2:
                self._add_stage(row, query)
            else:
                after = tuple(self.of_query[query.place][-MAX_AFTER:]) or (query.place,)
                last_end = query.ended = self._add(self._wait(QUERY_END, query, after, query.end_ms), query.end_ms)
                open_ends.append(last_end)
        ends = tuple(query.ended for query in self.queries.values()) or (0,)
        self._add(self._wait(END, _Query("", None, 0, 0), ends, self.end_ms), self.end_ms)
        return self.steps

    def _find_query(self, row: dict[str, Any]) -> _Query:
        if row["sql_id"] is not None and (found := self.queries.get(("sql", self.roots.get(row["sql_id"], -1)))):
            return found
        job_id = self._find_job(row)
        key = ("job", job_id)
        if key not in self.queries:
            job = self.jobs.get(job_id, {})
            first = _first(job.get("submission_time_ms"), row["first_ms"])
            last = _first(job.get("completion_time_ms"), row["last_ms"])
            assert first is not None
            assert last is not None
            self.queries[key] = _Query(f"job {job_id}", None, first, max(first, last))
        return self.queries[key]

    def _find_job(self, row: dict[str, Any]) -> int:
        """The job that a stage ran for: the last one that had begun."""
        begun = [
            job
            for job in row["job_ids"] or ()
            if (submitted := self.jobs.get(job, {}).get("submission_time_ms")) is not None
            and submitted <= row["first_ms"] + CLOCK_MS
        ]
        jobs: list[int] = begun or row["job_ids"] or [-1]
        return max(jobs)

    def _add_stage(self, row: dict[str, Any], query: _Query) -> None:
        first_ms = row["first_ms"]
        read = [place for parent in row["parent_ids"] or () for place in self.attempts[parent]]
        before = [
            place for place in (*read, *self.attempts[row["stage_id"]]) if self.times[place] <= first_ms + CLOCK_MS
        ]
        job_id = self._find_job(row)
        if not before:
            submitted = self.jobs.get(job_id, {}).get("submission_time_ms")
            asked_ms = first_ms if submitted is None else min(first_ms, submitted)
            before = [place for place in self.of_query[query.place] if self.times[place] <= asked_ms + CLOCK_MS]
        after = tuple(sorted(before, key=lambda place: self.times[place])[-MAX_AFTER:]) or (query.place,)
        waited_ms = max(0.0, float(row["first_launch_time_ms"] - first_ms))
        first, longer_ms = self.firsts[row["stage_id"], row["stage_attempt_id"]]
        times_ms = [
            max(1.0, time_ms - longer_ms) if place in first else float(max(0, time_ms))
            for place, time_ms in enumerate(row["task_times_ms"])
        ]
        tasks = StageTasks(
            row["stage_id"],
            row["stage_attempt_id"],
            job_id,
            _restore_all(times_ms, row["n_tasks"]),
            _restore_all(row["task_rows"], row["n_tasks"]),
            longer_ms,
            min(waited_ms, self.usual_launch_ms),
            bool(row["parent_ids"]),
        )
        end_ms = max(0.0, float(row["last_ms"] - row["last_finish_time_ms"]))
        step = self._wait(STAGE, query, after, first_ms, tasks, end_ms)
        place = self._add(step, row["last_ms"])
        self.attempts[row["stage_id"]].append(place)
        self.of_query[query.place].append(place)

    def _wait(
        self,
        kind: str,
        query: _Query,
        after: tuple[int, ...],
        time_ms: int,
        tasks: StageTasks | None = None,
        end_ms: float = 0.0,
    ) -> Step:
        delay_ms = max(0.0, float(time_ms - max(self.times[place] for place in after)))
        return Step(kind, query.name, query.sql_id, after, delay_ms, tasks, end_ms)

    def _add(self, step: Step, time_ms: int) -> int:
        self.steps.append(step)
        self.times.append(time_ms)
        return len(self.steps) - 1


def find_first_tasks(executors: Sequence[int], slots: int) -> set[int]:
    """Places of the tasks that began on an executor's slots, of tasks in the order of launch.

    >>> sorted(find_first_tasks([0, 1, 0, 0], 1)), sorted(find_first_tasks([0, 1, 0, 0], 2))
    ([0, 1], [0, 1, 2])
    """
    n_before: Counter[int] = Counter()
    found = set()
    for place, executor in enumerate(executors):
        if n_before[executor] < slots:
            found.add(place)
        n_before[executor] += 1
    return found


def estimate_first_ms(times_ms: Sequence[float], rows: Sequence[int], first: Collection[int]) -> float | None:
    """What the first task on an executor takes longer than the others; null with fewer than two others.

    Where rows are known, others count by their time per row.

    >>> estimate_first_ms([900, 950, 300, 310, 290], [1] * 5, {0, 1})
    625.0
    """
    others = [place for place in range(len(times_ms)) if place not in first]
    if len(others) < 2 or not first:
        return None
    usual_ms, usual_rows = median(times_ms[place] for place in others), median(rows[place] for place in others)
    longer = []
    for place in first:
        scale = rows[place] / usual_rows if usual_rows > 0 and rows[place] >= 0 else 1.0
        longer.append(times_ms[place] - usual_ms * scale)
    # What lies within the spread of the others is chance.
    found = float(median(longer))
    return found if found > pstdev(times_ms[place] for place in others) else 0.0


def _restore_all(listed: Sequence[Any], n: int) -> tuple[Any, ...]:
    """Values of all tasks from those that were chosen evenly of them."""
    if len(listed) >= n:
        return tuple(listed)
    return tuple(listed[round(place * (len(listed) - 1) / (n - 1))] for place in range(n))
