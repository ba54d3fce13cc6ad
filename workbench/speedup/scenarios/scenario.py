"""Scenarios of one application: other executors, cores or partitions, no skew, no stragglers, work that is spared.

Each is the run's own task graph with one change, replayed; the driver's time and everything that is not changed stays
as it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median, median_low

from workbench.speedup.scenarios.spared_work import SparedWork
from workbench.speedup.scenarios.task_graph import ExecutorLife, StageTasks, Step, TaskGraph

# A task is long beyond so many medians of its stage; it has more to do beyond so many medians of its rows.
LONG, MORE_ROWS = 2.0, 1.5
MIN_TASKS = 4
# Executors that register within so long were asked for together.
TOGETHER_MS = 60_000.0
AS_RECORDED, ENDLESS, NO_SKEW, NO_STRAGGLERS = "as recorded", "endless executors", "no skew", "no stragglers"


@dataclass(frozen=True)
class Scenario:
    """One change. `executors`: Null for endless ones, with `is_endless`, or as recorded."""

    name: str
    executors: int | None = None
    cores: int | None = None
    partitions: int | None = None
    is_endless: bool = False
    no_skew: bool = False
    no_stragglers: bool = False
    spared: tuple[SparedWork, ...] = ()

    def change_executors(self, graph: TaskGraph) -> tuple[ExecutorLife, ...]:
        """Executors of the scenario: a fixed number, there from when the recorded ones came."""
        first_ms = graph.executors[0].added_ms
        if self.is_endless:
            # One each for as many tasks as run at once at most; each pays what a first task takes longer.
            n_tasks = sum(len(tasks.times_ms) for tasks in graph.iterate_stages())
            return (ExecutorLife(first_ms, n_tasks),)
        slots = graph.executor_slots
        if self.cores is not None:
            slots = max(1, self.cores * slots // graph.executor_cores)
        if self.executors is None:
            return tuple(replace(life, slots=slots) for life in graph.executors)
        came = [
            life.added_ms for life in graph.executors[: graph.n_executors] if life.added_ms - first_ms <= TOGETHER_MS
        ]
        return tuple(ExecutorLife(came[min(place, len(came) - 1)], slots) for place in range(self.executors))

    def assume_likely(self) -> Scenario:
        """The same with the work that is most likely spared in place of the least."""
        return replace(self, spared=tuple(replace(one, least=one.likely) for one in self.spared))

    def change_steps(self, graph: TaskGraph, *, is_sure: bool = True) -> tuple[Step, ...]:
        """Steps of the scenario.

        `is_sure`: Whether only what the log shows is changed. Tasks whose rows are not known may be skewed, or not.
        """
        changes: list[Callable[[StageTasks], tuple[float, ...]]] = []
        if self.no_skew:
            changes.append(lambda tasks: even_out(tasks, is_sure=is_sure))
        if self.no_stragglers:
            changes.append(lambda tasks: drop_stragglers(tasks, is_sure=is_sure))
        if (n := self.partitions) is not None:
            changes.append(lambda tasks: split_anew(tasks, n) if is_shuffled(tasks, graph) else tasks.times_ms)
        if self.spared:
            shares = {one.stage_id: one.least if is_sure else one.most for one in self.spared}
            changes.append(
                lambda tasks: tuple(time_ms * (1 - shares.get(tasks.stage_id, 0.0)) for time_ms in tasks.times_ms)
            )
        steps = graph.steps
        for change in changes:
            steps = tuple(
                step if step.tasks is None else replace(step, tasks=replace(step.tasks, times_ms=change(step.tasks)))
                for step in steps
            )
        return steps


def is_shuffled(tasks: StageTasks, graph: TaskGraph) -> bool:
    """Whether the number of tasks is that of the setting for shuffles."""
    return tasks.reads_shuffle and len(tasks.times_ms) == graph.shuffle_partitions


def find_long_tasks(tasks: StageTasks, *, with_more_rows: bool, is_sure: bool) -> list[int]:
    """Places of the tasks far above the median of their stage that read more rows than it, or that did not."""
    if len(tasks.times_ms) < MIN_TASKS:
        return []
    # The lower one of the middle two: of four tasks, two may be long.
    usual_ms, usual_rows = median_low(tasks.times_ms), median_low(tasks.rows)
    found = []
    for place, (time_ms, rows) in enumerate(zip(tasks.times_ms, tasks.rows, strict=True)):
        if time_ms > LONG * usual_ms:
            is_known = rows >= 0 and usual_rows >= 0
            has_more = rows > MORE_ROWS * usual_rows
            if (has_more == with_more_rows) if is_known else not is_sure:
                found.append(place)
    return found


def drop_stragglers(tasks: StageTasks, *, is_sure: bool = True) -> tuple[float, ...]:
    """Times with the others' median in place of tasks that took far longer for no more rows."""
    late = set(find_long_tasks(tasks, with_more_rows=False, is_sure=is_sure))
    usual_ms = float(median(time_ms for place, time_ms in enumerate(tasks.times_ms) if place not in late))
    return tuple(usual_ms if place in late else time_ms for place, time_ms in enumerate(tasks.times_ms))


def even_out(tasks: StageTasks, *, is_sure: bool = True) -> tuple[float, ...]:
    """Times with the work of tasks that had far more rows spread over all tasks of the stage."""
    large = set(find_long_tasks(tasks, with_more_rows=True, is_sure=is_sure))
    if not large:
        return tasks.times_ms
    usual_ms = median(time_ms for place, time_ms in enumerate(tasks.times_ms) if place not in large)
    even = [usual_ms if place in large else time_ms for place, time_ms in enumerate(tasks.times_ms)]
    scale = sum(tasks.times_ms) / sum(even)
    return tuple(time_ms * scale for time_ms in even)


def split_anew(tasks: StageTasks, n: int) -> tuple[float, ...]:
    """Times of `n` tasks with the same work; what one task has beyond the others, as a key with most rows, stays."""
    usual_ms = median(tasks.times_ms)
    large = find_long_tasks(tasks, with_more_rows=True, is_sure=True)
    kept = [tasks.times_ms[place] - usual_ms for place in large][:n]
    each_ms = (sum(tasks.times_ms) - sum(kept)) / n
    return tuple(each_ms + (kept[place] if place < len(kept) else 0.0) for place in range(n))


def list_scenarios(
    graph: TaskGraph,
    *,
    executors: Sequence[int] = (),
    cores: Sequence[int] = (),
    partitions: Sequence[int] = (),
    no_skew: bool = False,
    no_stragglers: bool = False,
    spared: tuple[SparedWork, ...] = (),
) -> list[Scenario]:
    """The scenarios that were asked for; by default half, twice and four times the executors, and each other change.

    `spared`: Work that a broadcast of small sides would spare; empty where that is not asked for.
    """
    counts: Sequence[int | None] = executors or [None]
    sizes: Sequence[int | None] = cores or [None]
    shapes = product(counts, sizes) if executors or cores else ()
    asked = [Scenario(_name_shape(count, each), executors=count, cores=each) for count, each in shapes]
    asked += [Scenario(f"{count:,} shuffle partitions", partitions=count) for count in partitions]
    if spared:
        asked.append(Scenario("small sides broadcast", spared=spared))
    is_default = not (asked or no_skew or no_stragglers)
    if is_default:
        smaller_and_larger = sorted({max(1, graph.n_executors // 2), 2 * graph.n_executors, 4 * graph.n_executors})
        asked = [Scenario(_name_shape(n, None), executors=n) for n in smaller_and_larger if n != graph.n_executors]
    if no_skew or is_default:
        asked.append(Scenario(NO_SKEW, no_skew=True))
    if no_stragglers or is_default:
        asked.append(Scenario(NO_STRAGGLERS, no_stragglers=True))
    return [*asked, Scenario(ENDLESS, is_endless=True)]


def _name_shape(executors: int | None, cores: int | None) -> str:
    """Name of a shape.

    >>> _name_shape(4, None), _name_shape(1, 8), _name_shape(None, 1)
    ('4 executors', '1 executor of 8 cores', 'executors of 1 core')
    """
    count = "executors" if executors is None else f"{executors:,} executor{'s' * (executors != 1)}"
    return count if cores is None else f"{count} of {cores:,} core{'s' * (cores != 1)}"
