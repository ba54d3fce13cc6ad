"""Records the samples of this folder on a local control plane: Kubernetes itself, with simulated nodes.

    python data/samples/scaletest/record.py sides OUT [--repeat N]
    python data/samples/scaletest/record.py copies OUT [--repeat N]

`sides`: the stock scheduler and KAI, in turn, on one plan. What is kept of a run is its description and its raw tables;
everything else follows from these. `copies`: one plan and one scheduler again and again, of which the quantiles are
kept: what is told apart among them is made up.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from workbench.scaletest import test_run
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.local_cluster import kai_scheduler
from workbench.scaletest.local_cluster.cluster_lifecycle import start_cluster, stop_cluster
from workbench.scaletest.local_cluster.cluster_record import ClientLimit, NodePool
from workbench.scaletest.observation import run_conditions
from workbench.scaletest.tables import QUANTILES, RAW_TABLES
from workbench.scaletest.test_run.run_console import open_watcher
from workbench.scaletest.test_run.variant_turns import run_variants

HERE = Path(__file__).parent
SCENARIO = HERE / "scenarios" / "jobs-and-gangs.yaml"
COPIED = HERE / "scenarios" / "copies.yaml"
CLUSTER = "sample"
# So that schedulers are compared, and not the limits that clients put on themselves.
RAISED = ClientLimit(qps=400, burst=800)


def main() -> int:
    """Record into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sides", "copies"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeat", type=int)
    given = parser.parse_args()
    limits = dict.fromkeys(("kube-controller-manager", "kube-scheduler", *kai_scheduler.KAI_PROCESSES), RAISED)
    if given.what == "copies":
        limits = {name: limit for name, limit in limits.items() if name not in kai_scheduler.KAI_PROCESSES}
    scheduler: Literal["default", "kai"] = "kai" if given.what == "sides" else "default"
    start_cluster(CLUSTER, pools=[NodePool(nodes=24, gpus=8)], scheduler=scheduler, client_limits=limits)
    try:
        with open_watcher() as told:
            if given.what == "sides":
                _sides(given.out, given.repeat or 3, told)
            else:
                _copies(given.out, given.repeat or 10, told)
    finally:
        stop_cluster(CLUSTER)
    return 0


def _sides(out: Path, repeat: int, told: Any) -> None:
    schedulers = ["default-scheduler", "kai-scheduler"]
    options = test_run.build_options(settle_s=10)
    place = test_run.find_cluster_access(cluster=CLUSTER)
    found = run_variants(SCENARIO, place, schedulers, repeat=repeat, options=options, out=out / "work", watcher=told)
    keep(found.folder, out / "default-and-kai")


def _copies(out: Path, repeat: int, told: Any) -> None:
    goal = out / "copies"
    goal.mkdir(parents=True, exist_ok=True)
    for number in range(repeat):
        options = test_run.build_options(settle_s=5)
        place = test_run.find_cluster_access(cluster=CLUSTER)
        found = test_run.run_test(COPIED, place, options=options, out=out / "work", watcher=told)
        quantiles = analyse_run(found.folder).quantiles
        QUANTILES.check(quantiles).write_parquet(goal / f"run-{number}.parquet", compression="zstd")


def keep(session: Path, goal: Path) -> None:
    """What of a session is shipped."""
    shutil.rmtree(goal, ignore_errors=True)
    goal.mkdir(parents=True)
    shutil.copy(session / variants.SESSION_FILE, goal)
    shutil.copy(session / "scenario.yaml", goal)
    for one in variants.read_session(session).runs:
        run = goal / one.folder
        (run / "tables").mkdir(parents=True)
        test = run_conditions.read_conditions(session / one.folder)
        # The context is named after the machine's cluster; nobody needs it.
        run_conditions.write_conditions(run, test.model_copy(update={"context": "local"}))
        for table in RAW_TABLES:
            table.write(table.read(session / one.folder / "tables"), run / "tables")


if __name__ == "__main__":
    sys.exit(main())
