"""`lore bisect`: bad rows that were planted are found, all of them and no other, and the smaller dump proves itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.lore import failures
from workbench.cli import app
from workbench.errors import ConfigError
from workbench.lore import bisect
from workbench.lore.questions import without_values
from workbench.lore.sidecar import Sidecar

spark = [pytest.mark.spark, pytest.mark.timeout(3000)]
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
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    yield from failures.outcome(lambda: tmp_path_factory.mktemp("failures"))


def _rows(found: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [[json.loads(row["values"]) for row in one["rows"]] for one in found["inputs"]]


class TestFailing:
    pytestmark = spark

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
            assert small[name]["answer"].startswith(f"PASS: the same error: {searches[name]['looked_for']}"), name

    def test_a_smaller_dump_holds_nothing_but_the_rows_that_are_left(self, made: dict[str, Any]) -> None:
        folder = Path(made["work"]["searches"]["udf"]["out"].removeprefix("file:"))
        sidecar = Sidecar.model_validate_json((folder / "plan.json").read_bytes())
        (entry,) = sidecar.inputs
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


class TestDiffering:
    pytestmark = spark

    def test_the_row_that_two_parsers_of_dates_read_differently_is_found(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["dates"]
        assert (found["reproduced"], found["minimal"]) == (True, True), found
        assert _rows(found) == [[{"s": "2020-1-5", "id": failures.BAD}]]
        assert found["sides"] == {"A": "1 rows", "B": "1 rows"}
        assert (found["only_a"], found["only_b"]) == (["{}"], ['{"c0":"2020-01-05T00:00:00.000Z"}'])

    def test_the_smaller_dump_expects_what_side_a_gives(self, made: dict[str, Any]) -> None:
        folder = Path(made["work"]["searches"]["dates"]["out"].removeprefix("file:"))
        sidecar = Sidecar.model_validate_json((folder / "plan.json").read_bytes())
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
        assert found["answer"] == f"not reproduced: both sides give the same: {failures.N_ROWS} rows"

    def test_an_operator_that_neither_fails_nor_is_compared_leaves_nothing_to_find(self, made: dict[str, Any]) -> None:
        found = made["work"]["searches"]["no_question"]
        assert not found["reproduced"]
        assert "does not fail" in found["answer"]
        assert "--a" in found["answer"]


@pytest.mark.spark
@pytest.mark.timeout(3000)
def test_the_command_in_a_process_of_its_own_finds_the_same(made: dict[str, Any]) -> None:
    path = made["work"]["searches"]["division"]["out"].removeprefix("file:")
    found = bisect(path, master=failures.MASTER, show=0)
    assert found.reproduced
    assert [(one["n_rows"], one["n_rows_dumped"], one["rows"]) for one in found.inputs] == [(1, 1, [])]


def test_an_option_that_there_is_not_is_refused_before_a_process_is_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown option of lore bisect"):
        bisect(tmp_path, repeat=3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engine", "gpu"], "--engine"),
        (["--driver-memory", "lots"], "--driver-memory"),
        (["--a", "no setting"], "--a"),
        ([], "there is no dump"),
    ],
)
def test_wrong_use_ends_with_code_2_and_names_the_option(arguments: list[str], named: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["lore", "bisect", str(tmp_path / "nowhere"), *arguments])
    text = f"{result.output} {result.exception}"
    assert named in text
    assert result.exit_code == 2 or getattr(result.exception, "exit_code", None) == 2


def test_messages_that_differ_in_values_alone_are_alike_without_them() -> None:
    one, other = "The value '12a' cannot be cast, row 17", "The value 'x y' cannot be cast, row 4"
    assert without_values(one) == without_values(other)
    assert without_values(one) != without_values("The value '12a' can be cast, row 17")
