"""Columns hidden or left out: nothing of their values in any file, and what that does to the answer is said."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.lore.local_spark import MARKS, dumped, local, lore_id, verified
from workbench import lore
from workbench.core.errors import ConfigError
from workbench.lore.dumps import operator_dump
from workbench.lore.spark_bridge.operator_inputs import MASKED_NOTE
from workbench.lore.spark_bridge.physical_plan import PlanTree
from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS

# Hashed, so that equal keys need no order to find each other.
JOIN = "SELECT /*+ SHUFFLE_HASH(b) */ b.name, a.v, a.s, a.k FROM a JOIN b ON a.k = b.k"
TYPES = {
    "string": "concat('canary', id)",
    "binary": "encode(concat('canary', id), 'UTF-8')",
    "bigint": "id",
    "int": "CAST(id AS INT)",
    "smallint": "CAST(id AS SMALLINT)",
    "tinyint": "CAST(id AS TINYINT)",
    "boolean": "id > 3",
    "double": "id * 0.5D",
    "float": "CAST(id AS FLOAT)",
    "date": "date_add(DATE'2020-01-01', CAST(id AS INT))",
    "timestamp": "timestamp_seconds(id)",
    "timestamp_ntz": "CAST(timestamp_seconds(id) AS TIMESTAMP_NTZ)",
    "decimal(20,2)": "CAST(id AS DECIMAL(20,2))",
    "decimal(2,2)": "CAST(id / 100 AS DECIMAL(2,2))",
}


@pytest.fixture(scope="module")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's Spark writes its event log."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(event_log: Path) -> Iterator[SparkSession]:
    logged = {"spark__eventLog__enabled": "true", "spark__eventLog__compress": "false"}
    with local(**logged, spark__eventLog__dir=event_log.as_uri()) as found:
        yield found


def column(folder: Path, number: int, name: str) -> pl.Series:
    parts = sorted(folder.glob(f"input-{number}/partition-*/batch-*.parquet"))
    return pl.concat([pl.read_parquet(part) for part in parts])[name]


@pytest.fixture(scope="module")
def hashed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The join with its key and a text hashed, and a number gone."""
    masks = {"k": "hash", "NAME": "hash", "v": "null"}
    return dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path_factory.mktemp("masked") / "d", mask=masks)


def test_equal_keys_stay_equal_across_inputs(hashed: Path) -> None:
    left, right = column(hashed, 0, "k"), column(hashed, 1, "k")
    assert set(left) >= set(right)
    assert (left.n_unique(), right.n_unique()) == (40, 30)
    assert not set(left) & set(range(40))


def test_the_join_finds_as_many_rows_as_before(spark: SparkSession, hashed: Path) -> None:
    found = verified(spark, hashed)
    assert found.passed
    assert found.n_found == 230


def test_no_file_has_a_hidden_value(hashed: Path) -> None:
    for path in hashed.rglob("*"):
        assert path.is_dir() or b"name1" not in path.read_bytes(), path
    assert column(hashed, 0, "v").null_count() == 300
    output = pl.concat([pl.read_parquet(path) for path in hashed.glob("output/*/*.parquet")])
    texts = [text for name in output.select(pl.col(pl.String)) for text in name]
    assert texts
    assert not [text for text in texts if text.startswith("name")]


def test_a_column_that_is_not_named_keeps_its_values(hashed: Path) -> None:
    assert set(column(hashed, 0, "s")) == {f"n{number}" for number in range(7)}


def test_the_sidecar_and_every_verdict_say_that_it_is_masked(spark: SparkSession, hashed: Path) -> None:
    sidecar = trust_check.check_trust(hashed)
    assert sidecar.masked == f"{MASKED_NOTE} (k, name, v)"
    assert {one.name: one.masked for one in sidecar.inputs[0].columns} == {"k": "hash", "v": "null", "s": None}
    assert MASKED_NOTE in " ".join(verified(spark, hashed).note)


def test_the_fingerprint_is_that_of_the_masked_rows(spark: SparkSession, hashed: Path, tmp_path: Path) -> None:
    plain = trust_check.check_trust(dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path / "d")).output
    masked = trust_check.check_trust(hashed).output
    rows = [{number: one.n_rows for number, one in output.fingerprint.items()} for output in (plain, masked)]
    assert rows[0] == rows[1]
    assert [one.hash_sum for one in plain.fingerprint.values()] != [one.hash_sum for one in masked.fingerprint.values()]


def test_two_dumps_hash_under_two_keys(spark: SparkSession, hashed: Path, tmp_path: Path) -> None:
    other = dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path / "d", mask={"k": "hash"})
    assert not set(column(other, 1, "k")) & set(column(hashed, 1, "k"))


@pytest.mark.parametrize("reads_alike", [True, False])
def test_the_key_is_in_no_plan_that_spark_logs(
    spark: SparkSession, event_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_alike: bool
) -> None:
    part = None if reads_alike else "a part of another kind"
    monkeypatch.setattr(operator_dump, "find_unrepeatable_part", lambda *_: part)
    made: list[str] = []
    token_hex = secrets.token_hex
    monkeypatch.setattr(secrets, "token_hex", lambda count: made.append(token_hex(count)) or made[-1])
    folder = dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path / "d", mask={"k": "hash", "s": "hash"})
    assert column(folder, 1, "k").n_unique() == 30
    # The end of a job brings to the disk what was told before it.
    spark.range(1).count()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    logged = b"".join(path.read_bytes() for path in event_log.rglob("*") if path.is_file())
    assert b"substring(sha2(" in logged
    assert [key.encode() in logged for key in [text for text in made if len(text) == 32]] == [False]
    assert not re.search(rb"xxhash64\([0-9a-f]{32}", logged)


def test_operators_of_one_dump_hash_under_one_key(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(JOIN)
    exchanges = [number for number, node in PlanTree.from_frame(frame).nodes.items() if node.name == "ShuffleExchange"]
    made = lore.dump(frame, dict.fromkeys(exchanges), tmp_path / "d", mask={"k": "hash"})
    keys = [set(column(tmp_path / "d" / f"loreId-{number}", 0, "k")) for number in made.folders]
    assert keys[1] < keys[0]


@pytest.mark.parametrize("kind", TYPES)
def test_a_hashed_column_keeps_its_type_and_its_nulls(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    frame = spark.range(0, 60, 1, 1).selectExpr(f"IF(id % 5 = 0, NULL, {TYPES[kind]}) AS x", "id")
    frame.createOrReplaceTempView("typed")
    query = spark.sql("SELECT x, id + 1 AS more FROM (SELECT /*+ REPARTITION(1) */ * FROM typed)")
    folder = dumped(query.sortWithinPartitions("id"), "Sort", tmp_path / "d", mask={"x": "hash"})
    assert trust_check.check_trust(folder).masked
    assert trust_check.check_trust(folder).inputs[0].columns[0].masked == "hash"
    assert spark.read.parquet(str(folder / "input-0/partition-0/batch-0.parquet")).dtypes[0] == ("x", kind)
    values = column(folder, 0, "x")
    assert values.null_count() == 12
    if kind in ("smallint", "date"):
        # 48 values fall on 32,768 or 36,500: two of them meet under every thirtieth key, five pairs in ten million.
        assert 45 <= values.n_unique() <= 49
    elif kind not in ("boolean", "decimal(2,2)", "tinyint"):
        assert values.n_unique() == 49
    assert verified(spark, folder).passed


def test_a_type_that_cannot_be_hashed_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT array(k) AS xs, v FROM a").repartition(2).filter("size(xs) > 0 AND v > 1")
    number = next(i for i, node in PlanTree.from_frame(frame).nodes.items() if node.name == "ShuffleExchange")
    with pytest.raises(ConfigError, match=r"cannot be hashed(.|\n)*xs=null"):
        lore.dump(frame, {number: None}, tmp_path / "d", mask={"xs": "hash"})
    lore.dump(frame, {number: None}, tmp_path / "d", mask={"xs": "null"})


@pytest.mark.parametrize(
    ("sql", "operator", "masked"),
    [
        (JOIN, "ShuffledHashJoin", "k"),
        ("SELECT k, v FROM a SORT BY v", "Sort", "v"),
        ("SELECT k + 1 AS more FROM (SELECT /*+ REPARTITION(2) */ k, v FROM a)", "root", "k"),
    ],
)
def test_a_masked_column_that_the_operator_uses_is_warned_of(
    spark: SparkSession, tmp_path: Path, sql: str, operator: str, masked: str
) -> None:
    frame = spark.sql(sql)
    number = lore_id(frame, operator)
    name = PlanTree.from_frame(frame).nodes[number].name
    warnings = lore.dump(frame, {number: None}, tmp_path / "d", mask={masked: "hash"}).warnings
    told = f"loreId {number}: {name} compares, sorts or computes on {masked}, which is masked: "
    assert [warning.startswith(told) for warning in warnings] == [True]


@pytest.mark.parametrize(
    ("sql", "operator", "masked", "subtree"),
    [
        ("SELECT k FROM a WHERE concat(s, v) <> 'secret'", "Filter", "id", None),
        # On what the view is made of.
        ("SELECT k FROM a WHERE v > 3", "Filter", "id", None),
        ("SELECT count(*) FROM (SELECT id * 2 AS n FROM range(9)) WHERE n IN (4, 6, 7)", "root", "id", "scans"),
    ],
)
def test_a_literal_beside_a_masked_column_is_refused(
    spark: SparkSession, tmp_path: Path, sql: str, operator: str, masked: str, subtree: str | None
) -> None:
    with pytest.raises(ConfigError, match="literal beside a masked column") as refused:
        dumped(spark.sql(sql), operator, tmp_path / "d", mask={masked: "hash"}, subtree=subtree)
    assert "secret" not in str(refused.value)


def test_literals_of_other_operators_are_in_no_file_of_a_masked_dump(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT s FROM (SELECT /*+ REPARTITION(2) */ s FROM a WHERE s <> 'n3hidden') SORT BY s")
    folder = dumped(frame, "Sort", tmp_path / "d", mask={"s": "hash"})
    assert [path for path in folder.rglob("*") if path.is_file() and b"n3hidden" in path.read_bytes()] == []
    assert "Filter" in trust_check.check_trust(folder).tree


@pytest.mark.parametrize(("kind", "n_warnings"), [("INT", 1), ("SMALLINT", 2)])
def test_a_number_has_one_mask_in_columns_of_any_whole_type(
    spark: SparkSession, tmp_path: Path, kind: str, n_warnings: int
) -> None:
    narrow = f"(SELECT CAST(id AS {kind}) AS x FROM range(30)) l"
    frame = spark.sql(f"SELECT /*+ MERGE(l) */ l.x FROM {narrow} JOIN (SELECT id AS x FROM range(20)) r ON l.x = r.x")
    number = lore_id(frame, "SortMergeJoin")
    made = lore.dump(frame, {number: None}, tmp_path / "d", mask={"x": "hash"})
    assert len(made.warnings) == n_warnings
    assert made.warnings[1:] == [text for text in made.warnings if "may get one mask" in text]
    left, right = (set(column(tmp_path / "d" / f"loreId-{number}", side, "x")) for side in (0, 1))
    assert right < left


def test_a_masked_column_that_only_passes_is_not_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(JOIN)
    number = lore_id(frame, "ShuffledHashJoin")
    assert lore.dump(frame, {number: None}, tmp_path / "d", mask={"s": "hash"}).warnings == []


@pytest.mark.parametrize("option", [{"mask": {"nope": "hash"}}, {"columns": ["nope"]}])
def test_a_column_that_is_not_there_is_refused(spark: SparkSession, tmp_path: Path, option: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"nope(.|\n)*k, name, s, v"):
        dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path / "d", **option)


def test_columns_that_the_operator_does_without_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    folder = dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path / "d", columns=["k", "v"])
    sidecar = trust_check.check_trust(folder)
    assert [[one.name for one in entry.columns] for entry in sidecar.inputs] == [["k", "v"], ["k"]]
    assert len(sidecar.output.columns) == 3
    assert verified(spark, folder).passed


def test_columns_may_be_named_by_input(spark: SparkSession, tmp_path: Path) -> None:
    folder = dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path / "d", columns={0: ["k"]})
    assert [[one.name for one in entry.columns] for entry in trust_check.check_trust(folder).inputs] == [
        ["k"],
        ["k", "name"],
    ]
    assert verified(spark, folder).passed


def test_columns_that_the_operator_needs_must_stay(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs columns(.|\n)*found: k"):
        dumped(spark.sql(JOIN), "ShuffledHashJoin", tmp_path / "d", columns=["v", "name"])
    assert not list((tmp_path / "d").glob("*"))


def test_columns_of_a_union_are_known_by_their_place_and_stay(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT k, v FROM a UNION ALL SELECT k, v + 1 FROM a")
    with pytest.raises(ConfigError, match="bound by position"):
        dumped(frame, "Union", tmp_path / "d", columns=["k"])
