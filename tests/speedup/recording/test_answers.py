"""Answers are compared without order, exactly but for floating point; only ties at a limit may differ."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.speedup.recording.answers import Answer, compare_answers

NAN, INF = float("nan"), float("inf")


def answer(rows: list[list[Any]], *kinds: str, limit: int | None = None, keys: tuple[int, ...] | None = None) -> Answer:
    return Answer(tuple((f"c{place}", kind) for place, kind in enumerate(kinds)), rows, limit, keys)


def verdict(one: list[list[Any]], two: list[list[Any]], *kinds: str, **limit: Any) -> str:
    return compare_answers(answer(one, *kinds, **limit), answer(two, *kinds, **limit)).verdict


def test_order_does_not_matter_but_how_often_a_row_comes_does() -> None:
    assert verdict([["a"], ["b"], ["a"]], [["a"], ["a"], ["b"]], "string") == "equal"
    assert verdict([["a"], ["b"], ["a"]], [["a"], ["b"], ["b"]], "string") == "wrong answer"


def test_empty_answers_are_equal_and_a_missing_row_is_wrong() -> None:
    assert verdict([], [], "string") == "equal"
    assert verdict([["a"]], [], "string") == "wrong answer"


@pytest.mark.parametrize(
    ("one", "two", "kind"),
    [
        ("1.10", "1.11", "decimal(10,2)"),
        ("1995-03-15", "1995-03-16", "date"),
        ("a", "A", "string"),
        ("a", "a ", "string"),
        (1, 2, "bigint"),
        (None, 0, "bigint"),
        (None, "", "string"),
        (True, False, "boolean"),
    ],
)
def test_all_but_floating_point_is_exact(one: Any, two: Any, kind: str) -> None:
    assert verdict([[one]], [[one]], kind) == "equal"
    assert verdict([[one]], [[two]], kind) == "wrong answer"


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (1.0, 1.0 + 9e-10, True),
        (1.0, 1.0 + 2e-9, False),
        (1e15, 1e15 + 1e5, True),
        (1e-30, 1.1e-30, False),
        (0.0, -0.0, True),
        (0.0, 1e-300, False),
        (NAN, NAN, True),
        (NAN, 0.0, False),
        (None, NAN, False),
        (INF, INF, True),
        (INF, -INF, False),
        (None, None, True),
        (None, 0.0, False),
    ],
)
def test_floating_point_is_compared_to_a_billionth_of_the_larger(one: Any, two: Any, same: bool) -> None:
    assert verdict([[one]], [[two]], "double") == ("equal" if same else "wrong answer")
    assert verdict([[[one, 1.0]]], [[[two, 1.0]]], "array<double>") == ("equal" if same else "wrong answer")


def test_rounding_may_turn_the_order_of_rows_that_differ_in_another_column() -> None:
    one = [[1.0, 5.0], [1.0 + 1e-12, 3.0]]
    two = [[1.0 + 1e-12, 5.0], [1.0, 3.0]]
    assert verdict(one, two, "double", "double") == "equal"
    assert verdict(one, [[1.0 + 1e-12, 5.0], [1.0, 4.0]], "double", "double") == "wrong answer"


def test_other_types_of_columns_are_wrong_even_when_the_values_look_alike() -> None:
    result = compare_answers(answer([["1.0"]], "decimal(10,1)"), answer([["1.0"]], "string"))
    assert result.verdict == "wrong answer"
    assert result.difference == "columns string instead of decimal(10,1)"


def test_the_difference_says_how_many_rows_and_shows_one() -> None:
    result = compare_answers(
        answer([["a", 1], ["b", 2]], "string", "int"), answer([["a", 1], ["b", 3]], "string", "int")
    )
    assert result.difference == '1 of 2 rows; ["b", 3] instead of ["b", 2]'


TOP = {"limit": 3, "keys": (1,)}
KEPT = [["a", 9], ["b", 5], ["c", 5]]


def test_rows_that_tie_with_the_last_one_may_differ() -> None:
    assert verdict(KEPT, [["a", 9], ["d", 5], ["c", 5]], "string", "int", **TOP) == "equal up to ties at the limit"


@pytest.mark.parametrize(
    "other",
    [
        [["x", 9], ["b", 5], ["c", 5]],
        [["a", 9], ["b", 5], ["c", 4]],
        [["a", 9], ["b", 6], ["c", 5]],
        [["a", 5], ["b", 5], ["c", 5]],
        [["a", 9], ["a", 9], ["c", 5]],
    ],
    ids=["row above the tie", "smaller key", "other key", "one more tie", "row above twice"],
)
def test_nothing_but_a_tie_may_differ(other: list[list[Any]]) -> None:
    assert verdict(KEPT, other, "string", "int", **TOP) == "wrong answer"


def test_below_the_limit_there_are_no_ties() -> None:
    assert verdict(KEPT, [["a", 9], ["d", 5], ["c", 5]], "string", "int", limit=4, keys=(1,)) == "wrong answer"


def test_ties_of_floating_point_keys_tie_within_the_tolerance() -> None:
    one = [["a", 2.0], ["b", 1.0]]
    two = [["a", 2.0 + 1e-12], ["c", 1.0 - 1e-12]]
    assert verdict(one, two, "string", "double", limit=2, keys=(1,)) == "equal up to ties at the limit"
    assert verdict(one, [["a", 2.0], ["c", 0.9]], "string", "double", limit=2, keys=(1,)) == "wrong answer"


@pytest.mark.parametrize("keys", [None, ()])
def test_a_limit_whose_sort_is_not_in_the_answer_cannot_be_judged(keys: tuple[int, ...] | None) -> None:
    assert verdict([["a"]], [["b"]], "string", limit=1, keys=keys) == "not comparable"
    assert verdict([["a"]], [["a"]], "string", limit=1, keys=keys) == "equal"


# Not the largest ones: rounded up, they would be infinite.
VALUES = st.one_of(st.none(), st.floats(-1e300, 1e300), st.sampled_from([NAN, INF, -INF, -1.0, 0.0, 1.0]))
ROWS = st.lists(st.tuples(st.sampled_from("ab"), VALUES, VALUES).map(list), max_size=12)


@given(ROWS, st.randoms(use_true_random=False))
def test_any_order_of_the_same_rows_is_equal_even_when_each_float_is_rounded(
    rows: list[list[Any]], chance: random.Random
) -> None:
    other = [[key, *(value * (1 + 1e-13) if value else value for value in values)] for key, *values in rows]
    chance.shuffle(other)
    assert verdict(rows, other, "string", "double", "double") == "equal"


@given(ROWS.filter(bool), st.integers(0, 11), st.integers(1, 2))
def test_one_changed_value_is_always_found(rows: list[list[Any]], place: int, column: int) -> None:
    other = [list(row) for row in rows]
    other[place % len(rows)][column] = 12345.678
    assert verdict(rows, other, "string", "double", "double") == "wrong answer"


@given(st.lists(st.integers(0, 3), min_size=8, max_size=8), st.randoms(use_true_random=False), st.integers(1, 8))
def test_any_two_right_top_n_are_equal_up_to_ties(values: list[int], chance: random.Random, limit: int) -> None:
    rows = [[f"row {place}", value] for place, value in enumerate(values)]

    def top() -> list[list[Any]]:
        chance.shuffle(rows)
        return sorted(rows, key=lambda row: -row[1])[:limit]

    assert verdict(top(), top(), "string", "int", limit=limit, keys=(1,)).startswith("equal")
