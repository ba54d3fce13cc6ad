"""Raw tables of a run, made from the lines that it wrote.

Lines are read by polars, which is the only way to have 100,000 workloads in seconds; times become seconds since the
run's origin, by the clock they were taken with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import polars as pl

from workbench.core.errors import InputError
from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import (
    BEATS,
    GAPS,
    HOLDINGS,
    LOAD,
    NODE_CHANGES,
    NODES,
    PRESSURE,
    SCHEDULE,
    SKEW,
    SUBMISSIONS,
    TRANSITIONS,
)

MAX_FILE_BYTES = 8 << 30
_DTYPES = {int: pl.Int64, float: pl.Float64, str: pl.String, bool: pl.Boolean}
# Fields that no table holds.
_UNREAD = {"resumed", "mode", "in_flight_most", "text", "spoils", "kind", "resource_version"}


def write_raw_tables(folder: str | Path) -> None:
    """Write the raw tables of a run: what was sent, what was seen, and how well we could see it."""
    place = Path(folder)
    run_records.read_conditions(place)
    tables = place / "tables"
    journal = _read_lines(place / run_records.JOURNAL, run_records.JournalLine)
    # Nanoseconds since 1970 of the run's first start, which all seconds of its tables are counted from.
    begun = journal.filter(pl.col("type") == "begun")["origin_ns"].drop_nulls()
    if not len(begun):
        raise InputError("nothing was submitted", where=place / run_records.JOURNAL, found="no begin")
    origin = int(begun[0])
    SUBMISSIONS.write(_build_submissions(SCHEDULE.read(tables), journal, origin), tables)
    observed = _read_lines(place / run_records.OBSERVED, run_records.ObservedLine)
    TRANSITIONS.write(_build_transitions(observed, origin), tables)
    NODES.write(_build_nodes(observed), tables)
    NODE_CHANGES.write(_build_node_changes(observed, origin), tables)
    # Build table HOLDINGS: what pods that are not of this run hold and wait for.
    rows = observed.filter(pl.col("type") == "held")
    at = _seconds_since("arrival_ns", origin).alias("at_s")
    asks = pl.col("asks").fill_null("")
    holdings = HOLDINGS.check(rows.select(at, "uid", "namespace", "run", "state", "node", asks))
    HOLDINGS.write(holdings, tables)
    health = _read_lines(place / run_records.HEALTH, run_records.HealthLine)
    GAPS.write(_build_gaps(health, origin), tables)
    # Build table BEATS, the heartbeats that measure the watch's lag.
    rows = health.filter(pl.col("type") == "beat")
    beats = BEATS.check(
        rows.select(
            _seconds_since("sent_ns", origin).alias("sent_s"),
            ((pl.col("acked_ns") - pl.col("sent_ns")) / NS_PER_S).alias("ack_s"),
            ((pl.col("seen_ns") - pl.col("acked_ns")) / NS_PER_S).alias("lag_s"),
        )
    )
    BEATS.write(beats, tables)
    # Build table SKEW, the bounds of the clock offset between client and servers.
    rows = health.filter(pl.col("type") == "skew")
    skew = SKEW.check(
        rows.select(
            _seconds_since("at_ns", origin).alias("at_s"),
            (pl.col("low_ns") / NS_PER_S).alias("low_s"),
            (pl.col("high_ns") / NS_PER_S).alias("high_s"),
            "probes",
        )
    )
    SKEW.write(skew, tables)
    # Build table LOAD, how busy this machine was.
    rows = health.filter(pl.col("type") == "load")
    load = LOAD.check(
        rows.select(
            _seconds_since("at_ns", origin).alias("at_s"),
            "sampler_cpu_s",
            "sampler_rss_bytes",
            "host_busy",
            "client",
            "side",
            "others",
        )
    )
    LOAD.write(load, tables)
    PRESSURE.write(_build_pressure(health, origin), tables)


def _read_lines(path: Path, kinds: Any) -> pl.DataFrame:
    """Read a file of these kinds of records, one column per field; a line that a kill cut off is left out.

    Columns: `type`, and each field of these records that some table holds.
    """
    schema: dict[str, Any] = {"type": pl.String}
    for field in (field for kind in get_args(kinds) for field in msgspec.structs.fields(kind)):
        scalars = [kind for kind in get_args(field.type) or (field.type,) if kind in _DTYPES]
        if get_origin(field.type) is not dict and field.name not in _UNREAD:
            schema[field.name] = _DTYPES[scalars[0]]
    if not path.is_file() or not path.stat().st_size:
        return pl.DataFrame(schema=schema)
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InputError("too large", where=path, allowed=f"{MAX_FILE_BYTES} bytes")
    text = path.read_bytes()
    complete_text = text[: text.rfind(b"\n") + 1]
    if not complete_text:
        return pl.DataFrame(schema=schema)
    try:
        return pl.read_ndjson(complete_text, schema=schema)
    except pl.exceptions.PolarsError as error:
        raise InputError("not the lines of a scale test", where=path, found=str(error)[:200]) from None


def _seconds_since(name: str, origin: int) -> pl.Expr:
    return (pl.col(name) - origin) / NS_PER_S


def _server_seconds(name: str, origin: int) -> tuple[pl.Expr, pl.Expr]:
    """Expressions for a time that Kubernetes wrote as text: seconds since the origin, and its resolution in seconds."""
    text = pl.col(name)
    fraction = text.str.extract(r"\.(\d{1,9})")
    real = ~text.str.starts_with("0001")
    parsed = text.str.to_datetime("%+", time_unit="ns", time_zone="UTC", strict=False).dt.epoch("ns")
    digits = fraction.str.len_chars().fill_null(0).cast(pl.Float64)
    at = pl.when(real).then((parsed - origin) / NS_PER_S)
    return at, pl.when(at.is_not_null()).then(pl.lit(10.0).pow(-digits))


def _build_submissions(schedule: pl.DataFrame, journal: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Build table SUBMISSIONS; of several results for a workload the first one that the server has counts.

    `schedule`: `index, name, due_s`. `journal`: Lines of the journal. `origin`: Start of the run in ns since 1970.
    """
    created, _ = _server_seconds("created", origin)
    ended = (
        journal.filter(pl.col("type").is_in(["acked", "failed"]))
        .sort("type", "at_ns")  # "acked" before "failed"
        .unique("index", keep="first", maintain_order=True)
        .select(
            "index",
            pl.when(pl.col("type") == "failed")
            .then(pl.lit("failed"))
            .when(pl.col("known").fill_null(value=False))
            .then(pl.lit("known"))
            .otherwise(pl.lit("created"))
            .alias("status"),
            _seconds_since("sent_ns", origin).alias("sent_s"),
            pl.when(pl.col("type") == "acked").then(_seconds_since("at_ns", origin)).alias("acked_s"),
            created.alias("created_s"),
            # 0 is the exit code of a command, which tells no answer of the server.
            pl.when(pl.col("status") > 0).then("status").alias("http_status"),
            pl.col("attempts").fill_null(1),
            pl.col("throttled").fill_null(0),
            (pl.col("throttled_ns").fill_null(0) / NS_PER_S).alias("throttled_s"),
            "uid",
            pl.when(pl.col("type") == "failed").then(pl.col("reason")).alias("reason"),
        )
    )
    intents = journal.filter(pl.col("type") == "intent").group_by("index").agg(pl.col("at_ns").min())
    frame = (
        schedule.select("index", "name", "due_s")
        .join(ended, on="index", how="left")
        .join(intents.select("index", _seconds_since("at_ns", origin).alias("intent_s")), on="index", how="left")
    )
    # After a crash the first attempt is the intent that is on disk, whatever the later process sent.
    is_known = pl.col("status") == "known"
    first = pl.when(is_known).then(pl.min_horizontal("sent_s", "intent_s")).otherwise(pl.col("sent_s"))
    return SUBMISSIONS.check(
        frame.with_columns(
            first.alias("sent_s"),
            # Its acceptance was not recorded.
            pl.when(~is_known).then("acked_s").alias("acked_s"),
            pl.col("status").fill_null("unsent"),
            pl.col("attempts").fill_null(0),
            pl.col("throttled").fill_null(0),
            pl.col("throttled_s").fill_null(0.0),
        ).sort("index")
    )


def _build_transitions(observed: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Build table TRANSITIONS without repeats: a restarted sampler sees old ones again, later and less exactly.

    `observed`: Lines of the sampler's file of objects. `origin`: Start of the run in ns since 1970.
    """
    at, resolution = _server_seconds("server", origin)
    frame = observed.filter(pl.col("type") == "seen").with_columns(
        pl.when(pl.col("resource") != "audit").then(_seconds_since("arrival_ns", origin)).alias("arrival_s"),
        at.alias("server_s"),
        resolution.alias("resolution_s"),
        pl.col("session").fill_null(0),
        pl.col("gap").fill_null(value=False),
    )
    seen = frame.unique(["resource", "uid", "name", "transition"], keep="first", maintain_order=True)
    return TRANSITIONS.check(seen)


def _build_nodes(observed: pl.DataFrame) -> pl.DataFrame:
    """Build table NODES: the largest capacity that each node ever offered, ready if it ever was.

    This includes a node that came up late; a deleted node has a final row: not ready, without capacity.
    """
    by_node = observed.filter(pl.col("type") == "node").group_by("name", maintain_order=True)
    return NODES.check(
        by_node.agg(
            *(pl.col(name).fill_null(value=False).any() for name in ("ready", "simulated")),
            *(pl.col(name).fill_null(0).max() for name in ("gpus", "memory_bytes", "pods")),
            pl.col("cpus").fill_null(0.0).max(),
        )
    )


def _build_node_changes(observed: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Build table NODE_CHANGES; a cordoned node counts as not ready.

    `observed`: Lines of the sampler's file of objects. `origin`: Start of the run in ns since 1970.
    """
    rows = observed.filter((pl.col("type") == "node") & pl.col("arrival_ns").is_not_null())
    return NODE_CHANGES.check(
        rows.select(
            _seconds_since("arrival_ns", origin).alias("at_s"),
            "name",
            pl.col("ready").fill_null(value=False) & ~pl.col("cordoned").fill_null(value=False),
            pl.col("gpus").fill_null(0),
            pl.col("offers").replace("", None),
        )
    )


def _build_gaps(health: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Build table GAPS, the times in which a watch was interrupted.

    `health`: Lines of the sampler's file on itself. `origin`: Start of the run in ns since 1970.
    """
    rows = health.filter(pl.col("type") == "gap")
    return GAPS.check(
        rows.select(
            "resource",
            _seconds_since("from_ns", origin).alias("from_s"),
            _seconds_since("to_ns", origin).alias("to_s"),
            "reason",
            pl.col("relisted").fill_null(value=False),
            pl.col("recovered").fill_null(0),
        )
    )


def _build_pressure(health: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Build table PRESSURE, the components' own metrics: a value is the mean of the observations, else a level.

    `health`: Lines of the sampler's file on itself. `origin`: Start of the run in ns since 1970.
    """
    rows = health.filter(pl.col("type") == "pressure").with_columns(pl.col("subject").fill_null(""))
    counted = pl.col("count").is_not_null()
    measures = rows.select(
        _seconds_since("at_ns", origin).alias("at_s"),
        "over_s",
        "component",
        "measure",
        "subject",
        pl.col("count").alias("n"),
        pl.when(counted).then("value").alias("mean_s"),
        pl.col("p99").alias("p99_s"),
        pl.when(~counted).then("value").alias("level"),
    )
    return PRESSURE.check(measures)
