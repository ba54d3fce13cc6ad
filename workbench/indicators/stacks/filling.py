"""An empty folder filled with a stack: the environment, the packages with their hashes checked, their bytecode."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from workbench.errors import MissingToolError, RunFailedError
from workbench.indicators.stacks import inside, tool
from workbench.indicators.stacks.model import Stack
from workbench.indicators.stacks.sources import Sources
from workbench.indicators.stacks.target import this_python

COMPILE_TIMEOUT_S = 900


def venv(folder: Path, stack: Stack, holding: int) -> None:
    """Make the environment of the stack's Python; `holding` is an open file that uv inherits.

    Raises
    ------
    MissingToolError
        There is no such Python here.
    RunFailedError
        uv could not make it.
    """
    # By its own path, this very interpreter; another version is looked for, and never downloaded.
    wanted = sys.executable if stack.python == this_python() else stack.python
    said = tool.run(["venv", "--no-project", "--python", wanted, folder], sources=None, holding=holding)
    if said.code == 0:
        return
    # The second: a stand-in on PATH that knows of no such version.
    if wanted == stack.python and ("No interpreter found" in said.err or "inspect Python interpreter" in said.err):
        raise MissingToolError(
            "the stack's Python is not on this machine",
            where=stack.name,
            found=f"Python {stack.python}",
            do=f"uv python install {stack.python}, or solve the stacks again for this Python ({this_python()})",
        )
    raise RunFailedError("cannot make the environment", where=stack.name, found=said.explanation)


def install(folder: Path, stack: Stack, lock: Path, sources: Sources, *, offline: bool, holding: int) -> None:
    """Install exactly the files of the lock, each checked against its hash.

    Raises
    ------
    RunFailedError
        A file is not there (any more), or is another than the lock says.
    """
    checked = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    said = tool.run(
        ["pip", "install", "--python", inside.python(folder), *checked, "-r", lock],
        sources=sources,
        timeout_s=tool.INSTALL_TIMEOUT_S,
        offline=offline,
        holding=holding,
    )
    if said.code != 0:
        raise RunFailedError(
            "cannot install the stack",
            where=stack.name,
            found=said.explanation,
            do="install once without --offline" if offline else "see whether the index still has these files",
        )


def compile_all(folder: Path) -> None:
    """Write the bytecode now: else the first run would, or every run of a user who may not write here.

    Nothing of the packages is run for it: without `site`, no line of a .pth file is.
    """
    command: list[str | Path] = [
        inside.python(folder),
        "-S",
        "-s",
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        inside.site(folder),
    ]
    # Files that do not compile (templates, other Pythons' code) are passed over: the import would fail as well.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603
            command,
            # Its own folder, so that no module of the user's shadows the standard library's.
            cwd=folder,
            # The order of sets in bytecode follows the hash seed.
            env={"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
