"""Child processes that never stay behind: started in a session of their own, watched, ended with all below them.

A child is ended by `end` or the block of a `with`, at the latest when this interpreter exits. Whatever ends this
process, SIGKILL too: a child of ours ends when its standard input does (`watch_stdin_end`), a foreign program when the
thread that started it dies (`die_with_parent`, Linux).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from workbench.core.errors import ConfigError, ExitCode, MissingToolError, RunFailedError

if TYPE_CHECKING:
    import asyncio

KILL_LIMIT_S = 10.0
MAX_OUTPUT_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 10
_POLL_S = 0.02
_READER_LIMIT_S = 5.0
_SHOWN_LINES = 12
_FACT = re.compile(r"  (where|found|allowed|do): (.*)")
_SET_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h
OnLine = Callable[[str], None]

# Loaded here: between fork and exec nothing may be imported.
_prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_RUNNING: weakref.WeakSet[ChildProcess] = weakref.WeakSet()
_OWNER = os.getpid()


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: its exit code (negative for a signal), and the first part of what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams, one after the other."""
        return f"{self.stdout}\n{self.stderr}"

    @property
    def last_lines(self) -> str:
        """Last lines of stderr, or else of stdout, for an error's text."""
        return format_last_lines(self.stderr or self.stdout)


def run_command(
    command: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    max_output_bytes: int = 16 << 20,
    pass_fds: Sequence[int] = (),
    must_succeed: bool = False,
    do: str | None = None,
) -> CommandResult:
    """Run a program to its end, without a shell; at the time limit it is killed with all that it started.

    >>> run_command([sys.executable, "-c", "print(input())"], stdin="hello").stdout
    'hello\\n'
    """
    name = _name_command(command)
    options = {"cwd": cwd, "env": env, "pass_fds": pass_fds, "max_output_bytes": max_output_bytes}
    with ChildProcess(command, with_stdin=True, do=do, **options) as child:  # type: ignore[arg-type]
        child.write_stdin(stdin)
        child.close_stdin()
        if child.wait(timeout_s) is None:
            raise RunFailedError(f"{name} did not end in time", found=f"{timeout_s:g} s")
    code = child.exit_code
    result = CommandResult(-signal.SIGKILL if code is None else code, child.stdout_text, child.stderr_text)
    if must_succeed and result.exit_code:
        last_lines = result.last_lines or None
        raise RunFailedError(f"{name} failed with exit code {result.exit_code}", found=last_lines, do=do)
    return result


class ChildProcess:
    """A running child: a context manager that ends it, and everything that it started.

    `name`: What errors call it; by default its program or module.
    `output`: File that gets what it prints, appended; then nothing is captured here.
    `on_line`, `on_error_line`: Called with each line of stdout and stderr, in a thread of their own.
    `max_output_bytes`: What is kept of stdout: its first part; of stderr its last lines.
    `max_line_bytes`: Where a longer line is cut in two.
    `ends_with_thread`: Have the kernel kill it when the thread that starts it dies, even by SIGKILL (Linux).

    >>> code = "import sys; print('ready', flush=True); sys.stdin.read()"
    >>> with ChildProcess([sys.executable, "-c", code], with_stdin=True) as child:
    ...     child.wait_for_line(lambda line: line == "ready", timeout_s=30)
    'ready'
    >>> child.exit_code
    0
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        name: str | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        output: str | Path | None = None,
        with_stdin: bool = False,
        on_line: OnLine | None = None,
        on_error_line: OnLine | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
        pass_fds: Sequence[int] = (),
        ends_with_thread: bool = False,
        is_detached: bool = False,
        grace_s: float = KILL_LIMIT_S,
        do: str | None = None,
    ) -> None:
        self.name = name or _name_command(command)
        self._grace_s, self._max_line_bytes = grace_s, max_line_bytes
        self._is_detached = is_detached
        self._changed = threading.Condition()
        self._stdout = _HeadCapture(max_output_bytes)
        self._stderr = _TailCapture(max_output_bytes)
        self._lines: deque[str] = deque(maxlen=1000)
        file = None if output is None else open(output, "ab")  # noqa: SIM115 - closed below, the child has its own
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a list, no shell
                list(map(str, command)),
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
                stdout=file or subprocess.PIPE,
                stderr=subprocess.STDOUT if file else subprocess.PIPE,
                pass_fds=pass_fds,
                # Ctrl-C is for us, who then end it; and all that it starts can be found by its session.
                start_new_session=True,
                preexec_fn=die_with_parent if ends_with_thread else None,
            )
        except OSError as error:
            raise MissingToolError(f"cannot start {self.name}", found=error.strerror, do=do) from None
        finally:
            if file is not None:
                file.close()
        self._started_s = read_start_time(self._process.pid)
        if not is_detached:
            _RUNNING.add(self)
        self._readers = [
            self._start_reader(self._process.stdout, self._take_line, on_line),
            self._start_reader(self._process.stderr, self._take_error_line, on_error_line),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ask it to end, then kill what is left; at once after an error."""
        if not self._is_detached:
            self.end(grace_s=self._grace_s if kind is None else 0)

    @property
    def pid(self) -> int:
        """Its process id, and its session's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether the child has not ended yet."""
        return self.exit_code is None

    @property
    def stdout_text(self) -> str:
        """The first part of what it printed."""
        return self._stdout.decode_text()

    @property
    def stderr_text(self) -> str:
        """The last lines that it wrote to stderr."""
        return self._stderr.decode_text()

    def write_stdin(self, text: str) -> None:
        """Give it this to read; whether a dead one took it, `exit_code` tells."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # a dead one, and one whose input has ended
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()

    def close_stdin(self) -> None:
        """End its standard input: the word for a child of ours to end."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; its exit code, None when it still runs after this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.exit_code

    def wait_for_line(self, is_wanted: Callable[[str], bool], *, timeout_s: float) -> str:
        """Wait for the next line of stdout that is wanted, such as the word that the child is ready."""
        until = time.monotonic() + timeout_s
        while True:
            has_ended = not self.is_running and not self._readers[0].is_alive()
            with self._changed:
                while self._lines:
                    if is_wanted(line := self._lines.popleft()):
                        return line
                if not has_ended and time.monotonic() < until:
                    self._changed.wait(0.05)
                    continue
            if has_ended:
                self.raise_if_ended()
            raise RunFailedError(f"{self.name} is not ready", found=f"no word within {timeout_s:g} s")

    def ask(self, line: str) -> str:
        """Give it a line, and wait for the one that answers it, however long it takes."""
        self.write_stdin(line + "\n")
        return self.wait_for_line(lambda _: True, timeout_s=math.inf)

    def raise_if_ended(self) -> None:
        """Raise its own error if it ended: one of the workbench as it was raised there, else what it said last."""
        if self.is_running:
            return
        self._join_readers()
        if self.exit_code in (ExitCode.WRONG_USE, ExitCode.FAILED) and (lines := self.stderr_text.strip().splitlines()):
            facts = [_FACT.fullmatch(line) for line in lines[1:]]
            if all(facts):
                kind = ConfigError if self.exit_code == ExitCode.WRONG_USE else RunFailedError
                raise kind(lines[0][:500], **{fact[1]: fact[2][:1000] for fact in facts if fact is not None})
        last_lines = format_last_lines(self.stderr_text or self.stdout_text)
        raise RunFailedError(f"{self.name} ended", where=f"exit code {self.exit_code}", found=last_lines or None)

    def watch_end(self, on_end: Callable[[int], None]) -> None:
        """Call this with its exit code when it ends, in a thread of its own."""

        def wait() -> None:
            on_end(self._process.wait())

        threading.Thread(target=wait, name=f"end of {self.name}", daemon=True).start()

    def end(self, *, grace_s: float | None = None) -> int:
        """Have it end: its input ends, after half the grace it gets SIGTERM, then all that is left is killed.

        Returns
        -------
        int
            Its exit code. It and all below it are gone, but for what the kernel cannot end within 10 s.
        """
        grace_s = self._grace_s if grace_s is None else grace_s
        had_input = self._process.stdin is not None
        self.close_stdin()
        if had_input and grace_s > 0:
            self.wait(grace_s / 2)
        kill_process_tree(self.pid, grace_s=grace_s / 2 if self.is_running else 0, started_s=self._started_s)
        code = self._process.wait()
        self._join_readers()
        _RUNNING.discard(self)
        return code

    def _start_reader(self, stream: IO[bytes] | None, take: Callable[[bytes], None], tell: OnLine | None) -> Any:
        """Start a thread that reads a stream to its end and passes each line on, as bytes and as text."""

        def read() -> None:
            assert stream is not None
            with contextlib.suppress(ValueError, OSError), stream:
                while line := stream.readline(self._max_line_bytes):
                    take(line)
                    if tell is not None:
                        tell(line.decode(errors="replace").rstrip("\r\n"))
            with self._changed:
                self._changed.notify_all()

        thread = threading.Thread(target=read if stream else lambda: None, name=f"output of {self.name}", daemon=True)
        thread.start()
        return thread

    def _take_line(self, line: bytes) -> None:
        with self._changed:
            self._stdout.add(line)
            self._lines.append(line.decode(errors="replace").rstrip("\r\n"))
            self._changed.notify_all()

    def _take_error_line(self, line: bytes) -> None:
        with self._changed:
            self._stderr.add(line)

    def _join_readers(self) -> None:
        # A grandchild that left the session may hold the pipe for ever.
        for reader in self._readers:
            reader.join(_READER_LIMIT_S)


class _HeadCapture:
    """The first bytes of a stream."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = bytearray()

    def add(self, line: bytes) -> None:
        self._bytes += line[: self._max_bytes - len(self._bytes)]

    def decode_text(self) -> str:
        return self._bytes.decode(errors="replace")


class _TailCapture(_HeadCapture):
    """The last bytes of a stream."""

    def add(self, line: bytes) -> None:
        self._bytes += line
        del self._bytes[: -self._max_bytes]


def watch_stdin_end(on_end: Callable[[], None]) -> None:
    """In a child: call `on_end`, in a thread, when standard input ends, which it does when the parent ends.

    Nothing else may read the input afterwards.
    """

    def read() -> None:
        # Not through sys.stdin: a thread that waits in it would break the interpreter's end.
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        on_end()

    threading.Thread(target=read, name="end of the parent", daemon=True).start()


def set_at_stdin_end(event: asyncio.Event) -> None:
    """In a child that runs a loop: set this event of it when standard input ends."""
    # Who calls it has it loaded; all others start without its 40 ms.
    import asyncio

    loop = asyncio.get_running_loop()

    def set_event() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(event.set)

    watch_stdin_end(set_event)


async def end_worker(child: asyncio.subprocess.Process, *, grace_s: float) -> None:
    """Have a child of asyncio end, in a session of its own: its input ends, then all that is left is killed."""
    import asyncio

    assert child.stdin is not None
    child.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), grace_s)
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


def die_with_parent() -> None:
    """`preexec_fn` of a child: kill it when the thread that starts it dies, even by SIGKILL. Linux only."""
    if _prctl is not None:
        _prctl(ctypes.c_int(_SET_PARENT_DEATH_SIGNAL), ctypes.c_ulong(signal.SIGKILL))


def format_last_lines(text: str, max_lines: int = _SHOWN_LINES, max_line_chars: int = 400) -> str:
    """The end of what a program said, for an error's text.

    >>> format_last_lines("a\\n\\nb\\n", max_lines=1)
    'b'
    """
    lines = [line.rstrip()[:max_line_chars] for line in text.splitlines() if line.strip()]
    return "\n    ".join(lines[-max_lines:])


@atexit.register
def _end_all_children() -> None:
    # Not in a fork of this process: they are not its children.
    if os.getpid() == _OWNER:
        for child in list(_RUNNING):
            child.end(grace_s=0)


def _name_command(command: Sequence[str | Path]) -> str:
    """Return the name of a command for errors: the program, or the Python module or script that it runs."""
    words = [str(word) for word in command]
    name = Path(words[0]).name
    if name.startswith("python"):
        operands = [word for word in words[1:] if not word.startswith("-")]
        name = operands[0] if operands and "-c" not in words else name
    return Path(name).name[:80]


def kill_process_tree(pid: int, *, grace_s: float = 0, started_s: float | None = None) -> None:
    """Kill a process, its descendants and its session; with a grace period they get SIGTERM first.

    Works for asyncio's processes too (with `start_new_session=True`): await their own `wait` afterwards.

    `started_s`: Start time of the process, by psutil: a process that reuses the id is spared.
    """
    processes = _list_tree(pid, started_s)
    if grace_s > 0:
        _signal_processes(processes, signal.SIGTERM)
        _wait_until_gone(processes, grace_s)
    until = time.monotonic() + KILL_LIMIT_S
    # Repeated, since a process may start others before it dies.
    while processes := [process for process in {*processes, *_list_tree(pid, started_s)} if _is_alive(process)]:
        _signal_processes(processes, signal.SIGKILL)
        _wait_until_gone(processes, 1.0)
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
    """List the process, its descendants, and orphans of its session."""
    import psutil

    processes: set[Any] = set()
    with contextlib.suppress(psutil.Error):
        leader = psutil.Process(pid)
        if started_s is not None and abs(leader.create_time() - started_s) > 1:
            return []
        processes |= {leader, *leader.children(recursive=True)}
    if os.getsid(0) != pid:
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == pid:
                    processes.add(process)
    return [member for member in processes if _is_alive(member)]


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
