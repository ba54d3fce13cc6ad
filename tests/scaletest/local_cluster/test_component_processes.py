"""Processes are found by what they are; strangers with an old number are spared."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from workbench.scaletest.local_cluster import component_processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a link to `sleep`, as a cluster's has links to its programs."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sleeper").symlink_to(shutil.which("sleep") or "/bin/sleep")
    return tmp_path


def _started(folder: Path, log: Path) -> psutil.Process:
    component_processes.start_component(folder, [str(folder / "bin" / "sleeper"), "600"], log)
    deadline = time.monotonic() + 60
    # Until it has become its program, it has the name of what starts it.
    while "sleeper" not in (found := component_processes.find_processes(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found["sleeper"][0]


def test_a_started_process_is_found_by_its_program_and_ended(folder: Path) -> None:
    assert _started(folder, folder / "a.log").ppid() != os.getpid()
    component_processes.end_processes(component_processes.find_processes(folder)["sleeper"])
    assert component_processes.find_processes(folder) == {}


def test_a_process_that_ignores_the_request_is_killed(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    (folder / "bin" / "shell").symlink_to("/bin/sh")
    component_processes.start_component(folder, [str(folder / "bin" / "shell"), "-c", stubborn], log)
    deadline = time.monotonic() + 60
    while "ready" not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    begun = [one for name, found in component_processes.find_processes(folder).items() for one in found]
    component_processes.end_processes(begun, grace_s=0.2)
    # A `sleep` that the shell began meanwhile ends by itself.
    while component_processes.find_processes(folder):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_script_turned_into_is_found_too(folder: Path, tmp_path: Path) -> None:
    (folder / "bin" / "wrapper").write_text("#!/bin/sh\nexec sleep 600\n")
    (folder / "bin" / "wrapper").chmod(0o755)
    component_processes.start_component(folder, [str(folder / "bin" / "wrapper")], tmp_path / "log")
    deadline = time.monotonic() + 60
    while "sleep" not in (found := component_processes.find_processes(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    component_processes.end_processes(found["sleep"])
    assert component_processes.find_processes(folder) == {}


def test_a_running_script_has_the_scripts_name(folder: Path, tmp_path: Path) -> None:
    (folder / "bin" / "looper").write_text("#!/bin/sh\nwhile :; do sleep 0.05; done\n")
    (folder / "bin" / "looper").chmod(0o755)
    component_processes.start_component(folder, [str(folder / "bin" / "looper")], tmp_path / "log")
    deadline = time.monotonic() + 60
    while "looper" not in (found := component_processes.find_processes(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    component_processes.end_processes(found["looper"])


def test_a_stranger_elsewhere_is_not_ours(folder: Path, tmp_path: Path) -> None:
    other = tmp_path.parent / f"{tmp_path.name}-other"
    with subprocess.Popen(["sleep", "600"], cwd=folder) as stranger:
        assert component_processes.find_processes(folder) == {}
        assert component_processes.find_processes(other) == {}
        stranger.kill()


def test_a_folder_whose_name_begins_alike_is_another(folder: Path) -> None:
    process = _started(folder, folder / "a.log")
    assert component_processes.find_processes(folder.with_name(folder.name[:-1])) == {}
    component_processes.end_processes([process])


def test_what_a_program_says_is_in_its_log(folder: Path) -> None:
    log = folder / "logs" / "a.log"
    component_processes.start_component(folder, ["/bin/sh", "-c", "echo out; echo err >&2"], log)
    deadline = time.monotonic() + 60
    while component_processes.read_last_lines(log).split() != ["out", "err"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_end_of_a_log_is_short_and_readable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert component_processes.read_last_lines(log) == ""
    text = '{"level":"ERROR","msg":"failed","err":"no\\n such file"}\n'
    log.write_text("x" * 20_000 + "\n" + "y\n" * 30 + text + "{broken\n" + "z" * 1000)
    lines = component_processes.read_last_lines(log, 4).split("\n    ")
    assert lines == ["y", "ERROR failed: no such file", "{broken", "z" * 400]


def test_only_an_answer_of_200_is_well() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/well" else 500)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        at = f"http://127.0.0.1:{server.server_port}"
        found = [component_processes.is_healthy(f"{at}/{path}") for path in ("well", "ill")]
        server.shutdown()
        thread.join()
    assert found == [True, False]
    assert not component_processes.is_healthy(f"{at}/well")
