"""Declared tables of the area: logs, pairs and factors, fleets, recordings."""

from __future__ import annotations

from workbench.core import books
from workbench.core.tables import Column, Table

# Ratio from which a move is recommended.
LEAST_RATIO = 1.3


def text_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of texts."""
    return Column(name, "str", meaning, nullable=nullable)


def count_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of whole numbers."""
    return Column(name, "int", meaning, nullable=nullable)


def number_column(name: str, meaning: str, unit: str = "", *, nullable: bool = False) -> Column:
    """A column of numbers."""
    return Column(name, "float", meaning, unit, nullable=nullable)


def seconds_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of times in seconds."""
    return number_column(name, meaning, "s", nullable=nullable)


def share_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of shares, 0 to 1."""
    return number_column(name, meaning, "share", nullable=nullable)


def ratio_column(name: str, meaning: str, *, nullable: bool = False) -> Column:
    """A column of ratios, such as factors."""
    return number_column(name, meaning, "times", nullable=nullable)


# One execution in one log: the key of most tables about logs.
_EXECUTION = (
    text_column("label", "Side: the engine or setting that ran it."),
    text_column("session", "Log: one fresh driver."),
    count_column("sql_id", "SQL execution."),
)
OVERVIEW = Table(
    "overview",
    "The application in one row.",
    ("app_id",),
    (
        text_column("app_id", "Application id."),
        text_column("app_name", "Name.", nullable=True),
        text_column("spark_version", "Spark's version.", nullable=True),
        text_column("engine", "Engine, as in the event log's table of applications."),
        text_column("status", "complete or incomplete."),
        seconds_column(
            "wall_time_s",
            "From start to end, or to the last event of a log without an end; null if the log lacks the start.",
            nullable=True,
        ),
        seconds_column("busy_time_s", "Time with at least one stage running."),
        seconds_column("stage_time_s", "Sum of the stages' wall times: above busy time when stages overlap."),
        number_column(
            "overlap_ratio", "Stage time over busy time: 1 without overlap; null without stages.", nullable=True
        ),
        seconds_column("task_time_s", "Sum of the task durations, failed tasks included."),
        seconds_column(
            "task_time_high_s",
            "Upper limit if only ends of tasks are missing: each took at most its stage's time. Null otherwise.",
            nullable=True,
        ),
        count_column("n_task_slots", "Largest number of task slots at one time; null if unknown.", nullable=True),
        Column(
            "mean_task_slots",
            "float",
            "Slot time over wall time: below the largest number if executors were added or removed; null if unknown.",
            nullable=True,
            added=True,
        ),
        share_column(
            "slot_use_share",
            "Share of the slots' time that tasks took, each slot from its executor's start to its end, by resources of "
            "the stage's profile; null where work is missing.",
            nullable=True,
        ),
        Column(
            "executor_h",
            "float",
            "Time of all executors, each from its start to its end; null if unknown.",
            "h",
            nullable=True,
            added=True,
        ),
        Column("core_h", "float", "The same by core.", "h", nullable=True, added=True),
        Column("idle_core_h", "float", "Of that, without a task.", "h", nullable=True, added=True),
        Column(
            "cost",
            "float",
            "Executor hours times their price; null without one.",
            "currency",
            nullable=True,
            added=True,
        ),
        count_column("n_queries", "SQL executions."),
        count_column("n_failed_queries", "SQL executions that failed."),
        count_column("n_stages", "Stage attempts."),
        count_column("n_tasks", "Tasks that ended."),
        count_column("n_failed_tasks", "Tasks that failed or were killed."),
    ),
)
QUERIES = Table(
    "queries",
    "Time of each SQL execution.",
    ("sql_id",),
    (
        count_column("sql_id", "SQL execution."),
        text_column("query", "Its description, with the id."),
        text_column("status", "succeeded, failed or running."),
        seconds_column("start_s", "Start.", nullable=True),
        seconds_column("end_s", "End; null if the log lacks it.", nullable=True),
        seconds_column("duration_s", "Wall time.", nullable=True),
        seconds_column("task_time_s", "Sum of its task durations."),
        share_column(
            "task_time_share",
            "Share of the task time of all listed queries; null where work is missing.",
            nullable=True,
        ),
        count_column("n_stages", "Stage attempts."),
        count_column("n_tasks", "Tasks that ended."),
        count_column("n_failed_tasks", "Tasks that failed or were killed."),
    ),
)
STAGE_SPANS = Table(
    "stage_spans",
    "Start, end and task skew of each stage attempt.",
    ("stage_id", "stage_attempt_id"),
    (
        count_column("stage_id", "Stage."),
        count_column("stage_attempt_id", "Attempt."),
        text_column("stage", "Stage and attempt as text."),
        count_column("sql_id", "SQL execution; null outside SQL.", nullable=True),
        text_column("query", "Description of the SQL execution."),
        text_column("status", "succeeded, failed or running."),
        seconds_column("start_s", "Start."),
        seconds_column("end_s", "End, or the last task's end of a running stage."),
        count_column("n_tasks", "Tasks that ended."),
        count_column("n_failed_tasks", "Tasks that failed or were killed."),
        seconds_column("task_time_s", "Sum of the task durations."),
        seconds_column("task_median_s", "Median task.", nullable=True),
        seconds_column("task_max_s", "Longest task.", nullable=True),
        number_column(
            "skew_ratio", "Longest over median task; null below 4 tasks or with a median of 0.", nullable=True
        ),
        seconds_column(
            "skew_cost_s",
            "Longest minus median task, the most that an even split could save; null where skew_ratio is null.",
            nullable=True,
        ),
    ),
)
EXCLUSIVE_TIMES = Table(
    "exclusive_times",
    "Time of each SQL execution by stage and operator, each second once. The rows of an execution add up to its wall "
    "time and to its task time; where operators share a measured time, their parts are estimates.",
    ("sql_id", "stage_id", "operator"),
    (
        count_column("sql_id", "SQL execution; one that another started is a part of that one."),
        text_column("query", "Its description, with the id."),
        count_column("stage_id", "Stage, all attempts; null for time without a running stage.", nullable=True),
        text_column(
            "operator",
            "Operator, with a star where an accelerator ran it; or a kind of time outside operators: idle (no stage "
            "ran), task overhead, unattributed.",
        ),
        seconds_column("wall_time_s", "Its part of the execution's wall time; that of stages at once is divided."),
        share_column("wall_time_share", "Share of the execution's wall time; null if that is 0.", nullable=True),
        seconds_column("task_time_s", "Its part of the task durations."),
        text_column("basis", "Measurements that it rests on."),
    ),
)
OPERATOR_TIMES = Table(
    "operator_times",
    "Times that operators report, by operator and metric. They nest (a codegen span includes its operators): do not "
    "add rows.",
    ("operator", "metric", "where"),
    (
        text_column("operator", "Operator, without its number; scans with their file format."),
        text_column("metric", "Name of the metric."),
        text_column("includes", "What else the time includes; null if unknown.", nullable=True),
        text_column("where", "tasks, or driver (broadcasts, file listing)."),
        seconds_column("total_s", "Sum over nodes and tasks."),
        seconds_column("max_s", "Longest time that one task reports; null for the driver.", nullable=True),
        count_column("n_nodes", "Plan nodes that report it."),
        count_column("n_tasks", "Task reports; 0 for the driver."),
    ),
)
COVERAGE = Table(
    "coverage",
    "Task time by what the log says about it. The rows add up to all task time.",
    ("part",),
    (
        text_column("part", "Kind of task time."),
        seconds_column("task_time_s", "Sum of the task durations."),
        share_column(
            "task_time_share", "Share of all task time; null if there is none, or work is missing.", nullable=True
        ),
        count_column("n_stages", "Stage attempts."),
    ),
)
FAILURE_COUNTS = Table(
    "failure_counts",
    "Failures by kind and reason.",
    ("kind", "reason", "message"),
    (
        text_column("kind", "task, stage, job, sql or executor."),
        text_column("reason", "Kind of failure."),
        text_column("message", "First line of the message."),
        count_column("n", "Number of failures (at most 20 tasks per stage attempt are listed one by one)."),
        seconds_column("first_s", "Time of the first; null if the log lacks it.", nullable=True),
    ),
)
CONNECT_SESSIONS = Table(
    "connect_sessions",
    "Sessions of Spark Connect, most time first.",
    ("connect_session",),
    (
        text_column("connect_session", "Id of the session."),
        text_column("connect_user", "Its user; null without a name.", nullable=True),
        count_column("n_queries", "Queries that it asked for."),
        count_column("n_failed", "Failed ones of them."),
        seconds_column("sql_s", "Time of its queries together; those side by side count each."),
        seconds_column("first_s", "Start of the first one, since the application's start.", nullable=True),
        seconds_column("last_s", "End of the last one; null if the log lacks it.", nullable=True),
    ),
)
WALL_PARTS = Table(
    "wall_parts",
    "Wall time of the application by part; the parts add up to its wall time.",
    ("part",),
    (
        text_column("part", "running, waiting, driver or nothing."),
        seconds_column("wall_s", "Its time."),
        share_column("wall_share", "Share of the wall time; null if it took no time.", nullable=True),
        text_column("meaning", "Meaning of the part."),
        Column(
            "slot_s",
            "float",
            "Its part of the slot time: wall time times the largest number of slots; running is the time of tasks, "
            "waiting the rest of the slots while a stage was open. Null where the slots are not known.",
            "s",
            nullable=True,
            added=True,
        ),
        Column("slot_share", "float", "Share of the slot time.", "share", nullable=True, added=True),
    ),
)
EXECUTOR_STEPS = Table(
    "executor_steps",
    "Executors over time: a row for each moment when some came or went.",
    ("time_s",),
    (
        seconds_column("time_s", "From then on, since the application's start."),
        count_column("n_executors", "Executors."),
        count_column("n_cores", "Their cores."),
    ),
)
EXECUTOR_SHAPES = Table(
    "executor_shapes",
    "Executors by resource profile and cores, and the hours that they were there.",
    ("resource_profile_id", "executor_cores"),
    (
        count_column("resource_profile_id", "Resource profile; 0 is that of the settings."),
        count_column("executor_cores", "Cores of an executor.", nullable=True),
        text_column("executor_memory", "Its memory by the settings; null for other profiles.", nullable=True),
        count_column("n_executors", "Executors that were there, all the time or for a while."),
        number_column("executor_h", "Their time together.", "h"),
        number_column("core_h", "The same by core.", "h", nullable=True),
    ),
)
FINDINGS_CAPTION = "Where time was lost, most seconds first; a second may be in several rows"
FINDINGS = Table(
    "findings",
    "Where time was lost and what to try, most seconds at stake first; a second may be in several rows. Findings "
    "below 2 % of the wall time or 0.5 s are not listed, nor losses without a metric in the log.",
    (),
    (
        text_column("kind", "Kind of loss, such as skew or spill."),
        text_column("finding", "Finding."),
        seconds_column("at_stake_s", "Wall time at stake, best estimate."),
        seconds_column("low_s", "Time that is surely lost."),
        seconds_column("high_s", "Time that could be lost."),
        share_column("at_stake_share", "Share of the wall time; null if it took no time.", nullable=True),
        text_column(
            "query", "Query with its id, of several runs that with most of it; null for several queries.", nullable=True
        ),
        count_column("sql_id", "Its SQL execution; null outside SQL and for several queries.", nullable=True),
        count_column("stage_id", "Stage with most of it; null for time without a stage.", nullable=True),
        text_column("what_to_try", "What to change, with the setting's name."),
    ),
)
SCENARIOS = Table(
    "scenarios",
    "What the application would have taken otherwise, replayed from its measured tasks; the first row is the run as it "
    "was.",
    ("scenario",),
    (
        text_column("scenario", "What is changed."),
        seconds_column("wall_s", "Wall time; null if unknown.", nullable=True),
        seconds_column("low_s", "Lower end of its interval; null for the run as it was.", nullable=True),
        seconds_column("high_s", "Upper end.", nullable=True),
        seconds_column("saved_s", "Wall time of the run as it was minus this one.", nullable=True),
        text_column("verdict", "faster, slower, no difference shown (the run's time is in the interval), not known."),
        count_column(
            "executors", "Executors, all from the start; of the run as it was, most at a time.", nullable=True
        ),
        count_column("executor_cores", "Cores of an executor."),
        number_column("executor_h", "Time of all executors, each from its start to its end.", "h", nullable=True),
        number_column("core_h", "The same by core.", "h", nullable=True),
        number_column("cost", "Executor hours times their price; null without one.", "currency", nullable=True),
    ),
)
CRITICAL_PATH = Table(
    "critical_path",
    "The steps of the run as it was that its end waited for, in order; their times add up to its replayed wall time.",
    ("number",),
    (
        count_column("number", "Place in the order, from 0."),
        text_column("step", "stage, end of query (commit, fetch), query (before its first stage), or end."),
        text_column("query", "Query; null outside.", nullable=True),
        count_column("sql_id", "SQL execution; null outside SQL.", nullable=True),
        count_column("stage_id", "Stage.", nullable=True),
        seconds_column("driver_s", "Driver's time from the step before to this one."),
        seconds_column("longest_task_s", "Longest task of the stage: more slots do not shorten it."),
        seconds_column("slots_s", "The rest of the stage: tasks that waited for slots, and their launch."),
    ),
)
ADVICE = Table(
    "advice",
    "What to try, most seconds first. A bound is the most that the change can save; no second is promised, and seconds "
    "of several rows overlap.",
    (),
    (
        text_column("change", "What to change."),
        text_column("setting", "Spark's setting; null for code and layout.", nullable=True),
        text_column("value", "Value to try.", nullable=True),
        text_column("now", "Value of the run, or Spark's default.", nullable=True),
        seconds_column("at_most_s", "Wall time that it can save at most."),
        share_column("at_most_share", "Share of the wall time."),
        text_column("rests_on", "What the bound rests on."),
        number_column("saved_executor_h", "Executor hours that it saves, by a replay.", "h", nullable=True),
        text_column("query", "Query that it is for; null for the application.", nullable=True),
        text_column("not_when", "When not to."),
        text_column("source", "Public document of the rule."),
    ),
)
_REASON = (
    text_column("kind", "operator, function, code of a user, format, type, limit, input on the CPU."),
    text_column("what", "Which operator, function, format or type; empty for an input."),
)
CPU_OPERATORS = Table(
    "cpu_operators",
    "Operators of the final plans that an engine would leave on the CPU, by its tables; one with several reasons has "
    "several rows.",
    ("sql_id", "node_id", "kind", "what"),
    (
        text_column("query", "Description of the query, with its id."),
        count_column("sql_id", "SQL execution."),
        count_column("node_id", "Node of its final plan."),
        text_column("operator", "Operator."),
        *_REASON,
        text_column("note", "The engine's note; null without one.", nullable=True),
        seconds_column("wall_s", "Exclusive time of that operator in the query, by the number of such nodes."),
    ),
)
CPU_REASONS = Table(
    "cpu_reasons",
    "Reasons to stay on the CPU, most time first; an operator with several counts in each.",
    ("kind", "what"),
    (
        *_REASON,
        count_column("n_operators", "Operators."),
        count_column("n_queries", "Queries."),
        seconds_column("wall_s", "Their exclusive time."),
        text_column("note", "The engine's note; null without one.", nullable=True),
    ),
)
TRIED_CHANGES = Table(
    "tried_changes",
    "Settings that were tried on a suite.",
    ("setting", "value"),
    (
        text_column("setting", "Spark's setting."),
        text_column("value", "Value that was tried."),
        text_column("now", "Value before; null: Spark's default.", nullable=True),
        text_column("why", "The advice that it comes from."),
        ratio_column("screened", "Times as fast in the screening, median of its rounds.", nullable=True),
        ratio_column("ratio", "Times as fast as what was kept before it.", nullable=True),
        ratio_column("low", "Lower end.", nullable=True),
        ratio_column("high", "Upper end.", nullable=True),
        count_column("n_rounds", "Rounds of both."),
        text_column("verdict", "FASTER, SLOWER, SAME, UNDECIDED, not tried, or refused with the reason."),
    ),
)
NIGHTS = Table(
    "nights",
    "Runs of one job, oldest first; the last row is the one that is judged.",
    ("log",),
    (
        text_column("started", "Start in UTC."),
        text_column("log", "Its event log."),
        text_column("app_id", "Application id."),
        text_column(
            "role", "last, usual (the earlier run nearest the median, which the last is compared with), earlier."
        ),
        seconds_column("wall_s", "Wall time; null if it does not count.", nullable=True),
        seconds_column("task_s", "Sum of the task durations."),
        count_column("read_rows", "Rows read from storage by the tasks' metrics."),
        count_column("n_executors", "Most executors at a time.", nullable=True),
        count_column("n_failed_queries", "Queries and jobs that failed."),
        text_column("why_not", "Why it does not count; null if it does.", nullable=True),
    ),
)
NIGHT_CAUSES = Table(
    "night_causes",
    "What made the last run longer or shorter than a usual one; the seconds add up to the difference of the two.",
    ("cause",),
    (
        text_column("cause", "Kind of cause."),
        seconds_column("change_s", "Wall time that it added; below 0 what it saved."),
        share_column("share", "Share of the difference; null if there is none.", nullable=True),
        text_column("found", "What was found; null for times that the log does not explain further.", nullable=True),
    ),
)
PROFILE_TABLES = (
    OVERVIEW,
    FINDINGS,
    WALL_PARTS,
    QUERIES,
    STAGE_SPANS,
    EXCLUSIVE_TIMES,
    OPERATOR_TIMES,
    COVERAGE,
    FAILURE_COUNTS,
    EXECUTOR_STEPS,
    EXECUTOR_SHAPES,
    CONNECT_SESSIONS,
    books.BOOKS,
)
# What a study of a profile has besides.
ADVICE_TABLES = (ADVICE, SCENARIOS, CRITICAL_PATH)
EXECUTIONS = Table(
    "executions",
    "SQL executions that ended, one row each, and whether they count.",
    ("label", "session", "sql_id"),
    (
        *_EXECUTION,
        text_column("query", "Its description; with tables and fingerprint if several queries share it."),
        count_column("number", "Number of earlier runs of this query in the log."),
        text_column("fingerprint", "Digest of the tables and columns that it reads.", nullable=True),
        seconds_column("wall_s", "From start to end."),
        seconds_column("task_s", "Sum of its task durations."),
        count_column("n_stages", "Stage attempts."),
        count_column("n_failed_tasks", "Tasks that failed or were killed."),
        Column("cold", "bool", "First run of its query in this log."),
        text_column("why_not", "Why it does not count; null when it counts.", nullable=True),
        Column(
            "planned_operators",
            "list[str]",
            "Operators of its first plan, each once; with a star where an accelerator was to run it.",
            nullable=True,
            added=True,
        ),
        Column("planned_counts", "list[int]", "Number of nodes of each.", nullable=True, added=True),
        Column("description", "str", "Its description in the log.", nullable=True, added=True),
        Column("plan", "str", "Fingerprint of the computation, equal for repeats.", nullable=True, added=True),
        Column("engine", "str", "Accelerator that ran most of its operators, else spark.", nullable=True, added=True),
        Column("read_rows", "float", "Rows that its scans gave.", nullable=True, added=True),
        Column("file_bytes", "float", "Size of the files that its scans read.", "bytes", nullable=True, added=True),
        Column(
            "expressions",
            "list[str]",
            "Literals of its filters, types of its joins, functions of its aggregates.",
            nullable=True,
            added=True,
        ),
        Column("started", "str", "Day on which it started, in UTC.", nullable=True, added=True),
    ),
)
PIECES = Table(
    "pieces",
    "Wall time of the executions cut into pieces; the pieces of an execution add up to its wall time.",
    ("label", "session", "sql_id", "piece"),
    (
        *_EXECUTION,
        count_column("piece", "Number of the piece."),
        count_column("stage_id", "Stage; null for time without a running stage.", nullable=True),
        text_column(
            "term",
            "Kind of time outside operators: idle, waiting for executors, driver, task overhead, unattributed.",
            nullable=True,
        ),
        text_column("basis", "Measurement that the piece rests on."),
        Column("operators", "list[str]", "Operators that share the time."),
        Column("node_ids", "list[int]", "Their nodes in the final plan."),
        Column("accelerated", "list[bool]", "Whether each ran on an accelerator."),
        Column("opaque", "list[bool]", "Whether each runs code of a user.", nullable=True, added=True),
        Column("work", "list[float]", "Work of each, in millions of rows (aggregates: times functions)."),
        seconds_column("task_s", "Task time."),
        seconds_column("wall_s", "Wall time."),
    ),
)
APPLICATIONS_MEASURED = Table(
    "applications_measured",
    "Applications, one row per log, with the parts of their wall time; a log that cannot be used has the reason. "
    "SQL, streaming and outside never count an instant twice: it goes to the first of them, in this order.",
    ("log",),
    (
        text_column("log", "Path or URL of the log: `session` in the tables of executions."),
        text_column("app_id", "Application id.", nullable=True),
        text_column("attempt_id", "Attempt, where the cluster manager numbers them.", nullable=True),
        text_column("app_name", "Name.", nullable=True),
        text_column("engine", "Engine, as in the event log's table of applications.", nullable=True),
        text_column("spark_version", "Spark's version.", nullable=True),
        Column("start_time_ms", "int", "Start, epoch.", "ms", nullable=True),
        seconds_column(
            "wall_s",
            "From start to end; without an end event, to the end of its last query, job, stage or task.",
            nullable=True,
        ),
        seconds_column("sql_wall_s", "Time with a SQL execution running, streaming excluded.", nullable=True),
        seconds_column("streaming_s", "Time with only streaming batches running.", nullable=True),
        seconds_column("outside_sql_s", "Time with only jobs outside SQL running.", nullable=True),
        Column("running_s", "float", "Time with at least one task running.", "s", nullable=True, added=True),
        Column("waiting_s", "float", "Time with a stage open and no task running.", "s", nullable=True, added=True),
        Column("driver_s", "float", "Time with a query or a job open and no stage.", "s", nullable=True, added=True),
        Column("executor_h", "float", "Time of all executors.", "h", nullable=True, added=True),
        count_column("n_queries", "SQL executions, without streaming and inner ones.", nullable=True),
        count_column("n_failed", "Failed ones among them.", nullable=True),
        count_column("n_streaming_batches", "Batches of Structured Streaming and DStreams.", nullable=True),
        text_column("sha256", "Digest of the log's content.", nullable=True),
        text_column(
            "status",
            "complete, incomplete, partial (parts of it are missing), damaged, contradictory (its times), duplicate, "
            "superseded (by a later attempt), or unreadable.",
        ),
        text_column("reason", "Defect of the log; null if complete.", nullable=True),
    ),
)
EXPLAINED = Table(
    "explained",
    "Pieces of a query's wall time that contain the operator; `part_s` of a session's rows add up to the "
    "operator's time "
    "in that session.",
    ("label", "session", "sql_id", "piece"),
    (
        *_EXECUTION,
        count_column("run", "Run of the query in its session, from 0 (cold)."),
        count_column("piece", "Number of the piece in `pieces`."),
        count_column("stage_id", "Stage; null for time without a running stage.", nullable=True),
        text_column("basis", "Measurement that the piece rests on."),
        Column("operators", "list[str]", "Operators that share it."),
        Column("nodes", "list[int]", "The operator's nodes in the final plan."),
        seconds_column("piece_s", "Wall time of the piece."),
        number_column("work", "The operator's work in it, in millions of rows (see the guide)."),
        number_column(
            "price_s", "Seconds per unit of work; null where the time belongs to one operator.", nullable=True
        ),
        number_column("share", "The operator's share of the piece."),
        number_column("run_weight", "Weight of the run: the runs of a session add up to their median."),
        seconds_column("part_s", "piece_s times share times run_weight."),
    ),
)
EXPLAINED_METRICS = Table(
    "explained_metrics",
    "Metrics of the operator's nodes in the stages of these pieces: totals over tasks.",
    ("label", "session", "sql_id", "node_id", "stage_id", "metric"),
    (
        *_EXECUTION,
        count_column("node_id", "Node in the final plan."),
        text_column("node", "Its name there."),
        count_column("stage_id", "Stage; -1 for the driver's own metrics."),
        text_column("metric", "Name."),
        number_column("total", "Times in s, others as counted."),
    ),
)
APPLICATIONS = Table(
    "applications",
    "Predicted time of each application on the candidate, most time saved first.",
    ("log",),
    (
        text_column("log", "Event log."),
        text_column("app_id", "Application.", nullable=True),
        text_column("attempt_id", "Attempt, where the cluster manager numbers them.", nullable=True),
        text_column("app_name", "Its name.", nullable=True),
        text_column(
            "recommendation", "recommended, worth a trial, little gain, slower, already accelerated, or not judged."
        ),
        text_column("reason", "Why it is not judged, what limits the gain, or what makes it uncertain.", nullable=True),
        seconds_column("baseline_s", "Measured time, from start to end.", nullable=True),
        seconds_column("predicted_s", "Predicted time.", nullable=True),
        seconds_column("predicted_low_s", "Lower end of the prediction interval.", nullable=True),
        seconds_column("predicted_high_s", "Upper end.", nullable=True),
        ratio_column("ratio", "Baseline over predicted.", nullable=True),
        ratio_column("ratio_low", "Lower end.", nullable=True),
        ratio_column("ratio_high", "Upper end.", nullable=True),
        seconds_column("saved_s", "Baseline minus predicted.", nullable=True),
        seconds_column("saved_low_s", "Lower end.", nullable=True),
        seconds_column("saved_high_s", "Upper end.", nullable=True),
        seconds_column("sql_s", "Baseline time with a query running.", nullable=True),
        seconds_column(
            "outside_sql_s", "Baseline time with only jobs outside SQL (RDDs) running; factor 1.", nullable=True
        ),
        seconds_column("streaming_s", "Baseline time in streaming batches; factor 1.", nullable=True),
        share_column("unsupported_share", "Share of the queries' time in operators left on the CPU.", nullable=True),
        share_column("unknown_share", "Share of the queries' time in operators without a factor.", nullable=True),
        Column("unsupported_operators", "list[str]", "Operators left on the CPU, most time first."),
        count_column("n_queries", "SQL executions that count."),
        Column("executor_h", "float", "Time of all executors on the baseline.", "h", nullable=True, added=True),
        number_column("baseline_cost", "Cost on the baseline; null without prices.", "currency", nullable=True),
        number_column("predicted_cost", "Cost on the candidate.", "currency", nullable=True),
        number_column("saved_cost", "Baseline minus predicted.", "currency", nullable=True),
        number_column("saved_cost_low", "Lower end.", "currency", nullable=True),
        number_column("saved_cost_high", "Upper end.", "currency", nullable=True),
    ),
)
OPERATORS_AT_STAKE = Table(
    "operators_at_stake",
    "Operators that the candidate leaves on the CPU or that have no factor, over all applications.",
    ("operator",),
    (
        text_column("operator", "Operator."),
        text_column("kind", "unsupported or unknown."),
        count_column("n_applications", "Applications with it."),
        count_column("n_queries", "Queries with it."),
        seconds_column("baseline_s", "Its time on the baseline."),
    ),
)
_LABEL = text_column("label", "Name of the side: an engine with its settings.")
_QUERY = text_column("query", "Name of the query; the job description of its executions in the log.")
RECORDED_EXECUTIONS = Table(
    "executions",
    "One row per execution of a query.",
    ("label", "session", "query", "pass"),
    (
        _LABEL,
        count_column("session", "Number of the session of this side, from 1: one fresh JVM."),
        count_column("pass", "Number of the pass within the session, from 1; pass 1 is cold."),
        count_column("position", "Place of the query in the order of its pass, from 1."),
        _QUERY,
        text_column("status", "ok or failed."),
        seconds_column("duration_s", "From the SQL text to the fetched rows, measured on the driver; until it failed."),
        count_column("n_rows", "Rows of the answer; null when it failed.", nullable=True),
        text_column("error", "First line of the error; null when it succeeded.", nullable=True),
    ),
)
ANSWERS = Table(
    "answers",
    "Answers of each side compared with those of the first side: one row per query and side, over all sessions.",
    ("query", "label"),
    (
        _QUERY,
        _LABEL,
        count_column("n_rows", "Rows of its answer in its first session; null when it failed.", nullable=True),
        text_column(
            "verdict",
            "reference, equal, equal up to ties at the limit, wrong answer, failed, or not comparable "
            "(rows differ, and the answer does not show whether a limit allows it).",
        ),
        text_column("difference", "Where and how it differs or failed; null when it does not.", nullable=True),
    ),
)
_SESSIONS = (
    count_column("n_baseline_sessions", "Sessions of the baseline: the unit of the interval."),
    count_column("n_candidate_sessions", "Sessions of the candidate."),
)
FACTORS = Table(
    "factors",
    "How many times faster each operator is on the candidate; below 1 it is slower.",
    ("operator",),
    (
        text_column("operator", "Operator, group of operators, or kind of time (idle, task overhead)."),
        ratio_column("factor", "Baseline over candidate, shrunk towards the engine-wide factor where little is known."),
        ratio_column("factor_low", "Lower end of its interval; null with one session of warm runs.", nullable=True),
        ratio_column("factor_high", "Upper end.", nullable=True),
        text_column("verdict", "FASTER, SLOWER, SAME or UNDECIDED, over all operators together (Holm)."),
        text_column("quality", "good, weak, not separable, baseline only, candidate only."),
        text_column("note", "Meaning of the quality or the verdict here.", nullable=True),
        ratio_column("measured_factor", "Factor before shrinkage."),
        share_column("shrinkage", "Amount of shrinkage: 0 none, 1 all the way to the engine-wide factor."),
        number_column("adjusted_p_value", "Of the verdict; null with one session.", nullable=True),
        seconds_column("baseline_s", "Wall time on the baseline, over one run of all queries."),
        seconds_column("candidate_s", "Wall time on the candidate."),
        share_column("baseline_share", "Share of the baseline's wall time."),
        share_column("candidate_share", "Share of the candidate's wall time."),
        share_column(
            "own_metric_share",
            "Share of its baseline time measured by its own metrics; the rest is an estimate from shared times.",
        ),
        share_column(
            "left_on_cpu_share",
            "Share of its nodes on the candidate that ran on the CPU; null without an accelerator.",
            nullable=True,
        ),
        count_column("n_queries", "Queries in which it takes time on the baseline."),
        *_SESSIONS,
        count_column("n_passes", "Passes per session that count (the fewest)."),
        text_column("runs", "Runs that count: warm, or first."),
    ),
)
PAIRS = Table(
    "pairs",
    "Wall time of each query on both sides.",
    ("query",),
    (
        text_column("query", "Query."),
        seconds_column("baseline_s", "Wall time: geometric mean over sessions of their medians."),
        seconds_column("candidate_s", "The same on the candidate."),
        ratio_column("ratio", "Baseline over candidate."),
        ratio_column("ratio_low", "Lower end of its interval; null with one session of warm runs.", nullable=True),
        ratio_column("ratio_high", "Upper end.", nullable=True),
        text_column("verdict", "FASTER, SLOWER, SAME or UNDECIDED, over all queries together (Holm)."),
        number_column("adjusted_p_value", "Of the verdict.", nullable=True),
        *_SESSIONS,
        text_column("runs", "Runs that count: warm, or first."),
    ),
)
COMPARABILITY = Table(
    "comparability",
    "Differences between the sides other than the engine, and whether they make the pair invalid.",
    ("property",),
    (
        text_column("property", "Property that is compared."),
        text_column("baseline", "Value(s) on the baseline; several where its sessions differ."),
        text_column("candidate", "Value(s) on the candidate."),
        text_column(
            "severity", "ok, warning (part of the ratio may be due to it) or invalid (the comparison is not fair)."
        ),
        text_column("why", "Effect of the property on a comparison, or what is wrong."),
    ),
)
VALIDATION = Table(
    "validation",
    "Each query predicted from all the others, with its measured time; for every predictor.",
    ("predictor", "query"),
    (
        text_column(
            "predictor",
            "calibrated (with the candidate's plan), log alone, constant (geometric mean of the other queries' ratios) "
            "or seed.",
        ),
        text_column("query", "Left-out query."),
        seconds_column("baseline_s", "Time on the baseline."),
        seconds_column("actual_s", "Time on the candidate."),
        seconds_column("predicted_s", "Predicted time on the candidate."),
        seconds_column("predicted_low_s", "Lower end of the prediction interval; null without one.", nullable=True),
        seconds_column("predicted_high_s", "Upper end.", nullable=True),
        number_column("log_error", "Log of predicted over actual."),
        share_column("absolute_error_share", "Absolute error as a share of the actual time."),
        Column("covered", "bool", "The interval contains the actual time.", nullable=True),
        Column("direction_right", "bool", "Predicted faster or slower, as measured."),
    ),
)
SCORES = Table(
    "scores",
    "Errors of each predictor over the left-out queries.",
    ("predictor",),
    (
        text_column("predictor", "Predictor."),
        count_column("n_queries", "Queries predicted."),
        number_column("mean_absolute_log_error", "Mean over queries."),
        number_column("mean_low", "Lower end of its interval (bootstrap over queries).", nullable=True),
        number_column("mean_high", "Upper end.", nullable=True),
        ratio_column("mean_over_constant", "Mean error over that of the constant predictor."),
        ratio_column("mean_over_constant_low", "Lower end of its interval (bootstrap over queries).", nullable=True),
        ratio_column("mean_over_constant_high", "Upper end.", nullable=True),
        number_column("worst_absolute_log_error", "Largest over queries."),
        ratio_column("worst_over_constant", "Largest error over that of the constant predictor."),
        text_column("worst_query", "Query with the largest error."),
        number_column("mean_squared_log_error", "Mean square over queries."),
        number_column(
            "noise_variance",
            "Variance of a query's mean log ratio from session to session: nobody predicts it.",
            nullable=True,
        ),
        number_column("skill", "Share of what can be explained that is explained; 0 for the constant.", nullable=True),
        share_column("median_absolute_error_share", "Median over queries of the error as a share of the actual time."),
        count_column("n_covered", "Queries whose interval contained the actual time.", nullable=True),
        number_column("mean_log_width", "Mean width of the intervals, as a log ratio.", nullable=True),
        count_column("n_direction_right", "Queries predicted faster or slower as measured."),
        Column(
            "mean_interval_score",
            "float",
            "Mean of width plus 2 / (1 - level) times how far an interval misses, as log ratios: smaller is better.",
            nullable=True,
            added=True,
        ),
        Column(
            "threshold", "float", "Ratio from which a query is recommended.", unit="times", nullable=True, added=True
        ),
        Column("n_reached", "int", "Queries that reach it as measured.", nullable=True, added=True),
        Column("n_recommended", "int", "Queries predicted to reach it.", nullable=True, added=True),
        Column(
            "precision",
            "float",
            "Share of the recommended that reach it; null: none.",
            "share",
            nullable=True,
            added=True,
        ),
        Column(
            "recall", "float", "Share of those that reach it that are recommended.", "share", nullable=True, added=True
        ),
    ),
)
PREDICTIONS = Table(
    "predictions",
    "Predicted time of each query on the candidate.",
    ("session", "query"),
    (
        text_column("session", "Log."),
        text_column("query", "Query."),
        count_column("n_executions", "Runs of it."),
        seconds_column("baseline_s", "Measured time of all runs together."),
        seconds_column("predicted_s", "Predicted time of all runs together."),
        seconds_column("predicted_low_s", "Lower end of the prediction interval."),
        seconds_column("predicted_high_s", "Upper end."),
        ratio_column("ratio", "Baseline over predicted."),
        ratio_column("ratio_low", "Lower end."),
        ratio_column("ratio_high", "Upper end."),
        share_column("unsupported_share", "Share of its time in operators that the candidate leaves on the CPU."),
        share_column("unknown_share", "Share of its time in operators without a factor."),
        Column("unsupported_operators", "list[str]", "These operators, most time first."),
        Column("unknown_operators", "list[str]", "Operators without a factor, most time first."),
        Column(
            "fixed_s", "float", "Of the baseline: waits, driver time and user code.", "s", nullable=True, added=True
        ),
        Column("user_code_s", "float", "Of the fixed: user code.", "s", nullable=True, added=True),
        Column(
            "opaque_s",
            "float",
            "Of the rest: what may be user code, reads of caches or writes on Spark.",
            "s",
            nullable=True,
            added=True,
        ),
        Column(
            "doubtful_s",
            "float",
            "Predicted saving; the interval includes no saving.",
            "s",
            nullable=True,
            added=True,
        ),
    ),
)
STEPS = Table(
    "steps",
    "Each query from its time on the baseline to the predicted time, largest saving first.",
    ("query", "step"),
    (
        text_column("query", "Query."),
        count_column("step", "Place from the top, from 0."),
        text_column("what", "Side (its total), operator, or the small operators together."),
        text_column("kind", "baseline, faster, slower, predicted, measured."),
        Column("total", "bool", "A whole time, not a step."),
        seconds_column("time_s", "Change of the step (below 0: saved), or the whole time."),
        seconds_column("end_s", "Time reached after it."),
        seconds_column("low_s", "Lower end of the prediction interval; null except for the prediction.", nullable=True),
        seconds_column("high_s", "Upper end.", nullable=True),
        seconds_column("before_s", "Its time on the baseline; null for totals.", nullable=True),
        ratio_column("factor", "Its factor; null for totals and for several operators together.", nullable=True),
    ),
)
ALIGNED = Table(
    "aligned",
    "Operators of two runs of a query, matched; `baseline_wall_s` and `candidate_wall_s` add up to the runs' wall "
    "times.",
    ("row",),
    (
        count_column("row", "Number of the row, in the order of the plans from the result down."),
        text_column("operator", "Operator by Spark's name for it, or a kind of time such as idle."),
        text_column("change", "same, replaced, removed, added, or left on CPU; time: not an operator."),
        count_column("baseline_node", "Node in the baseline's final plan; null for none.", nullable=True),
        count_column("candidate_node", "Node in the candidate's final plan; null for none.", nullable=True),
        text_column("baseline_name", "Its name there.", nullable=True),
        text_column("candidate_name", "Its name there.", nullable=True),
        seconds_column("baseline_wall_s", "Wall time on the baseline; null without a node.", nullable=True),
        seconds_column("candidate_wall_s", "Wall time on the candidate; null without a node.", nullable=True),
        number_column("ratio", "Baseline over candidate; null where either is missing or took no time.", nullable=True),
        number_column("baseline_rows", "Its output rows; null if unknown.", nullable=True),
        number_column("candidate_rows", "Its output rows; null if unknown.", nullable=True),
        text_column("basis", "Measurement that the times rest on; a shared time is split by the rows of each."),
    ),
)
PLAN_SIDES = Table(
    "plan_sides",
    "The two plans as trees, one row per node and side.",
    ("side", "node_id"),
    (
        text_column("side", "baseline or candidate."),
        count_column("node_id", "Node in the final plan."),
        count_column("parent_id", "Node that it feeds; null at the root.", nullable=True),
        count_column("row", "Row of `aligned`: equal on both sides for matched nodes."),
        text_column("name", "Name of the node."),
        seconds_column("wall_s", "Wall time."),
        text_column("change", "As in `aligned`."),
        number_column("rows", "Its output rows; null if unknown.", nullable=True),
    ),
)
OPERATOR_SUMS = Table(
    "operator_sums",
    "Wall time of each operator over all compared queries, most time first.",
    ("operator",),
    (
        text_column("operator", "Operator, or a kind of time such as idle."),
        seconds_column("baseline_wall_s", "Wall time on the baseline."),
        seconds_column("candidate_wall_s", "Wall time on the candidate."),
        ratio_column("ratio", "Baseline over candidate; null below 1 % of a side's time.", nullable=True),
    ),
)
_COMPARED_QUERY = text_column("query", "Description of the query.")
COMPARED = Table("compared", ALIGNED.meaning, ("query", *ALIGNED.key), (_COMPARED_QUERY, *ALIGNED.columns))
COMPARED_SIDES = Table(
    "compared_sides", PLAN_SIDES.meaning, ("query", *PLAN_SIDES.key), (_COMPARED_QUERY, *PLAN_SIDES.columns)
)
PLANNED_NODES = Table(
    "planned_nodes",
    "Operators of each query's plan on the candidate, planned and not run.",
    ("query", "node_id"),
    (
        text_column("query", "Name of the query."),
        count_column("node_id", "Number of the node, as in Spark's UI."),
        Column("parent_ids", "list[int]", "Nodes that it feeds."),
        text_column("operator", "Operator, without the engine's name."),
        text_column("node_name", "Name of the node."),
        Column("accelerated", "bool", "Does the engine run it?"),
        text_column("reason", "The engine's own reason for leaving it to Spark.", nullable=True),
        text_column(
            "run_operator",
            "Joins: the kind expected at run time, from a run of the baseline (`not run`: an input was empty, or a "
            "query stage is used again); the planned kind without one. Null for others.",
            nullable=True,
        ),
    ),
)
PLANNED_QUERIES = Table(
    "planned_queries",
    "Each query's plan on the candidate in one row.",
    ("query",),
    (
        text_column("query", "Name of the query."),
        text_column("status", "planned, or failed."),
        text_column("error", "Why it could not be planned.", nullable=True),
        seconds_column("plan_s", "Time to plan it, on both engines."),
        count_column("n_operators", "Operators of its plan that are work; null if it failed.", nullable=True),
        count_column("n_accelerated", "Those that the engine runs.", nullable=True),
        share_column("accelerated_share", "Their share.", nullable=True),
        count_column("n_transitions", "Borders between the engine and Spark, the result included.", nullable=True),
        text_column("left_to_spark", "Operators that are left to Spark, with their number.", nullable=True),
        text_column("reasons", "The engine's reasons.", nullable=True),
        text_column("baseline_joins", "Joins of the baseline's plan.", nullable=True),
        text_column("joins", "Joins of the candidate's plan.", nullable=True),
        text_column("run_joins", "Joins expected at run time.", nullable=True),
        text_column("joins_from", "log: as in a run of the baseline; plan: as planned.", nullable=True),
    ),
)
SAMPLED_QUERIES = Table(
    "sampled_queries",
    "Queries of a run: their ratio on slices of the tables, and the ratio that the factors predict for the slices.",
    ("query",),
    (
        text_column("query", "Name of the query."),
        seconds_column("baseline_s", "Its time in the baseline's log, all runs together."),
        share_column("log_share", "Share of the time of the log's queries."),
        text_column("reason", "Why it has no sample; null where it has.", nullable=True),
        count_column("n_runs", "Runs that count on either side; null without a sample, as all below.", nullable=True),
        seconds_column("sample_baseline_s", "Time on slices on the baseline.", nullable=True),
        seconds_column("sample_candidate_s", "Time on slices on the candidate.", nullable=True),
        ratio_column("sample_ratio", "The former over the latter.", nullable=True),
        ratio_column("expected_ratio", "Ratio that the factors predict from the slices' own log.", nullable=True),
        number_column("log_error", "Log of the ratio over the expected one.", nullable=True),
        number_column("log_sd", "Standard deviation of the whole query's log error around it.", nullable=True),
        Column(
            "memory_need",
            "float",
            "Memory that a task had in the logged run over what it has on the candidate; above 1 it may spill.",
            nullable=True,
            added=True,
        ),
    ),
)
PLAN_CHECKS = Table(
    "plan_checks",
    "Expected and actual plan of each query on the candidate.",
    ("query",),
    (
        text_column("query", "Name of the query."),
        Column("left_equal", "bool", "Does the run leave the same operators to Spark?"),
        Column("joins_equal", "bool", "Does the run have the same joins?"),
        text_column("planned_left", "Operators expected to be left to Spark."),
        text_column("run_left", "Operators that the run left to Spark."),
        text_column("planned_joins", "Joins expected."),
        text_column("run_joins", "Joins of the run."),
    ),
)
