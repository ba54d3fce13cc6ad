"""Start JupyterLab on the notebooks, bound to this machine and offline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.cli import lab_copies
from workbench.core.errors import ConfigError, MissingToolError
from workbench.execution import discovery

# JupyterLab would fetch news and query its extension registry at start.
OFFLINE_OPTIONS = (
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)
SETTINGS_FOLDER = Path(__file__).parent / "templates" / "jupyter"
FIRST_NOTEBOOK = "00_start_here.ipynb"


def build_lab_command(folder: Path, options: Sequence[str] = ()) -> list[str]:
    """Command line of JupyterLab on a folder, opening its first notebook; later options win."""
    arguments = [f"--ServerApp.root_dir={folder}", *OFFLINE_OPTIONS]
    if (folder / FIRST_NOTEBOOK).is_file():
        arguments.append(f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Containers often have only this user; the server listens on this machine only.
        arguments.append("--allow-root")
    return [sys.executable, "-m", "jupyterlab", *arguments, *options]


def start_lab(folder: Path | None = None, options: Sequence[str] = ()) -> int:
    """Run JupyterLab until it is stopped; returns its exit code.

    Notebooks of a folder that cannot be written are opened as copies (`lab_copies`).
    """
    import importlib.util

    folder = (folder or discovery.find_notebook_folder()).absolute()
    if not folder.is_dir():
        raise ConfigError("no such folder", where="--notebooks", found=folder)
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingToolError("JupyterLab is not installed", do="pip install -r requirements.lock")
    if not lab_copies.is_writable(folder):
        copies = lab_copies.copy_notebooks(folder)
        sys.stderr.write(f"{folder} cannot be written: its notebooks open as copies in {copies}\n")
        folder = copies
    # Finds this environment's kernel even when it is not activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    # Disables the question about news; the user's settings stay.
    settings = os.pathsep.join(filter(None, [os.environ.get("JUPYTER_CONFIG_PATH"), str(SETTINGS_FOLDER)]))
    env = os.environ | {"PATH": path, "JUPYTER_CONFIG_PATH": settings}
    process = subprocess.Popen(build_lab_command(folder, options), env=env)  # noqa: S603
    return _wait_for_server(process)


def _wait_for_server(process: subprocess.Popen[bytes]) -> int:
    """Wait for the server; on Ctrl-C let it stop its kernels."""

    def stop(*_: object) -> None:
        process.terminate()

    # On an interrupt the server would ask "Shutdown this Jupyter server (y/[n])?"; on a termination it ends.
    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    return 0 if code in (0, -signal.SIGTERM, -signal.SIGINT) else 3
