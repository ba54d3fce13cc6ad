"""Reads results of Google Benchmark (`--benchmark_out=FILE`): each repetition is a run, aggregates are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.core.errors import InputError
from workbench.core.units import find_unit_factor
from workbench.indicators.store.benchmark_import import (
    MeasuredBenchmark,
    MeasuredRun,
    Measurement,
    build_set,
    format_time,
    judge_value,
    require_mapping,
    require_rows,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile
from workbench.indicators.store.session_import import shorten_text

NOUN = "result of Google Benchmark"
DEBUG = "debug build"
ONLY_MEDIAN = "aggregates without repetitions: their median is one run"
_ENDINGS = ("_mean", "_median", "_stddev", "_cv", "_BigO", "_RMS")
_KNOWN = frozenset(
    {
        "aggregate_name", "aggregate_unit", "cpu_time", "error_message", "error_occurred", "family_index", "iterations",
        "label", "name", "per_family_instance_index", "real_time", "repetition_index", "repetitions", "run_name",
        "run_type", "skip_message", "skipped", "threads", "time_unit",
    }
)  # fmt: skip


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """The benchmarks of each document of a file."""
    for document in file.read_documents(NOUN, context.notices, do="./benchmark --benchmark_out=FILE"):
        rows = require_rows(document, "benchmarks", NOUN, file.path)
        told = require_mapping(document.get("context"), "context", file.path)
        cores = told.get("num_cpus")
        measured = Measurement(
            "google-benchmark",
            stack="Google Benchmark",
            build=DEBUG if told.get("library_build_type") == "debug" else "",
            cores=cores if isinstance(cores, int) and not isinstance(cores, bool) and 0 < cores < 2**31 else None,
            machine=str(told.get("host_name") or ""),
            measured_at=format_time(told.get("date"), context),
            repeats=False,
        )
        if measured.build:
            context.add_notice("a debug build of the library (library_build_type): another stack, not for figures")
        if told.get("cpu_scaling_enabled") is True:
            context.add_notice("CPU frequency scaling was on (cpu_scaling_enabled): times vary more")
        # Benchmarks with their repetitions; one with aggregates alone has its median.
        benchmarks: dict[tuple[str, str], MeasuredBenchmark] = {}
        medians: dict[str, MeasuredRun] = {}
        counters: set[str] = set()
        for row in rows:
            full = str(row.get("name") or "")
            name = str(row.get("run_name") or full)
            if row.get("run_type") == "aggregate" or ("run_type" not in row and full.endswith(_ENDINGS)):
                is_time = row.get("aggregate_unit", "time") == "time"
                if row.get("aggregate_name", full.rpartition("_")[2]) == "median" and is_time:
                    medians[name.removesuffix("_median")] = _judge_row(row, file)
                continue
            counters |= {key for key in row if key not in _KNOWN}
            # Two benchmarks may be registered under one name.
            place = f"{row.get('family_index')} {row.get('per_family_instance_index')}"
            benchmarks.setdefault((name, place), MeasuredBenchmark(name, "s", "lower")).runs.append(
                _judge_row(row, file)
            )
        only = {name: run for name, run in medians.items() if name not in {known for known, _ in benchmarks}}
        if only:
            context.add_notice(ONLY_MEDIAN, len(only))
        if counters:
            names = ", ".join(sorted(shorten_text(name, 40) for name in counters)[:5])
            context.add_notice(f"counters without a direction were skipped: {names}")
        measured.benchmarks = [
            *benchmarks.values(),
            *(MeasuredBenchmark(name, "s", "lower", [run]) for name, run in only.items()),
        ]
        yield build_set(measured, context)


def _judge_row(row: Mapping[str, Any], file: ResultFile) -> MeasuredRun:
    if row.get("error_occurred"):
        return MeasuredRun(None, "empty", f"failed: {shorten_text(str(row.get('error_message')))}", None)
    if row.get("skipped"):
        return MeasuredRun(None, "empty", f"skipped: {shorten_text(str(row.get('skip_message')))}", None)
    unit = str(row.get("time_unit", "ns"))
    scale = find_unit_factor(unit, "s")
    if scale is None:
        raise InputError("not a unit of time", where=file.path, found=unit[:40], allowed="ns, us, ms, s")
    return judge_value(row.get("real_time"), scale=scale, cpu=row.get("cpu_time"))


FORMAT = ImportFormat(
    name="google-benchmark",
    tool="Google Benchmark",
    noun=NOUN,
    marks=(('"context"', '"benchmarks"', '"(library_build_type|num_cpus|time_unit)"'),),
    read=_read_file,
)
