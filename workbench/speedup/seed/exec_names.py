"""Operators that the original treats alike, by their names in a plan."""

from __future__ import annotations

CODEGEN = "WholeStageCodegen"
REUSED = "ReusedExchange"
UDF_CHECK_SKIPPED = (
    "ArrowEvalPython",
    "AggregateInPandas",
    "FlatMapGroupsInPandas",
    "MapInPandas",
    "WindowInPandas",
    "PythonMapInArrow",
    "MapInArrow",
)
REMOVED = frozenset(
    {"GenerateBloomFilter", REUSED, "ColumnarToRow", "ResultQueryStage", "AdaptiveSparkPlan", "Subquery"}
)
IGNORED = frozenset(
    {
        "CollectLimit",
        "LocalTableScan",
        "SetCatalogAndNamespace",
        "ResultQueryStage",
        "Scan JDBCRelation",
        "Scan OneRowRelation",
        "CommandResult",
        "Subquery",
    }
    | {
        f"Execute {command}"
        for command in [
            "CreateViewCommand",
            "CreateTableCommand",
            "DropTableCommand",
            "CreateDatabaseCommand",
            "DropDatabaseCommand",
            "CreateTableAsSelectCommand",
            "CreateDataSourceTableAsSelectCommand",
            "SetCommand",
            "AddJarsCommand",
            "InsertIntoHadoopFsRelationCommand",
            "UpdateCommandEdge",
            "DeleteCommandEdge",
            "DescribeDeltaHistoryCommand",
            "ShowPartitionsDeltaCommand",
            "AlterTableRecoverPartitionsCommand",
            "CreateFunctionCommand",
            "DeleteCommand",
            "DescribeTableCommand",
            "RefreshTable",
            "RepairTableCommand",
            "ShowPartitionsCommand",
            "ClearCacheCommand",
            "OptimizeTableCommandEdge",
        ]
    }
)
# Operators that are supported when the table says so, whatever their text holds.
PLAIN = frozenset(
    [
        "AggregateInPandas",
        "ArrowEvalPython",
        "BroadcastExchange",
        "CartesianProduct",
        "Coalesce",
        "CollectLimit",
        "FlatMapGroupsInPandas",
        "GlobalLimit",
        "LocalLimit",
        "InMemoryTableScan",
        "MapInPandas",
        "PythonMapInArrow",
        "MapInArrow",
        "Range",
        "Sample",
        "SubqueryBroadcast",
        "Union",
        "WindowInPandas",
    ]
)
