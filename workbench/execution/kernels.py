"""Kernels for headless runs: this Python, private sockets, killed with all their children.

Papermill executes through `KernelEngine`, which keeps the notebook in memory (papermill's own engine would save it
with secrets after each cell) and ignores the kernelspecs of the machine.
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

import nbformat
import zmq
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_core.utils import ensure_event_loop, run_sync
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from workbench.execution import kernel_guardian
from workbench.execution.stream_text import StreamText

ENGINE = "workbench"
KERNEL_APP = "workbench.execution.kernel_app"
_TAIL_BYTES = 4096
OUTPUT_TIMEOUT_S = 86_400
MAX_OUTPUTS = 2_000
"""Outputs that are kept of a cell."""
# A Unix socket's path may have 107 bytes; jupyter_client adds "-ipc-5" to the connection file's.
_MAX_SOCKET_FOLDER_CHARS = 70


@dataclass
class Session:
    """State of one execution.

    `env`: Environment variables of the kernel, in addition to those of this process.
    `timeout_s`: Time limit of a cell; null for none.
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
        """The end of the kernel process's own output (a failed import, a crash)."""
        return bytes(self._tail).decode(errors="replace").strip()

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        """Register a kernel that was just started; it is killed if the run is already cancelled."""
        with self._lock:
            self._process = process
        if process.stdout is not None:
            threading.Thread(target=self._drain, args=(process.stdout,), daemon=True).start()
            # Read by the thread; jupyter_client would close it meanwhile.
            process.stdout = None
        if self.cancelled:
            self.kill()

    def _drain(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError), stream:
            while chunk := stream.read1(_TAIL_BYTES) if hasattr(stream, "read1") else stream.read(1):
                self._tail += chunk
                del self._tail[:-_TAIL_BYTES]

    def cancel(self) -> None:
        """Stop the execution from another thread: kills the kernel and its descendants."""
        self.cancelled = True
        self.kill()

    def kill(self) -> None:
        """Kill the kernel, its process group, and children that left the group."""
        with self._lock:
            process = self._process
        if process is None:
            return
        # The kernel is a child of the guardian, and so are its orphans.
        children = _list_descendants(process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The guardian leads its process group, whose id stays valid after it has gone.
            os.killpg(process.pid, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(Exception):
                child.kill()

    def end(self) -> None:
        """Kill the kernel and wait for it."""
        self.kill()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()


def _list_descendants(pid: int) -> list[Any]:
    import psutil

    try:
        descendants: list[Any] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return descendants


class OwnKernels(KernelSpecManager):  # type: ignore[misc]
    """One kernel for every name: ipykernel on this Python."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002 - one kernel, whatever the name
        """The spec of this environment's ipykernel."""
        from ipykernel.kernelspec import RESOURCES, get_kernel_dict

        spec = get_kernel_dict()
        spec["argv"] = [KERNEL_APP if word == "ipykernel_launcher" else word for word in spec["argv"]]
        if hasattr(os, "fork"):
            # However this process ends, even by SIGKILL, the guardian kills the kernel and its descendants.
            spec["argv"] = [sys.executable, "-I", "-S", kernel_guardian.__file__, "{connection_file}", *spec["argv"]]
        return KernelSpec(resource_dir=RESOURCES, **spec)


class KernelEngine(Engine):  # type: ignore[misc]
    """Papermill engine that executes in an own kernel and keeps the notebook in the session."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, *, session: Session, **_: Any) -> None:  # noqa: ARG003
        """Execute the notebook; its outputs are in `session.notebook`, even after a failure."""
        session.notebook = nb_man.nb
        with _create_private_folder() as folder:
            client = _Client(
                nb_man,
                session=session,
                km=_create_manager(folder),
                timeout=session.timeout_s,
                startup_timeout=session.start_timeout_s,
                # A cell has ended when all that it wrote has come; without a limit, however long that takes.
                iopub_timeout=session.timeout_s or OUTPUT_TIMEOUT_S,
                log=_create_silent_logger(),
            )
            # Else nbclient would not stop the kernel, which it did not create.
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
    """Papermill's client; registers the kernel and the next cell in the session.

    Outputs stay in the order in which they came: printed texts are joined only where nothing came between them.
    """

    def __init__(self, nb_man: Any, *, session: Session, **kwargs: Any) -> None:
        super().__init__(nb_man, **kwargs)
        self._session = session
        self._texts: dict[int, tuple[Any, StreamText]] = {}
        self._n_left_out = 0

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        # Pipes: stdout of this process is for `--json`; the guardian sees by its stdin when this process ends.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        await super().async_start_new_kernel(**pipes, **kwargs)
        self._session.attach(self.km.provisioner.process)

    def start_new_kernel(self, **kwargs: Any) -> None:
        run_sync(self.async_start_new_kernel)(**kwargs)

    def execute_cell(self, cell: Any, cell_index: int, **kwargs: Any) -> Any:
        self._session.cell_index = cell_index
        if self._session.on_cell and self.skip_cells_with_tag not in cell.metadata.get("tags", []):
            self._session.on_cell(cell_index)
        self._texts, self._n_left_out = {}, 0
        try:
            return super().execute_cell(cell, cell_index, **kwargs)
        finally:
            self._settle_outputs(cell)

    def output(self, outs: list[Any], msg: dict[str, Any], display_id: str | None, cell_index: int) -> Any:
        before = None if self.clear_before_next_output or not outs else outs[-1]
        if before is None:
            # The first output, or the first one after all were cleared.
            self._n_left_out = 0
        content, kind = msg["content"], msg["msg_type"]
        if self.output_hook_stack[msg["parent_header"].get("msg_id")]:
            return super().output(outs, msg, display_id, cell_index)
        is_full = bool(self._n_left_out) or len(outs) >= MAX_OUTPUTS
        if kind == "stream" and before is not None and before.get("name") == content["name"] and not self._n_left_out:
            # The output is kept beside its text, so that no other one gets its identity.
            _, text = self._texts.setdefault(id(before), (before, StreamText(before["text"])))
            text.append(content["text"])
            return None
        if is_full and kind != "error":
            self._n_left_out += 1
            return None
        return super().output(outs, msg, display_id, cell_index)

    def _settle_outputs(self, cell: Any) -> None:
        """Put the joined texts into a cell's outputs, with the controls in them applied."""
        for output in cell.get("outputs", ()):
            if output.get("output_type") == "stream":
                _, text = self._texts.get(id(output)) or (output, StreamText(output["text"]))
                output["text"] = text.join()
        if self._n_left_out:
            words = f"{self._n_left_out:,} more outputs of this cell were dropped; {MAX_OUTPUTS:,} are kept\n"
            cell.outputs.append(nbformat.v4.new_output("stream", name="stderr", text=words))


def _create_silent_logger() -> Any:
    """A logger without output, since errors are reported once, by the exception."""
    import logging

    log = logging.getLogger("workbench.execution.kernels")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return log


def _create_manager(folder: Path) -> AsyncKernelManager:
    options: dict[str, Any] = {"transport": "ipc"}
    if sys.platform == "win32" or len(str(folder)) > _MAX_SOCKET_FOLDER_CHARS:
        # Ports are open to all users of the machine, unlike sockets in a private folder: encrypt.
        options = {"transport": "tcp", "transport_encryption": "auto"}
    manager = AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=OwnKernels(),
        connection_file=str(folder / "kernel.json"),
        # No cell runs at shutdown, so the wait is short.
        shutdown_wait_time=4.0,
        **options,
    )
    # Without a limit, or messages of a cell that writes faster than they are read are dropped, the last one, too.
    manager.context.setsockopt(zmq.RCVHWM, 0)
    return manager


@contextlib.contextmanager
def _create_private_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wb-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def register_engine() -> None:
    """Register the engine with papermill and silence papermill's log; the runner reports errors."""
    import logging

    papermill_engines.register(ENGINE, KernelEngine)
    # It warns of annotations that it cannot read (Literal); `execution.parameters` has checked them.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
