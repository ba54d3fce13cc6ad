"""Solves a stack matrix: one lock a combination of Python, packages and indexes; what cannot be had is a row."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.core.errors import ConfigError, InputError
from workbench.indicators.stacks import stack_request, stack_sets, stack_solver, uv_tool
from workbench.indicators.stacks.stack_matrix import (
    SUFFIXES,
    MatrixArm,
    StackMatrix,
    format_arm_name,
    iterate_arms,
    read_stack_matrix,
)
from workbench.indicators.stacks.stack_sets import MAX_REASON, RejectedPoint, Stack, StackSet, Variation
from workbench.indicators.stacks.target_platform import this_platform, this_python_version
from workbench.indicators.stacks.uv_tool import Sources, load_sources

Progress = Callable[[int, int], None]
_PROBE_TIMEOUT_S = 30


def find_python_version(wanted: str) -> str | None:
    """Full version of an installed Python that uv finds, such as 3.12.4 for 3.12; null where there is none.

    Managed interpreters of uv and those on PATH count; nothing is downloaded.
    """
    this_version = this_python_version()
    if this_version == wanted or this_version.startswith(f"{wanted}."):
        return this_version
    search = uv_tool.run_uv(["python", "find", "--no-project", wanted], sources=None)
    if search.code != 0:
        return None
    try:
        process = subprocess.run(  # noqa: S603 - the interpreter that uv found
            [search.out.strip(), "-I", "-c", "import platform; print(platform.python_version())"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = process.stdout.strip()
    return version if re.fullmatch(r"3\.\d{1,2}\.\d{1,2}", version) else None


def solve_stack_matrix(
    matrix: StackMatrix,
    *,
    max_download_bytes: int,
    sources: Sources | None = None,
    progress: Progress | None = None,
    find_python: Callable[[str], str | None] = find_python_version,
) -> StackSet:
    """Solve all combinations of a matrix.

    Returns: `variations` has an entry for each combination that can be had, in the file's order; `rejected` the
    others, with the reason. Stacks are shared by combinations that differ only in threads or variables.
    """
    arms = list(iterate_arms(matrix))
    pythons = {version: find_python(version) for version in matrix.python}
    missing = {
        version: f"Python {version} is not installed: uv python install {version}"
        for version, full_version in pythons.items()
        if not full_version
    }
    solver = _MatrixSolver(matrix, pythons, max_download_bytes, sources or load_sources())
    wanted = {arm.solved: arm for arm in arms if arm.environment is None and arm.python not in missing}
    for number, arm in enumerate(wanted.values()):
        solver.solve_arm(arm)
        if progress is not None:
            progress(number + 1, len(wanted))
    rejected = [RejectedPoint(point=f"Python {version}", reason=reason) for version, reason in missing.items()]
    return _build_matrix_set(matrix, arms, solver, [*rejected, *solver.rejected])


@dataclass
class _MatrixSolver:
    """Locks of combinations, by what they depend on."""

    matrix: StackMatrix
    pythons: dict[str, str | None]
    max_download_bytes: int
    sources: Sources
    stacks: dict[tuple[object, ...], Stack] = field(default_factory=dict)
    rejected: list[RejectedPoint] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def solve_arm(self, arm: MatrixArm) -> None:
        """Solve a combination, or note why it cannot be had."""
        label = format_arm_name(arm.solved_factors) or ", ".join(arm.requirements)
        pinned = {name: (index, self.matrix.indexes.get(index, "")) for name, index in arm.indexes.items()}
        request = stack_request.build_stack_request(
            requirements=arm.requirements,
            python=self.pythons.get(arm.python) if arm.python else None,
            max_download_bytes=self.max_download_bytes,
        )
        try:
            solution = stack_solver.solve_request(request, replace(self.sources, pinned=uv_tool.resolve_pinned(pinned)))
        except InputError as error:
            # A package or version that an index lacks: that combination cannot be had, others can.
            self.rejected.append(RejectedPoint(point=label, reason=_flatten(str(error))))
            return
        self.notes |= dict.fromkeys(solution.notes)
        self.rejected += [RejectedPoint(point=label, reason=rejection.reason) for rejection in solution.rejected]
        if solution.stacks:
            self.stacks[arm.solved] = solution.stacks[0].model_copy(update={"name": label, "origin": (label,)})


def _flatten(text: str) -> str:
    return (" ".join(text.split()) or "no reason was given")[:MAX_REASON]


def _build_matrix_set(
    matrix: StackMatrix, arms: Sequence[MatrixArm], solver: _MatrixSolver, rejected: Sequence[RejectedPoint]
) -> StackSet:
    by_key: dict[str, Stack] = {}
    variations = []
    for arm in arms:
        stack = solver.stacks.get(arm.solved) if arm.environment is None else None
        if arm.environment is None and stack is None:
            continue
        if stack is not None:
            stack = by_key.setdefault(stack.key, stack)
        variations.append(
            Variation(
                name=format_arm_name(arm.factors) or (stack.name if stack else "environment"),
                factors=arm.factors,
                stack=stack.key if stack else None,
                environment=arm.environment,
                threads=arm.threads,
                variables=arm.variables,
            )
        )
    _refuse_equal_variations(variations)
    stacks = tuple(by_key.values())
    return StackSet(
        requirements=tuple(f"{name} {' or '.join(choice.version)}".strip() for name, choice in matrix.packages.items()),
        free=(),
        decision="grid",
        python=stacks[0].python if stacks else this_python_version(),
        platform=stacks[0].platform if stacks else this_platform(),
        # Environments that are there need no solver.
        uv_version=uv_tool.read_uv_version() if stacks else None,
        stacks=stacks,
        rejected=tuple(rejected),
        notes=tuple(solver.notes),
        variations=tuple(variations),
        indexes=dict(matrix.indexes),
    )


def _refuse_equal_variations(variations: Sequence[Variation]) -> None:
    """Refuse combinations that measure the same: any difference between them would be noise with a name."""
    seen: dict[tuple[object, ...], str] = {}
    for variation in variations:
        setting = (
            variation.stack,
            variation.environment,
            variation.threads,
            tuple(sorted(variation.variables.items())),
        )
        if setting in seen:
            raise ConfigError(
                "two combinations of the matrix have the same lock and settings",
                where="--stacks",
                found=[seen[setting], variation.name],
                do="leave out one of the levels: both give the same packages",
            )
        seen[setting] = variation.name


def read_stacks(paths: Sequence[str | Path], *, max_download_bytes: int, progress: Progress | None = None) -> StackSet:
    """Read stacks files and matrices, and merge them to one set."""
    sets = []
    for path in paths:
        if Path(path).suffix in SUFFIXES:
            sets.append(
                solve_stack_matrix(read_stack_matrix(path), max_download_bytes=max_download_bytes, progress=progress)
            )
        else:
            sets.append(stack_sets.read_stack_set(path))
    try:
        merged = merge_stack_sets(sets, [str(path) for path in paths])
    except ValueError as error:
        raise ConfigError("stacks files that do not fit together", where="--stacks", found=str(error)[:300]) from None
    if not merged.stacks and not merged.variations:
        reasons = [f"{rejection.point}: {rejection.reason}"[:200] for rejection in merged.rejected[:3]]
        raise ConfigError("no stack can be had", where="--stacks", found=reasons or "none in the files")
    return merged


def merge_stack_sets(sets: Sequence[StackSet], names: Sequence[str]) -> StackSet:
    """Merge sets: a stack in several of them counts once."""
    if len(sets) == 1:
        return sets[0]
    stacks: dict[str, Stack] = {}
    variations: dict[str, tuple[Variation, str]] = {}
    for stack_set, place in zip(sets, names, strict=True):
        for stack in stack_set.stacks:
            stacks.setdefault(stack.key, stack)
        set_variations = stack_set.variations or [
            Variation(name=stack.name, stack=stack.key) for stack in stack_set.stacks
        ]
        for variation in set_variations:
            earlier, before = variations.setdefault(variation.name, (variation, place))
            if earlier.setting != variation.setting:
                raise ConfigError(
                    "two stacks of one name", where="--stacks", found=f"{variation.name}, in {before} and in {place}",
                    do="rename one: stacks are merged by name",
                )  # fmt: skip
    if len(platforms := {stack.platform for stack in stacks.values()}) > 1:
        raise ConfigError("stacks for different platforms", where="--stacks", found=sorted(platforms))
    merged = [entry for entry, _ in variations.values()]
    _refuse_equal_variations(merged)
    first = sets[0]
    indexes: dict[str, str] = {}
    for stack_set, place in zip(sets, names, strict=True):
        for name, url in stack_set.indexes.items():
            if indexes.setdefault(name, url) != url:
                raise ConfigError("two indexes of one name", where=f"--stacks {place}", found=name, do="rename one")
    simple = not any(part.variations for part in sets)
    return first.model_copy(
        update={
            "requirements": tuple(dict.fromkeys(text for part in sets for text in part.requirements)),
            "free": tuple(dict.fromkeys(text for part in sets for text in part.free)),
            "stacks": tuple(_name_by_variation(stacks, merged) if simple else stacks.values()),
            "rejected": tuple(dict.fromkeys(row for part in sets for row in part.rejected)),
            "notes": tuple(dict.fromkeys(note for part in sets for note in part.notes)),
            "variations": () if simple else tuple(merged),
            "indexes": indexes,
        }
    )


def _name_by_variation(stacks: dict[str, Stack], variations: Sequence[Variation]) -> list[Stack]:
    return [
        stacks[variation.stack].model_copy(update={"name": variation.name})
        for variation in variations
        if variation.stack
    ]
