"""Tables of a history: points, series, and changes of level."""

from __future__ import annotations

from workbench.core.tables import Column, Table

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
        Column("hardware_key", "str", "Stands for the machine; other machines are another series."),
        Column("cpu_model", "str", "The machine's processor."),
        Column("threads", "int", "Threads of the runs; null where unknown.", nullable=True),
        Column("clock", "str", "What times are measured by: wall or cpu."),
        Column("indicator_version", "str", "Hash of the indicator; another version is another series."),
        Column("tolerance", "float", "Practical margin as a share: smaller differences do not matter."),
        Column("session_id", "str", "The session."),
        Column("created_at", "str", "When it was planned, UTC."),
        Column("revision", "str", "Commit of the measured code, where it was told.", nullable=True),
        Column("packages", "str", "The stack's packages with versions, separated by spaces."),
        Column(
            "log_ratio", "float", "Log of how many times better than the reference, or without one the first session."
        ),
        Column("error", "float", "Its standard error over rounds; 0 where there is one round."),
        Column("rounds", "int", "Rounds with both values.", unit="rounds"),
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
        Column("changes", "int", "Changes of level."),
        Column("since_sessions", "int", "Sessions since the date; null without a date.", nullable=True),
        Column("ratio", "float", "How many times better than before the date.", nullable=True),
        *_RATIO,
        Column("verdict", "str", "Since the date: FASTER, SLOWER, SAME or UNDECIDED.", nullable=True),
        Column("reason", "str", "Why it is undecided.", nullable=True),
    ),
)

CHANGES = Table(
    "history_changes",
    "One row per change of level: how much, between which sessions, and what else changed there.",
    ("series", "session_id"),
    (
        *_SERIES,
        Column("kind", "str", "followed, control or machine."),
        Column("session_id", "str", "First session of the new level."),
        Column("created_at", "str", "Its time, UTC."),
        Column("last_before", "str", "Last session of the old level."),
        Column("ratio", "float", "How many times better than the level before."),
        *_RATIO,
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED, by the metric's margin."),
        Column("sessions_before", "int", "Sessions of the level before."),
        Column("sessions_after", "int", "Sessions of the new level."),
        Column("packages", "str", "Packages that differ between the two sessions: old and new version."),
        Column("revisions", "str", "Commits before and after, as FROM..TO; null where not told.", nullable=True),
    ),
)
