"""How long does a replayed operator take? Runs and scans in turn, sides alternating."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import stats
from workbench.errors import MissingToolError
from workbench.lore import tables
from workbench.lore.bridge import Bridge, class_of
from workbench.lore.rebuild import Rebuilt

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

LEVEL = 0.9
# Of an engine: nodes that only turn rows into its batches, or back.
CONVERSIONS = ("CometSparkToColumnarExec", "CometSparkRowToColumnarExec")


@dataclass(frozen=True)
class Side:
    """One way to run the operator.

    Attributes
    ----------
    name
        replay, or A and B.
    make
        Gives the operator anew, so that no broadcast of an earlier run is used again.
    settings
        What this side has set.
    accelerated
        Did the engine's own operator run? Null where no engine was asked for.
    """

    name: str
    make: Callable[[], Rebuilt]
    settings: Mapping[str, str] = field(default_factory=dict)
    accelerated: bool | None = None


@dataclass(frozen=True)
class Measured:
    """Times of all sides.

    Attributes
    ----------
    sides, timings, metrics
        See `tables`.
    ratio
        Of two sides, A's operator time by B's, paired by repeat; null with one side, or where a difference of total
        and scan is not above zero.
    verdict
        FASTER, SLOWER, SAME or UNDECIDED for B against A; null without a ratio.
    """

    sides: pl.DataFrame
    timings: pl.DataFrame
    metrics: pl.DataFrame
    ratio: stats.Interval | None = None
    verdict: str | None = None


def measure(sides: Sequence[Side], repeat: int, *, told: Callable[[int, int], None] | None = None) -> Measured:
    """Time each side so many times, in turn, the first of a round alternating.

    Parameters
    ----------
    sides
        One or two.
    repeat
        How often; the caller ran each side before, so that classes are loaded and code is compiled somewhat.
    told
        Called with (runs done, of how many).
    """
    timings: list[dict[str, Any]] = []
    last: dict[str, Rebuilt] = {}
    # Scanned through nodes of their own: a node's metrics would count both.
    scanned = {side.name: side.make() for side in sides}
    for number in range(1, repeat + 1):
        for side in sides if number % 2 else reversed(sides):
            rebuilt = last[side.name] = side.make()
            scan_s = timed(lambda made=scanned[side.name]: _scan(made))  # type: ignore[misc]
            total_s = timed(lambda made=rebuilt: made.rdd().count())  # type: ignore[misc]
            row = {"side": side.name, "repeat": number, "scan_s": scan_s, "total_s": total_s}
            timings.append(row | {"operator_s": total_s - scan_s})
            if told:
                told(len(timings), repeat * len(sides))
    frame = tables.TIMINGS.frame(timings)
    metrics = [
        {"side": name, "metric": metric, "value": value}
        for name, made in last.items()
        for metric, value in made.metrics().items()
    ]
    ratio, verdict = _compared(frame, sides)
    return Measured(
        tables.SIDES.frame([_summed(side, frame) for side in sides]),
        frame,
        tables.METRICS.frame(metrics),
        ratio,
        verdict,
    )


def timed(body: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    body()
    return time.perf_counter() - begun


def _scan(rebuilt: Rebuilt) -> None:
    """Read all inputs as the operator gets them, and do nothing with them."""
    bridge = rebuilt.bridge
    bridge.activate()
    rdds = [
        node.executeColumnar() if class_of(node) in CONVERSIONS else node.execute()
        for node in baseline_nodes(rebuilt.plan, bridge)
    ]
    tag = rdds[0].elementClassTag()
    rows = [rdd for rdd in rdds if rdd.elementClassTag().equals(tag)]
    bridge.context._jsc.sc().union(bridge.seq(rows), tag).count()
    for rdd in rdds:
        if rdd not in rows:
            rdd.count()


def baseline_nodes(plan: Any, bridge: Bridge) -> list[Any]:
    """The leaves of a replayed plan, each with an engine's conversion where there is one."""
    if class_of(plan) == "RDDScanExec":
        return [plan]
    children = bridge.listed(plan.children())
    if class_of(plan) in CONVERSIONS and class_of(children[0]) == "RDDScanExec":
        return [plan]
    below = [*children, *(one.child() for one in bridge.listed(plan.subqueries()))]
    return [leaf for child in below for leaf in baseline_nodes(child, bridge)]


def _summed(side: Side, timings: pl.DataFrame) -> dict[str, Any]:
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
        interval = stats.quantile_interval(own["operator_s"].to_list(), 0.5, level=LEVEL)
        row |= {"low_s": interval.low, "high_s": interval.high}
    return row


def _compared(timings: pl.DataFrame, sides: Sequence[Side]) -> tuple[stats.Interval | None, str | None]:
    import polars as pl

    if len(sides) != 2 or not timings.height:
        return None, None
    left, right = (timings.filter(pl.col("side") == side.name).sort("repeat")["operator_s"].to_list() for side in sides)
    if min(*left, *right) <= 0:
        return None, None
    ratio = stats.paired_log_ratio(left, right)
    return ratio, stats.decide([ratio])[0].verdict


@contextlib.contextmanager
def profiled(spark: SparkSession, profiler: str | None, target: Path | None) -> Iterator[str | None]:
    """Record what the JVM does in the block with Java Flight Recorder; gives the name of the file it will write.

    Only of the driver's JVM, which on a local master runs the tasks, too.

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
