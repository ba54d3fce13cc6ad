"""Real servers on this machine: a port for one, and when it answers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.request


def choose_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_answered(process: subprocess.Popen[bytes], url: str, timeout_s: float) -> None:
    """Wait until a server that was started answers at this address.

    Raises
    ------
    RuntimeError
        It ended, or did not answer in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"the server did not start: {process.args}, exit code {process.poll()}")
        time.sleep(0.1)
