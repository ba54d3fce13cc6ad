"""Process between runner and kernel that kills the kernel's process tree when the runner is gone.

Runs as a stand-alone script: `python -I -S kernel_guardian.py CONNECTION_FILE COMMAND...`. Its stdin is a pipe that
only the runner holds, and that closes however the runner ends, even by SIGKILL. (A parent-death signal would already
be sent when the thread that started the kernel ends.)

On Linux it adopts orphaned descendants, so that none escapes; elsewhere it kills its process group.
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
_MAX_END_S = 30.0
_FOLDER_PREFIX = "wb-"


def main(arguments: list[str]) -> int:
    """Run the command until it or the runner ends; returns its exit code, or 128 + signal number."""
    connection_file, *command = arguments
    _call_prctl(_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        # Handled, not ignored: the kernel would inherit ignored signals, and could not be interrupted.
        signal.signal(number, lambda *_: None)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    kernel = _start_kernel(command)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            if (code := _reap_children(kernel)) is not None:
                return code
        if 0 in ready and not os.read(0, 4096):
            _kill_descendants()
            _remove_folder(Path(connection_file).parent)
            return 1


def _start_kernel(command: list[str]) -> int:
    guardian = os.getpid()
    kernel = os.fork()
    if kernel:
        return kernel
    try:
        _call_prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # The kernel checks that this is its parent.
        os.execvpe(command[0], command, os.environ | {"JPY_PARENT_PID": str(guardian)})  # noqa: S606 - no shell wanted
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    finally:
        os._exit(127)


def _reap_children(kernel: int) -> int | None:
    """Reap ended children; returns the exit code of the kernel when it is among them."""
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


def _kill_descendants() -> None:
    """Kill all descendants, repeatedly, since they may start others before they die."""
    if not sys.platform.startswith("linux"):
        os.killpg(0, signal.SIGKILL)
    until = time.monotonic() + _MAX_END_S
    while time.monotonic() < until:
        # Descendants of a process, by /proc.
        ancestor = os.getpid()
        children: dict[int, list[int]] = {}
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    # The command in parentheses may contain any character.
                    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                    children.setdefault(int(fields[1]), []).append(int(process.name))
                except (OSError, IndexError, ValueError):
                    continue
        descendants, waiting = [], [ancestor]
        while waiting:
            below = children.pop(waiting.pop(), [])
            descendants += below
            waiting += below
        for pid in descendants:
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


def _call_prctl(option: int, value: int) -> None:
    """Call prctl on Linux; does nothing elsewhere."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _remove_folder(folder: Path) -> None:
    """Remove the folder of the kernel's sockets, in place of the runner."""
    if folder.name.startswith(_FOLDER_PREFIX):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
