"""Calls into the Linux kernel that Python 3.11 has no function for; each raises OSError when it is refused."""

from __future__ import annotations

import ctypes
import os

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
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave namespaces behind and get new ones."""
    _done(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """Mount, bind or remount."""
    texts = [os.fsencode(text) for text in (source, target, kind)]
    _done(_libc.mount(*texts, ctypes.c_ulong(flags), os.fsencode(data)), f"mount {target}")


def die_with_parent(signal: int) -> None:
    """Get this signal when the parent dies. A change of user forgets it, so it is asked for after one."""
    _done(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal), 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    _done(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def no_new_privileges() -> None:
    """Never gain rights by executing a file (setuid programs)."""
    _done(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def _done(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
