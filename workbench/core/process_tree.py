"""Process trees: a process with its descendants and its session, terminated and then killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from typing import Any

KILL_LIMIT_S = 10.0
_POLL_S = 0.02


def kill_process_tree(pid: int, *, grace_s: float = 0, started_s: float | None = None) -> None:
    """Kill a process, its descendants and its session; with a grace period they get SIGTERM first.

    Works for asyncio's processes too (with `start_new_session=True`): await their own `wait` afterwards.

    Parameters
    ----------
    started_s
        Start time of the process, by psutil: a process that reuses the id is spared.
    """
    found = _list_tree(pid, started_s)
    if grace_s > 0:
        _signal_processes(found, signal.SIGTERM)
        _wait_until_gone(found, grace_s)
    until = time.monotonic() + KILL_LIMIT_S
    # Repeated, since a process may start others before it dies.
    while found := [one for one in {*found, *_list_tree(pid, started_s)} if _is_alive(one)]:
        _signal_processes(found, signal.SIGKILL)
        _wait_until_gone(found, 1.0)
        if time.monotonic() > until:
            return


def read_start_time(pid: int) -> float | None:
    """Start time of a process, by psutil; identifies it together with its id. None when it is gone."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _list_tree(pid: int, started_s: float | None) -> list[Any]:
    """The process, its descendants, and orphans of its session."""
    import psutil

    found: set[Any] = set()
    with contextlib.suppress(psutil.Error):
        leader = psutil.Process(pid)
        if started_s is not None and abs(leader.create_time() - started_s) > 1:
            return []
        found |= {leader, *leader.children(recursive=True)}
    if os.getsid(0) != pid:
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == pid:
                    found.add(process)
    return [one for one in found if _is_alive(one)]


def _signal_processes(processes: Iterable[Any], number: signal.Signals) -> None:
    import psutil

    for process in processes:
        # psutil compares start times, so that a reused id is spared.
        with contextlib.suppress(psutil.Error, OSError):
            process.send_signal(number)


def _wait_until_gone(processes: Iterable[Any], timeout_s: float) -> None:
    """Poll instead of psutil's wait, which would take the exit code from the parent that waits."""
    until = time.monotonic() + timeout_s
    while any(map(_is_alive, processes)) and time.monotonic() < until:
        time.sleep(_POLL_S)


def _is_alive(process: Any) -> bool:
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
