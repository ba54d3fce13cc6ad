"""Two real control planes that differ in one setting: who holds the work up is found by the audit log, with figures.

Kubernetes' controller-manager asks 20 times a second and no more unless somebody tells it otherwise: an idle cluster
looks slow then, whatever its scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import yaml

from tests.conftest import SAMPLES
from tests.scaletest.conftest import QUICK, fresh_namespace, programs, start_guarded_cluster
from workbench.scaletest.analysis.bottlenecks import CLIENT_LIMIT
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS, NodePool
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options

pytestmark = pytest.mark.cluster
JOBS, RATE_PER_S = 160, 40
SET_PER_S = DEFAULT_LIMITS["kube-controller-manager"].qps
COVERED = "accepted workloads that were never seen"


@pytest.fixture(scope="module")
def default_cluster() -> Iterator[LocalCluster]:
    """20 nodes with 8 GPUs each, as many as there are pods; every client limit is Kubernetes' own."""
    programs()
    with start_guarded_cluster("default", pools=[NodePool(nodes=20, gpus=8)]) as cluster:
        yield cluster


@pytest.fixture
def default_namespace(default_cluster: LocalCluster) -> Iterator[str]:
    """A fresh namespace on it."""
    yield from fresh_namespace(default_cluster)


def measured(on: LocalCluster, namespace: str, out: Path) -> Analysis:
    """Jobs of a pod each that stays, sent faster than 20 requests a second make their pods."""
    described = {
        "name": "limited",
        "namespace": namespace,
        "arrival": {"process": "constant", "rate_per_s": RATE_PER_S, "n": JOBS},
        "workloads": [{"kind": "Job", "gpus": 1}],
        "limits": {"rate_per_s": 2 * RATE_PER_S},
    }
    place = ClusterAccess(on.measure_kubeconfig, on.measure_context, on)
    # The namespace goes with all that is in it.
    chosen = build_options(cleanup=False, settle_s=10)
    scenario = scenario_file.parse_scenario(yaml.safe_dump(described))
    found = run_test(scenario, RunContext(place, chosen), out=out)
    assert (found.outcome.acked, found.drained) == (JOBS, "all are done")
    return analyse_run(found.folder)


def assert_covered(found: Analysis) -> None:
    row = found.validity.row(by_predicate=pl.col("condition") == COVERED, named=True)
    assert (row["found"], row["holds"]) == (0, True)
    assert found.pods["scheduled_s"].is_not_null().sum() == JOBS
    assert found.conditions.reads_audit_log


def test_a_default_client_limit_is_named_with_its_client_and_its_rate(
    default_cluster: LocalCluster, default_namespace: str, tmp_path: Path
) -> None:
    found = measured(default_cluster, default_namespace, tmp_path)
    assert_covered(found)
    row = found.limits.row(by_predicate=pl.col("step") == "pods made", named=True)
    assert (row["kind"], row["configured_per_s"]) == (CLIENT_LIMIT, SET_PER_S)
    assert "job-controller" in row["client"]
    assert row["requests_per_s"] == pytest.approx(SET_PER_S, rel=0.07)
    assert row["requests_low_per_s"] <= row["requests_per_s"] <= row["requests_high_per_s"]
    assert row["rate_per_s"] < SET_PER_S
    assert "which is its client limit of 20/s. Raise kube-api-qps" in row["sentence"]


def test_where_the_limit_is_raised_nobody_is_held(local_cluster: LocalCluster, namespace: str, tmp_path: Path) -> None:
    found = measured(local_cluster, namespace, tmp_path)
    assert_covered(found)
    assert CLIENT_LIMIT not in found.limits["kind"].to_list()


def test_urgent_pods_take_the_place_of_others_of_the_test(tmp_path: Path) -> None:
    """Eight small jobs hold all GPUs of one node until an urgent one comes."""
    programs()
    rows = ["time_s,entry,lifetime_s", *["0,small,20"] * 8, "4,urgent,3"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "scenario.yaml").write_text(
        "name: preemption\narrival: {process: trace, file: jobs.csv}\nworkloads:\n"
        "  - {name: small, kind: Job, gpus: 1, lifetime: 20}\n"
        "  - {name: urgent, kind: Job, gpus: 8, lifetime: 3, priority: workbench-scaletest-high}\n"
    )
    with start_guarded_cluster("urgent", pools=[NodePool(nodes=1, gpus=8)], client_limits=QUICK) as cluster:
        access = ClusterAccess(cluster.measure_kubeconfig, cluster.measure_context, cluster)
        scenario = scenario_file.load_scenario(tmp_path / "scenario.yaml")
        found = analyse_run(run_test(scenario, RunContext(access), out=tmp_path / "out").folder)
    assert "8 preempted" in found.explanation
    urgent = found.pods.filter(pl.col("gpus") == 8)
    assert urgent["ended_s"].null_count() == 0


def test_jobs_wait_for_the_devices_that_they_claim(tmp_path: Path) -> None:
    programs()
    pools = [NodePool(nodes=4, gpus=4, as_devices=True)]
    with start_guarded_cluster("claims", pools=pools, client_limits=QUICK) as cluster:
        access = ClusterAccess(cluster.measure_kubeconfig, cluster.measure_context, cluster)
        scenario = scenario_file.load_scenario(SAMPLES / "scaletest" / "scenarios" / "claims.yaml")
        found = analyse_run(run_test(scenario, RunContext(access), out=tmp_path / "out").folder)
    assert "bound by devices that its resource claims ask for" in found.explanation
    assert found.pods["scheduled_s"].is_not_null().all()
    begins_s, ends_s = found.pods["scheduled_s"].to_numpy(), found.pods["ended_s"].to_numpy()
    at_once = [((begins_s <= at_s) & (ends_s > at_s)).sum() for at_s in begins_s]
    # Two of sixteen devices each; an end is seen a moment after it was.
    assert 8 <= max(at_once) <= 9
