"""What does a dump cost beside its query, and how soon is a replay verified? A sort merge join of 4 M and 1 M rows.

    python -m tests.bench.bench_lore [--trials 7] [--rows 4000000] [--inline] [--json FILE]

Within one warm session the plain query and the query with a dump alternate; each dump has the fingerprint, the
checksums and the sidecar of a real one. The query is a scan, a filter, the join and a sort aggregate over 8 partitions,
AQE off, its rows counted and thrown away. The replay is a process of its own: its time counts from the command's start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from workbench.spark.java import environment

WARM_UP = 5


def write_data(spark: Any, folder: Path, rows: int) -> None:
    """Two tables whose join gives about 0.8 rows for each of the larger one."""
    left = spark.range(0, rows, 1, 8).selectExpr(
        f"pmod(hash(id), {rows * 5 // 16}) AS k", "id AS l", "rand(1) * 1e5 AS price", "cast(rand(2) * 50 AS int) AS n"
    )
    left.write.parquet(str(folder / "left"))
    right = spark.range(0, rows // 4, 1, 4).selectExpr(
        "cast(id AS int) AS k", "id % 1000 AS c", "concat('v', id % 97) AS v"
    )
    right.write.parquet(str(folder / "right"))


def query(spark: Any, folder: Path) -> Any:
    """The query anew: nothing that an earlier one shuffled is used again."""
    left = spark.read.parquet(str(folder / "left")).filter("n < 49")
    right = spark.read.parquet(str(folder / "right"))
    joined = left.hint("merge").join(right.hint("merge"), "k")
    return joined.groupBy("c").agg({"price": "sum", "v": "max", "l": "count"})


def run(frame: Any) -> None:
    """Run this very DataFrame, as an action does."""
    frame._jdf.queryExecution().toRdd().count()


def session(folder: Path, extra: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    confs = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "6g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        **extra,
    }
    for key, value in confs.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def alternating(
    ways: dict[str, Callable[[], None]], trials: int, untimed: Callable[[], None]
) -> dict[str, list[float]]:
    """Wall times in s by way; the order turns from trial to trial."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(trials):
        for name in ways if number % 2 == 0 else reversed(ways):
            begin = time.perf_counter()
            ways[name]()
            times[name].append(time.perf_counter() - begin)
            untimed()
            print(f"  trial {number + 1}, {name}: {times[name][-1]:.2f} s", file=sys.stderr)
    return times


def post_hoc(work: Path, trials: int, rows: int) -> dict[str, list[float]]:
    from workbench import lore

    spark = session(work, {})
    data = work / "data"
    if not data.exists():
        write_data(spark, data, rows)
    tree = lore.tag(query(spark, data), run=False)
    join = next(i for i, node in tree.nodes.items() if node.name == "SortMergeJoin")

    def with_dump(partitions: Iterable[int] | None, target: Path) -> Callable[[], None]:
        def way() -> None:
            frame = query(spark, data)
            run(frame)
            lore.dump(frame, {join: partitions}, target)

        return way

    ways: dict[str, Callable[[], None]] = {
        "query": lambda: run(query(spark, data)),
        "one of 8": with_dump([0], work / "one"),
        "all 8": with_dump(None, work / "all"),
    }

    def clear() -> None:
        for name in ("one", "all"):
            shutil.rmtree(work / name, ignore_errors=True)
        spark._jvm.java.lang.System.gc()

    for _ in range(WARM_UP):
        for way in ways.values():
            way()
            clear()
    times = alternating(ways, trials, clear)
    ways["all 8"]()
    spark.stop()
    return times


def inline(work: Path, trials: int) -> dict[str, list[float]]:
    from workbench import lore
    from workbench.lore import config
    from workbench.lore import inline as hooks

    spark = session(work, hooks.enable(say=lambda _: None))
    data = work / "data"
    tree = lore.tag(query(spark, data), run=False)
    join = next(i for i, node in tree.nodes.items() if node.name == "SortMergeJoin")
    settings = config.from_session(lambda key, default: None, ids={join: [0]}, path=str(work / "inline"), mode="inline")

    def hooked() -> None:
        hooks.dump(query(spark, data), settings)

    def clear() -> None:
        shutil.rmtree(work / "inline", ignore_errors=True)
        spark._jvm.java.lang.System.gc()

    ways: dict[str, Callable[[], None]] = {"query": lambda: run(query(spark, data)), "inline, one of 8": hooked}
    for _ in range(WARM_UP):
        for way in ways.values():
            way()
            clear()
    times = alternating(ways, trials, clear)
    spark.stop()
    return times


def replays(folder: Path, trials: int) -> list[float]:
    """Wall time of `workbench lore replay --repeat 1`, whole process."""
    command = [sys.executable, "-m", "workbench", "lore", "replay", str(folder), "--repeat", "1", "--json"]
    times = []
    for _ in range(trials):
        begin = time.perf_counter()
        done = subprocess.run([*command, "--master", "local[2]"], check=True, capture_output=True, text=True)
        times.append(time.perf_counter() - begin)
        assert json.loads(done.stdout)["passed"], done.stdout
        print(f"  replay: {times[-1]:.2f} s", file=sys.stderr)
    return times


def report(times: dict[str, list[float]]) -> None:
    plain = times["query"]
    print(f"query {statistics.median(plain):.2f} s [{min(plain):.2f}, {max(plain):.2f}], n = {len(plain)}")
    for name, walls in times.items():
        if name != "query":
            ratios = [wall / base for wall, base in zip(walls, plain, strict=True)]
            spread = f"[{min(ratios):.2f}, {max(ratios):.2f}]"
            print(f"{name}: {statistics.median(walls):.2f} s, {statistics.median(ratios):.2f} {spread} times the query")


def in_process(part: str, work: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """A part in a process of its own: the inline hooks must be on the JVM's class path from its start."""
    found = work / f"{part}.json"
    sizes = ["--trials", str(options.trials), "--rows", str(options.rows)]
    command = [sys.executable, "-m", "tests.bench.bench_lore", "--part", part, "--work", str(work), *sizes]
    subprocess.run([*command, "--json", str(found)], check=True)
    times: dict[str, list[float]] = json.loads(found.read_text())
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=7, help="alternating trials")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the larger table")
    parser.add_argument("--inline", action="store_true", help="also mode=inline, in a session of its own")
    parser.add_argument("--json", type=Path, help="write every trial here")
    parser.add_argument("--part", choices=["post-hoc", "inline"], help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(environment())
    if options.part:
        times = (
            post_hoc(options.work, options.trials, options.rows)
            if options.part == "post-hoc"
            else inline(options.work, options.trials)
        )
        options.json.write_text(json.dumps(times))
        return
    work = Path(tempfile.mkdtemp())
    try:
        found: dict[str, Any] = {"post-hoc": in_process("post-hoc", work, options)}
        report(found["post-hoc"])
        folder = next((work / "all").glob("loreId-*"))
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        print(f"a dump of all partitions: {size / 1e6:.0f} MB, plan.meta {(folder / 'plan.meta').stat().st_size} bytes")
        walls = found["replay"] = replays(folder, min(options.trials, 5))
        print(f"replay --repeat 1: {statistics.median(walls):.2f} s [{min(walls):.2f}, {max(walls):.2f}]")
        if options.inline:
            found["inline"] = in_process("inline", work, options)
            report(found["inline"])
        print(f"load at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
