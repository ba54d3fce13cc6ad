"""Child process that runs the toolkit's workflow; started by its file path.

Imports nothing of this package, since that Python need not have it. Orders come as JSON lines on stdin, one a level;
the result of each run is written as JSON lines on what was stdout. A workflow that prints writes to stderr.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

REQUIRED_MODULES = ("nat.runtime.loader", "nat.runtime.session", "nat.builder.workflow_builder", "nat.builder.context")
SendMessage = Callable[..., None]


def main() -> None:
    """Take orders until stdin ends, which means that the parent is gone, and then end at once."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    stdin = os.fdopen(os.dup(0), encoding="utf-8")
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    # The workflow may print and may read; neither must meet the orders.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def send_message(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    try:
        for name in REQUIRED_MODULES:
            import_module(name)
    except ModuleNotFoundError as error:
        send_message(missing=error.name)
        return
    send_message(ready=_find_nat_version())
    threading.Thread(target=_read_orders, args=(stdin, orders), daemon=True).start()
    asyncio.run(_run_orders(orders, send_message))


async def _run_orders(orders: queue.SimpleQueue[str], tell: SendMessage) -> None:
    """Run all levels in one event loop, as the toolkit does: a workflow may keep clients bound to it."""
    while True:
        order = json.loads(await asyncio.to_thread(orders.get))
        try:
            await run_level(order, tell)
        except Exception as error:  # noqa: BLE001 - whatever the toolkit raises is told to the calculation
            tell(broken=_format_error(error))


def _read_orders(stdin: Iterable[str], orders: queue.SimpleQueue[str]) -> None:
    for line in stdin:
        orders.put(line)
    # Not sys.exit: a run may be in the middle, and nobody waits for it any more.
    os._exit(0)


async def run_level(order: dict[str, Any], tell: SendMessage) -> None:
    """Build the workflow anew, as the toolkit does for each level, and run the items with so many in flight.

    `order`: `config_file` (path of the workflow), `concurrency` (runs in flight), `items` (pairs of id and prompt).
    Messages: one a run, as runs end, with `item`, `ok`, `wall_s`, and `error` or `first`, `last`, `llm_s`; then `done`
    with the concurrency. An exception is told as `broken` instead (`_run_orders`).
    """
    config = import_module("nat.runtime.loader").load_config(order["config_file"])
    builder_of = import_module("nat.builder.workflow_builder").WorkflowBuilder
    sessions_of = import_module("nat.runtime.session").SessionManager
    concurrency = order["concurrency"]
    async with builder_of.from_config(config) as builder:
        sessions = await sessions_of.create(config=config, shared_builder=builder, max_concurrency=concurrency)
        try:
            waiting = deque(order["items"])
            await asyncio.gather(*(_run_user(sessions, waiting, tell) for _ in range(min(concurrency, len(waiting)))))
        finally:
            await sessions.shutdown()
    tell(done=concurrency)


async def _run_user(sessions: Any, waiting: deque[list[str]], tell: SendMessage) -> None:
    """One run after the other; the first failure of any user ends the level, running ones end by themselves."""
    while waiting:
        identity, prompt = waiting.popleft()
        started = time.perf_counter()
        try:
            events = await _run_workflow(sessions, prompt)
        except Exception as error:  # noqa: BLE001 - a failed run is an outcome
            waiting.clear()
            tell(item=identity, ok=False, wall_s=time.perf_counter() - started, error=_format_error(error))
            continue
        tell(item=identity, ok=True, wall_s=time.perf_counter() - started, **summarize_event_times(events))


async def _run_workflow(sessions: Any, prompt: str) -> list[tuple[str, float, str]]:
    """Run the workflow once; give the type, time and id of each event."""
    context = import_module("nat.builder.context").Context
    loop = asyncio.get_running_loop()
    async with sessions.session(user_id=_nat_user_id()) as session, session.run(prompt) as runner:
        complete: asyncio.Future[None] = loop.create_future()
        events: list[tuple[str, float, str]] = []

        def record_step(step: Any) -> None:
            events.append((step.event_type.value, step.event_timestamp, step.UUID))

        def mark_complete(*_: Any) -> None:
            if not complete.done():
                complete.set_result(None)

        context.get().intermediate_step_manager.subscribe(
            on_next=record_step, on_error=mark_complete, on_complete=mark_complete
        )
        await runner.result()
        await complete
    return events


def _nat_user_id() -> str:
    """The toolkit runs its evaluations as this user; older ones ask for none."""
    try:
        info = import_module("nat.data_models.user_info")
    except ModuleNotFoundError:
        return "nat_eval_user"
    secret = import_module("pydantic").SecretStr("nat_eval_user")
    user = info.UserInfo(basic_user=info.BasicUserInfo(username="nat_eval_user", password=secret))
    return str(user.get_user_id())


def summarize_event_times(events: list[tuple[str, float, str]]) -> dict[str, Any]:
    """First and last event, and the duration of each LLM call; calls are paired by their ids.

    >>> events = [("LLM_START", 1.0, "a"), ("LLM_START", 2.0, "b"), ("LLM_END", 4.0, "b"), ("LLM_END", 5.0, "a")]
    >>> summarize_event_times(events)
    {'first': 1.0, 'last': 5.0, 'llm_s': [2.0, 4.0]}
    >>> summarize_event_times([("LLM_END", 1.0, "never begun")])["llm_s"]
    []
    >>> summarize_event_times([])
    {'first': None, 'last': None, 'llm_s': []}
    """
    started: dict[str, float] = {}
    llm_s = []
    for kind, at, identity in events:
        if kind == "LLM_START":
            started[identity] = at
        elif kind == "LLM_END" and identity in started:
            llm_s.append(at - started.pop(identity))
    moments = [at for _, at, _ in events]
    return {"first": min(moments, default=None), "last": max(moments, default=None), "llm_s": llm_s}


def _format_error(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _find_nat_version() -> str:
    for name in ("nvidia-nat-core", "nvidia-nat"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"


if __name__ == "__main__":
    main()
    sys.exit(0)
