"""What a session is made of, before it is planned: sides that are installed, cases, and what a specification adds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, InputError
from workbench.indicators import archive
from workbench.indicators.archive import Session, inspection_id
from workbench.indicators.config import SessionConfig, session_config
from workbench.indicators.contract import Case
from workbench.indicators.running import machine, sides
from workbench.indicators.running.process import THREAD_VARIABLES
from workbench.indicators.running.sides import Side
from workbench.indicators.running.wire import Limits

if TYPE_CHECKING:
    from workbench.indicators.specification import Specified
    from workbench.indicators.stacks.model import StackSet

STACKS = "stacks.json"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Parts:
    """All that a plan needs.

    `environment` has variables for every run, `notes` what the user should know; `stacks` is null for environments
    that were there already.
    """

    sides: list[Side]
    cases: list[Case]
    config: SessionConfig
    environment: dict[str, str]
    notes: list[str]
    stacks: StackSet | None


def gathered_for(
    config: SessionConfig, cases: Sequence[Case] | None, progress: Progress, *, fetch_script: bool, offline: bool
) -> Parts:
    """Solve, read and install all that a configuration asks for.

    Raises
    ------
    WorkbenchError
        Something of it cannot be.
    """
    if config.specification is not None:
        return _from_specification(config, fetch_script, offline, progress)
    return _from_stacks(config, cases, offline, progress)


def gathered_again(
    folder: Path,
    session: Session,
    config: SessionConfig,
    cases: Sequence[Case] | None,
    progress: Progress,
    *,
    offline: bool,
) -> Parts:
    """The parts of a session that was begun, from its folder.

    Raises
    ------
    RunFailedError
        An environment is not what it was.
    ConfigError
        Its cases are of classes that only a notebook has.
    """
    from workbench.indicators.stacks import model

    path = folder / STACKS
    stacks = model.read(path) if path.is_file() else None
    found = _sides(config, stacks, session.baseline, offline, progress)
    sides.check_unchanged(found, session.arms)
    given = list(cases) if cases is not None else _cases_again(folder, session, config)
    return Parts(found, given, config, _environment_again(folder, session, config), [], stacks)


def _of(what: str, progress: Progress) -> Callable[[int, int], None]:
    return lambda done, planned: progress(what, done, planned)


def _from_stacks(config: SessionConfig, cases: Sequence[Case] | None, offline: bool, progress: Progress) -> Parts:
    from workbench.indicators.shipped.registry import case_of

    given = list(cases) if cases is not None else [case_of(text) for text in config.indicators]
    if not given:
        raise ConfigError("nothing to measure", where="--indicator", do="give one, such as --indicator sort")
    stacks = _stacks(config, progress)
    found = _sides(config, stacks, config.baseline, offline, progress)
    return Parts(found, given, config, {}, [], stacks)


def _stacks(config: SessionConfig, progress: Progress) -> StackSet | None:
    """The stacks that are asked for; null for environments that are there."""
    from workbench.indicators.running.solving import solved
    from workbench.indicators.stacks import model

    asked = {"--stacks": config.stacks, "--stack": config.stack, "--python": config.python}
    if len([one for one in asked.values() if one]) != 1:
        raise ConfigError(
            "not one kind of stacks",
            found=[name for name, value in asked.items() if value] or "none",
            allowed="--stacks FILE, --stack REQUIREMENTS (several), or --python NAME=PATH (several)",
            do="workbench indicators stacks makes a FILE",
        )
    if config.stacks:
        return model.read(config.stacks)
    return solved(config.stack, config.max_download_bytes, _of("solved", progress)) if config.stack else None


def _sides(
    config: SessionConfig, stacks: StackSet | None, baseline: str | None, offline: bool, progress: Progress
) -> list[Side]:
    if stacks is None:
        return sides.of_pythons(sides.pythons_of(config.python), baseline)
    wanted = baseline if baseline is None else stacks.stack(baseline).name
    return sides.of_stacks(
        stacks.stacks,
        wanted,
        max_download_bytes=config.max_download_bytes,
        offline=offline,
        progress=_of("installed", progress),
    )


def _from_specification(config: SessionConfig, fetch_script: bool, offline: bool, progress: Progress) -> Parts:
    from workbench.indicators import specification
    from workbench.indicators.running.probing import probed
    from workbench.indicators.running.solving import gathered
    from workbench.indicators.shipped.registry import case_of

    if config.stacks or config.stack or config.python:
        raise ConfigError("the specification has its own lock", where="--specification", do="leave other stacks out")
    asked = specification.read(config.specification or "", ignored=config.ignore, fetch=fetch_script)
    first = asked[0]
    for other in asked[1:]:
        _check_alike(first, other, config)
    config = _as_specified(config, first)
    _check_threads(first.environment, config.threads)
    stacks = gathered([one.stack() for one in asked], [one.name for one in asked])
    found = _sides(config, stacks, config.baseline, offline, progress)
    environment, notes = dict(first.environment), [note for one in asked for note in one.notes]
    if config.indicators:
        cases = [_bound(case_of(text), first.sources) for text in config.indicators]
        return Parts(found, cases, config, environment, notes, stacks)
    limits = Limits(config.memory(machine.hardware().memory_bytes), config.processes, network=config.network)
    case, notice = probed(
        found[0].python,
        first.sources,
        environment,
        threads=config.threads,
        timeout_s=config.timeout_s,
        limits=limits,
    )
    return Parts(found, [case], config, environment, [*notes, *([notice] if notice else [])], stacks)


def _bound(case: Case, sources: Mapping[str, str]) -> Case:
    """The case with a specification's script instead of its own."""
    from workbench.indicators.running.probing import bound

    return Case(bound(case.indicator, sources), case.parameters)


def _check_alike(first: Specified, other: Specified, config: SessionConfig) -> None:
    """Specifications of one session differ in their locks alone; what the user has set counts for all of them."""
    pairs = {
        "scripts": (first.sources, other.sources),
        "environments": (first.environment, other.environment),
        "rounds": (first.rounds, other.rounds),
        "threads": (first.threads, other.threads),
        "memory": (first.memory_bytes, other.memory_bytes),
    }
    own = {name.removesuffix("_bytes") for name in config.model_fields_set}
    if unlike := [name for name, (one, another) in pairs.items() if one != another and name not in own]:
        settable = [f"--{name}" for name in unlike if name in ("rounds", "threads", "memory")]
        raise ConfigError(
            f"specifications of different {', '.join(unlike)}",
            where="--specification",
            found=[first.name, other.name],
            do=f"give {', '.join(settable)} for all of them" if settable == [f"--{name}" for name in unlike] else None,
        )


def _check_threads(environment: Mapping[str, str], threads: int) -> None:
    """What libraries are told must be what the session says that it measured."""
    unlike = {
        name: environment[name] for name in THREAD_VARIABLES if environment.get(name, str(threads)) != str(threads)
    }
    if unlike:
        raise ConfigError(
            "the specification sets another number of threads than its runs get",
            where="--specification, environment",
            found=[f"{name}={value[:20]}" for name, value in unlike.items()],
            allowed=f"{threads}",
            do="give that number as --threads, or leave these variables out: each run has them set already",
        )


def _as_specified(config: SessionConfig, asked: Specified) -> SessionConfig:
    """Rounds, threads and memory of the specification, where the user has not set them."""
    told = {"rounds": (asked.rounds,) if asked.rounds else None, "threads": asked.threads}
    told["memory_bytes"] = asked.memory_bytes
    own = {name: getattr(config, name) for name in config.model_fields_set}
    return session_config(**{**told, **own})


def _specification(folder: Path, session: Session) -> dict[str, Any]:
    """The first inspection's specification, as this project wrote it."""
    path = folder / archive.INSPECTIONS / inspection_id(session.session_id, session.baseline, session.cases[0].label)
    try:
        found: dict[str, Any] = json.loads((path / "build" / "specification").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("no readable specification", where=path, found=str(error)[:200]) from None
    return found


def _cases_again(folder: Path, session: Session, config: SessionConfig) -> list[Case]:
    from workbench.indicators.running.probing import case_again
    from workbench.indicators.shipped.registry import case_of

    if config.specification is None:
        if not config.indicators:
            raise ConfigError("the session was begun with classes of a notebook", do="resume it there, with its cases")
        return [case_of(text) for text in config.indicators]
    found = _specification(folder, session)
    sources = {"script.py": found["script"], **{one["path"]: one["content"] for one in found["files"]}}
    if config.indicators:
        return [_bound(case_of(text), sources) for text in config.indicators]
    return [case_again(case.indicator, sources, case.parameters) for case in session.cases]


def _environment_again(folder: Path, session: Session, config: SessionConfig) -> dict[str, str]:
    if config.specification is None:
        return {}
    return {one["name"]: str(one["value"]) for one in _specification(folder, session)["environment"]}
