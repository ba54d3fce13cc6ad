"""The tables of a profile. Times are seconds; those with `start` or `end` count from the application's start, or
from the first time that a log without it holds.
"""

from __future__ import annotations

from workbench.tables import Column, Table


def _seconds(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "float", meaning, "s", nullable=nullable)


def _share(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "float", meaning, "share", nullable=nullable)


def _count(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "int", meaning, nullable=nullable)


OVERVIEW = Table(
    "overview",
    "The application in one row.",
    ("app_id",),
    (
        Column("app_id", "str", "Application id."),
        Column("app_name", "str", "Name.", nullable=True),
        Column("spark_version", "str", "Spark's version.", nullable=True),
        Column("engine", "str", "spark, rapids or comet."),
        Column("status", "str", "complete or incomplete."),
        _seconds(
            "wall_time_s",
            "From start to end, or to the last event of a log without its end; null when it does not hold the start.",
            nullable=True,
        ),
        _seconds("busy_time_s", "With at least one stage running."),
        _seconds("stage_time_s", "Sum of the stages' wall times: above busy time when stages overlap."),
        Column(
            "overlap_ratio",
            "float",
            "Stage time over busy time: 1 when no two stages ran at once; null without stages.",
            nullable=True,
        ),
        _seconds("task_time_s", "Sum of the tasks' durations, failed ones too."),
        _count(
            "n_task_slots",
            "Most task slots that were there at one time; null when the log does not say.",
            nullable=True,
        ),
        _share(
            "slot_use_share",
            "Task time over the time that slots were there, from their executor's start to its end.",
            nullable=True,
        ),
        _count("n_queries", "SQL executions."),
        _count("n_failed_queries", "Of those, failed."),
        _count("n_stages", "Stage attempts."),
        _count("n_tasks", "Tasks that ended."),
        _count("n_failed_tasks", "Of those, failed or killed."),
    ),
)
QUERIES = Table(
    "queries",
    "What each SQL execution took.",
    ("sql_id",),
    (
        _count("sql_id", "SQL execution."),
        Column("query", "str", "Its description, with the id."),
        Column("status", "str", "succeeded, failed or running."),
        _seconds("start_s", "Start.", nullable=True),
        _seconds("end_s", "End; null when the log does not say.", nullable=True),
        _seconds("duration_s", "Wall time.", nullable=True),
        _seconds("task_time_s", "Sum of its tasks' durations."),
        _share("task_time_share", "Of the task time of all queries looked at.", nullable=True),
        _count("n_stages", "Stage attempts."),
        _count("n_tasks", "Tasks that ended."),
        _count("n_failed_tasks", "Of those, failed or killed."),
    ),
)
STAGE_SPANS = Table(
    "stage_spans",
    "When each stage attempt ran, and how evenly its tasks were cut.",
    ("stage_id", "stage_attempt_id"),
    (
        _count("stage_id", "Stage."),
        _count("stage_attempt_id", "Attempt."),
        Column("stage", "str", "Stage and attempt, for people."),
        _count("sql_id", "SQL execution; null outside SQL.", nullable=True),
        Column("query", "str", "Description of the SQL execution."),
        Column("status", "str", "succeeded, failed or running."),
        _seconds("start_s", "Start."),
        _seconds("end_s", "End, or the last task's end of a running one."),
        _count("n_tasks", "Tasks that ended."),
        _count("n_failed_tasks", "Of those, failed or killed."),
        _seconds("task_time_s", "Sum of the tasks' durations."),
        _seconds("task_median_s", "Median task.", nullable=True),
        _seconds("task_max_s", "Longest task.", nullable=True),
        Column(
            "skew_ratio", "float", "Longest over median task; null below 4 tasks or with a median of 0.", nullable=True
        ),
        _seconds(
            "skew_cost_s",
            "Longest minus median task: what an even cut could save at most; null where skew is null.",
            nullable=True,
        ),
    ),
)
OPERATOR_TIMES = Table(
    "operator_times",
    "Time that operators report themselves, by operator and metric. Times nest (a codegen span holds its operators), "
    "so rows must not be added.",
    ("operator", "metric", "where"),
    (
        Column("operator", "str", "Operator, its number and file format apart."),
        Column("metric", "str", "Name of the metric."),
        Column("where", "str", "tasks, or driver (broadcasts, file listing)."),
        _seconds("total_s", "Sum over nodes and tasks."),
        _seconds("max_s", "Longest that one task reports; null for the driver's.", nullable=True),
        _count("n_nodes", "Plan nodes that report it."),
        _count("n_tasks", "Task reports; 0 for the driver's."),
    ),
)
COVERAGE = Table(
    "coverage",
    "What the log can say about the task time. The rows add up to all task time.",
    ("part",),
    (
        Column("part", "str", "Kind of task time."),
        _seconds("task_time_s", "Sum of the tasks' durations."),
        _share("task_time_share", "Of all task time; null without any.", nullable=True),
        _count("n_stages", "Stage attempts."),
    ),
)
FAILURE_COUNTS = Table(
    "failure_counts",
    "What failed, by kind and reason.",
    ("kind", "reason", "message"),
    (
        Column("kind", "str", "task, stage, job, sql or executor."),
        Column("reason", "str", "Kind of failure."),
        Column("message", "str", "First line of what was said."),
        _count("n", "How often (at most 20 tasks per stage attempt are told apart)."),
        _seconds("first_s", "First time; null when the log does not say.", nullable=True),
    ),
)
ALL = (OVERVIEW, QUERIES, STAGE_SPANS, OPERATOR_TIMES, COVERAGE, FAILURE_COUNTS)
