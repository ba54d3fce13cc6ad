"""One session that runs a suite with several settings in turn, in its own process and JVM: python -m ... PLAN.json.

Arms take turns within one warm JVM, so that what differs between two JVMs is the same for all of them.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.speedup.recording.query_session import (
    ANSWERS,
    EXECUTIONS,
    FACTS,
    SessionPlan,
    create_views,
    exit_with_parent,
    open_spark,
    run_query,
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
                for query in plan.orders[0]:
                    row, answer = run_query(spark, plan.queries[query], query, with_answer=number == 0)
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
    default: str | None = None
    # Spark knows its own settings alone, and refuses others.
    with suppress(Exception):
        default = spark.conf.get(name)
    if now is not None:
        spark.conf.set(name, now)
    return default


if __name__ == "__main__":
    main(sys.argv[1])
