"""5,000 pods on 1,000 simulated nodes: is every one accepted, scheduled and cleaned up, and what memory does that take?

    python -m bench.bench_scaletest_large [--pods 5000] [--nodes 1000] [--rate 50] [--json FILE]

Brings a cluster of its own up and down (its programs: `workbench scaletest cluster build`), and runs one test by the
command line, as a user does. Memory is the largest resident size of the client's process, and of its children (the
sampler) together, read twice a second. An event is lost when a pod's creation, place or start was never seen.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import psutil

from bench import shape
from workbench.scaletest.local_cluster import cluster_lifecycle
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import ClientLimit, ClusterSettings, NodePool
from workbench.scaletest.tables import GAPS, SUBMISSIONS, TRANSITIONS

LIMIT_S = 600.0
SEEN = ("created", "scheduled", "running")
SCENARIO = """name: large
arrival: {{process: constant, rate_per_s: {rate}, n: {pods}}}
workloads:
  - {{kind: Pod, gpus: 1, lifetime: 30}}
limits: {{objects: {pods}, rate_per_s: {rate}}}
"""


def run_test(cluster: LocalCluster, scratch: Path, pods: int, rate: float) -> dict[str, Any]:
    """One test: exit code, seconds, memory."""
    scenario = scratch / "large.yaml"
    scenario.write_text(SCENARIO.format(pods=pods, rate=rate))
    command = [sys.executable, "-m", "workbench", "scaletest", "run", str(scenario), "--cluster", cluster.name]
    begun, client_bytes, children_bytes = time.monotonic(), 0, 0
    with open(scratch / "log", "w") as log:
        process = subprocess.Popen([*command, "--out", str(scratch / "runs")], stdout=log, stderr=log)
        watched = psutil.Process(process.pid)
        while process.poll() is None and time.monotonic() - begun < LIMIT_S + pods / rate:
            try:
                client_bytes = max(client_bytes, watched.memory_info().rss)
                children = [child.memory_info().rss for child in watched.children(recursive=True)]
                children_bytes = max(children_bytes, sum(children))
            except psutil.Error:  # one of them has just ended
                pass
            time.sleep(0.5)
        process.kill()
    found = {"exit_code": process.wait(), "duration_s": round(time.monotonic() - begun, 1)}
    return found | {"client_mib": round(client_bytes / 2**20), "sampler_mib": round(children_bytes / 2**20)}


def count_what_was_seen(folder: Path, pods: int) -> dict[str, int]:
    """Pods accepted, and seen in each state; events lost; gaps of a watch."""
    submissions, gaps = SUBMISSIONS.read(folder / "tables"), GAPS.read(folder / "tables")
    transitions = TRANSITIONS.read(folder / "tables").filter(pl.col("resource") == "pod")
    seen = {
        state: transitions.filter((pl.col("transition") == state) & pl.col("arrival_s").is_not_null())["uid"].n_unique()
        for state in SEEN
    }
    accepted = submissions.filter(pl.col("status") == "created").height
    lost = sum(max(accepted - count, 0) for count in seen.values())
    return {"pods": pods, "accepted": accepted, **seen, "lost_events": lost, "gaps": gaps.height}


def count_left(cluster: LocalCluster) -> int:
    """Pods that are still there after the test has cleaned up."""
    assert cluster.kubectl is not None
    command = [str(cluster.kubectl), "--kubeconfig", str(cluster.kubeconfig), "get", "pods", "-A", "-o", "name"]
    return len(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def main() -> int:
    """Measure, print; 1 when a pod was not accepted, scheduled, cleaned up, or an event was lost."""
    parser = shape.plain_parser(__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0, help="pods a second")
    given = parser.parse_args()
    name = f"large-{secrets.token_hex(3)}"
    raised = dict.fromkeys(("kube-controller-manager", "kube-scheduler"), ClientLimit(qps=400, burst=800))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            settings = ClusterSettings(pools=(NodePool(nodes=given.nodes, gpus=8),), client_limits=raised)
            cluster = cluster_lifecycle.start_cluster(name, settings, timeout_s=600)
            found = run_test(cluster, Path(scratch), given.pods, given.rate)
            runs = sorted(Path(scratch, "runs").rglob("tables/transitions.parquet"))
            found |= count_what_was_seen(runs[0].parents[1], given.pods) if runs else {}
            found["left"] = count_left(cluster)
            print(Path(scratch, "log").read_text()[-3000:])
        finally:
            cluster_lifecycle.stop_cluster(name)
    found |= {"nodes": given.nodes, "n_cores": os.cpu_count()}
    print(json.dumps(found, indent=1))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    complete = runs and all(found[key] == given.pods for key in ("accepted", *SEEN))
    return int(not complete or found["left"] > 0)


if __name__ == "__main__":
    sys.exit(main())
