from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.scaletest.simulated_runai.conftest import admin
from workbench.core.errors import ConfigError, RunFailedError
from workbench.scaletest.cluster_api.connection import Target
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.simulated_runai import stand_in_process
from workbench.scaletest.simulated_runai.runai_objects import CRDS, TRAINING, build_definition, install_kinds

pytestmark = pytest.mark.live

LIMIT_S = 60


def test_only_clusters_on_this_machine_are_touched() -> None:
    away = Target("https://cluster.example.org:6443", "prod", None, dict)
    with pytest.raises(ConfigError, match="on this machine"):
        stand_in_process.check_target(away)


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RunFailedError, match="simulated_runai ended") as told,
        stand_in_process.run_simulated_runai(tmp_path / "none"),
    ):
        pass
    assert "no kubeconfig" in str(told.value)


@pytest.mark.cluster
def test_it_ends_with_the_process_that_started_it(local_cluster: LocalCluster) -> None:
    """The starter is killed, and can tidy up nothing."""
    code = f"""
        import os, signal
        from pathlib import Path
        from workbench.scaletest.simulated_runai import stand_in_process
        config = Path({str(local_cluster.kubeconfig)!r})
        with stand_in_process.run_simulated_runai(config, {local_cluster.context!r}) as number:
            print(number, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=LIMIT_S * 2, check=False
    )
    number = int(ended.stdout)
    deadline = time.monotonic() + LIMIT_S
    while psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.05)
    assert number != os.getpid()


@pytest.mark.cluster
def test_installing_twice_is_no_harm_and_the_real_platforms_kinds_are_left_alone(local_cluster: LocalCluster) -> None:
    async def go() -> None:
        async with admin(local_cluster) as api:
            first, second = await install_kinds(api), await install_kinds(api)
            assert first == second
            assert first.makes_pod_groups
            path = f"{CRDS}/{TRAINING.crd}"
            await api.json("DELETE", path)
            while (await api.request("GET", path)).status != 404:
                await asyncio.sleep(0.05)
            real = build_definition(TRAINING)
            del real["metadata"]["labels"]
            await api.json("POST", CRDS, real)
            try:
                with pytest.raises(ConfigError, match="kinds of the real platform"):
                    await install_kinds(api)
            finally:
                await api.json("DELETE", path)
                while (await api.request("GET", path)).status != 404:
                    await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(go(), LIMIT_S * 2))
