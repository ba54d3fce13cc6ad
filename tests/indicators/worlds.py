"""Sessions that were never run: made in memory or on disk from known effects, for tests of the analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from workbench.indicators.analysis.observations import Observations, build_observations
from workbench.indicators.store.archive import (
    CONTROL,
    Arm,
    Hardware,
    PlannedCase,
    PlannedMetric,
    Result,
    RunDetails,
    Session,
    inspection_id,
    write_result,
    write_session,
)

BASELINE = "base"
HARDWARE = Hardware(key="host-0", cpu_model="simulated", cores=2, memory_bytes=1 << 34)


def session(
    arms: Sequence[str] = ("base", "other"),
    cases: Sequence[str] = ("Sort",),
    *,
    better: str = "lower",
    looks: Sequence[int] = (10, 20, 30),
    alpha: float = 0.05,
    control: bool = True,
    design: str = "rounds",
    session_id: str = "20261121T000000Z-aaaaaa",
    compared_checks: Sequence[str] = (),
    method: str = "looks",
    clock: str = "wall",
) -> Session:
    """A plan of these arms (the first is the baseline) and cases, with the control."""
    stacks = [Arm(name=name, stack=name, stack_key=f"key-{name}", packages={"numpy": "2.0"}) for name in arms]
    if control:
        stacks.append(Arm(name=CONTROL, stack=arms[0], stack_key=f"key-{arms[0]}", copy_number=1))
    planned = []
    for case in cases:
        metric = PlannedMetric(name=case, field="elapsed_ms", unit="ms", better=better, tolerance=0.02)
        planned.append(
            PlannedCase(
                label=case,
                indicator=case,
                indicator_version="v1",
                metrics=(metric,),
                compared_checks=tuple(compared_checks),
            )
        )
    return Session(
        session_id=session_id,
        created_at="2026-11-21T00:00:00+00:00",
        seed=0,
        arms=tuple(stacks),
        baseline=arms[0],
        cases=tuple(planned),
        looks=tuple(looks),
        alpha=alpha,
        method=method,
        clock=clock,
        threads=1,
        timeout_s=60.0,
        hardware=HARDWARE,
        backend="simulated",
        design=design,
    )


def result(
    plan: Session,
    arm: str,
    case: str,
    number: int,
    value: float | None,
    *,
    status: str = "ok",
    checks: Mapping[str, object] | None = None,
    failed_checks: Sequence[str] = (),
    cpu_ms: float | None = None,
    run_cpu_s: float | None = None,
) -> Result:
    """One run's document; null as a value with a status says that it failed."""
    document = {"name": case, "@parameters": {}, "@result": {"elapsed_ms": value}, "@checks": dict(checks or {})}
    if cpu_ms is not None:
        document["@cpu"] = {"elapsed_ms": cpu_ms}
    return Result(
        stdout=document if status == "ok" else "",
        stderr="",
        exit_code=0 if status == "ok" else 1,
        script_sha256="0" * 64,
        usage={"ru_utime": 0.1},
        start_datetime="2026-11-21T00:00:00+00:00",
        end_datetime="2026-11-21T00:00:01+00:00",
        workbench=RunDetails(
            session_id=plan.session_id,
            arm=arm,
            case=case,
            round=number,
            position=number,
            indicator=case,
            indicator_version="v1",
            status=status,
            reason=None if status == "ok" else status,
            failed_checks=tuple(failed_checks),
            duration_s=1.0,
            cpu_s=run_cpu_s,
            threads=1,
            hardware_key=plan.hardware.key,
            isolation={"network": "isolated"},
        ),
    )


def list_results(
    plan: Session, values: Mapping[tuple[str, str], Sequence[float | None]], **more: object
) -> list[tuple[str, int, Result]]:
    """Runs with these values by arm and case, one a round; null: the run failed."""
    return [
        (inspection_id(plan.session_id, arm, case), number, result(plan, arm, case, number, value, **status | more))
        for (arm, case), series in values.items()
        for number, value in enumerate(series)
        for status in ({"status": "ok" if value is not None else "timeout"},)
    ]


def of_values(plan: Session, values: Mapping[tuple[str, str], Sequence[float | None]], **more: object) -> Observations:
    """A session of these runs."""
    return build_observations(plan, list_results(plan, values, **more))


def on_disk(folder: Path, plan: Session, values: Mapping[tuple[str, str], Sequence[float | None]]) -> Path:
    """The same as an archive."""
    write_session(folder, plan)
    for found in list_results(plan, values):
        write_result(folder, *found)
    return folder


def drifting(seed: int, runs: int) -> np.ndarray:
    """What a shared machine does to the log times of successive runs: AR(1) drift, and a step somewhere."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.01, runs)
    host = np.zeros(runs)
    for place in range(1, runs):
        host[place] = 0.97 * host[place - 1] + rng.normal(0, 0.01)
    host[rng.integers(runs // 5, 4 * runs // 5) :] += rng.choice([-1, 1]) * rng.uniform(0.05, 0.4)
    return host + noise


def equal_stacks(seed: int, design: str, rounds: int = 10, cases: Sequence[str] = ("Sort", "Matmul")) -> Observations:
    """Four copies of one stack on a drifting machine, measured in rounds or as blocks; every difference is made up."""
    plan = session(("base", "one", "two"), cases, looks=(rounds,))
    names = [arm.name for arm in plan.arms]
    rng = np.random.default_rng(10_000 + seed)
    if design == "rounds":
        order = [(n, c, a) for n in range(rounds) for c in rng.permutation(cases) for a in rng.permutation(names)]
    else:
        order = [(n, c, a) for a in names for n in range(rounds) for c in cases]
    logs = drifting(seed, len(order))
    values: dict[tuple[str, str], list[float | None]] = {(a, c): [None] * rounds for a in names for c in cases}
    for (number, case, arm), log in zip(order, logs, strict=True):
        values[str(arm), str(case)][number] = float(10 * np.exp(log))
    return of_values(plan, values)
