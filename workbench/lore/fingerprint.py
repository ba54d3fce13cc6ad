"""The fingerprint of an output: a few integers for each partition, equal for equal rows.

A row's hash is xxhash64 over its columns. xxhash64 passes over nulls, so that (null, 1) and (1, null) would be alike,
and takes -0.0 for 0.0; a flag for each null and each negative zero is hashed along, and of nested columns their text.
Count, sum and xor do not depend on the order of rows; `ordered_sum` hashes each row's place in its partition with it.

What it does not see: NaNs of different bits, and rows that differ by a collision (2**-64 for a pair).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.lore.bridge import Bridge, bridge, class_of
from workbench.lore.inputs import stripped
from workbench.lore.sidecar import PartitionPrint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def row_hash_sql(types: Iterable[str]) -> str:
    """SQL of a row's hash, over columns c0, c1 … of these types (Spark's catalog strings).

    Examples
    --------
    >>> row_hash_sql(["float"])
    "xxhash64(`c0`, IF(`c0` IS NULL, 1L, 0L) + IF(`c0` = 0 AND CAST(`c0` AS STRING) = '-0.0', 2L, 0L))"
    >>> row_hash_sql([])
    'xxhash64(1)'
    """
    columns = [(f"`c{index}`", kind) for index, kind in enumerate(types)]
    if not columns:
        return "xxhash64(1)"
    flags = [flag for column, kind in columns for flag in _flags(column, kind)]
    # One number for many flags: each value hashed costs a call for each row.
    bits = [
        " + ".join(
            f"IF({flag}, {1 << place}L, 0L)" for place, flag in enumerate(flags[start : start + _FLAGS_A_NUMBER])
        )
        for start in range(0, len(flags), _FLAGS_A_NUMBER)
    ]
    return f"xxhash64({', '.join([part for column, kind in columns for part in _values(column, kind)] + bits)})"


def _values(column: str, kind: str) -> list[str]:
    if "variant" in kind:
        return [f"to_json({column})" if kind == "variant" else f"to_json(struct({column}))"]
    # JSON of what is nested shows nulls and negative zeros in it; a cast to a text has null for 'null'.
    nested = kind.startswith(("array", "map", "struct"))
    return [column, f"to_json({column}, map('ignoreNullFields', 'false'))"] if nested else [column]


def _flags(column: str, kind: str) -> list[str]:
    # Other functions of numbers lose the sign: Spark's atan2 and division add or normalise zeros.
    negative_zero = f"{column} = 0 AND CAST({column} AS STRING) = '-0.0'"
    return [f"{column} IS NULL", *([negative_zero] if kind in ("double", "float") else [])]


def numbered(bridge: Bridge, rdd: Any, attributes: list[Any]) -> DataFrame:
    """The rows of an RDD as a DataFrame with columns c0, c1 …"""
    columns = [(f"c{index}", attribute.dataType()) for index, attribute in enumerate(attributes)]
    return bridge.frame(rdd, bridge.struct(columns))


def of(frame: DataFrame, partitions: Iterable[int] | None = None) -> dict[int, PartitionPrint]:
    """Fingerprints by partition.

    Parameters
    ----------
    frame
        Columns c0, c1 … (`numbered`), of a session of `Bridge.quiet`.
    partitions
        The original numbers of the frame's partitions, in order; their own when null.

    Returns
    -------
    dict
        One for each partition, empty ones with zeros. Sums are of hashes as signed integers, exact.
    """
    types = [field.dataType.simpleString() for field in frame.schema.fields]
    hashed = frame.selectExpr(
        f"{row_hash_sql(types)} AS h", f"monotonically_increasing_id() & {(1 << _ROW_BITS) - 1}L AS i"
    ).selectExpr("h", f"{ORDERED_SQL} AS o")
    # Two halves of each, since a sum of 64-bit values would overflow (and stop under ANSI).
    rows = _by_partition(hashed.agg(*(expression(text) for text in _TOTALS)), bridge(frame.sparkSession))
    numbers = list(partitions) if partitions is not None else list(range(len(rows)))
    found = {}
    for number, (n_rows, h_low, h_high, o_low, o_high, xor) in zip(numbers, rows, strict=True):
        found[number] = PartitionPrint(
            n_rows=n_rows, hash_sum=h_low + (h_high << 32), hash_xor=xor, ordered_sum=o_low + (o_high << 32)
        )
    return found


def _by_partition(aggregated: DataFrame, found: Bridge) -> list[tuple[int, ...]]:
    """The totals of each partition, in order.

    The lower half of an aggregate without keys gives one row a partition, also of an empty one: run by itself it
    needs no hash map, which would cost a look-up for each row, and no shuffle.
    """
    plan = aggregated._jdf.queryExecution().executedPlan()
    while class_of(plan) != "HashAggregateExec" or "partial_" not in plan.aggregateExpressions().toString():
        plan = found.listed(plan.children())[0]
    buffers = found.collapse(stripped(plan, found)).execute()
    columns = [(f"b{index}", one.dataType()) for index, one in enumerate(found.listed(plan.output()))]
    frame = found.frame(buffers, found.struct(columns)).selectExpr("spark_partition_id() AS p", "*")
    # Sums and xors of no rows are null.
    return [tuple(int(value or 0) for value in row[1:]) for row in sorted(frame.collect())]


def expression(text: str) -> Any:
    """A column from SQL text."""
    from pyspark.sql import functions

    return functions.expr(text)


def total(prints: Mapping[Any, PartitionPrint]) -> PartitionPrint:
    """All partitions as one, without an order: equal where rows are equal, wherever they lie."""
    xor = 0
    for one in prints.values():
        xor ^= one.hash_xor
    return PartitionPrint(
        n_rows=sum(one.n_rows for one in prints.values()),
        hash_sum=sum(one.hash_sum for one in prints.values()),
        hash_xor=xor,
        ordered_sum=0,
    )
