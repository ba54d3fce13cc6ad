"""A dump made by hand: a whole folder with plan.json, signed or not, and Java streams that name any class."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.lore.dumps.dump_folder import (
    FileEntry,
    InputColumn,
    InputEntry,
    Output,
    PartitionPrint,
    Sidecar,
    Versions,
)
from workbench.lore.trust import trust_check

FILTER = "org.apache.spark.sql.execution.FilterExec"
COLUMN = InputColumn(name="a", stored_as="a", type="long", nullable=True, expr_id=7)
FILES = {
    "input-0/rdd.meta": b'{"numPartitions": 3}',
    "input-0/partition-0/partition.meta": b'{"numBatches": 2}',
    "input-0/partition-0/batch-0.parquet": b"PAR1 first batch PAR1",
    "input-0/partition-0/batch-1.parquet": b"PAR1 second batch PAR1",
    "input-0/partition-2/partition.meta": b'{"numBatches": 0}',
}


def java_stream(*names: str) -> bytes:
    """A Java stream with an object without fields of each of these classes."""

    def written(name: str) -> bytes:
        text = name.encode()
        head = b"\x73\x72" + struct.pack(">H", len(text)) + text + struct.pack(">q", 1)
        return head + b"\x02\x00\x00\x78\x70"

    return b"\xac\xed\x00\x05" + b"".join(map(written, names))


def contents(*classes: str) -> dict[str, bytes]:
    """The files of a dump but plan.json; plan.meta names the operator and these classes."""
    return {**FILES, "plan.meta": java_stream(FILTER, *classes)}


def sidecar_of(files: Mapping[str, bytes], /, **changed: Any) -> Sidecar:
    """plan.json of these files, not signed."""
    entries = {
        name: FileEntry(n_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()) for name, data in files.items()
    }
    of_input = InputEntry(
        index=0,
        kind="rows",
        n_partitions=3,
        partitions=[0, 2],
        batches={"0": 2, "2": 0},
        n_rows=4,
        n_bytes=43,
        columns=[COLUMN],
    )
    values: dict[str, Any] = {
        "created_at": "2026-11-21T12:00:00+00:00",
        "versions": Versions(
            workbench="0.1.0", spark="3.5.9", scala="2.12.18", java="17.0.1", python="3.11.2", pyarrow="17.0.0"
        ),
        "lore_id": 3,
        "operator": "Filter",
        "operator_class": FILTER,
        "operator_text": "Filter (a#7L > 2)",
        "tree": "[loreId=3] Filter (a#7L > 2)",
        "plan_hash": "0" * 64,
        "time_zone": "Europe/Berlin",
        "ansi": False,
        "confs": {"spark.sql.ansi.enabled": "false", "spark.sql.shuffle.partitions": "4"},
        "inputs": [of_input],
        "output": Output(
            columns=[COLUMN],
            n_partitions=3,
            fingerprint={"0": PartitionPrint(n_rows=2, hash_sum=-(2**70), hash_xor=-5, ordered_sum=9)},
        ),
        "files": entries,
    }
    return Sidecar(**(values | changed))


def write_dump(folder: Path, files: Mapping[str, bytes] | None = None, /, *, sign: bool = True, **changed: Any) -> Path:
    """A folder with these files and a plan.json that fits them, signed by this user's key or by nobody."""
    files = contents() if files is None else files
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sidecar = sidecar_of(files, **changed)
    folder.mkdir(parents=True, exist_ok=True)
    write_sidecar(folder, trust_check.sign_sidecar(sidecar) if sign else sidecar)
    return folder


def write_sidecar(folder: Path, sidecar: Sidecar) -> None:
    (folder / "plan.json").write_text(sidecar.model_dump_json(indent=1))
