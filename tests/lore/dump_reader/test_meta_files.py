"""Metas of GPU dumps and of ours are read alike; what cannot be read says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.core.errors import InputError
from workbench.lore.dump_reader import meta_files

SAMPLES = Path(__file__).parent / "samples"
SCALAS = ["scala_2.12", "scala_2.13"]
COLUMNS = [
    ("id", "bigint", False),
    ("name", "string", False),
    ("price", "decimal(12,2)", True),
    ("day", "date", False),
    ("at", "timestamp", False),
    ("local", "timestamp_ntz", False),
    ("tags", "array<string>", False),
    ("point", "struct<x:double,y:float>", False),
    ("kv", "map<string,int>", False),
    ("raw", "binary", False),
    ("yes", "boolean", False),
    ("days", "interval day", False),
    ("months", "interval month", False),
    ("id", "bigint", False),
]
OURS = {
    "numPartitions": 4,
    "outputPartitions": [1, 3],
    "attrs": [
        {"name": "id", "stored_as": "id", "type": "long", "nullable": False, "expr_id": 7, "masked": None},
        {"name": "who", "stored_as": "who", "type": "string", "nullable": True, "expr_id": 8, "masked": "hash"},
    ],
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "rdd.meta"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@pytest.mark.parametrize("scala", SCALAS)
def test_columns_of_many_types_and_twice_the_same_name_are_read(scala: str) -> None:
    found = meta_files.read_rdd_meta(SAMPLES / scala / "simulated_rdd.meta")
    assert (found.origin, found.n_partitions, found.output_partitions) == ("gpu", 5, [0, 1, 2, 3, 4])
    assert [(column.name, column.type, column.nullable) for column in found.columns] == COLUMNS
    assert len({column.expr_id for column in found.columns}) == len(COLUMNS)
    partition = meta_files.read_partition_meta(SAMPLES / scala / "simulated_partition.meta")
    assert (partition.origin, partition.n_batches, partition.types) == ("gpu", 2, [column[1] for column in COLUMNS])


@pytest.mark.parametrize("scala", SCALAS)
@pytest.mark.parametrize(("name", "n_columns"), [("vector", 2), ("list", 0)])
def test_every_kind_of_sequence_gives_its_items(scala: str, name: str, n_columns: int) -> None:
    found = meta_files.read_rdd_meta(SAMPLES / scala / f"simulated_rdd_{name}.meta")
    assert found.output_partitions == [0, 1, 2, 3, 4]
    assert [column.name for column in found.columns] == [column[0] for column in COLUMNS[:n_columns]]


def test_metas_of_ours_are_json(tmp_path: Path) -> None:
    found = meta_files.read_rdd_meta(written(tmp_path, OURS))
    assert (found.origin, found.n_partitions, found.output_partitions) == ("workbench", 4, [1, 3])
    assert [(column.name, column.type, column.expr_id, column.masked) for column in found.columns] == [
        ("id", "bigint", 7, None),
        ("who", "string", 8, "hash"),
    ]
    partition = meta_files.read_partition_meta(written(tmp_path, {"numBatches": 3, "dataType": ["long", "string"]}))
    assert partition == meta_files.PartitionMeta("workbench", 3, ["bigint", "string"])


def test_kryo_is_recognised_and_the_setting_that_mends_it_named(tmp_path: Path) -> None:
    path = written(tmp_path, b"\x01\x00com.nvidia.spark.rapids.lore.LoreRDDMet\xe1")
    with pytest.raises(InputError, match="not Java serialization") as caught:
        meta_files.read_rdd_meta(path)
    assert "Kryo" in str(caught.value)
    assert "spark.serializer" in str(caught.value)
    with pytest.raises(InputError, match="not Java serialization"):
        meta_files.read_plan_meta(path)


BAD = {
    "an empty file": b"",
    "cut JSON": b'{"numPartitions": 4',
    "JSON deep in itself": b'{"attrs":' + b"[" * 100_000,
    "a number that is none": {**OURS, "numPartitions": "4"},
    "a negative number": {**OURS, "numPartitions": -4},
    "a yes for a number": {**OURS, "outputPartitions": [True]},
    "no columns": {"numPartitions": 1, "outputPartitions": [0]},
    "a column that is none": {**OURS, "attrs": [3]},
    "a number of endless digits": b'{"numPartitions": ' + b"9" * 10_000 + b"}",
    "a partition's meta": (SAMPLES / "scala_2.12" / "simulated_partition.meta").read_bytes(),
    "values that are no object": (SAMPLES / "values.bin").read_bytes(),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_meta_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        meta_files.read_rdd_meta(written(tmp_path, BAD[name]))


def test_a_missing_meta_a_folder_and_a_meta_beyond_all_measure_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="missing"):
        meta_files.read_rdd_meta(tmp_path / "rdd.meta")
    with pytest.raises(InputError, match="not a file"):
        meta_files.read_rdd_meta(tmp_path)
    monkeypatch.setattr(meta_files, "MAX_META_BYTES", 100)
    with pytest.raises(InputError, match="too large"):
        meta_files.read_rdd_meta(written(tmp_path, b"{" + b" " * 200))


@pytest.mark.parametrize("scala", SCALAS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_damaged_metas_are_refused_or_read(
    scala: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    changed = bytearray((SAMPLES / scala / "simulated_rdd.meta").read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        changed[data.draw(st.integers(4, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = meta_files.read_rdd_meta(written(tmp_path_factory.mktemp("meta"), bytes(changed)))
    except InputError:
        return
    assert found.n_partitions >= 0


@pytest.mark.parametrize("scala", SCALAS)
def test_operator_nodes_attributes_and_functions_are_named_and_objects_counted_most_first(scala: str) -> None:
    found = meta_files.read_plan_meta(SAMPLES / scala / "plan.meta")
    assert (found.operator, found.operator_class) == ("Project", "org.apache.spark.sql.execution.ProjectExec")
    assert [(node.depth, node.name) for node in found.nodes] == [
        (0, "Project"),
        (1, "BatchEvalPython"),
        (2, "Filter"),
        (3, "Range"),
    ]
    assert [(each.name, each.type, each.nullable) for each in found.attributes] == [
        ("id", "bigint", False),
        ("pythonUDF0", "bigint", True),
    ]
    assert [(each.name, each.evaluation, each.python) for each in found.functions] == [("double_it", "batched", "3.11")]
    assert 100 < (found.functions[0].n_bytes or 0) < found.n_bytes
    assert found.classes["org.apache.spark.sql.execution.FilterExec"] == 1
    assert found.classes["org.apache.spark.sql.types.LongType$"] == 1
    assert list(found.classes.values()) == sorted(found.classes.values(), reverse=True)


def test_a_stream_of_something_else_has_no_nodes() -> None:
    found = meta_files.read_plan_meta(SAMPLES / "hidden_in_numbers.bin")
    assert (found.operator_class, found.nodes, found.functions) == ("Protocol$Direct", [], [])
