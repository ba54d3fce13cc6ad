"""100,000 workloads: from the lines of a run to tables and charts, in time and memory.

    python -m bench.bench_scaletest_analysis [--workloads 100000] [--trials 5]

The lines are those of a simulated run. Each trial is a fresh process: `reduce`, every result table, five charts. Beside
it, alternating, the reference: Python's json reading the same lines into dictionaries, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import shape
from bench.shape import Bar, Row

SIDES = {"ours": "workbench: reduce, analyse, draw", "json": "json.loads of the lines"}
ORIGIN = 1_795_315_530_000_000_000


def main() -> int:
    """Measure, tell, keep; 1 when the median is beyond a bar."""
    parser = shape.parser(__doc__)
    parser.add_argument("--workloads", type=int, default=100_000)
    parser.add_argument("--one", choices=("ours", "json"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return _one(given.one, given.folder)
    count = 2_800 if given.quick else given.workloads
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lines = _make(folder, count)
        found = shape.alternating(
            {name: lambda side=side: _told(side, folder) for side, name in SIDES.items()}, given.trials
        )
    rows = []
    for quantity, unit, most in (("duration_s", "s", 10), ("rss_gib", "GiB", 2)):
        for side, name in SIDES.items():
            bar, peer = (None, "reference") if side == "json" else (Bar("value", at_most=most), "")
            what = f"{count:,} workloads ({lines:,} lines): {'time' if unit == 's' else 'memory'}"
            told = {"bar": bar, "failures": found.failures[name]}
            rows.append(Row("scaletest", what, name, unit, found.of(name, quantity), peer, **told))
    return shape.finish(rows, given.json)


def _told(side: str, folder: Path) -> dict[str, float]:
    """A trial, in a process of its own."""
    command = [sys.executable, "-m", "bench.bench_scaletest_analysis", "--one", side, "--folder", str(folder)]
    told: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return told


def _one(side: str, folder: Path) -> int:
    began = time.perf_counter()
    if side == "json":
        _read(folder)
    else:
        _work(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(json.dumps({"duration_s": time.perf_counter() - began, "rss_gib": peak}))
    return 0


def _read(folder: Path) -> None:
    from workbench.scaletest.observation import run_records

    for name in (run_records.JOURNAL, run_records.OBSERVED):
        with (folder / name).open("rb") as file:
            kept = [json.loads(line) for line in file]
        del kept


def _work(folder: Path) -> None:
    from workbench.scaletest.analysis.raw_tables import write_raw_tables
    from workbench.scaletest.analysis.run_analysis import analyse_run
    from workbench.scaletest.charts import run_charts

    write_raw_tables(folder)
    found = analyse_run(folder)
    for _ in found.iterate_results():
        pass
    for drawn in (
        run_charts.chart_steps(found.quantiles),
        run_charts.chart_time_shares(found.shares),
        run_charts.chart_flow(found.flow),
        run_charts.chart_ramp(found.ramp),
        run_charts.chart_gpus(found.gpus),
    ):
        drawn.to_json()


def _make(folder: Path, count: int) -> int:
    """The files of a simulated run with so many workloads; how many lines."""
    from tests.fakes.scale_runs import RUN, Plan, ramp_of, record_of, tables
    from workbench.scaletest.observation import run_records
    from workbench.scaletest.tables import SCHEDULE

    each = count / 1400
    due, steps = ramp_of([200, 400, 800], each)
    plan = Plan(due[:count], steps[:count], scheduled_per_s=500, jitter=0.3, nodes=1000)
    made = tables(plan)
    SCHEDULE.write(made["schedule"], folder / "tables")
    run_records.write_conditions(folder, record_of(plan))

    def ns(seconds: float) -> int:
        return ORIGIN + round(seconds * 1e9)

    def journal() -> Iterator[run_records.Begun | run_records.Intent | run_records.Acked]:
        yield run_records.Begun(RUN, ORIGIN, ORIGIN)
        for row in made["submissions"].iter_rows(named=True):
            yield run_records.Intent(row["index"], ns(row["sent_s"]))
            yield run_records.Acked(row["index"], ns(row["sent_s"]), ns(row["acked_s"]), 201, row["uid"])

    def observed() -> Iterator[run_records.Seen | run_records.NodeSeen]:
        for row in made["nodes"].iter_rows(named=True):
            sizes = (row["gpus"], row["cpus"], row["memory_bytes"], row["pods"])
            yield run_records.NodeSeen(row["name"], ORIGIN, True, *sizes, True)
        for row in made["transitions"].iter_rows(named=True):
            names = (row["resource"], row["transition"], row["uid"], row["name"], row["namespace"])
            told = {"workload": row["workload"], "owner": row["owner"], "node": row["node"]}
            yield run_records.Seen(*names, ns(row["arrival_s"]), server="2026-11-22T02:45:30Z", **told)

    lines = 0
    for name, rows in ((run_records.JOURNAL, journal()), (run_records.OBSERVED, observed())):
        with (folder / name).open("wb") as file:
            for one in rows:
                file.write(run_records.encode_line(one))
                lines += 1
    return lines


if __name__ == "__main__":
    sys.exit(main())
