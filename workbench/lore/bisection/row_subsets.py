"""Delta debugging (ddmin) over row numbers, and dump inputs in memory to take rows from."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from workbench.lore.dumps.dump_folder import InputEntry
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.replays.row_differences import parse_expression, quote_name
from workbench.lore.spark_bridge.operator_isolation import build_stored_schema, read_input_rows
from workbench.lore.spark_bridge.spark_internals import Bridge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


PLACE_BITS = 33
# The cached frame is rebuilt when this many times fewer rows remain, or when their runs make a long filter.
SHRINK_FACTOR = 4
SMALL_ROWS = 4096
MAX_RUNS = 64
MAX_VALUE_CHARS = 2000

# Additional columns: number of the row in the cached frame, and in the dump.
_ROW_COLUMN, _ORIGIN_COLUMN = "lore_row", "lore_origin"


class Divisible(Protocol):
    """An ordered sequence that can be sliced and joined: a list, or `RowNumbers`."""

    def __len__(self) -> int:
        """Number of items."""

    def __getitem__(self, part: slice, /) -> Self:
        """A slice with step 1."""

    def __add__(self, other: Self, /) -> Self:
        """Join this part with one that follows it."""


DivisibleT = TypeVar("DivisibleT", bound=Divisible)


def ddmin(
    items: DivisibleT,
    holds: Callable[[DivisibleT], bool],
    accepted: Callable[[DivisibleT], DivisibleT] = lambda part: part,
) -> DivisibleT:
    """Minimal part for which `holds` is true: without any one of its items it is false.

    `holds`: The condition; called about 2 log2(n) times for a single culprit, n squared times at worst.
    `accepted`: Called with each smaller part; may return the same part with other numbers.

    >>> ddmin(list(range(1000)), lambda part: 137 in part and 802 in part)
    [137, 802]
    >>> ddmin([1, 2, 3], lambda part: True)
    []
    """
    if not len(items):
        return items
    if holds(items[:0]):
        return accepted(items[:0])
    n_parts = 2
    while len(items) >= 2:
        n_parts = min(n_parts, len(items))
        smaller = _find_smaller(items, n_parts, holds)
        if smaller is not None:
            part, n_parts = smaller
            items = accepted(part)
        elif n_parts == len(items):
            break
        else:
            n_parts *= 2
    return items


def _find_smaller(
    items: DivisibleT, n_parts: int, holds: Callable[[DivisibleT], bool]
) -> tuple[DivisibleT, int] | None:
    """Find a smaller subset that still holds: one of `n_parts` parts, or all but one; with the next number of parts."""
    size = len(items)
    cuts = list(pairwise(size * number // n_parts for number in range(n_parts + 1)))
    for start, stop in cuts:
        if holds(part := items[start:stop]):
            return part, 2
    if n_parts > 2:
        for start, stop in cuts:
            if holds(part := items[:start] + items[stop:]):
                return part, n_parts - 1
    return None


@dataclass(frozen=True)
class RowNumbers:
    """Ascending row numbers, stored as runs.

    >>> rows = RowNumbers.from_runs([(0, 5), (10, 15)])
    >>> len(rows), rows[3:7], rows[:2] + rows[8:]
    (10, RowNumbers(runs=((3, 5), (10, 12))), RowNumbers(runs=((0, 2), (13, 15))))
    """

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_runs(cls, runs: Iterable[tuple[int, int]]) -> RowNumbers:
        """Build row numbers from ordered runs; adjacent runs are joined, empty ones dropped."""
        joined_runs: list[tuple[int, int]] = []
        for first, stop in runs:
            if first >= stop:
                continue
            if joined_runs and joined_runs[-1][1] == first:
                first = joined_runs.pop()[0]
            joined_runs.append((first, stop))
        return cls(tuple(joined_runs))

    def __len__(self) -> int:
        """Number of rows."""
        return sum(stop - first for first, stop in self.runs)

    def __getitem__(self, part: slice) -> RowNumbers:
        """Rows by position."""
        begin, end, _ = part.indices(len(self))
        runs, place = [], 0
        for first, stop in self.runs:
            low, high = max(begin - place, 0), min(end - place, stop - first)
            runs.append((first + low, first + high))
            place += stop - first
        return RowNumbers.from_runs(runs)

    def __add__(self, other: RowNumbers) -> RowNumbers:
        """These rows and later ones."""
        return RowNumbers.from_runs((*self.runs, *other.runs))

    def select_range(self, first: int, stop: int) -> RowNumbers:
        """Select the rows from `first` to `stop`, `stop` excluded."""
        begin = max(bisect_right(self.runs, (first,)) - 1, 0)
        runs = []
        for low, high in self.runs[begin:]:
            if low >= stop:
                break
            runs.append((max(low, first), min(high, stop)))
        return RowNumbers.from_runs(runs)


class InputSubset:
    """An input with its remaining rows.

    `partitions`, `batches`: All rows by partition and by batch, before `keep_rows` renumbers rows.
    """

    def __init__(self, entry: InputEntry, store: DumpStore, bridge: Bridge) -> None:
        self.entry, self.bridge = entry, bridge
        self.columns = [column for column in entry.columns if column.masked != "dropped"]
        self._names = [f"c{index}" for index in range(len(self.columns))]
        self._held = self._load_input(store)
        self.partitions, self.batches = self._find_pieces()
        self.rows = self._whole = RowNumbers.from_runs(run for piece in self.batches for run in piece.runs)
        self.n_rows_dumped = len(self.rows)
        self._left = self._to_operand_rows(self.rows)

    def _load_input(self, store: DumpStore) -> DataFrame:
        """Load the input, cached, with plain column names, a number for each row and the name of its file."""
        plain = [
            column.model_copy(update={"stored_as": name})
            for column, name in zip(self.columns, self._names, strict=True)
        ]
        schema = build_stored_schema(
            self.entry.model_copy(update={"columns": plain, "zero_columns": False}), self.bridge
        )
        frame = self.bridge.to_frame(read_input_rows(store, self.entry, self.bridge), schema)
        number = "monotonically_increasing_id()"
        return frame.selectExpr(
            "*", f"{number} AS {_ROW_COLUMN}", f"{number} AS {_ORIGIN_COLUMN}", "input_file_name() AS f"
        ).persist()

    def _find_pieces(self) -> tuple[list[RowNumbers], list[RowNumbers]]:
        """Row numbers by partition and by batch.

        They come from file names, which are known only while rows are read.
        """
        ends = (parse_expression(f"min({_ROW_COLUMN}) AS low"), parse_expression(f"max({_ROW_COLUMN}) AS high"))
        spans = (
            self._held.groupBy(parse_expression(f"shiftright({_ROW_COLUMN}, {PLACE_BITS}) AS p"), "f")
            .agg(*ends)
            .collect()
        )
        batches = sorted((int(row["low"]), int(row["high"]) + 1) for row in spans)
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for low, stop in batches:
            by_partition.setdefault(low >> PLACE_BITS, []).append((low, stop))
        return [RowNumbers.from_runs(runs) for runs in by_partition.values()], [
            RowNumbers.from_runs([run]) for run in batches
        ]

    def rows_frame(self, rows: RowNumbers) -> DataFrame:
        """These rows for the operator, in all partitions of the original."""
        # One frame for the remaining rows, so that it is planned once for all steps on other inputs.
        return self._left if rows is self.rows else self._to_operand_rows(rows)

    def _to_operand_rows(self, rows: RowNumbers) -> DataFrame:
        return self._take_rows(rows).select(*self._names)

    def _take_rows(self, rows: RowNumbers) -> DataFrame:
        """Select these rows of the input by their numbers."""
        if rows == self._whole:
            return self._held
        runs = (f"{_ROW_COLUMN} BETWEEN {first}L AND {stop - 1}L" for first, stop in rows.runs)
        return self._held.filter(" OR ".join(runs) or f"{_ROW_COLUMN} < 0")

    def keep_rows(self, rows: RowNumbers, *, shrink: bool = True) -> RowNumbers:
        """Keep only these rows; returns their numbers, which change when the cached frame is rebuilt."""
        if shrink and self._is_worth_shrinking(rows):
            rows = self._shrink_held_rows(rows)
        self.rows = rows
        self._left = self._to_operand_rows(rows)
        return rows

    def _is_worth_shrinking(self, rows: RowNumbers) -> bool:
        return (len(rows) * SHRINK_FACTOR <= len(self._whole) > SMALL_ROWS) or len(rows.runs) > MAX_RUNS

    def _shrink_held_rows(self, rows: RowNumbers) -> RowNumbers:
        smaller = self._take_rows(rows).selectExpr(
            *self._names, f"monotonically_increasing_id() AS {_ROW_COLUMN}", _ORIGIN_COLUMN
        )
        smaller.persist().count()
        self._held.unpersist()
        self._held = smaller
        counts: Counter[int] = Counter()
        for first, stop in rows.runs:
            counts[first >> PLACE_BITS] += stop - first
        starts = {number: number << PLACE_BITS for number in sorted(counts)}
        self._whole = RowNumbers.from_runs((start, start + counts[number]) for number, start in starts.items())
        return self._whole

    def partitions_left(self) -> list[int]:
        """Partitions with remaining rows."""
        return sorted({first >> PLACE_BITS for first, _ in self.rows.runs})

    def list_first_rows(self, max_rows: int) -> list[dict[str, Any]]:
        """First remaining rows: partition, position in it as dumped, and values as JSON, cut when long."""
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            names = [column.stored_as for column in self.columns]
        pairs = zip(self._names, map(quote_name, names), strict=True)
        columns = ", ".join(f"{column} AS {name}" for column, name in pairs)
        values = f"to_json(struct({columns}), map('ignoreNullFields', 'false'))" if columns else "'{}'"
        taken = self._take_rows(self.rows).selectExpr(_ORIGIN_COLUMN, f"{values} AS v").limit(max_rows).collect()
        return [
            {
                "partition": int(row[_ORIGIN_COLUMN]) >> PLACE_BITS,
                "row": int(row[_ORIGIN_COLUMN]) & ((1 << PLACE_BITS) - 1),
                "values": row["v"]
                if len(row["v"]) <= MAX_VALUE_CHARS
                else f"{row['v'][:MAX_VALUE_CHARS]}… ({len(row['v'])})",
            }
            for row in taken
        ]
