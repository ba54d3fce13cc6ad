"""Which event counts, by which clock, when pods are replaced, and who a pod group belongs to."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, tables
from workbench.scaletest.analysis.throughput import build_passages
from workbench.scaletest.analysis.time_breakdown import build_milestones, build_pod_table, build_step_table
from workbench.scaletest.tables import SCHEDULE, SUBMISSIONS, TRANSITIONS

NAME = "st-00000001-0000000"


def plan(n_pods: int = 1, kind: str = "Job") -> tuple[pl.DataFrame, pl.DataFrame]:
    made = tables(Plan([0.0], pods=n_pods))
    schedule = made["schedule"].with_columns(pl.lit(kind).alias("kind"))
    return SCHEDULE.check(schedule), SUBMISSIONS.check(made["submissions"])


def seen(resource: str, transition: str, uid: str, arrival: float | None, **more: Any) -> dict[str, Any]:
    none = dict.fromkeys(column.name for column in TRANSITIONS.columns)
    own = {"resource": resource, "transition": transition, "uid": uid, "name": uid, "namespace": "n", "session": 0}
    return none | own | {"arrival_s": arrival, "gap": False} | more


def table_of(rows: list[dict[str, Any]], n_pods: int = 1, kind: str = "Job") -> pl.DataFrame:
    schedule, submissions = plan(n_pods, kind)
    schedule = schedule.with_columns(gang=pl.lit(kind == "Gang"))
    transitions = TRANSITIONS.frame(rows)
    return build_milestones(schedule, submissions, transitions, build_pod_table(schedule, transitions))


def steps_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return build_step_table(table_of(rows), plan()[1])


def reached(rows: list[dict[str, Any]], n_pods: int = 1, kind: str = "Job") -> dict[str, tuple[float, float]]:
    found = table_of(rows, n_pods, kind)
    return {row["milestone"]: (row["client_s"], row["server_s"]) for row in found.to_dicts()}


def pod(uid: str, created: float, scheduled: float | None = None, **more: Any) -> list[dict[str, Any]]:
    own = {"workload": NAME} | more
    rows = [seen("pod", "created", uid, created, **own)]
    return rows + ([] if scheduled is None else [seen("pod", "scheduled", uid, scheduled, node="sim-0", **own)])


def test_pods_that_replace_others_do_not_move_the_last_pod() -> None:
    rows = [*pod("a", 1.0, 1.1), *pod("b", 1.2, 1.3), *pod("again", 200.0, 200.1)]
    found = reached(rows, n_pods=2)
    assert found["last pod"][0] == 1.2
    assert found["all scheduled"][0] == 1.3
    schedule, _ = plan(2)
    assert build_pod_table(schedule, TRANSITIONS.frame(rows))["attempt"].to_list() == [1, 1, 2]


def test_a_gang_is_complete_when_its_last_pod_is_bound_or_never() -> None:
    rows = [*pod("a", 1.0, 2.0), *pod("b", 1.0, 5.0), *pod("c", 1.0)]
    assert reached(rows, n_pods=2)["all scheduled"][0] == 5.0
    assert "all scheduled" not in reached(rows, n_pods=3)
    assert reached(rows, n_pods=3)["first scheduled"][0] == 2.0


def test_unschedulable_is_a_decision_and_no_binding() -> None:
    found = reached([*pod("a", 1.0), seen("pod", "unschedulable", "a", 1.5, workload=NAME)])
    assert found["decided"][0] == 1.5
    assert "first scheduled" not in found


@pytest.mark.parametrize(
    "finer",
    [
        seen("event", "scheduled", "event", 2.2, owner="a", server_s=2.004321, resolution_s=1e-6),
        seen("audit", "bound", "audit", None, owner_name="a", server_s=2.004321, resolution_s=1e-6),
    ],
)
def test_microseconds_of_an_event_or_the_audit_log_come_before_whole_seconds(finer: dict[str, Any]) -> None:
    rows = pod("a", 1.0, 2.1, server_s=2.0, resolution_s=1.0)
    assert reached([*rows, finer])["all scheduled"] == (2.1, 2.004321)


def test_a_name_that_came_twice_gets_no_time_from_the_audit_log() -> None:
    twice = [*pod("a", 1.0, 2.1, server_s=2.0, resolution_s=1.0), *pod("b", 9.0)]
    for row in twice:
        row["name"] = "same"
    audit = seen("audit", "bound", "audit", None, owner_name="same", server_s=2.5, resolution_s=1e-6)
    assert reached([*twice, audit])["all scheduled"] == (2.1, 2.0)


def test_pods_without_labels_are_found_by_their_owner() -> None:
    job = seen("job", "created", "job-uid", 0.5, workload=NAME)
    rows = [seen("pod", "created", "a", 1.0, owner="job-uid"), seen("pod", "scheduled", "a", 1.5, owner="job-uid")]
    assert reached([job, *rows])["all scheduled"][0] == 1.5
    assert "all scheduled" not in reached(rows)


@pytest.mark.parametrize("group", [{"workload": NAME}, {"owner": "job-uid"}, {"owner": "a"}, {"name": NAME}])
def test_a_pod_group_is_joined_by_label_owner_or_name(group: dict[str, Any]) -> None:
    job = seen("job", "created", "job-uid", 0.5, workload=NAME)
    made = seen("podgroup", "created", "group-uid", 1.7) | group
    assert reached([job, *pod("a", 1.0), made])["podgroup"][0] == 1.7


def test_somebody_elses_pod_group_is_not_ours() -> None:
    made = seen("podgroup", "created", "group-uid", 1.7, owner="stranger", name="stranger")
    assert "podgroup" not in reached([*pod("a", 1.0), made])


def test_a_job_of_a_job_is_no_step_and_one_of_a_custom_workload_is() -> None:
    rows = [seen("workload", "created", "w", 0.2, workload=NAME), seen("job", "created", "j", 0.4, workload=NAME)]
    assert "job" not in reached(rows, kind="Job")
    assert reached(rows, kind="TrainingWorkload")["job"][0] == 0.4
    assert reached(rows, kind="TrainingWorkload")["created"][0] == 0.2


def test_an_arrival_after_a_gap_is_marked_in_the_step() -> None:
    found = steps_of([*pod("a", 1.0), seen("pod", "scheduled", "a", 30.0, workload=NAME, gap=True)])
    marked = {row["step"] for row in found.filter(pl.col("gap")).to_dicts()}
    assert "scheduling" in marked
    assert "admission" not in marked


def test_an_imported_run_has_mixed_steps_and_says_so() -> None:
    only = {"workload": NAME, "resolution_s": 1.0}
    times = (("created", 3.0), ("scheduled", 4.0))
    found = steps_of([seen("pod", step, "a", None, server_s=at, **only) for step, at in times])
    clocks = dict(found.select("step", "clock").iter_rows())
    assert (clocks["scheduling"], clocks["due to scheduled"], clocks["admission"]) == ("server", "mixed", "client")
    total = found.filter(pl.col("step") == "due to scheduled").row(0, named=True)
    assert (total["duration_s"], total["resolution_s"]) == (4.0, 1.0)


def ended(uid: str, how: str, at: float) -> dict[str, Any]:
    return seen("pod", how, uid, at, workload=NAME)


@pytest.mark.parametrize(("how", "expected"), [("succeeded", 5.0), ("evicted", 9.0), ("failed", 9.0), ("deleted", 9.0)])
def test_a_pod_that_was_lost_and_replaced_is_not_counted_twice(how: str, expected: float) -> None:
    rows = [*pod("a", 1.0, 1.1), ended("a", how, 2.0), *pod("b", 4.0, 5.0), *pod("c", 8.0, 9.0)]
    found = reached(rows, n_pods=2)
    assert found["all scheduled"][0] == expected
    assert found["last pod"][0] == expected - 1
    assert found["first scheduled"][0] == 1.1


def test_the_servers_time_of_all_bound_is_that_of_the_pods_that_were_bound_then() -> None:
    rows = [
        *pod("a", 1.0, 1.1, server_s=1.0, resolution_s=1.0),
        ended("a", "evicted", 2.0),
        *pod("b", 4.0, 5.0, server_s=5.0, resolution_s=1.0),
        *pod("c", 8.0, 9.0, server_s=8.0, resolution_s=1.0),
    ]
    assert reached(rows, n_pods=2)["all scheduled"] == (9.0, 8.0)


def test_a_pod_of_a_gang_that_has_ended_is_missing_in_it() -> None:
    found = reached([*pod("a", 1.0, 1.1), ended("a", "succeeded", 4.0), *pod("b", 1.0, 5.0)], 2, "Gang")
    assert "all scheduled" not in found
    assert "last pod" in found


def test_pods_that_replace_others_are_no_throughput() -> None:
    schedule, submissions = plan(2)
    rows = [*pod("a", 1.0, 1.1), *pod("b", 1.0, 1.2), ended("a", "evicted", 3.0), *pod("again", 4.0, 5.0)]
    transitions = TRANSITIONS.frame(rows)
    found = build_passages(schedule, submissions, build_pod_table(schedule, transitions), transitions)
    assert (found.created.tolist(), found.scheduled.tolist(), found.ended.tolist()) == ([1.0, 1.0], [1.1, 1.2], [3.0])
    assert found.end_s == 5.0


def test_a_workload_was_created_when_it_was_and_not_when_its_pods_were() -> None:
    both = [seen("job", "created", "j", 0.4, workload=NAME), seen("workload", "created", "w", 0.2, workload=NAME)]
    assert reached([*both, *pod("a", 1.0)], kind="TrainingWorkload")["created"][0] == 0.2
    assert reached([both[0], *pod("a", 1.0)])["created"][0] == 0.4
    assert reached(pod("a", 1.0))["created"][0] == 1.0
    # Another watch told of the pod a moment earlier: its job was there then.
    assert reached([both[0], *pod("a", 0.3)])["created"][0] == 0.3


def test_a_job_that_was_found_after_a_gap_was_not_created_when_its_pods_were_seen() -> None:
    rows = [seen("job", "created", "j", 9.0, workload=NAME, gap=True), *pod("a", 3.0, 3.5)]
    (created,) = table_of(rows).filter(pl.col("milestone") == "created").to_dicts()
    assert (created["client_s"], created["gap"]) == (9.0, True)
    made = set(steps_of(rows)["step"])
    assert "first pod" not in made
    assert "scheduling" in made


def test_only_the_times_that_were_found_after_a_gap_are_marked() -> None:
    found = table_of([*pod("a", 1.0, 1.5), seen("pod", "running", "a", 30.0, workload=NAME, gap=True)])
    assert set(found.filter(pl.col("gap"))["milestone"]) == {"first running", "all running"}


def test_a_gang_whose_pods_ended_in_a_gap_runs_only_if_it_was_bound() -> None:
    def found(first: float) -> list[str]:
        late = [seen("pod", "running", "a", 30.0, workload=NAME, gap=True), ended("a", "succeeded", 30.0)]
        other = [
            *pod("b", 1.0, 30.0, gap=True),
            seen("pod", "running", "b", 30.0, workload=NAME),
            ended("b", "failed", 30.0),
        ]
        steps = table_of([*pod("a", 1.0, first), *late, *other], 2, "Gang")["milestone"]
        return [one for one in steps if one in ("all scheduled", "all running")]

    # One was bound before the watch was away, the other in the gap: nobody knows whether they ever met.
    assert found(1.5) == []
    assert found(30.0) == ["all scheduled", "all running"]
