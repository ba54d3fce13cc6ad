"""What measures inside a pod: this one file, with the standard library of Python 3.9 and nothing of the workbench.

It makes one round of a session and tells each result on stdout. A cluster's log mixes stdout with stderr, cuts lines
and may repeat them: so a result is told in short numbered lines, each signed with the session's key. Scripts never see
the key: they get neither this process's environment nor its descriptors, and the kernel lets nobody of the same user
look into it.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import hmac
import json
import math
import os
import platform
import resource
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

KEY_VARIABLE = "WORKBENCH_SESSION_KEY"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
LINE_CHARACTERS = 12_000
"""Of a text in one line: container runtimes cut at 16 KiB."""
ROUNDS_A_FILE = 100
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_ALLOCATION_ERRORS = (b"MemoryError", b"std::bad_alloc", b"Cannot allocate memory")
_FOR_GPUS = ("LD_LIBRARY_PATH", "NVIDIA_", "CUDA_")
_MAX_FLAGS = 1000


def main(arguments: list[str]) -> int:
    """Make the round that this pod's index stands for; the folders are bundle, environments, scratch."""
    bundle, environments, scratch = map(Path, arguments)
    plan = json.loads((bundle / "plan.json").read_text(encoding="utf-8"))
    return Round(plan, bundle, environments, scratch).run_all()


class RecordWriter:
    """Documents on stdout, as signed lines: `@workbench KIND ID NUMBER/COUNT TEXT SIGNATURE@`."""

    def __init__(self, key: bytes, number: int) -> None:
        self._key = key
        self._number = number
        # Of this attempt: parts of two pods that made the same round must never be put together.
        self._attempt = secrets.token_hex(4)

    def begin_document(self, name: object) -> None:
        """It is being made now: should the pod die, this says with what."""
        self._write_line("begin", name, "0/0", "-")

    def write_document(self, name: object, document: dict[str, Any]) -> None:
        """A document: its parts, then how long it must be and its digest."""
        packed = zlib.compress(json.dumps(document).encode())
        text = base64.b64encode(packed).decode()
        parts = [text[at : at + LINE_CHARACTERS] for at in range(0, len(text), LINE_CHARACTERS)]
        for number, part in enumerate(parts):
            self._write_line("part", name, f"{number}/{len(parts)}", part)
        self._write_line(
            "end", name, f"{len(parts)}/{len(parts)}", f"{len(packed)}:{hashlib.sha256(packed).hexdigest()}"
        )

    def _write_line(self, kind: str, name: object, count: str, text: str) -> None:
        body = f"{kind} {self._number}.{name}.{self._attempt} {count} {text}"
        signature = hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()[:32]
        unsent = f"@workbench {body} {signature}@\n".encode()
        while unsent:
            unsent = unsent[os.write(1, unsent) :]


class Round:
    """All runs of one round, in the session's order, each in a fresh process."""

    def __init__(self, plan: dict[str, Any], bundle: Path, environments: Path, scratch: Path) -> None:
        key = bytes.fromhex(os.environ.pop(KEY_VARIABLE))
        self.plan, self.bundle, self.environments, self.scratch = plan, bundle, environments, scratch
        self.number = plan["rounds"][int(os.environ[INDEX_VARIABLE])]
        self.teller = RecordWriter(key, self.number)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        self.isolation = dict(plan["isolation"])
        self._leave_network()
        protect_process()
        allowed = sorted(os.sched_getaffinity(0))
        # As many cores as were asked for: they are this pod's alone. More: everybody's, and pinning would collide.
        self.cpus = allowed[-plan["threads"] :] if len(allowed) <= plan["cpus"] else []
        self.wakeup = _open_child_signal()

    def run_all(self) -> int:
        """Make the round. Scripts may fail as they like: this ends well when each has been tried."""
        name = f"order-{self.number // ROUNDS_A_FILE}.json"
        order = json.loads((self.bundle / name).read_text(encoding="utf-8"))[str(self.number)]
        facts = {**read_machine_facts(), "cpus": self.cpus, "isolation": self.isolation}
        self.teller.write_document("pod", facts)
        for position, case, arm in order:
            self.teller.begin_document(position)
            before = read_pressure()
            ended = self._run_to_end(self.plan["cases"][case], self.plan["arms"][arm])
            identity = {"case": self.plan["cases"][case]["label"], "arm": self.plan["arms"][arm]["name"]}
            self.teller.write_document(position, {**identity, **ended, "before": before, "after": read_pressure()})
        # Once more: a log that grew too large has lost its beginning.
        self.teller.write_document("pod", facts)
        self.teller.write_document("done", {"runs": len(order)})
        return 0

    def _leave_network(self) -> None:
        refused = leave_network()
        self.isolation["network"] = "not isolated" if refused else "isolated"
        if refused:
            self.isolation["network reason"] = f"{self.plan['isolation']['network reason']}; in the pod: {refused}"
        else:
            self.isolation.pop("network reason", None)

    def _run_to_end(self, case: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        ended: dict[str, Any] = {"outcome": "not started", "started_at": _format_now(), "isolation": self.isolation}
        try:
            python = self.environments / str(arm["environment"]) / "bin" / "python"
            return {**ended, **self._watch_process(folder, case, str(python))}
        except (OSError, subprocess.SubprocessError) as error:
            return {**ended, "detail": str(error)[:300], "ended_at": _format_now()}
        finally:
            _kill_leftovers()
            _remove_folder(folder)

    def _watch_process(self, folder: Path, case: dict[str, Any], python: str) -> dict[str, Any]:
        work, home = folder / "work", folder / "home"
        (home / "tmp").mkdir(parents=True)
        for name, key in case["sources"].items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.bundle / key, work / name)
        gpu_variables = {
            name: value for name, value in os.environ.items() if self.plan["gpus"] and name.startswith(_FOR_GPUS)
        }
        environment = {**gpu_variables, **case["environment"], "HOME": str(home), "TMPDIR": str(home / "tmp")}
        begin_s = time.monotonic()
        process = subprocess.Popen(  # noqa: S603
            [python, "-s", "-B", "script.py"],
            cwd=str(work),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=self._apply_limits,
        )
        outputs = Outputs(process, self.plan["stdout_bytes"], self.plan["stderr_bytes"])
        try:
            ended_by = outputs.watch_until(begin_s + self.plan["timeout_s"], self.wakeup)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        duration_s, ended_at = time.monotonic() - begin_s, _format_now()
        left_behind = _kill_leftovers()
        outputs.drain_pipes()
        usage = {name: getattr(used, name) for name in dir(used) if name.startswith("ru_")}
        if not ended_by and outputs.stdout_bytes > outputs.most:
            ended_by = "too long"
        outcome, detail = self._classify_end(ended_by, status, usage, bytes(outputs.stderr[-4096:]))
        # An output that is too long is never a document: its beginning is enough.
        stdout = outputs.stdout[: 1 << 16] if outcome == "too long" else outputs.stdout
        return {
            "outcome": outcome,
            "detail": detail,
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "stdout": base64.b64encode(stdout).decode(),
            "stderr": base64.b64encode(outputs.stderr[-self.plan["stderr_bytes"] :]).decode(),
            "stdout_bytes": outputs.stdout_bytes,
            "usage": usage,
            "ended_at": ended_at,
            "duration_s": duration_s,
            "left_behind": left_behind,
        }

    def _apply_limits(self) -> None:
        """Between fork and exec."""
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        limits = self.plan["limits"]
        _set_limit(resource.RLIMIT_CORE, 0)
        _set_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
        _set_limit(resource.RLIMIT_NOFILE, limits["open_files"])
        _set_limit(resource.RLIMIT_NPROC, limits["processes"])
        # A second between the signal that tells and the one that cannot be ignored.
        _set_limit(resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"] + 1)
        if limits["memory_bytes"]:
            # Below the pod's own limit, at which the kernel would kill this process, too, and with it the round.
            _set_limit(resource.RLIMIT_DATA, limits["memory_bytes"])

    def _classify_end(self, ended_by: str, status: int, usage: dict[str, float], tail: bytes) -> tuple[str, str]:
        cpu_s = self.plan["limits"]["cpu_s"]
        if ended_by == "timeout":
            return "timeout", f"killed after {self.plan['timeout_s']:g} s"
        if ended_by:
            return ended_by, f"more than {self.plan['stdout_bytes']:,} bytes on stdout"
        if status == 0:
            return "exited", ""
        for text in _ALLOCATION_ERRORS:
            if text in tail:
                return "out of memory", f"it ended with {text.decode()}"
        if not os.WIFSIGNALED(status):
            return "exit code", f"exit code {os.WEXITSTATUS(status)}"
        number = os.WTERMSIG(status)
        used_s = usage["ru_utime"] + usage["ru_stime"]
        if number == signal.SIGXCPU or (number == signal.SIGKILL and used_s >= cpu_s):
            return "cpu limit", f"killed after {cpu_s} s of processor time"
        return "killed", f"by signal {number}"


class Outputs:
    """What a run prints: stdout up to a size, the end of stderr."""

    def __init__(self, process: subprocess.Popen[bytes], max_stdout_bytes: int, max_stderr_bytes: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._pipes = {process.stdout.fileno(): process.stdout, process.stderr.fileno(): process.stderr}
        self.most, self._most_stderr = max_stdout_bytes, max_stderr_bytes
        self.stdout, self.stderr, self.stdout_bytes = bytearray(), bytearray(), 0
        for descriptor in self._pipes:
            os.set_blocking(descriptor, False)

    def watch_until(self, until_s: float, wakeup: int) -> str:
        """Until the process has ended (empty), or the reason to kill it; its output may end before, or go on after."""
        # Left to be waited for: until then nobody else can get its number, nor its group's.
        while os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return "timeout"
            if self.stdout_bytes > self.most:
                return "too long"
            poll = select.poll()
            for descriptor in [*self._pipes, wakeup]:
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll(math.ceil(left_s * 1000)):
                if descriptor in self._pipes:
                    self._read_output(descriptor)
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wakeup, 4096)
        return ""

    def drain_pipes(self) -> None:
        """What is still in the pipes: all that could write is dead."""
        for descriptor in list(self._pipes):
            while self._read_output(descriptor):
                pass
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read_output(self, descriptor: int) -> bool:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self._pipes.pop(descriptor).close()
            return False
        if self._pipes[descriptor] is self._process.stdout:
            self.stdout_bytes += len(chunk)
            self.stdout += chunk[: max(0, self.most + 1 - len(self.stdout))]
        else:
            self.stderr += chunk
            if len(self.stderr) > 4 * self._most_stderr:
                del self.stderr[: -self._most_stderr]
        return True


def protect_process() -> None:
    """Nobody of the same user may read this process's memory, environment or descriptors; orphans come to it."""
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_CHILD_SUBREAPER, 1)):
        if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl {option}")


def leave_network() -> str:
    """Move this process where no network is; empty when done, else why not. Most clusters' seccomp profile refuses."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Tried in a child first: half of it done would leave this process without a user.
        reply = b""
        try:
            _unshare_namespaces()
        except BaseException as error:  # noqa: BLE001 - the child must end here
            reply = str(error).encode()[:200] or b"refused"
        os.write(writer, reply)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        refused = file.read().decode("utf-8", "replace")
    os.waitpid(pid, 0)
    if not refused:
        _unshare_namespaces()
    return refused


def _unshare_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(ctypes.c_int(_CLONE_NEWNET | (_CLONE_NEWUSER if user else 0))):
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _set_limit(kind: int, soft: int, hard: int | None = None) -> None:
    _, ceiling = resource.getrlimit(kind)
    wanted = soft if hard is None else hard
    allowed = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(kind, (min(soft, allowed), allowed))


def _open_child_signal() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _kill_leftovers() -> int:
    """Kill all that a run has left behind; how many. Descendants become children of this process as parents die."""
    killed, until_s = 0, time.monotonic() + 1.0
    while time.monotonic() < until_s:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid:
            killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            continue
        for child in _list_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    return killed


def _remove_folder(folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        # Folders in folders, a thousand deep. What is left costs disk, and nothing else.
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["/bin/rm", "-rf", str(folder)], check=False, timeout=60, stderr=subprocess.DEVNULL)  # noqa: S603


def _list_children() -> list[int]:
    children = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            # The name in parentheses may hold anything, also a parenthesis.
            stat = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(stat[1]) == os.getpid():
                children.append(int(folder.name))
    return children


def read_machine_facts() -> dict[str, Any]:
    """The machine under the pod, as far as it decides what is fast; nothing that names it."""
    cpu = _parse_fields(Path("/proc/cpuinfo"))
    memory = _parse_fields(Path("/proc/meminfo")).get("memtotal", "0").split()[0]
    return {
        "cpu_model": cpu.get("model name") or platform.processor() or platform.machine(),
        "cpu_family": _parse_whole_number(cpu.get("cpu family")),
        "cpu_model_number": _parse_whole_number(cpu.get("model")),
        "cpu_flags": sorted(set((cpu.get("flags") or cpu.get("features") or "").split()))[:_MAX_FLAGS],
        "cores": os.cpu_count() or 1,
        "memory_bytes": int(memory) * 1024,
        "accelerators": _list_accelerators(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "os_release": _read_os_release(),
    }


def _parse_fields(path: Path) -> dict[str, str]:
    """`name: value` lines up to the first empty one, names in small letters."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if not colon and fields:
                break
            fields[name.strip().lower()] = value.strip()
    return fields


def _parse_whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _list_accelerators() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [tool, "--query-gpu=name", "--format=csv,noheader"]
        output = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout  # noqa: S603
        return sorted(line.strip()[:100] for line in output.decode("utf-8", "replace").splitlines() if line.strip())
    return []


def _read_os_release() -> dict[str, str]:
    fields = {}
    with contextlib.suppress(OSError):
        for line in Path("/etc/os-release").read_text(errors="replace").splitlines():
            name, equals, value = line.partition("=")
            if equals and name in ("ID", "NAME", "VERSION", "VERSION_ID"):
                fields[name.lower()] = value.strip().strip("\"'")[:200]
    return fields


def read_pressure() -> dict[str, float | None]:
    """How busy the machine is now; null where it does not tell."""
    pressure: dict[str, float | None] = dict.fromkeys(("load_1m", "steal_s", "cpu_some_avg10", "memory_some_avg10"))
    with contextlib.suppress(OSError):
        pressure["load_1m"] = os.getloadavg()[0]
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]
        pressure["steal_s"] = int(ticks) / os.sysconf("SC_CLK_TCK")
    for kind in ("cpu", "memory"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            some = Path("/proc/pressure", kind).read_text().split("avg10=", 1)[1]
            pressure[f"{kind}_some_avg10"] = float(some.split()[0])
    return pressure


def _format_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")  # noqa: UP017 - Python 3.9


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
