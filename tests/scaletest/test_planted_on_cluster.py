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
from tests.scaletest.conftest import QUICK, fresh_namespace, programs, reasons_of_the_run, start_guarded_cluster
from tests.scaletest.submission.test_throttled_on_a_cluster import narrow_cluster as narrow_cluster
from workbench.scaletest import test_run
from workbench.scaletest.analysis.bottlenecks import BOTTLENECK, CLIENT_LIMIT, DELAY, NO_ROOM, SLOW_CALLS, STOPPED
from workbench.scaletest.analysis.league import build_league_table
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.analysis.variants import combine_variants
from workbench.scaletest.cluster_api.connection import Connection, load_target
from workbench.scaletest.local_cluster import component_processes, simulated_nodes
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import GPU_MODELS, NATIVE_GANGS, ClientLimit, NodePool, StartDelay
from workbench.scaletest.safety.run_cleanup import CleanupResult
from workbench.scaletest.scenario import read_plan, scenario_file
from workbench.scaletest.scenario.job_traces import read_job_trace
from workbench.scaletest.scenario.trace_scenario import ReplayOptions, write_trace_scenario
from workbench.scaletest.test_run.run_console import SilentRunWatcher
from workbench.scaletest.test_run.workload_deletion import empty_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
MADE, SCHEDULED, STARTED = "pods made", "pods scheduled", "pods started"
JOBS = [{"kind": "Job", "gpus": 0}]


@contextlib.contextmanager
def planted_cluster(**settings: Any) -> Iterator[tuple[LocalCluster, str]]:
    """A cluster of its own with a fresh namespace; 50 nodes with 8 GPUs, client limits raised unless it says else."""
    programs()
    chosen = {"pools": [NodePool(nodes=50, gpus=8)], "client_limits": QUICK} | settings
    with (
        start_guarded_cluster("planted", **chosen) as on,
        contextlib.contextmanager(fresh_namespace)(on) as space,
    ):
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
    on: LocalCluster,
    namespace: str,
    out: Path,
    scheduler: str | None = None,
    *,
    cleanup: bool = False,
    watcher: SilentRunWatcher | None = None,
    **given: Any,
) -> Analysis:
    """A run of a scenario with these fields; the namespace goes with all that is in it."""
    described = {"name": "planted", "namespace": namespace, "limits": {"rate_per_s": 500}, **given}
    place = test_run.ClusterAccess(on.measure_kubeconfig, on.measure_context, on)
    chosen = test_run.build_options(cleanup=cleanup, settle_s=6)
    scenario = scenario_file.parse_scenario(yaml.safe_dump(described))
    found = test_run.run_test(scenario, place, scheduler=scheduler, out=out, options=chosen, watcher=watcher)
    return analyse_run(found.folder)


def constant(n: int, rate: float) -> dict[str, Any]:
    return {"process": "constant", "rate_per_s": rate, "n": n}


def test_bare_pods_at_the_offered_rate_blame_no_controller(
    gang_cluster: LocalCluster, space: str, tmp_path: Path
) -> None:
    found = measured(gang_cluster, space, tmp_path, arrival=constant(300, 30), workloads=[{"kind": "Pod", "gpus": 0}])
    assert "pods made" not in found.limits["step"].to_list()
    assert "controller" not in found.answer
    assert reasons_of_the_run(found.reasons) == []


def test_gpus_for_half_of_the_load_are_what_bounds_it(gang_cluster: LocalCluster, space: str, tmp_path: Path) -> None:
    # 12 GPUs and pods of 4 s: 3 a second.
    pods = [{"kind": "Job", "gpus": 1, "lifetime": 4}]
    found = measured(gang_cluster, space, tmp_path, arrival=constant(120, 6), workloads=pods)
    assert found.gpu_ceiling_per_s == pytest.approx(3.0)
    kinds = dict(found.limits.select("step", "kind").iter_rows())
    assert kinds[SCHEDULED] == NO_ROOM
    assert "bound by the scheduler" not in found.answer


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


def test_a_server_that_throttles_is_named_and_the_submitter_is_not(
    narrow_cluster: LocalCluster, tmp_path: Path
) -> None:
    spaces = fresh_namespace(narrow_cluster)
    pods = [{"kind": "Pod", "gpus": 0}]
    found = measured(narrow_cluster, next(spaces), tmp_path, arrival=constant(300, 150), workloads=pods)
    assert list(spaces) == []
    assert found.submissions["throttled"].sum() > 0
    assert any("The API server throttled the client:" in line for line in found.findings)
    assert not any("the request window" in line for line in found.warnings)


def kinds_of(found: Analysis) -> dict[str, str]:
    """Kind of each finding, by stage."""
    return dict(found.limits.select("step", "kind").iter_rows())


def test_a_start_delay_of_three_seconds_is_a_delay_and_nobody_is_blamed(tmp_path: Path) -> None:
    with planted_cluster(start_delay=StartDelay(least_s=3, most_s=3)) as (on, space):
        found = measured(on, space, tmp_path, arrival=constant(300, 20), workloads=JOBS)
    assert kinds_of(found) == {STARTED: DELAY}
    # A pod that the simulator starts late on a busy machine waits longer, and never shorter.
    assert 3.0 <= found.limits["delay_s"][0] < 4.0
    assert "bound by" not in found.answer
    assert "a delay, which limits no rate" in found.findings[0]


def test_a_scheduler_of_five_a_second_is_named_with_its_limit(tmp_path: Path) -> None:
    slow = QUICK | {"kube-scheduler": ClientLimit(qps=5, burst=5)}
    with planted_cluster(client_limits=slow) as (on, space):
        found = measured(on, space, tmp_path, arrival=constant(120, 10), workloads=JOBS)
    assert kinds_of(found) == {SCHEDULED: CLIENT_LIMIT}
    assert "bound by the client limit of kube-scheduler (5 requests/s)" in found.answer
    waited = found.servers.filter(found.servers["measure"] == "client limiter wait")
    by_component = dict(waited.select("component", "mean_s").iter_rows())
    assert by_component["kube-scheduler"] > 0.5 > by_component["kube-controller-manager"]


def test_a_job_controller_of_twenty_requests_is_named_with_its_limit(tmp_path: Path) -> None:
    with planted_cluster(client_limits={}) as (on, space):
        found = measured(on, space, tmp_path, arrival=constant(160, 40), workloads=JOBS)
    assert kinds_of(found)[MADE] == CLIENT_LIMIT
    assert "bound by the client limit of kube-controller-manager/job-controller (20 requests/s)" in found.answer
    assert SCHEDULED not in kinds_of(found)


def test_a_webhook_on_jobs_is_the_api_servers_time_and_no_stages(tmp_path: Path) -> None:
    with (
        planted_cluster() as (on, space),
        slow_webhook(on, space, group="batch", resource="jobs", takes_s=0.2),
    ):
        found = measured(on, space, tmp_path, arrival=constant(200, 20), workloads=JOBS)
    assert not set(kinds_of(found).values()) & {BOTTLENECK, CLIENT_LIMIT, SLOW_CALLS}
    assert any(line.startswith("The API server took") and HOOK in line for line in found.findings)
    assert "bound by" not in found.answer


def test_a_webhook_on_pods_is_blamed_in_place_of_the_controller_that_waits_for_it(tmp_path: Path) -> None:
    with planted_cluster() as (on, space), slow_webhook(on, space, group="", resource="pods", takes_s=0.2):
        found = measured(on, space, tmp_path, arrival=constant(300, 50), workloads=JOBS)
    assert kinds_of(found)[MADE] == SLOW_CALLS
    assert "bound by the API server, which took" in found.answer
    assert HOOK in found.answer
    assert "bound by the controller" not in found.answer
    # The jobs themselves passed no webhook.
    assert not any(line.startswith("The API server took") and HOOK in line for line in found.findings)


def list_schedulable_nodes(on: LocalCluster) -> int:
    """How many nodes are there and take pods."""

    async def count() -> int:
        async with Connection(load_target(on.kubeconfig, on.context)) as api:
            return sum(not one["spec"].get("unschedulable") for one in await simulated_nodes.list_nodes(api))

    return asyncio.run(count())


def test_half_of_the_nodes_gone_is_less_room_and_not_a_slower_scheduler(tmp_path: Path) -> None:
    # 10 nodes of 4 GPUs and pods of 6 s: room for 6.7 a second, and for 3.3 from the middle on.
    with planted_cluster(pools=[NodePool(nodes=10, gpus=4)]) as (on, space):
        pods = [{"kind": "Job", "gpus": 1, "lifetime": 6}]
        gone = [{"at_s": 15, "do": "fail", "nodes": 5}, {"at_s": 27, "do": "return", "nodes": 5}]
        found = measured(on, space, tmp_path, arrival=constant(150, 5), workloads=pods, node_changes=gone)
        assert list_schedulable_nodes(on) == 10
    capacity = found.gpus["capacity"]
    assert (capacity.max(), capacity.min(), capacity[-1]) == (40, 20, 40)
    planned = "As planned, 5 nodes failed at 15 s; 5 nodes came back at 27 s"
    assert f"{planned}: there were 20 to 40 GPUs to place pods on." in found.findings
    assert reasons_of_the_run(found.reasons) == []
    assert kinds_of(found).get(SCHEDULED) in (NO_ROOM, None)
    assert "bound by the scheduler" not in found.answer
    assert not set(kinds_of(found).values()) & {BOTTLENECK, CLIENT_LIMIT, SLOW_CALLS}


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


def test_what_a_workload_owns_goes_with_it(gang_cluster: LocalCluster, space: str, tmp_path: Path) -> None:
    claim = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"of": "${name}"}}
    jobs = [{"kind": "Job", "gpus": 0, "lifetime": 1, "owned": [claim]}]
    found = measured(gang_cluster, space, tmp_path, arrival=constant(10, 10), workloads=jobs)
    assert reasons_of_the_run(found.reasons) == []
    uids = dict(found.submissions.select("name", "uid").iter_rows())
    owners = asyncio.run(list_owners(gang_cluster, space))
    assert owners == {f"{name}-o0": uid for name, uid in uids.items()}
    place = test_run.ClusterAccess(gang_cluster.measure_kubeconfig, gang_cluster.measure_context, gang_cluster)
    cleaned = asyncio.run(empty_run_of(place, found))
    assert cleaned.complete
    assert asyncio.run(list_owners(gang_cluster, space)) == {}


async def list_owners(on: LocalCluster, space: str) -> dict[str, str]:
    """ConfigMaps with an owner, and its uid."""
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        found = await api.json("GET", f"/api/v1/namespaces/{space}/configmaps")
    heads = [one["metadata"] for one in found["items"]]
    return {head["name"]: head["ownerReferences"][0]["uid"] for head in heads if head.get("ownerReferences")}


async def empty_run_of(place: test_run.ClusterAccess, found: Analysis) -> CleanupResult:
    async with Connection(place.target) as api:
        return await empty_run(api, read_plan(found.folder), found.folder, place)


# The last: its kwok does not go on.
def test_a_cluster_that_starts_nothing_has_no_rate(tmp_path: Path) -> None:
    # A cluster of its own: nobody resumes what starts its pods.
    with planted_cluster() as (on, space):
        for process in component_processes.find_processes(on.folder)["kwok-controller"]:
            process.suspend()
        found = measured(on, space, tmp_path, arrival=constant(40, 10), workloads=[{"kind": "Pod", "gpus": 0}])
    assert found.answer.startswith("No rate: 0 of 40 pods started; the last one that did: never")
    assert "0 of 40 pods started; the last one that did: never" in found.reasons
    assert found.limits.filter(found.limits["step"] == STARTED)["kind"].to_list() in ([STOPPED], [])


def replayed(folder: Path, n: int, gap_s: float) -> dict[str, Any]:
    """Arrival and workloads of a trace of single-GPU jobs of 8 to 12 s, 60 seconds of it in one."""
    rows = [f"{60 * gap_s * at},{60 * (8 + at % 5)},1" for at in range(n)]
    (folder / "trace.csv").write_text("\n".join(["submit_s,run_s,gpus_per_pod", *rows]) + "\n")
    made = write_trace_scenario(read_job_trace(folder / "trace.csv"), folder / "replay", ReplayOptions(speed=60))
    described = scenario_file.load_scenario(made.scenario).model_dump(mode="json", exclude_none=True)
    return {"arrival": described["arrival"], "workloads": described["workloads"]}


def test_a_trace_that_has_room_holds_its_gpu_seconds(tmp_path: Path) -> None:
    with planted_cluster() as (on, space):
        found = measured(on, space, tmp_path, **replayed(tmp_path, 60, 0.4))
    assert found.replay is not None
    assert (found.replay.n_ended, found.replay.speed) == (60, 60)
    assert found.replay.trace_gpu_s == pytest.approx(60 * sum(8 + at % 5 for at in range(60)))
    assert found.replay.held_gpu_s == pytest.approx(found.replay.trace_gpu_s, rel=0.01)
    assert found.replay.sentence in found.findings


def test_a_trace_without_room_waits_as_in_a_simulated_queue(
    gang_cluster: LocalCluster, space: str, tmp_path: Path
) -> None:
    # 12 GPUs serve 1.2 jobs of 10 s a second; 2.5 come.
    found = measured(gang_cluster, space, tmp_path, **replayed(tmp_path, 60, 0.4))
    assert found.queue is not None
    assert found.queue.n_pods == 60
    assert found.queue.mean_s > 5
    assert found.queue.mean_s == pytest.approx(found.queue.simulated_mean_s, rel=0.25)
    assert found.queue.sentence in found.findings
