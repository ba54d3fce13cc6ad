"""The launcher process: start runs one after the other, watch each, and kill what it leaves behind.

Also runs in pods: Python 3.9, its standard library, and the modules that `job_manifests` ships with it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

from workbench.indicators.measurement import resource_limits, run_isolation
from workbench.indicators.measurement.run_isolation import Surroundings, prepare_surroundings
from workbench.indicators.measurement.run_messages import (
    Outcome,
    RunCommand,
    RunEnd,
    encode_message,
    parse_command,
    parse_setup,
)

_SWEEP_S = 1.0
_TAIL = 4096
_ALLOCATION_ERRORS = (b"MemoryError", b"std::bad_alloc", b"Cannot allocate memory")
_ANSWERS = 1


class RequestPipe:
    """The pipe that commands come by, a line each, and whether its client has gone."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._held = b""

    def next_line(self) -> bytes | None:
        """The next line; null at the end."""
        while b"\n" not in self._held:
            chunk = os.read(self.descriptor, 1 << 16)
            if not chunk:
                return None
            self._held += chunk
        text, _, self._held = self._held.partition(b"\n")
        return text

    def is_closed(self) -> bool:
        """Whether the client has gone; requests come one at a time, so anything to read now is the end."""
        if not select_ready([self.descriptor], 0):
            return False
        return os.read(self.descriptor, 1 << 16) == b""


@dataclass
class WatchedRun:
    """A run while it lasts."""

    pid: int
    pipes: dict[int, str]
    stdout: bytearray
    stderr: bytearray
    stdout_bytes: int = 0
    ended_by: Outcome | None = None


def run_command(command: RunCommand, surroundings: Surroundings, requests: RequestPipe | None = None) -> RunEnd:
    """One run, from its private folder to the last of its processes; it is stopped when the pipe's client goes."""
    folder = Path(tempfile.mkdtemp(dir=surroundings.scratch))
    try:
        work, home = _make_private_folders(folder, command, surroundings.uid)
        # Start the run, watch it to its end, kill what it leaves behind, and tell how it ended. The order of the end
        # matters. The group is killed while its leader is not yet waited for: until then its number can be no other
        # group's. The time that the leader waited for a core is read from /proc, which forgets it once it is waited
        # for. Only then are leftovers killed: `kill_leftovers` waits for any child, and would take the leader's status
        # and usage. Outputs are drained last, since leftovers may hold the pipes open.
        groups, isolation = surroundings.groups, dict(surroundings.isolation)
        refused, kills = groups.count_refused_processes(), groups.count_out_of_memory_kills()
        started_at, begin_s = _format_now(), time.monotonic()
        watched, failure = _start_process(command, surroundings, work, home)
        if failure:
            _wait_for_process(watched.pid)
            return _build_start_failure(failure, surroundings, started_at)
        _watch_process(watched, command, surroundings, requests, begin_s + command.timeout_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(watched.pid, signal.SIGKILL)
        waited_s = _read_waited_s(watched.pid)
        status, usage = _wait_for_process(watched.pid)
        ended_at, duration_s = _format_now(), time.monotonic() - begin_s
        left_behind, others_cpu_s = kill_leftovers(groups)
        # Read what is still in the pipes: every process that could write is dead, and a pipe holds little.
        for descriptor in list(watched.pipes):
            while _read_output(watched, command, descriptor):
                pass
            if descriptor in watched.pipes:
                os.close(descriptor)
        if watched.stdout_bytes > command.max_stdout_bytes and watched.ended_by is None:
            watched.ended_by = "too long"
        if groups.count_refused_processes() > refused:
            isolation["processes"] += "; the limit was reached"
        outcome, detail = _classify_end(watched, command, status, groups.count_out_of_memory_kills() > kills)
        return RunEnd(
            outcome=outcome,
            detail=detail,
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            stdout=bytes(watched.stdout),
            stderr=bytes(watched.stderr[-command.kept_stderr_bytes :]),
            stdout_bytes=watched.stdout_bytes,
            usage=usage,
            started_at=started_at,
            ended_at=ended_at,
            duration_s=duration_s,
            cpu_s=round(usage["ru_utime"] + usage["ru_stime"] + others_cpu_s, 6),
            waited_s=waited_s,
            left_behind=left_behind,
            isolation=isolation,
        )
    except OSError as error:
        # Of the machine, not of the script: no file or no process could be made.
        return _build_start_failure(str(error), surroundings, _format_now())
    finally:
        _remove_folders(folder)


def _remove_folders(folder: Path) -> None:
    """The run's folders are gone, however deep it made them: Python's own way ends at a thousand levels."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        # What is left costs disk, and nothing else.
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["rm", "-rf", "--", str(folder)]
            subprocess.run(command, check=False, timeout=60, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603


def _build_start_failure(reason: str, surroundings: Surroundings, started_at: str) -> RunEnd:
    return RunEnd(
        "not started", reason[:300], started_at=started_at, ended_at=_format_now(), isolation=surroundings.isolation
    )


def _make_private_folders(folder: Path, command: RunCommand, uid: int | None) -> tuple[Path, Path]:
    """Make the run's working folder with its script and files, and an empty home; return both."""
    work, home = folder / "work", folder / "home"
    folder.chmod(0o711)
    for private_folder in (work, home, home / "tmp"):
        private_folder.mkdir(mode=0o700)
    made_files = []
    for name, text in command.sources.items():
        path = work / name
        if not path.resolve().is_relative_to(work.resolve()):
            raise OSError(f"{name[:80]} is outside the run's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        made_files += [path, *(parent for parent in path.parents if parent != work and parent.is_relative_to(work))]
    if uid is not None:
        for path in (work, home, home / "tmp", *made_files):
            os.chown(path, uid, uid)
    return work, home


def _start_process(command: RunCommand, surroundings: Surroundings, work: Path, home: Path) -> tuple[WatchedRun, str]:
    """Fork and execute; the text is why that failed."""
    (out, out_end), (err, err_end), (failure_fd, failure_end) = os.pipe(), os.pipe(), os.pipe()
    environment = {**command.environment, "HOME": str(home), "TMPDIR": str(home / "tmp")}
    launcher = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become_run(command, surroundings, work, environment, (out_end, err_end), launcher)
        except BaseException as error:  # noqa: BLE001 - the child must not come back into the launcher
            os.write(failure_end, str(error).encode()[:300] or b"failed")
        os._exit(127)
    for end in (out_end, err_end, failure_end):
        os.close(end)
    with os.fdopen(failure_fd, "rb") as file:
        failure = file.read().decode(errors="replace")
    if failure:
        os.close(out)
        os.close(err)
        return WatchedRun(pid, {}, bytearray(), bytearray()), failure
    os.set_blocking(out, False)
    os.set_blocking(err, False)
    return WatchedRun(pid, {out: "stdout", err: "stderr"}, bytearray(), bytearray()), ""


def _become_run(
    command: RunCommand,
    surroundings: Surroundings,
    work: Path,
    environment: dict[str, str],
    outputs: tuple[int, int],
    launcher: int,
) -> NoReturn:
    """In the forked child: take on limits, isolation and user, then become the script's interpreter.

    `outputs` are the ends of the pipes for stdout and stderr, `launcher` is the parent's process id.
    """
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (outputs[0], 1), (outputs[1], 2)):
        os.dup2(source, target)
    # What Python ignores, or whoever started us (nohup, a shell in the background), would stay ignored in the run.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if command.cpus:
        os.sched_setaffinity(0, command.cpus)
    with contextlib.suppress(OSError):
        # When the machine runs out of memory, the run goes first.
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource_limits.apply_limits(surroundings.setup.limits, surroundings.groups, surroundings.already)
    if surroundings.uid is not None:
        run_isolation.become_user(surroundings.uid)
    os.chdir(work)
    os.umask(0o077)
    run_isolation.forbid_new_privileges()
    run_isolation.die_with_parent(signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(127)
    # Not -I nor -E: with either, Python does not see PYTHONHASHSEED.
    os.execve(command.python, [command.python, "-s", "-B", "script.py"], environment)  # noqa: S606 - no shell is the point


def _watch_process(
    watched: WatchedRun,
    command: RunCommand,
    surroundings: Surroundings,
    requests: RequestPipe | None,
    deadline_s: float,
) -> None:
    """Until the process has ended, or a reason to kill it; its output may end before it, or go on after it."""
    signals = [surroundings.wakeup, *([] if requests is None else [requests.descriptor])]
    # Left to be waited for: until then nobody else can get its number, nor its group's.
    while os.waitid(os.P_PID, watched.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            watched.ended_by = "timeout"
        elif watched.stdout_bytes > command.max_stdout_bytes:
            watched.ended_by = "too long"
        elif requests is not None and requests.is_closed():
            watched.ended_by = "stopped"
        if watched.ended_by:
            return
        ready = select_ready([*watched.pipes, *signals], left_s)
        if surroundings.wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(surroundings.wakeup, 4096)
        for descriptor in ready & watched.pipes.keys():
            _read_output(watched, command, descriptor)


def _read_output(watched: WatchedRun, command: RunCommand, descriptor: int) -> bool:
    """One read of an output; false when there is nothing now, or nothing more."""
    try:
        chunk = os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return False
    if not chunk:
        os.close(descriptor)
        del watched.pipes[descriptor]
        return False
    if watched.pipes[descriptor] == "stdout":
        watched.stdout_bytes += len(chunk)
        watched.stdout += chunk[: max(0, command.max_stdout_bytes + 1 - len(watched.stdout))]
    else:
        watched.stderr += chunk
        if len(watched.stderr) > 4 * command.kept_stderr_bytes:
            del watched.stderr[: -command.kept_stderr_bytes]
    return True


def _wait_for_process(pid: int) -> tuple[int, dict[str, float]]:
    _, status, used = os.wait4(pid, 0)
    # By the names that POSIX gave them; the contract's list would bring pydantic along.
    return status, {name: getattr(used, name) for name in dir(used) if name.startswith("ru_")}


def _read_waited_s(pid: int) -> float | None:
    """Time in seconds that the first thread of a process waited for a core while it was ready to run."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # Time on a core, time waited (both in ns), turns.
        return round(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9, 6)
    return None


def kill_leftovers(groups: resource_limits.ControlGroups) -> tuple[int, float]:
    """Kill all that runs have left behind, however well hidden; how many that were, and the CPU time they had used.

    All descendants become children of this process as their parents die, also those in sessions of their own.
    """
    killed, cpu_s, until_s = 0, 0.0, time.monotonic() + _SWEEP_S
    while time.monotonic() < until_s:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return killed, cpu_s
        if pid:
            cpu_s += used.ru_utime + used.ru_stime
            killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            continue
        for leftover in groups.list_members() | _list_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(leftover, signal.SIGKILL)
        time.sleep(0.001)
    return killed, cpu_s


def _list_children() -> set[int]:
    """Process ids of this process's children."""
    own_pid = os.getpid()
    with contextlib.suppress(OSError):
        return {int(text) for text in Path(f"/proc/self/task/{own_pid}/children").read_text().split()}
    children = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything, also a parenthesis.
                after = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(after[1]) == own_pid:
                    children.add(int(entry.name))
    return children


def _classify_end(watched: WatchedRun, command: RunCommand, status: int, kernel_killed: bool) -> tuple[Outcome, str]:
    """Outcome of a run with its detail in words; the reason that the launcher had to end it takes precedence.

    `status` is that of `wait4`, `kernel_killed` says whether the control group counted a kill for its memory.
    """
    if watched.ended_by == "timeout":
        return "timeout", f"killed after {command.timeout_s:g} s"
    if watched.ended_by == "too long":
        return "too long", f"more than {command.max_stdout_bytes:,} bytes on stdout"
    if watched.ended_by:
        return watched.ended_by, "the workbench went away"
    if status == 0:
        return "exited", ""
    if kernel_killed:
        return "out of memory", "the kernel killed it at the memory limit"
    tail = bytes(watched.stderr[-_TAIL:])
    if error := next((text for text in _ALLOCATION_ERRORS if text in tail), None):
        return "out of memory", f"it ended with {error.decode()}"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "unknown"
        return "killed", f"by signal {number} ({name})"
    return "exit code", f"exit code {os.WEXITSTATUS(status)}"


def select_ready(descriptors: list[int], timeout_s: float) -> set[int]:
    """Return those of these descriptors that can be read, or are closed, within a time in seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(timeout_s * 1000))}


def _format_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")  # noqa: UP017 - Python 3.9


def main() -> None:
    """Read the setup, tell what is in force, then run what is asked for until the other end closes."""
    requests = RequestPipe(0)
    text = requests.next_line()
    if text is None:
        return
    surroundings = prepare_surroundings(parse_setup(text))
    try:
        _send_answer(RunEnd("exited", isolation=surroundings.isolation))
        while (text := requests.next_line()) is not None:
            _send_answer(run_command(parse_command(text), surroundings, requests))
    finally:
        kill_leftovers(surroundings.groups)
        shutil.rmtree(surroundings.scratch, ignore_errors=True)
        surroundings.groups.leave_groups()


def _send_answer(ended: RunEnd) -> None:
    text = encode_message(ended)
    while text:
        text = text[os.write(_ANSWERS, text) :]
