"""Processes and ports of a local cluster: find, start, stop and probe."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from workbench.core import redaction
from workbench.core.errors import MissingToolError, RunFailedError
from workbench.scaletest.local_cluster.cluster_record import ClusterPart

LOOPBACK = "127.0.0.1"
# Below the ephemeral port range (Linux: 32768 and up), so that no connection can take the port of a component during a
# restart. Above the ports of common services.
_LOWEST, _HIGHEST = 20_000, 31_999
MARK = "WORKBENCH_LOCAL_CLUSTER"  # set for every component: the cluster's folder
_SCHEDULERS = "schedulers"
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)
_POLL_S = 0.05


def find_free_ports(count: int) -> list[int]:
    """Find different free ports.

    Another process may take one before it is used; callers retry.
    """
    # Random, because clusters may start at the same time. Not security-relevant.
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), 400)
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        if is_port_free(port):
            ports.append(port)
    if len(ports) < count:
        raise MissingToolError("not enough free ports on this machine", found=len(ports), allowed=f"{count} needed")
    return ports


def is_port_free(port: int) -> bool:
    """Whether no process listens on this port, on loopback or on all addresses."""
    # Also check the wildcard address.
    for host in (LOOPBACK, ""):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def find_scheduler_folder(folder: Path, name: str) -> Path:
    """Return the folder of a recipe's scheduler; its processes are called by this folder's name."""
    return folder / _SCHEDULERS / name


def list_component_pids(folder: Path) -> tuple[int, ...]:
    """Process ids of the cluster in this folder."""
    return tuple(process.pid for processes in find_processes(folder).values() for process in processes)


def find_processes(folder: Path) -> dict[str, list[psutil.Process]]:
    """Running processes of the cluster in this folder, by program name."""
    prefix = f"{folder}{os.sep}"
    processes: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.uids().real != os.getuid():
                continue
            # A script runs as INTERPRETER PATH.
            words = process.cmdline()[:2]
            inside = [word for word in words if word.startswith(prefix)]
            if inside or process.environ().get(MARK) == str(folder):
                path = Path((inside or words or ["?"])[0])
                is_scheduler = path.is_relative_to(folder / _SCHEDULERS)
                processes.setdefault(path.parent.name if is_scheduler else path.name, []).append(process)
    return processes


def end_processes(processes: Iterable[psutil.Process], *, grace_s: float = 0) -> None:
    """Terminate these processes and wait for their end; they are killed after the grace period."""
    alive = list(processes)
    if grace_s > 0:
        alive = _signal_processes(alive, grace_s, kill=False)
    alive = _signal_processes(alive, 10, kill=True)
    if alive:
        raise RunFailedError(
            "a process survives SIGKILL", found=[f"{process.pid}" for process in alive], do="restart the machine"
        )


def _signal_processes(processes: list[psutil.Process], timeout_s: float, *, kill: bool) -> list[psutil.Process]:
    """Terminate or kill processes and return those still alive afterwards.

    Start times tell reused process ids apart.
    """
    for process in processes:
        try:
            process.kill() if kill else process.terminate()
        except _GONE:
            continue

    def is_alive(process: psutil.Process) -> bool:
        try:
            return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
        except _GONE:
            return False

    deadline = time.monotonic() + timeout_s
    while (processes := [candidate for candidate in processes if is_alive(candidate)]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return processes


def start_component(
    folder: Path, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> None:
    """Start a component of the cluster in this folder as a daemon; its output is appended to `log`.

    A shell that exits immediately starts it, so that no parent has to wait for it.
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


def start_part(
    folder: Path,
    name: str,
    program: Path,
    link: Path,
    arguments: Sequence[str],
    *,
    health: str,
    environment: Mapping[str, str] | None = None,
) -> ClusterPart:
    """Start a program as a part of the cluster in this folder; it is not waited for.

    `link`: Made below the folder, so that the process is found; some programs look at the name that they are called by.
    """
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    link.unlink(missing_ok=True)
    link.symlink_to(program.absolute())
    command, variables = (str(link), *arguments), dict(environment or {})
    start_component(folder, command, folder / "logs" / f"{name}.log", environment=variables)
    return ClusterPart(name=name, command=command, health=health, environment=variables)


def is_healthy(url: str, *, timeout_s: float = 2) -> bool:
    """Whether a component's health endpoint reports ok; its self-signed certificate on loopback is not verified."""
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


def read_last_lines(log: Path, count: int = 12, *, max_bytes: int = 8192) -> str:
    """End of a log for an error message; empty without a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - max_bytes))
            text = file.read(max_bytes).decode(errors="replace")
    except OSError:
        return ""
    return "\n    ".join(_shorten_log_line(line) for line in text.splitlines()[-count:])


def _shorten_log_line(line: str) -> str:
    """A log line as text; kwok logs JSON documents."""
    with contextlib.suppress(ValueError):
        entry = json.loads(line) if line.startswith("{") else None
        if isinstance(entry, dict) and "msg" in entry:
            error = " ".join(str(entry.get("err") or entry.get("error", "")).split())
            line = f"{entry.get('level', '')} {entry['msg']}{': ' if error else ''}{error}"
    return redaction.redact_value(line)[:400]
