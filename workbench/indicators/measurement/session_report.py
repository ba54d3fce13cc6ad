"""A measured session and its report: its answer, verdicts and next commands, as text and as JSON document."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.console.tables import format_table
from workbench.core.errors import ConfigError
from workbench.core.formats import NULL
from workbench.indicators.analysis.effects import Comparison, format_dimension_effects
from workbench.indicators.analysis.idle_effects import format_idle_effects
from workbench.indicators.analysis.observations import CLOCK_NAMES, WHOLE_RUN, describe_reports
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.store.archive import PlannedMetric, Session
from workbench.stats.verdicts import DECIDED, FASTER, SAME, SLOWER, UNDECIDED, VERDICTS

_HEADERS = ("metric", "stack", "times better", "interval", "rounds", "verdict", "other clock", "load", "")


@dataclass(frozen=True)
class SessionOutcome:
    """A measured session: its folder, and its comparison with all tables."""

    folder: Path
    compared: Comparison

    @property
    def session(self) -> Session:
        """The plan, with how it ended."""
        return self.compared.observed.session

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped by Ctrl-C; it can be resumed."""
        return self.session.stop_reason == "interrupted"


def check_single_indicator(config: SessionConfig) -> None:
    """Refuse a search over several indicators, or none."""
    if len(targets := [*config.indicators, *config.script]) != 1:
        raise ConfigError(
            "exactly one indicator is needed",
            where="--indicator, --script",
            found=targets or "none",
            allowed="one, such as --indicator sort",
        )


def choose_metric(outcome: SessionOutcome, wanted: str | None, *, resume: str) -> PlannedMetric:
    """The metric of a search: the `wanted` one, or the only one. `resume`: Command that goes on with it."""
    metrics = {metric.name: metric for metric in outcome.session.cases[0].metrics}
    fitting = [name for name in metrics if wanted in (None, name)]
    if len(fitting) != 1:
        raise ConfigError(
            "exactly one metric is needed for the search" if metrics else "the indicator has no metric",
            where="--metric",
            found=wanted or (f"{len(metrics)} metrics" if metrics else "no result with a direction"),
            allowed=list(metrics)[:20] or None,
            do=f"{resume} --metric NAME" if metrics else "say which is better, such as --better total=lower",
        )
    return metrics[fitting[0]]


def count_more_rounds(needs: Iterable[tuple[int | None, int]]) -> int:
    """Rounds that undecided comparisons likely need beyond those that are done: 1 to 200; 10 where that is unknown.

    `needs` are pairs of the rounds needed in all (null: unknown) and those that are done.

    >>> count_more_rounds([(30, 10), (None, 10)]), count_more_rounds([(None, 10)]), count_more_rounds([(9, 10)])
    (20, 10, 1)
    """
    counts = [max(1, needed - n_done) for needed, n_done in needs if needed is not None]
    return min(max(counts, default=10), 200)


def format_answer(outcome: SessionOutcome) -> str:
    """The session's answer: one comparison with its figure, or the counts of verdicts; then why the rest is open."""
    table = outcome.compared.effects
    others = table.filter(~table["control"])
    rounds = outcome.compared.judgement["rounds"][0]
    clock = CLOCK_NAMES[outcome.session.clock]
    if not outcome.compared.sound:
        return f"Nothing can be concluded: {outcome.compared.judgement['reasons'][0][0]}."
    if others.height == 1:
        # One comparison in a sentence: what it is, by which clock, with its interval.
        row = others.row(0, named=True)
        subject = f"{row['arm']}, {row['metric']}"
        if row["verdict"] == UNDECIDED:
            return f"Undecided against {row['baseline']}: {subject}: {row['undecided_because']} ({rounds} rounds)."
        figures = f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}] times the baseline's speed"
        words = {FASTER: "faster than", SLOWER: "slower than", SAME: f"within {100 * row['margin']:.2g} % of"}
        clock = CLOCK_NAMES[row["clock"]]
        return f"{subject}: {words[row['verdict']]} {row['baseline']} in {clock}, {figures}, {rounds} rounds."
    if (first := _find_missing_answer(outcome)) is not None:
        return f"Not answered: {first}."
    counts = Counter(others["verdict"].to_list())
    verdicts = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
    answer = f"Against {outcome.session.baseline}, by stack and metric in {clock}: {verdicts or 'no effects'}"
    open_ = others.filter(others["verdict"] == UNDECIDED)
    reason = (
        f" Undecided: {open_['arm'][0]}, {open_['metric'][0]}: {open_['undecided_because'][0]}." if open_.height else ""
    )
    return f"{answer}; {rounds} rounds.{reason}"


def format_session(outcome: SessionOutcome) -> str:
    """A session as text: table of verdicts, validity with reasons, notes, folder."""
    session, judgement = outcome.session, outcome.compared.judgement.row(0, named=True)
    table = list(map(_format_effect_row, outcome.compared.effects.iter_rows(named=True)))
    level = outcome.compared.effects["level"].max() if outcome.compared.effects.height else None
    share = "" if level is None else f", intervals at {100 * float(str(level)):.1f} %"
    share += ", at every number of rounds" if session.method == "sequence" and share else ""
    dimensions: list[str] = []
    if outcome.compared.dimensions is not None:
        lines = format_dimension_effects(outcome.compared.dimensions)
        dimensions = ["by dimension:", *(f"  {line}" for line in lines), ""]
    runs = outcome.compared.observed.runs
    wall_s, cpu_s = float(runs["duration_s"].sum() or 0), float(runs["cpu_s"].sum() or 0)
    others = outcome.compared.effects.filter(~outcome.compared.effects["control"])
    is_open = session.stop_reason == "decided" and not others["verdict"].is_in(DECIDED).any()
    ended = "more rounds would decide nothing" if is_open else session.stop_reason
    cost = f"{runs.height} runs, {wall_s:.0f} s of runs, {cpu_s:.0f} s of CPU time"
    lines = [
        format_answer(outcome),
        "",
        f"baseline: {session.baseline}; {judgement['rounds']} round(s), {judgement['runs']} runs, "
        f"{judgement['failed']} without values; ended: {ended}{share}; seed {session.seed}",
        "",
        *format_table(table, _HEADERS),
        "",
        *dimensions,
        _format_judgement(judgement),
        *(f"  {reason}" for reason in judgement["reasons"][1:]),
    ]
    idle = format_idle_effects(outcome.compared.effects)
    notes = [*idle, *session.notes, *describe_reports(outcome.compared.observed)]
    lines += ["", "notes:", *(f"  {note}" for note in notes)] if notes else []
    lines += [f"cost: {cost}", "", f"written: {outcome.folder}"]
    lines += [f"next: {command}" for command in list_next_commands(outcome)]
    return "\n".join(lines)


def _find_missing_answer(outcome: SessionOutcome) -> str | None:
    """Why a sound session does not answer for each arm, where that is more than too few rounds for all."""
    reasons = outcome.compared.judgement["reasons"][0]
    if outcome.compared.valid or not len(reasons) or reasons[0].startswith("nothing is known yet"):
        return None
    return str(reasons[0])


def _format_judgement(judgement: dict[str, Any]) -> str:
    """The session's verdict with the first reason against it, or to bear in mind."""
    if not judgement["reasons"]:
        return f"session: {judgement['verdict']}"
    between = "; bear in mind" if judgement["verdict"] == "valid" else ""
    return f"session: {judgement['verdict']}{between}: {judgement['reasons'][0]}"


def list_next_commands(outcome: SessionOutcome) -> list[str]:
    """Commands that go on from here: resume what was interrupted, measure what is undecided, else recommend."""
    session, folder = outcome.session, shlex.quote(str(outcome.folder))
    place = " --backend kubernetes" if session.backend == "kubernetes" else ""
    if outcome.interrupted:
        return [f"workbench indicators run --resume {folder}{place}"]
    effects = outcome.compared.effects.filter(~outcome.compared.effects["control"])
    commands = []
    effects = effects.filter(effects["spoiled_by"].is_null())
    open_ = effects.filter((effects["verdict"] == UNDECIDED) & effects["ratio"].is_not_null())
    if open_.height and session.backend == "process" and session.design == "rounds":
        more = count_more_rounds((needed, session.rounds_done) for needed in open_["rounds_needed"])
        commands.append(f"workbench indicators run --resume {folder} --more {more}")
    if outcome.compared.sound and effects.height:
        by_cpu = set(open_["decided_by"].drop_nulls().to_list()) if open_.height else set()
        clock = (
            " --clock cpu" if session.clock == "wall" and any(decider.startswith("cpu") for decider in by_cpu) else ""
        )
        commands.append(f"workbench indicators recommend {folder}{clock}")
    return commands


def build_session_document(outcome: SessionOutcome) -> dict[str, Any]:
    """A session as one JSON document."""
    session = outcome.session
    return {
        "session_id": session.session_id,
        "folder": str(outcome.folder),
        "baseline": session.baseline,
        "seed": session.seed,
        "stop_reason": session.stop_reason,
        "answer": format_answer(outcome),
        "clock": session.clock,
        "rounds_done": session.rounds_done,
        "next": list_next_commands(outcome),
        "notes": [*session.notes, *describe_reports(outcome.compared.observed)],
        "judgement": outcome.compared.judgement.row(0, named=True),
        "effects": outcome.compared.effects.to_dicts(),
        **({} if (dimensions := outcome.compared.dimensions) is None else {"dimensions": dimensions.to_dicts()}),
    }


def _format_effect_row(row: dict[str, Any]) -> tuple[str, ...]:
    ratio = NULL if row["ratio"] is None else f"{row['ratio']:.3f}"
    interval = NULL if row["low"] is None else f"[{row['low']:.3f}, {row['high']:.3f}]"
    why = None if row["control"] else row["undecided_because"]
    parts = [why, None if row["spoiled_by"] else row["reason"], *(row["unequal"] or ())]
    remark = "; ".join(part for part in parts if part)
    # Ratio and verdict by the other clock, marked where the CPU time is of whole runs.
    if row["other_ratio"] is None:
        other_clock = NULL
    else:
        name = "wall" if row["clock"] == "cpu" else "CPU, whole run" if row["cpu_part"] == WHOLE_RUN else "CPU"
        other_clock = f"{name} {row['other_ratio']:.3f} {row['other_verdict']}"
    # Load of the machine during the runs: other processes, stolen time, throttled runs.
    parts = []
    if row["other_load"] is not None:
        parts.append(f"others {100 * row['other_load']:.0f} %")
    if row["stolen"]:
        parts.append(f"stolen {100 * row['stolen']:.1f} %")
    if row["throttled"]:
        parts.append(f"throttled {row['throttled']}")
    if row["mhz_low"] and row["mhz_high"]:
        low, high = f"{row['mhz_low']:.0f}", f"{row['mhz_high']:.0f}"
        parts.append(f"{low} MHz" if low == high else f"{low}-{high} MHz")
    return (
        row["metric"], row["arm"], ratio, interval, str(row["n"]), row["verdict"], other_clock,
        (", ".join(parts) or NULL), remark[:160],
    )  # fmt: skip
