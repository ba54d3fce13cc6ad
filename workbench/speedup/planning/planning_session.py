"""One planning session, in its own process and JVM: python -m ...planning_session PLAN.json. No query runs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.speedup.recording.query_session import (
    EXECUTIONS,
    FACTS,
    SessionPlan,
    create_views,
    exit_with_parent,
    format_query_error,
    open_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PlanningTask(SessionPlan):
    """A session whose queries are planned, with the engine and without it.

    `switch`: Setting that turns the engine off and on; null for Spark's own. `explainer`: Java class of the engine that
    explains a plan as text.
    """

    switch: str | None = None
    explainer: str | None = None


def main(path: str) -> None:
    """Plan the queries of a task, one line of JSON each."""
    task = PlanningTask.model_validate_json(Path(path).read_text(encoding="utf-8"))
    exit_with_parent()
    folder = Path(task.folder)
    spark = open_spark(task)
    create_views(spark, task)
    planner = _Planner(spark, task)
    with (folder / EXECUTIONS).open("w", encoding="utf-8") as lines:
        for position, name in enumerate(task.orders[0], 1):
            row: dict[str, Any] = {"pass": 1, "position": position, "query": name}
            lines.write(json.dumps(row | planner.plan_query(task.queries[name]), ensure_ascii=False) + "\n")
            lines.flush()
    facts = {"spark_version": spark.version}
    spark.stop()
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


class _Planner:
    def __init__(self, spark: SparkSession, task: PlanningTask) -> None:
        self.spark, self.task = spark, task
        self.jvm: Any = spark.sparkContext._jvm
        self.state: Any = spark._jsparkSession.sessionState()
        self.mapper = self.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self.mapper.registerModule(_get_object(self.jvm.com.fasterxml.jackson.module.scala, "DefaultScalaModule"))
        # A command, such as CREATE TABLE, runs as soon as it is analysed unless it is skipped.
        self.skip_commands = _get_object(self.jvm.org.apache.spark.sql.execution, "CommandExecutionMode").SKIP()

    def plan_query(self, text: str) -> dict[str, Any]:
        """Plans of a query on the candidate and on the baseline, as Spark's event log writes them."""
        row: dict[str, Any] = {"plan": None, "explanation": None, "baseline_plan": None}
        started = time.perf_counter()
        try:
            row |= self._plan_on_both(text)
            row |= {"status": "ok", "error": None}
        except Exception as error:  # noqa: BLE001 - after any error of a query, the others are planned
            row |= {"status": "failed", "error": format_query_error(error)}
        row["duration_s"] = round(time.perf_counter() - started, 6)
        return row

    def _plan_on_both(self, text: str) -> dict[str, Any]:
        executed = self._plan(text)
        row = {"plan": self._format_plan(executed)}
        if self.task.explainer:
            # Spark's interface for explanations; a tree by `spark.comet.explain.format`.
            row["explanation"] = getattr(self.jvm, self.task.explainer)().generateExtendedInfo(executed)
        if self.task.switch:
            self.spark.conf.set(self.task.switch, "false")
            try:
                row["baseline_plan"] = self._format_plan(self._plan(text))
            finally:
                self.spark.conf.set(self.task.switch, "true")
        return row

    def _plan(self, text: str) -> Any:
        return self.state.executePlan(self.state.sqlParser().parsePlan(text), self.skip_commands).executedPlan()

    def _format_plan(self, executed: Any) -> str:
        info = self.jvm.org.apache.spark.sql.execution.SparkPlanInfo.fromSparkPlan(executed)
        return str(self.mapper.writeValueAsString(info))


def _get_object(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


if __name__ == "__main__":
    main(sys.argv[1])
