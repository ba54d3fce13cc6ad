"""Runs of one plan by variant (sides.json), and how two variants differ with the run as the unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import Field

from workbench import stats
from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.formats import fit_answer
from workbench.core.schema import StrictModel, read_model_file
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.analysis.time_breakdown import STEP_NAMES
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.tables import COMPARISON, LEAGUE
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED

EQUIVALENCE_MARGIN = 0.05
CONFIDENCE_LEVEL = 0.95
COMPARED_QUANTILES = (0.5, 0.95)
ONE_RUN_NOTE = "one run each does not show how much runs of the same variant differ"
SESSION_FILE = "sides.json"
CLOCKS = ("client", "server", "mixed")
MAX_REPEAT = 100
_MAX_BYTES = 1 << 20
_BASE = "the others are compared with it"


def compare_variants(
    a: Sequence[pl.DataFrame],
    b: Sequence[pl.DataFrame],
    *,
    names: tuple[str, str] = ("A", "B"),
    clock: str = "client",
    margin: float = EQUIVALENCE_MARGIN,
) -> pl.DataFrame:
    """How do the runs of B differ from those of A, step by step?

    `a`, `b`: Table QUANTILES of each run: the k-th of A and the k-th of B are a pair, made one after the other.

    Returns: Table COMPARISON: per step and quantile (p50, p95) the ratio A over B of the runs' quantiles, with the
    paired t interval (95 %) on logarithms, and a verdict over all rows (Holm). One run per variant gives a ratio
    without an interval, and UNDECIDED.

    A row in which some run has no figure gets no verdict, because the remaining runs are a selection. If only one
    variant lost runs to workloads that were never scheduled, there is no ratio and the reason names the variant;
    otherwise the ratio of the remaining pairs is given without an interval. Does not show anything about other plans,
    rates or clusters.
    Source: paired t on logarithms; Holm (1979).
    """
    if not a or len(a) != len(b):
        raise InputError("the variants need the same number of runs", found=f"{len(a)} and {len(b)}", allowed="pairs")
    first, second = _VariantQuantiles(names[0], a, clock), _VariantQuantiles(names[1], b, clock)
    keys = [(step, share) for step in _list_common_steps(first, second) for share in COMPARED_QUANTILES]
    rows = [
        _build_comparison_row(step, share, first, second)
        for step, share in keys
        if _is_timed(step, share, first, second)
    ]
    intervals = [row.pop("interval") for row in rows]
    decided = stats.decide_beyond(intervals, [margin] * len(intervals))
    tested = sum(estimate.low is not None for estimate in intervals)
    for row, interval, decision in zip(rows, intervals, decided, strict=True):
        row |= {"verdict": decision.verdict, "adjusted_p_value": decision.adjusted_p_value}
        if decision.verdict == UNDECIDED and row["reason"] is None:
            row["reason"] = explain_open_verdict(interval, margin, tested)
    return COMPARISON.frame(rows)


@dataclass(frozen=True)
class _VariantQuantiles:
    """Quantiles of a variant's runs."""

    name: str
    runs: Sequence[pl.DataFrame]
    clock: str

    def list_steps(self, *, timed: bool) -> set[str]:
        """Steps that some run has; with `timed`, only those that take time in some run."""
        runs = [run.filter(pl.col("clock") == self.clock) for run in self.runs]
        if timed:
            runs = [run.filter(pl.col("longest_s").is_null() | (pl.col("longest_s") != 0)) for run in runs]
        return {step for run in runs for step in run["step"]}

    def list_quantiles(self, step: str, share: float) -> list[_RunQuantile]:
        """List the quantile of a step in each run, in seconds."""
        condition = (
            (pl.col("step") == step) & (pl.col("clock") == self.clock) & ((pl.col("quantile") - share).abs() < 1e-9)
        )
        return [
            _build_run_quantile(run.filter(condition).select("value_s", "resolution_s").rows()) for run in self.runs
        ]


@dataclass(frozen=True)
class _RunQuantile:
    """A run's quantile, or why it cannot be part of a ratio: "never", "no time" or "absent"."""

    seconds: float | None
    lack: str = ""
    resolution_s: float = 0.0


def _build_run_quantile(rows: Sequence[tuple[Any, ...]]) -> _RunQuantile:
    if not rows:
        return _RunQuantile(None, "absent")
    value_s, resolution_s = rows[0]
    if value_s is None:
        return _RunQuantile(None, "never")
    # Below zero: by a clock of whole seconds, or between two clocks.
    return _RunQuantile(value_s, resolution_s=resolution_s) if value_s > 0 else _RunQuantile(None, "no time")


def _list_common_steps(a: _VariantQuantiles, b: _VariantQuantiles) -> list[str]:
    """Steps that both variants have, in order; without those that take no time in any run."""
    both = a.list_steps(timed=False) & b.list_steps(timed=False)
    return sorted(both & (a.list_steps(timed=True) | b.list_steps(timed=True)), key=STEP_NAMES.index)


def _is_timed(step: str, share: float, a: _VariantQuantiles, b: _VariantQuantiles) -> bool:
    """Some run has a duration above zero, or never completed the step."""
    return any(quantile.lack != "no time" for side in (a, b) for quantile in side.list_quantiles(step, share))


def _build_comparison_row(step: str, share: float, a: _VariantQuantiles, b: _VariantQuantiles) -> dict[str, Any]:
    """Compare one quantile of a step's duration between variants `a` and `b`, run by run in pairs.

    The ratio is that of b to a. Where the quantile was never reached on one side only, there is no ratio.
    """
    first, second = a.list_quantiles(step, share), b.list_quantiles(step, share)
    # Reason why runs lack the quantile and cannot be paired.
    whats = {
        "never": f"more than {100 * (1 - share):g} % of the workloads never completed it",
        "no time": "its duration is below the resolution",
        "absent": "the step does not exist",
    }
    reasons = []
    for lack, text in whats.items():
        counts = [
            (name, sum(quantile.lack == lack for quantile in side), len(side))
            for name, side in ((a.name, first), (b.name, second))
        ]
        if all(count == runs for _, count, runs in counts):
            reasons.append(f"{text} in all runs")
        elif any(count for _, count, _ in counts):
            where = [f"in {count} of {runs} runs of {name}" for name, count, runs in counts if count]
            reasons.append(f"{text} {' and '.join(where)}")
    reason = "; ".join(reasons) or None
    pairs = [(x.seconds, y.seconds) for x, y in zip(first, second, strict=True) if x.seconds and y.seconds]
    paired = [x for x, _ in pairs], [y for _, y in pairs]
    resolution_s = max(quantile.resolution_s for quantile in first + second)
    interval = stats.paired_log_ratio(*paired, level=CONFIDENCE_LEVEL, resolution=resolution_s)
    never = [sum(quantile.lack == "never" for quantile in side) for side in (first, second)]
    one_sided = min(never) == 0 < max(never)
    if reason is not None:
        estimate = None if one_sided else interval.estimate
        interval = stats.Interval(estimate, None, None, CONFIDENCE_LEVEL, len(pairs), interval.method, reason=reason)
    side_seconds = ([quantile.seconds for quantile in side if quantile.seconds] for side in (first, second))
    means = []
    for side, paired_seconds in zip(side_seconds, paired, strict=True):
        values = side if one_sided else paired_seconds
        means.append(math.exp(sum(map(math.log, values)) / len(values)) if values else None)
    return {
        "step": step,
        "clock": a.clock,
        "quantile": share,
        "a_s": None if one_sided and never[0] else means[0],
        "b_s": None if one_sided and never[1] else means[1],
        "ratio": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "level": CONFIDENCE_LEVEL,
        "n": len(pairs),
        "a_never": never[0],
        "b_never": never[1],
        "reason": reason,
        "interval": interval,
    }


def explain_open_verdict(interval: stats.Interval, margin: float, tested: int) -> str:
    """Explain why a row is undecided, and roughly how many runs would decide it."""
    if interval.low is None:
        return ONE_RUN_NOTE if interval.n < 2 else interval.reason or ""
    needed = stats.count_required_pairs(interval, margin, tested)
    text = f"about {needed} runs per variant would decide it" if needed else "too close, or the runs vary too much"
    alone = stats.p_beyond(interval, margin)
    if alone is not None and alone <= 1 - CONFIDENCE_LEVEL:
        return f"significant alone, but not after correction for {tested} rows; {text}"
    return text


class VariantRun(StrictModel):
    """A run of one variant: its position in the session (from 0), and its folder below the session's."""

    side: str
    position: int = Field(ge=0)
    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


class Session(StrictModel):
    """A comparison: the variants in order (the first is A), and all planned runs, done or not."""

    format_version: int = Field(default=1, ge=1, le=1)
    scenario_sha256: str
    created_at: str
    sides: tuple[str, ...] = Field(min_length=1, max_length=8)
    repeat: int = Field(ge=1, le=MAX_REPEAT)
    runs: tuple[VariantRun, ...] = Field(max_length=800)


@dataclass(frozen=True)
class Variants:
    """Analyses by variant, in the order of the runs.

    `turns`: Turn of each run, from 0; runs of one turn are a pair. By default the k-th run belongs to the k-th turn.
    """

    folder: Path
    names: tuple[str, ...]
    runs: dict[str, tuple[Analysis, ...]]
    turns: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def everything(self) -> list[tuple[str, Analysis]]:
        """List every run with the name of its variant."""
        return [(name, run) for name in self.names for run in self.runs[name]]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why runs are invalid; empty if all are valid."""
        return tuple(
            f"{name}, run {number + 1}: {reason}"
            for name in self.names
            for number, run in enumerate(self.runs[name])
            for reason in run.reasons
        )

    @property
    def imported(self) -> bool:
        """Whether all runs were imported: their totals are between two clocks, and their plans are unknown."""
        return all(run.imported for _, run in self.everything)

    @property
    def total(self) -> tuple[str, str]:
        """Name of the step from the beginning to scheduled, and its clock."""
        return ("sent to decided", "mixed") if self.imported else ("due to scheduled", "client")

    @property
    def pairs(self) -> list[tuple[Analysis, Analysis]]:
        """Runs of the first two variants in the same turn; none for a single variant."""
        if len(self.names) < 2:
            return []
        by_turn = [
            dict(zip(self.turns.get(name, range(len(self.runs[name]))), self.runs[name], strict=True))
            for name in self.names[:2]
        ]
        return [(by_turn[0][turn], by_turn[1][turn]) for turn in sorted(by_turn[0].keys() & by_turn[1].keys())]

    def comparison(self, clock: str | None = None) -> pl.DataFrame:
        """Table COMPARISON of the first two variants, in pairs by turn; empty if no turn has both.

        Parameters
        ----------
        clock
            Clock of the steps; by default that of `total`.
        """
        pairs = self.pairs
        if not pairs:
            return COMPARISON.frame([])
        first, second = ([pair[side].quantiles for pair in pairs] for side in (0, 1))
        return compare_variants(first, second, names=(self.names[0], self.names[1]), clock=clock or self.total[1])

    def durations(self, step: str, clock: str | None = None) -> pl.DataFrame:
        """Return all durations of a step: `side, run, duration_s`; null if the workload never completed it.

        Parameters
        ----------
        clock
            Clock of the times; by default the first of client, server, mixed that has the step in every run.
        """
        parts = [
            run.steps.filter(pl.col("step") == step).select(
                pl.lit(name).alias("side"), pl.lit(number + 1, dtype=pl.Int64).alias("run"), "clock", "duration_s"
            )
            for name in self.names
            for number, run in enumerate(self.runs[name])
        ]
        rows = pl.concat(parts)
        everywhere = set(CLOCKS).intersection(*(set(part["clock"]) for part in parts if part.height))
        chosen = clock or next((candidate for candidate in CLOCKS if candidate in everywhere), CLOCKS[0])
        return rows.filter(pl.col("clock") == chosen).drop("clock")


def write_session(folder: str | Path, session: Session) -> Path:
    """Write `sides.json` atomically."""
    return files.write_text(Path(folder) / SESSION_FILE, session.model_dump_json(indent=1) + "\n")


def read_session(folder: str | Path) -> Session:
    """Read `sides.json`."""
    return read_model_file(Session, Path(folder) / SESSION_FILE, noun="list of runs by variant", max_bytes=_MAX_BYTES)


def read_variants(folder: str | Path) -> Variants:
    """Read the runs of a folder by variant; a single run's folder is one variant."""
    place = Path(folder)
    if not (place / SESSION_FILE).is_file():
        if not (place / run_records.CONDITIONS_FILE).is_file():
            raise InputError(
                "not a scale test",
                where=place,
                found=f"neither {SESSION_FILE} nor {run_records.CONDITIONS_FILE}",
                do="workbench scaletest run",
            )
        run = analyse_run(place)
        # The scheduler of an imported run is unknown.
        name = next(iter(run.conditions.schedulers), "imported" if run.imported else "run")
        return Variants(place, (name,), {name: (run,)})
    session = read_session(place)
    folders = {name: _folders_by_turn(place, session, name) for name in session.sides}
    if missing := [name for name, by_turn in folders.items() if not by_turn]:
        raise InputError(
            "a variant has no run", where=place, found=missing, do=f"workbench scaletest run --resume {place}"
        )
    runs = {name: tuple(analyse_run(path) for path in by_turn.values()) for name, by_turn in folders.items()}
    return Variants(place, session.sides, runs, {name: tuple(by_turn) for name, by_turn in folders.items()})


def _folders_by_turn(place: Path, session: Session, name: str) -> dict[int, Path]:
    """Folders of the finished runs of a variant, by turn."""
    runs = sorted((run for run in session.runs if run.side == name), key=lambda run: run.position)
    # An interrupted session lacks folders or tables.
    there = {turn: place / run.folder for turn, run in enumerate(runs)}
    return {turn: path for turn, path in there.items() if (path / "tables" / "submissions.parquet").is_file()}


def combine_variants(a: Sequence[str | Path], b: Sequence[str | Path], names: tuple[str, str] = ("A", "B")) -> Variants:
    """Two variants from any run folders."""
    runs = {name: tuple(analyse_run(folder) for folder in side) for name, side in zip(names, (a, b), strict=True)}
    all_runs = [run for side in runs.values() for run in side]
    plans = {run.conditions.scenario_sha256 for run in all_runs}
    # Runs of one scenario with different schedulers have different hashes.
    if len(plans) > 1 and len({_hash_plan(run) for run in all_runs}) > 1:
        raise InputError(
            "these runs had different plans",
            where="compare",
            found=sorted(plans)[:4],
            do="compare runs of one scenario that differ in the scheduler only",
        )
    return Variants(Path(), names, runs)


def _hash_plan(run: Analysis) -> str:
    """Hash of a run's scenario without its schedulers; including them if the folder has only the hash."""
    path = run.folder / run_records.SCENARIO_FILE
    if not path.is_file():
        return run.conditions.scenario_sha256
    scenario = scenario_file.load_scenario(path, kept=True)
    return scenario_file.hash_scenario(scenario.model_copy(update={"schedulers": ()}))


def build_league_table(variants: Variants) -> pl.DataFrame:
    """How do the schedulers differ on one plan?

    Returns: Table LEAGUE, one row per variant in the order of the session. Counts are sums over the runs; times are
    medians of the runs' own quantiles, null where a run never reached one; verdicts (FASTER, SLOWER, SAME, UNDECIDED)
    are of the median from due to scheduled against the first variant, in pairs by turn, corrected over all other
    variants (Holm), with how many more runs would tell.

    A gang is deadlocked if it held GPUs at the end and was never complete, while another gang was in the same state:
    one alone may wait for room. Does not show other plans, rates or clusters.
    """
    rows = [_build_row(name, variants.runs[name]) for name in variants.names]
    # Compare each variant's median wait with the first variant's: ratio, interval, verdict and reason by name.
    first, *others = variants.names
    nothing: dict[str, Any] = {"ratio": None, "low": None, "high": None, "verdict": None, "reason": _BASE}
    pairs = {name: _list_medians(variants, name) for name in others}
    both_medians = {name: [(a, b) for a, b in values if a and b] for name, values in pairs.items()}
    complete_pairs = {
        name: values for name, values in both_medians.items() if values and len(values) == len(pairs[name])
    }
    step, clock = variants.total
    is_total = (pl.col("step") == step) & (pl.col("clock") == clock)
    resolution_s = max(
        max(run.quantiles.filter(is_total)["resolution_s"], default=0.0) for _, run in variants.everything
    )
    intervals = {
        name: stats.paired_log_ratio(
            [a for a, _ in values], [b for _, b in values], level=CONFIDENCE_LEVEL, resolution=resolution_s
        )
        for name, values in complete_pairs.items()
    }
    decisions = stats.decide_beyond(list(intervals.values()), [EQUIVALENCE_MARGIN] * len(intervals))
    verdicts = {first: nothing}
    for name in others:
        if name not in intervals:
            lost = (
                "no turn has a run of both" if not pairs[name] else _explain_missing_medians(pairs[name], first, name)
            )
            verdicts[name] = nothing | {"verdict": UNDECIDED, "reason": lost}
            continue
        interval, decision = intervals[name], decisions[list(intervals).index(name)]
        reason: str | None = None
        if decision.verdict == UNDECIDED:
            reason = explain_open_verdict(interval, EQUIVALENCE_MARGIN, len(intervals))
        ends = {"ratio": interval.estimate, "low": interval.low, "high": interval.high}
        verdicts[name] = ends | {"verdict": decision.verdict, "reason": reason}
    return LEAGUE.frame([row | verdicts[row["side"]] for row in rows])


def _build_row(name: str, runs: tuple[Analysis, ...]) -> dict[str, Any]:
    """Row of the league table for one variant: counts are sums over its runs, times in seconds medians over them."""
    gangs = pl.concat([run.gangs.with_columns(run=pl.lit(place)) for place, run in enumerate(runs)])
    partial_gangs = gangs.filter(~pl.col("complete") & (pl.col("running_end") > 0))
    stuck = partial_gangs.filter(pl.len().over("run") > 1)
    return {
        "side": name,
        "runs": len(runs),
        "invalid": sum(bool(run.reasons) for run in runs),
        "gangs": gangs.height,
        "complete": int(gangs["complete"].sum()),
        "deadlocked": stuck.height,
        "held_gpu_s": float(gangs.filter(~pl.col("complete"))["held_gpu_s"].sum()),
        "stranded_gpus": _median_of_all([_mean_stranded(run) for run in runs]),
        "evicted": sum(int(run.pods["evicted"].sum()) for run in runs),
        "p50_s": _median_of_all([run.quantile("due to scheduled", 0.5) for run in runs]),
        "p95_s": _median_of_all([run.quantile("due to scheduled", 0.95) for run in runs]),
        "gang_p50_s": _median_of_all([run.quantile("gang completion", 0.5) for run in runs]),
        "gang_p95_s": _median_of_all([run.quantile("gang completion", 0.95) for run in runs]),
        "queue_p50_s": _median_of_all([run.quantile("queue wait", 0.5) for run in runs]),
        "queue_p95_s": _median_of_all([run.quantile("queue wait", 0.95) for run in runs]),
        "unfairness": _median_of_all([None if run.queues is None else run.queues.unfairness for run in runs]),
        "rate_per_s": _median_of_all([run.sustainable.low_per_s for run in runs]),
    }


def _median_of_all(values: list[float | None]) -> float | None:
    """Return the median of all runs; null where one has no value: the rest would be a selection."""
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers and len(numbers) == len(values) else None


def _mean_stranded(run: Analysis) -> float | None:
    waiting = run.gpus.filter(pl.col("waiting") > 0)
    return float(waiting["stranded"].mean()) if waiting.height else None  # type: ignore[arg-type]


def _list_medians(variants: Variants, name: str) -> list[tuple[float | None, float | None]]:
    """The medians of the first variant and of this one, by turn."""
    step, clock = variants.total
    pairs = Variants(variants.folder, (variants.names[0], name), variants.runs, variants.turns).pairs
    return [(a.quantile(step, 0.5, clock), b.quantile(step, 0.5, clock)) for a, b in pairs]


def _explain_missing_medians(pairs: list[tuple[float | None, float | None]], first: str, name: str) -> str:
    """Explain that medians are missing.

    `pairs` has the median of `first` and of `name` in each turn, null if missing.
    """
    lost = [(side, sum(pair[place] is None for pair in pairs)) for place, side in enumerate((first, name))]
    counts_text = " and ".join(f"in {count} of {len(pairs)} runs of {side}" for side, count in lost if count)
    return f"more than half of the workloads were never scheduled {counts_text}"


def _list_verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """Verdicts with the sides that have them, and what would decide an open one."""
    sides: dict[str, list[str]] = {}
    for row in rows:
        reason = f" ({row['reason']})" if row["verdict"] == UNDECIDED and row["reason"] else ""
        sides.setdefault(f"{_VERDICT_WORDS[row['verdict']]}{reason}", []).append(row["side"])
    return [f"{join_names(names)} {verdict}" for verdict, names in sides.items()]


def join_names(names: list[str]) -> str:
    """Names as a sentence has them.

    >>> join_names(["a"]), join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


_VERDICT_WORDS = {FASTER: "faster", SLOWER: "slower", SAME: "equivalent", UNDECIDED: "not decided"}


def choose_schedulers(league: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The schedulers with the best gangs, of these the ones not found slower; and why others are not among them.

    `league`: Table LEAGUE. Empty where none has both the most complete gangs and the fewest deadlocked.
    """
    rows = league.to_dicts()
    least, greatest = min(row["deadlocked"] for row in rows), max(row["complete"] for row in rows)
    best_rows = [row for row in rows if (row["deadlocked"], row["complete"]) == (least, greatest)]
    quickest = [row for row in best_rows if row["verdict"] == FASTER] or [
        row for row in best_rows if row["verdict"] != SLOWER
    ]
    chosen = [row["side"] for row in quickest or best_rows]
    dropped = [
        f"{row['side']} deadlocks {row['deadlocked']} of {row['gangs']} gangs"
        if row["deadlocked"] > least
        else f"{row['side']} completes {row['complete']} of {row['gangs']}"
        for row in rows
        if row not in best_rows
    ]
    if slower := [row["side"] for row in best_rows if row["side"] not in chosen and row["verdict"] == SLOWER]:
        dropped.append(f"{join_names(slower)} {'is' if len(slower) == 1 else 'are'} slower")
    return chosen, dropped


def answer_league(league: pl.DataFrame, rates: Mapping[str, str | None]) -> str:
    """Which scheduler to prefer, with its sustained rate and its gangs, in at most 90 characters.

    `league`: Table LEAGUE. `rates`: The sustained rate of each side in words; null where it is not decided.
    """
    chosen, dropped = choose_schedulers(league)
    if not chosen:
        return "No scheduler has both the most complete gangs and the fewest deadlocks."
    row = league.row(by_predicate=pl.col("side") == chosen[0], named=True)
    names = (join_names(chosen), f"{len(chosen)} of {league.height} schedulers")
    rate = rates.get(chosen[0]) if len(chosen) == 1 else None
    figures = [rate or "", f"{row['complete']} of {row['gangs']} gangs" if row["gangs"] else "", *dropped[:1]]
    stuck = league.filter(pl.col("deadlocked") > row["deadlocked"]).sort("deadlocked", descending=True)
    if stuck.height and not row["deadlocked"]:
        worst = stuck.row(0, named=True)
        figures.insert(0, f"no gang deadlocks, {worst['deadlocked']} of {worst['gangs']} with {worst['side']}")
    figures = [figure for figure in figures if figure] or ["by the waits of its workloads"]
    return fit_answer(*(f"Prefer {name}: {figure}." for name in names for figure in figures), f"Prefer {names[1]}.")


def describe_league(league: pl.DataFrame) -> str:
    """Describe complete and deadlocked gangs, and each median wait with its verdict against the first side's.

    `league`: Table LEAGUE.
    """
    rows = league.to_dicts()
    if league["gangs"].sum():
        stuck = [f"{row['deadlocked']} with {row['side']}" for row in rows if row["deadlocked"]]
        locked = f"; deadlocked: {', '.join(stuck)}" if stuck else "; none was deadlocked"
        # Complete gangs with the sides that have as many.
        sides: dict[str, list[str]] = {}
        for row in rows:
            sides.setdefault(f"{row['complete']} of {row['gangs']}", []).append(row["side"])
        gang_counts = [f"{count} with {join_names(names)}" for count, names in sides.items()]
        gangs = f"Complete gangs: {', '.join(gang_counts)}{locked}. "
    else:
        gangs = ""
    unfair = [f"{100 * row['unfairness']:.3g} % with {row['side']}" for row in rows if row["unfairness"] is not None]
    if unfair:
        gangs += (
            f"While all queues waited, the queues' shares of the GPUs differed from their quotas: {', '.join(unfair)}. "
        )
    verdicts = _list_verdicts([row for row in rows if row["verdict"]])
    return f"{gangs}Median wait against {rows[0]['side']}: {', '.join(verdicts)}." if verdicts else gangs.strip()
