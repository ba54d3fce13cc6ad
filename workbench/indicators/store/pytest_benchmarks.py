"""Import JSON files of pytest-benchmark as sessions, each of a commit, for figures over time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from workbench.core.data_files import read_json_file
from workbench.core.errors import InputError
from workbench.core.schema import validate_model
from workbench.indicators.contract.indicator import Indicator, parameter, result
from workbench.indicators.store import session_import
from workbench.indicators.store.archive import COMMIT_TIME, OUTSIDE, Arm, is_inside, parse_time
from workbench.indicators.store.session_import import ImportedCase, ImportedRun, ImportedSession, shorten_text

MAX_BYTES = 256 << 20
MAX_FILES = 10_000
MAX_NAME = 200
USUAL_TIMER = "perf_counter"
LOCAL_CHANGES = "local changes"
_NOUN = "file of pytest-benchmark"


class _Stats(BaseModel):
    median: float


class _Benchmark(BaseModel):
    fullname: str
    stats: _Stats
    options: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """Name, with the timer where it is not the usual one: another timer measures something else."""
        timer = str(self.options.get("timer") or USUAL_TIMER).rpartition(".")[2]
        return shorten_text(self.fullname) + ("" if timer == USUAL_TIMER else f" [timer {shorten_text(timer, 40)}]")


class BenchmarkFile(BaseModel):
    """Fields that are read of a file; further keys are ignored."""

    machine_info: dict[str, Any]
    commit_info: dict[str, Any] = {}
    benchmarks: list[_Benchmark]
    datetime: str


class PytestSeconds(Indicator):
    """pytest-benchmark's median of the rounds of one process."""

    benchmark: str = parameter()
    elapsed_s: float = result(unit="s", better="lower")


def list_benchmark_files(path: Path) -> list[Path]:
    """Files of a folder such as .benchmarks and of the machines' folders in it; a path that is no folder as it is."""
    if not path.is_dir():
        return [path]
    paths = sorted([*path.glob("*.json"), *path.glob("*/*.json")])
    if outside := [file for file in paths if not is_inside(file, path.resolve())]:
        raise InputError(OUTSIDE, where=outside[0], do="name the file itself")
    if not paths or len(paths) > MAX_FILES:
        allowed = f"1 to {MAX_FILES:,} files of --benchmark-json or --benchmark-autosave"
        raise InputError("no files of pytest-benchmark in this folder", where=path, found=len(paths), allowed=allowed)
    return paths


def is_benchmark_file(path: Path) -> bool:
    """Whether a path is a file of pytest-benchmark, or a folder of such files."""
    try:
        document = _read_json(list_benchmark_files(path)[0])
    except InputError:
        return False
    return isinstance(document, dict) and {"machine_info", "benchmarks"} <= document.keys()


def import_benchmarks(
    paths: Iterable[Path],
    out: Path,
    *,
    stack: str | None = None,
    machine: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> list[ImportedSession]:
    """Import files of pytest-benchmark, one session per file; each benchmark's median is a run.

    `stack`: Name of the stack; by default the Python that ran the suite. Of a commit with local changes it is another.
    `machine`: Name of the machine that all files are of, whatever they say; empty: by what they say.
    """
    files = [file for path in paths for file in list_benchmark_files(Path(path))]
    sessions: list[ImportedSession] = []
    for index, path in enumerate(files):
        read = validate_model(BenchmarkFile, _read_json(path), noun=_NOUN, where=path)
        if not read.benchmarks:
            raise InputError("no benchmark in this file", where=path)
        commit = read.commit_info.get("id")
        revision = str(commit)[:MAX_NAME] if commit and commit != "unversioned" else None
        sessions += session_import.write_sessions(_convert_runs(read, stack, machine), out, revision=revision)
        if progress is not None:
            progress(index + 1, len(files))
    return sessions


def _format_time(text: Any) -> str:
    """A time in UTC; empty for what is none."""
    moment = parse_time(text)
    return moment.astimezone(UTC).isoformat() if moment else ""


def _read_json(path: Path) -> Any:
    return read_json_file(path, noun=_NOUN, max_bytes=MAX_BYTES)


def _convert_runs(read: BenchmarkFile, stack: str | None, joined: str) -> list[ImportedRun]:
    """A run for each benchmark of a file."""
    machine = read.machine_info
    told = machine.get("cpu")
    cpu = told if isinstance(told, dict) else {}
    cores = cpu.get("count")
    hardware = session_import.build_hardware(
        model=str(cpu.get("brand_raw") or cpu.get("brand") or session_import.UNKNOWN),
        cores=cores if isinstance(cores, int) else None,
        machine=str(machine.get("node") or ""),
        joined=joined,
    )
    python = str(machine.get("python_version", ""))[:20]
    name = stack or f"{machine.get('python_implementation', 'Python')} {python}"[:MAX_NAME].strip()
    if read.commit_info.get("dirty") is True:
        name += f", {LOCAL_CHANGES}"
    arm = Arm(
        name=name,
        stack=name,
        stack_key=hashlib.sha256(f"pytest-benchmark\0{name}\0{python}".encode()).hexdigest(),
        python=python,
        notes={"source": "pytest-benchmark", "stack": "not told: pytest-benchmark keeps no lock"}
        | ({COMMIT_TIME: committed} if (committed := _format_time(read.commit_info.get("time"))) else {}),
    )
    start = _format_time(read.datetime)
    runs = []
    for benchmark in read.benchmarks:
        label = benchmark.label
        case = ImportedCase(
            PytestSeconds.__name__, PytestSeconds.version(), PytestSeconds, {"benchmark": label}, label=label
        )
        stdout = {
            "name": case.name, "@parameters": {"benchmark": label}, "@result": {"elapsed_s": benchmark.stats.median}
        }  # fmt: skip
        document = {"stdout": stdout, "exit_code": 0, "start_datetime": start}
        runs.append(ImportedRun(arm, case, hardware, "ok", document))
    return runs
