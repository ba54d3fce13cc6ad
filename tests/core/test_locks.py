"""Who writes a run folder: told by a lock that ends with its process, and refused to a second one."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.core import locks
from workbench.core.errors import ConfigError
from workbench.core.files import OUT_VARIABLE
from workbench.core.locks import find_holder, release_lock
from workbench.runs import run_folder

HOLDS = """
import sys
from workbench import runs
run = runs.start_run("a", folder=sys.argv[1], title="First")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def other(folder: Path) -> Any:
    """Another process that writes into the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_run_is_held_from_its_start_to_its_end(folder: Path) -> None:
    run = run_folder.start_run("a", folder=folder)
    assert (find_holder(folder), run.state) == (os.getpid(), "running")
    run.end("succeeded")
    assert (find_holder(folder), run.state) == (None, "succeeded")
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "tables"]


def test_a_second_process_is_refused_and_the_first_run_unharmed(folder: Path, other: subprocess.Popen[str]) -> None:
    before = (folder / "run.json").read_bytes()
    assert find_holder(folder) == other.pid
    with pytest.raises(ConfigError, match="another process writes") as caught:
        run_folder.start_run("a", folder=folder, title="Second")
    assert str(other.pid) in str(caught.value)
    assert (folder / "run.json").read_bytes() == before


def test_a_run_whose_process_was_killed_has_died_and_its_folder_is_free(
    folder: Path, other: subprocess.Popen[str]
) -> None:
    assert run_folder.load_run(folder).state == "running"
    other.send_signal(signal.SIGKILL)
    other.wait()
    run = run_folder.load_run(folder)
    assert (run.status, run.state, find_holder(folder)) == ("running", "died", None)
    again = run_folder.start_run("a", folder=folder, title="Second")
    assert (again.state, find_holder(folder)) == ("running", os.getpid())
    again.end("failed")


def test_a_process_may_ask_again_for_what_it_holds(folder: Path) -> None:
    run_folder.start_run("a", folder=folder)
    again = run_folder.start_run("a", folder=folder, title="Again")
    assert again.title == "Again"
    again.end("succeeded")
    assert not (folder / "run.lock").exists()


def test_a_child_of_the_holder_does_not_end_its_lock(folder: Path) -> None:
    run_folder.start_run("a", folder=folder)
    if not (child := os.fork()):
        release_lock(folder)
        os._exit(0)
    os.waitpid(child, 0)
    assert find_holder(folder) == os.getpid()
    release_lock(folder)


@pytest.mark.parametrize("content", [b"", b"-1\n", b"0\n", b"no number", b"\xff" * 100])
def test_a_lock_file_without_a_sensible_process_names_nobody(
    folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(locks, "_PATIENCE_S", 0.0)
    folder.mkdir()
    (folder / "run.lock").write_bytes(content)
    with (folder / "run.lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert find_holder(folder) is None


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_lock_that_is_no_file_is_not_followed(folder: Path, kind: str) -> None:
    folder.mkdir()
    if kind == "folder":
        (folder / "run.lock").mkdir()
    else:
        (folder / "run.lock").symlink_to(folder / "elsewhere")
    assert find_holder(folder) is None
    with pytest.raises(ConfigError, match="cannot make the run folder"):
        run_folder.start_run("a", folder=folder)
    assert not (folder / "elsewhere").exists()


def test_a_file_system_without_locks_refuses_nobody_and_thinks_nobody_dead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    run = run_folder.start_run("a", folder=folder)
    assert (find_holder(folder), run.state) == (None, "running")
    run.end("succeeded")
    assert not (folder / "run.lock").exists()


def test_a_system_without_flock_works_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    run = run_folder.start_run("a", folder=folder)
    assert (find_holder(folder), run.state) == (None, "running")
    run.end("succeeded")


def test_progress_is_one_whole_document_and_goes_with_the_end(folder: Path) -> None:
    run = run_folder.start_run("a", folder=folder)
    run.note_progress(3, 14, "The answer")
    noted = json.loads((folder / "progress.json").read_text())
    assert (noted["cell"], noted["cells"], noted["label"]) == (3, 14, "The answer")
    assert noted["at"].endswith("+00:00")
    run.end("succeeded")
    assert not (folder / "progress.json").exists()


def test_a_live_notebook_holds_its_run_until_it_has_concluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)
    monkeypatch.setattr(run_folder, "_live_runs", {})
    run = run_folder.current_run("a")
    assert find_holder(run.folder) == os.getpid()
    run.conclude("valid")
    assert find_holder(run.folder) is None


def test_work_on_an_old_run_holds_it_while_it_lasts(folder: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(ConfigError, match="another process writes"), locks.hold_lock(folder):
        pass
    other.send_signal(signal.SIGKILL)
    other.wait()
    with locks.hold_lock(folder):
        assert (find_holder(folder), run_folder.load_run(folder).state) == (os.getpid(), "running")
    assert (find_holder(folder), run_folder.load_run(folder).state) == (None, "died")


def test_who_held_it_before_holds_it_after(folder: Path) -> None:
    run = run_folder.start_run("a", folder=folder)
    with locks.hold_lock(folder):
        pass
    assert find_holder(folder) == os.getpid()
    with locks.hold_lock(folder):
        run.end("succeeded")
    assert find_holder(folder) is None


def test_work_that_is_alone_is_refused_to_a_second_caller_of_the_same_process(folder: Path) -> None:
    run = run_folder.start_run("a", folder=folder)
    with locks.lock_exclusively(folder, "another process is at it", do="wait"):
        with (
            pytest.raises(ConfigError) as refused,
            locks.lock_exclusively(folder, "another process is at it", do="wait"),
        ):
            pytest.fail("two at once")
        assert [part in str(refused.value) for part in ("another process is at it", str(folder), "wait")] == [True] * 3
    assert find_holder(folder) == os.getpid(), "the run goes on"
    with locks.lock_exclusively(folder, "another process is at it"):
        assert find_holder(folder) == os.getpid()
    run.end("succeeded")
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "tables"]


def test_work_that_is_alone_is_refused_where_another_process_holds_the_folder(
    folder: Path, other: subprocess.Popen[str]
) -> None:
    with (
        pytest.raises(ConfigError, match="another process writes into this run folder"),
        locks.lock_exclusively(folder, "another process is at it"),
    ):
        pytest.fail("two at once")
    # Nothing of the attempt is left that would refuse the next.
    other.kill()
    other.wait()
    with locks.lock_exclusively(folder, "another process is at it"):
        assert find_holder(folder) == os.getpid()


def test_where_there_are_no_locks_nobody_is_alone_and_nobody_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    with (
        locks.lock_exclusively(tmp_path, "another process is at it"),
        locks.lock_exclusively(tmp_path, "another process is at it"),
    ):
        pass


def test_a_file_is_made_to_be_locked_and_free_when_its_handle_is_closed(tmp_path: Path) -> None:
    handle = locks.lock_path(tmp_path / ".busy", "another process is at it")
    with pytest.raises(ConfigError, match="another process is at it"):
        locks.lock_path(tmp_path / ".busy", "another process is at it")
    os.close(handle)
    os.close(locks.lock_path(tmp_path / ".busy", "another process is at it"))
