"""The fingerprint of an output: a few integers for each partition, equal for equal rows.

A row's hash is xxhash64 over its columns. xxhash64 passes over nulls, so that (null, 1) and (1, null) would be alike,
and takes -0.0 for 0.0; a flag for each null and each negative zero is hashed along, and of nested columns their text.
Count, sum and xor do not depend on the order of rows; `ordered_sum` hashes each row's place in its partition with it.

What it does not see: NaNs of different bits, and rows that differ by a collision (2**-64 for a pair).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.lore.sidecar import PartitionPrint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from workbench.lore.bridge import Bridge

# Row numbers within a partition, the lower bits of monotonically_increasing_id.
_ROW_BITS = 33


def row_hash_sql(types: Iterable[str]) -> str:
    """SQL of a row's hash, over columns c0, c1 … of these types (Spark's catalog strings).

    Examples
    --------
    >>> row_hash_sql(["bigint", "double"])
    'xxhash64(`c0`, isnull(`c0`), `c1`, isnull(`c1`), `c1` = 0 AND atan2(`c1`, -1) < 0)'
    >>> row_hash_sql([])
    'xxhash64(1)'
    """
    parts = [part for index, kind in enumerate(types) for part in _column_parts(f"`c{index}`", kind)]
    return f"xxhash64({', '.join(parts or ['1'])})"


def _column_parts(column: str, kind: str) -> list[str]:
    parts = [f"to_json({column})" if kind == "variant" else column, f"isnull({column})"]
    if kind in ("double", "float"):
        parts.append(f"{column} = 0 AND atan2({column}, -1) < 0")
    elif kind.startswith(("array", "map", "struct")) and "variant" not in kind:
        parts.append(f"CAST({column} AS STRING)")
    return parts


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
        f"{row_hash_sql(types)} AS h",
        "spark_partition_id() AS p",
        f"monotonically_increasing_id() & {(1 << _ROW_BITS) - 1}L AS i",
    ).selectExpr("p", "h", "xxhash64(i, h) AS o")
    rows = (
        hashed.groupBy("p")
        .agg(
            # Two halves, since a sum of 64-bit values would overflow (and stop under ANSI).
            *_sums("h"),
            *_sums("o"),
            expression("count(*) AS n"),
            expression("bit_xor(h) AS x"),
        )
        .collect()
    )
    numbers = list(partitions) if partitions is not None else list(range(_count(frame)))
    found = {number: PartitionPrint(n_rows=0, hash_sum=0, hash_xor=0, ordered_sum=0) for number in numbers}
    for row in rows:
        found[numbers[row["p"]]] = PartitionPrint(
            n_rows=row["n"], hash_sum=_joined(row, "h"), hash_xor=row["x"], ordered_sum=_joined(row, "o")
        )
    return found


def _count(frame: DataFrame) -> int:
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def expression(text: str) -> Any:
    """A column from SQL text."""
    from pyspark.sql import functions

    return functions.expr(text)


def _sums(name: str) -> list[Any]:
    return [
        expression(f"sum({name} & 4294967295L) AS {name}_low"),
        expression(f"sum(shiftright({name}, 32)) AS {name}_high"),
    ]


def _joined(row: Any, name: str) -> int:
    return int(row[f"{name}_low"]) + (int(row[f"{name}_high"]) << 32)


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
