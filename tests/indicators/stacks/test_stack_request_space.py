"""Points of the space: every combination, drawn ones, days, bounds."""

from __future__ import annotations

from datetime import date
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from workbench.core.errors import ConfigError
from workbench.indicators.stacks import stack_request
from workbench.indicators.stacks.stack_request import Point


def versions(*texts: str) -> list[Version]:
    return [Version(text) for text in texts]


CHOICES = {"a": versions("3.0", "2.0", "1.0"), "b": versions("1.1", "1.0")}


def test_the_grid_is_every_combination_newest_first() -> None:
    labels = [point.label for point in stack_request.iterate_grid(CHOICES)]
    assert labels[0] == "a 3.0, b 1.1"
    assert labels[-1] == "a 1.0, b 1.0"
    assert len(set(labels)) == len(labels) == stack_request.count_combinations(CHOICES) == 6


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**62))
def test_drawing_gives_each_combination_once_and_the_same_for_the_same_seed(sizes: list[int], seed: int) -> None:
    choices = {f"p{place}": versions(*map(str, range(count))) for place, count in enumerate(sizes)}
    drawn = list(stack_request.draw_combinations(choices, seed))
    assert set(drawn) == set(stack_request.iterate_grid(choices))
    assert len(drawn) == stack_request.count_combinations(choices)
    assert list(islice(stack_request.draw_combinations(choices, seed), 2)) == drawn[:2]


def test_another_seed_gives_another_order() -> None:
    orders = {tuple(stack_request.draw_combinations(CHOICES, seed)) for seed in range(20)}
    assert len(orders) > 10


def test_a_huge_space_is_drawn_from_without_being_built() -> None:
    huge = {f"p{place}": versions(*map(str, range(100))) for place in range(20)}
    assert stack_request.count_combinations(huge) == 100**20
    assert len(set(islice(stack_request.draw_combinations(huge, 5), 10))) == 10


@pytest.mark.parametrize(
    ("step", "left"),
    [
        ("minor", ["2!1.0", "2.10.1", "2.9.0", "1.26.4", "1.0.1rc1"]),
        ("major", ["2!1.0", "2.10.1", "1.26.4"]),
        ("patch", ["2!1.0", "2.10.1", "2.10", "2.9.0", "1.26.4", "1.26.3", "1.0.1rc1"]),
    ],
)
def test_steps_take_the_newest_of_each_line(step: stack_request.Step, left: list[str]) -> None:
    given_versions = versions("2.9.0", "2.10", "2.10.1", "1.26.3", "1.26.4", "2!1.0", "1.0.1rc1")
    assert [str(version) for version in stack_request.select_steps(given_versions, step)] == left


def test_days_end_at_the_ends_of_short_months_and_of_the_calendar_and_run_forwards() -> None:
    days = stack_request.list_date_points(date(2024, 1, 31), date(2024, 4, 30), "month")
    assert [str(point.before) for point in days] == ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"]
    years = stack_request.list_date_points(date(2020, 5, 1), date(2022, 4, 30), "year")
    assert [point.label for point in years] == ["before 2020-05-01", "before 2021-05-01"]
    assert len(stack_request.list_date_points(date(9998, 12, 1), date.max, "year")) == 2
    with pytest.raises(ConfigError, match="the last day is before the first"):
        stack_request.list_date_points(date(2024, 2, 1), date(2024, 1, 1), "month")


def test_bounds_are_three() -> None:
    assert [point.label for point in stack_request.list_bound_points()] == ["lowest", "lowest-direct", "highest"]
    assert Point((("a", "1"),), None, "lowest").label == "a 1, lowest"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numpy=1", "not a requirement"),
        ("numpy @ https://ann:s3cret@example.org/numpy.whl", "by URL are not supported"),
        ("./numpy.whl", "not a requirement"),
        ("-e .", "not a requirement"),
        ("git+https://ann:s3cret@example.org/x", "not a requirement"),
    ],
)
def test_what_is_no_requirement_by_name_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        stack_request.parse_requirement(text, "--free")
    assert "s3cret" not in str(caught.value)


def test_a_package_that_is_free_twice_is_refused() -> None:
    twice = [stack_request.parse_requirement(text, "") for text in ("a_b>1", "A-b<2")]
    with pytest.raises(ConfigError, match="occurs twice"):
        stack_request.index_by_name(twice)
