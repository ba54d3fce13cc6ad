"""One run: a fresh process under limits. `run_once` for a single one, `Launcher` for many.

with Launcher(Limits(memory_bytes=1 << 30), pythons=[python]) as launcher:
    ended = launcher.run(Command(python, {"script.py": "print(1)"}))
"""

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

from workbench.errors import MissingToolError, RunFailedError
from workbench.indicators.running.wire import Command, Ended, Limits, Setup, ended_of, line

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
"""The variables by which libraries are told how many threads to use."""


def clean_environment(threads: int, parameters: Mapping[str, str] | None = None) -> dict[str, str]:
    """All environment variables of a run but HOME and TMPDIR: nothing of the workbench's own gets through.

    Parameters
    ----------
    threads
        What libraries are told to use at most.
    parameters
        The variables that carry an indicator's parameters; they may overrule.

    Examples
    --------
    >>> found = clean_environment(2, {"PI_N": "5"})
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


def run_once(command: Command, limits: Limits | None = None) -> Ended:
    """One run with a launcher of its own (which takes 0.1 s to start)."""
    with Launcher(limits or Limits(), [command.python]) as launcher:
        return launcher.run(command)


class Launcher:
    """The process that starts runs; see `launcher.py` for why it is one of its own.

    Parameters
    ----------
    limits
        What holds for each run.
    pythons
        The interpreters that will be asked for: another user must be able to read them.
    cpus
        The cores for the launcher itself.
    scratch
        Folder for the private folders of runs; the system's for temporary files without it.
    """

    def __init__(
        self,
        limits: Limits,
        pythons: Iterable[str],
        *,
        cpus: tuple[int, ...] = (),
        scratch: str | Path | None = None,
    ) -> None:
        self._setup = Setup(limits, tuple(pythons), str(scratch or tempfile.gettempdir()), cpus)
        self._process: subprocess.Popen[bytes] | None = None
        self.isolation: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the current run, if there is one, and clean up."""
        self._stop()

    @property
    def pid(self) -> int | None:
        """The launcher's process; null when there is none."""
        return None if self._process is None else self._process.pid

    def run(self, command: Command) -> Ended:
        """Run this and wait for its end; whatever the run does, there is an ending.

        Raises
        ------
        RunFailedError
            The launcher itself cannot be started.
        """
        if self._process is None:
            self._start()
        try:
            return self._asked(line(command), command.timeout_s + GRACE_S)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            # A run that took its launcher with it is a run that failed; the next one gets a new launcher.
            self._stop()
            detail = f"{DIED} ({error or type(error).__name__})"
            return Ended("killed", detail[:300], isolation=self.isolation)
        except BaseException:
            # Ctrl-C in the middle: the answer that is still to come must not be taken for the next run's.
            self._stop()
            raise

    def _start(self) -> None:
        if sys.platform != "linux":
            raise MissingToolError(
                "runs need Linux", found=sys.platform, do="run it in a container or a virtual machine"
            )
        code = f"import sys; sys.path.insert(0, {str(PACKAGE_ROOT)!r}); "
        code += "from workbench.indicators.running.launcher import main; main()"
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
            self.isolation = self._asked(line(self._setup), GRACE_S).isolation
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            told = self._stop()
            raise RunFailedError(
                "the process that starts runs cannot be started", found=told or str(error) or type(error).__name__
            ) from error

    def _asked(self, request: bytes, most_s: float) -> Ended:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        held, waited_s = bytearray(), 0.0
        while not held.endswith(b"\n"):
            # In slices, not against a clock: while both are stopped (Ctrl-Z, a debugger) no time counts.
            ready, _, _ = select.select([process.stdout], [], [], _SLICE_S)
            if not ready:
                waited_s += _SLICE_S
                if waited_s >= most_s:
                    raise TimeoutError(f"no answer within {most_s:g} s")
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise EOFError("it ended")
            held += chunk
        return ended_of(bytes(held))

    def _stop(self) -> str:
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
        told = b""
        for pipe in (process.stderr, process.stdout):
            if pipe is not None:
                told = told or pipe.read()[-500:]
                pipe.close()
        lines = told.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines and process.returncode else ""
