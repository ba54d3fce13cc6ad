"""Which rows differ between two outputs, by their columns' names, and whether floats differ in their last bits only."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.lore.dumps.dump_folder import SUBTREE_PREFIX, PartitionPrint
from workbench.lore.spark_bridge.operator_inputs import strip_wrappers
from workbench.lore.spark_bridge.spark_internals import Bridge, connect_bridge, simple_class_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Row numbers within a partition, the lower bits of monotonically_increasing_id.
_ROW_BITS = 33
_FLAGS_A_NUMBER = 60
# Of a row's place i in its partition, and its hash h.
ORDERED_SQL = "xxhash64(i, h)"
_TOTALS = (
    "count(1)",
    "sum(h & 4294967295L)",
    "sum(shiftright(h, 32))",
    "sum(o & 4294967295L)",
    "sum(shiftright(o, 32))",
    "bit_xor(h)",
)
MAP_ENTRY = ("key of a map", "value of a map")
MAX_DIFFERENCES = 5
# Rows that are neither separated by gaps nor close in order are compared pairwise, up to this many.
MAX_PAIRED_ROWS = 500
# Both outputs are collected to the driver to compare them within a tolerance.
MAX_CLOSE_ROWS = 200_000
# Relative difference up to which sums of floats are the same: their last bits depend on the order of the rows.
SUM_TOLERANCE = 1e-9
# Operators that add up rows, and types whose sums depend on the order.
_SUMMING_OPERATORS = frozenset(
    {
        *("HashAggregate", "SortAggregate", "ObjectHashAggregate", "Window", "AggregateInPandas"),
        *("ArrowAggregatePython", "WindowInPandas", "ArrowWindowPython"),
    }
)
_FLOAT_TYPES = ("double", "float")
FloatRow = tuple[float, ...]


def row_hash_sql(types: Iterable[str]) -> str:
    """SQL of the hash of a row with columns c0, c1 … of these types (Spark's catalog strings).

    >>> row_hash_sql(["float"])
    "xxhash64(`c0`, IF(`c0` IS NULL, 1L, 0L) + IF(`c0` = 0 AND CAST(`c0` AS STRING) = '-0.0', 2L, 0L))"
    >>> row_hash_sql([])
    'xxhash64(1)'
    """
    columns = [(f"`c{index}`", kind) for index, kind in enumerate(types)]
    if not columns:
        return "xxhash64(1)"
    flags = [flag for column, kind in columns for flag in _flag_expressions(column, kind)]
    # Many flags in one number, since each hashed value costs a call per row.
    bits = [
        " + ".join(
            f"IF({flag}, {1 << place}L, 0L)" for place, flag in enumerate(flags[start : start + _FLAGS_A_NUMBER])
        )
        for start in range(0, len(flags), _FLAGS_A_NUMBER)
    ]
    return (
        f"xxhash64({', '.join([part for column, kind in columns for part in _value_expressions(column, kind)] + bits)})"
    )


def _value_expressions(column: str, kind: str) -> list[str]:
    if "variant" in kind:
        return [f"to_json({column})" if kind == "variant" else f"to_json(struct({column}))"]
    if " collate " in kind and kind.startswith("string"):
        # Spark hashes texts that a collation calls equal alike; the bytes are what is compared.
        return [f"encode({column}, 'UTF-8')"]
    # JSON shows nested nulls and negative zeros; a cast to string has null for 'null'.
    nested = kind.startswith(("array", "map", "struct"))
    return [column, f"to_json({column}, map('ignoreNullFields', 'false'))"] if nested else [column]


def _flag_expressions(column: str, kind: str) -> list[str]:
    # Spark's atan2 and division lose the sign of zero.
    negative_zero = f"{column} = 0 AND CAST({column} AS STRING) = '-0.0'"
    return [f"{column} IS NULL", *([negative_zero] if kind in ("double", "float") else [])]


def number_columns(bridge: Bridge, rdd: Any, attributes: list[Any]) -> DataFrame:
    """The rows of an RDD as a DataFrame with columns c0, c1 …"""
    columns = [(f"c{index}", attribute.dataType()) for index, attribute in enumerate(attributes)]
    return bridge.to_frame(rdd, bridge.build_struct(columns))


def fingerprint_partitions(frame: DataFrame, partitions: Iterable[int] | None = None) -> dict[int, PartitionPrint]:
    """Fingerprints by partition.

    `frame`: Columns c0, c1 … (`number_columns`), in a session of `Bridge.quiet_bridge`.
    `partitions`: Original numbers of the frame's partitions, in order; from 0 by default.

    Returns: One per partition, zeros for empty ones. Sums of hashes are exact, over signed integers.
    """
    types = [field.dataType.simpleString() for field in frame.schema.fields]
    hashed = frame.selectExpr(
        f"{row_hash_sql(types)} AS h", f"monotonically_increasing_id() & {(1 << _ROW_BITS) - 1}L AS i"
    ).selectExpr("h", f"{ORDERED_SQL} AS o")
    # Sums of two halves, since a sum of 64-bit values would overflow (an error under ANSI).
    rows = _collect_partition_totals(
        hashed.agg(*(parse_expression(text) for text in _TOTALS)), connect_bridge(frame.sparkSession)
    )
    numbers = list(partitions) if partitions is not None else list(range(len(rows)))
    prints = {}
    for number, (n_rows, h_low, h_high, o_low, o_high, xor) in zip(numbers, rows, strict=True):
        prints[number] = PartitionPrint(
            n_rows=n_rows, hash_sum=h_low + (h_high << 32), hash_xor=xor, ordered_sum=o_low + (o_high << 32)
        )
    return prints


def _collect_partition_totals(aggregated: DataFrame, bridge: Bridge) -> list[tuple[int, ...]]:
    """Collect the totals of each partition, in order.

    The partial half of an aggregate without keys gives one row per partition, even for an empty one. Run alone it needs
    neither a hash map, with a look-up per row, nor a shuffle.
    """
    plan = aggregated._jdf.queryExecution().executedPlan()
    while simple_class_name(plan) != "HashAggregateExec" or "partial_" not in plan.aggregateExpressions().toString():
        plan = bridge.to_list(plan.children())[0]
    buffers = bridge.fuse_codegen_stages(strip_wrappers(plan, bridge)).execute()
    columns = [(f"b{index}", attribute.dataType()) for index, attribute in enumerate(bridge.to_list(plan.output()))]
    frame = bridge.to_frame(buffers, bridge.build_struct(columns)).selectExpr("spark_partition_id() AS p", "*")
    # Sums and xors of no rows are null.
    return [tuple(int(value or 0) for value in row[1:]) for row in sorted(frame.collect())]


def parse_expression(text: str) -> Any:
    """A column from SQL text."""
    from pyspark.sql import functions

    return functions.expr(text)


def quote_name(name: str) -> str:
    """A column name as an identifier of SQL.

    >>> quote_name("price (2)"), quote_name("a`b")
    ('`price (2)`', '`a``b`')
    """
    return f"`{name.replace('`', '``')}`"


def merge_prints(prints: Mapping[Any, PartitionPrint]) -> PartitionPrint:
    """Fingerprint of all partitions together, independent of order and partition."""
    xor = 0
    for partition_print in prints.values():
        xor ^= partition_print.hash_xor
    return PartitionPrint(
        n_rows=sum(fingerprint.n_rows for fingerprint in prints.values()),
        hash_sum=sum(fingerprint.hash_sum for fingerprint in prints.values()),
        hash_xor=xor,
        ordered_sum=0,
    )


@dataclass(frozen=True)
class RowDifferences:
    """First rows that only one of two outputs has.

    `first`, `second`: Rows as JSON with the names of the columns, those of a name that repeats with their position:
    `k`, `k (2)`.
    `column`: The first column in which a row differs from the most similar one of the other output; null where only
    one output has rows of its own.
    """

    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    column: str | None = None
    values: tuple[str, ...] = ()

    @property
    def sentence(self) -> str | None:
        """The first differing column with its values; null without one."""
        if self.column is None:
            return None
        return f"the first column that differs is {self.column}: {self.values[0]} and {self.values[1]}"


def choose_display_names(names: Iterable[str]) -> list[str]:
    """Names of columns, made unique by their position.

    >>> choose_display_names(["k", "v", "k"])
    ['k', 'v', 'k (3)']
    """
    display_names: list[str] = []
    for position, name in enumerate(names, 1):
        display_names.append(f"{name} ({position})" if name in display_names else name)
    return display_names


def choose_tolerance(operator: str, types: Iterable[str], tolerance: float | None) -> float | None:
    """The tolerance of a comparison: the one asked for, else that of sums where the operator may add up floats."""
    if tolerance is not None:
        return tolerance
    adds = operator in _SUMMING_OPERATORS or operator.startswith(SUBTREE_PREFIX)
    adds = adds and any(word in kind for kind in types for word in _FLOAT_TYPES)
    return SUM_TOLERANCE if adds else None


@contextlib.contextmanager
def carry_frame(frame: DataFrame, into: Bridge) -> Iterator[DataFrame]:
    """Compute and cache a frame under the settings of its own session, and return it as a frame of another session.

    An RDD is computed under the settings of the session that reads it, so it must be cached first.
    """
    cached_frame = frame.persist()
    try:
        cached_frame.count()
        yield into.to_frame(connect_bridge(frame.sparkSession).internal_rows(cached_frame), cached_frame._jdf.schema())
    finally:
        cached_frame.unpersist()


def find_first_differences(
    expected: DataFrame, actual: DataFrame, *, names: Sequence[str] | None = None, max_rows: int = MAX_DIFFERENCES
) -> RowDifferences:
    """First rows that one of two frames (columns c0, c1 …) has more often than the other; `names` are those shown."""
    types = [field.dataType.simpleString() for field in actual.schema.fields]
    hashing = row_hash_sql(types)
    shown = choose_display_names(names if names is not None else actual.columns)

    def count_rows(frame: DataFrame, sign: int) -> Any:
        pairs = zip(frame.columns, map(quote_name, shown), strict=True)
        named = ", ".join(f"{column} AS {name}" for column, name in pairs)
        text = f"to_json(struct({named}), map('ignoreNullFields', 'false'))" if frame.columns else "'{}'"
        return frame.selectExpr(f"{hashing} AS h", f"{text} AS row", f"{sign} AS side")

    rows = (
        count_rows(expected, -1)
        .unionByName(count_rows(actual, 1))
        .groupBy("h")
        .agg(*(parse_expression(text) for text in ("sum(side) AS more", "first(row) AS row")))
        .filter("more <> 0")
        .orderBy("row")
    )
    missing = tuple(row["row"] for row in rows.filter("more < 0").limit(max_rows).collect())
    extra = tuple(row["row"] for row in rows.filter("more > 0").limit(max_rows).collect())
    return find_differing_column(missing, extra)


def find_differing_column(first: Sequence[str], second: Sequence[str]) -> RowDifferences:
    """The first column in which a row differs from the most similar one of the other output.

    >>> find_differing_column(['{"k":1,"v":2}'], ['{"k":9,"v":8}', '{"k":1,"v":3}']).sentence
    'the first column that differs is v: 2 and 3'
    """
    best: tuple[int, str | None, tuple[str, ...]] = (-1, None, ())
    for row in map(json.loads, first):
        for other in map(json.loads, second):
            apart = [name for name in row if row[name] != other.get(name)]
            n_equal = len(row) - len(apart)
            if apart and n_equal > best[0]:
                values = (json.dumps(row[apart[0]]), json.dumps(other.get(apart[0])))
                best = (n_equal, apart[0], values)
    return RowDifferences(tuple(first), tuple(second), best[1], best[2])


def are_frames_close(expected: DataFrame, actual: DataFrame, tolerance: float) -> bool:
    """Are two small frames equal up to the order of rows and close floats?"""
    return are_rows_close(_list_map_entries(expected).collect(), _list_map_entries(actual).collect(), tolerance)


def _list_map_entries(frame: DataFrame) -> DataFrame:
    """The frame with each map as a list of entries: a dict of Python takes no array or map as a key."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types

    def spread(column: Column, kind: types.DataType) -> Column:
        if isinstance(kind, types.MapType):
            parts = zip(MAP_ENTRY, ("key", "value"), (kind.keyType, kind.valueType), strict=True)
            named = [(name, at, of) for name, at, of in parts]
            return F.transform(
                F.map_entries(column),
                lambda pair: F.struct(*(spread(pair[at], of).alias(name) for name, at, of in named)),
            )
        if isinstance(kind, types.ArrayType):
            return F.transform(column, lambda item: spread(item, kind.elementType))
        if isinstance(kind, types.StructType):
            fields = [spread(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
            return F.when(column.isNotNull(), F.struct(*fields))
        return column

    if "MapType" not in repr(frame.schema):
        return frame
    fields = enumerate(frame.schema.fields)
    # By place, since two columns may have one name.
    renamed = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
    return renamed.select(*(spread(renamed[f"c{place}"], field.dataType).alias(f"c{place}") for place, field in fields))


def are_rows_close(expected: Iterable[Any], actual: Iterable[Any], tolerance: float) -> bool:
    """Are these the same rows, up to their order and close floats?

    Rows are grouped by their exact values, then split at gaps wider than the tolerance between their floats; the rest
    is paired in order, or each row with the first close one. True is always correct. False may be wrong for rows with
    several floats that form chains of close neighbours.
    """
    groups: dict[Any, tuple[list[FloatRow], list[FloatRow]]] = {}
    for side, rows in enumerate((expected, actual)):
        for row in rows:
            floats: list[float] = []
            groups.setdefault(_take_out_floats(row, floats), ([], []))[side].append(tuple(floats))
    parts = (part for left, right in groups.values() for part in _split_by_gaps(left, right, tolerance))
    return all(_are_all_rows_close(left, right, tolerance) for left, right in parts)


def _take_out_floats(value: Any, floats: list[float]) -> Any:
    """Copy a value in hashable form without its finite floats, which are appended to `floats`."""
    if isinstance(value, float) and math.isfinite(value):
        floats.append(value)
        return None, "float"
    if isinstance(value, list) and value and getattr(value[0], "__fields__", None) == [*MAP_ENTRY]:
        # Entries of a map have no order.
        value = sorted(value, key=lambda pair: str(pair[0]))
    if isinstance(value, list | tuple):
        return tuple(_take_out_floats(item, floats) for item in value)
    if isinstance(value, dict):
        return tuple((str(key), _take_out_floats(value[key], floats)) for key in sorted(value, key=str))
    return type(value).__name__, str(value)


def _split_by_gaps(
    left: list[FloatRow], right: list[FloatRow], tolerance: float
) -> Iterator[tuple[list[FloatRow], list[FloatRow]]]:
    """Yield parts of both sides' rows, such that no left row is close to a right row of another part."""
    n_columns = len((left or right)[0])
    # With the next column, and the number of consecutive columns without a gap.
    waiting = [(left, right, 0, 0)]
    while waiting:
        left, right, column, n_gapless = waiting.pop()
        if n_gapless == n_columns:
            yield left, right
            continue
        parts = _split_by_column_gaps(left, right, column, tolerance)
        n_gapless = n_gapless + 1 if len(parts) == 1 else 1
        waiting += [(*part, (column + 1) % n_columns, n_gapless) for part in parts]


def _split_by_column_gaps(
    left: list[FloatRow], right: list[FloatRow], column: int, tolerance: float
) -> list[tuple[list[FloatRow], list[FloatRow]]]:
    """Split rows of both sides where neighbours in the sorted column differ beyond the tolerance.

    Rows of different parts can then never be equal: a row beyond the gap differs from all before it. Within a part
    only neighbours are close, so that its ends may still differ. Returns: Pairs of left and right rows, by ascending
    values; one of both sides may be empty. `left` and `right` must not both be.
    """
    sided = [(row, side) for side, rows in enumerate((left, right)) for row in rows]
    sided.sort(key=lambda pair: pair[0][column])
    parts: list[tuple[list[FloatRow], list[FloatRow]]] = [([], [])]
    before = sided[0][0]
    for row, side in sided:
        if not _are_floats_close((before[column],), (row[column],), tolerance):
            parts.append(([], []))
        parts[-1][side].append(row)
        before = row
    return parts


def _are_all_rows_close(left: list[FloatRow], right: list[FloatRow], tolerance: float) -> bool:
    """Whether each left row can be paired with a right row within the relative tolerance.

    >>> _are_all_rows_close([(1.0,), (2.0,)], [(2.0,), (1.0,)], 1e-9), _are_all_rows_close([(1.0,)], [(1.1,)], 1e-9)
    (True, False)
    """
    if len(left) != len(right):
        return False
    left, right = sorted(left), sorted(right)
    if all(_are_floats_close(left_row, other, tolerance) for left_row, other in zip(left, right, strict=True)):
        return True
    if len(left) > MAX_PAIRED_ROWS:
        return False
    for row in left:
        place = next((place for place, other in enumerate(right) if _are_floats_close(row, other, tolerance)), None)
        if place is None:
            return False
        del right[place]
    return True


def _are_floats_close(row: FloatRow, other: FloatRow, tolerance: float) -> bool:
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0) for a, b in zip(row, other, strict=True))
