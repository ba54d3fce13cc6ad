"""Comparability of two sides: differences other than the engine in settings, data and runs."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from workbench.core.errors import InputError
from workbench.core.formats import format_bytes, format_items, format_number
from workbench.core.host import count_cores
from workbench.core.tables import Table
from workbench.eventlog import tables as log_tables
from workbench.eventlog.completeness import describe_holes, select_harmful
from workbench.eventlog.engine_detection import find_loaded_engine
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.sources import list_logs
from workbench.speedup import engines
from workbench.speedup.attribution.application_time import (
    UNKNOWN,
    SessionSettings,
    read_properties,
    read_session_settings,
)
from workbench.speedup.attribution.time_pieces import Measured, measure_log_times
from workbench.speedup.fleet.fleet_logs import FactsCache, open_default_cache
from workbench.speedup.fleet.fleet_reader import open_process_pool
from workbench.speedup.recording.recording_plan import FACTS_FOLDER, Recording
from workbench.speedup.tables import COMPARABILITY, EXECUTIONS, PIECES

Severity = Literal["ok", "warning", "invalid"]
# In the order in which they are shown.
SEVERITIES: dict[Severity, int] = {"invalid": 0, "warning": 1, "ok": 2}
# A larger relative difference in rows and files means different data.
DATA_TOLERANCE = 0.01
MAX_HOLES = 3
# Metrics of a scan that tell the size of its data.
SCAN_METRICS = ("number of output rows", "size of files read")
# A side with this share of accelerated operators counts as accelerated.
ACCELERATED_SHARE = 0.05
# Setting, its value, and why a difference matters.
_SETTINGS: tuple[tuple[str, Callable[[SessionSettings], str], str], ...] = (
    ("task slots", lambda s: _format_count(s.task_slots), "times scale with the number of tasks that run in parallel"),
    (
        "executors",
        lambda s: _format_count(s.n_executors),
        "the same slots on more executors share less memory and shuffle data",
    ),
    ("executor memory", lambda s: s.executor_memory, "heap, off-heap and overhead: less memory spills more"),
    (
        "driver memory",
        lambda s: s.driver_memory,
        "broadcasts are built there, and on a local master all tasks run there",
    ),
    ("master", lambda s: s.master, "another master is another machine"),
    ("shuffle partitions", lambda s: s.shuffle_partitions, "sets the number and size of tasks after a shuffle"),
    ("broadcast threshold", lambda s: s.broadcast_threshold, "decides which joins are broadcast"),
    ("adaptive execution", lambda s: s.adaptive, "changes plans and task numbers while a query runs"),
    ("Spark version", lambda s: s.spark_version, "the optimizer and the operators differ between versions"),
    ("Java version", lambda s: s.java_version, "the compiler and the garbage collector differ between versions"),
    ("file cache", lambda s: s.file_cache, "a cache of input files speeds up later runs on that side only"),
)

# Below this number, starting processes takes longer than reading in one.
MIN_LOGS_FOR_POOL = 4
# What the comparison of the sides needs of a log, once its times are measured.
KEPT_TABLES = (
    log_tables.LOGS,
    log_tables.APPLICATIONS,
    log_tables.ENVIRONMENT,
    log_tables.EXECUTORS,
    log_tables.SQL_EXECUTIONS,
    log_tables.PLAN_NODES,
    log_tables.NODE_METRICS,
    log_tables.JOBS,
)
CACHED_TABLES = (*KEPT_TABLES, EXECUTIONS, PIECES)
SessionFacts = tuple[EventLogFacts, Measured]


# Rows and bytes of files of a table's largest scan; null where no metric tells them.
ScanSize = tuple[float | None, float | None]


@dataclass(frozen=True)
class _Side:
    label: str
    facts: Sequence[EventLogFacts]
    settings: list[SessionSettings]
    engines: list[str]
    accelerated_share: float
    is_accelerator_loaded: bool


def check_comparability(
    baseline: Sequence[EventLogFacts],
    candidate: Sequence[EventLogFacts],
    *,
    named: bool = False,
    first_runs: bool = False,
    most_runs: tuple[int, int] | None = None,
) -> pl.DataFrame:
    """Differences between the sides other than the engine, and whether they invalidate the comparison.

    `named`: Whether the user named the sides. If not, an accelerated baseline with a plain candidate counts as
    swapped. `most_runs`: Most runs of a query in a session of each side; null: by the descriptions of its queries.

    Returns: Table `COMPARABILITY`, one row per property, invalid ones first, then warnings.

    Invalid: different data (rows and files of the same tables differ by more than 1 %), logs with holes, an application
    on both sides, sessions of one side on different engines, sides that look swapped, and a side on which every query
    ran only once (all runs are cold) unless `first_runs` are compared. Everything else is a warning. Different task
    slots are a warning, too: comparing machines of different size is legitimate, but the factors then include the
    machines.
    Off-heap memory counts as memory, because accelerators use it.

    Settings are those that the driver started with; later changes by SET are not visible here.
    """
    for label, facts in (("baseline", baseline), ("candidate", candidate)):
        if not facts:
            raise InputError("a side has no event log", where=label, do="give at least one log for each side")
    sides = _build_side("baseline", baseline), _build_side("candidate", candidate)
    rows = [
        _compare_applications(*sides),
        _compare_engines(*sides),
        _compare_acceleration(*sides, named=named),
        _compare_data(*sides),
        _compare_holes(*sides),
        _compare_warm_runs(most_runs or _count_most_runs(*sides), first_runs=first_runs),
        *(_compare_setting(name, value, reason, *sides) for name, value, reason in _SETTINGS),
    ]
    return COMPARABILITY.frame(sorted(rows, key=lambda row: SEVERITIES[row["severity"]]))


def list_invalid_reasons(comparability: pl.DataFrame) -> tuple[str, ...]:
    """List the reasons why two sides cannot be compared; empty when they can. `comparability`: Table COMPARABILITY.

    >>> rows = {"property": ["data", "cores"], "severity": ["invalid", "ok"], "why": ["other tables", "equal"]}
    >>> list_invalid_reasons(pl.DataFrame(rows))
    ('data: other tables',)
    """
    wrong = comparability.filter(pl.col("severity") == "invalid")
    return tuple(f"{name}: {reason}" for name, reason in wrong.select("property", "why").iter_rows())


def _build_side(label: str, facts: Sequence[EventLogFacts]) -> _Side:
    # Share of accelerated operators among those that do work.
    plain = accelerated = 0
    for log_facts in facts:
        names = log_facts.plan_nodes.filter(pl.col("is_final")).group_by("node_name").len()
        for name, count in names.iter_rows():
            operator = engines.classify_operator(name)
            if operator.kind == "none":
                continue
            plain += count * (not operator.accelerated)
            accelerated += count * operator.accelerated
    share = accelerated / (plain + accelerated) if plain + accelerated else 0.0
    return _Side(
        label,
        facts,
        [read_session_settings(log_facts, log_id=log_facts.logs["log_id"][0]) for log_facts in facts],
        sorted({engine for log_facts in facts for engine in log_facts.applications["engine"]}),
        share,
        any(
            find_loaded_engine(read_properties(log_facts, log_facts.logs["log_id"][0], "spark")) for log_facts in facts
        ),
    )


def _build_row(name: str, texts: Sequence[str], severity: Severity, reason: str) -> dict[str, Any]:
    baseline, candidate = texts
    return {"property": name, "baseline": baseline, "candidate": candidate, "severity": severity, "why": reason}


def _compare_setting(
    name: str, value: Callable[[SessionSettings], str], reason: str, baseline: _Side, candidate: _Side
) -> dict[str, Any]:
    """Row of table COMPARABILITY for one setting of both sides; a difference is a warning.

    `value` reads the setting from a session; `reason` says why it matters.
    """
    values = {
        side.label: list(dict.fromkeys(value(settings) for settings in side.settings)) for side in (baseline, candidate)
    }
    texts = [" / ".join(side_values) for side_values in values.values()]
    if uneven := [label for label, side_values in values.items() if len(side_values) > 1]:
        return _build_row(name, texts, "warning", f"sessions of the {' and the '.join(uneven)} differ; {reason}")
    return _build_row(name, texts, "ok" if len(set(texts)) == 1 else "warning", reason)


def _format_count(value: int | None) -> str:
    return UNKNOWN if value is None else format_number(value)


def _compare_applications(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    """Row that tells whether both sides are separate applications, and have two sessions or more each."""
    both = {app_id for app_id, _ in _application_ids(baseline) & _application_ids(candidate)}
    texts = [f"{len(side.facts)} session(s)" for side in (baseline, candidate)]
    if both:
        return _build_row("applications", texts, "invalid", f"the same application is on both sides: {', '.join(both)}")
    if min(len(baseline.facts), len(candidate.facts)) < 2:
        return _build_row("applications", texts, "warning", "one session on a side: no interval")
    return _build_row("applications", texts, "ok", "each session is a fresh driver")


def _application_ids(side: _Side) -> set[tuple[str, int | None]]:
    """Ids of applications with their start times, which tell apart applications with one id."""
    ids: set[tuple[str, int | None]] = set()
    for log_facts in side.facts:
        ids |= set(log_facts.applications.drop_nulls("app_id").select("app_id", "start_time_ms").iter_rows())
    return ids


def _compare_engines(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    texts = [" / ".join(side.engines) for side in (baseline, candidate)]
    if mixed := [side.label for side in (baseline, candidate) if len(side.engines) > 1]:
        return _build_row(
            "engine", texts, "invalid", f"sessions of the {' and the '.join(mixed)} ran on different engines"
        )
    return _build_row("engine", texts, "ok", "the subject of the comparison")


def _compare_acceleration(baseline: _Side, candidate: _Side, *, named: bool) -> dict[str, Any]:
    """Row that tells the share of accelerated operators on each side; invalid if the sides look swapped.

    `named`: The user named the sides, so that any order is wanted.
    """
    name = "accelerated operators"
    texts = [f"{100 * side.accelerated_share:.0f} %" for side in (baseline, candidate)]
    plain = [side for side in (baseline, candidate) if side.accelerated_share < ACCELERATED_SHARE]
    if [side.label for side in plain] == ["candidate"]:
        if named:
            return _build_row(name, texts, "ok", "the baseline is the accelerated side, as named")
        return _build_row(
            name,
            texts,
            "invalid",
            "the two sides look swapped: the baseline ran on an accelerator, the candidate did not; swap the logs, or "
            "name the sides with --baseline and --candidate",
        )
    if idle := [side.label for side in plain if side.engines != ["spark"] or side.is_accelerator_loaded]:
        return _build_row(
            name, texts, "warning", f"the accelerator of the {' and the '.join(idle)} was enabled but ran no operator"
        )
    return _build_row(name, texts, "ok", "share of the plans' operators that ran on an accelerator")


def _compare_data(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    """Compare the tables by rows and by file sizes; the data differ only if both do.

    Filters pushed into the files change the rows, and another compression changes the file sizes.
    """
    queries = _list_query_descriptions(baseline) & _list_query_descriptions(candidate)
    baseline_sizes = _measure_scanned_tables(baseline.facts, queries)
    candidate_sizes = _measure_scanned_tables(candidate.facts, queries)
    common = sorted(baseline_sizes.keys() & candidate_sizes.keys())
    texts = []
    for sizes in (baseline_sizes, candidate_sizes):
        # Rows and bytes of the common tables; of all, without common ones.
        shown = [sizes[table] for table in common or sorted(sizes)]
        n_rows = sum(rows or 0 for rows, _ in shown)
        n_bytes = sum(file_bytes or 0 for _, file_bytes in shown)
        data = f"{len(shown)} table(s), {format_number(round(n_rows))} rows, {format_bytes(n_bytes)}"
        texts.append(data)
    if not common:
        return _build_row(
            "data", texts, "warning", "no table is scanned on both sides, so their data cannot be compared"
        )
    different, layout = [], []
    for table in common:
        rows_differ, files_differ = map(_differs_beyond_tolerance, baseline_sizes[table], candidate_sizes[table])
        if rows_differ and files_differ is not False:
            different.append(table)
        elif files_differ:
            layout.append(table)
    if different:
        return _build_row("data", texts, "invalid", f"the sides read different data: {', '.join(different[:5])}")
    if layout:
        return _build_row("data", texts, "warning", f"the same rows in different files: {', '.join(layout[:5])}")
    missing = sorted(baseline_sizes.keys() ^ candidate_sizes.keys())
    if missing:
        return _build_row("data", texts, "warning", f"tables read on one side only: {', '.join(missing[:5])}")
    return _build_row("data", texts, "ok", "rows and files of the largest scan of each table agree within 1 %")


def _compare_holes(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    """Row that tells which logs are incomplete: only the rest of them is compared."""
    texts, sentences = [], dict[str, None]()
    for side in (baseline, candidate):
        damaged_logs = _list_holes(side.facts)
        texts.append(f"{len(damaged_logs)} of {len(side.facts)} log(s)")
        for log_holes in damaged_logs:
            sentences |= dict.fromkeys(log_holes)
    if sentences:
        return _build_row("logs with holes", texts, "invalid", format_items(list(sentences), MAX_HOLES))
    return _build_row("logs with holes", texts, "ok", "times would lack the parts that the log lacks")


def _list_holes(facts: Sequence[EventLogFacts]) -> list[list[str]]:
    """List what is missing from each log that is not whole."""
    log_holes = []
    for log_facts in facts:
        log = log_facts.logs.row(0, named=True)
        holes = describe_holes(select_harmful(log_facts.completeness))
        holes += [log["fault"]] if log["fault"] else []
        holes += [f"{log['n_bad_lines']:,} lines could not be read"] if log["n_bad_lines"] else []
        log_holes.append(holes)
    return [holes for holes in log_holes if holes]


def _differs_beyond_tolerance(first: float | None, second: float | None) -> bool | None:
    """Whether two sizes differ; null where one of them is unknown."""
    if not first or not second:
        return None
    return abs(first - second) / max(first, second) > DATA_TOLERANCE


def _list_query_descriptions(side: _Side) -> set[str | None]:
    return {text for log_facts in side.facts for text in log_facts.sql_executions["description"]}


def _measure_scanned_tables(facts: Sequence[EventLogFacts], queries: set[str | None]) -> dict[str, ScanSize]:
    """Rows and file bytes of the largest scan of each table in these queries, over all sessions."""
    sizes: dict[str, ScanSize] = {}
    for log_facts in facts:
        ran = log_facts.sql_executions.filter(
            pl.col("description").is_in([text for text in queries if text is not None])
        )
        scanning = [name for name in log_facts.plan_nodes["node_name"].unique() if _is_scan(name)]
        scans = (
            log_facts.plan_nodes.filter(pl.col("is_final"), pl.col("node_name").is_in(scanning))
            .join(ran if queries else log_facts.sql_executions, on=["log_id", "sql_id"], how="semi")
            .select("log_id", "sql_id", table=_table_name_expr(), accumulator_id="accumulator_ids")
        )
        metrics = log_facts.node_metrics.filter(pl.col("metric_name").is_in(SCAN_METRICS)).select(
            "log_id",
            "sql_id",
            "accumulator_id",
            "metric_name",
            value=pl.max_horizontal("total", "driver_value").cast(pl.Float64),
        )
        largest = (
            scans.filter(pl.col("table").is_not_null())
            .explode("accumulator_id")
            .join(metrics, on=["log_id", "sql_id", "accumulator_id"])
            .group_by("table", "metric_name")
            .agg(pl.col("value").max())
        )
        for table, metric, value in largest.iter_rows():
            rows, files = sizes.get(table, (None, None))
            if metric == "number of output rows":
                rows = max(rows or 0.0, float(value or 0))
            else:
                files = max(files or 0.0, float(value or 0))
            sizes[table] = (rows, files)
    return sizes


def select_compared_rows(facts: EventLogFacts) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Select the rows of `plan_nodes` and `node_metrics` that a comparison reads, with the texts of scans only."""
    nodes = facts.plan_nodes.filter(pl.col("is_final"))
    scans = pl.col("node_name").is_in([name for name in nodes["node_name"].unique() if _is_scan(name)])
    slim = nodes.with_columns(
        pl.when(scans).then("simple_string").alias("simple_string"),
        pl.when(scans).then("accumulator_ids").otherwise(pl.lit([], pl.List(pl.Int64))).alias("accumulator_ids"),
        metadata=pl.lit(None, pl.String),
    )
    return slim, facts.node_metrics.filter(pl.col("metric_name").is_in(SCAN_METRICS))


def _is_scan(name: str) -> bool:
    return engines.classify_operator(name).name.startswith("Scan")


def _table_name_expr() -> pl.Expr:
    """The last part of the path, because folders differ between clusters; the columns where Spark has cut the path."""
    path = pl.col("simple_string").str.extract(r"Location: [^\[]*\[([^\],]+)", 1)
    name = path.str.strip_chars_end("/").str.extract(r"([^/:]+)$", 1)
    columns = pl.col("simple_string").str.extract(r"ReadSchema: (.*)$", 1).str.slice(0, 80)
    return pl.when(name.str.ends_with("...")).then(columns).otherwise(name)


def _compare_warm_runs(most_runs: tuple[int, int], *, first_runs: bool) -> dict[str, Any]:
    """Row that tells how often each side ran its queries; invalid if a side has cold runs only."""
    runs = dict(zip(("baseline", "candidate"), most_runs, strict=True))
    texts = [f"at most {n_runs} run(s) of a query in a session" for n_runs in runs.values()]
    if first_runs:
        reason = "first runs are compared: start-up, code generation and cold caches are part of all times and factors"
        return _build_row("warm runs", texts, "warning", reason)
    if cold := [label for label, n_runs in runs.items() if n_runs < 2]:
        return _build_row(
            "warm runs", texts, "invalid", f"every query of the {' and the '.join(cold)} ran once: all runs are cold"
        )
    if len(set(runs.values())) > 1:
        return _build_row(
            "warm runs", texts, "warning", "later runs are warmer: code is compiled and caches are filled"
        )
    return _build_row("warm runs", texts, "ok", "the first run of each query in a session is cold and does not count")


def _count_most_runs(baseline: _Side, candidate: _Side) -> tuple[int, int]:
    """Count the runs of the query that ran most often in a session, on each side."""
    most = []
    for side in (baseline, candidate):
        counts = [
            log_facts.sql_executions.filter(pl.col("status") == "succeeded")
            # Commands such as CREATE VIEW run no job, and are no queries.
            .join(log_facts.jobs, on=["log_id", "sql_id"], how="semi")
            .group_by("log_id", "description")
            .len()["len"]
            .max()
            for log_facts in side.facts
        ]
        most.append(max((int(count) for count in counts if isinstance(count, int)), default=0))
    return most[0], most[1]


def read_session_logs(paths: Sequence[str]) -> dict[str, SessionFacts]:
    """Facts for the comparison of the sides and measured times, by path; from the cache, or read in parallel."""
    cache = open_default_cache()
    sessions = {path: session for path in paths if (session := _load_session(path, cache)) is not None}
    uncached_paths = [path for path in dict.fromkeys(paths) if path not in sessions]
    if len(uncached_paths) < MIN_LOGS_FOR_POOL or count_cores() < 2:
        return sessions | {path: _read_session(path, cache) for path in uncached_paths}
    with open_process_pool(min(count_cores(), len(uncached_paths))) as workers:
        return sessions | dict(
            zip(uncached_paths, workers.map(_read_session, uncached_paths, [cache] * len(uncached_paths)), strict=True)
        )


def replace_logs_by_facts(recording: Recording) -> None:
    """Keep the facts of a recording's sessions instead of its logs, about 20 times smaller.

    Pairs, factors and validations of the recording stay as they are; what reads a single log (`explain`, `profile`)
    needs the logs.
    """
    paths = {(label, number): str(path) for label, number, path in recording.iterate_logs()}
    if not paths:
        return
    sessions = load_session_facts(recording)
    read = read_session_logs(list(paths.values()))
    sessions |= {key: read[path] for key, path in paths.items()}
    frames: dict[Table, list[pl.DataFrame]] = {table: [] for table in CACHED_TABLES}
    for number, ((label, session), (facts, measured)) in enumerate(sorted(sessions.items())):
        for table in KEPT_TABLES:
            frames[table].append(getattr(facts, table.name).with_columns(log_id=pl.lit(number, pl.Int64)))
        names = {"label": pl.lit(label), "session": pl.lit(str(session))}
        frames[EXECUTIONS].append(measured.executions.with_columns(**names))
        frames[PIECES].append(measured.pieces.with_columns(**names))
    facts_folder = recording.folder / FACTS_FOLDER
    with tempfile.TemporaryDirectory(prefix=".facts-", dir=recording.folder) as scratch:
        for table, parts in frames.items():
            table.write(pl.concat(parts), scratch)
        shutil.rmtree(facts_folder, ignore_errors=True)
        shutil.copytree(scratch, facts_folder)
    for recorded_session in recording.sessions:
        if (recorded_session.label, recorded_session.session) in paths:
            recorded_session.log = None
    recording.write()
    shutil.rmtree(recording.folder / "logs", ignore_errors=True)


def load_session_facts(recording: Recording) -> dict[tuple[str, int], SessionFacts]:
    """Sessions by side and number that a recording keeps as facts; empty for one with logs."""
    folder = recording.folder / FACTS_FOLDER
    if not folder.is_dir():
        return {}
    frames = {table.name: table.read(folder) for table in CACHED_TABLES}
    # The numbers of `replace_logs_by_facts`: a session without executions has one, too.
    keys = sorted((kept.label, kept.session) for kept in recording.list_good_sessions() if kept.log is None)
    sessions = {}
    for number, (label, session) in enumerate(keys):
        of_log, of_side = pl.col("log_id") == number, (pl.col("label") == label, pl.col("session") == str(session))
        tables = {table.name: frames[table.name].filter(of_log) for table in KEPT_TABLES}
        tables |= {table.name: frames[table.name].filter(*of_side) for table in (EXECUTIONS, PIECES)}
        sessions[label, session] = _unpack_session(tables)
    return sessions


def _read_session(path: str, cache: FactsCache) -> SessionFacts:
    facts = read_event_logs(path, jobs=1)
    if facts.applications.height != 1:
        raise InputError("a session needs exactly one log", where=path, do="give the path of each log, not its folder")
    measured = measure_log_times(facts, "", "")
    nodes, metrics = select_compared_rows(facts)
    log_frames = {table: getattr(facts, table.name) for table in KEPT_TABLES}
    log_frames |= {log_tables.PLAN_NODES: nodes, log_tables.NODE_METRICS: metrics}
    frames = {**log_frames, EXECUTIONS: measured.executions, PIECES: measured.pieces}
    if (key := _build_cache_key(path, cache)) is not None:
        cache.store_tables(key, frames)
    return _unpack_session({table.name: frame for table, frame in frames.items()})


def _load_session(path: str, cache: FactsCache) -> SessionFacts | None:
    key = _build_cache_key(path, cache)
    frames = None if key is None else cache.load_tables(key, CACHED_TABLES)
    return None if frames is None else _unpack_session(frames)


def _unpack_session(frames: Mapping[str, pl.DataFrame]) -> SessionFacts:
    """Facts and measured times from the frames of `CACHED_TABLES`, by name; other tables are empty."""
    empty = {table.name: table.frame([]) for table in log_tables.ALL_TABLES}
    facts = EventLogFacts(**{name: frames.get(name, frame) for name, frame in empty.items()})
    return facts, Measured(frames[EXECUTIONS.name], frames[PIECES.name])


def _build_cache_key(path: str, cache: FactsCache) -> str | None:
    """Key of a session, beside the log's own as an application of a fleet; null for a remote log, read only once."""
    sources = list_logs(path)
    if any(file.local is None for source in sources for file in source.files):
        return None
    keys = [cache.hash_source(source) for source in sources]
    return hashlib.sha256(f"session of a pair {' '.join(keys)}".encode()).hexdigest()
