"""Control groups of both versions, as folders of files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from workbench.indicators.measurement import resource_limits
from workbench.indicators.measurement.run_messages import RunLimits

ASKED = RunLimits(memory_bytes=1 << 30, processes=50)
FILES_1 = {"memory": ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"], "pids": ["pids.max"]}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Files that the kernel puts into a new group, by the name of its parent."""
    files: dict[str, list[str]] = {}
    usual = Path.mkdir

    def mkdir(self: Path, *args: object, **settings: object) -> None:
        usual(self, *args, **settings)  # type: ignore[arg-type]
        if self.name.startswith(resource_limits.PREFIX):
            for name in ["cgroup.procs", *files.get(self.parent.name, [])]:
                (self / name).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    return files


def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own"
    path.write_text(text)
    return path


def test_version_1_has_a_group_for_each(tmp_path: Path, kernel: dict[str, list[str]]) -> None:
    kernel |= {"job": FILES_1["memory"], "pids": FILES_1["pids"]}
    (tmp_path / "memory" / "job").mkdir(parents=True)
    (tmp_path / "pids").mkdir()
    groups = resource_limits.enter_groups(ASKED, tmp_path, own(tmp_path, "4:memory:/job\n8:pids:/\n0::/\n"))
    assert groups.memory == tmp_path / "memory" / "job" / f"{resource_limits.PREFIX}{os.getpid()}"
    assert groups.processes == tmp_path / "pids" / f"{resource_limits.PREFIX}{os.getpid()}"
    # The launcher itself needs a little.
    assert (groups.memory / "memory.limit_in_bytes").read_text() == str((1 << 30) + (32 << 20))
    assert (groups.processes / "pids.max").read_text() == "51"
    assert (groups.processes / "cgroup.procs").read_text() == str(os.getpid())
    # Where no memory is asked for there is no group for it.
    groups.leave_groups()
    groups = resource_limits.enter_groups(RunLimits(), tmp_path, tmp_path / "own")
    assert (groups.memory, groups.processes is not None) == (None, True)
    assert resource_limits.describe_limits(RunLimits(), groups, False)["memory"] == "no limit"


@pytest.mark.parametrize("told", [True, False], ids=["an empty list of controllers", "no list of controllers"])
def test_version_2_has_one_group_for_both_beside_its_own_and_goes_back_on_leaving(
    tmp_path: Path, kernel: dict[str, list[str]], told: bool
) -> None:
    kernel["slice"] = ["memory.max", "memory.swap.max", "pids.max"]
    (tmp_path / "slice" / "scope").mkdir(parents=True)
    (tmp_path / "slice" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    if told:
        (tmp_path / "slice" / "scope" / "cgroup.subtree_control").write_text("\n")
    groups = resource_limits.enter_groups(ASKED, tmp_path, own(tmp_path, "0::/slice/scope\n"))
    assert groups.memory == groups.processes == tmp_path / "slice" / f"{resource_limits.PREFIX}{os.getpid()}"
    assert groups.folders == [groups.memory]
    assert (groups.memory / "memory.swap.max").read_text() == "0"
    assert (groups.memory / "pids.max").read_text() == "51"
    groups.leave_groups()
    assert (tmp_path / "slice" / "scope" / "cgroup.procs").read_text() == str(os.getpid())


def test_without_groups_there_are_none_and_the_words_say_so(tmp_path: Path) -> None:
    groups = resource_limits.enter_groups(ASKED, tmp_path, tmp_path / "none")
    assert (groups.memory, groups.processes) == (None, None)
    assert resource_limits.describe_limits(ASKED, groups, True)["processes"] == "at most 50 (of the user)"
    assert resource_limits.describe_limits(ASKED, groups, False)["processes"] == "no limit"
    assert groups.count_out_of_memory_kills() == groups.count_refused_processes() == 0
    assert groups.list_members() == set()


@pytest.mark.parametrize("text", ["4:memory:/\n8:pids:/\n", "nonsense\n"])
def test_a_group_whose_limit_cannot_be_set_or_is_not_told_is_not_kept(
    tmp_path: Path, kernel: dict[str, list[str]], text: str
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "pids").mkdir()
    groups = resource_limits.enter_groups(ASKED, tmp_path, own(tmp_path, text))
    assert groups == resource_limits.ControlGroups(None, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [("memory.events", "low 0\noom 3\noom_kill 2\n"), ("memory.oom_control", "oom_kill_disable 0\noom_kill 2\n")],
)
def test_kills_for_memory_are_counted_in_both_versions(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "pids.events").write_text("max 7\n")
    groups = resource_limits.ControlGroups(tmp_path, tmp_path)
    assert (groups.count_out_of_memory_kills(), groups.count_refused_processes()) == (2, 7)


def test_groups_of_dead_launchers_are_removed_and_live_ones_stay(tmp_path: Path) -> None:
    pid = dead()
    for number in (pid, os.getppid()):
        (tmp_path / f"{resource_limits.PREFIX}{number}").mkdir()
    (tmp_path / "another").mkdir()
    groups = resource_limits.ControlGroups(tmp_path / f"{resource_limits.PREFIX}{os.getpid()}", None)
    assert resource_limits.remove_stale_groups(groups) == 0
    assert {one.name for one in tmp_path.iterdir()} == {f"{resource_limits.PREFIX}{os.getppid()}", "another"}


def test_tasks_of_a_user_are_counted_with_their_threads() -> None:
    done = threading.Event()
    threads = [threading.Thread(target=done.wait, args=(60,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    during = resource_limits.count_user_tasks(os.getuid())
    done.set()
    for thread in threads:
        thread.join()
    assert during > 20


def test_memory_is_bounded_where_no_group_is() -> None:
    code = """
from workbench.indicators.measurement import resource_limits as limits
from workbench.indicators.measurement.run_messages import RunLimits
limits.apply_limits(RunLimits(memory_bytes=512 << 20, processes=100), limits.ControlGroups(None, None), 10_000)
try:
    bytearray(1 << 30)
except MemoryError:
    raise SystemExit(42)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 42
    told = resource_limits.describe_limits(RunLimits(1 << 30), resource_limits.ControlGroups(None, None), False)
    assert told["memory"] == "at most 1 GiB (data of each process)"
