"""What a column of a run's table is: its unit, its kind of values, what it means and which direction is good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.core.formats import find_unit
from workbench.core.units import find_unit_factor

if TYPE_CHECKING:
    import polars as pl

MAX_UNIT_CHARS = 60
# Times are no estimates, even with columns of bounds after them.
_MOMENTS = ("at", "begin", "end")


@dataclass(frozen=True)
class RunColumn:
    """A column as its run recorded it.

    `unit`: "" for none, null where the record of an older run does not say. `kind`: number, or the name of its type.
    `meaning`, `better`: "" where they are not recorded.
    """

    unit: str | None = None
    kind: str = "number"
    meaning: str = ""
    better: str = ""

    def find_factor(self, other: RunColumn) -> float | None:
        """What one of its unit is in the unit of the other; null where that has no answer.

        A record that does not say its units is comparable with another such record only.
        """
        if (self.unit is None) != (other.unit is None):
            return None
        return find_unit_factor(self.unit or "", other.unit or "")


def read_columns(entry: Mapping[str, Any], frame: pl.DataFrame) -> dict[str, RunColumn]:
    """The columns of a table, of its frame and its entry in the record."""
    units, meanings, better = (entry.get(name) for name in ("units", "meanings", "better"))
    columns = {}
    for name, dtype in frame.schema.items():
        unit = _read_text(units, name)[:MAX_UNIT_CHARS] or find_unit(name)
        columns[name] = RunColumn(
            unit if unit or isinstance(units, Mapping) else None,
            "number" if dtype.is_numeric() else str(dtype),
            _read_text(meanings, name),
            _read_text(better, name),
        )
    return columns


def _read_text(texts: Any, name: str) -> str:
    text = texts.get(name) if isinstance(texts, Mapping) else None
    return text if isinstance(text, str) else ""


def find_mismatch(baseline: RunColumn, candidate: RunColumn) -> str:
    """Why the values of a column in two runs cannot be compared; empty where they can.

    >>> find_mismatch(RunColumn("ms"), RunColumn("KiB"))
    'unit ms in the baseline and KiB in the candidate'
    >>> find_mismatch(RunColumn("ms"), RunColumn("s"))
    ''
    """
    if baseline.kind != candidate.kind and "Null" not in (baseline.kind, candidate.kind):
        return f"type {baseline.kind} in the baseline and {candidate.kind} in the candidate"
    if baseline.find_factor(candidate) is None:
        units = ["not recorded" if side.unit is None else side.unit or "none" for side in (baseline, candidate)]
        return f"unit {units[0]} in the baseline and {units[1]} in the candidate"
    if baseline.better and candidate.better and baseline.better != candidate.better:
        return f"{baseline.better} is better in the baseline and {candidate.better} in the candidate"
    return ""


def describe_changes(name: str, baseline: RunColumn, candidate: RunColumn) -> list[str]:
    """Sentences on how a column differs between two runs; none where it is the same column.

    >>> describe_changes("p50", RunColumn("ms"), RunColumn("s"))
    ['p50: converted from ms (baseline) to s (candidate)']
    """
    if mismatch := find_mismatch(baseline, candidate):
        return [f"{name}: {mismatch}: not compared"]
    notes = []
    if (factor := baseline.find_factor(candidate)) is not None and factor != 1:
        notes.append(f"{name}: converted from {baseline.unit} (baseline) to {candidate.unit} (candidate)")
    if baseline.meaning and candidate.meaning and _normalize(baseline.meaning) != _normalize(candidate.meaning):
        notes.append(f"{name}: its meaning was {baseline.meaning!r} and is {candidate.meaning!r}")
    return notes


def _normalize(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")


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
