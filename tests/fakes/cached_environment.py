"""Other people's packages in environments of their own in the user's cache, made when they are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workbench.core.files import cache_folder

INSTALL_TIMEOUT_S = 900


def install_environment(name: str, packages: Sequence[str], *, flags: Sequence[str] = ()) -> Path:
    """The interpreter of the environment `name` with these packages; made whole or not at all.

    Raises
    ------
    RuntimeError
        It cannot be installed; the message says why.
    """
    folder = cache_folder() / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            made = Path(scratch) / "environment"
            uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
            # Relocatable, because it is renamed into its place: scripts must find their Python beside them.
            _call([uv, "venv", "--quiet", "--no-project", "--relocatable", "--python", sys.executable, str(made)], name)
            python = str(made / "bin" / "python")
            _call([uv, "pip", "install", "--quiet", "--python", python, *flags, *packages], name)
            try:
                made.rename(folder)
            except OSError:
                # Another process was quicker; its environment is as good.
                if not folder.is_dir():
                    raise
    return folder / "bin" / "python"


def build_environment() -> dict[str, str]:
    """Variables for a process of such an environment: nothing of this one's Python, no colours, no hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    kept |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return kept | {"NO_COLOR": "1", "TQDM_DISABLE": "1", "COLUMNS": "200"}


def _call(command: list[str], name: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{name} cannot be installed: {str(error)[:200]}") from error
    if done.returncode:
        raise RuntimeError(f"{name} cannot be installed: {done.stderr.strip()[-300:]}")
