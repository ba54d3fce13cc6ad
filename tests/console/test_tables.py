"""Tables for the terminal: alignment, width, and text from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.console.tables import CONTROL_CHARACTERS, format_table

ROWS = [["a rather long name of something", "4.2 ms", 12345], ["b", "17 ms", None]]


def test_numbers_and_named_columns_stand_at_the_right() -> None:
    assert format_table(ROWS, ["name", "time", "n"], right=["time"]) == [
        "name                               time       n",
        "a rather long name of something  4.2 ms  12,345",
        "b                                 17 ms       –",
    ]


def test_a_table_without_rows_is_its_headers_and_one_without_both_is_nothing() -> None:
    assert format_table([], ["a", "b"]) == ["a  b"]
    assert format_table([]) == []


def test_rows_have_equally_many_cells() -> None:
    with pytest.raises(ValueError):
        format_table([["a", 1], ["b"]])


def test_wide_letters_count_twice() -> None:
    assert format_table([["日本", "x"], ["ab", "y"]]) == ["日本  x", "ab    y"]


@given(st.lists(st.tuples(st.text(), st.integers() | st.none() | st.floats()), max_size=5))
def test_no_text_breaks_a_line_or_steers_the_terminal(rows: list[tuple[str, object]]) -> None:
    lines = format_table(rows)
    assert len(lines) == len(rows)
    assert not any(CONTROL_CHARACTERS.search(line) or "\n" in line for line in lines)
