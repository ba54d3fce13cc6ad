"""On a real control plane: killed again and again, nothing is made twice and nothing is missing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Self

import psutil
import pytest

from tests.conftest import ROOT
from tests.scaletest.submission.killed import MEMBERS, RUN, WORKLOADS
from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.connection import Connection, load_target
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.observation import run_records
from workbench.scaletest.submission import object_creation
from workbench.scaletest.submission.object_creation import Metadata

pytestmark = pytest.mark.cluster
KILLS = 20
HANG_S = 120.0


class Submissions:
    """Submissions one after the other, in one folder."""

    def __init__(self, cluster: LocalCluster, namespace: str, folder: Path) -> None:
        words = ["-m", "tests.scaletest.submission.killed", str(cluster.kubeconfig), namespace, str(folder)]
        self._server = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._path = folder / run_records.JOURNAL

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.kill()
        self._server.communicate()

    def whole(self) -> int:
        """Run one to its end; its exit code."""
        self._begin()
        return self._told()

    def killed_after(self, more: int, of: bytes = b"") -> int:
        """Run one, and kill it when it has written so many more lines with these letters; minus what ended it."""
        before, pid, end = self._lines(of), self._begin(), time.monotonic() + HANG_S
        process = psutil.Process(pid)
        while self._lines(of) < before + more and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < end
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
        return self._told()

    def _begin(self) -> int:
        assert self._server.stdin is not None
        self._server.stdin.write("one\n")
        self._server.stdin.flush()
        return self._told()

    def _told(self) -> int:
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())

    def _lines(self, of: bytes) -> int:
        if not self._path.exists():
            return 0
        return sum(of in line for line in self._path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))


def there(cluster: LocalCluster, namespace: str) -> dict[str, Metadata]:
    async def body() -> dict[str, Metadata]:
        async with Connection(load_target(cluster.kubeconfig, cluster.context)) as api:
            return await object_creation.list_run_objects(api, f"/api/v1/namespaces/{namespace}/configmaps", RUN)

    return asyncio.run(body())


def test_killed_at_twenty_points_it_makes_exactly_what_was_planned(
    local_cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    draw = random.Random(20)
    with Submissions(local_cluster, namespace, tmp_path) as submissions:
        # All intents are at 0 s: half of the kills come among them, half after some acknowledgements more.
        ends = [submissions.killed_after(draw.randint(1, 90)) for _ in range(KILLS // 2)]
        ends += [submissions.killed_after(draw.randint(1, 8), b'"acked"') for _ in range(KILLS // 2)]
        assert ends == [-signal.SIGKILL] * KILLS
        assert submissions.whole() == 0
    found = there(local_cluster, namespace)
    expected = {object_names.build_workload_name(RUN, index) for index in range(WORKLOADS)}
    parts = {f"{name}.{part}" for name in expected for part in range(MEMBERS - 1)}
    assert set(found) == expected | parts
    journal = list(run_records.read_lines(tmp_path / run_records.JOURNAL, run_records.JournalLine))
    acks = [one for one in journal if isinstance(one, run_records.Acked)]
    assert set(Counter(one.index for one in acks).values()) == {1}
    assert {one.index for one in acks} == set(range(WORKLOADS))
    # The very objects that were acknowledged: none was made anew.
    assert {one.uid for one in acks} == {found[name].uid for name in expected}
    begun = [one for one in journal if isinstance(one, run_records.Begun)]
    assert len({one.origin_ns for one in begun}) == 1
    assert not [one for one in journal if isinstance(one, run_records.Failed)]
