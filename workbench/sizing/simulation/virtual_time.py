"""Runs sweeps on the simulated cluster in virtual time and returns the raw tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from workbench.core.errors import ConfigError
from workbench.sizing.config import SweepConfig
from workbench.sizing.estimation import metrics
from workbench.sizing.load import sweep_plan
from workbench.sizing.load.agent_tasks import AgentTask, NextTask, TaskQueue
from workbench.sizing.load.agent_traces import load_agent_tasks
from workbench.sizing.load.arrival_processes import PROCESSES, ArrivalSettings
from workbench.sizing.load.request_plan import STEP_ITEMS
from workbench.sizing.load.request_trace import read_request_trace
from workbench.sizing.load.sweep_plan import LevelSchedule
from workbench.sizing.simulation.cluster_model import Cluster, Conversation, Marks, Service, Workflow
from workbench.sizing.tables import REQUESTS, STEPS

CHECK_EVERY_REQUESTS = 50
RequestColumns = dict[str, list[Any]]
StopCheck = Callable[[RequestColumns], str | None]
"""Given the finished requests in the order they were sent (columns of the table `requests`): why the step may end."""

# What a service in virtual time has no answer, no refusal and no stream for.
UNKNOWN_COLUMNS = (
    *("answer_bytes", "answer_hash", "retry_after_s", "worker", "right"),
    *("streamed_tokens", "later_tokens", "event_tokens", "stream", "longest_gap_s", "finish_reason"),
)


def simulate_sweep(service: Service, config: SweepConfig) -> tuple[pl.DataFrame, pl.DataFrame]:
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
    >>> from workbench.sizing.config import build_sweep_config
    >>> config = build_sweep_config(protocol="function", users=[1, 4], simulated=True)
    >>> requests, steps = simulate_sweep(Service(), config)
    >>> steps["users"].to_list(), steps["clock"].to_list()
    ([1, 4], ['virtual', 'virtual'])
    """
    requests, steps = REQUESTS.frame([]), STEPS.frame([])
    levels, tasks = LevelSchedule(config), list_agent_tasks(config)
    while (load := levels.next_level(requests, steps)) is not None:
        sent, step = simulate_step(service, config, load, number=steps.height, tasks=tasks)
        requests, steps = requests.vstack(sent), steps.vstack(step)
    return requests, steps


def simulate_verification(service: Service, config: SweepConfig, load: float, predicted_gpus: int) -> pl.DataFrame:
    """Drive the service with the whole load on the predicted GPUs; the table `verification`."""
    from workbench.sizing.estimation.verification import verify_goals

    served = service.model_copy(update={"gpus": predicted_gpus})
    # Longer than a step of the sweep: the prediction lies near the limit, and virtual time costs little.
    longer = config.model_copy(update={"most_samples": 16 * config.max_samples, "tight": config.tight / 4})
    requests, steps = simulate_step(served, longer, load)
    return verify_goals(requests, steps, config.goals, predicted_gpus=predicted_gpus, load=load)


def simulate_step(
    service: Service, config: SweepConfig, load: float, *, number: int = 0, tasks: Sequence[AgentTask] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Simulate one load in virtual time: rows of `requests` and `steps`. `tasks`: As `list_agent_tasks` reads them."""
    users = None if config.is_open else int(load)
    rule = sweep_plan.build_stop_rule(config)
    marks: Marks = "first" if metrics.needs_first_token(goal.metric for goal in config.goals) else "end"
    # Each step has random numbers of its own: a load may be measured twice.
    drive = VirtualDriver(
        service,
        seed=hash((service.seed, config.seed, load, number)),
        marks=marks,
        tasks=list_agent_tasks(config) if tasks is None else tasks,
        tool_factor=config.tool_factor,
    )
    n_warmup = (users or 0) * config.turns
    max_requests = n_warmup + 4 * rule.max_samples

    def check_stop_rule(finished: RequestColumns) -> str | None:
        return sweep_plan.find_stop_reason(finished, n_warmup, rule)

    watched = rule.columns
    if users is None:
        reason = drive.run_open_loop(
            load, check_stop_rule, max_requests=max_requests, watched=watched, due=_list_arrivals(config, load, number)
        )
    else:
        reason = drive.run_closed_loop(
            users,
            check_stop_rule,
            max_requests=max_requests,
            think_s=config.think_time_s,
            turns=config.turns,
            watched=watched,
        )
    columns = drive.request_columns()
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
        "stopped": reason,
    }
    n = len(columns["request"])
    constant_columns = columns | {
        "step": [number] * n,
        "item": [number * STEP_ITEMS + place for place in columns["request"]],
        "outcome": ["ok"] * n,
        "status": [None] * n,
        "retries": [0] * n,
        **{name: [None] * n for name in UNKNOWN_COLUMNS},
    }
    return REQUESTS.frame(constant_columns), STEPS.frame([row])


def list_agent_tasks(config: SweepConfig) -> list[AgentTask]:
    """The tasks that a sweep sends; empty where requests are the service's own."""
    return [] if config.agent_tasks is None else load_agent_tasks(config).tasks


def _list_arrivals(config: SweepConfig, rate_per_s: float, number: int) -> Iterator[float] | None:
    """Times of the arrivals; null in a closed loop, and for a Poisson process, which the cluster draws."""
    if config.arrivals in ("users", "poisson"):
        return None
    trace_s = [] if config.trace is None else _read_arrivals(config)
    settings = ArrivalSettings(rate_per_s, f"{config.seed}/{number}/arrivals", config.arrivals_cv, trace_s)
    return PROCESSES[config.arrivals].iterate_times(settings)


def _read_arrivals(config: SweepConfig) -> list[float]:
    assert config.trace is not None
    trace = read_request_trace(config.trace, config.trace_replay)
    if trace.sessions:
        do = "set live to True and protocol to openai"
        raise ConfigError("only a live run replays a trace of sessions", where="trace", found=config.trace, do=do)
    return trace.times_s


class VirtualDriver:
    """One step: users that send, think, and send again, or arrivals at a rate; rows in the order they were sent."""

    def __init__(
        self,
        service: Service,
        *,
        seed: int,
        marks: Marks = "end",
        tasks: Sequence[AgentTask] = (),
        tool_factor: float = 1.0,
    ) -> None:
        self._tasks = tasks
        self._task_queue = TaskQueue(tasks, str(seed)) if tasks else None
        self._tool_factor = tool_factor
        self.cluster = Cluster(service, seed=seed, marks=marks)
        self.sent: list[Workflow] = []
        self.kept: int | None = None  # how many count, once the step may end
        self._open = 0  # of these, still running
        self._ended = 0

    def run_closed_loop(
        self,
        users: int,
        enough: StopCheck,
        *,
        max_requests: int,
        think_s: float = 0.0,
        turns: int = 1,
        watched: Iterable[str] = ("runtime_s",),
    ) -> str:
        """Run users in a closed loop; each begins at a random moment within the time that an idle cluster takes.

        A session of several `turns` is a conversation; the first one of a user is shorter, so that users differ.
        """
        cluster, random = self.cluster, self.cluster.random
        ramp_s = think_s + (
            statistics.fmean(task.recorded_s for task in self._tasks)
            if self._tasks
            else mean_idle_runtime_s(cluster.service)
        )

        def begin_session(n_turns: int) -> None:
            send_turn(Conversation() if turns > 1 else None, 1, n_turns)

        def send_turn(conversation: Conversation | None, turn: int, n_turns: int) -> None:
            def continue_session() -> None:
                next_s = cluster.now_s + self._draw_think_time(think_s)
                if turn < n_turns:
                    cluster.schedule_at(next_s, send_turn, conversation, turn + 1, n_turns)
                else:
                    cluster.schedule_at(next_s, begin_session, turns)

            self._send_request(continue_session, conversation, None if conversation is None else turn)

        def run_tasks(numbers: Iterator[NextTask]) -> None:
            def go_on() -> None:
                cluster.schedule_at(cluster.now_s + self._draw_think_time(think_s), run_tasks, numbers)

            self._send_request(go_on, task=self._tasks[next(numbers).number])

        for number in range(users):
            begin_s = random.random() * ramp_s
            if self._task_queue is None:
                cluster.schedule_at(begin_s, begin_session, 1 + number % turns)
            else:
                cluster.schedule_at(begin_s, run_tasks, self._task_queue.iterate_for_user())
        return self._run_until_enough(enough, max_requests, tuple(watched))

    def run_open_loop(
        self,
        rate_per_s: float,
        enough: StopCheck,
        *,
        max_requests: int,
        watched: Iterable[str] = ("runtime_s",),
        due: Iterator[float] | None = None,
    ) -> str:
        """Arrivals at the times `due`, by default a Poisson process, however many are still running."""
        cluster = self.cluster

        def next_s() -> float:
            return cluster.now_s + cluster.random.expovariate(rate_per_s) if due is None else next(due)

        def start_arrival() -> None:
            queue = self._task_queue
            task = None if queue is None else self._tasks[next(queue.iterate_for_user()).number]
            self._send_request(lambda: None, task=task)
            cluster.schedule_at(next_s(), start_arrival)

        cluster.schedule_at(next_s(), start_arrival)
        return self._run_until_enough(enough, max_requests, tuple(watched))

    def request_columns(self, names: Iterable[str] | None = None) -> RequestColumns:
        """The finished requests as columns of `requests`, times of the virtual clock."""
        ended = [(place, flow) for place, flow in enumerate(self.sent) if flow.ended_s is not None]
        tail_start = len(self.sent) if self.kept is None else self.kept
        chosen = ["request", "tail", *_COLUMNS] if names is None else dict.fromkeys(names)
        columns = read_workflow_columns([flow for _, flow in ended], [name for name in chosen if name in _COLUMNS])
        if "request" in chosen:
            columns["request"] = [place for place, _ in ended]
            columns["tail"] = [place >= tail_start for place, _ in ended]
        return columns

    def _run_until_enough(self, enough: StopCheck, max_requests: int, watched: tuple[str, ...]) -> str:
        """Run until enough requests ended, then keep the load until the last counted one has ended.

        Returns the reason.
        """
        reason = None
        while reason is None:
            self._run_until_count(self._ended + CHECK_EVERY_REQUESTS, max_requests)
            reason = "samples" if len(self.sent) >= max_requests else enough(self.request_columns(watched))
        self.kept = len(self.sent)
        self._open = sum(workflow.ended_s is None for workflow in self.sent)
        self.cluster.run_while(lambda: self._open > 0)
        return reason

    def _run_until_count(self, ended: int, max_requests: int) -> None:
        self.cluster.run_while(lambda: self._ended < ended and len(self.sent) < max_requests)

    def _send_request(
        self,
        then: Callable[[], None],
        conversation: Conversation | None = None,
        turn: int | None = None,
        task: AgentTask | None = None,
    ) -> None:
        place = len(self.sent)

        def on_workflow_end(_: Workflow) -> None:
            self._ended += 1
            self._open -= self.kept is not None and place < self.kept
            then()

        self.sent.append(
            self.cluster.start_workflow(
                on_workflow_end, conversation=conversation, turn=turn, task=task, tool_factor=self._tool_factor
            )
        )

    def _draw_think_time(self, mean_s: float) -> float:
        return self.cluster.random.expovariate(1 / mean_s) if mean_s else 0.0


def read_workflow_columns(flows: Iterable[Workflow], names: Iterable[str]) -> RequestColumns:
    """Columns of the table `requests` of workflows that have ended."""
    flows = list(flows)
    return {name: [_COLUMNS[name](flow) for flow in flows] for name in names}


def mean_idle_runtime_s(service: Service) -> float:
    """Return the average time that one workflow takes on an idle cluster."""
    step_s = service.decode_base_s + service.decode_per_sequence_s
    call_s = service.input_tokens / service.prefill_tokens_per_s + service.output_tokens * step_s
    return service.calls * call_s + (service.calls - 1) * (service.tool_s + service.shared_s)


def _duration_s(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _count_cached_tokens(flow: Workflow) -> int | None:
    known = [call.cached_tokens for call in flow.calls if call.cached_tokens is not None]
    return sum(known) if known else None


def _mean_token_gap_s(flow: Workflow) -> float | None:
    gaps = [
        (call.ended_s - call.first_s, call.output_tokens - 1)
        for call in flow.calls
        if call.ended_s is not None and call.first_s is not None and call.output_tokens > 1
    ]
    tokens = sum(count for _, count in gaps)
    return sum(span for span, _ in gaps) / tokens if tokens else None


_COLUMNS: dict[str, Callable[[Workflow], Any]] = {
    "intended_s": lambda flow: flow.sent_s,
    "sent_s": lambda flow: flow.sent_s,
    "ended_s": lambda flow: flow.ended_s,
    "runtime_s": lambda flow: _duration_s(flow.sent_s, flow.ended_s),
    "llm_s": lambda flow: [_duration_s(call.sent_s, call.ended_s) for call in flow.calls],
    "server_runtime_s": lambda flow: _duration_s(flow.started_s, flow.ended_s),
    "ttft_s": lambda flow: _duration_s(flow.sent_s, flow.calls[0].first_s),
    "ttfo_s": lambda flow: _duration_s(flow.sent_s, flow.calls[0].first_s),
    "itl_s": _mean_token_gap_s,
    "turn": lambda flow: flow.turn,
    "input_tokens": lambda flow: sum(call.input_tokens for call in flow.calls),
    "cached_tokens": _count_cached_tokens,
    "output_tokens": lambda flow: sum(call.output_tokens for call in flow.calls),
}
