"""Fingerprints of outputs, and whether a replay gives the original rows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_sidecar import PartitionPrint, Sidecar
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.spark_bridge.operator_inputs import strip_wrappers
from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator, read_output_rows
from workbench.lore.spark_bridge.query_runs import OperatorFailure, describe_failure
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

    Parameters
    ----------
    frame
        Columns c0, c1 … (`number_columns`), in a session of `Bridge.quiet_bridge`.
    partitions
        Original numbers of the frame's partitions, in order; from 0 by default.

    Returns
    -------
    dict
        One per partition, zeros for empty ones. Sums of hashes are exact, over signed integers.
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
    found = {}
    for number, (n_rows, h_low, h_high, o_low, o_high, xor) in zip(numbers, rows, strict=True):
        found[number] = PartitionPrint(
            n_rows=n_rows, hash_sum=h_low + (h_high << 32), hash_xor=xor, ordered_sum=o_low + (o_high << 32)
        )
    return found


def _collect_partition_totals(aggregated: DataFrame, found: Bridge) -> list[tuple[int, ...]]:
    """The totals of each partition, in order.

    The partial half of an aggregate without keys gives one row per partition, even for an empty one. Run alone it needs
    neither a hash map, with a look-up per row, nor a shuffle.
    """
    plan = aggregated._jdf.queryExecution().executedPlan()
    while simple_class_name(plan) != "HashAggregateExec" or "partial_" not in plan.aggregateExpressions().toString():
        plan = found.to_list(plan.children())[0]
    buffers = found.fuse_codegen_stages(strip_wrappers(plan, found)).execute()
    columns = [(f"b{index}", one.dataType()) for index, one in enumerate(found.to_list(plan.output()))]
    frame = found.to_frame(buffers, found.build_struct(columns)).selectExpr("spark_partition_id() AS p", "*")
    # Sums and xors of no rows are null.
    return [tuple(int(value or 0) for value in row[1:]) for row in sorted(frame.collect())]


def parse_expression(text: str) -> Any:
    """A column from SQL text."""
    from pyspark.sql import functions

    return functions.expr(text)


def merge_prints(prints: Mapping[Any, PartitionPrint]) -> PartitionPrint:
    """Fingerprint of all partitions together, independent of order and partition."""
    xor = 0
    for one in prints.values():
        xor ^= one.hash_xor
    return PartitionPrint(
        n_rows=sum(one.n_rows for one in prints.values()),
        hash_sum=sum(one.hash_sum for one in prints.values()),
        hash_xor=xor,
        ordered_sum=0,
    )


MAX_DIFFERENCES = 5
# Rows that are neither separated by gaps nor close in order are compared pairwise, up to this many.
MAX_PAIRED_ROWS = 500
FloatRow = tuple[float, ...]


@dataclass(frozen=True)
class Verification:
    """Result of a comparison.

    Attributes
    ----------
    passed
        Whether the rows are the same as a multiset (for a failing operator: whether the error is the same).
    row_for_row
        Whether partitions and order are the same, too; null when no rows were compared.
    compared_with
        Reference of the comparison.
    n_expected, n_found
        Numbers of rows; null when the operator failed.
    differing
        Partitions with different rows.
    missing, extra
        First rows that only one side has, as JSON; empty when the dump did not keep its output.
    note
        Notes on masking, tolerance and errors.
    """

    passed: bool
    row_for_row: bool | None
    compared_with: str
    n_expected: int | None
    n_found: int | None
    differing: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    note: tuple[str, ...] = field(default=())

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        word = "PASS" if self.passed else "FAIL"
        if self.n_expected is None or self.n_found is None:
            return f"{word}: {self.note[0] if self.note else 'the operator failed'}"
        if self.passed:
            how = "row for row" if self.row_for_row else "the same rows in another order"
            return f"{word}: {self.n_found} rows, {how}, compared with {self.compared_with}"
        partitions = ", ".join(str(number) for number in self.differing[:10])
        return (
            f"{word}: {self.n_found} rows where {self.compared_with} gave {self.n_expected}; "
            f"partitions that differ: {partitions or 'none alone'}"
        )


def verify_replay(
    folder: DumpStore, sidecar: Sidecar, rebuilt: RebuiltOperator, *, tolerance: float | None = None
) -> Verification:
    """Run the operator once and compare its output with the sidecar.

    Parameters
    ----------
    folder, sidecar
        A dump that passed `trust_check.check_trust`.
    rebuilt
        Its operator over its inputs.
    tolerance
        Relative difference up to which floats are equal; needs a dump with kept output. Null compares bit for bit.

    Raises
    ------
    ConfigError
        A tolerance without kept output.
    """
    expected = {int(number): one for number, one in sidecar.output.fingerprint.items()}
    if tolerance is not None and not sidecar.output.kept:
        raise ConfigError(
            "a tolerance needs the output rows, and this dump has only their fingerprint",
            where="--tolerance",
            do="dump again with --keep-output-rows at least as large as the output",
        )
    try:
        rdd = rebuilt.output_rdd()
        # With an expected error, all dumped partitions run.
        if sidecar.output.error is None and len(expected) < int(rdd.getNumPartitions()):
            rdd = rebuilt.bridge.prune_partitions(rdd, expected)
        frame = number_columns(rebuilt.bridge.quiet_bridge(), rdd, rebuilt.attributes)
        found = fingerprint_partitions(frame, sorted(expected) if sidecar.output.error is None else None)
    except Exception as error:  # noqa: BLE001 - failures are compared, too
        return _compare_failure(sidecar, describe_failure(error))
    if sidecar.output.error is not None:
        wanted = sidecar.output.error
        note = f"the original failed with {wanted.error_class}, and the replay did not fail"
        return Verification(False, None, sidecar.output.compared_with, None, None, note=(note,))
    return _compare_prints(folder, sidecar, frame, expected, found, tolerance)


def _compare_failure(sidecar: Sidecar, failure: OperatorFailure) -> Verification:
    wanted = sidecar.output.error
    if wanted is None:
        note = f"the replay failed, and the original did not: {failure}"
        return Verification(False, None, sidecar.output.compared_with, None, None, note=(note,))
    same = (wanted.error_class, wanted.message) == (failure.error_class, failure.message)
    note = (
        f"the same error: {failure}"
        if same
        else f"another error: {failure}; expected {wanted.error_class}: {wanted.message}"
    )
    return Verification(same, None, sidecar.output.compared_with, None, None, note=(note,))


def _compare_prints(
    folder: DumpStore,
    sidecar: Sidecar,
    frame: DataFrame,
    expected: Mapping[int, PartitionPrint],
    found: Mapping[int, PartitionPrint],
    tolerance: float | None,
) -> Verification:
    wanted, given = merge_prints(expected), merge_prints(found)
    passed = wanted == given
    row_for_row = dict(expected) == dict(found)
    differing = tuple(
        number for number in sorted(expected) if _unordered_print(expected[number]) != _unordered_print(found[number])
    )
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    notes = [sidecar.masked] if sidecar.masked else []
    if not passed and sidecar.output.kept:
        original = read_output_rows(folder, sidecar, frame)
        if tolerance is not None and are_frames_close(original, frame, tolerance):
            passed = True
            notes.append(f"not bit for bit: equal within a relative tolerance of {tolerance:g}")
        else:
            missing, extra = find_first_differences(original, frame)
    elif not passed:
        notes.append("the dump did not keep its output, so that differing rows cannot be shown (--keep-output-rows)")
    return Verification(
        passed,
        row_for_row,
        sidecar.output.compared_with,
        wanted.n_rows,
        given.n_rows,
        differing,
        missing,
        extra,
        tuple(notes),
    )


def _unordered_print(one: PartitionPrint) -> tuple[int, int, int]:
    return one.n_rows, one.hash_sum, one.hash_xor


@contextlib.contextmanager
def carry_frame(frame: DataFrame, into: Bridge) -> Iterator[DataFrame]:
    """Rows of a frame, computed and cached under the settings of its session, as a frame of another session.

    An RDD is computed under the settings of the session that reads it, so it must be cached first.
    """
    held = frame.persist()
    try:
        held.count()
        yield into.to_frame(connect_bridge(frame.sparkSession).internal_rows(held), held._jdf.schema())
    finally:
        held.unpersist()


def find_first_differences(
    expected: DataFrame, found: DataFrame, *, max_rows: int = MAX_DIFFERENCES
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """First rows, as JSON, that one of two frames (columns c0, c1 …) has more often than the other."""
    types = [field.dataType.simpleString() for field in found.schema.fields]
    hashing = row_hash_sql(types)

    def count_rows(frame: DataFrame, sign: int) -> Any:
        text = f"to_json(struct({', '.join(frame.columns)}))" if frame.columns else "'{}'"
        return frame.selectExpr(f"{hashing} AS h", f"{text} AS row", f"{sign} AS side")

    rows = (
        count_rows(expected, -1)
        .unionByName(count_rows(found, 1))
        .groupBy("h")
        .agg(*(parse_expression(text) for text in ("sum(side) AS more", "first(row) AS row")))
        .filter("more <> 0")
        .orderBy("row")
    )
    missing = [row["row"] for row in rows.filter("more < 0").limit(max_rows).collect()]
    extra = [row["row"] for row in rows.filter("more > 0").limit(max_rows).collect()]
    return tuple(missing), tuple(extra)


def are_frames_close(expected: DataFrame, found: DataFrame, tolerance: float) -> bool:
    """Are two small frames equal up to the order of rows and close floats?"""
    return are_rows_close(expected.collect(), found.collect(), tolerance)


def are_rows_close(expected: Iterable[Any], found: Iterable[Any], tolerance: float) -> bool:
    """Are these the same rows, up to their order and close floats?

    Rows are grouped by their exact values, then split at gaps wider than the tolerance between their floats; the rest
    is paired in order, or each row with the first close one. True is always correct. False may be wrong for rows with
    several floats that form chains of close neighbours.
    """
    groups: dict[Any, tuple[list[FloatRow], list[FloatRow]]] = {}
    for side, rows in enumerate((expected, found)):
        for row in rows:
            floats: list[float] = []
            groups.setdefault(_take_out_floats(row, floats), ([], []))[side].append(tuple(floats))
    parts = (part for left, right in groups.values() for part in _split_by_gaps(left, right, tolerance))
    return all(_can_pair_rows(left, right, tolerance) for left, right in parts)


def _take_out_floats(value: Any, floats: list[float]) -> Any:
    """A hashable form of a value without its finite floats, which are appended to the list."""
    if isinstance(value, float) and math.isfinite(value):
        floats.append(value)
        return None, "float"
    if isinstance(value, list | tuple):
        return tuple(_take_out_floats(item, floats) for item in value)
    if isinstance(value, dict):
        return tuple((str(key), _take_out_floats(value[key], floats)) for key in sorted(value, key=str))
    return type(value).__name__, str(value)


def _split_by_gaps(
    left: list[FloatRow], right: list[FloatRow], tolerance: float
) -> Iterator[tuple[list[FloatRow], list[FloatRow]]]:
    """Split the rows of both sides into parts without close rows across parts."""
    n_columns = len((left or right)[0])
    # With the next column, and the number of consecutive columns without a gap.
    waiting = [(left, right, 0, 0)]
    while waiting:
        left, right, column, whole = waiting.pop()
        if whole == n_columns:
            yield left, right
            continue
        parts = _split_by_column_gaps(left, right, column, tolerance)
        whole = whole + 1 if len(parts) == 1 else 1
        waiting += [(*part, (column + 1) % n_columns, whole) for part in parts]


def _split_by_column_gaps(
    left: list[FloatRow], right: list[FloatRow], column: int, tolerance: float
) -> list[tuple[list[FloatRow], list[FloatRow]]]:
    sided = [(row, side) for side, rows in enumerate((left, right)) for row in rows]
    sided.sort(key=lambda one: one[0][column])
    parts: list[tuple[list[FloatRow], list[FloatRow]]] = [([], [])]
    before = sided[0][0]
    for row, side in sided:
        if not _are_floats_close((before[column],), (row[column],), tolerance):
            parts.append(([], []))
        parts[-1][side].append(row)
        before = row
    return parts


def _can_pair_rows(left: list[FloatRow], right: list[FloatRow], tolerance: float) -> bool:
    if len(left) != len(right):
        return False
    left, right = sorted(left), sorted(right)
    if all(_are_floats_close(one, other, tolerance) for one, other in zip(left, right, strict=True)):
        return True
    if len(left) > MAX_PAIRED_ROWS:
        return False
    for row in left:
        place = next((place for place, other in enumerate(right) if _are_floats_close(row, other, tolerance)), None)
        if place is None:
            return False
        del right[place]
    return True


def _are_floats_close(one: FloatRow, other: FloatRow, tolerance: float) -> bool:
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0) for a, b in zip(one, other, strict=True))
