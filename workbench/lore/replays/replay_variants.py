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
from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

CONFIDENCE_LEVEL = 0.9
# Nodes of an engine that only convert rows to its batches.
CONVERSION_NODES = ("CometSparkToColumnarExec", "CometSparkRowToColumnarExec")


@dataclass(frozen=True)
class ReplayVariant:
    """A variant of the operator: name, settings, and how to build it.

    Attributes
    ----------
    name
        `replay`, or A and B.
    make
        Builds the operator again, so that no broadcast of an earlier run is reused.
    settings
        Settings of this variant.
    accelerated
        Whether the engine's operator ran; null without an engine.
    """

    name: str
    make: Callable[[], RebuiltOperator]
    settings: Mapping[str, str] = field(default_factory=dict)
    accelerated: bool | None = None


@dataclass(frozen=True)
class ReplayTimings:
    """Run times of all variants.

    Attributes
    ----------
    sides, timings, metrics
        Rows of `tables.SIDES`, `TIMINGS` and `METRICS`.
    ratio
        Operator time of A over that of B, paired by repeat; null with one variant, or where total minus scan is not
        above zero.
    verdict
        FASTER, SLOWER, SAME or UNDECIDED for B against A; null without a ratio.
    """

    sides: pl.DataFrame
    timings: pl.DataFrame
    metrics: pl.DataFrame
    ratio: stats.Interval | None = None
    verdict: str | None = None


def measure_variants(
    sides: Sequence[ReplayVariant], repeat: int, *, on_progress: Callable[[int, int], None] | None = None
) -> ReplayTimings:
    """Time each variant `repeat` times in turn, with alternating order.

    Parameters
    ----------
    sides
        One or two variants.
    repeat
        Timed runs of each; the caller has run each once as a warm-up.
    on_progress
        Called with (finished runs, all runs).
    """
    timings: list[dict[str, Any]] = []
    last: dict[str, RebuiltOperator] = {}
    # Scans use separate nodes, since metrics of shared ones would count both.
    scanned = {side.name: side.make() for side in sides}
    for number in range(1, repeat + 1):
        for side in sides if number % 2 else reversed(sides):
            rebuilt = last[side.name] = side.make()
            scan_s = time_call(lambda made=scanned[side.name]: scan_inputs(made))  # type: ignore[misc]
            total_s = time_call(lambda made=rebuilt: made.output_rdd().count())  # type: ignore[misc]
            row = {"side": side.name, "repeat": number, "scan_s": scan_s, "total_s": total_s}
            timings.append(row | {"operator_s": total_s - scan_s})
            if on_progress:
                on_progress(len(timings), repeat * len(sides))
    frame = tables.TIMINGS.frame(timings)
    metrics = [
        {"side": name, "metric": metric, "value": value}
        for name, made in last.items()
        for metric, value in made.read_metrics().items()
    ]
    ratio, verdict = _compare_times(frame, sides)
    return ReplayTimings(
        tables.SIDES.frame([_summarize_times(side, frame) for side in sides]),
        frame,
        tables.METRICS.frame(metrics),
        ratio,
        verdict,
    )


def time_call(body: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    body()
    return time.perf_counter() - begun


def scan_inputs(rebuilt: RebuiltOperator) -> None:
    """Read all inputs as the operator gets them, and discard the rows."""
    bridge = rebuilt.bridge
    bridge.activate()
    rdds = [
        node.executeColumnar() if simple_class_name(node) in CONVERSION_NODES else node.execute()
        for node in find_baseline_nodes(rebuilt.plan, bridge)
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
    below = [*children, *(one.child() for one in bridge.to_list(plan.subqueries()))]
    return [leaf for child in below for leaf in find_baseline_nodes(child, bridge)]


def _summarize_times(side: ReplayVariant, timings: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    own = timings.filter(pl.col("side") == side.name)
    row: dict[str, Any] = {
        "side": side.name,
        "settings": ", ".join(f"{key}={value}" for key, value in sorted(side.settings.items())),
        "accelerated": side.accelerated,
        "n": own.height,
        "operator_s": own["operator_s"].median(),
        "scan_s": own["scan_s"].median(),
        "total_s": own["total_s"].median(),
        "low_s": None,
        "high_s": None,
    }
    if own.height:
        interval = stats.quantile_interval(own["operator_s"].to_list(), 0.5, level=CONFIDENCE_LEVEL)
        row |= {"low_s": interval.low, "high_s": interval.high}
    return row


def _compare_times(timings: pl.DataFrame, sides: Sequence[ReplayVariant]) -> tuple[stats.Interval | None, str | None]:
    import polars as pl

    if len(sides) != 2 or not timings.height:
        return None, None
    left, right = (timings.filter(pl.col("side") == side.name).sort("repeat")["operator_s"].to_list() for side in sides)
    if min(*left, *right) <= 0:
        return None, None
    ratio = stats.paired_log_ratio(left, right)
    return ratio, stats.decide_verdicts([ratio])[0].verdict


@contextlib.contextmanager
def record_profile(spark: SparkSession, profiler: str | None, target: Path | None) -> Iterator[str | None]:
    """Record the block with Java Flight Recorder; yields the path of the recording.

    It records the driver's JVM, which on a local master also runs the tasks.

    Raises
    ------
    MissingToolError
        This Java has no Flight Recorder.
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


# Classes of an engine in the results and errors of its tasks.
SERIAL_FILTER = {"comet": "org.apache.comet.**;org.apache.spark.sql.comet.**;"}
# Nodes of Comet that only convert between rows and batches.
_BORDER_NODES = (*CONVERSION_NODES, "CometColumnarToRowExec", "CometNativeColumnarToRowExec", "CometSinkPlaceHolder")


class NotAcceleratedError(Exception):
    """The engine left the operator to Spark; the text says why."""


def engine_settings(engine: str) -> dict[str, str]:
    """Settings that a session must start with to run this engine."""
    if engine == "spark":
        return {}
    from workbench.spark import engine_jars
    from workbench.spark.engine_jars import ENGINES, class_path_settings

    known = ENGINES[engine]
    jar = engine_jars.resolve_jar(known.artifact, say=lambda _: None) if known.artifact else None
    return {**known.settings, **(class_path_settings(jar) if jar else {})}


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
    """Check that the plan has an operator of the engine; null without an engine.

    Raises
    ------
    NotAcceleratedError
        It has none.
    """
    if engine == "spark":
        return None
    found: list[str] = []

    def collect_names(plan: Any) -> None:
        found.append(simple_class_name(plan))
        for child in rebuilt.bridge.to_list(plan.children()):
            collect_names(child)

    collect_names(rebuilt.plan)
    if any(name.startswith("Comet") and name not in _BORDER_NODES for name in found):
        return True
    raise NotAcceleratedError(_read_fallback_reason(rebuilt) or f"{engine} left {operator} to Spark without a reason")


def _read_fallback_reason(rebuilt: RebuiltOperator) -> str:
    """Reason of the engine for leaving operators to Spark."""
    text = rebuilt.bridge.jvm.org.apache.comet.ExtendedExplainInfo().generateExtendedInfo(rebuilt.plan)
    return " ".join(str(text).split())[:500]
