"""The simulated service in a process of its own, for tests, benchmarks and notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import RunFailedError
from workbench.sizing.simulation.service import Service

END_TIMEOUT_S = 10


@contextlib.contextmanager
def running(service: Service, *, time_scale: float = 1.0, port: int = 0) -> Iterator[str]:
    """Serve a simulated service on the loopback while the block runs, and give its URL.

    The process ends with the block, and with the process that started it, however that ends.

    Parameters
    ----------
    service
        What is simulated.
    time_scale
        Factor on all of its times.
    port
        Port on 127.0.0.1; 0 for any that is free.

    Raises
    ------
    RunFailedError
        It did not start, as when the port is taken.
    """
    asked = {"service": service.model_dump(), "time_scale": time_scale, "port": port}
    root = str(Path(__file__).resolve().parents[3])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench.sizing.simulation.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths},
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        told = process.stdout.readline()
        if not told.startswith("http://"):
            raise RunFailedError(
                "the simulated service did not start", where=f"port {port}", found=told.strip() or None
            )
        yield told.strip()
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()  # what it waits for
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def main() -> int:
    """Serve what the first line of the standard input asks for, until that input ends."""
    import signal

    from workbench.sizing.simulation import server

    # Ctrl-C in a terminal reaches the whole group; the one who started this process decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = json.loads(sys.stdin.readline())
    server.allow_many_connections()
    try:
        asyncio.run(
            server.serve(
                Service.model_validate(asked["service"]),
                host="127.0.0.1",
                port=asked["port"],
                time_scale=asked["time_scale"],
                ready=_say,
                stop=_with_input,
            )
        )
    except OSError as error:
        _say(error.strerror or "cannot listen")
        return 3
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _with_input(ended: asyncio.Event) -> None:
    """End when the standard input does: the kernel closes it whatever becomes of the one who holds the other side."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        # Not through sys.stdin: a thread that waits in it would break the interpreter's end.
        while os.read(0, 4096):
            pass
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    raise SystemExit(main())
