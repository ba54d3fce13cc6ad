"""Dumps of the plugin and of ours are looked into; what is damaged or never loaded is a fault, and the rest is read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.lore import small_dump
from tests.lore.dump_reader import made
from workbench.lore.dump_reader.dump_inspection import inspect_dumps

GADGET = "org.apache.commons.collections.functors.InvokerTransformer"


@pytest.mark.parametrize("scala", ["scala_2.12", "scala_2.13"])
def test_a_dump_of_the_plugin_is_read_whole(scala: str, tmp_path: Path) -> None:
    (dump,) = inspect_dumps(made.gpu_dump(tmp_path, scala=scala)).dumps
    assert (dump.lore_id, dump.origin, dump.operator) == (7, "gpu", "Project")
    assert (dump.faults, dump.signature, dump.whole) == ([], None, None)
    assert dump.plan is not None
    assert [function.name for function in dump.plan.functions] == ["double_it"]
    (given,) = dump.inputs
    assert (given.n_partitions, given.n_dumped, given.n_rows, given.median_rows) == (5, 2, 50, 25.0)


def test_partitions_stand_with_most_rows_first_and_their_skew(tmp_path: Path) -> None:
    frame = inspect_dumps(made.gpu_dump(tmp_path)).partitions
    columns = ("partition", "n_batches", "promised_batches", "n_rows", "rows_share", "skew_ratio")
    assert frame.select(columns).rows() == [(0, 2, 2, 40, 0.8, 1.6), (1, 1, None, 10, 0.2, 0.4)]
    assert frame["note"].to_list() == [
        "",
        "no partition.meta: not read to its end, as below a LIMIT, or the dump was cut off",
    ]


def test_columns_have_types_of_the_meta_and_values_of_the_files(tmp_path: Path) -> None:
    rows = {row["position"]: row for row in inspect_dumps(made.gpu_dump(tmp_path)).columns.to_dicts()}
    assert (rows[0]["name"], rows[0]["type"], rows[0]["nullable"]) == ("id", "bigint", False)
    assert (rows[0]["minimum"], rows[0]["maximum"]) == ("0", "109")
    assert (rows[13]["name"], rows[13]["minimum"], rows[13]["maximum"]) == ("id", "-109", "0")
    assert (rows[1]["n_nulls"], rows[1]["n_distinct"], rows[1]["distinct_exact"]) == (10, 40, True)
    assert (rows[2]["type"], rows[2]["maximum"]) == ("decimal(12,2)", "27.25")
    assert (rows[7]["type"], rows[7]["minimum"], rows[7]["n_nulls"]) == ("struct<x:double,y:float>", None, 0)


def test_a_dump_of_ours_is_whole_and_of_this_user(tmp_path: Path, config_home: Path) -> None:
    found = inspect_dumps(made.own_dump(tmp_path))
    (dump,) = found.dumps
    assert (dump.faults, dump.notes, dump.whole, dump.signature) == ([], [], True, "yours")
    assert (dump.origin, dump.operator) == ("workbench", "Filter")
    assert [(one.kind, one.n_partitions, one.n_dumped, one.n_rows) for one in dump.inputs] == [("rows", 3, 2, 4)]
    empty = found.partitions.row(1, named=True)
    assert (empty["partition"], empty["n_rows"], empty["promised_batches"], empty["note"]) == (2, 0, 0, "empty")


def test_a_dropped_column_has_no_values_and_moves_none(tmp_path: Path) -> None:
    rows = inspect_dumps(made.own_dump(tmp_path)).columns.to_dicts()
    columns = ("name", "masked", "n_rows", "n_nulls", "n_nan", "minimum", "maximum")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("id", None, 4, 0, None, "1", "4"),
        ("left out", "dropped", 0, None, None, None, None),
        ("x", "hash", 4, 1, 1, "0.5", "2.5"),
    ]


def test_another_user_s_and_an_unsigned_dump_are_told(tmp_path: Path, config_home: Path) -> None:
    assert inspect_dumps(made.own_dump(tmp_path / "a", sign=False)).dumps[0].signature == "none"
    signed = made.own_dump(tmp_path / "b")
    shutil.rmtree(config_home)
    assert inspect_dumps(signed).dumps[0].signature == "another's"
    assert not config_home.exists()


def flipped(dump: Path) -> None:
    path = dump / "input-0" / "partition-0" / "batch-0.parquet"
    data = bytearray(path.read_bytes())
    data[6] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Any, str]] = {
    "a byte of a batch": (flipped, "input-0/partition-0/batch-0.parquet: a file of the dump was changed"),
    "a missing batch": (
        lambda dump: (dump / "input-0/partition-0/batch-0.parquet").unlink(), "a file of the dump is missing"),
    "a file too many": (lambda dump: (dump / "run.sh").write_text("echo"), "a file that the dump does not list"),
    "a swapped plan": (
        lambda dump: (dump / "plan.meta").write_bytes(small_dump.java_stream(GADGET)), "another size"),
    "a cut plan": (lambda dump: (dump / "plan.meta").write_bytes(b"\xac\xed\x00\x05\x73"), "plan.meta: "),
    "a plan of Kryo": (lambda dump: (dump / "plan.meta").write_bytes(b"\x01\x00"), "plan.meta: not Java"),
    "plan.json that is none": (lambda dump: (dump / "plan.json").write_text("{"), "plan.json: plan.json is not JSON"),
    "rdd.meta that is none": (lambda dump: (dump / "input-0/rdd.meta").write_text("{"), "input-0/rdd.meta: not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_a_fault_and_the_rest_is_read(name: str, tmp_path: Path) -> None:
    dump = made.own_dump(tmp_path)
    damage, message = DAMAGES[name]
    damage(dump)
    found = inspect_dumps(dump)
    assert any(message in fault for fault in found.faults), found.faults
    assert found.partitions.height == 2
    assert found.answer == "1 dump, 1 with faults."


def test_a_plan_that_names_a_class_not_allowed_is_a_fault_though_its_checksum_holds(tmp_path: Path) -> None:
    files = {"plan.meta": small_dump.java_stream(GADGET)}
    dump = small_dump.write_dump(tmp_path / "loreId-3", files, inputs=[], operator_class=GADGET)
    found = inspect_dumps(dump)
    assert found.dumps[0].whole is True
    assert found.faults == [f"loreId-3: plan.meta: never loaded, for it names {GADGET}"]


def test_a_folder_called_by_another_id_and_settings_that_no_dump_may_make_are_faults(tmp_path: Path) -> None:
    confs = {"spark.sql.shuffle.partitions": "4", "spark.jars": "http://example.org/evil.jar"}
    dump = made.own_dump(tmp_path, confs=confs)
    assert ["spark.jars" in fault for fault in inspect_dumps(dump).faults] == [True]
    copy = made.own_dump(tmp_path / "a").rename(tmp_path / "copy")
    assert (inspect_dumps(copy).faults, inspect_dumps(copy).dumps[0].lore_id) == ([], 3), "known by its sidecar"
    found = inspect_dumps(copy.rename(tmp_path / "loreId-4"))
    assert found.faults == ["loreId-4: plan.json: it is of loreId 3"]


def test_metas_of_kryo_are_no_damage_and_the_batches_are_read_all_the_same(tmp_path: Path) -> None:
    dump = made.gpu_dump(tmp_path)
    for name in ("plan.meta", "input-0/rdd.meta", "input-0/partition-0/partition.meta"):
        (dump / name).write_bytes(b"\x01\x00com.nvidia.spark.rapids.lor\xe5")
    found = inspect_dumps(dump)
    assert found.faults == []
    assert [note.partition(":")[0] for note in found.dumps[0].notes] == ["plan.meta", "input-0/rdd.meta"]
    assert "spark.serializer" in found.dumps[0].notes[0]
    assert found.partitions["n_rows"].to_list() == [40, 10]
    assert found.columns.row(0, named=True)["type"] == "int64"


def test_a_dump_without_plan_or_inputs_says_so(tmp_path: Path) -> None:
    dump = made.gpu_dump(tmp_path)
    (dump / "plan.meta").unlink()
    assert inspect_dumps(dump).dumps[0].notes == ["no plan.meta: the operator is not known, and cannot be replayed"]
    (tmp_path / "loreId-8").mkdir()
    assert inspect_dumps(tmp_path / "loreId-8").dumps[0].notes[-1] == "no inputs"


def test_several_dumps_share_the_tables(tmp_path: Path) -> None:
    made.gpu_dump(tmp_path)
    made.own_dump(tmp_path)
    found = inspect_dumps(tmp_path)
    assert found.answer == "2 dumps, none with faults."
    assert found.partitions["lore_id"].unique().sort().to_list() == [3, 7]
