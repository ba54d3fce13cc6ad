"""Operators of the RAPIDS Accelerator for Apache Spark, and their time metrics."""

from __future__ import annotations

from workbench.speedup.engines.engine_table import Engine, Operator

_R = "rapids"
_OP = ("op time",)


def _own_named_operators(*names: str) -> dict[str, Operator]:
    return {f"Gpu{name}": Operator(_R, name, own_times=_OP) for name in names}


def _list_supported() -> frozenset[str]:
    """Operators and scan formats of the plugin's own support tables (release 26.08)."""
    from workbench.speedup.rapids_facts import list_supported_execs, list_supported_formats

    execs = {row.name.removesuffix("Exec") for row in list_supported_execs() if row.level in ("S", "PS", "TON")}
    scans = {f"Scan {row['Format'].lower()}" for row in list_supported_formats() if row["Direction"] == "read"}
    # Plans call a shuffle exchange "Exchange".
    return frozenset(execs | scans | ({"Exchange"} if "ShuffleExchange" in execs else set()))


ENGINE = Engine(
    _R,
    _own_named_operators(
        "Filter",
        "Project",
        "HashAggregate",
        "ObjectHashAggregate",
        "SortAggregate",
        "Sort",
        "Expand",
        "Generate",
        "Window",
        "WindowGroupLimit",
        "RunningWindow",
        "BroadcastHashJoin",
        "BroadcastNestedLoopJoin",
        "CartesianProduct",
        "LocalLimit",
        "GlobalLimit",
        "CollectLimit",
        "Sample",
        "Range",
    )
    | {
        # The plugin replaces sort merge joins by hash joins.
        "GpuShuffledHashJoin": Operator(_R, "SortMergeJoin", own_times=("op time", "build time", "join time")),
        "GpuShuffledSymmetricHashJoin": Operator(_R, "SortMergeJoin", own_times=("op time", "join time")),
        "GpuTopN": Operator(_R, "TakeOrderedAndProject", own_times=_OP),
        "GpuColumnarExchange": Operator(
            _R,
            "Exchange",
            "exchange",
            own_times=("RAPIDS shuffle write time", "shuffle write time"),
            read_times=("rs. deserialization time", "fetch wait time"),
        ),
        "GpuCoalesceBatches": Operator(_R, "CoalesceBatches", own_times=("concat batch time",)),
        "GpuShuffleCoalesce": Operator(_R, "Exchange", own_times=("op time", "concat batch time")),
        "GpuColumnarToRow": Operator(_R, "ColumnarToRow", "transition", own_times=_OP),
        "GpuRowToColumnar": Operator(_R, "RowToColumnar", "transition", own_times=_OP),
        "GpuBroadcastExchange": Operator(_R, "BroadcastExchange", "broadcast"),
        "GpuUnion": Operator(_R, "Union", "none"),
        "GpuCustomShuffleReader": Operator(_R, "AQEShuffleRead", "none"),
    },
    {
        "GpuScan": Operator(_R, "Scan", own_times=("buffer time", "GPU decode time", "filter time")),
        "GpuBatchScan": Operator(_R, "Scan", own_times=("buffer time", "GPU decode time", "filter time")),
        "Gpu": Operator(_R, "other accelerated", own_times=_OP),
    },
    list_supported=_list_supported,
)
