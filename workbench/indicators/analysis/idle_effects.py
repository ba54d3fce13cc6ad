"""What an idle machine would say: the ratio of two stacks without the load of others, from rounds beside it.

Each run tells how much of the machine others used meanwhile. Time that a run waited for a core is taken off; what is
left is slower by a cost of each load, which differs between the two stacks. The costs come from how the ratios of the
rounds go with the loads, and the ratio is that of no load at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.indicators.analysis.observations import BUSY, Observations
from workbench.indicators.store.archive import PlannedMetric
from workbench.indicators.tables import EFFECTS

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
LOADS = {
    "other_load": "the run's cores",
    "elsewhere_load": "the other cores",
    "disk_load": "the disks' time",
}
LEVEL = 0.9
MIN_ROUNDS = 8
# Standard deviation of the log cost of a full load before anything is seen: 1.6 times the time, most likely below 2.7;
# and of what each of two programs has of its own in it. Waiting for the disks differs most between programs.
PRIOR = 0.5
OWN_PRIORS = {"other_load": 0.15, "elsewhere_load": 0.15, "disk_load": 0.3}
# Intervals that reach further tell no difference between stacks that anybody asks for.
MAX_REACH = 0.1
_TAILS = 3.0
_MAX_GONE = 0.95


@dataclass(frozen=True)
class IdleEffect:
    """How many times better than the baseline on an idle machine, with its interval; or `reason` why that is unknown.

    `loads` tells the load of the rounds, in words; empty where the machine was idle, null where nothing tells.
    """

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    loads: str | None = ""


def estimate_idle_effects(observed: Observations) -> dict[tuple[str, str], IdleEffect]:
    """The effect on an idle machine by arm and metric, for metrics that are times or rates.

    Intervals have 90 %. Rounds count whose runs tell the load of others. Does not tell what a load does that none of
    `LOADS` shows, such as that of other virtual machines on the same hardware or of the network.
    """
    session = observed.session
    runs = {(row["arm"], row["case"], row["round"]): row for row in observed.runs.iter_rows(named=True)}
    times = _list_times(observed, runs)
    effects = {}
    for case in session.cases:
        for metric in case.metrics:
            base = times.get((session.baseline, metric.name), {})
            for arm in session.arms:
                own = times.get((arm.name, metric.name), {})
                rounds = sorted(base.keys() & own.keys())
                if arm.name == session.baseline or not rounds:
                    continue
                pairs = [
                    (runs[session.baseline, case.label, number], runs[arm.name, case.label, number])
                    for number in rounds
                ]
                logs = np.array([base[number] - own[number] for number in rounds])
                effects[arm.name, metric.name] = _estimate_from_rounds(logs, pairs)
    return effects


def add_idle_effects(effects: pl.DataFrame, observed: Observations) -> pl.DataFrame:
    """EFFECTS with its columns of an idle machine; null where nothing tells its load."""
    found = estimate_idle_effects(observed)
    rows = []
    for row in effects.iter_rows(named=True):
        effect = found.get((row["arm"], row["metric"]), IdleEffect(loads=None))
        ends = {"idle_ratio": effect.ratio, "idle_low": effect.low, "idle_high": effect.high}
        rows.append({**row, **ends, "idle_loads": effect.loads, "idle_because": effect.reason})
    return EFFECTS.frame(rows)


def estimate_idle_log_ratio(
    logs: Floats, base: Floats, arm: Floats, own_priors: Sequence[float]
) -> tuple[float, float]:
    """The log ratio of no load, and how far its 90 % interval reaches to each side.

    `logs`: Log ratio of each round, (rounds,). `base`, `arm`: Loads of the baseline's and the arm's run, (rounds,
    loads), as shares. `own_priors`: Standard deviations of what a load costs one of the two alone, (loads,).
    Source: Bayesian linear regression with normal priors on costs and t-distributed noise (Lange, Little and Taylor,
    Robust Statistical Modeling Using the t Distribution, 1989).
    """
    from scipy.special import stdtrit

    design = np.hstack([np.ones((len(logs), 1)), base, -arm])
    # A load slows both down, and each by some more or less of its own.
    shared, own = PRIOR**2 * np.eye(len(own_priors)), np.diag(np.square(own_priors))
    prior = np.zeros((design.shape[1], design.shape[1]))
    prior[1:, 1:] = np.linalg.inv(np.block([[shared + own, shared], [shared, shared + own]]))
    weights, variance = np.ones(len(logs)), max(float(np.var(logs)), 1e-12)
    free = float(len(logs) - 1)
    for _ in range(100):
        information = (design.T * weights) @ design / variance
        covariance = np.linalg.inv(information + prior)
        rest = logs - design @ (covariance @ (design.T * weights) @ logs / variance)
        free = max(2.0, len(logs) - float(np.trace(covariance @ information)))
        before, variance = variance, max(float(weights @ rest**2) / free, 1e-12)
        weights = (_TAILS + 1) / (_TAILS + rest**2 / variance)
        if abs(variance - before) <= 1e-6 * before:
            break
    estimate = float((covariance @ (design.T * weights) @ logs / variance)[0])
    error = math.sqrt(float(covariance[0, 0]) * (_TAILS + 3) / (_TAILS + 1))
    return estimate, error * float(stdtrit(free, (1 + LEVEL) / 2))


def _list_times(
    observed: Observations, runs: Mapping[tuple[str, str, int], Mapping[str, Any]]
) -> dict[tuple[str, str], dict[int, float]]:
    """Log of the time of each round by arm and metric, without what it waited for a core by the wall clock."""
    metrics: dict[str, tuple[str, PlannedMetric]] = {
        metric.name: (case.label, metric) for case in observed.session.cases for metric in case.metrics
    }
    times: dict[tuple[str, str], dict[int, float]] = {}
    names = ("arm", "metric", "round", "value", "clock", "cpu_part")
    for arm, name, number, value, clock, part in observed.values.select(names).iter_rows():
        case, metric = metrics[name]
        run = runs[arm, case, number]
        if part is None or value <= 0 or run["other_load"] is None:
            continue
        gone = (run["waited_s"] or 0) + (run["steal_s"] or 0) if clock == "wall" else 0.0
        worked = math.log1p(-min(_MAX_GONE, gone / run["duration_s"]))
        log = math.log(value) if metric.better == "lower" else -math.log(value)
        times.setdefault((arm, name), {})[number] = log + worked
    return times


def _estimate_from_rounds(logs: Floats, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> IdleEffect:
    """The effect from the log ratio and the two runs of each round."""
    known = [name for name in LOADS if all(run[name] is not None for pair in pairs for run in pair)]
    base, arm = (np.array([[pair[side][name] for name in known] for pair in pairs]) for side in (0, 1))
    both = np.vstack([base, arm])
    loads = ", ".join(
        f"{100 * both[:, place].min():.0f} to {100 * both[:, place].max():.0f} % of {LOADS[name]}"
        for place, name in enumerate(known)
        if both[:, place].max() >= BUSY
    )
    if len(logs) < MIN_ROUNDS:
        return IdleEffect(reason=f"{len(logs)} rounds, at least {MIN_ROUNDS} are needed", loads=loads)
    estimate, reach = estimate_idle_log_ratio(logs, base, arm, [OWN_PRIORS[name] for name in known])
    if reach > MAX_REACH:
        return IdleEffect(reason="what that costs each of the two cannot be told apart", loads=loads)
    ratio, low, high = (math.exp(log) for log in (estimate, estimate - reach, estimate + reach))
    return IdleEffect(ratio, low, high, loads=loads)


def format_idle_effects(effects: pl.DataFrame) -> list[str]:
    """A sentence for each comparison that was made beside others; `effects` is EFFECTS."""
    lines = []
    for row in effects.filter(~effects["control"] & (effects["idle_loads"] != "")).iter_rows(named=True):
        head = f"On an idle machine {row['arm']} would be"
        tail = f"({row['metric']}, {100 * LEVEL:.0f} %), from rounds beside others, who used {row['idle_loads']}."
        if row["idle_ratio"] is None:
            lines.append(
                f"What an idle machine would say of {row['arm']} by {row['metric']} is not known: others used "
                f"{row['idle_loads']}: {row['idle_because']}."
            )
            continue
        figures = f"{row['idle_ratio']:.3f} [{row['idle_low']:.3f}, {row['idle_high']:.3f}]"
        lines.append(f"{head} {figures} times as fast as {row['baseline']} {tail}")
    return lines
