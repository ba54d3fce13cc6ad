"""Fleet reader: measures many logs in parallel, in local processes or as Spark tasks."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench.core.errors import ConfigError, MissingToolError, WorkbenchError
from workbench.core.host import count_cores
from workbench.eventlog.log_redaction import remove_secrets
from workbench.eventlog.reader import read_event_logs
from workbench.eventlog.sources import list_logs
from workbench.speedup.attribution.time_pieces import (
    NOT_COUNTED,
    Measured,
    build_application_row,
    build_unreadable_row,
    concat_measured_logs,
    list_streaming_ids,
    measure_log_times,
)
from workbench.speedup.fleet.fleet_logs import (
    FactsCache,
    LogCandidate,
    hash_log,
    list_log_candidates,
)
from workbench.speedup.tables import APPLICATIONS_MEASURED, EXECUTIONS, PIECES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Backend = Literal["local", "spark"]
Progress = Callable[[int, int], None]
CACHED_TABLES = (APPLICATIONS_MEASURED, EXECUTIONS, PIECES)
COPY_OF = "the same application as "
SPARK_PACKAGES = ("pyspark", "pandas", "pyarrow")
SPARK_SCHEMA = "path string, application binary, executions binary, pieces binary"
MAX_TASKS = 10_000


@dataclass(frozen=True)
class MeasuredLog:
    """One log: its row of `APPLICATIONS_MEASURED`, its executions and pieces, and whether they are from the cache."""

    application: pl.DataFrame
    measured: Measured
    from_cache: bool = False


@dataclass(frozen=True)
class FleetFilters:
    """Which applications are kept; unreadable logs are always kept, because their application is unknown."""

    app_name: str | None = None
    since: date | None = None
    newest: int | None = None
    min_duration_s: float | None = None

    def __post_init__(self) -> None:
        if self.newest is not None and self.newest < 1:
            raise ConfigError("must be 1 or more", where="--newest", found=self.newest)
        if self.min_duration_s is not None and not 0 <= self.min_duration_s < float("inf"):
            raise ConfigError("must be 0 or more", where="--min-duration", found=self.min_duration_s)


@dataclass(frozen=True)
class MeasuredFleet:
    """Measurements of all logs: `applications` has one row each, `measured` the executions of the usable ones.

    `n_read` logs were read, `n_cached` came from the cache, `n_filtered` were removed by the filters.
    """

    applications: pl.DataFrame
    measured: Measured
    n_read: int
    n_cached: int
    n_filtered: int


def measure_fleet(
    sources: Sequence[str | Path],
    *,
    backend: Backend = "local",
    jobs: int | None = None,
    filters: FleetFilters | None = None,
    cache: FactsCache | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> MeasuredFleet:
    """Measure the applications of many logs.

    `backend`: local: processes on this machine; spark: tasks of a Spark application, which need the paths and this
    package.
    `cache`: Where measured logs are kept, by their sha256; all are read without one.
    `spark`: Session of the Spark backend; by default the active one, or a new one.

    Returns: Rows in the order of the paths, equal for both backends; unusable logs and copies have their reason.
    Streaming batches count in `streaming_s` and not as executions.
    """
    _check_reading(backend, jobs)
    logs = list_log_candidates(sources)
    results = _measure_remotely(logs, cache, spark) if backend == "spark" else _measure_locally(logs, cache, jobs)
    measured_logs: dict[str, MeasuredLog] = {}
    for path, result in results:
        measured_logs[path] = result
        if progress:
            progress(len(measured_logs), len(logs))
    if cache is not None:
        cache.prune()
    return _gather_logs([measured_logs[log.path] for log in logs], filters or FleetFilters())


def _check_reading(backend: str, jobs: int | None) -> None:
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs must be at least 1", where="--jobs", found=jobs)
    if backend not in ("local", "spark"):
        raise ConfigError("unknown backend", where="--backend", found=backend, allowed=["local", "spark"])


def measure_log(path: str, cache: FactsCache | None = None) -> MeasuredLog:
    """Measure one log, or load it from the cache; its row has any error. Label and session are empty."""
    try:
        source = list_logs(path)[0]
        key = cache.hash_source(source) if cache else hash_log(source)
        if cache and (frames := cache.load_tables(key, CACHED_TABLES)) is not None:
            return _build_cached_log(frames, path)
        facts = read_event_logs(path, jobs=1)
        measured = measure_log_times(facts, "", "").select(~pl.col("sql_id").is_in(list_streaming_ids(facts)))
        row = APPLICATIONS_MEASURED.frame([build_application_row(facts, "", key)])
    except WorkbenchError as error:
        detail = error.facts.get("found")
        return _build_unreadable_log(path, error.what + (f": {detail}" if detail else ""))
    except Exception as error:  # noqa: BLE001 - one bad log must not stop the reading of the others
        return _build_unreadable_log(path, f"{type(error).__name__}: {error}")
    if cache:
        _store_in_cache(cache, key, row, measured)
    return MeasuredLog(_set_log_name(row, path), measured)


def _store_in_cache(cache: FactsCache, key: str, application: pl.DataFrame, measured: Measured) -> None:
    cache.store_tables(key, dict(zip(CACHED_TABLES, (application, measured.executions, measured.pieces), strict=True)))


def _set_log_name(row: pl.DataFrame, path: str) -> pl.DataFrame:
    """The row of APPLICATIONS_MEASURED with its column `log`: rows of the cache have none, because files move."""
    return row.with_columns(log=pl.lit(remove_secrets(path)))


def _build_unreadable_log(path: str, reason: str) -> MeasuredLog:
    row = APPLICATIONS_MEASURED.frame(
        [build_unreadable_row(remove_secrets(path), remove_secrets(" ".join(reason.split())))]
    )
    return MeasuredLog(row, concat_measured_logs([]))


def _measure_locally(
    candidates: Sequence[LogCandidate], cache: FactsCache | None, jobs: int | None
) -> Iterator[tuple[str, MeasuredLog]]:
    yield from (
        (candidate.path, _build_unreadable_log(candidate.path, candidate.reason))
        for candidate in candidates
        if candidate.reason
    )
    # Largest first, so that no large log is read last and alone.
    paths = [
        candidate.path
        for candidate in sorted(candidates, key=lambda candidate: -candidate.size_bytes)
        if not candidate.reason
    ]
    processes = min(jobs or count_cores(), len(paths))
    if processes <= 1:
        yield from ((path, measure_log(path, cache)) for path in paths)
        return
    lost: list[str] = []
    with open_process_pool(processes) as workers:
        futures = {workers.submit(_measure_in_worker, path, cache): path for path in paths}
        try:
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result()
                except BrokenProcessPool:
                    lost.append(futures[future])
        finally:
            workers.shutdown(wait=False, cancel_futures=True)
    # One log has killed its process (probably for lack of memory) and broken the pool for the others.
    for path in lost:
        with open_process_pool(1) as workers:
            try:
                yield path, workers.submit(_measure_in_worker, path, cache).result()
            except BrokenProcessPool:
                yield path, _build_unreadable_log(path, "the process that read it died, probably for lack of memory")


_measure_in_worker = measure_log


def open_process_pool(processes: int) -> ProcessPoolExecutor:
    """Worker processes as fresh interpreters: a fork would copy locks whose threads do not exist in the copy."""
    import multiprocessing

    return ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=_ignore_interrupts
    )


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker; the parent handles it."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _measure_remotely(
    candidates: Sequence[LogCandidate], cache: FactsCache | None, spark: SparkSession | None
) -> Iterator[tuple[str, MeasuredLog]]:
    yield from (
        (candidate.path, _build_unreadable_log(candidate.path, candidate.reason))
        for candidate in candidates
        if candidate.reason
    )
    paths = [candidate.path for candidate in candidates if not candidate.reason]
    cached_logs = {path: result for path in paths if cache and (result := _load_from_cache(path, cache)) is not None}
    yield from cached_logs.items()
    if not (uncached_paths := [path for path in paths if path not in cached_logs]):
        return
    for path, result in measure_on_spark(uncached_paths, spark):
        row = result.application.row(0, named=True)
        if cache and row["sha256"]:
            _store_in_cache(cache, row["sha256"], result.application.with_columns(log=pl.lit("")), result.measured)
        yield path, result


def _load_from_cache(path: str, cache: FactsCache) -> MeasuredLog | None:
    """A local log from the cache; remote logs are hashed where they are read."""
    try:
        source = list_logs(path)[0]
        if any(file.local is None for file in source.files):
            return None
        frames = cache.load_tables(cache.hash_source(source), CACHED_TABLES)
    except WorkbenchError:
        return None
    return None if frames is None else _build_cached_log(frames, path)


def _build_cached_log(frames: Mapping[str, pl.DataFrame], path: str) -> MeasuredLog:
    application, executions, pieces = (frames[table.name] for table in CACHED_TABLES)
    return MeasuredLog(_set_log_name(application, path), Measured(executions, pieces), from_cache=True)


def _gather_logs(results: Sequence[MeasuredLog], filters: FleetFilters) -> MeasuredFleet:
    rows = pl.concat([APPLICATIONS_MEASURED.frame([]), *(result.application for result in results)])
    rows = APPLICATIONS_MEASURED.check(_mark_attempts(_mark_duplicates(rows)))
    applications = _filter_applications(rows, filters)
    usable = set(applications.filter(~pl.col("status").is_in(NOT_COUNTED))["log"])
    parts = []
    for result in results:
        log = result.application["log"][0]
        if log in usable:
            names = {"label": pl.lit("baseline"), "session": pl.lit(log)}
            measured = result.measured
            parts.append(Measured(measured.executions.with_columns(**names), measured.pieces.with_columns(**names)))
    cached = sum(result.from_cache for result in results)
    return MeasuredFleet(
        applications, concat_measured_logs(parts), len(results) - cached, cached, rows.height - applications.height
    )


def _mark_duplicates(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark all but the best log of each application (equal content, or equal id and start) as duplicates.

    `rows`: Table APPLICATIONS_MEASURED; so for the functions below.
    """
    best = {"complete": 0, "incomplete": 1, "damaged": 2, "partial": 3, "contradictory": 4}
    best_logs: dict[tuple[Any, ...], str] = {}
    copies: dict[str, str] = {}
    usable = rows.filter(pl.col("status") != "unreadable")
    for row in sorted(usable.iter_rows(named=True), key=lambda row: (best[row["status"]], row["log"])):
        identity = (row["app_id"], row["start_time_ms"]) if row["app_id"] and row["start_time_ms"] else (row["sha256"],)
        first = best_logs.setdefault(identity, row["log"])
        if first != row["log"]:
            copies[row["log"]] = COPY_OF + first
    reason = pl.col("log").replace_strict(copies, default=None, return_dtype=pl.String)
    return rows.with_columns(
        status=pl.when(reason.is_not_null()).then(pl.lit("duplicate")).otherwise(pl.col("status")),
        reason=pl.coalesce(reason, "reason"),
    )


def _mark_attempts(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark all but one attempt of each application as superseded: the last one that ended counts, or else the last."""
    counted: dict[str, tuple[tuple[bool, int, int], str, str]] = {}
    attempts = rows.filter(~pl.col("status").is_in(NOT_COUNTED), pl.col("attempt_id").is_not_null())
    for row in attempts.iter_rows(named=True):
        number = int(row["attempt_id"]) if row["attempt_id"].isdecimal() else 0
        order = (row["status"] == "complete", number, row["start_time_ms"] or 0)
        best = counted.get(row["app_id"])
        if best is None or order > best[0]:
            counted[row["app_id"]] = (order, row["log"], row["attempt_id"])
    earlier = {
        row["log"]: f"attempt {row['attempt_id']}; attempt {attempt} counts: {log}"
        for row in attempts.iter_rows(named=True)
        for _, log, attempt in [counted[row["app_id"]]]
        if log != row["log"]
    }
    reason = pl.col("log").replace_strict(earlier, default=None, return_dtype=pl.String)
    return rows.with_columns(
        status=pl.when(reason.is_not_null()).then(pl.lit("superseded")).otherwise(pl.col("status")),
        reason=pl.coalesce(reason, "reason"),
    )


def _filter_applications(rows: pl.DataFrame, filters: FleetFilters) -> pl.DataFrame:
    unknown = pl.col("status") == "unreadable"
    if filters.app_name is not None:
        names = {name for name in rows["app_name"] if name is not None and fnmatch.fnmatchcase(name, filters.app_name)}
        rows = rows.filter(unknown | pl.col("app_name").is_in(sorted(names)))
    if filters.since is not None:
        day = filters.since
        first = day if isinstance(day, datetime) else datetime(day.year, day.month, day.day)
        first = first if first.tzinfo else first.replace(tzinfo=UTC)
        rows = rows.filter(unknown | (pl.col("start_time_ms") >= int(first.timestamp() * 1000)))
    if filters.min_duration_s is not None:
        rows = rows.filter(unknown | (pl.col("wall_s") >= filters.min_duration_s))
    if filters.newest is not None:
        # Copies do not count towards the limit, and stay with their application.
        originals = rows.filter(~unknown, pl.col("status") != "duplicate")
        newest = originals.sort("start_time_ms", "log", descending=[True, False], nulls_last=True).head(filters.newest)
        copies = pl.col("reason").is_in((COPY_OF + newest["log"]).implode())
        rows = rows.filter(unknown | pl.col("log").is_in(newest["log"].implode()) | copies.fill_null(False))
    return rows


def measure_on_spark(paths: Sequence[str], spark: SparkSession | None = None) -> Iterator[tuple[str, MeasuredLog]]:
    """Measure each log in a Spark task; yields path and result as tasks end."""
    if missing := [name for name in SPARK_PACKAGES if importlib.util.find_spec(name) is None]:
        raise MissingToolError(
            "the Spark backend needs packages that are not installed",
            found=missing,
            do="pip install 'pyspark>=3.5,<3.6' 'pandas<3' pyarrow, or --backend local",
        )
    session, ours = (spark, False) if spark is not None else _get_spark_session()
    try:
        rows = session.sparkContext.parallelize([(path,) for path in paths], min(len(paths), MAX_TASKS))
        frame = session.createDataFrame(rows, "path string").mapInPandas(_measure_batches, SPARK_SCHEMA)
        for row in frame.toLocalIterator(prefetchPartitions=True) if not ours else frame.collect():
            yield row["path"], unpack_measured_log(row.asDict())
    finally:
        if ours:
            session.stop()


def pack_measured_log(result: MeasuredLog) -> dict[str, bytes]:
    """A result as bytes by name, to leave a Spark task."""
    frames = {
        "application": result.application,
        "executions": result.measured.executions,
        "pieces": result.measured.pieces,
    }
    return {name: frame.write_ipc(None, compression="zstd").getvalue() for name, frame in frames.items()}


def unpack_measured_log(packed: Mapping[str, Any]) -> MeasuredLog:
    """The result of `pack_measured_log`, checked against the declared tables."""
    names = ("application", "executions", "pieces")
    application, executions, pieces = (
        table.check(pl.read_ipc(bytes(packed[name]))) for table, name in zip(CACHED_TABLES, names, strict=True)
    )
    return MeasuredLog(application, Measured(executions, pieces))


def _get_spark_session() -> tuple[SparkSession, bool]:
    """The active session, or a new one (second value: true), which is stopped afterwards."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    from workbench.spark import jvm

    for name, value in jvm.build_spark_environment().items():
        os.environ.setdefault(name, value)
    return SparkSession.builder.appName("workbench speedup fleet").getOrCreate(), True


def _measure_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs on the executors; yields a pandas frame of one row per path."""
    pd = importlib.import_module("pandas")

    for batch in batches:
        for path in batch["path"]:
            row: dict[str, Any] = {"path": path} | pack_measured_log(measure_log(path))
            yield pd.DataFrame([row])
