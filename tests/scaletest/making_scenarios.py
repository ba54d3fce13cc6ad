"""Scenarios for tests, from few words."""

from __future__ import annotations

from typing import Any

from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.scenario_file import Scenario

RUN = "st-0123abcd"


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
