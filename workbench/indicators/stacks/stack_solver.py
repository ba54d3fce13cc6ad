"""Solves the points of a plan with uv, merges equal locks, and names the stacks."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from workbench.core.errors import RunFailedError
from workbench.indicators.stacks import stack_request, stack_sets, uv_tool
from workbench.indicators.stacks.package_index import PackageIndex, Wheel, format_time
from workbench.indicators.stacks.stack_plan import UNLIMITED, StackPlan, build_stack_plan, find_last_day
from workbench.indicators.stacks.stack_request import Point, StackRequest, format_size
from workbench.indicators.stacks.stack_sets import MAX_REASON, Package, RejectedPoint, Stack, StackSet, build_stack
from workbench.indicators.stacks.uv_tool import Sources

AT_ONCE = 2
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_UNSATISFIABLE = "No solution found"
# Older versions of uv do not quote names.
_UNTIMED = re.compile(r"(?:`|\bwarning: )([^`\s]+)`? is missing an upload date")


@dataclass(frozen=True)
class SolvedPoint:
    """Solved point with its packages; `untimed` lists files that uv skipped because they have no upload time."""

    point: Point
    packages: tuple[Package, ...]
    untimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnsolvedPoint:
    """Point without a solution."""

    point: Point
    rejected: RejectedPoint
    untimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Solver:
    """Solves points with common requirements, index and limits.

    `before` is the upload time limit of files; null for no limit.
    """

    requirements: tuple[str, ...]
    index: PackageIndex
    before: datetime | None = None
    offline: bool = False

    def solve_point(self, point: Point) -> SolvedPoint | UnsolvedPoint:
        """Solve a point with uv."""
        before = self._select_upload_limit(point)
        output = self._run_solver(point, before)
        untimed = tuple(sorted(set(_UNTIMED.findall(output.err))))
        if output.code == 0:
            return SolvedPoint(point, self._build_packages(output.out, before), untimed)
        if _UNSATISFIABLE not in output.err or _is_unreachable(output.err):
            raise RunFailedError(
                "uv could not solve a stack",
                where=point.label,
                found=_format_reason(output),
                do="check that the package index can be reached: workbench indicators stacks --dry-run",
            )
        return UnsolvedPoint(point, RejectedPoint(point=point.label, reason=_format_reason(output)), untimed)

    def _select_upload_limit(self, point: Point) -> datetime | None:
        if point.before is None:
            return self.before
        return datetime(point.before.year, point.before.month, point.before.day, tzinfo=UTC)

    def _run_solver(self, point: Point, before: datetime | None) -> uv_tool.UvOutput:
        with tempfile.TemporaryDirectory(prefix="workbench-stack-") as name:
            folder = Path(name)
            requirements_file = write_requirements(folder, self.requirements, self.index.sources)
            pins = "".join(f"{package}=={version}\n" for package, version in point.pins)
            (folder / "pins.txt").write_text(pins, encoding="utf-8")
            options = ["--generate-hashes", "--no-header", "--no-annotate", "--only-binary", ":all:"]
            options += [*self.index.target.list_uv_options(), "--resolution", point.resolution]
            if before is not None:
                options += ["--exclude-newer", format_time(before)]
            return uv_tool.run_uv(
                ["pip", "compile", *options, "-c", "pins.txt", requirements_file],
                sources=self.index.sources,
                cwd=folder,
                offline=self.offline,
            )

    def _build_packages(self, lock: str, before: datetime | None) -> tuple[Package, ...]:
        entries = list(_parse_lock(lock))
        self.index.prefetch_pages(name for name, _, _ in entries)
        return tuple(self._build_package(name, version, hashes, before) for name, version, hashes in entries)

    def _build_package(self, name: str, version: str, hashes: Sequence[str], before: datetime | None) -> Package:
        """Package with the hashes of compatible files uploaded before the limit.

        uv lists all files; the selection keeps locks stable when files are added to an old version.
        """
        fitting = self.index.list_files(name, Version(version), before)
        index_hashes = sorted({f"sha256:{wheel.sha256}" for wheel in fitting if wheel.sha256})
        # If the index has no hashes, uv has computed them from the files.
        digests = [digest for digest in index_hashes if digest in hashes] or sorted(hashes)
        if not digests:
            raise RunFailedError(
                "a package has no known hash", where=f"{name} {version}", do="use an index with sha256 hashes"
            )
        best = next(iter(fitting), None)
        return Package(
            name=name,
            version=version,
            hashes=tuple(digests),
            newest_upload=_find_newest_upload(fitting),
            yanked=any(wheel.yanked for wheel in fitting) if fitting else None,
            download_bytes=None if best is None else self.index.size_bytes(best),
            index=self.index.sources.pinned[name][0] if name in self.index.sources.pinned else None,
        )


def write_requirements(folder: Path, requirements: Sequence[str], sources: Sources) -> str:
    """Write requirements for uv; the name of the file. Packages of a pinned index are looked up there alone."""
    if not sources.pinned:
        (folder / "requirements.in").write_text("\n".join(requirements) + "\n", encoding="utf-8")
        return "requirements.in"
    quote = json.dumps
    indexes = dict(sources.pinned.values())
    lines = ["[project]", 'name = "workbench-matrix"', 'version = "0"', f"dependencies = {quote(list(requirements))}"]
    lines += ["[tool.uv.sources]"]
    lines += [f"{quote(package)} = {{ index = {quote(name)} }}" for package, (name, _) in sources.pinned.items()]
    for name, url in indexes.items():
        lines += ["[[tool.uv.index]]", f"name = {quote(name)}", f"url = {quote(url)}", "explicit = true"]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "pyproject.toml"


def _find_newest_upload(wheels: Sequence[Wheel]) -> str | None:
    times = [wheel.uploaded for wheel in wheels]
    upload_times = [time for time in times if time is not None]
    return format_time(max(upload_times)) if upload_times and len(upload_times) == len(times) else None


def _parse_lock(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and hashes of each package in the output of `uv pip compile`."""
    for line in text.replace("\\\n", " ").splitlines():
        if match := _PIN.match(line.strip()):
            yield canonicalize_name(match["name"]), match["version"], _HASH.findall(match["rest"])


def _is_unreachable(text: str) -> bool:
    # uv also reports packages as unsatisfiable if it could not reach the index.
    return "network was disabled" in text or "network connectivity is disabled" in text


def _format_reason(output: uv_tool.UvOutput) -> str:
    """Reason for the missing solution, without uv's common prefix."""
    text = output.explanation
    for words in ("No solution found when resolving dependencies", ":", "."):
        text = text.removeprefix(words).strip()
    return (text or f"uv exited with code {output.code} without a message")[:MAX_REASON]


def solve_points(
    solver: Solver, points: Sequence[Point], progress: Callable[[int, int], None] | None = None
) -> list[SolvedPoint | UnsolvedPoint]:
    """Solve several points, two in parallel; returns the results in order.

    The first failure of uv stops the run, because an incomplete result is not useful.
    """
    answers: list[SolvedPoint | UnsolvedPoint] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [pool.submit(solver.solve_point, point) for point in points]
        try:
            for future in waiting:
                answers.append(future.result())
                if progress is not None:
                    progress(len(answers), len(points))
        finally:
            for pending in waiting:
                pending.cancel()
    return answers


Progress = Callable[[int, int], None]


def solve_request(request: StackRequest, sources: Sources | None = None, progress: Progress | None = None) -> StackSet:
    """Make the stacks of a request, each a lock with hashes.

    Returns: Points without a solution are listed with the reason; points with equal locks are merged into one stack.
    The same request with the same seed and limit gives the same bytes.
    """
    return solve_stack_plan(build_stack_plan(request, sources), progress)


def solve_stack_plan(plan: StackPlan, progress: Progress | None = None) -> StackSet:
    """Make the stacks of a plan; see `solve_request`."""
    solver = Solver(plan.requirements, plan.index, plan.before)
    answers = _solve_until_enough(plan, solver, progress)
    untimed = sorted({name for answer in answers for name in answer.untimed})
    if untimed and plan.before is not None and plan.request.before is None:
        # Only the solution shows the packages involved; some have files that the limit excludes.
        return solve_stack_plan(replace(plan, before=None, notes=(UNLIMITED.format(untimed[0]),)), progress)
    notes = plan.notes
    if untimed:
        were = "file without upload time was" if len(untimed) == 1 else "files without upload time were"
        shown = ", ".join(untimed[:3]) + (", …" if len(untimed) > 3 else "")
        notes += (f"{len(untimed)} {were} skipped: {shown}",)
    return _build_stack_set(plan, answers, notes)


def _solve_until_enough(
    plan: StackPlan, solver: Solver, progress: Progress | None
) -> list[SolvedPoint | UnsolvedPoint]:
    """Solve points until there are enough different stacks, or no points left.

    The batch size depends only on earlier results, so the same seed solves the same points.
    """
    answers: list[SolvedPoint | UnsolvedPoint] = []
    points = iter(plan.iterate_points())
    max_points = min(plan.total, plan.request.most)
    while True:
        different = {answer.packages for answer in answers if isinstance(answer, SolvedPoint)}
        missing = max_points if plan.wanted is None else plan.wanted - len(different)
        batch = list(itertools.islice(points, max(0, min(missing, max_points - len(answers)))))
        if not batch:
            return answers
        n_done = len(answers)
        batch_progress = None if progress is None else _shift_progress(progress, n_done)
        answers += solve_points(solver, batch, batch_progress)


def _shift_progress(progress: Progress, by: int) -> Progress:
    return lambda n_done, total: progress(by + n_done, by + total)


def _build_stack_set(
    plan: StackPlan, answers: Sequence[SolvedPoint | UnsolvedPoint], notes: tuple[str, ...]
) -> StackSet:
    rejected: list[RejectedPoint] = []
    stacks: dict[str, Stack] = {}
    merged = 0
    for answer in answers:
        if isinstance(answer, UnsolvedPoint):
            rejected.append(answer.rejected)
            continue
        label = answer.point.label
        stack = build_stack(
            answer.packages, python=plan.index.target.python, platform=plan.index.target.platform, origin=(label,)
        )
        if reason := _find_size_excess(stack, plan.request.max_download_bytes):
            rejected.append(RejectedPoint(point=label, reason=reason))
        elif twin := stacks.get(stack.key):
            merged += 1
            stacks[stack.key] = twin.model_copy(update={"origin": (*twin.origin, label)})
        else:
            stacks[stack.key] = stack
    if plan.wanted is not None and len(stacks) < plan.wanted:
        notes += (f"{len(stacks)} of {plan.wanted} wanted stacks: {len(answers)} of {plan.total} points were tried",)
    return StackSet(
        requirements=plan.request.requirements,
        free=plan.request.free,
        decision=plan.request.decision,
        seed=plan.seed,
        exclude_newer=None if plan.before is None else format_time(plan.before),
        python=plan.index.target.python,
        platform=plan.index.target.platform,
        uv_version=uv_tool.read_uv_version(),
        stacks=tuple(
            stack_sets.name_stacks(list(stacks.values()), plan.free or _list_package_names(plan.request.requirements))
        ),
        rejected=tuple(rejected),
        merged=merged,
        notes=notes,
        options=_list_options(plan.request),
        context=plan.request.context,
    )


def _list_options(request: StackRequest) -> dict[str, int | str | None]:
    """Settings that determine the points, with the last day resolved at the time of the request."""
    # Default values are not written to the file.
    limits = {"most": request.most, "max_download_bytes": request.max_download_bytes}
    usual = {name: StackRequest.model_fields[name].default for name in limits}
    more: dict[str, int | str | None] = {name: value for name, value in limits.items() if value != usual[name]}
    names = ["step", "latest"] if request.decision in ("grid", "random", "latest") else []
    if request.decision == "dates":
        return {
            "first_day": str(request.first_day),
            "last_day": str(find_last_day(request)),
            "every": request.every,
        } | more
    return {name: getattr(request, name) for name in [*names, "count"]} | more


def _list_package_names(requirements: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        canonicalize_name(stack_request.parse_requirement(text, "--requirements").name) for text in requirements
    )


def _find_size_excess(stack: Stack, max_bytes: int) -> str | None:
    size = sum(package.download_bytes or 0 for package in stack.packages)
    if size <= max_bytes:
        return None
    return f"download of {format_size(size)} is above --max-download {format_size(max_bytes)}"
