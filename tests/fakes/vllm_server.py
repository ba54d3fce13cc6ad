"""A model server with a queue, a KV cache and a `/metrics` page in vLLM's format; how it holds up is a setting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tests.fakes.misbehaving import DONE, serve_in_thread

METRICS_FAULTS = ("dead", "slow", "garbage", "html", "huge", "redirect", "binary")
TEMPLATE_TOKENS = 7
"""Tokens that a chat template adds to each request."""
LABELS = '{engine="0",model_name="planted"}'


class VllmServer:
    """Streams `max_tokens` (else four) tokens in `time_s`; at most `max_seqs` requests at a time, one block each.

    A request that finds all `cache_blocks` taken counts as a preemption, as vLLM's counter does. What it has seen of a
    conversation, message by message, is in its prefix cache, which has no limit.
    """

    def __init__(
        self, *, max_seqs: int = 1000, cache_blocks: int = 1000, time_s: float = 0.05, fault: str = ""
    ) -> None:
        self.time_s = time_s
        self.bodies: list[dict[str, Any]] = []
        self.fault = fault
        self.cache_blocks = cache_blocks
        self.running = self.waiting = self.preemptions = self.prompt_tokens = self.generated = self.n_scrapes = 0
        self._known_tokens: dict[int, int] = {}
        self._room = asyncio.Semaphore(min(max_seqs, cache_blocks))
        self._is_cache_bound = cache_blocks < max_seqs

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/metrics":
            return await self._answer_metrics(request)
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.waiting += 1
        if self._is_cache_bound and self.running >= self.cache_blocks:
            self.preemptions += 1
        try:
            await self._room.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            return await self._stream(request, body)
        finally:
            self.running -= 1
            self._room.release()

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        prompt = sum(len(message["content"].split(" ")) for message in body["messages"])
        self.prompt_tokens += prompt
        n_tokens = body.get("max_tokens", 4)
        for number in range(n_tokens):
            await asyncio.sleep(self.time_s / n_tokens)
            end = "stop" if number == n_tokens - 1 else None
            event = {"choices": [{"index": 0, "delta": {"content": f"w{number} "}, "finish_reason": end}]}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.generated += 1
        usage: dict[str, Any] = {"prompt_tokens": prompt + TEMPLATE_TOKENS, "completion_tokens": n_tokens}
        usage["prompt_tokens_details"] = {"cached_tokens": self._cache_messages(body["messages"])}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(DONE)
        await response.write_eof()
        return response

    def _cache_messages(self, messages: list[dict[str, str]]) -> int:
        """Tokens of the longest beginning that was known; all beginnings are known from now on."""
        cached = n_tokens = prefix = 0
        for message in messages:
            prefix = hash((prefix, message["content"]))
            n_tokens += len(message["content"].split(" "))
            cached = self._known_tokens.get(prefix, cached)
            self._known_tokens[prefix] = n_tokens
        return cached

    async def _answer_metrics(self, request: web.Request) -> web.StreamResponse:
        self.n_scrapes += 1
        if self.fault == "slow":
            await asyncio.sleep(30)
        if self.fault == "redirect":
            raise web.HTTPFound("http://127.0.0.1:9/metrics")
        bodies = {
            "garbage": f'vllm:num_requests_running{LABELS} {{"x',
            "html": "<script>alert(1)</script>",
            "huge": "# a\n" * (3 << 20),
            "binary": "\x00\xff" * 100,
        }
        status = 500 if self.fault == "dead" else 200
        return web.Response(text=bodies.get(self.fault) or self.metrics_text(), status=status)

    def metrics_text(self) -> str:
        """The page as vLLM writes it, those lines of it that matter and some that do not."""
        cache = min(1.0, self.running / self.cache_blocks)
        gauges = {"num_requests_running": self.running, "num_requests_waiting": self.waiting}
        gauges["kv_cache_usage_perc"] = cache  # type: ignore[assignment]
        counters = {"num_preemptions": self.preemptions, "prompt_tokens": self.prompt_tokens}
        counters["generation_tokens"] = self.generated
        lines = ["# HELP python_info Python platform information", "# TYPE python_info gauge", "python_info 1.0"]
        for name, value in gauges.items():
            lines += [
                f"# HELP vllm:{name} A gauge.",
                f"# TYPE vllm:{name} gauge",
                f"vllm:{name}{LABELS} {float(value)}",
            ]
        for name, value in counters.items():
            lines += [f"# TYPE vllm:{name}_total counter", f"vllm:{name}_total{LABELS} {float(value)}"]
            lines.append(f"vllm:{name}_created{LABELS} 1.76e+09")
        return "\n".join(lines) + "\n"


@contextmanager
def vllm_server(**settings: object) -> Iterator[tuple[str, VllmServer]]:
    """The URL of a running server, and itself."""
    server = VllmServer(**settings)  # type: ignore[arg-type]
    with serve_in_thread(server.handle) as url:
        yield url, server
