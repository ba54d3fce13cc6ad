"""Packages in a folder of their own in the user's cache: what only one question needs, and what our lock does not have.

A program uses them by PYTHONPATH, or by `python -S` and the folder first in `sys.path`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.core.child_process import run_command
from workbench.core.errors import MissingToolError, WorkbenchError
from workbench.core.files import cache_folder

INSTALL_TIMEOUT_S = 900
OnMessage = Callable[[str], None]


def ensure_packages(
    tool: str, version: str, installs: Sequence[Sequence[str]], *, marker: str, size: str, say: OnMessage, do: str
) -> Path:
    """Folder with a tool's packages, made whole or not at all; nothing is fetched where it is there already.

    `installs`: Arguments of `pip install`, one call after the other.
    `marker`: File or folder that a whole installation has.
    `size`: About how much is fetched and how long it takes, for the message.
    `do`: What to do where nothing can be fetched.
    """
    folder = cache_folder() / tool / version
    if folder.is_dir():
        return folder
    say(f"installing {tool} {version} into the cache, next to the installed packages ({size})")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that two processes at once each make a whole one, and the second finds the first's.
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=folder.parent) as scratch:
        target = Path(scratch) / "site"
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        shared = ["install", "--quiet", "--target", str(target)]
        reasons = []
        for command in ([uv, "pip", *shared, "--python", sys.executable], [sys.executable, "-m", "pip", *shared]):
            try:
                for arguments in installs:
                    run_command([*command, *arguments], timeout_s=INSTALL_TIMEOUT_S, must_succeed=True)
            except WorkbenchError as error:
                reasons.append(" ".join(str(error).split())[-200:])
                shutil.rmtree(target, ignore_errors=True)
                continue
            if (target / marker).exists():
                break
            reasons.append(f"no {marker} in what was installed")
            shutil.rmtree(target, ignore_errors=True)
        else:
            raise MissingToolError(f"cannot install {tool} {version}", found="; ".join(reasons), do=do)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder
