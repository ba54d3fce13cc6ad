"""What is kept of a cluster on disk: `cluster.json` in its place below the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench import files, runs
from workbench.errors import ConfigError, MissingToolError, RunFailedError
from workbench.scaletest.facts import Component
from workbench.scaletest.localcluster.settings import Settings, checked_name

FILE = "cluster.json"
_MOST_BYTES = 4 << 20
_POLL_S = 0.05


class Part(BaseModel):
    """A process of a cluster: how it was started, and where it tells how it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    command: tuple[str, ...]
    health: str
    environment: dict[str, str] = {}


class Record(BaseModel):
    """A cluster: what it was asked to be and how it was started. No secret is in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = 1
    name: str
    state: Literal["starting", "up"]
    folder: Path
    settings: Settings
    provider: str
    kubectl: Path | None = None
    kubernetes_version: str | None = None
    server: str = ""
    audited: bool = False
    parts: tuple[Part, ...] = ()
    components: tuple[Component, ...] = ()
    owner_pid: int = 0  # a process whose end should be the cluster's: tests
    owner_started: float = 0.0


def root() -> Path:
    """Where the local clusters of this user on this machine are.

    A home folder may be shared by machines and containers that do not see each other's processes: each has a place of
    its own, so that none takes another's cluster for a dead one.
    """
    return runs.cache_folder().absolute() / "scaletest" / "clusters" / machine()


def machine() -> str:
    """Short hash of what tells this machine from others; its name goes nowhere."""
    try:
        known = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        known = ""
    return hashlib.sha256(f"{socket.gethostname()} {known}".encode()).hexdigest()[:8]


def home(name: str) -> Path:
    """A cluster's place below the cache; its data may be elsewhere."""
    return root() / checked_name(name)


def write(record: Record) -> None:
    """Keep it, whole or not at all."""
    path = files.write_text(home(record.name) / FILE, record.model_dump_json(indent=1) + "\n")
    path.chmod(0o600)


def read(name: str) -> Record | None:
    """What is known of a cluster; null when there is none of this name.

    Raises
    ------
    ConfigError
        Its file cannot be understood.
    """
    path = home(name) / FILE
    if not path.is_file():
        return None
    try:
        return Record.model_validate_json(files.read_bounded(path, _MOST_BYTES))
    except ValidationError as error:
        raise ConfigError(
            "not the record of a cluster",
            where=path,
            found=str(error.errors()[0]["msg"])[:200],
            do=f"workbench scaletest cluster down --name {name}",
        ) from None


def names() -> list[str]:
    """Clusters that have a place here, up or not."""
    return sorted(path.parent.name for path in root().glob(f"*/{FILE}"))


def need_posix() -> None:
    """Refuse where the programs of a control plane do not run.

    Raises
    ------
    MissingToolError
        This is Windows.
    """
    if os.name != "posix":
        raise MissingToolError("a local cluster needs Linux or macOS", do="use the Windows subsystem for Linux")


@contextlib.contextmanager
def locked(name: str, *, timeout_s: float = 120) -> Iterator[None]:
    """Nobody else starts or ends this cluster meanwhile; a holder that dies lets go.

    Raises
    ------
    RunFailedError
        Somebody else holds it all that time.
    """
    need_posix()
    import fcntl

    root().mkdir(parents=True, exist_ok=True, mode=0o700)
    path = root() / f".{checked_name(name)}.lock"
    deadline = time.monotonic() + timeout_s
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder removes the file: what we locked may no longer be what others open.
            if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
                break
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(handle)
        if time.monotonic() > deadline:
            raise RunFailedError("another process is starting or ending this cluster", where=name, do="try again")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)
