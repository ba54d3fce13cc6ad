"""Queries captured while they run, in processes of their own: one captures, another replays what was written.

python -m tests.lore.inline_scenarios capture OUT --adaptive on
python -m tests.lore.inline_scenarios verify OUT
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.spark_bridge.physical_plan import PlanTree

SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
Facts = dict[str, Any]
Scenario = Callable[["SparkSession", Path], Facts]
_scenarios: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Put a function among those that are run."""
    _scenarios[function.__name__] = function
    return function


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["capture", "verify"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--adaptive", choices=["on", "off"], default="on")
    options = parser.parse_args()
    found = capture_all(options.out, options.adaptive) if options.work == "capture" else verify_all(options.out)
    (options.out / f"{options.work}.json").write_text(json.dumps(found, indent=1))


def capture_all(out: Path, adaptive: str) -> Facts:
    """Run every scenario in one session with hooks."""
    from workbench.lore.jvm import inline_capture
    from workbench.lore.spark_bridge import replay_session

    (out / "events").mkdir()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    confs = SETTINGS | logged | {"spark.eventLog.dir": (out / "events").as_uri()}
    confs["spark.sql.adaptive.enabled"] = "true" if adaptive == "on" else "false"
    settings = inline_capture.enable_inline(confs, say=print)
    found: Facts = {}
    with replay_session.fresh_session(master="local[2]", settings=settings, filtered=False) as spark:
        for name, function in _scenarios.items():
            print(name, flush=True)
            found[name] = function(spark, out / name)
    return found


def verify_all(out: Path) -> Facts:
    """Replay every dump below a folder in a session that never heard of hooks."""
    from workbench.lore.dumps.dump_store import DumpStore
    from workbench.lore.replays import output_verification
    from workbench.lore.spark_bridge import replay_session
    from workbench.lore.spark_bridge.operator_isolation import rebuild_operator
    from workbench.lore.spark_bridge.spark_internals import connect_bridge
    from workbench.lore.trust import trust_check

    found: Facts = {}
    with replay_session.fresh_session(master="local[2]", settings=SETTINGS, filtered=True) as spark:
        for folder in sorted(out.glob("*/loreId-*")):
            sidecar = trust_check.check_trust(folder)
            replay_session.apply_dump_settings(spark, sidecar)
            bridged = connect_bridge(spark)
            store = DumpStore(bridged, str(folder))
            rebuilt = rebuild_operator(store, sidecar, (folder / "plan.meta").read_bytes(), bridged)
            told, _ = output_verification.verify_replay(store, sidecar, rebuilt)
            found.setdefault(folder.parent.name, {})[sidecar.operator] = {
                "passed": told.passed,
                "row_for_row": told.row_for_row,
                "compared_with": told.compared_with,
                "n_found": told.n_found,
                "said": told.answer,
            }
    return found


def _ids(tree: PlanTree, **partitions: str) -> str:
    """Operators by name with partitions: the first that has subqueries, else the first."""
    by_name: dict[str, int] = {}
    for lore_id, node in sorted(tree.nodes.items(), key=lambda one: (not one[1].subqueries, one[0])):
        by_name.setdefault(node.name, lore_id)
    return ", ".join(f"{by_name[name]}[{chosen}]" for name, chosen in partitions.items())


def _captured(frame: DataFrame, path: Path, partitions: dict[str, str], **settings: Any) -> Facts:
    """Tag the query, run it anew with hooks by an ordinary action, and say what came of it."""
    from workbench.core.errors import WorkbenchError
    from workbench.lore.config import build_dump_settings as settings_of
    from workbench.lore.jvm.inline_capture import InlineCapture, _final_tree
    from workbench.lore.spark_bridge.query_runs import describe_failure

    tree = _final_tree(frame)
    ids = _ids(tree, **partitions)
    again, rows, failure = frame.alias("again"), None, None
    capture = InlineCapture(tree, settings_of(ids=ids, path=str(path), mode="inline", **settings))
    with capture:
        try:
            rows = [list(row) for row in again.collect()]
        except Exception as error:  # noqa: BLE001 - what the query dies of is looked at
            failure = describe_failure(error)
    plan = str(again._jdf.queryExecution().executedPlan().toString())
    refused = None
    try:
        capture.write_dumps(failure)
    except WorkbenchError as error:
        refused = str(error)
    left = sorted(one.name for one in path.iterdir()) if path.exists() else []
    return {
        "rows": rows,
        "plan": plan,
        "refused": refused,
        "left": left,
        "warnings": capture.dumped.warnings,
        "failure": None if failure is None else failure.error_class,
        "key": capture.targets.key.strip("'"),
    }


def _join(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions

    left = spark.range(0, 2000, 1, 4).selectExpr("id % 100 AS k", "cast(id AS string) AS s")
    right = spark.range(0, 150, 1, 2).selectExpr("id AS k", "id * 2 AS w")
    return left.join(right.hint("merge"), "k").groupBy("s").agg(functions.sum("w").alias("w"))


def _noisy(spark: SparkSession, rows: int = 200) -> DataFrame:
    """Other values each time it is computed, unlike rand(), whose seed belongs to the plan."""
    from pyspark.sql import functions

    def noise(number: int) -> float:
        import random

        return number + random.SystemRandom().random()

    # Said to Spark, or it would compute it once for a filter and once more for what passes.
    noisy = functions.udf(noise, "double").asNondeterministic()
    return spark.range(0, rows, 1, 2).select("id", noisy("id").alias("x"))


@scenario
def join(spark: SparkSession, path: Path) -> Facts:
    """All partitions of a join, some of an aggregate; several batches."""
    return _captured(
        _join(spark), path, {"SortMergeJoin": "*", "HashAggregate": "0 2", "ShuffleExchange": "*"}, batch_rows=100
    )


@scenario
def nothing_armed(spark: SparkSession, path: Path) -> Facts:
    """The same session without targets."""
    frame = _join(spark)
    return {"n_rows": frame.count(), "plan": str(frame._jdf.queryExecution().executedPlan().toString())}


@scenario
def noisy_upstream(spark: SparkSession, path: Path) -> Facts:
    """What is captured is what this run gave, and no other run gives it again."""
    frame = _noisy(spark).repartition(3, "id").selectExpr("id", "x * 2 AS y", "x")
    frame = frame.filter("y > 1").sortWithinPartitions("x")
    return _captured(frame, path, {"Sort": "*"}) | {"another_run": [list(row) for row in frame.collect()]}


@scenario
def computed_twice(spark: SparkSession, path: Path) -> Facts:
    """A range partitioning samples what is below it before it shuffles it."""
    return _captured(_noisy(spark).filter("x > 5").orderBy("x"), path, {"Filter": "*", "Sort": "*"})


@scenario
def limit_above(spark: SparkSession, path: Path) -> Facts:
    """A LIMIT takes the first rows of the first partition, and computes no other."""
    frame = spark.range(0, 1000, 1, 4).selectExpr("id + 1 AS a", "id % 7 AS b").filter("b < 5").limit(3)
    return _captured(frame, path, {"Filter": "*"})


@scenario
def partition_not_computed(spark: SparkSession, path: Path) -> Facts:
    """The same, of a partition that the LIMIT never comes to."""
    frame = spark.range(0, 1000, 1, 4).selectExpr("id + 1 AS a", "id % 7 AS b").filter("b < 5").limit(3)
    return _captured(frame, path, {"Filter": "3"})


@scenario
def broadcast_and_subquery(spark: SparkSession, path: Path) -> Facts:
    """Inputs that are made elsewhere: a broadcast table, and a subquery that is used twice."""
    from pyspark.sql import functions

    small = spark.range(50).selectExpr("id AS k", "id * 3 AS w")
    spark.range(0, 500, 1, 4).selectExpr("id % 60 AS k", "id AS v").createOrReplaceTempView("facts_of_inline")
    frame = spark.table("facts_of_inline").join(functions.broadcast(small), "k")
    frame = frame.filter(
        "v > (SELECT avg(v) FROM facts_of_inline) AND w < (SELECT avg(v) FROM facts_of_inline)"
    ).repartition(3, "k")
    return _captured(frame, path, {"BroadcastHashJoin": "0 1 2 3", "Filter": "*"})


@scenario
def masked(spark: SparkSession, path: Path) -> Facts:
    """Values are hidden before they are written."""
    return _captured(_join(spark), path, {"HashAggregate": "*"}, mask={"s": "hash"})


@scenario
def too_large(spark: SparkSession, path: Path) -> Facts:
    """The cap ends the capture and not the query."""
    return _captured(_join(spark), path, {"SortMergeJoin": "*"}, max_bytes=1000)


@scenario
def failing(spark: SparkSession, path: Path) -> Facts:
    """A row that a Python function cannot take."""
    from pyspark.sql import functions

    def strict(number: int) -> int:
        if number == 77:
            raise ValueError("not 77")
        return number

    frame = spark.range(0, 100, 1, 2).repartition(2, "id").select(functions.udf(strict, "bigint")("id").alias("n"))
    return _captured(frame, path, {"BatchEvalPython": "*"})


@scenario
def another_query(spark: SparkSession, path: Path) -> Facts:
    """Armed for one query, and another is run."""
    from workbench.core.errors import WorkbenchError
    from workbench.lore.config import build_dump_settings
    from workbench.lore.jvm.inline_capture import InlineCapture, _final_tree

    tree = _final_tree(_join(spark))
    with InlineCapture(
        tree, build_dump_settings(ids=_ids(tree, SortMergeJoin="*"), path=str(path), mode="inline")
    ) as capture:
        spark.range(10).count()
    try:
        capture.write_dumps()
    except WorkbenchError as error:
        return {"refused": str(error), "left": sorted(one.name for one in path.iterdir()) if path.exists() else []}
    return {"refused": None}


if __name__ == "__main__":
    main()
