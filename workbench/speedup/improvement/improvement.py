"""The search for settings that make a suite faster: tried in turn, kept only if proven, proven again in fresh sessions.

Flow: a recording of the suite as it is → its profile and advice → a trial of all changes in turn, on the queries that
take most of the time → one by one, the best first, on all queries against what is kept so far → those that need a
session of their own, such as memory → a recording of both sides in fresh sessions that judges, answers row for row →
a forecast of each query's gain, for the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import polars as pl
from pydantic import Field

from workbench import stats
from workbench.core import files, locks, signals
from workbench.core.schema import read_model_file
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.config import ImproveConfig, ProfileConfig
from workbench.speedup.improvement.changes import NOT_TRIED, Change, StatePart, list_changes
from workbench.speedup.improvement.proof import IMPROVED, SESSIONS, book_gains, record_proof
from workbench.speedup.improvement.trial_session import DEFAULT
from workbench.speedup.improvement.trials import FINAL, NOW, Trial, run_trial
from workbench.speedup.recording import recorder, recording_plan
from workbench.speedup.recording.recording_plan import Recording, RecordingPlan
from workbench.speedup.study import study_profile

Say = Callable[[str], None]
STATE_FILE, PATCH_FILE, UNDO_FILE = "improve.json", "spark-defaults.improved.conf", "spark-defaults.undo.conf"
SCREEN_ROUNDS, MAX_ROUNDS = 3, 14
# Of a screening: fewer rounds tell less; what seems slower is not tried again.
MIN_SCREENED = 1.015
# Queries that make up so much of the time are the slice that is screened.
SLICE_SHARE = 0.8
# Several changes are tried, and one that does nothing must not come through.
LEVEL = 0.99
MIN_GAIN = 1.02


class ImproveState(StatePart):
    """What is known so far, in the folder; a search that was stopped goes on from it."""

    changes: list[Change] = Field(default_factory=list)
    screened: bool = False
    suite_s: float = 0.0
    kept: dict[str, str] = Field(default_factory=dict)
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
        state.suite_s = sum(_list_warm_times(recorded)["duration_s"])
        log = str(next(recorded.iterate_logs())[2])
        study = study_profile(read_event_logs(log), ProfileConfig(event_log=log))
        state.changes = list_changes(study.advice, config.tries, config.conf)
        if screened := [change for change in state.changes if not change.needs_session]:
            queries = _list_long_queries(recorded)
            say(f"{len(screened)} changes, {SCREEN_ROUNDS} rounds each of {len(queries)} queries")
            arms: dict[str, dict[str, str]] = {NOW: {}}
            arms |= {change.name: {change.setting: change.value} for change in screened}
            trial = run_trial(prepared, arms, SCREEN_ROUNDS, queries=queries, timeout_s=timeout_s)
            _note_screening(screened, trial)
        state.screened = True
    if not keep_state():
        return ["the budget of time ended after the screening"]
    for change in [*_list_promising(state), *(change for change in state.changes if change.needs_session)]:
        if change.verdict != NOT_TRIED:
            continue
        if change.needs_session:
            say(f"{change.name}: {SESSIONS} fresh sessions with and without")
            _decide_in_sessions(config, state, change, say)
        else:
            say(f"{change.name}, {change.screened:.2f}x in the screening")
            _decide(prepared, state, change, timeout_s)
        if not keep_state():
            return ["the budget of time ended before all changes were tried"]
    if state.kept and not state.proven:
        say(f"proof: {SESSIONS} fresh sessions with and without")
        _prove(config, state, say)
    return []


def _list_warm_times(recorded: Recording) -> pl.DataFrame:
    """`query, duration_s` of the last pass, longest first."""
    rows = recorded.read_executions()
    times = rows.filter(pl.col("pass") == pl.col("pass").max()).group_by("query").agg(pl.col("duration_s").sum())
    return times.sort("duration_s", "query", descending=[True, False])


def _list_long_queries(recorded: Recording) -> list[str]:
    """The queries that make up most of the suite's warm time, longest first."""
    share_before = pl.col("duration_s").cum_sum().shift(1, fill_value=0.0) / pl.col("duration_s").sum()
    return _list_warm_times(recorded).filter(share_before < SLICE_SHARE)["query"].to_list()


def _note_screening(screened: Sequence[Change], trial: Trial) -> None:
    usual = trial.list_totals(NOW)
    for change in screened:
        default = trial.defaults[change.setting]
        if change.name in trial.wrong:
            change.verdict = f"refused: {trial.wrong[change.name]}"
        elif change.value == DEFAULT and default is None:
            change.verdict = "refused: Spark has no default"
        else:
            times = trial.list_totals(change.name)
            change.screened = median(one / two for one, two in zip(usual, times, strict=True))
            change.value = default if change.value == DEFAULT and default is not None else change.value


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
    _note_decision(state, change, trial.compare(NOW, IMPROVED, LEVEL), trial.wrong.get(IMPROVED))


def _decide_in_sessions(config: ImproveConfig, state: ImproveState, change: Change, say: Say) -> None:
    """The same for a setting that needs a session of its own: as many fresh sessions with and without it."""
    folder = f"change-{state.changes.index(change) + 1}"
    proof = record_proof(config, folder, state.kept, state.kept | {change.setting: change.value}, state.suite_s, say)
    _note_decision(state, change, proof.compare(LEVEL), proof.objection)


def _note_decision(state: ImproveState, change: Change, found: stats.Interval, objection: str | None) -> None:
    change.ratio, change.low, change.high, change.n_rounds = found.estimate, found.low, found.high, found.n
    verdict = stats.ratio_verdict(found.estimate, found.low, found.high)
    change.verdict = verdict if objection is None else f"refused: {objection}"
    if change.verdict == "FASTER" and (found.estimate or 0.0) >= MIN_GAIN:
        state.kept[change.setting] = change.value


def _prove(config: ImproveConfig, state: ImproveState, say: Say) -> None:
    proof = record_proof(config, "proof", {}, state.kept, state.suite_s, say)
    found = proof.compare(LEVEL)
    state.ratio, state.low, state.high = found.estimate, found.low, found.high
    state.proven = stats.ratio_verdict(found.estimate, found.low, found.high)
    if proof.objection is not None:
        state.proven = f"refused: {proof.objection}"
    elif state.proven == "FASTER" and config.ledger is not None:
        book_gains(config.ledger, proof, state.kept)


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
