"""Runs of one plan by variant (sides.json), and how two variants differ with the run as the unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field

from workbench import stats
from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.schema import StrictModel, read_model_file
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.analysis.time_breakdown import STEP_NAMES
from workbench.scaletest.observation import run_conditions
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.tables import COMPARISON
from workbench.stats.verdicts import UNDECIDED

EQUIVALENCE_MARGIN = 0.05
CONFIDENCE_LEVEL = 0.95
COMPARED_QUANTILES = (0.5, 0.95)
ONE_RUN_NOTE = "one run each does not show how much runs of the same variant differ"


SESSION_FILE = "sides.json"
CLOCKS = ("client", "server", "mixed")
MAX_REPEAT = 100
_MAX_BYTES = 1 << 20


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
            row["reason"] = ONE_RUN_NOTE if len(a) == 1 else explain_open_verdict(interval, margin, tested)
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
        """The quantile in each run."""
        condition = (
            (pl.col("step") == step) & (pl.col("clock") == self.clock) & ((pl.col("quantile") - share).abs() < 1e-9)
        )
        return [_build_run_quantile(run.filter(condition)["value_s"].to_list()) for run in self.runs]


@dataclass(frozen=True)
class _RunQuantile:
    """A run's quantile, or why it cannot be part of a ratio: "never", "no time" or "absent"."""

    seconds: float | None
    lack: str = ""


def _build_run_quantile(values: list[float | None]) -> _RunQuantile:
    if not values:
        return _RunQuantile(None, "absent")
    if values[0] is None:
        return _RunQuantile(None, "never")
    # Below zero: by a clock of whole seconds, or between two clocks.
    return _RunQuantile(float(values[0])) if values[0] > 0 else _RunQuantile(None, "no time")


def _list_common_steps(a: _VariantQuantiles, b: _VariantQuantiles) -> list[str]:
    """Steps that both variants have, in order; without those that take no time in any run."""
    both = a.list_steps(timed=False) & b.list_steps(timed=False)
    return sorted(both & (a.list_steps(timed=True) | b.list_steps(timed=True)), key=STEP_NAMES.index)


def _is_timed(step: str, share: float, a: _VariantQuantiles, b: _VariantQuantiles) -> bool:
    """Some run has a duration above zero, or never completed the step."""
    return any(quantile.lack != "no time" for side in (a, b) for quantile in side.list_quantiles(step, share))


def _build_comparison_row(step: str, share: float, a: _VariantQuantiles, b: _VariantQuantiles) -> dict[str, Any]:
    first, second = a.list_quantiles(step, share), b.list_quantiles(step, share)
    reason = _explain_lost_pairs(share, a.name, first, b.name, second)
    pairs = [(x.seconds, y.seconds) for x, y in zip(first, second, strict=True) if x.seconds and y.seconds]
    interval = stats.paired_log_ratio([x for x, _ in pairs], [y for _, y in pairs], level=CONFIDENCE_LEVEL)
    never = [sum(quantile.lack == "never" for quantile in side) for side in (first, second)]
    one_sided = min(never) == 0 < max(never)
    if reason is not None:
        estimate = None if one_sided else interval.estimate
        interval = stats.Interval(estimate, None, None, CONFIDENCE_LEVEL, len(pairs), interval.method, reason=reason)
    side_seconds = ([quantile.seconds for quantile in side if quantile.seconds] for side in (first, second))
    means = [
        _geometric_mean(side if one_sided else list(paired_seconds))
        for side, paired_seconds in zip(side_seconds, _split_pairs(pairs), strict=True)
    ]
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


def _split_pairs(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _explain_lost_pairs(
    share: float, a: str, first: list[_RunQuantile], b: str, second: list[_RunQuantile]
) -> str | None:
    """Why pairs are lost; None if none is."""
    whats = {
        "never": f"more than {100 * (1 - share):g} % of the workloads never completed it",
        "no time": "its duration is below the resolution",
        "absent": "the step does not exist",
    }
    reasons = []
    for lack, text in whats.items():
        counts = [
            (name, sum(quantile.lack == lack for quantile in side), len(side))
            for name, side in ((a, first), (b, second))
        ]
        if all(count == runs for _, count, runs in counts):
            reasons.append(f"{text} in all runs")
        elif any(count for _, count, _ in counts):
            where = [f"in {count} of {runs} runs of {name}" for name, count, runs in counts if count]
            reasons.append(f"{text} {' and '.join(where)}")
    return "; ".join(reasons) or None


def explain_open_verdict(interval: stats.Interval, margin: float, tested: int) -> str:
    """Why a row with an interval is undecided, and roughly how many runs would decide it."""
    needed = stats.count_required_pairs(interval, margin, tested)
    text = f"about {needed} runs per variant would decide it" if needed else "too close, or the runs vary too much"
    alone = stats.p_beyond(interval, margin)
    if alone is not None and alone <= 1 - CONFIDENCE_LEVEL:
        return f"significant alone, but not after correction for {tested} rows; {text}"
    return text


def _geometric_mean(values: list[float]) -> float | None:
    """Geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


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
        """Every run with the name of its variant."""
        return [(name, run) for name in self.names for run in self.runs[name]]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why runs are invalid; empty if all are valid."""
        return tuple(
            f"{name}, run {number + 1}: {reason}"
            for name in self.names
            for number, run in enumerate(self.runs[name])
            for reason in run.reasons
        )

    @property
    def imported(self) -> bool:
        """All runs were imported: their totals are between two clocks, and their plans are unknown."""
        return all(run.imported for _, run in self.everything)

    @property
    def total(self) -> tuple[str, str]:
        """The step from the beginning to scheduled, and its clock."""
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
        """All durations of a step: `side, run, duration_s`; null if the workload never completed it.

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
    """The runs of a folder by variant; a single run's folder is one variant."""
    place = Path(folder)
    if not (place / SESSION_FILE).is_file():
        if not (place / run_conditions.CONDITIONS_FILE).is_file():
            raise InputError(
                "not a scale test",
                where=place,
                found=f"neither {SESSION_FILE} nor {run_conditions.CONDITIONS_FILE}",
                do="workbench scaletest run",
            )
        run = analyse_run(place)
        # The scheduler of an imported run is unknown.
        name = next(iter(run.test.schedulers), "imported" if run.imported else "run")
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
    plans = {run.test.scenario_sha256 for run in all_runs}
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
    path = run.folder / run_conditions.SCENARIO_FILE
    if not path.is_file():
        return run.test.scenario_sha256
    return scenario_file.hash_scenario(scenario_file.load_scenario(path).model_copy(update={"schedulers": ()}))
