"""Runs started by root get a user of their own, who owns nothing, and who can still read the environments.

Those often lie below a folder that only root may enter (its home). In a mount namespace of the launcher an empty
folder then covers that one, and of what lies in it only the environments and their Pythons are put back, at the same
paths. So paths stay as they are, and nothing else of that folder can be seen by a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from workbench.indicators.running import kernel

_FIRST = 1_900_000_000
_FIRST_IN_CONTAINER = 60_000


def free_user() -> int | None:
    """A user id that nobody has; null when this process may not change its user (it is not root).

    One for each launcher, since the limit of processes counts all of a user's. A container may have few ids.
    """
    if os.geteuid() != 0:
        return None
    number = os.getpid()
    wanted = [_FIRST + number, *(_FIRST_IN_CONTAINER + (number + step) % 5000 for step in range(50))]
    return next((uid for uid in wanted if _mapped(uid) and not _taken(uid)), None)


def _mapped(uid: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= uid < first + count:
            return True
    return False


def _taken(uid: int) -> bool:
    import pwd

    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def roots(pythons: Iterable[str]) -> list[str]:
    """The folders that interpreters need: each environment, and the Python that it was made of."""
    found: dict[str, None] = {}
    for python in pythons:
        found[str(Path(python).absolute().parent.parent)] = None
        found[str(Path(python).resolve().parent.parent)] = None
    return list(found)


def make_reachable(folders: Iterable[str]) -> None:
    """Let any user enter these folders, in a mount namespace of this process; raises OSError when refused."""
    covered: dict[str, list[str]] = {}
    for folder in folders:
        if (top := closed_folder(folder)) is not None:
            covered.setdefault(top, []).append(folder)
    if not covered:
        return
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    for top, inner in covered.items():
        _cover(top, inner)


def closed_folder(path: str) -> str | None:
    """The uppermost folder on the way to a path that other users may not enter; null when they may enter all."""
    for folder in (*reversed(Path(path).parents), Path(path)):
        if folder.is_dir() and not folder.stat().st_mode & 0o001:
            return str(folder)
    return None


def _cover(top: str, folders: list[str]) -> None:
    if top in folders:
        raise OSError(f"{top} itself is closed to other users")
    # Opened before they are covered; a folder inside another one needs no entry of its own.
    kept = [one for one in folders if not any(one != other and Path(one).is_relative_to(other) for other in folders)]
    handles = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in kept}
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", top, "tmpfs", flags, "mode=755,size=1m")
    for folder, handle in handles.items():
        Path(folder).mkdir(parents=True)
        kernel.mount(f"/proc/self/fd/{handle}", folder, flags=kernel.MS_BIND | kernel.MS_REC)
        os.close(handle)
    kernel.mount("tmpfs", top, "tmpfs", flags | kernel.MS_REMOUNT | kernel.MS_RDONLY, "mode=755,size=1m")


def can_execute(uid: int, pythons: Iterable[str]) -> str | None:
    """Which interpreter a user cannot start, tried in a child; null when all can be."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(uid)
            for python in dict.fromkeys(pythons):
                if not os.access(python, os.X_OK) or not os.access(Path(python).resolve().parent, os.R_OK):
                    os.write(writer, b"other users cannot read an environment")
                    break
        except BaseException as error:  # noqa: BLE001 - the child must end here, whatever happens
            os.write(writer, str(error).encode()[:300])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        told = file.read()
    os.waitpid(pid, 0)
    return told.decode(errors="replace") or None


def become(uid: int) -> None:
    """Be this user, in its group alone, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
