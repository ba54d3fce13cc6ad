"""Declared tables of the area: profiles, measured logs, pairs and factors, fleets, plan comparisons, recordings."""

from __future__ import annotations

from workbench.core.tables import Column, Table


def _text(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "str", meaning, nullable=nullable)


def _count(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "int", meaning, nullable=nullable)


def _number(name: str, meaning: str, unit: str = "", *, nullable: bool = False) -> Column:
    return Column(name, "float", meaning, unit, nullable=nullable)


def _seconds(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return _number(name, meaning, "s", nullable=nullable)


def _share(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return _number(name, meaning, "share", nullable=nullable)


def _ratio(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return _number(name, meaning, "times", nullable=nullable)


# One execution in one log: the key of most tables about logs.
_EXECUTION = (
    _text("label", "Side: the engine or setting that ran it."),
    _text("session", "Log: one fresh driver."),
    _count("sql_id", "SQL execution."),
)

# Profile of one application.

OVERVIEW = Table(
    "overview",
    "The application in one row.",
    ("app_id",),
    (
        _text("app_id", "Application id."),
        _text("app_name", "Name.", nullable=True),
        _text("spark_version", "Spark's version.", nullable=True),
        _text("engine", "spark, rapids or comet."),
        _text("status", "complete or incomplete."),
        _seconds(
            "wall_time_s",
            "From start to end, or to the last event of a log without an end; null if the log does not hold the start.",
            nullable=True,
        ),
        _seconds("busy_time_s", "Time with at least one stage running."),
        _seconds("stage_time_s", "Sum of the stages' wall times: above busy time when stages overlap."),
        _number("overlap_ratio", "Stage time over busy time: 1 without overlap; null without stages.", nullable=True),
        _seconds("task_time_s", "Sum of the task durations, failed tasks included."),
        _count("n_task_slots", "Largest number of task slots at one time; null if unknown.", nullable=True),
        _share(
            "slot_use_share",
            "Task time over slot time, each slot counted from its executor's start to its end.",
            nullable=True,
        ),
        _count("n_queries", "SQL executions."),
        _count("n_failed_queries", "SQL executions that failed."),
        _count("n_stages", "Stage attempts."),
        _count("n_tasks", "Tasks that ended."),
        _count("n_failed_tasks", "Tasks that failed or were killed."),
    ),
)
QUERIES = Table(
    "queries",
    "Time of each SQL execution.",
    ("sql_id",),
    (
        _count("sql_id", "SQL execution."),
        _text("query", "Its description, with the id."),
        _text("status", "succeeded, failed or running."),
        _seconds("start_s", "Start.", nullable=True),
        _seconds("end_s", "End; null if the log does not hold it.", nullable=True),
        _seconds("duration_s", "Wall time.", nullable=True),
        _seconds("task_time_s", "Sum of its task durations."),
        _share("task_time_share", "Share of the task time of all listed queries.", nullable=True),
        _count("n_stages", "Stage attempts."),
        _count("n_tasks", "Tasks that ended."),
        _count("n_failed_tasks", "Tasks that failed or were killed."),
    ),
)
STAGE_SPANS = Table(
    "stage_spans",
    "Start, end and task skew of each stage attempt.",
    ("stage_id", "stage_attempt_id"),
    (
        _count("stage_id", "Stage."),
        _count("stage_attempt_id", "Attempt."),
        _text("stage", "Stage and attempt as text."),
        _count("sql_id", "SQL execution; null outside SQL.", nullable=True),
        _text("query", "Description of the SQL execution."),
        _text("status", "succeeded, failed or running."),
        _seconds("start_s", "Start."),
        _seconds("end_s", "End, or the last task's end of a running stage."),
        _count("n_tasks", "Tasks that ended."),
        _count("n_failed_tasks", "Tasks that failed or were killed."),
        _seconds("task_time_s", "Sum of the task durations."),
        _seconds("task_median_s", "Median task.", nullable=True),
        _seconds("task_max_s", "Longest task.", nullable=True),
        _number("skew_ratio", "Longest over median task; null below 4 tasks or with a median of 0.", nullable=True),
        _seconds(
            "skew_cost_s",
            "Longest minus median task, the most that an even split could save; null where skew_ratio is null.",
            nullable=True,
        ),
    ),
)
OPERATOR_TIMES = Table(
    "operator_times",
    "Times that operators report, by operator and metric. They nest (a codegen span includes its operators): do not "
    "add rows.",
    ("operator", "metric", "where"),
    (
        _text("operator", "Operator, without its number; scans with their file format."),
        _text("metric", "Name of the metric."),
        _text("where", "tasks, or driver (broadcasts, file listing)."),
        _seconds("total_s", "Sum over nodes and tasks."),
        _seconds("max_s", "Longest time that one task reports; null for the driver.", nullable=True),
        _count("n_nodes", "Plan nodes that report it."),
        _count("n_tasks", "Task reports; 0 for the driver."),
    ),
)
COVERAGE = Table(
    "coverage",
    "Task time by what the log says about it. The rows add up to all task time.",
    ("part",),
    (
        _text("part", "Kind of task time."),
        _seconds("task_time_s", "Sum of the task durations."),
        _share("task_time_share", "Share of all task time; null if there is none.", nullable=True),
        _count("n_stages", "Stage attempts."),
    ),
)
FAILURE_COUNTS = Table(
    "failure_counts",
    "Failures by kind and reason.",
    ("kind", "reason", "message"),
    (
        _text("kind", "task, stage, job, sql or executor."),
        _text("reason", "Kind of failure."),
        _text("message", "First line of the message."),
        _count("n", "Number of failures (at most 20 tasks per stage attempt are listed one by one)."),
        _seconds("first_s", "Time of the first; null if the log does not hold it.", nullable=True),
    ),
)
PROFILE_TABLES = (OVERVIEW, QUERIES, STAGE_SPANS, OPERATOR_TIMES, COVERAGE, FAILURE_COUNTS)

# Measured times of logs: what calibration and prediction start from.

EXECUTIONS = Table(
    "executions",
    "SQL executions that ended, one row each, and whether they count.",
    ("label", "session", "sql_id"),
    (
        *_EXECUTION,
        _text("query", "Its description."),
        _count("number", "Number of earlier runs of this description in the log."),
        _text("fingerprint", "Digest of the tables and columns that it reads.", nullable=True),
        _seconds("wall_s", "From start to end."),
        _seconds("task_s", "Sum of its task durations."),
        _count("n_stages", "Stage attempts."),
        _count("n_failed_tasks", "Tasks that failed or were killed."),
        Column("cold", "bool", "First run of its description in this log."),
        _text("why_not", "Why it does not count; null when it counts.", nullable=True),
    ),
)
PIECES = Table(
    "pieces",
    "Wall time of the executions cut into pieces; the pieces of an execution add up to its wall time.",
    ("label", "session", "sql_id", "piece"),
    (
        *_EXECUTION,
        _count("piece", "Number of the piece."),
        _count("stage_id", "Stage; null for time without a running stage.", nullable=True),
        _text("term", "Kind of time outside operators: idle, task overhead, unattributed.", nullable=True),
        _text("basis", "Measurement that the piece rests on."),
        Column("operators", "list[str]", "Operators that share the time."),
        Column("node_ids", "list[int]", "Their nodes in the final plan."),
        Column("accelerated", "list[bool]", "Whether each ran on an accelerator."),
        Column("work", "list[float]", "Work of each, in millions of rows (aggregates: times functions)."),
        _seconds("task_s", "Task time."),
        _seconds("wall_s", "Wall time."),
    ),
)
APPLICATIONS_MEASURED = Table(
    "applications_measured",
    "Applications, one row per log, with the parts of their wall time; a log that cannot be used has the reason. "
    "SQL, streaming and outside never count an instant twice: it goes to the first of them, in this order.",
    ("log",),
    (
        _text("log", "Path or URL of the log: `session` in the tables of executions."),
        _text("app_id", "Application id.", nullable=True),
        _text("app_name", "Name.", nullable=True),
        _text("engine", "spark, rapids or comet: the accelerator plugin that was on.", nullable=True),
        _text("spark_version", "Spark's version.", nullable=True),
        Column("start_time_ms", "int", "Start, epoch.", "ms", nullable=True),
        _seconds("wall_s", "From start to end, or to the last event of an incomplete log.", nullable=True),
        _seconds("sql_wall_s", "Time with a SQL execution running, streaming excluded.", nullable=True),
        _seconds("streaming_s", "Time with only streaming batches running.", nullable=True),
        _seconds("outside_sql_s", "Time with only jobs outside SQL running.", nullable=True),
        _count("n_queries", "SQL executions, without streaming and inner ones.", nullable=True),
        _count("n_failed", "Failed ones among them.", nullable=True),
        _text("sha256", "Digest of the log's content.", nullable=True),
        _text("status", "complete, incomplete, damaged, duplicate, or unreadable."),
        _text("reason", "What is wrong with the log; null when complete.", nullable=True),
    ),
)
EXPLAINED = Table(
    "explained",
    "Pieces of a query's wall time that hold the operator; `part_s` of a session's rows add up to the operator's time "
    "in that session.",
    ("label", "session", "sql_id", "piece"),
    (
        *_EXECUTION,
        _count("run", "Run of the query in its session, from 0 (cold)."),
        _count("piece", "Number of the piece in `pieces`."),
        _count("stage_id", "Stage; null for time without a running stage.", nullable=True),
        _text("basis", "Measurement that the piece rests on."),
        Column("operators", "list[str]", "Operators that share it."),
        Column("nodes", "list[int]", "The operator's nodes in the final plan."),
        _seconds("piece_s", "Wall time of the piece."),
        _number("work", "The operator's work in it, in millions of rows (see the guide)."),
        _number("price_s", "Seconds per unit of work; null where the time belongs to one operator.", nullable=True),
        _number("share", "The operator's share of the piece."),
        _number("run_weight", "Weight of the run: the runs of a session add up to their median."),
        _seconds("part_s", "piece_s times share times run_weight."),
    ),
)
EXPLAINED_METRICS = Table(
    "explained_metrics",
    "Metrics of the operator's nodes in the stages of these pieces: totals over tasks.",
    ("label", "session", "sql_id", "node_id", "stage_id", "metric"),
    (
        *_EXECUTION,
        _count("node_id", "Node in the final plan."),
        _text("node", "Its name there."),
        _count("stage_id", "Stage; -1 for the driver's own metrics."),
        _text("metric", "Name."),
        _number("total", "Times in s, others as counted."),
    ),
)

# A pair: factors, validation, predictions, steps of the waterfall.

_SESSIONS = (
    _count("n_baseline_sessions", "Sessions of the baseline: the unit of the interval."),
    _count("n_candidate_sessions", "Sessions of the candidate."),
)
FACTORS = Table(
    "factors",
    "How many times faster each operator is on the candidate; below 1 it is slower.",
    ("operator",),
    (
        _text("operator", "Operator, group of operators, or kind of time (idle, task overhead)."),
        _ratio("factor", "Baseline over candidate, shrunk towards the engine-wide factor where little is known."),
        _ratio("factor_low", "Lower end of its interval; null with one session.", nullable=True),
        _ratio("factor_high", "Upper end.", nullable=True),
        _text("verdict", "FASTER, SLOWER, SAME or UNDECIDED, over all operators together (Holm)."),
        _text("quality", "good, weak, not separable, baseline only, candidate only."),
        _text("note", "What the quality means here.", nullable=True),
        _ratio("measured_factor", "Factor before shrinkage."),
        _share("shrinkage", "Amount of shrinkage: 0 none, 1 all the way to the engine-wide factor."),
        _number("adjusted_p_value", "Of the verdict; null with one session.", nullable=True),
        _seconds("baseline_s", "Wall time on the baseline, over one run of all queries."),
        _seconds("candidate_s", "Wall time on the candidate."),
        _share("baseline_share", "Share of the baseline's wall time."),
        _share("candidate_share", "Share of the candidate's wall time."),
        _share(
            "own_metric_share",
            "Share of its baseline time measured by its own metrics; the rest is split off shared times.",
        ),
        _share(
            "left_on_cpu_share",
            "Share of its nodes on the candidate that ran on the CPU; null without an accelerator.",
            nullable=True,
        ),
        _count("n_queries", "Queries in which it takes time on the baseline."),
        *_SESSIONS,
        _count("n_passes", "Warm passes per session (the fewest)."),
    ),
)
PAIRS = Table(
    "pairs",
    "Wall time of each query on both sides.",
    ("query",),
    (
        _text("query", "Query."),
        _seconds("baseline_s", "Wall time: geometric mean over sessions of their medians."),
        _seconds("candidate_s", "The same on the candidate."),
        _ratio("ratio", "Baseline over candidate."),
        _ratio("ratio_low", "Lower end of its interval; null with one session.", nullable=True),
        _ratio("ratio_high", "Upper end.", nullable=True),
        _text("verdict", "FASTER, SLOWER, SAME or UNDECIDED, over all queries together (Holm)."),
        _number("adjusted_p_value", "Of the verdict.", nullable=True),
        *_SESSIONS,
    ),
)
COMPARABILITY = Table(
    "comparability",
    "Differences between the sides other than the engine, and whether they make the pair invalid.",
    ("property",),
    (
        _text("property", "Property that is compared."),
        _text("baseline", "Value(s) on the baseline; several where its sessions differ."),
        _text("candidate", "Value(s) on the candidate."),
        _text("severity", "ok, warning (part of the ratio may be due to it) or invalid (the comparison is not fair)."),
        _text("why", "Effect of the property on a comparison, or what is wrong."),
    ),
)
VALIDATION = Table(
    "validation",
    "Each query predicted from all the others, with its measured time; for every predictor.",
    ("predictor", "query"),
    (
        _text("predictor", "calibrated, constant (geometric mean of the other queries' ratios) or seed."),
        _text("query", "Left-out query."),
        _seconds("baseline_s", "Time on the baseline."),
        _seconds("actual_s", "Time on the candidate."),
        _seconds("predicted_s", "Predicted time on the candidate."),
        _seconds("predicted_low_s", "Lower end of the prediction interval; null without one.", nullable=True),
        _seconds("predicted_high_s", "Upper end.", nullable=True),
        _number("log_error", "Log of predicted over actual."),
        _share("absolute_error_share", "Absolute error as a share of the actual time."),
        Column("covered", "bool", "The interval holds the actual time.", nullable=True),
        Column("direction_right", "bool", "Predicted faster or slower, as measured."),
        _number("time_weight", "Weight of time in the prediction; work has the rest.", nullable=True),
    ),
)
SCORES = Table(
    "scores",
    "Errors of each predictor over the left-out queries.",
    ("predictor",),
    (
        _text("predictor", "Predictor."),
        _count("n_queries", "Queries predicted."),
        _number("mean_absolute_log_error", "Mean over queries."),
        _number("mean_low", "Lower end of its interval (bootstrap over queries).", nullable=True),
        _number("mean_high", "Upper end.", nullable=True),
        _ratio("mean_over_constant", "Mean error over that of the constant predictor."),
        _ratio("mean_over_constant_low", "Lower end of its interval (bootstrap over queries).", nullable=True),
        _ratio("mean_over_constant_high", "Upper end.", nullable=True),
        _number("worst_absolute_log_error", "Largest over queries."),
        _ratio("worst_over_constant", "Largest error over that of the constant predictor."),
        _text("worst_query", "Query with the largest error."),
        _share("median_absolute_error_share", "Median over queries of the error as a share of the actual time."),
        _count("n_covered", "Queries whose interval held the actual time.", nullable=True),
        _number("mean_log_width", "Mean width of the intervals, as a log ratio.", nullable=True),
        _count("n_direction_right", "Queries predicted faster or slower as measured."),
    ),
)
PREDICTIONS = Table(
    "predictions",
    "Predicted time of each query on the candidate.",
    ("session", "query"),
    (
        _text("session", "Log."),
        _text("query", "Query."),
        _count("n_executions", "Runs of it."),
        _seconds("baseline_s", "Measured time of all runs together."),
        _seconds("predicted_s", "Predicted time of all runs together."),
        _seconds("predicted_low_s", "Lower end of the prediction interval."),
        _seconds("predicted_high_s", "Upper end."),
        _ratio("ratio", "Baseline over predicted."),
        _ratio("ratio_low", "Lower end."),
        _ratio("ratio_high", "Upper end."),
        _share("unsupported_share", "Share of its time in operators that the candidate leaves on the CPU."),
        _share("unknown_share", "Share of its time in operators without a factor."),
        Column("unsupported_operators", "list[str]", "These operators, most time first."),
        Column("unknown_operators", "list[str]", "Operators without a factor, most time first."),
    ),
)
CALIBRATION_TABLES = (FACTORS, PAIRS, VALIDATION, SCORES, PREDICTIONS)
STEPS = Table(
    "steps",
    "Each query from its time on the baseline to the predicted time, largest saving first.",
    ("query", "step"),
    (
        _text("query", "Query."),
        _count("step", "Place from the top, from 0."),
        _text("what", "Side (its total), operator, or the small operators together."),
        _text("kind", "baseline, faster, slower, predicted, measured."),
        Column("total", "bool", "A whole time, not a step."),
        _seconds("time_s", "Change of the step (below 0: saved), or the whole time."),
        _seconds("end_s", "Time reached after it."),
        _seconds("low_s", "Lower end of the prediction interval; null except for the prediction.", nullable=True),
        _seconds("high_s", "Upper end.", nullable=True),
        _seconds("before_s", "Its time on the baseline; null for totals.", nullable=True),
        _ratio("factor", "Its factor; null for totals and for several operators together.", nullable=True),
    ),
)

# A fleet of applications.

APPLICATIONS = Table(
    "applications",
    "Predicted time of each application on the candidate, most time saved first.",
    ("log",),
    (
        _text("log", "Event log."),
        _text("app_id", "Application.", nullable=True),
        _text("app_name", "Its name.", nullable=True),
        _text("recommendation", "recommended, worth a trial, little gain, slower, or not judged."),
        _text("reason", "Why it is not judged, what limits the gain, or what makes it uncertain.", nullable=True),
        _seconds("baseline_s", "Measured time, from start to end.", nullable=True),
        _seconds("predicted_s", "Predicted time.", nullable=True),
        _seconds("predicted_low_s", "Lower end of the prediction interval.", nullable=True),
        _seconds("predicted_high_s", "Upper end.", nullable=True),
        _ratio("ratio", "Baseline over predicted.", nullable=True),
        _ratio("ratio_low", "Lower end.", nullable=True),
        _ratio("ratio_high", "Upper end.", nullable=True),
        _seconds("saved_s", "Baseline minus predicted.", nullable=True),
        _seconds("saved_low_s", "Lower end.", nullable=True),
        _seconds("saved_high_s", "Upper end.", nullable=True),
        _seconds("sql_s", "Baseline time with a query running.", nullable=True),
        _seconds("outside_sql_s", "Baseline time with only jobs outside SQL (RDDs) running; factor 1.", nullable=True),
        _seconds("streaming_s", "Baseline time in streaming batches; factor 1.", nullable=True),
        _share("unsupported_share", "Share of the queries' time in operators left on the CPU.", nullable=True),
        _share("unknown_share", "Share of the queries' time in operators without a factor.", nullable=True),
        Column("unsupported_operators", "list[str]", "Operators left on the CPU, most time first."),
        _count("n_queries", "SQL executions that count."),
        _number("baseline_cost", "Cost on the baseline; null without prices.", "currency", nullable=True),
        _number("predicted_cost", "Cost on the candidate.", "currency", nullable=True),
        _number("saved_cost", "Baseline minus predicted.", "currency", nullable=True),
        _number("saved_cost_low", "Lower end.", "currency", nullable=True),
        _number("saved_cost_high", "Upper end.", "currency", nullable=True),
    ),
)
OPERATORS_AT_STAKE = Table(
    "operators_at_stake",
    "Operators that the candidate leaves on the CPU or that have no factor, over all applications.",
    ("operator",),
    (
        _text("operator", "Operator."),
        _text("kind", "unsupported or unknown."),
        _count("n_applications", "Applications with it."),
        _count("n_queries", "Queries with it."),
        _seconds("baseline_s", "Its time on the baseline."),
    ),
)

# Two runs of a query, operator by operator.

ALIGNED = Table(
    "aligned",
    "Operators of two runs of a query, matched; `baseline_wall_s` and `candidate_wall_s` add up to the runs' wall "
    "times.",
    ("row",),
    (
        _count("row", "Number of the row, in the order of the plans from the result down."),
        _text("operator", "Operator by Spark's name for it, or a kind of time such as idle."),
        _text("change", "same, replaced, removed, added, or left on CPU; time: not an operator."),
        _count("baseline_node", "Node in the baseline's final plan; null for none.", nullable=True),
        _count("candidate_node", "Node in the candidate's final plan; null for none.", nullable=True),
        _text("baseline_name", "Its name there.", nullable=True),
        _text("candidate_name", "Its name there.", nullable=True),
        _seconds("baseline_wall_s", "Wall time on the baseline; null without a node.", nullable=True),
        _seconds("candidate_wall_s", "Wall time on the candidate; null without a node.", nullable=True),
        _number("ratio", "Baseline over candidate; null where either is missing or took no time.", nullable=True),
        _number("baseline_rows", "Its output rows; null if unknown.", nullable=True),
        _number("candidate_rows", "Its output rows; null if unknown.", nullable=True),
        _text("basis", "Measurement that the times rest on; a shared time is split by the rows of each."),
    ),
)
PLAN_SIDES = Table(
    "plan_sides",
    "The two plans as trees, one row per node and side.",
    ("side", "node_id"),
    (
        _text("side", "baseline or candidate."),
        _count("node_id", "Node in the final plan."),
        _count("parent_id", "Node that it feeds; null at the root.", nullable=True),
        _count("row", "Row of `aligned`: equal on both sides for matched nodes."),
        _text("name", "Name of the node."),
        _seconds("wall_s", "Wall time."),
        _text("change", "As in `aligned`."),
        _number("rows", "Its output rows; null if unknown.", nullable=True),
    ),
)
_COMPARED_QUERY = _text("query", "Description of the query.")
COMPARED = Table("compared", ALIGNED.meaning, ("query", *ALIGNED.key), (_COMPARED_QUERY, *ALIGNED.columns))
COMPARED_SIDES = Table(
    "compared_sides", PLAN_SIDES.meaning, ("query", *PLAN_SIDES.key), (_COMPARED_QUERY, *PLAN_SIDES.columns)
)

# A recording.

_LABEL = _text("label", "Name of the side: an engine with its settings.")
_QUERY = _text("query", "Name of the query; the job description of its executions in the log.")
RECORDED_EXECUTIONS = Table(
    "executions",
    "One row per execution of a query.",
    ("label", "session", "query", "pass"),
    (
        _LABEL,
        _count("session", "Number of the session of this side, from 1: one fresh JVM."),
        _count("pass", "Number of the pass within the session, from 1; pass 1 is cold."),
        _count("position", "Place of the query in the order of its pass, from 1."),
        _QUERY,
        _text("status", "ok or failed."),
        _seconds("duration_s", "From the SQL text to the fetched rows, measured on the driver; until it failed."),
        _count("n_rows", "Rows of the answer; null when it failed.", nullable=True),
        _text("error", "First line of the error; null when it succeeded.", nullable=True),
    ),
)
ANSWERS = Table(
    "answers",
    "Answers of each side compared with those of the first side: one row per query and side, over all sessions.",
    ("query", "label"),
    (
        _QUERY,
        _LABEL,
        _count("n_rows", "Rows of its answer in its first session; null when it failed.", nullable=True),
        _text(
            "verdict",
            "reference, equal, equal up to ties at the limit, wrong answer, failed, or not comparable "
            "(rows differ, and the answer does not show whether a limit allows it).",
        ),
        _text("difference", "Where and how it differs or failed; null when it does not.", nullable=True),
    ),
)
RECORDING_TABLES = (RECORDED_EXECUTIONS, ANSWERS)
