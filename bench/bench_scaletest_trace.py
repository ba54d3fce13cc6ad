"""A trace of 500 GPU jobs replayed with time compressed: are its GPU-seconds held, and do jobs wait as simulated?

    python -m bench.bench_scaletest_trace [--speed 90] [--n 500] [--json FILE]

Two local clusters of their own, one with room for every job at once and one with fewer GPUs than the jobs need on
average. With room, the pods must hold as many GPU-seconds of the trace's time as the jobs did, within 1 %. Without,
their mean wait stands beside that of a simulated queue with kube-scheduler's backoff; the difference has no bound.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import shape
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.local_cluster.cluster_lifecycle import start_cluster, stop_cluster
from workbench.scaletest.local_cluster.cluster_record import ClientLimit, ClusterSettings, NodePool
from workbench.scaletest.scenario.trace_scenario import ReplayOptions, read_job_trace, write_trace_scenario
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import find_cluster_access

TRACE = Path(__file__).parents[1] / "data" / "samples" / "scaletest" / "traces" / "jobs.csv"
ROOMY_NODES, FULL_NODES = 40, 8
MAX_LOST_FRACTION = 0.01


def replay_trace(scenario: Path, nodes: int, out: Path) -> dict[str, Any]:
    """One replay on nodes with 8 GPUs each."""
    name = f"trace-{secrets.token_hex(3)}"
    raised = dict.fromkeys(("kube-controller-manager", "kube-scheduler"), ClientLimit(qps=400, burst=800))
    start_cluster(name, ClusterSettings(pools=(NodePool(nodes=nodes, gpus=8),), client_limits=raised))
    try:
        context = RunContext(find_cluster_access(cluster=name))
        found = run_test(scenario, context, out=out)
    finally:
        stop_cluster(name)
    run = analyse_run(found.folder)
    replay, queue = run.replay, run.queue
    assert replay is not None
    waits = {} if queue is None else {"wait_s": queue.mean_s, "simulated_wait_s": queue.simulated_mean_s}
    return {
        "gpus": 8 * nodes,
        "verdict": found.verdict,
        "reasons": list(found.reasons),
        "n_ended": replay.n_ended,
        "trace_gpu_s": replay.trace_gpu_s,
        "held_gpu_s": replay.held_gpu_s,
        "held_of_trace": replay.held_gpu_s / replay.trace_gpu_s,
        "excess_fraction": replay.excess_fraction,
        **waits,
        "findings": [replay.sentence, *([] if queue is None else [queue.sentence])],
    }


def main() -> int:
    """Measure, print; 1 when a job did not end, or GPU-seconds were lost where there was room."""
    parser = shape.plain_parser(__doc__)
    parser.add_argument("--speed", type=float, default=90.0)
    parser.add_argument("--n", type=int, default=500)
    given = parser.parse_args()
    found: dict[str, Any] = {"speed": given.speed, "n_jobs": given.n, "n_cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as scratch:
        options = ReplayOptions(n=given.n, speed=given.speed)
        made = write_trace_scenario(read_job_trace(TRACE), Path(scratch, "replay"), options)
        for case, nodes in (("with room", ROOMY_NODES), ("without", FULL_NODES)):
            found[case] = replay_trace(made.scenario, nodes, Path(scratch, "runs"))
            print(json.dumps({case: found[case]}, indent=1), flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    roomy = found["with room"]
    lost = abs(roomy["held_of_trace"] - 1)
    return int(lost > MAX_LOST_FRACTION or any(found[case]["n_ended"] < given.n for case in ("with room", "without")))


if __name__ == "__main__":
    sys.exit(main())
