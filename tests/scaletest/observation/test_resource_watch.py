"""Watches of a scripted server: whatever breaks them off, nothing is lost, and what happened meanwhile is marked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.scaletest.observation.scripted import CUT, NAMESPACE, PODS, ScriptedApi, pod, scripted, until
from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api import list_watch
from workbench.scaletest.cluster_api.connection import Connection, now_ns
from workbench.scaletest.observation import resource_watch, run_records, watch_targets
from workbench.scaletest.observation.object_ledger import ObjectDecoder, ObjectLedger, Pod, Scope
from workbench.scaletest.observation.resource_watch import ResourceWatch, WatchAbsence, WatchTarget

SCOPE = Scope("pod", "Pod", NAMESPACE)


@dataclass
class Watching:
    """A watch of the scripted pods, and what it has told."""

    api: ScriptedApi
    made: ResourceWatch
    seen: list[run_records.Seen] = field(default_factory=list)
    gaps: list[run_records.Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def told(self) -> list[tuple[str, str]]:
        return [(one.name, one.transition) for one in self.seen]

    async def back(self, count: int = 1) -> None:
        """Wait until so many gaps are written and the watch is there."""

        def settled() -> bool:
            self.made.settle()
            return len(self.gaps) >= count and self.api.watches(PODS) == 1

        await until(settled)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "_LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(resource_watch, "GRACE_NS", 1_000_000)


def prepared(api: ScriptedApi, connection: Connection, **options: Any) -> Watching:
    found = Watching(api, None)  # type: ignore[arg-type]
    target, sink = (
        WatchTarget(SCOPE, PODS, ObjectDecoder(Pod)),
        watch_targets.build_sink(ObjectLedger(found.seen.append), SCOPE),
    )
    found.made = ResourceWatch(connection, target, sink, write=found.gaps.append, note=found.notes.append, **options)
    return found


@asynccontextmanager
async def watching(api: ScriptedApi, connection: Connection, **options: Any) -> AsyncIterator[Watching]:
    api.objects.setdefault(PODS, {})
    found = prepared(api, connection, **options)
    task = asyncio.create_task(found.made.run())
    try:
        await until(lambda: found.made.ready.is_set() or task.done())
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_is_listed_is_marked_and_what_is_watched_is_not() -> None:
    async with scripted() as (api, connection):
        api.put(PODS, pod("old"))
        async with watching(api, connection) as found:
            api.put(PODS, pod("new"))
            api.put(PODS, pod("new", phase="Running", node="n1"))
            await until(lambda: ("new", "running") in found.told())
        assert [(one.name, one.transition, one.gap) for one in found.seen] == [
            ("old", "created", True),
            ("new", "created", False),
            ("new", "scheduled", False),
            ("new", "running", False),
        ]
        assert found.gaps == []


async def test_a_list_of_many_pages_is_read_to_its_end() -> None:
    async with scripted() as (api, connection):
        for number in range(1201):
            api.put(PODS, pod(f"p{number}"))
        async with watching(api, connection) as found:
            await until(lambda: len(found.seen) == 1201)
        pages = [query for path, query in api.asked if path == PODS and "watch" not in query]
        assert [query.get("continue") for query in pages] == [None, "500", "1000"]
        assert all(query["limit"] == "500" for query in pages)


async def test_the_watch_begins_where_the_list_ended_and_asks_for_bookmarks() -> None:
    async with scripted() as (api, connection):
        api.put(PODS, pod("a"))
        async with watching(api, connection):
            await until(lambda: api.watches(PODS) == 1)
        query = next(query for _, query in api.asked if "watch" in query)
        assert query["resourceVersion"] == "101"
        assert query["allowWatchBookmarks"] == "true"
        assert 240 <= int(query["timeoutSeconds"]) <= 420


async def test_after_the_end_of_a_stream_it_goes_on_from_the_last_bookmark() -> None:
    async with scripted() as (api, connection), watching(api, connection) as found:
        api.put(PODS, pod("before"))
        api.bookmark(PODS)
        await until(lambda: found.told() and api.streams[PODS][0].orders.empty())
        api.send(PODS, None)
        await until(lambda: api.watches(PODS) == 0)
        # What happens before the next watch is open is seen by it, and marked.
        api.put(PODS, pod("meanwhile"))
        await found.back()
        api.put(PODS, pod("after"))
        await until(lambda: len(found.seen) == 3)
    assert [(one.name, one.gap) for one in found.seen] == [("before", False), ("meanwhile", True), ("after", False)]
    (gap,) = found.gaps
    assert (gap.resource, gap.reason, gap.relisted, gap.recovered) == ("pod", "end of stream", False, 1)
    assert gap.from_ns <= gap.to_ns
    versions = [query["resourceVersion"] for _, query in api.asked if "watch" in query]
    assert versions == ["100", "102"]  # the pod was 101, the bookmark 102
    assert [one.session for one in found.seen] == [1, 2, 2]


async def test_a_stream_cut_in_the_middle_of_a_line_loses_nothing() -> None:
    async with scripted() as (api, connection), watching(api, connection) as found:
        await until(lambda: api.watches(PODS) == 1)
        half = json.dumps({"type": "ADDED", "object": pod("half")}).encode()[:80]
        whole = api.streams[PODS].copy()
        api.streams[PODS].clear()
        api.put(PODS, pod("half"))
        api.streams[PODS].extend(whole)
        api.send(PODS, half + CUT)
        await found.back()
        await until(lambda: found.told() == [("half", "created")])
    assert found.gaps[0].reason == "server gone"
    assert found.made.garbage == 0


@pytest.mark.parametrize("form", ["status", "event"])
async def test_an_expired_watch_lists_anew_and_finds_what_came_and_what_went(form: str) -> None:
    async with scripted() as (api, connection), watching(api, connection) as found:
        api.put(PODS, pod("stays"))
        api.put(PODS, pod("goes"))
        await until(lambda: len(found.seen) == 2)
        refusal = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        streams = api.streams[PODS].copy()
        api.streams[PODS].clear()
        api.remove(PODS, "uid-goes")
        api.put(PODS, pod("stays", phase="Running", node="n1"))
        api.put(PODS, pod("comes"))
        api.forget()
        api.streams[PODS].extend(streams)
        if form == "event":
            api.send(PODS, json.dumps({"type": "ERROR", "object": refusal}).encode() + b"\n")
        api.send(PODS, None)
        await found.back()
    meanwhile = {(one.name, one.transition) for one in found.seen if one.gap}
    assert meanwhile == {("stays", "scheduled"), ("stays", "running"), ("comes", "created"), ("goes", "deleted")}
    assert sum(gap.recovered for gap in found.gaps) == 4
    assert [(gap.reason, gap.relisted) for gap in found.gaps] == [("expired", True)]


async def test_a_server_error_in_the_stream_goes_on_from_the_same_place_and_lists_anew_when_it_lasts() -> None:
    async with scripted() as (api, connection):
        refusal = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
        line = json.dumps({"type": "ERROR", "object": refusal}).encode() + b"\n"
        async with watching(api, connection) as found:
            for count in range(1, 4):
                await until(lambda: api.watches(PODS) == 1)
                api.send(PODS, line)
                await found.back(count)
            api.put(PODS, pod("after"))
            await until(lambda: ("after", "created") in found.told())
        assert [gap.reason for gap in found.gaps[:3]] == ["error 500"] * 3
        assert [gap.relisted for gap in found.gaps[:3]] == [False, False, True]


async def test_a_server_that_is_gone_for_a_while_is_tried_until_it_is_back() -> None:
    async with scripted() as (api, connection), watching(api, connection) as found:
        await until(lambda: api.watches(PODS) == 1)
        api.refuse[f"list {PODS}"] = [503, 503, 500, 429]
        api.refuse[f"watch {PODS}"] = [503]
        api.send(PODS, CUT)
        await until(lambda: api.watches(PODS) == 0)
        api.put(PODS, pod("meanwhile"))
        assert found.made.away_s() >= 0
        await found.back()
        assert found.made.away_s() == 0
    assert [(one.name, one.gap) for one in found.seen] == [("meanwhile", True)]
    assert not api.refuse[f"list {PODS}"]
    assert not api.refuse[f"watch {PODS}"]
    assert found.gaps[0].reason == "server gone"


async def test_garbage_is_counted_and_told_and_all_is_listed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_watch, "RELIST_EVERY_NS", 0)
    async with scripted() as (api, connection), watching(api, connection) as found:
        await until(lambda: api.watches(PODS) == 1)
        streams = api.streams[PODS].copy()
        api.streams[PODS].clear()
        api.put(PODS, pod("hidden"))
        api.streams[PODS].extend(streams)
        api.send(PODS, b"{]garbage\xff\n")
        await found.back()
        api.put(PODS, pod("after"))
        await until(lambda: len(found.seen) == 2)
    assert found.told() == [("hidden", "created"), ("after", "created")]
    assert found.made.garbage == 1
    assert len(found.notes) == 1
    assert found.gaps[0].reason == "garbage"


async def test_garbage_right_after_a_list_does_not_list_again_and_again() -> None:
    async with scripted() as (api, connection), watching(api, connection) as found:
        await until(lambda: api.watches(PODS) == 1)
        for text in (b"garbage\n", b'{"type":"ADDED","object":[]}\n', b'{"type":"ADDED","object":{}}\n', b"[]\n"):
            api.send(PODS, text)
        api.put(PODS, pod("after"))
        await until(lambda: found.told() == [("after", "created")])
        assert found.made.garbage == 4
        assert found.gaps == []


async def test_a_huge_object_is_read_and_one_beyond_the_bound_is_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.scaletest.cluster_api.connection.MAX_LINE_BYTES", 4 << 20)
    async with scripted() as (api, connection), watching(api, connection) as found:
        api.put(PODS, pod("large", annotations={"text": "x" * (3 << 20)}))
        api.put(PODS, pod("too-large", annotations={"text": "x" * (5 << 20)}))
        api.put(PODS, pod("small"))
        await until(lambda: len(found.seen) == 2)
    assert found.told() == [("large", "created"), ("small", "created")]
    assert found.made.garbage == 1


async def test_a_listed_object_that_cannot_be_read_hides_no_other() -> None:
    async with scripted() as (api, connection):
        odd = pod("odd")
        odd["status"]["phase"] = 7
        api.put(PODS, odd)
        api.put(PODS, pod("good"))
        async with watching(api, connection) as found:
            await until(lambda: found.told() == [("good", "created")])
        assert found.made.garbage == 1
        assert "1 listed objects" in found.notes[0]


async def test_what_a_list_does_not_show_is_not_deleted_while_some_of_it_cannot_be_read() -> None:
    async with scripted() as (api, connection), watching(api, connection) as found:
        api.put(PODS, pod("a"))
        await until(lambda: found.seen)
        api.objects[PODS]["uid-a"]["status"]["phase"] = 7
        api.forget()
        api.send(PODS, None)
        await found.back()
    assert found.told() == [("a", "created")]


@pytest.mark.parametrize("status", [403, 404])
async def test_what_may_be_absent_is_not_watched_and_said(status: int) -> None:
    async with scripted() as (api, connection):
        api.refuse[f"list {PODS}"] = [status]
        async with watching(api, connection, optional=True) as found:
            assert found.made.ready.is_set()
        assert found.notes == [f"pod (Pod) in {NAMESPACE} is not watched: the cluster answers with status {status}"]


async def test_what_must_be_watched_and_is_forbidden_ends_with_advice() -> None:
    async with scripted() as (api, connection):
        api.refuse[f"watch {PODS}"] = [403]
        api.objects[PODS] = {}
        with pytest.raises(ConfigError, match="not allowed to watch") as told:
            await prepared(api, connection).made.run()
        assert "plan --rbac" in str(told.value)


async def test_what_may_only_be_listed_is_listed_now_and_then() -> None:
    async with scripted() as (api, connection):
        api.refuse[f"watch {PODS}"] = [403]
        async with watching(api, connection, poll_s=0.01) as found:
            api.put(PODS, pod("later"))
            await until(lambda: found.told() == [("later", "created")])
        assert "only be listed" in found.notes[0]


async def test_after_a_restart_what_came_meanwhile_is_a_gap_of_the_sampler() -> None:
    async with scripted() as (api, connection):
        api.put(PODS, pod("meanwhile"))
        async with watching(api, connection, away_since_ns=5) as found:
            await found.back()
        (gap,) = found.gaps
        assert (gap.from_ns, gap.reason, gap.relisted, gap.recovered) == (5, "the sampler was not running", True, 1)


async def test_a_watch_that_is_away_at_the_end_writes_its_gap() -> None:
    async with scripted() as (api, connection), watching(api, connection) as found:
        await until(lambda: api.watches(PODS) == 1)
        api.refuse[f"list {PODS}"] = [503] * 1000
        api.send(PODS, CUT)
        await until(lambda: found.made.away_s() > 0)
        found.made.end()
    assert [gap.reason for gap in found.gaps] == ["server gone"]


def made(since_ns: int = 0) -> tuple[WatchAbsence, list[run_records.Gap]]:
    gaps: list[run_records.Gap] = []
    return WatchAbsence("pod", gaps.append, since_ns), gaps


def test_while_the_watch_is_there_nothing_is_in_a_gap() -> None:
    found, gaps = made()
    assert not found.is_open
    assert not found.covers_arrival(5, 5)
    found.settle()
    found.end()
    assert gaps == []


def test_what_is_not_newer_than_the_head_or_comes_at_once_happened_meanwhile() -> None:
    found, gaps = made()
    found.begin(10, "end of stream")
    found.set_head_version(7)
    found.end_absence(20)
    late = 20 + resource_watch.GRACE_NS + 1
    assert found.covers_arrival(late, 7)
    assert found.covers_arrival(20 + resource_watch.GRACE_NS, 8)
    found.count_recovery(2)
    assert gaps == []
    assert not found.covers_arrival(late, 8)
    assert gaps == [run_records.Gap("pod", 10, 20, "end of stream", recovered=2)]
    assert not found.covers_arrival(21, 1)


def test_further_failures_of_a_watch_that_is_away_belong_to_the_same_gap() -> None:
    found, gaps = made()
    found.begin(10, "end of stream")
    found.begin(15, "expired")
    found.begin(17, "server gone")
    assert found.away_s() > 0
    found.record_relist(3)
    found.end_absence(20)
    assert found.away_s() == 0
    found.end()
    assert gaps == [run_records.Gap("pod", 10, 20, "expired", relisted=True, recovered=3)]


def test_a_watch_that_had_been_back_begins_another_gap() -> None:
    found, gaps = made()
    found.begin(10, "server gone")
    found.end_absence(20)
    found.begin(30, "server gone")
    found.end()
    assert [(one.from_ns, one.to_ns == 20) for one in gaps] == [(10, True), (30, False)]


def test_a_gap_is_settled_once_the_grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found, gaps = made(since_ns=3)
    found.settle()
    found.end_absence(now_ns())
    monkeypatch.setattr(resource_watch, "GRACE_NS", 1 << 60)
    found.settle()
    assert gaps == []
    monkeypatch.setattr(resource_watch, "GRACE_NS", -1)
    found.settle()
    assert [(one.from_ns, one.reason) for one in gaps] == [(3, "the sampler was not running")]
