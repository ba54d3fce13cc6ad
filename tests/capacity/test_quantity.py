"""Draws match the interval that they are drawn from, and depend on nothing but seed and name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from workbench.capacity.model import Quantity, build_spread, draw_quantities
from workbench.core.errors import InputError

DRAWS = 40_000


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
@pytest.mark.parametrize(("low", "high"), [(50.0, 200.0), (90.0, 300.0), (20.0, 105.0)])
def test_draws_lie_in_the_interval_as_often_as_its_level_says(low: float, high: float, level: float) -> None:
    values = draw_quantities([Quantity("x", 100.0, low=low, high=high, level=level)], DRAWS, seed=3)["x"]
    error = math.sqrt(0.25 / DRAWS)
    for found, wanted in (
        ((values < low).mean(), (1 - level) / 2),
        ((values > high).mean(), (1 - level) / 2),
        ((values < 100.0).mean(), 0.5),
    ):
        assert abs(found - wanted) < 5 * error


def test_an_interval_that_is_symmetric_on_logarithms_gives_the_plain_lognormal() -> None:
    values = np.log(draw_quantities([Quantity("x", 100.0, low=50.0, high=200.0)], DRAWS, seed=1)["x"])
    sd = math.log(2) / 1.6448536269514722
    assert abs(values.mean() - math.log(100)) < 5 * sd / math.sqrt(DRAWS)
    assert abs(values.std() / sd - 1) < 0.02
    assert abs(((values - values.mean()) ** 3).mean() / values.std() ** 3) < 0.06


def test_a_point_is_never_varied() -> None:
    assert set(draw_quantities([Quantity("x", 7.0)], 50, seed=0)["x"]) == {7.0}
    assert build_spread("days", 1.0).is_point
    assert (build_spread("days", 1.25).low, build_spread("days", 1.25).high) == (0.8, 1.25)


def test_draws_hang_on_the_seed_and_the_name_alone() -> None:
    one, other = Quantity("one", 2.0, low=1.0, high=4.0), Quantity("other", 2.0, low=1.0, high=4.0)
    both = draw_quantities([one, other], 100, seed=5)
    assert np.array_equal(draw_quantities([other], 100, seed=5)["other"], both["other"])
    assert not np.array_equal(both["one"], both["other"])
    assert not np.array_equal(draw_quantities([one], 100, seed=6)["one"], both["one"])
    many = np.stack(list(draw_quantities([one, other], DRAWS, seed=5).values()))
    assert abs(float(np.corrcoef(many)[0, 1])) < 5 / math.sqrt(DRAWS)


def test_quantiles_and_multiples_are_those_of_the_interval() -> None:
    one = Quantity("x", 10.0, low=8.0, high=15.0, level=0.9)
    assert [round(one.quantile(share), 9) for share in (0.05, 0.5, 0.95)] == [8.0, 10.0, 15.0]
    twice = one.scale_by(2)
    assert (twice.value, twice.low, twice.high, twice.level) == (20.0, 16.0, 30.0, 0.9)
    assert Quantity("x", 10.0).scale_by(3).is_point


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [*((value, None, None) for value in (0.0, -1.0, math.nan)), (1.0, 0.0, 2.0), (1.0, 0.5, math.inf), (3.0, 1.0, 2.0)],
)
def test_what_is_no_positive_figure_inside_its_interval_is_refused(value: float, low: float, high: float) -> None:
    with pytest.raises(InputError, match="value"):
        Quantity("x", value, low=low, high=high)
