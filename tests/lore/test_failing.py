"""A query that fails: the operator and the partition it fails on are found, and the dump fails the same elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.lore import failures
from workbench.lore.sidecar import Sidecar

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3000)]

OPERATORS = {"udf": "BatchEvalPython", "division": "Project", "cast": "Project", "overflow": "HashAggregate"}
ERRORS = {
    "udf": ("ValueError", "cannot take 13577"),
    "division": ("org.apache.spark.SparkArithmeticException", "[DIVIDE_BY_ZERO] Division by zero."),
    "cast": ("org.apache.spark.SparkNumberFormatException", "[CAST_INVALID_INPUT] The value '12a' of the type"),
    "overflow": ("org.apache.spark.SparkArithmeticException", "[ARITHMETIC_OVERFLOW] long overflow."),
}
CASES = [f"{name}-{adaptive}" for name in failures.FAILING for adaptive in ("on", "off")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    yield from failures.outcome(lambda: tmp_path_factory.mktemp("failures"))


def _folder(made: dict[str, Any], case: str) -> Path:
    return Path(made["dump"][case]["url"].removeprefix("file:"))


def _sidecar(made: dict[str, Any], case: str) -> Sidecar:
    return Sidecar.model_validate_json((_folder(made, case) / "plan.json").read_bytes())


@pytest.mark.parametrize("case", CASES)
def test_the_operator_that_fails_is_named_with_its_error(case: str, made: dict[str, Any]) -> None:
    name = case.partition("-")[0]
    sidecar = _sidecar(made, case)
    assert sidecar.operator == OPERATORS[name]
    assert sidecar.output.error is not None
    error_class, beginning = ERRORS[name]
    assert sidecar.output.error.error_class == error_class
    assert sidecar.output.error.message.startswith(beginning)
    said = made["dump"][case]["said"]
    assert said.startswith(f"loreId {sidecar.lore_id}, {sidecar.operator}, fails on partition ")
    assert error_class in said


@pytest.mark.parametrize("case", CASES)
def test_only_the_partition_with_the_bad_row_is_dumped(case: str, made: dict[str, Any]) -> None:
    (entry,) = _sidecar(made, case).inputs
    (partition,) = entry.partitions
    assert 0 < entry.n_rows < failures.N_ROWS
    rows = pl.read_parquet(_folder(made, case) / f"input-0/partition-{partition}/*.parquet")
    assert rows.height == entry.n_rows
    if case.startswith("cast"):
        assert "12a" in rows["s"].to_list()
    elif case.startswith("overflow"):
        assert rows.filter(pl.col("k") == 300)["sum"].to_list().count(9223372036854775000) == 2
    else:
        assert partition == failures.BAD_PARTITION
        assert failures.BAD in rows["id"].to_list()


def test_every_dump_fails_in_another_process_with_the_same_class_and_message(made: dict[str, Any]) -> None:
    checks = made["work"]["checks"]
    assert sorted(checks) == sorted(CASES)
    assert {case: check["passed"] for case, check in checks.items()} == dict.fromkeys(CASES, True)
    for case, check in checks.items():
        error_class, beginning = ERRORS[case.partition("-")[0]]
        assert check["answer"].startswith(f"PASS: the same error: {error_class}: {beginning}")


def test_a_query_that_does_not_fail_is_refused(made: dict[str, Any]) -> None:
    assert made["dump"]["sound"]["kind"] == "ConfigError"
    assert "the query did not fail" in made["dump"]["sound"]["refused"]


def test_of_a_leaf_that_fails_is_said_that_it_has_no_input(made: dict[str, Any]) -> None:
    refused = made["dump"]["leaf"]["refused"]
    assert made["dump"]["leaf"]["kind"] == "InvalidResultError"
    assert "fails in RDDScan, which cannot be dumped" in refused
    assert "it is a leaf" in refused
    assert "RuntimeError: the source is broken" in refused
