"""Stack matrix in a YAML file: Pythons, packages, indexes, variables and threads as dimensions of one session."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from workbench.core.data_files import read_text_file
from workbench.core.errors import ConfigError, InputError
from workbench.core.redaction import has_user_info, is_secret_name
from workbench.core.schema import StrictModel, validate_model
from workbench.indicators.stacks.stack_request import parse_requirement
from workbench.indicators.stacks.stack_sets import Line, PythonVersion

SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 1 << 20
MAX_ARMS = 100
DEFAULT_INDEX = "default"
"""Name of the configured index, beside those that the file names."""
UNSET = "unset"
_OWN_VARIABLES = re.compile(
    r"PI_.*|PATH|HOME|TMPDIR|LD_PRELOAD|PYTHON(HOME|PATH|PYCACHEPREFIX|STARTUP)|(OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS"
)


def _split_scalar(value: Any) -> Any:
    """One value, or a list of them: a list is a dimension."""
    return [value] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_split_scalar), Field(min_length=1, max_length=MAX_ARMS)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
IndexName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=40)]


class PackageChoice(StrictModel):
    """Versions of a package (2.2.6, or a specifier such as >=2; empty: any), and names of indexes; lists vary."""

    version: Texts = ("",)
    index: Texts = (DEFAULT_INDEX,)


def _expand_package(value: Any) -> Any:
    return value if isinstance(value, dict) else {"version": value}


class StackMatrix(StrictModel):
    """What varies between the arms of a session, each dimension with its levels; a single level is no dimension.

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
        """Whole numbers, which the file has as text."""
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
        _check_indexes(self)
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
    for name, levels in env.items():
        if is_secret_name(name):
            raise ValueError(f"env.{name}: looks like a secret, which no file may hold")
        if _OWN_VARIABLES.fullmatch(name):
            raise ValueError(f"env.{name}: each run sets it; use threads, or the parameters of an indicator")
        if any(not text.isprintable() or len(text) > 1000 for text in levels):
            raise ValueError(f"env.{name}: a line of at most 1,000 characters")


def _check_indexes(matrix: StackMatrix) -> None:
    for name, url in matrix.indexes.items():
        if has_user_info(url):
            user = f"UV_INDEX_{name.upper().replace('-', '_')}_USERNAME and _PASSWORD"
            raise ValueError(f"indexes.{name}: a user or password in the address; set {user} instead")
        if not url.startswith(("https://", "http://", "file://", "/", "~", "./")):
            raise ValueError(f"indexes.{name}: neither an address (https://…) nor a folder")
    allowed = [*matrix.indexes, DEFAULT_INDEX]
    for name, choice in matrix.packages.items():
        if unknown := [index for index in choice.index if index not in allowed]:
            raise ValueError(f"packages.{name}.index: {unknown[0]} is not one of {', '.join(dict.fromkeys(allowed))}")


def _check_package(name: str, choice: PackageChoice) -> None:
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
        """What its lock depends on."""
        return self.python, self.requirements, tuple(sorted(self.indexes.items()))

    @property
    def solved_factors(self) -> dict[str, str]:
        """The factors that its lock depends on."""
        return {name: level for name, level in self.factors.items() if name != "threads" and name not in self.variables}


def iterate_arms(matrix: StackMatrix) -> Iterator[MatrixArm]:
    """All combinations, the last dimension fastest: Python, packages, indexes, variables, threads; then environments.

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
    import yaml

    noun = "stack matrix"
    text = read_text_file(path, noun=noun, max_bytes=MAX_BYTES)

    class Plain(yaml.BaseLoader):
        """Scalars as text, no aliases: a few lines of those fill the memory; no key twice: one would be lost."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Refuse aliases."""
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not read")
            return super().compose_node(parent, index)

    def construct_mapping(loader: yaml.BaseLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        mapping = loader.construct_mapping(node, deep=True)
        if len(mapping) < len(node.value):
            raise ValueError(f"line {node.start_mark.line + 1}: a key stands twice")
        return mapping

    Plain.add_constructor("tag:yaml.org,2002:map", construct_mapping)
    try:
        document = yaml.load(text, Plain)  # noqa: S506 - text alone, no objects
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError("not YAML", where=path, found=" ".join(str(error).split())[:200]) from None
    if not isinstance(document, dict):
        raise InputError(f"not a {noun}", where=path, allowed="python, packages, indexes, env, threads, environments")
    return validate_model(StackMatrix, document, noun=noun, where=path)
