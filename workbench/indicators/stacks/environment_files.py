"""Files of an environment: create it, install and compile packages, verify their RECORD hashes."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from workbench.core.errors import MissingToolError, RunFailedError
from workbench.indicators.stacks import uv_tool
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.stacks.target_platform import this_python_version
from workbench.indicators.stacks.uv_tool import Sources


def interpreter_path(folder: Path) -> Path:
    """The environment's interpreter."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def site_packages_path(folder: Path) -> Path:
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


def list_installed_versions(folder: Path) -> dict[str, str]:
    """Which package in which version is installed, sorted by name."""
    found = importlib.metadata.distributions(path=[str(site_packages_path(folder))])
    return dict(sorted((canonicalize_name(one.metadata["Name"]), one.version) for one in found))


def read_python_version(folder: Path) -> str:
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


def list_record_files(folder: Path) -> list[Path]:
    """The lists of files that came with the packages."""
    return sorted(site_packages_path(folder).glob("*.dist-info/RECORD"))


def compute_record_digest(folder: Path) -> str:
    """Digest of all RECORD files, which list every installed file with its hash.

    Without the lines of scripts, whose first line names the environment, and of what the installer notes itself.
    """
    own = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD")
    digest = hashlib.sha256()
    for record in list_record_files(folder):
        lines = sorted(record.read_text(encoding="utf-8").splitlines())
        kept = [line for line in lines if not line.startswith("..") and not line.split(",")[0].endswith(own)]
        digest.update("\n".join([record.parent.name, *kept, ""]).encode())
    return digest.hexdigest()


def find_altered_files(folder: Path, *, deep: bool = True) -> list[str]:
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
        for record in list_record_files(folder)
        for name, digest, size in _read_record_lines(record)
        if not _matches_record(record.parent.parent / name, digest, size, deep)
    )


def _read_record_lines(record: Path) -> Iterator[tuple[str, str, str]]:
    for name, digest, size in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        # Some wheels ship bytecode, which is compiled anew here.
        if digest.startswith("sha256=") and not name.startswith("..") and not name.endswith(".pyc"):
            yield name, digest.removeprefix("sha256="), size


def _matches_record(path: Path, digest: str, size: str, deep: bool) -> bool:
    try:
        if not deep:
            return not size or path.stat().st_size == int(size)
        return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode() == digest
    except OSError:
        return False


COMPILE_TIMEOUT_S = 900


def create_venv(folder: Path, stack: Stack, lock_descriptor: int) -> None:
    """Make the environment of the stack's Python; `lock_descriptor` is an open file that uv inherits.

    Raises
    ------
    MissingToolError
        There is no such Python here.
    RunFailedError
        uv could not make it.
    """
    # By its own path, this very interpreter; another version is looked for, and never downloaded.
    wanted = sys.executable if stack.python == this_python_version() else stack.python
    said = uv_tool.run_uv(
        ["venv", "--no-project", "--python", wanted, folder], sources=None, lock_descriptor=lock_descriptor
    )
    if said.code == 0:
        return
    # The second: a stand-in on PATH that knows of no such version.
    if wanted == stack.python and ("No interpreter found" in said.err or "inspect Python interpreter" in said.err):
        raise MissingToolError(
            "the stack's Python is not on this machine",
            where=stack.name,
            found=f"Python {stack.python}",
            do=f"uv python install {stack.python}, or solve the stacks again for this Python ({this_python_version()})",
        )
    raise RunFailedError("cannot make the environment", where=stack.name, found=said.explanation)


def install_packages(
    folder: Path, stack: Stack, lock: Path, sources: Sources, *, offline: bool, lock_descriptor: int
) -> None:
    """Install exactly the files of the lock, each checked against its hash.

    Raises
    ------
    RunFailedError
        A file is not there (any more), or is another than the lock says.
    """
    checked = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    said = uv_tool.run_uv(
        ["pip", "install", "--python", interpreter_path(folder), *checked, "-r", lock],
        sources=sources,
        timeout_s=uv_tool.INSTALL_TIMEOUT_S,
        offline=offline,
        lock_descriptor=lock_descriptor,
    )
    if said.code != 0:
        raise RunFailedError(
            "cannot install the stack",
            where=stack.name,
            found=said.explanation,
            do="install once without --offline" if offline else "see whether the index still has these files",
        )


def compile_bytecode(folder: Path) -> None:
    """Write the bytecode now: else the first run would, or every run of a user who may not write here.

    Nothing of the packages is run for it: without `site`, no line of a .pth file is.
    """
    command: list[str | Path] = [
        interpreter_path(folder),
        "-S",
        "-s",
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        site_packages_path(folder),
    ]
    # Files that do not compile (templates, other Pythons' code) are passed over: the import would fail as well.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603
            command,
            # Its own folder, so that no module of the user's shadows the standard library's.
            cwd=folder,
            # The order of sets in bytecode follows the hash seed.
            env={"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
