"""The session's keys dump ordinary actions, and nothing of the query is changed for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lore.local_spark import MARKS
from workbench import lore
from workbench.lore.trust import trust_check

KEY = "spark.rapids.sql.lore."
pytestmark = MARKS


@pytest.fixture
def keys(spark: Any) -> Iterator[Any]:
    def put(ids: str, path: Path) -> None:
        spark.conf.set(KEY + "idsToDump", ids)
        spark.conf.set(KEY + "dumpPath", str(path))

    yield put
    for name in ("idsToDump", "dumpPath", "tag.enabled"):
        spark.conf.unset(KEY + name)


def counted(spark: Any) -> Any:
    return spark.range(1000).selectExpr("id % 7 AS k").groupBy("k").count()


def test_actions_and_writes_are_dumped_but_not_into_a_path_in_use(spark: Any, keys: Any, tmp_path: Path) -> None:
    with lore.enable(spark) as watch:
        keys("2[*]", tmp_path / "a")
        rows = counted(spark).collect()
        # The keys are read when Spark tells of the action's end.
        watch.wait_for_dumps()
        keys("2[*]", tmp_path / "b")
        counted(spark).write.parquet(str(tmp_path / "out"))
        counted(spark).collect()
    # The dumps themselves are actions, too, and none of them is dumped.
    assert [list(one.folders) for one in watch.dumped] == [[2], [2]]
    assert ["the dump path is not empty" in problem for problem in watch.problems] == [True]
    found = trust_check.check_trust(tmp_path / "a" / "loreId-2")
    assert (len(rows), found.operator, found.inputs[0].n_rows) == (7, "HashAggregate", 1000)


def test_without_keys_or_with_ids_switched_off_nothing_is_dumped(spark: Any, keys: Any, tmp_path: Path) -> None:
    with lore.enable(spark) as watch:
        counted(spark).collect()
        watch.wait_for_dumps()
        keys("2[*]", tmp_path / "a")
        spark.conf.set(KEY + "tag.enabled", "false")
        counted(spark).collect()
    assert watch.dumped == []
    assert not (tmp_path / "a").exists()


def test_wrong_keys_and_failing_queries_are_kept_as_problems_and_commands_are_passed_over(
    spark: Any, keys: Any, tmp_path: Path
) -> None:
    with lore.enable(spark) as watch:
        keys("2", tmp_path / "a")
        counted(spark).collect()
        watch.wait_for_dumps()
        keys("2[*]", tmp_path / "b")
        spark.sql("CREATE OR REPLACE TEMP VIEW nothing AS SELECT 1 AS a")
        with pytest.raises(Exception, match="boom"):
            spark.sql("SELECT raise_error('boom') FROM range(3)").collect()
    assert watch.dumped == []
    assert len(watch.problems) == 2
    assert "2[*]" in watch.problems[0]
    assert "failed=True" in watch.problems[1]


def test_what_runs_after_the_watch_is_not_dumped(spark: Any, keys: Any, tmp_path: Path) -> None:
    with lore.enable(spark) as watch:
        pass
    keys("2[*]", tmp_path / "a")
    counted(spark).collect()
    watch.stop_watching()
    assert (watch.dumped, (tmp_path / "a").exists()) == ([], False)
