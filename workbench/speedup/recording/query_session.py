"""One session of a recording, in its own process and JVM: python -m ...query_session PLAN.json."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MAX_ERROR_CHARS = 500
EXECUTIONS, ANSWERS, FACTS, EVENTS = "executions.jsonl", "answers.jsonl", "facts.json", "events"


def encode_value(value: Any) -> Any:
    """A value of Spark as JSON; the column's type says how to read it.

    >>> import datetime
    >>> [encode_value(value) for value in (None, 1, 1.5, Decimal("1.20"), datetime.date(1995, 3, 15), b"a", {"k": [1]})]
    [None, 1, 1.5, '1.20', '1995-03-15', '61', [['k', [1]]]]
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        # "f" because 0E-10 and 0.0000000000 are the same value.
        return format(value, "f")
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        pairs = [[encode_value(key), encode_value(item)] for key, item in value.items()]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0]))
    if isinstance(value, list | tuple):
        return [encode_value(item) for item in value]
    return str(value)


class SessionPlan(BaseModel):
    """Plan of a session.

    `stop_after_s`: Since the start of its process: then what runs is cancelled and nothing else begins. Such a session
    runs a query as often as planned before the next one, so that what it has is whole. Null: all queries run.
    """

    model_config = ConfigDict(extra="forbid")

    folder: str
    app_name: str
    master: str
    settings: dict[str, str]
    place: str
    views: dict[str, str]
    queries: dict[str, str]
    orders: list[list[str]]
    stop_after_s: float | None = None

    def list_runs(self) -> list[tuple[int, int, str]]:
        """Pass, position in it and query of each run, in their order."""
        runs = [
            (number, place, name) for number, order in enumerate(self.orders, 1) for place, name in enumerate(order, 1)
        ]
        if self.stop_after_s is not None:
            runs.sort(key=lambda run: (self.orders[0].index(run[2]), run[0]))
        return runs


def main(path: str) -> None:
    """Run the session of a plan."""
    begun = time.monotonic()
    plan = SessionPlan.model_validate_json(Path(path).read_text(encoding="utf-8"))
    exit_with_parent()
    folder = Path(plan.folder)
    spark = open_spark(plan)
    views_s = create_views(spark, plan)
    started_at, load = time.time(), LoadMeter()
    is_over = threading.Event()
    if plan.stop_after_s is not None:
        _stop_at(begun + plan.stop_after_s, spark, is_over)
    with (
        (folder / EXECUTIONS).open("w", encoding="utf-8") as executions,
        (folder / ANSWERS).open("w", encoding="utf-8") as answers,
    ):
        for number, position, name in plan.list_runs():
            row, answer = run_query(spark, plan.queries[name], name, with_answer=number == 1)
            if is_over.is_set():
                break
            _write_json_line(executions, {"pass": number, "position": position, **row})
            if answer is not None:
                _write_json_line(answers, answer)
            # Every later query would fail.
            if row["status"] == "failed" and spark.sparkContext._jsc.sc().isStopped():
                raise RuntimeError("Spark stopped in the middle of the session")
    facts = {
        "app_id": spark.sparkContext.applicationId,
        "spark_version": spark.version,
        "java_version": spark.sparkContext._jvm.System.getProperty("java.version"),
        "java_home": spark.sparkContext._jvm.System.getProperty("java.home"),
        "views_s": views_s,
        "queries_started_at": started_at,
        "queries_ended_at": time.time(),
        # Executors of a cluster are programs of their own.
        "load": load.measure_others() if plan.master.startswith("local") else None,
    }
    spark.stop()
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


class LoadMeter:
    """CPU used by other programs than this process and its JVM, since the meter was made."""

    def __init__(self) -> None:
        self._start = self._read_cpu_s()

    def measure_others(self) -> dict[str, float]:
        """Shares of the machine's CPU: used by other programs, and taken by other virtual machines (steal)."""
        total_s, busy_s, steal_s, own_s = (
            now - before for now, before in zip(self._read_cpu_s(), self._start, strict=True)
        )
        others_s = max(0.0, busy_s - steal_s - own_s)
        return {"other_cpu_share": round(others_s / total_s, 4), "steal_share": round(steal_s / total_s, 4)}

    @staticmethod
    def _read_cpu_s() -> tuple[float, float, float, float]:
        """CPU seconds of the machine (all, in use, stolen), and of this process with its children."""
        import psutil

        machine = psutil.cpu_times()
        # Guests are part of user time.
        total_s = sum(machine) - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
        idle_s = machine.idle + getattr(machine, "iowait", 0.0)
        own_s = 0.0
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                own_s += used.user + used.system + used.children_user + used.children_system
        return total_s, total_s - idle_s, getattr(machine, "steal", 0.0), own_s


def exit_with_parent() -> None:
    """End the process group when the recorder has ended."""
    parent = os.getppid()

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    # Only if the recorder made this process the leader of its own group.
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        threading.Thread(target=watch_parent, daemon=True).start()


def open_spark(plan: SessionPlan) -> SparkSession:
    """Start Spark with the plan's settings and an uncompressed event log."""
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


def create_views(spark: SparkSession, plan: SessionPlan) -> dict[str, float]:
    """Create a view of each table, and return the seconds of each; Spark's file systems list tables at a URL."""
    views = plan.views or dict(_list_remote_tables(spark, plan.place))
    durations_s = {}
    for name, path in views.items():
        started = time.perf_counter()
        spark.read.parquet(path).createOrReplaceTempView(name)
        durations_s[name] = time.perf_counter() - started
    return durations_s


def _list_remote_tables(spark: SparkSession, place: str) -> list[tuple[str, str]]:
    """List the tables at a remote location: pairs of table name and path."""
    java = spark.sparkContext._jvm
    path = java.org.apache.hadoop.fs.Path(place)
    entries = path.getFileSystem(spark._jsc.hadoopConfiguration()).listStatus(path)
    paths = [entry.getPath() for entry in entries]
    named = [(table_path.getName().removesuffix(".parquet"), table_path.toString()) for table_path in paths]
    listed = [(name, text) for name, text in named if not name.startswith((".", "_"))]
    if not listed:
        raise FileNotFoundError("no table at the location of the data")
    return listed


def _stop_at(moment: float, spark: SparkSession, is_over: threading.Event) -> None:
    """Cancel what runs at a moment of the monotonic clock."""

    def stop() -> None:
        is_over.set()
        spark.sparkContext.cancelAllJobs()

    timer = threading.Timer(max(0.0, moment - time.monotonic()), stop)
    timer.daemon = True
    timer.start()


def run_query(
    spark: SparkSession, text: str, name: str, *, with_answer: bool
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Run one query; its row of times, and on request its answer as a line. An error is a row, too."""
    # The description is exactly the name: the pass is the number of its occurrence in the log.
    spark.sparkContext.setJobDescription(name)
    started = time.perf_counter()
    row: dict[str, Any] = {"query": name, "status": "ok", "n_rows": None, "error": None}
    frame: DataFrame | None = None
    rows: list[Any] | None = None
    try:
        frame = spark.sql(text)
        rows = frame.collect()
        row["n_rows"] = len(rows)
    except Exception as error:  # noqa: BLE001 - after any error of a query, the others are measured
        row |= {"status": "failed", "error": format_query_error(error)}
    row["duration_s"] = round(time.perf_counter() - started, 6)
    if not with_answer or frame is None or rows is None:
        return row, None
    return row, build_answer_line(name, frame, rows)


def build_answer_line(name: str, frame: DataFrame, rows: list[Any]) -> dict[str, Any]:
    """An answer as one line: columns with types, rows, and the outermost limit with its sort columns."""
    limit, keys = find_outermost_limit(frame)
    return {
        "query": name,
        "columns": [[column.name, column.dataType.simpleString()] for column in frame.schema],
        "limit": limit,
        "keys": keys,
        "rows": [[encode_value(value) for value in row] for row in rows],
    }


def find_outermost_limit(frame: DataFrame) -> tuple[int | None, list[int] | None]:
    """Find in the analysed plan the outermost LIMIT and the positions of its sort columns; null where there is none.

    Returns: (null, null) without a limit; the columns are null if the answer lacks one of them, and empty without a
    sort.
    """
    plan = frame._jdf.queryExecution().analyzed()
    output = [plan.output().apply(index).exprId().id() for index in range(plan.output().size())]
    node, limit = plan, None
    while True:
        kind = node.getClass().getSimpleName()
        if kind in ("GlobalLimit", "LocalLimit"):
            # LIMIT takes any constant expression; only plain numbers are read.
            text = node.limitExpr().toString()
            if not text.isdigit():
                return None, None
            limit = int(text) if limit is None else min(limit, int(text))
        elif kind == "Sort" and getattr(node, "global")() and limit is not None:
            return limit, _find_sort_columns(node, output)
        elif kind not in ("Project", "SubqueryAlias", "WithCTE", "View"):
            return limit, None if limit is None else []
        node = node.plan() if kind == "WithCTE" else node.child()


def _find_sort_columns(sort: Any, output: list[int]) -> list[int] | None:
    """Positions in the output of the columns that a Spark `Sort` orders by; null if it sorts by anything else.

    `output`: Expression ids of the output columns.
    """
    columns = []
    for index in range(sort.order().size()):
        child = sort.order().apply(index).child()
        if child.getClass().getSimpleName() != "AttributeReference" or child.exprId().id() not in output:
            return None
        columns.append(output.index(child.exprId().id()))
    return columns


def format_query_error(error: BaseException) -> str:
    """Type and main line of a query's error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("An error occurred while calling", ":"))]
    causes = [line.lstrip(": ") for line in lines if line.startswith((":", "Caused by"))]
    text = (causes or messages or [""])[-1 if causes else 0]
    # Control characters could change the terminal that prints it.
    return "".join(char if char.isprintable() else " " for char in f"{type(error).__name__}: {text}"[:MAX_ERROR_CHARS])


def _write_json_line(file: TextIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False) + "\n")
    file.flush()


if __name__ == "__main__":
    main(sys.argv[1])
