"""Tables of an event log; `log_id` numbers the logs of one call, from 0.

Times are epoch milliseconds and durations integers in the log's own units (ms, ns), so that nothing is rounded.
"""

from __future__ import annotations

from workbench.core.tables import Column, Dtype, Table


def _log_columns(*columns: Column) -> tuple[Column, ...]:
    return (Column("log_id", "int", "Number of the log within this reading, from 0."), *columns)


def _id_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "int", meaning, nullable=nullable)


def _text_column(name: str, meaning: str, *, nullable: bool = True) -> Column:
    return Column(name, "str", meaning, nullable=nullable)


def _ms_column(name: str, meaning: str, *, nullable: bool = True) -> Column:
    return Column(name, "int", meaning, unit="ms", nullable=nullable)


_SQL_ID = _id_column("sql_id", "SQL execution (Spark's executionId).")
_STAGE = (_id_column("stage_id", "Stage."), _id_column("stage_attempt_id", "Attempt of the stage, from 0."))
_MAYBE_SQL = _id_column("sql_id", "SQL execution that it ran for; null outside SQL.", nullable=True)


def _statistics_columns(quantity: str, unit: str = "", dtype: Dtype = "int") -> tuple[Column, ...]:
    """n, min, median, p95, max, total: exact over tasks; null except n and total when n is 0."""
    return (
        Column("n", "int", f"Tasks that reported {quantity}."),
        Column("min", dtype, f"Smallest {quantity} of a task.", unit, nullable=True),
        Column("median", "float", "Median over tasks (numpy's).", unit, nullable=True),
        Column(
            "p95",
            "float",
            "95th percentile over tasks, linear between order statistics (numpy's).",
            unit,
            nullable=True,
        ),
        Column("max", dtype, f"Largest {quantity} of a task.", unit, nullable=True),
        Column("total", dtype, "Sum over tasks; null beyond 64 bits.", unit, nullable=True),
    )


LOGS = Table(
    "logs",
    "One row per log that was read.",
    ("log_id",),
    _log_columns(
        _text_column("path", "Path or URL.", nullable=False),
        _text_column("codec", "Codecs, detected by the first bytes.", nullable=False),
        _id_column("n_files", "Files that make up the log."),
        Column("input_bytes", "int", "Size of the files as stored.", "bytes"),
        Column("content_bytes", "int", "Size after decoding.", "bytes"),
        _id_column("n_lines", "Lines."),
        _id_column("n_events", "Events decoded; the others carry no facts."),
        _id_column("n_bad_lines", "Lines that could not be decoded."),
        _id_column(
            "n_late_task_ends",
            "Tasks that ended after their stage was closed: missing from the facts (Spark had dropped their start).",
        ),
        Column("n_tasks_ended", "int", "Tasks that ended, by their numbers.", nullable=True, added=True),
        _text_column("fault", "Damage and missing parts of the files; null without any."),
    ),
)
BAD_LINES = Table(
    "bad_lines",
    "Lines that could not be decoded (at most 1,000 per log are kept; logs.n_bad_lines counts all).",
    ("log_id", "file", "line"),
    _log_columns(
        _text_column("file", "File.", nullable=False),
        _id_column("line", "Line number, from 1."),
        Column("byte_offset", "int", "Offset of the line in the decoded file.", "bytes"),
        _text_column("reason", "Why it could not be decoded.", nullable=False),
        _text_column("text", "Its first 80 characters, without secrets.", nullable=False),
    ),
)
APPLICATIONS = Table(
    "applications",
    "One row per log: each holds one attempt of one application.",
    ("log_id",),
    _log_columns(
        _text_column("app_id", "Application id."),
        _text_column("attempt_id", "Attempt of the application, where the cluster manager numbers them."),
        _text_column("app_name", "Name."),
        _text_column("user", "User."),
        _text_column("spark_version", "Spark's version."),
        _text_column(
            "engine",
            "Engine: spark, rapids, comet, photon, gluten or auron by its plan nodes, else by its properties; "
            "unknown if most of its work is "
            "of plan nodes of an unknown engine.",
            nullable=False,
        ),
        _ms_column("start_time_ms", "Start, epoch."),
        _ms_column("end_time_ms", "End, epoch; null when the log does not say."),
        _ms_column("last_event_time_ms", "Latest time stamp in the log, epoch."),
        _ms_column("duration_ms", "End minus start; null if the log lacks one of them."),
        _text_column(
            "status",
            "complete, or incomplete: no start, no end, damage, or a missing file (else: see completeness).",
            nullable=False,
        ),
    ),
)
ENVIRONMENT = Table(
    "environment",
    "Spark properties and facts of the Java machine; secrets are redacted.",
    ("log_id", "section", "name"),
    _log_columns(
        _text_column("section", "spark or jvm.", nullable=False),
        _text_column("name", "Property.", nullable=False),
        _text_column("value", "Value.", nullable=False),
    ),
)
EXECUTORS = Table(
    "executors",
    "Executors that registered.",
    ("log_id", "executor_id"),
    _log_columns(
        _text_column("executor_id", "Executor (driver in local mode).", nullable=False),
        _text_column("host", "Host."),
        _id_column("total_cores", "Task slots.", nullable=True),
        _id_column("resource_profile_id", "Resource profile.", nullable=True),
        _ms_column("added_time_ms", "Registered, epoch."),
        _ms_column("removed_time_ms", "Removed, epoch; null while it lived to the end."),
        _text_column("removed_reason", "Why it was removed."),
    ),
)
RESOURCES = Table(
    "resources",
    "Resources of an executor of a profile, and of one of its tasks.",
    ("log_id", "resource_profile_id", "of", "resource"),
    _log_columns(
        _id_column("resource_profile_id", "Resource profile; 0 is that of the settings."),
        _text_column("of", "executor or task.", nullable=False),
        _text_column("resource", "cores or cpus, memory, or a resource such as gpu.", nullable=False),
        Column("amount", "float", "Amount."),
    ),
)
SQL_EXECUTIONS = Table(
    "sql_executions",
    "SQL executions.",
    ("log_id", "sql_id"),
    _log_columns(
        _SQL_ID,
        _id_column(
            "root_sql_id", "Execution that started it (itself when none); null before Spark 3.4.", nullable=True
        ),
        _text_column("description", "Job description, or the call site."),
        _ms_column("start_time_ms", "Start, epoch."),
        _ms_column("end_time_ms", "End, epoch; null when the log does not say."),
        _ms_column("duration_ms", "End minus start."),
        _text_column(
            "status", "succeeded, failed or running; before Spark 3.4, failed when a job of it did.", nullable=False
        ),
        _text_column("error", "Error message of a failed one (before Spark 3.4, of its first job that failed)."),
        _id_column("n_plan_versions", "Versions of its plan: 1 and one more per adaptive change."),
        Column(
            "modified_configs",
            "str",
            "SQL settings of its session that are not Spark's defaults, as JSON; null before Spark 3.4.",
            nullable=True,
            added=True,
        ),
        Column("connect_session", "str", "Session of Spark Connect that asked for it.", nullable=True, added=True),
        Column("connect_user", "str", "User of that session; null if it has no name.", nullable=True, added=True),
    ),
)
PLAN_NODES = Table(
    "plan_nodes",
    "Nodes of every version of every plan, numbered as in Spark's UI.",
    ("log_id", "sql_id", "plan_version", "node_id"),
    _log_columns(
        _SQL_ID,
        _id_column("plan_version", "Version of the plan, from 0."),
        Column("is_final", "bool", "Is this the last version?"),
        _id_column("node_id", "Number of the node in this version."),
        Column("parent_ids", "list[int]", "Nodes that it feeds; several for a reused exchange."),
        _id_column("codegen_id", "Node of the whole-stage-codegen span that it is fused into.", nullable=True),
        _id_column("depth", "Distance from the root."),
        _text_column("node_name", "Operator.", nullable=False),
        _text_column("simple_string", "Operator with its arguments (first 4,000 characters)."),
        Column(
            "accumulator_ids", "list[int]", "Accumulators of its metrics: the same in every version (see node_metrics)."
        ),
        _text_column("metadata", "Spark's metadata of scans, as JSON."),
    ),
)
NODE_METRICS = Table(
    "node_metrics",
    "Sum of each node's metrics, over all tasks of the stages that ran for the execution (a table cached earlier "
    "counts where it was made), at the last plan version that has them.",
    ("log_id", "sql_id", "node_id", "plan_version", "accumulator_id"),
    _log_columns(
        _SQL_ID,
        _id_column("plan_version", "Last plan version with this accumulator."),
        _id_column("node_id", "Node in that version; null for metrics of adaptive subplans.", nullable=True),
        _text_column("node_name", "Operator."),
        _id_column("accumulator_id", "Accumulator."),
        _text_column("metric_name", "Metric.", nullable=False),
        _text_column(
            "metric_type", "sum, size, timing (ms), nsTiming (ns) or average: the unit of the values.", nullable=False
        ),
        *_statistics_columns("the metric"),
        Column(
            "driver_value",
            "int",
            "Sum of the driver's additions (broadcasts, file listing); null without any.",
            nullable=True,
        ),
        Column("stage_ids", "list[int]", "Stages whose tasks reported it."),
    ),
)
JOBS = Table(
    "jobs",
    "Jobs.",
    ("log_id", "job_id"),
    _log_columns(
        _id_column("job_id", "Job."),
        _MAYBE_SQL,
        _ms_column("submission_time_ms", "Start, epoch; null when its start is missing from the log."),
        _ms_column("completion_time_ms", "End, epoch."),
        _ms_column("duration_ms", "End minus start."),
        _text_column("status", "succeeded, failed or running.", nullable=False),
        _text_column("error", "Exception of a failed one."),
        Column("stage_ids", "list[int]", "Its stages, those skipped too."),
        _text_column("job_group", "Job group."),
        _text_column("description", "Job description."),
    ),
)
STAGES = Table(
    "stages",
    "Stage attempts that were submitted or ended; a stage of a job that is not here was skipped.",
    ("log_id", "stage_id", "stage_attempt_id"),
    _log_columns(
        *_STAGE,
        _MAYBE_SQL,
        Column("job_ids", "list[int]", "Jobs that list it."),
        _text_column("name", "Call site."),
        _id_column("n_planned_tasks", "Partitions to work on.", nullable=True),
        Column("resource_profile_id", "int", "Resource profile; null before Spark 3.1.", nullable=True, added=True),
        _ms_column("submission_time_ms", "Start, epoch."),
        _ms_column("completion_time_ms", "End, epoch."),
        _ms_column("duration_ms", "End minus start."),
        _text_column("status", "succeeded, failed or running.", nullable=False),
        _text_column("failure_reason", "Why it failed."),
        Column("parent_ids", "list[int]", "Stages whose output it reads."),
        Column("scopes", "list[str]", "Operators that its RDDs were made for."),
    ),
)
STAGE_TASKS = Table(
    "stage_tasks",
    "Sums over the ended tasks of a stage attempt, including failed ones, which are also counted separately.",
    ("log_id", "stage_id", "stage_attempt_id"),
    _log_columns(
        *_STAGE,
        _id_column("n_tasks", "Tasks that ended."),
        _id_column("n_succeeded", "Of those, succeeded."),
        _id_column("n_failed", "Of those, failed."),
        _id_column("n_killed", "Of those, killed (speculation, cancelled stages)."),
        _id_column("n_speculative", "Of those, speculative copies."),
        Column(
            "n_resubmitted",
            "int",
            "Second ends of tasks whose output was lost with its executor: no attempts, and not among those.",
            nullable=True,
            added=True,
        ),
        _id_column(
            "n_with_metrics", "Of those, with task metrics: the population of all totals below except durations."
        ),
        _ms_column("first_launch_time_ms", "Earliest launch, epoch."),
        _ms_column("last_finish_time_ms", "Latest finish, epoch."),
        _ms_column("task_duration_min_ms", "Shortest task."),
        Column("task_duration_median_ms", "float", "Median task.", "ms", nullable=True),
        Column("task_duration_p95_ms", "float", "95th percentile.", "ms", nullable=True),
        _ms_column("task_duration_max_ms", "Longest task."),
        _ms_column("task_duration_total_ms", "Sum of finish minus launch."),
        _ms_column("failed_task_duration_total_ms", "Of that, in failed or killed tasks.", nullable=False),
        _ms_column("executor_run_time_ms", "Sum of executor run time.", nullable=False),
        Column("executor_cpu_time_ns", "int", "Sum of executor CPU time.", "ns"),
        _ms_column("executor_deserialize_time_ms", "Sum of deserialization time.", nullable=False),
        Column("executor_deserialize_cpu_time_ns", "int", "Sum of deserialization CPU time.", "ns"),
        Column("result_size_bytes", "int", "Sum of result sizes.", "bytes"),
        _ms_column("jvm_gc_time_ms", "Sum of garbage collection time.", nullable=False),
        _ms_column("result_serialization_time_ms", "Sum of result serialization time.", nullable=False),
        Column("memory_spilled_bytes", "int", "Sum of memory spilled.", "bytes"),
        Column("disk_spilled_bytes", "int", "Sum of spill on disk.", "bytes"),
        Column("input_bytes", "int", "Read from storage.", "bytes"),
        _id_column("input_records", "Records read."),
        Column("output_bytes", "int", "Written to storage.", "bytes"),
        _id_column("output_records", "Records written."),
        _id_column("shuffle_read_remote_blocks", "Shuffle blocks fetched from other executors."),
        _id_column("shuffle_read_local_blocks", "Shuffle blocks read locally."),
        _ms_column("shuffle_read_fetch_wait_time_ms", "Time tasks waited for shuffle blocks.", nullable=False),
        Column("shuffle_read_remote_bytes", "int", "Shuffle bytes from other executors.", "bytes"),
        Column("shuffle_read_remote_bytes_to_disk", "int", "Of those, fetched to disk.", "bytes"),
        Column("shuffle_read_local_bytes", "int", "Shuffle bytes read locally.", "bytes"),
        _id_column("shuffle_read_records", "Shuffle records read."),
        Column("shuffle_write_bytes", "int", "Shuffle bytes written.", "bytes"),
        _id_column("shuffle_write_records", "Shuffle records written."),
        Column("shuffle_write_time_ns", "int", "Time writing shuffle blocks.", "ns"),
        _ms_column("getting_result_time_ms", "Time the driver took to fetch large results.", nullable=False),
        Column("peak_execution_memory_max_bytes", "int", "Largest peak of a task.", "bytes"),
        Column("result_size_max_bytes", "int", "Largest result of a task.", "bytes"),
        Column(
            "busy_spans_ms",
            "list[int]",
            "When at least one of its tasks ran: starts and ends in turn, epoch ms; gaps below 1 s are no gaps.",
            nullable=True,
            added=True,
        ),
        Column(
            "peak_tasks",
            "int",
            "Most of its tasks at one time, without those whose slots may have been free for up to 1 s.",
            nullable=True,
            added=True,
        ),
        Column(
            "task_times_ms",
            "list[int]",
            "Finish minus launch of its tasks in the order of launch, failed ones too; of more than 1,000, so many "
            "chosen evenly.",
            nullable=True,
            added=True,
        ),
        Column(
            "task_rows",
            "list[int]",
            "Rows that each of these read from storage and shuffles; -1 without metrics.",
            nullable=True,
            added=True,
        ),
        Column(
            "task_executors",
            "list[int]",
            "Executor of each of these, as a number within the stage attempt.",
            nullable=True,
            added=True,
        ),
    ),
)
ACCUMULATORS = Table(
    "accumulators",
    "Exact statistics of every accumulator's updates in every stage attempt (updates that are no integers are counted "
    "only).",
    ("log_id", "stage_id", "stage_attempt_id", "accumulator_id"),
    _log_columns(
        *_STAGE,
        _id_column("accumulator_id", "Accumulator."),
        _text_column("name", "Its name.", nullable=False),
        *_statistics_columns("an update"),
        _id_column("n_not_integer", "Updates that are no integer."),
        _id_column(
            "value_at_stage_end",
            "What Spark's driver had counted when the stage ended: with earlier stages, where several share the "
            "accumulator.",
            nullable=True,
        ),
    ),
)
FAILURES = Table(
    "failures",
    "Failures: tasks (at most 20 per stage attempt; stage_tasks counts all), stages, jobs, SQL executions, executors.",
    (),
    _log_columns(
        _text_column("kind", "task, stage, job, sql or executor.", nullable=False),
        _MAYBE_SQL,
        _id_column("job_id", "Job.", nullable=True),
        _id_column("stage_id", "Stage.", nullable=True),
        _id_column("stage_attempt_id", "Attempt.", nullable=True),
        _id_column("task_id", "Task.", nullable=True),
        _text_column("executor_id", "Executor."),
        _ms_column("time_ms", "When, epoch."),
        _text_column("reason", "Kind of failure."),
        _text_column("message", "First 2,000 characters of the message."),
    ),
)

COMPLETENESS = Table(
    "completeness",
    "One row per part that is missing from the log; empty for a complete log.",
    (),
    _log_columns(
        _text_column(
            "kind",
            "file, part, task ends, tasks, stages, jobs, queries, plans, executors, engine, or an event's name.",
            nullable=False,
        ),
        _text_column("subject", "The missing part.", nullable=False),
        _text_column("evidence", "Evidence in the log.", nullable=False),
        _text_column("touches", "Figures that cannot be right without it.", nullable=False),
        _id_column("n_expected", "How many there must be, by the evidence.", nullable=True),
        _id_column("n_found", "Their number.", nullable=True),
        _id_column("sql_id", "SQL execution that it belongs to.", nullable=True),
        _id_column("job_id", "Job that it belongs to.", nullable=True),
        _id_column("stage_id", "Stage that it belongs to.", nullable=True),
        _id_column("stage_attempt_id", "Attempt of the stage.", nullable=True),
    ),
)

# Tables that do not depend on the codec.
FACT_TABLES = (
    APPLICATIONS,
    ENVIRONMENT,
    EXECUTORS,
    RESOURCES,
    SQL_EXECUTIONS,
    PLAN_NODES,
    NODE_METRICS,
    JOBS,
    STAGES,
    STAGE_TASKS,
    ACCUMULATORS,
    FAILURES,
    COMPLETENESS,
)
ALL_TABLES = (LOGS, BAD_LINES, *FACT_TABLES)
