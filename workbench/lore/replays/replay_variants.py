"""Variants of a replay: engine settings, and run times measured in turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import stats
from workbench.core.errors import MissingToolError
from workbench.lore import tables
from workbench.lore.replays.operator_times import (
    CONFIDENCE_LEVEL,
    MIN_ADAPTIVE_RUNS,
    build_timing_row,
    is_enough,
    summarize_differences,
)
from workbench.lore.replays.run_costs import CostMeter, list_metric_rows
from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

# Fraction of the operator's time to which its interval shall narrow, and seconds after which measuring ends.
TIGHT = 0.1
BUDGET_S = 60.0
# Untimed turns before the timed ones, and seconds after which no further one begins.
WARM_UP_TURNS = 10
WARM_UP_S = 2.0
# Nodes of an engine that only convert rows to its batches.
CONVERSION_NODES = ("CometSparkToColumnarExec", "CometSparkRowToColumnarExec")


# Classes of an engine in the results and errors of its tasks.
SERIAL_FILTER = {"comet": "org.apache.comet.**;org.apache.spark.sql.comet.**;"}
# Nodes of Comet that only convert between rows and batches.
_BORDER_NODES = (*CONVERSION_NODES, "CometColumnarToRowExec", "CometNativeColumnarToRowExec", "CometSinkPlaceHolder")


@dataclass(frozen=True)
class ReplayVariant:
    """A variant of the operator: name, settings, and how to build it.

    `make`: Builds the operator again, so that no broadcast of an earlier run is reused.
    `accelerated`: Whether the engine's operator ran; null without an engine.
    """

    name: str
    make: Callable[[], RebuiltOperator]
    settings: Mapping[str, str] = field(default_factory=dict)
    accelerated: bool | None = None


@dataclass(frozen=True)
class ReplayTimings:
    """Run times of all variants.

    `ratio`: Operator time of A over that of B, paired by repeat; null with one variant, or where total minus scan is
    not above zero.
    `verdict`: FASTER, SLOWER, SAME or UNDECIDED for B against A; null without a ratio.
    """

    sides: pl.DataFrame
    timings: pl.DataFrame
    metrics: pl.DataFrame
    ratio: stats.Interval | None = None
    verdict: str | None = None


def measure_variants(
    sides: Sequence[ReplayVariant],
    repeat: int,
    *,
    meter: CostMeter,
    tight: float = TIGHT,
    budget_s: float = BUDGET_S,
    on_progress: Callable[[int, int], None] | None = None,
) -> ReplayTimings:
    """Time each variant in turn, with alternating order, until the times are tight or the budget ends.

    `repeat`: Least number of timed runs of each, exact below 10; the caller has run each once as a warm-up.
    """
    timings: list[dict[str, Any]] = []
    last: dict[str, RebuiltOperator] = {}
    # Scans use separate nodes, since metrics of shared ones would count both.
    scanned = {side.name: side.make() for side in sides}
    _warm_up(sides, scanned, repeat)
    begun = time.perf_counter()
    turns: dict[str, list[float]] = {side.name: [] for side in sides}
    number = 0
    while not is_enough(
        list(turns.values()),
        repeat=repeat,
        tight=tight,
        elapsed_s=time.perf_counter() - begun,
        budget_s=budget_s,
    ):
        number += 1
        for side in sides if number % 2 else reversed(sides):
            rebuilt = last[side.name] = side.make()
            with rebuilt.bridge.propagate_settings():
                scan = meter.measure_run(lambda operator=scanned[side.name]: scan_inputs(operator))  # type: ignore[misc]
                total = meter.measure_run(lambda operator=rebuilt: operator.output_rdd().count())  # type: ignore[misc]
            row = build_timing_row(side.name, number, scan, total)
            timings.append(row)
            turns[side.name].append(row["operator_s"] if row["operator_cpu_s"] is None else row["operator_cpu_s"])
            if on_progress:
                on_progress(len(timings), max(repeat * len(sides), len(timings)))
    metrics = [row for name, operator in last.items() for row in list_metric_rows(name, operator.read_metrics())]
    return _build_timings(sides, timings, metrics)


def _warm_up(sides: Sequence[ReplayVariant], scanned: Mapping[str, RebuiltOperator], repeat: int) -> None:
    """Run scans and operators untimed: the JVM compiles code in the first runs, whose CPU time is more."""
    begun = time.perf_counter()
    for number in range(WARM_UP_TURNS if repeat >= MIN_ADAPTIVE_RUNS else min(repeat, 1)):
        for side in sides:
            scan_inputs(scanned[side.name])
            if repeat >= MIN_ADAPTIVE_RUNS:
                with scanned[side.name].bridge.propagate_settings():
                    scanned[side.name].output_rdd().count()
        if number and time.perf_counter() - begun > WARM_UP_S:
            break


def _build_timings(
    sides: Sequence[ReplayVariant], timings: list[dict[str, Any]], metrics: list[dict[str, Any]]
) -> ReplayTimings:
    frame = tables.TIMINGS.frame(timings)
    summaries = tables.SIDES.frame([_summarize_times(side, frame) for side in sides])
    return ReplayTimings(summaries, frame, tables.METRICS.frame(metrics), *_compare_times(frame, sides))


def scan_inputs(rebuilt: RebuiltOperator) -> None:
    """Read all inputs as the operator gets them, and discard the rows."""
    bridge = rebuilt.bridge
    bridge.activate()
    rdds = [
        node.executeColumnar() if simple_class_name(node) in CONVERSION_NODES else node.execute()
        for node in rebuilt.scans or find_baseline_nodes(rebuilt.plan, bridge)
    ]
    tag = rdds[0].elementClassTag()
    rows = [rdd for rdd in rdds if rdd.elementClassTag().equals(tag)]
    bridge.context._jsc.sc().union(bridge.to_scala_seq(rows), tag).count()
    for rdd in rdds:
        if rdd not in rows:
            rdd.count()


def find_baseline_nodes(plan: Any, bridge: Bridge) -> list[Any]:
    """Leaves of a replayed plan, with the conversion of an engine where there is one."""
    if simple_class_name(plan) == "RDDScanExec":
        return [plan]
    children = bridge.to_list(plan.children())
    if simple_class_name(plan) in CONVERSION_NODES and simple_class_name(children[0]) == "RDDScanExec":
        return [plan]
    below = [*children, *(subquery.child() for subquery in bridge.to_list(plan.subqueries()))]
    return [leaf for child in below for leaf in find_baseline_nodes(child, bridge)]


def _summarize_times(side: ReplayVariant, timings: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    side_timings = timings.filter(pl.col("side") == side.name)
    row: dict[str, Any] = {
        "side": side.name,
        "settings": ", ".join(f"{key}={value}" for key, value in sorted(side.settings.items())),
        "accelerated": side.accelerated,
        "n": side_timings.height,
        "scan_s": side_timings["scan_s"].median(),
        "total_s": side_timings["total_s"].median(),
        "operator_run_s": side_timings["operator_run_s"].median(),
        "peak_memory_bytes": side_timings["peak_memory_bytes"].max(),
        "spill_bytes": side_timings["spill_bytes"].max(),
    }
    return row | summarize_side(side_timings)


def summarize_side(timings: pl.DataFrame, *, level: float = CONFIDENCE_LEVEL) -> dict[str, Any]:
    """Elapsed and CPU time of the operator from its rows of `tables.TIMINGS`, each with its interval."""
    summary: dict[str, Any] = {}
    for column, suffix in (("operator_s", "s"), ("operator_cpu_s", "cpu_s")):
        seen = summarize_differences(timings[column].drop_nulls().to_list(), level=level)
        summary |= {column: seen["value"], f"low_{suffix}": seen["low"], f"high_{suffix}": seen["high"]}
        summary |= {f"below_{suffix}": seen["below"]}
    return summary


def _compare_times(timings: pl.DataFrame, sides: Sequence[ReplayVariant]) -> tuple[stats.Interval | None, str | None]:
    """Ratio of the CPU times, of the elapsed ones where there are none; null where a time is not above 0."""
    import polars as pl

    if len(sides) != 2 or not timings.height:
        return None, None
    column = "operator_s" if timings["operator_cpu_s"].null_count() else "operator_cpu_s"
    left, right = (timings.filter(pl.col("side") == side.name).sort("repeat")[column].to_list() for side in sides)
    if min(*left, *right) <= 0:
        return None, None
    ratio = stats.paired_log_ratio(left, right, level=CONFIDENCE_LEVEL)
    return ratio, stats.decide_verdicts([ratio])[0].verdict


@contextlib.contextmanager
def record_profile(spark: SparkSession, profiler: str | None, target: Path | None) -> Iterator[str | None]:
    """Record the block with Java Flight Recorder; yields the path of the recording.

    It records the driver's JVM, which on a local master also runs the tasks.
    """
    if profiler is None:
        yield None
        return
    jvm: Any = spark.sparkContext._jvm
    path = (target or Path("lore.jfr")).absolute()
    try:
        recording = jvm.jdk.jfr.Recording(jvm.jdk.jfr.Configuration.getConfiguration("profile"))
    except Exception as error:
        raise MissingToolError(
            "this Java has no Flight Recorder", do="set JAVA_HOME to a JDK with jdk.jfr, or leave out --profile"
        ) from error
    recording.start()
    try:
        yield str(path)
    finally:
        recording.stop()
        recording.dump(jvm.java.nio.file.Path.of(jvm.java.net.URI(path.as_uri())))
        recording.close()


class NotAcceleratedError(Exception):
    """The engine left the operator to Spark; the text says why."""


def engine_settings(engine: str) -> dict[str, str]:
    """Settings that a session must start with to run this engine."""
    if engine == "spark":
        return {}
    from workbench.spark import engine_jars
    from workbench.spark.engine_jars import ENGINES, class_path_settings

    engine_spec = ENGINES[engine]
    jar = engine_jars.resolve_jar(engine_spec.artifact, say=lambda _: None) if engine_spec.artifact else None
    return {**engine_spec.settings, **(class_path_settings(jar) if jar else {})}


def variant_settings(engine: str, started: str) -> dict[str, str]:
    """Settings of one variant in a session that was started with an engine."""
    if started == "spark":
        return {}
    on = str(engine == started).lower()
    # Rows of a dump come as an RDD, which Comet converts to batches; the scan time includes that.
    return {
        "spark.comet.enabled": on,
        "spark.comet.exec.enabled": on,
        "spark.comet.sparkToColumnar.enabled": on,
        "spark.comet.convert.parquet.enabled": "false",
    }


def check_acceleration(rebuilt: RebuiltOperator, engine: str, operator: str) -> bool | None:
    """Check that the plan has an operator of the engine; null without an engine."""
    if engine == "spark":
        return None
    names: list[str] = []

    def collect_names(plan: Any) -> None:
        names.append(simple_class_name(plan))
        for child in rebuilt.bridge.to_list(plan.children()):
            collect_names(child)

    collect_names(rebuilt.plan)
    if any(name.startswith("Comet") and name not in _BORDER_NODES for name in names):
        return True
    raise NotAcceleratedError(_read_fallback_reason(rebuilt) or f"{engine} left {operator} to Spark without a reason")


def _read_fallback_reason(rebuilt: RebuiltOperator) -> str:
    """Reason of the engine for leaving operators to Spark."""
    text = rebuilt.bridge.jvm.org.apache.comet.ExtendedExplainInfo().generateExtendedInfo(rebuilt.plan)
    return " ".join(str(text).split())[:500]
