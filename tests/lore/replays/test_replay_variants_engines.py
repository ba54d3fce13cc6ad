"""Plain Spark against Comet: a ratio only where Comet's own operator ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lore.local_spark import dumped, local, lore_command
from workbench.lore.replays.operator_replay import ReplayResult
from workbench.lore.replays.replay_variants import engine_settings, variant_settings

ENGINE = ("--master", "local[2]", "--driver-memory", "1g", "--engine", "comet")


def test_plain_spark_needs_no_settings() -> None:
    assert engine_settings("spark") == {}
    assert variant_settings("spark", "spark") == {}


def test_an_engine_is_off_on_the_side_of_plain_spark() -> None:
    assert variant_settings("spark", "comet")["spark.comet.exec.enabled"] == "false"
    assert variant_settings("comet", "comet")["spark.comet.exec.enabled"] == "true"


@pytest.mark.network
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
class TestComet:
    """With the jar."""

    @pytest.fixture(scope="class")
    def folders(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
        home = tmp_path_factory.mktemp("comet")
        with local() as spark:
            spark.range(0, 400_000, 1, 2).selectExpr("id % 9999 AS k", "id AS v").createOrReplaceTempView("wide")
            join = spark.sql("SELECT x.v FROM wide x JOIN b ON x.k = b.k")
            exploded = spark.sql("SELECT k, explode(array(k, k + 1)) AS e FROM (SELECT /*+ REPARTITION(2) */ k FROM a)")
            yield {
                "join": dumped(join, "SortMergeJoin", home / "join"),
                "generate": dumped(exploded, "Generate", home / "generate"),
            }

    @pytest.fixture(scope="class")
    def accelerated(self, folders: dict[str, Path]) -> Any:
        return lore_command("replay", folders["join"], *ENGINE, "--repeat", "5", "--json")

    def test_a_sort_merge_join_runs_in_comet_and_gives_the_same_rows(self, accelerated: Any) -> None:
        assert accelerated.returncode == 0, accelerated.stderr
        found = ReplayResult.model_validate_json(accelerated.stdout)
        assert found.passed
        assert found.comparison is not None
        assert found.comparison["equal"]
        assert "CometSortMergeJoin" in found.plans["B"]
        assert "Comet" not in found.plans["A"]

    def test_the_ratio_comes_with_its_sides(self, accelerated: Any) -> None:
        found = ReplayResult.model_validate_json(accelerated.stdout)
        assert [(side["side"], side["accelerated"], side["n"]) for side in found.sides] == [
            ("A", None, 5),
            ("B", True, 5),
        ]
        positive = all(row["operator_s"] > 0 for row in found.timings)
        assert (found.ratio is not None) is positive
        assert (found.verdict is not None) is positive

    def test_an_operator_that_comet_leaves_to_spark_has_a_reason_and_no_ratio(self, folders: dict[str, Path]) -> None:
        done = lore_command("replay", folders["generate"], *ENGINE, "--repeat", "2")
        assert done.returncode == 1, done.stderr
        assert "PASS" in done.stdout, "plain Spark gave the expected rows"
        reason = next(line for line in done.stdout.splitlines() if line.startswith("not accelerated: "))
        assert len(reason) > len("not accelerated: ") + 10
        assert "A's time by B's" not in done.stdout
        assert "plan of B" in done.stdout
