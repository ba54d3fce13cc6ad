"""A session run as a process group of its own: started, watched line by line, killed whole."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.spark import java
from workbench.speedup.recording import session, stopping

POLL_S = 0.25
# Time that an asked process group has to end by itself.
GRACE_S = 5.0
MAX_TAIL_CHARS = 1500
NOISE = ("WARN", "Setting default log level", "To adjust logging level", "Using Spark's default log4j")
Json = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a session's process ended: executions it noted, facts (null when it did not come to its end), why not."""

    executions: list[Json]
    facts: Json | None
    error: str | None


def run(plan: session.Plan, *, timeout_s: float, told: Callable[[Json], None], local: bool) -> Ended:
    """Run one session to its end.

    Parameters
    ----------
    plan
        What it does; its folder is there and empty.
    timeout_s
        After this many seconds it is killed: it hangs.
    told
        Called with each execution as soon as it is noted.
    local
        Whether Spark is to listen on loopback only.

    Raises
    ------
    MissingToolError
        There is no pyspark or no Java.
    KeyboardInterrupt
        Passed on when the process group is gone.
    """
    folder = Path(plan.folder)
    (folder / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
    environment = os.environ | java.environment() | (_LOOPBACK if local else {})
    command = [sys.executable, "-m", session.__name__, str(folder / "plan.json")]
    executions: list[Json] = []
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            hung = _watch(process, folder / session.EXECUTIONS, executions, told, timeout_s)
        finally:
            with stopping.shielded():
                kill(process)
    facts = _facts(folder)
    if hung:
        return Ended(executions, None, f"killed: it took longer than {timeout_s:,.0f} s (--session-timeout)")
    if process.returncode or facts is None:
        return Ended(executions, None, f"ended with {process.returncode}: {_tail(folder / 'output.txt')}")
    return Ended(executions, facts, None)


_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}


def _watch(
    process: subprocess.Popen[bytes], path: Path, rows: list[Json], told: Callable[[Json], None], timeout_s: float
) -> bool:
    """Pass lines on until the process ends; true when it was given up on."""
    until = time.monotonic() + timeout_s
    lines = _new_lines(path)
    while True:
        ended = process.poll() is not None
        for line in next(lines):
            rows.append(json.loads(line))
            told(rows[-1])
        if ended:
            return False
        if time.monotonic() > until:
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)


def _new_lines(path: Path) -> Iterator[list[str]]:
    """At each turn the whole lines that the file has gained."""
    position = 0
    while True:
        text = b""
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        position += len(whole)
        yield whole.decode("utf-8", "replace").splitlines()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started; asked first, so that Spark can remove its files."""
    if not hasattr(os, "killpg"):
        process.kill()
        process.wait()
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        until = time.monotonic() + GRACE_S
        while _is_alive(process) and time.monotonic() < until:
            time.sleep(0.05)
    process.wait()


def _is_alive(process: subprocess.Popen[bytes]) -> bool:
    """Does the process or one of its group run? Dead ones that nobody has buried do not."""
    import psutil

    if process.poll() is None:
        return True
    # The group outlives its leader while Java is in it.
    for other in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getpgid(other.pid) == process.pid and other.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _facts(folder: Path) -> Json | None:
    try:
        found = json.loads((folder / session.FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _tail(path: Path) -> str:
    """The last telling lines of what the process printed."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    telling = [line.strip() for line in lines if line.strip() and not any(noise in line for noise in NOISE)]
    return " | ".join(telling[-6:])[-MAX_TAIL_CHARS:] or "without a word"
