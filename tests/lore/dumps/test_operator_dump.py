"""What a dump writes, what it refuses, and what is left of one that was cut off."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.lore.local_spark import MARKS, ROOT, dumped, lore_id, signed_anew, verified
from workbench import lore
from workbench.core.errors import ConfigError, InputError
from workbench.lore.dumps.dump_folder import read_sidecar
from workbench.lore.spark_bridge.physical_plan import PlanTree
from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS

JOIN = "SELECT b.name, a.v FROM a JOIN b ON a.k = b.k"


@pytest.fixture(scope="module")
def joined(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The join dumped whole, in small batches."""
    return dumped(spark.sql(JOIN), "SortMergeJoin", tmp_path_factory.mktemp("joined") / "a folder", batch_rows=40)


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def rows_of(folder: Path, partition: int) -> list[pl.DataFrame]:
    batches = sorted(
        (folder / f"partition-{partition}").glob("batch-*.parquet"), key=lambda path: int(path.stem.split("-")[1])
    )
    return [pl.read_parquet(path) for path in batches]


def test_the_layout_is_that_of_the_plugin(joined: Path) -> None:
    expected = {"plan.meta", "plan.json"}
    for number in (0, 1):
        expected |= {f"input-{number}/rdd.meta"} | {f"input-{number}/partition-{p}/partition.meta" for p in range(3)}
    found = files_of(joined)
    assert {name for name in found if not name.endswith(".parquet")} == expected
    for entry in trust_check.check_trust(joined).inputs:
        for partition, count in entry.batches.items():
            folder = f"input-{entry.index}/partition-{partition}"
            assert {f"{folder}/batch-{batch}.parquet" for batch in range(count)} <= found
            assert json.loads((joined / folder / "partition.meta").read_text())["numBatches"] == count
        document = json.loads((joined / f"input-{entry.index}/rdd.meta").read_text())
        assert document["numPartitions"] == 3
        assert document["outputPartitions"] == [0, 1, 2]
        assert [column["name"] for column in document["attrs"]] == [["k", "v"], ["k", "name"]][entry.index]


def test_the_sidecar_lists_every_other_file_with_its_digest(joined: Path) -> None:
    listed = json.loads((joined / "plan.json").read_text())["files"]
    assert set(listed) == files_of(joined) - {"plan.json"}
    for name, entry in listed.items():
        data = (joined / name).read_bytes()
        assert entry == {"n_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_the_sidecar_says_what_was_dumped_and_with_what(spark: SparkSession, joined: Path) -> None:
    sidecar = trust_check.check_trust(joined)
    assert (sidecar.operator, sidecar.versions.spark) == ("SortMergeJoin", spark.version)
    assert sidecar.time_zone == "Europe/Berlin"
    assert sidecar.confs["spark.sql.shuffle.partitions"] == "3"
    assert [entry.kind for entry in sidecar.inputs] == ["rows", "rows"]
    assert [entry.n_rows for entry in sidecar.inputs] == [300, 30]
    assert sum(one.n_rows for one in sidecar.output.fingerprint.values()) == 230
    assert sidecar.plan_hash == PlanTree.from_frame(spark.sql(JOIN)).plan_hash
    assert sidecar.masked is None
    assert f"[loreId={sidecar.lore_id}] SortMergeJoin" in sidecar.tree


def test_batches_hold_the_rows_in_the_order_of_the_partition(joined: Path) -> None:
    entry = trust_check.check_trust(joined).inputs[0]
    assert max(entry.batches.values()) >= 3
    for partition in range(3):
        batches = rows_of(joined / "input-0", partition)
        assert len(batches) == entry.batches[str(partition)]
        assert max(batch.height for batch in batches) <= 40
        # What a sort-merge join gets is sorted.
        assert pl.concat(batches)["k"].is_sorted()
    assert sum(batch.height for p in range(3) for batch in rows_of(joined / "input-0", p)) == 300


def test_a_path_with_something_in_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="the dump path is not empty"):
        dumped(spark.sql(JOIN), "SortMergeJoin", tmp_path)
    assert files_of(tmp_path) == {"notes.txt"}


def test_without_strictness_a_path_may_have_something_in_it_and_refusals_are_listed(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    frame = spark.sql(JOIN)
    join, leaf = lore_id(frame, "SortMergeJoin"), 0
    ids: dict[int, Any] = {leaf: None, join: [99], 1: [0], 77: None}
    found = lore.dump(frame, ids, tmp_path, strict=False)
    assert sorted(found.folders) == [1]
    assert "it is a leaf" in found.refused[leaf]
    assert "no such partition" in found.refused[join]
    assert "no operator has this id" in found.refused[77]
    assert "already dumped there" in lore.dump(frame, {1: [0]}, tmp_path, strict=False).refused[1]
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "loreId-1"}


def test_without_strictness_an_operator_that_fails_does_not_stop_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = "SELECT /*+ REPARTITION(2) */ CAST(raise_error(concat('stop ', k)) AS INT) AS x, k FROM b"
    frame = spark.sql(f"SELECT x.x, x.k, y.v FROM ({sql}) x JOIN a y ON x.k = y.k")
    nodes = PlanTree.from_frame(frame).nodes
    bad = next(number for number, node in nodes.items() if "REPARTITION_BY_NUM" in node.text)
    # Of the other side of the join.
    good = max(number for number, node in nodes.items() if node.name == "ShuffleExchange")
    found = lore.dump(frame, {bad: None, good: None}, tmp_path / "d", strict=False)
    assert "stop " in found.refused[bad]
    assert sorted(found.folders) == [good]
    assert [path.name for path in (tmp_path / "d").iterdir()] == [f"loreId-{good}"]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("0[*]", "it is a leaf"),
        ("1[7]", r"no such partition(.|\n)*0 to 2"),
        ("77[*]", "no operator has this id"),
        (None, r"no operator is chosen(.|\n)*lore tag"),
    ],
)
def test_strictly_a_refusal_ends_the_dump_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, ids: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        lore.dump(spark.sql(JOIN), ids, tmp_path / "d")
    assert files_of(tmp_path) == set()


def test_keys_of_the_session_choose_what_is_dumped(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(JOIN)
    number = lore_id(frame, "SortMergeJoin")
    keys = {"idsToDump": f"{number}[0 2]", "dumpPath": str(tmp_path / "d"), "skip.plan.dump": "true"}
    for key, value in keys.items():
        spark.conf.set(f"spark.rapids.sql.lore.{key}", value)
    try:
        made = lore.dump(frame)
    finally:
        for key in keys:
            spark.conf.unset(f"spark.rapids.sql.lore.{key}")
    assert list(made.folders) == [number]
    sidecar = trust_check.check_trust(tmp_path / "d" / f"loreId-{number}")
    assert [entry.partitions for entry in sidecar.inputs] == [[0, 2], [0, 2]]


def test_beside_a_query_that_fails_nothing_is_chosen_by_an_argument(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(JOIN)
    options: list[dict[str, Any]] = [{"ids": "1[*]"}, {"tree": PlanTree.from_frame(frame)}, {"mode": "inline"}]
    for option in options:
        with pytest.raises(ConfigError, match="no other choice can be given"):
            lore.dump(frame, path=tmp_path / "d", failed=True, **option)
    # The session's keys may be set for other queries.
    spark.conf.set("spark.rapids.sql.lore.idsToDump", "1[*]")
    try:
        with pytest.raises(ConfigError, match="the query did not fail"):
            lore.dump(frame, path=tmp_path / "d", failed=True)
    finally:
        spark.conf.unset("spark.rapids.sql.lore.idsToDump")


def test_a_cap_stops_the_dump_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the dump is too large(.|\n)*--max-bytes"):
        dumped(spark.sql(JOIN), "SortMergeJoin", tmp_path / "d", max_bytes=500)
    assert files_of(tmp_path) == set()
    assert list((tmp_path / "d").glob("*")) + list((tmp_path / "d").glob(".*")) == []
    # Jobs of the session go on as before.
    assert spark.range(10).count() == 10


def test_data_alone_can_be_dumped_and_is_never_replayed(spark: SparkSession, tmp_path: Path) -> None:
    folder = dumped(spark.sql(JOIN), "SortMergeJoin", tmp_path / "d", skip_plan_dump=True)
    assert "plan.meta" not in files_of(folder)
    assert not trust_check.check_trust(folder).has_plan


def test_columns_may_be_numbered_instead_of_named(spark: SparkSession, tmp_path: Path) -> None:
    folder = dumped(spark.sql(JOIN), "SortMergeJoin", tmp_path / "d", original_names=False)
    assert pl.read_parquet(folder / "input-1/partition-0/*.parquet").columns == ["c0", "c1"]
    assert [column.name for column in trust_check.check_trust(folder).inputs[1].columns] == ["k", "name"]
    assert verified(spark, folder).passed


def test_columns_of_one_name_are_numbered(spark: SparkSession, tmp_path: Path) -> None:
    # A name, and the same in other letters, are one for Spark.
    frame = spark.sql("SELECT x.k, y.K, x.v FROM a x JOIN b y ON x.k = y.k ORDER BY x.v, x.k")
    folder = dumped(frame, "root", tmp_path / "d")
    columns = trust_check.check_trust(folder).inputs[0].columns
    assert [column.stored_as for column in columns] == [f"c{number}" for number in range(len(columns))]
    assert verified(spark, folder).row_for_row


@pytest.mark.parametrize(("most", "kept"), [(0, False), (229, False), (230, True)])
def test_the_output_is_kept_up_to_so_many_rows(spark: SparkSession, tmp_path: Path, most: int, kept: bool) -> None:
    folder = dumped(spark.sql(JOIN), "SortMergeJoin", tmp_path / "d", keep_output_rows=most)
    assert trust_check.check_trust(folder).output.kept is kept
    assert (folder / "output").is_dir() is kept
    if kept:
        assert pl.read_parquet(folder / "output/**/*.parquet").height == 230


MIXING = {
    "Exchange": "SELECT k, sum(v) FROM a GROUP BY k",
    "Union": "SELECT k + 1 AS k FROM a WHERE k > 3 UNION ALL SELECT k + 1 FROM b",
    "Coalesce": "SELECT /*+ COALESCE(2) */ k + 1 AS k FROM a",
    "CollectLimit": "SELECT k + 1 AS k FROM a LIMIT 7",
    "GlobalLimit": "SELECT count(*) FROM (SELECT k + 1 AS k FROM a LIMIT 120)",
    "TakeOrderedAndProject": "SELECT k, v + 1 FROM a ORDER BY k, v LIMIT 20",
    "CartesianProduct": "SELECT a.k, b.name FROM a CROSS JOIN b",
}


@pytest.mark.parametrize("name", MIXING)
def test_one_partition_of_an_operator_that_mixes_them_is_a_dump_that_verifies(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    frame = spark.sql(MIXING[name])
    folder = dumped(frame, "ShuffleExchange" if name == "Exchange" else name, tmp_path / "d", [0])
    sidecar = trust_check.check_trust(folder)
    for entry in sidecar.inputs:
        assert list(entry.batches) == ["0"]
        assert {path.name for path in (folder / f"input-{entry.index}").glob("partition-*")} == {"partition-0"}
    found = verified(spark, folder)
    assert found.passed, found
    assert found.n_found == sum(one.n_rows for one in sidecar.output.fingerprint.values()) > 0


def test_one_partition_of_others_is_that_part_of_the_answer(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(JOIN)
    whole = trust_check.check_trust(dumped(frame, "SortMergeJoin", tmp_path / "whole")).output.fingerprint
    part = trust_check.check_trust(dumped(frame, "SortMergeJoin", tmp_path / "part", [1]))
    assert part.output.fingerprint == {"1": whole["1"]}
    assert part.output.n_partitions == 3


def test_the_users_session_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    before = dict(row for row in spark.sql("SET").collect())
    spark.sparkContext.setJobDescription("mine")
    frame = spark.sql(JOIN)
    answer = sorted(frame.collect())
    dumped(frame, "SortMergeJoin", tmp_path / "d", mask={"name": "hash"})
    assert dict(row for row in spark.sql("SET").collect()) == before
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    spark.sparkContext.setLocalProperty("spark.job.description", None)
    assert sorted(frame.collect()) == answer


CUT_OFF = """
import signal, sys
from workbench.lore.spark_bridge import replay_session
from workbench.lore.config import DumpSettings
from workbench.lore.dumps.operator_dump import dump_plan
from workbench.lore.spark_bridge.physical_plan import PlanTree
from pyspark.sql.functions import udf

fifo, path = sys.argv[1:]

def blocking(number):
    if number == 99:
        with open(fifo, "wb") as reached:
            reached.write(b"!")
        signal.pause()
    return number

settings = {"spark.sql.adaptive.enabled": "false"}
with replay_session.fresh_session(master="local[1]", filtered=False, settings=settings) as spark:
    frame = spark.range(0, 100, 1, 2).select(udf(blocking, "long")("id").alias("n")).filter("n > 5")
    tree = PlanTree.from_frame(frame)
    number = next(i for i, node in tree.nodes.items() if node.name == "Filter" and "pythonUDF" in node.text)
    dump_plan(tree, DumpSettings(ids={number: None}, path=path))
"""


def said(fifo: Path, child: subprocess.Popen[bytes]) -> bytes:
    """The first byte that comes through a pipe; none when the child ends before."""
    handle = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while child.poll() is None:
            if select.select([handle], [], [], 1)[0] and (byte := os.read(handle, 1)):
                return byte
        return b""
    finally:
        os.close(handle)


def test_a_dump_that_is_killed_leaves_nothing_that_loads(spark: SparkSession, tmp_path: Path) -> None:
    fifo, path = tmp_path / "fifo", tmp_path / "d"
    os.mkfifo(fifo)
    script = tmp_path / "cut_off.py"
    script.write_text(CUT_OFF)
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, str(script), str(fifo), str(path)],
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "_PYSPARK"))},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            # Said while the second partition is being written, and not before.
            assert said(fifo, child) == b"!", (tmp_path / "log").read_text()
            hidden = [one.name for one in path.iterdir()]
            assert [name for name in hidden if not name.startswith(".loreId-")] == []
            assert hidden, "it was writing"
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    assert list(path.glob("loreId-*")) == []
    left = list(path.iterdir())
    assert left
    for folder in left:
        with pytest.raises(InputError):
            trust_check.check_trust(folder)
    # The path may be used again.
    assert verified(spark, dumped(spark.sql(JOIN), "SortMergeJoin", path)).passed


def test_python_functions_are_named_in_the_sidecar(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import udf

    plus = udf(lambda number: number + 1, "long")
    folder = dumped(spark.table("b").select(plus("k").alias("x")), "BatchEvalPython", tmp_path / "d")
    assert trust_check.check_trust(folder).python_functions == ["<lambda>"]
    assert verified(spark, folder).passed


def test_a_changed_count_of_batches_is_not_believed(spark: SparkSession, tmp_path: Path) -> None:
    folder = dumped(spark.sql(JOIN), "SortMergeJoin", tmp_path / "d")
    (folder / "input-0/partition-0/batch-0.parquet").unlink()
    with pytest.raises(InputError, match=r"batch-0\.parquet"):
        trust_check.check_trust(folder)
    sidecar = read_sidecar(folder)
    assert sidecar.files.pop("input-0/partition-0/batch-0.parquet")
    signed_anew(folder, sidecar)
    # Signed by this user, whole, and yet without rows that it counts.
    with pytest.raises(InputError, match=r"does not list(.|\n)*batch-0\.parquet"):
        verified(spark, folder)
