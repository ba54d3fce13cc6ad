"""Plan of a search over versions: package, versions and settings, in a file from which it is resumed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import Field, StringConstraints, model_validator

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.core.paths import default_out
from workbench.core.schema import FiniteModel, read_model_file
from workbench.indicators.config import SessionConfig
from workbench.indicators.stacks import stack_sets, version_ranges
from workbench.indicators.stacks.stack_sets import Stack, StackSet

FORMAT_VERSION: Literal[1] = 1
PLAN = "bisection.json"
STACKS = "stacks.json"
MAX_PLAN_BYTES = 4 << 20

Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class BisectionPlan(FiniteModel):
    """What is searched, and with which settings.

    `versions` are in their order, from the oldest; `yanked` ones are left out. `requirements` hold for every stack;
    `metric` is null where the indicator has only one. `config` are the settings of each session, without its stacks.
    """

    format_version: Literal[1] = FORMAT_VERSION
    package: Text
    versions: Annotated[tuple[Text, ...], Field(min_length=2, max_length=version_ranges.MAX_VERSIONS)]
    yanked: tuple[Text, ...] = ()
    requirements: tuple[Text, ...] = ()
    metric: Text | None = None
    max_probes: int | None = Field(None, ge=0, le=version_ranges.MAX_VERSIONS, description="Limit of versions to try.")
    config: SessionConfig
    created_at: Text

    @model_validator(mode="after")
    def _check_order(self) -> BisectionPlan:
        try:
            order = [Version(text) for text in self.versions]
        except InvalidVersion as error:
            raise ValueError(f"versions: {str(error)[:100]}") from None
        if order != sorted(set(order)):
            raise ValueError("versions: not in their order, or one occurs twice")
        return self


@dataclass(frozen=True)
class Bisection:
    """A search with its folder, its plan and the solved stacks.

    `stacks` are by position, `unsolved` the reasons of versions that have none.
    """

    folder: Path
    plan: BisectionPlan
    stacks: dict[int, Stack]
    unsolved: dict[int, str]
    solved: StackSet

    @property
    def last(self) -> int:
        """Position of the newest version."""
        return len(self.plan.versions) - 1


def start_bisection(
    package: str,
    versions: str,
    config: SessionConfig,
    *,
    named: Sequence[str] = (),
    requirements: Sequence[str] = (),
    metric: str | None = None,
    max_probes: int | None = None,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Bisection:
    """Find the versions, solve a stack for each, and write the plan.

    `metric`, `max_probes`: Metric to search by, needed if the indicator has several, and limit of versions to try
    beside both ends.
    """
    _check_one_indicator(config)
    ends = version_ranges.parse_range(versions)
    fixed = version_ranges.parse_fixed_requirements(requirements, version_ranges.parse_package(package).name)
    version_range = version_ranges.find_version_range(
        package, ends, [version_ranges.parse_version(text.strip(), "--versions") for text in named]
    )
    plan = BisectionPlan(
        package=version_range.package,
        versions=version_range.versions,
        yanked=version_range.yanked,
        requirements=fixed,
        metric=metric,
        max_probes=max_probes,
        config=_resolve_script(config),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    limit = config.max_download_bytes
    solved = version_ranges.solve_version_range(version_range, fixed, max_download_bytes=limit, progress=progress)
    _check_ends(_combine(Path("-"), plan, solved))
    return _combine(_write_search(Path(out) if out is not None else default_out(), plan, solved), plan, solved)


def _write_search(out: Path, plan: BisectionPlan, solved: StackSet) -> Path:
    name = f"bisect-{plan.package}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    folder = out.absolute() / name
    try:
        solved.write(folder / STACKS)
        write_plan(folder, plan)
    except OSError as error:
        raise ConfigError(
            "cannot make the folder", where=folder, found=error.strerror, do="choose another with --out DIR"
        ) from error
    return folder


def _check_ends(bisection: Bisection) -> None:
    for position in (0, bisection.last):
        if position not in bisection.stacks:
            raise ConfigError(
                "an end of the range has no solution",
                where=f"{bisection.plan.package} {bisection.plan.versions[position]}",
                found=bisection.unsolved[position][:400],
                do="choose another end, or change --with",
            )


def write_plan(folder: Path, plan: BisectionPlan) -> Path:
    """Write the plan, atomically."""
    return files.write_text(folder / PLAN, json.dumps(plan.model_dump(mode="json"), indent=1) + "\n")


def load_bisection(folder: str | Path) -> Bisection:
    """Read the plan of a folder and its stacks."""
    folder = Path(folder).absolute()
    if not (folder / PLAN).is_file():
        raise InputError(
            "not the folder of a bisection", where=folder, found=f"no {PLAN}",
            do="name the folder that `workbench indicators bisect` printed",
        )  # fmt: skip
    plan = read_model_file(
        BisectionPlan, folder / PLAN, noun="plan of a bisection", max_bytes=MAX_PLAN_BYTES, max_version=FORMAT_VERSION
    )
    bisection = _combine(folder, plan, stack_sets.read_stack_set(folder / STACKS))
    if not {0, bisection.last} <= bisection.stacks.keys():
        raise InputError("the stacks are not those of the plan", where=folder / STACKS)
    return bisection


def _combine(folder: Path, plan: BisectionPlan, solved: StackSet) -> Bisection:
    by_name = {stack.name: stack for stack in solved.stacks}
    reasons = {rejection.point: rejection.reason for rejection in solved.rejected}
    names = {place: version_ranges.name_version(plan.package, text) for place, text in enumerate(plan.versions)}
    stacks = {place: by_name[name] for place, name in names.items() if name in by_name}
    unsolved = {place: reasons.get(name, "no stack") for place, name in names.items() if name not in by_name}
    return Bisection(folder, plan, stacks, unsolved, solved)


def _check_one_indicator(config: SessionConfig) -> None:
    targets = [*config.indicators, *config.script]
    if len(targets) != 1:
        raise ConfigError(
            "not one indicator to measure",
            where="--indicator, --script",
            found=targets or "none",
            allowed="one, such as --indicator sort",
        )


def _resolve_script(config: SessionConfig) -> SessionConfig:
    """The settings with the script's whole path: the search may be resumed from another folder."""
    return config.model_copy(update={"script": tuple(str(Path(text).absolute()) for text in config.script)})
