"""Plan of a stack request: candidate versions from the index, and the points to solve."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from workbench.core.errors import ConfigError
from workbench.indicators.stacks import stack_request
from workbench.indicators.stacks.package_index import PackageIndex, format_time
from workbench.indicators.stacks.stack_request import COUNT, Point, StackRequest, compute_start_of_today
from workbench.indicators.stacks.target_platform import build_target
from workbench.indicators.stacks.uv_tool import Sources, load_sources

UNLIMITED = "no limit on upload times, because the index has none for {}: locks may change when the index changes"


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
    return _count_points(plan)


def find_last_day(request: StackRequest) -> date:
    """Last day of a sweep over dates; by default today (UTC)."""
    today = datetime.now(UTC).date()
    if request.last_day is not None and request.last_day > today:
        raise ConfigError("day is in the future", where="--to", found=request.last_day, allowed=f"up to {today} (UTC)")
    return request.last_day or today


def _is_applicable(requirement: Requirement) -> bool:
    # A requirement with a marker may be for another Python; its package may then be absent.
    return requirement.marker is None


def _count_points(plan: StackPlan) -> StackPlan:
    """Plan with its number of points, checked against the limit."""
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
