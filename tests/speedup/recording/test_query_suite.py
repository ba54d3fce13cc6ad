"""Where queries come from: a file, a stream, a module, TPC-H; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import ConfigError, InputError
from workbench.speedup.recording import benchmark_data, query_suite

STREAM = """
-- start query 1 in stream 0 using template query96.tpl
select count(*) from store_sales where ss_item_sk = 1;
-- end query 1 in stream 0 using template query96.tpl

-- start query 2 in stream 0 using template query14.tpl and seed 2031708268
with a as (select 1) select * from a;
select 2
;
-- end query 2 in stream 0 using template query14.tpl
"""


def test_a_stream_names_queries_after_their_templates_and_numbers_the_parts() -> None:
    found = query_suite.parse_queries(STREAM)
    assert list(found) == ["query96", "query14_part1", "query14_part2"]
    assert found["query14_part1"] == "with a as (select 1) select * from a"
    assert found["query14_part2"] == "select 2"


def test_semicolons_in_texts_names_and_comments_end_no_statement() -> None:
    text = "-- name: a; b is a comment\nSELECT ';', \"x;y\", `c;d`, 'it''s;' /* ; */ -- ;\nFROM t; SELECT 2"
    with pytest.raises(InputError, match="not a name of a query"):
        query_suite._build_suite("x", query_suite.parse_queries(text), "x")
    found = query_suite.parse_queries(text.replace("a; b is a comment", "a"))
    assert list(found) == ["a", "query2"]
    assert found["a"].startswith("SELECT ';'")
    assert found["a"].endswith("FROM t")
    assert found["query2"] == "SELECT 2"


@pytest.mark.parametrize("text", ["", "-- only a comment", " ;; \n;", "/* open"])
def test_a_file_without_a_statement_has_no_query(text: str, tmp_path: Path) -> None:
    path = tmp_path / "none.sql"
    path.write_text(text)
    with pytest.raises(InputError, match="no queries"):
        query_suite.find_suite(str(path))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("-- name: a\nSELECT 1; -- name: a\nSELECT 2", "two queries of one name"),
        ("-- name: a\n-- name: b\nSELECT 1", "a name without a statement"),
        ("SELECT 1;\n" + STREAM, "a statement before the first query"),
        (STREAM + "-- start query 3 in stream 0 using template query1.tpl\n", "without a statement"),
        (STREAM + STREAM, "two queries of one name"),
    ],
)
def test_names_that_do_not_fit_are_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        query_suite.parse_queries(text)


def test_a_suite_written_as_sql_is_read_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tpch.sql"
    path.write_text(query_suite.Suite("tpch", benchmark_data.build_tpch_queries(10)).format_sql())
    assert query_suite.find_suite(str(path)).queries == benchmark_data.build_tpch_queries(10)


def test_tpch_has_22_queries_of_several_lines_that_name_every_table() -> None:
    found = benchmark_data.build_tpch_queries()
    assert list(found) == [f"q{number}" for number in range(1, 23)]
    assert all(text.count("\n") >= 3 and ";" not in text and "{" not in text for text in found.values())
    assert all(any(table in text for text in found.values()) for table in benchmark_data.TPCH_TABLES)


@pytest.mark.parametrize(("scale", "fraction"), [(0.01, "0.01"), (1, "0.0001"), (3000, "0.00000003333")])
def test_the_threshold_of_q11_shrinks_with_the_scale(scale: float, fraction: str) -> None:
    assert f"sum(value) * {fraction}" in benchmark_data.build_tpch_queries(scale)["q11"]


def test_a_module_gives_its_queries(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("QUERIES = {'a': 'SELECT 1;', 'b.2': 'SELECT 2'}")
    found = query_suite.find_suite(str(path))
    assert (found.name, found.queries) == ("mine", {"a": "SELECT 1", "b.2": "SELECT 2"})


@pytest.mark.parametrize("text", ["", "QUERIES = ['SELECT 1']", "QUERIES = {1: 'SELECT 1'}", "1 / 0"])
def test_a_module_without_queries_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(InputError, match="module"):
        query_suite.find_suite(str(path))


def test_modules_that_are_not_there_and_other_files_are_no_suites(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot load the module"):
        query_suite.find_suite("no_such_module_of_mine")
    with pytest.raises(ConfigError, match="not a suite"):
        query_suite.find_suite(str(tmp_path / "queries.json"))
    with pytest.raises(InputError, match="cannot read"):
        query_suite.find_suite(str(tmp_path / "queries.sql"))


def test_the_digest_tells_texts_names_and_order() -> None:
    digests = {
        query_suite.Suite("x", queries).sha256
        for queries in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "1"}, {"a": "12", "b": ""})
    }
    assert len(digests) == 4
