"""Read Spark event logs into tables, in memory (`read_event_logs`) or as Parquet files (`write_tables`)."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.core.errors import ConfigError, InputError
from workbench.core.host import count_cores
from workbench.eventlog import tables
from workbench.eventlog.assemble import LogAssembler
from workbench.eventlog.fold import ChunkFacts, fold_chunk
from workbench.eventlog.log_redaction import Redactor, remove_secrets
from workbench.eventlog.sources import CHUNK_BYTES, LogCutter, list_all_logs
from workbench.eventlog.table_sink import ParquetSink, TableSink

if TYPE_CHECKING:
    import polars as pl

Progress = Callable[[int, int], None]
Task = Callable[[], object]
# Below this size, starting a process costs more than it saves.
PARALLEL_BYTES = 48 << 20
# Chunks submitted per process: one at work, the others queued. A range of a plain file takes no memory, decoded bytes
# 32 MiB each.
RANGES_AHEAD, BLOCKS_AHEAD = 3, 2


@dataclass(frozen=True)
class EventLogFacts:
    """The tables of one or more logs, as declared in `workbench.eventlog.tables`."""

    logs: pl.DataFrame
    bad_lines: pl.DataFrame
    applications: pl.DataFrame
    environment: pl.DataFrame
    executors: pl.DataFrame
    resources: pl.DataFrame
    sql_executions: pl.DataFrame
    plan_nodes: pl.DataFrame
    node_metrics: pl.DataFrame
    jobs: pl.DataFrame
    stages: pl.DataFrame
    stage_tasks: pl.DataFrame
    accumulators: pl.DataFrame
    failures: pl.DataFrame
    completeness: pl.DataFrame

    def select_log(self, log_id: int) -> EventLogFacts:
        """The tables of one log."""
        import polars as pl

        wanted = pl.col("log_id") == log_id
        return EventLogFacts(**{field.name: getattr(self, field.name).filter(wanted) for field in fields(self)})

    def join_stage_tasks(self) -> pl.DataFrame:
        """Stage attempts whose tasks ended, with both their tables' columns; of one log."""
        return self.stages.join(self.stage_tasks, on=["stage_id", "stage_attempt_id"])


@dataclass(frozen=True)
class WriteResult:
    """Paths and numbers of rows of the written tables, and the small ones: `logs`, `applications`, `completeness`."""

    paths: dict[str, Path]
    rows: dict[str, int]
    logs: pl.DataFrame
    applications: pl.DataFrame
    completeness: pl.DataFrame


def read_event_logs(
    *paths: str | Path,
    jobs: int | None = None,
    redact: bool = False,
    progress: Progress | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> EventLogFacts:
    """Read event logs into tables.

    Parameters
    ----------
    paths
        Files, rolling directories, Databricks folders, or folders of these; local paths or fsspec URLs.
    jobs
        Number of processes, by default the number of cores. Small logs are read in this process.
    redact
        Also hash users, hosts, paths and SQL literals (secrets are always removed).
    progress
        Called with (decoded bytes so far, log number) after every chunk.
    chunk_bytes
        Size of the chunks that are folded in parallel.

    Returns
    -------
    EventLogFacts
        One polars table per attribute; columns and units as declared in `workbench.eventlog.tables`.

    Raises
    ------
    InputError
        A path has no event log, or no log has an event. Damaged and cut logs are read up to the damage, with
        `logs.fault` and `applications.status`.

    Examples
    --------
    >>> facts = read_event_logs("data/samples/eventlogs")  # doctest: +SKIP
    >>> facts.stages.select("stage_id", "duration_ms")  # doctest: +SKIP
    """
    sink = TableSink()
    _read_into_sink(paths, sink, jobs=jobs, redact=redact, progress=progress, chunk_bytes=chunk_bytes)
    return EventLogFacts(**sink.table_frames())


def write_tables(
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    jobs: int | None = None,
    redact: bool = False,
    csv: bool = False,
    progress: Progress | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    meanwhile: Sequence[Task] = (),
) -> WriteResult:
    """Read event logs into Parquet files (and CSV on request) below `folder`, in bounded memory.

    Parameters, tables and errors are those of `read_event_logs`. Tasks in `meanwhile` (such as hashing the inputs) run
    in threads during the reading, and are finished on return.
    """
    folder = Path(folder)
    with ParquetSink(folder) as sink:
        _read_into_sink(
            paths, sink, jobs=jobs, redact=redact, progress=progress, chunk_bytes=chunk_bytes, meanwhile=meanwhile
        )
        written = sink.write_files()
    small = [table.read(folder) for table in (tables.LOGS, tables.APPLICATIONS, tables.COMPLETENESS)]
    if csv:
        for table in tables.ALL_TABLES:
            written[f"{table.name}.csv"] = _write_csv(table.read(folder), written[table.name].with_suffix(".csv"))
    return WriteResult(written, sink.rows, *small)


def _write_csv(frame: pl.DataFrame, path: Path) -> Path:
    import polars as pl

    from workbench.core.files import replace_atomically
    from workbench.core.tables import escape_formulas

    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    flat = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" "))
    with replace_atomically(path) as temporary:
        escape_formulas(flat).write_csv(temporary)
    return path


@contextlib.contextmanager
def _pause_garbage_collector() -> Iterator[None]:
    """Events and rows form no cycles, and the collector would cost up to a third of the time."""
    import gc

    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_pause_garbage_collector()
def _read_into_sink(
    paths: Sequence[str | Path],
    sink: TableSink,
    *,
    jobs: int | None,
    redact: bool,
    progress: Progress | None,
    chunk_bytes: int,
    meanwhile: Sequence[Task] = (),
) -> None:
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs must be at least 1", found=jobs)
    sources = list_all_logs(paths)
    redactor = Redactor(strict=redact)
    assemblers = [LogAssembler(number, source, sink, redactor) for number, source in enumerate(sources)]
    cutters = [LogCutter(number, source, chunk_bytes) for number, source in enumerate(sources)]
    n_bytes = 0
    current = 0
    wanted = jobs or count_cores()
    # Compressed logs hold about ten times their size.
    content = sum(file.size_bytes * (1 if file.codec == "plain" else 10) for source in sources for file in source.files)
    for facts in _reread_streams(
        cutters, _fold_chunks(cutters, wanted if content >= PARALLEL_BYTES else 1, (*meanwhile, _load_polars))
    ):
        for finished in range(current, facts.log):
            assemblers[finished].finish(cutters[finished].faults)
        current = facts.log
        assemblers[facts.log].take_chunk(facts)
        n_bytes += facts.bytes
        if progress:
            progress(n_bytes, facts.log)
    for finished in range(current, len(sources)):
        assemblers[finished].finish(cutters[finished].faults)
    if not any(assembler.events for assembler in assemblers):
        raise InputError(
            "no Spark event in it",
            where=", ".join(remove_secrets(source.path) for source in sources[:5]),
            found=f"{sum(assembler.lines for assembler in assemblers)} lines, and no Spark event among them",
            do="give the file that Spark wrote below spark.eventLog.dir",
        )


def _fold_chunks(cutters: list[LogCutter], processes: int, meanwhile: Sequence[Task]) -> Iterator[ChunkFacts]:
    """Facts of all chunks in order, folded in `processes` processes; other tasks run in threads."""
    chunks = (chunk for cutter in cutters for chunk in cutter.iter_chunks())
    with ThreadPoolExecutor(len(meanwhile)) as thread:
        if processes == 1:
            tasks = [thread.submit(task) for task in meanwhile]
            yield from map(fold_chunk, chunks)
        else:
            # Fork while this process has one thread and no polars (on the command line), which saves imports; else
            # spawn. A fork with threads would copy their locks.
            alone = threading.active_count() == 1 and "polars" not in sys.modules
            mp_context = multiprocessing.get_context("fork" if alone and sys.platform == "linux" else "spawn")
            with ProcessPoolExecutor(processes, mp_context=mp_context, initializer=_prepare_worker) as pool:
                plain = all(file.codec == "plain" and file.local for cutter in cutters for file in cutter.source.files)
                ahead = processes * (RANGES_AHEAD if plain else BLOCKS_AHEAD)
                waiting = deque(pool.submit(fold_chunk, chunk) for chunk in islice(chunks, ahead))
                # Threads start after the forks.
                tasks = [thread.submit(task) for task in meanwhile]
                try:
                    while waiting:
                        yield waiting.popleft().result()
                        waiting.extend(pool.submit(fold_chunk, chunk) for chunk in islice(chunks, 1))
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
        for task in tasks:
            task.result()


def _reread_streams(cutters: list[LogCutter], folded: Iterator[ChunkFacts]) -> Iterator[ChunkFacts]:
    """The same facts; a zstd file is read in one stream from the first frames that could not be read by themselves."""
    streamed = None
    for facts in folded:
        if (facts.log, facts.file) == streamed:
            continue
        if facts.reread_from is None:
            yield facts
            continue
        streamed = facts.log, facts.file
        yield from map(fold_chunk, cutters[facts.log].iter_stream(facts.file, facts.reread_from))


def _load_polars() -> None:
    """Import polars during the reading; it takes 0.3 s."""
    import polars as pl  # noqa: F401


def _prepare_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and disable the garbage collector."""
    import gc
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
