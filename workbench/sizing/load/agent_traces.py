"""Reads what agents did: spans of OpenTelemetry (OTLP/JSON, or the SDK's), and traces of calls as WEKA has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from workbench.core.data_files import read_json_documents
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.load.agent_tasks import USUAL_MAX_PAUSE_S, Activity, AgentTask, plan_task, split_tasks

if TYPE_CHECKING:
    from workbench.sizing.config import SweepConfig

IN_TASKS = "calls in tasks"
MAX_BYTES = 512 << 20
MAX_CALLS = 500_000
MAX_DEPTH = 100
"""How deeply spans may lie in one another."""
SPAN_BLOCK_TOKENS = 64
"""Tokens of the blocks that prompts of spans are cut into; spans have none of their own. Chosen."""
MAX_TIME_ERROR = 0.05
"""How far the tasks' times may be from the recorded ones with the recorded calls. Chosen."""
_NOUN = "file of agent tasks"
_ALLOWED = "spans of OpenTelemetry (resourceSpans, or the SDK's to_json), or WEKA traces (requests with t, in, out)"

_OPERATION, _CALLS = "gen_ai.operation.name", ("chat", "text_completion", "generate_content")
_KIND, _REQUEST_TYPE = "openinference.span.kind", "llm.request.type"
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
# As the conventions have them, as OpenLLMetry and as OpenInference.
_CACHED = (
    ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
    ("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    ("llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cache_write"),
)
_CONVERSATION = ("gen_ai.conversation.id", "session.id")

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]


@dataclass(frozen=True)
class AgentTasks:
    """Tasks of a file, in the order of their sessions, and what was read.

    `n_read`: LLM calls in the file. `counts`: What became of them, which together are all.
    """

    tasks: list[AgentTask]
    kind: str
    block_tokens: int
    n_read: int
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def usual_s(self) -> float:
        """Median time of a task when it was recorded."""
        return float(np.median([task.recorded_s for task in self.tasks]))

    def describe(self) -> dict[str, Any]:
        """Facts for the sweep's record."""
        tools_s, recorded_s = (
            np.quantile([getattr(task, name) for task in self.tasks], [0.5, 0.95]).tolist()
            for name in ("tools_s", "recorded_s")
        )
        calls = [call for task in self.tasks for call in task.calls]
        return {
            "agent_tasks": len(self.tasks),
            "kind": self.kind,
            "agent_sessions": len({task.session for task in self.tasks}),
            "calls_read": self.n_read,
            "calls": self.counts,
            "mean_input_tokens": float(np.mean([call.input_tokens for call in calls])),
            "mean_output_tokens": float(np.mean([call.output_tokens for call in calls])),
            "recorded_s": recorded_s,
            "tools_s": tools_s,
            "notes": self.notes,
        }


class WekaRequest(msgspec.Struct):
    """A call at `t` seconds, or a sub-agent with its own."""

    t: Seconds
    type: str = ""
    input_tokens: Tokens | None = msgspec.field(default=None, name="in")
    output_tokens: Tokens | None = msgspec.field(default=None, name="out")
    api_time: Seconds | None = None
    duration_ms: Seconds | None = None
    hash_ids: Annotated[list[int], msgspec.Meta(max_length=200_000)] | None = None
    requests: list[WekaRequest] | None = None


class WekaTrace(msgspec.Struct):
    """A session of an agent."""

    requests: list[WekaRequest]
    block_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    hash_id_scope: str = "local"


class Span(msgspec.Struct):
    """A span, of whatever form; times in seconds."""

    trace: str
    span: str
    parent: str
    begin_s: float
    end_s: float
    attributes: dict[str, Any]
    has_failed: bool

    def find(self, names: Sequence[str]) -> Any:
        """The first of these attributes that is there."""
        return next((self.attributes[name] for name in names if name in self.attributes), None)

    def count_tokens(self, names: Sequence[str]) -> int | None:
        """A number of tokens; null where it is not told."""
        value = self.find(names)
        return int(value) if isinstance(value, int | float) and 0 <= value < 1e8 and value == int(value) else None


@dataclass
class _Reading:
    """What was found so far, over all files.

    `blocks`: Own numbers of blocks: equal ids of two sessions are not the same text.
    """

    sessions: list[list[Activity]] = field(default_factory=list)
    n_read: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    blocks: dict[Any, int] = field(default_factory=dict)

    def number_block(self, name: Any) -> int:
        return self.blocks.setdefault(name, len(self.blocks))


def read_agent_tasks(path: Path, max_pause_s: float = USUAL_MAX_PAUSE_S) -> AgentTasks:
    """Read tasks from a file or a folder of them: JSON, or JSON lines.

    A task is what an agent does without a person: a pause of more than `max_pause_s` in which nothing runs ends it. Of
    spans, a LLM call within another is a part of it; a call that failed passes its time and is not sent.

    Raises
    ------
    InputError
        A file has another form, or no task can be sent.
    """
    files = sorted(file for file in path.iterdir() if file.suffix in (".json", ".jsonl")) if path.is_dir() else [path]
    documents = [pair for file in files for pair in read_json_documents(file, noun=_NOUN, max_bytes=MAX_BYTES)]
    if not documents:
        raise InputError("no agent tasks", where=path, found="no JSON", allowed=_ALLOWED)
    reading = _Reading()
    first = documents[0][0]
    if isinstance(first, dict) and "requests" in first:
        kind, block_tokens = "WEKA", _read_weka(documents, reading)
    else:
        kind, block_tokens = "spans", SPAN_BLOCK_TOKENS
        _read_traces(_read_spans(documents), reading)
    tasks = _plan_tasks(reading, max_pause_s)
    reading.counts[IN_TASKS] = sum(len(task.calls) for task in tasks)
    if not tasks or reading.counts[IN_TASKS] > MAX_CALLS:
        found = ", ".join(f"{n} {what}" for what, n in (*reading.counts.items(), *reading.notes.items()) if n)
        raise InputError(
            "no agent task that can be sent, or too many",
            where=path,
            found=found or "no LLM call",
            allowed=f"1 to {MAX_CALLS:,} calls with their numbers of tokens",
        )
    notes = [f"{count} {what}" for what, count in reading.notes.items()]
    notes += _check_times(tasks)
    return AgentTasks(tasks, kind, block_tokens, reading.n_read, dict(reading.counts), notes)


def load_agent_tasks(config: SweepConfig) -> AgentTasks:
    """The tasks of a sweep.

    Raises
    ------
    ConfigError
        A goal is below the time of the tools: no number of GPUs keeps it.
    """
    assert config.agent_tasks is not None
    agents = read_agent_tasks(config.agent_tasks, config.task_pause_s)
    for goal in config.goals:
        if goal.metric == "llm":
            continue
        tools_s = float(np.quantile([config.tool_factor * task.tools_s for task in agents.tasks], goal.q))
        if tools_s > goal.limit_s:
            raise ConfigError(
                "no number of GPUs keeps this goal: the tools alone take longer",
                where=f"--goal {goal.name}",
                found=f"p{100 * goal.q:g} of the tasks without their calls: {tools_s:.3g} s",
                do="a goal above that, or --tool-factor for faster tools",
            )
    return agents


def describe_pace(agents: AgentTasks, config: SweepConfig) -> str:
    """How long a level with the fewest users takes until it has enough tasks, if tasks are as fast as recorded."""
    users = min(config.users or [1])
    needed_s = (1 + config.least_samples / users) * (agents.usual_s + config.think_time_s)
    text = (
        f"a task took {agents.usual_s:.3g} s when recorded (median): {config.least_samples} tasks after each user's "
        f"first take about {needed_s:.0f} s at {users} users"
    )
    if needed_s <= config.max_step_s:
        return text
    return f"{text}, more than --max-step {config.max_step_s:g}: give it more time, or more --users, or fewer --samples"


def describe_agent_tasks(facts: dict[str, Any]) -> list[str]:
    """Sentences on tasks, from the facts of `AgentTasks.describe`."""
    usual_s, long_s = facts["recorded_s"]
    tools_s, long_tools_s = facts["tools_s"]
    left_out = [f"{n} {what}" for what, n in facts["calls"].items() if what != IN_TASKS]
    return [
        f"{facts['agent_tasks']} agent tasks of {facts['agent_sessions']} sessions with {facts['calls'][IN_TASKS]} of "
        f"{facts['calls_read']} calls ({facts['kind']}); a request is a whole task",
        f"recorded, half of them took up to {usual_s:.3g} s, 95 % up to {long_s:.3g} s; with calls that take no time "
        f"{tools_s:.3g} s and {long_tools_s:.3g} s",
        *left_out,
        *facts["notes"],
    ]


def _plan_tasks(reading: _Reading, max_pause_s: float) -> list[AgentTask]:
    tasks = []
    for number, roots in enumerate(reading.sessions):
        parts = [part for root in roots for part in split_tasks(root, max_pause_s)]
        if len(parts) > len(roots):
            reading.notes[f"pauses of more than {max_pause_s:g} s end a task: a person's, not the agent's"] += len(
                parts
            ) - len(roots)
        # A conversation may go on in another trace, and then in the first one again.
        parts.sort(key=lambda part: part.begin_s)
        tasks += [plan_task(part, number) for part in parts if part.n_calls]
    return tasks


def _check_times(tasks: Sequence[AgentTask]) -> list[str]:
    """Whether the plans take as long as the recordings, and where the recordings do not tell what waits for what."""
    unclear = [task for task in tasks if task.n_unclear]
    notes = (
        [
            f"in {len(unclear)} of {len(tasks)} tasks an agent did several things after one another at once, without "
            f"sub-agents that tell them apart: what waits for what is guessed"
        ]
        if unclear
        else []
    )
    wrong = [
        task for task in tasks if abs(task.replayed_s - task.recorded_s) > max(0.01, MAX_TIME_ERROR * task.recorded_s)
    ]
    if not wrong:
        return notes
    return [
        *notes,
        f"{len(wrong)} of {len(tasks)} tasks take another time than recorded with the recorded calls "
        f"(more than {100 * MAX_TIME_ERROR:.0f} %): their activities overlap as no clock explains",
    ]


def _read_weka(documents: Sequence[tuple[Any, str]], reading: _Reading) -> int:
    """Read sessions of WEKA traces; tokens of a block."""
    sizes = set()
    for number, (document, where) in enumerate(documents):
        trace = _convert(document, WekaTrace, where)
        scope = "" if trace.hash_id_scope == "global" else number
        sizes |= {trace.block_size} - {None}
        root = _WekaAgents(scope, trace.block_size or SPAN_BLOCK_TOKENS, reading, where).build(trace.requests)
        if root is not None:
            reading.sessions.append([root])
    if len(sizes) > 1:
        raise InputError("traces with blocks of several sizes", where=documents[0][1], found=sorted(sizes))
    return next(iter(sizes), SPAN_BLOCK_TOKENS)


@dataclass
class _WekaAgents:
    """The agents of a session: the ids of its blocks are equal for equal text in the same `scope`."""

    scope: Any
    block_tokens: int
    reading: _Reading
    where: str

    def build(self, requests: Sequence[WekaRequest], not_before_s: float = 0.0) -> Activity | None:
        """An agent with its requests; null where it has none. Times of a sub-agent may count from its own begin."""
        offset_s = not_before_s if requests and min(request.t for request in requests) < not_before_s - 1 else 0.0
        parts = []
        for request in requests:
            begin_s = request.t + offset_s
            if request.type == "subagent" or request.requests:
                agent = self.build(request.requests or [], begin_s)
                end_s = begin_s + (request.duration_ms or 0.0) / 1000
                inner = [] if agent is None else [agent]
                parts.append(Activity(begin_s, max([end_s, *(part.end_s for part in inner)]), parts=inner))
            elif request.input_tokens != 0:
                parts.append(self._build_call(request, begin_s))
            else:
                self.reading.n_read += 1
                self.reading.counts["calls without a prompt"] += 1
        if not parts:
            return None
        return Activity(min(part.begin_s for part in parts), max(part.end_s for part in parts), parts=parts)

    def _build_call(self, request: WekaRequest, begin_s: float) -> Activity:
        if request.input_tokens is None or request.output_tokens is None or request.api_time is None:
            allowed = "t, in, out, api_time"
            raise InputError("a request without its tokens or its time", where=self.where, allowed=allowed)
        self.reading.n_read += 1
        full = (request.hash_ids or [])[: request.input_tokens // self.block_tokens]
        blocks = [self.reading.number_block((self.scope, block)) for block in full]
        prompt = request.input_tokens, max(1, request.output_tokens), blocks
        return Activity(begin_s, begin_s + request.api_time, prompt)


def _convert(document: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(document, kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"not a {_NOUN}", where=where, found=str(error)[:160], allowed=_ALLOWED) from None


def _read_spans(documents: Sequence[tuple[Any, str]]) -> Iterator[Span]:
    for document, where in documents:
        if isinstance(document, dict) and "resourceSpans" in document:
            try:
                for resource in document["resourceSpans"]:
                    for scope in resource.get("scopeSpans", ()):
                        yield from map(_parse_otlp_span, scope.get("spans", ()))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise _refuse_span(error, where) from None
        elif isinstance(document, dict) and "context" in document:
            try:
                yield _parse_sdk_span(document)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise _refuse_span(error, where) from None
        else:
            found = sorted(map(str, document))[:8] if isinstance(document, dict) else type(document).__name__
            raise InputError(f"not a {_NOUN}", where=where, found=found, allowed=_ALLOWED)


def _refuse_span(error: Exception, where: str) -> InputError:
    return InputError("not a span", where=where, found=f"{type(error).__name__}: {error}"[:120], allowed=_ALLOWED)


def _parse_otlp_span(span: dict[str, Any]) -> Span:
    attributes = {str(pair["key"]): _parse_otlp_value(pair.get("value") or {}) for pair in span.get("attributes", ())}
    return Span(
        str(span["traceId"]),
        str(span["spanId"]),
        str(span.get("parentSpanId") or ""),
        int(span["startTimeUnixNano"]) / 1e9,
        int(span.get("endTimeUnixNano") or 0) / 1e9,
        attributes,
        str((span.get("status") or {}).get("code")) in ("2", "STATUS_CODE_ERROR"),
    )


def _parse_otlp_value(value: dict[str, Any]) -> Any:
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()), None)


def _parse_sdk_span(span: dict[str, Any]) -> Span:
    begin_s, end_s = (
        datetime.fromisoformat(span[name]).timestamp() if span.get(name) else 0.0 for name in ("start_time", "end_time")
    )
    return Span(
        str(span["context"]["trace_id"]),
        str(span["context"]["span_id"]),
        str(span.get("parent_id") or ""),
        begin_s,
        end_s,
        dict(span.get("attributes") or {}),
        (span.get("status") or {}).get("status_code") == "ERROR",
    )


def _read_traces(spans: Iterator[Span], reading: _Reading) -> None:
    """Group spans to traces, and those of a conversation to its session, in the order they began."""
    traces: dict[str, dict[str, Span]] = defaultdict(dict)
    for span in spans:
        if span.span in traces[span.trace]:
            reading.notes["spans stood there twice: counted once"] += 1
        traces[span.trace][span.span] = span
    sessions: dict[str, list[Activity]] = defaultdict(list)
    for name, by_id in sorted(traces.items(), key=lambda pair: min(span.begin_s for span in pair[1].values())):
        conversation = next((str(found) for span in by_id.values() if (found := span.find(_CONVERSATION))), name)
        root = _SpanTree(by_id, conversation, reading).build_root()
        if root is not None:
            sessions[conversation].append(root)
    reading.sessions += sessions.values()


def _is_agent(span: Span) -> bool:
    return bool(span.find((_OPERATION,)) == "invoke_agent" or span.find((_KIND,)) == "AGENT")


class _SpanTree:
    """The spans of a trace, as activities."""

    def __init__(self, spans: dict[str, Span], conversation: str, reading: _Reading) -> None:
        self._spans = spans
        self._conversation = conversation
        self._reading = reading
        self._children: dict[str, list[Span]] = defaultdict(list)
        for span in sorted(spans.values(), key=lambda span: (span.begin_s, span.end_s)):
            self._children[span.parent if span.parent in spans else ""].append(span)
        self._prompts: dict[str, list[tuple[float, int, list[int]]]] = defaultdict(list)
        self._counts: Counter[str] = Counter()
        self._n_reached = 0
        self._has_hole = False

    def build_root(self) -> Activity | None:
        """All of the trace; null where it has no call, or one that is not known."""
        roots = self._children[""]
        n_lost = sum(bool(span.parent) for span in roots)
        if n_lost and n_lost < len(roots):
            self._reading.notes["spans whose parents are not there: taken for parts of their trace"] += n_lost
        parts = [self._build(span, self._conversation, 0) for span in roots]
        n_known = self._counts.pop("known", 0)
        if self._has_hole or self._n_reached < len(self._spans):
            # Also where spans are the parents of one another.
            self._reading.notes[
                "traces have a call without its tokens, or spans without an end or a root: left out"
            ] += 1
            self._counts["calls left out with their trace"] += n_known
            n_known = 0
        self._reading.counts.update(self._counts)
        if not n_known:
            return None
        return Activity(min(part.begin_s for part in parts), max(part.end_s for part in parts), parts=parts)

    def _build(self, span: Span, agent: str, depth: int) -> Activity:
        if depth > MAX_DEPTH:
            raise InputError("spans lie too deep", where=f"trace {span.trace[:40]}", allowed=f"{MAX_DEPTH} levels")
        self._n_reached += 1
        if self._is_call(span):
            self._n_reached += self._count_inner(span, depth)
            return self._build_call(span, agent)
        if _is_agent(span):
            # The outermost agent of a conversation goes on with it from trace to trace.
            agent = span.span if self._has_agent_above(span) else agent
        parts = [self._build(child, agent, depth + 1) for child in self._children[span.span]]
        latest_s = max([span.end_s, *(part.end_s for part in parts)])
        if span.end_s < span.begin_s and not parts:
            self._has_hole = True
        has_calls = any(part.n_calls for part in parts)
        return Activity(span.begin_s, max(span.begin_s, latest_s), parts=parts if has_calls else [])

    def _count_inner(self, span: Span, depth: int) -> int:
        """Spans within a call, such as those of its HTTP client."""
        if depth > MAX_DEPTH:
            raise InputError("spans lie too deep", where=f"trace {span.trace[:40]}", allowed=f"{MAX_DEPTH} levels")
        return sum(1 + self._count_inner(child, depth + 1) for child in self._children[span.span])

    def _has_agent_above(self, span: Span) -> bool:
        for _ in range(MAX_DEPTH):
            above = self._spans.get(span.parent)
            if above is None:
                return False
            if _is_agent(above):
                return True
            span = above
        return False

    def _is_call(self, span: Span) -> bool:
        operation, kind = span.find((_OPERATION,)), span.find((_KIND,))
        if operation is not None or kind is not None:
            return operation in _CALLS or (operation is None and kind == "LLM")
        if span.find((_REQUEST_TYPE,)) is not None:
            return span.find((_REQUEST_TYPE,)) in ("chat", "completion")
        return span.find(_INPUT) is not None and not self._children[span.span]

    def _build_call(self, span: Span, agent: str) -> Activity:
        """A call; what lies in it is a part of it. One that failed is like a tool: its time passes."""
        self._reading.n_read += 1
        input_tokens, output_tokens = span.count_tokens(_INPUT), span.count_tokens(_OUTPUT)
        if span.has_failed or output_tokens == 0:
            self._counts["calls that failed: their time passes"] += 1
            return Activity(span.begin_s, max(span.begin_s, span.end_s))
        if not input_tokens or output_tokens is None or span.end_s < span.begin_s:
            self._counts["calls without their tokens, or without an end"] += 1
            self._has_hole = True
            return Activity(span.begin_s, max(span.begin_s, span.end_s))
        self._counts["known"] += 1
        for names in _CACHED:
            # Some report only what was not in the cache as the prompt.
            cached = sum(span.count_tokens((name,)) or 0 for name in names)
            if cached > input_tokens:
                input_tokens += cached
                self._reading.notes["calls count cached tokens beside the prompt: added"] += 1
        prompts = self._prompts[agent]
        earlier = [prompt for prompt in prompts if prompt[0] <= span.begin_s and prompt[1] <= input_tokens]
        # A prompt is continued once: of calls that ran at once, each goes on with its own.
        continued = max(earlier, default=None)
        blocks = []
        if continued is not None:
            prompts.remove(continued)
            blocks = continued[2]
        n_new = input_tokens // SPAN_BLOCK_TOKENS - len(blocks)
        blocks = blocks + [self._reading.number_block((span.trace, span.span, place)) for place in range(n_new)]
        prompts.append((span.end_s, input_tokens, blocks))
        return Activity(span.begin_s, span.end_s, (input_tokens, output_tokens, blocks))
