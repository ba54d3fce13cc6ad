"""Measure logs in a Spark of this process's own; prints what came of them as one JSON document.

python -m tests.fakes.fleet_on_spark MASTER RESULTS SETTINGS LOG…
"""

from __future__ import annotations

import json
import sys

from workbench.core.errors import WorkbenchError
from workbench.speedup.fleet.fleet_reader import measure_fleet
from workbench.speedup.fleet.spark_fleet import SparkOptions


def main(master: str, results: str, settings: str, *logs: str) -> None:
    options = SparkOptions(master, json.loads(settings), results)
    try:
        fleet = measure_fleet(logs, spark=options)
    except WorkbenchError as error:
        print(json.dumps({"error": error.what, **{name: str(value) for name, value in error.facts.items()}}))
        return
    rows = fleet.applications.select("log", "status", "reason").rows()
    print(json.dumps({"rows": rows, "n_read": fleet.n_read, "n_cached": fleet.n_cached}))


if __name__ == "__main__":
    main(*sys.argv[1:])
