"""`workbench indicators run`: what it measures, prints, keeps, refuses; exit codes. Real runs of a few milliseconds."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.indicators.stacks.making import Made, local_index, own_settings
from workbench.cli.app import main
from workbench.indicators.store.archive import read_results, read_session
from workbench.indicators.tables import EFFECTS, JUDGEMENTS, RUNS
from workbench.runs import run_folder

Said = tuple[int, str, str]
Command = Callable[..., Said]
INDICATOR = """
from typing import ClassVar
from workbench.indicators.contract.indicator import Indicator, check, parameter, result

class Fixed(Indicator):
    \"\"\"Says the same in every run of a stack.\"\"\"

    script: ClassVar = '''
import json, os
try:
    import one
    factor = 1.0 if one.VERSION.startswith("1") else 2.0
except ImportError:
    factor = 1.0
# A little apart from run to run, as all that is measured.
elapsed = factor * float(os.environ["PI_SIZE"]) * (1 + os.getpid() % 7 / 1e4)
print(json.dumps({"name": "Fixed", "@parameters": {"size": int(os.environ["PI_SIZE"])},
                  "@result": {"elapsed_ms": elapsed}, "@checks": {"wrong": 0}}))
'''
    size: int = parameter(10, ge=1)
    elapsed_ms: float = result(unit="ms", better="lower")
    wrong: int = check(equals=0)
"""
WHEELS = [Made("one", "1.0"), Made("one", "2.0")]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(["indicators", "run", *map(str, arguments)])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def indicator(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(INDICATOR)
    return f"{tmp_path / 'mine.py'}:Fixed"


@pytest.fixture
def two() -> list[str]:
    return ["--python", f"one={sys.executable}", "--python", f"two={sys.executable}"]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package index of two wheels, and caches of the test's own."""
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("UV_DEFAULT_INDEX", local_index(tmp_path / "index", WHEELS).as_uri())


def folder_of(out: Path) -> Path:
    (found,) = (out / "indicators").iterdir()
    return found


@pytest.mark.live
def test_two_environments_that_are_there(command: Command, two: list[str], indicator: str, tmp_path: Path) -> None:
    code, out, err = command(*two, "--indicator", indicator, "--rounds", "5,6", "--seed", 3, "--out", tmp_path)
    assert code == 0, out + err
    folder = folder_of(tmp_path)
    assert "baseline: one; 5 round(s), 15 runs, 0 without values; ended: decided" in out
    assert f"written: {folder}" in out
    assert re.search(r"round 5 of at most 6: 3 runs, at most \d+ s left; 0 FASTER, 0 SLOWER, 1 SAME, 0 UNDECIDED", err)
    run = run_folder.load_run(folder)
    assert (run.status, run.verdict, run.run_id) == ("succeeded", "valid", read_session(folder).session_id)
    assert run.answer.startswith("two, Fixed: within 2 % of one in wall time, 1.000 ")
    assert run.read_table(RUNS).height == 15
    assert run.read_table(EFFECTS)["verdict"].to_list() == ["SAME", "SAME"]
    assert run.read_table(JUDGEMENTS)["verdict"].to_list() == ["valid"]


@pytest.mark.live
def test_json_is_one_document_and_nothing_else(
    command: Command, two: list[str], indicator: str, tmp_path: Path
) -> None:
    code, out, _ = command(*two, "--indicator", indicator, "--rounds", "5", "--out", tmp_path, "--json")
    found = json.loads(out)
    assert (code, found["judgement"]["verdict"], found["baseline"]) == (0, "valid", "one")
    assert {row["arm"] for row in found["effects"]} == {"two", "control"}
    assert found["folder"] == str(folder_of(tmp_path))


@pytest.mark.live
@pytest.mark.usefixtures("index")
def test_stacks_that_are_solved_on_the_spot(command: Command, indicator: str, tmp_path: Path) -> None:
    stacks = ["--stack", "one==2.0", "--stack", "one==1.0"]
    code, out, err = command(*stacks, "--indicator", indicator, "--rounds", 5, "--out", tmp_path / "out")
    assert code == 0, out + err
    row = next(line for line in out.splitlines() if line.startswith("Fixed") and "one 1.0" in line)
    assert float(row.split()[3]) == pytest.approx(2.0, rel=0.01)
    assert "FASTER" in row.split()
    folder = folder_of(tmp_path / "out")
    session = read_session(folder)
    assert [arm.name for arm in session.arms] == ["one 2.0", "one 1.0", "control"]
    assert session.arms[2].stack_key == session.arms[0].stack_key
    assert session.arms[0].packages == {"one": "2.0"}
    assert (folder / "stacks.json").is_file()
    # Taken up again from the folder alone: a result that is lost is measured once more.
    lost = next(folder.glob("inspections/*/results/3/result"))
    lost.unlink()
    code, out, err = command("--resume", folder)
    assert code == 0, out + err
    assert lost.is_file()
    assert "15 runs at most, 12 done already" in err


@pytest.mark.live
@pytest.mark.usefixtures("index")
def test_several_specifications_are_several_stacks(command: Command, tmp_path: Path) -> None:
    script = """
import json, one
print(json.dumps({"name": "PiHelloWorld", "component": "one", "@parameters": {"HELLO_WORLD_REPS": 1},
                  "@result": {"elapsed": float(one.VERSION)}}))
"""
    folder = tmp_path / "specifications"
    for name, wheel in zip(("first", "second"), WHEELS, strict=True):
        lock = {"default": {"one": {"version": f"=={wheel.version}", "hashes": [f"sha256:{wheel.sha256}"]}}}
        specified(folder, name, script=script, python={"requirements_locked": lock})
    code, out, err = command("--specification", folder, "--out", tmp_path / "out")
    assert code == 0, out + err
    (row,) = [line.split() for line in out.splitlines() if " second " in line]
    assert row[2] == "0.500"
    assert "SLOWER" in row


def specified(folder: Path, name: str, **changes: object) -> Path:
    """A specification of a package that is never reached: what is wrong is refused before."""
    lock = {"default": {"one": {"version": "==1.0", "hashes": ["sha256:" + "0" * 64]}}}
    path = folder / f"{name}.json"
    folder.mkdir(exist_ok=True)
    found = {"script": "print(1)", "batch_size": 5, "identifier": name, "python": {"requirements_locked": lock}}
    path.write_text(json.dumps({**found, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch_size": 6}, "specifications of different rounds"),
        ({"run": {"requests": {"cpu": "2"}}}, "specifications of different threads"),
        ({"run": {"requests": {"memory": "2Gi"}}}, "specifications of different memory"),
        ({"environment": [{"name": "N", "value": "2"}]}, "specifications of different environments"),
        ({"script": "print(2)", "batch_size": 7}, "specifications of different scripts, rounds"),
        ({"identifier": "first"}, "two stacks of one name"),
    ],
)
def test_specifications_of_one_session_differ_in_their_locks_alone(
    command: Command, tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    folder = tmp_path / "specifications"
    specified(folder, "first")
    specified(folder, "second", **changes)
    code, _, err = command("--specification", folder, "--out", tmp_path / "out")
    assert (code, told in err) == (2, True), err
    assert not (tmp_path / "out").exists()


def test_what_the_user_sets_counts_for_all_specifications(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "specifications"
    specified(folder, "first")
    specified(folder, "second", batch_size=6)
    code, _, err = command("--specification", folder, "--out", tmp_path / "out")
    assert (code, "give --rounds for all of them" in err) == (2, True)
    code, _, err = command("--specification", folder, "--rounds", 5, "--out", tmp_path / "out")
    assert (code, "two stacks are the same" in err) == (2, True), err


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "PI_THREADS"])
def test_a_specification_cannot_set_other_threads_than_it_is_measured_with(
    command: Command, tmp_path: Path, name: str
) -> None:
    path = specified(tmp_path, "threads", environment=[{"name": name, "value": "4"}])
    code, _, err = command("--specification", path, "--out", tmp_path / "out")
    assert (code, f"{name}=4" in err, "--threads" in err) == (2, True, True), err
    assert not (tmp_path / "out").exists()


@pytest.mark.live
@pytest.mark.usefixtures("index")
def test_two_equal_stacks_and_one_without_a_solution_are_refused(command: Command, tmp_path: Path) -> None:
    code, _, err = command("--stack", "one==1.0", "--stack", "one<2", "--indicator", "hello", "--out", tmp_path / "out")
    assert (code, "two stacks are the same" in err) == (2, True)
    code, _, err = command("--stack", "one==9.9", "--indicator", "hello", "--out", tmp_path / "out")
    assert (code, "--stack" in err) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.live
@pytest.mark.usefixtures("index")
def test_a_specification_is_run_with_its_script_lock_and_files(command: Command, tmp_path: Path) -> None:
    script = """
import json, os, one
text = open("data/more.txt").read()
print(json.dumps({"name": "PiHelloWorld", "component": "one", "@parameters": {"HELLO_WORLD_REPS": 1},
                  "@result": {"elapsed": float(text) + float(os.environ["MORE"])}}))
"""
    lock = {"default": {"one": {"version": "==2.0", "hashes": [f"sha256:{WHEELS[1].sha256}"]}}}
    more = {"environment": [{"name": "MORE", "value": "0.25"}], "files": [{"path": "data/more.txt", "content": "0.5"}]}
    more |= {"base": "an/image", "script": script, "run": {"requests": {"cpu": "1", "memory": "512Mi"}}}
    path = specified(tmp_path, "old-hello", **more, python={"requirements": {}, "requirements_locked": lock})
    code, _, err = command("--specification", path, "--out", tmp_path / "out")
    assert (code, "--ignore base" in err) == (2, True)
    code, out, err = command("--specification", path, "--ignore", "base", "--out", tmp_path / "out")
    assert code == 0, out + err
    assert "ignored on request: base" in out
    folder = folder_of(tmp_path / "out")
    session = read_session(folder)
    assert (session.looks, session.threads, session.memory_bytes) == ((5,), 1, 512 << 20)
    there = [one for *_, one in read_results(folder, session)]
    assert [(one.workbench.status, one.metric_value("elapsed")) for one in there] == [("ok", 0.75)] * 10
    next(folder.glob("inspections/*/results/2/result")).unlink()
    assert command("--resume", folder)[0] == 0
    assert len(list(read_results(folder, session))) == 10


@pytest.mark.live
def test_a_session_in_which_nothing_worked_is_measured_but_says_so(
    command: Command, two: list[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(INDICATOR.replace("import json, os", "raise SystemExit('no GPU here')", 1))
    code, out, _ = command(*two, "--indicator", f"{tmp_path / 'bad.py'}:Fixed", "--rounds", 6, "--out", tmp_path)
    assert code == 1
    assert "6 without values" in out
    assert "one, Fixed: 2 run(s) without values: exit code" in out
    assert "given up after 2 runs" in out
    assert run_folder.load_run(folder_of(tmp_path)).verdict == "invalid"


@pytest.mark.live
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--python", f"a={sys.executable}"], "nothing to measure"),
        (["--indicator", "hello"], "exactly one kind of stacks is needed"),
        (["--indicator", "surprise", "--python", f"a={sys.executable}"], "no indicator of this name"),
        (["--indicator", "hello", "--stacks", "missing.json"], "cannot read the stacks"),
        (["--indicator", "hello", "--python", "a=x", "--alpha", "2"], "where: --alpha"),
        (["--indicator", "hello", "--python", "a=x", "--backend", "cloud"], "no such backend"),
        (["--resume", "missing"], "not a run folder"),
        (["--resume", "missing", "--threads", "2"], "where: --resume"),
        (["--ignore", "base"], "for --specification"),
        (["--specification", "missing.json", "--stack", "x==1"], "its own lock"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_made(
    command: Command, tmp_path: Path, arguments: list[str], told: str
) -> None:
    out = [] if "--resume" in arguments else ["--out", str(tmp_path / "out")]
    code, printed, err = command(*arguments, *out)
    assert (code, printed) == (2, "")
    assert told in err
    assert not (tmp_path / "out").exists()
    run = run_folder.start_run("indicators", folder=tmp_path)
    assert "session.json" in command("--resume", run.folder)[2], "a folder without a session"
