"""Disks that are full or read-only, users without a home, clocks that are wrong, two runs in one folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import app
from workbench.core import files, locks
from workbench.core.errors import RunFailedError
from workbench.core.files import cache_folder
from workbench.execution import runner
from workbench.runs import catalogue, run_folder

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[1]
ADDS = ROOT / "tests" / "fakes" / "notebooks" / "01_adds.ipynb"
SAMPLE = ROOT / "data" / "samples" / "eventlogs" / "tpch_sf0.1.zstd"
# The record fits, the page and the executed copy do not.
SMALL_DISK_BYTES, SMALL_FILE_BYTES = 24 << 10, 4 << 10


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(list(arguments))
    return int(ended.value.code or 0)


def workbench(*arguments: str, env: dict[str, str] | None = None, limit: int | None = None) -> Any:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, preexec_fn=limited, check=False)


@contextlib.contextmanager
def disk(folder: Path, options: str) -> Iterator[bool]:
    """A file system of its own in the folder; false where this user may not mount one."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=True)


@pytest.mark.notebook
def test_a_disk_that_fills_up_fails_the_run_with_advice_and_nothing_half_is_left(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", f"size={SMALL_DISK_BYTES}") as small:
        # Without a disk of our own: no file may grow beyond a size.
        done = workbench(
            "run", str(ADDS), "--out", str(tmp_path / "disk"), "--json", limit=None if small else SMALL_FILE_BYTES
        )
        (told,) = json.loads(done.stdout)["runs"]
        assert (done.returncode, told["status"], told["exit_code"]) == (3, "failed", 3)
        assert "cannot write the run folder" in told["failure"]["error"]
        assert "Traceback" not in done.stderr
        (run,) = catalogue.list_runs(tmp_path / "disk")
        assert run.state in ("failed", "died")
        assert not (Path(run.place) / "report.html").exists()
        assert not list(Path(run.place).rglob("*.part"))


def test_a_disk_that_is_full_from_the_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(files, "write_text", full)
    held = dict(locks._own_locks)
    with pytest.raises(RunFailedError) as caught:
        run_folder.start_run("a", tmp_path)
    assert caught.value.exit_code == 3
    assert "--out" in str(caught.value)
    assert list((tmp_path / "a").iterdir()) == []
    assert locks._own_locks == held


def test_progress_that_cannot_be_written_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_folder.start_run("a", tmp_path)

    def full(path: Path, text: str) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(files, "write_text", full)
        run.note_progress(0, 2, "Title")
    run.end("succeeded")
    assert run_folder.load_run(run.folder).state == "succeeded"


def test_a_record_that_can_no_longer_be_written_lets_the_folder_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder.start_run("a", tmp_path)

    def full(path: Path, text: str) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(files, "write_text", full)
        with pytest.raises(RunFailedError):
            run.end("succeeded")
    assert run_folder.load_run(run.folder).state == "died"


@pytest.mark.parametrize("command", [["--version"], ["doctor", "eventlog", "--json"]])
def test_output_that_cannot_be_written_is_told_and_ends_with_3(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "workbench", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_who_has_had_enough_gets_no_complaint(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "workbench", "doctor", "eventlog", "--json"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with disk(tmp_path / "disk", "ro") as mounted:
        if not mounted:
            if os.geteuid() == 0:
                pytest.skip("neither a read-only disk nor a user that permissions bind")
            (tmp_path / "disk").chmod(0o555)
        assert call("run", str(ADDS), "--out", str(tmp_path / "disk" / "runs")) == 2
    error = capsys.readouterr().err
    assert "cannot make the run folder" in error
    assert "--out DIR" in error


@pytest.mark.notebook
@pytest.mark.parametrize("home", [None, "nowhere"])
def test_a_user_without_a_home_can_run_notebooks(tmp_path: Path, home: str | None) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    if home:
        env["HOME"] = str(tmp_path / home)
    done = workbench("run", str(ADDS), "--out", str(tmp_path / "out"), "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["answer"] == "The sum is 3."
    # Root could make one; a home that is none is none.
    assert not (tmp_path / "nowhere").exists()


def test_a_user_that_the_system_does_not_know_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert cache_folder().name.startswith("workbench")


class WrongClock(datetime):
    """Goes back a year with every look."""

    looks = 0

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        cls.looks += 1
        return datetime(2026, 11, 22, tzinfo=UTC) - timedelta(days=366 * cls.looks)


def test_a_clock_that_goes_backwards_makes_no_negative_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run_folder.start_run("a", tmp_path)
    before.end("succeeded")
    with monkeypatch.context() as wrong:
        wrong.setattr(run_folder, "datetime", WrongClock)
        run = run_folder.start_run("a", tmp_path)
        run.end("succeeded")
    assert run.record["ended_at"] < run.record["started_at"]
    assert 0 <= run.record["duration_s"] < 60
    assert {found.run_id for found in catalogue.list_runs(tmp_path)} == {before.run_id, run.run_id}


def test_a_run_that_another_process_began_has_no_duration_when_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder.start_run("a", tmp_path)
    monkeypatch.setattr(run_folder, "_start_times_s", {})
    monkeypatch.setattr(run_folder, "datetime", WrongClock)
    run.end("succeeded")
    assert run.record["duration_s"] is None
    result = runner.RunResult(ADDS, run)
    assert (result.exit_code, result.build_document()["duration_s"]) == (0, None)


HOLDS = """
import sys
from workbench.runs import run_folder
run = run_folder.start_run("speedup", folder=sys.argv[1], title="First")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_command_into_the_folder_of_a_run_that_goes_on_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    first.stdout.readline()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code = call("speedup", "profile", str(SAMPLE), "--out", str(folder))
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    first.communicate("")
    error = capsys.readouterr().err
    assert code == 2
    assert f"process {first.pid}" in error
    assert before == after
