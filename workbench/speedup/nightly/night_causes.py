"""What made the last run longer than a usual one, each second booked to one cause.

The last run's task graph is replayed with one cause after the other taken out: executors as they usually are, no
retries, no stragglers, no skew, the rows, plans and driver times of the usual run. What a step saves is that cause's;
what is left are tasks that took longer for the same rows. The usual run loses its own retries, stragglers and skew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from workbench.core.formats import format_items
from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.attribution.time_pieces import concat_measured_logs, measure_log_times
from workbench.speedup.comparison.query_matching import match_queries
from workbench.speedup.engines import classify_operator, strip_suffix
from workbench.speedup.scenarios.scenario import drop_stragglers, even_out
from workbench.speedup.scenarios.task_graph import ExecutorLife, StageTasks, Step, TaskGraph, build_task_graph
from workbench.speedup.scenarios.virtual_schedule import replay_steps

WAITING, EXECUTORS, RETRIES = "executors came later", "other executors", "failures and retries"
STRAGGLERS, SKEW, VOLUME = "stragglers", "skew", "data volume"
QUERIES, PLAN, SETTINGS = "other queries", "other plans", "settings"
DRIVER, TASKS = "driver and gaps", "tasks took longer for the same rows"
# Causes that are only times: they are what noise looks like.
UNEXPLAINED = (DRIVER, TASKS)
# Less is no other volume.
MIN_VOLUME_CHANGE = 0.02
MAX_NAMED = 3
LAST, USUAL = "last", "usual"


@dataclass(frozen=True)
class Night:
    """A run with its tables and its task graph."""

    facts: EventLogFacts
    graph: TaskGraph

    @property
    def log_id(self) -> int:
        """Its number in the tables."""
        return int(self.facts.logs["log_id"][0])


def build_night(facts: EventLogFacts) -> Night:
    """A run from the tables of its log."""
    return Night(facts, build_task_graph(facts))


@dataclass(frozen=True)
class _QueryTotals:
    """A query's sums over its runs of one night, and the operators of its plans."""

    task_s: float
    rows: float
    operators: Counter[str]


class _Replay:
    """A night with ever more causes taken out."""

    def __init__(self, night: Night, names: Mapping[int, str]) -> None:
        self.steps, self.lives, self.names = night.graph.steps, night.graph.executors, names
        own = replay_steps(self.steps, self.lives)
        self._scale = night.graph.wall_ms / own.wall_ms if own else 1.0
        self.wall_s = night.graph.wall_ms / 1e3

    def find_name(self, step: Step) -> str:
        """Name of a step's query as on the other night; empty outside of them."""
        return self.names.get(step.sql_id, "") if step.sql_id is not None else ""

    def take_out(self, steps: Sequence[Step] = (), lives: Sequence[ExecutorLife] = ()) -> float:
        """Seconds that other steps or executors save; the change stays. 0 where the replay does not end."""
        schedule = replay_steps(steps or self.steps, lives or self.lives)
        if schedule is None:
            return 0.0
        self.steps, self.lives = tuple(steps or self.steps), tuple(lives or self.lives)
        before_s, self.wall_s = self.wall_s, schedule.wall_ms * self._scale / 1e3
        return before_s - self.wall_s

    def change_tasks(self, change: Callable[[StageTasks], tuple[float, ...]]) -> float:
        """Seconds that other times of tasks save."""
        return self.take_out([_set_times(step, change(step.tasks)) if step.tasks else step for step in self.steps])

    def scale_queries(self, factors: Mapping[str, float]) -> float:
        """Seconds that tasks save which take so many times as long, by query."""
        steps = []
        for step in self.steps:
            factor = factors.get(self.find_name(step), 1.0)
            changed = step.tasks is not None and factor != 1
            steps.append(_set_times(step, _multiply(step.tasks.times_ms, factor)) if changed and step.tasks else step)
        return self.take_out(steps)

    def drop_queries(self, names: Collection[str]) -> float:
        """Seconds without some queries."""
        steps = [
            replace(step, delay_ms=0.0, end_ms=0.0, tasks=None) if self.find_name(step) in names else step
            for step in self.steps
        ]
        return self.take_out(steps) if names else 0.0

    def sum_task_s(self, name: str) -> float:
        """Task time of a query as it is now."""
        of_query = (step.tasks for step in self.steps if step.tasks is not None and self.find_name(step) == name)
        return sum(sum(tasks.times_ms) for tasks in of_query) / 1e3


def book_causes(last: Night, usual: Night, changed_settings: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of table NIGHT_CAUSES, most seconds first; their seconds add up to the difference of the wall times.

    `changed_settings`: As sentences. With any, other plans and tasks that took longer are booked to them.
    """
    executions = _pair_queries(last, usual)
    names = {side: dict(rows.select("sql_id", "query").iter_rows()) for side, rows in executions.items()}
    now, before = (_sum_queries(night, executions[side]) for side, night in ((LAST, last), (USUAL, usual)))
    replay, usually = _Replay(last, names[LAST]), _Replay(usual, names[USUAL])
    booked: dict[str, tuple[float, Iterable[str]]] = {}
    booked[WAITING] = replay.take_out(lives=_arrive_as(last.graph.executors, usual.graph.executors)), ()
    shapes = [f"{night.graph.n_executors} of {night.graph.executor_cores} cores" for night in (last, usual)]
    booked[EXECUTORS] = replay.take_out(lives=usual.graph.executors), [f"{shapes[0]}, usually {shapes[1]}"]
    added, missing = now.keys() - before.keys(), before.keys() - now.keys()
    told = [f"{name} is new" for name in sorted(added)] + [f"{name} did not run" for name in sorted(missing)]
    booked[QUERIES] = replay.drop_queries(added) - usually.drop_queries(missing), told
    booked[RETRIES] = _drop_retries(replay, last) - _drop_retries(usually, usual), ()
    for cause, change in ((STRAGGLERS, drop_stragglers), (SKEW, even_out)):
        booked[cause] = replay.change_tasks(change) - usually.change_tasks(change), ()
    both = sorted(now.keys() & before.keys())
    volumes = {name: _compare_volumes(now[name], before[name]) for name in both}
    grown = sorted((name for name in both if volumes[name] != 1), key=lambda name: -abs(math.log(volumes[name])))
    factors = {name: 1 / _bound_by_times(volumes[name], now[name], before[name]) for name in grown}
    booked[VOLUME] = replay.scale_queries(factors), [f"{name} read {volumes[name]:.2f}x the rows" for name in grown]
    others = [name for name in both if now[name].operators != before[name].operators]
    plans = [f"{name}: {_describe_operators(now[name].operators, before[name].operators)}" for name in others]
    plan_s = replay.scale_queries({name: before[name].task_s / max(1e-9, replay.sum_task_s(name)) for name in others})
    booked[DRIVER] = replay.take_out(_drive_as_usual(replay, usually)), ()
    rest_s = replay.wall_s - usually.wall_s
    if changed_settings:
        booked[SETTINGS] = plan_s + rest_s, [*changed_settings, *plans]
    else:
        booked[PLAN], booked[TASKS] = (plan_s, plans), (rest_s, ())
    whole_s = (last.graph.wall_ms - usual.graph.wall_ms) / 1e3
    rows = [
        {
            "cause": cause,
            "change_s": seconds,
            "share": seconds / whole_s if whole_s else None,
            "found": format_items(list(texts), MAX_NAMED) or None,
        }
        for cause, (seconds, texts) in booked.items()
    ]
    return sorted(rows, key=lambda row: -abs(row["change_s"]))


def _pair_queries(last: Night, usual: Night) -> dict[str, pl.DataFrame]:
    """Executions of both nights under names by which their queries meet: table EXECUTIONS, by night."""
    parts = [
        measure_log_times(night.facts, side, side, log_id=night.log_id)
        for side, night in ((LAST, last), (USUAL, usual))
    ]
    matched, _ = match_queries(concat_measured_logs(parts), USUAL, LAST)
    return {side: matched.executions.filter(pl.col("label") == side) for side in (LAST, USUAL)}


def _sum_queries(night: Night, executions: pl.DataFrame) -> dict[str, _QueryTotals]:
    """Totals of the queries of a night, by name. `executions`: Table EXECUTIONS."""
    final = night.facts.plan_nodes.filter("is_final").join(executions.select("sql_id", "query"), on="sql_id")
    operators: dict[str, Counter[str]] = {}
    for query, node in final.select("query", "node_name").iter_rows():
        if classify_operator(node).kind != "none":
            operators.setdefault(query, Counter())[strip_suffix(node)] += 1
    sums = executions.group_by("query").agg(pl.col("task_s", "read_rows").sum())
    return {
        query: _QueryTotals(task_s, rows or 0.0, operators.get(query, Counter()))
        for query, task_s, rows in sums.select("query", "task_s", "read_rows").iter_rows()
    }


def _compare_volumes(now: _QueryTotals, before: _QueryTotals) -> float:
    """Rows that a query read over those of the usual night; 1 where they are alike or not known."""
    ratio = now.rows / before.rows if now.rows > 0 and before.rows > 0 else 1.0
    return ratio if abs(math.log(ratio)) > math.log1p(MIN_VOLUME_CHANGE) else 1.0


def _bound_by_times(ratio: float, now: _QueryTotals, before: _QueryTotals) -> float:
    """A ratio of rows that explains no more than the tasks' time changed by."""
    if not (now.task_s > 0 and before.task_s > 0):
        return ratio
    times = now.task_s / before.task_s
    return min(ratio, max(times, 1.0)) if ratio > 1 else max(ratio, min(times, 1.0))


def _describe_operators(now: Counter[str], before: Counter[str]) -> str:
    """Operators that a plan has more of, and those that it has fewer of."""
    more, fewer = sorted(now - before), sorted(before - now)
    return f"{format_items(more, MAX_NAMED) or 'nothing'} in place of {format_items(fewer, MAX_NAMED) or 'nothing'}"


def _arrive_as(lives: Sequence[ExecutorLife], usual: Sequence[ExecutorLife]) -> list[ExecutorLife]:
    """Executors that come no later than those of the usual night, in order."""
    came = [life.added_ms for life in usual]
    return [
        replace(life, added_ms=min(life.added_ms, came[min(place, len(came) - 1)])) for place, life in enumerate(lives)
    ]


def _drop_retries(replay: _Replay, night: Night) -> float:
    """Seconds without later attempts of stages, and without the time of tasks that failed."""
    failed = {
        (stage, attempt): 1 - (failed_ms or 0) / total_ms if total_ms else 1.0
        for stage, attempt, failed_ms, total_ms in night.facts.stage_tasks.select(
            "stage_id", "stage_attempt_id", "failed_task_duration_total_ms", "task_duration_total_ms"
        ).iter_rows()
    }

    def change(tasks: StageTasks) -> tuple[float, ...]:
        share = failed.get((tasks.stage_id, tasks.attempt_id), 1.0)
        return () if tasks.attempt_id else tasks.times_ms if share == 1 else _multiply(tasks.times_ms, share)

    return replay.change_tasks(change)


def _drive_as_usual(replay: _Replay, usually: _Replay) -> list[Step]:
    """Steps with the driver's times of the usual night, by query; those between queries by their sum."""
    now, before = (_sum_driver_ms(one) for one in (replay, usually))
    steps = []
    for step in replay.steps:
        name = replay.find_name(step)
        factor = before.get(name, 0.0) / now[name] if now.get(name) and name in before else 1.0
        steps.append(replace(step, delay_ms=step.delay_ms * factor, end_ms=step.end_ms * factor))
    return steps


def _sum_driver_ms(replay: _Replay) -> dict[str, float]:
    """The driver's time by query."""
    sums: dict[str, float] = {}
    for step in replay.steps:
        name = replay.find_name(step)
        sums[name] = sums.get(name, 0.0) + step.delay_ms + step.end_ms
    return sums


def _set_times(step: Step, times_ms: tuple[float, ...]) -> Step:
    return step if step.tasks is None else replace(step, tasks=replace(step.tasks, times_ms=times_ms))


def _multiply(times_ms: Iterable[float], factor: float) -> tuple[float, ...]:
    return tuple(time_ms * factor for time_ms in times_ms)
