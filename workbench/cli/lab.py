"""Start JupyterLab on the notebooks, bound to this machine and offline."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.core import files
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.core.files import cache_folder
from workbench.execution import discovery

# What each copy was made from, so that one that nobody changed follows its original.
ORIGINALS_FILE = ".originals.json"
MAX_NOTEBOOK_BYTES = 64 << 20

# JupyterLab would fetch news and query its extension registry at start.
OFFLINE_OPTIONS = (
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)
_HIDDEN_BY_JUPYTER = ("__pycache__", "*.pyc", "*.pyo", ".DS_Store", "*~")
SETTINGS_FOLDER = Path(__file__).parent / "templates" / "jupyter"
FIRST_NOTEBOOK = "00_start_here.ipynb"


def is_writable(folder: Path) -> bool:
    """Whether notebooks of the folder can be saved there."""
    return os.access(folder, os.W_OK) and all(os.access(path, os.W_OK) for path in folder.glob("*.ipynb"))


def find_copies_folder(folder: Path) -> Path:
    """Return the folder for copies of a folder's notebooks: in the user's cache, one place per folder."""
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return cache_folder() / "lab" / name / folder.name


def copy_notebooks(folder: Path) -> Path:
    """Copy the notebooks of a folder to where they can be saved, beside a link to its samples.

    A copy that was changed is kept as it is; one that was not follows its original.
    """
    target = find_copies_folder(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        # `../data` of the copies is that of the originals, where notebooks look for samples.
        data, link = folder.parent / "data", target.parent / "data"
        if data.is_dir() and not link.is_dir():
            link.unlink(missing_ok=True)
            link.symlink_to(data, target_is_directory=True)
        made_from = _read_originals(target)
        for original in sorted(folder.glob("*.ipynb")):
            copy = target / original.name
            content = files.read_up_to(original, MAX_NOTEBOOK_BYTES)
            is_unchanged = not copy.is_file() or files.hash_file(copy) == made_from.get(copy.name)
            if is_unchanged:
                with files.replace_atomically(copy) as written:
                    written.write_bytes(content)
                made_from[copy.name] = files.hash_file(copy)
        files.write_text(target / ORIGINALS_FILE, json.dumps(made_from))
    except OSError as error:
        do = "set XDG_CACHE_HOME to a folder that you can write to, or give --notebooks DIR"
        raise RunFailedError("the notebooks cannot be copied", where=target, found=error, do=do) from error
    return target


def _read_originals(target: Path) -> dict[str, str]:
    try:
        originals = json.loads(files.read_up_to(target / ORIGINALS_FILE, MAX_NOTEBOOK_BYTES))
    except (OSError, ValueError):
        return {}
    return {str(name): str(digest) for name, digest in originals.items()} if isinstance(originals, dict) else {}


def build_lab_command(folder: Path, options: Sequence[str] = ()) -> list[str]:
    """Command line of JupyterLab on a folder, opening its first notebook; later options win."""
    # The template for own notebooks is opened by name; the list begins with the questions.
    hidden = f"--ContentsManager.hide_globs={[*_HIDDEN_BY_JUPYTER, '_template.ipynb']}"
    arguments = [f"--ServerApp.root_dir={folder}", *OFFLINE_OPTIONS, hidden]
    if (folder / FIRST_NOTEBOOK).is_file():
        arguments.append(f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Containers often have only this user; the server listens on this machine only.
        arguments.append("--allow-root")
    return [sys.executable, "-m", "jupyterlab", *arguments, *options]


def start_lab(folder: Path | None = None, options: Sequence[str] = ()) -> int:
    """Run JupyterLab until it is stopped; returns its exit code.

    Notebooks of a folder that cannot be written are opened as copies.
    """
    import importlib.util

    folder = (folder or discovery.find_notebook_folder()).absolute()
    if not folder.is_dir():
        raise ConfigError("no such folder", where="--notebooks", found=folder)
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingToolError("JupyterLab is not installed", do="pip install jupyterlab")
    if not is_writable(folder):
        copies = copy_notebooks(folder)
        sys.stderr.write(f"{folder} cannot be written: its notebooks open as copies in {copies}\n")
        folder = copies
    # Finds this environment's kernel even when it is not activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    # Disables the question about news; the user's settings stay.
    settings = os.pathsep.join(filter(None, [os.environ.get("JUPYTER_CONFIG_PATH"), str(SETTINGS_FOLDER)]))
    # Its extension of JupyterLab.
    data = os.pathsep.join(filter(None, [os.environ.get("JUPYTER_PATH"), str(SETTINGS_FOLDER)]))
    env = os.environ | {"PATH": path, "JUPYTER_CONFIG_PATH": settings, "JUPYTER_PATH": data}
    process = subprocess.Popen(build_lab_command(folder, options), env=env)  # noqa: S603

    def stop(*_: object) -> None:
        process.terminate()

    # On an interrupt the server would ask "Shutdown this Jupyter server (y/[n])?"; on a termination it stops its
    # kernels and ends.
    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    return 0 if code in (0, -signal.SIGTERM, -signal.SIGINT) else 3
