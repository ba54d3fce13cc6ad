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
from workbench.eventlog.log_redaction import remove_secrets
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
from workbench.speedup.compat_rapids_tools.seed_log import SeedLog, explain_error, read_seed_logs
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
    estimates = []
    for log in list_log_candidates(paths):
        try:
            estimates += [
                estimate_application(application_log, factors)
                for application_log in read_seed_logs(log.path, need_sql=False)
            ]
        except InputError as error:
            if unusable is None:
                raise
            unusable[remove_secrets(log.path)] = explain_error(error)
    return sorted(estimates, key=_application_rank, reverse=True)


def _application_rank(app: ApplicationEstimate) -> tuple[str, float, float, int]:
    estimate = app.estimate
    return estimate.recommendation, estimate.speedup_ratio, estimate.saved_ms, app.log.start_ms + estimate.duration_ms


def write_qualification(
    applications: Sequence[ApplicationEstimate], folder: str | Path, *, unusable: Mapping[str, str] | None = None
) -> list[Path]:
    """Write the files into `folder/rapids_4_spark_qualification_output`; give back their paths.

    Logs that are `unusable` have a row with the reason in the status file.
    """
    target = Path(folder) / FOLDER
    if target.exists():
        raise InputError("there is a qualification output already", where=target, do="choose another folder")
    tables = {
        "": _application_table(applications),
        "_persql": _query_table(applications),
        "_execs": _exec_table(applications),
        "_stages": _stage_table(applications),
        "_unsupportedOperators": _unsupported_table(applications),
        "_status": _status_table(applications, unusable or {}),
    }
    return [write_text(target / f"{NAME}{suffix}.csv", format_csv_table(table)) for suffix, table in tables.items()]


def _quote_text(words: str) -> QuotedCell:
    return QuotedCell(remove_secrets(words))


def _application_table(applications: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App Name,App ID,Recommendation,Estimated GPU Speedup,Estimated GPU Duration,Estimated GPU Time Saved,"
        "SQL DF Duration,SQL Dataframe Task Duration,App Duration,GPU Opportunity,Executor CPU Time Percent,"
        "SQL Ids with Failures,Unsupported Read File Formats and Types,Unsupported Write Data Format,Complex Types,"
        "Nested Complex Types,Potential Problems,Longest SQL Duration,SQL Stage Durations Sum,"
        "NONSQL Task Duration Plus Overhead,Unsupported Task Duration,Supported SQL DF Task Duration,"
        "Task Speedup Factor,App Duration Estimated,Unsupported Execs,Unsupported Expressions,"
        "Estimated Job Frequency (monthly)"
    )
    often = estimate_monthly_runs(applications)
    return tuple(head.split(",")), [_application_cells(app, often[app.log.app_name]) for app in applications]


def _application_cells(app: ApplicationEstimate, frequency: int) -> tuple[Cell, ...]:
    """Cells of an application's row in the qualification summary, in the original's order of columns."""
    estimate, log = app.estimate, app.log
    reads = [read for sql_id in sorted(log.queries) for read in list_query_reads(log.queries[sql_id], hive=log.hive)]
    complex_types, nested = find_complex_types(read.schema for read in reads)
    failed = immutable_order(str(sql_id) for sql_id in mutable_order(mutable_order(log.failures)))
    return (
        _quote_text(log.app_name),
        _quote_text(log.app_id),
        QuotedCell(estimate.recommendation),
        truncate_decimals(estimate.speedup_ratio),
        truncate_decimals(estimate.estimated_ms),
        truncate_decimals(estimate.saved_ms),
        estimate.sql_ms,
        app.sql_task_ms,
        estimate.duration_ms,
        estimate.opportunity_ms,
        truncate_decimals(app.cpu_percent),
        QuotedCell(",".join(failed)),
        _quote_text(";".join(_list_unsupported_reads(reads))),
        _quote_text(";".join(_list_unsupported_writes(log)).upper()),
        _quote_text(";".join(complex_types)),
        _quote_text(";".join(nested)),
        _quote_text(":".join(_list_log_problems(log))),
        app.longest_query_ms,
        sum(stage.wall_time_ms for stage in app.stages),
        app.other_ms,
        app.unsupported_ms,
        app.supported_ms,
        truncate_decimals(app.factor),
        log.end_is_estimated and estimate.duration_ms > 0,
        _quote_text(_join_names(app.unsupported_execs)),
        _quote_text(_join_names(app.unsupported_expressions)),
        frequency,
    )


def _join_names(names: Sequence[str]) -> str:
    return ";".join(names).strip().replace("\n", "").replace(",", ":")


def _list_unsupported_reads(reads: Sequence[Read]) -> list[str]:
    support = SupportTables({})
    format_types: dict[str, list[str]] = {}
    for source in reads:
        if types := support.list_unsupported_types(source):
            format_types[source.data_format] = immutable_order([*format_types.get(source.data_format, []), *types])
    return [f"{name}[{':'.join(format_types[name]).replace(',', ':')}]" for name in mutable_order(format_types)]


def _list_unsupported_writes(log: SeedLog) -> list[str]:
    """List the file formats that the application writes and the accelerator cannot."""
    support = SupportTables({})
    formats: dict[str, None] = {}
    for sql_id in sorted(log.queries):
        for node in list_nodes_in_order(log.queries[sql_id].nodes):
            if (data_format := get_write_format(node)) is not None:
                formats[data_format] = None
    lower = dict.fromkeys(name.lower().strip() for name in formats)
    return [name for name in lower if not support.is_write_supported(name)]


def _list_log_problems(log: SeedLog) -> list[str]:
    """List the problems of queries that do not work on RDDs."""
    problems: dict[int, list[str]] = {}
    for sql_id in sorted(log.queries):
        query = log.queries[sql_id]
        nodes = list_nodes_in_order(query.nodes)
        listed = list_problems(nodes, list_query_reads(query, hive=log.hive))
        if listed:
            problems[sql_id] = [] if any(is_rdd(node) for node in nodes) else listed
    order = mutable_order(sql_id for sql_id in mutable_order(problems) if problems[sql_id])
    return immutable_order(name for sql_id in order for name in problems[sql_id])


def estimate_monthly_runs(applications: Sequence[ApplicationEstimate]) -> dict[str, int]:
    """Runs a month by application name: 30 for a single one, else what the logs' window comes to."""
    names = [app.log.app_name for app in applications]
    start = min((app.log.start_ms for app in applications), default=0)
    end = max((app.log.start_ms + app.estimate.duration_ms for app in applications), default=0)
    months = (end - start) / MS_PER_MONTH if end > start else 1.0
    return {
        name: max(1, math.floor(names.count(name) / months + 0.5)) if names.count(name) > 1 else DEFAULT_FREQUENCY
        for name in names
    }


def _query_table(applications: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App Name,App ID,Root SQL ID,SQL ID,SQL Description,SQL DF Duration,GPU Opportunity,Estimated GPU Duration,"
        "Estimated GPU Speedup,Estimated GPU Time Saved,Recommendation"
    )
    rows = [(app.log, query) for app in applications for query in app.queries]
    ordered = sorted(rows, key=lambda row: _query_rank(*row))[::-1]
    return tuple(head.split(",")), [_query_cells(log, query) for log, query in ordered]


def _query_rank(log: SeedLog, query: QueryEstimate) -> tuple[str, float, float, int, str]:
    estimate = query.estimate
    return estimate.recommendation, estimate.speedup_ratio, estimate.saved_ms, estimate.duration_ms, log.app_id


def _query_cells(log: SeedLog, query_estimate: QueryEstimate) -> tuple[Cell, ...]:
    """Cells of a query's row, in the original's order of columns."""
    estimate, query = query_estimate.estimate, query_estimate.query
    return (
        _quote_text(log.app_name),
        _quote_text(log.app_id),
        QuotedCell("" if query.root_id is None else str(query.root_id)),
        query.sql_id,
        _quote_text(_format_description(query.description)),
        estimate.sql_ms,
        estimate.opportunity_ms,
        truncate_decimals(estimate.estimated_ms),
        truncate_decimals(estimate.speedup_ratio),
        truncate_decimals(estimate.saved_ms),
        QuotedCell(estimate.recommendation),
    )


def _format_description(description: str) -> str:
    return "".join(ESCAPES.get(char, char) for char in description[:DESCRIPTION_CHARS]).strip()


def _exec_table(applications: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,SQL ID,Exec Name,Expression Name,Task Speedup Factor,Exec Duration,SQL Node Id,Exec Is Supported,"
        "Exec Stages,Exec Children,Exec Children Node Ids,Exec Should Remove,Exec Should Ignore,Action"
    )
    rows: dict[tuple[Cell, ...], None] = {}
    for app in applications:
        for plan in app.plans:
            for item in plan.execs:
                rows |= dict.fromkeys(_exec_cells(app.log, each) for each in (*(item.children or []), item))
    return tuple(head.split(",")), list(rows)


def _exec_cells(log: SeedLog, item: OperatorEstimate) -> tuple[Cell, ...]:
    """Cells of an operator's row, in the original's order of columns."""
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


def _stage_table(applications: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,Stage ID,Average Speedup Factor,Stage Task Duration,Unsupported Task Duration,Stage Estimated,"
        "Number of transitions from or to GPU"
    )
    return tuple(head.split(",")), [_stage_cells(app.log, stage) for app in applications for stage in app.stages]


def _stage_cells(log: SeedLog, stage: StageEstimate) -> tuple[Cell, ...]:
    about = (
        _quote_text(log.app_id),
        stage.stage_id,
        truncate_decimals(stage.factor),
        stage.task_time_ms,
        stage.unsupported_ms,
    )
    return (*about, stage.estimated, stage.transitions)


def _unsupported_table(applications: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,SQL ID,Stage ID,ExecId,Unsupported Type,Unsupported Operator,Details,Stage Duration,App Duration,Action"
    )
    rows: list[tuple[Cell, ...]] = []
    for app in applications:
        execs = [item for plan in app.plans for item in flatten_spans(plan.execs) if not item.supported]
        placed: list[tuple[int, int, OperatorEstimate]] = []
        for stage in app.stages_before_removal:
            placed += [(stage.stage_id, stage.wall_time_ms, item) for item in execs if stage.stage_id in item.stages]
        placed += [(-1, 0, item) for item in execs if not item.stages]
        for number, (stage_id, wall_ms, item) in enumerate(placed):
            rows += _unsupported_exec_rows(app, number, stage_id, wall_ms, item)
    return tuple(head.split(",")), rows


def _unsupported_exec_rows(
    app: ApplicationEstimate, number: int, stage_id: int, wall_ms: int, item: OperatorEstimate
) -> list[tuple[Cell, ...]]:
    """Rows of an unsupported operator and of its unsupported expressions in one stage; `wall_ms`: the stage's time."""
    default_reason, of_expressions = _unsupported_reasons(item)
    listed = [(item.kind, item.name, item.reason or default_reason)]
    # Expressions inherit the operator's note, unless the tables have their own.
    inherited = of_expressions if not item.reason else "Unsupported"
    listed += [("Expr", expression.name, expression.reason or inherited) for expression in item.unsupported]
    return [
        (
            _quote_text(app.log.app_id),
            item.sql_id,
            stage_id,
            QuotedCell(str(number)),
            QuotedCell(kind),
            _quote_text(name),
            _quote_text(reason),
            wall_ms,
            app.estimate.duration_ms,
            QuotedCell(item.action),
        )
        for kind, name, reason in listed
    ]


def _unsupported_reasons(item: OperatorEstimate) -> tuple[str, str]:
    """Reason why an operator is not supported, and the reason that its expressions then get."""
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


def _status_table(applications: Sequence[ApplicationEstimate], unusable: Mapping[str, str]) -> Table:
    rows = [(app.log.where, "SUCCESS", app.log.app_id, "; ".join(app.warnings)) for app in applications]
    rows += [(path, "FAILURE", "", reason) for path, reason in unusable.items()]
    head = ("Event Log", "Status", "AppID", "Description")
    return head, [tuple(_quote_text(cell) for cell in row) for row in rows]
