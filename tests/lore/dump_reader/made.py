"""Dumps put together from recorded metas and small Parquet files: one as the GPU plugin leaves it, one of ours."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.lore import small_dump
from workbench.lore.dumps.dump_folder import InputColumn, InputEntry

SAMPLES = Path(__file__).parent / "samples"


def gpu_table(n_rows: int, first: int = 0) -> pa.Table:
    """The 14 columns that the simulated metas describe; "id" stands there twice."""
    count = range(first, first + n_rows)
    columns: list[Any] = [
        pa.array(list(count), pa.int64()),
        pa.array([None if index % 5 == 0 else f"name {index}" for index in count], pa.string()),
        pa.array([decimal.Decimal(index) / 4 for index in count], pa.decimal128(12, 2)),
        pa.array([dt.date(2024, 1, 1)] * n_rows, pa.date32()),
        pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * n_rows, pa.timestamp("us", tz="UTC")),
        pa.array([dt.datetime(2024, 1, 1)] * n_rows, pa.timestamp("us")),
        pa.array([["a"]] * n_rows, pa.list_(pa.string())),
        pa.array([{"x": 1.5, "y": None}] * n_rows, pa.struct([("x", pa.float64()), ("y", pa.float32())])),
        pa.array([[("k", 1)]] * n_rows, pa.map_(pa.string(), pa.int32())),
        pa.array([b"\x00\xff"] * n_rows, pa.binary()),
        pa.array([index % 2 == 0 for index in count], pa.bool_()),
        pa.array([86_400_000_000] * n_rows, pa.int64()),
        pa.array([1] * n_rows, pa.int32()),
        pa.array([-index for index in count], pa.int64()),
    ]
    names = ["id", "name", "price", "day", "at", "local", "tags", "point", "kv", "raw", "yes", "days", "months", "id"]
    return pa.Table.from_arrays(columns, names=names)


def write(table: pa.Table, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def gpu_dump(folder: Path, *, scala: str = "scala_2.12") -> Path:
    """loreId-7 of the plugin: partition 0 has two batches, 1 was not read to its end, 2 to 4 have no folder."""
    dump = folder / "loreId-7"
    given = dump / "input-0"
    write(gpu_table(30), given / "partition-0" / "batch-0.parquet")
    write(gpu_table(10, 30), given / "partition-0" / "batch-1.parquet")
    write(gpu_table(10, 100), given / "partition-1" / "batch-0.parquet")
    shutil.copy(SAMPLES / scala / "plan.meta", dump / "plan.meta")
    shutil.copy(SAMPLES / scala / "simulated_rdd.meta", given / "rdd.meta")
    shutil.copy(SAMPLES / scala / "simulated_partition.meta", given / "partition-0" / "partition.meta")
    return dump


COLUMNS = [
    InputColumn(name="id", stored_as="id", type="long", nullable=False, expr_id=7),
    InputColumn(name="left out", stored_as="left out", type="string", nullable=True, expr_id=8, masked="dropped"),
    InputColumn(name="x", stored_as="x", type="double", nullable=True, expr_id=9, masked="hash"),
]


def own_dump(folder: Path, *, lore_id: int = 3, sign: bool = True, **changed: Any) -> Path:
    """loreId-3 of ours: partition 0 has rows, 2 is empty, 1 was not chosen; one column was dropped."""
    dump = folder / f"loreId-{lore_id}"
    table = pa.table({"id": [1, 2, 3, 4], "x": [0.5, float("nan"), None, 2.5]})
    batch = write(table, dump / "input-0" / "partition-0" / "batch-0.parquet").read_bytes()
    attributes = [column.model_dump(mode="json") for column in COLUMNS]
    rdd = {"numPartitions": 3, "outputPartitions": [0, 2], "attrs": attributes}
    files = {
        "plan.meta": small_dump.java_stream(small_dump.FILTER),
        "input-0/rdd.meta": json.dumps(rdd).encode(),
        "input-0/partition-0/partition.meta": b'{"numBatches": 1, "dataType": ["long", "double"]}',
        "input-0/partition-0/batch-0.parquet": batch,
        "input-0/partition-2/partition.meta": b'{"numBatches": 0, "dataType": ["long", "double"]}',
    }
    entry = InputEntry(
        index=0,
        kind="rows",
        n_partitions=3,
        partitions=[0, 2],
        batches={"0": 1, "2": 0},
        n_rows=4,
        n_bytes=len(batch),
        columns=COLUMNS,
    )
    # One object is a plan, as a JVM would have written it; the helper's stream has one for each name.
    return small_dump.write_dump(dump, files, sign=sign, **({"inputs": [entry], "lore_id": lore_id} | changed))
