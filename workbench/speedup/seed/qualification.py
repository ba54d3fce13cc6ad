"""The qualification tool's files of v24.08: columns, formats and order as it writes them.

Where its order is that of a hash of whole rows (operators, the stages of a query with more than four of them) rows are
the same and come in another order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.errors import InputError
from workbench.eventlog.scrub import scrub
from workbench.files import write_text
from workbench.speedup.seed.estimate import ApplicationEstimate, QueryEstimate, estimate
from workbench.speedup.seed.execs import Exec
from workbench.speedup.seed.held import all_nodes
from workbench.speedup.seed.log import SeedLog, read
from workbench.speedup.seed.numbers import cut
from workbench.speedup.seed.profile_folder import text
from workbench.speedup.seed.profile_tables import Cell, Table, Text
from workbench.speedup.seed.reads import Read, is_rdd, nested_types, problems, reads_of
from workbench.speedup.seed.scala_order import immutable, mutable
from workbench.speedup.seed.stages import StageEstimate, flattened
from workbench.speedup.seed.support import Support
from workbench.speedup.seed.writes import format_of

FOLDER = NAME = "rapids_4_spark_qualification_output"
DEFAULT_FREQUENCY = 30
DESCRIPTION_CHARS = 100
MS_PER_MONTH = 1000.0 * 60 * 60 * 24 * 30
ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b", "\v": "\\v", "\a": "\\a"}


def qualify(paths: Sequence[str | Path], factors: Mapping[str, float]) -> list[ApplicationEstimate]:
    """Estimates of all applications in the logs, the most promising first.

    Raises
    ------
    InputError
        A log cannot be used, or is that of an accelerated run.
    """
    found = [estimate(log, factors) for path in paths for log in read(path, need_sql=False)]
    return sorted(found, key=_rank, reverse=True)


def _rank(one: ApplicationEstimate) -> tuple[str, float, float, int]:
    what = one.estimate
    return what.recommendation, what.speedup_ratio, what.saved_ms, one.log.start_ms + what.duration_ms


def write(found: Sequence[ApplicationEstimate], folder: str | Path) -> list[Path]:
    """Write the files into `folder/rapids_4_spark_qualification_output`; give back their paths.

    Raises
    ------
    InputError
        There are such files already.
    """
    target = Path(folder) / FOLDER
    if target.exists():
        raise InputError("there is a qualification output already", where=target, do="choose another folder")
    tables = {
        "": _applications(found),
        "_persql": _queries(found),
        "_execs": _execs(found),
        "_stages": _stages(found),
        "_unsupportedOperators": _unsupported(found),
        "_status": _status(found),
    }
    return [write_text(target / f"{NAME}{suffix}.csv", text(table)) for suffix, table in tables.items()]


def _text(words: str) -> Text:
    return Text(scrub(words))


def _applications(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App Name,App ID,Recommendation,Estimated GPU Speedup,Estimated GPU Duration,Estimated GPU Time Saved,"
        "SQL DF Duration,SQL Dataframe Task Duration,App Duration,GPU Opportunity,Executor CPU Time Percent,"
        "SQL Ids with Failures,Unsupported Read File Formats and Types,Unsupported Write Data Format,Complex Types,"
        "Nested Complex Types,Potential Problems,Longest SQL Duration,SQL Stage Durations Sum,"
        "NONSQL Task Duration Plus Overhead,Unsupported Task Duration,Supported SQL DF Task Duration,"
        "Task Speedup Factor,App Duration Estimated,Unsupported Execs,Unsupported Expressions,"
        "Estimated Job Frequency (monthly)"
    )
    often = frequencies(found)
    return tuple(head.split(",")), [_application(one, often[one.log.app_name]) for one in found]


def _application(one: ApplicationEstimate, frequency: int) -> tuple[Cell, ...]:
    what, log = one.estimate, one.log
    reads = [found for sql_id in sorted(log.queries) for found in reads_of(log.queries[sql_id], hive=log.hive)]
    complex_types, nested = nested_types(found.schema for found in reads)
    failed = immutable(str(sql_id) for sql_id in mutable(mutable(log.failures)))
    return (
        _text(log.app_name),
        _text(log.app_id),
        Text(what.recommendation),
        cut(what.speedup_ratio),
        cut(what.estimated_ms),
        cut(what.saved_ms),
        what.sql_ms,
        one.sql_task_ms,
        what.duration_ms,
        what.opportunity_ms,
        cut(one.cpu_percent),
        Text(",".join(failed)),
        _text(";".join(_unsupported_reads(reads))),
        _text(";".join(_unsupported_writes(log)).upper()),
        _text(";".join(complex_types)),
        _text(";".join(nested)),
        _text(":".join(_problems(log))),
        one.longest_query_ms,
        sum(stage.wall_time_ms for stage in one.stages),
        one.other_ms,
        one.unsupported_ms,
        one.supported_ms,
        cut(one.factor),
        log.end_is_estimated and what.duration_ms > 0,
        _text(_one_line(one.unsupported_execs)),
        _text(_one_line(one.unsupported_expressions)),
        frequency,
    )


def _one_line(names: Sequence[str]) -> str:
    return ";".join(names).strip().replace("\n", "").replace(",", ":")


def _unsupported_reads(reads: Sequence[Read]) -> list[str]:
    support = Support({})
    found: dict[str, list[str]] = {}
    for source in reads:
        if types := support.unsupported_types(source):
            found[source.data_format] = immutable([*found.get(source.data_format, []), *types])
    return [f"{name}[{':'.join(found[name]).replace(',', ':')}]" for name in mutable(found)]


def _unsupported_writes(log: SeedLog) -> list[str]:
    support = Support({})
    formats: dict[str, None] = {}
    for sql_id in sorted(log.queries):
        for node in all_nodes(log.queries[sql_id].nodes):
            if (found := format_of(node)) is not None:
                formats[found] = None
    lower = dict.fromkeys(name.lower().strip() for name in formats)
    return [name for name in lower if not support.write_supported(name)]


def _problems(log: SeedLog) -> list[str]:
    """Of queries that do not work on RDDs."""
    found: dict[int, list[str]] = {}
    for sql_id in sorted(log.queries):
        query = log.queries[sql_id]
        nodes = all_nodes(query.nodes)
        listed = problems(nodes, reads_of(query, hive=log.hive))
        if listed:
            found[sql_id] = [] if any(is_rdd(node) for node in nodes) else listed
    order = mutable(sql_id for sql_id in mutable(found) if found[sql_id])
    return immutable(name for sql_id in order for name in found[sql_id])


def frequencies(found: Sequence[ApplicationEstimate]) -> dict[str, int]:
    """Runs a month by application name: 30 for a single one, else what the logs' window comes to."""
    names = [one.log.app_name for one in found]
    start = min((one.log.start_ms for one in found), default=0)
    end = max((one.log.start_ms + one.estimate.duration_ms for one in found), default=0)
    months = (end - start) / MS_PER_MONTH if end > start else 1.0
    return {
        name: max(1, math.floor(names.count(name) / months + 0.5)) if names.count(name) > 1 else DEFAULT_FREQUENCY
        for name in names
    }


def _queries(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App Name,App ID,Root SQL ID,SQL ID,SQL Description,SQL DF Duration,GPU Opportunity,Estimated GPU Duration,"
        "Estimated GPU Speedup,Estimated GPU Time Saved,Recommendation"
    )
    rows = [(one.log, query) for one in found for query in one.queries]
    ordered = sorted(rows, key=lambda row: _query_rank(*row))[::-1]
    return tuple(head.split(",")), [_query(log, query) for log, query in ordered]


def _query_rank(log: SeedLog, query: QueryEstimate) -> tuple[str, float, float, int, str]:
    what = query.estimate
    return what.recommendation, what.speedup_ratio, what.saved_ms, what.duration_ms, log.app_id


def _query(log: SeedLog, found: QueryEstimate) -> tuple[Cell, ...]:
    what, query = found.estimate, found.query
    return (
        _text(log.app_name),
        _text(log.app_id),
        Text("" if query.root_id is None else str(query.root_id)),
        query.sql_id,
        _text(_described(query.description)),
        what.sql_ms,
        what.opportunity_ms,
        cut(what.estimated_ms),
        cut(what.speedup_ratio),
        cut(what.saved_ms),
        Text(what.recommendation),
    )


def _described(description: str) -> str:
    return "".join(ESCAPES.get(char, char) for char in description[:DESCRIPTION_CHARS]).strip()


def _execs(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,SQL ID,Exec Name,Expression Name,Task Speedup Factor,Exec Duration,SQL Node Id,Exec Is Supported,"
        "Exec Stages,Exec Children,Exec Children Node Ids,Exec Should Remove,Exec Should Ignore,Action"
    )
    rows: dict[tuple[Cell, ...], None] = {}
    for one in found:
        for plan in one.plans:
            for item in plan.execs:
                rows |= dict.fromkeys(_exec(one.log, each) for each in (*(item.children or []), item))
    return tuple(head.split(",")), list(rows)


def _exec(log: SeedLog, item: Exec) -> tuple[Cell, ...]:
    children = item.children or []
    return (
        _text(log.app_id),
        item.sql_id,
        _text(item.name),
        _text(item.expression),
        cut(item.factor),
        item.duration_ms or 0,
        item.node_id,
        item.supported,
        Text(":".join(map(str, item.stages))),
        _text(":".join(child.name for child in children)),
        Text(":".join(str(child.node_id) for child in children)),
        item.removed,
        item.ignored,
        Text(item.action),
    )


def _stages(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,Stage ID,Average Speedup Factor,Stage Task Duration,Unsupported Task Duration,Stage Estimated,"
        "Number of transitions from or to GPU"
    )
    return tuple(head.split(",")), [_stage(one.log, stage) for one in found for stage in one.stages]


def _stage(log: SeedLog, stage: StageEstimate) -> tuple[Cell, ...]:
    about = (_text(log.app_id), stage.stage_id, cut(stage.factor), stage.task_time_ms, stage.unsupported_ms)
    return (*about, stage.estimated, stage.transitions)


def _unsupported(found: Sequence[ApplicationEstimate]) -> Table:
    head = (
        "App ID,SQL ID,Stage ID,ExecId,Unsupported Type,Unsupported Operator,Details,Stage Duration,App Duration,Action"
    )
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        execs = [item for plan in one.plans for item in flattened(plan.execs) if not item.supported]
        placed: list[tuple[int, int, Exec]] = []
        for stage in one.stages_before_removal:
            placed += [(stage.stage_id, stage.wall_time_ms, item) for item in execs if stage.stage_id in item.stages]
        placed += [(-1, 0, item) for item in execs if not item.stages]
        for number, (stage_id, wall_ms, item) in enumerate(placed):
            rows += _unsupported_rows(one, number, stage_id, wall_ms, item)
    return tuple(head.split(",")), rows


def _unsupported_rows(
    one: ApplicationEstimate, number: int, stage_id: int, wall_ms: int, item: Exec
) -> list[tuple[Cell, ...]]:
    known, of_expressions = _reasons(item)
    listed = [(item.kind, item.name, item.reason or known)]
    # What is said of the operator is what its expressions inherit, unless the tables say something of their own.
    inherited = of_expressions if not item.reason else "Unsupported"
    listed += [("Expr", found.name, found.reason or inherited) for found in item.unsupported]
    return [
        (
            _text(one.log.app_id),
            item.sql_id,
            stage_id,
            Text(str(number)),
            Text(kind),
            _text(name),
            _text(why),
            wall_ms,
            one.estimate.duration_ms,
            Text(item.action),
        )
        for kind, name, why in listed
    ]


def _reasons(item: Exec) -> tuple[str, str]:
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


def _status(found: Sequence[ApplicationEstimate]) -> Table:
    head = ("Event Log", "Status", "AppID", "Description")
    return head, [
        (_text(one.log.where), Text("SUCCESS"), _text(one.log.app_id), _text("; ".join(one.warnings))) for one in found
    ]
