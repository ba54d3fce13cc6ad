"""Where the workbench may write: run folders, and the user's cache."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from workbench.records import CHECKOUT

OUT_VARIABLE = "WORKBENCH_OUT"


def default_out() -> Path:
    """Where runs go: $WORKBENCH_OUT, else `data/runs` in the checkout when it can be written, else the user's cache."""
    if given := os.environ.get(OUT_VARIABLE):
        return Path(given).absolute()
    checkout = CHECKOUT / "data" / "runs"
    nearest = next(folder for folder in (checkout, *checkout.parents) if folder.exists())
    in_checkout = (CHECKOUT / "pyproject.toml").is_file() and nearest.is_relative_to(CHECKOUT)
    if in_checkout and nearest.is_dir() and os.access(nearest, os.W_OK):
        return checkout
    return cache_folder() / "runs"


def cache_folder() -> Path:
    """The user's cache of the workbench: $XDG_CACHE_HOME, else the platform's place, else a private temporary one."""
    if root := os.environ.get("XDG_CACHE_HOME"):
        candidates = [Path(root)]
    elif sys.platform == "darwin":
        candidates = _below_home("Library", "Caches")
    elif sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        candidates = [Path(local)] if local else _below_home("AppData", "Local")
    else:
        candidates = _below_home(".cache")
    for root_folder in candidates:
        nearest = next((folder for folder in (root_folder, *root_folder.parents) if folder.exists()), None)
        if nearest is not None and nearest.is_dir() and os.access(nearest, os.W_OK):
            return root_folder / "workbench"
    # A service user may have no home at all.
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"workbench-{user}"


def _below_home(*names: str) -> list[Path]:
    """A place in the user's home; none where there is no home, which root could make."""
    try:
        home = Path.home()
    except RuntimeError:
        return []
    return [home.joinpath(*names)] if home.is_dir() else []
