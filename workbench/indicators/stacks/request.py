"""What a user asks for: requirements, free packages, and how the space between them is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import ConfigError, InputError
from workbench.indicators.stacks.model import Decision, Line, told
from workbench.indicators.stacks.space import Every, Step
from workbench.redaction import holds_user_info, names_a_secret

MOST_LINES = 1000
MOST_FILE_BYTES = 1 << 20
MOST_POINTS = 200
COUNT = 3
"""How many stacks are drawn at random, and how many newest steps are taken, unless told otherwise."""


class Request(BaseModel):
    """A question about stacks; all of it is checked before anything is asked or solved.

    `requirements` hold for every stack; `free` packages vary. `count` limits the stacks (random: 3 without one),
    `latest` the newest steps of each free package, `most` the points that may be solved at all. `before` is the
    time before which files must have been uploaded: null takes the begin of today, `no_limit` none at all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    requirements: tuple[Line, ...] = ()
    free: tuple[Line, ...] = ()
    decision: Decision = "grid"
    step: Step = "minor"
    count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    latest: Annotated[int, Field(ge=1, le=1000)] | None = None
    first_day: date | None = None
    last_day: date | None = None
    every: Every = "quarter"
    most: Annotated[int, Field(ge=1, le=10_000)] = MOST_POINTS
    before: datetime | None = None
    no_limit: bool = False
    python: str | None = None
    platform: str | None = None
    max_download_bytes: Annotated[int, Field(ge=0)] = 2_000_000_000
    context: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.free and not self.requirements:
            raise ValueError("nothing to solve: give --free PACKAGE, or --requirements FILE")
        if max(len(self.free), len(self.requirements)) > MOST_LINES:
            raise ValueError(f"more than {MOST_LINES} requirements")
        if self.decision == "dates" and self.first_day is None:
            raise ValueError("a sweep over dates needs --from YYYY-MM-DD")
        if self.decision != "dates" and (self.first_day or self.last_day):
            raise ValueError("--from and --to are for --decision dates")
        if self.no_limit and self.before is not None:
            raise ValueError("an upload time as a limit, and none at all: choose one")
        if self.decision == "dates" and (self.before or self.no_limit):
            raise ValueError("with --decision dates each day is a limit: leave --exclude-newer away")
        unused = sorted({"step", "latest", "seed"} & self.model_fields_set)
        if self.decision in ("dates", "bounds") and unused:
            raise ValueError(f"nothing is chosen by {self.decision}: leave --{', --'.join(unused)} away")
        return self


def checked(**settings: Any) -> Request:
    """A request whose problems are told in one go.

    Raises
    ------
    ConfigError
        Something in it cannot be.
    """
    try:
        return Request(**settings)
    except ValidationError as error:
        raise ConfigError("stacks cannot be made so", where="workbench indicators stacks", found=told(error)) from error


def read_requirements(path: str | Path) -> tuple[str, ...]:
    """The requirements of a file, a line each: names and versions, comments left out.

    Raises
    ------
    InputError
        The file cannot be read, is too large, or has a line that is no requirement (an option, a URL, a path).
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_FILE_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise InputError("cannot read the requirements", where=path, found=error.strerror) from error
    except UnicodeDecodeError as error:
        raise InputError("the requirements are not UTF-8", where=path, found=f"byte {error.start}") from error
    if len(raw) > MOST_FILE_BYTES:
        raise InputError("too large for requirements", where=path, allowed=f"up to {MOST_FILE_BYTES >> 20} MiB")
    lines = []
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), start=1):
        wanted = line.split(" #")[0].strip()
        if not wanted or wanted.startswith("#"):
            continue
        if wanted.startswith("-"):
            raise InputError(
                "an option inside the requirements",
                where=f"{path}, line {number}",
                found=wanted.split()[0][:40],
                allowed="names and versions, such as numpy>=1.24",
                do="set the index by UV_DEFAULT_INDEX, and leave options and hashes out",
            )
        lines.append(wanted.split(" --hash")[0].strip())
    return tuple(lines)


def read_moment(text: str, where: str) -> datetime:
    """A day (its begin, UTC) or a time with zone.

    Raises
    ------
    ConfigError
        It is neither.

    Examples
    --------
    >>> read_moment("2024-06-30", "--exclude-newer").isoformat()
    '2024-06-30T00:00:00+00:00'
    """
    try:
        found = datetime.fromisoformat(text)
        # A zone can carry the first and last days out of the years that there are.
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        allowed = "2024-06-30 (its begin, UTC) or 2024-06-30T12:00:00Z"
        raise ConfigError("not a day or time", where=where, found=text[:40], allowed=allowed) from error


def read_day(text: str, where: str) -> date:
    """A day.

    Raises
    ------
    ConfigError
        It is none.
    """
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError("not a day", where=where, found=text[:40], allowed="like 2024-06-30") from error


def begin_of_today() -> datetime:
    """Midnight UTC before now: the limit that a question of today gets, the same all day long."""
    return datetime.combine(datetime.now(UTC).date(), time(), UTC)


def read_context(text: str) -> dict[str, Any]:
    """An Amun specification without its `python` part, as JSON or the name of a file with it.

    Raises
    ------
    ConfigError
        It is no JSON object, has a `python` part, or holds a secret.
    """
    import json

    where = "--context"
    try:
        if not text.lstrip().startswith("{"):
            with Path(text).open("rb") as file:
                text = file.read(MOST_FILE_BYTES + 1).decode("utf-8")
        if len(text) > MOST_FILE_BYTES:
            raise ConfigError("too large", where=where, allowed=f"up to {MOST_FILE_BYTES >> 20} MiB")
        found = json.loads(text)
    except OSError as error:
        raise ConfigError("cannot read the context", where=where, found=error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("not JSON", where=where, found=str(error)[:100]) from error
    if not isinstance(found, dict):
        raise ConfigError("the context is not a JSON object", where=where, found=type(found).__name__)
    if "python" in found:
        raise ConfigError("the stacks are the python part", where=f"{where}, key python", do="leave this key out")
    refuse_secrets(found, where, "the context")
    return found


def refuse_secrets(found: Mapping[str, Any], where: str, what: str) -> None:
    """Refuse variables that are named like secrets, and texts with a user or password in a URL; none is repeated.

    Raises
    ------
    ConfigError
        There is one; `what` it is in stands in the error.
    """
    variables = found.get("environment")
    names = (
        [str(one.get("name")) for one in variables if isinstance(one, Mapping)] if isinstance(variables, list) else []
    )
    named = [name for name in names if names_a_secret(name)]
    if named or holds_user_info(found):
        raise ConfigError(
            f"a secret cannot be part of {what}",
            where=where,
            found=[name[:80] for name in named] or "a URL with user or password",
            do="give the script the name of an environment variable instead",
        )


def size_bytes(text: str, where: str = "--max-download") -> int:
    """A size such as 2GB, 500MB or 1GiB in bytes.

    Raises
    ------
    ConfigError
        It is none.

    Examples
    --------
    >>> size_bytes("2GB"), size_bytes("1.5 GiB"), size_bytes("700")
    (2000000000, 1610612736, 700)
    """
    import re

    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in units:
        raise ConfigError("not a size", where=where, found=text[:40], allowed="like 2GB, 500MB or 1GiB")
    return int(float(found[1]) * units[found[2].upper()])


def decimal_size(count_bytes: int) -> str:
    """Bytes in the units in which limits are given.

    Examples
    --------
    >>> decimal_size(2_000_000_000), decimal_size(3_344_000_000), decimal_size(10)
    ('2 GB', '3.34 GB', '10 bytes')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count_bytes >= factor:
            return f"{count_bytes / factor:.3g} {unit}"
    return f"{count_bytes} bytes"
