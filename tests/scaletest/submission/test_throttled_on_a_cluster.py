"""On a real control plane that takes two writes at a time and has no fairness: 429s, and all is made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scaletest.conftest import fresh_namespace, programs, start_guarded_cluster
from tests.scaletest.submission.scripted import plan
from workbench.scaletest.cluster_api.connection import Connection, load_target
from workbench.scaletest.local_cluster import identities
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import NodePool
from workbench.scaletest.observation import run_records
from workbench.scaletest.submission import SubmissionLimits, SubmissionOutcome, SubmissionStatus, submit_plan
from workbench.scaletest.submission.submission_status import SilentWatcher

pytestmark = pytest.mark.cluster
RUN, COUNT = "st-00c0ffee", 400
NARROW = {"enable-priority-and-fairness": "false", "max-mutating-requests-inflight": "2"}


@pytest.fixture
def narrow_cluster() -> Iterator[LocalCluster]:
    """One node; two mutating requests at a time, all others are refused with 429."""
    programs()
    with start_guarded_cluster("narrow", pools=[NodePool(nodes=1, gpus=8)], api_arguments=NARROW) as cluster:
        yield cluster


async def allow(on: LocalCluster, namespace: str) -> None:
    """An administrator is never throttled; the measuring identity is, and needs rights."""
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": identities.ACCOUNT, "namespace": identities.NAMESPACE}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"}
    body = {"metadata": {"name": "test"}, "roleRef": role, "subjects": [subject]}
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        await api.json("POST", f"/apis/{rbac}/v1/namespaces/{namespace}/rolebindings", body)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with Connection(load_target(on.measure_kubeconfig, on.measure_context)) as api:
        async with asyncio.timeout(60):
            while (await api.request("GET", path)).status != 200:
                await asyncio.sleep(0.05)


class Windows(SilentWatcher):
    """What the window was."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def show_status(self, live: SubmissionStatus) -> None:
        """Keep it."""
        self.sizes.append(live.window)


def test_a_server_that_is_overrun_gets_all_of_it_at_its_own_pace(narrow_cluster: LocalCluster, tmp_path: Path) -> None:
    windows = Windows()

    async def body(namespace: str) -> SubmissionOutcome:
        await allow(narrow_cluster, namespace)
        on = load_target(narrow_cluster.measure_kubeconfig, narrow_cluster.measure_context)
        items = plan(RUN, COUNT, path=f"/api/v1/namespaces/{namespace}/configmaps")
        async with Connection(on) as api:
            limits = SubmissionLimits(objects=COUNT, rate_per_s=None, in_flight=64)
            return await submit_plan(api, items, tmp_path, run=RUN, limits=limits, watcher=windows)

    space = fresh_namespace(narrow_cluster)
    found = asyncio.run(body(next(space)))
    assert list(space) == []
    assert (found.reason, found.acked, found.failed, found.known) == ("finished", COUNT, 0, 0)
    assert found.throttled > 0
    assert min(windows.sizes) < 32
    acks = [
        one
        for one in run_records.read_lines(tmp_path / run_records.JOURNAL, run_records.JournalLine)
        if isinstance(one, run_records.Acked)
    ]
    waited = [one for one in acks if one.throttled]
    assert waited
    # The server says `Retry-After: 1`; the waiting counts as the workload's latency.
    assert all(one.throttled_ns >= one.throttled * 1_000_000_000 for one in waited)
    assert all(one.at_ns - one.sent_ns >= one.throttled_ns for one in waited)
