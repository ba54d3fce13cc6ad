"""The space of stacks: free packages with their candidate versions, and the points at which it is looked at.

Nothing here asks an index or solves anything: versions in, points out, the same for the same seed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from workbench.errors import ConfigError
from workbench.redaction import without_user_info

Step = Literal["minor", "patch", "major"]
Resolution = Literal["highest", "lowest", "lowest-direct"]
Every = Literal["month", "quarter", "year"]
_MONTHS: dict[Every, int] = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True)
class Point:
    """One question to the solver: versions that are pinned, a time before which files must be, a direction.

    `before` is midnight UTC at which that day begins; null leaves the set's own limit in force.
    """

    pins: tuple[tuple[str, str], ...] = ()
    before: date | None = None
    resolution: Resolution = "highest"

    @property
    def label(self) -> str:
        """The point in a table: numpy 2.2.6, pandas 2.2.3."""
        parts = [f"{name} {version}" for name, version in self.pins]
        if self.before is not None:
            parts.append(f"before {self.before.isoformat()}")
        if self.resolution != "highest" or not parts:
            parts.append(self.resolution)
        return ", ".join(parts)


def requirement(text: str, where: str) -> Requirement:
    """One requirement by name and version, as in a requirements file.

    Raises
    ------
    ConfigError
        It is none, or it names a URL, a file or a folder: those have no versions to choose from and no index's hash.
    """
    try:
        found = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        found_text = f"{without_user_info(text)[:80]!r}: {without_user_info(reason)[:200]}"
        raise ConfigError(
            "not a requirement", where=where, found=found_text, allowed="like numpy or numpy>=1.24,<3"
        ) from None
    if found.url:
        raise ConfigError(
            "a requirement by URL cannot be used",
            where=where,
            found=found.name,
            allowed="names and versions, as on an index",
        )
    return found


def steps(versions: Iterable[Version], step: Step) -> list[Version]:
    """The newest version of each minor (or major) line, newest first; `patch` keeps all.

    Examples
    --------
    >>> [str(version) for version in steps(map(Version, ["2.1.0", "2.2.0", "2.2.6", "1.26.4"]), "minor")]
    ['2.2.6', '2.1.0', '1.26.4']
    """
    depth = {"major": 1, "minor": 2, "patch": 0}[step]
    newest: dict[object, Version] = {}
    for version in sorted(versions, reverse=True):
        padded = (*version.release, 0, 0)
        newest.setdefault((version.epoch, *padded[:depth]) if depth else version, version)
    return list(newest.values())


def size(choices: Mapping[str, Sequence[Version]]) -> int:
    """How many combinations there are."""
    return math.prod(len(versions) for versions in choices.values())


def grid(choices: Mapping[str, Sequence[Version]]) -> Iterator[Point]:
    """Every combination, the newest first; the last package varies fastest.

    Examples
    --------
    >>> [point.label for point in grid({"a": [Version("2"), Version("1")], "b": [Version("3")]})]
    ['a 2, b 3', 'a 1, b 3']
    """
    for chosen in itertools.product(*choices.values()):
        yield _pinned(choices, chosen)


def drawn(choices: Mapping[str, Sequence[Version]], seed: int) -> Iterator[Point]:
    """Every combination in a random order that the seed alone decides; drawing more repeats what came before.

    Examples
    --------
    >>> numbers = {"a": [Version(str(number)) for number in range(9)]}
    >>> [next(drawn(numbers, seed=7)).label for _ in range(2)]
    ['a 5', 'a 5']
    """
    total = size(choices)
    # Not for secrets: the same seed has to give the same points.
    source = random.Random(seed)  # noqa: S311
    seen: set[int] = set()
    while len(seen) < total:
        number = source.randrange(total)
        if number not in seen:
            seen.add(number)
            yield _pinned(choices, _combination(choices, number))


def _combination(choices: Mapping[str, Sequence[Version]], number: int) -> list[Version]:
    chosen: list[Version] = []
    for versions in reversed(choices.values()):  # type: ignore[call-overload]
        number, place = divmod(number, len(versions))
        chosen.insert(0, versions[place])
    return chosen


def _pinned(choices: Mapping[str, Sequence[Version]], chosen: Sequence[Version]) -> Point:
    return Point(tuple((name, str(version)) for name, version in zip(choices, chosen, strict=True)))


def dates(first: date, last: date, every: Every) -> list[Point]:
    """A point at each step from the first day up to the last, the oldest first.

    A month without such a day gives its last one.

    Raises
    ------
    ConfigError
        The last day is before the first.

    Examples
    --------
    >>> [str(point.before) for point in dates(date(2023, 8, 31), date(2024, 6, 1), "quarter")]
    ['2023-08-31', '2023-11-30', '2024-02-29', '2024-05-31']
    """
    if last < first:
        raise ConfigError("the last day is before the first", where="--to", found=last, allowed=f"{first} or later")
    found: list[Point] = []
    for count in itertools.count():
        day = _later(first, count * _MONTHS[every])
        if day is None or day > last:
            return found
        found.append(Point(before=day))
    raise AssertionError("an endless count ended")


def _later(day: date, months: int) -> date | None:
    import calendar

    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if year > date.max.year:
        return None
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def bounds() -> list[Point]:
    """The ends of what the requirements allow: lowest, lowest of the direct ones only, highest."""
    return [Point(resolution="lowest"), Point(resolution="lowest-direct"), Point()]


def by_name(requirements: Iterable[Requirement]) -> dict[str, Requirement]:
    """Requirements by their packages' canonical names.

    Raises
    ------
    ConfigError
        A package is there twice.
    """
    found: dict[str, Requirement] = {}
    for one in requirements:
        name = canonicalize_name(one.name)
        if name in found:
            raise ConfigError("a package is free twice", where="--free", found=name, do="put both limits into one")
        found[name] = one
    return found
