"""`workbench speedup record`: what is passed on, what is printed, exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.speedup.recording.recordings import FakeSessions, config
from workbench.cli import app
from workbench.speedup.recording import recorder, session_process

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install -r requirements.lock)")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> FakeSessions:
    fake = FakeSessions()
    monkeypatch.setattr(session_process, "run_session", fake)
    monkeypatch.setattr(recorder, "measure_busy_share", lambda: 0.0)
    return fake


@pytest.fixture
def record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    asked = config(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        given = ["--queries", asked.queries, "--data", asked.data, "--sessions", 2, "--passes", 2, *arguments]
        with pytest.raises(SystemExit) as ended:
            app.main(["speedup", "record", "--out", str(asked.out), *map(str, given)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


def test_equal_answers_are_exit_code_0_with_the_path_last(sessions: FakeSessions, record: Call, tmp_path: Path) -> None:
    code, printed, errors = record("--side", "a", "--side", "b,spark.sql.adaptive.enabled=false")
    assert code == 0
    assert printed.startswith("4 sessions x 2 passes of 3 queries")
    assert "all answers equal those of the first side" in printed
    assert printed.splitlines()[-1] == str(tmp_path / "out" / "recording.json")
    assert "session 4 of 4" in errors
    assert "left" in errors


def test_a_wrong_answer_is_exit_code_1_and_named(sessions: FakeSessions, record: Call) -> None:
    sessions.answering = lambda label, number, query: [[8 if (label, query) == ("b", "a") else 7]]
    code, printed, _ = record("--side", "a", "--side", "b")
    assert code == 1
    assert "failed: b a: wrong answer" in printed


def test_a_session_that_failed_is_exit_code_1(sessions: FakeSessions, record: Call) -> None:
    sessions.before = lambda name: "died" if name == "a-s2" else None
    code, printed, errors = record("--side", "a")
    assert code == 1
    assert "failed: a session 2: died" in printed
    assert "failed: died" in errors


def test_a_side_that_cannot_live_is_exit_code_3(sessions: FakeSessions, record: Call) -> None:
    sessions.before = lambda name: "no such class"
    code, printed, errors = record("--side", "a")
    assert (code, printed) == (3, "")
    assert "Error: the first session of a side failed" in errors
    assert "no such class" in errors


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--engine", "gpu"),
        ("--side", "a", "--passes", 0),
        ("--side", "a", "--scale", 0),
        ("--side", "a", "--driver-memory", "lots"),
        ("--side", "a", "--conf", "nonsense"),
        ("--side", "a", "--queries", "none.sql"),
        ("--side", "a", "--data", "none"),
        ("--side", "a", "--queries", "tpch"),
        ("--side", "a", "--comet-jar", "x.jar"),
        ("--engine", "comet", "--comet-jar", "x.jar"),
    ],
)
def test_wrong_use_is_exit_code_2_and_runs_nothing(
    sessions: FakeSessions, record: Call, tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    code, _, errors = record(*arguments)
    assert code == 2
    assert errors.startswith("Error: ")
    assert sessions.asked == []
    assert not (tmp_path / "out").exists()


def test_several_bad_options_are_told_at_once(sessions: FakeSessions, record: Call) -> None:
    _, _, errors = record("--side", "a", "--passes", 0, "--sessions", 0)
    assert "--passes" in errors
    assert "--sessions" in errors


def test_a_dry_run_prints_the_plan_and_runs_nothing(sessions: FakeSessions, record: Call, tmp_path: Path) -> None:
    code, printed, _ = record("--engine", "spark", "--engine", "comet", "--dry-run")
    assert code == 0
    assert "side comet: comet with org.apache.datafusion:comet-spark" in printed
    assert "spark.plugins=org.apache.spark.CometPlugin" in printed
    assert printed.count("comet 2") == 1
    assert sessions.asked == []
    assert not (tmp_path / "out").exists()
