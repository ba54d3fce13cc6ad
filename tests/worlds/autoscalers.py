"""Drawn services, days and autoscalers (SIMULATED, virtual time): what is said to hold must hold on other days, too.

python -m tests.worlds.autoscalers 100 --first 0 --show 10
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.sizing.autoscaling.comparison import ORACLE, Outcome, compare_policies, find_capacity_per_s
from workbench.sizing.autoscaling.day_simulation import ScalingLimits, simulate_day
from workbench.sizing.autoscaling.day_traffic import DayTraffic
from workbench.sizing.autoscaling.policies import FixedCount, Policy, read_policy
from workbench.sizing.config import Goal
from workbench.sizing.simulation.cluster_model import Service

SHAPES = ("wave", "spike", "flat", "steps", "idle night")
TRAITS = ("slow start", "few replicas", "tight goal", "first token", "two goals")
FRESH_DAYS, FIRST_FRESH_SEED = 10, 5_000
MAX_HOURS_ERROR = 0.1


@dataclass
class World:
    """A service, a day and what may scale it."""

    seed: int
    shape: str
    traits: frozenset[str]
    service: Service
    traffic: DayTraffic
    goals: list[Goal]
    limits: ScalingLimits
    policies: list[str]


def draw_world(seed: int) -> World:
    """Draw a world whose busiest hour needs one to four replicas."""
    rng = np.random.default_rng([seed, 91])
    traits = frozenset(str(name) for name in rng.choice(TRAITS, int(rng.integers(0, 3)), replace=False))
    service = Service(
        slots=int(rng.integers(2, 5)),
        calls=1,
        input_tokens=float(rng.uniform(50, 500)),
        output_tokens=float(rng.uniform(100, 300)),
        output_cv=float(rng.uniform(0, 0.6)),
        decode_base_s=float(rng.uniform(0.03, 0.1)),
        decode_per_sequence_s=float(rng.uniform(0, 0.004)),
        prefill_tokens_per_s=float(rng.uniform(1_000, 10_000)),
        seed=seed,
    )
    idle_s = service.output_tokens * (service.decode_base_s + service.decode_per_sequence_s)
    room = float(rng.uniform(1.5, 2.0) if "tight goal" in traits else rng.uniform(2.2, 4))
    q = float(rng.choice([0.8, 0.9, 0.95]))
    goals = [Goal(q=q, limit_s=round(room * idle_s * (1 + service.output_cv), 2))]
    if "first token" in traits:
        goals = [Goal(metric="ttft", q=q, limit_s=round(0.3 * idle_s, 2))]
    if "two goals" in traits:
        goals.append(Goal(metric="ttft", q=0.9, limit_s=round(0.5 * idle_s, 2)))
    peak = float(rng.uniform(1, 4)) * 0.6 * service.slots / idle_s
    shape = str(rng.choice(SHAPES))
    hours = {
        "wave": [0.2, 0.5, 1.0, 0.6, 0.2],
        "spike": [0.2, 0.2, 1.0, 0.2, 0.2],
        "flat": [1.0, 1.0, 1.0],
        "steps": [0.1, 0.4, 0.7, 1.0],
        "idle night": [0.0, 0.0, 1.0, 0.5],
    }[shape]
    traffic = DayTraffic(tuple(round(peak * share, 4) for share in hours))
    limits = ScalingLimits(
        start_s=float(rng.uniform(200, 900) if "slow start" in traits else rng.uniform(10, 120)),
        min_replicas=1,
        max_replicas=2 if "few replicas" in traits else 16,
    )
    targets = rng.uniform(0.3, 1.2, 2) * service.slots
    policies = ["fixed", f"hpa:in_flight={targets[0]:.1f}", f"hpa:in_flight={targets[1]:.1f}"]
    policies.append(str(rng.choice(["keda:waiting=1", "hpa:busy=0.7", "keda:rate=0.3"])))
    return World(seed, shape, traits, service, traffic, goals, limits, policies)


@dataclass
class Judged:
    """What was said of a world that is not so."""

    seed: int
    shape: str
    traits: list[str]
    state: str
    notes: list[str] = field(default_factory=list)


def judge_world(seed: int) -> Judged:
    """Compare autoscalers on five days; then the verdicts meet days that nothing was chosen on."""
    world = draw_world(seed)
    judged = Judged(seed, world.shape, sorted(world.traits), "right")
    policies = [read_policy(name) for name in world.policies]
    try:
        answer = compare_policies(
            world.service, world.traffic, policies, world.goals, world.limits, days=5, seed=seed,
            on_progress=lambda _: None,
        )  # fmt: skip
    except WorkbenchError as error:
        return Judged(seed, world.shape, sorted(world.traits), "refused", [str(error)[:200]])
    rows = {row["policy"]: row for row in answer.table.iter_rows(named=True)}
    requests = {row["requests"] for row in rows.values()}
    if len(requests) != 1:
        judged.notes.append(f"policies met {requests} requests")
    first = _count_first(world)
    for name, row in rows.items():
        if name == ORACLE:
            continue
        policy = FixedCount(int(name.partition(":")[2])) if name.startswith("fixed") else read_policy(name)
        assert policy is not None
        fresh = _replay_fresh(world, policy, first)
        low, high = fresh.late_interval(seed)
        if row["verdict"] == "holds" and low > row["allowed"]:
            judged.notes.append(f"{name} holds, and is late in {low:.3f} to {high:.3f} of other days")
        if row["verdict"] == "misses" and high <= row["allowed"]:
            judged.notes.append(f"{name} misses, and is late in {low:.3f} to {high:.3f} of other days")
        hours = float(np.mean(fresh.gpu_hours))
        half = row["gpu_hours"] - row["gpu_hours_low"]
        if abs(hours - row["gpu_hours"]) > max(2 * half, MAX_HOURS_ERROR * row["gpu_hours"]):
            judged.notes.append(f"{name}: {row['gpu_hours']:.3g} GPU hours for {hours:.3g}")
    if judged.notes:
        judged.state = "wrong"
    elif answer.chosen is None:
        judged.state = "refused"
        judged.notes = answer.reasons
    return judged


def _count_first(world: World) -> int:
    capacity_per_s = find_capacity_per_s(world.service, world.goals, world.seed)
    return max(world.limits.min_replicas, int(np.ceil(world.traffic.rate_at(0.0) / capacity_per_s)))


def _replay_fresh(world: World, policy: Policy, first: int) -> Outcome:
    seeds = range(FIRST_FRESH_SEED, FIRST_FRESH_SEED + FRESH_DAYS)
    start = policy.count_at_start(first)
    days = [
        simulate_day(
            world.service, world.traffic, policy, world.goals, world.limits, seed=seed, start_replicas=start
        )
        for seed in seeds
    ]  # fmt: skip
    return Outcome(policy, days)


def main() -> None:
    """Judge worlds and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=10)
    asked = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(judge_world, range(asked.first, asked.first + asked.count)))
    print(Counter(one.state for one in found))
    for state in ("wrong", "refused"):
        for one in [one for one in found if one.state == state][: asked.show]:
            print(state, one.seed, one.shape, one.traits, one.notes[:4])
    sys.exit(any(one.state == "wrong" for one in found))


if __name__ == "__main__":
    main()
