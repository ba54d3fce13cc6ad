"""`workbench indicators time`: commands against each other and on environments; what it refuses. Short real runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.cli.app import main
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.session_inputs import reload_inputs
from workbench.indicators.measurement.timed_programs import build_program_stacks
from workbench.indicators.shipped.indicator_classes import SCRIPTS
from workbench.indicators.store.archive import read_session
from workbench.runs import run_folder

Said = tuple[int, str, str]
HOLD = f"{sys.executable} -S -c 'held = bytearray(100 << 20)'"
FREE = f"{sys.executable} -S -c 'held = bytearray(1)'"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    # Copies of byte code take seconds, and have tests of their own.
    monkeypatch.setattr(sessions, "equalize_conditions", lambda variants, *_, **__: list(variants))

    def run(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(["indicators", "time", *map(str, arguments)])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.mark.live
def test_a_command_that_holds_memory_is_told_and_the_session_can_be_resumed(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    code, said, errors = command(
        "--out", tmp_path, "--rounds", 6, "--json", "--command", f"holding={HOLD}", "--", f"{FREE} | cat"
    )
    assert code == 0, errors
    document = json.loads(said)
    found = {(row["metric"], row["arm"]): row for row in document["effects"]}
    memory = found["Program.peak_mib", "holding"]
    assert memory["verdict"] == "SLOWER"
    assert memory["ratio"] < 0.3
    folder = Path(document["folder"])
    run, session = run_folder.load_run(folder), read_session(folder)
    config = session_config(**run.record["config"])
    again = reload_inputs(folder, session, config, None, lambda *_: None, offline=True)
    assert [case.label for case in again.cases] == ["Program"]
    assert again.environment["PROGRAM_FOLDER"] == str(Path.cwd())
    assert again.variants[1].environment == {"PROGRAM_COMMAND": HOLD}


def test_memory_is_that_of_the_command_and_not_of_the_python_that_starts_it(tmp_path: Path) -> None:
    documents = []
    for text in ("true", FREE):
        variables = {"PROGRAM_COMMAND": text, "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [sys.executable, SCRIPTS / "program.py"], env=variables, cwd=tmp_path, capture_output=True
        )
        documents.append(json.loads(done.stdout)["@result"]["peak_mib"])
    assert documents[0] < 5 < documents[1]


@pytest.mark.live
def test_one_command_runs_on_each_environment_and_a_failing_one_has_no_value(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    given = ("--out", tmp_path, "--rounds", 2, "--json", "--python", f"here={sys.prefix}")
    code, said, _ = command(*given, "--", "python", "-c", "import sys; print(sys.prefix)")
    assert code == 1  # of two rounds nothing is decided
    document = json.loads(said)
    results = sorted(Path(document["folder"]).glob("inspections/*/results/*/result"))
    sizes = {json.loads(path.read_text())["stdout"]["@result"]["output_bytes"] for path in results}
    assert sizes == {len(sys.prefix) + 1}
    _, said, _ = command(*given, "--", "exit 3")
    results = sorted(Path(json.loads(said)["folder"]).glob("inspections/*/results/*/result"))
    assert {json.loads(path.read_text())["exit_code"] for path in results} == {3}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--", "true"], "nothing to compare with"),
        ([], "nothing to compare with"),
        (["--command", "true", "--", "false"], "not a command"),
        (["--command", "a=true", "--command", "a=false"], "two commands of one name"),
        (["--python", "here=/usr", "--command", "a=true", "--", "true"], "compared by one command"),
    ],
)
def test_wrong_use_is_refused(command: Callable[..., Said], given: list[str], told: str, tmp_path: Path) -> None:
    code, _, errors = command("--out", tmp_path, *given)
    assert code == 2
    assert told in errors
    assert not list(tmp_path.iterdir())


def test_a_command_may_hold_an_equals_sign_and_becomes_part_of_its_arms_key() -> None:
    stacks = build_program_stacks(session_config(commands=("one=A=1 sh -c true", "two=A=2 sh -c true")))
    assert [entry.variables["PROGRAM_COMMAND"] for entry in stacks.variations] == [
        "A=1 sh -c true",
        "A=2 sh -c true",
    ]
