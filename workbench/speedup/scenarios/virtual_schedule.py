"""Replay of a task graph in virtual time: tasks take the slots that are free, jobs first come first served.

Source of the rule: Spark's scheduler in FIFO mode offers free slots to the stages of the oldest job first, and spreads
tasks over executors. Executors are alike; locality and FAIR pools are left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.speedup.scenarios.task_graph import ExecutorLife, Step

_COMES, _READY, _TASK_END, _DONE, _GOES = range(5)


@dataclass(frozen=True)
class Schedule:
    """When each step began and ended, in ms since the start; of a stage, from its submission on.

    `released`: The step that each waited for last; -1 for the first.
    """

    begins_ms: tuple[float, ...]
    ends_ms: tuple[float, ...]
    released: tuple[int, ...]

    @property
    def wall_ms(self) -> float:
        """From start to end."""
        return self.ends_ms[-1]


class _Executors:
    """Free slots of the executors; the one with most is next."""

    def __init__(self, lives: Sequence[ExecutorLife]) -> None:
        self.lives = lives
        self.free = [0] * len(lives)
        self.is_here = [False] * len(lives)
        self._heap: list[tuple[int, int]] = []

    def add(self, executor: int, slots: int) -> None:
        """Slots of an executor that become free, where it is still there."""
        if self.is_here[executor]:
            self.free[executor] += slots
            heapq.heappush(self._heap, (-self.free[executor], executor))

    def take(self) -> int | None:
        """The executor that runs the next task; null without a free slot."""
        while self._heap:
            free, executor = heapq.heappop(self._heap)
            if self.is_here[executor] and self.free[executor] == -free and free:
                self.free[executor] -= 1
                if self.free[executor]:
                    heapq.heappush(self._heap, (-self.free[executor], executor))
                return executor
        return None


def replay_steps(steps: Sequence[Step], lives: Sequence[ExecutorLife]) -> Schedule | None:
    """Replay steps on executors that come and go; null where tasks are left without any."""
    n_open = [len(step.after) for step in steps]
    dependents: list[list[int]] = [[] for _ in steps]
    for place, step in enumerate(steps):
        for before in step.after:
            dependents[before].append(place)
    begins, ends, released = [0.0] * len(steps), [-1.0] * len(steps), [-1] * len(steps)
    events: list[tuple[float, int, int, int]] = [
        (life.added_ms, _COMES, number, 0) for number, life in enumerate(lives)
    ]
    events += [(life.removed_ms, _GOES, number, 0) for number, life in enumerate(lives) if life.removed_ms is not None]
    events += [(step.delay_ms, _READY, place, 0) for place, step in enumerate(steps) if not step.after]
    heapq.heapify(events)
    executors = _Executors(lives)
    # Stages with tasks to launch, by job and stage; their next task, those that still run, and tasks by executor.
    queue: list[tuple[int, int, int]] = []
    next_task, n_left = [0] * len(steps), [len(step.tasks.times_ms) if step.tasks else 0 for step in steps]
    n_launched: dict[tuple[int, int], int] = {}
    while events:
        now, kind, place, executor = heapq.heappop(events)
        if kind == _COMES:
            executors.is_here[place] = True
            executors.add(place, lives[place].slots)
        elif kind == _GOES:
            executors.is_here[place] = False
        elif kind == _TASK_END:
            executors.add(executor, 1)
            n_left[place] -= 1
            if not n_left[place]:
                heapq.heappush(events, (now + steps[place].end_ms, _DONE, place, 0))
        elif kind == _READY and (tasks := steps[place].tasks) is not None and n_left[place]:
            heapq.heappush(queue, (tasks.job_id, tasks.stage_id, place))
        else:
            ends[place] = now
            for after in dependents[place]:
                n_open[after] -= 1
                if not n_open[after]:
                    released[after], step = place, steps[after]
                    begins[after] = now + step.delay_ms
                    launch_ms = step.tasks.launch_ms if step.tasks else 0.0
                    heapq.heappush(events, (begins[after] + launch_ms, _READY, after, 0))
        if events and events[0][0] <= now:
            continue
        while queue and (chosen := executors.take()) is not None:
            stage = queue[0][2]
            tasks = steps[stage].tasks
            assert tasks is not None
            n_before = n_launched.get((stage, chosen), 0)
            n_launched[stage, chosen] = n_before + 1
            time_ms = tasks.times_ms[next_task[stage]] + (tasks.first_ms if n_before < lives[chosen].slots else 0.0)
            heapq.heappush(events, (now + time_ms, _TASK_END, stage, chosen))
            next_task[stage] += 1
            if next_task[stage] == len(tasks.times_ms):
                heapq.heappop(queue)
    return Schedule(tuple(begins), tuple(ends), tuple(released)) if ends[-1] >= 0 else None
