"""The sampler as a process, against a scripted server: ready, told about itself, ended, died, restarted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kubernetes.test_client import written
from tests.scaletest.making_scenarios import lines_of
from tests.scaletest.observation.scripted import NAMESPACE, PODS, ScriptedApi, pod, scripted
from workbench.core.errors import ConfigError, RunFailedError
from workbench.scaletest import observation, tables
from workbench.scaletest.cluster_api.api_discovery import parse_resource
from workbench.scaletest.observation import __main__ as program
from workbench.scaletest.observation import run_records

pytestmark = pytest.mark.live

RUN = "st-0000abcd"
SECRET = "canary-4f1d0c"  # must be found nowhere
LIMIT_S = 60.0


def wait(true: Callable[[], Any]) -> Any:
    end = time.monotonic() + LIMIT_S
    while not (found := true()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)
    return found


class Server:
    """A scripted server in a thread of its own; `do` runs something in its loop."""

    def __init__(self) -> None:
        self.api: ScriptedApi
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._up: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    async def _serve(self) -> None:
        async with scripted() as (api, _):
            self.api = api
            api.cluster()
            self._up.set_result(None)
            await self._stop.wait()

    def do(self, what: Callable[[], Any]) -> Any:
        async def now() -> Any:
            return what()

        return asyncio.run_coroutine_threadsafe(now(), self._loop).result(LIMIT_S)

    def __enter__(self) -> Server:
        self._thread.start()
        self._up.result(LIMIT_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LIMIT_S)
        self._loop.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        yield found


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> Path:
    return written(tmp_path, "scripted", current="scripted", token=SECRET, server=server.api.url)


@contextmanager
def sampler(folder: Path, kubeconfig: Path, **options: Any) -> Iterator[observation.SamplerProcess]:
    options = {"run": RUN, "namespaces": [NAMESPACE], "context": "scripted"} | options
    found = observation.start_sampler(observation.SamplerOptions(folder=folder, kubeconfig=kubeconfig, **options))
    try:
        yield found
    finally:
        if found.is_running:
            os.kill(found.pid, signal.SIGKILL)
        found._child.end(grace_s=0)


def ours(name: str, **more: Any) -> dict[str, Any]:
    return pod(name, labels={"workbench.local/workload": name}, **more)


def seen(folder: Path) -> list[tuple[str, str, bool]]:
    return [(one.name, one.transition, one.gap) for one in lines_of(folder, run_records.Seen)]


def notes(folder: Path) -> list[run_records.Note]:
    """What was noted, without that the stand-in for an API server serves no metrics."""
    return [note for note in lines_of(folder, run_records.Note) if "the metrics of kube-apiserver" not in note.text]


def test_what_was_so_when_it_became_ready_is_told_beside_what_is_so_now(
    server: Server, kubeconfig: Path, tmp_path: Path
) -> None:
    def node(name: str, ready: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}

    def put(name: str, ready: str) -> None:
        server.do(lambda: server.api.put("/api/v1/nodes", node(name, ready)))

    folder = tmp_path / "run"
    put("n2", "False")
    server.do(lambda: server.api.put(PODS, pod("old")))
    with sampler(folder, kubeconfig, by_namespace=True) as found:
        found.wait_until_ready()
        # On disk by then: who begins the run tells by it what was there before.
        assert [name for name, _, _ in seen(folder)] == ["old"]
        put("n1", "False")
        state = wait(lambda: (one := found.state()).get("nodes_not_ready") == 2 and one)
        assert state["nodes_not_ready_at_start"] == 1
        found.stop()


def test_a_run_is_watched_from_ready_to_stop(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    log, folder = tmp_path / "audit.log", tmp_path / "run"
    log.touch()
    options = {"kinds": [parse_resource("example.com/v1/trainings")], "foreign_pods": True, "audit_log": log}
    with sampler(folder, kubeconfig, **options) as found:
        found.wait_until_ready()
        server.do(lambda: server.api.put(PODS, ours("a")))
        server.do(lambda: server.api.put(PODS, ours("a", phase="Running", node="n1")))
        server.do(lambda: server.api.put("/api/v1/pods", pod("b", namespace="theirs")))
        state = wait(lambda: (one := found.state()).get("foreign_pending") == 1 and one)
        assert state["objects"] == 1
        assert state["nodes_not_ready"] == 0
        wait(lambda: ("a", "running", False) in seen(folder))
        found.check()
        assert found.lag_s() < LIMIT_S
        # The first look at the clocks; the last one is at the end.
        wait(lambda: lines_of(folder, run_records.Beat) and lines_of(folder, run_records.Skew))
        found.stop()
        assert not found.is_running
    assert seen(folder) == [("a", "created", False), ("a", "scheduled", False), ("a", "running", False)]
    assert lines_of(folder, run_records.Gap) == []
    assert notes(folder) == []
    first, *_, last = lines_of(folder, run_records.Skew)
    assert first.low_ns <= 0 <= first.high_ns
    assert last.at_ns > first.at_ns
    loads = lines_of(folder, run_records.Load)
    assert all(one.sampler_rss_bytes > 0 and one.sampler_cpu_s >= 0 for one in loads)
    assert next(iter(run_records.read_lines(folder / run_records.OBSERVED, run_records.ObservedLine))).name == "n1"
    assert tables.REQUESTS.read(folder / "tables").height == 0
    # The heartbeat's object is gone, and what was written holds no secret.
    assert server.api.objects[f"/api/v1/namespaces/{NAMESPACE}/configmaps"] == {}
    for path in folder.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_it_ends_when_its_parent_is_killed_with_all_it_has_on_disk(
    server: Server, kubeconfig: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, time\n"
        "from workbench.scaletest import observation\n"
        "options = observation.SamplerOptions("
        "folder=sys.argv[1], run=sys.argv[3], namespaces=[sys.argv[4]], kubeconfig=sys.argv[2])\n"
        "found = observation.start_sampler(options)\n"
        "found.wait_until_ready()\n"
        "print(found.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run"), str(kubeconfig), RUN, NAMESPACE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        server.do(lambda: server.api.put(PODS, ours("a")))
        wait(lambda: server.api.watches(PODS))
        parent.kill()
    child.wait(LIMIT_S)
    assert seen(tmp_path / "run") == [("a", "created", False)]


def test_a_signal_ends_it_well_and_without_the_right_to_make_a_heartbeat_it_says_so(
    server: Server, kubeconfig: Path, tmp_path: Path
) -> None:
    server.api.refuse[f"POST /api/v1/namespaces/{NAMESPACE}/configmaps"] = [403]
    with sampler(tmp_path / "run", kubeconfig) as found:
        found.wait_until_ready()
        server.do(lambda: server.api.put(PODS, ours("a")))
        wait(lambda: found.state().get("objects") == 1)
        os.kill(found.pid, signal.SIGTERM)
        assert found._child.wait(LIMIT_S) == 0
        found.stop()
    assert seen(tmp_path / "run") == [("a", "created", False)]
    (note,) = notes(tmp_path / "run")
    assert note.text == "the watch lag is unknown: creating the heartbeat failed with status 403"


@pytest.mark.smoke
def test_after_a_kill_it_goes_on_in_the_same_files(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with sampler(folder, kubeconfig) as found:
        found.wait_until_ready()
        for name in ("a", "b"):
            server.do(lambda name=name: server.api.put(PODS, ours(name)))
        wait(lambda: len(seen(folder)) == 2)
        os.kill(found.pid, signal.SIGKILL)
        found._child.wait()
        with pytest.raises(RunFailedError, match="the sampler ended"):
            found.check()
    with (folder / run_records.OBSERVED).open("ab") as file:
        file.write(b'{"type":"seen","resource":"po')
    server.do(lambda: server.api.put(PODS, ours("a", phase="Running", node="n1")))
    server.do(lambda: server.api.remove(PODS, "uid-b"))
    server.do(lambda: server.api.put(PODS, ours("c")))
    with sampler(folder, kubeconfig) as found:
        found.wait_until_ready()
        server.do(lambda: server.api.put(PODS, ours("d")))
        wait(lambda: ("d", "created", False) in seen(folder))
        found.stop()
    assert seen(folder)[2:] == [
        ("a", "scheduled", True),
        ("a", "running", True),
        ("c", "created", True),
        ("b", "deleted", True),
        ("d", "created", False),
    ]
    gap = next(one for one in lines_of(folder, run_records.Gap) if one.resource == "pod")
    assert (gap.reason, gap.recovered, gap.relisted) == ("the sampler was not running", 4, True)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"run": "nonsense"}, "not a run's id"),
        ({"context": "other"}, "no such context"),
        ({"kinds": ["nothing"]}, "not a set of sampler options"),
        ({"namespaces": []}, "not a set of sampler options"),
    ],
)
def test_wrong_use_is_told_and_is_exit_code_2(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], told: str
) -> None:
    common = {"folder": str(tmp_path / "run"), "kubeconfig": str(kubeconfig), "run": RUN, "namespaces": ["n"]}
    assert program.main(json.dumps(common | changed)) == 2
    output = capsys.readouterr()
    assert told in output.err
    assert output.out == ""


def test_a_kind_that_the_cluster_has_not_ends_it_with_2_and_its_message(
    server: Server, kubeconfig: Path, tmp_path: Path
) -> None:
    with sampler(tmp_path / "run", kubeconfig, kinds=[parse_resource("example.com/v1/nothings")]) as found:
        with pytest.raises(ConfigError) as error:
            found.wait_until_ready()
        # Its own error, as if it had been raised here.
        assert error.value.what == "the cluster has no such resource"
        assert error.value.facts["where"] == "--kind"
        assert error.value.facts["found"] == "example.com/v1/nothings"


def test_a_full_disk_ends_it_with_3_and_leaves_whole_lines(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with sampler(folder, kubeconfig) as found:
        found.wait_until_ready()
        psutil.Process(found.pid).rlimit(psutil.RLIMIT_FSIZE, (20_000, 20_000))
        for number in range(200):
            server.do(lambda number=number: server.api.put(PODS, ours(f"p{number}")))
        assert found._child.wait(LIMIT_S) == 3
        with pytest.raises(RunFailedError, match="free some space"):
            found.check()
    assert 0 < len(seen(folder)) < 200
    assert (folder / run_records.OBSERVED).read_bytes().endswith(b"\n")
    (note,) = notes(folder)
    assert note.spoils
    assert "cannot write observations" in note.text
