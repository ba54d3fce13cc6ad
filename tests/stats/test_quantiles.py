"""Quantiles over attempts: known answers, failures, correlated neighbours, and how often the intervals hold."""

import numpy as np
import pytest

from workbench.stats import quantiles


def column(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def test_the_quantile_is_numpys_where_nothing_failed() -> None:
    values = np.random.default_rng(1).lognormal(size=(317, 1))
    assert quantiles.estimate_quantile(values, 0.95).value == pytest.approx(float(np.quantile(values, 0.95)), abs=0)


@pytest.mark.parametrize(("failed", "finite"), [(0, True), (9, True), (10, True), (11, False)])
def test_p95_of_200_is_lost_when_more_than_5_percent_fail(failed: int, finite: bool) -> None:
    values = column([1.0 + i / 1000 for i in range(200 - failed)] + [np.inf] * failed)
    found = quantiles.estimate_quantile(values, 0.95)
    assert np.isfinite(found.value) == finite
    assert found.ok_only == pytest.approx(np.quantile(values[np.isfinite(values)], 0.95))
    assert found.n == 200


def test_the_upper_end_is_open_where_it_lies_among_failures_or_n_is_small() -> None:
    assert quantiles.estimate_quantile(column([1.0] * 194 + [np.inf] * 6), 0.95).high == np.inf
    assert quantiles.estimate_quantile(column([1.0, 2.0] * 10), 0.95).high == np.inf
    assert np.isfinite(quantiles.estimate_quantile(column([place * 37 % 200 for place in range(200)]), 0.95).high)


def test_calls_of_a_request_are_pooled_and_padding_is_no_value() -> None:
    values = np.array([[1.0, np.nan], [2.0, 3.0], [np.inf, np.nan]])
    found = quantiles.estimate_quantile(values, 0.5)
    assert (found.n, found.value) == (4, 2.5)


def ar(random: np.random.Generator, n: int, phi: float) -> np.ndarray:
    noise = random.standard_normal(n + 200)
    series = np.empty_like(noise)
    series[0] = noise[0]
    for place in range(1, len(noise)):
        series[place] = phi * series[place - 1] + noise[place]
    return np.exp(series[200:] * np.sqrt(1 - phi**2))[:, None]


@pytest.mark.parametrize(("phi", "least"), [(0.0, 0.88), (0.6, 0.84), (0.9, 0.74)])
def test_the_interval_of_p95_holds_about_as_often_as_it_says(phi: float, least: float) -> None:
    random = np.random.default_rng(7)
    truth = np.exp(1.6448536)
    held = [
        found.low <= truth <= found.high
        for found in (quantiles.estimate_quantile(ar(random, 400, phi), 0.95) for _ in range(300))
    ]
    assert least <= np.mean(held) <= 0.98


def test_independent_requests_are_resampled_one_by_one_and_correlated_ones_in_blocks() -> None:
    random = np.random.default_rng(3)
    assert quantiles.choose_block_length(ar(random, 1000, 0.0), 0.95) == 1
    assert quantiles.choose_block_length(ar(random, 1000, 0.95), 0.95) > 5


def test_resamples_spread_as_the_quantile_does() -> None:
    random = np.random.default_rng(11)
    spread = np.std([quantiles.compute_quantile(ar(random, 500, 0.0), 0.9) for _ in range(400)])
    drawn = [np.std(quantiles.resample_quantile(ar(random, 500, 0.0), 0.9, 200, random)) for _ in range(20)]
    assert np.mean(drawn) == pytest.approx(spread, rel=0.2)


def test_failures_that_follow_one_another_count_as_few_where_the_quantile_is_one_of_them() -> None:
    fine = (1.0 + np.random.default_rng(4).permutation(940)).tolist()
    together = quantiles.estimate_quantile(column([*fine, *[np.inf] * 60]), 0.95)
    spread = column(fine)
    spread = np.insert(spread, np.linspace(0, 940, 60).astype(int), np.inf, axis=0)
    apart = quantiles.estimate_quantile(spread, 0.95)
    assert together.value == apart.value == np.inf
    # One outage of 60 requests may just as well not have been; 60 failures all over the day are no accident.
    assert together.low < 850
    assert apart.low > 920
    assert quantiles.choose_block_length(column([*fine, *[np.inf] * 60]), 0.95) > 5


def test_the_interval_of_a_tail_of_a_queue_is_not_that_of_independent_requests() -> None:
    """Waits of a queue at 80 % of its capacity (Lindley): 90 % intervals of its p95 and p99 by simulation."""
    rng = np.random.default_rng(11)

    def draw_waits(n: int) -> np.ndarray:
        waits = np.zeros(n)
        steps = rng.exponential(0.8, n) - rng.exponential(1.0, n)
        for place in range(1, n):
            waits[place] = max(0.0, waits[place - 1] + steps[place])
        return waits

    waits = draw_waits(400_000)
    for q, least in ((0.5, 0.85), (0.95, 0.7)):
        true = np.quantile(waits, q)
        found = [quantiles.estimate_quantile(column(draw_waits(2500)[500:].tolist()), q) for _ in range(100)]
        assert np.mean([one.low <= true <= one.high for one in found]) >= least
    # The few beyond p99 come in one or two crowds: nothing bounds it from above.
    few = [quantiles.estimate_quantile(column(draw_waits(1500)[500:].tolist()), 0.99) for _ in range(40)]
    assert np.mean([np.isinf(one.high) for one in few]) >= 0.9
