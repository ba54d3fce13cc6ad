"""Compares autoscalers over several days: GPU hours and missed goals, beside foresight and a fixed count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from workbench import stats
from workbench.core.errors import InputError
from workbench.core.formats import fit_answer
from workbench.sizing.autoscaling.day_simulation import DayResult, ScalingLimits, simulate_day
from workbench.sizing.autoscaling.day_traffic import HOUR_S, DayTraffic
from workbench.sizing.autoscaling.policies import FixedCount, Policy, ReplicaSchedule
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.load.level_ladder import Ladder
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.tables import AUTOSCALERS, REPLICA_TIMES
from workbench.stats.intervals import t_interval

ORACLE = "foresight"
BLOCK_S = 600.0
"""Length of the stretches: longer than an autoscaler needs to come back. Chosen, not derived."""
SLOT_S = 60.0
"""Length of the slots in which foresight changes its replicas."""
OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """A policy's days."""

    policy: Policy
    days: list[DayResult]

    @property
    def gpu_hours(self) -> list[float]:
        """GPU hours of each day."""
        return [day.gpu_hours for day in self.days]

    @property
    def late_share(self) -> float:
        """Share of all requests that missed a goal."""
        n_late = sum(float(day.is_late.sum()) for day in self.days)
        return n_late / max(1, sum(len(day.is_late) for day in self.days))

    def late_interval(self, seed: int) -> tuple[float, float]:
        """90 % interval of the share: stretches of ten minutes are drawn again, since their requests share a fate."""
        blocks = np.array([block for day in self.days for block in day.count_by_block(BLOCK_S)], dtype=np.float64)
        random = np.random.default_rng(seed)
        drawn = blocks[random.integers(0, len(blocks), (2000, len(blocks)))].sum(axis=1)
        shares = drawn[:, 1] / np.maximum(drawn[:, 0], 1)
        low, high = np.quantile(shares, [0.05, 0.95])
        if not blocks[:, 1].sum():
            # None was late: as many clean stretches leave this much open.
            high = 1 - 0.05 ** (1 / len(blocks))
        return float(low), float(high)


@dataclass(frozen=True)
class AutoscalingAnswer:
    """Which autoscaler holds the goals with the fewest GPU hours.

    `table`: Table AUTOSCALERS. `times`: Table REPLICA_TIMES of the first day. `notes`: How it was made.
    """

    goals: list[Goal]
    table: pl.DataFrame
    times: pl.DataFrame
    notes: list[str] = field(default_factory=list)

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The one with the fewest GPU hours of those that hold; null without one, foresight apart."""
        held = self.table.filter((self.table["verdict"] == "holds") & (self.table["policy"] != ORACLE))
        return held.sort("gpu_hours").row(0, named=True) if held.height else None

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        goal, chosen = self.goals[0].name if len(self.goals) == 1 else "all goals", self.chosen
        if chosen is None:
            return fit_answer(f"No tried autoscaler holds {goal}.", "No tried autoscaler holds the goals.")
        hours = f"{chosen['policy']} holds {goal} with {chosen['gpu_hours']:.3g} GPU hours a day"
        more = f", {chosen['over_foresight']:.2f} times foresight"
        return fit_answer(
            f"{hours}{more}.", f"{hours}.", f"{chosen['policy']}: {chosen['gpu_hours']:.3g} GPU hours a day."
        )

    @property
    def reasons(self) -> list[str]:
        """Why there is no answer; empty where there is one."""
        if self.chosen is not None:
            return []
        rows = self.table.select("policy", "late_share", "verdict").rows()
        return [f"{policy}: {100 * late:.3g} % late, {verdict}" for policy, late, verdict in rows]


def find_capacity_per_s(service: Service, goals: Sequence[Goal], seed: int) -> float:
    """Requests a second that one replica serves within the goals, in virtual time.

    Raises
    ------
    InputError
        No rate is within the goals.
    """
    config = build_sweep_config(
        protocol="function",
        simulated=True,
        goals=list(goals),
        arrivals="poisson",
        seed=seed,
        ladder=Ladder(first=0.05, most_repeats=1, most_levels=12),
    )
    one = service.model_copy(update={"gpus": 1})
    requests, steps = virtual_time.simulate_sweep(one, config)
    answer = compute_answer(requests, steps, goals, 1.0, draws=100)
    capacities = [row["capacity"] or row["capacity_low"] for row in answer.estimates.iter_rows(named=True)]
    if not all(capacities):
        raise InputError("one replica holds the goals at no rate", found="; ".join(answer.reasons)[:300])
    return float(min(capacities))


def build_foresight(traffic: DayTraffic, capacity_per_s: float, limits: ScalingLimits) -> ReplicaSchedule:
    """Replicas by minute of who knows the traffic: what its rate needs, ordered as early as they take to start."""
    n_slots = math.ceil(traffic.duration_s / SLOT_S)
    counts = []
    for slot in range(n_slots):
        rate = max(traffic.rate_at(SLOT_S * slot), traffic.rate_at(SLOT_S * (slot + 1)))
        count = math.ceil(rate / capacity_per_s - 1e-9)
        counts.append(min(max(count, limits.min_replicas), limits.max_replicas))
    return ReplicaSchedule(ORACLE, counts, SLOT_S, limits.start_s)


def compare_policies(
    service: Service,
    traffic: DayTraffic,
    policies: Sequence[Policy | None],
    goals: Sequence[Goal],
    limits: ScalingLimits,
    *,
    days: int,
    seed: int,
    on_progress: OnProgress,
) -> AutoscalingAnswer:
    """Replay the days with each policy; null stands for the smallest fixed count that holds.

    Every policy meets the same requests. A goal on a quantile allows its share of the requests to be late: 5 % for a
    p95, over all days. A policy holds it where the upper end of the interval of what was late is below that.

    Raises
    ------
    InputError
        The days are too short to tell that so few are late, or one replica holds the goals at no rate.
    """
    allowed = min(1 - goal.q for goal in goals)
    _check_length(traffic, days, allowed)
    capacity_per_s = find_capacity_per_s(service, goals, seed)
    foresight = build_foresight(traffic, capacity_per_s, limits)
    first = max(limits.min_replicas, math.ceil(traffic.rate_at(0.0) / capacity_per_s))

    def replay(policy: Policy) -> Outcome:
        on_progress(f"{policy.name}: {days} days of {len(traffic.rates_per_s)} hours")
        start = policy.count_at_start(first)
        return Outcome(
            policy,
            [
                simulate_day(service, traffic, policy, goals, limits, seed=seed + day, start_replicas=start)
                for day in range(days)
            ],
        )

    outcomes = {ORACLE: replay(foresight)}
    for policy in policies:
        if policy is None:
            outcome = _find_fixed(replay, foresight, allowed, limits)
            outcomes[outcome.policy.name] = outcome
        elif policy.name not in outcomes:
            outcomes[policy.name] = replay(policy)
    base = float(np.mean(outcomes[ORACLE].gpu_hours))
    rows = [_build_row(outcome, base, allowed, seed) for outcome in outcomes.values()]
    times = [
        {"policy": outcome.policy.name, "place": place, "at_s": at_s, "ready": ready, "starting": starting}
        for outcome in outcomes.values()
        for place, (at_s, ready, starting) in enumerate(outcome.days[0].timeline)
    ]
    notes = [
        f"A replica serves {capacity_per_s:.3g} requests/s within the goals, and takes {limits.start_s:g} s to start.",
        "In virtual time; every autoscaler meets the same requests.",
    ]
    return AutoscalingAnswer(list(goals), AUTOSCALERS.frame(rows), REPLICA_TIMES.frame(times), notes)


def _check_length(traffic: DayTraffic, days: int, allowed: float) -> None:
    """Refuse days in which not even a policy that is never late would be known to hold."""
    n_blocks = sum(rate > 0 for rate in traffic.rates_per_s) * HOUR_S / BLOCK_S
    n_needed = math.log(0.05) / math.log(1 - allowed)
    if days * n_blocks < n_needed:
        raise InputError(
            f"too little traffic to tell that at most {100 * allowed:.2g} % are late",
            where="--days",
            found=f"{days * n_blocks:.0f} stretches of ten minutes with requests",
            allowed=f"{math.ceil(n_needed)} or more",
            do=f"--days {math.ceil(n_needed / n_blocks)}",
        )


def _find_fixed(
    replay: Callable[[Policy], Outcome],
    foresight: ReplicaSchedule,
    allowed: float,
    limits: ScalingLimits,
) -> Outcome:
    """The smallest fixed count that holds, or the largest allowed one: doubled from foresight's peak, then halved."""
    tried: dict[int, Outcome] = {}

    def holds(count: int) -> bool:
        tried[count] = tried.get(count) or replay(FixedCount(count))
        return tried[count].late_interval(0)[1] <= allowed

    most = foresight.peak
    while not holds(most) and most < limits.max_replicas:
        most = min(2 * most, limits.max_replicas)
    low = max((count for count in tried if count < most), default=limits.min_replicas - 1)
    while most - low > 1:
        middle = (low + most) // 2
        low, most = (low, middle) if holds(middle) else (middle, most)
    return tried[most]


def _build_row(outcome: Outcome, base: float, allowed: float, seed: int) -> dict[str, Any]:
    """Row of table AUTOSCALERS."""
    hours = outcome.gpu_hours
    mean, low, high = float(np.mean(hours)), None, None
    _, half, _ = t_interval(np.array(hours), stats.LEVEL)
    if half is not None:
        low, high = mean - half, mean + half
    late_low, late_high = outcome.late_interval(seed)
    verdict = "holds" if late_high <= allowed else "misses" if late_low > allowed else "undecided"
    timelines = [day.timeline for day in outcome.days]
    return {
        "policy": outcome.policy.name,
        "days": len(hours),
        "requests": sum(len(day.is_late) for day in outcome.days),
        "gpu_hours": mean,
        "gpu_hours_low": low,
        "gpu_hours_high": high,
        "over_foresight": mean / base,
        "late_share": outcome.late_share,
        "late_low": late_low,
        "late_high": late_high,
        "allowed": allowed,
        "most_replicas": max(ready + starting for times in timelines for _, ready, starting in times),
        "changes": sum(len(times) - 1 for times in timelines) / len(hours),
        "verdict": verdict,
    }
