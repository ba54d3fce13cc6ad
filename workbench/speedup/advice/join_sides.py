"""Joins that sort and shuffle both sides, with the size of the side that could be broadcast instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.engines import strip_suffix

_SHUFFLED_JOINS = ("SortMergeJoin", "ShuffledHashJoin")
# Types of joins by which sides may be the broadcast one; a full outer join has none. Source: Spark's own rule,
# spark.apache.org/docs/latest/sql-performance-tuning.html
_ANY, _RIGHT, _LEFT = ("Inner", "Cross"), ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin"), ("RightOuter",)


@dataclass(frozen=True)
class JoinSide:
    """The smaller side of a shuffled join that may be broadcast: bytes of its rows as shuffled."""

    sql_id: int
    node_id: int
    size_bytes: int


def list_small_sides(facts: EventLogFacts) -> Iterator[JoinSide]:
    """Shuffled joins of the final plans whose sides are shuffled just for them. `facts`: Of one log."""
    sizes = {
        (sql_id, node_id): total
        for sql_id, node_id, total in facts.node_metrics.filter(
            pl.col("metric_name") == "data size", pl.col("node_name").str.starts_with("Exchange"), pl.col("total") > 0
        )
        .select("sql_id", "node_id", "total")
        .iter_rows()
    }
    for (sql_id,), plan in facts.plan_nodes.filter("is_final").group_by("sql_id", maintain_order=True):
        rows = {row["node_id"]: row for row in plan.to_dicts()}
        children: dict[int, list[int]] = {}
        for node_id, row in sorted(rows.items()):
            for parent in row["parent_ids"]:
                children.setdefault(parent, []).append(node_id)
        for node_id, row in rows.items():
            sides = children.get(node_id, [])
            if strip_suffix(row["node_name"]) not in _SHUFFLED_JOINS or len(sides) != 2:
                continue
            exchanges = [_find_exchange(side, rows, children) for side in sides]
            allowed = [
                sizes[sql_id, exchange]
                for exchange, kinds in zip(exchanges, ((*_ANY, *_LEFT), (*_ANY, *_RIGHT)), strict=True)
                if exchange is not None and (sql_id, exchange) in sizes and _is_type(row["simple_string"], kinds)
            ]
            if allowed:
                yield JoinSide(int(str(sql_id)), node_id, min(allowed))


def _find_exchange(node_id: int, rows: dict[int, dict[str, object]], children: dict[int, list[int]]) -> int | None:
    """The exchange that a side of a join comes from, through operators with one input; null if it comes from others."""
    at = node_id
    while not str(rows[at]["node_name"]).startswith("Exchange"):
        inputs = children.get(at, [])
        if len(inputs) != 1:
            return None
        at = inputs[0]
    return at


def _is_type(text: str | None, kinds: tuple[str, ...]) -> bool:
    return any(f", {kind}" in (text or "") for kind in kinds)
