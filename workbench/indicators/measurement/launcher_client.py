"""Client of the launcher: start runs in fresh processes."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from workbench.core.errors import MissingToolError, RunFailedError
from workbench.indicators.measurement.run_messages import (
    LauncherSetup,
    RunCommand,
    RunEnd,
    RunLimits,
    encode_message,
    parse_run_end,
)

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
GRACE_S = 30.0
"""How much longer than a run's own limit its launcher may take before it counts as hung."""
_SLICE_S = 1.0
DIED = "the process that watches over runs died with it"
"""How the detail of a run begins that ended so: it says little of the run, and more of the machine."""
THREAD_VARIABLES = (
    "PI_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "ARROW_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "GOTO_NUM_THREADS",
)
"""Environment variables that set the number of threads of libraries."""


def build_clean_environment(threads: int, parameters: Mapping[str, str] | None = None) -> dict[str, str]:
    """Build all environment variables of a run but HOME and TMPDIR; none of the workbench's own get through.

    `parameters`: The variables that carry an indicator's parameters; they may overrule.

    >>> found = build_clean_environment(2, {"PI_N": "5"})
    >>> found["OMP_NUM_THREADS"], found["PI_N"], found["PYTHONHASHSEED"]
    ('2', '5', '0')
    """
    fixed = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONIOENCODING": "utf-8",
    }
    return {**fixed, **dict.fromkeys(THREAD_VARIABLES, str(threads)), **(parameters or {})}


def run_once(command: RunCommand, limits: RunLimits | None = None) -> RunEnd:
    """One run with a launcher of its own (which takes 0.1 s to start)."""
    with Launcher(limits or RunLimits(), [command.python]) as launcher:
        return launcher.run_command(command)


class Launcher:
    """The process that starts runs; see `launcher.py` for why it is one of its own.

    `pythons`: The interpreters that will be asked for: another user must be able to read them.
    `scratch`: Folder for the private folders of runs; the system's for temporary files without it.
    """

    def __init__(
        self,
        limits: RunLimits,
        pythons: Iterable[str],
        *,
        cpus: tuple[int, ...] = (),
        scratch: str | Path | None = None,
        folders: Iterable[str] = (),
    ) -> None:
        place = str(scratch or tempfile.gettempdir())
        self._setup = LauncherSetup(limits, tuple(pythons), place, cpus, tuple(folders))
        self._process: subprocess.Popen[bytes] | None = None
        self.isolation: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        self._start_process()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the current run, if there is one, and clean up."""
        self._stop_process()

    @property
    def pid(self) -> int | None:
        """The launcher's process; null when there is none."""
        return None if self._process is None else self._process.pid

    def run_command(self, command: RunCommand) -> RunEnd:
        """Run this and wait for its end; whatever the run does, there is an ending."""
        if self._process is None:
            self._start_process()
        try:
            return self._send_request(encode_message(command), command.timeout_s + GRACE_S)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            # A run that took its launcher with it is a run that failed; the next one gets a new launcher.
            self._stop_process()
            detail = f"{DIED} ({error or type(error).__name__})"
            return RunEnd("killed", detail[:300], isolation=self.isolation)
        except BaseException:
            # Ctrl-C in the middle: the answer that is still to come must not be taken for the next run's.
            self._stop_process()
            raise

    def _start_process(self) -> None:
        """Start the launcher, and wait until it says what isolation is in force."""
        if sys.platform != "linux":
            raise MissingToolError(
                "runs need Linux", found=sys.platform, do="run it in a container or a virtual machine"
            )
        code = f"import sys; sys.path.insert(0, {str(PACKAGE_ROOT)!r}); "
        code += "from workbench.indicators.measurement.launcher import main; main()"
        try:
            # -P: what lies in the current folder is no module of the launcher's.
            # A session of its own: Ctrl-C is for the workbench, which lets the current run end.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-S", "-s", "-E", "-B", "-P", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self.isolation = self._send_request(encode_message(self._setup), GRACE_S).isolation
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            message = self._stop_process()
            raise RunFailedError(
                "the process that starts runs cannot be started", found=message or str(error) or type(error).__name__
            ) from error

    def _send_request(self, request: bytes, timeout_s: float) -> RunEnd:
        """Send a line and wait for the answer; raises TimeoutError, or EOFError if the launcher has ended."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        reply, waited_s = bytearray(), 0.0
        while not reply.endswith(b"\n"):
            # In slices, not against a clock: while both are stopped (Ctrl-Z, a debugger) no time counts.
            ready, _, _ = select.select([process.stdout], [], [], _SLICE_S)
            if not ready:
                waited_s += _SLICE_S
                if waited_s >= timeout_s:
                    raise TimeoutError(f"no answer within {timeout_s:g} s")
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise EOFError("it ended")
            reply += chunk
        return parse_run_end(bytes(reply))

    def _stop_process(self) -> str:
        """End the launcher; the end of what it said about itself."""
        process, self._process = self._process, None
        if process is None:
            return ""
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        output = b""
        for pipe in (process.stderr, process.stdout):
            if pipe is not None:
                output = output or pipe.read()[-500:]
                pipe.close()
        lines = output.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines and process.returncode else ""
