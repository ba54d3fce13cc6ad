"""The product's own client, schedule, answer and verification against a service of known law, in virtual time.

Nothing is left out but the wait: the event loop's clock jumps to the next thing to do. A target answers in place of
the network; what is asked over HTTP is in `live_streams`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl

from tests.fakes.virtual_time import VirtualLoop
from tests.worlds.live_services import Service, World, list_words
from workbench.core.errors import ConfigError
from workbench.sizing.estimation import verification
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer
from workbench.sizing.estimation.step_points import PointLimits
from workbench.sizing.load import client_worker, load_driver, load_step
from workbench.sizing.load.client_messages import NO_EXTRA, Reply, RequestExtra
from workbench.sizing.load.load_driver import LagSampler
from workbench.sizing.load.service_targets import http_target, openai_target
from workbench.sizing.load.sweep_report import SweepResult
from workbench.sizing.load.sweep_runner import run_sweep_async

DRAWS = 200
RARER: Any = (
    (load_driver, "SAMPLE_EVERY_S", 1.0),
    (client_worker, "REPORT_EVERY_S", 0.25),
    (load_step, "POLL_EVERY_S", 2.0),
)
# Imported late by the client: their clock must be there to be replaced.
CLOCKED_LATE = (http_target, openai_target)
TRACE_HEAD_SHARE = 0.3

PROBE, RIGHT = "what is", "forty-two"


class _InlineExecutor(ThreadPoolExecutor):
    """Does work at once: a thread would take no virtual time, and how much real time is chance."""

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - as a thread would hand it on
            done.set_exception(error)
        return done


class ServiceTarget:
    """Answers like the service; its first answer says that it is a simulator."""

    simulated = True
    notes: list[str] = []  # noqa: RUF012 - never written

    def __init__(self, service: Service) -> None:
        self._service = service

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def send(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> Reply:
        """Wait as long as the service says."""
        loop, timeout_s = asyncio.get_running_loop(), self._service.law.timeout_s
        sent_s = loop.time()
        fate = self._service.answer(sent_s, len(extra.history))
        text = fate.text or f"n{self._service.n_seen}" + "".join(list_words(fate.tokens - 1))
        if prompt.startswith(PROBE) and not fate.is_wrong:
            text = f"{text} {RIGHT}"
        takes_s = fate.ended_s - sent_s
        await asyncio.sleep(min(takes_s, timeout_s))
        if takes_s > timeout_s:
            return Reply("timeout", loop.time())
        if fate.outcome != "ok":
            return Reply(fate.outcome, loop.time(), status=fate.status, retry_after_s=fate.retry_after_s)
        ended_s = loop.time()
        return Reply(
            "ok",
            ended_s,
            status=200,
            first_token=fate.first_s,
            itl_s=(ended_s - fate.first_s) / (fate.tokens - 1) if fate.tokens > 1 else None,
            llm_s=[ended_s - sent_s],
            input_tokens=100,
            output_tokens=fate.tokens,
            streamed_tokens=fate.tokens,
            later_tokens=float(fate.tokens - 1),
            event_tokens=1.0,
            answer=text.encode(),
        )


@contextlib.contextmanager
def virtual_clocks(loop: VirtualLoop) -> Iterator[None]:
    """Let every module of the client read the loop's clock, and none of the machine's CPU."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("workbench.sizing.load") and getattr(module, "clock", None) is time.perf_counter:
                stack.enter_context(mock.patch.object(module, "clock", loop.time))
        sampler = partial(LagSampler, loop.time, lambda: 0.0)
        stack.enter_context(mock.patch.object(client_worker, "LagSampler", sampler))
        # No loop is ever late here: looking for it a hundred times a second would be half of the work.
        for module, name, value_s in RARER:
            stack.enter_context(mock.patch.object(module, name, value_s))
        loop.set_default_executor(_InlineExecutor(1))
        yield
        loop._default_executor = None  # its shutdown would wait for a real thread


def run_virtually(make: Any) -> Any:
    """Run a coroutine function with the virtual loop's clocks."""

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with virtual_clocks(loop):
            return await make()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def build_settings(world: World, folder: Path) -> dict[str, Any]:
    """Settings of a user's `workbench sizing run`."""
    settings: dict[str, Any] = {
        "protocol": "openai",
        "url": "http://127.0.0.1:1",
        "model": "m",
        "processes": 0,
        "goals": [world.goal],
        "seed": world.seed,
        "timeout_s": world.law.timeout_s,
        **world.settings,
    }
    if world.is_open:
        settings["arrivals"] = world.load_kind
    if world.law.errs:
        probes = folder / "probes.jsonl"
        probes.write_text("".join(json.dumps({"prompt": f"{PROBE} {n}?", "contains": RIGHT}) + "\n" for n in range(20)))
        settings |= {"probes": probes, "probe_share": 0.34}
    if world.load_kind == "trace":
        settings["trace"] = write_trace(world, folder)
    if world.think_s:
        settings["think_time_s"] = world.think_s
    if world.turns > 1:
        settings["turns"] = world.turns
    return settings


def write_trace(world: World, folder: Path) -> Path:
    """Arrival times whose first part is four times as slow as the rest."""
    draw, now_s, times = random.Random(world.seed), 0.0, []
    for place in range(4000):
        rate = world.law.per_s * (0.2 if place < 4000 * TRACE_HEAD_SHARE else 0.8)
        now_s += draw.expovariate(rate)
        times.append(f"{now_s:.6f}")
    path = folder / "trace.txt"
    path.write_text("\n".join(times))
    return path


async def ask_product(world: World, service: Service, folder: Path) -> tuple[SizingAnswer, SweepResult]:
    """Sweep, answer and verification as the command does them."""
    settings = build_settings(world, folder)
    with mock.patch.object(client_worker, "create_target", return_value=ServiceTarget(service)):
        sweep = await run_sweep_async(**settings)
        if not sweep.steps.height:
            raise ConfigError("; ".join(sweep.reasons))
        limits = PointLimits.from_config(sweep.config)
        goals = list(sweep.config.goals)
        answer = compute_answer(
            sweep.requests, sweep.steps, goals, world.load, limits=limits, draws=DRAWS, seed=world.seed
        )
        if answer.recommended is None:
            return answer, sweep
        reference = verification.build_reference(sweep.requests, sweep.steps, limits)
        driven: list[int] = []

        async def drive(count: int) -> pl.DataFrame:
            loads = verification.share_load(world.load, count, 1, whole=not world.is_open)
            changed = verification.build_verification_settings(sweep.config, loads, len(driven))
            driven.append(count)
            checked = await run_sweep_async(**{**settings, **changed})
            return verification.verify_sweep(
                checked, goals, predicted_gpus=count, load=world.load, limits=limits, reference=reference
            )

        tables = [await drive(answer.recommended)]
        while (count := verification.find_next_count(tables)) is not None:
            tables.append(await drive(count))
    return answer.with_verification(verification.settle_verification(tables)), sweep
