"""A session from its configuration to its tables: what the command does, and a notebook can do alike.

The run folder is the session's folder: run.json and tables/ of the house beside session.json and inspections/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench import runs
from workbench.errors import ConfigError, WorkbenchError
from workbench.indicators import archive, effects
from workbench.indicators.archive import Session
from workbench.indicators.config import SessionConfig, session_config
from workbench.indicators.contract import Case
from workbench.indicators.observations import observed
from workbench.indicators.running import planning
from workbench.indicators.running.alone import alone_in
from workbench.indicators.running.parts import STACKS, Parts, gathered_again, gathered_for
from workbench.indicators.running.progress import Silent, Watcher
from workbench.indicators.running.session import Judge, measure
from workbench.indicators.running.wire import Limits
from workbench.indicators.tables import CHECKS, DRIFT, EFFECTS, JUDGEMENTS, OBSERVATIONS, RUNS

AREA = "indicators"
TITLE = "Which stack is faster?"


@dataclass(frozen=True)
class Outcome:
    """A session that was measured: its folder, its plan with how it ended, and what follows from its runs."""

    folder: Path
    session: Session
    compared: effects.Compared

    @property
    def interrupted(self) -> bool:
        """It was stopped by hand and can be taken up again."""
        return self.session.stop_reason == "interrupted"


def start(
    config: SessionConfig,
    *,
    cases: Sequence[Case] | None = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    fetch_script: bool = False,
    offline: bool = False,
    command: str | None = None,
) -> Outcome:
    """Install all sides, plan the session, measure it, and judge it.

    Parameters
    ----------
    config
        What is asked for.
    cases
        Cases of classes at hand (in a notebook); those that `config.indicators` names without.
    out
        Folder below which the session gets its own; `runs.default_out()` without it.
    watcher
        Told how far installing is, and how far the runs are.
    fetch_script
        A specification's script may be loaded from its URL.
    offline
        Install from uv's cache alone.
    command
        The command line, for run.json.

    Raises
    ------
    WorkbenchError
        Something in the configuration cannot be; a stack cannot be solved or installed; runs cannot be started. Runs
        that fail raise nothing: they have a status.
    """
    watcher = watcher or Silent()
    parts = gathered_for(config, cases, watcher.preparing, fetch_script=fetch_script, offline=offline)
    # Planned once before there is a folder: what cannot be leaves none behind.
    planning.planned("-", parts.config, parts.sides, parts.cases)
    run = runs.start(AREA, out, title=TITLE, config=parts.config.model_dump(mode="json"), command=command)
    session = planning.planned(run.run_id, parts.config, parts.sides, parts.cases, notes=parts.notes)
    for given in (parts.config.stacks, parts.config.specification):
        if given is not None:
            run.add_input(given)
    if parts.stacks is not None:
        parts.stacks.write(run.folder / STACKS)
    return _measured(run, session, parts, watcher)


def resume(
    folder: str | Path,
    *,
    cases: Sequence[Case] | None = None,
    watcher: Watcher | None = None,
    offline: bool = False,
) -> Outcome:
    """Take up a session where it was left; one that has ended is judged once more.

    Raises
    ------
    InputError
        There is no session in the folder.
    ConfigError
        It was begun on another machine, an indicator has changed since, or another process measures it.
    RunFailedError
        An environment is not what it was.
    """
    watcher = watcher or Silent()
    run = runs.load(folder)
    session = archive.read_session(run.folder)
    if session.backend != "process":
        raise ConfigError("not a session of this machine's runs", where=run.folder, found=session.backend)
    config = session_config(**run.record["config"])
    parts = gathered_again(run.folder, session, config, cases, watcher.preparing, offline=offline)
    return _measured(run, session, parts, watcher)


def _measured(run: runs.Run, session: Session, parts: Parts, watcher: Watcher) -> Outcome:
    # Outside of what writes run.json: a session that is measured by another process has not failed.
    with alone_in(run.folder):
        return _measured_alone(run, session, parts, watcher)


def _measured_alone(run: runs.Run, session: Session, parts: Parts, watcher: Watcher) -> Outcome:
    limits = Limits(processes=parts.config.processes, network=parts.config.network)
    try:
        session = measure(
            run.folder,
            session,
            parts.sides,
            parts.cases,
            limits=limits,
            judge=Judge(decided, verdicts),
            watcher=watcher,
            environment=parts.environment,
        )
    except WorkbenchError as error:
        run.end("failed", {"error": str(error)})
        raise
    except BaseException:
        run.end("cancelled")
        raise
    outcome = Outcome(run.folder, session, effects.compared(observed(run.folder)))
    keep_outcome(run, outcome)
    return outcome


def keep_outcome(run: runs.Run, outcome: Outcome) -> None:
    found = outcome.compared
    for table, frame in (
        (RUNS, found.observed.runs),
        (OBSERVATIONS, found.observed.values),
        (CHECKS, found.observed.checks),
        (EFFECTS, found.effects),
        (DRIFT, found.drift),
        (JUDGEMENTS, found.judgement),
    ):
        run.write_table(table, frame)
    row = found.judgement.row(0, named=True)
    run.conclude(row["verdict"], row["reasons"], answer(outcome))
    run.end("cancelled" if outcome.interrupted else "succeeded")


def answer(outcome: Outcome) -> str:
    """The session's answer in a sentence."""
    counts = Counter(outcome.compared.effects.filter(~outcome.compared.effects["control"])["verdict"].to_list())
    told = ", ".join(f"{counts[name]} {name}" for name in ("FASTER", "SLOWER", "SAME", "UNDECIDED") if counts[name])
    rounds = outcome.compared.judgement["rounds"][0]
    return f"Against {outcome.session.baseline}, by stack and metric: {told or 'nothing to compare'}; {rounds} rounds."


def decided(folder: Path) -> bool:
    found = observed(folder)
    # A session of fewer rounds is invalid, however clear it looks.
    return found.runs["round"].n_unique() >= effects.FEWEST_ROUNDS and effects.decided(effects.effects(found))


def verdicts(folder: Path) -> dict[str, int]:
    table = effects.effects(observed(folder))
    return dict(Counter(table.filter(~table["control"])["verdict"].to_list()))
