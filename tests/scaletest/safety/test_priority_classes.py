"""Priority classes of a setup: the low one always, the high one where a scenario names it."""

from __future__ import annotations

import pytest

from workbench.scaletest.safety.cluster_setup import build_setup_objects
from workbench.scaletest.scenario.scenario_file import load_scenario
from workbench.scaletest.scenario.workload_plan import draw_plan, summarize_plan


@pytest.mark.parametrize(
    ("sample", "classes"),
    [
        ("first-test", {"workbench-scaletest": (-1000, "Never")}),
        (
            "preemption",
            {
                "workbench-scaletest": (-1000, "Never"),
                "workbench-scaletest-high": (-500, "PreemptLowerPriority"),
            },
        ),
    ],
)
def test_the_high_class_is_made_where_it_is_named(sample: str, classes: dict[str, tuple[int, str]]) -> None:
    plan = draw_plan(load_scenario(f"data/samples/scaletest/scenarios/{sample}.yaml"))
    made = [one for one in build_setup_objects(plan) if one["kind"] == "PriorityClass"]
    assert {one["metadata"]["name"]: (one["value"], one["preemptionPolicy"]) for one in made} == classes


@pytest.mark.parametrize(
    ("sample", "pods", "gangs"), [("leaderworkerset", 12, 3), ("jobset", 18, 6), ("spread", 40, 0)]
)
def test_templates_of_samples_are_counted(sample: str, pods: int, gangs: int) -> None:
    summary = summarize_plan(draw_plan(load_scenario(f"data/samples/scaletest/scenarios/{sample}.yaml")))
    assert (summary.pods, summary.gangs) == (pods, gangs)
