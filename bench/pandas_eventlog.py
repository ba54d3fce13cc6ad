"""What people write who have an event log and pandas: tasks and accumulators of each stage, in two Parquet files.

    python -m bench.pandas_eventlog LOG OUT

It gives less than `workbench eventlog facts` (no plans, no metrics of operators, no jobs, no faults).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

STATISTICS = ["count", "min", "median", "max", "sum"]


def main(log: Path, out: Path) -> None:
    """Decode every line, keep what tasks say that ended, add it up by pandas."""
    tasks, updates = [], []
    with log.open("rb") as file:
        for event in map(json.loads, file):
            if event["Event"] == "SparkListenerTaskEnd":
                stage, info = event["Stage ID"], event["Task Info"]
                tasks.append((stage, info["Finish Time"] - info["Launch Time"]))
                updates += [(stage, one["ID"], one.get("Name"), one.get("Update")) for one in info["Accumulables"]]
    out.mkdir(parents=True, exist_ok=True)
    durations = pd.DataFrame(tasks, columns=["stage", "duration_ms"]).groupby("stage")["duration_ms"]
    durations.agg(STATISTICS).to_parquet(out / "stages.parquet")
    values = pd.DataFrame(updates, columns=["stage", "id", "name", "update"])
    values["update"] = pd.to_numeric(values["update"], errors="coerce")
    values.groupby(["stage", "id", "name"])["update"].agg(STATISTICS).to_parquet(out / "accumulators.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
