"""Planted truths on a real control plane: what the report must say, and whom it must not blame."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from tests.fakes.slow_webhook import HOOK, slow_webhook
from tests.scaletest.conftest import QUICK, fresh_namespace, programs, start_guarded_cluster
from workbench.kubernetes.client import load_target
from workbench.scaletest.analysis.bottlenecks import BOTTLENECK, CLIENT_LIMIT, SLOW_CALLS
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.analysis.variants import build_league_table, combine_variants
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import simulated_nodes
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import GPU_MODELS, NATIVE_GANGS, NodePool
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
MADE = "pods made"
JOBS = [{"kind": "Job", "gpus": 0}]


@contextlib.contextmanager
def planted_cluster(**settings: Any) -> Iterator[tuple[LocalCluster, str]]:
    """A cluster of its own with a fresh namespace; 50 nodes with 8 GPUs, client limits raised unless it says else."""
    programs()
    chosen = {"pools": [NodePool(nodes=50, gpus=8)], "client_limits": QUICK} | settings
    with start_guarded_cluster("planted", **chosen) as on, contextlib.contextmanager(fresh_namespace)(on) as space:
        yield on, space


@pytest.fixture(scope="module")
def gang_cluster() -> Iterator[LocalCluster]:
    """3 nodes with 4 GPUs each; Kubernetes' own gang scheduling is on; client limits raised."""
    programs()
    gates = dict.fromkeys(NATIVE_GANGS, True)
    pools = [NodePool(nodes=3, gpus=4)]
    with start_guarded_cluster("gangs", pools=pools, client_limits=QUICK, feature_gates=gates) as cluster:
        yield cluster


@pytest.fixture
def space(gang_cluster: LocalCluster) -> Iterator[str]:
    """A fresh namespace on it."""
    yield from fresh_namespace(gang_cluster)


def measured(
    on: LocalCluster, namespace: str, out: Path, scheduler: str | None = None, *, cleanup: bool = False, **given: Any
) -> Analysis:
    """A run of a scenario with these fields; the namespace goes with all that is in it."""
    described = {"name": "planted", "namespace": namespace, "limits": {"rate_per_s": 500}, **given}
    place = ClusterAccess(on.measure_kubeconfig, on.measure_context, on)
    chosen = build_options(cleanup=cleanup, settle_s=6)
    scenario = scenario_file.parse_scenario(yaml.safe_dump(described))
    found = run_test(scenario, RunContext(place, chosen), scheduler=scheduler, out=out)
    return analyse_run(found.folder)


def constant(n: int, rate: float) -> dict[str, Any]:
    return {"process": "constant", "rate_per_s": rate, "n": n}


def test_a_scheduler_that_places_pod_by_pod_deadlocks_gangs_that_its_gang_scheduling_completes(
    gang_cluster: LocalCluster, space: str, tmp_path: Path
) -> None:
    # Four that need 8 of the 12 GPUs each, all at once: one fits.
    at_once = {"process": "burst", "size": 4, "every_s": 10, "n": 4}
    gangs = {"arrival": at_once, "workloads": [{"kind": "Gang", "pods": 8, "gpus": 1}]}
    names = ("default-scheduler", "gang-scheduling")
    runs = {name: measured(gang_cluster, space, tmp_path, name, cleanup=True, **gangs) for name in names}
    assert [int(run.gangs["complete"].sum()) for run in runs.values()] == [0, 1]
    pair = combine_variants(*[[run.folder] for run in runs.values()], names=("default", "gang"))  # type: ignore[arg-type]
    league = {row["side"]: row for row in build_league_table(pair).to_dicts()}
    assert league["default"]["deadlocked"] >= 2
    assert league["gang"]["deadlocked"] == 0
    assert league["gang"]["held_gpu_s"] == 0


def kinds_of(found: Analysis) -> dict[str, str]:
    """Kind of each finding, by stage."""
    return dict(found.limits.select("step", "kind").iter_rows())


def test_a_webhook_on_pods_is_blamed_in_place_of_the_controller_that_waits_for_it(tmp_path: Path) -> None:
    with planted_cluster() as (on, space), slow_webhook(on, space, group="", resource="pods", takes_s=0.2):
        found = measured(on, space, tmp_path, arrival=constant(300, 50), workloads=JOBS)
    assert kinds_of(found)[MADE] == SLOW_CALLS
    assert "bound by the API server, which took" in found.explanation
    assert HOOK in found.explanation
    assert "bound by the controller" not in found.explanation
    # The jobs themselves passed no webhook.
    assert not any(line.startswith("The API server took") and HOOK in line for line in found.findings)


def list_schedulable_nodes(on: LocalCluster) -> int:
    """How many nodes are there and take pods."""

    async def count() -> int:
        async with Connection(load_target(on.kubeconfig, on.context)) as api:
            return sum(not one["spec"].get("unschedulable") for one in await simulated_nodes.list_nodes(api))

    return asyncio.run(count())


def test_nodes_that_are_drained_and_come_back_lose_no_job_and_are_not_the_schedulers_fault(tmp_path: Path) -> None:
    changes = [{"at_s": 4, "do": "drain", "nodes": 3}, {"at_s": 12, "do": "return", "nodes": 3}]
    pools = [NodePool(nodes=2, gpus=4), NodePool(nodes=3, gpus=4, gpu_model="T4")]
    wanted = {"nvidia.com/gpu.product": GPU_MODELS["H100"].product}
    jobs = [{"kind": "Job", "gpus": 1, "lifetime": 5}, {"kind": "Job", "gpus": 1, "lifetime": 2, "node_labels": wanted}]
    with planted_cluster(pools=pools) as (on, space):
        found = measured(on, space, tmp_path, arrival=constant(60, 3), workloads=jobs, node_changes=changes)
        assert list_schedulable_nodes(on) == 5
    capacity = found.gpus["capacity"]
    assert (capacity.max(), capacity.min(), capacity[-1]) == (20, 8, 20)
    # Evicted pods were made again, so there are more pods than jobs.
    assert found.pods.height > 60
    assert found.pods.filter(pl.col("ended_s").is_not_null())["index"].n_unique() == 60
    chosen = found.schedule.filter(pl.col("entry") == "job-1")["index"].to_list()
    on_h100 = found.pods.filter(pl.col("index").is_in(chosen) & pl.col("node").is_not_null())["node"]
    assert set(on_h100) <= {"sim-00000", "sim-00001"}
    assert not set(kinds_of(found).values()) & {BOTTLENECK, CLIENT_LIMIT, SLOW_CALLS}
