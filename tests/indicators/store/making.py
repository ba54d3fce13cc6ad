"""Archives made by the tests: sessions with as many runs as asked for, of indicators declared here."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from workbench.indicators.contract.indicator import USAGE, Case, Indicator, check, parameter, result
from workbench.indicators.store.archive import (
    Arm,
    Hardware,
    PlannedCase,
    PlannedMetric,
    Pressure,
    Result,
    RunDetails,
    Session,
    inspection_id,
    write_result,
    write_session,
)

HARDWARE = Hardware(key="machine-1", cpu_model="Model X", cores=2, memory_bytes=8 << 30)


class PiSorted(Indicator):
    """Sort numbers."""

    n: int = parameter(1000, ge=1)
    dtype: Literal["float32", "float64"] = parameter("float64")
    padding: int | str = parameter("SAME")
    elapsed_ms: float = result(unit="ms", better="lower")
    rate: float | None = result(unit="1/s", better="higher", derived=True, optional=True)
    wrong: int = check(equals=0)
    digest: str = check()


class PiScanned(Indicator):
    """Read numbers: two compared results."""

    elapsed_s: float = result(unit="s", better="lower")
    peak_mib: float = result(unit="MiB", better="lower")


def arm(name: str, version: str, copy_number: int = 0) -> Arm:
    key = hashlib.sha256(version.encode()).hexdigest()
    return Arm(
        name=name,
        stack=f"numpy {version}",
        stack_key=key,
        copy_number=copy_number,
        python="3.11.2",
        packages={"numpy": version},
        lock_sha256=hashlib.sha256(key.encode()).hexdigest(),
    )


def planned(indicator: type[Indicator], **given: Any) -> PlannedCase:
    case = Case.from_parameters(indicator, given)
    metrics = tuple(PlannedMetric(name=name, **dataclasses.asdict(metric)) for name, metric in case.metrics())
    return PlannedCase(
        label=case.label,
        indicator=indicator.__name__,
        indicator_version=indicator.version(),
        parameters=dict(case.parameters),
        metrics=metrics,
        compared_checks=("digest",) if "digest" in indicator.model_fields else (),
        declaration=indicator.model_json_schema(),
    )


def session(session_id: str = "s-1", **more: Any) -> Session:
    given: dict[str, Any] = {
        "session_id": session_id,
        "created_at": "2026-01-02T03:04:05+00:00",
        "seed": 1,
        "arms": (arm("2.2.6", "2.2.6"), arm("control", "2.2.6", 1), arm("2.4.6", "2.4.6")),
        "baseline": "2.2.6",
        "cases": (planned(PiSorted),),
        "looks": (10, 20, 30),
        "alpha": 0.05,
        "threads": 1,
        "timeout_s": 60.0,
        "hardware": HARDWARE,
        "rounds_done": 1,
    }
    return Session(**(given | more))


def stdout_of(case: PlannedCase, value: float) -> dict[str, Any]:
    head = {"name": case.indicator, "component": "numpy", "@parameters": dict(case.parameters)}
    if case.indicator == "PiScanned":
        return {**head, "@result": {"elapsed_s": value, "peak_mib": 2 * value}}
    return {
        **head,
        "@result": {"elapsed_ms": value, "rate": 1000 / value},
        "@checks": {"wrong": 0, "digest": "d41d"},
        "@samples": {"elapsed_ms": [value, value + 1.0]},
    }


def run(
    of: Session, case: PlannedCase, arm_name: str, number: int, *, stdout: Any = None, status: str = "ok", **more: Any
) -> Result:
    """Run `number` of a case and arm; its value is a plain function of the number."""
    document = stdout if stdout is not None else stdout_of(case, 1.0 + number / 8)
    measured = RunDetails(
        session_id=of.session_id,
        arm=arm_name,
        case=case.label,
        round=number,
        position=number,
        indicator=case.indicator,
        indicator_version=case.indicator_version,
        status=status,
        reason=None if status == "ok" else "made to fail",
        duration_s=0.5,
        threads=of.threads,
        hardware_key=of.hardware.key,
        before=Pressure(load_1m=0.5, steal_s=1.0),
        after=Pressure(load_1m=0.75, steal_s=1.5),
        isolation={"network": "isolated"},
    )
    given: dict[str, Any] = {
        "stdout": document,
        "stderr": "",
        "exit_code": 0 if status == "ok" else 1,
        "script_sha256": "5" * 64,
        "usage": {name: float(i) for i, name in enumerate(USAGE)},
        "start_datetime": f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}+00:00",
        "end_datetime": "2026-01-02T05:00:00+00:00",
        "workbench": measured,
    }
    return Result(**(given | more))


def archive(folder: Path, of: Session | None = None, *, runs: int = 4) -> Session:
    """Write a session with so many runs of each arm and case."""
    of = of or session()
    write_session(folder, of)
    for case in of.cases:
        for one in of.arms:
            for number in range(runs):
                place = inspection_id(of.session_id, one.name, case.label)
                write_result(folder, place, number, run(of, case, one.name, number))
    return of


def edit(path: Path, change: Any) -> None:
    """Change a JSON document in place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
