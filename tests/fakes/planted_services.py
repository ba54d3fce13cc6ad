"""Twenty services of which it is known what binds them: a queue, the KV cache, their own program, or nothing of these.

Their pages have the names of several servers; what a page or a GPU says of a service follows from what it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.misbehaving import serve_in_thread
from tests.fakes.nvml_library import ManagementLibrary
from tests.fakes.vllm_server import VllmServer

PAGES = {
    "vllm": None,
    "nim": "num_requests_running {running}\nnum_requests_waiting {waiting}\ngpu_cache_usage_perc {cache}\n",
    "sglang": "sglang:num_running_reqs {running}\nsglang:num_queue_reqs {waiting}\nsglang:token_usage {cache}\n",
    "tgi": "tgi_batch_current_size {running}\ntgi_queue_size {waiting}\n",
    "triton": 'nv_trt_llm_request_metrics{{request_type="scheduled"}} {running}\n'
    'nv_trt_llm_request_metrics{{request_type="waiting"}} {waiting}\n'
    'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction"}} {cache}\n',
    "trtllm": "trtllm_num_requests_running {running}\ntrtllm_num_requests_waiting {waiting}\n"
    "trtllm_kv_cache_utilization {cache}\n",
    "gpus alone": "",
}
QUEUE, CACHE, HOST, NOTHING, HIDDEN = "queue", "kv cache", "host", "nothing", "not on its page"


@dataclass(frozen=True)
class Planted:
    """A service, what binds it at twelve users, and what its page and its GPUs say.

    `busy`: Share of the time in which its GPU is busy; null without a GPU. `by_page`: Whether its page says so, else
    NVML. `front`: Requests that a proxy before it lets through at a time. `slower`: It shares one GPU: the time of a
    request grows with the others.
    """

    truth: str
    page: str = "vllm"
    busy: float | None = None
    by_page: bool = False
    front: int = 1000
    slower: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


SERVICES = {
    "queue, vLLM": Planted(QUEUE, settings={"max_seqs": 4}),
    "queue, NIM, busy GPU": Planted(QUEUE, "nim", 0.9, settings={"max_seqs": 6}),
    "queue, SGLang": Planted(QUEUE, "sglang", settings={"max_seqs": 4}),
    "queue, TGI, idle GPU": Planted(QUEUE, "tgi", 0.1, by_page=True, settings={"max_seqs": 2}),
    "queue, Triton": Planted(QUEUE, "triton", settings={"max_seqs": 8}),
    "cache, vLLM": Planted(CACHE, settings={"cache_blocks": 4}),
    "cache, NIM": Planted(CACHE, "nim", settings={"cache_blocks": 6}),
    "cache, SGLang, busy GPU": Planted(CACHE, "sglang", 0.8, settings={"cache_blocks": 4}),
    "cache, Triton": Planted(CACHE, "triton", settings={"cache_blocks": 3}),
    "cache, trtllm-serve": Planted(CACHE, "trtllm", settings={"cache_blocks": 8}),
    "program, vLLM, NVML": Planted(HOST, busy=0.09),
    "program, TGI, page": Planted(HOST, "tgi", 0.3, by_page=True),
    "program, GPUs alone": Planted(HOST, "gpus alone", 0.42, by_page=True),
    "program, SGLang, NVML": Planted(HOST, "sglang", 0.2),
    "roomy, vLLM": Planted(NOTHING),
    "roomy, NIM, GPU half busy": Planted(NOTHING, "nim", 0.6),
    "roomy, Triton, cache 85 %": Planted(NOTHING, "triton", settings={"cache_blocks": 14}),
    "roomy, TGI, as many seats as users": Planted(NOTHING, "tgi", settings={"max_seqs": 12}),
    "the GPU is full": Planted(HIDDEN, busy=0.99, slower=True),
    "a proxy before it queues": Planted(HIDDEN, busy=0.7, front=4),
}


class PlantedServer(VllmServer):
    """A server with the page, the GPU and the proxy of a planted service."""

    def __init__(self, planted: Planted) -> None:
        super().__init__(time_s=0.1, **planted.settings)
        self.planted = planted
        self._front = asyncio.Semaphore(planted.front)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request as the proxy lets it through; the page at any time."""
        if request.path == "/metrics":
            return await super().handle(request)
        async with self._front:
            return await super().handle(request)

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self.planted.slower:
            await asyncio.sleep(0.02 * self.running)
        return await super()._stream(request, body)

    def metrics_text(self) -> str:
        """The page of this kind of server."""
        page = PAGES[self.planted.page]
        cache = min(1.0, self.running / self.cache_blocks)
        filled = {"running": self.running, "waiting": self.waiting, "cache": cache}
        text = super().metrics_text() if page is None else page.format(**filled)
        if self.planted.by_page:
            text += f'DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} {100 * (self.planted.busy or 0)}\n'
        return text


class PlantedLibrary(ManagementLibrary):
    """The management library of a GPU that is busy for a share of the time."""

    def __init__(self, busy: float) -> None:
        super().__init__()
        self._percent = round(100 * busy)

    def nvmlDeviceGetUtilizationRates(self, _: Any, out: Any) -> int:
        """Write that share."""
        out._obj.gpu = self._percent
        return 0


@contextmanager
def serve_planted(planted: Planted) -> Iterator[str]:
    """The URL of a running planted service."""
    with serve_in_thread(PlantedServer(planted).handle) as url:
        yield url
