"""Planted truths on a real control plane: what the report must say, and whom it must not blame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scaletest.conftest import QUICK, fresh_namespace, programs, reasons_of_the_run, unique
from tests.scaletest.submission.test_throttled_on_a_cluster import narrow_cluster as narrow_cluster
from workbench.scaletest import test_run
from workbench.scaletest.analysis.bottlenecks import NO_ROOM, STOPPED
from workbench.scaletest.analysis.league import build_league_table
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.analysis.variants import combine_variants
from workbench.scaletest.local_cluster import cluster_lifecycle, component_processes, owner_guard
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import NATIVE_GANGS, NodePool
from workbench.scaletest.scenario import scenario_file

pytestmark = [pytest.mark.cluster, pytest.mark.exhaustive]
SCHEDULED, STARTED = "pods scheduled", "pods started"


@pytest.fixture(scope="module")
def gang_cluster() -> Iterator[LocalCluster]:
    """3 nodes with 4 GPUs each; Kubernetes' own gang scheduling is on; client limits raised."""
    programs()
    name = unique("gangs")
    watcher = owner_guard.start_guard(name)
    try:
        yield cluster_lifecycle.start_cluster(
            name,
            owner=owner_guard.current_owner(),
            pools=[NodePool(nodes=3, gpus=4)],
            client_limits=QUICK,
            feature_gates=dict.fromkeys(NATIVE_GANGS, True),
            timeout_s=300,
        )
    finally:
        cluster_lifecycle.stop_cluster(name)
        owner_guard.release_guard(watcher)


@pytest.fixture
def space(gang_cluster: LocalCluster) -> Iterator[str]:
    """A fresh namespace on it."""
    yield from fresh_namespace(gang_cluster)


def measured(
    on: LocalCluster, namespace: str, out: Path, scheduler: str | None = None, *, cleanup: bool = False, **given: Any
) -> Analysis:
    """A run of a scenario with these fields; the namespace goes with all that is in it."""
    described = {"name": "planted", "namespace": namespace, "limits": {"rate_per_s": 500}, **given}
    place = test_run.ClusterAccess(on.measure_kubeconfig, on.measure_context, on)
    chosen = test_run.build_options(cleanup=cleanup, settle_s=6)
    scenario = scenario_file.parse_scenario(yaml.safe_dump(described))
    return analyse_run(test_run.run_test(scenario, place, scheduler=scheduler, out=out, options=chosen).folder)


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


# The last: its kwok does not go on.
def test_a_cluster_that_starts_nothing_has_no_rate(gang_cluster: LocalCluster, space: str, tmp_path: Path) -> None:
    for process in component_processes.find_processes(gang_cluster.folder)["kwok-controller"]:
        process.suspend()
    found = measured(gang_cluster, space, tmp_path, arrival=constant(40, 10), workloads=[{"kind": "Pod", "gpus": 0}])
    assert found.answer.startswith("No rate: 0 of 40 pods started; the last one that did: never")
    assert "0 of 40 pods started; the last one that did: never" in found.reasons
    assert found.limits.filter(found.limits["step"] == STARTED)["kind"].to_list() in ([STOPPED], [])
