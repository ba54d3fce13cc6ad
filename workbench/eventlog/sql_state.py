"""The state of a SQL execution between its first event and its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.eventlog.listener_events import SqlEnd, SqlStart
from workbench.eventlog.plan_columns import PlanSlice
from workbench.eventlog.stage_statistics import StageFacts


@dataclass
class SqlState:
    """A SQL execution whose rows are not written yet."""

    sql_id: int
    start: SqlStart | None = None
    end: SqlEnd | None = None
    plans: list[PlanSlice] = field(default_factory=list)
    # Plan version, name and type of metrics of adaptive subplans, by accumulator.
    loose: dict[int, tuple[int, tuple[str, str]]] = field(default_factory=dict)
    driver: dict[int, int] = field(default_factory=dict)
    open_stages: int = 0
    failed_job: str | None = None  # message of its first failed job
    stages: list[StageFacts] = field(default_factory=list)  # those that are closed
    ended_in_chunk: int | None = None
    n_copied: tuple[int, int] = (0, 0)  # plans and stages

    def copy_own(self) -> None:
        """Copy its plans and stages out of their chunks, which would stay in memory with it."""
        n_plans, n_stages = self.n_copied
        self.plans[n_plans:] = [plan.copy() for plan in self.plans[n_plans:]]
        self.stages[n_stages:] = [facts.copy() for facts in self.stages[n_stages:]]
        self.n_copied = len(self.plans), len(self.stages)
