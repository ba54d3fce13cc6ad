"""The stacks of a session, measured or only solved, as units see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.indicators.archive import Arm
from workbench.indicators.recommending.facts import Facts
from workbench.indicators.recommending.figures import Figures
from workbench.indicators.recommending.mix import Scored
from workbench.indicators.recommending.units import Candidate
from workbench.indicators.stacks.model import Stack, StackSet
from workbench.tables import Column, Table

if TYPE_CHECKING:
    import polars as pl

PACKAGES = Table(
    "packages",
    "One row per package of each stack, measured or not.",
    ("stack", "package"),
    (
        Column("stack", "str", "Name of the stack."),
        Column("stack_key", "str", "Hash of its lock, Python and platform."),
        Column("arm", "str", "Its side of the session; null when it was not measured.", nullable=True),
        Column("package", "str", "Name of the package."),
        Column("version", "str", "Its version."),
        Column("newest_upload", "str", "When the last of its files was put on the index.", nullable=True),
        Column("yanked", "bool", "A file of it was taken back; null where the index does not tell.", nullable=True),
    ),
)


def candidates(facts: Facts, stacks: StackSet | None) -> list[Candidate]:
    """Every stack once: the arms of the session but the control, then the solved stacks that were not measured."""
    session = facts.found.observed.session
    solved = {stack.key: stack for stack in stacks.stacks} if stacks is not None else {}
    arms = [arm for arm in session.arms if not arm.copy_number]
    twice = {name for name, count in Counter(arm.stack for arm in arms).items() if count > 1}
    measured = [_measured(arm, facts, solved.get(arm.stack_key), arm.stack in twice) for arm in arms]
    keys, names = {one.key for one in measured}, {one.name for one in measured}
    return measured + [_solved(stack, facts, names) for key, stack in solved.items() if key not in keys]


def with_figures(found: list[Candidate], figures: Figures, scores: Scored) -> list[Candidate]:
    """The same stacks with their ratios to the baseline."""
    base = next(one for one in found if one.baseline)
    known = scores.of(base.arm or "")
    made = []
    for one in found:
        rounds = int(np.isfinite(scores.of(one.arm or "") - known).sum())
        interval = figures.ratio(one.place, base.place)
        made.append(replace(one, interval=interval, rounds=rounds, predicted=rounds == 0))
    return made


def packages(found: list[Candidate]) -> pl.DataFrame:
    """The table of packages, for queries by name."""
    return PACKAGES.frame(list(_rows(found)))


def _rows(found: list[Candidate]) -> Iterator[dict[str, Any]]:
    for one in found:
        for name, version in one.packages.items():
            yield {
                "stack": one.name,
                "stack_key": one.key,
                "arm": one.arm,
                "package": name,
                "version": version,
                "newest_upload": one.uploaded.get(name),
                "yanked": one.yanked.get(name),
            }


def _measured(arm: Arm, facts: Facts, stack: Stack | None, twice: bool) -> Candidate:
    session = facts.found.observed.session
    return Candidate(
        name=arm.name if twice else arm.stack,
        key=arm.stack_key,
        arm=arm.name,
        packages=dict(arm.packages) or (stack.versions if stack else {}),
        baseline=arm.name == session.baseline,
        runs=facts.runs_of(arm.name),
        basis=facts.runs_of(arm.name) or facts.all_runs,
        hardware=session.hardware.cpu_model,
        session=session.session_id,
        **_index_facts(stack),
    )


def _solved(stack: Stack, facts: Facts, names: set[str]) -> Candidate:
    session = facts.found.observed.session
    return Candidate(
        name=f"{stack.name} ({stack.key[:8]})" if stack.name in names else stack.name,
        key=stack.key,
        arm=None,
        packages=stack.versions,
        predicted=True,
        basis=facts.all_runs,
        hardware=session.hardware.cpu_model,
        session=session.session_id,
        **_index_facts(stack),
    )


def _index_facts(stack: Stack | None) -> Mapping[str, Any]:
    if stack is None:
        return {}
    return {
        "uploaded": {package.name: package.newest_upload for package in stack.packages},
        "yanked": {package.name: package.yanked for package in stack.packages},
    }
