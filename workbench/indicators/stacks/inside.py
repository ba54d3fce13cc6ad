"""What an environment on disk consists of: its Python, its packages, the digest of their files."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import canonicalize_name


def python(folder: Path) -> Path:
    """The environment's interpreter."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def site(folder: Path) -> Path:
    """Where its packages lie.

    Raises
    ------
    FileNotFoundError
        This is no environment.
    """
    pattern = "Lib/site-packages" if sys.platform == "win32" else "lib/python3.*/site-packages"
    for found in sorted(folder.glob(pattern)):
        return found
    raise FileNotFoundError(f"no site-packages below {folder}")


def versions(folder: Path) -> dict[str, str]:
    """Which package in which version is installed, sorted by name."""
    found = importlib.metadata.distributions(path=[str(site(folder))])
    return dict(sorted((canonicalize_name(one.metadata["Name"]), one.version) for one in found))


def python_version(folder: Path) -> str:
    """Version of its interpreter, as the environment's own configuration tells.

    Raises
    ------
    FileNotFoundError
        This is no environment.
    """
    for line in (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() in ("version_info", "version"):
            return value.strip()
    raise FileNotFoundError(f"no version of Python in {folder}")


def records(folder: Path) -> list[Path]:
    """The lists of files that came with the packages."""
    return sorted(site(folder).glob("*.dist-info/RECORD"))


def record_digest(folder: Path) -> str:
    """Digest of all RECORD files, which list every installed file with its hash.

    Without the lines of scripts, whose first line names the environment, and of what the installer notes itself.
    """
    own = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD")
    digest = hashlib.sha256()
    for record in records(folder):
        lines = sorted(record.read_text(encoding="utf-8").splitlines())
        kept = [line for line in lines if not line.startswith("..") and not line.split(",")[0].endswith(own)]
        digest.update("\n".join([record.parent.name, *kept, ""]).encode())
    return digest.hexdigest()


def altered(folder: Path, *, deep: bool = True) -> list[str]:
    """Which files of the packages are missing or have other bytes than their wheels had? Sorted; empty when intact.

    Parameters
    ----------
    folder
        An environment.
    deep
        Compare the content's hash (0.1 s for numpy); without it only the size (some ms).

    Scripts below `bin` are left out, since they name the environment's own path, and so is bytecode.
    """
    return sorted(
        name
        for record in records(folder)
        for name, digest, size in _lines(record)
        if not _is_as_recorded(record.parent.parent / name, digest, size, deep)
    )


def _lines(record: Path) -> Iterator[tuple[str, str, str]]:
    for name, digest, size in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        # Some wheels ship bytecode, which is compiled anew here.
        if digest.startswith("sha256=") and not name.startswith("..") and not name.endswith(".pyc"):
            yield name, digest.removeprefix("sha256="), size


def _is_as_recorded(path: Path, digest: str, size: str, deep: bool) -> bool:
    try:
        if not deep:
            return not size or path.stat().st_size == int(size)
        return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode() == digest
    except OSError:
        return False
