"""Fleet reader: measures many logs in parallel, in local processes or as Spark tasks."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.core.errors import ConfigError
from workbench.core.host import count_cores
from workbench.core.tables import Table
from workbench.speedup.attribution.time_pieces import NOT_COUNTED, Measured
from workbench.speedup.fleet.fleet_logs import FactsCache, LogCandidate, list_log_candidates
from workbench.speedup.fleet.measured_logs import MeasuredLog, build_unreadable_log, measure_log
from workbench.speedup.tables import APPLICATIONS_MEASURED, EXECUTIONS, PIECES

if TYPE_CHECKING:
    from workbench.speedup.fleet.spark_fleet import SparkOptions

Progress = Callable[[int, int], None]
JOINED_LOGS = 128
_PLACE = "place of the log"
COPY_OF = "the same application as "


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
    jobs: int | None = None,
    filters: FleetFilters | None = None,
    cache: FactsCache | None = None,
    spark: SparkOptions | None = None,
    progress: Progress | None = None,
) -> MeasuredFleet:
    """Measure the applications of many logs, in processes of this machine or as tasks of a Spark application.

    `jobs`: Processes of this machine; one per core by default.
    `cache`: Where they keep measured logs, by their sha256; all are read without one.
    `spark`: Read in Spark's tasks, which keep what they measured in `SparkOptions.results`.

    Returns: Rows in the order of the paths, equal in both ways; unusable logs and copies have their reason.
    Streaming batches count in `streaming_s` and not as executions.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs must be at least 1", where="--jobs", found=jobs)
    logs = list_log_candidates(sources)
    readable = [log for log in logs if not log.reason]
    if spark is not None:
        from workbench.speedup.fleet.spark_fleet import measure_on_spark

        results = measure_on_spark(readable, spark)
    else:
        results = _measure_locally(readable, cache, jobs)
    places = {log.path: place for place, log in enumerate(logs)}
    rows = _FleetRows()
    for log in logs:
        if log.reason:
            rows.add(places[log.path], build_unreadable_log(log.path, log.reason))
    for path, result in results:
        rows.add(places[path], result)
        if progress:
            progress(rows.n_logs, len(logs))
    if cache is not None:
        cache.prune()
    return rows.build_fleet(filters or FleetFilters())


def _measure_locally(
    candidates: Sequence[LogCandidate], cache: FactsCache | None, jobs: int | None
) -> Iterator[tuple[str, MeasuredLog]]:
    # Largest first, so that no large log is read last and alone.
    paths = [candidate.path for candidate in sorted(candidates, key=lambda candidate: -candidate.size_bytes)]
    processes = min(jobs or count_cores(), len(paths))
    if processes <= 1:
        yield from ((path, measure_log(path, cache)) for path in paths)
        return
    lost: list[str] = []
    with open_process_pool(processes) as workers:
        futures = {workers.submit(measure_log, path, cache): path for path in paths}
        try:
            for future in as_completed(futures):
                # A future keeps its result, so none of those that are done is kept.
                path = futures.pop(future)
                try:
                    yield path, future.result()
                except BrokenProcessPool:
                    lost.append(path)
        finally:
            workers.shutdown(wait=False, cancel_futures=True)
    # One log has killed its process (probably for lack of memory) and broken the pool for the others.
    for path in lost:
        with open_process_pool(1) as workers:
            try:
                yield path, workers.submit(measure_log, path, cache).result()
            except BrokenProcessPool:
                yield path, build_unreadable_log(path, "the process that read it died, probably for lack of memory")


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


class _FleetRows:
    """Rows of the logs as they come, put into the order of the paths at the end.

    They are joined and compressed as they come: frames of single logs take more memory than their rows.
    """

    def __init__(self) -> None:
        self.n_logs, self.n_cached = 0, 0
        tables = (APPLICATIONS_MEASURED, EXECUTIONS, PIECES)
        self._single = [[table.frame([]).with_columns(**{_PLACE: pl.lit(0, pl.Int64)})] for table in tables]
        self._joined: list[list[bytes]] = [[] for _ in tables]

    def add(self, place: int, result: MeasuredLog) -> None:
        """Add a log whose path is at this place among all."""
        self.n_logs += 1
        self.n_cached += result.from_cache
        names = {"label": pl.lit("baseline"), "session": pl.lit(result.application["log"][0])}
        executions, pieces = (frame.with_columns(**names) for frame in vars(result.measured).values())
        for single, frame in zip(self._single, (result.application, executions, pieces), strict=True):
            single.append(frame.with_columns(**{_PLACE: pl.lit(place, pl.Int64)}))
        if len(self._single[0]) >= JOINED_LOGS:
            self._join_frames()

    def _join_frames(self) -> None:
        for joined, single in zip(self._joined, self._single, strict=True):
            if single:
                joined.append(pl.concat(single).write_ipc(None, compression="zstd").getvalue())
                single.clear()

    def build_fleet(self, filters: FleetFilters) -> MeasuredFleet:
        """The measurements of all logs; executions and pieces are those of usable ones."""
        self._join_frames()
        of_applications, of_executions, of_pieces = self._joined
        every_place = pl.int_range(self.n_logs, eager=True)
        rows = _sort_rows(APPLICATIONS_MEASURED, of_applications, every_place)
        rows = APPLICATIONS_MEASURED.check(_mark_attempts(_mark_duplicates(rows)))
        applications = _filter_applications(rows, filters)
        usable = applications.filter(~pl.col("status").is_in(NOT_COUNTED))["log"]
        places = rows["log"].is_in(usable.implode()).arg_true()
        measured = Measured(_sort_rows(EXECUTIONS, of_executions, places), _sort_rows(PIECES, of_pieces, places))
        n_filtered = rows.height - applications.height
        return MeasuredFleet(applications, measured, self.n_logs - self.n_cached, self.n_cached, n_filtered)


def _sort_rows(table: Table, joined: Sequence[bytes], places: pl.Series) -> pl.DataFrame:
    """The rows of the logs at these places, in their order; a column at a time, so that no table is there twice."""

    def read_column(name: str) -> pl.DataFrame:
        return pl.concat([pl.read_ipc(part, columns=[name]) for part in joined], rechunk=True)

    kept = read_column(_PLACE).with_row_index("row").filter(pl.col(_PLACE).is_in(places.implode()))
    order = kept.sort(_PLACE, maintain_order=True)["row"]
    return pl.DataFrame([read_column(name)[name].gather(order) for name in table.schema()])


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
        # Copies and earlier attempts do not count towards the limit, and stay with their application.
        originals = rows.filter(~unknown, ~pl.col("status").is_in(["duplicate", "superseded"]))
        newest = originals.sort("start_time_ms", "log", descending=[True, False], nulls_last=True).head(filters.newest)
        attempts = (pl.col("status") == "superseded") & pl.col("app_id").is_in(newest["app_id"].implode())
        copies = pl.col("reason").is_in((COPY_OF + newest["log"]).implode())
        kept = pl.col("log").is_in(newest["log"].implode()) | copies.fill_null(False) | attempts.fill_null(False)
        rows = rows.filter(unknown | kept)
    return rows
