"""Tasks of agents: LLM calls that wait for one another and for tools, as they did when they were recorded."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

BEGIN = -1
"""Place of what a task's first calls wait for: its begin."""
MIN_OVERLAP_S, MAX_OVERLAP_FRACTION = 0.001, 0.05
"""How much of two activities may overlap where one came after the other, as clocks are not exact. Chosen."""
SAME_MOMENT_S = 0.05
"""Time within which activities begin that are started together. Chosen."""
USUAL_MAX_PAUSE_S = 60.0
"""Time in which nothing runs from which on a person is taken to think. Chosen."""
Waits = dict[int, float]
"""Calls to wait for, and the time after each until something begins, in seconds; the latest of them counts."""


def find_due_s(waits: Waits, ended_s: Mapping[int, float], tool_factor: float = 1.0) -> float:
    """When something begins that waits, where all that it waits for has ended; in s on any clock."""
    return max(ended_s[place] + pause_s * tool_factor for place, pause_s in waits.items())


class AgentCall(msgspec.Struct, frozen=True):
    """A LLM call of a task.

    `after`: What it waits for, and tools and own work of the agent after that, in seconds.
    `blocks`: Ids of the full blocks of its prompt; equal beginnings have equal ids, also across the tasks of a session.
    `continues`: Call of the task whose whole prompt its own begins with; null where there is none.
    `recorded_s`: How long it took when it was recorded.
    """

    input_tokens: int
    output_tokens: int
    after: Waits
    blocks: list[int]
    recorded_s: float
    continues: int | None = None


class AgentTask(msgspec.Struct, frozen=True):
    """What an agent does between two messages of a person, and the session that it is of.

    `ends`: What its end waits for, as `AgentCall.after`. `recorded_s`: How long it took when it was recorded.
    `n_unclear`: Activities that may wait for less than is planned: they began while others of their agent ran.
    """

    calls: list[AgentCall]
    ends: Waits
    session: int
    recorded_s: float
    n_unclear: int = 0

    def time_task(self, call_s: Sequence[float]) -> float:
        """How long it takes with calls of these durations."""
        ended_s = {BEGIN: 0.0}
        for place, (call, duration_s) in enumerate(zip(self.calls, call_s, strict=True)):
            ended_s[place] = find_due_s(call.after, ended_s) + duration_s
        return find_due_s(self.ends, ended_s)

    @property
    def tools_s(self) -> float:
        """How long it takes if each call takes no time: what no GPU makes shorter."""
        return self.time_task([0.0] * len(self.calls))

    @property
    def replayed_s(self) -> float:
        """How long it takes with the calls' recorded durations."""
        return self.time_task([call.recorded_s for call in self.calls])

    def count_awaited(self) -> list[int]:
        """How many calls each call waits for."""
        return [len(call.after.keys() - {BEGIN}) for call in self.calls]

    def list_followers(self) -> list[list[int]]:
        """The calls that wait for each call."""
        followers: list[list[int]] = [[] for _ in self.calls]
        for place, call in enumerate(self.calls):
            for at in call.after:
                if at != BEGIN:
                    followers[at].append(place)
        return followers


@dataclass
class Activity:
    """A recorded call, a tool, or an agent with what it did.

    `prompt`: Tokens of prompt and answer, and the prompt's blocks, of a call; null for others.
    """

    begin_s: float
    end_s: float
    prompt: tuple[int, int, list[int]] | None = None
    parts: list[Activity] = field(default_factory=list)

    @property
    def n_calls(self) -> int:
        """LLM calls in it."""
        return (self.prompt is not None) + sum(part.n_calls for part in self.parts)


def split_tasks(root: Activity, max_pause_s: float) -> list[Activity]:
    """Split a session where nothing ran for longer than a pause: there a person thought."""
    inner = root
    while len(inner.parts) == 1 and inner.parts[0].parts:
        inner = inner.parts[0]
    groups: list[list[Activity]] = []
    latest_s = -float("inf")
    for part in sorted(inner.parts, key=lambda part: part.begin_s):
        if part.begin_s - latest_s > max_pause_s:
            groups.append([])
        groups[-1].append(part)
        latest_s = max(latest_s, part.end_s)
    if len(groups) < 2:
        return [root]
    return [Activity(parts[0].begin_s, max(part.end_s for part in parts), parts=parts) for parts in groups]


def plan_task(root: Activity, session: int) -> AgentTask:
    """What each call of a recorded task waits for.

    Of one agent's parts, a part waits for those that had ended when it began, and for the same time after the last of
    them; parts that ran at once wait for the same. A call that begins after the one whose prompt it continues, and with
    no other, does not wait for calls that are continued by others. An agent ends with the last of its parts.
    """
    plan = _Plan()
    ends = _plan_activity(root, {BEGIN: 0.0}, plan)
    links = link_prompts([call.blocks for call in plan.calls])
    linked = [msgspec.structs.replace(call, continues=link) for call, link in zip(plan.calls, links, strict=True)]
    return AgentTask(linked, ends, session, root.end_s - root.begin_s, plan.n_unclear)


@dataclass
class _Plan:
    calls: list[AgentCall] = field(default_factory=list)
    n_unclear: int = 0


def _plan_activity(activity: Activity, waits: Waits, plan: _Plan) -> Waits:
    """Add the calls of an activity that begins after `waits`; what its end waits for."""
    if activity.prompt is not None:
        input_tokens, output_tokens, blocks = activity.prompt
        plan.calls.append(AgentCall(input_tokens, output_tokens, waits, blocks, activity.end_s - activity.begin_s))
        return {len(plan.calls) - 1: 0.0}
    if not activity.parts:
        return _delay(waits, activity.end_s - activity.begin_s)
    parts = sorted(activity.parts, key=lambda part: (part.begin_s, part.end_s))
    heirs = _find_heirs(parts)
    ends: list[Waits] = []
    # Parts that nothing has come after yet, and that therefore count for those that follow.
    latest: list[int] = []
    has_followers = [False] * len(parts)
    for place, part in enumerate(parts):
        earlier = [at for at in latest if _precedes(parts[at], part)]
        passed = [at for at in earlier if at != earlier[-1] and _precedes(parts[at], parts[earlier[-1]])]
        latest = [*(at for at in latest if at not in passed), place]
        last = [at for at in earlier if at not in passed]
        for at in last:
            has_followers[at] = True
        beside = [parts[at].begin_s for at in (place - 1, place + 1) if 0 <= at < len(parts)]
        if len(last) > 1 and all(abs(begin_s - part.begin_s) > SAME_MOMENT_S for begin_s in beside):
            # Of chains that ran at once, each goes on after its own call, at a moment of its own.
            if place in heirs[max(last, key=lambda at: parts[at].end_s)]:
                beside_it = {at for at in range(len(parts)) if at != place and not _precedes(part, parts[at])}
                last = [at for at in last if place in heirs[at] or not heirs[at] & beside_it]
            runs_beside = any(at not in earlier for at in latest if at != place)
            plan.n_unclear += runs_beside or not all(_precedes(part, later) for later in parts[place + 1 : place + 2])
        if last:
            pause_s = part.begin_s - max(parts[at].end_s for at in last)
            part_waits = _delay(_join([ends[at] for at in last]), pause_s)
        else:
            part_waits = _delay(waits, part.begin_s - activity.begin_s)
        ends.append(_plan_activity(part, part_waits, plan))
    final = [at for at in range(len(parts)) if not has_followers[at]]
    return _delay(_join([ends[at] for at in final]), activity.end_s - max(parts[at].end_s for at in final))


def _precedes(first: Activity, second: Activity) -> bool:
    shorter_s = min(first.end_s - first.begin_s, second.end_s - second.begin_s)
    return first.end_s - second.begin_s <= max(MIN_OVERLAP_S, MAX_OVERLAP_FRACTION * shorter_s)


def _delay(waits: Waits, pause_s: float) -> Waits:
    return {at: waited_s + max(0.0, pause_s) for at, waited_s in waits.items()}


def _join(several: Sequence[Waits]) -> Waits:
    joined: Waits = {}
    for at, waited_s in itertools.chain.from_iterable(waits.items() for waits in several):
        joined[at] = max(waited_s, joined.get(at, 0.0))
    return joined


def link_prompts(prompts: Sequence[Sequence[int]]) -> list[int | None]:
    """For each prompt the latest earlier one, as a place, that it begins with; null where there is none.

    `prompts`: Blocks that are full, in the order of time.

    >>> link_prompts([[1, 2], [1, 2, 3], [1, 9, 4], []])
    [None, 0, None, None]
    """
    by_end: dict[tuple[int, int], int] = {}
    links = []
    for place, blocks in enumerate(prompts):
        known = [by_end[end] for end in enumerate(blocks, 1) if end in by_end]
        links.append(known[-1] if known else None)
        if blocks:
            by_end[len(blocks), blocks[-1]] = place
    return links


def _find_heirs(parts: Sequence[Activity]) -> list[set[int]]:
    """For each part with one call, those whose prompts continue its own."""
    heirs: list[set[int]] = [set() for _ in parts]
    with_call = [(place, call) for place, part in enumerate(parts) if (call := _find_only_call(part)) is not None]
    links = link_prompts([call.prompt[2] if call.prompt else [] for _, call in with_call])
    for (place, _), link in zip(with_call, links, strict=True):
        if link is not None:
            heirs[with_call[link][0]].add(place)
    return heirs


def _find_only_call(part: Activity) -> Activity | None:
    while part.prompt is None:
        with_calls = [inner for inner in part.parts if inner.n_calls]
        if len(with_calls) != 1:
            return None
        part = with_calls[0]
    return part


class NextTask(NamedTuple):
    """A task to run: its number in the file, and the number of the pass through the file."""

    number: int
    lap: int


class TaskQueue:
    """Tasks for users without end: each session's tasks go to one user, in their order; sessions are shuffled anew."""

    def __init__(self, tasks: Sequence[AgentTask], seed: str) -> None:
        by_session = itertools.groupby(range(len(tasks)), key=lambda number: tasks[number].session)
        self._sessions = [list(numbers) for _, numbers in by_session]
        self._seed = seed
        self._order = self._iterate_sessions()

    def _iterate_sessions(self) -> Iterator[tuple[list[int], int]]:
        for lap in itertools.count():
            order = list(self._sessions)
            random.Random(f"{self._seed}/{lap}").shuffle(order)  # noqa: S311 - not used for secrets
            yield from ((numbers, lap) for numbers in order)

    def iterate_for_user(self) -> Iterator[NextTask]:
        """The tasks of one user."""
        while True:
            numbers, lap = next(self._order)
            yield from (NextTask(number, lap) for number in numbers)
