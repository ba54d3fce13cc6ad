"""What the cluster lacks for a plan: room in a quota, resources, a queue that lets suspended objects go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tests.scaletest.making_scenarios import RUN, scenario
from tests.scaletest.observation.scripted import scripted
from tests.scaletest.serving import served
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api.connection import MAX_TRIES, Connection
from workbench.scaletest.safety.cluster_facts import Finding
from workbench.scaletest.safety.preflight import (
    _check_dry_run,
    _check_quota_fit,
    _check_suspensions,
    _list_absent_resources,
)
from workbench.scaletest.scenario.workload_plan import draw_plan

ROOM = {"count/pods": "100", "count/jobs.batch": "100"}


def room(gpus: str, used: str = "0", **entry: Any) -> Finding:
    """What is found of a quota of GPUs for 20 Jobs in two seconds, of 2 GPUs each."""
    plan = draw_plan(scenario({"kind": "Job", "gpus": 2, **entry}), RUN)
    quota = {"spec": {"hard": ROOM | {"requests.nvidia.com/gpu": gpus}}}
    quota["status"] = {"used": {"requests.nvidia.com/gpu": used}}
    return _check_quota_fit(plan, plan.namespaces[0], [quota], [{}])


@pytest.mark.parametrize(
    ("gpus", "more", "level", "told"),
    [
        ("40", {}, "ok", "with room for the plan"),
        ("39", {}, "refused", "requests.nvidia.com/gpu: 39 free, 40 needed"),
        ("40", {"used": "1"}, "refused", "39 free, 40 needed"),
        # Each ends before the eleventh comes: 20 GPUs at a time, 40 in all.
        (
            "20",
            {"lifetime": 0.95},
            "warning",
            "does not cover all pods at the same time: requests.nvidia.com/gpu: 20 free, 40",
        ),
        ("19", {"lifetime": 0.95}, "refused", "19 free, 20 needed"),
    ],
)
def test_the_quota_of_gpus_is_held_against_what_pods_ask_for(
    gpus: str, more: dict[str, Any], level: str, told: str
) -> None:
    found = room(gpus, **more)
    assert found.level == level
    assert told in found.text


def test_pods_that_a_limit_range_refuses_are_told_before_the_run() -> None:
    plan = draw_plan(scenario({"kind": "Job", "memory": "4Gi"}), RUN)
    quota = {"spec": {"hard": ROOM}, "status": {}}
    limit = {"type": "Container", "max": {"memory": "1Gi", "cpu": "8"}}
    found = _check_quota_fit(plan, plan.namespaces[0], [quota], [{"spec": {"limits": [limit]}}])
    assert found.level == "refused"
    assert found.text.endswith("asks for 4 GiB of memory, and a LimitRange allows 1Gi")
    limit["max"] = {"memory": "4Gi"}
    assert _check_quota_fit(plan, plan.namespaces[0], [quota], [{"spec": {"limits": [limit]}}]).level == "ok"


def test_a_share_of_a_gpu_is_no_request_of_one() -> None:
    plan = draw_plan(scenario({"kind": "Job", "fraction": 0.5}, schedulers=["kai"]), RUN)
    quota = {"spec": {"hard": ROOM | {"requests.nvidia.com/gpu": "0"}}}
    assert _check_quota_fit(plan, plan.namespaces[0], [quota], [{}]).level == "ok"


def training(**head: Any) -> dict[str, Any]:
    """An entry of an operator's kind, which the scripted cluster has in version v1."""
    template = {"apiVersion": "example.com/v1", "kind": "Training", "spec": {"suspend": True}} | head
    return {"kind": "Template", "template": template, "pods_at": []}


@pytest.mark.parametrize(
    ("entry", "absent"),
    [
        (training(), []),
        (training(apiVersion="example.com/v2"), ["example.com/v2/trainings"]),
        (training(apiVersion="other.com/v1"), ["other.com/v1/trainings"]),
        (training(kind="Tuning"), ["example.com/v1/tunings"]),
    ],
)
def test_resources_that_the_cluster_does_not_serve_are_named(entry: dict[str, Any], absent: list[str]) -> None:
    plan = draw_plan(scenario(entry), RUN)

    async def ask() -> list[str]:
        async with scripted() as (api, connection):
            api.cluster()
            return [str(kind) for kind in await _list_absent_resources(connection, plan)]

    assert asyncio.run(ask()) == absent


@pytest.mark.parametrize(("schedulers", "n_findings"), [(["default"], 1), (["kueue"], 0)])
def test_an_entry_that_is_made_suspended_is_named_unless_a_recipe_queues_it(
    schedulers: list[str], n_findings: int
) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "template": {"spec": {"containers": []}}}}
    made = scenario({"kind": "Template", "template": job}, schedulers=schedulers)
    found = _check_suspensions(draw_plan(made, RUN))
    assert [(one.level, one.text) for one in found] == n_findings * [
        ("warning", "template-0: made suspended and without a queue, so nothing makes their pods")
    ]


@pytest.mark.parametrize(
    ("busy", "level", "told"),
    [
        (3, "ok", "accepts a workload of job-0"),
        (MAX_TRIES, "refused", "not known whether the API server accepts a workload of job-0"),
    ],
)
def test_a_dry_run_that_is_throttled_is_tried_again_and_is_no_refusal(busy: int, level: str, told: str) -> None:
    statuses = [429] * busy + [201]

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({}, status=statuses.pop(0), headers={"Retry-After": "0"})

    async def check() -> list[Finding]:
        async with served(answer) as url, Connection(Target(url, "scripted", None, dict)) as api:
            return await _check_dry_run(api, draw_plan(scenario(), RUN))

    (found,) = asyncio.run(check())
    assert found.level == level
    assert told in found.text
