"""One measured log: its row, its executions and pieces; measured, cached, packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.core.errors import WorkbenchError
from workbench.eventlog.log_redaction import remove_secrets
from workbench.eventlog.reader import read_event_logs
from workbench.eventlog.sources import list_logs
from workbench.speedup.attribution.time_pieces import (
    Measured,
    build_application_row,
    build_unreadable_row,
    concat_measured_logs,
    list_streaming_ids,
    measure_log_times,
)
from workbench.speedup.fleet.fleet_logs import FactsCache, hash_log
from workbench.speedup.tables import APPLICATIONS_MEASURED, EXECUTIONS, PIECES

CACHED_TABLES = (APPLICATIONS_MEASURED, EXECUTIONS, PIECES)


@dataclass(frozen=True)
class MeasuredLog:
    """One log: its row of `APPLICATIONS_MEASURED`, its executions and pieces, and whether they are from the cache."""

    application: pl.DataFrame
    measured: Measured
    from_cache: bool = False


def measure_log(path: str, cache: FactsCache | None = None) -> MeasuredLog:
    """Measure one log, or load it from the cache; its row has any error. Label and session are empty."""
    try:
        source = list_logs(path)[0]
        key = cache.hash_source(source) if cache else hash_log(source)
        if cache and (frames := cache.load_tables(key, CACHED_TABLES)) is not None:
            return build_cached_log(frames, path)
        facts = read_event_logs(path, jobs=1)
        measured = measure_log_times(facts, "", "").select(~pl.col("sql_id").is_in(list_streaming_ids(facts)))
        row = APPLICATIONS_MEASURED.frame([build_application_row(facts, "", key)])
    except WorkbenchError as error:
        detail = error.facts.get("found")
        return build_unreadable_log(path, error.what + (f": {detail}" if detail else ""))
    except Exception as error:  # noqa: BLE001 - one bad log must not stop the reading of the others
        return build_unreadable_log(path, f"{type(error).__name__}: {error}")
    if cache:
        cache.store_tables(key, dict(zip(CACHED_TABLES, (row, measured.executions, measured.pieces), strict=True)))
    return MeasuredLog(_set_log_name(row, path), measured)


def _set_log_name(row: pl.DataFrame, path: str) -> pl.DataFrame:
    """The row of APPLICATIONS_MEASURED with its column `log`: rows of the cache have none, because files move."""
    return row.with_columns(log=pl.lit(remove_secrets(path)))


def build_unreadable_log(path: str, reason: str) -> MeasuredLog:
    """A log that could not be read: its row has the reason."""
    row = APPLICATIONS_MEASURED.frame(
        [build_unreadable_row(remove_secrets(path), remove_secrets(" ".join(reason.split())))]
    )
    return MeasuredLog(row, concat_measured_logs([]))


def build_cached_log(frames: Mapping[str, pl.DataFrame], path: str) -> MeasuredLog:
    """A log from the tables of the cache, under the path that it has now."""
    application, executions, pieces = (frames[table.name] for table in CACHED_TABLES)
    return MeasuredLog(_set_log_name(application, path), Measured(executions, pieces), from_cache=True)


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
