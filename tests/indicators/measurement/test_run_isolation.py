"""The user of runs that root starts, and the folders that it must be able to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.indicators.measurement.test_resource_limits import dead
from workbench.indicators.measurement import run_isolation
from workbench.indicators.measurement.launcher_client import run_once
from workbench.indicators.measurement.rounds import _build_isolation_notes
from workbench.indicators.measurement.run_messages import RunCommand, RunLimits

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="not started by root, so there are no rights to drop")


def test_the_uppermost_closed_folder_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "open" / "closed" / "open" / "closed"
    inner.mkdir(parents=True)
    for folder, mode in ((inner, 0o700), (inner.parent, 0o755), (inner.parent.parent, 0o700)):
        folder.chmod(mode)
    found = run_isolation.find_closed_folder(str(inner))
    assert found is not None
    # Folders of tests are closed themselves: then the first of those counts.
    assert Path(found) in (inner.parent.parent, *inner.parents)
    assert run_isolation.find_closed_folder("/usr/bin") is None


def test_an_environment_and_its_python_are_both_needed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    found = run_isolation.list_root_folders([str(tmp_path / "bin" / "python")])
    assert found == [str(tmp_path), str(Path(sys.executable).resolve().parent.parent)]


@AS_ROOT
def test_an_environment_in_a_closed_folder_is_reached_and_nothing_beside_it(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    environment = closed / "environments" / "mine"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    (closed / "secret").write_text("hidden")
    closed.chmod(0o700)
    script = f"import os; print(os.getuid() > 1000, os.listdir({str(closed)!r}))"
    ended = run_once(RunCommand(str(environment / "bin" / "python"), {"script.py": script}))
    assert ended.isolation["user"] == "unprivileged, of its own"
    assert ended.stdout == b"True ['environments']\n"
    # Only the launcher saw it so.
    assert sorted(one.name for one in closed.iterdir()) == ["environments", "secret"]


@AS_ROOT
def test_an_environment_that_is_closed_itself_leaves_the_runs_to_root_and_says_so(tmp_path: Path) -> None:
    environment = tmp_path / "mine"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    environment.chmod(0o700)
    ended = run_once(
        RunCommand(str(environment / "bin" / "python"), {"script.py": "import os; print(os.getuid())"}), RunLimits()
    )
    assert (ended.stdout, ended.isolation["user"]) == (b"0\n", "root")
    assert ended.isolation["user reason"]


@AS_ROOT
def test_a_user_id_is_one_that_nobody_has() -> None:
    found = run_isolation.find_free_user()
    assert found is not None
    assert found > 1000
    assert not run_isolation._is_taken(found)
    assert run_isolation._is_taken(0)


def test_folders_of_dead_launchers_are_removed_and_live_ones_stay(tmp_path: Path) -> None:
    pid = dead()
    names = [f"{run_isolation.PREFIX}{pid}-x", f"{run_isolation.PREFIX}{os.getpid()}-x", "another-1-x"]
    for name in names:
        (tmp_path / name).mkdir()
    run_isolation._remove_stale_folders(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(names[1:])


REFUSED = """
import json, sys
from pathlib import Path
from workbench.indicators.measurement import resource_limits, run_isolation
from workbench.indicators.measurement.run_messages import LauncherSetup, RunLimits

def refuse(*_, **__):
    raise OSError(1, "not allowed here")

run_isolation.unshare_namespaces = refuse
resource_limits.enter_groups = lambda asked: resource_limits.ControlGroups(None, None)
found = run_isolation.prepare_surroundings(LauncherSetup(RunLimits(1 << 30), (sys.executable,), sys.argv[1]))
print(json.dumps(found.isolation))
"""


def test_where_nothing_can_be_isolated_it_is_said_of_each_thing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", REFUSED, str(tmp_path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["network"] == "not isolated"
    assert "not allowed here" in found["network reason"]
    assert found["memory"] == "at most 1 GiB (data of each process)"
    notes = _build_isolation_notes(found)
    assert notes[0] == f"network: not isolated ({found['network reason']})"
    if found["user"] == "root":
        assert found["processes"] == "no limit"
        assert _build_isolation_notes({"network": "isolated", "processes": "at most 5", "user": "of its own"}) == []
        assert notes[1:] == ["processes: no limit could be set", f"runs are made as root ({found['user reason']})"]
