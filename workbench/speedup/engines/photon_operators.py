"""Operators of Databricks' Photon; each reports its own time ("exclusive time")."""

from __future__ import annotations

from workbench.speedup.engines.engine_table import Engine, Operator

_P = "photon"
_TIME = ("exclusive time",)


def _own_named_operators(*names: str) -> dict[str, Operator]:
    return {f"Photon{name}": Operator(_P, name, own_times=_TIME) for name in names}


ENGINE = Engine(
    _P,
    _own_named_operators(
        "Filter",
        "Project",
        "Sort",
        "Expand",
        "Generate",
        "Window",
        "BroadcastHashJoin",
        "BroadcastNestedLoopJoin",
        "ShuffledHashJoin",
        "SortMergeJoin",
        "LocalLimit",
        "GlobalLimit",
    )
    | {
        "PhotonAgg": Operator(_P, "HashAggregate", own_times=_TIME),
        "PhotonGroupingAgg": Operator(_P, "HashAggregate", own_times=_TIME),
        "PhotonTopK": Operator(_P, "TakeOrderedAndProject", own_times=_TIME),
        "PhotonUnion": Operator(_P, "Union", "none"),
        "PhotonShuffleExchangeSink": Operator(_P, "Exchange", "exchange", own_times=_TIME),
        # The reading half is a node of its own, in the reading stage.
        "PhotonShuffleExchangeSource": Operator(_P, "Exchange", own_times=_TIME),
        "PhotonBroadcastExchange": Operator(_P, "BroadcastExchange", "broadcast"),
        "PhotonShuffleMapStage": Operator(_P, "PhotonShuffleMapStage", "none"),
        "PhotonResultStage": Operator(_P, "PhotonResultStage", "none"),
        "PhotonRowToColumnar": Operator(_P, "RowToColumnar", "transition"),
        "PhotonColumnarToRow": Operator(_P, "ColumnarToRow", "transition"),
    },
    {"PhotonScan": Operator(_P, "Scan", own_times=_TIME)},
)
