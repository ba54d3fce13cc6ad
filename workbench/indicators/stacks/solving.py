"""One point of the space solved by uv: the packages with their hashes, or why there are none."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from workbench.errors import RunFailedError
from workbench.indicators.stacks import tool
from workbench.indicators.stacks.index import Index, moment
from workbench.indicators.stacks.model import MOST_REASON, Package, Rejected
from workbench.indicators.stacks.pages import Wheel
from workbench.indicators.stacks.space import Point

AT_ONCE = 2
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_UNSATISFIABLE = "No solution found"
# Older versions of uv quote no names.
_UNTIMED = re.compile(r"(?:`|\bwarning: )([^`\s]+)`? is missing an upload date")


@dataclass(frozen=True)
class Solved:
    """A point and its packages; `untimed` names files that uv passed over because their upload time is unknown."""

    point: Point
    packages: tuple[Package, ...]
    untimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unsolved:
    """A point without a solution."""

    point: Point
    rejected: Rejected
    untimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Solver:
    """Solves points: the requirements that hold at all of them, the index, and what limits the files.

    `before` is the time before which files must have been uploaded; null for no limit.
    """

    requirements: tuple[str, ...]
    index: Index
    before: datetime | None = None
    offline: bool = False

    def solve(self, point: Point) -> Solved | Unsolved:
        """What uv makes of a point.

        Raises
        ------
        RunFailedError
            uv failed otherwise than by finding no solution: then nothing is known about the point.
        """
        before = self._before(point)
        said = self._ask(point, before)
        untimed = tuple(sorted(set(_UNTIMED.findall(said.err))))
        if said.code == 0:
            return Solved(point, self._packages(said.out, before), untimed)
        if _UNSATISFIABLE not in said.err or _is_unreachable(said.err):
            raise RunFailedError(
                "uv could not solve a stack",
                where=point.label,
                found=_reason(said),
                do="see whether the package index can be reached: workbench indicators stacks --dry-run",
            )
        return Unsolved(point, Rejected(point=point.label, reason=_reason(said)), untimed)

    def _before(self, point: Point) -> datetime | None:
        if point.before is None:
            return self.before
        return datetime(point.before.year, point.before.month, point.before.day, tzinfo=UTC)

    def _ask(self, point: Point, before: datetime | None) -> tool.Said:
        with tempfile.TemporaryDirectory(prefix="workbench-stack-") as name:
            folder = Path(name)
            (folder / "requirements.in").write_text("\n".join(self.requirements) + "\n", encoding="utf-8")
            pins = "".join(f"{package}=={version}\n" for package, version in point.pins)
            (folder / "pins.txt").write_text(pins, encoding="utf-8")
            options = ["--generate-hashes", "--no-header", "--no-annotate", "--only-binary", ":all:"]
            options += [*self.index.target.uv_options(), "--resolution", point.resolution]
            if before is not None:
                options += ["--exclude-newer", moment(before)]
            return tool.run(
                ["pip", "compile", *options, "-c", "pins.txt", "requirements.in"],
                sources=self.index.sources,
                cwd=folder,
                offline=self.offline,
            )

    def _packages(self, lock: str, before: datetime | None) -> tuple[Package, ...]:
        found = list(_read_lock(lock))
        self.index.ask_ahead(name for name, _, _ in found)
        return tuple(self._package(name, version, hashes, before) for name, version, hashes in found)

    def _package(self, name: str, version: str, hashes: Sequence[str], before: datetime | None) -> Package:
        """Only the hashes of files that fit, of before the limit: uv lists all files, later ones too.

        So a file that somebody adds to an old version tomorrow changes no lock.
        """
        fitting = self.index.files(name, Version(version), before)
        known = sorted({f"sha256:{one.sha256}" for one in fitting if one.sha256})
        # An index without hashes: uv has computed them from the files.
        kept = [digest for digest in known if digest in hashes] or sorted(hashes)
        if not kept:
            raise RunFailedError(
                "no hash of a package is known", where=f"{name} {version}", do="use an index that tells sha256 hashes"
            )
        best = next(iter(fitting), None)
        return Package(
            name=name,
            version=version,
            hashes=tuple(kept),
            newest_upload=_newest(fitting),
            yanked=any(one.yanked for one in fitting) if fitting else None,
            download_bytes=None if best is None else self.index.size_bytes(best),
        )


def _newest(wheels: Sequence[Wheel]) -> str | None:
    times = [one.uploaded for one in wheels]
    known = [time for time in times if time is not None]
    return moment(max(known)) if known and len(known) == len(times) else None


def _read_lock(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and hashes of each package that `uv pip compile` prints."""
    for line in text.replace("\\\n", " ").splitlines():
        if found := _PIN.match(line.strip()):
            yield canonicalize_name(found["name"]), found["version"], _HASH.findall(found["rest"])


def _is_unreachable(text: str) -> bool:
    # uv calls a package that it could not ask for unsatisfiable, too.
    return "network was disabled" in text or "network connectivity is disabled" in text


def _reason(said: tool.Said) -> str:
    """Why there is no solution, without the words that every such message begins with."""
    text = said.explanation
    for words in ("No solution found when resolving dependencies", ":", "."):
        text = text.removeprefix(words).strip()
    return (text or f"uv ended with code {said.code} and said nothing")[:MOST_REASON]


def solve_all(
    solver: Solver, points: Sequence[Point], progress: Callable[[int, int], None] | None = None
) -> list[Solved | Unsolved]:
    """Solve several points, two at a time, and give the answers in their order.

    The first failure of uv ends it: what is solved already would be a part that nobody asked for.
    """
    answers: list[Solved | Unsolved] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [pool.submit(solver.solve, point) for point in points]
        try:
            for done in waiting:
                answers.append(done.result())
                if progress is not None:
                    progress(len(answers), len(points))
        finally:
            for one in waiting:
                one.cancel()
    return answers
