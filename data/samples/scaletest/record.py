"""Records the samples of this folder on a local control plane: Kubernetes itself, with simulated nodes.

    python data/samples/scaletest/record.py sides OUT [--repeat N]
    python data/samples/scaletest/record.py league OUT [--repeat N]
    python data/samples/scaletest/record.py copies OUT [--repeat N]

`sides`: the stock scheduler and KAI, in turn, on one plan. What is kept of a run is its description and its raw tables;
everything else follows from these. `league`: four schedulers on one control plane in a drawn order; Kueue is built by
`workbench scaletest cluster build --only kueue`. `copies`: one plan and one scheduler again and again, of which the
quantiles are kept: what is told apart among them is made up.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl

from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.local_cluster import kai_scheduler
from workbench.scaletest.local_cluster.cluster_lifecycle import start_cluster, stop_cluster
from workbench.scaletest.local_cluster.cluster_record import NATIVE_GANGS, ClientLimit, ClusterSettings, NodePool
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import (
    BEATS,
    GAPS,
    LOAD,
    NODE_CHANGES,
    NODES,
    PRESSURE,
    QUANTILES,
    REQUESTS,
    SCHEDULE,
    SKEW,
    SUBMISSIONS,
    TRANSITIONS,
)
from workbench.scaletest.test_run.run_console import open_watcher
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import build_options, find_cluster_access
from workbench.scaletest.test_run.variant_turns import run_variants

HERE = Path(__file__).parent
SCENARIO = HERE / "scenarios" / "jobs-and-gangs.yaml"
LEAGUE = HERE / "scenarios" / "league.yaml"
COPIED = HERE / "scenarios" / "copies.yaml"
CLUSTER = "sample"
SIDES = ["default-scheduler", "kai-scheduler"]
LEAGUE_SCHEDULERS = ["default-scheduler", "gang-scheduling", "kai-scheduler", "kueue"]
RAW_TABLES = (BEATS, GAPS, LOAD, NODES, NODE_CHANGES, PRESSURE, REQUESTS, SCHEDULE, SKEW, SUBMISSIONS, TRANSITIONS)
# So that schedulers are compared, and not the limits that clients put on themselves.
RAISED = ClientLimit(qps=400, burst=800)


def main() -> int:
    """Record into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sides", "league", "copies"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeat", type=int)
    given = parser.parse_args()
    start_cluster(CLUSTER, ClusterSettings(**_choose_settings(given.what)))
    try:
        with open_watcher() as told:
            if given.what == "copies":
                _copies(given.out, given.repeat or 10, told)
            elif given.what == "league":
                _in_turn(LEAGUE, LEAGUE_SCHEDULERS, "league", given.out, given.repeat or 5, told)
            else:
                _in_turn(SCENARIO, SIDES, "default-and-kai", given.out, given.repeat or 3, told)
    finally:
        stop_cluster(CLUSTER)
    return 0


def _choose_settings(what: str) -> dict[str, Any]:
    """Nodes, schedulers and client limits of the cluster of a recording."""
    own, kai = ["kube-controller-manager", "kube-scheduler"], list(kai_scheduler.KAI_PROCESSES)
    large = {"pools": [NodePool(nodes=24, gpus=8)]}
    if what == "copies":
        return {**large, "client_limits": dict.fromkeys(own, RAISED)}
    if what == "sides":
        return {**large, "scheduler": "kai", "client_limits": dict.fromkeys([*own, *kai], RAISED)}
    return {
        "pools": [NodePool(nodes=7, gpus=8)],
        "scheduler": "kai",
        "kueue": True,
        "feature_gates": dict.fromkeys(NATIVE_GANGS, True),
        "client_limits": dict.fromkeys([*own, *kai, "kueue"], RAISED),
    }


def _in_turn(scenario: Path, schedulers: list[str], name: str, out: Path, repeat: int, told: Any) -> None:
    options = build_options(settle_s=10)
    context = RunContext(find_cluster_access(cluster=CLUSTER), options, watcher=told)
    found = run_variants(scenario, context, schedulers, repeat=repeat, out=out / "work")
    keep(found.folder, out / name)


def _copies(out: Path, repeat: int, told: Any) -> None:
    goal = out / "copies"
    goal.mkdir(parents=True, exist_ok=True)
    for number in range(repeat):
        options = build_options(settle_s=5)
        context = RunContext(find_cluster_access(cluster=CLUSTER), options, watcher=told)
        found = run_test(COPIED, context, out=out / "work")
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
        test = run_records.read_conditions(session / one.folder)
        # The context is named after the machine's cluster; nobody needs it.
        run_records.write_conditions(run, test.model_copy(update={"context": "local"}))
        _write_tables(session / one.folder / "tables", run / "tables")


def _write_tables(source: Path, goal: Path) -> None:
    """The raw tables with uids numbered as they come: random ones would be half of the sample's bytes."""
    numbers: dict[str, str] = {}
    for table in RAW_TABLES:
        rows = table.read(source)
        for column in ("uid", "owner"):
            if column in rows.columns:
                for uid in rows[column].drop_nulls().unique(maintain_order=True):
                    numbers.setdefault(uid, f"{len(numbers):06d}")
                rows = rows.with_columns(pl.col(column).replace(numbers))
        checked = table.check(rows)
        checked.write_parquet(
            goal / f"{table.name}.parquet", compression="zstd", compression_level=19, statistics=False
        )


if __name__ == "__main__":
    sys.exit(main())
