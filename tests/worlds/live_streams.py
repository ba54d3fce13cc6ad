"""SIMULATED servers over HTTP whose streams differ in all that servers differ in; what the client makes of each.

    python -m tests.worlds.live_streams 300 --first 0 --show 10

The server keeps what it wrote when: the truth. Client and server share one virtual clock and talk over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiohttp import web

from tests.worlds.live_runs import run_virtually
from workbench.core.errors import WorkbenchError
from workbench.sizing.load.sweep_report import SweepResult
from workbench.sizing.load.sweep_runner import run_sweep_async

SCRIPTS = ("words", "cjk", "code", "subwords")
DOORS = ("chat", "chat", "completions", "responses", "anthropic")
USAGES = ("end", "end", "running", "absent", "first", "half", "double", "float", "text", "after_done")
REASONING = ("none", "none", "streamed", "streamed_told", "hidden_told", "hidden")
TRAITS = (
    "several",
    "bursts",
    "role_first",
    "pings",
    "lines",
    "empty_chunks",
    "cuts",
    "errors",
    "error_events",
    "buffered",
)
# With these nothing need be known of tokens; with "buffered" nothing of first tokens either.
UNCLEAR_USAGES = {"absent", "first", "half", "double", "after_done"}
TOLERANCE = 0.05
LEAST_S = 0.0015
N_REQUESTS = 40
USERS = 3
SIGNS = {
    "words": [
        f" {word}"
        for word in ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "on"]
    ],
    "cjk": list("天地玄黄宇宙洪荒日月盈昃辰宿列张"),
    "code": [" if", "(", "x", "[", "i", "]", ")", ":", "\n ", " return", " y", "+=", "1", ";"],
    "subwords": [" straw", "berry", " de", "part", "ment", " the", " un", "likely", " cat"],
}


@dataclass(frozen=True)
class StreamWorld:
    """How a server streams."""

    seed: int
    traits: frozenset[str]
    script: str
    usage: str
    reasoning: str
    n_events: int
    per_event: int
    ttft_s: float
    gap_s: float
    door: str = "chat"

    @property
    def is_countable(self) -> bool:
        """Whether the tokens can be known, or known not to be: a wrong count that fits the events looks like a right
        one.
        """
        return self.usage != "double" and not (self.usage == "half" and self.per_event > 1)

    @property
    def is_clear(self) -> bool:
        """Whether a user's client can know all of it."""
        return (
            self.usage not in UNCLEAR_USAGES
            and self.reasoning != "hidden"
            and not {"buffered", "bursts", "cuts", "errors", "error_events"} & self.traits
            and self.script == "words"
        )


@dataclass(frozen=True)
class Written:
    """What was written of a request: times on the shared clock, tokens that a user got, and those streamed."""

    received_s: float
    first_s: float
    last_s: float
    user_tokens: int
    streamed: int
    at_first: int
    kind: str


def draw_world(seed: int) -> StreamWorld:
    """Draw a server."""
    rng = np.random.default_rng([seed, 71])
    traits = frozenset(str(name) for name in rng.choice(TRAITS, int(rng.integers(0, 3)), replace=False))
    script = str(rng.choice(SCRIPTS, p=[0.55, 0.15, 0.15, 0.15]))
    usage, reasoning = str(rng.choice(USAGES)), str(rng.choice(REASONING))
    door = str(np.random.default_rng([seed, 73]).choice(DOORS))
    return StreamWorld(
        seed,
        traits,
        script,
        # One event at the end has the counts of these.
        "end" if door in ("responses", "anthropic") and usage in ("running", "first", "after_done") else usage,
        _fit_reasoning(reasoning, door),
        int(rng.integers(8, 30)),
        int(rng.integers(2, 6)) if "several" in traits else 1,
        float(rng.uniform(0.05, 0.4)),
        float(rng.uniform(0.005, 0.05)),
        door,
    )


def _fit_reasoning(reasoning: str, door: str) -> str:
    """Completions of text have no reasoning; Anthropic's counts do not say what of an answer it was."""
    if door == "completions":
        return "none" if reasoning.startswith("streamed") else reasoning
    return (
        {"streamed_told": "streamed", "hidden_told": "hidden"}.get(reasoning, reasoning)
        if door == "anthropic"
        else reasoning
    )


class Door:
    """The events of an API: chat completions, or another by `DOOR_KINDS`."""

    def begin(self) -> list[dict[str, Any]]:
        """Events before the first token."""
        return [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]

    def part(self, text: str, *, is_thought: bool) -> dict[str, Any]:
        """The event of some tokens."""
        name = "reasoning_content" if is_thought else "content"
        return {"choices": [{"index": 0, "delta": {name: text}, "finish_reason": None}]}

    def end(self) -> dict[str, Any]:
        """The event that says why the answer ended."""
        return {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    def fail(self, message: str) -> dict[str, Any]:
        """The event of a failure."""
        return {"error": {"message": message}}

    def format(self, event: dict[str, Any]) -> bytes:
        """An event as a line of the stream."""
        return _format(event)


class CompletionsDoor(Door):
    """Completions of a text."""

    def begin(self) -> list[dict[str, Any]]:
        return [{"choices": [{"index": 0, "text": ""}]}]

    def part(self, text: str, *, is_thought: bool) -> dict[str, Any]:
        del is_thought
        return {"choices": [{"index": 0, "text": text, "finish_reason": None}]}

    def end(self) -> dict[str, Any]:
        return {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}


class TypedDoor(Door):
    """An API whose events have a type, in a line of their own too."""

    def format(self, event: dict[str, Any]) -> bytes:
        return f"event: {event['type']}\n".encode() + _format(event)

    def build_end(self, usage: dict[str, Any] | None) -> list[dict[str, Any]]:
        """The events after the last token, with the counts."""
        raise NotImplementedError


class ResponsesDoor(TypedDoor):
    """OpenAI's responses."""

    def begin(self) -> list[dict[str, Any]]:
        response = {"id": "r", "status": "in_progress", "output": [], "usage": None}
        return [{"type": "response.created", "response": response}, {"type": "response.output_item.added", "item": {}}]

    def part(self, text: str, *, is_thought: bool) -> dict[str, Any]:
        name = "reasoning_text" if is_thought else "output_text"
        return {"type": f"response.{name}.delta", "item_id": "i", "output_index": 0, "delta": text}

    def fail(self, message: str) -> dict[str, Any]:
        return {"type": "response.failed", "response": {"status": "failed", "error": {"message": message}}}

    def build_end(self, usage: dict[str, Any] | None) -> list[dict[str, Any]]:
        if usage is not None:
            details = usage.get("completion_tokens_details")
            usage = {"input_tokens": 9, "output_tokens": usage["completion_tokens"]}
            usage |= {} if details is None else {"output_tokens_details": details}
        response = {"id": "r", "status": "completed", "output": [], "usage": usage}
        return [
            {"type": "response.output_text.done", "text": "all"},
            {"type": "response.completed", "response": response},
        ]


class AnthropicDoor(TypedDoor):
    """Anthropic's messages."""

    def begin(self) -> list[dict[str, Any]]:
        usage = {"input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 1}
        message = {"id": "m", "role": "assistant", "content": [], "usage": usage}
        block = {"type": "text", "text": ""}
        return [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
        ]

    def part(self, text: str, *, is_thought: bool) -> dict[str, Any]:
        delta = {"type": "thinking_delta", "thinking": text} if is_thought else {"type": "text_delta", "text": text}
        return {"type": "content_block_delta", "index": 0, "delta": delta}

    def fail(self, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "overloaded_error", "message": message}}

    def build_end(self, usage: dict[str, Any] | None) -> list[dict[str, Any]]:
        told = {} if usage is None else {"usage": {"output_tokens": usage["completion_tokens"]}}
        return [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **told},
            {"type": "message_stop"},
        ]


DOOR_KINDS: dict[str, type[Door]] = {
    "chat": Door,
    "completions": CompletionsDoor,
    "responses": ResponsesDoor,
    "anthropic": AnthropicDoor,
}
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
}


class StreamServer:
    """Streams as the world says; `written` has what it did, in the order of arrival."""

    def __init__(self, world: StreamWorld) -> None:
        self.world = world
        self.door = DOOR_KINDS[world.door]()
        self.random = np.random.default_rng([world.seed, 72])
        self.written: list[Written] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        loop = asyncio.get_running_loop()
        received_s = loop.time()
        await request.read()
        world, kind = self.world, self._draw_kind()
        place = len(self.written)
        self.written.append(Written(received_s, 0.0, 0.0, 0, 0, 0, kind))
        if kind == "errors":
            await asyncio.sleep(0.02)
            return web.json_response({"error": {"message": f"overloaded, request {place:x}"}}, status=500)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        factor = float(self.random.uniform(0.8, 1.2))
        await asyncio.sleep(world.ttft_s * factor)
        times: list[float] = []
        tokens: list[int] = []
        held: list[bytes] = []
        if "role_first" in world.traits or isinstance(self.door, TypedDoor):
            await response.write(b"".join(map(self.door.format, self.door.begin())))
        n_thought = world.n_events // 2 if world.reasoning.startswith("streamed") else 0
        for number in range(world.n_events):
            if number and not ("bursts" in world.traits and number % 3):
                await asyncio.sleep(world.gap_s * factor)
            if kind == "cuts" and number == world.n_events // 2:
                assert request.transport is not None
                request.transport.close()
                return response
            if kind == "error_events" and number == world.n_events // 2:
                await response.write(self.door.format(self.door.fail(f"engine failed at {place}")))
                break
            n_tokens = world.per_event
            text = "".join(SIGNS[world.script][(place + number * n_tokens + i) % len(SIGNS[world.script])]
                           for i in range(n_tokens))  # fmt: skip
            chunk = self.door.part(text, is_thought=number < n_thought)
            tokens.append(n_tokens)
            if world.usage == "running" or (world.usage == "first" and number == 0):
                chunk["usage"] = self._usage(sum(tokens), 0, final=False)
            times.append(loop.time())
            line = b"".join(self._dress(chunk, number))
            if "buffered" in world.traits:
                held.append(line)
            else:
                await response.write(line)
        if held:
            times = [loop.time()] * len(times)
            await response.write(b"".join(held))
        hidden = 3 * sum(tokens) if world.reasoning.startswith("hidden") else 0
        thought = n_thought * world.per_event
        if kind == "ok":
            await self._write_end(response, sum(tokens), hidden, thought)
        user_tokens = sum(tokens) - (thought if world.reasoning == "streamed_told" else 0)
        at_first = sum(count for count, time_s in zip(tokens, times, strict=True) if time_s == times[0])
        last_s = times[-1] if times else 0.0
        first_s = times[0] if times else 0.0
        self.written[place] = Written(received_s, first_s, last_s, user_tokens, sum(tokens), at_first, kind)
        return response

    async def _write_end(self, response: web.StreamResponse, n_tokens: int, hidden: int, thought: int) -> None:
        usage = self.world.usage
        told = thought if self.world.reasoning == "streamed_told" else 0
        counts = self._usage(n_tokens + hidden, told + hidden, final=True)
        if isinstance(self.door, TypedDoor):
            ends = self.door.build_end(None if usage == "absent" else counts)
            await response.write(b"".join(map(self.door.format, ends)))
            await response.write_eof()
            return
        await response.write(_format(self.door.end()))
        final = _format({"choices": [], "usage": counts})
        if usage in ("end", "running", "half", "double", "float", "text"):
            await response.write(final)
        await response.write(b"data: [DONE]\n\n" + (final if usage == "after_done" else b""))
        await response.write_eof()

    def _usage(self, n_tokens: int, reasoning: int, *, final: bool) -> dict[str, Any]:
        world = self.world
        factor = {"half": 0.5, "double": 2.0}.get(world.usage, 1.0)
        count: Any = max(1, round(n_tokens * factor))
        count = float(count) if world.usage == "float" else str(count) if world.usage == "text" else count
        usage: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": count}
        if reasoning and final and world.reasoning.endswith("told"):
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return usage

    def _draw_kind(self) -> str:
        for name in ("cuts", "errors", "error_events"):
            if name in self.world.traits and self.random.random() < 0.15:
                return name
        return "ok"

    def _dress(self, chunk: dict[str, Any], number: int) -> Iterator[bytes]:
        if "pings" in self.world.traits and number % 4 == 1:
            yield b": ping\n\n"
        if "empty_chunks" in self.world.traits and number % 5 == 2:
            unknown = {"type": "response.news"} if isinstance(self.door, TypedDoor) else {"choices": []}
            yield self.door.format(unknown) + b"data: null\n\n"
        if "lines" in self.world.traits:
            lines = json.dumps(chunk, indent=1).encode().split(b"\n")
            yield b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"
        else:
            yield self.door.format(chunk)


def _format(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


async def measure_world(world: StreamWorld) -> tuple[SweepResult, list[Written]]:
    """One level of the product's own client against the server."""
    server = StreamServer(world)
    runner = web.AppRunner(_build_app(server), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        sweep = await run_sweep_async(
            protocol=world.door if world.door in ("responses", "anthropic") else "openai",
            url=f"http://127.0.0.1:{port}" + (PATHS[world.door] if world.door == "completions" else ""),
            model="m", processes=0, users=[USERS], least_samples=20, most_samples=N_REQUESTS, max_step_s=120.0,
            min_step_s=0.0, seed=world.seed, simulated=True,
        )  # fmt: skip
    finally:
        await runner.cleanup()
    return sweep, server.written


def _build_app(server: StreamServer) -> web.Application:
    app = web.Application()
    app.router.add_post(PATHS[server.world.door], server.handle)
    return app


@dataclass(frozen=True)
class Judged:
    """What was said of a server."""

    world: StreamWorld
    state: str
    notes: tuple[str, ...] = ()


def judge_world(seed: int) -> Judged:
    """Measure a server and hold every figure against what it wrote."""
    world = draw_world(seed)
    try:
        sweep, written = run_virtually(lambda: measure_world(world))
    except WorkbenchError as error:
        return Judged(world, "refused", (str(error)[:300],))
    wrong, missing = compare_figures(world, sweep, written)
    point = sweep.points.row(0, named=True)
    n_failed = sum(one.kind != "ok" for one in written)
    told = point["n_requests"] - sweep.requests.filter(sweep.requests["outcome"] == "ok").height
    if told != n_failed:
        wrong.append(f"{told} failures told of {n_failed}")
    if wrong:
        return Judged(world, "wrong", tuple(wrong))
    return Judged(world, "refused" if missing else "right", tuple(missing))


def compare_figures(world: StreamWorld, sweep: SweepResult, written: list[Written]) -> tuple[list[str], list[str]]:
    """Figures that are off, and those that are not told."""
    good = [one for one in written if one.kind == "ok"]
    rows = sweep.requests.filter(sweep.requests["outcome"] == "ok")
    truths = {
        "runtime_s": [one.last_s - one.received_s for one in good],
        "ttft_s": [one.first_s - one.received_s for one in good],
        "itl_s": [(one.last_s - one.first_s) / max(1, one.streamed - one.at_first) for one in good],
        "streamed_tokens": [float(one.streamed) for one in good],
    }
    wrong, missing = [], []
    if others := {count for count in rows["input_tokens"].drop_nulls() if count != 9}:
        wrong.append(f"prompts of {others} tokens for 9")
    for name, truth in truths.items():
        if name in ("itl_s", "streamed_tokens") and not world.is_countable:
            continue
        known = rows[name].drop_nulls().to_list()
        if len(known) < len(truth):
            missing.append(f"{name} known of {len(known)} in {len(truth)}")
        if not known:
            continue
        for q in (0.1, 0.5, 0.9):
            said, true = float(np.quantile(known, q)), float(np.quantile(truth, q))
            if abs(said - true) > TOLERANCE * true + (LEAST_S if name in ("runtime_s", "ttft_s") else 1e-4):
                wrong.append(f"{name} p{100 * q:.0f} {said:.4g} for {true:.4g}")
                break
    return wrong, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, default=10)
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        found = list(pool.map(judge_world, range(chosen.first, chosen.first + chosen.n), chunksize=5))
    counts: dict[str, Counter[str]] = {}
    for one in found:
        world = one.world
        keys = (world.door, world.script, f"usage {world.usage}", f"reasoning {world.reasoning}", *sorted(world.traits))
        for key in ("all", *(("all clear",) if world.is_clear else ()), *keys):
            counts.setdefault(key, Counter())[one.state] += 1
    out = [f"{'trait':24}{'worlds':>8}{'right':>8}{'unknown':>9}{'wrong':>7}"]
    out += [
        f"{key:24}{count.total():8}{count['right']:8}{count['refused']:9}{count['wrong']:7}"
        for key, count in counts.items()
    ]
    shown = [one for one in found if one.state == "wrong" or (one.state == "refused" and one.world.is_clear)]
    for one in shown[: chosen.show]:
        about = f"{one.world.door} {one.world.script} usage {one.world.usage} reasoning {one.world.reasoning}"
        about += f" {sorted(one.world.traits)}"
        out.append(f"{one.state} {one.world.seed} {about} {one.world.per_event} an event | {'; '.join(one.notes)}")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
