"""Reads a plain CSV: each row is a point of a history, with its time, series, value, unit and direction."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator

from workbench.core.errors import InputError
from workbench.indicators.store.archive import parse_time
from workbench.indicators.store.benchmark_import import (
    MeasuredBenchmark,
    Measurement,
    build_set,
    find_base_unit,
    format_time,
    judge_value,
)
from workbench.indicators.store.import_formats import ImportContext, ImportedSet, ImportFormat
from workbench.indicators.store.result_files import ResultFile
from workbench.indicators.store.session_import import shorten_text

NOUN = "CSV of a history"
REQUIRED = ("time", "series", "value", "unit", "direction")
OPTIONAL = ("commit", "machine")
MAX_ROWS = 50_000
_EXAMPLE = f"columns: {', '.join(REQUIRED)}, and if you like {', '.join(OPTIONAL)}"


def _read_file(file: ResultFile, context: ImportContext) -> Iterator[ImportedSet]:
    """The rows of one time, commit and machine are a session."""
    measured: dict[tuple[str, str, str], Measurement] = {}
    told: dict[str, tuple[str, str]] = {}
    copies: Counter[tuple[str, ...]] = Counter()
    for number, row in _list_rows(file, context):
        where = f"{file.path}, line {number}"
        copies[tuple(row.values())] += 1
        if copies[tuple(row.values())] > 1:
            context.add_notice("a repeated row: counted once")
            continue
        time, series, unit, direction = row["time"], row["series"], row["unit"], row["direction"].lower()
        if parse_time(time) is None or time.isdigit():
            raise InputError("not a time", where=where, found=time[:60], allowed="2026-01-31T12:00:00+00:00")
        if not series:
            raise InputError("a row without the name of its series", where=where)
        if direction not in ("lower", "higher"):
            raise InputError("not a direction", where=where, found=direction[:40], allowed="lower or higher")
        known = told.setdefault(series, (find_base_unit(unit)[0], direction))
        if known != (find_base_unit(unit)[0], direction):
            found = f"{unit[:40] or 'no unit'} {direction} after {known[0][:40] or 'no unit'} {known[1]}"
            raise InputError("one series with two units or directions", where=f"{where}, {series[:80]}", found=found)
        moment, commit, machine = key = (format_time(time, context), row.get("commit", ""), row.get("machine", ""))
        new = Measurement("csv", model=shorten_text(machine), machine=machine, revision=commit or None)
        new.measured_at = moment
        one = measured.setdefault(key, new)
        try:
            run = judge_value(float(row["value"].replace("_", "x")) if row["value"] else None)
        except ValueError:
            do = "write numbers with a decimal point, the unit in its own column"
            raise InputError("not a number", where=where, found=row["value"][:60], do=do) from None
        one.benchmarks.append(MeasuredBenchmark(series, unit, "higher" if direction == "higher" else "lower", [run]))
    for one in measured.values():
        yield build_set(one, context)


def _list_rows(file: ResultFile, context: ImportContext) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows by column, with the numbers of their lines."""
    head = file.text.lstrip().split("\n", 1)[0]
    mark = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(file.text), delimiter=mark)
    try:
        columns: list[str] | None = None
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if columns is None:
                columns = [cell.lower() for cell in cells]
                missing = [name for name in REQUIRED if name not in columns]
                unknown = [name for name in columns if name not in (*REQUIRED, *OPTIONAL)]
                if missing or unknown or len(set(columns)) < len(columns):
                    found = f"unknown: {', '.join(unknown)[:200]}" if unknown else "a column twice"
                    found = f"missing: {', '.join(missing)}" if missing else found
                    raise InputError(f"not the columns of a {NOUN}", where=file.path, found=found, do=_EXAMPLE)
            elif [cell.lower() for cell in cells] == columns:
                context.add_notice("the header line is repeated: several files were joined")
            elif len(cells) != len(columns):
                found = f"{len(cells)} cells of {len(columns)}"
                do = "quote texts with a comma; is the file cut off?"
                raise InputError(
                    "not a cell for each column", where=f"{file.path}, line {reader.line_num}", found=found, do=do
                )
            elif reader.line_num > MAX_ROWS:
                raise InputError("too many rows", where=file.path, allowed=f"at most {MAX_ROWS:,}")
            else:
                yield reader.line_num, dict(zip(columns, cells, strict=True))
    except csv.Error as error:
        raise InputError(f"not a {NOUN}", where=f"{file.path}, line {reader.line_num}", found=str(error)) from None
    if not file.text.endswith("\n"):
        context.add_notice("the last line has no end: it may be cut off")


FORMAT = ImportFormat(
    name="csv",
    tool="a CSV",
    noun=NOUN,
    marks=((r"(?i)\A(?=[^\n]*\bseries\b)(?=[^\n]*\bvalue\b)\"?\w+\"?[,;\t]",),),
    takes=frozenset({"stack", "machine", "revision"}),
    read=_read_file,
)
