"""`workbench indicators recommend`: answers, exit codes, what is written, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.indicators.recommendation import making
from tests.indicators.recommendation.making import NAMES, NUMPY
from workbench.cli.app import main
from workbench.indicators.stacks import stack_sets
from workbench.indicators.tables import EXCLUDED, JUSTIFICATIONS, PROPOSALS, RECOMMENDATIONS

BASE, OLD, NEW = NAMES["2.2.6"], NAMES["1.24.4"], NAMES["2.4.6"]
Said = tuple[int, str, str]
Command = Callable[..., Said]


@pytest.fixture
def recommend(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> Said:
        code: object = 0
        try:
            main(["indicators", "recommend", *map(str, arguments)])
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        assert isinstance(code, int)
        return code, said.out, said.err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A session with its locks, in which the fast sin is wrong."""
    made = making.archive(
        tmp_path / "session", making.numpy_plan(), making.NUMPY_LOGS, failed_checks={(OLD, "Sin"): making.ULP}
    )
    making.stack_set(list(NUMPY.values())).write(made / stack_sets.FILE_NAME)
    return made


def test_the_answer_comes_first_and_the_tables_are_written(recommend: Command, folder: Path) -> None:
    path = folder / "requirements.txt"
    code, out, _ = recommend(folder, "--mix", "loop=0.5,matmul=0.5", "--requirements", path)
    assert (code, path.read_text()) == (0, NUMPY["2.4.6"].lock)
    assert f"written: {path}" in out
    assert out.splitlines()[0].startswith(f"Use {NEW}: 5.")
    tables = folder / "tables"
    assert RECOMMENDATIONS.read(tables).filter(RECOMMENDATIONS.read(tables)["recommended"])["stack"].to_list() == [NEW]
    assert all(str(table.path(tables)) in out for table in (RECOMMENDATIONS, EXCLUDED, JUSTIFICATIONS, PROPOSALS))
    assert JUSTIFICATIONS.read(tables)["number"][0] == 1


def test_what_is_left_out_stands_there_with_its_reason(recommend: Command, folder: Path) -> None:
    code, out, _ = recommend(folder, "--mix", "sin=0.8,matmul=0.2")
    assert code == 0
    assert "\nEquivalent within 2 %: keep " in out
    assert f"  {OLD}: wrong answers: Sin: {making.ULP} (inspections/inspection-sin-" in out


def test_without_locks_at_hand_it_says_what_to_give(recommend: Command, folder: Path, tmp_path: Path) -> None:
    (folder / stack_sets.FILE_NAME).rename(tmp_path / "elsewhere.json")
    code, _, err = recommend(folder, "--requirements", tmp_path / "r.txt")
    assert code == 2
    assert "give --stacks FILE" in err
    assert recommend(folder, "--requirements", tmp_path / "r.txt", "--stacks", tmp_path / "elsewhere.json")[0] == 0
    others = making.stack_set([NUMPY["2.0.2"]])
    others.write(tmp_path / "others.json")
    code, _, err = recommend(folder, "--requirements", tmp_path / "r.txt", "--stacks", tmp_path / "others.json")
    assert (code, "not in the stacks file" in err) == (2, True)


def test_what_is_proposed_can_be_measured(recommend: Command, folder: Path, tmp_path: Path) -> None:
    more = making.stack({"numpy": "2.4.7"})
    making.stack_set([*NUMPY.values(), more]).write(folder / stack_sets.FILE_NAME)
    path = tmp_path / "next.json"
    assert "1 solved stack(s) were not measured: --predict" in recommend(folder)[1]
    code, out, _ = recommend(folder, "--mix", "loop=1", "--predict", "--next", 3, "--next-stacks", path)
    assert code == 0
    assert "Measure next, together with the baseline" in out
    names = [stack.name for stack in stack_sets.read_stack_set(path).stacks]
    assert names[0] == BASE
    assert names[1:] == PROPOSALS.read(folder / "tables")["stack"].to_list()
    assert more.name in names


def test_an_invalid_session_or_nothing_that_is_left_recommends_nothing_with_code_1(
    recommend: Command, folder: Path, tmp_path: Path
) -> None:
    code, out, _ = recommend(folder, "--require", "pandas>=2")
    assert code == 1
    assert out.startswith("Nothing is recommended: every stack was excluded")
    assert out.count("pandas is missing; pandas>=2 is required") == 5
    session = making.numpy_plan().model_copy(update={"design": "blocks"})
    folder = making.archive(tmp_path / "blocks", session, making.NUMPY_LOGS)
    path = tmp_path / "r.txt"
    code, out, _ = recommend(folder, "--requirements", path)
    assert code == 1
    assert out.startswith("Nothing is recommended: measured in blocks")
    assert not path.exists()
    code, out, _ = recommend(folder, "--json")
    assert (code, json.loads(out)["recommended"]) == (1, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mix", "fft=1"], "no such metric"),
        (["--type", "fastest"], "where: --type"),
        (["--type", "security"], "give --vulnerabilities FILE"),
        (["--next-stacks", "next.json"], "where: --next-stacks"),
        (["--unit", "nope"], "not a unit"),
        (["--session", "1999"], "no such session"),
        (["--predict", "--stacks", "nothing.json"], "cannot read the stacks"),
        (["--database", "nothing.db"], "nothing.db"),
        (["--database", "postgresql://ann:hunter22@h/x"], "command line contains a password"),
    ],
)
def test_wrong_use_is_code_2_with_the_reason(recommend: Command, folder: Path, arguments: list[str], said: str) -> None:
    code, out, err = recommend(folder, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "hunter22" not in err


def test_a_users_unit_takes_part_and_a_broken_one_is_named(recommend: Command, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from workbench.indicators.recommendation.unit_pipeline import Step, Stride\n"
        "class Twos(Stride):\n"
        "    def run(self, stack):\n"
        "        return stack.packages['numpy'].startswith('2.0')\n"
        "class Broken(Step):\n"
        "    def run(self, stack):\n"
        "        return float('nan'), []\n"
    )
    code, out, _ = recommend(folder, "--unit", f"{path}:Twos")
    assert code == 0
    assert out.count("denied by Twos") == 3
    code, _, err = recommend(folder, "--unit", f"{path}:Broken")
    assert code == 2
    assert "unit Broken" in err
    assert "not a number" in err


def test_a_users_unit_may_ask_the_database(recommend: Command, folder: Path, tmp_path: Path) -> None:
    from workbench.indicators.store.archive_sync import sync_sessions
    from workbench.indicators.store.sql_database import open_database

    path = tmp_path / "indicators.db"
    sync_sessions([folder], open_database(path))
    unit = tmp_path / "mine.py"
    unit.write_text(
        "from workbench.indicators.recommendation.unit_pipeline import Wrap\n"
        "class Named(Wrap):\n"
        "    query = 'sessions'\n"
        "    def run(self, stack):\n"
        "        return [stack.info(f'sessions: {self.observations.height}')]\n"
        "class Asked(Wrap):\n"
        "    query = 'SELECT count(*) AS n FROM run'\n"
        "    def run(self, stack):\n"
        "        return [stack.info(f\"runs: {self.observations['n'][0]}\")]\n"
        "class Own(Wrap):\n"
        "    query = 'SELECT count(DISTINCT stack) AS n FROM runs'\n"
        "    def run(self, stack):\n"
        "        return [stack.info(f\"stacks of the session: {self.observations['n'][0] > 1}\")]\n"
        "class Wrong(Own):\n"
        "    query = 'SELECT colour FROM runs'\n"
    )
    units = [word for name in ("Named", "Asked", "Own") for word in ("--unit", f"{unit}:{name}")]
    code, out, _ = recommend(folder, "--database", path, "--json", *units)
    said = {one["message"] for one in json.loads(out)["justification"]}
    assert code == 0
    assert {"sessions: 1", "runs: 240", "stacks of the session: True"} <= said
    code, _, err = recommend(folder, "--database", path, "--unit", f"{unit}:Wrong")
    assert (code, "the query failed" in err, "colour" in err) == (2, True, True)


def test_tables_go_elsewhere_when_asked_and_a_place_that_cannot_be_written_is_told(
    recommend: Command, folder: Path, tmp_path: Path
) -> None:
    assert recommend(folder, "--out", tmp_path / "there")[0] == 0
    assert RECOMMENDATIONS.path(tmp_path / "there").is_file()
    assert not (folder / "tables").exists()
    (tmp_path / "file").write_text("")
    code, _, err = recommend(folder, "--out", tmp_path / "file" / "tables")
    assert code == 2
    assert "choose --out DIR" in err


def test_texts_of_scripts_cannot_steer_the_terminal(recommend: Command, tmp_path: Path) -> None:
    wrong = {(OLD, "Sin"): "digest is \x1b[2Jx\u202e"}
    folder = making.archive(tmp_path / "session", making.numpy_plan(), making.NUMPY_LOGS, failed_checks=wrong)
    _, out, _ = recommend(folder)
    assert "wrong answers" in out
    assert not {"\x1b", "\u202e"} & set(out)
