"""Match the rows of the same table in two runs, and find its columns with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError
from workbench.stats import LEVEL, Interval

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs.catalogue import StoredRun

# Times are no estimates, even with columns of bounds after them.
_MOMENTS = ("at", "begin", "end")
Row = dict[str, Any]


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
        """A figure with its interval, where there is one; anything but a finite number is null."""
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
    """Whether a text column has one value in each run, not the same; a number would be a measurement."""
    import polars as pl

    if not base.height or not other.height or {base.schema[name], other.schema[name]} != {pl.String()}:
        return False
    values = (base[name].unique(), other[name].unique())
    return all(len(series) == 1 for series in values) and values[0][0] != values[1][0] and name.endswith("_id")


def _is_unique_key(frame: pl.DataFrame, keys: Sequence[str]) -> bool:
    return frame.height <= 1 if not keys else not frame.select(keys).is_duplicated().any()


def _index_by_key(frame: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in keys): row for row in frame.iter_rows(named=True)}
