"""Delta debugging, held against its definition: what is left holds, and nothing less of it does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.lore.bisection.row_subsets import RowNumbers, ddmin


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=6))))
def test_exactly_the_items_that_are_needed_are_left(case: tuple[int, set[int]]) -> None:
    n_items, needed = case
    assert set(ddmin(list(range(n_items)), lambda part: needed <= set(part))) == needed


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(2, 7))
def test_what_is_left_of_a_question_with_many_answers_cannot_lose_any_item(wanted: set[int], modulus: int) -> None:
    def holds(part: list[int]) -> bool:
        # Not monotonic: a part may hold while a larger one does not.
        return sum(part) % modulus == sum(wanted) % modulus and bool(part)

    left = ddmin(sorted(wanted), holds)
    assert holds(left)
    assert not any(holds(left[:index] + left[index + 1 :]) for index in range(len(left)))


def test_a_single_culprit_among_a_million_rows_takes_few_questions() -> None:
    asked = []

    def holds(part: RowNumbers) -> bool:
        asked.append(part)
        return len(part.select_range(777_777, 777_778)) == 1

    assert ddmin(RowNumbers.from_runs([(0, 1_000_000)]), holds) == RowNumbers.from_runs([(777_777, 777_778)])
    assert len(asked) <= 2 * 20 + 1


def test_every_smaller_part_is_told_and_may_be_numbered_anew() -> None:
    names = list("abcdefgh")
    told: list[list[str]] = []

    def renamed(part: list[int]) -> list[int]:
        nonlocal names
        names = [names[index] for index in part]
        told.append(names)
        return list(range(len(part)))

    left = ddmin(list(range(8)), lambda part: "f" in [names[index] for index in part], renamed)
    assert (left, names) == ([0], ["f"])
    assert [len(part) for part in told] == [4, 2, 1]


def test_nothing_is_left_of_what_holds_without_any_item() -> None:
    assert ddmin([1, 2, 3], lambda part: True) == []
    assert ddmin([], lambda part: pytest.fail("asked about nothing")) == []


_runs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=8)


def _rows(gaps: list[tuple[int, int]]) -> tuple[RowNumbers, list[int]]:
    runs, place = [], 0
    for gap, length in gaps:
        runs.append((place + gap, place + gap + length))
        place += gap + length
    return RowNumbers.from_runs(runs), [number for first, stop in runs for number in range(first, stop)]


@given(_runs, st.integers(0, 60), st.integers(0, 60))
def test_rows_are_cut_as_a_list_of_their_numbers_would_be(gaps: list[tuple[int, int]], low: int, high: int) -> None:
    rows, numbers = _rows(gaps)

    def listed(part: RowNumbers) -> list[int]:
        assert all(stop < first for (_, stop), (first, _) in zip(part.runs, part.runs[1:], strict=False))
        return [number for first, stop in part.runs for number in range(first, stop)]

    assert len(rows) == len(numbers)
    assert listed(rows[low:high]) == numbers[low:high]
    assert listed(rows.select_range(low, high)) == [number for number in numbers if low <= number < high]
    assert listed(rows[:low] + rows[low:]) == numbers
