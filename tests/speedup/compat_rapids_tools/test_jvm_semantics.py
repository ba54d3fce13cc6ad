"""Orders of Scala's hash tables: what Scala 2.12.18 itself printed for these keys."""

from __future__ import annotations

import pytest

from workbench.speedup.compat_rapids_tools.jvm_semantics import immutable_order, mutable_order

# (keys in the order of filling, mutable.HashMap's keys, Set's elements)
CASES = [
    ("4434 1606 4978", "4434 4978 1606", "4434 1606 4978"),
    ("17 13 12 34", "17 13 34 12", "17 13 12 34"),
    ("24 9 48 3 37", "37 9 3 48 24", "24 37 9 3 48"),
    (
        "4888 4500 2357 1452 2333 3676 4055 2536",
        "4500 1452 4888 3676 2357 2333 2536 4055",
        "4500 4055 3676 4888 2536 2333 1452 2357",
    ),
    (
        "4151 833 1857 4366 1377 3745 3450 2569 2008 1203 4490 3076 3116",
        "3116 3450 833 3076 1377 4490 2008 1203 3745 2569 4151 4366 1857",
        "3745 3116 4151 1377 3450 1857 1203 4490 4366 2569 833 2008 3076",
    ),
    (
        "307 4357 2849 4156 4957 4349 4283 1046 2891 1746 888 3935 3777 2308 2742 3035 696 3370 3770 3229",
        "3035 3370 1746 696 2742 1046 3935 3229 307 4156 3770 2308 2891 2849 4957 4283 4349 4357 888 3777",
        "3370 1746 3777 1046 4156 4349 307 3229 4957 3935 3770 888 4283 2849 2891 2308 2742 4357 696 3035",
    ),
]
WORDS = "4055 4500 2333 2357 1452 4888 2536 3676"


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


@pytest.mark.parametrize(("filled", "of_map", "of_set"), CASES)
def test_the_order_is_that_of_scala(filled: str, of_map: str, of_set: str) -> None:
    assert mutable_order(numbers(filled)) == numbers(of_map)
    assert immutable_order(numbers(filled)) == numbers(of_set)


def test_texts_are_ordered_by_their_hash_too() -> None:
    filled = "4888 4500 2357 1452 2333 3676 4055 2536"
    assert immutable_order(f"Scan a{word}" for word in filled.split()) == [f"Scan a{word}" for word in WORDS.split()]


def test_up_to_four_keep_the_order_in_which_they_came() -> None:
    assert immutable_order([7, 3, 7, 5, 1]) == [7, 3, 5, 1]
