"""`python -m workbench.speedup.recording.session PLAN.json`: one session in a process, and so a JVM, of its own.

Writes below the plan's folder, line by line and flushed: `executions.jsonl`, and `answers.jsonl` of its first pass;
Spark writes the event log to `events/`. `facts.json` is written last: without it the session did not come to its end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import BaseModel, ConfigDict

from workbench.speedup.recording.encoding import encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXECUTIONS, ANSWERS, FACTS, EVENTS = "executions.jsonl", "answers.jsonl", "facts.json", "events"
MAX_ERROR_CHARS = 500


class Plan(BaseModel):
    """What a session does."""

    model_config = ConfigDict(extra="forbid")

    folder: str
    app_name: str
    master: str
    settings: dict[str, str]
    place: str
    views: dict[str, str]
    queries: dict[str, str]
    orders: list[list[str]]


def main(path: str) -> None:
    """Run the session that a plan describes."""
    plan = Plan.model_validate_json(Path(path).read_text(encoding="utf-8"))
    end_with_parent()
    folder = Path(plan.folder)
    spark = open_spark(plan)
    name_views(spark, plan)
    with (folder / EXECUTIONS).open("w", encoding="utf-8") as executions:
        with (folder / ANSWERS).open("w", encoding="utf-8") as answers:
            run_pass(spark, plan, 1, executions, answers)
        for number in range(2, len(plan.orders) + 1):
            run_pass(spark, plan, number, executions, None)
    facts = {
        "app_id": spark.sparkContext.applicationId,
        "spark_version": spark.version,
        "java_version": spark.sparkContext._jvm.System.getProperty("java.version"),
        "java_home": spark.sparkContext._jvm.System.getProperty("java.home"),
    }
    spark.stop()
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def end_with_parent() -> None:
    """End the process group when the recorder is gone, however it went: nobody would read what comes."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    # Only where the recorder made this process the leader of a group of its own.
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        threading.Thread(target=watch, daemon=True).start()


def open_spark(plan: Plan) -> SparkSession:
    """A Spark with the plan's settings and a plain event log; on a local master it listens on loopback only."""
    from pyspark.sql import SparkSession

    events = Path(plan.folder) / EVENTS
    events.mkdir(exist_ok=True)
    fixed = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    builder = SparkSession.builder.master(plan.master).appName(plan.app_name)
    for key, value in (plan.settings | fixed).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def name_views(spark: SparkSession, plan: Plan) -> None:
    """Make each table a view; those of a URL are listed by Spark's own file systems."""
    views = plan.views or dict(_listed(spark, plan.place))
    for name, path in views.items():
        spark.read.parquet(path).createOrReplaceTempView(name)


def _listed(spark: SparkSession, place: str) -> list[tuple[str, str]]:
    java = spark.sparkContext._jvm
    path = java.org.apache.hadoop.fs.Path(place)
    entries = path.getFileSystem(spark._jsc.hadoopConfiguration()).listStatus(path)
    found = [entry.getPath() for entry in entries]
    named = [(one.getName().removesuffix(".parquet"), one.toString()) for one in found]
    listed = [(name, text) for name, text in named if not name.startswith((".", "_"))]
    if not listed:
        raise FileNotFoundError("there is no table at the place of the data")
    return listed


def run_pass(spark: SparkSession, plan: Plan, number: int, executions: TextIO, answers: TextIO | None) -> None:
    """Run all queries once, in the pass's order; a query that fails is noted, and the next one follows."""
    for position, name in enumerate(plan.orders[number - 1], 1):
        # Exactly the name: the pass is the number of its occurrence in the log.
        spark.sparkContext.setJobDescription(name)
        started = time.perf_counter()
        row: dict[str, Any] = {"pass": number, "position": position, "query": name}
        rows, frame = None, None
        try:
            frame = spark.sql(plan.queries[name])
            rows = frame.collect()
            row |= {"status": "ok", "n_rows": len(rows), "error": None}
        except Exception as error:  # noqa: BLE001 - whatever a query dies of, the others are to be measured
            row |= {"status": "failed", "n_rows": None, "error": first_line(error)}
        row["duration_s"] = round(time.perf_counter() - started, 6)
        _write(executions, row)
        if row["status"] == "failed":
            _check_alive(spark)
        elif answers is not None and frame is not None and rows is not None:
            _write(answers, answer(name, frame, rows))


def _check_alive(spark: SparkSession) -> None:
    """A JVM that is gone would fail every query after; the session ends here then, with Python's own error."""
    if spark.sparkContext._jsc.sc().isStopped():
        raise RuntimeError("Spark stopped in the middle of the session")


def answer(name: str, frame: DataFrame, rows: list[Any]) -> dict[str, Any]:
    """An answer as one line: columns with types, rows, and what a limit lets differ."""
    limit, keys = limit_of(frame)
    return {
        "query": name,
        "columns": [[column.name, column.dataType.simpleString()] for column in frame.schema],
        "limit": limit,
        "keys": keys,
        "rows": [[encode(value) for value in row] for row in rows],
    }


def limit_of(frame: DataFrame) -> tuple[int | None, list[int] | None]:
    """The outermost LIMIT and the columns of the answer that it sorts by, from the analysed plan.

    Returns
    -------
    tuple
        (null, null) without a limit; keys are null where the rows are sorted by what is not in the answer, and empty
        where they are not sorted at all.
    """
    plan = frame._jdf.queryExecution().analyzed()
    output = [plan.output().apply(index).exprId().id() for index in range(plan.output().size())]
    node, limit = plan, None
    while True:
        kind = node.getClass().getSimpleName()
        if kind in ("GlobalLimit", "LocalLimit"):
            # LIMIT takes any constant expression; other than a plain number it is left unread.
            text = node.limitExpr().toString()
            if not text.isdigit():
                return None, None
            limit = int(text) if limit is None else min(limit, int(text))
        elif kind == "Sort" and getattr(node, "global")() and limit is not None:
            return limit, _keys(node, output)
        elif kind not in ("Project", "SubqueryAlias", "WithCTE", "View"):
            return limit, None if limit is None else []
        node = node.plan() if kind == "WithCTE" else node.child()


def _keys(sort: Any, output: list[int]) -> list[int] | None:
    found = []
    for index in range(sort.order().size()):
        child = sort.order().apply(index).child()
        if child.getClass().getSimpleName() != "AttributeReference" or child.exprId().id() not in output:
            return None
        found.append(output.index(child.exprId().id()))
    return found


def first_line(error: BaseException) -> str:
    """What a query failed with, short: type and the line that says it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("An error occurred while calling", ":"))]
    causes = [line.lstrip(": ") for line in lines if line.startswith((":", "Caused by"))]
    text = (causes or telling or [""])[-1 if causes else 0]
    # It is printed and kept: nothing in it may steer a terminal.
    return "".join(char if char.isprintable() else " " for char in f"{type(error).__name__}: {text}"[:MAX_ERROR_CHARS])


def _write(file: TextIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False) + "\n")
    file.flush()


if __name__ == "__main__":
    main(sys.argv[1])
