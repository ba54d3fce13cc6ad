"""Many logs measured side by side, here or inside Spark; one that cannot be read becomes a row that says why.

Logs, not pieces of them, are handed out: a fleet has more logs than cores. What was read is kept by the log's sha256,
so that a growing folder is read once.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench.errors import ConfigError, WorkbenchError
from workbench.eventlog.reader import read
from workbench.eventlog.scrub import scrub
from workbench.eventlog.sources import find_logs
from workbench.host import cores
from workbench.speedup.applications import APPLICATIONS_MEASURED, application, streaming_ids, unreadable
from workbench.speedup.facts_cache import FactsCache, default_cache, digest
from workbench.speedup.fleet_sources import Candidate, candidates
from workbench.speedup.measured import EXECUTIONS, PIECES, Measured, joined, measure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Backend = Literal["local", "spark"]
Progress = Callable[[int, int], None]
CACHED = (APPLICATIONS_MEASURED, EXECUTIONS, PIECES)
COPY_OF = "the same application as "


@dataclass(frozen=True)
class LogMeasured:
    """One log: its row of `APPLICATIONS_MEASURED`, its executions and pieces, and whether they came from the cache."""

    application: pl.DataFrame
    measured: Measured
    from_cache: bool = False


@dataclass(frozen=True)
class Filters:
    """Which applications are kept; a log that cannot be read is kept always, since nobody knows what it is."""

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
class Fleet:
    """All logs: `applications` has one row each, `measured` the executions of those that could be used.

    `n_read` logs were read now, `n_cached` were known, `n_filtered` were left out by the filters.
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
    filters: Filters | None = None,
    label: str = "baseline",
    cache: FactsCache | None = None,
    use_cache: bool = True,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Fleet:
    """What did the applications of many logs take, and for what?

    Parameters
    ----------
    sources
        Logs, folders of logs, globs, or fsspec URLs of any of these.
    backend
        local: processes on this machine; spark: tasks of a Spark application (`mapInPandas` over the paths), whose
        executors can open the paths and have this package installed.
    jobs
        Processes of the local backend; by default the machine's cores.
    filters
        Which applications are kept.
    label
        Side that the executions are booked under; their session is the log's path.
    cache, use_cache
        Where results are kept; by default below the user's folder of caches.
    spark
        Session of the Spark backend; by default the active one, or a new one.
    progress
        Called with (logs done, logs in all).

    Returns
    -------
    Fleet
        Rows in the order of the logs' paths, equal for both backends. A damaged, empty or unreadable log is a row
        with its reason; a copy of a log that is there already is a duplicate and not measured twice. Batches of
        streams are in `streaming_s` and in no execution.

    Raises
    ------
    InputError
        A path is not there, or nothing in it could be a log.
    ConfigError
        `jobs` or a filter is out of range.
    MissingToolError
        The Spark backend without pyspark, pandas or pyarrow.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs must be at least 1", where="--jobs", found=jobs)
    if backend not in ("local", "spark"):
        raise ConfigError("unknown backend", where="--backend", found=backend, allowed=["local", "spark"])
    found = candidates(sources)
    store = (cache or default_cache()) if use_cache else None
    results = _spark(found, store, spark) if backend == "spark" else _local(found, store, jobs)
    done: dict[str, LogMeasured] = {}
    for path, result in results:
        done[path] = result
        if progress:
            progress(len(done), len(found))
    if store is not None:
        store.prune()
    return _gathered([done[one.path] for one in found], filters or Filters(), label)


def measure_log(path: str, cache: FactsCache | None = None) -> LogMeasured:
    """One log, from the cache or read; whatever is wrong with it is said in its row. Label and session are empty."""
    try:
        sources = find_logs(path)
        key = cache.key_of(sources[0]) if cache else digest(sources[0])
        if cache and (known := cache.load(key, CACHED)) is not None:
            frames = [known[table.name] for table in CACHED]
            return LogMeasured(_named(frames[0], path), Measured(frames[1], frames[2]), from_cache=True)
        facts = read(path, jobs=1)
        streaming = streaming_ids(facts)
        whole, batch = measure(facts, "", ""), pl.col("sql_id").is_in(streaming)
        measured = Measured(whole.executions.filter(~batch), whole.pieces.filter(~batch))
        row = APPLICATIONS_MEASURED.frame([application(facts, "", key)])
    except WorkbenchError as error:
        found = error.facts.get("found")
        return _unreadable(path, error.what + (f": {found}" if found else ""))
    except Exception as error:  # noqa: BLE001 - one odd log must not end the reading of a thousand others
        return _unreadable(path, f"{type(error).__name__}: {error}")
    if cache:
        cache.store(key, {APPLICATIONS_MEASURED: row, EXECUTIONS: measured.executions, PIECES: measured.pieces})
    return LogMeasured(_named(row, path), measured)


def _named(row: pl.DataFrame, path: str) -> pl.DataFrame:
    return row.with_columns(log=pl.lit(scrub(path)))


def _unreadable(path: str, reason: str) -> LogMeasured:
    row = APPLICATIONS_MEASURED.frame([unreadable(scrub(path), scrub(" ".join(reason.split())))])
    return LogMeasured(row, joined([]))


def _local(found: Sequence[Candidate], cache: FactsCache | None, jobs: int | None) -> Iterator[tuple[str, LogMeasured]]:
    yield from ((one.path, _unreadable(one.path, one.reason)) for one in found if one.reason)
    # The largest first, so that none is left for the end.
    paths = [one.path for one in sorted(found, key=lambda one: -one.size_bytes) if not one.reason]
    processes = min(jobs or cores(), len(paths))
    if processes <= 1:
        yield from ((path, measure_log(path, cache)) for path in paths)
        return
    lost: list[str] = []
    with pool(processes) as workers:
        futures = {workers.submit(_work, path, cache): path for path in paths}
        try:
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result()
                except BrokenProcessPool:
                    lost.append(futures[future])
        finally:
            workers.shutdown(wait=False, cancel_futures=True)
    # One of them has killed its process (memory, most likely), the others went down with it.
    for path in lost:
        with pool(1) as workers:
            try:
                yield path, workers.submit(_work, path, cache).result()
            except BrokenProcessPool:
                yield path, _unreadable(path, "the process that read it died, most likely for want of memory")


# What a worker runs.
_work = measure_log


def pool(processes: int) -> ProcessPoolExecutor:
    """Fresh interpreters: a fork would copy the locks of threads that do not run in the copy."""
    import multiprocessing

    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), initializer=_quiet)


def _quiet() -> None:
    """Workers leave Ctrl-C to the parent."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _spark(
    found: Sequence[Candidate], cache: FactsCache | None, spark: SparkSession | None
) -> Iterator[tuple[str, LogMeasured]]:
    from workbench.speedup.fleet_spark import measure_on_spark

    yield from ((one.path, _unreadable(one.path, one.reason)) for one in found if one.reason)
    paths = [one.path for one in found if not one.reason]
    known = {path: result for path in paths if cache and (result := _known(path, cache)) is not None}
    yield from known.items()
    if not (rest := [path for path in paths if path not in known]):
        return
    for path, result in measure_on_spark(rest, spark):
        row = result.application.row(0, named=True)
        if cache and row["sha256"]:
            stored = result.application.with_columns(log=pl.lit(""))
            cache.store(
                row["sha256"],
                {APPLICATIONS_MEASURED: stored, EXECUTIONS: result.measured.executions, PIECES: result.measured.pieces},
            )
        yield path, result


def _known(path: str, cache: FactsCache) -> LogMeasured | None:
    """What the cache has of a log that this machine can see; remote ones are hashed where they are read."""
    try:
        source = find_logs(path)[0]
        if any(file.local is None for file in source.files):
            return None
        known = cache.load(cache.key_of(source), CACHED)
    except WorkbenchError:
        return None
    if known is None:
        return None
    frames = [known[table.name] for table in CACHED]
    return LogMeasured(_named(frames[0], path), Measured(frames[1], frames[2]), from_cache=True)


def _gathered(results: Sequence[LogMeasured], filters: Filters, label: str) -> Fleet:
    rows = pl.concat([APPLICATIONS_MEASURED.frame([]), *(result.application for result in results)])
    rows = APPLICATIONS_MEASURED.check(_without_copies(rows))
    kept = _filtered(rows, filters)
    usable = set(kept.filter(~pl.col("status").is_in(["duplicate", "unreadable"]))["log"])
    parts = []
    for result in results:
        log = result.application["log"][0]
        if log in usable:
            names = {"label": pl.lit(label), "session": pl.lit(log)}
            one = result.measured
            parts.append(Measured(one.executions.with_columns(**names), one.pieces.with_columns(**names)))
    cached = sum(result.from_cache for result in results)
    return Fleet(kept, joined(parts), len(results) - cached, cached, rows.height - kept.height)


def _without_copies(rows: pl.DataFrame) -> pl.DataFrame:
    """Of the logs of one application (equal content, or equal id and start) the best counts, the others are marked."""
    best = {"complete": 0, "incomplete": 1, "damaged": 2}
    kept: dict[tuple[Any, ...], str] = {}
    copies: dict[str, str] = {}
    usable = rows.filter(pl.col("status") != "unreadable")
    for row in sorted(usable.iter_rows(named=True), key=lambda row: (best[row["status"]], row["log"])):
        identity = (row["app_id"], row["start_time_ms"]) if row["app_id"] and row["start_time_ms"] else (row["sha256"],)
        first = kept.setdefault(identity, row["log"])
        if first != row["log"]:
            copies[row["log"]] = COPY_OF + first
    why = pl.col("log").replace_strict(copies, default=None, return_dtype=pl.String)
    return rows.with_columns(
        status=pl.when(why.is_not_null()).then(pl.lit("duplicate")).otherwise(pl.col("status")),
        reason=pl.coalesce(why, "reason"),
    )


def _filtered(rows: pl.DataFrame, filters: Filters) -> pl.DataFrame:
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
        # A copy takes no application's place, and stays with the one that it is of.
        known = rows.filter(~unknown, pl.col("status") != "duplicate")
        newest = known.sort("start_time_ms", "log", descending=[True, False], nulls_last=True).head(filters.newest)
        copies = pl.col("reason").is_in((COPY_OF + newest["log"]).implode())
        rows = rows.filter(unknown | pl.col("log").is_in(newest["log"].implode()) | copies.fill_null(False))
    return rows
