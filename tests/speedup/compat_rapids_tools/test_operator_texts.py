"""Function names in plan texts: the original's patterns, their blind spots included."""

from __future__ import annotations

import pytest

from workbench.speedup.compat_rapids_tools import operator_texts as texts
from workbench.speedup.compat_rapids_tools.operator_texts import UnreadableTextError


def test_a_projection_names_its_functions_but_no_casts() -> None:
    assert texts.find_all_functions("[cast(value#136 as string) AS v#1, CEIL(value#136) AS CEIL(value)#143L]") == [
        "CEIL"
    ]


def test_prefixes_of_partial_aggregation_are_taken_off() -> None:
    assert texts.find_aggregate_functions("(keys=[a#1], functions=[merge_avg(b#2), finalmerge_count(c#3)])") == [
        "avg",
        "count",
    ]


def test_parts_of_a_url_that_are_not_supported_become_functions_of_their_own() -> None:
    text = "[parse_url(url#7, HOST, false) AS h#9, parse_url(url#7, REF, false) AS r#10]"
    assert texts.find_all_functions(text) == ["parse_url", "parse_url_ref"]


def test_window_functions_are_the_last_call_before_each_definition() -> None:
    text = (
        "[sum(cast(level#30 as bigint)) windowspecdefinition(device#29, specifiedwindowframe(RangeFrame)) AS s#35L, "
        "row_number() windowspecdefinition(device#29) AS r#41], [device#29], [id#28 ASC NULLS FIRST]"
    )
    assert texts.find_window_functions(text) == ["sum", "row_number"]


def test_a_window_group_limit_names_its_ranking_function() -> None:
    assert texts.find_ranking_functions("[c#16], [a#17 DESC NULLS LAST], dense_rank(a#17), 2, Final") == ["dense_rank"]


def test_sort_keys_with_several_columns_are_cut_at_their_null_order() -> None:
    text = "[round(num#126, 0) ASC NULLS FIRST, CEIL(x#1) DESC NULLS LAST], true, 0"
    assert texts.find_sort_functions(text) == ["round", "CEIL"]
    assert texts.find_top_n_functions("(limit=2, orderBy=[FLOOR(z#796) ASC NULLS FIRST], output=[x#794])") == ["FLOOR"]


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


def test_a_condition_names_functions_and_comparisons() -> None:
    text = "((isnotnull(s_state#68) AND (s_state#68 = TN)) OR (hex(cast(value#0 as bigint)) = B))"
    assert texts.find_condition_functions(text) == ["isnotnull", "hex", "And", "EqualTo", "Or"]


def test_a_literal_operator_at_the_end_of_a_condition_counts_as_none() -> None:
    assert texts.find_condition_functions("(isnotnull(names#15) AND StartsWith(names#15, AND))") == [
        "isnotnull",
        "StartsWith",
        "And",
    ]


def test_a_plus_in_front_of_a_parenthesis_fails_as_in_the_original() -> None:
    with pytest.raises(UnreadableTextError):
        texts.find_condition_functions("(a#1 > +(b#2))")
