"""Import JSON files of pytest-benchmark as sessions, each of a commit, for figures over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from workbench.core.schema import validate_model
from workbench.indicators.contract.indicator import Indicator, parameter, result
from workbench.indicators.store.benchmark_import import (
    MAX_TEXT,
    MeasuredBenchmark,
    Measurement,
    build_set,
    format_time,
    judge_value,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile
from workbench.indicators.store.session_import import UNKNOWN, shorten_text

USUAL_TIMER = "perf_counter"
NOUN = "file of pytest-benchmark"


class _Stats(BaseModel):
    median: float | None


class _Benchmark(BaseModel):
    fullname: str
    stats: _Stats
    options: dict[str, Any] = {}

    @property
    def quantity(self) -> str:
        """The timer where it is not the usual one: another timer measures something else."""
        timer = str(self.options.get("timer") or USUAL_TIMER).rpartition(".")[2]
        return "" if timer == USUAL_TIMER else f"timer {shorten_text(timer, 40)}"


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


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """Each document is a commit; each benchmark's median is a run."""
    for document in file.read_documents(NOUN, context.notices):
        read = validate_model(BenchmarkFile, document, noun=NOUN, where=file.path)
        machine, commit = read.machine_info, read.commit_info
        told = machine.get("cpu")
        cpu = told if isinstance(told, dict) else {}
        cores = cpu.get("count")
        python = str(machine.get("python_version", ""))[:20]
        revision = commit.get("id")
        measured = Measurement(
            "pytest-benchmark",
            [
                MeasuredBenchmark(one.fullname, "s", "lower", [judge_value(one.stats.median)], one.quantity)
                for one in read.benchmarks
            ],
            stack=f"{machine.get('python_implementation', 'Python')} {python}".strip(),
            build="local changes" if commit.get("dirty") is True else "",
            python=python,
            model=str(cpu.get("brand_raw") or cpu.get("brand") or UNKNOWN),
            cores=cores if isinstance(cores, int) else None,
            machine=str(machine.get("node") or ""),
            revision=str(revision)[:MAX_TEXT] if revision and revision != "unversioned" else None,
            commit_at=format_time(commit.get("time"), context),
            measured_at=format_time(read.datetime, context),
            indicator=(PytestSeconds, "elapsed_s"),
        )
        yield build_set(measured, context)


FORMAT = ImportFormat(
    name="pytest-benchmark",
    tool="pytest-benchmark",
    noun=NOUN,
    marks=(('"machine_info"', '"benchmarks"'),),
    takes=frozenset({"stack", "machine", "revision"}),
    read=_read_file,
)
