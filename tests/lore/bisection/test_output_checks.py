"""Checks of outputs, their journal, and a search by them for one wrong row, also one that was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lore.local_spark import MARKS, dumped, local, lore_command
from workbench.core.errors import ConfigError
from workbench.lore.bisection.input_bisection import BisectionResult, BisectOptions
from workbench.lore.bisection.input_search import SearchJournal, is_fault, load_user_check
from workbench.lore.dumps.dump_folder import read_sidecar

pytestmark = MARKS
ENGINE = ("--master", "local[2]", "--driver-memory", "1g")


def test_false_and_rows_are_faults_and_anything_else_is_refused() -> None:
    assert [is_fault(one) for one in (True, False, [], ["row"])] == [False, True, False, True]
    with pytest.raises(ConfigError, match="neither true or false nor rows"):
        is_fault(1.5)
    with pytest.raises(ConfigError, match="a check looks at one side"):
        BisectOptions(sql_check="a < 0", confs_b={"spark.sql.x": "1"}).list_checks()


def test_a_check_is_a_function_of_a_module_or_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('def positive(table):\n    return table.filter(table["amount"] < 0)\n')
    assert load_user_check(f"{tmp_path / 'mine.py'}:positive").__name__ == "positive"
    assert load_user_check("json:dumps") is json.dumps
    for place, said in (
        ("json", "not a function"),
        ("json:nothing", "no such function"),
        (f"{tmp_path / 'none.py'}:f", "cannot be loaded"),
        ("no_such_module_at_all:f", "cannot be loaded"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_user_check(place)


def test_a_journal_gives_the_answers_that_were_asked_for_before(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    with SearchJournal(path, {"dump": "x"}) as journal:
        assert journal.find_answer((0, ((0, 5),))) is None
        journal.add_answer((0, ((0, 5),)), holds=True)
        journal.add_answer((0, ((0, 2),)), holds=False)
    # A kill cut the last line off.
    path.write_text(path.read_text() + '{"input": 0, "ro')
    with SearchJournal(path, {"dump": "x"}) as journal:
        assert journal.find_answer((0, ((0, 5),))) is True
        assert journal.find_answer((0, ((0, 2),))) is False
        assert journal.find_answer((0, ((2, 3),))) is None
        assert journal.n_resumed == 2
    with pytest.raises(ConfigError, match="a journal of another search"):
        SearchJournal(path, {"dump": "y"})
    path.write_text("something else")
    with pytest.raises(ConfigError, match="not a journal"):
        SearchJournal(path, {"dump": "x"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a function that is wrong on one of many rows, and nothing fails."""
    from pyspark.sql import functions

    with local() as spark:
        wrong = functions.udf(lambda k: -7.0 if k == 13_337 else float(k), "double")
        frame = spark.range(0, 20_000, 1, 3).select("id", wrong("id").alias("amount"))
        return dumped(frame, "BatchEvalPython", tmp_path_factory.mktemp("wrong") / "d", keep_output_rows=0)


def bisect(folder: Path, *arguments: str) -> BisectionResult:
    done = lore_command("bisect", folder, *ENGINE, "--json", *arguments)
    assert done.returncode in (0, 1), done.stderr
    return BisectionResult.model_validate_json(done.stdout)


def test_one_wrong_row_of_many_is_found_by_sql(folder: Path, tmp_path: Path) -> None:
    # Spark has a name of its own for the result of a Python function.
    column = read_sidecar(folder).output.columns[-1].name
    found = bisect(folder, "--sql-check", f"`{column}` < 0", "--out", str(tmp_path / "small"))
    assert found.reproduced
    assert found.minimal
    assert [one["n_rows"] for one in found.inputs] == [1]
    assert json.loads(found.inputs[0]["rows"][0]["values"])["id"] == 13_337
    assert found.steps < 100
    assert found.verified


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reproduced"),
    [
        (("--no-nulls", "id"), False),
        (("--unique", "id"), False),
        (("--row-count", "same"), False),
        (("--sql-check", "id = 77"), True),
    ],
)
def test_ready_checks_say_whether_the_output_keeps_them(
    folder: Path, arguments: tuple[str, str], reproduced: bool
) -> None:
    found = bisect(folder, *arguments)
    assert found.reproduced is reproduced
    assert ("not reproduced" in found.answer) is not reproduced


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--no-nulls", "nothing"), ("--sql-check", "nothing < 0")])
def test_a_check_of_a_column_that_is_not_there_is_refused(folder: Path, arguments: tuple[str, str]) -> None:
    done = lore_command("bisect", folder, *ENGINE, *arguments)
    assert done.returncode == 2
    assert "nothing" in done.stderr
    assert "Traceback" not in done.stderr
