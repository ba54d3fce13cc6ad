"""`workbench indicators history` and the notebook's study: exit codes as a gate, documents, refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.indicators.history.planted import build_planted_history, when
from tests.indicators.history.recorded_noise import RATIOS
from workbench.cli.app import main
from workbench.indicators.tables import CHANGES, POINTS, SERIES

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """The command on a table of points: exit code, output, errors."""

    def run(path: str, *more: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["indicators", "history", "--points", path, *more])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def write_points(folder: Path, *args: Any, **given: Any) -> str:
    return str(POINTS.write(build_planted_history(*args, **given).points, folder))


@pytest.mark.parametrize(
    ("truth", "code", "told"),
    [
        (0.8, 1, "Regression: Sort of numpy is 1.25 times slower"),
        (1.0, 0, "No regression"),
        (1.3, 0, "No regression since 2026-01-25T12:00:00+00:00: none of 1 series is slower"),
        (1 / 1.02, 1, "Not known"),
    ],
)
def test_since_a_date_it_is_a_gate(truth: float, code: int, told: str, tmp_path: Path, ask: Ask) -> None:
    path = write_points(tmp_path, 30, lambda session: 1.0 if session < 24 else truth)
    ended, said, _ = ask(path, "--since", when(24))
    assert ended == code, said
    assert told in said


def test_a_gate_may_allow_what_is_undecided_but_never_a_regression(tmp_path: Path, ask: Ask) -> None:
    path = write_points(tmp_path, 30, lambda session: 1.0 if session < 24 else 1 / 1.02)
    assert ask(path, "--since", when(24), "--allow-undecided")[0] == 0
    slower = write_points(tmp_path, 30, lambda session: 1.0 if session < 24 else 0.7)
    assert ask(slower, "--since", when(24), "--allow-undecided")[0] == 1


def test_without_a_date_a_change_is_an_answer_and_few_sessions_are_none(tmp_path: Path, ask: Ask) -> None:
    changed = ask(write_points(tmp_path, 40, lambda session: 1.0 if session < 20 else 0.8))
    assert (changed[0], "became 1.25 times slower" in changed[1]) == (0, True)
    few = ask(write_points(tmp_path, 5))
    assert (few[0], "Not known: changes of level need 12 sessions" in few[1]) == (1, True)
    assert ask(write_points(tmp_path, 5), "--allow-undecided")[0] == 1  # there is no gate to allow it


def test_the_document_has_the_tables_and_out_writes_them(tmp_path: Path, ask: Ask) -> None:
    path = write_points(tmp_path, 40, lambda session: 1.0 if session < 20 else 0.8)
    _, said, _ = ask(path, "--json", "--out", str(tmp_path / "tables"))
    document = json.loads(said)
    assert document["verdict"] == "valid"
    assert [change["session_id"] for change in document["changes"] if change["kind"] == "followed"] == ["s020"]
    assert {row["kind"] for row in document["series"]} == {"followed", "control", "machine"}
    for table in (POINTS, SERIES, CHANGES):
        assert table.read(tmp_path / "tables").height > 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--since", "last week"], "not a time"),
        (["--database", "x.db"], "two sources"),
        (["nothing"], "no figure fits"),
    ],
)
def test_wrong_use_is_refused(given: list[str], told: str, tmp_path: Path, ask: Ask) -> None:
    code, _, error = ask(write_points(tmp_path, 5), *given)
    assert (code, told in error) == (2, True)
    assert ask("runs.csv")[0] == 2


def test_the_shipped_sample_shows_its_change_and_a_quiet_control(ask: Ask) -> None:
    # 200 sessions of numpy 2.4.6, then 16 of 1.26.4, recorded beside other work.
    _, said, _ = ask(str(RATIOS.with_name("points.parquet")), "--json")
    (change,) = json.loads(said)["changes"]
    told = [change[name] for name in ("kind", "session_id", "verdict", "packages")]
    assert told == ["followed", "200", "SLOWER", "numpy 2.4.6 -> 1.26.4"]


def test_the_sample_is_what_its_script_makes_of_the_recorded_ratios(tmp_path: Path) -> None:
    shutil.copy(RATIOS, tmp_path)
    subprocess.run([sys.executable, RATIOS.with_name("record.py"), tmp_path / RATIOS.name], check=True)
    made = POINTS.check(pl.read_parquet(tmp_path / "points.parquet"))
    assert made.equals(pl.read_parquet(RATIOS.with_name("points.parquet")))
