"""Guard process that stops a cluster when its owner's process ends, for tests that are killed.

The owner holds the other end of a pipe. When it ends, however it ends, the pipe ends, and the cluster is taken down. A
file beside the cluster names the owner, for what a killed guard leaves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import psutil

from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record


def start_guard(name: str) -> subprocess.Popen[bytes]:
    """Start the process that ends this cluster when we end; `release_guard` lets it go after a proper end."""
    _owner_file(name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _owner_file(name).write_text(json.dumps([os.getpid(), psutil.Process().create_time()]))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.scaletest.owner_guard", name],
        cwd=Path(__file__).parents[2],
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
    """Remove clusters of this prefix whose owner and guard were killed; returns their names."""
    swept = []
    for path in cluster_record.find_clusters_folder().glob(f".{prefix}*.owner"):
        pid, started = json.loads(path.read_text() or "[0, 0]")
        if not _is_running(pid, started):
            swept.append(path.name.removeprefix(".").removesuffix(".owner"))
            _stop(swept[-1])
    return swept


def _owner_file(name: str) -> Path:
    return cluster_record.find_clusters_folder() / f".{name}.owner"


def _stop(name: str) -> None:
    cluster_lifecycle.stop_cluster(name)
    _owner_file(name).unlink(missing_ok=True)


def _is_running(pid: int, started: float) -> bool:
    try:
        return bool(pid and abs(psutil.Process(pid).create_time() - started) < 1)
    except psutil.NoSuchProcess:
        return False


def main(name: str, pipe: IO[bytes]) -> None:
    """Wait for the owner's end, then end its cluster."""
    while pipe.read(1):
        pass
    _stop(name)


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer)
