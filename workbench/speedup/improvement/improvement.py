"""The search for settings that make a suite faster: tried in turn, kept only if proven, proven again in fresh sessions.

Flow: a recording of the suite as it is → its profile and advice → a trial of all changes at once → one by one, the best
first, against what is kept so far → a recording of both sides in fresh sessions that judges, answers row for row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import Field

from workbench import stats
from workbench.core import files, locks, signals
from workbench.core.schema import read_model_file
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.config import ImproveConfig, ProfileConfig
from workbench.speedup.improvement.changes import NOT_TRIED, Change, StatePart, list_changes
from workbench.speedup.improvement.trials import FINAL, NOW, Trial, run_trial
from workbench.speedup.recording import recorder, recording_plan
from workbench.speedup.recording.recording_plan import RecordingPlan
from workbench.speedup.study import study_profile

Say = Callable[[str], None]
STATE_FILE, PATCH_FILE, UNDO_FILE = "improve.json", "spark-defaults.improved.conf", "spark-defaults.undo.conf"
IMPROVED = "improved"
SCREEN_ROUNDS, MAX_ROUNDS, SESSIONS = 3, 14, 5
# Of a screening: fewer rounds tell less; what seems slower is not tried again.
MIN_SCREENED = 1.015
# Several changes are tried, and one that does nothing must not come through.
LEVEL = 0.99
MIN_GAIN = 1.02


class ImproveState(StatePart):
    """What is known so far, in the folder; a search that was stopped goes on from it."""

    changes: list[Change] = Field(default_factory=list)
    screened: bool = False
    kept: dict[str, str] = Field(default_factory=dict)
    left_out: list[str] = Field(default_factory=list)
    proven: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    spent_s: float = 0.0


@dataclass(frozen=True)
class Improvement:
    """The end of a search: settings that are kept (empty: none is proven), and why it ended."""

    state: ImproveState
    reasons: tuple[str, ...]

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid where the search ended before its proof."""
        return "invalid" if self.reasons else "valid"

    @property
    def is_improved(self) -> bool:
        """Whether fresh sessions showed it, with the same answers."""
        return self.state.proven == "FASTER" and bool(self.state.kept)

    @property
    def answer(self) -> str:
        """What is proven, in one sentence."""
        state = self.state
        if self.is_improved:
            kept = ", ".join(f"{name}={value}" for name, value in state.kept.items())
            return f"{state.ratio:.2f}x as fast ({state.low:.2f} to {state.high:.2f}) with {kept}."
        if self.reasons:
            return f"Not at its end: {self.reasons[0]}."
        return "No change is proven to make this suite faster."


def improve_suite(config: ImproveConfig, *, say: Say) -> Improvement:
    """Search settings for a suite; nothing is changed but files in `config.out`.

    Raises
    ------
    RunFailedError
        A session failed. What is known stays in the folder, and the same command goes on from it.
    """
    config.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with (
        signals.interrupt_on_termination(),
        locks.lock_exclusively(config.out, "another process searches in this folder"),
    ):
        path = config.out / STATE_FILE
        state = read_model_file(ImproveState, path, noun="search") if path.exists() else ImproveState()
        before_s = state.spent_s

        def keep_state() -> bool:
            """Write what is known; whether there is time left."""
            state.spent_s = before_s + time.monotonic() - started
            files.write_text(path, state.model_dump_json(indent=1) + "\n")
            return state.spent_s < config.budget_s

        reasons = _search(config, state, keep_state, say)
        keep_state()
        _write_patch(config.out, state)
    return Improvement(state, tuple(reasons))


def _search(config: ImproveConfig, state: ImproveState, keep_state: Callable[[], bool], say: Say) -> list[str]:
    """Fill the state; reasons why the search is not at its end."""
    record = config.build_record_config(
        out=config.out / "as-it-is", engines=["spark"], labels=[NOW], sessions=1, passes=2
    )
    say("the suite as it is: one session")
    recorded = recorder.record_suite(record, say=say).recording
    prepared = recording_plan.prepare_recording(record, say=say)
    timeout_s = config.session_timeout_s
    if not state.screened:
        log = str(next(recorded.iterate_logs())[2])
        study = study_profile(read_event_logs(log), ProfileConfig(event_log=log))
        state.changes, state.left_out = list_changes(study.advice, config.tries)
        if state.changes:
            say(f"{len(state.changes)} changes, {SCREEN_ROUNDS} rounds each")
            arms: dict[str, dict[str, str]] = {NOW: {}}
            arms |= {change.name: {change.setting: change.value} for change in state.changes}
            _note_screening(state, run_trial(prepared, arms, SCREEN_ROUNDS, timeout_s=timeout_s))
        state.screened = True
    if not keep_state():
        return ["the budget of time ended after the screening"]
    for change in _list_promising(state):
        if change.verdict != NOT_TRIED:
            continue
        say(f"{change.name}, {change.screened:.2f}x in the screening")
        _decide(prepared, state, change, timeout_s)
        if not keep_state():
            return ["the budget of time ended before all changes were tried"]
    if state.kept and not state.proven:
        say(f"proof: {SESSIONS} fresh sessions with and without")
        _prove(config, state, say)
    return []


def _note_screening(state: ImproveState, trial: Trial) -> None:
    usual = trial.list_totals(NOW)
    for change in state.changes:
        if change.name in trial.wrong:
            change.verdict = f"refused: {trial.wrong[change.name]}"
        else:
            change.screened = median(one / two for one, two in zip(usual, trial.list_totals(change.name), strict=True))


def _list_promising(state: ImproveState) -> list[Change]:
    """Changes that seemed faster, the best of each setting, best first."""
    best: dict[str, Change] = {}
    for change in state.changes:
        seen = best.get(change.setting)
        if change.screened is not None and (seen is None or change.screened > (seen.screened or 0.0)):
            best[change.setting] = change
    chosen = [change for change in best.values() if (change.screened or 0.0) >= MIN_SCREENED]
    return sorted(chosen, key=lambda change: -(change.screened or 0.0))


def _decide(prepared: RecordingPlan, state: ImproveState, change: Change, timeout_s: float) -> None:
    """Try one change against what is kept; it is kept if it is FASTER."""
    arms: Mapping[str, Mapping[str, str]] = {NOW: state.kept, IMPROVED: state.kept | {change.setting: change.value}}

    def judge(trial: Trial) -> stats.Verdict:
        found = trial.compare(NOW, IMPROVED, LEVEL)
        return stats.ratio_verdict(found.estimate, found.low, found.high)

    trial = run_trial(prepared, arms, MAX_ROUNDS, is_enough=lambda trial: judge(trial) in FINAL, timeout_s=timeout_s)
    found = trial.compare(NOW, IMPROVED, LEVEL)
    change.ratio, change.low, change.high, change.n_rounds = found.estimate, found.low, found.high, found.n
    change.verdict = judge(trial) if IMPROVED not in trial.wrong else f"refused: {trial.wrong[IMPROVED]}"
    if change.verdict == "FASTER" and (found.estimate or 0.0) >= MIN_GAIN:
        state.kept[change.setting] = change.value


def _prove(config: ImproveConfig, state: ImproveState, say: Say) -> None:
    """Record both sides in fresh sessions that take turns; answers are compared row for row."""
    settings = ",".join(f"{name}={value}" for name, value in state.kept.items())
    record = config.build_record_config(
        out=config.out / "proof",
        engines=[],
        labels=[],
        sides=[f"{NOW}:spark", f"{IMPROVED}:spark,{settings}"],
        sessions=SESSIONS,
        passes=2,
    )
    outcome = recorder.record_suite(record, say=say)
    totals: dict[str, list[float]] = {NOW: [], IMPROVED: []}
    rows = outcome.recording.read_executions()
    for side, times in totals.items():
        for session in range(1, SESSIONS + 1):
            warm = rows.filter(rows["label"] == side, rows["session"] == session, rows["pass"] == 2)
            times.append(float(warm["duration_s"].sum()))
    found = stats.paired_log_ratio(totals[NOW], totals[IMPROVED], level=LEVEL)
    state.ratio, state.low, state.high = found.estimate, found.low, found.high
    state.proven = stats.ratio_verdict(found.estimate, found.low, found.high)
    if outcome.reasons:
        state.proven = f"refused: {outcome.reasons[0]}"


def _write_patch(out: Path, state: ImproveState) -> None:
    """Lines for spark-defaults.conf with what is proven, and those that take it back."""
    if state.proven != "FASTER":
        return
    now: dict[str, str | None] = {change.setting: change.now for change in state.changes}
    patch = [f"{name} {value}" for name, value in state.kept.items()]
    undo = [
        f"{name} {now[name]}" if now.get(name) is not None else f"# remove {name}: it was not set"
        for name in state.kept
    ]
    files.write_text(out / PATCH_FILE, "\n".join(patch) + "\n")
    files.write_text(out / UNDO_FILE, "\n".join(undo) + "\n")
