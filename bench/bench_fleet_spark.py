"""A fleet of logs on a standalone Spark of two one-core executors, beside two processes, one executor, the JVM tool.

    python -m bench.bench_fleet_spark [LOG] [--logs 200] [--mb 12.5] [--trials 5] [--peer-logs 40] [--json FILE]

Master, workers, executors and driver run on this machine, from the pyspark package alone. Two figures a trial: the
whole process, and without start-up (until a first empty job has run on every executor; for processes: imports). The
JVM qualification tool reads one log in each PySpark task, on fewer logs, since a JVM a log takes seconds.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench import shape
from bench.bench_eventlog import SAMPLE
from bench.bench_qualify import make_fleet
from bench.shape import Bar, Row
from tests.fakes import peer, standalone_spark

LOCAL = """
import json, sys, time
from workbench.speedup.fleet.fleet_reader import measure_fleet
if __name__ == "__main__":
    begin = time.perf_counter()
    fleet = measure_fleet([sys.argv[1]], jobs=2)
    assert (fleet.applications["status"] == "complete").all() and fleet.n_read == int(sys.argv[2])
    print(json.dumps({"work_s": time.perf_counter() - begin}))
"""
ON_SPARK = """
import json, sys, time, psutil
from workbench.speedup.fleet.fleet_reader import measure_fleet
from workbench.speedup.fleet.spark_fleet import SparkOptions, open_context
if __name__ == "__main__":
    folder, count, master, cores, results = sys.argv[1:]
    options = SparkOptions(master, {"spark.cores.max": cores})
    with open_context(options) as context:
        deadline = time.monotonic() + 60
        while context._jsc.sc().getExecutorMemoryStatus().size() <= int(cores) and time.monotonic() < deadline:
            time.sleep(0.05)
        context.parallelize(range(int(cores)), int(cores)).map(lambda number: number).count()
        begin = time.perf_counter()
        fleet = measure_fleet([folder], spark=SparkOptions(results=results))
        work_s = time.perf_counter() - begin
        driver = psutil.Process()
        processes = [driver, *driver.children(recursive=True)]
        cpu_s = sum(sum(process.cpu_times()[:2]) for process in processes)
        peak_mb = max(float(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e3
    assert (fleet.applications["status"] == "complete").all() and fleet.n_read == int(count), fleet.n_read
    print(json.dumps({"work_s": work_s, "driver_cpu_s": cpu_s, "driver_mb": peak_mb}))
"""
JVM_IN_TASKS = """
import json, subprocess, sys
from workbench.speedup.fleet.spark_fleet import SparkOptions, open_context
def read(command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1
if __name__ == "__main__":
    commands = json.load(open(sys.argv[1]))
    with open_context(SparkOptions(sys.argv[2])) as context:
        assert context.parallelize(commands, len(commands)).map(read).sum() == len(commands)
    print("{}")
"""
TWO, ONE, PROCESSES, JVM = "2 executors", "1 executor", "2 processes", "a JVM a log in PySpark tasks"


def timed(command: list[str]) -> dict[str, float]:
    """Wall time of the whole process, and what it prints."""
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wall_s = time.perf_counter() - begin
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {"wall_s": wall_s, **figures}


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("log", type=Path, nargs="?", default=SAMPLE, help="small event log, any codec")
    parser.add_argument("--logs", type=int, default=200, help="logs of the fleet")
    parser.add_argument("--mb", type=float, default=12.5, help="size of each in MB (10^6 bytes)")
    parser.add_argument("--peer-logs", type=int, default=40, help="logs that the JVM tool reads, too; 0: without it")
    options = parser.parse_args()
    count, size_bytes = (4, 10**6) if options.quick else (options.logs, int(options.mb * 1e6))
    peer_count = min(count, 2 if options.quick else options.peer_logs)
    missing = peer.missing() if peer_count else {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch, standalone_spark.start_cluster(Path(scratch), memory="2g") as master:
        place = Path(scratch)
        for name, text in (("local", LOCAL), ("spark", ON_SPARK), ("jvm", JVM_IN_TASKS)):
            (place / f"{name}.py").write_text(text)

        def on_spark(fleet: Path, n: int, cores: str) -> Mapping[str, float]:
            shutil.rmtree(place / "results", ignore_errors=True)
            script = [sys.executable, str(place / "spark.py"), str(fleet), str(n), master, cores]
            return timed([*script, str(place / "results")])

        fleet = place / "fleet"
        fleet.mkdir()
        size = make_fleet(options.log, fleet, count, size_bytes)
        found = shape.alternating(
            {
                PROCESSES: lambda: timed([sys.executable, str(place / "local.py"), str(fleet), str(count)]),
                TWO: lambda: on_spark(fleet, count, "2"),
                ONE: lambda: on_spark(fleet, count, "1"),
            },
            options.trials,
        )
        what = f"a fleet of {count} logs, {size / 1e6:,.0f} MB, on Spark"
        for quantity, told, limit in (("wall_s", "with start-up", 1 / 1.6), ("work_s", "without start-up", 0.8)):
            scenario = f"{what}: {told}, beside processes"
            of_two = found.of(TWO, quantity)
            bar = Bar("ratio", at_least=limit, beside=PROCESSES)
            rows.append(Row("speedup", scenario, PROCESSES, "s", found.of(PROCESSES, quantity), "reference"))
            rows.append(Row("speedup", scenario, TWO, "s", of_two, bar=bar, failures=found.failures[TWO]))
        scenario = f"{what}: 2 executors beside 1, without start-up"
        rows.append(Row("speedup", scenario, TWO, "s", found.of(TWO, "work_s"), bar=Bar("ratio", at_least=1.6)))
        rows.append(Row("speedup", scenario, ONE, "s", found.of(ONE, "work_s"), "reference"))
        rows.append(Row("speedup", f"{what}: CPU of the driver", TWO, "s", found.of(TWO, "driver_cpu_s")))
        rows.append(
            Row("speedup", f"{what}: peak memory of the driver's Python", TWO, "MB", found.of(TWO, "driver_mb"))
        )
        if peer_count and not missing:
            small = place / "small"
            small.mkdir()
            make_fleet(options.log, small, peer_count, size_bytes)
            commands = [
                peer.command([log], place / "out" / log.name, heap="1g", main=peer.QUALIFYING)
                for log in sorted(small.iterdir())
            ]
            (place / "commands.json").write_text(json.dumps(commands))

            def jvm_in_tasks() -> Mapping[str, float]:
                shutil.rmtree(place / "out", ignore_errors=True)
                (place / "out").mkdir()
                return timed([sys.executable, str(place / "jvm.py"), str(place / "commands.json"), master])

            sides = {TWO: lambda: on_spark(small, peer_count, "2"), JVM: jvm_in_tasks}
            beside = shape.alternating(sides, min(options.trials, 3))
            scenario = f"a fleet of {peer_count} logs on Spark, with start-up"
            bar = Bar("ratio", at_least=4, beside=JVM)
            rows.append(Row("speedup", scenario, TWO, "s", beside.of(TWO, "wall_s"), bar=bar))
            rows.append(Row("speedup", scenario, JVM, "s", beside.of(JVM, "wall_s"), peer.PACKAGE))
    return shape.finish(rows, options.json, missing)


if __name__ == "__main__":
    sys.exit(main())
