"""A job of the calculator on disk: a folder named as the toolkit names it, that never meets another one."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from workbench.errors import InputError
from workbench.sizing.calculator import calcfile
from workbench.sizing.calculator.calculation import Calculation

Mode = Literal["online", "offline"]
NOTES = "calc_notes.json"
DO = "name another folder with --calc_output_dir, or only print with --no_write"


def new_folder(output_dir: Path, mode: Mode, *, append: bool = False) -> Path:
    """Make `OUTPUT/MODE/job_SECONDS` (with `append`, `job_UUID`), a folder that was not there before.

    The toolkit names jobs by the second, and two within one second share a folder, of which the later one survives.
    Here the second that is taken makes room for the next free one.

    Raises
    ------
    InputError
        Nothing can be written there.
    """
    parent = output_dir / mode
    seconds = int(time.time())
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = parent / (f"job_{uuid.uuid4()}" if append else f"job_{seconds}")
            try:
                folder.mkdir()
            except FileExistsError:
                seconds += 1
                continue
            return folder
    except OSError as error:
        raise InputError("results cannot be written there", where=parent, found=error.strerror, do=DO) from error


def write(folder: Path, result: Calculation, *, notes: dict[str, object], plots: bool) -> list[Path]:
    """Write the calculator's file, our notes beside it and, with `plots`, the pictures; give the paths.

    The file holds the toolkit's schema and nothing else; reasons, failures and what ran stand in the notes.
    """
    import orjson

    from workbench.files import write_text
    from workbench.redaction import clean

    try:
        paths = [calcfile.write(folder / calcfile.NAME, result.output)]
        document = orjson.dumps(clean(notes), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
        paths.append(write_text(folder / NOTES, document + "\n"))
        if plots:
            from workbench.sizing.calculator.calc_charts import write_pictures

            paths += write_pictures(result, folder)
    except OSError as error:
        raise InputError("results cannot be written there", where=folder, found=error.strerror, do=DO) from error
    return paths


def remove_older(folder: Path, jobs: Sequence[Path]) -> list[str]:
    """Remove these jobs, which the toolkit does unasked, but not `folder` itself, a link, or what is no job.

    Returns
    -------
    list of str
        The names of the folders that were removed.
    """
    removed = []
    for job in jobs:
        if job == folder or job.is_symlink() or not (job / calcfile.NAME).is_file():
            continue
        shutil.rmtree(job)
        removed.append(job.name)
    return removed
