"""rdd.meta and partition.meta: how many partitions and batches an input has, and which columns.

The GPU plugin writes them through Spark's serializer, the workbench as JSON; the first bytes tell which.
Source of the fields: `GpuLore.scala` of the RAPIDS accelerator, LoreRDDMeta and LoreRDDPartitionMeta.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.errors import InputError
from workbench.lore.inspection import javastream, scala
from workbench.lore.inspection.javavalues import JavaObject, Value
from workbench.lore.intact import read_bounded

LARGEST_META_BYTES = 32 << 20
NOT_JAVA = "not Java serialization: Kryo, if Spark wrote it"
Origin = Literal["workbench", "gpu"]


@dataclass(frozen=True)
class ColumnMeta:
    """A column of an input as its operator sees it; unknown parts are null."""

    name: str
    type: str
    nullable: bool | None = None
    expr_id: int | None = None
    masked: str | None = None


@dataclass(frozen=True)
class RddMeta:
    """rdd.meta of an input.

    `output_partitions` holds in a dump of the GPU plugin all partitions, and not the dumped ones.
    """

    origin: Origin
    n_partitions: int
    output_partitions: list[int]
    columns: list[ColumnMeta] = field(default_factory=list)


@dataclass(frozen=True)
class PartitionMeta:
    """partition.meta: how many batches were written when the last was consumed."""

    origin: Origin
    n_batches: int
    types: list[str]


def rdd_meta(path: Path) -> RddMeta:
    """What does rdd.meta say of an input?

    Raises
    ------
    InputError
        Kryo, another class, a damaged file.
    """
    found = _document(path, "LoreRDDMeta")
    if isinstance(found, dict):
        attributes = _listed(found, "attrs", path)
        columns = [_json_column(each, path) for each in attributes]
        return RddMeta("workbench", _number(found, "numPartitions", path), _numbers(found, path), columns)
    partitions = [_count(item, path) for item in scala.items_of(found.fields.get("outputPartitions"))]
    # Before September 2024 the plugin wrote no attributes.
    attrs = scala.items_of(found.fields["attrs"]) if "attrs" in found.fields else []
    n_partitions = _count(found.fields.get("numPartitions"), path)
    return RddMeta("gpu", n_partitions, partitions, [attribute(each) for each in attrs])


def partition_meta(path: Path) -> PartitionMeta:
    """What does partition.meta say of a partition?

    Raises
    ------
    InputError
        Kryo, another class, a damaged file.
    """
    found = _document(path, "LoreRDDPartitionMeta")
    if isinstance(found, dict):
        kinds = [scala.json_type(each) for each in _listed(found, "dataType", path)]
        return PartitionMeta("workbench", _number(found, "numBatches", path), kinds)
    kinds = [scala.java_type(each) for each in scala.items_of(found.fields.get("dataType"))]
    return PartitionMeta("gpu", _count(found.fields.get("numBatches"), path), kinds)


def attribute(value: Value) -> ColumnMeta:
    """A Catalyst attribute as a column."""
    fields = value.fields if isinstance(value, JavaObject) else {}
    identity = fields.get("exprId")
    expr_id = identity.fields.get("id") if isinstance(identity, JavaObject) else None
    nullable = fields.get("nullable")
    return ColumnMeta(
        scala.text_of(fields.get("name")),
        scala.java_type(fields.get("dataType")),
        nullable if isinstance(nullable, bool) else None,
        expr_id if isinstance(expr_id, int) else None,
    )


def java_root(data: bytes, where: object) -> JavaObject:
    """The one object that a Java stream holds.

    Raises
    ------
    InputError
        No Java stream (Kryo is named as the likely reason), a damaged one, or not one object.
    """
    if not data.startswith(javastream.MAGIC):
        raise InputError(
            NOT_JAVA,
            where=where,
            found=f"first bytes {data[:4].hex(' ') or 'none'}",
            allowed="ac ed 00 05, or JSON",
            do="only the application that wrote Kryo can read it; dump again with"
            " spark.serializer=org.apache.spark.serializer.JavaSerializer",
        )
    contents = [value for value in javastream.read(data, where=where) if not isinstance(value, bytes)]
    if len(contents) != 1 or not isinstance(contents[0], JavaObject):
        raise InputError("one object expected", where=where, found=f"{len(contents)} values")
    return contents[0]


def _document(path: Path, expected: str) -> dict[str, Any] | JavaObject:
    data = read_bounded(path, LARGEST_META_BYTES)
    if data[:1] == b"{":
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError("not JSON", where=path, found=str(error)[:100]) from error
        return dict(found)
    root = java_root(data, path)
    if root.class_name.rpartition(".")[2] != expected:
        raise InputError("another class than expected", where=path, found=root.class_name, allowed=f"…{expected}")
    return root


def _count(value: Value, path: Path) -> int:
    if (number := scala.number_of(value)) < 0:
        raise InputError("a number that is no count", where=path, found=number)
    return number


def _json_column(value: Any, path: Path) -> ColumnMeta:
    if not isinstance(value, dict):
        raise InputError("a column that is none", where=path, found=type(value).__name__)
    nullable, expr_id, masked = value.get("nullable"), value.get("expr_id"), value.get("masked")
    return ColumnMeta(
        scala.text_of(value.get("name")),
        scala.json_type(value.get("type")),
        nullable if isinstance(nullable, bool) else None,
        expr_id if isinstance(expr_id, int) else None,
        scala.text_of(masked) if masked is not None else None,
    )


def _listed(found: dict[str, Any], key: str, path: Path) -> list[Any]:
    if not isinstance(value := found.get(key), list):
        raise InputError("a list expected", where=f"{path}: {key}", found=type(value).__name__)
    return value


def _number(found: dict[str, Any], key: str, path: Path) -> int:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise InputError("a whole number expected", where=f"{path}: {key}", found=str(value)[:40])
    return value


def _numbers(found: dict[str, Any], path: Path) -> list[int]:
    return [_number({"item": item}, "item", path) for item in _listed(found, "outputPartitions", path)]
