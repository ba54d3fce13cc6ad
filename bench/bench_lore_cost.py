"""What does dumping cost with this code beside an older commit: the ratio of a query with a dump to the query alone?

    python -m bench.bench_lore_cost [--old 4ff012c] [--seconds 5 60] [--trials 5] [--json FILE]

A process on each code keeps a warm session; a trial asks both in turn, in alternating order, for the query alone and
the query with a dump of all partitions of its join. The ratio of both ratios, new over old, has a t interval over the
trials, by CPU time of the process and its JVM, which other load of the machine hardly changes, and by elapsed time.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Rows of the larger table in a query of one second, on one core of the machine of 2026-11.
ROWS_PER_S = 700_000
WARM_UP = 2


def serve_trials() -> None:
    """Measure each number of rows that is read from stdin; runs in a process of its own."""
    import psutil

    from workbench import lore
    from workbench.lore.spark_bridge.physical_plan import PlanTree
    from workbench.lore.spark_bridge.replay_session import fresh_session

    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    with fresh_session(master="local[2]", filtered=False, settings=settings) as spark:
        jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)

        def read_cpu() -> float:
            return sum(one.user + one.system for one in (jvm.cpu_times(), psutil.Process().cpu_times()))

        def run_query(rows: int, target: Path | None) -> tuple[float, float]:
            left = spark.range(0, rows, 1, 8).selectExpr(
                f"pmod(hash(id), {rows // 4}) AS k", "id % 1000 AS c", "id AS l"
            )
            right = spark.range(0, rows // 4, 1, 4).selectExpr("cast(id AS int) AS k", "concat('v', id % 97) AS v")
            frame = left.join(right, "k").groupBy("c").agg({"l": "sum", "v": "max"})
            begun, cpu = time.perf_counter(), read_cpu()
            frame._jdf.queryExecution().toRdd().count()
            if target is not None:
                tree = PlanTree.from_frame(frame)
                join = next(number for number, node in tree.nodes.items() if node.name == "SortMergeJoin")
                lore.dump(frame, {join: None}, target)
            return time.perf_counter() - begun, read_cpu() - cpu

        for line in sys.stdin:
            rows = int(line)
            with tempfile.TemporaryDirectory() as home:
                (plain_s, plain_cpu), (dump_s, dump_cpu) = run_query(rows, None), run_query(rows, Path(home) / "dump")
            print(
                json.dumps({"plain_s": plain_s, "elapsed": dump_s / plain_s, "cpu": dump_cpu / plain_cpu}), flush=True
            )


def unpack_commit(commit: str, target: Path) -> Path:
    """The package as it was at a commit."""
    archive = subprocess.run(["git", "archive", commit, "workbench"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(target, filter="data")
    return target


def start_process(code: Path) -> subprocess.Popen[str]:
    """`serve_trials` on the package of a folder."""
    environment = os.environ | {"PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, str(Path(__file__)), "--serve"],
        cwd=code, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def ask_process(process: subprocess.Popen[str], rows: int) -> dict[str, float]:
    """One measurement of a process."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{rows}\n")
    process.stdin.flush()
    return dict(json.loads(process.stdout.readline()))


def interval(values: list[float]) -> tuple[float, float, float]:
    """Geometric mean and t interval (90 %) of ratios."""
    from scipy import stats

    logs = [math.log(value) for value in values]
    mean = statistics.fmean(logs)
    half = stats.t.ppf(0.95, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> None:
    """Trials of both codes in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default="4ff012c", help="commit before issue 24")
    parser.add_argument("--seconds", type=float, nargs="+", default=[5, 60])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_trials()
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-lore-cost-") as scratch:
        codes = {"old": unpack_commit(options.old, Path(scratch) / "old"), "new": ROOT}
        processes = {name: start_process(code) for name, code in codes.items()}
        for seconds in options.seconds:
            n_rows = int(seconds * ROWS_PER_S)
            for _ in range(WARM_UP):
                for process in processes.values():
                    ask_process(process, n_rows)
            for trial in range(options.trials):
                for name in ("old", "new") if trial % 2 else ("new", "old"):
                    found = ask_process(processes[name], n_rows)
                    rows.append({"query_s": seconds, "trial": trial, "code": name, **found})
                    print(rows[-1], flush=True)
        for process in processes.values():
            process.communicate()
    for seconds in options.seconds:
        own = {name: [row for row in rows if row["query_s"] == seconds and row["code"] == name] for name in codes}
        plain_s = statistics.median(row["plain_s"] for row in own["new"])
        for kind in ("cpu", "elapsed"):
            old, new = (statistics.median(row[kind] for row in own[name]) for name in ("old", "new"))
            ratio, low, high = interval([b[kind] / a[kind] for a, b in zip(own["old"], own["new"], strict=True)])
            print(
                f"query of {plain_s:.1f} s, {kind}: {old:.2f} times the query alone before, {new:.2f} now, "
                f"{ratio:.3f} [{low:.3f}, {high:.3f}] of it"
            )
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
