"""Ids, shape and text of plans, on plans that Spark made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.lore.local_spark import MARKS
from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.physical_plan import PlanNode, PlanTree, check_same_shape
from workbench.lore.spark_bridge.spark_internals import CODEGEN_WRAPPERS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = MARKS

SUBQUERY = "SELECT k, (SELECT max(k) FROM b WHERE k > 3) AS m FROM a WHERE v > 3"
JOIN = "SELECT b.name, count(*) n FROM a JOIN b ON a.k = b.k GROUP BY b.name"
# Both sides shuffle the same rows by the same key, once.
REUSED = "WITH s AS (SELECT k, count(*) n FROM a GROUP BY k) SELECT x.n, y.n m FROM s x JOIN s y ON x.k = y.k"


@pytest.fixture
def adaptive(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    yield spark
    spark.conf.set("spark.sql.adaptive.enabled", "false")


def tree_of(spark: SparkSession, sql: str) -> PlanTree:
    return PlanTree.from_frame(spark.sql(sql))


def test_every_operator_comes_after_its_subqueries_and_these_before_its_children(spark: SparkSession) -> None:
    nodes = [node for node in tree_of(spark, SUBQUERY).root.iter_nodes() if node.lore_id is not None]
    assert [node.lore_id for node in nodes] == list(range(len(nodes)))
    owner = next(node for node in nodes if node.subqueries)
    inside = [node.lore_id for node in owner.subqueries[0].iter_nodes()]
    below = [node.lore_id for node in owner.children[0].iter_nodes()]
    assert inside == list(range(len(inside)))
    assert below == list(range(len(inside), len(inside) + len(below)))
    assert owner.lore_id == len(inside) + len(below)


def test_children_are_numbered_from_left_to_right_and_the_root_last(spark: SparkSession) -> None:
    tree = tree_of(spark, JOIN)
    join = next(node for node in tree.nodes.values() if node.name == "SortMergeJoin")
    left, right = join.children
    assert left.lore_id is not None
    assert right.lore_id is not None
    assert left.lore_id < right.lore_id < (join.lore_id or 0)
    assert tree.root.lore_id == max(tree.nodes)


def test_wrappers_of_code_generation_have_no_ids(spark: SparkSession) -> None:
    frame = spark.sql(JOIN)
    assert "*(1)" in frame._jdf.queryExecution().executedPlan().toString()
    assert not {node.kind for node in PlanTree.from_frame(frame).root.iter_nodes()} & set(CODEGEN_WRAPPERS)


def test_stages_of_aqe_are_looked_through_once_it_is_done(adaptive: SparkSession) -> None:
    frame = adaptive.sql(JOIN)
    assert PlanTree.from_frame(frame).provisional
    assert PlanTree.from_frame(frame).render_text().startswith("provisional")
    frame.collect()
    tree = PlanTree.from_frame(frame)
    assert not tree.provisional
    kinds = {node.kind for node in tree.root.iter_nodes()}
    assert "ShuffleExchangeExec" in kinds
    assert not [kind for kind in kinds if kind.endswith("QueryStageExec") or kind == "AdaptiveSparkPlanExec"]


@pytest.mark.parametrize("aqe", ["true", "false"])
def test_a_reused_exchange_is_a_reference_without_an_id(spark: SparkSession, aqe: str) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", aqe)
    try:
        frame = spark.sql(REUSED)
        frame.collect()
        tree = PlanTree.from_frame(frame)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    references = [node for node in tree.root.iter_nodes() if node.lore_id is None]
    assert [node.kind for node in references] == ["ReusedExchangeExec"]
    assert references[0].children == []
    assert tree.render_text().count("[reused]") == 1
    assert sum(node.kind == "ShuffleExchangeExec" for node in tree.root.iter_nodes()) == 1


@pytest.mark.parametrize("sql", [SUBQUERY, JOIN, REUSED])
def test_the_same_query_has_the_same_hash_each_time(spark: SparkSession, sql: str) -> None:
    first, second = tree_of(spark, sql), tree_of(spark, sql)
    assert first.plan_shape() == second.plan_shape()
    assert first.plan_hash == second.plan_hash


def test_other_queries_have_other_hashes(spark: SparkSession) -> None:
    other = JOIN.replace("count(*)", "sum(a.v)")
    queries = [SUBQUERY, JOIN, other, REUSED, *("SELECT k + 1 AS x, v FROM a", "SELECT v + 1 AS x, v FROM a")]
    assert len({tree_of(spark, sql).plan_hash for sql in queries}) == len(queries)


def test_a_changed_plan_is_refused_with_the_difference(spark: SparkSession) -> None:
    expected = tree_of(spark, JOIN).plan_shape()
    check_same_shape(expected, tree_of(spark, JOIN))
    with pytest.raises(ConfigError) as refused:
        check_same_shape(expected, tree_of(spark, JOIN + " HAVING n > 1"))
    text = str(refused.value)
    assert "ids mean other operators" in text
    added = [line.strip() for line in text.splitlines() if line.strip().startswith("+")]
    assert any("Filter" in line for line in added)


def test_an_unknown_id_is_refused_with_those_there_are(spark: SparkSession) -> None:
    tree = tree_of(spark, "SELECT k + 1 AS x FROM a")
    with pytest.raises(ConfigError, match=rf"no operator has this id(.|\n)*0 to {max(tree.nodes)}"):
        tree.find_node(99)


def test_locations_of_files_are_in_no_text(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("hidden") / "canary.parquet"
    spark.sql("SELECT * FROM b").write.parquet(str(folder))
    tree = PlanTree.from_frame(spark.read.parquet(str(folder)).filter("k > 3"))
    assert "canary" in spark.read.parquet(str(folder))._jdf.queryExecution().toString()
    assert "canary" not in tree.render_text(width=10_000) + tree.plan_shape()


def test_long_lines_are_cut_to_the_width(spark: SparkSession) -> None:
    columns = ", ".join(f"k + {number} AS column_{number}" for number in range(20))
    text = tree_of(spark, f"SELECT {columns} FROM a").render_text(width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" in text


def test_where_a_command_writes_and_how_a_function_is_called_are_no_part_of_the_shape(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import DataFrame

    typed = [PlanTree.from_frame(DataFrame(spark.table("a")._jdf.toJSON().toDF(), spark)) for _ in range(2)]
    assert typed[0].plan_shape() == typed[1].plan_shape()
    for number in range(2):
        spark.sql(f"CREATE TABLE t{number} (k BIGINT) USING parquet LOCATION '{tmp_path / str(number)}'")
    written = [PlanTree.from_frame(spark.sql(f"INSERT INTO t{number} SELECT k FROM a")) for number in range(2)]
    assert str(tmp_path) not in written[0].render_text(width=5000)
    assert "(path)" in written[0].render_text(width=5000)


def test_what_spark_cuts_short_is_cut_alike() -> None:
    text = "FileScan [a#0] Batched: true, DataFilters: [(a#0 > 3), (..., Format: Parquet, ReadSchema: struct<a..."
    nodes = [PlanNode(1, "FileSourceScanExec", cut, None) for cut in (text, text.replace("(...", "(b#1..."))]
    first, second = (PlanTree(node, False, None).plan_shape() for node in nodes)  # type: ignore[arg-type]
    assert first == second
    assert "Batched: true, DataFilters: ..., Format: Parquet, ReadSchema: ..." in first
