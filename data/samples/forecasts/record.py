"""Make the ledger of this folder from other samples: python data/samples/forecasts/record.py

Each forecast is made of inputs that do not hold its outcome, by a run that ended before the run with the outcome began:

- speedup, left out: each query of the recorded pair tpch-sf1 predicted from its other queries, then its measured time;
- speedup, carried over: the queries of tpcds-sf0.05 predicted from their times on Spark and the factors of tpch-sf1,
  then their measured ratios;
- sizing, simulated: GPUs for 400 users estimated on 2 GPUs (the run of data/samples/capacity), then on 20 GPUs;
- sizing, one H100: GPUs for 500 users (the run of data/samples/gpu). It is open: nothing was measured at that size.

All recordings were there before, so every forecast is marked as retrospective. Takes a minute; reads and writes nothing
else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from workbench.runs import run_folder
from workbench.speedup.calibration.factor_model import load_factor_model
from workbench.speedup.calibration.prediction import predict_queries, select_counted_runs
from workbench.speedup.comparison.pair import load_recorded_pair
from workbench.speedup.tables import PREDICTIONS

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parent
LEDGER = HERE / "ledger.jsonl"
TPCH, TPCDS = SAMPLES / "speedup" / "tpch-sf1", SAMPLES / "speedup" / "tpcds-sf0.05"


def call_workbench(*words: object, folder: Path) -> str:
    """Run a workbench command, and return its output."""
    command = [sys.executable, "-m", "workbench", *map(str, words)]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def add(run: Path, note: str, folder: Path) -> str:
    """Keep the forecasts of a run; its id."""
    call_workbench("forecast", "add", run, "--ledger", LEDGER, "--retrospective", "--note", note, folder=folder)
    return run_folder.load_run(run).run_id


def match(run: Path, made_by: str, folder: Path) -> None:
    """Match the outcomes of a run with the forecasts of another."""
    words = ("--made-by", made_by, "--ledger", LEDGER)
    print(call_workbench("forecast", "match", run, *words, folder=folder).splitlines()[-1])


def forecast_left_out_queries(folder: Path) -> None:
    """Queries of tpch-sf1, each from its other queries."""
    call_workbench("speedup", "validate", TPCH, "--out", "left-out", folder=folder)
    made_by = add(folder / "left-out", "left out, same recording (tpch-sf1)", folder)
    call_workbench("speedup", "generate", TPCH, "--output", "tpch.json", "--out", "tpch", folder=folder)
    match(folder / "tpch", made_by, folder)


def forecast_carried_over_queries(folder: Path) -> None:
    """Queries of tpcds-sf0.05, by the factors of tpch-sf1: the first session on Spark, as a user's log would be."""
    pair = load_recorded_pair(TPCDS)
    baseline = select_counted_runs(pair.measured, pair.baseline)
    session = baseline.executions["session"].min()
    measured = baseline.select(baseline.executions["session"] == session)
    run = run_folder.start_run("speedup", folder=folder / "carried-over", title="Predictions")
    run.write_table(PREDICTIONS, predict_queries(load_factor_model(folder / "tpch.json"), measured))
    run.conclude("valid")
    made_by = add(run.folder, "factors of tpch-sf1 carried over to tpcds-sf0.05", folder)
    call_workbench("speedup", "generate", TPCDS, "--output", "tpcds.json", "--out", "tpcds", folder=folder)
    match(folder / "tpcds", made_by, folder)


def forecast_gpus(folder: Path) -> None:
    """GPUs of a simulated service, from 2 to 20 GPUs in virtual time; and of a real one, without an outcome."""
    made_by = add(SAMPLES / "capacity" / "sizing", "simulated service, 2 GPUs measured", folder)
    words = ("run", "sizing", "-p", "gpu_counts=[20]", "-p", "seed=1", "-p", "truth_runs=0", "--out", "runs", "--json")
    document = json.loads(call_workbench(*words, folder=folder))
    match(Path(document["runs"][0]["folder"]), made_by, folder)
    add(SAMPLES / "gpu" / "sizing", "one H100 measured, linear scaling assumed", folder)


def main() -> None:
    """Make the ledger anew."""
    LEDGER.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        forecast_left_out_queries(folder)
        forecast_carried_over_queries(folder)
        forecast_gpus(folder)
    print(call_workbench("forecast", "score", "--ledger", LEDGER, "--open", folder=HERE))


if __name__ == "__main__":
    main()
