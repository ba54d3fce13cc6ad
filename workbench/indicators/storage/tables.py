"""The tables that questions to the database answer with, beside those of the area."""

from __future__ import annotations

from workbench.tables import Column, Table

_SESSION = Column("session_id", "str", "The session.")
_RUNS = Column("runs", "int", "Runs that are kept.")
_FAILED = Column("failed", "int", "Of these, runs without values.")

SESSIONS = Table(
    "sessions",
    "One row per session.",
    ("session_id",),
    (
        _SESSION,
        Column("created_at", "str", "When it was planned, UTC."),
        Column("backend", "str", "process, kubernetes, imported or simulated."),
        Column("design", "str", "rounds (arms in turn), or blocks: no pairs, so no verdicts."),
        Column("baseline", "str", "The arm that others are compared with."),
        Column("arms", "int", "Stacks, the control among them."),
        Column("cases", "int", "Indicators with their parameters."),
        _RUNS,
        _FAILED,
        Column("rounds_done", "int", "Rounds that were done.", unit="rounds"),
        Column("cpu_model", "str", "The machine's processor."),
        Column("ended_at", "str", "End, UTC; null while it goes on.", nullable=True),
        Column("stop_reason", "str", "Why it ended.", nullable=True),
    ),
)

STACKS = Table(
    "stacks",
    "One row per session and arm.",
    ("session_id", "arm"),
    (
        _SESSION,
        Column("arm", "str", "The side: a stack, or the control."),
        Column("stack", "str", "Name of the stack."),
        Column("stack_key", "str", "Hash of its lock, Python and platform."),
        Column("copy_number", "int", "0; above, another environment of the same lock."),
        Column("python", "str", "Version of Python."),
        Column("platform", "str", "Platform, where it was told.", nullable=True),
        Column("packages", "int", "Packages in the lock."),
        _RUNS,
        _FAILED,
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
        _RUNS,
        _FAILED,
    ),
)

FAILURES = Table(
    "failures",
    "One row per run that has no values, or that did not pass its own checks.",
    ("inspection_id", "run"),
    (
        _SESSION,
        Column("inspection_id", "str", "One arm and one case of it."),
        Column("run", "int", "Number of the run in its inspection."),
        Column("arm", "str", "The side."),
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
