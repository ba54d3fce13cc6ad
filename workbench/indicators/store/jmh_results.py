"""Reads results of JMH (`-rf json`): each fork is a run, the mean of its iterations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.core.errors import InputError
from workbench.indicators.contract.indicator import Better
from workbench.indicators.store.benchmark_import import (
    MeasuredBenchmark,
    Measurement,
    build_set,
    judge_value,
    require_mapping,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile

NOUN = "result of JMH"
_DIRECTIONS: dict[str, Better] = {"thrpt": "higher", "avgt": "lower", "sample": "lower", "ss": "lower"}


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """The benchmarks of each document of a file, a set for each Java."""
    for document in file.read_documents(NOUN, context.notices, do="java -jar benchmarks.jar -rf json"):
        if not isinstance(document, list):
            raise InputError(f"not a {NOUN}", where=file.path, allowed="a list of benchmarks")
        by_java: dict[str, Measurement] = {}
        for row in document:
            benchmark = _read_benchmark(require_mapping(row, "benchmark", file.path), file, context)
            java = f"{row.get('vmName') or 'Java'}, JDK {row.get('jdkVersion') or 'unknown'}"
            by_java.setdefault(java, Measurement("jmh", stack=java, repeats=False)).benchmarks.append(benchmark)
        for measured in by_java.values():
            yield build_set(measured, context)


def _read_benchmark(row: Mapping[str, Any], file: ResultFile, context: ImportContext) -> MeasuredBenchmark:
    metric = require_mapping(row.get("primaryMetric"), "primaryMetric", file.path)
    mode, threads = str(row.get("mode")), row.get("threads")
    parameters = row.get("params") if isinstance(row.get("params"), Mapping) else {}
    values = [f"{name}={value}" for name, value in parameters.items()]  # type: ignore[union-attr]
    values += [f"threads={threads}"] if threads not in (None, 1) else []
    name = str(row.get("benchmark")) + (f"({', '.join(values)})" if values else "")
    unit = str(metric.get("scoreUnit") or "")
    if row.get("secondaryMetrics"):
        context.add_notice("secondary metrics have no direction and were skipped")
    if row.get("jvmArgs"):
        context.add_notice("options of the JVM are no part of a series: --stack names what differs")
    benchmark = MeasuredBenchmark(name, unit, _DIRECTIONS.get(mode), quantity=mode)
    forks = _list_forks(metric)
    if not forks:
        context.add_notice("no raw data of a benchmark: its score is one run")
        benchmark.runs = [judge_value(metric.get("score"))]
    benchmark.runs += [judge_value(value) for value in forks]
    return benchmark


def _list_forks(metric: Mapping[str, Any]) -> list[Any]:
    """Mean of the iterations of each fork; of samples, weighted by how often each was seen."""
    raw, histogram = metric.get("rawData"), metric.get("rawDataHistogram")
    try:
        if isinstance(raw, list):
            return [_mean([(float(value), 1.0) for value in fork]) for fork in raw]
        if isinstance(histogram, list):
            return [
                _mean([(float(value), float(count)) for iteration in fork for value, count in iteration])
                for fork in histogram
            ]
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("raw data that is no numbers", found=str(error)[:120]) from None
    return []


def _mean(pairs: list[tuple[float, float]]) -> float:
    """Weighted mean; not a number where there is none."""
    weight = math.fsum(count for _, count in pairs)
    return math.fsum(value * count for value, count in pairs) / weight if weight > 0 else math.nan


FORMAT = ImportFormat(
    name="jmh",
    tool="JMH",
    noun=NOUN,
    marks=(('"primaryMetric"', '"benchmark"'),),
    read=_read_file,
)
