"""A PostgreSQL of the test's own: in a temporary folder, on loopback, as an unprivileged user, with a password."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSWORD = "s3cret/pass:word@1"
QUOTED = "s3cret%2Fpass%3Aword%401"


@dataclass(frozen=True)
class Server:
    """Where it listens."""

    port: int

    def url(self, name: str = "postgres", *, password: str = QUOTED) -> str:
        return f"postgresql://runner:{password}@127.0.0.1:{self.port}/{name}"


def binaries() -> Path | None:
    """The newest PostgreSQL of Debian's package, or the one on PATH; null without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("pg_ctl")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(programs: Path) -> Iterator[Server]:
    """Start a server, and end it."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-postgres-"))
    as_user = _unprivileged(folder)
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data, port = folder / "data", free_port()
        init = ["initdb", "-D", data, "-U", "runner", "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "-N"]
        _call(programs, [*init, "--locale=C.UTF-8"], as_user)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        log = folder / "log"
        _call(programs, ["pg_ctl", "-D", data, "-l", log, "-w", "-t", "60", "-o", options, "start"], as_user)
        try:
            yield Server(port)
        finally:
            _call(programs, ["pg_ctl", "-D", data, "-w", "-m", "immediate", "stop"], as_user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged(folder: Path) -> dict[str, Any]:
    """PostgreSQL refuses root: who runs it instead, and owns the folder."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("no unprivileged user to run PostgreSQL")


def _call(programs: Path, command: list[Any], as_user: dict[str, Any]) -> None:
    arguments = [str(programs / command[0]), *map(str, command[1:])]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    # Into a file, not a pipe: the server keeps what it inherits open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            arguments, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment, cwd="/", timeout=120,
            check=False, **as_user,
        )  # fmt: skip
        output.seek(0)
        assert done.returncode == 0, output.read().decode(errors="replace")
