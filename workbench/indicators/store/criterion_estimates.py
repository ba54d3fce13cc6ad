"""Reads results of criterion: a folder target/criterion, or the messages of `cargo criterion --message-format=json`.

Each benchmark's median is one run: its samples are of one process.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.core.data_files import read_json_file
from workbench.core.errors import InputError
from workbench.core.files import read_up_to
from workbench.indicators.store.archive import OUTSIDE, is_inside, parse_time
from workbench.indicators.store.benchmark_import import (
    MeasuredBenchmark,
    Measurement,
    build_set,
    find_base_unit,
    judge_value,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import (
    MAX_FILES,
    ResultFile,
    format_modified,
    read_result_file,
)

NOUN = "result of criterion"
OLD = "benchmarks measured hours before the newest in the folder: perhaps of an earlier commit"
MAX_AGE_S = 6 * 3600.0
_MAX_BYTES = 1 << 20
_COMPLETE = "benchmark-complete"


def _is_tree(path: Path) -> bool:
    """Whether a folder holds results of criterion; those of cargo-criterion's own are refused."""
    if not path.is_dir():
        return False
    if any(path.glob("**/new/estimates.json")):
        return True
    if any(path.glob("**/measurement_*.cbor")):
        do = "cargo criterion --message-format=json > FILE"
        raise InputError("data of cargo-criterion's own, which cannot be imported", where=path, do=do)
    return False


def _list_trees(path: Path, _: str) -> list[Path]:
    """A folder with results as it is, or a file as it is."""
    if path.is_dir() and next(path.glob("**/new/estimates.json"), None) is None:
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        if not files or (path / "estimates.json").is_file():
            return [path / "estimates.json"]
        return files[:MAX_FILES]
    return [path]


def _open_file(path: Path, noun: str) -> ResultFile:
    """Text of a file of messages; of a folder, or a file estimates.json, the same messages made from its files."""
    if path.is_dir():
        files = sorted(path.glob("**/new/estimates.json"))
        if len(files) > MAX_FILES:
            raise InputError("too many benchmarks", where=path, found=len(files), allowed=f"at most {MAX_FILES:,}")
        if outside := [file for file in files if not is_inside(file, path.resolve())]:
            raise InputError(OUTSIDE, where=outside[0], do="name the file itself")
    elif path.name == "estimates.json":
        files = [path]
    else:
        return read_result_file(path, noun)
    text = "\n".join(json.dumps(_build_message(file)) for file in files)
    return ResultFile(path, text, max(map(format_modified, files)))


def _build_message(file: Path) -> dict[str, Any]:
    """Message of cargo-criterion for the files of a benchmark."""
    estimates, about = (
        read_json_file(place, noun=NOUN, max_bytes=_MAX_BYTES) for place in (file, file.parent / "benchmark.json")
    )
    median = estimates.get("median") if isinstance(estimates, dict) else None
    if not isinstance(median, dict) or not isinstance(about, dict):
        raise InputError(f"not a {NOUN}", where=file, allowed="estimates.json with a median, and benchmark.json")
    name = str(about.get("full_id") or about.get("title") or file.parent.parent.name)
    unit = _read_unit(file.parent / "raw.csv")
    median = {"estimate": median.get("point_estimate"), "unit": unit}
    return {"reason": _COMPLETE, "id": name, "unit": unit, "median": median, "modified_at": format_modified(file)}


def _read_unit(path: Path) -> str:
    """Unit of the samples; ns unless a measurement of the user's own has another."""
    try:
        rows = list(csv.DictReader(read_up_to(path, 64 << 20).decode("utf-8", "replace").splitlines()[:2]))
    except (OSError, InputError):
        return "ns"
    return str(rows[0].get("unit") or "ns") if rows else "ns"


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """The benchmarks of a folder or a stream of messages."""
    measured, times = Measurement("criterion"), []
    for message in file.read_documents(NOUN, context.notices, do="cargo criterion --message-format=json > FILE"):
        if not isinstance(message, Mapping) or message.get("reason") != _COMPLETE:
            continue
        median = message.get("median")
        if not isinstance(median, Mapping):
            raise InputError(f"not a {NOUN}", where=file.path, found="no median")
        unit = str(median.get("unit") or message.get("unit") or "ns")
        # Of a measurement of the user's own the direction is not told.
        better = "lower" if find_base_unit(unit)[0] == "s" else None
        run = judge_value(median.get("estimate"))
        measured.benchmarks.append(MeasuredBenchmark(str(message.get("id")), unit, better, [run]))  # type: ignore[arg-type]
        times.append(parse_time(message.get("modified_at")))
    known = [time for time in times if time is not None]
    old = sum((max(known) - time).total_seconds() > MAX_AGE_S for time in known)
    if old:
        context.add_notice(OLD, old)
    yield build_set(measured, context)


FORMAT = ImportFormat(
    name="criterion",
    tool="criterion",
    noun=NOUN,
    marks=(('"reason" *: *"(benchmark|group)-complete"',), ('"median_abs_dev"', '"point_estimate"')),
    owns=_is_tree,
    list_files=_list_trees,
    open_file=_open_file,
    read=_read_file,
)
