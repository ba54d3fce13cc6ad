"""Shares of hits in clusters: published intervals, the error of the verdicts computed exactly, and planted clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bdtr

from workbench.core.errors import InputError
from workbench.stats import MIN_CLUSTERS, clustered_share, decide_coverage, wilson_interval
from workbench.stats.intervals import Interval


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(81, 263, 0.2535, 0.3682), (15, 148, 0.0598, 0.1644), (0, 20, 0.0, 0.2005), (1, 29, 0.0018, 0.1963)],
)
def test_the_interval_is_that_of_newcombes_table(hits: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(hits / n, n, level=0.95) == pytest.approx((low, high), abs=5e-5)


def count_claims(n: int, nominal: float) -> dict[str, float]:
    """Chance of each verdict over n independent intervals that hold with the nominal probability."""
    at_most = bdtr(np.arange(n + 1), n, nominal)
    chances = np.diff(at_most, prepend=0.0)
    claims: dict[str, float] = {}
    for hits, chance in enumerate(chances):
        share = Interval(hits / n, *wilson_interval(hits / n, n), 0.9, n, "")
        verdict = decide_coverage(share, nominal)
        claims[verdict] = claims.get(verdict, 0.0) + float(chance)
    return claims


@pytest.mark.parametrize("nominal", [0.8, 0.9, 0.95])
def test_honest_intervals_are_rarely_called_anything_else(nominal: float) -> None:
    for n in (1, 2, 3, 5, 8, 12, 18, 22, 35, 41, 60, 100, 142, 189, 200):
        claims = count_claims(n, nominal)
        assert max(claims.get("OVERCONFIDENT", 0.0), claims.get("UNDERCONFIDENT", 0.0)) <= 0.059, n
    assert count_claims(200, 0.9)["VALID"] > 0.8


def simulate_verdicts(width: float, n_runs: int, n_each: int, shared: float) -> list[str]:
    """Verdicts of 200 seeds: intervals of `width` times the honest ones; `shared` of the variance is the run's."""
    rng = np.random.default_rng(7)
    verdicts = []
    for _ in range(200):
        errors = np.sqrt(shared) * rng.normal(size=(n_runs, 1)) + np.sqrt(1 - shared) * rng.normal(
            size=(n_runs, n_each)
        )
        hits = (np.abs(errors) <= 1.6449 * width).ravel()
        share = clustered_share(hits.tolist(), np.repeat(np.arange(n_runs), n_each).tolist())
        verdicts.append(decide_coverage(share, 0.9))
    return verdicts


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("n_runs", "n_each"), [(2, 20), (6, 10), (30, 5), (100, 1)])
def test_honest_intervals_whose_errors_go_together_in_a_run_are_rarely_accused(
    n_runs: int, n_each: int, shared: float
) -> None:
    verdicts = simulate_verdicts(1.0, n_runs, n_each, shared)
    assert verdicts.count("OVERCONFIDENT") <= 16
    assert verdicts.count("UNDERCONFIDENT") <= 16


def test_planted_faults_are_found() -> None:
    assert simulate_verdicts(0.5, 30, 5, 0.3).count("OVERCONFIDENT") >= 190
    assert simulate_verdicts(2.0, 60, 5, 0.3).count("UNDERCONFIDENT") >= 150
    assert simulate_verdicts(1.0, 200, 1, 0.0).count("VALID") >= 160


def test_values_of_one_run_count_as_one() -> None:
    many = clustered_share([True] * 30 + [False] * 20, ["run"] * 50)
    assert (many.estimate, many.n) == (0.6, 1)
    assert decide_coverage(many, 0.9) == "UNDECIDED"
    assert decide_coverage(clustered_share([True] * 30 + [False] * 20, range(50)), 0.9) == "OVERCONFIDENT"


def test_nothing_is_known_of_no_values_and_pairs_are_asked_for() -> None:
    nothing = clustered_share([], [])
    assert (nothing.estimate, nothing.low, decide_coverage(nothing, 0.9)) == (None, None, "UNDECIDED")
    with pytest.raises(InputError, match="not pairs"):
        clustered_share([True], [])


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 1), st.floats(0.5, 500))
def test_the_interval_of_any_effective_number_holds_its_share(share: float, n: float) -> None:
    low, high = wilson_interval(share, n)
    assert 0 <= low <= share <= high <= 1
    assert wilson_interval(1 - share, n) == pytest.approx((1 - high, 1 - low))


def test_one_run_decides_nothing() -> None:
    for hits in range(23):
        share = clustered_share([True] * hits + [False] * (22 - hits), ["run"] * 22)
        assert decide_coverage(share, 0.9) == "UNDECIDED", hits


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=1, max_size=40))
def test_the_interval_holds_the_share_and_clusters_only_widen_it(pairs: list[tuple[bool, int]]) -> None:
    hits, clusters = [hit for hit, _ in pairs], [cluster for _, cluster in pairs]
    share, alone = clustered_share(hits, clusters), wilson_interval(float(np.mean(hits)), len(hits))
    assert share.low is not None
    assert share.high is not None
    assert share.estimate is not None
    assert 0 <= share.low <= share.estimate <= share.high <= 1
    assert share.high - share.low >= alone[1] - alone[0] - 1e-12
    turned = clustered_share(hits[::-1], clusters[::-1])
    assert (share.low, share.high) == pytest.approx((turned.low, turned.high))


def test_fewer_clusters_than_the_minimum_are_their_own_number() -> None:
    for k in range(1, MIN_CLUSTERS):
        share = clustered_share([True, True, False] * k, [name for name in range(k) for _ in range(3)])
        assert (share.low, share.high) == wilson_interval(2 / 3, k)
