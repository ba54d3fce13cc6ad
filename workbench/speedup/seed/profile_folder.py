"""A `rapids_4_spark_profile` folder, as the original's profiler writes it, for its scripts and for ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import InputError
from workbench.files import write_text
from workbench.speedup.seed.folder import PROFILE, SPANS
from workbench.speedup.seed.log import SeedLog, read
from workbench.speedup.seed.numbers import printed
from workbench.speedup.seed.profile_tables import Cell, Table, Text, Word, tables


def write_profile(eventlogs: Sequence[str | Path], folder: str | Path) -> list[Path]:
    """Write the profile of every application in the logs below `folder`; give back the files.

    The layout is `folder/rapids_4_spark_profile/<application id>/<table>.csv`.

    Raises
    ------
    InputError
        A log cannot be used, two logs have the same application id, or there is a profile already.
    """
    logs = [log for path in eventlogs for log in read(path, keep_tasks=True)]
    target = Path(folder) / PROFILE
    names: dict[str, SeedLog] = {}
    for log in logs:
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
    return [file for name, log in names.items() for file in _write(log, target / name)]


def _write(log: SeedLog, folder: Path) -> list[Path]:
    written = []
    for name, table in tables(log).items():
        # Of an accelerated run nobody reads the codegen spans; for a CPU run the scripts need the file, even empty.
        if table[1] or (f"{name}.csv" == SPANS and not log.accelerated) or name != SPANS.removesuffix(".csv"):
            written.append(write_text(folder / f"{name}.csv", text(table)))
    return written


def text(table: Table) -> str:
    """Header and rows in the original's way of quoting: texts always, numbers never, nothing as two quotes."""
    head, rows = table
    return "\n".join([",".join(head), *(",".join(map(_cell, row)) for row in rows)]) + "\n"


def _cell(cell: Cell) -> str:
    match cell:
        case None:
            return '""'
        case Text(text=words):
            return '"' + words.replace('"', '""') + '"'
        case Word(text=word):
            return word
        case bool():
            return str(cell).lower()
        case float():
            return printed(cell)
        case _:
            return str(cell)
