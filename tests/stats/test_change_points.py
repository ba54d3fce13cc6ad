"""Change points: planted steps are found, and noise of several kinds has few."""

from __future__ import annotations

import numpy as np
import pytest

from tests.indicators.history.recorded_noise import load_noise, measure_rates
from workbench.stats.change_points import (
    MAX_POINTS,
    Segment,
    estimate_spread,
    find_change_points,
    find_segments,
)


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(20261125)


@pytest.mark.parametrize("name", ["followed", "control"])
def test_steps_in_recorded_noise_are_found_and_few_are_false(name: str, draw: np.random.Generator) -> None:
    # The whole table: bench/bench_indicators_history.py.
    false, found = measure_rates(load_noise(name), 60, 60, draw)
    assert found >= 0.9
    assert false <= 1.5


def test_two_steps_are_both_found(draw: np.random.Generator) -> None:
    values = draw.normal(0, 1, 90) + 4 * (np.arange(90) >= 30) - 4 * (np.arange(90) >= 60)
    assert find_change_points(values, np.zeros(90)) == [30, 60]


def test_outliers_are_no_change(draw: np.random.Generator) -> None:
    false = 0
    for _ in range(40):
        values = draw.normal(0, 1, 60)
        values[[20, 21, 40]] += 60
        false += find_change_points(values, np.zeros(60)) != []
    assert false <= 4  # as many as without outliers: about one in thirty


@pytest.mark.parametrize("places", [[0], [-1], [0, 1], [-2, -1], [-3, -1], [0, -1]])
@pytest.mark.parametrize("size", [-30, 30])
def test_outliers_at_an_end_are_no_change_either(places: list[int], size: float, draw: np.random.Generator) -> None:
    false = 0
    for _ in range(40):
        values = draw.normal(0, 1, 40)
        values[places] += size
        false += find_change_points(values, np.zeros(40)) != []
    assert false <= 5  # 2 to 6 %, as inside and without outliers


def test_a_level_of_four_at_the_end_is_one(draw: np.random.Generator) -> None:
    values = draw.normal(0, 1, 40) + 10 * (np.arange(40) >= 36)
    assert find_change_points(values, np.zeros(40)) == [36]


def test_a_drift_is_one_line_and_a_step_is_none(draw: np.random.Generator) -> None:
    noise = draw.normal(0, 1, 60)
    assert find_segments(noise + np.linspace(0, 12, 60), np.zeros(60)) == [Segment(0, 60, is_drift=True)]
    assert find_segments(noise + 6 * (np.arange(60) >= 30), np.zeros(60)) == [Segment(0, 30), Segment(30, 60)]
    level, drift = find_segments(noise + np.maximum(0, np.linspace(-20, 20, 60)), np.zeros(60))
    assert (level.is_drift, drift.is_drift) == (False, True)
    assert 24 <= drift.start <= 36


def test_points_with_large_errors_count_little(draw: np.random.Generator) -> None:
    errors = np.where((np.arange(80) >= 40) & (np.arange(80) < 55), 12.0, 1.0)
    told = untold = 0
    for _ in range(40):
        values = draw.normal(0, errors)
        told += find_change_points(values, errors) != []
        untold += find_change_points(values, np.zeros(80)) != []
    assert told <= 5
    assert untold >= 20


@pytest.mark.parametrize("n", [0, 1, 11])
def test_a_short_series_has_no_change(n: int) -> None:
    assert find_change_points(np.arange(n) * 100.0, np.zeros(n)) == []


def test_equal_values_have_no_change_and_a_step_without_noise_has_one() -> None:
    flat = np.full(40, -0.25)
    assert find_change_points(flat, np.zeros(40)) == []
    assert find_change_points(flat + 0.1 * (np.arange(40) >= 13), np.zeros(40)) == [13]


@pytest.mark.parametrize(
    ("values", "errors"),
    [(np.zeros(20), np.zeros(19)), (np.full(20, np.nan), np.zeros(20)), (np.zeros(MAX_POINTS + 1),) * 2],
)
def test_what_is_no_series_is_refused(values: np.ndarray, errors: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"finite|more than"):
        find_change_points(values, errors)


def test_the_spread_is_none_where_the_errors_explain_everything(draw: np.random.Generator) -> None:
    assert estimate_spread(draw.normal(0, 1, 4000), np.full(4000, 1.0)) < 0.3
    assert estimate_spread(draw.normal(0, 1, 4000), np.full(4000, 3.0)) == 0
