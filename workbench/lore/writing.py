"""Rows written by the executors as Parquet, and the files put where a dump has them: partition-P/batch-B.parquet."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.formats import size
from workbench.lore.sidecar import ZERO_COLUMN, InputEntry
from workbench.lore.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCRATCH = "_write"
POLL_S = 0.3
_PART = re.compile(r"part-(\d+)-.*-c(\d+)\b")
# On a local disk no .crc beside each file, and no _SUCCESS: the sidecar has digests, and without its native library
# Hadoop starts a program (chmod) for each file that it makes.
_WRITER = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def write(
    store: Store, folder: str, frame: DataFrame, keep: list[int], *, batch_rows: int
) -> tuple[dict[int, int], int]:
    """Write a frame whose partitions are those of `keep`, in order.

    Returns
    -------
    tuple
        Batches by partition (those without rows have none), and how many rows there are.
    """
    from pyspark.sql import Observation, functions

    counted = Observation()
    frame = frame.observe(counted, functions.count(functions.lit(1)).alias("n"))
    scratch = f"{folder}/{SCRATCH}"
    writer = frame.write.options(maxRecordsPerFile=batch_rows, **_WRITER)
    writer.parquet(str(store.path(scratch).toString()))
    return _placed(store, folder, keep), int(counted.get["n"])


def _placed(store: Store, folder: str, keep: list[int]) -> dict[int, int]:
    batches: dict[int, int] = {}
    parts = [(match, name) for name in store.names(f"{folder}/{SCRATCH}") if (match := _PART.match(name))]
    # As numbers: c1000 comes after c999.
    for match, name in sorted(parts, key=lambda part: (int(part[0][1]), int(part[0][2]))):
        number = keep[int(match[1])]
        batch = batches.get(number, 0)
        if not batch:
            store.make(f"{folder}/partition-{number}")
        store.move(f"{folder}/{SCRATCH}/{name}", f"{folder}/partition-{number}/batch-{batch}.parquet")
        batches[number] = batch + 1
    store.remove(f"{folder}/{SCRATCH}")
    return batches


def write_metas(store: Store, entry: InputEntry) -> None:
    """rdd.meta and partition.meta, as people and tools look for them; the sidecar holds the same."""
    attributes = [column.model_dump(mode="json") for column in entry.columns]
    document = {"numPartitions": entry.n_partitions, "outputPartitions": entry.partitions, "attrs": attributes}
    store.write(f"input-{entry.index}/rdd.meta", json.dumps(document).encode())
    kinds = [column.type for column in entry.columns]
    for number, count in entry.batches.items():
        path = f"input-{entry.index}/partition-{number}/partition.meta"
        store.write(path, json.dumps({"numBatches": count, "dataType": kinds}).encode())


def write_output(store: Store, frame: DataFrame, keep: list[int], *, batch_rows: int) -> bool:
    """Keep an output's rows beside its fingerprint; false when Parquet cannot hold them."""
    if any(field.dataType.typeName() in ("interval", "void") for field in frame.schema.fields):
        return False
    if not frame.columns:
        frame = frame.selectExpr(f"CAST(1 AS TINYINT) AS {ZERO_COLUMN}")
    write(store, "output", frame, keep, batch_rows=batch_rows)
    return True


@contextlib.contextmanager
def capped(store: Store, max_bytes: int | None) -> Iterator[None]:
    """Stop the writing jobs of the block when the store grows past the cap.

    A file counts when its writer gives bytes away, a row group at a time: up to 128 MB a task may come on top.

    Raises
    ------
    ConfigError
        It grew past the cap.
    """
    if max_bytes is None:
        yield
        return
    from pyspark import InheritableThread

    context = store.bridge.context
    group = f"lore-{uuid.uuid4().hex[:12]}"
    ended, over = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            if _total(store) > max_bytes:
                over.set()
                context.cancelJobGroup(group)
                return

    # Spark's own kind of thread: it closes its connection to the JVM when it ends.
    watcher = InheritableThread(target=watch, daemon=True)
    before = context.getLocalProperty("spark.jobGroup.id")
    context.setLocalProperty("spark.jobGroup.id", group)
    watcher.start()
    try:
        yield
    except Exception:
        if not over.is_set():
            raise
    finally:
        ended.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", before)
    if over.is_set() or _total(store) > max_bytes:
        raise ConfigError(
            "the dump is larger than it may be",
            where="--max-bytes",
            found=f"more than {size(max_bytes)}",
            do="dump fewer partitions (1[0] for the first), fewer --columns, or raise --max-bytes",
        )


def _total(store: Store) -> int:
    # Files come and go while they are written and renamed.
    with contextlib.suppress(Exception):
        return int(store.system.getContentSummary(store.path()).getLength())
    return 0
