"""The ratio of two runs' figures: worked by hand, at its limits, and its coverage by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from workbench.stats import LEVEL, Interval, decide_verdicts, paired_log_ratio, ratios


def interval(estimate: Any, low: Any = None, high: Any = None, level: float = LEVEL) -> Interval:
    return Interval(estimate, low, high, level, 5, "given")


def test_half_widths_go_together_as_by_hand() -> None:
    # Halves ln 1.1 and ln 1.2: root of 0.0953^2 + 0.1823^2 is 0.2057.
    found = ratios.independent_ratio(interval(10.0, 10 / 1.1, 11.0), interval(30.0, 25.0, 36.0))
    assert found.estimate == pytest.approx(3.0)
    assert [found.low, found.high] == [pytest.approx(3 / 1.22845, rel=1e-4), pytest.approx(3 * 1.22845, rel=1e-4)]


def test_lopsided_intervals_bound_each_other_crosswise() -> None:
    # The ratio is low where the candidate is low and the baseline is high.
    found = ratios.independent_ratio(interval(1.0, 1.0, 2.0), interval(1.0, 1.0, 4.0))
    assert [found.low, found.high] == [pytest.approx(0.5), pytest.approx(4.0)]


def test_the_p_value_is_the_level_where_an_end_touches_1() -> None:
    found = ratios.independent_ratio(interval(1.0, 1.0, 1.0), interval(1.5, 1.0, 2.25))
    assert found.low == pytest.approx(1.0)
    assert found.p_value == pytest.approx(1 - LEVEL)


def test_other_levels_are_brought_to_ours() -> None:
    wide = ratios.independent_ratio(interval(1.0, 1.0, 1.0), interval(2.0, 1.0, 4.0, level=0.95))
    assert wide.low == pytest.approx(2 * math.exp(-math.log(2) * 1.6448536 / 1.959964))


def test_swapping_the_sides_turns_the_ratio_round() -> None:
    one, other = interval(3.0, 2.0, 5.0), interval(7.0, 6.5, 9.0)
    there, back = ratios.independent_ratio(one, other), ratios.independent_ratio(other, one)
    assert there.estimate == pytest.approx(1 / back.estimate)  # type: ignore[operator]
    assert (there.low, there.high) == (pytest.approx(1 / back.high), pytest.approx(1 / back.low))  # type: ignore[operator]
    assert there.p_value == pytest.approx(back.p_value)


@pytest.mark.parametrize(
    ("one", "estimate"),
    [
        (interval(None), None),
        (interval(0.0, 0.0, 0.0), None),
        (interval(-1.0, -2.0, 1.0), None),
        (interval(math.nan, 1.0, 2.0), None),
        (interval(2.0), 0.5),
        (interval(2.0, 0.0, 3.0), 0.5),
        (interval(2.0, 3.0, 4.0), 0.5),
        (interval(2.0, 1.0, math.inf), 0.5),
        (interval(2.0, 1.0, 3.0, level=1.5), 0.5),
        (interval(2.0, 1e-320, 1e308), 0.5),
        (interval(5e-324, 5e-324, 5e-324), None),
    ],
)
def test_what_has_no_ratio_or_no_ends_says_why(one: Interval, estimate: float | None) -> None:
    found = ratios.independent_ratio(one, interval(1.0, 0.9, 1.1))
    assert (found.low, found.high, found.p_value) == (None, None, None)
    assert found.estimate == estimate or one.estimate == 5e-324
    assert found.reason


def test_equal_figures_without_spread_are_the_same() -> None:
    found = ratios.independent_ratio(interval(2.0, 2.0, 2.0), interval(2.0, 2.0, 2.0))
    assert (found.estimate, found.low, found.high, found.p_value) == (1.0, 1.0, 1.0, 1.0)
    assert decide_verdicts([found])[0].verdict == "SAME"


@pytest.mark.parametrize("n", [8, 20])
@pytest.mark.parametrize("effect", [1.0, 1.3])
def test_the_interval_covers_the_true_ratio_as_often_as_it_says(n: int, effect: float) -> None:
    random = np.random.default_rng(n)
    covered, trials = 0, 400
    for _ in range(trials):
        before, after = random.normal(0.0, 0.2, n), random.normal(math.log(effect), 0.2, n)
        sides = [paired_log_ratio(np.exp(logs), np.ones(n)) for logs in (before, after)]
        found = ratios.independent_ratio(*sides)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= effect <= found.high
    # t intervals have longer tails than their sum of squares needs: never below the level, a little above it.
    assert 0.88 <= covered / trials <= 0.97


def test_a_comparison_of_a_thing_with_itself_claims_something_as_seldom_as_it_says() -> None:
    random = np.random.default_rng(7)
    claims, trials, rows = 0, 150, 12
    for _ in range(trials):
        family = []
        for _ in range(rows):
            sides = [paired_log_ratio(np.exp(random.normal(0.0, 0.2, 10)), np.ones(10)) for _ in range(2)]
            family.append(ratios.independent_ratio(*sides))
        claims += any(found.verdict in ("FASTER", "SLOWER") for found in decide_verdicts(family))
    assert claims / trials <= 0.10


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_sessions_and_many_rows_claim_no_more_than_they_say(n: int) -> None:
    # With normal tails 16 to 31 % of such comparisons claimed something; 10 % may.
    from scipy.special import stdtrit

    random = np.random.default_rng(n)
    claims, trials, rows = 0, 100, 40
    for _ in range(trials):
        logs = random.normal(0.0, 0.1, (2, rows, n))
        means = logs.mean(axis=2)
        halves = logs.std(axis=2, ddof=1) / math.sqrt(n) * float(stdtrit(n - 1, 0.95))
        low, middle, high = np.exp(means - halves), np.exp(means), np.exp(means + halves)
        family = [
            ratios.independent_ratio(
                *(Interval(middle[side, row], low[side, row], high[side, row], LEVEL, n, "t") for side in (0, 1))
            )
            for row in range(rows)
        ]
        claims += any(found.verdict in ("FASTER", "SLOWER") for found in decide_verdicts(family))
    assert claims / trials <= 0.12


def test_the_p_value_is_welchs_as_scipy_has_it() -> None:
    from scipy import stats

    random = np.random.default_rng(11)
    sides = [random.normal(0.0, 0.1, 4), random.normal(0.4, 0.3, 6)]
    wanted = stats.ttest_ind(sides[1], sides[0], equal_var=False)
    found = ratios.independent_ratio(*(paired_log_ratio(np.exp(logs), np.ones(len(logs))) for logs in sides))
    assert found.p_value == pytest.approx(wanted.pvalue)


def test_one_side_that_says_how_few_it_has_makes_the_claim_weaker() -> None:
    exact, wide = Interval(1.0, 1.0, 1.0, LEVEL, 0, "given"), (2.0, 1.5, 2.6667)
    few = ratios.independent_ratio(exact, Interval(*wide, LEVEL, 3, "t")).p_value
    unknown = ratios.independent_ratio(exact, Interval(*wide, LEVEL, 0, "given")).p_value
    assert few is not None
    assert unknown is not None
    assert few > 10 * unknown


@pytest.mark.parametrize("n", [0, 3])
def test_a_limit_is_passed_as_surely_as_the_interval_says(n: int) -> None:
    exact, other = Interval(1.0, 1.0, 1.0, LEVEL, n, "given"), Interval(2.0, 1.0, 4.0, LEVEL, n, "given")
    assert ratios.p_above(exact, other, 1.0) == pytest.approx((1 - LEVEL) / 2)
    assert ratios.p_above(exact, other, 2.0) == pytest.approx(0.5)
    assert ratios.p_above(exact, other, 4.0) == pytest.approx((1 + LEVEL) / 2)
    assert ratios.p_above(exact, exact, 1.0) == pytest.approx(0.5)
    assert ratios.p_above(exact, Interval(2.0, None, None, LEVEL, n, "given"), 1.0) is None
