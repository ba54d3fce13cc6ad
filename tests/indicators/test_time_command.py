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
from workbench.indicators.measurement.timed_programs import Program, build_program_stacks
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


def run_program(folder: Path, command: str, **settings: str) -> tuple[int, str, str]:
    variables = {"PATH": "/usr/bin:/bin", **{f"PROGRAM_{name}": value for name, value in settings.items()}}
    done = subprocess.run(
        [sys.executable, SCRIPTS / "program.py"], env={**variables, "PROGRAM_COMMAND": command}, cwd=folder,
        capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_program_tells_what_it_left_running_what_it_printed_and_what_its_shell_could_not_run(tmp_path: Path) -> None:
    orders, faults = [], []
    for command in (
        "printf 'a\\nb\\n'",
        "printf 'b\\na\\n'; sleep 20 &",
        "printf 'a\\nb\\n'; no-such-program | cat",
        "(setsid sleep 20 > /dev/null &); printf 'c\\n'",
    ):
        code, said, errors = run_program(tmp_path, command)
        assert code == 0, errors
        document = json.loads(said)
        faults.append(Program.list_faults(document))
        orders.append((document["@checks"]["output_sha256"], document["@checks"]["lines_sha256"]))
    assert orders[0] == orders[2]
    assert orders[0][0] != orders[1][0]
    assert orders[0][1] == orders[1][1] != orders[3][1]
    left = ("left 1 process(es) running when it ended",)
    assert (faults[0], faults[1], faults[3]) == ((), left, left)
    assert faults[2] == ("the shell says /bin/sh: 1: no-such-program: not found",)


def test_settings_of_a_program_are_used_and_its_failures_have_its_own_last_line(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\n")
    code, said, _ = run_program(tmp_path, "wc -l", INPUT=str(words), PREPARE="echo three >> words.txt", SHELL="none")
    assert code == 0
    assert json.loads(said)["@result"]["output_bytes"] == len("3\n")
    assert json.loads(run_program(tmp_path, "exit 1", EXIT_CODES="0,1")[1])["@checks"]["ended_with"] == 1
    assert run_program(tmp_path, "echo why >&2; exit 3")[::2] == (3, "why\n")
    assert (
        "--prepare ended with exit code 4: because" in run_program(tmp_path, "a", PREPARE="echo because >&2; exit 4")[2]
    )
    assert "--cleanup ended with exit code 1" in run_program(tmp_path, "true", CLEANUP="false")[2]


def test_memory_of_all_processes_together_stands_beside_that_of_the_largest(tmp_path: Path) -> None:
    holder = "import sys; held = bytearray(40 << 20); print(1, flush=True); sys.stdin.read()"
    # Both hold their memory before the time begins in which it is sampled.
    (tmp_path / "two.py").write_text(
        "import subprocess, sys, time\n"
        f"words, pipe = [sys.executable, '-S', '-c', {holder!r}], subprocess.PIPE\n"
        "two = [subprocess.Popen(words, stdin=pipe, stdout=pipe) for _ in range(2)]\n"
        "[one.stdout.readline() for one in two]\n"
        "time.sleep(1)\n"
        "[one.communicate() for one in two]\n"
    )
    document = json.loads(run_program(tmp_path, f"{sys.executable} -S two.py")[1])["@result"]
    assert document["tree_mib"] > 80 > document["peak_mib"] > 40


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
        (["--scan", "n=1,2", "--", "true"], "no command has this name"),
        (["--scan", "n=1,1", "--", "seq {n}"], "no values to scan"),
        (["--shell", "no-such", "--command", "a=true", "--", "true"], "no such shell"),
        (["--shell", "none", "--command", "a=true", "--", "a | b"], "this needs a shell"),
        (["--input", "no-such", "--command", "a=true", "--", "true"], "no such file"),
        (["--exit-codes", "0,300", "--command", "a=true", "--", "true"], "numbers from 0 to 255"),
        (["--margin", "1.5", "--command", "a=true", "--", "true"], "--margin"),
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


def test_a_scan_makes_an_arm_of_each_value_and_leaves_other_braces() -> None:
    stacks = build_program_stacks(session_config(commands=("make=make -j {jobs} {x}",), scan=("jobs=1,2",)))
    assert [(entry.name, entry.variables["PROGRAM_COMMAND"]) for entry in stacks.variations] == [
        ("jobs=1", "make -j 1 {x}"),
        ("jobs=2", "make -j 2 {x}"),
    ]
    both = session_config(commands=("old=a {n}", "new=b {n}", "fixed=c"), scan=("n=1,2",))
    names = [entry.name for entry in build_program_stacks(both).variations]
    assert names == ["old, n=1", "old, n=2", "new, n=1", "new, n=2", "fixed"]
