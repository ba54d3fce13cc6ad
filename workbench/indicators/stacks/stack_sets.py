"""Locked stacks and sets of them: read, write, validate, and name by what differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from workbench.core import files
from workbench.core.data_files import read_json_file
from workbench.core.errors import InputError
from workbench.core.schema import StrictModel, check_format_version, validate_model

FORMAT_VERSION: Final = 1
FILE_NAME = "stacks.json"
MAX_BYTES = 64 << 20
MAX_REASON = 4000
"""Characters kept of uv's explanation of an unsatisfiable point."""

PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=200)]
VersionText = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.!+_-]*$", max_length=100)]
Hash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=1000)]
Moment = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}(\.\d{1,2})?$")]
Decision = Literal["grid", "random", "latest", "dates", "bounds"]
MAX_EXTRA = 3
KEY_DIGITS = 6


class Package(StrictModel):
    """One package of a lock.

    `hashes` are those of the wheels that fit the stack's Python and platform, sorted. `newest_upload` is when the
    last of those wheels was uploaded, `yanked` whether one was yanked, `download_bytes` the size of the
    wheel that gets installed; each null if the index does not say. `index` names the index that it is from; null: the
    configured one.
    """

    name: PackageName
    version: VersionText
    hashes: Annotated[tuple[Hash, ...], Field(min_length=1)]
    newest_upload: Moment | None = None
    yanked: bool | None = None
    download_bytes: Annotated[int, Field(ge=0)] | None = None
    index: Line | None = None


def format_lock(packages: Iterable[Package]) -> str:
    """The requirements file of packages with hashes: sorted, no index, no path, no time.

    >>> print(format_lock([Package(name="numpy", version="2.2.6", hashes=("sha256:" + 64 * "a",))])[:30])
    numpy==2.2.6 \\
        --hash=sha2
    """
    lines = []
    for package in sorted(packages, key=lambda entry: entry.name):
        parts = [f"{package.name}=={package.version}", *(f"    --hash={digest}" for digest in sorted(package.hashes))]
        lines.append(" \\\n".join(parts) + "\n")
    return "".join(lines)


def compute_stack_key(lock: str, python: str, platform: str) -> str:
    """Identifier of a stack: sha256 of its lock, Python version and platform."""
    return hashlib.sha256(f"{lock}\0{python}\0{platform}".encode()).hexdigest()


class Stack(StrictModel):
    """A solved set of packages that can be installed with every hash checked.

    `name` tells it from the other stacks of its set; `key` identifies it everywhere; `origin` has the points of the
    space that gave this lock (several when they were merged).
    """

    name: Line
    key: Key
    python: PythonVersion
    platform: Line
    packages: Annotated[tuple[Package, ...], Field(min_length=1)]
    lock: str
    download_bytes: Annotated[int, Field(ge=0)] | None = None
    origin: tuple[Line, ...] = ()

    @property
    def lock_sha256(self) -> str:
        """Hex digest of the lock alone."""
        return hashlib.sha256(self.lock.encode()).hexdigest()

    @property
    def versions(self) -> dict[str, str]:
        """Package name to version, sorted by name."""
        return {package.name: package.version for package in self.packages}

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        names = [package.name for package in self.packages]
        if names != sorted(set(names)):
            raise ValueError("packages are not sorted by name, or one occurs twice")
        if self.lock != format_lock(self.packages):
            raise ValueError("the lock does not match its packages")
        if self.key != compute_stack_key(self.lock, self.python, self.platform):
            raise ValueError("the key does not match lock, Python and platform: the file was edited")
        return self


def build_stack(
    packages: Iterable[Package], *, python: str, platform: str, name: str = "", origin: tuple[str, ...] = ()
) -> Stack:
    """Build a stack from its packages, with lock, key and download size (null if a size is unknown)."""
    ordered = tuple(sorted(packages, key=lambda package: package.name))
    lock = format_lock(ordered)
    key = compute_stack_key(lock, python, platform)
    sizes = [package.download_bytes for package in ordered]
    exact_sizes = [size for size in sizes if size is not None]
    return Stack(
        name=name or key[:12],
        key=key,
        python=python,
        platform=platform,
        packages=ordered,
        lock=lock,
        download_bytes=sum(exact_sizes) if len(exact_sizes) == len(sizes) else None,
        origin=origin,
    )


class RejectedPoint(StrictModel):
    """Point without a solution, with uv's explanation (without hosts and paths)."""

    point: Line
    reason: Annotated[str, StringConstraints(min_length=1, max_length=MAX_REASON)]


class Variation(StrictModel):
    """An arm to measure: a stack by its key, or an existing environment by its path, with threads and variables.

    `factors` maps each dimension of its matrix to the level that it has; `threads` is null for the session's number.
    """

    name: Line
    factors: dict[Line, Line] = Field(default={})
    stack: Key | None = None
    environment: Line | None = None
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    variables: dict[str, str] = Field(default={})

    @property
    def setting(self) -> tuple[object, ...]:
        """Setting that is measured, without its name."""
        return self.stack, self.environment, self.threads, tuple(sorted(self.variables.items()))

    @property
    def key(self) -> str | None:
        """Identifier of the stack under these settings; the stack's own where it has none. Null: an environment."""
        if self.stack is None or (self.threads is None and not self.variables):
            return self.stack
        return hashlib.sha256(repr(self.setting).encode()).hexdigest()

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.stack is None) == (self.environment is None):
            raise ValueError("a variation has either a stack or an environment")
        return self


class StackSet(StrictModel):
    """The stacks of one request, with all settings needed to repeat it.

    `requirements` and `free` are as requested. `seed` is null without random draws. `exclude_newer` is the upload time
    limit (null: no limit, or a limit per day). `merged` counts points whose lock equals that of an earlier point.
    `notes` are for the reader, and `context` is passed on unchanged. `options` are the other settings that determine
    the points (step, count, days, …). `variations` are the arms of a matrix (empty: each stack once), `indexes` the
    addresses of the indexes that packages name. `uv_version` is null where only existing environments are named.
    """

    format_version: Literal[1] = FORMAT_VERSION
    requirements: tuple[Line, ...]
    free: tuple[Line, ...]
    decision: Decision
    seed: int | None = None
    exclude_newer: Moment | None = None
    python: PythonVersion
    platform: Line
    uv_version: Line | None
    stacks: tuple[Stack, ...]
    rejected: tuple[RejectedPoint, ...] = ()
    merged: Annotated[int, Field(ge=0)] = 0
    notes: tuple[Line, ...] = ()
    options: dict[str, int | str | None] = Field(default={})
    context: dict[str, Any] | None = None
    variations: tuple[Variation, ...] = ()
    indexes: dict[str, Line] = Field(default={})

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        for noun, values in (("name", [s.name for s in self.stacks]), ("key", [s.key for s in self.stacks])):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"two stacks have the {noun} {twice[0]}")
        names, keys = [variation.name for variation in self.variations], {stack.key for stack in self.stacks}
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two variations have the name {twice[0]}")
        if lost := [
            variation.name
            for variation in self.variations
            if variation.stack is not None and variation.stack not in keys
        ]:
            raise ValueError(f"the stack of the variation {lost[0]} is missing")
        return self

    @property
    def by_arm_key(self) -> dict[str, Stack]:
        """The stack of each arm's key; several arms of a matrix share a lock."""
        by_key = {stack.key: stack for stack in self.stacks}
        more = {
            variation.key: by_key[variation.stack] for variation in self.variations if variation.key and variation.stack
        }
        return {**by_key, **more}

    def get_stack(self, name_or_key: str) -> Stack:
        """Find a stack by name, or by the start of its key (8 digits or more)."""
        matches = [stack for stack in self.stacks if stack.name == name_or_key]
        if not matches and len(name_or_key) >= 8:
            matches = [stack for stack in self.stacks if stack.key.startswith(name_or_key)]
        if len(matches) != 1:
            message = "no such stack" if not matches else "several stacks match"
            raise InputError(message, found=name_or_key[:200], allowed=[stack.name for stack in self.stacks])
        return matches[0]

    def write(self, path: str | Path) -> Path:
        """Write the set as one JSON file, atomically; the same set gives the same bytes."""
        return files.write_text(path, format_stack_set(self))


def format_stack_set(stacks: StackSet) -> str:
    """The set as the text of its file."""
    return json.dumps(build_stack_set_document(stacks), indent=1, ensure_ascii=False) + "\n"


def build_stack_set_document(stacks: StackSet) -> dict[str, Any]:
    """The set as a JSON document."""
    document = stacks.model_dump(mode="json")
    # Sets without a matrix have the same bytes as before there was one.
    for name in ("variations", "indexes"):
        if not document[name]:
            del document[name]
    for package in (package for stack in document["stacks"] for package in stack["packages"]):
        if package["index"] is None:
            del package["index"]
    return document


def read_stack_set(path: str | Path) -> StackSet:
    """Read stacks from a file, or from `stacks.json` in a folder, and check that each key fits its lock."""
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
    noun = "stacks file"
    document = read_json_file(path, noun=noun, max_bytes=MAX_BYTES, do="workbench indicators stacks --free numpy")
    check_format_version(document, FORMAT_VERSION, noun=noun, where=path, is_required=True)
    return validate_model(StackSet, document, noun=noun, where=path)


def list_varying_packages(stacks: Sequence[Stack]) -> list[str]:
    """Packages whose version differs between stacks, sorted."""
    names = sorted({name for stack in stacks for name in stack.versions})
    return [name for name in names if len({stack.versions.get(name) for stack in stacks}) > 1]


def name_stacks(stacks: Sequence[Stack], first: Sequence[str]) -> list[Stack]:
    """Name stacks by the packages that differ, such as "numpy 2.2.6, pandas 2.2.3".

    `first`: Requested packages: names contain those that vary, and other packages only if necessary.

    Returns: Stacks in the same order; names that are not unique end with digits of the key.
    """
    packages = [name for name in _select_name_packages(stacks, first) if name]
    names = [", ".join(label_package(stack, name) for name in packages) for stack in stacks]
    return [
        stack.model_copy(update={"name": name if names.count(name) == 1 else f"{name} ({stack.key[:KEY_DIGITS]})"})
        for stack, name in zip(stacks, names, strict=True)
    ]


def label_package(stack: Stack, name: str) -> str:
    """Label of a package: its version in the stack, or its absence."""
    version = stack.versions.get(name)
    return f"no {name}" if version is None else f"{name} {version}"


def _select_name_packages(stacks: Sequence[Stack], first: Sequence[str]) -> list[str]:
    """Select the packages of the names."""
    differ = list_varying_packages(stacks)
    chosen = [name for name in first if name in differ]
    others = [name for name in differ if name not in chosen]
    while len(chosen) < len(first) + MAX_EXTRA and _count_distinct_names(stacks, chosen) < len(stacks) and others:
        # The package that distinguishes most stacks; ties are resolved by name.
        best = max(others, key=lambda name: (_count_distinct_names(stacks, [*chosen, name]), -others.index(name)))
        chosen.append(best)
        others.remove(best)
    # If nothing varies (a single stack, or equal versions), the requested packages are used.
    present = [name for name in first if any(name in stack.versions for stack in stacks)]
    return chosen or present[:2] or [stacks[0].packages[0].name] if stacks else []


def _count_distinct_names(stacks: Sequence[Stack], names: Sequence[str]) -> int:
    return len({tuple(stack.versions.get(name) for name in names) for stack in stacks})
