"""Copies of notebooks that cannot be written, in which they can be changed and saved."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from workbench.core import files
from workbench.core.errors import RunFailedError
from workbench.core.paths import cache_folder

# What each copy was made from, so that one that nobody changed follows its original.
ORIGINALS_FILE = ".originals.json"
MAX_NOTEBOOK_BYTES = 64 << 20


def is_writable(folder: Path) -> bool:
    """Whether notebooks of the folder can be saved there."""
    return os.access(folder, os.W_OK) and all(os.access(path, os.W_OK) for path in folder.glob("*.ipynb"))


def find_copies_folder(folder: Path) -> Path:
    """Where copies of a folder's notebooks are kept: in the user's cache, one place for each folder."""
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return cache_folder() / "lab" / name / folder.name


def copy_notebooks(folder: Path) -> Path:
    """Copy the notebooks of a folder to where they can be saved, beside a link to its samples.

    A copy that was changed is kept as it is; one that was not follows its original.
    """
    target = find_copies_folder(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        _link_samples(folder, target)
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


def _link_samples(folder: Path, target: Path) -> None:
    """`../data` of the copies is that of the originals, where notebooks look for samples."""
    data, link = folder.parent / "data", target.parent / "data"
    if data.is_dir() and not link.is_dir():
        link.unlink(missing_ok=True)
        link.symlink_to(data, target_is_directory=True)


def _read_originals(target: Path) -> dict[str, str]:
    try:
        originals = json.loads(files.read_up_to(target / ORIGINALS_FILE, MAX_NOTEBOOK_BYTES))
    except (OSError, ValueError):
        return {}
    return {str(name): str(digest) for name, digest in originals.items()} if isinstance(originals, dict) else {}
