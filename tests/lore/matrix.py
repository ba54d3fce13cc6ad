"""The matrix run in processes of its own: one dumps every operator of every query, another replays each dump.

    python -m tests.lore.matrix dump OUT --data DATA --adaptive on
    python -m tests.lore.matrix replay OUT --data DATA

Each process starts one Spark, loops over the operators, and writes what it met as JSON into OUT.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests import jvm
from tests.lore import matrix_data, queries, queries_of_kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.spark_bridge.physical_plan import PlanTree

# Small enough that many partitions have several batches.
BATCH_ROWS = 1_000
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.session.timeZone": "Europe/Berlin",
    # Not the defaults, so that a file is a partition although the files are small.
    "spark.sql.files.openCostInBytes": "100KB",
    "spark.sql.files.maxPartitionBytes": "100KB",
    # Batches come up where a query asks for them: else every scan has the same ColumnarToRow above it, and every join
    # the same Filter below.
    queries.BATCHES: "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
CANARY_VARIABLE = "LORE_CANARY"
# Where a secret may sit in a session; none of them may come to lie in a dump.
CANARY_CONFS = (
    "spark.hadoop.fs.s3a.secret.key",
    "spark.executorEnv.LORE_TOKEN",
    "spark.sql.canary.password",
    "spark.lore.canary",
)
# Names that classes have on one line only, as they are called on the other.
SAME_CLASS = {
    "PythonMapInArrowExec": "MapInArrowExec",
    "ArrowWindowPythonExec": "WindowInPandasExec",
    "ArrowAggregatePythonExec": "AggregateInPandasExec",
}


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["dump", "replay"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--adaptive", choices=["on", "off"], default="on")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kinds", action="store_true", help="the queries of queries_of_kinds instead")
    parser.add_argument("--subtree", choices=["stage", "scans"], help="stages, or whole plans, as one dump each")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    jvm.remember_names()
    with _session(options) as spark:
        line = tuple(int(part) for part in spark.version.split(".")[:2])
        listed = [] if options.kinds else queries.of_line((line[0], line[1]), quick=options.quick)
        if options.kinds or options.quick:
            listed += queries_of_kinds.of_line((line[0], line[1]), quick=options.quick)
        chosen = [one for one in listed if one.name in options.only or not options.only]
        matrix_data.make_views(spark, options.data)
        record = (
            _dump_all(spark, chosen, options.out, options.subtree)
            if options.work == "dump"
            else _replay_all(spark, chosen, options.out, trees=not options.kinds)
        )
        record["spark"] = spark.version
    (options.out / f"{options.work}.json").write_text(json.dumps(record, indent=1))


@contextlib.contextmanager
def _session(options: argparse.Namespace) -> Iterator[SparkSession]:
    from workbench.lore.spark_bridge import replay_session

    settings = SETTINGS | {"spark.sql.adaptive.enabled": "true" if options.adaptive == "on" else "false"}
    # Thousands of small jobs: what the second compiler of the JVM gains, it never earns back.
    java = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    canary = os.environ.get(CANARY_VARIABLE)
    if options.kinds:
        settings |= {queries.BATCHES: "true", "spark.sql.constraintPropagation.enabled": "true"}
    if options.work == "dump" and canary:
        settings |= {key: f"{canary}-{key}" for key in CANARY_CONFS}
        java.append(f"-Duser.home={os.environ['HOME']}")
    settings["spark.executor.extraJavaOptions"] = " ".join(java[:2])
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    # Only a replay loads what files name.
    with replay_session.fresh_session(
        master=options.master, settings=settings, filtered=options.work == "replay"
    ) as spark:
        yield spark


@contextlib.contextmanager
def _confs(spark: SparkSession, one: queries.Query) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in one.confs}
    for key, value in one.confs.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def _tree(spark: SparkSession, one: queries.Query) -> tuple[DataFrame, PlanTree]:
    from workbench.lore.spark_bridge.query_runs import tag_plan

    frame = one.make(spark)
    # Without AQE the plan is final before anything runs.
    return frame, tag_plan(frame, run=spark.conf.get("spark.sql.adaptive.enabled") == "true", labels=False)


def _dump_all(
    spark: SparkSession, chosen: list[queries.Query], out: Path, subtree: Literal["stage", "scans"] | None = None
) -> dict[str, Any]:
    context = spark.sparkContext
    record: dict[str, Any] = {
        "operators": [],
        "trees": {},
        "answers": {},
        "secrets": {
            "token of py4j": context._gateway.gateway_parameters.auth_token,
            "token of accumulators": context._accumulatorServer.auth_token,
        },
    }
    for one in chosen:
        with _confs(spark, one):
            frame, tree = _tree(spark, one)
            record["trees"][one.name] = tree.plan_shape()
            references = [node.kind for node in tree.root.iter_nodes() if node.lore_id is None]
            record["operators"] += [_record(one, None, kind) for kind in references]
            wanted = sorted(tree.nodes) if subtree is None else _list_tops(tree, subtree)
            record["operators"] += [_dumped(tree, lore_id, one, out, subtree) for lore_id in wanted]
            # The root has the last id.
            if record["operators"][-1]["refused"] is None:
                record["answers"][one.name] = _answer(frame, tree)
        print(f"{one.name}: {len(tree.nodes)} operators", flush=True)
    return record


def _list_tops(tree: PlanTree, subtree: Literal["stage", "scans"]) -> list[int]:
    """The topmost operator, after those that write a shuffle where stages are asked for, if they have one below."""
    exchanges = [node for node in tree.nodes.values() if node.kind == "ShuffleExchangeExec"]
    below = [child for node in exchanges for child in node.children if child.lore_id is not None and child.children]
    return [*sorted({child.lore_id for child in below} if subtree == "stage" else ()), max(tree.nodes)]


def _record(one: queries.Query, lore_id: int | None, kind: str) -> dict[str, Any]:
    return {"query": one.name, "lore_id": lore_id, "kind": SAME_CLASS.get(kind, kind), "refused": None, "error": None}


def _dumped(
    tree: PlanTree, lore_id: int, one: queries.Query, out: Path, subtree: Literal["stage", "scans"] | None
) -> dict[str, Any]:
    from workbench.lore.config import DumpSettings
    from workbench.lore.dumps.operator_dump import dump_plan

    record = _record(one, lore_id, tree.nodes[lore_id].kind)
    settings = DumpSettings(
        ids=f"{lore_id}[*]",
        path=str(out / one.name),
        strict=False,
        batch_rows=BATCH_ROWS,
        keep_output_rows=0,
        subtree=subtree,
    )
    try:
        record["refused"] = dump_plan(tree, settings).refused.get(lore_id)
    except Exception as error:  # noqa: BLE001 - what cannot be dumped must not hide the others
        record["error"] = f"{type(error).__name__}: {error}"[:4000]
    return record


def _answer(frame: DataFrame, tree: PlanTree) -> str:
    """What the query itself gives, by Spark's own texts of the values: knows nothing of fingerprints."""
    plan = frame._jdf.queryExecution()
    return _digest(tree.bridge, plan.toRdd(), tree.bridge.to_list(plan.executedPlan().output()))


def _digest(bridge: Any, rdd: Any, attributes: list[Any]) -> str:
    from workbench.lore.replays import row_differences

    frame = row_differences.number_columns(bridge.quiet_bridge(), rdd, attributes)
    rows = frame.selectExpr(*(f"cast({name} as string) {name}" for name in frame.columns)).collect()
    lines = sorted(json.dumps(list(row)) for row in rows)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{len(lines)} rows, {digest}"


def _replay_all(spark: SparkSession, chosen: list[queries.Query], out: Path, *, trees: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"operators": [], "trees": {}, "answers": {}}
    for one in chosen:
        root = None
        if trees:
            with _confs(spark, one):
                tree = _tree(spark, one)[1]
                record["trees"][one.name], root = tree.plan_shape(), tree.root.lore_id
        folders = sorted((out / one.name).glob("loreId-*"), key=lambda path: int(path.name.split("-")[1]))
        for folder in folders:
            is_root = folder.name == f"loreId-{root}" if trees else folder == folders[-1]
            record["operators"].append(_replayed(spark, one, folder, record["answers"], is_root=is_root))
        print(f"{one.name}: {len(folders)} dumps", flush=True)
    return record


def _replayed(
    spark: SparkSession, one: queries.Query, folder: Path, answers: dict[str, str], *, is_root: bool
) -> dict[str, Any]:
    from workbench.lore.dumps.dump_store import DumpStore
    from workbench.lore.replays.output_verification import verify_replay
    from workbench.lore.spark_bridge import replay_session
    from workbench.lore.spark_bridge.operator_isolation import rebuild_operator
    from workbench.lore.spark_bridge.spark_internals import connect_bridge
    from workbench.lore.trust import trust_check

    lore_id = int(folder.name.split("-")[1])
    record = {"query": one.name, "lore_id": lore_id, "passed": False, "row_for_row": False, "said": None}
    try:
        sidecar = trust_check.check_trust(folder)
        # Of its own, so that settings of one dump are not those of the next.
        child = spark.newSession()
        replay_session.apply_dump_settings(child, sidecar)
        found = connect_bridge(child)
        store = DumpStore(found, str(folder))
        rebuilt = rebuild_operator(store, sidecar, (folder / "plan.meta").read_bytes(), found)
        verification, _ = verify_replay(store, sidecar, rebuilt)
        record |= {"passed": verification.passed, "row_for_row": verification.row_for_row}
        record |= {"said": "; ".join([verification.answer, *verification.note])}
        if is_root and verification.passed:
            answers[one.name] = _digest(found, rebuilt.output_rdd(), rebuilt.attributes)
    except Exception as error:  # noqa: BLE001 - a replay that dies must not hide the others
        record["said"] = f"{type(error).__name__}: {error}"[:4000]
    return record


if __name__ == "__main__":
    main()
