"""Fingerprints of outputs: hashes of rows, counted and added up by partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.lore.dumps.dump_sidecar import PartitionPrint
from workbench.lore.spark_bridge.operator_inputs import strip_wrappers
from workbench.lore.spark_bridge.spark_internals import Bridge, connect_bridge, simple_class_name

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
    """The totals of each partition, in order.

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
