"""Import JSON files of pytest-benchmark as sessions, each of a commit, for figures over time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from workbench.core.schema import validate_model
from workbench.indicators.contract.indicator import Indicator, parameter, result
from workbench.indicators.store import session_import
from workbench.indicators.store.archive import COMMIT_TIME, Arm
from workbench.indicators.store.benchmark_import import (
    TWICE,
    ImportedSet,
    ImportOptions,
    format_time,
    import_files,
    judge_value,
)
from workbench.indicators.store.result_files import ResultFile, add_notice
from workbench.indicators.store.session_import import ImportedCase, ImportedRun, ImportReport, shorten_text

MAX_NAME = 200
USUAL_TIMER = "perf_counter"
LOCAL_CHANGES = "local changes"
_NOUN = "file of pytest-benchmark"


class _Stats(BaseModel):
    median: float | None


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


def import_benchmarks(
    paths: Iterable[Path],
    out: Path,
    *,
    stack: str | None = None,
    machine: str = "",
    revision: str | None = None,
    measured_at: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import files of pytest-benchmark, one session per file; each benchmark's median is a run.

    `stack`: Name of the stack; by default the Python that ran the suite. Of a commit with local changes it is another.
    `machine`: Name of the machine that all files are of, whatever they say; empty: by what they say.
    `revision`, `measured_at`: Commit and time of files that tell none.
    """
    options = ImportOptions(stack, machine, revision, measured_at)
    return import_files(paths, out, _read_file, form="pytest-benchmark", noun=_NOUN, options=options, progress=progress)


def _read_file(file: ResultFile, options: ImportOptions, notices: dict[str, int]) -> Iterator[ImportedSet]:
    for document in file.read_documents(_NOUN, notices):
        read = validate_model(BenchmarkFile, document, noun=_NOUN, where=file.path)
        commit = read.commit_info.get("id")
        revision = str(commit)[:MAX_NAME] if commit and commit != "unversioned" else None
        yield ImportedSet(_convert_runs(read, options.stack, options.machine, notices), revision)


def _convert_runs(read: BenchmarkFile, stack: str | None, joined: str, notices: dict[str, int]) -> list[ImportedRun]:
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
        notes={"source": "pytest-benchmark", "stack": "unknown: pytest-benchmark keeps no lock"}
        | ({COMMIT_TIME: committed} if (committed := format_time(read.commit_info.get("time"), notices)) else {}),
    )
    start = format_time(read.datetime, notices)
    runs = []
    if len({benchmark.label for benchmark in read.benchmarks}) < len(read.benchmarks):
        add_notice(notices, TWICE)
    for benchmark in read.benchmarks:
        label = benchmark.label
        case = ImportedCase(
            PytestSeconds.__name__, PytestSeconds.version(), PytestSeconds, {"benchmark": label}, label=label
        )
        run = judge_value(benchmark.stats.median)
        stdout = {"name": case.name, "@parameters": {"benchmark": label}, "@result": {"elapsed_s": run.value}}
        is_valid = run.status == "ok"
        document = {"stdout": stdout if is_valid else "", "exit_code": run.exit_code, "start_datetime": start}
        runs.append(ImportedRun(arm, case, hardware, run.status, document, run.reason))
    return runs
