"""Declared tables of the area: sessions, recommendations, the database, and histories."""

from __future__ import annotations

from workbench.core.tables import Column, Dtype, Table
from workbench.indicators.contract.indicator import USAGE

_USAGE_UNITS = {"ru_utime": "s", "ru_stime": "s", "ru_maxrss": "KiB"}
_RUN = (
    Column("session_id", "str", "The session."),
    Column("inspection_id", "str", "One arm and one case of it."),
    Column("run", "int", "Number of the run in its inspection."),
)
_WHAT = (
    Column("round", "int", "The round: all arms of a case were run in it, in random order."),
    Column("arm", "str", "The arm: a stack, or the control."),
    Column("case", "str", "The indicator, with parameters that differ from their defaults."),
)
CHECKS = Table(
    "checks",
    "One row per check of a run that is ok, and per result that stacks are not compared by.",
    ("inspection_id", "run", "field"),
    (
        *_RUN,
        *_WHAT,
        Column("field", "str", "Name of the check or result."),
        Column("value", "str", "Its value, as text.", nullable=True),
        Column("compared", "bool", "True: it must equal the baseline's value; false: the script's own bound applies."),
    ),
)
DIMENSIONS = Table(
    "dimensions",
    "One row per metric and level of a stack matrix's dimension: its effect, over all values of the others.",
    ("session_id", "metric", "dimension", "level"),
    (
        Column("session_id", "str", "The session."),
        Column("metric", "str", "What is compared."),
        Column("dimension", "str", "python, a package, its index, threads, or a variable."),
        Column("level", "str", "The level that is compared."),
        Column("base_level", "str", "The baseline's level."),
        Column("ratio", "float", "How many times better, by the additive model; null: unknown.", nullable=True),
        Column("low", "float", "Low end of the interval.", nullable=True),
        Column("high", "float", "High end of the interval.", nullable=True),
        Column("n", "int", "Rounds with values of all arms.", unit="rounds"),
        Column("n_arms", "int", "Arms of this level in the model."),
        Column("margin", "float", "Practical margin, as a share.", unit="share"),
        Column("adjusted_p_value", "float", "Against the margin, by Holm over levels and metrics.", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED."),
        Column("undecided_because", "str", "UNDECIDED: why; null otherwise.", nullable=True),
        Column("interaction_arm", "str", "The arm of this level that deviates most from the model.", nullable=True),
        Column("interaction", "float", "Its ratio to the model; null where the model leaves nothing.", nullable=True),
        Column("interaction_low", "float", "Low end of its interval.", nullable=True),
        Column("interaction_high", "float", "High end of its interval.", nullable=True),
        Column("is_additive", "bool", "False: it deviates beyond the margin; null: unknown.", nullable=True),
    ),
)
DRIFT = Table(
    "drift",
    "One row per metric: did the machine change while the baseline was measured?",
    ("session_id", "metric"),
    (
        Column("session_id", "str", "The session."),
        Column("metric", "str", "What was measured."),
        Column("n", "int", "Rounds with a value of the baseline.", unit="rounds"),
        Column("change_at", "int", "First round after the most likely change; null for too few rounds.", nullable=True),
        Column("factor", "float", "Value after it over value before it.", nullable=True),
        Column("p_value", "float", "How often steady noise looks like this.", nullable=True),
        Column("adjusted_p_value", "float", "The same, by Holm over all metrics.", nullable=True),
        Column("changed", "bool", "The machine changed (significant at 5 %)."),
    ),
)
_SESSION_COLUMN = Column("session_id", "str", "The session.")
_STACK_COLUMN = Column("stack", "str", "Name of the stack.")
_KEY_COLUMN = Column("stack_key", "str", "Hash of its lock, Python and platform.")
RECOMMENDATIONS = Table(
    "recommendations",
    "One row per stack that meets all constraints, the best score first.",
    ("session_id", "stack"),
    (
        _SESSION_COLUMN,
        Column("rank", "int", "Place by score, from 1."),
        _STACK_COLUMN,
        _KEY_COLUMN,
        Column("arm", "str", "Its arm of the session; null if it was not measured.", nullable=True),
        Column("baseline", "bool", "It is the baseline."),
        Column("recommended", "bool", "It is the answer."),
        Column("score", "float", "Sum of the scores of all steps, as logarithms."),
        Column("ratio", "float", "How many times better than the baseline over the mix.", nullable=True),
        Column("low", "float", "Low end of the interval.", nullable=True),
        Column("high", "float", "High end of the interval.", nullable=True),
        Column("level", "float", "Confidence of the interval.", unit="share"),
        Column("n", "int", "Rounds in which it and the baseline have all values of the mix.", unit="rounds"),
        Column("p_best", "float", "Chance that its score is the highest.", unit="share", nullable=True),
        Column("p_near", "float", "Chance that it is within the margin of the highest.", unit="share", nullable=True),
        Column("regret_pct", "float", "Expected loss against the highest.", unit="%", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED over the mix; BASELINE."),
        Column("rounds_needed", "int", "UNDECIDED: rounds that would likely decide.", nullable=True),
        Column("predicted", "bool", "Predicted from stacks that share its versions, not from its own runs."),
    ),
)
EXCLUDED = Table(
    "excluded",
    "One row per excluded stack, with the reason.",
    ("session_id", "stack"),
    (
        _SESSION_COLUMN,
        _STACK_COLUMN,
        _KEY_COLUMN,
        Column("unit", "str", "The unit that left it out."),
        Column("reason", "str", "Why, as a sentence."),
        Column("link", "str", "Where to see it.", nullable=True),
        Column("runs", "list[str]", "The runs behind it, as paths below the session's folder."),
    ),
)
JUSTIFICATIONS = Table(
    "justifications",
    "One row per sentence of the justification.",
    ("session_id", "number"),
    (
        _SESSION_COLUMN,
        Column("number", "int", "Place, from 1."),
        Column("stack", "str", "The stack it is about; null for the session.", nullable=True),
        Column("type", "str", "INFO, WARNING or ERROR."),
        Column("message", "str", "The sentence."),
        Column("link", "str", "Where to see it: a path below the session's folder, or an address.", nullable=True),
        Column("package_name", "str", "The package it is about.", nullable=True),
        Column("version_range", "str", "Its versions.", nullable=True),
        Column("metric", "str", "The metric it is about; `mix` for all of them.", nullable=True),
        Column("effect_pct", "float", "How much better than the baseline.", unit="%", nullable=True),
        Column("low_pct", "float", "Low end of its interval.", unit="%", nullable=True),
        Column("high_pct", "float", "High end of its interval.", unit="%", nullable=True),
        Column("n_rounds", "int", "Rounds behind it.", unit="rounds", nullable=True),
        Column("runs", "list[str]", "The runs behind it, as paths below the session's folder."),
        Column("hardware", "str", "The machine they were measured on.", nullable=True),
    ),
)
PROPOSALS = Table(
    "proposals",
    "One row per stack that is worth measuring next.",
    ("session_id", "stack"),
    (
        _SESSION_COLUMN,
        Column("place", "int", "Order in which they were drawn, from 1."),
        _STACK_COLUMN,
        _KEY_COLUMN,
        Column("ratio", "float", "Predicted ratio to the baseline."),
        Column("low", "float", "Low end of its interval."),
        Column("high", "float", "High end of its interval."),
        Column("n", "int", "Rounds it was measured in so far.", unit="rounds"),
    ),
)
_STORED_SESSION_COLUMN = Column("session_id", "str", "The session.")
_STORED_RUNS_COLUMN = Column("runs", "int", "Runs that are kept.")
_STORED_FAILED_COLUMN = Column("failed", "int", "Of these, runs without values.")
SESSIONS = Table(
    "sessions",
    "One row per session.",
    ("session_id",),
    (
        _STORED_SESSION_COLUMN,
        Column("created_at", "str", "When it was planned, UTC."),
        Column("backend", "str", "process, kubernetes, imported or simulated."),
        Column("design", "str", "rounds (arms in turn), or blocks: no pairs, so no verdicts."),
        Column("baseline", "str", "The arm that others are compared with."),
        Column("arms", "int", "Stacks, the control among them."),
        Column("cases", "int", "Indicators with their parameters."),
        _STORED_RUNS_COLUMN,
        _STORED_FAILED_COLUMN,
        Column("rounds_done", "int", "Rounds that were done.", unit="rounds"),
        Column("cpu_model", "str", "The machine's processor."),
        Column("ended_at", "str", "End, UTC; null while it runs.", nullable=True),
        Column("stop_reason", "str", "Why it ended.", nullable=True),
        Column("revision", "str", "Commit of the measured code, if known.", nullable=True),
    ),
)
STACKS = Table(
    "stacks",
    "One row per session and arm.",
    ("session_id", "arm"),
    (
        _STORED_SESSION_COLUMN,
        Column("arm", "str", "The arm: a stack, or the control."),
        Column("stack", "str", "Name of the stack."),
        Column("stack_key", "str", "Hash of its lock, Python and platform."),
        Column("copy_number", "int", "0; above, another environment of the same lock."),
        Column("python", "str", "Version of Python."),
        Column("platform", "str", "Platform, if known.", nullable=True),
        Column("packages", "int", "Packages in the lock."),
        _STORED_RUNS_COLUMN,
        _STORED_FAILED_COLUMN,
    ),
)
INDICATORS = Table(
    "indicators",
    "One row per version of an indicator; versions are never compared.",
    ("indicator", "indicator_version"),
    (
        Column("indicator", "str", "Its name."),
        Column("indicator_version", "str", "Hash of declaration and script."),
        Column("table_name", "str", "Its typed table; null where no session declared it.", nullable=True),
        Column("sessions", "int", "Sessions with runs of it."),
        _STORED_RUNS_COLUMN,
        _STORED_FAILED_COLUMN,
    ),
)
FAILURES = Table(
    "failures",
    "One row per run that has no values, or that did not pass its own checks.",
    ("inspection_id", "run"),
    (
        _STORED_SESSION_COLUMN,
        Column("inspection_id", "str", "One arm and one case of it."),
        Column("run", "int", "Number of the run in its inspection."),
        Column("arm", "str", "The arm."),
        Column("case", "str", "The indicator with its parameters."),
        Column("status", "str", "ok (with failed checks), or why there are no values."),
        Column("reason", "str", "More about that.", nullable=True),
        Column("failed_checks", "list[str]", "The checks that did not pass, in words."),
        Column("exit_code", "int", "Exit code; null when a signal ended it.", nullable=True),
        Column("signal", "int", "Signal that ended it.", nullable=True),
        Column("started_at", "str", "Start, UTC."),
    ),
)
PACKAGES = Table(
    "packages",
    "One row per package of a stack.",
    ("stack_key", "package"),
    (
        Column("stack_key", "str", "Hash of the stack's lock, Python and platform."),
        Column("package", "str", "Name of the package."),
        Column("version", "str", "Its version."),
    ),
)
STACK_PACKAGES = Table(
    "packages",
    "One row per package of each stack, measured or not.",
    ("stack", "package"),
    (
        Column("stack", "str", "Name of the stack."),
        Column("stack_key", "str", "Hash of its lock, Python and platform."),
        Column("arm", "str", "Its arm of the session; null if it was not measured.", nullable=True),
        Column("package", "str", "Name of the package."),
        Column("version", "str", "Its version."),
        Column("newest_upload", "str", "Upload time of its newest file.", nullable=True),
        Column("yanked", "bool", "Whether a file was yanked; null if the index does not say.", nullable=True),
    ),
)
TRIED = Table(
    "tried",
    "One row per field of the document of a single run.",
    ("field",),
    (
        Column("field", "str", "Name of the field."),
        Column("role", "str", "parameter, result or check."),
        Column("value", "str", "Its value.", nullable=True),
        Column("unit", "str", "Its unit."),
        Column("about", "str", "Its description."),
    ),
)


def _added_column(name: str, dtype: Dtype, meaning: str, unit: str = "") -> Column:
    """A column that tables of older runs lack; null there."""
    return Column(name, dtype, meaning, unit, nullable=True, added=True)


_SERIES = (
    Column("series", "int", "Number of the series, from 1."),
    Column("metric", "str", "What is measured."),
    Column("stack", "str", "The stack that is followed, without its versions."),
)
_RATIO = (
    Column("low", "float", "Low end of the interval.", nullable=True),
    Column("high", "float", "High end of the interval.", nullable=True),
)
POINTS = Table(
    "history_points",
    "One row per session and series: the figure of a session, as a ratio to the reference of the same session.",
    ("series", "session_id"),
    (
        *_SERIES,
        Column("kind", "str", "followed, control (the reference once more), machine (the reference's own value)."),
        Column("reference", "str", "Start of the reference's key; empty without one (absolute values)."),
        Column("hardware_key", "str", "Identifies the machine; other machines are another series."),
        Column("cpu_model", "str", "The machine's processor."),
        Column("threads", "int", "Threads of the runs; null where unknown.", nullable=True),
        Column("clock", "str", "Clock of the times: wall or cpu."),
        Column("indicator_version", "str", "Hash of the indicator; another version is another series."),
        Column("tolerance", "float", "Practical margin as a share: smaller differences do not matter."),
        Column("session_id", "str", "The session."),
        Column("created_at", "str", "When it was planned, UTC."),
        Column("revision", "str", "Commit of the measured code, if known.", nullable=True),
        _added_column("commit_at", "str", "Time of that commit, UTC, if known."),
        _added_column(
            "place",
            "int",
            "Place in its series, from 0: by commits if all are known, otherwise by time of measurement.",
        ),
        Column("packages", "str", "Its Python and its stack's packages, with versions, separated by spaces."),
        Column(
            "log_ratio", "float", "Log of how many times better than the reference, or without one the first session."
        ),
        Column("error", "float", "Its standard error over rounds; 0 where there is one round."),
        Column("rounds", "int", "Rounds with both values.", unit="rounds"),
        _added_column("rounding", "float", "How far the log may be off, because values were rounded."),
    ),
)
SERIES = Table(
    "history_series",
    "One row per series: its level today, and what changed.",
    ("series",),
    (
        *_SERIES,
        Column("kind", "str", "followed, control or machine."),
        Column("cpu_model", "str", "The machine's processor."),
        Column("threads", "int", "Threads of the runs; null where unknown.", nullable=True),
        Column("sessions", "int", "Sessions in it."),
        Column("first_at", "str", "Time of the first, UTC."),
        Column("last_at", "str", "Time of the last, UTC."),
        Column("level", "float", "How many times better than the reference, over the last level."),
        Column("level_low", "float", "Low end of its interval.", nullable=True),
        Column("level_high", "float", "High end of its interval.", nullable=True),
        Column("spread", "float", "Standard deviation between sessions beyond their own errors, of log ratios."),
        Column("changes", "int", "Changes of level, and drifts."),
        _added_column("outliers", "int", "Sessions far from their neighbours, which count as these in levels."),
        _added_column("last_outlier", "float", "How many times its level the last session was, if it is one of them."),
        Column("since_sessions", "int", "Sessions since the date; null without a date.", nullable=True),
        Column("ratio", "float", "How many times better than before the date.", nullable=True),
        *_RATIO,
        Column("verdict", "str", "Since the date: FASTER, SLOWER, SAME or UNDECIDED.", nullable=True),
        Column("reason", "str", "Why it is undecided.", nullable=True),
    ),
)
CHANGES = Table(
    "history_changes",
    "One row per change of level or drift: how much, between which sessions, and what else changed there.",
    ("series", "session_id", "shape"),
    (
        *_SERIES,
        Column("kind", "str", "followed, control or machine."),
        _added_column("shape", "str", "step, or drift: from its first session to its last."),
        Column("session_id", "str", "First session of the new level, or of the drift."),
        Column("created_at", "str", "Its time, UTC; the commit's time if every session of the series has it."),
        Column("last_before", "str", "Last session of the old level; of a drift its own last session."),
        Column("ratio", "float", "How many times better than the level before; of a drift its end than its begin."),
        *_RATIO,
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED, by the metric's margin."),
        Column("sessions_before", "int", "Sessions of the level before; 0 for a drift."),
        Column("sessions_after", "int", "Sessions of the new level, or of the drift."),
        Column("packages", "str", "Packages that differ between the two sessions: old and new version."),
        Column("revisions", "str", "Commits before and after, as FROM..TO; null if unknown.", nullable=True),
    ),
)


RUNS = Table(
    "runs",
    "One row per run, however it ended.",
    ("inspection_id", "run"),
    (
        *_RUN,
        *_WHAT,
        Column("position", "int", "Place in the order of all runs of the session, from 0."),
        Column("stack", "str", "Name of the stack."),
        Column("stack_key", "str", "Hash of its lock, Python and platform."),
        Column("indicator", "str", "Name of the indicator."),
        Column("indicator_version", "str", "Hash of its declaration and script; other versions are never compared."),
        Column(
            "component",
            "str",
            "Framework that the script reported: its package, otherwise in lower case.",
            nullable=True,
        ),
        Column("status", "str", "ok, or why there are no values."),
        Column("reason", "str", "More about that; null when ok.", nullable=True),
        Column("passed", "bool", "All its own checks passed; null unless ok.", nullable=True),
        Column("failed_checks", "list[str]", "The checks that did not pass, in words."),
        Column("overall_score", "float", "As the script told it.", nullable=True),
        Column("exit_code", "int", "Exit code; null when a signal ended it.", nullable=True),
        Column("signal", "int", "Signal that ended it.", nullable=True),
        Column("started_at", "str", "Start, UTC."),
        Column("duration_s", "float", "From before the process was made until it was waited for.", "s", nullable=True),
        Column("threads", "int", "Threads that libraries were set to use.", nullable=True),
        Column("hardware_key", "str", "Identifies the machine; other machines are never compared."),
        Column("network", "str", "isolated, or not isolated."),
        Column("load_before", "float", "Load average of the last minute, before.", nullable=True),
        Column("load_after", "float", "The same, after.", nullable=True),
        Column("steal_s", "float", "Time the hypervisor took away during the run.", unit="s", nullable=True),
        _added_column("faults", "list[str]", "Why its values are not those of the work: processes left running."),
        _added_column("cpu_s", "float", "User and system time of all processes of the run.", unit="s"),
        _added_column("waited_s", "float", "Time it was ready and waited for a core.", unit="s"),
        Column(
            "other_load",
            "float",
            "Share of its cores' time that other processes used.",
            "share",
            nullable=True,
            added=True,
        ),
        _added_column("elsewhere_load", "float", "Share of the other cores' time that was used.", "share"),
        _added_column("disk_load", "float", "Share of its time that others used the disks.", "share"),
        _added_column("mhz", "float", "Mean clock of its cores, before and after.", "MHz"),
        _added_column("throttles", "int", "How often its cores were slowed down for heat meanwhile."),
        _added_column("quota_s", "float", "Time that a CPU quota stopped its control group.", unit="s"),
        *(
            Column(name, "float", f"Resource usage of this process: {name}.", _USAGE_UNITS.get(name, ""), nullable=True)
            for name in USAGE
        ),
    ),
)
OBSERVATIONS = Table(
    "observations",
    "One row per value of a run that is ok: what stacks are compared by.",
    ("inspection_id", "run", "metric"),
    (
        *_RUN,
        *_WHAT,
        Column("metric", "str", "The compared metric: the case, with its field if there are several."),
        Column("value", "float", "As measured, in the unit of the metric."),
        Column("unit", "str", "Its unit."),
        Column("better", "str", "higher or lower."),
        Column("tolerance", "float", "Practical margin as a share: smaller differences do not matter."),
        _added_column("clock", "str", "Clock of `value`: wall or cpu."),
        _added_column("other_value", "float", "The same by the other clock; null where unknown."),
        _added_column("cpu_part", "str", "CPU time is of the measured part, or of the whole run."),
    ),
)
CAUSES = Table(
    "causes",
    "Differences between two sides that make one slower.",
    ("kind", "name"),
    (
        Column("kind", "str", "package, python, threads or variable."),
        Column("name", "str", "What differs."),
        Column("good", "str", "On the fast side; null without it.", nullable=True),
        Column("bad", "str", "On the slow side; null without it.", nullable=True),
        Column(
            "share", "float", "Of the slowdown, on the log scale; of all more than 1: they act together.", unit="share"
        ),
        Column("without", "float", "How many times as fast the slow side is without it."),
        Column("without_low", "float", "Low end.", nullable=True),
        Column("without_high", "float", "High end.", nullable=True),
        Column("alone", "float", "How many times as slow the fast side is with it alone.", nullable=True),
        Column("alone_low", "float", "Low end.", nullable=True),
        Column("alone_high", "float", "High end.", nullable=True),
    ),
)
EFFECTS = Table(
    "effects",
    "One row per arm and metric: how it differs from the baseline, within rounds.",
    ("session_id", "metric", "arm"),
    (
        Column("session_id", "str", "The session."),
        Column("metric", "str", "What is compared."),
        Column("arm", "str", "The arm that is compared with the baseline."),
        Column("stack", "str", "Name of its stack."),
        Column("baseline", "str", "The arm it is compared with."),
        Column("control", "bool", "The arm is the baseline's stack once more: any difference is made up."),
        Column("ratio", "float", "How many times better than the baseline; null without a pair.", nullable=True),
        Column("low", "float", "Low end of the interval.", nullable=True),
        Column("high", "float", "High end of the interval.", nullable=True),
        Column("level", "float", "Confidence of the interval: one look's share of alpha.", unit="share"),
        Column("median_ratio", "float", "Median of the ratios within rounds.", nullable=True),
        Column("n", "int", "Rounds in which both have a value.", unit="rounds"),
        Column("failed", "int", "Rounds in which the arm has no value.", unit="rounds"),
        Column("spread", "float", "Standard deviation of the log ratios within rounds.", nullable=True),
        Column("margin", "float", "Practical margin, as a share.", unit="share"),
        Column("p_value", "float", "Against a difference of the margin, two-sided.", nullable=True),
        Column("adjusted_p_value", "float", "The same, by Holm over all arms and metrics.", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED."),
        Column("rounds_needed", "int", "UNDECIDED: rounds that would likely decide; null beyond 1,000.", nullable=True),
        Column("passed", "bool", "The arm's checks passed in every run of this case."),
        Column("reason", "str", "Why there is no ratio, or which checks failed.", nullable=True),
        Column(
            "undecided_because",
            "str",
            "UNDECIDED: why, and what would decide it; null otherwise.",
            nullable=True,
            added=True,
        ),
        _added_column("clock", "str", "Clock of ratio and verdict: wall or cpu."),
        Column(
            "decided_by",
            "str",
            "The clock that decided: wall, cpu, or cpu of the whole run.",
            nullable=True,
            added=True,
        ),
        _added_column("other_ratio", "float", "Ratio by the other clock."),
        _added_column("other_low", "float", "Low end of its interval."),
        _added_column("other_high", "float", "High end of its interval."),
        _added_column("other_verdict", "str", "Verdict by the other clock; null without values."),
        _added_column("cpu_part", "str", "CPU time is of the measured part, or of the whole run."),
        _added_column("spoiled_by", "str", "Why the figures do not compare the same work; null otherwise."),
        _added_column("unequal", "list[str]", "Conditions that differ from the baseline's."),
        Column(
            "other_load",
            "float",
            "Median share of the cores that other processes used.",
            "share",
            nullable=True,
            added=True,
        ),
        Column(
            "waited",
            "float",
            "Median share of a run's time that it waited for a core.",
            "share",
            nullable=True,
            added=True,
        ),
        Column(
            "stolen",
            "float",
            "Share of the runs' time that the hypervisor took.",
            unit="share",
            nullable=True,
            added=True,
        ),
        Column(
            "throttled",
            "int",
            "Runs slowed down for heat or stopped by a quota.",
            unit="runs",
            nullable=True,
            added=True,
        ),
        _added_column("mhz_low", "float", "Lowest clock of the cores in a run.", unit="MHz"),
        _added_column("mhz_high", "float", "Highest clock of the cores in a run.", unit="MHz"),
        _added_column("idle_ratio", "float", "How many times better it would be on an idle machine."),
        _added_column("idle_low", "float", "Low end of its 90 % interval."),
        _added_column("idle_high", "float", "High end of its 90 % interval."),
        _added_column("idle_loads", "str", "What others used of the machine in the rounds; empty on an idle one."),
        _added_column("idle_because", "str", "Why the ratio of an idle machine is not known."),
    ),
)
JUDGEMENTS = Table(
    "judgements",
    "One row: may anything be concluded from this session?",
    ("session_id",),
    (
        Column("session_id", "str", "The session."),
        Column("verdict", "str", "valid or invalid."),
        Column("reasons", "list[str]", "Why it is invalid, or what to bear in mind."),
        Column("rounds", "int", "Rounds that were done.", unit="rounds"),
        Column("runs", "int", "Runs that were done."),
        Column("failed", "int", "Runs without values."),
        Column("hosts_changed", "bool", "A change of the machine was seen on the baseline."),
        _added_column("compared", "int", "Comparisons of a stack by a metric, by the session's clock."),
        _added_column("decided", "int", "Of these, decided ones."),
        _added_column("sound", "bool", "The measurement is sound; an invalid one may only be undecided."),
    ),
)
