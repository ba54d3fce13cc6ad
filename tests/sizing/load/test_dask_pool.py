"""The load on Dask workers: one level in shares, one table, clocks compared; a lost worker costs its step alone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import psutil
import pytest

from tests.fakes.hostile import hostile
from workbench.core.errors import ConfigError, MissingToolError
from workbench.sizing.config import build_sweep_config
from workbench.sizing.load import client_messages
from workbench.sizing.load.dask_pool import DaskPool
from workbench.sizing.load.load_step import StepResult
from workbench.sizing.load.request_plan import Prompts
from workbench.sizing.load.sweep_report import SweepWatcher
from workbench.sizing.load.sweep_runner import run_sweep

needs_dask = pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("distributed"), reason="distributed is not installed"
)
FEW: dict[str, Any] = {"least_samples": 40, "most_samples": 40, "min_step_s": 0.0, "timeout_s": 20.0}


@pytest.mark.live
@needs_dask
def test_two_workers_hold_one_level_together_and_give_one_table() -> None:
    with hostile(delay_s=0.2, events=0) as server:
        found = run_sweep(url=server.url, users=[8, 20], workers="local:2", **FEW)
        assert server.peak == 20
        assert server.total == found.requests.height
    assert found.ended == "finished"
    assert set(found.requests["outcome"]) == {"ok"}
    assert found.steps["processes"].to_list() == [2, 2]
    assert found.requests.group_by("step").agg(n=found.requests["worker"].n_unique()).height == 2
    for step in (0, 1):
        of_step = found.requests.filter(step=step)
        assert set(of_step["worker"]) == {0, 1}
        # One numbering, and no prompt twice: the shares are parts of one plan.
        assert of_step["request"].to_list() == list(range(of_step.height))
        assert of_step["item"].n_unique() == of_step.height
    assert (found.requests["sent_s"] >= found.requests["intended_s"] - 1e-6).all()
    # Workers of one machine have one clock: what was measured of its offset is within the error that is told.
    assert all(0 < error < 0.5 for error in found.steps["clock_error_s"].to_list())
    assert any("2 Dask workers" in note for note in found.notes)


class KillOneWorker(SweepWatcher):
    """Kills a worker of the cluster in the middle of the second step."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def on_progress(self, held: StepResult) -> None:
        if held.load.step == 1 and not self.killed and len(held.requests) > 10:
            pid = find_worker_pid()
            self.killed.append(pid)
            os.kill(pid, signal.SIGKILL)


def find_worker_pid() -> int:
    """A process below this one that holds connections of a Dask worker: the youngest spawned one."""
    spawned = [one for one in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(one.cmdline())]
    return int(max(spawned, key=lambda one: (one.create_time(), one.pid)).pid)


@needs_dask
@pytest.mark.slow
def test_a_worker_killed_in_the_middle_costs_its_step_alone() -> None:
    watcher = KillOneWorker()
    with hostile(delay_s=0.1, events=0) as server:
        settings = FEW | {"least_samples": 200, "most_samples": 200}
        found = run_sweep(url=server.url, users=[4, 6, 8], workers="local:2", watcher=watcher, **settings)
    assert watcher.killed
    assert found.ended == "finished"
    assert [one == "lost worker" for one in found.steps["stopped"].to_list()] == [False, True, False, False]
    # The level was measured again by those that are left, or by the one that took the lost one's place.
    assert found.steps["users"].to_list() == [4, 6, 6, 8]
    assert found.points["verdict"].to_list()[1] == "client-limited"
    assert "worker was lost" in found.points["reason"][1]
    assert "worker was lost" in str(found.failures[1])
    assert set(found.requests.filter(step=2)["outcome"]) == {"ok"}


@needs_dask
@pytest.mark.slow
def test_a_clock_that_is_ahead_is_corrected() -> None:
    async def measure() -> tuple[float, float, float]:
        opening = client_messages.Open(client_messages.TargetSpec("http", "http://127.0.0.1:9/{prompt}"), Prompts([]))
        async with DaskPool(opening, "local:1") as pool:
            before = pool._offsets[0]
            real = pool._call

            async def shifted(number: int, method: str, *arguments: Any) -> Any:
                found = await real(number, method, *arguments)
                return found + 1234.5 if method == "read_clock" else found

            pool._call = shifted  # type: ignore[method-assign]
            await pool.prepare_step()
            assert pool.clock_error_s is not None
            begin = client_messages.Begin(client_messages.StepLoad(0, "closed", 0), 10.0)
            sent = client_messages.decode_command(pool._encode_for(0, begin))
            assert isinstance(sent, client_messages.Begin)
            return before, sent.base - 10.0 - 1234.5, pool.clock_error_s

    before, after, error = asyncio.run(measure())
    assert abs(before) < 0.5
    assert abs(after) <= error + 0.05


@pytest.mark.parametrize("text", ["local:0", "local:65", "local:x", "dask://", "dask://host", "tcp://host:1"])
def test_only_known_places_are_taken(text: str) -> None:
    with pytest.raises(ConfigError, match="workers"):
        build_sweep_config(url="http://127.0.0.1:9", users=[1], workers=text)


@pytest.mark.live
@needs_dask
def test_a_scheduler_that_is_not_there_is_an_error_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.sizing.load.dask_pool.CONNECT_LIMIT_S", 0.5)
    with pytest.raises(ConfigError, match="no Dask scheduler"):
        run_sweep(url="http://127.0.0.1:9", users=[1], workers="dask://127.0.0.1:9", **FEW)


def test_a_function_of_this_process_cannot_be_sent_away() -> None:
    async def workflow(prompt: str) -> str:
        return prompt

    with pytest.raises(ConfigError, match="Dask workers"):
        run_sweep(workflow, users=[1], workers="local:2", **FEW)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingToolError, match="distributed"):
        run_sweep(url="http://127.0.0.1:9", users=[1], workers="local:2", **FEW)
