"""Intervals that hold at every look: error rates under optional stopping, and what they cost in rounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from workbench.stats import adjust_holm, count_required_pairs, decide_beyond, paired_log_ratio
from workbench.stats.verdicts import critical_value, log_error, sequential_log_ratio, tail_probability

MARGIN = math.log1p(0.02)
SESSIONS = 2000
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(0, 1, shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_t(3, shape) / math.sqrt(3)


def bursts(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(0, 1, shape) + (rng.random(shape) < 0.1) * rng.normal(0, 10, shape)


NOISES = {"normal": normal, "heavy tails": heavy, "bursts": bursts}


def estimate_errors(values: np.ndarray, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of the first so many values, for each number of them along an axis."""
    n = np.arange(1, values.shape[axis] + 1).reshape(-1, *[1] * (-1 - axis))
    mean = np.cumsum(values, axis=axis) / n
    squares = np.cumsum(values**2, axis=axis) - n * mean**2
    return mean, np.sqrt(np.maximum(squares, 0) / np.maximum(n - 1, 1) / n)


def verdicts(
    effect: float, noise: Draw, spread: float, rounds: int, *, family: int = 1, seed: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """FASTER, SLOWER and SAME by session, member of the family and round; claims at Bonferroni's level."""
    values = effect + spread * noise(np.random.default_rng(seed), (SESSIONS, family, rounds))
    n = np.arange(1, rounds + 1)
    mean, error = estimate_errors(values)
    may_end = n >= 5
    with np.errstate(invalid="ignore"):
        claim, own = critical_value(n, 0.05 / family) * error, critical_value(n, 0.05) * error
        same = (mean - own > -MARGIN) & (mean + own < MARGIN) & may_end
        return (mean - claim > MARGIN) & may_end, (mean + claim < -MARGIN) & may_end, same


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("spread", [0.01, 0.04])
def test_looking_after_every_round_at_a_difference_of_exactly_the_margin_errs_in_5_percent_at_most(
    noise: str, spread: float
) -> None:
    faster, slower, same = verdicts(MARGIN, NOISES[noise], spread, 100)
    assert (faster | slower).any(axis=-1).mean() <= 0.05
    assert same.any(axis=-1).mean() <= 0.05


@pytest.mark.parametrize("noise", NOISES)
def test_a_family_of_equal_stacks_is_hardly_ever_told_apart(noise: str) -> None:
    faster, slower, _ = verdicts(0.0, NOISES[noise], 0.04, 60, family=6)
    assert (faster | slower).any(axis=(1, 2)).mean() <= 0.05
    at_margin, other, _ = verdicts(MARGIN, NOISES[noise], 0.04, 60, family=6, seed=2)
    assert (at_margin | other).any(axis=(1, 2)).mean() <= 0.05


def test_a_planned_interval_that_is_looked_at_after_every_round_errs_more_often() -> None:
    """The same test can fail: the usual interval, looked at as often, breaks its promise."""
    from scipy.special import stdtrit

    values = MARGIN + 0.04 * normal(np.random.default_rng(3), (SESSIONS, 100))
    n = np.arange(1, 101)
    mean, error = estimate_errors(values)
    away = np.abs(mean - MARGIN) > stdtrit(np.maximum(n - 1, 1), 0.975) * error
    assert (away & (n >= 5)).any(axis=-1).mean() > 0.15


def test_planted_differences_are_found_in_few_rounds() -> None:
    def rounds_needed(percent: float, spread: float) -> float:
        faster, _, _ = verdicts(math.log1p(percent / 100), normal, spread, 200)
        first = np.where(faster[:, 0].any(axis=-1), faster[:, 0].argmax(axis=-1) + 1, np.inf)
        return float(np.median(first))

    assert rounds_needed(3, 0.01) <= 15
    assert rounds_needed(5, 0.03) <= 15
    assert rounds_needed(10, 0.05) <= 12


def test_the_interval_is_as_wide_as_its_critical_value_says_and_its_test_agrees() -> None:
    rng = np.random.default_rng(4)
    above, below = np.exp(rng.normal(0.1, 0.03, 12)), np.ones(12)
    fixed, held = paired_log_ratio(above, below, level=0.95), sequential_log_ratio(above, below, level=0.95)
    assert held.estimate == fixed.estimate
    assert held.low < fixed.low < fixed.high < held.high  # type: ignore[operator]
    error = log_error(fixed)
    assert error is not None
    assert log_error(held) == pytest.approx(error)
    assert held.p_value == pytest.approx(tail_probability(12, math.log(held.estimate) / error))  # type: ignore[arg-type]
    (decision,) = decide_beyond([held], [0.02])
    assert decision.verdict == "FASTER"


def test_too_few_pairs_have_no_interval_and_equal_ratios_have_no_width() -> None:
    assert sequential_log_ratio([2.0, 2.1], [1.0, 1.0], level=0.95).low is None
    assert sequential_log_ratio([], [], level=0.95).estimate is None
    exact = sequential_log_ratio([2.0] * 6, [1.0] * 6, level=0.95)
    assert (exact.low, exact.high) == (exact.estimate, exact.estimate)


def test_rounds_that_would_decide_are_those_of_the_sequence() -> None:
    rng = np.random.default_rng(6)
    row = sequential_log_ratio(np.exp(rng.normal(0.06, 0.06, 10)), np.ones(10), level=0.95)
    needed = count_required_pairs(row, 0.02)
    error = log_error(row)
    assert needed is not None
    assert error is not None
    spread = error * math.sqrt(row.n)
    away = abs(math.log(row.estimate or 1)) - MARGIN
    assert critical_value(needed, 0.05) * spread / math.sqrt(needed) <= abs(away)


def test_a_family_keeps_its_planned_size_while_rows_are_missing() -> None:
    assert adjust_holm([0.01, None], size=4) == [pytest.approx(0.04), None]
    assert adjust_holm([0.01, 0.02], size=1) == [pytest.approx(0.02), pytest.approx(0.02)]
