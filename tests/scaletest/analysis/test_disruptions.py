"""Lost pods are counted by cause, and workloads by how they ended; what ends as planned is no loss."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scaletest.making_scenarios import scenario
from workbench.scaletest.analysis.disruptions import Disruptions, find_disruptions
from workbench.scaletest.analysis.time_breakdown import build_pod_table
from workbench.scaletest.scenario.workload_plan import draw_plan
from workbench.scaletest.tables import SUBMISSIONS, TRANSITIONS

ARRIVAL = {"process": "constant", "rate_per_s": 1, "n": 4}
Step = tuple[str, str, str, float]  # resource, uid, transition, when


def find(*steps: Step, reason: str | None = None, **entry: Any) -> Disruptions:
    """Of four workloads; the uid of an object begins with the number of its workload."""
    plan = draw_plan(scenario({"kind": "Job", "lifetime": 5} | entry, arrival=ARRIVAL)).schedule
    names = plan["name"].to_list()
    blank = dict.fromkeys(TRANSITIONS.schema())
    rows = [
        blank
        | {"resource": resource, "uid": uid, "name": uid, "transition": step, "arrival_s": at_s, "session": 0}
        | {"gap": False, "namespace": "ns", "workload": names[int(uid[0])], "reason": reason}
        for resource, uid, step, at_s in steps
    ]
    transitions = TRANSITIONS.frame(rows)
    sent = [
        dict.fromkeys(SUBMISSIONS.schema())
        | {"index": index, "name": name, "due_s": 0.0, "status": "created", "attempts": 1}
        | {"throttled": 0, "throttled_s": 0.0}
        for index, name in enumerate(names)
    ]
    return find_disruptions(plan, SUBMISSIONS.frame(sent), transitions, build_pod_table(plan, transitions))


def live(uid: str, *ends: str, at_s: float = 0.0) -> list[Step]:
    return [("pod", uid, step, at_s + i) for i, step in enumerate(["created", "scheduled", "running", *ends])]


WELL = [*live("0", "succeeded"), ("job", "0j", "complete", 3.1)]


def test_pods_that_end_as_planned_are_no_loss() -> None:
    found = find(*WELL, *live("1", "succeeded", "deleted"), ("job", "1j", "complete", 3.2))
    assert (found.sentence, found.n_pods, found.complete_workloads, found.n_workloads) == (None, 2, 2, 4)


@pytest.mark.parametrize(
    ("ends", "reason", "cause"),
    [
        (["deleted"], None, "deleted"),
        (["failed", "deleted"], None, "failed"),
        (["evicted", "failed", "deleted"], "EvictionByEvictionAPI", "evicted"),
        (["evicted", "deleted"], "TerminationByKubelet", "evicted"),
        (["evicted", "failed"], "PreemptionByScheduler", "preempted"),
    ],
)
def test_a_lost_pod_has_one_cause_and_its_replacement_is_counted(ends: list[str], reason: str, cause: str) -> None:
    remade = [*live("1b", "succeeded", at_s=9.0), ("job", "1j", "complete", 12.2)]
    found = find(*WELL, *live("1", *ends), *remade, reason=reason)
    assert {name: getattr(found, name) for name in ("failed", "deleted", "evicted", "preempted")} == {
        name: int(name == cause) for name in ("failed", "deleted", "evicted", "preempted")
    }
    assert (found.n_pods, found.remade, found.complete_workloads, found.failed_workloads) == (3, 1, 2, 0)
    assert found.lost_fraction == (0.0 if cause == "preempted" else 1 / 3)
    assert found.sentence == f"1 of 3 pods were lost (1 {cause}); 1 replaced others; 2 of 4 workloads were complete"


def test_what_goes_with_its_workload_or_by_the_scenario_is_no_loss() -> None:
    # An operator deletes the workers of a job that is complete.
    assert find(*WELL, *live("0w", "deleted", at_s=0.5)).sentence is None
    assert find(*live("0", "deleted"), delete_after_s=2).sentence is None


def test_failed_and_bare_workloads_are_counted() -> None:
    failed = find(*WELL, *live("1", "failed"), ("job", "1j", "failed", 4.0))
    assert (failed.failed_workloads, failed.failed) == (1, 1)
    assert failed.sentence is not None
    assert failed.sentence.endswith("1 of 4 workloads were complete, 1 failed or were deleted")
    bare = find(*live("0", "succeeded"), *live("1", "deleted"), kind="Pod")
    assert (bare.complete_workloads, bare.failed_workloads, bare.deleted) == (1, 1, 1)


def test_nothing_seen_is_nothing_lost() -> None:
    found = find()
    assert (found.sentence, found.lost_fraction, found.complete_workloads) == (None, 0.0, 0)
