"""Replays from a session that goes on: what the other process is told, and what of its answers comes back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench import lore
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.lore.replays.operator_replay import ReplayResult

ANSWER = ReplayResult(
    folder="d", lore_id=3, operator="Filter", operator_text="Filter", passed=True, answer="PASS", verification={}
)


class Process:
    """Stands in for the process of a replay."""

    def __init__(self, code: int, out: str = "", err: str = "") -> None:
        self.code, self.out, self.err = code, out, err
        self.command: list[str] = []
        self.environment: dict[str, str] = {}

    def __call__(self, command: list[str], *, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.command, self.environment = command, env
        return subprocess.CompletedProcess(command, self.code, self.out, self.err)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    found = Process(0, ANSWER.model_dump_json())
    monkeypatch.setattr(subprocess, "run", found)
    return found


def test_options_become_those_of_the_command(process: Process) -> None:
    lore.replay(
        Path("d"),
        partition=0,
        repeat=0,
        confs={"a": "1", "b": "x=y"},
        confs_a={"c": "2"},
        confs_b={"c": "3"},
        tolerance=1e-9,
        trust=True,
        profile=None,
        driver_memory="2g",
    )
    head, options, end = process.command[:6], process.command[6:-1], process.command[-1]
    assert (head, end) == ([sys.executable, "-m", "workbench", "lore", "replay", "d"], "--json")
    assert " ".join(options) == (
        "--partition 0 --repeat 0 --conf a=1 --conf b=x=y --a c=2 --b c=3 --tolerance 1e-09 --trust --driver-memory 2g"
    )


def test_verify_times_nothing(process: Process) -> None:
    lore.verify("d")
    assert process.command[-3:] == ["--repeat", "0", "--json"]


def test_the_session_s_own_arguments_stay_at_home(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("MINE", "kept")
    lore.replay("d")
    assert [key for key in process.environment if key.startswith(("PYSPARK", "_PYSPARK"))] == []
    assert process.environment["MINE"] == "kept"


@pytest.mark.parametrize("code", [0, 1])
def test_a_verdict_comes_back_be_it_good_or_bad(process: Process, code: int) -> None:
    process.code = code
    assert lore.replay("d") == ANSWER


def test_a_refusal_comes_back_in_its_own_words(process: Process) -> None:
    process.code, process.out, process.err = 2, "", "Error: this dump is not signed by you\n  where: d"
    with pytest.raises(InputError, match=r"was refused(.|\n)*not signed by you"):
        lore.replay("d")


@pytest.mark.parametrize(("code", "out"), [(3, ""), (-9, ""), (1, "Traceback"), (0, "")])
def test_a_process_that_dies_is_told_with_its_code(process: Process, code: int, out: str) -> None:
    process.code, process.out, process.err = code, out, "the last words"
    with pytest.raises(RunFailedError, match=rf"exit code {code}(.|\n)*the last words"):
        lore.replay("d")


def test_a_process_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(RunFailedError, match="took too long"):
        lore.replay("d")


def test_an_unknown_option_is_refused_with_those_there_are(process: Process) -> None:
    with pytest.raises(ConfigError, match=r"repeats(.|\n)*partition, profile"):
        lore.replay("d", repeats=3)
    assert process.command == []
