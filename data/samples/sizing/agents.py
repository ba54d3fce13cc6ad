"""Write `agents.jsonl`, the spans of an invented research agent (SIMULATED): python data/samples/sizing/agents.py

It plans, lets two to four sub-agents search at once, and writes an answer from what they found. Times of calls are
those of a service with 40,000 prompt tokens and 60 answer tokens a second; times of searches are drawn.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

N_TASKS = 24
PREFILL_TOKENS_PER_S, DECODE_TOKENS_PER_S = 40_000, 60
START_NS = 1_790_000_000_000_000_000


class Recorder:
    """Spans of one task, and a clock for each branch."""

    def __init__(self, number: int) -> None:
        self.trace = f"{0xA6E27 + number:032x}"
        self.draw = random.Random(f"agents/{number}")
        self.start_ns = START_NS + number * 600_000_000_000
        self.spans: list[dict[str, Any]] = []

    def add_span(self, name: str, parent: str, begin_s: float, end_s: float, **attributes: Any) -> str:
        span = f"{len(self.spans) + 1:016x}"
        self.spans.append({
            "traceId": self.trace, "spanId": span, "parentSpanId": parent, "name": name, "kind": 1,
            "startTimeUnixNano": str(self.start_ns + round(1e9 * begin_s)),
            "endTimeUnixNano": str(self.start_ns + round(1e9 * end_s)),
            "attributes": [
                {"key": f"gen_ai.{key}", "value": {"intValue" if isinstance(value, int) else "stringValue": str(value)}}
                for key, value in attributes.items()
            ],
        })  # fmt: skip
        return span

    def call(self, parent: str, at_s: float, input_tokens: int, output_tokens: int) -> float:
        end_s = at_s + input_tokens / PREFILL_TOKENS_PER_S + output_tokens / DECODE_TOKENS_PER_S
        tokens = {"usage.input_tokens": input_tokens, "usage.output_tokens": output_tokens}
        self.add_span("chat", parent, at_s, end_s, **{"operation.name": "chat"}, **tokens)
        return end_s

    def search(self, parent: str, at_s: float) -> float:
        end_s = at_s + self.draw.lognormvariate(0.2, 0.5)
        self.add_span("search", parent, at_s, end_s, **{"operation.name": "execute_tool", "tool.name": "search"})
        return end_s

    def run_searcher(self, parent: str, begin_s: float) -> tuple[float, int]:
        """A sub-agent: searches and reads by turns. When it has ended, and the tokens of what it found."""
        agent = self.add_span(
            "invoke_agent", parent, begin_s, begin_s, **{"operation.name": "invoke_agent", "agent.name": "searcher"}
        )
        place, at_s, context = len(self.spans) - 1, begin_s + 0.01, self.draw.randint(700, 1100)
        for _ in range(self.draw.randint(2, 4)):
            output_tokens = self.draw.randint(30, 90)
            at_s = self.search(agent, self.call(agent, at_s, context, output_tokens) + 0.02) + 0.02
            context += output_tokens + self.draw.randint(600, 2500)
        found_tokens = self.draw.randint(120, 300)
        end_s = self.call(agent, at_s, context, found_tokens)
        self.spans[place]["endTimeUnixNano"] = str(self.start_ns + round(1e9 * end_s))
        return end_s, found_tokens

    def run_task(self) -> Iterator[dict[str, Any]]:
        agent = self.add_span("invoke_agent", "", 0, 0, **{"operation.name": "invoke_agent", "agent.name": "writer"})
        context, plan_tokens = self.draw.randint(900, 1600), self.draw.randint(80, 200)
        at_s = self.call(agent, 0.01, context, plan_tokens) + 0.05
        found = [self.run_searcher(agent, at_s) for _ in range(self.draw.randint(2, 4))]
        context += plan_tokens + sum(tokens for _, tokens in found)
        end_s = self.call(agent, max(end_s for end_s, _ in found) + 0.05, context, self.draw.randint(300, 700))
        self.spans[0]["endTimeUnixNano"] = str(self.start_ns + round(1e9 * end_s))
        return iter(self.spans)


def main() -> None:
    """One line for each task."""
    lines = []
    for number in range(N_TASKS):
        spans = list(Recorder(number).run_task())
        lines.append(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, separators=(",", ":")))
    (Path(__file__).parent / "agents.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
