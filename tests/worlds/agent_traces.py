"""Programs of agents whose structure is known, recorded as spans or as WEKA traces (SIMULATED).

A program is drawn first: calls, tools, sub-agents, one after the other or at once. It runs in a plain recursion with
drawn durations; its recording is all that the product sees. Then all calls take other times: the product's plan must
take as long as the program itself does.

    python -m tests.worlds.agent_traces 1000 --first 0 --show 10
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.sizing.load.agent_tasks import AgentTask
from workbench.sizing.load.agent_traces import read_agent_tasks

FORMS = ("otlp", "otlp lines", "sdk lines", "weka", "weka lines")
TRAITS = (
    "wrappers", "nested calls", "inner spans", "agent usage", "failed calls", "cached beside", "twice", "no root",
    "jitter", "bare branches", "missing tokens", "persons", "openinference", "old names", "shuffled",
)  # fmt: skip
MAX_ERROR = 0.02
START_S = 1_790_000_000.0


@dataclass
class Node:
    """A part of a program. `kind`: call, tool, failed, agent, parallel or sequence.

    `wait_s`: Own work of the agent before it begins.
    """

    kind: str
    wait_s: float = 0.0
    duration_s: float = 0.0
    tokens: tuple[int, int] = (0, 0)
    parts: list[Node] = field(default_factory=list)
    number: int = -1
    begin_s: float = 0.0
    end_s: float = 0.0

    def iterate(self) -> Iterator[Node]:
        """It and all that is in it."""
        yield self
        for part in self.parts:
            yield from part.iterate()


def run_program(node: Node, begin_s: float, time_call: Callable[[Node], float]) -> float:
    """When a program that begins then has ended: the truth."""
    node.begin_s = at_s = begin_s + node.wait_s
    if node.kind == "call":
        at_s += time_call(node)
    elif node.kind in ("tool", "failed"):
        at_s += node.duration_s
    elif node.kind == "parallel":
        at_s = max(run_program(part, at_s, time_call) for part in node.parts)
    else:
        for part in node.parts:
            at_s = run_program(part, at_s, time_call)
    node.end_s = at_s
    return at_s


class World:
    """A world of a seed: programs with their traits, and their recording."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"agents/{seed}")
        self.seed = seed
        self.form = self.draw.choice(FORMS)
        weka = self.form.startswith("weka")
        allowed = ("jitter", "bare branches", "persons", "shuffled") if weka else TRAITS
        self.traits = {trait for trait in allowed if self.draw.random() < 0.2}
        if {"openinference", "old names"} <= self.traits:
            self.traits -= {"old names"}
        self.sessions = [[self.draw_task() for _ in range(self.n_tasks())] for _ in range(self.draw.randint(1, 4))]
        for session in self.sessions:
            calls = [node for task in session for node in task.iterate() if node.kind == "call"]
            for number, node in enumerate(calls):
                node.number = number

    def n_tasks(self) -> int:
        return self.draw.randint(2, 3) if "persons" in self.traits else 1

    def draw_task(self) -> Node:
        task = self.draw_agent(2)
        task.wait_s = 0.0
        if self.form.startswith("weka") or not any(node.kind == "call" for node in task.iterate()):
            # WEKA's traces begin and end with a request.
            task.parts = [self.draw_call(), *task.parts, self.draw_call()]
            task.parts[0].wait_s = 0.0
        return task

    def draw_call(self) -> Node:
        tokens = self.draw.randint(100, 4000), self.draw.randint(1, 400)
        wait_s = self.draw.uniform(0.002, 0.2)
        return Node("call", wait_s, 0.05 + self.draw.lognormvariate(0.5, 0.8), tokens)

    def draw_agent(self, depth: int) -> Node:
        parts = []
        for _ in range(self.draw.randint(2, 5)):
            kinds = (
                ["call"] * 4
                + ["tool"] * 2
                + ["parallel"] * 2
                + ["agent"]
                + ["failed"] * ("failed calls" in self.traits)
            )
            kind = self.draw.choice(kinds)
            wait_s = self.draw.uniform(0.002, 0.2)
            if kind == "call" or (depth == 0 and kind == "agent"):
                parts.append(self.draw_call())
            elif kind in ("tool", "failed"):
                parts.append(Node(kind, wait_s, self.draw.lognormvariate(0.0, 1.0)))
            elif kind == "agent":
                parts.append(self.draw_agent(depth - 1))
            else:
                parts.append(
                    Node("parallel", wait_s, parts=[self.draw_branch(depth) for _ in range(self.draw.randint(2, 4))])
                )
        return Node("agent", self.draw.uniform(0.002, 0.2), parts=parts)

    def draw_branch(self, depth: int) -> Node:
        """What runs at once begins at about one moment; a tool that runs beside calls is in no WEKA trace."""
        branch = self.draw_any_branch(depth)
        if branch.kind == "tool" and self.form.startswith("weka"):
            branch = self.draw_call()
        (branch.parts[0] if branch.kind == "sequence" else branch).wait_s = self.draw.uniform(0.0, 0.01)
        return branch

    def draw_any_branch(self, depth: int) -> Node:
        if depth > 0 and self.draw.random() < 0.5:
            return self.draw_agent(depth - 1)
        if "bare branches" in self.traits and self.draw.random() < 0.5:
            return Node("sequence", parts=[self.draw_call() for _ in range(2)])
        return (
            self.draw_call()
            if self.draw.random() < 0.7
            else Node("tool", 0.0, 0.05 + self.draw.lognormvariate(0.5, 0.8))
        )

    def record(self, folder: Path) -> Path:
        """Run all programs with their recorded durations, and write what was seen."""
        documents = []
        for number, session in enumerate(self.sessions):
            at_s = START_S + 3600.0 * number
            for task in session:
                at_s = run_program(task, at_s, lambda node: node.duration_s)
                at_s += self.draw.uniform(100, 900)
            documents.append(
                self.write_weka(session) if self.form.startswith("weka") else self.write_spans(number, session)
            )
        if self.form in ("otlp", "weka"):
            for number, document in enumerate(documents):
                (folder / f"{number:03}.json").write_text(json.dumps(document, indent=self.draw.choice([None, 1])))
            return folder
        path = folder / "traces.jsonl"
        if self.form == "sdk lines":
            documents = [span for spans in documents for span in spans]
        path.write_text("".join(json.dumps(document) + "\n" for document in documents))
        return path

    def jitter(self, time_s: float) -> float:
        return time_s + self.draw.uniform(-0.0005, 0.0005) if "jitter" in self.traits else time_s

    # What WEKA has: a session with its calls, sub-agents with theirs; tools leave gaps.

    def write_weka(self, session: list[Node]) -> dict[str, Any]:
        self.base_s = session[0].begin_s
        self.next_block = 0
        requests = [entry for task in session for entry in self.list_weka(task, [[]])]
        if "shuffled" in self.traits:
            self.draw.shuffle(requests)
        return {"id": "s", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": requests}

    def list_weka(self, node: Node, context: list[list[int]]) -> list[dict[str, Any]]:
        """Entries of an agent; `context` holds the blocks of its last prompt."""
        entries = []
        for part in node.parts:
            if part.kind == "call":
                n_new = self.draw.randint(1, 20)
                context[0] = context[0] + list(range(self.next_block, self.next_block + n_new))
                self.next_block += n_new
                begin_s, end_s = self.jitter(part.begin_s) - self.base_s, self.jitter(part.end_s) - self.base_s
                part.tokens = 64 * len(context[0]) + self.draw.randint(0, 63), part.tokens[1]
                entries.append({
                    "t": max(0.0, begin_s), "type": self.draw.choice("ns"), "model": "m", "in": part.tokens[0],
                    "out": part.tokens[1], "hash_ids": context[0], "api_time": end_s - max(0.0, begin_s),
                })  # fmt: skip
            elif part.kind == "agent":
                entries.append({
                    "t": part.begin_s - self.base_s, "type": "subagent", "agent_id": "a",
                    "duration_ms": 1000 * (part.end_s - part.begin_s), "requests": self.list_weka(part, [[]]),
                })  # fmt: skip
            elif part.kind == "parallel":
                for branch in part.parts:
                    own = Node("agent", parts=branch.parts if branch.kind == "sequence" else [branch])
                    entries += self.list_weka(own, [[*context[0]]])
        return entries

    # Spans of OpenTelemetry.

    def write_spans(self, number: int, session: list[Node]) -> Any:
        self.spans: list[dict[str, Any]] = []
        self.session = number
        names = []
        for place, task in enumerate(session):
            # A conversation of several tasks is one trace with turns in it, or a trace for each.
            same = self.draw.random() < 0.5
            trace = f"{number:032x}" if same else f"{number * 100 + place + 7:032x}"
            names.append(trace)
            self.add_span(task, trace, "" if "no root" not in self.traits else "ffffffffffffffff")
        if "shuffled" in self.traits:
            self.draw.shuffle(self.spans)
        if "twice" in self.traits:
            self.spans += self.draw.sample(self.spans, max(1, len(self.spans) // 5))
        if self.form == "sdk lines":
            return [to_sdk(span) for span in self.spans]
        return {
            "resourceSpans": [
                {
                    "resource": {},
                    "scopeSpans": [{"scope": {"name": "x"}, "spans": [to_otlp(span) for span in self.spans]}],
                }
            ]
        }

    def new_span(self, node: Node, trace: str, parent: str, attributes: dict[str, Any], *, failed: bool = False) -> str:
        span = f"{len(self.spans) + 1:016x}"
        attributes = attributes | {"gen_ai.conversation.id": f"c{self.session}"}
        begin_s = self.jitter(node.begin_s)
        self.spans.append({
            "trace": trace, "span": span, "parent": parent, "begin_s": begin_s,
            "end_s": max(begin_s, self.jitter(node.end_s)), "attributes": attributes, "failed": failed,
        })  # fmt: skip
        return span

    def name_kind(self, kind: str) -> dict[str, Any]:
        if "openinference" in self.traits:
            return {"openinference.span.kind": {"agent": "AGENT", "call": "LLM", "tool": "TOOL"}[kind]}
        return {"gen_ai.operation.name": {"agent": "invoke_agent", "call": "chat", "tool": "execute_tool"}[kind]}

    def name_tokens(self, tokens: tuple[int, int]) -> dict[str, Any]:
        if "openinference" in self.traits:
            return {"llm.token_count.prompt": tokens[0], "llm.token_count.completion": tokens[1]}
        if "old names" in self.traits:
            return {"gen_ai.usage.prompt_tokens": tokens[0], "gen_ai.usage.completion_tokens": tokens[1]}
        return {"gen_ai.usage.input_tokens": tokens[0], "gen_ai.usage.output_tokens": tokens[1]}

    def add_span(self, node: Node, trace: str, parent: str) -> None:
        if node.kind in ("parallel", "sequence"):
            for part in node.parts:
                self.add_span(part, trace, parent)
            return
        if "wrappers" in self.traits and node.kind in ("call", "tool"):
            parent = self.new_span(node, trace, parent, {"graph.node": "x"})
        if node.kind == "call":
            tokens = node.tokens
            attributes = self.name_kind("call") | self.name_tokens(tokens)
            if "cached beside" in self.traits and "openinference" not in self.traits and self.draw.random() < 0.5:
                own = max(1, tokens[0] // 10)
                attributes |= self.name_tokens((own, tokens[1]))
                attributes["gen_ai.usage.cache_read.input_tokens"] = tokens[0] - own
            if "missing tokens" in self.traits and self.draw.random() < 0.3:
                attributes = self.name_kind("call")
                node.tokens = (0, 0)
            span = self.new_span(node, trace, parent, attributes)
            if "nested calls" in self.traits:
                self.new_span(node, trace, span, self.name_kind("call") | self.name_tokens(tokens))
            if "inner spans" in self.traits:
                self.new_span(node, trace, span, {"http.method": "POST"})
            return
        if node.kind == "failed":
            self.new_span(node, trace, parent, self.name_kind("call") | self.name_tokens((50, 3)), failed=True)
            return
        attributes = self.name_kind(node.kind)
        if node.kind == "agent" and "agent usage" in self.traits:
            attributes |= self.name_tokens((999_999, 99_999))
        span = self.new_span(node, trace, parent, attributes)
        for part in node.parts:
            self.add_span(part, trace, span)


def to_otlp(span: dict[str, Any]) -> dict[str, Any]:
    """A span in OTLP/JSON."""

    def value(found: Any) -> dict[str, Any]:
        return {"intValue": str(found)} if isinstance(found, int) else {"stringValue": found}

    return {
        "traceId": span["trace"], "spanId": span["span"], "parentSpanId": span["parent"], "name": "x", "kind": 1,
        "startTimeUnixNano": str(int(span["begin_s"] * 1e9)), "endTimeUnixNano": str(int(span["end_s"] * 1e9)),
        "attributes": [{"key": key, "value": value(found)} for key, found in span["attributes"].items()],
        "status": {"code": 2} if span["failed"] else {},
    }  # fmt: skip


def to_sdk(span: dict[str, Any]) -> dict[str, Any]:
    """A span as the SDK's `to_json` writes it."""

    def moment(time_s: float) -> str:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return {
        "name": "x", "context": {"trace_id": f"0x{span['trace']}", "span_id": f"0x{span['span']}", "trace_state": "[]"},
        "parent_id": f"0x{span['parent']}" if span["parent"] else None, "kind": "SpanKind.INTERNAL",
        "start_time": moment(span["begin_s"]), "end_time": moment(span["end_s"]),
        "status": {"status_code": "ERROR" if span["failed"] else "UNSET"}, "attributes": span["attributes"],
    }  # fmt: skip


@dataclass
class Judged:
    """What is wrong of a world; `refused` says why nothing was read."""

    seed: int
    form: str
    traits: list[str]
    wrong: list[str]
    refused: str = ""
    n_tasks: int = 0
    n_unclear: int = 0


def judge_world(seed: int) -> Judged:
    """Read the recording and hold it against the program."""
    world = World(seed)
    judged = Judged(seed, world.form, sorted(world.traits), [])
    with tempfile.TemporaryDirectory() as folder:
        path = world.record(Path(folder))
        try:
            read = read_agent_tasks(path)
        except WorkbenchError as error:
            judged.refused = str(error)
            return judged
    if sum(read.counts.values()) != read.n_read:
        judged.wrong.append(f"{read.n_read} calls read, {read.counts}")
    by_session: dict[int, list[AgentTask]] = {}
    for task in read.tasks:
        by_session.setdefault(task.session, []).append(task)
    programs = [list_whole(session) for session in world.sessions]
    left = [tasks for tasks in programs if tasks]
    if not read.notes and len(by_session) != len(left):
        judged.wrong.append(f"{len(by_session)} sessions of {len(left)}")
    if any("left out" in note for note in read.notes):
        # A trace with a hole takes its whole conversation's order with it: only what is there is judged.
        return judged
    for session, tasks in zip(programs, by_session.values(), strict=True):
        if len(tasks) != len(session):
            judged.wrong.append(f"{len(tasks)} tasks of {len(session)}")
            continue
        for program, task in zip(session, tasks, strict=True):
            judge_task(world, program, task, judged)
    return judged


def list_whole(session: list[Node]) -> list[Node]:
    return [task for task in session if any(node.kind == "call" for node in task.iterate())]


def judge_task(world: World, program: Node, task: AgentTask, judged: Judged) -> None:
    """The same calls, and the same time when calls take other times."""
    judged.n_tasks += 1
    judged.n_unclear += bool(task.n_unclear)
    calls = [node for node in program.iterate() if node.kind == "call"]
    found = Counter((call.input_tokens, call.output_tokens) for call in task.calls)
    if found != Counter(node.tokens for node in calls):
        judged.wrong.append(f"{len(task.calls)} calls of {len(calls)}, or other tokens")
        return
    durations_s = {node.tokens: node.end_s - node.begin_s for node in calls}
    if len(durations_s) < len(calls) or task.n_unclear:
        return  # two calls that cannot be told apart; or the product says that it does not know
    recorded = [(node, node.begin_s, node.end_s) for node in program.iterate()]
    for what, spread in (("as recorded", (1.0, 1.0)), ("twice as slow", (2.0, 2.0)), ("drawn", (0.5, 2.0))):
        new_s = {tokens: duration_s * world.draw.uniform(*spread) for tokens, duration_s in durations_s.items()}
        planned_s = task.time_task([new_s[call.input_tokens, call.output_tokens] for call in task.calls])
        truth_s = -program.begin_s + run_program(
            program, program.begin_s - program.wait_s, lambda node, new_s=new_s: new_s[node.tokens]
        )
        for node, begin_s, end_s in recorded:
            node.begin_s, node.end_s = begin_s, end_s
        if abs(planned_s - truth_s) > MAX_ERROR * truth_s + 0.02:
            judged.wrong.append(f"{what}: {planned_s:.3f} s, the program takes {truth_s:.3f} s")


def main() -> None:
    """Judge worlds and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=10)
    asked = parser.parse_args()
    found = [judge_world(seed) for seed in range(asked.first, asked.first + asked.count)]
    wrong, refused = [one for one in found if one.wrong], [one for one in found if one.refused]
    n_tasks, n_unclear = sum(one.n_tasks for one in found), sum(one.n_unclear for one in found)
    print(f"{len(found)} worlds: {len(wrong)} wrong, {len(refused)} refused; {n_unclear} of {n_tasks} tasks unclear")
    print(Counter("missing tokens" in one.traits for one in refused))
    for one in (wrong + refused)[: asked.show]:
        print(one.seed, one.form, one.traits, one.wrong[:3], one.refused[:300])
    print(Counter(trait for one in wrong for trait in one.traits).most_common())
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
