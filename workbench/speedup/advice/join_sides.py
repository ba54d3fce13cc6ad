"""Joins that sort and shuffle both sides, with the size of the side that could be broadcast instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import polars as pl

from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.engines import strip_suffix

# Larger sides are not broadcast.
MAX_BROADCAST_BYTES = 256 << 20
_SHUFFLED_JOINS = ("SortMergeJoin", "ShuffledHashJoin")
# Types of joins by which sides may be the broadcast one; a full outer join has none. Source: Spark's own rule,
# spark.apache.org/docs/latest/sql-performance-tuning.html
_ANY, _RIGHT, _LEFT = ("Inner", "Cross"), ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin"), ("RightOuter",)


@dataclass(frozen=True)
class JoinSide:
    """The smaller side of a shuffled join that may be broadcast: bytes of its rows as shuffled.

    `exchange_id`: Its exchange. `spared_ids`: Nodes that a broadcast leaves out: the other one's exchange, all sorts.
    """

    sql_id: int
    node_id: int
    size_bytes: int
    exchange_id: int
    spared_ids: frozenset[int]


def list_small_sides(facts: EventLogFacts) -> Iterator[JoinSide]:
    """Shuffled joins of the final plans whose sides are shuffled just for them. `facts`: Of one log."""
    sizes = _read_exchange_sizes(facts)
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
            paths = [_find_exchange(side, rows, children) for side in sides]
            text = row["simple_string"] or ""
            allowed = [
                (sizes[sql_id, path[-1]], path[-1])
                for path, kinds in zip(paths, ((*_ANY, *_LEFT), (*_ANY, *_RIGHT)), strict=True)
                if path and (sql_id, path[-1]) in sizes and any(f", {kind}" in text for kind in kinds)
            ]
            if allowed:
                size_bytes, exchange = min(allowed)
                yield JoinSide(int(str(sql_id)), node_id, size_bytes, exchange, frozenset(chain(*paths)) - {exchange})


def _read_exchange_sizes(facts: EventLogFacts) -> dict[tuple[object, int], int]:
    """Bytes of the rows that exchanges carried, as they are in memory, by SQL id and node."""
    rows = facts.node_metrics.filter(
        pl.col("metric_name") == "data size", pl.col("node_name").str.starts_with("Exchange"), pl.col("total") > 0
    )
    return {
        (sql_id, node_id): total for sql_id, node_id, total in rows.select("sql_id", "node_id", "total").iter_rows()
    }


def _find_exchange(node_id: int, rows: dict[int, dict[str, object]], children: dict[int, list[int]]) -> list[int]:
    """The nodes down to the exchange that a side of a join comes from; empty if it comes from several."""
    path = [node_id]
    while not str(rows[path[-1]]["node_name"]).startswith("Exchange"):
        inputs = children.get(path[-1], [])
        if len(inputs) != 1:
            return []
        path.append(inputs[0])
    return path
