"""Settings under comparison: each of many kinds is compared or refused, none is called equal without being read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lore.local_spark import MARKS, dumped
from workbench.core.errors import ConfigError
from workbench.lore.replays.replay_variants import ComparedSettings, ComparedSide, check_settings_are_read
from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from workbench.lore.spark_bridge.spark_internals import Bridge

pytestmark = MARKS

TWO = "(SELECT /*+ REPARTITION(2) */ * FROM a)"
QUERIES = {
    "join": ("SELECT b.name, a.v FROM a JOIN b ON a.k = b.k", "SortMergeJoin"),
    "filter": ("SELECT * FROM a WHERE CAST(s AS INT) IS NULL AND CAST(s AS TIMESTAMP) IS NULL", "Filter"),
    "map": (f"SELECT map_from_arrays(array(k, k + 1), array(v, v)) AS m FROM {TWO}", "root"),
    "sort": ("SELECT * FROM a ORDER BY v", "Sort"),
    "dates": (f"SELECT to_timestamp(s, 'yyyy-MM-dd') AS t FROM {TWO}", "root"),
}
# Planning-time, run-time, misspelt and of an engine, with what the operator of a query makes of each.
PLANTED = [
    ("filter", "spark.sql.ansi.enabled", "true", "decided at planning"),
    ("filter", "spark.sql.session.timeZone", "UTC", "decided at planning"),
    ("filter", "spark.sql.caseSensitive", "true", "decided at planning"),
    ("join", "spark.sql.autoBroadcastJoinThreshold", "1g", "decided at planning"),
    ("join", "spark.sql.adaptive.enabled", "true", "decided at planning"),
    ("join", "spark.sql.shuffle.partitions", "7", "decided at planning"),
    ("join", "spark.sql.join.preferSortMergeJoin", "false", "decided at planning"),
    ("join", "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold", "2", None),
    ("join", "spark.sql.codegen.wholeStage", "false", None),
    ("sort", "spark.sql.sort.enableRadixSort", "false", None),
    ("join", "spark.sql.sort.enableRadixSort", "false", "decided at planning"),
    ("map", "spark.sql.mapKeyDedupPolicy", "LAST_WIN", None),
    ("dates", "spark.sql.legacy.timeParserPolicy", "LEGACY", None),
    ("join", "spark.sql.shufle.partitions", "7", "spark.sql.shuffle.partitions"),
    ("join", "spark.sql.sort.enableradixsort", "false", "spark.sql.sort.enableRadixSort"),
    ("join", "spark.comet.enabled", "true", "Comet"),
    ("join", "spark.rapids.sql.enabled", "true", "RAPIDS"),
    ("join", "spark.hadoop.fs.s3a.threads.max", "3", "the same on both sides"),
    ("join", "spark.sql.shuffle.partitions", "3", "the same value on both sides"),
    ("join", "spark.sql.codegen.wholeStage", "TRUE", "the same value on both sides"),
]


@pytest.fixture(scope="module")
def folders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("planted")
    return {name: dumped(spark.sql(sql), operator, home / name) for name, (sql, operator) in QUERIES.items()}


def build_side(spark: SparkSession, folder: Path, reader: Bridge, confs: dict[str, str]) -> ComparedSide:
    from workbench.lore.dumps.dump_store import DumpStore
    from workbench.lore.replays.replay_variants import scan_inputs
    from workbench.lore.spark_bridge import replay_session
    from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator, rebuild_operator
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    sidecar, child = trust_check.check_trust(folder), spark.newSession()
    replay_session.apply_dump_settings(child, sidecar, confs)
    bridge, plan = connect_bridge(child), (folder / "plan.meta").read_bytes()

    def rebuild() -> RebuiltOperator:
        return rebuild_operator(DumpStore(bridge, str(folder)), sidecar, plan, bridge, reader=reader)

    made = rebuild()
    return ComparedSide(bridge, rebuild, lambda: scan_inputs(made))


def check_planted(spark: SparkSession, folder: Path, confs_a: dict[str, str], confs_b: dict[str, str]) -> None:
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    settings, reader = ComparedSettings({}, confs_a, confs_b), connect_bridge(spark.newSession())
    settings.check_keys(reader)
    a, b = (build_side(spark, folder, reader, confs) for confs in (confs_a, confs_b))
    check_settings_are_read(settings, a, b, dump=build_side(spark, folder, reader, {}).bridge, operator="it")


# One of each kind in `make test`; the others, and both directions, in breadth.
@pytest.mark.parametrize(
    ("query", "key", "value", "refusal"),
    [pytest.param(*one, marks=() if number % 3 == 0 else pytest.mark.slow) for number, one in enumerate(PLANTED)],
)
def test_a_setting_is_compared_only_where_the_operator_reads_it(
    spark: SparkSession, folders: dict[str, Path], query: str, key: str, value: str, refusal: str | None
) -> None:
    for confs_a, confs_b in (({}, {key: value}), ({key: value}, {})):
        if refusal is None:
            check_planted(spark, folders[query], confs_a, confs_b)
            continue
        with pytest.raises(ConfigError) as raised:
            check_planted(spark, folders[query], confs_a, confs_b)
        assert refusal in str(raised.value)
        assert key in str(raised.value)


def test_one_setting_that_is_read_does_not_hide_another_one(spark: SparkSession, folders: dict[str, Path]) -> None:
    confs = {"spark.sql.codegen.wholeStage": "false", "spark.sql.ansi.enabled": "true"}
    with pytest.raises(ConfigError, match=r"ansi") as raised:
        check_planted(spark, folders["join"], {}, confs)
    assert "wholeStage" not in str(raised.value)


def test_what_reading_the_files_reads_too_is_compared(spark: SparkSession, folders: dict[str, Path]) -> None:
    confs = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    check_planted(spark, folders["join"], {}, confs)
    with pytest.raises(ConfigError, match=r"parquet\.enableVectorizedReader"):
        check_planted(spark, folders["join"], {}, {"spark.sql.parquet.enableVectorizedReader": "false"})


def test_the_same_settings_on_both_sides_are_a_control(spark: SparkSession, folders: dict[str, Path]) -> None:
    confs = {"spark.sql.codegen.wholeStage": "false"}
    check_planted(spark, folders["join"], confs, confs)


def test_spark_is_left_as_it_was(spark: SparkSession, folders: dict[str, Path]) -> None:
    from workbench.lore.spark_bridge.replay_session import find_entry, watch_settings
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    bridge = connect_bridge(spark)
    entry = find_entry(bridge, "spark.sql.shuffle.partitions")
    before = entry.valueConverter()
    with watch_settings(bridge, {"spark.sql.shuffle.partitions": "3"}) as watch:
        watch.forget_reads()
        assert watch.list_read_keys() == []
        spark.conf.get("spark.sql.shuffle.partitions")
        spark.sql("SELECT k, count(*) FROM a GROUP BY k").collect()
        assert watch.list_read_keys() == ["spark.sql.shuffle.partitions"]
    assert entry.valueConverter().equals(before)


def test_the_rows_of_a_dump_are_tables_with_the_names_of_the_query(
    spark: SparkSession, folders: dict[str, Path]
) -> None:
    from workbench import lore

    opened = lore.open(folders["join"])
    assert list(opened.inputs) == ["input-0", "input-1"]
    assert opened.inputs["input-0"].height == 300
    assert set(opened.inputs["input-0"].columns) == {"k", "v"}
    assert opened.output is not None
    assert opened.output.columns == ["k", "v", "k (3)", "name"]
    rows = opened.output.select("name", "v").rows()
    assert sorted(rows) == sorted(map(tuple, spark.sql(QUERIES["join"][0]).collect()))
    with pytest.raises(ConfigError, match="no such input"):
        opened.inputs["input-2"]


def test_a_misspelt_setting_of_a_query_is_refused_and_keys_of_others_are_not(spark: SparkSession) -> None:
    from workbench.lore.spark_bridge.replay_session import refuse_misspelt_keys
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    bridge = connect_bridge(spark)
    others = ["spark.sql.catalog.mine.type", "spark.sql.iceberg.vectorization.enabled", "spark.my.key", "spark.sql.x"]
    refuse_misspelt_keys(bridge, [*others, "spark.sql.shuffle.partitions", "spark.driver.memory"])
    for key in ("spark.sql.shufle.partitions", "spark.sql.adaptive.enable", "spark.sql.sesion.timeZone"):
        with pytest.raises(ConfigError, match="Spark has no such setting"):
            refuse_misspelt_keys(bridge, [*others, key])
