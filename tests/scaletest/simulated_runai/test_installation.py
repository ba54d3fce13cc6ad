from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.runai_operator import run_simulated_runai
from tests.scaletest.simulated_runai.conftest import admin
from workbench.core.errors import ConfigError, RunFailedError
from workbench.kubernetes.client import Target
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.simulated_runai.controller import run_in_foreground
from workbench.scaletest.simulated_runai.runai_objects import CRDS, TRAINING, build_definition, install_kinds

pytestmark = pytest.mark.live

LIMIT_S = 60


def test_only_clusters_on_this_machine_are_touched() -> None:
    away = Target("https://cluster.example.org:6443", "prod", None, dict)
    with pytest.raises(ConfigError, match="on this machine"):
        asyncio.run(run_in_foreground(away, scheduler=None, tell=lambda: None))


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RunFailedError, match="ended") as told,
        run_simulated_runai(tmp_path / "none"),
    ):
        pass
    assert "no kubeconfig" in str(told.value)


@pytest.mark.cluster
async def test_installing_twice_is_no_harm_and_the_real_platforms_kinds_are_left_alone(
    local_cluster: LocalCluster,
) -> None:
    async with admin(local_cluster) as api:
        first, second = await install_kinds(api), await install_kinds(api)
        assert first == second
        assert first
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
