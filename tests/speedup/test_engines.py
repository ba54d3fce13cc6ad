from __future__ import annotations

import pytest

from workbench.speedup import engines
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
        ("Scan JDBCRelation(a) [numPartitions=1]", "spark", "Scan"),
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
    monkeypatch.setattr(engines, "ENGINES", (gluten, *engines.ENGINES))
    engines.classify_operator.cache_clear()
    engines.get_supported_operators.cache_clear()
    assert engines.classify_operator("FilterExecTransformer (4)").engine == "gluten"
    assert engines.classify_operator("CometFilter").engine == "comet"
    assert engines.get_supported_operators("gluten") == frozenset({"Filter"})
    monkeypatch.undo()
    engines.classify_operator.cache_clear()
    engines.get_supported_operators.cache_clear()
