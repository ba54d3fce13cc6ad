"""The capacity from samples: known answers, refusals, and how often the interval holds."""

import numpy as np
import pytest

from workbench.sizing.estimation import capacity_fit
from workbench.sizing.estimation.capacity_fit import Level, estimate_capacity


def sampled(loads: list[float], curve, seed: int, n: int = 300, sigma: float = 0.25) -> list[Level]:
    """Lognormal runtimes whose p95 is exactly the curve."""
    random = np.random.default_rng(seed)
    scale = np.exp(-1.6448536 * sigma)
    return [Level(x, curve(x) * scale * random.lognormal(sigma=sigma, size=(n, 1))) for x in loads]


LOADS = [1, 2, 4, 8, 16, 32, 64]
CURVES = {
    "a line": (lambda x: 0.5 + 0.05 * x, 2.0, 30.0),
    "a knee": (lambda x: 1 + 0.002 * x + 0.1 * max(0, x - 20), 2.056, 30.0),
    "convex": (lambda x: 0.5 + 0.0015 * x**2, 1.85, 30.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CURVES))
def test_the_interval_holds_about_as_often_as_it_says(name: str) -> None:
    curve, limit, truth = CURVES[name]
    loads = [*LOADS, 26, 34]
    found = [estimate_capacity(sampled(loads, curve, seed), 0.95, limit, draws=200, seed=seed) for seed in range(120)]
    assert np.mean([(one.low or 0) <= truth <= (one.high or 1e9) for one in found]) >= 0.8
    assert np.median([one.value for one in found]) == pytest.approx(truth, rel=0.05)


def test_without_noise_it_is_exact() -> None:
    found = estimate_capacity([Level(x, np.full((50, 1), 0.5 + 0.05 * x)) for x in LOADS], 0.95, 2.0)
    assert found.value == pytest.approx(30.0)
    assert (found.low, found.high) == (pytest.approx(30.0), pytest.approx(30.0))


def test_a_limit_far_beyond_the_levels_is_refused_and_says_which_to_add() -> None:
    found = estimate_capacity(sampled([1, 2, 4, 8], lambda x: 1 + 0.01 * x, 0), 0.95, 5.0)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert "far below the limit" in str(found.reason)
    assert found.advice == "add levels, such as 16, 32, 64"


def test_a_limit_just_beyond_the_levels_is_answered() -> None:
    found = estimate_capacity(sampled([1, 2, 4, 8, 16, 32], lambda x: 0.5 + 0.05 * x, 0, n=2000), 0.95, 2.2)
    assert found.value == pytest.approx(34, rel=0.05)


def test_a_limit_below_the_lowest_level_is_refused() -> None:
    found = estimate_capacity(sampled(LOADS, lambda x: 1 + 0.05 * x, 0), 0.95, 0.5)
    assert found.value is None
    assert "exceeds the limit of 0.5 s" in str(found.reason)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_levels_are_no_curve(count: int) -> None:
    found = estimate_capacity(sampled([1, 2][:count], lambda x: float(x), 0), 0.95, 2.0)
    assert (found.value, found.n_levels) == (None, count)
    assert "2 needed" in str(found.reason)


def test_levels_whose_quantile_lies_among_failures_are_left_out() -> None:
    levels = sampled(LOADS, lambda x: 0.5 + 0.05 * x, 0)
    levels[-1].values[:100] = np.inf
    assert estimate_capacity(levels, 0.95, 2.0).n_levels == len(LOADS) - 1


def test_the_same_seed_gives_the_same_interval() -> None:
    levels = sampled(LOADS, lambda x: 0.5 + 0.05 * x, 0)
    assert estimate_capacity(levels, 0.95, 2.0, seed=4) == estimate_capacity(levels, 0.95, 2.0, seed=4)
    assert estimate_capacity(levels, 0.95, 2.0, seed=4) != estimate_capacity(levels, 0.95, 2.0, seed=5)


def test_a_limit_that_only_a_load_far_below_all_would_meet_is_refused() -> None:
    levels = [Level(x, np.full((50, 1), 0.1 + 0.1 * x)) for x in (10, 20, 40, 80, 160)]
    found = estimate_capacity(levels, 0.95, 0.5)
    assert found.value is None
    assert "at the lowest load of 10 exceeds the limit" in str(found.reason)


CURVE_LOADS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def rows(latency: np.ndarray) -> np.ndarray:
    return np.vstack([latency, 2 * latency])


@pytest.mark.parametrize("name", list(capacity_fit.CURVES))
def test_every_curve_finds_a_line(name: str) -> None:
    fitted = capacity_fit.CURVES[name](CURVE_LOADS, rows(0.5 + 0.1 * CURVE_LOADS))
    assert fitted.max_load_within(2.0) == pytest.approx([15.0, 5.0])
    assert fitted.latency_at(10.0) == pytest.approx([1.5, 3.0])


@pytest.mark.parametrize("name", ["hinge", "monotone"])
def test_a_knee_is_found_by_the_curves_that_can_bend(name: str) -> None:
    latency = 1.0 + 0.01 * CURVE_LOADS + 0.2 * np.maximum(0, CURVE_LOADS - 8)
    fitted = capacity_fit.CURVES[name](CURVE_LOADS, rows(latency))
    assert fitted.max_load_within(2.76)[0] == pytest.approx(16.0)
    assert fitted.max_load_within(1.04)[0] == pytest.approx(4.0)


def test_theil_sen_is_not_moved_by_one_outlier_and_the_line_is() -> None:
    latency = 0.5 + 0.1 * CURVE_LOADS
    latency[1] += 5
    assert capacity_fit.fit_theil_sen(CURVE_LOADS, latency[None, :]).slope[0] == pytest.approx(0.1, rel=0.35)
    assert abs(capacity_fit.fit_least_squares(CURVE_LOADS, latency[None, :]).slope[0] - 0.1) > 0.04


def test_monotone_pools_neighbours_that_fall() -> None:
    fitted = capacity_fit.fit_monotone(np.array([1.0, 2.0, 3.0, 4.0]), np.array([[1.0, 3.0, 2.0, 4.0]]))
    assert fitted.fitted.tolist() == [[1.0, 2.5, 2.5, 4.0]]
    assert fitted.max_load_within(2.5)[0] == 3.0


def test_isotonic_fits_agree_with_scipys() -> None:
    from scipy.optimize import isotonic_regression

    latency = np.random.default_rng(5).lognormal(size=(40, 9))
    ours = capacity_fit.fit_monotone(np.arange(1.0, 10.0), latency).fitted
    assert np.allclose(ours, np.stack([isotonic_regression(row).x for row in latency]))


@pytest.mark.parametrize("name", list(capacity_fit.CURVES))
def test_a_limit_below_everything_has_no_load(name: str) -> None:
    assert np.isnan(capacity_fit.CURVES[name](CURVE_LOADS, rows(0.5 + 0.1 * CURVE_LOADS)).max_load_within(0.1)).all()


def test_flat_latencies_never_meet_a_higher_limit() -> None:
    flat = rows(np.ones_like(CURVE_LOADS))
    assert np.isinf(capacity_fit.fit_monotone(CURVE_LOADS, flat).max_load_within(3.0)).all()
    assert np.isinf(capacity_fit.fit_theil_sen(CURVE_LOADS, flat).max_load_within(3.0)).all()
