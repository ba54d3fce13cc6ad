"""Load on the simulated cluster in virtual time: the same raw tables as from a real service, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from workbench.sizing import stopping
from workbench.sizing.config import SweepConfig
from workbench.sizing.driving.levels import Levels
from workbench.sizing.driving.prompts import STEP_ITEMS
from workbench.sizing.simulation.model import Cluster, Marks, Workflow
from workbench.sizing.simulation.service import Service
from workbench.sizing.tables import REQUESTS, STEPS

if TYPE_CHECKING:
    import polars as pl

CHECK_EVERY = 50
Finished = dict[str, list[Any]]
Enough = Callable[[Finished], str | None]
"""Given the finished requests in the order they were sent (columns of the table `requests`): why the step may end."""


def sweep(service: Service, config: SweepConfig) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Drive a simulated service through a sweep in virtual time.

    Parameters
    ----------
    service
        What is simulated.
    config
        Levels or goals, samples, think time, seed; what is about connections has no meaning here.

    Returns
    -------
    requests, steps
        The raw tables; `clock` is virtual, `simulated` true. The same arguments give the same tables.

    Examples
    --------
    >>> from workbench.sizing.config import sweep_config
    >>> requests, steps = sweep(Service(), sweep_config(protocol="function", users=[1, 4], simulated=True))
    >>> steps["users"].to_list(), steps["clock"].to_list()
    ([1, 4], ['virtual', 'virtual'])
    """
    requests, steps = REQUESTS.frame([]), STEPS.frame([])
    levels = Levels(config)
    while (load := levels.following(requests, steps)) is not None:
        sent, held = step(service, config, load, number=steps.height)
        requests, steps = requests.vstack(sent), steps.vstack(held)
    return requests, steps


def verify(service: Service, config: SweepConfig, load: float, predicted_gpus: int) -> pl.DataFrame:
    """Drive the service with the whole load on the predicted GPUs; the table `verification`."""
    from workbench.sizing.verifying import verification

    served = service.model_copy(update={"gpus": predicted_gpus})
    # Longer than a step of the sweep: the prediction lies near the limit, and virtual time costs little.
    longer = config.model_copy(update={"most_samples": 16 * config.most_samples, "tight": config.tight / 4})
    requests, steps = step(served, longer, load)
    return verification(requests, steps, config.goals, predicted_gpus=predicted_gpus, load=load)


def step(service: Service, config: SweepConfig, load: float, *, number: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One load in virtual time: rows of `requests` and `steps`."""
    users = None if config.is_open else int(load)
    rule = stopping.rule(config)
    marks: Marks = "first" if {goal.metric for goal in config.goals} & {"ttft", "itl"} else "end"
    # Each step has random numbers of its own: a load may be measured twice.
    drive = Drive(service, seed=hash((service.seed, config.seed, load, number)), marks=marks)
    most = (users or 0) + 4 * rule.most

    def enough(finished: Finished) -> str | None:
        return stopping.enough(finished, users or 0, rule)

    watched = ("runtime_s", f"{rule.metric}_s")
    if users is None:
        why = drive.arriving(load, enough, most=most, watched=watched)
    else:
        why = drive.closed(users, enough, most=most, think_s=config.think_time_s, watched=watched)
    columns = drive.columns()
    row = {
        "step": number,
        "loop": "open" if config.is_open else "closed",
        "users": users,
        "rate_per_s": load if config.is_open else None,
        "think_s": config.think_time_s,
        "arrivals": config.arrivals,
        "gpus": service.gpus,
        "clock": "virtual",
        "simulated": True,
        "started_at": None,
        "duration_s": drive.cluster.now_s,
        "timeout_s": None,
        "processes": 1,
        "loop_lag_p99_s": None,
        "client_cpu_share": None,
        "stopped": why,
    }
    return REQUESTS.frame(_filled(columns, number)), STEPS.frame([row])


class Drive:
    """One step: users that send, think, and send again, or arrivals at a rate; rows in the order they were sent."""

    def __init__(self, service: Service, *, seed: int, marks: Marks = "end") -> None:
        self.cluster = Cluster(service, seed=seed, marks=marks)
        self.sent: list[Workflow] = []
        self.kept: int | None = None  # how many count, once the step may end
        self._open = 0  # of these, still running
        self._ended = 0

    def closed(
        self, users: int, enough: Enough, *, most: int, think_s: float = 0.0, watched: Iterable[str] = ("runtime_s",)
    ) -> str:
        """So many users; each begins at a random moment within the time that an idle cluster takes."""
        cluster, random = self.cluster, self.cluster.random
        ramp_s = idle_runtime_s(cluster.service) + think_s

        def next_request() -> None:
            self._send(lambda: cluster.at(cluster.now_s + self._thought(think_s), next_request))

        for _ in range(users):
            cluster.at(random.random() * ramp_s, next_request)
        return self._run(enough, most, tuple(watched))

    def arriving(self, rate_per_s: float, enough: Enough, *, most: int, watched: Iterable[str] = ("runtime_s",)) -> str:
        """Poisson arrivals, however many are still running."""
        cluster = self.cluster

        def arrive() -> None:
            self._send(lambda: None)
            cluster.at(cluster.now_s + cluster.random.expovariate(rate_per_s), arrive)

        cluster.at(cluster.random.expovariate(rate_per_s), arrive)
        return self._run(enough, most, tuple(watched))

    def columns(self, names: Iterable[str] | None = None) -> Finished:
        """The finished requests as columns of `requests`, times of the virtual clock."""
        ended = [(place, flow) for place, flow in enumerate(self.sent) if flow.ended_s is not None]
        kept = len(self.sent) if self.kept is None else self.kept
        chosen = ["request", "tail", *_COLUMNS] if names is None else dict.fromkeys(names)
        found: Finished = {name: [_COLUMNS[name](flow) for _, flow in ended] for name in chosen if name in _COLUMNS}
        if "request" in chosen:
            found["request"] = [place for place, _ in ended]
            found["tail"] = [place >= kept for place, _ in ended]
        return found

    def _run(self, enough: Enough, most: int, watched: tuple[str, ...]) -> str:
        """Until there is enough, and then, the load kept on, until the last that counts has ended."""
        why = None
        while why is None:
            self._until(self._ended + CHECK_EVERY, most)
            why = "samples" if len(self.sent) >= most else enough(self.columns(watched))
        self.kept = len(self.sent)
        self._open = sum(workflow.ended_s is None for workflow in self.sent)
        self.cluster.run_while(lambda: self._open > 0)
        return why

    def _until(self, ended: int, most: int) -> None:
        self.cluster.run_while(lambda: self._ended < ended and len(self.sent) < most)

    def _send(self, then: Callable[[], None]) -> None:
        place = len(self.sent)

        def ended(_: Workflow) -> None:
            self._ended += 1
            self._open -= self.kept is not None and place < self.kept
            then()

        self.sent.append(self.cluster.start(ended))

    def _thought(self, mean_s: float) -> float:
        return self.cluster.random.expovariate(1 / mean_s) if mean_s else 0.0


def idle_runtime_s(service: Service) -> float:
    """What one workflow takes on an idle cluster, on average."""
    step_s = service.decode_base_s + service.decode_per_sequence_s
    call_s = service.input_tokens / service.prefill_tokens_per_s + service.output_tokens * step_s
    return service.calls * call_s + (service.calls - 1) * (service.tool_s + service.shared_s)


def _filled(columns: Finished, number: int) -> Finished:
    n = len(columns["request"])
    return columns | {
        "step": [number] * n,
        "item": [number * STEP_ITEMS + place for place in columns["request"]],
        "intended_s": columns["sent_s"],
        "outcome": ["ok"] * n,
        "status": [None] * n,
        "retries": [0] * n,
    }


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


_COLUMNS: dict[str, Callable[[Workflow], Any]] = {
    "sent_s": lambda flow: flow.sent_s,
    "ended_s": lambda flow: flow.ended_s,
    "runtime_s": lambda flow: _span(flow.sent_s, flow.ended_s),
    "llm_s": lambda flow: [_span(call.sent_s, call.ended_s) for call in flow.calls],
    "server_runtime_s": lambda flow: _span(flow.started_s, flow.ended_s),
    "ttft_s": lambda flow: _span(flow.sent_s, flow.calls[0].first_s),
    "itl_s": _itl_s,
    "input_tokens": lambda flow: sum(call.input_tokens for call in flow.calls),
    "output_tokens": lambda flow: sum(call.output_tokens for call in flow.calls),
}
