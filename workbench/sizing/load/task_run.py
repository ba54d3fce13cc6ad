"""Sends the calls of an agent's task, each after what it waits for; the task is one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from workbench.sizing.load.agent_tasks import BEGIN, AgentTask, find_due_s
from workbench.sizing.load.client_messages import Reply, clock

SendCall = Callable[[int], Awaitable[Reply]]
"""Sends the call at a place of the task."""


async def run_task(task: AgentTask, send_call: SendCall, begun: float, tool_factor: float = 1.0) -> Reply:
    """Run a task that began at a time on `clock`: a reply with the tokens of all calls, and when the task had ended.

    After a call that failed none begins that waits for it; the task fails as the first of them did.
    """
    followers = task.list_followers()
    n_awaited = task.count_awaited()
    ended: dict[int, float] = {BEGIN: begun}
    replies: dict[int, Reply] = {}

    async def run_call(place: int) -> None:
        due = find_due_s(task.calls[place].after, ended, tool_factor)
        await asyncio.sleep(max(0.0, due - clock()))
        replies[place] = reply = await send_call(place)
        ended[place] = reply.ended
        for follower in followers[place] if reply.outcome == "ok" else ():
            n_awaited[follower] -= 1
            if not n_awaited[follower]:
                running.create_task(run_call(follower))

    async with asyncio.TaskGroup() as running:
        for place, n_calls in enumerate(n_awaited):
            if not n_calls:
                running.create_task(run_call(place))
    if failed := [reply for reply in replies.values() if reply.outcome != "ok"]:
        first = min(failed, key=lambda reply: reply.ended)
        last = max(reply.ended for reply in replies.values())
        return Reply(first.outcome, last, first.status, detail=first.detail, retry_after_s=first.retry_after_s)
    due = find_due_s(task.ends, ended, tool_factor)
    await asyncio.sleep(max(0.0, due - clock()))
    return _join_replies([replies[place] for place in range(len(task.calls))], max(clock(), due))


def _join_replies(replies: list[Reply], ended: float) -> Reply:
    """The reply of a task; its text is that of the last call. It has no first token: it has several."""
    last = max(replies, key=lambda reply: reply.ended)
    return Reply(
        "ok",
        ended,
        last.status,
        llm_s=[duration_s for reply in replies for duration_s in reply.llm_s or ()] or None,
        input_tokens=_add(reply.input_tokens for reply in replies),
        output_tokens=_add(reply.output_tokens for reply in replies),
        cached_tokens=_add(reply.cached_tokens for reply in replies),
        answer=last.answer,
        finish_reason=last.finish_reason,
    )


def _add(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
