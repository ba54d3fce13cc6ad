"""Commits of one's own project as versions of its package: a wheel of each, built once, that a lock names by its hash.

A commit's version is the project's own with the number of commits before it and the start of its id, such as
0.3.0+128.g1a2b3c4d5: so commits are in the order of the log, and every figure names its commit. Building runs the
project's code.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from packaging.utils import canonicalize_name, parse_wheel_filename
from pydantic import StringConstraints

from workbench.core import files, locks
from workbench.core.child_process import run_command
from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.files import cache_folder
from workbench.core.schema import StrictModel
from workbench.indicators.stacks import stack_request, stack_solver, uv_tool
from workbench.indicators.stacks.package_index import this_python_version
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.stacks.uv_tool import Sources, load_sources

MAX_COMMITS = 2000
SHORT = 9
_BUILD_TIMEOUT_S, _GIT_TIMEOUT_S = 3600.0, 120.0
_RANGE = re.compile(r"(?P<old>[^.\s][^\s]*?)\.\.(?P<new>[^.\s][^\s]*)")


class Commit(StrictModel):
    """A commit on the first-parent line. `number`: Of the commits up to it on that line."""

    sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40,64}$")]
    number: int
    subject: Annotated[str, StringConstraints(max_length=1000)]

    @property
    def short(self) -> str:
        """The start of its id."""
        return self.sha[:SHORT]


# Hooks of the repository do not run; a commit of the work tree as it is needs a name.
_GIT_SETTINGS = ("core.hooksPath=/dev/null", "user.name=workbench", "user.email=workbench@localhost")


def run_git(repository: Path, *arguments: str) -> str:
    """Output of a git command in a repository."""
    settings = [word for setting in _GIT_SETTINGS for word in ("-c", setting)]
    command = ["git", "--no-optional-locks", "-C", str(repository), *settings, *arguments]
    return run_command(command, timeout_s=_GIT_TIMEOUT_S, must_succeed=True, do="git must be installed").stdout.strip()


def find_commit(repository: Path, name: str) -> str:
    """Whole id of what a branch, tag or id names."""
    try:
        return run_git(repository, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except RunFailedError as error:
        raise ConfigError(
            "not a commit",
            where=str(repository),
            found=f"{name[:80]}: {error.facts['found']}",
            allowed="branch, tag or id",
        ) from None


@contextmanager
def open_work_tree(repository: Path, sha: str) -> Iterator[Path]:
    """A work tree of its own with a commit; the user's stays as it is."""
    with tempfile.TemporaryDirectory(prefix="workbench-commit-") as scratch:
        tree = Path(scratch) / "tree"
        run_git(repository, "worktree", "add", "--detach", str(tree), sha)
        try:
            yield tree
        finally:
            run_git(repository, "worktree", "remove", "--force", str(tree))


WORK_TREE = "."


def find_single_commit(repository: Path, name: str) -> Commit:
    """The commit of a name; of `WORK_TREE`, one that holds the tracked files as they are, on no branch."""
    if name == WORK_TREE:
        # Empty where nothing differs from HEAD.
        name = run_git(repository, "stash", "create") or "HEAD"
    sha = find_commit(repository, name)
    number = int(run_git(repository, "rev-list", "--count", "--first-parent", sha))
    return Commit(sha=sha, number=number, subject=run_git(repository, "log", "-1", "--format=%s", sha)[:1000])


def list_commits(repository: Path, ends: str) -> list[Commit]:
    """Commits from OLD to NEW on the first-parent line, oldest first, both ends among them. `ends`: OLD..NEW."""
    parsed = _RANGE.fullmatch(ends.strip())
    if parsed is None:
        raise ConfigError(
            "not a range of commits", where="--commits", found=ends[:80], allowed="OLD..NEW, such as v1.2..main"
        )
    old, new = (find_commit(repository, parsed[name]) for name in ("old", "new"))
    lines = run_git(repository, "log", "--first-parent", "--reverse", "--format=%H%x09%s", f"{old}..{new}").splitlines()
    first = run_git(repository, "log", "-1", "--format=%H%x09%s", old)
    parents = set(run_git(repository, "rev-list", "--first-parent", new).split())
    if old not in parents or old == new:
        raise ConfigError(
            "the range does not go from an older commit to a newer one",
            where="--commits",
            found=ends[:80],
            allowed="OLD on the first-parent line of NEW",
        )
    if len(lines) >= MAX_COMMITS:
        raise ConfigError("too many commits", where="--commits", found=len(lines), allowed=f"up to {MAX_COMMITS}")
    number = int(run_git(repository, "rev-list", "--count", "--first-parent", old))
    found = [line.partition("\t") for line in (first, *lines)]
    return [
        Commit(sha=sha, number=number + place, subject=subject[:1000]) for place, (sha, _, subject) in enumerate(found)
    ]


@dataclass(frozen=True)
class CommitBuilder:
    """Wheels of a repository's commits, kept in your cache. `subfolder`: Of the project in it."""

    repository: Path
    subfolder: str = "."

    @property
    def folder(self) -> Path:
        """Where wheels for this Python are."""
        project = f"{self.repository.absolute()}\0{self.subfolder}\0{this_python_version()}"
        return cache_folder() / "indicators" / "commits" / hashlib.sha256(project.encode()).hexdigest()[:16]

    def list_sources(self) -> Sources:
        """The user's package index, and the wheels."""
        sources = load_sources()
        return replace(sources, find_links=(*sources.find_links, self.folder.absolute().as_uri()))

    @contextmanager
    def offer_wheels(self) -> Iterator[None]:
        """Let all that installs meanwhile find the wheels."""
        name, before = "UV_FIND_LINKS", os.environ.get("UV_FIND_LINKS")
        os.environ[name] = ",".join(self.list_sources().find_links)
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before

    def build_wheel(self, commit: Commit) -> Path:
        """The wheel of a commit, built where it is not there yet; a build of another process is waited for."""
        mark = f"{commit.number}.g{commit.short}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with locks.lock_exclusively(self.folder, "another process builds commits"):
            for wheel in self.folder.glob(f"*+{mark}-*.whl"):
                return wheel
            with (
                open_work_tree(self.repository, commit.sha) as tree,
                tempfile.TemporaryDirectory(prefix="workbench-wheel-") as built,
            ):
                result = uv_tool.run_uv(
                    [
                        "build",
                        "--wheel",
                        "--python",
                        f"{this_python_version()}",
                        "--out-dir",
                        built,
                        tree / self.subfolder,
                    ],
                    sources=load_sources(),
                    timeout_s=_BUILD_TIMEOUT_S,
                )
                wheels = list(Path(built).glob("*.whl"))
                if result.exit_code or len(wheels) != 1:
                    raise RunFailedError(
                        "cannot build the commit",
                        where=f"{commit.short} {commit.subject}"[:120],
                        found=uv_tool.explain_failure(result)[-400:] or f"{len(wheels)} wheels",
                    )
                return stamp_wheel(wheels[0], self.folder, mark)

    def solve_commit(self, commit: Commit, requirements: Sequence[str], *, max_download_bytes: int) -> Stack:
        """The lock of a commit's wheel with all that it needs.

        Raises
        ------
        RunFailedError
            The commit cannot be built, or its requirements have no solution.
        """
        wheel = self.build_wheel(commit)
        name, version, _, _ = parse_wheel_filename(wheel.name)
        request = stack_request.build_stack_request(
            requirements=(f"{name}=={version}", *requirements), max_download_bytes=max_download_bytes
        )
        solved = stack_solver.solve_request(request, self.list_sources())
        if not solved.stacks:
            reason = solved.rejected[0].reason if solved.rejected else "no stack"
            raise RunFailedError(
                "no environment for the commit", where=f"{commit.short} {commit.subject}"[:120], found=reason[:400]
            )
        return solved.stacks[0].model_copy(update={"name": commit.short})


def stamp_wheel(wheel: Path, folder: Path, mark: str) -> Path:
    """Copy a wheel under its version with a local part, which names the commit."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    stamped = f"{version.public}+{mark}"
    distribution, _, tags = wheel.name.split("-", 2)
    target, record = folder / f"{distribution}-{stamped}-{tags}", f"{distribution}-{stamped}.dist-info/RECORD"
    lines = []
    with (
        zipfile.ZipFile(wheel) as source,
        files.replace_atomically(target) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as copy,
    ):
        for entry in source.infolist():
            top, slash, rest = entry.filename.partition("/")
            stem, _, kind = top.rpartition(".")
            if kind in ("dist-info", "data") and canonicalize_name(stem.split("-")[0]) == name:
                top = f"{distribution}-{stamped}.{kind}"
            content = source.read(entry)
            if top.endswith(".dist-info") and rest == "METADATA":
                content = re.sub(rb"(?m)^Version: .*$", f"Version: {stamped}".encode(), content, count=1)
            if (path := f"{top}{slash}{rest}") == record:
                continue
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(content)}")
            moved = zipfile.ZipInfo(path, entry.date_time)
            moved.external_attr, moved.compress_type = entry.external_attr, zipfile.ZIP_DEFLATED
            copy.writestr(moved, content)
        copy.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    return target
