"""Inputs of a dump held in memory, so that any of their rows can be taken quickly, in their partitions and order.

A row's number is its partition's number and its place in it, as monotonically_increasing_id makes them of each other.
What is taken keeps its partition and its order, never its place: that is how a filter would leave it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from workbench.lore.bridge import Bridge
from workbench.lore.fingerprint import expression
from workbench.lore.minimizing import Rows
from workbench.lore.rebuild import rows_of, stored_schema
from workbench.lore.sidecar import InputEntry
from workbench.lore.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE_BITS = 33
# Columns beside c0, c1 …: the row's number in what is held, and in the dump.
_ROW, _ORIGIN = "lore_row", "lore_origin"
# What is held is made smaller when so many times fewer rows are left of it, or their numbers make a long filter.
SHRINK_FACTOR = 4
SMALL_ROWS = 4096
MAX_RUNS = 64
MAX_CHARS = 2000


class Subset:
    """An input, and which of its rows are left.

    Parameters
    ----------
    entry
        The input.
    store
        The dump that holds it.
    bridge
        Of a quiet session, which holds the rows.

    Attributes
    ----------
    rows
        What is left.
    partitions, batches
        All rows by partition and by batch; of no use once `keep` has given rows other numbers.
    """

    def __init__(self, entry: InputEntry, store: Store, bridge: Bridge) -> None:
        self.entry, self.bridge = entry, bridge
        self.columns = [column for column in entry.columns if column.masked != "dropped"]
        self._names = [f"c{index}" for index in range(len(self.columns))]
        self._held = self._load(store)
        self.partitions, self.batches = self._pieces()
        self.rows = self._whole = Rows.of(run for piece in self.batches for run in piece.runs)
        self.n_rows_dumped = len(self.rows)
        self._left = self._operand(self.rows)

    def _load(self, store: Store) -> DataFrame:
        plain = [
            column.model_copy(update={"stored_as": name})
            for column, name in zip(self.columns, self._names, strict=True)
        ]
        schema = stored_schema(self.entry.model_copy(update={"columns": plain, "zero_columns": False}), self.bridge)
        frame = self.bridge.frame(rows_of(store, self.entry, self.bridge), schema)
        number = "monotonically_increasing_id()"
        return frame.selectExpr(
            "*", f"{number} AS {_ROW}", f"{number} AS {_ORIGIN}", "input_file_name() AS f"
        ).persist()

    def _pieces(self) -> tuple[list[Rows], list[Rows]]:
        """Rows by partition and by batch; the name of a row's file is known while it is read only."""
        ends = (expression(f"min({_ROW}) AS low"), expression(f"max({_ROW}) AS high"))
        found = self._held.groupBy(expression(f"shiftright({_ROW}, {PLACE_BITS}) AS p"), "f").agg(*ends).collect()
        batches = sorted((int(row["low"]), int(row["high"]) + 1) for row in found)
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for low, stop in batches:
            by_partition.setdefault(low >> PLACE_BITS, []).append((low, stop))
        return [Rows.of(runs) for runs in by_partition.values()], [Rows.of([run]) for run in batches]

    def frame(self, rows: Rows) -> DataFrame:
        """These rows as the operator gets them, in all partitions of the original."""
        # One frame for what is left, so that its plan is made once and not for every question about another input.
        return self._left if rows is self.rows else self._operand(rows)

    def _operand(self, rows: Rows) -> DataFrame:
        return self._taken(rows).select(*self._names)

    def _taken(self, rows: Rows) -> DataFrame:
        if rows == self._whole:
            return self._held
        runs = (f"{_ROW} BETWEEN {first}L AND {stop - 1}L" for first, stop in rows.runs)
        return self._held.filter(" OR ".join(runs) or f"{_ROW} < 0")

    def keep(self, rows: Rows, *, shrink: bool = True) -> Rows:
        """Take these as what is left; back come their numbers, others than before when what is held was shrunk."""
        if shrink and self._is_worth_it(rows):
            rows = self._shrunk(rows)
        self.rows = rows
        self._left = self._operand(rows)
        return rows

    def _is_worth_it(self, rows: Rows) -> bool:
        return (len(rows) * SHRINK_FACTOR <= len(self._whole) > SMALL_ROWS) or len(rows.runs) > MAX_RUNS

    def _shrunk(self, rows: Rows) -> Rows:
        smaller = self._taken(rows).selectExpr(*self._names, f"monotonically_increasing_id() AS {_ROW}", _ORIGIN)
        smaller.persist().count()
        self._held.unpersist()
        self._held = smaller
        counts: Counter[int] = Counter()
        for first, stop in rows.runs:
            counts[first >> PLACE_BITS] += stop - first
        starts = {number: number << PLACE_BITS for number in sorted(counts)}
        self._whole = Rows.of((start, start + counts[number]) for number, start in starts.items())
        return self._whole

    def partitions_left(self) -> list[int]:
        """Numbers of the partitions that have rows."""
        return sorted({first >> PLACE_BITS for first, _ in self.rows.runs})

    def shown(self, most: int) -> list[dict[str, Any]]:
        """The first rows that are left: partition, place in it as dumped, and values as JSON, cut when long."""
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            names = [column.stored_as for column in self.columns]
        pairs = zip(self._names, (name.replace("`", "``") for name in names), strict=True)
        columns = ", ".join(f"{column} AS `{name}`" for column, name in pairs)
        values = f"to_json(struct({columns}), map('ignoreNullFields', 'false'))" if columns else "'{}'"
        taken = self._taken(self.rows).selectExpr(_ORIGIN, f"{values} AS v").limit(most).collect()
        return [
            {
                "partition": int(row[_ORIGIN]) >> PLACE_BITS,
                "row": int(row[_ORIGIN]) & ((1 << PLACE_BITS) - 1),
                "values": row["v"] if len(row["v"]) <= MAX_CHARS else f"{row['v'][:MAX_CHARS]}… ({len(row['v'])})",
            }
            for row in taken
        ]

    def close(self) -> None:
        """Give the memory back."""
        self._held.unpersist()
