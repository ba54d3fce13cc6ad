"""The tables of the calibrated method."""

from __future__ import annotations

from workbench.tables import Column, Table


def _ratio(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "float", meaning, "times", nullable=nullable)


def _seconds(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "float", meaning, "s", nullable=nullable)


def _share(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "float", meaning, "share", nullable=nullable)


_SESSIONS = (
    Column("n_baseline_sessions", "int", "Sessions of the baseline: the unit of the interval."),
    Column("n_candidate_sessions", "int", "Sessions of the candidate."),
)
FACTORS = Table(
    "factors",
    "How many times faster each operator is on the candidate. Below 1 it is slower.",
    ("operator",),
    (
        Column("operator", "str", "Operator, group of operators, or kind of time (idle, task overhead)."),
        _ratio("factor", "Baseline over candidate, drawn to the engine-wide factor where little is known."),
        _ratio("factor_low", "Low end of its interval; null with one session.", nullable=True),
        _ratio("factor_high", "High end.", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED, over all operators together (Holm)."),
        Column("quality", "str", "good, weak, not separable, baseline only, candidate only."),
        Column("note", "str", "What the quality means here.", nullable=True),
        _ratio("measured_factor", "Before it was drawn to the engine-wide factor."),
        _share("shrinkage", "How far it was drawn: 0 not at all, 1 all the way."),
        Column("adjusted_p_value", "float", "Of the verdict; null with one session.", nullable=True),
        _seconds("baseline_s", "Wall time on the baseline, over one run of all queries."),
        _seconds("candidate_s", "Wall time on the candidate."),
        _share("baseline_share", "Of the baseline's wall time."),
        _share("candidate_share", "Of the candidate's."),
        _share(
            "own_metric_share", "Of its baseline time, told by metrics of its own; the rest is split off shared times."
        ),
        _share(
            "left_on_cpu_share",
            "Of its nodes on the candidate, those that no accelerator ran; null without one.",
            nullable=True,
        ),
        Column("n_queries", "int", "Queries in which it takes time on the baseline."),
        *_SESSIONS,
        Column("n_passes", "int", "Warm passes a session (the fewest)."),
    ),
)
PAIRS = Table(
    "pairs",
    "What each query took on both sides.",
    ("query",),
    (
        Column("query", "str", "Query."),
        _seconds("baseline_s", "Wall time: geometric mean over sessions of their medians."),
        _seconds("candidate_s", "The same on the candidate."),
        _ratio("ratio", "Baseline over candidate."),
        _ratio("ratio_low", "Low end of its interval; null with one session.", nullable=True),
        _ratio("ratio_high", "High end.", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED, over all queries together (Holm)."),
        Column("adjusted_p_value", "float", "Of the verdict.", nullable=True),
        *_SESSIONS,
    ),
)
VALIDATION = Table(
    "validation",
    "Each query predicted from all the others, beside what it took; for every predictor.",
    ("predictor", "query"),
    (
        Column("predictor", "str", "calibrated, constant (geometric mean of the other queries' ratios) or seed."),
        Column("query", "str", "The query that was left out."),
        _seconds("baseline_s", "What it took on the baseline."),
        _seconds("actual_s", "What it took on the candidate."),
        _seconds("predicted_s", "What was predicted."),
        _seconds(
            "predicted_low_s", "Low end of the prediction interval; null where the predictor has none.", nullable=True
        ),
        _seconds("predicted_high_s", "High end.", nullable=True),
        Column("log_error", "float", "Log of predicted over actual."),
        _share("absolute_error_share", "Predicted minus actual over actual, without sign."),
        Column("covered", "bool", "Did the interval hold the actual time?", nullable=True),
        Column("direction_right", "bool", "Was faster or slower predicted as measured?"),
        Column("time_weight", "float", "How far the prediction went by time, the rest by work.", nullable=True),
    ),
)
SCORES = Table(
    "scores",
    "How well each predictor did over the left-out queries.",
    ("predictor",),
    (
        Column("predictor", "str", "Predictor."),
        Column("n_queries", "int", "Queries predicted."),
        Column("mean_absolute_log_error", "float", "Mean over queries."),
        Column("mean_low", "float", "Low end of its interval, by drawing queries.", nullable=True),
        Column("mean_high", "float", "High end.", nullable=True),
        _ratio("mean_over_constant", "Mean error over the constant predictor's."),
        _ratio("mean_over_constant_low", "Low end of its interval, by drawing queries.", nullable=True),
        _ratio("mean_over_constant_high", "High end.", nullable=True),
        Column("worst_absolute_log_error", "float", "Largest over queries."),
        _ratio("worst_over_constant", "Largest error over the constant predictor's largest."),
        Column("worst_query", "str", "Where that was."),
        _share("median_absolute_error_share", "Median over queries of the error as a share of the actual time."),
        Column("n_covered", "int", "Queries whose interval held the actual time.", nullable=True),
        Column("mean_log_width", "float", "Mean width of the intervals, as a log ratio.", nullable=True),
        Column("n_direction_right", "int", "Queries predicted faster or slower as measured."),
    ),
)
PREDICTIONS = Table(
    "predictions",
    "What each query would take on the candidate.",
    ("session", "query"),
    (
        Column("session", "str", "Log."),
        Column("query", "str", "Query."),
        Column("n_executions", "int", "Runs of it."),
        _seconds("baseline_s", "What they took, all together."),
        _seconds("predicted_s", "What they would take."),
        _seconds("predicted_low_s", "Low end of the prediction interval."),
        _seconds("predicted_high_s", "High end."),
        _ratio("ratio", "Baseline over predicted."),
        _ratio("ratio_low", "Low end."),
        _ratio("ratio_high", "High end."),
        _share("unsupported_share", "Of its time, in operators that the candidate leaves on the CPU."),
        _share("unknown_share", "Of its time, in operators that no factor was measured for."),
        Column("unsupported_operators", "list[str]", "Which, most time first."),
        Column("unknown_operators", "list[str]", "Which, most time first."),
    ),
)
ALL = (FACTORS, PAIRS, VALIDATION, SCORES, PREDICTIONS)
