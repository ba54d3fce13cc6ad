"""Operators of Apache DataFusion Comet; each reports its own time."""

from __future__ import annotations

from workbench.speedup.engines.engine_table import Engine, Operator

_C = "comet"
_TIME = "total time (in ms) spent in this operator"
_JOIN = ("Total time for joining", "Total time for collecting build-side of join")


def _own_named_operators(*names: str) -> dict[str, Operator]:
    return {f"Comet{name}": Operator(_C, name, own_times=(_TIME,)) for name in names}


ENGINE = Engine(
    _C,
    _own_named_operators(
        "Filter",
        "Project",
        "HashAggregate",
        "Sort",
        "TakeOrderedAndProject",
        "Expand",
        "Window",
        "LocalLimit",
        "GlobalLimit",
        "CollectLimit",
        "Coalesce",
    )
    | {
        "CometUnion": Operator(_C, "Union", "none"),
        "CometBroadcastHashJoin": Operator(_C, "BroadcastHashJoin", own_times=_JOIN),
        "CometHashJoin": Operator(_C, "ShuffledHashJoin", own_times=_JOIN),
        "CometSortMergeJoin": Operator(_C, "SortMergeJoin", own_times=_JOIN),
        "CometExchange": Operator(
            _C,
            "Exchange",
            "exchange",
            own_times=("native shuffle writer time",),
            read_times=("decoding and decompression time", "fetch wait time"),
        ),
        "CometColumnarExchange": Operator(
            _C,
            "Exchange",
            "exchange",
            own_times=("shuffle write time",),
            read_times=("decoding and decompression time", "fetch wait time"),
        ),
        "CometBroadcastExchange": Operator(_C, "BroadcastExchange", "broadcast"),
        "CometColumnarToRow": Operator(_C, "ColumnarToRow", "transition"),
        "CometNativeColumnarToRow": Operator(_C, "ColumnarToRow", "transition"),
        "CometSparkRowToColumnar": Operator(_C, "RowToColumnar", "transition"),
        "CometSparkColumnarToColumnar": Operator(_C, "RowToColumnar", "transition"),
    },
    {
        "CometScan": Operator(_C, "Scan", own_times=("scan time",)),
        "CometBatchScan": Operator(_C, "Scan", own_times=("scan time",)),
        "CometNativeScan": Operator(_C, "Scan", own_times=("scan time",)),
    },
    # The operators of release 0.12.
    list_supported=lambda: frozenset(
        {
            "Scan parquet",
            "Filter",
            "Project",
            "HashAggregate",
            "ObjectHashAggregate",
            "Sort",
            "SortMergeJoin",
            "ShuffledHashJoin",
            "BroadcastHashJoin",
            "TakeOrderedAndProject",
            "Expand",
            "Window",
            "Union",
            "LocalLimit",
            "GlobalLimit",
            "CollectLimit",
            "Coalesce",
            "Exchange",
            "BroadcastExchange",
        }
    ),
)
