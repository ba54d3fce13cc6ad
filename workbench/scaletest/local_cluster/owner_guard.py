"""Guard process that stops a cluster when its owner's process ends; used by tests that are killed.

The owner holds the other end of a pipe. When it ends, however it ends, the pipe ends, and the cluster is taken down.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO

import psutil

from workbench.core.errors import WorkbenchError
from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record


def current_owner() -> tuple[int, float]:
    """Process id and start time of this process, the `owner` argument of `up`."""
    return os.getpid(), psutil.Process().create_time()


def start_guard(name: str) -> subprocess.Popen[bytes]:
    """Start the process that ends this cluster when we end; `released` lets it go after a proper `down`."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", __name__, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def release_guard(guard: subprocess.Popen[bytes], *, timeout_s: float = 60) -> None:
    """Close the pipe, and wait until the guard has removed the cluster."""
    if guard.stdin is not None:
        guard.stdin.close()
    guard.wait(timeout_s)


def stop_orphans(prefix: str) -> list[str]:
    """Remove clusters of this prefix whose owner and guard were killed; returns their names.

    Clusters without an owner are kept.
    """
    swept = []
    for name in cluster_record.list_cluster_names():
        if not name.startswith(prefix):
            continue
        try:
            record = cluster_record.read_record(name)
        except WorkbenchError:
            record = None
        if record is not None and record.owner_pid and not _is_running(record.owner_pid, record.owner_started):
            cluster_lifecycle.stop_cluster(name)
            swept.append(name)
    return swept


def _is_running(pid: int, started: float) -> bool:
    try:
        return bool(abs(psutil.Process(pid).create_time() - started) < 1)
    except psutil.NoSuchProcess:
        return False


def main(name: str, pipe: IO[bytes]) -> None:
    """Wait for the owner's end, then end its cluster."""
    while pipe.read(1):
        pass
    cluster_lifecycle.stop_cluster(name)


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer)
