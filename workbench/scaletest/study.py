"""What the notebook shows: runs by side, how they compare, and whether that may be believed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench.display import KeyNumber
from workbench.formats import number, seconds
from workbench.scaletest import invariants, key_numbers, next_steps, sides
from workbench.scaletest.analysing import Analysis
from workbench.scaletest.notebook_config import NotebookConfig
from workbench.scaletest.result_tables import COMPARISON, GANGS, LIMITS, QUANTILES, RAMP, SUSTAINED, VALIDITY

if TYPE_CHECKING:
    from workbench.runs import Run
    from workbench.tables import Table

_KEPT = (
    (QUANTILES, "quantiles"),
    (RAMP, "ramp"),
    (SUSTAINED, "sustained"),
    (LIMITS, "limits"),
    (GANGS, "gangs"),
    (VALIDITY, "validity"),
)


@dataclass(frozen=True)
class Study:
    """A question, the runs that answer it, and what follows."""

    config: NotebookConfig
    found: sides.Sides

    @cached_property
    def comparison(self) -> pl.DataFrame:
        """Table COMPARISON; without rows for one side."""
        return self.found.comparison()

    @property
    def first(self) -> dict[str, Analysis]:
        """The first run of each side, whose course is drawn."""
        return {name: self.found.runs[name][0] for name in self.found.names}

    @property
    def step(self) -> str:
        """The step whose spread is drawn: the one that was asked for, where the runs have it."""
        asked = self.config.step
        there = any(asked in set(one.steps["step"]) for _, one in self.found.everything)
        return asked if there else self.found.total[0]

    @property
    def answer(self) -> str:
        """The result in a few sentences: the rates, then how the sides compare."""
        if len(self.found.names) < 2:
            return self._of_one()
        return f"{self._sustained()}{self._compared()}"

    def _sustained(self) -> str:
        """Which rate each of the two sides sustains, by its first run; nothing where neither's is decided."""
        words = {name: self.first[name].sustainable.words for name in self.found.names[:2]}
        if not any(words.values()):
            return ""
        rates = ", ".join(f"{one or 'a rate not decided'} with {name}" for name, one in words.items())
        several = any(len(self.found.runs[name]) > 1 for name in words)
        return f"Sustained: {rates}{' (first run of each)' if several else ''}. "

    def _compared(self) -> str:
        """Whose pods are scheduled sooner; of imported runs decided, which may also be: not now."""
        a, b = self.found.names[:2]
        rows = self.comparison.filter(pl.col("step") == self.found.total[0]).sort("quantile").to_dicts()
        if not rows or rows[0]["ratio"] is None:
            why = rows[0]["reason"] if rows else self._nothing()
            return f"The medians of {a} and {b} cannot be compared: {why}.{self._gangs(a, b)}"
        one, tail = rows[0], rows[-1]
        times = f"{seconds(one['a_s'])} with {a} and {seconds(one['b_s'])} with {b}"
        waited = f"the median from {self.found.total[0]} is {times} ({_ratio(one, a, b)})"
        what = "Deciding (scheduled or told unschedulable)" if self.found.imported else "Scheduling"
        told = {
            "FASTER": f"{what} is faster with {b}: {waited}",
            "SLOWER": f"{what} is slower with {b}: {waited}",
            "SAME": f"The medians of {a} and {b} differ by less than 5 %: {waited}",
            "UNDECIDED": f"Whether {a} or {b} is faster is not decided: {waited}; {one['reason']}",
        }[one["verdict"]]
        lost = f" At p95 nothing is claimed: {tail['reason']}." if tail["a_never"] or tail["b_never"] else ""
        return f"{told}.{lost}{self._gangs(a, b)}"

    def _of_one(self) -> str:
        """Of the first run, when there are several of one side."""
        runs = self.found.runs[self.found.names[0]]
        more = "" if len(runs) == 1 else f" (Of {len(runs)} runs, the first.)"
        return f"{runs[0].answer}{more}"

    def _nothing(self) -> str:
        """Why there is no row of the whole way."""
        if not self.found.pairs:
            return "no turn has a run of both"
        empty = [name for name in self.found.names[:2] if not any(one.steps.height for one in self.found.runs[name])]
        return f"nothing of {' and '.join(empty)} was accepted" if empty else "the runs have no step in common"

    def _gangs(self, a: str, b: str) -> str:
        gangs = {name: pl.concat([one.gangs for one in self.found.runs[name]]) for name in (a, b)}
        if not all(table.height for table in gangs.values()):
            return ""
        told = [f"{int(table['complete'].sum())} of {table.height} with {name}" for name, table in gangs.items()]
        return f" Whole gangs: {', '.join(told)}."

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing may be concluded; empty when something may."""
        return self.found.reasons

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the runs."""
        runs = ", ".join(f"{len(self.found.runs[name])} of {name}" for name in self.found.names)
        warnings = [line for name in self.found.names for line in self._warnings(name)]
        aside = [f"{name} was measured, too; only the first two sides are compared." for name in self.found.names[2:]]
        notes = {note: None for _, one in self.found.everything for note in one.test.notes}
        return (f"Measured: runs: {runs}; {self._where}", *aside, *notes, *warnings)

    def _warnings(self, name: str) -> list[str]:
        """Each condition that did not hold once, by the first run in which it did not, with how many there were."""
        runs = self.found.runs[name]
        told: dict[str, list[str]] = {}
        for one in runs:
            for line in one.warnings:
                told.setdefault(line.partition(":")[0], []).append(line)
        of = f" of {len(runs)} runs" if len(runs) > 1 else ""
        return [f"{name}: {lines[0]}" + (f" (so in {len(lines)}{of})" if of else "") for lines in told.values()]

    @property
    def _where(self) -> str:
        """The plan and the cluster, as far as they are known."""
        test = self.first[self.found.names[0]].test
        if self.found.imported:
            return "written by another tool, in whole seconds; neither plan nor cluster are known."
        nodes = "simulated: nothing after the binding is a real node's time" if test.simulated_nodes else "real"
        where = f"Kubernetes {test.server_version}, {test.provider or 'a cluster of yours'}; its nodes are {nodes}."
        return f"plan {test.scenario_name}; {where}"

    @property
    def limits(self) -> list[str]:
        """What held the runs up, each sentence once, with the side."""
        lines = [(name, line) for name, one in self.first.items() for line in one.limits["sentence"].to_list()]
        return [f"{name}: {line}" for name, line in lines]

    def by_side(self, chosen: str) -> pl.DataFrame:
        """A table (a property of `Analysis`) of each side's first run, with the side in front."""
        side = [(pl.lit(name).alias("side"), getattr(one, chosen)) for name, one in self.first.items()]
        tables: list[pl.DataFrame] = [table.select(name, pl.all()) for name, table in side]
        return pl.concat(tables)

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return key_numbers.of_sides(self.found, self.comparison)

    def next_steps(self) -> list[str]:
        """What to do next."""
        return next_steps.of_sides(self.found, self.comparison)

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        return invariants.check(self.found, self.comparison)


def _ratio(row: dict[str, Any], a: str, b: str) -> str:
    """How many times as long the slower side takes, with its interval."""
    slower, figures = (a, row) if row["ratio"] >= 1 else (b, {"ratio": 1 / row["ratio"]})
    if slower == b and row["low"] is not None:
        figures |= {"low": 1 / row["high"], "high": 1 / row["low"]}
    ends = "" if row["low"] is None else f" [{number(figures['low'])}, {number(figures['high'])}]"
    return f"{number(figures['ratio'])} times as long with {slower}{ends}"


def study(config: NotebookConfig, run: Run) -> Study:
    """Read the runs (or make them), compare, and write the tables of the first run of each side.

    Raises
    ------
    InputError, ConfigError
        The folder holds no scale test, or the live test cannot be made like that.
    """
    place = Path(config.runs)
    if config.live:
        from workbench.scaletest.live import measured

        place = measured(config, run.folder)
    found = Study(config, sides.read(place))
    run.add_input(place, digest=False)
    run.write_table(COMPARISON, found.comparison)
    for table, name in _KEPT:
        run.write_table(with_side(table), found.by_side(name))
    return found


def with_side(table: Table) -> Table:
    """A result table with the side in front of its columns and key."""
    from workbench.tables import Column, Table

    side = Column("side", "str", "Whose first run.")
    return Table(table.name, table.meaning, ("side", *table.key), (side, *table.columns))


def verdict(study: Study) -> Literal["valid", "invalid"]:
    """Is the study valid?"""
    return "invalid" if study.reasons else "valid"
