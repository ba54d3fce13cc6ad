"""A subtree of a plan is dumped as one operator: down to its scans, or to the exchanges of its stage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lore.local_spark import MARKS, dumped, verified
from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_folder import read_sidecar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS
# Joins, aggregates in two steps, subqueries at two places, an exchange that is used twice.
QUERY = """
WITH sums AS (SELECT a.k, sum(a.v) AS v, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k)
SELECT /*+ BROADCAST(b) */ b.name, x.v, y.n, round(x.v / (SELECT max(v) FROM a), 6) AS share
FROM sums x JOIN sums y ON x.k = y.k + 1 JOIN b ON b.k = x.k
WHERE x.v > (SELECT avg(v) FROM sums) - 100 AND x.n > 0
"""


@pytest.mark.parametrize(
    ("kind", "adaptive"),
    [
        ("scans", "true"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("scans", "false"), ("stage", "true"), ("stage", "false"))
        ),
    ],
)
def test_a_subtree_gives_the_answer_of_the_query(spark: SparkSession, tmp_path: Path, kind: str, adaptive: str) -> None:
    from workbench import lore

    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        frame = spark.sql(QUERY)
        rows = sorted(map(tuple, frame.collect()))
        tree = lore.tag(frame, labels=False)
        made = lore.dump(frame, {max(tree.nodes): None}, tmp_path / "q", tree=tree, subtree=kind)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    folder = tmp_path / "q" / f"loreId-{max(tree.nodes)}"
    assert list(made.folders) == [max(tree.nodes)]
    found = verified(spark, folder)
    assert found.passed, found.answer
    output = lore.open(folder).output
    assert output is not None
    assert sorted(output.rows()) == rows
    sidecar = read_sidecar(folder)
    assert sidecar.operator.startswith("Subtree of ")
    # No scan, path or lineage, as in a dump of one operator.
    assert b"file:" not in (folder / "plan.meta").read_bytes()
    if kind == "scans":
        ranges = [entry.n_rows for entry in sidecar.inputs]
        assert set(ranges) <= {300, 30, 1, 0} | set(range(1, 301))
        assert sum(n_rows in (300, 30) for n_rows in ranges) >= 4


def test_a_subtree_has_all_partitions_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="all partitions and columns"):
        dumped(spark.sql("SELECT k, sum(v) FROM a GROUP BY k"), "root", tmp_path / "q", [0], subtree="scans")
    with pytest.raises(ConfigError, match="after the run"):
        dumped(spark.sql("SELECT k, sum(v) FROM a GROUP BY k"), "root", tmp_path / "q", subtree="scans", mode="inline")


def test_a_subtree_with_a_part_that_cannot_be_replayed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT count(*) AS n, max(f) AS f FROM (SELECT input_file_name() AS f FROM a) WHERE f <> 'x'")
    with pytest.raises(ConfigError, match=r"loreId \d+\) in it: input_file_name"):
        dumped(frame, "root", tmp_path / "q", subtree="scans")


def test_an_operator_above_no_partitions_is_dumped(spark: SparkSession, tmp_path: Path) -> None:
    from workbench import lore

    frame = spark.sql("SELECT count(*) AS n, max(k) AS m FROM a WHERE false")
    for number in (1, 3):
        folder = tmp_path / f"q{number}" / f"loreId-{number}"
        lore.dump(frame, {number: None}, folder.parent)
        assert verified(spark, folder).passed


@pytest.mark.parametrize("column", ["v", "CAST(k AS BIGINT)"])
def test_a_subtree_whose_rows_hang_on_the_partition_is_refused_with_floats_too(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    from workbench import lore

    sums = spark.sql(f"SELECT k, sum({column}) AS s FROM a GROUP BY k")
    frame = sums.selectExpr("k", "s", "spark_partition_id() AS p", "monotonically_increasing_id() AS m")
    # Coalesced in the query to one partition, as AQE does with few rows.
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        tree = lore.tag(frame, labels=False)
        chosen = max(number for number, node in tree.nodes.items() if node.name == "HashAggregate")
        with pytest.raises(ConfigError, match="gives other rows alone than in the query"):
            lore.dump(frame, {chosen: None}, tmp_path / "q", tree=tree, subtree="scans")
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
