"""Tables about a pair of sides: factors and predictions, comparability, two runs operator by operator."""

from __future__ import annotations

from workbench.core.tables import Column, Table
from workbench.speedup.tables.columns import (
    count_column,
    number_column,
    ratio_column,
    seconds_column,
    share_column,
    text_column,
)

# A pair: factors, validation, predictions, steps of the waterfall.

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
        text_column("note", "What the quality means here.", nullable=True),
        ratio_column("measured_factor", "Factor before shrinkage."),
        share_column("shrinkage", "Amount of shrinkage: 0 none, 1 all the way to the engine-wide factor."),
        number_column("adjusted_p_value", "Of the verdict; null with one session.", nullable=True),
        seconds_column("baseline_s", "Wall time on the baseline, over one run of all queries."),
        seconds_column("candidate_s", "Wall time on the candidate."),
        share_column("baseline_share", "Share of the baseline's wall time."),
        share_column("candidate_share", "Share of the candidate's wall time."),
        share_column(
            "own_metric_share",
            "Share of its baseline time measured by its own metrics; the rest is split off shared times.",
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
        text_column("predictor", "calibrated, constant (geometric mean of the other queries' ratios) or seed."),
        text_column("query", "Left-out query."),
        seconds_column("baseline_s", "Time on the baseline."),
        seconds_column("actual_s", "Time on the candidate."),
        seconds_column("predicted_s", "Predicted time on the candidate."),
        seconds_column("predicted_low_s", "Lower end of the prediction interval; null without one.", nullable=True),
        seconds_column("predicted_high_s", "Upper end.", nullable=True),
        number_column("log_error", "Log of predicted over actual."),
        share_column("absolute_error_share", "Absolute error as a share of the actual time."),
        Column("covered", "bool", "The interval holds the actual time.", nullable=True),
        Column("direction_right", "bool", "Predicted faster or slower, as measured."),
        number_column("time_weight", "Weight of time in the prediction; work has the rest.", nullable=True),
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
        count_column("n_covered", "Queries whose interval held the actual time.", nullable=True),
        number_column("mean_log_width", "Mean width of the intervals, as a log ratio.", nullable=True),
        count_column("n_direction_right", "Queries predicted faster or slower as measured."),
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
    ),
)
CALIBRATION_TABLES = (FACTORS, PAIRS, VALIDATION, SCORES, PREDICTIONS)
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

# Two runs of a query, operator by operator.

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
