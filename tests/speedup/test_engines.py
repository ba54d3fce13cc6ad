from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from polars.testing import assert_frame_equal

from tests.conftest import SAMPLES
from workbench.eventlog.engine_detection import classify_node
from workbench.eventlog.reader import read_event_logs
from workbench.speedup import engines
from workbench.speedup.attribution.time_pieces import Measured, measure_log_times
from workbench.speedup.engines import Engine, Operator


@pytest.mark.parametrize(
    ("node", "engine", "operator"),
    [
        ("WholeStageCodegen (12)", "spark", "WholeStageCodegen"),
        ("Scan parquet ", "spark", "Scan parquet"),
        ("Scan parquet spark_catalog.default.t", "spark", "Scan parquet"),
        ("BatchScan orders", "spark", "Scan"),
        ("Scan In-memory table orders_cached", "spark", "InMemoryTableScan"),
        ("InMemoryTableScan", "spark", "InMemoryTableScan"),
        ("Execute InsertIntoHadoopFsRelationCommand", "spark", "DataWritingCommand"),
        ("Scan JDBCRelation(a) [numPartitions=1]", "spark", "Scan jdbc"),
        ("Scan JDBCRelation((SELECT a FROM parquet) t)", "spark", "Scan jdbc"),
        ("Scan ExistingRDD", "spark", "Scan ExistingRDD"),
        ("Scan ExistingRDD Delta Table State #3 - file:/t", "spark", "Scan ExistingRDD"),
        ("Scan hive default.t", "spark", "Scan hive"),
        ("BatchScan lake.sales.orders", "spark", "Scan"),
        ("BatchScan", "spark", "Scan"),
        ("CometIcebergNativeScan", "comet", "Scan iceberg"),
        ("SortMergeJoin(skew=true)", "spark", "SortMergeJoin"),
        ("SortMergeJoin(skew=true) (3)", "spark", "SortMergeJoin"),
        ("ShuffledHashJoin(skew=true)", "spark", "ShuffledHashJoin"),
        ("BroadcastHashJoin(isNullAwareAntiJoin=true)", "spark", "BroadcastHashJoin"),
        ("GpuShuffledHashJoin(skew=true)", "rapids", "SortMergeJoin"),
        ("Execute InsertIntoHiveTable", "spark", "DataWritingCommand"),
        ("Execute CreateDataSourceTableAsSelectCommand", "spark", "DataWritingCommand"),
        ("Execute InsertIntoHoodieTableCommand", "spark", "InsertIntoHoodieTableCommand"),
        ("Execute MergeIntoCommandEdge", "spark", "MergeIntoCommand"),
        ("Execute GpuInsertIntoHadoopFsRelationCommand", "rapids", "DataWritingCommand"),
        ("GpuWriteFiles", "rapids", "WriteFiles"),
        ("CometNativeWrite", "comet", "DataWritingCommand"),
        ("CometScan [native_iceberg_compat] parquet ", "comet", "Scan parquet"),
        ("CometTakeOrderedAndProject", "comet", "TakeOrderedAndProject"),
        ("GpuScan parquet ", "rapids", "Scan parquet"),
        ("GpuShuffledHashJoin", "rapids", "SortMergeJoin"),
        ("GpuTopN", "rapids", "TakeOrderedAndProject"),
        ("GpuSomethingNew", "rapids", "other accelerated"),
        ("PhotonAgg", "photon", "HashAggregate"),
        ("PhotonScan parquet ", "photon", "Scan parquet"),
        ("PhotonShuffleExchangeSource", "photon", "Exchange"),
        ("PhotonSomethingNew", "photon", "other accelerated"),
        ("FilterExecTransformer", "gluten", "Filter"),
        ("ScanTransformer parquet spark_catalog.default.t", "gluten", "Scan parquet"),
        ("FlushableHashAggregateExecTransformer", "gluten", "HashAggregate"),
        ("VeloxColumnarToRow", "gluten", "ColumnarToRow"),
        ("SomethingNewExecTransformer", "gluten", "other accelerated"),
        ("Window", "spark", "Window"),
    ],
)
def test_a_node_is_told_by_its_name(node: str, engine: str, operator: str) -> None:
    found = engines.classify_operator(node)
    assert (found.engine, found.name) == (engine, operator)


@pytest.mark.parametrize(
    ("node", "text", "operator"),
    [
        ("BatchScan lake.t", "BatchScan lake.t[k#1L] lake.t (branch=null) [filters=, groupedBy=]", "Scan iceberg"),
        ("BatchScan", "BatchScan[k#1L] IcebergScan(table=lake.t, branch=null, type=struct<1: k>)", "Scan iceberg"),
        ("GpuBatchScan lake.t", "GpuBatchScan lake.t[k#1L] GpuSparkBatchQueryScan(table=lake.t)", "Scan iceberg"),
        ("BatchScan", "BatchScan[a#1] CSVScan DataFilters: [], Format: csv, Location: x", "Scan csv"),
        ("GpuBatchScan", "GpuBatchScan[a#1] GpuJsonScan DataFilters: [], Format: gpujson, Location: x", "Scan json"),
        ("BatchScan lake.iceberg.t", "BatchScan lake.iceberg.t[k#1L] class com.example.OtherScan", "Scan"),
        ("Scan parquet t", "FileScan parquet t[k#1L] Format: Parquet, Location: TahoeBatchFileIndex", "Scan parquet"),
        ("SortMergeJoin(skew=true)", "SortMergeJoin(skew=true) [a#1L], [b#2L], Inner", "SortMergeJoin"),
    ],
)
def test_the_text_of_a_node_says_what_its_name_does_not(node: str, text: str, operator: str) -> None:
    assert engines.refine_operator(engines.classify_operator(node), text).name == operator


WRITES = (
    "WriteFiles AppendData OverwriteByExpression OverwritePartitionsDynamic MergeRows WriteDelta ReplaceData"
    " CreateTableAsSelect AtomicCreateTableAsSelect AtomicReplaceTableAsSelect"
)


@pytest.mark.parametrize("node", WRITES.split())
def test_a_node_that_writes_is_work_under_its_own_name_on_both_engines(node: str) -> None:
    plain, fast = engines.classify_operator(node), engines.classify_operator(f"Gpu{node}")
    assert (plain.engine, plain.name, plain.kind) == ("spark", node, "plain")
    assert (fast.engine, fast.name) == ("rapids", node)
    assert [classify_node(name) for name in (node, f"Gpu{node}", f"Bolt{node}")] == ["spark", "rapids", "unknown"]


@pytest.mark.parametrize(
    "node",
    [
        *("AppendDataExecV1", "OverwriteByExpressionExecV1", "CacheTableAsSelect", "DynamicFileFilter"),
        *("MicroBatchScan", "ContinuousScan", "DataSourceV2Scan", "BatchScan lake.t"),
        *("Execute InsertIntoHoodieTableCommand", "Execute MergeIntoCommandEdge", "Execute CreateViewCommand"),
    ],
)
def test_a_node_that_only_spark_has_is_of_no_unknown_engine(node: str) -> None:
    assert classify_node(node) is None


@pytest.fixture
def measure(tmp_path: Path) -> Callable[[bytes], Measured]:
    def measure(content: bytes) -> Measured:
        (tmp_path / "log").write_bytes(content)
        return measure_log_times(read_event_logs(tmp_path / "log"), "spark", "log")

    return measure


def test_a_skewed_join_is_measured_as_the_join_that_it_is(measure: Callable[[bytes], Measured]) -> None:
    packed = (SAMPLES / "eventlogs" / "tpch_sf0.1.zstd").read_bytes()
    content = zstandard.ZstdDecompressor().stream_reader(packed).read()
    named, skewed = b'"nodeName":"SortMergeJoin"', b'"nodeName":"SortMergeJoin(skew=true)"'
    assert content.count(named) > 10
    plain, renamed = measure(content), measure(content.replace(named, skewed))
    assert_frame_equal(renamed.executions, plain.executions)
    assert_frame_equal(renamed.pieces, plain.pieces)


def test_support_is_that_of_the_engines_own_tables() -> None:
    rapids, comet = engines.get_supported_operators("rapids"), engines.get_supported_operators("comet")
    assert rapids is not None
    assert comet is not None
    assert {"Filter", "HashAggregate", "Exchange", "BroadcastHashJoin", "Scan parquet"} <= rapids & comet
    assert "CartesianProduct" in rapids - comet
    assert engines.classify_operator("Execute InsertIntoHadoopFsRelationCommand").name in rapids
    assert engines.get_supported_operators("spark") is None


def test_a_table_that_is_listed_classifies_its_own_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = {"FilterExecTransformer": Operator("gluten", "Filter", own_times=("time of filter",))}
    gluten = Engine("gluten", operators, {}, list_supported=lambda: frozenset({"Filter"}))
    monkeypatch.setattr(engines, "OPERATOR_TABLES", (gluten, *engines.OPERATOR_TABLES))
    engines.classify_operator.cache_clear()
    engines.get_supported_operators.cache_clear()
    assert engines.classify_operator("FilterExecTransformer (4)").engine == "gluten"
    assert engines.classify_operator("CometFilter").engine == "comet"
    assert engines.get_supported_operators("gluten") == frozenset({"Filter"})
    monkeypatch.undo()
    engines.classify_operator.cache_clear()
    engines.get_supported_operators.cache_clear()
