"""Function names in plan texts: the original's patterns, their blind spots included."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workbench.speedup.compat_rapids_tools import operator_texts as texts
from workbench.speedup.compat_rapids_tools.operator_texts import UnreadableTextError


@pytest.mark.parametrize(
    ("find", "text", "functions"),
    [
        (texts.find_all_functions, "[cast(value#136 as string) AS v#1, CEIL(value#136) AS CEIL(value)#143L]", "CEIL"),
        (
            texts.find_all_functions,
            "[parse_url(url#7, HOST, false) AS h#9, parse_url(url#7, REF, false) AS r#10]",
            "parse_url parse_url_ref",
        ),
        (
            texts.find_aggregate_functions,
            "(keys=[a#1], functions=[merge_avg(b#2), finalmerge_count(c#3)])",
            "avg count",
        ),
        (
            texts.find_window_functions,
            "[sum(cast(level#30 as bigint)) windowspecdefinition(device#29, specifiedwindowframe(RangeFrame)) AS s#35L,"
            " row_number() windowspecdefinition(device#29) AS r#41], [device#29], [id#28 ASC NULLS FIRST]",
            "sum row_number",
        ),
        (texts.find_ranking_functions, "[c#16], [a#17 DESC NULLS LAST], dense_rank(a#17), 2, Final", "dense_rank"),
        (
            texts.find_sort_functions,
            "[round(num#126, 0) ASC NULLS FIRST, CEIL(x#1) DESC NULLS LAST], true, 0",
            "round CEIL",
        ),
        (texts.find_top_n_functions, "(limit=2, orderBy=[FLOOR(z#796) ASC NULLS FIRST], output=[x#794])", "FLOOR"),
        (
            texts.find_condition_functions,
            "((isnotnull(s_state#68) AND (s_state#68 = TN)) OR (hex(cast(value#0 as bigint)) = B))",
            "isnotnull hex And EqualTo Or",
        ),
        (
            texts.find_condition_functions,
            "(isnotnull(names#15) AND StartsWith(names#15, AND))",
            "isnotnull StartsWith And",
        ),
    ],
    ids=[
        *("a cast is none", "parts of a URL that are not supported", "prefixes of partial aggregation", "windows"),
        *("a window's group limit", "sort keys", "top N", "a condition", "a literal operator at the end is none"),
    ],
)
def test_functions_are_found_as_the_original_finds_them(
    find: Callable[[str], list[str]], text: str, functions: str
) -> None:
    assert find(text) == functions.split()


@pytest.mark.parametrize(
    ("text", "supported"),
    [
        ("[a#1], [b#2], Inner", True),
        ("[a#1], [b#2], LeftOuter, BuildRight, false", True),
        ("[a#1], [b#2], LeftOuter, BuildLeft, false", False),
        ("[a#1], [b#2], ExistenceJoin(exists#86), BuildRight", True),
        ("[a#1], [b#2], Sideways", False),
    ],
)
def test_an_equi_join_is_supported_by_type_and_build_side(text: str, supported: bool) -> None:
    assert texts.find_equi_join_functions(text) == ([], supported)


@pytest.mark.parametrize(
    ("text", "supported"),
    [
        ("BuildRight, Cross", True),
        ("BuildRight, Inner, (a#1 < CEIL(b#2))", True),
        ("BuildRight, RightOuter, (a#1 < b#2)", False),
        ("BuildLeft, LeftSemi, (a#1 < b#2)", False),
        ("BuildLeft, FullOuter", False),
    ],
)
def test_a_nested_loop_join_is_supported_by_type_and_build_side(text: str, supported: bool) -> None:
    assert texts.find_nested_loop_join_functions(text)[1] is supported


def test_a_nested_loop_join_without_a_type_cannot_be_read() -> None:
    with pytest.raises(UnreadableTextError):
        texts.find_nested_loop_join_functions("BuildRight")


def test_a_plus_in_front_of_a_parenthesis_fails_as_in_the_original() -> None:
    with pytest.raises(UnreadableTextError):
        texts.find_condition_functions("(a#1 > +(b#2))")
