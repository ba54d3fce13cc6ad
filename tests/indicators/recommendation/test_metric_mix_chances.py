"""Intervals and chances: worked by hand, at their limits, and as often right as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from workbench.indicators.recommendation import metric_mix as c
from workbench.indicators.recommendation.metric_mix import MixScores
from workbench.stats import Interval

WORLDS = 300
ROUNDS = 10


def scores(values: np.ndarray) -> MixScores:
    return MixScores(tuple(range(values.shape[0])), tuple(map(str, range(values.shape[1]))), values)


def test_the_ratio_is_the_mean_of_the_logs_within_the_rounds_that_are_complete() -> None:
    made = c.estimate_mix_ratio(scores(np.log([[1.0, 2.0], [3.0, 3.0], [5.0, 20.0]])), "1", "0", level=0.95)
    assert made.n == 3
    assert made.estimate == pytest.approx((2 * 1 * 4) ** (1 / 3))
    values = np.log([[1.0, 2.0], [1.0, 2.1], [1.0, np.nan], [np.nan, 9.0]])
    assert c.estimate_mix_ratio(scores(values), "1", "0", level=0.95).n == 2


def test_one_round_gives_a_ratio_without_an_interval_and_no_draws() -> None:
    made = c.estimate_mix_ratio(scores(np.log([[1.0, 2.0]])), "1", "0", level=0.95)
    assert (made.low, made.high) == (None, None)
    assert made.estimate == pytest.approx(2.0)
    values = np.array([[0.0, 0.1], [0.0, np.nan]])
    assert np.isnan(c.draw_posterior(scores(values), ["0", "1"], "0")[:, 1]).all()


def test_draws_have_the_width_of_the_t_interval() -> None:
    values = np.random.default_rng(3).normal(0, 0.03, (ROUNDS, 2))
    draws = c.draw_posterior(scores(values), ["0", "1"], "0", draws=40_000)
    found = np.quantile(draws[:, 1], [0.025, 0.975])
    interval = c.estimate_mix_ratio(scores(values), "1", "0", level=0.95)
    assert np.exp(found) == pytest.approx([interval.low, interval.high], rel=2e-3)
    assert not draws[:, 0].any()


def test_arms_that_move_together_within_rounds_are_drawn_together() -> None:
    random = np.random.default_rng(4)
    base, common = random.normal(0, 0.001, ROUNDS), random.normal(0, 0.05, ROUNDS)
    values = np.column_stack([base, common, common + 0.01 + random.normal(0, 0.0005, ROUNDS)])
    draws = c.draw_posterior(scores(values), ["0", "1", "2"], "0")
    assert np.corrcoef(draws[:, 1], draws[:, 2])[0, 1] > 0.99
    assert (draws[:, 2] > draws[:, 1]).mean() > 0.999


def test_the_same_seed_gives_the_same_draws() -> None:
    values = np.random.default_rng(5).normal(0, 0.03, (ROUNDS, 3))
    first, second, other = (c.draw_posterior(scores(values), ["1", "2"], "0", seed=seed) for seed in (1, 1, 2))
    assert (first == second).all()
    assert (first != other).any()


def test_chances_by_hand() -> None:
    draws = np.log([[1.0, 1.01, 0.5], [1.0, 2.0, 0.5], [1.0, 0.5, 0.5], [1.0, 1.0, 0.5]])
    made = c.compute_chances(draws, 0.02)
    assert made.p_best == pytest.approx((1.5 / 4, 2.5 / 4, 0.0))
    assert made.p_near == pytest.approx((0.75, 0.75, 0.0))
    assert made.regret_pct == pytest.approx(
        (100 * (0.01 / 1.01 + 0.5) / 4, 100 * 0.5 / 4, 100 * (1 - 0.5 / 1.01 + 0.75 + 0.5 + 0.5) / 4)
    )


def test_chances_of_one_stack_are_sure_and_those_of_all_sum_to_one() -> None:
    assert c.compute_chances(np.zeros((10, 1)), 0.02) == c.Chances((1.0,), (1.0,), (0.0,))
    assert sum(c.compute_chances(np.random.default_rng(0).normal(size=(500, 7)), 0.02).p_best) == pytest.approx(1)


def simulated(arms: int, spread: float, rounds: int) -> dict[str, np.ndarray]:
    """What was said of the arm in front, and whether it was so: P(best), was best, P(near), was near; both methods."""
    found: dict[str, list[tuple[float, ...]]] = {"t": [], "with replacement": []}
    random = np.random.default_rng(7)
    for world in range(WORLDS):
        truth = random.normal(0, spread, arms)
        values = truth + random.normal(0, 0.03, (rounds, arms))
        ratios = values - values[:, :1]
        front = int(ratios.mean(axis=0).argmax())
        weights = random.multinomial(rounds, np.ones(rounds) / rounds, 1000) / rounds
        draws = {
            "t": c.draw_posterior(scores(values), list(map(str, range(arms))), "0", draws=1000, seed=world),
            "with replacement": weights @ ratios,
        }
        for method, drawn in draws.items():
            said = c.compute_chances(drawn, 0.02)
            behind = truth.max() - truth[front]
            found[method].append((said.p_best[front], behind == 0, said.p_near[front], behind <= math.log(1.02)))
    return {method: np.array(rows, dtype=float) for method, rows in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("arms", "rounds"), [(5, 10), (20, 10), (5, 5)])
def test_the_arm_in_front_is_as_often_the_best_as_said(arms: int, rounds: int) -> None:
    # 300 worlds: the standard error of a share is at most 0.03.
    found = simulated(arms, 0.03, rounds)
    said, was, near, was_near = found["t"].mean(axis=0)
    assert abs(said - was) < 0.06
    assert was_near >= near - 0.01
    assert found["with replacement"][:, 0].mean() > said


def test_where_arms_hardly_differ_the_one_in_front_is_less_often_best_than_said_but_near() -> None:
    said, was, near, was_near = simulated(5, 0.01, 10)["t"].mean(axis=0)
    assert said > was
    assert was_near >= near


def test_the_chance_not_to_be_worse_is_that_of_the_t_distribution() -> None:
    made = c.estimate_mix_ratio(scores(np.random.default_rng(1).normal(0, 0.03, (ROUNDS, 2))), "1", "0", level=0.95)
    assert made.low is not None
    # At a margin that is just the low end, all but 2.5 % lies above it.
    assert c.chance_not_worse(made, 1 / made.low - 1) == pytest.approx(0.975)
    assert c.chance_not_worse(Interval(None, None, None, 0.95, 0, ""), 0.02) is None
    assert c.chance_not_worse(Interval(1.0, 1.0, 1.0, 0.95, 10, ""), 0.02) == 1.0
    assert c.chance_not_worse(Interval(0.5, 0.5, 0.5, 0.95, 10, ""), 0.02) == 0.0


def test_a_prediction_without_error_has_no_width() -> None:
    made = c.predict_ratio_interval(0.0, 0.0, 5, level=0.95)
    assert (made.low, made.estimate, made.high) == (1.0, 1.0, 1.0)
