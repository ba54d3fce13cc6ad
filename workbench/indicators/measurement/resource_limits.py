"""Limits of memory and processes: control groups where possible, else process limits.

The launcher itself enters the group, once; runs are born in it. To move each run would cost 10 to 30 ms, since the
kernel waits for all cores to pass a quiet point. Also runs in pods: Python 3.9 and its standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from workbench.indicators.measurement.run_messages import RunLimits

PREFIX = "workbench-runs-"
_OWN_BYTES = 32 << 20
"""Memory of the launcher in addition to the run's."""


@dataclass
class ControlGroups:
    """The control groups of a launcher: one folder for memory, one for processes (the same under version 2).

    `origins` has the group that this process was in before, for each.
    """

    memory: Path | None
    processes: Path | None
    origins: dict[Path, Path] = field(default_factory=dict)

    @property
    def folders(self) -> list[Path]:
        """The folders of the groups, each once."""
        return list(dict.fromkeys(folder for folder in (self.memory, self.processes) if folder is not None))

    def list_members(self) -> set[int]:
        """Ids of the processes in the groups, without this one."""
        pids: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError):
                pids |= {int(text) for text in (folder / "cgroup.procs").read_text().split()}
        return pids - {os.getpid()}

    def count_out_of_memory_kills(self) -> int:
        """Number of processes of this group that the kernel has killed for memory."""
        if self.memory is None:
            return 0
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (self.memory / name).read_text().splitlines())
                return int(counts.get("oom_kill", 0))
        return 0

    def count_refused_processes(self) -> int:
        """Number of new processes or threads that the limit has refused."""
        if self.processes is not None:
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (self.processes / "pids.events").read_text().splitlines())
                return int(counts.get("max", 0))
        return 0

    def leave_groups(self) -> None:
        """Move this process out and delete the groups."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                (self.origins.get(folder, folder.parent) / "cgroup.procs").write_text(str(os.getpid()))
            with contextlib.suppress(OSError):
                folder.rmdir()


def enter_groups(
    limits: RunLimits, root: Path = Path("/sys/fs/cgroup"), cgroup_file: Path = Path("/proc/self/cgroup")
) -> ControlGroups:
    """Make groups with these limits and move this process into them; a group that cannot be made is null."""
    memory = processes = None
    origins: dict[Path, Path] = {}
    for parent, origin in (
        _list_group_candidates("memory", root, cgroup_file) if limits.memory_bytes is not None else ()
    ):
        if memory := _enter_group(parent, _memory_settings(limits.memory_bytes or 0)):
            origins[memory] = origin
            break
    # Version 2: one group for both.
    if memory is not None and _write_settings(memory, {"pids.max": str(limits.processes + 1)}):
        return ControlGroups(memory, memory, origins)
    for parent, origin in _list_group_candidates("pids", root, cgroup_file):
        if processes := _enter_group(parent, [({"pids.max": str(limits.processes + 1)}, True)]):
            origins[processes] = origin
            break
    return ControlGroups(memory, processes, origins)


def _memory_settings(memory_bytes: int) -> list[tuple[dict[str, str], bool]]:
    """Settings and whether they must hold, version 2 first; swap would turn a limit into a slow machine."""
    text = str(memory_bytes + _OWN_BYTES)
    return [
        ({"memory.max": text}, True),
        ({"memory.swap.max": "0"}, False),
        ({"memory.limit_in_bytes": text}, True),
        ({"memory.memsw.limit_in_bytes": text}, False),
    ]


def _enter_group(parent: Path, settings: list[tuple[dict[str, str], bool]]) -> Path | None:
    """Move this process into a new control group below `parent`; null where that cannot be done.

    `settings`: Files and values to write, each with whether it is worth a group: one of those must succeed.
    """
    folder = parent / f"{PREFIX}{os.getpid()}"
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    # Each must-have is for one version of groups: one of them is enough.
    are_set = [_write_settings(folder, names) and must for names, must in settings]
    if any(are_set) and _write_settings(folder, {"cgroup.procs": str(os.getpid())}):
        return folder
    with contextlib.suppress(OSError):
        folder.rmdir()
    return None


def _write_settings(folder: Path, values: dict[str, str]) -> bool:
    """Write values to files of a control group; false as soon as one cannot be written."""
    try:
        for name, value in values.items():
            # Without O_CREAT: a file that the kernel does not have must not be made.
            handle = os.open(folder / name, os.O_WRONLY)
            try:
                os.write(handle, value.encode())
            finally:
                os.close(handle)
    except OSError:
        return False
    return True


def _list_group_candidates(controller: str, root: Path, cgroup_file: Path) -> Iterator[tuple[Path, Path]]:
    """Folders in which a group may be made, each with the group that this process is in now.

    That group itself, then the one above: version 2 allows no group with processes of its own to hand controllers down.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in cgroup_file.read_text().splitlines():
            _, names, path = line.split(":", 2)
            inner = path.strip("/")
            if controller in names.split(","):
                now = (top / inner for top in (root / names, root / controller))
                yield from ((folder, folder) for folder in now if folder.is_dir())
            elif not names:
                for top in (root, root / "unified"):
                    now_in = top / inner
                    yield from (
                        (folder, now_in)
                        for folder in (now_in, now_in.parent)
                        if _has_controller(folder, controller, top)
                    )


def _has_controller(folder: Path, controller: str, top: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.is_relative_to(top) and controller in (folder / "cgroup.subtree_control").read_text().split()
    return False


def remove_stale_groups(groups: ControlGroups) -> int:
    """Kill what killed launchers have left behind, and delete their groups; return the number of processes."""
    killed = 0
    for folder in groups.folders:
        for other in folder.parent.glob(f"{PREFIX}*"):
            number = other.name.removeprefix(PREFIX)
            if not number.isdigit() or Path(f"/proc/{number}").exists():
                continue
            with contextlib.suppress(OSError):
                for pid in (other / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                    killed += 1
            with contextlib.suppress(OSError):
                other.rmdir()
    return killed


def count_user_tasks(uid: int) -> int:
    """Processes and threads of a user: what RLIMIT_NPROC counts."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == uid:
                    count += sum(1 for _ in os.scandir(f"/proc/{entry.name}/task"))
    return count


def apply_limits(limits: RunLimits, groups: ControlGroups, n_tasks: int) -> None:
    """Set the limits of this process, just before it becomes the run.

    None of processor time: under RLIMIT_CPU Linux counts a process's own CPU clock in ticks of 1 to 10 ms, and scripts
    would measure ticks. The limit by the clock and the cores that a run gets bound it.

    `n_tasks`: Tasks of the user that are no part of the run; RLIMIT_NPROC counts all of a user's.
    """
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _set_limit(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.memory_bytes is not None and groups.memory is None:
        # Of data, not of addresses: a GPU's driver reserves hundreds of gigabytes of addresses that it never fills.
        _set_limit(resource.RLIMIT_DATA, limits.memory_bytes)
    if groups.processes is None:
        _set_limit(resource.RLIMIT_NPROC, limits.processes + n_tasks)


def _set_limit(kind: int, wanted: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    allowed = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(kind, (allowed, allowed))


def describe_limits(limits: RunLimits, groups: ControlGroups, bound_by_user: bool) -> dict[str, str]:
    """Describe the limits in force for memory and processes."""
    memory = "no limit"
    if limits.memory_bytes is not None:
        kind = "control group" if groups.memory is not None else "data of each process"
        memory = f"at most {limits.memory_bytes / 2**30:.3g} GiB ({kind})"
    if groups.processes is not None:
        processes = f"at most {limits.processes} (control group)"
    elif bound_by_user:
        processes = f"at most {limits.processes} (of the user)"
    else:
        processes = "no limit"
    return {"memory": memory, "processes": processes}
