"""The machine of a session: hardware, load, system settings, and the cores that runs get.

Every probe is optional: unknown facts are null or left out. No fact identifies the machine or its user.
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

from workbench.core import host
from workbench.indicators.store.archive import Hardware, Pressure

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


def detect_hardware(cpuinfo: Path = CPUINFO) -> Hardware:
    """Detect the facts of this machine that decide what is fast.

    The key is a hash of model, flags, cores, memory in whole GiB and accelerators: equal keys stand for equal machines.
    Clock speeds, memory timing and other load on the same hardware are not part of it.
    """
    facts, cpu = host.read_host_facts(), _read_processor(cpuinfo)
    flags = tuple(sorted(set((cpu.get("flags") or cpu.get("features") or "").split())))
    accelerators = tuple(sorted(str(device["name"]) for device in facts["accelerators"]))
    memory_bytes = int(facts["memory_bytes"])
    return Hardware(
        key=compute_hardware_key(str(facts["cpu_model"]), flags, int(facts["cores"]), memory_bytes, accelerators),
        cpu_model=str(facts["cpu_model"]),
        cpu_family=_parse_whole_number(cpu.get("cpu family")),
        cpu_model_number=_parse_whole_number(cpu.get("model")),
        cpu_flags=flags,
        cores=int(facts["cores"]),
        memory_bytes=memory_bytes,
        accelerators=accelerators,
    )


def compute_hardware_key(
    cpu_model: str, cpu_flags: Iterable[str], cores: int, memory_bytes: int, accelerators: Iterable[str]
) -> str:
    """Hash of a machine's facts, of this one or a pod's; see `detect_hardware`.

    >>> compute_hardware_key("A", ["avx"], 2, 8 << 30, []) == compute_hardware_key("A", ["avx"], 2, 8 << 30 | 4096, [])
    True
    """
    facts = (cpu_model, *sorted(set(cpu_flags)), cores, round(memory_bytes / 2**30), *sorted(accelerators))
    return hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()[:12]


def read_host_facts(root: Path = Path("/")) -> dict[str, Any]:
    """The facts of every run folder, with the system's `settings` that affect noise, spelled as by the system."""
    settings = {}
    for name, path in _SETTINGS.items():
        with contextlib.suppress(OSError):
            if text := (root / path).read_text().strip()[:200]:
                settings[name] = text
    return {**host.read_host_facts(), "settings": settings}


def read_pressure(root: Path = Path("/proc"), cpus: Iterable[int] = (), sys_root: Path = Path("/sys")) -> Pressure:
    """Read how busy the machine is now; `cpus` are the cores of the runs, none for all."""
    cores = tuple(cpus)
    return Pressure(
        busy_s=_read_busy_s(root / "stat", cores),
        mhz=_read_mhz(root, sys_root, cores),
        throttles=_read_throttles(sys_root, cores),
        quota_s=_read_quota_s(root, sys_root),
        load_1m=host.read_load_1m(),
        steal_s=_read_steal_s(root / "stat"),
        cpu_some_avg10=_read_some_avg10(root / "pressure" / "cpu"),
        memory_some_avg10=_read_some_avg10(root / "pressure" / "memory"),
    )


def build_hwinfo(hardware_facts: Hardware) -> dict[str, Any]:
    """The machine's facts by the names of Amun's results; unknown ones are left out."""
    brand = {"brand_raw": hardware_facts.cpu_model, "arch": platform.machine(), "count": hardware_facts.cores}
    numbers = {"family": hardware_facts.cpu_family, "model": hardware_facts.cpu_model_number}
    cpu_fields = {name: value for name, value in numbers.items() if value is not None}
    return {
        "cpu_features": {"flags": list(hardware_facts.cpu_flags)},
        "cpu_info": {**brand, **cpu_fields},
        "platform": {"architecture": platform.architecture()[0], "machine": platform.machine()},
    }


@functools.cache
def read_os_release() -> dict[str, str]:
    """Fields of os-release, in lower case as Amun has them; empty without the file."""
    with contextlib.suppress(OSError):
        fields = {name.lower(): value[:200] for name, value in platform.freedesktop_os_release().items()}
        return {name: value for name, value in fields.items() if name in ("id", "name", "version", "version_id")}
    return {}


def build_runtime_environment(hardware_facts: Hardware, python_version: str) -> dict[str, Any]:
    """Amun's summary of a run's environment."""
    release = read_os_release()
    return {
        "cuda_version": None,
        "hardware": {"cpu_family": hardware_facts.cpu_family, "cpu_model": hardware_facts.cpu_model_number},
        "operating_system": {"name": release.get("id"), "version": release.get("version_id")},
        "python_version": python_version or None,
    }


def assign_cores(
    threads: int, allowed: Iterable[int] | None = None, root: Path = Path("/")
) -> tuple[tuple[int, ...], ...]:
    """Assign cores to runs and to the workbench: two tuples, empty if cores cannot be chosen.

    The workbench keeps the first core unless runs need it. Runs get whole cores before they share one with another
    thread (two hyperthreads are one core), the last cores first, since systems put their own work on the first ones.

    >>> assign_cores(1, allowed=[0, 1])
    ((1,), (0,))
    >>> assign_cores(2, allowed=[0, 1])
    ((0, 1), (0,))
    """
    if allowed is None:
        if not hasattr(os, "sched_getaffinity"):
            return (), ()
        allowed = os.sched_getaffinity(0)
    cores = sorted(allowed)
    if len(cores) < 2:
        return tuple(cores), tuple(cores)
    first = _list_sibling_cores(cores[0], root)
    seen: set[frozenset[int]] = {first}
    apart: list[int] = []
    shared: list[int] = []
    for core in reversed(cores[1:]):
        siblings = _list_sibling_cores(core, root)
        (shared if siblings in seen else apart).append(core)
        seen.add(siblings)
    shared.sort(key=lambda core: (core in first, -core))
    chosen = [*apart, *shared, cores[0]][: max(1, threads)]
    return tuple(sorted(chosen)), (cores[0],)


def _list_sibling_cores(core: int, root: Path) -> frozenset[int]:
    path = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    with contextlib.suppress(OSError, ValueError):
        siblings: set[int] = set()
        for part in path.read_text().strip().split(","):
            low, _, high = part.partition("-")
            siblings |= set(range(int(low), int(high or low) + 1))
        if core in siblings:
            return frozenset(siblings)
    return frozenset({core})


def _read_processor(cpuinfo: Path) -> dict[str, str]:
    """Fields of the first processor."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            label, colon, value = line.partition(":")
            if not colon and fields:
                break
            if colon:
                fields[label.strip().lower()] = value.strip()
    return fields


def _parse_whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _read_steal_s(path: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        # cpu user nice system idle iowait irq softirq steal …, in ticks
        return int(path.read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    return None


def _read_busy_s(path: Path, cores: tuple[int, ...]) -> float | None:
    """Time that cores have run something since boot, together; without what the hypervisor took."""
    names = {f"cpu{core}" for core in cores} or {"cpu"}
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in path.read_text().splitlines() if line.split(" ", 1)[0] in names]
        # user nice system idle iowait irq softirq steal …, in ticks
        ticks = sum(int(line[place]) for line in lines for place in (1, 2, 3, 6, 7))
        return ticks / os.sysconf("SC_CLK_TCK") if len(lines) == len(names) else None
    return None


def _read_mhz(root: Path, sys_root: Path, cores: tuple[int, ...]) -> float | None:
    """Mean clock of cores now; from the kernel's own file, else from cpuinfo."""
    folder = sys_root / "devices/system/cpu"
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        frequencies = [int((folder / f"cpu{core}/cpufreq/scaling_cur_freq").read_text()) / 1000 for core in cores]
        return round(sum(frequencies) / len(frequencies), 1)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        lines = [line for line in (root / "cpuinfo").read_text().splitlines() if line.lower().startswith("cpu mhz")]
        clocks = [float(line.rpartition(":")[2]) for line in lines]
        core_clocks = [clocks[core] for core in cores if core < len(clocks)] or clocks
        return round(sum(core_clocks) / len(core_clocks), 1)
    return None


def _read_throttles(sys_root: Path, cores: tuple[int, ...]) -> int | None:
    """How often these cores were slowed down for heat since boot."""
    folder = sys_root / "devices/system/cpu"
    with contextlib.suppress(OSError, ValueError):
        counts = [int((folder / f"cpu{core}/thermal_throttle/core_throttle_count").read_text()) for core in cores]
        return sum(counts) if counts else None
    return None


def _read_quota_s(root: Path, sys_root: Path) -> float | None:
    """How long a CPU quota has stopped this control group; null without control groups of version 2."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        group_line = next(line for line in (root / "self/cgroup").read_text().splitlines() if line.startswith("0::"))
        text = (sys_root / "fs/cgroup" / group_line[3:].lstrip("/") / "cpu.stat").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("throttled_usec")) / 1e6
    return None


def _read_some_avg10(path: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        some = next(line for line in path.read_text().splitlines() if line.startswith("some"))
        return float(next(part for part in some.split() if part.startswith("avg10=")).removeprefix("avg10="))
    return None
