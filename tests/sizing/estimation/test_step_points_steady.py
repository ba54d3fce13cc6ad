"""Warm-up: what is dropped, and that nothing is dropped for no reason."""

import numpy as np

from workbench.sizing.estimation import step_points


def test_each_users_first_request_is_dropped() -> None:
    values = np.random.default_rng(0).lognormal(sigma=0.2, size=400)
    assert step_points.count_warmup_requests(values, 32) >= 32


def test_a_slow_beginning_is_dropped() -> None:
    random = np.random.default_rng(1)
    values = np.concatenate([5 * np.exp(-np.arange(60) / 20), np.zeros(340)]) + random.lognormal(sigma=0.2, size=400)
    assert 30 <= step_points.count_warmup_requests(values, 0) <= 120


def test_of_steady_values_little_is_dropped_on_average() -> None:
    random = np.random.default_rng(2)
    dropped = [step_points.count_warmup_requests(random.lognormal(sigma=0.5, size=300), 0) for _ in range(200)]
    assert np.mean(dropped) < 45
    assert max(dropped) <= 75


def test_failures_do_not_stop_it() -> None:
    assert step_points.count_warmup_requests(np.array([np.inf] * 50), 10) == 10
    values = np.where(np.arange(300) % 4 == 0, np.inf, 1.0)
    assert step_points.count_warmup_requests(values, 0) <= 75


def test_a_handful_of_requests_is_left_alone() -> None:
    assert step_points.count_warmup_requests(np.array([1.0, 2.0, 3.0]), 0) == 0
    assert step_points.count_warmup_requests(np.array([1.0, 2.0, 3.0]), 8) == 3
