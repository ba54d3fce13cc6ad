"""Variants of a replay: engine settings, and run times measured in turn."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import stats
from workbench.core.errors import ConfigError, MissingToolError
from workbench.lore import tables
from workbench.lore.replays.run_costs import CostMeter, RunCost, list_metric_rows
from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator
from workbench.lore.spark_bridge.query_runs import describe_failure
from workbench.lore.spark_bridge.replay_session import (
    check_known_keys,
    find_entry,
    read_effective_value,
    watch_settings,
)
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name
from workbench.stats.verdicts import DIFFERENT, SAME

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

HADOOP_PREFIX = "spark.hadoop."
# Fixed in the expressions when the query is analysed.
ANALYSIS_KEYS = (
    "spark.sql.ansi.",
    "spark.sql.session.timeZone",
    "spark.sql.caseSensitive",
    "spark.sql.storeAssignmentPolicy",
    "spark.sql.decimalOperations.",
    "spark.sql.timestampType",
    "spark.sql.legacy.",
)
# Used when the files of the dump are read.
FILE_KEYS = ("spark.sql.parquet.", "spark.sql.files.")
PLANNING_WORD = "decided at planning"
# The plan made anew under some settings, as text.
DescribePlan = Callable[[Mapping[str, str]], str]
CONFIDENCE_LEVEL = 0.9
# The first look at the interval of the median, which needs five runs; up to here the number of runs is exact.
FIRST_LOOK_RUNS = 5
# Runs between two looks at the interval; each look costs coverage, which is simulated in the tests.
RUNS_PER_LOOK = 3
# The first look at the ratio of two sides; fewer turns tell none, whatever they cost.
FIRST_LOOK_TURNS = 3
# Fraction of the operator's time to which its interval shall narrow, and seconds after which measuring ends.
TIGHT = 0.1
BUDGET_S = 60.0
# Untimed turns before the timed ones, and seconds of runs after which no further one begins.
WARM_UP_TURNS = 10
WARM_UP_S = 2.0
# Nodes of an engine that only convert rows to its batches.
CONVERSION_NODES = ("CometSparkToColumnarExec", "CometSparkRowToColumnarExec")
# Classes of an engine in the results and errors of its tasks.
SERIAL_FILTER = {"comet": "org.apache.comet.**;org.apache.spark.sql.comet.**;"}
# Nodes of Comet that only convert between rows and batches.
_BORDER_NODES = (*CONVERSION_NODES, "CometColumnarToRowExec", "CometNativeColumnarToRowExec", "CometSinkPlaceHolder")


@dataclass(frozen=True)
class ComparedSettings:
    """Settings of both sides."""

    shared: Mapping[str, str]
    a: Mapping[str, str]
    b: Mapping[str, str]
    engine: str = "spark"

    def check_keys(self, bridge: Bridge) -> None:
        """Refuse keys that nothing reads, and keys that cannot differ between the sides."""
        for where, settings in (("--conf", self.shared), ("--a", self.a), ("--b", self.b)):
            keys = [key for key in settings if not key.startswith(HADOOP_PREFIX)]
            check_known_keys(bridge, keys, where=where, engine=self.engine)
            if where != "--conf" and (fixed := [key for key in settings if key.startswith(HADOOP_PREFIX)]):
                raise ConfigError(
                    "file systems are set when Spark starts and are the same on both sides",
                    where=where,
                    found=fixed,
                    do="give it as --conf, or replay twice",
                )

    def list_keys(self) -> list[str]:
        """Keys of either side, sorted."""
        return sorted({*self.a, *self.b})


@dataclass(frozen=True)
class ComparedSide:
    """One side of a comparison.

    `rebuild`: Builds the operator in this session; its inputs are read by another one.
    `run_scan`: Reads the inputs alone: what is read in its tasks, the operator does not read.
    """

    bridge: Bridge
    rebuild: Callable[[], RebuiltOperator]
    run_scan: Callable[[], object]


def list_differing_settings(settings: ComparedSettings, a: Bridge, b: Bridge) -> list[str]:
    """Keys whose values differ between the sessions of both sides."""
    same: list[str] = []
    differing: list[str] = []
    for key in settings.list_keys():
        values = [read_effective_value(bridge, key) for bridge in (a, b)]
        if values[0] != values[1]:
            differing.append(key)
        elif not (key in settings.a and key in settings.b):
            same.append(f"{key}={settings.b.get(key, settings.a.get(key))}")
    if same:
        raise ConfigError(
            "a setting has the same value on both sides, so nothing would be compared",
            where="--a, --b",
            found=same,
            do="give another value; the value in the dump is that of the query's session",
        )
    return differing


def find_unread_settings(texts: Mapping[str, str], side: ComparedSide) -> list[str]:
    """Keys that nothing reads while the operator is rebuilt and run once; `texts` are their values on this side."""
    entries = {key: text for key, text in texts.items() if find_entry(side.bridge, key) is not None}
    if not entries:
        return []
    side.bridge.prepare_rules()
    with watch_settings(side.bridge, entries) as watch, side.bridge.propagate_settings():
        watch.forget_reads()
        side.run_scan()
        scanned = set(watch.list_read_keys())
        watch.forget_reads()
        try:
            side.rebuild().output_rdd().count()
        except Exception as error:  # noqa: BLE001 - a failure is a result of the comparison; what was read counts
            describe_failure(error)
        read = set(watch.list_read_keys())
    # What reading the files reads, too, counts for the operator unless it is of files or of analysis.
    only_scanned = {key for key in scanned if key.startswith((*ANALYSIS_KEYS, *FILE_KEYS))}
    return sorted(key for key in entries if key not in read or key in only_scanned)


def check_settings_are_read(
    settings: ComparedSettings,
    a: ComparedSide,
    b: ComparedSide,
    *,
    dump: Bridge,
    operator: str,
    can_replan: bool = False,
    describe_plan: DescribePlan | None = None,
) -> None:
    """Refuse settings that do not differ, that the operator does not read, and that do not change a plan made anew.

    Each is watched on the side whose value is not that of the dump. On a cluster the reads of tasks are not seen, and
    only settings that do not differ are refused.

    `describe_plan`: The plan made anew under some settings, as text; null without `--replan`.
    """
    watched: dict[int, dict[str, str]] = {0: {}, 1: {}}
    for key in list_differing_settings(settings, a.bridge, b.bridge):
        on_b = read_effective_value(b.bridge, key) != read_effective_value(dump, key)
        watched[int(on_b)][key] = (b if on_b else a).bridge.spark.conf.get(key)
    unread = [key for number, side in enumerate((a, b)) for key in find_unread_settings(watched[number], side)]
    if describe_plan is not None:
        fixed = [key for key in unread if key.startswith(ANALYSIS_KEYS)]
        planned = [key for key in unread if key not in fixed]
        idle = [
            key
            for side_settings, texts in zip((settings.a, settings.b), watched.values(), strict=True)
            for key in planned
            if key in texts and not _changes_plan(key, {**side_settings, **texts}, describe_plan)
        ]
        _refuse_idle_settings(idle, operator=operator)
        unread = fixed
    if unread and dump.shares_jvm():
        _refuse_unread_settings(unread, operator=operator, can_replan=can_replan and describe_plan is None)


def _changes_plan(key: str, settings: Mapping[str, str], describe_plan: DescribePlan) -> bool:
    """Does a setting change the plan: taken from its side, or alone?"""
    without = {other: text for other, text in settings.items() if other != key}
    if describe_plan(settings) != describe_plan(without):
        return True
    return bool(without) and describe_plan({key: settings[key]}) != describe_plan({})


def _refuse_idle_settings(keys: list[str], *, operator: str) -> None:
    if keys:
        raise ConfigError(
            f"planned anew, {operator} is the same with and without it, and nothing read it while it ran: both sides "
            "would be the same",
            where="--replan",
            found=keys,
            do="give a value that changes the plan of these rows, or dump the query again with --conf KEY=VALUE",
        )


def _refuse_unread_settings(keys: list[str], *, operator: str, can_replan: bool) -> None:
    analysed = [key for key in keys if key.startswith(ANALYSIS_KEYS)]
    remedies = []
    if analysed:
        remedies.append(
            "dump the query again with --conf KEY=VALUE and compare both replays: it is fixed in the expressions when "
            "the query is analysed"
        )
    if len(analysed) < len(keys):
        remedies.append(
            "add --replan, which plans the join anew on both sides"
            if can_replan
            else "dump the query again with --conf KEY=VALUE, or choose an operator that reads it"
        )
    raise ConfigError(
        f"{PLANNING_WORD}, or without use for {operator}: nothing read it while the operator ran, so both sides "
        f"would be "
        "the same",
        where="--a, --b",
        found=keys,
        do="; ".join(remedies),
    )


def build_timing_row(side: str, repeat: int, scan: RunCost, total: RunCost) -> dict[str, Any]:
    """A row of `tables.TIMINGS`: both measurements, and their differences as they are, also below 0."""
    return {
        "side": side,
        "repeat": repeat,
        "scan_s": scan.wall_s,
        "total_s": total.wall_s,
        "operator_s": total.wall_s - scan.wall_s,
        "scan_cpu_s": scan.cpu_s,
        "total_cpu_s": total.cpu_s,
        "operator_cpu_s": _subtract(total.cpu_s, scan.cpu_s),
        "scan_run_s": scan.run_s,
        "total_run_s": total.run_s,
        "operator_run_s": _subtract(total.run_s, scan.run_s),
        "peak_memory_bytes": total.peak_memory_bytes,
        "spill_bytes": total.spill_bytes,
    }


def _subtract(total: float | None, scan: float | None) -> float | None:
    return None if total is None or scan is None else total - scan


def summarize_differences(differences: Sequence[float], *, level: float = CONFIDENCE_LEVEL) -> dict[str, Any]:
    """Median of differences with its interval, where they resolve a time above 0.

    Returns: value, low, high: null without a resolved time (low and high also for fewer values than an interval
    needs); below: the upper end of the interval where the time is not resolved, never below 0.

    >>> summarize_differences([0.010, 0.011, 0.012, 0.013, 0.014, 0.015])["value"]
    0.0125
    >>> summarize_differences([-0.010, 0.011, -0.012, 0.013, 0.014, 0.015])
    {'value': None, 'low': None, 'high': None, 'below': 0.015}
    """
    interval = stats.quantile_interval(differences, 0.5, level=level)
    if interval.low is None or interval.high is None:
        above = interval.estimate is not None and interval.estimate > 0
        return {"value": interval.estimate if above else None, "low": None, "high": None, "below": None}
    if interval.low <= 0:
        return {"value": None, "low": None, "high": None, "below": max(interval.high, 0.0)}
    return {"value": interval.estimate, "low": interval.low, "high": interval.high, "below": None}


def is_tight(differences: Sequence[float], tight: float, *, level: float = CONFIDENCE_LEVEL) -> bool:
    """Is the interval of the median within this fraction of it, to both sides?

    >>> is_tight([1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0, 1.01, 0.99, 1.0], 0.1)
    True
    """
    interval = stats.quantile_interval(differences, 0.5, level=level)
    if interval.low is None or interval.high is None or interval.estimate is None or interval.estimate <= 0:
        return False
    return max(interval.high - interval.estimate, interval.estimate - interval.low) <= tight * interval.estimate


def is_enough(
    turns: Sequence[Sequence[float]], *, repeat: int, tight: float, elapsed_s: float, budget_s: float
) -> bool:
    """Are these turns enough: the asked number, the budget spent, or what they shall tell is known?

    One side's interval is looked at from five turns on, and is known where it is tight. The ratio of two sides is
    looked at from three turns on, which the budget does not end before: see `is_decided`.

    `turns`: Differences by side.
    """
    n_turns = len(turns[0])
    if n_turns >= repeat:
        return True
    if repeat <= FIRST_LOOK_RUNS or not n_turns:
        return False
    if len(turns) == 2 and n_turns < FIRST_LOOK_TURNS:
        return False
    if elapsed_s >= budget_s:
        return True
    if len(turns) == 2:
        return is_decided(estimate_ratio(*turns, level=CONFIDENCE_LEVEL, repeat=repeat))
    is_look = n_turns >= FIRST_LOOK_RUNS and (n_turns - FIRST_LOOK_RUNS) % RUNS_PER_LOOK == 0
    return is_look and is_tight(turns[0], tight)


def estimate_ratio(
    left: Sequence[float], right: Sequence[float], *, level: float, repeat: int
) -> stats.Interval | None:
    """Ratio of two sides' times, paired by turn; null where a time is not above 0.

    `repeat`: The planned number of turns. From six on they may end early, which the interval allows for.

    >>> estimate_ratio([3.0, 3.1, 3.0], [1.0, 1.0, 1.01], level=0.9, repeat=11).method
    'paired log ratio, early look'
    """
    if not left or min(*left, *right) <= 0:
        return None
    if repeat <= FIRST_LOOK_RUNS:
        return stats.paired_log_ratio(left, right, level=level)
    method = stats.EARLY_LOOK if len(left) < repeat else stats.LAST_LOOK
    return stats.sequential_log_ratio(left, right, level=level, method=method)


def is_decided(ratio: stats.Interval | None) -> bool:
    """Does a ratio have a verdict, and where it is a difference, is its size known to half, on the log scale?

    >>> is_decided(estimate_ratio([3.0, 3.1, 3.0], [1.0, 1.0, 1.01], level=0.9, repeat=11))
    True
    """
    if ratio is None or ratio.low is None or ratio.high is None or ratio.estimate is None:
        return False
    verdict = stats.decide_verdicts([ratio])[0].verdict
    reach = math.log(ratio.high / ratio.low) / 2
    return verdict == SAME or (verdict in DIFFERENT and reach <= abs(math.log(ratio.estimate)) / 2)


@dataclass(frozen=True)
class ReplayVariant:
    """A variant of the operator: name, settings, and how to build it.

    `make`: Builds the operator again, so that no broadcast of an earlier run is reused.
    `accelerated`: Whether the engine's operator ran; null without an engine.
    `earlier_run_s`: What an earlier run in this session took; a long one spares the warm-up.
    """

    name: str
    make: Callable[[], RebuiltOperator]
    settings: Mapping[str, str] = field(default_factory=dict)
    accelerated: bool | None = None
    earlier_run_s: float = 0.0


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
    """Time each variant in turn, with alternating order.

    `repeat`: Timed runs of each, exact up to 5, else at most: fewer where the elapsed time is tight or the ratio
    decided before, or the budget, of which the warm-up takes its part, is spent. The caller has run each once.
    """
    timings: list[dict[str, Any]] = []
    last: dict[str, RebuiltOperator] = {}
    # Scans use separate nodes, since metrics of shared ones would count both.
    scanned = {side.name: side.make() for side in sides}
    begun = time.perf_counter()
    _warm_up(sides, scanned, repeat)
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
            turns[side.name].append(row["operator_s"])
            if on_progress:
                on_progress(len(timings), max(repeat * len(sides), len(timings)))
    metrics = [row for name, operator in last.items() for row in list_metric_rows(name, operator.read_metrics())]
    return _build_timings(sides, timings, metrics, repeat)


def _warm_up(sides: Sequence[ReplayVariant], scanned: Mapping[str, RebuiltOperator], repeat: int) -> None:
    """Run scans and operators without timing: the JVM compiles code in the first runs, which take more CPU time."""
    begun = time.perf_counter()
    # Of two sides, one may have run once more than the other before.
    runs_operator = repeat > FIRST_LOOK_RUNS or len(sides) == 2
    for _ in range(WARM_UP_TURNS if repeat > FIRST_LOOK_RUNS else min(repeat, 1)):
        for side in sides:
            scan_inputs(scanned[side.name])
            if runs_operator and side.earlier_run_s < WARM_UP_S:
                with scanned[side.name].bridge.propagate_settings():
                    scanned[side.name].output_rdd().count()
        if time.perf_counter() - begun > WARM_UP_S:
            break


def _build_timings(
    sides: Sequence[ReplayVariant], timings: list[dict[str, Any]], metrics: list[dict[str, Any]], repeat: int
) -> ReplayTimings:
    frame = tables.TIMINGS.frame(timings)
    summaries = tables.SIDES.frame([_summarize_times(side, frame) for side in sides])
    return ReplayTimings(summaries, frame, tables.METRICS.frame(metrics), *_compare_times(frame, sides, repeat))


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
    """Row of table SIDES: medians of a side's times in seconds, with the interval of its operator time.

    `timings`: Columns side, scan_s, total_s, operator_run_s, peak_memory_bytes, spill_bytes.
    """
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
    """Summarise the elapsed and CPU seconds of the operator on one side, each with its interval.

    `timings`: The side's rows of `tables.TIMINGS`, of which `operator_s` and `operator_cpu_s` are used.

    >>> import polars as pl
    >>> timings = pl.DataFrame({"operator_s": [1.0, 1.1, 1.2, 1.1, 1.0, 1.1], "operator_cpu_s": [4.0] * 6})
    >>> [round(summarize_side(timings)[name], 2) for name in ("low_s", "operator_s", "high_s", "operator_cpu_s")]
    [1.0, 1.1, 1.2, 4.0]
    """
    summary: dict[str, Any] = {}
    for column, suffix in (("operator_s", "s"), ("operator_cpu_s", "cpu_s")):
        seen = summarize_differences(timings[column].drop_nulls().to_list(), level=level)
        summary |= {column: seen["value"], f"low_{suffix}": seen["low"], f"high_{suffix}": seen["high"]}
        summary |= {f"below_{suffix}": seen["below"]}
    return summary


def _compare_times(
    timings: pl.DataFrame, sides: Sequence[ReplayVariant], repeat: int
) -> tuple[stats.Interval | None, str | None]:
    """Ratio of the sides' elapsed times, and its verdict; null if a time is not above 0.

    `timings`: Table TIMINGS.
    """
    import polars as pl

    if len(sides) != 2 or not timings.height:
        return None, None
    left, right = (timings.filter(pl.col("side") == side.name).sort("repeat")["operator_s"].to_list() for side in sides)
    ratio = estimate_ratio(left, right, level=CONFIDENCE_LEVEL, repeat=repeat)
    return ratio, None if ratio is None else stats.decide_verdicts([ratio])[0].verdict


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
            "this Java has no Flight Recorder", do="set JAVA_HOME to a JDK with jdk.jfr, or omit --profile"
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
    from workbench.spark.engine_jars import class_path_settings
    from workbench.spark.engines import ENGINES

    engine_spec = ENGINES[engine]
    artifact = engine_spec.get_artifact()
    jar = engine_jars.resolve_jar(artifact, say=lambda _: None) if artifact else None
    return {**(engine_spec.settings or {}), **(class_path_settings(jar) if jar else {})}


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
    # Reason of the engine for leaving operators to Spark.
    text = rebuilt.bridge.jvm.org.apache.comet.ExtendedExplainInfo().generateExtendedInfo(rebuilt.plan)
    raise NotAcceleratedError(
        " ".join(str(text).split())[:500] or f"{engine} left {operator} to Spark without a reason"
    )
