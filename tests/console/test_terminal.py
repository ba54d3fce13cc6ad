"""Progress goes to stderr: bars on a terminal, lines anywhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.console import terminal as console_terminal
from workbench.execution.runner import RunResult
from workbench.runs import run_folder


@pytest.fixture
def run(tmp_path: Path) -> run_folder.Run:
    return run_folder.start_run("speedup", tmp_path)


def watch(watcher: console_terminal.PlainRunProgress | console_terminal.RunProgressBars, run: run_folder.Run) -> None:
    with watcher:
        watcher.on_run_start(run, 4)
        for index, label in enumerate(["Title", "Title", "The [bold]answer[/nope]", ""]):
            watcher.on_cell(run, index, label)
        run.end("succeeded")
        watcher.on_run_end(RunResult(Path("01_speedup.ipynb"), run))


def test_lines_tell_each_new_section_once(run: run_folder.Run, capsys: pytest.CaptureFixture[str]) -> None:
    watch(console_terminal.PlainRunProgress(), run)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[:3] == [
        f"speedup: {run.run_id}, 4 cells",
        "speedup: cell 1, Title",
        "speedup: cell 3, The [bold]answer[/nope]",
    ]
    assert captured.err.splitlines()[3].startswith("speedup: succeeded after ")


def test_bars_end_full_and_take_headings_as_they_are(run: run_folder.Run, capsys: pytest.CaptureFixture[str]) -> None:
    watch(console_terminal.RunProgressBars(), run)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "speedup" in captured.err
    assert "4/4" in captured.err
    assert "succeeded" in captured.err


@pytest.mark.parametrize(
    ("terminal", "kind"), [(True, console_terminal.RunProgressBars), (False, console_terminal.PlainRunProgress)]
)
def test_a_terminal_gets_bars(terminal: bool, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert isinstance(console_terminal.create_run_progress(), kind)
