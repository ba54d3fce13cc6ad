"""What was measured: executions and the pieces of their time, as tables. Everything after works on these alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.eventlog.reader import Facts
from workbench.speedup.attribution import Piece, pieces
from workbench.speedup.execution import Execution, fingerprint, read_executions
from workbench.speedup.work import operator_name, work
from workbench.tables import Column, Table

EXECUTIONS = Table(
    "executions",
    "SQL executions that ended, one row each, and whether they count.",
    ("label", "session", "sql_id"),
    (
        Column("label", "str", "Side: which engine or setting ran it."),
        Column("session", "str", "Log that it is in: one fresh driver."),
        Column("sql_id", "int", "SQL execution."),
        Column("query", "str", "Its description."),
        Column("number", "int", "How many times this description ran before, in this log."),
        Column("fingerprint", "str", "Digest of the tables and columns that it reads.", nullable=True),
        Column("wall_s", "float", "From start to end.", "s"),
        Column("task_s", "float", "Sum of its tasks' durations.", "s"),
        Column("n_stages", "int", "Stage attempts."),
        Column("n_failed_tasks", "int", "Tasks that failed or were killed."),
        Column("cold", "bool", "Was it the first of its description in this log?"),
        Column("why_not", "str", "Why it does not count; null when it counts.", nullable=True),
    ),
)
PIECES = Table(
    "pieces",
    "Wall time of the executions cut into pieces; those of an execution add up to its wall time.",
    ("label", "session", "sql_id", "piece"),
    (
        Column("label", "str", "Side."),
        Column("session", "str", "Log."),
        Column("sql_id", "int", "SQL execution."),
        Column("piece", "int", "Number of the piece."),
        Column("stage_id", "int", "Stage; null for time without a running stage.", nullable=True),
        Column("term", "str", "Where the piece is no operator's: idle, task overhead, unattributed.", nullable=True),
        Column("basis", "str", "What the piece rests on."),
        Column("operators", "list[str]", "Operators that share the time."),
        Column("node_ids", "list[int]", "Their nodes in the final plan."),
        Column("accelerated", "list[bool]", "Did each run on an accelerator?"),
        Column("work", "list[float]", "Work of each, in millions of rows (aggregates: times functions)."),
        Column("task_s", "float", "Task time.", "s"),
        Column("wall_s", "float", "Wall time.", "s"),
    ),
)
COLD, FAILED = "cold: first run in its session", "failed"
REPEATED_TASKS = "tasks failed or were killed"


@dataclass(frozen=True, eq=False)
class Measured:
    """`EXECUTIONS` and `PIECES` of any number of logs, under one or several labels."""

    executions: pl.DataFrame
    pieces: pl.DataFrame

    def of(self, label: str) -> Measured:
        """One side."""
        return Measured(self.executions.filter(pl.col("label") == label), self.pieces.filter(pl.col("label") == label))


def measure(facts: Facts, label: str, session: str, *, log_id: int = 0) -> Measured:
    """What did each execution of a log take, and for what?

    Parameters
    ----------
    facts
        From `workbench.eventlog.reader.read`.
    label, session
        Names for the side and for the log in the tables.
    log_id
        Which of the logs in `facts`.

    Returns
    -------
    Measured
        Executions that ended, failed ones too (marked). Executions started by another one (the query of a command that
        makes or caches a table) are part of it and not listed: they would be counted twice. Nor are those that ran no
        stage: they measure the driver alone.
    """
    rows: list[dict[str, Any]] = []
    cut: list[dict[str, Any]] = []
    for execution in read_executions(facts):
        if execution.log_id != log_id or not execution.stages:
            continue
        key = {"label": label, "session": session, "sql_id": execution.sql_id}
        rows.append(key | _execution(execution))
        cut += [key | {"piece": number} | _piece(execution, piece) for number, piece in enumerate(pieces(execution))]
    return Measured(EXECUTIONS.frame(rows), PIECES.frame(cut))


def joined(parts: Iterable[Measured]) -> Measured:
    """Several logs as one."""
    every = list(parts)
    return Measured(
        pl.concat([EXECUTIONS.frame([]), *(part.executions for part in every)]),
        pl.concat([PIECES.frame([]), *(part.pieces for part in every)]),
    )


def _execution(execution: Execution) -> dict[str, Any]:
    failed_tasks = sum(stage.n_failed for stage in execution.stages)
    cold = execution.number == 0
    why_not: str | None
    if execution.status != "succeeded":
        why_not = FAILED
    elif cold:
        why_not = COLD
    else:
        why_not = REPEATED_TASKS if failed_tasks else None
    return {
        "query": execution.query,
        "number": execution.number,
        "fingerprint": fingerprint(execution),
        "wall_s": execution.wall_s,
        "task_s": sum(stage.task_s for stage in execution.stages),
        "n_stages": len(execution.stages),
        "n_failed_tasks": failed_tasks,
        "cold": cold,
        "why_not": why_not,
    }


def _piece(execution: Execution, piece: Piece) -> dict[str, Any]:
    nodes = [execution.nodes[node] for node in piece.node_ids]
    return {
        "stage_id": piece.stage_id,
        "term": piece.term,
        "basis": piece.basis,
        "operators": [operator_name(execution, node) for node in nodes],
        "node_ids": list(piece.node_ids),
        "accelerated": [node.operator.accelerated for node in nodes],
        "work": [work(execution, node) for node in nodes],
        "task_s": piece.task_s,
        "wall_s": piece.wall_s,
    }
