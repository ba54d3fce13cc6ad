"""Files of the v24.08 qualification tool: columns, formats and order as it writes them.

Where its order is that of a hash of whole rows (operators, the stages of a query with more than four of them) rows are
the same and come in another order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.core.errors import InputError
from workbench.core.files import write_text
from workbench.eventlog.secret_removal import remove_secrets
from workbench.speedup.compat_rapids_tools.estimates import (
    ApplicationEstimate,
    QueryEstimate,
    StageEstimate,
    estimate_application,
    flatten_spans,
)
from workbench.speedup.compat_rapids_tools.format_support import (
    Read,
    SupportTables,
    find_complex_types,
    get_write_format,
    is_rdd,
    list_problems,
    list_query_reads,
)
from workbench.speedup.compat_rapids_tools.jvm_semantics import immutable_order, mutable_order, truncate_decimals
from workbench.speedup.compat_rapids_tools.log_records import list_nodes_in_order
from workbench.speedup.compat_rapids_tools.plan_operators import OperatorEstimate
from workbench.speedup.compat_rapids_tools.profile_folder import format_csv_table
from workbench.speedup.compat_rapids_tools.profile_tables import Cell, QuotedCell, Table
from workbench.speedup.compat_rapids_tools.seed_log import SeedLog, read_seed_logs
from workbench.speedup.fleet.fleet_logs import list_log_candidates

FOLDER = NAME = "rapids_4_spark_qualification_output"
DEFAULT_FREQUENCY = 30
DESCRIPTION_CHARS = 100
MS_PER_MONTH = 1000.0 * 60 * 60 * 24 * 30
ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b", "\v": "\\v", "\a": "\\a"}


def estimate_applications(
    paths: Sequence[str | Path], factors: Mapping[str, float], *, unusable: dict[str, str] | None = None
) -> list[ApplicationEstimate]:
    """Estimates of all applications in the logs, the most promising first.

    `unusable`: Gets the reason of each log that cannot be used, by its path; without it such a log is an error.
    """
    found = []
    for log in list_log_candidates(paths):
        try:
            found += [estimate_application(one, factors) for one in read_seed_logs(log.path, need_sql=False)]
        except InputError as error:
            if unusable is None:
                raise
            detail = error.facts.get("found")
            unusable[log.path] = error.what + (f": {detail}" if detail else "")
    return sorted(found, key=_application_rank, reverse=True)


def _application_rank(one: ApplicationEstimate) -> tuple[str, float, float, int]:
    what = one.estimate
    return what.recommendation, what.speedup_ratio, what.saved_ms, one.log.start_ms + what.duration_ms


def write_qualification(
    found: Sequence[ApplicationEstimate], folder: str | Path, *, unusable: Mapping[str, str] | None = None
) -> list[Path]:
    """Write the files into `folder/rapids_4_spark_qualification_output`; give back their paths.

    Logs that are `unusable` have a row with the reason in the status file.
    """
    target = Path(folder) / FOLDER
    if target.exists():
        raise InputError("there is a qualification output already", where=target, do="choose another folder")
    tables = {
        "": _application_table(found),
        "_persql": _query_table(found),
        "_execs": _exec_table(found),
        "_stages": _stage_table(found),
        "_unsupportedOperators": _unsupported_table(found),
        "_status": _status_table(found, unusable or {}),
    }
    return [write_text(target / f"{NAME}{suffix}.csv", format_csv_table(table)) for suffix, table in tables.items()]


def _quote_text(words: str) -> QuotedCell:
    return QuotedCell(remove_secrets(words))


def _application_table(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App Name,App ID,Recommendation,Estimated GPU Speedup,Estimated GPU Duration,Estimated GPU Time Saved,"
        "SQL DF Duration,SQL Dataframe Task Duration,App Duration,GPU Opportunity,Executor CPU Time Percent,"
        "SQL Ids with Failures,Unsupported Read File Formats and Types,Unsupported Write Data Format,Complex Types,"
        "Nested Complex Types,Potential Problems,Longest SQL Duration,SQL Stage Durations Sum,"
        "NONSQL Task Duration Plus Overhead,Unsupported Task Duration,Supported SQL DF Task Duration,"
        "Task Speedup Factor,App Duration Estimated,Unsupported Execs,Unsupported Expressions,"
        "Estimated Job Frequency (monthly)"
    )
    often = estimate_monthly_runs(found)
    return tuple(head.split(",")), [_application_cells(one, often[one.log.app_name]) for one in found]


def _application_cells(one: ApplicationEstimate, frequency: int) -> tuple[Cell, ...]:
    what, log = one.estimate, one.log
    reads = [found for sql_id in sorted(log.queries) for found in list_query_reads(log.queries[sql_id], hive=log.hive)]
    complex_types, nested = find_complex_types(found.schema for found in reads)
    failed = immutable_order(str(sql_id) for sql_id in mutable_order(mutable_order(log.failures)))
    return (
        _quote_text(log.app_name),
        _quote_text(log.app_id),
        QuotedCell(what.recommendation),
        truncate_decimals(what.speedup_ratio),
        truncate_decimals(what.estimated_ms),
        truncate_decimals(what.saved_ms),
        what.sql_ms,
        one.sql_task_ms,
        what.duration_ms,
        what.opportunity_ms,
        truncate_decimals(one.cpu_percent),
        QuotedCell(",".join(failed)),
        _quote_text(";".join(_list_unsupported_reads(reads))),
        _quote_text(";".join(_list_unsupported_writes(log)).upper()),
        _quote_text(";".join(complex_types)),
        _quote_text(";".join(nested)),
        _quote_text(":".join(_list_log_problems(log))),
        one.longest_query_ms,
        sum(stage.wall_time_ms for stage in one.stages),
        one.other_ms,
        one.unsupported_ms,
        one.supported_ms,
        truncate_decimals(one.factor),
        log.end_is_estimated and what.duration_ms > 0,
        _quote_text(_join_names(one.unsupported_execs)),
        _quote_text(_join_names(one.unsupported_expressions)),
        frequency,
    )


def _join_names(names: Sequence[str]) -> str:
    return ";".join(names).strip().replace("\n", "").replace(",", ":")


def _list_unsupported_reads(reads: Sequence[Read]) -> list[str]:
    support = SupportTables({})
    found: dict[str, list[str]] = {}
    for source in reads:
        if types := support.list_unsupported_types(source):
            found[source.data_format] = immutable_order([*found.get(source.data_format, []), *types])
    return [f"{name}[{':'.join(found[name]).replace(',', ':')}]" for name in mutable_order(found)]


def _list_unsupported_writes(log: SeedLog) -> list[str]:
    support = SupportTables({})
    formats: dict[str, None] = {}
    for sql_id in sorted(log.queries):
        for node in list_nodes_in_order(log.queries[sql_id].nodes):
            if (found := get_write_format(node)) is not None:
                formats[found] = None
    lower = dict.fromkeys(name.lower().strip() for name in formats)
    return [name for name in lower if not support.is_write_supported(name)]


def _list_log_problems(log: SeedLog) -> list[str]:
    """Of queries that do not work on RDDs."""
    found: dict[int, list[str]] = {}
    for sql_id in sorted(log.queries):
        query = log.queries[sql_id]
        nodes = list_nodes_in_order(query.nodes)
        listed = list_problems(nodes, list_query_reads(query, hive=log.hive))
        if listed:
            found[sql_id] = [] if any(is_rdd(node) for node in nodes) else listed
    order = mutable_order(sql_id for sql_id in mutable_order(found) if found[sql_id])
    return immutable_order(name for sql_id in order for name in found[sql_id])


def estimate_monthly_runs(found: Sequence[ApplicationEstimate]) -> dict[str, int]:
    """Runs a month by application name: 30 for a single one, else what the logs' window comes to."""
    names = [one.log.app_name for one in found]
    start = min((one.log.start_ms for one in found), default=0)
    end = max((one.log.start_ms + one.estimate.duration_ms for one in found), default=0)
    months = (end - start) / MS_PER_MONTH if end > start else 1.0
    return {
        name: max(1, math.floor(names.count(name) / months + 0.5)) if names.count(name) > 1 else DEFAULT_FREQUENCY
        for name in names
    }


def _query_table(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App Name,App ID,Root SQL ID,SQL ID,SQL Description,SQL DF Duration,GPU Opportunity,Estimated GPU Duration,"
        "Estimated GPU Speedup,Estimated GPU Time Saved,Recommendation"
    )
    rows = [(one.log, query) for one in found for query in one.queries]
    ordered = sorted(rows, key=lambda row: _query_rank(*row))[::-1]
    return tuple(head.split(",")), [_query_cells(log, query) for log, query in ordered]


def _query_rank(log: SeedLog, query: QueryEstimate) -> tuple[str, float, float, int, str]:
    what = query.estimate
    return what.recommendation, what.speedup_ratio, what.saved_ms, what.duration_ms, log.app_id


def _query_cells(log: SeedLog, found: QueryEstimate) -> tuple[Cell, ...]:
    what, query = found.estimate, found.query
    return (
        _quote_text(log.app_name),
        _quote_text(log.app_id),
        QuotedCell("" if query.root_id is None else str(query.root_id)),
        query.sql_id,
        _quote_text(_format_description(query.description)),
        what.sql_ms,
        what.opportunity_ms,
        truncate_decimals(what.estimated_ms),
        truncate_decimals(what.speedup_ratio),
        truncate_decimals(what.saved_ms),
        QuotedCell(what.recommendation),
    )


def _format_description(description: str) -> str:
    return "".join(ESCAPES.get(char, char) for char in description[:DESCRIPTION_CHARS]).strip()


def _exec_table(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,SQL ID,Exec Name,Expression Name,Task Speedup Factor,Exec Duration,SQL Node Id,Exec Is Supported,"
        "Exec Stages,Exec Children,Exec Children Node Ids,Exec Should Remove,Exec Should Ignore,Action"
    )
    rows: dict[tuple[Cell, ...], None] = {}
    for one in found:
        for plan in one.plans:
            for item in plan.execs:
                rows |= dict.fromkeys(_exec_cells(one.log, each) for each in (*(item.children or []), item))
    return tuple(head.split(",")), list(rows)


def _exec_cells(log: SeedLog, item: OperatorEstimate) -> tuple[Cell, ...]:
    children = item.children or []
    return (
        _quote_text(log.app_id),
        item.sql_id,
        _quote_text(item.name),
        _quote_text(item.expression),
        truncate_decimals(item.factor),
        item.duration_ms or 0,
        item.node_id,
        item.supported,
        QuotedCell(":".join(map(str, item.stages))),
        _quote_text(":".join(child.name for child in children)),
        QuotedCell(":".join(str(child.node_id) for child in children)),
        item.removed,
        item.ignored,
        QuotedCell(item.action),
    )


def _stage_table(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,Stage ID,Average Speedup Factor,Stage Task Duration,Unsupported Task Duration,Stage Estimated,"
        "Number of transitions from or to GPU"
    )
    return tuple(head.split(",")), [_stage_cells(one.log, stage) for one in found for stage in one.stages]


def _stage_cells(log: SeedLog, stage: StageEstimate) -> tuple[Cell, ...]:
    about = (
        _quote_text(log.app_id),
        stage.stage_id,
        truncate_decimals(stage.factor),
        stage.task_time_ms,
        stage.unsupported_ms,
    )
    return (*about, stage.estimated, stage.transitions)


def _unsupported_table(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,SQL ID,Stage ID,ExecId,Unsupported Type,Unsupported Operator,Details,Stage Duration,App Duration,Action"
    )
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        execs = [item for plan in one.plans for item in flatten_spans(plan.execs) if not item.supported]
        placed: list[tuple[int, int, OperatorEstimate]] = []
        for stage in one.stages_before_removal:
            placed += [(stage.stage_id, stage.wall_time_ms, item) for item in execs if stage.stage_id in item.stages]
        placed += [(-1, 0, item) for item in execs if not item.stages]
        for number, (stage_id, wall_ms, item) in enumerate(placed):
            rows += _unsupported_exec_rows(one, number, stage_id, wall_ms, item)
    return tuple(head.split(",")), rows


def _unsupported_exec_rows(
    one: ApplicationEstimate, number: int, stage_id: int, wall_ms: int, item: OperatorEstimate
) -> list[tuple[Cell, ...]]:
    known, of_expressions = _unsupported_reasons(item)
    listed = [(item.kind, item.name, item.reason or known)]
    # Expressions inherit the operator's note, unless the tables have their own.
    inherited = of_expressions if not item.reason else "Unsupported"
    listed += [("Expr", found.name, found.reason or inherited) for found in item.unsupported]
    return [
        (
            _quote_text(one.log.app_id),
            item.sql_id,
            stage_id,
            QuotedCell(str(number)),
            QuotedCell(kind),
            _quote_text(name),
            _quote_text(why),
            wall_ms,
            one.estimate.duration_ms,
            QuotedCell(item.action),
        )
        for kind, name, why in listed
    ]


def _unsupported_reasons(item: OperatorEstimate) -> tuple[str, str]:
    """Why an operator is not supported, and what that makes of the expressions in it."""
    if item.udf:
        return "Contains UDF", "Is UDF"
    if item.dataset:
        return (
            ("Contains Dataset or RDD", "Is Dataset or RDD")
            if item.unsupported
            else ("Is Dataset or RDD", "Unsupported")
        )
    if item.unsupported:
        return "Contains unsupported expr", "Unsupported"
    if item.kind in ("ReadExec", "WriteExec"):
        return "Unsupported IO format", "Unsupported IO format"
    return "Unsupported", "Unsupported"


def _status_table(found: Sequence[ApplicationEstimate], unusable: Mapping[str, str]) -> Table:
    rows = [(one.log.where, "SUCCESS", one.log.app_id, "; ".join(one.warnings)) for one in found]
    rows += [(path, "FAILURE", "", reason) for path, reason in unusable.items()]
    head = ("Event Log", "Status", "AppID", "Description")
    return head, [tuple(_quote_text(cell) for cell in row) for row in rows]
