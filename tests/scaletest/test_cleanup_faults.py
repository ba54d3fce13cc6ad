"""Cleanup against a scripted API server: faults that a real one cannot be brought to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from tests.scaletest import serving
from tests.scaletest.making_scenarios import RUN
from workbench.core.errors import ConfigError, InputError
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.commands import cleanup as command
from workbench.scaletest.safety import run_cleanup
from workbench.scaletest.safety.run_cleanup import RECORD_LABEL, CleanupResult, build_record_name, list_run_records
from workbench.scaletest.scenario.workload_objects import PODS

SPACE = "tests"
FORGED = {"metadata": {"name": "workbench-run-st-00000000", "namespace": SPACE}, "data": {}}


class Scripted:
    """A scripted collection of pods; `faults` are answered first, one a request."""

    def __init__(self, count: int, *, limits: bool = True, faults: tuple[int, ...] = (), denied: bool = False) -> None:
        self.pods = [f"p-{number:04d}" for number in range(count)]
        self.limits, self.faults, self.denied = limits, list(faults), denied
        self.deletions: list[dict[str, str]] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.accepted: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        """One request."""
        path = request.path
        if path == f"/api/v1/namespaces/{SPACE}":
            return web.json_response({"metadata": {"name": SPACE, "labels": {api_discovery.ALLOW: "true"}}})
        records = request.query.get("labelSelector") == f"{RECORD_LABEL}=true"
        if (key := path + ("?records" if records else "")) in self.answers:
            status, body = self.answers[key]
            return web.json_response(body, status=status)
        if not path.endswith("/pods"):
            return web.json_response({"reason": "NotFound"}, status=404)
        if self.faults:
            status = self.faults.pop(0)
            return web.json_response({}, status=status, headers={"Retry-After": "0"})
        query = dict(request.query)
        assert query["labelSelector"] == api_discovery.build_run_selector(RUN)
        self.accepted.add(request.headers["Accept"])
        if request.method == "GET":
            return self._page(query)
        return self._delete(query)

    def _page(self, query: dict[str, str], *, goes: bool = False) -> web.Response:
        begin = int(query.get("continue") or 0)
        end = begin + int(query["limit"]) if self.limits or not goes else len(self.pods)
        page = self.pods[begin:end]
        about = {"continue": str(end)} if end < len(self.pods) and self.limits else {}
        return web.json_response({"metadata": about, "items": [{"metadata": {"name": name}} for name in page]})

    def _delete(self, query: dict[str, str]) -> web.Response:
        if self.denied:
            return web.json_response({"message": "no"}, status=403)
        self.deletions.append(query)
        count = int(query["limit"]) if self.limits else len(self.pods)
        gone, self.pods = self.pods[:count], self.pods[count:]
        about = {"continue": "0"} if self.pods else {}
        return web.json_response({"metadata": about, "items": [{"metadata": {"name": name}} for name in gone]})


def cleaned(scripted: Scripted, *spaces: str, **options: Any) -> CleanupResult:
    """What a cleanup of pods gives."""
    wanted = spaces or (SPACE,)
    chosen = {"rate_per_s": 1e6} | options
    return served(scripted, lambda api: run_cleanup.delete_run_objects(api, RUN, wanted, [PODS], **chosen))


def served(scripted: Scripted, work: Callable[[Connection], Awaitable[CleanupResult]]) -> CleanupResult:
    """What comes of some work with the scripted server."""

    async def run() -> CleanupResult:
        async with serving.served(scripted.answer) as url, Connection(Target(url, "scripted", None, dict)) as api:
            return await work(api)

    return asyncio.run(run())


def test_no_call_deletes_more_than_a_batch() -> None:
    scripted = Scripted(1234)
    assert cleaned(scripted).complete
    assert len(scripted.deletions) == 13
    assert {one["limit"] for one in scripted.deletions} == {str(run_cleanup.BATCH_SIZE)}


def test_a_server_that_deletes_all_at_once_is_fine_too() -> None:
    scripted = Scripted(300, limits=False)
    assert cleaned(scripted).complete
    assert len(scripted.deletions) == 1


def test_names_are_asked_for_and_no_bodies() -> None:
    scripted = Scripted(3)
    cleaned(scripted)
    assert all("PartialObjectMetadataList" in one for one in scripted.accepted)


@pytest.mark.parametrize("faults", [(429, 429), (500,), (503, 429, 500)])
def test_a_busy_server_is_asked_again(faults: tuple[int, ...]) -> None:
    found = cleaned(Scripted(150, faults=faults))
    assert found.complete
    assert found.found == {f"{SPACE}/pods": 150}


def test_a_deletion_that_is_not_allowed_is_told() -> None:
    with pytest.raises(ApiError, match="refused a request of the cleanup"):
        cleaned(Scripted(2, denied=True))


def test_a_finalizer_that_holds_objects_is_named_with_what_to_do() -> None:
    def head(name: str, **more: Any) -> dict[str, Any]:
        return {"metadata": {"name": name, **more}}

    held = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/held"]}
    scripted = Scripted(0)
    pods = [head("p-0", **held), head("p-1", **held), head("p-2", finalizers=["example.org/later"])]
    scripted.answers[f"/api/v1/namespaces/{SPACE}/pods"] = (200, {"metadata": {}, "items": pods})
    found = cleaned(scripted, stalled_s=0.01)
    assert found.stuck == {f"{SPACE}/pods p-{number}": ("example.org/held",) for number in range(2)}
    told = command.format_cleanup(found)
    assert "finalizer example.org/held holds tests/pods p-0 and 1 more: its controller has not taken it off" in told
    assert "kubectl patch pods p-0 -n tests" in told
    assert "example.org/later" not in told


def test_the_pace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(delay: float, result: object = None) -> object:
        slept.append(delay)
        return await real(0)

    monkeypatch.setattr(run_cleanup.asyncio, "sleep", sleep)
    assert cleaned(Scripted(500), rate_per_s=100).complete
    # Five batches of a hundred: a second each, less what the call itself took.
    waits = [one for one in slept if one > 0]
    assert len(waits) == 5
    assert all(0.2 < one <= 1 for one in waits)


def test_a_namespace_that_is_gone_keeps_nothing_from_being_cleaned() -> None:
    found = cleaned(Scripted(3), SPACE, "gone")
    assert (found.found, found.gone, found.complete) == ({f"{SPACE}/pods": 3}, ("gone",), True)


def test_what_may_not_be_looked_at_is_told_and_the_rest_is_cleaned() -> None:
    scripted = Scripted(3)
    scripted.answers["/api/v1/namespaces/closed"] = (403, {})
    found = cleaned(scripted, "closed", SPACE)
    assert scripted.pods == []
    assert (found.left, found.unseen, found.complete) == ({}, ("closed",), False)
    told = command.format_cleanup(found)
    assert "namespace closed" in told
    assert "UNKNOWN" in told
    assert "3 objects" in told


def test_where_no_namespace_is_there_nothing_is_called_clean() -> None:
    """A name that was mistyped."""
    with pytest.raises(ConfigError, match="was not begun"):
        cleaned(Scripted(3), "gone")


def record(run: str, *spaces: str) -> dict[str, Any]:
    """A ConfigMap as a run leaves it."""
    kinds = [["", "v1", "pods"]]
    data = {"run": run, "scenario": "a", "created_at": "2026-01-01", "namespaces": spaces, "kinds": kinds}
    return {"metadata": {"name": build_record_name(run), "namespace": SPACE}, "data": {"record.json": json.dumps(data)}}


def test_the_record_of_another_run_that_is_none_is_in_nobodys_way() -> None:
    scripted = Scripted(3)
    path = f"/api/v1/namespaces/{SPACE}/configmaps"
    scripted.answers[path + "?records"] = (200, {"items": [FORGED]})
    scripted.answers[f"{path}/{build_record_name(RUN)}"] = (200, record(RUN, SPACE, "gone"))
    found = served(scripted, lambda api: run_cleanup.delete_recorded_run(api, RUN, ("other", SPACE)))
    assert (found.namespaces, found.gone, found.complete) == ((SPACE, "gone"), ("gone",), True)
    assert scripted.pods == []


def test_a_forged_record_hides_no_other_from_the_list() -> None:
    scripted = Scripted(3)
    items = [FORGED, record(RUN, "kube-system"), record("st-00000001", SPACE)]
    scripted.answers[f"/api/v1/namespaces/{SPACE}/configmaps?records"] = (200, {"items": items})
    refused: list[InputError] = []
    found = served(scripted, lambda api: list_run_records(api, (SPACE,), refused.append))
    assert [one.run for one in found] == ["st-00000001"]
    assert [("st-00000000" in str(one), RUN in str(one)) for one in refused] == [(True, False), (False, True)]
    with pytest.raises(InputError, match="not a record of a run"):
        served(scripted, lambda api: list_run_records(api, (SPACE,)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"run": "st-00000000"}, "not the record of this run"),
        ({"run": "*"}, "not a run's id"),
        ({"namespaces": ["kube-system"]}, "not a namespace of tests"),
        ({"kinds": [["", "v1/namespaces/default", "pods"]]}, "not a resource"),
        ({"kinds": 5}, "not a record of a run"),
    ],
    ids=["another run", "any run", "namespace", "kind", "type"],
)
def test_a_forged_record_leads_nowhere(change: dict[str, Any], told: str) -> None:
    scripted = Scripted(3)
    forged = record(RUN, SPACE)
    forged["data"]["record.json"] = json.dumps(json.loads(forged["data"]["record.json"]) | change)
    scripted.answers[f"/api/v1/namespaces/{SPACE}/configmaps/{build_record_name(RUN)}"] = (200, forged)
    with pytest.raises(InputError, match=told):
        served(scripted, lambda api: run_cleanup.delete_recorded_run(api, RUN, (SPACE,)))
    assert len(scripted.pods) == 3
