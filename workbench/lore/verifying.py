"""Does a replay give what the original gave? Bit for bit, by fingerprints, and which rows differ first."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.lore import fingerprint
from workbench.lore.bridge import Bridge, bridge
from workbench.lore.failure import Failure, failure_of
from workbench.lore.rebuild import Rebuilt, output_rows
from workbench.lore.sidecar import PartitionPrint, Sidecar
from workbench.lore.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIFFERENCES = 5
# Rows that no gap parts and that are not close in order: each is tried with each of the others.
MOST_PAIRED = 500
Floats = tuple[float, ...]


@dataclass(frozen=True)
class Verification:
    """What a comparison found.

    Attributes
    ----------
    passed
        Are the rows the same, as a multiset (or, of an operator that failed, is the error the same)?
    row_for_row
        Do they also come in the same partitions and the same order? Null where nothing was compared.
    compared_with
        What the replay was held against.
    n_expected, n_found
        Rows; null where the operator failed.
    differing
        Partitions whose rows differ.
    missing, extra
        The first rows that only one side has, as JSON; empty when the dump did not keep its output.
    note
        What else to know: masking, tolerance, errors.
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
        """One sentence."""
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


def verify(folder: Store, sidecar: Sidecar, rebuilt: Rebuilt, *, tolerance: float | None = None) -> Verification:
    """Run the operator once and compare what it gives with what the sidecar says.

    Parameters
    ----------
    folder, sidecar
        A dump that `trust.check` let through.
    rebuilt
        Its operator over its inputs.
    tolerance
        Relative difference up to which two floating-point numbers are the same; only with a dump that kept its
        output. Null compares bit for bit.

    Raises
    ------
    ConfigError
        A tolerance without kept output.
    """
    expected = {int(number): one for number, one in sidecar.output.fingerprint.items()}
    if tolerance is not None and not sidecar.output.kept:
        raise ConfigError(
            "a tolerance needs the rows themselves, and this dump holds only their fingerprint",
            where="--tolerance",
            do="dump again with --keep-output-rows at least as large as the output",
        )
    try:
        rdd = rebuilt.rdd()
        # An error is expected of whatever was dumped.
        if sidecar.output.error is None and len(expected) < int(rdd.getNumPartitions()):
            rdd = rebuilt.bridge.prune(rdd, expected)
        frame = fingerprint.numbered(rebuilt.bridge.quiet(), rdd, rebuilt.attributes)
        found = fingerprint.of(frame, sorted(expected) if sidecar.output.error is None else None)
    except Exception as error:  # noqa: BLE001 - what it dies of is compared, too
        return _failed(sidecar, failure_of(error))
    if sidecar.output.error is not None:
        wanted = sidecar.output.error
        note = f"the original failed with {wanted.error_class}, and the replay did not fail"
        return Verification(False, None, sidecar.output.compared_with, None, None, note=(note,))
    return _compared(folder, sidecar, frame, expected, found, tolerance)


def _failed(sidecar: Sidecar, failure: Failure) -> Verification:
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


def _compared(
    folder: Store,
    sidecar: Sidecar,
    frame: DataFrame,
    expected: Mapping[int, PartitionPrint],
    found: Mapping[int, PartitionPrint],
    tolerance: float | None,
) -> Verification:
    wanted, given = fingerprint.total(expected), fingerprint.total(found)
    passed = wanted == given
    row_for_row = dict(expected) == dict(found)
    differing = tuple(
        number for number in sorted(expected) if _unordered(expected[number]) != _unordered(found[number])
    )
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    notes = [sidecar.masked] if sidecar.masked else []
    if not passed and sidecar.output.kept:
        original = output_rows(folder, sidecar, frame)
        if tolerance is not None and close(original, frame, tolerance):
            passed = True
            notes.append(f"not bit for bit: equal within a relative tolerance of {tolerance:g}")
        else:
            missing, extra = first_differences(original, frame)
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


def _unordered(one: PartitionPrint) -> tuple[int, int, int]:
    return one.n_rows, one.hash_sum, one.hash_xor


@contextlib.contextmanager
def carried(frame: DataFrame, into: Bridge) -> Iterator[DataFrame]:
    """A frame's rows, computed under its own session's settings and held, as a frame of another session.

    Whoever reads an RDD lends it the own settings: read from the other session, a value that depends on them would
    come out as there.
    """
    held = frame.persist()
    try:
        held.count()
        yield into.frame(bridge(frame.sparkSession).rows(held), held._jdf.schema())
    finally:
        held.unpersist()


def first_differences(
    expected: DataFrame, found: DataFrame, *, most: int = DIFFERENCES
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows that only one of two frames has (columns c0, c1 …), each as often as it has it more often; as JSON."""
    types = [field.dataType.simpleString() for field in found.schema.fields]
    hashing = fingerprint.row_hash_sql(types)

    def counted(frame: DataFrame, sign: int) -> Any:
        text = f"to_json(struct({', '.join(frame.columns)}))" if frame.columns else "'{}'"
        return frame.selectExpr(f"{hashing} AS h", f"{text} AS row", f"{sign} AS side")

    rows = (
        counted(expected, -1)
        .unionByName(counted(found, 1))
        .groupBy("h")
        .agg(*(fingerprint.expression(text) for text in ("sum(side) AS more", "first(row) AS row")))
        .filter("more <> 0")
        .orderBy("row")
    )
    missing = [row["row"] for row in rows.filter("more < 0").limit(most).collect()]
    extra = [row["row"] for row in rows.filter("more > 0").limit(most).collect()]
    return tuple(missing), tuple(extra)


def close(expected: DataFrame, found: DataFrame, tolerance: float) -> bool:
    """Are two small frames equal, in whatever order of rows, but for floating-point numbers that are close?"""
    return rows_close(expected.collect(), found.collect(), tolerance)


def rows_close(expected: Iterable[Any], found: Iterable[Any], tolerance: float) -> bool:
    """Are these the same rows, in whatever order, but for floating-point numbers that are close?

    Rows are parted by all that is exact in them, then by gaps wider than the tolerance between their floats; what no
    gap parts is paired in order, or each row with the first that is close. True is always right. False may be wrong
    where rows have several floats, and these form chains in which neighbours are close and the ends are not.
    """
    groups: dict[Any, tuple[list[Floats], list[Floats]]] = {}
    for side, rows in enumerate((expected, found)):
        for row in rows:
            floats: list[float] = []
            groups.setdefault(_exact(row, floats), ([], []))[side].append(tuple(floats))
    parts = (part for left, right in groups.values() for part in _parted(left, right, tolerance))
    return all(_paired(left, right, tolerance) for left, right in parts)


def _exact(value: Any, floats: list[float]) -> Any:
    """A value without its finite floats, which are put into the list: equal where all else is. NaN is itself."""
    if isinstance(value, float) and math.isfinite(value):
        floats.append(value)
        return None, "float"
    if isinstance(value, list | tuple):
        return tuple(_exact(item, floats) for item in value)
    if isinstance(value, dict):
        return tuple((str(key), _exact(value[key], floats)) for key in sorted(value, key=str))
    return type(value).__name__, str(value)


def _parted(left: list[Floats], right: list[Floats], tolerance: float) -> Iterator[tuple[list[Floats], list[Floats]]]:
    """Rows of both sides in parts: no row is close to one of another part in all its floats."""
    n_columns = len((left or right)[0])
    # With the column that is looked at next, and how many in turn did not part them.
    waiting = [(left, right, 0, 0)]
    while waiting:
        left, right, column, whole = waiting.pop()
        if whole == n_columns:
            yield left, right
            continue
        parts = _by_gaps(left, right, column, tolerance)
        whole = whole + 1 if len(parts) == 1 else 1
        waiting += [(*part, (column + 1) % n_columns, whole) for part in parts]


def _by_gaps(
    left: list[Floats], right: list[Floats], column: int, tolerance: float
) -> list[tuple[list[Floats], list[Floats]]]:
    sided = [(row, side) for side, rows in enumerate((left, right)) for row in rows]
    sided.sort(key=lambda one: one[0][column])
    parts: list[tuple[list[Floats], list[Floats]]] = [([], [])]
    before = sided[0][0]
    for row, side in sided:
        if not _near((before[column],), (row[column],), tolerance):
            parts.append(([], []))
        parts[-1][side].append(row)
        before = row
    return parts


def _paired(left: list[Floats], right: list[Floats], tolerance: float) -> bool:
    if len(left) != len(right):
        return False
    left, right = sorted(left), sorted(right)
    if all(_near(one, other, tolerance) for one, other in zip(left, right, strict=True)):
        return True
    if len(left) > MOST_PAIRED:
        return False
    for row in left:
        place = next((place for place, other in enumerate(right) if _near(row, other, tolerance)), None)
        if place is None:
            return False
        del right[place]
    return True


def _near(one: Floats, other: Floats, tolerance: float) -> bool:
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0) for a, b in zip(one, other, strict=True))
