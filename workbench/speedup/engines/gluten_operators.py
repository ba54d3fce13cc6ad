"""Operators of Apache Gluten with Velox.

Names of nodes are known from the project's documentation and source; its time metrics differ by release and are not
used, so that time is split by rows.
"""

from __future__ import annotations

from workbench.speedup.engines.engine_table import Engine, Operator

_G = "gluten"


def _transformers(*names: str) -> dict[str, Operator]:
    return {f"{name}ExecTransformer": Operator(_G, name) for name in names}


ENGINE = Engine(
    _G,
    _transformers(
        "Filter",
        "Project",
        "HashAggregate",
        "Sort",
        "Expand",
        "Generate",
        "Window",
        "WindowGroupLimit",
        "BroadcastHashJoin",
        "BroadcastNestedLoopJoin",
        "CartesianProduct",
        "ShuffledHashJoin",
        "SortMergeJoin",
        "TakeOrderedAndProject",
        "Sample",
        "Range",
    )
    | {
        "RegularHashAggregateExecTransformer": Operator(_G, "HashAggregate"),
        "FlushableHashAggregateExecTransformer": Operator(_G, "HashAggregate"),
        "LimitExecTransformer": Operator(_G, "LocalLimit"),
        "UnionExecTransformer": Operator(_G, "Union", "none"),
        "ColumnarUnion": Operator(_G, "Union", "none"),
        "InputIteratorTransformer": Operator(_G, "InputIteratorTransformer", "none"),
        "VeloxResizeBatches": Operator(_G, "CoalesceBatches"),
        "VeloxAppendBatches": Operator(_G, "CoalesceBatches"),
        "ColumnarExchange": Operator(_G, "Exchange", "exchange"),
        "ColumnarBroadcastExchange": Operator(_G, "BroadcastExchange", "broadcast"),
        "VeloxColumnarToRow": Operator(_G, "ColumnarToRow", "transition"),
        "RowToVeloxColumnar": Operator(_G, "RowToColumnar", "transition"),
    },
    {
        "WholeStageCodegenTransformer": Operator(_G, "WholeStageCodegenTransformer", "none"),
        "ScanTransformer": Operator(_G, "Scan"),
        "FileSourceScanExecTransformer": Operator(_G, "Scan"),
        "BatchScanExecTransformer": Operator(_G, "Scan"),
        "NativeFileScan": Operator(_G, "Scan"),
    },
)
