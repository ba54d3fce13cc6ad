"""No network: a network namespace with a loopback of its own, made once by the launcher and inherited by its runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from workbench.indicators.running import kernel

ISOLATED = "isolated"
NOT_ISOLATED = "not isolated"
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def isolate() -> str | None:
    """Move this process where no network is; null when that was done, else why it could not be.

    As another user than root a user namespace is needed, too. Both are tried in a child first: half of it done would
    leave this process without a user.
    """
    step = _as_root if os.geteuid() == 0 else _as_user
    if refused := _tried(step):
        return refused
    step()
    return None


def _as_root() -> None:
    kernel.unshare(kernel.CLONE_NEWNET)
    with contextlib.suppress(OSError):
        _loopback_up()


def _as_user() -> None:
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNET)
    # The kernel asks for this before a group may be mapped.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with contextlib.suppress(OSError):
        _loopback_up()


def _loopback_up() -> None:
    """127.0.0.1 leads nowhere else, and libraries that talk to themselves need it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(handle, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _tried(step: Callable[[], None]) -> str | None:
    """Why a step fails in a child process; null when it does not."""
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
        told = file.read()
    os.waitpid(pid, 0)
    return told.decode(errors="replace") or None
