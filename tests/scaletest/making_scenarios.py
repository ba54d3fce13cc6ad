"""Scenarios for tests, from few words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.scenario_file import Scenario

RUN = "st-0123abcd"
FILES = {
    run_records.JOURNAL: run_records.JournalLine,
    run_records.OBSERVED: run_records.ObservedLine,
    run_records.HEALTH: run_records.HealthLine,
}


def lines_of(folder: Path, *kinds: type[Any]) -> list[Any]:
    """What a run wrote of these kinds, from whichever file."""
    lines = (one for name, kind in FILES.items() for one in run_records.read_lines(folder / name, kind))
    return [one for one in lines if isinstance(one, kinds)]


def scenario(*workloads: dict[str, Any], arrival: dict[str, Any] | None = None, **more: Any) -> Scenario:
    """A scenario; one Job a time, ten a second, twenty in all, where nothing else is said."""
    return Scenario.model_validate(
        {
            "name": "tested",
            "arrival": arrival or {"process": "constant", "rate_per_s": 10, "n": 20},
            "workloads": list(workloads) or [{"kind": "Job"}],
            **more,
        }
    )


def refused(text: str) -> str:
    """What is told of a scenario's text that is wrong."""
    try:
        scenarios.parse_scenario(text)
    except scenarios.InputError as error:
        return str(error)
    raise AssertionError("it was taken")
