"""One session that runs a suite with several settings in turn, in its own process and JVM: python -m ... PLAN.json.

Arms take turns within one warm JVM, so that what differs between two JVMs is the same for all of them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.speedup.recording.query_session import (
    ANSWERS,
    EXECUTIONS,
    FACTS,
    SessionPlan,
    build_answer_line,
    create_views,
    exit_with_parent,
    format_query_error,
    open_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The parent makes it when it has seen enough rounds.
STOP_FILE = "stop"
# In place of a value: what Spark does where nobody sets it.
DEFAULT = "default"


class TrialPlan(SessionPlan):
    """A session whose `orders` hold one order of the queries. `arms`: Settings by name, those of the first as they are.

    `n_rounds`: Most rounds; each runs every arm once. The first of each arm is cold and does not count.
    """

    arms: dict[str, dict[str, str]]
    n_rounds: int


def main(path: str) -> None:
    """Run the arms of a plan in turns, one line of JSON a query."""
    plan = TrialPlan.model_validate_json(Path(path).read_text(encoding="utf-8"))
    exit_with_parent()
    folder = Path(plan.folder)
    spark = open_spark(plan)
    create_views(spark, plan)
    names = sorted({name for arm in plan.arms.values() for name in arm})
    usual = {name: spark.conf.get(name, None) for name in names}
    defaults = {name: _read_default(spark, name) for name in names}
    with (
        (folder / EXECUTIONS).open("w", encoding="utf-8") as executions,
        (folder / ANSWERS).open("w", encoding="utf-8") as answers,
    ):
        for number in range(plan.n_rounds + 1):
            # The order is turned from round to round.
            arms = list(plan.arms)[:: 1 if number % 2 else -1]
            for position, arm in enumerate(arms, 1):
                for name in names:
                    value = plan.arms[arm].get(name, usual[name])
                    value = defaults[name] if value == DEFAULT else value
                    if value is None:
                        spark.conf.unset(name)
                    else:
                        spark.conf.set(name, value)
                for row, answer in _run_arm(spark, plan, arm, with_answers=number == 0):
                    line = row | {"pass": number, "position": position, "arm": arm}
                    executions.write(json.dumps(line, ensure_ascii=False) + "\n")
                    executions.flush()
                    if answer is not None:
                        answers.write(json.dumps(answer | {"arm": arm}, ensure_ascii=False) + "\n")
            if (folder / STOP_FILE).exists():
                break
    spark.stop()
    (folder / FACTS).write_text(json.dumps({"defaults": defaults}), encoding="utf-8")


def _read_default(spark: SparkSession, name: str) -> str | None:
    """What a setting is where nobody sets it; null if Spark knows no default."""
    now = spark.conf.get(name, None)
    spark.conf.unset(name)
    default: str | None = spark.conf.get(name, None)
    if now is not None:
        spark.conf.set(name, now)
    return default


def _run_arm(
    spark: SparkSession, plan: TrialPlan, arm: str, *, with_answers: bool
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Run all queries once; rows of their times, with the answers on request."""
    rows = []
    for name in plan.orders[0]:
        spark.sparkContext.setJobDescription(f"{name} {arm}")
        started = time.perf_counter()
        answer = None
        row: dict[str, Any] = {"query": name, "status": "ok", "error": None}
        try:
            frame = spark.sql(plan.queries[name])
            collected = frame.collect()
            row["duration_s"] = round(time.perf_counter() - started, 6)
            answer = build_answer_line(name, frame, collected) if with_answers else None
        except Exception as error:  # noqa: BLE001 - after any error of a query, the others are measured
            row |= {"status": "failed", "error": format_query_error(error)}
            row["duration_s"] = round(time.perf_counter() - started, 6)
        rows.append((row, answer))
    return rows


if __name__ == "__main__":
    main(sys.argv[1])
