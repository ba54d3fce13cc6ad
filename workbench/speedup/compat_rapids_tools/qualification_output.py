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
from workbench.speedup.compat_rapids_tools.profile_tables import Cell, Columns, Table, build_table
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

    def rank(app: ApplicationEstimate) -> tuple[str, float, float, int]:
        total = app.estimate
        return total.recommendation, total.speedup_ratio, total.saved_ms, app.log.start_ms + total.duration_ms

    return sorted(estimates, key=rank, reverse=True)


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


def _application_table(applications: Sequence[ApplicationEstimate]) -> Table:
    frequency = estimate_monthly_runs(applications)
    reads = {
        id(app): [
            read
            for sql_id in sorted(app.log.queries)
            for read in list_query_reads(app.log.queries[sql_id], hive=app.log.hive)
        ]
        for app in applications
    }
    types = {key: find_complex_types(read.schema for read in found) for key, found in reads.items()}
    columns: Columns[ApplicationEstimate] = (
        ("App Name", lambda app: remove_secrets(app.log.app_name)),
        ("App ID", lambda app: remove_secrets(app.log.app_id)),
        ("Recommendation", lambda app: app.estimate.recommendation),
        ("Estimated GPU Speedup", lambda app: truncate_decimals(app.estimate.speedup_ratio)),
        ("Estimated GPU Duration", lambda app: truncate_decimals(app.estimate.estimated_ms)),
        ("Estimated GPU Time Saved", lambda app: truncate_decimals(app.estimate.saved_ms)),
        ("SQL DF Duration", lambda app: app.estimate.sql_ms),
        ("SQL Dataframe Task Duration", lambda app: app.sql_task_ms),
        ("App Duration", lambda app: app.estimate.duration_ms),
        ("GPU Opportunity", lambda app: app.estimate.opportunity_ms),
        ("Executor CPU Time Percent", lambda app: truncate_decimals(app.cpu_percent)),
        (
            "SQL Ids with Failures",
            lambda app: ",".join(immutable_order(map(str, mutable_order(mutable_order(app.log.failures))))),
        ),
        (
            "Unsupported Read File Formats and Types",
            lambda app: remove_secrets(";".join(_list_unsupported_reads(reads[id(app)]))),
        ),
        (
            "Unsupported Write Data Format",
            lambda app: remove_secrets(";".join(_list_unsupported_writes(app.log)).upper()),
        ),
        ("Complex Types", lambda app: remove_secrets(";".join(types[id(app)][0]))),
        ("Nested Complex Types", lambda app: remove_secrets(";".join(types[id(app)][1]))),
        ("Potential Problems", lambda app: remove_secrets(":".join(_list_log_problems(app.log)))),
        ("Longest SQL Duration", lambda app: app.longest_query_ms),
        ("SQL Stage Durations Sum", lambda app: sum(stage.wall_time_ms for stage in app.stages)),
        ("NONSQL Task Duration Plus Overhead", lambda app: app.other_ms),
        ("Unsupported Task Duration", lambda app: app.unsupported_ms),
        ("Supported SQL DF Task Duration", lambda app: app.supported_ms),
        ("Task Speedup Factor", lambda app: truncate_decimals(app.factor)),
        ("App Duration Estimated", lambda app: app.log.end_is_estimated and app.estimate.duration_ms > 0),
        ("Unsupported Execs", lambda app: _join_names(app.unsupported_execs)),
        ("Unsupported Expressions", lambda app: _join_names(app.unsupported_expressions)),
        ("Estimated Job Frequency (monthly)", lambda app: frequency[app.log.app_name]),
    )
    return build_table(columns, applications)


def _join_names(names: Sequence[str]) -> str:
    return remove_secrets(";".join(names).strip().replace("\n", "").replace(",", ":"))


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
    columns: Columns[tuple[SeedLog, QueryEstimate]] = (
        ("App Name", lambda row: remove_secrets(row[0].app_name)),
        ("App ID", lambda row: remove_secrets(row[0].app_id)),
        ("Root SQL ID", lambda row: "" if row[1].query.root_id is None else str(row[1].query.root_id)),
        ("SQL ID", lambda row: row[1].query.sql_id),
        ("SQL Description", lambda row: _format_description(row[1].query.description)),
        ("SQL DF Duration", lambda row: row[1].estimate.sql_ms),
        ("GPU Opportunity", lambda row: row[1].estimate.opportunity_ms),
        ("Estimated GPU Duration", lambda row: truncate_decimals(row[1].estimate.estimated_ms)),
        ("Estimated GPU Speedup", lambda row: truncate_decimals(row[1].estimate.speedup_ratio)),
        ("Estimated GPU Time Saved", lambda row: truncate_decimals(row[1].estimate.saved_ms)),
        ("Recommendation", lambda row: row[1].estimate.recommendation),
    )

    def rank(row: tuple[SeedLog, QueryEstimate]) -> tuple[str, float, float, int, str]:
        estimate = row[1].estimate
        return (
            estimate.recommendation,
            estimate.speedup_ratio,
            estimate.saved_ms,
            estimate.duration_ms,
            row[0].app_id,
        )

    rows = [(app.log, query) for app in applications for query in app.queries]
    return build_table(columns, sorted(rows, key=rank)[::-1])


def _format_description(description: str) -> str:
    escaped = "".join(ESCAPES.get(char, char) for char in description[:DESCRIPTION_CHARS])
    return remove_secrets(escaped.strip())


def _exec_table(applications: Sequence[ApplicationEstimate]) -> Table:
    columns: Columns[tuple[SeedLog, OperatorEstimate]] = (
        ("App ID", lambda row: remove_secrets(row[0].app_id)),
        ("SQL ID", lambda row: row[1].sql_id),
        ("Exec Name", lambda row: remove_secrets(row[1].name)),
        ("Expression Name", lambda row: remove_secrets(row[1].expression)),
        ("Task Speedup Factor", lambda row: truncate_decimals(row[1].factor)),
        ("Exec Duration", lambda row: row[1].duration_ms or 0),
        ("SQL Node Id", lambda row: row[1].node_id),
        ("Exec Is Supported", lambda row: row[1].supported),
        ("Exec Stages", lambda row: ":".join(map(str, row[1].stages))),
        ("Exec Children", lambda row: remove_secrets(":".join(child.name for child in row[1].children or []))),
        ("Exec Children Node Ids", lambda row: ":".join(str(child.node_id) for child in row[1].children or [])),
        ("Exec Should Remove", lambda row: row[1].removed),
        ("Exec Should Ignore", lambda row: row[1].ignored),
        ("Action", lambda row: row[1].action),
    )
    rows = [
        (app.log, each)
        for app in applications
        for plan in app.plans
        for item in plan.execs
        for each in (*(item.children or []), item)
    ]
    head, cells = build_table(columns, rows)
    return head, list(dict.fromkeys(cells))


def _stage_table(applications: Sequence[ApplicationEstimate]) -> Table:
    columns: Columns[tuple[SeedLog, StageEstimate]] = (
        ("App ID", lambda row: remove_secrets(row[0].app_id)),
        ("Stage ID", lambda row: row[1].stage_id),
        ("Average Speedup Factor", lambda row: truncate_decimals(row[1].factor)),
        ("Stage Task Duration", lambda row: row[1].task_time_ms),
        ("Unsupported Task Duration", lambda row: row[1].unsupported_ms),
        ("Stage Estimated", lambda row: row[1].estimated),
        ("Number of transitions from or to GPU", lambda row: row[1].transitions),
    )
    return build_table(columns, [(app.log, stage) for app in applications for stage in app.stages])


def _unsupported_table(applications: Sequence[ApplicationEstimate]) -> Table:
    """Unsupported operators, each with its unsupported expressions, in every stage that they work in."""
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
            # Reason why an operator is not supported, and the reason that its expressions then get.
            if item.udf:
                default_reason, of_expressions = "Contains UDF", "Is UDF"
            elif item.dataset:
                contains = ("Contains Dataset or RDD", "Is Dataset or RDD")
                default_reason, of_expressions = contains if item.unsupported else ("Is Dataset or RDD", "Unsupported")
            elif item.unsupported:
                default_reason, of_expressions = "Contains unsupported expr", "Unsupported"
            elif item.kind in ("ReadExec", "WriteExec"):
                default_reason, of_expressions = "Unsupported IO format", "Unsupported IO format"
            else:
                default_reason, of_expressions = "Unsupported", "Unsupported"
            listed = [(item.kind, item.name, item.reason or default_reason)]
            # Expressions inherit the operator's note, unless the tables have their own.
            inherited = of_expressions if not item.reason else "Unsupported"
            listed += [("Expr", expression.name, expression.reason or inherited) for expression in item.unsupported]
            about = (remove_secrets(app.log.app_id), item.sql_id, stage_id, str(number))
            times = (wall_ms, app.estimate.duration_ms)
            rows += [
                (*about, kind, remove_secrets(name), remove_secrets(reason), *times, item.action)
                for kind, name, reason in listed
            ]
    return tuple(head.split(",")), rows


def _status_table(applications: Sequence[ApplicationEstimate], unusable: Mapping[str, str]) -> Table:
    rows = [(app.log.where, "SUCCESS", app.log.app_id, "; ".join(app.warnings)) for app in applications]
    rows += [(path, "FAILURE", "", reason) for path, reason in unusable.items()]
    head = ("Event Log", "Status", "AppID", "Description")
    return head, [tuple(map(remove_secrets, row)) for row in rows]
