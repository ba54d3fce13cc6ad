"""The two processes of the tests about failing and differing operators: one dumps, the other verifies and bisects.

Run as `python -m tests.lore.failures dump|work FOLDER`; both write one JSON document.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import jvm
from tests.lore.local_spark import run_python
from workbench.core.errors import WorkbenchError
from workbench.lore import dump

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

N_ROWS = 20_000
BAD = 13_577
# Range(0, 20000) in four partitions.
BAD_PARTITION = 2
BATCH_ROWS = 700
MASTER = "local[2]"
# Seconds of work: what the JVM's second compiler gains, it never earns back.
FAST_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
PARSER = "spark.sql.legacy.timeParserPolicy"
# Smaller dumps that are verified once more, in a session that did not write them.
VERIFIED = ("udf", "overflow", "join", "subquery", "zero_columns", "dates")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


def _udf(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as f

    def picky(value: int) -> int:
        if value == 13_577:
            raise ValueError(f"cannot take {value}")
        return value + 1

    return _range(spark).select(f.udf(picky, "long")("id").alias("y")).where("y > 0")


def _range(spark: SparkSession) -> DataFrame:
    return spark.range(0, N_ROWS, 1, 4)


def _cast(spark: SparkSession) -> DataFrame:
    texts = _range(spark).selectExpr("CASE WHEN id = 7777 THEN '12a' ELSE CAST(id AS STRING) END AS s")
    return texts.repartition(3).selectExpr("CAST(s AS INT) AS n")


def _overflow(spark: SparkSession) -> DataFrame:
    large = "CASE WHEN id IN (300, 15300) THEN 9223372036854775000 ELSE 0 END AS v"
    return _range(spark).selectExpr("id % 1000 AS k", large).groupBy("k").agg({"v": "sum"})


def _joined(spark: SparkSession, hint: str) -> DataFrame:
    """One row of each side overflows with one of the other."""
    large = "CAST(CASE WHEN id = 4321 THEN 2147483647 ELSE 1 END AS INT) AS a"
    _range(spark).selectExpr("id % 5000 AS k", large).createOrReplaceTempView("l")
    small = spark.range(0, 5000, 1, 2).selectExpr("id AS j", "CAST(CASE WHEN id = 4321 THEN 5 ELSE 0 END AS INT) AS b")
    small.createOrReplaceTempView("r")
    return spark.sql(f"SELECT {hint} * FROM l JOIN r ON k = j AND a + b > 0")


def _subquery(spark: SparkSession) -> DataFrame:
    spark.range(0, 10, 1, 2).selectExpr("CAST(2147470000 + id AS INT) AS m").createOrReplaceTempView("m")
    _range(spark).selectExpr("CAST(id AS INT) AS i").repartition(4).createOrReplaceTempView("i")
    return spark.sql("SELECT i + (SELECT max(m) FROM m) AS s FROM i")


def _zero_columns(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as f

    return _range(spark).selectExpr("1 AS one").where("one = 1").agg(f.sum(f.lit(9223372036854775000)))


FAILING: dict[str, Callable[[SparkSession], DataFrame]] = {
    "udf": _udf,
    "division": lambda spark: _range(spark).selectExpr(f"100 / (id - {BAD}) AS q"),
    "cast": _cast,
    "overflow": _overflow,
}
MORE_FAILING: dict[str, Callable[[SparkSession], DataFrame]] = {
    "join": lambda spark: _joined(spark, ""),
    "broadcast": lambda spark: _joined(spark, "/*+ BROADCAST(r) */"),
    "subquery": _subquery,
    "zero_columns": _zero_columns,
    # Fails at the third row of the first partition, whichever row that is.
    "position": lambda spark: _range(spark).selectExpr("100 / (monotonically_increasing_id() - 2) AS q", "id"),
}


def _dates(spark: SparkSession) -> DataFrame:
    """One text that only the old parser of dates takes, which is chosen by a setting when the operator runs."""
    text = f"CASE WHEN id = {BAD} THEN '2020-1-5' ELSE '2020-01-05' END AS s"
    return _range(spark).selectExpr(text, "id").repartition(4, "id").selectExpr("to_timestamp(s, 'yyyy-MM-dd') AS t")


def _failing_leaf(spark: SparkSession) -> DataFrame:
    def broken(value: int) -> tuple[int]:
        raise RuntimeError("the source is broken")

    rows = spark.sparkContext.parallelize(range(10), 2).map(broken)
    return spark.createDataFrame(rows, "a int").where("a > 3")


def dump_all(folder: Path) -> dict[str, Any]:
    """Every case dumped: by name its folder and what was said of it, or why not."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(MASTER)
    for key, value in (SETTINGS | FAST_START).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    found: dict[str, Any] = {}

    def keep(name: str, frame: DataFrame, ids: str | None = None) -> None:
        failed = ids is None
        try:
            dumped = dump(frame, ids, folder / name, failed=failed, batch_rows=BATCH_ROWS)
        except WorkbenchError as error:
            found[name] = {"refused": str(error), "kind": type(error).__name__}
            return
        ((lore_id, url),) = dumped.folders.items()
        found[name] = {"lore_id": lore_id, "url": url, "said": dumped.warnings[0] if failed else None}

    for adaptive in ("on", "off"):
        spark.conf.set("spark.sql.adaptive.enabled", str(adaptive == "on").lower())
        for name, make in FAILING.items():
            keep(f"{name}-{adaptive}", make(spark))
    for name, make in MORE_FAILING.items():
        keep(name, make(spark))
    keep("sound", _range(spark).selectExpr("id + 1 AS y"))
    keep("leaf", _failing_leaf(spark))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    keep("upgrade", _dates(spark))
    spark.conf.set(PARSER, "LEGACY")
    keep("dates", _dates(spark), "3[*]")
    spark.stop()
    return found


@contextlib.contextmanager
def _one_spark() -> Iterator[None]:
    """All replays and searches of this process in one filtered Spark, each in a session of its own.

    The Java of each took three quarters of its time. As a user runs it, in a process of its own, stands at the end of
    `test_failing_and_bisect`, and in `test_replaying`.
    """
    from workbench.lore.spark_bridge import replay_session

    with (
        replay_session.fresh_session(master=MASTER, settings=FAST_START) as spark,
        pytest.MonkeyPatch.context() as patch,
    ):

        def shared(
            *, master: str, settings: Mapping[str, str], also_allowed: str
        ) -> contextlib.AbstractContextManager[SparkSession]:
            assert (master, dict(settings), also_allowed) == (MASTER, {"spark.driver.memory": "4g"}, "")
            return contextlib.nullcontext(spark.newSession())

        patch.setattr(replay_session, "fresh_session", shared)
        yield


def work_all(folder: Path, dumped: dict[str, Any]) -> dict[str, Any]:
    """Every dump verified, and what searches in them find."""
    with _one_spark():
        return _work_all(folder, dumped)


def _work_all(folder: Path, dumped: dict[str, Any]) -> dict[str, Any]:
    from workbench.lore.bisection.input_bisection import BisectOptions, bisect_dump
    from workbench.lore.replays.operator_replay import ReplayOptions, replay_dump

    def verified(url: str) -> dict[str, Any]:
        return replay_dump(url, ReplayOptions(repeat=0, master=MASTER), report=print).model_dump()

    def searched(name: str, **options: Any) -> dict[str, Any]:
        path = dumped[name]["url"].removeprefix("file:")
        chosen = BisectOptions(master=MASTER, **options)
        try:
            return bisect_dump(path, chosen, report=print).model_dump()
        except WorkbenchError as error:
            return {"refused": str(error)}

    folders = {name: one["url"].removeprefix("file:") for name, one in dumped.items() if "url" in one}
    checks = {name: verified(path) for name, path in folders.items() if "-" in name}
    corrected, legacy, strict = ({PARSER: policy} for policy in ("CORRECTED", "LEGACY", "EXCEPTION"))
    searches = {
        name: searched(f"{name}-on" if name in FAILING else name, out=str(folder / "smaller ones" / name))
        for name in (*FAILING, *MORE_FAILING)
    }
    searches |= {
        "dates": searched("dates", confs_a=corrected, confs_b=legacy, out=str(folder / "smaller ones" / "dates")),
        "dates_error": searched("dates", confs_a=legacy, confs_b=strict),
        "same": searched("dates", confs_a=corrected, confs_b=corrected | {"spark.sql.codegen.wholeStage": "false"}),
        "no_question": searched("dates"),
        "gone": searched("upgrade", confs=legacy),
        "now_failing": searched("dates", confs=strict),
        "capped": searched("udf-on", max_steps=6),
        "occupied": searched("udf-on", out=str(folder / "udf-on")),
    }
    small = {name: verified(searches[name]["out"].removeprefix("file:")) for name in VERIFIED}
    return {"checks": checks, "searches": searches, "small": small}


def outcome(folder: Path) -> dict[str, Any]:
    """What both processes wrote, by `dump` and `work`. The tests' config folder must be set."""
    from workbench.spark.jvm import build_spark_environment

    pytest.importorskip("pyspark", reason="pyspark is not installed (pip install -r requirements.lock)")
    for work in ("dump", "work"):
        done = run_python(
            "-m", "tests.lore.failures", work, folder, SPARK_LOCAL_IP="127.0.0.1", **build_spark_environment()
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return {work: json.loads((folder / f"{work}.json").read_text()) for work in ("dump", "work")}


def main() -> None:
    """One of the two processes."""
    jvm.remember_names()
    work, place = sys.argv[1], Path(sys.argv[2])
    written = dump_all(place) if work == "dump" else work_all(place, json.loads((place / "dump.json").read_text()))
    (place / f"{work}.json").write_text(json.dumps(written))


if __name__ == "__main__":
    main()
