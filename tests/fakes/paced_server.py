"""A model server that streams at a pace known in advance, and keeps what it did by its own clock: the truth of a peer.

    python -m tests.fakes.paced_server [TRAIT]

Prints its URL and ends with its stdin. Answers at its own pace, however many ask: time to the first token and time
between tokens come from a fixed list that begins anew with `POST /reset`, so that every tool meets the same service.
`GET /truth` gives, for the requests since then, means, medians and p95 of what was written when. A trait (`TRAITS`)
says what an event holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiohttp import web

N_PACES = 80
N_TOKENS = 24
"""Of an answer whose request sets no limit."""
TTFT_RANGE_S = (0.15, 0.25)
GAP_RANGE_S = (0.02, 0.03)
MODEL = "paced"


@dataclass(frozen=True)
class Trait:
    """What the events of an answer hold: tokens an event, and how many events of reasoning come before the text."""

    tokens_an_event: int = 1
    n_reasoning: int = 0


TRAITS = {"one": Trait(), "several": Trait(tokens_an_event=3), "reasoning": Trait(n_reasoning=8)}


def list_paces(seed: int = 7) -> list[tuple[float, float]]:
    """Time to the first token and time between tokens by number of the request: evenly over their ranges, shuffled."""
    draw = np.random.default_rng(seed)
    places = (np.arange(N_PACES) + 0.5) / N_PACES
    sides = [low + (high - low) * draw.permutation(places) for low, high in (TTFT_RANGE_S, GAP_RANGE_S)]
    return list(zip(*(side.tolist() for side in sides), strict=True))


class PacedServer:
    """Streams by the list; `kept` holds arrival, first and last token, end and number of later tokens of each request.

    Times are in seconds; later tokens are those after the first event with tokens.
    """

    def __init__(self, trait: Trait) -> None:
        self.trait = trait
        self.paces = list_paces()
        self.kept: list[tuple[float, float, float, float, int]] = []
        self.number = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/reset":
            self.kept, self.number = [], 0
            return web.json_response({})
        if request.path == "/truth":
            return web.json_response(self.build_truth())
        if request.path.endswith("/chat/completions"):
            return await self._stream(request)
        if request.path in ("/health", "/v1/models"):
            return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        return web.json_response({"error": {"message": "no such page"}}, status=404)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        body = json.loads(await request.read())
        arrived = loop.time()
        ttft_s, gap_s = self.paces[self.number % N_PACES]
        self.number += 1
        n_tokens = body.get("max_completion_tokens") or body.get("max_tokens") or N_TOKENS
        several, n_reasoning = self.trait.tokens_an_event, self.trait.n_reasoning
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        # No token is in it: servers tell the role at once.
        role = {"role": "assistant", "content": ""}
        await response.write(_event([{"index": 0, "delta": role, "finish_reason": None}]))
        written = []
        for number in range(0, n_tokens, several):
            # By the time of the whole, so that a late token does not delay those after it.
            await asyncio.sleep(arrived + ttft_s + number * gap_s - loop.time())
            kind = "reasoning_content" if number < n_reasoning else "content"
            delta = {kind: " one" * min(several, n_tokens - number)}
            await response.write(_event([{"index": 0, "delta": delta, "finish_reason": None}]))
            written.append(loop.time())
        usage: dict[str, Any] = {"prompt_tokens": 8, "completion_tokens": n_tokens, "total_tokens": 8 + n_tokens}
        if n_reasoning:
            usage["completion_tokens_details"] = {"reasoning_tokens": min(n_reasoning, n_tokens)}
        await response.write(_event([{"index": 0, "delta": {}, "finish_reason": "length"}]))
        await response.write(_event([], usage=usage) + b"data: [DONE]\n\n")
        await response.write_eof()
        self.kept.append((arrived, written[0], written[-1], loop.time(), n_tokens - several))
        return response

    def build_truth(self) -> dict[str, Any]:
        """Figures over all requests since the reset; times in seconds."""
        if not self.kept:
            return {"n": 0}
        arrived, first, last, ended, later = np.array(self.kept).T
        figures = {"latency": ended - arrived, "ttft": first - arrived, "itl": (last - first) / later}
        found: dict[str, Any] = {"n": len(arrived), "rate_per_s": len(arrived) / (ended.max() - arrived.min())}
        for name, values in figures.items():
            p50, p95 = np.quantile(values, (0.5, 0.95)).tolist()
            found |= {f"{name}_mean_s": float(values.mean()), f"{name}_p50_s": p50, f"{name}_p95_s": p95}
        return found


def _event(choices: list[dict[str, Any]], **more: object) -> bytes:
    about = {"id": "paced", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": choices}
    return b"data: " + json.dumps(about | more).encode() + b"\n\n"


async def _serve(trait: str) -> None:
    server = PacedServer(TRAITS[trait])
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    print(f"http://127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


@contextlib.contextmanager
def serving(trait: str = "one") -> Iterator[str]:
    """A process of its own, given as its URL; ended with the block."""
    command = [sys.executable, "-m", "tests.fakes.paced_server", trait]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate(timeout=30)


def ask(url: str, path: str, *, post: bool = False) -> dict[str, Any]:
    """The JSON of one of the server's own pages."""
    with urllib.request.urlopen(urllib.request.Request(url + path, data=b"{}" if post else None), timeout=10) as page:
        return dict(json.load(page))


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:] or ["one"]))
