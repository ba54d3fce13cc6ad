"""Runs the levels of a sweep in AISimulate and returns the raw tables, as a measured sweep has them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.sizing.load.arrival_processes import PROCESSES, ArrivalSettings
from workbench.sizing.load.request_plan import STEP_ITEMS, draw_token_count
from workbench.sizing.load.request_trace import RequestTrace, read_request_trace
from workbench.sizing.load.sweep_plan import LevelSchedule
from workbench.sizing.tables import REQUESTS, STEPS

if TYPE_CHECKING:
    from workbench.sizing.config import SweepConfig
    from workbench.sizing.prediction.aisimulate import Deployment, Predictor

MIN_ROUNDS = 4
"""Requests of each user at least: one is the filling, and the last ones run while others have ended."""
USUAL_REQUESTS = 600
OPEN_REQUESTS = 1500
# Turns of a conversation share blocks, so those are small; other prompts have nothing in common.
_BLOCK_TOKENS, _WHOLE_PROMPT = 64, 1024
Lengths = Sequence[tuple[int, int]]
DrawLengths = Callable[[], tuple[int, int]]


@dataclass(frozen=True)
class RequestPlan:
    """Requests to be predicted.

    `rows`: Lines of a Mooncake trace, as `Predictor.run` takes them, with blocks of `block_tokens`.
    `turns`: Turns of the conversations that each session is made of, in its order; empty without conversations.
    """

    rows: list[dict[str, Any]]
    block_tokens: int
    turns: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class TimeFactors:
    """How much longer a service takes than was predicted.

    `prefill`, `decode`: Factors on the time of a prompt and of a decode step.
    """

    prefill: float = 1.0
    decode: float = 1.0


def predict_sweep(
    predictor: Predictor, deployment: Deployment, config: SweepConfig, factors: TimeFactors
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Predict a sweep of one replica: tables REQUESTS and STEPS, `clock` virtual, `simulated` true.

    `config`: Levels or goals, lengths, sessions, think time, trace, seed, as of a sweep that is measured.
    """
    requests, steps = REQUESTS.frame([]), STEPS.frame([])
    levels = LevelSchedule(config)
    loads: list[float] = []
    while (load := levels.next_level(requests, steps)) is not None:
        repeat = loads.count(load)
        sent, step = predict_step(predictor, deployment, config, load, factors, number=len(loads), repeat=repeat)
        loads.append(load)
        requests, steps = requests.vstack(sent), steps.vstack(step)
    return requests, steps


def predict_step(
    predictor: Predictor,
    deployment: Deployment,
    config: SweepConfig,
    load: float,
    factors: TimeFactors,
    *,
    number: int = 0,
    repeat: int = 0,
    lengths: Lengths = (),
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Predict one level: rows of REQUESTS and STEPS. Other factors meet the same requests.

    `repeat`: How often the load was predicted before; each time has requests of its own.
    `lengths`: Tokens of prompts and answers to draw from; without them they are drawn from the config's distributions.
    """
    draw = random.Random(f"{config.seed}/{load}/{repeat}")  # noqa: S311 - not used for secrets

    def draw_lengths() -> tuple[int, int]:
        if lengths:
            return draw.choice(lengths)
        return (
            draw_token_count(draw, config.input_tokens, config.input_cv),
            draw_token_count(draw, config.output_tokens or 1, config.output_cv),
        )

    if config.is_open:
        plan = _plan_open_loop(config, load, repeat, draw_lengths)
    else:
        plan = _plan_users(config, int(load), draw, draw_lengths)
    answer = predictor.run(
        deployment,
        plan.rows,
        block_tokens=plan.block_tokens,
        concurrency=None if config.is_open else int(load),
        prefill_factor=factors.prefill,
        decode_factor=factors.decode,
    )
    table = _build_requests(answer["requests"], plan, number, is_open=config.is_open)
    step = {
        "step": number,
        "loop": "open" if config.is_open else "closed",
        "users": None if config.is_open else int(load),
        "rate_per_s": load if config.is_open else None,
        "think_s": config.think_time_s,
        "arrivals": config.arrivals,
        "gpus": deployment.tensor,
        "clock": "virtual",
        "simulated": True,
        "started_at": None,
        "duration_s": table["ended_s"].max(),
        "timeout_s": None,
        "processes": 1,
        "loop_lag_p99_s": None,
        "client_cpu_share": None,
        "stopped": "samples",
    }
    return table, STEPS.frame([step])


def _plan_users(config: SweepConfig, users: int, draw: random.Random, draw_lengths: DrawLengths) -> RequestPlan:
    """Requests of users in a closed loop, as one long session each: conversations of `turns`, with think time between.

    The first conversation of a user is shorter, so that users differ.
    """
    block_tokens = _BLOCK_TOKENS if config.turns > 1 else _WHOLE_PROMPT
    n_requests = max(MIN_ROUNDS * config.turns, -(-max(USUAL_REQUESTS, config.least_samples * 2) // users) + 2)
    new_block = itertools.count()
    rows: list[dict[str, Any]] = []
    turns: dict[str, list[int]] = {}
    for user in range(users):
        turn, said = config.turns - user % config.turns, 0
        blocks: list[int] = []
        turns[str(user)] = []
        for place in range(n_requests):
            turns[str(user)].append(turn)
            added_tokens, output_tokens = draw_lengths()
            input_tokens = said + added_tokens
            blocks = [*blocks, *itertools.islice(new_block, -(-input_tokens // block_tokens) - len(blocks))]
            row = {"session_id": str(user), "input_length": input_tokens, "output_length": output_tokens}
            pause_s = draw.expovariate(1 / config.think_time_s) if config.think_time_s else 0.0
            rows.append(row | {"hash_ids": blocks} | ({"delay": 1000 * pause_s} if place else {"timestamp": 0}))
            said, turn = input_tokens + output_tokens, turn + 1
            if turn > config.turns:
                turn, said, blocks = 1, 0, []
    return RequestPlan(rows, block_tokens, turns if config.turns > 1 else {})


def _plan_open_loop(config: SweepConfig, rate_per_s: float, repeat: int, draw_lengths: DrawLengths) -> RequestPlan:
    """Requests that arrive at a rate: those of a trace, with their lengths and blocks, or drawn ones."""
    trace = None if config.trace is None else read_request_trace(config.trace, config.trace_replay)
    if trace is not None and trace.input_tokens and trace.output_tokens:
        return _plan_trace(trace, rate_per_s)
    settings = ArrivalSettings(
        rate_per_s, f"{config.seed}/{repeat}/arrivals", config.arrivals_cv, [] if trace is None else trace.times_s
    )
    due = itertools.islice(PROCESSES[config.arrivals].iterate_times(settings), OPEN_REQUESTS)
    new_block = itertools.count()
    rows = []
    for place, time_s in enumerate(due):
        input_tokens, output_tokens = draw_lengths()
        blocks = list(itertools.islice(new_block, -(-input_tokens // _WHOLE_PROMPT)))
        row = {"session_id": str(place), "input_length": input_tokens, "output_length": output_tokens}
        rows.append(row | {"hash_ids": blocks, "timestamp": 1000 * time_s})
    return RequestPlan(rows, _WHOLE_PROMPT)


def _plan_trace(trace: RequestTrace, rate_per_s: float) -> RequestPlan:
    """The requests of a trace at a mean rate, with the blocks that their prompts share; sessions wait for answers."""
    block_tokens = trace.block_tokens or _WHOLE_PROMPT
    speed = rate_per_s / trace.rate_per_s
    own_block = itertools.count(max((max(ids, default=0) for ids in trace.block_ids), default=0) + 1)
    sessions = trace.sessions or [[place] for place in range(len(trace.times_s))]
    rows = []
    for time_s, (name, places) in zip(trace.times_s, enumerate(sessions), strict=True):
        said = 0
        said_blocks: list[int] = []
        for turn, place in enumerate(places):
            # A turn's length is what it adds.
            input_tokens = said + trace.input_tokens[place]
            blocks = list(trace.block_ids[place]) if trace.block_ids else []
            blocks = [*said_blocks, *blocks] if trace.sessions else blocks
            blocks += itertools.islice(own_block, max(0, -(-input_tokens // block_tokens) - len(blocks)))
            output_tokens = max(1, trace.output_tokens[place])
            row = {"session_id": str(name), "input_length": input_tokens, "output_length": output_tokens}
            start = {"delay": 1000 * trace.pauses_s[place]} if turn else {"timestamp": 1000 * time_s / speed}
            rows.append(row | {"hash_ids": blocks} | start)
            said, said_blocks = input_tokens + output_tokens, blocks
    turns = {str(name): [*range(1, len(places) + 1)] for name, places in enumerate(trace.sessions)}
    return RequestPlan(rows, block_tokens, turns)


def _build_requests(columns: dict[str, list[Any]], plan: RequestPlan, number: int, *, is_open: bool) -> pl.DataFrame:
    """Rows of REQUESTS from AISimulate's columns, in the order they were sent.

    In a closed loop, what is sent after the first user has ended is `tail`: the load is no longer whole.
    """
    import polars as pl

    found = pl.DataFrame(columns, infer_schema_length=None).sort("arrival_ms", "session", "turn")
    ends = found.group_by("session").agg(pl.col("ended_ms").max())["ended_ms"]
    whole_until = float("inf") if is_open else float(str(ends.min()))
    is_ok = found["status"] == "completed"
    first_s = found["first_token_ms"] / 1000
    sent_s, ended_s = found["arrival_ms"] / 1000, found["ended_ms"] / 1000
    n = found.height
    later = (found["output_tokens"] - 1).cast(pl.Float64)
    table = {
        "step": [number] * n,
        "request": range(n),
        "item": [number * STEP_ITEMS + place for place in range(n)],
        "intended_s": sent_s,
        "sent_s": sent_s,
        "ended_s": ended_s,
        "outcome": ["ok" if ok else "failed" for ok in is_ok],
        "retries": [0] * n,
        "runtime_s": ended_s - sent_s,
        "ttft_s": first_s - sent_s,
        "ttfo_s": first_s - sent_s,
        "itl_s": [gap / count if count else None for gap, count in zip(ended_s - first_s, later, strict=True)],
        "llm_s": [[runtime] for runtime in ended_s - sent_s],
        "input_tokens": found["input_tokens"],
        "cached_tokens": found["cached_tokens"],
        "output_tokens": found["output_tokens"],
        "later_tokens": later,
        "turn": [plan.turns[name][place] if plan.turns else None for name, place in found["session", "turn"].rows()],
        "tail": found["arrival_ms"] > whole_until,
    }
    nothing = {column.name: [None] * n for column in REQUESTS.columns if column.name not in table}
    return REQUESTS.frame({name: list(values) for name, values in (table | nothing).items()})
