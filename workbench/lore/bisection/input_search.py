"""Search for smaller inputs: the predicate that must hold, and the steps of the search."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.journal import Journal, read_lines
from workbench.core.user_code import load_user_function
from workbench.lore.bisection.row_subsets import InputSubset, RowNumbers, ddmin
from workbench.lore.dumps.dump_folder import PartitionPrint, Sidecar
from workbench.lore.replays import row_differences
from workbench.lore.replays.output_verification import collect_table, name_columns
from workbench.lore.replays.row_differences import parse_expression, quote_name
from workbench.lore.spark_bridge import operator_isolation
from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator, assemble_operator
from workbench.lore.spark_bridge.query_runs import OperatorFailure, describe_failure
from workbench.lore.spark_bridge.spark_internals import Bridge, connect_bridge

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame

UserCheck = Callable[["pl.DataFrame"], Any]
FORMAT = "workbench-lore-search/1"
# An answer lists the runs of its rows.
MAX_LINE_BYTES = 64 << 20
# A part of some inputs: the number of the input, and the runs of its rows.
Part = tuple[int, tuple[tuple[int, int], ...]]
# Rows of the operator's inputs, by number of the input.
Frames = Mapping[int, "DataFrame"]
# Values in messages: quoted texts and numbers.
_VALUES_PATTERN = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.,:eE+-]*")
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class OutputCheck:
    """A check of an output for one kind of fault.

    `finds_fault`: Called with the output (columns named as in the query) and the number of rows of the first input.
    """

    looked_for: str
    finds_fault: Callable[[DataFrame, int], bool]


def load_user_check(place: str, *, where: str = "--check") -> UserCheck:
    """The function of `module:function` or `FILE.py:function`."""
    return load_user_function(place, where=where, message="the check cannot be loaded")


def is_fault(answer: Any) -> bool:
    """Does the answer of a user's check say that the output is wrong: False, or failing rows?

    >>> is_fault(True), is_fault(False), is_fault([]), is_fault([{"amount": -1}])
    (False, True, False, True)
    """
    if hasattr(answer, "item") and not hasattr(answer, "columns"):
        answer = answer.item()
    if isinstance(answer, bool):
        return not answer
    try:
        return len(answer) > 0
    except TypeError:
        raise ConfigError(
            "the check gave neither true or false nor rows",
            where="--check",
            found=repr(answer)[:100],
            allowed="True (the output is right), False, or the failing rows",
        ) from None


def check_by_function(check: UserCheck, name: str) -> OutputCheck:
    """The output as a polars table: the function returns False or the failing rows when it is wrong."""

    def finds_fault(frame: DataFrame, _: int) -> bool:
        try:
            return is_fault(check(collect_table(frame)))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                "the check failed",
                where=f"--check {name}",
                found=f"{type(error).__name__}: {error}"[:500],
                do="it gets a polars table of the output, also one without rows",
            ) from error

    return OutputCheck(f"an output that {name} calls wrong", finds_fault)


def check_by_sql(condition: str) -> OutputCheck:
    """Wrong rows are those that meet a SQL condition over the columns of the output."""
    return OutputCheck(
        f"a row with {condition}", lambda frame, _: not frame.filter(parse_expression(condition)).isEmpty()
    )


def check_no_nulls(columns: Sequence[str]) -> OutputCheck:
    """No null in these columns."""
    condition = " OR ".join(f"{quote_name(name)} IS NULL" for name in columns)
    return OutputCheck(f"a null in {', '.join(columns)}", lambda frame, _: not frame.filter(condition).isEmpty())


def check_unique(columns: Sequence[str]) -> OutputCheck:
    """No two rows with the same values in these columns."""

    def finds_fault(frame: DataFrame, _: int) -> bool:
        return not frame.groupBy(*map(quote_name, columns)).count().filter("count > 1").isEmpty()

    return OutputCheck(f"two rows with the same {', '.join(columns)}", finds_fault)


def check_row_count(rule: str) -> OutputCheck:
    """Build a check for as many rows as the first input (`same`), or not more (`at-most`)."""

    def finds_fault(frame: DataFrame, n_rows: int) -> bool:
        n_found = frame.count()
        return bool(n_found > n_rows if rule == "at-most" else n_found != n_rows)

    wrong = "more rows than" if rule == "at-most" else "another number of rows than"
    return OutputCheck(f"{wrong} input-0", finds_fault)


class SearchJournal:
    """Answers of a search in the order in which they were asked for, one JSON line each.

    The search asks the same questions in the same order, so the answers in the file are taken one by one as long as the
    questions match; then the rest is asked and written. A line that a kill cut off is dropped.

    `identity`: What the search is about: a journal of another dump or condition is refused.
    """

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path = path
        self.n_resumed = self._next = 0
        self._known: list[tuple[Part, bool]] = []
        try:
            self._file = Journal(path, _encode_line, noun="the journal", busy="another search writes this journal")
        except RunFailedError as error:
            found, do = error.facts["found"], "name a file in a folder that you can write to"
            raise ConfigError(error.what, where=f"--journal {path}", found=found, do=do) from error
        try:
            self._resume({"format": FORMAT, **identity})
        except BaseException:
            self._file.close()
            raise

    def _resume(self, head: dict[str, Any]) -> None:
        """Read the answers of a journal, or begin one."""
        try:
            lines = [json.loads(line) for _, line in read_lines(self.path, max_line_bytes=MAX_LINE_BYTES)]
            self._known = [(_parse_part(line), bool(line["holds"])) for line in lines[1:]]
        except (ValueError, TypeError, KeyError, RecursionError):
            lines = []
        if not lines and self.path.stat().st_size:
            raise ConfigError("not a journal of a search", where=f"--journal {self.path}", do="choose a new file")
        if not lines:
            self._write_line(head)
        elif lines[0] != json.loads(json.dumps(head)):
            do = "choose a new file, or remove this one"
            raise ConfigError("a journal of another search", where=f"--journal {self.path}", do=do)

    def find_answer(self, part: Part) -> bool | None:
        """Answer that the journal holds next, if it is to this question; null otherwise."""
        if self._next >= len(self._known) or self._known[self._next][0] != part:
            self._next = len(self._known)
            return None
        self._next += 1
        self.n_resumed += 1
        return self._known[self._next - 1][1]

    def add_answer(self, part: Part, *, holds: bool) -> None:
        """Write an answer; it is on the disk when this returns."""
        self._write_line({"input": part[0], "rows": part[1], "holds": holds})

    def _write_line(self, document: dict[str, Any]) -> None:
        self._file.put(document)
        self._file.flush(sync=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _encode_line(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _parse_part(line: dict[str, Any]) -> Part:
    return int(line["input"]), tuple((int(start), int(end)) for start, end in line["rows"])


@dataclass(frozen=True)
class OperatorOutput:
    """Outcome of the operator on some rows: its output or an error."""

    rows: PartitionPrint | None
    failure: OperatorFailure | None = None

    @property
    def kind(self) -> str:
        """Class of the error; empty for rows."""
        return "" if self.failure is None else self.failure.error_class

    def differs_from(self, other: OperatorOutput) -> bool:
        """Has the other outcome different rows or another error?"""
        one, two = ((it.failure.error_class, it.failure.message) if it.failure else it.rows for it in (self, other))
        return one != two

    def __str__(self) -> str:
        if self.failure is not None:
            return f"{self.failure.error_class}: {self.failure.message}"
        return f"{self.rows.n_rows} rows" if self.rows is not None else "nothing"


class OperatorVariant:
    """The operator under one set of settings, loaded once and rebuilt over new rows in every step."""

    def __init__(self, bridge: Bridge, sidecar: Sidecar, plan: bytes, engine: str) -> None:
        self.bridge, self.engine = bridge, engine
        self.name = sidecar.operator
        self.column_names = [column.name for column in sidecar.output.columns]
        self._counts = [entry.n_partitions for entry in sidecar.inputs]
        bridge.activate()
        self._operator = bridge.deserialize(plan)
        operator_isolation.rebind_python_functions(self._operator, bridge)

    def rebuild_over(self, frames: Frames) -> RebuiltOperator:
        """The operator over these rows, rebuilt so that no broadcast or shuffle of an earlier step is reused."""

        def frame_rows(index: int) -> tuple[Any, int]:
            # In the session of the frame: reading must not depend on the settings of this side.
            return connect_bridge(frames[index].sparkSession).internal_rows(frames[index]), self._counts[index]

        return assemble_operator(self._operator, frame_rows, self.bridge, engine=self.engine != "spark")

    def run_to_frame(self, frames: Frames) -> DataFrame:
        """Its output, with columns c0, c1 …"""
        over = self.rebuild_over(frames)
        return row_differences.number_columns(self.bridge.quiet_bridge(), over.output_rdd(), over.attributes)

    def run_to_outcome(self, frames: Frames) -> OperatorOutput:
        """Its output as a fingerprint, or its error."""
        try:
            return OperatorOutput(
                row_differences.merge_prints(row_differences.fingerprint_partitions(self.run_to_frame(frames)))
            )
        except Exception as error:  # noqa: BLE001 - the error is the result
            return OperatorOutput(None, describe_failure(error))


@dataclass(frozen=True)
class SearchPredicate:
    """The condition that a reduced input must still meet."""

    looked_for: str
    holds: Callable[[Frames], bool]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotReproduced:
    """Reason why the error or difference did not reproduce."""

    looked_for: str
    reason: str


def build_error_predicate(side: OperatorVariant, sidecar: Sidecar, frames: Frames) -> SearchPredicate | NotReproduced:
    """Condition: the error that the dump expects, or without one the error of this run.

    Class and message must equal those of the original. Where the whole input gives a message that differs only in its
    values (another one of several bad rows came first), messages are compared without numbers and quoted texts.
    """
    wanted, failure = sidecar.output.error, side.run_to_outcome(frames).failure
    if wanted is None:
        if failure is None:
            reason = "the operator fails neither here nor in the original; compare two sides with --a, --b or --engine"
            return NotReproduced("an error", reason)
        note = "the original did not fail: the search is for the error of this run"
        return _build_predicate(side, failure.error_class, failure.message, notes=(note,))
    looked_for = f"{wanted.error_class}: {wanted.message}"
    if failure is None:
        return NotReproduced(looked_for, "the operator does not fail here")
    if failure.error_class == wanted.error_class:
        if failure.message == wanted.message:
            return _build_predicate(side, wanted.error_class, wanted.message)
        if strip_values(failure.message) == strip_values(wanted.message):
            note = "another bad row was found first: messages are compared without numbers and quoted texts"
            return _build_predicate(side, wanted.error_class, wanted.message, spelled=strip_values, notes=(note,))
    return NotReproduced(looked_for, f"the operator fails with another error here: {failure}")


def strip_values(message: str) -> str:
    """A message without numbers and quoted texts, the values of the failing row.

    >>> strip_values("The value '12a' of the type \\"STRING\\" cannot be cast, line 7")
    'The value ? of the type ? cannot be cast, line ?'
    """
    return _VALUES_PATTERN.sub("?", message)


def _build_predicate(
    side: OperatorVariant,
    error_class: str,
    message: str,
    *,
    spelled: Callable[[str], str] = str,
    notes: tuple[str, ...] = (),
) -> SearchPredicate:
    """Predicate that holds if the operator fails with this error class and message.

    `spelled`: Normalises messages before they are compared.
    """
    wanted = (error_class, spelled(message))

    def fails_alike(frames: Frames) -> bool:
        failure = side.run_to_outcome(frames).failure
        return failure is not None and (failure.error_class, spelled(failure.message)) == wanted

    return SearchPredicate(f"{error_class}: {message}", fails_alike, notes)


def build_difference_predicate(
    a: OperatorVariant, b: OperatorVariant, frames: Frames
) -> SearchPredicate | NotReproduced:
    """Condition: outputs of A and B differ in the same way as on the whole input (rows, or the class of an error)."""
    first, second = a.run_to_outcome(frames), b.run_to_outcome(frames)
    looked_for = "different outputs of A and B"
    if not first.differs_from(second):
        return NotReproduced(looked_for, f"both sides give the same output: {first}")
    kinds = (first.kind, second.kind)

    def differs_alike(part: Frames) -> bool:
        outcome = a.run_to_outcome(part)
        if outcome.kind != kinds[0]:
            return False
        other = b.run_to_outcome(part)
        return other.kind == kinds[1] and outcome.differs_from(other)

    return SearchPredicate(looked_for, differs_alike)


def build_check_predicate(
    side: OperatorVariant, checks: Sequence[OutputCheck], frames: Frames
) -> SearchPredicate | NotReproduced:
    """Condition: the first of the checks that finds a fault in the output of the whole input finds it again."""

    def finds_fault(check: OutputCheck, part: Frames) -> bool:
        n_rows = part[0].count() if part else 0
        frame = name_columns(side.run_to_frame(part), side.column_names)
        return check.finds_fault(frame, n_rows)

    for check in checks:
        if finds_fault(check, frames):
            return SearchPredicate(check.looked_for, lambda part, check=check: _holds_safely(finds_fault, check, part))  # type: ignore[misc]
    wanted = " or ".join(check.looked_for for check in checks)
    return NotReproduced(wanted, "the output of the whole input has nothing of it")


def _holds_safely(finds_fault: Callable[[OutputCheck, Frames], bool], check: OutputCheck, part: Frames) -> bool:
    """A part on which the operator fails does not show the fault; an error of the check itself is raised."""
    try:
        return finds_fault(check, part)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - the operator failed on this part
        describe_failure(error)
        return False


class _StepsExhausted(Exception):  # noqa: N818 - not an error
    """The maximum number of steps is reached."""


class InputSearch:
    """Shrinks inputs in turn, by partitions, batches and rows, until no row can be left out.

    `journal`: Answers of an interrupted search, and where those of this one are written.
    """

    def __init__(
        self,
        subsets: Sequence[InputSubset],
        holds: Callable[[Frames], bool],
        max_steps: int,
        on_progress: OnProgress | None = None,
        journal: SearchJournal | None = None,
    ) -> None:
        self.journal = journal
        self.subsets, self.max_steps, self.on_progress = subsets, max_steps, on_progress
        self.steps, self.stopped = 0, False
        self._holds = holds
        self._asked: dict[tuple[int, RowNumbers], bool] = {}

    def remaining_frames(self, index: int | None = None, rows: RowNumbers | None = None) -> Frames:
        """Remaining rows of all inputs, with other rows for one of them."""
        return {
            place: subset.rows_frame(rows if place == index and rows is not None else subset.rows)
            for place, subset in enumerate(self.subsets)
        }

    def shrink_inputs(self) -> None:
        """Run the search."""
        try:
            for pieces in ("partitions", "batches"):
                for index, subset in enumerate(self.subsets):
                    self._shrink_by_pieces(index, getattr(subset, pieces))
            settled, index = 0, 0
            # A shrunk input stays settled until another one changes.
            while settled < len(self.subsets):
                settled = 1 if self._shrink_by_rows(index) else settled + 1
                index = (index + 1) % len(self.subsets)
        except _StepsExhausted:
            self.stopped = True

    def _shrink_by_pieces(self, index: int, pieces: Sequence[RowNumbers]) -> None:
        rows = self.subsets[index].rows
        row_pieces = [part for piece in pieces for run in piece.runs if len(part := rows.select_range(*run))]
        if len(row_pieces) < 2:
            return

        def join_rows(parts: Sequence[RowNumbers]) -> RowNumbers:
            return RowNumbers.from_runs(run for part in parts for run in part.runs)

        def keep_parts(parts: list[RowNumbers]) -> list[RowNumbers]:
            self._keep_rows(index, join_rows(parts), shrink=False)
            return parts

        ddmin(row_pieces, lambda parts: self._ask_predicate(index, join_rows(parts)), keep_parts)

    def _shrink_by_rows(self, index: int) -> bool:
        before = len(self.subsets[index].rows)
        after = ddmin(
            self.subsets[index].rows,
            lambda rows: self._ask_predicate(index, rows),
            lambda rows: self._keep_rows(index, rows, shrink=True),
        )
        return len(after) < before

    def _ask_predicate(self, index: int, rows: RowNumbers) -> bool:
        if (index, rows) not in self._asked:
            if self.steps >= self.max_steps:
                raise _StepsExhausted
            self.steps += 1
            self._asked[index, rows] = self._find_answer(index, rows)
        return self._asked[index, rows]

    def _find_answer(self, index: int, rows: RowNumbers) -> bool:
        if self.journal is None:
            return self._holds(self.remaining_frames(index, rows))
        part = (index, tuple(rows.runs))
        if (answer := self.journal.find_answer(part)) is not None:
            return answer
        holds = self._holds(self.remaining_frames(index, rows))
        self.journal.add_answer(part, holds=holds)
        return holds

    def _keep_rows(self, index: int, rows: RowNumbers, *, shrink: bool) -> RowNumbers:
        new_rows = self.subsets[index].keep_rows(rows, shrink=shrink)
        # Results for this input stay valid until its rows are renumbered; those for others do not.
        stays = {key: value for key, value in self._asked.items() if key[0] == index and new_rows == rows}
        self._asked = stays
        if self.on_progress:
            total = sum(subset.n_rows_dumped for subset in self.subsets)
            self.on_progress(total - sum(len(subset.rows) for subset in self.subsets), total)
        return new_rows
