"""A run from the panel: a process of its own, followed, found again after a restart, ended with its kernel."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4

from tests.conftest import ROOT
from tests.live.making import run_folder
from workbench.core.locks import acquire_lock, find_holder, release_lock
from workbench.execution import parameters
from workbench.live import run_control
from workbench.live.run_control import RunBar
from workbench.runs import run_folder as runs_run_folder

pytestmark = pytest.mark.live

ADDS = ROOT / "tests" / "fakes" / "notebooks" / "01_adds.ipynb"
HANG_S = 120


def wait_for(what: Callable[[], bool]) -> None:
    """Look until it holds; the limit only guards against hanging."""
    end, pause = time.monotonic() + HANG_S, threading.Event()
    while not what():
        assert time.monotonic() < end, "it never came"
        pause.wait(0.05)


def waiting_notebook(folder: Path) -> Path:
    """A notebook that says the process of its kernel, and then waits for good."""
    cells = [
        v4.new_markdown_cell("# Does it wait?"),
        v4.new_code_cell("left: int = 1  # a number", metadata={"tags": ["parameters"]}),
        v4.new_markdown_cell("## The wait"),
        v4.new_code_cell(
            "import os, pathlib, threading\npathlib.Path('kernel').write_text(str(os.getpid()))\n"
            "threading.Event().wait()"
        ),
    ]
    nbformat.write(v4.new_notebook(cells=cells), folder / "01_waits.ipynb")
    return folder / "01_waits.ipynb"


@pytest.mark.notebook
def test_a_run_is_followed_to_its_report_and_leaves_no_private_file(tmp_path: Path) -> None:
    notebook = Path(shutil.copy(ADDS, tmp_path))
    ended: list[runs_run_folder.Run] = []
    bar = RunBar(notebook, ["adds"], tmp_path / "out", ended.append)
    bar.start_run({"left": 40})
    assert bar.started is not None
    private = bar.started.folder
    assert private.stat().st_mode & 0o077 == 0
    assert bar.run.disabled
    assert bar.wait(HANG_S)
    (run,) = ended
    assert (run.status, run.record["config"]["left"]) == ("succeeded", 40)
    assert run.report.is_file()
    assert "Done after" in bar.sentence.value
    assert (bar.run.disabled, bar.cancel.disabled) == (False, True)
    assert not private.exists()


@pytest.mark.notebook
def test_a_run_is_found_by_the_next_kernel_shows_how_far_it_is_and_is_cancelled_with_its_kernel(
    tmp_path: Path,
) -> None:
    notebook, out = waiting_notebook(tmp_path), tmp_path / "out"
    started = run_control.start_run(notebook, {"left": 5}, out)
    try:
        wait_for(lambda: (tmp_path / "kernel").is_file() and bool((tmp_path / "kernel").read_text()))
        kernel = psutil.Process(int((tmp_path / "kernel").read_text()))
        ended: list[runs_run_folder.Run] = []
        # The kernel that started it is gone: nothing is known but the folder.
        bar = RunBar(notebook, ["waits"], out, ended.append)
        assert bar.resume_run()
        wait_for(lambda: "The wait · cell" in bar.sentence.value)
        assert " of 5" in bar.sentence.value
        assert not bar.cancel.disabled
        bar.cancel.click()
        assert bar.wait(HANG_S)
        assert started.process.wait(HANG_S) == 130
        psutil.wait_procs([kernel], timeout=HANG_S)
        assert not kernel.is_running()
        assert [run.status for run in ended] == ["cancelled"]
        assert "Cancelled" in bar.sentence.value
        assert not started.folder.exists()
    finally:
        if not started.ended:
            started.process.terminate()
            started.process.wait(HANG_S)


def test_a_run_that_never_began_shows_what_was_said(tmp_path: Path) -> None:
    notebook = Path(shutil.copy(ADDS, tmp_path))
    bar = RunBar(notebook, ["adds"], tmp_path / "out", lambda _: None)
    bar.start_run({"<img src=x>": 1})
    assert bar.wait(HANG_S)
    assert "has no such parameter" in bar.sentence.value
    assert "<img" not in bar.sentence.value
    assert not bar.run.disabled


def test_a_run_that_is_cancelled_before_it_began_says_so_and_nothing_of_a_fault(tmp_path: Path) -> None:
    notebook = Path(shutil.copy(ADDS, tmp_path))
    bar = RunBar(notebook, ["adds"], tmp_path / "out", lambda _: None)
    bar.start_run({})
    bar.stop_run()
    assert bar.wait(HANG_S)
    assert re.search("Cancelled (before it began|after)", bar.sentence.value)
    assert "wb-problem" not in bar.sentence.value
    assert not bar.run.disabled


@pytest.mark.parametrize(
    "value", [1e-05, 1e22, 0.5, "\N{GRINNING FACE} 3.10", "no", "1_000", "a: b", None, [1, 1], "x\ny"]
)
def test_settings_arrive_as_the_form_had_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    seen: list[list[str]] = []

    class Fake:
        def __init__(self, command: list[str], **_: object) -> None:
            seen.append(command)

    monkeypatch.setattr("workbench.live.run_control.subprocess.Popen", Fake)
    started = run_control.start_run(tmp_path / "01_adds.ipynb", {"a": value, "b": value}, tmp_path)
    (command,) = seen
    assert parameters.read_values_file(command[command.index("-f") + 1]) == {"a": value, "b": value}
    started.remove_folder()


def test_a_process_that_cannot_be_started_leaves_no_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.live.run_control.tempfile.tempdir", str(tmp_path))
    with pytest.raises(OSError):
        run_control.start_run(tmp_path / "none" / "01_adds.ipynb", {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_folder_is_deleted_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs_run_folder.start_run("adds", tmp_path, command="workbench run adds")
    monkeypatch.setattr(run_control, "is_running", lambda _: True)
    monkeypatch.setattr(run_control, "find_cancellable_pid", lambda _: None)
    bar = RunBar(tmp_path / "01_adds.ipynb", ["adds"], tmp_path, lambda _: None)
    assert bar.resume_run()
    release_lock(run.folder)
    shutil.rmtree(run.folder)
    assert bar.wait(HANG_S)
    assert "can no longer be followed" in bar.sentence.value
    assert not bar.run.disabled


def test_a_form_that_changes_while_results_come_leaves_the_button_ready(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    coming, changed = threading.Event(), threading.Event()

    def ended(_: runs_run_folder.Run) -> None:
        coming.set()
        assert changed.wait(HANG_S)

    bar = RunBar(tmp_path / "01_adds.ipynb", ["adds"], tmp_path, ended)
    bar.current = run
    bar._follow_run()
    assert coming.wait(HANG_S)
    bar.enable_start(True)
    assert bar.run.disabled
    changed.set()
    assert bar.wait(HANG_S)
    assert not bar.run.disabled


def test_a_process_that_no_panel_started_is_not_ours_to_end(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    assert run_control.find_cancellable_pid(run) is None
    acquire_lock(run.folder)
    try:
        assert find_holder(run.folder) is not None
        assert run_control.find_cancellable_pid(run) is None  # this test's own process
    finally:
        release_lock(run.folder)


def test_cells_run_by_hand_in_a_kernel_are_no_run_to_follow(tmp_path: Path) -> None:
    run = runs_run_folder.start_run("adds", tmp_path, command="live")
    assert find_holder(run.folder) is not None
    assert not run_control.is_running(run)
    run.end("succeeded")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"cell": "x", "cells": 3, "label": ""}', '{"cell": 9, "cells": 3, "label": ""}']
)
def test_progress_that_cannot_be_read_is_unknown(tmp_path: Path, text: str) -> None:
    run = run_folder(tmp_path)
    (run.folder / runs_run_folder.PROGRESS_FILE).write_text(text)
    assert run_control.read_progress(run) is None


def test_the_newest_runs_come_first_and_a_spoilt_record_is_left_out(tmp_path: Path) -> None:
    first, second = run_folder(tmp_path), run_folder(tmp_path)
    second.folder.rename(second.folder.with_name("99991122T000000Z-aaaaaa"))
    spoilt = run_folder(tmp_path)
    (spoilt.folder / runs_run_folder.RECORD_FILE).write_text("{")
    found = run_control.list_recent_runs(tmp_path, ["adds", "none"])
    assert [run.run_id for run in found] == [second.run_id, first.run_id]
    assert len(run_control.list_recent_runs(tmp_path, ["adds"], max_runs=1)) == 1
