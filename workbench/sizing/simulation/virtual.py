"""Load on the simulated cluster in virtual time: the same raw rows as from a real service, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.sizing.simulation.model import Cluster, Marks, Workflow
from workbench.sizing.simulation.service import Service

CHECK_EVERY = 50
Enough = Callable[[Mapping[str, list[Any]]], str | None]
"""Given the finished requests in the order they were sent (columns of the table `requests`): why the step may end."""


class Drive:
    """One step: users that send, think, and send again, or arrivals at a rate; rows in the order they were sent."""

    def __init__(self, service: Service, *, seed: int, marks: Marks = "end") -> None:
        self.cluster = Cluster(service, seed=seed, marks=marks)
        self.sent: list[Workflow] = []
        self.kept: int | None = None  # how many count, once the step may end
        self._open = 0  # of these, still running
        self._ended = 0

    def closed(self, users: int, enough: Enough, *, most: int, think_s: float = 0.0) -> str:
        """So many users; each begins at a random moment within the time that an idle cluster takes."""
        cluster, random = self.cluster, self.cluster.random
        ramp_s = idle_runtime_s(cluster.service)

        def next_request() -> None:
            self._send(lambda: cluster.at(cluster.now_s + self._thought(think_s), next_request))

        for _ in range(users):
            cluster.at(random.random() * ramp_s, next_request)
        return self._run(enough, most)

    def arriving(self, rate_per_s: float, enough: Enough, *, most: int) -> str:
        """Poisson arrivals, however many are still running."""
        cluster = self.cluster

        def arrive() -> None:
            self._send(lambda: None)
            cluster.at(cluster.now_s + cluster.random.expovariate(rate_per_s), arrive)

        cluster.at(cluster.random.expovariate(rate_per_s), arrive)
        return self._run(enough, most)

    def _run(self, enough: Enough, most: int) -> str:
        """Until there is enough, and then, the load kept on, until the last that counts has ended."""
        why = None
        while why is None:
            check = self._ended + CHECK_EVERY
            self.cluster.run_while(lambda check=check: self._ended < check and len(self.sent) < most)
            why = "samples" if len(self.sent) >= most else enough(self.columns())
        self.kept = len(self.sent)
        self._open = sum(workflow.ended_s is None for workflow in self.sent)
        self.cluster.run_while(lambda: self._open > 0)
        return why

    def _send(self, then: Callable[[], None]) -> None:
        place = len(self.sent)

        def ended(_: Workflow) -> None:
            self._ended += 1
            self._open -= self.kept is not None and place < self.kept
            then()

        self.sent.append(self.cluster.start(ended))

    def _thought(self, mean_s: float) -> float:
        return self.cluster.random.expovariate(1 / mean_s) if mean_s else 0.0

    def columns(self) -> dict[str, list[Any]]:
        """The finished requests as columns of `requests`, times of the virtual clock."""
        ended = [(place, flow) for place, flow in enumerate(self.sent) if flow.ended_s is not None]
        kept = len(self.sent) if self.kept is None else self.kept
        return {
            "request": [place for place, _ in ended],
            "sent_s": [flow.sent_s for _, flow in ended],
            "ended_s": [flow.ended_s for _, flow in ended],
            "runtime_s": [_span(flow.sent_s, flow.ended_s) for _, flow in ended],
            "llm_s": [[_span(call.sent_s, call.ended_s) for call in flow.calls] for _, flow in ended],
            "server_runtime_s": [_span(flow.started_s, flow.ended_s) for _, flow in ended],
            "ttft_s": [_span(flow.sent_s, flow.calls[0].first_s) for _, flow in ended],
            "itl_s": [_itl_s(flow) for _, flow in ended],
            "input_tokens": [sum(call.input_tokens for call in flow.calls) for _, flow in ended],
            "output_tokens": [sum(call.output_tokens for call in flow.calls) for _, flow in ended],
            "tail": [place >= kept for place, _ in ended],
        }


def idle_runtime_s(service: Service) -> float:
    """What one workflow takes on an idle cluster, on average."""
    step_s = service.decode_base_s + service.decode_per_sequence_s
    call_s = service.input_tokens / service.prefill_tokens_per_s + service.output_tokens * step_s
    return service.calls * call_s + (service.calls - 1) * (service.tool_s + service.shared_s)


def _span(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _itl_s(flow: Workflow) -> float | None:
    gaps = [
        (call.ended_s - call.first_s, call.output_tokens - 1)
        for call in flow.calls
        if call.ended_s is not None and call.first_s is not None and call.output_tokens > 1
    ]
    tokens = sum(count for _, count in gaps)
    return sum(span for span, _ in gaps) / tokens if tokens else None
