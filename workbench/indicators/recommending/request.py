"""What is asked for: which metrics matter, which stacks may not be recommended, and how to choose among the others."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.errors import ConfigError
from workbench.indicators.recommending.units import RecommendationType

STABLE_AGE_DAYS = 30.0
"""A stable stack's newest file is so old at least, unless another age is asked for."""


class Request(BaseModel):
    """The settings of one recommendation; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mix: str | None = Field(None, description="metric=weight,…; all metrics weigh the same without it")
    type: RecommendationType = Field("performance", description="how to choose among the stacks that are left")
    require: tuple[str, ...] = Field((), description="requirements that every stack must meet")
    exclude: tuple[str, ...] = Field((), description="requirements that no stack may meet, like numpy==2.0.0")
    vulnerabilities: Path | None = Field(None, description="OSV records or a report of pip-audit")
    min_age_days: float | None = Field(None, ge=0, description="age of a stack's newest file, in days")
    margin: float | None = Field(None, ge=0, lt=1, description="practical margin, as a share; the metrics' own without")
    max_failed_share: float = Field(0.1, ge=0, le=1, description="share of failed runs above which a stack is left out")
    predict: bool = Field(False, description="also stacks that were not measured, by those that share versions")
    propose: int = Field(0, ge=0, le=100, description="how many stacks to propose for measuring next")
    seed: int = Field(0, ge=0, description="start of all random numbers")
    as_of: datetime = Field(default_factory=lambda: datetime.now(UTC), description="the time at which ages are told")

    @property
    def least_age_days(self) -> float | None:
        """The age that is asked for; the type `stable` asks for one by itself."""
        if self.min_age_days is None and self.type == "stable":
            return STABLE_AGE_DAYS
        return self.min_age_days


def request(**settings: Any) -> Request:
    """The request of these settings, checked as a whole.

    Raises
    ------
    ConfigError
        A setting is unknown or out of bounds, or two do not go together.
    """
    try:
        made = Request(**settings)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ConfigError("cannot be asked for", where="recommend", found="; ".join(problems)) from None
    for text in (*made.require, *made.exclude):
        requirement(text)
    if made.type == "security" and made.vulnerabilities is None:
        raise ConfigError(
            "nothing is known about vulnerabilities",
            where="--type security",
            do="give --vulnerabilities FILE: pip-audit --format json, or OSV records",
        )
    return made


def requirement(text: str) -> Requirement:
    """A requirement such as `numpy>=2`: a name and versions.

    Raises
    ------
    ConfigError
        It is none, or holds an address, extras or a marker, which a stack's list of versions cannot answer.
    """
    try:
        made = Requirement(text)
    except InvalidRequirement as error:
        found = f"{text[:100]}: {str(error).splitlines()[0]}"
        raise ConfigError(
            "not a requirement", where="--require or --exclude", found=found, allowed="like numpy>=2"
        ) from None
    if made.url or made.extras or made.marker:
        raise ConfigError(
            "only a name and versions can be held against a stack", where="--require or --exclude", found=text[:100],
            allowed="like numpy>=2",
        )  # fmt: skip
    return made


def meets(version: str, wanted: Requirement) -> bool:
    """Is this version among those wanted? Pre-releases count as any other."""
    try:
        return wanted.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def version_of(packages: Any, name: str) -> str | None:
    """The version of a package in a stack, however its name is spelled; null when it is not there."""
    wanted = canonicalize_name(name)
    return next((version for one, version in packages.items() if canonicalize_name(one) == wanted), None)


def age_days(moment: str, as_of: datetime) -> float:
    """Days from an ISO 8601 time to another."""
    # Python 3.10 and older read no Z; fractions beyond microseconds are read by none.
    text = re.sub(r"(\.\d{6})\d+", r"\1", moment).replace("Z", "+00:00")
    found = datetime.fromisoformat(text)
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return (as_of - aware).total_seconds() / 86400
