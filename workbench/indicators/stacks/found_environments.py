"""Environments of this machine that a session can compare within half a minute, without installing anything."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from workbench.core import files
from workbench.core.child_process import run_command
from workbench.core.errors import WorkbenchError

THIS = "this kernel"
THREADS = (1, 2)
# Byte code of an environment that lacks it is compiled before the first round, which takes minutes.
_MIN_COMPILED_FRACTION = 0.9
_MATRIX_FILE = "environments.yaml"
_PROBE = "import sys, sysconfig, numpy; print(sys.prefix); print(sysconfig.get_path('purelib'))"
_PROBE_TIMEOUT_S = 20


@functools.cache
def find_environments() -> dict[str, str]:
    """Folders of at most two environments with numpy, by name: this one, and that of another kernel or of conda."""
    found = {THIS: sys.prefix}
    for name, python in _list_pythons():
        prefix = _probe_numpy(python)
        if prefix is not None and prefix not in found.values() and name not in found:
            return {**found, name: prefix}
    return found


@functools.cache
def can_compare_environments() -> bool:
    """Whether a session of `write_environment_matrix` can run here and takes less than half a minute."""
    if sys.platform != "linux" or _probe_numpy(sys.executable) is None:
        return False
    return len(find_environments()) > 1 or len(os.sched_getaffinity(0)) >= max(THREADS)


def write_environment_matrix(folder: Path) -> Path:
    """Write a stack matrix: the environments that are there; where there is one only, its work on one and two threads.

    JSON is YAML, too.
    """
    environments = find_environments()
    threads = {} if len(environments) > 1 else {"threads": list(THREADS)}
    path = folder / _MATRIX_FILE
    files.write_text(path, json.dumps({"environments": environments, **threads}, indent=1) + "\n")
    return path


def _list_pythons() -> Iterator[tuple[str, str]]:
    """Interpreters of other kernels of Jupyter, and of conda's environments, each with a name."""
    with contextlib.suppress(Exception):
        from jupyter_client.kernelspec import KernelSpecManager

        for name, entry in KernelSpecManager().get_all_specs().items():
            command = entry["spec"]["argv"]
            if entry["spec"].get("language") == "python" and Path(command[0]).is_absolute():
                yield name, command[0]
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        lines = files.read_up_to(Path.home() / ".conda" / "environments.txt", 1 << 20).decode().splitlines()
        for line in filter(None, map(str.strip, lines)):
            yield Path(line).name, str(Path(line) / "bin" / "python")


def _probe_numpy(python: str) -> str | None:
    """Folder of an interpreter's environment, if it has numpy and its packages are compiled; else null."""
    try:
        printed = run_command([python, "-I", "-c", _PROBE], timeout_s=_PROBE_TIMEOUT_S, must_succeed=True).stdout
    except (OSError, WorkbenchError):
        return None
    prefix, packages = printed.splitlines()[:2]
    modules = [path.parent for path in Path(packages).glob("*/__init__.py")]
    n_compiled = sum((folder / "__pycache__").is_dir() for folder in modules)
    return prefix if n_compiled >= _MIN_COMPILED_FRACTION * len(modules) else None
