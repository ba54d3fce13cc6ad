"""Identity of a query: what it reads and computes, whatever it is called."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache

import polars as pl

from workbench.speedup import engines

# A path, cut by Spark at 100 characters; and what stands before the columns of a scan without one.
_PATH = re.compile(r"Location: [^\[]*\[([^\],]+)")
_SOURCE = re.compile(r"\w*Scan (?:\[native\] ?)?(.+?) ?\[[^\]]*#")
_FILTERS = re.compile(r"(\w*Filters): \[(.*?)(?:\](?:, (?=\w)|$)|\.\.\., (?=\w))")
# Spark cuts filters at 100 characters, ids of expressions included; and the reader texts at 4,000.
_FILTER_CHARS, _TEXT_CHARS = 64, 2000
# What differs from run to run: moments of a start, ids of expressions, plans and subqueries, addresses, made classes.
_NOW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3,6}")
_PASSING = re.compile(
    rf"(?<=[\w)`'\]])#\d+L?|{_NOW.pattern}"
    r"|\[(?:plan_)?id=#?\d*\]|\$*\$?Lambda\S*|(?<=[\w$])@[0-9a-f]{5,8}\b|RuntimeFilters: \[[^\]]*\]"
)
# How a query runs, as opposed to what it computes.
_PHYSICAL = frozenset({"Sort", "Coalesce", "CoalesceBatches", "InMemoryTableScan"})
_JOIN_TYPE = re.compile(r"\b(?:(?:Left|Right|Full)Outer|LeftSemi|LeftAnti|ExistenceJoin)\b")
# What an expression of a filter is compared with: literals, which engines leave as they are.
_COMPARED = re.compile(
    r" (?:<=>|[<>]=?|=|LIKE) ([^()#]+?)(?: ESCAPE .)?\)| IN \(([^()#]*)\)"
    r"|(?:StartsWith|EndsWith|Contains)\([^,()]+, ([^()#]+)\)"
)
_AGGREGATED = re.compile(r"[=\[ ](?:partial_|merge_)?(?:gpu)?(?:basic)?(sum|avg|average|count|min|max)\(")
_JOINED = re.compile(r"\b(Inner|(?:Left|Right|Full)Outer|LeftSemi|LeftAnti|ExistenceJoin)\b")
_UNTELLING = re.compile(rf"{_NOW.pattern}|h:[0-9a-f]+")
_MAX_EXPRESSIONS, _EXPRESSION_CHARS = 64, 40
_CONNECT = re.compile(r'Spark Connect - session_id: ".*', re.DOTALL)
# What Spark and PySpark write where a query has no description: the place in the program, or no place at all.
CALL_SITE = re.compile(r"[\w$]+ at \S+:\d+")
_MAX_TABLES = 2


def scan_table_name(arguments: str) -> str:
    """Table of a scan: the last part of its first path, because folders differ between clusters; else its source.

    Empty where Spark has cut the path (at 100 characters): the remainder names a folder.

    >>> scan_table_name("Format: Parquet, Location: InMemoryFileIndex(1 paths)[file:/x/orders], PartitionFilters: []")
    'orders'
    >>> scan_table_name("Location: InMemoryFileIndex(1 paths)[file:/x/or..., PartitionFilters: [isnotnull(k#8)]")
    ''
    >>> scan_table_name("BatchScan lake.sales.orders[k#1L, v#2] lake.sales.orders (branch=null)")
    'lake.sales.orders'
    """
    place = _PATH.search(arguments)
    if place is None:
        source = None if "Location: " in arguments else _SOURCE.match(arguments)
        return source[1] if source else ""
    path = place[1]
    return "" if path.endswith("...") else path.rstrip("/").rpartition("/")[2]


def scan_columns(arguments: str) -> str:
    """Columns of a scan with their types, without runtime filters (their ids differ from run to run)."""
    return arguments.partition("ReadSchema: ")[2].partition(" RuntimeFilters: ")[0]


def list_expressions(text: str) -> set[str]:
    """What no engine changes of a filter, a join or an aggregate: literals that are compared with, type, functions.

    Moments as exact as a query's own start, and what was redacted, are left out.

    >>> sorted(list_expressions("Filter ((isnotnull(d#8) AND (d#8 <= 1998-09-02)) AND k#2 IN (3,4))"))
    ['1998-09-02', '3', '4']
    >>> list_expressions("CometFilter [d#8], ((ts#8 > 2026-11-28 10:00:00.123456) AND (k#9 = h:7b34945f9e))")
    set()
    >>> sorted(list_expressions("HashAggregate(keys=[k#1], functions=[partial_sum(a#2), avg(b#3)])"))
    ['avg()', 'sum()']
    """
    found = {value for one in _COMPARED.findall(text) for value in (one[0], *one[1].split(","), one[2])}
    operator = text.partition(" ")[0].partition("(")[0]
    if operator.endswith("Aggregate"):
        found |= {f"{name.replace('average', 'avg')}()" for name in _AGGREGATED.findall(text)}
    if operator.endswith("Join"):
        found |= set(_JOINED.findall(text))
    kept = sorted(text.strip()[:_EXPRESSION_CHARS] for text in found if text and not _UNTELLING.fullmatch(text.strip()))
    return set(kept[:_MAX_EXPRESSIONS])


def strip_passing_ids(text: str) -> str:
    """Text of a node without what differs from run to run.

    >>> strip_passing_ids("Project [a#12, (b#3L * 2) AS c#14]")
    'Project [a#, (b# * 2) AS c#]'
    """
    return _PASSING.sub("#", text)


def strip_description(text: str | None) -> str:
    """A description without what names a session of Spark Connect, which differs from run to run.

    >>> strip_description('Spark Connect - session_id: "0d1f" user_context { user_id: "ann" } plan { root')
    'Spark Connect'
    """
    return _CONNECT.sub("Spark Connect", text or "")


def fingerprint_plans(plan_nodes: pl.DataFrame) -> dict[tuple[int, int], str]:
    """Digest of what each execution computes, by log id and SQL id; equal for repeats on one engine.

    It holds the tables, columns and filters of scans, the types of joins, and the conditions, keys and functions of the
    first plan version, not how they are run: adaptive execution, algorithms of joins and exchanges do not change it.
    Engines word the same plan in other ways, so that only equal fingerprints tell something of two engines.

    `plan_nodes`: `log_id, sql_id, plan_version, node_name, simple_string` of the event log.
    """
    key = ["log_id", "sql_id"]
    first = plan_nodes.filter(pl.col("plan_version") == pl.col("plan_version").min().over(key))
    parts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for log_id, sql_id, name, text in first.select(*key, "node_name", "simple_string").iter_rows():
        if (part := _normalize_node(name, text or "")) is not None:
            parts[log_id, sql_id].append(part)
    return {of: hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:12] for of, texts in parts.items()}


@lru_cache(maxsize=8192)
def _normalize_node(name: str, text: str) -> str | None:
    """A node as part of a fingerprint; null for one that says only how a query runs."""
    operator = engines.classify_operator(name)
    if "Join" in operator.name:
        # Engines change the algorithm of a join and never its type; inner and cross joins are one.
        join_type = _JOIN_TYPE.search(text)
        return f"Join {join_type[0]}" if join_type else None
    if operator.kind != "plain" or operator.name in _PHYSICAL:
        return None
    if name.startswith("Execute "):
        # Places of output differ from run to run.
        return name
    if operator.name.startswith("Scan"):
        filters = []
        for kind, value in _FILTERS.findall(text):
            # Filters of a scan; what may be cut counts by its beginning, and the rest by the plan's own filters.
            # Filters of partitions have no operator of their own: they count whole where Spark did not cut them.
            is_whole = kind == "PartitionFilters" and f"{value}...," not in text
            plain = strip_passing_ids(value)
            filters.append(f"{kind} {plain if is_whole else plain[:_FILTER_CHARS]}")
        columns = scan_columns(text) or strip_passing_ids(text)[: 4 * _FILTER_CHARS]
        return " ".join([operator.name, scan_table_name(text), columns, *filters])
    return strip_passing_ids(text)[:_TEXT_CHARS]


def name_queries(
    descriptions: Mapping[tuple[int, int], str],
    plans: Mapping[tuple[int, int], str],
    tables: Mapping[tuple[int, int], Collection[str]],
) -> dict[tuple[int, int], str]:
    """Name of the query of each execution, by log id and SQL id: its description where that names one plan in the log.

    Executions without a description of their own, as PySpark's writes, get tables and fingerprint behind it.

    >>> name_queries({(0, 0): "save", (0, 1): "save"}, {(0, 0): "ab12ff", (0, 1): "cd34ff"}, {(0, 0): ["t"]})
    {(0, 0): 'save [t #ab12]', (0, 1): 'save [#cd34]'}
    """
    # One plan that is called from several places is one query.
    sites: dict[tuple[int, str], str] = {}
    named = {}
    for key, text in sorted(descriptions.items()):
        plan = plans.get(key)
        named[key] = text if plan is None or not CALL_SITE.fullmatch(text) else sites.setdefault((key[0], plan), text)
    seen: dict[tuple[int, str], set[str | None]] = defaultdict(set)
    for (log_id, sql_id), text in named.items():
        seen[log_id, text].add(plans.get((log_id, sql_id)))
    return {
        key: text if len(seen[key[0], text]) == 1 else add_identity(text, plans.get(key), tables.get(key, ()))
        for key, text in named.items()
    }


def add_identity(text: str, plan: str | None, tables: Collection[str]) -> str:
    """A description with the tables and the fingerprint that tell its query from others of this name.

    >>> add_identity("save", "ab12ff", ["orders", "lines", "parts"])
    'save [lines, orders, ... #ab12]'
    """
    named = sorted(filter(None, tables))
    shown = named[:_MAX_TABLES] + ["..."] * (len(named) > _MAX_TABLES)
    return f"{text} [{' '.join(filter(None, [', '.join(shown), f'#{plan[:4]}' if plan else '#']))}]"
