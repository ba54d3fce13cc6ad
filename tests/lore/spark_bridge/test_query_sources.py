"""Where queries come from, and what a user reads when one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.lore.local_spark import MARKS
from workbench.core.errors import ConfigError, InputError
from workbench.lore.spark_bridge.query_sources import MAX_SQL_BYTES, load_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = """
PLUS = 5

def plus(number):
    return number + PLUS

def query(spark):
    return spark.table("t").where("k > 1")

def with_python(spark):
    from pyspark.sql.functions import udf
    return spark.table("t").select(udf(plus, "long")("k").alias("x"))

def no_frame(spark):
    return 1

def fails(spark):
    raise ValueError("not today\\nand not tomorrow")

def wrong_sql(spark):
    return spark.sql("SELECT nope FROM t")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "queries.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Tables in a folder with a blank in its name."""
    folder = tmp_path / "my tables"
    folder.mkdir()
    pl.DataFrame({"k": [1, 2, 3]}).write_parquet(folder / "t.parquet")
    (folder / "u.parquet").mkdir()
    pl.DataFrame({"k": [1]}).write_parquet(folder / "u.parquet" / "part-0.parquet")
    pl.DataFrame({"k": [7], "name": ["x"]}).write_csv(folder / "c.csv")
    (folder / "j.jsonl").write_text('{"k": 9}\n')
    return folder


def test_sql_may_be_given_as_text_or_in_a_file_with_a_semicolon(tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("SELECT 1;\n")
    assert load_query(str(file), None).text == "SELECT 1"
    assert load_query(None, "SELECT 1").text == "SELECT 1"


def test_a_script_s_function_is_called_query_unless_it_is_named(script: Path) -> None:
    assert (load_query(str(script), None).script, load_query(str(script), None).function) == (script, "query")
    assert load_query(f"{script}:fails", None).function == "fails"


@pytest.mark.parametrize(
    ("source", "sql", "message"),
    [
        (None, None, "give one query"),
        ("q.sql", "SELECT 1", "give one query"),
        ("nowhere.sql", None, r"no such file(.|\n)*nowhere\.sql"),
        ("nowhere.py:query", None, r"no such file(.|\n)*nowhere\.py"),
    ],
)
def test_none_two_and_missing_queries_are_refused(source: str | None, sql: str | None, message: str) -> None:
    with pytest.raises((ConfigError, InputError), match=message) as refused:
        load_query(source, sql)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("content", [b"", b"   ;\n", b"SELECT '\xff\xfe'", b"-" * (MAX_SQL_BYTES + 1)])
def test_a_file_that_holds_no_query_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "q.sql"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"q\.sql"):
        load_query(str(file), None)


@pytest.mark.parametrize("view", ["bad", "=path", "1x=path", "a b=path", "x="])
def test_a_view_is_a_name_and_a_path(view: str) -> None:
    with pytest.raises(ConfigError, match=r"not a view(.|\n)*NAME=PATH"):
        load_query(None, "SELECT 1", [view])


def test_data_gives_a_view_for_each_parquet_and_views_by_name_win(data: Path) -> None:
    views = load_query(None, "SELECT 1", ["t=elsewhere.parquet"], str(data)).views
    assert views == {"t": "elsewhere.parquet", "u": str(data / "u.parquet")}


def test_a_folder_without_tables_or_none_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no Parquet"):
        load_query(None, "SELECT 1", [], str(tmp_path))
    with pytest.raises(InputError, match=r"no such folder(.|\n)*--view NAME=URL"):
        load_query(None, "SELECT 1", [], "s3a://bucket/tables")


class TestInSpark:
    """What needs a session."""

    pytestmark = MARKS

    def test_tables_of_every_format_are_read(self, spark: SparkSession, data: Path) -> None:
        views = [f"c={data}/c.csv", f"j={data}/j.jsonl"]
        sql = "SELECT t.k, u.k, c.k, c.name, j.k FROM t JOIN u ON t.k = u.k CROSS JOIN c CROSS JOIN j"
        assert [tuple(row) for row in load_query(None, sql, views, str(data)).to_frame(spark).collect()] == [
            (1, 1, 7, "x", 9)
        ]

    def test_functions_of_a_script_run_on_executors(self, spark: SparkSession, script: Path, data: Path) -> None:
        asked = load_query(f"{script}:with_python", None, [], str(data))
        assert sorted(row["x"] for row in asked.to_frame(spark).collect()) == [6, 7, 8]
        assert load_query(str(script), None, [], str(data)).to_frame(spark).count() == 2

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            ("SELEC 1", "Spark cannot analyze this query(.|\\n)*PARSE_SYNTAX_ERROR"),
            ("SELECT nope FROM t", "Spark cannot analyze this query(.|\\n)*UNRESOLVED_COLUMN"),
            ("SELECT 1 FROM nope", "Spark cannot analyze this query(.|\\n)*TABLE_OR_VIEW_NOT_FOUND"),
        ],
    )
    def test_sql_that_spark_refuses_is_told_in_a_line(
        self, spark: SparkSession, data: Path, sql: str, message: str
    ) -> None:
        with pytest.raises(InputError, match=message) as refused:
            load_query(None, sql, [], str(data)).to_frame(spark)
        assert len(str(refused.value).splitlines()) == 4

    @pytest.mark.parametrize("path", ["nowhere.parquet", "q.csv/no", "broken.parquet"])
    def test_a_table_that_cannot_be_read_is_named(self, spark: SparkSession, tmp_path: Path, path: str) -> None:
        (tmp_path / "broken.parquet").write_bytes(b"no parquet at all")
        with pytest.raises(InputError, match=r"a table cannot be read(.|\n)*--view bad"):
            load_query(None, "SELECT 1", [f"bad={tmp_path / path}"]).to_frame(spark)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            ("nope", "no such function(.|\\n)*fails, no_frame, plus, query"),
            ("no_frame", "does not return a DataFrame(.|\\n)*int"),
            ("fails", "the function fails(.|\\n)*ValueError: not today\n  do: "),
            ("wrong_sql", "the function fails(.|\\n)*UNRESOLVED_COLUMN"),
        ],
    )
    def test_a_function_that_gives_no_query_is_told(
        self, spark: SparkSession, script: Path, data: Path, function: str, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            load_query(f"{script}:{function}", None, [], str(data)).to_frame(spark)

    @pytest.mark.parametrize("text", ["import nothing_of_the_kind", "def query(:", "1 / 0", "raise SystemExit(0)"])
    def test_a_script_that_does_not_load_is_told(self, spark: SparkSession, tmp_path: Path, text: str) -> None:
        script = tmp_path / "broken.py"
        script.write_text(text)
        with pytest.raises(InputError, match=r"the script fails(.|\n)*broken\.py"):
            load_query(str(script), None).to_frame(spark)
