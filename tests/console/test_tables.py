"""Tables for the terminal: alignment, width, and text from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.console.tables import (
    CONTROL_CHARACTERS,
    cut_text,
    escape_cell,
    format_table,
    measure_width,
)

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


def test_the_widest_texts_are_cut_until_a_line_fits() -> None:
    lines = format_table(ROWS, max_width=30, indent=2)
    assert lines[0] == "  a rather lo…  4.2 ms  12,345"
    assert max(map(measure_width, lines)) == 30


def test_or_they_are_wrapped() -> None:
    assert format_table([["one two three", 1]], max_width=12, overflow="wrap") == ["one two    1", "three"]


def test_figures_are_never_cut() -> None:
    assert format_table([["name", 1234567]], max_width=5) == ["name  1,234,567"]


def test_rows_have_equally_many_cells() -> None:
    with pytest.raises(ValueError):
        format_table([["a", 1], ["b"]])


def test_wide_letters_count_twice() -> None:
    assert format_table([["日本", "x"], ["ab", "y"]]) == ["日本  x", "ab    y"]


@given(st.lists(st.tuples(st.text(), st.integers() | st.none() | st.floats()), max_size=5), st.integers(20, 60))
def test_no_text_breaks_a_line_or_steers_the_terminal(rows: list[tuple[str, object]], width: int) -> None:
    lines = format_table(rows, max_width=width)
    assert len(lines) == len(rows)
    assert not any(CONTROL_CHARACTERS.search(line) or "\n" in line for line in lines)


@given(st.text(), st.integers(1, 20))
def test_a_cut_text_fits(text: str, width: int) -> None:
    assert measure_width(cut_text(escape_cell(text), width)) <= width
