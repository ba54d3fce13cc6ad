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
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from workbench.core.errors import MissingToolError, RunFailedError
from workbench.indicators.stacks import uv_tool
from workbench.indicators.stacks.stack_sets import Package, Stack, format_lock
from workbench.indicators.stacks.target_platform import this_python_version
from workbench.indicators.stacks.uv_tool import Sources

COMPILE_TIMEOUT_S = 900


def interpreter_path(folder: Path) -> Path:
    """Path of the environment's interpreter."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def site_packages_path(folder: Path) -> Path:
    """Path of the environment's site-packages."""
    pattern = "Lib/site-packages" if sys.platform == "win32" else "lib/python3.*/site-packages"
    for path in sorted(folder.glob(pattern)):
        return path
    raise FileNotFoundError(f"no site-packages below {folder}")


def list_installed_versions(folder: Path) -> dict[str, str]:
    """Installed packages and versions, sorted by name."""
    distributions = importlib.metadata.distributions(path=[str(site_packages_path(folder))])
    return dict(
        sorted(
            (canonicalize_name(distribution.metadata["Name"]), distribution.version) for distribution in distributions
        )
    )


def read_python_version(folder: Path) -> str:
    """Version of the environment's interpreter, from its pyvenv.cfg."""
    for line in (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() in ("version_info", "version"):
            return value.strip()
    raise FileNotFoundError(f"no version of Python in {folder}")


def list_record_files(folder: Path) -> list[Path]:
    """RECORD files of the installed packages."""
    return sorted(site_packages_path(folder).glob("*.dist-info/RECORD"))


def compute_record_digest(folder: Path) -> str:
    """Digest of all RECORD files, which list every installed file with its hash.

    Excludes scripts, which contain the path of the environment, and files written by the installer.
    """
    suffixes = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD")
    digest = hashlib.sha256()
    for record in list_record_files(folder):
        lines = sorted(record.read_text(encoding="utf-8").splitlines())
        entries = [line for line in lines if not line.startswith("..") and not line.split(",")[0].endswith(suffixes)]
        digest.update("\n".join([record.parent.name, *entries, ""]).encode())
    return digest.hexdigest()


def find_altered_files(folder: Path, *, deep: bool = True) -> list[str]:
    """List package files that are missing or differ from their wheels, sorted; empty if intact.

    `deep`: Compare hashes of the content (0.1 s for numpy); otherwise only sizes (some ms).

    Scripts in `bin`, which contain the path of the environment, and bytecode are not checked.
    """
    return sorted(
        name
        for record in list_record_files(folder)
        for name, digest, size in _read_record_lines(record)
        if not _matches_record(record.parent.parent / name, digest, size, deep)
    )


def _read_record_lines(record: Path) -> Iterator[tuple[str, str, str]]:
    for name, digest, size in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        # Some wheels ship bytecode, which is recompiled here.
        if digest.startswith("sha256=") and not name.startswith("..") and not name.endswith(".pyc"):
            yield name, digest.removeprefix("sha256="), size


def _matches_record(path: Path, digest: str, size: str, deep: bool) -> bool:
    try:
        if not deep:
            return not size or path.stat().st_size == int(size)
        return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode() == digest
    except OSError:
        return False


def create_venv(folder: Path, stack: Stack, lock_descriptor: int) -> None:
    """Create a virtual environment with the stack's Python; `lock_descriptor` is an open file that uv inherits."""
    # The running interpreter is given by its path; other versions are searched for and never downloaded.
    wanted = sys.executable if stack.python == this_python_version() else stack.python
    result = uv_tool.run_uv(
        ["venv", "--no-project", "--python", wanted, folder], sources=None, lock_descriptor=lock_descriptor
    )
    if result.code == 0:
        return
    # The second message comes from a version-manager shim on PATH without that version.
    if wanted == stack.python and ("No interpreter found" in result.err or "inspect Python interpreter" in result.err):
        raise MissingToolError(
            "the stack's Python is not installed",
            where=stack.name,
            found=f"Python {stack.python}",
            do=f"uv python install {stack.python}, or solve the stacks again for this Python ({this_python_version()})",
        )
    raise RunFailedError("cannot create the environment", where=stack.name, found=result.explanation)


def install_packages(
    folder: Path, stack: Stack, lock: Path, sources: Sources, *, offline: bool, lock_descriptor: int
) -> None:
    """Install exactly the files of the lock, each verified by its hash."""
    checked = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    for place, (packages, index_sources) in enumerate(_group_by_index(stack, sources)):
        part = lock if len(packages) == len(stack.packages) else lock.with_name(f"{lock.name}.{place}")
        if part != lock:
            part.write_text(format_lock(packages), encoding="utf-8")
        result = uv_tool.run_uv(
            ["pip", "install", "--python", interpreter_path(folder), *checked, "-r", part],
            sources=index_sources,
            timeout_s=uv_tool.INSTALL_TIMEOUT_S,
            offline=offline,
            lock_descriptor=lock_descriptor,
        )
        if result.code == 0:
            continue
        raise RunFailedError(
            "cannot install the stack",
            where=stack.name,
            found=result.explanation,
            do="install once without --offline" if offline else "check that the index still has these files",
        )


def _group_by_index(stack: Stack, sources: Sources) -> list[tuple[list[Package], Sources]]:
    """Packages of each index with the sources that have only it: files of one name there may differ."""
    groups: dict[str | None, list[Package]] = {}
    for package in stack.packages:
        pinned = sources.pinned.get(package.name)
        groups.setdefault(pinned[1] if pinned and package.index == pinned[0] else None, []).append(package)
    return [
        (packages, sources.select_for(packages[0].name) if url else replace(sources, pinned={}))
        for url, packages in groups.items()
    ]


def compile_bytecode(folder: Path) -> None:
    """Compile the bytecode, so that it does not slow down the first run, or every run of a read-only user.

    No code of the packages runs: without `site`, .pth files are not processed.
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
    # Files that do not compile (templates, code for other Python versions) are skipped; their import fails as well.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603
            command,
            # Runs in a separate folder, so that user modules do not shadow the standard library.
            cwd=folder,
            # The order of sets in bytecode depends on the hash seed.
            env={"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
