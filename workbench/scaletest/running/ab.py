"""Two or more schedulers on one plan, in turn: A B B A A B …, each run on an emptied cluster.

What the machine does to an hour of runs it so does to all sides alike. The unit of replication is the run.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench import runs
from workbench.errors import ConfigError, InputError, RunFailedError
from workbench.scaletest import facts, scenario, sides
from workbench.scaletest.connection import Connection
from workbench.scaletest.driving import Asked
from workbench.scaletest.driving.locking import alone
from workbench.scaletest.planning import read
from workbench.scaletest.running.describing import announced
from workbench.scaletest.running.emptying import empty
from workbench.scaletest.running.options import Options
from workbench.scaletest.running.place import Place
from workbench.scaletest.running.progress import Silence
from workbench.scaletest.running.result import RunResult
from workbench.scaletest.running.starting import AREA, check, kept, run, the_same, where_of, with_schedulers
from workbench.scaletest.scenario import Scenario
from workbench.scaletest.sides import MOST_REPEAT, Session, SideRun

REPEAT = 5
# After the last object has gone: caches and garbage collectors come to rest.
PAUSE_S = 5.0
_SCENARIO = "scenario.yaml"


@dataclass(frozen=True)
class Interleaved:
    """What came of the turns.

    Attributes
    ----------
    folder
        Holds `sides.json` and a run folder each: what `compare` reads.
    results
        Of the turns that this process made.
    left
        Turns that were not made: it was interrupted.
    """

    folder: Path
    session: Session
    results: tuple[RunResult, ...]
    left: int

    @property
    def invalid(self) -> tuple[runs.Run, ...]:
        """Turns that are made and not valid, also those of processes before this one."""
        made = [self.folder / turn.folder for turn in self.session.runs if _is_made(self.folder / turn.folder)]
        return tuple(one for one in map(runs.load, made) if one.verdict != "valid")

    @property
    def exit_code(self) -> int:
        """0 when all turns are made and valid, 1 when one is not valid, 130 when a person ended it."""
        return 130 if self.left else 1 if self.invalid else 0


def order(names: Sequence[str], repeat: int) -> list[str]:
    """Sides in the order of their turns: each round the other way round than the one before.

    Examples
    --------
    >>> "".join(order("AB", 5))
    'ABBAABBAAB'
    """
    return [side for turn in range(repeat) for side in (names if turn % 2 == 0 else names[::-1])]


def interleaved(
    given: Scenario | str | Path,
    on: Place,
    schedulers: Sequence[str],
    *,
    repeat: int = REPEAT,
    confirmed: str | None = None,
    options: Options | None = None,
    out: str | Path | None = None,
    watcher: Silence | None = None,
    asked: Asked | None = None,
    command: str | None = None,
) -> Interleaved:
    """Run one plan on each scheduler so many times, in turn.

    Parameters
    ----------
    schedulers
        schedulerNames, two or more; the first is what the others are held against.
    repeat
        Runs of each, 1 to 100.
    options
        All but `cleanup`: the cluster is emptied after each turn.
    watcher
        Is told first how many runs that makes.

    Returns
    -------
    Interleaved
        Runs that are invalid are among them: whoever compares sees their reasons.

    Raises
    ------
    ConfigError
        Fewer than two sides, one of them twice, no run of each or too many, or a run was not begun. All sides are
        checked before the first turn.
    RunFailedError
        The cluster could not be emptied.
    """
    if not 1 <= repeat <= MOST_REPEAT:
        raise ConfigError("not a number of runs", where="--repeat", found=repeat, allowed=f"1 to {MOST_REPEAT}")
    made = given if isinstance(given, Scenario) else scenario.load(given)
    if len(schedulers) < 2 or len(set(schedulers)) < len(schedulers):
        raise ConfigError("an A/B needs two or more different sides", where="--scheduler", found=list(schedulers))
    made = with_schedulers(made, schedulers)
    told, wish, chosen = watcher or Silence(), asked or Asked(), _cleaning(options)
    told.say(announced(made, schedulers, repeat))
    _checked(made, on, schedulers, confirmed, chosen, told, wish)
    now = datetime.now(UTC)
    folder = Path(out or runs.default_out()) / AREA / f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    turns = tuple(
        SideRun(side=side, position=position, folder=f"{position:02d}-{side}")
        for position, side in enumerate(order(list(schedulers), repeat))
    )
    session = Session(
        format_version=1,
        scenario_sha256=scenario.sha256(made),
        created_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        sides=tuple(schedulers),
        repeat=repeat,
        runs=turns,
    )
    folder.mkdir(parents=True)
    (folder / _SCENARIO).write_text(scenario.canonical(made), encoding="utf-8")
    sides.write(folder, session)
    with alone(folder):
        return _turns(folder.absolute(), session, made, on, chosen, confirmed, told, wish, command)


def go_on(
    folder: str | Path,
    on: Place | None = None,
    *,
    confirmed: str | None = None,
    watcher: Silence | None = None,
    asked: Asked | None = None,
    command: str | None = None,
) -> Interleaved:
    """Make the turns that are missing. One that broke off is cleared away and made anew: half a run is no run.

    Parameters
    ----------
    on
        The cluster; the one of the turns that are made without.

    Raises
    ------
    InputError
        It is no folder of such turns, or its scenario was changed.
    ConfigError, RunFailedError
        As `interleaved`.
    """
    place = Path(folder).absolute()
    session, made = sides.read_session(place), scenario.load(place / _SCENARIO)
    if scenario.sha256(made) != session.scenario_sha256:
        raise InputError("the scenario was changed", where=place / _SCENARIO, do="start anew")
    with alone(place):
        begun = next((place / one.folder for one in session.runs if (place / one.folder / facts.FILE).is_file()), None)
        if begun is None and on is None:
            raise ConfigError("no turn was begun: on which cluster?", where=place, do="add --cluster or --context")
        where = on or where_of(facts.read(begun or place))
        chosen = _cleaning(None if begun is None else kept(runs.load(begun)))
        told, wish = watcher or Silence(), asked or Asked()
        missing = dict.fromkeys(one.side for one in session.runs if not _is_made(place / one.folder))
        if missing:
            told.phase("looking whether something of the earlier turns is left")
            asyncio.run(_cleared(place, session, made, where, confirmed, None if begun is None else facts.read(begun)))
        _checked(made, where, tuple(missing), confirmed, chosen, told, wish)
        return _turns(place, session, made, where, chosen, confirmed, told, wish, command)


def _cleaning(options: Options | None) -> Options:
    return (options or Options()).model_copy(update={"cleanup": True})


def _checked(
    made: Scenario,
    on: Place,
    names: Sequence[str],
    confirmed: str | None,
    options: Options,
    told: Silence,
    wish: Asked,
) -> None:
    """A side that must not begin is told now, and not after the other one's run."""
    for side in names:
        try:
            check(made, on, side, confirmed=confirmed, options=options, watcher=told, asked=wish)
        except ConfigError:
            told.say(f"{side} must not begin; no side was run")
            raise


def _turns(
    folder: Path,
    session: Session,
    made: Scenario,
    on: Place,
    options: Options,
    confirmed: str | None,
    told: Silence,
    wish: Asked,
    command: str | None,
) -> Interleaved:
    results = list[RunResult]()
    missing = [turn for turn in session.runs if not _is_made(folder / turn.folder)]
    for number, turn in enumerate(missing):
        told.say(f"turn {turn.position + 1} of {len(session.runs)}: {turn.side}")
        try:
            found = run(
                made,
                on,
                scheduler=turn.side,
                confirmed=confirmed,
                options=options,
                folder=folder / turn.folder,
                watcher=told,
                asked=wish,
                command=command,
            )
            results.append(found)
        except KeyboardInterrupt:
            wish.stop()  # before the turn had begun
        if wish.times:
            left = sum(not _is_made(folder / one.folder) for one in missing)
            return Interleaved(folder, session, tuple(results), left)
        if found.cleaned is None or not found.cleaned.complete:
            why = found.cleaned.left if found.cleaned else f"{found.outcome.reason}; pods: {found.drained}"
            raise _not_emptied(found.run, found.folder, why)
        if number + 1 < len(missing):
            time.sleep(PAUSE_S)
    return Interleaved(folder, session, tuple(results), 0)


def _not_emptied(run_id: str, folder: Path, why: object) -> RunFailedError:
    return RunFailedError(
        "the cluster was not emptied: the next turn would not begin like this one",
        where=folder,
        found=why,
        do=f"workbench scaletest cleanup {run_id}, then workbench scaletest run --resume {folder.parent}",
    )


def _is_made(folder: Path) -> bool:
    """Whether the turn came to a verdict."""
    if not (folder / runs.RECORD).is_file():
        return False
    record = runs.load(folder)
    return record.status == "succeeded" and record.verdict is not None


async def _cleared(
    folder: Path, session: Session, made: Scenario, on: Place, confirmed: str | None, test: facts.Test | None
) -> None:
    """What earlier turns left in the cluster goes; the folder of one that broke off gets another name.

    One with a verdict may have left something, too: it was aborted, or ended in its cleanup.
    """
    async with Connection(on.target) as api:
        if test is not None:
            await the_same(api, on, made, confirmed, test)
        for turn in session.runs:
            place = folder / turn.folder
            if not place.exists():
                continue
            # Somebody may be going on with just this turn.
            with alone(place):
                await _emptied(api, place, on)
                if not _is_made(place):
                    place.rename(place.with_name(f"broken-{secrets.token_hex(2)}-{place.name}"))


async def _emptied(api: Connection, folder: Path, on: Place) -> None:
    """Nothing of a turn is in the cluster any more.

    Raises
    ------
    RunFailedError
        Something is.
    """
    try:
        drawn = read(folder)
    except InputError:
        return  # it had not come as far as making objects
    found = await empty(api, drawn, folder, on)
    if not found.complete:
        raise _not_emptied(drawn.run, folder, found.left)
