"""Submission on a local control plane: lateness and rate of an open loop; peak rate beside a kubectl each, alternating.

    python -m bench.bench_scaletest_submit [--workloads 2000] [--rate 100] [--trials 5] [--json FILE]

Brings a cluster of its own up and down (its programs: `workbench scaletest cluster build`), or takes the one whose
administrator's kubeconfig is in $WORKBENCH_CLUSTER_KUBECONFIG, in a namespace of its own that is deleted at the end.
Client and API server share this machine: quote medians and the ratio, and say which machine it was. The requests are
an administrator's, whom the API server never throttles: that is what its peak means.

First part: `--workloads` Jobs at `--rate` a second; how late was each sent, which rate was reached.
Second part: pods that no scheduler takes, as fast as they go: ours with 32 requests in flight (`--pods` of them), then
`kubectl apply`, 8 at once (`--kubectl-pods`); so on in turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import shape
from bench.shape import Bar, Row, Trials
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import NS_PER_S, Connection
from workbench.scaletest.local_cluster import cluster_lifecycle, program_builds
from workbench.scaletest.local_cluster.cluster_record import ClusterSettings, NodePool
from workbench.scaletest.scenario.scenario_file import ScenarioLimits
from workbench.scaletest.scenario.workload_objects import ObjectRequest, PlannedWorkload
from workbench.scaletest.submission.object_creation import KubectlSubmitter, Submitter
from workbench.scaletest.submission.plan_submission import PlanSubmission, SubmissionOutcome

IN_FLIGHT, PROCESSES = 32, 8
UNLIMITED_PER_S = 10_000.0  # more than is ever reached
OURS, KUBECTL = "workbench, 32 in flight", "kubectl apply, 8 at once"
MOST = "pods created as fast as they go"
TIMES = Bar("ratio", at_least=20, beside=KUBECTL)


@dataclass(frozen=True)
class Where:
    """The cluster that is driven."""

    kubeconfig: Path
    context: str | None
    kubectl: Path | None


@contextmanager
def local() -> Iterator[Where]:
    """The cluster that the environment names, or one for this alone."""
    if given := os.environ.get("WORKBENCH_CLUSTER_KUBECONFIG"):
        found = shutil.which("kubectl")
        yield Where(Path(given), None, Path(found) if found else program_builds.find_binaries().kubectl)
        return
    name = f"bench-{secrets.token_hex(3)}"
    try:
        made = cluster_lifecycle.start_cluster(name, ClusterSettings(pools=(NodePool(nodes=50, gpus=8),)))
        yield Where(made.kubeconfig, made.context, made.kubectl)
    finally:
        cluster_lifecycle.stop_cluster(name)


def plan(
    run: str, count: int, rate_per_s: float | None, made: Callable[[str], tuple[str, Any]]
) -> list[PlannedWorkload]:
    """So many objects; without a rate all at once."""

    def one(index: int) -> PlannedWorkload:
        name = api_discovery.build_workload_name(run, index)

        def requests() -> tuple[ObjectRequest, ...]:
            path, body = made(name)
            body["metadata"] = {"name": name, "labels": api_discovery.build_labels(run, name, 0)}
            return (ObjectRequest(path, name, json.dumps(body).encode()),)

        return PlannedWorkload(index, name, "", 0.0 if rate_per_s is None else index / rate_per_s, "", requests)

    return [one(index) for index in range(count)]


def job(namespace: str) -> Callable[[str], tuple[str, Any]]:
    """A suspended Job: the controllers' work is not what is measured."""
    template = {"metadata": {"labels": {}}, "spec": _pod_spec() | {"restartPolicy": "Never"}}
    return lambda name: (
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "template": template}},
    )


def pod(namespace: str) -> Callable[[str], tuple[str, Any]]:
    """A pod that no scheduler takes."""
    return lambda name: (
        f"/api/v1/namespaces/{namespace}/pods",
        {"apiVersion": "v1", "kind": "Pod", "spec": _pod_spec()},
    )


def _pod_spec() -> dict[str, Any]:
    container = {"name": "main", "image": "simulated.invalid/none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [container]}


async def driven(
    where: Where, items: Callable[[str], list[PlannedWorkload]], limits: ScenarioLimits, way: Submitter | None = None
) -> SubmissionOutcome:
    """One submission in a folder of its own."""
    run = api_discovery.new_run_id()
    with tempfile.TemporaryDirectory() as folder:
        async with Connection(load_target(where.kubeconfig, where.context), max_connections=limits.in_flight) as api:
            found = await PlanSubmission(api, Path(folder), run, limits, submitter=way).submit(items(run))
    if not found.complete:
        raise SystemExit(f"not complete: {found}")
    return found


async def in_namespace(where: Where, work: Callable[[str], Any]) -> Any:
    """Within a namespace of its own."""
    name = f"workbench-bench-{secrets.token_hex(3)}"
    async with Connection(load_target(where.kubeconfig, where.context)) as api:
        await api.json(
            "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {api_discovery.ALLOW: "true"}}}
        )
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        while (await api.request("GET", account)).status != 200:
            await asyncio.sleep(0.05)
        try:
            return await work(name)
        finally:
            await api.request("DELETE", f"/api/v1/namespaces/{name}")


async def open_loop(where: Where, workloads: int, rate_per_s: float) -> SubmissionOutcome:
    """Part one."""
    limits = ScenarioLimits(objects=workloads, rate_per_s=UNLIMITED_PER_S, in_flight=64)
    return await in_namespace(
        where, lambda space: driven(where, lambda run: plan(run, workloads, rate_per_s, job(space)), limits)
    )


def peaks(where: Where, trials: int, pods: int, kubectl_pods: int) -> Trials:
    """Part two: both ways in turns."""
    ways = {
        OURS: (pods, ScenarioLimits(objects=pods, rate_per_s=UNLIMITED_PER_S, in_flight=IN_FLIGHT), None),
        KUBECTL: (
            kubectl_pods,
            ScenarioLimits(objects=kubectl_pods, rate_per_s=UNLIMITED_PER_S, in_flight=PROCESSES),
            KubectlSubmitter(where.kubeconfig, where.context, where.kubectl),
        ),
    }

    def measured(count: int, limits: ScenarioLimits, way: Submitter | None) -> dict[str, float]:
        def work(space: str) -> Any:
            return driven(where, lambda run: plan(run, count, None, pod(space)), limits, way)

        made = asyncio.run(in_namespace(where, work))
        return {"pods_per_s": count / ((made.ended_ns - made.began_ns) / NS_PER_S)}

    return shape.alternating({name: lambda way=way: measured(*way) for name, way in ways.items()}, trials)


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--workloads", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--kubectl-pods", type=int, default=40)
    chosen = parser.parse_args()
    jobs, pods, kubectl_pods = (50, 20, 2) if chosen.quick else (chosen.workloads, chosen.pods, chosen.kubectl_pods)
    with local() as where:
        opened = asyncio.run(open_loop(where, jobs, chosen.rate))
        found = peaks(where, chosen.trials, pods, kubectl_pods)
        version = kubectl_version(where)
    assert opened.rate_per_s is not None
    assert opened.lateness_p99_s is not None
    what = f"{jobs:,} Jobs at {chosen.rate:g} a second"
    share, late_ms = 100 * opened.rate_per_s / chosen.rate, 1e3 * opened.lateness_p99_s
    most = {"unit": "pods/s", "higher_is_better": True}
    rows = [
        Row(
            "scaletest",
            f"{what}: of that rate",
            OURS,
            "%",
            [share],
            higher_is_better=True,
            bar=Bar("value", at_least=98),
        ),
        Row("scaletest", f"{what}: sent late, p99", OURS, "ms", [late_ms], bar=Bar("value", at_most=50)),
        Row(
            "scaletest",
            MOST,
            OURS,
            trials=found.of(OURS, "pods_per_s"),
            bar=TIMES,
            failures=found.failures[OURS],
            **most,
        ),
        Row(
            "scaletest",
            MOST,
            KUBECTL,
            trials=found.of(KUBECTL, "pods_per_s"),
            peer=version,
            failures=found.failures[KUBECTL],
            **most,
        ),
    ]
    return shape.finish(rows, chosen.json)


def kubectl_version(where: Where) -> str:
    """As the program says."""
    command = [str(where.kubectl), "version", "--client", "--output", "json"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return f"kubectl {json.loads(told)['clientVersion']['gitVersion']}"


if __name__ == "__main__":
    sys.exit(main())
