"""Progress goes to stderr: bars on a terminal, lines anywhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench import progress, runs
from workbench.runner import RunResult


@pytest.fixture
def run(tmp_path: Path) -> runs.Run:
    return runs.start("speedup", tmp_path)


def watch(watcher: progress.PlainLines | progress.Bars, run: runs.Run) -> None:
    with watcher:
        watcher.started(run, 4)
        for index, label in enumerate(["Title", "Title", "The [bold]answer[/nope]", ""]):
            watcher.cell(run, index, label)
        run.end("succeeded")
        watcher.ended(RunResult(Path("01_speedup.ipynb"), run))


def test_lines_tell_each_new_section_once(run: runs.Run, capsys: pytest.CaptureFixture[str]) -> None:
    watch(progress.PlainLines(), run)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[:3] == [
        f"speedup: {run.run_id}, 4 cells",
        "speedup: cell 1, Title",
        "speedup: cell 3, The [bold]answer[/nope]",
    ]
    assert captured.err.splitlines()[3].startswith("speedup: succeeded after ")


def test_bars_end_full_and_take_headings_as_they_are(run: runs.Run, capsys: pytest.CaptureFixture[str]) -> None:
    watch(progress.Bars(), run)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "speedup" in captured.err
    assert "4/4" in captured.err
    assert "succeeded" in captured.err


@pytest.mark.parametrize(("terminal", "kind"), [(True, progress.Bars), (False, progress.PlainLines)])
def test_a_terminal_gets_bars(terminal: bool, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert isinstance(progress.watcher(), kind)
