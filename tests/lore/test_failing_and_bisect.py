"""Queries that fail are dumped as they failed, and bad rows that were planted in them are found, no other.

Both parts of the tests read what the two processes of `failures` wrote, which take minutes: one file, so that several
workers of pytest make it once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.lore import failures
from workbench.lore import bisect
from workbench.lore.dumps.dump_folder import Sidecar

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3000)]

OPERATORS = {"udf": "BatchEvalPython", "division": "Project", "cast": "Project", "overflow": "HashAggregate"}
ERRORS = {
    "udf": ("ValueError", "cannot take 13577"),
    "division": ("org.apache.spark.SparkArithmeticException", "[DIVIDE_BY_ZERO] Division by zero."),
    "cast": ("org.apache.spark.SparkNumberFormatException", "[CAST_INVALID_INPUT] The value '12a' of the type"),
    "overflow": ("org.apache.spark.SparkArithmeticException", "[ARITHMETIC_OVERFLOW] long overflow."),
}
CASES = [f"{name}-{adaptive}" for name in failures.FAILING for adaptive in ("on", "off")]
FAILING = [*failures.FAILING, *failures.MORE_FAILING]
# Rows by input that the error needs.
NEEDED = {
    "udf": [1],
    "division": [1],
    "cast": [1],
    "overflow": [2],
    "join": [1, 1],
    "broadcast": [1, 1],
    "subquery": [1, 1],
    "zero_columns": [2],
    "position": [3],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return failures.outcome(tmp_path_factory.mktemp("failures"))


def _folder(made: dict[str, Any], case: str) -> Path:
    return Path(made["dump"][case]["url"].removeprefix("file:"))


def _small(made: dict[str, Any], name: str) -> Path:
    return Path(made["work"]["searches"][name]["out"].removeprefix("file:"))


def _sidecar(folder: Path) -> Sidecar:
    return Sidecar.model_validate_json((folder / "plan.json").read_bytes())


def _rows(found: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [[json.loads(row["values"]) for row in one["rows"]] for one in found["inputs"]]


class TestDumpedAsItFailed:
    @pytest.mark.parametrize("case", CASES)
    def test_the_operator_that_fails_is_named_with_its_error(self, case: str, made: dict[str, Any]) -> None:
        name = case.partition("-")[0]
        sidecar = _sidecar(_folder(made, case))
        assert sidecar.operator == OPERATORS[name]
        assert sidecar.output.error is not None
        error_class, beginning = ERRORS[name]
        assert sidecar.output.error.error_class == error_class
        assert sidecar.output.error.message.startswith(beginning)
        said = made["dump"][case]["said"]
        assert said.startswith(f"loreId {sidecar.lore_id}, {sidecar.operator}, fails on partition ")
        assert error_class in said

    @pytest.mark.parametrize("case", CASES)
    def test_only_the_partition_with_the_bad_row_is_dumped(self, case: str, made: dict[str, Any]) -> None:
        (entry,) = _sidecar(_folder(made, case)).inputs
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

    def test_every_dump_fails_in_another_process_with_the_same_class_and_message(self, made: dict[str, Any]) -> None:
        checks = made["work"]["checks"]
        assert sorted(checks) == sorted(CASES)
        assert {case: check["passed"] for case, check in checks.items()} == dict.fromkeys(CASES, True)
        for case, check in checks.items():
            error_class, beginning = ERRORS[case.partition("-")[0]]
            assert check["answer"].startswith(f"PASS (recomputed): the same error: {error_class}: {beginning}")

    def test_a_query_that_does_not_fail_is_refused(self, made: dict[str, Any]) -> None:
        assert made["dump"]["sound"]["kind"] == "ConfigError"
        assert "the query did not fail" in made["dump"]["sound"]["refused"]

    def test_of_a_leaf_that_fails_is_said_that_it_has_no_input(self, made: dict[str, Any]) -> None:
        refused = made["dump"]["leaf"]["refused"]
        assert made["dump"]["leaf"]["kind"] == "InvalidResultError"
        assert "fails in RDDScan, which cannot be dumped" in refused
        assert "it is a leaf" in refused
        assert "RuntimeError: the source is broken" in refused


class TestSearchForAnError:
    @pytest.mark.parametrize("name", FAILING)
    def test_the_rows_that_the_error_needs_are_left_and_no_others(self, name: str, made: dict[str, Any]) -> None:
        found = made["work"]["searches"][name]
        assert (found["reproduced"], found["minimal"]) == (True, True), found
        assert [one["n_rows"] for one in found["inputs"]] == NEEDED[name]
        assert [len(one["rows"]) for one in found["inputs"]] == NEEDED[name]
        assert found["inputs"][0]["n_rows_dumped"] > 1000
        assert found["steps"] < 150

    def test_the_planted_rows_are_the_ones_that_are_shown(self, made: dict[str, Any]) -> None:
        searches = made["work"]["searches"]
        assert _rows(searches["udf"]) == _rows(searches["division"]) == [[{"id": failures.BAD}]]
        assert _rows(searches["cast"]) == [[{"s": "12a"}]]
        assert _rows(searches["overflow"]) == [[{"k": 300, "sum": 9223372036854775000}] * 2]
        pair = [[{"k": 4321, "a": 2147483647}], [{"j": 4321, "b": 5}]]
        assert _rows(searches["join"]) == _rows(searches["broadcast"]) == pair
        assert searches["udf"]["inputs"][0]["rows"][0] == {
            "partition": failures.BAD_PARTITION,
            "row": failures.BAD - 10_000,
            "values": json.dumps({"id": failures.BAD}, separators=(",", ":")),
        }

    def test_inputs_of_every_kind_are_shrunk(self, made: dict[str, Any]) -> None:
        searches = made["work"]["searches"]
        kinds = {name: [one["kind"] for one in searches[name]["inputs"]] for name in ("join", "broadcast", "subquery")}
        assert kinds == {"join": ["rows", "rows"], "broadcast": ["rows", "broadcast"], "subquery": ["rows", "subquery"]}

    def test_the_smaller_dumps_pass_their_own_verification(self, made: dict[str, Any]) -> None:
        small, searches = made["work"]["small"], made["work"]["searches"]
        assert {name: searches[name]["verified"] for name in FAILING} == dict.fromkeys(FAILING, True)
        assert sorted(small) == sorted(failures.VERIFIED)
        assert [name for name, check in small.items() if not check["passed"]] == []
        for name in set(FAILING) & set(small):
            assert small[name]["answer"].startswith(
                f"PASS (recomputed): the same error: {searches[name]['looked_for']}"
            ), name

    def test_a_smaller_dump_holds_nothing_but_the_rows_that_are_left(self, made: dict[str, Any]) -> None:
        folder = _small(made, "udf")
        (entry,) = _sidecar(folder).inputs
        assert (entry.n_rows, entry.partitions, entry.n_partitions) == (1, [failures.BAD_PARTITION], 4)
        batches = [str(path.relative_to(folder)) for path in folder.rglob("*.parquet")]
        assert batches == [f"input-0/partition-{failures.BAD_PARTITION}/batch-0.parquet"]

    def test_a_search_that_is_stopped_says_that_fewer_rows_may_do(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["capped"]
        assert (found["reproduced"], found["minimal"]) == (True, False)
        assert "stopped after 6 steps" in found["answer"]
        assert 1 < found["inputs"][0]["n_rows"] < 5000

    def test_an_error_that_the_original_did_not_have_is_found_and_said_to_be_new(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["now_failing"]
        assert [one["n_rows"] for one in found["inputs"]] == [1]
        assert any("the original did not fail" in note for note in found["notes"])

    def test_an_error_that_does_not_come_up_is_said_to_be_gone(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["gone"]
        assert not found["reproduced"]
        assert "DateTimeParseException" in found["looked_for"]
        assert found["answer"] == "not reproduced: the operator does not fail here"

    def test_a_place_with_something_in_it_is_refused(self, made: dict[str, Any]) -> None:
        assert "--out" in made["work"]["searches"]["occupied"]["refused"]


class TestSearchForADifference:
    def test_the_row_that_two_parsers_of_dates_read_differently_is_found(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["dates"]
        assert (found["reproduced"], found["minimal"]) == (True, True), found
        assert _rows(found) == [[{"s": "2020-1-5", "id": failures.BAD}]]
        assert found["sides"] == {"A": "1 rows", "B": "1 rows"}
        assert [list(json.loads(row).values()) for row in found["only_b"]] == [["2020-01-05T00:00:00.000Z"]]
        assert [list(json.loads(row).values()) for row in found["only_a"]] in ([[]], [[None]])

    def test_the_smaller_dump_expects_what_side_a_gives(self, made: dict[str, Any]) -> None:
        sidecar = _sidecar(_small(made, "dates"))
        assert sidecar.confs["spark.sql.legacy.timeParserPolicy"] == "CORRECTED"
        assert sidecar.output.error is None
        assert sidecar.output.kept

    def test_a_side_that_fails_differs_from_one_that_does_not(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["dates_error"]
        assert _rows(found) == [[{"s": "2020-1-5", "id": failures.BAD}]]
        assert found["sides"]["A"] == "1 rows"
        assert "DateTimeParseException: Text '2020-1-5'" in found["sides"]["B"]

    def test_sides_that_give_the_same_leave_nothing_to_find(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["same"]
        assert (found["reproduced"], found["minimal"], found["inputs"]) == (False, None, [])
        assert found["answer"] == f"not reproduced: both sides give the same output: {failures.N_ROWS} rows"

    def test_an_operator_that_neither_fails_nor_is_compared_leaves_nothing_to_find(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["no_question"]
        assert not found["reproduced"]
        assert "--a, --b or --engine" in found["answer"]
        assert "--a" in found["answer"]


def test_the_command_in_a_process_of_its_own_finds_the_same_at_an_encoded_url(made: dict[str, Any]) -> None:
    url = _small(made, "division").as_uri()
    assert "%20" in url
    found = bisect(url, master=failures.MASTER, show=0)
    assert found.reproduced
    assert [(one["n_rows"], one["n_rows_dumped"], one["rows"]) for one in found.inputs] == [(1, 1, [])]
