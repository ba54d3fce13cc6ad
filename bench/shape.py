"""The one shape of all benchmarks: what a side took in each trial, sides in turn, and what is told of it.

A benchmark makes `Row`s (area, scenario, side, unit, one value a trial; a trial that failed has none and is counted),
prints them and, with `--json FILE`, keeps them; `python -m bench` runs all of them and writes docs/benchmarks.md.
A ratio is made of pairs of one trial, since a machine's speed drifts: their mean logarithm with its t interval, 90 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from workbench.console.tables import format_table
from workbench.stats import Interval, paired_log_ratio

Measure = Callable[[], Mapping[str, float]]
"""A trial of a side: figures by quantity."""
TOLD_CHARS = 300


@dataclass(frozen=True)
class Bar:
    """What an issue asked for: of the value itself, or of the ratio to the side beside it."""

    of: Literal["value", "ratio"]
    at_least: float | None = None
    at_most: float | None = None
    beside: str = ""
    """The side that a ratio is to; empty for any."""

    def kept(self, found: float) -> bool:
        """Is the figure within it?"""
        above = self.at_least is None or found >= self.at_least
        return above and (self.at_most is None or found <= self.at_most)

    def text(self) -> str:
        """As it is told in a table."""
        times = " times" if self.of == "ratio" else ""
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}{times}"
        sign, value = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        return f"{sign} {value:g}{times}"


@dataclass(frozen=True)
class Row:
    """What one side took in a scenario: a value a trial, null where the trial failed."""

    area: str
    scenario: str
    side: str
    unit: str
    trials: list[float | None]
    peer: str = ""
    """Version and name of the other system; empty for what is ours, "reference" for plain code without a version."""
    higher_is_better: bool = False
    bar: Bar | None = None
    note: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """Of the trials that did not fail."""
        return [one for one in self.trials if one is not None]

    @property
    def median(self) -> float | None:
        """Null when every trial failed."""
        return statistics.median(self.values) if self.values else None

    def told(self) -> str:
        """Median, least and most, how many, and how many failed."""
        failed = f", {len(self.trials) - len(self.values)} failed" if len(self.values) < len(self.trials) else ""
        if not self.values:
            return f"no value{failed}"
        low, high = min(self.values), max(self.values)
        spread = f" [{figure(low)}, {figure(high)}]" if len(self.values) > 1 else ""
        return f"{figure(statistics.median(self.values))} {self.unit}{spread} n={len(self.values)}{failed}"


def figure(value: float) -> str:
    """Three digits that count, whole numbers from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(ours: Row, beside: Row) -> Interval | None:
    """How many times better is ours, over the trials in which neither failed? Null without such a trial."""
    pairs = [(a, b) for a, b in zip(ours.trials, beside.trials, strict=False) if a and b]
    if not pairs:
        return None
    own, other = ([pair[place] for pair in pairs] for place in (0, 1))
    return paired_log_ratio(own, other) if ours.higher_is_better else paired_log_ratio(other, own)


def told_ratio(found: Interval | None) -> str:
    """A ratio with its interval, as it is told in a table."""
    if found is None or found.estimate is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{figure(found.estimate)} (n={found.n})"
    return f"{figure(found.estimate)} [{figure(found.low)}, {figure(found.high)}] n={found.n}"


class Trials:
    """Figures by side and quantity, a place for each trial."""

    def __init__(self, sides: Sequence[str]) -> None:
        self.figures: dict[str, list[Mapping[str, float] | None]] = {side: [] for side in sides}
        self.failures: dict[str, list[str]] = {side: [] for side in sides}

    def of(self, side: str, quantity: str) -> list[float | None]:
        """A value a trial; null where it failed, or did not give this quantity."""
        return [None if one is None else one.get(quantity) for one in self.figures[side]]


def alternating(sides: Mapping[str, Measure], trials: int, *, warm_up: int = 0) -> Trials:
    """Every side once a trial, the order turned from trial to trial; a trial that fails is kept as failed."""
    found = Trials(list(sides))
    for number in range(-warm_up, trials):
        for side in sides if number % 2 == 0 else reversed(sides):
            try:
                told: Mapping[str, float] | None = sides[side]()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it was, the other trials go on
                told, reason = None, f"{type(error).__name__}: {error}"[:TOLD_CHARS]
                if number >= 0:
                    found.failures[side].append(reason)
                say(f"  {side}: FAILED, {reason}")
            if number < 0:
                continue
            found.figures[side].append(told)
            if told is not None:
                say(f"  trial {number + 1}, {side}: {', '.join(f'{k} {figure(v)}' for k, v in told.items())}")
    return found


def say(text: str) -> None:
    """Progress, which never stands where results do."""
    print(text, file=sys.stderr, flush=True)


def plain_parser(doc: str | None) -> argparse.ArgumentParser:
    """Of a benchmark with rows of its own kind: `--json` alone."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, help="keep the rows here")
    return made


def print_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Rows of one kind as a table."""
    print(*format_table([list(row.values()) for row in rows], list(rows[0])), sep="\n")


def parser(doc: str | None, *, trials: int = 5) -> argparse.ArgumentParser:
    """The options that every benchmark of sides has."""
    made = plain_parser(doc)
    made.add_argument("--trials", type=int, default=trials, help="alternating trials of each side")
    made.add_argument("--quick", action="store_true", help="smallest sizes: to try the benchmark, not to quote it")
    return made


def finish(rows: Sequence[Row], json_path: Path | None, missing: Mapping[str, str] | None = None) -> int:
    """Print the rows and keep them; 1 when a side never gave a value.

    `missing` tells not measured, and why: sides whose other system is not here.
    """
    for row in rows:
        others = [one for one in rows if one.peer and (one.area, one.scenario) == (row.area, row.scenario)]
        line = f"{row.area}, {row.scenario}: {row.side}: {row.told()}"
        for other in others if not row.peer else []:
            line += f"; {told_ratio(ratio(row, other))} times {other.side}"
        print(line + (f"; {row.note}" if row.note else ""))
    for side, reason in (missing or {}).items():
        print(f"not measured: {side}: {reason}")
    if json_path is not None:
        kept = {"rows": [asdict(row) for row in rows], "missing": dict(missing or {})}
        json_path.write_text(json.dumps(kept, indent=1) + "\n")
    return int(any(not row.values for row in rows))


def read(path: Path) -> tuple[list[Row], dict[str, str]]:
    """What `finish` kept."""
    kept = json.loads(path.read_text())
    rows = [Row(**{**row, "bar": Bar(**row["bar"]) if row["bar"] else None}) for row in kept["rows"]]
    return rows, kept["missing"]
