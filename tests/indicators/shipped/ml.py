"""TensorFlow and JAX in environments of their own in the user's cache, made when they are not there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workbench.core.paths import cache_folder

REQUIREMENTS = {"jax": "jax==0.10.2", "tensorflow": "tensorflow-cpu==2.21.0"}
INSTALL_TIMEOUT_S = 900


def python_with(framework: str) -> Path:
    """The interpreter of an environment that has the framework; made whole or not at all.

    Raises
    ------
    RuntimeError
        It cannot be installed; the message says why.
    """
    requirement = REQUIREMENTS[framework]
    folder = cache_folder() / "ml" / requirement / f"{sys.version_info.major}.{sys.version_info.minor}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _make(Path(scratch) / "environment", requirement)
            try:
                (Path(scratch) / "environment").rename(folder)
            except OSError:
                # Another process was quicker; its environment is as good.
                if not folder.is_dir():
                    raise
    return folder / "bin" / "python"


def _make(folder: Path, requirement: str) -> None:
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    python = folder / "bin" / "python"
    for call in (
        [uv, "venv", "--quiet", "--no-project", "--relocatable", "--python", sys.executable, str(folder)],
        [
            *(uv, "pip", "install", "--quiet", "--python", str(python)),
            *("--only-binary", ":all:", "--compile-bytecode", requirement),
        ],
    ):
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(f"{requirement} cannot be installed: {type(error).__name__}") from error
        if done.returncode:
            raise RuntimeError(f"{requirement} cannot be installed: {done.stderr.strip()[-300:]}")
