"""A run on a real control plane is followed: every pod by its steps, its workload, its events and the audit log."""

from __future__ import annotations

import threading
from pathlib import Path

import polars as pl
import pytest

from tests.scaletest.making_scenarios import lines_of, scenario
from workbench.scaletest import tables
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import parse_timestamp
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.observation import run_records
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options

pytestmark = pytest.mark.cluster


def of(rows: list[run_records.Seen], resource: str, transition: str) -> list[run_records.Seen]:
    return [one for one in rows if (one.resource, one.transition) == (resource, transition)]


def test_every_pod_is_created_scheduled_and_running_and_is_its_workloads(
    local_cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    count, threads = 60, threading.active_count()
    arrival = {"process": "constant", "rate_per_s": 100, "n": count}
    job = {"kind": "Job", "gpus": 1, "lifetime": 1}
    given = scenario(job, namespace=namespace, arrival=arrival, limits={"rate_per_s": 200})
    on = ClusterAccess(local_cluster.measure_kubeconfig, local_cluster.measure_context, local_cluster)
    done = run_test(given, RunContext(on, build_options(settle_s=10)), out=tmp_path)
    assert threading.active_count() == threads
    folder, run = done.folder, done.run
    rows: list[run_records.Seen] = lines_of(folder, run_records.Seen)
    assert len(of(rows, "job", "complete")) == count
    workloads = {api_discovery.build_workload_name(run, index) for index in range(count)}
    for resource, transition in (
        ("job", "created"),
        ("pod", "created"),
        ("pod", "scheduled"),
        ("pod", "running"),
        ("event", "scheduled"),
    ):
        found = of(rows, resource, transition)
        # An event may come before its pod, whose workload is then not known; its owner is checked below.
        if resource != "event":
            assert {one.workload for one in found} == workloads, (resource, transition)
        assert len(found) == count
        assert not any(one.gap for one in found)
    jobs = {one.uid: one.name for one in of(rows, "job", "created")}
    assert {one.owner for one in of(rows, "pod", "created")} == set(jobs)
    pods = {one.uid for one in of(rows, "pod", "created")}
    events = of(rows, "event", "scheduled")
    assert {one.owner for one in events} == pods
    # The stock scheduler's events are the finest times that there are without the audit log; one that started before
    # the API server told of the newer kind of events writes them in whole seconds.
    resolutions = {parse_timestamp(one.server).resolution_ns for one in events}  # type: ignore[union-attr]
    assert resolutions in ({1000}, {1_000_000_000})
    assert {one.node is not None for one in of(rows, "pod", "scheduled")} == {True}
    assert lines_of(folder, run_records.Gap) == []
    # Another test may have left kinds on this cluster that this identity may not watch: told, and no more.
    assert [one.text for one in lines_of(folder, run_records.Note) if "is not watched" not in one.text] == []
    nodes = lines_of(folder, run_records.NodeSeen)
    assert {(one.gpus, one.simulated, one.ready) for one in nodes} == {(8, True, True)}
    assert len(nodes) == local_cluster.nodes
    _audited(local_cluster, folder, rows, pods)


def _audited(on: LocalCluster, folder: Path, rows: list[run_records.Seen], pods: set[str]) -> None:
    if on.audit_log is None:
        return
    assert {one.owner for one in of(rows, "audit", "bound")} == pods
    requests = tables.REQUESTS.read(folder / "tables")
    counts = requests.group_by("client", "verb", "resource", "subresource").agg(pl.col("requests").sum())
    makers = counts.filter((pl.col("resource") == "pods") & (pl.col("verb") == "create"))
    by = {(client, sub): number for client, _, _, sub, number in makers.rows()}
    assert next(number for (client, sub), number in by.items() if "job-controller" in client and not sub) >= len(pods)
    assert next(number for (client, sub), number in by.items() if "scheduler" in client and sub == "binding") >= len(
        pods
    )
