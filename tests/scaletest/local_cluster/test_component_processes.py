"""Processes are found by what they are; strangers with an old number are spared."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from workbench.scaletest.local_cluster import component_processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a link to `sleep`, as a cluster's has links to its programs."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sleeper").symlink_to(shutil.which("sleep") or "/bin/sleep")
    return tmp_path


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def _started(folder: Path, command: Sequence[str] = ("sleeper", "600"), name: str = "sleeper") -> list[psutil.Process]:
    """The processes of the folder, once it has this one: first it has the name of what starts it."""
    program, *arguments = command
    component_processes.start_component(folder, [str(folder / "bin" / program), *arguments], folder / "a.log")
    found: list[psutil.Process] = until(lambda: component_processes.find_processes(folder).get(name))
    return found


def test_a_started_process_is_found_by_its_program_and_ended(folder: Path) -> None:
    (process,) = _started(folder)
    assert process.ppid() != os.getpid()
    component_processes.end_processes([process])
    assert component_processes.find_processes(folder) == {}


def test_a_process_that_ignores_the_request_is_killed(folder: Path) -> None:
    (folder / "bin" / "shell").symlink_to("/bin/sh")
    _started(folder, ("shell", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"), "shell")
    until(lambda: "ready" in (folder / "a.log").read_text())
    begun = [one for name, found in component_processes.find_processes(folder).items() for one in found]
    component_processes.end_processes(begun, grace_s=0.2)
    # A `sleep` that the shell began meanwhile ends by itself.
    until(lambda: not component_processes.find_processes(folder))


@pytest.mark.parametrize(("does", "name"), [("exec sleep 600", "sleep"), ("while :; do sleep 0.05; done", "script")])
def test_a_script_has_its_own_name_or_that_of_what_it_turned_into(folder: Path, does: str, name: str) -> None:
    (folder / "bin" / "script").write_text(f"#!/bin/sh\n{does}\n")
    (folder / "bin" / "script").chmod(0o755)
    component_processes.end_processes(_started(folder, ("script",), name))
    until(lambda: not component_processes.find_processes(folder))


def test_a_stranger_elsewhere_is_not_ours(folder: Path, tmp_path: Path) -> None:
    other = tmp_path.parent / f"{tmp_path.name}-other"
    with subprocess.Popen(["sleep", "600"], cwd=folder) as stranger:
        assert component_processes.find_processes(folder) == {}
        assert component_processes.find_processes(other) == {}
        stranger.kill()


def test_a_folder_whose_name_begins_alike_is_another(folder: Path) -> None:
    processes = _started(folder)
    assert component_processes.find_processes(folder.with_name(folder.name[:-1])) == {}
    component_processes.end_processes(processes)


def test_what_a_program_says_is_in_its_log(folder: Path) -> None:
    log = folder / "logs" / "a.log"
    component_processes.start_component(folder, ["/bin/sh", "-c", "echo out; echo err >&2"], log)
    until(lambda: component_processes.read_last_lines(log).split() == ["out", "err"])
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
