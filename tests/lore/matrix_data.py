"""Small seeded tables for the matrix of queries: written by pyarrow, so that every Spark reads the same bytes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES, ORDERS, CUSTOMERS = 3_000, 750, 150
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY")
FIRST_DAY = dt.date(1992, 1, 1).toordinal() - dt.date(1970, 1, 1).toordinal()


def write(folder: Path) -> Path:
    """Write lineitem, orders, customer and orders_by_year (partitioned by o_year) as folders of Parquet files."""
    import numpy as np
    import pyarrow as pa

    draw = np.random.default_rng(7)
    lineitem = pa.table(
        {
            "l_orderkey": pa.array(np.arange(LINES) // 4, pa.int64()),
            "l_partkey": pa.array(draw.integers(0, 90, LINES), pa.int32()),
            "l_quantity": pa.array(draw.integers(1, 51, LINES), pa.int32()),
            "l_extendedprice": pa.array(draw.uniform(1, 1e5, LINES), pa.float64()),
            "l_discount": _decimals(draw.integers(0, 11, LINES), pa.decimal128(12, 2)),
            "l_returnflag": pa.array([("A", "N", "R")[n] for n in draw.integers(0, 3, LINES)]),
            "l_shipdate": pa.array(FIRST_DAY + draw.integers(0, 2500, LINES), pa.int32()).cast(pa.date32()),
            "l_comment": pa.array([None if n % 19 == 0 else f"c{n % 97}" for n in range(LINES)]),
        }
    )
    days = FIRST_DAY + draw.integers(0, 2400, ORDERS)
    orders = pa.table(
        {
            "o_orderkey": pa.array(np.arange(ORDERS), pa.int64()),
            "o_custkey": pa.array(draw.integers(0, CUSTOMERS + 30, ORDERS), pa.int64()),
            "o_orderdate": pa.array(days, pa.int32()).cast(pa.date32()),
            "o_totalprice": _decimals(draw.integers(100, 10**8, ORDERS), pa.decimal128(15, 2)),
            "o_shippriority": pa.array(np.zeros(ORDERS), pa.int32()),
        }
    )
    customer = pa.table(
        {
            "c_custkey": pa.array(np.arange(CUSTOMERS), pa.int64()),
            "c_name": pa.array([f"Customer#{n:05d}" for n in range(CUSTOMERS)]),
            "c_mktsegment": pa.array([SEGMENTS[n] for n in draw.integers(0, 4, CUSTOMERS)]),
        }
    )
    for name, table, files in (("lineitem", lineitem, 3), ("orders", orders, 2), ("customer", customer, 2)):
        _write(table, folder / name, files)
    for year in range(1992, 1999):
        of_year = orders.filter(pa.array([str(day)[:4] == str(year) for day in orders["o_orderdate"].to_pylist()]))
        _write(of_year, folder / "orders_by_year" / f"o_year={year}", 1)
    return folder


def _decimals(hundredths: Any, kind: Any) -> Any:
    import pyarrow as pa

    return pa.array([Decimal(int(number)).scaleb(-2) for number in hundredths], kind)


def _write(table: Any, folder: Path, files: int) -> None:
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    rows = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * rows, rows), folder / f"part-{number}.parquet")


def make_views(spark: SparkSession, folder: Path) -> None:
    """Views of the tables, and `cached_customer`, which is cached."""
    for name in ("lineitem", "orders", "customer", "orders_by_year"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    # Not the whole of it: Spark would read every query's customer from the cache.
    spark.table("customer").where("c_custkey % 7 > 0").cache().createOrReplaceTempView("cached_customer")
