"""Books: accounts of an answer's input that must balance before the answer is valid.

An area builds its books from other events than the figures that they guard, keeps them as the table `books` of a run,
and adds a sentence of each that does not balance to the reasons of its verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.core.formats import format_number
from workbench.core.tables import Column, Table

if TYPE_CHECKING:
    import polars as pl

EQUAL, AT_MOST = "=", "<="
BOOKS = Table(
    "books",
    "Accounts of the input that must balance; a figure that one of them spoils is not valid.",
    ("book",),
    (
        Column("book", "str", "What balances."),
        Column("left_side", "str", "Quantity on the left side."),
        Column("left_value", "float", "Value of the left side; null if the input lacks it.", nullable=True),
        Column("relation", "str", "= or <=: relation of the left side to the right side."),
        Column("right_side", "str", "Quantity on the right side."),
        Column("right_value", "float", "Value of the right side; null if the input lacks it.", nullable=True),
        Column("unit", "str", "Unit of both; empty for counts."),
        Column("tolerance", "float", "Largest difference that counts as equal."),
        Column("holds", "bool", "Does it balance? Null where a side is unknown.", nullable=True),
        Column("spoils", "str", "Figures that are invalid if the account does not balance."),
        Column("cause", "str", "Likely cause if it does not."),
    ),
)


@dataclass(frozen=True)
class Book:
    """One account: two sides counted from different events, each with what it counts and its value.

    `tolerance` is the largest difference that is none; `spoils` names the figures that rest on it.
    """

    book: str
    left: tuple[str, float | None]
    right: tuple[str, float | None]
    spoils: str
    cause: str
    relation: str = EQUAL
    unit: str = ""
    tolerance: float = 0.0

    @property
    def holds(self) -> bool | None:
        """Whether it balances; null where a side is unknown."""
        left, right = self.left[1], self.right[1]
        if left is None or right is None:
            return None
        excess = left - right
        return excess <= self.tolerance and (self.relation == AT_MOST or excess >= -self.tolerance)


def build_books(books: Iterable[Book]) -> pl.DataFrame:
    """Books as table BOOKS.

    >>> book = Book("attempts", ("ends of tasks", 14), ("tasks that ended", 12), "task times", "repeated lines")
    >>> build_books([book])["holds"].to_list()
    [False]
    """
    return BOOKS.frame(
        [
            {
                "book": book.book,
                "left_side": book.left[0],
                "left_value": None if book.left[1] is None else float(book.left[1]),
                "relation": book.relation,
                "right_side": book.right[0],
                "right_value": None if book.right[1] is None else float(book.right[1]),
                "unit": book.unit,
                "tolerance": float(book.tolerance),
                "holds": book.holds,
                "spoils": book.spoils,
                "cause": book.cause,
            }
            for book in books
        ]
    )


def describe_broken_books(books: pl.DataFrame, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """A sentence for each book that does not balance. `books`: Table BOOKS. `names`: Those to look at; null: all.

    >>> book = Book("attempts", ("ends of tasks", 14), ("tasks that ended", 12), "task times", "repeated lines")
    >>> describe_broken_books(build_books([book]))
    ('the book of attempts does not balance: ends of tasks 14, tasks that ended 12 (likely cause: repeated lines)',)
    """
    sentences = []
    for row in books.iter_rows(named=True):
        if row["holds"] is False and (names is None or row["book"] in names):
            sides = [
                " ".join(filter(None, [row[f"{side}_side"], format_number(row[f"{side}_value"]), row["unit"]]))
                for side in ("left", "right")
            ]
            sentences.append(
                f"the book of {row['book']} does not balance: {sides[0]}, {sides[1]} (likely cause: {row['cause']})"
            )
    return tuple(sentences)


def list_book_checks(books: pl.DataFrame) -> pl.DataFrame:
    """Books as rows of the checks, without those whose sides are not known. `books`: Table BOOKS."""
    import polars as pl

    return books.filter(pl.col("holds").is_not_null()).select(
        check=pl.concat_str(pl.lit("book of "), "book", pl.lit(": "), "left_side"),
        found="left_value",
        allowed="right_value",
        holds="holds",
    )
