"""The range of usual nights holds for as many runs as there are, and few nights are called slower by chance."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.speedup.nightly.night_change import FASTER, MIN_EXPLAINED, SLOWER, USUAL, judge_night

QUIET = [100.0, 103, 98, 101, 99, 104, 97]


@pytest.mark.parametrize("n", [5, 7, 10, 14])
def test_false_alarms_are_as_rare_as_was_asked_for(n: int) -> None:
    draw, alarms, trials = np.random.default_rng(n), 0, 1500
    for _ in range(trials):
        walls = 100 * np.exp(draw.normal(0, 0.05, n + 1))
        change = judge_night(float(walls[-1]), walls[:-1].tolist(), nights_per_alarm=200)
        assert change is not None
        alarms += change.verdict == SLOWER
    # One in 200 is 7.5; the upper end of the 99.9 % range of that many draws is 17.
    assert alarms <= 17


def test_a_change_beyond_the_spread_is_told_and_one_within_is_not() -> None:
    verdicts = {}
    for wall_s in (70.0, 102.0, 130.0):
        change = judge_night(wall_s, QUIET, nights_per_alarm=200)
        assert change is not None
        verdicts[wall_s] = change.verdict
    assert verdicts == {70.0: FASTER, 102.0: USUAL, 130.0: SLOWER}


def test_a_smaller_change_is_told_where_the_log_shows_its_cause() -> None:
    change = judge_night(109.0, QUIET, nights_per_alarm=200)
    assert change is not None
    assert (change.verdict, change.explained_high_s < 109 < change.high_s) == (USUAL, True)
    assert change.judge_explained(1.0).verdict == SLOWER
    assert change.judge_explained(MIN_EXPLAINED - 0.01).verdict == USUAL


def test_few_runs_are_not_judged_and_one_bad_night_of_many_does_not_widen_the_range() -> None:
    assert judge_night(100, QUIET[:4], nights_per_alarm=200) is None
    clean = judge_night(130, QUIET + QUIET, nights_per_alarm=200)
    spoiled = judge_night(130, [*QUIET, 900, *QUIET], nights_per_alarm=200)
    assert clean is not None
    assert spoiled is not None
    assert (spoiled.n_outliers, spoiled.verdict) == (1, SLOWER)
    assert spoiled.high_s == pytest.approx(clean.high_s)


def test_equal_nights_leave_a_margin() -> None:
    change = judge_night(101.0, [100.0] * 7, nights_per_alarm=200)
    assert change is not None
    assert (change.verdict, round(change.high_s, 6)) == (USUAL, 102)
