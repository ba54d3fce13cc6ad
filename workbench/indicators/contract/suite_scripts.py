"""Scripts that run a suite of pytest-benchmark or pyperf once, and print one document of the contract."""

from __future__ import annotations

import re
from pathlib import Path

from workbench.core.errors import ConfigError

MAX_FILES = 100
MAX_BYTES = 1 << 20

PYTEST_SCRIPT = r"""
import contextlib, json, re, sys
import pytest


class Watch:
    failed = 0

    def pytest_runtest_logreport(self, report):
        self.failed += report.failed

    def pytest_collectreport(self, report):
        self.failed += report.failed

    # Facts of the machine take a second to find, and are in the session already.
    @pytest.hookimpl(tryfirst=True)
    def pytest_benchmark_generate_machine_info(self, config):
        return {"node": "", "cpu": {}}

    @pytest.hookimpl(tryfirst=True)
    def pytest_benchmark_generate_commit_info(self, config):
        return {"id": None, "dirty": False}


watch = Watch()
with contextlib.redirect_stdout(sys.stderr):
    options = ["-q", "-p", "no:cacheprovider", "--rootdir=.", "--benchmark-only", "--benchmark-json=measured.json"]
    code = pytest.main([*options, "--benchmark-max-time=0.25", *TARGETS], plugins=[watch])
if code not in (0, 1):
    sys.exit(f"pytest ended with code {int(code)}: nothing was collected, or the suite cannot be run")
with open("measured.json") as file:
    found = json.load(file)["benchmarks"]
result = {}
for one in found:
    name = re.sub(r"[^A-Za-z0-9]+", "_", one["name"]).strip("_")[:60]
    if name in result:
        name = re.sub(r"[^A-Za-z0-9]+", "_", one["fullname"]).strip("_")[-60:].lstrip("_0123456789")
    result[name] = 1000 * one["stats"]["median"]
if not result:
    sys.exit("no benchmark of the suite has a value")
document = {"name": NAME, "framework": "pytest-benchmark", "@parameters": {}, "@result": result}
print(json.dumps({**document, "@checks": {"failed": watch.failed}}))
"""
PYPERF_SCRIPT = r"""
import json, os, re, statistics, subprocess, sys

# Workers get the variables of this run: pyperf would drop the limits of threads.
options = ["-o", "measured.json", "--processes", "1", "--inherit-environ", ",".join(os.environ)]
done = subprocess.run([sys.executable, TARGETS[0], *options], stdout=sys.stderr)
if done.returncode:
    sys.exit(done.returncode)
with open("measured.json") as file:
    suite = json.load(file)
result = {}
for one in suite["benchmarks"]:
    about = {**suite.get("metadata", {}), **one.get("metadata", {})}
    values = [value for run in one["runs"] for value in run.get("values", ())]
    if values and about.get("unit", "second") == "second":
        result[re.sub(r"[^A-Za-z0-9]+", "_", about.get("name", "value")).strip("_")[:60]] = (
            1000 * statistics.median(values)
        )
if not result:
    sys.exit("no benchmark of the suite has a time")
document = {"name": NAME, "framework": "pyperf", "@parameters": {}, "@result": result, "@checks": {"failed": 0}}
print(json.dumps(document))
"""
SUITES = {"pytest": (PYTEST_SCRIPT, ("pytest", "pytest-benchmark")), "pyperf": (PYPERF_SCRIPT, ("pyperf",))}


def read_suite(path: Path, kind: str) -> tuple[str, dict[str, str]]:
    """Name of a suite, and its sources with the script that runs it.

    A file is taken with the Python files beside it that it may import (`conftest.py`, helpers), a folder with all
    Python files directly in it.
    """
    where = f"--{kind} {path}"
    if kind == "pyperf" and not path.is_file():
        raise ConfigError("no such script", where=where, allowed="a script that runs pyperf.Runner")
    if not path.exists():
        raise ConfigError("no such suite", where=where, allowed="a test file, or a folder of test files")
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        targets = [
            file.name for file in sorted(folder.glob("*.py")) if re.fullmatch(r"test_.*\.py|.*_test\.py", file.name)
        ]
        if not targets:
            raise ConfigError("no test file in this folder", where=where, allowed="test_*.py or *_test.py")
        listed = sorted(folder.glob("*.py"))
    else:
        targets = [path.name]
        others = [file for file in sorted(folder.glob("*.py")) if not re.fullmatch(r"test_.*|.*_test\.py", file.name)]
        listed = [path, *(file for file in others if file != path)] if kind == "pytest" else [path]
    files = _read_files(listed, where)
    name = re.sub(r"[^A-Za-z0-9]+", "_", path.stem).strip("_").lstrip("0123456789_")[:60] or "suite"
    script, _ = SUITES[kind]
    head = f"NAME = {name!r}\nTARGETS = {targets!r}\n"
    return name, {"script.py": head + script, **files}


def _read_files(paths: list[Path], where: str) -> dict[str, str]:
    if len(paths) > MAX_FILES:
        raise ConfigError("too many files beside the suite", where=where, found=len(paths), allowed=MAX_FILES)
    sources: dict[str, str] = {}
    total = 0
    for path in paths:
        if path.name == "script.py":
            raise ConfigError("a file of this name is written by the workbench", where=where, found=path.name)
        try:
            total += path.stat().st_size
            if total > MAX_BYTES:
                raise ConfigError("the suite is too large", where=where, allowed=f"{MAX_BYTES >> 20} MiB")
            sources[path.name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("cannot read a file of the suite", where=path, found=str(error)[:200]) from None
    return sources
