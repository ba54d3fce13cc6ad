"""A stack is a lock: which package in which version, by which hashes; many of them with their origin are one file.

Nothing here tells a time, a path or an index, so that the same question asked again gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from workbench import files
from workbench.errors import InputError

FORMAT_VERSION: Final = 1
FILE_NAME = "stacks.json"
MOST_BYTES = 64 << 20
MOST_REASON = 4000
"""Characters that are kept of what uv says about an unsatisfiable point."""

PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=200)]
VersionText = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.!+_-]*$", max_length=100)]
Hash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=1000)]
Moment = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}(\.\d{1,2})?$")]
Decision = Literal["grid", "random", "latest", "dates", "bounds"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Package(_Strict):
    """One package of a lock.

    `hashes` are those of the wheels that fit the stack's Python and platform, sorted. `newest_upload` is when the
    last of those wheels was put on the index, `yanked` whether one was taken back, `download_bytes` the size of the
    wheel that gets installed; each null where the index does not tell.
    """

    name: PackageName
    version: VersionText
    hashes: Annotated[tuple[Hash, ...], Field(min_length=1)]
    newest_upload: Moment | None = None
    yanked: bool | None = None
    download_bytes: Annotated[int, Field(ge=0)] | None = None


def lock_text(packages: Iterable[Package]) -> str:
    """The requirements file of packages with hashes: sorted, no index, no path, no time.

    Examples
    --------
    >>> print(lock_text([Package(name="numpy", version="2.2.6", hashes=("sha256:" + 64 * "a",))])[:30])
    numpy==2.2.6 \\
        --hash=sha2
    """
    lines = []
    for package in sorted(packages, key=lambda one: one.name):
        parts = [f"{package.name}=={package.version}", *(f"    --hash={digest}" for digest in sorted(package.hashes))]
        lines.append(" \\\n".join(parts) + "\n")
    return "".join(lines)


def stack_key(lock: str, python: str, platform: str) -> str:
    """What identifies a stack: sha256 over its lock, the Python version and the platform."""
    return hashlib.sha256(f"{lock}\0{python}\0{platform}".encode()).hexdigest()


class Stack(_Strict):
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
    def _belongs_together(self) -> Self:
        names = [package.name for package in self.packages]
        if names != sorted(set(names)):
            raise ValueError("packages are not sorted by name, or one is there twice")
        if self.lock != lock_text(self.packages):
            raise ValueError("the lock is not the one of its packages")
        if self.key != stack_key(self.lock, self.python, self.platform):
            raise ValueError("the key is not the one of the lock, Python and platform: somebody changed it")
        return self


def make_stack(
    packages: Iterable[Package], *, python: str, platform: str, name: str = "", origin: tuple[str, ...] = ()
) -> Stack:
    """A stack from its packages: lock, key and download size follow from them (size null when one is unknown)."""
    ordered = tuple(sorted(packages, key=lambda one: one.name))
    lock = lock_text(ordered)
    key = stack_key(lock, python, platform)
    sizes = [package.download_bytes for package in ordered]
    known = [size for size in sizes if size is not None]
    return Stack(
        name=name or key[:12],
        key=key,
        python=python,
        platform=platform,
        packages=ordered,
        lock=lock,
        download_bytes=sum(known) if len(known) == len(sizes) else None,
        origin=origin,
    )


class Rejected(_Strict):
    """A point that is no stack, and why: in uv's own words, without hosts and paths."""

    point: Line
    reason: Annotated[str, StringConstraints(min_length=1, max_length=MOST_REASON)]


class StackSet(_Strict):
    """The stacks of one question, with all that is needed to ask it again.

    `requirements` and `free` are as they were asked for, `seed` is null where nothing was drawn, `exclude_newer` is
    the time before which a file must have been uploaded (null: no limit, or each day its own), `merged` counts the
    points that gave a lock which an earlier point had given, `notes` say what a reader should know, `context` is
    handed on unread. `options` are the other settings that decide which points there are (step, count, days, …).
    """

    format_version: Literal[1] = FORMAT_VERSION
    requirements: tuple[Line, ...]
    free: tuple[Line, ...]
    decision: Decision
    seed: int | None = None
    exclude_newer: Moment | None = None
    python: PythonVersion
    platform: Line
    uv_version: Line
    stacks: tuple[Stack, ...]
    rejected: tuple[Rejected, ...] = ()
    merged: Annotated[int, Field(ge=0)] = 0
    notes: tuple[Line, ...] = ()
    options: dict[str, int | str | None] = {}
    context: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        for what, values in (("name", [s.name for s in self.stacks]), ("key", [s.key for s in self.stacks])):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"two stacks have the {what} {twice[0]}")
        return self

    def stack(self, wanted: str) -> Stack:
        """The stack of this name, or whose key begins so (8 digits or more).

        Raises
        ------
        InputError
            None is meant, or several are.
        """
        found = [stack for stack in self.stacks if stack.name == wanted]
        if not found and len(wanted) >= 8:
            found = [stack for stack in self.stacks if stack.key.startswith(wanted)]
        if len(found) != 1:
            what = "no such stack" if not found else "several stacks are meant"
            raise InputError(what, found=wanted[:200], allowed=[stack.name for stack in self.stacks])
        return found[0]

    def write(self, path: str | Path) -> Path:
        """Write the set as one JSON file, whole or not at all; the same set gives the same bytes."""
        return files.write_text(path, as_json(self))


def as_json(stacks: StackSet) -> str:
    """The set as a JSON document."""
    return json.dumps(stacks.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"


def read(path: str | Path) -> StackSet:
    """Read stacks from a file, or from `stacks.json` in a folder, and check that each key fits its lock.

    Raises
    ------
    InputError
        It is not there, too large, no such document, of a newer workbench, or was changed by hand.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
    try:
        # One byte more than allowed is enough to know, whatever the size.
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            "cannot read the stacks", where=path, found=error.strerror, do="workbench indicators stacks --free numpy"
        ) from error
    if len(raw) > MOST_BYTES:
        raise InputError("too large for stacks", where=path, allowed=f"up to {MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where=path, found=str(error)[:200]) from error
    return _validated(document, path)


def _validated(document: Any, path: Path) -> StackSet:
    version = document.get("format_version") if isinstance(document, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError("not a file of stacks", where=path, found="no format_version")
    if version > FORMAT_VERSION:
        raise InputError(
            "stacks of a newer workbench",
            where=path,
            found=f"format version {version}",
            allowed=f"up to {FORMAT_VERSION}",
            do="pip install --upgrade accelerated-workbench",
        )
    try:
        return StackSet.model_validate(document)
    except ValidationError as error:
        raise InputError("not a file of stacks", where=path, found=told(error)) from error


def told(error: ValidationError, most: int = 5) -> list[str]:
    """What pydantic found, a short text a problem, without the values (they may be long)."""
    problems = [
        ".".join(map(str, problem["loc"]))[:100] + ": " + problem["msg"].removeprefix("Value error, ")
        for problem in error.errors(include_url=False, include_input=False)
    ]
    more = len(problems) - most
    return [problem.removeprefix(": ") for problem in problems[:most]] + ([f"and {more} more"] if more > 0 else [])
