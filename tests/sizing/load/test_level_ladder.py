"""The ladder: up until the limit is passed, then closer, and always to an end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.sizing.estimation.capacity_fit import Capacity
from workbench.sizing.load.level_ladder import Ladder, Rung, next_load, next_repeat_load
from workbench.sizing.load.sweep_plan import choose_lower_load


def climbed(limit: float, rule: Ladder) -> list[float]:
    """Loads that are measured when levels up to a limit are within."""
    rungs: list[Rung] = []
    while (load := next_load(rungs, rule)) is not None:
        rungs.append(Rung(load, (load <= limit,)))
    return [rung.load for rung in rungs]


def test_it_doubles_and_then_closes_in() -> None:
    assert climbed(40, Ladder()) == [1, 2, 4, 8, 16, 32, 64, 45, 38]


@given(limit=st.floats(1, 3000), growth=st.floats(1.3, 4))
def test_it_ends_with_the_limit_between_near_levels(limit: float, growth: float) -> None:
    rule = Ladder(growth=growth, most_levels=60)
    loads = climbed(limit, rule)
    assert len(set(loads)) == len(loads)
    below, above = max(x for x in loads if x <= limit), min(x for x in loads if x > limit)
    assert above / below <= rule.nearness or above - below <= 1


def test_a_first_level_that_misses_goes_down() -> None:
    assert next_load([Rung(8, (False,))], Ladder(first=8)) == 4
    assert next_load([Rung(1, (False,))], Ladder()) is None


def test_every_goal_gets_its_bracket() -> None:
    rungs = [Rung(4, (True, True)), Rung(8, (False, True))]
    assert next_load(rungs, Ladder()) == 16
    rungs.append(Rung(16, (False, False)))
    assert next_load(rungs, Ladder()) == 6


def test_a_metric_that_is_unknown_does_not_keep_it_climbing() -> None:
    assert next_load([Rung(4, (True, None)), Rung(5, (False, None))], Ladder()) is None


def test_it_stops_at_the_largest_load_and_at_the_most_levels() -> None:
    assert climbed(1e9, Ladder(largest=10)) == [1, 2, 4, 8, 10]
    assert len(climbed(1e9, Ladder(most_levels=5))) == 5


@pytest.mark.parametrize("whole", [True, False])
def test_rates_need_not_be_whole(whole: bool) -> None:
    found = next_load([Rung(2, (True,)), Rung(3, (False,))], Ladder(whole=whole))
    assert found is None if whole else found == pytest.approx(6**0.5)


def test_a_wide_interval_is_sharpened_where_it_was_measured_least() -> None:
    rule = Ladder(most_repeats=2)
    wide = Capacity(10.0, 8.0, 13.0, "monotone", 6, 1800)
    loads: list[float] = [1, 2, 4, 8, 16, 10]
    while (load := next_repeat_load([wide], loads, rule)) is not None:
        loads.append(load)
    assert loads[6:] == [13, 10, 13, 8]


def test_a_narrow_interval_and_a_refused_goal_are_left_alone() -> None:
    narrow = Capacity(10.0, 9.7, 10.4, "line", 6, 1800)
    refused = Capacity(None, None, None, None, 1, 200, "no")
    assert next_repeat_load([narrow, refused], [1, 2, 4, 8, 16], Ladder()) is None


def test_a_lower_end_far_below_a_capacity_that_an_overload_bounds_gets_a_level_between() -> None:
    rungs = [Rung(load, (True,)) for load in (8.0, 16.0, 22.6)]
    far = Capacity(22.6, 16.0, 23.7, "monotone", 3, 900, bound="not sustained at 24.7")
    rates = Ladder(whole=False)
    between = choose_lower_load([far], rungs, rates)
    assert between == pytest.approx(19.0, abs=0.1)
    # Below the value: levels nearer to the overload are more often mistaken for sustained ones.
    assert between is not None
    assert between < far.value  # type: ignore[operator]
    assert choose_lower_load([far], [*rungs, Rung(between, (True,))], rates) is None
    near = replace(far, low=20.0)
    latency_alone = replace(far, bound=None)
    assert [choose_lower_load([one], rungs, rates) for one in (near, latency_alone)] == [None, None]
    assert choose_lower_load([far], rungs, Ladder(most_levels=3, whole=False)) is None


def test_a_capacity_known_only_to_lie_between_two_loads_gets_a_level_between_them() -> None:
    rungs = [Rung(load, (True,)) for load in (2.0, 4.0)]
    apart = Capacity(None, None, None, "monotone", 2, 400, between=(2.0, 9.0))
    assert choose_lower_load([apart], rungs, Ladder(whole=False)) == pytest.approx(18**0.5)
    assert choose_lower_load([replace(apart, between=(4.0, 16.0))], rungs, Ladder()) == 8
    assert choose_lower_load([replace(apart, between=(8.0, 9.0))], rungs, Ladder()) is None
