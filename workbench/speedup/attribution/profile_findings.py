"""Findings of a profile: where an application lost time, how many seconds, and what to try.

Seconds at stake are an interval of wall time: `low_s` is what the log shows to be lost, `high_s` what it could be, and
`at_stake_s` the best estimate between. Task time becomes wall time by its share of the stage's own wall time. A second
may be in several findings. Constants that no log tells are declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.core.formats import format_bytes
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.task_slots import TaskSlots
from workbench.eventlog.wall_time import NOTHING, WAITING, Spans, split_wall_time_spans, sum_spans
from workbench.speedup import tables

# Less is not said: a share of the wall time, and seconds.
MIN_SHARE, MIN_S = 0.02, 0.5
# A session needs some seconds to start, the driver some between and inside queries.
START_S, BETWEEN_S, INSIDE_S = 10.0, 0.1, 0.2
# Spark's own page marks stages with more garbage collection than this share of their tasks' time.
MIN_GC_SHARE, USUAL_GC_SHARE = 0.1, 0.03
# The longest task is far above the median of its stage.
MIN_SKEW, MIN_TASKS = 2.0, 4
# Seconds of a core for each GB that a task spills and reads again: at least, usual, at most.
SPILL_S_PER_GB = (1.0, 4.0, 8.0)
# What built-in functions spare of the time in Python workers: at least, usual, at most.
PYTHON_SHARES = (0.5, 0.75, 1.0)
# Spark counts opening a file as reading 4 MB; a slow core reads so much in a second.
SMALL_FILE_BYTES, MIN_FILES, READ_BYTES_PER_S = 4 << 20, 100, 20e6
SHORT_TASK_MS, MIN_WAVES = 200, 5
PYTHON_NODE = "Python|Pandas|ArrowEval"
START_UP, BETWEEN, END, REPEATED = "start-up", "between queries", "end", "repeated queries"

STAKES = ("at_stake_s", "low_s", "high_s")
OUTSIDE = "(outside SQL)"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    `opening`, `decision`: For the answer, such as "Spill costs" and "give each task more memory". `describe`: What was
    found, of a row with `n`, `amount` and `extra`. `advice`: What to try, with the setting's name.
    """

    name: str
    opening: str
    decision: str
    describe: Callable[[Row], str]
    advice: str


def _count(n: float, noun: str) -> str:
    """A number of things.

    >>> _count(1, "query"), _count(2, "query"), _count(3, "task")
    ('1 query', '2 queries', '3 tasks')
    """
    if round(n) == 1:
        return f"{n:,.0f} {noun}"
    return f"{n:,.0f} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,.0f} {noun}s"


def format_seconds(value: float) -> str:
    """Seconds for a sentence.

    >>> format_seconds(3.14159), format_seconds(266.4)
    ('3.1', '266')
    """
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _describe_failures(row: Row) -> str:
    queries = [f"{_count(row['amount'], 'query')} failed"] if row["amount"] else []
    tasks = [f"{_count(row['n'], 'task')} failed or ended early"] if row["n"] else []
    return f"{'; '.join([*queries, *tasks]) or 'Stages ran again'}."


KINDS = (
    Kind(
        START_UP,
        "Start-up takes",
        "use one session for several jobs",
        lambda row: f"No query ran in the first {format_seconds(row['amount'])} s.",
        "Use one session for several jobs; look at spark.jars.packages, spark.yarn.archive and what runs before the "
        "first query.",
    ),
    Kind(
        BETWEEN,
        "Time between queries takes",
        "look at the driver's own program",
        lambda row: f"No query and no job was open in {_count(row['n'], 'gap')} between queries.",
        "Look at what the driver's program does there: move its loops into Spark, or submit queries from several "
        "threads (spark.scheduler.mode=FAIR).",
    ),
    Kind(
        END,
        "The end takes",
        "stop the session after the last query",
        lambda row: f"The application went on for {format_seconds(row['amount'])} s after its last query.",
        "Call spark.stop() after the last query.",
    ),
    Kind(
        "driver time",
        "The driver alone takes",
        "look at planning, file listing and commit",
        lambda row: f"The driver worked alone for {format_seconds(row['amount'])} s: planning, listing, commit, fetch.",
        "Read fewer files and partitions, cut long plans with checkpoint(), avoid collect(); try "
        "spark.sql.sources.parallelPartitionDiscovery.threshold.",
    ),
    Kind(
        "waiting for executors",
        "Waiting for executors takes",
        "keep executors ready",
        lambda row: f"A stage was open and no task ran in {_count(row['n'], 'wait')}.",
        "Raise spark.dynamicAllocation.minExecutors, or ask the cluster manager for a larger share (queue, quota).",
    ),
    Kind(
        "skew",
        "Skew costs",
        "split the largest partition",
        lambda row: f"The longest task took {format_seconds(row['amount'])} s, {row['extra']:,.0f}x the median.",
        "Turn on spark.sql.adaptive.skewJoin.enabled, or add a salt to the key that most rows share.",
    ),
    Kind(
        "spill",
        "Spill costs",
        "give each task more memory",
        lambda row: f"Tasks spilled {format_bytes(int(row['amount']))} of memory to disk.",
        "Raise spark.sql.shuffle.partitions or spark.executor.memory, or lower spark.executor.cores.",
    ),
    Kind(
        "garbage collection",
        "Garbage collection costs",
        "give the JVM more memory",
        lambda row: f"Garbage collection took {100 * row['extra']:.0f} % of the tasks' time.",
        "Raise spark.executor.memory (or spark.driver.memory in local mode), lower spark.executor.cores, cache less, "
        "and check the GC options.",
    ),
    Kind(
        "small files",
        "Reading small files costs",
        "compact them",
        lambda row: f"{_count(row['n'], 'file')} with {format_bytes(int(row['amount'] / row['n']))} each were read.",
        "Compact the files to 128 MB or more (OPTIMIZE, coalesce before the write), or raise "
        "spark.sql.files.maxPartitionBytes.",
    ),
    Kind(
        "small tasks",
        "Small tasks cost",
        "use fewer partitions",
        lambda row: f"{_count(row['n'], 'task')} with a median of at most {row['extra']:,.0f} ms.",
        "Lower spark.sql.shuffle.partitions, or turn on spark.sql.adaptive.coalescePartitions.enabled.",
    ),
    Kind(
        "Python",
        "Python workers cost",
        "use built-in functions",
        lambda row: f"Tasks waited {format_seconds(row['amount'])} s of task time for Python workers.",
        "Replace the function by built-in ones, or by a pandas function with "
        "spark.sql.execution.arrow.pyspark.enabled.",
    ),
    Kind(
        "failed work",
        "Failed work costs",
        "look at the failures",
        lambda row: _describe_failures(row),
        "Look at the reasons in the table of failures; spark.excludeOnFailure.enabled avoids bad nodes.",
    ),
    Kind(
        REPEATED,
        "Repeated queries cost",
        "keep their results",
        lambda row: f"{_count(row['n_queries'], 'query')} ran more than once: {_count(row['n'], 'repeat')}.",
        "If the data did not change, keep the result: df.cache(), or write it to a table.",
    ),
    Kind(
        "scheduler delay",
        "Scheduler delay costs",
        "give the driver more cores",
        lambda row: f"Tasks waited {format_seconds(row['amount'])} s of task time before and after they ran.",
        "Raise spark.driver.cores, lower spark.locality.wait, and broadcast large closures.",
    ),
    Kind(
        "result fetch",
        "Fetching results takes",
        "write results instead of collecting them",
        lambda row: f"The driver fetched task results for {format_seconds(row['amount'])} s.",
        "Write results to storage instead of collect() and toPandas(); see spark.driver.maxResultSize.",
    ),
    Kind(
        "idle slots",
        "Idle slots cost",
        "use more partitions",
        lambda row: f"{_count(row['n'], 'stage')} had fewer tasks than slots.",
        "Raise spark.sql.shuffle.partitions, or lower spark.sql.files.maxPartitionBytes; with dynamic allocation, "
        "lower spark.dynamicAllocation.executorIdleTimeout.",
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}


def build_findings(
    facts: EventLogFacts,
    exclusive: pl.DataFrame,
    plans: pl.DataFrame,
    names: pl.DataFrame,
    span_ms: tuple[int, int],
    *,
    is_whole: bool,
) -> pl.DataFrame:
    """Table FINDINGS: where time was lost, most seconds at stake first.

    `facts`: Of one log. `exclusive`: Table EXCLUSIVE_TIMES. `plans`: `sql_id, plan`, equal for repeats of a query.
    `names`: `sql_id, query`. `span_ms`: Start and end of the time that counts, epoch. `is_whole`: Are all queries of
    the log in `facts`? Without the others, gaps between queries are none.
    """
    spans = split_wall_time_spans(facts, *span_ms)
    wall_s = (span_ms[1] - span_ms[0]) / 1e3
    stages = _build_stages(facts, exclusive)
    parts = [
        _frame(_list_gaps(spans, span_ms) if is_whole else []),
        _frame(_list_waits(spans)),
        _find_driver_time(exclusive),
        _find_skew(stages),
        _find_spill(stages),
        _find_small_files(facts, stages),
        _find_python(stages),
        _find_collection(stages),
        _find_small_tasks(stages),
        _find_idle_slots(stages),
        _find_failed_work(facts, stages),
        _find_repeats(facts, plans),
    ]
    found = pl.concat([_cast(part) for part in parts])
    return _merge(found.filter(pl.col("at_stake_s") > 0), plans, names, wall_s)


_SCHEMA = pl.Schema(
    {
        "kind": pl.String,
        "sql_id": pl.Int64,
        "stage_id": pl.Int64,
        **dict.fromkeys((*STAKES, "n", "amount", "extra"), pl.Float64),
    }
)


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=_SCHEMA)


def _list_gaps(spans: dict[str, Spans], span_ms: tuple[int, int]) -> list[dict[str, Any]]:
    """Time without a query: at the start, between queries and at the end."""
    gaps: dict[str, list[float]] = {START_UP: [], BETWEEN: [], END: []}
    for first, last in spans[NOTHING]:
        place = START_UP if first == span_ms[0] else END if last == span_ms[1] else BETWEEN
        gaps[place].append((last - first) / 1e3)
    rows = []
    for kind, usual_s in ((START_UP, START_S), (BETWEEN, BETWEEN_S), (END, BETWEEN_S)):
        long = [gap for gap in gaps[kind] if gap > BETWEEN_S]
        high_s, low_s = sum(long), sum(max(0.0, gap - usual_s) for gap in long)
        stakes = {"low_s": low_s, "at_stake_s": (low_s + high_s) / 2, "high_s": high_s}
        rows.append({"kind": kind, "n": len(long), "amount": high_s, **stakes})
    return rows


def _list_waits(spans: dict[str, Spans]) -> list[dict[str, Any]]:
    """Time with an open stage and no task."""
    waiting_s = sum_spans(spans[WAITING]) / 1e3
    stakes = dict.fromkeys(STAKES, waiting_s)
    return [{"kind": "waiting for executors", "n": len(spans[WAITING]), "amount": waiting_s, **stakes}]


def _find_driver_time(exclusive: pl.DataFrame) -> pl.DataFrame:
    """Time of queries without an open stage. `exclusive`: Table EXCLUSIVE_TIMES."""
    alone = exclusive.filter(pl.col("stage_id").is_null(), pl.col("operator") != "waiting for executors")
    high = pl.col("wall_time_s").sum()
    return alone.group_by("sql_id").agg(
        kind=pl.lit("driver time"),
        stage_id=pl.lit(None),
        low_s=(high - INSIDE_S).clip(0) / 2,
        at_stake_s=(high - INSIDE_S).clip(0),
        high_s=high,
        n=pl.lit(1),
        amount=high,
        extra=pl.lit(None),
    )


def _build_stages(facts: EventLogFacts, exclusive: pl.DataFrame) -> pl.DataFrame:
    """A row per stage attempt: wall and task times in s, `wall_per_task` to turn the second into the first.

    `exclusive`: Table EXCLUSIVE_TIMES, whose wall times of stages never count a second twice.
    """
    walls = (
        exclusive.filter(pl.col("stage_id").is_not_null())
        .group_by("stage_id")
        .agg(of_stage_s=pl.col("wall_time_s").sum())
    )
    slots = TaskSlots(facts, facts.logs["log_id"][0])
    joined = facts.join_stage_tasks()
    profiles = {profile: slots.find_peak(profile)[1] for profile in joined["resource_profile_id"].unique()}
    python = (
        facts.node_metrics.filter(pl.col("node_name").str.contains(PYTHON_NODE))
        .select("stage_ids")
        .explode("stage_ids")
        .drop_nulls()
        .unique()
        .rename({"stage_ids": "stage_id"})
        .with_columns(is_python=True)
    )
    seconds = {
        "gc_s": "jvm_gc_time_ms",
        "run_s": "executor_run_time_ms",
        "deserialize_s": "executor_deserialize_time_ms",
        "fetch_wait_s": "shuffle_read_fetch_wait_time_ms",
        "serialize_s": "result_serialization_time_ms",
        "result_s": "getting_result_time_ms",
        "failed_s": "failed_task_duration_total_ms",
        "task_s": "task_duration_total_ms",
        "longest_s": "task_duration_max_ms",
        "median_s": "task_duration_median_ms",
    }
    nanoseconds = {"cpu_s": "executor_cpu_time_ns", "write_s": "shuffle_write_time_ns"}
    span_s = (
        pl.coalesce("completion_time_ms", "last_finish_time_ms")
        - pl.coalesce("submission_time_ms", "first_launch_time_ms")
    ) / 1e3
    return (
        joined.join(walls, on="stage_id", how="left")
        .join(python, on="stage_id", how="left")
        .with_columns(
            is_python=pl.col("is_python").fill_null(value=False),
            slots=pl.col("resource_profile_id").replace_strict(profiles, return_dtype=pl.Int64),
            span_s=span_s.clip(0),
            ran_s=((pl.col("last_finish_time_ms") - pl.col("first_launch_time_ms")) / 1e3).clip(0),
            **{name: pl.col(column).fill_null(0) / 1e3 for name, column in seconds.items()},
            **{name: pl.col(column).fill_null(0) / 1e9 for name, column in nanoseconds.items()},
        )
        .with_columns(
            wall_s=pl.min_horizontal(
                "span_s",
                pl.col("of_stage_s") * pl.col("span_s") / pl.col("span_s").sum().over("stage_id"),
            ).fill_nan(0)
        )
        .with_columns(
            wall_per_task=pl.when(pl.col("task_s") > 0).then(pl.col("wall_s") / pl.col("task_s")).otherwise(0)
        )
    )


def _build_rows(
    stages: pl.DataFrame, kind: str, low: pl.Expr, usual: pl.Expr, high: pl.Expr, **more: pl.Expr
) -> pl.DataFrame:
    """Rows of a kind, a stage attempt each; `low`, `usual`, `high`: Wall time in s, at most the stage's."""
    usual = pl.min_horizontal(usual, "wall_s")
    columns = {
        "low_s": pl.min_horizontal(low, usual),
        "at_stake_s": usual,
        "high_s": pl.max_horizontal(usual, pl.min_horizontal(high, "wall_s")),
    }
    given = {"n": pl.lit(1), "amount": usual, "extra": pl.lit(None)} | more
    return stages.select("sql_id", "stage_id", kind=pl.lit(kind), **columns, **given)


def _find_skew(stages: pl.DataFrame) -> pl.DataFrame:
    """Stages that ended with a task far above their median; sure is half of what the same work spread evenly spares."""
    uneven = stages.filter(
        pl.col("n_tasks") >= MIN_TASKS, pl.col("median_s") > 0, pl.col("longest_s") >= MIN_SKEW * pl.col("median_s")
    )
    even_s = pl.col("task_s") / pl.min_horizontal(pl.col("slots").fill_null(pl.col("n_tasks")), "n_tasks")
    excess_s = pl.col("longest_s") - pl.col("median_s")
    # Where other stages ran beside it, their tasks used the free slots.
    alone = pl.when(pl.col("span_s") > 0).then(pl.col("wall_s") / pl.col("span_s")).otherwise(0)
    usual = pl.min_horizontal(excess_s, (pl.col("ran_s") - even_s).clip(0)) * alone
    ratio = pl.col("longest_s") / pl.col("median_s")
    return _build_rows(uneven, "skew", usual / 2, usual, excess_s * alone, amount=pl.col("longest_s"), extra=ratio)


def _find_spill(stages: pl.DataFrame) -> pl.DataFrame:
    """Memory that was written to disk and read again."""
    spilled = stages.filter(pl.col("disk_spilled_bytes") > 0)
    core_s = pl.col("memory_spilled_bytes") / 1e9 * pl.col("wall_per_task")
    low, usual, high = (core_s * rate for rate in SPILL_S_PER_GB)
    return _build_rows(spilled, "spill", low, usual, high, amount=pl.col("memory_spilled_bytes"))


def _find_small_files(facts: EventLogFacts, stages: pl.DataFrame) -> pl.DataFrame:
    """Scans of many small files: the time of their stages beyond what the bytes take."""
    names = {"number of files read": "n_files", "size of files read": "file_bytes"}
    metrics = facts.node_metrics.filter(pl.col("node_name").str.starts_with("Scan"))
    read = (
        metrics.filter(pl.col("metric_name").is_in(list(names)))
        .group_by("sql_id", "node_id", name=pl.col("metric_name").replace_strict(names, default=None))
        .agg(value=pl.col("total").fill_null(0).sum() + pl.col("driver_value").fill_null(0).sum())
        .pivot("name", index=["sql_id", "node_id"], values="value")
    )
    if not {"n_files", "file_bytes"} <= set(read.columns):
        return _frame([])
    small = read.filter(pl.col("n_files") >= MIN_FILES, pl.col("file_bytes") < SMALL_FILE_BYTES * pl.col("n_files"))
    by_stage = (
        metrics.explode("stage_ids")
        .select("sql_id", "node_id", stage_id="stage_ids")
        .drop_nulls()
        .unique()
        .join(small, on=["sql_id", "node_id"])
        .group_by("stage_id")
        .agg(pl.col("n_files", "file_bytes").sum())
    )
    scans = stages.join(by_stage, on="stage_id").filter(pl.col("stage_attempt_id") == 0, pl.col("input_records") > 0)
    work_s = pl.col("task_s") - pl.when("is_python").then(_python_time()).otherwise(0)
    usual = (work_s - pl.col("file_bytes") / READ_BYTES_PER_S).clip(0) * pl.col("wall_per_task")
    return _build_rows(
        scans, "small files", usual / 2, usual, pl.col("wall_s"), n=pl.col("n_files"), amount=pl.col("file_bytes")
    )


def _python_time() -> pl.Expr:
    """Task time in which the JVM waited for Python workers: no CPU of its own, no known wait."""
    known = pl.sum_horizontal("cpu_s", "gc_s", "fetch_wait_s", "write_s")
    return (pl.col("run_s") - known).clip(0)


def _find_python(stages: pl.DataFrame) -> pl.DataFrame:
    """Stages whose plan evaluates Python."""
    waited = _python_time()
    low, usual, high = (waited * pl.col("wall_per_task") * share for share in PYTHON_SHARES)
    return _build_rows(stages.filter("is_python"), "Python", low, usual, high, amount=waited)


def _find_collection(stages: pl.DataFrame) -> pl.DataFrame:
    """Stages with much garbage collection; at most, all time without CPU work is due to it."""
    share = pl.col("gc_s") / pl.col("run_s")
    much = stages.filter(pl.col("run_s") > 0, share >= MIN_GC_SHARE)
    low = (pl.col("gc_s") - USUAL_GC_SHARE * pl.col("run_s")).clip(0) * pl.col("wall_per_task")
    usual = pl.col("gc_s") * pl.col("wall_per_task")
    stalled = pl.when("is_python").then(0).otherwise(_python_time()) * pl.col("wall_per_task")
    return _build_rows(much, "garbage collection", low, usual, usual + stalled, amount=pl.col("gc_s"), extra=share)


def _find_small_tasks(stages: pl.DataFrame) -> pl.DataFrame:
    """Time around tasks: of many short ones, which fewer partitions avoid, and of others, the scheduler's."""
    are_small = (
        (pl.col("median_s") < SHORT_TASK_MS / 1e3) & (pl.col("n_tasks") >= MIN_WAVES * pl.col("slots"))
    ).fill_null(value=False)
    around_s = (pl.col("task_s") - pl.sum_horizontal("run_s", "result_s")).clip(0)
    small = stages.filter(are_small)
    usual = around_s * pl.col("wall_per_task")
    free = (pl.col("wall_s") - pl.col("run_s") / pl.col("slots")).clip(0)
    median_ms = 1e3 * pl.col("median_s")
    tasks = pl.col("n_tasks")
    delay_s = (around_s - pl.sum_horizontal("deserialize_s", "serialize_s")).clip(0)
    delay = delay_s * pl.col("wall_per_task")
    fetch = pl.col("result_s") * pl.col("wall_per_task")
    return pl.concat(
        _cast(part)
        for part in (
            _build_rows(small, "small tasks", usual / 2, usual, free, n=tasks, amount=around_s, extra=median_ms),
            _build_rows(stages.filter(~are_small), "scheduler delay", delay / 2, delay, delay, amount=delay_s),
            _build_rows(stages, "result fetch", fetch / 2, fetch, fetch, amount=pl.col("result_s")),
        )
    )


def _cast(part: pl.DataFrame) -> pl.DataFrame:
    return part.select(*_SCHEMA.names()).cast(_SCHEMA)


def _find_idle_slots(stages: pl.DataFrame) -> pl.DataFrame:
    """Stages with fewer tasks than slots; sure is nothing, since their work may not be divisible."""
    few = stages.filter(pl.col("n_tasks") < pl.col("slots"))
    high = (pl.col("wall_s") - pl.col("task_s") / pl.col("slots")).clip(0)
    return _build_rows(few, "idle slots", pl.lit(0.0), high / 2, high)


def _find_failed_work(facts: EventLogFacts, stages: pl.DataFrame) -> pl.DataFrame:
    """Queries that failed, failed or killed tasks, and stages that ran again; sure is half, since other work ran on."""
    is_outer = pl.col("root_sql_id").is_null() | (pl.col("root_sql_id") == pl.col("sql_id"))
    failed = facts.sql_executions.filter(is_outer, pl.col("status") == "failed").select(
        "sql_id", s=pl.col("duration_ms").fill_null(0) / 1e3
    )
    lost = (
        pl.when(pl.col("stage_attempt_id") > 0)
        .then(pl.col("wall_s"))
        .otherwise(pl.col("failed_s") * pl.col("wall_per_task"))
    )
    others = stages.join(failed, on="sql_id", how="anti")
    n = pl.col("n_failed") + pl.col("n_killed")
    of_tasks = _build_rows(others, "failed work", lost / 2, lost, lost, n=n, amount=pl.lit(0))
    counts = stages.group_by("sql_id").agg(n=n.sum())
    of_queries = failed.join(counts, on="sql_id", how="left").select(
        "sql_id",
        pl.col("n").fill_null(0),
        kind=pl.lit("failed work"),
        low_s=pl.col("s") / 2,
        at_stake_s=pl.col("s"),
        high_s=pl.col("s"),
        stage_id=pl.lit(None),
        amount=pl.lit(1),
        extra=pl.lit(None),
    )
    return pl.concat([_cast(of_tasks), _cast(of_queries)])


def _find_repeats(facts: EventLogFacts, plans: pl.DataFrame) -> pl.DataFrame:
    """Later runs of the same query; sure is nothing, since its data may have changed."""
    runs = facts.sql_executions.join(plans, on="sql_id").filter(pl.col("status") == "succeeded").sort("start_time_ms")
    later = runs.filter(pl.col("plan").is_not_null(), pl.int_range(pl.len()).over("plan") > 0)
    high = pl.col("duration_ms") / 1e3
    return later.select(
        "sql_id",
        kind=pl.lit(REPEATED),
        stage_id=pl.lit(None),
        low_s=pl.lit(0.0),
        at_stake_s=high / 2,
        high_s=high,
        n=pl.lit(1),
        amount=high,
        extra=pl.lit(None),
    )


def _merge(found: pl.DataFrame, plans: pl.DataFrame, names: pl.DataFrame, wall_s: float) -> pl.DataFrame:
    """Add up rows of one kind and query (all runs of it); what stays below the threshold is added up over queries."""
    keyed = found.join(plans, on="sql_id", how="left").with_columns(
        group=pl.coalesce("plan", pl.format("sql {}", "sql_id"), pl.lit(""))
    )
    least_s = max(MIN_S, MIN_SHARE * wall_s)
    by_query = _sum_rows(keyed.filter(pl.col("kind") != REPEATED), ["kind", "group"])
    said = by_query.filter(pl.col("at_stake_s") >= least_s)
    rest = keyed.join(said, on=["kind", "group"], how="anti")
    pooled = _sum_rows(rest, ["kind"]).filter(pl.col("at_stake_s") >= least_s)
    named = dict(names.iter_rows())
    rows = []
    for row in (*said.iter_rows(named=True), *pooled.iter_rows(named=True)):
        kind = BY_NAME[row["kind"]]
        is_one = row["n_queries"] == 1
        n_runs = len(row["sql_ids"])
        over = "" if kind.name == REPEATED else f" In {_count(row['n_queries'], 'query')}." if not is_one else ""
        if is_one and n_runs > 1:
            over = f" In {n_runs:,} runs."
        query = named[row["sql_id"]] if is_one and n_runs else None
        if is_one and not n_runs and row["stage_id"] is not None:
            query = OUTSIDE
        stakes = {name: min(row[name], wall_s) for name in STAKES}
        finding = {
            "kind": kind.name,
            "finding": kind.describe(row) + over,
            **stakes,
            "at_stake_share": stakes["at_stake_s"] / wall_s if wall_s else None,
            "sql_id": row["sql_id"] if is_one else None,
            "query": query,
            "stage_id": row["stage_id"] if is_one else None,
            "what_to_try": kind.advice,
        }
        rows.append(finding)
    order = ["at_stake_s", "high_s", "kind", "sql_id"]
    return tables.FINDINGS.frame(rows).sort(order, descending=[True, True, False, False])


def _sum_rows(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    largest = pl.col("at_stake_s").arg_max()
    return rows.group_by(by).agg(
        *(pl.col(name).sum() for name in (*STAKES, "n")),
        amount=pl.when(pl.col("kind").first() == "skew").then(pl.col("amount").max()).otherwise(pl.col("amount").sum()),
        extra=pl.col("extra").max(),
        sql_ids=pl.col("sql_id").drop_nulls().unique().sort(),
        n_queries=pl.col("group").n_unique(),
        sql_id=pl.col("sql_id").get(largest),
        stage_id=pl.col("stage_id").get(largest),
    )


def iterate_wordings(findings: pl.DataFrame, wall_s: float) -> Iterator[str]:
    """Wordings of the answer by the costliest finding, longest first. `findings`: Table FINDINGS, with a row."""
    row = findings.row(0, named=True)
    kind = BY_NAME[row["kind"]]
    low, high, usual = (format_seconds(row[name]) for name in ("low_s", "high_s", "at_stake_s"))
    about, ends = ("about ", f", {low.removesuffix('.0')} to {high}") if low != high else ("", "")
    # A loss that may be none is not stated as one.
    seconds = f"up to {high}" if low == format_seconds(0) else f"{about}{usual}"
    ends = "" if low == format_seconds(0) else ends
    yield f"{kind.opening} {seconds} s of {format_seconds(wall_s)} s{ends}: {kind.decision}."
    yield f"{kind.opening} {seconds} s{ends}: {kind.decision}."
    yield f"{kind.opening} {seconds} s{ends}."


def format_findings(findings: pl.DataFrame) -> str:
    """Findings as text, two lines each. `findings`: Table FINDINGS."""
    lines = [f"{tables.FINDINGS_CAPTION}:"]
    for row in findings.iter_rows(named=True):
        stage = "" if row["stage_id"] is None else f"stage {row['stage_id']}"
        where = ", ".join(filter(None, [row["query"], stage]))
        seconds = (
            f"{format_seconds(row['at_stake_s'])} s ({format_seconds(row['low_s'])} to {format_seconds(row['high_s'])})"
        )
        lines += [
            f"- {row['kind']}, {seconds}: {row['finding']}{f' ({where})' if where else ''}",
            f"  {row['what_to_try']}",
        ]
    return "\n".join(lines)
