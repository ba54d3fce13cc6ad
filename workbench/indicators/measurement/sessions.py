"""Start and resume a session on this machine, from its configuration to its tables."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from workbench.core import locks
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.core.files import default_out
from workbench.indicators.analysis import effects
from workbench.indicators.analysis.observations import Observations, load_observations, select_clock
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement import session_plan
from workbench.indicators.measurement.machine_facts import equalize_conditions
from workbench.indicators.measurement.rounds import Judge, measure_session
from workbench.indicators.measurement.script_cases import write_declarations
from workbench.indicators.measurement.session_config import MAX_ROUNDS, SessionConfig, session_config
from workbench.indicators.measurement.session_inputs import STACKS, SessionInputs, gather_inputs, reload_inputs
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.session_report import SessionOutcome, format_answer
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Session
from workbench.indicators.tables import CHECKS, DIMENSIONS, DRIFT, EFFECTS, JUDGEMENTS, OBSERVATIONS, RUNS
from workbench.runs import run_folder

AREA = "indicators"
TITLE = "Which stack is faster?"


def lock_session(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock on measuring this session; see `workbench.core.locks.lock_exclusively`."""
    return locks.lock_exclusively(
        folder,
        "another process is measuring this session",
        do="wait for it or stop it, then continue: workbench indicators run --resume, with this folder",
    )


def start_session(
    config: SessionConfig,
    *,
    cases: Sequence[Case] | None = None,
    out: str | Path | None = None,
    watcher: SessionWatcher | None = None,
    fetch_script: bool = False,
    offline: bool = False,
    command: str | None = None,
) -> SessionOutcome:
    """Install all variants, plan the session, measure it, and judge it.

    `cases`: Cases of classes defined in a notebook; by default those that `config.indicators` names.
    `out`: Folder for the session's own folder; `runs.default_out()` by default.
    """
    watcher = watcher or SessionWatcher()
    parts = gather_inputs(config, cases, watcher.report_preparation, fetch_script=fetch_script, offline=offline)
    parts = _equalize_inputs(parts, watcher)
    # Plan once before the folder exists, so that an invalid plan leaves none behind.
    session_plan.build_session_plan("-", parts.config, parts.variants, parts.cases)
    run = run_folder.start_run(AREA, out, title=TITLE, config=parts.config.model_dump(mode="json"), command=command)
    session = session_plan.build_session_plan(run.run_id, parts.config, parts.variants, parts.cases, notes=parts.notes)
    for input_path in (*parts.config.stacks, parts.config.specification, parts.config.reference):
        if input_path is not None:
            run.add_input(input_path)
    if parts.stacks is not None:
        parts.stacks.write(run.folder / STACKS)
    if parts.scripts:
        write_declarations(run.folder, parts.scripts)
    return _measure_here(run, session, parts, watcher)


def name_search_folder(search: str, out: str | Path | None) -> Path:
    """A new folder for a search that measures several sessions. `search`: Start of its name."""
    name = f"{search}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    return (default_out() if out is None else Path(out)).absolute() / name


def read_or_resume_session(folder: Path, *, watcher: SessionWatcher | None = None) -> SessionOutcome:
    """A session of a search that goes on: a finished one as it is, one that was stopped is resumed."""
    session = archive.read_session(folder)
    if run_folder.load_run(folder).status != "succeeded" or session.stop_reason in (None, "interrupted"):
        return resume_session(folder, watcher=watcher)
    return SessionOutcome(folder, effects.compare_session(load_observations(folder)))


def resume_session(
    folder: str | Path,
    *,
    cases: Sequence[Case] | None = None,
    watcher: SessionWatcher | None = None,
    offline: bool = False,
    rounds: int | None = None,
    more: int | None = None,
) -> SessionOutcome:
    """Resume a session; one that has ended is only judged again, unless it gets further rounds.

    `rounds`, `more`: Extend it to so many rounds in all, or by so many; see `extend_session`.
    """
    watcher = watcher or SessionWatcher()
    run = run_folder.load_run(folder)
    session = archive.read_session(run.folder)
    if session.backend != "process":
        raise ConfigError("not a session of this machine's runs", where=run.folder, found=session.backend)
    config = session_config(**run.record["config"])
    if rounds is not None or more is not None:
        decided = is_session_decided(run.folder)
        session = extend_session(session, rounds=rounds, more=more, decided=decided)
    parts = reload_inputs(run.folder, session, config, cases, watcher.report_preparation, offline=offline)
    parts = _equalize_inputs(parts, watcher)
    return _measure_here(run, session, parts, watcher)


def _equalize_inputs(parts: SessionInputs, watcher: SessionWatcher) -> SessionInputs:
    """The inputs with the conditions of each variant's runs, and a note on each copy of byte code."""
    notes: list[str] = []
    variants = equalize_conditions(parts.variants, parts.environment, threads=parts.config.threads, note=notes.append)
    for note in notes:
        watcher.report_note(note)
    return replace(parts, variants=variants, notes=[*parts.notes, *notes])


def _measure_here(
    run: run_folder.Run, session: Session, parts: SessionInputs, watcher: SessionWatcher
) -> SessionOutcome:
    """Make the missing runs on this machine, and judge the session."""
    return measure_and_judge(
        run,
        lambda judge: measure_session(
            run.folder,
            session,
            parts.variants,
            [replace(case, variables={**case.variables, **parts.environment}) for case in parts.cases],
            config=parts.config,
            judge=judge,
            watcher=watcher,
        ),
    )


def extend_session(
    session: Session, *, rounds: int | None = None, more: int | None = None, decided: bool = False
) -> Session:
    """The plan with further rounds: up to `rounds` in all, or `more` than are done.

    Its intervals hold at every number of rounds, so that the error rate stays what it was. An undecided session may end
    as soon as it is decided; a decided one makes all the rounds.
    """
    if rounds is not None and more is not None:
        raise ConfigError("--rounds and --more together", where="--resume", do="give one of them")
    total = rounds if rounds is not None else session.rounds_done + (more or 0)
    if not session.rounds_done < total <= MAX_ROUNDS:
        raise ConfigError(
            "no number of further rounds",
            where="--rounds" if more is None else "--more",
            found=rounds if more is None else more,
            allowed=f"more than the {session.rounds_done} that are done, at most {MAX_ROUNDS} in all",
        )
    if session.design == "blocks":
        raise ConfigError("a session in blocks cannot be extended", where="--resume", do="start a new session")
    looks = (total,) if decided or session.rounds_done + 1 == total else (session.rounds_done + 1, total)
    notes = session.notes
    if session.method == "looks":
        notes = (*notes, f"extended to {total} rounds: its intervals are valid at every number of rounds from now on")
    return session.model_copy(update={"looks": looks, "method": "sequence", "notes": notes})


def measure_and_judge(run: run_folder.Run, measure: Callable[[Judge], Session]) -> SessionOutcome:
    """Measure a session with its lock held, on this machine or a cluster, and judge it in its run folder."""
    # Outside the code that writes run.json: a session that another process measures has not failed.
    with lock_session(run.folder):
        try:
            measure(Judge(is_session_decided, count_verdicts))
        except WorkbenchError as error:
            run.end("failed", {"error": str(error)})
            raise
        except BaseException:
            run.end("cancelled")
            raise
        return judge_session(run)


def judge_session(run: run_folder.Run) -> SessionOutcome:
    """Compare what the session in a run folder has measured, and write tables, verdict and answer there."""
    comparison = effects.compare_session(load_observations(run.folder))
    outcome = SessionOutcome(run.folder, comparison)
    for table, frame in (
        (RUNS, comparison.observed.runs),
        (OBSERVATIONS, comparison.observed.values),
        (CHECKS, comparison.observed.checks),
        (EFFECTS, comparison.effects),
        (DRIFT, comparison.drift),
        (JUDGEMENTS, comparison.judgement),
        *(((DIMENSIONS, comparison.dimensions),) if comparison.dimensions is not None else ()),
    ):
        run.write_table(table, frame)
    row = comparison.judgement.row(0, named=True)
    run.conclude(row["verdict"], row["reasons"], format_answer(outcome))
    run.end("cancelled" if outcome.interrupted else "succeeded")
    return outcome


def is_session_decided(folder: Path) -> bool:
    """Whether more rounds cannot decide anything."""
    observations = _load_by_clock(folder)
    # A session of fewer rounds is invalid, however clear its effects are.
    return observations.runs["round"].n_unique() >= effects.MIN_ROUNDS and effects.is_decided(
        effects.estimate_effects(observations)
    )


def _load_by_clock(folder: Path) -> Observations:
    observations = load_observations(folder)
    return select_clock(observations, observations.session.clock)


def count_verdicts(folder: Path) -> dict[str, int]:
    """Number of effects by verdict, without the control's."""
    table = effects.estimate_effects(_load_by_clock(folder))
    return dict(Counter(table.filter(~table["control"])["verdict"].to_list()))
