"""The ratio of an idle machine: coverage on drawn sessions beside others, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.indicators.worlds import result, session
from workbench.indicators.analysis.effects import compare_session
from workbench.indicators.analysis.idle_effects import (
    MAX_REACH,
    OWN_PRIORS,
    estimate_idle_log_ratio,
    format_idle_effects,
)
from workbench.indicators.analysis.observations import build_observations
from workbench.indicators.store.archive import Pressure, inspection_id

WAITED = 0.3


def world(loads: NDArray[np.float64], *, costs: tuple[float, float] = (0.1, 0.6), told: bool = True) -> dict[str, Any]:
    """The row of an arm that takes 0.8 times the baseline's time when idle, beside others; runs wait 30 % more."""
    plan, rng = session(method="sequence"), np.random.default_rng(1)
    found = []
    for number, load in enumerate(loads):
        for arm in plan.arms:
            cost, idle_ms = (costs[1], 80.0) if arm.name == "other" else (costs[0], 100.0)
            worked_s = math.exp(cost * load + rng.normal(0, 0.01))
            took_s = worked_s / (1 - WAITED * load)
            made = result(plan, arm.name, "Sort", number, idle_ms * took_s, cpu_ms=idle_ms * worked_s)
            after = Pressure(busy_s=(1.0 + load * took_s) if told else None)
            changed = {"cpus": (1,), "cpu_s": 1.0, "duration_s": took_s, "waited_s": took_s - worked_s}
            pressure = {"before": Pressure(busy_s=0.0), "after": after}
            made = made.model_copy(update={"workbench": made.workbench.model_copy(update={**changed, **pressure})})
            found.append((inspection_id(plan.session_id, arm.name, "Sort"), number, made))
    effects = compare_session(build_observations(plan, found)).effects
    return {**effects.filter(pl.col("arm") == "other").row(0, named=True), "lines": format_idle_effects(effects)}


def test_beside_a_load_that_comes_and_goes_the_idle_ratio_is_found() -> None:
    row = world(np.tile([0.0, 0.6, 0.3], 8))
    assert row["ratio"] < 1.15
    assert row["idle_low"] < 1.25 < row["idle_high"]
    assert row["idle_ratio"] == pytest.approx(1.25, rel=0.02)
    (line,) = row["lines"]
    assert line.startswith("On an idle machine other would be 1.2")
    assert "0 to 60 % of the run's cores" in line


def test_a_load_that_never_changes_is_not_told_apart() -> None:
    row = world(np.full(24, 0.5))
    assert (row["idle_ratio"], row["idle_because"]) == (None, "what that costs each of the two cannot be told apart")
    (line,) = row["lines"]
    assert line.startswith("What an idle machine would say of other by Sort is not known: others used 50 to 50 %")


def test_on_an_idle_machine_nothing_is_said() -> None:
    row = world(np.zeros(24))
    assert row["idle_ratio"] == pytest.approx(1.25, rel=0.02)
    assert row["lines"] == []


def test_few_rounds_and_machines_that_do_not_tell_have_no_idle_ratio() -> None:
    assert world(np.tile([0.0, 0.6], 3))["idle_because"] == "6 rounds, at least 8 are needed"
    row = world(np.tile([0.0, 0.6], 8), told=False)
    assert (row["idle_ratio"], row["idle_loads"], row["lines"]) == (None, None, [])


@pytest.mark.parametrize("pattern", ["idle", "on and off", "bursts"])
def test_intervals_cover_and_answers_are_close(pattern: str) -> None:
    rng, covered, close = np.random.default_rng(3), [], []
    for _ in range(400):
        n, level = int(rng.choice([10, 20, 30])), rng.uniform(0.2, 0.9)
        shares = {"idle": np.zeros(n), "on and off": np.arange(n) % 4 // 2, "bursts": rng.beta(0.5, 0.5, n)}[pattern]
        base, arm = (np.abs(level * shares[:, None] + rng.normal(0, 0.01, (n, 3))) for _ in range(2))
        costs, truth = rng.gamma(1, 0.25, 2), rng.normal(0, 0.3)
        noise = rng.choice([0.005, 0.02]) * rng.standard_t(4, n)
        logs = truth + costs[0] * base[:, 0] - costs[1] * arm[:, 0] + noise
        estimate, reach = estimate_idle_log_ratio(logs, base, arm, list(OWN_PRIORS.values()))
        if reach <= MAX_REACH:
            covered.append(abs(estimate - truth) <= reach)
            close.append(abs(estimate - truth) <= 0.05)
    assert len(covered) > 300
    assert np.mean(covered) >= 0.85
    assert np.mean(close) >= 0.9
