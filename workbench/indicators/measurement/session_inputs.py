"""Inputs of a session plan: installed variants, cases, and what an Amun specification adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.data_files import read_json_file
from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.contract.script_declaration import ScriptDeclaration
from workbench.indicators.measurement import stack_variants
from workbench.indicators.measurement.launcher_client import THREAD_VARIABLES
from workbench.indicators.measurement.script_cases import (
    bind_script,
    build_cases,
    declare_scripts,
    probe_script,
    read_declarations,
    reload_case,
)
from workbench.indicators.measurement.session_config import SessionConfig, session_config
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.measurement.timed_programs import (
    Program,
    build_program_stacks,
    build_program_variables,
    is_of_programs,
    list_program_notes,
)
from workbench.indicators.stacks.stack_sets import StackSet
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Session, inspection_id

if TYPE_CHECKING:
    from workbench.indicators.compat_thoth.amun_specification import Specification

STACKS = "stacks.json"
REFERENCE = "reference"
"""Name of the pinned stack that every session of a history measures."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class SessionInputs:
    """Inputs of a session plan.

    `environment` holds variables for every run; `stacks` is null for existing environments; `scripts` were declared by
    their first documents.
    """

    variants: list[Variant]
    cases: list[Case]
    config: SessionConfig
    environment: dict[str, str]
    notes: list[str]
    stacks: StackSet | None
    scripts: tuple[ScriptDeclaration, ...] = ()


def gather_inputs(
    config: SessionConfig, cases: Sequence[Case] | None, progress: Progress, *, fetch_script: bool, offline: bool
) -> SessionInputs:
    """Solve, read and install what a configuration names."""
    if config.specification is not None:
        return _gather_from_specification(config, fetch_script, offline, progress)
    environment = build_program_variables(config) if is_of_programs(config) else {}
    has_scripts = bool(config.script or config.pytest or config.pyperf)
    session_cases = load_cases(config, cases, has_scripts=has_scripts)
    stacks, stood_for = solve_stacks(config, progress), None
    if config.reference is not None:
        stacks, stood_for = add_reference(config, stacks)
        config = config.model_copy(update={"baseline": REFERENCE})
    variants = _install_variants(config, stacks, config.baseline, offline, progress)
    notes = []
    if stacks is not None and stacks.variations:
        notes = [f"cannot be had: {rejection.point}: {rejection.reason}"[:400] for rejection in stacks.rejected]
    if stood_for is not None:
        control = variants[-1].arm
        control = control.model_copy(update={"notes": {**control.notes, archive.STANDS_FOR: stood_for}})
        variants[-1] = replace(variants[-1], arm=control)
        notes.append(f"{stood_for} has the reference's lock: the control represents it in the history")
    scripts, more = declare_scripts(config, variants) if has_scripts or config.better else ([], [])
    session_cases += build_cases(scripts)
    notes += list_program_notes(config) if is_of_programs(config) else []
    return SessionInputs(variants, session_cases, config, environment, [*notes, *more], stacks, tuple(scripts))


def reload_inputs(
    folder: Path,
    session: Session,
    config: SessionConfig,
    cases: Sequence[Case] | None,
    progress: Progress,
    *,
    offline: bool,
) -> SessionInputs:
    """Read the inputs of a started session from its folder."""
    from workbench.indicators.stacks import stack_sets

    path = folder / STACKS
    stacks = stack_sets.read_stack_set(path) if path.is_file() else None
    variants = _install_variants(config, stacks, session.baseline, offline, progress)
    stack_variants.check_environments(variants, session.arms)
    session_cases = list(cases) if cases is not None else _reload_cases(folder, session, config)
    # Variables of the runs of a session that was started from a specification.
    if config.specification is None and not is_of_programs(config):
        environment = {}
    else:
        environment = {
            variable["name"]: str(variable["value"])
            for variable in _read_first_specification(folder, session)["environment"]
        }
    return SessionInputs(variants, session_cases, config, environment, [], stacks)


def add_reference(config: SessionConfig, stacks: StackSet | None) -> tuple[StackSet, str | None]:
    """Put the pinned stack of a history in front, as the baseline.

    A stack with the same lock is left out: the control, which has that lock too, stands for it; its name is returned.
    """
    from workbench.indicators.stacks import stack_sets

    if stacks is None or stacks.variations or config.baseline is not None:
        raise ConfigError(
            "a reference is the baseline, and other stacks are needed",
            where="--reference",
            allowed="--stack, or --stacks without a matrix; no --baseline",
        )
    pinned = stack_sets.read_stack_set(str(config.reference))
    if len(pinned.stacks) != 1 or pinned.variations:
        raise ConfigError(
            "exactly one pinned stack is needed",
            where=f"--reference {config.reference}"[:300],
            found=f"{len(pinned.stacks)} stacks",
            do="workbench indicators stacks --free numpy==2.2.6 --out reference.json",
        )
    reference = pinned.stacks[0].model_copy(update={"name": REFERENCE})
    same = [stack.name for stack in stacks.stacks if stack.key == reference.key]
    others = [stack for stack in stacks.stacks if stack.key != reference.key]
    if any(stack.name == REFERENCE for stack in others):
        raise ConfigError("a stack is named like the reference", found=REFERENCE, do="rename it")
    return stacks.model_copy(update={"stacks": (reference, *others)}), same[0] if same else None


def load_cases(config: SessionConfig, cases: Sequence[Case] | None, *, has_scripts: bool = False) -> list[Case]:
    """The cases of classes defined in a notebook, or those that `config.indicators` names; refused without any."""
    from workbench.indicators.shipped.indicator_classes import parse_case

    session_cases = list(cases) if cases is not None else [parse_case(text) for text in config.indicators]
    if is_of_programs(config):
        session_cases.append(Case.from_parameters(Program))
    if not session_cases and not has_scripts:
        raise ConfigError("nothing to measure", where="--indicator", do="give one, such as --indicator sort")
    return session_cases


def solve_stacks(config: SessionConfig, progress: Progress) -> StackSet | None:
    """The configured stacks; null for existing environments."""
    from workbench.indicators.measurement.stack_variants import solve_requirement_sets
    from workbench.indicators.stacks.stack_matrix import read_stacks

    if config.commands:
        return build_program_stacks(config)
    choices = {"--stacks": config.stacks, "--stack": config.stack, "--python": config.python}
    if len([value for value in choices.values() if value]) != 1:
        raise ConfigError(
            "exactly one kind of stacks is needed",
            found=[name for name, value in choices.items() if value] or "none",
            allowed="--stacks FILE (several), --stack REQUIREMENTS (several), or --python NAME=PATH (several)",
            do="workbench indicators stacks makes a FILE",
        )
    if config.stacks:
        return read_stacks(
            config.stacks,
            max_download_bytes=config.max_download_bytes,
            progress=partial(progress, "solved"),
        )
    return (
        solve_requirement_sets(config.stack, config.max_download_bytes, partial(progress, "solved"))
        if config.stack
        else None
    )


def _install_variants(
    config: SessionConfig, stacks: StackSet | None, baseline: str | None, offline: bool, progress: Progress
) -> list[Variant]:
    """Install the stacks, or probe the existing environments; the baseline comes first, the control last."""
    if stacks is None:
        return stack_variants.build_python_variants(stack_variants.parse_pythons(config.python), baseline)
    wanted = baseline if baseline is None or stacks.variations else stacks.get_stack(baseline).name
    return stack_variants.install_variants(
        stacks,
        wanted,
        max_download_bytes=config.max_download_bytes,
        offline=offline,
        progress=partial(progress, "installed"),
    )


def _gather_from_specification(
    config: SessionConfig, fetch_script: bool, offline: bool, progress: Progress
) -> SessionInputs:
    """The inputs that Amun specifications name: a stack by each lock, one script for all."""
    from workbench.indicators.compat_thoth import amun_specification
    from workbench.indicators.measurement.stack_variants import build_stack_set
    from workbench.indicators.shipped.indicator_classes import parse_case

    if config.stacks or config.stack or config.python:
        raise ConfigError("the specification has its own lock", where="--specification", do="leave out other stacks")
    specifications = amun_specification.read_specifications(
        config.specification or "", ignored=config.ignore, fetch=fetch_script
    )
    first = specifications[0]
    for other in specifications[1:]:
        _check_alike(first, other, config)
    # Take rounds, threads and memory from the specification unless the user has set them.
    settings = {
        "rounds": (first.rounds,) if first.rounds else None,
        "threads": first.threads,
        "memory_bytes": first.memory_bytes,
    }
    overrides = {name: getattr(config, name) for name in config.model_fields_set}
    config = session_config(**{**settings, **overrides})
    # Refuse variables that set another number of threads than the session's.
    unlike = {
        name: first.environment[name]
        for name in THREAD_VARIABLES
        if first.environment.get(name, str(config.threads)) != str(config.threads)
    }
    if unlike:
        raise ConfigError(
            "the specification sets a different number of threads",
            where="--specification, environment",
            found=[f"{name}={value[:20]}" for name, value in unlike.items()],
            allowed=f"{config.threads}",
            do="pass that number as --threads, or omit these variables: they are set for each run",
        )
    stacks = build_stack_set(
        [specification.build_stack() for specification in specifications],
        [specification.name for specification in specifications],
    )
    variants = _install_variants(config, stacks, config.baseline, offline, progress)
    environment, notes = (
        dict(first.environment),
        [note for specification in specifications for note in specification.notes],
    )
    if config.indicators:
        cases = [_bind_case(parse_case(text), first.sources) for text in config.indicators]
        return SessionInputs(variants, cases, config, environment, notes, stacks)
    case, notice = probe_script(variants[0].interpreter, first.sources, environment, config)
    return SessionInputs(variants, [case], config, environment, [*notes, *([notice] if notice else [])], stacks)


def _bind_case(case: Case, sources: Mapping[str, str]) -> Case:
    """The case with a specification's script instead of its own."""
    return Case(bind_script(case.indicator, sources), case.parameters)


def _check_alike(first: Specification, other: Specification, config: SessionConfig) -> None:
    """Refuse specifications that differ in more than their locks; options of the command line override both."""
    pairs = {
        "scripts": (first.sources, other.sources),
        "environments": (first.environment, other.environment),
        "rounds": (first.rounds, other.rounds),
        "threads": (first.threads, other.threads),
        "memory": (first.memory_bytes, other.memory_bytes),
    }
    overrides = {name.removesuffix("_bytes") for name in config.model_fields_set}
    if unlike := [name for name, (value, another) in pairs.items() if value != another and name not in overrides]:
        settable = [f"--{name}" for name in unlike if name in ("rounds", "threads", "memory")]
        raise ConfigError(
            f"specifications of different {', '.join(unlike)}",
            where="--specification",
            found=[first.name, other.name],
            do=f"give {', '.join(settable)} for all of them" if settable == [f"--{name}" for name in unlike] else None,
        )


def _read_first_specification(folder: Path, session: Session) -> dict[str, Any]:
    """The specification that was written for the first inspection."""
    inspection = inspection_id(session.session_id, session.baseline, session.cases[0].label)
    path = folder / archive.INSPECTIONS / inspection / "build" / "specification"
    specification: dict[str, Any] = read_json_file(path, noun="specification")
    return specification


def _reload_cases(folder: Path, session: Session, config: SessionConfig) -> list[Case]:
    """The cases of a started session, from its configuration and folder."""
    from workbench.indicators.shipped.indicator_classes import parse_case

    if config.specification is None:
        scripts = build_cases(read_declarations(folder))
        if is_of_programs(config):
            return [Case.from_parameters(Program)]
        if not config.indicators and not scripts:
            raise ConfigError(
                "the session was started with classes of a notebook", do="resume it there, with its cases"
            )
        return [*map(parse_case, config.indicators), *scripts]
    specification = _read_first_specification(folder, session)
    sources = {
        "script.py": specification["script"],
        **{file["path"]: file["content"] for file in specification["files"]},
    }
    if config.indicators:
        return [_bind_case(parse_case(text), sources) for text in config.indicators]
    return [reload_case(case.indicator, sources, case.parameters) for case in session.cases]
