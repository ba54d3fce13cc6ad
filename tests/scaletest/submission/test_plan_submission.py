"""Against a scripted stand-in: what is sent, when, how often, and what is written about it."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.making_scenarios import lines_of, scenario
from tests.scaletest.submission.scripted import CREATED, PATH, Act, Post, ScriptedApi, object_of, plan, scripted_api
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario.scenario_file import AbortCriteria, ScenarioLimits
from workbench.scaletest.scenario.workload_objects import ObjectRequest, PlannedWorkload
from workbench.scaletest.scenario.workload_plan import draw_plan
from workbench.scaletest.submission import plan_submission
from workbench.scaletest.submission.abort_criteria import ClusterHealth, StopRequest
from workbench.scaletest.submission.plan_submission import PlanSubmission, SubmissionOutcome, SubmissionStatus
from workbench.scaletest.submission.submission_journal import SubmissionJournal, read_journal

RUN = "st-00c0ffee"
BEGUN = run_records.Begun(RUN, 1, 1)
LOOSE = ScenarioLimits(objects=100_000, rate_per_s=10_000)
Sent = tuple[SubmissionOutcome, ScriptedApi]


def submitted(
    folder: Path,
    items: list[PlannedWorkload],
    script: Callable[[Post], Act] = lambda post: "ok",
    *,
    hold: Callable[[Post], Any] | None = None,
    there: Iterable[ObjectRequest] = (),
    journal: Sequence[run_records.JournalLine] = (),
    limits: ScenarioLimits = LOOSE,
    **options: Any,
) -> Sent:
    """What came of it, and the server afterwards; some objects and lines of the journal are there before."""

    async def body() -> Sent:
        async with scripted_api(script, hold) as (server, api):
            for request in there:
                server.put(request)
            if journal:
                kept = SubmissionJournal(folder)
                await kept.write_durably([*journal])
                kept.close()
            return await PlanSubmission(api, folder, RUN, limits, **options).submit(items), server

    return asyncio.run(asyncio.wait_for(body(), 120))


def test_every_workload_is_made_once_with_its_own_name_and_acknowledged(tmp_path: Path) -> None:
    found, server = submitted(tmp_path, plan(RUN, 200))
    assert server.made.count("st-00c0ffee-0000007") == 1
    assert len(set(server.made)) == len(server.made) == 200
    assert (found.reason, found.acked, found.failed, found.unsent, found.known) == ("finished", 200, 0, 0, 0)
    assert found.complete
    acks = lines_of(tmp_path, run_records.Acked)
    assert sorted(one.index for one in acks) == list(range(200))
    assert {(one.status, one.created, one.attempts) for one in acks} == {(201, CREATED, 1)}
    assert all(one.uid for one in acks)


def test_what_a_workload_owns_comes_after_it_with_its_uid_also_when_it_was_made_before(tmp_path: Path) -> None:
    job, claim = {"kind": "Job", "gpus": 0}, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"of": "${name}"}}
    items = list(draw_plan(scenario(job | {"owned": [claim]}), run=RUN).iterate_workloads())[:3]
    # As if a killed client had made the first job, and nothing of what it owns.
    found, server = submitted(tmp_path, items, there=[items[0].requests()[0]])
    assert (found.acked, found.failed) == (3, 0)
    objects = {path.rpartition("/")[2]: one for path, one in server.objects.items()}
    assert len(objects) == 6
    for item in items:
        owner, owned = objects[item.name], objects[f"{item.name}-o0"]
        assert owned["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
        assert (owned["kind"], owned["data"]) == ("ConfigMap", {"of": item.name})
        assert owned["metadata"]["labels"] == owner["metadata"]["labels"]
    # The workload is its own object, and not what it owns.
    uids = {one.index: one.uid for one in lines_of(tmp_path, run_records.Acked)}
    assert uids == {item.index: objects[item.name]["metadata"]["uid"] for item in items}


def test_an_intent_is_on_disk_before_its_request_comes(tmp_path: Path) -> None:
    missing = []

    async def hold(post: Post) -> None:
        if int(post.name[-7:]) not in {one.index for one in lines_of(tmp_path, run_records.Intent)}:
            missing.append(post.name)

    submitted(tmp_path, plan(RUN, 60, every_s=0.002), hold=hold)
    assert not missing


def test_the_open_loop_does_not_wait_for_a_server_that_is_slow(tmp_path: Path) -> None:
    # None is answered before all have come.
    together = asyncio.Barrier(20)
    found, server = submitted(tmp_path, plan(RUN, 20, every_s=0.005), hold=lambda post: together.wait())
    assert (found.acked, server.in_flight_most, found.in_flight_most) == (20, 20, 20)


def test_requests_in_flight_are_limited_and_the_intended_time_stays(tmp_path: Path) -> None:
    limits = ScenarioLimits(objects=100, rate_per_s=10_000, in_flight=2)
    found, server = submitted(tmp_path, plan(RUN, 10), hold=lambda post: asyncio.sleep(0.02), limits=limits)
    assert (found.acked, server.in_flight_most) == (10, 2)
    # Five rounds of 20 ms: the last pair was due at 0 and went out after four of them.
    assert found.lateness_p99_s is not None
    assert found.lateness_p99_s >= 0.08


def test_a_429_is_waited_for_as_long_as_the_server_says_and_counted(tmp_path: Path) -> None:
    def script(post: Post) -> Act:
        return (429, 0.3) if post.attempt <= 2 and post.name.endswith("3") else "ok"

    found, server = submitted(tmp_path, plan(RUN, 5), script)
    posts = [one for one in server.posts if one.name.endswith("3")]
    assert (found.acked, found.throttled, found.failed) == (5, 2, 0)
    assert [later.at_s - earlier.at_s >= 0.3 for earlier, later in itertools.pairwise(posts)] == [True, True]
    acked = next(one for one in lines_of(tmp_path, run_records.Acked) if one.index == 3)
    assert (acked.attempts, acked.throttled) == (3, 2)
    assert acked.throttled_ns >= 600_000_000
    assert acked.at_ns - acked.sent_ns >= acked.throttled_ns


def test_what_a_server_may_ask_us_to_wait_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_submission, "LONGEST_WAIT_S", 0.05)
    script: Callable[[Post], Act] = lambda post: (429, 86_400.0) if post.attempt == 1 else "ok"  # noqa: E731
    assert submitted(tmp_path, plan(RUN, 3), script)[0].acked == 3


def test_a_server_that_takes_two_at_a_time_gets_all_and_the_window_shrinks(tmp_path: Path) -> None:
    seen: list[SubmissionStatus] = []
    inside = 0

    class Watching:
        def show_status(self, live: SubmissionStatus) -> None:
            seen.append(live)

        def say(self, line: str) -> None:
            raise AssertionError(line)

    async def hold(post: Post) -> None:
        nonlocal inside
        inside += 1
        await asyncio.sleep(0.005)

    def script(post: Post) -> Act:
        nonlocal inside
        inside -= 1
        return (429, 0.01) if inside >= 2 else "ok"

    found, _ = submitted(tmp_path, plan(RUN, 150), script, hold=hold, watcher=Watching())
    assert (found.acked, found.failed) == (150, 0)
    assert found.throttled > 0
    assert min(one.window for one in seen) < 8


@pytest.mark.parametrize("act", ["reset", "lost", 500, 503, (409, "Conflict", "the quota was changed")])
def test_lost_answers_and_errors_are_tried_again_and_make_nothing_twice(act: Act, tmp_path: Path) -> None:
    found, server = submitted(tmp_path, plan(RUN, 8), lambda post: act if post.attempt == 1 else "ok")
    assert (found.acked, found.failed, len(server.objects)) == (8, 0, 8)
    assert set(Counter(server.made).values()) == {1}
    assert found.known == (8 if act == "lost" else 0)
    acks = lines_of(tmp_path, run_records.Acked)
    assert {one.status for one in acks} == ({409} if act == "lost" else {201})
    assert all(one.uid for one in acks)


def test_what_the_server_refuses_for_good_is_told_in_its_words_and_not_tried_again(tmp_path: Path) -> None:
    def script(post: Post) -> Act:
        return (422, "Invalid", "spec.containers: Required value") if post.name.endswith("1") else "ok"

    found, server = submitted(tmp_path, plan(RUN, 4), script)
    assert (found.acked, found.failed, found.unsent) == (3, 1, 0)
    assert sum(one.name.endswith("1") for one in server.posts) == 1
    assert not found.complete
    failed = [(one.index, one.status, one.reason) for one in lines_of(tmp_path, run_records.Failed)]
    assert failed == [(1, 422, "Invalid: spec.containers: Required value")]
    assert found.first_failure == "422 Invalid: spec.containers: Required value"


def test_a_refusal_after_a_lost_answer_is_believed_only_when_the_object_is_not_there(tmp_path: Path) -> None:
    """What was made counts against the quota, which then refuses it: so it is with the first, not with the second."""
    first = {"st-00c0ffee-0000000": "lost", "st-00c0ffee-0000001": "reset"}
    refusal = (422, "Invalid", "exceeded quota")
    found, server = submitted(tmp_path, plan(RUN, 2), lambda post: first[post.name] if post.attempt == 1 else refusal)
    assert server.made == ["st-00c0ffee-0000000"]
    assert (found.acked, found.known, found.failed) == (1, 1, 1)
    assert [(one.index, one.known) for one in lines_of(tmp_path, run_records.Acked)] == [(0, True)]
    assert [(one.index, one.status) for one in lines_of(tmp_path, run_records.Failed)] == [(1, 422)]


def test_a_refusal_that_was_not_believed_is_tried_again_by_who_goes_on(tmp_path: Path) -> None:
    asked = StopRequest()

    def script(post: Post) -> Act:
        if post.attempt == 1:
            return "reset"
        if post.attempt == 2:
            asked.request_stop()
        return (403, "Forbidden", "RBAC: not found")

    assert submitted(tmp_path, plan(RUN, 1), script, asked=asked)[0].reason == "interrupted"
    assert (read_journal(tmp_path).open, read_journal(tmp_path).refused) == ({0}, set())


def test_a_server_that_comes_up_again_and_does_not_know_our_rights_yet_loses_nothing(tmp_path: Path) -> None:
    steps: list[Act] = ["reset", (403, "Forbidden", 'RBAC: clusterrole "measure" not found'), (404, "", ""), "ok"]
    found, _ = submitted(tmp_path, plan(RUN, 5), lambda post: steps[min(post.attempt, len(steps)) - 1])
    assert (found.acked, found.failed) == (5, 0)


def test_a_plan_that_is_refused_as_a_whole_ends_early(tmp_path: Path) -> None:
    refusal = (403, "Forbidden", "may not create jobs")
    found, _ = submitted(tmp_path, plan(RUN, 5000, every_s=0.002), lambda post: refusal)
    assert found.aborted
    assert "were all refused: 403 may not create jobs" in found.reason
    assert found.unsent > 4000


def test_an_object_of_somebody_else_under_our_name_ends_the_run(tmp_path: Path) -> None:
    theirs = object_of("st-0badf00d", "st-00c0ffee-0000002")
    found, server = submitted(tmp_path, plan(RUN, 500, every_s=0.001), there=[theirs])
    assert found.reason == "aborted: an object named st-00c0ffee-0000002 exists and does not belong to this run"
    labels = server.objects[f"{PATH}/st-00c0ffee-0000002"]["metadata"]["labels"]
    assert labels["workbench.local/run-id"] == "st-0badf00d"
    assert [one.reason for one in lines_of(tmp_path, run_records.Stopped)] == [found.reason]


def test_an_object_of_this_run_from_another_plan_ends_it_too(tmp_path: Path) -> None:
    other = object_of(RUN, "st-00c0ffee-0000000", spec="hash-of-another-plan")
    assert "made from another plan of this run" in submitted(tmp_path, plan(RUN, 1), there=[other])[0].reason


def test_a_workload_of_several_objects_is_made_in_order_and_acknowledged_with_the_last(tmp_path: Path) -> None:
    found, server = submitted(tmp_path, plan(RUN, 2, members=4))
    assert (found.acked, found.objects) == (2, 8)
    name = "st-00c0ffee-0000000"
    assert [one for one in server.made if one.startswith(name)] == [f"{name}.0", f"{name}.1", f"{name}.2", name]
    acked = next(one for one in lines_of(tmp_path, run_records.Acked) if one.index == 0)
    assert (acked.uid, acked.attempts) == (server.objects[f"{PATH}/{name}"]["metadata"]["uid"], 4)


def test_a_resumed_run_goes_on_within_a_workload_of_several_objects(tmp_path: Path) -> None:
    items = plan(RUN, 1, members=4)
    journal: list[run_records.JournalLine] = [BEGUN, run_records.Intent(0, 1)]
    found, server = submitted(tmp_path, items, there=items[0].requests()[:2], journal=journal)
    assert server.made == ["st-00c0ffee-0000000.2", "st-00c0ffee-0000000"]
    assert (found.acked, found.known, found.resumed) == (1, 0, True)


async def test_a_resumed_run_sends_only_what_is_missing_and_keeps_its_origin(tmp_path: Path) -> None:
    items = plan(RUN, 1200, every_s=0.0001)
    async with scripted_api() as (server, api):
        first = await PlanSubmission(api, tmp_path, RUN, LOOSE).submit(items[:700])
        # As a kill leaves it: the last acknowledgements are not written, the last line is cut.
        path = tmp_path / run_records.JOURNAL
        kept = [one for one in path.read_bytes().splitlines(keepends=True) if not re.search(rb'"index":69\d,', one)]
        kept += [b'{"type":"intent","index":69%d,"at_ns":1}\n' % n for n in range(10)]
        path.write_bytes(b"".join(kept) + b'{"type":"intent","ind')
        second = await PlanSubmission(api, tmp_path, RUN, LOOSE).submit(items)
    assert len(server.made) == len(set(server.made)) == 1200
    assert (second.acked, second.known, second.resumed, second.unsent) == (1200, 10, True, 0)
    assert second.origin_ns == first.origin_ns
    assert [query["limit"] for query in server.lists] == ["500", "500"]
    begun = lines_of(tmp_path, run_records.Begun)
    assert [(one.resumed, one.origin_ns) for one in begun] == [(False, first.origin_ns), (True, first.origin_ns)]
    assert read_journal(tmp_path).acked == set(range(1200))


def test_what_was_due_before_a_resumed_process_began_is_told_as_overdue_and_not_as_late(tmp_path: Path) -> None:
    found, _ = submitted(tmp_path, plan(RUN, 30), journal=[BEGUN])
    assert (found.acked, found.overdue, found.lateness_p99_s) == (30, 30, None)


def test_a_finished_run_that_is_resumed_sends_nothing(tmp_path: Path) -> None:
    submitted(tmp_path, plan(RUN, 5))
    found, server = submitted(tmp_path, plan(RUN, 5))
    assert (found.reason, found.acked, server.posts) == ("finished", 5, [])


def test_refused_workloads_are_not_sent_again_but_lost_ones_are(tmp_path: Path) -> None:
    failed = [("Invalid", 422), ("no answer", None), ("InternalError", 500)]
    journal: list[run_records.JournalLine] = [BEGUN, *(run_records.Intent(n, 1) for n in range(3))]
    journal += [run_records.Failed(n, 1, 1, *words) for n, words in enumerate(failed)]
    found, server = submitted(tmp_path, plan(RUN, 3), journal=journal)
    assert sorted(server.made) == ["st-00c0ffee-0000001", "st-00c0ffee-0000002"]
    assert (found.acked, found.failed) == (2, 1)


def test_a_journal_of_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another submission"):
        submitted(tmp_path, plan(RUN, 1), journal=[run_records.Begun("st-0badf00d", 1, 1)])


def test_two_processes_do_not_submit_in_one_folder(tmp_path: Path) -> None:
    journal = SubmissionJournal(tmp_path)
    try:
        with pytest.raises(ConfigError, match="another process is submitting"):
            submitted(tmp_path, plan(RUN, 1))
    finally:
        journal.close()


def test_ctrl_c_stops_submission_and_lets_what_is_under_way_end(tmp_path: Path) -> None:
    asked, release, came = StopRequest(), asyncio.Event(), itertools.count(1)

    async def hold(post: Post) -> None:
        if next(came) == 5:
            asked.request_stop()
            # Long enough for fifteen more.
            await asyncio.sleep(0.15)
            release.set()
        await release.wait()

    found, _ = submitted(tmp_path, plan(RUN, 100, every_s=0.01), hold=hold, asked=asked)
    assert found.reason == "interrupted"
    assert 5 <= found.acked < 100
    assert (found.unsent, found.failed) == (100 - found.acked, 0)


def test_the_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    asked, came = StopRequest(), itertools.count(1)

    async def hold(post: Post) -> None:
        if next(came) == 10:
            asked.request_stop()
            asked.request_stop()
        await asyncio.Event().wait()

    found, _ = submitted(tmp_path, plan(RUN, 10), hold=hold, asked=asked)
    assert (found.reason, found.acked, found.unsent) == ("interrupted", 0, 10)
    assert read_journal(tmp_path).open == set(range(10))


def test_who_asked_before_the_first_request_gets_none(tmp_path: Path) -> None:
    asked = StopRequest()
    asked.request_stop()
    found, server = submitted(tmp_path, plan(RUN, 100), asked=asked)
    assert (found.reason, found.unsent, server.posts) == ("interrupted", 100, [])
    assert read_journal(tmp_path).open == set()


@pytest.mark.parametrize("part", ["watcher", "health"])
def test_submission_does_not_go_on_when_nobody_looks_after_it_any_more(part: str, tmp_path: Path) -> None:
    came: list[Post] = []

    class Broken:
        def show_status(self, live: SubmissionStatus) -> None:
            if part == "watcher":
                raise BrokenPipeError("nobody reads this terminal any more")

        def say(self, line: str) -> None:
            """Nothing."""

    def health() -> ClusterHealth:
        if part == "health":
            raise BrokenPipeError("nobody tells any more")
        return ClusterHealth()

    def script(post: Post) -> Act:
        came.append(post)
        return "ok"

    with pytest.raises(BrokenPipeError, match="any more"):
        submitted(tmp_path, plan(RUN, 100, every_s=60), script, watcher=Broken(), health=health)
    assert len(came) == 1
    assert lines_of(tmp_path, run_records.Stopped) == []


def test_when_it_ends_a_lost_answer_is_looked_up_once_more(tmp_path: Path) -> None:
    asked = StopRequest()

    def script(post: Post) -> Act:
        asked.request_stop()
        return "lost"

    found, server = submitted(tmp_path, plan(RUN, 1), script, asked=asked)
    assert len(server.objects) == 1
    assert (found.acked, found.failed) == (1, 0)


def test_no_more_objects_are_made_than_allowed(tmp_path: Path) -> None:
    limits = ScenarioLimits(objects=10, rate_per_s=10_000)
    found, server = submitted(tmp_path, plan(RUN, 20, members=3), limits=limits)
    assert (found.reason, found.acked, len(server.made)) == ("limit: 10 objects", 3, 9)


def test_submission_ends_at_its_wall_clock(tmp_path: Path) -> None:
    limits = LOOSE.model_copy(update={"wall_clock_s": 0.3})
    found, _ = submitted(tmp_path, plan(RUN, 100, every_s=10), limits=limits)
    assert (found.reason, found.acked, found.unsent) == ("limit: 0.3 s of submitting", 1, 99)


@pytest.mark.parametrize(
    ("health", "reason"),
    [
        (ClusterHealth(pending_pods=51), "limit: 51 pods wait for a node, 50 may"),
        (ClusterHealth(watch_lag_s=6.25), "aborted: the watch lag is 6.2 s"),
        (ClusterHealth(trouble="node sim-3 is not ready any more"), "aborted: node sim-3 is not ready any more"),
    ],
)
def test_what_the_sampler_tells_ends_submission(health: ClusterHealth, reason: str, tmp_path: Path) -> None:
    limits = ScenarioLimits(rate_per_s=10_000, pending_pods=50)
    found, _ = submitted(tmp_path, plan(RUN, 100, every_s=10), limits=limits, health=lambda: health)
    assert found.reason == reason


def test_nothing_created_for_long_ends_it_and_429s_alone_do_not(tmp_path: Path) -> None:
    limits = LOOSE.model_copy(update={"wall_clock_s": 1.0})
    options: dict[str, Any] = {"limits": limits, "aborts": AbortCriteria(no_create_s=0.4)}
    failing, _ = submitted(tmp_path, plan(RUN, 5), lambda post: 500, **options)
    assert failing.reason == "aborted: no object was created for 0.4 s"
    (tmp_path / "b").mkdir()
    throttled, _ = submitted(tmp_path / "b", plan(RUN, 5), lambda post: (429, 0.01), **options)
    assert throttled.reason == "limit: 1 s of submitting"
    assert (throttled.failed, throttled.unsent) == (5, 0)


@pytest.mark.parametrize("count", [21, 5])
def test_a_closed_loop_waits_for_each_burst_and_sends_exactly_all(count: int, tmp_path: Path) -> None:
    found, server = submitted(tmp_path, plan(RUN, count), burst_size=8, burst_delay_s=0.02)
    assert (found.acked, server.in_flight_most <= 8, len(server.posts)) == (count, True, count)
    for later in server.posts[8:9]:
        assert later.at_s - max(one.at_s for one in server.posts[:8]) >= 0.02


def test_a_disk_that_takes_no_journal_ends_it_before_anything_is_sent(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    (tmp_path / run_records.JOURNAL).symlink_to("/dev/full")
    came: list[Post] = []
    with pytest.raises(Exception, match="cannot write the journal"):
        submitted(tmp_path, plan(RUN, 3), hold=came.append)
    assert came == []


def test_the_token_reaches_the_server_and_no_file(tmp_path: Path) -> None:
    def script(post: Post) -> Act:
        return (422, "Invalid", "no") if post.name.endswith("1") else "lost" if post.attempt == 1 else "ok"

    assert submitted(tmp_path, plan(RUN, 6), script)[1].tokens == {"Bearer canary-token-5f2c"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"canary-token" in path.read_bytes()]
