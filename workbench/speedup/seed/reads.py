"""What plans say about the data they read: formats, schemas, nested types; and what the original takes as a problem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from workbench.eventlog.plans import Node
from workbench.speedup.seed.held import Query
from workbench.speedup.seed.scala_order import immutable

SERDES = (
    ("org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", "HiveText"),
    ("org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe", "HiveParquet"),
    ("org.apache.hadoop.hive.serde2.avro.AvroSerDe", "HiveAvro"),
    ("org.apache.hadoop.hive.serde2.OpenCSVSerde", "HiveCSV"),
    ("org.apache.hadoop.hive.ql.io.orc.OrcSerde", "HiveORC"),
)
# Names of operators over RDDs and typed datasets.
RDD_NAMES = re.compile(
    "ExistingRDD|Scan ExistingRDD.*|SerializeFromObject|DeserializeToObject|MapPartitions|MapElements|AppendColumns"
    "|AppendColumnsWithObject|MapGroups|FlatMapGroupsInR|FlatMapGroupsInRWithArrow|CoGroup"
)
RDD_TEXTS = (re.compile(r".*\$Lambda\$.*"), re.compile(r".*\.apply"))
PROBLEMS = {
    ".*UDF.*": "UDF",
    r".*current_timestamp\(.*\).*": "TIMEZONE current_timestamp()",
    r".*to_timestamp\(.*\).*": "TIMEZONE to_timestamp()",
    r".*hour\(.*\).*": "TIMEZONE hour()",
    r".*minute\(.*\).*": "TIMEZONE minute()",
    r".*second\(.*\).*": "TIMEZONE second()",
}
PROBLEMS_IN_ORDER = tuple((re.compile(pattern), PROBLEMS[pattern]) for pattern in immutable(PROBLEMS))
NESTED = "NESTED COMPLEX TYPE"


class Read(NamedTuple):
    """A data source: its format, and its schema as `name:type,…` (cut with … where Spark cut it)."""

    data_format: str
    schema: str


def is_scan(name: str) -> bool:
    return name.startswith(("Scan", "NativeScan"))


def is_hive_scan(name: str) -> bool:
    return name.lower().startswith("scan hive")


def _field(text: str, tag: str) -> str | None:
    if tag not in text:
        return None
    return text[text.index(tag) + len(tag) :].split(", ", 1)[0]


def _bare(schema: str) -> str:
    return schema.removeprefix("struct<").removesuffix(">")


def hive_format(text: str) -> str:
    """The format that a Hive table's SerDe class stands for."""
    return next((name for serde, name in SERDES if serde in text), "unknown")


def read_of(node: Node) -> Read:
    """Format and schema of a scan, from its text.

    Examples
    --------
    >>> text = "FileScan parquet [a#1] Format: Parquet, ReadSchema: struct<a:int>"
    >>> scan = Node(0, "Scan parquet ", text, 0, None, [], [])
    >>> read_of(scan)
    Read(data_format='Parquet', schema='a:int')
    """
    if is_hive_scan(node.name):
        return Read(hive_format(node.text), "")
    found = _field(node.text, "Format: ")
    if found is not None and node.name.startswith("Gpu"):
        found = f"{found}(GPU)"
    if found is None:
        found = "JDBC" if "JDBCRelation" in node.name else "unknown"
    return Read(found, _bare(_field(node.text, "ReadSchema: ") or ""))


def reads_of(query: Query, *, hive: bool) -> list[Read]:
    """All data sources of a query, in the original's order: by metadata, then Hive scans, then newer sources."""
    scans = [_trimmed(read_of(node).schema) for node in query.nodes if is_scan(node.name)]
    found = []
    for metadata in query.reads:
        schema = _bare(metadata.get("ReadSchema", ""))
        if any(scan in schema for scan in scans):
            found.append(Read(metadata.get("Format", "unknown"), schema))
    if hive:
        found += [Read(hive_format(text), "") for text in query.hive_scans]
    return found + [read_of(node) for node in query.nodes if _is_newer_source(node.name)]


def _is_newer_source(name: str) -> bool:
    return name == "BatchScan" or any(part in name for part in ("GpuScan", "GpuBatchScan", "JDBCRelation"))


def _trimmed(schema: str) -> str:
    return schema[: schema.rindex(",")] if "..." in schema and "," in schema else schema


def nested_types(schemas: Iterable[str]) -> tuple[list[str], list[str]]:
    """Complex types in schemas, and those of them that hold another one.

    Examples
    --------
    >>> nested_types(["a:int,b:array<string>", "c:map<string,array<int>>"])
    (['array<string>', 'map<string,array<int>>'], ['map<string,array<int>>'])
    """
    columns = _split(",".join(dict.fromkeys(schema for schema in schemas if schema)))
    whole = [_after_name(column) for column in columns if "..." not in column]
    cut = [_cut_type(column) for column in columns if "..." in column]
    complex_types = [text for text in (*whole, *cut) if text.startswith(("array<", "map<", "struct<"))]
    nested = []
    for text in complex_types:
        end = text.rfind(">") if ">" in text else len(text) - 1
        inner = text[text.index("<") : end + 1]
        if any(kind in inner for kind in ("array<", "struct<", "map<")):
            nested.append(text)
    return complex_types, nested


def _split(schema: str) -> list[str]:
    """Cut at commas outside brackets."""
    columns, start, angles, parentheses = [], 0, 0, 0
    for at, char in enumerate(schema):
        angles += (char == "<") - (char == ">")
        parentheses += (char == "(") - (char == ")")
        if char == "," and not angles and not parentheses:
            columns.append(schema[start:at])
            start = at + 1
    return [*columns, schema[start:]] if schema[start:] else columns


def _after_name(column: str) -> str:
    return column.split(":", 1)[1] if ":" in column else ""


def _cut_type(column: str) -> str:
    """The type of a column whose schema Spark cut with dots, as far as it goes; nothing when text follows the dots."""
    parts = _after_name(column).split("...")
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 1 else ""


def is_rdd_name(name: str) -> bool:
    return RDD_NAMES.fullmatch(name.strip()) is not None


def is_rdd_text(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in RDD_TEXTS)


def is_rdd(node: Node) -> bool:
    """Does the operator work on an RDD or a typed dataset?"""
    return is_rdd_name(node.name) or is_rdd_text(node.text)


def problems(nodes: Sequence[Node], reads: Sequence[Read]) -> list[str]:
    """What the original lists as potential problems of a query: none when it works on RDDs from some node on."""
    found: dict[str, None] = {}
    rdd = False
    for node in nodes:
        if not rdd and is_rdd(node):
            rdd = True
            found.clear()
        if not rdd:
            found |= dict.fromkeys(name for pattern, name in PROBLEMS_IN_ORDER if pattern.fullmatch(node.text))
    if nested_types(read.schema for read in reads)[1]:
        found[NESTED] = None
    return list(found)
