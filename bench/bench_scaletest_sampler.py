"""The sampler: memory for 50,000 pods, what a change costs, the clocks' distance, arrival against event times.

    python -m bench.bench_scaletest_sampler memory [--pods 50000]
    python -m bench.bench_scaletest_sampler cluster --kubeconfig F [--context C] --namespace NS [--jobs 300]

`memory` runs the sampler's process against a scripted server that sends synthetic pods of 3.2 KB through a list, a
watch and a list after 410; it needs no cluster. `cluster` makes Jobs at a constant rate in a namespace that exists, on
nodes that carry workbench.local/sim=true, and deletes them; the server's clock is this machine's there.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
import psutil

from bench import shape
from bench.shape import Row
from tests.scaletest.observation.scripted import NAMESPACE, PODS, pod, scripted, until
from workbench.kubernetes.client import Target, load_target
from workbench.scaletest import observation
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import NS_PER_S, Connection, parse_timestamp
from workbench.scaletest.observation import clock_skew, run_records

POD_BYTES = 3200
LIMIT_S = 1200.0
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {}}]
contexts: [{name: scripted, context: {cluster: c, user: u}}]
current-context: scripted
"""


def synthetic(number: int, state: int) -> dict[str, Any]:
    """A pod in its first, second or third state, as large as the API server writes it."""
    phase = "Running" if state == 2 else "Pending"
    labels = api_discovery.build_labels("st-00000001", f"st-00000001-{number:07d}", 0)
    name = f"st-00000001-{number:07d}-abcde"
    made = pod(name, phase=phase, node=f"sim-{number % 500:05d}" if state else None, labels=labels)
    made["metadata"]["uid"] = f"{number:08d}-0000-4000-8000-{number:012d}"
    made["metadata"]["ownerReferences"] = [
        {"uid": f"{number:08d}-0000-4000-8000-000000000000", "name": f"st-00000001-{number:07d}", "controller": True}
    ]
    room = POD_BYTES - len(orjson.dumps(made))
    made["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": {"f:x": "y" * max(0, room - 60)}}]
    return made


async def memory(pods: int) -> dict[str, float]:
    """Growth of RSS in MiB after all pods and after a list of all anew, and processor time per change."""
    folder = Path(tempfile.mkdtemp())
    async with scripted() as (api, _):
        api.cluster()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG % api.url)
        options = observation.SamplerOptions(
            folder=folder, run="st-00000001", namespaces=(NAMESPACE,), kubeconfig=kubeconfig
        )
        sampler = observation.start_sampler(options)
        try:
            await asyncio.to_thread(sampler.wait_until_ready)
            process = psutil.Process(sampler.pid)
            await until(lambda: sampler.state(), LIMIT_S)
            before, cpu = process.memory_info().rss, sum(process.cpu_times()[:2])
            await _send(api, pods, sampler)
            after, cpu = process.memory_info().rss, sum(process.cpu_times()[:2]) - cpu
            api.forget()
            api.send(PODS, None)
            await until(lambda: "expired" in (folder / run_records.HEALTH).read_text(), LIMIT_S)
            listed = process.memory_info().rss
        finally:
            await asyncio.to_thread(sampler.stop)
    rows = [
        one
        for one in run_records.read_lines(folder / run_records.OBSERVED, run_records.ObservedLine)
        if one.name.startswith("st-")
    ]
    if len(rows) != 3 * pods:
        raise RuntimeError(f"{len(rows)} transitions on disk, {3 * pods} expected")
    sizes = {"watched_mib": (after - before) / 2**20, "listed_mib": (listed - before) / 2**20}
    return sizes | {"change_us": cpu / (3 * pods) * 1e6}


async def _send(api: Any, pods: int, sampler: observation.SamplerProcess) -> None:
    for state in range(3):
        for number in range(pods):
            api.put(PODS, synthetic(number, state))
            api.log.clear()  # nobody comes back for it, and it is three times all pods
            if number % 200 == 0:
                await until(lambda: all(stream.orders.qsize() < 400 for stream in api.streams.get(PODS, [])), LIMIT_S)
    await until(lambda: all(stream.orders.empty() for stream in api.streams[PODS]), LIMIT_S)
    await until(lambda: sampler.state().get("objects") == pods, LIMIT_S)
    await asyncio.sleep(2)  # the last states are in the pipe


async def clocks(where: Target) -> None:
    """Half-width of the bounds after 10 s."""
    rows: list[run_records.Skew] = []
    async with Connection(where) as api:
        prober, end = clock_skew.build_prober(api, rows.append), time.monotonic() + 10
        while time.monotonic() < end:
            await prober.burst(3)
    for row in (rows[0], rows[-1]):
        low, high = row.low_ns / 1e6, row.high_ns / 1e6
        print(
            f"  clocks apart by [{low:.2f}, {high:.2f}] ms, half-width {(high - low) / 2:.2f} ms, {row.probes} probes"
        )
    low, high = max(row.low_ns for row in rows) / 1e6, min(row.high_ns for row in rows) / 1e6
    print(f"  all bursts of 10 s together: [{low:.2f}, {high:.2f}] ms, half-width {(high - low) / 2:.2f} ms")


async def submit(where: Target, namespace: str, run: str, jobs: int, rate: float) -> None:
    """Make the Jobs, one after the other, not faster than the rate."""
    async with Connection(where) as api:
        begin = time.monotonic()
        for index in range(jobs):
            await asyncio.sleep(max(0.0, begin + index / rate - time.monotonic()))
            await api.json("POST", api_discovery.JOBS.path(namespace), _job(run, index))


def _job(run: str, index: int) -> dict[str, Any]:
    name = api_discovery.build_workload_name(run, index)
    labels = api_discovery.build_labels(run, name, 0)
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {api_discovery.SIMULATED: "true"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"backoffLimit": 0, "template": template}}


async def remove(where: Target, namespace: str, run: str) -> None:
    """Delete the Jobs and their pods."""
    query = {"labelSelector": api_discovery.build_run_selector(run), "propagationPolicy": "Background"}
    async with Connection(where) as api:
        await api.request("DELETE", api_discovery.JOBS.path(namespace), query=query)


def arrivals(folder: Path, jobs: int) -> None:
    """How long after the scheduler's own microsecond the watch had told us."""
    rows = [
        one
        for one in run_records.read_lines(folder / run_records.OBSERVED, run_records.ObservedLine)
        if isinstance(one, run_records.Seen)
    ]
    for transition in ("created", "scheduled", "running"):
        found = {one.uid for one in rows if (one.resource, one.transition) == ("pod", transition)}
        print(f"  pods {transition}: {len(found)} of {jobs}")
    events = {
        one.owner: parse_timestamp(one.server)
        for one in rows
        if (one.resource, one.transition) == ("event", "scheduled")
    }
    late = sorted(
        (one.arrival_ns - when.ns) / 1e6
        for one in rows
        if (one.resource, one.transition) == ("pod", "scheduled") and (when := events.get(one.uid)) is not None
    )
    if len(late) > 1:
        cut = statistics.quantiles(late, n=100)
        print(f"  arrival minus Scheduled eventTime: n={len(late)} p50 {cut[49]:.1f} ms, p99 {cut[98]:.1f} ms")
    beats = [
        one
        for one in run_records.read_lines(folder / run_records.HEALTH, run_records.HealthLine)
        if isinstance(one, run_records.Beat)
    ]
    lags = [(one.seen_ns - one.acked_ns) / 1e6 for one in beats if one.seen_ns is not None]
    print(f"  heartbeat: {len(lags)} of {len(beats)} seen, worst {max(lags):.1f} ms after the answer")
    load = [
        one
        for one in run_records.read_lines(folder / run_records.HEALTH, run_records.HealthLine)
        if isinstance(one, run_records.Load)
    ]
    busy = statistics.fmean(one.host_busy for one in load if one.host_busy is not None)
    span_s = (load[-1].at_ns - load[0].at_ns) / NS_PER_S
    print(
        f"  sampler: {sum(one.sampler_cpu_s for one in load[1:]) / span_s:.2f} cores; all cores busy {100 * busy:.0f} %"
    )


def cluster(chosen: argparse.Namespace) -> None:
    """All figures of a real control plane."""
    where, run, folder = (
        load_target(chosen.kubeconfig, chosen.context),
        api_discovery.new_run_id(),
        Path(tempfile.mkdtemp()),
    )
    asyncio.run(clocks(where))
    options = observation.SamplerOptions(
        folder=folder, run=run, namespaces=(chosen.namespace,), kubeconfig=chosen.kubeconfig, context=chosen.context
    )
    sampler = observation.start_sampler(options)
    with sampler:
        sampler.wait_until_ready()
        asyncio.run(submit(where, chosen.namespace, run, chosen.jobs, chosen.rate))
        asyncio.run(until(lambda: _running(folder) == chosen.jobs, LIMIT_S))
    asyncio.run(remove(where, chosen.namespace, run))
    arrivals(folder, chosen.jobs)


def _running(folder: Path) -> int:
    time.sleep(0.5)
    rows = run_records.read_lines(folder / run_records.OBSERVED, run_records.ObservedLine)
    return sum(
        isinstance(one, run_records.Seen) and (one.resource, one.transition) == ("pod", "running") for one in rows
    )


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__, trials=1)
    parser.add_argument("what", choices=["memory", "cluster"])
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    parser.add_argument("--namespace")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--rate", type=float, default=50.0, help="Jobs per second")
    chosen = parser.parse_args()
    if chosen.what == "cluster":
        cluster(chosen)
        return 0
    pods, side = 500 if chosen.quick else chosen.pods, "workbench"
    found = shape.alternating({side: lambda: asyncio.run(memory(pods))}, chosen.trials)
    what = f"the sampler watches {pods:,} pods of 3.2 KB, three states each"
    names_of = {"watched_mib": ("memory more", "MiB"), "listed_mib": ("memory more, after a list of all anew", "MiB"),
                "change_us": ("processor time a change", "us")}  # fmt: skip
    rows = [
        Row("scaletest", f"{what}: {name}", side, unit, found.of(side, key), failures=found.failures[side])
        for key, (name, unit) in names_of.items()
    ]
    return shape.finish(rows, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
