"""Versions of one package between two ends, and the stacks that differ in that version alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from workbench.core.errors import ConfigError
from workbench.indicators.stacks import stack_request
from workbench.indicators.stacks.package_index import PackageIndex, build_target
from workbench.indicators.stacks.stack_sets import StackSet
from workbench.indicators.stacks.stack_solver import Progress, build_stack_plan, solve_stack_plan
from workbench.indicators.stacks.uv_tool import Sources, load_sources

MAX_VERSIONS = 200
_WHERE = "PACKAGE OLD..NEW"


@dataclass(frozen=True)
class VersionRange:
    """A package and the versions to search, oldest first; both ends are among them.

    `yanked` are versions of the range that their publisher withdrew, so that they are left out.
    """

    package: str
    extras: tuple[str, ...]
    versions: tuple[str, ...]
    yanked: tuple[str, ...] = ()


def parse_package(text: str) -> Requirement:
    """Parse the name of a package, with extras or without."""
    requirement = stack_request.parse_requirement(text, "PACKAGE")
    if requirement.specifier or requirement.marker:
        raise ConfigError(
            "the package has a version", where="PACKAGE", found=text[:80], allowed="its name", do="give OLD..NEW"
        )
    return requirement


def parse_range(text: str) -> tuple[Version, Version]:
    """Parse OLD..NEW.

    >>> [str(version) for version in parse_range("2.2.0..2.3.3")]
    ['2.2.0', '2.3.3']
    """
    old, dots, new = (part.strip() for part in text.partition(".."))
    if not dots or not old or not new:
        raise ConfigError("not a range of versions", where="OLD..NEW", found=text[:80], allowed="like 2.2.0..2.3.3")
    ends = parse_version(old, "OLD..NEW"), parse_version(new, "OLD..NEW")
    if not ends[0] < ends[1]:
        raise ConfigError(
            "the range does not go from an older to a newer version", where="OLD..NEW", found=text[:80],
            do="give the older version first",
        )  # fmt: skip
    return ends


def parse_version(text: str, where: str) -> Version:
    """Parse a version."""
    try:
        return Version(text)
    except InvalidVersion:
        raise ConfigError("not a version", where=where, found=text[:80], allowed="like 2.2.0") from None


def find_version_range(
    package: str, ends: tuple[Version, Version], named: Iterable[Version] = (), sources: Sources | None = None
) -> VersionRange:
    """Find the versions between two ends that have a wheel for this Python and platform.

    Yanked versions are left out; so are pre-releases, unless an end is one. Ends and named versions are always kept.
    """
    requirement = parse_package(package)
    index = PackageIndex(sources or load_sources(), build_target())
    wheels = index.list_wheels(requirement.name)
    there = {wheel.version for wheel in wheels}
    in_range = {version for version in there if ends[0] <= version <= ends[1]}
    wanted = {*named}
    if outside := sorted(version for version in wanted if not ends[0] <= version <= ends[1]):
        raise ConfigError(
            "a version outside the range", where="--versions", found=[str(version) for version in outside[:5]],
            allowed=f"{ends[0]} to {ends[1]}",
        )  # fmt: skip
    # Refuse wanted versions that have no wheel; `there` are those that have.
    if missing := sorted({*ends, *wanted} - there):
        versions = sorted(there)
        shown = f"{len(versions)} versions, {versions[0]} to {versions[-1]}" if versions else "none"
        raise ConfigError(
            f"no wheel of this version of {requirement.name}",
            where=_WHERE,
            found=[str(version) for version in missing[:5]],
            allowed=f"a version with a wheel for Python {index.target.python} on {index.target.platform}: {shown}",
        )
    usable = {wheel.version for wheel in wheels if not wheel.yanked}
    yanked = in_range - usable - {*ends, *wanted}
    takes_all = any(end.is_prerelease for end in ends)
    between = wanted or {version for version in in_range & usable if takes_all or not version.is_prerelease}
    # As the index writes them: 1.0 and 1.0.0 are one version.
    spelled = {version: version for version in there}
    chosen = [spelled[version] for version in sorted({*ends, *between})]
    if len(chosen) > MAX_VERSIONS:
        raise ConfigError(
            f"too many versions: {len(chosen)}", where=_WHERE, allowed=f"up to {MAX_VERSIONS}",
            do="take a shorter range, or name some with --versions",
        )  # fmt: skip
    left_out = sorted(version for version in yanked if not wanted and (takes_all or not version.is_prerelease))
    return VersionRange(
        canonicalize_name(requirement.name),
        tuple(sorted(requirement.extras)),
        tuple(map(str, chosen)),
        tuple(map(str, left_out)),
    )


def parse_fixed_requirements(texts: Sequence[str], package: str) -> tuple[str, ...]:
    """Check the requirements of the other packages."""
    for text in texts:
        requirement = stack_request.parse_requirement(text, "--with")
        if canonicalize_name(requirement.name) == canonicalize_name(package):
            raise ConfigError(
                "--with is for other packages", where="--with", found=text[:80], do="name versions with --versions"
            )
    return tuple(texts)


def solve_version_range(
    version_range: VersionRange,
    requirements: Sequence[str] = (),
    *,
    max_download_bytes: int,
    sources: Sources | None = None,
    progress: Progress | None = None,
) -> StackSet:
    """Solve a stack for each version, all on the same day's index.

    Returns: Each stack is named by the package's version, as `name_version` does; versions without a solution are
    `rejected`, with the reason.
    """
    extras = f"[{','.join(version_range.extras)}]" if version_range.extras else ""
    # The ends are named, so that uv takes pre-releases where they are.
    free = f"{version_range.package}{extras}>={version_range.versions[0]},<={version_range.versions[-1]}"
    request = stack_request.build_stack_request(
        free=(free,),
        requirements=tuple(requirements),
        step="patch",
        most=10_000,
        max_download_bytes=max_download_bytes,
    )
    plan = build_stack_plan(request, sources)
    choices = {version_range.package: [Version(text) for text in version_range.versions]}
    solved = solve_stack_plan(replace(plan, choices=choices, total=len(version_range.versions)), progress)
    # Names of other packages would make the names of versions depend on what else changed.
    texts = {Version(text): text for text in version_range.versions}
    named = [
        stack.model_copy(
            update={"name": name_version(version_range.package, texts[Version(stack.versions[version_range.package])])}
        )
        for stack in solved.stacks
    ]
    return solved.model_copy(update={"stacks": tuple(named)})


def name_version(package: str, version: str) -> str:
    """Name of a stack in a range, as the solver's points are labelled.

    >>> name_version("pandas", "2.3.0")
    'pandas 2.3.0'
    """
    return f"{package} {version}"
