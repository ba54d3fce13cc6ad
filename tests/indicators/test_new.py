"""`workbench indicators new`: what it writes runs as it is; a new indicator needs a class and one call."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from workbench.cli.app import main
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.indicators.command import app
from workbench.indicators.contract.indicator import Indicator, check, parameter, result
from workbench.indicators.contract.new_indicator import try_indicator, write_skeleton
from workbench.indicators.measurement.launcher_client import THREAD_VARIABLES
from workbench.indicators.shipped.indicator_classes import load_indicator

HANG_S = 300


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `workbench indicators new` with these arguments."""
    try:
        code = main(["indicators", "new", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    captured = capsys.readouterr()
    return int(code or 0), captured.out, captured.err


@pytest.mark.parametrize(
    ("name", "stem", "title"),
    [
        ("FftSize", "pi_fft_size", "FftSize"),
        ("fft-size", "pi_fft_size", "FftSize"),
        ("fft2d", "pi_fft2d", "Fft2d"),
        ("FFT", "pi_fft", "Fft"),
    ],
)
def test_a_name_becomes_a_class_and_files(tmp_path: Path, name: str, stem: str, title: str) -> None:
    made = write_skeleton(name, tmp_path / "deep" / "down")
    assert made.name == title
    assert [path.name for path in made.paths] == [f"{stem}.py", f"{stem}_script.py", f"test_{stem}.py"]
    assert load_indicator(made.reference).__name__ == title


@pytest.mark.live
def test_the_skeleton_runs_as_it_is(tmp_path: Path) -> None:
    made = write_skeleton("FftSize", tmp_path)
    found = try_indicator(load_indicator(made.reference), {"n": 50})
    assert found.failed_checks == ()
    assert found.results["rate"] == pytest.approx(50 / float(found.results["elapsed_ms"] or 0) * 1e3)


def run_written_test(path: Path) -> str:
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    given: dict[str, Any] = {"cwd": path.parent, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(call, timeout=HANG_S, check=False, **given)
    assert (done.returncode == 0) == ("failed" not in done.stdout), done.stdout
    return str(done.stdout)


@pytest.mark.live
def test_the_written_test_passes_as_it_is_and_fails_when_the_work_is_wrong(tmp_path: Path) -> None:
    _, script, test = write_skeleton("FftSize", tmp_path).paths
    assert "2 passed" in run_written_test(test)
    script.write_text(script.read_text().replace("return sorted(numbers)", "return list(numbers)"))
    assert "1 failed, 1 passed" in run_written_test(test)
    script.write_text(script.read_text().replace('"20"', '"21"'))
    assert "2 failed" in run_written_test(test)


def test_the_command_prints_what_it_wrote_and_commands_for_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(["fft", "--out", str(tmp_path / "a b")], capsys)
    assert (code, err) == (0, "")
    assert "Fft is declared in" in out
    steps = [line.strip() for line in out.splitlines() if line.startswith("    ")]
    assert len(steps) == 3
    script, test, run = map(shlex.split, steps)
    assert Path(script[1]).is_file()
    assert Path(test[-1]).is_file()
    assert load_indicator(run[run.index("--indicator") + 1]).__name__ == "Fft"
    assert run[:2] == ["workbench", "indicators"]
    told = CliRunner().invoke(app, [run[2], "--help"]).output
    assert all(word in told for word in run if word.startswith("--"))


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_pi_fft.py").write_text("mine")
    code, out, err = said(["fft", "--out", str(tmp_path)], capsys)
    assert (code, out) == (2, "")
    assert "none is overwritten" in err
    assert "test_pi_fft.py" in err
    assert [path.name for path in tmp_path.iterdir()] == ["test_pi_fft.py"]
    assert (tmp_path / "test_pi_fft.py").read_text() == "mine"
    with pytest.raises(InputError, match="cannot write the skeleton"):
        write_skeleton("fft", tmp_path / "test_pi_fft.py")


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ("not a name for an indicator", ["", "2fast", "a b", "../up", "a--b", "-", "x" * 41, "größe", "a;b", "a.py"]),
        (r"a Python keyword[\s\S]*such as My", ["none", "None", "true", "FALSE", "class", "import", "lambda"]),
        ("an indicator of this name exists", ["sort", "GroupBy", "group-by", "PiMatmul", "pi-matmul"]),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused(tmp_path: Path, told: str, names: list[str]) -> None:
    for name in names:
        with pytest.raises(ConfigError, match=told):
            write_skeleton(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


class Halved(Indicator):
    """Declared in one cell of a notebook, script and all."""

    script: ClassVar[Path | str] = """
import json, os, sys
n, fault = int(os.environ["PI_N"]), os.environ["PI_FAULT"]
if fault == "exit":
    sys.exit("out of order")
if fault == "hang":
    sys.stdin.read() or __import__("threading").Event().wait()
document = {
    "name": "Halved",
    "@parameters": {"n": n, "fault": fault},
    "@result": {"half": n / 2},
    "@checks": {"twice": n if fault != "wrong" else n + 1},
}
print("chatter" if fault == "chatter" else "", json.dumps(document))
"""
    n: int = parameter(10, ge=0)
    fault: str = parameter("none")
    half: float = result(unit="", better="higher")
    twice: int = check(at_most="n")


@pytest.mark.live
def test_a_class_with_its_script_in_it_is_tried_in_one_call_and_a_wrong_answer_is_a_sentence() -> None:
    found = try_indicator(Halved, {"n": 7})
    assert (found.results, found.checks, found.failed_checks) == ({"half": 3.5}, {"twice": 7}, ())
    assert try_indicator(Halved, {"fault": "wrong"}).failed_checks == ("twice is 11, at most 10 is allowed",)


@pytest.mark.live
@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"fault": "exit"}, RunFailedError, ["exit code 1", "out of order", "Halved"]),
        ({"fault": "chatter"}, InputError, ["no document of this indicator", "not JSON", "chatter"]),
        ({"n": -1}, ConfigError, ["not a value for this parameter"]),
        ({"m": 1}, ConfigError, ["unknown parameter"]),
    ],
)
def test_what_went_wrong_is_told(given: dict[str, Any], kind: type[Exception], told: list[str]) -> None:
    with pytest.raises(kind) as caught:
        try_indicator(Halved, given)
    assert all(word in str(caught.value) for word in told)


@pytest.mark.live
def test_a_script_that_does_not_end_is_ended_and_one_that_cannot_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="the script took too long"):
        try_indicator(Halved, {"fault": "hang"}, timeout_s=1)
    with pytest.raises(RunFailedError, match="the script cannot be started"):
        try_indicator(Halved, python=tmp_path / "python")


@pytest.mark.live
def test_a_script_gets_none_of_the_surroundings_and_libraries_are_told_to_use_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_SECRET", "hidden")

    class Surroundings(Indicator):
        """Whether the secret is there, and what libraries are told, by every variable that one of them reads."""

        script: ClassVar[Path | str] = f"""
import json, os
told = [os.environ.get(name) for name in {THREAD_VARIABLES!r}]
results = {{"seen": int("MY_SECRET" in os.environ), "others": len(told) - told.count("1")}}
print(json.dumps({{"name": "Surroundings", "@parameters": {{}}, "@result": results}}))
"""
        seen: int = result(unit="")
        others: int = result(unit="")

    assert try_indicator(Surroundings).results == {"seen": 0, "others": 0}


QUERY = """
CREATE TABLE t AS SELECT range AS i FROM range(1000);
SELECT i % 7 AS k, sum(i / 3.0) AS s FROM t GROUP BY k; -- last
"""


@pytest.mark.live
def test_a_query_becomes_an_indicator_whose_answer_is_checked(tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text(QUERY)
    made = write_skeleton("MyQuery", tmp_path, sql=tmp_path / "mine.sql")
    assert [path.name for path in made.paths][3:] == ["pi_my_query.sql"]
    indicator = load_indicator(made.reference)
    found = try_indicator(indicator, {"reps": 2})
    assert found.checks["rows"] == 7
    assert set(indicator.sources()) == {"script.py", "query.sql"}
    (tmp_path / "pi_my_query.sql").write_text(QUERY.replace("/ 3.0", "/ 2.0"))
    assert try_indicator(load_indicator(made.reference), {"reps": 1}).checks["digest"] != found.checks["digest"]
    with pytest.raises(InputError, match="none is overwritten"):
        write_skeleton("MyQuery", tmp_path, sql=tmp_path / "mine.sql")
    assert "1 passed" in run_written_test(made.paths[2])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELEKT 1", "cannot parse"),
        ("-- nothing\n", "no statement"),
        (None, "cannot be read"),
        (b"\xff\xfe", "no text"),
        ("SELECT 1;" + " " * (1 << 20), "too large"),
    ],
)
def test_a_file_without_a_query_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes | None, told: str
) -> None:
    path = tmp_path / "mine.sql"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, _, error = said(["MyQuery", "--sql", str(path), "--out", str(tmp_path / "out")], capsys)
    assert (code, told in error) == (2, True), error
    assert not (tmp_path / "out").exists()
