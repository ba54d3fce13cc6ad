"""Study of the scale-test notebook: runs by variant, their comparison, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import polars as pl

from workbench.core.formats import fit_answer, format_number, format_seconds
from workbench.core.tables import Table
from workbench.report.display import KeyNumber
from workbench.runs.run_folder import Run
from workbench.scaletest import invariants, summary
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.variants import answer_league, build_league_table, describe_league
from workbench.scaletest.config import NotebookConfig
from workbench.scaletest.tables import COMPARISON, GANGS, LEAGUE, LIMITS, QUANTILES, RAMP, SERVERS, SUSTAINED, VALIDITY
from workbench.stats.verdicts import DIFFERENT, FASTER, SAME

_WRITTEN_TABLES = (
    (QUANTILES, "quantiles"),
    (RAMP, "ramp"),
    (SUSTAINED, "sustained"),
    (LIMITS, "limits"),
    (SERVERS, "servers"),
    (GANGS, "gangs"),
    (VALIDITY, "validity"),
)


@dataclass(frozen=True)
class Study:
    """The runs of each variant, their comparison, and the answer; implements `report.study.Study`."""

    config: NotebookConfig
    found: variants.Variants

    @cached_property
    def comparison(self) -> pl.DataFrame:
        """Table COMPARISON; empty for a single variant."""
        return self.found.comparison()

    @property
    def first(self) -> dict[str, Analysis]:
        """The first run of each variant; its timeline is drawn."""
        return {name: self.found.runs[name][0] for name in self.found.names}

    @property
    def step(self) -> str:
        """The step whose distribution is drawn: the configured one, or the total if no run has it."""
        wanted = self.config.step
        return wanted if any(wanted in set(run.steps["step"]) for _, run in self.found.everything) else self._total

    @property
    def _total(self) -> str:
        return self.found.total[0]

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid if any run is invalid."""
        return "invalid" if self.reasons else "valid"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why runs are invalid; empty when all are valid."""
        return self.found.reasons

    @property
    def answer(self) -> str:
        """For one variant its rate; of two the gangs that one completes more, or the faster median; else the choice."""
        if len(self.found.names) < 2:
            return self.found.runs[self.found.names[0]][0].answer
        if len(self.found.names) > 2:
            return answer_league(self.league, {name: run.sustainable.words for name, run in self.first.items()})
        a, b = self.found.names[:2]
        return self._answer_gangs(a, b) or self._answer_comparison(a, b)

    @property
    def details(self) -> list[str]:
        """The comparison with its figures and what qualifies it; for one variant, all that qualifies its rate."""
        if len(self.found.names) < 2:
            runs = self.found.runs[self.found.names[0]]
            return [runs[0].explanation, *([f"First of {len(runs)} runs."] if len(runs) > 1 else [])]
        if len(self.found.names) > 2:
            return [describe_league(self.league)]
        a, b = self.found.names[:2]
        caveat = self._describe_gangs(a, b) or self._describe_lost_tail() or self._describe_rates()
        return [f"{self._describe_comparison(a, b)}.", *([f"{caveat}."] if caveat else [])]

    @property
    def conditions(self) -> tuple[str, ...]:
        """What was not real: simulated nodes."""
        return tuple(dict.fromkeys(word for _, run in self.found.everything for word in run.simulated))

    def _answer_gangs(self, a: str, b: str) -> str:
        """Which of two completes more gangs; empty where there are none, or as many."""
        counts = {
            name: (sum(int(run.gangs["complete"].sum()) for run in runs), sum(run.gangs.height for run in runs))
            for name, runs in ((name, self.found.runs[name]) for name in (a, b))
        }
        if counts[a][1] != counts[b][1] or counts[a][0] == counts[b][0]:
            return ""
        best, other = sorted((a, b), key=lambda name: -counts[name][0])
        claim = f"{best} completes {counts[best][0]} of {counts[best][1]} gangs, {other} {counts[other][0]}."
        return fit_answer(claim, f"{best} completes {counts[best][0]} of {counts[best][1]} gangs.")

    def _answer_comparison(self, a: str, b: str) -> str:
        rows = self._find_total_rows()
        if not rows or rows[0]["ratio"] is None:
            return fit_answer(
                f"The medians of {a} and {b} cannot be compared.", "The medians of the two variants cannot be compared."
            )
        row = rows[0]
        verb = "decides" if self.found.imported else "schedules"
        if row["verdict"] in DIFFERENT:
            fast, slow = (b, a) if row["verdict"] == FASTER else (a, b)
            ratio, ends = _format_ratio(row, above=slow == a)
            claim = f"{fast} {verb} {ratio}x faster than {slow}"
            ends = f", {ends}" if ends else ""
            return fit_answer(f"{claim} at the median{ends}.", f"{claim}{ends}.", f"{claim}.")
        if row["verdict"] == SAME:
            margin = f"{100 * variants.EQUIVALENCE_MARGIN:g} %"
            return fit_answer(
                f"{a} and {b} are equivalent at the median, within {margin}.", f"Equivalent at the median, {margin}."
            )
        medians = f"medians {format_seconds(row['a_s'])} and {format_seconds(row['b_s'])}"
        return fit_answer(f"Not decided whether {a} or {b} is faster: {medians}.", f"Not decided: {medians}.")

    def _find_total_rows(self) -> list[dict[str, Any]]:
        return self.comparison.filter(pl.col("step") == self._total).sort("quantile").to_dicts()

    def _describe_comparison(self, a: str, b: str) -> str:
        rows = self._find_total_rows()
        if not rows or rows[0]["ratio"] is None:
            reason = rows[0]["reason"] if rows else self._explain_no_comparison()
            return f"The medians of {a} and {b} cannot be compared: {reason}"
        row = rows[0]
        verb = "decides (scheduled or unschedulable)" if self.found.imported else "schedules"
        if row["verdict"] in DIFFERENT:
            fast, slow = (b, a) if row["verdict"] == FASTER else (a, b)
            times = [format_seconds(row["b_s" if name == b else "a_s"]) for name in (fast, slow)]
            ratio, ends = _format_ratio(row, above=slow == a)
            interval = f" ({100 * row['level']:g} % interval {ends})" if ends else ""
            result = f"{fast} {verb} {ratio}x faster than {slow} at the median{interval}"
            return f"{result}: {' against '.join(times)} from {self._total}"
        times = [f"{format_seconds(row['a_s'])} with {a}", f"{format_seconds(row['b_s'])} with {b}"]
        medians = f"the median from {self._total} is {' and '.join(times)}"
        if row["verdict"] == SAME:
            return f"{a} and {b} are equivalent within {100 * variants.EQUIVALENCE_MARGIN:g} %: {medians}"
        return f"Not decided whether {a} or {b} is faster: {medians}; {row['reason']}"

    def _describe_lost_tail(self) -> str:
        rows = self._find_total_rows()
        if not rows or rows[0]["ratio"] is None or not (rows[-1]["a_never"] or rows[-1]["b_never"]):
            return ""
        return f"There is no verdict at p95: {rows[-1]['reason']}"

    def _describe_gangs(self, a: str, b: str) -> str:
        gangs = {name: pl.concat([run.gangs for run in self.found.runs[name]]) for name in (a, b)}
        if not all(table.height for table in gangs.values()):
            return ""
        counts = [f"{int(table['complete'].sum())} of {table.height} with {name}" for name, table in gangs.items()]
        return f"Complete gangs: {', '.join(counts)}"

    def _describe_rates(self) -> str:
        """Sustained rates of the first runs; empty if none is decided."""
        rates = {name: self.first[name].sustainable.words for name in self.found.names[:2]}
        if not any(rates.values()):
            return ""
        texts = ", ".join(f"{rate or 'not decided'} with {name}" for name, rate in rates.items())
        several = any(len(self.found.runs[name]) > 1 for name in rates)
        return f"Sustained rate: {texts}{' (first run of each)' if several else ''}"

    def _explain_no_comparison(self) -> str:
        if not self.found.pairs:
            return "no turn has a run of both"
        empty = [name for name in self.found.names[:2] if not any(run.steps.height for run in self.found.runs[name])]
        return f"no workload of {' and '.join(empty)} was accepted" if empty else "the runs have no step in common"

    @cached_property
    def league(self) -> pl.DataFrame:
        """Table LEAGUE: all variants side by side."""
        return build_league_table(self.found)

    @property
    def league_shown(self) -> pl.DataFrame:
        """What decides between schedulers: rate, tail of the waits, gangs, GPUs held in vain, verdict."""
        rates = {name: run.sustainable.words or "not decided" for name, run in self.first.items()}
        gangs = pl.format("{} of {}", "complete", "gangs")
        return self.league.select(
            "side",
            sustained=pl.col("side").replace_strict(rates, return_dtype=pl.String),
            p95_s="p95_s",
            gangs_complete=pl.when(pl.col("gangs") > 0).then(gangs),
            held_in_vain_gpu_s="held_gpu_s",
            median_wait=pl.coalesce("verdict", pl.lit("baseline")),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes: where and how often it was measured, notes of the runs, and warnings with how many runs have them."""
        runs = ", ".join(f"{len(self.found.runs[name])} of {name}" for name in self.found.names)
        ignored = [
            f"{name} is in the league table; only the first two variants are compared step by step."
            for name in self.found.names[2:]
        ]
        notes = {note: None for _, run in self.found.everything for note in run.conditions.notes}
        warnings = [line for name in self.found.names for line in self._list_warnings(name)]
        return (f"Runs: {runs}; {self._describe_cluster()}", *ignored, *notes, *warnings)

    def _list_warnings(self, name: str) -> list[str]:
        """List each validity condition that failed, by the first run where it did, and the number of such runs."""
        runs, by_condition = self.found.runs[name], dict[str, list[str]]()
        for run in runs:
            broken = run.validity.filter(~pl.col("holds") & ~pl.col("grave"))
            for condition, reason in broken.select("condition", "reason").iter_rows():
                by_condition.setdefault(condition, []).append(reason)
        return [
            f"warning: {reasons[0]} ({name}{f', in {len(reasons)} of {len(runs)} runs' if len(runs) > 1 else ''})."
            for reasons in by_condition.values()
        ]

    def _describe_cluster(self) -> str:
        conditions = self.first[self.found.names[0]].conditions
        if self.found.imported:
            return "imported from another tool, in whole seconds; plan and cluster are unknown."
        nodes = "simulated, so steps after the binding are simulated too" if conditions.simulated_nodes else "real"
        where = (
            f"Kubernetes {conditions.server_version}, {conditions.provider or 'your cluster'}; its nodes are {nodes}."
        )
        return f"plan {conditions.scenario_name}; {where}"

    @property
    def limits(self) -> list[str]:
        """Bottlenecks of each variant's first run, in sentences."""
        return [f"{name}: {line}" for name, run in self.first.items() for line in run.findings]

    def by_side(self, chosen: str) -> pl.DataFrame:
        """A table of each variant's first run (a property of `Analysis`), with the variant as first column."""
        named = [(pl.lit(name).alias("side"), getattr(run, chosen)) for name, run in self.first.items()]
        tables: list[pl.DataFrame] = [table.select(name, pl.all()) for name, table in named]
        return pl.concat(tables)

    def key_numbers(self) -> list[KeyNumber]:
        """Figures below the answer."""
        return summary.build_key_numbers(self.found, self.comparison, self.league)

    def next_steps(self) -> list[str]:
        """Next steps: what to decide or run next."""
        return summary.list_next_steps(self.found, self.comparison, self.league)

    def check(self) -> pl.DataFrame:
        """The invariants, one row each.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        return invariants.check_variants(self.found, self.comparison)


def _format_ratio(row: dict[str, Any], *, above: bool) -> tuple[str, str]:
    """The ratio and the ends of its interval, inverted unless it is `above` 1; empty without ends."""
    figures = [row["ratio"], row["low"], row["high"]]
    if not above:
        figures = [None if value is None else 1 / value for value in (row["ratio"], row["high"], row["low"])]
    ratio, low, high = (None if value is None else format_number(value) for value in figures)
    return str(ratio), f"{low} to {high}" if low is not None else ""


def build_study(config: NotebookConfig, run: Run) -> Study:
    """Read the runs, or measure them, compare them, and write the tables of each variant's first run.

    Raises
    ------
    InputError, ConfigError
        The folder holds no scale test, or the live test cannot run with these settings.
    """
    folder = Path(config.runs)
    if config.live:
        from workbench.scaletest.test_run.live_dashboard import run_live_test

        folder = run_live_test(config, run.folder)
    study = Study(config, variants.read_variants(folder))
    run.add_input(folder, digest=False)
    run.write_table(COMPARISON, study.comparison)
    run.write_table(LEAGUE, study.league)
    for table, name in _WRITTEN_TABLES:
        run.write_table(add_variant_column(table), study.by_side(name))
    return study


def add_variant_column(table: Table) -> Table:
    """A result table with the variant (`side`) in front of its columns and key."""
    from workbench.core.tables import Column, Table

    variant = Column("side", "str", "Whose first run.")
    return Table(table.name, table.meaning, ("side", *table.key), (variant, *table.columns))
