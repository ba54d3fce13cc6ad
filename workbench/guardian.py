"""Stands between `workbench run` and a kernel, and ends the kernel with all that it started when its runner is gone.

Run as a script of its own, without the package: `python -I -S guardian.py CONNECTION_FILE COMMAND...`. Its standard
input is a pipe that only the runner holds: whatever ends the runner, SIGKILL too, closes it. A signal sent at a
parent's death would not do: it comes when the thread that started the kernel ends.

On Linux processes that lost their parents below it become its own, so that none escapes; elsewhere those of its
process group are ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

# Linux's numbers (linux/prctl.h).
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_LONGEST_END_S = 30.0
_FOLDER_PREFIX = "wb-"


def main(arguments: list[str]) -> int:
    """Start the command, wait for its end or the runner's; gives the command's exit code, 128 + a signal's number."""
    connection_file, *command = arguments
    _control(_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        # Handled and not ignored: what is ignored stays so in the kernel, which is interrupted by these.
        signal.signal(number, lambda *_: None)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    kernel = _started(command)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            if (code := _reaped(kernel)) is not None:
                return code
        if 0 in ready and not os.read(0, 4096):
            _end_all()
            _remove(Path(connection_file).parent)
            return 1


def _started(command: list[str]) -> int:
    guardian = os.getpid()
    kernel = os.fork()
    if kernel:
        return kernel
    try:
        _control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # A kernel looks whether its parent is the one that it was told.
        os.execvpe(command[0], command, os.environ | {"JPY_PARENT_PID": str(guardian)})  # noqa: S606 - no shell wanted
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    finally:
        os._exit(127)


def _reaped(kernel: int) -> int | None:
    """Let ended children go; the kernel's exit code when it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if not pid:
            return code
        if pid == kernel:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _end_all() -> None:
    """Kill everything below until nothing is left: what is killed may have started more meanwhile."""
    if not sys.platform.startswith("linux"):
        os.killpg(0, signal.SIGKILL)
    until = time.monotonic() + _LONGEST_END_S
    while time.monotonic() < until:
        for pid in _below(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _below(ancestor: int) -> list[int]:
    """The processes below one, by /proc; those that end meanwhile are passed over."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                # The command in brackets may hold anything, brackets too.
                fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(process.name))
            except (OSError, IndexError, ValueError):
                continue
    found, waiting = [], [ancestor]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _control(option: int, value: int) -> None:
    """Linux's prctl; nothing elsewhere."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _remove(folder: Path) -> None:
    """The folder of the kernel's sockets, which its runner would have removed."""
    if folder.name.startswith(_FOLDER_PREFIX):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
