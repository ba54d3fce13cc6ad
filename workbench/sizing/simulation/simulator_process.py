"""Runs the simulated service in a separate process, for tests and notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from workbench.core.child_process import ChildProcess, set_at_stdin_end
from workbench.core.errors import RunFailedError
from workbench.sizing.simulation.cluster_model import Service

START_TIMEOUT_S = 60


@contextlib.contextmanager
def run_simulator(
    service: Service, *, time_scale: float = 1.0, port: int = 0, prompt_words: bool = False
) -> Iterator[str]:
    """Serve a simulated service on the loopback interface inside the block; yields its URL.

    The process ends with the block, and with the process that started it.
    """
    request = {"service": service.model_dump(), "time_scale": time_scale, "port": port}
    request["prompt_words"] = prompt_words
    root = str(Path(__file__).resolve().parents[3])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "workbench.sizing.simulation.simulator_process"]
    with ChildProcess(command, env=os.environ | {"PYTHONPATH": paths}, with_stdin=True) as child:
        child.write_stdin(json.dumps(request) + "\n")
        line = child.wait_for_line(bool, timeout_s=START_TIMEOUT_S)
        if not line.startswith("http://"):
            raise RunFailedError("the simulated service did not start", where=f"port {port}", found=line)
        yield line


def main() -> int:
    """Serve the service described in the first line of stdin, until stdin ends."""
    import signal

    from workbench.sizing.simulation import simulator_server

    # Ctrl-C in a terminal reaches the whole process group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.loads(sys.stdin.readline())
    simulator_server.raise_file_limit_to_hard()
    try:
        asyncio.run(
            simulator_server.serve_simulator(
                Service.model_validate(request["service"]),
                host="127.0.0.1",
                port=request["port"],
                time_scale=request["time_scale"],
                prompt_words=request["prompt_words"],
                ready=_print_line,
                stop=set_at_stdin_end,
            )
        )
    except OSError as error:
        _print_line(error.strerror or "cannot listen")
        return 3
    return 0


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
