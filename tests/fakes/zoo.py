"""Services that misbehave the way real ones do, in virtual time, each with its true need.

A service answers the moment a request arrives: when the request will end, and how. Its clock goes on from step to step,
so that caches fill and drift lasts. The sweep around it is the real one: levels, stop rule, estimate, verification.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.estimation import verification
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer
from workbench.sizing.estimation.step_points import PointLimits
from workbench.sizing.load import sweep_plan
from workbench.sizing.load.sweep_plan import LevelSchedule
from workbench.sizing.tables import REQUESTS, STEPS

GAP_S = 1.0
PAUSE_S = 0.02
CHECK_EVERY = 50
STEP_ITEMS = 10_000_000


@dataclass
class Fate:
    """What becomes of a request."""

    takes_s: float
    outcome: str = "ok"
    status: int | None = 200
    tokens: int = 60
    text: int | None = None
    retry_after_s: float | None = None
    clock: float | None = None  # server's runtime, as a share of the true one
    holds_slot: bool = True


@dataclass
class Healthy:
    """`slots` requests at a time on each GPU, the others queue silently; lognormal times."""

    gpus: int = 1
    seed: int = 0
    slots: int = 4
    mean_s: float = 0.5
    cv: float = 0.3
    now_s: float = 0.0
    n_seen: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.free = [0.0] * (self.slots * self.gpus)
        self.ends: list[float] = []

    @property
    def per_s(self) -> float:
        """Requests a second that one GPU ends."""
        return self.slots / self.mean_s

    def in_flight(self, now_s: float) -> int:
        while self.ends and self.ends[0] <= now_s:
            heapq.heappop(self.ends)
        return len(self.ends)

    def draw_s(self) -> float:
        if not self.cv:
            return self.mean_s
        variance = math.log1p(self.cv**2)
        return self.random.lognormvariate(math.log(self.mean_s) - variance / 2, math.sqrt(variance))

    def decide(self, now_s: float, item: str) -> Fate:
        """What becomes of a request that arrives now."""
        return Fate(self.draw_s())

    def answer(self, now_s: float, item: str) -> tuple[float, Fate]:
        """When a request ends, and what becomes of it."""
        self.n_seen += 1
        fate = self.decide(now_s, item)
        if not fate.holds_slot:
            ended = now_s + fate.takes_s
        else:
            ended = max(now_s, heapq.heappop(self.free)) + fate.takes_s
            heapq.heappush(self.free, ended)
        heapq.heappush(self.ends, ended)
        return ended, fate


@dataclass(frozen=True)
class Animal:
    """A service, what is asked, and the least GPUs that do it (null: computed, or no number is right)."""

    about: str
    make: Callable[..., Healthy]
    settings: dict[str, Any] = field(default_factory=dict)
    goal: str = "p95<=2"
    load: float = 200.0
    gpus: int = 1
    need: int | None = None
    true_service: Callable[..., Healthy] | None = None
    never: bool = False  # no number is right
    file_of_prompts: int | None = None


def run_step(
    service: Healthy, config: SweepConfig, load: float, number: int, rows_of_file: int | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One load on a service whose clock goes on."""
    rule = sweep_plan.build_stop_rule(config)
    users = 0 if config.is_open else int(load)
    sends = _open_sends(service, config, load, number) if config.is_open else None
    waiting = [(service.now_s + service.random.random() * service.mean_s, user) for user in range(users)]
    heapq.heapify(waiting)
    begin, kept, why = service.now_s, None, None
    rows: list[dict[str, Any]] = []
    order = random.Random(f"{config.seed}/{number}")
    while True:
        now = next(sends) if sends is not None else waiting[0][0]
        if kept is None and len(rows) % CHECK_EVERY == 0 and len(rows) >= rule.min_samples:
            done = [row for row in rows if row["ended_s"] <= now - begin]
            columns = {name: [row[name] for row in done] for name in ("outcome", *rule.columns)}
            enough = len(done) >= rule.min_samples
            why = sweep_plan.find_stop_reason(columns, users, rule) if enough else None
            why = "time" if now - begin > config.max_step_s else why
            if len(rows) >= users + 4 * rule.max_samples:
                why = "samples"
            if why is not None:
                kept = len(rows)
                last = max(row["ended_s"] for row in rows)
        if kept is not None and now - begin > last:
            break
        item = number * STEP_ITEMS + len(rows)
        if rows_of_file and not config.unique_prefix:
            item = order.randrange(rows_of_file)
        ended, fate = service.answer(now, f"{'unique/' if config.unique_prefix else ''}{item}")
        cut = config.timeout_s < ended - now
        rows.append(_build_row(number, len(rows), item, now - begin, ended - begin, fate, config.timeout_s, cut))
        if sends is None:
            pause = PAUSE_S if fate.outcome == "refused" else 0.0
            heapq.heapreplace(waiting, (now + min(config.timeout_s, ended - now) + pause, waiting[0][1]))
    for place, row in enumerate(rows):
        row["tail"] = kept is not None and place >= kept
    service.now_s = begin + max(row["ended_s"] for row in rows) + GAP_S
    return REQUESTS.frame(rows), STEPS.frame([_step_row(number, config, load, service, rows, why or "samples")])


def _open_sends(service: Healthy, config: SweepConfig, rate: float, number: int) -> Iterator[float]:
    draw = random.Random(f"{config.seed}/{number}/arrivals")
    now = service.now_s
    while True:
        now += 1 / rate if config.arrivals == "constant" else draw.expovariate(rate)
        yield now


def _build_row(
    step: int, place: int, item: int, sent: float, ended: float, fate: Fate, timeout_s: float, cut: bool
) -> dict[str, Any]:
    ok = fate.outcome == "ok" and not cut
    ended = min(ended, sent + timeout_s)
    return {
        "step": step,
        "request": place,
        "item": item,
        "intended_s": sent,
        "sent_s": sent,
        "ended_s": ended,
        "outcome": "timeout" if cut else fate.outcome,
        "status": fate.status,
        "retries": 0,
        "runtime_s": ended - sent if ok else None,
        "ttft_s": None,
        "itl_s": None,
        "llm_s": None,
        "server_runtime_s": fate.clock * (ended - sent) if ok and fate.clock is not None else None,
        "input_tokens": 100,
        "output_tokens": fate.tokens if ok else None,
        "answer_bytes": 4 * fate.tokens if ok else None,
        "answer_hash": (fate.text if fate.text is not None else item) if ok else None,
        "retry_after_s": fate.retry_after_s,
        "turn": None,
        "worker": None,
        "tail": False,
    }


def _step_row(
    number: int, config: SweepConfig, load: float, service: Healthy, rows: list[dict[str, Any]], why: str
) -> dict[str, Any]:
    return {
        "step": number,
        "loop": "open" if config.is_open else "closed",
        "users": None if config.is_open else int(load),
        "rate_per_s": load if config.is_open else None,
        "think_s": 0.0,
        "arrivals": config.arrivals,
        "gpus": service.gpus,
        "clock": "virtual",
        "simulated": True,
        "started_at": None,
        "duration_s": max(row["ended_s"] for row in rows),
        "timeout_s": config.timeout_s,
        "processes": 1,
        "loop_lag_p99_s": None,
        "client_cpu_share": None,
        "stopped": why,
    }


@dataclass(frozen=True)
class Told:
    """What the whole path said of an animal, and what is true."""

    answer: SizingAnswer
    need: int | None

    @property
    def exit_code(self) -> int:
        return 1 if self.answer.reasons else 0

    @property
    def is_wrong(self) -> bool:
        """A number with exit code 0 that is too small, or more than a quarter (and one) too large."""
        count = self.answer.recommended
        if self.exit_code or count is None:
            return False
        return self.need is None or count < self.need or count > max(1.25 * self.need, self.need + 1)


def ask(animal: Animal, seed: int = 0, *, verify: bool = True) -> Told:
    """Sweep, estimate and verify as a user's command does it."""
    goal = Goal.read(animal.goal)
    given = {"least_samples": 200, "most_samples": 800, "timeout_s": 60.0} | animal.settings
    config = build_sweep_config(protocol="function", simulated=True, goals=[goal], seed=seed, gpus=animal.gpus, **given)
    service = animal.make(gpus=animal.gpus, seed=seed)
    requests, steps = REQUESTS.frame([]), STEPS.frame([])
    levels = LevelSchedule(config)
    while (load := levels.next_level(requests, steps)) is not None:
        sent, held = run_step(service, config, load, steps.height, animal.file_of_prompts)
        requests, steps = requests.vstack(sent), steps.vstack(held)
    limits = PointLimits.from_config(config)
    found = compute_answer(requests, steps, [goal], animal.load, limits=limits, draws=200, seed=seed)
    if verify and found.recommended is not None:
        reference = verification.build_reference(requests, steps, limits)
        found = found.with_verification(_verify(animal, service, config, found, limits, reference))
    return Told(found, None if animal.never else animal.need or need(animal))


def _verify(
    animal: Animal, service: Healthy, config: SweepConfig, found: SizingAnswer, limits: PointLimits, known: Any
) -> pl.DataFrame:
    count = found.recommended or 1
    loads = verification.share_load(animal.load, count, animal.gpus, whole=not config.is_open)
    changed = verification.build_verification_settings(config, loads)
    changed |= {"unique_prefix": True} if animal.file_of_prompts else {}
    checked = config.model_copy(update=changed)
    tables = [run_step(service, checked, load, place, animal.file_of_prompts) for place, load in enumerate(loads)]
    return verification.verify_goals(
        pl.concat(sent for sent, _ in tables),
        pl.concat(step for _, step in tables),
        config.goals,
        predicted_gpus=count,
        load=animal.load,
        limits=limits,
        reference=known,
    )


def meets(animal: Animal, gpus: int, n: int = 6000, seed: int = 1000) -> bool:
    """Does the true service on so many GPUs keep the goal over a long run?

    Arrivals of an open loop are split at random over replicas like the one measured: a shared queue would need less.
    """
    is_open = animal.settings.get("arrivals", "users") != "users"
    service = (animal.true_service or animal.make)(gpus=animal.gpus if is_open else gpus, seed=seed)
    goal = Goal.read(animal.goal)
    draw = random.Random(seed)
    if is_open:
        share, even = animal.load * animal.gpus / gpus, animal.settings["arrivals"] == "constant"
        sends = itertools.accumulate(1 / share if even else draw.expovariate(share) for _ in range(6 * n))
        times = [(ended - now, fate) for now in sends for ended, fate in [service.answer(now, f"x{now}")]]
    else:
        waiting = [(draw.random() * service.mean_s, user) for user in range(int(animal.load))]
        heapq.heapify(waiting)
        times = []
        for place in range(n + 2 * int(animal.load)):
            now, user = waiting[0]
            ended, fate = service.answer(now, f"x{place}")
            times.append((ended - now, fate))
            heapq.heapreplace(waiting, (ended, user))
    kept = times[len(times) // 4 :]
    failed = sum(fate.outcome != "ok" or fate.text is not None for _, fate in kept) / len(kept)
    # 1 % is allowed, and no sweep of some thousand requests tells 1 from 2 %.
    return failed <= 0.02 and float(np.quantile([time_s for time_s, _ in kept], goal.q)) <= goal.limit_s


def need(animal: Animal) -> int | None:
    """The least GPUs that do it; null when none up to 400 does."""
    low, high = 0, 1
    while high <= 400 and not meets(animal, high):
        low, high = high, high * 2
    if high > 400:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(animal, middle) else (middle, high)
    return high
