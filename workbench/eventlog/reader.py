"""Read Spark event logs into tables, in memory (`read`) or into Parquet files (`write`)."""

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
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, InputError
from workbench.eventlog import tables
from workbench.eventlog.assemble import Assembler
from workbench.eventlog.chunks import CHUNK_BYTES, Cutter
from workbench.eventlog.fold import ChunkFacts, fold
from workbench.eventlog.redact import Redactor
from workbench.eventlog.scrub import scrub
from workbench.eventlog.sink import ParquetSink, Sink
from workbench.eventlog.sources import LogSource, find_all
from workbench.host import cores

if TYPE_CHECKING:
    import polars as pl

Progress = Callable[[int, int], None]
Task = Callable[[], object]
# Below this, starting a process costs more than it saves.
PARALLEL_BYTES = 48 << 20
# Chunks handed out per process: one at work, the others waiting while this process is busy. A range of a plain file
# costs nothing to hold, decoded bytes 32 MiB each.
RANGES_AHEAD, BLOCKS_AHEAD = 3, 2


@dataclass(frozen=True)
class Facts:
    """The tables of one or more logs, as declared in `workbench.eventlog.tables`."""

    logs: pl.DataFrame
    bad_lines: pl.DataFrame
    applications: pl.DataFrame
    environment: pl.DataFrame
    executors: pl.DataFrame
    sql_executions: pl.DataFrame
    plan_nodes: pl.DataFrame
    node_metrics: pl.DataFrame
    jobs: pl.DataFrame
    stages: pl.DataFrame
    stage_tasks: pl.DataFrame
    accumulators: pl.DataFrame
    failures: pl.DataFrame

    def of_log(self, log_id: int) -> Facts:
        """The same of one log alone."""
        import polars as pl

        wanted = pl.col("log_id") == log_id
        return Facts(**{field.name: getattr(self, field.name).filter(wanted) for field in fields(self)})


@dataclass(frozen=True)
class Written:
    """Where the tables were written, how many rows each has, and the (small) table of what was read."""

    paths: dict[str, Path]
    rows: dict[str, int]
    logs: pl.DataFrame
    applications: pl.DataFrame


def read(
    *paths: str | Path,
    jobs: int | None = None,
    redact: bool = False,
    progress: Progress | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Facts:
    """What does the application do, according to its event log?

    Parameters
    ----------
    paths
        Event logs: files, rolling directories, Databricks folders, or folders of any of these; local or fsspec URLs.
    jobs
        Processes to use; by default the machine's cores. Small logs are read in this process.
    redact
        Also hash users, hosts, paths and SQL literals (secrets are taken out always).
    progress
        Called with (bytes of decoded content read so far, log number) after every chunk.
    chunk_bytes
        Size of the pieces that are worked on side by side.

    Returns
    -------
    Facts
        One polars table per attribute; columns, units and null rules are those of `workbench.eventlog.tables`.

    Raises
    ------
    InputError
        A path has no event log, or none of the logs found holds an event. A damaged or cut log is no error: its
        facts up to the damage are given, `logs.fault` and `applications.status` say so.

    Examples
    --------
    >>> facts = read("data/samples/eventlogs")  # doctest: +SKIP
    >>> facts.stages.select("stage_id", "duration_ms")  # doctest: +SKIP
    """
    sink = Sink()
    _run(paths, sink, jobs=jobs, redact=redact, progress=progress, chunk_bytes=chunk_bytes)
    return Facts(**sink.frames())


def write(
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    jobs: int | None = None,
    redact: bool = False,
    csv: bool = False,
    progress: Progress | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    meanwhile: Sequence[Task] = (),
) -> Written:
    """Read event logs into Parquet files (and CSV on request) below `folder`, in bounded memory.

    Same parameters, tables and errors as `read`; rows lie on disk as soon as they are final. The tasks in `meanwhile`
    (such as hashing the inputs) run in threads beside the reading, and are done when this returns.
    """
    folder = Path(folder)
    with ParquetSink(folder) as sink:
        _run(paths, sink, jobs=jobs, redact=redact, progress=progress, chunk_bytes=chunk_bytes, meanwhile=meanwhile)
        written = sink.finish()
    logs, applications = (table.read(folder) for table in (tables.LOGS, tables.APPLICATIONS))
    if csv:
        for table in tables.ALL:
            written[f"{table.name}.csv"] = _write_csv(table.read(folder), written[table.name].with_suffix(".csv"))
    return Written(written, sink.rows, logs, applications)


def _write_csv(frame: pl.DataFrame, path: Path) -> Path:
    import polars as pl

    from workbench.files import replacing
    from workbench.tables import for_spreadsheets

    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    flat = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" "))
    with replacing(path) as temporary:
        for_spreadsheets(flat).write_csv(temporary)
    return path


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Events and rows form no cycles, and looking for some costs up to a third of the time."""
    import gc

    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_collector_paused()
def _run(
    paths: Sequence[str | Path],
    sink: Sink,
    *,
    jobs: int | None,
    redact: bool,
    progress: Progress | None,
    chunk_bytes: int,
    meanwhile: Sequence[Task] = (),
) -> None:
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs must be at least 1", found=jobs)
    sources = find_all(paths)
    redactor = Redactor(strict=redact)
    assemblers = [Assembler(number, source, sink, redactor) for number, source in enumerate(sources)]
    cutters = [Cutter(number, source, chunk_bytes) for number, source in enumerate(sources)]
    done = 0
    current = 0
    for facts in _folded(cutters, _processes(jobs, sources), (*meanwhile, _load_polars)):
        for finished in range(current, facts.log):
            assemblers[finished].finish(cutters[finished].faults)
        current = facts.log
        assemblers[facts.log].take(facts)
        done += facts.bytes
        if progress:
            progress(done, facts.log)
    for finished in range(current, len(sources)):
        assemblers[finished].finish(cutters[finished].faults)
    if not any(assembler.events for assembler in assemblers):
        raise InputError(
            "no Spark event in it",
            where=", ".join(scrub(source.path) for source in sources[:5]),
            found=f"{sum(assembler.lines for assembler in assemblers)} lines, none of them a Spark event",
            do="give the file that Spark wrote below spark.eventLog.dir",
        )


def _processes(jobs: int | None, sources: list[LogSource]) -> int:
    wanted = jobs or cores()
    # Compressed logs hold about ten times their size.
    content = sum(file.size_bytes * (1 if file.codec == "plain" else 10) for source in sources for file in source.files)
    return wanted if content >= PARALLEL_BYTES else 1


def _folded(cutters: list[Cutter], processes: int, meanwhile: Sequence[Task]) -> Iterator[ChunkFacts]:
    """The facts of all chunks in order, folded in `processes` processes; other tasks run in threads beside."""
    chunks = (chunk for cutter in cutters for chunk in cutter.chunks())
    with ThreadPoolExecutor(len(meanwhile)) as thread:
        if processes == 1:
            tasks = [thread.submit(task) for task in meanwhile]
            yield from map(fold, chunks)
        else:
            with ProcessPoolExecutor(processes, mp_context=_process_context(), initializer=_quiet) as pool:
                plain = all(file.codec == "plain" and file.local for cutter in cutters for file in cutter.source.files)
                ahead = processes * (RANGES_AHEAD if plain else BLOCKS_AHEAD)
                waiting = deque(pool.submit(fold, chunk) for chunk in islice(chunks, ahead))
                # Only now: a process is best forked while no thread runs.
                tasks = [thread.submit(task) for task in meanwhile]
                try:
                    while waiting:
                        yield waiting.popleft().result()
                        waiting.extend(pool.submit(fold, chunk) for chunk in islice(chunks, 1))
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
        for task in tasks:
            task.result()


def _process_context() -> BaseContext:
    """Fork while this process has one thread and no polars (the command line): nothing is imported again.

    Otherwise a fresh interpreter: a fork would copy the locks of threads that do not run in the copy.
    """
    alone = threading.active_count() == 1 and "polars" not in sys.modules
    return multiprocessing.get_context("fork" if alone and sys.platform == "linux" else "spawn")


def _load_polars() -> None:
    """Importing takes 0.3 s, which pass while the log is read."""
    import polars as pl  # noqa: F401


def _quiet() -> None:
    """Workers leave Ctrl-C to the parent, and the collector alone: their structures form no cycles."""
    import gc
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
