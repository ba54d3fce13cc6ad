"""Facts of sessions: what a pair needs of each log, kept in the cache, or in a recording instead of its logs."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence

import polars as pl

from workbench.core.errors import InputError
from workbench.core.host import count_cores
from workbench.core.tables import Table
from workbench.eventlog import tables as log_tables
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.sources import list_logs
from workbench.speedup.attribution.measured_times import Measured, measure_log_times
from workbench.speedup.comparison.comparability import select_compared_rows
from workbench.speedup.fleet.fleet_logs import FactsCache, open_default_cache
from workbench.speedup.fleet.fleet_reader import open_process_pool
from workbench.speedup.recording.recording_journal import FACTS_FOLDER, Recording
from workbench.speedup.tables import EXECUTIONS, PIECES

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
    keys = frames[EXECUTIONS.name].select("label", pl.col("session").cast(pl.Int64)).unique().sort("label", "session")
    sessions = {}
    for number, (label, session) in enumerate(keys.iter_rows()):
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
