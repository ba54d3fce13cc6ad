"""Solves the points of a plan with uv, merges equal locks, and names the stacks."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from workbench.core.child_process import CommandResult
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.stacks import stack_request, stack_sets, uv_tool
from workbench.indicators.stacks.package_index import PackageIndex, build_target, format_time
from workbench.indicators.stacks.stack_request import COUNT, Point, StackRequest, compute_start_of_today, format_size
from workbench.indicators.stacks.stack_sets import MAX_REASON, Package, RejectedPoint, Stack, StackSet, build_stack
from workbench.indicators.stacks.uv_tool import Sources, load_sources

UNLIMITED = "no limit on upload times, because the index has none for {}: locks may change when the index changes"
AT_ONCE = 2
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_UNSATISFIABLE = "No solution found"
_UNREACHABLE = ("network was disabled", "network connectivity is disabled")
# Older versions of uv do not quote names.
_UNTIMED = re.compile(r"(?:`|\bwarning: )([^`\s]+)`? is missing an upload date")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StackPlan:
    """Checked request with the versions from the index.

    `choices` maps free packages to candidate versions (grid, random, latest). `total` is the number of points of the
    space, `wanted` the number of different stacks to make (null: solve all points), `before` the upload time limit.
    """

    request: StackRequest
    index: PackageIndex
    requirements: tuple[str, ...]
    free: tuple[str, ...]
    choices: dict[str, list[Version]]
    total: int
    wanted: int | None
    seed: int | None
    before: datetime | None
    notes: tuple[str, ...] = ()

    def iterate_points(self) -> Iterable[Point]:
        """Iterate over the points in the order of solving."""
        request = self.request
        if request.decision == "dates" and request.first_day is not None:
            return stack_request.list_date_points(request.first_day, find_last_day(request), request.every)
        if request.decision == "bounds":
            return stack_request.list_bound_points()
        if not self.choices:
            return [Point()]
        if request.decision == "random" and self.seed is not None:
            return stack_request.draw_combinations(self.choices, self.seed)
        return stack_request.iterate_grid(self.choices)

    def list_first_points(self) -> list[Point]:
        """Points solved first; further points are solved only if some of these give no new stack."""
        return list(itertools.islice(self.iterate_points(), min(self.wanted or self.request.most, self.request.most)))


def build_stack_plan(request: StackRequest, sources: Sources | None = None) -> StackPlan:
    """Plan a request: reads versions from the index, without solving or installing."""
    index = PackageIndex(sources or load_sources(), build_target(request.python, request.platform))
    fixed = [stack_request.parse_requirement(text, "--requirements") for text in request.requirements]
    free = stack_request.index_by_name(stack_request.parse_requirement(text, "--free") for text in request.free)
    names = [
        canonicalize_name(requirement.name) for requirement in [*fixed, *free.values()] if _is_applicable(requirement)
    ]
    index.prefetch_pages(names)
    before, notes = _select_upload_limit(request, index, names)
    choices: dict[str, list[Version]] = {}
    if request.decision in ("grid", "random", "latest"):
        choices = {
            name: _list_candidate_versions(request, index, requirement, fixed, before)
            for name, requirement in free.items()
        }
    is_drawn = request.decision == "random"
    chosen = secrets.randbelow(2**31) if request.seed is None else request.seed
    plan = StackPlan(
        request=request,
        index=index,
        requirements=(*request.requirements, *request.free),
        free=tuple(free),
        choices=choices,
        total=0,
        wanted=request.count or (COUNT if is_drawn else None),
        seed=chosen if is_drawn else None,
        before=before,
        notes=notes,
    )
    # Plan with its number of points, checked against the limit.
    points = plan.iterate_points()
    total = stack_request.count_combinations(plan.choices) if plan.choices else len(list(points))
    max_points = plan.request.most
    if min(total, plan.wanted or total) > max_points:
        each = ", ".join(f"{name}: {len(versions)} versions" for name, versions in plan.choices.items())
        raise ConfigError(
            f"too many points: {total}",
            where=each or "--every",
            allowed=f"up to {max_points} (--most)",
            do="sample with --decision random --count N, use the newest with --latest N, or raise --most",
        )
    return replace(plan, total=total)


def find_last_day(request: StackRequest) -> date:
    """Last day of a sweep over dates; by default today (UTC)."""
    today = datetime.now(UTC).date()
    if request.last_day is not None and request.last_day > today:
        raise ConfigError("day is in the future", where="--to", found=request.last_day, allowed=f"up to {today} (UTC)")
    return request.last_day or today


def _is_applicable(requirement: Requirement) -> bool:
    # A requirement with a marker may be for another Python; its package may then be absent.
    return requirement.marker is None


def _select_upload_limit(
    request: StackRequest, index: PackageIndex, names: Sequence[str]
) -> tuple[datetime | None, tuple[str, ...]]:
    """Upload time limit of files, and notes about it; days have their own limits."""
    if request.no_limit:
        return None, ("no limit on upload times: the same request may give other locks later",)
    is_limited = request.before is not None or request.decision == "dates"
    # A given limit excludes files without an upload time, with a note, but never all files of a package.
    lacking = sorted({name for name in names if index.has_untimed_wheels(name, wholly=is_limited)})
    untimed = ", ".join(lacking[:5])
    if untimed and not is_limited:
        return None, (UNLIMITED.format(untimed),)
    if untimed:
        raise ConfigError(
            "the index has no upload times, so a limit would exclude these packages",
            where="--decision dates" if request.before is None else "--exclude-newer",
            found=untimed,
            do="omit it, or set UV_DEFAULT_INDEX to an index with upload times (such as PyPI)",
        )
    if request.decision == "dates":
        return None, ()
    late = ("the limit is in the future: locks may change until then",)
    before = request.before or compute_start_of_today()
    return before, late if before > datetime.now(UTC) else ()


def _list_candidate_versions(
    request: StackRequest, index: PackageIndex, free: Requirement, fixed: Iterable[Requirement], before: datetime | None
) -> list[Version]:
    """Candidate versions of a free package, newest first."""
    name = canonicalize_name(free.name)
    specifier: SpecifierSet = free.specifier
    for requirement in fixed:
        if canonicalize_name(requirement.name) == name and _is_applicable(requirement):
            specifier = specifier & requirement.specifier
    versions = stack_request.select_steps(index.list_versions(name, specifier, before), request.step)
    latest = request.latest or (COUNT if request.decision == "latest" else None)
    if not versions:
        there = index.list_versions(name, SpecifierSet(">=0.dev0"))
        raise ConfigError(
            f"no version of {name} matches",
            where=f"--free {free}",
            found=f"{len(there)} versions with a wheel for Python {index.target.python} on {index.target.platform}"
            + (f", {there[-1]} to {there[0]}" if there else ""),
            allowed="a version with a wheel" + (f" from before {format_time(before)}" if before else ""),
        )
    return versions[:latest]


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

    `before` is the upload time limit of files; null for no limit. `no_deps`: Only what is named, whatever it asks for.
    """

    requirements: tuple[str, ...]
    index: PackageIndex
    before: datetime | None = None
    offline: bool = False
    no_deps: bool = False

    def solve_point(self, point: Point) -> SolvedPoint | UnsolvedPoint:
        """Solve a point with uv."""
        before = self._get_upload_limit_of(point)
        output = self._run_solver(point, before)
        untimed = tuple(sorted(set(_UNTIMED.findall(output.stderr))))
        if output.exit_code == 0:
            return SolvedPoint(point, self._build_packages(output.stdout, before), untimed)
        # uv also reports packages as unsatisfiable if it could not reach the index.
        if _UNSATISFIABLE not in output.stderr or any(text in output.stderr for text in _UNREACHABLE):
            raise RunFailedError(
                "uv could not solve a stack",
                where=point.label,
                found=_format_reason(output),
                do="check that the package index can be reached: workbench indicators stacks --dry-run",
            )
        return UnsolvedPoint(point, RejectedPoint(point=point.label, reason=_format_reason(output)), untimed)

    def _get_upload_limit_of(self, point: Point) -> datetime | None:
        """The start of the point's day, or the solver's limit for points without one."""
        if point.before is None:
            return self.before
        return datetime(point.before.year, point.before.month, point.before.day, tzinfo=UTC)

    def _run_solver(self, point: Point, before: datetime | None) -> CommandResult:
        """Run `uv pip compile` for a point, in a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="workbench-stack-") as name:
            folder = Path(name)
            requirements_file = write_requirements(folder, self.requirements, self.index.sources)
            pins = "".join(f"{package}=={version}\n" for package, version in point.pins)
            (folder / "pins.txt").write_text(pins, encoding="utf-8")
            options = ["--generate-hashes", "--no-header", "--no-annotate", "--only-binary", ":all:"]
            options += [*self.index.target.list_uv_options(), "--resolution", point.resolution]
            if self.no_deps:
                options.append("--no-deps")
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
        # The upload time of the newest wheel; null unless all have one.
        times = [wheel.uploaded for wheel in fitting]
        upload_times = [time for time in times if time is not None]
        newest_upload = format_time(max(upload_times)) if upload_times and len(upload_times) == len(times) else None
        return Package(
            name=name,
            version=version,
            hashes=tuple(digests),
            newest_upload=newest_upload,
            yanked=any(wheel.yanked for wheel in fitting) if fitting else None,
            download_bytes=None if best is None else self.index.size_bytes(best),
            index=self.index.sources.pinned[name][0] if name in self.index.sources.pinned else None,
        )


def lock_pins(pins: Mapping[str, str], python: str) -> Stack:
    """A lock of exactly these versions for a Python, even if they do not ask for each other."""
    target = build_target(python)
    requirements = tuple(f"{name}=={version}" for name, version in sorted(pins.items()))
    solved = Solver(requirements, PackageIndex(load_sources(), target), no_deps=True).solve_point(Point())
    if isinstance(solved, UnsolvedPoint):
        raise RunFailedError("no wheels of these versions", found=solved.rejected.reason[:400])
    return build_stack(solved.packages, python=target.python, platform=target.platform)


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


def _parse_lock(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and hashes of each package in the output of `uv pip compile`."""
    for line in text.replace("\\\n", " ").splitlines():
        if match := _PIN.match(line.strip()):
            yield canonicalize_name(match["name"]), match["version"], _HASH.findall(match["rest"])


def _format_reason(output: CommandResult) -> str:
    """Reason for the missing solution, without uv's common prefix."""
    text = uv_tool.explain_failure(output)
    for words in ("No solution found when resolving dependencies", ":", "."):
        text = text.removeprefix(words).strip()
    return (text or f"uv exited with code {output.exit_code} without a message")[:MAX_REASON]


def solve_points(
    solver: Solver, points: Sequence[Point], progress: Progress | None = None
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
    # Merge equal locks, leave out those that are too large, and name the stacks.
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
    parsed = [stack_request.parse_requirement(text, "--requirements") for text in plan.request.requirements]
    names = tuple(canonicalize_name(requirement.name) for requirement in parsed)
    return StackSet(
        requirements=plan.request.requirements,
        free=plan.request.free,
        decision=plan.request.decision,
        seed=plan.seed,
        exclude_newer=None if plan.before is None else format_time(plan.before),
        python=plan.index.target.python,
        platform=plan.index.target.platform,
        uv_version=uv_tool.read_uv_version(),
        stacks=tuple(stack_sets.name_stacks(list(stacks.values()), plan.free or names)),
        rejected=tuple(rejected),
        merged=merged,
        notes=notes,
        options=_list_options(plan.request),
        context=plan.request.context,
    )


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


def _find_size_excess(stack: Stack, max_bytes: int) -> str | None:
    """Why a stack is too large to download; null if it is not."""
    size = sum(package.download_bytes or 0 for package in stack.packages)
    if size <= max_bytes:
        return None
    return f"download of {format_size(size)} is above --max-download {format_size(max_bytes)}"
