"""A session that stays: many replays on one Spark, and an operator as a function of rows that are changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.lore.local_spark import MARKS, dumped, local, lore_session

pytestmark = MARKS
Answers = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A sort merge join over three partitions, a window, and a join whose table is broadcast."""
    home = tmp_path_factory.mktemp("kept")
    with local() as spark:
        queries = {
            "join": ("SELECT a.k, a.v, b.name, map('m', a.k) m FROM a JOIN b ON a.k = b.k", "SortMergeJoin"),
            "window": ("SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) r FROM a", "Window"),
            "broadcast": ("SELECT /*+ BROADCAST(b) */ a.v, b.name FROM a JOIN b ON a.k = b.k", "BroadcastHashJoin"),
            "failing": (
                "SELECT k, IF(v < 1e6, k, CAST(raise_error(concat('too large: ', v)) AS BIGINT)) t "
                "FROM (SELECT /*+ REPARTITION(2) */ * FROM a)",
                "root",
            ),
        }
        yield {name: dumped(spark.sql(sql), operator, home / name) for name, (sql, operator) in queries.items()}


@pytest.fixture(scope="module")
def rows(folders: dict[str, Path]) -> dict[str, pl.DataFrame]:
    from workbench import lore

    return {name: lore.open(folder).inputs["input-0"] for name, folder in folders.items()}


def change_keys(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(k=(pl.col("k") + 1) % 40)


@pytest.fixture(scope="module")
def answers(
    folders: dict[str, Path], rows: dict[str, pl.DataFrame], tmp_path_factory: pytest.TempPathFactory
) -> Answers:
    """All lines are those of one process."""
    home = tmp_path_factory.mktemp("rows")
    changed = {
        "moved": change_keys(rows["join"]),
        "fewer": change_keys(rows["join"]).head(17),
        "window": change_keys(rows["window"]),
        "wrong": rows["join"].select("k"),
        "text": rows["join"].with_columns(k=pl.lit("x")),
        "large": rows["failing"].with_columns(v=pl.lit(1e7)),
    }
    for name, table in changed.items():
        table.write_parquet(home / f"{name}.parquet")
    join, window, broadcast, failing = (folders[name] for name in ("join", "window", "broadcast", "failing"))
    lines = [
        ["verify", join, window, home / "none", broadcast],
        ["run", join, "--out", home / "same.out"],
        ["run", join, "--input", f"input-0={home / 'moved.parquet'}", "--out", home / "moved.out"],
        ["run", join, "--input", f"input-0={home / 'fewer.parquet'}", "--out", home / "fewer.out"],
        ["run", window, "--input", f"input-0={home / 'window.parquet'}", "--out", home / "window.out"],
        ["run", broadcast, "--input", f"input-0={home / 'moved.parquet'}", "--out", home / "broadcast.out"],
        ["run", failing, "--input", f"input-0={home / 'large.parquet'}"],
        ["run", join, "--input", f"input-0={home / 'wrong.parquet'}"],
        ["run", join, "--input", f"input-0={home / 'text.parquet'}"],
        ["run", join, "--input", f"input-9={home / 'moved.parquet'}"],
        ["juggle", join],
        ["verify", join],
    ]
    return [{**one, "home": home} for one in lore_session(lines)]


def test_several_dumps_are_verified_on_one_spark_and_a_refused_one_ends_none(answers: Answers) -> None:
    replays = answers[0]["document"]["replays"]
    assert [one.get("passed") for one in replays] == [True, True, None, True]
    assert "there is no dump" in replays[2]["refused"]
    assert answers[0]["exit_code"] == 2


def test_the_operator_over_the_rows_of_the_dump_gives_the_output_of_the_dump(
    answers: Answers, folders: dict[str, Path]
) -> None:
    from workbench import lore

    output = lore.open(folders["join"]).output
    assert output is not None
    assert_frame_equal(pl.read_parquet(answers[1]["home"] / "same.out"), output)


@pytest.mark.parametrize("name", ["moved", "fewer"])
def test_changed_keys_meet_their_match_in_other_partitions(
    name: str, answers: Answers, rows: dict[str, pl.DataFrame]
) -> None:
    table = change_keys(rows["join"])
    table = table.head(17) if name == "fewer" else table
    names = pl.DataFrame({"k": range(30), "name": [f"name{number}" for number in range(30)]})
    expected = table.join(names, on="k").select("v", "name").sort("v", "name")
    found = pl.read_parquet(answers[0]["home"] / f"{name}.out")
    assert found.select("v", "name").sort("v", "name").equals(expected)


def test_a_window_over_changed_keys_sorts_and_groups_them_anew(answers: Answers, rows: dict[str, pl.DataFrame]) -> None:
    table = change_keys(rows["window"])
    expected = table.with_columns(r=pl.col("v").rank("ordinal").over("k").cast(pl.Int32)).sort("k", "v")
    found = pl.read_parquet(answers[0]["home"] / "window.out")
    assert found.select("k", "v", "r").sort("k", "v").equals(expected.select("k", "v", "r"))


def test_rows_of_a_broadcast_join_are_changed_too(answers: Answers, rows: dict[str, pl.DataFrame]) -> None:
    assert answers[5]["document"]["n_rows"] == change_keys(rows["join"]).filter(pl.col("k") < 30).height


def test_an_operator_that_fails_on_changed_rows_says_so(answers: Answers) -> None:
    assert answers[6]["exit_code"] == 1
    assert "too large: 1.0E7" in answers[6]["document"]["failure"]


@pytest.mark.parametrize(
    ("line", "message"), [(7, "other columns"), (8, "does not fit the type"), (9, "no such input"), (10, "juggle")]
)
def test_rows_and_lines_that_do_not_fit_are_refused_and_the_session_goes_on(
    line: int, message: str, answers: Answers
) -> None:
    assert answers[line]["exit_code"] == 2
    assert message in answers[line]["message"]
    assert answers[-1]["document"]["passed"]
