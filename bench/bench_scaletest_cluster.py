"""How long until a local cluster is ready, how long until it is gone, and how soon are 500 nodes made?

    python -m bench.bench_scaletest_cluster [--trials 5] [--nodes 500] [--scheduler default|kai] [--json FILE]

Each trial is a cluster of its own at Kubernetes' default limits, on programs that are built already. `up_s` is the time
of `up` from its call to ready: control plane, identities, and all nodes Ready and free of taints. `create_s` is the
time in which all nodes were made and acknowledged, `down_s` that of `down`, after which no process is left.
Does not show: the time of `cluster build`, or of a machine whose disk has not read the programs yet (the first trial).
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from bench import shape
from bench.shape import Bar, Row
from tests.scaletest.conftest import unique
from workbench.scaletest.local_cluster import cluster_lifecycle, component_processes
from workbench.scaletest.local_cluster.cluster_record import ClusterSettings, NodePool

MADE = re.compile(r"(\d+) simulated nodes created in ([\d.]+) s")
BARS = {"up_s": Bar("value", at_most=15), "create_s": Bar("value", at_most=3), "down_s": Bar("value", at_most=5)}


def trial(nodes: int, scheduler: Any) -> dict[str, float]:
    """One cluster from nothing to nothing."""
    name, told = unique("bench"), []
    begun = time.perf_counter()
    try:
        settings = ClusterSettings(pools=(NodePool(nodes=nodes, gpus=8),), scheduler=scheduler)
        made = cluster_lifecycle.start_cluster(name, settings, tell=told.append)
        up = time.perf_counter()
    finally:
        ending = time.perf_counter()
        cluster_lifecycle.stop_cluster(name)
        gone = time.perf_counter()
    assert component_processes.find_processes(made.folder) == {}
    found = next(filter(None, map(MADE.search, told)))
    assert int(found[1]) == nodes
    return {"up_s": up - begun, "create_s": float(found[2]), "down_s": gone - ending}


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--scheduler", choices=("default", "kai"), default="default")
    options = parser.parse_args()
    nodes, side = 20 if options.quick else options.nodes, f"workbench, scheduler {options.scheduler}"
    found = shape.alternating({side: lambda: trial(nodes, options.scheduler)}, options.trials)
    what = {"up_s": f"a local cluster of {nodes} nodes, up", "create_s": f"{nodes} nodes made", "down_s": "down again"}
    rows = [
        Row("scaletest", what[key], side, "s", found.of(side, key), bar=bar, failures=found.failures[side])
        for key, bar in BARS.items()
    ]
    return shape.finish(rows, options.json)


if __name__ == "__main__":
    sys.exit(main())
