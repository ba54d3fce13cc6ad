"""Names of operators, and names of functions in an operator's text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workbench.speedup.compat_rapids_tools.jvm_semantics import immutable_order

JOIN_KEYS = re.compile(r"\[([\w#, +*\\\-\.<>=$`\(\)]+\])", re.ASCII)
# Where a word or a run of spaces begins, and nowhere else: trying every place inside takes the square of the time.
CALL = re.compile(r"(?<!\w)(\w+)\(.*\)", re.ASCII)
CALL_HEAD = re.compile(r"(?<!\w)(\w+)\(", re.ASCII)
AGGREGATE = re.compile(r"^\((keys|functions)=\[(.*)\]\s*,\s*(keys|functions)=\[(.*)\]\s*\)$", re.ASCII)
AGGREGATE_PREFIXES = ("finalmerge_", "partial_", "merge_")
ORDER_BY = re.compile(r"orderBy=\[([\w#, \(\)]+\])", re.ASCII)
SORT_KEYS = re.compile(r"\[([\w#, \(\)]+\])", re.ASCII)
KEY_END = re.compile(r"(?<=FIRST,)|(?<=LAST,)")
URL_PART = re.compile(r"parse_url\(.*,\s*(FILE|REF|AUTHORITY|USERINFO)(?:\s*,(?s:.*))?\)", re.ASCII | re.IGNORECASE)
OPERATOR_AT_CALL = re.compile(r"(^|(?<!\s)\s+)((AND|OR|NOT|IN|=|<=>|<|>|>=|\++|-|\*+))(\(+)", re.ASCII)
OPERATOR_AT_END = re.compile(r"(?<!\s)\s+((AND|OR|NOT|=|<=>|<|>|>=|\++|-|\*+))($|\)+)", re.ASCII)
MAX_URL_STEPS = 500_000
# Not expressions, or none that could make an operator fall back.
IGNORED_FUNCTIONS = frozenset(
    [
        "any",
        "cast",
        "ansi_cast",
        "decimal",
        "decimaltype",
        "every",
        "some",
        "list",
        "current_database",
        "current_user",
        "current_timestamp",
        "arraybuffer",
        "arraytype",
        "structfield",
        "structtype",
    ]
)
TOKENS = {
    "NOT": "Not",
    "=": "EqualTo",
    "<=>": "EqualNullSafe",
    "<": "LessThan",
    ">": "GreaterThan",
    "<=": "LessThanOrEqual",
    ">=": "GreaterThanOrEqual",
    "<<": "ShiftLeft",
    ">>": "ShiftRight",
    ">>>": "ShiftRightUnsigned",
    "+": "Add",
    "-": "Subtract",
    "*": "Multiply",
    "IN": "In",
    "OR": "Or",
    "||": "Or",
    "&&": "And",
    "AND": "And",
}
JOIN_TYPES = frozenset(
    ("Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")
)
BUILD_SIDES = {
    "BuildRight": JOIN_TYPES - {"RightOuter"},
    "BuildLeft": JOIN_TYPES & {"Inner", "Cross", "RightOuter", "FullOuter"},
}
CODEGEN_NODE = "WholeStageCodegen"
REUSED_NODE = "ReusedExchange"
UDF_CHECK_SKIPPED = (
    "ArrowEvalPython",
    "AggregateInPandas",
    "FlatMapGroupsInPandas",
    "MapInPandas",
    "WindowInPandas",
    "PythonMapInArrow",
    "MapInArrow",
)
REMOVED_OPERATORS = frozenset(
    {"GenerateBloomFilter", REUSED_NODE, "ColumnarToRow", "ResultQueryStage", "AdaptiveSparkPlan", "Subquery"}
)
IGNORED_OPERATORS = frozenset(
    {
        "CollectLimit",
        "LocalTableScan",
        "SetCatalogAndNamespace",
        "ResultQueryStage",
        "Scan JDBCRelation",
        "Scan OneRowRelation",
        "CommandResult",
        "Subquery",
    }
    | {
        f"Execute {command}"
        for command in [
            "CreateViewCommand",
            "CreateTableCommand",
            "DropTableCommand",
            "CreateDatabaseCommand",
            "DropDatabaseCommand",
            "CreateTableAsSelectCommand",
            "CreateDataSourceTableAsSelectCommand",
            "SetCommand",
            "AddJarsCommand",
            "InsertIntoHadoopFsRelationCommand",
            "UpdateCommandEdge",
            "DeleteCommandEdge",
            "DescribeDeltaHistoryCommand",
            "ShowPartitionsDeltaCommand",
            "AlterTableRecoverPartitionsCommand",
            "CreateFunctionCommand",
            "DeleteCommand",
            "DescribeTableCommand",
            "RefreshTable",
            "RepairTableCommand",
            "ShowPartitionsCommand",
            "ClearCacheCommand",
            "OptimizeTableCommandEdge",
        ]
    }
)
# Operators that are supported when the table says so, whatever their text holds.
PLAIN_OPERATORS = frozenset(
    [
        "AggregateInPandas",
        "ArrowEvalPython",
        "BroadcastExchange",
        "CartesianProduct",
        "Coalesce",
        "CollectLimit",
        "FlatMapGroupsInPandas",
        "GlobalLimit",
        "LocalLimit",
        "InMemoryTableScan",
        "MapInPandas",
        "PythonMapInArrow",
        "MapInArrow",
        "Range",
        "Sample",
        "SubqueryBroadcast",
        "Union",
        "WindowInPandas",
    ]
)


class UnreadableTextError(ValueError):
    """The original's patterns fail on this text, and it takes the operator as unsupported."""


def _match_name(pattern: re.Pattern[str], text: str) -> list[str]:
    match = pattern.search(text)
    return [match[1]] if match and match[1].lower() not in IGNORED_FUNCTIONS else []


def _unique_names(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def find_all_functions(text: str) -> list[str]:
    """Find every word in front of a parenthesis, each once, in the order of the original's sets.

    >>> find_all_functions("[cast(a#1 as string) AS b#2, CEIL(c#3) AS d#4L]")
    ['CEIL']
    """
    names = immutable_order(match[1] for match in CALL_HEAD.finditer(_mark_url_parts(text)))
    prefixes = (next(filter(name.startswith, AGGREGATE_PREFIXES), "") for name in names)
    bare = immutable_order(name.removeprefix(prefix) for name, prefix in zip(names, prefixes, strict=True))
    return immutable_order(name for name in bare if name.lower() not in IGNORED_FUNCTIONS)


def _mark_url_parts(text: str) -> str:
    """`parse_url(…, REF)` and three other parts are not supported: the part is put into the function's name."""
    at = text.find("parse_url(")
    if text.count("parse_url(") * len(text) > MAX_URL_STEPS:
        return text  # no query has so many; each of them is a walk over the rest of the text
    while at >= 0:
        call = text[at : _find_end_of_parenthesis(text, at + len("parse_url"))]
        part = URL_PART.match(call)
        if part:
            text = text.replace(call, call.replace("parse_url(", f"parse_url_{part[1].lower()}(", 1))
        at = text.find("parse_url(", at + 1)
    return text


def _find_end_of_parenthesis(text: str, opening: int) -> int:
    """Behind the parenthesis that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at + 1
    return len(text)


def find_aggregate_functions(text: str) -> list[str]:
    """Functions of an aggregation; its keys are not looked at.

    >>> find_aggregate_functions("(keys=[hex(a#1)], functions=[partial_sum(b#2), partial_count(1)])")
    ['sum', 'count']
    """
    names: list[str] = []
    for match in AGGREGATE.finditer(text):
        for kind, clause in ((match[1], match[2]), (match[3], match[4])):
            if kind == "functions":
                names += find_all_functions(clause)
    return _unique_names(names)


def find_window_functions(text: str) -> list[str]:
    """Window functions: the last call in front of each window's definition, in the first bracket."""
    first = text[: text.index("]") + 1] if "]" in text else text
    first = re.sub(r"\]+$", "", re.sub(r"^\[+", "", first.strip())).replace("cast(", "")
    pieces = first.split("windowspecdefinition")
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    names: list[str] = []
    for piece in pieces[:-1]:
        calls = CALL_HEAD.findall(piece.strip())
        names += _match_name(CALL_HEAD, f"{calls[-1]}(" if calls else "")
    return _unique_names(names)


def find_ranking_functions(text: str) -> list[str]:
    """Find the ranking function of a window operator's text, which is its third argument."""
    parts = text.split(", ")
    match = CALL_HEAD.search(parts[2].strip()) if len(parts) > 2 else None
    return _match_name(CALL_HEAD, match[0]) if match else []


def _find_key_functions(keys: str) -> list[str]:
    names: list[str] = []
    for key in KEY_END.split(keys):
        names += _match_name(CALL, re.sub(r"\]+$", "", re.sub(r"^\[+", "", key.strip())))
    return _unique_names(names)


def find_top_n_functions(text: str) -> list[str]:
    """Functions in the sort keys of a top-n."""
    match = ORDER_BY.search(text)
    return _find_key_functions(match[0].replace("orderBy=", "")) if match else []


def find_sort_functions(text: str) -> list[str]:
    """Functions in sort keys."""
    match = SORT_KEYS.search(text)
    return _find_key_functions(match[0]) if match else []


def find_equi_join_functions(text: str) -> tuple[list[str], bool]:
    """Functions in join keys, and whether type and build side of the join are supported.

    >>> find_equi_join_functions("[name#11, CEIL(DEPT#12)], [name#28, CEIL(DEPT_ID#27)], LeftOuter, BuildLeft")
    (['CEIL'], False)
    """
    keys = "::".join(match[0] for match in JOIN_KEYS.finditer(text))
    arguments = [part.strip() for part in JOIN_KEYS.sub("", text).split(",")]
    arguments = [part for part in arguments if part]
    kind = arguments[0].split("(")[0].strip() if arguments else ""
    side = arguments[1] if len(arguments) > 1 else ""
    names: list[str] = []
    for part in keys.split("::"):
        for expression in re.sub(r"^\[+|\]+$", "", part.strip()).split(","):
            names += _match_name(CALL, expression.strip())
    return _unique_names(names), kind in JOIN_TYPES and kind in BUILD_SIDES.get(side, JOIN_TYPES)


def find_nested_loop_join_functions(text: str) -> tuple[list[str], bool]:
    """Functions in a join condition, and whether type and build side of the join are supported."""
    parts = text.split(",", 2)
    if len(parts) < 2:
        raise UnreadableTextError(text)
    side, kind = parts[0].strip(), parts[1].strip()
    wrong = {"BuildLeft": ("LeftOuter", "LeftSemi", "LeftAnti"), "BuildRight": ("RightOuter",)}.get(side, ())
    supported = kind in JOIN_TYPES and kind != "FullOuter" and kind not in wrong
    return (find_condition_functions(text) if len(parts) > 2 else []), supported


def find_condition_functions(text: str) -> list[str]:
    """Functions and comparisons in a condition.

    >>> find_condition_functions("((isnotnull(s#68) AND (s#68 = TN)) OR (hex(cast(v#0 as bigint)) = B))")
    ['isnotnull', 'hex', 'And', 'EqualTo', 'Or']
    """
    remainder = text
    for match in OPERATOR_AT_CALL.finditer(text):
        if match[2].startswith(("+", "*")):
            # The original makes a pattern of the operator itself, which is none, and fails.
            raise UnreadableTextError(match[2])
        remainder = re.sub(rf"{match[2]}\(+", f"{match[2]} (", remainder)
    names = [name for name in CALL_HEAD.findall(remainder) if name.lower() not in IGNORED_FUNCTIONS]
    remainder = OPERATOR_AT_END.sub(" ", CALL_HEAD.sub(" ", remainder))
    remainder = re.sub(r"[()]+", " ", remainder)
    return _unique_names([*names, *(TOKENS[token] for token in remainder.split() if token in TOKENS)])
