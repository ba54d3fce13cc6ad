"""Applications read from an existing `rapids_4_spark_profile` folder: by column name, whatever version wrote it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from workbench.errors import InputError
from workbench.speedup.seed.applications import SeedApplication, StageRow

T = TypeVar("T")
Row = dict[str, str]
PROFILE = "rapids_4_spark_profile"
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


def is_profile(path: str | Path) -> bool:
    """Is this a folder of profiles, and not one of event logs?

    Examples
    --------
    >>> is_profile("no/such/folder")
    False
    """
    folder = Path(path)
    return folder.is_dir() and bool(_applications(folder))


def read_folder(path: str | Path, *, accelerated: bool) -> list[SeedApplication]:
    """The applications in a profile folder: each of its sub-folders is one.

    Parameters
    ----------
    path
        The `rapids_4_spark_profile` folder, or one above or (with a single application) below it.
    accelerated
        Which side it is for; on the CPU side the table of codegen spans and that of metrics are needed, too.

    Raises
    ------
    InputError
        No application in it, a table or column missing, or a cell that is no number.
    """
    folder = Path(path)
    applications = _applications(folder)
    if not applications:
        raise InputError(
            "no profile in this folder",
            where=folder,
            allowed=f"a {PROFILE} folder with a sub-folder per application, each with {APPLICATION}",
            do="workbench speedup profile --csv --eventlogs LOG --local_folder DIR",
        )
    return [_application(found, accelerated=accelerated) for found in applications]


def _applications(folder: Path) -> list[Path]:
    """Sorted by name: the original took them as the file system gave them, which only matters for equal names."""
    if (folder / APPLICATION).is_file():
        return [folder]
    for pattern in (f"*/{APPLICATION}", f"{PROFILE}/*/{APPLICATION}", f"*/{PROFILE}/*/{APPLICATION}"):
        if found := sorted(file.parent for file in folder.glob(pattern)):
            return found
    return []


def _application(folder: Path, *, accelerated: bool) -> SeedApplication:
    rows = _table(folder, APPLICATION)
    if not rows:
        raise InputError("table has no rows", where=folder / APPLICATION)
    about = rows[0]
    duration = _cell(about, "duration", int, folder / APPLICATION)
    if duration is None:
        raise InputError("application without a duration", where=folder / APPLICATION, do="record it to its end")
    spans = [] if accelerated else _table(folder, SPANS)
    metrics = [] if accelerated else _table(folder, METRICS)
    return SeedApplication(
        where=str(folder),
        name=about["appName"],
        duration_ms=duration,
        accelerated=about["pluginEnabled"].strip().lower() == "true",
        spans=tuple((row["SQL Node"], row["Child Node"]) for row in spans),
        span_times=tuple(
            (row["nodeName"], _cell(row, "total", int, folder / METRICS) or 0)
            for row in metrics
            if row["name"] == "duration"
        ),
        stages=tuple(
            StageRow(_cell(row, "Stage Duration", _whole, folder / STAGES), row["SQL Nodes(IDs)"])
            for row in _table(folder, STAGES)
        ),
    )


def _whole(text: str) -> int:
    """Whole milliseconds; a column with gaps may have been written as 12.0 by other tools."""
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


def _cell(row: Row, column: str, kind: Callable[[str], T], where: Path) -> T | None:
    text = row[column].strip()
    if text in ("", "null"):
        return None
    try:
        return kind(text)
    except (ValueError, OverflowError) as error:
        raise InputError("cell is no number", where=f"{where}, column {column}", found=text[:80]) from error


def _table(folder: Path, name: str) -> list[Row]:
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
