"""JupyterLab on the notebooks: on this machine only, with a token of Jupyter's making, and no call to the outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench import notebooks
from workbench.errors import ConfigError, MissingToolError

# JupyterLab asks for news and looks into its extension registry when it starts; neither is wanted here.
OFFLINE = (
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)
SETTINGS = Path(__file__).parent / "templates" / "jupyter"
FIRST = "00_start_here.ipynb"


def command(folder: Path, options: Sequence[str] = ()) -> list[str]:
    """The command line that starts JupyterLab on a folder, at its first notebook; of an option the last one counts."""
    own = [f"--ServerApp.root_dir={folder}", *OFFLINE]
    if (folder / FIRST).is_file():
        own.append(f"--LabApp.default_url=/lab/tree/{FIRST}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # In containers there is often only this user; the server still listens on this machine alone.
        own.append("--allow-root")
    return [sys.executable, "-m", "jupyterlab", *own, *options]


def start(folder: Path | None = None, options: Sequence[str] = ()) -> int:
    """Run JupyterLab until it is stopped; gives its exit code.

    Raises
    ------
    ConfigError
        The folder is not there.
    MissingToolError
        JupyterLab is not installed.
    """
    import importlib.util

    folder = (folder or notebooks.folder()).absolute()
    if not folder.is_dir():
        raise ConfigError("no such folder", where="--notebooks", found=folder)
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingToolError("JupyterLab is not installed", do="pip install -r requirements.lock")
    # This environment's kernel, also where the shell has not activated it.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    # Without the question about news, which would need a network; the user's own settings stay.
    settings = os.pathsep.join(filter(None, [os.environ.get("JUPYTER_CONFIG_PATH"), str(SETTINGS)]))
    env = os.environ | {"PATH": path, "JUPYTER_CONFIG_PATH": settings}
    process = subprocess.Popen(command(folder, options), env=env)  # noqa: S603
    return _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the server; Ctrl-C reaches it too, and it is given time to stop its kernels."""

    def stop(*_: object) -> None:
        process.terminate()

    # The server asks "Shutdown this Jupyter server (y/[n])?" on the first interrupt; a termination it obeys.
    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    return 0 if code in (0, -signal.SIGTERM, -signal.SIGINT) else 3
