"""Dump files on any Hadoop file system, and rows written there as Parquet by the executors."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core import files
from workbench.core.errors import ConfigError
from workbench.core.formats import format_bytes
from workbench.lore.dumps.dump_folder import ZERO_COLUMN, FileEntry, InputEntry
from workbench.lore.spark_bridge.spark_internals import Bridge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SCRATCH_FOLDER = "_write"
POLL_S = 0.3
_PART_PATTERN = re.compile(r"part-(\d+)-.*-c(\d+)\b")
# No .crc and _SUCCESS files on local disks: the sidecar has digests, and without its native library Hadoop starts chmod
# for each new file.
_WRITER_CONFS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


class DumpStore:
    """A folder on a Hadoop file system."""

    def __init__(self, bridge: Bridge, root: str) -> None:
        self.bridge = bridge
        self._path = bridge.jvm.org.apache.hadoop.fs.Path
        # Hadoop parses a text as a URL with literal blanks; a URI has them encoded.
        is_url = "://" in root or root.startswith("file:")
        plain = self._path(root if is_url else bridge.jvm.java.net.URI(Path(root).absolute().as_uri()))
        self.system: Any = plain.getFileSystem(bridge.session.sessionState().newHadoopConf())
        self.root: Any = self.system.makeQualified(plain)
        if str(self.system.getScheme()) == "file":
            # Without .crc files, which the sidecar does not list.
            self.system = self.system.getRawFileSystem()

    @property
    def url(self) -> str:
        """URL of the folder, as written by Spark."""
        return str(self.root.toString())

    def local_path(self, relative: str = "") -> Path | None:
        """Local path; null on other file systems."""
        uri = self.hadoop_path(relative).toUri()
        return Path(uri.getPath()) if (uri.getScheme() or "file") == "file" else None

    def hadoop_path(self, relative: str = "") -> Any:
        """A Hadoop Path below the folder."""
        return self._path(self.root, relative) if relative else self.root

    def subfolder(self, relative: str) -> DumpStore:
        """A folder of this one."""
        return DumpStore(self.bridge, str(self.hadoop_path(relative).toString()))

    def is_empty(self) -> bool:
        """Is it missing, or empty except for unfinished dumps?"""
        if not self.system.exists(self.root):
            return True
        return all(name.startswith(".") for name in self.list_names())

    def exists(self, relative: str = "") -> bool:
        """Is there such a file or folder?"""
        return bool(self.system.exists(self.hadoop_path(relative)))

    def list_names(self, relative: str = "") -> list[str]:
        """Names in a folder, sorted; empty where there is none."""
        path = self.hadoop_path(relative)
        if not self.system.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self.system.listStatus(path))

    def list_sizes(self, relative: str = "") -> dict[str, int]:
        """Sizes in bytes of all files below a folder, by path relative to the store."""
        if (local := self.local_path(relative)) and (root := self.local_path()):
            # Without its native library, Hadoop starts a program per file to get permissions.
            files_below = (path for path in local.rglob("*") if path.is_file())
            return {path.relative_to(root).as_posix(): path.stat().st_size for path in files_below}
        sizes: dict[str, int] = {}
        entries = self.system.listFiles(self.hadoop_path(relative), True)
        start = len(str(self.root.toUri().getPath()).rstrip("/")) + 1
        while entries.hasNext():
            status = entries.next()
            sizes[str(status.getPath().toUri().getPath())[start:]] = int(status.getLen())
        return sizes

    def make_folder(self, relative: str = "") -> None:
        """Create a folder with its parents."""
        if local := self.local_path(relative):
            local.mkdir(parents=True, exist_ok=True)
            return
        self.system.mkdirs(self.hadoop_path(relative))

    def move(self, source: str, target: str) -> None:
        """Rename within the store.

        Raises
        ------
        OSError
            The file system did not rename it.
        """
        if not self.system.rename(self.hadoop_path(source), self.hadoop_path(target)):
            raise OSError(f"cannot rename {source} to {target}")

    def remove(self, relative: str = "") -> None:
        """Remove a file, or a folder with its contents."""
        self.system.delete(self.hadoop_path(relative), True)

    def write_file(self, relative: str, data: bytes) -> None:
        """Write a small file."""
        if local := self.local_path(relative):
            local.parent.mkdir(parents=True, exist_ok=True)
            local.write_bytes(data)
            return
        stream = self.system.create(self.hadoop_path(relative), True)
        stream.write(bytearray(data))
        stream.close()

    def copy_to_local(self, target: Path, *, max_bytes: int) -> None:
        """Copy the whole folder to this machine."""
        sizes = self.list_sizes()
        if sum(sizes.values()) > max_bytes:
            raise ConfigError(
                "the dump is too large",
                where="--max-bytes",
                found=format_bytes(sum(sizes.values())),
                allowed=format_bytes(max_bytes),
            )
        for name in sizes:
            local = target / name
            local.parent.mkdir(parents=True, exist_ok=True)
            self.system.copyToLocalFile(False, self.hadoop_path(name), self._path(local.as_uri()), True)

    def list_entries(self, *, known: dict[str, bytes]) -> dict[str, FileEntry]:
        """Sizes and digests of all files; `known` has the bytes of files written by this process."""
        sizes = self.list_sizes()
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in known.items()}
        others = [name for name in sizes if name not in digests]
        digests |= self._local_digests(others) if self.local_path() else self._spark_digests(others)
        return {name: FileEntry(n_bytes=n_bytes, sha256=digests[name]) for name, n_bytes in sorted(sizes.items())}

    def _local_digests(self, names: list[str]) -> dict[str, str]:
        return {name: files.hash_file(path) for name in names if (path := self.local_path(name))}

    def _spark_digests(self, names: list[str]) -> dict[str, str]:
        """Compute the SHA-256 of files, by name, in parallel on Spark's executors."""
        if not names:
            return {}
        urls = {str(self.hadoop_path(name).toString()): name for name in names}
        frame = self.bridge.spark.read.format("binaryFile").load(list(urls))
        rows = frame.selectExpr("path", "sha2(content, 256) AS digest").collect()
        return {urls[row["path"]]: row["digest"] for row in rows}


def write_frame(
    store: DumpStore, folder: str, frame: DataFrame, keep: list[int], *, batch_rows: int
) -> tuple[dict[int, int], int]:
    """Write a frame as Parquet; its partitions are those of `keep`, in order.

    Returns: Number of batches by partition (none for those without rows), and number of rows.
    """
    from pyspark.sql import Observation, functions

    counted = Observation()
    frame = frame.observe(counted, functions.count(functions.lit(1)).alias("n"))
    scratch = f"{folder}/{SCRATCH_FOLDER}"
    writer = frame.write.options(maxRecordsPerFile=batch_rows, **_WRITER_CONFS)
    writer.parquet(str(store.hadoop_path(scratch).toString()))
    return _move_parts(store, folder, keep), int(counted.get["n"])


def _move_parts(store: DumpStore, folder: str, keep: list[int]) -> dict[int, int]:
    """Move the files that Spark wrote to their partition folders; returns the number of batches by partition.

    `keep`: Original partition numbers, in the order in which Spark wrote them.
    """
    batches: dict[int, int] = {}
    parts = [
        (match, name) for name in store.list_names(f"{folder}/{SCRATCH_FOLDER}") if (match := _PART_PATTERN.match(name))
    ]
    # Numerically: c1000 comes after c999.
    # Of no partitions Spark writes an empty file.
    for match, name in sorted(parts, key=lambda part: (int(part[0][1]), int(part[0][2]))) if keep else ():
        number = keep[int(match[1])]
        batch = batches.get(number, 0)
        if not batch:
            store.make_folder(f"{folder}/partition-{number}")
        store.move(f"{folder}/{SCRATCH_FOLDER}/{name}", f"{folder}/partition-{number}/batch-{batch}.parquet")
        batches[number] = batch + 1
    store.remove(f"{folder}/{SCRATCH_FOLDER}")
    return batches


def write_meta_files(store: DumpStore, entry: InputEntry) -> None:
    """Write rdd.meta and partition.meta, for users and tools; the sidecar has the same data."""
    attributes = [column.model_dump(mode="json") for column in entry.columns]
    document = {"numPartitions": entry.n_partitions, "outputPartitions": entry.partitions, "attrs": attributes}
    store.write_file(f"input-{entry.index}/rdd.meta", json.dumps(document).encode())
    kinds = [column.type for column in entry.columns]
    for number, count in entry.batches.items():
        path = f"input-{entry.index}/partition-{number}/partition.meta"
        store.write_file(path, json.dumps({"numBatches": count, "dataType": kinds}).encode())


def write_output_rows(store: DumpStore, frame: DataFrame, keep: list[int], *, batch_rows: int) -> bool:
    """Write the rows of an output; false for types that Parquet cannot store."""
    if any(field.dataType.typeName() in ("interval", "void") for field in frame.schema.fields):
        return False
    if not frame.columns:
        frame = frame.selectExpr(f"CAST(1 AS TINYINT) AS {ZERO_COLUMN}")
    write_frame(store, "output", frame, keep, batch_rows=batch_rows)
    return True


@contextlib.contextmanager
def cap_size(store: DumpStore, max_bytes: int | None) -> Iterator[None]:
    """Cancel the jobs of the block when the store grows past the cap.

    Writers flush a row group at a time, so up to 128 MB per task may be written beyond it.
    """
    if max_bytes is None:
        yield
        return
    from pyspark import InheritableThread

    context = store.bridge.context
    group = f"lore-{uuid.uuid4().hex[:12]}"
    ended, over = threading.Event(), threading.Event()

    def watch_size() -> None:
        while not ended.wait(POLL_S):
            if _measure_size(store) > max_bytes:
                over.set()
                context.cancelJobGroup(group)
                return

    # Closes its connection to the JVM when it ends.
    watcher = InheritableThread(target=watch_size, daemon=True)
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
    if over.is_set() or _measure_size(store) > max_bytes:
        raise ConfigError(
            "the dump is too large",
            where="--max-bytes",
            found=f"more than {format_bytes(max_bytes)}",
            do="dump fewer partitions (1[0] for the first), fewer --columns, or raise --max-bytes",
        )


def _measure_size(store: DumpStore) -> int:
    # Fails when files are renamed meanwhile.
    with contextlib.suppress(Exception):
        return int(store.system.getContentSummary(store.hadoop_path()).getLength())
    return 0
