"""The processes of a cluster: found by what they are, never by a number in a file.

Every component is started through a link in the cluster's own folder, so its command line begins with a path below it,
and with a variable that names the folder, which also marks what a wrapper script turned into or started. Both survive
a kill -9 of whoever started it, and after a reboot a stranger with an old number is no match.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from workbench import redaction
from workbench.errors import RunFailedError

MARK = "WORKBENCH_LOCAL_CLUSTER"  # a variable of every component's: the cluster's folder
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)
_POLL_S = 0.05


def running(folder: Path) -> dict[str, list[psutil.Process]]:
    """Live processes of ours that belong to the cluster in this folder, by their programs' names."""
    prefix = f"{folder}{os.sep}"
    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.uids().real != os.getuid():
                continue
            # A script is called as INTERPRETER PATH.
            words = process.cmdline()[:2]
            inside = [word for word in words if word.startswith(prefix)]
            if inside or process.environ().get(MARK) == str(folder):
                found.setdefault(Path((inside or words or ["?"])[0]).name, []).append(process)
    return found


def end(processes: Iterable[psutil.Process], *, grace_s: float = 0) -> None:
    """End these processes, and wait until they are gone: asked first when there is a grace, killed after it.

    Raises
    ------
    RunFailedError
        One does not go even when killed.
    """
    alive = list(processes)
    if grace_s > 0:
        alive = _told(alive, grace_s, kill=False)
    alive = _told(alive, 10, kill=True)
    if alive:
        raise RunFailedError("a process does not end", found=[f"{one.pid}" for one in alive], do="restart the machine")


def _told(processes: list[psutil.Process], timeout_s: float, *, kill: bool) -> list[psutil.Process]:
    """Those that are still there after it. psutil compares start times: a number that was given anew is spared."""
    for process in processes:
        try:
            process.kill() if kill else process.terminate()
        except _GONE:
            continue
    deadline = time.monotonic() + timeout_s
    while (processes := [one for one in processes if _lives(one)]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return processes


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except _GONE:
        return False


def start(folder: Path, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None) -> None:
    """Start a component of the cluster in this folder; it lives on without us, its output appended to `log`.

    By way of a shell that ends at once: it is nobody's child then, whose end somebody would have to wait for.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(  # noqa: S603
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            cwd=log.parent,
            env={**os.environ, **(environment or {}), MARK: str(folder)},
            start_new_session=True,
            check=True,
        )
    finally:
        os.close(handle)


def is_healthy(url: str, *, timeout_s: float = 2) -> bool:
    """Does a component answer that it is well? On loopback its certificate, signed by itself, is not checked."""
    parts = urlsplit(url)
    port = parts.port or 0
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(parts.hostname or "", port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", port, timeout=timeout_s)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def last_lines(log: Path, count: int = 12, *, most_bytes: int = 8192) -> str:
    """The end of a log, for an error's text; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - most_bytes))
            text = file.read(most_bytes).decode(errors="replace")
    except OSError:
        return ""
    return "\n    ".join(_short(line) for line in text.splitlines()[-count:])


def _short(line: str) -> str:
    """A line of a log; of kwok's, which are JSON documents, what they say."""
    with contextlib.suppress(ValueError):
        told = json.loads(line) if line.startswith("{") else None
        if isinstance(told, dict) and "msg" in told:
            error = " ".join(str(told.get("err", "")).split())
            line = f"{told.get('level', '')} {told['msg']}{': ' if error else ''}{error}"
    return redaction.clean(line)[:400]
