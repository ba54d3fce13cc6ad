"""A run's tables to all that follows from them: `analyse(folder)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from workbench import runs
from workbench.formats import seconds
from workbench.scaletest import facts, records, tables
from workbench.scaletest.facts import Test
from workbench.scaletest.flow import Passages, flow, passages
from workbench.scaletest.gpus import gangs, gpu_timeline
from workbench.scaletest.limits import limits
from workbench.scaletest.milestones import milestones, pods
from workbench.scaletest.result_tables import (
    FLOW,
    GANGS,
    GPUS,
    LIMITS,
    MILESTONES,
    PODS,
    QUANTILES,
    RAMP,
    SHARES,
    STEPS,
    SUSTAINED,
    VALIDITY,
)
from workbench.scaletest.shares import shares
from workbench.scaletest.steps import step_quantiles, steps
from workbench.scaletest.sustaining import LEVEL, Sustainable, ramp, sustainable
from workbench.scaletest.times import NS
from workbench.scaletest.validity import Run, reasons, validity, warnings
from workbench.tables import Table


@dataclass(frozen=True)
class Analysis:
    """A run, worked out when it is asked for; every table is of `tables` or `result_tables`.

    Attributes
    ----------
    folder
        The run folder.
    test
        What was tested, and how.
    """

    folder: Path
    test: Test

    def raw(self, table: Table) -> pl.DataFrame:
        """A raw table; empty where this run has none."""
        path = self.folder / "tables" / f"{table.name}.parquet"
        return table.read(self.folder / "tables") if path.is_file() else table.frame([])

    @cached_property
    def schedule(self) -> pl.DataFrame:
        """Table SCHEDULE."""
        return self.raw(tables.SCHEDULE)

    @cached_property
    def submissions(self) -> pl.DataFrame:
        """Table SUBMISSIONS."""
        return self.raw(tables.SUBMISSIONS)

    @cached_property
    def transitions(self) -> pl.DataFrame:
        """Table TRANSITIONS."""
        return self.raw(tables.TRANSITIONS)

    @cached_property
    def pods(self) -> pl.DataFrame:
        """Table PODS."""
        return pods(self.schedule, self.transitions)

    @property
    def imported(self) -> bool:
        """Another tool made it: its milestones came with it, and nobody watched."""
        return self.test.provider == facts.IMPORTED

    @cached_property
    def milestones(self) -> pl.DataFrame:
        """Table MILESTONES."""
        if self.imported:
            return self.raw(MILESTONES)
        return milestones(self.schedule, self.submissions, self.transitions, self.pods)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """Table STEPS."""
        return steps(self.milestones, self.submissions, imported=self.imported)

    @cached_property
    def quantiles(self) -> pl.DataFrame:
        """Table QUANTILES."""
        return step_quantiles(self.steps)

    @cached_property
    def shares(self) -> pl.DataFrame:
        """Table SHARES."""
        return shares(self.milestones)

    @cached_property
    def passages(self) -> Passages:
        """When everything passed each stage."""
        return passages(self.schedule, self.submissions, self.pods, self.transitions)

    @cached_property
    def flow(self) -> pl.DataFrame:
        """Table FLOW."""
        return flow(self.passages)

    @cached_property
    def ramp(self) -> pl.DataFrame:
        """Table RAMP."""
        in_turn = self.test.in_turn
        return ramp(self.schedule, self.passages, self.steps, self.gpus, self.pods, in_turn=in_turn)

    @cached_property
    def sustainable(self) -> Sustainable:
        """The rate that the cluster sustains."""
        return sustainable(self.ramp)

    @property
    def sustained(self) -> pl.DataFrame:
        """Table SUSTAINED: the same, for whoever plans with it."""
        rate = self.sustainable
        ends = {"low_per_s": rate.low_per_s, "high_per_s": rate.high_per_s, "level": LEVEL}
        about = {"simulated_nodes": self.test.simulated_nodes, "reason": rate.reason}
        return SUSTAINED.frame([{"unit": "pods/s", **ends, **about}])

    @cached_property
    def limits(self) -> pl.DataFrame:
        """Table LIMITS."""
        requests, components = self.raw(tables.REQUESTS), self.test.components
        return limits(self.passages, requests, components, self.gpus, self.pods, in_turn=self.test.in_turn)

    @cached_property
    def gpus(self) -> pl.DataFrame:
        """Table GPUS."""
        return gpu_timeline(self.schedule, self.pods, self.raw(tables.NODES), self.passages.end_s)

    @cached_property
    def gangs(self) -> pl.DataFrame:
        """Table GANGS."""
        return gangs(self.schedule, self.pods, self.passages.end_s)

    @cached_property
    def validity(self) -> pl.DataFrame:
        """Table VALIDITY."""
        raw = {name: self.raw(getattr(tables, name.upper())) for name in ("gaps", "beats", "skew", "load")}
        stopped, spoiled, resumed_s = _told(self.folder)
        return validity(
            Run(
                self.schedule,
                self.submissions,
                self.transitions,
                self.steps,
                **raw,
                stopped=stopped,
                spoiled=spoiled,
                closed=self.test.closed,
                imported=self.imported,
                resumed_s=resumed_s,
            )
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is invalid; empty when it is valid."""
        return reasons(self.validity)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know although the run is valid."""
        return warnings(self.validity)

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        if self.imported:
            return f"{self._decided()}; the files do not say at which rate."
        gang = ""
        if self.gangs.height:
            whole = int(self.gangs["complete"].sum())
            gang = f"; {whole} of {self.gangs.height} gangs were ever complete"
        return f"{self.sustainable.text}. {self._waited()}{gang}."

    def _decided(self) -> str:
        """Of imported runs: their files tell a scheduler's decision, and not which one."""
        found = self.quantile("sent to decided", 0.95, "mixed")
        if found is None:
            return "Of no workload that was sampled a decision is known"
        told = "decided (scheduled or told unschedulable)"
        return f"Of those sampled 95 % were {told} within {seconds(found)} of being submitted"

    def _waited(self) -> str:
        """The highest quantile that is known, in words."""
        for share, words in ((0.95, "95 % were scheduled"), (0.5, "Half were scheduled")):
            found = self.quantile("due to scheduled", share)
            if found is not None:
                more = "" if share == 0.95 else ", more than 5 % never were"
                return f"{words} within {seconds(found)} of being due{more}"
        return "More than half were never scheduled" if self.steps.height else "Nothing was seen to be scheduled"

    def quantile(self, step: str, share: float, clock: str = "client") -> float | None:
        """A quantile of a step, in seconds; null where it is not known or never reached."""
        own = (pl.col("step") == step) & (pl.col("clock") == clock) & (pl.col("quantile") == share)
        found = self.quantiles.filter(own)["value_s"]
        return found[0] if len(found) else None


RESULTS: tuple[tuple[Table, Callable[[Analysis], pl.DataFrame]], ...] = (
    (PODS, lambda found: found.pods),
    (MILESTONES, lambda found: found.milestones),
    (STEPS, lambda found: found.steps),
    (QUANTILES, lambda found: found.quantiles),
    (SHARES, lambda found: found.shares),
    (FLOW, lambda found: found.flow),
    (RAMP, lambda found: found.ramp),
    (SUSTAINED, lambda found: found.sustained),
    (LIMITS, lambda found: found.limits),
    (GPUS, lambda found: found.gpus),
    (GANGS, lambda found: found.gangs),
    (VALIDITY, lambda found: found.validity),
)


def analyse(folder: str | Path) -> Analysis:
    """The analysis of a run folder whose raw tables are there.

    Raises
    ------
    InputError
        It is no folder of a scale test, or a table of it cannot be read.
    """
    place = Path(folder)
    return Analysis(place, facts.read(place))


def conclude(folder: str | Path) -> Analysis:
    """Work everything out, write the result tables and the verdict into the run folder.

    Raises
    ------
    InputError
        As `analyse`.
    """
    found = analyse(folder)
    run = runs.load(found.folder)
    for table, made in RESULTS:
        run.write_table(table, made(found))
    run.conclude("invalid" if found.reasons else "valid", found.reasons, found.answer)
    return found


def _told(folder: Path) -> tuple[str | None, tuple[str, ...], tuple[float, ...]]:
    """How submission ended, what spoiled the run, and when it was resumed, by its journal and the sampler's notes."""
    stopped, spoiled, resumed_s = None, [], []
    if (folder / records.JOURNAL).is_file():
        for one in records.read(folder / records.JOURNAL, records.JournalLine):
            if isinstance(one, records.Stopped):
                stopped = one.reason
            elif isinstance(one, records.Begun) and one.resumed:
                resumed_s.append((one.at_ns - one.origin_ns) / NS)
            elif isinstance(one, records.Note) and one.spoils:
                spoiled.append(one.text)
    if (folder / records.HEALTH).is_file():
        notes = records.read(folder / records.HEALTH, records.HealthLine)
        spoiled += [one.text for one in notes if isinstance(one, records.Note) and one.spoils]
    if stopped is not None and stopped.startswith("aborted"):
        spoiled.append(stopped)
    return stopped, tuple(spoiled), tuple(resumed_s)
