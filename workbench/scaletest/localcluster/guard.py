"""A process that outlives its owner just long enough to end the owner's cluster: for tests that are killed.

The owner holds the other end of a pipe. When it ends, however it ends, the pipe ends, and the cluster is taken down.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO

import psutil

from workbench.errors import WorkbenchError
from workbench.scaletest.localcluster import cluster, record


def myself() -> tuple[int, float]:
    """This process, as `up` wants to know a cluster's owner."""
    return os.getpid(), psutil.Process().create_time()


def watch_over(name: str) -> subprocess.Popen[bytes]:
    """Start the process that ends this cluster when we end; `released` lets it go after a proper `down`."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", __name__, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def released(guard: subprocess.Popen[bytes], *, timeout_s: float = 60) -> None:
    """Close the pipe, and wait until the guard has seen to it that nothing is left."""
    if guard.stdin is not None:
        guard.stdin.close()
    guard.wait(timeout_s)


def sweep(prefix: str) -> list[str]:
    """End clusters of this prefix whose owner is gone: what a guard that was killed too has left. Their names.

    A cluster that nobody owns is somebody's who will end it.
    """
    swept = []
    for name in record.names():
        if not name.startswith(prefix):
            continue
        try:
            known = record.read(name)
        except WorkbenchError:
            known = None
        if known is not None and known.owner_pid and not _is_there(known.owner_pid, known.owner_started):
            cluster.down(name)
            swept.append(name)
    return swept


def _is_there(pid: int, started: float) -> bool:
    try:
        return bool(abs(psutil.Process(pid).create_time() - started) < 1)
    except psutil.NoSuchProcess:
        return False


def main(name: str, pipe: IO[bytes]) -> None:
    """Wait for the owner's end, then end its cluster."""
    while pipe.read(1):
        pass
    cluster.down(name)


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer)
