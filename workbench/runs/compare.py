"""Compare two runs of a notebook: settings, inputs, machine, and tables row by row.

Figures with intervals in both runs get the ratio candidate / baseline with interval and verdict; all others only the
difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.files import is_store_failure
from workbench.core.formats import cut_text, cut_with_digest
from workbench.core.units import find_unit_factor
from workbench.runs.catalogue import StoredRun
from workbench.runs.columns import RunColumn, describe_changes, find_interval_columns, find_mismatch, read_columns
from workbench.stats import LEVEL, MARGIN, Interval, decide_verdicts, ratios
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED

if TYPE_CHECKING:
    import polars as pl

Row = dict[str, Any]
Verdict = Literal["HIGHER", "LOWER", "SAME", "UNDECIDED", "EQUAL"]
VERDICTS: tuple[Verdict, ...] = ("HIGHER", "LOWER", "UNDECIDED", "SAME", "EQUAL")
MAX_ROWS = 5000
MAX_TEXT_CHARS = 200
# Columns about an estimate, which are not compared.
_INTERVAL_DETAILS = ("level", "n", "p_value", "adjusted_p_value")
# Differs between any two runs without explaining anything.
_MOMENTARY_FACTS = ("load_1m",)
_VERDICT_WORDS: dict[str, Verdict] = {FASTER: "HIGHER", SLOWER: "LOWER", SAME: "SAME", UNDECIDED: "UNDECIDED"}


@dataclass(frozen=True)
class RunTable:
    """A table of one run: its rows, its key, its interval columns, and its columns as the run recorded them."""

    frame: pl.DataFrame
    key: tuple[str, ...] | None
    intervals: Mapping[str, tuple[str, str]]
    columns: Mapping[str, RunColumn] = field(default_factory=dict)

    def read_interval(self, row: Row, column: str) -> Interval:
        """Read a figure with its interval, if there is one; anything but a finite number is null.

        Ends in another unit are converted to that of the figure; without a plain factor there are none.
        """
        n = _to_finite_number(row.get("n"))
        low, high = (self._read_end(row, column, end) for end in self.intervals.get(column, ("", "")))
        return Interval(
            _to_finite_number(row.get(column)),
            low,
            high,
            self.read_level(row),
            int(n) if n is not None and 0 <= n < 2**53 else 0,
            "as recorded by the run",
        )

    def read_level(self, row: Row) -> float:
        """Confidence level of a row's intervals: its column `level`, 90 % without one."""
        level = _to_finite_number(row.get("level"))
        if level is not None and "level" in self.columns and self.columns["level"].unit:
            level *= self.columns["level"].find_factor(RunColumn("share")) or 1.0
        return level if level is not None and 0 < level < 1 else LEVEL

    def _read_end(self, row: Row, column: str, end: str) -> float | None:
        value, columns = _to_finite_number(row.get(end)), self.columns
        if value is None or column not in columns or end not in columns or not columns[end].unit:
            return value
        factor = columns[end].find_factor(columns[column])
        return None if factor is None else value * factor


def _to_finite_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def load_run_table(run: StoredRun, table: str) -> RunTable:
    """Read a table of a run with key and intervals from its record; older records have neither."""
    frame, entry = run.read_table(table), run.table_entry(table)
    key = entry.get("key")
    noted = tuple(key) if isinstance(key, list) and key and all(name in frame.columns for name in key) else None
    intervals = _read_recorded_intervals(entry.get("intervals"), frame)
    if intervals is None:
        intervals = find_interval_columns(_list_numeric_columns(frame))
    return RunTable(frame, noted, intervals, read_columns(entry, frame))


def _read_recorded_intervals(noted: Any, frame: pl.DataFrame) -> dict[str, tuple[str, str]] | None:
    """Recorded columns of the interval's ends (low, high) by column of the figure; null if nothing is recorded.

    Columns that the frame lacks, or that are not numbers, are left out.
    """
    if not isinstance(noted, dict):
        return None
    numeric = set(_list_numeric_columns(frame))
    return {
        name: (ends[0], ends[1])
        for name, ends in noted.items()
        if isinstance(ends, list) and len(ends) == 2 and {name, *map(str, ends)} <= numeric
    }


def _list_numeric_columns(frame: pl.DataFrame) -> list[str]:
    return [name for name, dtype in frame.schema.items() if dtype.is_numeric()]


@dataclass(frozen=True)
class PairedTable:
    """Rows of one table in two runs.

    `own`: Key columns that were left out because they identify the run: one value in each run, not the same.
    """

    baseline: RunTable
    candidate: RunTable
    key: tuple[str, ...]
    own: tuple[str, ...]
    both: list[tuple[Row, Row]] = field(repr=False)
    only_baseline: list[Row] = field(repr=False)
    only_candidate: list[Row] = field(repr=False)
    columns: tuple[str, ...] = ()

    def format_row_name(self, row: Row) -> str:
        """The values of a row's key, as text; no two rows have the same."""
        texts = [str(row[name]) for name in self.key]
        return ", ".join(repr(text) if ", " in text and len(texts) > 1 else text for text in texts)

    def list_interval_columns(self) -> list[str]:
        """Columns with an interval in both runs."""
        return [name for name in self.columns if name in self.baseline.intervals and name in self.candidate.intervals]

    def list_figures(self) -> list[str]:
        """Columns of numbers that can be compared: neither of the key, nor about another figure."""
        about = {*self.key, *self.own, *_INTERVAL_DETAILS}
        about |= {end for side in (self.baseline, self.candidate) for ends in side.intervals.values() for end in ends}
        return [
            name
            for name in self.columns
            if name not in about and self.candidate.frame.schema[name].is_numeric() and not self.find_mismatch(name)
        ]

    def find_mismatch(self, column: str) -> str:
        """Why a column's values in the two runs cannot be compared; empty where they can."""
        sides = self._get_column(column)
        return find_mismatch(*sides) if sides else ""

    def find_factor(self, column: str) -> float:
        """What one unit of a column in the baseline is in the candidate; 1 where they cannot be compared."""
        sides = self._get_column(column)
        return (sides[0].find_factor(sides[1]) if sides else 1.0) or 1.0

    def find_units(self, column: str) -> tuple[str, str]:
        """The units in which `read_intervals` gives a figure of both runs: one, where a plain factor leads there."""
        sides = self._get_column(column)
        units = [side.unit or "" for side in sides] if sides else ["", ""]
        return (units[1] if not sides or sides[0].find_factor(sides[1]) else units[0]), units[1]

    def _get_column(self, column: str) -> tuple[RunColumn, RunColumn] | None:
        columns = self.baseline.columns, self.candidate.columns
        return (columns[0][column], columns[1][column]) if all(column in side for side in columns) else None

    def read_intervals(self, before: Row, after: Row, column: str) -> tuple[Interval, Interval]:
        """A figure of a matched row in both runs, that of the baseline in the unit of the candidate."""
        figure = self.baseline.read_interval(before, column)
        return scale_interval(figure, self.find_factor(column)), self.candidate.read_interval(after, column)

    def describe_columns(self) -> list[str]:
        """Sentences on columns that are in one run only, or not the same in both."""
        names = [list(side.frame.columns) for side in (self.baseline, self.candidate)]
        ends = {end for name in self.list_interval_columns() for end in self.candidate.intervals[name]}
        notes = [
            f"columns only in the {which}: {', '.join(only)}"
            for which, own, others in (("baseline", *names), ("candidate", *names[::-1]))
            if (only := [name for name in own if name not in others])
        ]
        return [cut_text(note, MAX_TEXT_CHARS) for note in notes] + [
            note for name in self.columns if name not in ends for note in self.describe_column(name)
        ]

    def describe_column(self, column: str) -> list[str]:
        """Sentences on how a column differs between the two runs."""
        sides = self._get_column(column)
        return [cut_text(note, MAX_TEXT_CHARS) for note in describe_changes(column, *sides)] if sides else []


def scale_interval(value: Interval, factor: float) -> Interval:
    """A figure in another unit."""
    if factor == 1:
        return value
    ends = (value.estimate, value.low, value.high)
    estimate, low, high = (None if end is None else end * factor for end in ends)
    return replace(value, estimate=estimate, low=low, high=high)


def pair_rows(baseline: RunTable, candidate: RunTable) -> PairedTable:
    """Match the rows of one table in two runs.

    By the declared key; for older runs by the fewest leading columns (neither floats nor lists) that identify all rows
    of both runs.
    """
    columns = tuple(name for name in candidate.frame.columns if name in baseline.frame.columns)
    keys, run_columns = _choose_key(baseline, candidate, columns)
    if wrong := [name for name in keys if baseline.frame.schema[name] != candidate.frame.schema[name]]:
        raise InputError("key has different types in the two runs", where="column(s) " + ", ".join(wrong))
    if notes := _list_unit_changes(baseline, candidate, keys):
        raise InputError("key has different units in the two runs", found=notes)
    before, after = _index_by_key(baseline.frame, keys), _index_by_key(candidate.frame, keys)
    both = [(before[name], row) for name, row in after.items() if name in before]
    return PairedTable(
        baseline,
        candidate,
        keys,
        run_columns,
        both,
        [row for name, row in before.items() if name not in after],
        [row for name, row in after.items() if name not in before],
        columns,
    )


def _choose_key(
    baseline: RunTable, candidate: RunTable, columns: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Choose the columns that match rows of both tables: those recorded, or else the fewest that make rows unique.

    Returns: The key, and the columns that only name the run.
    """
    import polars as pl

    frames = (baseline.frame, candidate.frame)
    noted = candidate.key or baseline.key
    if noted and set(noted) <= set(columns):
        run_columns = tuple(name for name in noted if _identifies_run(name, *frames))
        keys = tuple(name for name in noted if name not in run_columns)
        if all(_is_unique_key(frame, keys) for frame in frames):
            return keys, run_columns
    run_columns = tuple(name for name in columns if _can_be_key(name, *frames) and _identifies_run(name, *frames))
    usable = [name for name in columns if _can_be_key(name, *frames) and name not in run_columns]
    # Single rows may be of two things: a first column of text names them.
    fewest = int(bool(usable) and usable[0] == columns[0] and baseline.frame.schema[usable[0]] == pl.String)
    for count in range(fewest, len(usable) + 1):
        if all(_is_unique_key(frame, usable[:count]) for frame in frames):
            return tuple(usable[:count]), run_columns
    raise InputError("no column identifies its rows", found=usable or "only floats and lists")


def _list_unit_changes(baseline: RunTable, candidate: RunTable, keys: Sequence[str]) -> list[str]:
    sides = [(name, baseline.columns.get(name), candidate.columns.get(name)) for name in keys]
    return [
        f"{name}: {before.unit or 'none'} and {after.unit or 'none'}"
        for name, before, after in sides
        if before and after and before.kind == "number" and find_unit_factor(before.unit or "", after.unit or "") != 1
    ]


def _can_be_key(name: str, *frames: pl.DataFrame) -> bool:
    return not any(frame.schema[name].is_float() or frame.schema[name].is_nested() for frame in frames)


def _identifies_run(name: str, base: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Tell whether a text column has one value in each run, and another in the other.

    A number would be a measurement.
    """
    import polars as pl

    if not base.height or not other.height or {base.schema[name], other.schema[name]} != {pl.String()}:
        return False
    values = (base[name].unique(), other[name].unique())
    return all(len(series) == 1 for series in values) and values[0][0] != values[1][0] and name.endswith("_id")


def _is_unique_key(frame: pl.DataFrame, keys: Sequence[str]) -> bool:
    return frame.height <= 1 if not keys else not frame.select(keys).is_duplicated().any()


def _index_by_key(frame: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in keys): row for row in frame.iter_rows(named=True)}


@dataclass(frozen=True)
class Contrast:
    """One figure with its interval in both runs.

    `unit`, `baseline_unit`: Those of the two figures; the baseline is converted where a plain factor leads there.
    `ratio`: candidate / baseline with its interval at 90 %; null with the reason.
    `verdict`: HIGHER, LOWER, SAME or UNDECIDED, adjusted by Holm over all contrasts of the comparison; EQUAL where
    both runs have the same figure and interval to the last digit; null without an interval.
    `adjusted_p_value`: P value of the verdict; null where there was none.
    """

    row: str
    column: str
    unit: str
    baseline: Interval
    candidate: Interval
    ratio: Interval
    verdict: Verdict | None = None
    adjusted_p_value: float | None = None
    baseline_unit: str = ""


@dataclass(frozen=True)
class Change:
    """A value without interval that differs between the runs.

    `difference`: candidate - baseline, for numbers of valid runs.
    """

    row: str
    column: str
    unit: str
    baseline: Any
    candidate: Any
    difference: float | None


@dataclass(frozen=True)
class TableDiff:
    """One table in two runs; `note` says why it was not compared, or only in part.

    `rows` counts the rows of both runs; `only_baseline` and `only_candidate` name the rows of one run only.
    `column_notes` tells which columns are not the same in both runs.
    """

    name: str
    rows: int = 0
    key: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    changes: tuple[Change, ...] = ()
    note: str | None = None
    column_notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of contrasts by verdict."""
        tally = Counter(contrast.verdict for contrast in self.contrasts if contrast.verdict)
        return {verdict: tally[verdict] for verdict in VERDICTS}


@dataclass(frozen=True)
class Comparison:
    """Differences between two runs.

    Attributes
    ----------
    baseline, candidate
        The runs.
    facts
        Other differences: (kind, name, baseline, candidate) as text, null where a side has none.
    tables
        In the candidate's order.
    notes
        Assumptions of the verdicts.
    """

    baseline: StoredRun
    candidate: StoredRun
    facts: tuple[tuple[str, str, str | None, str | None], ...]
    tables: tuple[TableDiff, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def objection(self) -> str:
        """Which runs are not valid, and why; empty where both are."""
        bad = {run.run_id: run.objection.removeprefix("it ") for run in (self.baseline, self.candidate)}
        return " and ".join(f"run {run_id} {reason}" for run_id, reason in bad.items() if reason)

    @property
    def counts(self) -> dict[str, int]:
        """Number of contrasts by verdict, over all tables."""
        return {verdict: sum(table.counts[verdict] for table in self.tables) for verdict in VERDICTS}


def compare_runs(baseline: StoredRun, candidate: StoredRun, *, other_area: bool = False) -> Comparison:
    """Compare two runs of one notebook.

    Returns: Verdicts hold for all contrasts together (Holm, 90 %, margin 2 %). Figures of a run that is not valid,
    and of a column with another unit or type, have neither ratio nor verdict.

    Assumes independent runs. Does not show why they differ. The spread between runs is covered only as far as the
    intervals of the runs include it.
    """
    if baseline.area != candidate.area and not other_area:
        areas = f"{baseline.area} and {candidate.area}"
        raise ConfigError("runs of different areas", where="runs diff", found=areas, do="compare them with --any")
    tables = _assign_verdicts(
        [_compare_table(name, baseline, candidate) for name in _list_table_names(baseline, candidate)]
    )
    # Notes on a comparison: its assumptions, shared inputs, and runs that are not valid.
    notes = [
        f"Intervals are {100 * LEVEL:.0f} %; the two runs are taken as independent of each other.",
        f"Verdicts allow for a margin of {100 * MARGIN:.0f} % and, by Holm, for all comparisons made here at once.",
    ]
    digests = [
        {entry.get("sha256") for entry in run.record["inputs"] if isinstance(entry, Mapping)} - {None}
        for run in (baseline, candidate)
    ]
    if digests[0] & digests[1]:
        notes.append(
            "Both runs read the same inputs: where a figure comes from those alone, the runs are not independent, and "
            "a difference comes from settings or versions, whatever its verdict."
        )
    notes += [
        f"No ratios and no verdicts for the {which}: {run.objection}."
        for run, which in ((baseline, "baseline"), (candidate, "candidate"))
        if run.objection
    ]
    return Comparison(
        baseline,
        candidate,
        tuple(list_fact_differences(baseline.build_document(), candidate.build_document())),
        tables,
        tuple(notes),
    )


def _list_table_names(baseline: StoredRun, candidate: StoredRun) -> list[str]:
    return list(dict.fromkeys([*candidate.list_table_names(), *baseline.list_table_names()]))


def _compare_table(name: str, baseline: StoredRun, candidate: StoredRun) -> TableDiff:
    for run, which in ((baseline, "candidate"), (candidate, "baseline")):
        if name not in run.list_table_names():
            return TableDiff(name, note=f"only the {which} has it")
    try:
        before, after = load_run_table(baseline, name), load_run_table(candidate, name)
        if max(before.frame.height, after.frame.height) > MAX_ROWS:
            counted = f"{before.frame.height:,} and {after.frame.height:,}"
            return TableDiff(name, note=f"skipped, more than {MAX_ROWS:,} rows ({counted})")
        pairs = pair_rows(before, after)
    except WorkbenchError as error:
        if isinstance(error, InputError) and is_store_failure(error):
            raise
        return TableDiff(name, note=str(error).replace("\n  ", "; "))
    # Why two runs have no ratios; empty where both are valid.
    sides = ((baseline, "baseline"), (candidate, "candidate"))
    objection = next((f"the {which} is not valid" for run, which in sides if run.objection), "")
    return TableDiff(
        name,
        len(pairs.both),
        pairs.key,
        pairs.own,
        tuple(cut_with_digest(pairs.format_row_name(row), MAX_TEXT_CHARS) for row in pairs.only_baseline),
        tuple(cut_with_digest(pairs.format_row_name(row), MAX_TEXT_CHARS) for row in pairs.only_candidate),
        tuple(_iterate_contrasts(pairs, objection)),
        tuple(_iterate_changes(pairs, objection)),
        column_notes=tuple(pairs.describe_columns()),
    )


def _iterate_contrasts(pairs: PairedTable, objection: str) -> Iterator[Contrast]:
    """Yield for each matched row and each figure with an interval the ratio of candidate to baseline."""
    columns = pairs.list_interval_columns()
    objections = {column: objection or pairs.find_mismatch(column) for column in columns}
    units = {column: pairs.find_units(column) for column in columns}
    for before, after in pairs.both:
        for column in columns:
            base, other = pairs.read_intervals(before, after, column)
            if base.estimate is None and other.estimate is None:
                continue
            ratio = ratios.independent_ratio(base, other)
            if reason := objections[column]:
                ratio = replace(ratio, estimate=None, low=None, high=None, p_value=None, reason=reason)
            name = cut_with_digest(pairs.format_row_name(after), MAX_TEXT_CHARS)
            base_unit, unit = units[column]
            yield Contrast(name, column, unit, base, other, ratio, baseline_unit=base_unit)


def _iterate_changes(pairs: PairedTable, objection: str) -> Iterator[Change]:
    """Yield each value without an interval that differs in a matched row."""
    with_ends = pairs.list_interval_columns()
    ends = {end for name in with_ends for side in (pairs.baseline, pairs.candidate) for end in side.intervals[name]}
    columns = [
        name
        for name in pairs.columns
        if name not in {*pairs.key, *pairs.own, *with_ends, *ends, *_INTERVAL_DETAILS} and not pairs.find_mismatch(name)
    ]
    factors = {column: pairs.find_factor(column) for column in columns}
    for before, after in pairs.both:
        for column in columns:
            base, other = _convert(before[column], factors[column], after[column]), after[column]
            is_same_value = bool(base == other) or (
                isinstance(base, float) and isinstance(other, float) and base != base and other != other
            )
            if not is_same_value:
                values = (_to_json_value(base), _to_json_value(other))
                yield Change(
                    cut_with_digest(pairs.format_row_name(after), MAX_TEXT_CHARS),
                    column,
                    pairs.find_units(column)[1],
                    *values,
                    None if objection else _subtract_numbers(*values),
                )


def _convert(value: Any, factor: float, other: Any) -> Any:
    """A value times a factor; the other value where only rounding parts them."""
    if factor == 1 or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    is_number = isinstance(other, int | float)
    return other if is_number and math.isclose(value * factor, other, rel_tol=1e-12) else value * factor


def _to_json_value(value: Any) -> Any:
    """Convert a value to one that JSON can hold."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return cut_text(str(value), MAX_TEXT_CHARS)


def _subtract_numbers(base: Any, other: Any) -> float | None:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (base, other)):
        return None
    try:
        return float(other - base)
    except OverflowError:
        return None


def _assign_verdicts(tables: Sequence[TableDiff]) -> tuple[TableDiff, ...]:
    """Give all contrasts of all tables their verdicts, adjusted together for their number."""
    judged = iter(judge_contrasts([contrast for table in tables for contrast in table.contrasts]))
    return tuple(replace(table, contrasts=tuple(next(judged) for _ in table.contrasts)) for table in tables)


def judge_contrasts(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Contrasts with verdicts that hold for all of them together; null where the ratio has no interval."""
    decisions = decide_verdicts([contrast.ratio for contrast in contrasts], margin=MARGIN)
    return [
        replace(
            contrast,
            verdict=_name_verdict(contrast, decision.verdict) if contrast.ratio.low is not None else None,
            adjusted_p_value=decision.adjusted_p_value,
        )
        for contrast, decision in zip(contrasts, decisions, strict=True)
    ]


def _name_verdict(contrast: Contrast, verdict: str) -> Verdict:
    sides = [(side.estimate, side.low, side.high) for side in (contrast.baseline, contrast.candidate)]
    # A figure that comes out the same needs no test, however wide its interval.
    return "EQUAL" if verdict == UNDECIDED and sides[0] == sides[1] else _VERDICT_WORDS[verdict]


def list_fact_differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Yield the differences between two run records besides the tables: kind, name, value before, value after."""
    plain = ("status", "verdict", "answer", "notebook", "package_version", "git_commit")
    sides = [
        {("run", name): record.get(name) for name in plain}
        | {("run", "reasons"): "; ".join(map(str, record.get("reasons") or [])) or None}
        | {("setting", name): value for name, value in _flatten_mapping(record.get("config"))}
        | {("input", name): digest for name, digest in _list_input_digests(record)}
        | {("version", name): value for name, value in _flatten_mapping(record.get("versions"))}
        | {
            ("machine", name): value
            for name, value in _flatten_mapping(record.get("host"))
            if name not in _MOMENTARY_FACTS
        }
        for record in (before, after)
    ]
    order = ("run", "setting", "input", "version", "machine")
    for kind, name in sorted({**sides[0], **sides[1]}, key=lambda pair: order.index(pair[0])):
        base, other = (side.get((kind, name)) for side in sides)
        if base != other:
            texts = [None if value is None else cut_text(str(value), MAX_TEXT_CHARS) for value in (base, other)]
            yield kind, cut_text(name, MAX_TEXT_CHARS), texts[0], texts[1]


def _flatten_mapping(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings with their dotted names, down to five levels.

    >>> dict(_flatten_mapping({"a": {"b": 1}, "c": 2}))
    {'a.b': 1, 'c': 2}
    """
    if not isinstance(value, Mapping) or depth > 5:
        return
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner and depth < 5:
            yield from _flatten_mapping(inner, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", inner


def _list_input_digests(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and the SHA-256 of each recorded input."""
    for entry in record["inputs"]:
        if isinstance(entry, Mapping) and isinstance(entry.get("path"), str):
            yield entry["path"], entry.get("sha256") or "no sha256"
