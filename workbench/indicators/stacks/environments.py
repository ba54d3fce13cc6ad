"""Environments of stacks: one virtual environment per lock, cached and checked before reuse.

`ROOT/KEY` is the environment of a stack, `ROOT/KEY.1` a separate copy from the same lock. A marker file is written
last; a folder without it is incomplete and is rebuilt. A file lock serialises processes that need the same environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from workbench.core import files
from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.paths import cache_folder
from workbench.indicators.stacks import environment_files, uv_tool
from workbench.indicators.stacks.stack_request import format_size
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.stacks.target_platform import this_platform
from workbench.indicators.stacks.uv_tool import Sources, load_sources

FORMAT_VERSION = 1
MARKER = "workbench.json"
LOCK = "requirements.lock"
AT_ONCE = 2
MAX_DOWNLOAD_BYTES = 2_000_000_000


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

    Later changes of the files are detected by `environment_files.find_altered_files`.
    """
    if stack.platform != this_platform():
        raise ConfigError(
            "the stack is for another platform", where=stack.name, found=stack.platform, allowed=this_platform()
        )
    folder = (root or default_environment_root()).absolute() / (f"{stack.key}.{copy}" if copy else stack.key)
    with _lock_folder(folder) as lock:
        environment = _load_existing_environment(folder, stack, copy)
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

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder.parent / f".{folder.name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            "cannot create environments here",
            where=folder.parent,
            found=error.strerror,
            do="set XDG_CACHE_HOME to a writable folder",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _load_existing_environment(folder: Path, stack: Stack, copy: int) -> Environment | None:
    """Load a complete, unaltered environment; null if there is none."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        if marker["format_version"] != FORMAT_VERSION or marker["key"] != stack.key:
            return None
        if (
            not environment_files.interpreter_path(folder).exists()
            or environment_files.compute_record_digest(folder) != marker["record_sha256"]
        ):
            return None
        if environment_files.find_altered_files(folder, deep=False):
            return None
        return _build_environment(folder, stack, copy, marker, made=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build_environment(folder: Path, stack: Stack, copy: int, marker: dict[str, Any], *, made: bool) -> Environment:
    return Environment(
        folder=folder,
        python=environment_files.interpreter_path(folder),
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
    _clear_folder(folder)
    begun = time.perf_counter()
    try:
        environment_files.create_venv(folder, stack, holding)
        lock = files.write_text(folder / LOCK, stack.lock)
        environment_files.install_packages(folder, stack, lock, sources, offline=offline, lock_descriptor=holding)
        installed = environment_files.list_installed_versions(folder)
        if {name: Version(text) for name, text in installed.items()} != _list_expected_versions(stack):
            raise RunFailedError(
                "installed packages differ from the lock", where=stack.name, found=_format_versions(installed)
            )
        make_s = time.perf_counter() - begun
        environment_files.compile_bytecode(folder)
    except BaseException:
        _clear_folder(folder)
        raise
    marker = {
        "format_version": FORMAT_VERSION,
        "key": stack.key,
        "python_version": environment_files.read_python_version(folder),
        "installed": installed,
        "record_sha256": environment_files.compute_record_digest(folder),
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


def _list_expected_versions(stack: Stack) -> dict[str, Version]:
    return {name: Version(text) for name, text in stack.versions.items()}


def _format_versions(installed: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(installed.items()))[:500] or "nothing"
