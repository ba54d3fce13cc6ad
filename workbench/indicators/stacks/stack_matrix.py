"""Stack matrix in a YAML file: Pythons, packages, indexes, variables and threads as dimensions of one session."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from workbench.core.data_files import read_yaml_file
from workbench.core.errors import ConfigError, InputError
from workbench.core.redaction import has_user_info, is_secret_name
from workbench.core.schema import StrictModel, validate_model
from workbench.indicators.stacks import stack_request, stack_sets, stack_solver, uv_tool
from workbench.indicators.stacks.package_index import this_platform, this_python_version
from workbench.indicators.stacks.stack_request import parse_requirement
from workbench.indicators.stacks.stack_sets import (
    MAX_REASON,
    Line,
    PythonVersion,
    RejectedPoint,
    Stack,
    StackSet,
    Variation,
)
from workbench.indicators.stacks.uv_tool import Sources, load_sources

SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 1 << 20
MAX_ARMS = 100
DEFAULT_INDEX = "default"
"""Name of the configured index, in addition to those in the file."""
UNSET = "unset"
_OWN_VARIABLES = re.compile(
    r"PI_.*|PATH|HOME|TMPDIR|LD_PRELOAD|PYTHON(HOME|PATH|PYCACHEPREFIX|STARTUP)|(OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS"
)
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
IndexName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=40)]
Progress = Callable[[int, int], None]


def _split_scalar(value: Any) -> Any:
    """One value, or a list of them: a list is a dimension."""
    return [value] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_split_scalar), Field(min_length=1, max_length=MAX_ARMS)]


class PackageChoice(StrictModel):
    """Versions of a package (2.2.6, or a specifier such as >=2; empty: any), and names of indexes; lists are
    dimensions.
    """

    version: Texts = ("",)
    index: Texts = (DEFAULT_INDEX,)


def _expand_package(value: Any) -> Any:
    return value if isinstance(value, dict) else {"version": value}


class StackMatrix(StrictModel):
    """Dimensions that vary between the arms of a session, each with its levels; a single level is no dimension.

    `environments` are existing ones (conda, system) by path, in place of `python` and `packages`.
    """

    python: Annotated[tuple[PythonVersion, ...], BeforeValidator(_split_scalar)] = ()
    packages: dict[Line, Annotated[PackageChoice, BeforeValidator(_expand_package)]] = Field(default={})
    indexes: dict[IndexName, Line] = Field(default={})
    env: dict[VariableName, Texts] = Field(default={})
    threads: Annotated[tuple[int, ...], BeforeValidator(_split_scalar)] = ()
    environments: dict[Line, Line] = Field(default={})

    @field_validator("threads", mode="before")
    @classmethod
    def _read_threads(cls, value: Any) -> Any:
        """Read whole numbers, which the file has as text."""
        return [
            int(entry) if isinstance(entry, str) and re.fullmatch(r"\d{1,4}", entry) else entry
            for entry in _split_scalar(value)
        ]

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if not self.packages and not self.environments:
            raise ValueError("nothing to measure: packages and environments are empty")
        if self.python and not self.packages:
            raise ValueError("python: needs packages, such as numpy")
        if wrong := [number for number in self.threads if not 1 <= number <= 1024]:
            raise ValueError(f"threads: {wrong[0]} is not between 1 and 1024")
        _check_variables(self.env)
        # Refuse credentials in addresses, and packages of an unknown index.
        for name, url in self.indexes.items():
            if has_user_info(url):
                user = f"UV_INDEX_{name.upper().replace('-', '_')}_USERNAME and _PASSWORD"
                raise ValueError(f"indexes.{name}: a user or password in the address; set {user} instead")
            if not url.startswith(("https://", "http://", "file://", "/", "~", "./")):
                raise ValueError(f"indexes.{name}: neither an address (https://…) nor a folder")
        allowed = [*self.indexes, DEFAULT_INDEX]
        for name, choice in self.packages.items():
            if unknown := [index for index in choice.index if index not in allowed]:
                raise ValueError(
                    f"packages.{name}.index: {unknown[0]} is not one of {', '.join(dict.fromkeys(allowed))}"
                )
        lists = {"python": self.python, "threads": self.threads}
        lists |= {f"env.{name}": levels for name, levels in self.env.items()}
        for name, choice in self.packages.items():
            _check_package(name, choice)
            lists |= {f"packages.{name}": choice.version, f"packages.{name}.index": choice.index}
        for dimension, levels in lists.items():
            if twice := [str(level) for level in levels if levels.count(level) > 1]:
                raise ValueError(f"{dimension}: {twice[0]} stands twice")
        if (count := sum(1 for _ in iterate_arms(self))) > MAX_ARMS:
            raise ValueError(f"{count} combinations, at most {MAX_ARMS}: leave out levels")
        return self


def _check_variables(env: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse variables that are secrets, or that each run sets itself."""
    for name, levels in env.items():
        if is_secret_name(name):
            raise ValueError(f"env.{name}: looks like a secret, which must not be written to a file")
        if _OWN_VARIABLES.fullmatch(name):
            raise ValueError(f"env.{name}: each run sets it; use threads, or the parameters of an indicator")
        if any(not text.isprintable() or len(text) > 1000 for text in levels):
            raise ValueError(f"env.{name}: a line of at most 1,000 characters")


def _check_package(name: str, choice: PackageChoice) -> None:
    """Refuse a name, version or specifier that cannot be read."""
    for text in choice.version:
        try:
            parse_requirement(f"{name}{format_specifier(text)}", f"packages.{name}")
        except (ConfigError, InvalidSpecifier, InvalidVersion):
            allowed = "like 2.2.6 or >=2,<2.3"
            raise ValueError(f"packages.{name}: {text[:60]!r} is no version, {allowed}") from None


def format_specifier(text: str) -> str:
    """The specifier of a version as the file has it.

    >>> format_specifier("2.2.6"), format_specifier(">=2"), format_specifier("")
    ('==2.2.6', '>=2', '')
    """
    if not text:
        return ""
    if text[0] in "<>=!~":
        return str(SpecifierSet(text))
    return f"=={Version(text)}"


@dataclass(frozen=True)
class MatrixArm:
    """One combination: `factors` maps each dimension that varies to its level.

    `python` is null for this interpreter, `environment` a path in place of Python and packages. `indexes` maps
    packages to names of indexes, without the default one.
    """

    factors: dict[str, str]
    python: str | None
    requirements: tuple[str, ...]
    indexes: dict[str, str]
    environment: str | None
    threads: int | None
    variables: dict[str, str]

    @property
    def solved(self) -> tuple[Any, ...]:
        """Settings that its lock depends on."""
        return self.python, self.requirements, tuple(sorted(self.indexes.items()))


def iterate_arms(matrix: StackMatrix) -> Iterator[MatrixArm]:
    """Yield combinations, last dimension fastest: Python, packages, indexes, variables, threads; then environments.

    >>> matrix = StackMatrix.model_validate({"packages": {"numpy": ["2.2.6", "2.1.3"]}, "threads": [1, 2]})
    >>> [arm.factors for arm in iterate_arms(matrix)][:2]
    [{'numpy': '2.2.6', 'threads': '1'}, {'numpy': '2.2.6', 'threads': '2'}]
    """
    names = list(matrix.packages)
    versions = [matrix.packages[name].version for name in names]
    indexes = [matrix.packages[name].index for name in names]
    shared: list[tuple[Any, ...]] = [*matrix.env.values(), matrix.threads or (None,)]
    if names:
        pythons: tuple[str | None, ...] = matrix.python or (None,)
        for python, levels in itertools.product(pythons, itertools.product(*versions, *indexes, *shared)):
            yield _build_arm(matrix, python, levels)
    for name, path in matrix.environments.items():
        for shared_levels in itertools.product(*shared):
            arm = _build_arm(matrix, None, [*(choices[0] for choices in (*versions, *indexes)), *shared_levels])
            shared_factors = {key: level for key, level in arm.factors.items() if key == "threads" or key in matrix.env}
            yield MatrixArm({"environment": name, **shared_factors}, None, (), {}, path, arm.threads, arm.variables)


def _build_arm(matrix: StackMatrix, python: str | None, levels: Iterable[Any]) -> MatrixArm:
    """The arm of one combination of levels.

    `levels`: In the order of versions, then indexes of all packages, then variables, then threads. A dimension with a
    single level is no factor.
    """
    names, values = list(matrix.packages), iter(levels)
    versions = {name: next(values) for name in names}
    indexes = {name: next(values) for name in names}
    variables = {name: next(values) for name in matrix.env}
    threads = next(values)
    factors = {"python": str(python)} if len(matrix.python) > 1 else {}
    factors |= {name: versions[name] or "any" for name in names if len(matrix.packages[name].version) > 1}
    factors |= {f"{name} index": indexes[name] for name in names if len(matrix.packages[name].index) > 1}
    factors |= {name: variables[name] or UNSET for name in matrix.env if len(matrix.env[name]) > 1}
    factors |= {"threads": str(threads)} if len(matrix.threads) > 1 else {}
    return MatrixArm(
        factors=factors,
        python=python,
        requirements=tuple(f"{name}{format_specifier(text)}" for name, text in versions.items()),
        indexes={
            canonicalize_name(parse_requirement(name, "packages").name): index
            for name, index in indexes.items()
            if index != DEFAULT_INDEX or index in matrix.indexes
        },
        environment=None,
        threads=threads,
        variables={name: text for name, text in variables.items() if text},
    )


def format_arm_name(factors: Mapping[str, str]) -> str:
    """Name of a combination by what varies.

    >>> format_arm_name({"python": "3.12", "numpy": "2.2.6", "numpy index": "fast", "MALLOC": "x", "threads": "2"})
    'Python 3.12, numpy 2.2.6, numpy from fast, MALLOC=x, 2 threads'
    """
    return ", ".join(_format_level(name, level) for name, level in factors.items())


def _format_level(name: str, level: str) -> str:
    if name == "python":
        return f"Python {level}"
    if name == "threads":
        return f"{level} thread" + ("" if level == "1" else "s")
    if name == "environment":
        return level
    if name.endswith(" index"):
        return f"{name.removesuffix(' index')} from {level}"
    return f"{name}={level}" if name.isupper() else f"{name} {level}"


def read_stack_matrix(path: str | Path) -> StackMatrix:
    """Read a matrix; all scalars are text, so that 3.10 stays 3.10."""
    noun = "stack matrix"
    document = read_yaml_file(path, noun=noun, max_bytes=MAX_BYTES, as_text=True)
    if not isinstance(document, dict):
        raise InputError(f"not a {noun}", where=path, allowed="python, packages, indexes, env, threads, environments")
    return validate_model(StackMatrix, document, noun=noun, where=path)


def find_python_version(wanted: str) -> str | None:
    """Full version of an installed Python that uv finds, such as 3.12.4 for 3.12; null where there is none.

    Managed interpreters of uv and those on PATH count; nothing is downloaded.
    """
    this_version = this_python_version()
    if this_version == wanted or this_version.startswith(f"{wanted}."):
        return this_version
    search = uv_tool.run_uv(["python", "find", "--no-project", "--show-version", wanted], sources=None)
    version = search.stdout.strip()
    return version if search.exit_code == 0 and re.fullmatch(r"3\.\d{1,2}\.\d{1,2}", version) else None


def solve_stack_matrix(
    matrix: StackMatrix, *, max_download_bytes: int, sources: Sources | None = None, progress: Progress | None = None
) -> StackSet:
    """Solve all combinations of a matrix.

    Returns: `variations` has an entry for each combination that can be had, in the file's order; `rejected` the
    others, with the reason. Stacks are shared by combinations that differ only in threads or variables.
    """
    sources = sources or load_sources()
    arms = list(iterate_arms(matrix))
    pythons = {version: find_python_version(version) for version in matrix.python}
    missing = [version for version, full_version in pythons.items() if not full_version]
    rejected = [
        RejectedPoint(
            point=f"Python {version}", reason=f"Python {version} is not installed: uv python install {version}"
        )
        for version in missing
    ]
    notes: dict[str, None] = {}
    stacks: dict[tuple[object, ...], Stack] = {}
    wanted = {arm.solved: arm for arm in arms if arm.environment is None and arm.python not in missing}
    for n_solved, arm in enumerate(wanted.values(), 1):
        # The name of a stack leaves out what its lock does not depend on.
        factors = {name: level for name, level in arm.factors.items() if name != "threads" and name not in matrix.env}
        label = format_arm_name(factors) or ", ".join(arm.requirements)
        pinned = {name: (index, matrix.indexes.get(index, "")) for name, index in arm.indexes.items()}
        request = stack_request.build_stack_request(
            requirements=arm.requirements,
            python=pythons[arm.python] if arm.python else None,
            max_download_bytes=max_download_bytes,
        )
        try:
            solution = stack_solver.solve_request(request, replace(sources, pinned=uv_tool.resolve_pinned(pinned)))
        except InputError as error:
            # A package or version that an index lacks: that combination cannot be had, others can.
            reason = " ".join(str(error).split()) or "no reason was given"
            rejected.append(RejectedPoint(point=label, reason=reason[:MAX_REASON]))
        else:
            notes |= dict.fromkeys(solution.notes)
            rejected += [RejectedPoint(point=label, reason=rejection.reason) for rejection in solution.rejected]
            if solution.stacks:
                stacks[arm.solved] = solution.stacks[0].model_copy(update={"name": label, "origin": (label,)})
        if progress is not None:
            progress(n_solved, len(wanted))
    by_key: dict[str, Stack] = {}
    variations = []
    for arm in arms:
        stack = None
        if arm.environment is None:
            if (solved := stacks.get(arm.solved)) is None:
                continue
            # Arms with equal locks share a stack.
            stack = by_key.setdefault(solved.key, solved)
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
    first = next(iter(by_key.values()), None)
    return StackSet(
        requirements=tuple(f"{name} {' or '.join(choice.version)}".strip() for name, choice in matrix.packages.items()),
        free=(),
        decision="grid",
        python=first.python if first else this_python_version(),
        platform=first.platform if first else this_platform(),
        # Environments that are there need no solver.
        uv_version=uv_tool.read_uv_version() if first else None,
        stacks=tuple(by_key.values()),
        rejected=tuple(rejected),
        notes=tuple(notes),
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
                do="omit one of the levels: both give the same packages",
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
    # Without a matrix, a stack is named as its variation.
    named = [stacks[entry.stack].model_copy(update={"name": entry.name}) for entry in merged if simple and entry.stack]
    return first.model_copy(
        update={
            "requirements": tuple(dict.fromkeys(text for part in sets for text in part.requirements)),
            "free": tuple(dict.fromkeys(text for part in sets for text in part.free)),
            "stacks": tuple(named if simple else stacks.values()),
            "rejected": tuple(dict.fromkeys(row for part in sets for row in part.rejected)),
            "notes": tuple(dict.fromkeys(note for part in sets for note in part.notes)),
            "variations": () if simple else tuple(merged),
            "indexes": indexes,
        }
    )
