"""Where the shipped notebooks are, the user's project, and default folders for runs and for the cache."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

OUT_VARIABLE = "WORKBENCH_OUT"
# The folder that holds the package: the checkout, or site-packages.
CHECKOUT = Path(__file__).resolve().parents[2]
# The folder with the shipped `notebooks` and `data/samples`: a wheel carries copies in the package.
_PACKAGED = CHECKOUT / "workbench" / "packaged"
SHIPPED = _PACKAGED if _PACKAGED.is_dir() else CHECKOUT
# Marks a folder whose notebooks are run by name; `workbench init` writes it.
PROJECT_FILE = "workbench.toml"


def find_project_folder() -> Path | None:
    """The folder, here or above, that `workbench init` marked as a project; null outside of one."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / PROJECT_FILE).is_file()), None)


def default_place() -> str | Path:
    """Where runs are kept: the URL in $WORKBENCH_OUT, such as s3://bucket/runs, else the folder `default_out()`."""
    setting = os.environ.get(OUT_VARIABLE, "")
    return setting if "://" in setting else default_out()


def default_out() -> Path:
    """Folder for runs: $WORKBENCH_OUT, else `data/runs` in a writable project or checkout, else in the user's cache.

    A URL in $WORKBENCH_OUT is no folder: what is made live stays on this machine.
    """
    if (setting := os.environ.get(OUT_VARIABLE)) and "://" not in setting:
        return Path(setting).absolute()
    project = find_project_folder()
    if project is not None and os.access(project, os.W_OK):
        return project / "data" / "runs"
    checkout = CHECKOUT / "data" / "runs"
    nearest = next(folder for folder in (checkout, *checkout.parents) if folder.exists())
    in_checkout = (CHECKOUT / "pyproject.toml").is_file() and nearest.is_relative_to(CHECKOUT)
    if in_checkout and nearest.is_dir() and os.access(nearest, os.W_OK):
        return checkout
    return cache_folder() / "runs"


def cache_folder() -> Path:
    """Cache folder of the workbench: in $XDG_CACHE_HOME, else in the platform's cache folder, else a temporary one."""
    if root := os.environ.get("XDG_CACHE_HOME"):
        candidates = [Path(root)]
    elif sys.platform == "darwin":
        candidates = _list_home_folder("Library", "Caches")
    elif sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        candidates = [Path(local)] if local else _list_home_folder("AppData", "Local")
    else:
        candidates = _list_home_folder(".cache")
    for root_folder in candidates:
        nearest = next((folder for folder in (root_folder, *root_folder.parents) if folder.exists()), None)
        if nearest is not None and nearest.is_dir() and os.access(nearest, os.W_OK):
            return root_folder / "workbench"
    # Service users may have no home.
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"workbench-{user}"


def _list_home_folder(*names: str) -> list[Path]:
    """A folder in the user's home, as a list; empty without a home, which must not be created."""
    try:
        home = Path.home()
    except RuntimeError:
        return []
    return [home.joinpath(*names)] if home.is_dir() else []
