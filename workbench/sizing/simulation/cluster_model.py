"""Discrete-event model of a GPU cluster with continuous batching, and its parameters."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.core.schema import StrictModel
from workbench.sizing.load.agent_tasks import BEGIN, AgentTask, Waits, find_due_s
from workbench.sizing.simulation import gpu_services

Router = Literal["least", "round_robin", "random", "session"]
EPSILON_TOKENS = 1e-9
Marks = Literal["end", "first", "all"]
"""Granularity of the events of a call: its end, also its first token, or every token."""


class Service(StrictModel):
    """GPUs with one model replica each, and a workflow of LLM calls with tool calls between them.

    A GPU runs up to `slots` sequences; further sequences queue. Prefill blocks the batch for
    `input tokens / prefill rate`. A decode step produces one token per sequence and takes
    `decode_base_s + decode_per_sequence_s * batch`. Each prompt of a conversation has all that was said before it; a
    GPU with a prefix cache prefills only what it has not kept of that. The conversation that was used least recently
    goes first; sequences that run take no room in the cache.

    Examples
    --------
    >>> Service(gpus=4, slots=16).gpus
    4
    >>> Service(gpu_type="h100_sxm", model="Qwen/Qwen3-8B", slots=64).slots
    64
    """

    gpus: int = Field(default=1, ge=1, le=4096, description="GPUs, each with one model replica.")
    gpu_type: str = Field(
        default="",
        max_length=40,
        description="GPU type such as h100_sxm: slots, prefill, decode and cache are those predicted for it.",
    )
    model: str = Field(default="", max_length=300, description="Model on it, such as Qwen/Qwen3-32B-FP8.")
    slots: int = Field(default=16, ge=1, le=100_000, description="Maximum batch size of a GPU, in sequences.")
    prefill_tokens_per_s: float = Field(default=40_000, gt=0, description="Prefill rate of a GPU.")
    decode_base_s: float = Field(default=0.004, gt=0, description="Fixed part of a decode step, in seconds.")
    decode_per_sequence_s: float = Field(
        default=0.0003, ge=0, description="Decode step time per sequence in the batch, in seconds."
    )
    input_tokens: float = Field(default=400, gt=0, description="Mean prompt length, in tokens.")
    input_cv: float = Field(default=0.6, ge=0, description="Coefficient of variation of prompt lengths (lognormal).")
    output_tokens: float = Field(default=60, ge=1, description="Mean answer length, in tokens.")
    output_cv: float = Field(default=0.5, ge=0, description="Coefficient of variation of answer lengths (lognormal).")
    calls: int = Field(default=2, ge=1, le=1000, description="Sequential LLM calls per workflow.")
    tool_s: float = Field(default=0.0, ge=0, description="Mean tool time between two calls, in seconds.")
    tool_cv: float = Field(default=0.3, ge=0, description="Coefficient of variation of tool times (lognormal).")
    shared_s: float = Field(default=0.0, ge=0, description="Time per workflow on a resource shared by all GPUs.")
    router: Router = Field(
        default="least",
        description="Routing of calls to GPUs: least, round_robin, random, or session (the GPU of its first call).",
    )
    cache_tokens: int = Field(default=0, ge=0, description="Tokens of conversations in a GPU's prefix cache; 0: none.")
    admission: int | None = Field(
        default=None,
        ge=1,
        description="Maximum concurrent workflows (nat serve: 8); unlimited by default.",
    )
    seed: int = Field(default=0, ge=0, description="Random seed.")

    @property
    def served(self) -> str:
        """Model and GPU type; empty for a service that nobody has."""
        return f"{self.model} on {self.gpu_type}" if self.gpu_type else ""

    @model_validator(mode="before")
    @classmethod
    def _take_fitted_fields(cls, values: Any) -> Any:
        """What is not given is that of the GPU type."""
        gpu_type = values.get("gpu_type") if isinstance(values, dict) else None
        if not isinstance(gpu_type, str) or not gpu_type:
            return values
        model = str(values.get("model") or gpu_services.DEFAULT_MODEL)
        return gpu_services.find_fitted_fields(gpu_type, model) | values | {"model": model}


@dataclass(slots=True, eq=False)
class Conversation:
    """What was said so far, in tokens, and the GPU of its first call."""

    tokens: int = 0
    gpu: int | None = None


@dataclass(slots=True)
class Call:
    """One LLM call; times are on the cluster's clock in s, null until they occur.

    `cached_tokens`: Prompt tokens that the GPU had kept; null without a prefix cache.
    """

    input_tokens: int
    output_tokens: int
    sent_s: float
    ended: Callable[[Call], None]
    token: Callable[[Call, int], None] | None = None
    marks: Marks = "end"
    first_s: float | None = None
    ended_s: float | None = None
    produced: int = 0
    base: float = 0.0  # the GPU's token clock when the sequence was admitted
    conversation: Conversation | None = None
    cached_tokens: int | None = None


@dataclass(slots=True)
class Workflow:
    """One run of the workflow: sequential LLM calls with tool calls between them, or an agent's recorded `task`."""

    sent_s: float
    ended: Callable[[Workflow], None]
    started_s: float | None = None  # null until admitted
    ended_s: float | None = None
    calls: list[Call] = field(default_factory=list)
    conversation: Conversation | None = None
    turn: int | None = None
    task: AgentTask | None = None
    tool_factor: float = 1.0


class PrefixCache:
    """Tokens that a GPU has kept of each conversation, up to a limit; the least recently used one goes first.

    >>> cache, first, second = PrefixCache(100), Conversation(), Conversation()
    >>> cache.keep(first, 60), cache.keep(second, 60)
    (None, None)
    >>> cache.kept_tokens(first), cache.kept_tokens(second)
    (0, 60)
    """

    def __init__(self, max_tokens: int) -> None:
        self._room = max_tokens
        self._kept: dict[Conversation, int] = {}

    def kept_tokens(self, conversation: Conversation) -> int:
        """Tokens that are kept of a conversation."""
        return self._kept.get(conversation, 0)

    def keep(self, conversation: Conversation, tokens: int) -> None:
        """Keep a conversation as it is now, in the place of others where there is no room."""
        self._room += self._kept.pop(conversation, 0) - tokens
        self._kept[conversation] = tokens
        while self._room < 0:
            self._room += self._kept.pop(next(iter(self._kept)))


class Gpu:
    """Continuous batching on one GPU: admitted sequences decode together, the others queue."""

    __slots__ = ("active", "batch", "cache", "clock", "last_s", "service", "stall_s", "turn", "version", "waiting")

    def __init__(self, service: Service) -> None:
        self.service = service
        self.cache = PrefixCache(service.cache_tokens)
        self.active: list[tuple[float, int, Call]] = []  # next mark on the token clock
        self.waiting: deque[Call] = deque()
        self.clock = 0.0
        self.last_s = 0.0
        self.stall_s = 0.0
        self.batch = 0
        self.turn = 0
        self.version = 0

    @property
    def load(self) -> int:
        """Number of sequences in the batch and in the queue."""
        return self.batch + len(self.waiting)

    def advance_to(self, now_s: float) -> None:
        """Advance the token clock: first prefill, which blocks the batch, then decode steps."""
        span = now_s - self.last_s
        self.last_s = now_s
        if self.stall_s > 0:
            used = min(self.stall_s, span)
            self.stall_s -= used
            span -= used
        if self.batch and span > 0:
            self.clock += span / self._step_s()

    def admit_waiting(self) -> None:
        """Fill free slots from the queue; prefills run one after the other."""
        while self.waiting and self.batch < self.service.slots:
            call = self.waiting.popleft()
            self.stall_s += self._prefill_tokens(call) / self.service.prefill_tokens_per_s
            self.batch += 1
            call.base = self.clock
            self.schedule_mark(call, call.output_tokens if call.marks == "end" else 1)

    def _prefill_tokens(self, call: Call) -> int:
        """Tokens of the prompt that are not kept."""
        if not self.service.cache_tokens:
            return call.input_tokens
        kept = 0 if call.conversation is None else self.cache.kept_tokens(call.conversation)
        call.cached_tokens = min(kept, call.input_tokens - 1)
        return call.input_tokens - call.cached_tokens

    def schedule_mark(self, call: Call, tokens: int) -> None:
        """Schedule the next event of a call at its given number of tokens."""
        self.turn += 1
        heapq.heappush(self.active, (call.base + tokens, self.turn, call))

    def pop_due_call(self) -> Call | None:
        """Pop a call whose mark is reached; the call stays in the batch."""
        if not self.active:
            return None
        left = self.active[0][0] - self.clock
        # After years of virtual time the clock is too coarse for the rest of a token.
        if left <= EPSILON_TOKENS or (self.stall_s <= 0 and self.last_s + left * self._step_s() <= self.last_s):
            return heapq.heappop(self.active)[2]
        return None

    def next_mark_s(self) -> float:
        """Time of the next mark with the current batch."""
        if not self.active:
            return math.inf
        return self.last_s + self.stall_s + max(0.0, self.active[0][0] - self.clock) * self._step_s()

    def _step_s(self) -> float:
        return self.service.decode_base_s + self.service.decode_per_sequence_s * self.batch


class Cluster:
    """GPUs, router, shared resource, and the workflows that run on them.

    `marks`: Granularity of call events; timing the first token costs one event per call.

    >>> cluster = Cluster(Service(calls=1, input_cv=0, output_cv=0, output_tokens=10, input_tokens=400))
    >>> ended = []
    >>> _ = cluster.start_workflow(ended.append)
    >>> cluster.advance_to(10.0)
    >>> round(ended[0].ended_s, 4)   # 400 / 40,000 s of prefill and 10 steps of 0.0043 s
    0.053
    """

    def __init__(self, service: Service, *, marks: Marks = "end", seed: int | None = None) -> None:
        self.service = service
        self.marks = marks
        self.random = random.Random(service.seed if seed is None else seed)  # noqa: S311 - a simulation
        self.gpus = [Gpu(service) for _ in range(service.gpus)]
        self.now_s = 0.0
        self.running = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._turn = -1
        self._shared_free_s = 0.0
        self._held: deque[Workflow] = deque()

    @property
    def n_held(self) -> int:
        """Workflows that wait for admission."""
        return len(self._held)

    def schedule_at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action at a time on the cluster's clock."""
        self._order += 1
        heapq.heappush(self._events, (time_s, self._order, action, arguments))

    @property
    def next_s(self) -> float:
        """Time of the next event; infinite without events."""
        return self._events[0][0] if self._events else math.inf

    def advance_to(self, until_s: float) -> None:
        """Process all events up to a time, and set the clock to it."""
        events = self._events
        while events and events[0][0] <= until_s:
            self._run_next_event()
        if until_s < math.inf:
            self.now_s = max(self.now_s, until_s)

    def run_while(self, wanted: Callable[[], bool]) -> None:
        """Process events in virtual time while the condition holds and events remain."""
        while self._events and wanted():
            self._run_next_event()

    def start_workflow(
        self,
        ended: Callable[[Workflow], None],
        *,
        at_s: float | None = None,
        conversation: Conversation | None = None,
        turn: int | None = None,
        task: AgentTask | None = None,
        tool_factor: float = 1.0,
    ) -> Workflow:
        """Start a workflow now, or at a time just past if the cluster follows the wall clock.

        `task`: Of an agent, in the place of the service's workflow; `tool_factor`: On the times of its tools.
        """
        sent_s = self.now_s if at_s is None else at_s
        workflow = Workflow(sent_s, ended, conversation=conversation, turn=turn, task=task, tool_factor=tool_factor)
        if self.service.admission is not None and self.running >= self.service.admission:
            self._held.append(workflow)
        else:
            self._begin_workflow(workflow)
        return workflow

    def start_call(
        self,
        ended: Callable[[Call], None],
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        token: Callable[[Call, int], None] | None = None,
        conversation: Conversation | None = None,
    ) -> Call:
        """Start an LLM call on a GPU; missing lengths are drawn at random.

        `input_tokens` come after what was said in the conversation. `token` is called at every token with the number of
        tokens so far.
        """
        service = self.service
        earlier_tokens = 0 if conversation is None else conversation.tokens
        call = Call(
            earlier_tokens
            + (input_tokens or max(1, round(self.draw_lognormal(service.input_tokens, service.input_cv)))),
            output_tokens or max(1, round(self.draw_lognormal(service.output_tokens, service.output_cv))),
            self.now_s,
            ended,
            token,
            "all" if token else self.marks,
            conversation=conversation,
        )
        gpu = self.gpus[self._pick_gpu(conversation)]
        gpu.advance_to(self.now_s)
        gpu.waiting.append(call)
        self._reschedule_gpu(gpu)
        return call

    def set_gpus(self, count: int) -> list[Gpu]:
        """Add idle GPUs, or let those with the least work go; these end what they have and are returned."""
        for _ in range(count - len(self.gpus)):
            gpu = Gpu(self.service)
            gpu.last_s = self.now_s
            self.gpus.append(gpu)
        leaving = sorted(self.gpus, key=lambda gpu: gpu.load)[: max(0, len(self.gpus) - count)]
        self.gpus = [gpu for gpu in self.gpus if gpu not in leaving]
        return leaving

    def _run_next_event(self) -> None:
        time_s, _, action, arguments = heapq.heappop(self._events)
        self.now_s = max(self.now_s, time_s)
        action(*arguments)

    def _begin_workflow(self, workflow: Workflow) -> None:
        self.running += 1
        workflow.started_s = self.now_s
        if workflow.task is None:
            self._next_call(workflow)
        else:
            _TaskProgress(self, workflow, workflow.task).begin()

    def _next_call(self, workflow: Workflow) -> None:
        workflow.calls.append(
            self.start_call(lambda _: self._on_call_end(workflow), conversation=workflow.conversation)
        )

    def _on_call_end(self, workflow: Workflow) -> None:
        if len(workflow.calls) >= self.service.calls:
            self.finish_workflow(workflow)
        elif self.service.tool_s:
            self.schedule_at(
                self.now_s + self.draw_lognormal(self.service.tool_s, self.service.tool_cv), self._on_tool_end, workflow
            )
        else:
            self._on_tool_end(workflow)

    def _on_tool_end(self, workflow: Workflow) -> None:
        if not self.service.shared_s:
            self._next_call(workflow)
            return
        self._shared_free_s = max(self._shared_free_s, self.now_s) + self.service.shared_s
        self.schedule_at(self._shared_free_s, self._next_call, workflow)

    def finish_workflow(self, workflow: Workflow) -> None:
        """End a workflow now, and admit the next."""
        workflow.ended_s = self.now_s
        self.running -= 1
        if self._held:
            self._begin_workflow(self._held.popleft())
        workflow.ended(workflow)

    def _reschedule_gpu(self, gpu: Gpu) -> None:
        """Admit waiting sequences after a change of the batch, and schedule the next mark."""
        gpu.admit_waiting()
        gpu.version += 1
        if gpu.active:
            self.schedule_at(gpu.next_mark_s(), self._on_gpu_mark, gpu, gpu.version)

    def _on_gpu_mark(self, gpu: Gpu, version: int) -> None:
        if version != gpu.version:
            return  # the batch has changed since
        gpu.advance_to(self.now_s)
        while (call := gpu.pop_due_call()) is not None:
            self._advance_call(gpu, call)
        self._reschedule_gpu(gpu)

    def _advance_call(self, gpu: Gpu, call: Call) -> None:
        first = call.marks != "end" and not call.produced
        call.produced = 1 if first else call.produced + 1 if call.marks == "all" else call.output_tokens
        if first:
            call.first_s = self.now_s
        if call.token:
            call.token(call, call.produced)
        if call.produced < call.output_tokens:
            gpu.schedule_mark(call, call.produced + 1 if call.marks == "all" else call.output_tokens)
            return
        gpu.batch -= 1
        call.ended_s = self.now_s
        if call.conversation is not None:
            call.conversation.tokens = call.input_tokens + call.output_tokens
            gpu.cache.keep(call.conversation, call.conversation.tokens)
        call.ended(call)

    def _pick_gpu(self, conversation: Conversation | None) -> int:
        if conversation is None or self.service.router != "session":
            return self._pick_gpu_of_any()
        if conversation.gpu is None or conversation.gpu >= len(self.gpus):
            conversation.gpu = self._pick_gpu_of_any()
        return conversation.gpu

    def _pick_gpu_of_any(self) -> int:
        router, gpus = self.service.router, self.gpus
        if len(gpus) == 1:
            return 0
        if router == "round_robin":
            self._turn = (self._turn + 1) % len(gpus)
            return self._turn
        if router == "random":
            return int(self.random.random() * len(gpus))
        loads = [gpu.batch + len(gpu.waiting) for gpu in gpus]
        least = min(loads)
        ties = loads.count(least)
        if ties == 1:
            return loads.index(least)
        place = int(self.random.random() * ties)
        return [index for index, load in enumerate(loads) if load == least][place]

    def draw_lognormal(self, mean: float, cv: float) -> float:
        """Lognormal with this mean and coefficient of variation."""
        if not cv:
            return mean
        variance = math.log1p(cv * cv)
        return self.random.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))


class _TaskProgress:
    """A task that runs: each of its calls begins after what it waits for."""

    def __init__(self, cluster: Cluster, workflow: Workflow, task: AgentTask) -> None:
        self._cluster = cluster
        self._workflow = workflow
        self._task = task
        self._followers = task.list_followers()
        self._n_awaited = task.count_awaited()
        self._n_left = len(task.calls)
        self._ended_s = {BEGIN: cluster.now_s}
        self._conversations: dict[int, Conversation] = {}

    def begin(self) -> None:
        for place, n_calls in enumerate(self._n_awaited):
            if not n_calls:
                self._schedule_call(place)

    def _schedule_call(self, place: int) -> None:
        self._cluster.schedule_at(self._find_due_s(self._task.calls[place].after), self._start_call, place)

    def _find_due_s(self, waits: Waits) -> float:
        return find_due_s(waits, self._ended_s, self._workflow.tool_factor)

    def _start_call(self, place: int) -> None:
        call = self._task.calls[place]
        # Of two calls that continue the same prompt, the second finds nothing of it.
        conversation = self._conversations.pop(call.continues, None) if call.continues is not None else None
        conversation = conversation or Conversation()
        conversation.tokens = min(conversation.tokens, call.input_tokens - 1)
        started = self._cluster.start_call(
            lambda _: self._on_call_end(place, conversation),
            input_tokens=call.input_tokens - conversation.tokens,
            output_tokens=call.output_tokens,
            conversation=conversation,
        )
        self._workflow.calls.append(started)

    def _on_call_end(self, place: int, conversation: Conversation) -> None:
        self._conversations[place] = conversation
        self._ended_s[place] = self._cluster.now_s
        self._n_left -= 1
        for follower in self._followers[place]:
            self._n_awaited[follower] -= 1
            if not self._n_awaited[follower]:
                self._schedule_call(follower)
        if not self._n_left:
            self._cluster.schedule_at(self._find_due_s(self._task.ends), self._cluster.finish_workflow, self._workflow)
