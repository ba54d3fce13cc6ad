"""Books: accounts that must balance."""

from __future__ import annotations

import pytest

from workbench.core.books import AT_MOST, BOOKS, EQUAL, Book, build_books, describe_broken_books


@pytest.mark.parametrize(
    ("left", "right", "relation", "tolerance", "holds"),
    [
        (12, 12, EQUAL, 0.0, True),
        (14, 12, EQUAL, 0.0, False),
        (11, 12, EQUAL, 0.0, False),
        (12.4, 12, EQUAL, 0.5, True),
        (11, 12, AT_MOST, 0.0, True),
        (13, 12, AT_MOST, 0.5, False),
        (12.4, 12, AT_MOST, 0.5, True),
        (None, 12, EQUAL, 0.0, None),
        (12, None, AT_MOST, 0.0, None),
    ],
)
def test_a_book_holds_within_its_tolerance_and_is_unknown_without_a_side(
    left: float | None, right: float | None, relation: str, tolerance: float, holds: bool | None
) -> None:
    book = Book("b", ("left", left), ("right", right), "figures", "a cause", relation, tolerance=tolerance)
    assert book.holds is holds
    assert build_books([book])["holds"].to_list() == [holds]


def test_only_books_that_do_not_balance_are_told_with_both_sides_and_the_cause() -> None:
    books = build_books(
        [
            Book("one", ("ends", 14.0), ("tasks", 12.0), "times", "repeated lines", unit="s"),
            Book("two", ("ends", 12.0), ("tasks", 12.0), "times", "none"),
            Book("three", ("ends", None), ("tasks", 12.0), "times", "none"),
        ]
    )
    told = ("the book of one does not balance: ends 14 s, tasks 12 s (likely cause: repeated lines)",)
    assert describe_broken_books(books) == told
    assert describe_broken_books(books, ["two"]) == ()


def test_a_row_of_the_table_holds_the_whole_account() -> None:
    book = Book("slots", ("tasks", 9), ("slots", None), "slot use", "a cause", AT_MOST, "", 0.5)
    assert build_books([book]).to_dicts() == [
        {
            "book": "slots", "left_side": "tasks", "left_value": 9.0, "relation": "<=", "right_side": "slots",
            "right_value": None, "unit": "", "tolerance": 0.5, "holds": None, "spoils": "slot use", "cause": "a cause",
        }
    ]  # fmt: skip


def test_no_books_are_an_empty_table_that_tells_nothing() -> None:
    books = build_books([])
    assert (books.height, books.columns) == (0, list(BOOKS.schema()))
    assert describe_broken_books(books) == ()
