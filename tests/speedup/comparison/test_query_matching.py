"""Queries of two sides meet by what they read and compute; what cannot be told apart is refused by name."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.comparison.query_matching import (
    NOT_TOLD_APART,
    OTHER_EXPRESSIONS,
    OTHER_WORK,
    match_queries,
)
from workbench.speedup.tables import EXECUTIONS, PIECES


def row(label: str, sql_id: int, inputs: str, plan: str | None, name: str, rows: float = 100.0) -> dict[str, Any]:
    blank: dict[str, Any] = dict.fromkeys(EXECUTIONS.schema())
    return blank | {
        "label": label, "session": f"{label}-s1", "sql_id": sql_id, "query": name, "description": name, "number": 0,
        "fingerprint": inputs, "plan": plan, "wall_s": 1.0, "task_s": 1.0, "n_stages": 1, "n_failed_tasks": 0,
        "cold": True, "read_rows": rows,
    }  # fmt: skip


def match(*rows: dict[str, Any]) -> tuple[dict[tuple[str, int], str], dict[str, str]]:
    measured, refused = match_queries(Measured(EXECUTIONS.frame(rows), PIECES.frame([])), "cpu", "gpu")
    names = measured.executions.select("label", "sql_id", "query").iter_rows()
    return {(label, sql_id): query for label, sql_id, query in names}, refused


def test_queries_of_their_own_tables_meet_in_any_order_and_under_any_name() -> None:
    names, refused = match(
        row("cpu", 0, "t0", "a", "save [t0 #a]"), row("cpu", 1, "t1", "b", "save [t1 #b]"),
        row("cpu", 2, "t2", "c", "q"),
        row("gpu", 0, "t2", "z", "another"), row("gpu", 1, "t1", "y", "save"), row("gpu", 2, "t0", "x", "save"),
    )  # fmt: skip
    assert refused == {}
    assert names["cpu", 0] == names["gpu", 2] == "save [t0 #a]"
    assert names["cpu", 1] == names["gpu", 1] == "save [t1 #b]"
    assert names["cpu", 2] == names["gpu", 0] == "q"


def test_queries_of_the_same_tables_meet_by_a_description_of_their_own() -> None:
    names, refused = match(
        row("cpu", 0, "t", "a", "q1"), row("cpu", 1, "t", "b", "q2"),
        row("gpu", 0, "t", "x", "q2"), row("gpu", 1, "t", "y", "q1"),
    )  # fmt: skip
    assert (names["cpu", 0], names["cpu", 1], refused) == (names["gpu", 1], names["gpu", 0], {})


def test_unnamed_queries_of_the_same_tables_meet_by_the_rows_that_they_read() -> None:
    names, refused = match(
        row("cpu", 0, "t", "a", "save", 100), row("cpu", 1, "t", "b", "save", 500),
        row("gpu", 0, "t", "x", "save", 500), row("gpu", 1, "t", "y", "save", 100),
    )  # fmt: skip
    assert (names["cpu", 0], names["cpu", 1], refused) == (names["gpu", 1], names["gpu", 0], {})
    assert names["cpu", 0] != names["cpu", 1]


def test_what_cannot_be_told_apart_is_refused_by_name_and_never_paired() -> None:
    names, refused = match(
        row("cpu", 0, "t", "a", "save"), row("cpu", 1, "t", "b", "save"),
        row("gpu", 0, "t", "x", "save"), row("gpu", 1, "t", "y", "save"),
    )  # fmt: skip
    assert len(set(names.values())) == 4
    assert refused == dict.fromkeys(names.values(), NOT_TOLD_APART)


def test_a_query_that_read_other_rows_is_refused() -> None:
    names, refused = match(row("cpu", 0, "t", "a", "q"), row("gpu", 0, "t", "x", "q", 700))
    assert refused == {names["cpu", 0]: OTHER_WORK}


def test_facts_without_fingerprints_keep_their_names() -> None:
    names, refused = match(row("cpu", 0, "t", None, "q1"), row("gpu", 0, "u", None, "q1"))
    assert (set(names.values()), refused) == ({"q1"}, {})


def test_the_same_name_over_other_tables_stays_the_same_name() -> None:
    # The comparison of the sides then says that they read other tables.
    names, refused = match(row("cpu", 0, "t", "a", "q1"), row("gpu", 0, "u", "x", "q1"))
    assert (names, refused) == ({("cpu", 0): "q1", ("gpu", 0): "q1"}, {})
    assert pl.Series(list(names.values())).n_unique() == 1


def test_repeats_of_a_query_meet_together_and_a_renamed_one_takes_the_baselines_name() -> None:
    names, refused = match(
        row("cpu", 0, "t", "a", "q1"), row("cpu", 1, "t", "a", "q1"),
        row("gpu", 0, "t", "x", "other"), row("gpu", 1, "t", "x", "other"), row("gpu", 2, "t", "x", "other"),
    )  # fmt: skip
    assert (set(names.values()), refused) == ({"q1"}, {})


def test_some_queries_of_the_same_tables_meet_and_the_rest_is_refused() -> None:
    names, refused = match(
        row("cpu", 0, "t", "a", "save", 100), row("cpu", 1, "t", "b", "save", 500),
        row("cpu", 2, "t", "c", "save", 500),
        row("gpu", 0, "t", "x", "save", 500), row("gpu", 1, "t", "y", "save", 100),
        row("gpu", 2, "t", "z", "save", 500),
    )  # fmt: skip
    assert names["cpu", 0] == names["gpu", 1]
    unmatched = {names[side, number] for side, number in [("cpu", 1), ("cpu", 2), ("gpu", 0), ("gpu", 2)]}
    assert len(unmatched) == 4
    assert refused == dict.fromkeys(unmatched, NOT_TOLD_APART)


def test_equal_fingerprints_tell_queries_of_the_same_tables_apart() -> None:
    # As between two runs of one engine.
    names, refused = match(
        row("cpu", 0, "t", "a", "save"), row("cpu", 1, "t", "b", "save"),
        row("gpu", 0, "t", "b", "save"), row("gpu", 1, "t", "a", "save"),
    )  # fmt: skip
    assert (names["cpu", 0], names["cpu", 1], refused) == (names["gpu", 1], names["gpu", 0], {})


def test_a_query_that_one_side_lacks_is_no_ones_pair() -> None:
    names, refused = match(
        row("cpu", 0, "t0", "a", "q0"), row("cpu", 1, "t1", "b", "q1"), row("gpu", 0, "t1", "y", "q1")
    )
    assert names == {("cpu", 0): "q0", ("cpu", 1): "q1", ("gpu", 0): "q1"}
    assert refused == {}


def test_rows_within_a_hundredth_are_the_same_work_and_files_of_the_same_size_are() -> None:
    assert match(row("cpu", 0, "t", "a", "q", 1000), row("gpu", 0, "t", "x", "q", 1009))[1] == {}
    assert match(row("cpu", 0, "t", "a", "q", 1000), row("gpu", 0, "t", "x", "q", 1020))[1] == {"q": OTHER_WORK}
    # Filters that an engine pushes into the files change the rows that it counts.
    pushed = row("gpu", 0, "t", "x", "q", 100) | {"file_bytes": 5000}
    assert match(row("cpu", 0, "t", "a", "q", 1000) | {"file_bytes": 5000}, pushed)[1] == {}


def test_executions_and_pieces_stay_as_they_are_but_for_the_name() -> None:
    rows = [row("cpu", 0, "t", "a", "q"), row("gpu", 0, "t", "x", "other")]
    before = Measured(EXECUTIONS.frame(rows), PIECES.frame([]))
    after, _ = match_queries(before, "cpu", "gpu")
    assert after.executions.drop("query").equals(before.executions.drop("query"))
    assert after.executions["query"].to_list() == ["q", "q"]
    assert after.pieces is before.pieces


def with_expressions(label: str, *expressions: str, number: int = 0, started: str = "2026-11-02") -> dict[str, Any]:
    """A query over one table, whose plan each side words in its own way."""
    plan = f"{label}{number}"
    return row(label, number, "t", plan, "save") | {"expressions": list(expressions), "started": started}


def test_the_only_queries_of_a_table_that_compare_with_other_values_are_no_pair() -> None:
    _, refused = match(
        with_expressions("cpu", "1994-01-01", "0.05", "sum()"), with_expressions("gpu", "1996-01-01", "0.05", "sum()")
    )
    assert refused == {"save": f"{OTHER_EXPRESSIONS}: 1994-01-01 on cpu, 1996-01-01 on gpu"}


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (("1998-09-02", "68.00"), ("10471", "68")),  # an engine that writes days as numbers
        (("3", "x", "Inner"), ("3",)),  # fewer of them may hide some
        ((), ("7",)),
    ],
)
def test_other_words_for_the_same_and_fewer_expressions_are_a_pair(
    baseline: tuple[str, ...], candidate: tuple[str, ...]
) -> None:
    assert match(with_expressions("cpu", *baseline), with_expressions("gpu", *candidate))[1] == {}


def test_days_that_are_told_from_today_are_the_same_on_another_day() -> None:
    yesterday = with_expressions("cpu", "2026-11-01"), with_expressions("gpu", "2026-11-08", started="2026-11-09")
    fixed = with_expressions("cpu", "2026-11-01"), with_expressions("gpu", "2026-11-01", started="2026-11-09")
    other = with_expressions("cpu", "2026-11-01"), with_expressions("gpu", "2026-11-05", started="2026-11-09")
    assert [bool(match(*pair)[1]) for pair in (yesterday, fixed, other)] == [False, False, True]


def test_queries_of_the_same_tables_meet_by_their_expressions() -> None:
    names, refused = match(
        with_expressions("cpu", "1994"), with_expressions("cpu", "1995", number=1),
        with_expressions("gpu", "1995"), with_expressions("gpu", "1994", number=1),
    )  # fmt: skip
    assert (names["cpu", 0], names["cpu", 1], refused) == (names["gpu", 1], names["gpu", 0], {})
