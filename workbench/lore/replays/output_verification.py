"""Whether a replay gives the original rows: PASS, FAIL, or UNDECIDED for an operator that never gives them twice."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_folder import ORIGINAL_RUN, PartitionPrint, Sidecar
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.replays.row_differences import (
    RowDifferences,
    are_frames_close,
    choose_display_names,
    choose_tolerance,
    find_first_differences,
    fingerprint_partitions,
    merge_prints,
    number_columns,
)
from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator, read_output_rows
from workbench.lore.spark_bridge.query_runs import OperatorFailure, describe_failure, refuse_environment_fault
from workbench.stats.verdicts import UNDECIDED

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame


MAX_TRIED_PARTITIONS = 50


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
    differing_column
        The first column that differs, with both values, as a sentence; null where no rows were paired.
    tolerance
        Relative difference within which floats differ from the original; null when they are equal bit for bit.
    repeatable
        False when two runs over the same inputs gave different rows, so that neither is the output; null when it was
        not tried.
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
    differing_column: str | None = None
    tolerance: float | None = None
    repeatable: bool | None = None
    note: tuple[str, ...] = field(default=())

    @property
    def word(self) -> str:
        """PASS, FAIL, or UNDECIDED when the operator gives other rows in each run.

        `PASS (recomputed)`: against what the operator gave when it was dumped, not in the query's own run.
        """
        passed = "PASS" if self.compared_with == ORIGINAL_RUN else "PASS (recomputed)"
        return UNDECIDED if self.repeatable is False else passed if self.passed else "FAIL"

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        word = self.word
        if self.n_expected is None or self.n_found is None:
            return f"{word}: {self.note[0] if self.note else 'the operator failed'}"
        if self.repeatable is False:
            return (
                f"{word}: the operator gives other rows in each run over the same inputs ({self.n_found} rows; "
                f"{self.compared_with} gave {self.n_expected}), so no output can be compared"
            )
        if self.passed and self.tolerance is not None:
            return (
                f"{word}: {self.n_found} rows, floats equal within a relative tolerance of {self.tolerance:g}, not bit "
                f"for bit, compared with {self.compared_with}"
            )
        if self.passed:
            how = "row for row" if self.row_for_row else "the same rows in another order"
            return f"{word}: {self.n_found} rows, {how}, compared with {self.compared_with}"
        partitions = ", ".join(str(number) for number in self.differing[:10])
        return (
            f"{word}: {self.n_found} rows where {self.compared_with} gave {self.n_expected}; "
            f"partitions that differ: {partitions or 'none alone'}"
        )


@dataclass(frozen=True)
class OperatorRun:
    """One run of an operator: its rows, their fingerprints by the partitions that the dump has, and its seconds.

    `is_whole`: Whether each of its partitions ran.
    """

    frame: DataFrame
    prints: Mapping[int, PartitionPrint]
    is_whole: bool
    duration_s: float


def verify_replay(
    folder: DumpStore, sidecar: Sidecar, rebuilt: RebuiltOperator, *, tolerance: float | None = None
) -> tuple[Verification, OperatorRun | None]:
    """Run the operator once and compare its output with the sidecar; the run is null where it failed.

    `tolerance`: Relative difference up to which floats are equal; needs a dump with kept output. Null compares bit
    for bit, but for operators that add up floats (`row_differences.choose_tolerance`).
    """
    expected = {int(number): fingerprint for number, fingerprint in sidecar.output.fingerprint.items()}
    if tolerance is not None and not sidecar.output.kept:
        raise ConfigError(
            "a tolerance needs the output rows, and this dump has only their fingerprint",
            where="--tolerance",
            do="dump again with --keep-output-rows at least as large as the output",
        )
    try:
        run = _run_dumped_partitions(sidecar, rebuilt, expected)
    except Exception as error:  # noqa: BLE001 - failures are compared, too
        failure = describe_failure(error)
        wanted = sidecar.output.error
        if wanted is not None and (wanted.error_class, wanted.message) != (failure.error_class, failure.message):
            failure = _find_same_failure(sidecar, rebuilt) or failure
        return _compare_failure(sidecar, failure), None
    if sidecar.output.error is not None:
        wanted = sidecar.output.error
        note = f"the original failed with {wanted.error_class}, and the replay did not fail"
        return Verification(False, None, sidecar.output.compared_with, None, None, note=(note,)), run
    compared = _compare_prints(folder, sidecar, run, expected, tolerance)
    return compared if compared.passed else _check_repeatable(compared, sidecar, rebuilt, expected, run), run


def _run_dumped_partitions(
    sidecar: Sidecar, rebuilt: RebuiltOperator, expected: Mapping[int, PartitionPrint]
) -> OperatorRun:
    n_partitions = int(rebuilt.output_rdd().getNumPartitions())
    # A union of inputs that Spark knows to be partitioned alike has fewer partitions in the query than alone: then
    # all of them are compared. With an expected error, all dumped partitions run.
    is_whole = len(expected) == sidecar.output.n_partitions != n_partitions
    numbers = None if is_whole or sidecar.output.error is not None else sorted(expected)
    return run_operator(rebuilt, numbers)


def run_operator(rebuilt: RebuiltOperator, numbers: Sequence[int] | None = None) -> OperatorRun:
    """Run an operator: all of its partitions, or those with these numbers of the original ones."""
    rdd = rebuilt.output_rdd()
    is_whole = True
    if numbers is not None and len(numbers) < int(rdd.getNumPartitions()):
        rdd, is_whole = rebuilt.bridge.prune_partitions(rdd, numbers), False
    frame = number_columns(rebuilt.bridge.quiet_bridge(), rdd, rebuilt.attributes)
    begun = time.perf_counter()
    prints = fingerprint_partitions(frame, numbers)
    return OperatorRun(frame, prints, is_whole, time.perf_counter() - begun)


def _check_repeatable(
    compared: Verification,
    sidecar: Sidecar,
    rebuilt: RebuiltOperator,
    expected: Mapping[int, PartitionPrint],
    run: OperatorRun,
) -> Verification:
    """Run the operator once more: if the rows differ again, its output does not depend on its inputs alone."""
    try:
        again = _run_dumped_partitions(sidecar, rebuilt.copy_plan(), expected)
    except Exception as error:  # noqa: BLE001 - fails now and then: not repeatable either
        return replace(compared, repeatable=False, note=(*compared.note, f"it failed when run again: {error}"[:500]))
    return replace(compared, repeatable=merge_prints(again.prints) == merge_prints(run.prints))


def _find_same_failure(sidecar: Sidecar, rebuilt: RebuiltOperator) -> OperatorFailure | None:
    """The expected failure, if a partition alone gives it: where several fail, any of them is the first."""
    wanted = sidecar.output.error
    assert wanted is not None
    for number in range(min(int(rebuilt.output_rdd().getNumPartitions()), MAX_TRIED_PARTITIONS)):
        try:
            rebuilt.bridge.pad_partitions(rebuilt.output_rdd(), [number]).count()
        except Exception as error:  # noqa: BLE001 - a failure is what is looked for
            failure = describe_failure(error)
            if (failure.error_class, failure.message) == (wanted.error_class, wanted.message):
                return failure
    return None


def _compare_failure(sidecar: Sidecar, failure: OperatorFailure) -> Verification:
    wanted = sidecar.output.error
    if wanted is None or wanted.error_class != failure.error_class:
        refuse_environment_fault(failure, f"loreId {sidecar.lore_id}")
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
    run: OperatorRun,
    expected: Mapping[int, PartitionPrint],
    tolerance: float | None,
) -> Verification:
    """Compare the fingerprints of the original and the replayed output, by partition.

    Where they differ and the dump kept its rows, these are compared within the tolerance, and the first ones shown.
    """
    frame, prints = run.frame, run.prints
    wanted, actual = merge_prints(expected), merge_prints(prints)
    passed = wanted == actual
    row_for_row = dict(expected) == dict(prints)
    differing = tuple(
        number
        for number in sorted(expected)
        if number not in prints or _unordered_print(expected[number]) != _unordered_print(prints[number])
    )
    apart, within = RowDifferences(), None
    notes = [sidecar.masked] if sidecar.masked else []
    if not passed and sidecar.output.kept:
        original = read_output_rows(folder, sidecar, frame)
        kinds = [kind.dataType.simpleString() for kind in frame.schema.fields]
        limit = choose_tolerance(sidecar.operator, kinds, tolerance)
        if limit is not None and are_frames_close(original, frame, limit):
            passed, within = True, limit
            notes.append(f"not bit for bit: equal within a relative tolerance of {limit:g}")
        else:
            names = [column.name for column in sidecar.output.columns]
            apart = find_first_differences(original, frame, names=names)
    elif not passed:
        notes.append("the dump did not keep its output, so that differing rows cannot be shown (--keep-output-rows)")
    return Verification(
        passed,
        row_for_row,
        sidecar.output.compared_with,
        wanted.n_rows,
        actual.n_rows,
        differing,
        apart.first,
        apart.second,
        apart.sentence,
        within,
        None,
        tuple(notes),
    )


def _unordered_print(fingerprint: PartitionPrint) -> tuple[int, int, int]:
    return fingerprint.n_rows, fingerprint.hash_sum, fingerprint.hash_xor


def name_columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rename the output's columns c0, c1 … to the query's names; a repeated name gets its position: `k (2)`."""
    return frame.toDF(*choose_display_names(names))


def collect_table(frame: DataFrame) -> pl.DataFrame:
    """The rows of a frame as a polars table; intervals of years and months, which it lacks, as months."""
    import polars as pl
    import pyarrow as pa

    frame = _count_months(frame)
    if hasattr(frame, "toArrow"):
        table = frame.toArrow()
    else:
        batches = frame._collect_as_arrow()
        table = pa.Table.from_batches(batches) if batches else _build_empty_table(frame)
    rows = pl.from_arrow(table)
    assert isinstance(rows, pl.DataFrame)
    return rows


def _count_months(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    columns = [f"`{field.name.replace('`', '``')}`" for field in frame.schema.fields]
    kinds = [field.dataType.simpleString() for field in frame.schema.fields]
    if nested := [kind for kind in kinds if re.search(r"[<:]interval (year|month)", kind)]:
        raise ConfigError(
            "intervals of years and months inside other values cannot be written to a table",
            found=nested[0][:200],
            do="select them as columns of their own in the query",
        )
    if not any(kind.startswith(("interval year", "interval month")) for kind in kinds):
        return frame
    months = "CAST(12 * EXTRACT(YEAR FROM {0}) + EXTRACT(MONTH FROM {0}) AS INT)"
    return frame.select(
        *(
            functions.expr(months.format(column)).alias(field.name)
            if kind.startswith(("interval year", "interval month"))
            else functions.col(column)
            for column, kind, field in zip(columns, kinds, frame.schema.fields, strict=True)
        )
    )


def _build_empty_table(frame: DataFrame) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema).empty_table()
