"""Tables for the terminal: alignment, width, and text from outside."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.console.tables import CONTROL_CHARACTERS, format_cells, format_table, measure_width

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


WORDS = st.lists(st.from_regex(r"[a-zä日]{1,20}", fullmatch=True), max_size=30).map(" ".join)
FIGURES = st.floats(-1e9, 1e9).map(lambda value: f"{value:,.3f}")


@settings(max_examples=40)
@given(
    st.lists(st.tuples(WORDS, FIGURES, FIGURES, WORDS, FIGURES), min_size=1, max_size=4), st.sampled_from([60, 80, 100])
)
def test_a_fitted_table_is_never_wider_than_its_screen_and_cuts_neither_number_nor_word(
    rows: list[tuple[str, ...]], width: int
) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    headers = ["name", "first number of it", "second", "what was seen", "last"]
    lines = format_cells(columns, headers, width=width)
    assert max(map(measure_width, lines)) <= width
    whole = {word for row in rows for cell in row for word in cell.split()}
    whole |= {word.strip(",.") for header in headers for word in header.split()} | {"…", "Not", "shown:", "--wide"}
    assert {word.strip(",.") for line in lines for word in line.split()} <= whole | {
        "shows",
        "all",
        "columns",
        "whole",
        "texts",
    }


def test_the_least_important_columns_give_way_and_are_named() -> None:
    columns = [["a" * 20], ["b" * 20], ["c" * 20], ["d" * 20]]
    headers = ["name", "aside", "verdict", "detail"]
    head, row, *note = format_cells(columns, headers, rank=["verdict"], width=70)
    assert head.split() == ["name", "aside", "verdict"]
    assert note == ["Not shown: detail. --wide shows all columns."]
    head, row, *note = format_cells(columns, headers, rank=["verdict", "detail"], width=50)
    assert (head.split(), row.split()) == (["name", "verdict"], ["a" * 20, "c" * 20])
    assert " ".join(note) == "Not shown: aside, detail. --wide shows all columns."


def test_numbers_with_units_and_intervals_stand_at_the_right_and_versions_do_not() -> None:
    columns = [["sort", "merge"], ["4.2 ms", "17 ms"], ["1.8 (1.7 to 1.9)", "0.95 (0.9 to 1)"], ["1.26.4", "2.4.6"]]
    assert format_cells(columns, ["name", "time", "ratio", "version"]) == [
        "name     time             ratio  version",
        "sort   4.2 ms  1.8 (1.7 to 1.9)  1.26.4",
        "merge   17 ms   0.95 (0.9 to 1)  2.4.6",
    ]


def test_a_cell_without_room_ends_after_a_word() -> None:
    lines = format_cells([["a"], ["one two three four five six seven eight nine ten " * 3]], ["n", "text"], width=24)
    assert max(map(len, lines)) <= 24
    assert lines[4].endswith(" …")
    assert " ".join(lines[5:]) == "--wide shows whole texts."
