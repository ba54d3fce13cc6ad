"""The tables of the area. `runs` and `observations` are raw, read from the archive; the others follow from them alone.

A run that failed has no values: its row in `runs` says why, and it has none in `observations`. Ratios are baseline over
stack in time (stack over baseline where higher is better): above 1 is better, always.
"""

from __future__ import annotations

from workbench.indicators.contract import USAGE
from workbench.tables import Column, Table

_USAGE_UNITS = {"ru_utime": "s", "ru_stime": "s", "ru_maxrss": "KiB"}
_RUN = (
    Column("session_id", "str", "The session."),
    Column("inspection_id", "str", "One arm and one case of it."),
    Column("run", "int", "Number of the run in its inspection."),
)
_WHAT = (
    Column("round", "int", "The round: all arms of a case were run in it, in random order."),
    Column("arm", "str", "The side: a stack, or the control."),
    Column("case", "str", "The indicator, with parameters that differ from their defaults."),
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
        Column("component", "str", "Framework, as the script told it.", nullable=True),
        Column("status", "str", "ok, or why there are no values."),
        Column("reason", "str", "More about that; null when ok.", nullable=True),
        Column("passed", "bool", "All its own checks passed; null unless ok.", nullable=True),
        Column("failed_checks", "list[str]", "The checks that did not pass, in words."),
        Column("overall_score", "float", "As the script told it.", nullable=True),
        Column("exit_code", "int", "Exit code; null when a signal ended it.", nullable=True),
        Column("signal", "int", "Signal that ended it.", nullable=True),
        Column("started_at", "str", "Start, UTC."),
        Column("duration_s", "float", "From before the process was made until it was waited for.", "s", nullable=True),
        Column("threads", "int", "Threads that libraries were told to use.", nullable=True),
        Column("hardware_key", "str", "Stands for the machine; other machines are never compared."),
        Column("network", "str", "isolated, or not isolated."),
        Column("load_before", "float", "Load average of the last minute, before.", nullable=True),
        Column("load_after", "float", "The same, after.", nullable=True),
        Column("steal_s", "float", "Time the hypervisor took away during the run.", unit="s", nullable=True),
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
        Column("metric", "str", "What is compared: the case, with the field behind it where there are several."),
        Column("value", "float", "As measured, in the unit of the metric."),
        Column("unit", "str", "Its unit."),
        Column("better", "str", "higher or lower."),
        Column("tolerance", "float", "Practical margin as a share: smaller differences do not matter."),
    ),
)

CHECKS = Table(
    "checks",
    "One row per check of a run that is ok.",
    ("inspection_id", "run", "field"),
    (
        *_RUN,
        *_WHAT,
        Column("field", "str", "Name of the check."),
        Column("value", "str", "Its value, as text.", nullable=True),
        Column("compared", "bool", "It must be the baseline's value; else it was judged by the script's own bound."),
    ),
)

EFFECTS = Table(
    "effects",
    "One row per arm and metric: how it differs from the baseline, within rounds.",
    ("session_id", "metric", "arm"),
    (
        Column("session_id", "str", "The session."),
        Column("metric", "str", "What is compared."),
        Column("arm", "str", "The side that is compared with the baseline."),
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
        Column("changed", "bool", "The machine changed: told apart at 5 %."),
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
    ),
)
