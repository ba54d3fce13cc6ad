"""Recordings made without a Spark: a fake in place of a session's process, with answers and logs as wanted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import query_session, session_process

QUERIES = "-- name: a\nSELECT 1;\n-- name: b\nSELECT 2;\n-- name: c\nSELECT 3;"
LOG = '{"Event":"SparkListenerLogStart","Spark Version":"3.5.9"}\n'
FACTS = {"app_id": "local-1", "spark_version": "3.5.9", "java_version": "17.0.9", "java_home": "/usr/lib/jvm/java"}
Row = dict[str, Any]
# From label, session, query to rows of one integer; None fails.
Answering = Callable[[str, int, str], list[list[int]] | None]


def sevens(label: str, number: int, query: str) -> list[list[int]]:
    """Every answer is 7."""
    return [[7]]


class FakeSessions:
    """Stands in for `child.run`: writes what a session would, and notes which sessions were asked for."""

    def __init__(self, answering: Answering = sevens) -> None:
        self.answering = answering
        self.asked: list[str] = []
        self.plans: list[query_session.SessionPlan] = []
        # Called with the name before a session "runs": may raise, or return the error that it fails with.
        self.before: Callable[[str], str | None] = lambda name: None

    def __call__(
        self,
        plan: query_session.SessionPlan,
        *,
        timeout_s: float,
        on_execution: Callable[[Row], None],
        local: bool,
        spark: str | None = None,
    ) -> session_process.SessionEnd:
        folder = Path(plan.folder)
        self.asked.append(folder.name)
        self.plans.append(plan)
        if error := self.before(folder.name):
            return session_process.SessionEnd([], None, error)
        label, _, number = folder.name.rpartition("-s")
        rows, lines = [], []
        for pass_number, order in enumerate(plan.orders, 1):
            for position, query in enumerate(order, 1):
                answer = self.answering(label, int(number), query)
                row = {"pass": pass_number, "position": position, "query": query, "duration_s": 0.5}
                if answer is None:
                    row |= {"status": "failed", "n_rows": None, "error": "Error: planned"}
                else:
                    row |= {"status": "ok", "n_rows": len(answer), "error": None}
                    if pass_number == 1:
                        columns = [["n", "int"]]
                        lines.append({"query": query, "columns": columns, "limit": None, "keys": None, "rows": answer})
                rows.append(row)
                on_execution(row)
        (folder / query_session.EVENTS).mkdir()
        (folder / query_session.EVENTS / "local-1").write_text(LOG)
        (folder / query_session.ANSWERS).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return session_process.SessionEnd(rows, FACTS, None)


def config(folder: Path, **changed: Any) -> RecordConfig:
    """Two sides of Spark, two sessions of two passes over three queries."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "t.parquet").write_bytes(b"")
    queries = folder / "queries.sql"
    queries.write_text(QUERIES)
    settings: dict[str, Any] = {"out": folder / "out", "queries": str(queries), "data": str(folder / "data")}
    settings |= {"sides": ["base", "other,spark.sql.adaptive.enabled=false"], "sessions": 2, "passes": 2}
    return RecordConfig(**(settings | changed))
