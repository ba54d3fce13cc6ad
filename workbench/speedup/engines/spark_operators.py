"""Spark's own operators; most report time only as part of a codegen span."""

from __future__ import annotations

from workbench.speedup.engines.engine_table import Engine, Operator

_S = "spark"
_BUILD = ("time in aggregation build",)
ENGINE = Engine(
    _S,
    {
        operator.name: operator
        for operator in (
            Operator(_S, "WholeStageCodegen", "none"),
            Operator(_S, "AdaptiveSparkPlan", "none"),
            Operator(_S, "AQEShuffleRead", "none"),
            Operator(_S, "CustomShuffleReader", "none"),
            Operator(_S, "InputAdapter", "none"),
            Operator(_S, "ReusedExchange", "none"),
            Operator(_S, "Subquery", "none"),
            Operator(_S, "ReusedSubquery", "none"),
            Operator(_S, "Union", "none"),
            Operator(_S, "ColumnarToRow", "transition"),
            Operator(_S, "RowToColumnar", "transition"),
            Operator(_S, "HashAggregate", span_times=_BUILD),
            Operator(_S, "ObjectHashAggregate", span_times=_BUILD),
            Operator(_S, "SortAggregate"),
            Operator(_S, "Sort", own_times=("sort time",)),
            Operator(_S, "ShuffledHashJoin", own_times=("time to build hash map",)),
            Operator(_S, "Exchange", "exchange", own_times=("shuffle write time",), read_times=("fetch wait time",)),
            Operator(_S, "BroadcastExchange", "broadcast"),
            Operator(_S, "SubqueryBroadcast", "broadcast"),
        )
    },
    {
        "Scan In-memory": Operator(_S, "InMemoryTableScan"),
        "Scan ": Operator(_S, "Scan", own_times=("scan time",)),
        "BatchScan ": Operator(_S, "Scan", own_times=("scan time",)),
        "FileScan ": Operator(_S, "Scan", own_times=("scan time",)),
        "Execute InsertInto": Operator(_S, "DataWritingCommand"),
    },
)
