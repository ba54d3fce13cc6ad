"""Serves the simulated cluster over HTTP in real time.

Endpoints: `POST /generate/full` and `/generate` of the NeMo Agent Toolkit; `/v1/chat/completions`, `/v1/completions`,
`/v1/responses` and `/v1/messages` (streamed or not), `/v1/embeddings`, `/v1/rerank` and `/v1/models`; `/health`,
`/stat`, `/metrics` with vLLM's names, `POST /reset`, and `POST /scale` to change the GPUs. All responses identify the
service as simulated.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import orjson

from workbench.sizing.simulation import response_bodies
from workbench.sizing.simulation.cluster_model import Call, Cluster, Conversation, Service, Workflow
from workbench.sizing.simulation.dialects import DIALECTS, Answered, Dialect
from workbench.sizing.simulation.http_connection import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    METRICS_TYPE,
    SERVER_NAME,
    BadRequestError,
    Connection,
    Exchange,
)

MAX_CONVERSATIONS = 100_000
MAX_GPUS = 4096
MAX_KEPT_LATENCIES = 200_000
STAT_QUANTILES = (0.5, 0.95, 0.99)


def scale_service_times(service: Service, time_scale: float) -> Service:
    """Service with all times multiplied by a factor.

    >>> scale_service_times(Service(decode_base_s=0.004), 0.5).decode_base_s
    0.002
    """
    times = ("decode_base_s", "decode_per_sequence_s", "tool_s", "shared_s")
    changes: dict[str, Any] = {name: getattr(service, name) * time_scale for name in times}
    changes["prefill_tokens_per_s"] = service.prefill_tokens_per_s / time_scale
    return service.model_copy(update=changes)


@dataclass
class ServerLog:
    """Counters of the server since its start or reset, and the last 200,000 latencies."""

    in_flight: int = 0
    peak: int = 0
    peak_in_service: int = 0
    served: int = 0
    refused: int = 0
    abandoned: int = 0
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_LATENCIES))
    late_s: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_LATENCIES))
    since: float = field(default_factory=time.monotonic)
    cpu_s: float = field(default_factory=time.process_time)

    def build_stat(self) -> dict[str, Any]:
        """Counters as JSON; quantiles are null before the first response."""
        return {
            "in_flight": self.in_flight,
            "peak": self.peak,
            "peak_in_service": self.peak_in_service,
            "served": self.served,
            "refused": self.refused,
            "abandoned": self.abandoned,
            "latency_s": _latency_quantiles(self.latency_s),
            "late_s": _latency_quantiles(self.late_s),
            "elapsed_s": time.monotonic() - self.since,
            "cpu_s": time.process_time() - self.cpu_s,
        }


def _latency_quantiles(values: deque[float]) -> dict[str, float | int | None]:
    names = [f"p{round(100 * q)}" for q in STAT_QUANTILES]
    quantiles = np.quantile(values, STAT_QUANTILES).tolist() if values else [None] * len(STAT_QUANTILES)
    return {"n": len(values), **dict(zip(names, quantiles, strict=True))}


class Simulator:
    """Connects HTTP requests to the cluster model; needs a running event loop.

    `prompt_words`: A prompt has as many tokens as its last message has words, instead of a drawn length.
    """

    def __init__(self, service: Service, *, time_scale: float = 1.0, prompt_words: bool = False) -> None:
        self._prompt_words = prompt_words
        self.service = scale_service_times(service, time_scale)
        self.time_scale = time_scale
        self.cluster = Cluster(self.service)
        self.log = ServerLog()
        self.connections: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._origin_s = self._loop.time()
        self._epoch_s = time.time()  # the cluster's time 0
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0
        self._conversations: dict[int, Conversation] = {}
        self._routes: dict[tuple[str, str], Callable[[Exchange], None]] = {
            ("POST", "/generate/full"): self._answer_generate_full,
            ("POST", "/generate"): self._answer_generate,
            **{("POST", path): partial(self._answer_call, dialect=dialect) for path, dialect in DIALECTS.items()},
            ("GET", "/v1/models"): lambda exchange: exchange.send_answer(200, response_bodies.build_models_list()),
            ("GET", "/health"): lambda exchange: exchange.send_answer(200, b'{"status":"healthy","simulated":true}'),
            ("GET", "/stat"): lambda exchange: exchange.send_answer(200, orjson.dumps(self.build_stat())),
            ("GET", "/metrics"): lambda exchange: exchange.send_answer(200, self.build_metrics(), METRICS_TYPE),
            ("POST", "/reset"): self._reset_log,
            ("POST", "/scale"): self._scale,
        }

    def create_connection(self) -> Connection:
        """Create the protocol of a new connection (called by asyncio)."""
        scale = "" if self.time_scale == 1 else f" (time scale {self.time_scale:g})"
        return Connection(self.handle_request, self._on_disconnect, self.connections, f"{SERVER_NAME}{scale}")

    def build_stat(self) -> dict[str, Any]:
        """Response of `/stat`."""
        about = {"simulated": True, "server": SERVER_NAME, "time_scale": self.time_scale}
        now = {"in_service": self.cluster.running, "loads": [gpu.load for gpu in self.cluster.gpus]}
        return about | {"service": self.service.model_dump()} | now | self.log.build_stat()

    def build_metrics(self) -> bytes:
        """Response of `/metrics`: calls running and waiting on each GPU, as vLLM names them."""
        lines = []
        n_held = self.cluster.n_held
        for name, counts in (
            ("vllm:num_requests_running", [gpu.batch for gpu in self.cluster.gpus]),
            ("vllm:num_requests_waiting", [len(gpu.waiting) for gpu in self.cluster.gpus]),
        ):
            lines.append(f"# TYPE {name} gauge")
            lines += [f'{name}{{engine="{number}",simulated="true"}} {count}' for number, count in enumerate(counts)]
        lines.append(f'vllm:num_requests_waiting{{engine="admission",simulated="true"}} {n_held}')
        return ("\n".join(lines) + "\n").encode()

    def handle_request(self, exchange: Exchange) -> None:
        """Answer a request, immediately or at the time given by the model."""
        action = self._routes.get((exchange.method, exchange.path))
        try:
            if action is None:
                raise BadRequestError(405 if any(path == exchange.path for _, path in self._routes) else 404)
            action(exchange)
        except BadRequestError as error:
            self.log.refused += 1
            details = {"message": f"not supported by the simulated service: {exchange.method} {exchange.path[:200]}"}
            exchange.send_answer(error.status, orjson.dumps({"error": details | {"code": error.status}}))

    def _scale(self, exchange: Exchange) -> None:
        """Change the number of GPUs at once: new ones are idle, those that go end what they have."""
        wanted = response_bodies.parse_json_object(exchange.body).get("gpus")
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= MAX_GPUS:
            raise BadRequestError(400)
        self.cluster.advance_to(self._loop.time() - self._origin_s)
        self.cluster.set_gpus(wanted)
        exchange.send_answer(200, orjson.dumps({"gpus": wanted}))

    def _reset_log(self, exchange: Exchange) -> None:
        running = self.log.in_flight
        self.log = ServerLog(in_flight=running, peak=running, peak_in_service=self.cluster.running)
        exchange.send_answer(200, b'{"reset":true}')

    def _answer_generate_full(self, exchange: Exchange) -> None:
        question = response_bodies.parse_question(exchange.body)
        self._start_workflow(
            exchange,
            lambda workflow: response_bodies.build_event_lines(workflow, question, self._epoch_s),
            EVENT_STREAM_TYPE,
        )

    def _answer_generate(self, exchange: Exchange) -> None:
        response_bodies.parse_question(exchange.body)
        self._start_workflow(exchange, lambda _: orjson.dumps({"value": response_bodies.ANSWER_TEXT}), JSON_TYPE)

    def _start_workflow(self, exchange: Exchange, build_body: Callable[[Workflow], bytes], kind: str) -> None:
        def answer_workflow(workflow: Workflow) -> None:
            exchange.send_answer(200, build_body(workflow), kind)
            self._on_answer(exchange, workflow.ended_s)

        self._on_arrival()
        self.cluster.start_workflow(answer_workflow)
        self.log.peak_in_service = max(self.log.peak_in_service, self.cluster.running)
        self._set_timer()

    def _answer_call(self, exchange: Exchange, dialect: Dialect) -> None:
        request = dialect.read(exchange.body)
        length, reason = request.answer_length(self._draw_output_tokens()) if dialect.has_tokens else (1, "stop")
        self._number += 1
        answered = Answered(f"simulated-{self._number}", int(time.time()), reason)

        def end_call(call: Call) -> None:
            if request.stream:
                exchange.send_piece(dialect.end(call, answered, request))
                exchange.end_stream()
            else:
                exchange.send_answer(200, dialect.whole(call, answered))
            self._on_answer(exchange, call.ended_s)

        self._on_arrival()
        token = _token_writer(exchange, dialect, answered) if request.stream else None
        conversation = self._find_conversation(request) if dialect.has_tokens else None
        words = request.count_words() if self._prompt_words and dialect.has_tokens else None
        self.cluster.start_call(
            end_call, input_tokens=words, output_tokens=length, token=token, conversation=conversation
        )
        self._set_timer()

    def _find_conversation(self, request: response_bodies.ChatRequest) -> Conversation:
        """The conversation that a request goes on with, or a new one; the oldest of many are forgotten."""
        conversation = None if request.n_messages == 1 else self._conversations.get(request.opening)
        if conversation is None:
            self._conversations.pop(request.opening, None)
            conversation = self._conversations[request.opening] = Conversation()
            if len(self._conversations) > MAX_CONVERSATIONS:
                del self._conversations[next(iter(self._conversations))]
        return conversation

    def _draw_output_tokens(self) -> int:
        service = self.service
        return max(1, round(self.cluster.draw_lognormal(service.output_tokens, service.output_cv)))

    def _on_arrival(self) -> None:
        """Advance the model to the current time before a new event."""
        self.cluster.advance_to(self._loop.time() - self._origin_s)
        self.log.in_flight += 1
        self.log.peak = max(self.log.peak, self.log.in_flight)

    def _on_answer(self, exchange: Exchange, due_s: float | None) -> None:
        assert due_s is not None
        if exchange.gone:
            return
        now_s = self._loop.time()
        self.log.in_flight -= 1
        self.log.served += 1
        self.log.latency_s.append(now_s - exchange.arrived_s)
        self.log.late_s.append(now_s - self._origin_s - due_s)

    def _on_disconnect(self, exchange: Exchange) -> None:
        # The work continues in the cluster, as in a service that does not detect the disconnect.
        del exchange
        self.log.in_flight -= 1
        self.log.abandoned += 1

    def _set_timer(self) -> None:
        """Set the timer to the next event of the model."""
        due_s = self._origin_s + self.cluster.next_s
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._on_timer) if due_s < float("inf") else None

    def _on_timer(self) -> None:
        self._timer = None
        self.cluster.advance_to(self._loop.time() - self._origin_s)
        self._set_timer()


def _token_writer(exchange: Exchange, dialect: Dialect, answered: Answered) -> Callable[[Call, int], None]:
    """Callback that sends each token when it is produced, the first one together with the begin of the stream."""
    piece = dialect.token(answered)

    def write_token(_: Call, produced: int) -> None:
        if produced == 1:
            exchange.begin_stream()
            exchange.send_piece(dialect.begin(answered) + piece)
        else:
            exchange.send_piece(piece)

    return write_token


async def serve_simulator(
    simulated: Service,
    *,
    host: str,
    port: int,
    time_scale: float,
    prompt_words: bool = False,
    ready: Callable[[str], None],
    stop: Callable[[asyncio.Event], None],
) -> dict[str, Any]:
    """Serve until stopped; returns the final content of `/stat`.

    `stop`: Called earlier with an event that stops the server when it is set.
    """
    simulator, ended = Simulator(simulated, time_scale=time_scale, prompt_words=prompt_words), asyncio.Event()
    stop(ended)
    server = await asyncio.get_running_loop().create_server(simulator.create_connection, host, port, backlog=4096)
    try:
        address = server.sockets[0].getsockname()
        ready(f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}")
        await ended.wait()
        return simulator.build_stat()
    finally:
        server.close()
        for connection in list(simulator.connections):
            connection.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1)


def raise_file_limit_to_hard() -> None:
    """Raise the soft limit of open files to the hard limit, since each user needs a socket."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
