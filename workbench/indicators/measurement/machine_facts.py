"""The machine of a session: hardware, load, system settings, and the cores that runs get.

Every probe is optional: unknown facts are null or left out. No fact identifies the machine or its user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.core import host
from workbench.core.files import cache_folder
from workbench.indicators.measurement.launcher_client import THREAD_VARIABLES, Launcher, build_clean_environment
from workbench.indicators.measurement.machine_readings import (
    parse_whole_number,
    read_fields,
    read_some_avg10,
    read_steal_s,
)
from workbench.indicators.measurement.run_messages import RunCommand, RunLimits
from workbench.indicators.measurement.stack_variants import Variant
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
PREFIX = "PYTHONPYCACHEPREFIX"
COMPILED = "compiled"
MARKER = "modules-that-do-not-compile"
_COMPILE_TIMEOUT_S = 900
# A copy takes some hundred MB: one that no session has used for so long goes.
_MAX_UNUSED_S = 30 * 86_400
_SKIPPED = ("test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "site-packages", "__pycache__")
# Runs with the interpreter and the environment of the runs; Python 3.8 and newer, the standard library alone.
_PROBE = r"""
import importlib.util, json, locale, os, sys, sysconfig
skipped = set(SKIPPED)

def folders():
    paths = sysconfig.get_paths()
    found = [paths["stdlib"], paths["purelib"], paths["platlib"]]
    return [os.path.realpath(one) for one in dict.fromkeys(found) if os.path.isdir(one)]

def is_compiled(path):
    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            head = file.read(16)
        if head[:4] != importlib.util.MAGIC_NUMBER:
            return False
        if head[4] & 1:
            return True
        told = os.stat(path)
        return (int.from_bytes(head[8:12], "little"), int.from_bytes(head[12:16], "little")) == (
            int(told.st_mtime) & 0xFFFFFFFF, told.st_size & 0xFFFFFFFF)
    except OSError:
        return False

total = 0
missing = []
for place, top in enumerate(folders()):
    for folder, inner, names in os.walk(top):
        inner[:] = [one for one in inner if one not in (skipped if folder == top and place == 0 else {"__pycache__"})]
        for name in names:
            if name.endswith(".py"):
                total += 1
                path = os.path.join(folder, name)
                if not is_compiled(path):
                    missing.append(path)
try:
    locale.setlocale(locale.LC_ALL, "")
    words = ".".join(str(one) for one in locale.getlocale())
except locale.Error as error:
    words = str(error)
print(json.dumps({
    "folders": folders(), "total": total, "missing": missing, "locale": words,
    "encoding": sys.getfilesystemencoding(), "variables": dict(os.environ),
    "hash": [sys.flags.hash_randomization, os.environ.get("PYTHONHASHSEED")],
    "optimize": sys.flags.optimize, "dev": bool(sys.flags.dev_mode), "debug": hasattr(sys, "gettotalrefcount"),
    "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    "custom": [name for name in ("sitecustomize", "usercustomize") if name in sys.modules],
    "cores": len(os.sched_getaffinity(0)),
}))
""".replace("SKIPPED", repr(_SKIPPED))


_VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md")


def detect_hardware(cpuinfo: Path = CPUINFO) -> Hardware:
    """Detect the facts of this machine that decide what is fast.

    The key is a hash of model, flags, cores, memory in whole GiB and accelerators: equal keys stand for equal machines.
    Clock speeds, memory timing and other load on the same hardware are not part of it.
    """
    facts, cpu = host.read_host_facts(), read_fields(cpuinfo)
    flags = tuple(sorted(set((cpu.get("flags") or cpu.get("features") or "").split())))
    accelerators = tuple(sorted(str(device["name"]) for device in facts["accelerators"]))
    memory_bytes = int(facts["memory_bytes"])
    return Hardware(
        key=compute_hardware_key(str(facts["cpu_model"]), flags, int(facts["cores"]), memory_bytes, accelerators),
        cpu_model=str(facts["cpu_model"]),
        cpu_family=parse_whole_number(cpu.get("cpu family")),
        cpu_model_number=parse_whole_number(cpu.get("model")),
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
    disk_busy_s, disk_sectors = _read_disk_use(root / "diskstats", sys_root)
    return Pressure(
        busy_s=_read_busy_s(root / "stat", cores),
        all_busy_s=_read_busy_s(root / "stat", ()),
        disk_busy_s=disk_busy_s,
        disk_sectors=disk_sectors,
        mhz=_read_mhz(root, sys_root, cores),
        throttles=_read_throttles(sys_root, cores),
        quota_s=_read_quota_s(root, sys_root),
        load_1m=host.read_load_1m(),
        steal_s=read_steal_s(root / "stat"),
        cpu_some_avg10=read_some_avg10(root / "pressure" / "cpu"),
        memory_some_avg10=read_some_avg10(root / "pressure" / "memory"),
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
    """Numbers of the hardware threads that share a core with this one, itself among them."""
    path = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    with contextlib.suppress(OSError, ValueError):
        siblings: set[int] = set()
        for part in path.read_text().strip().split(","):
            low, _, high = part.partition("-")
            siblings |= set(range(int(low), int(high or low) + 1))
        if core in siblings:
            return frozenset(siblings)
    return frozenset({core})


def _read_busy_s(path: Path, cores: tuple[int, ...]) -> float | None:
    """Seconds since boot that these cores (none: all) have run something, added up; without the hypervisor's."""
    names = {f"cpu{core}" for core in cores} or {"cpu"}
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in path.read_text().splitlines() if line.split(" ", 1)[0] in names]
        # user nice system idle iowait irq softirq steal …, in ticks
        ticks = sum(int(line[place]) for line in lines for place in (1, 2, 3, 6, 7))
        return ticks / os.sysconf("SC_CLK_TCK") if len(lines) == len(names) else None
    return None


def _read_disk_use(path: Path, sys_root: Path) -> tuple[float | None, int | None]:
    """Seconds since boot that disks were in use, added up, and the sectors that they read and wrote.

    Partitions are parts of disks, and not counted again; disks are those with a folder in `block`.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        names = {folder.name for folder in (sys_root / "block").iterdir()}
        disks = {name for name in names if not name.startswith(_VIRTUAL_DISKS)}
        # major minor name, reads merged sectors ms, writes merged sectors ms, in flight, ms in use …
        lines = [line.split() for line in path.read_text().splitlines()]
        used = [line for line in lines if line[2] in disks]
        if used:
            return sum(int(line[12]) for line in used) / 1e3, sum(int(line[5]) + int(line[9]) for line in used)
    return None, None


def _read_mhz(root: Path, sys_root: Path, cores: tuple[int, ...]) -> float | None:
    """Mean clock of the cores now, in MHz, from the kernel's own files or else from cpuinfo; null if neither tells."""
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
    """Number of times that these cores were slowed down for heat since boot, added up."""
    folder = sys_root / "devices/system/cpu"
    with contextlib.suppress(OSError, ValueError):
        counts = [int((folder / f"cpu{core}/thermal_throttle/core_throttle_count").read_text()) for core in cores]
        return sum(counts) if counts else None
    return None


def _read_quota_s(root: Path, sys_root: Path) -> float | None:
    """Seconds for which a CPU quota has stopped this control group; null without control groups of version 2."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        group_line = next(line for line in (root / "self/cgroup").read_text().splitlines() if line.startswith("0::"))
        text = (sys_root / "fs/cgroup" / group_line[3:].lstrip("/") / "cpu.stat").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("throttled_usec")) / 1e6
    return None


def equalize_conditions(
    variants: Sequence[Variant],
    environment: Mapping[str, str],
    *,
    threads: int,
    root: Path | None = None,
    note: Callable[[str], None] = print,
) -> list[Variant]:
    """Find the conditions of each variant's runs, and compile the byte code that an interpreter lacks in a copy.

    Python compiles a module without byte code anew in every run, since runs do not write any; an environment without it
    would look slow, whatever its libraries do. The environment itself stays as it is: the copy is a folder in the
    user's cache that runs get as PYTHONPYCACHEPREFIX.

    Returns: The same variants with `arm.conditions`, and with the variables that their runs need. An interpreter that
    cannot be probed keeps no conditions.
    """
    cores, _ = assign_cores(max([threads, *(entry.arm.threads or threads for entry in variants)]))
    cache: dict[tuple[object, ...], tuple[dict[str, str], dict[str, str]]] = {}
    results = []
    copies = _tidy_copies(root or cache_folder() / "indicators" / "bytecode")
    read = [str(copies)] if copies.is_dir() else []
    with Launcher(RunLimits(), [variant.interpreter for variant in variants], folders=read) as launcher:

        def probe(variant: Variant, more: Mapping[str, str], scanner: Launcher = launcher) -> dict[str, Any] | None:
            variables = {**environment, **variant.environment, **more}
            count = variant.arm.threads or threads
            # What the probe reports about an interpreter; null where it cannot run.
            ended = scanner.run_command(
                RunCommand(
                    variant.interpreter,
                    {"script.py": _PROBE},
                    build_clean_environment(count, variables),
                    cpus=cores[:count],
                    timeout_s=120,
                )
            )
            try:
                return dict(json.loads(ended.stdout)) if ended.outcome == "exited" else None
            except ValueError:
                return None

        for variant in variants:
            count = variant.arm.threads or threads
            key = (variant.interpreter, count, tuple(sorted(variant.environment.items())))
            if key not in cache:
                facts = probe(variant, {})
                expected = build_clean_environment(count, {**environment, **variant.environment})
                identity = f"{variant.interpreter}\0{variant.arm.python}"
                folder = copies / hashlib.sha256(identity.encode()).hexdigest()[:24]
                there = facts and facts["missing"] and (folder / MARKER).is_file()
                copy_facts = probe(variant, {PREFIX: str(folder)}) if there else None
                cache[key] = _settle_variant(variant, facts, expected, folder, note, copy_facts)
            conditions, more = cache[key]
            arm = variant.arm.model_copy(update={"conditions": conditions})
            results.append(dataclasses.replace(variant, arm=arm, environment={**variant.environment, **more}))
    return results


def _tidy_copies(copies: Path) -> Path:
    """Make the folder of copies, and remove those that were not used for long."""
    # A cache that cannot be written is no error: variants are then measured as they are, and the report says so.
    with contextlib.suppress(OSError):
        copies.mkdir(parents=True, exist_ok=True)
        oldest_s = time.time() - _MAX_UNUSED_S
        for folder in copies.iterdir():
            # One without a marker is being made, or was left behind by a kill.
            marker = folder / MARKER
            if (marker if marker.exists() else folder).stat().st_mtime < oldest_s:
                shutil.rmtree(folder, ignore_errors=True)
    return copies


def _settle_variant(
    variant: Variant,
    facts: dict[str, Any] | None,
    expected: Mapping[str, str],
    folder: Path,
    note: Callable[[str], None],
    copy_facts: dict[str, Any] | None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Conditions of a variant, and the variables that its runs need for its byte code.

    `facts`, `copy_facts`: Reports of the probe, without and with the copy in `folder`; null where there is none.
    `expected`: Variables that a run should see.
    """
    if facts is None:
        return {}, {}
    # Conditions in words; equal words stand for equal conditions.
    variables = dict(facts["variables"])
    threads = {name: variables.get(name, "not set") for name in THREAD_VARIABLES}
    common = max(set(threads.values()), key=list(threads.values()).count)
    odd = [f"{name}={value}" for name, value in threads.items() if value != common]
    private = {"HOME", "TMPDIR", PREFIX, "LC_CTYPE", "PWD", "SHLVL", "_", *THREAD_VARIABLES}
    names = {name for name in variables.keys() | expected.keys() if variables.get(name) != expected.get(name)} - private
    flags = [
        *(["debug build"] if facts["debug"] else []),
        *(["development mode"] if facts["dev"] else []),
        *([f"-O{facts['optimize']}"] if facts["optimize"] else []),
        *([] if facts["gil"] else ["without GIL"]),
    ]
    seed = facts["hash"][1]
    conditions = {
        "byte code": COMPILED,
        "locale": f"{facts['locale']}, {facts['encoding']}",
        "hash seed": "random" if facts["hash"][0] and seed in (None, "random") else str(seed),
        "threads": ", ".join([common, *odd]),
        "cores": str(facts["cores"]),
        "interpreter": ", ".join(flags) or "release build",
        "start-up code": ", ".join(facts["custom"]) or "none",
        "variables": ", ".join(f"{name}={variables.get(name, 'unset')}"[:60] for name in sorted(names)) or "as given",
    }
    missing = list(facts["missing"])
    if not missing:
        return conditions, {}
    n_uncompiled = _count_left(folder, copy_facts)
    if n_uncompiled is None:
        n_uncompiled = _compile_copy(variant.interpreter, facts["folders"], missing, folder)
    name = variant.arm.stack
    if n_uncompiled is None:
        note(f"{name}: {len(missing)} of {facts['total']} modules without byte code, and no copy could be compiled")
        return {**conditions, "byte code": f"missing for {len(missing)} of {facts['total']} modules"}, {}
    if n_uncompiled < len(missing):
        note(f"{name}: {len(missing) - n_uncompiled} of {facts['total']} modules without byte code: compiled in a copy")
        return conditions, {PREFIX: str(folder)}
    # What does not compile (templates, code for other versions) cannot be imported either.
    return conditions, {}


def _count_left(folder: Path, copy_facts: dict[str, Any] | None) -> int | None:
    """Number of modules that do not compile in a copy that is still whole; null where it must be made (again)."""
    if copy_facts is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        n_uncompiled = int((folder / MARKER).read_text(encoding="utf-8"))
        os.utime(folder / MARKER)
        return n_uncompiled if len(copy_facts["missing"]) <= n_uncompiled else None
    return None


def _compile_copy(python: str, folders: Sequence[str], missing: Sequence[str], folder: Path) -> int | None:
    """Link or copy the byte code that is there below `folder`, and compile the rest.

    Returns: Number of modules that do not compile; null if no copy could be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for top in folders:
            _copy_byte_code(Path(top), folder)
        listed = "\n".join(missing)
        subprocess.run(  # noqa: S603
            [python, "-S", "-s", "-m", "compileall", "-q", "-i", "-"],
            input=listed,
            text=True,
            cwd=folder,
            # The order of sets in byte code depends on the hash seed.
            env={"PYTHONHASHSEED": "0", PREFIX: str(folder), "PATH": os.environ.get("PATH", "")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
        for path in (folder, *folder.rglob("*")):
            mode = path.stat().st_mode
            readable = mode | (0o755 if path.is_dir() else 0o444)
            # A linked file is the environment's, and is readable.
            if mode != readable:
                path.chmod(readable)
        n_uncompiled = sum(not _has_byte_code(folder, Path(module)) for module in missing)
        (folder / MARKER).write_text(str(n_uncompiled), encoding="utf-8")
    except (OSError, subprocess.SubprocessError):
        return None
    return n_uncompiled


def _has_byte_code(folder: Path, module: Path) -> bool:
    """Whether the copy below `folder` has byte code of a module."""
    return any((folder / module.parent.relative_to("/")).glob(f"{glob.escape(module.stem)}.*.pyc"))


def _copy_byte_code(top: Path, folder: Path) -> None:
    """Link or copy the byte code below a folder to the same path below `folder`, unless that has it as new.

    A copy takes some hundred MB for each interpreter, a link on the same file system nothing. Nothing writes into a
    linked file: compilers replace files, and what else is older than its module is compiled anew.
    """
    for cache in top.rglob("__pycache__"):
        target = folder / cache.parent.relative_to("/")
        target.mkdir(parents=True, exist_ok=True)
        for path in cache.glob("*.pyc"):
            copy_path = target / path.name
            # Older than what is there: a module that has changed since.
            if not copy_path.exists() or copy_path.stat().st_mtime < path.stat().st_mtime:
                copy_path.unlink(missing_ok=True)
                _link_or_copy(path, copy_path)


def _link_or_copy(path: Path, target: Path) -> None:
    """Link a file that everybody may read, where both are on one file system; otherwise copy it."""
    if path.stat().st_mode & 0o444 == 0o444:
        with contextlib.suppress(OSError):
            os.link(path, target)
            return
    shutil.copyfile(path, target)
