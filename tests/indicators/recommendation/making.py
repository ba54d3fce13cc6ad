"""Sessions with known effects, for tests of the recommendation: stacks are versions of packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tests.indicators import worlds
from tests.indicators.stacks.making import stack_set as stack_set
from workbench.indicators.analysis.effects import Comparison, compare_session
from workbench.indicators.analysis.observations import Observations, build_observations
from workbench.indicators.recommendation.conclusion import Recommendation
from workbench.indicators.recommendation.recommendation_request import build_request
from workbench.indicators.recommendation.recommender import recommend
from workbench.indicators.recommendation.unit_pipeline import Unit
from workbench.indicators.stacks.stack_sets import Package, Stack, StackSet, build_stack
from workbench.indicators.store.archive import Result, Session, inspection_id, write_result, write_session
from workbench.indicators.tables import CHECKS

PLATFORM = "manylinux_2_28_x86_64"
Versions = Mapping[str, str]


def stack(versions: Versions, *, uploaded: str | None = None, yanked: bool | None = None, name: str = "") -> Stack:
    """A solved stack of these versions, with made-up hashes."""
    packages = [
        Package(name=one, version=version, hashes=("sha256:" + 64 * "a",), newest_upload=uploaded, yanked=yanked)
        for one, version in versions.items()
    ]
    told = ", ".join(f"{one} {version}" for one, version in versions.items())
    return build_stack(packages, python="3.11", platform=PLATFORM, name=name or told)


def plan(stacks: Sequence[Stack], cases: Sequence[str], **more: object) -> Session:
    """A session of these stacks, the first being the baseline, with its control."""
    made = worlds.session([one.name for one in stacks], cases, looks=(10,), **more)
    by_name = {one.name: one for one in stacks}
    arms = tuple(
        arm.model_copy(
            update={"stack_key": by_name[arm.stack].key, "packages": by_name[arm.stack].versions}
        )
        for arm in made.arms
    )  # fmt: skip
    return made.model_copy(update={"arms": arms})


def observed(session: Session, logs: Mapping[tuple[str, str], float], **more: Any) -> Observations:
    """The tables of `documents`."""
    return build_observations(session, documents(session, logs, **more))


def archive(folder: Path, session: Session, logs: Mapping[tuple[str, str], float], **more: Any) -> Path:
    """The same as a session's folder."""
    write_session(folder, session)
    for inspection, number, document in documents(session, logs, **more):
        write_result(folder, inspection, number, document)
    return folder


def documents(
    session: Session,
    logs: Mapping[tuple[str, str], float],
    *,
    rounds: int = 10,
    noise: float = 0.005,
    seed: int = 0,
    failed_checks: Mapping[tuple[str, str], str] | None = None,
    failed_runs: Mapping[tuple[str, str], Sequence[int]] | None = None,
    peaks: Mapping[str, int] | None = None,
) -> list[tuple[str, int, Result]]:
    """Runs of a session: log times by (stack, case), 0 where none is given, with a common drift of each round.

    `peaks` are peaks of memory by stack, in KiB.
    """
    random = np.random.default_rng(seed)
    drift = random.normal(0, 0.1, rounds)
    found = []
    for case in session.cases:
        for arm in session.arms:
            for number in range(rounds):
                log = logs.get((arm.stack, case.label), 0.0) + drift[number] + random.normal(0, noise)
                broken = number in (failed_runs or {}).get((arm.stack, case.label), ())
                wrong = (failed_checks or {}).get((arm.stack, case.label))
                made = worlds.result(
                    session, arm.name, case.label, number, float(10 * np.exp(log)),
                    status="timeout" if broken else "ok", failed_checks=(wrong,) if wrong else (),
                )  # fmt: skip
                if arm.stack in (peaks or {}):
                    made = made.model_copy(update={"usage": {"ru_maxrss": float((peaks or {})[arm.stack])}})
                found.append((inspection_id(session.session_id, arm.name, case.label), number, made))
    return found


NUMPY = {v: stack({"numpy": v}) for v in ("2.2.6", "1.24.4", "1.26.4", "2.0.2", "2.4.6")}
NAMES = {version: one.name for version, one in NUMPY.items()}
ULP = "max_ulp is 3.0, at most 1 is allowed"


def numpy_plan() -> Session:
    """Five versions of numpy, 2.2.6 the baseline."""
    return plan(list(NUMPY.values()), ("Sort", "Sin", "Matmul", "Loop"))


NUMPY_LOGS = {
    (NAMES["1.24.4"], "Sort"): float(np.log(12.6)),
    (NAMES["1.26.4"], "Sort"): float(np.log(1.37)),
    (NAMES["1.24.4"], "Sin"): float(np.log(1 - 0.923)),
    (NAMES["2.4.6"], "Loop"): float(np.log(0.9)),
}
"""About as it was measured once: 1.24.4 is 13 times faster at sin, and wrong."""


def numpy_session(**more: Any) -> Comparison:
    """The effects of a session of `NUMPY_LOGS`."""
    return compare_session(observed(numpy_plan(), NUMPY_LOGS, **more))


def recommended(
    found: Comparison, *, stacks: StackSet | None = None, units: Sequence[Unit] = (), **settings: object
) -> Recommendation:
    """The recommendation of a session with these settings."""
    return recommend(found, build_request(**settings), stack_set=stacks, units=units)


def digests(runs: pl.DataFrame, differing: Mapping[str, str]) -> pl.DataFrame:
    """Table CHECKS: a digest of every run, "a" but for the arms named."""
    rows = [
        {**{name: row[name] for name in ("session_id", "inspection_id", "run", "round", "arm", "case")},
         "field": "digest", "value": differing.get(row["arm"], "a"), "compared": True}
        for row in runs.iter_rows(named=True)
    ]  # fmt: skip
    return CHECKS.frame(rows)


def pair(log: float = 0.0, **more: Any) -> Comparison:
    """The baseline and one other stack, whose log time differs by so much."""
    session = plan([NUMPY["2.2.6"], NUMPY["2.4.6"]], ("Sort",))
    return compare_session(observed(session, {(NAMES["2.4.6"], "Sort"): log}, **more))
