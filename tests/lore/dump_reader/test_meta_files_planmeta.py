"""plan.meta says what it holds, and is never loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import InputError
from workbench.lore.dump_reader import meta_files

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("scala", ["scala_2.12", "scala_2.13"])
def test_operator_nodes_attributes_and_functions_are_named(scala: str) -> None:
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


@pytest.mark.parametrize("scala", ["scala_2.12", "scala_2.13"])
def test_objects_are_counted_by_class_most_first(scala: str) -> None:
    found = meta_files.read_plan_meta(SAMPLES / scala / "plan.meta")
    assert found.classes["org.apache.spark.sql.execution.FilterExec"] == 1
    assert found.classes["org.apache.spark.sql.types.LongType$"] == 1
    assert list(found.classes.values()) == sorted(found.classes.values(), reverse=True)


def test_a_stream_of_something_else_has_no_nodes() -> None:
    found = meta_files.read_plan_meta(SAMPLES / "hidden_in_numbers.bin")
    assert (found.operator_class, found.nodes, found.functions) == ("Protocol$Direct", [], [])


def test_a_plan_that_kryo_wrote_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.meta"
    path.write_bytes(b"\x01\x02\x03")
    with pytest.raises(InputError, match="not Java serialization"):
        meta_files.read_plan_meta(path)
