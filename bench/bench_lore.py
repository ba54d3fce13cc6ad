"""What does a dump cost beside its query, and how soon is a replay verified? A sort merge join of 4 M and 1 M rows.

    python -m bench.bench_lore [--trials 5] [--rows 4000000] [--json FILE]

Within one warm session the plain query and the query with a dump alternate; each dump has the fingerprint, the
checksums and the sidecar of a real one. The query is a scan, a filter, the join and a sort aggregate over 8 partitions,
AQE off, its rows counted and thrown away. The replay is a process of its own: its time counts from the command's start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench import shape
from bench.shape import Row, Trials
from workbench.spark.jvm import build_spark_environment

WARM_UP = 5
PLAIN, ONE, ALL = "the query alone", "with a dump of 1 of 8 partitions", "with a dump of all 8"
INLINE = "with 1 of 8 dumped during the run"


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


def warm(ways: dict[str, Callable[[], None]], trials: int, clear: Callable[[], None]) -> Trials:
    """Wall times by way after some runs that do not count; what a way wrote is deleted behind it, untimed."""

    def timed(way: Callable[[], None]) -> dict[str, float]:
        begin = time.perf_counter()
        way()
        wall_s = time.perf_counter() - begin
        clear()
        return {"wall_s": wall_s}

    return shape.alternating({name: lambda way=way: timed(way) for name, way in ways.items()}, trials, warm_up=WARM_UP)


def post_hoc(work: Path, trials: int, rows: int) -> Trials:
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
        PLAIN: lambda: run(query(spark, data)),
        ONE: with_dump([0], work / "one"),
        ALL: with_dump(None, work / "all"),
    }

    def clear() -> None:
        for name in ("one", "all"):
            shutil.rmtree(work / name, ignore_errors=True)
        spark._jvm.java.lang.System.gc()

    times = warm(ways, trials, clear)
    ways[ALL]()
    spark.stop()
    return times


def inline(work: Path, trials: int) -> Trials:
    from workbench import lore
    from workbench.lore import config
    from workbench.lore.jvm import inline_capture as hooks

    spark = session(work, hooks.enable_inline(say=lambda _: None))
    data = work / "data"
    tree = lore.tag(query(spark, data), run=False)
    join = next(i for i, node in tree.nodes.items() if node.name == "SortMergeJoin")
    settings = config.settings_from_session(
        lambda key, default: None, ids={join: [0]}, path=str(work / "inline"), mode="inline"
    )

    def hooked() -> None:
        hooks.dump_inline(query(spark, data), settings)

    def clear() -> None:
        shutil.rmtree(work / "inline", ignore_errors=True)
        spark._jvm.java.lang.System.gc()

    ways: dict[str, Callable[[], None]] = {PLAIN: lambda: run(query(spark, data)), INLINE: hooked}
    times = warm(ways, trials, clear)
    spark.stop()
    return times


def replay(folder: Path) -> dict[str, float]:
    """Wall time of `workbench lore replay --repeat 1`, whole process."""
    command = [sys.executable, "-m", "workbench", "lore", "replay", str(folder), "--repeat", "1", "--json"]
    begin = time.perf_counter()
    done = subprocess.run([*command, "--master", "local[2]"], check=True, capture_output=True, text=True)
    wall_s = time.perf_counter() - begin
    if not json.loads(done.stdout)["passed"]:
        raise RuntimeError("the replay is not what the original was")
    return {"wall_s": wall_s}


def told(part: str, found: Trials, rows: int) -> list[Row]:
    """The query with its dumps beside the query alone: below 1, so many times as long."""
    what = f"a query that joins {rows:,} and {rows // 4:,} rows"
    made = []
    for side, values in ((side, found.of(side, "wall_s")) for side in found.figures):
        peer = "reference" if side == PLAIN else ""
        made.append(Row("lore", f"{what}, {part}", side, "s", values, peer, failures=found.failures[side]))
    return made


def in_process(part: str, work: Path, options: argparse.Namespace, rows: int) -> list[Row]:
    """A part in a process of its own: the inline hooks must be on the JVM's class path from its start."""
    found = work / f"{part}.json"
    sizes = ["--trials", str(options.trials), "--rows", str(rows)]
    command = [sys.executable, "-m", "bench.bench_lore", "--part", part, "--work", str(work), *sizes]
    subprocess.run([*command, "--json", str(found)], check=True, stdout=subprocess.DEVNULL)
    return shape.read(found)[0]


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the larger table")
    parser.add_argument("--part", choices=["post-hoc", "inline"], help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(build_spark_environment())
    rows = 40_000 if options.quick else options.rows
    if options.part:
        make = post_hoc if options.part == "post-hoc" else lambda work, trials, _: inline(work, trials)
        return shape.finish(told(options.part, make(options.work, options.trials, rows), rows), options.json)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        found = in_process("post-hoc", work, options, rows)
        folder = next((work / "all").glob("loreId-*"))
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        again = shape.alternating({"workbench": lambda: replay(folder)}, options.trials)
        note = f"of a dump of {size / 1e6:.0f} MB"
        walls, failures = again.of("workbench", "wall_s"), again.failures["workbench"]
        found.append(
            Row("lore", "replay --repeat 1, whole process", "workbench", "s", walls, note=note, failures=failures)
        )
        found += in_process("inline", work, options, rows)
    shape.say(f"load at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    return shape.finish(found, options.json)


if __name__ == "__main__":
    sys.exit(main())
