"""Environments of stacks: one virtual environment per lock, cached and checked before reuse.

`ROOT/KEY` is the environment of a stack, `ROOT/KEY.1` a separate copy from the same lock. A marker file is written
last; a folder without it is incomplete and is rebuilt. A file lock serialises processes that need the same environment.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from workbench.core import files
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError, refuse_os_errors
from workbench.core.files import cache_folder
from workbench.indicators.stacks import uv_tool
from workbench.indicators.stacks.package_index import this_platform, this_python_version
from workbench.indicators.stacks.stack_request import format_size
from workbench.indicators.stacks.stack_sets import Package, Stack, format_lock
from workbench.indicators.stacks.uv_tool import Sources, load_sources

COMPILE_TIMEOUT_S = 900
FORMAT_VERSION = 1
MARKER = "workbench.json"
LOCK = "requirements.lock"
AT_ONCE = 2
MAX_DOWNLOAD_BYTES = 2_000_000_000


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
    if result.exit_code == 0:
        return
    # The second message comes from a version-manager shim on PATH without that version.
    if wanted == stack.python and (
        "No interpreter found" in result.stderr or "inspect Python interpreter" in result.stderr
    ):
        raise MissingToolError(
            "the stack's Python is not installed",
            where=stack.name,
            found=f"Python {stack.python}",
            do=f"uv python install {stack.python}, or solve the stacks again for this Python ({this_python_version()})",
        )
    raise RunFailedError("cannot create the environment", where=stack.name, found=uv_tool.explain_failure(result))


def install_packages(
    folder: Path, stack: Stack, lock: Path, sources: Sources, *, offline: bool, lock_descriptor: int
) -> None:
    """Install exactly the files of the lock, each verified by its hash."""
    checked = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    # Packages of each index with the sources that have only it: files of one name there may differ.
    groups: dict[str | None, list[Package]] = {}
    for package in stack.packages:
        pinned = sources.pinned.get(package.name)
        groups.setdefault(pinned[1] if pinned and package.index == pinned[0] else None, []).append(package)
    by_index = [
        (packages, sources.select_for(packages[0].name) if url else replace(sources, pinned={}))
        for url, packages in groups.items()
    ]
    for place, (packages, index_sources) in enumerate(by_index):
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
        if result.exit_code == 0:
            continue
        raise RunFailedError(
            "cannot install the stack",
            where=stack.name,
            found=uv_tool.explain_failure(result),
            do="install once without --offline" if offline else "check that the index still has these files",
        )


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


@dataclass(frozen=True)
class Environment:
    """Installed stack.

    `installed` maps packages to installed versions. `record_sha256` is the digest of the package files, equal for
    copies of one lock. `made` is true if this call created the environment. `make_s` is the time of creation and
    installation, `compile_s` that of compiling bytecode, both from the original creation.
    """

    folder: Path
    python: Path
    key: str
    copy: int
    python_version: str
    installed: dict[str, str]
    record_sha256: str
    made: bool
    make_s: float
    compile_s: float


def default_environment_root() -> Path:
    """Default folder of environments, in the user's cache."""
    return cache_folder() / "indicators" / "environments"


def ensure_environment(
    stack: Stack,
    root: Path | None = None,
    *,
    copy: int = 0,
    offline: bool = False,
    sources: Sources | None = None,
) -> Environment:
    """Environment of a stack, created if it is missing or damaged.

    `copy`: 0 for the stack's environment; 1 and up for separate copies of the same lock (the control of a session).

    Later changes of the files are detected by `find_altered_files`.
    """
    if stack.platform != this_platform():
        raise ConfigError(
            "the stack is for another platform", where=stack.name, found=stack.platform, allowed=this_platform()
        )
    folder = (root or default_environment_root()).absolute() / (f"{stack.key}.{copy}" if copy else stack.key)
    with _lock_folder(folder) as lock:
        # Load a complete, unaltered environment; null if there is none.
        try:
            marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
            if (
                marker["format_version"] != FORMAT_VERSION
                or marker["key"] != stack.key
                or not interpreter_path(folder).exists()
                or compute_record_digest(folder) != marker["record_sha256"]
                or find_altered_files(folder, deep=False)
            ):
                environment = None
            else:
                environment = _build_environment(folder, stack, copy, marker, made=False)
        except (OSError, ValueError, KeyError, TypeError):
            environment = None
        return environment or _make_environment(folder, stack, copy, sources or load_sources(), offline, lock)


def install_environments(
    stacks: Sequence[tuple[Stack, int]],
    root: Path | None = None,
    *,
    offline: bool = False,
    max_download_bytes: int = MAX_DOWNLOAD_BYTES,
    progress: Callable[[int, int], None] | None = None,
    indexes: Mapping[str, str] | None = None,
) -> list[Environment]:
    """Install every (stack, copy), two in parallel; returns the environments in the given order.

    `indexes` are the addresses of the indexes that packages name.
    """
    refuse_large_downloads([stack for stack, _ in stacks], max_download_bytes)
    sources = load_sources()
    environments: list[Environment] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [
            pool.submit(
                ensure_environment,
                stack,
                root,
                copy=copy,
                offline=offline,
                sources=pin_indexes(stack, sources, indexes or {}),
            )
            for stack, copy in stacks
        ]
        try:
            for future in waiting:
                environments.append(future.result())
                if progress is not None:
                    progress(len(environments), len(stacks))
        finally:
            for future in waiting:
                future.cancel()
    return environments


def pin_indexes(stack: Stack, sources: Sources, indexes: Mapping[str, str]) -> Sources:
    """The sources with the index that each package of a stack names."""
    named = {package.name: package.index for package in stack.packages if package.index}
    if lost := [name for name, index in named.items() if index not in indexes]:
        raise ConfigError("a package of an index without an address", where=stack.name, found=lost)
    return replace(
        sources, pinned=uv_tool.resolve_pinned({name: (index, indexes[index]) for name, index in named.items()})
    )


def refuse_large_downloads(stacks: Sequence[Stack], max_bytes: int) -> None:
    """Check the known download sizes of stacks against a limit."""
    sizes = {stack.name: sum(package.download_bytes or 0 for package in stack.packages) for stack in stacks}
    large = [f"{name}: {format_size(size)}" for name, size in sizes.items() if size > max_bytes]
    if large:
        raise ConfigError(
            "the download is too large",
            where="; ".join(large),
            allowed=f"up to {format_size(max_bytes)} per stack",
            do="raise the limit, for example with --max-download 5GB",
        )


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[int]:
    """Lock the creation of this folder; the kernel releases the lock when the last holder exits.

    uv inherits the open file, so the lock lasts until uv has ended, even if this process is killed.
    """
    import fcntl

    with refuse_os_errors(
        "cannot create environments here",
        folder.parent,
        do="set XDG_CACHE_HOME to a writable folder",
        error_type=ConfigError,
    ):
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder.parent / f".{folder.name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _build_environment(folder: Path, stack: Stack, copy: int, marker: dict[str, Any], *, made: bool) -> Environment:
    return Environment(
        folder=folder,
        python=interpreter_path(folder),
        key=stack.key,
        copy=copy,
        python_version=str(marker["python_version"]),
        installed={str(name): str(version) for name, version in marker["installed"].items()},
        record_sha256=str(marker["record_sha256"]),
        made=made,
        make_s=float(marker["make_s"]),
        compile_s=float(marker["compile_s"]),
    )


def _make_environment(
    folder: Path, stack: Stack, copy: int, sources: Sources, offline: bool, holding: int
) -> Environment:
    """Create an environment, install the lock and check it; on any failure the folder is removed.

    `holding` is the descriptor of the lock on the folder, which uv inherits.
    """
    _clear_folder(folder)
    begun = time.perf_counter()
    try:
        create_venv(folder, stack, holding)
        lock = files.write_text(folder / LOCK, stack.lock)
        install_packages(folder, stack, lock, sources, offline=offline, lock_descriptor=holding)
        installed = list_installed_versions(folder)
        if {name: Version(text) for name, text in installed.items()} != {
            name: Version(text) for name, text in stack.versions.items()
        }:
            versions = ", ".join(f"{name} {version}" for name, version in sorted(installed.items()))[:500]
            raise RunFailedError(
                "installed packages differ from the lock", where=stack.name, found=versions or "nothing"
            )
        make_s = time.perf_counter() - begun
        compile_bytecode(folder)
    except BaseException:
        _clear_folder(folder)
        raise
    marker = {
        "format_version": FORMAT_VERSION,
        "key": stack.key,
        "python_version": read_python_version(folder),
        "installed": installed,
        "record_sha256": compute_record_digest(folder),
        "uv_version": uv_tool.read_uv_version(),
        "make_s": round(make_s, 3),
        "compile_s": round(time.perf_counter() - begun - make_s, 3),
    }
    files.write_text(folder / MARKER, json.dumps(marker, indent=1) + "\n")
    return _build_environment(folder, stack, copy, marker, made=True)


def _clear_folder(folder: Path) -> None:
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        # The marker is removed first, so that an interrupted removal leaves an incomplete environment.
        (folder / MARKER).unlink(missing_ok=True)
        shutil.rmtree(folder)
