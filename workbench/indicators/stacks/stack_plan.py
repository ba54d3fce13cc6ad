"""Plan what a stack request solves: candidate versions from the index, and the points between them."""

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

UNLIMITED = "no limit on upload times, because the index tells none of {}: locks may change with it"


@dataclass(frozen=True)
class StackPlan:
    """What would be solved: a checked request with the index's answers to it.

    `choices` has the candidate versions of each free package (grid, random, latest), `total` how many points the
    space has, `wanted` after how many different stacks it is enough (null: when all points are solved), `before`
    the time before which files must have been uploaded.
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
        """The points in the order in which they are solved."""
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
        """Those that are solved first; more follow only where some give no stack of their own."""
        return list(itertools.islice(self.iterate_points(), min(self.wanted or self.request.most, self.request.most)))


def build_stack_plan(request: StackRequest, sources: Sources | None = None) -> StackPlan:
    """What would a request solve? Asks the index which versions there are; solves and installs nothing.

    Parameters
    ----------
    request
        What is asked for.
    sources
        The index; the configured one without it.

    Raises
    ------
    ConfigError
        A requirement cannot be read, no version fits, there are too many points, or a limit on upload times is
        asked for that the index tells none of.
    InputError
        The index has no such package.
    RunFailedError
        The index cannot be reached.
    """
    index = PackageIndex(sources or load_sources(), build_target(request.python, request.platform))
    fixed = [stack_request.parse_requirement(text, "--requirements") for text in request.requirements]
    free = stack_request.index_by_name(stack_request.parse_requirement(text, "--free") for text in request.free)
    names = [canonicalize_name(one.name) for one in [*fixed, *free.values()] if _is_applicable(one)]
    index.prefetch_pages(names)
    before, notes = _select_upload_limit(request, index, names)
    choices: dict[str, list[Version]] = {}
    if request.decision in ("grid", "random", "latest"):
        choices = {name: _list_candidate_versions(request, index, one, fixed, before) for name, one in free.items()}
    is_drawn = request.decision == "random"
    chosen = secrets.randbelow(2**31) if request.seed is None else request.seed
    made = StackPlan(
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
    return _count_points(made)


def find_last_day(request: StackRequest) -> date:
    """The last day of a sweep over dates: today (UTC) without one.

    Raises
    ------
    ConfigError
        It is in the future.
    """
    today = datetime.now(UTC).date()
    if request.last_day is not None and request.last_day > today:
        raise ConfigError("a day in the future", where="--to", found=request.last_day, allowed=f"up to {today} (UTC)")
    return request.last_day or today


def _is_applicable(one: Requirement) -> bool:
    # A requirement with a marker may be for another Python: then its package need not be there.
    return one.marker is None


def _count_points(made: StackPlan) -> StackPlan:
    """The plan with its number of points, refused where that is too large."""
    points = made.iterate_points()
    total = stack_request.count_combinations(made.choices) if made.choices else len(list(points))
    most = made.request.most
    if min(total, made.wanted or total) > most:
        each = ", ".join(f"{name}: {len(versions)} versions" for name, versions in made.choices.items())
        raise ConfigError(
            f"{total} points are too many",
            where=each or "--every",
            allowed=f"up to {most} (--most)",
            do="draw some with --decision random --count N, take the newest with --latest N, or raise --most",
        )
    return replace(made, total=total)


def _select_upload_limit(
    request: StackRequest, index: PackageIndex, names: Sequence[str]
) -> tuple[datetime | None, tuple[str, ...]]:
    """The time before which files must be, and what to say about it; days are limits of their own."""
    if request.no_limit:
        return None, ("no limit on upload times: asked again later, the same question may give other locks",)
    asked = request.before is not None or request.decision == "dates"
    # A given limit excludes files without a time, with a note, but never all files of a package.
    lacking = sorted({name for name in names if index.has_untimed_wheels(name, wholly=asked)})
    untimed = ", ".join(lacking[:5])
    if untimed and not asked:
        return None, (UNLIMITED.format(untimed),)
    if untimed:
        raise ConfigError(
            "the index does not tell when files were uploaded, so a limit would drop them",
            where="--decision dates" if request.before is None else "--exclude-newer",
            found=untimed,
            do="leave it away, or set UV_DEFAULT_INDEX to an index that tells upload times (such as PyPI)",
        )
    if request.decision == "dates":
        return None, ()
    late = ("the limit is in the future: until then, locks may change",)
    before = request.before or compute_start_of_today()
    return before, late if before > datetime.now(UTC) else ()


def _list_candidate_versions(
    request: StackRequest, index: PackageIndex, free: Requirement, fixed: Iterable[Requirement], before: datetime | None
) -> list[Version]:
    """The versions of a free package that are tried, newest first."""
    name = canonicalize_name(free.name)
    specifier: SpecifierSet = free.specifier
    for one in fixed:
        if canonicalize_name(one.name) == name and _is_applicable(one):
            specifier = specifier & one.specifier
    found = stack_request.select_steps(index.list_versions(name, specifier, before), request.step)
    latest = request.latest or (COUNT if request.decision == "latest" else None)
    if not found:
        there = index.list_versions(name, SpecifierSet(">=0.dev0"))
        raise ConfigError(
            f"no version of {name} fits",
            where=f"--free {free}",
            found=f"{len(there)} versions with a wheel for Python {index.target.python} on {index.target.platform}"
            + (f", {there[-1]} to {there[0]}" if there else ""),
            allowed="a version with a wheel" + (f" from before {format_time(before)}" if before else ""),
        )
    return found[:latest]
