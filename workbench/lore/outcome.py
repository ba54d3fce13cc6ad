"""What one dump holds and what its replay found: an answer, a verdict with reasons, and tables."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench import stats
from workbench.errors import InputError
from workbench.lore import processes, tables
from workbench.lore.bundle import open_bundle
from workbench.lore.inspection import tables as inspection_tables
from workbench.lore.inspection.inspecting import Inspection, inspect
from workbench.lore.intact import read_sidecar
from workbench.lore.replaying import Replayed
from workbench.lore.sidecar import Sidecar
from workbench.tables import Column, Table

RATIOS = Table(
    "ratios",
    "One row for each quantity that two sides were timed by.",
    ("quantity",),
    (
        Column("quantity", "str", "operator, operator and scan, or scan: both read the same, so that is a control."),
        Column("speed_ratio", "float", "A's time over B's, paired by repeat: above 1 B is faster.", unit="ratio"),
        Column("low_ratio", "float", "Lower end of its interval.", unit="ratio", nullable=True),
        Column("high_ratio", "float", "Upper end of its interval.", unit="ratio", nullable=True),
        Column("n", "int", "Pairs of runs."),
        Column("verdict", "str", "Of B against A: FASTER, SLOWER, SAME or UNDECIDED."),
    ),
)

TIMES = Table(
    "times",
    "One row for each quantity that a side was timed by.",
    ("side", "quantity"),
    (
        Column("side", "str", "Name of the side."),
        Column("quantity", "str", "operator (total minus reading) or reading its inputs."),
        Column("median_s", "float", "Median over repeats.", unit="s"),
        Column("low_s", "float", "Lower end of its interval.", unit="s", nullable=True),
        Column("high_s", "float", "Upper end of its interval.", unit="s", nullable=True),
        Column("n", "int", "Repeats."),
    ),
)

DIFFERENCES = Table(
    "differences",
    "The first rows that only one of two outputs has.",
    ("compared", "position"),
    (
        Column("compared", "str", "What was held against each other, and which of them alone has the row."),
        Column("position", "int", "From 1."),
        Column("row", "str", "The row as JSON, columns c0, c1 and so on."),
    ),
)

QUANTITIES = {"operator": "operator_s", "operator and scan": "total_s", "scan (control)": "scan_s"}

TIMED = {"operator": "operator_s", "reading its inputs": "scan_s"}


@dataclass(frozen=True)
class Outcome:
    """A dump that was looked into and replayed.

    Attributes
    ----------
    place
        The folder or bundle, as it was given.
    inspection
        What lies in it.
    sidecar
        plan.json; null of a dump that is not ours or is damaged.
    replayed
        What the fresh process found; null when it refused the dump.
    refused
        Why it did; null when it did not.
    level
        Of the intervals.
    """

    place: Path
    inspection: Inspection
    sidecar: Sidecar | None
    replayed: Replayed | None
    refused: str | None
    level: float = stats.LEVEL

    @property
    def timings(self) -> pl.DataFrame:
        """Table `timings`; no rows where nothing was timed."""
        return tables.TIMINGS.frame(self.replayed.timings if self.replayed is not None else [])

    @property
    def sides(self) -> pl.DataFrame:
        """Table `sides`, with intervals of this level."""
        rows = [dict(row) for row in self.replayed.sides] if self.replayed is not None else []
        for row in rows:
            runs = self.timings.filter(pl.col("side") == row["side"])["operator_s"].to_list()
            interval = stats.quantile_interval(runs, 0.5, level=self.level)
            row |= {"low_s": interval.low, "high_s": interval.high}
        return tables.SIDES.frame(rows)

    @property
    def times(self) -> pl.DataFrame:
        """Table `TIMES`."""
        rows = []
        for side in self.sides["side"]:
            for quantity, column in TIMED.items():
                runs = self.timings.filter(side=side)[column].to_list()
                found = stats.quantile_interval(runs, 0.5, level=self.level)
                ends = {"median_s": found.estimate, "low_s": found.low, "high_s": found.high, "n": found.n}
                rows.append({"side": side, "quantity": quantity, **ends})
        return TIMES.frame(rows)

    @property
    def metrics(self) -> pl.DataFrame:
        """Table `metrics`."""
        return tables.METRICS.frame(self.replayed.metrics if self.replayed is not None else [])

    @property
    def ratios(self) -> pl.DataFrame:
        """Table `RATIOS`; no row of a quantity that was not above zero in every run, and none with one side."""
        names = self.sides["side"].to_list()
        rows = []
        for quantity, column in QUANTITIES.items() if len(names) == 2 else ():
            left, right = (self.timings.filter(side=name).sort("repeat")[column].to_list() for name in names)
            if min(left + right) > 0:
                rows.append(_ratio(quantity, stats.paired_log_ratio(left, right, level=self.level)))
        return RATIOS.frame(rows)

    @property
    def ratio(self) -> dict[str, Any] | None:
        """The operator's row of `ratios`."""
        return next(iter(self.ratios.filter(quantity="operator").iter_rows(named=True)), None)

    @property
    def differences(self) -> pl.DataFrame:
        """Table `DIFFERENCES`: first the replay against the original, then B against A."""
        if self.replayed is None:
            return DIFFERENCES.frame([])
        found = self.replayed.verification
        parts = {"only in the original": found["missing"], "only in the replay": found["extra"]}
        if (compared := self.replayed.comparison) is not None:
            parts |= {"only in A": compared["only_a"], "only in B": compared["only_b"]}
        return DIFFERENCES.frame(
            [
                {"compared": name, "position": number, "row": row}
                for name, rows in parts.items()
                for number, row in enumerate(rows, 1)
            ]
        )

    @property
    def partitions(self) -> pl.DataFrame:
        """Table `inspection.tables.PARTITIONS`, inputs and output."""
        return self.inspection.partitions

    def batches_off(self) -> int:
        """How many batches plan.json promises that are not there, and the other way round."""
        if self.sidecar is None:
            return 0
        promised = {
            (f"input-{entry.index}", int(partition), batch)
            for entry in self.sidecar.inputs
            for partition, count in entry.batches.items()
            for batch in range(count)
        }
        inputs = self.inspection.batches.filter(pl.col("input") != "output")
        return len(promised ^ set(inputs.select("input", "partition", "batch").iter_rows()))

    @property
    def lore_id(self) -> int:
        """Id of the operator."""
        return self.inspection.dumps[0].lore_id

    @property
    def operator(self) -> str:
        """The operator with its id, as a sentence names it."""
        named = self.replayed.operator if self.replayed is not None else self.inspection.dumps[0].operator
        return f"{named or 'An unknown operator'} (loreId {self.lore_id})"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the result is invalid; empty when the replay gave what the original gave, on both sides."""
        if self.replayed is None:
            return (f"the dump was refused: {self.refused}",)
        found = [] if self.replayed.verification["passed"] else [self.replayed.answer]
        if self.replayed.not_accelerated:
            found.append(f"not accelerated: {self.replayed.not_accelerated}")
        if self.replayed.comparison is not None and not self.replayed.comparison["equal"]:
            compared = self.replayed.comparison
            found.append(f"A and B gave different rows ({compared['n_a']} and {compared['n_b']})")
        return tuple(found)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        inspected = [(declared, getattr(self.inspection, declared.name)) for declared in inspection_tables.ALL]
        own = [
            (tables.SIDES, self.sides),
            (tables.TIMINGS, self.timings),
            (tables.METRICS, self.metrics),
            (TIMES, self.times),
            (RATIOS, self.ratios),
            (DIFFERENCES, self.differences),
        ]
        return [*inspected, *own]


def outcome(place: Path, *, level: float = stats.LEVEL, **options: Any) -> Outcome:
    """Look into a dump and replay it in a fresh process; options are those of `replaying.Options`.

    Raises
    ------
    InputError
        There is no dump.
    RunFailedError
        The fresh process died.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch:
        folder = open_bundle(place, Path(scratch) / "bundle") if place.suffix == ".zip" else place
        found = inspect(folder)
        if len(found.dumps) != 1:
            names = [dump.folder.name for dump in found.dumps]
            raise InputError("several operators were dumped here", where=place, allowed=names, do="name one of them")
        sidecar = found.dumps[0].sidecar
        if sidecar is None:
            return Outcome(place, found, None, None, _why_not(found.dumps[0].folder), level)
        replayed, refused = _replayed(place, options)
    return Outcome(place, found, sidecar, replayed, refused, level)


def _replayed(place: Path, options: Mapping[str, Any]) -> tuple[Replayed | None, str | None]:
    try:
        return processes.replayed(str(place.absolute()), **options), None
    except InputError as error:
        # What the other process said, without this one's heading.
        return None, str(error.facts["found"] or error.what).removeprefix("Error: ")


def _why_not(folder: Path) -> str:
    try:
        read_sidecar(folder)
    except InputError as error:
        return str(error)
    return "plan.json cannot be used"


def _ratio(quantity: str, found: stats.Interval) -> dict[str, Any]:
    return {
        "quantity": quantity,
        "speed_ratio": found.estimate,
        "low_ratio": found.low,
        "high_ratio": found.high,
        "n": found.n,
        "verdict": stats.decide([found])[0].verdict,
    }
