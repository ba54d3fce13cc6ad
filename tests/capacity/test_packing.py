"""First fit against a plain one, against the best there is, and at its limits."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.capacity.packing import first_fit
from workbench.errors import ConfigError


def plain(items: list[int], node: int) -> int:
    """First fit decreasing, item by item and node by node."""
    room: list[int] = []
    for size in sorted(items, reverse=True):
        place = next((index for index, left in enumerate(room) if left >= size), None)
        if place is None:
            room.append(node - size)
        else:
            room[place] -= size
    return len(room)


def best(items: tuple[int, ...], node: int) -> int:
    """The fewest nodes, by trying."""

    @cache
    def fewest(left: tuple[int, ...]) -> int:
        if not left:
            return 0
        first, rest = left[0], left[1:]
        found = len(left)
        for count in range(len(rest) + 1):
            for chosen in set(itertools.combinations(range(len(rest)), count)):
                if first + sum(rest[index] for index in chosen) <= node:
                    found = min(found, 1 + fewest(tuple(x for i, x in enumerate(rest) if i not in chosen)))
        return found

    return fewest(tuple(sorted(items, reverse=True)))


def items_of(counts: list[int], sizes: list[int]) -> list[int]:
    return [size for size, count in zip(sizes, counts, strict=True) for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(
    node=st.integers(1, 16),
    sizes=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    cases=st.lists(st.lists(st.integers(0, 30), min_size=4, max_size=4), min_size=1, max_size=8),
)
def test_groups_of_nodes_give_what_node_by_node_gives(node: int, sizes: list[int], cases: list[list[int]]) -> None:
    sizes = [min(size, node) for size in sizes]
    counts = np.array([case[: len(sizes)] for case in cases])
    found = first_fit(counts, sizes, node).tolist()
    assert found == [plain(items_of(case, sizes), node) for case in counts.tolist()]


@settings(max_examples=40, deadline=None)
@given(node=st.integers(3, 10), items=st.lists(st.integers(1, 10), max_size=7))
def test_it_is_near_the_best_and_never_below_what_the_gpus_need(node: int, items: list[int]) -> None:
    items = [min(item, node) for item in items]
    sizes = sorted(set(items)) or [1]
    found = int(first_fit(np.array([[items.count(size) for size in sizes]]), sizes, node)[0])
    fewest = best(tuple(items), node)
    assert math.ceil(sum(items) / node) <= fewest <= found <= 11 / 9 * fewest + 6 / 9


def test_a_thousand_nodes_take_no_longer_way_than_ten() -> None:
    # 3,000,000 shapes of 3 fill 1,500,000 nodes of 8 by two, with room for one of 2 in each.
    counts = np.array([[3_000_000, 1_500_000], [3_000_000, 1_500_001]])
    assert first_fit(counts, [3, 2], 8).tolist() == [1_500_000, 1_500_001]


def test_counts_too_many_for_one_number_are_told_apart_all_the_same() -> None:
    large = 2**40
    counts = np.array([[large, 1], [1, large], [large, 1]])
    assert first_fit(counts, [8, 8], 8).tolist() == [large + 1] * 3


def test_a_shape_larger_than_a_node_is_refused_or_gets_whole_nodes() -> None:
    counts = np.array([[2, 3], [0, 3]])
    with pytest.raises(ConfigError, match="larger than a node") as told:
        first_fit(counts, [12, 2], 8)
    assert "12 GPUs" in str(told.value)
    assert "spanning" in str(told.value)
    # Two of 12 take two nodes each; what is left on them goes to nobody. Three of 2 fit on one.
    assert first_fit(counts, [12, 2], 8, spanning=True).tolist() == [5, 1]


def test_a_large_shape_that_nobody_asks_for_is_no_matter() -> None:
    assert first_fit(np.array([[0, 4]]), [12, 2], 8).tolist() == [1]
    assert first_fit(np.zeros((3, 2), dtype=int), [1, 2], 8).tolist() == [0, 0, 0]
