"""The four curves against points that lie on one of them, many rows at once."""

import numpy as np
import pytest

from workbench.sizing.estimation import capacity_fit

LOADS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def rows(latency: np.ndarray) -> np.ndarray:
    return np.vstack([latency, 2 * latency])


@pytest.mark.parametrize("name", list(capacity_fit.CURVES))
def test_every_curve_finds_a_line(name: str) -> None:
    fitted = capacity_fit.CURVES[name](LOADS, rows(0.5 + 0.1 * LOADS))
    assert fitted.max_load_within(2.0) == pytest.approx([15.0, 5.0])
    assert fitted.latency_at(10.0) == pytest.approx([1.5, 3.0])


@pytest.mark.parametrize("name", ["hinge", "monotone"])
def test_a_knee_is_found_by_the_curves_that_can_bend(name: str) -> None:
    latency = 1.0 + 0.01 * LOADS + 0.2 * np.maximum(0, LOADS - 8)
    fitted = capacity_fit.CURVES[name](LOADS, rows(latency))
    assert fitted.max_load_within(2.76)[0] == pytest.approx(16.0)
    assert fitted.max_load_within(1.04)[0] == pytest.approx(4.0)


def test_theil_sen_is_not_moved_by_one_outlier_and_the_line_is() -> None:
    latency = 0.5 + 0.1 * LOADS
    latency[1] += 5
    assert capacity_fit.fit_theil_sen(LOADS, latency[None, :]).slope[0] == pytest.approx(0.1, rel=0.35)
    assert abs(capacity_fit.fit_least_squares(LOADS, latency[None, :]).slope[0] - 0.1) > 0.04


def test_monotone_pools_neighbours_that_fall() -> None:
    fitted = capacity_fit.fit_monotone(np.array([1.0, 2.0, 3.0, 4.0]), np.array([[1.0, 3.0, 2.0, 4.0]]))
    assert fitted.fitted.tolist() == [[1.0, 2.5, 2.5, 4.0]]
    assert fitted.max_load_within(2.5)[0] == 3.0


def test_isotonic_fits_agree_with_scipys() -> None:
    from scipy.optimize import isotonic_regression

    latency = np.random.default_rng(5).lognormal(size=(40, 9))
    ours = capacity_fit.fit_monotone(np.arange(1.0, 10.0), latency).fitted
    theirs = np.stack([isotonic_regression(row).x for row in latency])
    assert np.allclose(ours, theirs)


@pytest.mark.parametrize("name", list(capacity_fit.CURVES))
def test_a_limit_below_everything_has_no_load(name: str) -> None:
    assert np.isnan(capacity_fit.CURVES[name](LOADS, rows(0.5 + 0.1 * LOADS)).max_load_within(0.1)).all()


def test_flat_latencies_never_meet_a_higher_limit() -> None:
    flat = rows(np.ones_like(LOADS))
    assert np.isinf(capacity_fit.fit_monotone(LOADS, flat).max_load_within(3.0)).all()
    assert np.isinf(capacity_fit.fit_theil_sen(LOADS, flat).max_load_within(3.0)).all()
