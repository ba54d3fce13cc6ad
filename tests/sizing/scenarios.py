"""Services whose true need is known, because the same simulation can be run at every size.

Each has test GPUs, users and a limit on the p95 of the runtime. The truth is the least number of GPUs whose p95, as the
mean of 20 independent runs of 3,000 requests each, is within the limit: `python -m tests.sizing.scenarios` finds it.
Parameters, users and limits were set before the estimators were. Only F was changed afterwards: in its first versions
the p95 of the recommended GPUs lay within a few per cent of the limit, where a verification cannot fail reliably.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.estimation.gpu_estimates import estimate_gpus
from workbench.sizing.estimation.sizing_answer import concat_sweeps
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service

RUNS = 20
REQUESTS = 3000
OPEN_REQUESTS = 30_000
"""Near its capacity an open loop needs long to show what it does."""


@dataclass(frozen=True)
class Scenario:
    """A service, how many use it, what is asked of it, and how many GPUs that really takes (null: none suffices)."""

    about: str
    service: dict[str, Any]
    test_gpus: int
    users: int
    limit_s: float
    truth: int | None
    levels: tuple[int, ...] | None = None  # given by the user; else the ladder chooses
    is_open: bool = False  # `users` and levels are arrivals a second
    turns: int = 1
    think_s: float = 0.0
    more_gpus: tuple[int, ...] = ()  # further counts that are measured

    def at(self, gpus: int) -> Service:
        """The service on so many GPUs."""
        return Service(gpus=gpus, **self.service)

    def config(self, seed: int) -> SweepConfig:
        """The sweep."""
        levels = list(self.levels) if self.levels else None
        load = {"arrivals": "poisson", "rates": levels} if self.is_open else {"users": levels}
        goals = [Goal(limit_s=self.limit_s)]
        if self.turns == 1:
            return build_sweep_config(protocol="function", simulated=True, goals=goals, seed=seed, **load)
        load |= {"protocol": "openai", "model": "m", "url": "http://127.0.0.1:9"}
        load |= {"turns": self.turns, "think_time_s": self.think_s}
        return build_sweep_config(simulated=True, goals=goals, seed=seed, **load)


FLAT = {"decode_base_s": 0.02, "decode_per_sequence_s": 0.00005}
SCENARIOS = {
    "A": Scenario("batch-linear, target in range", {"slots": 64}, 2, 100, 2.65, 5),
    "B": Scenario("target past the knee of the KV cache", {}, 2, 216, 3.6, 7),
    "C": Scenario("target just below the knee", {}, 2, 450, 2.2, 30),
    "D": Scenario("tight target", {"slots": 64}, 2, 87, 1.05, 31),
    "E": Scenario("agentic, tools take most of the time", {"tool_s": 2.0, "calls": 3}, 2, 540, 8.0, 12),
    "F": Scenario("the router picks at random", {**FLAT, "slots": 8, "calls": 1, "router": "random"}, 1, 120, 4.2, 11),
    "G": Scenario("heavy-tailed answers", {"output_cv": 2.0}, 2, 150, 4.8, 7),
    "H": Scenario("target far outside the given levels", {"slots": 64}, 4, 350, 3.4, 13, tuple(range(1, 11))),
    "I": Scenario("flat, then a knee; target 1.15 times the flat part", FLAT, 2, 370, 4.6, 26),
    "J": Scenario("flat, then a knee; target 1.5 times the flat part", FLAT, 2, 400, 6.0, 17),
    "K": Scenario("levels from 1 to 256", {"slots": 32}, 2, 700, 4.2, 19, tuple(2**n for n in range(9))),
    "L": Scenario(
        "a resource that all share", {"tool_s": 0.2, "calls": 3, "shared_s": 0.02, "slots": 32}, 2, 300, 4.0, None
    ),
    "M": Scenario("open loop, levels chosen", {}, 2, 110, 2.3, 10, is_open=True),
    "N": Scenario(
        "open loop, levels to beyond the capacity", {}, 2, 110, 6.0, 10, (8, 12, 16, 18, 20, 22, 24, 28), True
    ),
    "O": Scenario("open loop, levels below the capacity only", {}, 2, 110, 2.3, 10, (2, 4, 8), True),
    "P": Scenario("open loop, levels above the capacity only", {}, 2, 110, 6.0, 10, (26, 30), True),
}
PREFILL = {"prefill_tokens_per_s": 8000, "calls": 1}
ROUTED = {"router": "session", "cache_tokens": 400_000}
MISSED = {"router": "least", "cache_tokens": 400_000}
CACHED = {
    "a": Scenario("chat, room for all sessions", PREFILL | ROUTED, 1, 600, 1.6, 11, turns=6, think_s=5),
    "b": Scenario("no think time", PREFILL | ROUTED, 1, 150, 2.5, 10, turns=6),
    "c": Scenario(
        "room for half of the sessions",
        PREFILL | ROUTED | {"cache_tokens": 40_000},
        2,
        300,
        1.6,
        12,
        turns=6,
        think_s=5,
    ),
    "d": Scenario(
        "long sessions of short prompts",
        PREFILL | ROUTED | {"input_tokens": 100, "slots": 32},
        2,
        1000,
        1.8,
        5,
        turns=10,
        think_s=8,
    ),
    "e": Scenario(
        "documents of 4,000 tokens",
        PREFILL | ROUTED | {"input_tokens": 4000, "prefill_tokens_per_s": 30_000, "cache_tokens": 1_000_000},
        2,
        300,
        2.5,
        7,
        turns=4,
        think_s=10,
    ),
    "f": Scenario(
        "agents with tools",
        ROUTED | {"calls": 4, "tool_s": 1.0, "input_tokens": 800, "prefill_tokens_per_s": 20_000},
        2,
        400,
        9.0,
        9,
        turns=3,
        think_s=10,
    ),
    "g": Scenario("heavy-tailed answers", PREFILL | ROUTED | {"output_cv": 2.0}, 2, 400, 3.0, 7, turns=5, think_s=5),
    "h": Scenario("two turns", PREFILL | ROUTED | {"slots": 8}, 2, 250, 1.8, 7, turns=2, think_s=3),
    "i": Scenario(
        "any GPU, hits fall with their number",
        PREFILL | MISSED,
        1,
        300,
        2.2,
        13,
        turns=6,
        think_s=5,
        more_gpus=(2, 4, 8),
    ),
    "j": Scenario(
        "any GPU, little time in prefill",
        MISSED | {"calls": 1, "prefill_tokens_per_s": 60_000},
        1,
        1000,
        1.6,
        10,
        turns=6,
        think_s=5,
        more_gpus=(2, 4, 8),
    ),
    "k": Scenario(
        "the router picks in turn",
        PREFILL | MISSED | {"router": "round_robin", "input_tokens": 200},
        1,
        400,
        2.0,
        9,
        turns=8,
        think_s=8,
        more_gpus=(2, 4, 8),
    ),
    "l": Scenario(
        "the router picks at random, agents",
        MISSED | {"router": "random", "calls": 3, "tool_s": 0.5, "prefill_tokens_per_s": 20_000},
        1,
        150,
        7.0,
        7,
        turns=3,
        think_s=5,
        more_gpus=(2, 4, 8),
    ),
    "m": Scenario(
        "any GPU, long documents",
        MISSED | {"calls": 1, "input_tokens": 3000, "prefill_tokens_per_s": 30_000, "cache_tokens": 2_000_000},
        1,
        350,
        3.0,
        10,
        turns=4,
        think_s=10,
        more_gpus=(2, 4, 8),
    ),
    "n": Scenario(
        "any GPU, caches that are too small",
        PREFILL | MISSED | {"cache_tokens": 60_000},
        2,
        250,
        2.0,
        10,
        turns=6,
        think_s=6,
        more_gpus=(4, 8),
    ),
    "o": Scenario(
        "in turn, heavy-tailed answers",
        PREFILL | MISSED | {"router": "round_robin", "output_cv": 2.0},
        1,
        250,
        3.5,
        9,
        turns=5,
        think_s=6,
        more_gpus=(2, 4, 8),
    ),
    "p": Scenario(
        "at random, ten turns",
        MISSED | {"router": "random", "calls": 1, "input_tokens": 300, "prefill_tokens_per_s": 20_000, "slots": 32},
        2,
        600,
        2.5,
        14,
        turns=10,
        think_s=6,
        more_gpus=(4, 8),
    ),
}
"""Sessions on GPUs with a prefix cache."""
JUDGED = "ABCDEGIJKMN"
"""Scenarios that a sweep on one GPU count can answer."""
REFUSED = "HOP"
"""Scenarios whose levels do not reach the answer."""


@dataclass(frozen=True)
class Found:
    """What a sweep with one seed said."""

    gpus: float | None
    high: float | None
    recommended: int | None
    slope_gpus: float | None
    verdict: str
    reason: str | None
    n_levels: int
    n_requests: int


def found(scenario: Scenario, seed: int) -> Found:
    """Sweep and estimate, all as a user's command does it."""
    requests, steps, _, row = estimated(scenario, seed)
    names = ("gpus", "gpus_high", "recommended", "slope_gpus", "verdict", "reason")
    return Found(*(row[name] for name in names), n_levels=steps.height, n_requests=requests.height)


def estimated(scenario: Scenario, seed: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """Requests, steps and points of a sweep on each GPU count, and the estimate."""
    config = scenario.config(seed)
    counts = (scenario.test_gpus, *scenario.more_gpus)
    requests, steps = concat_sweeps([virtual_time.simulate_sweep(scenario.at(gpus), config) for gpus in counts])
    table, _ = assess_steps(requests, steps)
    row = estimate_gpus(requests, steps, table, config.goals, scenario.users, seed=seed).row(0, named=True)
    return requests, steps, table, row


def verified(scenario: Scenario, gpus: int, seed: int) -> pl.DataFrame:
    """All users on the predicted GPUs."""
    return virtual_time.simulate_verification(scenario.at(1), scenario.config(seed), scenario.users, gpus)


def p95_s(scenario: Scenario, gpus: int, run: int) -> float:
    """The p95 of one long run, the first requests of all users and half as many more left out."""
    drive = virtual_time.VirtualDriver(scenario.at(gpus), seed=10_000 + run)
    if scenario.is_open:
        drive.run_open_loop(
            scenario.users,
            lambda ended: "enough" if len(ended["runtime_s"]) >= OPEN_REQUESTS else None,
            max_requests=10**9,
        )
        late = drive.sent[REQUESTS // 2 : drive.kept]
        return float(np.quantile([(flow.ended_s or 0) - flow.sent_s for flow in late], 0.95))
    n_first = scenario.users * scenario.turns
    wanted = REQUESTS + n_first + n_first // 2
    drive.run_closed_loop(
        scenario.users,
        lambda ended: "enough" if len(ended["runtime_s"]) >= wanted else None,
        max_requests=10**9,
        think_s=scenario.think_s,
        turns=scenario.turns,
    )
    runtimes = [(flow.ended_s or 0) - flow.sent_s for flow in drive.sent[n_first : drive.kept]]
    return float(np.quantile(runtimes, 0.95))


def meets(scenario: Scenario, gpus: int, runs: int = RUNS) -> bool:
    """Is the limit met by so many GPUs, in the mean of independent runs?"""
    return statistics.fmean(p95_s(scenario, gpus, run) for run in range(runs)) <= scenario.limit_s


def truth(scenario: Scenario, most: int = 128) -> int | None:
    """The least number of GPUs that meets the limit; null when none up to `most` does."""
    high = next((n for n in _doubled(most) if meets(scenario, n, 1)), None)
    if high is None:
        return None
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(scenario, middle, 2) else (middle + 1, high)
    while not meets(scenario, low):
        low += 1
    while low > 1 and meets(scenario, low - 1):
        low -= 1
    return low


def _doubled(most: int) -> Iterator[int]:
    n = 1
    while n <= most:
        yield n
        n *= 2


if __name__ == "__main__":
    every = SCENARIOS | CACHED
    for name in sys.argv[1] if len(sys.argv) > 1 else every:
        print(name, truth(every[name]), "declared", every[name].truth, flush=True)
