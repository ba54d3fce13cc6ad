"""The tables of a recording."""

from __future__ import annotations

from workbench.tables import Column, Table

_LABEL = Column("label", "str", "Name of the side: an engine with its settings.")
_QUERY = Column("query", "str", "Name of the query; the job description of its executions in the log.")

EXECUTIONS = Table(
    "executions",
    "One row per execution of a query.",
    ("label", "session", "query", "pass"),
    (
        _LABEL,
        Column("session", "int", "Number of the session of this side, from 1: one fresh JVM."),
        Column("pass", "int", "Number of the pass within the session, from 1; pass 1 is cold."),
        Column("position", "int", "Place of the query in the order of its pass, from 1."),
        _QUERY,
        Column("status", "str", "ok or failed."),
        Column("duration_s", "float", "From the text to the fetched rows, as the driver saw it; until it failed.", "s"),
        Column("n_rows", "int", "Rows of the answer; null when it failed.", nullable=True),
        Column("error", "str", "First line of what it failed with; null when it did not.", nullable=True),
    ),
)

ANSWERS = Table(
    "answers",
    "Are the answers of a side those of the first side? One row per query and side, over all of its sessions.",
    ("query", "label"),
    (
        _QUERY,
        _LABEL,
        Column("n_rows", "int", "Rows of its answer in its first session; null when it failed.", nullable=True),
        Column(
            "verdict",
            "str",
            "reference, equal, equal up to ties at the limit, wrong answer, failed, or not comparable "
            "(rows differ, and the answer does not tell whether a limit allows it).",
        ),
        Column("difference", "str", "Where and how it differs or failed; null when it does not.", nullable=True),
    ),
)

ALL = (EXECUTIONS, ANSWERS)
