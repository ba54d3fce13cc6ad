"""The machine that runs are made on: what decides what is fast, how busy it is, which cores a run gets.

Every probe is optional: what the system does not tell is null, or left out. Nothing names the machine or its user.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench import host
from workbench.indicators.archive import Hardware, Pressure

CPUINFO = Path("/proc/cpuinfo")
_SETTINGS = {
    "governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "turbo_off": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "boost": "sys/devices/system/cpu/cpufreq/boost",
    "smt": "sys/devices/system/cpu/smt/active",
    "isolated_cpus": "sys/devices/system/cpu/isolated",
    "address_randomisation": "proc/sys/kernel/randomize_va_space",
    "transparent_huge_pages": "sys/kernel/mm/transparent_hugepage/enabled",
    "clock_source": "sys/devices/system/clocksource/clocksource0/current_clocksource",
}


def hardware(cpuinfo: Path = CPUINFO) -> Hardware:
    """What is this machine, as far as it decides what is fast?

    The key is over model, flags, cores, memory in whole GiB and accelerators: equal keys may be taken for equal
    machines. It does not show clock speeds, memory timing, or what else runs on the same hardware.
    """
    facts, cpu = host.facts(), _processor(cpuinfo)
    flags = tuple(sorted(set((cpu.get("flags") or cpu.get("features") or "").split())))
    accelerators = tuple(sorted(str(device["name"]) for device in facts["accelerators"]))
    memory_bytes = int(facts["memory_bytes"])
    return Hardware(
        key=hardware_key(str(facts["cpu_model"]), flags, int(facts["cores"]), memory_bytes, accelerators),
        cpu_model=str(facts["cpu_model"]),
        cpu_family=_whole(cpu.get("cpu family")),
        cpu_model_number=_whole(cpu.get("model")),
        cpu_flags=flags,
        cores=int(facts["cores"]),
        memory_bytes=memory_bytes,
        accelerators=accelerators,
    )


def hardware_key(
    cpu_model: str, cpu_flags: Iterable[str], cores: int, memory_bytes: int, accelerators: Iterable[str]
) -> str:
    """What stands for a machine, this one or a pod's: see `hardware`.

    Examples
    --------
    >>> hardware_key("A", ["avx"], 2, 8 << 30, []) == hardware_key("A", ["avx"], 2, (8 << 30) + 4096, [])
    True
    """
    told = (cpu_model, *sorted(set(cpu_flags)), cores, round(memory_bytes / 2**30), *sorted(accelerators))
    return hashlib.sha256("\0".join(map(str, told)).encode()).hexdigest()[:12]


def host_facts(root: Path = Path("/")) -> dict[str, Any]:
    """The facts that every run folder has, and the settings of the system that make measurements quiet or noisy.

    `settings` has those that the system tells, as it spells them.
    """
    settings = {}
    for name, path in _SETTINGS.items():
        with contextlib.suppress(OSError):
            if text := (root / path).read_text().strip()[:200]:
                settings[name] = text
    return {**host.facts(), "settings": settings}


def pressure(root: Path = Path("/proc")) -> Pressure:
    """How busy is the machine now?"""
    return Pressure(
        load_1m=host.load_1m(),
        steal_s=_steal_s(root / "stat"),
        cpu_some_avg10=_some_avg10(root / "pressure" / "cpu"),
        memory_some_avg10=_some_avg10(root / "pressure" / "memory"),
    )


def hwinfo(found: Hardware) -> dict[str, Any]:
    """The machine by the names that Amun's results use; what is not known is left out."""
    brand = {"brand_raw": found.cpu_model, "arch": platform.machine(), "count": found.cores}
    numbers = {"family": found.cpu_family, "model": found.cpu_model_number}
    known = {name: value for name, value in numbers.items() if value is not None}
    return {
        "cpu_features": {"flags": list(found.cpu_flags)},
        "cpu_info": {**brand, **known},
        "platform": {"architecture": platform.architecture()[0], "machine": platform.machine()},
    }


@functools.cache
def os_release() -> dict[str, str]:
    """The system's own account of itself, keys in small letters as Amun has them; empty where there is none."""
    with contextlib.suppress(OSError):
        found = {name.lower(): value[:200] for name, value in platform.freedesktop_os_release().items()}
        return {name: value for name, value in found.items() if name in ("id", "name", "version", "version_id")}
    return {}


def runtime_environment(found: Hardware, python_version: str) -> dict[str, Any]:
    """Amun's summary of where a run was made."""
    release = os_release()
    return {
        "cuda_version": None,
        "hardware": {"cpu_family": found.cpu_family, "cpu_model": found.cpu_model_number},
        "operating_system": {"name": release.get("id"), "version": release.get("version_id")},
        "python_version": python_version or None,
    }


def cores_for(
    threads: int, allowed: Iterable[int] | None = None, root: Path = Path("/")
) -> tuple[tuple[int, ...], ...]:
    """Which cores do runs get, and which the workbench itself? Two tuples: runs, workbench; empty for any.

    The workbench keeps the first core while runs need not have it. Runs get cores of their own before they share one
    with another (two hyperthreads are one core), the last ones first: systems put their own work on the first.

    Examples
    --------
    >>> cores_for(1, allowed=[0, 1])
    ((1,), (0,))
    >>> cores_for(2, allowed=[0, 1])
    ((0, 1), (0,))
    """
    if allowed is None:
        if not hasattr(os, "sched_getaffinity"):
            return (), ()
        allowed = os.sched_getaffinity(0)
    cores = sorted(allowed)
    if len(cores) < 2:
        return tuple(cores), tuple(cores)
    first = _siblings(cores[0], root)
    seen: set[frozenset[int]] = {first}
    apart: list[int] = []
    shared: list[int] = []
    for core in reversed(cores[1:]):
        siblings = _siblings(core, root)
        (shared if siblings in seen else apart).append(core)
        seen.add(siblings)
    shared.sort(key=lambda core: (core in first, -core))
    chosen = [*apart, *shared, cores[0]][: max(1, threads)]
    return tuple(sorted(chosen)), (cores[0],)


def _siblings(core: int, root: Path) -> frozenset[int]:
    path = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    with contextlib.suppress(OSError, ValueError):
        found: set[int] = set()
        for part in path.read_text().strip().split(","):
            low, _, high = part.partition("-")
            found |= set(range(int(low), int(high or low) + 1))
        if core in found:
            return frozenset(found)
    return frozenset({core})


def _processor(cpuinfo: Path) -> dict[str, str]:
    """The first processor's lines."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            label, colon, value = line.partition(":")
            if not colon and found:
                break
            if colon:
                found[label.strip().lower()] = value.strip()
    return found


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _steal_s(path: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        # cpu user nice system idle iowait irq softirq steal …, in ticks
        return int(path.read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    return None


def _some_avg10(path: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        some = next(line for line in path.read_text().splitlines() if line.startswith("some"))
        return float(next(part for part in some.split() if part.startswith("avg10=")).removeprefix("avg10="))
    return None
