"""Target that calls an async Python function in the client process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError
from workbench.core.user_code import import_user_module
from workbench.sizing.load.client_messages import NO_EXTRA, Reply, RequestExtra, clock, shorten_detail
from workbench.sizing.load.service_targets.event_times import EventTimes

Workflow = Callable[[str], Any]
"""Async callable that takes a prompt: a coroutine function that returns the answer, or an async token generator."""


class FunctionTarget:
    """Calls a workflow. Mappings as answers may include `llm_s`, `input_tokens` and `output_tokens`."""

    simulated = False

    def __init__(self, workflow: Workflow, *, timeout_s: float) -> None:
        self._workflow = workflow
        self._timeout_s = timeout_s
        self._streams = inspect.isasyncgenfunction(_callable_code(workflow))

    async def open(self) -> None:
        """Do nothing; a function has no connection."""

    async def close(self) -> None:
        """Do nothing; a function has no connection."""

    async def send(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> Reply:
        """Call the workflow once; exceptions become outcomes."""
        del extra
        reply = await self._call_workflow(prompt)
        # A workflow without awaits would block the loop, and its user would never stop.
        await asyncio.sleep(0)
        return reply

    async def _call_workflow(self, prompt: str) -> Reply:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                if self._streams:
                    # Read a generator's tokens; what is no text counts as a token.
                    tokens = self._workflow(prompt)
                    began, events = clock(), EventTimes()
                    texts: list[str] = []
                    async for token in tokens:
                        events.add_event(token if isinstance(token, str) else "", clock())
                        if isinstance(token, str):
                            texts.append(token)
                    timing = events.measure(began)
                    return Reply(
                        "ok",
                        clock(),
                        first_token=timing.first,
                        first_output=timing.first_output,
                        longest_gap_s=timing.longest_gap_s,
                        itl_s=timing.itl_s,
                        output_tokens=timing.streamed_tokens if events.n_events else 0,
                        answer="".join(texts).encode(errors="replace") if len(texts) == events.n_events else None,
                        streamed_tokens=timing.streamed_tokens,
                        later_tokens=timing.later_tokens,
                        event_tokens=timing.event_tokens,
                        stream=timing.note,
                    )
                answer = await self._workflow(prompt)
                # Build the reply from a function's return value; a mapping may give LLM seconds and token counts.
                ended = clock()
                if not isinstance(answer, Mapping):
                    return Reply(
                        "ok", ended, answer=answer.encode(errors="replace") if isinstance(answer, str) else None
                    )
                llm_s = answer.get("llm_s")
                calls = [float(duration_s) for duration_s in llm_s] if isinstance(llm_s, list | tuple) else None
                counts = (_token_count(answer.get(name)) for name in ("input_tokens", "output_tokens"))
                input_tokens, output_tokens = counts
                return Reply("ok", ended, llm_s=calls, input_tokens=input_tokens, output_tokens=output_tokens)
        except Exception as error:  # noqa: BLE001 - any failure of user code is an outcome
            # A TimeoutError of the workflow is a failure; only our own time limit is a timeout.
            outcome = "timeout" if isinstance(error, TimeoutError) and limit.expired() else "failed"
            return Reply(outcome, clock(), detail=shorten_detail(f"{type(error).__name__}: {error}"))


def _token_count(count: Any) -> int | None:
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def load_workflow(name: str) -> Workflow:
    """Import the callable `module:function`; the working directory is on the import path."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError("not the name of a function", where="--function", found=name, allowed="module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        workflow: Any = import_user_module(module_name)
        for part in attribute.split("."):
            workflow = getattr(workflow, part)
    except Exception as error:
        text = shorten_detail(f"{type(error).__name__}: {error}")
        raise ConfigError("cannot load the function", where="--function", found=f"{name} ({text})") from error
    return check_workflow(workflow, name)


def check_workflow(candidate: Any, name: str) -> Workflow:
    """Check that an object is an async callable."""
    call = _callable_code(candidate)
    if not callable(candidate) or not (inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)):
        raise ConfigError(
            "not an async callable",
            where=name,
            found=type(candidate).__name__,
            do="define it as `async def workflow(prompt: str)`, or as an async generator of tokens",
        )
    workflow: Workflow = candidate
    return workflow


def _callable_code(candidate: Any) -> Any:
    """Function that a call runs; for an object, its `__call__`."""
    if inspect.isroutine(candidate) or isinstance(candidate, functools.partial):
        return candidate
    return getattr(type(candidate), "__call__", None)  # noqa: B004 - its code is wanted
