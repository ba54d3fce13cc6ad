from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.indicators.store import making
from tests.indicators.store.conftest import Place
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.indicators.store import sql_queries
from workbench.indicators.store.archive import inspection_id, write_result
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.sql_database import Database, open_database
from workbench.indicators.store.sql_queries import QUERIES, Filters, run_query

SORTED, SCANNED = making.planned(making.PiSorted), making.planned(making.PiScanned)


@pytest.fixture
def filled(tmp_path: Path, place: Place) -> Iterator[Database]:
    """Two sessions of three arms and four runs; in the second, two indicators and a run that timed out."""
    making.archive(tmp_path / "a")
    session = making.archive(tmp_path / "b", making.session("s-2", cases=(SORTED, SCANNED)))
    where = inspection_id("s-2", "2.4.6", SCANNED.label)
    write_result(tmp_path / "b", where, 9, making.run(session, SCANNED, "2.4.6", 9, status="timeout", stdout={}))
    target = place()
    with open_database(target) as database:
        sync_sessions([tmp_path / "a", tmp_path / "b"], database)
    with open_database(target, create=False) as database:
        yield database


def column(database: Database, query: str, name: str, **filters: Any) -> list[Any]:
    return run_query(database, query, Filters(**filters)).frame[name].to_list()


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "values"])
def test_every_query_answers_with_its_table(filled: Database, name: str) -> None:
    table = QUERIES[name].table
    assert table is not None
    frame = run_query(filled, name).frame
    assert frame.columns == [column.name for column in table.columns]
    assert frame.height > 0
    if name == "sessions":
        counts = frame.select("session_id", "arms", "cases", "runs", "failed").rows()
        assert counts == [("s-1", 3, 1, 12, 0), ("s-2", 3, 2, 25, 1)]
    if name == "failures":
        row = frame.row(0, named=True)
        assert (row["status"], row["reason"], row["failed_checks"]) == ("timeout", "made to fail", [])


def test_filters_narrow_every_query(filled: Database) -> None:
    assert len(column(filled, "runs", "run", session="s-1")) == 12
    assert len(column(filled, "runs", "run", session="s-2", indicator="PiScanned")) == 13
    assert set(column(filled, "runs", "arm", stack="numpy 2.2.6")) == {"2.2.6", "control"}
    assert set(column(filled, "runs", "arm", stack="control")) == {"control"}
    key = column(filled, "stacks", "stack_key", stack="2.4.6")[0]
    assert set(column(filled, "runs", "arm", stack=key[:8])) == {"2.4.6"}
    assert column(filled, "runs", "run", status="timeout") == [9]
    assert column(filled, "sessions", "session_id", indicator="PiScanned") == ["s-2"]
    assert column(filled, "stacks", "failed", status="timeout", session="s-2") == [1]
    assert column(filled, "indicators", "indicator", session="s-1") == ["PiSorted"]
    assert column(filled, "packages", "version", stack="2.4.6") == ["2.4.6"]


def test_since_is_utc_unless_it_names_a_zone(filled: Database) -> None:
    # Run n of each arm and case began at 03:00:0n.
    assert set(column(filled, "runs", "run", since="2026-01-02T03:00:03")) == {3, 9}
    assert set(column(filled, "runs", "run", since="2026-01-02T04:00:03+01:00")) == {3, 9}
    assert column(filled, "runs", "run", since="2026-01-03") == []


def test_values_are_the_indicators_own_fields_with_their_types(filled: Database) -> None:
    frame = run_query(filled, "values", Filters(indicator="PiSorted", session="s-1")).frame

    assert frame.height == 12
    assert dict(frame.schema)["n"] == pl.Int64
    assert dict(frame.schema)["padding"] == pl.String
    assert frame["elapsed_ms"].to_list()[:4] == [1.0, 1.125, 1.25, 1.375]
    assert frame["wrong"].to_list() == [0] * 12


def test_versions_are_never_put_together(tmp_path: Path, filled: Database) -> None:
    other = SORTED.model_copy(update={"indicator_version": "f" * 12})
    making.archive(tmp_path / "c", making.session("s-3", cases=(other,)))
    with open_database(tmp_path / "x.db") as database:
        sync_sessions([tmp_path / "a", tmp_path / "c"], database)

        with pytest.raises(InputError, match="several versions") as error:
            run_query(database, "values", Filters(indicator="PiSorted"))
        assert run_query(database, "values", Filters(indicator=f"PiSorted@{'f' * 12}")).frame.height == 12

    assert f"PiSorted@{'f' * 12}" in str(error.value)


def test_rows_are_bounded_and_the_rest_is_told(filled: Database) -> None:
    for answer in (
        run_query(filled, "runs", max_rows=5),
        run_query(filled, "values", Filters(indicator="PiSorted"), max_rows=5),
        sql_queries.select_rows(filled, "SELECT run FROM run ORDER BY 1", max_rows=5),
    ):
        assert (answer.frame.height, answer.truncated) == (5, True)
    assert run_query(filled, "runs", max_rows=37).truncated is False


@pytest.mark.parametrize(
    ("name", "filters", "told"),
    [
        ("nothing", {}, "unknown query"),
        ("values", {}, "an indicator is required"),
        ("values", {"indicator": "PiSorted@nix"}, "no typed values"),
        ("values", {"indicator": "PiSorted", "status": "ok"}, "values does not support this filter"),
        ("packages", {"since": "2026-01-01"}, "packages does not support this filter"),
        ("runs", {"session": "nix"}, "no such session"),
        ("runs", {"status": "bad"}, "unknown status"),
        ("runs", {"since": "yesterday"}, "not a time"),
        # A filter is never part of the SQL.
        ("runs", {"stack": "%%%%%%%%' OR 1=1 --"}, "no such stack"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(
    filled: Database, name: str, filters: dict[str, str], told: str
) -> None:
    with pytest.raises((ConfigError, InputError), match=told) as error:
        run_query(filled, name, Filters(**filters))

    assert error.value.exit_code == 2


def test_a_select_of_ones_own_is_answered(filled: Database) -> None:
    answer = sql_queries.select_rows(
        filled, 'SELECT "case", count(*) AS n, avg(duration_s) AS d FROM run GROUP BY 1 ORDER BY 1;'
    )

    assert answer.frame.to_dict(as_series=False) == {"case": ["PiScanned", "PiSorted"], "n": [13, 24], "d": [0.5, 0.5]}
    sql = "SELECT sum(run) AS total, avg(run + 0.5) AS mean, sum(run) * 1.5 AS more FROM run"
    frame = sql_queries.select_rows(filled, sql).frame
    assert [str(dtype) for dtype in frame.dtypes] == ["Int64", "Float64", "Float64"], "in both databases"
    assert frame["more"][0] == frame["total"][0] * 1.5


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("3", 3),
        ("3.000", 3),
        ("1E+30", 1e30),
        ("Infinity", math.inf),
        ("-9223372036854775807", 1 - 2**63),
    ],
)
def test_a_decimal_is_a_whole_number_where_it_is_one(value: str, number: float) -> None:
    column = sql_queries._build_column("x", [Decimal(value), None])

    assert column.to_list() == [number, None]
    assert column.dtype.is_float() is isinstance(number, float)


def test_a_comment_at_the_end_and_names_that_come_twice_do_no_harm(filled: Database) -> None:
    frame = sql_queries.select_rows(filled, "SELECT 1 AS a, NULL AS b, 'x%s:y' AS c -- the end").frame

    assert frame.to_dicts() == [{"a": 1, "b": None, "c": "x%s:y"}]
    assert len(set(sql_queries.select_rows(filled, "SELECT 1 AS a, 2 AS a").frame.columns)) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "DELETE FROM run",
        "SELECT 1; DROP TABLE sample",
        "SELECT 1) AS x; DROP TABLE sample; SELECT (1",
        "ATTACH DATABASE 'other.db' AS other",
        "PRAGMA writable_schema=ON",
        "SET TRANSACTION READ WRITE",
        "COPY run TO PROGRAM 'cat'",
        "SELECT * FROM nowhere",
        "WITH gone AS (DELETE FROM sample RETURNING 1) SELECT * FROM gone",
        "SELECT 1\0",
    ],
)
def test_whatever_is_no_single_select_is_refused(filled: Database, sql: str) -> None:
    with pytest.raises(InputError) as error:
        sql_queries.select_rows(filled, sql)

    assert error.value.exit_code == 2
    assert sql_queries.select_rows(filled, "SELECT count(*) AS n FROM sample").frame["n"].to_list() == [48]


def test_a_select_without_end_is_ended(filled: Database) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

    with pytest.raises(RunFailedError, match="the query took too long"):
        sql_queries.select_rows(filled, endless, max_s=0.2)
