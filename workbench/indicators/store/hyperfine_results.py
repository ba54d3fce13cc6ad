"""Reads results of hyperfine (`--export-json`): each time is a run; runs with another exit code have no value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.core.errors import InputError
from workbench.indicators.store.benchmark_import import (
    MeasuredBenchmark,
    MeasuredRun,
    Measurement,
    build_set,
    judge_value,
    require_rows,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile
from workbench.indicators.store.session_import import shorten_text

NOUN = "result of hyperfine"
MAX_NOTES = 20
_EXPORT = "hyperfine --export-json FILE"


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """The commands of each document of a file."""
    for document in file.read_documents(NOUN, context.notices, do=_EXPORT):
        measured, times = Measurement("hyperfine", repeats=False), list[str]()
        for row in require_rows(document, "results", NOUN, file.path):
            parameters = row.get("parameters")
            # The values of a parameter scan, since commands with a name of their own do not show them.
            values = [f"{key}={value}" for key, value in parameters.items()] if isinstance(parameters, Mapping) else []
            name = f"{row.get('command', 'command')}" + (f" ({', '.join(values)})" if values else "")
            measured.benchmarks += _read_command(row, name, f"{file.path}, {shorten_text(name, 80)}", context)
            user_s, system_s = (judge_value(row.get(key)).value for key in ("user", "system"))
            if user_s is not None and system_s is not None:
                times.append(f"{name}: user {user_s:.4g} s and system {system_s:.4g} s on average")
        measured.notes = tuple(shorten_text(text) for text in times[:MAX_NOTES])
        yield build_set(measured, context)


def _read_command(row: Mapping[str, Any], name: str, where: str, context: ImportContext) -> Iterator[MeasuredBenchmark]:
    """Times of a command, and the largest memory of each run where hyperfine tells it."""
    times, codes, sizes = row.get("times"), row.get("exit_codes"), row.get("memory_usage_byte")
    if not isinstance(times, list) or not times:
        raise InputError("no times of single runs", where=where, found="summaries alone", do=_EXPORT)
    if codes is None:
        context.add_notice("no exit codes in the file: failed runs are not known")
        codes = [0] * len(times)
    if not isinstance(codes, list) or len(codes) != len(times):
        found = f"{len(times)} times"
        raise InputError("not an exit code for each run", where=where, found=found, do=_EXPORT)
    judged = {"": [_judge_run(value, code) for value, code in zip(times, codes, strict=True)]}
    if isinstance(sizes, list) and len(sizes) == len(times):
        judged["memory"] = [_judge_run(value, code) for value, code in zip(sizes, codes, strict=True)]
    for quantity, runs in judged.items():
        yield MeasuredBenchmark(name, "bytes" if quantity else "s", "lower", runs, quantity)


def _judge_run(value: Any, code: Any) -> MeasuredRun:
    if code is None:
        return MeasuredRun(None, "killed", "ended by a signal, or its exit code is not known", None)
    if isinstance(code, bool) or not isinstance(code, int):
        return MeasuredRun(None, "invalid document", f"not an exit code: {str(code)[:40]}", None)
    return MeasuredRun(None, "exit code", f"exit code {code}", code) if code else judge_value(value)


FORMAT = ImportFormat(
    name="hyperfine",
    tool="hyperfine",
    noun=NOUN,
    marks=(('"results"', '"command"', '"(times|mean)"'),),
    read=_read_file,
)
