"""The same table of two runs, row by row: what identifies a row, and which columns carry an interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError
from workbench.stats import LEVEL, Interval

if TYPE_CHECKING:
    import polars as pl

    from workbench.catalogue import Kept

# A moment is no estimate, also where bounds stand behind it.
_MOMENTS = ("at", "begin", "end")
Row = dict[str, Any]


def intervals_by_name(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Which columns are estimates with two ends, as the house names them?

    `x, x_low, x_high`; `x_s, x_low_s, x_high_s`; or bare `low, high` (`low_s, high_s`) right behind their estimate.

    Examples
    --------
    >>> intervals_by_name(["stack", "ratio", "low", "high", "gpus", "gpus_low", "gpus_high"])
    {'ratio': ('low', 'high'), 'gpus': ('gpus_low', 'gpus_high')}
    >>> intervals_by_name(["predicted_s", "predicted_low_s", "predicted_high_s", "at_s", "low_s", "high_s"])
    {'predicted_s': ('predicted_low_s', 'predicted_high_s')}
    """
    ordered = list(names)
    present = set(ordered)
    found: dict[str, tuple[str, str]] = {}
    for place, low in enumerate(ordered):
        parts = low.split("_")
        if "low" not in parts:
            continue
        at = parts.index("low")
        high = "_".join([*parts[:at], "high", *parts[at + 1 :]])
        estimate = "_".join(parts[:at] + parts[at + 1 :]) if at else _before(ordered, place, parts[1:])
        if high in present and estimate in present and "high" not in estimate.split("_"):
            found.setdefault(estimate, (low, high))
    return found


def _before(ordered: Sequence[str], place: int, unit: list[str]) -> str:
    name = ordered[place - 1] if place else ""
    parts = name.split("_")
    fits = not unit or parts[-len(unit) :] == unit
    return name if fits and parts[0] not in _MOMENTS else ""


@dataclass(frozen=True)
class Side:
    """A table of one run: its rows, what it says of its key and of its intervals."""

    frame: pl.DataFrame
    key: tuple[str, ...] | None
    intervals: Mapping[str, tuple[str, str]]

    def interval(self, row: Row, column: str) -> Interval:
        """The figure of a row with its ends, where it has any; never an error: what is no number is missing."""
        low, high = self.intervals.get(column, ("", ""))
        level, n = _number(row.get("level")), _number(row.get("n"))
        return Interval(
            _number(row.get(column)),
            _number(row.get(low)),
            _number(row.get(high)),
            level if level is not None and 0 < level < 1 else LEVEL,
            int(n) if n is not None and 0 <= n < 2**53 else 0,
            "as the run noted it",
        )


def _number(value: Any) -> float | None:
    import math

    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def side(run: Kept, table: str) -> Side:
    """Read a table of a run with what its record notes of it; older records note neither key nor intervals.

    Raises
    ------
    InputError
        The table cannot be read.
    """
    frame, entry = run.table(table), run.entry(table)
    key = entry.get("key")
    noted = tuple(key) if isinstance(key, list) and key and all(name in frame.columns for name in key) else None
    intervals = _noted_intervals(entry.get("intervals"), frame)
    return Side(frame, noted, intervals_by_name(_numeric(frame)) if intervals is None else intervals)


def _noted_intervals(noted: Any, frame: pl.DataFrame) -> dict[str, tuple[str, str]] | None:
    if not isinstance(noted, dict):
        return None
    numeric = set(_numeric(frame))
    return {
        name: (ends[0], ends[1])
        for name, ends in noted.items()
        if isinstance(ends, list) and len(ends) == 2 and {name, *map(str, ends)} <= numeric
    }


def _numeric(frame: pl.DataFrame) -> list[str]:
    return [name for name, dtype in frame.schema.items() if dtype.is_numeric()]


@dataclass(frozen=True)
class Paired:
    """Rows of one table in two runs.

    Attributes
    ----------
    key
        The columns that rows were matched by.
    own
        Columns of the key that were left out, since they hold but one value in each run, and another in the other:
        the names of the runs themselves.
    both
        Rows that both runs have, as (baseline, candidate).
    only_baseline, only_candidate
        Rows that only one of them has.
    columns
        Columns that both have, in the candidate's order.
    """

    baseline: Side
    candidate: Side
    key: tuple[str, ...]
    own: tuple[str, ...]
    both: list[tuple[Row, Row]] = field(repr=False)
    only_baseline: list[Row] = field(repr=False)
    only_candidate: list[Row] = field(repr=False)
    columns: tuple[str, ...] = ()

    def name_of(self, row: Row) -> str:
        """A row by the values of its key."""
        return ", ".join(f"{row[name]}" for name in self.key)

    def interval_columns(self) -> list[str]:
        """Columns with ends in both runs."""
        return [name for name in self.columns if name in self.baseline.intervals and name in self.candidate.intervals]


def paired(baseline: Side, candidate: Side) -> Paired:
    """Match the rows of one table in two runs.

    By the key that the table declares; for older runs by the shortest row of leading columns (neither floats nor
    lists) that tells all rows of both runs apart.

    Raises
    ------
    InputError
        No columns tell the rows apart, or they are of different types in the two runs.
    """
    columns = tuple(name for name in candidate.frame.columns if name in baseline.frame.columns)
    keys, own = _key(baseline, candidate, columns)
    if wrong := [name for name in keys if baseline.frame.schema[name] != candidate.frame.schema[name]]:
        raise InputError("the key is of another type in the other run", where="column(s) " + ", ".join(wrong))
    before, after = _by_key(baseline.frame, keys), _by_key(candidate.frame, keys)
    both = [(before[name], row) for name, row in after.items() if name in before]
    return Paired(
        baseline,
        candidate,
        keys,
        own,
        both,
        [row for name, row in before.items() if name not in after],
        [row for name, row in after.items() if name not in before],
        columns,
    )


def _key(baseline: Side, candidate: Side, columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    frames = (baseline.frame, candidate.frame)
    noted = candidate.key or baseline.key
    if noted and set(noted) <= set(columns):
        own = tuple(name for name in noted if _names_the_run(name, *frames))
        keys = tuple(name for name in noted if name not in own)
        if all(_tells_apart(frame, keys) for frame in frames):
            return keys, own
    own = tuple(name for name in columns if _can_be_key(name, *frames) and _names_the_run(name, *frames))
    usable = [name for name in columns if _can_be_key(name, *frames) and name not in own]
    for count in range(len(usable) + 1):
        if all(_tells_apart(frame, usable[:count]) for frame in frames):
            return tuple(usable[:count]), own
    raise InputError("no columns tell its rows apart", found=usable or "only floats and lists")


def _can_be_key(name: str, *frames: pl.DataFrame) -> bool:
    return not any(frame.schema[name].is_float() or frame.schema[name].is_nested() for frame in frames)


def _names_the_run(name: str, one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Has it one text in each run, and not the same? Numbers are left: a single row's number is what it measured."""
    import polars as pl

    if not one.height or not other.height or {one.schema[name], other.schema[name]} != {pl.String()}:
        return False
    values = (one[name].unique(), other[name].unique())
    return all(len(found) == 1 for found in values) and values[0][0] != values[1][0] and name.endswith("_id")


def _tells_apart(frame: pl.DataFrame, keys: Sequence[str]) -> bool:
    return frame.height <= 1 if not keys else not frame.select(keys).is_duplicated().any()


def _by_key(frame: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in keys): row for row in frame.iter_rows(named=True)}
