"""The fleet's reader inside Spark: `mapInPandas` over the paths, one log a task."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import MissingToolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from workbench.speedup.fleet import LogMeasured

NEEDED = ("pyspark", "pandas", "pyarrow")
SCHEMA = "path string, application binary, executions binary, pieces binary"
MAX_TASKS = 10_000


def measure_on_spark(paths: Sequence[str], spark: SparkSession | None = None) -> Iterator[tuple[str, LogMeasured]]:
    """Each path with what was measured of its log by a task of Spark, as tasks end.

    Raises
    ------
    MissingToolError
        pyspark, or what its `mapInPandas` needs, is not installed.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise MissingToolError(
            "the Spark backend needs packages that are not installed",
            found=missing,
            do="pip install 'pyspark>=3.5,<3.6' 'pandas<3' pyarrow, or --backend local",
        )
    session, ours = (spark, False) if spark is not None else _session()
    try:
        rows = session.sparkContext.parallelize([(path,) for path in paths], min(len(paths), MAX_TASKS))
        frame = session.createDataFrame(rows, "path string").mapInPandas(_measured, SCHEMA)
        for row in frame.toLocalIterator(prefetchPartitions=True) if not ours else frame.collect():
            yield row["path"], unpack(row.asDict())
    finally:
        if ours:
            session.stop()


def pack(result: LogMeasured) -> dict[str, bytes]:
    """A result as bytes by name, to cross a border that knows no polars."""
    frames = {
        "application": result.application,
        "executions": result.measured.executions,
        "pieces": result.measured.pieces,
    }
    return {name: frame.write_ipc(None, compression="zstd").getvalue() for name, frame in frames.items()}


def unpack(packed: Mapping[str, Any]) -> LogMeasured:
    """The result of `pack`, checked against the tables' declarations."""
    import polars as pl

    from workbench.speedup.fleet import CACHED, LogMeasured
    from workbench.speedup.measured import Measured

    names = ("application", "executions", "pieces")
    application, executions, pieces = (
        table.check(pl.read_ipc(bytes(packed[name]))) for table, name in zip(CACHED, names, strict=True)
    )
    return LogMeasured(application, Measured(executions, pieces))


def _session() -> tuple[SparkSession, bool]:
    """The active session, or one of our own, which is stopped afterwards."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    from workbench.spark import java

    for name, value in java.environment().items():
        os.environ.setdefault(name, value)
    return SparkSession.builder.appName("workbench speedup fleet").getOrCreate(), True


def _measured(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs on the executors: a pandas frame of one row for each path."""
    pd = importlib.import_module("pandas")

    from workbench.speedup.fleet import measure_log

    for batch in batches:
        for path in batch["path"]:
            row: dict[str, Any] = {"path": path} | pack(measure_log(path))
            yield pd.DataFrame([row])
