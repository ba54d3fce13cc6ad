"""Folders rapids_4_spark_profile: read by column name, and written as the v24.08 profiler does."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from workbench.core.errors import InputError
from workbench.core.files import write_text
from workbench.speedup.compat_rapids_tools.jvm_semantics import format_double
from workbench.speedup.compat_rapids_tools.profile_tables import (
    Bare,
    Cell,
    SeedApplication,
    StageRow,
    Table,
    build_profile_tables,
)
from workbench.speedup.compat_rapids_tools.seed_log import SeedLog, keep_usable, read_seed_logs

T = TypeVar("T")
Row = dict[str, str]
PROFILE_FOLDER = "rapids_4_spark_profile"
APPLICATION = "application_information.csv"
SPANS, METRICS = "wholestagecodegen_mapping.csv", "sql_plan_metrics_for_application.csv"
STAGES = "sql_to_stage_information.csv"
MAX_BYTES = 1 << 30
# Columns of 26.x and 24.08 alike; the others come and go between versions.
COLUMNS = {
    APPLICATION: ("appName", "duration", "pluginEnabled"),
    SPANS: ("SQL Node", "Child Node"),
    METRICS: ("nodeName", "name", "total"),
    STAGES: ("Stage Duration", "SQL Nodes(IDs)"),
}


def is_profile_folder(path: str | Path) -> bool:
    """Is this a folder of profiles, and not one of event logs?

    >>> is_profile_folder("no/such/folder")
    False
    """
    folder = Path(path)
    return folder.is_dir() and bool(_list_application_folders(folder))


def read_profile_folder(
    path: str | Path, *, accelerated: bool, unusable: dict[str, str] | None = None
) -> list[SeedApplication]:
    """The applications in a profile folder: each of its sub-folders is one.

    `path`: The `rapids_4_spark_profile` folder, or one above or (with a single application) below it.
    `accelerated`: Which side it is for; on the CPU side the table of codegen spans and that of metrics are needed,
    too.
    `unusable`: Gets the reason of each application that cannot be used; an error without it, or where none can be used.
    """
    folder = Path(path)
    applications = _list_application_folders(folder)
    if not applications:
        raise InputError(
            "no profile in this folder",
            where=folder,
            allowed=f"a {PROFILE_FOLDER} folder with a sub-folder per application, each with {APPLICATION}",
            do="workbench speedup profile --csv --eventlogs LOG --local_folder DIR",
        )
    return keep_usable(
        applications, lambda application: _read_application(application, accelerated=accelerated), str, unusable
    )


def _list_application_folders(folder: Path) -> list[Path]:
    """List the folders of applications by name; their order matters only for equal names."""
    if (folder / APPLICATION).is_file():
        return [folder]
    for pattern in (f"*/{APPLICATION}", f"{PROFILE_FOLDER}/*/{APPLICATION}", f"*/{PROFILE_FOLDER}/*/{APPLICATION}"):
        if folders := sorted(file.parent for file in folder.glob(pattern)):
            return folders
    return []


def _read_application(folder: Path, *, accelerated: bool) -> SeedApplication:
    rows = _read_table(folder, APPLICATION)
    if not rows:
        raise InputError("table has no rows", where=folder / APPLICATION)
    about = rows[0]
    duration = _parse_cell(about, "duration", int, folder / APPLICATION)
    if duration is None:
        raise InputError("application without a duration", where=folder / APPLICATION, do="record it to its end")
    has_plugin = about["pluginEnabled"].strip().lower() == "true"
    # Of an accelerated application on the CPU side, the side is what is wrong, and not a table.
    spans = [] if accelerated or has_plugin else _read_table(folder, SPANS)
    metrics = [] if accelerated or has_plugin else _read_table(folder, METRICS)
    return SeedApplication(
        where=str(folder),
        name=about["appName"],
        duration_ms=duration,
        accelerated=has_plugin,
        spans=tuple((row["SQL Node"], row["Child Node"]) for row in spans),
        span_times=tuple(
            (row["nodeName"], _parse_cell(row, "total", int, folder / METRICS) or 0)
            for row in metrics
            if row["name"] == "duration"
        ),
        stages=tuple(
            StageRow(_parse_cell(row, "Stage Duration", _parse_whole_ms, folder / STAGES), row["SQL Nodes(IDs)"])
            for row in _read_table(folder, STAGES)
        ),
    )


def _parse_whole_ms(text: str) -> int:
    """Parse whole milliseconds; other tools may have written a column with gaps as 12.0."""
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


def _parse_cell(row: Row, column: str, kind: Callable[[str], T], where: Path) -> T | None:
    text = row[column].strip()
    if text in ("", "null"):
        return None
    try:
        return kind(text)
    except (ValueError, OverflowError) as error:
        raise InputError("cell is no number", where=f"{where}, column {column}", found=text[:80]) from error


def _read_table(folder: Path, name: str) -> list[Row]:
    """Read a CSV table of a profile folder as rows of text; refuse one that lacks a needed column."""
    path = folder / name
    if not path.is_file():
        present = sorted(file.name for file in folder.glob("*.csv"))
        raise InputError(
            "profile folder lacks a table that the seed method needs",
            where=path,
            found=present or "no tables at all",
            do="profile the log again: workbench speedup profile --csv --eventlogs LOG --local_folder DIR",
        )
    if path.stat().st_size > MAX_BYTES:
        raise InputError("table is too large", where=path, found=f"{path.stat().st_size:,} bytes")
    try:
        with path.open(encoding="utf-8-sig", newline="") as opened:
            reader = csv.DictReader(opened, restval="")
            missing = [column for column in COLUMNS[name] if column not in (reader.fieldnames or [])]
            if missing:
                raise InputError("column(s) missing: " + ", ".join(missing), where=path, found=reader.fieldnames)
            return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError("table cannot be read", where=path, found=str(error)[:200]) from error


def write_profile_folder(
    eventlogs: Sequence[str | Path], folder: str | Path, *, unusable: dict[str, str] | None = None
) -> list[Path]:
    """Write the profile of every application in the logs below `folder`; give back the files.

    The layout is `folder/rapids_4_spark_profile/<application id>/<table>.csv`.
    `unusable`: Gets the reason of each log that has no profile; an error without it, or where none has one.
    """
    logs = read_seed_logs(*eventlogs, keep_tasks=True, unusable=unusable)
    target = Path(folder) / PROFILE_FOLDER
    names: dict[str, SeedLog] = {}

    def choose_folder(log: SeedLog) -> tuple[SeedLog, Path]:
        name = re.sub(r"[^A-Za-z0-9._-]", "_", log.app_id or log.app_name).lstrip(".") or "application"
        if name in names:
            raise InputError(
                "two logs of the same application",
                where=log.where,
                found=f"{name}, also in {names[name].where}",
                do="profile them into folders of their own",
            )
        if (target / name).exists():
            raise InputError(
                "there is a profile of this application already", where=target / name, do="choose another folder"
            )
        names[name] = log
        return log, target / name

    chosen = keep_usable(logs, choose_folder, lambda log: log.where, unusable)
    return [
        write_text(place / f"{name}.csv", format_csv_table(table))
        for log, place in chosen
        for name, table in build_profile_tables(log).items()
        # The scripts read codegen spans of CPU runs only, and need that file even if it is empty.
        if table[1] or not log.accelerated or f"{name}.csv" != SPANS
    ]


def format_csv_table(table: Table) -> str:
    """Header and rows in the original's way of quoting: texts always, numbers never, nothing as two quotes."""
    head, rows = table
    return "\n".join([",".join(head), *(",".join(map(_format_cell, row)) for row in rows)]) + "\n"


def _format_cell(cell: Cell) -> str:
    match cell:
        case None:
            return '""'
        case str():
            return '"' + cell.replace('"', '""') + '"'
        case Bare(text=word):
            return word
        case bool():
            return str(cell).lower()
        case float():
            return format_double(cell)
        case _:
            return str(cell)
