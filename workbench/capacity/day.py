"""A day of work: users by hour, and classes of jobs with how many arrive in each hour."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.errors import ConfigError

HOURS = 24
MOST_LOAD = 1e9
Jobs = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
FORM = "NAME applications='etl *' gpus=1 pods=2 per_hour=60 hours=8-18 stack_share=0"
_KNOWN = ("applications", "gpus", "pods", "per_hour", "hours", "stack_share")


class JobClass(BaseModel):
    """Jobs that are alike: which applications they are, what one holds, how many arrive in each hour."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=60)
    applications: str = Field(default="*", max_length=300)
    gpus: int = Field(default=1, ge=1, le=1024)
    pods: int = Field(default=1, ge=1, le=10_000)
    per_hour: list[Jobs] = Field(min_length=HOURS, max_length=HOURS)
    stack_share: float = Field(default=0.0, ge=0, le=1)


def load_by_hour(texts: Sequence[str]) -> list[float]:
    """Load of a service by hour, from midnight: `400 hours=9-17`, or 24 numbers with commas; texts add up.

    Raises
    ------
    ConfigError
        One cannot be read, or a load is below 0 or beyond 10^9.

    Examples
    --------
    >>> load_by_hour(["20", "380 hours=9-11"])[8:12]
    [20.0, 400.0, 400.0, 20.0]
    """
    total = [0.0] * HOURS
    for text in texts:
        counts, _, rest = text.strip().partition(" ")
        key, sign, hours = rest.strip().partition("=")
        if rest.strip() and (key, sign) != ("hours", "="):
            raise ConfigError("not a load by hour", where="users", found=text[:80], allowed="400 hours=9-17")
        values = _by_hour(counts, hours.strip() or "0-24", "users")
        total = [before + more for before, more in zip(total, values, strict=True)]
    if not all(0 <= value <= MOST_LOAD for value in total):
        raise ConfigError("not a load", where="users", found=max(total, key=abs), allowed="0 to 1,000,000,000")
    return total


def job_class(text: str) -> JobClass:
    """A job class from its text: a name, then NAME=VALUE, values with blanks in quotes.

    `per_hour` is one number, or 24 with commas between them; with one number, `hours` says when it holds: 8-18 from
    8:00 to 18:00, 22-4 over midnight, several with commas; all day without it.

    Raises
    ------
    ConfigError
        It cannot be read, or a value cannot be.

    Examples
    --------
    >>> one = job_class("etl applications='etl *' gpus=2 per_hour=60 hours=22-2,12")
    >>> one.applications, one.gpus, [hour for hour, jobs in enumerate(one.per_hour) if jobs]
    ('etl *', 2, [0, 1, 12, 22, 23])
    """
    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise ConfigError("not a job class", where="jobs", found=text[:80], allowed=FORM) from None
    given: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in _KNOWN or key in given:
            what = "not a setting of a job class, or set twice"
            raise ConfigError(what, where=f"jobs, {name[:60]}", found=word[:60], allowed=_KNOWN)
        given[key] = value
    if "=" in name:
        raise ConfigError("a job class has no name", where="jobs", found=text[:80], allowed=FORM)
    if "per_hour" not in given:
        raise ConfigError("how many jobs arrive in an hour?", where=f"jobs, {name[:60]}", allowed=FORM)
    place = f"jobs, {name[:60]}"
    counts, hours = given.pop("per_hour"), given.pop("hours", "0-24")
    try:
        return JobClass.model_validate({"name": name, "per_hour": _by_hour(counts, hours, place), **given})
    except ValidationError as error:
        told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
        raise ConfigError("a job class cannot be like that", where=f"jobs, {name[:60]}", found=told) from None


def _by_hour(counts: str, hours: str, place: str) -> list[float]:
    """One number in some of the hours, or a number for each."""
    try:
        values = [float(part) for part in counts.split(",")]
    except ValueError:
        values = []
    if not values or not all(map(math.isfinite, values)):
        raise ConfigError("not a number", where=place, found=counts[:60], allowed=f"one number, or {HOURS} with commas")
    if len(values) == HOURS:
        return values
    if len(values) != 1:
        raise ConfigError(
            "numbers of how many hours?", where=place, found=len(values), allowed=f"one number, or {HOURS}"
        )
    chosen = {hour for part in hours.split(",") for hour in _span(part, f"{place}, hours")}
    return [values[0] if hour in chosen else 0.0 for hour in range(HOURS)]


def _span(part: str, where: str) -> list[int]:
    first, sign, last = part.strip().partition("-")
    try:
        begin, end = int(first), int(last) if sign else int(first) + 1
    except ValueError:
        begin, end = -1, -1
    if not (0 <= begin < HOURS and 0 < end <= HOURS) or begin == end:
        raise ConfigError("not hours of a day", where=where, found=part[:40], allowed="8, 8-18, 22-4")
    return [hour % HOURS for hour in range(begin, end if end > begin else end + HOURS)]
