"""The plan of a session, before anything is run: sides, cases, the machine, looks, seed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from workbench.errors import ConfigError
from workbench.indicators.archive import Arm, PlannedCase, PlannedMetric, Session
from workbench.indicators.config import SessionConfig
from workbench.indicators.contract import Case
from workbench.indicators.running import machine
from workbench.indicators.running.recording import Prepared
from workbench.indicators.running.sides import Side

BATCH = "process"
"""Where Amun's specification names an image: runs of this backend have none."""


def planned(
    session_id: str,
    config: SessionConfig,
    sides: Sequence[Side],
    cases: Sequence[Case],
    *,
    notes: Sequence[str] = (),
    here: bool = True,
) -> Session:
    """The session of these sides and cases; the first side is the baseline.

    A case does not apply to a stack without the packages that it needs; one that does not apply to the baseline
    cannot be compared and is refused. `here` is whether runs are made on this machine: its cores are noted.

    Raises
    ------
    ConfigError
        No case, two cases of one name, or a case that does not apply to the baseline.
    """
    arms = tuple(side.arm for side in sides)
    if not cases:
        raise ConfigError("nothing to measure", where="--indicator", do="give one, such as --indicator sort")
    labels = [case.label for case in cases]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise ConfigError("the same case twice", where="--indicator", found=twice)
    runs_on, own = machine.cores_for(config.threads)
    del own
    found = machine.hardware()
    notes = list(notes)
    if here and runs_on and len(runs_on) < config.threads:
        notes.append(f"{config.threads} threads share {len(runs_on)} core(s)")
    return Session(
        session_id=session_id,
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seed=secrets.randbelow(2**31) if config.seed is None else config.seed,
        arms=arms,
        baseline=arms[0].name,
        cases=tuple(_planned_case(case, arms) for case in cases),
        looks=config.rounds,
        alpha=config.alpha,
        threads=config.threads,
        cpus=runs_on,
        timeout_s=config.timeout_s,
        memory_bytes=config.memory(found.memory_bytes),
        hardware=found,
        host=machine.host_facts(),
        design=config.design,
        notes=tuple(notes),
    )


def _planned_case(case: Case, arms: Sequence[Arm]) -> PlannedCase:
    indicator = case.indicator
    skipped = {}
    for arm in arms:
        if missing := indicator.lacks(case.parameters, arm.packages):
            skipped[arm.name] = f"has no {', '.join(missing)}"
    if arms[0].name in skipped:
        raise ConfigError(
            "the baseline cannot run this, so nothing can be compared with it",
            where=case.label,
            found=f"{arms[0].name} {skipped[arms[0].name]}",
            do="choose another --baseline, or leave this indicator out",
        )
    return PlannedCase(
        label=case.label,
        indicator=indicator.__name__,
        indicator_version=indicator.version(),
        about=(indicator.__doc__ or "").strip().split("\n")[0][:300],
        parameters=dict(case.parameters),
        metrics=tuple(
            PlannedMetric(name=name, field=one.field, unit=one.unit, better=one.better, tolerance=one.tolerance)
            for name, one in case.metrics()
        ),
        compared_checks=indicator.compared_checks(),
        skipped=skipped,
        declaration=indicator.model_json_schema(),
    )


def specification(session: Session, side: Side, prepared: Prepared, inspection: str) -> dict[str, Any]:
    """One side and one case in Amun's words; `@workbench` has what Amun has no field for."""
    packages = dict(sorted(side.arm.packages.items()))
    version = ".".join(side.arm.python.split(".")[:2])
    locked = {
        name: {"version": f"=={number}", **({"hashes": list(side.hashes[name])} if name in side.hashes else {})}
        for name, number in packages.items()
    }
    files = {name: text for name, text in prepared.sources.items() if name != "script.py"}
    return {
        "base": BATCH,
        "identifier": inspection,
        "batch_size": max(session.looks),
        "script": prepared.sources["script.py"],
        "files": [{"path": name, "content": text} for name, text in files.items()],
        "environment": [{"name": name, "value": value} for name, value in prepared.environment.items()],
        "python": {
            "requirements": {
                "packages": {name: f"=={number}" for name, number in packages.items()},
                "dev-packages": {},
                "requires": {"python_version": version},
                "source": [],
            },
            "requirements_locked": {
                "_meta": {"pipfile-spec": 6, "requires": {"python_version": version}, "sources": []},
                "default": locked,
                "develop": {},
            },
        },
        "run": {"requests": {"cpu": str(session.threads), "memory": f"{(session.memory_bytes or 0) >> 20}Mi"}},
        "@created": session.created_at,
        "@workbench": {
            "session_id": session.session_id,
            "arm": side.arm.name,
            "stack": side.arm.stack,
            "stack_key": side.arm.stack_key,
            "case": prepared.case.label,
            "indicator": prepared.case.indicator.__name__,
            "indicator_version": prepared.version,
        },
    }
