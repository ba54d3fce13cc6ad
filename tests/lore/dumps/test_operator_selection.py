"""The grammar of idsToDump: what the plugin reads, and errors where it would dump something else than was meant."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.core.errors import ConfigError
from workbench.lore.dumps.operator_selection import (
    MAX_CHARS,
    MAX_NUMBER,
    MAX_PARTITIONS,
    Selection,
    build_selection,
    format_selection,
    parse_selection,
)


def sets(text: str) -> dict[int, set[int] | None]:
    return {
        lore_id: None if chosen.partitions is None else set(chosen.partitions)
        for lore_id, chosen in parse_selection(text).items()
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The values of the plugin's own suite.
        ("1[1 2 4 8], 2[1 4-9 100]", {1: {1, 2, 4, 8}, 2: {1, 4, 5, 6, 7, 8, 100}}),
        ("1[*], 2[4-6 8] , 3[1 2 4 8]", {1: None, 2: {4, 5, 8}, 3: {1, 2, 4, 8}}),
        ("1[], 2[], 3[]", {1: None, 2: None, 3: None}),
        (" 1[ 0   1 ]\t,\n2[ * ]", {1: {0, 1}, 2: None}),
        ("1 [3]", {1: {3}}),
        ("007[01]", {7: {1}}),
        ("0[0-1]", {0: {0}}),
        ("1[5 5 4-6]", {1: {4, 5}}),
        (f"{MAX_NUMBER}[{MAX_NUMBER}]", {MAX_NUMBER: {MAX_NUMBER}}),
        (f"1[0-{MAX_PARTITIONS}]", {1: set(range(MAX_PARTITIONS))}),
    ],
)
def test_a_text_chooses(text: str, expected: dict[int, set[int] | None]) -> None:
    assert sets(text) == expected
    assert list(parse_selection(text)) == list(expected)


@pytest.mark.parametrize(
    ("text", "what", "told"),
    [
        # The plugin's suite has this one as an error, too.
        (" 1, 2 ", "an id without partitions", "write 1[*] for all partitions, or 1[0] for one"),
        ("1[0, 2], 4[*]", "a comma inside brackets", "write 1[0 2]: spaces inside"),
        ("1[0,2]", "a comma inside brackets", "write 1[0 2]"),
        ("1[5-5]", "the range 5-5 is empty: a range excludes its end", "write 5 or 5-6; the plugin would dump all"),
        ("1[2 7-3]", "the range 7-3 is reversed: a range excludes its end", "write 3-7; the plugin would dump all"),
        ("1[* 3]", "* among numbers", "* alone"),
        ("1[0], 2[*], 1[1]", "id 1 is given twice", "one pair of brackets"),
        ("1[0], 01[1]", "id 1 is given twice", "one pair of brackets"),
        ("loreId=1[*]", "'loreId=' before the id", "write 1[*]"),
        ("-1[0]", "'-' before the id", "write 1[0]"),
        ("1[0] 2[*]", "no comma between two ids", "write 1[0], 2[*]"),
        ("1[0", "brackets that do not match", "close each [ with one ]"),
        ("1 0]", "brackets that do not match", "close each"),
        ("1[[0]]", "not of the form id[partitions]", "1[0 2 5-9], 4[*]"),
        ("[0]", "not of the form id[partitions]", "1[0 2 5-9], 4[*]"),
        ("1[0],", "nothing between two commas", "remove the comma"),
        ("1[-1]", "'-1' is no partition", "a number"),
        ("1[4 - 6]", "'-' is no partition", "a range without spaces"),
        ("1[\\*]", "'\\\\*' is no partition", "or *"),
        ("1[١]", "'١' is no partition", "a number"),
        ("١[0]", "not of the form", "1[0 2 5-9], 4[*]"),
        (f"{MAX_NUMBER + 1}[0]", "the number is too large", f"0 to {MAX_NUMBER}"),
        (f"1[{'9' * 6000}]", "the number is too large", f"0 to {MAX_NUMBER}"),
        (f"1[0-{MAX_NUMBER}]", "too many partitions", "1,000,000 in all, or *"),
        (f"1[0-{MAX_PARTITIONS}], 2[0]", "too many partitions", "1,000,000 in all, or *"),
        ("1[" + "0-999999 " * 5 + "]", "too many partitions", "1,000,000 in all"),
        ("", "no ids are given", "1[0 2 5-9], 4[*]"),
        ("1[0]" + " " * MAX_CHARS, "the text is too long", str(MAX_CHARS)),
    ],
    ids=lambda value: ascii(value[:30]),
)
def test_an_error_says_what_was_meant(text: str, what: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_selection(text, where="--ids")
    assert what in error.value.what
    assert told in str(error.value)
    assert "--ids" in str(error.value)
    assert len(str(error.value)) < 600


NUMBERS = st.one_of(st.integers(0, 40), st.integers(MAX_NUMBER - 40, MAX_NUMBER))
SELECTIONS = st.dictionaries(
    NUMBERS, st.one_of(st.none(), st.frozensets(NUMBERS, min_size=1)).map(Selection), min_size=1
)


@given(SELECTIONS)
@settings(derandomize=True)
def test_what_is_spelled_is_read_back(chosen: dict[int, Selection]) -> None:
    assert parse_selection(format_selection(chosen)) == chosen
    assert list(parse_selection(format_selection(chosen))) == list(chosen)


@given(SELECTIONS)
@settings(derandomize=True)
def test_python_and_text_choose_the_same(chosen: dict[int, Selection]) -> None:
    assert build_selection({lore_id: one.partitions for lore_id, one in chosen.items()}) == chosen
    assert build_selection(format_selection(chosen)) == chosen


@given(st.text(alphabet="0123456789[]-*, x\n", max_size=30))
@settings(derandomize=True, max_examples=400)
def test_any_text_is_read_or_refused_as_a_config_error(text: str) -> None:
    try:
        chosen = parse_selection(text)
    except ConfigError:
        return
    assert parse_selection(format_selection(chosen)) == chosen


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        ({}, "no ids are given"),
        ({"1": [0]}, "not an id or partition"),
        ({-1: [0]}, "not an id or partition"),
        ({1: [False]}, "not an id or partition"),
        ({1: [MAX_NUMBER + 1]}, "not an id or partition"),
        ({1: []}, "no partition is chosen"),
        ({1: "*"}, "not a list of partitions"),
        ({1: range(MAX_NUMBER)}, "too many partitions"),
    ],
    ids=str,
)
def test_ids_of_python_are_checked(ids: Any, what: str) -> None:
    with pytest.raises(ConfigError) as error:
        build_selection(ids)
    assert what in error.value.what
