"""What to try for each loss of a profile: the setting with its value, the seconds it can save at most, and when not to.

A bound is a replay of the run's own task graph where the change is one of tasks or executors; else the finding's upper
end, or the exclusive time of the operators that the change removes. Rules are from Spark's public documents, which each
row names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from workbench.core.formats import format_bytes
from workbench.eventlog.reader import EventLogFacts
from workbench.speedup import tables
from workbench.speedup.advice.join_sides import MAX_BROADCAST_BYTES, list_small_sides
from workbench.speedup.advice.repeated_results import measure_repeated_results
from workbench.speedup.attribution.application_profile import Profile
from workbench.speedup.attribution.application_time import parse_size, read_properties, read_session_settings
from workbench.speedup.scenarios.estimate import Replayer, find_interval
from workbench.speedup.scenarios.scenario import Scenario, is_shuffled

DOCS = "spark.apache.org/docs/latest/"
SQL_TUNING, TUNING = DOCS + "sql-performance-tuning.html", DOCS + "tuning.html"
CONFIGURATION, SCHEDULING = DOCS + "configuration.html", DOCS + "job-scheduling.html"
PARQUET = DOCS + "sql-data-sources-parquet.html"
ARROW = DOCS + "api/python/tutorial/sql/arrow_pandas.html"
# Less is not told: a share of the wall time, and seconds.
MIN_SHARE, MIN_S = 0.02, 0.5
MIN_LARGE_BROADCAST_BYTES = 128 << 20
# Rows grow when they are unpacked, and a little more than today's must fit tomorrow.
SIZE_MARGIN = 1.2
PARTITION_BYTES = 64 << 20
WAVES = 3
MIN_SAVED_HOURS = 0.2
# Pieces of files below this were made small by a setting.
MIN_PIECE_BYTES = 32 << 20
# Switches that are on by default, what they do, and the operators whose time they change.
_SWITCHES = (
    ("spark.sql.codegen.wholeStage", "Compile operators together", r"Project|Filter|Aggregate|Join|Scan|Sort", TUNING),
    ("spark.sql.parquet.enableVectorizedReader", "Read Parquet in batches of columns", "Scan parquet", PARQUET),
    ("spark.sql.parquet.filterPushdown", "Skip rows of Parquet by the filters", "Scan parquet|Filter", PARQUET),
)
# Fewer executors are told where they add no more than this to the wall time.
MAX_LONGER = 0.05


@dataclass(frozen=True)
class Advice:
    """Row of table ADVICE; `setting` is null for changes of code or layout."""

    change: str
    at_most_s: float
    rests_on: str
    not_when: str
    source: str
    setting: str | None = None
    value: str | None = None
    now: str | None = None
    query: str | None = None
    saved_executor_h: float | None = None


class _Log:
    """One application with what the rules read of it."""

    def __init__(self, facts: EventLogFacts, profile: Profile, replayer: Replayer | None) -> None:
        self.facts, self.profile = facts, profile
        self.replayer = replayer if replayer is not None and not replayer.reasons else None
        self.graph = self.replayer.graph if self.replayer is not None else None
        log_id = facts.logs["log_id"][0]
        self.settings = read_properties(facts, log_id, "spark")
        self.session = read_session_settings(facts, log_id=log_id)
        self.wall_s = float(profile.overview["wall_time_s"][0] or 0.0)

    def read(self, name: str, default: str) -> str:
        """A setting, or Spark's default."""
        return self.settings.get(name, default).strip()

    def is_off(self, name: str, default: str = "true") -> bool:
        return self.read(name, default).lower() != "true"

    @cached_property
    def high_s(self) -> Mapping[str, float]:
        """Upper end of the findings, by kind."""
        return dict(self.profile.findings.group_by("kind").agg(pl.col("high_s").sum()).iter_rows())

    @cached_property
    def slots(self) -> int:
        """Most task slots at a time; 1 if unknown."""
        return int(self.session.task_slots or 1)

    def replay(self, scenario: Scenario) -> tuple[float, float] | None:
        """Wall time of a scenario in s: its estimate and the lower end; null where the graph cannot tell."""
        wall_ms = self.replayer.estimate_ms(scenario) if self.replayer is not None else None
        if self.graph is None or wall_ms is None:
            return None
        low_ms, _ = find_interval(self.graph.wall_ms, [wall_ms])
        return wall_ms / 1e3, low_ms / 1e3


def build_advice(facts: EventLogFacts, profile: Profile, replayer: Replayer | None) -> pl.DataFrame:
    """Table ADVICE: what to try, most seconds first. `facts`: Of one log. `replayer`: Null where none is replayed."""
    log = _Log(facts, profile, replayer)
    if profile.reasons or not log.wall_s:
        return tables.ADVICE.frame([])
    least_s = max(MIN_S, MIN_SHARE * log.wall_s)
    found = [one for rule in RULES for one in rule(log) if one.at_most_s >= least_s or one.saved_executor_h]
    rows = [vars(one) | {"at_most_share": min(1.0, one.at_most_s / log.wall_s)} for one in found]
    return tables.ADVICE.frame(sorted(rows, key=lambda row: -row["at_most_s"]))


def _advise_adaptive(log: _Log) -> Iterator[Advice]:
    kinds = ("skew", "small tasks", "idle slots")
    if log.session.adaptive == "off" and (at_most_s := sum(log.high_s.get(kind, 0.0) for kind in kinds)):
        yield Advice(
            "Let Spark adapt partitions, skewed joins and broadcasts while a query runs",
            at_most_s,
            "upper ends of skew, small tasks and idle slots",
            "The number of output files must be that of the setting.",
            SQL_TUNING,
            "spark.sql.adaptive.enabled",
            "true",
            "false",
        )


def _advise_skew(log: _Log) -> Iterator[Advice]:
    if not (high_s := log.high_s.get("skew", 0.0)):
        return
    replayed = log.replay(Scenario("", no_skew=True))
    at_most_s = high_s if replayed is None else min(high_s, max(0.0, log.wall_s - replayed[1]))
    rests_on = "upper end of skew" if replayed is None else "replay with rows spread evenly"
    joins = log.facts.plan_nodes.filter("is_final", pl.col("node_name").str.contains("SortMergeJoin|ShuffledHashJoin"))
    name = "spark.sql.adaptive.skewJoin.enabled"
    if joins.height and log.is_off(name):
        yield Advice(
            "Split skewed partitions of joins",
            at_most_s,
            rests_on,
            "The skew is not in a join: see the stage of the finding.",
            SQL_TUNING,
            name,
            "true",
            log.read(name, "true"),
        )
    elif joins.height and log.session.adaptive == "on":
        name = "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes"
        yield Advice(
            "Split smaller partitions of skewed joins, too",
            at_most_s,
            rests_on,
            "The skewed stage is no join, or its rows are in one task by the reader's choice.",
            SQL_TUNING,
            name,
            "16MB",
            log.read(name, "256MB"),
        )
    yield Advice(
        "Add a salt to the key that most rows share, and aggregate twice",
        at_most_s,
        rests_on,
        "A join is skewed, which settings can split.",
        TUNING,
    )


def _advise_stragglers(log: _Log) -> Iterator[Advice]:
    replayed = log.replay(Scenario("", no_stragglers=True))
    name = "spark.speculation"
    if replayed is not None and log.is_off(name, "false"):
        yield Advice(
            "Start a copy of tasks that take far longer than others",
            max(0.0, log.wall_s - replayed[0]),
            "replay with the median time for tasks that took longer for no more rows",
            "Tasks write to outside systems, or are long because of what they compute.",
            CONFIGURATION,
            name,
            "true",
            "false",
        )


def _advise_partitions(log: _Log) -> Iterator[Advice]:
    """More or fewer shuffle partitions, where adaptive execution does not choose them."""
    graph, name = log.graph, "spark.sql.shuffle.partitions"
    if graph is None or graph.shuffle_partitions is None:
        return
    shuffled = {tasks.stage_id for tasks in graph.iterate_stages() if is_shuffled(tasks, graph)}
    stages = log.facts.stage_tasks.filter(pl.col("stage_id").is_in(shuffled))
    if not stages.height:
        return
    read = pl.col("shuffle_read_remote_bytes") + pl.col("shuffle_read_local_bytes")
    largest = int(stages.select(read.max()).item() or 0)
    wanted = max(WAVES * log.slots, math.ceil(largest / PARTITION_BYTES))
    now = graph.shuffle_partitions
    spill_s = log.high_s.get("spill", 0.0)
    if spill_s and wanted <= now:
        wanted = 2 * now
    if wanted == now:
        return
    replayed = log.replay(Scenario("", partitions=wanted))
    replay_s = 0.0 if replayed is None else max(0.0, log.wall_s - replayed[1])
    told_s = log.high_s.get("small tasks", 0.0) if wanted < now else log.high_s.get("idle slots", 0.0) + spill_s
    if told_s:
        yield Advice(
            f"{'Fewer' if wanted < now else 'More'} shuffle partitions: {WAVES} tasks a slot, at most "
            f"{format_bytes(PARTITION_BYTES)} each",
            max(told_s, replay_s),
            "upper end of small tasks" if wanted < now else "replay, idle slots and spill",
            "Data grow or shrink from run to run; then let adaptive execution choose.",
            SQL_TUNING,
            name,
            str(wanted),
            str(now),
        )


def _advise_coalescing(log: _Log) -> Iterator[Advice]:
    name = "spark.sql.adaptive.coalescePartitions.enabled"
    if log.session.adaptive == "on" and log.is_off(name) and (at_most_s := log.high_s.get("small tasks", 0.0)):
        yield Advice(
            "Join small shuffle partitions while a query runs",
            at_most_s,
            "upper end of small tasks",
            "Few rows take long, as with slow functions: then they are computed by fewer tasks.",
            SQL_TUNING,
            name,
            "true",
            "false",
        )


def _advise_scan_tasks(log: _Log) -> Iterator[Advice]:
    """Larger pieces of files, where a setting cuts them small."""
    name = "spark.sql.files.maxPartitionBytes"
    size = parse_size(log.read(name, "128MB"))
    if size is not None and size < MIN_PIECE_BYTES and (at_most_s := log.high_s.get("small tasks", 0.0)):
        yield Advice(
            "Read larger pieces of files in a task",
            at_most_s,
            "upper end of small tasks",
            "Few rows take long, as with slow functions: then they are computed by fewer tasks.",
            SQL_TUNING,
            name,
            "128MB",
            log.read(name, "128MB"),
        )


def _advise_defaults(log: _Log) -> Iterator[Advice]:
    """Switches that Spark has on and that are off here, each with the operators that it speeds up."""
    for name, change, operators, source in _SWITCHES:
        times = log.profile.exclusive_times.filter(pl.col("operator").str.contains(operators))
        if log.is_off(name) and times.height:
            yield Advice(
                change,
                float(times["wall_time_s"].sum()),
                "exclusive time of the operators that it changes",
                "It was turned off for an error that is still there.",
                source,
                name,
                "true",
                log.read(name, "true"),
            )


def _advise_memory(log: _Log) -> Iterator[Advice]:
    is_local = log.read("spark.master", "").startswith("local")
    name = "spark.driver.memory" if is_local else "spark.executor.memory"
    now = log.read(name, "1g")
    size = parse_size(now if now[-1:].isalpha() else f"{now}m")
    at_most_s = max(log.high_s.get("spill", 0.0), log.high_s.get("garbage collection", 0.0))
    if size and at_most_s:
        yield Advice(
            "Give each task twice the memory",
            at_most_s,
            "upper end of spill and garbage collection",
            "The machine has no more; then use more partitions, or fewer cores per executor.",
            TUNING,
            name,
            f"{2 * size >> 20}m",
            now,
        )


def _advise_broadcast(log: _Log) -> Iterator[Advice]:
    """Joins with a side that is small enough to be sent to all executors."""
    name = "spark.sql.autoBroadcastJoinThreshold"
    threshold = parse_size(log.read(name, "10485760"))
    small = [side for side in list_small_sides(log.facts) if side.size_bytes <= MAX_BROADCAST_BYTES]
    if threshold is None or not small:
        return
    queries = {side.sql_id for side in small}
    spared = log.profile.exclusive_times.filter(
        pl.col("sql_id").is_in(queries), pl.col("operator").str.contains("^(?:Exchange|Sort$|SortMergeJoin|Shuffled)")
    )
    value = math.ceil(max(side.size_bytes for side in small) * SIZE_MARGIN / (1 << 20)) << 20
    if value > threshold:
        yield Advice(
            f"Broadcast sides of joins up to {format_bytes(value)} instead of sorting both",
            float(spared["wall_time_s"].sum()),
            f"exclusive time of exchanges, sorts and shuffled joins in {len(queries)} queries",
            "The driver or an executor lacks a few times that memory; or the small side grows.",
            SQL_TUNING,
            name,
            str(value),
            log.read(name, "10485760"),
        )


def _advise_large_broadcasts(log: _Log) -> Iterator[Advice]:
    metrics = log.facts.node_metrics.filter(pl.col("node_name") == "BroadcastExchange")
    value = pl.coalesce("driver_value", "total")
    sizes = dict(metrics.filter(metric_name="data size").group_by("sql_id").agg(value.max()).iter_rows())
    large = [sql_id for sql_id, size in sizes.items() if (size or 0) >= MIN_LARGE_BROADCAST_BYTES]
    times = metrics.filter(pl.col("sql_id").is_in(large), pl.col("metric_name").str.starts_with("time to "))
    if large:
        name = "spark.sql.autoBroadcastJoinThreshold"
        yield Advice(
            "Do not broadcast large sides of joins",
            float(times.select(value.sum()).item() or 0) / 1e3,
            f"time to collect, build and send them in {len(large)} queries",
            "A hint in the query asks for it: remove the hint.",
            SQL_TUNING,
            name,
            "-1",
            log.read(name, "10485760"),
        )


def _advise_python(log: _Log) -> Iterator[Advice]:
    if not (at_most_s := log.high_s.get("Python", 0.0)):
        return
    name = "spark.sql.execution.pythonUDF.arrow.enabled"
    pickled = log.facts.plan_nodes.filter(pl.col("node_name").str.contains("BatchEvalPython")).height
    since = tuple(int(part) for part in (log.session.spark_version or "0").split(".")[:2] if part.isdigit())
    if pickled and log.is_off(name, "false") and since >= (3, 5):
        yield Advice(
            "Send rows to Python functions in batches of columns",
            at_most_s,
            "upper end of Python",
            "A function takes or gives types that Arrow has not, or relies on how they were cast before.",
            ARROW,
            name,
            "true",
            "false",
        )
    yield Advice(
        "Replace Python functions by built-in ones",
        at_most_s,
        "upper end of Python",
        "No built-in function computes the same.",
        SQL_TUNING,
    )


def _advise_files(log: _Log) -> Iterator[Advice]:
    if at_most_s := log.high_s.get("small files", 0.0):
        yield Advice(
            "Compact the input to files of 128 MB or more",
            at_most_s,
            "upper end of small files",
            "They are read once, or the writer can be changed instead.",
            SQL_TUNING,
        )


def _advise_caching(log: _Log) -> Iterator[Advice]:
    if (repeated := measure_repeated_results(log.facts)) is not None:
        yield Advice(
            f"Cache or store what {repeated.n_queries} queries compute again",
            repeated.wall_s,
            "time of the operators that an earlier query ran alike",
            "Storing and reading it takes as long, or it needs the memory that joins have now.",
            SQL_TUNING,
        )


def _advise_executors(log: _Log) -> Iterator[Advice]:
    """More executors where they help, fewer where they cost without helping."""
    graph = log.graph
    if graph is None or log.read("spark.master", "").startswith("local["):
        return
    name, n = "spark.executor.instances", graph.n_executors
    more, fewer = log.replay(Scenario("", executors=2 * n)), log.replay(Scenario("", executors=max(1, n // 2)))
    if more is not None:
        yield Advice(
            "Twice the executors",
            max(0.0, log.wall_s - more[1]),
            "replay",
            f"Executor hours count: they become {2 * more[0] / log.wall_s:.2f} times as many.",
            SCHEDULING,
            name,
            str(2 * n),
            str(n),
        )
    if fewer is not None and n > 1 and log.profile.overview["executor_h"][0]:
        share = 1 - (n // 2) / n * fewer[0] / log.wall_s
        if fewer[0] <= (1 + MAX_LONGER) * log.wall_s and share >= MIN_SAVED_HOURS:
            yield Advice(
                f"Half the executors: {100 * (fewer[0] / log.wall_s - 1):+.0f} % wall time",
                0.0,
                "replay",
                "The memory of all executors together is needed, as for cached tables.",
                SCHEDULING,
                name,
                str(n // 2),
                str(n),
                saved_executor_h=share * float(log.profile.overview["executor_h"][0]),
            )


def _advise_waiting(log: _Log) -> Iterator[Advice]:
    at_most_s = log.high_s.get("waiting for executors", 0.0)
    if at_most_s and not log.is_off("spark.dynamicAllocation.enabled", "false"):
        name = "spark.dynamicAllocation.minExecutors"
        yield Advice(
            "Keep executors ready between jobs",
            at_most_s,
            "time in which a stage was open and no task ran",
            "Waiting costs less than the executors; or the queue is full.",
            SCHEDULING,
            name,
            str(max(1, (log.session.n_executors or 2) // 2)),
            log.read(name, "0"),
        )


RULES = (
    _advise_adaptive,
    _advise_skew,
    _advise_stragglers,
    _advise_partitions,
    _advise_coalescing,
    _advise_scan_tasks,
    _advise_defaults,
    _advise_memory,
    _advise_broadcast,
    _advise_large_broadcasts,
    _advise_python,
    _advise_files,
    _advise_caching,
    _advise_executors,
    _advise_waiting,
)
