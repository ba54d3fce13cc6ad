"""Declared tables of the ledger, and the columns that forecasts and outcomes need of the areas' tables (INPUT_...)."""

from __future__ import annotations

from workbench.core.tables import Column, Table

FORECASTS = Table(
    "forecasts",
    "One row per forecast, with the outcome that counts.",
    ("id",),
    (
        Column("id", "str", "Id of the forecast."),
        Column("area", "str", "Area that made it."),
        Column("subject", "str", "Subject: an application, a query, a target, a stack."),
        Column("quantity", "str", "The forecast quantity."),
        Column("unit", "str", "Unit of value, ends and outcome."),
        Column("value", "float", "Forecast value.", ends=("low", "high")),
        Column("low", "float", "Lower end of its interval; null if open.", nullable=True),
        Column("high", "float", "Upper end; null if open.", nullable=True),
        Column("level", "float", "Nominal level of the interval.", unit="share"),
        Column("state", "str", "open, matched, failed (no outcome) or invalid (its run is not valid)."),
        Column("outcome", "float", "Value of the outcome.", nullable=True),
        Column("covered", "bool", "The interval contains the outcome; null without both.", nullable=True),
        Column("log_error", "float", "Log of forecast over outcome; null unless both are positive.", nullable=True),
        Column("log_width", "float", "Log of upper over lower end; null unless both are positive.", nullable=True),
        Column("interval_score", "float", "Interval score on the log scale; less is better.", nullable=True),
        Column("retrospective", "bool", "The outcome was, or may have been, known when the forecast was kept."),
        Column("made_at", "str", "When it was made, UTC."),
        Column("kept_at", "str", "When it was written into the ledger, UTC."),
        Column("run", "str", "Run that made it; null by hand.", nullable=True),
        Column("outcome_run", "str", "Run that measured the outcome; null without one.", nullable=True),
        Column("failure", "str", "Why there is no value; null where there is one.", nullable=True),
        Column("note", "str", "Remarks of forecast and outcome."),
    ),
)
FORECAST_SCORES = Table(
    "forecast_scores",
    "One row per area, and one for all: how often intervals contained the outcome, and how far off the forecasts were.",
    ("area",),
    (
        Column("area", "str", "Area; all for all together."),
        Column("n_forecasts", "int", "Forecasts; the next four add up to it."),
        Column("n_open", "int", "Without an outcome."),
        Column("n_matched", "int", "With an outcome that counts."),
        Column("n_failed", "int", "Forecasts without an outcome."),
        Column("n_invalid", "int", "Forecasts whose outcome is from a run that is not valid."),
        Column("n_retrospective", "int", "Of the matched: kept when the outcome may have been known."),
        Column("n_runs", "int", "Groups of runs among the matched with an interval: the unit of the coverage."),
        Column("n_intervals", "int", "Matched forecasts with both ends."),
        Column("n_covered", "int", "Of these, intervals that contain the outcome."),
        Column("level", "float", "Mean nominal level of these.", unit="share", nullable=True),
        Column("coverage", "float", "Share of these that contain the outcome.", unit="share", nullable=True),
        Column("coverage_low", "float", "Lower end of its 90 % interval.", unit="share", nullable=True),
        Column("coverage_high", "float", "Upper end.", unit="share", nullable=True),
        Column("verdict", "str", "VALID, OVERCONFIDENT, UNDERCONFIDENT or UNDECIDED."),
        Column("n_errors", "int", "Matched forecasts with a log error: forecast and outcome are positive."),
        Column("mean_absolute_log_error", "float", "Mean absolute log of forecast over outcome.", nullable=True),
        Column("mean_log_width", "float", "Mean log of upper over lower end.", nullable=True),
        Column("mean_interval_score", "float", "Mean interval score on the log scale.", nullable=True),
    ),
)

INPUT_APPLICATIONS = Table(
    "applications",
    "Of a speedup qualification: predicted time of each application on the candidate.",
    ("log",),
    (
        Column("log", "str", "Event log."),
        Column("app_id", "str", "Application id.", nullable=True, added=True),
        Column("app_name", "str", "Name of the application.", nullable=True),
        Column("predicted_s", "float", "Predicted time.", unit="s", nullable=True),
        Column("predicted_low_s", "float", "Lower end.", unit="s", nullable=True),
        Column("predicted_high_s", "float", "Upper end.", unit="s", nullable=True),
    ),
)
INPUT_PREDICTIONS = Table(
    "predictions",
    "Of a speedup qualification: predicted ratio of each query.",
    ("session", "query"),
    (
        Column("session", "str", "Log."),
        Column("query", "str", "Query."),
        Column("ratio", "float", "Baseline over predicted.", unit="times"),
        Column("ratio_low", "float", "Lower end.", unit="times"),
        Column("ratio_high", "float", "Upper end.", unit="times"),
    ),
)
INPUT_VALIDATION = Table(
    "validation",
    "Of a speedup pair: each query predicted from all the others.",
    ("predictor", "query"),
    (
        Column("predictor", "str", "Predictor."),
        Column("query", "str", "Left-out query."),
        Column("predicted_s", "float", "Predicted time on the candidate.", unit="s"),
        Column("predicted_low_s", "float", "Lower end.", unit="s", nullable=True),
        Column("predicted_high_s", "float", "Upper end.", unit="s", nullable=True),
    ),
)
INPUT_OVERVIEW = Table(
    "overview",
    "Of a profile: the measured time of an application.",
    ("app_id",),
    (
        Column("app_id", "str", "Application id."),
        Column("app_name", "str", "Name.", nullable=True),
        Column("engine", "str", "Engine that ran it."),
        Column("status", "str", "complete or incomplete."),
        Column("wall_time_s", "float", "From start to end.", unit="s", nullable=True),
    ),
)
INPUT_PAIRS = Table(
    "pairs",
    "Of a speedup pair: measured time of each query on both sides.",
    ("query",),
    (
        Column("query", "str", "Query."),
        Column("candidate_s", "float", "Time on the candidate.", unit="s"),
        Column("ratio", "float", "Baseline over candidate.", unit="times"),
        Column("ratio_low", "float", "Lower end.", unit="times", nullable=True),
        Column("ratio_high", "float", "Upper end.", unit="times", nullable=True),
    ),
)
INPUT_ESTIMATES = Table(
    "estimates",
    "Of a sizing run: GPUs that a load needs within each target.",
    ("target",),
    (
        Column("target", "str", "Name of the target."),
        Column("load", "float", "Load to serve."),
        Column("load_unit", "str", "users or 1/s."),
        Column("test_gpus", "int", "GPUs in the sweep."),
        Column("gpus", "float", "GPUs for the load, not rounded.", nullable=True),
        Column("gpus_low", "float", "Lower end.", nullable=True),
        Column("gpus_high", "float", "Upper end.", nullable=True),
        Column("reason", "str", "Assumptions and missing data.", nullable=True),
        Column("served", "str", "Model and GPU type, where they are known.", nullable=True, added=True),
    ),
)
INPUT_STEPS = Table(
    "steps",
    "Of a sizing run: the steps of its sweep.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("started_at", "str", "Start, UTC; null in virtual time.", nullable=True),
    ),
)
INPUT_VERIFICATION = Table(
    "verification",
    "Of a sizing run: the target's quantile at a load that was driven.",
    ("target",),
    (
        Column("target", "str", "Name of the target."),
        Column("gpus", "int", "GPUs under load."),
        Column("driven_load", "float", "Load that was sent."),
        Column("load_unit", "str", "users or 1/s."),
        Column("value_s", "float", "Quantile.", unit="s", nullable=True),
        Column("low_s", "float", "Lower end.", unit="s", nullable=True),
        Column("high_s", "float", "Upper end.", unit="s", nullable=True),
        Column("reason", "str", "The verdict in words.", nullable=True),
    ),
)
INPUT_RECOMMENDATIONS = Table(
    "recommendations",
    "Of an indicator recommendation: ratio of each stack to the baseline, over the mix.",
    ("session_id", "stack"),
    (
        Column("session_id", "str", "Session."),
        Column("stack", "str", "Stack."),
        Column("baseline", "bool", "It is the baseline."),
        Column("ratio", "float", "How many times better than the baseline.", nullable=True),
        Column("low", "float", "Lower end.", nullable=True),
        Column("high", "float", "Upper end.", nullable=True),
        Column("level", "float", "Confidence of the interval.", unit="share"),
        Column("predicted", "bool", "Predicted from other stacks, not from its own runs."),
    ),
)
INPUT_EFFECTS = Table(
    "effects",
    "Of an indicator session: ratio of each arm to the baseline, by metric.",
    ("session_id", "metric", "arm"),
    (
        Column("session_id", "str", "Session."),
        Column("metric", "str", "Metric."),
        Column("arm", "str", "Arm."),
        Column("stack", "str", "Its stack."),
        Column("baseline", "str", "Arm it is compared with."),
        Column("control", "bool", "It is the baseline once more."),
        Column("ratio", "float", "How many times better than the baseline.", nullable=True),
        Column("low", "float", "Lower end.", nullable=True),
        Column("high", "float", "Upper end.", nullable=True),
        Column("reason", "str", "Why there is no ratio.", nullable=True),
    ),
)
INPUT_SUSTAINED = Table(
    "sustained",
    "Of a scale test: sustained rate of the cluster, by side if there are several.",
    (),
    (
        Column("side", "str", "Side.", nullable=True, added=True),
        Column("low_per_s", "float", "Rate that was sustained.", unit="pods/s", nullable=True),
        Column("high_per_s", "float", "Upper end; null if the limit was never reached.", unit="pods/s", nullable=True),
        Column("reason", "str", "Evidence, or why it is not decided."),
    ),
)
INPUT_DAY = Table(
    "day",
    "Of a capacity plan: figures of the day.",
    ("figure",),
    (
        Column("figure", "str", "Figure."),
        Column("unit", "str", "Its unit."),
        Column("p5", "float", "5 % of the draws are at or below it."),
        Column("p50", "float", "Half of them."),
        Column("p95", "float", "95 % of them."),
    ),
)
