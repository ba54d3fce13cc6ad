"""Data formats read and written by a plan, and what the v24.08 tables support."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from workbench.eventlog.plan_graph import PlanNode
from workbench.speedup.compat_rapids_tools.jvm_semantics import immutable_order
from workbench.speedup.compat_rapids_tools.log_records import Query
from workbench.speedup.compat_rapids_tools.operator_texts import UnreadableTextError
from workbench.speedup.rapids_facts import SupportRow as Row
from workbench.speedup.rapids_facts import list_supported_execs, list_supported_expressions, list_supported_formats

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
PROBLEMS_IN_ORDER = tuple((re.compile(pattern), PROBLEMS[pattern]) for pattern in immutable_order(PROBLEMS))
NESTED = "NESTED COMPLEX TYPE"
WRITE_ENTRY = "DataWritingCommandExec"
# Name in the plan -> operator in the factor file; looked up in this order.
WRITE_COMMANDS = {
    WRITE_ENTRY: WRITE_ENTRY,
    "InsertIntoHadoopFsRelationCommand": WRITE_ENTRY,
    "InsertIntoHiveTable": WRITE_ENTRY,
    "AppendDataExecV1": "AppendDataExecV1",
    "OverwriteByExpressionExecV1": "OverwriteByExpressionExecV1",
    "AtomicReplaceTableAsSelect": "AtomicReplaceTableAsSelectExec",
    "AtomicCreateTableAsSelect": "AtomicCreateTableAsSelectExec",
}
V1_EXECS = ("AppendDataExecV1", "OverwriteByExpressionExecV1")
WITHOUT_FORMAT = (*V1_EXECS, "AtomicReplaceTableAsSelect", "AtomicCreateTableAsSelect")
DELTA_ONLY = ("SaveIntoDataSourceCommand", "MergeIntoCommandEdge", "WriteIntoDeltaCommand")
DELTA_WORDS = ("DeltaTableV2", "WriteIntoDeltaBuilder")
RELEASE = "24.08"
SUPPORTED_LEVELS = frozenset({"S", "PS", "TON"})
OTHER_NAMES = {
    "long": ("bigint",),
    "short": ("smallint",),
    "int": ("integer",),
    "byte": ("tinyint",),
    "float": ("real",),
    "decimal": ("dec", "numeric"),
    "calendar": ("interval",),
}

# Levels whose notes become the reason; the second group only when there is a note.
ALWAYS_LISTED_LEVELS, LISTED_WITH_NOTE_LEVELS = frozenset({"TOFF"}), frozenset({"NS", "CO"})


class Read(NamedTuple):
    """A data source: its format, and its schema as `name:type,…` (cut with … where Spark cut it)."""

    data_format: str
    schema: str


def is_scan(name: str) -> bool:
    return name.startswith(("Scan", "NativeScan"))


def is_hive_scan(name: str) -> bool:
    return name.lower().startswith("scan hive")


def _find_field(text: str, tag: str) -> str | None:
    if tag not in text:
        return None
    return text[text.index(tag) + len(tag) :].split(", ", 1)[0]


def _strip_struct(schema: str) -> str:
    return schema.removeprefix("struct<").removesuffix(">")


def get_hive_format(text: str) -> str:
    """The format that a Hive table's SerDe class stands for."""
    return next((name for serde, name in SERDES if serde in text), "unknown")


def parse_read(node: PlanNode) -> Read:
    """Format and schema of a scan, from its text.

    >>> text = "FileScan parquet [a#1] Format: Parquet, ReadSchema: struct<a:int>"
    >>> scan = PlanNode(0, "Scan parquet ", text, 0, None, [], [])
    >>> parse_read(scan)
    Read(data_format='Parquet', schema='a:int')
    """
    if is_hive_scan(node.name):
        return Read(get_hive_format(node.text), "")
    data_format = _find_field(node.text, "Format: ")
    if data_format is not None and node.name.startswith("Gpu"):
        data_format = f"{data_format}(GPU)"
    if data_format is None:
        data_format = "JDBC" if "JDBCRelation" in node.name else "unknown"
    return Read(data_format, _strip_struct(_find_field(node.text, "ReadSchema: ") or ""))


def list_query_reads(query: Query, *, hive: bool) -> list[Read]:
    """List all data sources of a query in the original's order: by metadata, then Hive scans, then newer sources."""
    scans = [parse_read(node).schema for node in query.nodes if is_scan(node.name)]
    scans = [schema[: schema.rindex(",")] if "..." in schema and "," in schema else schema for schema in scans]
    reads = []
    for metadata in query.reads:
        schema = _strip_struct(metadata.get("ReadSchema", ""))
        if any(scan in schema for scan in scans):
            reads.append(Read(metadata.get("Format", "unknown"), schema))
    if hive:
        reads += [Read(get_hive_format(text), "") for text in query.hive_scans]
    newer = ("GpuScan", "GpuBatchScan", "JDBCRelation")
    return reads + [
        parse_read(node) for node in query.nodes if node.name == "BatchScan" or any(part in node.name for part in newer)
    ]


def find_complex_types(schemas: Iterable[str]) -> tuple[list[str], list[str]]:
    """Complex types in schemas, and those of them that hold another one.

    >>> find_complex_types(["a:int,b:array<string>", "c:map<string,array<int>>"])
    (['array<string>', 'map<string,array<int>>'], ['map<string,array<int>>'])
    """
    columns = _split_columns(",".join(dict.fromkeys(schema for schema in schemas if schema)))
    full_types = [_strip_column_name(column) for column in columns if "..." not in column]
    cut = []
    for column in columns:
        if "..." in column:
            # The type of a column whose schema Spark cut with dots, as far as it goes; nothing when text follows the
            # dots.
            parts = _strip_column_name(column).split("...")
            while parts and not parts[-1]:
                parts.pop()
            cut.append(parts[0] if len(parts) == 1 else "")
    complex_types = [text for text in (*full_types, *cut) if text.startswith(("array<", "map<", "struct<"))]
    nested = []
    for text in complex_types:
        end = text.rfind(">") if ">" in text else len(text) - 1
        inner = text[text.index("<") : end + 1]
        if any(kind in inner for kind in ("array<", "struct<", "map<")):
            nested.append(text)
    return complex_types, nested


def _split_columns(schema: str) -> list[str]:
    """Split a schema text at the commas outside brackets.

    >>> _split_columns("a:int,b:struct<c:int,d:int>")
    ['a:int', 'b:struct<c:int,d:int>']
    """
    columns, start, angles, parentheses = [], 0, 0, 0
    for at, char in enumerate(schema):
        angles += (char == "<") - (char == ">")
        parentheses += (char == "(") - (char == ")")
        if char == "," and not angles and not parentheses:
            columns.append(schema[start:at])
            start = at + 1
    return [*columns, schema[start:]] if schema[start:] else columns


def _strip_column_name(column: str) -> str:
    return column.split(":", 1)[1] if ":" in column else ""


def is_rdd_name(name: str) -> bool:
    return RDD_NAMES.fullmatch(name.strip()) is not None


def is_rdd_text(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in RDD_TEXTS)


def is_rdd(node: PlanNode) -> bool:
    """Does the operator work on an RDD or a typed dataset?"""
    return is_rdd_name(node.name) or is_rdd_text(node.text)


def list_problems(nodes: Sequence[PlanNode], reads: Sequence[Read]) -> list[str]:
    """List the original's potential problems of a query: none when it works on RDDs from some node on."""
    problems: dict[str, None] = {}
    rdd = False
    for node in nodes:
        if not rdd and is_rdd(node):
            rdd = True
            problems.clear()
        if not rdd:
            problems |= dict.fromkeys(name for pattern, name in PROBLEMS_IN_ORDER if pattern.fullmatch(node.text))
    if find_complex_types(read.schema for read in reads)[1]:
        problems[NESTED] = None
    return list(problems)


class Write(NamedTuple):
    data_format: str
    entry: str
    delta: bool


def is_write(name: str) -> bool:
    """Is this operator a command that writes?"""
    return any(command in name for command in WRITE_COMMANDS) or any(command in name for command in DELTA_ONLY)


def parse_write(node: PlanNode) -> Write:
    """Format of what a command writes; `unknown` where the text does not tell."""
    if any(command in node.name for command in DELTA_ONLY):
        delta = True
    elif node.name in V1_EXECS:
        delta = all(word in node.text for word in DELTA_WORDS)
    else:
        delta = node.name in WITHOUT_FORMAT and re.fullmatch("(?i).*delta.*", node.text) is not None
    if delta:
        return Write("Delta", WRITE_COMMANDS.get(node.name, WRITE_ENTRY), True)
    data_format = get_write_format(node)
    if data_format is None:
        raise UnreadableTextError(node.name)
    command = next(command for command in WRITE_COMMANDS if command in node.name.strip())
    return Write(data_format, WRITE_COMMANDS[command], False)


def get_write_format(node: PlanNode) -> str | None:
    """Format as the summary of an application lists it; None for what is no write (or Delta's alone)."""
    command = next((command for command in WRITE_COMMANDS if command in node.name.strip()), None)
    if command is None:
        return None
    if command in WITHOUT_FORMAT:
        return "unknown"
    if "InsertIntoHiveTable" in node.name:
        return get_hive_format(node.text)
    return _parse_write_format(node.text)


def _parse_write_format(text: str) -> str:
    """The third argument, or the fourth where the third lists partition columns.

    >>> _parse_write_format("Execute X gs://b, false, [a#25, b#26], ORC, Map(path -> gs://b)")
    'ORC'
    """
    arguments = text.split(",", 2)[-1].strip()
    if not arguments.startswith("["):
        return arguments.split(",")[0]
    parts = [part.strip() for part in re.split(r"(?<=],)", arguments)]
    if len(parts) < 2:
        raise UnreadableTextError(text)
    return parts[1].split(",")[0]


class Unsupported(NamedTuple):
    """An expression that is not supported, with the reason where the tables give one."""

    name: str
    reason: str


class SupportTables:
    """Lookup in the support tables; `factors` are those of the factor file or the platform."""

    def __init__(self, factors: Mapping[str, float]) -> None:
        self.factors = factors
        self.execs = {row.name: row.level for row in list_supported_execs(RELEASE)}
        self.expressions: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        for row in list_supported_execs(RELEASE):
            self._add_note(row.name.removesuffix("Exec"), row)
        for row in list_supported_expressions(RELEASE):
            for name in (row.name, *row.functions):
                key = name.lower().replace("`", "").replace(" ", "")
                self.expressions[key] = row.level
                self._add_note(key, row)
        self.reads: dict[str, list[str]] = {}
        self.writes: list[str] = []
        for format_row in list_supported_formats(RELEASE):
            kind, direction = format_row["Format"].lower(), format_row["Direction"].lower()
            if direction == "write":
                self.writes.append(kind)
            else:
                types = immutable_order(name for name in format_row if name not in ("Format", "Direction"))
                self.reads[kind] = [
                    name
                    for column in types
                    if format_row[column] not in SUPPORTED_LEVELS
                    for name in (*OTHER_NAMES.get(column, ()), column)
                ]

    def _add_note(self, name: str, row: Row) -> None:
        if row.level in ALWAYS_LISTED_LEVELS or (row.level in LISTED_WITH_NOTE_LEVELS and row.note != "None"):
            self.reasons[name] = row.note if row.note != "None" else "Force disabled by the Tools"

    def get_factor(self, operator: str) -> float:
        """Its factor; 1.0 for what has none (the original's way)."""
        return self.factors.get(operator, 1.0)

    def is_exec_supported(self, operator: str) -> bool:
        return self.execs.get(operator, "NS") in SUPPORTED_LEVELS

    def is_expression_supported(self, name: str) -> bool:
        return self.expressions.get(name.lower(), "NS") in SUPPORTED_LEVELS

    def list_unsupported_expressions(self, names: Sequence[str]) -> list[Unsupported]:
        """List those of the expressions that are not supported."""
        return [
            Unsupported(name, self.reasons.get(name, "")) for name in names if not self.is_expression_supported(name)
        ]

    def get_reason(self, operator: str) -> str:
        return self.reasons.get(operator, "")

    def list_unsupported_types(self, read: Read) -> list[str]:
        """Types in a schema that cannot be read from this format; `*` for an unknown format."""
        types = self.reads.get(read.data_format.lower())
        if types is None:
            return ["*"]
        schema = read.schema.lower()
        return immutable_order(name for name in types if name in schema)

    def is_write_supported(self, data_format: str) -> bool:
        return data_format.lower().strip() in self.writes
