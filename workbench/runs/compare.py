"""Compare two runs of a notebook: settings, inputs, machine, and tables row by row.

Figures with intervals in both runs get the ratio candidate / baseline with interval and verdict; all others only the
difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.files import is_store_failure
from workbench.stats import LEVEL, MARGIN, Interval, decide_verdicts, ratios
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs.catalogue import StoredRun

# Times are no estimates, even with columns of bounds after them.
_MOMENTS = ("at", "begin", "end")
Row = dict[str, Any]
Verdict = Literal["HIGHER", "LOWER", "SAME", "UNDECIDED"]
VERDICTS: tuple[Verdict, ...] = ("HIGHER", "LOWER", "UNDECIDED", "SAME")
MAX_ROWS = 5000
MAX_TEXT_CHARS = 200
# Columns about an estimate, which are not compared.
_INTERVAL_DETAILS = ("level", "n", "p_value", "adjusted_p_value")
# Differs between any two runs without explaining anything.
_MOMENTARY_FACTS = ("load_1m",)
_VERDICT_WORDS: dict[str, Verdict] = {FASTER: "HIGHER", SLOWER: "LOWER", SAME: "SAME", UNDECIDED: "UNDECIDED"}


def find_interval_columns(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Columns with an interval, by their names.

    `x, x_low, x_high`; `x_s, x_low_s, x_high_s`; or bare `low, high` (`low_s, high_s`) directly after the estimate.

    >>> find_interval_columns(["stack", "ratio", "low", "high", "gpus", "gpus_low", "gpus_high"])
    {'ratio': ('low', 'high'), 'gpus': ('gpus_low', 'gpus_high')}
    >>> find_interval_columns(["predicted_s", "predicted_low_s", "predicted_high_s", "at_s", "low_s", "high_s"])
    {'predicted_s': ('predicted_low_s', 'predicted_high_s')}
    """
    ordered = list(names)
    present = set(ordered)
    intervals: dict[str, tuple[str, str]] = {}
    for place, low in enumerate(ordered):
        parts = low.split("_")
        if "low" not in parts:
            continue
        at = parts.index("low")
        high = "_".join([*parts[:at], "high", *parts[at + 1 :]])
        estimate = "_".join(parts[:at] + parts[at + 1 :]) if at else _find_preceding_column(ordered, place, parts[1:])
        if high in present and estimate in present and "high" not in estimate.split("_"):
            intervals.setdefault(estimate, (low, high))
    return intervals


def _find_preceding_column(ordered: Sequence[str], place: int, unit: list[str]) -> str:
    name = ordered[place - 1] if place else ""
    parts = name.split("_")
    fits = not unit or parts[-len(unit) :] == unit
    return name if fits and parts[0] not in _MOMENTS else ""


@dataclass(frozen=True)
class RunTable:
    """A table of one run: its rows, its key and its interval columns."""

    frame: pl.DataFrame
    key: tuple[str, ...] | None
    intervals: Mapping[str, tuple[str, str]]

    def read_interval(self, row: Row, column: str) -> Interval:
        """Read a figure with its interval, if there is one; anything but a finite number is null."""
        low, high = self.intervals.get(column, ("", ""))
        level, n = _to_finite_number(row.get("level")), _to_finite_number(row.get("n"))
        return Interval(
            _to_finite_number(row.get(column)),
            _to_finite_number(row.get(low)),
            _to_finite_number(row.get(high)),
            level if level is not None and 0 < level < 1 else LEVEL,
            int(n) if n is not None and 0 <= n < 2**53 else 0,
            "as recorded by the run",
        )


def _to_finite_number(value: Any) -> float | None:
    import math

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
    return RunTable(
        frame, noted, find_interval_columns(_list_numeric_columns(frame)) if intervals is None else intervals
    )


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
        """The values of a row's key, as text."""
        return ", ".join(f"{row[name]}" for name in self.key)

    def list_interval_columns(self) -> list[str]:
        """Columns with an interval in both runs."""
        return [name for name in self.columns if name in self.baseline.intervals and name in self.candidate.intervals]


def pair_rows(baseline: RunTable, candidate: RunTable) -> PairedTable:
    """Match the rows of one table in two runs.

    By the declared key; for older runs by the fewest leading columns (neither floats nor lists) that identify all rows
    of both runs.
    """
    columns = tuple(name for name in candidate.frame.columns if name in baseline.frame.columns)
    keys, run_columns = _choose_key(baseline, candidate, columns)
    if wrong := [name for name in keys if baseline.frame.schema[name] != candidate.frame.schema[name]]:
        raise InputError("key has different types in the two runs", where="column(s) " + ", ".join(wrong))
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
    frames = (baseline.frame, candidate.frame)
    noted = candidate.key or baseline.key
    if noted and set(noted) <= set(columns):
        run_columns = tuple(name for name in noted if _identifies_run(name, *frames))
        keys = tuple(name for name in noted if name not in run_columns)
        if all(_is_unique_key(frame, keys) for frame in frames):
            return keys, run_columns
    run_columns = tuple(name for name in columns if _can_be_key(name, *frames) and _identifies_run(name, *frames))
    usable = [name for name in columns if _can_be_key(name, *frames) and name not in run_columns]
    for count in range(len(usable) + 1):
        if all(_is_unique_key(frame, usable[:count]) for frame in frames):
            return tuple(usable[:count]), run_columns
    raise InputError("no columns tell its rows apart", found=usable or "only floats and lists")


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

    `ratio`: candidate / baseline with its interval at 90 %; null ends with the reason.
    `verdict`: HIGHER, LOWER, SAME or UNDECIDED, adjusted by Holm over all contrasts of the comparison; null without
    an interval.
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


@dataclass(frozen=True)
class Change:
    """A value without interval that differs between the runs; `difference` is candidate - baseline, for numbers."""

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
    def counts(self) -> dict[str, int]:
        """Number of contrasts by verdict, over all tables."""
        return {verdict: sum(table.counts[verdict] for table in self.tables) for verdict in VERDICTS}


def compare_runs(baseline: StoredRun, candidate: StoredRun, *, other_area: bool = False) -> Comparison:
    """Compare two runs of one notebook.

    Returns: Verdicts hold for all contrasts together (Holm, 90 %, margin 2 %).

    Assumes independent runs. Does not show why they differ. The spread between runs is covered only as far as the
    intervals of the runs include it.
    """
    if baseline.area != candidate.area and not other_area:
        areas = f"{baseline.area} and {candidate.area}"
        raise ConfigError("runs of different areas", where="runs diff", found=areas, do="compare them with --any")
    tables = _assign_verdicts(
        [_compare_table(name, baseline, candidate) for name in _list_table_names(baseline, candidate)]
    )
    return Comparison(
        baseline,
        candidate,
        tuple(_list_fact_differences(baseline.record, candidate.record)),
        tables,
        _build_notes(baseline, candidate),
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
            counted = f"{before.frame.height:,} and {after.frame.height:,} rows"
            return TableDiff(name, note=f"{counted}: row by row at most {MAX_ROWS:,} are compared")
        pairs = pair_rows(before, after)
    except WorkbenchError as error:
        if isinstance(error, InputError) and is_store_failure(error):
            raise
        return TableDiff(name, note=str(error).replace("\n  ", "; "))
    units = _read_units(candidate, name)
    return TableDiff(
        name,
        len(pairs.both),
        pairs.key,
        pairs.own,
        tuple(_shorten_text(pairs.format_row_name(row)) for row in pairs.only_baseline),
        tuple(_shorten_text(pairs.format_row_name(row)) for row in pairs.only_candidate),
        tuple(_iterate_contrasts(pairs, units)),
        tuple(_iterate_changes(pairs, units)),
    )


def _read_units(run: StoredRun, table: str) -> dict[str, str]:
    noted = run.table_entry(table).get("units")
    return {str(name): _shorten_text(unit) for name, unit in noted.items()} if isinstance(noted, Mapping) else {}


def _find_unit(column: str, units: Mapping[str, str]) -> str:
    from workbench.core.formats import find_unit

    return units.get(column) or find_unit(column)


def _iterate_contrasts(pairs: PairedTable, units: Mapping[str, str]) -> Iterator[Contrast]:
    """Yield for each matched row and each figure with an interval the ratio of candidate to baseline."""
    for before, after in pairs.both:
        for column in pairs.list_interval_columns():
            base, other = pairs.baseline.read_interval(before, column), pairs.candidate.read_interval(after, column)
            if base.estimate is None and other.estimate is None:
                continue
            name, unit = _shorten_text(pairs.format_row_name(after)), _find_unit(column, units)
            yield Contrast(name, column, unit, base, other, ratios.independent_ratio(base, other))


def _iterate_changes(pairs: PairedTable, units: Mapping[str, str]) -> Iterator[Change]:
    """Yield each value without an interval that differs in a matched row."""
    with_ends = pairs.list_interval_columns()
    ends = {end for name in with_ends for side in (pairs.baseline, pairs.candidate) for end in side.intervals[name]}
    columns = [
        name for name in pairs.columns if name not in {*pairs.key, *pairs.own, *with_ends, *ends, *_INTERVAL_DETAILS}
    ]
    for before, after in pairs.both:
        for column in columns:
            if not _is_same_value(before[column], after[column]):
                values = (_to_json_value(before[column]), _to_json_value(after[column]))
                yield Change(
                    _shorten_text(pairs.format_row_name(after)),
                    column,
                    _find_unit(column, units),
                    *values,
                    _subtract_numbers(*values),
                )


def _is_same_value(base: Any, other: Any) -> bool:
    return bool(base == other) or (
        isinstance(base, float) and isinstance(other, float) and base != base and other != other
    )


def _to_json_value(value: Any) -> Any:
    """Convert a value to one that JSON can hold."""
    import math

    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _shorten_text(value)


def _subtract_numbers(base: Any, other: Any) -> float | None:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (base, other)):
        return None
    try:
        return float(other - base)
    except OverflowError:
        return None


def _shorten_text(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


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
            verdict=_VERDICT_WORDS[decision.verdict] if contrast.ratio.low is not None else None,
            adjusted_p_value=decision.adjusted_p_value,
        )
        for contrast, decision in zip(contrasts, decisions, strict=True)
    ]


def _list_fact_differences(
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
            texts = [None if value is None else _shorten_text(value) for value in (base, other)]
            yield kind, _shorten_text(name), texts[0], texts[1]


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


def _build_notes(baseline: StoredRun, candidate: StoredRun) -> tuple[str, ...]:
    """Notes on a comparison: its assumptions, shared inputs, and runs that are invalid or did not succeed."""
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
        f"The {which} is {run.record['verdict']}: its figures may mislead."
        for run, which in ((baseline, "baseline"), (candidate, "candidate"))
        if run.record["verdict"] == "invalid"
    ]
    notes += [
        f"The {which} has not succeeded ({run.state}): tables may be missing."
        for run, which in ((baseline, "baseline"), (candidate, "candidate"))
        if run.state != "succeeded"
    ]
    return tuple(notes)
