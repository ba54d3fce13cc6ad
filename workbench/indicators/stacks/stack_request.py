"""Validated request for stacks: requirements, free packages, and the points of their version space."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Literal, Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field, model_validator

from workbench.core.data_files import parse_json, read_text_file
from workbench.core.errors import ConfigError, InputError
from workbench.core.redaction import has_user_info, is_secret_name, strip_user_info
from workbench.core.schema import StrictModel, validate_model
from workbench.indicators.stacks.stack_sets import Decision, Line

Step = Literal["minor", "patch", "major"]
Resolution = Literal["highest", "lowest", "lowest-direct"]
Every = Literal["month", "quarter", "year"]
_MONTHS: dict[Every, int] = {"month": 1, "quarter": 3, "year": 12}
MAX_LINES = 1000
MAX_FILE_BYTES = 1 << 20
MAX_POINTS = 200
COUNT = 3
"""Default number of random stacks, and of newest steps."""


@dataclass(frozen=True)
class Point:
    """Input of one solver run: pinned versions, an upload time limit, a resolution direction.

    `before` is midnight UTC at the start of that day; if null, the limit of the set applies.
    """

    pins: tuple[tuple[str, str], ...] = ()
    before: date | None = None
    resolution: Resolution = "highest"

    @property
    def label(self) -> str:
        """Label in tables, such as numpy 2.2.6, pandas 2.2.3."""
        parts = [f"{name} {version}" for name, version in self.pins]
        if self.before is not None:
            parts.append(f"before {self.before.isoformat()}")
        if self.resolution != "highest" or not parts:
            parts.append(self.resolution)
        return ", ".join(parts)


def parse_requirement(text: str, where: str) -> Requirement:
    """Parse one requirement by name and version, as in a requirements file."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        found_text = f"{strip_user_info(text)[:80]!r}: {strip_user_info(reason)[:200]}"
        raise ConfigError(
            "not a requirement", where=where, found=found_text, allowed="like numpy or numpy>=1.24,<3"
        ) from None
    if requirement.url:
        raise ConfigError(
            "requirements by URL are not supported",
            where=where,
            found=requirement.name,
            allowed="names and versions, as on an index",
        )
    return requirement


def select_steps(versions: Iterable[Version], step: Step) -> list[Version]:
    """Select the newest version of each minor (or major) line, newest first; `patch` keeps all.

    >>> [str(version) for version in select_steps(map(Version, ["2.1.0", "2.2.0", "2.2.6", "1.26.4"]), "minor")]
    ['2.2.6', '2.1.0', '1.26.4']
    """
    depth = {"major": 1, "minor": 2, "patch": 0}[step]
    newest: dict[object, Version] = {}
    for version in sorted(versions, reverse=True):
        padded = (*version.release, 0, 0)
        newest.setdefault((version.epoch, *padded[:depth]) if depth else version, version)
    return list(newest.values())


def count_combinations(choices: Mapping[str, Sequence[Version]]) -> int:
    """Number of combinations."""
    return math.prod(len(versions) for versions in choices.values())


def iterate_grid(choices: Mapping[str, Sequence[Version]]) -> Iterator[Point]:
    """Iterate over all combinations, newest first; the last package varies fastest.

    >>> [point.label for point in iterate_grid({"a": [Version("2"), Version("1")], "b": [Version("3")]})]
    ['a 2, b 3', 'a 1, b 3']
    """
    for chosen in itertools.product(*choices.values()):
        yield _build_pinned_point(choices, chosen)


def draw_combinations(choices: Mapping[str, Sequence[Version]], seed: int) -> Iterator[Point]:
    """Iterate over all combinations in a random order given by the seed; a longer draw extends a shorter one.

    >>> numbers = {"a": [Version(str(number)) for number in range(9)]}
    >>> [next(draw_combinations(numbers, seed=7)).label for _ in range(2)]
    ['a 5', 'a 5']
    """
    total = count_combinations(choices)
    # Not used for secrets; the same seed must give the same points.
    source = random.Random(seed)  # noqa: S311
    seen: set[int] = set()
    while len(seen) < total:
        number = source.randrange(total)
        if number not in seen:
            seen.add(number)
            yield _build_pinned_point(choices, _decode_combination(choices, number))


def _decode_combination(choices: Mapping[str, Sequence[Version]], number: int) -> list[Version]:
    """The versions of a combination, by its number in the order of `iterate_grid`."""
    chosen: list[Version] = []
    for versions in reversed(choices.values()):  # type: ignore[call-overload]
        number, place = divmod(number, len(versions))
        chosen.insert(0, versions[place])
    return chosen


def _build_pinned_point(choices: Mapping[str, Sequence[Version]], chosen: Sequence[Version]) -> Point:
    return Point(tuple((name, str(version)) for name, version in zip(choices, chosen, strict=True)))


def list_date_points(first: date, last: date, every: Every) -> list[Point]:
    """List a point per step from the first to the last day, oldest first.

    In shorter months, the last day of the month is used.

    >>> [str(point.before) for point in list_date_points(date(2023, 8, 31), date(2024, 6, 1), "quarter")]
    ['2023-08-31', '2023-11-30', '2024-02-29', '2024-05-31']
    """
    if last < first:
        raise ConfigError("the last day is before the first", where="--to", found=last, allowed=f"{first} or later")
    points: list[Point] = []
    for count in itertools.count():
        day = _add_months(first, count * _MONTHS[every])
        if day is None or day > last:
            return points
        points.append(Point(before=day))
    raise AssertionError("an endless count ended")


def _add_months(day: date, months: int) -> date | None:
    import calendar

    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if year > date.max.year:
        return None
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def list_bound_points() -> list[Point]:
    """List the bounds of the requirements: lowest, lowest direct, highest."""
    return [Point(resolution="lowest"), Point(resolution="lowest-direct"), Point()]


def index_by_name(requirements: Iterable[Requirement]) -> dict[str, Requirement]:
    """Requirements by canonical package name."""
    by_name: dict[str, Requirement] = {}
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        if name in by_name:
            raise ConfigError("a free package occurs twice", where="--free", found=name, do="combine both limits")
        by_name[name] = requirement
    return by_name


class StackRequest(StrictModel):
    """Request for stacks, validated before the index is accessed.

    Without a `count`, the decision `random` makes 3 stacks. If `before` is null, the limit is the start of today;
    `no_limit` means no time limit.
    """

    requirements: tuple[Line, ...] = Field((), description="Requirements of every stack.")
    free: tuple[Line, ...] = Field((), description="A package whose version varies, like 'numpy>=1.24'. Repeatable.")
    decision: Decision = Field("grid", description="grid, random, latest, dates or bounds.")
    step: Step = Field("minor", description="minor: the newest patch of each minor version; major; patch: all of them.")
    count: int | None = Field(None, ge=1, le=10_000, description="Number of different stacks to make.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="Seed of the random numbers.")
    latest: int | None = Field(None, ge=1, le=1000, description="Newest steps of each free package.")
    first_day: date | None = Field(None, description="First day of --decision dates.")
    last_day: date | None = Field(None, description="Last day of --decision dates.")
    every: Every = Field("quarter", description="month, quarter or year (dates).")
    most: int = Field(MAX_POINTS, ge=1, le=10_000, description="Limit of points to solve.")
    before: datetime | None = Field(None, description="Only files uploaded before this time (UTC); never: no limit.")
    no_limit: bool = False
    python: str | None = Field(None, description="Solve for this Python.")
    platform: str | None = Field(None, description="Solve for this platform, such as x86_64-manylinux_2_28.")
    max_download_bytes: int = Field(
        2_000_000_000, ge=0, description="Reject stacks with a larger download, such as 500MB."
    )
    context: dict[str, Any] | None = Field(None, description="An Amun specification without its python part.")

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if not self.free and not self.requirements:
            raise ValueError("nothing to solve: give --free PACKAGE, or --requirements FILE")
        if max(len(self.free), len(self.requirements)) > MAX_LINES:
            raise ValueError(f"more than {MAX_LINES} requirements")
        if self.decision == "dates" and self.first_day is None:
            raise ValueError("a sweep over dates needs --from YYYY-MM-DD")
        if self.decision != "dates" and (self.first_day or self.last_day):
            raise ValueError("--from and --to are for --decision dates")
        if self.no_limit and self.before is not None:
            raise ValueError("both a time limit and none: choose one")
        if self.decision == "dates" and (self.before or self.no_limit):
            raise ValueError("with --decision dates each day is a limit: omit --exclude-newer")
        unused = sorted({"step", "latest", "seed"} & self.model_fields_set)
        if self.decision in ("dates", "bounds") and unused:
            raise ValueError(f"--decision {self.decision} does not use --{', --'.join(unused)}: omit it")
        return self


def build_stack_request(**settings: Any) -> StackRequest:
    """Build a request; one error reports all problems."""
    return validate_model(StackRequest, settings, noun="valid request for stacks", error_type=ConfigError)


def read_requirements(path: str | Path) -> tuple[str, ...]:
    """Read the requirements of a file, one per line, without comments."""
    text = read_text_file(path, noun="requirements file", max_bytes=MAX_FILE_BYTES)
    lines = []
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), start=1):
        wanted = line.split(" #")[0].strip()
        if not wanted or wanted.startswith("#"):
            continue
        if wanted.startswith("-"):
            raise InputError(
                "options in a requirements file are not supported",
                where=f"{path}, line {number}",
                found=wanted.split()[0][:40],
                allowed="names and versions, such as numpy>=1.24",
                do="set the index with UV_DEFAULT_INDEX, and remove options and hashes",
            )
        if " --" in wanted:
            raise InputError(
                "options of a requirement are not supported",
                where=f"{path}, line {number}",
                found=wanted.partition(" --")[2].split("=")[0][:40],
                allowed="names and versions, such as numpy>=1.24",
                do="remove it: a lock has the hashes of the index, and another file than these is never installed",
            )
        lines.append(wanted)
    return tuple(lines)


def parse_moment(text: str, where: str) -> datetime:
    """Parse a day (its start, UTC) or a time with zone.

    >>> parse_moment("2024-06-30", "--exclude-newer").isoformat()
    '2024-06-30T00:00:00+00:00'
    """
    try:
        moment = datetime.fromisoformat(text)
        # A zone can move the first and last days out of the supported years.
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        allowed = "2024-06-30 (its start, UTC) or 2024-06-30T12:00:00Z"
        raise ConfigError("not a day or time", where=where, found=text[:40], allowed=allowed) from error


def parse_day(text: str, where: str) -> date:
    """Parse a day such as 2026-01-31."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError("not a day", where=where, found=text[:40], allowed="like 2024-06-30") from error


def compute_start_of_today() -> datetime:
    """Last midnight in UTC: the default upload limit, equal for all requests of a day."""
    return datetime.combine(datetime.now(UTC).date(), time(), UTC)


def read_context(text: str) -> dict[str, Any]:
    """Read an Amun specification without its `python` part, given as JSON or a file name."""
    where = "--context"
    if not text.lstrip().startswith("{"):
        text = read_text_file(text, noun="context", max_bytes=MAX_FILE_BYTES, error_type=ConfigError)
    context = parse_json(text, noun="context", where=where, error_type=ConfigError)
    if not isinstance(context, dict):
        raise ConfigError("the context is not a JSON object", where=where, found=type(context).__name__)
    if "python" in context:
        raise ConfigError("the stacks provide the python part", where=f"{where}, key python", do="remove this key")
    refuse_secrets(context, where, "the context")
    return context


def refuse_secrets(document: Mapping[str, Any], where: str, noun: str) -> None:
    """Refuse variables with names of secrets, and URLs with a user or password; errors do not repeat them."""
    variables = document.get("environment")
    names = (
        [str(variable.get("name")) for variable in variables if isinstance(variable, Mapping)]
        if isinstance(variables, list)
        else []
    )
    named = [name for name in names if is_secret_name(name)]
    if named or has_user_info(document):
        raise ConfigError(
            f"a secret cannot be part of {noun}",
            where=where,
            found=[name[:80] for name in named] or "a URL with user or password",
            do="pass the name of an environment variable instead",
        )


def parse_size(text: str, where: str = "--max-download") -> int:
    """Parse a size such as 2GB, 500MB or 1GiB into bytes.

    >>> parse_size("2GB"), parse_size("1.5 GiB"), parse_size("700")
    (2000000000, 1610612736, 700)
    """
    import re

    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in units:
        raise ConfigError("not a size", where=where, found=text[:40], allowed="like 2GB, 500MB or 1GiB")
    return int(float(match[1]) * units[match[2].upper()])


def format_size(count_bytes: int) -> str:
    """Format bytes in the units of limits.

    >>> format_size(2_000_000_000), format_size(3_344_000_000), format_size(10)
    ('2 GB', '3.34 GB', '10 bytes')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count_bytes >= factor:
            return f"{count_bytes / factor:.3g} {unit}"
    return f"{count_bytes} bytes"
