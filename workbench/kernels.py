"""Kernels for headless runs: this environment's Python, private sockets, and none left behind.

Papermill executes through `KernelEngine`, which keeps the notebook in memory (papermill's own would save it, secrets
and all, after each cell) and starts kernels of its own making, whatever kernelspecs the machine has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_core.utils import ensure_event_loop, run_sync
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from workbench import guardian

ENGINE = "workbench"
_TAIL_BYTES = 4096
# A Unix socket's path may have 107 bytes; jupyter_client adds "-ipc-5" to the connection file's.
_LONGEST_SOCKET_FOLDER = 70


@dataclass
class Session:
    """What one execution needs to know and tells back.

    Attributes
    ----------
    env
        Environment variables of the kernel, beside those of this process.
    folder
        Working directory of the kernel.
    timeout_s
        Longest time for one cell; null for no limit.
    on_cell
        Called with the cell's index before it is executed.
    """

    env: dict[str, str]
    folder: Path
    timeout_s: int | None = None
    start_timeout_s: int = 120
    on_cell: Callable[[int], None] | None = None
    notebook: Any = None
    cell_index: int | None = None
    cancelled: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _tail: bytearray = field(default_factory=bytearray)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def last_words(self) -> str:
        """The end of what the kernel process itself wrote (a failed import, a crash), as text."""
        return bytes(self._tail).decode(errors="replace").strip()

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        """Take note of a kernel that was just started; it dies at once when the run is already cancelled."""
        with self._lock:
            self._process = process
        if process.stdout is not None:
            threading.Thread(target=self._drain, args=(process.stdout,), daemon=True).start()
            # Our thread reads it; jupyter_client would close it under the reader's hands.
            process.stdout = None
        if self.cancelled:
            self.kill()

    def _drain(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError), stream:
            while chunk := stream.read1(_TAIL_BYTES) if hasattr(stream, "read1") else stream.read(1):
                self._tail += chunk
                del self._tail[:-_TAIL_BYTES]

    def cancel(self) -> None:
        """Stop the execution from another thread: its kernel and all that the kernel started are killed."""
        self.cancelled = True
        self.kill()

    def kill(self) -> None:
        """Kill the kernel, its process group, and children that left the group."""
        with self._lock:
            process = self._process
        if process is None:
            return
        # The kernel is the guardian's child, and so is what lost its parents below it.
        children = _descendants(process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The guardian leads a group of its own, so its id is the group's, also when the leader is gone.
            os.killpg(process.pid, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(Exception):
                child.kill()

    def end(self) -> None:
        """Kill what is left, and wait until the kernel is gone, not even a zombie."""
        self.kill()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()


def _descendants(pid: int) -> list[Any]:
    import psutil

    try:
        found: list[Any] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return found


class OwnKernels(KernelSpecManager):  # type: ignore[misc]
    """Knows one kernel under every name: ipykernel on the Python that runs this."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002 - one kernel, whatever the name
        """The spec of this environment's ipykernel."""
        from ipykernel.kernelspec import RESOURCES, get_kernel_dict

        spec = get_kernel_dict()
        if hasattr(os, "fork"):
            # Whatever ends this process, SIGKILL too, the guardian ends the kernel and all that it started.
            spec["argv"] = [sys.executable, "-I", "-S", guardian.__file__, "{connection_file}", *spec["argv"]]
        return KernelSpec(resource_dir=RESOURCES, **spec)


class KernelEngine(Engine):  # type: ignore[misc]
    """Papermill's way in: executes in a kernel of ours and keeps the notebook in the session."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, *, session: Session, **_: Any) -> None:  # noqa: ARG003
        """Execute; the notebook with its outputs stays in `session.notebook`, however it ends."""
        session.notebook = nb_man.nb
        with _private_folder() as folder:
            client = _Client(
                nb_man,
                session=session,
                km=_manager(folder),
                timeout=session.timeout_s,
                startup_timeout=session.start_timeout_s,
                coalesce_streams=True,
                log=_silent_log(),
            )
            # The kernel is ours and not the client's: nbclient only stops those that it made itself.
            client.owns_km = True
            env = os.environ | session.env | {"IPYTHONDIR": str(folder / "ipython")}
            # jupyter_core keeps an event loop per thread and never closes it.
            loop = ensure_event_loop()
            try:
                client.execute(cwd=str(session.folder), env=env)
            finally:
                session.end()
                if not loop.is_running():
                    loop.close()


class _Client(PapermillNotebookClient):  # type: ignore[misc]
    """Papermill's client, telling the session which kernel it started and which cell is next."""

    def __init__(self, nb_man: Any, *, session: Session, **kwargs: Any) -> None:
        super().__init__(nb_man, **kwargs)
        self._session = session

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        # A pipe, since our own standard output is not the kernel's: `--json` promises one document there. The one for
        # input stays open as long as we live: that is how the guardian knows.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        await super().async_start_new_kernel(**pipes, **kwargs)
        self._session.attach(self.km.provisioner.process)

    def start_new_kernel(self, **kwargs: Any) -> None:
        run_sync(self.async_start_new_kernel)(**kwargs)

    def execute_cell(self, cell: Any, cell_index: int, **kwargs: Any) -> Any:
        self._session.cell_index = cell_index
        if self._session.on_cell:
            self._session.on_cell(cell_index)
        return super().execute_cell(cell, cell_index, **kwargs)


def _silent_log() -> Any:
    """A logger that says nothing: what went wrong is told once, by the error."""
    import logging

    log = logging.getLogger("workbench.kernels")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return log


def _manager(folder: Path) -> AsyncKernelManager:
    options: dict[str, Any] = {"transport": "ipc"}
    if sys.platform == "win32" or len(str(folder)) > _LONGEST_SOCKET_FOLDER:
        # Sockets in a private folder need no encryption; ports that everybody on the machine can reach do.
        options = {"transport": "tcp", "transport_encryption": "auto"}
    return AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=OwnKernels(),
        connection_file=str(folder / "kernel.json"),
        # Cells have ended when a kernel is asked to go; what then still works is not waited for.
        shutdown_wait_time=4.0,
        **options,
    )


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wb-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def register() -> None:
    """Make the engine known to papermill, and keep papermill's own log quiet: errors are told by the runner."""
    import logging

    papermill_engines.register(ENGINE, KernelEngine)
    # It warns of parameters whose annotations it cannot read (Literal); `workbench.parameters` has checked them all.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
