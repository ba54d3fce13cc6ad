"""When a test is over, and whether all is well meanwhile: from what the sampler wrote."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.making_scenarios import scenario
from workbench.scaletest.cluster_api.connection import now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario.scenario_file import AbortCriteria
from workbench.scaletest.scenario.workload_plan import draw_plan
from workbench.scaletest.submission.abort_criteria import ClusterHealth, StopRequest
from workbench.scaletest.test_run.drain import (
    OVERTIME_S,
    DrainTarget,
    HealthCheck,
    PodFollower,
    build_drain_target,
    describe_outstanding,
    wait_for_drain,
)

ARRIVAL = {"process": "constant", "rate_per_s": 1, "n": 2}


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.scaletest.test_run.drain.HEALTH_EVERY_S", 0)


def seen(folder: Path, *steps: tuple[str, str], resource: str = "pod", **more: Any) -> None:
    with (folder / run_records.OBSERVED).open("ab") as file:
        for uid, transition in steps:
            line = run_records.Seen(resource, transition, uid, uid, "ns", now_ns(), **more)
            file.write(run_records.encode_line(line))


def follower(folder: Path) -> PodFollower:
    made = PodFollower(folder)
    made.update()
    return made


def test_pods_are_counted_by_where_they_are(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "created"), ("b", "created"), ("c", "created"), ("d", "created"), ("b", "scheduled"))
    seen(tmp_path, ("c", "scheduled"), ("c", "running"), ("d", "scheduled"), ("d", "running"), ("d", "succeeded"))
    found = follower(tmp_path)
    assert (found.seen, found.pending, found.running, found.started, found.ended) == (4, 1, 1, 2, 1)


def test_a_pod_that_is_deleted_while_it_waits_does_not_wait_any_more(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "created"), ("a", "unschedulable"), ("a", "deleted"))
    assert follower(tmp_path).pending == 0


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "created"))
    path = tmp_path / run_records.OBSERVED
    whole = run_records.encode_line(run_records.Seen("pod", "created", "b", "b", "ns", 1))
    with path.open("ab") as file:
        file.write(whole[:30])
    found = follower(tmp_path)
    assert found.seen == 1
    with path.open("ab") as file:
        file.write(whole[30:])
    found.update()
    assert found.seen == 2


def test_waiting_said_again_is_no_change(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "created"))
    found = follower(tmp_path)
    before = found.changed_ns
    seen(tmp_path, ("a", "unschedulable"))
    found.update()
    assert found.changed_ns == before
    seen(tmp_path, ("a", "scheduled"))
    found.update()
    assert found.changed_ns > before


def drained(found: PodFollower, expected: DrainTarget, **given: Any) -> str:
    told = {"settle_s": 0.3, "until_ns": None, "asked": StopRequest(), "health": ClusterHealth}
    return asyncio.run(wait_for_drain(found, expected, **told | given))


def test_it_is_over_when_all_pods_that_end_have_ended_and_the_others_run(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "running"), ("a", "succeeded"), ("b", "running"))
    assert drained(follower(tmp_path), DrainTarget(2, 1, 5.0)) == "all are done"


def test_it_is_over_when_nothing_changes_any_more(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "running"), ("b", "created"))
    assert drained(follower(tmp_path), DrainTarget(2, 0, 0.0)) == "nothing changed for 0.3 s"


def test_pods_that_wait_for_others_to_end_are_waited_for_as_long_as_those_run(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "running"), ("b", "created"))
    assert drained(follower(tmp_path), DrainTarget(2, 2, 0.4)) == "nothing changed for 0.7 s"


def test_a_replay_waits_for_its_longest_job_also_where_nothing_changes_for_long(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "running"))
    late = DrainTarget(1, 1, 0.5 - OVERTIME_S)  # 0.5 s with the overtime
    assert drained(follower(tmp_path), late) == "nothing changed for 0.3 s"
    assert drained(follower(tmp_path), dataclasses.replace(late, awaits_ends=True)) == "nothing changed for 0.5 s"
    trace = {"process": "trace", "times_s": [0.0], "entries": ["job-0"], "lifetimes_s": [9.0], "speed": 1}
    replay = scenario({"kind": "Job", "lifetime": 1}, arrival=trace)
    rows = draw_plan(replay).schedule
    jobs = frozenset(rows["name"])
    assert build_drain_target(rows, replay) == DrainTarget(1, 1, 9.0, kept=1, awaits_ends=True, jobs=jobs)


def test_the_later_pods_of_a_job_are_waited_for_while_its_first_ones_run(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "created"), ("a", "scheduled"), ("a", "running"))
    found = follower(tmp_path)
    assert drained(found, DrainTarget(3, 3, 0.4)) == "nothing changed for 0.7 s"
    # Nothing waits, and nothing runs that could make way.
    seen(tmp_path, ("a", "succeeded"))
    found.update()
    assert drained(found, DrainTarget(3, 3, 0.4)) == "nothing changed for 0.3 s"


def test_a_job_whose_pod_was_lost_is_waited_for_until_it_is_complete(tmp_path: Path) -> None:
    job = {"resource": "job", "workload": "job-0"}
    seen(tmp_path, ("a", "running"), ("a", "deleted"), ("b", "running"))
    seen(tmp_path, ("j", "created"), **job)
    found, expected = follower(tmp_path), DrainTarget(1, 1, 0.5 - OVERTIME_S, jobs=frozenset({"job-0"}))
    assert drained(found, expected) == "nothing changed for 0.5 s"
    seen(tmp_path, ("b", "succeeded"))
    seen(tmp_path, ("j", "complete"), **job)
    found.update()
    assert drained(found, expected) == "all are done"


def test_pods_that_only_come_when_others_end_are_not_expected_where_none_ends() -> None:
    names = set()

    def of(**more: Any) -> DrainTarget:
        made = scenario({"kind": "Job", "parallelism": 2, "completions": 6, **more}, arrival=ARRIVAL)
        plan = draw_plan(made).schedule
        names.update(plan["name"])
        return build_drain_target(plan, made)

    assert of(lifetime=10) == DrainTarget(12, 12, 10.0, kept=12, jobs=frozenset(names))
    assert of() == DrainTarget(4, 0, 0.0, kept=4)
    assert of(lifetime=10, delete_after_s=5) == DrainTarget(12, 12, 5.0, kept=0)


def test_pods_that_a_template_is_said_to_make_need_not_come() -> None:
    template = {"apiVersion": "x.io/v1", "kind": "Box", "spec": {}}
    made = scenario({"kind": "Template", "template": template, "pods": 3}, arrival=ARRIVAL)
    assert build_drain_target(draw_plan(made).schedule, made).kept == 0


@pytest.mark.parametrize(
    ("drained", "left"),
    [
        ("wall clock", "1 of 3 pods were not made yet"),
        ("nothing changed for 30 s", "1 of 3 pods were not made yet"),
        ("all are done", None),
        ("interrupted", None),
        ("aborted: 2 node(s) stopped being ready", None),
    ],
)
def test_what_was_still_to_come_is_told(drained: str, left: str | None, tmp_path: Path) -> None:
    seen(tmp_path, ("a", "running"), ("b", "created"))
    assert describe_outstanding(follower(tmp_path), DrainTarget(3, 3, 60.0, kept=3), drained) == left
    assert describe_outstanding(follower(tmp_path), DrainTarget(3, 3, 60.0, kept=1), drained) is None


def test_it_is_over_at_the_wall_clock(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "created"))
    assert drained(follower(tmp_path), DrainTarget(1, 1, 1e6), until_ns=now_ns()) == "wall clock"


@pytest.mark.parametrize(
    ("health", "told"),
    [
        (ClusterHealth(trouble="2 node(s) stopped being ready"), "aborted: 2 node(s) stopped being ready"),
        (ClusterHealth(watch_lag_s=5.25), "aborted: the watch lag is 5.2 s"),
    ],
)
def test_trouble_ends_it_as_it_ends_submission(health: ClusterHealth, told: str, tmp_path: Path) -> None:
    seen(tmp_path, ("a", "created"))
    assert drained(follower(tmp_path), DrainTarget(1, 1, 1e6), health=lambda: health, watch_lag_s=5.0) == told


def test_a_watch_that_is_late_within_its_limit_or_without_one_ends_nothing(tmp_path: Path) -> None:
    seen(tmp_path, ("a", "running"))
    for limit in (5.0, None):
        late = ClusterHealth(watch_lag_s=4.9 if limit else 60.0)
        assert drained(follower(tmp_path), DrainTarget(1, 0, 0.0), health=lambda found=late: found) == "all are done"


def test_pods_that_were_there_before_the_run_are_none_of_its_own(tmp_path: Path) -> None:
    seen(tmp_path, ("old", "created"), ("older", "running"))
    found = PodFollower(tmp_path)
    found.skip_existing()
    seen(tmp_path, ("old", "running"), ("older", "succeeded"), ("new", "created"))
    found.update()
    assert (found.seen, found.pending, found.started, found.ended) == (1, 1, 0, 0)


def test_of_a_run_that_is_gone_on_with_only_what_came_after_its_begin_counts(tmp_path: Path) -> None:
    seen(tmp_path, ("old", "created"))
    found = PodFollower(tmp_path)
    found.since_ns = now_ns()
    seen(tmp_path, ("old", "running"), ("new", "created"))
    found.update()
    assert (found.seen, found.pending, found.started) == (1, 1, 0)


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    asked = StopRequest()

    def health() -> ClusterHealth:
        asked.request_stop()
        return ClusterHealth()

    assert drained(follower(tmp_path), DrainTarget(1, 1, 1e6), asked=asked, health=health) == "interrupted"


class ToldSampler:
    """A sampler whose words the test says."""

    def __init__(self, **state: Any) -> None:
        self.told, self.is_running, self.lag = state, True, 0.01

    def lag_s(self) -> float:
        return self.lag

    def state(self) -> dict[str, Any]:
        return self.told


@pytest.mark.parametrize(
    ("later", "trouble"),
    [
        ({"nodes_not_ready": 3}, "2 node(s) stopped being ready"),
        ({"nodes_not_ready": 1, "foreign_evicted": 1}, "1 pod(s) of others were evicted"),
        ({"nodes_not_ready": 1, "foreign_pending": 17}, "10 more pods of others wait for a node than at the start"),
        ({"nodes_not_ready": 1, "foreign_pending": 16}, None),
    ],
)
def test_trouble_is_what_was_not_there_at_the_start(later: dict[str, Any], trouble: str | None, tmp_path: Path) -> None:
    start = {"nodes_not_ready_at_start": 1, "foreign_pending_at_start": 7}
    sampler = ToldSampler(nodes_not_ready=1, foreign_pending=7, away_s=0.0, **start)
    care = HealthCheck(sampler, PodFollower(tmp_path), AbortCriteria())
    assert care().trouble is None
    sampler.told = start | later
    assert care().trouble == trouble


def test_what_happened_before_the_first_look_counts(tmp_path: Path) -> None:
    sampler = ToldSampler(foreign_evicted=1, nodes_not_ready=0, nodes_not_ready_at_start=0)
    assert HealthCheck(sampler, PodFollower(tmp_path), AbortCriteria())().trouble == "1 pod(s) of others were evicted"
    sampler = ToldSampler(nodes_not_ready=1, nodes_not_ready_at_start=0)
    assert HealthCheck(sampler, PodFollower(tmp_path), AbortCriteria())().trouble == "1 node(s) stopped being ready"


def test_criteria_that_are_off_are_not_looked_at(tmp_path: Path) -> None:
    sampler = ToldSampler(nodes_not_ready=0)
    aborts = AbortCriteria(node_not_ready=False, others_pending_growth=None, others_evicted=False)
    care = HealthCheck(sampler, PodFollower(tmp_path), aborts)
    care()
    sampler.told = {"nodes_not_ready": 5, "foreign_evicted": 5, "foreign_pending": 500}
    assert care().trouble is None


def test_a_dead_sampler_is_trouble_and_a_server_that_is_away_is_no_lag(tmp_path: Path) -> None:
    sampler = ToldSampler(away_s=3.0)
    sampler.lag = 9.0
    care = HealthCheck(sampler, PodFollower(tmp_path), AbortCriteria())
    assert care().watch_lag_s is None
    sampler.told = {"away_s": 0.0}
    assert care().watch_lag_s == 9.0
    sampler.is_running = False
    assert care().trouble == "the sampler ended: the cluster is no longer watched"
