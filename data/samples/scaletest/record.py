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

from workbench.scaletest import facts, running, sides
from workbench.scaletest.analysing import analyse
from workbench.scaletest.localcluster import kai
from workbench.scaletest.localcluster.cluster import down, up
from workbench.scaletest.localcluster.settings import Limit, Pool
from workbench.scaletest.result_tables import QUANTILES
from workbench.scaletest.running.ab import interleaved
from workbench.scaletest.running.progress import watcher
from workbench.scaletest.tables import RAW

HERE = Path(__file__).parent
SCENARIO = HERE / "scenarios" / "jobs-and-gangs.yaml"
COPIED = HERE / "scenarios" / "copies.yaml"
CLUSTER = "sample"
# So that schedulers are compared, and not the limits that clients put on themselves.
RAISED = Limit(qps=400, burst=800)


def main() -> int:
    """Record into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sides", "copies"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeat", type=int)
    given = parser.parse_args()
    limits = dict.fromkeys(("kube-controller-manager", "kube-scheduler", *kai.NAMES), RAISED)
    if given.what == "copies":
        limits = {name: limit for name, limit in limits.items() if name not in kai.NAMES}
    scheduler: Literal["default", "kai"] = "kai" if given.what == "sides" else "default"
    up(CLUSTER, pools=[Pool(nodes=24, gpus=8)], scheduler=scheduler, client_limits=limits)
    try:
        with watcher() as told:
            if given.what == "sides":
                _sides(given.out, given.repeat or 3, told)
            else:
                _copies(given.out, given.repeat or 10, told)
    finally:
        down(CLUSTER)
    return 0


def _sides(out: Path, repeat: int, told: Any) -> None:
    schedulers = ["default-scheduler", "kai-scheduler"]
    options = running.options(settle_s=10)
    place = running.place(cluster=CLUSTER)
    found = interleaved(SCENARIO, place, schedulers, repeat=repeat, options=options, out=out / "work", watcher=told)
    keep(found.folder, out / "default-and-kai")


def _copies(out: Path, repeat: int, told: Any) -> None:
    goal = out / "copies"
    goal.mkdir(parents=True, exist_ok=True)
    for number in range(repeat):
        options = running.options(settle_s=5)
        place = running.place(cluster=CLUSTER)
        found = running.run(COPIED, place, options=options, out=out / "work", watcher=told)
        quantiles = analyse(found.folder).quantiles
        QUANTILES.check(quantiles).write_parquet(goal / f"run-{number}.parquet", compression="zstd")


def keep(session: Path, goal: Path) -> None:
    """What of a session is shipped."""
    shutil.rmtree(goal, ignore_errors=True)
    goal.mkdir(parents=True)
    shutil.copy(session / sides.FILE, goal)
    shutil.copy(session / "scenario.yaml", goal)
    for one in sides.read_session(session).runs:
        run = goal / one.folder
        (run / "tables").mkdir(parents=True)
        test = facts.read(session / one.folder)
        # The context is named after the machine's cluster; nobody needs it.
        facts.write(run, test.model_copy(update={"context": "local"}))
        for table in RAW:
            table.write(table.read(session / one.folder / "tables"), run / "tables")


if __name__ == "__main__":
    sys.exit(main())
