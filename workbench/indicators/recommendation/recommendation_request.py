"""Settings of a recommendation."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import Field, model_validator

from workbench.core.errors import ConfigError
from workbench.core.schema import FiniteModel, validate_model
from workbench.indicators.recommendation.unit_pipeline import RecommendationType

STABLE_AGE_DAYS = 30.0
"""Default minimum age of a stable stack's newest file."""


class RecommendationRequest(FiniteModel):
    """Settings of one recommendation."""

    mix: str | None = Field(
        None, description="Metrics and their weights (names may be shortened). Without it, weights are equal."
    )
    type: RecommendationType = Field(
        "performance",
        description="performance: best mix. stable: the same among stacks that are old enough and surely not worse. "
        "security: the same without known vulnerabilities and without packages that pip-audit skipped (OSV "
        "records do not "
        "show this; a warning lists packages that no record names). latest: newest versions. testing: stacks whose "
        "results would teach the most.",
    )
    require: tuple[str, ...] = Field((), description="A requirement that every stack must meet. Repeatable.")
    exclude: tuple[str, ...] = Field((), description="Versions to exclude, like numpy==2.0.0. Repeatable.")
    vulnerabilities: Path | None = Field(None, description="OSV records, or the output of pip-audit --format json.")
    min_age_days: float | None = Field(None, ge=0, description="Minimum age of a stack's newest file, in days.")
    margin: float | None = Field(None, ge=0, lt=1, description="Practical margin: differences within it do not matter.")
    max_failed_share: float = Field(0.1, ge=0, le=1, description="Exclude stacks with a larger share of failed runs.")
    clock: Literal["wall", "cpu"] | None = Field(None, description="Time that decides: wall or cpu (user and system).")
    predict: bool = Field(False, description="Also consider stacks never measured, from those that share versions.")
    propose: int = Field(0, ge=0, le=100, description="Propose K stacks to measure next, together with the baseline.")
    seed: int = Field(0, ge=0, description="Seed of all random numbers.")
    as_of: datetime = Field(default_factory=lambda: datetime.now(UTC), description="Time at which ages are computed.")

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        for text in (*self.require, *self.exclude):
            parse_requirement(text)
        if self.type == "security" and self.vulnerabilities is None:
            raise ConfigError(
                "a recommendation by security needs known vulnerabilities",
                where="--type security",
                do="give --vulnerabilities FILE: pip-audit --format json, or OSV records",
            )
        return self

    @property
    def effective_min_age_days(self) -> float | None:
        """The minimum age: the given one, or the default of the type `stable`."""
        if self.min_age_days is None and self.type == "stable":
            return STABLE_AGE_DAYS
        return self.min_age_days


def build_request(**settings: Any) -> RecommendationRequest:
    """Build the settings of a recommendation."""
    return validate_model(RecommendationRequest, settings, noun="valid recommendation request", error_type=ConfigError)


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement of a name and versions, such as `numpy>=2`."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        finding = f"{text[:100]}: {str(error).splitlines()[0]}"
        raise ConfigError(
            "not a requirement", where="--require or --exclude", found=finding, allowed="like numpy>=2"
        ) from None
    if requirement.url or requirement.extras or requirement.marker:
        raise ConfigError(
            "a requirement with more than a name and versions", where="--require or --exclude", found=text[:100],
            allowed="like numpy>=2",
        )  # fmt: skip
    return requirement


def meets_requirement(version: str, requirement: Requirement) -> bool:
    """Whether a version meets a requirement; pre-releases count like other versions."""
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def find_version(packages: Any, name: str) -> str | None:
    """The version of a package in a stack, in any spelling of its name; null if missing."""
    wanted = canonicalize_name(name)
    return next((version for package, version in packages.items() if canonicalize_name(package) == wanted), None)


def compute_age_days(moment: str, as_of: datetime) -> float:
    """Days from an ISO 8601 time to another time."""
    # fromisoformat does not parse fractions beyond microseconds, nor Z in Python 3.10.
    text = re.sub(r"(\.\d{6})\d+", r"\1", moment).replace("Z", "+00:00")
    time = datetime.fromisoformat(text)
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (as_of - aware).total_seconds() / 86400
