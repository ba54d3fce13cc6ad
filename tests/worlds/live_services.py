"""SIMULATED services of known law under a live load: the law of each, how it changes, and the GPUs that it needs.

A service decides the moment a request arrives when its first and its last token come, and how it ends. The client that
asks it is the product's own; the same law, asked in a plain loop, gives the truth.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from workbench.sizing.config import Goal

LOADS = ("users", "think", "turns", "poisson", "constant", "trace")
# What a service can do besides its plain law; each is one that people report.
TRAITS = (
    "crowding",
    "heavy_tail",
    "two_kinds",
    "stalls",
    "refuses",
    "sheds_503",
    "apologises",
    "shortens",
    "fails_rarely",
    "fails",
    "times_out",
    "token_bucket",
    "scales_out",
    "scales_in",
    "warms_up",
    "slows",
)
ERRS = "errs_when_busy"
"""Besides: some answers are wrong where requests wait. Users ask questions with known answers among the others."""
ERRS_SHARE = 0.15
# A number is never right: failures that more GPUs do not mend, and a service that goes on becoming slower.
NEVER = {"fails", "slows"}
CHANGES = {"scales_out", "scales_in", "warms_up", "slows"}
# A level of some hundred requests does not tell fewer other answers from chance.
MAX_OTHER = 0.1
# Of an open load: how much longer than the requests came their answers came.
MAX_LATE_SHARE = 0.1
# Limits of whole answers, of the first token, and between tokens, by the time of an idle service.
METRICS = ("runtime", "runtime", "ttft", "itl")


@dataclass(frozen=True)
class Law:
    """What a request takes on one GPU: `slots` at a time, the others queue. Times in s."""

    slots: int
    prefill_s: float
    itl_s: float
    tokens: int
    cv: float
    crowding: float = 0.0
    tail_share: float = 0.0
    tail_factor: float = 1.0
    admits: int | None = None
    refusal: str = ""
    fails: float = 0.0
    shortens: bool = False
    errs: float = 0.0
    stall_every_s: float = 0.0
    stall_s: float = 0.0
    bucket_per_s: float | None = None
    timeout_s: float = 300.0
    turn_cost: float = 0.0

    @property
    def mean_s(self) -> float:
        """Mean time of a request on an idle GPU."""
        return (self.prefill_s + self.itl_s * (self.tokens - 1)) * (1 + self.tail_share * (self.tail_factor - 1))

    @property
    def per_s(self) -> float:
        """Requests a second that a full GPU ends."""
        return self.slots / (self.prefill_s + (self.mean_s - self.prefill_s) * (1 + self.crowding))


@dataclass(frozen=True)
class Change:
    """How the service becomes another one, and when: by requests in flight on a GPU, or by requests that came."""

    kind: str
    factor: float
    in_flight: float = math.inf
    delay_s: float = 0.0
    n_requests: int = 0


@dataclass
class Fate:
    """What becomes of a request."""

    first_s: float
    ended_s: float
    outcome: str = "ok"
    status: int | None = 200
    tokens: int = 1
    retry_after_s: float | None = None
    text: str | None = None
    is_wrong: bool = False


class Service:
    """GPUs that follow a law; `changed_s` is when the service became another one."""

    def __init__(self, law: Law, gpus: int, seed: int, change: Change | None = None) -> None:
        self.law, self.gpus, self.change = law, gpus, change
        self.random = random.Random(seed)
        self.free = [0.0] * (law.slots * gpus)
        self.ends: list[float] = []
        self.n_seen = 0
        self.level = 60.0 * gpus
        self.last_s = 0.0
        self.over_since_s: float | None = None
        self.changed_s: float | None = None

    def answer(self, now_s: float, turn: int = 0) -> Fate:
        """What becomes of a request that arrives now."""
        self.n_seen += 1
        while self.ends and self.ends[0] <= now_s:
            heapq.heappop(self.ends)
        self._change_if_due(now_s)
        fate = self._turn_away(now_s) or self._serve(now_s, turn)
        heapq.heappush(self.ends, fate.ended_s)
        return fate

    @property
    def _n_slots(self) -> int:
        return len(self.free)

    def _turn_away(self, now_s: float) -> Fate | None:
        law = self.law
        if law.fails and self.random.random() < law.fails:
            return Fate(now_s, now_s + 0.01, "http_error", 500)
        is_full = law.admits is not None and len(self.ends) >= law.admits * self._n_slots / law.slots
        if law.bucket_per_s is not None:
            self.level = min(60.0 * self.gpus, self.level + (now_s - self.last_s) * law.bucket_per_s * self.gpus)
            self.last_s = now_s
            is_full = self.level < 1
            self.level -= 0 if is_full else 1
        if not is_full:
            return None
        if law.refusal == "sorry":
            return Fate(now_s + 0.03, now_s + 0.05, tokens=9, text="sorry, the service is busy right now, try later")
        status = 503 if law.refusal == "503" else 429
        return Fate(now_s, now_s + 0.02, "http_error", status, retry_after_s=1.0)

    def _serve(self, now_s: float, turn: int) -> Fate:
        law = self.law
        crowd = 1 + law.crowding * min(1.0, len(self.ends) / self._n_slots)
        factor = self._draw_factor() * self._slowness(now_s)
        tokens, busy = law.tokens, len(self.ends) >= 1.5 * self._n_slots
        if law.shortens and busy:
            tokens = max(2, law.tokens // 5)
        begun_s = max(now_s, heapq.heappop(self.free))
        first_s = self._with_stalls(begun_s, law.prefill_s * factor * (1 + law.turn_cost * turn))
        ended_s = self._with_stalls(first_s, law.itl_s * (tokens - 1) * factor * crowd)
        heapq.heappush(self.free, ended_s)
        is_wrong = busy and law.errs > 0 and self.random.random() < law.errs
        return Fate(first_s, ended_s, tokens=tokens, is_wrong=is_wrong)

    def _draw_factor(self) -> float:
        law = self.law
        factor = law.tail_factor if law.tail_share and self.random.random() < law.tail_share else 1.0
        if not law.cv:
            return factor
        variance = math.log1p(law.cv**2)
        return factor * self.random.lognormvariate(-variance / 2, math.sqrt(variance))

    def _with_stalls(self, begun_s: float, takes_s: float) -> float:
        """End of a work that the service's regular stalls interrupt."""
        law = self.law
        if not law.stall_s:
            return begun_s + takes_s
        before, after = (int(time_s // law.stall_every_s) for time_s in (begun_s, begun_s + takes_s))
        return begun_s + takes_s + law.stall_s * (after - before)

    def _slowness(self, now_s: float) -> float:
        change = self.change
        if change is None:
            return 1.0
        if change.kind == "slows":
            self.changed_s = now_s
            return 1 + self.n_seen / change.n_requests
        return change.factor if change.kind == "warms_up" and self.n_seen <= change.n_requests else 1.0

    def _change_if_due(self, now_s: float) -> None:
        change = self.change
        if change is None or self.changed_s is not None or change.kind not in ("scales_out", "scales_in"):
            return
        if change.kind == "scales_in":
            if self.n_seen >= change.n_requests:
                self.changed_s = now_s
                self.free = sorted(self.free)[: max(1, round(len(self.free) * change.factor))]
            return
        if len(self.ends) < change.in_flight * self._n_slots:
            self.over_since_s = None
            return
        self.over_since_s = now_s if self.over_since_s is None else self.over_since_s
        if now_s - self.over_since_s >= change.delay_s:
            self.changed_s = now_s
            self.free += [now_s] * round(len(self.free) * (change.factor - 1))
            heapq.heapify(self.free)


@dataclass(frozen=True)
class World:
    """A service, how it is loaded, what is asked."""

    seed: int
    law: Law
    load_kind: str
    traits: frozenset[str]
    goal: Goal
    load: float
    change: Change | None = None
    think_s: float = 0.0
    turns: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether requests come at a rate."""
        return self.load_kind in ("poisson", "constant", "trace")


def draw_world(seed: int, max_traits: int = 2) -> World:
    """Draw a service, its load and a question."""
    rng = np.random.default_rng([seed, 53])
    n_traits = int(rng.choice(max_traits + 1, p=[0.25, 0.45, 0.3] if max_traits == 2 else None))
    traits = {str(name) for name in rng.choice(TRAITS, n_traits, replace=False)}
    if len(traits & CHANGES) > 1:
        traits -= {sorted(traits & CHANGES)[0]}
    load_kind = str(rng.choice(LOADS))
    tokens = int(rng.integers(16, 80))
    itl_s = float(rng.uniform(0.002, 0.012))
    law = Law(
        slots=int(rng.integers(2, 13)),
        prefill_s=itl_s * tokens * float(rng.uniform(0.1, 0.6)),
        itl_s=itl_s,
        tokens=tokens,
        cv=float(rng.uniform(0.1, 0.5)),
    )
    law = _add_traits(rng, law, traits)
    turns = int(rng.integers(2, 5)) if load_kind == "turns" else 1
    think_s = law.mean_s * float(rng.uniform(1, 4)) if load_kind in ("think", "turns") else 0.0
    law = replace(law, turn_cost=float(rng.uniform(0, 1)) if turns > 1 else 0.0)
    goal = _draw_goal(rng, law)
    if "times_out" in traits:
        law = replace(law, timeout_s=max(goal.limit_s if goal.metric == "runtime" else 0.0, 3 * law.mean_s) * 1.3)
    own = np.random.default_rng([seed, 54])
    if own.random() < ERRS_SHARE:
        traits.add(ERRS)
        law = replace(law, errs=float(own.uniform(0.3, 0.9)))
    n_gpus = float(rng.uniform(3, 12))
    if load_kind in ("poisson", "constant", "trace"):
        load = round(n_gpus * law.per_s * 0.7, 2)
    else:
        load = float(round(n_gpus * law.slots * (1 + think_s / law.mean_s)))
    return World(seed, law, load_kind, frozenset(traits), goal, load, _draw_change(rng, traits), think_s, turns)


def _add_traits(rng: np.random.Generator, law: Law, traits: set[str]) -> Law:
    changes: dict[str, Any] = {}
    if "crowding" in traits:
        changes["crowding"] = float(rng.uniform(0.2, 1.5))
    if "heavy_tail" in traits:
        changes["cv"] = float(rng.uniform(0.8, 1.5))
    if "two_kinds" in traits:
        changes |= {"tail_share": float(rng.uniform(0.02, 0.3)), "tail_factor": float(rng.uniform(3, 8))}
    if "stalls" in traits:
        every_s = law.mean_s * float(rng.uniform(3, 20))
        changes |= {"stall_every_s": every_s, "stall_s": law.mean_s * float(rng.uniform(0.3, 1.0))}
    for name, refusal in (("refuses", "429"), ("sheds_503", "503"), ("apologises", "sorry")):
        if name in traits:
            changes |= {"admits": law.slots + int(rng.integers(1, 2 * law.slots)), "refusal": refusal}
    if "token_bucket" in traits:
        changes |= {"bucket_per_s": law.per_s * float(rng.uniform(0.4, 0.9)), "refusal": "429"}
    if "fails_rarely" in traits or "fails" in traits:
        changes["fails"] = float(rng.uniform(0.03, 0.2)) if "fails" in traits else 0.001
    if "shortens" in traits:
        changes["shortens"] = True
    return replace(law, **changes)


def _draw_change(rng: np.random.Generator, traits: set[str]) -> Change | None:
    kind = next(iter(traits & CHANGES), None)
    if kind is None:
        return None
    if kind == "scales_out":
        factor = float(rng.choice([1.5, 2.0, 3.0]))
        return Change(kind, factor, in_flight=float(rng.uniform(1.0, 2.5)), delay_s=float(rng.uniform(0, 40)))
    if kind == "scales_in":
        return Change(kind, 0.5, n_requests=int(rng.integers(300, 1200)))
    if kind == "warms_up":
        return Change(kind, float(rng.uniform(2, 6)), n_requests=int(rng.integers(20, 500)))
    return Change(kind, 1.0, n_requests=int(rng.integers(500, 1500)))


def _draw_goal(rng: np.random.Generator, law: Law) -> Goal:
    metric = str(rng.choice(METRICS))
    q = float(rng.choice([0.5, 0.9, 0.95, 0.95, 0.99]))
    room = float(rng.uniform(1.5, 5))
    runs = simulate_load(replace(law, admits=None, bucket_per_s=None, fails=0.0), 1, 3000, 1.0, seed=1)
    limit_s = max(float(np.quantile(runs[metric], q)), 1e-4) * (room if metric != "itl" else 1 + room / 8)
    return Goal(metric=metric, q=q, limit_s=float(f"{limit_s:.3g}"))


def simulate_load(
    law: Law,
    gpus: int,
    n: int,
    load: float,
    *,
    seed: int,
    kind: str = "users",
    think_s: float = 0.0,
    turns: int = 1,
) -> dict[str, Any]:
    """Latencies by metric, infinite for failures, and what else was not as asked: the truth of a load.

    An open load is that of one of the GPUs: its arrivals are split over them.
    """
    draw = random.Random(seed)
    rows: list[tuple[float, Fate]] = []
    if kind in ("poisson", "constant", "trace"):
        service, now_s = Service(law, 1, seed), 0.0
        for place in range(n):
            now_s = place / load if kind == "constant" else now_s + draw.expovariate(load)
            rows.append((now_s, service.answer(now_s)))
    else:
        service, users = Service(law, gpus, seed), max(1, round(load))
        waiting = [(draw.random() * (law.mean_s + think_s), user, 1 + user % turns, turns) for user in range(users)]
        heapq.heapify(waiting)
        for _ in range(n + 2 * users * turns):
            now_s, user, left, length = waiting[0]
            fate = service.answer(now_s, length - left if length == turns else 0)
            rows.append((now_s, fate))
            left = left - 1 if fate.outcome == "ok" else 0
            think = draw.expovariate(1 / think_s) if think_s else 0.0
            ended_s = min(fate.ended_s, now_s + law.timeout_s)
            heapq.heapreplace(waiting, (ended_s + think, user, left or turns, turns))
    kept = rows[len(rows) // 4 :]
    bad = [fate.outcome != "ok" or fate.ended_s - sent > law.timeout_s for sent, fate in kept]
    is_bad = np.array(bad)
    whole = np.array([fate.ended_s - sent for sent, fate in kept])
    first = np.array([fate.first_s - sent for sent, fate in kept])
    gaps = np.array([(fate.ended_s - fate.first_s) / max(1, fate.tokens - 1) for _, fate in kept])
    others = np.array([fate.text is not None or fate.tokens < law.tokens or fate.is_wrong for _, fate in kept])
    span_s = kept[-1][0] - kept[0][0]
    return {
        "runtime": np.where(is_bad, np.inf, whole),
        "ttft": np.where(is_bad, np.inf, first),
        "itl": np.where(is_bad, np.inf, gaps),
        "bad": float(np.mean(is_bad)),
        "other": float(np.mean(others)),
        "per_s": len(kept) / span_s if span_s else 0.0,
        "late_share": (max(fate.ended_s for _, fate in kept) - kept[-1][0]) / span_s if span_s else 0.0,
    }


def measure_capacity(law: Law) -> float:
    """Requests a second that one GPU ends where always enough of them wait."""
    served = replace(law, admits=None, bucket_per_s=None, fails=0.0, shortens=False)
    return float(simulate_load(served, 1, 3000, 6 * law.slots, seed=5)["per_s"])


def measure_at(
    world: World, gpus: int, *, load: float | None = None, n: int = 6000, seed: int = 1000
) -> dict[str, Any]:
    """What the service without its change does at a load on so many GPUs, over a long run."""
    asked = world.load if load is None else load
    share = asked / gpus if world.is_open else asked
    return simulate_load(
        world.law, gpus, n, share, seed=seed, kind=world.load_kind, think_s=world.think_s, turns=world.turns
    )


def exceeds_goal(world: World, gpus: int, room: float = 1.0, max_bad: float = 0.01, n: int = 6000) -> bool:
    """Whether the true quantile on so many GPUs is above the goal times `room`, or too many fail or differ."""
    found = measure_at(world, gpus, n=n)
    if found["bad"] > max_bad or found["other"] > max(max_bad, MAX_OTHER):
        return True
    if world.is_open and found["late_share"] > MAX_LATE_SHARE:
        return True  # what waits grows without end, whatever the goal is on
    return float(np.quantile(found[world.goal.metric], world.goal.q, method="inverted_cdf")) > room * world.goal.limit_s


def find_need(world: World, most: int = 400) -> int | None:
    """Least GPUs that keep the goal; null where none do."""
    low, high = 0, 1
    while high <= most and exceeds_goal(world, high):
        low, high = high, high * 2
    if high > most:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exceeds_goal(world, middle) else (low, middle)
    return high


def list_words(count: int) -> Sequence[str]:
    """So many short words."""
    return [f" w{place % 97}" for place in range(count)]
