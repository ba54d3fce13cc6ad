"""Reads results of pytest-codspeed (`--codspeed --codspeed-mode walltime`): each benchmark's median is one run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from workbench.core.errors import InputError
from workbench.indicators.store.benchmark_import import (
    MeasuredBenchmark,
    Measurement,
    build_set,
    judge_value,
    require_rows,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile
from workbench.indicators.store.session_import import get_part

NOUN = "result of CodSpeed"
_WALLTIME = "pytest --codspeed --codspeed-mode walltime"
_FILE_NAME = re.compile(r"results_([0-9]{13})\b")


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """The benchmarks of each document of a file."""
    for document in file.read_documents(NOUN, context.notices, do=_WALLTIME):
        rows = require_rows(document, "benchmarks", NOUN, file.path)
        instrument = get_part(document, "instrument").get("type")
        if instrument != "walltime":
            raise InputError("no times in this file", where=file.path, found=str(instrument)[:40], do=_WALLTIME)
        python = str(get_part(document, "python", "sysconfig").get("py_version") or "")[:20]
        match = _FILE_NAME.match(file.path.name)
        moment = datetime.fromtimestamp(int(match[1]) / 1000, UTC).isoformat() if match else ""
        stack = f"Python {python}" if python else str(get_part(document, "creator").get("name") or "CodSpeed")
        measured = Measurement("codspeed", stack=stack, python=python, measured_at=moment)
        names = _shorten_places([str(row.get("uri") or row.get("name")) for row in rows])
        for name, row in zip(names, rows, strict=True):
            run = judge_value(get_part(row, "stats").get("median_ns"))
            measured.benchmarks.append(MeasuredBenchmark(name, "ns", "lower", [run]))
        yield build_set(measured, context)


def _shorten_places(names: list[str]) -> list[str]:
    """Names without the folders that all of them share, where these begin at the root of the machine.

    >>> _shorten_places(["/home/me/x/tests/test_a.py::test_a", "/home/me/x/tests/b/test_b.py::test_b"])
    ['test_a.py::test_a', 'b/test_b.py::test_b']
    """
    folders = [name.partition("::")[0].rpartition("/")[0] for name in names]
    if not folders or not all(folder.startswith("/") for folder in folders):
        return names
    shared = os.path.commonpath(folders).rstrip("/")
    return [name[len(shared) + 1 :] for name in names]


FORMAT = ImportFormat(
    name="codspeed",
    tool="CodSpeed",
    noun=NOUN,
    marks=(('"creator"', '"instrument"', '"benchmarks"'),),
    read=_read_file,
)
