"""`transformers serve`, a real model server, with a model of random weights that is made here: two layers of a Llama.

In an environment of its own in the user's cache (torch and what it needs, 5 GB), made when it is not there.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.cached_environment import build_environment, install_environment

VERSION = "5.17.0"
# Of the server's own needs, the newest that it works with.
PACKAGES = (
    f"transformers[serving]=={VERSION}",
    "torch==2.11.0",
    "fastapi==0.121.3",
    "starlette==0.49.3",
    "openai==2.8.1",
    "requests",
)
MODEL = "made-llama"
MAKER = Path(__file__).resolve().parents[2] / "data" / "samples" / "gpu" / "record.py"
READY_S = 120


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The server with continuous batching, given as its URL; the model and the log are made in the folder.

    Raises
    ------
    RuntimeError
        The environment cannot be installed, or the server does not start; the message says why.
    """
    python = install_environment(f"ml/serve-{VERSION}", PACKAGES)
    variables = build_environment()
    subprocess.run(
        [python, MAKER, "model", folder, "--small"], env=variables, check=True, capture_output=True, timeout=READY_S
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [python.with_name("transformers"), "serve", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "serve.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "--continuous-batching", "--log-level", "error"],
            stdout=file, stderr=subprocess.STDOUT, cwd=folder, env=variables,
        )  # fmt: skip
        try:
            _wait_ready(process, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as page:
            if page.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"transformers serve does not start: {log.read_text()[-1000:]}")
