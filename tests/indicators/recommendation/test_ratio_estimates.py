"""The additive model: known effects found again, missing ones predicted, and the best of many found with few runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.indicators.recommendation import campaigns
from workbench.core.errors import InputError, InvalidResultError
from workbench.indicators.recommendation import ratio_estimates
from workbench.indicators.recommendation.conclusion import sample_thompson

Packages = list[dict[str, str]]
Rows = list[tuple[int, int, float]]
# The weak prior was chosen on worlds 0 to 99.
WORLDS = range(1000, 1060)
BAR = 0.88


def fit(packages: Packages, rows: Rows) -> ratio_estimates.AdditiveModel:
    return ratio_estimates.fit_additive_model(packages, ratio_estimates.Scores.from_rows(rows))


def named(count: int) -> Packages:
    return [{"a": str(place)} for place in range(count)]


def test_with_many_runs_the_spreads_and_effects_are_those_of_the_world() -> None:
    made = campaigns.world(1, versions=(12, 10, 8), spread=0.08, special=0.02, noise=0.03)
    random = np.random.default_rng(0)
    stacks = random.integers(0, len(made.truth), 1500)
    rows = [(int(one), 0, made.truth[one] + random.normal(0, 0.03)) for one in stacks]
    model = fit(made.packages, rows)
    assert model.components.noise == pytest.approx(0.03, rel=0.1)
    assert model.components.residual == pytest.approx(0.02, rel=0.25)
    # Each is estimated from about ten versions: their own spread is known to about a quarter.
    assert list(model.components.packages.values()) == pytest.approx([0.08] * 3, rel=0.5)
    assert np.corrcoef(model.mean, made.truth)[0, 1] > 0.98


def test_a_stack_never_run_is_predicted_from_its_versions() -> None:
    packages = [{"a": a, "b": b} for a in "123" for b in "123"]
    effect = {"1": 0.0, "2": 0.1, "3": 0.3}
    random = np.random.default_rng(1)
    rows = [
        (place, number, effect[one["a"]] - effect[one["b"]] + random.normal(0, 0.002))
        for number in range(10)
        for place, one in enumerate(packages[:-1])
    ]
    model = fit(packages, rows)
    assert model.mean[-1] - model.mean[0] == pytest.approx(0.0, abs=0.02)
    assert model.difference_error(8, 0) > model.difference_error(1, 0)


def test_predictions_lie_in_their_intervals_nearly_as_often_as_they_should() -> None:
    inside = []
    for seed in range(40):
        made = campaigns.world(seed)
        random = np.random.default_rng(seed)
        stacks = random.integers(0, 120, 60)
        rows = [(int(one), 0, made.truth[one] + random.normal(0, 0.03)) for one in stacks]
        draws = fit(made.packages, rows).draw_scores(400, random)
        base = int(stacks[0])
        for stack in sorted(set(range(120)) - set(stacks.tolist())):
            low, high = np.quantile(draws[:, stack] - draws[:, base], [0.05, 0.95])
            inside.append(low <= made.truth[stack] - made.truth[base] <= high)
    # Said 90 %: spreads are taken as if they were known, which makes intervals a little short, as `fit` says.
    assert 0.82 <= np.mean(inside) <= 0.92


def test_what_is_common_to_a_round_changes_nothing() -> None:
    packages = named(4)
    random = np.random.default_rng(2)
    rows = [(place, number, 0.1 * place + random.normal(0, 0.01)) for number in range(6) for place in range(4)]
    moved = [(place, number, value + 5 * number) for place, number, value in rows]
    first = fit(packages, rows)
    second = fit(packages, moved)
    assert second.mean == pytest.approx(first.mean, abs=1e-9)
    assert second.components.noise == pytest.approx(first.components.noise)
    # Neither does the order of the rows.
    assert fit(packages, rows[::-1]).mean == pytest.approx(first.mean, abs=1e-9)


def test_identical_scores_give_no_difference_and_rounds_that_share_no_stack_say_nothing_about_each_other() -> None:
    model = fit(named(3), [(place, n, 1.0) for n in range(5) for place in range(3)])
    assert model.mean == pytest.approx([0, 0, 0])
    assert model.components.noise < 1e-9
    rows = [(0, 0, 1.0), (1, 0, 1.1), (2, 1, 1.0), (3, 1, 1.1), (0, 2, 0.99), (1, 2, 1.11)]
    model = fit(named(4), rows)
    assert model.difference_error(2, 0) > model.difference_error(1, 0)


def test_stacks_without_a_package_that_varies_are_told_apart_by_what_is_their_own() -> None:
    random = np.random.default_rng(4)
    rows = [(place, n, (0.2 if place else 0.0) + random.normal(0, 0.01)) for n in range(20) for place in range(2)]
    model = fit([{"a": "1"}, {"a": "1"}], rows)
    assert model.mean[1] - model.mean[0] == pytest.approx(0.2, abs=0.02)
    assert model.components.packages == {}


def test_one_stack_a_round_is_nothing_to_compare() -> None:
    with pytest.raises(InvalidResultError, match="no round has values of two stacks"):
        fit([{"a": "1"}, {"a": "2"}], [(0, 0, 1.0), (1, 1, 1.0)])
    with pytest.raises(InvalidResultError):
        fit([{"a": "1"}], [])


def test_a_score_that_is_no_number_and_too_many_stacks_are_refused() -> None:
    with pytest.raises(InputError, match="not finite"):
        ratio_estimates.Scores.from_rows([(0, 0, 1.0), (1, 0, float("nan"))])
    stacks = named(ratio_estimates.MAX_STACKS + 1)
    with pytest.raises(InputError, match="too many stacks"):
        fit(stacks, [(0, 0, 1.0), (1, 0, 1.0)])


def test_thompson_takes_the_best_of_each_draw_once() -> None:
    draws = np.array([[0, 1, 2], [9, 1, 2], [0, 1, 2], [0, 5, 2]], dtype=float)
    assert sample_thompson(draws, 2) == [2, 0]
    assert sample_thompson(draws, 10) == [2, 0, 1]


def test_thompson_never_takes_a_stack_without_draws() -> None:
    unknown = np.nan
    assert sample_thompson(np.array([[unknown, 1.0, 2.0], [unknown, 2.0, 1.0]]), 3) == [2, 1]
    assert sample_thompson(np.full((2, 3), unknown), 3) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_best_of_120_stacks_is_found_with_60_runs() -> None:
    """The bar is 0.88; `bench/bench_indicators_world.py` has more worlds, and others far from this one."""
    found = [campaigns.single_runs(campaigns.world(seed), seed) for seed in WORLDS]
    assert np.mean([one.near for one in found]) >= BAR


def test_a_table_of_measurements_alone_finds_it_rarely() -> None:
    found = [campaigns.exact_lookup(campaigns.world(seed), seed).near for seed in WORLDS]
    assert np.mean(found) < 0.5


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rounds_beside_a_baseline_find_it_too_while_the_machine_changes() -> None:
    found = [campaigns.in_rounds(campaigns.world(seed), seed) for seed in WORLDS]
    assert np.mean([one.near for one in found]) >= BAR
