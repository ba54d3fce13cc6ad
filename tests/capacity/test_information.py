"""What knowing an input is worth: against the newsvendor's answer for normal needs, and nothing for nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from tests.capacity.making import model, work
from workbench.capacity.information import build_information, choose_nodes, expect_least_loss
from workbench.capacity.model import Model, evaluate_model

FACTOR = 19.0
N_DRAWS = 20_000


def least_loss(deviation: float) -> float:
    """Of normal needs, in idle nodes: (over + under) times the density at the best quantile (Arrow et al. 1951)."""
    return float((1 + FACTOR) * norm.pdf(norm.ppf(FACTOR / (1 + FACTOR))) * deviation)


def two_inputs(random: np.random.Generator, known: float, rest: float) -> tuple[Model, Any, Any]:
    """A plan whose nodes are the sum of two normal inputs with these deviations, around 10,000."""
    both = [work("known", ends=(900.0, 3600.0)), work("rest", ends=(900.0, 3600.0))]
    made = model(both)
    given = {one.name: random.normal(size=N_DRAWS) for one in made.quantities}
    one, other = (given[f"duration of {name}"] for name in ("known", "rest"))
    nodes = np.rint(10_000 + known * one + rest * other).astype(np.int64)
    few = evaluate_model(made, made.medians)
    return made, given, replace(few, nodes=nodes[:, None])


@pytest.mark.parametrize(("known", "rest"), [(100.0, 0.0), (80.0, 60.0), (30.0, 95.0)])
def test_an_input_of_a_sum_is_worth_what_the_rest_leaves(known: float, rest: float) -> None:
    found = build_information(*two_inputs(np.random.default_rng(1), known, rest), FACTOR)
    total = least_loss(float(np.hypot(known, rest)))
    value = dict(found.select("input", "saving").iter_rows())
    assert value["duration of known"] == pytest.approx(total - least_loss(rest), abs=0.05 * total)
    assert value["duration of rest"] == pytest.approx(total - least_loss(known), abs=0.05 * total)


def test_an_input_without_effect_is_worth_nothing_and_is_not_told_from_chance() -> None:
    resolved = []
    for seed in range(12):
        found = build_information(*two_inputs(np.random.default_rng(seed), 0.0, 100.0), FACTOR)
        row = found.filter(found["input"] == "duration of known").row(0, named=True)
        resolved.append(row["resolved"])
        assert row["share"] < 0.02
    assert sum(resolved) <= 1


def test_a_price_makes_it_money_a_day() -> None:
    made, given, outcome = two_inputs(np.random.default_rng(2), 80.0, 60.0)
    nodes = build_information(made, given, outcome, FACTOR)["saving"]
    money = build_information(replace(made, node_price_per_h=2.0), given, outcome, FACTOR)["saving"]
    assert money.to_list() == pytest.approx((48 * nodes).to_list())


def test_the_best_number_of_nodes_loses_least() -> None:
    needed = np.random.default_rng(3).poisson(40, 5000)
    best = choose_nodes(needed, FACTOR)

    def loss(nodes: int) -> float:
        return float(np.where(nodes > needed, nodes - needed, FACTOR * (needed - nodes)).mean())

    assert loss(best) == min(loss(nodes) for nodes in range(20, 80)) == expect_least_loss(needed, FACTOR)
