"""Submission by the old tool's flags: by kubectl (a process a workload, as it does) beside the API, in turns.

    python -m bench.bench_scaletest_upstream [--old FOLDER --old-python FILE] [-n 48] [-p 8] [--trials 5]

A local cluster and simulated-runai are brought up for this alone. FOLDER holds the old tool, unchanged (in no package
index; without the option the user's cache is looked at); FILE is a Python with its requirements: with both its
submitter.py is a side of its own. Each trial makes n workloads in a project of its own, which is deleted before the
next. The rate is that of the submissions' own times: (n - 1) / (last - first).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import shape
from bench.shape import Row
from tests.fakes.runai_operator import run_simulated_runai
from workbench.core.files import cache_folder
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import cluster_lifecycle
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import ClusterSettings, NodePool

LIMIT_S = 600


OLD, KUBECTL = "upstream's submitter.py", "a kubectl process each, as upstream's"
PEERS = {OLD: "unchanged, of 2026-04", KUBECTL: "kubectl"}
MISSING = (
    "no checkout of it in the user's cache, below peer/scale-test-tool with a .venv of its requirements (it is in no "
    "package index); a kubectl process a workload, as it starts them, stands for it"
)


def ours(on: LocalCluster, project: str, out: Path, count: int, burst: int, *flags: str) -> list[str]:
    words = [sys.executable, "-m", "workbench", "scaletest", "submit", "--cluster", on.name, "--project", project]
    words += ["-t", "training", "-n", str(count), "-p", str(burst), "-o", str(out), "--max-rate", "5000"]
    return [*words, *flags]


def contenders(on: LocalCluster, options: argparse.Namespace) -> dict[str, Any]:
    """Name to a function that makes the command line of a project and a folder."""
    count, burst = options.n, options.p
    kubectl = ["--closed", "--submit-with", "kubectl", "--kubectl", str(on.kubectl)]
    found: dict[str, Any] = {
        KUBECTL: lambda project, out: ours(on, project, out, count, burst, *kubectl),
        "workbench, API, closed loop": lambda project, out: ours(on, project, out, count, burst, "--closed"),
        "workbench, API, open loop": lambda project, out: ours(on, project, out, count, burst),
    }
    if options.old is not None:
        head = [str(options.old_python), str(options.old / "submitter.py"), "-t", "training"]
        found[OLD] = lambda project, out: [
            *head,
            *("-n", str(count), "-p", str(burst), "--project", project, "-o", str(out)),
        ]
    return found


def measured(make: Any, on: LocalCluster) -> dict[str, float]:
    """One trial: rate, wall time, how many of them were submitted."""
    project = f"bench-{secrets.token_hex(3)}"
    with TemporaryDirectory() as folder:
        out = Path(folder) / "o"
        asyncio.run(_namespace(on, f"runai-{project}", "POST"))
        environment = {**os.environ, "KUBECONFIG": str(on.kubeconfig)}
        environment["PATH"] = f"{on.kubectl.parent if on.kubectl else ''}{os.pathsep}{environment['PATH']}"
        begin_s = time.perf_counter()
        command = make(project, out)
        subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT_S, check=True)
        wall_s = time.perf_counter() - begin_s
        rows = json.loads((out / "submitted.json").read_text())
        asyncio.run(_namespace(on, f"runai-{project}", "DELETE"))
    at = sorted(datetime.fromisoformat(row["submitTimestamp"]).timestamp() for row in rows)
    if len(at) < 2 or at[-1] == at[0]:
        raise RuntimeError(f"{len(at)} submission(s) at {len(set(at))} time(s): no rate")
    return {"rate_per_s": (len(at) - 1) / (at[-1] - at[0]), "wall_s": wall_s, "submitted": len(rows)}


async def _namespace(on: LocalCluster, name: str, method: str) -> None:
    """Make it, or delete it and wait until it is gone: nothing of a trial may be under way in the next."""
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        path = "/api/v1/namespaces"
        if method == "POST":
            labels = {api_discovery.ALLOW: "true", api_discovery.MANAGED_BY: api_discovery.MANAGER}
            await api.json("POST", path, {"metadata": {"name": name, "labels": labels}})
            return
        await api.json("DELETE", f"{path}/{name}")
        while (await api.request("GET", f"{path}/{name}")).status != 404:
            await asyncio.sleep(0.1)


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--old", type=Path, default=cache_folder() / "peer" / "scale-test-tool")
    parser.add_argument("--old-python", type=Path)
    parser.add_argument("-n", type=int, default=48)
    parser.add_argument("-p", type=int, default=8)
    options = parser.parse_args()
    options.n = 8 if options.quick else options.n
    options.old_python = options.old_python or options.old / ".venv" / "bin" / "python"
    missing = {}
    if not (options.old / "submitter.py").is_file() or not options.old_python.is_file():
        missing[OLD] = MISSING
        options.old = None
    name = f"bench-{secrets.token_hex(3)}"
    try:
        on = cluster_lifecycle.start_cluster(name, ClusterSettings(pools=(NodePool(nodes=50, gpus=8),)))
        with run_simulated_runai(on.kubeconfig, on.context):
            sides = {side: lambda make=make: measured(make, on) for side, make in contenders(on, options).items()}
            found = shape.alternating(sides, options.trials)
    finally:
        cluster_lifecycle.stop_cluster(name)
    what = f"{options.n} workloads by upstream's flags, {options.p} at once"
    rows = []
    for side in sides:
        counts = sorted({int(one) for one in found.of(side, "submitted") if one is not None})
        told = {
            "peer": PEERS.get(side, ""),
            "note": f"submitted {counts} of {options.n}",
            "failures": found.failures[side],
        }
        rates = found.of(side, "rate_per_s")
        rows.append(Row("scaletest", what, side, "/s", rates, higher_is_better=True, **told))
    return shape.finish(rows, options.json, missing)


if __name__ == "__main__":
    sys.exit(main())
