"""The client watches itself: a loop that is held up, a core that is full, connections that may not be opened."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.fakes import virtual_time
from workbench.core.errors import ConfigError
from workbench.sizing.load.load_driver import TIMER_RESOLUTION_S, LagSampler, percentile_99
from workbench.sizing.load.sweep_runner import run_sweep

FEW = {"least_samples": 20, "most_samples": 20, "processes": 0}


def sampled(work_s: float) -> tuple[list[float], float]:
    """In virtual time, a loop that computes for so long at a time and waits as long in between, twenty times."""

    async def work() -> tuple[list[float], float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        computed_s = 0.0
        sampler = LagSampler(loop.time, lambda: computed_s)
        sampler.start()
        for _ in range(20):
            loop.elapsed_ns += int(work_s * virtual_time.NS_PER_S)
            computed_s += work_s
            await asyncio.sleep(work_s)
        return sampler.stop()

    found: tuple[list[float], float] = virtual_time.run(work())
    return found


def test_a_loop_that_is_held_up_is_late_and_uses_the_core() -> None:
    lags, cpu_share = sampled(0.04)
    # The sample that is due when the loop is held up comes as much later as that lasts.
    assert percentile_99(lags) == pytest.approx(0.04 - TIMER_RESOLUTION_S, abs=1e-6)
    assert cpu_share == pytest.approx(0.5, abs=1e-6)


def test_a_loop_that_is_free_is_hardly_ever_late() -> None:
    lags, _ = sampled(0.001)
    assert lags
    assert 0 <= min(lags) <= max(lags) <= 0.001


def test_more_connections_than_the_system_allows_are_refused_with_what_to_do() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "from workbench.sizing.load.load_driver import raise_file_limit\n"
        "from workbench.core.errors import ConfigError\n"
        "raise_file_limit(100)\n"
        "try: raise_file_limit(1000)\n"
        "except ConfigError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "1000 requests, 256 open files" in said
    assert "ulimit -n 1064, or share the load: --processes 6" in said


def test_the_soft_limit_is_raised_as_far_as_needed() -> None:
    code = (
        "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))\n"
        "from workbench.sizing.load.load_driver import raise_file_limit\n"
        "raise_file_limit(500); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "564\n"


def test_what_the_system_forbids_is_told_as_a_configuration_error() -> None:
    pytest.importorskip("resource")
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system sets no limit on open files")
    with pytest.raises(ConfigError, match="ulimit -n"):
        run_sweep(url="http://127.0.0.1:9", users=[min(hard + 1, 1_000_000)], **FEW)
