"""Isolation of runs on Linux: system calls, network namespace, user, private folders.

Also runs in pods: Python 3.9 and its standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench.indicators.measurement import resource_limits
from workbench.indicators.measurement.run_messages import LauncherSetup

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)

_FIRST = 1_900_000_000
_FIRST_IN_CONTAINER = 60_000
ISOLATED = "isolated"
NOT_ISOLATED = "not isolated"
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
PREFIX = "workbench-run-"


def unshare_namespaces(flags: int) -> None:
    """Leave namespaces behind and get new ones."""
    _check_answer(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount_filesystem(source: str, target: str, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """Mount, bind or remount."""
    texts = [os.fsencode(text) for text in (source, target, kind)]
    _check_answer(_libc.mount(*texts, ctypes.c_ulong(flags), os.fsencode(data)), f"mount {target}")


def die_with_parent(signal: int) -> None:
    """Get this signal when the parent dies. A change of user forgets it, so it is asked for after one."""
    _check_answer(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal), 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    _check_answer(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def forbid_inspection() -> None:
    """Keep processes of the same user from reading this one's memory, environment or descriptors."""
    _check_answer(_libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0), "prctl")


def forbid_new_privileges() -> None:
    """Never gain rights by executing a file (setuid programs)."""
    _check_answer(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def _check_answer(answer: int, action: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def find_free_user() -> int | None:
    """A user id without a user; null if this process may not change its user (it is not root).

    One for each launcher, since the limit of processes counts all of a user's. A container may have few ids.
    """
    if os.geteuid() != 0:
        return None
    number = os.getpid()
    wanted = [_FIRST + number, *(_FIRST_IN_CONTAINER + (number + step) % 5000 for step in range(50))]
    return next((uid for uid in wanted if _is_mapped(uid) and not _is_taken(uid)), None)


def _is_mapped(uid: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= uid < first + count:
            return True
    return False


def _is_taken(uid: int) -> bool:
    import pwd

    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def list_root_folders(pythons: Iterable[str]) -> list[str]:
    """The folders that interpreters need: each environment, and the Python that it was made of."""
    folders: dict[str, None] = {}
    for python in pythons:
        folders[str(Path(python).absolute().parent.parent)] = None
        folders[str(Path(python).resolve().parent.parent)] = None
    return list(folders)


def make_reachable(folders: Iterable[str]) -> None:
    """Let any user enter these folders, in a mount namespace of this process; raises OSError when refused."""
    covered: dict[str, list[str]] = {}
    for folder in folders:
        if (top := find_closed_folder(folder)) is not None:
            covered.setdefault(top, []).append(folder)
    if not covered:
        return
    unshare_namespaces(CLONE_NEWNS)
    mount_filesystem("none", "/", flags=MS_REC | MS_PRIVATE)
    for top, inner in covered.items():
        _cover_folder(top, inner)


def find_closed_folder(path: str) -> str | None:
    """The uppermost folder on the way to a path that other users may not enter; null when they may enter all."""
    for folder in (*reversed(Path(path).parents), Path(path)):
        if folder.is_dir() and not folder.stat().st_mode & 0o001:
            return str(folder)
    return None


def _cover_folder(top: str, folders: list[str]) -> None:
    """Cover a top folder by an empty, read-only one in which only these folders below it can be seen."""
    if top in folders:
        raise OSError(f"{top} itself is closed to other users")
    # Opened before they are covered; a folder inside another one needs no entry of its own.
    roots = [
        candidate
        for candidate in folders
        if not any(candidate != other and Path(candidate).is_relative_to(other) for other in folders)
    ]
    handles = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in roots}
    flags = MS_NOSUID | MS_NODEV
    mount_filesystem("tmpfs", top, "tmpfs", flags, "mode=755,size=1m")
    for folder, handle in handles.items():
        Path(folder).mkdir(parents=True)
        mount_filesystem(f"/proc/self/fd/{handle}", folder, flags=MS_BIND | MS_REC)
        os.close(handle)
    mount_filesystem("tmpfs", top, "tmpfs", flags | MS_REMOUNT | MS_RDONLY, "mode=755,size=1m")


def find_unusable_python(uid: int, pythons: Iterable[str]) -> str | None:
    """Why a user cannot start one of these interpreters, tried in a child; null when all can be started."""

    def read_environments() -> None:
        become_user(uid)
        for python in dict.fromkeys(pythons):
            if not os.access(python, os.X_OK) or not os.access(Path(python).resolve().parent, os.R_OK):
                raise OSError("other users cannot read an environment")

    return _try_in_child(read_environments)


def become_user(uid: int) -> None:
    """Become this user, in its own group alone, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def isolate_network() -> str | None:
    """Move this process into a namespace without a network; null when that was done, else why it could not be."""
    if refused := _try_in_child(_enter_empty_network):
        return refused
    _enter_empty_network()
    return None


def _enter_empty_network() -> None:
    """Move this process into a network of its own, which has nothing but a loopback."""
    user, group = os.geteuid(), os.getegid()
    unshare_namespaces(CLONE_NEWNET | (CLONE_NEWUSER if user else 0))
    if user:
        # The kernel asks for this before a group may be mapped.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with contextlib.suppress(OSError):
        _enable_loopback()


def _enable_loopback() -> None:
    """Switch on 127.0.0.1 in a new network namespace: it leads nowhere else, and libraries talk to themselves by it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(handle, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _try_in_child(step: Callable[[], None]) -> str | None:
    """Try a step in a child process; why it fails there, or null when it does not."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - the child must end here, whatever happens
            os.write(writer, str(error).encode()[:300] or b"refused")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        message = file.read()
    os.waitpid(pid, 0)
    return message.decode(errors="replace") or None


@dataclass
class Surroundings:
    """State that holds for all runs of this launcher."""

    setup: LauncherSetup
    groups: resource_limits.ControlGroups
    uid: int | None
    already: int
    isolation: dict[str, str]
    scratch: Path
    wakeup: int


def prepare_surroundings(setup: LauncherSetup) -> Surroundings:
    """Enter the group, leave the network, choose the user, make the private folder."""
    os.chdir("/")
    os.umask(0o022)
    if setup.cpus:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setaffinity(0, setup.cpus)
    with contextlib.suppress(OSError):
        adopt_orphans()
    groups = resource_limits.enter_groups(setup.limits)
    resource_limits.remove_stale_groups(groups)
    isolation = {"network": ISOLATED}
    if setup.limits.network:
        isolation = {"network": NOT_ISOLATED, "network reason": "asked for"}
    elif refused := isolate_network():
        isolation = {"network": NOT_ISOLATED, "network reason": refused}
    uid = _select_user(setup, isolation)
    already = 0
    if uid is None and groups.processes is None:
        # In a namespace of its own only this launcher counts beside the run; else all that the user has running.
        inside = isolation["network"] == ISOLATED and os.geteuid() != 0
        already = 1 if inside else resource_limits.count_user_tasks(os.getuid())
    bound = uid is not None or os.geteuid() != 0
    isolation |= resource_limits.describe_limits(setup.limits, groups, bound)
    scratch = _make_scratch(setup.scratch)
    return Surroundings(setup, groups, uid, already, isolation, scratch, open_child_signal())


def _select_user(setup: LauncherSetup, isolation: dict[str, str]) -> int | None:
    """Id of the user of the runs; null for this process's own. Notes in `isolation` which it is."""
    isolation["user"] = "same as the workbench's"
    if os.geteuid() != 0:
        return None
    isolation["user"] = "root"
    uid = find_free_user()
    if uid is None:
        isolation["user reason"] = "no free user id"
        return None
    refused = None
    try:
        make_reachable([*list_root_folders([*setup.pythons, sys.executable]), *setup.folders])
    except OSError as error:
        refused = str(error)
    if refused := refused or find_unusable_python(uid, setup.pythons):
        isolation["user reason"] = refused
        return None
    isolation["user"] = "unprivileged, of its own"
    return uid


def _make_scratch(parent: str) -> Path:
    """A folder for the private folders of runs; those of launchers that were killed are removed."""
    for place in (parent, tempfile.gettempdir(), "/tmp"):  # noqa: S108 - made by mkdtemp
        if find_closed_folder(place) is None or os.geteuid() != 0:
            with contextlib.suppress(OSError):
                _remove_stale_folders(Path(place))
                scratch = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
                scratch.chmod(0o711)
                return scratch
    raise OSError("no folder for private folders of runs")


def _remove_stale_folders(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*-*"):
        number = folder.name.removeprefix(PREFIX).partition("-")[0]
        if number.isdigit() and not Path(f"/proc/{number}").exists() and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def open_child_signal() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader
