"""The two sides of a pair, read from a recording or from event logs, checked and measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.host import count_cores
from workbench.eventlog import tables as log_tables
from workbench.eventlog.engine_detection import SPARK
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.sources import list_all_logs, list_logs
from workbench.speedup import recording
from workbench.speedup.attribution.measured_times import Measured, concat_measured_logs, measure_log_times
from workbench.speedup.calibration.factors import has_common_queries, list_mismatched_queries
from workbench.speedup.comparison.comparability import SCAN_METRICS, check_comparability, list_invalid_reasons
from workbench.speedup.fleet.fleet_logs import FactsCache, open_default_cache
from workbench.speedup.fleet.fleet_reader import open_process_pool
from workbench.speedup.tables import COMPARABILITY, EXECUTIONS, PIECES

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
FirstRuns = Literal["auto", "use", "skip"]
SessionLog = tuple[EventLogFacts, Measured]
EXCLUSION_REASON = "its answer differs or it failed on a side"


@dataclass(frozen=True)
class Pair:
    """Both sides measured, with the differences between their settings (`comparability`)."""

    baseline: str
    candidate: str
    measured: Measured
    comparability: pl.DataFrame
    engines: tuple[str, str]
    sources: list[dict[str, Any]]
    logs: tuple[tuple[str, ...], tuple[str, ...]]
    first_runs: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the pair is invalid; empty when it is valid."""
        return list_invalid_reasons(self.comparability)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Differences that do not make the pair invalid."""
        seen = self.comparability.filter(pl.col("severity") == "warning")
        return tuple(
            f"{row['property']}: {row['baseline']} against {row['candidate']}; {row['why']}"
            for row in seen.iter_rows(named=True)
        )


def load_recorded_pair(
    folder: str | Path,
    baseline: str | None = None,
    candidate: str | None = None,
    *,
    first_runs: FirstRuns = "auto",
) -> Pair:
    """Load two sides of a recording; by default its first two.

    Raises
    ------
    InputError
        The folder is not a recording, has fewer than two sides, or does not have a side of this name.
    """
    found = recording.load_recording(folder)
    labels = found.labels
    if len(labels) < 2 and not (baseline and candidate):
        raise InputError(
            "a pair needs two sides", where=folder, found=labels, do="record both: --engine spark --engine comet"
        )
    sides = (found.find_side(baseline or labels[0]).label, found.find_side(candidate or labels[1]).label)
    logs = {side: [(f"{side}-s{number}", str(path)) for _, number, path in found.iterate_logs(side)] for side in sides}
    named = baseline is not None or candidate is not None
    return _build_pair(sides, logs, found.list_bad_queries(), named=named, first_runs=first_runs)


def load_pair_from_logs(
    baseline_logs: Sequence[str],
    candidate_logs: Sequence[str],
    labels: tuple[str, str] | None = None,
    *,
    first_runs: FirstRuns = "auto",
) -> Pair:
    """Load two sides from event logs, one session per log; a folder stands for the logs in it.

    Without `labels`, the sides are named by their engines, and the candidate must be accelerated; with labels, any two
    sides can be compared.

    Parameters
    ----------
    baseline_logs, candidate_logs
        Event logs of each side, one session each, or folders of them.
    labels
        Names of the sides.
    first_runs
        use: compare the first run of each query in a session; skip: only later runs, which are warm; auto: first runs
        where no query ran warm on both sides, as in a Power Run.

    Raises
    ------
    InputError
        A side has no logs; a log cannot be read, holds no query, or is on both sides; or, without labels, the candidate
        is not accelerated.
    """
    if labels is not None and labels[0] == labels[1]:
        raise InputError(
            "both sides have the same name", found=labels[0], do="use two names: --baseline A --candidate B"
        )
    sides = (_list_logs(baseline_logs), _list_logs(candidate_logs))
    if both := set(sides[0]) & set(sides[1]):
        raise InputError("a log is on both sides", found=sorted(both), do="give each side its own logs")
    read = _read_sessions([*sides[0], *sides[1]])
    names = labels or tuple(_name_side([read[path] for path in paths]) for paths in sides)
    if labels is None and sides[1] and names[1] == SPARK:
        raise InputError(
            "the accelerated side is a plain Spark",
            where=candidate_logs[0],
            found="no accelerator in its settings",
            do="swap the logs; or name the sides if they are not CPU and GPU: --baseline NAME --candidate NAME",
        )
    if names[0] == names[1]:
        names = (f"{names[0]}-baseline", f"{names[1]}-candidate")
    logs = {
        label: [(f"{label}-s{i}", path) for i, path in enumerate(paths, 1)]
        for label, paths in zip(names, sides, strict=True)
    }
    return _build_pair((names[0], names[1]), logs, set(), named=labels is not None, first_runs=first_runs, read=read)


def load_pair_from_folder(folder: str | Path, *, first_runs: FirstRuns = "auto") -> Pair:
    """Load a folder of logs of two engines: plain Spark is the baseline, the other engine the candidate.

    Raises
    ------
    InputError
        The folder holds no logs, or not of plain Spark and one other engine; the message has the engine of each log.
    """
    by_engine: dict[str, list[str]] = {}
    read = _read_sessions(_list_logs([str(folder)]))
    for path, one in read.items():
        by_engine.setdefault(_name_side([one]), []).append(path)
    others = [name for name in by_engine if name != SPARK]
    if SPARK not in by_engine or len(others) != 1:
        raise InputError(
            "not the logs of plain Spark and one accelerated engine",
            where=folder,
            found="; ".join(f"{name}: {', '.join(Path(path).name for path in by_engine[name])}" for name in by_engine),
            do="give each side its own logs: --cpu LOG --gpu LOG; or the folder of a recording",
        )
    return load_pair_from_logs(by_engine[SPARK], by_engine[others[0]], first_runs=first_runs)


def _name_side(sessions: Sequence[SessionLog]) -> str:
    """Name of a side: its engine; the first one's where they differ, which the comparison reports."""
    return str(sessions[0][0].applications["engine"][0]) if sessions else "none"


def _list_logs(paths: Sequence[str]) -> list[str]:
    """The logs at paths that may be folders."""
    return [source.path for source in list_all_logs(paths)]


def _build_pair(
    labels: tuple[str, str],
    logs: Mapping[str, Sequence[tuple[str, str]]],
    excluded: set[str],
    *,
    named: bool,
    first_runs: FirstRuns,
    read: Mapping[str, SessionLog] | None = None,
) -> Pair:
    parts: list[Measured] = []
    facts: dict[str, list[EventLogFacts]] = {}
    sources: list[dict[str, Any]] = []
    read = read or _read_sessions([path for label in labels for _, path in logs[label]])
    for label in labels:
        if not logs[label]:
            raise InputError("a side has no event log", where=label, do="give at least one log for each side")
        for session, path in logs[label]:
            one, part = read[path]
            if not part.executions.height:
                raise InputError(
                    "the log holds no SQL execution that ran tasks and ended", where=path, do="give a log of SQL work"
                )
            names = {"label": pl.lit(label), "session": pl.lit(session)}
            parts.append(Measured(part.executions.with_columns(**names), part.pieces.with_columns(**names)))
            facts.setdefault(label, []).append(one)
            sources.append({"label": label, "session": session, **_log_origin(path)})
    everything = concat_measured_logs(parts)
    measured = everything.exclude_queries(excluded, EXCLUSION_REASON)
    engines = tuple(str(facts[label][0].applications["engine"][0]) for label in labels)
    uses_first = first_runs == "use" or (first_runs == "auto" and not has_common_queries(measured, *labels))
    if uses_first:
        measured = everything.select_first_runs().exclude_queries(excluded, EXCLUSION_REASON)
    found = check_comparability(facts[labels[0]], facts[labels[1]], named=named, first_runs=uses_first)
    invalid = pl.col("severity") == "invalid"
    return Pair(
        labels[0],
        labels[1],
        measured,
        pl.concat([found.filter(invalid), _build_mismatch_row(measured, labels), found.filter(~invalid)]),
        (engines[0], engines[1]),
        sources,
        (tuple(path for _, path in logs[labels[0]]), tuple(path for _, path in logs[labels[1]])),
        uses_first,
    )


def _build_mismatch_row(measured: Measured, labels: tuple[str, str]) -> pl.DataFrame:
    """A row of `COMPARABILITY` with the queries left out because the sides read different tables; empty without any."""
    left_out = list_mismatched_queries(measured, *labels)
    counts = measured.executions.group_by("label").agg(pl.col("query").n_unique())
    texts = {label: f"{count} queries" for label, count in counts.iter_rows()}
    why = f"left out, because the sides read different tables or columns: {', '.join(left_out)}"
    row = {"property": "queries", "baseline": texts[labels[0]], "candidate": texts[labels[1]], "severity": "warning"}
    return COMPARABILITY.frame([row | {"why": why}] if left_out else [])


def _read_sessions(paths: Sequence[str]) -> dict[str, SessionLog]:
    """Facts for the comparison of the sides and measured times, by path; from the cache, or read in parallel."""
    cache = open_default_cache()
    found = {path: known for path in paths if (known := _load_session(path, cache)) is not None}
    rest = [path for path in dict.fromkeys(paths) if path not in found]
    if len(rest) < MIN_LOGS_FOR_POOL or count_cores() < 2:
        return found | {path: _read_session(path, cache) for path in rest}
    with open_process_pool(min(count_cores(), len(rest))) as workers:
        return found | dict(zip(rest, workers.map(_read_session, rest, [cache] * len(rest)), strict=True))


def _read_session(path: str, cache: FactsCache) -> SessionLog:
    facts = read_event_logs(path, jobs=1)
    if facts.applications.height != 1:
        raise InputError("a session needs exactly one log", where=path, do="give the path of each log, not its folder")
    measured = measure_log_times(facts, "", "")
    kept = {table: getattr(facts, table.name) for table in KEPT_TABLES}
    kept[log_tables.NODE_METRICS] = facts.node_metrics.filter(pl.col("metric_name").is_in(SCAN_METRICS))
    frames = {**kept, EXECUTIONS: measured.executions, PIECES: measured.pieces}
    if (key := _build_cache_key(path, cache)) is not None:
        cache.store_tables(key, frames)
    return _unpack_session({table.name: frame for table, frame in frames.items()})


def _load_session(path: str, cache: FactsCache) -> SessionLog | None:
    key = _build_cache_key(path, cache)
    known = None if key is None else cache.load_tables(key, CACHED_TABLES)
    return None if known is None else _unpack_session(known)


def _unpack_session(frames: Mapping[str, pl.DataFrame]) -> SessionLog:
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


def _log_origin(path: str) -> dict[str, Any]:
    place = Path(path)
    if not place.is_file():
        return {"file": place.name}
    return {"file": place.name, "bytes": place.stat().st_size, "sha256": files.hash_file(place)}
